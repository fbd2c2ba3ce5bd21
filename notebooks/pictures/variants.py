"""Of the extra on variants of MOON and FedProc: pictures, and numbers that two papers share."""

import itertools

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import partition, plots, results

_CHANGES = {  # of FedProc's published code, beside the slow α: in words, and a colour
    1: ("1: norm of z is 1", "#0173b2"),
    2: ("2: cross-entropy alone in round 0", "#029e73"),
    3: ("3: prototypes by images", "#d55e00"),
}
CHOICES = {  # of them, by row of a table
    "none": frozenset[int](),
    "1": frozenset({1}),
    "2": frozenset({2}),
    "3": frozenset({3}),
    "1 and 2": frozenset({1, 2}),
    "1 and 3": frozenset({1, 3}),
    "2 and 3": frozenset({2, 3}),
    "1, 2 and 3": frozenset({1, 2, 3}),
}
_STEPS = {1: 1.0, 2: 0.7, 3: 1.3}  # so far to the right is a change drawn, so that choices do not meet


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


@plots.described("Unit norm adds about as much everywhere; the other two changes add little alone and much together")
def cube() -> Axes:
    """FedProc's accuracy on the digits with the slow α, for every choice of the other three changes.

    A line is one change more, in the change's colour; if changes added up, lines of a colour would be parallel.
    """
    found = {row: results.cell("digits-fedproc-cube", row) for row in CHOICES}
    _, ax = plt.subplots(figsize=(9.5, 4.6))
    for (before, made), (after, then) in itertools.permutations(CHOICES.items(), 2):
        if made < then and len(then - made) == 1:
            (change,) = then - made
            ends = [sum(map(_STEPS.__getitem__, one)) for one in (made, then)]
            heights = [found[before].mean, found[after].mean]
            ax.plot(ends, heights, color=_CHANGES[change][1], lw=2, zorder=1)
    for row, made in CHOICES.items():
        x = sum(map(_STEPS.__getitem__, made))
        ax.plot([x] * len(found[row].values), found[row].values, ".", color="0.6", ms=6, zorder=0)
        words = " + ".join(map(str, sorted(made))) or "none"
        box = {"boxstyle": "round,pad=0.3", "fc": "white", "ec": "0.3"}
        ax.text(x, found[row].mean, words, ha="center", va="center", bbox=box, zorder=3)
    paper = results.cell("digits-fedproc-ladder", "as printed").mean
    ax.axhline(paper, color="0.5", ls="--", lw=1, zorder=0)
    plots.label(ax, (-0.25, paper), "FedProc as in the paper", (0, 4), color="0.4", fontsize="small")
    for words, colour in _CHANGES.values():
        ax.plot([], [], color=colour, lw=2, label=words)
    ax.plot([], [], ".", color="0.6", ms=6, label="a seed; boxes: the mean of three")
    ax.set(ylabel="accuracy (%)", xlim=(-0.3, 3.3))
    ax.set_xticks(range(4), ["the slow α (4) alone", "and one change", "and two", "and three"])
    ax.tick_params(axis="x", length=0)
    ax.grid(axis="y", alpha=0.3)
    ax.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(0, 0.88))
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
