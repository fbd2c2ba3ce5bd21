"""Pictures of notebook 01: where MOON's contrast leads a representation, and how its runs ended."""

from collections.abc import Iterable, Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from fednb.papers.pictures import scheme
from fednb.papers.pictures.foundations import CLIENTS
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fednb import plots, results

_BEGIN = "z_glob, where\na round begins"
_TOP = 90.0  # degrees: where circles have z_glob
# Tables with the weight μ in their rows, by the data and then the split that they are of.
_WEIGHTS: Mapping[str, Mapping[str, Iterable[str]]] = {
    "digits (10 rounds; a dot is a seed)": {"uneven classes": ["digits-moon-mu"], "IID": ["digits-moon-iid"]},
    "CIFAR-10 (ours: 20 rounds; a dot is a seed)": {
        "uneven classes": ["moon-9-short"],
        "IID": ["moon-8-short", "moon-8"],
    },
}
_LOG = "flower-moon log"  # of the re-run by MOON's author, in data/reported.csv


def _at(degrees: Any, radius: float = 1.0) -> tuple[Any, Any]:
    """Points of the circle: their x, their y."""
    return radius * np.cos(np.radians(degrees)), radius * np.sin(np.radians(degrees))


def _contrast(degrees: np.ndarray, z_glob: float, z_prev: float, temperature: float = 0.5) -> np.ndarray:
    """The loss of equation (3) for representations in these directions."""
    to_glob = np.cos(np.radians(degrees - z_glob))
    to_prev = np.cos(np.radians(degrees - z_prev))
    return np.log1p(np.exp((to_prev - to_glob) / temperature))


@plots.described("A circle of directions; the loss is lowest beyond the global model, away from z_prev")
def overshoot() -> Axes:
    """The contrast around the circle of directions: its minimum lies beyond the global model."""
    z_prev, z_glob, minimum = 150.0, 90.0, 30.0  # in degrees
    direction = np.arange(0.0, 360.0)
    loss = _contrast(direction, z_glob, z_prev)
    _, ax = plt.subplots(figsize=(8.5, 4.6))
    ax.scatter(*_at(direction), color="0.75", s=150)
    ring = ax.scatter(*_at(direction), c=loss, cmap="YlGnBu", s=110)
    plt.colorbar(ring, ax=ax, label="contrastive loss", shrink=0.8)
    colour = plots.colour("MOON")
    ax.plot(*_at(np.linspace(z_glob - 2, minimum + 6, 40), 0.84), color=colour, lw=2.5)
    arrow = {"color": colour, "lw": 2}
    ax.annotate("", _at(minimum + 3, 0.84), _at(minimum + 9, 0.84), arrowprops=arrow)
    ax.annotate("MOON's\novershoot", _at(62, 0.52), color=colour, ha="center", weight="bold")
    for place, mark, size in ((z_prev, "s", 11), (z_glob, "s", 11), (minimum, "*", 22)):
        ax.plot(*_at(place), mark, ms=size, color="black")
    ax.annotate("z_prev, the client's\nlast model", _at(z_prev, 1.12), ha="right", va="center")
    ax.annotate(_BEGIN, _at(z_glob, 1.1), ha="center", va="bottom")
    ax.annotate("the minimum", _at(minimum, 1.12), va="center")
    ax.set(aspect="equal", xlim=(-1.8, 1.8), ylim=(-1.1, 1.5))
    ax.axis("off")
    return ax


def circle(theta: float = 60, tau: float = 0.5, ax: Axes | None = None) -> Axes:
    """MOON's loss around the circle, for frozen models ``theta`` degrees apart and ``tau``.

    Dark is a large loss, on the scale of this circle. Below it stands the length of the gradient
    (4) at z_glob, for representations of unit length.
    """
    if ax is None:
        _, ax = plt.subplots(figsize=(4, 4.4))
    direction = np.arange(0.0, 360.0, 2.0)
    loss = _contrast(direction, _TOP, _TOP + theta, tau)
    ax.scatter(*_at(direction), c=loss, cmap="YlGnBu", s=60)
    ax.plot(*_at(_TOP), "s", ms=9, color="black")
    ax.plot(*_at(_TOP + theta), "s", ms=9, color="black", mfc="white")
    ax.plot(*_at(theta / 2), "*", ms=17, color="black")  # 90° − θ/2 beyond z_glob
    ax.annotate("z_glob", _at(_TOP - 3, 1.13), ha="left" if theta < 25 else "center", va="bottom")
    side = "center" if theta > 150 else "right"
    height = 1.17 if theta > 25 else 1.35
    ax.annotate("z_prev", _at(_TOP + theta + 3, height), ha=side, va="center")
    ax.annotate("minimum", _at(theta / 2, 1.17), va="center")
    cosine = np.cos(np.radians(theta))
    share = 1 / (1 + np.exp((1 - cosine) / tau))  # σ(u) at z_glob
    push = share / tau * np.sin(np.radians(theta))
    ax.text(0, 0, f"push at z_glob\n{push:.2f}", ha="center", va="center")
    ax.set(aspect="equal", xlim=(-1.9, 1.9), ylim=(-1.35, 1.45), title=f"θ = {theta:.0f}°, τ = {tau:.1f}")
    ax.axis("off")
    return ax


@plots.described(
    "Three circles: the minimum is always beyond z_glob; of the three the one at 60° has the strongest push there"
)
def circles() -> Figure:
    """Three frames of `circle`."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.8))
    for ax, theta in zip(axes, (10, 60, 120), strict=True):
        circle(theta, ax=ax)
    return figure


def circle_to_move(theta: int = 60, tau: float = 0.5) -> None:
    """Show `circle` for one angle and one temperature: what sliders call."""
    plots.show(circle(theta, tau), f"MOON's loss on the circle, θ = {theta}°, τ = {tau:g}")


@plots.described("Left, MOON stops nearer to the minimum than FedAvg; right, it arrives later")
def help_and_harm(drifting: Mapping[float, np.ndarray], learning: Mapping[float, np.ndarray]) -> Figure:
    """The global direction over rounds, for clients that only drift and for clients that still learn.

    Both by the weight μ, in degrees, [rounds + 1]; the best directions are -51° and 60°.
    """
    best = np.degrees(np.arctan2(-2.5 * np.sin(np.radians(60)), 3.5 * np.cos(np.radians(60))))
    panels = [(drifting, best, "clients that drift"), (learning, 60.0, "clients that still learn")]
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8))
    for ax, (paths, minimum, title) in zip(axes, panels, strict=True):
        for mu, path in reversed(list(paths.items())):  # FedAvg last, on top of what agrees with it
            look: dict[str, Any] = {"color": plots.colour("MOON" if mu else "FedAvg")}
            style = {0.3: ":", 3: "--"}.get(mu, "-")
            words = f"MOON, μ = {mu:g}" if mu else "FedAvg"
            ax.plot(path, style, marker=".", lw=1.6, label=words, **look)
        ax.axhline(minimum, color="0.5", lw=1)
        ax.plot(len(path) - 0.4, minimum, "*", ms=16, color="black", clip_on=False)
        ax.set(title=title, xlabel="rounds done", ylabel="direction of z_glob (degrees)")
        ax.margins(y=0.12)
        plots.label(ax, (0.2, minimum), "the minimum of the sum", (0, 5))
    axes[1].legend(frameon=False, fontsize="small", loc="lower right", reverse=True)
    return figure


@plots.described("With uneven classes a local round lowers the representations early and the output layer later")
def features_and_head(drift: pd.DataFrame) -> Figure:
    """How good z and the output layer are before and after a local round, with a control.

    ``drift`` has a line for each network, with the columns "split" ("dirichlet" or "iid"), "round"
    (0 is untrained), "when" ("before" a local round or "after" it), and accuracies (%) "z" and
    "output"; drawn are means.
    """
    means = drift.groupby(["split", "when", "round"]).mean()
    untrained = means["z"].xs(("before", 0), level=("when", "round")).mean()
    trained = means.drop(0, level="round")
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.6), sharey=True)
    of_clients = {"dirichlet": "uneven classes", "iid": "all classes alike"}
    of_parts = {"z": "representations", "output": "output layer"}
    places = [(part, split) for part in of_parts for split in of_clients]
    look = {"color": CLIENTS[0]}
    for ax, (part, split) in zip(axes, places, strict=True):
        before = trained.loc[split, "before"][part]
        after = trained.loc[split, "after"][part]
        ax.vlines(before.index, after, before, lw=2, **look)
        ax.plot(before.index, before, "o-", color=plots.colour("FedAvg"))
        ax.plot(after.index, after, "o", ms=8, mfc="white", mew=2, **look)
        ax.set(title=f"{of_parts[part]},\n{of_clients[split]}", xlabel="rounds of FedAvg so far")
        ax.set(xticks=before.index, xlim=(0.5, before.index[-1] + 0.5), ylim=(0, 102))
    for ax in axes[:2]:
        ax.axhline(untrained, color="0.6", ls=":")
    axes[0].text(5.4, untrained - 13, "untrained\nnetwork", color="0.4", ha="right", va="top")
    axes[1].text(0.7, 25, "the global model", color=plots.colour("FedAvg"))
    axes[1].text(0.7, 10, "its clients after\none more local round", va="center", **look)
    axes[0].set(ylabel="accuracy on test images (%)")
    return figure


@plots.described("Four digits, and under each the cosines, u and the loss at the start and end of a round")
def walk(x: Tensor, y: Tensor, *, start: Mapping[str, Tensor], end: Mapping[str, Tensor]) -> Figure:
    """Images with their classes, and under each what became of some quantities in a local round."""
    titles = [f"a {k}" for k in y.tolist()]
    texts = []
    for i in range(len(y)):
        lines = [f"{name}: {start[name][i]:.2f} → {end[name][i]:.2f}" for name in start]
        texts.append("\n".join(lines))
    return scheme.images(x[:, 0], titles, texts)


@plots.described("Arrows: with uneven classes FedAvg's z returns to z_prev; MOON's lies beyond z_glob, towards the star")
def fans(measured: Mapping[str, np.ndarray]) -> Figure:
    """Measured angles as arrows: z_prev, z_glob and the trained z; thin lines are single seeds.

    For each name [seeds, 3]: the angles (degrees) from z_glob to z_prev, from z to z_glob and from
    z to z_prev. Three directions need not lie in one plane; z is drawn at its measured angle from
    z_glob, on the side away from z_prev if that fits its angle to z_prev better.
    """
    figure, axes = plt.subplots(1, len(measured), figsize=(3.5 * len(measured), 3.3))
    for ax, (name, of_seeds) in zip(axes, measured.items(), strict=True):
        colour = plots.colour(name)
        for apart, to_glob, to_prev in of_seeds:
            ends = _at(np.array([_TOP + apart, _trained(apart, to_glob, to_prev)]))
            for x, y, line in zip(*ends, ("0.5", colour), strict=True):
                ax.plot([0, x], [0, y], color=line, lw=0.8, alpha=0.6)
        apart, to_glob, to_prev = of_seeds.mean(0)
        trained = _trained(apart, to_glob, to_prev)
        arrows = [("z_prev", _TOP + apart, "0.5", 1.0), ("z_glob", _TOP, "black", 1.0)]
        arrows.append(("z", trained, colour, 1.35))
        for word, place, line, length in arrows:
            tip = {"arrowstyle": "-|>", "color": line, "lw": 2.5}
            ax.annotate("", _at(place, length), (0, 0), arrowprops=tip)
            spot = _at(place, length + 0.16)
            if word == "z_prev":  # under its arrow, since z may lie on it
                spot = _at(place + 28, 0.8)
            ax.annotate(word, spot, color=line, ha="center", va="center")
        minimum = apart / 2
        ax.plot(*_at(minimum), "*", ms=16, color="black", mfc="white")
        plots.label(ax, _at(minimum), "minimum of\nthe contrast", (9, -12), size="small")
        title = f"{name}: z_prev to z is {to_prev:.0f}°"
        ax.set(aspect="equal", xlim=(-1.6, 1.6), ylim=(-0.5, 1.55), title=title)
        ax.axis("off")
    return figure


def _trained(apart: float, to_glob: float, to_prev: float) -> float:
    """The place of the trained z on the circle: beyond z_glob, or on the side of z_prev."""
    beyond = abs(apart + to_glob - to_prev)
    between = abs(abs(apart - to_glob) - to_prev)
    return _TOP - to_glob if beyond < between else _TOP + to_glob


@plots.described("FedProx agrees with the log of MOON's author for 100 rounds, MOON ends below it")
def author_log() -> Axes:
    """The log of a re-run by MOON's author, and our runs of seed 0 on clients of the same sizes."""
    _, ax = plt.subplots(figsize=(7.5, 4))
    ours = results.accuracies("fedproc-2")
    log = results.printed(_LOG)
    ends = []
    for name in ("MOON", "FedProx"):
        accuracy = ours[name].loc[0]
        colour = plots.colour(name)
        ax.plot(accuracy.index, accuracy, color=colour, lw=1.5)
        points = {int(when.removeprefix("round ")): value for when, value in log[name].items()}
        ax.plot(points.keys(), points.values(), "D", color=colour, mfc="white", mew=1.8, ms=8)
        ends.append((points[100], f"{name}, the log", colour))
        ends.append((float(accuracy.iloc[-5:].mean()), f"{name}, ours", colour))
    lowest = min(height for height, _, _ in ends)
    for rank, (_, text, colour) in enumerate(sorted(ends)):
        place = lowest - 1.5 + 1.9 * rank  # so that no two texts overlap
        ax.annotate(text, (103, place), color=colour, va="center", annotation_clip=False)
    ours_ends = ours["MOON"].loc[0].iloc[-1]
    log_ends = log["MOON"]["round 100"] or np.nan
    gap: dict[str, Any] = {"arrowprops": {"arrowstyle": "<->", "color": plots.colour("MOON")}}
    ax.annotate("", (96, log_ends), (96, ours_ends), **gap)
    text = f"{log_ends - ours_ends:.1f} points after 100 rounds"
    ax.text(100, 73, text, ha="right", va="center", color=plots.colour("MOON"))
    title = "seed 0, and the log of MOON's author"
    ax.set(xlabel="communication round", ylabel="test accuracy (%)", title=title)
    ax.set(xlim=(0, 101), ylim=(45, 75))
    return ax


@plots.described("Accuracy falls with a large mu on the digits, and is flat on CIFAR-10, in the paper and here")
def weights() -> Figure:
    """Accuracy by the weight μ, measured and reported, on the digits and on CIFAR-10."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), width_ratios=(1, 1.15))
    colour = plots.colour("MOON")
    for ax, (title, splits) in zip(axes, _WEIGHTS.items(), strict=True):
        weights_there: list[float] = []
        for (split, names), shift in zip(splits.items(), (-0.1, 0.1), strict=True):
            measured, printed = _by_weight(names)
            weights_there = sorted(measured)
            look: dict[str, Any] = {"color": colour, "mfc": "white" if split == "IID" else colour}
            means = [(x + shift, np.mean(measured[mu])) for x, mu in enumerate(weights_there) if measured[mu]]
            ax.plot(*np.transpose(means), "--" if split == "IID" else "-", color=colour, lw=1.2)
            for x, mu in enumerate(weights_there):
                ax.plot([x + shift] * len(measured[mu]), measured[mu], "o", ms=6, **look)
            name = f"ours, {split}" if printed else split
            ends_early = len(means) < len(weights_there)  # then what lies right of it needs the room
            plots.label(ax, means[-1], name, (-8, -15) if ends_early else (9, 0), color=colour, va="center")
            if printed:
                reported = [(x + shift, printed[mu]) for x, mu in enumerate(weights_there) if mu in printed]
                ax.plot(*np.transpose(reported), "D", color="black", mfc="none", ms=8)
                plots.label(ax, reported[-1], f"the paper, {split}", (9, 0), va="center")
        ax.set_xticks(range(len(weights_there)), [f"{mu:g}" for mu in weights_there])
        ax.set(xlabel="weight μ of the contrast", title=title)
        ax.grid(axis="y", alpha=0.3)
    axes[0].set(ylabel="accuracy (%)", ylim=(0, 100))
    axes[1].set(ylim=(55, 75))
    return figure


def _by_weight(names: Iterable[str]) -> tuple[dict[float, tuple[float, ...]], dict[float, float]]:
    """What was measured and what is printed, by the weight μ; of several tables the first with runs."""
    measured: dict[float, tuple[float, ...]] = {}
    printed: dict[float, float] = {}
    for cell in (one for name in names for one in results.cells(name)):
        mu = float(cell.row.partition("mu=")[2].split()[0].rstrip(")"))
        if cell.column in ("Digits", "IID", "CIFAR-10", "Top-1 accuracy"):
            measured[mu] = measured.get(mu) or cell.values
            if cell.printed is not None:
                printed[mu] = cell.printed
    return measured, printed
