"""Pictures of notebook 00, some of FedDyn and FedNova: losses that are bowls, a round's messages."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from fednb import plots

# Two clients and two weights: F_i(w) = ½ (w - w_i*)ᵀ A_i (w - w_i*)
A = np.array([[[2.0, 0.0], [0.0, 0.1]], [[0.2, 0.2], [0.2, 1.2]]])
minima = np.array([[-1.0, 1.0], [1.5, -0.5]])
best = np.linalg.solve(A.sum(0), np.einsum("nij,nj->i", A, minima))  # of F_1 + F_2

_CLIENTS = ("#8c6bb1", "#2a9d8f")


def local_steps(i: int, w: np.ndarray, K: int = 60, eta: float = 0.05) -> np.ndarray:
    """Client i's way from w, [K + 1, 2]: K gradient steps on its own F_i."""
    way = [w]
    for _ in range(K):
        way.append(way[-1] - eta * A[i] @ (way[-1] - minima[i]))
    return np.array(way)


def bowls() -> tuple[np.ndarray, np.ndarray]:
    """Places, [x, y, 2], and each client's loss there, [2, x, y]."""
    grid = np.stack(np.meshgrid(np.linspace(-1.7, 2.1, 200), np.linspace(-1.0, 1.4, 200)), -1)
    away = grid - minima[:, None, None]
    return grid, np.einsum("nxyi,nij,nxyj->nxy", away, A, away)


def _draw_bowls(ax: Axes, texts: Sequence[str], heights: Sequence[int], **look: Any) -> None:
    """Both losses, with a triangle at each minimum and a text so many points above it."""
    grid, losses = bowls()
    levels = [0.05, 0.2, 0.6, 1.4]
    for i, colour in enumerate(_CLIENTS):
        ax.contour(*grid.T, losses[i].T, levels, colors=colour, linewidths=0.8, alpha=0.4)
        ax.plot(*minima[i], "^", ms=11, color=colour)
        plots.label(ax, minima[i], texts[i], (0, heights[i]), color=colour, ha="center", **look)
    ax.set(xlabel="first weight", ylabel="second weight", aspect="equal", xticks=[], yticks=[])


def at_rest() -> Axes:
    """FedAvg at its resting place: both clients walk off, and their mean is where they began."""
    path = [np.array([1.0, 1.2])]
    for _ in range(40):
        ends = [local_steps(i, path[-1])[-1] for i in range(2)]
        path.append(np.mean(ends, 0))
    _, ax = plt.subplots(figsize=(9.5, 4.8))
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    texts = [f"client {i} wants to be here" for i in (1, 2)]
    _draw_bowls(ax, texts, (12, -22), bbox=box)
    for i, colour in enumerate(_CLIENTS):
        ax.plot(*local_steps(i, path[-1]).T, lw=3, color=colour)
    ax.plot(*np.transpose(ends), "o:", ms=8, color="0.4")
    ax.plot(*np.array(path).T, ".-", color=plots.colour("FedAvg"), lw=1)
    ax.plot(*path[-1], "o", ms=13, mfc="white", mec="black", mew=2)
    ax.plot(*best, "*", ms=18, color="black")
    look: dict[str, Any] = {"arrowprops": {"arrowstyle": "->", "color": "0.3"}, "ha": "center"}
    stopped = "FedAvg has stopped here: the mean\nof both ends is the start"
    plots.label(ax, path[1], "the global model,\nround by round", (95, -6), **look)
    plots.label(ax, path[-1], stopped, (-5, -90), **look)
    plots.label(ax, best, "the minimum\nof the sum", (-70, -45), **look)
    return ax


def messages() -> Axes:
    """A round: the server sends its model, clients train and answer, the server averages."""
    _, ax = plt.subplots(figsize=(9, 3.1))
    _box(ax, 4.5, 2.3, "server: model $w$", "#f0f0f0")
    arrow = {"arrowstyle": "->", "lw": 1.6, "color": "0.35"}
    for x, name in ((1.0, "client 1"), (4.5, "client 2"), (8.0, "client 3")):
        _box(ax, x, 0.4, f"{name}: trains\non its own images", "#e8f1f8")
        top = 4.5 + 0.1 * (x - 4.5)
        ax.annotate("", (x - 0.12, 0.75), (top - 0.12, 2.05), arrowprops=arrow)
        ax.annotate("", (top + 0.12, 2.05), (x + 0.12, 0.75), arrowprops=arrow)
    ax.text(1.0, 1.75, "broadcast: the model $w$", ha="center", color="0.3")
    ax.text(8.1, 1.35, "upload: $w_i$ and the\nnumber of images", ha="center", color="0.3")
    ax.text(5.7, 2.3, "aggregate: $w = \\sum_i p_i w_i$", va="center", color="0.3")
    ax.set(xlim=(-0.6, 9.6), ylim=(-0.1, 2.8))
    ax.axis("off")
    return ax


def _box(ax: Axes, x: float, y: float, text: str, colour: str) -> None:
    style = "round,pad=0.12"
    ax.add_patch(FancyBboxPatch((x - 0.9, y - 0.2), 1.8, 0.4, style, fc=colour, ec="0.5"))
    ax.text(x, y, text, ha="center", va="center", size="small")


def resting_places(fixed_point: Callable[..., np.ndarray], simulate: Callable[..., np.ndarray]) -> Figure:
    """How far from the minimum methods stop: over local steps, and over the spring's stiffness."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.4), sharey=True)
    steps = (1, 2, 5, 10, 20, 40, 80, 160, 500, 2000)
    few = steps[3:-2]
    springs = (0.03, 0.1, 0.3, 1, 3, 10)
    scaffolds = (simulate(K, scaffold=True)[-1] for K in few)
    _distances(left, "FedAvg", steps, map(fixed_point, steps))
    _distances(left, "SCAFFOLD", few, scaffolds)
    _distances(right, "FedProx", springs, (fixed_point(2000, mu) for mu in springs), (-8, 14))
    left.set(xlabel="local steps K in a round", ylabel="distance from the minimum")
    right.axhline(np.linalg.norm(fixed_point(2000) - best), ls="--", color=plots.colour("FedAvg"))
    right.annotate("FedAvg", (1.0, 1.08), color=plots.colour("FedAvg"), va="top")
    right.set(xlabel="stiffness μ of the spring, K = 2000")
    return figure


def _distances(
    ax: Axes,
    name: str,
    values: Sequence[float],
    places: Iterable[np.ndarray],
    shift: tuple[float, float] = (-4, 8),
) -> None:
    """Draw distances from the minimum, and write the method's name at the end of the line."""
    distances = [float(np.linalg.norm(place - best)) for place in places]
    ax.semilogx(values, distances, "o-", color=plots.colour(name))
    end = (values[-1], distances[-1])
    plots.label(ax, end, name, shift, ha="right", color=plots.colour(name))


def with_momentum(simulate: Callable[..., np.ndarray]) -> Axes:
    """SCAFFOLD's distance from the minimum, round by round: what momentum does, and its factor."""
    _, ax = plt.subplots(figsize=(7.5, 3.6))
    look: dict[str, Any] = {"color": plots.colour("SCAFFOLD")}
    beside: dict[str, Any] = look | {"va": "center", "transform": ax.get_yaxis_transform()}
    for line, words, m, factor in (
        ("-", "no momentum", 0.0, 1.0),
        ("--", "momentum 0.9,\nwith the factor (8)", 0.9, 0.1),
        (":", "momentum 0.9,\nwithout it (7)", 0.9, 1.0),
    ):
        way = simulate(100, scaffold=True, m=m, factor=factor, rounds=30, eta=0.01)
        distance = np.linalg.norm(way - best, axis=1)
        ax.semilogy(distance, line, lw=2.5, **look)
        ax.text(1.01, distance[-1], words, size="small", **beside)
    ax.set(xlabel="communication round", ylabel="distance to the minimum")
    return ax


def three_at_rest(simulate: Callable[..., np.ndarray]) -> Axes:
    """Where FedAvg, FedNova and FedDyn come to rest if the clients take 10 and 40 steps a round."""
    steps = (10, 40)
    _, ax = plt.subplots(figsize=(9, 4.8))
    texts = [f"client {i + 1}: {steps[i]} steps a round" for i in (0, 1)]
    _draw_bowls(ax, texts, (12, 12))
    for name in ("FedAvg", "FedNova", "FedDyn"):
        way = simulate(name, steps)
        look: dict[str, Any] = {"color": plots.colour(name)}
        ax.plot(*way.T, ".-", lw=1, **look)
        ax.plot(*way[-1], "o", ms=12, mfc="none", mew=2, label=f"{name} comes to rest", **look)
    ax.plot(*best, "*", ms=14, color="black", label="the minimum of the sum")
    ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return ax


def busy_client(distances: Callable[..., np.ndarray]) -> Figure:
    """Where methods rest as client 2 takes more steps; FedDyn's way with springs of three kinds.

    ``distances``: of a method from the minimum, round by round, [rounds].
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 3.9))
    busy = (10, 14, 20, 28, 40, 56, 80, 113, 160)
    for name, place in {"FedAvg": (55, 1.32), "FedNova": (88, 1.75), "FedDyn": (100, 0.03)}.items():
        for m, style in ((0.0, "o-"), (0.9, "s--")):
            given = {"m": m, "eta": 0.05 * (1 - m), "rounds": 100}
            ends = [min(distances(name, (10, K), **given)[-1], 9.0) for K in busy]
            left.plot(busy, ends, style, ms=4, color=plots.colour(name))
        left.annotate(name, place, color=plots.colour(name), va="bottom")
    for style, words in (("o-", "no momentum"), ("s--", "momentum 0.9")):
        left.plot([], [], style, ms=4, color="0.5", label=words)
    left.set(xscale="log", ylim=(-0.05, 2), xlabel="steps of client 2 (client 1: 10)")
    left.set_ylabel("distance from the minimum")
    left.set_xticks(busy[::2], map(str, busy[::2]))
    left.minorticks_off()
    left.legend(fontsize="small", frameon=False)
    for alpha, style in ((0.03, ":"), (0.3, "-"), (10.0, "--")):
        way = distances("FedDyn", (10, 40), alpha=alpha, rounds=60)
        right.semilogy(way, style, lw=2, color=plots.colour("FedDyn"), label=f"α = {alpha:g}")
    right.set(xlabel="communication round", ylabel="distance from the minimum")
    right.legend(fontsize="small", frameon=False, title="FedDyn, 10 and 40 steps")
    return figure
