"""Pictures of the extra on readings: what it changes if a paper's sentence is programmed otherwise."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots, results

STEPS = {"FedPLCC": 50, "E = 10 steps, not epochs": 10}  # of a client in a round, by row of the table
_LOOKS = ((plots.colour("FedPLCC"), "-"), ("0.35", "--"))  # of the two programs
_PROGRAMS = (  # what "iterations" may mean
    ("epochs", "for epoch in range(epochs):  # 5 here\n    for batch in batches:\n        step(batch)"),
    ("steps", "for batch in batches[:10]:\n    step(batch)"),
)
_EDGE = 14.0  # points left and right of zero that are drawn
_CHOICES = {  # findings that have the differences, and of which notebook's method
    "fedssc-readings": "FedSSC (03)",
    "fedproto-readings": "FedProto (04)",
    "fedproto-distances": "FedProto (04)",
    "fedplcc-readings": "FedPLCC (05)",
}
_LEFT_OUT = (  # one seed; not readings
    "the same, MNIST, n = 3",
    "no pull: each client alone",
    "mean squared error, λ = 100 (best held out)",
)
_TRAPS = {"L1 of the batch's means, λ = 0.01": "①", "ten steps, not five epochs": "②"}
_SHOWN = 150  # steps of a client that are drawn


@plots.described("One sentence leads to two programs; the one that counts epochs ends far above the one that counts steps")
def one_sentence() -> Figure:
    """Two programs of a sentence of FedPLCC's paper, and their recorded accuracies by round."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.4), width_ratios=(1.15, 1))
    left.set(xlim=(0, 1), ylim=(0, 1))
    left.axis("off")
    sentence = "“each local\ntraining epoch\nconsists of\nE = 10 iterations”"
    left.text(0.0, 0.5, sentence, size=12, style="italic", va="center")
    for (unit, code), (colour, _), y in zip(_PROGRAMS, _LOOKS, (0.78, 0.2), strict=True):
        left.annotate("", (0.42, y), (0.34, 0.5), arrowprops={"arrowstyle": "->", "color": colour, "lw": 2})
        box = {"boxstyle": "round,pad=0.5", "fc": "white", "ec": colour, "lw": 1.5}
        left.text(0.45, y, code, family="monospace", size=8.5, va="center", bbox=box)
        left.text(0.44, y + 0.07 + 0.04 * len(code.splitlines()), f"read as {unit}", color=colour, weight="bold")
    recorded = results.accuracies("mini-fedplcc-readings")
    for row, (unit, _), (colour, look) in zip(STEPS, _PROGRAMS, _LOOKS, strict=True):
        of_seeds = recorded[row]
        right.plot(of_seeds.columns, of_seeds.T, lw=0.6, ls=look, color=colour)
        right.plot(of_seeds.columns, of_seeds.mean(), lw=2.5, ls=look, color=colour)
        right.text(10.2, of_seeds.mean().iloc[-1], unit, color=colour, weight="bold", va="center")
    right.set(xlabel="round", ylabel="accuracy, mean of five domains (%)", ylim=(0, 100), xlim=(0.5, 11.8))
    right.set_xticks(range(2, 11, 2))
    return figure


@plots.described(
    "Thirteen differences in points: most lie at zero, averaging all clients a little above, ten steps far below"
)
def choices() -> Figure:
    """By how many points each choice that a paper leaves open changes a notebook's result."""
    lines = []
    for finding, paper in _CHOICES.items():
        for line in results.load("findings")[finding]["forest"]["lines"]:
            if line["label"] not in _LEFT_OUT:
                lines.append((paper, line))
    figure, ax = plt.subplots(figsize=(10.5, 4.8))
    ax.axvline(0, color="0.6", lw=1, zorder=0)
    y = 0.0
    places = []
    before = lines[0][0]
    for paper, line in lines:
        y += 1.6 if paper != before else 1.0
        before = paper
        places.append(y)
        _draw_choice(ax, y, line, plots.colour(paper))
    for paper in dict.fromkeys(_CHOICES.values()):
        of_paper = [place for place, (name, _) in zip(places, lines, strict=True) if name == paper]
        (seeds, *_) = [line["seeds"] for name, line in lines if name == paper]
        title = f"{paper}\n{seeds} seeds"
        ax.text(_EDGE * 1.03, np.mean(of_paper), title, color=plots.colour(paper), va="center", weight="bold")
    labels = []
    for _, line in lines:
        trap = _TRAPS.get(line["label"], "")
        labels.append(f"{trap} {line['label']}".strip())
    ax.set_yticks(places, labels)
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(-_EDGE, _EDGE), ylim=(places[-1] + 0.7, places[0] - 0.7))
    ax.set_xlabel("points that the other choice gains or loses, with its 95 % interval")
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x", alpha=0.3)
    return figure


def _draw_choice(ax: Axes, y: float, line: Mapping[str, Any], colour: str) -> None:
    """Draw a difference with its interval; an arrow with its number, if it lies beyond the edge."""
    mean = line["mean"]
    if mean < -_EDGE:
        ax.annotate(
            f"{mean:.0f}".replace("-", "−"),
            (-_EDGE, y),
            (-_EDGE + 2, y),
            color=colour,
            va="center",
            arrowprops={"arrowstyle": "->", "color": colour, "lw": 2},
        )
        return
    ax.errorbar(mean, y, xerr=line["half"], fmt="o", color=colour, capsize=3)


@plots.described("By steps taken, the runs with ten steps a round lie a little below those with five epochs a round")
def by_steps() -> Axes:
    """Recorded accuracies of FedPLCC's two programs, by the steps that a client has taken."""
    recorded = results.accuracies("mini-fedplcc-readings")
    _, ax = plt.subplots(figsize=(7, 3.2))
    names = ("five epochs a round", "ten steps a round")
    for (row, steps), name, (colour, look) in zip(STEPS.items(), names, _LOOKS, strict=True):
        of_seeds = recorded[row]
        places = of_seeds.columns * steps
        ax.plot(places, of_seeds.T, lw=0.6, ls=look, color=colour)
        ax.plot(places, of_seeds.mean(), "o", lw=2.5, ls=look, ms=4, color=colour, label=name)
    ax.set(xlabel="steps that a client has taken", ylabel="accuracy (%)", xlim=(0, _SHOWN), ylim=(0, 80))
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return ax
