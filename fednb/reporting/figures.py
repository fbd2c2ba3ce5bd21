"""Figures of tables: accuracy per round, and a measure against a parameter."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb.experiments import sweep
from fednb.reporting.compare import Cell, ReportError, cells, committed, records_by_path, table_of
from fednb.reporting.measures import MEASURES

COLOURS = len(sns.color_palette("colorblind"))


def curves(
    tables: str | sweep.Table | Sequence[str | sweep.Table],
    ax: Axes | None = None,
    *,
    column: str | None = None,
    ledger: pd.DataFrame | None = None,
) -> Axes:
    """Accuracy per communication round: a line for the mean over seeds, a band from the lowest to the highest.

    Runs of a single round (SOLO) are a dashed level, as in the papers' figures. Rounds that were not evaluated are passed
    over.

    Parameters
    ----------
    tables
        One or several tables, or their names in the sweep files.
    column
        Only this column; rows have the same colours in every column.
    ledger
        From `records.load`; by default the committed one.

    Raises
    ------
    ReportError
        For a column that no table has.
    """
    given = [tables] if isinstance(tables, str) or not isinstance(tables, Sequence) else tables
    chosen = [table_of(t) if isinstance(t, str) else t for t in given]
    points = _points(chosen, committed() if ledger is None else ledger)
    ax = ax or plt.figure(layout="constrained").subplots()
    ax.set(xlabel="communication round", ylabel="test accuracy (%)")
    rows = list(dict.fromkeys(points["row"]))
    colours = dict(zip(rows, sns.color_palette("colorblind", len(rows)), strict=True))
    if column is not None:
        _check_column(column, chosen, drawn=True)
        points = points[points["column"] == column]
    if points.empty:
        return _empty(ax)
    length = points.groupby(["row", "line"], sort=False)["round"].transform("nunique")
    curved, flat = points[length > 1], points[length == 1]
    several = points["line"].nunique() > 1
    if not curved.empty:
        style = {"style": "line"} if several else {}
        if len(rows) > COLOURS and not several:  # the palette begins anew
            style = {"style": "row", "dashes": {row: "" if i < COLOURS else (4, 2) for i, row in enumerate(rows)}}
        sns.lineplot(curved, x="round", y="accuracy", hue="row", palette=colours, errorbar=("pi", 100), ax=ax, **style)
    for (row, line, last), level in flat.groupby(["row", "line", "round"], sort=False)["accuracy"].mean().items():
        name = f"{row}, {line}" if several else str(row)
        told = "one round" if last == 1 else f"after {last} rounds"
        ax.axhline(level, color=colours[row], linestyle="--", label=f"{name} ({told})")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax


def against(
    table: str | sweep.Table,
    parameter: str,
    ax: Axes | None = None,
    *,
    column: str | None = None,
    ledger: pd.DataFrame | None = None,
) -> Axes:
    """The table's measure against a parameter: a line per row with a band from the lowest to the highest seed.

    Along the parameter that makes the table's rows there is a line per column instead. Values of the parameter stand
    at equal distances. Printed values are hollow; a row without the parameter (FedAvg has no μ) is a dashed level.

    Parameters
    ----------
    column
        Only this column; needed where each has a measure of its own.
    ledger
        From `records.load`; by default the committed one.

    Raises
    ------
    ReportError
        For a column that the table does not have, or a parameter in which its runs do not differ.
    """
    table = table_of(table) if isinstance(table, str) else table
    if column is not None:
        _check_column(column, [table])
    elif len(table.columns.measures) > 1:
        known = ", ".join(table.columns.measures)
        raise ReportError(f"{table.name} has columns with measures of their own; choose one of {known}.")
    what = table.measures[0] if column is None else table.measure_of(column)
    measure = MEASURES[what]
    found = [c for c in cells(table, committed() if ledger is None else ledger) if column in (None, c.column)]
    axis = next((axis for axis in (table.rows, table.columns) if axis.parameter == parameter), None)
    places: dict[str, float] = {}
    lines: dict[str, dict[str | None, Cell]] = {}
    columns = len({cell.column for cell in found})
    for cell in found:
        value = cell.job.settings.flat().get(parameter)
        told = [f"{name.replace('_', ' ')} {v}" for name, v in cell.told if name != parameter]
        if axis is None:
            x = None if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        else:
            x = cell.label if axis is table.rows else cell.column
        names = [*([] if axis is table.rows else [cell.label]), *told]
        names += [cell.column] if axis is table.rows or (axis is None and columns > 1) else []
        if x is not None:
            places.setdefault(x, _number(value, x, len(places)))
        lines.setdefault(", ".join(names), {})[x] = cell
    if len(places) < 2:
        raise ReportError(f"{table.name}: its runs do not differ in {parameter}, so there is nothing to draw.")
    order = {x: i for i, x in enumerate(sorted(places, key=places.__getitem__))}
    ax = ax or plt.figure(layout="constrained").subplots()
    ax.set(xlabel=parameter.replace("_", " "), ylabel=_AXIS.get(what, what.replace("_", " ")))
    ax.set_xticks(range(len(order)), list(order))
    ax.set_xlim(-0.3, len(order) - 0.7)
    drawn = printed = False
    colours = sns.color_palette("colorblind", len(lines))
    for colour, marker, (name, line) in zip(colours, itertools.cycle("osD^v"), lines.items(), strict=False):
        reached = {x: [v for v in cell.values if measure.reached(v)] for x, cell in line.items()}
        shown = sorted(
            (order[x], cell) for x, cell in line.items() if x is not None and reached[x] and measure.reached(cell.mean)
        )
        if None in line and reached[None]:
            ax.axhline(line[None].mean, color=colour, linestyle="--", label=name)
            drawn = True
        if shown:
            at = [x for x, _ in shown]
            ax.plot(at, [cell.mean for _, cell in shown], f"{marker}-", color=colour, label=name)
            ends = [[end(v for v in cell.values if measure.reached(v)) for _, cell in shown] for end in (min, max)]
            ax.fill_between(at, *ends, color=colour, alpha=0.2, linewidth=0)
            drawn = True
        known = [(order[x], cell.printed) for x, cell in line.items() if x is not None and cell.printed is not None]
        if known:
            ax.plot(*zip(*known, strict=True), marker, color=colour, fillstyle="none", ms=9, label=None if shown else name)
            printed = True
    if not drawn and not printed:
        return _empty(ax)
    if printed:
        ax.plot([], [], "o", color="0.4", fillstyle="none", ms=9, label="printed in the paper")
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax


_MAX_CURVES = 20  # of more nobody finds one
# what the axis of a measure is called; others by their own names
_AXIS = {"accuracy": "test accuracy (%)", "halfway": "test accuracy (%)", "validation": "held-out accuracy (%)"}
_AXIS |= {"accuracy/local classes": "test accuracy among own classes (%)"}


def _number(value: Any, label: str, otherwise: float) -> float:
    """Where a value stands among others: by itself, or by the number in its label ("k=5", "0 (FedAvg)")."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    found = re.search(r"\d+(\.\d+)?", label)
    return float(found[0]) if found else float(otherwise)


def _check_column(column: str, tables: Iterable[sweep.Table], drawn: bool = False) -> None:
    """Refuse a column that no table has; with ``drawn`` also one whose own measure has no curves."""
    known = dict.fromkeys(
        name
        for table in tables
        for job in table.jobs
        for name in table.columns.names(job)
        if not (drawn and name in table.columns.measures) or MEASURES[table.measure_of(name)].curve
    )
    if column not in known:
        raise ReportError(f"There is no column {column!r}; there are {', '.join(known)}.")


def _empty(ax: Axes) -> Axes:
    ax.text(0.5, 0.5, "nothing recorded", ha="center", va="center", transform=ax.transAxes)
    return ax


def _points(tables: Iterable[sweep.Table], ledger: pd.DataFrame) -> pd.DataFrame:
    """One row per run and round; ``line`` tells apart what shares a row label."""
    records, tables, points = records_by_path(ledger), list(tables), []
    for table in tables:
        for cell in cells(table, ledger):
            metric = MEASURES[cell.measure].curve
            line = f"{cell.column} ({table.name})" if len(tables) > 1 else cell.column
            for metrics in (records[path]["metrics"] for path in cell.paths):
                points += [
                    (cell.row, cell.column, line, *pair)
                    for pair in zip(metrics.get("round", []), metrics.get(metric, []), strict=False)
                ]
    # without the rounds in which a run diverged or was not evaluated
    return pd.DataFrame(points, columns=["row", "column", "line", "round", "accuracy"]).dropna()


def svg(table: sweep.Table, ledger: pd.DataFrame) -> bytes | None:
    """The table's curves, a panel per column; None if there are none, too many, or if the table is not about accuracy.

    The same bytes whenever the records are the same, whatever the reader's matplotlib settings.
    """
    points = _points([table], ledger)
    other = MEASURES[table.measure].baseline or any(MEASURES[name].target for name in table.measures)
    if other or not points["round"].max() > 1:
        return None
    if points["row"].nunique() > _MAX_CURVES:
        return None
    columns = list(dict.fromkeys(points["column"]))
    options = {"svg.hashsalt": "fednb", "svg.fonttype": "none"}
    with plt.style.context(["default", options], after_reset=True):
        figure = Figure(figsize=(6.4 if len(columns) == 1 else 4.6 * len(columns), 4.2), layout="constrained")
        panels = figure.subplots(1, len(columns), sharey=len(columns) > 1, squeeze=False)[0]
        for ax, column in zip(panels, columns, strict=True):
            curves(table, ax, column=column, ledger=ledger).set_title(table.title if len(columns) == 1 else column)
            ax.get_legend().prop.set_size("small")
        if len(columns) > 1:
            figure.suptitle(table.title)
        file = BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()
