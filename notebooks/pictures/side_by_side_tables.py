"""Tables of notebook 06, in which all methods have one protocol: words and Markdown."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from IPython.display import Markdown

from fednb import results
from fednb.leads import MIN_SEEDS, Lead, differences, interval, lead_of
from fednb.results import Cell

BASELINE = "FedAvg"
TOLD = "FedAvg (told)"  # its model, told the class frequencies of the client that asks
GUESS = "its commonest class"  # what a client says who looks at no image
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
_OTHER_NAMES = {"SOLO": "Local", "FedPLCC (Ours)": "FedPLCC"}
_OURS_TO_PAIR = ["MOON", "FedProc", "FedSSC", "FedProto", "FedProto+FedAvg", "FedPLCC"]
_ON_CIFAR10 = {
    "MOON Table 1": "CIFAR-10",
    "FedProc Table 2": "CIFAR-10",
    "FedSSC Table I": "TOP-1 ACCURACY",
}
_TUNED = {"mu_glob": "μ_glob, μ_moon a fifth", "lam1": "λ₁, λ₂ ten times", "strength": "s"}
_ELSEWHERE = {
    "CIFAR-10, 20 rounds of 5 epochs": "side-cifar10-beta-0.5-short",
    "CIFAR-10, 100 rounds of 1 epoch": "side-cifar10-rounds-short",
    "CIFAR-10, 100 rounds of 10 epochs": "side-cifar10-beta-0.5",
    "MNIST, β = 0.1": "side-mnist-beta-0.1-short",
    "MNIST, quantity": "side-mnist-quantity-short",
    "Office-10": "side-office10-short",
    "Digit-5": "side-digits5-short",
}


def splits() -> dict[str, str]:
    """The names of the five tables of the question, by what they are called."""
    return results.load("side_by_side")["splits"]


def told_splits() -> dict[str, str]:
    """The tables in which FedAvg's model is told whom it serves, by what they are called."""
    digits = {title: name for title, name in splits().items() if "digits" in name}
    return {title: name.replace("digits", "told") for title, name in digits.items()}


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


def methods() -> list[str]:
    """All methods, the baseline first, then in the order of `question`."""
    return [BASELINE, *question()]


def _or_lowest(mean: float | None) -> float:
    return -np.inf if mean is None else mean


def lead_in(table: str, method: str, over: str = BASELINE, column: str = "accuracy") -> Lead:
    """The lead of a method in one table."""
    return results.compare(results.cell(table, method, column), results.cell(table, over, column))


def question_table() -> Markdown:
    """The mean lead of each method, and its leads in the splits, unjudged."""
    lines = []
    for method, mean_lead in question().items():
        line = {"method": method, "mean of the five": f"**{results.in_words(mean_lead)}**"}
        line["seeds"] = str(mean_lead.seeds)
        for title, table in splits().items():
            line[title] = _with_dagger(lead_in(table, method))
        lines.append(line)
    return Markdown(results.to_markdown(lines))


def _with_dagger(of: Lead) -> str:
    """A lead, with a dagger where a run diverged: it is of the seeds that are left."""
    text = results.in_words(of)
    return f"{text} †" if of.diverged else text


def met_in_papers() -> pd.DataFrame:
    """Which of our methods each paper compares: papers are columns."""
    names = methods()
    columns = {}
    for paper, found in _compared().items():
        columns[paper] = ["●" if name in found else "" for name in names]
    return pd.DataFrame(columns, index=names)


def pairs_that_met() -> tuple[int, int]:
    """Of the pairs of the papers' own methods: how many share a table, and how many there are."""
    pairs = [set(pair) for pair in combinations(_OURS_TO_PAIR, 2)]
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


def tuning_table() -> Markdown:
    """What the trials chose for each method, on both splits that are tuned for."""
    lines = []
    for method in methods():
        line = {"method": method}
        for title, of_split in trials().items():
            if method in of_split:
                tuning = of_split[method]
                line["tuned"] = name_of_tuned(tuning)
                line[f"chosen: {title}"] = _chosen(tuning)
                line[f"held out (%): {title}"] = _held_out(tuning)
                line[f"trials: {title}"] = str(len(tuning["values"]))
        lines.append(line)
    return Markdown(results.to_markdown(lines))


def name_of_tuned(tuning: Mapping[str, Any]) -> str:
    """What is tuned, as figures and tables call it: with what goes along."""
    return _TUNED.get(tuning["tuned"], tuning["called"])


def _chosen(tuning: Mapping[str, Any]) -> str:
    if tuning["chosen"] is None:
        return "all diverged"
    text = f"{tuning['chosen']:g}"
    return f"{text} (edge)" if tuning["at_edge"] else text


def _held_out(tuning: Mapping[str, Any]) -> str:
    return "" if tuning["accuracy"] is None else f"{tuning['accuracy']:.1f}"


def for_itself() -> dict[str, dict[str, Sequence[float]]]:
    """How right (%) a client is on images like its own, of each seed: by split and whom it asks."""
    found: dict[str, dict[str, Sequence[float]]] = {}
    for title, table in told_splits().items():
        found[title] = {GUESS: results.load("side_by_side")["commonest class"][table]}
        for row in (BASELINE, TOLD, *OWN):
            found[title][row] = results.cell(table, row, "client mean").values
    return found


def told_table() -> Markdown:
    """Accuracy on images like a client's own; below it the leads of networks of one's own."""
    of_splits = for_itself()
    lines = []
    for row in (GUESS, BASELINE, TOLD, *OWN):
        line = {"client mean (%)": row}
        for title, values in of_splits.items():
            line[title] = _mean(values[row])
        lines.append(line)
    for method in OWN:
        line = {"client mean (%)": f"**{method} − {TOLD}**"}
        for title, table in told_splits().items():
            line[title] = f"**{_with_dagger(lead_in(table, method, TOLD, 'client mean'))}**"
        lines.append(line)
    return Markdown(results.to_markdown(lines))


def _mean(values: Sequence[float]) -> str:
    if not values:
        return ""
    if len(values) < MIN_SEEDS:
        return results.one_by_one([f"{value:.1f}" for value in values])
    mean, half_width = interval(values)
    return f"{mean:.1f} ± {half_width:.1f}"


def measures_table() -> Markdown:
    """Mean leads over FedAvg for several questions: the same models, asked otherwise; unjudged."""
    digits = [name for name in splits().values() if "digits" in name]
    told = list(told_splits().values())
    asked = {"all images, digits": average_leads(digits)}
    for column in ("client mean", "worst client"):
        own_prior = {TOLD: average_leads(told, column)[TOLD]}
        asked[f"{column}, digits"] = average_leads(digits, column) | own_prior
    asked["all images, domains"] = average_leads(["side-domains"])
    asked["worst domain"] = average_leads(["side-domains"], "worst domain")
    lines = {name: {"lead over FedAvg": name} for name in [TOLD, *methods()[1:]]}
    for title, found in asked.items():
        for method, lead in found.items():
            lines[method][title] = _with_dagger(lead)
    return Markdown(results.to_markdown(list(lines.values())))


def price_table() -> pd.DataFrame:
    """A round's seconds as a multiple of FedAvg's, and what a client holds."""
    columns = {
        "seconds, FedAvg = 1": _means("side-digits-seconds", "seconds, FedAvg = 1"),
        "kB held": _means("side-digits-beta-0.5-cost", "kB held"),
    }
    return pd.DataFrame(columns).loc[methods()]


def _means(table: str, column: str) -> dict[str, float]:
    """The mean of each row in a column."""
    rows = _rows(table, column)
    return {row: round(cell.mean, 1) for row, cell in rows.items() if cell.mean is not None}


def elsewhere_table() -> Markdown:
    """FedAvg's accuracy and the others' leads over it on the papers' data, untuned."""
    lines = {name: {"": name} for name in methods()}
    for title, table in _ELSEWHERE.items():
        cells = results.cells(table)
        header = f"{title} ({_seeds(cells)})"
        for cell in cells:
            shown = "accuracy" if cell.row == BASELINE else "lead"
            if cell.column == shown and cell.mean is not None and cell.row in lines:
                lines[cell.row][header] = results.measured(cell)
    return Markdown(results.to_markdown(list(lines.values())))


def _seeds(cells: Sequence[Cell]) -> str:
    """How many there are; from the fewest to the most, where rows differ."""
    numbers = {len(cell.values) for cell in cells if cell.values}
    if not numbers:
        return "not run"
    if len(numbers) > 1:
        return f"{min(numbers)} to {max(numbers)} seeds"
    number = numbers.pop()
    return "1 seed" if number == 1 else f"{number} seeds"
