"""Runs on a dask cluster, whose scheduler and workers are real and on this machine."""

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import distributed
import psutil
import pytest
from distributed.utils import json_load_robust
from tiny import STOPPED, TABLE, is_alive, rounds, wait_for, write, write_notebook

from fednb import ROOT
from fednb import records as ledger
from fednb_lab import cluster
from fednb_lab.cli import main


class Dask:
    """A scheduler and its workers, which share a folder of results, and have a GPU each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "shared" / "runs"
        self.notebook = write_notebook(folder / "notebooks" / "90_tiny.ipynb")
        self.processes: list[subprocess.Popen] = []  # a scheduler, then its workers
        self.address = ""

    def start(self, *arguments: str) -> None:
        number = str(len(self.processes))
        given = {"FEDNB_RUNS": str(self.runs), "FEDNB_TEST_MARKS": str(self.folder)}
        given |= {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": f"70{number}"}
        given |= {"DASK_DISTRIBUTED__DIAGNOSTICS__NVML": "False"}
        command = [sys.executable, "-m", "dask", *arguments]
        command += ["--host", "127.0.0.1", "--no-dashboard"]
        with (self.folder / f"{number}.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env=os.environ | given, stdout=log, stderr=log
            )
        self.processes.append(process)

    def scheduler(self) -> None:
        file = self.folder / "scheduler.json"
        options = ("--port", "0", "--idle-timeout", "10 minutes")
        self.start("scheduler", *options, "--scheduler-file", str(file))
        self.address = json_load_robust(file, timeout=600)["address"]

    def worker(self, nanny: bool) -> None:
        """Start one with two threads, but a single GPU; a nanny starts it again if it is killed."""
        options = f"--{'' if nanny else 'no-'}nanny --nthreads 2 --resources GPU=1".split()
        folder = self.folder / f"dask-{len(self.processes)}"
        self.start("worker", self.address, *options, "--local-directory", str(folder))

    def workers(self, count: int) -> list[subprocess.Popen]:
        """Workers that are connected; those that lack are started."""
        while len(self.alive()) < count + 1:
            self.worker(nanny=False)
        with distributed.Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(count, 600)
        return self.alive()[1:]

    def alive(self) -> list[subprocess.Popen]:
        return [process for process in self.processes if process.poll() is None]

    def marks(self) -> list[tuple[str, int]]:
        """The GPU and the process of each round that was begun."""
        found = []
        for path in self.folder.glob("gpu 70*-*"):
            _, gpu, process = path.name.split("-")[0].split()
            found.append((gpu, int(process)))
        return found

    def running(self) -> list[int]:
        """The processes of runs that live."""
        return [process for process in {number for _, number in self.marks()} if is_alive(process)]


@pytest.fixture(scope="module")
def dask_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dask]:
    dask = Dask(tmp_path_factory.mktemp("cluster"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_DEVICE", "cpu")
        dask.scheduler()
        yield dask
    for process in dask.processes:
        with suppress(psutil.Error):  # it has ended just now
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
        process.kill()
        process.wait()
    logging.disable(logging.NOTSET)  # a sweep on a cluster has silenced it


@pytest.fixture
def dask(dask_processes: Dask, monkeypatch: pytest.MonkeyPatch) -> Dask:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 300)  # on a machine with much else to do
    return dask_processes


def runs_of(dask: Dask, folder: Path, *runs: dict[str, object]) -> str:
    slow = [{"method": "Slow"} | run for run in runs]
    table = TABLE | {"columns": "seed", "runs": slow}
    return str(write(folder, {"one": table}, str(dask.notebook)))


def beside(action: Callable[[], object]) -> threading.Thread:
    """Do something while the sweep goes on in the main thread."""
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def logs() -> list[Path]:
    return sorted((ledger.runs_folder().parent / "logs").glob("*.log"))


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    # a background job of a shell ignores Ctrl-C
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_sweep_waits_for_the_first_worker_and_gets_its_record(
    dask: Dask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The first of the tests with a cluster: it has no worker yet, and then one with a nanny."""
    wait_for_workers = distributed.Client.wait_for_workers

    def start_and_wait(client: distributed.Client, number: int) -> None:
        dask.worker(nanny=True)
        wait_for_workers(client, number, 600)

    monkeypatch.setattr(distributed.Client, "wait_for_workers", start_and_wait)
    file = runs_of(dask, tmp_path, {"seed": [5, 5]}, {"seed": 5, "num_rounds": 1})
    assert main(["sweep", file, "--scheduler", dask.address]) == 0
    out, err = capsys.readouterr()
    assert err.startswith(f"No worker is connected to {dask.address}; waiting for one")
    assert "1 runs made, 0 failed" in out
    (path,) = ledger.runs_folder().iterdir()  # which is no folder of the worker's
    assert path.read_bytes() == (dask.runs / path.name).read_bytes()
    assert [rounds(log) for log in logs()] == [["1/1"]]
    path.unlink()
    before = dask.marks()
    assert main(["sweep", file, "--scheduler", dask.address]) == 0
    assert path.exists() and dask.marks() == before  # what a worker has recorded is not made again


def test_a_worker_with_other_code_or_data_refuses(
    dask: Dask, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    dask.workers(1)
    digests = cluster.code_and_data(str(dask.notebook), "digits") | {"code": "another"}
    monkeypatch.setattr(cluster, "code_and_data", lambda *_: digests)
    before = dask.marks()
    file = runs_of(dask, tmp_path, {"seed": 8})
    assert main(["sweep", file, "--scheduler", dask.address]) == 1
    worker = rf"the worker tcp://\S+ on {socket.gethostname()}"
    refusal = f"{worker} has other code than the sweep: make them the same there"
    assert re.search(rf"^failed: Slow\S+: {refusal}", capsys.readouterr().out, re.MULTILINE)
    assert not list(ledger.runs_folder().glob("*.json"))
    assert dask.marks() == before


def test_ctrl_c_ends_the_run_on_its_worker(
    dask: Dask, tmp_path: Path, capsys: pytest.CaptureFixture, ctrl_c: None
) -> None:
    file = runs_of(dask, tmp_path, {"seed": [0, 1], "num_rounds": 500, "pause": 2})
    (worker,) = dask.workers(1)
    over = threading.Event()

    def press_ctrl_c() -> None:
        wait_for(lambda: over.is_set() or dask.running())
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    thread = beside(press_ctrl_c)
    try:
        assert main(["sweep", file, "--scheduler", dask.address]) == 130
    finally:
        over.set()
        thread.join()
    assert capsys.readouterr().err == STOPPED
    with distributed.Client(dask.address, set_as_default=False) as client:
        wait_for(lambda: not any(client.processing().values()))
    wait_for(lambda: not dask.running())
    assert worker.poll() is None


def test_a_run_whose_worker_is_killed_goes_on_at_another(
    dask: Dask, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDNB_RUNS", str(dask.runs))
    for file in [*logs(), *dask.folder.glob("gpu*")]:
        file.unlink()
    file = runs_of(dask, tmp_path, {"seed": [2, 3], "num_rounds": 12, "pause": 0.2})
    other, victim = dask.workers(2)  # the second has no nanny, which would start it again
    gpu = f"70{dask.processes.index(victim)}"

    def kill() -> None:
        wait_for(lambda: [mark for mark, _ in dask.marks()].count(gpu) >= 3)
        victim.kill()

    thread = beside(kill)
    assert main(["sweep", file, "--scheduler", dask.address]) == 0
    thread.join()
    victim.wait()
    out, err = capsys.readouterr()
    assert "2 runs made, 0 failed" in out
    assert len([line for line in err.splitlines() if "  finished" in line]) == 2
    assert sorted(rounds(log)[0] == "1/12" for log in logs()) == [False, True]  # one went on
    assert len(dask.marks()) in (24, 25)  # no run was made twice: the kill cost a round at most
    assert len({gpu for gpu, _ in dask.marks()}) == 2  # each worker's runs had its own GPU
    assert other.poll() is None
    wait_for(lambda: not dask.running())
    assert main(["sweep", file, "--scheduler", "tcp://nowhere:1"]) == 0  # nothing to do


def test_without_its_scheduler_a_sweep_ends(
    dask: Dask, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    file = runs_of(dask, tmp_path, {"seed": [6, 7], "num_rounds": 500, "pause": 2})
    dask.workers(1)

    def kill() -> None:
        wait_for(dask.running)
        dask.processes[0].kill()

    thread = beside(kill)
    assert main(["sweep", file, "--scheduler", dask.address]) == 2
    thread.join()
    err = capsys.readouterr().err
    assert err.startswith(f"fednb: The connection to the scheduler at {dask.address} was lost")
    assert err.count("\n") == 1
    wait_for(lambda: not dask.running())


def test_without_a_scheduler_or_dask_there_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1)
    notebook = write_notebook(tmp_path / "90_tiny.ipynb")
    file = str(write(tmp_path, {"one": TABLE | {"runs": [{}]}}, str(notebook)))
    with socket.socket() as free, socket.create_server(("127.0.0.1", 0)) as silent:
        free.bind(("127.0.0.1", 0))
        nobody, mute = (f"tcp://127.0.0.1:{one.getsockname()[1]}" for one in (free, silent))
        for address in (nobody, mute, "somewhere", "carrier-pigeon://1:2"):
            begin = time.monotonic()
            assert main(["sweep", file, "--scheduler", address]) == 2
            assert time.monotonic() - begin < 200  # and not without end
            err = capsys.readouterr().err
            assert err.startswith(f"fednb: No dask scheduler answers at {address} (")
            assert err.count("\n") == 1
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["sweep", file, "--scheduler", nobody]) == 2
    assert 'pip install -e ".[cluster]"' in capsys.readouterr().err
