"""Runs in processes of their own, several at once: here, and on a real dask cluster on this machine."""

import io
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from subprocess import Popen
from types import SimpleNamespace
from typing import Any, NamedTuple

import distributed
import psutil
import pytest
import torch
from distributed.utils import json_load_robust
from tiny import TABLE, is_alive, wait_for, write, write_notebook

from fednb import ROOT, papers
from fednb import records as ledger
from fednb import run as runner
from fednb.places import Places
from fednb_lab.cli import main
from fednb_lab.sweeps import cluster, processes
from fednb_lab.sweeps.files import read_tables
from fednb_lab.sweeps.processes import Slots, log_of, process_environment
from fednb_lab.sweeps.table import Job

STOPPED = "\nfednb: stopped; the same command goes on where this one ended.\n"


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_notebook(tmp_path_factory.mktemp("notebooks") / "90_tiny.ipynb").parent


@pytest.fixture(autouse=True)
def places(notebooks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(notebooks))
    monkeypatch.setenv("FEDNB_TEST_MARKS", str(tmp_path))


def records(folder: Path | None = None, kind: str = "runs/*.json") -> list[Path]:
    return sorted((folder or ledger.runs_folder()).parent.glob(kind))


def logs() -> list[Path]:
    return records(kind="logs/*.log")


def rounds(log: Path) -> list[str]:
    return re.findall(r"^round (\S+)", log.read_text(), re.MULTILINE) if log.exists() else []


def below(process: int) -> list[psutil.Process]:
    """Its children that live, and theirs."""
    return living(psutil.Process(process).children(recursive=True))


def living(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if process.is_running() and is_alive(process.pid)]


def beside(action: Callable[[], object]) -> threading.Thread:
    """Do something while the sweep goes on in the main thread."""
    thread = threading.Thread(target=action)
    thread.start()
    return thread


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    # a background job of a shell ignores Ctrl-C
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Mixed(NamedTuple):
    """What a sweep of good and bad runs leaves behind."""

    file: str  # the sweep file
    folder: Path  # of the marks that the methods leave
    status: int
    out: str
    err: str


@pytest.fixture(scope="module")
def mixed(notebooks: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    """A sweep, two runs at once: one finishes, one diverges, one fails, one fails the first time."""
    folder = tmp_path_factory.mktemp("mixed")
    runs = [{"method": "Pair", "seed": 1}, {"method": "Diverging"}, {"method": "Broken"}]
    runs.append({"method": "Flaky", "weight_decay": 2e-05})
    file = str(write(folder, {"mixed": TABLE | {"runs": runs}}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_NOTEBOOKS", str(notebooks))
        patch.setenv("FEDNB_TEST_MARKS", str(folder))
        patch.setenv("FEDNB_RUNS", str(folder / "results" / "runs"))
        patch.setenv("FEDNB_DEVICE", "cpu")
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            status = main(["sweep", file, "--jobs", "2"])
        yield Mixed(file, folder, status, out.getvalue(), err.getvalue())


@pytest.fixture
def after_mixed(mixed: Mixed, monkeypatch: pytest.MonkeyPatch) -> Mixed:
    """That sweep's ledger is the current one."""
    monkeypatch.setenv("FEDNB_RUNS", str(mixed.folder / "results" / "runs"))
    return mixed


def test_each_run_ends_with_a_record_that_says_how(after_mixed: Mixed) -> None:
    content = {path.name.split("-")[0]: ledger.read(path) for path in records()}
    status = {name: record["status"] for name, record in content.items()}
    good = {"Pair": "finished", "Flaky": "finished"}
    assert status == good | {"Broken": "failed", "Diverging": "diverged"}
    # a small number arrives as a number
    assert content["Flaky"]["settings"]["weight_decay"] == 2e-05


def test_a_failed_run_is_told_with_its_error_and_its_log(mixed: Mixed) -> None:
    assert mixed.status == 1
    assert "4 runs: 0 recorded, 4 to do." in mixed.out
    assert "3 runs made, 1 failed" in mixed.out
    failed = r"failed: Broken\S+: .*RuntimeError: broken on purpose\n +log: (.+)"
    assert "RuntimeError" in Path(re.search(failed, mixed.out)[1]).read_text()


def test_without_a_terminal_there_is_a_line_per_run(mixed: Mixed) -> None:
    lines = mixed.err.splitlines()
    assert [line.split()[0] for line in lines] == ["1/4", "2/4", "3/4", "4/4"]
    assert all("; about " in line for line in lines)
    for ending in ("  diverged", "  failed: "):
        assert sum(ending in line for line in lines) == 1


def test_what_fails_is_tried_twice_and_no_untagged_cell_is_executed(after_mixed: Mixed) -> None:
    marks = Counter(path.name.split("-")[0] for path in after_mixed.folder.glob("*-*[0-9]"))
    assert marks == {"pair": 2, "flaky": 2, "broken": 2}
    (flaky,) = (log for log in logs() if log.name.startswith("Flaky"))
    assert "the first time" in flaky.read_text()
    assert rounds(flaky) == ["1/1"]


PAIR_AND_DIVERGING = ["--only", "method=Pair", "--only", "method=Diverging"]
RECORDED = [
    (["sweep", "FILE", *PAIR_AND_DIVERGING], "2 runs: 2 recorded, 0 to do."),
    (["run", "tiny", "method=Pair", "seed=1"], "recorded already"),
    # what failed is to be made again
    (["sweep", "FILE", "--dry-run"], "mixed: 90_tiny method=Broken\n"),
]


@pytest.mark.parametrize(("arguments", "message"), RECORDED, ids=["sweep", "run", "dry-run"])
def test_what_is_recorded_is_not_made_again(
    after_mixed: Mixed,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    before = {path: path.stat().st_mtime_ns for path in records()}
    monkeypatch.setattr(
        subprocess, "Popen", lambda *args, **options: pytest.fail("a process was started")
    )
    assert main([after_mixed.file if word == "FILE" else word for word in arguments]) == 0
    assert message in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in records()} == before


def test_a_sweep_that_is_killed_and_called_again_ends_as_if_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ctrl_c: None
) -> None:
    runs = [{"seed": 0, "num_rounds": 2}, {"seed": 1, "num_rounds": 15}]
    table = TABLE | {"rows": "seed", "parameters": {"method": "Slow", "pause": 0.3}, "runs": runs}
    file = write(tmp_path, {"slow": table})
    jobs = read_tables(file)["slow"].jobs
    first, second = (job.path for job in jobs)
    command = [sys.executable, "-m", "fednb_lab", "sweep", str(file), "--jobs", "2"]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as process:
        wait_for(lambda: first.exists() and rounds(log_of(second)))
        left = below(process.pid)
        assert len(left) >= 2  # the server of a slot and its fork
        os.killpg(process.pid, signal.SIGKILL)
    wait_for(lambda: not living(left))
    assert records() == [first]
    time_of_first = first.stat().st_mtime_ns

    # under a time limit: `timeout -s INT` sends it to the process and to its group
    log_of(second).unlink()
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: rounds(log_of(second)))
        left = below(process.pid)
        for _ in range(3):
            process.send_signal(signal.SIGINT)
        assert process.stderr.read() == STOPPED
    assert process.returncode == 130
    wait_for(lambda: not living(left))
    assert records() == [first]

    assert main(["sweep", str(file)]) == 0
    assert rounds(log_of(second))[0] != "1/15"  # it went on
    assert records() == sorted([first, second])
    assert first.stat().st_mtime_ns == time_of_first
    got = [json.loads(path.read_text())["metrics"]["accuracy"] for path in (first, second)]
    monkeypatch.setenv("FEDNB_RUNS", str(tmp_path / "direct"))
    at_once = [replace(job.settings, hyperparameters={"pause": 0.0}) for job in jobs]
    assert got == [
        runner.run(own, papers.methods("tiny"))["metrics"]["accuracy"] for own in at_once
    ]


def read_jobs(folder: Path, **entry: object) -> tuple[Job, ...]:
    """The runs of a table in a sweep file."""
    return read_tables(write(folder, {"one": TABLE | entry}))["one"].jobs


def test_runs_of_a_group_are_made_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = read_jobs(tmp_path, grid={"seed": [3, 4]})
    started = []

    def popen(*args: object, **options: object) -> Popen:
        started.append(args)
        return Popen(*args, **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    result = processes.run_group(group, group[0].places, Slots(1), lambda: False)
    assert [record["settings"]["seed"] for record in result.records] == [3, 4]
    assert len(started) == 1
    assert [rounds(log) for log in logs()] == [["1/1", "1/1"]]


def test_a_slot_is_lent_to_one_at_a_time() -> None:
    slots = Slots(2)
    with pytest.raises(ZeroDivisionError), slots.lend():
        raise ZeroDivisionError  # after which it is given back
    with slots.lend() as first:
        with slots.lend() as second:
            assert {first, second} == {0, 1}
            waiting = ThreadPoolExecutor(1).submit(slots.lend().__enter__)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.1)
        assert waiting.result(timeout=200) == second


def test_runs_at_once_have_slots_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever their threads are called: each has its own of two GPUs, while both run."""
    both = threading.Barrier(2, timeout=60)
    asked = []

    def environment(_: Places, slot: int, slots: int, cores: int | None) -> dict[str, str]:
        both.wait()
        asked.append((slot, slots))
        return dict(os.environ)

    monkeypatch.setattr(processes, "process_environment", environment)
    monkeypatch.setattr(processes, "_run", lambda *_, **options: both.wait() and 0)
    with processes.local_pool(2) as submit:
        futures = [submit([job]) for job in read_jobs(tmp_path, grid={"seed": [0, 1]})]
        assert len([future.result() for future in futures]) == 2
    assert sorted(asked) == [(0, 2), (1, 2)]


def test_slots_share_cores_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(name: str, slots: int, gpus: int, **given: str) -> list[str | None]:
        with monkeypatch.context() as patch:
            patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
            patch.setattr(torch.cuda, "device_count", lambda: gpus)
            for variable, value in given.items():
                patch.setenv(variable, value)
            places = Places.from_environment()
            environments = [process_environment(places, slot, slots) for slot in range(slots)]
        return [environment.get(name) for environment in environments]

    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert of("FEDNB_WORKERS", 3, 0) == ["2"] * 3
    assert of("FEDNB_WORKERS", 20, 0) == ["1"] * 20
    assert of("FEDNB_WORKERS", 1, 0, FEDNB_WORKERS="3") == ["3"]  # what is said counts
    assert of("FEDNB_WORKERS", 1, 2) == [None]  # one stream, not one for each core
    assert of("CUDA_VISIBLE_DEVICES", 1, 0, CUDA_VISIBLE_DEVICES="") == [""]
    assert of("CUDA_VISIBLE_DEVICES", 4, 2) == ["0", "1", "0", "1"]
    assert of("CUDA_VISIBLE_DEVICES", 3, 2, CUDA_VISIBLE_DEVICES="5, 3") == ["5", "3", "5"]
    monkeypatch.chdir("/")
    assert of("FEDNB_RUNS", 1, 0, FEDNB_RUNS="elsewhere/runs") == ["/elsewhere/runs"]


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (job,) = read_jobs(tmp_path, runs=[{}])
    monkeypatch.setattr(processes.shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    error = processes.run_group([job], job.places, Slots(1), lambda: False).error
    assert re.fullmatch(r"the disk of .*logs is full\.", error)


class Dask:
    """Processes of dask, and of the runs that they start. Workers share a folder of results, and have a GPU each."""

    def __init__(self, folder: Path, notebooks: Path) -> None:
        self.folder, self.runs, self.notebooks = folder, folder / "shared" / "runs", notebooks
        self.processes: list[subprocess.Popen] = []  # a scheduler, then its workers
        self.address = ""

    def start(self, *arguments: str) -> None:
        number = str(len(self.processes))
        given = {"FEDNB_RUNS": str(self.runs), "FEDNB_NOTEBOOKS": str(self.notebooks)}
        given |= {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": f"70{number}"}
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

    def worker(self) -> None:
        """Start one with two threads, but a single GPU; without a nanny, which would start it again if killed."""
        options = "--no-nanny --nthreads 2 --resources GPU=1 --death-timeout 600".split()
        folder = self.folder / f"dask-{len(self.processes)}"
        self.start("worker", self.address, *options, "--local-directory", str(folder))

    def workers(self, count: int) -> list[subprocess.Popen]:
        """Workers that are connected; those that lack are started."""
        while len(self._alive()) < count + 1:
            self.worker()
        log = self.folder / "0.log"
        wait_for(lambda: log.read_text().count("Register worker") >= len(self.processes) - 1)
        return self._alive()[1:]

    def _alive(self) -> list[subprocess.Popen]:
        return [process for process in self.processes if process.poll() is None]

    def left(self) -> list[psutil.Process]:
        """The processes of runs and their kernels, whoever started them."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                ours = process.environ().get("FEDNB_TEST_MARKS") == str(self.folder)
                if ours and "dask" not in process.cmdline():
                    found += living([process])
        return found

    def marks(self) -> list[str]:
        """The GPU of each round that was begun."""
        return [path.name.split("-")[0] for path in self.folder.glob("gpu 70*-*")]


@pytest.fixture(scope="module")
def dask_processes(tmp_path_factory: pytest.TempPathFactory, notebooks: Path) -> Iterator[Dask]:
    dask = Dask(tmp_path_factory.mktemp("cluster"), notebooks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_DATA", str(dask.folder))
        patch.setenv("FEDNB_TEST_MARKS", str(dask.folder))
        patch.setenv("DASK_DISTRIBUTED__DIAGNOSTICS__NVML", "False")
        dask.scheduler()
        yield dask
    for process in [*dask.left(), *dask.processes]:
        with suppress(psutil.Error):  # it has ended just now
            process.kill()
            process.wait()
    logging.disable(logging.NOTSET)  # a sweep on a cluster has silenced it


@pytest.fixture
def dask(dask_processes: Dask, monkeypatch: pytest.MonkeyPatch) -> Dask:
    monkeypatch.setenv("FEDNB_TEST_MARKS", str(dask_processes.folder))  # and not what `places` says
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 300)  # on a machine with much else to do
    return dask_processes


def runs_of(folder: Path, *runs: dict[str, object]) -> str:
    slow = [{"method": "Slow"} | run for run in runs]
    return str(write(folder, {"one": TABLE | {"columns": "seed", "runs": slow}}))


def test_a_sweep_waits_for_the_first_worker(
    dask: Dask, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The first of the tests with a cluster: it has no worker yet."""
    wait_for_workers = distributed.Client.wait_for_workers

    def start_and_wait(client: distributed.Client, number: int) -> None:
        dask.worker()
        wait_for_workers(client, number, 600)

    monkeypatch.setattr(distributed.Client, "wait_for_workers", start_and_wait)
    with cluster.cluster(dask.address):
        message = f"No worker is connected to {dask.address}; waiting for one"
        assert capsys.readouterr().err.startswith(message)
    with cluster.cluster(dask.address):
        assert capsys.readouterr().err == ""


@pytest.mark.parametrize("different", ["code", "data"])
def test_a_worker_with_other_code_or_data_refuses(
    dask: Dask,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    different: str,
) -> None:
    dask.workers(1)
    digests = cluster.code_and_data("digits") | {different: "another"}
    monkeypatch.setattr(cluster, "code_and_data", lambda _: digests)
    assert main(["sweep", runs_of(tmp_path, {}), "--scheduler", dask.address]) == 1
    worker = rf"the worker tcp://\S+ on {socket.gethostname()}"
    refusal = f"{worker} has other {different} than the sweep: make them the same there"
    assert re.search(rf"^failed: Slow\S+: {refusal}", capsys.readouterr().out, re.MULTILINE)
    assert not records()
    assert not records(dask.runs)
    assert not dask.left()


def test_ctrl_c_ends_the_run_on_its_worker(
    dask: Dask, tmp_path: Path, capsys: pytest.CaptureFixture, ctrl_c: None
) -> None:
    file = runs_of(tmp_path, {"seed": [0, 1], "num_rounds": 500, "pause": 2})
    (worker,) = dask.workers(1)
    over = threading.Event()

    def press_ctrl_c() -> None:
        both = 2  # the server of a slot and its fork
        wait_for(lambda: over.is_set() or len(dask.left()) == both)
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
    wait_for(lambda: not dask.left())
    time.sleep(1)
    assert not dask.left()  # the other run was not begun
    assert worker.poll() is None


def test_a_run_whose_worker_is_killed_goes_on_at_another(
    dask: Dask, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDNB_RUNS", str(dask.runs))
    for file in [*logs(), *dask.folder.glob("gpu*")]:
        file.unlink()
    file = runs_of(tmp_path, {"seed": [2, 3], "num_rounds": 12, "pause": 0.2})
    victim, other = dask.workers(2)
    gpu = f"gpu 70{dask.processes.index(victim)}"
    thread = beside(lambda: wait_for(lambda: dask.marks().count(gpu) >= 3) or victim.kill())
    assert main(["sweep", file, "--scheduler", dask.address]) == 0
    thread.join()
    victim.wait()
    out, err = capsys.readouterr()
    assert "2 runs made, 0 failed" in out
    assert sorted(line.split()[1] for line in err.splitlines() if "  finished" in line) == [
        path.stem for path in records()
    ]
    assert sorted(rounds(log)[0] == "1/12" for log in logs()) == [False, True]  # one went on
    assert len(dask.marks()) in (24, 25)  # no run was made twice: the kill cost a round at most
    assert len(set(dask.marks())) == 2  # each worker's runs had its own GPU
    assert other.poll() is None
    wait_for(lambda: not dask.left())  # a worker keeps an idle process for some seconds
    assert main(["sweep", file, "--scheduler", "tcp://nowhere:1"]) == 0  # nothing to do


def test_a_record_comes_back_without_a_shared_folder(
    dask: Dask, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    file = runs_of(tmp_path, {"seed": [5, 5]}, {"seed": 5, "num_rounds": 1})
    dask.workers(1)
    assert main(["sweep", file, "--scheduler", dask.address]) == 0
    assert "1 runs made, 0 failed" in capsys.readouterr().out
    (path,) = ledger.runs_folder().iterdir()
    assert path.read_bytes() == (dask.runs / path.name).read_bytes()
    assert [rounds(log) for log in logs()] == [["1/1"]]
    path.unlink()
    before = dask.marks()
    assert main(["sweep", file, "--scheduler", dask.address]) == 0
    assert path.exists() and dask.marks() == before  # what a worker has recorded is not made again


def test_the_threads_of_a_worker_share_its_slots() -> None:
    worker = SimpleNamespace(address="inproc://test", state=SimpleNamespace(nthreads=2))
    slots = cluster._slots_of(worker)
    assert cluster._slots_of(worker) is slots
    with slots.lend() as first, slots.lend() as second:
        assert {first, second} == {0, 1}


def test_a_worker_tells_its_servers_which_code_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = SimpleNamespace(nthreads=1, tasks={"task": SimpleNamespace(state="executing")})
    worker = SimpleNamespace(address="inproc://code", state=state)
    worker.status = SimpleNamespace(name="running")
    worker.get_current_task = lambda: "task"
    monkeypatch.setattr("distributed.get_worker", lambda: worker)
    monkeypatch.setattr(cluster, "code_and_data", lambda dataset: {"code": "abc"})
    codes = []

    def run(*given: Any) -> int:
        codes.append(given[-1])
        return 1

    monkeypatch.setattr(processes, "_run", run)
    (job,) = read_jobs(tmp_path, grid={"seed": [0]})
    assert cluster.run_group_on_worker([job], {"code": "abc"}).error == "status 1."
    assert codes == ["abc", "abc"]  # it is tried twice


def test_without_its_scheduler_a_sweep_ends(dask: Dask, tmp_path: Path) -> None:
    file = runs_of(tmp_path, {"seed": [6, 7], "num_rounds": 500, "pause": 2})
    dask.workers(1)
    command = [sys.executable, "-m", "fednb_lab", "sweep", file, "--scheduler", dask.address]
    begun = len(dask.marks())
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: len(dask.marks()) > begun)
        dask.processes[0].kill()
        err = process.stderr.read()
    assert process.returncode == 2
    assert err.startswith(f"fednb: The connection to the scheduler at {dask.address} was lost")
    assert err.count("\n") == 1
    wait_for(lambda: not dask.left())


def test_without_a_scheduler_or_dask_there_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1)
    file = runs_of(tmp_path, {})
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
