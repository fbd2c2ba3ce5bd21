"""Pictures of the extra on three more methods: what is different in each, and one run of each."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fednb import plots

_SHARED = "0.75"  # layers that travel
_CLIENTS = ("#0173b2", "#de8f05", "#029e73")
_PLACES = (1.6, 5.0, 8.4)  # of the clients, below the server in the middle
_LAYERS = 4
_OWN = "C0"


@plots.described(
    "Three drawings of a server and clients: coloured layers stay; a second model on a spring; arrows of unlike width"
)
def three_answers() -> Figure:
    """A server above three clients, for each method: which layers stay, which model, which weight."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8))
    for ax, title in zip(
        axes, ("FedBN: what travels", "Ditto: what a client keeps", "FedDisco: how much it counts"), strict=True
    ):
        ax.set_title(title)
        ax.set(xlim=(0, 10), ylim=(0, 7.4))
        ax.axis("off")
    _fedbn(axes[0])
    _ditto(axes[1])
    _feddisco(axes[2])
    return figure


def _fedbn(ax: Axes) -> None:
    """Every second layer has a client's colour and stays."""
    _network(ax, 5.0, 5.0, [_SHARED, None] * 2)
    for x, colour in zip(_PLACES, _CLIENTS, strict=True):
        _network(ax, x, 1.1, [_SHARED, colour] * 2)
        _way(ax, x, lw=2)
    ax.text(5, 0, "the coloured layers stay with each client", ha="center")


def _ditto(ax: Axes) -> None:
    """A client has the common network and, on a spring, one of its own."""
    _network(ax, 5.0, 5.0, [_SHARED] * _LAYERS)
    for x, colour in zip(_PLACES, _CLIENTS, strict=True):
        _network(ax, x - 0.75, 1.1, [_SHARED] * _LAYERS, width=0.9)
        _network(ax, x + 0.75, 1.1, [colour] * _LAYERS, width=0.9)
        along = np.linspace(x - 0.3, x + 0.3, 9)
        ax.plot(along, 2.1 + 0.14 * np.array([0, 1, -1, 1, -1, 1, -1, 1, 0]), color="black", lw=1)
        _way(ax, x - 0.5, lw=2)
    ax.text(5, 0, "a second model, on a spring to the common one", ha="center")


def _feddisco(ax: Axes) -> None:
    """A client's images by class, and an arrow as wide as its weight."""
    _network(ax, 5.0, 5.0, [_SHARED] * _LAYERS)
    mixes = ((5, 4, 6, 5), (1, 6, 5, 4), (0, 0, 11, 0))
    for x, colour, mix, width in zip(_PLACES, _CLIENTS, mixes, (5, 3, 0.8), strict=True):
        left = x - 0.8 + 0.42 * np.arange(len(mix))
        ax.bar(left, 0.18 * np.array(mix), width=0.36, bottom=1.1, color=colour, align="edge")
        ax.plot([x - 0.95, x + 1.0], [1.1, 1.1], color="0.4", lw=1)
        _way(ax, x, lw=width)
    ax.text(5, 0, "the more uneven its classes, the smaller its weight", ha="center")


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


@plots.described("Final test accuracy of each arm for three seeds; a line connects the arms of a seed")
def ends(found: Mapping[str, Sequence[float]], measured: str = "test accuracy (%)") -> Figure:
    """Final accuracies (%) by arm, [seeds] each: a dot for a seed, a line through the dots of one seed."""
    figure, ax = plt.subplots(figsize=(1.5 + 2.2 * len(found), 3.2))
    values = np.array(list(found.values()))
    places = np.arange(len(found))
    for seed, of_seed in enumerate(values.T):
        ax.plot(places, of_seed, color="0.8", lw=1.5, zorder=1)
        ax.annotate(f"seed {seed}", (places[-1], of_seed[-1]), (8, 0), textcoords="offset points", va="center", size=9)
    for place, name, of_arm in zip(places, found, values, strict=True):
        ax.scatter(np.full(len(of_arm), place), of_arm, s=55, color="0.35" if name == "FedAvg" else _OWN, zorder=2)
    ax.set_xticks(places, list(found))
    ax.set(xlim=(-0.4, len(found) - 0.4), ylabel=measured)
    ax.grid(axis="y", alpha=0.3)
    return figure
