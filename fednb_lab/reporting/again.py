"""A cell made again, in a folder that is thrown away: does it agree with its records?"""

import dataclasses
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fednb.errors import ReportError, check, require_known
from fednb.experiments import ledger
from fednb.experiments.record import Record
from fednb_lab import pool
from fednb_lab.analysis import effort
from fednb_lab.analysis.cells import Cell, cells_of
from fednb_lab.jobs import Job

CLOSE = 1.0  # points of accuracy: what other processors and libraries may make of the same run


class MadeAgain(NamedTuple):
    """A run, as it is recorded and as it was made now."""

    job: Job
    recorded: Record
    made: Record

    @property
    def difference(self) -> float:
        """Of the final accuracies, in points."""
        if self.recorded["status"] != self.made["status"]:
            return float("inf")
        if self.made["status"] != "finished":
            return 0.0
        return self.made["final"]["accuracy"] - self.recorded["final"]["accuracy"]

    @property
    def rounds_apart(self) -> int:
        """In how many rounds the accuracies differ at all."""
        before, now = (one["metrics"].get("accuracy", []) for one in (self.recorded, self.made))
        return sum(a != b for a, b in zip(before, now, strict=False))

    @property
    def is_exact(self) -> bool:
        """Whether it agrees to the last recorded digit in every round."""
        return self.difference == 0 and self.rounds_apart == 0

    @property
    def agrees(self) -> bool:
        """Whether it is as close as another machine comes."""
        return abs(self.difference) <= CLOSE

    @property
    def same_data(self) -> bool:
        """Whether both were made on the very same images."""
        fingerprints = {one["dataset"].get("fingerprint") for one in (self.recorded, self.made)}
        return len(fingerprints) == 1


def cell_to_check(name: str, row: str | None = None, column: str | None = None) -> Cell:
    """The recorded cell of a table that takes least time, among those in the row and column.

    A `ReportError` names the rows or columns that there are.
    """
    cells = [cell for cell in cells_of(name) if cell.runs]
    check(cells, f"No run of {name} is recorded: there is nothing to check.", ReportError)
    for kind, wanted in {"row": row, "column": column}.items():
        if wanted is not None:
            known = dict.fromkeys(getattr(cell, kind) for cell in cells)
            of_row = f" in the row {row}" if kind == "column" and row is not None else ""
            message = f"{name} has{of_row} no recorded {kind}"
            require_known(message, wanted, known, ReportError)
            cells = [cell for cell in cells if getattr(cell, kind) == wanted]
    return min(cells, key=effort.seconds)


def recorded_runs(cell: Cell, most: int | None = None) -> list[tuple[Job, Record]]:
    """The runs of a cell with their records, in the order of their seeds; at most so many."""
    return [(run.job, run.record) for run in cell.runs[:most]]


def make_again(runs: Sequence[tuple[Job, Record]], *, jobs: int = 1) -> list[MadeAgain]:
    """Make runs again, where nothing recorded is touched.

    A `SweepError` tells of one that failed, whose log then stays.
    """
    folder = Path(tempfile.mkdtemp(prefix="fednb-check-"))
    elsewhere = []
    for job, _ in runs:
        path = folder / "runs" / job.path.name
        elsewhere.append(dataclasses.replace(job, path=path))
    pool.run_needed(elsewhere, jobs=jobs)
    made = [
        MadeAgain(job, recorded, ledger.read(again.path))
        for (job, recorded), again in zip(runs, elsewhere, strict=True)
    ]
    shutil.rmtree(folder)
    return made


def outcome(made: Sequence[MadeAgain]) -> str:
    """What making runs again has shown, in sentences."""
    lines = [_line(run) for run in made]
    largest = max(abs(run.difference) for run in made)
    if not all(run.same_data for run in made):
        lines.append("These are not the images of the records, so the numbers need not agree.")
    if all(run.is_exact for run in made):
        lines.append("Agrees: the same in every round, to the last digit.")
    elif all(run.agrees for run in made):
        lines.append(
            f"Agrees, to {largest:.2f} points: other processors and libraries round in other ways."
        )
    else:
        lines.append(
            f"Does not agree: the largest difference is {largest:.2f} points, more than {CLOSE:g}."
        )
    return "\n".join(lines)


def _line(run: MadeAgain) -> str:
    """A run in a line: recorded, made, and in how many rounds they differ."""
    seed = run.job.settings.seed
    recorded, made = _accuracy(run.recorded), _accuracy(run.made)
    apart = "all rounds equal"
    if run.rounds_apart:
        rounds = len(run.made["metrics"]["accuracy"])
        apart = f"{run.rounds_apart} of {rounds} rounds differ"
    return f"seed {seed}: recorded {recorded}, now {made}; {apart}"


def _accuracy(record: Record) -> str:
    """Such as ``93.60 %``, or the status of a run that did not finish."""
    if record["status"] != "finished":
        return record["status"]
    return f"{record['final']['accuracy']:.2f} %"
