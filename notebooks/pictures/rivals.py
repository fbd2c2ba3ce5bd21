"""Pictures of the extra on FedProto's rivals: which part of a network travels, and what that is worth."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from fednb import build, papers, plots, results
from fednb.leads import Lead, differences, lead_of
from fednb.settings import resolve

_COMMON = "0.6"  # a layer that all clients share
_CLIENTS = ("#0173b2", "#de8f05", "#029e73")
_GROUP = "#8f2d56"  # the second cluster's model
_PLACES = (0.8, 2.0, 3.2)  # of the clients, below the server in the middle
_LAYERS = 4
_DIGITS = "digits-fedproto-travels"  # the table of recorded runs, among any classes
_ZERO = "nothing, but pulled to zero"  # a row of that table
_TRAVELS = {  # from least to most
    _ZERO: _ZERO,
    "FedProto": "a point per class: FedProto",
    "FedPer": "the body: FedPer",
    "FedRep": "the body: FedRep",
    "FeSEM": "everything, in clusters: FeSEM",
    "FedAvg": "everything: FedAvg",
}
_ASKED = {  # how a table of these answers ends: words, and how far below its row and how filled a mark is
    "": ("any of the ten classes", 0.17, False),
    "-local": ("the client's own classes only", -0.17, True),
}


@plots.described(
    "Seven drawings of a server above three clients. Grey layers travel, coloured ones stay: none travels with SOLO and the"
    " control, only points with FedProto, the lower layers with FedPer and FedRep, all with FeSEM, which has two models, and"
    " FedAvg. Bars below: in rounds 1 to 20 the control is ahead of SOLO most, FedProto less so, and whoever sends layers is"
    " behind; after round 60 FedAvg is ahead"
)
def what_travels() -> Figure:
    """A server above three clients, for each method: what travels, how many numbers a client gets, and the gain."""
    texts = {
        "SOLO": "nothing",
        "control": "nothing: all points\nare zero",
        "FedProto": "a point per class,\nmade at the dots",
        "FedPer": "the body: layers\nbelow the dashes",
        "FedRep": "the body, trained\nafter the head",
        "FeSEM": "everything,\nwithin a cluster",
        "FedAvg": "everything",
    }
    figure, (above, below) = plt.subplots(2, len(texts), figsize=(13, 6.2), height_ratios=(3.9, 1.7), sharey="row")
    received = _numbers_received()
    for ax, bars, (name, text) in zip(above, below, texts.items(), strict=True):
        _method(ax, name)
        ax.set_title(name)
        ax.text(2, -0.35, text, ha="center", va="top", size=10.5)
        ax.text(2, -1.6, f"{received[name]:,} numbers", ha="center", va="top", size=10.5, color="0.4")
        ax.set(xlim=(0, 4), ylim=(-2.1, 5.4))
        ax.axis("off")
        _gained(bars, name)
    below[0].set_ylabel("points of accuracy\nahead of SOLO")
    return figure


def _gained(ax: Axes, name: str) -> None:
    """A bar for the lead over training alone, among own classes, in rounds 1 to 20, and one for that after round 60."""
    row = _ZERO if name == "control" else name
    ax.axhline(0, color="0.4", lw=1)
    for x, rounds in enumerate((range(1, 21), [60])):
        if name == "SOLO":
            ax.text(x, 0.6, "0", ha="center", size=10)
            continue
        lead = _on_digits(rounds, "-local", row)
        ax.bar(x, lead.mean, yerr=lead.half_width, color=_look(row), width=0.6, ecolor="0.5", capsize=3, alpha=0.85)
    ax.set_xticks([0, 1], ["rounds\n1 to 20", "round\n60"])
    ax.set(xlim=(-0.6, 1.6))
    ax.tick_params(axis="x", length=0)


def _numbers_received() -> dict[str, int]:
    """How many numbers a client of the digits gets in a round: with FedProto the means of all classes, and their labels."""
    methods = papers.methods("04_fedproto")
    data: dict[str, Any] = {"dataset": "digits", "partition": "n-way-k-shot", "shots": 8}
    network = build.federation("FedAvg", methods, device="cpu", **data).new_network()
    sizes = {name: entry.numel() for name, entry in network.state_dict().items()}
    body = sum(size for name, size in sizes.items() if not any(part in name for part in ("fc1", "classifier")))
    classes, width = network.classifier.weight.shape
    whole = sum(sizes.values())
    points = classes * (width + 1)
    return {"SOLO": 0, "control": 0, "FedProto": points, "FedPer": body, "FedRep": body, "FeSEM": whole, "FedAvg": whole}


def _method(ax: Axes, name: str) -> None:
    """What the server has, and three clients with their layers."""
    shared = {"SOLO": 0, "control": 0, "FedProto": 0, "FedPer": 2, "FedRep": 2}.get(name, _LAYERS)
    for i, (x, colour) in enumerate(zip(_PLACES, _CLIENTS, strict=True)):
        of_group = _GROUP if name == "FeSEM" and i == 2 else _COMMON
        _layers(ax, x, 0.0, [of_group] * shared + [colour] * (_LAYERS - shared))
        if name not in ("SOLO", "control"):
            top = 2.0 + 0.45 * (x - 2.0)
            ax.annotate("", (top, 3.15), (x, 1.8), arrowprops={"arrowstyle": "<->", "color": "0.4"})
    if name in ("control", "FedProto"):  # where representations are
        ax.plot([0.2, 3.8], [0.41 * 3 - 0.025] * 2, ":", color="black", lw=2)
    if name in ("FedPer", "FedRep"):  # where the network is cut
        ax.plot([0.2, 3.8], [0.41 * 2 - 0.025] * 2, "--", color="black", lw=1.5)
    if name == "FedRep":  # what is trained first, and what second
        ax.text(0.1, 1.25, "1", ha="center", va="center", weight="bold")
        ax.text(0.1, 0.36, "2", ha="center", va="center", weight="bold")
    if name == "FedProto":
        places = ((1.3, 3.6), (2.1, 4.4), (2.8, 3.7), (1.7, 4.9))
        for x, y in places:
            ax.plot(x, y, "*", ms=13, color=_COMMON)
    elif name == "FeSEM":
        _layers(ax, 1.4, 3.3, [_COMMON] * _LAYERS)
        _layers(ax, 2.6, 3.3, [_GROUP] * _LAYERS)
    elif shared:
        _layers(ax, 2.0, 3.3, [_COMMON] * shared)


def _layers(ax: Axes, x: float, y: float, colours: Sequence[str]) -> None:
    """A network as a pile of layers, from y upwards around x."""
    for i, colour in enumerate(colours):
        ax.add_patch(Rectangle((x - 0.4, y + 0.41 * i), 0.8, 0.36, fc=colour, ec="white"))


@plots.described(
    "Mean leads over training alone. In the first rounds the pull to zero is far ahead, and FedProto a little; FedAvg and"
    " FeSEM begin far behind. Left, they"
    " come up to it without passing it; right, among own classes, both pass it, FedAvg by most"
)
def learning() -> Figure:
    """Mean points ahead of training alone in the recorded runs, over rounds: among all classes, and among own ones."""
    figure, axes = plt.subplots(1, 2, figsize=(12.5, 4.6), sharey=True)
    axes[0].set_ylim(-39, 31)
    names = {
        "FedProto": "points: FedProto",
        "FedPer": "body: FedPer",
        "FedRep": "body: FedRep (thin)",
        "FedAvg": "whole: FedAvg",
        "FeSEM": "whole: FeSEM (thin)",
    }
    for ax, (asked, (title, *_)) in zip(axes, _ASKED.items(), strict=True):
        ax.axvspan(1, 20, color="0.94", zorder=0)
        curves = {row: values.mean() for row, values in results.accuracies(f"{_DIGITS}{asked}").items()}
        alone = curves["nothing"]
        ax.plot(alone.index, 0 * alone, lw=2, label="nothing: SOLO", color=plots.colour("SOLO"), zorder=1)
        zero = curves[_ZERO]
        ax.plot(zero.index, zero - alone, "--", lw=3, label="the control, zero", color=_look(_ZERO))
        for name, words in names.items():
            lead = curves[name] - alone
            ax.plot(lead.index, lead, lw=1.2 if "thin" in words else 3, label=words, color=plots.colour(name))
            ax.plot(60, lead[60], "o", ms=5, color=plots.colour(name))
        plots.label_ends(ax)
        look: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "va": "top", "size": 10, "color": "0.35"}
        ax.text(10.5, 0.99, "rounds 1 to 20", ha="center", **look)
        ax.text(60, 0.99, "round 60", ha="right", **look)
        ax.set(title=f"answers with {title}", xlabel="communication round")
    axes[0].set_ylabel("points ahead of training alone")
    return figure


@plots.described(
    "With FedPer a client is mostly a little better with the new average body than with the one it has trained; with FedRep"
    " it is worse by many points for most of the rounds"
)
def outdated(seen: Mapping[str, tuple[Any, Any]]) -> Figure:
    """Accuracy after each round, for each method with the body just trained, and with the new average of bodies."""
    figure, axes = plt.subplots(1, len(seen), figsize=(11, 3.6), sharey=True)
    for ax, (name, (trained, averaged)) in zip(axes, seen.items(), strict=True):
        rounds, colour = np.arange(1, len(trained) + 1), plots.colour(name)
        ax.vlines(rounds, trained, averaged, color="0.75", lw=1)
        ax.plot(rounds, trained, "o-", ms=4, lw=1.5, color=colour, label="with the body it has just trained")
        ax.plot(rounds, averaged, "s--", ms=4, mfc="white", lw=1.5, color="black", label="with the new average body")
        ax.set(title=f"{name}, one run", xlabel="communication round")
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        ax.legend(frameon=False, loc="lower right")
    axes[0].set_ylabel("accuracy among own digits (%)")
    return figure


@plots.described(
    "In the first twenty rounds the pull to zero is ahead of training alone, points less so, and whoever sends weights is"
    " behind. In the end the whole network is ahead among own classes, on the digits and on MNIST"
)
def answer() -> Figure:
    """How far each is ahead of training alone, early, late and on MNIST, among all classes and among a client's own."""
    figure, axes = plt.subplots(1, 3, figsize=(12.5, 3.9), sharey=True)
    titles = ["digits, mean of rounds 1 to 20,\n8 seeds", "digits, after round 60,\n8 seeds", "MNIST, at the end"]
    early, late = partial(_on_digits, range(1, 21)), partial(_on_digits, [60])
    leads: list[Callable[[str, str], Lead]] = [early, late, _on_mnist]
    beside = {"transform": axes[-1].get_yaxis_transform(), "color": "0.4"}
    for ax, title, lead in zip(axes, titles, leads, strict=True):
        ax.axvline(0, color="0.6", lw=1, zorder=0)
        for y, method in enumerate(_TRAVELS):
            if lead is _on_mnist and method == _ZERO:
                continue
            for asked, (_, lower, filled) in _ASKED.items():
                of = lead(asked, method)
                colour = _look(method)
                look = {"color": colour, "mfc": colour if filled else "white", "capsize": 3}
                ax.errorbar(of.mean, y + lower, xerr=of.half_width, fmt="o", **look)
            if lead is _on_mnist:
                ax.text(1.02, y, f"{_rounds_on_mnist(method)} rounds\n{of.seeds} seeds", va="center", size="small", **beside)
        ax.set(title=title, xlabel="points ahead of training alone")
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.grid(axis="x", alpha=0.3)
        ax.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(_TRAVELS)), [*_TRAVELS.values()])
    axes[0].invert_yaxis()
    for words, _, filled in _ASKED.values():
        mark = {"color": "0.4", "mfc": "0.4" if filled else "white"}
        axes[0].errorbar([], [], xerr=[], fmt="o", capsize=3, label=f"answers with {words}", **mark)
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": 2}
    figure.legend(frameon=False, fontsize="small", **place)
    return figure


@plots.described(
    "A panel for each method, with a thin line for each of four seeds and a thick one for their mean: if clients disagree,"
    " FedAvg and FeSEM fall far behind training alone; FedProto and FedPer stay near it"
)
def disagreement(leads: Mapping[str, np.ndarray]) -> Figure:
    """Points ahead of training alone, [seeds, 2]: in runs whose clients agree, and in those whose clients do not."""
    figure, axes = plt.subplots(1, len(leads), figsize=(12.5, 3.6), sharey=True)
    for ax, (name, of_seeds) in zip(axes, leads.items(), strict=True):
        ax.axhline(0, color="0.6", lw=1, zorder=0)
        colour = plots.colour(name)
        for values in of_seeds:
            ax.plot([0, 1], values, "o-", ms=3, lw=1, alpha=0.5, color=colour)
        ax.plot([0, 1], of_seeds.mean(0), "o-", lw=3, color=colour)
        means = [results.in_words(lead_of(values.tolist())) for values in of_seeds.T]
        ax.set_xticks([0, 1], [f"agree\n{means[0]}", f"disagree\n{means[1]}"])
        ax.set(title=name, xlim=(-0.5, 1.5))
        ax.tick_params(axis="x", length=0)
        ax.grid(axis="y", alpha=0.3)
    ends = [*leads.values()][-1][:, 1]
    plots.label(axes[-1], (1, ends.mean()), "mean", (7, 0), va="center", size=10)
    plots.label(axes[-1], (1, ends.min()), "a seed", (7, 0), va="center", size=10)
    axes[0].set_ylabel("points ahead of training alone")
    return figure


def _look(row: str) -> str:
    """The colour of a method, and that of the control."""
    return "black" if row == _ZERO else plots.colour(row)


def _on_digits(rounds: Sequence[int], asked: str, method: str) -> Lead:
    """The lead on the digits, over seeds: the mean of these rounds."""
    curves = results.accuracies(f"{_DIGITS}{asked}")
    ours, alone = (curves[row][[*rounds]].mean(axis=1).to_dict() for row in (method, "nothing"))
    return lead_of([*differences(ours, alone).values()])


def _on_mnist(asked: str, method: str) -> Lead:
    """The lead at the end of the runs of FedProto's Table 2 with three classes for a client."""
    rows = (f"{method}, stdev 2", "Local, stdev 2")
    return results.compare(*(results.cell(f"fedproto-2{asked}", row, "n=3") for row in rows))


def _rounds_on_mnist(method: str) -> int:
    """How many rounds FedProto's paper gives it there, and so do we."""
    methods = papers.methods("04_fedproto")
    return resolve(methods, method=method, dataset="mnist", partition="n-way-k-shot").num_rounds
