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
