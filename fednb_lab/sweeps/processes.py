"""Runs in processes of their own on this machine, several at once."""

import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from fednb import PACKAGE
from fednb import records as ledger
from fednb.places import Places
from fednb.records import Record
from fednb_lab.sweeps.server import CAN_FORK, POLL_SECONDS, Server, Stop, start
from fednb_lab.sweeps.table import Job

ATTEMPTS = 2  # at a run that fails
MIN_FREE_BYTES = 1 << 20  # a disk with less is called full
NO_WINDOWS = {"MPLBACKEND": "agg"}  # figures of a run's cells, which nobody sees

Group = Sequence[Job]  # runs that one process makes; they differ in their seeds only


class GroupResult(NamedTuple):
    """What became of a group of runs."""

    error: str  # why a record is missing, in one line, if one is
    records: Sequence[Record | None] = ()  # those that there are now, in the order of the runs
    log: str = ""  # what the process printed


Submit = Callable[[Group], Future[GroupResult]]


class Slots:
    """Numbers from 0, each lent to one process at a time: which share of the machine it gets.

    They share the GPUs, or ``cores``: by default the machine's. With ``servers`` each slot has one,
    so that its runs need not import everything again.
    """

    def __init__(
        self,
        count: int,
        *,
        cores: int | None = None,
        servers: bool = False,
        idle_seconds: float | None = None,
    ) -> None:
        self.count = count
        self.cores = cores
        self.servers = [Server(idle_seconds) for _ in range(count)] if servers else []
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(count):
            self._free.put(number)

    @contextmanager
    def lend(self) -> Iterator[int]:
        """A number that nobody else has until it is given back; waits for one if all are lent."""
        number = self._free.get()
        try:
            yield number
        finally:
            self._free.put(number)

    def close(self) -> None:
        """End the servers."""
        for server in self.servers:
            server.close()


def process_environment(
    places: Places, slot: int = 0, slots: int = 1, cores: int | None = None
) -> dict[str, str]:
    """The environment of a process that executes a notebook, in one of as many ``slots`` of this
    machine.

    It has our own variables, these places, this very package, and its share of the machine: a GPU
    if there is one, else as many workers as there are ``cores`` for it (all of the machine's are
    shared by default), unless ``FEDNB_WORKERS`` is set.
    """
    env = os.environ | places.environment()
    env["FEDNB_PROGRESS"] = "log"
    env["JUPYTER_PREFER_ENV_PATH"] = "1"  # this environment's python3, not what a user calls so
    package_paths = [str(PACKAGE.parent), env.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(filter(None, package_paths))
    gpus = _visible_gpus(env)
    if gpus:  # where a process uses one stream, and has nothing to do with the number of cores
        env["CUDA_VISIBLE_DEVICES"] = gpus[slot % len(gpus)]
    else:
        share = (cores or os.cpu_count() or 1) // slots
        env.setdefault("FEDNB_WORKERS", str(max(1, share)))
    return env


def _visible_gpus(env: Mapping[str, str]) -> list[str]:
    """The GPUs that we may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    import torch  # slow to import

    count = torch.cuda.device_count()
    if not count:
        return []
    named = re.findall(r"[^\s,]+", env.get("CUDA_VISIBLE_DEVICES", ""))
    return named or [str(number) for number in range(count)]


def run_process(env: Mapping[str, str], *arguments: str, output: IO[bytes], stop: Stop) -> int:
    """The exit status of `fednb_lab.sweeps.run_cells` with these arguments, ended when ``stop`` says
    yes; what it prints goes to ``output``.
    """
    with start(env, "run_cells", *arguments, stdout=output, stderr=subprocess.STDOUT) as process:
        while process.poll() is None and not stop():
            time.sleep(POLL_SECONDS)
    return process.returncode


def log_of(record: Path) -> Path:
    """The log of the run with this record."""
    return record.absolute().parent.parent / "logs" / f"{record.stem}.log"


def run_group(
    group: Group, places: Places, slots: Slots, stop: Stop, code: str = ""
) -> GroupResult:
    """Make the runs of a group that are not recorded in these places, in one process.

    A run that fails is tried twice. The process is ended when ``stop`` says yes. ``code`` is a
    digest of the code, where it may change while the slots are there.
    """
    paths = [places.runs / job.path.name for job in group]
    log = log_of(paths[0])
    log.parent.mkdir(parents=True, exist_ok=True)
    error = "it was stopped."
    text = ""
    with slots.lend() as slot:
        env = process_environment(places, slot, slots.count, slots.cores) | NO_WINDOWS
        server = slots.servers[slot] if slots.servers else None
        for attempt in range(ATTEMPTS):
            missing = [job for job in group if not ledger.recorded(places.runs / job.path.name)]
            if not missing or stop():
                break
            if not attempt:
                log.write_bytes(b"")
            status = _run(missing, env | _seeds(missing), log, server, stop, code)
            text = log.read_text("utf-8", "replace")
            error = reason(status, text) if status else "it has left no record."
            if shutil.disk_usage(log.parent).free < MIN_FREE_BYTES:
                error = f"the disk of {log.parent} is full."
    return GroupResult(error, [ledger.recorded(path) for path in paths], text)


def _run(
    group: Group, env: Mapping[str, str], log: Path, server: Server | None, stop: Stop, code: str
) -> int:
    """The exit status of a process that makes these runs, and appends what it prints to the log."""
    notebook, parameters = group[0].notebook, group[0].parameters
    if server is not None:
        return server.run(env, notebook, parameters, log, stop, code)
    with log.open("ab") as output:
        return run_process(env, notebook, json.dumps(parameters), output=output, stop=stop)


def _seeds(group: Group) -> dict[str, str]:
    """What tells a process that it makes runs of several seeds."""
    if len(group) == 1:
        return {}
    return {"FEDNB_SEEDS": ",".join(str(job.settings.seed) for job in group)}


def reason(status: int, output: str) -> str:
    """What went wrong, as the process says; its status, if it says nothing or a signal ended it."""
    lines = output.strip().splitlines()
    return lines[-1] if status > 0 and lines else f"status {status}."


def can_fork() -> bool:
    """Whether runs are forks of one process: on Linux without a GPU: CUDA survives no fork."""
    return CAN_FORK and not _visible_gpus(os.environ)


@contextmanager
def local_pool(jobs: int) -> Iterator[Submit]:
    """As many processes at once on this machine; leaving the context, by Ctrl-C too, ends them."""
    slots = Slots(jobs, servers=can_fork())
    ended = threading.Event()
    pool = ThreadPoolExecutor(jobs)

    def submit(group: Group) -> Future[GroupResult]:
        return pool.submit(run_group, group, group[0].places, slots, ended.is_set)

    try:
        yield submit
    finally:
        ended.set()
        pool.shutdown(cancel_futures=True)
        slots.close()


def run_in_the_foreground(job: Job, *, again: bool = False) -> str | None:
    """Make a run whose output is shown as it comes; what went wrong, in one line."""
    env = process_environment(job.places) | NO_WINDOWS
    if again:
        env["FEDNB_AGAIN"] = "1"
    arguments = (job.notebook, json.dumps(job.parameters))
    with start(env, "run_cells", *arguments, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        messages = process.stderr.read()
    if process.returncode == 0:
        print(messages, end="", file=sys.stderr)
        return None
    return reason(process.returncode, messages)
