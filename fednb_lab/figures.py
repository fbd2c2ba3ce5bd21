"""Figures of claims, and the curves of tables as values, which `fednb.plots` draws."""

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any, cast

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots
from fednb.leads import Lead
from fednb_lab.cells import Cell
from fednb_lab.claims import Claim

_LARGE = 8  # measured, and it decides
_SMALL = 5  # measured, but too few runs


def curves_of(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """The curves of a table's cells, for `fednb.plots.curves`."""
    described = []
    for name, cell in _with_curves(cells).items():
        metrics = [run.record["metrics"] for run in cell.runs]
        rounds = max((one.get("round", []) for one in metrics), key=len, default=[])
        values = [one.get(cell.measure.curve, []) for one in metrics]
        described.append(
            {
                "name": name,
                "method": cell.job.settings.method,
                "seeds": list(cell.seeds),
                "rounds": rounds,
                "values": [_rounded(of_run) for of_run in values],
            }
        )
    return described


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    """To what a figure can show."""
    return [None if value is None else round(value, 4) for value in values]


def _with_curves(cells: Sequence[Cell]) -> dict[str, Cell]:
    """The cells that are drawn, by what they are called; of several read-outs the accuracy."""
    drawn = [cell for cell in cells if cell.measure.curve and cell.runs]
    drawn = [cell for cell in drawn if cell.measure.name == "accuracy"] or drawn
    columns = {cell.column for cell in drawn}
    usual_seeds = max((cell.seeds for cell in drawn), key=len, default=())
    named = {}
    for cell in drawn:
        name = f"{cell.row}, {cell.column}" if len(columns) > 1 else cell.row
        if cell.seeds != usual_seeds:
            name += f" (seed {', '.join(map(str, cell.seeds))})"
        named[name] = cell
    return named


def draw_claims(claims: Sequence[tuple[str, Claim]]) -> Axes:
    """Draw the leads of claims in points, a line for each, in the colour of its paper.

    Beside the printed leads stands what our runs in the claim's own setting show: the mean with its
    interval, or below three seeds the leads of single ones.
    """
    figure = plt.figure(figsize=(8.2, 1.1 + 0.42 * len(claims)), layout="constrained")
    ax = figure.subplots()
    ax.axvline(0, color="0.6", lw=1, zorder=0)
    beside: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "va": "center"}
    for y, (paper, claim) in enumerate(claims):
        colour = plots.colour(paper)
        found = claim.in_its_setting
        lead = Lead() if found is None else found.lead
        if lead.judged:
            assert lead.mean is not None  # a judged one has it
            look: dict[str, Any] = {"color": colour, "ms": _LARGE, "capsize": 3}
            ax.errorbar(lead.mean, y, xerr=lead.half_width, fmt="o", **look)
        single = () if lead.judged else lead.values
        ax.plot(single, [y] * len(single), "o", color=colour, ms=_SMALL)
        for printed in claim.printed:
            ax.plot(printed, y, "o", zorder=3, **plots.PRINTED)
        weight = "bold" if lead.judged else "normal"
        ax.text(1.02, y, str(claim.word), weight=weight, size="small", **beside)
    ax.margins(x=0.12)
    ax.set(ylim=(len(claims) - 0.4, -0.6), xlabel="lead in points of accuracy")
    ax.set_yticks(range(len(claims)), [claim.entry.short for _, claim in claims])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", alpha=0.3)
    _legend_of_claims(ax)
    return ax


def _legend_of_claims(ax: Axes) -> None:
    ax.plot([], [], "o", label="printed", **plots.PRINTED)
    look: dict[str, Any] = {"color": "0.4", "capsize": 3, "ms": _LARGE}
    measured = "measured, 95 % interval over seeds"
    ax.errorbar([], [], xerr=[], fmt="o", label=measured, **look)
    ax.plot([], [], "o", color="0.4", label="a single seed", ms=_SMALL)
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 3}
    ax.legend(frameon=False, fontsize="small", handletextpad=0.4, **place)


def claim_figures(claims: Mapping[str, Sequence[Claim]]) -> dict[str, str]:
    """Draw the report's figures as SVG, by name: each paper's claims, and the main ones of all."""
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
