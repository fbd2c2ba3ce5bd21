"""Pictures of notebook 04: two clients that break a lemma, centres, bounds, a printed spread."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots

_CLIENTS = ("#8c6bb1", "#2a9d8f")
_SUM = plots.colour("FedProto")


def broken_lemma() -> Figure:
    """Two clients with one number each: one steps outwards, and the other's loss rises too far."""
    fig, (line, plane) = plt.subplots(1, 2, figsize=(11, 3.7), width_ratios=(1.25, 1))
    moments = (1.0, "before", -10, 0), (0.0, "after client 2\nhas moved by 2", -12, -1)
    for y, when, second, centre in moments:
        line.annotate(when, (-15, y), ha="right", va="center")
        line.plot([-14, 13], [y, y], color="0.8", lw=1, zorder=0)
        line.plot(second, y, "o", ms=13, color=_CLIENTS[1])
        line.plot(10, y, "o", ms=13, color=_CLIENTS[0])
        line.plot(centre, y, "*", ms=20, color="black")
        for x in (second, centre, 10):
            line.annotate(f"{x}", (x, y - 0.2), ha="center", va="top", color="0.3")
        line.plot([centre + 0.7, 9.3], [y + 0.13] * 2, "|-", color=_CLIENTS[0], ms=9)
        text = f"squared distance {(10 - centre) ** 2}"
        line.annotate(text, (5, y + 0.19), ha="center", color=_CLIENTS[0])
    line.annotate("client 2", (-10, 0.52), ha="center", color=_CLIENTS[1], weight="bold")
    line.annotate("client 1", (10, 0.52), ha="center", color=_CLIENTS[0], weight="bold")
    line.annotate("prototype", (0, 0.52), ha="center", weight="bold")
    line.set(xlim=(-15, 13), ylim=(-0.5, 1.6))
    line.axis("off")

    step = np.linspace(0, 2, 50)
    plane.fill_between(step, step, color="0.9")
    plane.plot(step, step, "k--", lw=1.5)
    plane.plot(step, (10 + step / 2) ** 2 - 100, color=_CLIENTS[0], lw=3)
    plane.plot(2, 21, "o", ms=9, color=_CLIENTS[0])
    plane.annotate("rise of client 1's loss", (1.2, 14.5), ha="right", color=_CLIENTS[0])
    plane.annotate("what lemma 2 allows", (1.85, 2.9), ha="right")
    plane.annotate("21", (1.93, 21), ha="right", va="center", color=_CLIENTS[0], weight="bold")
    plane.annotate("2", (1.98, 2.9), ha="right", weight="bold")
    plane.set(xlabel="client 2's step", ylabel="rise at the server's averaging", ylim=(0, 22.5))
    return fig


def centres(points: np.ndarray, images: np.ndarray, best: Mapping[str, np.ndarray]) -> Axes:
    """Prototypes in the plane [h, 2], as large as their images are many, and named centres."""
    _, ax = plt.subplots(figsize=(7.5, 3.8))
    ax.scatter(points[:, 0], points[:, 1], s=60 * images, color="0.85", edgecolor="0.4")
    for place, number in zip(points, images, strict=True):
        ax.annotate(f"{number}", tuple(place), ha="center", va="center", color="0.4", fontsize=9)
    marks = zip(best.items(), "Xo^s", ("0.2", *_CLIENTS, _SUM), strict=True)
    for (name, centre), mark, colour in marks:
        ax.plot(*centre, mark, ms=10, color=colour)
        plots.label(ax, centre, name, (9, -3), color=colour, weight="bold")
    ax.set(xlabel="first feature", ylabel="second feature", aspect="equal")
    ax.set(xlim=(-0.8, 10), ylim=(-0.8, 5.8))
    return ax


def bounds(
    rises: np.ndarray,
    allowed: Mapping[str, float],
    gradients: Mapping[str, np.ndarray],
    longest: float,
) -> Figure:
    """How much losses rise at averaging [rounds, 2], and mean squared gradients with bounds.

    ``allowed``: bounds of a rise. ``gradients``: of client 1 and of both together, each as
    measured and as bounded, a value for each round from the first on. ``longest``: G.
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(11.5, 3.8))
    shown = 150
    rounds = np.arange(1, len(rises) + 1)
    for name, values, colour, shift in (
        ("client 1", rises[:, 0], _CLIENTS[0], 12),
        ("client 2", rises[:, 1], _CLIENTS[1], -12),
        ("the sum", rises.sum(1), _SUM, 0),
    ):
        left.plot(rounds[:shown], values[:shown], color=colour, lw=2)
        plots.label(left, (shown, values[shown]), name, (5, shift), color=colour, va="center")
    for (name, value), style in zip(allowed.items(), (":", "--"), strict=True):
        left.axhline(value, color="black", ls=style)
        plots.label(left, (4, value), name, (0, 3))
    left.set(xlabel="round", ylabel="rise of the loss at averaging", xlim=(0, shown))
    looks = ((_CLIENTS[0], "-", -9), (_CLIENTS[0], "--", 0), (_SUM, "-", 3), (_SUM, "--", 15))
    for (name, values), (colour, style, shift) in zip(gradients.items(), looks, strict=True):
        right.loglog(rounds, np.where(values > 0, values, np.nan), color=colour, ls=style)
        plots.label(right, (rounds[-1], values[-1]), name, (5, shift), color=colour, va="center")
    right.loglog(rounds, np.full(len(rounds), longest**2), color="black", ls=":")
    plots.label(right, (rounds[-1], longest**2), "G²", color="black", va="center")
    right.set(xlabel="rounds so far", ylabel="mean squared gradient")
    return fig


def spreads(
    settings: Sequence[str],
    printed: Sequence[float],
    ours: Mapping[str, Sequence[Sequence[float]]],
) -> Axes:
    """The ± over clients: as printed, and of each of our runs in several ways of counting.

    ``ours``: for each way the values of all seeds, a sequence for each setting.
    """
    _, ax = plt.subplots(figsize=(8.5, 3.6))
    places = np.arange(len(settings))
    ax.plot(places, printed, "o", ms=12, mfc="none", mec="black", mew=1.5, label="printed")
    looks = (("X", plots.colour("FedProto"), 0), ("o", "0.55", 0.2))
    for (name, values), (mark, colour, shift) in zip(ours.items(), looks, strict=True):
        beside = np.repeat(places + shift, [len(of_setting) for of_setting in values])
        ax.plot(beside, np.concatenate(values), mark, color=colour, ms=8, alpha=0.75, label=name)
    ax.set_xticks(places, settings)
    ax.set(ylabel="± over clients (points)", ylim=(0, None))
    ax.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
    return ax
