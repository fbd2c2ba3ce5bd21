"""Pictures of notebook 01: where MOON's contrast leads a representation, and how its runs ended."""

from collections.abc import Iterable, Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torch import Tensor

from fednb import plots, results

_BEGIN = "z_glob, where\na round begins"
_TOP = 90.0  # degrees: where circles have z_glob
# Tables with the weight μ in their rows, by the title of their panel; the first that has runs counts.
_WEIGHTS: Mapping[str, Iterable[str]] = {
    "digits, uneven classes": ["digits-moon-mu"],
    "digits, IID": ["digits-moon-iid"],
    "CIFAR-10, uneven classes\n(ours: 20 rounds)": ["moon-9-short"],
    "CIFAR-10, IID\n(ours: 20 rounds)": ["moon-8-short", "moon-8"],
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


def circles() -> Figure:
    """Four frames of `circle`."""
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.5))
    for ax, (theta, tau) in zip(axes, ((10, 0.5), (60, 0.5), (120, 0.5), (120, 0.1)), strict=True):
        circle(theta, tau, ax)
    return figure


def circle_to_move(theta: int = 60, tau: float = 0.5) -> None:
    """Show `circle` for one angle and one temperature: what sliders call."""
    plots.show(circle(theta, tau), f"MOON's loss on the circle, θ = {theta}°, τ = {tau:g}")


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


def messages() -> Axes:
    """A round of MOON for one client: the messages are FedAvg's, and one model stays behind."""
    _, ax = plt.subplots(figsize=(9, 2.9))
    style = "round,pad=0.12"
    for x, y, width, text, colour in (
        (4.5, 2.4, 2.2, "server: model $w$", "#f0f0f0"),
        (4.5, 0.4, 3.4, "client $i$: cross-entropy + μ · contrast", "#e8f1f8"),
        (8.1, 0.4, 2.2, "kept: its last model,\nfor $z_{prev}$", "#fdf1dd"),
    ):
        box = FancyBboxPatch((x - width / 2, y - 0.22), width, 0.44, style, fc=colour, ec="0.5")
        ax.add_patch(box)
        ax.text(x, y, text, ha="center", va="center", size="small")
    arrow = {"arrowstyle": "->", "lw": 1.6, "color": plots.colour("MOON")}
    ax.annotate("", (4.3, 0.8), (4.3, 2.05), arrowprops=arrow)
    ax.annotate("", (4.7, 2.05), (4.7, 0.8), arrowprops=arrow)
    ax.annotate("", (6.9, 0.52), (6.35, 0.52), arrowprops=arrow)
    ax.annotate("", (6.35, 0.28), (6.9, 0.28), arrowprops=arrow)
    ax.text(4.15, 1.42, "down: $w$, which also\ngives $z_{glob}$", ha="right", va="center", size="small")
    ax.text(4.85, 1.42, "up: $w_i$ and the\nnumber of images", va="center", size="small")
    ax.set(xlim=(1.2, 9.6), ylim=(-0.1, 2.8))
    ax.axis("off")
    return ax


def features_and_head(measured: pd.DataFrame, floor: float, ceiling: float) -> Figure:
    """How good features and output layer are before and after a round of local training.

    ``measured`` has a line for each round, and columns "features before", "features after",
    "output before" and "output after" (%). ``floor`` are the features of the untrained network,
    ``ceiling`` those of a network that was trained on all the data.
    """
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.7), sharey=True)
    titles = {"features": "features (ten neighbours in z vote)", "output": "output layer"}
    for ax, (what, title) in zip(axes, titles.items(), strict=True):
        before = measured[f"{what} before"]
        after = measured[f"{what} after"]
        for number, start, end in zip(measured.index, before, after, strict=True):
            arrow = {"arrowstyle": "->", "color": "0.5", "lw": 1.2}
            ax.annotate("", (number, end), (number, start), arrowprops=arrow)
        ax.plot(measured.index, before, "o-", color=plots.colour("FedAvg"))
        ax.plot(measured.index, after, "o--", color=plots.colour("FedProto"))
        last = measured.index[-1]
        ax.set(title=title, xlabel="rounds of FedAvg so far", xticks=measured.index)
    look = {"color": plots.colour("FedProto")}
    plots.label(ax, (last, before.iloc[-1]), "global\nmodel", (8, -6), color=plots.colour("FedAvg"))
    plots.label(ax, (last, after.iloc[-1]), "clients, after\none more\nlocal round", (8, -24), **look)
    axes[0].axhline(floor, color="0.6", ls=":")
    axes[0].text(last, floor - 8, "untrained network (dotted)", color="0.4", ha="right", va="top")
    axes[0].axhline(ceiling, color="0.6", ls=":")
    axes[0].text(measured.index[0], ceiling + 1, "trained on all the data", color="0.4", ha="left")
    axes[0].set(ylabel="accuracy on test images (%)", ylim=(0, 106))
    return figure


def four_images(x: Tensor, y: Tensor, start: pd.DataFrame, end: pd.DataFrame) -> Figure:
    """Images x [4, 1, H, W] of classes y [4]; below each its numbers at a round's start and end.

    ``start`` and ``end`` have a line for each image and the same columns.
    """
    figure, axes = plt.subplots(1, 4, figsize=(11, 3.6))
    for number, ax in enumerate(axes):
        ax.imshow(x[number, 0], cmap="gray_r")
        ax.set_title(f"a {int(y[number])}")
        lines = []
        for name in start.columns:
            before = start[name].iloc[number]
            after = end[name].iloc[number]
            lines.append(f"{name}: {before:.2f} → {after:.2f}")
        text = "\n".join(lines)
        ax.text(0.5, -0.06, text, transform=ax.transAxes, ha="center", va="top", fontsize=10)
        ax.axis("off")
    return figure


def fans(measured: pd.DataFrame, names: Iterable[str]) -> Figure:
    """Measured mean angles as three arrows: z_prev, z_glob and the trained z.

    The columns of ``measured`` are "z_glob to z_prev", "z to z_glob" and "z to z_prev". Three
    directions need not lie in one plane; z is drawn at its measured angle from z_glob, on the side
    away from z_prev if that fits its angle to z_prev better.
    """
    names = list(names)
    figure, axes = plt.subplots(1, len(names), figsize=(3.3 * len(names), 3.2))
    for ax, name in zip(np.atleast_1d(axes), names, strict=True):
        apart, to_glob, to_prev = measured.loc[name].iloc[:3]
        beyond = abs(apart + to_glob - to_prev)
        between = abs(abs(apart - to_glob) - to_prev)
        trained = _TOP - to_glob if beyond < between else _TOP + to_glob
        arrows = [("z_prev", _TOP + apart, "0.5", 1.0), ("z_glob", _TOP, "black", 1.0)]
        arrows.append(("z", trained, plots.colour(name), 1.35))
        for word, place, colour, length in arrows:
            tip = {"arrowstyle": "-|>", "color": colour, "lw": 2.5}
            ax.annotate("", _at(place, length), (0, 0), arrowprops=tip)
            spot = _at(place, length + 0.16)
            if word == "z_prev":  # under its arrow, since z may lie on it
                spot = _at(place + 28, 0.8)
            ax.annotate(word, spot, color=colour, ha="center", va="center")
        minimum = apart / 2
        ax.plot(*_at(minimum), "*", ms=16, color="black", mfc="white")
        plots.label(ax, _at(minimum), "minimum of\nthe contrast", (9, -12), size="small")
        ax.set(aspect="equal", xlim=(-1.6, 1.6), ylim=(-0.5, 1.55), title=name)
        ax.axis("off")
    return figure


def sides() -> Axes:
    """Accuracy on the digits with the pull, the push, and both without σ: a dot for each seed."""
    rows = {
        "FedAvg": "FedAvg",
        "MOON": "MOON",
        "pull alone": "the pull alone",
        "push alone": "the push alone",
        "pull and push, without sigma": "pull and push,\nwithout σ",
    }
    _, ax = plt.subplots(figsize=(8.5, 3))
    for y, row in enumerate(rows):
        cell = results.cell("digits-moon-sides", row)
        colour = plots.colour("FedAvg" if row == "FedAvg" else "MOON")
        ax.plot(cell.values, [y] * len(cell.values), "o", color=colour, ms=6, alpha=0.5)
        ax.plot(cell.mean, y, "|", color=colour, ms=24, mew=2)
    ax.set(xlabel="accuracy on the digits (%)", ylim=(len(rows) - 0.5, -0.5))
    ax.set_yticks(range(len(rows)), list(rows.values()))
    ax.grid(axis="x", alpha=0.3)
    return ax


def absolute() -> Axes:
    """Accuracies on CIFAR-10 at the paper's length: reported, and every seed of ours."""
    of_method = {one.row: one for one in results.cells("moon-1") if one.column == "CIFAR-10"}
    names = ["FedAvg", "FedProx", "SCAFFOLD", "MOON"]
    _, ax = plt.subplots(figsize=(8.5, 3.2))
    for y, name in enumerate(names):
        cell = of_method[name]
        colour = plots.colour(name)
        ax.plot(cell.printed, y, "D", color="black", mfc="none", ms=9)
        for seed, accuracy in cell.by_seed.items():
            ax.plot(accuracy, y, "o", color=colour, ms=8)
            plots.label(ax, (accuracy, y), str(seed), (0, 8), ha="center", fontsize=8, color=colour)
        if len(cell.values) > 1:
            ax.plot(cell.mean, y, "|", color=colour, ms=24, mew=2)
    ax.plot([], [], "D", color="black", mfc="none", ms=9, label="reported by the paper")
    ax.plot([], [], "o", color="0.4", ms=8, label="ours, with its seed")
    ax.plot([], [], "|", color="0.4", ms=16, mew=2, ls="", label="mean of the seeds")
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 3}
    ax.legend(frameon=False, fontsize="small", **place)
    ax.set(xlabel="accuracy on CIFAR-10 after 100 rounds (%)", ylim=(len(names) - 0.5, -0.6))
    ax.set_yticks(range(len(names)), names)
    ax.grid(axis="x", alpha=0.3)
    return ax


def author_log() -> Axes:
    """The log of a re-run by MOON's author, and our runs of seed 0 on clients of the same sizes."""
    ours = results.accuracies("fedproc-2")
    log = results.printed(_LOG)
    _, ax = plt.subplots(figsize=(8.5, 4))
    ends = []
    for name in ("MOON", "FedProx"):
        accuracy = ours[name].loc[0]
        colour = plots.colour(name)
        ax.plot(accuracy.index, accuracy, color=colour, lw=1.5)
        points = {int(when.removeprefix("round ")): value for when, value in log[name].items()}
        ax.plot(points.keys(), points.values(), "D", color=colour, mfc="white", mew=1.8, ms=8)
        ends.append((points[100], f"{name}, the author's log", colour))
        ends.append((float(accuracy.iloc[-5:].mean()), f"{name}, ours", colour))
    lowest = min(height for height, _, _ in ends)
    for rank, (_, text, colour) in enumerate(sorted(ends)):
        place = lowest - 1.5 + 1.6 * rank  # so that no two texts overlap
        ax.annotate(text, (103, place), color=colour, va="center", annotation_clip=False)
    ax.set(xlabel="communication round", ylabel="test accuracy (%)", xlim=(0, 101), ylim=(45, 73))
    ax.grid(alpha=0.3)
    return ax


def weights() -> Figure:
    """Accuracy by the weight μ, measured and reported, on the digits and on CIFAR-10."""
    figure, axes = plt.subplots(1, len(_WEIGHTS), figsize=(12, 3.6), sharey=True)
    for ax, (title, names) in zip(axes, _WEIGHTS.items(), strict=True):
        measured: dict[float, tuple[float, ...]] = {}
        printed: dict[float, float] = {}
        for cell in (one for name in names for one in results.cells(name)):
            mu = float(cell.row.partition("mu=")[2].split()[0].rstrip(")"))
            if cell.column in ("Digits", "IID", "CIFAR-10", "Top-1 accuracy"):
                measured[mu] = measured.get(mu) or cell.values
                if cell.printed is not None:
                    printed[mu] = cell.printed
        for x, mu in enumerate(sorted(measured)):
            if mu in printed:
                ax.plot(x, printed[mu], "D", color="black", mfc="none", ms=8)
            look = {"color": plots.colour("MOON"), "ms": 7, "alpha": 0.6}
            ax.plot([x] * len(measured[mu]), measured[mu], "o", **look)
        ax.set_xticks(range(len(measured)), [f"{mu:g}" for mu in sorted(measured)])
        ax.set(xlabel="weight μ of the contrast", title=title)
        ax.grid(axis="y", alpha=0.3)
    axes[0].set(ylabel="accuracy (%)", ylim=(0, 100))
    axes[-1].plot([], [], "o", color=plots.colour("MOON"), label="ours, a dot for each seed")
    axes[-1].plot([], [], "D", color="black", mfc="none", label="the paper, 100 rounds")
    axes[-1].legend(frameon=False, fontsize="medium", loc="lower left")
    return figure
