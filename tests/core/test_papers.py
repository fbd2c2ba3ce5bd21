"""Importing the methods from the notebooks that derive them."""

import importlib
import inspect
import linecache
import re
import sys
import traceback
from types import ModuleType

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import fednb
from fednb import ROOT, papers, sources
from fednb import records as ledger
from fednb.errors import NotebookError, SettingsError
from fednb.federation import FedAvg
from fednb_lab.jobs import runs_of, to_notebook_parameters

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
            vars(papers).pop(name.removeprefix("fednb.papers."), None)


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


@pytest.mark.parametrize("name", ["study", "07", "07_study"])
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


def test_a_path_at_which_nothing_lies_means_no_namesake(notebooks, monkeypatch, tmp_path):
    notebooks("07_study", (["export"], "a = 1"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(NotebookError, match=r"no file 07_study\.ipynb: .*fednb copy 07_study"):
        papers.path("07_study.ipynb")


def test_runs_are_recorded_where_one_works_and_in_the_projects_folders_among_its_own(
    monkeypatch, tmp_path
):
    monkeypatch.delenv("FEDNB_RUNS")
    for folder in (ROOT, ROOT / "notebooks", ROOT / "notebooks" / "sweeps"):
        monkeypatch.chdir(folder)
        assert ledger.runs_folder() == ledger.runs_folder(folder) == ROOT / "results" / "runs"
    monkeypatch.chdir(tmp_path)
    assert ledger.runs_folder() == tmp_path / "results" / "runs"  # though there is a clone
    assert ledger.runs_folder(ROOT / "mine") == ROOT / "mine" / "results" / "runs"
    monkeypatch.setattr(fednb, "CHECKOUT", False)  # a wheel
    assert ledger.runs_folder(ROOT / "notebooks") == tmp_path / "results" / "runs"
    monkeypatch.setenv("FEDNB_RUNS", "elsewhere")
    assert ledger.runs_folder() == tmp_path / "elsewhere"


def test_a_missing_notebook_is_an_error_that_names_the_known(notebooks):
    notebooks("07_study")
    with pytest.raises(NotebookError, match=r"no notebook .09.*07_study"):
        papers.load("09")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("fednb.papers.nothing")


@pytest.mark.parametrize("content", ["", '{"cells": ["a"]}', "[" * 100_000])
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
        ("METHODS = {'Mine': int}", "must export METHODS, a dict of methods by name"),
    ],
)
def test_export_cells_that_give_no_methods_are_one_sentence(notebooks, source, told):
    notebooks("07_study", (["export"], source))
    with pytest.raises(NotebookError, match=re.escape(told)):
        papers.methods("study")


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
    assert to_notebook_parameters("07_study", flat) == {
        "mu": 1.0,
        "more": {"num_rounds": 3, "beta": 0.1},
    }
    notebooks("08_closed", (["parameters"], "method = 'FedAvg'"))
    with pytest.raises(
        NotebookError, match="08_closed has no parameter 'methud': did you mean 'method'"
    ):
        to_notebook_parameters("08_closed", {"methud": "SOLO"})


@pytest.mark.parametrize("source", ["a = b", "a = (", "more = 3", None])
def test_parameters_that_cannot_be_read_are_an_error(notebooks, source):
    notebooks("07_study", *([(["parameters"], source)] if source else []))
    with pytest.raises(NotebookError, match="parameters of 07_study cannot be read"):
        papers.parameters("07_study")


# ---- a notebook of one's own, a copy of it, and what lies beside


def test_a_notebook_of_ones_own_among_the_projects_has_its_records_beside_it(monkeypatch, tmp_path):
    """In a kernel, for commands, and if JupyterLab has called it as it calls copies."""
    monkeypatch.delenv("FEDNB_RUNS")
    (tmp_path / "notebooks" / "sweeps").mkdir(parents=True)
    for module in ("notebooks", "records"):
        monkeypatch.setattr(f"fednb.{module}.ROOT", tmp_path)
    for module in ("fednb", "fednb_lab.jobs"):
        monkeypatch.setattr(f"{module}.ROOT", tmp_path)
    monkeypatch.chdir(tmp_path / "notebooks")
    kernel = sys.modules["__main__"]
    places = {"01_moon": tmp_path / "results" / "runs"}
    places |= dict.fromkeys(["mine", "01_moon-Copy1"], tmp_path / "notebooks" / "results" / "runs")
    for stem, runs in places.items():
        file = tmp_path / "notebooks" / f"{stem}.ipynb"
        file.write_text("{}")
        monkeypatch.setattr(kernel, "__session__", str(file), raising=False)
        assert ledger.runs_folder() == runs_of(str(file)) == runs
    assert [file.stem for file in papers.notebooks(extras=True)] == ["01_moon"]


OWN = (
    SOURCE
    + """


METHODS = {"Fragile": Fragile}
"""
)


def test_the_notebook_that_is_executed_is_known_whatever_its_cell_says(study, notebooks, tmp_path):
    """A copy has its own parameters under any name, and needs no namesake."""
    copy = notebooks("my copy", (["parameters"], PARAMETERS + "\npull = 2"))
    methods = papers.methods("foundations")
    of_copy = study | {"__session__": str(copy), "pull": None, "METHODS": methods}
    assert papers.settings("07_study", of_copy).seed == 3
    assert papers.settings("gone", of_copy).seed == 3
    with pytest.raises(SettingsError, match="pull"):
        papers.settings("07_study", of_copy | {"pull": 3})


def test_a_module_beside_a_notebook_is_the_one_beside_it(notebooks, tmp_path):
    """As in JupyterLab; another notebook may have a namesake beside it."""
    source = "import helper\n\nvalue = helper.VALUE"
    for number in (1, 2):
        folder = tmp_path / f"folder{number}"
        folder.mkdir()
        (folder / "helper.py").write_text(f"VALUE = {number}")
        notebooks("own", (["export"], source)).rename(folder / "own.ipynb")
        assert papers.load(str(folder / "own.ipynb")).value == number
    assert "helper" not in sys.modules


# ---- a method is known by its source


def digest(notebooks, name, source):
    notebook = notebooks(name, (["export"], source))
    return sources.digest(papers.load(str(notebook)).METHODS["Fragile"])


def test_a_method_is_known_by_its_source_and_not_by_its_layout(notebooks):
    known = digest(notebooks, "one", OWN)
    assert known and len(known) == 12
    alike = [
        OWN.replace("    ", "  ").replace("# the line that fails", "# a comment"),
        OWN.replace("A method of a student.", "Told in other words."),
        OWN.replace("    def loss", "    mu: float = 1.0  # a hyperparameter\n\n    def loss"),
        OWN + "\nOTHER = 3\n\n\ndef unused():\n    return 5\n",
    ]
    for number, same in enumerate(alike):
        assert digest(notebooks, f"same{number}", same) == known
    others = [
        OWN.replace("1 / given", "2 / given"),
        OWN.replace("class Fragile(FedAvg):", "class Fragile(FedAvg):\n    personal = True"),
    ]
    digests = [digest(notebooks, f"other{number}", other) for number, other in enumerate(others)]
    assert len({known, *digests}) == 1 + len(others)


@pytest.mark.parametrize(
    "read",
    [
        "W = [1, 3]",
        "W = lambda x: k(x)\n\ndef k(x):\n    return 1",
        "K = 1\n\ndef W(x, k=K):\n    return k",
        "import helper\n\ndef W(x):\n    return helper.K",
        "from helper import K as W",
        "from helper import *\n\ndef W(x):\n    return K",
        "from fednb.papers.beside import K as W",
    ],
)
def test_a_method_is_known_by_all_that_it_mentions(notebooks, tmp_path, read):
    def known_by(name, value):
        (tmp_path / "helper.py").write_text(f"K = [{value}]")
        linecache.cache.pop(str(tmp_path / "helper.py"), None)
        notebooks("beside", (["export"], f"K = {value}"))
        sys.modules.pop("fednb.papers.beside", None)
        source = read.replace("1", value) + "\n" + OWN.replace("1 / given", "W")
        return digest(notebooks, name, source)

    assert known_by("first", "1") == known_by("again", "1") != known_by("other", "2")


def test_the_module_that_is_loaded_counts_and_not_a_namesake_where_one_works(tmp_path, monkeypatch):
    """And of a package what a module imports from the folder above."""
    package = tmp_path / "elsewhere" / "own_package"
    (package / "inner").mkdir(parents=True)
    (tmp_path / "own_package.py").write_text(OWN)
    (package / "shared.py").write_text("W = 3")
    source = "from ..shared import W\n" + OWN.replace("1 / given", "W / given")
    (package / "inner" / "method.py").write_text(source)
    for folder in (package, package / "inner"):
        (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module("own_package.inner.method")
    known = sources.digest(module.METHODS["Fragile"])
    namesake = tmp_path / "own_package" / "inner" / "method.py"
    namesake.parent.mkdir(parents=True)
    namesake.write_text(OWN)
    assert known and sources.digest(module.METHODS["Fragile"]) == known
    (package / "shared.py").write_text("W = 4")
    linecache.cache.pop(str(package / "shared.py"), None)
    assert sources.digest(module.METHODS["Fragile"]) not in (known, None)


def test_a_kernels_method_is_that_of_the_notebook_unless_a_cell_is_changed(notebooks, monkeypatch):
    kernel = ModuleType("__main__")
    kernel.In = [""]
    monkeypatch.setitem(sys.modules, "__main__", kernel)

    def execute(source):
        kernel.In.append(source)
        exec(source, vars(kernel))
        return sources.digest(kernel.METHODS["Fragile"]) if "METHODS" in vars(kernel) else None

    helper = "def top():\n    return 1"
    source = OWN.replace("1 / given", "top() / given")
    execute("x = 3  # of another cell")
    execute(helper)
    known = execute(source)
    assert known == digest(notebooks, "one", f"{helper}\n\n{source}")
    assert execute(helper.replace("1", "2")) not in (known, None)
    assert execute(helper) == known
    assert execute(source.partition("METHODS")[0]) is None  # which still has the class of before


def test_every_methods_source_can_be_read():
    assert all(map(sources.digest, papers.methods().values()))
