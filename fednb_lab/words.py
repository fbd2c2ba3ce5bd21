"""Values in words: the one place where a verdict, a deviation or a cell becomes a text."""

from collections.abc import Mapping, Sequence
from math import inf

from fednb import data
from fednb_lab import called, effort
from fednb_lab.cells import Cell
from fednb_lab.claims import Claim, ClaimSetting
from fednb_lab.comparisons import Comparison
from fednb_lab.deviations import AnyDeviation, Deviation
from fednb_lab.leads import MIN_SEEDS, Kind, Lead, Why
from fednb_lab.measures import Measure
from fednb_lab.printed import reported_table

# what counts something reads better as "20 rounds" than as "num_rounds 20"
_COUNTS = {
    "num_rounds": "{} rounds",
    "local_epochs": "{} local epochs",
    "num_clients": "{} clients",
    "model": "{}",
    "batch_size": "{} images a batch",
    "local_steps": "{} local steps",
    "test_per_domain": "{} test images of each domain",
    "validation": "{} of the training images held out",
    "participation": "{} of the clients in a round",
    "shots": "{} training images of a class",
}
ABSURD = 50.0  # points, half of the scale
_FEW_RUNS = {1: "one run", 2: "two runs"}
# why a verdict is one, where lead and interval do not say it
_WHYS = {
    Why.NUMBERS: "",
    Why.AMONG_MANY: "sure alone, but among {among} claims it may be luck",
    Why.DIVERGED: "a run diverged, and what is left are lucky seeds",
    Why.NOT_REACHED: "not every run got there",
}


def verdict(claim: Claim) -> str:
    """One of the six words, and on which runs of the claim's data it rests unless the paper's."""
    word = str(claim.verdict.kind)
    if claim.verdict.kind in (Kind.NOT_TESTED, Kind.ONE_RUN):
        return word  # which run, its row says
    setting = claim.setting(claim.best)
    if setting.is_the_papers:
        return word
    return f"{word}, in short runs" if setting.shorter else f"{word}, in another setting"


def why(claim: Claim) -> str:
    """What a verdict rests on besides the numbers in its row, and what to keep in mind."""
    if claim.verdict.kind == Kind.NOT_TESTED:
        text = claim.no_evidence(claim.best) or f"not run on {_own_data(claim)}"
    elif claim.verdict.kind == Kind.ONE_RUN:
        text = _borrowed_from(claim)
    else:
        text = _WHYS[claim.verdict.why].format(among=claim.lead.among)
    if text:
        text = f"{text[0].upper()}{text[1:]}."
    return f"{text} {claim.entry.reason.strip()}".strip()


def main_claims(claims: Mapping[str, Sequence[Claim]]) -> str:
    """The main claims of each paper with their verdicts, a line each."""
    lines = []
    for paper, of_paper in claims.items():
        lines.append(f"{paper}:")
        for claim in of_paper:
            if claim.entry.main:
                lines.append(f"- {claim.entry.claim}: {verdict(claim)}")
    return "\n".join(lines)


def _own_data(claim: Claim) -> str:
    """What a claim's own data set is called."""
    return data.spec_of(claim.comparisons[0].ahead.job.settings.dataset).title


def _borrowed_from(claim: Claim) -> str:
    """The interval of a single run, and whose it is; or that there is none to borrow."""
    borrowed = claim.borrowed(claim.best)
    if borrowed is None:
        return "no runs like these have seeds, so there is no interval to borrow"
    source = setting(claim.setting(borrowed.source), brief=True)
    return f"the interval would be ± {borrowed.half_width:.1f}, borrowed from {source}"


def printed_where(table: str | None) -> str:
    """Such as ``MOON Table 1, section 4.2``; empty for a table that nobody prints."""
    if table is None:
        return ""
    where = reported_table(table).about.where
    return ", ".join(filter(None, [table, where]))


def printed_leads(claim: Claim) -> str:
    """The leads that the paper prints, such as ``+5.7 or +2.1``."""
    return " or ".join(f"{number:+z.1f}" for number in claim.printed)


def lead(of: Lead, unit: str = "") -> str:
    """A lead with its ±, such as ``+1.0 ± 0.4 points``; empty without one."""
    if of.mean is None:
        return ""
    text = f"{of.mean:+z.1f}"
    if of.seeds > 1 and not is_absurd(of.half_width, of.seeds):
        text += f" ± {of.half_width:.1f}"
    return f"{text} {unit}".strip()


def lead_over_seeds(comparison: Comparison) -> str:
    """Such as ``+1.0 ± 0.4 points over 3 seeds`` or ``+1.0 points (one run)``.

    Above 0 the first-named is ahead, whatever the measure: who needs 2 rounds less leads by 2.
    """
    of = comparison.lead
    if of.seeds == 0:
        return "not run"
    if of.mean is None:
        return "not reached by every run"
    text = lead(of, comparison.ahead.measure.lead_unit)
    if of.seeds < MIN_SEEDS:
        return f"{text} ({_FEW_RUNS[of.seeds]})"
    return f"{text} over {seeds(of.seeds)}"


def seeds(number: int) -> str:
    """Such as ``3 seeds``."""
    return "1 seed" if number == 1 else f"{number} seeds"


def value(measure: Measure, number: float | None) -> str:
    """A value of a measure in its digits; empty without one."""
    if number is None:
        return ""
    if measure.median and number in (0.0, inf):
        return "never"
    sign = "+" if measure.signed else ""
    return f"{number:{sign}.{measure.decimals}f}"


def measured(cell: Cell) -> str:
    """Mean with its ±, or median and range where some may never get there; or ``diverged``."""
    if cell.mean is None:
        return "diverged" if cell.diverged else ""
    text = value(cell.measure, cell.mean)
    if cell.measure.median and len(set(cell.values)) > 1:
        lowest = value(cell.measure, min(cell.values))
        highest = value(cell.measure, max(cell.values))
        return f"{text} ({lowest} to {highest})"
    number = len(cell.values)
    if cell.half_width is None or number == 1 or is_absurd(cell.half_width, number):
        return text
    return f"{text} ± {cell.half_width:.{cell.measure.decimals}f}"


def is_absurd(half_width: float | None, seeds: int) -> bool:
    """Whether an interval says nothing: of two seeds, wider to each side than half of the scale."""
    return seeds < MIN_SEEDS and half_width is not None and half_width > ABSURD


def without_half_width(cells: Sequence[Cell]) -> str:
    """Why some ± are left out; empty if none is."""
    rows = [cell.row for cell in cells if is_absurd(cell.half_width, len(cell.values))]
    if not rows:
        return ""
    names = "; ".join(dict.fromkeys(rows))
    return f"two seeds are too few for an interval that says anything ({names})"


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
    if of.name in _COUNTS:
        text = _COUNTS[of.name].format(here)
        if here == "1":
            text = text.removesuffix("s")
    elif isinstance(of, Deviation):
        text = called.with_value(of.name, of.value)
    elif of.value is None:
        text = f"{called.name(of.name)} {here}"
    else:
        text = called.with_value(of.name, here)
    if not brief and not isinstance(of.value, bool):
        text = f"{text} instead of {called.value(of.name, paper)}"
    return f"{text} ({row})" if row and not brief else text


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
    """Such as ``μ = 5, the best of 4 values``; empty where nothing was chosen."""
    chosen = cell.choice
    if chosen is None:
        return ""
    best = called.with_value(chosen.name, chosen.value)
    text = f"{best}, the best of {chosen.tried} values"
    return f"{text} (of {chosen.planned})" if chosen.planned > chosen.tried else text


def setting(of: ClaimSetting, *, brief: bool = False) -> str:
    """What is not the paper's about data and settings; in ``brief`` the two main things."""
    if of.is_the_papers:
        return "the paper's setting"
    parts = [of.dataset] if of.dataset else []
    if of.other_images:
        parts.append("other images")
    parts += [deviation(one, row, brief=brief) for one, row in of.deviations]
    return ", ".join(parts[:2] if brief else parts)


def training(cells: Sequence[Cell]) -> str:
    """Such as ``28 to 310 SGD steps of a client in a round, 15 rounds``; empty without runs."""
    steps = effort.steps_of(cells)
    if not steps:
        return ""
    rounds = [cell.job.settings.num_rounds for cell in cells]
    span = _span(steps)
    unit = "SGD step" if span == "1" else "SGD steps"
    return f"{span} {unit} of a client in a round, {_span(rounds)} rounds"


def _span(numbers: Sequence[int]) -> str:
    """From the least to the most."""
    least, most = min(numbers), max(numbers)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def guessing(cells: Sequence[Cell]) -> str:
    """Such as ``10 %``, or of several data sets ``2 % to 10 %``; empty where nobody knows."""
    chances = [effort.guessing(cell.job.settings) for cell in cells]
    known = sorted(chance for chance in chances if chance is not None)
    texts = [f"{chance:.3g} %" for chance in known]
    return " to ".join(dict.fromkeys([*texts[:1], *texts[-1:]]))


def learned_nothing(cells: Sequence[Cell]) -> str:
    """Which cells have learned nothing, and what to do; empty if there are none."""
    nothing = [cell for cell in cells if effort.learned_nothing(cell)]
    names = [f"{cell.row}, {cell.column} ({cell.mean:.1f} %)" for cell in nothing]
    if not names:
        return ""
    shown = "; ".join(names[:4])
    if len(names) > 4:
        shown += f"; and {len(names) - 4} more"
    return (
        f"{shown}: hardly better than guessing, which gives {guessing(cells)}. Two such rows "
        "cannot be compared; more rounds, more local epochs, smaller batches or another learning "
        "rate may help"
    )
