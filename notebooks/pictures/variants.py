"""Picture of the extra on variants of MOON and FedProc: a split by formula, and by code."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from fednb import partition, plots


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
