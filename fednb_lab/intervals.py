"""The interval of a mean over seeds."""

from collections.abc import Sequence

import numpy as np
from scipy import special

LEVEL = 0.95  # of every interval
MIN_SEEDS = 3  # fewer say nothing for sure: below, the values themselves are shown


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Compute a mean over seeds, and the half width of Student's t interval; NaN for one value."""
    n = len(values)
    mean = float(np.mean(values))
    if n < 2:
        return mean, float("nan")
    return mean, float(quantile(n) * np.std(values, ddof=1) / np.sqrt(n))


def quantile(n: int) -> float:
    """Give Student's quantile for the interval of a mean over so many values."""
    return float(special.stdtrit(n - 1, (1 + LEVEL) / 2))
