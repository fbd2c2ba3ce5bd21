"""How tables are told: grids in Markdown, what departs from a paper, and how many cells have which verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fednb.reporting.compare import Cell

# what counts something reads better as "20 rounds" than as "num_rounds 20"
_COUNTED = {"num_rounds": "rounds", "local_epochs": "local epochs", "num_clients": "clients", "batch_size": "images a batch"}
_COUNTED |= {"local_steps": "local steps", "test_per_domain": "test images of each domain"}


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> str:
    """A table in Markdown; the columns in ``right`` are numbers."""
    rule = ["--:" if name in right else ":--" for name in heads]
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, rule, *rows])


def departure(text: str) -> str:
    """One of `settings.deviations` for readers."""
    name, value, rest = text.split(" ", 2)
    if name == "validation":
        return f"{float(value):.0%} of the training images held out"
    if name == "keep_last":
        return f"the last incomplete batch of an epoch {'trained on' if value == 'True' else 'dropped'}"
    if name in _COUNTED:
        return f"{value} {_COUNTED[name].removesuffix('s') if value == '1' else _COUNTED[name]} {rest}"
    return f"{name.replace('_', ' ')} {value} {rest}"


def verdicts(found: Iterable[Cell]) -> Counter[str]:
    """How many cells have which verdict; those without one are not counted."""
    return Counter(cell.verdict.split(" by ")[0] for cell in found if cell.verdict)


def counts(found: Counter[str]) -> str:
    """Such as ``3 reproduced, 1 off``."""
    return ", ".join(f"{n} {kind}" for kind, n in found.items())
