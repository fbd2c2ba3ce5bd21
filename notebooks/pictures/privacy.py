"""Pictures of the notebook on privacy: what a prototype reveals, what comes back of several, and how alike."""

import math
from collections.abc import Mapping, Sequence
from textwrap import wrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from fednb.papers.fedproto import METHODS
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.linear_model import Ridge
from torch import Tensor

from fednb import build, plots
from fednb.settings import resolve

_BLUE = "C0"  # with the victim's network
_NINE = 9  # the class of the first picture


def likeness(image: Tensor, members: Tensor, guess: Tensor) -> float:
    """How much of the members [n, P] is in an image [P], beyond what a guess [P] of the class has: (3)."""
    a, b = image - guess, members - guess
    return F.cosine_similarity(a - a.mean(), b - b.mean(1, keepdim=True)).mean().item()


@plots.described("With its own network a client's single nine mostly comes back, of 16 less, without it a blot")
def revealed() -> Figure:
    """What a client has, what it sends, and what an attacker makes of it with the client's network or with another's.

    Two clients train FedProto on the digits for six rounds, from first weights of their own. Of the prototypes of one
    image those are drawn that come back best, as the median, and worst.
    """
    given = {"dataset": "digits", "partition": "n-way-k-shot", "num_clients": 2, "ways": 8, "own_start": True}
    federation = build.federation(resolve(METHODS, method="FedProto", seed=6, **given), METHODS, device="cpu")
    for _ in range(6):
        federation.run_round()
    attackers, pixels = (images.flatten(1) / 255 for images in (federation.dataset.test_images, federation.dataset.images))
    guess = attackers[federation.dataset.test_labels == _NINE].mean(0)
    client = federation.clients[0]
    mine = client.indices[client.labels == _NINE]
    backs, z = [], torch.empty(0)  # of each client's network the way back
    for one in federation.clients[::-1]:  # the victim last
        network = federation.build_model().eval()
        network.load_state_dict(one.memory["model"])
        with torch.no_grad():
            backs.insert(0, Ridge().fit(network(federation.images.test_inputs()).representation, attackers))
            z = network(federation.images.inputs(mine)).representation

    def seen(back: Ridge, prototype: Tensor) -> Tensor:
        return torch.as_tensor(back.predict(prototype[None].numpy()).clip(0, 1)[0]).float()

    single = [likeness(seen(backs[0], z[j]), pixels[mine[j : j + 1]], guess) for j in range(len(mine))]
    worst, *_, best = order = np.argsort(single)
    rows = {
        "one image: the best": [best],
        "one image: the median": [order[len(order) // 2]],
        "one image: the worst": [worst],
        f"all {len(mine)} together": list(range(len(mine))),
    }
    figure, axes = plt.subplots(len(rows), 5, figsize=(9, 7.8))
    seen_with = ("seen with\nits network", "seen with another\nclient's network", "only the class\nknown")
    for ax, title in zip(axes[0], ("what the client has", "what it sends:\n64 numbers", *seen_with), strict=True):
        ax.set_title(title, size=12)
    for of_row, (name, places) in zip(axes, rows.items(), strict=True):
        members, prototype = pixels[mine[places]], z[places].mean(0)
        _image(of_row[0], _side_by_side(members.view(-1, 8, 8).numpy()))
        of_row[1].imshow(prototype[None], cmap="Purples", aspect="auto", interpolation="nearest")
        of_row[1].set(xticks=[], yticks=[], box_aspect=0.4)
        for ax, image in zip(of_row[2:], [*(seen(back, prototype) for back in backs), guess], strict=True):
            _image(ax, image.view(8, 8).numpy())
            ax.set_xlabel(f"{likeness(image, members, guess):z.2f}", size=11, labelpad=3)
        of_row[0].set_ylabel("\n".join(wrap(name, 12)), size=12)
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


@plots.described("With the victim's own network a single image's strokes come back, and of fifteen those that they share")
def reconstructions(
    found: Sequence[Mapping[str, Tensor]], alike: pd.DataFrame, numbers: Sequence[int], repeats: int, victims: int = 5
) -> Figure:
    """Below each other what was averaged and what comes back, of the first of each victim's prototypes.

    ``found``: for each prototype square images [P] by their names. ``alike``: a row for each prototype, with the number n
    of images in it, and the likeness by the same names. ``numbers``: the n that are drawn. ``repeats``: how many
    prototypes each victim has of one n. ``victims``: so many are drawn, the first ones.
    """
    names = list(found[0])
    shown = [alike.index[alike["n"] == number][::repeats][:victims] for number in numbers]
    victims = len(shown[0])
    figure = plt.figure(figsize=(1.05 * victims * len(shown) + 1.6, 1.25 * len(names) + 0.4))
    widths = [victims + 1.4, *[victims] * (len(shown) - 1)]
    parts = figure.subfigures(1, len(shown), width_ratios=widths)
    for part, number, of_number in zip(parts, numbers, shown, strict=True):
        axes = part.subplots(len(names), victims, squeeze=False)
        part.suptitle(f"prototypes of {_images(number)}")
        for of_victim, place in zip(axes.T, of_number, strict=True):
            for ax, (name, image) in zip(of_victim, found[place].items(), strict=True):
                _image(ax, image.view(math.isqrt(len(image)), -1).numpy())
                if name in names[1:-1]:
                    ax.set_xlabel(f"{alike.loc[place, name]:z.2f}", size=10, labelpad=2)
    for ax, name in zip(parts[0].axes[::victims], names, strict=True):
        ax.set_ylabel("\n".join(wrap(name, 19)), rotation=0, ha="right", va="center", size=11)
    return figure


@plots.described("Likeness falls with the images in a prototype; of single images much comes back with the right network")
def how_alike(alike: pd.DataFrame, rho: float) -> Figure:
    """Likeness to a member: left the mean over the images in a prototype, right each prototype of one image.

    ``alike``: a row for each prototype, with the number n of images in it, then the likeness of what was averaged, and
    what comes back with the victim's network and with two others. ``rho``: the correlation of two members.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4), sharey=True)
    by_size = alike.groupby("n").mean()
    (originals, *networks), looks = by_size.columns, (_BLUE, "C1", "0.5")
    sizes = np.geomspace(by_size.index.min(), by_size.index.max())
    left.plot(sizes, np.sqrt((1 + (sizes - 1) * rho) / sizes), color="0.85", lw=6, zorder=0)
    left.plot(sizes, 1 / np.sqrt(sizes), "--", color="black", lw=1, zorder=1)
    left.annotate("as (2) says", (5.6, 0.62), color="0.5")
    left.annotate(r"$1/\sqrt{n}$", (12, 0.15), color="black")
    left.plot(by_size.index, by_size[originals], "o", color="black", ms=6)
    left.annotate(originals, (1.45, 0.93), color="black")
    places = ((1.1, 0.41), (1.1, 0.21), (1.1, -0.11))
    single = alike[alike["n"] == 1]
    sides = np.random.default_rng(0).uniform(-0.22, 0.22, len(single))
    for x, (name, colour, place) in enumerate(zip(networks, looks, places, strict=True)):
        left.plot(by_size.index, by_size[name], "o-", color=colour, ms=5)
        left.annotate(name, place, color=colour)
        right.plot(x + sides, single[name], "o", color=colour, ms=4, alpha=0.5)
        right.plot([x - 0.3, x + 0.3], [single[name].mean()] * 2, color=colour, lw=3)
        right.annotate(f"{single[name].mean():z.2f}", (x + 0.33, single[name].mean() + 0.03), color=colour)
    left.set(xscale="log", xlabel="n, images in the prototype", ylabel="likeness to a member", ylim=(-0.6, 1.05))
    left.set_xticks(list(by_size.index), [str(n) for n in by_size.index])
    left.minorticks_off()
    right.set_xticks(range(len(networks)), ["\n".join(wrap(name, 19)) for name in networks])
    right.set(xlabel="prototypes of one image, and their mean", xlim=(-0.5, len(networks) - 0.3))
    for ax in (left, right):
        ax.axhline(0, color="0.3", lw=0.8)
    return figure


def _image(ax: Axes, image: np.ndarray) -> None:
    ax.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="bicubic")
    ax.set(xticks=[], yticks=[])


def _images(number: int) -> str:
    return "one image" if number == 1 else f"{number} images"
