"""Pictures of notebook 05: whom top-k keeps, what a power of the cosine does, ours beside print."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from fednb import plots

_IMAGES = (14, 74)  # degrees: one of client 0, one of client 3
_NEAR = {"FedAvg": (5, -11), "FedProx": (-48, -5)}  # where a name stands beside its dot


def kept(directions: np.ndarray, weights: Mapping[str, np.ndarray]) -> Figure:
    """Which half of a class's prototypes two images are pulled to, for each kind of weights.

    ``directions`` [P, 2] have length 1, weights are [P] by the panel's title.
    """
    figure, axes = plt.subplots(1, len(weights), figsize=(8, 3.8), sharey=True)
    for ax, (title, given) in zip(axes, weights.items(), strict=True):
        ax.set(title=title, xlim=(0, 1.25), ylim=(0, 1.25), aspect="equal", xticks=[], yticks=[])
        size = 60 + 300 * given / given.sum()
        look: dict[str, Any] = {"c": "C0", "marker": "*", "ec": "black", "lw": 0.8, "zorder": 3}
        x, y = 1.1 * directions.T
        ax.scatter(x, y, size, **look)
        for degrees in _IMAGES:
            angle = np.radians(degrees)
            _draw_image(ax, np.array([np.cos(angle), np.sin(angle)]), directions, given)
    return figure


def _draw_image(ax: Axes, spot: np.ndarray, directions: np.ndarray, weights: np.ndarray) -> None:
    products = weights * (directions @ spot) ** 0.5
    largest = np.argsort(-products)[: int(np.ceil(0.5 * len(products)))]
    x, y = 0.8 * spot
    ax.scatter(x, y, 25, "black", zorder=3)
    for j, star in enumerate(1.1 * directions):
        colour, style = ("black", "-") if j in largest else ("grey", ":")
        ax.plot(*zip(0.8 * spot, star, strict=True), color=colour, ls=style)
        middle = 0.28 * spot + 0.65 * star
        centred: dict[str, Any] = {"ha": "center", "va": "center", "backgroundcolor": "white"}
        ax.annotate(f"{products[j]:.2f}", tuple(middle), size=9, **centred)


def powers() -> Figure:
    """The slope of a power of the cosine, and the push on another class, whose own is at 0.8."""
    cosines = np.linspace(0.01, 1, 400)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4))
    for power, style in ((1.0, "-"), (0.5, "--"), (0.25, ":")):
        slope = power * cosines ** (power - 1)
        left.plot(cosines, slope, f"k{style}", label=f"α = {power:g}")
        right.semilogy(cosines, slope * _share(cosines**power, 0.8**power, 0.07), f"k{style}")
    # no power, and the temperature at which the slope near 0.8 is that of the root
    right.semilogy(cosines, 0.07 / 0.125 * _share(cosines, 0.8, 0.125), color="C1")
    right.annotate("α = 1, τ = 0.125", (0.7, 0.02), color="C1")
    left.set(xlabel="cosine", ylabel="slope of $s_α$", ylim=(0, 5))
    right.set(xlabel="cosine to the other class", ylabel="push: slope times share")
    right.set(ylim=(1e-5, 3))
    left.legend(frameon=False)
    return figure


def _share(other: np.ndarray, own: float, temperature: float) -> np.ndarray:
    """Of the other class in a softmax of two."""
    return 1 / (1 + np.exp((own - other) / temperature))


def beside_print(pairs: Mapping[str, Mapping[str, tuple[float, float]]]) -> Figure:
    """By data set and method what is printed and what is measured, in percent, as dots."""
    figure, axes = plt.subplots(1, len(pairs), figsize=(14, 4.2))
    for ax, (dataset, of_methods) in zip(axes, pairs.items(), strict=True):
        for method, pair in of_methods.items():
            ax.scatter(*pair, color=plots.colour(method))
            shift: dict[str, Any] = {"xytext": _NEAR.get(method, (4, 3)), "size": 9}
            ax.annotate(method.split(" (")[0], pair, textcoords="offset points", **shift)
        rank = spearmanr(np.array(list(of_methods.values()))).statistic
        ax.set(title=f"{dataset}: rank correlation {rank:.2f}", ylabel="here, small runs (%)")
        ax.set(xlabel="printed (%)" if dataset != "PACS" else "printed, DomainNet (%)")
        ax.margins(x=0.2)
    return figure
