"""Making runs: papermill on the cells that a run needs, in processes of their own, here or on a dask cluster."""

import asyncio
import functools
import hashlib
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import TYPE_CHECKING, Any, NamedTuple

from tqdm import tqdm

from fednb import PACKAGE, data, papers
from fednb.experiments import ledger
from fednb.places import Places

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from fednb.experiments.sweep import Job

TAGS = {"setup", "parameters", "export", "run"}
CONNECT_SECONDS = 10


def reduced(notebook: str) -> "NotebookNode":
    """What a run executes of a notebook: its code cells tagged setup, parameters, export or run, without outputs."""
    import nbformat

    nb = nbformat.read(papers.path(notebook), as_version=4)
    nb.cells = [
        cell
        for cell in nb.cells
        if cell.cell_type == "code" and TAGS & set(cell.metadata.get("tags", []))
    ]
    for cell in nb.cells:
        cell.outputs, cell.execution_count = [], None
        # of a course's hand-out too: there a tag leaves out what its checks do not need, the run among it
        cell.metadata["tags"] = [tag for tag in cell.metadata["tags"] if tag != "skip-execution"]
    return nb


def run(notebook: str, parameters: Mapping[str, Any]) -> str | None:
    """Execute what a run needs of a notebook, and print what its cells print; in one line what went wrong, if anything."""
    file = papers.path(notebook)
    if notebook.endswith(".ipynb"):  # it may have a namesake
        os.environ["FEDNB_NOTEBOOKS"] = str(file.parent)
    options = {
        "progress_bar": False,
        "stdout_file": sys.stdout,
        "stderr_file": sys.stdout,
        "shutdown_kernel": "immediate",
    }
    try:
        _papermill(
            reduced(notebook), None, papers.arrange(notebook, parameters), file.parent, **options
        )
    except Exception as error:
        print(error)  # with its traceback, if it is a cell's
        return line_of(error)
    return None


def execute_all(notebooks: Sequence[Path], out: Path, parameters: Mapping[str, Any]) -> list[str]:
    """Execute notebooks into ``out/notebooks``, with records in ``out/runs``; the names of those that failed."""
    copies, failed = out.absolute() / "notebooks", []
    copies.mkdir(parents=True, exist_ok=True)
    os.environ |= {"FEDNB_RUNS": str(out.absolute() / "runs"), "FEDNB_PROGRESS": "off"}
    bar = {"leave": False} if sys.stderr.isatty() else False
    for number, notebook in enumerate(notebooks, 1):
        begin, told = time.monotonic(), "done"
        print(f"[{number}/{len(notebooks)}] {notebook.stem:<18}", end=" ", flush=True)
        try:
            _papermill(
                notebook, copies / notebook.name, parameters, notebook.parent, progress_bar=bar
            )
        except (
            Exception
        ) as error:  # a cell, a kernel that died, a full disk: the next notebook may fare better
            failed.append(notebook.stem)
            told = f"FAILED in {line_of(error)}"
        print(f"{time.monotonic() - begin:4.0f} s  {told}", flush=True)
    print(f"The executed notebooks are in {copies}")
    return failed


def _papermill(
    notebook: Any, output: Path | None, parameters: Mapping[str, Any], folder: Path, **options: Any
) -> None:
    os.environ["JUPYTER_PREFER_ENV_PATH"] = (
        "1"  # a kernel of this environment, whatever the user has called python3
    )
    import papermill  # slow to import

    options |= {"kernel_name": "python3", "language": "python", "cwd": folder}
    options["extra_arguments"] = ["--Application.log_level=50"]  # without the kernel's own remarks
    papermill.execute_notebook(notebook, output, dict(parameters), **options)


def line_of(error: BaseException) -> str:
    """An error in one line; that of the cell, if it is papermill's."""
    cell = (
        f"cell [{error.exec_count}]: {error.ename}: {error.evalue}"
        if hasattr(error, "ename")
        else ""
    )
    return " ".join((cell or f"{type(error).__name__}: {error}").split())


class Made(NamedTuple):
    """What became of runs: in one line why a record is missing, if so; the records that there are now; and the log."""

    error: str = "it was stopped."
    records: Sequence[Mapping[str, Any] | None] = ()
    log: str = ""


Group = Sequence["Job"]
Submit = Callable[[Group], Future[Made]]


def make(
    group: Group,
    *,
    jobs: int = 1,
    cores: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Made:
    """Make the runs of a group in one process, one of ``jobs`` on the ``cores``; it is ended when ``stop`` says yes."""
    paths, error, text = [ledger.runs_folder() / job.path.name for job in group], Made().error, ""
    slot = re.search(r"\d*$", threading.current_thread().name)[0]  # pools number their threads
    log, env = log_of(paths[0]), environment(int(slot or 0), jobs, cores)
    log.parent.mkdir(parents=True, exist_ok=True)
    for mode in ("wb", "ab"):  # a run that fails is tried twice
        todo = [job for job, path in zip(group, paths, strict=True) if not ledger.recorded(path)]
        if not todo or stop():
            break
        if len(todo) > 1:
            env["FEDNB_SEEDS"] = ",".join(str(job.settings.seed) for job in todo)
        # -P: not the package of the folder where one works. Ctrl-C in a terminal is for the sweep: hence a session.
        order = [
            sys.executable,
            "-P",
            "-m",
            __name__,
            todo[0].notebook,
            json.dumps(todo[0].parameters),
        ]
        options = {"env": env, "start_new_session": True}
        with (
            log.open(mode) as out,
            subprocess.Popen(order, stdin=PIPE, stdout=out, stderr=STDOUT, **options) as process,
        ):
            while process.poll() is None and not stop():
                time.sleep(0.2)
        text, error = (
            log.read_text("utf-8", "replace"),
            f"status {process.returncode}, and no {paths[0].name}.",
        )
        if shutil.disk_usage(log.parent).free < 1 << 20:
            error = f"the disk of {log.parent} is full."
        elif process.returncode > 0 and text.strip():
            error = text.strip().splitlines()[-1]
    return Made(error, [ledger.recorded(path) for path in paths], text)


def log_of(record: Path) -> Path:
    """The log of the run with this record."""
    return record.absolute().parent.parent / "logs" / f"{record.stem}.log"


def environment(slot: int = 0, jobs: int = 1, cores: int | None = None) -> dict[str, str]:
    """The environment of a run in one of ``jobs`` slots: its share of the cores, its GPU, and this very package."""
    import torch

    places = Places.from_environment()
    env = os.environ | {
        "FEDNB_DATA": str(places.data),
        "FEDNB_CACHE": str(places.cache),
    }
    env |= {
        "FEDNB_NOTEBOOKS": str(papers.folder()),
        "FEDNB_RUNS": str(ledger.runs_folder()),
        "FEDNB_PROGRESS": "log",
    }
    env["PYTHONPATH"] = os.pathsep.join(
        [str(PACKAGE.parent), *filter(None, [env.get("PYTHONPATH")])]
    )
    if count := torch.cuda.device_count():
        gpus = re.findall(r"[^\s,]+", env.get("CUDA_VISIBLE_DEVICES", "")) or [
            str(i) for i in range(count)
        ]
        env["CUDA_VISIBLE_DEVICES"] = gpus[slot % len(gpus)]
    else:  # a GPU's streams are another matter than cores
        env.setdefault("FEDNB_WORKERS", str(max(1, (cores or os.cpu_count() or 1) // jobs)))
    return env


def follow(groups: Collection[Group], submit: Submit) -> list[tuple["Job", str | None]]:
    """Make runs and say what went wrong with each, if anything: a line per run, and in a terminal a bar."""
    pending, made, begin, total = (
        {submit(group): group for group in groups},
        [],
        time.monotonic(),
        sum(map(len, groups)),
    )
    # smoothing 0: the time left from all finished runs, as short and long ones alternate
    with tqdm(
        total=total, unit="run", smoothing=0, dynamic_ncols=True, disable=not sys.stderr.isatty()
    ) as bar:
        while pending:
            done = wait(pending, timeout=1, return_when=FIRST_COMPLETED).done
            while done:
                group = pending.pop(future := done.pop())
                wrong = future.exception()  # a CancelledError is raised if the scheduler is gone
                error, records, log = Made(line_of(wrong)) if wrong else future.result()
                del (
                    future
                )  # whoever still holds a dask future wants its run made again if that worker dies
                for job, record in zip(
                    group, records, strict=False
                ):  # made in another folder perhaps; none by who refuses
                    if record and not ledger.recorded(job.path):
                        ledger.write(job.path, record)
                if log:
                    ledger.write_atomically(log_of(group[0].path), log)
                for job in group:
                    record = ledger.recorded(job.path)
                    made.append((job, None if record else error))
                    left = tqdm.format_interval(
                        (time.monotonic() - begin) / len(made) * (total - len(made))
                    )
                    told = record["status"] if record else f"failed: {error}"
                    bar.write(
                        f"{len(made)}/{total}  {job.path.stem}  {told}; about {left} left",
                        file=sys.stderr,
                    )
                bar.update(len(group))
            bar.refresh()
    return made


@contextmanager
def threads(jobs: int) -> Iterator[Submit]:
    """So many processes at once here; leaving it, by Ctrl-C too, ends them."""
    pool, ended = ThreadPoolExecutor(jobs), threading.Event()
    try:
        yield lambda group: pool.submit(make, group, jobs=jobs, stop=ended.is_set)
    finally:
        ended.set()
        pool.shutdown(cancel_futures=True)


@contextmanager
def cluster(address: str) -> Iterator[Submit]:
    """The dask cluster there, when it has a worker; leaving cancels what waits. A ``ConnectionError`` says what is wrong."""
    try:
        from distributed import Client
        from distributed.core import CommClosedError, connect
    except ImportError as error:
        raise ConnectionError(
            'A sweep on a cluster needs dask: pip install -e ".[cluster]".'
        ) from error
    logging.disable()  # a lost connection is told in a sentence

    async def ask() -> None:
        (await asyncio.wait_for(connect(address, timeout=CONNECT_SECONDS), CONNECT_SECONDS)).abort()

    try:  # first by hand: a client waits without end for a server that accepts and then says nothing
        asyncio.run(ask())
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (
        Exception
    ) as error:  # of many kinds: an address that makes no sense, a server that is not dask
        way_out = "start one with `dask scheduler`, which prints its address, or see whether a firewall is in the way."
        raise ConnectionError(
            f"No dask scheduler answers at {address} ({line_of(error)}): {way_out}"
        ) from error
    with client:
        try:
            if not client.scheduler_info()["workers"]:
                told = f"No worker is connected to {address}; waiting for one (start it with `dask worker {address}`)."
                print(told, file=sys.stderr, flush=True)
                client.wait_for_workers(1)
            offers = [worker["resources"] for worker in client.scheduler_info()["workers"].values()]
            pool = client.get_executor(
                pure=False, resources={"GPU": 1} if any(o.get("GPU") for o in offers) else None
            )
            here = functools.cache(what_is_here)
            yield lambda group: pool.submit(make_there, group, here(group[0].settings.dataset))
        except (CancelledError, CommClosedError) as error:
            way_out = "see that it runs; the same command then goes on where this one ended."
            raise ConnectionError(
                f"The connection to the scheduler at {address} was lost: {way_out}"
            ) from error


def what_is_here(dataset: str) -> dict[str, str]:
    """What must be the same where runs are made: the code of package and notebooks, and the data."""
    files = [file for file in sorted(PACKAGE.rglob("*")) if file.suffix in (".py", ".yaml")]
    sources = [file.read_text(encoding="utf-8") for file in files]
    sources += [cell for file in papers.notebooks() for cell in papers.cells(file, "code")]
    return {
        "code": hashlib.sha256("\0".join(sources).encode()).hexdigest(),
        "data": data.load(dataset).fingerprint,
    }


def make_there(group: Group, asked: Mapping[str, str]) -> Made:
    """`make` on this worker, if code and data are the sweep's own."""
    from dask.system import CPU_COUNT
    from distributed import Reschedule, get_worker

    worker, here = get_worker(), what_is_here(group[0].settings.dataset)
    key, where = worker.get_current_task(), f"the worker {worker.address} on {socket.gethostname()}"
    if differ := " and ".join(name for name in asked if here[name] != asked[name]):
        return Made(
            f"{where} has other {differ} than the sweep: make them the same there, and restart the worker."
        )

    def stop() -> bool:
        # Nobody waits for the run any more (Ctrl-C, the sweep killed), or this worker is closing (so it does when the
        # scheduler is gone). dask cannot interrupt a thread, but takes note of it in the task's state.
        task = worker.state.tasks.get(key)
        return (
            task is None
            or task.state == "cancelled"
            or worker.status.name in ("closing", "closed", "failed")
        )

    made = make(group, jobs=worker.state.nthreads, cores=CPU_COUNT, stop=stop)
    if stop() and not all(made.records):
        raise Reschedule  # not the run's fault: another worker takes it, if it is wanted
    return made


if (
    __name__ == "__main__"
):  # the process of a run: standard input is open as long as somebody waits for it, then it ends
    threading.Thread(target=lambda: os.read(0, 1) or os._exit(1), daemon=True).start()
    sys.exit(run(sys.argv[1], json.loads(sys.argv[2])))
