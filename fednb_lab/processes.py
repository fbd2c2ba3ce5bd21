"""A function called in a process of its own, which ends with ours.

Each call has a standard executor of one process: where a process is killed, an executor gives up
all calls that it has, and these have nothing to do with one another. On Linux such processes are
forks of one that has imported everything (``multiprocessing``'s *forkserver*). Elsewhere, and where
a GPU is, as CUDA survives no fork, they are new ones.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

RETRIES = 50  # at starting a process
CAN_FORK = sys.platform.startswith("linux")
if CAN_FORK:
    from multiprocessing import forkserver

# What the cells of runs import, slowly. None of it starts a thread or touches a GPU.
PRELOADED = [
    "fednb_lab.engine",
    "fednb_lab.pool",
    "fednb.run",
    "fednb.plots",
    "fednb.prototypes",
    "torch._dynamo",  # the first step of an optimizer imports it
]
# No modules of the folder where one works, and figures that nobody sees.
_AT_START = {"PYTHONSAFEPATH": "1", "MPLBACKEND": "agg"}

Call = Callable[..., Future[str]]  # of a function, its arguments, an environment and a log


@contextmanager
def own_processes() -> Iterator[Call]:
    """Yield what calls a function in a new process.

    It is ``call(function, *arguments, environment=..., log=...)``. The output goes to the end of
    the log. The future holds why the function has failed, in one line, or ""; or a
    ``BrokenProcessPool`` if the process was killed. All processes end when the context is left, and
    when this process ends, however that may be.
    """
    context: Any = multiprocessing.get_context("forkserver" if can_fork() else "spawn")
    context.set_forkserver_preload(PRELOADED)
    if can_fork() and threading.current_thread() is threading.main_thread():
        _start_server()
    with suppress(AssertionError):  # dask's nanny forbids its workers to have processes
        multiprocessing.current_process().daemon = False
    theirs, ours = context.Pipe(duplex=False)  # whose end tells them of ours

    def start(*task: Any) -> Future[str]:
        executor = ProcessPoolExecutor(1, context, _begin, (theirs,))
        future = executor.submit(_call, *task)
        executor.shutdown(wait=False)  # the process ends after this one call
        return future

    def call(
        function: Callable[..., None], *arguments: Any, environment: Mapping[str, str], log: Path
    ) -> Future[str]:
        task = (function, arguments, dict(environment), log)
        with variables(_AT_START):
            for _ in range(RETRIES):
                with suppress(EOFError, ConnectionError):
                    return start(*task)
                time.sleep(0.1)  # the server was killed, and still seems alive
            return start(*task)

    try:
        yield call
    except KeyboardInterrupt:
        _kill_server()
        raise
    finally:
        ours.close()
        theirs.close()


def _start_server() -> None:
    """Start the server of forks, which Ctrl-C in a terminal reaches, too: it leaves that to us."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # what a new process inherits
    try:
        with variables(_AT_START):
            forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, handler)


def _kill_server() -> None:
    """Let no process begin any more: it would find nothing, and print that after we have ended."""
    server = getattr(forkserver._forkserver, "_forkserver_pid", None)  # type: ignore[attr-defined]
    if server:
        with suppress(ProcessLookupError):
            os.kill(server, signal.SIGKILL)


def can_fork() -> bool:
    """Tell whether processes are forks of one: on Linux without a GPU."""
    return CAN_FORK and not visible_gpus()


def visible_gpus() -> list[str]:
    """List the GPUs that we may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    import torch  # slow to import

    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").replace(",", " ").split()
    return (named or [str(number) for number in range(count)]) if count else []


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set these variables of the environment, and no others, for a while: threads share it."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


class CellError(Exception):
    """An error in a notebook's cell, in one line; its traceback has been printed."""


def in_one_line(error: BaseException) -> str:
    """Write an error in one line; of a `CellError` only what it says."""
    if isinstance(error, BrokenProcessPool):
        return "its process was killed (had it too little memory?)"
    text = str(error) if isinstance(error, CellError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


# ---- in the process


def _begin(alive: Connection) -> None:
    """Leave Ctrl-C to the process that has started this one, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(alive,), daemon=True).start()


def _exit_with_parent(alive: Connection) -> None:
    with suppress(EOFError, OSError):
        alive.recv_bytes()  # nobody writes: this ends when the other end is closed
    os._exit(1)


def _call(
    function: Callable[..., None],
    arguments: tuple[Any, ...],
    environment: Mapping[str, str],
    log: Path,
) -> str:
    """Call a function in this process, which is new; returns why it has failed, or ""."""
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.clear()
    os.environ.update(environment)
    if CAN_FORK:  # what a run makes itself is as in a notebook, with no semaphores that outlive it
        multiprocessing.set_start_method("fork", force=True)
    error = ""
    try:
        function(*arguments)
    except BaseException as raised:  # `sys.exit` in a cell, too
        error = in_one_line(raised)
        sys.stdout.flush()  # what the run has printed stands above its error
        if not isinstance(raised, CellError):
            traceback.print_exc()
        print(error, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    return error
