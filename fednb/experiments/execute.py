"""Making runs, here or on a dask cluster: each in a process of its own, papermill on the cells that it needs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tqdm import tqdm

from fednb import ROOT, papers
from fednb.experiments import ledger

if TYPE_CHECKING:
    from nbformat import NotebookNode

TAGS = ("setup", "parameters", "export", "run")
RESULTS = ("finished", "diverged")  # of a run that need not be made again: one that diverged is a result
CONNECT_SECONDS = 10
_lock, _taken = threading.Lock(), set()  # the slots of this process


class ClusterError(Exception):
    """A dask cluster that cannot be used; the message says why."""


class Outcome(NamedTuple):
    """What became of a run: its record, or in one line what went wrong; and its log."""

    record: dict[str, Any] | None
    error: str | None = None
    log: str = ""


def logs_folder() -> Path:
    """Where the output notebook and the log of each run go."""
    return ledger.runs_folder().absolute().parent / "logs"


def log_of(record: Path) -> Path:
    """The log of the run with this record."""
    return logs_folder() / f"{record.stem}.log"


def environment(slot: int = 0, jobs: int = 1, cores: int | None = None) -> dict[str, str]:
    """The environment of a run in one of ``jobs`` slots: its share of the cores, its GPU, and this very package."""
    import torch

    env = os.environ | {"FEDNB_RUNS": str(ledger.runs_folder()), "FEDNB_PROGRESS": "log"}
    for name in ("FEDNB_DATA", "FEDNB_CACHE", "FEDNB_NOTEBOOKS", "FEDNB_RUNS"):  # a notebook is run in its own folder
        if env.get(name):
            env[name] = str(Path(env[name]).expanduser().absolute())
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
    if count := torch.cuda.device_count():
        listed = [name.strip() for name in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
        devices = listed[:count] or [str(i) for i in range(count)]
        env["CUDA_VISIBLE_DEVICES"] = devices[slot % len(devices)]
    else:  # a GPU's streams are another matter than cores
        env.setdefault("FEDNB_WORKERS", str(max(1, (cores or os.cpu_count() or 1) // jobs)))
    return env


def make(
    notebook: str,
    parameters: Mapping[str, Any],
    name: str,
    attempts: int = 2,
    *,
    jobs: int = 1,
    cores: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    echo: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Make a run in a process of its own, unless it is recorded here; if it fails, try again, so many times in all.

    Parameters
    ----------
    name
        The file name of its record.
    jobs, cores
        How many runs share how many cores; by default all.
    stop
        Asked five times a second; the run is ended when it says yes.
    echo
        Called with each line of the log as it is written.
    """
    path, file = ledger.runs_folder() / name, papers.path(notebook).absolute()
    log, error, attempt = log_of(path), "it was stopped.", 0
    order = {"notebook": str(file), "output": str(log.with_suffix(".ipynb"))}
    order["parameters"] = papers.arrange(notebook, parameters)
    with _slot() as slot:
        env = environment(slot, jobs, cores)
        if Path(notebook).suffix == ".ipynb":  # it may have a namesake
            env["FEDNB_NOTEBOOKS"] = str(file.parent)
        while not (done := _recorded(path)) and attempt < attempts and not stop():
            error = _execute(order, log, env, stop, echo, again=attempt > 0) or f"it ended without its record {name}."
            attempt += 1
    return Outcome(ledger.read(path) if done else None, None if done else error, _text(log))


def _recorded(path: Path) -> bool:
    return path.exists() and ledger.state(ledger.read(path)) in RESULTS


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


@contextlib.contextmanager
def _slot() -> Iterator[int]:
    """The smallest number that no other run of this process has."""
    with _lock:
        slot = min(set(range(len(_taken) + 1)) - _taken)
        _taken.add(slot)
    try:
        yield slot
    finally:
        _taken.remove(slot)


def _execute(
    order: Any, log: Path, env: Mapping[str, str], stop: Callable[[], bool], echo: Callable[[str], None], *, again: bool
) -> str | None:
    """One try; what went wrong, if anything."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab" if again else "wb") as out, log.open(encoding="utf-8", errors="replace") as lines:
        lines.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],  # -P: not the package of the folder where one works
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,  # Ctrl-C in a terminal is for the sweep, which ends its runs itself
        )
        try:
            with contextlib.suppress(BrokenPipeError):  # it ended at once: the log says why
                process.stdin.write(f"{json.dumps(order)}\n".encode())
                process.stdin.flush()
            while process.poll() is None and not stop():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=0.2)
                for line in lines:
                    echo(line.rstrip("\n"))
        finally:
            with contextlib.suppress(OSError):
                process.stdin.close()  # its process ends, and its kernel
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    if process.returncode == 0:
        return None
    if shutil.disk_usage(log.parent).free < 1 << 20:
        return f"the disk of {log.parent} is full."
    told = [line.strip() for line in _text(log).splitlines() if line.strip()]
    return told[-1] if told and process.returncode > 0 else f"its process ended with status {process.returncode}."


# --- a dask cluster ---------------------------------------------------------------------------------------------------


class Cluster:
    """The dask cluster whose scheduler is at an address, as a context.

    Leaving it, by Ctrl-C too, cancels what is queued; a run that is not wanted any more ends itself.
    """

    def __init__(self, address: str) -> None:
        self.address, self._resources, self._waiting, self._pool = address, {}, False, None

    def __enter__(self) -> Cluster:
        import asyncio

        try:
            import dask
            from distributed import Client
            from distributed.core import rpc
        except ImportError as error:
            raise ClusterError('A sweep on a cluster needs dask: pip install -e ".[cluster]".') from error
        for name in logging.root.manager.loggerDict:  # a lost connection is told in a sentence
            if name.partition(".")[0] in ("distributed", "asyncio", "tornado"):
                logging.getLogger(name).setLevel(logging.CRITICAL)
        dask.config.set({"distributed.comm.timeouts.connect": CONNECT_SECONDS})

        async def ask() -> None:
            async with rpc(self.address, timeout=CONNECT_SECONDS) as scheduler:
                await scheduler.identity()

        try:  # first by hand: dask waits without end for a server that accepts and then says nothing
            asyncio.run(asyncio.wait_for(ask(), CONNECT_SECONDS + 2))
            self._client = Client(self.address, timeout=CONNECT_SECONDS, set_as_default=False)
        except Exception as error:  # of many kinds: an address that makes no sense, a server that is not dask
            way_out = "start one with `dask scheduler`, which prints its address, or see whether a firewall is in the way."
            raise ClusterError(f"No dask scheduler answers at {self.address} ({_line(error)}): {way_out}") from error
        try:
            while not (found := self.workers()):
                time.sleep(0.5)
        except BaseException:
            self._client.close()
            raise
        self._resources = {"GPU": 1} if any(offer.get("GPU") for offer in found) else {}
        self._pool = self._client.get_executor(pure=False, resources=self._resources or None)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def submit(self, *order: Any) -> Future[Outcome]:
        """`make_there` on any worker."""
        return self._pool.submit(make_there, *order)

    def outcome(self, future: Future[Outcome]) -> Outcome:
        """What became of a run; a `ClusterError` if nobody knows any more."""
        try:
            return future.result()
        except CancelledError as error:
            raise self._lost(error) from error
        except Exception as error:
            if type(error).__name__ != "KilledWorker":
                return Outcome(None, _line(error))
            told = f"{error.allowed_failures + 1} workers died with it, the last at {error.last_worker.address}"
            return Outcome(None, f"{told}: the same command tries again, from its checkpoint if the results are shared.")

    def workers(self) -> list[dict[str, float]]:
        """What each worker that could take a run offers; if there is none, it is said once."""
        try:
            known = self._client.sync(self._client.scheduler.identity)["workers"].values()
        except OSError as error:
            if self._pool:  # if it is more than a moment's, the futures are cancelled
                return []
            raise self._lost(error) from error
        found = [worker["resources"] for worker in known if worker["resources"].keys() >= self._resources.keys()]
        if not found and not self._waiting:
            kind = " with a GPU" if self._resources else ""
            way_out = f"waiting for one (start it with `dask worker {self.address}`)."
            tqdm.write(f"No worker{kind} is connected to {self.address}; {way_out}", file=sys.stderr)
        self._waiting = not found
        return found

    def _lost(self, error: BaseException) -> ClusterError:
        way_out = "see that it runs; the same command then goes on where this one ended."
        return ClusterError(f"The connection to the scheduler at {self.address} was lost ({_line(error)}): {way_out}")


def _line(error: BaseException) -> str:
    """An error in one line; that of the cell, if it is papermill's."""
    cell = f"cell [{error.exec_count}]: {error.ename}: {error.evalue}" if hasattr(error, "ename") else ""
    return " ".join((cell or f"{type(error).__name__}: {error}").split())


def code() -> tuple[str, str | None]:
    """Which code makes runs here now: a digest of package and notebooks, and the commit."""
    ledger.commit.cache_clear()  # a worker lives long
    sources = [file.read_text(encoding="utf-8") for file in sorted((ROOT / "fednb").rglob("*.py"))]
    sources += [cell for file in papers.notebooks() for cell in papers.cells(file, "code")]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest(), ledger.commit()


def make_there(own: tuple[str, str | None], dataset: str, fingerprint: str, *order: Any) -> Outcome:
    """`make` on this worker, if code and data are the sweep's own."""
    from dask.system import CPU_COUNT
    from distributed import Reschedule, get_worker
    from distributed.core import Status

    from fednb import data

    worker, here = get_worker(), code()
    key, where = worker.get_current_task(), f"the worker {worker.address} on {socket.gethostname()}"
    if here[0] != own[0]:
        way_out = "make fednb and notebooks there the same, restart the worker, and call the sweep again."
        return Outcome(None, f"{where} has other code (commit {here[1]}) than the sweep (commit {own[1]}): {way_out}")
    try:
        if data.load(dataset).fingerprint != fingerprint:
            return Outcome(None, f"{where} has other data than the sweep: put the same files of {dataset} there.")
    except data.DataError as error:
        return Outcome(None, f"{where} lacks data: {error}")

    def stop() -> bool:
        # Nobody waits for the run any more (Ctrl-C, the sweep killed), or this worker is closing (so it does when the
        # scheduler is gone). dask cannot interrupt a thread, but takes note of it in the task's state.
        task = worker.state.tasks.get(key)
        wanted = task is not None and task.state != "cancelled"
        return not wanted or worker.status in (Status.closing, Status.closed, Status.failed)

    outcome = make(*order, jobs=worker.state.nthreads, cores=CPU_COUNT, stop=stop)
    if outcome.error and stop():
        raise Reschedule  # not the run's fault: another worker takes it, if it is wanted
    return outcome


# --- papermill --------------------------------------------------------------------------------------------------------


def reduced(notebook: str) -> NotebookNode:
    """What a run executes of a notebook: its code cells tagged setup, parameters, export or run, without outputs."""
    import nbformat

    nb = nbformat.read(papers.path(notebook), as_version=4)
    nb.cells = [cell for cell in nb.cells if cell.cell_type == "code" and set(TAGS) & set(cell.metadata.get("tags", []))]
    for cell in nb.cells:
        cell.outputs, cell.execution_count = [], None
        # of a course's hand-out too: there a tag leaves out what its checks do not need, the run among it
        cell.metadata["tags"] = [tag for tag in cell.metadata["tags"] if tag != "skip-execution"]
    return nb


def _papermill(notebook: Any, output: Any, parameters: Mapping[str, Any], folder: Path, **options: Any) -> None:
    import papermill

    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # a kernel of this environment, whatever the user has called python3
    options |= {"kernel_name": "python3", "language": "python", "cwd": folder}
    # the kernel's own remarks (on how it is connected, say) are none of the reader's business
    papermill.execute_notebook(notebook, output, parameters, extra_arguments=["--Application.log_level=40"], **options)


def execute_all(notebooks: Sequence[Path], out: Path, parameters: Mapping[str, Any] | None = None) -> list[str]:
    """Execute whole notebooks one after the other, say how each ended, and go on after one that fails.

    Parameters
    ----------
    out
        Folder for the executed copies, in ``notebooks``, and the records of their runs, in ``runs``.
    parameters
        What differs from the notebooks' defaults.

    Returns
    -------
    list of str
        The names of those that failed.
    """
    from unittest.mock import patch

    copies, failed = out.absolute() / "notebooks", []
    copies.mkdir(parents=True, exist_ok=True)
    bar = {"leave": False} if sys.stderr.isatty() else False
    with patch.dict(os.environ, {"FEDNB_RUNS": str(out.absolute() / "runs"), "FEDNB_PROGRESS": "off"}):
        for number, notebook in enumerate(notebooks, 1):
            begin = time.monotonic()
            print(f"[{number}/{len(notebooks)}] {notebook.stem:<18}", end=" ", flush=True)
            told = "done"
            try:
                _papermill(notebook, copies / notebook.name, parameters or {}, notebook.parent, progress_bar=bar)
            except Exception as error:  # a cell, a kernel that died, a full disk: the next notebook may fare better
                failed.append(notebook.stem)
                told = f"FAILED in {_line(error)}"
            print(f"{time.monotonic() - begin:4.0f} s  {told}", flush=True)
    print(f"The executed notebooks are in {copies}")
    return failed


def _end_with_the_sweep() -> None:
    """Standard input stays open as long as the sweep lives: however it ends, the run and its kernel end too."""
    import psutil

    os.read(0, 1)  # not sys.stdin.read(), whose lock would be in the way at exit
    for process in psutil.Process().children(recursive=True):
        process.kill()
    os._exit(1)


if __name__ == "__main__":  # the process of a run
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_sweep, daemon=True).start()
    options = {"progress_bar": False, "stdout_file": sys.stdout, "stderr_file": sys.stdout, "shutdown_kernel": "immediate"}
    try:
        nb, folder = reduced(order["notebook"]), Path(order["notebook"]).parent
        _papermill(nb, order["output"], order["parameters"], folder, **options)
    except Exception as error:
        print(error)  # with its traceback, if it is a cell's
        sys.exit(_line(error))
