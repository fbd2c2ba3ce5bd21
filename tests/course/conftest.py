"""Fixtures of the tests of the course."""

import pytest
from short import write_short

from fednb_lab.cli import main


@pytest.fixture
def short(tmp_path, monkeypatch):
    """The short assignment notebook, in a folder of its own."""
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(tmp_path / "notebooks"))
    monkeypatch.chdir(tmp_path)
    return write_short(tmp_path / "notebooks")


@pytest.fixture
def handed_out(short, capsys):
    """The hand-out of the short assignment."""
    assert main(["course", "release", "short"]) == 0
    assert "Hand out what is in" in capsys.readouterr().out
    return short.parents[1] / "course" / "release" / "90_short" / "90_short.ipynb"
