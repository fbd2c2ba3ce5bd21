"""Pictures of notebook 03: what drawn devices say of a class, and what a device wants to know."""

from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from fednb import plots

_TITLES = {1: "one device is drawn", 3: "the mean of three of ten", 10: "the mean of all ten"}
_SIZES = {1: 50, 3: 16, 10: 90}


def draws() -> Figure:
    """A sketch with made-up vectors: more devices remove the scatter of a draw, not its bias."""
    said = np.random.default_rng(4).normal(size=(10, 2)) * (1, 0.7)  # of one class, by ten devices
    centre = said.mean(0)
    wanted = centre + np.array([0.9, 0.5])
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.2), width_ratios=(1, 1, 1, 1.2))
    colour = plots.colour("FedSSC")
    for ax, (n, title) in zip(axes, _TITLES.items(), strict=False):
        means = np.array([said[list(chosen)].mean(0) for chosen in combinations(range(10), n)])
        ax.scatter(*means.T, s=_SIZES[n], color=colour, alpha=0.6, lw=0)
        ax.annotate("", tuple(wanted), tuple(centre), arrowprops={"arrowstyle": "-|>", "lw": 1.8})
        ax.plot(*wanted, "k*", ms=14)
        ax.set(xlim=centre[0] + np.array([-2, 2]), ylim=centre[1] + np.array([-1.6, 1.6]))
        ax.set(aspect="equal", title=title)
        ax.axis("off")
    drawn = np.arange(1, 11)
    bias = float(((wanted - centre) ** 2).sum())
    variance = said.var(0, ddof=1).sum() / drawn * (1 - drawn / 10)
    axes[3].stackplot(drawn, np.full(10, bias), variance, colors=["0.3", colour])
    axes[3].text(5, bias / 2, "bias, squared", color="white", ha="center", va="center")
    axes[3].text(2.6, bias + 0.3, "variance", color=colour)
    axes[3].set(xlabel="devices drawn", ylabel="mean squared error")
    axes[3].set(xticks=(1, 3, 5, 10), xlim=(1, 10))
    return figure
