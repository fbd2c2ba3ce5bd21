"""Tables of notebook 06, in which all methods have one protocol: words and Markdown."""

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from fednb_lab.across_splits import AverageLead, average_leads
from fednb_lab.comparisons import cell_at, compare_at
from fednb_lab.markdown import to_markdown
from IPython.display import Markdown

from fednb import partition
from fednb.experiments import build
from fednb_lab import called, words
from fednb_lab import leads as statistics
from fednb_lab.cells import Cell, CellsOf, cells_of
from fednb_lab.claims import claims_file
from fednb_lab.leads import Lead
from fednb_lab.printed import printed
from fednb_lab.tuning import Tuning, tunings

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
    return {title: name for name, title in claims_file().side_by_side.tables.items()}


def told_splits() -> dict[str, str]:
    """The tables in which FedAvg's model is told whom it serves, by what they are called."""
    digits = {title: name for title, name in splits().items() if "digits" in name}
    return {title: name.replace("digits", "told") for title, name in digits.items()}


def question(of: CellsOf = cells_of) -> list[AverageLead]:
    """Each method's mean lead over the five splits, the largest first."""
    found = average_leads(list(splits().values()), of, baseline=BASELINE)
    return sorted(found, key=lambda one: -_or_lowest(one.lead.mean))


def methods() -> list[str]:
    """All methods, the baseline first, then in the order of `question`."""
    return [BASELINE, *(one.method for one in question())]


def _or_lowest(mean: float | None) -> float:
    return -np.inf if mean is None else mean


def question_table() -> Markdown:
    """The mean lead of each method, and its leads in the splits, unjudged."""
    return Markdown(question_lines(cells_of, lambda table, title: title))


def question_lines(of: CellsOf, heading: Callable[[str, str], str]) -> str:
    """The same for any cells; ``heading`` makes that of a column of a table and its title.

    A column of verdicts on "it is ahead" is there if anybody has another one than "cannot tell".
    """
    found = question(of)
    judged = any(one.verdict.kind != statistics.Kind.CANNOT_TELL for one in found)
    lines = []
    for one in found:
        line = {"method": one.method, "mean of the five": f"**{words.lead(one.lead)}**"}
        if judged:
            line["is it ahead?"] = one.verdict.kind
        line["seeds"] = str(one.lead.seeds)
        for title, name in splits().items():
            in_split = compare_at(of(name), one.method, BASELINE, "accuracy")
            line[heading(name, title)] = _lead(in_split.lead)
        lines.append(line)
    return to_markdown(lines)


def _lead(of: Lead) -> str:
    """A lead, with a dagger where a run diverged: it is of the seeds that are left."""
    return f"{words.lead(of)} †" if of.diverged else words.lead(of)


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
        value = printed(table)["FedAvg"][column]
        found[table] = 100 * value if value is not None and value < 1 else value
    return found


def _compared() -> dict[str, set[str]]:
    """By paper the methods in its main tables, in our names."""
    compared = {}
    for paper, tables in _MAIN_TABLES.items():
        found = set()
        for table in tables:
            for row in printed(f"{paper} {table}"):
                name = row.split(",")[0]
                found.add(_OTHER_NAMES.get(name, name))
        if paper == "FedPLCC" and "FedProto" in found:  # there weights travel, too
            found = (found - {"FedProto"}) | {"FedProto+FedAvg"}
        compared[paper] = found
    return compared


def tuning_table() -> Markdown:
    """What the trials chose for each method, on both splits that are tuned for."""
    found = {title: tunings(cells_of(table)) for title, table in TRIALS.items()}
    lines = []
    for method in methods():
        line = {"method": method}
        for title, of_split in found.items():
            if method in of_split:
                tuning = of_split[method]
                line["tuned"] = name_of_tuned(tuning.tuned)
                line[f"chosen: {title}"] = _chosen(tuning)
                line[f"held out (%): {title}"] = _held_out(tuning)
                line[f"trials: {title}"] = str(len(tuning.trials))
        lines.append(line)
    return Markdown(to_markdown(lines))


def name_of_tuned(setting: str) -> str:
    """What is tuned, as figures and tables call it: with what goes along."""
    return _TUNED.get(setting, called.name(setting))


def _chosen(tuning: Tuning) -> str:
    if tuning.chosen is None:
        return "all diverged"
    text = f"{tuning.chosen.value:g}"
    return f"{text} (edge)" if tuning.at_edge else text


def _held_out(tuning: Tuning) -> str:
    return "" if tuning.chosen is None else f"{tuning.chosen.accuracy:.1f}"


def for_itself() -> dict[str, dict[str, Sequence[float]]]:
    """How right (%) a client is on images like its own, of each seed: by split and whom it asks."""
    found: dict[str, dict[str, Sequence[float]]] = {}
    for title, table in told_splits().items():
        asked = (BASELINE, TOLD, *OWN)
        cells = {row: cell_at(cells_of(table), row, "client mean") for row in asked}
        found[title] = {GUESS: _most_frequent(cells[BASELINE])}
        found[title] |= {row: cell.values for row, cell in cells.items()}
    return found


def _most_frequent(cell: Cell) -> list[float]:
    """The share (%) of a client's most frequent class among its images, of each run."""
    shares = []
    for run in cell.measured_runs:
        settings = run.job.settings
        dataset = build.load_dataset(settings.dataset)
        parts = build.divide(settings, dataset).train
        counts = partition.class_counts(parts, dataset.labels.numpy(), dataset.num_classes)
        shares.append(100 * float((counts.max(1) / counts.sum(1)).mean()))
    return shares


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
            comparison = compare_at(cells_of(table), method, TOLD, "client mean")
            line[title] = f"**{_lead(comparison.lead)}**"
        lines.append(line)
    return Markdown(to_markdown(lines))


def _mean(values: Sequence[float]) -> str:
    if not values:
        return ""
    mean, half_width = statistics.interval(values)
    return f"{mean:.1f}" if len(values) == 1 else f"{mean:.1f} ± {half_width:.1f}"


def measures_table() -> Markdown:
    """Mean leads over FedAvg for several questions: the same models, asked otherwise; unjudged."""
    digits = [name for name in splits().values() if "digits" in name]
    told = list(told_splits().values())
    asked = {"all images, digits": average_leads(digits, cells_of)}
    for column in ("client mean", "worst client"):
        of_told = average_leads(told, cells_of, column=column)
        own_prior = [one for one in of_told if one.method == TOLD]
        asked[f"{column}, digits"] = average_leads(digits, cells_of, column=column) + own_prior
    asked["all images, domains"] = average_leads(["side-domains"], cells_of)
    asked["worst domain"] = average_leads(["side-domains"], cells_of, column="worst domain")
    lines = {name: {"lead over FedAvg": name} for name in [TOLD, *methods()[1:]]}
    for title, found in asked.items():
        for one in found:
            lines[one.method][title] = _lead(one.lead)
    return Markdown(to_markdown(list(lines.values())))


def price_table() -> pd.DataFrame:
    """A round's seconds as a multiple of FedAvg's, and what a client holds."""
    columns = {
        "seconds, FedAvg = 1": _column("side-digits-seconds", "seconds, FedAvg = 1"),
        "kB held": _column("side-digits-beta-0.5-cost", "kB held"),
    }
    return pd.DataFrame(columns).loc[methods()]


def _column(table: str, column: str) -> dict[str, float]:
    cells = [cell for cell in cells_of(table) if cell.column == column]
    return {cell.row: round(cell.mean, 1) for cell in cells if cell.mean is not None}


def elsewhere_table() -> Markdown:
    """FedAvg's accuracy and the others' leads over it on the papers' data, untuned."""
    lines = {name: {"": name} for name in methods()}
    for title, table in _ELSEWHERE.items():
        cells = cells_of(table)
        header = f"{title} ({_seeds(cells)})"
        for cell in cells:
            shown = "accuracy" if cell.row == BASELINE else "lead"
            if cell.column == shown and cell.mean is not None and cell.row in lines:
                text = words.measured(cell)
                if len(cell.values) < statistics.MIN_SEEDS:  # two have no ± to speak of
                    text = words.value(cell.measure, cell.mean)
                lines[cell.row][header] = text
    return Markdown(to_markdown(list(lines.values())))


def _seeds(cells: Sequence[Cell]) -> str:
    """How many there are; from the fewest to the most, where rows differ."""
    numbers = {len(cell.values) for cell in cells if cell.values}
    if not numbers:
        return "not run"
    if len(numbers) == 1:
        return words.seeds(numbers.pop())
    return f"{min(numbers)} to {max(numbers)} seeds"
