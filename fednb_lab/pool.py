"""Runs made at once, each in a process of its own on this machine.

`fednb_lab.cluster` makes them on others, by the same tasks and futures. A process that is killed
costs its own run and no other; what fails is tried twice.
"""

import os
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fednb import PACKAGE, data, papers
from fednb import records as ledger
from fednb.errors import FednbError, SweepError, check
from fednb.records import Record
from fednb_lab import processes
from fednb_lab.jobs import Job, duration, to_notebook_parameters
from fednb_lab.processes import Call, in_one_line

ATTEMPTS = 2  # at a run that fails

T = TypeVar("T")


class Task(NamedTuple):
    """Runs that one process makes; they differ in their seeds only."""

    jobs: Sequence[Job]
    again: bool = False  # recorded ones, too
    notebooks: Path | None = None  # where whole executed notebooks are kept
    attempt: int = 1


class Result(NamedTuple):
    """What became of a task on another machine."""

    error: str  # why something is missing, in one line; "" if nothing is
    records: Sequence[Record | None] = ()  # in the order of the runs
    log: str = ""  # what the process printed


class Outcome(NamedTuple):
    """What became of a run."""

    job: Job
    error: str  # what went wrong, in one line; "" if it is recorded


Start = Callable[[Any, int], Future[Any]]  # of a task, in a place


# ---- what is asked for


def run(
    todo: Sequence[Job],
    *,
    jobs: int = 1,
    again: bool = False,
    notebooks: Path | None = None,
) -> list[Outcome]:
    """Make runs on this machine in their order, ``jobs`` at once, each with a GPU if there is one.

    With ``again`` those that are recorded are made, too, and replaced. In a folder ``notebooks``
    each leaves its whole executed notebook. A `FednbError` says what is missing for all of them,
    before any is begun. Where a GPU is, runs that differ only in their seeds are made together.
    """
    device = check_prerequisites(todo)
    seeds_together = device != "cpu" and notebooks is None
    tasks = [Task(group, again, notebooks) for group in _groups(todo, seeds_together)]
    places = min(jobs, len(tasks))
    with processes.own_processes() as call:

        def start_here(task: Task, place: int) -> Future[str]:
            return start_process(call, task, task.jobs[0].path.parent, share(places, place))

        return make_all(tasks, start_here, places)


def run_needed(todo: Sequence[Job], *, jobs: int = 1, again: bool = False) -> None:
    """Make runs of which each is needed; a `SweepError` tells of the first that failed."""
    for job, error in run(todo, jobs=jobs, again=again):
        check(not error, f"{job.path.stem} failed: {error} (log: {job.log})", SweepError)


def run_in_this_process(job: Job, *, again: bool) -> str:
    """Make a run whose output is shown as it comes; what went wrong, in one line, or ""."""
    from fednb_lab import engine  # slow to import

    values = _environment([job], job.path.parent, again) | {"MPLBACKEND": "agg"}
    values["FEDNB_PROGRESS"] = os.environ.get("FEDNB_PROGRESS") or "log"
    try:
        with processes.variables(values):
            engine.execute_run(job.notebook, job.parameters)
    except processes.CellError as error:
        if isinstance(error.__cause__, FednbError):  # says all that a person needs
            raise error.__cause__ from None
        return in_one_line(error)
    return ""


def check_prerequisites(todo: Sequence[Job]) -> str:
    """Check what runs need besides good settings, before one starts; return their device."""
    from fednb import build  # slow to import: PyTorch

    for notebook in {job.notebook for job in todo}:
        cells = papers.cells(papers.path(notebook), "code", "run")
        check(cells, f"The notebook {notebook} has no code cell tagged 'run'.", SweepError)
    device = build.find_device()
    build.num_workers(device)
    groups = _groups(todo, seeds_together=True)
    for first, *_ in sorted(groups, key=lambda group: group[0].settings.dataset):
        images = build.load_dataset(first.settings.dataset)
        build.divide(first.settings, images)
    for runs in {job.path.parent for job in todo}:
        ledger.make_folders(runs)
    return device


def _groups(todo: Sequence[Job], seeds_together: bool) -> list[Sequence[Job]]:
    """The runs that one process makes: a single one, or those that differ only in their seeds."""
    if not seeds_together:
        return [[job] for job in todo]
    groups: dict[Hashable, list[Job]] = defaultdict(list)
    for job in todo:
        recipe = ledger.key(job.settings.flat() | {"seed": None})
        groups[job.notebook, recipe].append(job)
    return list(groups.values())


# ---- one after the other, or side by side


def side_by_side(queue: deque[T], start: Start, places: int) -> Iterator[tuple[T, Any]]:
    """Start what is queued, so many at once; yield each at its end, with its result or error."""
    free = list(range(places))
    running: dict[Future[Any], tuple[T, int]] = {}
    while queue or running:
        while queue and free:
            task, place = queue.popleft(), free.pop(0)
            running[start(task, place)] = task, place
        done = wait(running, timeout=1, return_when=FIRST_COMPLETED).done
        while done:
            future = done.pop()
            task, place = running.pop(future)
            free.append(place)
            result = future.exception() or future.result()
            # who still holds a future of dask's wants its run made again if that worker dies
            del future
            yield task, result


def make_all(tasks: Iterable[Task], start: Start, places: int) -> list[Outcome]:
    """Make all runs; a line tells what became of each."""
    queue = deque(tasks)
    outcomes: list[Outcome] = []
    total = sum(len(task.jobs) for task in queue)
    begin = time.monotonic()
    for task, result in side_by_side(queue, start, places):
        error, left = _collect(task, result)
        if left and task.attempt < ATTEMPTS:
            queue.append(task._replace(jobs=left, attempt=task.attempt + 1))
            task = task._replace(jobs=[job for job in task.jobs if job not in left])
        for job in task.jobs:
            outcomes.append(Outcome(job, error if job in left else ""))
            told = f"failed: {error}" if job in left else ledger.read(job.path)["status"]
            rest = (time.monotonic() - begin) / len(outcomes) * (total - len(outcomes))
            line = f"{len(outcomes)}/{total}  {job.path.stem}  {told}; about {duration(rest)} left"
            print(line, file=sys.stderr, flush=True)
    return outcomes


def _collect(task: Task, result: Result | str | BaseException) -> tuple[str, Sequence[Job]]:
    """Write records and log where the sweep wants them, if they were made elsewhere; return what
    went wrong, and the runs that are still to be made.
    """
    if isinstance(result, Result):
        for job, record in zip(task.jobs, result.records, strict=False):
            if record and (not job.path.exists() or ledger.read(job.path) != record):
                ledger.write(job.path, record)
        if result.log:
            ledger.write_atomically(task.jobs[0].log, result.log)
        result = result.error
    error = result if isinstance(result, str) else in_one_line(result)
    left = [job for job in task.jobs if not ledger.recorded(job.path)]
    if task.again or task.notebooks is not None:  # then a record alone is not enough
        left = [*task.jobs] if error else left
    if left and not error:
        error = "it has left no record"
    return error.rstrip("."), left  # more is said after it


# ---- a task, wherever it is made


def start_process(call: Call, task: Task, runs: Path, share: Mapping[str, str]) -> Future[str]:
    """Start the process of a task, which records its runs in a folder."""
    log = log_of(task, runs)
    log.parent.mkdir(parents=True, exist_ok=True)
    if task.attempt == 1:
        log.write_bytes(b"")
    environment = os.environ | share | _environment(task.jobs, runs, task.again)
    return call(_execute, task.jobs[0], task.notebooks, environment=environment, log=log)


def log_of(task: Task, runs: Path) -> Path:
    """Return the file to which the process of a task prints."""
    return runs.absolute().parent / "logs" / task.jobs[0].log.name


def share(places: int, place: int, cores: int | None = None) -> dict[str, str]:
    """Return the variables that give a process its share of the machine.

    That is a GPU, or as many workers as there are cores for it, unless ``FEDNB_WORKERS`` is set.
    """
    gpus = processes.visible_gpus()
    if gpus:  # where a process uses one stream, and has nothing to do with the number of cores
        return {"CUDA_VISIBLE_DEVICES": gpus[place % len(gpus)]}
    workers = max(1, (cores or os.cpu_count() or 1) // places)
    return {"FEDNB_WORKERS": os.environ.get("FEDNB_WORKERS", str(workers))}


def _environment(jobs: Sequence[Job], runs: Path, again: bool) -> dict[str, str]:
    """Where the process of these runs finds and leaves files, and what it is told about them."""
    paths = [str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")]
    values = {
        "FEDNB_RUNS": str(runs.absolute()),
        "FEDNB_DATA": str(data.places()[0]),
        "FEDNB_CACHE": str(data.places()[-1]),
        "FEDNB_PROGRESS": "log",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),  # for kernels: this very package
    }
    if again:
        values["FEDNB_AGAIN"] = "1"
    if len(jobs) > 1:
        values["FEDNB_SEEDS"] = ",".join(str(job.settings.seed) for job in jobs)
    return values


def _execute(job: Job, notebooks: Path | None) -> None:
    """Execute a run's notebook in this process, or all of it in a kernel, into a folder."""
    from fednb_lab import engine  # slow to import

    if job.network_of:
        papers.load(job.network_of)
    if notebooks is None:
        os.environ["MPLBACKEND"] = "agg"  # figures of the cells, which nobody sees
        engine.execute_run(job.notebook, job.parameters)
    else:
        copy = notebooks / f"{job.path.stem}.ipynb"
        parameters = to_notebook_parameters(job.notebook, job.parameters)
        engine.execute_whole(papers.path(job.notebook), copy, parameters)
