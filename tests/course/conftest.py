"""Fixtures of the tests of the course."""

import shutil

import pytest
from short import write_short

from fednb_lab.cli import main


@pytest.fixture
def short(tmp_path, monkeypatch):
    """The short assignment notebook, in a folder of its own."""
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(tmp_path / "notebooks"))
    monkeypatch.chdir(tmp_path)
    return write_short(tmp_path / "notebooks")


@pytest.fixture(scope="session")
def released_once(tmp_path_factory):
    """The course folder with the hand-out of the short assignment."""
    folder = tmp_path_factory.mktemp("released")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_NOTEBOOKS", str(folder / "notebooks"))
        patch.chdir(folder)
        write_short(folder / "notebooks")
        assert main(["course", "release", "short"]) == 0
    return folder / "course"


@pytest.fixture
def handed_out(short, released_once):
    """The hand-out of the short assignment."""
    shutil.copytree(released_once, "course")
    return short.parents[1] / "course" / "release" / "90_short" / "90_short.ipynb"
