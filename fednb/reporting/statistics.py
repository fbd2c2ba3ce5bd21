"""What the seeds of a run say: intervals of means and of differences, and at which level a mean is not 0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

LEVEL = 0.95  # of every interval
MIN_SEEDS = 3  # fewer say nothing for sure


def interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Student's t interval for the mean over seeds: (mean, half width); the half width of one value is NaN."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, float("nan")
    return mean, float(stats.t.ppf((1 + level) / 2, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))


def confidence(values: Sequence[float]) -> float:
    """The largest level, 0 to 1, at which the `interval` of the mean leaves out 0; NaN for one value."""
    if len(values) < 2:
        return float("nan")
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
    return float(1 - 2 * stats.t.sf(abs(mean) / error, len(values) - 1)) if error else float(mean != 0)


def interval_of_difference(a: Sequence[float], b: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Welch's interval for the difference of the means of two independent samples: (mean a - mean b, half width)."""
    mean = float(np.mean(a) - np.mean(b))
    if min(len(a), len(b)) < 2:
        return mean, float("nan")
    if not np.std(a) + np.std(b):
        return mean, 0.0
    low, high = stats.ttest_ind(a, b, equal_var=False).confidence_interval(level)
    return mean, float(high - low) / 2
