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
    other: str | None = None  # a second table, with other seeds: the mean is over both


SETTINGS = [
    Setting("β = 0.1\n1st", "side-first-digits-beta-0.1"),
    Setting("\n2nd", "side-digits-beta-0.1"),
    Setting("\nboth", "side-first-digits-beta-0.1", other="side-digits-beta-0.1"),
    Setting("β = 0.5\n1st", "side-first-digits-beta-0.5", gap=0.15),
    Setting("\n2nd", "side-digits-beta-0.5"),
    Setting("β = 5\n1st", "side-first-digits-beta-5", gap=0.15),
    Setting("\n2nd", "side-digits-beta-5"),
    Setting("1st", "side-first-domains", gap=0.4),
    Setting("2nd", "side-domains"),
    Setting("CIFAR-10\n20 rounds", "side-cifar10-beta-0.5-short", gap=0.4),
    Setting("CIFAR-10\n100", "side-cifar10-beta-0.5", gap=0.2),
    Setting("MNIST\nβ = 0.1", "side-mnist-beta-0.1-short", gap=0.2),
]
GROUPS = [  # what columns have in common; the first one of them, and the last
    ("digits, 15 rounds", 0, 6),
    ("five domains", 7, 8),
    ("papers' data, untuned", 9, 11),
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

    A run that ends at chance counts as one that diverged. Over two tables it is the mean of all
    differences, each taken within its own table: at the same rate, with the same seed.
    """
    values: list[float] = []
    lost = False
    for table in filter(None, (setting.table, setting.other)):
        rows = _rows(table, setting.column)
        if method not in rows:
            return None
        of = lead_in(table, method, column=setting.column)
        values += of.values
        lost = lost or of.diverged or _ends_at_chance(rows[method]) or _ends_at_chance(rows[BASELINE])
    return lead_of(values, diverged=lost) if values else None


def _ends_at_chance(cell: Cell) -> bool:
    return min(cell.by_pair.values(), default=100.0) < _AT_CHANCE
