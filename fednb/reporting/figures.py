"""Figures of tables: accuracy per round, a paper's claims at a glance."""

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any, cast

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots
from fednb.analysis.cells import Cell, Ledger, TableOrName, cells_of
from fednb.analysis.claims import Claim, claims_of
from fednb.analysis.statistics import Lead
from fednb.reporting import words

_HOLLOW: dict[str, Any] = {"mfc": "none", "mec": "0.25", "mew": 1.5, "ms": 11}  # printed
_FILLED: dict[str, Any] = {"ms": 8}  # measured
_PALE: dict[str, Any] = {"ms": 4, "alpha": 0.45}  # measured in shorter runs


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
    """A paper's claims: leads printed (hollow) and measured (filled), short runs below, paler."""
    return draw_claims([(paper, claim) for claim in claims_of(paper) if claim.entry.short])


def draw_claims(claims: Sequence[tuple[str, Claim]]) -> Axes:
    """Draw the leads of claims in points, a line for each, in the colour of its paper."""
    ax = plt.figure(figsize=(8.2, 1.1 + 0.52 * len(claims)), layout="constrained").subplots()
    ax.axvline(0, color="0.6", lw=1, zorder=0)
    ends = [0.0]  # of what is drawn, in points
    shorter_runs = False
    for y, (paper, claim) in enumerate(claims):
        leads = _drawn_leads(claim)
        for i, lead in enumerate(leads):
            ends += _draw_lead(ax, y + 0.22 * i, lead, plots.colour(paper), main=i == 0)
        shorter_runs |= len(leads) > 1
        if claim.printed is not None:
            ax.plot(claim.printed, y, "o", zorder=3, **_HOLLOW)
            ends.append(claim.printed)
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
    _legend(ax, shorter_runs)
    return ax


def _drawn_leads(claim: Claim) -> list[Lead]:
    """The lead that counts, and those of shorter runs on the same data."""
    _, *others = claim.with_runs
    drawn = [claim.best, *(one for one in others if claim.on_its_data(one))]
    return [one.lead for one in drawn if one.lead.mean is not None]


def _draw_lead(ax: Axes, y: float, lead: Lead, colour: str, *, main: bool) -> list[float]:
    """Draw a lead with its interval.

    Returns what must be within the figure: the interval, but of shorter runs only its middle.
    """
    if lead.mean is None:
        return []
    several = lead.seeds > 1
    width = [[lead.half_width]] * 2 if several else None
    look = _FILLED if main else _PALE
    ax.errorbar(lead.mean, y, xerr=width, fmt="o", color=colour, capsize=3, **look)
    if main and several:
        return [lead.mean - lead.half_width, lead.mean + lead.half_width]
    return [lead.mean]


def _label(ax: Axes, y: float, claim: Claim) -> None:
    """Write the verdict beside a claim, and below it the runs that it rests on."""
    lead = claim.best.lead
    runs = ""
    if lead.seeds:
        setting = words.setting(claim.setting(claim.best), brief=True)
        runs = f"{setting}, {words.seeds(lead.seeds)}"
    beside: dict[str, Any] = {"x": 1.02, "transform": ax.get_yaxis_transform()}
    verdict = words.short_verdict(claim.verdict)
    weight = "bold" if lead.judged else "normal"
    ax.text(y=y, s=verdict, va="bottom", size="small", weight=weight, **beside)
    ax.text(y=y + 0.06, s=runs, va="top", size="x-small", color="0.4", **beside)


def _legend(ax: Axes, shorter_runs: bool) -> None:
    measured = "measured, 95 % interval over seeds"
    ax.plot([], [], "o", label="printed", **_HOLLOW)
    ax.errorbar([], [], xerr=[], fmt="o", color="0.4", capsize=3, label=measured, **_FILLED)
    if shorter_runs:
        ax.plot([], [], "o", color="0.4", label="shorter runs", **_PALE)
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
