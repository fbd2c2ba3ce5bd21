"""Of the extra on variants of MOON and FedProc: pictures, and numbers that two papers share."""

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import partition, plots, results


@plots.described("With the rule of the code a client that is full gets nothing more, without it some do")
def with_and_without_the_rule() -> Figure:
    """CIFAR-10's class counts divided among ten clients at β = 0.5, by MOON's paper and its code.

    A row is grey from the class at which its client has a tenth of all images.
    """
    labels = np.repeat(np.arange(10), 5000)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    titles = {False: "by the paper's formula", True: "by its code"}
    for ax, (balance, title) in zip(axes, titles.items(), strict=True):
        parts = partition.dirichlet(labels, 10, 0.5, np.random.RandomState(0), balance=balance)
        plots.split(parts, labels, 10, ax, title, largest=4000)
        so_far = partition.class_counts(parts, labels, 10).cumsum(1)
        for client, full in enumerate((so_far < 5000).sum(1) + 1):  # from this class on
            if full < 10:
                ax.barh(client, 10.2 - full, left=full - 0.5, height=0.9, color="0.87", zorder=0)
    axes[1].set_ylabel("")
    return figure


@plots.described("Unit norm gains, alpha over 100 rounds loses most of the accuracy, and together they lose less")
def code_changes() -> Axes:
    """What each change of FedProc's published code is worth on the digits, over the paper's text."""
    table = "digits-fedproc-code"
    rows = {
        "1  norm of z is 1": "z of length 1",
        "2  cross-entropy alone in round 0": "cross entropy alone in round 0",
        "3  prototypes weighted by images": "prototypes weighted with images",
        "4  α falls over 100 rounds, not 10": "alpha falls over 100 rounds",
        "1 and 4": "z of length 1, alpha falls over 100 rounds",
        "1, 2 and 3": "all but T",
        "all four": "all four",
    }
    lines = []
    for label, row in rows.items():
        lead = results.compare(results.cell(table, row), results.cell(table, "as printed"))
        colour = plots.colour("FedProc")
        lines.append(results.ForestRow(label, lead, colour, results.numbers(lead)))
    return results.draw_forest(lines, sides=("the code", "the paper"))


@plots.described("Only with the last change, prototypes by images, is the run with a slow alpha as good as before")
def staircase() -> Axes:
    """FedProc's accuracy on the digits as the code's changes are made one after the other."""
    rows = {
        "FedProc as\nin the paper": "as printed",
        "1: norm of z\nis 1": "z of length 1",
        "4: slow α": "alpha falls over 100 rounds",
        "2: cross-entropy\nin round 0": "cross entropy alone in round 0",
        "3: prototypes\nby images": "prototypes weighted with images",
    }
    cells = [results.cell("digits-fedproc-ladder", row) for row in rows.values()]
    _, ax = plt.subplots(figsize=(8.5, 3))
    edges = np.arange(len(cells) + 1) - 0.5
    look = {"baseline": None, "color": plots.colour("FedProc")}
    for seed in cells[0].seeds:
        label = None if seed else "a seed"
        ax.stairs([one.by_seed[seed] for one in cells], edges, lw=0.9, alpha=0.6, label=label, **look)
    ax.stairs([one.mean for one in cells], edges, lw=3, label="their mean", **look)
    ax.set(ylabel="accuracy (%)", ylim=(40, 100))
    words = [name if not place else f"+ {name}" for place, name in enumerate(rows)]
    ax.set_xticks(range(len(rows)), words, fontsize="small")
    ax.tick_params(axis="x", length=0)
    ax.grid(axis="y", alpha=0.3)
    ax.legend(frameon=False, fontsize="small", loc="lower left")
    return ax


def beside_moon() -> Markdown:
    """The numbers of FedProc's Table 2, and of MOON's Table 1, for the methods that both have."""
    columns = {"CIFAR-10": "CIFAR-10", "CIFAR-100": "CIFAR-100", "Tiny-ImageNet": "Tiny-Imagenet"}
    theirs = results.printed("MOON Table 1")
    lines = [f"| | {' | '.join(columns)} |", "| :-- | :-: | :-: | :-: |"]
    for row, numbers in results.printed("FedProc Table 2").items():
        if row not in theirs:
            continue
        pairs = [(numbers[ours], theirs[row][its]) for ours, its in columns.items()]
        words = [f"**{a} = {b}**" if a == b else f"{a} ≠ {b}" for a, b in pairs]
        lines.append(f"| {row} | {' | '.join(words)} |")
    return Markdown("\n".join(lines))
