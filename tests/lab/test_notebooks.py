"""Notebooks executed from top to bottom, by the command behind `make run`."""

import os
import re
from contextlib import contextmanager

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from fednb import papers
from fednb_lab import pool, processes
from fednb_lab.cli import main


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


def test_as_many_as_there_are_cores_are_executed_at_once_on_a_thread_each(
    three, tmp_path, monkeypatch
):
    asked = []

    def side_by_side(queue, start, places):
        asked.append(places)
        yield from ((file, start(file, 0)) for file in queue)

    @contextmanager
    def own_processes():
        yield lambda *_, environment, log: asked.append(environment) or ""

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(pool, "side_by_side", side_by_side)
    monkeypatch.setattr(processes, "own_processes", own_processes)
    assert main(["notebooks", "--out", str(tmp_path)]) == 0
    assert asked[0] == 2 and len(asked) == 4
    assert {(e["OMP_NUM_THREADS"], e["FEDNB_WORKERS"]) for e in asked[1:]} == {("1", "1")}
