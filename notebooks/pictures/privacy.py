"""Pictures of the notebook on privacy: what a prototype reveals, what comes back of several, and how alike."""

import math
from collections.abc import Mapping, Sequence
from textwrap import wrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from fednb.papers.fedproto import METHODS
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.linear_model import Ridge
from torch import Tensor

from fednb import build, plots
from fednb.settings import resolve

_BLUE = "C0"  # with the victim's network
_TWO, _WHOSE = 2, 1  # the class, and which of the client's images of it is sent alone


@plots.described("With the client's own network one person's two comes back, of sixteen any two, without it a blot")
def revealed() -> Figure:
    """What a client has, what it sends, and what an attacker makes of it with the client's network or with another's.

    Two clients train FedProto on the digits for six rounds, from first weights of their own.
    """
    given = {"dataset": "digits", "partition": "n-way-k-shot", "num_clients": 2, "ways": 8, "own_start": True}
    federation = build.federation(resolve(METHODS, method="FedProto", seed=6, **given), METHODS, device="cpu")
    for _ in range(6):
        federation.run_round()
    attackers = federation.dataset.test_images.flatten(1) / 255
    client = federation.clients[0]
    twos = client.indices[client.labels == _TWO]
    rows = {"a prototype of one image": twos[_WHOSE : _WHOSE + 1], f"a prototype of {len(twos)} images": twos}
    networks = []
    for one in federation.clients:
        networks.append(federation.build_model().eval())
        networks[-1].load_state_dict(one.memory["model"])

    figure, axes = plt.subplots(2, 4, figsize=(9, 4.6))
    seen_with = ("seen with\nits network", "seen with another\nclient's network")
    titles = ("what the client has", "what it sends:\n64 numbers", *seen_with)
    for of_row, (name, members) in zip(axes, rows.items(), strict=True):
        with torch.no_grad():
            prototype = networks[0](federation.images.inputs(members)).representation.mean(0).numpy()
            seen = []
            for network in networks:
                z = network(federation.images.test_inputs()).representation.numpy()
                seen.append(Ridge().fit(z, attackers.numpy()).predict(prototype[None]).clip(0, 1).reshape(8, 8))
        _image(of_row[0], _side_by_side(federation.dataset.images[members, 0].numpy() / 255))
        of_row[1].imshow(prototype[None], cmap="Purples", aspect="auto", interpolation="nearest")
        of_row[1].set(xticks=[], yticks=[], box_aspect=0.4)
        for ax, image in zip(of_row[2:], seen, strict=True):
            _image(ax, image)
        of_row[0].set_ylabel("\n".join(wrap(name, 12)), size=12)
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(title, size=12)
    return figure


def _side_by_side(images: np.ndarray) -> np.ndarray:
    """One image as it is, and others smoothed and in rows of four."""
    if len(images) == 1:
        return images[0]
    columns = 4
    empty = np.zeros((-len(images) % columns, *images.shape[1:]))
    framed = np.pad(np.concatenate([images, empty]), ((0, 0), (1, 1), (1, 1)))
    rows = framed.reshape(-1, columns, *framed.shape[1:])
    return rows.transpose(0, 2, 1, 3).reshape(rows.shape[0] * framed.shape[1], -1)


@plots.described("Only with the victim's own network are the strokes those of the original, and only of a single image")
def reconstructions(
    found: Sequence[Mapping[str, Tensor]], alike: pd.DataFrame, numbers: Sequence[int], repeats: int
) -> Figure:
    """Below each other what was averaged and what comes back, of the first of each victim's prototypes.

    ``found``: for each prototype square images [P] by their names. ``alike``: a row for each prototype, with the number n
    of images in it, and the likeness of those that have one. ``numbers``: the n that are drawn. ``repeats``: how many
    prototypes each victim has of one n.
    """
    names = list(found[0])
    shown = [alike.index[alike["n"] == number][::repeats] for number in numbers]
    victims = len(shown[0])
    figure = plt.figure(figsize=(1.05 * victims * len(shown) + 1.6, 1.25 * len(names) + 0.4))
    widths = [victims + 1.2, *[victims] * (len(shown) - 1)]
    parts = figure.subfigures(1, len(shown), width_ratios=widths)
    for part, number, of_number in zip(parts, numbers, shown, strict=True):
        axes = part.subplots(len(names), victims, squeeze=False)
        part.suptitle(f"prototypes of {_images(number)}")
        for of_victim, place in zip(axes.T, of_number, strict=True):
            for ax, (name, image) in zip(of_victim, found[place].items(), strict=True):
                _image(ax, image.view(math.isqrt(len(image)), -1).numpy())
                if name in alike and name != names[0]:
                    ax.set_xlabel(f"{alike.loc[place, name]:z.2f}", size=10, labelpad=2)
    for ax, name in zip(parts[0].axes[::victims], names, strict=True):
        ax.set_ylabel("\n".join(wrap(name, 16)), rotation=0, ha="right", va="center", size=11)
    return figure


@plots.described("Likeness falls with the images in a prototype, is nothing without the network, grows with numbers sent")
def how_alike(by_size: pd.DataFrame, by_number: Mapping[int, float]) -> Figure:
    """Likeness to a member, left over the images in a prototype, right over the numbers that are sent for one image."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 3.8), sharey=True)
    looks = (("black", ":"), (_BLUE, "-"), ("0.5", "-"))
    places = ((1.25, 0.93), (1.15, 0.22), (1.3, -0.13))
    for name, (colour, style), place in zip(by_size, looks, places, strict=True):
        left.plot(by_size.index, by_size[name], "o" + style, color=colour, ms=5)
        left.annotate(name, place, color=colour)
    right.plot(list(by_number), list(by_number.values()), "o-", color=_BLUE, ms=5)
    right.annotate("victim's network, one image", (14, 0.24), color=_BLUE)
    sizes = np.geomspace(by_size.index.min(), by_size.index.max())
    left.plot(sizes, 1 / np.sqrt(sizes), color="0.8", lw=5, zorder=0)
    left.annotate(r"$1/\sqrt{n}$, as in (2)", (12, 0.4), color="0.5")
    left.set(xscale="log", xlabel="n, images in the prototype", ylabel="likeness to a member", ylim=(-0.2, 1.05))
    right.set_xscale("log", base=2)
    right.set_xlabel("d, numbers sent for one image of 64 pixels")
    for ax, ticks in ((left, by_size.index), (right, by_number)):
        ax.axhline(0, color="0.3", lw=0.8)
        ax.set_xticks(list(ticks), [str(n) for n in ticks])
        ax.minorticks_off()
    return figure


def _image(ax: Axes, image: np.ndarray) -> None:
    ax.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="bicubic")
    ax.set(xticks=[], yticks=[])


def _images(number: int) -> str:
    return "one image" if number == 1 else f"{number} images"
