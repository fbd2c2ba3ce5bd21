"""By how much one is ahead of another over seeds: pairs, mean, Student's interval, p value."""

from collections.abc import Mapping, Sequence
from math import nan
from typing import NamedTuple, TypeVar

import numpy as np
from scipy import stats

LEVEL = 0.95  # of every interval
MIN_SEEDS = 3  # fewer have no interval

Key = TypeVar("Key")


class Lead(NamedTuple):
    """By how much one is ahead of another; negative if it is behind."""

    seeds: int = 0  # so many pairs of runs
    mean: float | None = None  # over pairs; None without a pair, or if a run never got there
    half_width: float = nan  # of the interval for the mean
    p: float = nan  # of the two-sided t test that the mean is 0
    among: int = 1  # so many comparisons p is corrected for
    diverged: bool = False  # a run of either side did: what is left are lucky seeds
    values: tuple[float, ...] = ()  # one for each pair

    @property
    def judged(self) -> bool:
        """Whether there are enough seeds for a verdict."""
        return self.mean is not None and self.seeds >= MIN_SEEDS

    @property
    def holds_zero(self) -> bool:
        """Whether its own interval does: then it is not told from 0, not even alone."""
        return self.mean is None or abs(self.mean) <= self.half_width

    @property
    def shown(self) -> bool:
        """Whether it is told from 0, among as many comparisons as there are."""
        return self.judged and not self.diverged and self.p < 1 - LEVEL


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean over seeds and the half width of Student's t interval: NaN for one value."""
    n = len(values)
    mean = float(np.mean(values))
    if n < 2:
        return mean, nan
    return mean, float(quantile(n) * np.std(values, ddof=1) / np.sqrt(n))


def quantile(n: int) -> float:
    """Return Student's quantile for the interval of a mean over so many values."""
    return float(stats.t.ppf((1 + LEVEL) / 2, n - 1))


def lead_of(differences: Sequence[float], *, diverged: bool = False) -> Lead:
    """Compute the lead of these differences, one per seed; infinite: a run never got there."""
    n = len(differences)
    if n == 0 or not np.isfinite(differences).all():
        return Lead(n, diverged=diverged)
    mean, half_width = interval(differences)
    p = nan
    if n > 1:
        error = float(np.std(differences, ddof=1) / np.sqrt(n))
        p = float(2 * stats.t.sf(abs(mean) / error, n - 1)) if error else float(mean == 0)
    return Lead(n, mean, half_width, p, diverged=diverged, values=tuple(differences))


def differences(
    ahead: Mapping[Key, float], behind: Mapping[Key, float], sign: int = 1
) -> dict[Key, float]:
    """Return how far one is ahead of another in each pair: by seed, or what else makes a pair."""
    pairs = [key for key in ahead if key in behind]
    return {key: sign * (ahead[key] - behind[key]) for key in pairs}
