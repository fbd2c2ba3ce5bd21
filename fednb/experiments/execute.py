"""Making runs, here or on a dask cluster: each in a process of its own, papermill on the cells that it needs."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
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
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tqdm import tqdm

from fednb import ROOT, papers
from fednb.experiments import ledger

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from fednb.experiments.sweep import Job

TAGS = ("setup", "parameters", "export", "run")
CONNECT_SECONDS = 10
_slots, _thread = itertools.count(), threading.local()  # each thread that makes runs has a number


class ClusterError(Exception):
    """A dask cluster that cannot be used; the message says why."""


class Outcome(NamedTuple):
    """What became of a run: its record, or in one line what went wrong; and its log."""

    record: dict[str, Any] | None
    error: str | None = None
    log: str = ""


def log_of(record: Path) -> Path:
    """The log of the run with this record."""
    return record.absolute().parent.parent / "logs" / f"{record.stem}.log"


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
    name: str,  # of its record's file
    attempts: int = 2,
    *,
    jobs: int = 1,
    cores: int | None = None,
    seeds: Sequence[int] = (),
    stop: Callable[[], bool] = lambda: False,
    echo: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Make a run in a process of its own, unless it is recorded here; if it fails, try again, ``attempts`` times in all.

    It is one of so many ``jobs`` on the ``cores``, by default all. ``stop`` is asked five times a second: the run is ended
    when it says yes. ``echo`` is called with each line of the log as it is written. With ``seeds`` a GPU makes all of them
    at once, and records them: who asks for another one finds it done.
    """
    record, error = ledger.runs_folder() / name, "it was stopped."
    file, log = papers.path(notebook).absolute(), log_of(record)
    order = {"notebook": str(file), "output": str(log.with_suffix(".ipynb"))}
    order["parameters"] = papers.arrange(notebook, parameters)
    log.parent.mkdir(parents=True, exist_ok=True)
    if not hasattr(_thread, "slot"):
        _thread.slot = next(_slots)
    env = environment(_thread.slot, jobs, cores)
    if len(seeds) > 1:
        env["FEDNB_SEEDS"] = ",".join(map(str, seeds))
    if Path(notebook).suffix == ".ipynb":  # it may have a namesake
        env["FEDNB_NOTEBOOKS"] = str(file.parent)
    for mode in ["wb", *["ab"] * (attempts - 1)]:
        if not _recorded(record) and not stop():
            error = _process(order, env, log, mode, stop, echo) or f"it ended without its record {name}."
    return Outcome(ledger.read(record), None, _text(log)) if _recorded(record) else Outcome(None, error, _text(log))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _recorded(path: Path) -> bool:
    return path.exists() and ledger.state(ledger.read(path)) in ledger.RESULTS


def _process(
    order: Any, env: Mapping[str, str], log: Path, mode: str, stop: Callable[[], bool], echo: Callable[[str], None]
) -> str | None:
    """Make a run once; what went wrong, if anything."""
    with log.open(mode) as out, log.open(encoding="utf-8", errors="replace") as lines:
        lines.seek(0, os.SEEK_END)
        command = [sys.executable, "-P", "-m", __name__]  # -P: not the package of the folder where one works
        # Ctrl-C in a terminal is for the sweep, which ends its runs itself: hence a session
        options = {"stdout": out, "stderr": subprocess.STDOUT, "env": env, "start_new_session": True}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, **options)
        try:
            with suppress(BrokenPipeError):  # it ended at once: the log says why
                process.stdin.write(f"{json.dumps(order)}\n".encode())
                process.stdin.flush()
            while process.poll() is None and not stop():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=0.2)
                for line in lines:
                    echo(line.rstrip("\n"))
        finally:
            with suppress(OSError):
                process.stdin.close()  # the process ends, and its kernel
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            process.kill()
            process.wait()
    if process.returncode == 0:
        return None
    if shutil.disk_usage(log.parent).free < 1 << 20:
        return f"the disk of {log.parent} is full."
    told = [line.strip() for line in _text(log).splitlines() if line.strip()]
    return told[-1] if told and process.returncode > 0 else f"its process ended with status {process.returncode}."


def follow(pending: dict[Future[Outcome], Job]) -> list[tuple[Job, str | None]]:
    """Collect runs as they end, with what went wrong: a live line in a terminal, else a line per run."""
    made, begin, live = [], time.monotonic(), sys.stderr.isatty()
    # smoothing 0: the time left from all finished runs, as short and long ones alternate
    with tqdm(total=len(pending), unit="run", smoothing=0, disable=not live, dynamic_ncols=True) as bar:
        while pending:
            done = wait(list(pending), timeout=1, return_when=FIRST_COMPLETED).done
            while done:
                future = done.pop()
                job = pending.pop(future)
                made.append((job, error := _collect(job, future)))
                del future  # whoever still holds a dask future wants its run made again if that worker dies
                bar.update()
                if not live:
                    left = tqdm.format_interval((time.monotonic() - begin) / len(made) * len(pending))
                    told = (f"failed: {error}" if error else job.status) + (f"; about {left} left" if pending else "")
                    print(f"{len(made)}/{len(made) + len(pending)}  {job.path.stem}  {told}", file=sys.stderr, flush=True)
            bar.refresh()
    return made


def _collect(job: Job, future: Future[Outcome]) -> str | None:
    """What went wrong with a run; what was made in another folder is written here."""
    try:
        outcome = future.result()
    except CancelledError:  # the scheduler is gone
        raise
    except Exception as error:
        return line_of(error)
    if outcome.log != _text(log_of(job.path)):
        ledger.write_atomically(log_of(job.path), outcome.log)
    if outcome.record and not _recorded(job.path):
        ledger.write(job.path, outcome.record)
    return outcome.error


# --- where runs are made ----------------------------------------------------------------------------------------------

Submit = Callable[["Job", int, str], "Future[Outcome]"]  # a run, how often it is tried, and the fingerprint of its data


@contextmanager
def threads(jobs: int) -> Iterator[Submit]:
    """So many runs at once here; leaving it, by Ctrl-C too, ends them."""
    pool, ended = ThreadPoolExecutor(jobs), threading.Event()

    def submit(job: Job, attempts: int, fingerprint: str) -> Future[Outcome]:
        given = {"jobs": jobs, "seeds": job.seeds, "stop": ended.is_set}
        return pool.submit(make, job.notebook, job.parameters, job.path.name, attempts, **given)

    try:
        yield submit
    finally:
        ended.set()
        pool.shutdown(cancel_futures=True)


@contextmanager
def cluster(address: str) -> Iterator[Submit]:
    """The dask cluster whose scheduler is there, or a `ClusterError`; it waits for the first worker.

    Leaving it, by Ctrl-C too, cancels what is queued; a run that is not wanted any more ends itself.
    """
    try:
        from distributed import Client
        from distributed.core import CommClosedError, rpc
    except ImportError as error:
        raise ClusterError('A sweep on a cluster needs dask: pip install -e ".[cluster]".') from error
    for name in logging.root.manager.loggerDict:  # a lost connection is told in a sentence
        if name.partition(".")[0] in ("distributed", "asyncio", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)

    async def ask() -> None:
        async with rpc(address, timeout=CONNECT_SECONDS) as scheduler:
            await scheduler.identity()

    try:  # first by hand: a client waits without end for a server that accepts and then says nothing
        asyncio.run(asyncio.wait_for(ask(), CONNECT_SECONDS + 2))
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except Exception as error:  # of many kinds: an address that makes no sense, a server that is not dask
        way_out = "start one with `dask scheduler`, which prints its address, or see whether a firewall is in the way."
        raise ClusterError(f"No dask scheduler answers at {address} ({line_of(error)}): {way_out}") from error
    with client:
        try:
            if not client.scheduler_info()["workers"]:
                told = f"No worker is connected to {address}; waiting for one (start it with `dask worker {address}`)."
                print(told, file=sys.stderr, flush=True)
                client.wait_for_workers(1)
            offers = [worker["resources"] for worker in client.scheduler_info()["workers"].values()]
            pool = client.get_executor(pure=False, resources={"GPU": 1} if any(o.get("GPU") for o in offers) else None)
            own = code()

            def submit(job: Job, attempts: int, fingerprint: str) -> Future[Outcome]:
                order = (job.notebook, job.parameters, job.path.name, attempts)
                return pool.submit(make_there, own, job.settings.dataset, fingerprint, *order)

            yield submit
        except (CancelledError, CommClosedError) as error:
            way_out = "see that it runs; the same command then goes on where this one ended."
            raise ClusterError(f"The connection to the scheduler at {address} was lost: {way_out}") from error


def line_of(error: BaseException) -> str:
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
    papermill.execute_notebook(notebook, output, parameters, extra_arguments=["--Application.log_level=50"], **options)


def execute_all(notebooks: Sequence[Path], out: Path, parameters: Mapping[str, Any] | None = None) -> list[str]:
    """Execute whole notebooks one after the other, say how each ended, and go on after one that fails.

    Executed copies go into ``out/notebooks``, records into ``out/runs``. Returns the names of those that failed.
    """
    from unittest.mock import patch

    copies, failed = out.absolute() / "notebooks", []
    copies.mkdir(parents=True, exist_ok=True)
    bar = {"leave": False} if sys.stderr.isatty() else False
    with patch.dict(os.environ, {"FEDNB_RUNS": str(out.absolute() / "runs"), "FEDNB_PROGRESS": "off"}):
        for number, notebook in enumerate(notebooks, 1):
            begin, told = time.monotonic(), "done"
            print(f"[{number}/{len(notebooks)}] {notebook.stem:<18}", end=" ", flush=True)
            try:
                _papermill(notebook, copies / notebook.name, parameters or {}, notebook.parent, progress_bar=bar)
            except Exception as error:  # a cell, a kernel that died, a full disk: the next notebook may fare better
                failed.append(notebook.stem)
                told = f"FAILED in {line_of(error)}"
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
        sys.exit(line_of(error))
