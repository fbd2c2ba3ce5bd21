"""What pictures of all notebooks have in common: colours, labels at lines, splits, and how they are shown."""

import functools
import os
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, cast

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fednb import partition
from fednb.partition import Parts

Given = ParamSpec("Given")
Drawn = TypeVar("Drawn", Figure, Axes)

# One colour per method in the whole series, by seaborn's palette for colour vision: FedAvg is grey,
# each paper has its own.
COLOURS = {
    "FedAvg": "0.35",
    "SOLO": "0.7",
    "Local": "0.7",
    "SCAFFOLD": "#56b4e9",
    "FedProx": "#ca9161",
    "MOON": "#0173b2",
    "FedProc": "#de8f05",
    "FedSSC": "#029e73",
    "FedProto": "#d55e00",
    "FedPLCC": "#cc78bc",
    "FPL": "#7f5539",
    "FedPLVM": "#b5a400",
    "FCCL+": "#3d5a80",
    "FedPrior": "#000000",
    "FeSEM": "#8f2d56",
    "FedDyn": "#c2185b",
    "FedNova": "#7cb342",
    "FedAvgM": "#6b4c9a",
    "FedPer": "#5b8e7d",
    "FedRep": "#a6a15e",
    "MOON+FedAvgM": "#4c9ed9",
    "FedProto+FedAvg": "#f4a582",
}
PRINTED: dict[str, Any] = {"mfc": "none", "mec": "0.25", "mew": 1.5, "ms": 11}  # a printed lead


def colour(name: str) -> str:
    """Return a method's colour; of ``SCAFFOLD, factor 0.1`` that of the one it begins with."""
    methods = [method for method in COLOURS if name.startswith(method)]
    return COLOURS[max(methods, key=len, default="FedPrior")]


def style() -> None:
    """Set readable defaults and a palette that does not depend on colour vision."""
    sns.set_theme("notebook", "ticks", palette="colorblind")
    plt.rcParams |= {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.dpi": 90,
        "figure.constrained_layout.use": True,
        "svg.hashsalt": "fednb",
    }


def show(drawn: Figure | Axes, alt: str = "") -> None:
    """Display a figure with a text for those who do not see it, which stays in the output.

    Axes that know how to tell themselves have the text as their label.
    """
    figure = drawn if isinstance(drawn, Figure) else drawn.get_figure(root=True)
    text = alt or str(drawn.get_label())
    display(figure, metadata={"image/png": {"alt": text}})
    plt.close(figure)


def described(text: str) -> Callable[[Callable[Given, Drawn]], Callable[Given, Drawn]]:
    """Give what a function draws a text for those who do not see it, which `show` leaves with it.

    It stands at the drawing code, since in a notebook a reader would have the answer before the picture.
    """

    def with_text(draw: Callable[Given, Drawn]) -> Callable[Given, Drawn]:
        @functools.wraps(draw)
        def drawn(*args: Given.args, **kwargs: Given.kwargs) -> Drawn:
            picture = draw(*args, **kwargs)
            picture.set_label(text)
            return picture

        return drawn

    return with_text


def sliders(draw: Callable[..., Any], **ranges: Any) -> None:
    """Give the reader a slider for each argument of a function that draws and shows a picture.

    Only in a notebook that somebody has opened: in an executed copy, on a page or in a test a
    slider would be a dead one. The ranges are those of ``ipywidgets.interact``, as
    ``temperature=(0.1, 3.0, 0.1)``.
    """
    if "JPY_SESSION_NAME" in os.environ:  # which Jupyter's server sets for an open notebook
        from ipywidgets import interact

        interact(draw, **ranges)


def split(
    parts: Parts,
    labels: np.ndarray,
    num_classes: int,
    ax: Axes | None = None,
    title: str = "",
    *,
    largest: float | None = None,
) -> Axes:
    """Draw images per client (rows) and class (columns), as circles whose area is their number.

    ``largest``: so many images fill a place, for panels on one scale; by default the largest count
    of this split.
    """
    ax = ax or plt.gca()
    counts = partition.class_counts(parts, labels, num_classes)
    fill = 250 * min(1.0, 100 / counts.size)
    client, of_class = counts.nonzero()
    sizes = fill * counts[client, of_class] / (largest or counts.max())
    ax.scatter(of_class, client, s=sizes, color=COLOURS["MOON"], linewidths=0)
    ax.set(xlabel="class", ylabel="client", title=title, xlim=(-0.7, num_classes - 0.3))
    ax.set_ylim(len(counts) - 0.3, -0.7)
    if num_classes <= 10:
        ax.set_xticks(range(num_classes))
        ax.set_yticks(range(len(counts)))
    ax.tick_params(length=0)
    return ax


def label(
    ax: Axes, point: Iterable[Any], text: str, shift: tuple[float, float] = (5, 0), **look: Any
) -> None:
    """Write a text so many points (1/72 inch) from a point of the data, also outside of the axes."""
    x, y = point
    look |= {"textcoords": "offset points", "annotation_clip": False}
    ax.annotate(text, (x, y), shift, **look)


def label_ends(ax: Axes) -> Axes:
    """Write the names of lines beside their ends, instead of in a legend."""
    ends: dict[str, float] = {}  # by colour
    for line in ax.lines:
        heights = np.asarray(line.get_ydata(), dtype=float)
        if len(heights) > 1:
            ends.setdefault(to_hex(line.get_color()), heights[-1])
    handles, names = ax.get_legend_handles_labels()
    colours = [to_hex(cast(Line2D, handle).get_color()) for handle in handles]
    pairs = zip(names, colours, strict=True)
    labels = sorted((ends[colour], name, colour) for name, colour in pairs)
    bottom, top = ax.get_ylim()
    places = _apart(np.array([end for end, *_ in labels]), 0.06 * (top - bottom))
    for place, (_, name, colour) in zip(places, labels, strict=True):
        beside: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center"}
        ax.annotate(name, (1.01, place), color=colour, fontsize="small", **beside)
    legend = ax.get_legend()
    if legend:
        legend.remove()
    return ax


def _apart(places: np.ndarray, gap: float) -> np.ndarray:
    """Places in rising order, moved by as little as it takes to have a gap between neighbours."""
    places = places.astype(float)
    for _ in range(200):
        missing = np.clip(gap - np.diff(places), 0, None) / 2
        places[1:] += missing
        places[:-1] -= missing
    return places
