"""What the seeds of a run say: intervals of means and of differences, and at which level a mean is not 0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

LEVEL = 0.95  # of every interval
MIN_SEEDS = 3  # fewer say nothing for sure


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's t interval for the mean over seeds: (mean, half width); the half width of one value is NaN."""
    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return mean, float("nan")
    return mean, float(special.stdtrit(n - 1, (1 + LEVEL) / 2) * np.std(values, ddof=1) / np.sqrt(n))


def confidence(values: Sequence[float]) -> float:
    """The largest level, 0 to 1, at which the interval of the mean leaves out 0; NaN for one value."""
    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return float("nan")
    error = float(np.std(values, ddof=1) / np.sqrt(n))
    return float(1 - 2 * special.stdtr(n - 1, -abs(mean) / error)) if error else float(mean != 0)


def interval_of_difference(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Welch's interval for the difference of the means of two independent samples: (mean a - mean b, half width)."""
    mean, sizes = float(np.mean(a) - np.mean(b)), np.array([len(a), len(b)])
    if sizes.min() < 2:
        return mean, float("nan")
    errors = np.array([np.var(a, ddof=1), np.var(b, ddof=1)]) / sizes  # squared
    if not errors.any():
        return mean, 0.0
    freedom = errors.sum() ** 2 / (errors**2 / (sizes - 1)).sum()
    return mean, float(special.stdtrit(freedom, (1 + LEVEL) / 2) * np.sqrt(errors.sum()))
