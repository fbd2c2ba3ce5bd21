"""In words: how long clients train, what guessing gives, and what has learned nothing."""

from collections.abc import Sequence

from fednb.analysis import effort
from fednb.analysis.cells import Cell


def training(cells: Sequence[Cell]) -> str:
    """Such as ``28 to 310 SGD steps of a client in a round, 15 rounds``; empty without runs."""
    steps = effort.span_of_steps(cells)
    if steps is None:
        return ""
    rounds = effort.span_of_rounds(cells)
    unit = "SGD step" if _span(steps) == "1" else "SGD steps"
    return f"{_span(steps)} {unit} of a client in a round, {_span(rounds)} rounds"


def _span(of: effort.Span) -> str:
    if of.least == of.most:
        return f"{of.least:,}"
    return f"{of.least:,} to {of.most:,}"


def guessing(cells: Sequence[Cell]) -> str:
    """Such as ``10 %``, or of several data sets ``2 % to 10 %``; empty where nobody knows."""
    known = {effort.guessing(cell.job.settings) for cell in cells} - {None}
    texts = [f"{chance:.3g} %" for chance in sorted(known, key=float)]  # type: ignore[arg-type]
    return " to ".join(dict.fromkeys([*texts[:1], *texts[-1:]]))


def warning(cells: Sequence[Cell]) -> str:
    """Which cells have learned nothing, and what to do; empty if there are none."""
    names = []
    for cell in cells:
        if effort.learned_nothing(cell):
            names.append(f"{cell.row}, {cell.column} ({cell.mean:.1f} %)")
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
