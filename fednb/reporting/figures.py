"""Figures of tables: accuracy per round, a paper's claims at a glance."""

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
from fednb.analysis.cells import Cell, Ledger, TableOrName, cells_of, table_of
from fednb.analysis.claims import Claim, claims_of
from fednb.analysis.comparisons import Comparison, cell_at, compare_rows
from fednb.analysis.statistics import Kind, Why
from fednb.reporting import words

_HOLLOW: dict[str, Any] = {"mfc": "none", "mec": "0.25", "mew": 1.5, "ms": 11}  # printed
_FILLED: dict[str, Any] = {"ms": 8}  # measured
_PALE: dict[str, Any] = {"ms": 5}  # measured, but too few runs, or on other data


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
        look = {"linestyle": "--", "color": palette[str(name)]}
        ax.axhline(of_name["value"].mean(), label=f"{name} ({rounds})", **look)
    ax.set(xlabel="communication round", ylabel="test accuracy (%)")
    ax.locator_params(axis="x", integer=True)
    if ax.lines:
        ax.legend(frameon=False)
    return ax


def lead_curves(
    table: TableOrName, over: str, ax: Axes | None = None, *, ledger: Ledger = None
) -> Axes:
    """By how much each row is ahead of row ``over``, round by round and seed by seed."""
    cells = _with_curves(cells_of(table, ledger))
    points = _curve_points(cells)
    points["seed"] = points.groupby(["name", "x"]).cumcount()
    wide = points.pivot_table(index=["x", "seed"], columns="name", values="value")
    ax = ax or plt.figure(layout="constrained").subplots()
    ax.axhline(0, color=plots.colour(over), lw=1)
    ax.annotate(over, (1.01, 0), xycoords=("axes fraction", "data"), va="center")
    for name, colour in _palette(cells).items():
        if name == over or name not in wide:
            continue
        lead = (wide[name] - wide[over]).groupby("x").mean().rolling(5, min_periods=1).mean()
        ax.plot(lead.index, lead, color=colour)
        end = (1.01, lead.iloc[-1])
        ax.annotate(name, end, xycoords=("axes fraction", "data"), va="center", color=colour)
    ax.set(xlabel="communication round", ylabel=f"lead over {over} (points)")
    return ax


def leads(
    table: TableOrName,
    over: str,
    ax: Axes | None = None,
    *,
    column: str | None = None,
    rows: Mapping[str, str] | None = None,
    ledger: Ledger = None,
) -> Axes:
    """The lead of each row over row ``over``, in points with 95 % intervals, from left to right.

    ``column``: which one, where the table has several. ``rows``: those that are shown, and what
    they are called; by default all but ``over``, by their own names. A printed lead is hollow.
    """
    cells = [
        cell for cell in cells_of(table, ledger) if cell.runs and column in (None, cell.column)
    ]
    ax = ax or plt.figure(layout="constrained").subplots()
    ax.axhline(0, color=plots.colour("FedAvg"), lw=1)
    names = rows or {cell.row: cell.row for cell in cells if cell.row != over}
    for x, row in enumerate(names):
        comparison = compare_rows(table, row, over, column, ledger)
        lead = comparison.lead
        if comparison.printed is not None:
            ax.plot(x - 0.15, comparison.printed, "o", **_HOLLOW)
        if lead.mean is not None:
            colour = plots.colour(cell_at(cells, row).job.settings.method)
            ax.errorbar(x, lead.mean, lead.half_width, fmt="o", capsize=3, color=colour)
    ax.set_xticks(range(len(names)), list(names.values()))
    ax.set_ylabel(f"lead over {over} (points)")
    return ax


def trend(
    table: str, rows: Sequence[str], ax: Axes | None = None, *, ledger: Ledger = None
) -> Axes:
    """What ``rows`` of a table reach over its columns, a number each, with 95 % intervals.

    A setting at which a run diverged is left out. Rows are told apart by their methods' colours,
    and rows of one method by solid and dashed lines; the axis of the columns is logarithmic.
    """
    cells = cells_of(table, ledger)
    parameter = table_of(table).columns.parameter
    ax = ax or plt.figure(layout="constrained").subplots()
    known: set[str] = set()
    for place, row in enumerate(rows):
        of_row = [cell for cell in cells if cell.row == row and cell.mean is not None]
        finished = [cell for cell in of_row if set(cell.statuses) == {"finished"}]
        numbers = [float(cell.job.settings.flat()[parameter]) for cell in finished]
        columns = [number * 1.02**place for number in numbers]  # beside each other
        means = [cast(float, cell.mean) for cell in finished]
        colour = plots.colour(row)
        line = "s--" if colour in known else "o-"
        known.add(colour)
        half_widths = [cast(float, cell.half) for cell in finished]
        look: dict[str, Any] = {"color": colour, "elinewidth": 1, "capsize": 3, "label": row}
        ax.errorbar(columns, means, half_widths, fmt=line, **look)
    shown = sorted({float(cell.job.settings.flat()[parameter]) for cell in cells})
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
            metrics = run.record["metrics"] if run.record else {}
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
    ends = [0.0]  # of what is drawn, in points
    for y, (paper, claim) in enumerate(claims):
        drawn = _drawn(claim)
        for i, comparison in enumerate(drawn):
            ends += _draw_lead(ax, y + 0.22 * i, claim, comparison, plots.colour(paper))
        for printed in claim.printed:
            ax.plot(printed, y, "o", zorder=3, **_HOLLOW)
            ends.append(printed)
        _label(ax, y, claim)
    margin = 0.12 * (max(ends) - min(ends)) or 1.0
    ax.set(
        xlim=(min(ends) - margin, max(ends) + margin),
        ylim=(len(claims) - 0.4, -0.6),
        xlabel="lead in points of accuracy",
    )
    ax.set_yticks(range(len(claims)), [claim.entry.short for _, claim in claims])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", alpha=0.3)
    _legend(ax)
    return ax


def _drawn(claim: Claim) -> list[Comparison]:
    """What decides, then what is nearer to the paper's setting but has too few runs."""
    own_data = [one for one in claim.evidence if one.lead.mean is not None]
    if not own_data:
        return [one for one in [claim.best] if one.lead.mean is not None]
    if claim.best not in own_data:
        return own_data
    nearer = own_data[: own_data.index(claim.best)]
    return [claim.best, *nearer]


def _draw_lead(
    ax: Axes, y: float, claim: Claim, comparison: Comparison, colour: str
) -> list[float]:
    """Draw a lead with its interval; returns what must be within the figure."""
    lead = comparison.lead
    if lead.mean is None:
        return []
    decides = lead.judged and bool(claim.evidence)
    borrowed = claim.borrowed(comparison)
    half_width = borrowed.half_width if borrowed else lead.half_width
    colour = colour if decides else "0.55"
    drawn = ax.errorbar(
        lead.mean,
        y,
        xerr=None if np.isnan(half_width) else [[half_width]] * 2,
        fmt="o",
        color=colour,
        capsize=3,
        **(_FILLED if decides else _PALE),
    )
    if borrowed:
        for line in drawn[2]:
            line.set_linestyle(":")
    if np.isnan(half_width):
        return [lead.mean]
    return [lead.mean - half_width, lead.mean + half_width]


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
    ax.plot([], [], "o", label="printed", **_HOLLOW)
    ax.errorbar([], [], xerr=[], fmt="o", color="0.4", capsize=3, label=measured, **_FILLED)
    ax.plot([], [], "o:", color="0.55", label="decides nothing (dotted: borrowed)", **_PALE)
    ax.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, 1),
        ncols=3,
        frameon=False,
        fontsize="small",
        handletextpad=0.4,
    )


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
