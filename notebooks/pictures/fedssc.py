"""Pictures of notebook 03: what drawn devices say of a class, and what a device wants to know."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots, results

_TITLES = {1: "one device is drawn", 3: "the mean of three of ten", 10: "the mean of all ten"}
_SIZES = {1: 50, 3: 16, 10: 90}


def draws() -> Figure:
    """A sketch with made-up vectors: more devices remove the scatter of a draw, not its bias."""
    said = np.random.default_rng(4).normal(size=(10, 2)) * (1, 0.7)  # of one class, by ten devices
    centre = said.mean(0)
    wanted = centre + np.array([0.9, 0.5])
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.2), width_ratios=(1, 1, 1, 1.2))
    colour = plots.colour("FedSSC")
    arrow = {"arrowstyle": "-|>", "lw": 1.8, "color": "black"}
    for ax, (number, title) in zip(axes[:3], _TITLES.items(), strict=True):
        of_draws = [said[list(drawn)].mean(0) for drawn in combinations(range(10), number)]
        ax.scatter(*np.transpose(of_draws), s=_SIZES[number], color=colour, alpha=0.6, lw=0)
        ax.annotate("", tuple(wanted), tuple(centre), arrowprops=arrow)
        ax.plot(*wanted, "k*", ms=14)
        ax.set(xlim=centre[0] + np.array([-2, 2]), ylim=centre[1] + np.array([-1.6, 1.6]))
        ax.set(aspect="equal", title=title)
        ax.axis("off")
    numbers = np.arange(1, 11)
    bias = float(((wanted - centre) ** 2).sum())
    variance = said.var(0, ddof=1).sum() / numbers * (1 - numbers / 10)
    axes[3].stackplot(numbers, np.full(10, bias), variance, colors=["0.3", colour])
    axes[3].text(5, bias / 2, "bias, squared", color="white", ha="center", va="center")
    axes[3].annotate("variance", (3.4, bias + 0.65), color=colour)
    axes[3].set(xlabel="devices drawn", ylabel="mean squared error")
    axes[3].set(xticks=(1, 3, 5, 10), xlim=(1, 10))
    return figure


def a_run(
    history: pd.DataFrame,
    method: str,
    holders: np.ndarray,
    recorded: Mapping[str, np.ndarray],
    weights: Mapping[str, Sequence[float]],
) -> Figure:
    """Who can share, accuracy beside recorded seeds, and the terms of the loss without weights.

    ``holders``: how many devices can share each class. ``recorded``: accuracies, [seeds, rounds], by
    method. ``weights``: of each term in each round; a term that is not there has the weight one.
    """
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 3.6))
    left.bar(range(len(holders)), holders, color=plots.colour("FedSSC"))
    left.set(xlabel="class", ylabel="devices that can share it")
    if len(holders) <= 10:
        left.set_xticks(range(len(holders)))
    for name, of_seeds in recorded.items():
        look: dict[str, Any] = {"color": plots.colour(name)}
        at = range(1, of_seeds.shape[1] + 1)
        label = f"{name}, {len(of_seeds)} recorded seeds"
        middle.plot(at, of_seeds.mean(0), "--", label=label, **look)
        middle.fill_between(at, of_seeds.min(0), of_seeds.max(0), alpha=0.15, lw=0, **look)
    look = {"color": plots.colour(method), "ms": 4, "label": "this run"}
    middle.plot(history["round"], history["accuracy"], "o-", **look)
    middle.set(xlabel="communication round", ylabel="test accuracy (%)")
    middle.legend(fontsize="small", frameon=False)
    _losses(right, history, weights)
    return figure


def _losses(ax: Axes, history: pd.DataFrame, weights: Mapping[str, Sequence[float]]) -> None:
    """Draw each term of the loss without its weight, and the weight of the class contrast."""
    terms = [column for column in map(str, history) if column.startswith("loss/")]
    for term, line in zip(terms, ("-", "--", ":"), strict=False):
        name = term.removeprefix("loss/").replace("_", " ")
        weighted = history[term].astype(float)
        loss = weighted.where(weighted > 0) / weights.get(name, 1.0)
        ax.plot(history["round"], loss, line, color="black", label=name)
    if "class contrast" in weights:
        look: dict[str, Any] = {"color": plots.colour("FedSSC"), "lw": 1}
        label = "weight of the class contrast"
        ax.plot(history["round"], weights["class contrast"], label=label, **look)
    ax.set(xlabel="communication round", ylabel="training loss, unweighted")
    ax.set_ylim(0, 1.35 * ax.get_ylim()[1])
    ax.legend(fontsize="small", frameon=False, ncols=2, loc="upper center")


def error_of_a_draw(bias: float, variance: np.ndarray, right: Sequence[Sequence[float]], wanted: float) -> Figure:
    """The two parts of the error over the number of devices drawn, and what the vectors classify.

    ``right``: test images (%) that the shared vectors tell, [draws, devices]; ``wanted``: that g tells.
    """
    green = plots.colour("FedSSC")
    drawn = np.arange(1, len(variance) + 1)
    figure, (left, ax) = plt.subplots(1, 2, figsize=(11, 3.6))
    left.stackplot(drawn, np.full(len(drawn), bias), variance, colors=["0.3", green])
    left.text(drawn.mean(), bias / 2, "bias, squared", color="white", ha="center")
    left.text(1.1, bias + variance[0] / 5, "variance", color="white")
    left.set(xlabel="devices drawn", ylabel="squared error of directions", xticks=drawn)
    low, high = np.percentile(right, (5, 95), axis=0)
    ax.fill_between(drawn, low, high, color=green, alpha=0.25, lw=0, label="nine of ten draws")
    ax.plot(drawn, np.mean(right, 0), "o-", color=green, label="mean of 200 draws")
    ax.axhline(wanted, color="k", ls="--", lw=1)
    ax.annotate("with g itself", (1, wanted - 0.5), va="top")
    ax.set(xlabel="devices drawn", ylabel="test images right (%)", xticks=drawn)
    ax.legend(loc="lower right")
    return figure


def angles_over_rounds(angles: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Angles to g (degrees) of the mean of all devices and of one device, [rounds], by setting."""
    figure, axes = plt.subplots(1, len(angles), figsize=(11, 3.6), sharey=True)
    for ax, (name, (every, one)) in zip(axes, angles.items(), strict=True):
        rounds = range(1, len(one) + 1)
        ax.fill_between(rounds, every, color="0.3", alpha=0.25, lw=0)
        ax.plot(rounds, one, "s-", color=plots.colour("FedSSC"), label="one device")
        ax.plot(rounds, every, "o-", color="0.3", label="mean of all devices")
        ax.set(xlabel="communication round", title=name)
        ax.legend()
    axes[0].set(ylabel="angle to g (degrees)", ylim=(0, None))
    return figure


def leads_by_round(table: str, over: str) -> Axes:
    """By how much each row is ahead of row ``over`` after each round, mean of five rounds and of seeds."""
    accuracies = results.accuracies(table)
    _, ax = plt.subplots()
    ax.axhline(0, color=plots.colour(over), lw=1)
    beside: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "va": "center"}
    ax.text(1.01, 0, over, **beside)
    for name, ahead in accuracies.items():
        if name != over:
            leads = (ahead - accuracies[over]).mean()  # of the seeds that both have
            leads = leads.rolling(5, min_periods=1).mean()
            colour = plots.colour(name)
            ax.plot(leads.index, leads, color=colour)
            ax.text(1.01, leads.iloc[-1], name, color=colour, **beside)
    ax.set(xlabel="communication round", ylabel=f"lead over {over} (points)")
    return ax
