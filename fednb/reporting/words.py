"""Values in words: the one place where a verdict, a deviation or a cell becomes a text."""

from collections import Counter
from collections.abc import Iterable
from math import inf

from fednb.analysis.cells import Cell
from fednb.analysis.claims import Claim, ClaimSetting
from fednb.analysis.deviations import AnyDeviation, Deviation
from fednb.analysis.measures import Measure
from fednb.analysis.statistics import MIN_SEEDS, Kind, Lead, MeanVerdict, Verdict

# what counts something reads better as "20 rounds" than as "num_rounds 20"
_SETTINGS = {
    "num_rounds": "{} rounds",
    "local_epochs": "{} local epochs",
    "num_clients": "{} clients",
    "model": "{}",
    "batch_size": "{} images a batch",
    "local_steps": "{} local steps",
    "pretrained": "ImageNet weights {}",
    "test_per_domain": "{} test images of each domain",
    "validation": "{} of the training images held out",
}
# a verdict in full, and in a word for figures and counts
_VERDICTS = {
    Kind.NOT_RUN: ("not run", "not run"),
    Kind.NOT_REACHED: ("not reached by every run", "not reached by every run"),
    Kind.DIVERGED: ("a run diverged", "a run diverged"),
    Kind.NOT_SHOWN: ("no difference shown", "not shown"),
    Kind.AS_PRINTED: ("as printed", "as printed"),
    Kind.SMALLER: ("right sign, {size} the printed {lead}", "smaller"),
    Kind.ABOUT: ("right sign, about the printed {lead}", "about as printed"),
    Kind.LARGER: ("right sign, {size} the printed {lead}", "larger"),
    Kind.REVERSED: ("the other way round", "reversed"),
    Kind.NO_DIFFERENCE: ("no difference", "not shown"),
    Kind.RIGHT_SIGN: ("right sign", "right sign"),
    Kind.AHEAD: ("ahead", "ahead"),
    Kind.BEHIND: ("behind", "behind"),
}
_SIZES = {
    0.0: "hardly any of",
    0.1: "a tenth of",
    0.2: "a fifth of",
    0.25: "a quarter of",
    1 / 3: "a third of",
    0.5: "half of",
    2 / 3: "two thirds of",
    0.75: "three quarters of",
}
_FAR_BEYOND = 3  # times the printed lead
_FEW_SEEDS = {1: "one seed", 2: "two seeds"}


def verdict(judged: Verdict, *, interval: bool = True) -> str:
    """Size and certainty; with the ``interval`` where no difference is shown."""
    in_full, _ = _VERDICTS[judged.kind]
    is_lead = judged.printed is not None and judged.printed > 0
    text = in_full.format(size=_size(judged.ratio), lead="lead" if is_lead else "gap")
    if judged.kind == Kind.NOT_SHOWN and interval:
        text += f" (± {judged.lead.half_width:.1f})"
    if judged.indicative:
        return f"indicative: {text}"
    if judged.uncertain:
        return f"{text}; not certain among {judged.lead.among} comparisons"
    return text


def _size(ratio: float | None) -> str:
    """How large a lead is, by its ratio to the printed one."""
    if ratio is None:
        return ""
    if ratio > _FAR_BEYOND:
        return "far beyond"
    if ratio > 1:
        return f"{ratio:.1f} times"
    return _SIZES[min(_SIZES, key=lambda part: abs(part - ratio))]


def short_verdict(judged: Verdict) -> str:
    """In one word, for a figure."""
    _, word = _VERDICTS[judged.kind]
    return word


def count_verdicts(claims: Iterable[Claim]) -> str:
    """How often there is which verdict, such as ``3 smaller, 1 reversed``."""
    counts = Counter(short_verdict(claim.verdict) for claim in claims)
    return ", ".join(f"{count} {word}" for word, count in counts.most_common())


def mean_verdict(judged: MeanVerdict | None) -> str:
    """How a mean lies to the printed value; empty without a verdict."""
    if judged is None:
        return ""
    side = "above" if judged.difference > 0 else "below"
    text = f"{abs(judged.difference):.1f} {side} the printed"
    if judged.as_printed:
        text = "as printed"
    return f"indicative: {text}" if judged.indicative else text


def lead(of: Lead, unit: str = "") -> str:
    """A lead with its ±, such as ``+1.0 ± 0.4 points``; empty without one."""
    if of.mean is None:
        return ""
    text = f"{of.mean:+z.1f}"
    if of.seeds > 1:
        text += f" ± {of.half_width:.1f}"
    return f"{text} {unit}".strip()


def lead_and_verdict(judged: Verdict, measure: Measure, *, brief: bool = False) -> str:
    """Such as ``+1.0 ± 0.4 points over 3 seeds: ahead``; in ``brief`` without the verdict.

    What is counted is the measure itself: who needs 2 rounds less is at -2 rounds, and ahead.
    """
    if judged.lead.mean is None:
        return verdict(judged)
    in_words = verdict(judged, interval=False)
    text = lead(judged.lead if measure.sign > 0 else -judged.lead, measure.unit)
    if judged.lead.seeds >= MIN_SEEDS:
        text += f" over {seeds(judged.lead.seeds)}"
        return text if brief else f"{text}: {in_words}"
    if brief and judged.indicative:
        in_words = "indicative"
    return f"{text} over {_FEW_SEEDS[judged.lead.seeds]}, {in_words}"


def seeds(number: int) -> str:
    """Such as ``3 seeds``."""
    return f"{number} seed{'s' if number > 1 else ''}"


def value(measure: Measure, number: float | None) -> str:
    """A value of a measure in its digits; empty without one."""
    if number is None:
        return ""
    if measure.median and number in (0.0, inf):
        return "never"
    return f"{number:{'+' if measure.signed else ''}.{measure.decimals}f}"


def measured(cell: Cell) -> str:
    """Mean with its ±, or median and range where some may never get there; or ``diverged``."""
    if cell.mean is None:
        return "diverged" if cell.diverged else ""
    text = value(cell.measure, cell.mean)
    if cell.measure.median and len(set(cell.values)) > 1:
        lowest = value(cell.measure, min(cell.values))
        highest = value(cell.measure, max(cell.values))
        return f"{text} ({lowest} to {highest})"
    if len(cell.values) > 1 and not cell.measure.median:
        return f"{text} ± {cell.half_width:.{cell.measure.decimals}f}"
    return text


def printed(cell: Cell) -> str:
    """What is printed there, without its ±: a number, or words such as ``not reached``."""
    number = cell.printed
    if number is None:
        return cell.printed_cell.text
    in_our_digits = cell.measure.judged or cell.measure.relative or cell.measure.signed
    return value(cell.measure, number) if in_our_digits else f"{number:g}"


def printed_std(cell: Cell) -> str:
    """What is printed behind its ±."""
    std = cell.printed_cell.std
    return "" if std is None else f"{std:.{cell.measure.decimals}f}"


def printed_with_std(cell: Cell) -> str:
    """What is printed beside a cell, with its ± if there is one."""
    return " ± ".join(filter(None, [printed(cell), printed_std(cell)]))


def deviation(of: AnyDeviation, row: str = "", *, brief: bool = False) -> str:
    """Such as ``20 rounds instead of 100 (ROW)``; in ``brief`` only ``20 rounds``."""
    here, paper = _values(of)
    words = _SETTINGS.get(of.name, of.name.replace("_", " ") + " {}")
    text = words.format(here)
    if here == "1":
        text = text.removesuffix("s")
    if brief:
        return text
    text = f"{text} instead of {paper}"
    return f"{text} ({row})" if row else text


def recorded_deviation(of: AnyDeviation) -> str:
    """In the words of records, such as ``num_rounds 20 instead of 100``."""
    here, paper = _values(of)
    return f"{of.name} {here} instead of {paper}"


def _values(of: AnyDeviation) -> tuple[str, str]:
    """What is so here, and what it is in the paper."""
    if isinstance(of, Deviation):
        return str(of.value), str(of.paper)
    if of.tried == 0:
        return str(of.value), f"one of {', '.join(map(str, of.grid))}"
    here = f"{of.value} alone" if of.tried == 1 else f"chosen from {of.tried}"
    return here, f"{len(of.grid)} values"


def choice(cell: Cell) -> str:
    """Such as ``mu 5, the best of 4 values``; empty where nothing was chosen."""
    chosen = cell.choice
    if chosen is None:
        return ""
    text = f"{chosen.name} {chosen.value}, the best of {chosen.tried} values"
    return f"{text} (of {chosen.planned})" if chosen.planned > chosen.tried else text


def setting(of: ClaimSetting, *, brief: bool = False) -> str:
    """What is not the paper's about data and settings; in ``brief`` the two main things."""
    if of.is_the_papers:
        return "the paper's setting"
    parts = [of.dataset] if of.dataset else []
    if of.other_images:
        parts.append("other images")
    for one, row in of.deviations:
        parts.append(deviation(one, row, brief=brief))
    return ", ".join(parts[:2] if brief else parts)
