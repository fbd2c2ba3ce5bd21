"""Pictures of the extra on FCCL+: what two clients say of photographs, when they agree, and what each half is worth."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fednb import plots, results

_A, _B = "#0173b2", "#de8f05"


@plots.described(
    "Six photographs; below each, bars for the ten digits: client A's upwards, client B's downwards. At first they have "
    "little in common; after the steps on public images the lower bars mirror the upper ones, and both clients read fewer "
    "of their own test images"
)
def answers(photographs: np.ndarray, logits: Mapping[str, Tensor], own: Mapping[str, Sequence[float]]) -> Figure:
    """Photographs [n, H, W, 3]; by a row's title the logits [2, m, 10] of A and of B, of which the first n are drawn.

    ``own`` has how many of its own test images each client reads, in percent.
    """
    figure, axes = plt.subplots(3, len(photographs), figsize=(13, 5.6), gridspec_kw={"height_ratios": [1.1, 1, 1]})
    for ax, photograph in zip(axes[0], photographs, strict=True):
        ax.imshow(photograph, interpolation="bilinear")
        ax.axis("off")
    for row, (title, of_both) in zip(axes[1:], logits.items(), strict=True):
        a, b = ((f - f.mean(0)) / f.std(0, unbiased=False) for f in of_both)
        same = 100 * float((a.argmax(1) == b.argmax(1)).float().mean())
        for ax, of_a, of_b in zip(row, a.numpy(), b.numpy(), strict=False):
            _mirrored(ax, of_a, of_b)
        told = f"{title}:\nthe same digit\nstands out for\n{same:.0f} % of photographs"
        row[0].set_ylabel(told, rotation=0, ha="right", va="center")
        beside: dict[str, Any] = {"transform": row[-1].transAxes, "va": "center"}
        row[-1].text(1.08, 0.82, "own test images:", **beside)
        for height, name, percent, colour in zip((0.62, 0.42), "AB", own[title], (_A, _B), strict=True):
            row[-1].text(1.08, height, f"{name} reads {percent:.0f} %", color=colour, weight="bold", **beside)
    return figure


def _mirrored(ax: Axes, a: np.ndarray, b: np.ndarray) -> None:
    """A's bars upwards and B's downwards; the digit that stands out most has its name at its bar."""
    digits = np.arange(len(a))
    for values, sign, colour in ((a, 1, _A), (b, -1, _B)):
        heights = sign * np.maximum(values, 0)
        best = int(values.argmax())
        ax.bar(digits, heights, color=colour, alpha=0.45)
        ax.bar(best, heights[best], color=colour)
        ax.annotate(
            str(best), (best, heights[best]), (0, 3 * sign), textcoords="offset points", ha="center",
            va="bottom" if sign > 0 else "top", color=colour, weight="bold",
        )  # fmt: skip
    ax.axhline(0, color="0.3", lw=1)
    reach = 1.35 * max(a.max(), b.max(), 1)
    ax.set(xticks=[], yticks=[], ylim=(-reach, reach))
    for side in ax.spines.values():
        side.set_visible(False)


@plots.described(
    "Correlations of client A's ten classes with those of the mean: before the steps strong ones stand beside the diagonal, "
    "too; after them the diagonal stands out"
)
def matrices(found: Mapping[str, Tensor]) -> Figure:
    """By a title the matrix M [10, 10] of (1)."""
    figure, axes = plt.subplots(1, len(found), figsize=(8.4, 3.7), layout="constrained")
    for ax, (title, matrix) in zip(axes, found.items(), strict=True):
        shown = ax.imshow(matrix.numpy(), cmap="RdBu", vmin=-1, vmax=1)
        ax.set(title=f"{title}: mean of\nthe diagonal {matrix.diagonal().mean():.2f}", xlabel="class, mean of A and B")
        ax.set(xticks=range(10), yticks=range(10))
        ax.tick_params(length=0)
    axes[0].set_ylabel("class, client A")
    figure.colorbar(shown, ax=axes, label="correlation", shrink=0.8)
    return figure


@plots.described("How far five clients disagree at three moments of a round, for the meeting before home and after it")
def in_a_round(found: Mapping[str, Sequence[float]]) -> Figure:
    """By order (its moments, with arrows between them) the first sum of (1) at each moment: 0 where all say the same."""
    figure, axes = plt.subplots(1, len(found), figsize=(10, 3.2), sharey=True)
    for ax, (order, values) in zip(axes, found.items(), strict=True):
        moments = order.split(" → ")
        places = np.arange(len(values))
        ax.plot(places, values, color="0.7", zorder=1)
        for place, value, moment in zip(places, values, moments, strict=True):
            ax.scatter(place, value, s=70, color=_B if moment == "meeting" else "0.35", zorder=2)
            ax.annotate(f"{value:.2f}", (place, value), (0, 9), textcoords="offset points", ha="center")
        labels = {"received": "as received", "home": "after training\nat home", "meeting": "after the\nmeeting"}
        ax.set_xticks(places, [labels[moment] for moment in moments])
        first = "before" if moments[1] == "meeting" else "after"
        ax.set(title=f"the meeting {first} home", xlim=(-0.4, len(values) - 0.6))
        ax.margins(y=0.22)
    axes[0].set_ylabel("disagreement:\nfirst sum of (1)")
    return figure


@plots.described(
    "Accuracy minus FedAvg's, by when clients meet: without a teacher all lie near 0; with the published teacher the "
    "line falls steeply towards a meeting after home; renormalised it is higher"
)
def halves() -> Figure:
    """For each teacher, over when clients meet: accuracy minus FedAvg's at the same seed, with 95 % intervals."""
    figure, ax = plt.subplots(figsize=(8.6, 4.2))
    ax.axhline(0, color="0.6", lw=1, zorder=0)
    base = results.cell("mini-fccl-plus", "FedAvg", "Avg.")
    for shift, (name, (colour, beside, rows)) in zip((-0.1, 0, 0.1), _TEACHERS.items(), strict=True):
        leads = [results.compare(results.cell("mini-fccl-plus", row, "Avg."), base) for row, _ in rows.values()]
        at, means = [x + shift for x in rows], [lead.mean or 0.0 for lead in leads]
        ax.plot(at, means, color=colour, lw=2.5)
        for x, (row, place), lead, mean in zip(at, rows.values(), leads, means, strict=True):
            ax.errorbar(x, mean, yerr=None if row == "FedAvg" else lead.half_width, color=colour, fmt="o", capsize=3)
            told = "FedAvg" if row == "FedAvg" else f"{mean:+.1f}".replace("-", "−")
            plots.label(ax, (x, mean), told, place, color=colour, fontsize="small")
        plots.label(ax, (2.42, means[-1]), name, (0, beside), color=colour, va="center")
    ax.set_xticks(range(3), ["meeting before home", "no meeting", "meeting after home"])
    ax.set(xlim=(-0.35, 2.4), ylabel="accuracy minus FedAvg's (points),\nmean and 95 % interval")
    return figure


# by name the colour, how far above its end the name stands, and by place the row and where its number stands
_TEACHERS: dict[str, tuple[str, int, dict[int, tuple[str, tuple[int, int]]]]] = {
    "no teacher": (
        plots.colour("FedAvg"),
        8,
        {
            0: ("public images first, no teacher", (-32, 4)),
            1: ("FedAvg", (-46, 6)),
            2: ("home first, no teacher", (4, 17)),
        },
    ),
    "teacher, as published": (
        plots.colour("FCCL+"),
        0,
        {0: ("public images first", (6, -15)), 1: ("teacher alone", (-34, -15)), 2: ("home first", (8, -4))},
    ),
    "teacher, renormalised": (
        _B,
        -8,
        {1: ("teacher alone, renormalised", (6, -15)), 2: ("home first, renormalised", (6, -15))},
    ),
}
