"""Figures of claims: leads as printed and as measured, a line for each claim."""

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any, cast

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots
from fednb_lab import words
from fednb_lab.claims import Claim

_PRINTED: dict[str, Any] = {"mfc": "none", "mec": "0.25", "mew": 1.5, "ms": 11}
_MEAN = 8  # size of a mean over three seeds or more
_SEED = 4  # of a single seed


def draw_claims(claims: Sequence[tuple[str, Claim]]) -> Axes:
    """Draw the leads of claims in points, a line for each, in the colour of its paper.

    Only runs in the claim's own setting are drawn: their mean with its interval, or below three
    seeds a small dot for each seed.
    """
    ax = plt.figure(figsize=(8.2, 1.1 + 0.42 * len(claims)), layout="constrained").subplots()
    ax.axvline(0, color="0.6", lw=1, zorder=0)
    beside: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "va": "center"}
    for y, (paper, claim) in enumerate(claims):
        _draw_ours(ax, y, claim, plots.colour(paper))
        for printed in claim.printed:
            ax.plot(printed, y, "o", zorder=3, **_PRINTED)
        weight = "normal" if claim.decisive is None else "bold"
        ax.text(1.02, y, str(claim.word), weight=weight, size="small", **beside)
    ax.margins(x=0.12)
    ax.set(ylim=(len(claims) - 0.4, -0.6), xlabel="lead in points of accuracy")
    ax.set_yticks(range(len(claims)), [claim.entry.short for _, claim in claims])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", alpha=0.3)
    _legend(ax)
    return ax


def _draw_ours(ax: Axes, y: float, claim: Claim, colour: str) -> None:
    """Draw the lead in the claim's own setting, if there is one."""
    found = claim.in_its_setting
    if found is None or found.lead.mean is None:
        return
    if claim.decisive is None:
        seeds = list(found.by_seed.values())
        ax.plot(seeds, [y] * len(seeds), "o", color=colour, ms=_SEED)
    else:
        look: dict[str, Any] = {"color": colour, "ms": _MEAN, "capsize": 3}
        ax.errorbar(found.lead.mean, y, xerr=found.lead.half_width, fmt="o", **look)


def _legend(ax: Axes) -> None:
    ax.plot([], [], "o", label="printed", **_PRINTED)
    measured = f"measured, 95 % interval, {words.MIN_SEEDS} seeds or more"
    ax.errorbar([], [], xerr=[], fmt="o", color="0.4", capsize=3, label=measured, ms=_MEAN)
    ax.plot([], [], "o", color="0.4", label="a single seed", ms=_SEED)
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
