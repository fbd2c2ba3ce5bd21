"""Pictures of the extra on readings: one sentence of a paper, and the programs it may mean."""

import matplotlib.pyplot as plt
import numpy as np
from fednb.papers.fedssc import class_weight
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots, results

_ROUNDS = 10
_WARMUP = 5
STEPS = {"FedPLCC": 50, "E = 10 steps, not epochs": 10}  # of a client in a round, by row of the table


def class_weights() -> dict[str, np.ndarray]:
    """The weight of FedSSC's class contrast in each of ten rounds, by reading of the formula."""
    rounds = np.arange(_ROUNDS)
    mended = np.array([class_weight(int(t), _ROUNDS, 1.0, 1e-4, _WARMUP) for t in rounds])
    as_printed = np.full(_ROUNDS, class_weight(_WARMUP + 1, _ROUNDS, 1.0, 1e-4, _WARMUP))
    return {
        "held, then falling": mended,
        "zero, then falling": np.where(rounds < _WARMUP, 0.0, mended),
        "as printed": as_printed,
    }


@plots.described(
    "Three curves of a weight, four strengths of a pull, and ten or fifty steps: each panel is one passage of a paper"
)
def one_sentence() -> Figure:
    """Three sentences of papers, and what a program may make of each."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.4))
    _weights(axes[0])
    _pulls(axes[1])
    _iterations(axes[2])
    return figure


def _weights(ax: Axes) -> None:
    places = {"held, then falling": (1, 1.07), "zero, then falling": (1, 0.07), "as printed": (1, 0.67)}
    looks = {"held, then falling": "-", "zero, then falling": ":", "as printed": "--"}
    for name, weights in class_weights().items():
        ax.plot(range(1, _ROUNDS + 1), weights, looks[name], lw=2.2, color=plots.colour("FedSSC"))
        ax.text(*places[name], name, size="small")
    ax.set(title="FedSSC: how does the weight fall?", xlabel="round", ylabel="weight", ylim=(-0.05, 1.25))


def _pulls(ax: Axes) -> None:
    """Draw how hard each distance pulls an image in a batch of 16, two of each of eight classes."""
    away = np.linspace(0.05, 2, 100)
    pulls = {
        "absolute values": (np.full(100, 4.0), ":"),
        "norm": (np.full(100, 0.5), "--"),
        "squared norm": (2 * away / 16, "-"),
        "mean squared error": (2 * away / 16 / 64, "-."),
    }
    for name, (pull, look) in pulls.items():
        ax.plot(away, pull, lw=2.2, ls=look, color=plots.colour("FedProto"))
        shift = -4 if name == "squared norm" else 4
        plots.label(ax, (away[-1], pull[-1]), name, (5, shift), va="center", size="small")
    ax.set(title="FedProto: which distance?", xlabel="distance from the prototype", ylabel="pull")
    ax.set(yscale="log", ylim=(1e-4, 10))


def _iterations(ax: Axes) -> None:
    for height, (number, name) in enumerate([(50, "five epochs of ten steps"), (10, "ten steps")]):
        places = np.arange(1, number + 1)
        ax.plot(places, np.full(number, height), "|", ms=22, mew=2, color=plots.colour("FedPLCC"))
        ax.text(1, height + 0.22, name, size="small")
    ax.set(title="FedPLCC: ten iterations of what?", xlabel="steps of a client in one round")
    ax.set(yticks=[], ylim=(-0.5, 1.7))
    ax.spines["left"].set_visible(False)


@plots.described(
    "By rounds, five epochs are far above ten steps; by steps taken, the short curve lies near the start of the long one"
)
def steps_or_epochs() -> Figure:
    """Recorded accuracies of FedPLCC by round, and the same by steps that a client has taken."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.6), sharey=True)
    recorded = results.accuracies("mini-fedplcc-readings")
    for (row, steps), look in zip(STEPS.items(), ("-", "--"), strict=True):
        of_seeds = recorded[row]
        name = "five epochs a round" if steps == 50 else "ten steps a round"
        for ax, places in ((left, of_seeds.columns), (right, of_seeds.columns * steps)):
            ax.plot(places, of_seeds.T, lw=0.6, ls=look, color=plots.colour("FedPLCC"))
            ax.plot(places, of_seeds.mean(), lw=2.5, ls=look, color=plots.colour("FedPLCC"), label=name)
    left.set(xlabel="round", ylabel="mean accuracy (%)", ylim=(0, 100), title="by rounds")
    right.set(xlabel="steps that a client has taken", title="the same runs, by steps")
    left.legend(frameon=False, fontsize="small", loc="upper left")
    return figure
