"""Figures of tables: accuracy per round, and a measure against a parameter."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb.experiments.sweep import Table
from fednb.reporting.metrics import ReportError, measure
from fednb.reporting.tables import Cell, Ledger, Named, cells_of, table_of

MAX_CURVES = 20  # of more nobody finds one
COLOURS = 10  # C0 to C9; `plots.style` says which they are
_STYLES = ("-", (0, (4, 2)), ":", "-.")
# what the axis of a measure is called; others by their own names
_AXIS = {"accuracy": "test accuracy (%)", "halfway": "test accuracy (%)", "validation": "held-out accuracy (%)"}
_AXIS |= {"accuracy/local classes": "test accuracy among own classes (%)"}


def curves(table: Named, ax: Axes | None = None, *, ledger: Ledger = None) -> Axes:
    """Accuracy per communication round: a line for the mean over seeds, a band from the lowest to the highest.

    Runs of a single round (SOLO) are a dashed level, as in the papers' figures. Rounds that were not evaluated are passed
    over.
    """
    return draw(points(cells_of(table, ledger)), ax or plt.figure(layout="constrained").subplots())


def points(found: Sequence[Cell]) -> pd.DataFrame:
    """One row per run and evaluated round of a table's cells; of a run that diverged until then."""
    made = []
    for cell in found:
        for metrics in (record["metrics"] for record in cell.records):
            pairs = zip(metrics.get("round", []), metrics.get(cell.of.curve, []), strict=False)
            made += [(cell.row, cell.column, *pair) for pair in pairs]
    return pd.DataFrame(made, columns=["row", "column", "round", "accuracy"]).dropna()


def draw(drawn: pd.DataFrame, ax: Axes, only: str | None = None) -> Axes:
    """Draw the `points` of one column, or of all; a row has the same colour in every column."""
    ax.set(xlabel="communication round", ylabel="test accuracy (%)")
    rows, columns = (list(dict.fromkeys(drawn[name])) for name in ("row", "column"))
    several = only is None and len(columns) > 1
    lines = drawn.groupby(["row", "column", "round"], sort=False)["accuracy"].agg(["mean", "min", "max"]).reset_index()
    for (row, column), line in lines.groupby(["row", "column"], sort=False):
        if only not in (None, column):
            continue
        name = f"{row}, {column}" if several else row
        again, colour = divmod(rows.index(row), COLOURS)  # the palette begins anew
        look = {"color": f"C{colour}", "linestyle": _STYLES[(columns.index(column) if several else again) % len(_STYLES)]}
        if len(line) == 1:
            last = line["round"].item()
            name += " (one round)" if last == 1 else f" (after {last} rounds)"
            ax.axhline(line["mean"].item(), label=name, **look | {"linestyle": "--"})
        else:
            ax.plot(line["round"], line["mean"], label=name, **look)
            ax.fill_between(line["round"], line["min"], line["max"], color=f"C{colour}", alpha=0.2, linewidth=0)
    ax.xaxis.get_major_locator().set_params(integer=True)
    return _finished(ax)


def against(table: Named, parameter: str, ax: Axes | None = None, *, ledger: Ledger = None) -> Axes:
    """The table's measure against a parameter: a line per row with a band from the lowest to the highest seed.

    Along the parameter that makes the table's rows there is a line per column instead. Values of the parameter stand
    at equal distances. Printed values are hollow; a row without the parameter (FedAvg has no μ) is a dashed level. A
    `ReportError` if the columns have measures of their own, or if the runs do not differ in the parameter.
    """
    found = cells_of(table, ledger)  # of a table's name from the committed records
    table = table if isinstance(table, Table) else table_of(table)
    what = measure(table.measure)
    if table.columns.measures:
        raise ReportError(f"{table.name} has columns with measures of their own, which have no axis in common.")
    places, lines = _lines(table, parameter, found)
    order = {x: i for i, x in enumerate(sorted(places, key=places.__getitem__))}
    ax = ax or plt.figure(layout="constrained").subplots()
    ax.set(xlabel=parameter.replace("_", " "), ylabel=_AXIS.get(table.measure, table.measure.replace("_", " ")))
    ax.set_xticks(range(len(order)), list(order))
    ax.set_xlim(-0.3, len(order) - 0.7)
    for i, (marker, (name, line)) in enumerate(zip(itertools.cycle("osD^v"), lines.items(), strict=False)):
        level, look = line.pop(None, None), {"color": f"C{i % COLOURS}"}
        if level and level.values:
            ax.axhline(level.mean, linestyle="--", label=name, **look)
        shown = [x for x in sorted(line, key=order.__getitem__) if line[x].values and what.reached(line[x].mean)]
        if shown:
            at, seeds = [order[x] for x in shown], [[v for v in line[x].values if what.reached(v)] for x in shown]
            ax.plot(at, [line[x].mean for x in shown], f"{marker}-", label=name, **look)
            ax.fill_between(at, [*map(min, seeds)], [*map(max, seeds)], alpha=0.2, linewidth=0, **look)
        if known := [(order[x], cell.printed) for x, cell in line.items() if cell.printed is not None]:
            hollow = {"fillstyle": "none", "ms": 9, "label": None if shown else name}
            ax.plot(*zip(*known, strict=True), marker, **look, **hollow)
    if any(cell.printed is not None for cell in found):
        ax.plot([], [], "o", color="0.4", fillstyle="none", ms=9, label="printed in the paper")
    return _finished(ax)


def _lines(
    table: Table, parameter: str, found: Sequence[Cell]
) -> tuple[dict[str, float], dict[str, dict[str | None, Cell]]]:
    """The values of the parameter as they are called, with what they are sorted by; and each line's cells by value."""
    along_rows, along_columns = (axis.parameter == parameter for axis in (table.rows, table.columns))
    several = len({cell.column for cell in found}) > 1 and not along_columns
    places: dict[str, float] = {}
    lines: dict[str, dict[str | None, Cell]] = {}
    for cell in found:
        value, x = cell.job.settings.flat().get(parameter), cell.label if along_rows else cell.column
        if not (along_rows or along_columns):
            x = None if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        if x is not None and x not in places:  # by itself, or by the number in its label ("k=5", "0 (FedAvg)")
            number = re.search(r"\d+(\.\d+)?", x)
            plain = isinstance(value, int | float) and not isinstance(value, bool)
            places[x] = float(value if plain else number[0] if number else len(places))
        told = [f"{name.replace('_', ' ')} {v}" for name, v in cell.told if name != parameter]
        names = [cell.label] * (not along_rows) + told + [cell.column] * (along_rows or several)
        lines.setdefault(", ".join(names), {})[x] = cell
    if len(places) < 2:
        raise ReportError(f"{table.name}: its runs do not differ in {parameter}, so there is nothing to draw.")
    return places, lines


def _finished(ax: Axes) -> Axes:
    if ax.lines:
        ax.grid(alpha=0.3)
        ax.legend(frameon=False)
    else:
        ax.text(0.5, 0.5, "nothing recorded", ha="center", va="center", transform=ax.transAxes)
    return ax


def svg(table: Table, found: Sequence[Cell], old: Path) -> str | None:
    """The table's curves, a panel per column; None if there are none, too many, or if the table is not about accuracy.

    The same text whenever the records are the same, whatever the reader's matplotlib settings: that of the ``old`` file, if
    that was drawn of the same points by the same code, since to draw all anew takes longer than everything else.
    """
    drawn = points(found)
    other = measure(table.measure).needs == "baseline" or any(measure(name).needs == "target" for name in table.measures)
    if other or not drawn["round"].max() > 1 or drawn["row"].nunique() > MAX_CURVES:
        return None
    digest = hashlib.sha256(f"{table.title} {drawn.to_csv()} {Path(__file__).read_text('utf-8')}".encode()).hexdigest()
    if old.exists() and digest in (text := old.read_text("utf-8")):
        return text
    columns, file = list(dict.fromkeys(drawn["column"])), StringIO()
    with plt.style.context(["default", "seaborn-v0_8-colorblind", {"svg.hashsalt": "fednb", "svg.fonttype": "none"}]):
        width = 6.4 if len(columns) == 1 else 4.6 * len(columns)
        figure = Figure(figsize=(width, 4.2))  # margins in inches: to fit them to the texts takes half of the time
        figure.subplots_adjust(0.65 / width, 0.12, 1 - 0.1 / width, 0.93 if len(columns) == 1 else 0.87, wspace=0.05)
        panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
        for ax, column in zip(panels, columns, strict=True):
            draw(drawn, ax, column).set_title(table.title if len(columns) == 1 else column)
            ax.label_outer()
            ax.get_legend().prop.set_size("small")
        figure.suptitle(table.title if len(columns) > 1 else "")
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Identifier": digest})
    return file.getvalue()
