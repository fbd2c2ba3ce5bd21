"""What `pip install` gives: a wheel with everything in it that its commands need, which works from any folder."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from fednb import ROOT
from fednb_lab.course import wheel as students

# Copies the notebooks to where it is executed, and takes from each what a reader without records
# meets: the first cell, and every number and sentence that a cell asks `results` for by its name.
READS_COPIES = """
import ast, contextlib, importlib, io
from pathlib import Path
import fednb
from fednb import data, papers, results
from fednb_lab import new

num_asked = 0
for notebook in papers.notebooks():
    copied = new.copy_notebook(notebook.stem)
    cells = papers.cells(copied, "code")
    with contextlib.redirect_stdout(io.StringIO()):
        exec(next(cell for cell in cells if cell.strip()), {"display": print})
    for cell in cells:
        if cell.lstrip().startswith(("%", "!")):
            continue
        for node in ast.walk(ast.parse(cell)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("results."):
                arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
                is_by_name = isinstance(node.func.value, ast.Name)
                if is_by_name and all(isinstance(one, ast.Constant) for one in arguments):
                    eval(ast.unparse(node), {"results": results})
                    num_asked += 1
            if isinstance(node, ast.ImportFrom):
                for name in node.names:
                    module = importlib.import_module(node.module)
                    if not hasattr(module, name.name):
                        importlib.import_module(f"{node.module}.{name.name}")
assert all(len(data.load(name).images) for name in data.EMBEDDED)
print(fednb.__file__, len(list(Path().glob("*.ipynb"))), num_asked)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A folder into which the wheel is unpacked, as pip would.

    It is made of a copy: setuptools builds in the tree, where another worker of pytest may build too,
    and where files lie that an earlier build has left.
    """
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for name in ("fednb", "fednb_lab", "notebooks"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    (source / "data").mkdir()
    # and no other images, which users put there
    for name in ("reported.csv", "claims.yaml", "digits5_mini.npz", "synthdigits.py"):
        shutil.copy(ROOT / "data" / name, source / "data")
    (source / "results").mkdir()
    for path in [ROOT / "results" / "cells.csv", *(ROOT / "results").glob("*.json")]:
        shutil.copy(path, source / "results")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "-w", folder, source], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    zipfile.ZipFile(built).extractall(folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def students_wheel(tmp_path_factory):
    """The same of the wheel that students get, which holds no solutions."""
    folder = tmp_path_factory.mktemp("students")
    zipfile.ZipFile(students.students_wheel(folder)).extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def run(wheel, tmp_path):
    """Runs Python in an empty folder, where a wheel is all that there is of the project."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FEDNB_")}

    def run(*arguments, status=0, installed=wheel):
        env = kept | {"PYTHONPATH": str(installed), "FEDNB_PROGRESS": "off"}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_methods_notebooks_sweeps_and_types_are_in_it(run, wheel, tmp_path):
    code = "from fednb.papers.fedplcc import FedPLCC; print(fednb.__file__, FedPLCC.__module__)"
    said = run("-c", f"import fednb; {code}")
    assert str(wheel) in said and "fednb.papers.fedplcc" in said
    assert (wheel / "fednb" / "py.typed").exists()
    assert (wheel / "fednb_lab" / "explorer_page" / "own.html").exists()
    solutions = wheel / "fednb" / "project" / "notebooks" / "solutions"
    assert (solutions / "01_moon.ipynb").exists()  # a teacher's hand-outs need them
    assert "digits-moon" in run("-m", "fednb_lab", "list")
    code = "from fednb import results; print(results.finding('moon-mu').data, results.table('moon-1').data)"
    assert "| MOON | CIFAR-10 |" in run("-c", code)
    assert not list(tmp_path.iterdir())  # to ask leaves nothing behind


def test_a_new_method_is_run_swept_and_compared_where_one_works(run, tmp_path):
    run("-m", "fednb_lab", "new", "my_idea")
    assert {path.name for path in tmp_path.iterdir()} == {"my_idea.ipynb", "my_idea.yaml"}
    assert "There is a my_idea.ipynb" in run("-m", "fednb_lab", "new", "my_idea", status=2)
    short = ["num_rounds=2", "local_epochs=1", "num_clients=3"]
    run("-m", "fednb_lab", "run", "my_idea.ipynb", *short)
    (record,) = (tmp_path / "results" / "runs").glob("*.json")
    assert record.name.startswith("MyIdea-digits-seed0-")
    assert "to do" in run("-m", "fednb_lab", "sweep", "my_idea.yaml", "--dry-run")
    said = run("-m", "fednb_lab", "compare", "FedAvg", "my_idea.ipynb", "--seeds", "2", *short)
    assert "MyIdea" in said and "FedAvg" in said
    # the run that was there is not made again
    assert len(list((tmp_path / "results" / "runs").glob("*.json"))) == 4
    made = {path.suffix for path in (tmp_path / "results" / "compare").iterdir()}
    assert made == {".md", ".svg"}


def test_copies_of_notebooks_need_no_records(run, wheel):
    """They read what the project found from files of the wheel, wherever one works."""
    file, num_notebooks, num_asked = run("-c", READS_COPIES).split()
    assert file.startswith(str(wheel))
    assert int(num_notebooks) == 7 and int(num_asked) > 30


def test_a_handout_needs_no_more_than_the_wheel_of_students(run, students_wheel):
    """Whoever executes it from the top meets the same numbers; and there are no solutions."""
    file, num_notebooks, _ = run("-c", READS_COPIES, installed=students_wheel).split()
    assert file.startswith(str(students_wheel)) and int(num_notebooks) == 7
    assert not list(students_wheel.rglob("solutions"))


def test_a_copy_is_run_where_one_works_and_replaces_nothing(run, tmp_path):
    assert "fednb run 01_moon.ipynb" in run("-m", "fednb_lab", "copy", "01")
    before = (tmp_path / "01_moon.ipynb").read_bytes()
    assert "already" in run("-m", "fednb_lab", "copy", "01_moon", status=2)
    assert ".ipynb" in run("-m", "fednb_lab", "copy", "01_moon", "mine.txt", status=2)
    assert "did you mean '01_moon'" in run("-m", "fednb_lab", "copy", "moo", status=2)
    assert (tmp_path / "01_moon.ipynb").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["01_moon.ipynb"]
    run("-m", "fednb_lab", "copy", "01", "mine.ipynb")
    short = ["method=MOON", "num_rounds=2", "local_epochs=1", "num_clients=3"]
    run("-m", "fednb_lab", "run", "mine.ipynb", *short)
    (record,) = (tmp_path / "results" / "runs").glob("*.json")
    assert record.name.startswith("MOON-digits-seed0-")
