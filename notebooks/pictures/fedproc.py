"""Pictures of notebook 02: what unit norm and the pull do, how hard the pull is, do clients agree."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from fednb.papers.pictures import scheme
from fednb.papers.pictures.foundations import history
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fednb import plots, results

CLASSES = plt.get_cmap("viridis")([0.05, 0.5, 0.85])  # a colour for each of three classes
CONTROL = "#8e0152"  # FedAvg with unit norm, which has FedAvg's grey elsewhere
VARIANT = "#7a4d00"  # a FedProc whose loss has been changed, darker than FedProc

STEPS = (0, 10, 20, 30, 200)  # of the bundle's descent that are drawn


def _turned(angles: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """One gradient step of images [3, n], given by their angles, towards their own prototypes.

    Returns the next angles, and the prototypes [3, 2] that pulled.
    """
    angles = angles.detach().requires_grad_()
    z = torch.stack([angles.cos(), angles.sin()], -1)
    prototypes = F.normalize(z.detach().mean(1), dim=-1)
    labels = torch.arange(3).repeat_interleave(angles.shape[1])
    cosines = (z @ prototypes.T).flatten(0, 1)
    loss = F.cross_entropy(cosines / temperature, labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, angles)
    return (angles - 0.1 * gradient).detach(), prototypes


def _bundle(temperature: float) -> dict[int, tuple[Tensor, Tensor]]:
    """Angles and prototypes of three classes that begin close together, at each of `STEPS`."""
    draws = torch.Generator().manual_seed(2)
    angles = torch.pi / 2 + 0.15 * torch.randn(3, 20, generator=draws)
    moments = {}
    for step in range(STEPS[-1] + 1):
        now = angles
        angles, prototypes = _turned(now, temperature)
        if step in STEPS:
            moments[step] = (now, prototypes)
    return moments


def _draw_bundle(ax: Axes, angles: Tensor, prototypes: Tensor, title: str) -> None:
    """Images [3, n] as dots on a circle, their prototypes [3, 2] as arrows."""
    ax.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.8"))
    for of_class, prototype, colour in zip(angles, prototypes, CLASSES, strict=True):
        ax.scatter(of_class.cos(), of_class.sin(), s=14, color=colour, alpha=0.6, lw=0)
        arrow = {"arrowstyle": "-|>", "color": colour, "lw": 2.5}
        ax.annotate("", prototype.tolist(), (0, 0), arrowprops=arrow)
    ax.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal", title=title)
    ax.axis("off")


def _colour(row: str) -> str:
    """The colour of a row: here FedAvg with unit norm has one of its own."""
    return CONTROL if row in ("FedAvg with the line", "FedAvg, z of length 1") else plots.colour(row)


def _mixed() -> Tensor:
    """Made-up images [3, n, 2] of three classes that begin mixed up."""
    angles = torch.pi / 2 + 0.15 * torch.randn(3, 20, generator=torch.Generator().manual_seed(2))
    draws = torch.Generator().manual_seed(5)
    lengths = (0.3 * torch.randn(angles.shape, generator=draws)).exp().clamp(0.5, 1.65)
    return lengths[..., None] * torch.stack([angles.cos(), angles.sin()], -1)


def _trained(images: Tensor, loss: str, steps: int = 400) -> tuple[Tensor, Tensor]:
    """The images [3, n, 2] after each step of gradient descent, [T, 3, n, 2], and the vectors [3, 2] that they see at last.

    The loss is ``cross-entropy`` of an output layer, which learns, too; the same with ``unit norm``; or the ``pull``
    alone, whose vectors are the prototypes.
    """
    z = images.flatten(0, 1).clone().requires_grad_()
    rows = 0.3 * torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    rows.requires_grad_()
    labels = torch.arange(3).repeat_interleave(images.shape[1])
    path = []
    for _ in range(steps + 1):
        prototypes = F.normalize(z.detach().unflatten(0, (3, -1)).mean(1), dim=-1)
        vectors = prototypes if loss == "pull" else rows
        seen = z if loss == "cross-entropy" else F.normalize(z, dim=-1)
        path.append(z.detach().clone())
        entropy = F.cross_entropy(seen @ vectors.T, labels, reduction="sum")
        of_z, of_rows = torch.autograd.grad(entropy, (z, rows), allow_unused=True)
        used = vectors.detach().clone()
        with torch.no_grad():
            z -= 0.1 * of_z
            if of_rows is not None:  # the pull does not read the rows
                rows -= 0.01 * of_rows
    return torch.stack(path).unflatten(1, (3, -1)), used


@plots.described(
    "With the cross-entropy the points become about twice as long and end far from their arrow; with unit norm, and with "
    "the pull, they keep their length and turn onto it"
)
def toys() -> Figure:
    """What the cross-entropy, without and with unit norm, and the pull alone do with free points in the plane."""
    images = _mixed()
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.7))
    looks = {
        "cross-entropy": ("cross-entropy", plots.colour("FedAvg")),
        "unit norm": ("cross-entropy, unit norm", CONTROL),
        "pull": ("pull alone", plots.colour("FedProc")),
    }
    for ax, (loss, (title, colour)) in zip(axes, looks.items(), strict=True):
        path, vectors = _trained(images, loss)
        _draw_images(ax, path, vectors)
        ax.set_title(title, color=colour)
    return figure


@plots.described("On the digits FedAvg with unit norm is most accurate, and FedProc without it least")
def unit_norm_and_pull() -> Axes:
    """Accuracies on the digits of the four methods that unit norm and the pull make.

    A column for each: a dot is a seed, a bar their mean.
    """
    _, ax = plt.subplots(figsize=(9, 3.6))
    rows = {
        "FedAvg": "FedAvg",
        "FedAvg, unit norm": "FedAvg, z of length 1",
        "FedProc": "FedProc as printed",
        "FedProc, unit norm": "FedProc, z of length 1",
    }
    for x, row in enumerate(rows.values()):
        _draw_column(ax, x, results.cell("digits-fedproc-control", row, "lr 0.03"), _colour(row))
    ax.set_xticks(range(len(rows)), list(rows))
    ax.set(xlim=(-0.5, len(rows) - 0.5), ylabel="accuracy on the digits (%),\nten rounds at η = 0.03")
    ax.grid(axis="y", alpha=0.3)
    return ax


def _draw_column(ax: Axes, x: float, cell: results.Cell, colour: str) -> None:
    """A dot for each seed of a cell, and a bar at their mean, with its number."""
    beside = x + np.random.default_rng(int(x)).uniform(-0.1, 0.1, len(cell.values))  # so that no dot hides another
    ax.plot(beside, cell.values, "o", color=colour, alpha=0.4, ms=6, mew=0)
    ax.plot([x - 0.22, x + 0.22], [cell.mean] * 2, lw=3, color=colour)
    plots.label(ax, (x + 0.24, cell.mean), f"{cell.mean:.1f}", (2, 0), va="center", color=colour)


def _draw_images(ax: Axes, path: Tensor, vectors: Tensor, shown: int = 1) -> None:
    """Where the images [T, 3, n, 2] of one class start and end, and the way of its vector of [3, 2]; the others pale."""
    ax.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.85"))
    for k in sorted(range(3), key=lambda k: k == shown):  # the shown one lies above
        colour = CLASSES[k] if k == shown else "0.87"
        arrow = {"arrowstyle": "-|>", "color": colour, "lw": 2.5, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (2.4 * F.normalize(vectors[k], dim=0)).tolist(), (0, 0), arrowprops=arrow)
        ax.scatter(*path[-1, k].T, s=28, color=[colour], lw=0, zorder=3)
    ax.plot(*path[:, shown].permute(2, 0, 1), color=CLASSES[shown], lw=0.6, alpha=0.35)
    rings = {"facecolors": "white", "edgecolors": [CLASSES[shown]], "lw": 0.9, "zorder": 2.5}
    ax.scatter(*path[0, shown].T, s=18, **rings)
    length = path[-1, shown].norm(dim=-1).mean()
    cosines = F.cosine_similarity(path[-1, shown], vectors[shown], dim=-1)
    off = cosines.clamp(-1, 1).arccos().rad2deg().mean()
    ax.text(0, -2.1, f"length {length:.1f}, {off:.0f}° from its arrow", ha="center")
    ax.set(xlim=(-2.9, 2.9), ylim=(-2.2, 2.9), aspect="equal")
    ax.axis("off")


@plots.described("Three classes begin as one narrow bundle, open slowly at first, and end as a star")
def bundle(temperature: float = 1.0) -> Figure:
    """Three classes that begin close together, and their prototypes, at some steps of the contrast's descent."""
    moments = _bundle(temperature)
    figure, axes = plt.subplots(1, len(moments), figsize=(11, 2.6))
    for ax, (step, (angles, prototypes)) in zip(axes, moments.items(), strict=True):
        widest = (prototypes @ prototypes.T).min().clamp(-1, 1).arccos().rad2deg()
        _draw_bundle(ax, angles, prototypes, f"step {step}: {widest:.0f}° wide")
    return figure


def bundle_to_move(temperature: float = 1.0) -> None:
    """Show the bundle opening at one temperature: what a slider calls."""
    plots.show(bundle(temperature), f"A bundle opens at temperature {temperature:g}")


@plots.described(
    "The pull over the angle: temperature 1 is a low hill; temperature 0.1 is zero near the prototype, a tower from 60 "
    "to 130 degrees, and beyond 150 degrees a pit in which it leads away"
)
def pull() -> Figure:
    """How hard the contrast pulls over the angle, and at temperature 0.1 which way around the circle."""
    layout: dict[str, Any] = {"width_ratios": [1, 2.3]}
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), gridspec_kw=layout)
    _draw_way(left, 0.1)
    _draw_pull_by_angle(right)
    return figure


def _slopes(angles: Tensor, temperature: float) -> Tensor:
    """The slope of the contrast over the angle of an image whose prototype is at 0°; others at ±120°."""
    angles = angles.detach().requires_grad_()
    cosines = (angles[:, None] - torch.tensor([0.0, 120.0, 240.0]).deg2rad()).cos()
    labels = torch.zeros(len(angles), dtype=torch.long)
    loss = F.cross_entropy(cosines / temperature, labels, reduction="sum")
    return torch.autograd.grad(loss, angles)[0]


def _draw_way(ax: Axes, temperature: float) -> None:
    """Which way images of one class turn around a star of three prototypes; none where the pull is below 0.1."""
    corners = torch.tensor([90.0, 210.0, 330.0]).deg2rad()
    star = torch.stack([corners.cos(), corners.sin()], -1)
    angles = torch.arange(12, 360, 36).deg2rad()
    dots = torch.stack([angles.cos(), angles.sin()], -1)
    along = torch.stack([-angles.sin(), angles.cos()], -1)
    slopes = _slopes(angles - corners[0], temperature)
    ax.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.85"))
    for prototype, colour in zip(star, (CLASSES[0], "0.75", "0.75"), strict=True):
        arrow = {"arrowstyle": "-|>", "color": colour, "lw": 2.5}
        ax.annotate("", prototype.tolist(), (0, 0), arrowprops=arrow)
    look: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.012}
    moved = slopes.abs() > 0.1
    arrows = -0.35 * along * slopes.sign()[:, None]
    ax.quiver(*dots[moved].T, *arrows[moved].T, color="0.2", **look)
    ax.scatter(*dots.T, s=38, color=CLASSES[0], lw=0, zorder=3)
    ax.set(xlim=(-1.5, 1.5), ylim=(-1.35, 1.35), aspect="equal", title=f"which way, at τ = {temperature:g}")
    ax.axis("off")


def _draw_pull_by_angle(ax: Axes) -> None:
    """How hard the contrast pulls an image of length one towards its prototype, over the angle."""
    degrees = torch.linspace(0, 180, 361)
    look: dict[str, Any] = {"color": plots.colour("FedProc")}
    ax.axhspan(-7, 0, color="0.94", lw=0)
    ax.axhline(0, color="0.5", lw=1)
    for temperature, line, place in ((1.0, "-", (24, 1.3)), (0.1, "--", (117, 14))):
        ax.plot(degrees, _slopes(degrees.deg2rad(), temperature), line, lw=2.5, **look)
        plots.label(ax, place, f"τ = {temperature:g}", (0, 0), **look)
    ax.text(4, -3.5, "it leads away", color="0.4", size="small", va="center")
    ax.set_xticks(range(0, 181, 30))
    ax.set(xlim=(0, 180), ylim=(-7, 18), xlabel="angle between z and its prototype (degrees)")
    ax.set(ylabel="pull towards the prototype", title="how hard, at length one")
    ax.grid(alpha=0.3)


@plots.described(
    "Over ten rounds the agreement of FedProc's clients is at or above FedAvg's, while the accuracy of its prototypes lags "
    "far behind and nearly catches up; with unit norm FedAvg's clients end in better agreement"
)
def agreement() -> Figure:
    """How well clients agree on their classes (degrees), and how accurate (%) the nearest prototype is, over rounds.

    A thin line is a seed, a thick one their mean. With unit norm they are dashed.
    """
    ends = {  # of a row: the name of its line, and how far above the line's end it stands in each panel
        "FedAvg": ("FedAvg", (-9, -10)),
        "FedProc": ("FedProc", (2, -15)),
        "FedAvg with the line": ("FedAvg, unit norm", (0, 9)),
        "FedProc with the line": ("FedProc, unit norm", (3, 1)),
    }
    recorded = results.accuracies("digits-fedproc-agreement")
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8))
    for panel, (ax, measure) in enumerate(zip(axes, ("agreement", "nearest"), strict=True)):
        for row, (name, shifts) in ends.items():
            of_seeds = recorded[f"{row}, {measure}"]
            look: dict[str, Any] = {"color": _colour(row), "ls": "--" if "unit norm" in name else "-"}
            ax.plot(of_seeds.columns, of_seeds.T, lw=0.7, alpha=0.3, **look)
            ax.plot(of_seeds.columns, of_seeds.mean(), lw=2.5, **look)
            end = (of_seeds.columns[-1], of_seeds.mean().iloc[-1])
            beside: dict[str, Any] = {"color": look["color"], "va": "center", "size": "small"}
            plots.label(ax, end, name, (6, shifts[panel]), **beside)
        ax.set(xlabel="communication round", xlim=(1, 10), ylim=(0, 105))
        ax.set_xticks(range(1, 11))
        ax.grid(alpha=0.3)
    axes[0].set(ylabel="agreement (degrees)", title="how well clients agree")
    axes[1].set(ylabel="test accuracy (%)", title="how accurate the nearest prototype is")
    return figure


@plots.described(
    "With the pull beside the whole cross-entropy accuracy is FedAvg's; in its place it is lower, and lowest without a pull."
    " With unit norm, on other seeds, the pull in place of the cross-entropy is behind, too"
)
def why() -> Figure:
    """Accuracies on the digits of FedAvg, FedProc, and its pull beside the whole cross-entropy; left without unit norm."""
    rows = {
        "FedAvg": ("cross-entropy\nalone (FedAvg)", plots.colour("FedAvg")),
        "the pull joins": ("joins: the pull\nbeside all of it", VARIANT),
        "FedProc": ("the pull in its\nplace (FedProc)", plots.colour("FedProc")),
        "the pull is absent": ("absent: FedProc\nwithout its pull", VARIANT),
    }
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), width_ratios=(4, 3), sharey=True, layout="constrained")
    _draw_why(axes[0], "digits-fedproc-why", rows)
    del rows["the pull is absent"]
    _draw_why(axes[1], "digits-fedproc-joins", {f"{row}, unit norm": look for row, look in rows.items()})
    axes[0].set(title="five seeds", ylabel="accuracy on the digits (%),\nten rounds at η = 0.03")
    axes[1].set_title("unit norm, ten other seeds")
    return figure


def _draw_why(ax: Axes, table: str, rows: Mapping[str, tuple[str, str]]) -> None:
    for x, (row, (_, colour)) in enumerate(rows.items()):
        _draw_column(ax, x, results.cell(table, row), colour)
    ax.set_xticks(range(len(rows)), [label for label, _ in rows.values()], size="small")
    ax.set_xlim(-0.5, len(rows) - 0.5)
    ax.grid(axis="y", alpha=0.3)


def _look(name: str) -> dict[str, Any]:
    """How a method's line is drawn: with unit norm it is dashed."""
    return {"color": _colour(name), "lw": 2, "ls": "--" if "length 1" in name else "-"}


@plots.described(
    "FedProc's accuracy stays low for some rounds, in which FedAvg's rises; the cross-entropy falls far, the contrast less"
)
def the_run(record: Mapping[str, Any], name: str, weight: Callable[[int, int], float]) -> Figure:
    """A run's accuracy, and the terms of its loss without the weights of FedProc's usual schedule.

    On the digits FedAvg's accuracy with the same seed stands beside it, if it is recorded. ``weight``: α by the round and
    the number of rounds, if it begins at one.
    """
    figure = history(record, name)
    given = record["settings"]
    of_fedavg = results.accuracies("digits-fedproc-rounds")["FedAvg, T=40"]
    if name != "FedAvg" and given["dataset"] == "digits" and given["seed"] in of_fedavg.index:
        left = figure.axes[0]
        known = of_fedavg.loc[given["seed"]].iloc[: given["num_rounds"]]
        left.plot(known, color=plots.colour("FedAvg"), lw=2, zorder=0)
        late = min(len(known), len(record["metrics"].get("accuracy", []))) // 2
        if late:
            above: dict[str, Any] = {"color": plots.colour("FedAvg"), "ha": "right", "size": "small"}
            plots.label(left, (late, known.iloc[late - 1]), "FedAvg, recorded", (-8, 8), **above)
            below: dict[str, Any] = {"color": plots.colour(name), "va": "top", "size": "small"}
            plots.label(left, (late + 1, record["metrics"]["accuracy"][late]), name, (8, -4), **below)
    if name != "FedProc" or given["alpha_schedule"] != "linear" or given["first_round_ce"]:
        return figure
    num_rounds = given["alpha_rounds"] or given["num_rounds"]
    alphas = given["alpha"] * np.array([weight(t, num_rounds) for t in range(given["num_rounds"])])
    weights = {"contrastive": alphas, "cross-entropy": 1 - alphas}
    right = figure.axes[1]
    for line in right.lines:
        weight = weights[str(line.get_label())]
        is_there = weight > 0
        rounds, terms = np.array(line.get_data(), dtype=float)
        line.set_data(rounds[is_there], terms[is_there] / weight[is_there])
    right.axhline(_simplex_contrast(10, given["temperature"]), color=plots.colour(name), ls=":", lw=1.5)
    right.relim()
    right.set(ylabel="mean training loss,\nwithout its weight", ylim=(0, None))
    return figure


def _simplex_contrast(num_classes: int, temperature: float) -> float:
    """The loss (2) of an image that lies on its prototype, if the prototypes are a simplex."""
    others = (num_classes - 1) * np.exp(-num_classes / (num_classes - 1) / temperature)
    return float(np.log(1 + others))


@plots.described(
    "Reported accuracies and three seeds each of FedAvg, SCAFFOLD, MOON, FedProc and FedAvg with unit norm: all but "
    "SCAFFOLD overlap"
)
def reproduced() -> Axes:
    """The paper's accuracies on CIFAR-10 beside ours, and those of FedAvg with unit norm."""
    names = ("FedAvg", "SCAFFOLD", "MOON", "FedProc")
    cells = {name: results.cell("fedproc-2", name, "CIFAR-10") for name in names}
    control = "FedAvg,\nunit norm"
    cells[control] = results.cell("fedproc-control", "FedAvg, z of length 1")
    return scheme.accuracies(cells, {control: CONTROL})


@plots.described("FedProc starts far below FedAvg without and with unit norm, and after 50 rounds it has nearly caught up")
def slow_start() -> Axes:
    """FedProc over the rounds of the paper's table, beside FedAvg without and with unit norm: means, and bands."""
    ends = {  # of a line's name, where the axis ends
        "FedAvg, z of length 1": ("FedAvg, unit norm", 9),
        "FedProc as printed": ("FedProc", 0),
        "FedAvg": ("FedAvg", -9),
    }
    recorded = results.accuracies("fedproc-control")
    _, ax = plt.subplots(figsize=(8.5, 3.8))
    for row, (name, shift) in ends.items():
        of_seeds = recorded[row]
        look = _look(row)
        ax.plot(of_seeds.columns, of_seeds.mean(), **look)
        band: dict[str, Any] = {"color": look["color"], "alpha": 0.15, "lw": 0}
        ax.fill_between(of_seeds.columns, of_seeds.min(), of_seeds.max(), **band)
        end = (of_seeds.columns[-1], of_seeds.mean().iloc[-1])
        plots.label(ax, end, name, (6, shift), color=look["color"], va="center", size="small")
    ax.set(xlabel="communication round", ylabel="test accuracy (%)", ylim=(30, None), xlim=(0, 100))
    ax.grid(alpha=0.3)
    return ax


def rates(table: str, rows: Sequence[str]) -> Axes:
    """What rows of a table reach over its learning rates, with 95 % intervals.

    A rate at which a run diverged is left out. Rows with unit norm are dashed.
    """
    _, ax = plt.subplots()
    ticks: set[float] = set()
    for place, row in enumerate(rows):
        of_row = {float(cell.parameters["lr"]): cell for cell in results.cells(table) if cell.row == row}
        ticks.update(of_row)
        finished = [rate for rate, cell in of_row.items() if set(cell.statuses) == {"finished"}]
        means, half_widths = np.array([(of_row[rate].mean, of_row[rate].half_width) for rate in finished]).T
        name = row.replace("z of length 1", "unit norm")
        look: dict[str, Any] = {"color": _colour(row), "elinewidth": 1, "capsize": 3, "label": name}
        beside = np.array(finished) * 1.06 ** (place - 1)  # so that no marker hides another
        ax.errorbar(beside, means, half_widths, fmt="o-" if name == row else "s--", **look)
    seeds = next(iter(of_row.values())).seeds
    ax.set(xscale="log", xlabel="learning rate", ylabel="test accuracy (%)")
    ax.set_title(f"the digits, ten rounds, seeds {seeds[0]} to {seeds[-1]}")
    ax.set_xticks(sorted(ticks), [f"{rate:g}" for rate in sorted(ticks)])
    ax.minorticks_off()
    return ax
