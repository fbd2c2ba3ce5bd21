"""What several notebooks draw: what a method sends, images, and accuracies beside reported ones."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torch import Tensor

from fednb import plots
from fednb.results import Cell

_GREY = "0.45"


def messages(
    method: str,
    *,
    down: str,
    server: str,
    up: str,
    client: str,
    model: bool = True,
    new_at_client: bool = False,
    height: float = 3.6,
) -> Axes:
    """One round of a method that sends prototypes, with a server above and three clients below.

    ``down`` and ``up`` say what is sent beside the model, which travels only if ``model``; the
    texts ``server`` and ``client`` say what each side does. The method's colour marks what it sends,
    or, if ``new_at_client``, what its clients do, as all that is sent is FedAvg's.
    """
    colour = plots.colour(method)
    of_messages = _GREY if new_at_client else colour
    of_clients = colour if new_at_client else None
    _, ax = plt.subplots(figsize=(10.4, height))
    _box(ax, (4.8, 3.3), (6.6, 0.62), f"server: {server}", "#f0f0f0")
    for x, name in ((1.3, "client 0"), (4.8, "client 1"), (8.3, "client 2")):
        _box(ax, (x, 0.35), (2.7, 0.62), f"{name}: {client}", "#e8f1f8", of_clients)
        top = 4.8 + 0.55 * (x - 4.8)
        _arrow(ax, (top - 0.14, 2.96), (x - 0.14, 0.7), of_messages)
        _arrow(ax, (x + 0.14, 0.7), (top + 0.14, 2.96), of_messages)
    ax.text(1.15, 2.4, "down", ha="right", weight="bold")
    ax.text(8.45, 2.4, "up", ha="left", weight="bold")
    both = (("the model $w$", "its model $w_i$"), (down, up))
    rows = both if model else both[1:]
    for row, (left, right) in enumerate(rows):
        shade = _GREY if model and row == 0 else of_messages
        y = 2.26 - 0.3 * row
        ax.text(1.15, y, left, ha="right", va="top", color=shade)
        ax.text(8.45, y, right, ha="left", va="top", color=shade)
    ax.set(xlim=(-1.4, 11.0), ylim=(-0.1, 3.75))
    ax.axis("off")
    return ax


def _box(
    ax: Axes,
    middle: tuple[float, float],
    size: tuple[float, float],
    text: str,
    colour: str,
    of_text: str | None = None,
) -> None:
    corner = (middle[0] - size[0] / 2, middle[1] - size[1] / 2)
    shape = FancyBboxPatch(corner, *size, "round,pad=0.06", fc=colour, ec="0.5")
    ax.add_patch(shape)
    ax.text(*middle, text, ha="center", va="center", size="small", color=of_text)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    look = {"arrowstyle": "->", "lw": 1.6, "color": colour}
    ax.annotate("", end, start, arrowprops=look)


def images(shown: Tensor, titles: Sequence[str], texts: Sequence[str]) -> Figure:
    """A few images, [n, height, width], each with a title and a text below."""
    figure, axes = plt.subplots(1, len(shown), figsize=(2.6 * len(shown), 3.3))
    for ax, image, title, text in zip(axes, shown, titles, texts, strict=True):
        ax.imshow(image, cmap="gray_r", interpolation="nearest")
        ax.set_title(title, size="medium")
        ax.set_xlabel(text, size="small")
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    return figure


def accuracies(cells: Mapping[str, Cell], colours: Mapping[str, str] | None = None) -> Axes:
    """Accuracies of methods, a dot for each seed beside the reported number, by name.

    ``colours``: by name, of those that shall not have the colour of their method.

    Lines join the methods on one seed, which has one split; a bar is the mean over seeds.
    """
    _, ax = plt.subplots(figsize=(8.5, 3.8))
    first, *_ = cells.values()
    for seed, accuracy in first.by_seed.items():
        pairs = [(x, cell.by_seed[seed]) for x, cell in enumerate(cells.values()) if seed in cell.by_seed]
        ax.plot(*zip(*pairs, strict=True), color="0.8", lw=1, zorder=0)
        look: dict[str, Any] = {"ha": "right", "va": "center", "size": "small", "color": "0.4"}
        plots.label(ax, (0, accuracy), f"seed {seed}", (-30, 0), **look)
    for x, (name, cell) in enumerate(cells.items()):
        colour = (colours or {}).get(name, plots.colour(cell.row))
        ax.plot([x] * len(cell.values), cell.values, "o", ms=8, color=colour)
        ax.plot([x - 0.12, x + 0.12], [cell.mean] * 2, lw=2, color=colour)
        if cell.printed is not None:
            ax.plot(x - 0.22, cell.printed, "o", **plots.PRINTED)
    ax.plot([], [], "o", label="reported in the paper", **plots.PRINTED)
    ax.plot([], [], "o", ms=8, color="0.35", label="ours, one dot for each seed")
    ax.plot([], [], lw=2, color="0.35", label="their mean")
    ax.set_xticks(range(len(cells)), list(cells))
    ax.set(xlim=(-0.8, len(cells) - 0.6), ylabel="test accuracy (%)")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False, fontsize="small")
    return ax
