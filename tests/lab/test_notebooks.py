"""Notebooks executed from top to bottom, by the command behind `make run`."""

import os
import re
import threading

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from fednb import papers
from fednb_lab import commands, processes
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


LINE = re.compile(r"\[(\d)/3\] (\w+) +\d+ s  (.*)")


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


@pytest.fixture
def started(monkeypatch):
    """The environments of processes that are started, by their notebooks: none is, in truth."""
    found = {}

    def call(function, file, *_, environment, **options):
        found[file.stem] = environment
        return ""

    monkeypatch.setattr(processes, "call", call)
    return found


def execute(tmp_path):
    return list(commands._execute_side_by_side(papers.notebooks(extras=True), tmp_path, {}))


def test_notebooks_are_executed_side_by_side_on_a_thread_each(
    three, tmp_path, started, monkeypatch
):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    execute(tmp_path)
    for env in started.values():
        assert (env["OMP_NUM_THREADS"], env["FEDNB_WORKERS"]) == ("1", "1")
    assert len(started) == 3


def test_two_are_executed_at_once_where_there_are_two_cores(three, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    both = threading.Barrier(2, timeout=60)
    monkeypatch.setattr(processes, "call", lambda *_, **options: "" if both.wait() < 2 else "alone")
    (three / "92_better.ipynb").unlink()
    assert [error for _, _, error in execute(tmp_path)] == ["", ""]
