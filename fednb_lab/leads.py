"""What seeds say: leads in pairs, corrected families, verdicts.

Everywhere ± is the half width of Student's 95 % interval for a mean over seeds (with ``ddof=1``).
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from scipy import special

LEVEL = 0.95  # of every interval
MIN_SEEDS = 3  # fewer say nothing for sure
ROUNDING = 0.05  # so precise are printed leads, in points


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean over seeds, and half width of Student's t interval for it: NaN for one value."""
    n = len(values)
    mean = float(np.mean(values))
    if n < 2:
        return mean, float("nan")
    return mean, float(quantile(n) * np.std(values, ddof=1) / np.sqrt(n))


def quantile(n: int) -> float:
    """Of Student's t, for the interval of a mean over so many values."""
    return float(special.stdtrit(n - 1, (1 + LEVEL) / 2))


class Lead(NamedTuple):
    """By how much one is ahead of another; negative if it is behind."""

    seeds: int = 0  # so many pairs of runs
    mean: float | None = None  # over pairs; None without a pair, or if a run never got there
    half_width: float = float("nan")  # of the interval for the mean
    p: float = float("nan")  # of the two-sided t test that the mean is 0
    among: int = 1  # so many comparisons p is corrected for
    diverged: bool = False  # a run of either side did: what is left are lucky seeds

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


def lead(differences: Sequence[float], *, diverged: bool = False) -> Lead:
    """The lead of these differences, one per seed; infinite: a run never got there."""
    n = len(differences)
    if n == 0 or not np.isfinite(differences).all():
        return Lead(n, diverged=diverged)
    mean, half_width = interval(differences)
    return Lead(n, mean, half_width, _p_value(differences, mean), diverged=diverged)


def _p_value(differences: Sequence[float], mean: float) -> float:
    """Of the two-sided t test that the mean is 0: below 5 % where the interval leaves out 0."""
    n = len(differences)
    if n < 2:
        return float("nan")
    error = float(np.std(differences, ddof=1) / np.sqrt(n))
    if error == 0:
        return float(mean == 0)
    return float(2 * special.stdtr(n - 1, -abs(mean) / error))


def corrected(leads: Sequence[Lead]) -> list[Lead]:
    """The same leads with Holm's p values, for many comparisons at once, in both directions.

    Leads with too few seeds or a diverged run do not count as comparisons, and stay as they are.
    """
    judged = [i for i, one in enumerate(leads) if one.judged and not one.diverged]
    by_p = sorted(judged, key=lambda i: leads[i].p)
    family = list(leads)
    highest = 0.0  # so far: a larger p cannot become the smaller one
    for rank, i in enumerate(by_p):
        highest = max(highest, min(1.0, (len(by_p) - rank) * leads[i].p))
        family[i] = leads[i]._replace(p=highest, among=len(by_p))
    return family


class Kind(StrEnum):
    """What a claim's verdict is: the six words that stand in tables, figures, README and prose.

    Smaller and larger are two sides of one. `fednb_lab.words` tells which runs decided.
    """

    CONFIRMED = "confirmed"  # as claimed, and the interval holds the printed lead if there is one
    SMALLER = "smaller"  # as claimed, by less than is printed
    LARGER = "larger"  # as claimed, by more than is printed
    REVERSED = "reversed"  # the other way round
    CANNOT_TELL = "cannot tell"  # the interval holds 0
    ONE_RUN = "one run"  # fewer than `MIN_SEEDS` seeds
    NOT_TESTED = "not tested"  # nothing was run on the claim's own data set


class Why(StrEnum):
    """What a verdict rests on, where the numbers beside it do not say it."""

    NUMBERS = "numbers"  # lead, interval and printed lead say it all
    AMONG_MANY = "among many"  # alone it would be sure, among so many it may be luck
    DIVERGED = "diverged"  # a run did, and what is left are lucky seeds
    NOT_REACHED = "not reached"  # a run never got to the accuracy that is asked for


class Judged(NamedTuple):
    """A verdict, and what it rests on."""

    kind: Kind
    why: Why = Why.NUMBERS


def judge(lead: Lead, printed: Sequence[float] = ()) -> Judged:
    """What a lead says of the claim that there is one above 0.

    ``printed`` are the printed leads: a paper may print more than one. ``lead.p`` is corrected for
    the family that it stands in.
    """
    if lead.seeds == 0:
        return Judged(Kind.NOT_TESTED)
    if lead.seeds < MIN_SEEDS:
        return Judged(Kind.ONE_RUN)
    if lead.diverged:
        return Judged(Kind.CANNOT_TELL, Why.DIVERGED)
    if lead.mean is None:
        return Judged(Kind.CANNOT_TELL, Why.NOT_REACHED)
    if lead.holds_zero:
        return Judged(Kind.CANNOT_TELL)
    if not lead.shown:
        return Judged(Kind.CANNOT_TELL, Why.AMONG_MANY)
    if lead.mean < 0:
        return Judged(Kind.REVERSED)
    return Judged(_size(lead.mean, lead.half_width, printed))


def _size(mean: float, half_width: float, printed: Sequence[float]) -> Kind:
    """A lead above 0 beside the printed lead that is nearest to it."""
    if not printed:
        return Kind.CONFIRMED
    nearest = min(printed, key=lambda one: abs(one - mean))
    if abs(mean - nearest) <= half_width + ROUNDING:
        return Kind.CONFIRMED
    return Kind.SMALLER if mean < nearest else Kind.LARGER
