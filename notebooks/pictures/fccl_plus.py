"""Pictures of the extra on FCCL+: what two clients say of photographs, and when in a round clients agree."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots

_A, _B = "#0173b2", "#de8f05"


@plots.described(
    "Six photographs; below each, bars for the ten digits: client A's upwards, client B's downwards. At first they have "
    "little in common; after the steps on public images the lower bars mirror the upper ones"
)
def answers(photographs: np.ndarray, said: Mapping[str, Sequence[np.ndarray]]) -> Figure:
    """Photographs [n, H, W, 3], and by a row's title the answers [m, 10] of A and of B, of which the first n are drawn."""
    number = len(photographs)
    figure, axes = plt.subplots(
        1 + len(said), number, figsize=(13, 5.6), gridspec_kw={"height_ratios": [1.1, 1, 1][: 1 + len(said)]}
    )
    for ax, photograph in zip(axes[0], photographs, strict=True):
        ax.imshow(photograph, interpolation="bilinear")
        ax.axis("off")
    for row, (title, (a, b)) in zip(axes[1:], said.items(), strict=True):
        same = 100 * (a.argmax(1) == b.argmax(1)).mean()
        for ax, of_a, of_b in zip(row, a, b, strict=False):
            _mirrored(ax, of_a, of_b)
        row[0].set_ylabel(f"{title}:\nthe same digit for\n{same:.0f} % of photographs", rotation=0, ha="right", va="center")
    return figure


def _mirrored(ax: Axes, a: np.ndarray, b: np.ndarray) -> None:
    """A's bars upwards and B's downwards; the digit that each names stands at its bar."""
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
