"""Tables of notebook 06, in which all methods have one protocol: words and Markdown."""

from collections.abc import Mapping, Sequence
from itertools import combinations
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

# Tables of the papers' own comparisons, and methods that are called otherwise there.
_MAIN_TABLES = {
    "MOON": ["Table 1"],
    "FedProc": ["Table 2"],
    "FedSSC": ["Table I"],
    "FedProto": ["Table 2"],
    "FedPLCC": ["Table II", "Table III", "Table IV"],
}
_BY_YEAR = [
    "Local",
    BASELINE,
    "FedProx",
    "SCAFFOLD",
    "MOON",
    "FedProc",
    "FedProto",
    "FedSSC",
    "FedProto+FedAvg",
    "FedPLCC",
]
_OTHER_NAMES = {"SOLO": "Local", "FedPLCC (Ours)": "FedPLCC"}
_ON_CIFAR10 = {
    "MOON Table 1": "CIFAR-10",
    "FedProc Table 2": "CIFAR-10",
    "FedSSC Table I": "TOP-1 ACCURACY",
}
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


def met_in_papers() -> pd.DataFrame:
    """Which of our methods each paper compares: papers are columns, both by year."""
    names = _BY_YEAR
    columns = {}
    for paper, found in _compared().items():
        columns[paper] = ["●" if name in found else "" for name in names]
    return pd.DataFrame(columns, index=names)


def pairs_that_met() -> tuple[int, int]:
    """Of the pairs among the papers' methods, one a paper: how many share a table, and how many there are."""
    pairs = [set(pair) for pair in combinations(_MAIN_TABLES, 2)]
    met = [pair for pair in pairs if any(pair <= found for found in _compared().values())]
    return len(met), len(pairs)


def fedavg_as_printed() -> dict[str, float | None]:
    """FedAvg's accuracy (%) on CIFAR-10, as three papers print it."""
    found = {}
    for table, column in _ON_CIFAR10.items():
        value = results.printed(table)["FedAvg"][column]
        found[table] = 100 * value if value is not None and value < 1 else value
    return found


def _compared() -> dict[str, set[str]]:
    """By paper the methods in its main tables, in our names."""
    compared = {}
    for paper, tables in _MAIN_TABLES.items():
        found = set()
        for table in tables:
            for row in results.printed(f"{paper} {table}"):
                name = row.split(",")[0]
                found.add(_OTHER_NAMES.get(name, name))
        if paper == "FedPLCC" and "FedProto" in found:  # there weights travel, too
            found = (found - {"FedProto"}) | {"FedProto+FedAvg"}
        compared[paper] = found
    return compared


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
    table = setting.table
    if method == ADJUSTED and setting.adjusted:
        table = setting.adjusted
    rows = _rows(table, setting.column)
    names = [name for name in (method, f"{method}, λ = 0.1") if name in rows]
    if not names:
        return None
    of = lead_in(table, names[0], column=setting.column)
    return of if of.seeds else None
