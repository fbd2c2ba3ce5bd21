"""Sweeps by priority and within a budget, what durations are learned from records, and the status of all runs."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
import yaml
from nbformat.v4 import new_code_cell, new_notebook
from waiting import wait_for

from fednb import papers
from fednb.__main__ import main
from fednb.experiments import build, durations, ledger, runner, settings, status, sweep
from fednb.experiments.durations import STARTING_SECONDS, Device, estimate, learn
from fednb.federation import FedAvg

# --- durations --------------------------------------------------------------------------------------------------------

GPU = Device("a GPU", True)
METHODS = dict.fromkeys(("FedAvg", "MOON", "FedProc", "Local"), FedAvg)


def record(method: str = "FedAvg", *, rounds: int = 10, seconds: float = 2.0, evaluation: float = 0.5, **given: Any) -> dict:
    """A record of so many equal rounds, on a GPU unless it is said otherwise."""
    head = {"device": "a GPU", "threads_per_client": None, "workers": 1, "finished_at": "2026-01-01"}
    head |= {name: given.pop(name) for name in list(given) if name in head}
    metrics = {"seconds": [seconds] * rounds, "evaluation_seconds": [evaluation] * rounds}
    return head | {
        "settings": chosen(method, **{"num_rounds": rounds} | given).flat(),
        "dataset": {"training_images": 50_000},
        "metrics": metrics,
    }


def chosen(method: str = "FedAvg", dataset: str = "cifar10", **given: Any) -> settings.Settings:
    return settings.resolve(METHODS, method=method, dataset=dataset, **given)


def expected(*records: dict, device: Device = GPU, tier: str = "minutes-gpu", history: Any = (), **given: Any) -> tuple:
    """Seconds after the start of the process, and what they are taken from."""
    seconds, basis = estimate(chosen(**given), tier, learn(records, device), history)
    return pytest.approx(seconds - STARTING_SECONDS), basis


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({"num_rounds": 10}, 10 * 2.5),
        ({"num_rounds": 30}, 30 * 2.5),
        ({"num_rounds": 10, "local_epochs": 5}, 10 * (1 + 0.5)),
        ({"num_rounds": 10, "local_epochs": 20}, 10 * (4 + 0.5)),
        ({"num_rounds": 10, "participation": 0.3}, 10 * (0.6 + 0.5)),
        ({"num_rounds": 10, "validation": 0.25}, 10 * (1.5 + 0.5)),
        ({"num_rounds": 10, "evaluate_every": 4}, 10 * 2 + 3 * 0.5),  # after 4, 8 and 10
        ({"num_rounds": 10, "local_steps": 5}, 10 * (2 * 10 * 5 * 64 / 500_000 + 0.5)),
        ({"num_rounds": 10, "local_steps": 10**6}, 10 * 2.5),
        ({"num_rounds": 10, "seed": 7, "lr": 0.5}, 10 * 2.5),
    ],
)
def test_an_estimate_is_proportional_to_the_images_and_evaluations(given: dict, seconds: float) -> None:
    assert expected(record(), **given) == (seconds, "method")
    # and so is what is learned from such a run
    images = durations.images_per_round(chosen(**given).flat(), 50_000)
    like = record(rounds=10, **given | {"num_rounds": 10}, seconds=images / 500_000 * 2.0)
    like["metrics"]["evaluation_seconds"] = [0.5] * durations.evaluations(like["settings"], 10)
    assert expected(like, num_rounds=100) == (100 * 2.5, "method")


def test_images_of_splits_that_do_not_use_the_whole_data_set() -> None:
    n_way = chosen("Local", "mnist", partition="n-way-k-shot", ways=4, shots=50).flat()
    assert durations.images_per_round(n_way, 60_000) == 20 * 4 * 50
    domains = chosen(dataset="digits5_mini").flat()
    assert durations.images_per_round(domains, 99) == 5 * 300 * domains["local_epochs"]


def test_the_closest_records_count() -> None:
    def of(*records: dict, method: str = "MOON", device: Device = GPU) -> tuple:
        return expected(*records, method=method, device=device, num_rounds=1)

    own, other = record("MOON", seconds=3.5), record("FedAvg", seconds=1.5)
    assert of(own, other) == (4, "method")
    assert of(other) == (2, "other methods")
    assert of(other, record("FedProc", seconds=2.5)) == (2.5, "other methods")
    # elsewhere MOON takes three times as long as FedAvg; how it relates to FedProc is not known
    elsewhere = [record("FedAvg", dataset="cifar100", seconds=1), record("MOON", dataset="cifar100", seconds=3)]
    assert of(other, record("FedProc", seconds=9), *elsewhere) == (5, "other methods")
    assert of(*elsewhere) == (300 - STARTING_SECONDS, "tier")
    assert expected(own, method="MOON", precision="bf16") == (300 - STARTING_SECONDS, "tier")
    assert expected(own, method="MOON", model="resnet-50", tier="hours-gpu") == (7200 - STARTING_SECONDS, "tier")
    # another GPU is better than another method, and never a CPU
    far = record("MOON", seconds=7.5, device="another GPU")
    cpu = record("MOON", seconds=99.5, device="a CPU", threads_per_client=1)
    assert of(own, far, cpu) == (4, "method")
    assert of(other, far, cpu) == (8, "method")
    assert of(cpu) == (300 - STARTING_SECONDS, "tier")
    assert of(cpu, own, far, device=Device("a CPU", False)) == (100, "method")


def test_on_a_cpu_workers_share_the_work() -> None:
    cpu = record(device="a CPU", threads_per_client=1, workers=2)
    assert expected(cpu, device=Device("a CPU", False, 1), num_rounds=1) == (5, "method")
    assert expected(cpu, device=Device("a CPU", False, 4), num_rounds=1) == (1.25, "method")
    assert expected(record(workers=1), device=GPU._replace(workers=8), num_rounds=1) == (2.5, "method")


def test_the_median_of_the_latest_records() -> None:
    old = [record(seconds=50, finished_at=f"2025-01-{day:02}") for day in range(1, 20)]
    new = [record(seconds=s, finished_at=f"2026-01-0{day}") for day, s in enumerate((1, 2, 3, 4, 99), 1)]
    assert expected(*new, *old, num_rounds=1) == (3.5, "method")
    assert expected(*old, *new, num_rounds=1) == (3.5, "method")


def test_records_without_rounds_teach_nothing_and_diverged_ones_do() -> None:
    failed = record() | {"metrics": {}}
    failed.pop("device")
    assert expected(failed)[1] == "tier"
    diverged = record(rounds=3, num_rounds=100)
    assert expected(diverged, num_rounds=100) == (250, "method")


def test_a_run_with_a_checkpoint_needs_only_what_is_left() -> None:
    history = [{"seconds": 4.0, "evaluation_seconds": 1.0}] * 60
    assert expected(record(), history=history, num_rounds=100) == (40 * 5, "checkpoint")
    assert expected(history=history, num_rounds=61) == (5, "checkpoint")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("9m", 540), ("1h30m", 5400), ("2h", 7200), ("1h0m5s", 3605), ("100m", 6000)]
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert durations.parse(text) == seconds


@pytest.mark.parametrize("text", ["", "9", "9 m", "m", "0s", "0h0m", "-9m", "9m1h", "9min", "1.5h", "9M", "٣m"])
def test_what_is_no_duration_is_refused(text: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["sweep", "x.yaml", f"--budget={text}"])
    assert caught.value.code == 2
    assert f"{text!r} is not a duration such as 90s, 9m or 1h30m" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0s"),
        (59.4, "59s"),
        (60, "1m"),
        (599, "9m59s"),
        (600, "10m"),
        (3599, "1h"),
        (5400, "1h30m"),
        (47.9 * 3600, "47h54m"),
        (50 * 3600, "2d2h"),
        (10 * 86400, "10d"),
    ],
)
def test_durations_are_written(seconds: float, text: str) -> None:
    assert durations.words(seconds) == text


# --- a tiny notebook --------------------------------------------------------------------------------------------------

CELLS = {
    "setup": "from fednb import runs, settings",
    "parameters": """
method = "FedAvg"
dataset = "digits"
seed = 0
num_rounds = 1
local_epochs = 1
num_clients = 2
pause = None
""",
    "export": """
import time
from dataclasses import dataclass

from fednb.federation import FedAvg


@dataclass
class Slow(FedAvg):
    pause: float = 0.0

    def round(self, *args):
        time.sleep(self.pause)
        return super().round(*args)


METHODS = {m.__name__: m for m in (FedAvg, Slow)}
""",
    "run": """
given = {name: globals()[name] for name in ("seed", "num_rounds", "local_epochs", "num_clients", "pause")}
chosen = settings.resolve(METHODS, method=method, dataset=dataset, **given)
record = runner.run(chosen, METHODS, checkpoint_seconds=0)
""",
}
TABLE = {"title": "A title", "rows": "seed", "columns": "dataset", "tier": "minutes-cpu"}


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notebooks")
    cells = [new_code_cell(source.strip(), metadata={"tags": [tag]}) for tag, source in CELLS.items()]
    nbformat.write(new_notebook(cells=cells), folder / "90_budgettest.ipynb")
    (folder / "sweeps").mkdir()
    return folder


@pytest.fixture(autouse=True)
def places(notebooks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(notebooks))
    monkeypatch.setenv("FEDNB_RUNS", str(tmp_path / "results" / "runs"))


def write(folder: Path, name: str = "sweep", **tables: dict) -> Path:
    file = folder / f"{name}.yaml"
    entries = {name: TABLE | table for name, table in tables.items()}
    file.write_text(yaml.safe_dump({"notebook": "90_budgettest", "tables": entries}), encoding="utf-8")
    return file


def seeds(jobs: list[sweep.Job]) -> list[int]:
    return [job.settings.seed for job in jobs]


def write_record(job: sweep.Job, **given: Any) -> None:
    head = {"key": job.path.stem[-12:], "results_version": ledger.RESULTS_VERSION, "status": "finished", "departures": []}
    data = {"note": "", "training_images": 1500}
    content = head | {"settings": job.settings.flat(), "dataset": data, "metrics": {}} | given
    ledger.write_atomically(job.path, json.dumps(content))


# --- priorities -------------------------------------------------------------------------------------------------------


def test_runs_are_made_by_priority_then_as_in_the_files(tmp_path: Path) -> None:
    write(tmp_path, "a", usual={"grid": {"seed": [4, 1, 7]}}, last={"grid": {"seed": [6, 1]}, "priority": 101})
    write(tmp_path, "b", second={"grid": {"seed": [3, 2]}, "priority": 2}, first={"grid": {"seed": [2, 4]}, "priority": 1})
    recorded, todo = sweep.plan(sweep.read(tmp_path).values())
    assert seeds(todo) == [2, 4, 3, 1, 7, 6]  # 2 and 4 have the best of their tables' priorities, 1 the usual one
    assert [(job.priority, job.table) for job in todo[:3]] == [(1, "first"), (1, "first"), (2, "second")]
    assert not recorded


def test_a_priority_for_some_data_sets(tmp_path: Path) -> None:
    grid = {"dataset": ["digits", "mnist"], "seed": [0, 1]}
    read = sweep.read(write(tmp_path, one={"grid": grid, "priority": {"mnist": 3}}))["one"]
    assert [(job.settings.dataset, job.priority) for job in sweep.unique([read])[1:3]] == [("mnist", 3), ("digits", 100)]


@pytest.mark.parametrize(
    ("priority", "message"),
    [
        (0, "priority is 0; it must be a whole number from 1"),
        (True, "priority is True; it must be a whole number"),
        ("high", "priority is 'high'; it must be a whole number"),
        ({"digits": 1.5}, "priority is 1.5; it must be a whole number"),
        ({"mnist": 1}, "priority names the data set 'mnist', which no run of the table has"),
    ],
)
def test_a_wrong_priority_is_refused(tmp_path: Path, priority: object, message: str) -> None:
    with pytest.raises(sweep.SweepError, match=f"^sweep.yaml, table bad: {message}"):
        sweep.read(write(tmp_path, bad={"grid": {"seed": [0]}, "priority": priority}))


def test_the_papers_main_tables_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDNB_NOTEBOOKS")
    tables = sweep.choose(sweep.read(papers.folder() / "sweeps").values(), ["minutes-gpu", "minutes-cpu"])
    order = dict.fromkeys(job.table for job in sweep.unique(tables) if job.priority < sweep.DEFAULT_PRIORITY)
    known = ["moon-1", "fedproc-2", "fedproc-4", "fedssc-1", "fedproto-2", "moon-5", "moon-12", "moon-figure-7"]
    assert [name for name in order if name in known] == known


# --- budgets ----------------------------------------------------------------------------------------------------------


class Machine:
    """Makes one run at a time, in seconds that pass only here; runs are known by their seeds."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, takes: dict[int, float], thinks: dict[int, float] | None = None
    ) -> None:
        self.now, self.takes, self.made = 0.0, takes, []
        monkeypatch.setattr(sweep, "execute_again", self.execute)
        if thinks is not None:
            monkeypatch.setattr(sweep, "Forecast", lambda jobs: self)
            self.thinks = thinks

    def __call__(self, job: sweep.Job) -> durations.Estimate:
        return durations.Estimate(self.thinks[job.settings.seed], "made up")

    def learn(self, job: sweep.Job) -> None:
        assert job.recorded

    def clock(self) -> float:
        return self.now

    def execute(self, job: sweep.Job, env: dict, *, attempts: int, stop: Callable[[], bool]) -> str | None:
        seed = job.settings.seed
        self.made.append(seed)
        for _ in range(int(self.takes[seed])):
            if stop():
                return sweep.STOPPED
            self.now += 1
        if seed == 13:
            return "broken on purpose"
        metrics = {"seconds": [self.takes[seed]], "evaluation_seconds": [0.0]}
        write_record(job, metrics=metrics, device=build.device_name()[0], threads_per_client=1, workers=1)
        return None


def test_a_run_that_does_not_fit_is_passed_over_for_a_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    takes = {0: 30, 1: 50, 2: 25, 3: 41, 4: 5, 5: 200}
    machine = Machine(monkeypatch, takes, takes)
    file = write(tmp_path, usual={"grid": {"seed": [0, 1, 2, 3, 4]}}, urgent={"grid": {"seed": [5, 4]}, "priority": 1})
    tables = sweep.read(file).values()
    summary = sweep.run(tables, budget=100, clock=machine.clock)
    assert machine.made == [4, 0, 1]  # 5 never fits; 15 s are left, too few for 2 and 3
    assert (seeds(summary.done), summary.stopped, summary.failed) == ([4, 0, 1], [], [])
    assert [(job.settings.seed, seconds) for job, seconds in summary.unfit] == [(5, 200), (2, 25), (3, 41)]
    machine.now, machine.made = 0, []
    assert seeds(sweep.run(tables, budget=45, clock=machine.clock).done) == machine.made == [2]
    assert seeds(sweep.run(tables, budget=41, clock=machine.clock).done) == [3]
    assert not sweep.run(tables, budget=0, clock=machine.clock).done
    assert not sweep.run(tables, budget=-5, clock=machine.clock).done


def test_what_still_runs_at_the_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, {0: 10, 1: 500, 2: 10}, dict.fromkeys(range(3), 10))
    summary = sweep.run(
        sweep.read(write(tmp_path, one={"grid": {"seed": [0, 1, 2]}})).values(), budget=60, clock=machine.clock
    )
    assert (seeds(summary.done), seeds(summary.stopped), machine.now) == ([0], [1], 60)
    assert [seconds for _, seconds in summary.unfit] == [10]
    assert not summary.failed


def test_estimates_follow_the_first_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    machine = Machine(monkeypatch, dict.fromkeys(range(9), 60))
    tables = sweep.read(write(tmp_path, one={"grid": {"seed": list(range(9))}})).values()
    # at first the tier's 300 s are all that is known; then 60 s, and those of a new process
    summary = sweep.run(tables, budget=320, clock=machine.clock)
    assert machine.made == [0, 1, 2, 3, 4]
    assert {seconds for _, seconds in summary.unfit} == {60 + STARTING_SECONDS}


def test_several_at_once_within_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, together = Machine(monkeypatch, {}, {0: 90, 1: 60, 2: 150, 3: 60, 4: 60}), threading.Barrier(2)

    def execute(job: sweep.Job, env: dict, *, stop: Callable[[], bool], **_: object) -> str | None:
        machine.made.append(job.settings.seed)
        if together.wait(timeout=60) == 0:  # passes only if there are two
            machine.now += 40
        together.wait(timeout=60)
        write_record(job)
        return None

    monkeypatch.setattr(sweep, "execute_again", execute)
    tables = sweep.read(write(tmp_path, one={"grid": {"seed": list(range(5))}})).values()
    summary = sweep.run(tables, jobs=2, budget=100, clock=machine.clock)
    assert [sorted(machine.made[:2]), sorted(machine.made[2:])] == [[0, 1], [3, 4]]
    assert seeds([job for job, _ in summary.unfit]) == [2]


def test_the_command_says_what_became_of_a_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("FEDNB_DATA", str(tmp_path))
    thinks = {0: 1.0, 1: 10_000.0, 2: 800.0, 13: 1.0}
    machine = Machine(monkeypatch, dict.fromkeys(thinks, 0), thinks)
    file = write(tmp_path, one={"grid": {"seed": [0, 1, 2]}}, without={"grid": {"dataset": ["cifar10"], "seed": [0, 1]}})
    monkeypatch.setattr(durations, "Forecast", lambda jobs: machine)
    assert main(["sweep", str(file), "--budget", "10m", "--dry-run"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1:3] == ["one: 90_budgettest seed=0  (about 1s)", "one: 90_budgettest seed=1  (about 2h47m)"]
    assert shown[4] == "without: 90_budgettest dataset=cifar10 seed=0  (no data)"
    assert main(["sweep", str(file), "--budget", "10m"]) == 0
    out = capsys.readouterr().out.splitlines()[-1]
    assert out.startswith(
        "1 runs made, 0 failed, 0 stopped at the end of the budget, 2 did not fit (the shortest takes about 13m), "
        "2 lack data; records are in "
    )
    assert main(["sweep", str(file), "--budget", "10m", "--only", "dataset=cifar10"]) == 2  # nothing can be made
    assert "CIFAR-10 was not found" in capsys.readouterr().err
    broken = write(tmp_path, "broken", one={"grid": {"seed": [13]}})
    assert main(["sweep", str(broken), "--budget", "10m"]) == 1
    assert main(["sweep", str(broken), "--budget", "10m", "--scheduler", "tcp://nowhere:1"]) == 2
    assert "leave out the budget or the scheduler" in capsys.readouterr().err
    with pytest.raises(sweep.SweepError, match="leave out the budget"):
        sweep.run([], budget=1, scheduler="tcp://nowhere:1")


# --- runs that are interrupted ----------------------------------------------------------------------------------------


def test_a_sweep_that_is_stopped_and_killed_ends_with_the_same_tables(
    notebooks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {"grid": {"seed": [0, 1]}, "parameters": {"method": "Slow", "pause": 0.15, "num_rounds": 15}}
    file = write(notebooks / "sweeps", one=table)
    tables = sweep.read(file)
    first, second = tables["one"].jobs

    def rounds() -> int:
        return sum(15 if job.path.exists() else len(runner.history(job.path)) for job in (first, second))

    def states() -> list[str]:
        return [status.States(ledger.load())(job) for job in (first, second)]

    # the budget ends during the first run
    summary = sweep.run(tables.values(), budget=400, clock=lambda: 400.0 if rounds() > 1 else 0.0)
    assert (summary.stopped, [job for job, _ in summary.unfit], summary.done, summary.failed) == ([first], [second], [], [])
    wait_for(lambda: states() == ["stopped", "missing"], 200)
    made = [rounds()]
    assert durations.Forecast()(first).basis == "checkpoint"

    # forked, so that what takes long to import is there
    fork, rng = multiprocessing.get_context("fork"), random.Random(0)
    for _ in range(3):
        process = fork.Process(target=main, args=(["sweep", str(file)],))
        process.start()
        try:
            goal = made[-1] + rng.randint(1, 6)
            wait_for(lambda goal=goal: rounds() >= goal, 200)
            time.sleep(rng.uniform(0, 0.3))
        finally:
            process.kill()
            process.join()
        wait_for(lambda: "running" not in states(), 200)  # the kernel ends, too
        made.append(rounds())
    assert 1 < made[0] < made[1] < made[2] < made[3] < 30  # nothing was lost, and each time there was something to do
    assert main(["sweep", str(file), "--budget", "20m"]) == 0
    assert states() == ["recorded", "recorded"]
    assert not [*(tmp_path / "results" / "checkpoints").glob("*.pt")]

    monkeypatch.setenv("FEDNB_RUNS", str(tmp_path / "through" / "runs"))
    for job in tables["one"].jobs:
        runner.run(job.settings, papers.load("budgettest").METHODS)
    tables_of = []
    for name in ("results", "through"):
        assert main(["report", "--runs", str(tmp_path / name / "runs"), "--out", str(tmp_path / name)]) == 0
        written = [path for path in (tmp_path / name / "tables").rglob("*") if path.is_file()]
        tables_of.append({path.name: path.read_text() for path in written})
    assert tables_of[0] == tables_of[1]
    assert "one.md" in tables_of[0]
    file.unlink()


# --- status -----------------------------------------------------------------------------------------------------------


def test_status_knows_every_state_and_counts_each_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("FEDNB_DATA", str(tmp_path))
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    write(tmp_path, "a", one={"grid": {"seed": list(range(8))}}, two={"grid": {"seed": [7, 8]}, "tier": "minutes-gpu"})
    lacking = {"grid": {"dataset": ["cifar10"], "seed": [0, 1]}, "tier": "hours-gpu"}
    write(tmp_path, "b", three={"grid": {"seed": [0, 9]}, "tier": "hours-gpu"}, lacking=lacking)
    jobs = {job.settings.seed: job for job in sweep.read(tmp_path)["one"].jobs}
    checkpoints = ledger.runs_folder().parent / "checkpoints"
    checkpoints.mkdir(parents=True)

    def set_aside(job: sweep.Job) -> None:
        torch.save({"history": []}, checkpoints / f"{job.path.stem}.pt")
        (checkpoints / f"{job.path.stem}.lock").touch()  # it stays when the process that held it has gone

    device = {"device": build.device_name()[0], "threads_per_client": 1, "workers": 1}
    write_record(jobs[0], metrics={"seconds": [20.0], "evaluation_seconds": [10.0]}, **device)
    write_record(jobs[1], status="diverged")
    set_aside(jobs[2])
    set_aside(jobs[3])
    set_aside(jobs[4])
    write_record(jobs[4], status="failed")
    write_record(jobs[5], results_version=ledger.RESULTS_VERSION - 1)
    jobs[5].path.rename(jobs[5].path.with_name("FedAvg-digits-seed5-of-an-older-version.json"))
    write_record(jobs[6], status="failed")
    with runs._locked(checkpoints / f"{jobs[2].path.stem}.lock"), runs._locked(checkpoints / f"{jobs[6].path.stem}.lock"):
        assert main(["status", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    names = lines[0].replace("no data", "no-data").split()
    assert names == ["runs", *(state.replace(" ", "-") for state in status.STATES)]
    counts = {words[0]: dict(zip(names, words[1:], strict=True)) for words in map(str.split, lines[1:4])}
    one_each = {
        "recorded": "1",
        "diverged": "1",
        "running": "2",
        "stopped": "1",
        "failed": "1",
        "no-data": "-",
        "stale": "1",
    }
    assert counts["a"] == {"runs": "9"} | one_each | {"missing": "2"}  # the seeds 7 and 8; 7 is in two tables
    assert counts["b"] == {"runs": "3"} | dict.fromkeys(one_each, "-") | {"no-data": "2", "missing": "1"}  # 0 is in a.yaml
    assert counts["together"] == {"runs": "12"} | one_each | {"no-data": "2", "missing": "3"}
    # 30 s and the start of each, as of the one that is recorded: 2 to 7, then 8, then 9; 0 has no data
    assert lines[-3:] == [
        "minutes-cpu     6 to be made: about 4m here, one at a time",
        "minutes-gpu     1 to be made: about 40s here, one at a time",
        "hours-gpu       1 to be made: about 40s here, one at a time",
    ]
    assert main(["status", str(tmp_path / "b.yaml"), "--tier", "minutes-gpu"]) == 0
    assert capsys.readouterr().out == "No run is chosen.\n"
    assert main(["status", str(tmp_path / "a.yaml"), "--tier", "minutes-gpu"]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:3]] == [["a", "2"], ["together", "2"]]
    assert main(["status", str(tmp_path), "--tier", "minutes"]) == 2
    assert "There is no tier 'minutes'" in capsys.readouterr().err


def test_a_lock_is_seen_while_it_is_held_and_asking_does_not_take_it(tmp_path: Path) -> None:
    path = ledger.runs_folder() / "a-run.json"
    assert not runner.in_progress(path)
    lock = tmp_path / "results" / "checkpoints" / "a-run.lock"
    lock.parent.mkdir(parents=True)
    with runs._locked(lock):
        assert runner.in_progress(path) and runner.in_progress(path)
    assert not runner.in_progress(path)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_checkpoint_that_cannot_be_read_has_no_history(tmp_path: Path) -> None:
    path = ledger.runs_folder() / "a-run.json"
    assert (runner.history(path), runner.has_checkpoint(path)) == ([], False)
    checkpoint = tmp_path / "results" / "checkpoints" / "a-run.pt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(b"half a checkpoi")
    assert (runner.history(path), runner.has_checkpoint(path)) == ([], True)


def test_guesses_for_a_gpu_are_not_added_to_what_is_known_of_a_cpu() -> None:
    left = [durations.Estimate(100, "method"), durations.Estimate(300, "tier"), durations.Estimate(20, "checkpoint")]
    line = status._time("minutes-gpu", left)
    assert line.startswith("minutes-gpu     3 to be made: about 2m here, one at a time; 1 without a record like them, ")
    assert line.endswith(", by the tier about 5m on a GPU")
