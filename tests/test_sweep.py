"""Sweep files, and which of their runs are made in which order, with a tiny notebook."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from pathlib import Path

import pytest
import yaml
from tiny import METHODS, TABLE, write, write_notebook

from fednb import models, papers
from fednb.experiments import execute, ledger, settings, sweep
from fednb.papers import NotebookError

MINI = ("Digits", "Slanted", "Blended", "Fonts", "Scenes")


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_notebook(tmp_path_factory.mktemp("notebooks") / "90_tiny.ipynb").parent


@pytest.fixture(autouse=True)
def places(notebooks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(notebooks))


def read(folder: Path, notebook: str = "90_tiny", **table: object) -> sweep.Table:
    return sweep.read(write(folder, {"one": TABLE | table}, notebook))["one"]


# --- files ------------------------------------------------------------------------------------------------------------


def test_runs_are_the_grid_and_the_single_ones(tmp_path: Path) -> None:
    table = read(
        tmp_path,
        rows={"parameter": "method", "labels": {"Slow": "slow one"}},
        parameters={"num_rounds": 3, "lr": 0.5},
        grid={"method": ["FedAvg", "Slow"], "seed": [0, 1, 2]},
        runs=[{"method": "Slow", "pause": [0.5, 1], "seed": [3, 4]}, {"method": "Pair", "num_rounds": 7}],
    )
    assert [(j.settings.method, j.settings.seed) for j in table.jobs] == [
        *((m, s) for m in ("FedAvg", "Slow") for s in range(3)),
        *(("Slow", s) for s in (3, 4, 3, 4)),
        ("Pair", 0),
    ]
    assert {j.settings.num_rounds for j in table.jobs[:-1]} == {3}
    assert table.jobs[-1].parameters == {"num_rounds": 7, "lr": 0.5, "method": "Pair"}  # flat, as they are given
    assert table.jobs[-1].settings.num_clients == 2  # the notebook's own, of its `more`
    assert (table.notebook, table.measure, table.printed) == ("90_tiny", "accuracy", None)
    assert [table.rows.label(value) for value in ("Slow", "Pair")] == ["slow one", "Pair"]
    assert len({j.path for j in table.jobs}) == 11
    job = table.jobs[-1]
    namespace = papers.parameters("90_tiny") | papers.arrange("90_tiny", job.parameters)  # what the kernel will have
    assert job.path == ledger.path(papers.settings("90_tiny", namespace))


def test_a_notebook_without_more_has_the_parameters_of_its_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(tmp_path))
    file = write_notebook(tmp_path / "91_own.ipynb", parameters="method = 'FedAvg'\ndataset = 'digits'\nlr = None")
    assert read(tmp_path, "own", runs=[{"lr": 0.5}]).jobs[0].settings.lr == 0.5
    with pytest.raises(sweep.SweepError, match="no parameter 'num_rounds': known are method, dataset, lr"):
        read(tmp_path, "own", runs=[{"num_rounds": 3}])
    write_notebook(file, parameters="dataset = 'digits'")
    with pytest.raises(sweep.SweepError, match="cannot be swept: it must have parameters method and dataset"):
        read(tmp_path, "own", runs=[{}])


def test_equal_runs_of_tables_and_files_are_one_and_made_by_priority(tmp_path: Path) -> None:
    grids = {"usual": [4, 1, 7], "last": [6, 1], "second": [3, 2], "first": [2, 4]}
    tables = {name: TABLE | {"grid": {"seed": seeds}} for name, seeds in grids.items()}
    for name, priority in {"last": 101, "second": 2, "first": 1}.items():
        tables[name]["priority"] = priority
    write(tmp_path, {name: tables[name] for name in ("usual", "last")}, name="a.yaml")
    write(tmp_path, {name: tables[name] for name in ("second", "first")}, "tiny", name="b.yaml")
    recorded, todo = sweep.plan(sweep.read(tmp_path).values())
    assert not recorded
    assert [job.settings.seed for job in todo] == [2, 4, 3, 1, 7, 6]  # 2 and 4 have the best of their tables' priorities
    assert [(job.priority, job.table) for job in todo[:3]] == [(1, "first"), (1, "first"), (2, "second")]
    write(tmp_path, {"usual": tables["last"]}, name="b.yaml")
    with pytest.raises(sweep.SweepError, match=r"b\.yaml, table usual: there is a table of that name already"):
        sweep.read(tmp_path)


@pytest.mark.parametrize("text", ["1e-05", "1E-5", "1.0e-5", ".00001"])
def test_numbers_as_people_write_them(tmp_path: Path, text: str) -> None:
    lines = f"{{title: t, rows: method, columns: dataset, tier: minutes-cpu, runs: [{{weight_decay: {text}}}]}}"
    (tmp_path / "s.yaml").write_text(f"notebook: tiny\ntables:\n  one: {lines}\n")
    assert repr(sweep.read(tmp_path / "s.yaml")["one"].jobs[0].parameters["weight_decay"]) == "1e-05"


def test_strings_stay_strings() -> None:
    assert yaml.load("[e5, 1e, 12ab, 1-5, 7, yes]", sweep._Loader) == ["e5", "1e", "12ab", "1-5", 7, True]


BOMB = "x0: &x0 [1, 1]\n" + "".join(f"x{i}: &x{i} [*x{i - 1}, *x{i - 1}]\n" for i in range(1, 60))
NO_FILES = [
    ("tables: {one: {}, two: {}, one: {}}", "not valid YAML: 'one' is given twice"),
    ("a: [1", "not valid YAML"),
    ("- 1", "s.yaml: it must be object"),
    ("notebook: [tiny]\ntables: {a: 1}", "it.notebook must be string"),
    ("notebook: tiny\ntables: {a: {}}", r"it.tables.a must contain \['columns', 'rows', 'tier', 'title'\] properties"),
    (BOMB, "more than 100,000 values"),
    ("m: &m {a: &a [*m]}", "more than 100,000 values|recursive|anchor"),
    ("[" * 20_000, "not valid YAML"),
    ("a: " + "9" * 5000, "not valid YAML"),
    ("a: 2026-99-99", "not valid YAML"),
]


@pytest.mark.parametrize(("text", "message"), NO_FILES, ids=lambda value: value[:20])
def test_files_that_make_no_sense_are_refused_at_once(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "s.yaml").write_text(text)
    begin = time.process_time()
    with pytest.raises(sweep.SweepError, match=message):
        sweep.read(tmp_path / "s.yaml")
    assert time.process_time() - begin < 5


DOMAINS = {"columns": "domains", "parameters": {"dataset": "digits5_mini", "num_clients": 5}}
WRONG = [
    ({"title": None}, "it.tables.one.title must be string"),
    ({"colums": "dataset"}, "it.tables.one must not contain {'colums'} properties; known are title, .*, columns"),
    ({"grid": {"seed": 3}}, "it.tables.one.grid.seed must be array"),
    ({"target": 0}, "it.tables.one.target must be bigger than 0"),
    ({"priority": True}, "it.tables.one.priority must be integer or object"),
    ({"tier": "weeks"}, "tier is 'weeks'; it must be one of minutes-cpu"),
    ({"tier": {"cifar10": "minutes-cpu"}}, "tier says nothing about the data set 'digits'"),
    ({"priority": {"mnist": 1}}, "priority names the data set 'mnist', which no run of the table has"),
    ({"best_of": "las"}, "no parameter 'las': known are"),
    ({"baseline": "FedAgv"}, "has no row 'FedAgv': known are FedAvg; did you mean 'FedAvg'"),
    (
        {"baseline": "FedAvg", "runs": [{"method": "Slow", "seed": 3}]},
        "no run in column 'digits' with seed 3, as others have",
    ),
    ({"rows": {"parameter": "method", "named": {"x": {"lr": 1.0}}}}, "rows names 'x', which no run of the table is"),
    ({"rows": "metod"}, "no parameter 'metod'.*did you mean 'method'"),
    ({"rows": {"parameter": "method", "labels": {"FedAgv": "x"}}}, "label for method 'FedAgv', which no run"),
    ({"columns": {"labels": {}}}, "columns lack their parameter"),
    ({"columns": {"measures": {"a": "lead"}, "labels": {}}}, "columns have either a parameter or measures"),
    ({"columns": "domains"}, "domains are those of one data set that has several; the table has digits"),
    ({"columns": "domains", "grid": {"dataset": ["digits", "mnist"]}}, "the table has digits, mnist"),
    (DOMAINS | {"measure": "best"}, "its columns have measures of their own, .*: leave out measure"),
    ({"grid": {}}, "neither a grid nor runs"),
    ({"grid": {f"p{i}": list(range(59)) for i in range(6)}}, "it has more than 10,000 runs: divide it"),
    ({"parameters": {"lr": [1, 2]}}, r"lr is \[1, 2\]; it must be a number"),
    ({"parameters": {1: 2}}, "1 is 2; it must be a number"),
    ({"runs": [{"lr": -1.0}]}, "lr is -1.0; it must be a positive number"),
    ({"runs": [{"method": "Slow", "pause": -1.0}]}, "pause is -1.0; it must be a number from 0"),
    ({"parameters": {"numrounds": 5}}, "Unknown parameter 'numrounds': known are .*did you mean 'num_rounds'"),
    ({"parameters": {"pause": 1}}, "FedAvg has no parameter 'pause'"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=str)
def test_a_wrong_table_is_refused_in_one_sentence(tmp_path: Path, change: dict, message: str) -> None:
    with pytest.raises(sweep.SweepError, match=rf"^sweep.yaml(, table one)?: .*{message}") as caught:
        read(tmp_path, **{"grid": {"method": ["FedAvg"]}} | change)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000


def test_names_that_several_settings_make(tmp_path: Path) -> None:
    named = {"FedAvg, fast": {"method": "FedAvg", "lr": 0.5}, "fast": {"lr": 0.5}}
    rows = {"parameter": "method", "labels": {"FedAvg": "average"}, "named": named}
    grid = {"method": ["FedAvg", "Slow"], "lr": [0.5, 0.1]}
    table = read(tmp_path, rows=rows, columns="num_rounds", grid=grid, baseline="average", best_of="pause", target=60)
    assert [table.rows.name(job) for job in table.jobs] == ["FedAvg, fast", "fast", "average", "Slow"]
    assert {table.columns.name(job) for job in table.jobs} == {"1"}  # a setting that is no parameter of the notebook's
    assert (table.baseline, table.best_of, table.target) == ("average", "pause", 60.0)


def test_columns_that_are_the_domains_of_the_data_set(tmp_path: Path) -> None:
    grid = {"method": ["FedAvg", "Slow"], "seed": [0, 1]}
    expected = {name: f"accuracy in {name}" for name in MINI} | {"Avg.": "accuracy"}
    assert list(read(tmp_path, **DOMAINS, grid=grid).columns.measures.items()) == list(expected.items())
    table = read(tmp_path, **DOMAINS, grid=grid, baseline="FedAvg")
    assert list(table.columns.measures.items()) == [*expected.items(), ("Delta", "lead")]
    assert table.columns.names(table.jobs[0]) == [*MINI, "Avg.", "Delta"]
    assert table.rows.names(table.jobs[0]) == ["FedAvg"]
    assert (table.measure, table.measure_of("Scenes"), table.measure_of("Delta")) == (
        "accuracy",
        "accuracy in Scenes",
        "lead",
    )
    assert table.measures == [*expected.values(), "lead"]
    table = read(tmp_path, columns={"measures": {"Avg.": "accuracy", 5: "lead"}}, baseline="FedAvg", runs=[{}])
    assert table.columns.measures == {"Avg.": "accuracy", "5": "lead"}
    assert (read(tmp_path, runs=[{}]).measures, table.measure_of("x")) == (["accuracy"], "accuracy")


# --- which runs -------------------------------------------------------------------------------------------------------


def test_tiers_and_choosing_runs(tmp_path: Path) -> None:
    tiers = {"digits": "minutes-cpu", "mnist": "hours-gpu", "cifar10": "minutes-gpu"}
    grid = {"dataset": ["mnist", "digits"], "method": ["FedAvg", "Slow"], "seed": [0, 1]}
    file = write(tmp_path, {"both": TABLE | {"tier": tiers, "grid": grid}, "one": TABLE | {"runs": [{"seed": 5}]}})
    tables = sweep.read(file)
    assert {(j.settings.dataset, j.tier) for j in tables["both"].jobs} == {("digits", "minutes-cpu"), ("mnist", "hours-gpu")}
    assert (tables["both"].tiers, tables["one"].tiers) == (["minutes-cpu", "hours-gpu"], ["minutes-cpu"])

    def chosen(**options: object) -> dict[str, int]:
        return {table.name: len(table.jobs) for table in sweep.choose(tables.values(), **options)}

    assert chosen() == {"both": 8, "one": 1}
    assert chosen(tiers=["hours-gpu"]) == {"both": 4}
    assert chosen(tiers=["hours-gpu", "minutes-cpu"]) == {"both": 8, "one": 1}
    assert chosen(tiers=["minutes-gpu"]) == {}
    assert chosen(only=[("dataset", "mnist"), ("seed", 1)]) == {"both": 2}
    assert chosen(only=[("seed", 5), ("seed", 1)]) == {"both": 4, "one": 1}
    assert chosen(tiers=["minutes-cpu"], only=[("pause", 0.0)]) == {"both": 2}  # only Slow has it


def test_what_records_tell(tmp_path: Path) -> None:
    table = read(tmp_path, grid={"seed": [0, 1, 2, 3, 4, 5, 6]})
    states = ["finished", "finished", "finished", "diverged", "failed", "stale"]  # and none
    for job, state, seconds in zip(table.jobs, states, (50, 100, 600, 1, 1, 1), strict=False):
        head = {
            "status": "finished" if state == "stale" else state,
            "results_version": ledger.RESULTS_VERSION - (state == "stale"),
        }
        head |= {"key": ledger.key(job.settings.flat()), "settings": job.settings.flat(), "dataset": {}, "deviations": []}
        ledger.write(job.path, head | {"wall_seconds": seconds, "device": "a GPU", "metrics": {}})
    assert [job.status for job in table.jobs] == [*states, None]
    assert [job.settings.seed for job in sweep.plan([table])[1]] == [4, 5, 6]
    assert table.took == "01:40 on a GPU"
    job = table.jobs[0]
    job.path.write_text(job.path.read_text().replace('"seed": 0', '"seed": 9'))
    with pytest.raises(ledger.RunError, match="a key that is not that of its settings"):
        sweep.plan([table])


def test_nothing_starts_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute.subprocess, "Popen", lambda *args, **options: pytest.fail("a process was started"))
    monkeypatch.setenv("FEDNB_DATA", str(tmp_path))
    with pytest.raises(sweep.data.DataError, match="CIFAR-10 was not found"):
        sweep.run([read(tmp_path, grid={"dataset": ["digits", "cifar10"]})])
    for name, value, message in [
        ("FEDNB_WORKERS", "abc", "FEDNB_WORKERS is 'abc'"),
        ("FEDNB_DEVICE", "tpu", "no device 'tpu'"),
    ]:
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(settings.SettingsError, match=message):
                sweep.run([read(tmp_path, runs=[{}])])
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(tmp_path))
    write_notebook(tmp_path / "91_norun.ipynb", run="")
    with pytest.raises(sweep.SweepError, match="91_norun has no code cell tagged 'run'"):
        sweep.run([read(tmp_path, "norun", runs=[{}])])
    assert not ledger.runs_folder().exists()


# --- what is known without PyTorch ------------------------------------------------------------------------------------


def test_the_repositorys_sweeps_are_resolved_as_by_their_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDNB_NOTEBOOKS")
    tables = sweep.read(papers.folder() / "sweeps")
    assert len(sweep.plan([tables["digits"]])[1]) == 21
    assert len(tables["moon-1-cifar10"].jobs) == 13
    for notebook in papers.notebooks():
        outline, classes = papers.outline(notebook.stem), papers.methods(notebook.stem)
        assert list(outline) == list(classes)
        for name, cls in classes.items():
            fields = [[(f.name, f.default) for f in dataclasses.fields(c)] for c in (outline[name], cls)]
            assert fields[0] == fields[1]
    for job in [job for table in tables.values() for job in table.jobs][::7]:  # with the classes' own checks
        values = sweep._Notebook(job.notebook).own | {"more": None} | job.parameters
        values.pop("more")
        more = papers.parameters(job.notebook).get("more", {})
        assert settings.resolve(papers.methods(job.notebook), **more | values) == job.settings
    chosen = sweep.choose(tables.values(), ["minutes-gpu", "minutes-cpu"])
    order = dict.fromkeys(job.table for job in sweep.plan(chosen)[1] if job.priority < sweep.DEFAULT_PRIORITY)
    known = ["moon-1", "fedproc-2", "fedproc-4", "fedssc-1", "fedproto-2", "moon-5", "moon-12", "moon-figure-7"]
    assert [name for name in order if name in known] == known  # the papers' main tables come first


def test_seeds_of_a_cell_are_made_together_where_a_gpu_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDNB_RUNS", str(tmp_path / "runs"))
    asked, table = [], read(tmp_path, grid={"method": ["FedAvg", "Slow"], "seed": [3, 4]}, runs=[{"num_rounds": 2}])
    monkeypatch.setattr(
        execute, "make", lambda *args, seeds, **_: asked.append((args[1], seeds)) or execute.Outcome(None, "not made")
    )
    sweep.run([table])
    assert [seeds for _, seeds in asked] == [(3, 4)] * 4 + [(0,)]


def test_networks_and_precisions_are_those_of_the_models() -> None:
    assert settings.MODELS == {name: model.head is not None for name, model in models.MODELS.items()}
    assert settings.PRECISIONS == tuple(models.PRECISIONS)


@pytest.mark.parametrize(
    ("changed", "fails"),
    [
        ("def methods():\n    return {'Mine': Slow}\n\n\nMETHODS = methods()", None),
        ("METHODS = {}\nfor m in (Slow,):\n    METHODS['Mine'] = m", None),
        ("class Mine(Slow):\n    def __post_init__(self):\n        mark('')\n        super().__post_init__()\n\n\n"
         "METHODS = {'Mine': dataclass(Mine)}", None),
        ("METHODS = {'Mine': 1 / 0}", "export cells of 91_mine.ipynb fail .*division by zero"),
        ("METHODS = [Slow]", "must export METHODS, a dict of methods by name"),
        ("raise SystemExit", "export cells of 91_mine.ipynb fail"),
        ("", "must export METHODS"),
    ],
)  # fmt: skip
def test_methods_in_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str, fails: str | None) -> None:
    monkeypatch.setenv("FEDNB_TEST_MARKS", str(tmp_path))
    source = METHODS.partition("METHODS = ")[0] + changed
    file = write_notebook(tmp_path / f"elsewhere{math.prod(map(ord, changed)) % 9973}" / "91_mine.ipynb", methods=source)
    if fails:
        with pytest.raises(NotebookError, match=fails):
            sweep.job(str(file), {"method": "Mine"})
        return
    job = sweep.job(str(file), {"method": "Mine", "pause": 1})
    assert job.settings.hyperparameters == {"pause": 1.0}
    assert job.notebook == str(file)  # it is not in the folder
    with pytest.raises(settings.SettingsError, match=r"pause is .*; it must be a number from 0"):
        sweep.job(str(file), {"method": "Mine", "pause": -1})
    json.dumps(job.parameters)
