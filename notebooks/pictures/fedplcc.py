"""Pictures of notebook 05: prototypes of a class, FINCH step by step, and recorded runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from fednb.papers.fedplcc import class_of_nearest, cluster, shares
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from fednb import data, finch, plots, results
from fednb.data import Dataset
from fednb.leads import Lead
from fednb.prototypes import Prototypes, class_means, join, mean_by_class, select

_IMAGE = 20  # degrees: the direction of the image in `kept`
_STAR: dict[str, Any] = {"marker": "*", "ec": "black", "lw": 0.8, "zorder": 3}


# --- three clients' digits and the negatives of a fourth


@plots.described(
    "Four clients' threes, the last a negative. One mean of them is a pale three. Of three clusters one is a negative"
)
def one_mean_or_clusters(label: int = 3) -> Figure:
    """One class of four clients, of whom one sees negatives; its mean, and its clusters with their weights."""
    digits = data.load("digits")
    pixels = digits.images.flatten(1) / 127.5 - 1
    pixels[3::4] *= -1
    clients = [(pixels[i::4], digits.labels[i::4]) for i in range(4)]
    means = [class_means(z, y) for z, y in clients]
    centres = join([cluster({"vectors": z, "labels": y}) for z, y in clients])
    answers = {"FedProto": mean_by_class(join(means)), "FedPLCC": shares(cluster(centres))}
    titles = {"FedProto": "one mean", "FedPLCC": "clusters, with weights"}
    own = {name: select(one, one["labels"] == label) for name, one in answers.items()}

    sent = [select(one, one["labels"] == label)["vectors"][0] for one in means]
    images = sent + [vector for one in own.values() for vector in one["vectors"]]
    gap, several = 0.9, len(own["FedPLCC"]["labels"])
    ratios = [1.0] * 4 + [gap, 1.0, gap] + [1.0] * several
    size = (1.25 * sum(ratios), 2.6)
    figure, axes = plt.subplots(1, len(ratios), figsize=size, width_ratios=ratios, layout="none")
    figure.subplots_adjust(0.01, 0.33, 0.99, 0.87, wspace=0.07)
    shown = [ax for ax, ratio in zip(axes, ratios, strict=True) if ratio == 1]
    for ax in axes:
        ax.axis("off")
    counts = [int((labels == label).sum()) for _, labels in clients]
    names = [f"client {i}\n{count} threes" for i, count in enumerate(counts, start=1)] + [""]
    names += [f"{w * sum(counts):.0f} threes\nweight {w:.2f}" for w in own["FedPLCC"]["weights"].tolist()]
    for ax, image, name in zip(shown, images, names, strict=True):
        ax.axis("on")
        ax.imshow(image.view(8, 8), cmap="gray", vmin=-1, vmax=1)
        ax.set(xticks=[], yticks=[], xlabel=name)
        ax.spines[:].set_visible(True)
    shown[0].set_title("what the clients' threes look like, on average", size=12, loc="left")
    new = F.normalize(1 - digits.test_images.flatten(1) / 127.5)  # negatives
    for (name, found), ax in zip(answers.items(), (shown[4], shown[5 + several // 2]), strict=True):
        colour = plots.colour(name)
        ax.set_title(f"{name}: {titles[name]}", size=12, color=colour)
        right = (class_of_nearest(new, found) == digits.test_labels).double().mean()
        text = f"new negatives recognised: {right:.0%}"
        ax.text(0.5, -0.62, text, size=12, color=colour, ha="center", transform=ax.transAxes)
    return figure


@plots.described(
    "Negatives recognised by three networks over rounds: FedAvg, too, ends above what clusters of pixels recognise"
)
def negatives_in_training(accuracies: Mapping[str, Sequence[float]], untrained: float) -> Axes:
    """How many negatives the output layers of trained networks recognise, over rounds, beside clusters of pixels."""
    ax = plt.figure(figsize=(8, 3.1)).subplots()
    for method, curve in accuracies.items():
        ax.plot(range(1, len(curve) + 1), curve, "o-", ms=4, lw=2, color=plots.colour(method), label=method)
    ax.axhline(untrained, color=plots.colour("FedPLCC"), ls=":", lw=1.5)
    look: dict[str, Any] = {"color": plots.colour("FedPLCC"), "size": 10, "va": "bottom"}
    plots.label(ax, (1, untrained), "FedPLCC's clusters of pixels, no training", (0, 3), **look)
    ax.set(ylim=(0, 104), xlabel="communication round", ylabel="new negatives\nrecognised (%)")
    plots.label_ends(ax)
    return ax


# --- the idea, or the step?


@plots.described(
    "Accuracies on Digit-5: at the paper's learning rate FedPLCC is near FedAvg, and FedPLVM far ahead; FedAvg at ten times "
    "this rate is beyond"
)
def on_digit5() -> Axes:
    """Accuracies on Digit-5: three methods at the paper's learning rate, and FedAvg at ten times that; dots are seeds."""
    rows = {
        "FedAvg, paper's rate": "FedAvg, rate 0.01",
        "FedPLCC, paper's rate": "FedPLCC",
        "FedPLVM, paper's rate": "FedPLVM",
        "FedAvg, ten times this rate": "FedAvg, rate 0.1",
    }
    ax = plt.figure(figsize=(8, 2.2)).subplots()
    for place, row in enumerate(rows.values()):
        cell, colour = results.cell("fedplcc-2-rates", row), plots.colour(row)
        ax.plot(cell.values, [place] * len(cell.values), "o", color=colour, alpha=0.6)
        ax.plot(cell.mean, place, "|", color=colour, ms=20, mew=3)
    ax.set_yticks(range(len(rows)), list(rows))
    for name, row in zip(ax.get_yticklabels(), rows.values(), strict=True):
        name.set_color(plots.colour(row))
    ax.set(ylim=(len(rows) - 0.5, -0.5), xlim=(0, 75), xlabel="accuracy on Digit-5 (%)")
    ax.set_title("factors as in the papers: FedPLVM's λ = 100, FedPLCC's λ₁ = 100 and λ₂ = 1,000", size=11)
    ax.grid(axis="x", alpha=0.3)
    return ax


# --- a class with three prototypes, in the plane


def _half_plane(ax: Axes) -> None:
    """A quarter of the unit circle, on which directions lie."""
    angle = np.linspace(0, np.pi / 2, 60)
    ax.plot(np.cos(angle), np.sin(angle), color="0.8", lw=1, zorder=0)
    ax.set(xlim=(-0.12, 1.34), ylim=(-0.05, 1.25), aspect="equal")
    ax.axis("off")


@plots.described(
    "An arrow, the image, between two near prototypes; left both are kept, right the far, large one replaces one of them"
)
def kept(prototypes: Prototypes, label: int = 0) -> Figure:
    """Which half of a class's prototypes an image is pulled to, with all weights 1 and with theirs.

    Areas of stars are weights. Those of other classes are drawn, but have no lines.
    """
    directions = np.asarray(F.normalize(prototypes["vectors"]))
    weights, own = np.asarray(prototypes["weights"]), np.asarray(prototypes["labels"] == label)
    panels = {"all weights 1": np.ones(len(weights)), "the paper's weights, shares of images": weights}
    figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.2), sharey=True)
    for ax, (title, given) in zip(axes, panels.items(), strict=True):
        _half_plane(ax)
        ax.set(title=title, ylim=(-0.05, 1.12))
        ax.scatter(*directions.T, 900 * given, c=np.where(own, "C0", "C1"), **_STAR)
        for star, weight, of_class in zip(directions, given, own, strict=True):
            name = ("far" if star[1] > 0.7 else "near") if of_class else "other class"
            look: dict[str, Any] = {"color": "C0" if of_class else "C1", "size": 11, "va": "center"}
            plots.label(ax, star, f"{name}, W = {weight:.2g}", (5 + 13 * weight**0.5, 2), **look)
        _draw_image(ax, np.radians(_IMAGE), directions[own], given[own])
    return figure


def _draw_image(ax: Axes, angle: float, directions: np.ndarray, weights: np.ndarray) -> None:
    """An image as an arrow, and lines in the directions of the prototypes; dotted are those that are not kept."""
    spot = np.array([np.cos(angle), np.sin(angle)])
    products = weights * (directions @ spot) ** 0.5
    largest = np.argsort(-products)[: int(np.ceil(0.5 * len(products)))]
    ax.annotate("", 0.5 * spot, (0, 0), arrowprops={"arrowstyle": "-|>", "color": "black", "lw": 3, "shrinkA": 0})
    plots.label(ax, 0.5 * spot, "the image", (3, 4), va="center", size=11)
    look: dict[str, Any] = {"ha": "center", "va": "center", "size": 10}
    look["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    for j, star in enumerate(directions):
        colour, style = ("C0", "-") if j in largest else ("grey", ":")
        ax.plot(*zip((0, 0), star, strict=True), color=colour, ls=style, zorder=1)
        ax.text(*(0.84 * star), f"{products[j]:.3f}", color=colour, **look)


_OF_THE_PAPER = {  # our table, the reported one, FedPLCC's factors
    "Digit-5": ("fedplcc-2-short", "II", "λ₁ = 100, λ₂ = 1,000"),
    "Office-10": ("fedplcc-3-short", "III", "λ₁ = 20, λ₂ = 200"),
}


_IN_COLOUR = ("FedAvg", "FPL", "FedPLVM", "FedPLCC")


@plots.described(
    "Lines from each method's reported difference from FedAvg to ours: on Office-10 few cross, on Digit-5 many. There "
    "FedPLCC falls, and without its pull it rises"
)
def beside_print() -> Figure:
    """Each method's difference from FedAvg in accuracy: left as reported, right the mean of ours, a ring if of one run.

    Ours are taken seed by seed. FedAvg and the methods that cluster are in colour, the others grey.
    """
    figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.8), sharey=True)
    for ax, (name, (table, number, factors)) in zip(axes, _OF_THE_PAPER.items(), strict=True):
        reported = {row: cells["Avg."] for row, cells in results.printed(f"FedPLCC Table {number}").items()}
        names: list[tuple[float, str, str]] = []
        for cell in results.cells(table):
            if cell.column != "Delta" or cell.mean is None:
                continue
            ends = [float(np.subtract(reported[cell.row], reported["FedAvg"])), cell.mean]
            coloured = cell.method in _IN_COLOUR
            colour = plots.colour(cell.method) if coloured else "0.65"
            ax.plot([0, 1], ends, color=colour, lw=2.5 if coloured else 1.2, zorder=2 if coloured else 1)
            filled = colour if len(cell.values) > 1 else "white"
            ax.plot(1, ends[1], "o", color=colour, mfc=filled, ms=8, mew=2, zorder=3)
            names.append((ends[1], cell.row.removesuffix(" (Ours)"), colour if coloured else "0.45"))
        if name == "Digit-5":
            names.append(_contrast_alone(ax))
        ax.set(title=f"{name} ({factors})", xlim=(-0.05, 1.05), xticks=[0, 1], xticklabels=["reported", "ours"])
        _names_at(ax, names)
    axes[0].set_ylabel("accuracy minus FedAvg's (points)")
    look: dict[str, Any] = {"color": "0.35", "ls": "", "marker": "o", "ms": 8, "mew": 2}
    kinds = {"mean of three seeds": "0.35", "one run": "white"}
    handles = [Line2D([], [], mfc=filled, label=kind, **look) for kind, filled in kinds.items()]
    handles.append(Line2D([], [], color="0.65", lw=1.2, label="other methods, without clusters"))
    below: dict[str, Any] = {"loc": "outside lower center", "ncols": 3}
    figure.legend(handles=handles, frameon=False, fontsize="small", **below)
    return figure


def _contrast_alone(ax: Axes) -> tuple[float, str, str]:
    """On Digit-5, FedPLCC without its pull: dashed, from the reported difference from FedAvg to that of one run."""
    rows, colour = ("L_contra w/, L_corr w/o", "L_contra w/o, L_corr w/o"), plots.colour("FedPLCC")
    reported, ours = results.printed("FedPLCC Table V"), [results.cell("fedplcc-5-short", row, "Avg.").mean for row in rows]
    ends = [reported[rows[0]]["Avg."] - reported[rows[1]]["Avg."], float(np.subtract(*ours))]
    ax.plot([0, 1], ends, "--", color=colour, lw=1.8, zorder=2)
    ax.plot(1, ends[1], "o", color=colour, mfc="white", ms=8, mew=2, zorder=3)
    return ends[1], "FedPLCC, no pull", colour


def _names_at(ax: Axes, names: list[tuple[float, str, str]], gap: float = 2.4) -> None:
    """Beside dots at x = 1 their names, as far apart as they need, each joined with its dot by a thin line."""
    names = sorted(names)
    ends = np.array([end for end, *_ in names])
    places = ends.copy()
    for _ in range(200):  # neighbours that are too near push each other away
        missing = np.clip(gap - np.diff(places), 0, None) / 2
        places[1:] += missing
        places[:-1] -= missing
    for end, place, (_, name, colour) in zip(ends, places, names, strict=True):
        line: dict[str, Any] = {"color": colour, "lw": 0.8, "clip_on": False, "zorder": 1}
        ax.plot([1.03, 1.13], [end, place], **line)
        ax.annotate(name, (1.14, place), color=colour, fontsize="small", va="center", annotation_clip=False)


@plots.described(
    "Accuracy over the learning rate: the contrast's curve lies left of FedAvg's, nearer to FedAvg's moved by five than by "
    "ten, is lower, and ends in runs that diverged"
)
def rates() -> Figure:
    """Accuracy over the learning rate, of FedAvg and of the contrast alone with a large factor.

    Dashed is what the contrast's curve would be if its factor of ten were a rate ten times larger; dotted, five times.
    """
    figure, ax = plt.subplots(figsize=(8.6, 3.8))
    lines = {"FedAvg": "FedAvg", "contrast, λ₁ = 10": "FedPLCC"}
    for row, method in lines.items():
        colour = plots.colour(method)
        cells = [cell for cell in results.cells("mini-fedplcc-rates") if cell.row == row]
        for cell in cells:
            _crosses(ax, float(cell.column.removeprefix("lr ")), cell.statuses.count("diverged"), colour)
        cells = [cell for cell in cells if cell.mean is not None]
        at = [float(cell.column.removeprefix("lr ")) for cell in cells]
        for rate, cell in zip(at, cells, strict=True):
            ax.plot([rate] * len(cell.values), cell.values, "o", color=colour, ms=4, alpha=0.4)
        means = [cell.mean for cell in cells]
        ax.plot(at, means, "-", color=colour, lw=2)
        best = int(np.argmax(means))
        ax.plot(at[best], means[best], "*", color=colour, ms=16)
        plots.label(ax, (at[best], means[best]), row, (0, 14 if row == "FedAvg" else 30), color=colour, ha="center")
        if row == "FedAvg":
            for factor, look in ((10, "--"), (5, ":")):
                ax.plot([rate / factor for rate in at], means, look, color=colour, lw=1, zorder=0)
            plots.label(ax, (at[0] / 10, 52), "FedAvg, moved left\nby a factor of ten", (0, 0), color=colour, size=10)
            plots.label(ax, (0.0155, 42), "by five", (6, 0), color=colour, size=10)
    ax.axhline(10, color="0.6", ls=":")
    plots.label(ax, (0.023, 4), "× a seed that diverged", (0, 0), color=colour, size=10, ha="right", va="center")
    ax.set(xscale="log", ylim=(0, 92), xlabel="learning rate", ylabel="accuracy after ten rounds (%)")
    ticks = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.06, 0.1]
    ax.set_xticks(ticks, [f"{rate:g}" for rate in ticks])
    ax.minorticks_off()
    return figure


def _crosses(ax: Axes, rate: float, number: int, colour: str) -> None:
    """A cross for each of so many runs that diverged, beside one another below the curves."""
    places = rate * 1.07 ** (np.arange(number) - (number - 1) / 2)
    ax.plot(places, [4] * number, "x", color=colour, ms=6, mew=1.5)


_PARTS = {  # with, instead of: table and rows
    ("contrast with clusters", "with one mean of a class"): ("mini-fedplcc-one-mean", "clusters", "one mean"),
    ("contrast", "plain FedAvg"): ("mini-fedplcc-parts", "L_contra w/, L_corr w/o", "L_contra w/o, L_corr w/o"),
    ("root of the cosine", "a cosine as steep at 0.8"): ("mini-fedplcc-power", "α = 0.5, τ = 0.07", "α = 1, τ = 0.125"),
    ("contrast and pull", "the contrast alone"): ("mini-fedplcc-parts", "L_contra w/, L_corr w/", "L_contra w/, L_corr w/o"),
    ("pull to half of a class", "to all of it"): (
        "mini-fedplcc-parts",
        "L_contra w/, L_corr w/",
        "L_contra w/, L_corr phi=1",
    ),
    ("shares of images", "equal shares"): ("mini-fedplcc-weights", "W as printed", "W = 1/N"),
}


@plots.described(
    "Differences with intervals, without the pull: clusters instead of one mean and the contrast gain nothing sure, "
    "the root a little. With it: the pull loses, half and shares gain nothing sure"
)
def parts() -> Axes:
    """What each part of FedPLCC is worth on the five domains, over what stands in its place."""
    leads = {}
    for pair, (table, ahead, behind) in _PARTS.items():
        leads[pair] = results.compare(results.cell(table, ahead, "Avg."), results.cell(table, behind, "Avg."))
    ax = _forest_of_pairs(leads, line_after=3)
    ax.set_title("five domains, λ₁ = 0.3; above the line λ₂ = 0 (no pull), below it λ₂ = 3", size=11, pad=22)
    return ax


def _forest_of_pairs(leads: Mapping[tuple[str, str], Lead], line_after: int) -> Axes:
    """A forest whose lines say what is taken, and instead of what, with a line after so many of them."""
    colour = plots.colour("FedPLCC")
    rows = [results.ForestRow(instead, lead, colour, results.numbers(lead)) for (_, instead), lead in leads.items()]
    ax = results.draw_forest(rows, sides=("“with”", "“instead of”"))
    ax.figure.set_size_inches(9.6, 1.9 + 0.34 * len(rows))
    look: dict[str, Any] = {"xycoords": ax.get_yaxis_transform(), "va": "center", "annotation_clip": False}
    ax.set_yticks([])
    for place, pair in enumerate([("with", "instead of"), *leads], start=-1):
        weight = "bold" if place < 0 else "normal"
        for x, text in zip((-340, -170), pair, strict=True):
            ax.annotate(text, (0, place), (x, 0), textcoords="offset points", weight=weight, **look)
    ax.axhline(line_after - 0.5, color="0.8", lw=1)
    return ax


@plots.described(
    "Accuracies in FedAvg's network by the nearest of several sets of prototypes, a line for each of ten seeds: one mean is "
    "lowest, the clusters of both servers come next, the output layer, clients' means, random groups, clients' clusters"
)
def nearest() -> Axes:
    """How many new images FedAvg's network gets right by each of several sets of prototypes; lines are runs."""

    def over(column: str) -> np.ndarray:
        return np.array(results.cell("mini-fedplcc-nearest", "FedAvg", column).values)

    output = over("the output layer")
    clusters = output + over("clients' clusters over the output layer")
    means = clusters - over("clients' clusters over their means")
    one = means - over("clients' means over one mean")
    rows = {  # in the order of their means, and the method whose colour they have
        "one mean (FedProto's server)": (one, "FedProto+FedAvg"),
        "server's clusters (FedPLCC)": (one + over("server's clusters over one mean"), "FedPLCC"),
        "server's clusters (FPL)": (one + over("FPL's clusters over one mean"), "FPL"),
        "output layer": (output, "FedAvg"),
        "clients' means": (means, "FedProto+FedAvg"),
        "random groups": (clusters - over("clients' clusters over random groups"), ""),
        "clients' clusters (FedPLCC)": (clusters, "FedPLCC"),
    }
    ax = plt.figure(figsize=(8.2, 3.5)).subplots()
    ax.plot(np.array([values for values, _ in rows.values()]), range(len(rows)), color="0.85", lw=1, zorder=0)
    colours = [plots.colour(method) if method else "0.5" for _, method in rows.values()]
    for place, ((values, _), colour) in enumerate(zip(rows.values(), colours, strict=True)):
        ax.plot(values, [place] * len(values), "o", color=colour, ms=4, alpha=0.5)
        ax.plot(values.mean(), place, "|", color=colour, ms=20, mew=3)
        ax.text(1.02, place, f"{values.mean():.1f}", color=colour, va="center", transform=ax.get_yaxis_transform())
    ax.set_yticks(range(len(rows)), list(rows))
    for name, colour in zip(ax.get_yticklabels(), colours, strict=True):
        name.set_color(colour)
    ax.text(1.02, -0.95, "mean", va="center", transform=ax.get_yaxis_transform())
    ax.set(ylim=(len(rows) - 0.5, -0.5), xlabel="new images classified rightly, in FedAvg's network (%)")
    ax.grid(axis="x", alpha=0.3)
    return ax


_STRENGTHS = {  # λ₁: table, row and column
    0.03: ("mini-fedplcc-strength", "λ₁ = 0.03", "Avg."),
    0.1: ("mini-fedplcc-strength", "λ₁ = 0.1", "Avg."),
    0.3: ("mini-fedplcc-strength", "λ₁ = 0.3", "Avg."),
    1: ("mini-fedplcc-strength", "λ₁ = 1", "Avg."),
    3: ("mini-fedplcc-figure-6", "3.0", "five domains"),
}
_USED = {0.1: "our run", 0.3: "section 7", 10: "section 6\n(λ₂ = 0)", 100: "the paper,\non Digit-5"}


@plots.described(
    "Accuracy over the factor of the contrast: FedPLCC is near FedAvg at 0.03 and 0.1, lower at 0.3 and 1, and far lower "
    "at 3. Marked are the strengths that this notebook uses, and the paper's, beyond the curve"
)
def strengths() -> Axes:
    """Accuracy on the five domains over λ₁, with λ₂ ten times that, beside FedAvg's; marked are the λ₁ used elsewhere."""
    ax = plt.figure(figsize=(8.6, 3.6)).subplots()
    colour, grey = plots.colour("FedPLCC"), plots.colour("FedAvg")
    found = {lam: results.cell(*where) for lam, where in _STRENGTHS.items()}
    for lam, cell in found.items():
        ax.plot([lam] * len(cell.values), cell.values, "o", color=colour, ms=4, alpha=0.4)
    means = [cell.mean for cell in found.values()]
    ax.plot(list(found), means, "o-", color=colour, lw=2, ms=7)
    plots.label(ax, (3, means[-1]), "FedPLCC, λ₂ = 10 λ₁", (10, 0), color=colour, va="center")
    mean = results.cell("mini-fedplcc-strength", "FedAvg", "Avg.").mean
    ax.axhline(mean, color=grey, ls="--", lw=1.5)
    plots.label(ax, (110, mean), "FedAvg", (0, 4), color=grey, ha="right")
    ax.set(xscale="log", xlim=(0.02, 200), ylim=(0, 88), ylabel="accuracy after ten rounds (%)")
    ticks = [0.03, 0.1, 0.3, 1, 3, 10, 30, 100]
    ax.set_xticks(ticks, [f"{lam:g}" for lam in ticks])
    ax.minorticks_off()
    ax.set_xlabel("λ₁, factor of the contrast")
    for lam, text in _USED.items():
        ax.plot(lam, 0, "^", color="black", ms=9, clip_on=False, zorder=4)
        plots.label(ax, (lam, 0), text, (0, 9), size=10, ha="center", va="bottom")
    return ax


@plots.described("Ten digits, each written, slanted, blended, printed, in scenes")
def five_domains() -> Axes:
    """An image of each class in each of the five embedded domains."""
    ax = plt.figure(figsize=(6, 3.4)).subplots()
    return domains(data.load("digits5_mini"), ax)


def domains(dataset: Dataset, ax: Axes | None = None, title: str = "") -> Axes:
    """The first training image of every domain (rows) and class (columns), if there is one."""
    side = dataset.images.shape[-1]
    num_domains, num_classes = len(dataset.group_names), dataset.num_classes
    step = side + 1  # a line of one pixel between images
    sheet = np.full((num_domains * step - 1, num_classes * step - 1, 3), 255, np.uint8)
    for row, column in np.ndindex(num_domains, num_classes):
        for image in dataset.images[(dataset.train_groups == row) & (dataset.labels == column)][:1]:
            sheet[row * step :, column * step :][:side, :side] = image.permute(1, 2, 0)
    ax = ax or plt.gca()
    ax.imshow(sheet, interpolation="nearest")
    ax.set_yticks(np.arange(num_domains) * step + side / 2, dataset.group_names)
    ax.set_xticks(np.arange(num_classes) * step + step / 2, dataset.classes)
    ax.tick_params(length=0)
    ax.tick_params(axis="x", labelrotation=45 if max(map(len, dataset.classes)) > 2 else 0)
    ax.spines[:].set_visible(False)
    ax.set_title(title)
    return ax


# --- FINCH, step by step


def four_groups(outlier: float = 7.5) -> Tensor:
    """Four groups of three points in the plane, and an outlier that far to the right: [13, 2]."""
    middles = [(0.5, 0), (2.3, 1.6), (5.9, -0.1), (4.8, 2.0)]
    triangle = np.array([(0, 0), (1.0, 0.15), (0.3, 0.85)])
    turns = [np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in (0, 1, 2, 0.2)]
    groups = [np.array(middle) + triangle @ turn.T for middle, turn in zip(middles, turns, strict=True)]
    return torch.from_numpy(np.concatenate([*groups, [(outlier, 3.2)]]))


@plots.described("Arrows from each point to its nearest, clusters, arrows between means, fewer clusters and their means")
def steps_of_finch(points: Tensor) -> Figure:
    """Four frames: arrows to nearest points, what they join, and the same with the means."""
    figure, axes = plt.subplots(1, 4, figsize=(13, 2.6), sharex=True, sharey=True)
    for step, ax in enumerate(axes, start=1):
        _frame(ax, points, step)
    axes[0].set(xlim=(-0.8, 8.3), ylim=(-0.8, 3.9))
    return figure


def step_of_finch(step: int, outlier: float) -> None:
    """Show one of the four frames, with the outlier anywhere: what a slider calls."""
    ax = plt.figure(figsize=(5.5, 4)).subplots()
    _frame(ax, four_groups(outlier), step)
    ax.set(xlim=(-0.8, 9.2), ylim=(-0.8, 3.6))
    plots.show(ax, f"Step {step} of FINCH with the outlier at {outlier:g}")


def _drag(ax: Axes, members: Tensor, colour: str) -> None:
    """The mean of a cluster with its last point, the outlier, and without: an arrow from here to there."""
    without, mean = members[:-1].mean(0).tolist(), members.mean(0).tolist()
    ax.plot(*without, "+", color=colour, alpha=0.5, ms=11)
    ax.plot(*mean, "+", color=colour, ms=11, mew=2)
    ax.annotate("", mean, without, arrowprops={"arrowstyle": "->", "color": colour, "shrinkA": 0, "shrinkB": 0})


def _frame(ax: Axes, points: Tensor, step: int) -> None:
    """Draw step 1: arrows between points; 2: joined; 3: arrows between means; 4: joined again.

    A cluster that is joined of two takes the colour of one of them.
    """
    levels = finch.partitions(points, "euclidean")
    first = levels[0]
    last = levels[min(1, len(levels) - 1)]
    nodes = points
    colours = ["0.6"] * len(points)
    if step > 1:
        colours = [f"C{int(c)}" for c in first]
    if step > 2:
        nodes = torch.stack([points[first == c].mean(0) for c in first.unique()])
    if step > 3:
        nodes = torch.stack([points[last == c].mean(0) for c in last.unique()])
        colours = [f"C{int(first[last == c].min())}" for c in last]
    if step > 2:
        ax.plot(*nodes.T, "k+", ms=11)
    if step == 2:
        _drag(ax, points[first == first[-1]], str(colours[-1]))
    ax.scatter(*points[:-1].T, c=colours[:-1], s=30)
    ax.scatter(*points[-1:].T, c=colours[-1:], s=60, marker="D")
    if step % 2:
        nearest = nodes[finch.first_neighbours(nodes, "euclidean")]
        for start, end in zip(nodes, nearest, strict=True):
            arrow = {"arrowstyle": "->", "color": "black", "shrinkA": 3, "shrinkB": 3, "lw": 1.2}
            ax.annotate("", end.tolist(), start.tolist(), arrowprops=arrow)
    number = len(set(colours))
    titles = (
        f"1. each of {len(points)} points\nchooses its nearest",
        f"2. what is linked is joined:\n{number} clusters",
        "3. each mean (+)\nchooses its nearest",
        f"4. joined again:\n{number} clusters",
    )
    ax.set_title(titles[step - 1], size=12)
    ax.set(aspect="equal", xticks=[], yticks=[])
    ax.spines[:].set(visible=True, color="0.75", linewidth=0.8)
