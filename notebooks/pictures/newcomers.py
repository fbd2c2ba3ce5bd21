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
    panels = {"the network that made the prototypes": z, "its two features swapped": z[:, :, ::-1]}
    for ax, (title, points) in zip(axes, panels.items(), strict=True):
        for k in range(3):
            ax.plot(*points[k].T, ".", color=f"C{k}")
            ax.plot(*prototypes[k], "*", color=f"C{k}", ms=20, mec="black")
            x, y = points[k].mean(0)
            ax.annotate(f"class {k}", (x, y + 0.85), color=f"C{k}", ha="center")
        ax.set(title=title, xlabel="first feature", aspect="equal", ylim=(0, 5.6), xlim=(0, 5.6))
    axes[0].set_ylabel("second feature")
    return fig


@plots.described("Spaces meet early from a common start, slowly by the pull from different starts, and never without both")
def meeting(close: Mapping[str, Mapping[int, float]], by_chance: float) -> Axes:
    """How often (%) the nearest image of another client is of the same class, over rounds."""
    _, ax = plt.subplots(figsize=(8, 3.4))
    spots = ((25, 70), (2.5, 103), (2.5, 95), (13, 17))  # of the names
    for (name, values), where in zip(close.items(), spots, strict=True):
        colour = plots.colour("FedProto") if name.startswith("FedProto") else "0.45"
        ax.plot(list(values), list(values.values()), ":" if "different" in name else "-", lw=2.2, color=colour)
        ax.annotate(name, where, color=colour, va="center")
    ax.axhline(by_chance, color="0.7", lw=1)
    ax.annotate("by chance", (40, by_chance + 1), color="0.4", ha="right", va="bottom")
    ax.set(ylim=(0, 108), xlabel="rounds", xticks=range(0, 41, 10))
    ax.set_ylabel("nearest image of another\nclient is of the class (%)")
    return ax


Accuracies = Sequence[pd.DataFrame]  # of the newcomers of each federation
OUTPUT_LAYER = "accuracy/local classes"
WAYS = {
    "nearest own class mean": "accuracy/own class mean",
    "output layer": OUTPUT_LAYER,
    "nearest received prototype": "accuracy/received prototype",
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
    """Left, three ways to classify, before and after training; right, the output layer, alone and pulled."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), width_ratios=(1.15, 1), layout="constrained")
    for place, way in enumerate(WAYS.values()):
        first, *_, last = mean_of(alone, way)
        bars = ((-0.27, first, "0.2"), (0, last, "0.72"), (0.27, mean_of(pulled, way)[-1], plots.colour("FedProto")))
        for shift, value, shade in bars:
            left.barh(place + shift, value, height=0.26, color=shade)
            plots.label(left, (value, place + shift), f"{value:.0f}", (4, 0), va="center")
    left.axvline(100 / 3, color="black", ls=":")
    left.annotate("a guess", (100 / 3 + 1, -0.62), va="center")
    colours = {"before any training": "0.2", "six epochs alone": "0.5", "six epochs pulled": plots.colour("FedProto")}
    for place, (text, shade) in enumerate(colours.items()):
        left.text(62, 1.73 + 0.27 * place, text, color=shade, va="center")
    left.set_yticks(range(len(WAYS)), list(WAYS))
    left.set(xlim=(0, 108), ylim=(2.5, -0.85), xlabel="accuracy (%), mean of five federations")
    curves(right, alone, pulled)
    right.set_ylabel("output layer: accuracy (%)")
    return fig


@plots.described(
    "Prototypes of the wrong class help as much as the own, twice the rate does, too; zero helps more on average"
)
def gains(rows: Mapping[str, Sequence[float]]) -> Axes:
    """How far newcomers are ahead of training alone (points): a line for each federation, and the 95 % interval."""
    _, ax = plt.subplots(figsize=(8, 3.2))
    draw_gains(ax, rows)
    return ax


def draw_gains(ax: Axes, rows: Mapping[str, Sequence[float]]) -> None:
    """What `gains` draws, into a panel."""
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


@plots.described(
    "Over three classes training alone is ahead; a pull to prototypes harms, right or wrong, to zero it does not"
)
def detour(
    ten: tuple[Accuracies, Accuracies], three: tuple[Accuracies, Accuracies], rows: Mapping[str, Sequence[float]]
) -> Figure:
    """Left, the output layer alone and pulled, with ten outputs (thin) and three; right, gains with three, as `gains`."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(12, 3.6), layout="constrained", width_ratios=(1, 1.1))
    for (alone, pulled), outputs, width, up, down in ((ten, "ten", 1.2, -4, -4), (three, "three", 2.4, 6, 1)):
        looks = ((f"{outputs}, alone", alone, "o:", "0.35"), (f"{outputs}, pulled", pulled, "o-", plots.colour("FedProto")))
        higher = max(looks, key=lambda look: mean_of(look[1], OUTPUT_LAYER)[-1])[0]
        for name, accuracies, line, colour in looks:
            values = mean_of(accuracies, OUTPUT_LAYER)
            left.plot(range(0, 7, 2), values, line, lw=width, ms=4, color=colour)
            plots.label(left, (6, values[-1]), name, (8, up if name == higher else down), color=colour, va="center")
    left.set(xlabel="epochs of the newcomer", ylabel="output layer: accuracy (%)", xticks=range(0, 7, 2), ylim=(25, 100))
    left.set_title("cross-entropy over ten classes or three")
    draw_gains(right, rows)
    right.set_title("cross-entropy over the newcomer's three classes")
    return fig


@plots.described("The probability of the seven other classes falls fastest alone; a pull slows it, one to zero most")
def on_others(of_targets: Mapping[str, Accuracies]) -> Axes:
    """How much probability (%) the output layer gives to the classes that a newcomer does not have, by epoch.

    Of training alone, which comes first, and of pulls to several targets; means over federations.
    """
    _, ax = plt.subplots(figsize=(8, 3.6))
    looks = (("0.35", "o:"), (plots.colour("FedProto"), "o-"), ("black", "s--"), ("#009e73", "D-."))
    ends = {name: mean_of(accuracies, "others")[-1] for name, accuracies in of_targets.items()}
    lowest_first = sorted(ends, key=ends.__getitem__)
    for (name, accuracies), (colour, line) in zip(of_targets.items(), looks, strict=True):
        ax.plot(range(0, 7, 2), mean_of(accuracies, "others"), line, ms=5, color=colour)
        spot = (6.15, 3 + 7.5 * lowest_first.index(name))  # names would lie on each other at the ends
        ax.annotate(name, spot, color=colour, va="center", annotation_clip=False)
    ax.set(xlabel="epochs of the newcomer", xticks=range(0, 7, 2), ylim=(0, 80))
    ax.set_ylabel("probability of the seven\nother classes (%)")
    return ax
