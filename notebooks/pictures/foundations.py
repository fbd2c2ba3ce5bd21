"""Pictures of notebook 00, some of FedDyn and FedNova: losses that are bowls, a round's messages."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from fednb.papers.pictures import scheme
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fednb import plots, results
from fednb.federation import Federation, State
from fednb.leads import interval
from fednb.results import Cell

# Two clients and two weights: F_i(w) = ½ (w - w_i*)ᵀ A_i (w - w_i*)
A = np.array([[[2.0, 0.0], [0.0, 0.1]], [[0.2, 0.2], [0.2, 1.2]]])
minima = np.array([[-1.0, 1.0], [1.5, -0.5]])
best = np.linalg.solve(A.sum(0), np.einsum("nij,nj->i", A, minima))  # of F_1 + F_2

CLIENTS = ("#8c6bb1", "#2a9d8f")
DIVERGING = "#b2182b"
EPOCHS = ("#1b9e77", "#666666", "#d95f02")  # one, five and twenty local epochs
MIXES = ("#7a0177", "#f768a1", "#9ebcda")  # β = 0.1, 0.5 and 5
_WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # behind a text that crosses lines


def local_steps(i: int, w: np.ndarray, H: int = 60, eta: float = 0.05) -> np.ndarray:
    """Client i's way from w, [H + 1, 2]: H gradient steps on its own F_i."""
    way = [w]
    for _ in range(H):
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
    for i, colour in enumerate(CLIENTS):
        ax.contour(*grid.T, losses[i].T, levels, colors=colour, linewidths=0.8, alpha=0.4)
        ax.plot(*minima[i], "^", ms=11, color=colour)
        plots.label(ax, minima[i], texts[i], (0, heights[i]), color=colour, ha="center", **look)
    ax.set(xlabel="first weight", ylabel="second weight", aspect="equal", xticks=[], yticks=[])


def hero() -> None:
    """Show the picture that is the idea of 00.

    FedAvg at its resting place: both clients walk off, and their mean is where they began.
    """
    plots.style()
    _, ax = plt.subplots(figsize=(9, 5.4))
    path = [np.array([1.0, 1.2])]
    for _ in range(40):
        ends = [local_steps(i, path[-1])[-1] for i in range(2)]
        path.append(np.mean(ends, 0))
    texts = [f"client {i} wants to be here" for i in (1, 2)]
    _draw_bowls(ax, texts, (12, -22), bbox=_WHITE)
    for i, colour in enumerate(CLIENTS):
        ax.plot(*local_steps(i, path[-1]).T, lw=3, color=colour)
    ax.plot(*np.transpose(ends), "o:", ms=8, color="0.4")
    ax.plot(*np.array(path).T, ".-", color=plots.colour("FedAvg"), lw=1)
    ax.plot(*path[-1], "o", ms=13, mfc="white", mec="black", mew=2)
    ax.plot(*best, "*", ms=18, color="black")
    look: dict[str, Any] = {"arrowprops": {"arrowstyle": "->", "color": "0.3"}, "ha": "center", "bbox": _WHITE}
    stopped = "federated averaging has stopped here:\nthe mean of both ends is the start"
    plots.label(ax, path[1], "the global model,\nround by round", (95, -6), **look)
    plots.label(ax, path[-1], stopped, (0, -105), **look)
    plots.label(ax, best, "the minimum\nof the sum", (-75, -55), **look)
    ax.set(xlim=(-1.7, 2.1), ylim=(-1.0, 1.4))
    plots.show(
        ax,
        "Two bowls, each around a client's minimum. Federated averaging stops between them, "
        "where its clients walk off to both sides, and not at the minimum of the sum",
    )


def one_round() -> None:
    """Show what travels in a round of FedAvg."""
    ax = scheme.messages(
        "FedAvg",
        down="",
        up="and the number\nof its images",
        server="averages, $w = \\sum_i p_i w_i$",
        client="trains on\nits own images",
    )
    plots.show(ax, "The server sends its model to three clients, and each sends its own back")


def bowls_at(H: int = 20, eta: float = 0.05, mu: float = 0.0, ax: Axes | None = None) -> Axes:
    """FedAvg on the two bowls, with H local steps of size eta and a spring of stiffness mu.

    Its way, its clients' ways in the last round, and how far it ends from the minimum of the sum.
    """
    ax = ax or plt.figure(figsize=(7, 4.4)).subplots()
    _draw_bowls(ax, ("client 1", "client 2"), (10, -18), size="small")
    path = _path(H, eta, mu)
    for i, colour in enumerate(CLIENTS):
        counts = np.unique(np.geomspace(1, H, 30).astype(int))
        way = [path[-1], *(_ends(path[-1], k, eta, mu)[i] for k in counts)]
        ax.plot(*np.transpose(way), lw=3, color=colour)
    ax.plot(*path.T, ".-", color=plots.colour("FedProx" if mu else "FedAvg"), lw=1, ms=4)
    ax.plot(*path[-1], "o", ms=11, mfc="white", mec="black", mew=2)
    ax.plot(*best, "*", ms=15, color="black")
    name = f"FedProx, μ = {mu:g}" if mu else "FedAvg"
    missed = float(np.linalg.norm(path[-1] - best))
    title = f"{name}, H = {H}, η = {eta:g}:\nstops {missed:.2f} from the star"
    ax.set_title(title, size="medium")
    ax.set(xlim=(-1.7, 2.1), ylim=(-1.0, 1.4))
    return ax


def _path(H: int, eta: float, mu: float) -> np.ndarray:
    """The global model over 400 rounds, [401, 2]."""
    path = [np.array([1.0, 1.2])]
    for _ in range(400):
        path.append(_ends(path[-1], H, eta, mu).mean(0))
    return np.array(path)


def _ends(w: np.ndarray, H: int, eta: float, mu: float) -> np.ndarray:
    """Where both clients are after H steps from w, [2, 2]: each step shrinks the way to a target."""
    curvature = A + mu * np.eye(2)
    targets = np.linalg.solve(curvature, (A @ minima[..., None]) + mu * w[:, None])[..., 0]
    shrink = np.stack([np.linalg.matrix_power(np.eye(2) - eta * a, H) for a in curvature])
    return targets + np.einsum("nij,nj->ni", shrink, w - targets)


def bowls_to_move() -> None:
    """Show three frames of `bowls_at` and `_price`; in Jupyter sliders for H, eta and mu as well."""
    figure = plt.figure(figsize=(10.8, 7.4))
    axes = figure.subplot_mosaic([["few", "many", "spring"], ["price"] * 3], height_ratios=(1, 1.05))
    bowls_at(20, ax=axes["few"])
    bowls_at(1000, ax=axes["many"])
    bowls_at(200, mu=3.0, ax=axes["spring"])
    axes["many"].set(ylabel="")  # that of the first
    axes["spring"].set(ylabel="")
    _price(axes["price"])
    marks: dict[str, Any] = {"color": "black", "ls": ""}
    figure.legend(
        handles=[
            Line2D([], [], marker="*", ms=13, label="the minimum of the sum", **marks),
            Line2D([], [], marker="o", ms=10, mfc="white", mew=2, label="the rounds stop here", **marks),
            Line2D([], [], color="0.35", marker=".", lw=1, label="its way, round by round"),
            Line2D([], [], color=CLIENTS[0], lw=3, label="a client's last round"),
        ],
        loc="outside lower center",
        ncols=4,
        frameon=False,
    )
    plots.show(
        figure,
        "FedAvg stops further from the minimum as H grows, and a spring brings it back. "
        "To stop as near, a spring takes more rounds than fewer steps",
    )
    plots.sliders(_bowls, H=(1, 300), eta=(0.01, 0.9, 0.01), mu=(0.0, 10.0, 0.1))


def _price(ax: Axes) -> None:
    """How far from the minimum fewer steps and stiffer springs stop, and in how many rounds."""
    steps = {int(H): (int(H), 0.0) for H in np.geomspace(1, 80, 60)}
    springs = {mu: (200, mu) for mu in np.geomspace(0.25, 10, 40)}
    for name, letter, curve, marked, shift, side, needed_at in (
        ("FedAvg", "H", steps, (5, 20, 60), (-7, -14), "right", (-9, -13)),
        ("FedProx", "μ", springs, (0.3, 1, 10), (9, 3), "left", (10, 4)),
    ):
        look: dict[str, Any] = {"color": plots.colour(name)}
        points = np.array(sorted(_rest(*one) for one in curve.values()))
        ax.semilogy(*points.T, lw=2.5, **look)
        for value in marked:
            place = _rest(value, 0.0) if letter == "H" else _rest(200, value)
            ax.plot(*place, "o", ms=7, **look)
            plots.label(ax, place, f"{letter} = {value:g}", shift, ha=side, **look)
        needed = np.interp(0.1, *points.T)
        ax.plot(0.1, needed, "D", ms=9, mfc="white", mew=2, **look)
        plots.label(ax, (0.1, needed), f"{needed:.0f} rounds", needed_at, ha=side, weight="bold", **look)
    start = _rest(1, 0.0)
    ax.plot(*start, "o", ms=7, color=plots.colour("FedAvg"))
    plots.label(ax, start, "H = 1", (9, -3), color=plots.colour("FedAvg"))
    ax.text(0.23, 3.1, "FedAvg: fewer steps stop nearer", color=plots.colour("FedAvg"))
    ax.text(0.24, 22, "FedProx, H = 200: stiffer springs stop nearer", color=plots.colour("FedProx"))
    ax.axvline(0.1, color="0.6", ls=":", zorder=0)
    ax.set(xlabel="how far from the star it stops", ylabel="rounds until it is there\n(within 0.01)")
    ax.set(xlim=(-0.02, 0.65), ylim=(2.2, 190))
    ax.set_yticks([5, 10, 20, 50, 100], ["5", "10", "20", "50", "100"])
    ax.minorticks_off()


def _rest(H: int, mu: float) -> tuple[float, float]:
    """The distance of the resting place from the minimum, and the rounds to within 0.01 of it.

    Between two rounds the way left is taken to shrink by a constant factor, so that curves have no steps.
    """
    path = _path(H, 0.05, mu)
    left = np.log(np.linalg.norm(path[:-1] - path[-1], axis=1) + 1e-12)
    t = int((left < np.log(0.01)).argmax())
    rounds = t - (np.log(0.01) - left[t]) / (left[t - 1] - left[t])
    return float(np.linalg.norm(path[-1] - best)), float(rounds)


def _bowls(H: int = 20, eta: float = 0.05, mu: float = 0.0) -> None:
    plots.show(bowls_at(H, eta, mu), "The two bowls as the sliders say")


def scaffold(
    H: int,
    rounds: int,
    *,
    eta: float = 0.05,
    m: float = 0.0,
    factor: float = 1.0,
    start: tuple[float, float] = (1.5, 1.3),
) -> np.ndarray:
    """SCAFFOLD's model over the rounds, [rounds + 1, 2], with H steps of momentum m as matrices.

    A step maps a client's way from its goal and its momentum linearly: this is its power H. The
    goal of a client whose gradient is corrected is where the corrected gradient vanishes.
    """
    one = np.eye(2)
    powers = []
    for a in A:
        step = np.block([[one - eta * a, -eta * m * one], [a, m * one]])
        powers.append(np.linalg.matrix_power(step, H)[:2, :2])  # a round begins without momentum
    shrink = np.stack(powers)
    path = [np.array(start)]
    own = np.zeros((2, 2))
    for _ in range(rounds):
        w = path[-1]
        c = own.mean(0)
        goals = minima - np.linalg.solve(A, (c - own)[..., None])[..., 0]
        ends = goals + np.einsum("nij,nj->ni", shrink, w - goals)
        own = own - c + factor * (w - ends) / (H * eta)
        path.append(ends.mean(0))
    return np.array(path)


@plots.described("Client 1's local round lowers the loss of classes it has, and raises that of classes it lacks")
def before_and_after(federation: Federation, client: int, before: State, after: State, classes: Sequence[int]) -> Figure:
    """The first test image of each class, with its loss before and after a client's local round.

    ``before`` and ``after``: the global model that the client received, and what it made of it.
    """
    images = federation.images
    first = [int((images.test_labels == k).nonzero()[0]) for k in classes]
    x, y = images.test_inputs()[first], images.test_labels[first]
    losses = []
    network = federation.build_model().eval()
    for state in (before, after):
        network.load_state_dict(state)
        with torch.no_grad():
            losses.append(F.cross_entropy(network(x).logits, y, reduction="none"))
    held = federation.clients[client].labels.bincount(minlength=max(classes) + 1).tolist()
    titles = [f"a {k}: the client has {held[k] or 'none'}" for k in classes]
    texts = [f"loss {old:.1f} → {new:.1f}" for old, new in zip(*losses, strict=True)]
    return scheme.images(x[:, 0], titles, texts)


@plots.described("Accuracy rises over the rounds, the training loss falls")
def history(record: Mapping[str, Any], name: str) -> Figure:
    """The accuracy of a run and the terms of its loss, round by round, in a method's colour."""
    metrics = record["metrics"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.2))
    look: dict[str, Any] = {"color": plots.colour(name), "ms": 4}
    rounds = metrics.get("round", [])
    if "accuracy" in metrics:  # else it diverged at once
        left.plot(rounds, metrics["accuracy"], "o-", **look)
    left.set(xlabel="communication round", ylabel="test accuracy (%)")
    terms = [column for column in metrics if column.startswith("loss/")]
    for term, style in zip(terms, ("o-", "s--", "^:"), strict=False):
        words = term.removeprefix("loss/").replace("_", "-")
        right.plot(rounds, metrics[term], style, label=words, **look)
    right.set(xlabel="communication round", ylabel="mean training loss")
    right.legend(fontsize="small", frameon=False)
    return figure


@plots.described("Classes without images fall far in a local round and come back with averaging")
def forgetting(points: Sequence[tuple[float, float, float, float]]) -> Figure:
    """Accuracy on a class around a local round, by how many images of it a client has.

    ``points``: for each client and class the images, and the accuracy (%) of the global model before
    the round, of the client's model after it, and of the average of all clients' models. A thin line
    is one client and one class, the thick one their mean, which is also written.
    """
    images, *accuracies = np.transpose(points)
    bounds = {"no image": (0, 0), "1 to 10 images": (1, 10), "more than 10 images": (11, 999)}
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.3), sharex=True, sharey=True)
    look: dict[str, Any] = {"color": plots.colour("FedAvg")}
    for ax, (title, (low, high)) in zip(axes, bounds.items(), strict=True):
        lines = np.array(accuracies)[:, (images >= low) & (images <= high)]  # [three models, lines]
        ax.plot([0, 1, 2], lines, "-", marker=".", lw=1, alpha=0.3, **look)
        ax.plot([0, 1, 2], lines.mean(1), "-", marker="o", lw=4, ms=9, **look)
        for x, mean in enumerate(lines.mean(1)):
            place = (x, 102) if mean > 90 else (x, mean - 14)  # above the bundle of lines, or below
            ax.text(*place, f"{mean:.0f}", ha="center", weight="bold", bbox=_WHITE)
        ax.set_xticks([0, 1, 2], ["before", "after the\nlocal round", "after\naveraging"])
        ax.set(title=f"{title} of the class", xlim=(-0.3, 2.3), ylim=(-3, 112))
    axes[0].set_ylabel("accuracy on the class (%)")
    return figure


@plots.described(
    "Over rounds FedAvg learns faster with more local epochs, but not over epochs done, and slower with more uneven clients"
)
def over_rounds(by_epochs: Mapping[str, pd.DataFrame], by_beta: Mapping[str, pd.DataFrame]) -> Figure:
    """FedAvg's accuracy with long and short rounds, over rounds and over epochs, and with uneven and even clients.

    Of each row of a table the accuracy (%), [seeds, rounds]: a thin line for each seed, and their mean.
    """
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.8), sharey=True)
    for (name, accuracy), colour in zip(by_epochs.items(), EPOCHS, strict=True):
        epochs, _, _ = name.partition(",")
        for ax, of_round in ((left, 1), (middle, int(epochs.split()[0]))):
            _mean_and_seeds(
                ax, accuracy.columns * of_round, accuracy, colour, epochs if ax is left else f"{epochs} in a round"
            )
            reached = int((accuracy.mean() >= 80).idxmax())  # the first round with 80 % on average
            ax.plot(reached * of_round, accuracy.mean()[reached], "o", ms=7, color=colour, zorder=4)
            if ax is left:
                place = (reached, accuracy.mean()[reached])
                shift = (-9, 7) if reached < 5 else (6, -13)
                plots.label(ax, place, f"{reached}", shift, color=colour, weight="bold")
    for (name, accuracy), colour in zip(by_beta.items(), MIXES, strict=True):
        rate = results.cell("digits-fedavg-beta", name).parameters["lr"]
        _mean_and_seeds(right, accuracy.columns, accuracy, colour, f"{name}, η = {rate}")
    left.set(title="long rounds and short ones", xlabel="communication round", xlim=(0, 60))
    left.set(ylabel="test accuracy (%)")
    middle.set(title="the same runs, by epochs", xlabel="epochs done at each client", xlim=(0, 200))
    right.set(title="uneven clients and even ones", xlabel="communication round", xlim=(0, 60))
    for ax in (left, middle):
        ax.axhline(80, color="0.6", lw=1, ls=":", zorder=0)
    for ax in (left, middle, right):
        ax.legend(frameon=False, loc="lower right", handlelength=1, fontsize="small" if ax is left else None)
    return figure


def _mean_and_seeds(ax: Axes, places: pd.Index, accuracy: pd.DataFrame, colour: str, words: str) -> None:
    """A thin line for each seed, and a thick one for their mean; few places are marked by dots."""
    ax.plot(places, accuracy.T, color=colour, lw=0.7, alpha=0.35)
    ax.plot(places, accuracy.mean(), "-" if len(places) > 20 else ".-", color=colour, lw=2.5, label=words)


@plots.described(
    "Left: the accuracy of each method and seed, and the reported one. Right: differences to FedAvg with intervals; "
    "only SCAFFOLD's in short runs lies above zero."
)
def within_a_seed(at_length: Mapping[str, Cell], short: Mapping[str, Cell]) -> Figure:
    """Accuracies seed by seed at the paper's length, and differences to FedAvg there and in short runs."""
    ax = scheme.accuracies(at_length)
    figure = cast(Figure, ax.figure)
    figure.set_size_inches(11.2, 4)
    grid = figure.add_gridspec(1, 2, width_ratios=(1.15, 1))
    ax.set_subplotspec(grid[0])
    right = figure.add_subplot(grid[1])
    right.axvline(0, color="0.6", lw=1, zorder=0)
    rows = [
        (name, cells, length)
        for length, cells in (("paper's length", at_length), ("short runs", short))
        for name in ("FedProx", "SCAFFOLD")
    ]
    for y, (name, cells, _) in enumerate(rows):
        lead = results.compare(cells[name], cells["FedAvg"])
        results.draw_lead(right, y, lead, plots.colour(name), across=True)
        beside: dict[str, Any] = {"va": "bottom", "ha": "center", "color": plots.colour(name), "bbox": _WHITE}
        right.text(cast(float, lead.mean), y - 0.2, results.numbers(lead), **beside)
        reported, of_fedavg = cells[name].printed, cells["FedAvg"].printed
        if cells is at_length and reported is not None and of_fedavg is not None:
            right.plot(reported - of_fedavg, y, "o", zorder=3, **plots.PRINTED)
    right.set_yticks(range(len(rows)), [f"{name},\n{length}" for name, _, length in rows])
    right.set(ylim=(len(rows) - 0.5, -0.7), xlabel="difference to FedAvg (points), 95 % interval")
    right.tick_params(axis="y", length=0)
    right.spines["left"].set_visible(False)
    return figure


@plots.described("SCAFFOLD with momentum reaches the minimum only with the factor")
def corrected(scaffold: Callable[..., np.ndarray]) -> Figure:
    """SCAFFOLD under momentum: its way on the bowls, and its distance from the minimum.

    ``scaffold``: the global model's path for the clients' momentum, a factor of their control
    variates, and a number of rounds.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 3.8), width_ratios=(1.25, 1))
    way_with_momentum(scaffold, left)
    left.set(title="SCAFFOLD, clients with momentum 0.9")
    _with_momentum(scaffold, right)
    return figure


def way_with_momentum(scaffold: Callable[..., np.ndarray], ax: Axes) -> None:
    """SCAFFOLD's way on the bowls if clients have momentum: with its factor, and without."""
    _draw_bowls(ax, ("client 1", "client 2"), (12, -18))
    for factor, rounds, colour, words, place in (
        (0.1, 30, plots.colour("SCAFFOLD"), "with the factor (8)", (1.1, 0.62)),
        (1.0, 3, DIVERGING, "without it (7): out of\nthe picture in round 2", (-0.95, -0.82)),
    ):
        ax.plot(*scaffold(0.9, factor, rounds).T, ".-", ms=9, lw=2.5, color=colour)
        ax.annotate(words, place, color=colour, va="center", bbox=_WHITE)
    ax.plot(*best, "*", ms=18, color="black")
    ax.set(xlim=(-1.7, 2.1), ylim=(-1.0, 1.4))


def _with_momentum(scaffold: Callable[..., np.ndarray], ax: Axes) -> None:
    """SCAFFOLD's distance from the minimum, round by round, with its factor and without."""
    beside: dict[str, Any] = {"size": "small", "va": "center", "transform": ax.get_yaxis_transform()}
    for words, factor, colour in (
        ("with the factor (8)", 0.1, plots.colour("SCAFFOLD")),
        ("without it (7)", 1.0, DIVERGING),
    ):
        distance = np.linalg.norm(scaffold(0.9, factor, 30) - best, axis=1)
        ax.semilogy(distance, lw=2.5, color=colour)
        ax.text(1.01, distance[-1], words, color=colour, **beside)
    kappa = (1 - 0.9 * (1 - 0.9**100) / (100 * 0.1)) / 0.1  # of 100 steps
    growing = distance[1] * (kappa - 1) ** np.arange(13)
    ax.semilogy(np.arange(1, 14), growing, color="0.65", lw=1.5)
    plots.label(ax, (12, growing[11]), "eightfold in\neach round (9)", (-8, -8), color="0.45", ha="right", size="small")
    ax.set(xlabel="communication round", ylabel="distance to the minimum")


@plots.described(
    "Two bowls. FedAvg rests near the client with more steps, FedNova near the minimum of the sum, FedDyn at it."
)
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
    plots.label(ax, way[0], "all start here", (-8, -2), ha="right")
    ax.plot(*best, "*", ms=14, color="black", label="the minimum of the sum")
    ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return ax


@plots.described(
    "Over the steps of client 2, FedAvg rests further and further away, FedNova diverges, FedDyn is at the minimum."
)
def busy_client(distances: Callable[..., np.ndarray]) -> Axes:
    """Where FedAvg, FedNova and FedDyn rest as client 2 takes more steps.

    ``distances``: of a method from the minimum, round by round, [rounds].
    """
    _, ax = plt.subplots(figsize=(8, 3.6))
    busy = (10, 20, 40, 80, 90, 95, 100, 105, 160)
    for name in ("FedAvg", "FedNova", "FedDyn"):
        ends = np.array([distances(name, (10, H))[-1] for H in busy])
        first = next((k for k, end in enumerate(ends) if end > 9), len(ends))  # that diverges
        ax.plot(busy[:first], ends[:first], "o-", lw=2, ms=5, color=plots.colour(name))
        if first < len(ends):
            ax.plot(busy[first], ends[first - 1], "x", ms=9, mew=2.5, color=plots.colour(name))
    for name, place, shift in (
        ("FedAvg", (40, 0.59), (-6, 8)),
        ("FedNova diverges", (105, 0.156), (-6, 14)),
        ("FedDyn", (113, 0.0), (0, 7)),
    ):
        look = {"color": plots.colour(name.split()[0]), "ha": "right" if name == "FedAvg" else "left"}
        plots.label(ax, place, name, shift, **look)
    ax.set(xscale="log", ylim=(-0.05, 1.5), xlabel="steps of client 2 in a round (client 1: 10)")
    ax.set(ylabel="distance from the star")
    marks = (10, 20, 40, 80, 105, 160)
    ax.set_xticks(marks, map(str, marks))
    ax.minorticks_off()
    return ax


@plots.described(
    "Left: the smallest clients have the largest votes. Right: where votes sum to little more than one FedNova is beside "
    "FedAvg; where they sum to more than about 2.5 it is far behind."
)
def votes(images: np.ndarray, of_clients: np.ndarray, points: Mapping[str, Sequence[tuple]]) -> Figure:
    """FedNova's votes beside FedAvg's for the clients of one split, and what becomes of them.

    ``points``: by kind of split, the sum of FedNova's votes and its accuracy minus FedAvg's, seed by seed.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 3.8))
    order, places = np.argsort(images), np.arange(len(images))
    of_fedavg = images / images.sum()
    for name, values, shift in (("FedAvg", of_fedavg, -0.2), ("FedNova", of_clients, 0.2)):
        words = f"{name}, sum {values.sum():.1f}"
        left.bar(places + shift, values[order], 0.4, color=plots.colour(name), label=words)
    left.set_xticks(places, [str(n) for n in images[order]])
    left.set(xlabel="images of the client", ylabel="its move is multiplied by")
    left.legend(frameon=False, loc="upper center")
    _leads_over_votes(points, right)
    return figure


@plots.described("With votes that sum to one all ten runs end a little behind FedAvg, where FedNova's own end far behind.")
def control(points: Mapping[str, Sequence[tuple]]) -> Axes:
    """The right panel of `votes`, with the runs whose votes sum to one."""
    _, ax = plt.subplots(figsize=(7.5, 3.6))
    return _leads_over_votes(points, ax)


def _leads_over_votes(points: Mapping[str, Sequence[tuple]], ax: Axes) -> Axes:
    marks = [("o", plots.colour("FedNova")), ("s", "none"), ("^", "none"), ("x", "none")]
    for (words, pairs), (marker, inside) in zip(points.items(), marks, strict=False):
        colour = "black" if marker == "x" else plots.colour("FedNova")
        ax.plot(*np.transpose(pairs), marker, color=colour, mfc=inside, label=words)
    ax.axhline(0, color="0.4", lw=1, zorder=0)
    ax.set(xlabel="sum of FedNova's votes", ylabel="FedNova − FedAvg (points)", xlim=(0.75, 6.55), ylim=(-93, 8))
    ax.legend(frameon=False, loc="lower left")
    return ax


@plots.described("A client at rest on the slope of its loss: the spring to the global model pulls as hard as the slope.")
def spring() -> Axes:
    """A client of FedDyn in its first round, in one dimension: the spring reveals its gradient."""
    _, ax = plt.subplots(figsize=(7.5, 3.2))
    own, start, end = -1.0, 1.5, 0.25
    w = np.linspace(-2.0, 1.9, 200)
    loss = (w - own) ** 2 / 4
    height = (end - own) ** 2 / 4
    ax.plot(w, loss, color=CLIENTS[0], lw=2)
    ax.plot(own, 0, "^", ms=11, color=CLIENTS[0])
    plots.label(ax, (-1.6, (-1.6 - own) ** 2 / 4), "the client's loss $F_i$", (-30, 42), color=CLIENTS[0])
    coils = np.linspace(end, start, 19)
    ax.plot(coils, height + 0.07 * np.r_[0, 0, np.tile([1, -1], 7), 1, 0, 0], color="0.4", lw=1.5)
    ax.plot([start, start], [-0.1, height], ":", color="0.4")
    ax.plot(start, height, "s", ms=8, color="black")
    plots.label(ax, (start, height), "$w^t$, the global model", (10, 0), va="center")
    ax.plot(end, height, "o", ms=9, color=plots.colour("FedDyn"), zorder=4)
    plots.label(ax, (end, height), "$w_i$: here it rests", (6, -28), ha="left", color=plots.colour("FedDyn"))
    for way, colour, text in (
        (-0.7, CLIENTS[0], "its gradient pulls,\n$-\\nabla F_i(w_i)$"),
        (0.7, "0.3", "the spring pulls as hard,\n$-\\alpha\\,(w_i-w^t)$"),
    ):
        look: dict[str, Any] = {"arrowstyle": "-|>", "lw": 2, "color": colour, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (end + way, height + 0.22), (end, height + 0.22), arrowprops=look)
        side: dict[str, Any] = {"ha": "right" if way < 0 else "left", "va": "bottom", "size": "small", "color": colour}
        ax.annotate(text, (end + way, height + 0.26), **side)
    ax.set(xlabel="weight", ylabel="loss", xticks=[], yticks=[], ylim=(-0.1, 1.3), xlim=(-2.6, 3.0))
    return ax


@plots.described(
    "At one learning rate FedDyn rises first, and momentum on the server brings two thirds of its lead over FedAvg; "
    "a larger learning rate rises before it and ends beside it."
)
def race(curves: Mapping[str, pd.DataFrame]) -> Axes:
    """Accuracy round by round: the mean over seeds, with its 95 % interval."""
    _, ax = plt.subplots(figsize=(8, 3.8))
    for name, by_seed in curves.items():
        mean, half = np.transpose([interval(list(by_seed[t])) for t in by_seed])
        colour = "0.6" if "=" in name else plots.colour(name.split(",")[0])
        ax.plot(by_seed.columns, mean, "--" if "=" in name else "-", lw=2, color=colour, label=name)
        if "FedNova" not in name:  # its band covers FedAvg's
            ax.fill_between(by_seed.columns, mean - half, mean + half, color=colour, alpha=0.15, lw=0)
    ax.set(xlabel="communication round", ylabel="test accuracy (%)")
    ax.grid(alpha=0.3)
    return plots.label_ends(ax)


@plots.described(
    "Over twenty rounds FedDyn's server alone rises before FedAvg and then falls or diverges on most seeds; "
    "FedDyn stays up, and its clients alone are slowest."
)
def halves(curves: Mapping[str, pd.DataFrame]) -> Figure:
    """FedDyn and its two halves beside FedAvg, a panel each: a line for each seed, dashed to a cross where it diverges."""
    figure, axes = plt.subplots(1, 3, figsize=(11.5, 3.4), sharey=True)
    colours = {"FedDyn's clients alone": "#d98200", "FedDyn's server alone": "#6b4c9a"}
    for ax, name in zip(axes, ("FedDyn's server alone", "FedDyn's clients alone", "FedDyn"), strict=True):
        colour = colours.get(name, plots.colour(name))
        for one, look in (("FedAvg", plots.colour("FedAvg")), (name, colour)):
            ax.plot(curves[one].columns, curves[one].T, color=look, lw=1, alpha=0.4 if one == "FedAvg" else 1.0)
        first = np.inf  # round in which a run has diverged
        for _, curve in curves[name].iterrows():
            if curve.isna().any():
                known = curve.dropna()
                last, lost = known.index[-1], known.index[-1] + 1
                ax.plot([last, lost], [known.iloc[-1], 3], "--", color=colour, lw=1)
                ax.plot(lost, 3, "x", ms=9, mew=2.5, color=colour)
                first = min(first, lost)
            elif name.endswith("server alone"):
                end = (curve.index[-1], curve.iloc[-1])
                shift = (4, 3 if end[1] > 20 else -3)  # two end close to each other
                plots.label(ax, end, f"{end[1]:.0f} %", shift, va="center", color=colour, fontsize="small")
        if first < np.inf:
            plots.label(ax, (first, 3), "diverges", (-7, 0), ha="right", va="center", color=colour, fontsize="small")
        ax.set_title(name, color=colour, fontsize="medium")
        ax.set(xlabel="communication round", xticks=(5, 10, 15, 20))
        ax.grid(alpha=0.3)
    plots.label(axes[1], (9, 30), "FedAvg in grey", (0, 0), color="0.4")
    axes[0].set_ylabel("test accuracy (%)")
    return figure
