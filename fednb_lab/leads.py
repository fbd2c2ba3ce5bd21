"""Leads: one cell against another in pairs of runs, families of them, and the word for a claim.

Everywhere ± is the half width of Student's 95 % interval for a mean over seeds (with ``ddof=1``).
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np

from fednb.leads import MIN_SEEDS, Lead, differences, lead_of
from fednb.results import cell_at, compare
from fednb.settings import Deviation
from fednb_lab.cells import Cell
from fednb_lab.deviations import TuningDeviation
from fednb_lab.sweeps import Table

ROUNDING = 0.05  # so precise are printed leads, in points

Key = TypeVar("Key")


def holm(leads: Sequence[Lead], runs: Sequence[Hashable] | None = None) -> list[Lead]:
    """Correct p values for many comparisons at once (Holm), in both directions.

    ``runs`` names the runs of each lead. Several read-outs of the same runs, such as accuracy and
    rounds, count as one comparison, in the place of the smallest of their p values. A lead with
    too few seeds or a diverged run is no comparison, and stays as it is.
    """
    names = range(len(leads)) if runs is None else runs
    groups: dict[Hashable, list[int]] = {}
    for i, name in enumerate(names):
        if leads[i].judged and not leads[i].diverged:
            groups.setdefault(name, []).append(i)
    by_p = sorted(groups.values(), key=lambda members: min(leads[i].p for i in members))
    family = list(leads)
    highest = 0.0  # so far: what has a larger p cannot become smaller than this
    for rank, members in enumerate(by_p):
        factor = len(by_p) - rank
        for i in members:
            p = max(highest, min(1.0, factor * leads[i].p))
            family[i] = leads[i]._replace(p=p, among=len(by_p))
        highest = min(family[i].p for i in members)
    return family


class Word(StrEnum):
    """What runs say of a claim: the seven words of tables, figures, README and prose."""

    CONFIRMED = "confirmed"  # ahead, and our interval holds the printed lead if there is one
    SMALLER = "smaller"  # ahead, by less than is printed
    LARGER = "larger"  # ahead, by more than is printed
    OPEN = "open"  # ahead or not, our runs do not tell, and the printed lead is possible
    NOT_SEEN = "not seen"  # ahead or not, our runs do not tell, but by less than is printed
    REVERSED = "reversed"  # behind
    NOT_TESTED = "not tested"  # fewer than `MIN_SEEDS` seeds in the claim's own setting


def word_for(of: Lead, printed: Sequence[float] = ()) -> Word:
    """Say what a lead means for the claim that there is one above 0.

    ``printed`` are the printed leads: a paper may print more than one. ``of.p`` is corrected for
    the family that it stands in. With a diverged run, or one that never got there, the word is
    *open*: the seeds that are left are lucky ones.
    """
    if of.seeds < MIN_SEEDS:
        return Word.NOT_TESTED
    if of.mean is None or of.diverged:
        return Word.OPEN
    if of.shown and of.mean < 0:
        return Word.REVERSED
    mean = of.mean
    nearest = min(printed, key=lambda one: abs(one - mean), default=mean)
    is_inside = abs(mean - nearest) <= of.half_width + ROUNDING
    if not of.shown:
        return Word.OPEN if is_inside else Word.NOT_SEEN
    if is_inside:
        return Word.CONFIRMED
    return Word.SMALLER if mean < nearest else Word.LARGER


@dataclass(frozen=True)
class Comparison:
    """One cell against another, and the lead that their runs show."""

    ahead: Cell
    behind: Cell
    by_seed: Mapping[int, float]  # how far ``ahead`` is ahead, in pairs of runs
    lead: Lead  # of ``ahead``, the mean of these
    # of a mean over several columns, seed by seed: one for each; `ahead` and `behind` are the first
    parts: "tuple[Comparison, ...]" = ()

    @property
    def printed(self) -> float | None:
        """The lead that is printed, if both values are; over several columns the mean."""
        if self.parts:
            printed = [part.printed for part in self.parts]
            known = [number for number in printed if number is not None]
            return float(np.mean(known)) if len(known) == len(printed) else None
        if self.ahead.printed is None or self.behind.printed is None:
            return None
        return self.ahead.sign * (self.ahead.printed - self.behind.printed)

    @property
    def runs(self) -> frozenset[Any]:
        """What tells the runs that it rests on from others, whatever is read from them."""
        if self.parts:
            return frozenset(part.runs for part in self.parts)
        return frozenset((self.ahead.paths, self.behind.paths))

    @property
    def deviations(self) -> list[Deviation]:
        """What is not the paper's setting: first of both rows, then of one alone.

        A coefficient of one row's method alone is left out: it is the claim itself. Its tuning is
        told.
        """
        if self.parts:
            return [one for part in self.parts for one in part.deviations]
        ahead, behind = self.ahead.deviations, self.behind.deviations
        of_both = [one for one in ahead if one in behind]
        names_of_both = {one.name for one in ahead} & {one.name for one in behind}
        shared = vars(self.ahead.job.settings).keys() | names_of_both
        counted = [
            one
            for one in (*ahead, *behind)
            if one.name in shared or isinstance(one, TuningDeviation)
        ]
        return [*of_both, *(one for one in counted if one not in of_both)]


def compare_cells(ahead: Cell, behind: Cell) -> Comparison:
    """Compare in pairs of runs, same seed and split; of a measure with sign -1 less is ahead."""
    by_pair = differences(ahead.by_pair, behind.by_pair, ahead.sign)
    by_seed = {seed: value for (seed, _), value in by_pair.items()}
    return Comparison(ahead, behind, by_seed, compare(ahead, behind))


def as_family(comparisons: Mapping[Key, Comparison]) -> dict[Key, Comparison]:
    """Correct comparisons that stand together; read-outs of the same runs count once (`holm`)."""
    together = list(comparisons.values())
    corrected = holm([one.lead for one in together], [one.runs for one in together])
    family = {}
    for key, comparison, new in zip(comparisons, together, corrected, strict=True):
        family[key] = replace(comparison, lead=new)
    return family


def compare_at(
    cells: Sequence[Cell], ahead: str, behind: str, column: str | Sequence[str] | None = None
) -> Comparison:
    """Compare row ``ahead`` of a table with row ``behind``, in a column if it has several.

    Of several columns it is the mean over them, seed by seed, so that a test over seeds asks one
    question of them; it is over the seeds that all of them have.
    """
    columns = [column] if column is None or isinstance(column, str) else column
    parts = [
        compare_cells(cell_at(cells, ahead, one), cell_at(cells, behind, one)) for one in columns
    ]
    first = parts[0]
    if len(parts) == 1:
        return first
    by_seed = {}
    for seed in sorted(first.by_seed):
        if all(seed in one.by_seed for one in parts):
            by_seed[seed] = float(np.mean([one.by_seed[seed] for one in parts]))
    diverged = any(one.lead.diverged for one in parts)
    average = lead_of(list(by_seed.values()), diverged=diverged)
    return Comparison(first.ahead, first.behind, by_seed, average, tuple(parts))


def leads_over_baseline(
    table: Table, cells: Sequence[Cell]
) -> tuple[str, dict[tuple[str, str], Comparison]]:
    """Compare cells with the table's baseline, else with FedAvg, else with the first row.

    Returns what that is called, and comparisons by row and column, where there are runs.
    """
    references = _references(table, cells)
    comparisons = {}
    for cell in cells:
        if cell in references or not cell.measure.compared:
            continue
        pairs = [compare_cells(cell, one) for one in references if one.column == cell.column]
        with_runs = [pair for pair in pairs if pair.lead.seeds]
        if with_runs:
            comparisons[cell.row, cell.column] = with_runs[0]
    rows = {cell.row for cell in references}
    name = references[0].label if len(rows) == 1 else references[0].job.settings.method
    return name, comparisons


def _references(table: Table, cells: Sequence[Cell]) -> list[Cell]:
    """The cells that the others are compared with."""
    baseline = [cell for cell in cells if cell.label == (table.baseline or "FedAvg")]
    averages = [cell for cell in cells if cell.job.settings.method == "FedAvg"]
    for references in (baseline, averages):
        if 0 < len(references) < len(cells):
            return references
    return [cell for cell in cells if cell.row == cells[0].row]
