"""Figures of tables: accuracy per round, a paper's claims at a glance."""

import itertools
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any, cast

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots
from fednb_lab import words
from fednb_lab.cells import Cell, Ledger, TableOrName, cells_of, table_of
from fednb_lab.claims import Claim, claims_of
from fednb_lab.comparisons import Comparison, compare_at
from fednb_lab.leads import Kind, Why

_PRINTED: dict[str, Any] = {"mfc": "none", "mec": "0.25", "mew": 1.5, "ms": 11}
_LARGE = 8  # measured
_SMALL = 5  # measured, but too few runs, or on other data


def curves(table: TableOrName, ax: Axes | None = None, *, ledger: Ledger = None) -> Axes:
    """Accuracy per communication round; a single round (SOLO) is a dashed level, as in papers."""
    cells = _with_curves(cells_of(table, ledger))
    frame = _curve_points(cells)
    palette = _palette(cells)
    once = frame.groupby("name")["x"].transform("nunique") == 1
    ax = ax or plt.figure(layout="constrained").subplots()
    if frame.empty:
        ax.text(0.5, 0.5, "nothing recorded", ha="center", va="center", transform=ax.transAxes)
    elif not once.all():  # the mean over seeds, and a band from the lowest to the highest
        sns.lineplot(
            frame[~once], x="x", y="value", hue="name", palette=palette, errorbar=("pi", 100), ax=ax
        )
    ax.grid(alpha=0.3)
    for name, of_name in frame[once].groupby("name", sort=False):
        last = of_name["x"].iloc[0]
        rounds = "one round" if last == 1 else f"after {last} rounds"
        level = of_name["value"].mean()
        ax.axhline(level, ls="--", color=palette[str(name)], label=f"{name} ({rounds})")
    ax.set(xlabel="communication round", ylabel="test accuracy (%)")
    ax.locator_params(axis="x", integer=True)
    if ax.lines:
        ax.legend(frameon=False)
    return ax


def lead_curves(table: TableOrName, over: str, ax: Axes | None = None) -> Axes:
    """By how much each row is ahead of row ``over``, round by round and seed by seed."""
    cells = _with_curves(cells_of(table))
    points = _curve_points(cells)
    points["seed"] = points.groupby(["name", "x"]).cumcount()
    wide = points.pivot_table(index=["x", "seed"], columns="name", values="value")
    ax = ax or plt.figure(layout="constrained").subplots()
    ax.axhline(0, color=plots.colour(over), lw=1)
    beside: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "va": "center"}
    ax.text(1.01, 0, over, **beside)
    for name, colour in _palette(cells).items():
        if name == over or name not in wide:
            continue
        lead = (wide[name] - wide[over]).groupby("x").mean().rolling(5, min_periods=1).mean()
        ax.plot(lead.index, lead, color=colour)
        ax.text(1.01, lead.iloc[-1], name, color=colour, **beside)
    ax.set(xlabel="communication round", ylabel=f"lead over {over} (points)")
    return ax


def leads(
    table: TableOrName,
    over: str,
    ax: Axes | None = None,
    *,
    column: str | None = None,
    rows: Mapping[str, str] | None = None,
) -> Axes:
    """The lead of each row over row ``over``, in points with 95 % intervals, from left to right.

    ``column``: which one, where the table has several. ``rows``: those that are shown, and what
    they are called; by default all but ``over``, by their own names. A printed lead is hollow.
    """
    cells = cells_of(table)
    if rows is None:
        shown = [cell.row for cell in cells if cell.runs and column in (None, cell.column)]
        rows = {row: row for row in shown if row != over}
    ax = ax or plt.figure(layout="constrained").subplots()
    ax.axhline(0, color=plots.colour("FedAvg"), lw=1)
    for x, row in enumerate(rows):
        comparison = compare_at(cells, row, over, column)
        lead = comparison.lead
        if comparison.printed is not None:
            ax.plot(x - 0.15, comparison.printed, "o", **_PRINTED)
        if lead.mean is not None:
            colour = plots.colour(comparison.ahead.job.settings.method)
            ax.errorbar(x, lead.mean, lead.half_width, fmt="o", capsize=3, color=colour)
    ax.set_xticks(range(len(rows)), list(rows.values()))
    ax.set_ylabel(f"lead over {over} (points)")
    return ax


def trend(table: str, rows: Sequence[str], ax: Axes | None = None) -> Axes:
    """What ``rows`` of a table reach over its columns, a number each, with 95 % intervals.

    A setting at which a run diverged is left out. Rows are told apart by their methods' colours,
    and rows of one method by solid and dashed lines; the axis of the columns is logarithmic.
    """
    cells = cells_of(table)
    parameter = table_of(table).columns.parameter
    numbers = {cell.column: float(cell.job.settings.flat()[parameter]) for cell in cells}
    ax = ax or plt.figure(layout="constrained").subplots()
    known: set[str] = set()
    for place, row in enumerate(rows):
        of_row = [cell for cell in cells if cell.row == row]
        finished = [cell for cell in of_row if set(cell.statuses) == {"finished"}]
        columns = [numbers[cell.column] * 1.02**place for cell in finished]  # beside each other
        means = np.array([cell.mean for cell in finished], float)
        half_widths = np.array([cell.half_width for cell in finished], float)
        colour = plots.colour(row)
        look: dict[str, Any] = {"color": colour, "elinewidth": 1, "capsize": 3, "label": row}
        ax.errorbar(columns, means, half_widths, fmt="s--" if colour in known else "o-", **look)
        known.add(colour)
    shown = sorted(set(numbers.values()))
    ax.set(xscale="log", ylabel="test accuracy (%)")
    ax.set_xticks(shown, [f"{number:g}" for number in shown])
    ax.minorticks_off()
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return ax


def _with_curves(cells: Sequence[Cell]) -> dict[str, Cell]:
    """The cells that are drawn, by what they are called; of several read-outs the accuracy."""
    drawn = [cell for cell in cells if cell.measure.curve]
    drawn = [cell for cell in drawn if cell.measure.name == "accuracy"] or drawn
    columns = {cell.column for cell in drawn if cell.runs}
    usual_seeds = max((cell.seeds for cell in drawn), key=len, default=())
    named = {}
    for cell in drawn:
        name = f"{cell.row}, {cell.column}" if len(columns) > 1 else cell.row
        if cell.seeds != usual_seeds:
            name += f" (seed {', '.join(map(str, cell.seeds))})"
        named[name] = cell
    return named


def _curve_points(cells: Mapping[str, Cell]) -> pd.DataFrame:
    """A line for each evaluated round of each run: name, round, value."""
    points = []
    for name, cell in cells.items():
        for run in cell.runs:
            metrics = run.record["metrics"]
            rounds = metrics.get("round", [])
            values = metrics.get(cell.measure.curve, [])
            points += [(name, *point) for point in zip(rounds, values, strict=False)]
    return pd.DataFrame(points, columns=["name", "x", "value"]).dropna()


def _palette(cells: Mapping[str, Cell]) -> dict[str, Any]:
    """A line has the colour of its runs' method; several of one method have shades of it."""
    names_of: dict[str, list[str]] = {}
    for name, cell in cells.items():
        names_of.setdefault(cell.job.settings.method, []).append(name)
    palette: dict[str, Any] = {}
    for method, names in names_of.items():
        shades = sns.light_palette(plots.colour(method), len(names) + 2, reverse=True)
        # the method's own colour is for the line that is called like it
        ordered = sorted(names, key=lambda name: name != method)
        palette |= zip(ordered, shades, strict=False)
    return palette


def glance(paper: str) -> Axes:
    """A paper's claims: leads as printed (hollow) and as measured, each with its verdict."""
    return draw_claims([(paper, claim) for claim in claims_of(paper) if claim.entry.short])


def draw_claims(claims: Sequence[tuple[str, Claim]]) -> Axes:
    """Draw the leads of claims in points, a line for each, in the colour of its paper.

    What decides is filled. What does not is grey: too few runs, with an interval that is borrowed
    and dotted, and other data.
    """
    ax = plt.figure(figsize=(8.6, 1.1 + 0.56 * len(claims)), layout="constrained").subplots()
    ax.axvline(0, color="0.6", lw=1, zorder=0)
    for y, (paper, claim) in enumerate(claims):
        for i, comparison in enumerate(_drawn(claim)):
            _draw_lead(ax, y + 0.22 * i, claim, comparison, plots.colour(paper))
        for printed in claim.printed:
            ax.plot(printed, y, "o", zorder=3, **_PRINTED)
        _label(ax, y, claim)
    ax.margins(x=0.12)
    ax.set(ylim=(len(claims) - 0.4, -0.6), xlabel="lead in points of accuracy")
    ax.set_yticks(range(len(claims)), [claim.entry.short for _, claim in claims])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", alpha=0.3)
    _legend(ax)
    return ax


def _drawn(claim: Claim) -> list[Comparison]:
    """What decides, then what is nearer to the paper's setting but has too few runs; with a lead."""
    best = claim.best
    nearer = itertools.takewhile(lambda one: one is not best, claim.evidence)
    return [one for one in (best, *nearer) if one.lead.mean is not None]


def _draw_lead(ax: Axes, y: float, claim: Claim, comparison: Comparison, colour: str) -> None:
    """Draw a lead with its interval, if it has one."""
    lead = comparison.lead
    assert lead.mean is not None  # others are not drawn
    decides = lead.judged and bool(claim.evidence)
    borrowed = claim.borrowed(comparison)
    half_width = borrowed.half_width if borrowed else lead.half_width
    look: dict[str, Any] = {"color": "0.55", "ms": _SMALL}
    if decides:
        look = {"color": colour, "ms": _LARGE}
    if not np.isnan(half_width):
        look["xerr"] = half_width
    drawn = ax.errorbar(lead.mean, y, fmt="o", capsize=3, **look)
    if borrowed:
        for line in drawn[2]:
            line.set_linestyle(":")


def _label(ax: Axes, y: float, claim: Claim) -> None:
    """Write the verdict beside a claim, and below it the runs that are drawn."""
    beside: dict[str, Any] = {"x": 1.02, "transform": ax.get_yaxis_transform()}
    weight = "bold" if claim.best.lead.judged and claim.evidence else "normal"
    ax.text(y=y, s=words.verdict(claim), va="bottom", size="small", weight=weight, **beside)
    ax.text(y=y + 0.04, s=_runs(claim), va="top", size="x-small", color="0.4", **beside)


def _runs(claim: Claim) -> str:
    """The runs that are drawn for a claim, and what its verdict rests on besides their interval."""
    seeds = claim.best.lead.seeds
    if not seeds:
        return "nothing was run"
    runs = f"{words.setting(claim.setting(claim.best), brief=True)}, {words.seeds(seeds)}"
    if not claim.evidence:
        return f"drawn: {runs}"
    if claim.verdict.why == Why.AMONG_MANY:
        return f"{runs}\none of {claim.lead.among} claims: may be luck"
    borrowed = claim.borrowed(claim.best)
    if borrowed is None:
        return f"{runs}\nno ± to borrow" if claim.verdict.kind == Kind.ONE_RUN else runs
    return f"{runs}\n± from {words.setting(claim.setting(borrowed.source), brief=True)}"


def _legend(ax: Axes) -> None:
    measured = "measured, 95 % interval over seeds"
    other = "decides nothing (dotted: borrowed)"
    ax.plot([], [], "o", label="printed", **_PRINTED)
    ax.errorbar([], [], xerr=[], fmt="o", color="0.4", capsize=3, label=measured, ms=_LARGE)
    ax.plot([], [], "o:", color="0.55", label=other, ms=_SMALL)
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 3}
    ax.legend(frameon=False, fontsize="small", handletextpad=0.4, **place)


def claim_figures(claims: Mapping[str, Sequence[Claim]]) -> dict[str, str]:
    """The report's figures as SVG by name: the claims of each paper, and the main ones of all."""
    drawn: dict[str, list[tuple[str, Claim]]] = {}
    for paper, of_paper in claims.items():
        drawn[paper] = [(paper, claim) for claim in of_paper if claim.entry.short]
    with_names = [pair for pairs in drawn.values() for pair in pairs]
    drawn["glance"] = [(paper, claim) for paper, claim in with_names if claim.entry.main]
    figures = {}
    with plt.rc_context({"svg.fonttype": "none"}):
        plots.style()
        for name, pairs in drawn.items():
            if pairs:
                figures[name.lower()] = _svg(draw_claims(pairs))
    return figures


def _svg(ax: Axes) -> str:
    """A figure as text, without what differs from one day to the next; and close it."""
    file = StringIO()
    figure = cast(Figure, ax.figure)
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    return file.getvalue()
