"""Sweeps on a dask cluster: a real scheduler and real workers on this machine, and a tiny notebook."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import nbformat
import psutil
import pytest
import yaml
from dask.system import CPU_COUNT
from nbformat.v4 import new_code_cell, new_notebook
from waiting import wait_for

from fednb import ROOT
from fednb.__main__ import main
from fednb.experiments import cluster, ledger, sweep

PARAMETERS = """
method = "Slow"
dataset = "digits"
seed = 0
num_rounds = 1
local_epochs = 1
num_clients = 2
pause = 0.0
"""
NAMES = ("method", "dataset", "seed", "num_rounds", "local_epochs", "num_clients", "pause")
METHODS = """
import os
import time
from dataclasses import dataclass
from pathlib import Path

from fednb.federation import FedAvg


@dataclass
class Slow(FedAvg):
    pause: float = 0.0

    def round(self, *args):
        Path(os.environ["FEDNB_TEST_MARKS"], f"{os.environ['CUDA_VISIBLE_DEVICES']}-{time.time_ns()}").touch()
        time.sleep(self.pause)
        return super().round(*args)


METHODS = {"Slow": Slow}
"""
TABLE = {"title": "A title", "rows": "method", "columns": "seed", "tier": "minutes-cpu"}


class Cluster:
    """Processes of dask, and of the runs that they start. Workers share a folder of results, and have a GPU each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, folder / "shared" / "runs"
        self.processes: list[subprocess.Popen] = []
        self.address = ""

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen:
        number = str(len(self.processes))
        given = {"PYTHONPATH": str(ROOT), "FEDNB_RUNS": str(self.runs), "CUDA_VISIBLE_DEVICES": f"70{number}"}
        command = [sys.executable, "-m", "dask", *arguments, "--host", "127.0.0.1", "--no-dashboard"]
        with (self.folder / f"{number}.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env=os.environ | given | environment, stdout=log, stderr=subprocess.STDOUT
            )
        self.processes.append(process)
        return process

    def scheduler(self) -> subprocess.Popen:
        """Start anew."""
        self.end()
        file = self.folder / "scheduler.json"
        file.unlink(missing_ok=True)
        process = self.start("scheduler", "--port", "0", "--scheduler-file", str(file), "--idle-timeout", "5 minutes")
        wait_for(file.exists)
        self.address = json.loads(file.read_text())["address"]
        return process

    def worker(self, **environment: str) -> subprocess.Popen:
        """Start one with two threads, but a single GPU; without a nanny, which would start it again if killed."""
        local = str(self.folder / f"dask-{len(self.processes)}")
        options = (
            "--no-nanny",
            "--nthreads",
            "2",
            "--resources",
            "GPU=1",
            "--death-timeout",
            "60",
            "--local-directory",
            local,
        )
        return self.start("worker", self.address, *options, **environment)

    def workers(self, count: int) -> list[subprocess.Popen]:
        """Workers that are connected; those that lack are started."""
        if not self.address:
            self.scheduler()
        while len(self.alive()) < count + 1:
            self.worker()
        wait_for(lambda: (self.folder / "0.log").read_text().count("Register worker") >= len(self.processes) - 1)
        return self.alive()[1:]

    def alive(self) -> list[subprocess.Popen]:
        return [process for process in self.processes if process.poll() is None]

    def left(self) -> list[psutil.Process]:
        """The processes of runs and their kernels, whoever started them."""
        found = []
        for process in psutil.process_iter():
            try:
                ours = process.environ().get("FEDNB_TEST_MARKS") == str(self.folder)
                if ours and process.status() != psutil.STATUS_ZOMBIE and "dask" not in process.cmdline():
                    found.append(process)
            except psutil.Error:
                pass
        return found

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for process in self.left():
            process.kill()
        self.processes, self.address = [], ""


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    arguments = ", ".join(f"{name}={name}" for name in NAMES)
    sources = {
        "setup": "from fednb import runs, settings",
        "parameters": PARAMETERS.strip(),
        "export": METHODS.strip(),
        "run": f"chosen = settings.resolve(METHODS, {arguments})\nrecord = runner.run(chosen, METHODS, checkpoint_seconds=0)",
    }
    cells = [new_code_cell(source, metadata={"tags": [tag]}) for tag, source in sources.items()]
    for name in ("notebooks", "changed", "empty"):
        (folder / name).mkdir()
    nbformat.write(new_notebook(cells=cells), folder / "notebooks" / "95_clustertest.ipynb")
    cells[2].source += "\nx = 1"
    nbformat.write(new_notebook(cells=cells), folder / "changed" / "95_clustertest.ipynb")
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.end()


@pytest.fixture
def dask(processes: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(processes.folder / "notebooks"))
    monkeypatch.setenv("FEDNB_DATA", str(processes.folder / "empty"))
    monkeypatch.setenv("FEDNB_TEST_MARKS", str(processes.folder))
    monkeypatch.setenv("DASK_DISTRIBUTED__DIAGNOSTICS__NVML", "False")
    return processes


def write(folder: Path, runs: list[dict[str, object]]) -> str:
    file = folder / "sweep.yaml"
    file.write_text(yaml.safe_dump({"notebook": "95_clustertest", "tables": {"one": TABLE | {"runs": runs}}}))
    return str(file)


def records(folder: Path | None = None) -> list[Path]:
    return sorted((folder or ledger.runs_folder()).glob("*.json"))


def logs() -> list[Path]:
    """Of the sweep's machine."""
    return sorted(sweep.logs_folder().glob("*.log"))


def rounds(log: Path) -> list[str]:
    return [line.split()[1] for line in log.read_text().splitlines() if line.startswith("round ")]


def beside(action: Callable[[], object]) -> threading.Thread:
    """Do something while the sweep goes on in the main thread."""
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def marks(dask: Cluster) -> list[str]:
    """The GPU of each round that was begun."""
    return [path.name.split("-")[0] for path in dask.folder.glob("70*-*")]


def test_a_worker_with_other_code_or_data_refuses(
    dask: Cluster, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(dask.folder, [{}])
    dask.scheduler()
    thread = beside(lambda: time.sleep(1) or dask.worker())

    def refused() -> str:
        assert main(["sweep", file, "--scheduler", dask.address]) == 1
        out, err = capsys.readouterr()
        (line,) = (line for line in out.splitlines() if line.startswith("failed: "))
        assert f" on {socket.gethostname()} " in line
        return line + err

    with monkeypatch.context() as patch:
        patch.setattr(runs, "commit", lambda: "0123456789")
        text = refused()
        assert "than the sweep (commit 0123456789): make fednb and notebooks there the same" in text
        assert f"No worker is connected to {dask.address}; waiting for one" in text
    thread.join()
    with monkeypatch.context() as patch:
        patch.setenv("FEDNB_NOTEBOOKS", str(dask.folder / "changed"))
        assert "has other code" in refused()
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "_find_data", lambda name: "another fingerprint")
        assert "has other data than the sweep" in refused()
        file = write(dask.folder, [{"dataset": "cifar10"}])
        assert "lacks data: CIFAR-10 was not found" in refused()
    assert not records()
    assert not records(dask.runs)
    assert not dask.left()


def test_ctrl_c_ends_the_run_on_its_worker(dask: Cluster, capsys: pytest.CaptureFixture) -> None:
    file = write(dask.folder, [{"seed": [0, 1], "num_rounds": 500, "pause": 0.2}])
    (worker,) = dask.workers(1)

    def press_ctrl_c() -> None:
        wait_for(lambda: len(dask.left()) == 2)  # papermill and the kernel
        os.kill(os.getpid(), signal.SIGINT)

    thread = beside(press_ctrl_c)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores Ctrl-C
    try:
        assert main(["sweep", file, "--scheduler", dask.address]) == 130
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "\nfednb: stopped; the same command goes on where this one ended.\n"
    wait_for(lambda: not dask.left(), 20)
    time.sleep(1)
    assert not dask.left()  # the other run was not begun
    assert worker.poll() is None


def test_a_run_whose_worker_is_killed_goes_on_at_another(
    dask: Cluster, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDNB_RUNS", str(dask.runs))
    for log in logs():
        log.unlink()
    file = write(dask.folder, [{"seed": [2, 3], "num_rounds": 6, "pause": 0.2}])
    victim, other = dask.workers(2)
    at_once = []
    gpu = f"70{dask.processes.index(victim)}"

    def count() -> bool:
        for worker in (victim, other):
            with suppress(psutil.Error):
                at_once.append(len(psutil.Process(worker.pid).children()))
        return bool(ended)

    def kill() -> None:
        wait_for(lambda: count() or marks(dask).count(gpu) >= 3)
        victim.kill()
        wait_for(count, 600)

    ended = []
    thread = beside(kill)
    try:
        assert main(["sweep", file, "--scheduler", dask.address]) == 0
    finally:
        ended.append(True)
        thread.join()
    victim.wait()
    out, err = capsys.readouterr()
    assert "2 runs made, 0 failed" in out
    names = [path.stem for path in records()]
    assert len(names) == 2
    assert sorted(line.split()[1] for line in err.splitlines() if "  finished" in line) == names
    assert max(at_once) == 1  # two threads, but one GPU
    assert sorted(rounds(log)[0] == "1/6" for log in logs()) == [False, True]  # one went on
    assert len(marks(dask)) in (12, 13)  # no run was made twice: the kill cost a round at most
    assert len(set(marks(dask))) == 2  # each worker's runs had its own GPU
    assert other.poll() is None
    wait_for(lambda: not dask.left(), 5)
    assert main(["sweep", file, "--scheduler", "tcp://nowhere:1"]) == 0  # nothing to do


def test_a_record_comes_back_without_a_shared_folder(dask: Cluster, capsys: pytest.CaptureFixture) -> None:
    file = write(dask.folder, [{"seed": [5, 5]}, {"seed": 5, "num_rounds": 1}])
    dask.workers(1)
    assert main(["sweep", file, "--scheduler", dask.address]) == 0
    assert "1 runs made, 0 failed" in capsys.readouterr().out
    (path,) = ledger.runs_folder().iterdir()
    assert path.read_bytes() == (dask.runs / path.name).read_bytes()
    assert ledger.read(path)["workers"] == max(1, CPU_COUNT // 2)
    assert [rounds(log) for log in logs()] == [["1/1"]]
    # what a worker has recorded is not made again
    path.unlink()
    before = marks(dask)
    assert main(["sweep", file, "--scheduler", dask.address]) == 0
    assert path.exists()
    assert marks(dask) == before


def test_without_its_scheduler_a_sweep_ends(
    dask: Cluster, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 2)
    file = write(dask.folder, [{"seed": [6, 7], "num_rounds": 500, "pause": 0.2}])
    dask.workers(1)

    def kill() -> None:
        wait_for(lambda: len(dask.left()) == 2)
        dask.processes[0].kill()

    thread = beside(kill)
    assert main(["sweep", file, "--scheduler", dask.address]) == 2
    thread.join()
    err = capsys.readouterr().err
    assert err.startswith(f"fednb: The connection to the scheduler at {dask.address} was lost")
    assert err.count("\n") == 1
    wait_for(lambda: not dask.left(), 20)
    dask.end()


def test_without_a_scheduler_or_dask_there_is_one_sentence(
    dask: Cluster, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1)
    file = write(dask.folder, [{}])
    with socket.socket() as free, socket.create_server(("127.0.0.1", 0)) as silent:
        free.bind(("127.0.0.1", 0))
        nobody = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        mute = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        for address in (nobody, mute, "somewhere", "carrier-pigeon://1:2"):
            begin = time.monotonic()
            assert main(["sweep", file, "--scheduler", address]) == 2
            assert time.monotonic() - begin < 60
            err = capsys.readouterr().err
            assert err.startswith(f"fednb: No dask scheduler answers at {address} (")
            assert err.count("\n") == 1
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["sweep", file, "--scheduler", nobody]) == 2
    assert 'pip install -e ".[cluster]"' in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["sweep", file, "--scheduler", nobody, "--jobs", "2"])


def test_threads_of_a_worker_take_turns() -> None:
    with cluster._slot() as first, cluster._slot() as second:
        assert (first, second) == (0, 1)
    with cluster._slot() as again:
        assert again == 0
