"""Pictures of the extra on FCCL+: what two clients say of photographs, when they agree, and what each half is worth."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from fednb import plots, results

_A, _B = "#0173b2", "#de8f05"
_UNLIKE = 10 * (1 - 1 / 5**0.5) ** 2  # ten classes, each correlated with the mean of five as a fifth of it is


@plots.described(
    "Six new photographs and the digit that stands out in each for client A and for client B, and beside them bars: from "
    "home the two rarely name the same digit, no more often than by chance; after the steps they do for most pieces on "
    "which they practised and for about half of the new ones, and both read fewer of their own test images, as they do "
    "after the same steps towards themselves"
)
def answers(
    photographs: np.ndarray, logits: Mapping[str, Mapping[str, Tensor]], own: Mapping[str, Sequence[float]]
) -> Figure:
    """New photographs [n, H, W, 3]; by a row's title and by "practised" or "new", the logits [2, m, 10] of A and of B.

    The first n of "new" belong to the photographs. ``own`` has how many of its own test images each client reads, in
    percent, also under "alone": after as many steps towards itself.
    """
    n = len(photographs)
    figure = plt.figure(figsize=(13, 5.4), layout="none")
    shape: dict[str, Any] = {"height_ratios": [1.3, 1, 1], "width_ratios": [1] * n + [1.6, 2.2]}
    grid = figure.add_gridspec(3, n + 2, **shape, hspace=0.4, wspace=0.08)
    for column, photograph in enumerate(photographs):
        ax = figure.add_subplot(grid[0, column])
        ax.axis("off")
        ax.imshow(photograph, interpolation="bilinear")
    for row, (title, of_pieces) in enumerate(logits.items(), 1):
        named = {pieces: _standing_out(of_both) for pieces, of_both in of_pieces.items()}
        axes = [figure.add_subplot(grid[row, column]) for column in range(n)]
        for ax, (a, b) in zip(axes, named["new"].T, strict=False):
            ax.axis("off")
            for place, client, digit, colour in zip((0.3, 0.7), "AB", (a, b), (_A, _B), strict=True):
                look: dict[str, Any] = {"color": colour, "ha": "center", "va": "center", "transform": ax.transAxes}
                ax.text(place, 0.45, str(digit), size=26, weight="bold", **look)
                ax.text(place, 0.85, client, **look)
            if a == b:
                frame = Rectangle((0.08, 0.14), 0.84, 0.84, transform=ax.transAxes, fill=False, ec="0.3", lw=1.5)
                ax.add_patch(frame).set_clip_on(False)
        axes[0].text(-0.1, 0.5, title, ha="right", va="center", weight="bold", transform=axes[0].transAxes)
        _same_digit(figure.add_subplot(grid[row, n + 1]), named, row == 1)
        _read(axes[0], "own test images read:", own[title], -0.06)
        if row == len(logits):
            _read(axes[0], "after the same steps towards itself:", own["alone"], -0.34)
    return figure


def _read(ax: Axes, told: str, own: Sequence[float], y: float) -> None:
    """A line of text below a row: how many of its own test images each client reads, in percent."""
    text: Any = ax.text(0, y, told, va="top", size="medium", transform=ax.transAxes)
    for client, percent, colour in zip("AB", own, (_A, _B), strict=True):
        look: dict[str, Any] = {"color": colour, "size": "large", "weight": "bold"}
        words = f"{client} {percent:.0f} %"
        text = ax.annotate(words, (1, 0), (10, 0), xycoords=text, textcoords="offset points", va="bottom", **look)


def _same_digit(ax: Axes, named: Mapping[str, np.ndarray], is_first: bool) -> None:
    """A bar for each kind of pieces: for how many A and B name the same digit, in percent; a mark where chance would be."""
    for y, (pieces, told) in enumerate((("practised", "pieces on which\nthey practise"), ("new", "new pieces"))):
        a, b = named[pieces]
        same, shuffled = 100 * np.mean(a == b), 100 * np.mean(a[:, None] == b)  # of all pairs of pieces
        ax.barh(y, same, 0.62, color="0.55")
        ax.plot([shuffled] * 2, [y - 0.42, y + 0.42], color="black", lw=2)
        ax.text(max(same, shuffled) + 2, y, f"{same:.0f} %", va="center", weight="bold")
        ax.text(-3, y, told, ha="right", va="center")
    if is_first:
        arrow: dict[str, Any] = {"arrowstyle": "->", "color": "black", "shrinkB": 1}
        ax.annotate("by chance", (shuffled + 1, 0.5), (45, 0.5), va="center", arrowprops=arrow)
        ax.set_title("A and B name the same digit", size="medium")
    ax.set(xlim=(0, 100), ylim=(1.5, -0.5))
    ax.axis("off")


def _standing_out(logits: Tensor) -> np.ndarray:
    """The digit whose logit is furthest above its mean over the photographs, in standard deviations: [2, m]."""
    return ((logits - logits.mean(1, keepdim=True)) / logits.std(1, unbiased=False, keepdim=True)).argmax(2).numpy()


@plots.described(
    "Correlations of client A's ten classes with those of client B: before the steps the diagonal is as pale as the rest; "
    "after them it stands out, though strong correlations remain beside it"
)
def matrices(found: Mapping[str, Tensor]) -> Figure:
    """By a title the correlations [10, 10] of two clients' classes."""
    figure, axes = plt.subplots(1, len(found), figsize=(8.4, 3.7), layout="constrained")
    for ax, (title, matrix) in zip(axes, found.items(), strict=True):
        shown = ax.imshow(matrix.numpy(), cmap="RdBu", vmin=-1, vmax=1)
        ax.set(title=f"{title}: mean of\nthe diagonal {matrix.diagonal().mean():.2f}", xlabel="class, client B")
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
        ax.axhline(_UNLIKE, color="0.6", lw=1, ls="--", zorder=0)
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
    axes[0].text(-0.35, _UNLIKE + 0.08, "nothing in common", color="0.4", size="small")
    return figure


@plots.described(
    "Three panels with a row for each teacher. Clients whose teacher is not divided give the right class the lowest "
    "probability, and a meeting leaves them least to disagree on; how many test images are read hardly moves"
)
def a_meeting(found: Mapping[str, Sequence[Mapping[str, float]]]) -> Figure:
    """By teacher what is so after home and after the meeting: "sure", "disagreement" and "percent", means over clients."""
    figure, axes = plt.subplots(1, 3, figsize=(12.5, 2.8), sharey=True)
    titles = {
        "sure": "probability of the right class\n(median over own test images)",
        "disagreement": "disagreement on new pieces\n(first sum of (1))",
        "percent": "own test images\nthat are read (%)",
    }
    for ax, (of, title) in zip(axes, titles.items(), strict=True):
        for y, (before, after) in enumerate(found.values()):
            ax.annotate("", (after[of], y), (before[of], y), arrowprops={"arrowstyle": "-", "color": "0.7", "lw": 2})
            for values, colour, label in ((before, "0.35", "after home"), (after, _B, "after the meeting")):
                ax.plot(values[of], y, "o", ms=8, color=colour, label=label if y == 0 else None)
        ax.set_title(title, fontsize="medium")
        ax.margins(y=0.3)
        highest = max(one[of] for both in found.values() for one in both)
        if of == "disagreement":
            highest = max(highest, _UNLIKE)
            ax.axvline(_UNLIKE, color="0.6", lw=1, ls="--", zorder=0)
            ax.text(_UNLIKE - 0.05, 1.5, "nothing in\ncommon", color="0.4", size="small", ha="right", va="center")
        ax.set_xlim(0, 100 if of == "percent" else 1.1 * highest)
        ax.grid(axis="x", alpha=0.3)
        ax.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(found)), [*found])
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=2)
    return figure


@plots.described(
    "Accuracy minus FedAvg's, by when clients meet: without a teacher all lie near 0; with a teacher that is not divided "
    "the line falls steeply towards a meeting after home; divided it is higher"
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
    "teacher, not divided": (
        plots.colour("FCCL+"),
        0,
        {0: ("public images first", (6, -15)), 1: ("teacher alone", (-34, -15)), 2: ("home first", (8, -4))},
    ),
    "teacher, divided": (
        _B,
        -8,
        {1: ("teacher alone, renormalised", (6, -15)), 2: ("home first, renormalised", (6, -15))},
    ),
}
