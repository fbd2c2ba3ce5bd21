"""Runs on a dask cluster: the same futures and the same progress as on this machine."""

import asyncio
import functools
import hashlib
import logging
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import fednb_lab
from fednb import PACKAGE, data, papers
from fednb_lab import datasets
from fednb_lab.sweeps.jobs import places_of
from fednb_lab.sweeps.processes import Group, GroupResult, Slots, Submit, can_fork, run_group
from fednb_lab.sweeps.run_cells import in_one_line

if TYPE_CHECKING:
    from distributed import Client

CONNECT_SECONDS = 10
IDLE_SECONDS = 10.0  # so long a worker keeps a process ready for another run

_slots: dict[str, Slots] = {}  # by the address of each worker in this process
_slots_are_made = threading.Lock()


@contextmanager
def cluster(address: str) -> Iterator[Submit]:
    """The dask cluster of the scheduler at this address, when it has a worker; leaving the context
    cancels what waits.

    A ``ConnectionError`` says what is wrong.
    """
    with _connected(address) as client:
        _wait_for_a_worker(client, address)
        workers = client.scheduler_info()["workers"].values()
        has_gpus = any(worker["resources"].get("GPU") for worker in workers)
        pool = client.get_executor(pure=False, resources={"GPU": 1} if has_gpus else None)
        digests = functools.cache(code_and_data)

        def submit(group: Group) -> Future[GroupResult]:
            return pool.submit(run_group_on_worker, group, digests(group[0].settings.dataset))

        yield submit


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
        asyncio.run(_knock(address))
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


async def _knock(address: str) -> None:
    """Connect to a scheduler and hang up."""
    from distributed.core import connect

    connection = await asyncio.wait_for(connect(address, timeout=CONNECT_SECONDS), CONNECT_SECONDS)
    connection.abort()


def _wait_for_a_worker(client: "Client", address: str) -> None:
    if client.scheduler_info()["workers"]:
        return
    message = f"No worker is connected to {address}; waiting for one: `dask worker {address}`."
    print(message, file=sys.stderr, flush=True)
    client.wait_for_workers(1)


def code_and_data(dataset: str) -> dict[str, str]:
    """Digests of what must be the same where runs are made: code of package and notebooks, data."""
    packages = (PACKAGE, fednb_lab.PACKAGE)
    found = sorted(file for package in packages for file in package.rglob("*"))
    files = [file for file in found if file.suffix in (".py", ".yaml")]
    sources = [file.read_text(encoding="utf-8") for file in files]
    for notebook in papers.notebooks(extras=True):
        sources += papers.cells(notebook, "code")
    code = hashlib.sha256("\0".join(sources).encode()).hexdigest()
    datasets.ensure(dataset)
    return {"code": code, "data": data.load(dataset).fingerprint}


def run_group_on_worker(group: Group, expected: Mapping[str, str]) -> GroupResult:
    """`run_group` on this worker and in its places, if code and data are the sweep's own."""
    from distributed import Reschedule, get_worker

    worker = get_worker()
    digests = code_and_data(group[0].settings.dataset)
    different = [name for name in expected if digests[name] != expected[name]]
    if different:
        return GroupResult(
            f"the worker {worker.address} on {socket.gethostname()} has other "
            f"{' and '.join(different)} than the sweep: make them the same there, and restart the "
            "worker."
        )
    stop = functools.partial(_is_unwanted, worker, worker.get_current_task())
    places = places_of(group[0].notebook)
    result = run_group(group, places, _slots_of(worker), stop, digests["code"])
    if stop() and not all(result.records):
        raise Reschedule  # not the run's fault: another worker takes it, if it is wanted
    return result


def _slots_of(worker: Any) -> Slots:
    """The slots of a worker in this process, one per thread."""
    from dask.system import CPU_COUNT

    with _slots_are_made:
        if worker.address not in _slots:
            _slots[worker.address] = Slots(
                worker.state.nthreads,
                cores=CPU_COUNT,
                servers=can_fork(),
                idle_seconds=IDLE_SECONDS,
            )
        return _slots[worker.address]


def _is_unwanted(worker: Any, task_key: Any) -> bool:
    """Whether nobody waits for a task any more (Ctrl-C, the sweep killed), or the worker is
    closing.

    It closes when the scheduler is gone. dask cannot interrupt a thread, but takes note of it in
    the task's state.
    """
    task = worker.state.tasks.get(task_key)
    is_closing = worker.status.name in ("closing", "closed", "failed")
    return task is None or task.state == "cancelled" or is_closing
