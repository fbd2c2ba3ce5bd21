"""Pictures that several notebooks draw: who owns which images, and who sends what."""

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes

from fednb import partition
from fednb.data import Dataset
from fednb.federation import Federation
from fednb.partition import Parts

# One colour per method in the whole series, by seaborn's palette for colour vision: FedAvg is grey, each paper has its own.
COLOURS = {"FedAvg": "0.35", "SOLO": "0.7", "Local": "0.7", "SCAFFOLD": "#56b4e9", "FedProx": "#ca9161"}
COLOURS |= {"MOON": "#0173b2", "FedProc": "#de8f05", "FedSSC": "#029e73", "FedProto": "#d55e00", "FedPLCC": "#cc78bc"}
COLOURS |= {"FPL": "#7f5539", "FedPLVM": "#b5a400", "FCCL+": "#3d5a80", "FedPrior": "#000000", "FeSEM": "#8f2d56"}
COLOURS |= {"FedAvgM": "#6b4c9a", "FedPer": "#5b8e7d", "FedRep": "#a6a15e"}
COLOURS |= {"MOON+FedAvgM": "#4c9ed9", "FedProto+FedAvg": "#f4a582"}


def colour(name: str) -> str:
    """A method's colour; of a label such as ``SCAFFOLD, factor 0.1`` that of the method with which it begins."""
    return COLOURS[max((method for method in COLOURS if name.startswith(method)), key=len, default="FedPrior")]


def style() -> None:
    """Readable defaults and a palette that does not depend on colour vision."""
    sns.set_theme("notebook", "ticks", palette="colorblind", rc={"axes.spines.top": False, "axes.spines.right": False})
    plt.rcParams |= {"figure.dpi": 90, "figure.constrained_layout.use": True, "svg.hashsalt": "fednb"}


def split(parts: Parts, labels: np.ndarray, num_classes: int, ax: Axes | None = None, title: str = "") -> Axes:
    """Heat map of images per client (rows) and class (columns)."""
    ax = ax or plt.gca()
    counts = partition.class_counts(parts, labels, num_classes)
    few = counts.max() < 1000 and num_classes <= 10
    sns.heatmap(counts, ax=ax, cmap="cividis", annot=few, fmt="d", annot_kws={"size": 7}, cbar=not few)
    ax.set(xlabel="class", ylabel="client", title=title)
    ax.tick_params(length=0, labelrotation=0)
    return ax


def domains(dataset: Dataset, ax: Axes | None = None, title: str = "") -> Axes:
    """The first training image of every domain (rows) and class (columns); where there is none, the place stays empty."""
    side, num_domains, num_classes = dataset.images.shape[-1], len(dataset.group_names), dataset.num_classes
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


def exchange(federation: Federation, ax: Axes | None = None) -> Axes:
    """Who sends what in one round, from the messages that the federation counted in its last round."""
    ax = ax or plt.gca()
    clients = len(federation.sample(federation.rounds_done - 1))
    ax.set(xlim=(0, 10), ylim=(0, 4.2))
    ax.axis("off")
    box = {"boxstyle": "round,pad=0.6", "facecolor": "white", "edgecolor": "0.3"}
    ax.text(5, 3.7, "server", ha="center", va="center", bbox=box)
    names = {1.2: "client 0", 5.0: "client 1", 8.8: f"... {clients} clients"}
    if clients <= 2:
        names = {x: f"client {i}" for i, x in enumerate([2.5, 7.5][:clients])}
    for x, name in names.items():
        ax.text(x, 0.4, name, ha="center", va="center", bbox=box)
    for direction, words, colour, shift, edge, side in (
        ("down", "server to client", "C0", -0.12, 0, "left"),
        ("up", "client to server", "C1", 0.12, 10, "right"),
    ):
        for x in names:
            above, below = (5 + (x - 5) * 0.12 + shift, 3.2), (x + shift, 0.95)
            tail, head = (above, below) if direction == "down" else (below, above)
            ax.annotate("", head, tail, arrowprops={"arrowstyle": "->", "color": colour, "lw": 1.8})
        lines = [f"{name}: {numbers // clients:,}" for name, (numbers, _) in federation.traffic.get(direction, {}).items()]
        ax.text(edge, 2.6, "\n".join([words, *(lines or ["nothing"])]), ha=side, va="center", color=colour, size=10)
    return ax
