"""Tables of notebook 06, in which all methods have one protocol: words and Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fednb import results
from fednb.leads import Lead, differences, lead_of
from fednb.results import Cell

BASELINE = "FedAvg"
ADJUSTED = "FedAvg (adjusted)"  # its model's answers, to the classes of the client that asks
OWN = ("FedProto", "Local")  # whose clients keep networks of their own, and know their classes
TRIALS = {"digits, β = 0.5": "side-digits-trials", "five domains": "side-domains-trials"}

_TUNED = {"mu_glob": "μ_glob, μ_moon a fifth", "lam1": "λ₁, λ₂ ten times", "strength": "s"}


class Setting(NamedTuple):
    """Where methods are compared: a column of the scoreboard."""

    title: str
    table: str
    column: str = "accuracy"
    gap: float = 0.0  # to the column at its left
    adjusted: str = ""  # the table of FedAvg with adjusted answers, if it is another


SETTINGS = [
    Setting("β = 0.1\n1st", "side-first-digits-beta-0.1"),
    Setting("\n2nd", "side-digits-beta-0.1"),
    Setting("β = 0.5\n1st", "side-first-digits-beta-0.5", gap=0.15),
    Setting("\n2nd", "side-digits-beta-0.5"),
    Setting("β = 5\n1st", "side-first-digits-beta-5", gap=0.15),
    Setting("\n2nd", "side-digits-beta-5"),
    Setting("quantity\n1st", "side-first-digits-quantity", gap=0.15),
    Setting("\n2nd", "side-digits-quantity"),
    Setting("1st", "side-first-domains", gap=0.4),
    Setting("2nd", "side-domains"),
    Setting("CIFAR-10\n20 rounds", "side-cifar10-beta-0.5-short", gap=0.4),
    Setting("CIFAR-10\n100", "side-cifar10-beta-0.5", gap=0.2),
    Setting("MNIST\nβ = 0.1", "side-mnist-beta-0.1-short", gap=0.2),
    Setting("15\nrounds", "side-digits-beta-0.1", "client mean", gap=0.4, adjusted="side-told-beta-0.1"),
    Setting("60\nrounds", "side-long-beta-0.1", "rate 0.04"),
]
GROUPS = [  # what columns have in common; the first one of them, and the last
    ("digits, 15 rounds", 0, 7),
    ("five domains", 8, 9),
    ("papers' data, untuned", 10, 12),
    ("own images", 13, 14),
]


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


def trials() -> dict[str, dict[str, Any]]:
    """The trials of each method, by what their split is called."""
    return {title: results.load("side_by_side")["trials"][name] for title, name in TRIALS.items()}


def held_out(title: str, method: str) -> dict[float, list[float]]:
    """The accuracies (%) of a method's trials on held-out images, a seed each, by the tuned value."""
    found = {}
    for cell in results.cells(TRIALS[title]):
        name, comma, of_trial = cell.row.rpartition(", ")
        if comma and name == method:
            *_, value = of_trial.split()
            found[float(value)] = list(cell.by_seed.values())
    return found


def name_of_tuned(tuning: Mapping[str, Any]) -> str:
    """What is tuned, as figures and tables call it: with what goes along."""
    return _TUNED.get(tuning["tuned"], tuning["called"])


def rate(table: str, method: str = BASELINE) -> str:
    """A method's learning rate in a table."""
    return results.cell(table, method, "accuracy").parameters["lr"]


def lead_if_run(setting: Setting, method: str) -> Lead | None:
    """The lead of a method over FedAvg in a setting; None if it has no runs there."""
    row = _row_of(setting, method)
    if row is None:
        return None
    of = lead_in(_table_of(setting, method), row.row, column=setting.column)
    return of if of.seeds else None


def diverged(setting: Setting, method: str) -> bool:
    """Whether a run of the method itself diverged in a setting."""
    row = _row_of(setting, method)
    return row is not None and row.diverged


def _table_of(setting: Setting, method: str) -> str:
    """The table that has a method in a setting."""
    if method == ADJUSTED and setting.adjusted:
        return setting.adjusted
    return setting.table


def _row_of(setting: Setting, method: str) -> Cell | None:
    """What a method has in a setting; None if it was not run there."""
    rows = _rows(_table_of(setting, method), setting.column)
    for name in (method, f"{method}, λ = 0.1"):
        if name in rows:
            return rows[name]
    return None
