"""Sweeps on a dask cluster: the same runs, made by workers on other machines.

A worker makes a run as a local sweep does, in a process of its own, and returns the texts of the record and the log; the
sweep writes them here unless a shared folder has brought them already. The modules that need torch or dask are imported by
the functions: the scheduler imports this module too, and should stay small.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tqdm import tqdm

if TYPE_CHECKING:
    from fednb.experiments.sweep import Job, Summary

CONNECT_SECONDS = 10


class Code(NamedTuple):
    """What decides which code makes a run; the digest sees changes that are not committed, and serves outside git."""

    commit: str | None
    digest: str


class Outcome(NamedTuple):
    """What a worker returns: what went wrong, if anything, and the texts of the record and the log, if there are."""

    error: str | None
    record: str | None = None
    log: str | None = None


# --- the sweep's side -------------------------------------------------------------------------------------------------


def run(todo: Iterable[Job], summary: Summary, address: str, *, attempts: int = 2) -> None:
    """Make the runs on the cluster whose scheduler is at ``address``, and fill the summary.

    Raises
    ------
    SweepError
        If there is no scheduler, or the connection to it is lost; runs that are queued or running there are then given up.
    """
    from fednb.experiments import sweep

    try:
        import dask
        import distributed  # noqa: F401
    except ImportError as error:
        raise sweep.SweepError('A sweep on a cluster needs dask: pip install -e ".[cluster]".') from error
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # a lost connection is reported below, in a sentence
    with dask.config.set({"distributed.comm.timeouts.connect": CONNECT_SECONDS}):
        try:
            client = _connect(address)
        except Exception as error:  # of many kinds: an address that makes no sense, a server that is not dask
            raise sweep.SweepError(
                f"No dask scheduler answers at {address} ({_line(error)}): "
                "start one with `dask scheduler`, which prints its address, or see whether a firewall is in the way."
            ) from error
        # Leaving, by Ctrl-C too, cancels what is queued; a run that is under way ends itself as soon as it is not wanted.
        with client:
            _send(client, list(todo), summary, address, attempts)


def _connect(address: str) -> Any:
    from distributed import Client
    from distributed.core import rpc

    async def ask() -> None:
        async with rpc(address, timeout=CONNECT_SECONDS) as scheduler:
            await scheduler.identity()

    # dask's own timeout does not end the wait for a server that accepts and then says nothing
    asyncio.run(asyncio.wait_for(ask(), CONNECT_SECONDS + 2))
    return Client(address, timeout=CONNECT_SECONDS, set_as_default=False)


def _send(client: Any, todo: list[Job], summary: Summary, address: str, attempts: int) -> None:
    from distributed import KilledWorker

    from fednb.experiments import ledger, sweep

    resources: dict[str, int] = {}
    waiting = False

    def lost(error: BaseException | None = None) -> sweep.SweepError:
        reason = f" ({_line(error)})" if error and str(error) else ""
        return sweep.SweepError(
            f"The connection to the scheduler at {address} was lost{reason}: see that it runs; "
            "the same command then goes on where this one ended."
        )

    def workers() -> list[dict[str, float]]:
        """The resources of each worker that could take a run; if there is none, it is said once."""
        nonlocal waiting
        known = client.sync(client.scheduler.identity)["workers"].values()
        found = [w["resources"] for w in known if all(w["resources"].get(r, 0) >= n for r, n in resources.items())]
        if not found and not waiting:
            kind = " with a GPU" if resources else ""
            text = f"No worker{kind} is connected to {address}; waiting for one (start it with `dask worker {address}`)."
            tqdm.write(text, file=sys.stderr)
        waiting = not found
        return found

    def watch() -> None:
        if client.status == "running":  # if not, the futures are cancelled, which `collect` reports
            with suppress(OSError):
                workers()

    def collect(job: Job, future: Future[Outcome]) -> str | None:
        try:
            error, record, log = future.result()
        except CancelledError as cancelled:
            raise lost() from cancelled
        except KilledWorker as killed:
            return (
                f"{killed.allowed_failures + 1} workers died with this run, the last at {killed.last_worker.address}: "
                "the same command tries again, from the last checkpoint if the folder of results is shared."
            )
        except Exception as other:
            return _line(other)
        try:
            if log is not None:
                ledger.write_atomically(sweep.log_path(job), log)
            if record is not None and not job.recorded:
                ledger.write_atomically(job.path, record)
        except OSError as failed:
            return f"it was made, but {job.path.name} or its log cannot be written here ({failed.strerror})."
        if error is None and not job.recorded:
            return f"the worker has not returned the record {job.path.name}."
        return error

    try:
        while not (found := workers()):
            time.sleep(0.5)
        if any(worker.get("GPU") for worker in found):
            resources["GPU"] = 1
        pool = client.get_executor(pure=False, resources=resources or None)
        code = read_code()
        futures = {
            pool.submit(work, job.notebook, job.parameters, job.table, job.path.name, code, attempts): job for job in todo
        }
    except OSError as error:
        raise lost(error) from error
    sweep.follow(futures, summary, collect, watch)


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


# --- both sides -------------------------------------------------------------------------------------------------------


def read_code() -> Code:
    """The code that is on this machine's disk now."""
    from fednb import papers
    from fednb.experiments import ledger

    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    for file in papers.notebooks():
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        digest.update(json.dumps([cell["source"] for cell in cells if cell["cell_type"] == "code"]).encode())
    return Code(ledger.commit(), digest.hexdigest())


# --- the worker's side ------------------------------------------------------------------------------------------------


def work(notebook: str, parameters: dict[str, Any], table: str, name: str, code: Code, attempts: int) -> Outcome:
    """Make a run on this worker, unless it is recorded here.

    Parameters
    ----------
    name
        The record's file name where the sweep is: it holds settings, data and results version.
    code
        What the sweep's machine has.
    """
    from dask.system import CPU_COUNT
    from distributed import Reschedule, get_worker
    from distributed.core import Status

    from fednb.data import DataError
    from fednb.experiments import ledger, sweep

    worker = get_worker()
    key, threads = worker.get_current_task(), worker.state.nthreads
    where = f"the worker {worker.address} on {socket.gethostname()}"
    ledger.commit.cache_clear()  # a worker lives long, and a run's process reads the code that is on disk now
    here = read_code()
    if here != code:
        return Outcome(
            f"{where} has other code (commit {here.commit}) than the sweep (commit {code.commit}): make fednb and notebooks "
            "there the same, restart the worker, and call the sweep again."
        )
    try:
        job = sweep.job(notebook, parameters, table)
        if not job.recorded:
            sweep.prepare([job])
    except DataError as error:
        sweep.forget_data()  # it may be there the next time
        return Outcome(f"{where} lacks data: {error}")
    if job.path.name != name:
        return Outcome(
            f"{where} has other data than the sweep (there the run would be {job.path.stem}): "
            f"put the same files of {job.settings.dataset} there, restart the worker, and call the sweep again."
        )

    def stop() -> bool:
        # Nobody waits for the run any more (Ctrl-C, the sweep killed), or this worker is closing (so it does when the
        # scheduler is gone). dask cannot interrupt a thread, but takes note of it in the task's state.
        task = worker.state.tasks.get(key)
        wanted = task is not None and task.state != "cancelled"
        return not wanted or worker.status in (Status.closing, Status.closed, Status.failed)

    error = None
    if not job.recorded:
        with _slot() as slot:
            # a GPU for each thread, among those that this worker sees: if it was given one, it is that one
            env = sweep.environment(slot, threads, CPU_COUNT)
            error = sweep.execute_again(job, env, attempts=attempts, stop=stop)
        if error is not None and stop():
            raise Reschedule  # not the run's fault: another worker takes it, if it is wanted
    return Outcome(error, _text(job.path), _text(sweep.log_path(job)))


_lock = threading.Lock()
_taken: set[int] = set()


@contextmanager
def _slot() -> Iterator[int]:
    """The smallest number that no other thread of this worker has."""
    with _lock:
        slot = min(set(range(len(_taken) + 1)) - _taken)
        _taken.add(slot)
    try:
        yield slot
    finally:
        with _lock:
            _taken.remove(slot)


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else None
