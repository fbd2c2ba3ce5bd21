"""Pictures of the extra on readings: what it changes if a paper's sentence is programmed otherwise."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots, results

STEPS = {"FedPLCC": 50, "E = 10 steps, not epochs": 10}  # of a client in a round, by row of the table
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


@plots.described(
    "By rounds, five epochs are far above ten steps; by steps taken, the short curve lies a little below the long one"
)
def steps_or_epochs() -> Figure:
    """Recorded accuracies of FedPLCC by round, and the same by steps that a client has taken."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.6), sharey=True)
    recorded = results.accuracies("mini-fedplcc-readings")
    colours = (plots.colour("FedPLCC"), "0.4")
    for (row, steps), look, colour in zip(STEPS.items(), ("-", "--"), colours, strict=True):
        of_seeds = recorded[row]
        name = "five epochs a round" if steps == 50 else "ten steps a round"
        for ax, places in ((left, of_seeds.columns), (right, of_seeds.columns * steps)):
            ax.plot(places, of_seeds.T, lw=0.6, ls=look, color=colour)
            ax.plot(places, of_seeds.mean(), lw=2.5, ls=look, color=colour, label=name)
    left.set(xlabel="round", ylabel="mean accuracy (%)", ylim=(0, 100), title="by rounds")
    right.set(xlabel="steps that a client has taken", title="the same runs, by steps", xlim=(0, _SHOWN))
    left.legend(frameon=False, fontsize="small", loc="upper left")
    return figure
