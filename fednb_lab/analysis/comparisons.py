"""One cell against another, in pairs of runs: same seed, same split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from fednb.errors import ReportError
from fednb_lab.analysis import statistics
from fednb_lab.analysis.cells import Cell
from fednb_lab.analysis.deviations import AnyDeviation, TuningDeviation
from fednb_lab.analysis.statistics import Lead
from fednb_lab.sweeps import Table

Key = TypeVar("Key")


class RowDeviation(NamedTuple):
    """How the runs of a comparison deviate from the paper's settings."""

    deviation: AnyDeviation
    row: str = ""  # the only one that does; empty: both do


@dataclass(frozen=True)
class Comparison:
    """One cell against another, and the lead that their runs show."""

    ahead: Cell
    behind: Cell
    by_seed: Mapping[int, float]  # how far ``ahead`` is ahead, in pairs of runs
    lead: Lead  # of ``ahead``, the mean of these

    @property
    def printed(self) -> float | None:
        """The lead that is printed, if both values are."""
        if self.ahead.printed is None or self.behind.printed is None:
            return None
        return self.ahead.measure.sign * (self.ahead.printed - self.behind.printed)

    @property
    def deviations(self) -> list[RowDeviation]:
        """What is not the paper's setting: first of both rows, then of one alone.

        A coefficient of one row's method alone is left out: it is the claim itself. Its tuning is
        told.
        """
        names_ahead = {deviation.name for deviation in self.ahead.deviations}
        names_behind = {deviation.name for deviation in self.behind.deviations}
        shared = vars(self.ahead.job.settings).keys() | (names_ahead & names_behind)
        of_both = [
            deviation for deviation in self.ahead.deviations if deviation in self.behind.deviations
        ]
        deviations = [RowDeviation(deviation) for deviation in of_both]
        for cell in (self.ahead, self.behind):
            for deviation in cell.deviations:
                counts = deviation.name in shared or isinstance(deviation, TuningDeviation)
                if counts and deviation not in of_both:
                    deviations.append(RowDeviation(deviation, cell.row))
        return deviations


def compare_cells(ahead: Cell, behind: Cell) -> Comparison:
    """Compare in pairs of runs, same seed and split; of a measure with sign -1 less is ahead."""
    sign = ahead.measure.sign
    by_seed = {}
    for pair, value in ahead.by_pair.items():
        if pair in behind.by_pair:
            seed, _ = pair
            by_seed[seed] = sign * (value - behind.by_pair[pair])
    diverged = ahead.diverged or behind.diverged
    lead = statistics.lead(list(by_seed.values()), diverged=diverged)
    return Comparison(ahead, behind, by_seed, lead)


def corrected_family(comparisons: Mapping[Key, Comparison]) -> dict[Key, Comparison]:
    """Comparisons that stand together, with p values that are corrected for their number.

    The same lead of the same runs counts once, however often it is asked for; seen from the other
    side it counts once more, so that the correction is rather too strict.
    """
    leads = {_runs_and_lead(comparison): comparison.lead for comparison in comparisons.values()}
    new_leads = dict(zip(leads, statistics.corrected(list(leads.values())), strict=True))
    family = {}
    for key, comparison in comparisons.items():
        family[key] = replace(comparison, lead=new_leads[_runs_and_lead(comparison)])
    return family


def _runs_and_lead(comparison: Comparison) -> tuple[Any, ...]:
    return comparison.ahead.paths, comparison.behind.paths, comparison.lead


def cell_at(cells: Sequence[Cell], row: str, column: str | None = None) -> Cell:
    """The cell in that row and column, which may be left out if there is only one."""
    there = [cell for cell in cells if cell.row == row and column in (None, cell.column)]
    if len(there) == 1:
        return there[0]
    known = ", ".join(f"{cell.row} | {cell.column}" for cell in there or cells)
    raise ReportError(
        f"{cells[0].table} has no single cell {row} | {column or 'any column'}; there are {known}."
    )


def compare_at(
    cells: Sequence[Cell], ahead: str, behind: str, column: str | None = None
) -> Comparison:
    """Row ``ahead`` of a table against row ``behind``, in a column if it has several."""
    return compare_cells(cell_at(cells, ahead, column), cell_at(cells, behind, column))


def leads_over_baseline(
    table: Table, cells: Sequence[Cell]
) -> tuple[str, dict[tuple[str, str], Comparison]]:
    """What cells are compared with: the table's baseline, else FedAvg, else the first row.

    First its name, then the comparisons, by row and column, where there are runs.
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
