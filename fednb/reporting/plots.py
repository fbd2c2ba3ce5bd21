"""Figures of tables: accuracy per round, and a measure against a parameter."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb.experiments import sweep
from fednb.reporting.claims import Named
from fednb.reporting.metrics import MEASURES
from fednb.reporting.tables import Cell, Records, ReportError, cells, committed, table_of

COLOURS = len(sns.color_palette("colorblind"))
MAX_CURVES = 20  # of more nobody finds one
# what the axis of a measure is called; others by their own names
_AXIS = {"accuracy": "test accuracy (%)", "halfway": "test accuracy (%)", "validation": "held-out accuracy (%)"}
_AXIS |= {"accuracy/local classes": "test accuracy among own classes (%)"}


def curves(
    tables: Named | Sequence[Named], ax: Axes | None = None, *, column: str | None = None, records: Records = None
) -> Axes:
    """Accuracy per communication round: a line for the mean over seeds, a band from the lowest to the highest.

    Runs of a single round (SOLO) are a dashed level, as in the papers' figures. Rounds that were not evaluated are passed
    over. With ``column`` only that; rows have the same colours in every column.
    """
    records = committed() if records is None else records
    given = [tables] if isinstance(tables, str) or not isinstance(tables, Sequence) else tables
    found = [cells(table_of(table) if isinstance(table, str) else table, records) for table in given]
    if column is not None:
        _check_column(column, (cell for cell in itertools.chain(*found) if cell.of.curve))
    return draw(points(found, records), ax, column)


def points(found: Sequence[Sequence[Cell]], records: pd.DataFrame) -> pd.DataFrame:
    """One row per run and round of some tables' cells; ``line`` tells apart what shares a row."""
    known: Mapping[Path, Any] = dict(zip(records.get("path", ()), records.get("record", ()), strict=True))
    made = []
    for cell in itertools.chain(*found):
        line = f"{cell.column} ({cell.table})" if len(found) > 1 else cell.column
        for metrics in (known[path]["metrics"] for path in cell.paths):
            pairs = zip(metrics.get("round", []), metrics.get(cell.of.curve, []), strict=False)
            made += [(cell.row, cell.column, line, *pair) for pair in pairs]
    # without the rounds in which a run diverged or was not evaluated
    return pd.DataFrame(made, columns=["row", "column", "line", "round", "accuracy"]).dropna()


def draw(drawn: pd.DataFrame, ax: Axes | None = None, column: str | None = None) -> Axes:
    """Draw the `points` of a column, or of all."""
    ax = ax or plt.figure(layout="constrained").subplots()
    ax.set(xlabel="communication round", ylabel="test accuracy (%)")
    rows = list(dict.fromkeys(drawn["row"]))
    colours = dict(zip(rows, sns.color_palette("colorblind", len(rows)), strict=True))
    if column is not None:
        drawn = drawn[drawn["column"] == column]
    if drawn.empty:
        return _empty(ax)
    length = drawn.groupby(["row", "line"], sort=False)["round"].transform("nunique")
    curved, flat, several = drawn[length > 1], drawn[length == 1], drawn["line"].nunique() > 1
    if not curved.empty:
        style: dict[str, Any] = {"style": "line"} if several else {}
        if len(rows) > COLOURS and not several:  # the palette begins anew
            style = {"style": "row", "dashes": {row: "" if i < COLOURS else (4, 2) for i, row in enumerate(rows)}}
        sns.lineplot(curved, x="round", y="accuracy", hue="row", palette=colours, errorbar=("pi", 100), ax=ax, **style)
    for (row, line, last), level in flat.groupby(["row", "line", "round"], sort=False)["accuracy"].mean().items():
        name, told = f"{row}, {line}" if several else str(row), "one round" if last == 1 else f"after {last} rounds"
        ax.axhline(level, color=colours[row], linestyle="--", label=f"{name} ({told})")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax


def against(
    table: Named, parameter: str, ax: Axes | None = None, *, column: str | None = None, records: Records = None
) -> Axes:
    """The table's measure against a parameter: a line per row with a band from the lowest to the highest seed.

    Along the parameter that makes the table's rows there is a line per column instead. Values of the parameter stand
    at equal distances. Printed values are hollow; a row without the parameter (FedAvg has no μ) is a dashed level. A
    `ReportError` without ``column`` if each has a measure of its own, and if the runs do not differ in the parameter.
    """
    table = table_of(table) if isinstance(table, str) else table
    found = cells(table, committed() if records is None else records)
    if column is not None:
        _check_column(column, found)
        found = [cell for cell in found if cell.column == column]
    elif len(known := table.columns.measures) > 1:
        raise ReportError(f"{table.name} has columns with measures of their own; choose one of {', '.join(known)}.")
    places, lines = _lines(table, parameter, found)
    order = {x: i for i, x in enumerate(sorted(places, key=places.__getitem__))}
    ax, what = ax or plt.figure(layout="constrained").subplots(), found[0].measure
    ax.set(xlabel=parameter.replace("_", " "), ylabel=_AXIS.get(what, what.replace("_", " ")))
    ax.set_xticks(range(len(order)), list(order))
    ax.set_xlim(-0.3, len(order) - 0.7)
    colours, printed = sns.color_palette("colorblind", len(lines)), False
    for colour, marker, (name, line) in zip(colours, itertools.cycle("osD^v"), lines.items(), strict=False):
        reached = {x: [v for v in cell.values if cell.of.reached(v)] for x, cell in line.items()}
        shown = sorted((order[x], cell.mean, reached[x]) for x, cell in line.items() if x is not None and reached[x])
        shown = [place for place in shown if MEASURES[what].reached(place[1])]
        if reached.get(None):
            ax.axhline(line[None].mean, color=colour, linestyle="--", label=name)
        if shown:
            at, means, seeds = zip(*shown, strict=True)
            ax.plot(at, means, f"{marker}-", color=colour, label=name)
            ax.fill_between(at, [*map(min, seeds)], [*map(max, seeds)], color=colour, alpha=0.2, linewidth=0)
        known = [(order[x], cell.printed) for x, cell in line.items() if x is not None and cell.printed is not None]
        if known:
            ax.plot(*zip(*known, strict=True), marker, color=colour, fillstyle="none", ms=9, label=None if shown else name)
            printed = True
    if not ax.lines:
        return _empty(ax)
    if printed:
        ax.plot([], [], "o", color="0.4", fillstyle="none", ms=9, label="printed in the paper")
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax


def _lines(
    table: sweep.Table, parameter: str, found: Sequence[Cell]
) -> tuple[dict[str, float], dict[str, dict[str | None, Cell]]]:
    """The values of the parameter as they are called, with what they are sorted by; and each line's cells by value."""
    axis = next((axis for axis in (table.rows, table.columns) if axis.parameter == parameter), None)
    by_column = axis is table.rows or (axis is None and len({cell.column for cell in found}) > 1)
    places: dict[str, float] = {}
    lines: dict[str, dict[str | None, Cell]] = {}
    for cell in found:
        value, x = cell.job.settings.flat().get(parameter), cell.label if axis is table.rows else cell.column
        if axis is None:
            x = None if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        if x is not None and x not in places:  # by itself, or by the number in its label ("k=5", "0 (FedAvg)")
            number = re.search(r"\d+(\.\d+)?", x)
            plain = isinstance(value, int | float) and not isinstance(value, bool)
            places[x] = float(value if plain else number[0] if number else len(places))
        told = [f"{name.replace('_', ' ')} {v}" for name, v in cell.told if name != parameter]
        names = [*([] if axis is table.rows else [cell.label]), *told, *([cell.column] if by_column else [])]
        lines.setdefault(", ".join(names), {})[x] = cell
    if len(places) < 2:
        raise ReportError(f"{table.name}: its runs do not differ in {parameter}, so there is nothing to draw.")
    return places, lines


def _check_column(column: str, found: Iterable[Cell]) -> None:
    if column not in (known := dict.fromkeys(cell.column for cell in found)):
        raise ReportError(f"There is no column {column!r}; there are {', '.join(known)}.")


def _empty(ax: Axes) -> Axes:
    ax.text(0.5, 0.5, "nothing recorded", ha="center", va="center", transform=ax.transAxes)
    return ax


def svg(table: sweep.Table, found: Sequence[Cell], records: pd.DataFrame) -> bytes | None:
    """The table's curves, a panel per column; None if there are none, too many, or if the table is not about accuracy.

    The same bytes whenever the records are the same, whatever the reader's matplotlib settings.
    """
    drawn = points([found], records)
    other = MEASURES[table.measure].needs == "baseline" or any(MEASURES[name].needs == "target" for name in table.measures)
    if other or not drawn["round"].max() > 1 or drawn["row"].nunique() > MAX_CURVES:
        return None
    columns = list(dict.fromkeys(drawn["column"]))
    options = {"svg.hashsalt": "fednb", "svg.fonttype": "none"}
    with plt.style.context(["default", options], after_reset=True):
        figure = Figure(figsize=(6.4 if len(columns) == 1 else 4.6 * len(columns), 4.2), layout="constrained")
        panels = figure.subplots(1, len(columns), sharey=len(columns) > 1, squeeze=False)[0]
        for ax, column in zip(panels, columns, strict=True):
            draw(drawn, ax, column).set_title(table.title if len(columns) == 1 else column)
            ax.get_legend().prop.set_size("small")
        if len(columns) > 1:
            figure.suptitle(table.title)
        file = BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()
