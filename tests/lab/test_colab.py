"""Notebooks for Colab: their first cell installs what is missing, and else does nothing."""

import importlib.util
import runpy

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager

from fednb import ROOT

colab = runpy.run_path(str(ROOT / "docs" / "colab.py"))


class Shell:
    """Stands in for IPython's, and notes what it is asked to do."""

    def __init__(self):
        self.asked = []

    def run_line_magic(self, name, line):
        self.asked.append(f"{name} {line}")

    def system(self, line):
        self.asked.append(line)


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory):
    return colab["copies"]("someone/their-fork", tmp_path_factory.mktemp("colab"))


def test_each_notebook_has_a_copy_that_begins_with_the_installation(notebooks):
    folder = next(path for path in notebooks[0].parents if path.name == "notebooks").parent
    originals = sorted((ROOT / "notebooks").rglob("[!.]*.ipynb"))
    assert [folder / path.relative_to(ROOT) for path in originals] == sorted(notebooks)
    for path in notebooks:
        copy = nbformat.read(path, as_version=4)
        nbformat.validate(copy)
        original = nbformat.read(ROOT / path.relative_to(folder), as_version=4)
        assert copy.cells[1:] == original.cells
        assert "setup" in copy.cells[0].metadata["tags"]


@pytest.mark.parametrize("is_there", [True, False])
def test_the_first_cell_installs_only_where_the_package_is_missing(
    notebooks, is_there, monkeypatch
):
    first = nbformat.read(notebooks[0], as_version=4).cells[0].source
    shell = Shell()
    if not is_there:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    path = list(__import__("sys").path)
    monkeypatch.setattr("sys.path", path)
    exec(TransformerManager().transform_cell(first), {"get_ipython": lambda: shell})
    if is_there:
        assert not shell.asked
    else:
        assert any("github.com/someone/their-fork" in line for line in shell.asked)
        assert any(line.startswith("pip install") for line in shell.asked)


def test_a_repository_without_an_owner_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="OWNER/REPO"):
        colab["copies"]("fednb", tmp_path)
