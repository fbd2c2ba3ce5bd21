"""Pictures of the extra on FCCL+: how two clients' classes are correlated, and what its two halves do."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from fednb import plots


@plots.described(
    "Correlations of ten classes of two clients. With own weights the diagonal is empty and lights up in twenty steps; "
    "with averaged weights it is 1 from the start, and only what lies beside it fades"
)
def correlations(found: Mapping[str, np.ndarray]) -> Figure:
    """Matrices [K, K] by their titles; below each the means on and off the diagonal."""
    diagonal = np.eye(len(next(iter(found.values()))), dtype=bool)
    figure, axes = plt.subplots(1, len(found), figsize=(13, 3.9), gridspec_kw={"wspace": 0.15})
    for ax, (title, matrix) in zip(axes, found.items(), strict=True):
        image = ax.imshow(matrix, vmin=-1, vmax=1, cmap="cividis")
        ax.set_title(title, size="medium")
        below = f"on the diagonal {matrix[diagonal].mean():+.2f}\nbeside it {matrix[~diagonal].mean():+.2f}"
        ax.set(xticks=[], yticks=[], xlabel=below)
    axes[0].set_ylabel("classes of client A")
    figure.colorbar(image, ax=axes, label="correlation with B's classes", pad=0.02)
    return figure
