"""A cell made again, in a folder of its own that goes afterwards: does it agree with its records?

Another processor or library rounds in other ways, and training blows such differences up. So first
rounds are compared strictly, loss by loss, and ends by what runs scatter over seeds anyway.
"""

import dataclasses
import math
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fednb import papers, sources
from fednb import records as ledger
from fednb.errors import ReportError, check, require_known
from fednb.leads import MIN_SEEDS
from fednb.records import Record
from fednb_lab import pool
from fednb_lab.cells import Cell, cells_named
from fednb_lab.jobs import Job, recorded_and_missing

# of losses, relative, in the first round and in the second: in the first MOON is still FedAvg
TOLERANCES = (1e-3, 1e-2)
CLOSE = 1.0  # points of accuracy that are never too much at the end
SPREADS = 3.0  # standard deviations over seeds by which two ends of one run may differ


class MadeAgain(NamedTuple):
    """A run, as it is recorded and as it was made now."""

    job: Job
    recorded: Record
    made: Record

    @property
    def same_status(self) -> bool:
        """Whether both finished, or both diverged."""
        return self.recorded["status"] == self.made["status"]

    @property
    def difference(self) -> float:
        """Of the final accuracies, in points; infinite if only one has one."""
        if not self.same_status:
            return math.inf
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
    def first_losses_apart(self) -> float | None:
        """The largest difference of a loss in the first rounds, as a share of what is allowed.

        None if no losses are recorded there.
        """
        shares = []
        for name, values in self.recorded["metrics"].items():
            if name.startswith("loss/"):
                now = self.made["metrics"].get(name, [])
                for before, after, allowed in zip(values, now, TOLERANCES, strict=False):
                    if before is not None and after is not None:
                        apart = abs(after - before) / max(abs(before), allowed)
                        shares.append(apart / allowed)
        return max(shares, default=None)

    @property
    def begins_alike(self) -> bool:
        """Whether the first rounds agree, as far as losses of them are recorded."""
        apart = self.first_losses_apart
        return apart is None or apart <= 1

    @property
    def same_data(self) -> bool:
        """Whether both were made on the very same images."""
        fingerprints = {one["dataset"].get("fingerprint") for one in (self.recorded, self.made)}
        return len(fingerprints) == 1


class Check(NamedTuple):
    """Runs that were made again, and how much the ends of such runs scatter over seeds."""

    runs: Sequence[MadeAgain]
    scatter: float | None  # standard deviation of recorded accuracies; None: too few seeds

    @property
    def margin(self) -> float | None:
        """By how many points two ends of one run may differ; None if nobody knows."""
        return None if self.scatter is None else max(CLOSE, SPREADS * self.scatter)

    @property
    def largest(self) -> float:
        """The largest difference of final accuracies, in points."""
        return max(abs(run.difference) for run in self.runs)

    @property
    def begins_alike(self) -> bool:
        """Whether the first rounds of all runs agree."""
        return all(run.begins_alike for run in self.runs)

    @property
    def ends_alike(self) -> bool:
        """Whether all end alike, as far as that can be told."""
        if not all(run.same_status for run in self.runs):
            return False
        return self.margin is None or self.largest <= self.margin

    @property
    def agrees(self) -> bool:
        """Whether they begin and end alike."""
        return self.begins_alike and self.ends_alike


def cell_to_check(name: str, row: str | None = None, column: str | None = None) -> Cell:
    """Find the recorded cell of a table that takes least time, of those in the row and column.

    A `ReportError` names the rows or columns that there are.
    """
    cells = [cell for cell in cells_named(name) if cell.runs]
    check(cells, f"No run of {name} is recorded: there is nothing to check.", ReportError)
    for kind, wanted in {"row": row, "column": column}.items():
        if wanted is not None:
            known = dict.fromkeys(getattr(cell, kind) for cell in cells)
            of_row = f" in the row {row}" if kind == "column" and row is not None else ""
            message = f"{name} has{of_row} no recorded {kind}"
            require_known(message, wanted, known, ReportError)
            cells = [cell for cell in cells if getattr(cell, kind) == wanted]
    return min(cells, key=seconds)


def seconds(cell: Cell) -> float:
    """Add up how long the recorded runs of a cell took, one after the other."""
    return sum(run.record.get("wall_seconds", 0.0) for run in cell.runs)


def recorded_runs(cell: Cell, most: int | None = None) -> list[tuple[Job, Record]]:
    """List the runs of a cell with their records, by their seeds; at most so many."""
    return [(run.job, run.record) for run in cell.runs[:most]]


def make_again(cell: Cell, most: int | None = None, *, jobs: int = 1) -> Check:
    """Make runs of a cell again, at most so many, where nothing recorded is touched.

    They are kept until all are made, so that after an interruption the next check goes on. A
    `SweepError` tells of one that failed, whose log then stays, too.
    """
    folder = folder_of(cell)
    runs = recorded_runs(cell, most)
    elsewhere = [dataclasses.replace(job, path=folder / "runs" / job.path.name) for job, _ in runs]
    made_before, todo = recorded_and_missing(elsewhere)
    if made_before:
        told = f"{len(made_before)} of {len(runs)} were made before an interruption, in {folder}"
        print(told, file=sys.stderr, flush=True)
    if todo:
        pool.run_needed(todo, jobs=jobs)
    made = [
        MadeAgain(job, recorded, ledger.read(again.path))
        for (job, recorded), again in zip(runs, elsewhere, strict=True)
    ]
    shutil.rmtree(folder, ignore_errors=True)
    return Check(made, scatter_of(cell))


def folder_of(cell: Cell) -> Path:
    """Name the folder in which runs of a cell are made again: another one for other code."""
    job = cell.job
    code = [ledger.commit(), sources.digest(papers.methods(job.notebook)[job.settings.method])]
    name = ledger.key({"cell": [cell.table, cell.row, cell.column], "code": code})
    return job.path.absolute().parent.parent / "check" / name


def scatter_of(cell: Cell) -> float | None:
    """Compute the standard deviation of final accuracies over seeds; None of fewer than three."""
    finals = [run.record.get("final", {}).get("accuracy") for run in cell.runs]
    accuracies = [accuracy for accuracy in finals if accuracy is not None]
    return float(np.std(accuracies, ddof=1)) if len(accuracies) >= MIN_SEEDS else None


def outcome(checked: Check) -> str:
    """Say in sentences what making runs again has shown, and by what it was judged."""
    lines = [_line(run) for run in checked.runs]
    if not all(run.same_data for run in checked.runs):
        lines.append("These are not the images of the records, so the numbers need not agree.")
    if all(run.is_exact for run in checked.runs):
        lines.append("Agrees: the same in every round, to the last digit.")
        return "\n".join(lines)
    verdict = "Agrees." if checked.agrees else "Does not agree."
    lines.append(f"{verdict} {_beginning(checked)} {_end(checked)}")
    return "\n".join(lines)


def _beginning(checked: Check) -> str:
    """What the first rounds say."""
    known = [run.first_losses_apart for run in checked.runs]
    apart = [one for one in known if one is not None]
    if not apart:
        return "The records hold no losses, so first rounds were not compared."
    allowed = " and ".join(f"{tolerance:.1%}" for tolerance in TOLERANCES)
    if checked.begins_alike:
        return (
            f"In the first two rounds losses are equal, as far as rounding lets them ({allowed})."
        )
    times = f"{max(apart):.1f} times"
    return (
        f"In the first two rounds losses differ by {times} what rounding makes ({allowed}): "
        "that is other code or other data."
    )


def _end(checked: Check) -> str:
    """What the last round says."""
    if not all(run.same_status for run in checked.runs):
        return "A run finished, and its other did not."
    told = f"At the end they are up to {checked.largest:.2f} points apart"
    if checked.margin is None:
        few = f"fewer than {MIN_SEEDS} seeds are recorded, so nobody knows how runs scatter"
        return f"{told}, which was not judged: {few}."
    compared = "within" if checked.ends_alike else "more than"
    return f"{told}, {compared} the {checked.margin:.2f} that runs scatter by over seeds."


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
