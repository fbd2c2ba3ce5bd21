"""Pictures of notebook 03: what drawn clients share of a class, and what a client wants to know."""

from collections.abc import Callable, Mapping
from itertools import combinations, pairwise
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from fednb.papers.pictures.fedproc import CONTROL
from fednb.papers.pictures.foundations import history
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import partition, plots, results
from fednb.federation import Federation

_CLASSES = ("#440154", "#21918c", "#c25e00")  # a colour for each of three classes
_CLIENTS = 10  # of the sketch
_MEANS = np.random.default_rng(4).normal(size=(_CLIENTS, 2)) * (1, 0.7)  # one class, by ten clients
_CENTRE = _MEANS.mean(0)
_WANTED = _CENTRE + np.array([0.9, 0.5])


@plots.described(
    "Over FedAvg a client's own means gain nothing, others' gain, unit norm more; with MOON's contrast gains are smaller"
)
def whose_means() -> Axes:
    """What each kind of class means, or none of them, is worth over FedAvg: ten seeds each."""
    small, both, large = "digits-fedssc-own", "digits-fedssc-parts", "digits-fedssc-rate"
    rows = {
        "η = 0.01:   a client's own means": (small, "its own means"),
        "one drawn client's": (small, "one drawn device"),
        "all clients', its own among them": (small, "all devices"),
        "all clients' but its own": (small, "all other devices"),
        "no means, but unit norm": (small, "FedAvg, z of length 1"),
        "η = 0.01, with MOON's:   one drawn client's (FedSSC)": (both, "FedSSC"),
        "all clients'": (both, "k=10"),
        "η = 0.03:   all clients'": (large, "without l_moon, k=10"),
        "no means, but unit norm ": (large, "FedAvg, z of length 1"),
    }
    lines = []
    for label, (table, row) in rows.items():
        fedavg = results.cell(table, "without both (FedAvg)" if table == both else "FedAvg")
        lead = results.compare(results.cell(table, row), fedavg)
        colour = CONTROL if "unit norm" in label else plots.colour("FedSSC")
        lines.append(results.ForestRow(label, lead, colour, results.numbers(lead)))
    ax = results.draw_forest(lines, sides=("the variant", "plain FedAvg"))
    for between in (4.5, 6.5):  # groups
        ax.axhline(between, color="0.8", lw=1)
    return ax


@plots.described("Clouds of dots shrink as more clients are averaged, beside a star")
def draws() -> Figure:
    """A sketch with made-up vectors: more clients remove the scatter of a draw, not its bias."""
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), width_ratios=(1, 1, 1.2))
    _cloud(axes[0], 1)
    axes[0].set_title("one client is drawn")
    _cloud(axes[1], _CLIENTS)
    axes[1].set_title("the mean of all ten")
    _error(axes[2])
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
    ax.set(xlim=_MEANS[:, 0].min() + np.array([-0.3, 3.7]), ylim=_CENTRE[1] + np.array([-1.3, 1.5]))
    ax.set(aspect="equal", xticks=[], yticks=[])
    ax.spines[:].set_visible(True)
    ax.spines[:].set_color("0.8")


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


@plots.described(
    "Three directions on a circle: by themselves classes 0 and 2 end in one place, with all vectors the three are far apart"
)
def two_clients() -> Figure:
    """Where three classes end that two clients have two by two, as arrows on a circle."""
    panels = {
        "before the first round": where_classes_end(True, num_rounds=0),
        "own means only": where_classes_end(False),
        "and a vector of the third class": where_classes_end(True),
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(10.5, 3.3))
    for ax, (title, angles) in zip(axes, panels.items(), strict=True):
        ax.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.8"))
        for k, place in enumerate(_spread(angles)):
            tip = _on_circle(angles[k])
            arrow = {"arrowstyle": "-", "color": _CLASSES[k], "lw": 2.5}
            ax.annotate("", tuple(tip), (0, 0), arrowprops=arrow | {"shrinkA": 0, "shrinkB": 0})
            text: dict[str, Any] = {"ha": "center", "va": "center", "weight": "bold"}
            ax.text(*(1.2 * _on_circle(place)), str(k), color=_CLASSES[k], **text)
        ax.set(xlim=(-1.5, 1.5), ylim=(-1.4, 1.4), aspect="equal", title=title)
        ax.axis("off")
    owners = "client A has classes 0 and 1,\nclient B has 1 and 2"
    axes[0].text(0, -0.45, owners, ha="center", va="center", size="small")
    return figure


def _on_circle(degrees: float) -> np.ndarray:
    """The point of the unit circle at an angle."""
    return np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])


def _spread(angles: np.ndarray, least: float = 14.0) -> np.ndarray:
    """Places of the classes' names (degrees): where the arrows point, but so far apart that all can be read."""
    places = angles.copy()
    for _ in range(50):
        order = np.argsort(places)
        for first, second in pairwise(order):
            missing = least - (places[second] - places[first])
            if missing > 0:
                places[first] -= missing / 2
                places[second] += missing / 2
    return places


@plots.described(
    "Bias and variance over twelve rounds: both fall as the network learns, but with the class contrast the bias rises first"
)
def parts_over_rounds(trainings: Mapping[str, pd.DataFrame]) -> Figure:
    """The two parts of the error of one drawn client's vectors, over the rounds of some trainings."""
    figure, axes = plt.subplots(1, len(trainings), figsize=(11, 3.6), sharey=True)
    for ax, (name, training) in zip(axes, trainings.items(), strict=True):
        rounds = np.arange(1, len(training) + 1)
        bias, variance = training["bias"], training["variance"]
        ax.bar(rounds, bias, color="0.3", label="bias, squared")
        ax.bar(rounds, variance, bottom=bias, color=plots.colour("FedSSC"), label="variance")
        accuracies = [f"{t}\n{accuracy:.0f}" for t, accuracy in zip(rounds, training["accuracy"], strict=True)]
        ax.set_xticks(rounds, accuracies)
        ax.set(title=name, xlabel="communication round, and test accuracy (%)")
    axes[0].set_ylabel("mean squared error")
    handles, labels = axes[-1].get_legend_handles_labels()
    axes[-1].legend(handles[::-1], labels[::-1], frameon=False, fontsize="small")
    return figure


@plots.described(
    "Accuracy rises as FedAvg's; the class contrast falls until its weight begins to fall, and then hardly changes"
)
def the_run(record: Mapping[str, Any], name: str, weight: Callable[..., float]) -> Figure:
    """A run's accuracy and the terms of its loss, beside the recorded run of FedAvg with seed 0.

    The class contrast is drawn without its weight, which stands beside it. ``weight`` gives it by
    the round, the number of rounds, where it begins and ends, and the rounds of the warm-up.
    """
    figure = history(record, name)
    left, right = figure.axes
    of_fedavg = results.accuracies("digits-fedssc")["FedAvg"].loc[0]
    left.plot(of_fedavg, color="0.6", zorder=0, label="FedAvg, seed 0")
    left.legend(fontsize="small", frameon=False)
    for line in list(right.lines):
        terms = np.array(line.get_ydata(), dtype=float)
        terms[terms == 0] = np.nan  # a contrast without vectors is none
        if line.get_label() == "class-contrast" and record["settings"]["mu_glob_schedule"] == "hold":
            weights = _weights_of(record["settings"], weight)
            terms /= weights
            label = "weight of the class contrast"
            right.plot(line.get_xdata(), weights, color="0.6", zorder=0, label=label)
        line.set_ydata(terms)
    right.relim()
    right.set(ylabel="mean training loss", ylim=(0, None))
    above: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 2}
    right.legend(fontsize="small", frameon=False, **above)
    return figure


def _weights_of(given: Mapping[str, Any], weight: Callable[..., float]) -> np.ndarray:
    """The weight of the class contrast in each round of a run with these settings."""
    rounds = given["num_rounds"]
    ends = (given["mu_glob"], given["mu_glob_end"], given["warmup"])
    return np.array([weight(t, rounds, *ends) for t in range(rounds)])
