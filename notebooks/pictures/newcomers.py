"""Pictures of the notebook on newcomers: prototypes in another network's space, gains of federations."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots
from fednb.leads import interval


@plots.described(
    "Left, each star lies among the images of its class; right, with features swapped, two stars lie among other classes"
)
def two_spaces() -> Figure:
    """The same images in two networks, of which one has its two features swapped."""
    rng = np.random.default_rng(0)
    middles = np.array([[4.0, 1.0], [1.0, 1.2], [2.2, 4.0]])
    z = middles[:, None] + 0.35 * rng.normal(size=(3, 25, 2))
    prototypes = z.mean(1)
    fig, axes = plt.subplots(1, 2, figsize=(8.5, 3.6), sharex=True, sharey=True)
    panels = {"the network that sent them": z, "a newcomer's, just as good": z[:, :, ::-1]}
    for ax, (title, points) in zip(axes, panels.items(), strict=True):
        for k in range(3):
            ax.plot(*points[k].T, ".", color=f"C{k}")
            ax.plot(*prototypes[k], "*", color=f"C{k}", ms=20, mec="black")
            x, y = points[k].mean(0)
            ax.annotate(f"class {k}", (x, y + 0.85), color=f"C{k}", ha="center")
        ax.set(title=title, xlabel="first feature", aspect="equal", ylim=(0, 5.6), xlim=(0, 5.6))
    axes[0].set_ylabel("second feature")
    return fig


def meeting(close: Mapping[str, float], by_chance: float) -> Axes:
    """How often (%) the nearest image of another client is of the same class."""
    _, ax = plt.subplots(figsize=(7, 2.8))
    places = range(len(close))
    ax.barh(places, list(close.values()), color=[plots.colour(name) for name in close], height=0.6)
    for place, value in enumerate(close.values()):
        plots.label(ax, (max(value, by_chance), place), f"{value:.0f}", (4, 0), va="center")
    ax.axvline(by_chance, color="black", ls=":")
    ax.annotate("by chance", (by_chance + 1, -0.62), va="center")
    ax.set_yticks(places, list(close))
    ax.set(xlim=(0, 105), ylim=(len(close) - 0.5, -0.85))
    ax.set_xlabel("the nearest image of another client is of the same class (%)")
    return ax


@plots.described("Class means of own images are best from the beginning; received prototypes begin at chance")
def ways_to_classify(epochs: Sequence[int], alone: pd.DataFrame, pulled: pd.DataFrame) -> Axes:
    """Accuracies (%) of newcomers over epochs: a colour for each way to classify, a row for each epoch."""
    _, ax = plt.subplots(figsize=(7.5, 3.8))
    for place, way in enumerate(alone):
        colour = f"C{place}"
        ax.plot(epochs, alone[way], "o:", ms=4, color=colour)
        ax.plot(epochs, pulled[way], "o-", ms=4, color=colour)
        plots.label(ax, (epochs[-1], pulled[way].iloc[-1]), way, (8, 0), color=colour, va="center")
    ax.axhline(100 / 3, color="0.6", lw=1)
    plots.label(ax, (epochs[-1], 100 / 3), "a guess", (8, 0), color="0.4", va="center")
    ax.plot([], [], "-", color="0.3", label="pulled to the federation's prototypes")
    ax.plot([], [], ":", color="0.3", label="alone")
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(0.0, 0.66))
    ax.set(xlabel="epochs of the newcomer", ylabel="accuracy (%), mean of five federations")
    ax.set(xticks=list(epochs), ylim=(25, 100))
    return ax


@plots.described("Both kinds of targets help in every federation, and fixed vectors help more than prototypes do")
def gains(rows: Mapping[str, Sequence[float]]) -> Axes:
    """How far newcomers are ahead (points): a grey dot for each federation, and the 95 % interval over them."""
    _, ax = plt.subplots(figsize=(8, 2.5))
    colours = (plots.colour("FedProto"), "0.2", "0.2")
    for place, (values, colour) in enumerate(zip(rows.values(), colours, strict=True)):
        ax.plot(values, [place - 0.15] * len(values), "o", color="0.7", ms=6)
        mean, half_width = interval(values)
        ax.errorbar(mean, place + 0.15, xerr=half_width, fmt="o", color=colour, capsize=4, ms=8)
    ax.axvline(0, color="0.6", lw=1)
    ax.grid(axis="x", alpha=0.3)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set(ylim=(len(rows) - 0.5, -0.5), xlabel="ahead, in points of accuracy")
    return ax
