"""Values in words: the one place where a word, a deviation or a cell becomes a text.

What records and settings hold is input: it may be anybody's text. Where it enters a page it passes
`in_markdown`, `in_code` or `in_csv`.
"""

import html
import re
from collections.abc import Iterable, Sequence
from math import inf

from fednb.leads import MIN_SEEDS
from fednb.results import in_words, one_by_one
from fednb.settings import Deviation
from fednb_lab.cells import Cell
from fednb_lab.claims import Claim, count_words
from fednb_lab.deviations import called_with_value, value_called
from fednb_lab.leads import Comparison, Word
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
_FEW_RUNS = {1: "one run", 2: "two runs"}
_MARKUP = re.compile(r"([\\`\[\]|])")  # what would end a cell of a table, or begin code or a link
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for one


# ---- texts of others


def in_markdown(text: str) -> str:
    """Make any text one that Markdown shows as it is, in a cell of a table, too."""
    one_line = " ".join(str(text).split())
    return _MARKUP.sub(r"\\\1", html.escape(one_line, quote=False))


def in_markdown_lines(lines: Sequence[str]) -> str:
    """Make lines of any texts ones that Markdown shows as they are; a leading dash stays one."""
    return "\n".join(in_markdown(line) for line in lines)


def in_code(text: str) -> str:
    """Put any text, such as a command, into Markdown's code; only there it can be copied."""
    one_line = " ".join(str(text).split())
    runs = re.findall("`+", one_line)
    fence = "`" * (max(map(len, runs), default=0) + 1)
    padding = " " if runs else ""
    return f"{fence}{padding}{one_line}{padding}{fence}"


def in_csv(text: str) -> str:
    """Make any text one that no spreadsheet takes for a formula."""
    return f"'{text}" if str(text).startswith(_FORMULA) else str(text)


# ---- claims


def counted(claims: Iterable[Claim]) -> str:
    """Count the words of claims in a sentence's part: ``2 smaller, 1 reversed, 5 not tested``."""
    counts = count_words(list(claims))
    parts = [f"{number} {word}" for word, number in counts.items() if number]
    return ", ".join(parts)


def ours(claim: Claim) -> str:
    """Give our lead in the claim's own setting: an interval, or below three seeds the values."""
    found = claim.in_its_setting
    return "" if found is None else lead(found)


def why(claim: Claim) -> str:
    """Say what a word rests on besides the numbers in its row, and what to keep in mind."""
    found = claim.decisive
    parts = []
    if found is not None and claim.word in (Word.OPEN, Word.NOT_SEEN):
        if claim.lead.diverged:
            parts.append("A run diverged, and what is left are lucky seeds.")
        elif claim.lead.mean is None:
            parts.append("Not every run got there.")
        elif claim.is_ahead_alone:
            parts.append(f"Ahead if asked alone, not as one of {claim.lead.among} comparisons.")
    if claim.entry.reason:
        parts.append(claim.entry.reason.strip())
    return " ".join(parts)


def setting(differences: Sequence[str | Deviation]) -> str:
    """Tell the two main things that are not the paper's about data and settings."""
    told = [one if isinstance(one, str) else _so_here(one) for one in differences]
    return ", ".join(list(dict.fromkeys(told))[:2]) or "the paper's setting"


def printed_where(table: str | None) -> str:
    """Name a printed table: ``MOON Table 1, section 4.2``; empty for one that nobody prints."""
    if table is None:
        return ""
    where = reported_table(table).about.where
    return ", ".join(filter(None, [table, where]))


def printed_leads(claim: Claim) -> str:
    """Give the leads that the paper prints: ``+5.7 or +2.1``."""
    return " or ".join(f"{number:+z.1f}" for number in claim.printed)


# ---- leads and values


def lead(of: Comparison, unit: str = "") -> str:
    """Give a lead with its ±, ``+1.0 ± 0.4 points``; below three seeds each, ``(+4.9, +1.4)``.

    Empty without one.
    """
    return in_words(of.lead, unit)


def lead_over_seeds(of: Comparison) -> str:
    """Give a lead and its seeds: ``+1.0 ± 0.4 points over 3 seeds``, ``+1.0 points (one run)``.

    Above 0 the first-named is ahead, whatever the measure: who needs 2 rounds less leads by 2.
    """
    lead = of.lead
    if lead.seeds == 0:
        return "not run"
    if lead.mean is None:
        return "not reached by every run"
    text = in_words(lead, of.ahead.unit)
    if lead.seeds < MIN_SEEDS:
        return f"{text} ({_FEW_RUNS[lead.seeds]})"
    return f"{text} over {lead.seeds} seeds"


def seeds(number: int) -> str:
    """Count seeds: ``3 seeds``."""
    return "1 seed" if number == 1 else f"{number} seeds"


def value(measure: Measure, number: float | None) -> str:
    """Give a value of a measure in its digits; empty without one."""
    if number is None:
        return ""
    if measure.median and number in (0.0, inf):
        return "never"
    sign = "+" if measure.signed else ""
    return f"{number:{sign}.{measure.decimals}f}"


def measured(cell: Cell) -> str:
    """Give mean and ±, or median and range where some may never get there; or ``diverged``.

    Below three seeds the values themselves.
    """
    if cell.mean is None:
        return "diverged" if cell.diverged else ""
    if len(cell.values) < MIN_SEEDS:
        return one_by_one([value(cell.measure, number) for number in cell.values])
    text = value(cell.measure, cell.mean)
    if cell.half_width is not None:
        return f"{text} ± {cell.half_width:.{cell.measure.decimals}f}"
    if len(set(cell.values)) == 1:
        return text
    lowest = value(cell.measure, min(cell.values))
    highest = value(cell.measure, max(cell.values))
    return f"{text} ({lowest} to {highest})"


def printed(cell: Cell) -> str:
    """Give what is printed there, without its ±: a number, or words such as ``not reached``."""
    number = cell.printed
    if number is None:
        return cell.printed_cell.text
    in_our_digits = cell.measure.judged or cell.measure.relative or cell.measure.signed
    return value(cell.measure, number) if in_our_digits else f"{number:g}"


def printed_std(cell: Cell) -> str:
    """Give what is printed behind its ±."""
    std = cell.printed_cell.std
    return "" if std is None else f"{std:.{cell.measure.decimals}f}"


def printed_with_std(cell: Cell) -> str:
    """Give what is printed beside a cell, with its ± if there is one."""
    return " ± ".join(filter(None, [printed(cell), printed_std(cell)]))


# ---- settings


def deviation(of: Deviation) -> str:
    """Tell a deviation: ``20 rounds instead of 100``, or ``without the balance rule``."""
    here = _so_here(of)
    if isinstance(of.value, bool):
        return here
    return f"{here} instead of {value_called(of.name, of.paper)}"


def _so_here(of: Deviation) -> str:
    """Tell what is so in our runs: ``20 rounds``."""
    if of.name not in _COUNTS:
        return called_with_value(of.name, of.value)
    text = _COUNTS[of.name].format(of.value)
    return re.sub(r"s\b", "", text, count=1) if str(of.value) == "1" else text


def choice(cell: Cell) -> str:
    """Tell what was tuned: ``μ = 5, the best of 4 values``; empty where nothing was chosen."""
    chosen = cell.choice
    if chosen is None:
        return ""
    return f"{called_with_value(chosen.name, chosen.value)}, the best of {chosen.tried} values"
