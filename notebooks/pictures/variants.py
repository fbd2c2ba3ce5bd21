"""Of the extra on variants of MOON and FedProc: pictures, and numbers that two papers share."""

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import partition, plots, results

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


@plots.described(
    "With the rule of the code a client that is full gets nothing more, "
    "and client 8 ends with more images than any has without it"
)
def with_and_without_the_rule() -> Figure:
    """CIFAR-10's class counts divided among ten clients at β = 0.5, by MOON's paper and its code.

    A row is grey from the class at which its client has a tenth of all images; orange is what the code's rule changes.
    """
    labels = np.repeat(np.arange(10), 5000)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
    titles = {False: "without the line, as in the paper", True: "with the line, as in the code"}
    dealt = []
    for ax, (balance, title) in zip(axes, titles.items(), strict=True):
        parts = partition.dirichlet(labels, 10, 0.5, np.random.RandomState(0), balance=balance)
        plots.split(parts, labels, 10, ax, title, largest=4000)
        dealt.append(partition.class_counts(parts, labels, 10))
        so_far = dealt[-1].cumsum(1)
        for client, full in enumerate((so_far < 5000).sum(1) + 1):  # from this class on
            if full < 10:
                ax.barh(client, 10.2 - full, left=full - 0.5, height=0.9, color="0.87", zorder=0)
        for client, total in enumerate(so_far[:, -1]):
            most = total == so_far[:, -1].max()
            plots.label(ax, (9.75, client), f"{total:,}", va="center", weight="bold" if most else "normal", fontsize="small")
    client, of_class = np.nonzero(abs(dealt[1] - dealt[0]) > 100)
    circles = dealt[1][client, of_class] / 4000 * 250  # as in plots.split
    axes[1].scatter(of_class, client, s=circles, color="#d55e00", linewidths=0, zorder=3)
    axes[1].set_ylabel("")
    return figure


@plots.described(
    "Unit norm gains, alpha over 100 rounds loses most of the accuracy, and together they lose less;"
    " FedAvg with unit norm is ahead of all"
)
def code_changes() -> Axes:
    """How far FedProc with changes of its published code, and FedAvg, are from the paper's text, on the digits."""
    table = "digits-fedproc-code"
    rows = {
        "1  norm of z is 1": "z of length 1",
        "2  cross-entropy alone in round 0": "cross entropy alone in round 0",
        "3  prototypes weighted by images": "prototypes weighted with images",
        "4  α falls over 100 rounds, not 10": "alpha falls over 100 rounds",
        "1 and 4": "z of length 1, alpha falls over 100 rounds",
        "1, 2 and 3": "all but T",
        "all four": "all four",
        "FedAvg": "no contrast (FedAvg)",
        "FedAvg, norm of z is 1": "no contrast, z of length 1",
    }
    lines = []
    for label, row in rows.items():
        lead = results.compare(results.cell(table, row), results.cell(table, "as printed"))
        colour = plots.colour("FedAvg" if "FedAvg" in label else "FedProc")
        lines.append(results.ForestRow(label, lead, colour, results.numbers(lead)))
    return results.draw_forest(lines, sides=("the row", "FedProc as in the paper"))


@plots.described(
    "As the weight grows from 0.1 to 1 the distance falls from FedAvg's accuracy to a fifth of it; "
    "the contrast is still at FedAvg's there and falls between 1 and 10"
)
def weights() -> Axes:
    """MOON's contrast and the distance in its place on the digits, over the weight μ."""
    _, ax = plt.subplots(figsize=(7.5, 3.6))
    terms = {
        "contrast": ("digits-moon-mu", "mu={:g}", (0.1, 1, 5, 10), plots.colour("MOON")),
        "distance": ("digits-moon-l2", "l2 norm, μ = {}", (0.001, 0.01, 0.1, 1.0, 5.0, 10.0), "#d55e00"),
    }
    for name, (table, row, weights, colour) in terms.items():
        found = [results.cell(table, row.format(mu)) for mu in weights]
        ax.plot(weights, [np.mean(cell.values) for cell in found], "o-", color=colour)
        for mu, cell in zip(weights, found, strict=True):
            ax.plot([mu] * len(cell.values), cell.values, ".", color=colour, ms=4, alpha=0.5)
        shift = {"contrast": (-62, -22), "distance": (-60, 10)}[name]
        plots.label(ax, (weights[-2], np.mean(found[-2].values)), name, shift, color=colour)
    fedavg = float(np.mean(results.cell("digits-moon-mu", "mu=0 (FedAvg)").values))
    ax.axhline(fedavg, color=plots.colour("FedAvg"), ls="--", lw=1, zorder=0)
    plots.label(ax, (0.015, fedavg), "FedAvg", (0, 7), color=plots.colour("FedAvg"))
    ax.set(xscale="log", xlabel="weight μ", ylabel="accuracy (%)", ylim=(0, 105), xlim=(7e-4, 14))
    return ax


@plots.described(
    "Without unit norm the lines of the seeds cross; with it change 2 gains more with change 3 than without it "
    "on all three seeds"
)
def interaction() -> Figure:
    """FedProc's accuracy on the digits with the slow α, with and without the other three changes."""
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.9), sharey=True)
    paper = float(np.mean(results.cell("digits-fedproc-ladder", "as printed").values))
    panels = {
        "without unit norm": (("none", "2"), ("3", "2 and 3")),
        "with unit norm": (("1", "1 and 2"), ("1 and 3", "1, 2 and 3")),
    }
    for ax, (title, pairs) in zip(axes, panels.items(), strict=True):
        for rows, name, colour in zip(pairs, ("without 3", "with 3"), ("0.45", "#d55e00"), strict=True):
            off, on = (results.cell("digits-fedproc-cube", row) for row in rows)
            for pair in zip(off.values, on.values, strict=True):
                ax.plot((0, 1), pair, color=colour, lw=0.8, alpha=0.5)
            ax.plot((0, 1), (np.mean(off.values), np.mean(on.values)), "o-", color=colour, lw=3)
            plots.label(ax, (1, np.mean(on.values)), name, (8, -4 if "out" in name else -14), color=colour)
        ax.axhline(paper, color="0.5", ls="--", lw=1, zorder=0)
        ax.set_title(title, fontsize="medium")
        ax.set_xticks([0, 1], ["without change 2", "with change 2"])
        ax.set_xlim(-0.15, 1.45)
    plots.label(axes[0], (-0.13, paper), "FedProc as in the paper", (0, 4), color="0.4", fontsize="small")
    axes[0].set_ylabel("accuracy (%)")
    return figure


@plots.described("FedAvg is above FedProc at both learning rates, but FedProc at 0.03 is above FedAvg at 0.01")
def rates() -> Axes:
    """FedAvg and FedProc on the digits at two learning rates, and a comparison across them."""
    _, ax = plt.subplots(figsize=(6.5, 3.4))
    ends = {}
    for method in ("FedAvg", "FedProc"):
        colour = plots.colour(method)
        found = [results.cell("digits-fedproc-lr", method, f"lr {rate}") for rate in (0.01, 0.03)]
        for values in zip(*(cell.values for cell in found), strict=True):
            ax.plot((0, 1), values, color=colour, lw=0.7, alpha=0.35)
        ends[method] = [np.mean(cell.values) for cell in found]
        ax.plot((0, 1), ends[method], "o-", color=colour, lw=3)
        plots.label(ax, (1, ends[method][1]), method, (9, -4), color=colour)
    arrow = {"arrowstyle": "->", "color": "#d55e00", "lw": 2, "shrinkA": 6, "shrinkB": 6}
    ax.annotate("", (1, ends["FedProc"][1]), (0, ends["FedAvg"][0]), arrowprops=arrow)
    ax.set_xticks([0, 1], ["η = 0.01", "η = 0.03"])
    ax.set(ylabel="accuracy (%)", xlim=(-0.15, 1.35))
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
