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
    return likeness_to_each(image, members, guess).mean().item()


def likeness_to_each(image: Tensor, members: Tensor, guess: Tensor) -> Tensor:
    """The terms of (3), [n]."""
    a, b = image - guess, members - guess
    return F.cosine_similarity(a - a.mean(), b - b.mean(1, keepdim=True))


def likenesses(found: Sequence[Mapping[str, Tensor]], sent: Sequence[tuple[Tensor, Tensor]]) -> pd.DataFrame:
    """A row for each prototype: the number n of images in it, and the likeness to them of each image that was found.

    ``found``: for each prototype images by their names, of which the last is the guess. ``sent``: for each its images and
    the guess of the class.
    """
    rows = []
    for images, (members, guess) in zip(found, sent, strict=True):
        of_names = {name: likeness(image, members, guess) for name, image in list(images.items())[:-1]}
        rows.append({"n": len(members)} | of_names)
    return pd.DataFrame(rows)


@plots.described(
    "Three nines of one client and the mean of all its nines, what is sent of each, and what comes back: with the client's "
    "own network each nine has something of its own and the mean what most share; with another network a wrong shape"
)
def revealed() -> Figure:
    """What a client has, what it sends, and what an attacker makes of it with the client's network or with another's.

    Two clients train FedProto on the digits for six rounds, from first weights of their own. Of the prototypes of one
    image three are drawn, which stand at a quarter, at half and at three quarters if all are sorted by likeness.
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

    n = len(mine)
    order = np.argsort([likeness(seen(backs[0], z[j]), pixels[mine[j : j + 1]], guess) for j in range(n)])
    sent = [[order[int(share * (n - 1))]] for share in (0.75, 0.5, 0.25)] + [list(range(n))]
    rows = ("the client has", "it sends\n64 numbers", "seen with\nits network", "seen with another\nclient's network")
    figure = plt.figure(figsize=(10, 6.6))
    widths = [*[1] * len(sent), 0.12, 1]
    grid = figure.add_gridspec(len(rows), len(widths), height_ratios=(1, 0.3, 1, 1), width_ratios=widths)
    for column, places in enumerate(sent):
        axes = [figure.add_subplot(grid[row, column]) for row in range(len(rows))]
        members, prototype = pixels[mine[places]], z[places].mean(0)
        axes[0].set_title("one image" if len(places) == 1 else f"the mean of {n}", size=12)
        _image(axes[0], _side_by_side(members.view(-1, 8, 8).numpy()))
        axes[1].imshow(prototype[None], cmap="Purples", aspect="auto", interpolation="nearest")
        axes[1].set(xticks=[], yticks=[])
        for ax, image in zip(axes[2:], [seen(back, prototype) for back in backs], strict=True):
            _image(ax, image.view(8, 8).numpy())
            ax.set_xlabel(f"{likeness(image, members, guess):z.2f}", size=12, labelpad=3)
        if len(places) > 1:
            of_mean = likeness(members.mean(0), members, guess)  # no picture comes far above it
            axes[2].set_xlabel(f"{axes[2].get_xlabel()} ({of_mean:.2f})", size=12, labelpad=3)
        for ax, name in zip(axes if column == 0 else [], rows, strict=column == 0):
            ax.set_ylabel(name, size=12, rotation=0, ha="right", va="center")
    last = figure.add_subplot(grid[2, -1])
    _image(last, guess.view(8, 8).numpy())
    last.set_xlabel("0.00: only the\nclass is known", size=12, labelpad=3)
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
    figure = plt.figure(figsize=(1.05 * victims * len(shown) + 1.6, 1.32 * len(names) + 0.4))
    widths = [victims + 1.4, *[victims] * (len(shown) - 1)]
    parts = figure.subfigures(1, len(shown), width_ratios=widths)
    for part, number, of_number in zip(parts, numbers, shown, strict=True):
        axes = part.subplots(len(names), victims, squeeze=False)
        part.suptitle(f"prototypes of {_images(number)}")
        for of_victim, place in zip(axes.T, of_number, strict=True):
            for ax, (name, image) in zip(of_victim, found[place].items(), strict=True):
                _image(ax, image.view(math.isqrt(len(image)), -1).numpy())
                if name in names[1:-1]:
                    ax.set_xlabel(f"{alike.loc[place, name]:z.2f}", size=12.5, labelpad=2)
    for ax, name in zip(parts[0].axes[::victims], names, strict=True):
        ax.set_ylabel("\n".join(wrap(name, 19)), rotation=0, ha="right", va="center", size=11)
    return figure


@plots.described(
    "Likeness falls with the images in a prototype, and less with whether an image of the client is in it; with training "
    "the victim's network reads better, and another client's network stays of little use"
)
def how_alike(alike: pd.DataFrame, rho: float, hand: pd.DataFrame, rounds: Mapping[str, Mapping[int, float]]) -> Figure:
    """Likeness over the images in a prototype, to images that are in it and that are not, and over the rounds.

    ``alike``: a row for each prototype, with the number n of images in it, then the likeness of what was averaged, and of
    what comes back. ``rho``: the correlation of two members. ``hand``: a row for each prototype, a column for each kind of
    image. ``rounds``: by whose network it is the mean likeness to a single image, after some rounds.
    """
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.4), sharey=True, width_ratios=(1.6, 1.1, 1))
    by_size, looks = alike.groupby("n").mean(), ("black", _BLUE, "0.5")
    sizes = np.geomspace(by_size.index.min(), by_size.index.max())
    left.plot(sizes, np.sqrt((1 + (sizes - 1) * rho) / sizes), color="0.85", lw=6, zorder=0)
    left.plot(sizes, 1 / np.sqrt(sizes), "--", color="black", lw=1, zorder=1)
    left.annotate("as (2) says", (5.2, 0.63), color="0.5")
    left.annotate(r"$1/\sqrt{n}$", (11, 0.17), color="black")
    for name, colour, place in zip(by_size, looks, ((1.5, 0.94), (1.1, 0.39), (1.1, 0.04)), strict=True):
        left.plot(by_size.index, by_size[name], "o" if colour == "black" else "o-", color=colour, ms=5)
        left.annotate(name, place, color=colour)
    left.set(xscale="log", xlabel="n, images in the prototype", ylabel="likeness", ylim=(-0.3, 1.05))
    left.set_xticks(list(by_size.index), [str(n) for n in by_size.index])
    left.set_title("prototypes of n images:\nlikeness to the members", size="medium")
    sides = np.random.default_rng(0).uniform(-0.22, 0.22, len(hand))
    for x, name in enumerate(hand):
        middle.plot(x + sides, hand[name], "o", color=_BLUE, ms=4, alpha=0.4)
        middle.plot([x - 0.3, x + 0.3], [hand[name].mean()] * 2, color=_BLUE, lw=3)
        middle.annotate(f"{hand[name].mean():z.2f}", (x, 0.92), color=_BLUE, ha="center")
    of_members, n = hand.iloc[:, 0].mean(), 7
    expected = of_members * n * rho / (1 + (n - 1) * rho)
    middle.plot([0.64, 1.36], [expected] * 2, color="0.75", lw=7, zorder=0)
    middle.annotate("as (2)\nsays", (1.4, expected), color="0.5", va="center")
    middle.set_xticks(range(len(hand.columns)), ["\n".join(wrap(name, 14)) for name in hand])
    middle.set_title("prototypes of seven, victim's network:\nlikeness to …", size="medium")
    for (name, values), colour, below in zip(rounds.items(), (_BLUE, "C1", "0.5"), (0.07, 0.07, -0.22), strict=True):
        right.plot(list(values), list(values.values()), "o-", color=colour, ms=5)
        right.annotate("\n".join(wrap(name, 24)), (max(values), values[max(values)] + below), color=colour, ha="right")
    right.set(xscale="log", xlabel="rounds")
    right.set_xticks(list(values), [str(number) for number in values])
    right.set_title("prototypes of one image:\nlikeness to it", size="medium")
    for ax in (left, middle, right):
        ax.axhline(0, color="0.3", lw=0.8)
        ax.minorticks_off()
    return figure


def _image(ax: Axes, image: np.ndarray) -> None:
    ax.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="bicubic")
    ax.set(xticks=[], yticks=[])


def _images(number: int) -> str:
    return "one image" if number == 1 else f"{number} images"
