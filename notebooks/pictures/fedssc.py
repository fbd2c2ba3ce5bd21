"""Pictures of notebook 03: what drawn devices share of a class, and what a device wants to know."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from fednb.papers.pictures.fedproc import CLASSES
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots

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


def where_classes_end(is_shared: bool, num_rounds: int = 30) -> np.ndarray:
    """Angles (degrees) of three classes after training on devices that have two of them each."""
    angles = np.radians([92.0, 80.0, 100.0])
    for _ in range(num_rounds):
        ends = []
        for own in ([0, 1], [1, 2]):
            known = [0, 1, 2] if is_shared else own  # the classes of which it has a vector
            local = angles.copy()
            for _ in range(20):
                apart = local[own, None] - angles[known]
                softmax = np.exp(np.cos(apart) / 0.5)
                softmax /= softmax.sum(1, keepdims=True)
                gradient = np.sin(local[own] - angles[own]) - (softmax * np.sin(apart)).sum(1)
                local[own] -= 0.1 * gradient
            ends.append(local)
        angles = np.mean(ends, 0)
    return np.degrees(angles)


def two_devices() -> Figure:
    """Where three classes end that two devices have two by two, as arrows on a circle."""
    panels = {
        "before the first round": where_classes_end(True, num_rounds=0),
        "compared with own classes": where_classes_end(False),
        "compared with all, as shared": where_classes_end(True),
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(10.5, 3.3))
    for ax, (title, angles) in zip(axes, panels.items(), strict=True):
        ax.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.8"))
        for k, (angle, colour) in enumerate(zip(np.radians(angles), CLASSES, strict=True)):
            tip = np.array([np.cos(angle), np.sin(angle)])
            arrow = {"arrowstyle": "-|>", "color": colour, "lw": 2.5}
            ax.annotate("", tuple(tip), (0, 0), arrowprops=arrow)
            place = (1.15 + 0.27 * k) * tip  # further out, if two classes lie in one place
            ax.text(*place, f"class {k}", color=colour, ha="center", va="center")
        ax.set(xlim=(-2, 2), ylim=(-1.3, 1.8), aspect="equal", title=title)
        ax.axis("off")
    return figure


def angles_over_rounds(angles: Mapping[str, np.ndarray]) -> Figure:
    """Mean angles in degrees over rounds, a panel for each training.

    An array is [seeds, rounds, 2]: of one device's mean to its class's g, and of all devices' mean.
    The first training's single device is repeated in the panels of the others.
    """
    figure, axes = plt.subplots(1, len(angles), figsize=(13, 3.6), sharey=True)
    green = plots.colour("FedSSC")
    plain, *_ = angles.values()
    for ax, (name, of_seeds) in zip(axes, angles.items(), strict=True):
        rounds = range(1, of_seeds.shape[1] + 1)
        of_one, of_all = of_seeds.mean(0).T
        ax.plot(rounds, of_one, lw=2.5, color=green, label="one device")
        ax.plot(rounds, of_seeds[..., 0].T, color=green, lw=0.7)
        ax.plot(rounds, of_all, ":", lw=2.5, color="#7a5195", label="mean of all devices")
        if of_seeds is not plain:
            look: dict[str, Any] = {"color": plots.colour("FedAvg"), "lw": 2.5}
            ax.plot(rounds, plain.mean(0)[:, 0], label="one device in plain FedAvg", **look)
        ax.set(xlabel="communication round", xticks=rounds, title=name)
    axes[0].set(ylabel="angle to g (degrees)", ylim=(0, None))
    plots.label_ends(axes[-1])
    return figure
