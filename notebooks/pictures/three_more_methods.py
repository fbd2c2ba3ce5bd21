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
    "Above, a server and clients for each method: coloured layers stay; a second model on a spring; arrows of unlike width. "
    "Below, ten runs each of FedAvg, the method and its control; a line connects the runs of a seed"
)
def ideas_and_controls(tables: Mapping[str, Sequence[str]]) -> Figure:
    """For FedBN, Ditto and FedDisco: the idea drawn, and by the name of a table its rows FedAvg, method and control."""
    figure, axes = plt.subplots(2, len(tables), figsize=(13, 7), gridspec_kw={"height_ratios": [1.15, 1]})
    titles = ("FedBN: what travels", "Ditto: what a client keeps", "FedDisco: how much it counts")
    for ax, title, draw in zip(axes[0], titles, (_fedbn, _ditto, _feddisco), strict=True):
        ax.set_title(title)
        ax.set(xlim=(0, 10), ylim=(-0.4, 7.4))
        ax.axis("off")
        draw(ax)
    tests = ("images of a client's own style", "classes mixed as a client's own", "all classes alike")
    for ax, (table, rows), test in zip(axes[1], tables.items(), tests, strict=True):
        _lines(ax, {row: list(results.cell(table, row).by_seed.values()) for row in rows})
        ax.set_xlabel(f"tested on {test}")
    axes[1, 0].set_ylabel("accuracy (%)")
    return figure


@plots.described("Test accuracy over rounds of FedAvg, FedDisco and FedDisco with a = 0, on the split with one even client")
def over_rounds(curves: Mapping[str, Mapping[int, float]]) -> Figure:
    """Accuracies (%) by arm and round."""
    figure, ax = plt.subplots(figsize=(8, 3.6))
    for (arm, curve), colour in zip(curves.items(), _ARMS, strict=True):
        ax.plot(list(curve), list(curve.values()), color=colour, lw=2, label=arm)
    ax.set(xlabel="round", ylabel="test accuracy (%)")
    ax.grid(axis="y", alpha=0.3)
    plots.label_ends(ax)
    return figure


@plots.described(
    "Ten dots, one for each split: FedDisco's lead over FedAvg against the share of images whose client has weight 0"
)
def silenced(shares: Sequence[float], table: str) -> Figure:
    """Shares of silenced images (%) by seed, beside the recorded leads over FedAvg."""
    method, fedavg = (results.cell(table, row).by_seed for row in ("FedDisco", "FedAvg"))
    leads = [method[seed] - fedavg[seed] for seed in range(len(shares))]
    figure, ax = plt.subplots(figsize=(6.5, 3.4))
    ax.axhline(0, color="0.25", lw=1)
    ax.plot(shares, leads, "o", color=_OWN, ms=8)
    ax.set(xlabel="images of clients with weight 0 (% of all)", ylabel="lead over FedAvg (points)")
    ax.set_title(f"correlation {np.corrcoef(shares, leads)[0, 1]:.2f}, ten splits", size="medium")
    ax.set_xlim(left=0)
    ax.grid(alpha=0.3)
    return figure


def _lines(ax: Axes, found: Mapping[str, Sequence[float]]) -> None:
    """A line for each seed through the arms, and a bar at each arm's mean."""
    values = np.array(list(found.values()))
    places = np.arange(len(found))
    ax.plot(places, values, "o-", color="0.75", ms=4, lw=1)
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
    ax.set_xticks(places, [arm.replace(", ", ",\n").replace("own statistics", "own statistics\n") for arm in found])
    ax.set_xlim(-0.4, len(found) - 0.4)
    ax.grid(axis="y", alpha=0.3)


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
