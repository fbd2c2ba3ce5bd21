"""What seeds say: the one meaning of ±, leads in pairs, corrected families, and verdicts that tell size and certainty.

± is everywhere the half width of Student's 95 % interval for a mean over seeds (ddof 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

LEVEL = 0.95  # of every interval
MIN_SEEDS = 3  # fewer say nothing for sure
_PARTS = {0.0: "hardly any of", 0.1: "a tenth of", 0.2: "a fifth of", 0.25: "a quarter of", 1 / 3: "a third of"}
_PARTS |= {0.5: "half of", 2 / 3: "two thirds of", 0.75: "three quarters of", 1.0: "about"}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's t interval for the mean over seeds: (mean, half width); the half width of one value is NaN."""
    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return mean, float("nan")
    return mean, float(special.stdtrit(n - 1, (1 + LEVEL) / 2) * np.std(values, ddof=1) / np.sqrt(n))


def p_value(values: Sequence[float]) -> float:
    """Of the two-sided t test that the mean is 0: below 5 % where the interval leaves out 0; NaN for one value."""
    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return float("nan")
    error = float(np.std(values, ddof=1) / np.sqrt(n))
    return float(2 * special.stdtr(n - 1, -abs(mean) / error)) if error else float(mean == 0)


class Lead(NamedTuple):
    """By how much one is ahead of another: number of pairs, mean difference, half width of its interval, and p value.

    The mean is None without a pair, or if a run never got there. ``among`` says of how many comparisons p is corrected.
    """

    seeds: int = 0
    mean: float | None = None
    half: float = float("nan")
    p: float = float("nan")
    among: int = 1

    @property
    def judged(self) -> bool:
        """Whether there are enough seeds for a verdict."""
        return self.mean is not None and self.seeds >= MIN_SEEDS

    @property
    def shown(self) -> bool:
        """Whether it is told from 0, among as many comparisons as there are."""
        return self.judged and self.p < 1 - LEVEL


def lead(differences: Sequence[float]) -> Lead:
    """The lead of these differences, one per seed; infinite are those in which a run never got there."""
    if not len(differences) or not np.isfinite(differences).all():
        return Lead(len(differences))
    return Lead(len(differences), *interval(differences), p_value(differences))


def corrected(leads: Sequence[Lead]) -> list[Lead]:
    """Many comparisons at once, in both directions: with Holm's p values."""
    order = sorted((i for i, one in enumerate(leads) if one.judged), key=lambda i: leads[i].p)
    made, highest = list(leads), 0.0
    for place, i in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - place) * leads[i].p))
        made[i] = leads[i]._replace(p=highest, among=len(order))
    return made


def told(lead: Lead, unit: str = "") -> str:
    """A lead with its ±, such as ``+1.0 ± 0.4 points``; without a minus before 0.0."""
    if lead.mean is None:
        return ""
    half = f" ± {lead.half:.1f}" if lead.seeds > 1 else ""
    return f"{round(lead.mean, 1) + 0:+.1f}{half} {unit}".strip()


def verdict(lead: Lead, printed: float | None = None) -> str:
    """Size and certainty of a lead, beside the printed one if there is one; indicative below three seeds."""
    if lead.mean is None:
        return "not reached by every run" if lead.seeds else "not run"
    if not lead.judged:
        return f"indicative: {_size(lead, printed)}"
    if abs(lead.mean) <= lead.half:
        return f"no difference shown (± {lead.half:.1f})"
    return _size(lead, printed) + ("" if lead.shown else f"; not certain among {lead.among} comparisons")


def _size(lead: Lead, printed: float | None) -> str:
    if not printed:
        return "no difference" if round(lead.mean, 1) == 0 else "ahead" if lead.mean > 0 else "behind"
    if abs(lead.mean - printed) <= (lead.half if lead.judged else 0.05) + 1e-9:
        return "as printed"
    ratio = lead.mean / printed
    if ratio < 0 and round(lead.mean, 1):
        return "the other way round"
    part = _PARTS[min(_PARTS, key=lambda part: abs(part - ratio))] if ratio < 1.15 else f"{ratio:.1f} times"
    return f"right sign, {'far beyond' if ratio > 3 else part} the printed {'lead' if printed > 0 else 'gap'}"


def word(lead: Lead, printed: float | None = None) -> str:
    """The verdict in one word, for a figure."""
    said = verdict(lead, printed)
    known = {"no difference": "not shown", "as printed": "as printed", "other way": "reversed", "behind": "reversed"}
    known |= {
        "about": "about as printed",
        "times": "larger",
        "far beyond": "larger",
        "right sign,": "smaller",
        "ahead": "right sign",
    }
    return next((short for begin, short in known.items() if begin in said), said)
