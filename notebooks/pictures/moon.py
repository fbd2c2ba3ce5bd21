"""Pictures of notebook 01: where MOON's contrast leads a representation."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fednb import plots, results
from fednb.leads import interval

_BEGIN = "z_glob, where\na round begins"
_TOP = 90.0  # degrees: where circles have z_glob
_PAPERS = "the paper's setting: CIFAR-10, μ = 5"
# For differences to FedAvg over the rounds: by panel and method the table of curves, and how its rows' names end.
_OVER_ROUNDS = {
    "digits, μ = 1, 5 epochs a round": {"MOON": ("digits-fedproc-rounds", ", T=40"), "FedProx": ("digits-moon", "")},
    "CIFAR-10, μ = 5, 5 epochs a round": {"MOON": ("moon-1-short", ""), "FedProx": ("moon-1-short", "")},
    _PAPERS: {"MOON": ("fedproc-2", ""), "FedProx": ("fedproc-2", "")},
}


def _at(degrees: Any, radius: float = 1.0) -> tuple[Any, Any]:
    """Points of the circle: their x, their y."""
    return radius * np.cos(np.radians(degrees)), radius * np.sin(np.radians(degrees))


def _contrast(degrees: np.ndarray, z_glob: float, z_prev: float, temperature: float = 0.5) -> np.ndarray:
    """The loss of equation (3) for representations in these directions."""
    to_glob = np.cos(np.radians(degrees - z_glob))
    to_prev = np.cos(np.radians(degrees - z_prev))
    return np.log1p(np.exp((to_prev - to_glob) / temperature))


@plots.described(
    "Left, the loss is lowest beyond the global model, away from z_prev; right, MOON first falls far behind "
    "FedAvg, and then passes it"
)
def overshoot() -> Figure:
    """Where the contrast leads on the circle of directions, and what the paper's setting makes of it."""
    z_prev, z_glob, minimum = 150.0, 90.0, 30.0  # in degrees
    direction = np.arange(0.0, 360.0)
    figure, (ax, right) = plt.subplots(1, 2, figsize=(11, 4.2), width_ratios=(1.25, 1))
    ax.scatter(*_at(direction), color="0.75", s=130)
    ring = ax.scatter(*_at(direction), c=_contrast(direction, z_glob, z_prev), cmap="YlGnBu", s=95)
    plt.colorbar(ring, ax=ax, label="contrastive loss", shrink=0.7)
    colour = plots.colour("MOON")
    ax.plot(*_at(np.linspace(z_glob - 2, minimum + 6, 40), 0.84), color=colour, lw=2.5)
    ax.annotate("", _at(minimum + 3, 0.84), _at(minimum + 9, 0.84), arrowprops={"color": colour, "lw": 2})
    ax.annotate("overshoot\n90° − θ/2", _at(68, 0.4), color=colour, ha="center", va="center", weight="bold")
    ax.plot(*_at(np.linspace(z_glob + 2, z_prev - 2, 40), 0.84), color="0.4", lw=1)
    ax.annotate("θ", _at((z_glob + z_prev) / 2, 0.7), color="0.4", ha="center", va="center")
    for place, mark, size in ((z_prev, "s", 11), (z_glob, "s", 11), (minimum, "*", 22)):
        ax.plot(*_at(place), mark, ms=size, color="black")
    ax.annotate("z_prev, the client's\nlast model", _at(z_prev, 1.14), ha="right", va="center")
    ax.annotate(_BEGIN, _at(z_glob, 1.1), ha="center", va="bottom")
    ax.annotate("the minimum", _at(minimum, 1.14), va="center")
    ax.set(aspect="equal", xlim=(-2.0, 1.95), ylim=(-1.1, 1.5))
    ax.axis("off")
    _over_rounds(right, _PAPERS, methods=("MOON",))
    right.set(xlabel="round", ylabel="MOON − FedAvg (points)")
    return figure


def _push(theta: Any, tau: float = 0.5) -> Any:
    """The length of the gradient (4) at z_glob, for representations of unit length."""
    share = 1 / (1 + np.exp((1 - np.cos(np.radians(theta))) / tau))  # σ(u)
    return share / tau * np.sin(np.radians(theta))


def circle(theta: float = 60, tau: float = 0.5, ax: Axes | None = None) -> Axes:
    """MOON's loss around the circle, for frozen models ``theta`` degrees apart and ``tau``.

    Dark is a large loss, on the scale of this circle. Inside stands the push.
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
    ax.annotate("minimum", _at(theta / 2, 1.24), va="center")
    ax.text(0, 0, f"push\n{_push(theta, tau):.2f}", ha="center", va="center")
    ax.set(aspect="equal", xlim=(-1.9, 1.9), ylim=(-1.35, 1.45), title=f"θ = {theta:.0f}°, τ = {tau:.1f}")
    ax.axis("off")
    return ax


@plots.described(
    "Three circles: the minimum is always beyond z_glob; a curve: the push there is strongest near 47°, and weak at "
    "small and large angles"
)
def circles() -> Figure:
    """Three frames of `circle`, and the push over all angles."""
    shown = (10, 47, 120)
    figure, (*axes, right) = plt.subplots(1, 4, figsize=(11, 3.0), width_ratios=(1, 1, 1, 0.9))
    for ax, theta in zip(axes, shown, strict=True):
        circle(theta, ax=ax)
    angles = np.arange(0, 181)
    right.plot(angles, _push(angles), color="0.5")
    right.plot(shown, _push(np.array(shown)), "o", ms=8, color="black", clip_on=False)
    right.set(title="τ = 0.5", xlabel="θ (degrees)", ylabel="push at z_glob", ylim=(0, 0.55))
    right.set_xticks([*shown, 180])
    return figure


def circle_to_move(theta: int = 60, tau: float = 0.5) -> None:
    """Show `circle` for one angle and one temperature: what sliders call."""
    plots.show(circle(theta, tau), f"MOON's loss on the circle, θ = {theta}°, τ = {tau:g}")


@plots.described(
    "Left, MOON with mu = 0.7 stops nearer to the minimum than FedAvg, as the push moves the unsure client further, and "
    "with mu = 3 it jumps; right, with mu = 0.7 it is first behind FedAvg and then ahead, with mu = 3 far behind"
)
def help_and_harm(
    between: Mapping[float, np.ndarray], outside: Mapping[float, np.ndarray], ends: np.ndarray, pushed: np.ndarray
) -> Figure:
    """The same clients from a start between their goals and from one outside both, by the weight μ.

    Paths of the global direction are in degrees, [rounds + 1]; the best direction is -51°. Beside the
    first stand both clients' ends of FedAvg's last round, and where the push moves them, in degrees, [2].
    Of the second is drawn how much nearer to the best direction MOON is than FedAvg.
    """
    minimum = np.degrees(np.arctan2(-np.sin(np.radians(60)), 1.4 * np.cos(np.radians(60))))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), width_ratios=(1.35, 1))
    fedavg, moon = plots.colour("FedAvg"), plots.colour("MOON")
    for mu, path in reversed(list(between.items())):  # FedAvg last, on top of what agrees with it
        look: dict[str, Any] = {"color": moon if mu else fedavg, "ls": "--" if mu == 3 else "-"}
        left.plot(path, marker=".", lw=1.6, label=f"MOON, μ = {mu:g}" if mu else "FedAvg", **look)
        if not mu:
            continue
        lead = abs(outside[0] - minimum) - abs(outside[mu] - minimum)
        right.plot(lead, marker=".", lw=1.6, **look)
        place = (len(lead) - 1, lead[-2:].mean())
        plots.label(right, place, f"MOON,\nμ = {mu:g}", (7, 0), color=moon, va="center")
    left.axhline(minimum, color="0.5", lw=1)
    left.plot(len(path) - 0.4, minimum, "*", ms=16, color="black", clip_on=False)
    left.set(title="starting between their goals", xlabel="rounds done", ylabel="direction of z_glob (degrees)")
    left.margins(y=0.16)
    plots.label(left, (0.2, minimum), "the minimum of the sum", (0, -13))
    left.legend(frameon=False, fontsize="small", loc="upper center", reverse=True)
    _draw_pushed_ends(left, between[0][-1], ends, pushed)
    right.axhline(0, color=fedavg, lw=1.6)
    plots.label(right, (1.3, 0), "as near as FedAvg", (0, 5), color=fedavg, fontsize="small")
    right.set(title="starting outside both goals", xlabel="rounds done", xlim=(-0.5, 18.5))
    right.set_ylabel("MOON is nearer to the minimum\nthan FedAvg by (degrees)")
    right.set_xticks(range(0, 16, 3))
    return figure


def _draw_pushed_ends(ax: Axes, at_rest: float, before: np.ndarray, after: np.ndarray) -> None:
    """Where both clients end a round from FedAvg's place of rest, and where with the push."""
    ax.plot([17.6, 17.6], before, color=plots.colour("FedAvg"), lw=1)
    ax.plot(17.6, at_rest, "o", ms=7, color=plots.colour("FedAvg"))
    plots.label(ax, (17.6, at_rest), "their average,\nz_glob", (22, 0), va="center", fontsize="small")
    names = ("client 1 (sure)", "client 2 (unsure)")
    for name, start, end, mark, shift in zip(names, before, after, "v^", (-14, 9), strict=True):
        ax.plot(17.6, start, mark, ms=9, color=plots.colour("FedAvg"))
        push = {"arrowstyle": "-|>", "color": plots.colour("MOON"), "lw": 2}
        ax.annotate("", (18.3, end), (18.3, start), arrowprops=push)
        plots.label(ax, (17.6, start), name, (0, shift), ha="center", fontsize="small")
    plots.label(ax, (18.3, (before[1] + after[1]) / 2), "push", (6, 4), color=plots.colour("MOON"), fontsize="small")
    ax.set_xlim(right=22)
    ax.set_xticks(range(0, 16, 3))


@plots.described(
    "Four digits, each with its circle: in the round z goes beyond z_glob, away from z_prev, and somewhat aside"
)
def walk(x: Tensor, y: Tensor, *, start: Mapping[str, Tensor], end: Mapping[str, Tensor]) -> Figure:
    """Images with their classes: on each one's circle where z went, and below it some quantities ("to …": degrees).

    The circle lies in the plane of z_glob (at the top) and z_prev; z is its shadow on this plane,
    so the further inside, the further z went aside.
    """
    figure, axes = plt.subplots(1, len(y), figsize=(11, 4.4))
    direction = np.arange(0.0, 360.0, 2.0)
    for i, ax in enumerate(axes):
        theta = start["to z_prev"][i].item()
        between = np.cos(np.radians(theta))
        ax.scatter(*_at(direction), c=_contrast(direction, _TOP, _TOP + theta), cmap="YlGnBu", s=50)
        height, to_prev = (np.cos(np.radians(end[name][i].item())) for name in ("to z_glob", "to z_prev"))
        beyond = (between * height - to_prev) / np.sqrt(1 - between**2)
        colour = plots.colour("MOON")
        ax.annotate("", (beyond, height), (0, 0.93), arrowprops={"color": colour, "arrowstyle": "->", "lw": 2})
        ax.plot(beyond, height, "o", ms=8, color=colour, label="the end of z")
        ax.plot(*_at(_TOP), "s", ms=8, color="black", label="z_glob, its start")
        ax.plot(*_at(_TOP + theta), "s", ms=8, color="black", mfc="white", label="z_prev")
        ax.plot(*_at(theta / 2), "*", ms=15, color="black", label="the minimum", ls="")
        inset = ax.inset_axes((0.35, 0.14, 0.3, 0.3))
        inset.imshow(x[i, 0], cmap="gray_r", interpolation="nearest")
        inset.axis("off")
        formats = {name: "{:.0f}°" if name.startswith("to ") else "{:.2f}" for name in start}
        lines = [f"{name}: {one.format(start[name][i])} → {one.format(end[name][i])}" for name, one in formats.items()]
        ax.set(aspect="equal", xlim=(-1.25, 1.25), ylim=(-1.15, 1.2), title=f"a {y[i]}", xticks=[], yticks=[])
        ax.set_xlabel("\n".join(lines), size="small")
        ax.spines[:].set_visible(False)
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, ncols=4, loc="outside lower center")
    return figure


@plots.described(
    "Above, MOON's clients leave z_glob away from z_prev, on both splits. Below, FedAvg's frozen models come closer or "
    "stay close, and MOON's stay apart; on IID data they jump far apart in round 3"
)
def ways(measured: Mapping[tuple[str, str], np.ndarray]) -> Figure:
    """In which direction a round turns representations, and how far apart its frozen models are.

    For each split and method the angle between the frozen models and the direction at z_glob (0 is
    back to z_prev, 180 straight on), in degrees, [2, rounds], from round 2 on.
    """
    splits = list(dict.fromkeys(split for split, _ in measured))
    figure, axes = plt.subplots(2, len(splits), figsize=(11, 5.6), sharex=True, sharey="row")
    angles = np.arange(181)
    strongest = angles[_push(angles).argmax()]
    for (above, below), split in zip(axes.T, splits, strict=True):
        above.axhline(90, color="0.6", lw=1)
        below.axhline(strongest, color="0.4", lw=1.2, ls=":")
        for method, mark in (("MOON", "o"), ("FedAvg", "s")):
            look: dict[str, Any] = {"marker": mark, "ms": 8, "color": plots.colour(method), "label": method}
            for ax, values in zip((below, above), measured[split, method], strict=True):
                ax.plot(np.arange(2, 2 + len(values)), values, **look)
        above.set(title=split, ylim=(-6, 186))
        below.set(xlabel="round", ylim=(0, 95))
    axes[0, 0].set_yticks([0, 90, 180], ["back to z_prev, 0°", "sideways, 90°", "straight on, 180°"])
    axes[0, 0].set(ylabel="how z leaves z_glob")
    axes[1, 0].set(ylabel="z_glob and z_prev\nare apart by (degrees)")
    axes[1, 0].set_yticks([0, 30, 60, 90])
    plots.label(axes[1, 0], (7, strongest), "strongest push", (0, 6), ha="right", fontsize="small", color="0.4")
    axes[0, 0].legend(frameon=False, loc="lower right", ncols=2)
    return figure


@plots.described(
    "Left, on IID digits MOON with mu = 1 falls far behind FedAvg and comes back, on uneven classes less far; with "
    "mu = 5 it stays far behind, and with mu = 0.1 nothing is seen. Right, on uneven classes the push alone is "
    "lowest, and far lower with a constant weight"
)
def on_the_digits() -> Figure:
    """MOON − FedAvg on IID digits by μ, and the accuracies of MOON's parts on uneven classes."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.3))
    curves, uneven = results.accuracies("digits-moon-iid"), results.accuracies("digits-moon")
    fedavg, colour = curves["mu=0 (FedAvg)"], plots.colour("MOON")
    left.axhline(0, color=plots.colour("FedAvg"), lw=1.4, zorder=0)
    for mu, style in (("0.1", ":"), ("1", "-"), ("5", "--")):
        difference = curves[f"mu={mu}"] - fedavg
        mean, half = np.transpose([interval(difference[t]) for t in difference])
        left.plot(difference.columns, mean, style, color=colour, lw=2)
        left.fill_between(difference.columns, mean - half, mean + half, color=colour, alpha=0.15, lw=0)
        place = (difference.columns[-1], mean[-1] - (4 if mu == "1" else -3 if mu == "0.1" else 0))
        plots.label(left, place, f"μ = {mu}", (5, -4), color=colour)
    difference = (uneven["MOON"] - uneven["FedAvg"]).mean()
    left.plot(difference.index, difference, "o-", color=colour, mfc="white", ms=5, lw=1.2)
    there = {"arrowprops": {"arrowstyle": "-", "color": colour, "lw": 0.8}, "color": colour}
    left.annotate("uneven classes, μ = 1", (5, difference[5] + 1.5), (3.2, 12), va="center", **there)
    rounds = [1, 2, 3, 4, 5, 6, 8, 10]
    left.set_xticks(rounds, [f"{t}\n{fedavg[t].mean():.0f}" for t in rounds])
    left.set(xlabel="round, and FedAvg's accuracy after it on IID data (%)", ylabel="MOON − FedAvg (points)")
    left.set(title=f"IID data: {len(fedavg)} seeds, 95 % band", ylim=(-74, 18))
    left.grid(axis="y", alpha=0.3)
    rows = {
        ("digits-moon-sigma", "FedAvg"): "FedAvg",
        ("digits-moon-sigma", "pull alone, with sigma"): "pull alone,\nweight σ",
        ("digits-moon-sigma", "MOON"): "MOON: pull and\npush, weight σ",
        ("digits-moon-sigma", "push alone, with sigma"): "push alone,\nweight σ",
        ("digits-moon-sides", "pull and push, without sigma"): "pull and push,\nweight ½",
        ("digits-moon-sides", "push alone"): "push alone,\nweight ½",
    }
    for y, (table, row) in enumerate(rows):
        values = np.array(results.cell(table, row).values)
        colour = plots.colour("FedAvg" if row == "FedAvg" else "MOON")
        face = colour if row in ("FedAvg", "MOON") else "white"
        right.plot(values, np.full(len(values), y), "o", ms=6, color=colour, mfc=face, alpha=0.75)
        right.plot([values.mean()] * 2, [y - 0.32, y + 0.32], color=colour, lw=2.5)
        look: dict[str, Any] = {"ha": "center", "color": colour, "fontsize": "small"}
        plots.label(right, (values.mean(), y - 0.32), f"{values.mean():.1f}", (0, 2), **look)
    right.set_yticks(range(len(rows)), list(rows.values()))
    right.set(ylim=(len(rows) - 0.5, -0.7), xlabel="test accuracy after ten rounds (%)")
    right.set_title(f"uneven classes, μ = 1: {len(values)} other seeds (dots), means")
    right.grid(axis="x", alpha=0.3)
    return figure


@plots.described(
    "MOON falls behind FedAvg, on CIFAR-10 at once, and catches up; on CIFAR-10 it ends ahead; FedProx falls far less"
)
def behind_then_ahead() -> Figure:
    """How far MOON and FedProx are ahead of FedAvg after each round, on the digits and on CIFAR-10."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.9), sharey=True)
    for ax, panel in zip(axes, _OVER_ROUNDS, strict=True):
        _over_rounds(ax, panel, methods=("FedProx", "MOON"))
    axes[0].set(ylabel="difference to FedAvg (points)")
    axes[0].legend(frameon=False, loc="lower left")
    figure.supxlabel("round, and FedAvg's accuracy after it (%)", size="medium")
    return figure


def _over_rounds(ax: Axes, panel: str, methods: tuple[str, ...]) -> None:
    """Differences of methods to FedAvg after each round: mean, MOON's interval, and FedAvg's accuracy."""
    ax.axhline(0, color="0.6", lw=1, zorder=0)
    for method in methods:
        table, of = _OVER_ROUNDS[panel][method]
        curves = results.accuracies(table)
        fedavg = curves[f"FedAvg{of}"]
        difference = curves[method + of] - fedavg
        mean, half = np.transpose([interval(difference[t]) for t in difference])
        is_moon = method == "MOON"
        colour = plots.colour(method)
        ax.plot(difference.columns, mean, color=colour, lw=2 if is_moon else 1.2, label=method)
        if is_moon:
            ax.fill_between(difference.columns, mean - half, mean + half, color=colour, alpha=0.18, lw=0)
            ax.set_title(f"{panel}\n{len(difference)} seeds, 95 % band", size="medium")
    last = fedavg.columns[-1]
    rounds = [t for t in (1, 2, 5, 10, 20, 40, 100) if t <= last and (t != 40 or last == 40)]
    ax.set_xscale("log")
    ax.set_xticks(rounds, [f"{t}\n{fedavg[t].mean():.0f}" if len(methods) > 1 else f"{t}" for t in rounds])
    ax.set_xticks([], minor=True)
    ax.grid(axis="y", alpha=0.3)
