"""One question over several tables: by how much is a method ahead on average, seed by seed?"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fednb.analysis import statistics
from fednb.analysis.cells import Cell
from fednb.analysis.comparisons import compare_at
from fednb.analysis.statistics import Judged, Lead

CellsOf = Callable[[str], Sequence[Cell]]  # by the name of a table


class AverageLead(NamedTuple):
    """A method against a baseline, on average over several tables."""

    method: str
    lead: Lead  # its p is corrected for the methods that it stands among
    by_seed: Mapping[int, float]  # the mean over the tables, of the seeds that each has

    @property
    def verdict(self) -> Judged:
        """On the claim that the method is ahead."""
        return statistics.judge(self.lead)


def average_leads(
    tables: Sequence[str],
    cells_of: CellsOf,
    *,
    baseline: str = "FedAvg",
    column: str = "accuracy",
) -> list[AverageLead]:
    """The mean lead over several tables of each row that all have, but the baseline's.

    For a seed it is the mean of the leads in the tables, so that a t test over seeds asks one
    question per method. Methods without a diverged run are one family (Holm).
    """
    cells = {table: cells_of(table) for table in tables}
    found = []
    for method in _common_rows(list(cells.values()), column):
        if method == baseline:
            continue
        comparisons = [
            compare_at(of_table, method, baseline, column) for of_table in cells.values()
        ]
        by_seed = _mean_by_seed([comparison.by_seed for comparison in comparisons])
        diverged = any(comparison.lead.diverged for comparison in comparisons)
        lead = statistics.lead(list(by_seed.values()), diverged=diverged)
        found.append(AverageLead(method, lead, by_seed))
    family = statistics.corrected([average.lead for average in found])
    return [average._replace(lead=lead) for average, lead in zip(found, family, strict=True)]


def _common_rows(cells: Sequence[Sequence[Cell]], column: str) -> list[str]:
    """The rows that each table has, in the order of the first."""
    rows = [{cell.row for cell in of_table if cell.column == column} for of_table in cells]
    first = [cell.row for cell in cells[0] if cell.column == column]
    return [row for row in first if all(row in of_table for of_table in rows)]


def _mean_by_seed(leads: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """The mean of several leads, of the seeds that all of them have."""
    seeds = [seed for seed in sorted(leads[0]) if all(seed in lead for lead in leads)]
    return {seed: float(np.mean([lead[seed] for lead in leads])) for seed in seeds}
