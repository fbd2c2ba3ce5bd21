"""Notebooks executed from top to bottom, by the command behind `make run`."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from fednb import papers
from fednb.cli import main


@pytest.fixture
def three(tmp_path, monkeypatch):
    """A folder of notebooks of which the second fails in its second cell."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, source in {
        "90_good": "print(1)",
        "91_bad": "1 / 0",
        "92_better": "import os; os.environ['FEDNB_RUNS']",
    }.items():
        cells = [
            new_code_cell("seed = 0", metadata={"tags": ["parameters"]}),
            new_code_cell(source),
        ]
        nbformat.write(new_notebook(cells=cells), folder / f"{name}.ipynb")
    monkeypatch.setattr(papers, "notebooks", lambda extras: sorted(folder.glob("*.ipynb")))
    return folder


def test_a_failing_notebook_is_told_and_the_others_are_executed(three, tmp_path, capfd):
    assert main(["notebooks", "--out", str(tmp_path / "out")]) == 1
    out, err = capfd.readouterr()
    first, second, third = (line for line in out.splitlines() if line.startswith("["))
    assert first.startswith("[1/3] 90_good") and first.endswith("done")
    assert "FAILED in cell [2]: ZeroDivisionError: division by zero" in second
    assert third.endswith("done")
    assert err == "fednb: 91_bad failed; the copies show where.\n"  # and no word of the kernel's
    copy = nbformat.read(tmp_path / "out" / "notebooks" / "92_better.ipynb", 4)
    assert copy.cells[-1].outputs[0].data["text/plain"] == repr(str(tmp_path / "out" / "runs"))


def test_a_seed_reaches_the_notebooks(three, tmp_path):
    main(["notebooks", "--out", str(tmp_path / "out"), "--seed", "7"])
    copy = nbformat.read(tmp_path / "out" / "notebooks" / "90_good.ipynb", 4)
    assert any(cell.source.endswith("seed = 7\n") for cell in copy.cells)
