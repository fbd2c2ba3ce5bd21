"""Sweep files, and which of their runs are made in which order, with a tiny notebook."""

import time
from collections import Counter

import made_up
import pytest
import yaml
from tiny import TABLE, write, write_notebook

from fednb import data, papers
from fednb import records as ledger
from fednb.errors import SettingsError, SweepError
from fednb_lab import compare as head_to_head
from fednb_lab import pool
from fednb_lab.jobs import (
    find_methods,
    median_duration,
    missing,
    select,
    to_notebook_parameters,
)
from fednb_lab.sweeps import Loader, read_tables


def read(folder, notebook="", **table):
    return read_tables(write(folder, {"one": TABLE | table}, notebook))["one"]


def test_runs_are_the_grid_and_the_single_ones(tmp_path):
    table = read(
        tmp_path,
        parameters={"num_rounds": 3, "lr": 0.5},
        grid={"method": ["FedAvg", "Slow"], "seed": [0, 1, 2]},
        runs=[
            {"method": "Slow", "pause": [0.5, 1], "seed": [3, 4]},
            {"method": "Pair", "num_rounds": 7},
        ],
    )
    seeds = {"FedAvg": [0, 1, 2], "Slow": [0, 1, 2, 3, 4, 3, 4], "Pair": [0]}
    runs = [(method, seed) for method, of in seeds.items() for seed in of]
    assert [(j.settings.method, j.settings.seed) for j in table.jobs] == runs
    assert {j.settings.num_rounds for j in table.jobs[:-1]} == {3}
    assert len({j.path for j in table.jobs}) == 11
    job = table.jobs[-1]
    # flat, as they are given
    assert job.parameters == {"num_rounds": 7, "lr": 0.5, "method": "Pair"}
    assert job.settings.num_clients == 2  # the notebook's own, of its `more`
    file = str(tmp_path / "90_tiny.ipynb")
    assert (table.notebook, table.measure, table.printed) == (file, "accuracy", None)
    # what the kernel will have
    namespace = papers.parameters(file) | to_notebook_parameters(file, job.parameters)
    assert job.path == ledger.path(papers.settings(file, namespace), ledger.runs_folder())


def test_a_notebook_without_more_has_the_parameters_of_its_cell(tmp_path):
    cell = "method = 'FedAvg'\ndataset = 'digits'\nlr = None"
    file = write_notebook(tmp_path / "91_own.ipynb", parameters=cell)
    assert read(tmp_path, str(file), runs=[{"lr": 0.5}]).jobs[0].settings.lr == 0.5
    with pytest.raises(SweepError, match="'num_rounds': known are method, dataset, lr"):
        read(tmp_path, str(file), runs=[{"num_rounds": 3}])
    write_notebook(file, parameters="dataset = 'digits'")
    with pytest.raises(SweepError, match="it must have parameters method and dataset"):
        read(tmp_path, str(file), runs=[{}])


def test_equal_runs_of_tables_and_files_are_one_in_their_order(tmp_path):
    grids = {"usual": [4, 1, 7], "second": [6, 1]}
    tables = {name: TABLE | {"grid": {"seed": seeds}} for name, seeds in grids.items()}
    write(tmp_path, {"usual": tables["usual"]}, name="a.yaml")
    write(tmp_path, {"second": tables["second"]}, name="b.yaml")
    jobs = [job for table in read_tables(tmp_path).values() for job in table.jobs]
    assert [job.settings.seed for job in missing(jobs)] == [4, 1, 7, 6]
    write(tmp_path, {"usual": tables["second"]}, name="b.yaml")
    message = r"b\.yaml, table 'usual': there is a table of that name already"
    with pytest.raises(SweepError, match=message):
        read_tables(tmp_path)


def test_numbers_as_people_write_them():
    numbers = yaml.load("[1e-05, 1E-5, 1.0e-5, .00001, 7]", Loader)
    assert list(map(repr, numbers)) == ["1e-05"] * 4 + ["7"]
    assert yaml.load("[e5, 1e, 12ab, 1-5, yes]", Loader) == ["e5", "1e", "12ab", "1-5", True]


NO_FILES = [
    ("tables: {one: {}, two: {}, one: {}}", "s.yaml: 'one' is given twice"),
    ("a: [1", "s.yaml: while parsing"),
    ("notebook: 01_moon\ntables: {a: {}}", "title is missing"),
    ("notebook: 01_moon\ntables: &m {a: *m}", "keyword|missing|no key"),
    ("[" * 20_000, "s.yaml: while "),
]


@pytest.mark.parametrize(("text", "message"), NO_FILES, ids=lambda value: value[:20])
def test_files_that_make_no_sense_are_refused_at_once(tmp_path, text, message):
    (tmp_path / "s.yaml").write_text(text)
    begin = time.process_time()
    with pytest.raises(SweepError, match=message):
        read_tables(tmp_path / "s.yaml")
    assert time.process_time() - begin < 5


WRONG = [
    ({"colums": "dataset"}, "there is no key 'colums': did you mean 'columns'"),
    ({"tier": "weeks"}, "tier is 'weeks'; .*minutes-cpu"),
    ({"columns": {"labels": {}}}, "no parameter ''"),
    ({"columns": "domains"}, "columns cannot be domains: digits has none"),
    (
        {"baseline": "FedAgv"},
        "its runs make no row 'FedAgv': did you mean 'FedAvg'",
    ),
    (
        {"rows": {"parameter": "method", "named": {"x": {"lr": 1.0}}}},
        "no row or column 'x': known are FedAvg",
    ),
    ({"rows": "metod"}, "no parameter 'metod'.*did you mean 'method'"),
    ({"grid": {f"p{i}": list(range(59)) for i in range(6)}}, "it has 42,180,533,641 runs"),
    ({"rows": {"parametr": "method"}}, "did you mean 'parameter'"),
    ({"runs": [{"method": "Slow", "pause": -1.0}]}, "pause is -1.0; it must be "),
    (
        {"parameters": {"numrounds": 5}},
        "Unknown parameter 'numrounds': did you mean 'num_rounds'",
    ),
    ({"parameters": {"pause": 1}}, "FedAvg has no parameter 'pause'"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=str)
def test_a_wrong_table_is_refused_in_one_sentence(tmp_path, change, message):
    with pytest.raises(SweepError, match=rf"^sweep.yaml(, table 'one')?: .*{message}") as caught:
        read(tmp_path, **{"grid": {"method": ["FedAvg"]}} | change)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000


def test_names_that_several_settings_make(tmp_path):
    named = {"FedAvg, fast": {"method": "FedAvg", "lr": 0.5}, "fast": {"lr": 0.5}}
    rows = {"parameter": "method", "labels": {"FedAvg": "average"}, "named": named}
    grid = {"method": ["FedAvg", "Slow"], "lr": [0.5, 0.1]}
    more = {"baseline": "average", "best_of": "pause", "target": 60}
    table = read(tmp_path, rows=rows, columns="num_rounds", grid=grid, **more)
    names = [table.rows.name(job) for job in table.jobs]
    assert names == ["FedAvg, fast", "fast", "average", "Slow"]
    # a setting that is no parameter of the notebook's
    assert {table.columns.name(job) for job in table.jobs} == {"1"}
    assert (table.baseline, table.best_of, table.target) == ("average", "pause", 60.0)


def test_columns_that_are_the_domains_of_the_data_set(tmp_path):
    parameters = {"dataset": "digits5_mini", "num_clients": 5}
    domains = {"columns": "domains", "parameters": parameters, "runs": [{}]}
    names = ("Digits", "Slanted", "Blended", "Fonts", "Scenes")
    expected = {name: f"accuracy in {name}" for name in names} | {"Avg.": "accuracy"}
    assert list(read(tmp_path, **domains).columns.measures.items()) == list(expected.items())
    table = read(tmp_path, **domains, baseline="FedAvg")
    assert list(table.columns.measures.items()) == [*expected.items(), ("Delta", "lead")]
    assert table.rows.name(table.jobs[0]) == "FedAvg"


def test_choosing_runs(tmp_path):
    tiers = {"digits": "minutes-cpu", "mnist": "hours-gpu", "cifar10": "minutes-gpu"}
    grid = {"dataset": ["mnist", "digits"], "method": ["FedAvg", "Slow"], "seed": [0, 1]}
    tables = {"both": TABLE | {"tier": tiers, "grid": grid}}
    file = write(tmp_path, tables | {"one": TABLE | {"runs": [{"seed": 5}]}})
    jobs = [job for table in read_tables(file).values() for job in table.jobs]
    for only, counts in [
        ([], {"both": 8, "one": 1}),
        ([("table", "one")], {"one": 1}),
        ([("tier", "hours-gpu")], {"both": 4}),
        ([("tier", "hours-gpu"), ("tier", "minutes-cpu")], {"both": 8, "one": 1}),
        ([("dataset", "mnist"), ("seed", 1)], {"both": 2}),
        ([("tier", "minutes-cpu"), ("pause", 0.0)], {"both": 2}),  # only Slow has it
        ([("table", "one"), ("seed", 1)], {}),
    ]:
        assert Counter(job.table for job in select(jobs, only)) == counts


def test_what_records_tell(tmp_path):
    states = ["finished", "finished", "finished", "diverged", "failed", "stale"]  # and none
    jobs = read(tmp_path, grid={"seed": list(range(6))}).jobs
    for job, state, seconds in zip(jobs, states, (50, 100, 600, 1, 1, 1), strict=True):
        version = ledger.RESULTS_VERSION - (state == "stale")
        status = state.replace("stale", "finished")
        made_up.record(job, status=status, version=version, wall_seconds=seconds, device="a GPU")
    table = read(tmp_path, grid={"seed": list(range(7))})
    assert [job.status for job in table.jobs] == [*states, None]
    assert [job.settings.seed for job in missing(table.jobs)] == [4, 5, 6]
    assert median_duration(table.jobs) == "01:40 on a GPU"


def test_nothing_starts_that_cannot_be_made(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "make_all", lambda *_: pytest.fail("a run was started"))
    monkeypatch.setenv("FEDNB_DATA", str(tmp_path))
    jobs = read(tmp_path, grid={"dataset": ["digits", "cifar10"]}).jobs
    with pytest.raises(data.DataError, match="CIFAR-10"):
        pool.run(jobs)
    for name, value, message in [
        ("FEDNB_WORKERS", "abc", "FEDNB_WORKERS is 'abc'; it must be a whole number from 1"),
        ("FEDNB_DEVICE", "tpu", "FEDNB_DEVICE is 'tpu'; it must be one of cpu"),
    ]:
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(SettingsError, match=message):
                pool.run(jobs[:1])
    write_notebook(tmp_path / "91_norun.ipynb", run="")
    with pytest.raises(SweepError, match=r"91_norun\.ipynb has no code cell tagged 'run'"):
        pool.run(read(tmp_path, "91_norun.ipynb", runs=[{}]).jobs)
    write_notebook(
        tmp_path / "92_fails.ipynb",
        methods="from fednb.method import FedAvg\n\nMETHODS = {'FedAvg': FedAvg}\n1 / 0",
    )
    with pytest.raises(SweepError, match=r"export cells of 92_fails\.ipynb fail"):
        read(tmp_path, "92_fails.ipynb", runs=[{}])
    assert not ledger.runs_folder().exists()


def test_notebooks_in_two_folders_keep_their_records_apart(tmp_path, monkeypatch):
    monkeypatch.delenv("FEDNB_RUNS")
    files = []
    for name in ("Alpha", "Beta"):
        of_method = f"class {name}(FedAvg):\n    pass\n\nMETHODS = {{'{name}': {name}}}"
        methods = f"from fednb.federation import FedAvg\n\n{of_method}"
        files.append(write_notebook(tmp_path / name.lower() / "92_own.ipynb", methods=methods))
    methods = find_methods(["FedAvg", *map(str, files)])
    jobs = head_to_head.table_of(methods, {}, seeds=1).jobs
    folders = [job.path.parent for job in jobs]
    assert folders == [ledger.runs_folder(), *(file.parent / "results" / "runs" for file in files)]
