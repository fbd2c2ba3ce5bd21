"""Pictures of the extra on variants of MOON and FedProc: a split, and what FedProc's code changes."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import partition, plots, results


def with_and_without_the_rule() -> Figure:
    """CIFAR-10's class counts divided among ten clients at β = 0.5, by MOON's paper and its code."""
    labels = np.repeat(np.arange(10), 5000)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    titles = {False: "by the paper's formula", True: "by its code"}
    for ax, (balance, title) in zip(axes, titles.items(), strict=True):
        parts = partition.dirichlet(labels, 10, 0.5, np.random.RandomState(0), balance=balance)
        spread = np.std([len(part) for part in parts])
        title = f"{title}: sizes scatter by {spread:,.0f} images"
        plots.split(parts, labels, 10, ax, title, largest=4000)
    return figure


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
