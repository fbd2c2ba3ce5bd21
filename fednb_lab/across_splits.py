"""One question over several tables: by how much is a method ahead on average, seed by seed?"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fednb_lab import leads as statistics
from fednb_lab.cells import Cell, CellsOf
from fednb_lab.comparisons import compare_at
from fednb_lab.leads import Judged, Lead


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
    cells = [cells_of(table) for table in tables]
    rows = [_rows(of_table, column) for of_table in cells]
    methods = [row for row in rows[0] if all(row in others for others in rows)]
    found = []
    for method in methods:
        if method == baseline:
            continue
        comparisons = [compare_at(of_table, method, baseline, column) for of_table in cells]
        by_seed = _mean_by_seed([comparison.by_seed for comparison in comparisons])
        diverged = any(comparison.lead.diverged for comparison in comparisons)
        lead = statistics.lead(list(by_seed.values()), diverged=diverged)
        found.append(AverageLead(method, lead, by_seed))
    family = statistics.corrected([average.lead for average in found])
    return [average._replace(lead=lead) for average, lead in zip(found, family, strict=True)]


def _rows(cells: Sequence[Cell], column: str) -> list[str]:
    return [cell.row for cell in cells if cell.column == column]


def _mean_by_seed(leads: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """The mean of several leads, of the seeds that all of them have."""
    seeds = [seed for seed in sorted(leads[0]) if all(seed in lead for lead in leads)]
    return {seed: float(np.mean([lead[seed] for lead in leads])) for seed in seeds}
