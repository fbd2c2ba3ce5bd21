"""A function called in a process of its own, which gets its share of the machine and ends with ours.

On Linux such processes are forks of one that has imported everything (``multiprocessing``'s
*forkserver*). Elsewhere, and where a GPU is, as CUDA survives no fork, they are new ones.
"""

import multiprocessing
import os
import queue
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from fednb import PACKAGE

POLL_SECONDS = 0.2  # how often is asked whether a process shall end
CAN_FORK = sys.platform.startswith("linux")

# What the cells of runs import, slowly. None of it starts a thread or touches a GPU.
PRELOADED = [
    "fednb_lab.engine",
    "fednb_lab.pool",
    "fednb.run",
    "fednb.plots",
    "fednb.prototypes",
    "sklearn.datasets",
    "torch._dynamo",  # the first step of an optimizer imports it
]

Stop = Callable[[], bool]  # whether a process shall end, as nobody waits for it any more


class Slots:
    """Numbers from 0, each lent to one process at a time: which share of the machine it gets.

    They share the GPUs, or ``cores``: by default the machine's.
    """

    def __init__(self, count: int, cores: int | None = None) -> None:
        self.count = count
        self.cores = cores or os.cpu_count() or 1
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

    def environment(self, slot: int) -> dict[str, str]:
        """The variables of a process in a slot: its share of the machine, and this very package.

        The share is a GPU if there is one, else as many workers as there are cores for it, unless
        ``FEDNB_WORKERS`` is set.
        """
        env = dict(os.environ)
        package_paths = [str(PACKAGE.parent), env.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(filter(None, package_paths))
        gpus = visible_gpus()
        if gpus:  # where a process uses one stream, and has nothing to do with the number of cores
            env["CUDA_VISIBLE_DEVICES"] = gpus[slot % len(gpus)]
        else:
            env.setdefault("FEDNB_WORKERS", str(max(1, self.cores // self.count)))
        return env


def visible_gpus() -> list[str]:
    """The GPUs that we may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    import torch  # slow to import

    count = torch.cuda.device_count()
    if not count:
        return []
    named = re.findall(r"[^\s,]+", os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    return named or [str(number) for number in range(count)]


def can_fork() -> bool:
    """Whether processes are forks of one: on Linux without a GPU."""
    return CAN_FORK and not visible_gpus()


def call(
    function: Callable[..., None],
    *arguments: Any,
    environment: Mapping[str, str],
    log: Path,
    stop: Stop,
) -> str:
    """Call a function in a new process, whose output goes to the end of a log.

    Returns why it has failed, in one line: the last one of the log; "" if it has not. The process
    ends when ``stop`` says yes, and when this one ends, however that may be.
    """
    context: Any = multiprocessing.get_context("forkserver" if can_fork() else "spawn")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=_call, args=(function, arguments, environment, log))
    with _ONE_AT_A_TIME:
        _start(process)
    while not wait([process.sentinel], POLL_SECONDS):
        if stop():
            process.kill()
    with _ONE_AT_A_TIME:
        process.join()
    if process.exitcode < 0:
        return f"{signal.Signals(-process.exitcode).name} has ended its process."
    if process.exitcode == 0:
        return ""
    if process.exitcode == _LOST:
        return "the process that starts all others was ended."
    lines = log.read_text("utf-8", "replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else f"status {process.exitcode}."


_LOST = 255  # the status of a fork whose server is gone

# Each start asks which processes have ended; who asks at the same time may miss how.
_ONE_AT_A_TIME = threading.Lock()


def _start(process: Any) -> None:
    """Start a process, and first the server that forks it, if it does not run."""
    with suppress(AssertionError):  # dask's nanny forbids its workers to have processes
        multiprocessing.current_process().daemon = False
    # no modules of the folder where one works, and figures that nobody sees
    with variables({"PYTHONSAFEPATH": "1", "MPLBACKEND": "agg"}):
        try:
            process.start()
        except (EOFError, ConnectionError):  # a server that has just been killed still seemed alive
            process.start()


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process's environment for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def leave_ctrl_c_to_others() -> None:
    """Let this thread, and the processes that it starts, have nothing to do with Ctrl-C."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _call(
    function: Callable[..., None],
    arguments: tuple[Any, ...],
    environment: Mapping[str, str],
    log: Path,
) -> None:
    """Call a function in this process, which is new, and end it."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.clear()
    os.environ.update(environment)
    if CAN_FORK:  # what a run makes itself is as in a notebook, with no semaphores that outlive it
        multiprocessing.set_start_method("fork", force=True)
    status = 0
    try:
        function(*arguments)
    except BaseException as error:
        status = 1
        sys.stdout.flush()  # the traceback, before the last line
        print(in_one_line(error), file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # what the server wants done at its end is not the fork's


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class CellError(Exception):
    """An error in a notebook's cell, in one line; its traceback has been printed."""


def in_one_line(error: BaseException) -> str:
    """An error in one line; that of the cell, if it is one's."""
    text = str(error) if isinstance(error, CellError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())
