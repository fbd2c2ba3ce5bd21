"""Pictures of notebook 03: what drawn clients share of a class, and what a client wants to know."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from fednb.papers.pictures.fedproc import CLASSES
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import partition, plots, results
from fednb.federation import Federation

_CLIENTS = 10  # of the sketch
_MEANS = np.random.default_rng(4).normal(size=(_CLIENTS, 2)) * (1, 0.7)  # one class, by ten clients
_CENTRE = _MEANS.mean(0)
_WANTED = _CENTRE + np.array([0.9, 0.5])


@plots.described("Clouds of dots shrink as more clients are averaged, beside a star")
def draws() -> Figure:
    """A sketch with made-up vectors: more clients remove the scatter of a draw, not its bias."""
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.2), width_ratios=(1, 1, 1, 1.2))
    titles = ("one client is drawn", "the mean of three of ten", "the mean of all ten")
    for ax, number, title in zip(axes, (1, 3, _CLIENTS), titles, strict=False):
        _cloud(ax, number)
        ax.set_title(title)
    _error(axes[-1])
    return figure


def draw(number: int = 3) -> None:
    """Show the sketch for one number of drawn clients: what a slider calls."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2))
    _cloud(left, number)
    left.set_title(f"the mean of {number} of ten" if number > 1 else "one client is drawn")
    _error(right)
    right.axvline(number, color="black", ls=":")
    plots.show(figure, f"The mean of {number} of ten clients, and the error of such a mean")


def _cloud(ax: Axes, number: int) -> None:
    """Draw the mean of each possible draw of so many clients, and the star that is wanted."""
    of_draws = [_MEANS[list(drawn)].mean(0) for drawn in combinations(range(_CLIENTS), number)]
    size = 50 if number == 1 else 16
    if number == _CLIENTS:
        size = 90
    ax.scatter(*np.transpose(of_draws), s=size, color=plots.colour("FedSSC"), alpha=0.6, lw=0)
    arrow = {"arrowstyle": "-|>", "lw": 1.8, "color": "black"}
    ax.annotate("", tuple(_WANTED), tuple(_CENTRE), arrowprops=arrow)
    ax.plot(*_WANTED, "k*", ms=14)
    ax.set(xlim=_CENTRE[0] + np.array([-2.6, 2.6]), ylim=_CENTRE[1] + np.array([-2.1, 2.1]))
    ax.set_aspect("equal")
    ax.axis("off")


def _error(ax: Axes) -> None:
    """Draw the two parts of the sketch's error over the number of clients."""
    numbers = np.arange(1, _CLIENTS + 1)
    bias = float(((_WANTED - _CENTRE) ** 2).sum())
    variance = _MEANS.var(0, ddof=1).sum() / numbers * (1 - numbers / _CLIENTS)
    colours = ["0.3", plots.colour("FedSSC")]
    ax.stackplot(numbers, np.full(_CLIENTS, bias), variance, colors=colours)
    ax.text(5, bias / 2, "bias, squared", color="white", ha="center", va="center")
    ax.annotate("variance", (3.4, bias + 0.65), color=plots.colour("FedSSC"))
    ax.set(xlabel="clients drawn, n", ylabel="mean squared error")
    ax.set(xticks=(1, 3, 5, 10), xlim=(1, _CLIENTS))


@plots.described("Ten clients and ten classes: who has images, who sends a mean, and who is drawn")
def one_round(federation: Federation) -> Figure:
    """Who has images of which class, who sends its mean, and whose mean all clients get."""
    labels = federation.images.labels.numpy()
    counts = partition.class_counts(federation.parts, labels, len(federation.dataset.classes))
    shared = np.zeros_like(counts, dtype=bool)
    drawn: dict[int, int] = {}  # class: client
    pool = federation.server["prototypes"]
    for k, client in zip(pool["labels"].tolist(), pool["owners"].tolist(), strict=True):
        shared[client, k] = True
        drawn.setdefault(k, client)  # the first of the shuffled means of a class
    figure, ax = plt.subplots(figsize=(6.4, 4.2))
    for is_sent, colour, label in (
        (False, "0.8", "too few images: nothing is sent"),
        (True, plots.colour("FedSSC"), "its mean is sent to the server"),
    ):
        client, of_class = np.nonzero((shared == is_sent) & (counts > 0))
        sizes = 220 * counts[client, of_class] / counts.max() + 6
        ax.scatter(of_class, client, s=sizes, color=colour, lw=0)
        ax.scatter([], [], s=80, color=colour, lw=0, label=label)
    ring: dict[str, Any] = {"s": 330, "fc": "none", "ec": "black", "lw": 1.8}
    ax.scatter(list(drawn), list(drawn.values()), **ring)
    ax.scatter([], [], s=150, fc="none", ec="black", lw=1.8, label="drawn: this mean goes to all")
    ax.set(xlabel="class", ylabel="client", ylim=(len(counts) - 0.4, -0.6))
    if counts.shape[1] <= 10:
        ax.set_xticks(range(counts.shape[1]))
    ax.set_yticks(range(len(counts)))
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 1}
    ax.legend(frameon=False, fontsize="small", **place)
    return figure


def where_classes_end(is_shared: bool, num_rounds: int = 30) -> np.ndarray:
    """Angles (degrees) of three classes after training on clients that have two of them each."""
    angles = np.radians([92.0, 80.0, 100.0])  # of the averaged network
    ends = [angles, angles]  # of client A, and of client B, after their training
    for t in range(num_rounds):
        before, ends = ends, []
        drawn = np.array([before[0][0], before[t % 2][1], before[1][2]])  # for class 1 A and B in turn
        for client, own in enumerate(([0, 1], [1, 2])):  # the classes of client A, and of client B
            known, vectors = ([0, 1, 2], drawn) if is_shared else (own, before[client])
            local = angles.copy()
            for _ in range(20):  # down the gradient of (3) in the angles
                apart = local[own, None] - vectors[known]
                softmax = np.exp(np.cos(apart) / 0.5)
                softmax /= softmax.sum(1, keepdims=True)
                gradient = np.sin(local[own] - vectors[own]) - (softmax * np.sin(apart)).sum(1)
                local[own] -= 0.1 * gradient
            ends.append(local)
        angles = np.mean(ends, 0)
    return np.degrees(angles)


@plots.described("Three directions on a circle: without sharing classes 0 and 2 end in one place, with it all are far apart")
def two_clients() -> Figure:
    """Where three classes end that two clients have two by two, as arrows on a circle."""
    panels = {
        "before the first round": where_classes_end(True, num_rounds=0),
        "without sharing: 0 and 2 end together": where_classes_end(False),
        "with sharing: all three part": where_classes_end(True),
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
    owners = "client A has 0 and 1,\nclient B has 1 and 2"
    axes[0].text(0, -0.45, owners, ha="center", va="center", size="small")
    return figure


@plots.described("With the class contrast alone the angle to g first rises far above the others', then falls to theirs")
def contrasts_over_rounds(angles: Mapping[str, np.ndarray], accuracies: Mapping[str, np.ndarray]) -> Figure:
    """Angles of clients' class means to g, and accuracies: [seeds, rounds] for each training."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.8))
    green = plots.colour("FedSSC")
    looks: list[dict[str, Any]] = [
        {"color": plots.colour("FedAvg")},
        {"color": green, "ls": "--"},
        {"color": green},
    ]
    for ax, values in ((left, angles), (right, accuracies)):
        for (name, of_seeds), look in zip(values.items(), looks, strict=True):
            rounds = range(1, of_seeds.shape[1] + 1)
            ax.plot(rounds, of_seeds.mean(0), lw=2.5, label=name, **look)
            ax.plot(rounds, of_seeds.T, lw=0.6, **look)
        ax.set(xlabel="communication round", xticks=rounds)
    left.set(ylabel="angle to g (degrees)", ylim=(0, 90))
    right.set(ylabel="test accuracy (%)", ylim=(0, 100))
    right.legend(fontsize="small", frameon=False, loc="upper left")
    return figure


def beside_fedavg(ax: Axes) -> None:
    """Draw the accuracy of the recorded run of FedAvg on the digits with seed 0, and name it."""
    of_fedavg = results.accuracies("digits-fedssc")["FedAvg"].loc[0]
    ax.plot(of_fedavg, color="0.6", zorder=0, label="FedAvg, seed 0")
    ax.legend(fontsize="small", frameon=False)
