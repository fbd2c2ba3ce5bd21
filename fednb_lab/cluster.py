"""Runs on a dask cluster, by futures like those of `fednb_lab.pool`: each worker makes them in processes.

A worker with other code or data than the sweep's refuses.
"""

import asyncio
import functools
import hashlib
import logging
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fednb_lab
from fednb import PACKAGE, data, papers
from fednb import records as ledger
from fednb.errors import DataError, NotebookError
from fednb_lab import pool, processes
from fednb_lab.jobs import Job, runs_of
from fednb_lab.pool import Outcome, Result, Start, Task
from fednb_lab.processes import in_one_line

if TYPE_CHECKING:
    from distributed import Client

CONNECT_SECONDS = 10
POLL_SECONDS = 0.2  # how often a worker asks whether a run is still wanted


def run(
    todo: Sequence[Job],
    *,
    scheduler: str | None = None,
    jobs: int = 1,
    again: bool = False,
    notebooks: Path | None = None,
) -> list[Outcome]:
    """Make runs in their order on the dask cluster of a scheduler; without one by `pool.run`.

    With ``again`` those that are recorded are made, too, and replaced. A `FednbError` says what is
    missing for all of them, before any is begun; a ``ConnectionError`` that there is no such
    cluster.
    """
    if scheduler is None:
        return pool.run(todo, jobs=jobs, again=again, notebooks=notebooks)
    pool.check_prerequisites(todo)
    tasks = [Task([job], again) for job in todo]
    with _cluster(scheduler) as start:
        return pool.make_all(tasks, start, len(tasks))


@contextmanager
def _cluster(address: str) -> Iterator[Start]:
    """Yield what starts a task on a dask cluster, by its scheduler's address, once it has a worker.

    Leaving the context cancels what waits.
    """
    with _connected(address) as client:
        _wait_for_a_worker(client, address)
        workers = client.scheduler_info()["workers"].values()
        has_gpus = any(worker["resources"].get("GPU") for worker in workers)
        executor = client.get_executor(pure=False, resources={"GPU": 1} if has_gpus else None)
        digests = functools.cache(code_and_data)

        def start(task: Task, place: int) -> Future[Result]:
            job = task.jobs[0]
            expected = digests(job.notebook, job.settings.dataset)
            return executor.submit(make_on_worker, task, expected)

        yield start


@contextmanager
def _connected(address: str) -> Iterator["Client"]:
    """A connection to a scheduler; its loss is a ``ConnectionError``, too."""
    try:
        from distributed import Client
        from distributed.core import CommClosedError
    except ImportError as error:
        message = 'A sweep on a cluster needs dask: pip install -e ".[cluster]".'
        raise ConnectionError(message) from error
    logging.disable()  # a lost connection is told in a sentence
    try:  # first by hand: a client waits without end for a server that accepts and says nothing
        asyncio.run(_probe(address))
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except Exception as error:
        # an address that makes no sense, a server that is not dask, and more
        raise ConnectionError(
            f"No dask scheduler answers at {address} ({in_one_line(error)}): start one with "
            "`dask scheduler`, which prints its address, or see whether a firewall is in the way."
        ) from error
    with client:
        try:
            yield client
        except (CancelledError, CommClosedError) as error:
            raise ConnectionError(
                f"The connection to the scheduler at {address} was lost: see that it runs; the same "
                "command then goes on where this one ended."
            ) from error


async def _probe(address: str) -> None:
    """Connect to a scheduler and hang up, to see that one is there."""
    from distributed.core import connect

    connection = await asyncio.wait_for(connect(address, timeout=CONNECT_SECONDS), CONNECT_SECONDS)
    connection.abort()


def _wait_for_a_worker(client: "Client", address: str) -> None:
    if client.scheduler_info()["workers"]:
        return
    message = f"No worker is connected to {address}; waiting for one: `dask worker {address}`."
    print(message, file=sys.stderr, flush=True)
    client.wait_for_workers(1)


# ---- on a worker of a cluster


@functools.cache
def _package_code() -> str:
    """The source of both packages, as they were when it was first asked for: so they are imported."""
    found = sorted(file for folder in (PACKAGE, fednb_lab.PACKAGE) for file in folder.rglob("*"))
    files = [file for file in found if file.suffix in (".py", ".yaml")]
    return "\0".join(file.read_text(encoding="utf-8") for file in files)


def code_and_data(notebook: str, dataset: str) -> dict[str, str]:
    """Hash what must be the same where runs are made: code of packages and notebooks, data."""
    sources = [_package_code()]
    for file in [*papers.notebooks(extras=True), papers.path(notebook)]:
        sources += papers.cells(file, "code")
    code = hashlib.sha256("\0".join(sources).encode()).hexdigest()
    return {"code": code, "data": data.load(dataset).fingerprint}


def make_on_worker(task: Task, expected: Mapping[str, str]) -> Result:
    """Make a task on this worker and in its folder of runs, if code and data are the sweep's own."""
    from dask.system import CPU_COUNT
    from distributed import Reschedule, get_worker

    worker = get_worker()
    refusal = _refusal(task, expected, f"the worker {worker.address} on {socket.gethostname()}")
    if refusal:
        return Result(refusal)
    runs = runs_of(task.jobs[0].notebook)
    share = pool.share(worker.state.nthreads, 0, CPU_COUNT)
    key = worker.get_current_task()
    with processes.own_processes() as call:
        future = pool.start_process(call, task, runs, share)
        while not wait([future], POLL_SECONDS).done:
            if _is_unwanted(worker, key):
                raise Reschedule  # another worker takes it, if it is wanted
        error = future.exception()
    records = [ledger.recorded(runs / job.path.name) for job in task.jobs]
    log = pool.log_of(task, runs).read_text("utf-8", "replace")
    return Result(in_one_line(error) if error else future.result(), records, log)


def _refusal(task: Task, expected: Mapping[str, str], named: str) -> str:
    """Why a worker does not make a task; "" if it does."""
    job = task.jobs[0]
    try:
        digests = code_and_data(job.notebook, job.settings.dataset)
    except (NotebookError, DataError) as error:
        return f"{named} lacks something: {error}"
    different = [name for name in expected if digests[name] != expected[name]]
    if not different:
        return ""
    way_out = "make them the same there, and restart the worker"
    return f"{named} has other {' and '.join(different)} than the sweep: {way_out}."


def _is_unwanted(worker: Any, task_key: Any) -> bool:
    """Whether nobody waits for a task any more (Ctrl-C, the sweep killed), or the worker is
    closing.

    It closes when the scheduler is gone. dask cannot interrupt a thread, but takes note of it in
    the task's state.
    """
    task = worker.state.tasks.get(task_key)
    is_closing = worker.status.name in ("closing", "closed", "failed")
    return task is None or task.state == "cancelled" or is_closing
