"""Pictures of notebook 01: where MOON's contrast leads a representation."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from fednb.papers.pictures import scheme
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fednb import plots, results

_BEGIN = "z_glob, where\na round begins"
_TOP = 90.0  # degrees: where circles have z_glob
# For MOON − FedAvg over the rounds: by panel the rounds done, with the table and column of the accuracies then.
_OVER_ROUNDS = {
    "digits, 5 epochs a round": {
        "2": ("digits-fedproc-tenth", "T=20"),
        "4": ("digits-fedproc-tenth", "T=40"),
        "5": ("digits-fedproc-rounds", "T=5"),
        "10": ("digits-fedproc-rounds", "T=10"),
        "20": ("digits-fedproc-rounds", "T=20"),
        "40": ("digits-fedproc-rounds", "T=40"),
    },
    "CIFAR-10, 5 epochs": {
        "2": ("fedproc-figure-4-short-tenth", "CIFAR-10"),
        "10": ("fedproc-figure-4-short-half", "CIFAR-10"),
        "20": ("moon-1-short", "CIFAR-10"),
    },
    "CIFAR-10, 10 epochs": {
        "10": ("fedproc-figure-4-tenth", "CIFAR-10"),
        "50": ("fedproc-figure-4-half", "CIFAR-10"),
        "100": ("moon-1", "CIFAR-10"),
    },
}


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


@plots.described("Left, MOON stops nearer to the minimum than FedAvg; right, with mu = 3 it arrives later")
def help_and_harm(near: Mapping[float, np.ndarray], far: Mapping[float, np.ndarray]) -> Figure:
    """The global direction over rounds, of the same clients from a near and from a far start.

    Both by the weight μ, in degrees, [rounds + 1]; the best direction is -51°.
    """
    minimum = np.degrees(np.arctan2(-np.sin(np.radians(60)), 1.4 * np.cos(np.radians(60))))
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8))
    for ax, paths, start in zip(axes, (near, far), ("near the minimum", "far away"), strict=True):
        for mu, path in reversed(list(paths.items())):  # FedAvg last, on top of what agrees with it
            look: dict[str, Any] = {"color": plots.colour("MOON" if mu else "FedAvg")}
            style = "--" if mu == 3 else "-"
            words = f"MOON, μ = {mu:g}" if mu else "FedAvg"
            ax.plot(path, style, marker=".", lw=1.6, label=words, **look)
        ax.axhline(minimum, color="0.5", lw=1)
        ax.plot(len(path) - 0.4, minimum, "*", ms=16, color="black", clip_on=False)
        ax.set(title=f"the same clients, from {start}", xlabel="rounds done", ylabel="direction of z_glob (degrees)")
        ax.margins(y=0.16)
        plots.label(ax, (0.2, minimum), "the minimum of the sum", (0, -13))
    axes[1].legend(frameon=False, fontsize="small", loc="upper right", reverse=True)
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


@plots.described(
    "Angles from z_prev at the start and the end of rounds: MOON's clients turn away to about a right angle, "
    "on IID data, too; FedAvg's end nearer to z_prev"
)
def turns(measured: Mapping[tuple[str, str], np.ndarray]) -> Figure:
    """From where to where a round turns representations: their angle from z_prev.

    For each split and method [rounds, 3], from round 2 on, in degrees: from z_prev to z_glob, from
    there to the trained z, and from z_prev to the trained z.
    """
    splits = list(dict.fromkeys(split for split, _ in measured))
    figure, axes = plt.subplots(1, len(splits), figsize=(11, 4.0), sharey=True)
    for ax, split in zip(axes, splits, strict=True):
        for method, shift in (("FedAvg", -0.13), ("MOON", 0.13)):
            start, _, end = measured[split, method].T
            place = np.arange(2, 2 + len(start)) + shift
            colour = plots.colour(method)
            ax.vlines(place, start, end, color=colour, lw=2)
            name = "start: z_glob" if method == "FedAvg" else None  # once in the legend
            ax.plot(place, start, "s", ms=6, color="black", label=name)
            ax.plot(place, end, "o", ms=8, color=colour, label=f"end: z of {method}")
        # of MOON: it is parallel to z_glob - z_prev
        ax.plot(place, 90 + start / 2, "*", ms=12, color="black", mfc="white", label="minimum of MOON's contrast")
        ax.set(title=split, xlabel="round", ylim=(0, 138), yticks=range(0, 121, 30))
    axes[0].set(ylabel="angle from z_prev (degrees)")
    handles, words = axes[0].get_legend_handles_labels()
    figure.legend(handles, words, frameon=False, ncols=4, loc="outside lower center")
    return figure


@plots.described("MOON falls behind FedAvg in the first rounds and catches up; on CIFAR-10 it ends ahead")
def behind_then_ahead() -> Figure:
    """How far MOON is ahead of FedAvg after some numbers of rounds, on the digits and on CIFAR-10."""
    widths = [len(places) for places in _OVER_ROUNDS.values()]
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, width_ratios=widths)
    for ax, (title, places) in zip(axes, _OVER_ROUNDS.items(), strict=True):
        ax.axhline(0, color="0.6", lw=1, zorder=0)
        moon = [results.cell(table, "MOON", column) for table, column in places.values()]
        fedavg = [results.cell(table, "FedAvg", column) for table, column in places.values()]
        leads = [results.compare(*pair) for pair in zip(moon, fedavg, strict=True)]
        ax.plot([lead.mean for lead in leads], color="0.8", lw=1, zorder=0)
        for x, lead in enumerate(leads):
            results.draw_lead(ax, x, lead, plots.colour("MOON" if lead.mean > 0 else "FedAvg"))
        texts = [f"{rounds}\n{cell.mean:.0f}" for rounds, cell in zip(places, fedavg, strict=True)]
        ax.set_xticks(range(len(places)), texts)
        ax.margins(x=0.15)
        ax.set_title(f"{title}\n{leads[-1].seeds} seeds", size="medium")
        ax.grid(axis="y", alpha=0.3)
    axes[0].set(ylabel="MOON − FedAvg (points)")
    figure.supxlabel("rounds done, and FedAvg's accuracy then (%)", size="medium")
    return figure
