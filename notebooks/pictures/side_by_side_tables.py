"""Tables of notebook 06, in which all methods have one protocol: words and Markdown."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from fednb import results
from fednb.leads import Lead, differences, lead_of
from fednb.results import Cell

BASELINE = "FedAvg"
ADJUSTED = "FedAvg (adjusted)"  # its model's answers, to the classes of the client that asks
OWN = ("FedProto", "Local")  # whose clients keep networks of their own, and know their classes


class Setting(NamedTuple):
    """Where methods are compared: a column of the scoreboard."""

    title: str
    table: str
    column: str = "accuracy"
    gap: float = 0.0  # to the column at its left
    note: str = ""  # below the column


SETTINGS = [
    Setting("β = 0.1\n1st", "side-first-digits-beta-0.1"),
    Setting("β = 0.1\n2nd", "side-digits-beta-0.1", note="FedAvg\nunstable"),
    Setting("β = 0.5\n1st", "side-first-digits-beta-0.5", gap=0.15),
    Setting("β = 0.5\n2nd", "side-digits-beta-0.5"),
    Setting("β = 5\n1st", "side-first-digits-beta-5", gap=0.15),
    Setting("β = 5\n2nd", "side-digits-beta-5"),
    Setting("1st", "side-first-domains", gap=0.4),
    Setting("2nd", "side-domains"),
    Setting("CIFAR-10\n20 rounds", "side-cifar10-beta-0.5-short", gap=0.4),
    Setting("CIFAR-10\n100 rounds", "side-cifar10-beta-0.5", gap=0.2),
    Setting("MNIST\nβ = 0.1", "side-mnist-beta-0.1-short", gap=0.2),
]
GROUPS = [  # what columns have in common; the first one of them, and the last
    ("digits, 15 rounds", 0, 5),
    ("five domains", 6, 7),
    ("papers' data, untuned", 8, 10),
]
_AT_CHANCE = 10.5  # percent; the data of all settings have ten classes, about equally often


def splits() -> dict[str, str]:
    """The names of the five tables of the question, by what they are called."""
    return results.load("side_by_side")["splits"]


def average_leads(tables: Sequence[str], column: str = "accuracy") -> dict[str, Lead]:
    """The mean lead over FedAvg of each method that all tables have.

    For a seed it is the mean of the leads in the tables, of the seeds that all of them have.
    """
    by_row = [_rows(table, column) for table in tables]
    leads = {}
    for method in by_row[0]:
        if method == BASELINE or not all(method in rows for rows in by_row):
            continue
        by_seed = []
        diverged = False
        for rows in by_row:
            ahead = rows[method]
            behind = rows[BASELINE]
            by_seed.append(differences(ahead.by_pair, behind.by_pair))
            diverged = diverged or ahead.diverged or behind.diverged
        means = pd.DataFrame(by_seed).dropna(axis=1).mean()  # by seed
        leads[method] = lead_of(means.tolist(), diverged=diverged)
    return leads


def _rows(table: str, column: str) -> dict[str, Cell]:
    return {cell.row: cell for cell in results.cells(table) if cell.column == column}


def question() -> dict[str, Lead]:
    """Each method's mean lead over the five splits, the largest first."""
    found = average_leads(list(splits().values()))
    return dict(sorted(found.items(), key=lambda item: -_or_lowest(item[1].mean)))


def first(table: str) -> str:
    """The table of the first comparison that goes with one of the second."""
    return table.replace("side-", "side-first-", 1)


def methods() -> list[str]:
    """All methods, the baseline first, then in the order of `question`."""
    return [BASELINE, *question()]


def _or_lowest(mean: float | None) -> float:
    return -np.inf if mean is None else mean


def lead_in(table: str, method: str, over: str = BASELINE, column: str = "accuracy") -> Lead:
    """The lead of a method in one table."""
    return results.compare(results.cell(table, method, column), results.cell(table, over, column))


def rate(table: str, method: str = BASELINE) -> str:
    """A method's learning rate in a table."""
    return results.cell(table, method, "accuracy").parameters["lr"]


def lead_if_run(setting: Setting, method: str) -> Lead | None:
    """The lead of a method over FedAvg in a setting; None if it has no runs there.

    A run that ends at chance counts as one that diverged.
    """
    rows = _rows(setting.table, setting.column)
    if method not in rows:
        return None
    of = lead_in(setting.table, method, column=setting.column)
    lost = of.diverged or _ends_at_chance(rows[method]) or _ends_at_chance(rows[BASELINE])
    return of._replace(diverged=lost)


def numbers(setting: Setting) -> dict[str, Lead]:
    """The leads over FedAvg in a setting that have a number in the scoreboard, by method."""
    leads = {name: lead_if_run(setting, name) for name in methods()[1:]}
    return {name: of for name, of in leads.items() if of and of.judged and not of.diverged}


def p_values() -> pd.DataFrame:
    """A row for each number of the scoreboard: where it stands, points ahead of FedAvg, and p."""
    rows = []
    for group, first_one, last in GROUPS:
        for setting in SETTINGS[first_one : last + 1]:
            where = f"{group}: {setting.title}".replace("\n", ", ")
            for method, of in numbers(setting).items():
                rows.append({"where": where, "method": method, "points": of.mean, "p": of.p})
    return pd.DataFrame(rows)


def _ends_at_chance(cell: Cell) -> bool:
    return min(cell.by_pair.values(), default=100.0) < _AT_CHANCE
