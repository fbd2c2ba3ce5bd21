"""Importing the methods from the notebooks that derive them."""

import importlib
import inspect
import re
import sys
import traceback
from types import SimpleNamespace

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import fednb
from fednb import ROOT, papers
from fednb.errors import NotebookError, SettingsError
from fednb.experiments import ledger
from fednb.federation import FedAvg
from fednb_lab import pool

SOURCE = '''from dataclasses import dataclass

from fednb.federation import FedAvg


@dataclass
class Fragile(FedAvg):
    """A method of a student."""

    def loss(self, model, x, y, given):
        return {"nothing": 1 / given["zero"]}  # the line that fails'''


@pytest.fixture
def notebooks(tmp_path, monkeypatch):
    """Write notebooks into a folder of their own; modules made of them are forgotten afterwards."""
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(tmp_path))
    before = set(sys.modules)

    def write(name, *cells):
        """Write cells, pairs of tags and source."""
        made = [
            new_code_cell(source, metadata={"tags": tags} if tags else {}) for tags, source in cells
        ]
        told = new_markdown_cell("export", metadata={"tags": ["export"]})
        nbformat.write(new_notebook(cells=[told, *made]), tmp_path / f"{name}.ipynb")
        return tmp_path / f"{name}.ipynb"

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("fednb.papers."):
            del sys.modules[name]


def test_only_export_cells_are_run(notebooks):
    notebooks(
        "07_study",
        (["export"], "a = 1"),
        ([], "raise RuntimeError('not for import')"),
        (["parameters"], "%matplotlib inline"),
        (["other", "export"], "b = a + 1"),
    )
    from fednb.papers import study

    assert (study.a, study.b, study.__name__) == (1, 2, "fednb.papers.study")


def test_tracebacks_and_getsource_show_the_notebooks_lines(notebooks):
    notebooks("07_study", (["export"], "first = 1"), ([], "1 / 0"), (["export"], SOURCE))
    cls = papers.load("study").Fragile
    assert inspect.getsource(cls).rstrip() == SOURCE.partition("\n\n\n")[2]
    with pytest.raises(ZeroDivisionError) as caught:
        cls().loss(None, None, None, {"zero": 0})
    text = "".join(traceback.format_exception(caught.value))
    assert "07_study.ipynb" in text
    assert 'return {"nothing": 1 / given["zero"]}  # the line that fails' in text


@pytest.mark.parametrize("name", ["study", "07", "07_study", "07_study.ipynb"])
def test_a_notebook_is_found_by_its_name_and_by_its_number(notebooks, name):
    file = notebooks("07_study", (["export"], "a = 1"))
    assert papers.path(name) == file
    assert papers.load(name) is importlib.import_module("fednb.papers.study")


def test_a_path_is_the_notebook_at_that_path(notebooks, tmp_path):
    notebooks("07_study", (["export"], "a = 1"))
    elsewhere = tmp_path / "elsewhere" / "07_study.ipynb"
    elsewhere.parent.mkdir()
    elsewhere.write_text(notebooks("08_other", (["export"], "a = 2")).read_text())
    for name in (str(elsewhere), papers.name(str(elsewhere))):
        assert (papers.path(name), papers.load(name).a) == (elsewhere, 2)
    assert (papers.name("07"), papers.load("07").a) == ("07_study", 1)


def test_another_folders_notebook_takes_the_place_of_the_projects(notebooks):
    assert issubclass(papers.load("00_foundations").FedProx, FedAvg)  # there is none in the folder
    own = notebooks("01_moon", (["export"], "a = 1"))
    notebooks("scratch")
    assert papers.path("moon") == own
    assert own in papers.notebooks()
    assert ROOT / "notebooks" / "01_moon.ipynb" not in papers.notebooks()
    numbers = [file.stem.partition("_")[0] for file in papers.notebooks()]
    assert numbers == [f"{i:02}" for i in range(len(numbers))]


def test_runs_with_other_notebooks_are_not_recorded_among_the_projects(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDNB_RUNS")
    assert ledger.runs_folder() == ROOT / "results" / "runs"
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(tmp_path))
    assert ledger.runs_folder() == tmp_path / "results" / "runs"
    monkeypatch.delenv("FEDNB_NOTEBOOKS")
    monkeypatch.setattr(fednb, "CHECKOUT", False)  # a wheel
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDNB_DATA", raising=False)
    assert ledger.runs_folder() == tmp_path / "results" / "runs"
    environment = pool.environment_of([SimpleNamespace(notebook="01_moon")], tmp_path / "r", False)
    assert environment["FEDNB_RUNS"] == str(tmp_path / "r")
    assert environment["FEDNB_DATA"] == str(tmp_path / "data")


def test_a_missing_notebook_is_an_error_that_names_the_known(notebooks, tmp_path, monkeypatch):
    notebooks("07_study")
    there = re.escape(str(tmp_path))
    with pytest.raises(NotebookError, match=rf"no notebook '09' in {there}; there are: .*07_study"):
        papers.load("09")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("fednb.papers.nothing")
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(tmp_path / "missing"))
    monkeypatch.setattr(papers.importer, "ROOT", tmp_path)
    with pytest.raises(NotebookError, match="missing, where no folder is"):
        papers.load("moon")
    (tmp_path / "missing").mkdir()
    with pytest.raises(NotebookError, match="there are: none"):
        papers.load("moon")


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"cells": 1}', '{"cells": ["a"]}', "\x00\xff", "[" * 100_000]
)
def test_a_corrupt_notebook_is_an_error_that_names_it(notebooks, tmp_path, content):
    (tmp_path / "07_study.ipynb").write_text(content)
    with pytest.raises(NotebookError, match=r"07_study\.ipynb cannot be read as a notebook"):
        papers.load("study")
    assert "fednb.papers.study" not in sys.modules


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("1 / 0", "The export cells of 07_study.ipynb fail (ZeroDivisionError: division by zero)"),
        ("raise SystemExit(0)", "fail (SystemExit: 0)"),
        ("a = 1", "must export METHODS, a dict of methods by name"),
        ("METHODS = {'Mine': 3}", "must export METHODS, a dict of methods by name"),
        ("METHODS = {'Mine': int}", "must export METHODS, a dict of methods by name"),
        ("METHODS = {3: int}", "must export METHODS, a dict of methods by name"),
    ],
)
@pytest.mark.parametrize("ask", [papers.methods, papers.outline])
def test_export_cells_that_give_no_methods_are_one_sentence(notebooks, ask, source, told):
    notebooks("07_study", (["export"], source))
    with pytest.raises(NotebookError, match=re.escape(told)):
        ask("study")


def test_methods_that_cannot_be_read_are_executed(notebooks):
    by_call = SOURCE + "\n\nMETHODS = dict(zip(['Mine'], [eval('Fragile')]))"
    notebooks("07_study", (["export"], by_call))
    assert papers.outline("study").keys() == {"Mine"}
    in_a_loop = SOURCE + "\n\nfor cls in [Fragile]:\n    METHODS = {'Mine': cls}"
    notebooks("08_other", (["export"], in_a_loop))
    assert papers.outline("other") == papers.methods("other")


PARAMETERS = """method = "FedProx"
dataset = "digits"
seed = 0
mu = None  # weight
more = {}  # any other setting"""


@pytest.fixture
def study(notebooks):
    """A notebook with a parameter of its own, and a place for all others."""
    notebooks(
        "07_study",
        (["export"], "from fednb.papers.foundations import METHODS"),
        (["parameters"], PARAMETERS),
    )
    values = {"method": "FedProx", "dataset": "digits", "seed": 3, "mu": 0.5}
    return values | {"more": {"num_rounds": 2}, "lr": 7}


def test_settings_are_read_from_parameters_and_more_and_nothing_else(study):
    settings = papers.settings("07_study", study)
    assert (settings.seed, settings.num_rounds, settings.hyperparameters) == (3, 2, {"mu": 0.5})
    # a variable of the notebook
    assert settings.lr == papers.settings("07_study", study | {"lr": 8}).lr != 7
    readers_own = study | {"METHODS": {"FedProx": FedAvg}, "mu": None}
    assert papers.settings("07_study", readers_own).hyperparameters == {}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"more": {"num_round": 2}}, "'num_round'.*did you mean 'num_rounds'"),
        ({"more": {"mu": 1.0}}, "dict of settings, but of none that is a parameter by itself"),
        ({"more": 3}, "more is 3; it must be a dict"),
        ({"In": ["", "# Parameters\nmu = 1\nlr = 3\n"]}, "no parameter 'lr': put it into more"),
    ],
)
def test_a_name_that_nobody_reads_is_an_error(study, given, told):
    with pytest.raises(SettingsError, match=told):
        papers.settings("07_study", study | given)


def test_flat_names_are_sorted_into_more(study, notebooks):
    flat = {"mu": 1.0, "num_rounds": 3, "beta": 0.1}
    assert papers.arrange("07_study", flat) == {"mu": 1.0, "more": {"num_rounds": 3, "beta": 0.1}}
    notebooks("08_closed", (["parameters"], "method = 'FedAvg'"))
    with pytest.raises(NotebookError, match="08_closed has no parameter 'methud': known are"):
        papers.arrange("08_closed", {"methud": "SOLO"})


UNREADABLE = ["a = b", "print(1)", "a = (", "a = c = 1\nfor i in a: pass", None]


@pytest.mark.parametrize(
    ("source", "told"),
    [(source, "parameters of 07_study cannot be read") for source in UNREADABLE]
    + [("more = 3", r"more of 07_study must be a dict: more = \{\}\.")],
)
def test_parameters_that_cannot_be_read_are_an_error(notebooks, source, told):
    notebooks("07_study", *([(["parameters"], source)] if source else []))
    with pytest.raises(NotebookError, match=told):
        papers.parameters("07_study")
