"""Pictures of the notebook on privacy: blurred means, what comes back of them, and how alike."""

from collections.abc import Mapping, Sequence
from textwrap import wrap

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots

_BLUE = "C0"  # with the victim's network


@plots.described("Means of 1 to 100 twos: the first is one person's two, the last is everybody's, blurred")
def blurred(means: Mapping[int, np.ndarray]) -> Figure:
    """Mean images [H, W], by the number of images that they are of."""
    figure, axes = plt.subplots(1, len(means), figsize=(9, 2.1))
    for ax, (number, image) in zip(axes, means.items(), strict=True):
        _image(ax, image)
        ax.set_title(_images(number))
    return figure


@plots.described("Reconstructions: only with the victim's own network are the strokes those of the original")
def reconstructions(found: Mapping[str, np.ndarray], sizes: Sequence[int]) -> Figure:
    """Images [sizes, H, W] by the name of their column; a row for each number of images."""
    figure, axes = plt.subplots(len(sizes), len(found), figsize=(1.7 * len(found), 6.9))
    for of_column, (name, images) in zip(axes.T, found.items(), strict=True):
        of_column[0].set_title("\n".join(wrap(name, 16)), size=11)
        for ax, image in zip(of_column, images, strict=True):
            _image(ax, image)
    for ax, number in zip(axes[:, 0], sizes, strict=True):
        ax.set_ylabel(_images(number), size=12)
    return figure


@plots.described("Likeness falls with the images in a prototype, is nothing without the network, grows with numbers sent")
def how_alike(
    sizes: Sequence[int],
    by_size: Mapping[str, Sequence[float]],
    numbers: Sequence[int],
    by_number: Sequence[float],
) -> Figure:
    """Likeness to a member, left over the images in a prototype, right over the numbers that are sent for one image."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 3.8), sharey=True)
    looks = (("black", ":"), (_BLUE, "-"), ("0.5", "-"))
    places = ((1.25, 0.93), (1.15, 0.22), (1.3, -0.13))
    for (name, values), (colour, style), place in zip(by_size.items(), looks, places, strict=True):
        left.plot(sizes, values, "o" + style, color=colour, ms=5)
        left.annotate(name, place, color=colour)
    right.plot(numbers, by_number, "o-", color=_BLUE, ms=5)
    left.set(xscale="log", xlabel="images in the prototype", ylabel="likeness to a member", ylim=(-0.2, 1.05))
    right.set_xscale("log", base=2)
    right.set_xlabel("numbers sent for one image of 64 pixels")
    for ax, ticks in ((left, sizes), (right, numbers)):
        ax.axhline(0, color="0.3", lw=0.8)
        ax.set_xticks(ticks, [str(n) for n in ticks])
        ax.minorticks_off()
    return figure


def _image(ax: Axes, image: np.ndarray) -> None:
    ax.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="bicubic")
    ax.set(xticks=[], yticks=[])


def _images(number: int) -> str:
    return f"{number} image{'s' * (number > 1)}"
