"""Importing the methods from the notebooks that derive them."""

import importlib
import inspect
import re
import sys
import traceback

import nbformat
import pytest

from fednb import ROOT, papers
from fednb.experiments import execute, ledger
from fednb.experiments.settings import SettingsError
from fednb.federation import FedAvg
from fednb.papers import NotebookError

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
        nb = nbformat.v4.new_notebook()
        nb.cells = [nbformat.v4.new_code_cell(source, metadata={"tags": tags} if tags else {}) for tags, source in cells]
        nb.cells.insert(0, nbformat.v4.new_markdown_cell("export", metadata={"tags": ["export"]}))
        nbformat.write(nb, tmp_path / f"{name}.ipynb")
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

    assert (study.a, study.b) == (1, 2)
    assert study.__name__ == "fednb.papers.study"


@pytest.mark.parametrize("name", ["study", "07_study", "07_study.ipynb"])
def test_a_notebook_is_found_with_and_without_its_number(notebooks, name):
    file = notebooks("07_study", (["export"], "a = 1"))
    assert papers.path(name) == file
    assert papers.load(name).a == 1
    assert papers.load(name) is importlib.import_module("fednb.papers.study")


def test_the_projects_own_notebooks_are_the_default():
    assert papers.path("foundations").name == "00_foundations.ipynb"
    assert issubclass(papers.load("00_foundations").FedProx, FedAvg)


def test_a_path_loads_the_notebook_at_that_path(notebooks, tmp_path):
    notebooks("07_study", (["export"], "a = 1"))
    elsewhere = tmp_path / "elsewhere" / "07_study.ipynb"
    elsewhere.parent.mkdir()
    elsewhere.write_text(notebooks("08_other", (["export"], "a = 2")).read_text())
    assert papers.path(str(elsewhere)) == elsewhere
    assert papers.load(str(elsewhere)).a == 2


def test_getsource_shows_the_notebooks_lines(notebooks):
    notebooks("07_study", (["export"], "first = 1"), ([], "1 / 0"), (["export"], SOURCE))
    cls = papers.load("study").Fragile
    assert inspect.getsource(cls).rstrip() == SOURCE.partition("\n\n\n")[2]
    assert "the line that fails" in inspect.getsource(cls.loss)


def test_export_cells_do_not_inherit_the_loaders_future_flags(notebooks):
    """An annotation is what it says, not its text: types of hyperparameters are read from it."""
    notebooks("07_study", (["export"], "class Study:\n    number: int = 1"), (["export"], "def f(x: Study) -> None: ..."))
    study = papers.load("study")
    assert study.Study.__annotations__ == {"number": int}
    assert study.f.__annotations__ == {"x": study.Study, "return": None}
    notebooks("08_other", (["export"], "def f(x: not_there): ..."))
    with pytest.raises(NameError, match="not_there"):
        papers.load("other")


def test_a_traceback_shows_the_notebooks_line(notebooks):
    notebooks("07_study", (["export"], SOURCE))
    with pytest.raises(ZeroDivisionError) as caught:
        papers.load("study").Fragile().loss(None, None, None, {"zero": 0})
    text = "".join(traceback.format_exception(caught.value))
    assert "07_study.ipynb" in text
    assert 'return {"nothing": 1 / given["zero"]}  # the line that fails' in text


def test_another_folders_notebook_takes_the_place_of_the_projects(notebooks, tmp_path):
    own = notebooks("01_moon", (["export"], "from fednb.papers.foundations import FedProx as Base"))
    assert papers.path("moon") == own
    assert papers.path("foundations") == ROOT / "notebooks" / "00_foundations.ipynb"
    assert own in papers.notebooks() and ROOT / "notebooks" / "01_moon.ipynb" not in papers.notebooks()
    assert ledger.runs_folder().is_relative_to(tmp_path)


def test_runs_with_other_notebooks_are_not_recorded_among_the_projects(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDNB_RUNS")
    assert ledger.runs_folder() == ROOT / "results" / "runs"
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(tmp_path))
    assert ledger.runs_folder() == tmp_path / "results" / "runs"
    monkeypatch.delenv("FEDNB_NOTEBOOKS")
    monkeypatch.setattr(ledger, "ROOT", tmp_path / "site-packages")  # installed without notebooks
    (tmp_path / "hand-out").mkdir()
    monkeypatch.chdir(tmp_path / "hand-out")
    assert ledger.runs_folder() == tmp_path / "hand-out" / "results" / "runs"
    assert execute.environment()["FEDNB_RUNS"] == str(tmp_path / "hand-out" / "results" / "runs")


def test_without_the_projects_notebooks_those_where_one_works_are_taken(notebooks, tmp_path, monkeypatch):
    notebooks("07_study", (["export"], "a = 1"))
    monkeypatch.delenv("FEDNB_NOTEBOOKS")
    monkeypatch.setattr(papers, "ROOT", tmp_path / "site-packages")
    monkeypatch.chdir(tmp_path)
    assert papers.load("study").a == 1


@pytest.mark.parametrize("name", ["nothing", "07_nothing"])
def test_a_missing_notebook_is_an_error_that_names_the_known(notebooks, name, tmp_path):
    notebooks("07_study", (["export"], "a = 1"))
    with pytest.raises(NotebookError, match=rf"no notebook '{name}' in {re.escape(str(tmp_path))}; there are: .*07_study"):
        papers.load(name)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("fednb.papers.nothing")


def test_a_missing_folder_has_no_notebooks(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(tmp_path / "missing"))
    monkeypatch.setattr(papers, "ROOT", tmp_path)
    with pytest.raises(NotebookError, match="there are: none"):
        papers.load("moon")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"cells": 1}', "\x00\xff"])
def test_a_corrupt_notebook_is_an_error_that_names_it(notebooks, tmp_path, content):
    (tmp_path / "07_study.ipynb").write_text(content)
    with pytest.raises(NotebookError, match=r"07_study\.ipynb cannot be read as a notebook"):
        papers.load("study")
    assert "fednb.papers.study" not in sys.modules


def test_an_error_in_an_export_cell_is_not_hidden(notebooks):
    notebooks("07_study", (["export"], "import no_such_module"))
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        papers.load("study")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("first = 1\n1 / 0", "fail in line 2 of them (ZeroDivisionError: division by zero): mend them first"),
        ("raise SystemExit(0)", "fail in line 1 of them (SystemExit: 0)"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("a = 1", "must export METHODS, a dict of methods by name"),
        ("METHODS = {'Mine': 3}", "must export METHODS, a dict of methods by name"),
    ],
)
def test_export_cells_that_give_no_methods_are_one_sentence(notebooks, source, told):
    notebooks("07_study", (["export"], source))
    with pytest.raises(NotebookError, match=re.escape(told)):
        papers.methods("study")


# --- parameters and settings


PARAMETERS = 'method = "FedProx"\ndataset = "digits"\nseed = 0\nmu = None  # weight\nmore = {}  # any other setting'


@pytest.fixture
def study(notebooks):
    """A notebook with a parameter of its own, and a place for all others."""
    own = "from fednb.papers.foundations import METHODS"
    notebooks("07_study", (["export"], own), (["parameters"], PARAMETERS))
    return {"method": "FedProx", "dataset": "digits", "seed": 3, "mu": 0.5, "more": {"num_rounds": 2}, "lr": 7}


def test_settings_are_read_from_parameters_and_more_and_nothing_else(study):
    settings = papers.settings("07_study", study)
    assert (settings.seed, settings.num_rounds, settings.hyperparameters) == (3, 2, {"mu": 0.5})
    assert settings.lr == papers.settings("07_study", study | {"lr": 8}).lr != 7  # a variable of the notebook


def test_a_reader_who_changes_a_method_in_the_notebook_gets_his_own(study):
    assert papers.settings("07_study", study | {"METHODS": {"FedProx": FedAvg}, "mu": None}).hyperparameters == {}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"more": {"num_round": 2}}, "Unknown parameter 'num_round'.*did you mean 'num_rounds'"),
        ({"more": {"mu": 1.0}}, "mu is given twice, as a parameter and in more"),
        ({"more": 3}, "more is 3; it must be a dict"),
        (
            {"In": ["", "# Parameters\nmu = 1\nnum_rounds = 3\n"]},
            r"no parameter 'num_rounds': put it into more, as {'num_rounds': 3}",
        ),
    ],
)
def test_a_name_that_nobody_reads_is_an_error(study, given, told):
    with pytest.raises(SettingsError, match=told):
        papers.settings("07_study", study | given)


def test_flat_names_are_sorted_into_more(study, notebooks):
    flat = {"mu": 1.0, "num_rounds": 3, "beta": 0.1}
    assert papers.arrange("07_study", flat) == {"mu": 1.0, "more": {"num_rounds": 3, "beta": 0.1}}
    notebooks("08_closed", (["parameters"], "method = 'FedAvg'"))
    with pytest.raises(NotebookError, match=r"08_closed has no parameter 'methud': .*did you mean 'method'"):
        papers.arrange("08_closed", {"methud": "SOLO"})


@pytest.mark.parametrize("source", ["a = b", "print(1)", "a = (", "a = c = 1\nfor i in a: pass"])
def test_a_parameters_cell_that_cannot_be_read_is_an_error(notebooks, source):
    notebooks("07_study", (["parameters"], source))
    with pytest.raises(NotebookError, match="parameters cell of the notebook 07_study cannot be read"):
        papers.parameters("07_study")
