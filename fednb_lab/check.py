"""A cell made again, in a folder of its own that goes afterwards: does it agree with its records?

Another processor or library rounds in other ways, and training blows such differences up. So first
rounds are compared strictly, loss by loss, and ends by what runs scatter over seeds anyway.
"""

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fednb import papers, sources
from fednb import records as ledger
from fednb.errors import ReportError, check, require_known
from fednb.leads import MIN_SEEDS
from fednb.records import Record
from fednb_lab import pool
from fednb_lab.cells import Cell, Run, cells_named
from fednb_lab.jobs import missing

# of losses, relative, in the first round and in the second: in the first MOON is still FedAvg
TOLERANCES = (1e-3, 1e-2)
CLOSE = 1.0  # points of accuracy that are never too much at the end
SPREADS = 3.0  # standard deviations over seeds by which two ends of one run may differ


class MadeAgain(NamedTuple):
    """A run, as it is recorded and as it was made now."""

    recorded: Record
    made: Record

    @property
    def difference(self) -> float:
        """How many points the ends are apart; infinite if only one finished."""
        if self.recorded["status"] != self.made["status"]:
            return math.inf
        if self.made["status"] != "finished":
            return 0.0
        return abs(self.made["final"]["accuracy"] - self.recorded["final"]["accuracy"])

    @property
    def rounds_apart(self) -> int:
        """In how many rounds the accuracies differ at all."""
        before, now = (one["metrics"].get("accuracy", []) for one in self)
        return sum(a != b for a, b in zip(before, now, strict=False))

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

    def __str__(self) -> str:
        """Both ends, and in how many rounds they differ."""
        seed = self.recorded["settings"]["seed"]
        before, now = map(_end_of, self)
        rounds = f"{self.rounds_apart} of {len(self.made['metrics'].get('accuracy', []))} rounds"
        apart = f"{rounds} differ" if self.rounds_apart else "all rounds equal"
        return f"seed {seed}: recorded {before}, now {now}; {apart}"


class Verdict(NamedTuple):
    """Whether something agrees, and the sentences that say by what that was judged."""

    agrees: bool
    text: str


def cell_to_check(name: str, row: str | None = None, column: str | None = None) -> Cell:
    """Find the recorded cell of a table that takes least time, of those in the row and column.

    A `ReportError` names the rows or columns that there are.
    """
    cells = [cell for cell in cells_named(name) if cell.runs]
    check(cells, f"No run of {name} is recorded: there is nothing to check.", ReportError)
    for kind, wanted in {"row": row, "column": column}.items():
        if wanted is not None:
            known = dict.fromkeys(getattr(cell, kind) for cell in cells)
            require_known(f"{name} has no recorded {kind}", wanted, known, ReportError)
            cells = [cell for cell in cells if getattr(cell, kind) == wanted]
    return min(cells, key=lambda cell: seconds(cell.runs))


def seconds(runs: Sequence[Run]) -> float:
    """Add up how long recorded runs took, one after the other."""
    return sum(run.record.get("wall_seconds", 0.0) for run in runs)


def make_again(cell: Cell, runs: Sequence[Run], *, jobs: int = 1) -> Verdict:
    """Make runs of a cell again, where nothing recorded is touched, and compare.

    They lie in a folder of the cell and of the code of its method until all are made, so that after
    an interruption the next check goes on. A `SweepError` tells of one that failed, whose log then
    stays, too.
    """
    job = cell.job
    code = [ledger.commit(), sources.digest(papers.methods(job.notebook)[job.settings.method])]
    name = ledger.key({"cell": [cell.table, cell.row, cell.column], "code": code})
    folder = job.path.absolute().parent.parent / "check" / name
    elsewhere = [replace(run.job, path=folder / "runs" / run.job.path.name) for run in runs]
    if missing(elsewhere):
        pool.run_needed(missing(elsewhere), jobs=jobs)
    pairs = zip(runs, elsewhere, strict=True)
    made = [MadeAgain(run.record, ledger.read(again.path)) for run, again in pairs]
    shutil.rmtree(folder, ignore_errors=True)
    return judge(made, scatter_of(cell))


def scatter_of(cell: Cell) -> float | None:
    """Compute the standard deviation of final accuracies over seeds; None of fewer than three."""
    finals = [run.record.get("final", {}).get("accuracy") for run in cell.runs]
    accuracies = [accuracy for accuracy in finals if accuracy is not None]
    return float(np.std(accuracies, ddof=1)) if len(accuracies) >= MIN_SEEDS else None


def judge(runs: Sequence[MadeAgain], scatter: float | None) -> Verdict:
    """Say what making runs again has shown; ``scatter`` is the standard deviation over seeds."""
    lines = [str(run) for run in runs]
    images = [[one["dataset"].get("fingerprint") for one in run] for run in runs]
    if any(before != now for before, now in images):
        lines.append("These are not the images of the records, so the numbers need not agree.")
    if not any(run.difference or run.rounds_apart for run in runs):
        lines.append("Agrees: the same in every round, to the last digit.")
        return Verdict(True, "\n".join(lines))
    beginning, end = _beginning(runs), _end(runs, scatter)
    agrees = beginning.agrees and end.agrees
    told = "Agrees." if agrees else "Does not agree."
    lines.append(f"{told} {beginning.text} {end.text}")
    return Verdict(agrees, "\n".join(lines))


def _beginning(runs: Sequence[MadeAgain]) -> Verdict:
    """What the first rounds say."""
    known = [run.first_losses_apart for run in runs]
    apart = max((one for one in known if one is not None), default=None)
    if apart is None:
        return Verdict(True, "The records hold no losses, so first rounds were not compared.")
    allowed = " and ".join(f"{tolerance:.1%}" for tolerance in TOLERANCES)
    told = f"In the first two rounds losses differ by {apart:.1f} times what rounding makes"
    if apart <= 1:
        return Verdict(True, f"{told} ({allowed}).")
    return Verdict(False, f"{told} ({allowed}): that is other code or other data.")


def _end(runs: Sequence[MadeAgain], scatter: float | None) -> Verdict:
    """What the last round says."""
    largest = max(run.difference for run in runs)
    if largest == math.inf:
        return Verdict(False, "A run finished, and its other did not.")
    told = f"At the end they are up to {largest:.2f} points apart"
    if scatter is None:
        few = f"fewer than {MIN_SEEDS} seeds are recorded, so nobody knows how runs scatter"
        return Verdict(True, f"{told}, which was not judged: {few}.")
    margin = max(CLOSE, SPREADS * scatter)
    is_within = largest <= margin
    compared = "within" if is_within else "more than"
    told = f"{told}, {compared} the {margin:.2f} that runs scatter by over seeds."
    return Verdict(is_within, told)


def _end_of(record: Record) -> str:
    """Such as ``93.60 %``, or the status of a run that did not finish."""
    if record["status"] != "finished":
        return record["status"]
    return f"{record['final']['accuracy']:.2f} %"
