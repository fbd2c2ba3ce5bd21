"""Pictures of notebook 05: four methods' prototypes, whom top-k keeps, what a power of the cosine does, print."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots

_IMAGES = (14, 74)  # degrees: one of client 0, one of client 3
_NEAR = {"FedAvg": (5, -11), "FedProx": (-48, -5)}  # where a name stands beside its dot
_STAR: dict[str, Any] = {"marker": "*", "ec": "black", "lw": 0.8, "zorder": 3}
_SAID = (  # below the panels of the first picture
    "blue's mean lies\namong the orange images",
    "blue has two stars,\nas clients see it in two ways",
    "clients may send more than one;\noutliers pull a star up",
    "stars weigh as much as their\nimages; the outliers stay merged",
)


def _half_plane(ax: Axes) -> None:
    """A quarter of the unit circle, on which directions lie."""
    angle = np.linspace(0, np.pi / 2, 60)
    ax.plot(np.cos(angle), np.sin(angle), color="0.8", lw=1, zorder=0)
    ax.set(xlim=(-0.12, 1.2), ylim=(-0.05, 1.2), aspect="equal")
    ax.axis("off")


def four_answers(clients: Sequence[Any], answers: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Four clients' images of two classes, 20 each, and the prototypes that each method makes.

    ``clients``: images [40, 2] of each, class 0 first. ``answers``: by method sets of prototypes.
    """
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.6), sharey=True)
    colours = ["C0"] * 20 + ["C1"] * 20
    panels = zip(axes, answers.items(), _SAID, strict=True)
    for ax, (title, prototypes), said in panels:
        _half_plane(ax)
        for z, marker in zip(clients, "os^D", strict=True):
            ax.scatter(*(0.88 * z.T), s=14, c=colours, alpha=0.4, marker=marker, lw=0)
        directions = np.asarray(prototypes["vectors"])
        directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        size = 90 + 450 * np.asarray(prototypes["weights"]) if "weights" in prototypes else 240
        ax.scatter(*directions.T, s=size, c=[f"C{k}" for k in prototypes["labels"]], **_STAR)
        ax.set_title(title, size=13)
        ax.annotate(said, (0.55, -0.08), ha="center", va="top", size=11, annotation_clip=False)
    axes[0].annotate("outliers", (0.14, 0.6), color="C1", ha="right", size=11)
    axes[0].annotate("blue", (0.3, 0.5), color="C0", ha="right", size=11)
    axes[0].annotate("orange", (0.32, 0.36), color="C1", ha="right", size=11)
    axes[0].annotate("blue ", (0.42, 0.12), color="C0", ha="right", size=11)
    return figure


def kept(directions: np.ndarray, weights: Mapping[str, np.ndarray]) -> Figure:
    """Which half of a class's prototypes two images are pulled to, for each kind of weights.

    ``directions`` [P, 2] have length 1, weights are [P] by the panel's title.
    """
    figure, axes = plt.subplots(1, len(weights), figsize=(9.5, 4), sharey=True)
    for ax, (title, given) in zip(axes, weights.items(), strict=True):
        _half_plane(ax)
        ax.set_title(title)
        ax.scatter(*directions.T, 90 + 450 * given / given.sum(), c="C0", **_STAR)
        for star, weight in zip(directions, given, strict=True):
            plots.label(ax, star, f"W = {weight:.2g}", (9, 4), color="C0", size=11)
        for degrees in _IMAGES:
            _draw_image(ax, np.radians(degrees), directions, given)
    return figure


def _draw_image(ax: Axes, angle: float, directions: np.ndarray, weights: np.ndarray) -> None:
    """An image, with lines to the prototypes; grey to those that are not kept."""
    spot = np.array([np.cos(angle), np.sin(angle)])
    products = weights * (directions @ spot) ** 0.5
    largest = np.argsort(-products)[: int(np.ceil(0.5 * len(products)))]
    image = 0.55 * spot
    ax.plot(*image, "o", color="black", zorder=3)
    look: dict[str, Any] = {"ha": "center", "va": "center", "size": 10}
    look["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    for j, star in enumerate(directions):
        colour, style = ("black", "-") if j in largest else ("grey", ":")
        ax.plot(*zip(image, star, strict=True), color=colour, ls=style)
        x, y = 0.38 * image + 0.62 * star
        ax.text(x, y, f"{products[j]:.2f}", color=colour, **look)


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
            plots.label(ax, pair, method.split(" (")[0], _NEAR.get(method, (4, 3)), size=9)
        ax.set(title=dataset, ylabel="here, one small run each (%)")
        ax.set(xlabel="printed (%)" if dataset != "PACS" else "printed, DomainNet (%)")
        ax.margins(x=0.2)
    return figure


def domains_and_terms(metrics: Mapping[str, Any]) -> Figure:
    """Of a run's record: accuracy on each domain and their mean, and the terms of the loss."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6))
    rounds = metrics["round"]
    domains = pd.DataFrame(metrics["groups"])
    left.plot(rounds, domains, label=list(domains))
    left.plot(rounds, domains.mean(axis=1, skipna=False), "k", lw=3, label="mean")
    left.set(ylabel="test accuracy (%)")
    for name, values in metrics.items():
        if name.startswith("loss/"):
            label = name.removeprefix("loss/").replace("_", " ")
            right.plot(rounds, values, "o-", ms=4, label=label)
    right.axhline(0, color="0.6", lw=1, zorder=0)
    right.set(ylabel="mean training loss, weighted")
    for ax in (left, right):
        ax.set(xlabel="communication round")
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def steps_of_finch(points: Any, levels: Sequence[Any], neighbours: Callable[[Any], Any]) -> Figure:
    """Points [n, 2] and their clusters, [n] for each step, with an arrow to each nearest neighbour.

    From the second step on the arrows are between means. ``neighbours``: of points, their places.
    """
    figure, axes = plt.subplots(1, len(levels), figsize=(9.5, 3.7), sharex=True, sharey=True)
    nodes = points
    for ax, found in zip(axes, levels, strict=True):
        ax.scatter(*points.T, c=[f"C{c}" for c in found], s=30)
        for start, end in zip(nodes, nodes[neighbours(nodes)], strict=True):
            ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "grey"})
        kind = "points"
        if nodes is not points:
            kind = "means (+)"
            ax.plot(*nodes.T, "k+", ms=10)
        ax.set_title(f"{len(nodes)} {kind}, {int(found.max()) + 1} clusters")
        ax.set(aspect="equal", xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        nodes = torch.stack([points[found == c].mean(0) for c in found.unique()])
    return figure
