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


@plots.described("Spaces meet from a common start; from different starts only with the pull, and less well")
def meeting(close: Mapping[str, Sequence[tuple[float, float]]]) -> Axes:
    """How often (%) the nearest image of another client is of the same class: a bar for the mean, a dot for a seed."""
    _, ax = plt.subplots(figsize=(7, 2.8))
    by_chance = float(np.mean([chance for pairs in close.values() for _, chance in pairs]))
    for place, (name, pairs) in enumerate(close.items()):
        values = [value for value, _ in pairs]
        ax.barh(place, np.mean(values), color=plots.colour(name), height=0.6)
        ax.plot(values, [place] * len(values), "o", color="white", mec="black", ms=5)
        plots.label(ax, (max(*values, by_chance), place), f"{np.mean(values):.0f}", (8, 0), va="center")
    ax.axvline(by_chance, color="black", ls=":")
    ax.annotate("by chance", (by_chance + 1, -0.62), va="center")
    ax.set_yticks(range(len(close)), list(close))
    ax.set(xlim=(0, 105), ylim=(len(close) - 0.5, -0.85))
    ax.set_xlabel("the nearest image of another client is of the same class (%)")
    return ax


Accuracies = Sequence[pd.DataFrame]  # of the newcomers of each federation
OUTPUT_LAYER = "accuracy/local classes"
WAYS = {
    "output layer": OUTPUT_LAYER,
    "nearest received prototype": "accuracy/received prototype",
    "nearest own class mean": "accuracy/own class mean",
}


def mean_of(accuracies: Accuracies, way: str) -> np.ndarray:
    """A way's accuracies (%) after 0, 2, 4 and 6 epochs, mean over federations."""
    return np.mean([one[way] for one in accuracies], axis=0)


def curves(ax: Axes, alone: Accuracies, pulled: Accuracies) -> None:
    """The output layer's accuracy over epochs, alone (dotted) and pulled, with names at their ends."""
    first, second = mean_of(alone, OUTPUT_LAYER), mean_of(pulled, OUTPUT_LAYER)
    up = 4 if first[-1] > second[-1] else -4  # keeps the names apart where the ends are near
    looks = (("alone", first, "o:", "0.35", up), ("pulled", second, "o-", plots.colour("FedProto"), -up))
    for name, values, line, colour, shift in looks:
        ax.plot(range(0, 7, 2), values, line, ms=4, color=colour)
        plots.label(ax, (6, values[-1]), name, (8, shift), color=colour, va="center")
    ax.axhline(100 / 3, color="0.6", lw=1)
    plots.label(ax, (6, 100 / 3), "a guess", (14, 0), color="0.4", va="center")
    ax.set(xlabel="epochs of the newcomer", xticks=range(0, 7, 2), ylim=(25, 100))


@plots.described("Own class means are good before any training, received prototypes stay at a guess; the pull speeds up")
def ways_to_classify(alone: Accuracies, pulled: Accuracies) -> Figure:
    """Left, three ways to classify, before and after training alone; right, the output layer, alone and pulled."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.2), width_ratios=(1.15, 1), layout="constrained")
    for place, way in enumerate(WAYS.values()):
        first, *_, last = mean_of(alone, way)
        for shift, value, shade in ((-0.19, first, "0.2"), (0.19, last, "0.72")):
            left.barh(place + shift, value, height=0.36, color=shade)
            plots.label(left, (value, place + shift), f"{value:.0f}", (4, 0), va="center")
    left.axvline(100 / 3, color="black", ls=":")
    left.annotate("a guess", (100 / 3 + 1, -0.62), va="center")
    for height, shade, text in ((0.1, "0.2", "before any training"), (0.42, "0.5", "after six epochs alone")):
        left.text(62, 0.6 + height, text, color=shade, va="center")
    left.set_yticks(range(len(WAYS)), list(WAYS))
    left.set(xlim=(0, 108), ylim=(2.5, -0.85), xlabel="accuracy (%), mean of five federations")
    curves(right, alone, pulled)
    right.set_ylabel("output layer: accuracy (%)")
    return fig


@plots.described("Prototypes of the wrong class help as much as those of the own class; zero helps more on average")
def gains(rows: Mapping[str, Sequence[float]]) -> Axes:
    """How far newcomers are ahead of training alone (points): a line for each federation, and the 95 % interval."""
    _, ax = plt.subplots(figsize=(8, 3.2))
    places = range(len(rows))
    for of_federation in zip(*rows.values(), strict=True):
        ax.plot(of_federation, places, "o-", color="0.75", lw=1, ms=4)
    for place, values in enumerate(rows.values()):
        mean, half_width = interval(values)
        colour = "black" if place else plots.colour("FedProto")
        ax.errorbar(mean, place, xerr=half_width, fmt="o", color=colour, capsize=4, ms=8, lw=2, zorder=3)
        plots.label(ax, (mean, place), f"{mean:.0f}", (0, 9), color=colour, ha="center")
    ax.axvline(0, color="0.6", lw=1)
    ax.annotate("training alone", (0.2, len(rows) - 0.62), color="0.4", va="center")
    ax.set_yticks(places, list(rows))
    ax.get_yticklabels()[0].set_color(plots.colour("FedProto"))
    ax.set(ylim=(len(rows) - 0.4, -0.6), xlabel="ahead of training alone, in points of accuracy")
    return ax


@plots.described("With ten outputs the pull helps; with the newcomer's own three training alone is ahead")
def detour(panels: Mapping[str, tuple[Accuracies, Accuracies]]) -> Figure:
    """The output layer's accuracy, alone and pulled; a panel for each choice of outputs in the cross-entropy."""
    fig, axes = plt.subplots(1, 2, figsize=(10, 3.2), sharey=True, layout="constrained")
    for ax, (title, (alone, pulled)) in zip(axes, panels.items(), strict=True):
        curves(ax, alone, pulled)
        ax.set_title(f"cross-entropy over {title}")
    axes[0].set_ylabel("output layer: accuracy (%)")
    return fig
