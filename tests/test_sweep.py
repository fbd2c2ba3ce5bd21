"""Sweeps and the command line, with a tiny notebook of their own."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import nbformat
import psutil
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_notebook
from waiting import wait_for

from fednb import papers
from fednb.__main__ import main
from fednb.experiments import ledger, runner, sweep

PARAMETERS = """
method = "FedAvg"
dataset = "digits"  # the data
seed: int = 0
num_rounds = 1
local_epochs = 1
num_clients = 2
lr = None
weight_decay = None
pause = None
"""
NAMES = ("method", "dataset", "seed", "num_rounds", "local_epochs", "num_clients", "lr", "weight_decay", "pause")
METHODS = """
import os
import time
from dataclasses import dataclass
from pathlib import Path

from fednb.federation import FedAvg


def mark(name):
    folder = Path(os.environ["FEDNB_TEST_MARKS"])
    (folder / f"{name}-{time.time_ns()}").touch()
    return len(list(folder.glob(f"{name}-*")))


@dataclass
class Slow(FedAvg):
    pause: float = 0.0

    def round(self, *args):
        time.sleep(self.pause)
        return super().round(*args)


@dataclass
class Pair(FedAvg):  # ends only if two run at once
    def round(self, *args):
        mark("pair")
        for _ in range(200):
            if len(list(Path(os.environ["FEDNB_TEST_MARKS"]).glob("pair-*"))) > 1:
                return super().round(*args)
            time.sleep(0.1)
        raise TimeoutError("alone")


@dataclass
class Flaky(FedAvg):
    def round(self, *args):
        if mark("flaky") == 1:
            raise RuntimeError("the first time")
        return super().round(*args)


@dataclass
class Broken(FedAvg):
    def round(self, *args):
        mark("broken")
        raise RuntimeError("broken\\non purpose")


@dataclass
class Diverging(Pair):
    def loss(self, *args):
        return {name: value * float("nan") for name, value in super().loss(*args).items()}


METHODS = {m.__name__: m for m in (FedAvg, Slow, Pair, Flaky, Broken, Diverging)}
"""
TABLE = {"title": "A title", "rows": "method", "columns": "dataset", "tier": "minutes-cpu"}
MIXED = TABLE | {
    "runs": [
        {"method": "Pair", "seed": 1},
        {"method": "Diverging"},
        {"method": "Broken"},
        {"method": "Flaky", "weight_decay": 2e-05},
    ]
}


def cell(source: str, *tags: str) -> nbformat.NotebookNode:
    return new_code_cell(source.strip(), metadata={"tags": list(tags)})


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notebooks")
    arguments = ", ".join(f"{name}={name}" for name in NAMES)
    cells = [
        cell("from fednb import runs, settings", "setup"),
        cell(PARAMETERS, "parameters"),
        cell(METHODS, "export"),
        cell("mark('untagged')\nraise RuntimeError('this cell must not run')"),
        cell(f"chosen = settings.resolve(METHODS, {arguments})\nrecord = runner.run(chosen, METHODS)", "run"),
        cell("mark('after')", "results"),
    ]
    nbformat.write(new_notebook(cells=cells), folder / "90_sweeptest.ipynb")
    nbformat.write(new_notebook(cells=[cells[1], cells[2]]), folder / "91_norun.ipynb")
    nbformat.write(new_notebook(cells=[cells[1], cells[2], cell("x = 1", "parameters")]), folder / "92_twoparameters.ipynb")
    return folder


@pytest.fixture(autouse=True)
def places(notebooks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(notebooks))
    monkeypatch.setenv("FEDNB_RUNS", str(tmp_path / "results" / "runs"))
    monkeypatch.setenv("FEDNB_TEST_MARKS", str(tmp_path))


def write(folder: Path, tables: dict[str, object], notebook: str = "90_sweeptest", name: str = "sweep.yaml") -> Path:
    file = folder / name
    file.write_text(yaml.safe_dump({"notebook": notebook, "tables": tables}), encoding="utf-8")
    return file


def records(folder: Path | None = None) -> list[Path]:
    return sorted((folder or ledger.runs_folder()).glob("*.json"))


def no_processes(*args: object, **kwargs: object) -> None:
    raise AssertionError("a process was started")


# --- files and settings -----------------------------------------------------------------------------------------------


def test_runs_are_the_grid_and_the_single_ones(tmp_path: Path) -> None:
    table = TABLE | {
        "rows": {"parameter": "method", "labels": {"Slow": "slow one"}},
        "parameters": {"num_rounds": 3, "lr": 0.5},
        "grid": {"method": ["FedAvg", "Slow"], "seed": [0, 1, 2]},
        "runs": [{"method": "Slow", "pause": [0.5, 1], "seed": [3, 4]}, {"method": "Pair", "num_rounds": 7}],
    }
    read = sweep.read(write(tmp_path, {"one": table}))["one"]
    assert [(j.settings.method, j.settings.seed) for j in read.jobs] == [
        *((m, s) for m in ("FedAvg", "Slow") for s in range(3)),
        *(("Slow", s) for s in (3, 4, 3, 4)),
        ("Pair", 0),
    ]
    assert {j.settings.num_rounds for j in read.jobs[:-1]} == {3}
    assert read.jobs[-1].parameters == {"num_rounds": 7, "lr": 0.5, "method": "Pair"}
    assert read.jobs[-1].settings.num_clients == 2  # the notebook's own
    assert (read.notebook, read.measure, read.printed) == ("90_sweeptest", "accuracy", None)
    assert [read.rows.label(value) for value in ("Slow", "Pair")] == ["slow one", "Pair"]
    assert len({j.path for j in read.jobs}) == 11


def test_equal_runs_of_tables_and_files_are_one(tmp_path: Path) -> None:
    write(tmp_path, {"one": TABLE | {"grid": {"method": ["FedAvg"], "seed": [0, 1]}}})
    write(tmp_path, {"two": TABLE | {"grid": {"method": ["FedAvg"], "seed": [1, 2]}}}, "sweeptest", "z.yaml")
    tables = sweep.read(tmp_path)
    assert list(tables) == ["one", "two"]
    assert [job.settings.seed for job in sweep.plan(tables.values())[1]] == [0, 1, 2]
    write(tmp_path, {"two": TABLE | {"grid": {"method": ["FedAvg"]}}}, name="y.yaml")
    with pytest.raises(sweep.SweepError, match=r"z\.yaml: there is a table 'two' in y\.yaml already"):
        sweep.read(tmp_path)


@pytest.mark.parametrize("text", ["1e-05", "1E-5", "1.0e-5", ".00001", "1.e-05"])
def test_numbers_as_people_write_them(tmp_path: Path, text: str) -> None:
    lines = f"{{title: t, rows: method, columns: dataset, tier: minutes-cpu, runs: [{{weight_decay: {text}}}]}}"
    file = tmp_path / "s.yaml"
    file.write_text(f"notebook: sweeptest\ntables:\n  one: {lines}\n")
    assert repr(sweep.read(file)["one"].jobs[0].parameters["weight_decay"]) == "1e-05"


def test_strings_stay_strings() -> None:
    assert yaml.load("[e5, 1e, 12ab, 1-5, 7, yes]", sweep._Loader) == ["e5", "1e", "12ab", "1-5", 7, True]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"title": None}, "title is missing"),
        ({"colums": "dataset"}, "has no key 'colums'.*did you mean 'columns'"),
        ({"tier": "weeks"}, "tier is 'weeks'; it must be one of minutes-cpu"),
        ({"tier": {"digits": "weeks"}}, "tier is 'weeks'; it must be one of minutes-cpu"),
        ({"tier": {"cifar10": "minutes-cpu"}}, "tier says nothing about the data set 'digits'"),
        ({"best_of": "las"}, "no parameter 'las': known are method"),
        ({"baseline": "FedAgv"}, "there is no row 'FedAgv': known are FedAvg; did you mean 'FedAvg'"),
        (
            {"baseline": "FedAvg", "runs": [{"method": "Slow", "seed": 3}]},
            "the baseline 'FedAvg' has no run in column 'digits' with seed 3, as others have",
        ),
        ({"target": "68 %"}, "target is '68 %'; it must be an accuracy in percent, above 0 and at most 100"),
        ({"target": 0}, "target is 0; it must be an accuracy in percent"),
        ({"target": True}, "target is True; it must be an accuracy in percent"),
        ({"rows": {"parameter": "method", "named": {"x": {"las": 1}}}}, "no parameter 'las'"),
        ({"rows": {"parameter": "method", "named": {"x": {"lr": 1.0}}}}, "rows names 'x', which no run of the table is"),
        ({"rows": {"parameter": "method", "named": {"x": {}}}}, "named in rows must map names to parameters"),
        ({"rows": "metod"}, "no parameter 'metod'.*did you mean 'method'"),
        ({"rows": {"parameter": "method", "labels": {"FedAgv": "x"}}}, "label for method 'FedAgv', which no run"),
        ({"printed": "MOON Table 99"}, "no table 'MOON Table 99'"),
        ({"grid": {"seed": 3}}, "grid must map names to lists"),
        ({"grid": {"seed": []}}, "grid must map names to lists"),
        ({"grid": None}, "neither a grid nor runs"),
        ({"runs": [{"lr": []}]}, "a list of values in runs is empty"),
        ({"parameters": {"lr": [1, 2]}}, r"lr is \[1, 2\]; it must be a number"),
        ({"runs": [{"lr": -1.0}]}, "lr is -1.0; it must be a positive number"),
        ({"parameters": {"numrounds": 5}}, "no parameter 'numrounds': known are method, .*did you mean 'num_rounds'"),
        ({"parameters": {"pause": 1}}, "FedAvg has no parameter 'pause'"),
    ],
)
def test_a_wrong_table_is_refused_in_one_sentence(tmp_path: Path, change: dict, message: str) -> None:
    file = write(tmp_path, {"bad": TABLE | {"grid": {"method": ["FedAvg"]}} | change})
    with pytest.raises(sweep.SweepError, match=message) as caught:
        sweep.read(file)
    assert str(caught.value).startswith("sweep.yaml, table bad")
    assert "\n" not in str(caught.value)


def test_names_that_several_settings_make(tmp_path: Path) -> None:
    named = {"FedAvg, fast": {"method": "FedAvg", "lr": 0.5}, "fast": {"lr": 0.5}}
    table = TABLE | {"rows": {"parameter": "method", "labels": {"FedAvg": "average"}, "named": named}}
    table["grid"] = {"method": ["FedAvg", "Slow"], "lr": [0.5, 0.1]}
    table |= {"baseline": "average", "best_of": "pause", "target": 60}
    read = sweep.read(write(tmp_path, {"one": table}))["one"]
    assert [read.rows.name(job) for job in read.jobs] == ["FedAvg, fast", "fast", "average", "Slow"]
    assert (read.baseline, read.best_of, read.target) == ("average", "pause", 60.0)


MINI = ("Digits", "Slanted", "Blended", "Fonts", "Scenes")


def domain_table(**more: object) -> dict:
    return TABLE | {"columns": "domains", "parameters": {"dataset": "digits5_mini", "num_clients": 5}} | more


def test_columns_that_are_the_domains_of_the_data_set(tmp_path: Path) -> None:
    grid = {"method": ["FedAvg", "Slow"], "seed": [0, 1]}
    tables = {"with": domain_table(grid=grid, baseline="FedAvg"), "without": domain_table(grid=grid)}
    tables = sweep.read(write(tmp_path, tables))
    expected = {name: f"accuracy in {name}" for name in MINI} | {"Avg.": "accuracy"}
    assert list(tables["without"].columns.measures.items()) == list(expected.items())
    assert list(tables["with"].columns.measures.items()) == [*expected.items(), ("Delta", "lead")]
    read = tables["with"]
    assert len(read.jobs) == 4
    assert read.columns.names(read.jobs[0]) == [*MINI, "Avg.", "Delta"]
    assert read.rows.names(read.jobs[0]) == ["FedAvg"]
    assert (read.measure, read.measure_of("Scenes"), read.measure_of("Delta")) == ("accuracy", "accuracy in Scenes", "lead")
    assert read.measures == [*expected.values(), "lead"]
    assert len(sweep.plan([read])[1]) == 4


def test_columns_with_measures_of_their_own(tmp_path: Path) -> None:
    measures = {"Avg.": "accuracy", 5: "lead"}
    table = TABLE | {"columns": {"measures": measures}, "baseline": "FedAvg", "grid": {"method": ["FedAvg", "Slow"]}}
    read = sweep.read(write(tmp_path, {"one": table, "two": TABLE | {"grid": {"seed": [0]}}}))
    assert read["one"].columns.measures == {"Avg.": "accuracy", "5": "lead"}
    assert (read["two"].columns.measures, read["two"].measures, read["two"].measure_of("x")) == (
        {},
        ["accuracy"],
        "accuracy",
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parameters": {}}, "columns: domains needs a data set of several domains, and digits is none"),
        (
            {"parameters": {}, "grid": {"dataset": ["digits", "mnist"]}},
            "columns: domains are those of one data set, but its runs have digits, mnist: divide the table",
        ),
        ({"measure": "best"}, "its columns have measures of their own, and a run fills a row of them: leave out measure"),
        ({"best_of": "lr"}, "its columns have measures of their own, .*: leave out best_of"),
        ({"columns": {"measures": {}}}, "measures in columns must map names of columns to measures"),
        ({"columns": {"measures": ["lead"]}}, "measures in columns must map names of columns to measures"),
        ({"columns": {"measures": {"a": 1}}}, "measures in columns must map names of columns to measures"),
        ({"columns": {"measures": {"a": "lead"}, "labels": {}}}, "columns has no key 'labels'"),
        ({"rows": {"measures": {"a": "lead"}}}, "rows: parameter is missing"),
        (
            {"baseline": "FedAvg", "runs": [{"method": "Slow", "seed": 3}]},
            "the baseline 'FedAvg' has no run in column 'Digits' with seed 3, as others have",
        ),
    ],
)
def test_wrong_columns_are_refused_in_one_sentence(tmp_path: Path, change: dict, message: str) -> None:
    file = write(tmp_path, {"bad": domain_table(grid={"method": ["FedAvg"]}) | change})
    with pytest.raises(sweep.SweepError, match=f"^sweep.yaml, table bad: {message}"):
        sweep.read(file)


def test_tiers_and_choosing_runs(tmp_path: Path) -> None:
    tiers = {"digits": "minutes-cpu", "mnist": "hours-gpu", "cifar10": "minutes-gpu"}
    grid = {"dataset": ["mnist", "digits"], "method": ["FedAvg", "Slow"], "seed": [0, 1]}
    file = write(tmp_path, {"both": TABLE | {"tier": tiers, "grid": grid}, "one": TABLE | {"runs": [{"seed": 5}]}})
    tables = sweep.read(file)
    assert {(job.settings.dataset, job.tier) for job in tables["both"].jobs} == {
        ("digits", "minutes-cpu"),
        ("mnist", "hours-gpu"),
    }
    assert tables["both"].tiers == ["minutes-cpu", "hours-gpu"]
    assert tables["one"].tiers == ["minutes-cpu"]

    def chosen(**options: object) -> dict[str, int]:
        return {table.name: len(table.jobs) for table in sweep.choose(tables.values(), **options)}

    assert chosen() == {"both": 8, "one": 1}
    assert chosen(tiers=["hours-gpu"]) == {"both": 4}
    assert chosen(tiers=["hours-gpu", "minutes-cpu"]) == {"both": 8, "one": 1}
    assert chosen(tiers=["minutes-gpu"]) == {}
    assert chosen(only=[("dataset", "mnist"), ("seed", 1)]) == {"both": 2}
    assert chosen(only=[("seed", 5), ("seed", 1)]) == {"both": 4, "one": 1}
    assert chosen(tiers=["minutes-cpu"], only=[("pause", 0.0)]) == {"both": 2}  # only Slow has it


def test_the_command_line_chooses_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    tiers = {"digits": "minutes-cpu", "mnist": "hours-gpu"}
    grid = {"dataset": ["mnist", "digits"], "seed": [0, 1]}
    file = str(write(tmp_path, {"t": TABLE | {"tier": tiers, "grid": grid}}))
    assert main(["sweep", file, "--dry-run", "--tier", "minutes-cpu", "--only", "seed=1"]) == 0
    assert capsys.readouterr().out == "1 runs: 0 recorded, 1 to do.\nt: 90_sweeptest dataset=digits seed=1\n"
    made = []
    monkeypatch.setattr(sweep, "run", lambda tables, **_: made.extend(j for t in tables for j in t.jobs) or sweep.Summary())
    assert main(["sweep", file, "--only", "dataset=digits"]) == 0
    assert [job.parameters for job in made] == [{"dataset": "digits", "seed": 0}, {"dataset": "digits", "seed": 1}]


def test_a_name_given_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("notebook: sweeptest\ntables:\n  one: {}\n  one: {}\n")
    with pytest.raises(sweep.SweepError, match="'one' is given twice"):
        sweep.read(file)


def test_defaults_and_reduced() -> None:
    assert sweep.defaults("sweeptest")["lr"] is None
    assert list(sweep.defaults("sweeptest")) == list(NAMES)
    with pytest.raises(sweep.SweepError, match="has 2 code cells tagged 'parameters'"):
        sweep.defaults("92_twoparameters")
    with pytest.raises(sweep.SweepError, match="no code cell tagged 'run'"):
        sweep.reduced("91_norun")
    assert [c.metadata.tags for c in sweep.reduced("sweeptest").cells] == [["setup"], ["parameters"], ["export"], ["run"]]
    injected = sweep.reduced("sweeptest", {"lr": 1e-05, "seed": 3}).cells[2]
    assert "lr = 1e-05" in injected.source


def test_the_repositorys_sweeps_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDNB_NOTEBOOKS")
    tables = sweep.read(papers.folder() / "sweeps")
    assert len(sweep.plan([tables["digits"]])[1]) == 21
    assert len(tables["moon-1-cifar10"].jobs) == 13


# --- running ----------------------------------------------------------------------------------------------------------


class Swept(NamedTuple):
    folder: Path  # with results/runs, results/logs, and the marks that cells left
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def swept(notebooks: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swept]:
    """A sweep of good and bad runs, two at once."""
    folder = tmp_path_factory.mktemp("swept")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        patch.setenv("FEDNB_NOTEBOOKS", str(notebooks))
        patch.setenv("FEDNB_RUNS", str(folder / "results" / "runs"))
        patch.setenv("FEDNB_TEST_MARKS", str(folder))
        code = main(["sweep", str(write(folder, {"mixed": MIXED})), "--jobs", "2"])
    return Swept(folder, code, out.getvalue(), err.getvalue())


def test_a_failing_run_is_reported_and_the_others_are_recorded(swept: Swept) -> None:
    assert swept.code == 1
    status = {path.name.split("-")[0]: ledger.read(path)["status"] for path in records(swept.folder / "results" / "runs")}
    assert status == {"Pair": "finished", "Flaky": "finished", "Broken": "failed", "Diverging": "diverged"}
    assert "4 runs: 0 recorded, 4 to do." in swept.out
    assert "RuntimeError: broken on purpose" in swept.out
    log = next(line.split("log: ")[1] for line in swept.out.splitlines() if "log: " in line)
    assert "RuntimeError" in Path(log).read_text()
    assert "diverged: Diverging-digits-seed0" in swept.out
    assert len([line for line in swept.err.splitlines() if line[0].isdigit()]) == 4  # no terminal: a line per run
    assert "Traceback" not in swept.out + swept.err


def test_two_run_at_once(swept: Swept) -> None:
    assert len(list(swept.folder.glob("pair-*"))) == 2  # each waits for the other, and none was tried again


def test_a_failed_run_is_tried_twice(swept: Swept) -> None:
    assert len(list(swept.folder.glob("flaky-*"))) == 2
    assert len(list(swept.folder.glob("broken-*"))) == 2


def test_cells_without_the_tags_are_not_executed(swept: Swept) -> None:
    assert not [*swept.folder.glob("untagged-*"), *swept.folder.glob("after-*")]
    assert len(list((swept.folder / "results" / "logs").glob("*.ipynb"))) == 4


def test_small_numbers_arrive_as_numbers(swept: Swept) -> None:
    (path,) = (swept.folder / "results" / "runs").glob("Flaky-*.json")
    assert ledger.read(path)["settings"]["weight_decay"] == 2e-05


def test_recorded_runs_are_skipped(swept: Swept, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("FEDNB_RUNS", str(swept.folder / "results" / "runs"))
    good = MIXED | {"runs": [run for run in MIXED["runs"] if run["method"] != "Broken"]}
    file = write(swept.folder, {"mixed": good}, name="good.yaml")
    before = {path: path.stat().st_mtime_ns for path in records()}
    monkeypatch.setattr(subprocess, "Popen", no_processes)
    assert main(["sweep", str(file)]) == 0
    assert {path: path.stat().st_mtime_ns for path in records()} == before
    assert "3 runs: 3 recorded, 0 to do." in capsys.readouterr().out
    assert main(["run", "sweeptest", "method=Pair", "seed=1"]) == 0
    assert "recorded already" in capsys.readouterr().out
    assert main(["list"]) == 0
    assert "90_sweeptest" in capsys.readouterr().out
    # the run that failed is to be made again
    assert main(["sweep", str(swept.folder / "sweep.yaml"), "--dry-run"]) == 0
    assert "mixed: 90_sweeptest method=Broken\n" in capsys.readouterr().out


def test_a_sweep_that_is_killed_and_called_again_ends_as_if_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    table = TABLE | {"rows": "seed", "parameters": {"method": "Slow", "pause": 0.3}}
    table["runs"] = [{"seed": 0, "num_rounds": 2}, {"seed": 1, "num_rounds": 15}]
    file = write(tmp_path, {"slow": table})
    first, second = (job.path for job in sweep.read(file)["slow"].jobs)
    log = ledger.runs_folder().parent / "logs" / f"{second.stem}.log"

    def began() -> bool:
        return log.exists() and "round 1/15" in log.read_text()

    def below(process: int) -> list[psutil.Process]:
        found = psutil.Process(process).children(recursive=True)
        assert len(found) >= 2  # papermill and the kernel
        return found

    def gone(processes: list[psutil.Process]) -> bool:
        return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)

    process = subprocess.Popen([sys.executable, "-m", "fednb", "sweep", str(file), "--jobs", "2"])
    try:
        wait_for(lambda: first.exists() and began(), 200)
        left = below(process.pid)
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: gone(left), 20)
    assert records() == [first]
    time_of_first = first.stat().st_mtime_ns

    log.unlink()
    left = []
    others = set(psutil.Process().children(recursive=True))  # servers of multiprocessing, from other tests

    def press_ctrl_c() -> None:
        wait_for(began, 200)
        left.extend(set(below(os.getpid())) - others)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press_ctrl_c)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores Ctrl-C
    try:
        thread.start()
        assert main(["sweep", str(file)]) == 130
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert "the same command goes on" in capsys.readouterr().err
    wait_for(lambda: gone(left), 20)  # terminated, but on a busy machine not yet gone
    assert records() == [first]

    assert main(["sweep", str(file)]) == 0
    assert records() == sorted([first, second])
    assert first.stat().st_mtime_ns == time_of_first
    got = [json.loads(path.read_text())["metrics"]["accuracy"] for path in (first, second)]
    jobs = sweep.read(file)["slow"].jobs
    monkeypatch.setenv("FEDNB_RUNS", str(tmp_path / "direct"))
    methods = papers.load("sweeptest").METHODS
    assert got == [runner.run(job.settings, methods)["metrics"]["accuracy"] for job in jobs]


def test_slots_share_cores_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(sweep.torch.cuda, "device_count", lambda: 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert sweep.environment(0, 3)["FEDNB_WORKERS"] == "2"
    assert sweep.environment(0, 20)["FEDNB_WORKERS"] == "1"
    assert sweep.environment()["CUDA_VISIBLE_DEVICES"] == ""
    monkeypatch.setenv("FEDNB_WORKERS", "3")  # what is said counts
    assert sweep.environment(0, 4)["FEDNB_WORKERS"] == "3"
    monkeypatch.delenv("FEDNB_WORKERS")
    monkeypatch.setattr(sweep.torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert "FEDNB_WORKERS" not in sweep.environment(0, 4)  # one stream, not one for each core
    assert [sweep.environment(s, 4)["CUDA_VISIBLE_DEVICES"] for s in range(4)] == ["0", "1", "0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, 3")
    assert [sweep.environment(s, 4)["CUDA_VISIBLE_DEVICES"] for s in range(3)] == ["5", "3", "5"]
    monkeypatch.chdir("/")
    monkeypatch.setenv("FEDNB_RUNS", "elsewhere/runs")
    assert sweep.environment()["FEDNB_RUNS"] == "/elsewhere/runs"


# --- the command line -------------------------------------------------------------------------------------------------


def test_run_shows_settings_rounds_and_result(capfd: pytest.CaptureFixture) -> None:
    assert main(["run", "sweeptest", "num_rounds=2", "lr=1e-2", "weight_decay=none"]) == 0
    out, err = capfd.readouterr()
    (path,) = records()
    assert ledger.read(path)["settings"]["lr"] == 0.01
    accuracy = ledger.read(path)["final"]["accuracy"]
    for text in ("num_rounds  2", "round 1/2", "round 2/2", f"accuracy {accuracy:.2f} % (finished)", str(path)):
        assert text in out
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "sweeptest", "num_round=3"], "no parameter 'num_round': known are method.*did you mean 'num_rounds'"),
        (["run", "sweeptest", "lr=fast"], "lr is 'fast'; it must be a positive number"),
        (["run", "sweeptest", "seed=true"], "seed is True"),
        (["run", "sweeptest", "lr=[1]"], r"lr is \[1\]; it must be a number"),
        (["run", "nothing"], "There is no notebook 'nothing'"),
        (["run", "91_norun", "method=Slow"], "no code cell tagged 'run'"),
        (["sweep", "nowhere.yaml"], "nowhere.yaml cannot be read"),
        (["sweep", "FILE", "--table", "godo"], "no table 'godo' .*known are bad, good; did you mean 'good'"),
        (["sweep", "FILE", "--only", "datset=digits"], "No run has a parameter 'datset': .*did you mean 'dataset'"),
        (["sweep", "FILE", "--only", "dataset=cifar11"], "No run has dataset 'cifar11'; the runs have digits."),
        (["sweep", "FILE", "--tier", "minutes"], "There is no tier 'minutes': known are minutes-cpu"),
        (["data", "cifar11"], "'cifar11' is not a known data set"),
    ],
)
def test_wrong_requests_get_one_line_and_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, arguments: list[str], message: str
) -> None:
    file = write(tmp_path, {name: TABLE | {"runs": [{}]} for name in ("good", "bad")})
    monkeypatch.setattr(subprocess, "Popen", no_processes)
    assert main([str(file) if a == "FILE" else a for a in arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith("fednb: ")
    assert err.count("\n") == 1
    assert re.search(message, err)
    assert not records()


def test_nothing_starts_if_one_run_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    right = write(tmp_path, {"right": TABLE | {"runs": [{"seed": 0}]}}, name="a.yaml")
    write(tmp_path, {"wrong": TABLE | {"runs": [{"seed": 0}, {"seed": 1, "epochs": 3}]}}, name="b.yaml")
    monkeypatch.setattr(subprocess, "Popen", no_processes)
    assert main(["sweep", str(right), "--dry-run"]) == 0
    assert main(["sweep", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("fednb: b.yaml, table wrong: the notebook 90_sweeptest has no parameter 'epochs'")
    assert not ledger.runs_folder().parent.exists()


def test_nothing_starts_without_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("FEDNB_DATA", str(tmp_path))
    file = write(tmp_path, {"one": TABLE | {"grid": {"dataset": ["digits", "cifar10"]}}})
    monkeypatch.setattr(subprocess, "Popen", no_processes)
    assert main(["sweep", str(file)]) == 2
    assert "CIFAR-10 was not found" in capsys.readouterr().err
    assert not ledger.runs_folder().parent.exists()


def test_a_record_is_found_without_its_data(swept: Swept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDNB_DATA", str(tmp_path))
    settings = sweep.resolve("sweeptest", {"dataset": "mnist"})
    path = ledger.record_path(settings, "a fingerprint")
    path.parent.mkdir(parents=True)
    (original,) = (swept.folder / "results" / "runs").glob("Flaky-*.json")
    shutil.copy(original, path)
    path.write_text(path.read_text().replace(ledger.read(path)["dataset"]["fingerprint"], "a fingerprint"))
    assert sweep.job("sweeptest", {"dataset": "mnist"}).path == path
    assert not sweep.job("sweeptest", {"dataset": "mnist", "num_rounds": 5}).recorded


@pytest.mark.parametrize("arguments", [[], ["sweep"], ["sweep", "x", "--jobs", "0"], ["run", "x", "lr"], ["fly"]])
def test_wrong_usage_ends_with_status_2(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: python -m fednb" in capsys.readouterr().err
