"""A picture of the notebook on FCCL+: what its loss makes of the correlations between classes."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from fednb import plots


@plots.described(
    "Correlations of ten classes: mixed at first, after 40 steps near 0 beside the diagonal, never the -1 asked for"
)
def correlations(after: Mapping[int, np.ndarray]) -> Figure:
    """Matrices [K, K] by the number of steps; last, what the loss asks for.

    Below each stands the mean of what lies off the diagonal, which cannot be less than -1/(K - 1).
    """
    diagonal = np.eye(len(next(iter(after.values()))), dtype=bool)
    panels = {f"after {steps} steps" if steps else "a fresh network": m for steps, m in after.items()}
    panels["asked for (impossible)"] = 2 * diagonal - 1.0
    figure, axes = plt.subplots(1, len(panels), figsize=(13, 3.6))
    for ax, (title, matrix) in zip(axes, panels.items(), strict=True):
        image = ax.imshow(matrix, vmin=-1, vmax=1, cmap="cividis")
        beside = f"off the diagonal: {matrix[~diagonal].mean():+.2f}"
        ax.set(title=title, xticks=[], yticks=[], xlabel=beside)
    figure.colorbar(image, ax=axes, label="correlation of two classes")
    return figure
