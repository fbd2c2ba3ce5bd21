"""Runs made at once, each in a process of its own: here, or on a dask cluster (`fednb_lab.cluster`).

Both are executors with the same futures: a thread of ours, or a thread of a dask worker, starts the
process of a run and waits for it. A process that is killed costs its own run and no other.
"""

import functools
import os
import shutil
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from fednb import data, papers
from fednb import records as ledger
from fednb.errors import FednbError, SweepError, check
from fednb.records import Record
from fednb_lab import datasets, processes
from fednb_lab.jobs import Job, folder_of
from fednb_lab.processes import Slots, Stop, in_one_line

ATTEMPTS = 2  # at a run that fails
MIN_FREE_BYTES = 1 << 20  # a disk with less is called full

Group = Sequence[Job]  # runs that one process makes; they differ in their seeds only


class Result(NamedTuple):
    """What became of a group of runs."""

    error: str  # why something is missing, in one line; "" if nothing is
    records: Sequence[Record | None] = ()  # those that there are now, in the order of the runs
    log: str = ""  # what the process printed


class Outcome(NamedTuple):
    """What became of a run."""

    job: Job
    error: str | None  # what went wrong, in one line


Submit = Callable[[Group], Future[Result]]


# ---- what is asked for


def run(
    todo: Sequence[Job],
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    again: bool = False,
    notebooks: Path | None = None,
) -> list[Outcome]:
    """Make runs in their order, ``jobs`` at once, each with a GPU, or on the dask cluster of a
    scheduler.

    With ``again`` those that are recorded are made, too, and replaced. In a folder ``notebooks``
    each leaves its whole executed notebook. A `FednbError` says what is missing for all of them,
    before any is begun; a ``ConnectionError`` that there is no such cluster. Where a GPU is, runs
    that differ only in their seeds are made together.
    """
    device = check_prerequisites(todo)
    make = functools.partial(make_group, again=again, notebooks=notebooks)
    seeds_together = device != "cpu" and scheduler is None and notebooks is None
    groups = _groups(todo, seeds_together)
    if scheduler is not None:
        from fednb_lab.cluster import cluster  # which imports this module

        with cluster(scheduler, make) as submit:
            return _run_all(groups, submit)
    with here(min(jobs, len(groups))) as call:
        return _run_all(groups, lambda group: call(make, group, group[0].path.parent))


def run_needed(todo: Sequence[Job], *, jobs: int = 1, again: bool = False) -> None:
    """Make runs of which each is needed; a `SweepError` tells of the first that failed."""
    for job, error in run(todo, jobs=jobs, again=again):
        message = f"{job.path.stem} failed: {error} (log: {job.log})"
        check(error is None, message, SweepError)


def check_prerequisites(todo: Sequence[Job]) -> str:
    """Check what runs need besides good settings, so that none starts in vain; returns their
    device.
    """
    from fednb import build  # slow to import: PyTorch

    for notebook in {job.notebook for job in todo}:
        cells = papers.cells(papers.path(notebook), "code", "run")
        check(cells, f"The notebook {notebook} has no code cell tagged 'run'.", SweepError)
        papers.methods(notebook)  # its cells may fail
    device = build.find_device()
    build.num_workers(device)
    for dataset in {job.settings.dataset for job in todo}:
        datasets.ensure(dataset)
        build.load_dataset(dataset)
    for runs in {job.path.parent for job in todo}:
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
    progress = Progress(sum(len(group) for group in groups))
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


def _result_of(future: Future[Result]) -> Result:
    """What became of a group; a ``CancelledError`` is raised if the scheduler is gone."""
    error = future.exception()
    return Result(in_one_line(error)) if error else future.result()


def _collect(group: Group, result: Result) -> list[Outcome]:
    """Write records and log where the sweep wants them: the runs may have been made elsewhere."""
    for job, record in zip(group, result.records, strict=False):  # none, if a worker refused
        if record and (not job.path.exists() or ledger.read(job.path) != record):
            ledger.write(job.path, record)
    if result.log:
        ledger.write_atomically(group[0].log, result.log)
    error = result.error.rstrip(".")  # more is said after it
    is_alone = len(group) == 1
    return [
        Outcome(job, error if error and (is_alone or not ledger.recorded(job.path)) else None)
        for job in group
    ]


class Progress:
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
        """Print what became of a run, and how much time the others may take."""
        self.count += 1
        seconds = (time.monotonic() - self.begin) / self.count * (self.total - self.count)
        text = f"failed: {outcome.error}"
        if outcome.error is None:
            text = ledger.read(outcome.job.path)["status"]
        line = f"{self.count}/{self.total}  {outcome.job.path.stem}  {text}; "
        line += f"about {tqdm.format_interval(int(seconds))} left"
        self.bar.write(line, file=sys.stderr)
        self.bar.update()


# ---- a group of runs, wherever it is made


def make_group(
    group: Group,
    runs: Path,
    slots: Slots,
    stop: Stop,
    *,
    again: bool = False,
    notebooks: Path | None = None,
) -> Result:
    """Make those runs of a group that a folder of records lacks, in one process.

    What fails is tried twice. The process is ended when ``stop`` says yes.
    """
    log = runs.absolute().parent / "logs" / group[0].log.name
    log.parent.mkdir(parents=True, exist_ok=True)
    error = "it was stopped."
    text = ""
    with slots.lend() as slot:
        for attempt in range(ATTEMPTS):
            missing = _without_record(group, runs)
            if again or notebooks is not None:  # then a record alone is not enough
                missing = group if error else ()
            if not missing or stop():
                break
            if not attempt:
                log.write_bytes(b"")
            environment = slots.environment(slot) | environment_of(missing, runs, again)
            error = processes.call(
                _execute, missing[0], notebooks, environment=environment, log=log, stop=stop
            )
            text = log.read_text("utf-8", "replace")
            if shutil.disk_usage(log.parent).free < MIN_FREE_BYTES:
                error = f"the disk of {log.parent} is full."
    if _without_record(group, runs):
        error = error or "it has left no record."
    elif not again and notebooks is None:
        error = ""
    return Result(error, [ledger.recorded(runs / job.path.name) for job in group], text)


def _without_record(group: Group, runs: Path) -> Group:
    return [job for job in group if not ledger.recorded(runs / job.path.name)]


def environment_of(group: Group, runs: Path, again: bool) -> dict[str, str]:
    """Where the process of these runs finds and leaves files, and what it is told about them."""
    variables = {
        "FEDNB_NOTEBOOKS": str(folder_of(group[0].notebook)),
        "FEDNB_RUNS": str(runs.absolute()),
        "FEDNB_DATA": str(data.places()[0]),
        "FEDNB_CACHE": str(data.places()[-1]),
        "FEDNB_PROGRESS": "log",
    }
    if again:
        variables["FEDNB_AGAIN"] = "1"
    if len(group) > 1:
        variables["FEDNB_SEEDS"] = ",".join(str(job.settings.seed) for job in group)
    return variables


def _execute(job: Job, notebooks: Path | None) -> None:
    """Execute a run's notebook in this process, or all of it in a kernel, into a folder."""
    from fednb_lab import engine  # slow to import

    if notebooks is None:
        os.environ["MPLBACKEND"] = "agg"  # figures of the cells, which nobody sees
        engine.execute_run(job.notebook, job.parameters)
    else:
        copy = notebooks / f"{job.path.stem}.ipynb"
        parameters = papers.arrange(job.notebook, job.parameters)
        engine.execute_whole(papers.path(job.notebook), copy, parameters)


def run_in_this_process(job: Job, *, again: bool) -> str:
    """Make a run whose output is shown as it comes; what went wrong, in one line, or ""."""
    from fednb_lab import engine  # slow to import

    variables = environment_of([job], job.path.parent, again) | {"MPLBACKEND": "agg"}
    try:
        with processes.variables(variables):
            engine.execute_run(job.notebook, job.parameters)
    except processes.CellError as error:
        if isinstance(error.__cause__, FednbError):  # says all that a person needs
            raise error.__cause__ from None
        return in_one_line(error)
    return ""


# ---- executors


@contextmanager
def here(count: int) -> Iterator[Callable[..., Future[Any]]]:
    """Threads of this machine, each of which may have a process; what calls a function in one, with
    the slots and what says that it shall end behind its arguments.

    Leaving the context, by Ctrl-C too, ends them all.
    """
    slots = Slots(count)
    ended = threading.Event()
    executor = ThreadPoolExecutor(count, initializer=processes.leave_ctrl_c_to_others)

    def call(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        return executor.submit(function, *arguments, slots, ended.is_set)

    try:
        yield call
    finally:
        ended.set()
        executor.shutdown(cancel_futures=True)
