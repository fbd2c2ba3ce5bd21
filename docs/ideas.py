"""Draws docs/ideas/*.png, the README's four ideas, with the notebooks' pictures: ``python docs/ideas.py``."""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from fednb.papers.pictures import fedproc, fedssc, foundations, moon
from matplotlib.figure import Figure

from fednb import plots

FOLDER = Path(__file__).with_name("ideas")
SIZE = (4.6, 2.9)  # in inches, so that the letters are large
DPI = 110
WIDER = {"momentum": 1.4, "overshoot": 1.4}  # where letters must be smaller
RATES = ["FedAvg, z of length 1", "FedAvg", "FedProc as printed"]


def _scaffold(momentum: float, factor: float, rounds: int) -> np.ndarray:
    """SCAFFOLD's path on the two bowls of 00, as 00 draws it: [rounds, 2], the start included."""
    return foundations.scaffold(100, rounds - 1, m=momentum, factor=factor, eta=0.01)


def momentum() -> Figure:
    """SCAFFOLD on the two bowls of 00, whose clients have momentum: with its factor, and without."""
    figure, ax = plt.subplots()
    foundations.way_with_momentum(_scaffold, ax)
    for text in ax.texts:
        text.set_text(text.get_text().replace(" (8)", "").replace(" (7)", ""))
    return figure


def overshoot() -> Figure:
    """MOON's contrast around the circle of directions, without its scale."""
    ax = moon.overshoot()
    ax.figure.axes[1].remove()  # the colour bar
    return ax.figure


def length_one() -> Figure:
    """What a line of FedProc's code does without the rest of it, at two learning rates."""
    ax = fedproc.rates("digits-fedproc-control", RATES)
    ax.legend(loc="lower right", frameon=False)
    return ax.figure


def draw() -> Figure:
    """Ten clients' means of a class: one is drawn, or all are averaged."""
    figure = fedssc.draws()
    figure.axes[2].remove()
    for ax, columns in zip(figure.axes, (slice(0, 1), slice(1, 2)), strict=True):
        ax.set_subplotspec(mpl.gridspec.GridSpec(1, 2, figure=figure)[0, columns])
    figure.axes[0].set_title("one client is drawn:\nscatter and bias")
    figure.axes[1].set_title("the mean of all ten:\nthe bias is left")
    return figure


def main() -> None:
    """Draw all four."""
    plots.style()
    mpl.rcParams["figure.constrained_layout.use"] = True
    FOLDER.mkdir(exist_ok=True)
    for picture in (momentum, overshoot, length_one, draw):
        figure = picture()
        wider = WIDER.get(picture.__name__, 1.0)
        figure.set_size_inches(wider * SIZE[0], wider * SIZE[1])
        figure.savefig(FOLDER / f"{picture.__name__}.png", dpi=DPI / wider)


if __name__ == "__main__":
    main()
