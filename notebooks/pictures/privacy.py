"""Pictures of the notebook on privacy: blurred means, what comes back of them, and how alike."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots

_BLUE = "C0"  # with the victim's network; without it lines are grey


@plots.described("Means of 1 to 100 twos: the first is one person's two, the last is everybody's, blurred")
def blurred(means: Mapping[int, np.ndarray]) -> Figure:
    """Mean images [H, W], by the number of images that they are of."""
    figure, axes = plt.subplots(1, len(means), figsize=(9, 2.1))
    for ax, (number, image) in zip(axes, means.items(), strict=True):
        _image(ax, image)
        ax.set_title(_images(number))
    return figure


@plots.described("Reconstructions by two networks and two attacks: only the victim's own network gives the original strokes")
def reconstructions(found: Mapping[str, np.ndarray], sizes: Sequence[int]) -> Figure:
    """Images [sizes, H, W] by the name of their column; a row for each number of images."""
    figure, axes = plt.subplots(len(sizes), len(found), figsize=(1.6 * len(found), 6.9))
    for of_column, (name, images) in zip(axes.T, found.items(), strict=True):
        lines = [part for line in name.split("\n") for part in wrap(line, 13)]
        of_column[0].set_title("\n".join(lines), size=11)
        for ax, image in zip(of_column, images, strict=True):
            _image(ax, image)
    for ax, number in zip(axes[:, 0], sizes, strict=True):
        ax.set_ylabel(_images(number), size=12)
    return figure


@plots.described(
    "With the victim's network likeness falls from a half to nothing, as does finding members; without it little is found"
)
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
    looks: dict[str, dict[str, Any]] = {network: {"color": "0.7"} for network in membership}
    victim = next(iter(membership))
    looks[victim] = {"color": _BLUE, "zorder": 3}
    left.plot(sizes, ceiling, "k:", lw=1.5)
    end = (sizes[-1], ceiling[-1])
    plots.label(left, end, "the mean\nitself", (6, 0), va="center", color="black")
    for (network, attack), values in likeness.items():
        left.plot(sizes, values, "o-" if attack == "descent" else "o--", **looks[network])
    left.plot([], [], "-", color="0.3", label="descent")
    left.plot([], [], "--", color="0.3", label="regression")
    left.legend(frameon=False)
    left.axhline(0, color="0.3", lw=0.8)
    left.set(ylabel="likeness to a member", ylim=(-0.25, 1.05))
    left.annotate("\n".join(wrap(victim, 13)), (1.05, 0.1), color=_BLUE)
    left.annotate("other networks", (1.02, -0.19), color="0.45")
    for network, values in membership.items():
        right.plot(sizes, values, "o-", **looks[network])
    right.axhline(0.5, color="black", ls=":", lw=1.5)
    right.annotate("a guess", (sizes[0], 0.485), va="top")
    right.set(ylabel="who was in it? (chance to be right)", ylim=(0.4, 1.05))
    right.annotate(victim, (1.25, 0.97), color=_BLUE)
    right.annotate("other networks", (13, 0.455), color="0.45", va="top")
    for ax in (left, right):
        ax.set(xscale="log", xlabel="images in the prototype")
        ax.set_xticks(sizes, [str(n) for n in sizes])
        ax.minorticks_off()
    return figure


@plots.described("Likeness beyond the class grows with the numbers sent: nothing at 4, most of it at 16 of 64")
def narrower(numbers: Sequence[int], likeness: Mapping[str, Sequence[float]]) -> Axes:
    """Likeness beyond the class over how many numbers are sent, a line for each attack."""
    _, ax = plt.subplots(figsize=(6.5, 3.4))
    for (attack, values), style in zip(likeness.items(), ("o-", "o--"), strict=True):
        ax.plot(numbers, values, style, color=_BLUE, label=attack)
    ax.axhline(0, color="0.3", lw=0.8)
    ax.set_xscale("log", base=2)
    ax.set_xticks(numbers, [str(n) for n in numbers])
    ax.set(xlabel="numbers sent, of an image of 64 pixels", ylabel="likeness to the image")
    ax.set_ylim(-0.1, 1)
    ax.legend(frameon=False, loc="upper left")
    return ax


def _image(ax: Axes, image: np.ndarray) -> None:
    ax.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="bicubic")
    ax.set(xticks=[], yticks=[])


def _images(number: int) -> str:
    return f"{number} image{'s' * (number > 1)}"
