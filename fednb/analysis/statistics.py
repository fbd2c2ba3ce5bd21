"""What seeds say: leads in pairs, corrected families, verdicts.

Everywhere ± is the half width of Student's 95 % interval for a mean over seeds (with ``ddof=1``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from scipy import special

LEVEL = 0.95  # of every interval
MIN_SEEDS = 3  # fewer say nothing for sure
WITHIN_POINTS = 1.0  # a mean that is so far from the printed value is as printed
# a lead below that is shown as 0.0 and has no direction; so precise are printed leads, too
ROUNDING = 0.05
SMALLER_BELOW = 0.875  # of the printed lead: halfway between three quarters of it and all of it
LARGER_FROM = 1.15
TOLERANCE = 1e-9  # 67.3 - 66.3 is a little more than 1


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean over seeds, and half width of Student's t interval for it: NaN for one value."""
    n = len(values)
    mean = float(np.mean(values))
    if n < 2:
        return mean, float("nan")
    quantile = special.stdtrit(n - 1, (1 + LEVEL) / 2)
    return mean, float(quantile * np.std(values, ddof=1) / np.sqrt(n))


class Lead(NamedTuple):
    """By how much one is ahead of another; negative if it is behind."""

    seeds: int = 0  # so many pairs of runs
    mean: float | None = None  # over pairs; None without a pair, or if a run never got there
    half_width: float = float("nan")  # of the interval for the mean
    p: float = float("nan")  # of the two-sided t test that the mean is 0
    among: int = 1  # so many comparisons p is corrected for

    @property
    def judged(self) -> bool:
        """Whether there are enough seeds for a verdict."""
        return self.mean is not None and self.seeds >= MIN_SEEDS

    @property
    def shown(self) -> bool:
        """Whether it is told from 0, among as many comparisons as there are."""
        return self.judged and self.p < 1 - LEVEL

    def __neg__(self) -> "Lead":
        """The same seen from the other side."""
        return self if self.mean is None else self._replace(mean=-self.mean)


def lead(differences: Sequence[float]) -> Lead:
    """The lead of these differences, one per seed; infinite: a run never got there."""
    n = len(differences)
    if n == 0 or not np.isfinite(differences).all():
        return Lead(n)
    mean, half_width = interval(differences)
    return Lead(n, mean, half_width, _p_value(differences, mean))


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

    Leads that are not judged do not count as comparisons, and stay as they are.
    """
    judged = [i for i, one in enumerate(leads) if one.judged]
    by_p = sorted(judged, key=lambda i: leads[i].p)
    family = list(leads)
    highest = 0.0  # so far: a larger p cannot become the smaller one
    for rank, i in enumerate(by_p):
        highest = max(highest, min(1.0, (len(by_p) - rank) * leads[i].p))
        family[i] = leads[i]._replace(p=highest, among=len(by_p))
    return family


class Kind(StrEnum):
    """What a verdict says. Which words that gets, `fednb.reporting.words` decides."""

    NOT_RUN = "not run"  # there is no pair of runs
    NOT_REACHED = "not reached"  # a run never got to the accuracy that is asked for
    DIVERGED = "diverged"  # a run did, and what is left are lucky seeds
    NOT_SHOWN = "not shown"  # the interval contains 0
    # beside a printed lead
    AS_PRINTED = "as printed"  # the interval contains the printed lead
    SMALLER = "smaller"  # of the same sign, as are the next two
    ABOUT = "about as printed"
    LARGER = "larger"
    REVERSED = "reversed"  # of the other sign
    # without one
    NO_DIFFERENCE = "no difference"  # to the precision that is shown
    RIGHT_SIGN = "right sign"  # as claimed (if not: REVERSED)
    AHEAD = "ahead"  # where nothing is claimed
    BEHIND = "behind"


UNJUDGED = frozenset({Kind.NOT_RUN, Kind.NOT_REACHED, Kind.DIVERGED})


@dataclass(frozen=True)
class Verdict:
    """What a lead shows, beside a printed one if there is one."""

    kind: Kind
    lead: Lead
    printed: float | None = None  # the lead that it is compared with

    @property
    def indicative(self) -> bool:
        """Whether it rests on fewer than `MIN_SEEDS` seeds."""
        return self.kind not in UNJUDGED and not self.lead.judged

    @property
    def uncertain(self) -> bool:
        """Whether the lead would count on its own, but may be luck among so many comparisons."""
        asserts = self.kind not in UNJUDGED and self.kind != Kind.NOT_SHOWN
        return asserts and self.lead.judged and not self.lead.shown

    @property
    def ratio(self) -> float | None:
        """How many times the printed lead ours is; None if there is none to compare with."""
        if self.lead.mean is None or not self.printed:
            return None
        return self.lead.mean / self.printed


def judge(lead: Lead, printed: float | None = None, *, claimed: bool = False) -> Verdict:
    """Size and certainty of a lead, beside the printed one if there is one.

    ``claimed`` says that a lead above 0 is what a paper claims.
    """
    return Verdict(_kind(lead, printed, claimed), lead, printed)


def _kind(lead: Lead, printed: float | None, claimed: bool) -> Kind:
    if lead.mean is None:
        return Kind.NOT_REACHED if lead.seeds else Kind.NOT_RUN
    if lead.judged and abs(lead.mean) <= lead.half_width:
        return Kind.NOT_SHOWN
    if printed:  # to a printed lead of 0 there is no ratio
        precision = lead.half_width if lead.judged else ROUNDING
        return _kind_beside(lead.mean, printed, precision)
    if abs(lead.mean) < ROUNDING:
        return Kind.NO_DIFFERENCE
    if claimed:
        return Kind.RIGHT_SIGN if lead.mean > 0 else Kind.REVERSED
    return Kind.AHEAD if lead.mean > 0 else Kind.BEHIND


def _kind_beside(mean: float, printed: float, precision: float) -> Kind:
    ratio = mean / printed
    if abs(mean - printed) <= precision + TOLERANCE:
        return Kind.AS_PRINTED
    if ratio < 0 and abs(mean) >= ROUNDING:
        return Kind.REVERSED
    if ratio >= LARGER_FROM:
        return Kind.LARGER
    return Kind.SMALLER if ratio <= SMALLER_BELOW else Kind.ABOUT


class MeanVerdict(NamedTuple):
    """How a mean lies to the printed value."""

    difference: float  # mean − printed value
    as_printed: bool  # the printed value is in the interval, or no farther than `WITHIN_POINTS`
    indicative: bool  # it rests on fewer than `MIN_SEEDS` seeds


def judge_mean(values: Sequence[float], printed: float) -> MeanVerdict:
    """The verdict on the mean of values, one per seed, beside the printed value."""
    mean, half_width = interval(values)
    indicative = len(values) < MIN_SEEDS
    precision = WITHIN_POINTS if indicative else max(half_width, WITHIN_POINTS)
    difference = mean - printed
    return MeanVerdict(difference, abs(difference) <= precision + TOLERANCE, indicative)
