"""Pictures of the notebook on privacy: blurred means, what comes back of them, and how alike."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_GREY: dict[str, Any] = {"cmap": "gray", "vmin": 0, "vmax": 1, "interpolation": "bicubic"}
_BLUE = "C0"  # with the victim's network; without it lines are grey


def blurred(means: Mapping[int, np.ndarray]) -> Figure:
    """Mean images [H, W], by the number of images that they are of."""
    figure, axes = plt.subplots(1, len(means), figsize=(9, 2.1))
    for ax, (number, image) in zip(axes, means.items(), strict=True):
        _image(ax, image)
        ax.set_title(_images(number))
    return figure


def reconstructions(found: Mapping[str, np.ndarray], sizes: Sequence[int]) -> Figure:
    """Images [sizes, H, W] by the name of their column; a row for each number of images."""
    shape = (len(sizes), len(found))
    figure, axes = plt.subplots(*shape, figsize=(12.5, 6.6))
    for column, (name, images) in enumerate(found.items()):
        lines = [part for line in name.split("\n") for part in wrap(line, 13)]
        axes[0, column].set_title("\n".join(lines), size=11)
        for row, image in enumerate(images):
            _image(axes[row, column], image)
    for ax, number in zip(axes[:, 0], sizes, strict=True):
        ax.set_ylabel(_images(number), size=12)
    return figure


def how_alike(
    sizes: Sequence[int],
    likeness: Mapping[tuple[str, str], Sequence[float]],
    ceiling: Sequence[float],
    membership: Mapping[str, Sequence[float]],
) -> Figure:
    """Over the number of images in a prototype: likeness to each member, and the chance to find
    one.

    ``likeness`` by network and attack, ``membership`` by network, the victim's first. ``ceiling``:
    of the mean of the originals itself, which no attack on the mean can expect to beat.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4))
    victim = next(iter(membership))
    left.plot(sizes, ceiling, "k:", lw=1.5)
    _named(left, sizes, ceiling, "the mean\nitself", "black")
    for (network, attack), values in likeness.items():
        own = network == victim
        style: dict[str, Any] = {
            "color": _BLUE if own else "0.7",
            "ls": "-" if attack == "descent" else "--",
        }
        left.plot(sizes, values, marker="o", zorder=3 if own else 2, **style)
    left.plot([], [], "-", color="0.3", label="descent")
    left.plot([], [], "--", color="0.3", label="regression")
    left.legend(frameon=False)
    left.axhline(0, color="0.3", lw=0.8)
    left.set(ylabel="likeness to a member", ylim=(-0.25, 1.05))
    for network, values in membership.items():
        own = network == victim
        right.plot(sizes, values, "o-", color=_BLUE if own else "0.7", zorder=3 if own else 2)
    right.axhline(0.5, color="black", ls=":", lw=1.5)
    right.annotate("a guess", (sizes[0], 0.485), va="top")
    right.set(ylabel="who was in it? (chance to be right)", ylim=(0.4, 1.05))
    right.annotate(f"{victim}", (1.25, 0.97), color=_BLUE)
    right.annotate("other networks", (13, 0.455), color="0.45", va="top")
    left.annotate(victim, (1.02, 0.13), color=_BLUE)
    left.annotate("other networks", (1.02, -0.19), color="0.45")
    for ax in (left, right):
        ax.set(xscale="log", xlabel="images in the prototype")
        ax.set_xticks(sizes, [str(n) for n in sizes])
        ax.minorticks_off()
    return figure


def narrower(numbers: Sequence[int], likeness: Mapping[str, Sequence[float]]) -> Axes:
    """Likeness beyond the class over how many numbers are sent, a line for each attack."""
    _, ax = plt.subplots(figsize=(6.5, 3.4))
    for (attack, values), style in zip(likeness.items(), ("-", "--"), strict=True):
        ax.plot(numbers, values, "o", ls=style, color=_BLUE, label=attack)
    ax.axhline(0, color="0.3", lw=0.8)
    ax.set_xscale("log", base=2)
    ax.set_xticks(numbers, [str(n) for n in numbers])
    ax.set(xlabel="numbers sent, of an image of 64 pixels", ylabel="likeness to the image")
    ax.set_ylim(-0.1, 1)
    ax.legend(frameon=False, loc="upper left")
    return ax


def _image(ax: Axes, image: np.ndarray) -> None:
    ax.imshow(image, **_GREY)
    ax.set(xticks=[], yticks=[])


def _images(number: int) -> str:
    return f"{number} image{'s' * (number > 1)}"


def _named(ax: Axes, x: Sequence[float], y: Sequence[float], name: str, colour: str) -> None:
    """A line's name beside its end."""
    place: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
    ax.annotate(name, (x[-1], y[-1]), color=colour, annotation_clip=False, **place)
