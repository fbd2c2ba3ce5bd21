"""What seeds say: leads in pairs, corrected families, verdicts; ± is the half width of Student's 95 % interval (ddof 1)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

LEVEL = 0.95  # of every interval
MIN_SEEDS = 3  # fewer say nothing for sure
WITHIN_POINTS = 1.0  # so far from the printed value is near enough
_PARTS = {
    0.0: "hardly any of",
    0.1: "a tenth of",
    0.2: "a fifth of",
    0.25: "a quarter of",
    1 / 3: "a third of",
}
_PARTS |= {0.5: "half of", 2 / 3: "two thirds of", 0.75: "three quarters of", 1.0: "about"}
# a verdict in one word, by what it has in it
_WORDS = {
    "no difference": "not shown",
    "as printed": "as printed",
    "other way": "reversed",
    "about": "about as printed",
}
_WORDS |= {"of the printed": "smaller", "times": "larger", "far beyond": "larger"}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's t interval for the mean over seeds: (mean, half width); the half width of one value is NaN."""
    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return mean, float("nan")
    return mean, float(
        special.stdtrit(n - 1, (1 + LEVEL) / 2) * np.std(values, ddof=1) / np.sqrt(n)
    )


class Lead(NamedTuple):
    """By how much one is ahead of another."""

    seeds: int = 0
    mean: float | None = None  # without a pair, or if a run never got there
    half: float = float("nan")  # width of the interval
    p: float = float("nan")
    among: int = 1  # so many comparisons p is corrected for

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
    n = len(differences)
    if not n or not np.isfinite(differences).all():
        return Lead(n)
    mean, half = interval(differences)
    error = float(np.std(differences, ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    # of the two-sided t test that the mean is 0: below 5 % where the interval leaves out 0
    return Lead(
        n,
        mean,
        half,
        float(2 * special.stdtr(n - 1, -abs(mean) / error)) if error else float(mean == 0),
    )


def corrected(leads: Sequence[Lead]) -> list[Lead]:
    """Many comparisons at once, in both directions: with Holm's p values."""
    order = sorted((i for i, one in enumerate(leads) if one.judged), key=lambda i: leads[i].p)
    made, highest = list(leads), 0.0
    for place, i in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - place) * leads[i].p))
        made[i] = leads[i]._replace(p=highest, among=len(order))
    return made


def told(lead: Lead, unit: str = "") -> str:
    """A lead with its ±, such as ``+1.0 ± 0.4 points``."""
    half = f" ± {lead.half:.1f}" if lead.seeds > 1 else ""
    return "" if lead.mean is None else f"{lead.mean:+z.1f}{half} {unit}".strip()


def verdict(lead: Lead, printed: float | None = None) -> str:
    """Size and certainty of a lead, beside the printed one if there is one; indicative below three seeds."""
    if lead.mean is None:
        return "not reached by every run" if lead.seeds else "not run"
    if lead.judged and abs(lead.mean) <= lead.half:
        return f"no difference shown (± {lead.half:.1f})"
    if not printed:
        size = "no difference" if abs(lead.mean) < 0.05 else "ahead" if lead.mean > 0 else "behind"
    elif abs(lead.mean - printed) <= (lead.half if lead.judged else 0.05) + 1e-9:
        size = "as printed"
    elif lead.mean / printed < 0 and abs(lead.mean) >= 0.05:
        size = "the other way round"
    else:
        ratio = lead.mean / printed
        part = (
            _PARTS[min(_PARTS, key=lambda part: abs(part - ratio))]
            if ratio < 1.15
            else f"{ratio:.1f} times"
        )
        size = f"right sign, {'far beyond' if ratio > 3 else part} the printed {'lead' if printed > 0 else 'gap'}"
    if not lead.judged:
        return f"indicative: {size}"
    return size if lead.shown else f"{size}; not certain among {lead.among} comparisons"


def word(verdict: str) -> str:
    """A verdict in one word, for a figure."""
    other = verdict.removeprefix("indicative: ").partition(";")[0]
    return next((short for part, short in _WORDS.items() if part in verdict), other)


def beside(values: Sequence[float], printed: float) -> str:
    """The verdict on a mean beside the printed value."""
    (mean, half), few = interval(values), len(values) < MIN_SEEDS
    close = (
        abs(mean - printed) <= max(0.0 if few else half, WITHIN_POINTS) + 1e-9
    )  # 67.3 - 66.3 is a little more than 1
    said = (
        "as printed"
        if close
        else f"{abs(mean - printed):.1f} {'above' if mean > printed else 'below'} the printed"
    )
    return f"indicative: {said}" if few else said
