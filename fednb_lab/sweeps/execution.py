"""Making missing runs: what they need is checked first, a line tells what became of each."""

import sys
import time
from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import NamedTuple

from tqdm import tqdm

from fednb import papers
from fednb.errors import SweepError, check
from fednb.experiments import ledger
from fednb_lab import datasets
from fednb_lab.sweeps.cluster import cluster
from fednb_lab.sweeps.processes import Group, GroupResult, Submit, local_pool, log_of
from fednb_lab.sweeps.run_cells import in_one_line
from fednb_lab.sweeps.table import Job


class Outcome(NamedTuple):
    """What became of a run."""

    job: Job
    error: str | None  # why there is no record, in one line


def run(todo: Sequence[Job], *, jobs: int = 1, scheduler: str | None = None) -> list[Outcome]:
    """Make runs in their order, ``jobs`` at once, each with a GPU, or on the dask cluster of a
    scheduler.

    A `FednbError` says what is missing for all of them, before any is begun; a ``ConnectionError``
    that there is no such cluster. Where a GPU is, runs that differ only in their seeds are made
    together.
    """
    device = check_prerequisites(todo)
    groups = _groups(todo, seeds_together=device != "cpu" and scheduler is None)
    pool = local_pool(min(jobs, len(groups))) if scheduler is None else cluster(scheduler)
    with pool as submit:
        return _run_all(groups, submit)


def run_needed(todo: Sequence[Job], *, jobs: int = 1) -> None:
    """Make runs of which each is needed; a `SweepError` tells of the first that failed."""
    for job, error in run(todo, jobs=jobs):
        message = f"{job.path.stem} failed: {error} (log: {log_of(job.path)})"
        check(error is None, message, SweepError)


def check_prerequisites(todo: Sequence[Job]) -> str:
    """Check what runs need besides good settings, so that none starts in vain; returns their
    device.
    """
    from fednb.experiments import build  # slow to import: PyTorch

    for notebook in {job.notebook for job in todo}:
        cells = papers.cells(papers.path(notebook), "code", "run")
        check(cells, f"The notebook {notebook} has no code cell tagged 'run'.", SweepError)
        papers.methods(notebook)  # its cells may fail
    device = build.find_device()
    build.num_workers(device)
    for dataset in {job.settings.dataset for job in todo}:
        datasets.ensure(dataset)
        build.load_dataset(dataset)
    for runs in {job.places.runs for job in todo}:
        ledger.make_folders(runs)
    return device


def _groups(todo: Sequence[Job], seeds_together: bool) -> list[Group]:
    """The runs that one process makes: a single one, or those that differ only in their seeds."""
    groups: dict[Hashable, list[Job]] = defaultdict(list)
    for job in todo:
        recipe = ledger.key(job.settings.flat() | {"seed": None})
        groups[job.notebook, recipe if seeds_together else job.path].append(job)
    return list(groups.values())


def _run_all(groups: Collection[Group], submit: Submit) -> list[Outcome]:
    """Make the runs of all groups; a line tells what became of each, in a terminal a bar."""
    group_of = {submit(group): group for group in groups}
    outcomes: list[Outcome] = []
    progress = _Progress(sum(len(group) for group in groups))
    with progress.bar:
        while group_of:
            done = wait(group_of, timeout=1, return_when=FIRST_COMPLETED).done
            while done:
                future = done.pop()
                group = group_of.pop(future)
                result = _result_of(future)
                # Whoever still holds a future of dask's wants its run made again if that worker
                # dies.
                del future
                for outcome in _collect(group, result):
                    outcomes.append(outcome)
                    progress.tell(outcome)
            progress.bar.refresh()
    return outcomes


def _result_of(future: Future[GroupResult]) -> GroupResult:
    """What became of a group; a ``CancelledError`` is raised if the scheduler is gone."""
    error = future.exception()
    return GroupResult(in_one_line(error)) if error else future.result()


def _collect(group: Group, result: GroupResult) -> list[Outcome]:
    """Write records and log where the sweep wants them: the runs may have been made elsewhere."""
    for job, record in zip(group, result.records, strict=False):  # none, if a worker refused
        if record and not ledger.recorded(job.path):
            ledger.write(job.path, record)
    if result.log:
        ledger.write_atomically(log_of(group[0].path), result.log)
    error = result.error.rstrip(".")  # more is said after it
    return [Outcome(job, None if ledger.recorded(job.path) else error) for job in group]


class _Progress:
    """A line per run, with the time that is left, and in a terminal a bar."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.count = 0
        self.begin = time.monotonic()
        # smoothing 0: the time left is estimated from all finished runs, as short and long ones
        # alternate
        self.bar = tqdm(
            total=total,
            unit="run",
            smoothing=0,
            dynamic_ncols=True,
            bar_format="{n_fmt}/{total_fmt} runs |{bar}| {elapsed} so far, about {remaining} left",
            disable=not sys.stderr.isatty(),
        )

    def tell(self, outcome: Outcome) -> None:
        self.count += 1
        seconds = (time.monotonic() - self.begin) / self.count * (self.total - self.count)
        text = f"failed: {outcome.error}"
        if outcome.error is None:
            text = ledger.read(outcome.job.path)["status"]
        line = f"{self.count}/{self.total}  {outcome.job.path.stem}  {text}; "
        line += f"about {tqdm.format_interval(int(seconds))} left"
        self.bar.write(line, file=sys.stderr)
        self.bar.update()
