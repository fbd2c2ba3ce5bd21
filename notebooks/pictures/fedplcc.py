"""Pictures of notebook 05: prototypes of two classes, FINCH step by step, and recorded runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from fednb.papers.fedplcc import cluster, plain, shares
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from scipy import stats
from torch import Tensor

from fednb import data, finch, plots, results
from fednb.data import Dataset
from fednb.prototypes import Prototypes, class_means, join, mean_by_class, select

_IMAGE = 14  # degrees: of client 0
_FAULT = "#c1121f"  # the ellipse around outliers
_STAR: dict[str, Any] = {"marker": "*", "ec": "black", "lw": 0.8, "zorder": 3}
# By class and client: directions in degrees, and the number of images around each.
_DIRECTIONS: dict[int, list[list[tuple[float, int]]]] = {
    0: [[(14, 20)], [(22, 20)], [(66, 20)], [(74, 20)]],
    1: [[(40, 20)], [(46, 20)], [(42, 17), (86, 3)], [(44, 17), (88, 3)]],  # six are outliers
}


# --- a toy: four clients, two classes, in the plane


def toy(seed: int, classes: Sequence[int] = (0, 1)) -> list[Tensor]:
    """Draw four clients' representations in the plane, [20 images of each class, 2] for each."""
    rng = np.random.default_rng(seed)
    clients = []
    for client in range(4):
        groups = []
        for label in classes:
            for degrees, number in _DIRECTIONS[label][client]:
                groups.append(_images(rng, degrees, number))
        clients.append(torch.from_numpy(np.concatenate(groups)))
    return clients


def _images(rng: np.random.Generator, degrees: float, number: int) -> np.ndarray:
    """Representations near a direction, [number, 2]."""
    angle = np.radians(degrees + rng.normal(0, 2, number))
    length = rng.uniform(0.75, 1.0, number)
    return length[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)


def toy_prototypes(clients: Sequence[Tensor]) -> dict[str, Prototypes]:
    """Give the global prototypes that FedProto and FedPLCC make of the toy."""
    labels = torch.arange(2).repeat_interleave(20)
    means = join([plain(class_means(z, labels)) for z in clients])
    centres = join([cluster({"vectors": z, "labels": labels}) for z in clients])
    return {"FedProto": mean_by_class(means), "FedPLCC": shares(cluster(centres))}


def _half_plane(ax: Axes) -> None:
    """A quarter of the unit circle, on which directions lie."""
    angle = np.linspace(0, np.pi / 2, 60)
    ax.plot(np.cos(angle), np.sin(angle), color="0.8", lw=1, zorder=0)
    ax.set(xlim=(-0.12, 1.34), ylim=(-0.05, 1.25), aspect="equal")
    ax.axis("off")


_ANSWERS = {  # what a method makes of the images of a class
    "FedProto": "one mean of a class",
    "FedPLCC": "clusters, with weights",
}


@plots.described("Left: blue's mean lies among orange images. Right: six stars, with shares of their class")
def two_answers() -> Figure:
    """Four clients' images of two classes, and the prototypes of FedProto and of FedPLCC."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 5), sharey=True)
    clients = toy(0)
    found = toy_prototypes(clients)
    for ax, (method, made) in zip(axes, _ANSWERS.items(), strict=True):
        _panel(ax, clients, found[method])
        ax.set_title(f"{method}: {made}", size=14, color=plots.colour(method))
        ax.add_patch(Ellipse((0.055, 0.87), 0.19, 0.36, fill=False, color=_FAULT, lw=1.5))
    left, right = axes
    left.text(0.045, 1.07, "six orange outliers", color=_FAULT, size=12, va="bottom", ha="center")
    for text, label, place in (
        ("blue", 0, (0.6, 0.13)),
        ("blue", 0, (0.24, 0.65)),
        ("orange", 1, (0.72, 0.47)),
    ):
        left.text(*place, text, color=f"C{label}", size=13, ha="center", va="center")
    arrow = {"arrowstyle": "->", "color": "black", "shrinkB": 9}
    look: dict[str, Any] = {"size": 13, "ha": "right", "va": "center", "arrowprops": arrow}
    for ax, text, star in (
        (left, "the mean of blue", found["FedProto"]["vectors"][0]),
        (right, "dragged by\nthe outliers", _leftmost(found["FedPLCC"], 1)),
    ):
        ax.annotate(text, star.tolist(), (0.36, 0.4), **look)
    return figure


def _leftmost(prototypes: Prototypes, label: int) -> Tensor:
    """The class's prototype that lies farthest to the left."""
    vectors = select(prototypes, prototypes["labels"] == label)["vectors"]
    return vectors[vectors[:, 0].argmin()]


def _panel(ax: Axes, clients: Sequence[Tensor], prototypes: Prototypes) -> None:
    """The toy's images, a marker for each client, and prototypes as stars; rays lead to their weights."""
    _half_plane(ax)
    colours = ["C0"] * 20 + ["C1"] * 20
    for z, marker in zip(clients, "os^D", strict=True):
        ax.scatter(*z.T, s=34, c=colours, alpha=0.4, marker=marker, lw=0)
    stars = np.asarray(prototypes["vectors"])
    directions = stars / np.linalg.norm(stars, axis=1, keepdims=True)
    of_class = [f"C{int(label)}" for label in prototypes["labels"]]
    sizes = np.full(len(stars), 330.0)
    if "weights" in prototypes:
        weights = np.asarray(prototypes["weights"])
        sizes = 120 + 600 * np.minimum(weights, 0.5)
        _weights_beside(ax, directions, weights, prototypes["labels"])
        for star, direction, colour in zip(stars, directions, of_class, strict=True):
            ax.plot(*zip(star, direction * 1.06, strict=True), color=colour, lw=1.2, zorder=2)
    ax.scatter(*stars.T, s=sizes, c=of_class, **_STAR)


def _weights_beside(ax: Axes, directions: np.ndarray, weights: np.ndarray, labels: Tensor) -> None:
    """Write each weight just outside of its star; where two stars are close, on their far sides."""
    angles = np.arctan2(directions[:, 1], directions[:, 0])
    for j, angle in enumerate(angles):
        others = np.delete(angles, j)
        nearest = others[np.abs(others - angle).argmin()]
        apart = max(0.15 - abs(angle - nearest), 0) / 2 * np.sign(angle - nearest)
        x, y = 1.16 * np.cos(angle + apart), 1.16 * np.sin(angle + apart)
        text = f"{weights[j]:.2f}".removesuffix(".00")
        ax.text(x, y, text, color=f"C{int(labels[j])}", ha="center", va="center", size=12)


@plots.described(
    "Left: lines to the two nearest stars count. Right: the line to the far, heavy star counts, one to a near star does not"
)
def kept(prototypes: Prototypes) -> Figure:
    """Which half of a class's prototypes an image is pulled to, with all weights 1 and with theirs."""
    directions = np.asarray(prototypes["vectors"])
    directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    weights = np.asarray(prototypes["weights"])
    panels = {"all weights 1": np.ones(len(weights)), "the paper's weights, shares of images": weights}
    figure, axes = plt.subplots(1, 2, figsize=(10.5, 3.9), sharey=True)
    for ax, (title, given) in zip(axes, panels.items(), strict=True):
        _half_plane(ax)
        ax.set(title=title, ylim=(-0.05, 1.08))
        ax.scatter(*directions.T, 90 + 450 * given / given.sum(), c="C0", **_STAR)
        for star, weight in zip(directions, given, strict=True):
            name = "far" if star[1] > 0.7 else "near"
            plots.label(ax, star, f"{name}, W = {weight:.2g}", (9, 4), color="C0", size=11)
        _draw_image(ax, np.radians(_IMAGE), directions, given)
    return figure


def _draw_image(ax: Axes, angle: float, directions: np.ndarray, weights: np.ndarray) -> None:
    """An image, with lines to the prototypes; grey to those that are not kept."""
    spot = np.array([np.cos(angle), np.sin(angle)])
    products = weights * (directions @ spot) ** 0.5
    largest = np.argsort(-products)[: int(np.ceil(0.5 * len(products)))]
    image = 0.55 * spot
    ax.plot(*image, "o", color="black", zorder=3)
    plots.label(ax, image, "the image", (-8, 0), ha="right", va="center", size=11)
    look: dict[str, Any] = {"ha": "center", "va": "center", "size": 10}
    look["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    for j, star in enumerate(directions):
        colour, style = ("black", "-") if j in largest else ("grey", ":")
        ax.plot(*zip(image, star, strict=True), color=colour, ls=style)
        x, y = 0.38 * image + 0.62 * star
        ax.text(x, y, f"{products[j]:.3f}", color=colour, **look)


@plots.described("Prototypes of the class 3: one pale three of FedProto and of FPL, three of FedPLCC, the last a negative")
def as_images(answers: Mapping[str, Prototypes], label: int) -> Figure:
    """A class's prototypes of 64 pixels as images, by method; under those of FedPLCC their weights."""
    of_class = [select(one, one["labels"] == label) for one in answers.values()]
    ratios: list[float] = []
    for own in of_class:
        ratios += [1.0] * len(own["labels"]) + [0.3]  # free space between two methods
    ratios.pop()
    figure, axes = plt.subplots(1, len(ratios), figsize=(1.9 * sum(ratios), 2.5), width_ratios=ratios)
    for ax in axes:
        ax.axis("off")
    column = 0
    for method, own in zip(answers, of_class, strict=True):
        axes[column].set_title(method, color=plots.colour(method), size=13)
        for j, vector in enumerate(own["vectors"]):
            ax = axes[column]
            ax.axis("on")
            ax.imshow(vector.view(8, 8), cmap="gray", vmin=-1, vmax=1)
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(True)
            if method == "FedPLCC":
                ax.set_xlabel(f"W = {own['weights'][j]:.2f}")
            column += 1
        column += 1
    return figure


def _average(printed: Mapping[str, Mapping[str, float | None]], row: str) -> float:
    """A printed mean over domains."""
    value = printed[row]["Avg."]
    assert value is not None  # every row of these tables has one
    return value


_OF_THE_PAPER = {  # our table, the reported one
    "Digit-5": ("fedplcc-2-short", "II"),
    "Office-10": ("fedplcc-3-short", "III"),
    "PACS for DomainNet": ("fedplcc-4-pacs-short", "IV"),
}


@plots.described("Reported and measured accuracies of eight methods: in nearly one order on Office-10, in others elsewhere")
def beside_print() -> Figure:
    """Accuracies of eight methods in the paper's order: reported as rings, ours a dot for each seed.

    Above each panel stands Spearman's rank correlation of both over the methods, of means over seeds.
    """
    figure, axes = plt.subplots(1, 3, figsize=(13.5, 3.9))
    for ax, (name, (table, number)) in zip(axes, _OF_THE_PAPER.items(), strict=True):
        told = results.printed(f"FedPLCC Table {number}")
        cells = [one for one in results.cells(table) if one.column == "Avg." and one.mean is not None]
        cells.sort(key=lambda cell: _average(told, cell.row))
        in_print = [_average(told, cell.row) for cell in cells]
        for place, (cell, reported) in enumerate(zip(cells, in_print, strict=True)):
            colour = plots.colour(cell.method)
            ax.plot(reported, place, "o", **plots.PRINTED)
            ax.plot(cell.values, [place] * len(cell.values), "o", color=colour, ms=6)
        rank = stats.spearmanr(in_print, [cell.mean for cell in cells]).statistic
        ax.set_title(f"{name}: rank correlation {rank:.2f}", size=12)
        ax.set_yticks(range(len(cells)), [cell.row.split(" (")[0] for cell in cells])
        ax.set_xlabel("accuracy, mean over domains (%)")
        ax.grid(axis="y", alpha=0.3)
    axes[0].plot([], [], "o", color="0.35", ms=6, label="ours, a dot for each seed")
    axes[0].plot([], [], "o", label="reported in the paper", **plots.PRINTED)
    below: dict[str, Any] = {"loc": "outside lower center", "ncols": 2}
    figure.legend(frameon=False, fontsize="small", **below)
    return figure


@plots.described(
    "Accuracy over the learning rate: the contrast's curve lies left of FedAvg's, is lower, and ends in runs that diverged"
)
def rates() -> Figure:
    """Accuracy over the learning rate, of FedAvg and of the contrast alone with a large weight.

    Dashed is what the contrast's curve would be if its weight of ten were a rate ten times larger.
    """
    figure, ax = plt.subplots(figsize=(8.6, 3.8))
    lines = {"FedAvg": "FedAvg", "contrast, λ₁ = 10": "FedPLCC"}
    for row, method in lines.items():
        colour = plots.colour(method)
        cells = [cell for cell in results.cells("mini-fedplcc-rates") if cell.row == row]
        for cell in cells:
            _crosses(ax, float(cell.column.removeprefix("lr ")), cell.statuses.count("diverged"), colour)
        cells = [cell for cell in cells if cell.mean is not None]
        at = [float(cell.column.removeprefix("lr ")) for cell in cells]
        for rate, cell in zip(at, cells, strict=True):
            ax.plot([rate] * len(cell.values), cell.values, "o", color=colour, ms=4, alpha=0.4)
        means = [cell.mean for cell in cells]
        ax.plot(at, means, "-", color=colour, lw=2)
        best = int(np.argmax(means))
        ax.plot(at[best], means[best], "*", color=colour, ms=16)
        plots.label(ax, (at[best], means[best]), row, (0, 30), color=colour, ha="center")
        if row == "FedAvg":
            moved = [rate / 10 for rate in at]
            ax.plot(moved, means, "--", color=colour, lw=1, zorder=0)
            text = "FedAvg, moved left\nby a factor of ten"
            plots.label(ax, (moved[0], 52), text, (0, 0), color=colour, size=10)
    ax.axhline(10, color="0.6", ls=":")
    plots.label(ax, (0.023, 4), "× a seed that diverged", (0, 0), color=colour, size=10, ha="right", va="center")
    ax.set(xscale="log", ylim=(0, 92), xlabel="learning rate", ylabel="accuracy after ten rounds (%)")
    ticks = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.06, 0.1]
    ax.set_xticks(ticks, [f"{rate:g}" for rate in ticks])
    ax.minorticks_off()
    return figure


def _crosses(ax: Axes, rate: float, number: int, colour: str) -> None:
    """A cross for each of so many runs that diverged, beside one another below the curves."""
    places = rate * 1.07 ** (np.arange(number) - (number - 1) / 2)
    ax.plot(places, [4] * number, "x", color=colour, ms=6, mew=1.5)


@plots.described("FedPLCC's mean accuracy and FedAvg's over rounds, and on each of the five domains after the last round")
def beside_fedavg(by_method: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Of records' metrics: the mean accuracy by round, and the last accuracy on each domain."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.4))
    for method, metrics in by_method.items():
        domains = pd.DataFrame(metrics["groups"])
        colour = plots.colour(method)
        left.plot(metrics["round"], domains.mean(axis=1, skipna=False), color=colour, lw=2.5, label=method)
        last = domains.iloc[-1]
        right.plot(last, range(len(last)), "o", color=colour, ms=8)
        right.set_yticks(range(len(last)), list(last.index))
    left.set(xlabel="communication round", ylabel="mean over domains (%)")
    right.invert_yaxis()
    right.grid(axis="y", alpha=0.3)
    right.set(xlabel="accuracy after the last round (%)")
    plots.label_ends(left)
    return figure


@plots.described("Ten digits, each written, slanted, blended, printed, in scenes")
def five_domains() -> Axes:
    """An image of each class in each of the five embedded domains."""
    ax = plt.figure(figsize=(6, 3.4)).subplots()
    return domains(data.load("digits5_mini"), ax)


def domains(dataset: Dataset, ax: Axes | None = None, title: str = "") -> Axes:
    """The first training image of every domain (rows) and class (columns), if there is one."""
    side = dataset.images.shape[-1]
    num_domains, num_classes = len(dataset.group_names), dataset.num_classes
    step = side + 1  # a line of one pixel between images
    sheet = np.full((num_domains * step - 1, num_classes * step - 1, 3), 255, np.uint8)
    for row, column in np.ndindex(num_domains, num_classes):
        for image in dataset.images[(dataset.train_groups == row) & (dataset.labels == column)][:1]:
            sheet[row * step :, column * step :][:side, :side] = image.permute(1, 2, 0)
    ax = ax or plt.gca()
    ax.imshow(sheet, interpolation="nearest")
    ax.set_yticks(np.arange(num_domains) * step + side / 2, dataset.group_names)
    ax.set_xticks(np.arange(num_classes) * step + step / 2, dataset.classes)
    ax.tick_params(length=0)
    ax.tick_params(axis="x", labelrotation=45 if max(map(len, dataset.classes)) > 2 else 0)
    ax.spines[:].set_visible(False)
    ax.set_title(title)
    return ax


# --- FINCH, step by step


def six_groups(outlier: float = 6.0) -> Tensor:
    """Six groups of four points in the plane, and an outlier that far to the right: [25, 2]."""
    rng = np.random.default_rng(3)
    middles = [(0, 0), (1.0, 0.6), (4.0, 0.3), (4.4, 1.5), (2.0, 3.2), (3.2, 3.0)]
    groups = [np.array(middle) + 0.22 * rng.normal(size=(4, 2)) for middle in middles]
    return torch.from_numpy(np.concatenate([*groups, [(outlier, 2.6)]]))


@plots.described("Arrows from each point to its nearest, clusters, arrows between means, fewer clusters")
def steps_of_finch(points: Tensor) -> Figure:
    """Four frames: arrows to nearest points, what they join, and the same with the means."""
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.1), sharex=True, sharey=True)
    for step, ax in enumerate(axes, start=1):
        _frame(ax, points, step)
    return figure


def step_of_finch(step: int, outlier: float) -> None:
    """Show one of the four frames, with the outlier anywhere: what a slider calls."""
    ax = plt.figure(figsize=(5.5, 4)).subplots()
    _frame(ax, six_groups(outlier), step)
    ax.set(xlim=(-0.8, 9.2), ylim=(-0.8, 4.2))
    plots.show(ax, f"Step {step} of FINCH with the outlier at {outlier:g}")


def _frame(ax: Axes, points: Tensor, step: int) -> None:
    """Draw step 1: arrows between points; 2: joined; 3: arrows between means; 4: joined again.

    A cluster that is joined of two takes the colour of one of them.
    """
    levels = finch.partitions(points, "euclidean")
    first = levels[0]
    last = levels[min(1, len(levels) - 1)]
    nodes = points
    colours = ["0.6"] * len(points)
    if step > 1:
        colours = [f"C{int(c)}" for c in first]
    if step > 2:
        nodes = torch.stack([points[first == c].mean(0) for c in first.unique()])
        ax.plot(*nodes.T, "k+", ms=11)
    if step > 3:
        colours = [f"C{int(first[last == c].min())}" for c in last]
    ax.scatter(*points[:-1].T, c=colours[:-1], s=30)
    ax.scatter(*points[-1:].T, c=colours[-1:], s=60, marker="D")
    if step % 2:
        nearest = nodes[finch.first_neighbours(nodes, "euclidean")]
        for start, end in zip(nodes, nearest, strict=True):
            arrow = {"arrowstyle": "->", "color": "black", "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", end.tolist(), start.tolist(), arrowprops=arrow)
    number = len(set(colours))
    titles = (
        f"1. each of {len(points)} points\nchooses its nearest",
        f"2. what is linked is joined:\n{number} clusters",
        "3. each mean (+)\nchooses its nearest",
        f"4. joined again:\n{number} clusters",
    )
    ax.set_title(titles[step - 1], size=12)
    ax.set(aspect="equal", xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
