"""Pictures of the extra on three more methods: what is different in each, and ten runs beside those of a control."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fednb import plots, results

_SHARED = "0.75"  # layers that travel
_CLIENTS = ("#0173b2", "#de8f05", "#029e73")
_PLACES = (1.6, 5.0, 8.4)  # of the clients, below the server in the middle
_LAYERS = 4
_OWN = "C0"
_STIFFNESS = ("0", "0.01", "0.1", "0.3", "1", "3", "10")  # of Ditto's spring, λ
_SPLITS = {"β = 0.1": "very uneven classes (β = 0.1)", "β = 0.5": "uneven classes (β = 0.5)"}
_ARMS = ("0.25", _OWN, "#cc3311")  # FedAvg, the method, its control


@plots.described(
    "A server and three clients for each method: FedBN's coloured layers stay with a client; Ditto has a second, coloured"
    " model on a spring; in FedDisco a client with uneven classes has a thin arrow"
)
def ideas() -> Figure:
    """The ideas of FedBN, Ditto and FedDisco."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 4.2), layout="constrained")
    titles = ("FedBN: what travels", "Ditto: what a client keeps", "FedDisco: how much it counts")
    for ax, title, draw in zip(axes, titles, (_fedbn, _ditto, _feddisco), strict=True):
        ax.set_title(title, weight="bold")
        ax.set(xlim=(0, 10), ylim=(-1.1, 7.2))
        ax.axis("off")
        draw(ax)
        ax.text(6.1, 6, "server", color="0.4", va="center")
        for i, x in enumerate(_PLACES, start=1):
            ax.text(x, 0.9, f"client {i}", color="0.4", ha="center", va="top", size="small")
    return figure


def _caption(ax: Axes, text: str) -> None:
    """Say below the clients what is to be seen."""
    ax.text(5, 0.1, text, ha="center", va="top")


@plots.described("Recorded runs of FedAvg, a method and its control; a line connects the runs of a seed, bars are means")
def runs(table: str, rows: Mapping[str, str], title: str, test: str) -> Figure:
    """Of the rows of a table, FedAvg, the method and its control, the accuracies of each seed; rows have names."""
    figure, ax = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
    _lines(ax, {name: list(results.cell(table, row).by_seed.values()) for row, name in rows.items()})
    ax.set(title=title, ylabel=f"accuracy (%) on {test}")
    return figure


@plots.described(
    "Ditto's accuracy over the stiffness of its spring on two splits: without a spring it is far above FedAvg's model, with"
    " one of middle stiffness about as high or a little higher, and with a stiff one it falls towards FedAvg's"
)
def springs() -> Figure:
    """Accuracies of each seed and their mean by λ, and FedAvg's mean, on two splits."""
    figure, panels = _splits(height=3.6)
    for column, ax in panels.items():
        values = np.array([list(cell.by_seed.values()) for cell in _by_stiffness(column)])
        ax.plot(values, color="0.85", lw=1)
        ax.plot(values.mean(1), "o-", color=_OWN, lw=2)
        ax.plot(0, values[0].mean(), "o", color=_ARMS[2], ms=9, zorder=3)
        common = float(np.mean(results.cell("digits-ditto-springs", "FedAvg", column).values))
        ax.axhline(common, color=_ARMS[0], ls="--")
        ax.text(0, common - 1, "FedAvg's model", color=_ARMS[0], va="top")
        ax.set_ylim(45, 100)
    figure.axes[0].set_ylabel("accuracy (%), classes\nmixed as a client's own")
    return figure


@plots.described(
    "What each spring adds to none, with intervals, on two splits: nothing sure where classes are very uneven, about two"
    " points for middle springs where they are less uneven, and a large loss for stiff ones"
)
def worth_of_springs() -> Figure:
    """Means of the seeds' differences from λ = 0, with their intervals, on two splits."""
    figure, panels = _splits(height=3.2)
    for column, ax in panels.items():
        alone, *sprung = _by_stiffness(column)
        for place, cell in enumerate(sprung, start=1):
            results.draw_lead(ax, place, results.compare(cell, alone), _OWN)
        ax.axhline(0, color=_ARMS[2])
    figure.axes[0].set_ylabel("added to training alone\n(points, 95 % interval)")
    return figure


def _splits(height: float) -> tuple[Figure, dict[str, Axes]]:
    """A panel over the stiffness for each split, by its column."""
    figure, axes = plt.subplots(1, 2, figsize=(9, height), sharey=True, layout="constrained")
    for ax, words in zip(axes, _SPLITS.values(), strict=True):
        ax.set_title(words)
        ax.set_xticks(range(len(_STIFFNESS)), ["0\n(alone)", *_STIFFNESS[1:]])
        ax.get_xticklabels()[0].set_color(_ARMS[2])
        ax.set(xlabel="stiffness λ of the spring", xlim=(-0.3, len(_STIFFNESS) - 0.7))
    return figure, dict(zip(_SPLITS, axes, strict=True))


def _by_stiffness(column: str) -> list[results.Cell]:
    return [results.cell("digits-ditto-springs", f"λ = {lam}", column) for lam in _STIFFNESS]


@plots.described(
    "What a feature of the first layer is at five clients: five hills, each with its own mean and spread, and the average"
    " of these; three of the means lie near it, and two do not"
)
def styles(seen: Sequence[np.ndarray]) -> Figure:
    """The values of one feature at each client, with their mean and spread, over the average of means and variances."""
    figure, ax = plt.subplots(figsize=(8, 3.8), layout="constrained")
    mean = np.mean([values.mean() for values in seen])
    spread = np.sqrt(np.mean([values.var() for values in seen]))
    ax.axvspan(mean - spread, mean + spread, color="0.9")
    ax.axvline(mean, color="0.6")
    every = np.concatenate(seen)
    lowest, highest = np.quantile(every, [0.005, 0.995])
    bins = np.linspace(lowest, highest, 60)
    for i, values in enumerate(seen):
        height, _ = np.histogram(values, bins, density=True)
        middle = (bins[1:] + bins[:-1]) / 2
        ax.fill_between(middle, -i, -i + 0.8 * height / height.max(), color=f"C{i}", alpha=0.6, lw=0)
        ax.errorbar(values.mean(), -i - 0.08, xerr=values.std(), fmt="o", color=f"C{i}", capsize=3)
        ax.text(bins[0], -i + 0.3, f"client {i}", color=f"C{i}", ha="right")
    ax.set(yticks=[], xlabel="value of a feature, before the first BatchNorm layer")
    ax.set_title("Dots and bars: a client's own mean and spread. Grey: the average of these")
    ax.spines[["left", "top", "right"]].set_visible(False)
    return figure


@plots.described(
    "Each seed is a dot: how much accuracy FedDisco adds to its control, over how much weight stands behind the class that"
    " has least; where it is little, FedDisco loses"
)
def behind_a_class(least: Mapping[str, Sequence[float]], added: Mapping[str, Sequence[float]]) -> Figure:
    """For each table, by seed: the weight (%) behind the class with least, and FedDisco's lead over its control (points)."""
    figure, ax = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
    for (name, x), colour in zip(least.items(), ("0.6", _OWN), strict=True):
        ax.plot(x, added[name], "o", color=colour, ms=8, label=name)
    ax.axhline(0, color=_ARMS[2], lw=1)
    ax.axvline(10, color="0.6", ls=":")
    ax.text(9.9, ax.get_ylim()[0], "all classes alike", color="0.4", ha="right", va="bottom", rotation=90)
    ax.set(xlabel="weight behind the class that has least (%)", ylabel="FedDisco over its control (points)", xlim=(0, 10.4))
    ax.set_title("Does FedDisco lose where a class has lost its teachers?")
    ax.legend(frameon=False)
    return figure


@plots.described("Test accuracy over rounds of FedAvg, FedDisco and FedDisco with a = 0, on the split with one even client")
def over_rounds(curves: Mapping[str, Mapping[int, float]]) -> Figure:
    """Accuracies (%) by arm and round."""
    figure, ax = plt.subplots(figsize=(8, 3.6))
    for (arm, curve), colour in zip(curves.items(), _ARMS, strict=True):
        ax.plot(list(curve), list(curve.values()), color=colour, lw=2, label=arm)
    ax.set(title="One client has all classes, five have two each (one seed)", xlabel="round", ylabel="test accuracy (%)")
    ax.grid(axis="y", alpha=0.3)
    plots.label_ends(ax)
    return figure


def _lines(ax: Axes, found: Mapping[str, Sequence[float]]) -> None:
    """A line for each seed through the arms, and a bar at each arm's mean."""
    values = np.array(list(found.values()))
    places = np.arange(len(found))
    ax.plot(places, values, "o-", color="0.75", ms=4, lw=1)
    ax.plot([], [], "o-", color="0.75", ms=4, lw=1, label="one seed")
    ax.plot([], [], color="0.25", lw=4, label=f"mean of {values.shape[1]} seeds")
    ax.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    for place, mean, colour in zip(places, values.mean(1), _ARMS, strict=True):
        ax.plot([place - 0.22, place + 0.22], [mean, mean], color=colour, lw=4, solid_capstyle="butt", zorder=3)
        ax.annotate(
            f"{mean:.1f}",
            (place + 0.25, mean),
            color=colour,
            weight="bold",
            va="center",
            size=11,
            bbox={"fc": "white", "ec": "none", "pad": 0.5, "alpha": 0.8},
        )
    ax.set_xticks(places, list(found))
    for tick, colour in zip(ax.get_xticklabels(), _ARMS, strict=True):
        tick.set_color(colour)
    ax.set_xlim(-0.4, len(found) - 0.4)
    ax.grid(axis="y", alpha=0.3)


def _fedbn(ax: Axes) -> None:
    """Every second layer has a client's colour and stays."""
    _network(ax, 5.0, 5.0, [_SHARED, None] * 2)
    for x, colour in zip(_PLACES, _CLIENTS, strict=True):
        _network(ax, x, 1.1, [_SHARED, colour] * 2)
        _way(ax, x, lw=2)
    _caption(ax, "the coloured layers, BatchNorm,\nstay with each client")


def _ditto(ax: Axes) -> None:
    """A client has the common network and, on a spring, one of its own."""
    _network(ax, 5.0, 5.0, [_SHARED] * _LAYERS)
    for x, colour in zip(_PLACES, _CLIENTS, strict=True):
        _network(ax, x - 0.75, 1.1, [_SHARED] * _LAYERS, width=0.9)
        _network(ax, x + 0.75, 1.1, [colour] * _LAYERS, width=0.9)
        along = np.linspace(x - 0.3, x + 0.3, 9)
        ax.plot(along, 2.1 + 0.14 * np.array([0, 1, -1, 1, -1, 1, -1, 1, 0]), color="black", lw=1)
        _way(ax, x - 0.5, lw=2)
    _caption(ax, "each client's own, coloured model,\non a spring to the common one")


def _feddisco(ax: Axes) -> None:
    """A client's images by class, and an arrow as wide as its weight."""
    _network(ax, 5.0, 5.0, [_SHARED] * _LAYERS)
    mixes = ((5, 4, 6, 5), (1, 6, 5, 4), (0, 0, 11, 0))
    for x, colour, mix, width in zip(_PLACES, _CLIENTS, mixes, (5, 3, 0.8), strict=True):
        left = x - 0.8 + 0.42 * np.arange(len(mix))
        ax.bar(left, 0.18 * np.array(mix), width=0.36, bottom=1.1, color=colour, align="edge")
        ax.plot([x - 0.95, x + 1.0], [1.1, 1.1], color="0.4", lw=1)
        _way(ax, x, lw=width)
    _caption(ax, "bars: a client's images by class; the more\nuneven, the smaller its weight (thin arrow)")


def _network(ax: Axes, x: float, y: float, layers: Sequence[str | None], width: float = 1.6) -> None:
    """A network as a pile of layers, from y upwards around x; None is a gap."""
    for i, colour in enumerate(layers):
        place = (x - width / 2, y + 0.5 * i)
        if colour is None:
            ax.add_patch(Rectangle(place, width, 0.44, fill=False, ec="0.7", ls=":"))
        else:
            ax.add_patch(Rectangle(place, width, 0.44, fc=colour, ec="white"))


def _way(ax: Axes, x: float, lw: float) -> None:
    """The way between the client at x and the server."""
    look: dict[str, Any] = {"arrowstyle": "<->", "color": "0.35", "lw": lw}
    ax.annotate("", (5 + 0.35 * (x - 5), 4.8), (x, 3.4), arrowprops=look)
