"""Figures of tables: accuracy per round, a measure against a parameter, a paper's claims at a glance."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from fednb import plots
from fednb.experiments.sweep import Table
from fednb.reporting import comparisons, statistics
from fednb.reporting.comparisons import Claim
from fednb.reporting.metrics import ReportError, measure
from fednb.reporting.tables import Cell, Ledger, Named, cells_of, table_of

_STYLES = ("-", (0, (4, 2)), ":", "-.")
# what the axis of a measure is called; others by their own names
_AXIS = {"accuracy": "test accuracy (%)", "halfway": "test accuracy (%)", "validation": "held-out accuracy (%)"}
_AXIS |= {"accuracy/local classes": "test accuracy among own classes (%)"}


def looks(methods: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Of lines whose methods are given: a line has its method's colour, and several of one method its shades."""
    made = {}
    for method in dict.fromkeys(methods.values()):
        names = sorted((name for name in methods if methods[name] == method), key=lambda name: name != method)
        shades = sns.light_palette(plots.colour(method), len(names) + 2, reverse=True)
        for i, (name, shade) in enumerate(zip(names, shades, strict=False)):
            made[name] = {"color": shade, "linestyle": _STYLES[i % len(_STYLES)]}
    return made


def curves(table: Named, ax: Axes | None = None, *, ledger: Ledger = None) -> Axes:
    """Accuracy per communication round: a line for the mean over seeds, a band from the lowest to the highest.

    Runs of a single round (SOLO) are a dashed level, as in the papers' figures. Rounds that were not evaluated are passed
    over. Of several columns each has a line style of its own.
    """
    ax = ax or plt.figure(layout="constrained").subplots()
    ax.set(xlabel="communication round", ylabel="test accuracy (%)")
    found = [cell for cell in cells_of(table, ledger) if cell.of.curve]
    if any(cell.measure == "accuracy" for cell in found):  # of a run that is read in several ways
        found = [cell for cell in found if cell.measure == "accuracy"]
    columns, look = list(dict.fromkeys(cell.column for cell in found)), looks({c.row: c.job.settings.method for c in found})
    most = max((cell.seeds for cell in found), key=len, default=())
    for cell in found:
        line = points(cell).groupby("round")["accuracy"].agg(["mean", "min", "max"])
        name, own = cell.row, look[cell.row]
        if cell.seeds != most:
            name += f" (seed {', '.join(map(str, cell.seeds))})"
        if len(columns) > 1:
            name, own = f"{name}, {cell.column}", own | {"linestyle": _STYLES[columns.index(cell.column) % len(_STYLES)]}
        if len(line) == 1:
            last = line.index[0]
            name += " (one round)" if last == 1 else f" (after {last} rounds)"
            ax.axhline(line["mean"].item(), label=name, **own | {"linestyle": "--"})
        elif len(line):
            ax.plot(line["mean"], label=name, **own)
            ax.fill_between(line.index, line["min"], line["max"], color=own["color"], alpha=0.2, linewidth=0)
    ax.xaxis.get_major_locator().set_params(integer=True)
    return _finished(ax)


def points(cell: Cell) -> pd.DataFrame:
    """Round and accuracy of each evaluation of a cell's runs; of one that diverged until then."""
    told = [record["metrics"] for record in cell.records]
    pairs = [pair for one in told for pair in zip(one.get("round", []), one.get(cell.of.curve, []), strict=False)]
    return pd.DataFrame(pairs, columns=["round", "accuracy"]).dropna()


def against(table: Named, parameter: str, ax: Axes | None = None, *, ledger: Ledger = None) -> Axes:
    """The table's measure against a parameter: a line per row, over the seeds that all its points have, and a band from the
    lowest to the highest.

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
    look = looks({name: list(line.values())[-1].job.settings.method for name, line in lines.items()})
    ax = ax or plt.figure(layout="constrained").subplots()
    ax.set(xlabel=parameter.replace("_", " "), ylabel=_AXIS.get(table.measure, table.measure.replace("_", " ")))
    ax.set_xticks(range(len(order)), list(order))
    ax.set_xlim(-0.3, len(order) - 0.7)
    for marker, (name, line) in zip(itertools.cycle("osD^v"), lines.items(), strict=False):
        colour = look[name]["color"]
        level = line.pop(None, None)
        if level and level.values:
            ax.axhline(level.mean, linestyle="--", label=name, color=colour)
        shown = [x for x in sorted(line, key=order.__getitem__) if line[x].values and what.reached(line[x].mean)]
        if shown:
            at, seeds = [order[x] for x in shown], _alike([line[x] for x in shown])
            ax.plot(at, [what.summary(values) for values in seeds], f"{marker}-", label=name, color=colour)
            ax.fill_between(at, [*map(min, seeds)], [*map(max, seeds)], alpha=0.2, linewidth=0, color=colour)
        if known := [(order[x], cell.printed) for x, cell in line.items() if cell.printed is not None]:
            hollow = {"fillstyle": "none", "ms": 9, "label": None if shown else name, "color": colour}
            ax.plot(*zip(*known, strict=True), marker, **hollow)
    if any(cell.printed is not None for cell in found):
        ax.plot([], [], "o", color="0.4", fillstyle="none", ms=9, label="printed in the paper")
    return _finished(ax)


def _alike(line: Sequence[Cell]) -> list[list[float]]:
    """The values of a line's cells, of the seeds that all have: else a peak may be nothing but another seed's luck."""
    by_seed = [{seed: value for (seed, _), value in cell.by_pair.items() if cell.of.reached(value)} for cell in line]
    common = set.intersection(*map(set, by_seed))
    return [[value for seed, value in values.items() if seed in common or not common] for values in by_seed]


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


def glance(paper: str, ax: Axes | None = None) -> Axes:
    """A paper's claims at a glance, from the committed records: leads as printed (hollow) and as measured (filled).

    What counts has the 95 % interval over seeds and a word at the right; short runs and other data stand below it, paler.
    """
    claims = [claim for claim in comparisons.claims_of(paper) if claim.short]
    return draw_claims(claims, [plots.colour(paper)] * len(claims), ax)


def draw_claims(claims: Sequence[Claim], colours: Sequence[str], ax: Axes | None = None) -> Axes:
    """Draw leads in points, a line per claim."""
    ax = ax or plt.figure(figsize=(8.2, 1.1 + 0.52 * len(claims)), layout="constrained").subplots()
    ax.axvline(0, color="0.6", lw=1, zorder=0)
    at_right, ends = ax.get_yaxis_transform(), [0.0]
    for y, (claim, colour) in enumerate(zip(claims, colours, strict=True)):
        best, *others = claim.told
        shown = [best, *(other for other in others if not other.embedded)]
        for i, finding in enumerate(shown if best.lead.mean is not None else ()):
            lead = finding.lead
            look = {"fmt": "o", "color": colour, "capsize": 3, "ms": 4 if i else 8, "alpha": 0.45 if i else 1.0}
            ax.errorbar(lead.mean, y + 0.22 * i, xerr=[[lead.half]] * 2 if lead.seeds > 1 else None, **look)
            ends += [lead.mean] if i or lead.seeds == 1 else [lead.mean - lead.half, lead.mean + lead.half]
        if claim.printed is not None:
            ax.plot(claim.printed, y, "o", ms=11, mfc="none", mec="0.25", mew=1.5, zorder=3)
            ends.append(claim.printed)
        seeds = "1 seed" if best.lead.seeds == 1 else f"{best.lead.seeds} seeds"
        word = statistics.word(best.lead, claim.beside(best))
        look = {"transform": at_right, "size": "small"}
        ax.text(1.02, y, word, va="bottom", weight="bold" if best.lead.judged else "normal", **look)
        ax.text(
            1.02,
            y + 0.06,
            f"{claim.setting(best, brief=True)}, {seeds}",
            va="top",
            color="0.4",
            **look | {"size": "x-small"},
        )
    pad = 0.12 * (max(ends) - min(ends)) or 1.0
    ax.set(xlim=(min(ends) - pad, max(ends) + pad), ylim=(len(claims) - 0.4, -0.6), xlabel="lead in points of accuracy")
    ax.set_yticks(range(len(claims)), [claim.short for claim in claims])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", alpha=0.3)
    ax.errorbar([], [], xerr=[], fmt="o", color="0.4", ms=8, capsize=3, label="measured, 95 % interval over seeds")
    ax.plot([], [], "o", ms=11, mfc="none", mec="0.25", mew=1.5, label="printed")
    ax.plot([], [], "o", ms=4, color="0.4", alpha=0.45, label="shorter runs")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False, fontsize="small", handletextpad=0.4)
    return ax
