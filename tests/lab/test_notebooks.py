"""Notebooks executed from top to bottom, by the command behind `make run`."""

import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from fednb import papers
from fednb_lab.cli import main

NUMBERED = re.compile(r"^## (\d+) ", re.MULTILINE)


@pytest.mark.parametrize("path", papers.notebooks(extras=True), ids=lambda path: path.stem)
def test_numbered_headings_count_up_without_a_gap(path):
    """A section that lost its heading cannot be found from a text that sends readers to it."""
    cells = nbformat.read(path, 4).cells
    texts = [cell.source for cell in cells if cell.cell_type == "markdown"]
    numbers = [int(found) for text in texts for found in NUMBERED.findall(text)]
    assert numbers == list(range(1, len(numbers) + 1))


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


LINE = re.compile(r"\[(\d)/3\] (\w+) +(.*)")


def test_all_are_executed_with_a_seed_and_one_that_fails_is_told(three, tmp_path, capfd):
    out = tmp_path / "out"
    assert main(["notebooks", "--out", str(out), "--seed", "7"]) == 1
    told, err = capfd.readouterr()
    lines = [LINE.fullmatch(line).groups() for line in told.splitlines() if line.startswith("[")]
    assert [number for number, *_ in lines] == ["1", "2", "3"]  # of those that have ended
    failure = "FAILED in cell [3]: ZeroDivisionError: division by zero"  # [2] sets the seed
    results = {name: result for _, name, result in lines}
    assert results == {"90_good": "done", "91_bad": failure, "92_better": "done"}
    assert err == "fednb: 91_bad failed; the copies show where.\n"  # and no word of the kernel's
    copy = nbformat.read(out / "notebooks" / "92_better.ipynb", 4)
    assert copy.cells[-1].outputs[0].data["text/plain"] == repr(str(out / "runs"))
    assert any(cell.source.endswith("seed = 7\n") for cell in copy.cells)
