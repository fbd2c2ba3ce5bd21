"""Tables as others read them: for LaTeX, and the accuracy after each round as CSV."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from fednb.leads import LEVEL, MIN_SEEDS
from fednb_lab import words
from fednb_lab.cells import Cell
from fednb_lab.jobs import other_code
from fednb_lab.leads import as_family, leads_over_baseline
from fednb_lab.sweeps import Table
from fednb_lab.tables import learned_nothing, one_column, row_title


def latex(table: Table, cells: Sequence[Cell]) -> str:
    """Write a table for LaTeX, with booktabs: a line for each cell, and its lead over the baseline.

    Comments below it say in what setting the numbers were found, and what is to be doubted.
    """
    shown = [cell for cell in cells if cell.runs]
    baseline, comparisons = leads_over_baseline(table, shown)
    family = as_family(comparisons)
    lines = []
    for cell in shown:
        line = _place(table, shown, cell) | {_measured_title(table, cell): words.measured(cell)}
        if family:
            comparison = family.get((cell.row, cell.column))
            line[f"lead over {baseline}"] = words.lead(comparison) if comparison else ""
        lines.append(line)
    header = list(lines[0])
    names = len(_place(table, shown, shown[0]))
    numbers = len(header) - names
    written = [header, *(list(line.values()) for line in lines)]
    rows = [" & ".join(map(words.in_latex, texts)) + r" \\" for texts in written]
    text = [
        rf"\begin{{tabular}}{{{'l' * names}{'r' * numbers}}}",
        r"\toprule",
        rows[0],
        r"\midrule",
        *rows[1:],
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(text + [f"% {remark}" for remark in _remarks(table, shown)])


def _place(table: Table, cells: Sequence[Cell], cell: Cell) -> dict[str, str]:
    """The row of a cell, and its column where a table has several."""
    place = {row_title(table): cell.row}
    if len({one.column for one in cells}) > 1:
        place[table.columns.parameter.replace("_", " ") or "column"] = cell.column
    return place


def _measured_title(table: Table, cell: Cell) -> str:
    if table.columns.measures:
        return "measured"
    name = cell.measure.name.replace("_", " ")
    return f"{name} (%)" if cell.measure.judged else name


def _remarks(table: Table, cells: Sequence[Cell]) -> list[str]:
    """Say in what setting the numbers of a table were found, and what is to be doubted."""

    def each(text_of: Callable[[Cell], str]) -> str:
        return " or ".join(dict.fromkeys(map(text_of, cells)))

    setting = [
        each(lambda cell: cell.job.settings.flat()["dataset"]),
        each(lambda cell: words.number_of(cell.job.settings.num_rounds, "round")),
        each(lambda cell: words.number_of(cell.job.settings.num_clients, "client")),
        each(lambda cell: words.number_of(len(cell.runs), "seed")),
    ]
    interval = (
        f"± is the half width of the {100 * LEVEL:.0f} % interval of a mean over seeds; of fewer "
        f"than {MIN_SEEDS} seeds each value is shown"
    )
    doubts = filter(None, [_other_code(cells), learned_nothing(cells)])
    every = [table.title, ", ".join(setting), interval, *doubts]
    return [" ".join(remark.split()) for remark in every]  # a line each, whatever a name holds


def _other_code(cells: Iterable[Cell]) -> str:
    runs = {run.path: run for cell in cells for run in cell.runs}
    return other_code((run.job, run.record.get("source")) for run in runs.values())


def curves_csv(tables: Sequence[Table], cells: Mapping[str, Sequence[Cell]]) -> str:
    """Write the accuracy of each run after each round as CSV: method, seed, round, accuracy.

    The name of the table stands before these where there are several, and the column where a table
    has several. A line that begins with # says if records are of other code.
    """
    places: dict[str, None] = {}
    lines: list[dict[str, Any]] = []
    for table in tables:
        shown = [cell for cell in cells[table.name] if cell.runs]
        for cell in one_column(table, shown) if shown else ():
            place = {"table": table.name} if len(tables) > 1 else {}
            place |= _place(table, shown, cell)
            places |= dict.fromkeys(place)
            of_cell = {name: words.in_csv(text) for name, text in place.items()}
            lines += [of_cell | point for point in _points(cell)]
    told = _other_code(cell for table in tables for cell in cells[table.name])
    frame = pd.DataFrame(lines, columns=[*places, "seed", "round", "accuracy"])
    text = frame.to_csv(index=False, lineterminator="\n")
    return f"# {told}\n{text}" if told else text


def _points(cell: Cell) -> list[dict[str, Any]]:
    points = []
    for run in cell.runs:
        metrics = run.record["metrics"]
        measured = zip(metrics.get("round", []), metrics.get("accuracy", []), strict=False)
        for number, accuracy in measured:
            if accuracy is not None:
                points.append(
                    {"seed": run.job.settings.seed, "round": number, "accuracy": accuracy}
                )
    return points
