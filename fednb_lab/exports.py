"""Tables as others read them: for LaTeX, and the accuracy after each round as CSV."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from fednb.leads import LEVEL, MIN_SEEDS
from fednb_lab import words
from fednb_lab.cells import Cell
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
    frame = pd.DataFrame(lines).map(words.in_latex).rename(columns=words.in_latex)
    names = len(_place(table, shown, shown[0]))
    columns = "l" * names + "r" * (len(frame.columns) - names)
    text = frame.to_latex(index=False, escape=False, column_format=columns)
    return text + "\n".join(f"% {remark}" for remark in _remarks(table, shown))


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

    def each(texts: Iterable[str]) -> str:
        return " or ".join(dict.fromkeys(texts))

    settings = [cell.job.settings for cell in cells]
    setting = [
        each(one.flat()["dataset"] for one in settings),
        each(words.number_of(one.num_rounds, "round") for one in settings),
        each(words.number_of(one.num_clients, "client") for one in settings),
        each(words.number_of(len(cell.runs), "seed") for cell in cells),
    ]
    interval = (
        f"± is the half width of the {100 * LEVEL:.0f} % interval of a mean over seeds; of fewer "
        f"than {MIN_SEEDS} seeds each value is shown"
    )
    remarks = [table.title, ", ".join(setting), interval, learned_nothing(cells)]
    return [" ".join(remark.split()) for remark in remarks if remark]  # a line each


def curves_csv(tables: Sequence[Table], cells: Mapping[str, Sequence[Cell]]) -> str:
    """Write the accuracy of each run after each round as CSV: method, seed, round, accuracy.

    The name of the table stands before these where there are several, and the column where a table
    has several.
    """
    lines: list[dict[str, Any]] = []
    for table in tables:
        shown = [cell for cell in cells[table.name] if cell.runs]
        for cell in one_column(table, shown) if shown else ():
            place = {"table": table.name} if len(tables) > 1 else {}
            place |= _place(table, shown, cell)
            of_cell = {name: words.in_csv(text) for name, text in place.items()}
            lines += [of_cell | point for point in _points(cell)]
    names = dict.fromkeys(name for line in lines for name in line)
    last = ["seed", "round", "accuracy"]
    columns = [*(name for name in names if name not in last), *last]
    return pd.DataFrame(lines, columns=columns).to_csv(index=False, lineterminator="\n")


def _points(cell: Cell) -> Iterator[dict[str, Any]]:
    for run in cell.runs:
        metrics = run.record["metrics"]
        measured = zip(metrics.get("round", []), metrics.get("accuracy", []), strict=False)
        for number, accuracy in measured:
            if accuracy is not None:
                seed = run.job.settings.seed
                yield {"seed": seed, "round": number, "accuracy": accuracy}
