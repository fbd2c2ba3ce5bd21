"""Pictures that several notebooks draw: who owns which images, and who sends what."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes

from fednb import partition
from fednb.data import Dataset
from fednb.federation import Federation


def style() -> None:
    """Readable defaults and a palette that does not depend on colour vision."""
    sns.set_theme("notebook", "ticks", palette="colorblind", rc={"axes.spines.top": False, "axes.spines.right": False})
    plt.rcParams |= {"figure.dpi": 90, "figure.constrained_layout.use": True, "svg.hashsalt": "fednb"}


def split(
    parts: Sequence[np.ndarray], labels: np.ndarray, num_classes: int, ax: Axes | None = None, title: str = ""
) -> Axes:
    """Heat map of images per client (rows) and class (columns)."""
    ax = ax or plt.gca()
    counts = partition.class_counts(parts, labels, num_classes)
    few = counts.max() < 1000 and num_classes <= 10
    sns.heatmap(counts, ax=ax, cmap="cividis", annot=few, fmt="d", annot_kws={"size": 7}, cbar=not few, square=False)
    ax.set(xlabel="class", ylabel="client", title=title)
    ax.tick_params(length=0, labelrotation=0)
    return ax


def domains(dataset: Dataset, per_class: int = 1, ax: Axes | None = None, title: str = "") -> Axes:
    """Training images of every domain (rows) and class (columns), ``per_class`` beside each other.

    They are the first of their kind in the data set's order; where a domain has none, the place stays empty.
    """
    if dataset.train_groups is None:
        raise ValueError(f"{dataset.name} has no domains to show.")
    side = dataset.images.shape[-1]
    step = side + 1  # a line of one pixel between images
    sheet = np.full((len(dataset.group_names) * step - 1, dataset.num_classes * per_class * step - 1, 3), 255, np.uint8)
    for row in range(len(dataset.group_names)):
        for k in range(dataset.num_classes):
            chosen = ((dataset.train_groups == row) & (dataset.labels == k)).nonzero().flatten()[:per_class]
            for j, image in enumerate(dataset.images[chosen]):
                top, left = row * step, (k * per_class + j) * step
                sheet[top : top + side, left : left + side] = image.expand(3, side, side).permute(1, 2, 0).numpy()
    ax = ax or plt.gca()
    ax.imshow(sheet, interpolation="nearest")
    ax.set_yticks(np.arange(len(dataset.group_names)) * step + side / 2, dataset.group_names)
    ax.set_xticks((np.arange(dataset.num_classes) + 0.5) * per_class * step, dataset.classes)
    if max(map(len, dataset.classes)) > 2:
        ax.tick_params(axis="x", labelrotation=45)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(title)
    return ax


def exchange(federation: Federation, ax: Axes | None = None) -> Axes:
    """Who sends what in one round, from the messages that the federation counted in its last round."""
    ax = ax or plt.gca()
    clients = len(federation.sample(federation.rounds_done - 1))
    ax.set(xlim=(0, 10), ylim=(0, 4.2))
    ax.axis("off")
    box = {"boxstyle": "round,pad=0.6", "facecolor": "white", "edgecolor": "0.3"}
    ax.text(5, 3.7, "server", ha="center", va="center", bbox=box)
    columns = [1.2, 5.0, 8.8] if clients > 2 else [2.5, 7.5][:clients]
    names = ["client 0", "client 1", f"... {clients} clients"] if clients > 2 else [f"client {i}" for i in range(clients)]
    for x, name in zip(columns, names, strict=True):
        ax.text(x, 0.4, name, ha="center", va="center", bbox=box)
        top = 5 + (x - 5) * 0.12
        for shift, (start, end), colour in (
            (-0.12, ((top, 3.2), (x, 0.95)), "C0"),
            (0.12, ((x, 0.95), (top, 3.2)), "C1"),
        ):
            arrow = {"arrowstyle": "->", "color": colour, "lw": 1.8}
            ax.annotate("", (end[0] + shift, end[1]), (start[0] + shift, start[1]), arrowprops=arrow)
    for x, side, direction, colour, words in (
        (0.0, "left", "down", "C0", "server to client"),
        (10.0, "right", "up", "C1", "client to server"),
    ):
        lines = [f"{name}: {numbers // clients:,}" for name, (numbers, _) in federation.traffic.get(direction, {}).items()]
        ax.text(x, 2.6, "\n".join([words, *(lines or ["nothing"])]), ha=side, va="center", color=colour, size=10)
    return ax
