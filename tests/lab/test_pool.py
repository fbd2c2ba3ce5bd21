"""Runs in processes of their own: what is killed costs one run at most, nothing is lost and nothing is made twice."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import nbformat
import psutil
import pytest
import torch
from nbformat.v4 import new_code_cell, new_notebook
from tiny import METHODS, STOPPED, TABLE, is_alive, rounds, wait_for, write, write_notebook

from fednb import ROOT, build, papers
from fednb import records as ledger
from fednb import run as runner
from fednb.errors import NotebookError
from fednb_lab import engine, pool, processes
from fednb_lab.cli import main
from fednb_lab.sweeps import read_tables


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return str(write_notebook(tmp_path_factory.mktemp("notebooks") / "90_tiny.ipynb"))


@pytest.fixture(autouse=True)
def marks(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_TEST_MARKS", str(tmp_path))


def records(kind="runs/*.json"):
    return sorted(ledger.runs_folder().parent.glob(kind))


def running(folder):
    """The processes of slow runs that live."""
    numbers = {int(path.name.split("-")[0].split()[-1]) for path in folder.glob("gpu *-*")}
    return {number for number in numbers if is_alive(number)}


def below(process):
    """Its children that live, and theirs."""
    return [child.pid for child in psutil.Process(process).children(recursive=True)]


def slow(folder, tiny, *runs, **parameters):
    """A sweep file of runs that wait in each round."""
    common = {"method": "Slow", "pause": 0.3} | parameters
    table = TABLE | {"rows": "seed", "parameters": common, "runs": list(runs)}
    return write(folder, {"slow": table}, tiny)


def jobs_of(file):
    return next(iter(read_tables(file).values())).jobs


def sweep(file, *options):
    """The command, in a folder with a module that must not be imported."""
    (file.parent / "random.py").write_text("raise SystemExit('a module of the user')")
    command = [sys.executable, "-P", "-m", "fednb_lab", "sweep", str(file), *options]
    return subprocess.Popen(
        command,
        cwd=file.parent,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # a shell's background job ignores Ctrl-C, and so would what it starts
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def accuracies(jobs):
    return [ledger.read(job.path)["metrics"]["accuracy"] for job in jobs]


def direct(jobs, folder, tiny):
    """What the runs come to if nothing is killed and nothing waits."""
    methods = papers.methods(tiny)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_RUNS", str(folder / "direct"))
        at_once = [replace(job.settings, hyperparameters={"pause": 0.0}) for job in jobs]
        return [runner.run(own, methods)["metrics"]["accuracy"] for own in at_once]


# ---- what becomes of runs


class Mixed(NamedTuple):
    """What a sweep of good and bad runs leaves behind."""

    file: str  # the sweep file
    folder: Path  # of the marks that the methods leave, and of results
    status: int
    out: str


@pytest.fixture(scope="module")
def mixed(tiny, tmp_path_factory):
    """A sweep, two runs at once: one finishes, one diverges, one fails, one fails the first time."""
    folder = tmp_path_factory.mktemp("mixed")
    runs = [{"method": "Pair", "seed": 1}, {"method": "Diverging"}, {"method": "Broken"}]
    runs.append({"method": "Flaky", "weight_decay": 2e-05})
    file = str(write(folder, {"mixed": TABLE | {"runs": runs}}, tiny))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_TEST_MARKS", str(folder))
        patch.setenv("FEDNB_RUNS", str(folder / "results" / "runs"))
        patch.setenv("FEDNB_DEVICE", "cpu")
        patch.delenv("PYTHONUNBUFFERED", raising=False)  # which would hide an order of lines
        with redirect_stdout(io.StringIO()) as out:
            status = main(["sweep", file, "--jobs", "2"])
    return Mixed(file, folder, status, out.getvalue())


@pytest.fixture
def after_mixed(mixed, monkeypatch):
    """That sweep's ledger is the current one."""
    monkeypatch.setenv("FEDNB_RUNS", str(mixed.folder / "results" / "runs"))
    return mixed


def test_each_run_ends_with_a_record_that_says_how(after_mixed):
    content = {path.name.split("-")[0]: ledger.read(path) for path in records()}
    status = {name: record["status"] for name, record in content.items()}
    good = {"Pair": "finished", "Flaky": "finished"}
    assert status == good | {"Broken": "failed", "Diverging": "diverged"}
    # a small number arrives as a number
    assert content["Flaky"]["settings"]["weight_decay"] == 2e-05


def test_a_failed_run_is_told_with_its_error_and_its_log(mixed):
    assert mixed.status == 1
    assert "4 runs: 0 recorded, 4 to do." in mixed.out
    assert "3 runs made, 1 failed" in mixed.out
    failed = r"failed: Broken\S+: .*RuntimeError: broken on purpose\n +log: (.+)"
    log = Path(re.search(failed, mixed.out)[1]).read_text()
    assert "Traceback" in log and log.splitlines()[-1].endswith("RuntimeError: broken on purpose")


def test_what_fails_is_tried_twice_and_no_untagged_cell_is_executed(after_mixed):
    found = Counter(path.name.split("-")[0] for path in after_mixed.folder.glob("*-*[0-9]"))
    assert {"pair": 2, "flaky": 2, "broken": 2}.items() <= found.items() and not found["after"]
    (flaky,) = (log for log in records("logs/*.log") if log.name.startswith("Flaky"))
    assert "the first time" in flaky.read_text()
    assert rounds(flaky) == ["1/1"]


PAIR_AND_DIVERGING = ["--only", "method=Pair", "--only", "method=Diverging"]
RECORDED = [
    (["sweep", "FILE", *PAIR_AND_DIVERGING], "2 runs: 2 recorded, 0 to do."),
    (["run", "TINY", "method=Pair", "seed=1"], "recorded already"),
    # what failed is to be made again
    (["sweep", "FILE", "--dry-run"], "method=Broken\n"),
]


@pytest.mark.parametrize(("arguments", "message"), RECORDED, ids=lambda value: str(value)[:30])
def test_what_is_recorded_is_not_made_again(
    after_mixed, tiny, arguments, message, monkeypatch, capsys
):
    before = {path: path.stat().st_mtime_ns for path in records()}
    monkeypatch.setattr(pool, "run", lambda *_, **options: pytest.fail("something was started"))
    paths = {"FILE": after_mixed.file, "TINY": tiny}
    assert main([paths.get(word, word) for word in arguments]) == 0
    assert message in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in records()} == before


def test_again_makes_what_is_recorded(tmp_path, tiny):
    file = slow(tmp_path, tiny, {"seed": 0}, num_rounds=1, pause=0.0)
    made = []
    for again in ([], ["--again"], []):
        assert main(["sweep", str(file), *again]) == 0
        made.append({record: record.stat().st_mtime_ns for record in records()})
    assert made[0].keys() == made[1].keys() and made[1] == made[2]
    assert not made[0].items() & made[1].items()


# ---- what is killed


def test_a_sweep_that_is_killed_and_called_again_ends_as_if_not_killed(tmp_path, tiny):
    runs = [{"seed": 0, "num_rounds": 2}, {"seed": 1, "num_rounds": 25}]
    file = slow(tmp_path, tiny, *runs)
    jobs = jobs_of(file)
    first, second = jobs
    with sweep(file, "--jobs", "2") as process:
        wait_for(lambda: first.path.exists() and rounds(second.log))
        left = below(process.pid)
        assert running(tmp_path) < set(left)
        process.kill()
    wait_for(lambda: not any(map(is_alive, left)))
    assert records() == [first.path]
    time_of_first = first.path.stat().st_mtime_ns

    # Two sweeps at once, of which one is under a time limit: `timeout -s INT` sends it to the
    # process and to its group. The other has waited for its run, and goes on with it.
    second.log.unlink()
    with sweep(file, "--jobs", "2") as process:
        wait_for(lambda: rounds(second.log))
        left = below(process.pid)
        own = len(below(os.getpid()))

        def interrupt():
            wait_for(lambda: len(below(os.getpid())) > own)
            process.send_signal(signal.SIGINT)
            os.killpg(process.pid, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        assert main(["sweep", str(file)]) == 0
        thread.join()
        assert process.stderr.read() == STOPPED
    assert process.returncode == 130
    wait_for(lambda: not any(map(is_alive, left)))
    assert "1/25" not in rounds(second.log)  # both went on
    assert records() == sorted([first.path, second.path])
    assert first.path.stat().st_mtime_ns == time_of_first
    assert len(list(tmp_path.glob("gpu *-*"))) in (27, 28, 29)  # each kill costs a round at most
    assert accuracies(jobs) == direct(jobs, tmp_path, tiny)


@pytest.mark.parametrize("victim", ["run", "server"])
def test_what_is_killed_costs_its_own_run_a_round_and_no_other_run_anything(
    tmp_path, tiny, victim, capsys
):
    """Without the server that forks them, too, which is started again."""
    file = slow(tmp_path, tiny, {"seed": [0, 1]}, num_rounds=6)
    jobs = jobs_of(file)

    def kill():
        wait_for(lambda: all(len(rounds(job.log)) > 1 for job in jobs))
        number = min(running(tmp_path))
        os.kill(psutil.Process(number).ppid() if victim == "server" else number, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    assert main(["sweep", str(file), "--jobs", "2"]) == 0
    thread.join()
    assert "2 runs made, 0 failed" in capsys.readouterr().out
    made = [path.name for path in tmp_path.glob("gpu *-*")]
    # the kill costs a round at most, of each run if the server is gone; nothing is made twice
    assert len(made) in (12, 13, 14)[: 2 + (victim == "server")]
    assert accuracies(jobs) == direct(jobs, tmp_path, tiny)


def test_a_run_that_is_killed_again_and_again_fails_alone(tmp_path):
    deadly = METHODS.replace("time.sleep(self.pause)", "os.kill(os.getpid(), 9)")
    file = str(write_notebook(tmp_path / "91_deadly.ipynb", methods=deadly))
    runs = [{"method": "Slow"}, {"method": "FedAvg", "seed": [0, 1]}]
    outcomes = pool.run(jobs_of(write(tmp_path, {"one": TABLE | {"runs": runs}}, file)), jobs=2)
    errors = {outcome.job.path.name.split("-")[0]: outcome.error for outcome in outcomes}
    assert errors == {"Slow": "its process was killed (had it too little memory?)", "FedAvg": ""}
    assert len(list(tmp_path.glob("gpu *"))) == 2


# ---- a process


CELLS = {
    "parameters": "number = 1\nmore = {}",
    "run": "import os, sys, time\n"
    "print('number', number, 'there' if 'leftover' in dir(sys) else 'clean', os.environ.get('FEDNB_X'))\n"
    "sys.leftover = 1\n"
    "if number == 13:\n    raise ValueError('thirteen')\n"
    "if number > 90:\n    print('waits', os.getpid(), flush=True)\n    time.sleep(600)",
}


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A notebook in a folder whose name papermill would take for a template."""
    cells = [new_code_cell(source, metadata={"tags": [tag]}) for tag, source in CELLS.items()]
    file = tmp_path_factory.mktemp("own {seed}") / "own.ipynb"
    nbformat.write(new_notebook(cells=cells), file)
    return str(file)


def call(notebook, log, x="", **given):
    with processes.own_processes() as call:
        environment = os.environ | {"FEDNB_X": x}
        return call(engine.execute_run, notebook, given, environment=environment, log=log).result()


@pytest.mark.parametrize("can_fork", [True, False])
def test_runs_know_nothing_of_one_another(own, tmp_path, monkeypatch, can_fork):
    monkeypatch.setattr(processes, "CAN_FORK", can_fork and processes.CAN_FORK)
    log = tmp_path / "log"
    assert call(own, log, x="first", number=5) == ""
    assert log.read_text() == "number 5 clean first\n"
    if can_fork:  # a new process has nothing of another one's
        assert call(own, log, x="second") == ""
        assert log.read_text() == "number 5 clean first\nnumber 1 clean second\n"


def test_an_error_is_the_last_line(own, tmp_path):
    log = tmp_path / "log"
    reason = call(own, log, number=13)
    assert reason.startswith("cell [3], line ")
    assert reason.endswith(": ValueError: thirteen")
    assert "Traceback" in log.read_text()
    with pytest.raises(NotebookError, match="no parameter 'numbre'"):
        engine.execute_run(
            str(write_notebook(tmp_path / "91_x.ipynb", parameters="a = 1")), {"numbre": 1}
        )


def test_processes_end_with_the_context(own, tmp_path):
    log = tmp_path / "log"
    with processes.own_processes() as call:
        future = call(engine.execute_run, own, {"number": 99}, environment=os.environ, log=log)
        wait_for(lambda: log.exists() and log.read_text().endswith("\n"))
        assert not future.done()
    with pytest.raises(BrokenProcessPool):
        future.result(timeout=200)  # the run would take 600
    wait_for(lambda: not is_alive(int(log.read_text().split()[-1])))


def test_places_share_cores_and_gpus(monkeypatch):
    def of(name, count, gpus, **given):
        with monkeypatch.context() as patch:
            patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
            patch.setattr(torch.cuda, "device_count", lambda: gpus)
            for variable, value in given.items():
                patch.setenv(variable, value)
            assert processes.can_fork() == (not gpus and processes.CAN_FORK)
            return [pool.share(count, place).get(name) for place in range(count)]

    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert of("FEDNB_WORKERS", 3, 0) == ["2"] * 3
    assert of("FEDNB_WORKERS", 20, 0) == ["1"] * 20
    assert of("FEDNB_WORKERS", 1, 0, FEDNB_WORKERS="3") == ["3"]  # what is said counts
    assert of("FEDNB_WORKERS", 1, 2) == [None]  # one stream, not one for each core
    assert of("CUDA_VISIBLE_DEVICES", 4, 2) == ["0", "1", "0", "1"]
    assert of("CUDA_VISIBLE_DEVICES", 3, 2, CUDA_VISIBLE_DEVICES="5, 3") == ["5", "3", "5"]


def test_a_place_is_one_tasks_at_a_time():
    started = []
    futures = {}

    def start(task, place):
        started.append((task, place))
        futures[task] = Future()
        if len(futures) == 2:
            futures["b"].set_exception(ZeroDivisionError())
        if task in "cd":
            futures[task].set_result(task)
        return futures[task]

    ended = pool.side_by_side(deque("abcd"), start, 2)
    assert [task for task, _ in (next(ended), next(ended), next(ended))] == ["b", "c", "d"]
    assert started == [("a", 0), ("b", 1), ("c", 1), ("d", 1)]
    futures["a"].set_result("at last")
    assert list(ended) == [("a", "at last")]


# ---- groups


def test_seeds_of_a_cell_are_made_in_one_process_where_a_gpu_is(tmp_path, tiny, monkeypatch):
    grid = {"method": ["FedAvg", "Slow"], "seed": [3, 4]}
    table = TABLE | {"grid": grid, "runs": [{"num_rounds": 2}]}
    jobs = jobs_of(write(tmp_path, {"one": table}, tiny))
    asked = []

    def start(call, task, *_):
        asked.append([job.settings.seed for job in task.jobs])
        future = Future()
        future.set_result("not made")
        return future

    monkeypatch.setattr(pool, "start_process", start)
    for device in ("cpu", "cuda"):
        monkeypatch.setattr(build, "find_device", lambda device=device: device)
        assert [error for _, error in pool.run(jobs, jobs=60_000)] == ["not made"] * 5
    assert asked[:5] == [[3], [4], [3], [4], [0]]
    assert asked[10:13] == [[3, 4], [3, 4], [0]] and len(asked) == 16  # each twice


def test_a_group_is_one_process(tmp_path, tiny, monkeypatch):
    monkeypatch.setattr(build, "find_device", lambda: "cuda")  # of this process alone
    group = jobs_of(write(tmp_path, {"one": TABLE | {"grid": {"seed": [3, 4]}}}, tiny))
    assert [error for _, error in pool.run(group)] == ["", ""]
    assert [ledger.read(job.path)["settings"]["seed"] for job in group] == [3, 4]
    assert [rounds(log) for log in records("logs/*.log")] == [["1/1", "1/1"]]


def test_whole_notebooks_are_kept_on_request(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "ATTEMPTS", 1)
    file = write_notebook(tmp_path / "91_shown.ipynb")
    content = nbformat.read(file, 4)
    content.cells = [cell for cell in content.cells if "must not run" not in cell.source]
    content.cells.append(new_code_cell("method, record['status']"))
    nbformat.write(content, file)
    runs = [{"method": "Slow"}, {"method": "Broken"}]
    table = write(tmp_path, {"one": TABLE | {"runs": runs}}, str(file))
    assert main(["sweep", str(table), "--only", "method=Slow"]) == 0  # recorded, but not kept
    assert main(["sweep", str(table), "--notebooks", str(tmp_path / "kept")]) == 1
    kept = {path.name.split("-")[0]: nbformat.read(path, 4) for path in tmp_path.glob("kept/*")}
    assert kept.keys() == {"Slow", "Broken"}
    assert "'finished'" in kept["Slow"].cells[-1].outputs[0].data["text/plain"]
    assert len(list(tmp_path.glob("gpu *-*"))) == 1  # its record was enough
    assert json.dumps(kept["Broken"]).count("on purpose")


INTERRUPTED = """
from multiprocessing import forkserver
from fednb_lab import processes

processes.PRELOADED.clear()  # it would take seconds
processes.visible_gpus = list
with processes.own_processes():
    server = forkserver._forkserver._forkserver_pid
    with open(f"/proc/{server}/status") as file:
        print(next(line for line in file if line.startswith("SigIgn")).split()[1])
"""


def test_a_server_that_still_imports_leaves_an_interrupt_to_us() -> None:
    """In a terminal Ctrl-C reaches it, too; its traceback would be printed over our sentence."""
    command = [sys.executable, "-c", INTERRUPTED]
    ignored = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(ignored, 16) & 1 << (signal.SIGINT - 1)
