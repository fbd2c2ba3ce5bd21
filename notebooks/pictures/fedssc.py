"""Pictures of notebook 03: what drawn devices share of a class, and what a device wants to know."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots, results

_DEVICES = 10  # of the sketch
_MEANS = np.random.default_rng(4).normal(size=(_DEVICES, 2)) * (1, 0.7)  # one class, by ten devices
_CENTRE = _MEANS.mean(0)
_WANTED = _CENTRE + np.array([0.9, 0.5])


def draws() -> Figure:
    """A sketch with made-up vectors: more devices remove the scatter of a draw, not its bias."""
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.2), width_ratios=(1, 1, 1, 1.2))
    titles = ("one device is drawn", "the mean of three of ten", "the mean of all ten")
    for ax, number, title in zip(axes, (1, 3, _DEVICES), titles, strict=False):
        _cloud(ax, number)
        ax.set_title(title)
    _error(axes[-1])
    return figure


def draw(number: int = 3) -> None:
    """Show the sketch for one number of drawn devices: what a slider calls."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2))
    _cloud(left, number)
    left.set_title(f"the mean of {number} of ten" if number > 1 else "one device is drawn")
    _error(right)
    right.axvline(number, color="black", ls=":")
    plots.show(figure, f"The mean of {number} of ten devices, and the error of such a mean")


def _cloud(ax: Axes, number: int) -> None:
    """Draw the mean of each possible draw of so many devices, and the star that is wanted."""
    of_draws = [_MEANS[list(drawn)].mean(0) for drawn in combinations(range(_DEVICES), number)]
    size = 50 if number == 1 else 16
    if number == _DEVICES:
        size = 90
    ax.scatter(*np.transpose(of_draws), s=size, color=plots.colour("FedSSC"), alpha=0.6, lw=0)
    arrow = {"arrowstyle": "-|>", "lw": 1.8, "color": "black"}
    ax.annotate("", tuple(_WANTED), tuple(_CENTRE), arrowprops=arrow)
    ax.plot(*_WANTED, "k*", ms=14)
    ax.set(xlim=_CENTRE[0] + np.array([-2.6, 2.6]), ylim=_CENTRE[1] + np.array([-2.1, 2.1]))
    ax.set_aspect("equal")
    ax.axis("off")


def _error(ax: Axes) -> None:
    """Draw the two parts of the sketch's error over the number of devices."""
    numbers = np.arange(1, _DEVICES + 1)
    bias = float(((_WANTED - _CENTRE) ** 2).sum())
    variance = _MEANS.var(0, ddof=1).sum() / numbers * (1 - numbers / _DEVICES)
    colours = ["0.3", plots.colour("FedSSC")]
    ax.stackplot(numbers, np.full(_DEVICES, bias), variance, colors=colours)
    ax.text(5, bias / 2, "bias, squared", color="white", ha="center", va="center")
    ax.annotate("variance", (3.4, bias + 0.65), color=plots.colour("FedSSC"))
    ax.set(xlabel="devices drawn", ylabel="mean squared error")
    ax.set(xticks=(1, 3, 5, 10), xlim=(1, _DEVICES))


def one_round(counts: np.ndarray, shared: np.ndarray, drawn: Mapping[int, int]) -> Figure:
    """Who has, who shares, and who is drawn.

    ``counts``: images, [devices, classes]. ``shared``: whether a mean was sent, like ``counts``.
    ``drawn``: for each class the device whose mean all devices get.
    """
    figure, ax = plt.subplots(figsize=(6.4, 4.2))
    for is_sent, colour, label in (
        (False, "0.8", "too few images: nothing is sent"),
        (True, plots.colour("FedSSC"), "its mean is sent to the server"),
    ):
        device, of_class = np.nonzero((shared == is_sent) & (counts > 0))
        sizes = 220 * counts[device, of_class] / counts.max() + 6
        ax.scatter(of_class, device, s=sizes, color=colour, lw=0)
        ax.scatter([], [], s=80, color=colour, lw=0, label=label)
    ring: dict[str, Any] = {"s": 330, "fc": "none", "ec": "black", "lw": 1.8}
    ax.scatter(list(drawn), list(drawn.values()), **ring)
    ax.scatter([], [], s=150, fc="none", ec="black", lw=1.8, label="drawn: this mean goes to all")
    ax.set(xlabel="class", ylabel="device", ylim=(len(counts) - 0.4, -0.6))
    if counts.shape[1] <= 10:
        ax.set_xticks(range(counts.shape[1]))
    ax.set_yticks(range(len(counts)))
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 1}
    ax.legend(frameon=False, fontsize="small", **place)
    return figure


def images_with_losses(images: np.ndarray, labels: Sequence[str], terms: pd.DataFrame) -> Figure:
    """A few images, [n, height, width], each with its class and the terms of its loss below."""
    figure, axes = plt.subplots(1, len(images), figsize=(2.6 * len(images), 3.2))
    for ax, image, label, (_, losses) in zip(axes, images, labels, terms.iterrows(), strict=True):
        ax.imshow(image, cmap="gray_r", interpolation="nearest")
        names = [str(name).replace("_", " ") for name in losses.index]
        lines = [f"{name}  {value:.2f}" for name, value in zip(names, losses, strict=True)]
        ax.set_title(label)
        ax.set_xlabel("\n".join(lines), fontsize="small")
        ax.set(xticks=[], yticks=[])
    return figure


def a_run(
    history: pd.DataFrame,
    method: str,
    recorded: Mapping[str, np.ndarray],
    weight: Sequence[float],
) -> Figure:
    """Accuracy beside recorded seeds; the terms of the loss; above them the falling weight.

    ``recorded``: accuracies, [seeds, rounds], by method. ``weight``: of the class contrast in each
    round, by which its term is divided; empty for other methods.
    """
    mosaic = [["accuracy", "weight"], ["accuracy", "loss"]]
    figure, axes = plt.subplot_mosaic(mosaic, figsize=(12, 4), height_ratios=(1, 2.6))
    left = axes["accuracy"]
    for name, of_seeds in recorded.items():
        look: dict[str, Any] = {"color": plots.colour(name)}
        at = range(1, of_seeds.shape[1] + 1)
        label = f"{name}, {len(of_seeds)} recorded seeds"
        left.plot(at, of_seeds.mean(0), "--", label=label, **look)
        left.fill_between(at, of_seeds.min(0), of_seeds.max(0), alpha=0.15, lw=0, **look)
    look = {"color": plots.colour(method), "ms": 4, "label": "this run"}
    left.plot(history["round"], history["accuracy"], "o-", **look)
    left.set(xlabel="communication round", ylabel="test accuracy (%)")
    left.legend(fontsize="small", frameon=False)
    rounds = history["round"]
    if len(weight):
        axes["weight"].plot(rounds, weight, "o-", color=plots.colour("FedSSC"), ms=4)
    axes["weight"].set(ylabel=r"$\mu_{\mathrm{glob}}$", ylim=(0, None))
    axes["weight"].sharex(axes["loss"])
    for name in [name for name in map(str, history) if name.startswith("loss/")]:
        loss = history[name].astype(float)
        loss = loss.where(loss > 0)
        if name == "loss/class_contrast" and len(weight):
            loss = loss / np.asarray(weight)
        label = name.removeprefix("loss/").replace("_", " ")
        axes["loss"].plot(rounds, loss, color=_TERMS.get(label, "0.6"), label=label)
    axes["loss"].set(xlabel="communication round", ylabel="training loss")
    axes["loss"].legend(fontsize="small", frameon=False)
    return figure


_TERMS = {
    "cross entropy": "black",
    "model contrast": plots.colour("MOON"),
    "class contrast": plots.colour("FedSSC"),
}


def error_of_a_draw(bias: float, variance: np.ndarray) -> Axes:
    """The two parts of the squared error over the number of devices drawn; ``variance`` [n]."""
    drawn = np.arange(1, len(variance) + 1)
    _, ax = plt.subplots(figsize=(6, 3.4))
    parts = [np.full(len(drawn), bias), variance]
    ax.stackplot(drawn, parts, colors=["0.3", plots.colour("FedSSC")])
    ax.text(drawn.mean(), bias / 2, "bias, squared", color="white", ha="center")
    ax.text(1.1, bias + variance[0] / 5, "variance", color="white")
    ax.set(xlabel="devices drawn", ylabel="squared error of directions", xticks=drawn)
    return ax


def live_case(curves: Mapping[str, np.ndarray]) -> Axes:
    """Accuracies over rounds, [seeds, rounds], by method: a thin line for each seed, a thick mean."""
    _, ax = plt.subplots(figsize=(7, 3.6))
    for name, of_seeds in curves.items():
        rounds = range(1, of_seeds.shape[1] + 1)
        look: dict[str, Any] = {"color": plots.colour(name.split(",")[0])}
        for values, line in zip(of_seeds, ("-", "--", ":"), strict=False):
            ax.plot(rounds, values, line, lw=1, alpha=0.8, **look)
        ax.plot(rounds, of_seeds.mean(0), "o-", lw=2.5, label=name, **look)
    ax.set(xlabel="communication round", ylabel="test accuracy (%)")
    ax.set(xticks=range(1, of_seeds.shape[1] + 1))
    ax.legend(frameon=False)
    return ax


def angles_over_rounds(angles: Mapping[str, np.ndarray]) -> Figure:
    """Mean angles in degrees over rounds, a panel for each training.

    An array is [seeds, rounds, 3]: of one device's mean to its class's g and to those of other
    classes, and of all devices' mean to its class's g. The first training's single device is
    repeated, thin, in the panels of the others.
    """
    figure, axes = plt.subplots(1, len(angles), figsize=(13, 3.9), sharey=True)
    green = plots.colour("FedSSC")
    first, *_ = angles.values()
    for place, (ax, (name, of_seeds)) in enumerate(zip(axes, angles.items(), strict=True)):
        rounds = range(1, of_seeds.shape[1] + 1)
        own, other, of_all = of_seeds.mean(0).T
        ax.fill_between(rounds, own, other, color=green, alpha=0.15, lw=0)
        ax.plot(rounds, other, "--", color="black", label="one device to other classes' g")
        ax.plot(rounds, of_seeds[..., 0].T, color=green, lw=0.7, alpha=0.7)
        ax.plot(rounds, own, "s-", color=green, label="one device to its class's g")
        ax.plot(rounds, of_all, "o-", color="0.6", ms=4, label="mean of all devices to its g")
        if place:
            look: dict[str, Any] = {"color": plots.colour("FedAvg"), "lw": 1.5}
            ax.plot(rounds, first.mean(0)[:, 0], label="one device in plain FedAvg", **look)
        ax.set(xlabel="communication round", title=name)
    axes[0].set(ylabel="angle (degrees)", ylim=(0, None))
    handles, labels = axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def accuracies_at_length() -> Axes:
    """Accuracies on CIFAR-10 at the paper's length: reported, and ours, a dot for each seed."""
    _, ax = plt.subplots(figsize=(7, 3.8))
    cells = results.cells("fedssc-1")
    for seed in cells[0].seeds:
        values = [cell.by_seed.get(seed, np.nan) for cell in cells]
        ax.plot(range(len(cells)), values, color="0.75", lw=1, zorder=0)
        ax.annotate(f"seed {seed}", (len(cells) - 0.9, values[-1]), va="center", size="small")
    for x, cell in enumerate(cells):
        ax.plot([x] * len(cell.values), cell.values, "o", color=plots.colour(cell.method), ms=8)
        if cell.printed is not None:
            ax.plot(x - 0.12, cell.printed, "o", **plots.PRINTED)
    ax.plot([], [], "o", label="reported in the paper", **plots.PRINTED)
    ax.plot([], [], "o", color="0.4", ms=8, label="our runs, one dot for each seed")
    ax.set(ylabel="test accuracy (%)", xlim=(-0.5, len(cells) - 0.4))
    ax.set_xticks(range(len(cells)), [cell.row for cell in cells])
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 2}
    ax.legend(frameon=False, fontsize="small", **place)
    return ax
