"""Pictures of the notebook on newcomers: prototypes in another network's space, gains of federations."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
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


@plots.described("What two kinds of targets add to training alone, from both starts, and the difference between the two")
def gains(of_federations: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure:
    """Gains of newcomers (points), by start and by what pulls them: a panel for each start.

    A dot is a federation; the interval is the 95 % interval over them. Names with "minus" are
    differences of gains, and hollow.
    """
    figure, axes = plt.subplots(1, len(of_federations), figsize=(11.5, 2.7), sharex=True, sharey=True)
    for ax, (start, rows) in zip(axes, of_federations.items(), strict=True):
        for place, (name, values) in enumerate(rows.items()):
            colour = plots.colour("FedProto") if name == "prototypes" else "0.2"
            ax.plot(values, [place - 0.15] * len(values), "o", color="0.7", ms=6)
            mean, half_width = interval(values)
            face = "white" if "minus" in name else colour
            ax.errorbar(mean, place + 0.15, xerr=half_width, fmt="o", color=colour, mfc=face, capsize=4, ms=8)
        ax.axvline(0, color="0.6", lw=1)
        ax.grid(axis="x", alpha=0.3)
        ax.set(title=f"start: {start}", xlabel="gain over training alone (points)")
    names = list(next(iter(of_federations.values())))
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    return figure


@plots.described("Class means of own images are best from the beginning; output layers rise faster with prototypes")
def ways_to_classify(epochs: Sequence[int], means: Mapping[str, Mapping[tuple[str, str], np.ndarray]]) -> Figure:
    """Accuracies (%) of newcomers over epochs: a panel for each start, by way and pull.

    Solid lines are with the federation's prototypes, dotted ones alone; a way is a colour.
    """
    figure, axes = plt.subplots(1, len(means), figsize=(11.5, 4), sharey=True)
    for ax, (start, lines) in zip(axes, means.items(), strict=True):
        known = list(dict.fromkeys(way for way, _ in lines))
        for (way, pull), values in lines.items():
            colour = f"C{known.index(way)}"
            ax.plot(epochs, values, "o:" if pull == "alone" else "o-", ms=4, color=colour)
            if pull != "alone" and ax is axes[-1]:
                va = "top" if way == "classifier" else "bottom"
                end = (epochs[-1] + 0.15, values[-1])
                plots.label(ax, end, way, (0, 0), color=colour, va=va)
        ax.set(title=f"start: {start}", xlabel="epochs of the newcomer")
    axes[0].plot([], [], "-", color="0.3", label="with the federation's prototypes")
    axes[0].plot([], [], ":", color="0.3", label="alone")
    axes[0].legend(frameon=False, loc="center left", bbox_to_anchor=(0.02, 0.6))
    axes[0].set_ylabel("accuracy, mean over federations (%)")
    return figure
