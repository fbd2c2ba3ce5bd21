"""What `pip install` gives: a wheel with everything in it that its commands need, which works from any folder."""

import json
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from fednb import ROOT
from fednb_lab.course import wheel as students

SOLUTIONS = "fednb/project/notebooks/solutions/"

# Copies the notebooks to where it is executed, and takes from each what a reader without records
# meets: the first cell, and every number, sentence and picture that a cell asks for by its name.
# Nothing of the lab can be imported then, and no record be opened: in a wheel there is none.
READS_COPIES = """
import ast, contextlib, importlib, io, sys
from pathlib import Path
import fednb
import matplotlib.pyplot as plt
from fednb import build, data, papers, results
from fednb.papers.pictures import side_by_side
from fednb_lab import new

copies = [new.copy_notebook(notebook.stem) for notebook in papers.notebooks(extras=True)]
for name in [name for name in sys.modules if name.startswith("fednb_lab")]:
    sys.modules[name] = None
num_asked = 0
for copied in copies:
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
                    assert eval(ast.unparse(node), {"results": results}) is not None
                    num_asked += 1
            if isinstance(node, ast.ImportFrom):
                for name in node.names:
                    module = importlib.import_module(node.module)
                    if not hasattr(module, name.name):
                        importlib.import_module(f"{node.module}.{name.name}")
    plt.close("all")
for name in ("scoreboard", "twins", "how_long"):
    getattr(side_by_side, name)()
assert all(len(data.load(name).images) for name in data.EMBEDDED)
build.federation("FedAvg", dataset="digits", num_rounds=1, device="cpu").run_round()
print([name for name in sys.modules if name.startswith("fednb.gpu")])
assert build.trainers_of_gpus().StackedTrainer and "fednb.gpu.stacked" in sys.modules
print(fednb.__file__, len(copies), num_asked)
"""


# Types commands one after the other, in a single process, as each import of torch takes seconds.
TYPES = """
import contextlib, io, json, sys
from fednb_lab.cli import main

told = []
for words in json.loads(sys.argv[1]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main(words)
    told.append((status, out.getvalue()))
print(json.dumps(told))
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
    for name in ("reported.csv", "claims.yaml", "digits.npz", "digits5_mini.npz", "synthdigits.py"):
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
def run(tmp_path):
    """Runs Python in an empty folder, where a wheel is all that there is of the project."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FEDNB_")}

    def run(installed, *arguments):
        env = kept | {"PYTHONPATH": str(installed), "FEDNB_PROGRESS": "off"}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_types_pages_sweeps_solutions_and_a_reader_of_folders_are_in_it(wheel):
    (named,) = wheel.glob("*.dist-info/entry_points.txt")
    assert "[fednb.datasets]\nfolder = fednb_lab.folders" in named.read_text()
    assert (wheel / "fednb" / "py.typed").exists()
    assert (wheel / "fednb" / "project" / "notebooks" / "SETTINGS.md").exists()  # which help names
    for file in (ROOT / "notebooks").glob("s*s/*"):  # a teacher's hand-outs need solutions
        copy = wheel / "fednb" / "project" / file.relative_to(ROOT)
        assert file.name == "README.md" or copy.read_bytes() == file.read_bytes()


def test_commands_work_where_one_works_and_replace_nothing(run, wheel, tmp_path):
    short = ["num_rounds=2", "local_epochs=1", "num_clients=3"]
    commands = {
        "new my_idea": (0, ""),
        "new my_idea again": (2, "There is a my_idea.ipynb"),
        "run my_idea.ipynb SHORT": (0, ""),
        "sweep my_idea.yaml --dry-run": (0, "to do"),
        "compare FedAvg my_idea.ipynb --seeds 1 SHORT": (0, "MyIdea"),
        "copy 01": (0, "fednb run 01_moon.ipynb"),
        "copy 01_moon": (2, "already"),
        "copy 01_moon mine.txt": (2, ".ipynb"),
        "copy moo": (2, "did you mean '01_moon'"),
        "copy 01 mine.ipynb": (0, ""),
        "run mine.ipynb method=MOON SHORT": (0, ""),
        "run mine.ipynb dataset=folder:pets SHORT": (2, "there is no pets where you are"),
    }
    words = [line.removesuffix(" again").replace("SHORT", " ".join(short)) for line in commands]
    typed = json.dumps([line.split() for line in words])
    told = json.loads(run(wheel, "-c", TYPES, typed).splitlines()[-1])
    for (line, (status, part)), (ended, text) in zip(commands.items(), told, strict=True):
        assert ended == status and part in text, (line, text)
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"my_idea.ipynb", "my_idea.yaml", "01_moon.ipynb", "mine.ipynb", "results"}
    original = wheel / "fednb" / "project" / "notebooks" / "01_moon.ipynb"
    assert (tmp_path / "01_moon.ipynb").read_bytes() == original.read_bytes()
    # what `run` had made, `compare` has not made again
    runs = sorted(path.name.split("-seed")[0] for path in (tmp_path / "results" / "runs").iterdir())
    assert runs == ["FedAvg-digits", "MOON-digits", "MyIdea-digits"]
    pages = {path.suffix for path in (tmp_path / "results" / "compare").iterdir()}
    assert pages == {".csv", ".md", ".svg"}


def test_the_wheel_of_students_is_the_wheel_without_solutions(wheel, students_wheel):
    def contents(site):
        """The files of the packages, without what an interpreter has left there."""
        files = [path for path in site.glob("fednb*/**/*") if path.suffix != ".pyc"]
        found = {str(path.relative_to(site)): path for path in files if path.is_file()}
        packages = ("fednb/", "fednb_lab/")
        return {name: found[name].read_bytes() for name in found if name.startswith(packages)}

    whole = contents(wheel)
    for_students = contents(students_wheel)
    assert for_students.items() <= whole.items()
    lacking = whole.keys() - for_students.keys()
    lacking -= {"fednb/project/data/claims.yaml"}  # which is read where a report is written
    assert lacking and all(name.startswith(SOLUTIONS) for name in lacking), lacking


def test_copies_of_notebooks_need_no_records_and_who_has_no_gpu_never_imports_its_trainer(
    run, students_wheel
):
    """They read what the project found from files of the wheel, wherever one works.

    A hand-out, too: whoever executes it from the top meets the same numbers.
    """
    told = run(students_wheel, "-W", "error::UserWarning", "-c", READS_COPIES).splitlines()
    of_gpus, (file, num_notebooks, num_asked) = told[-2], told[-1].split()
    assert of_gpus == "[]"
    assert file.startswith(str(students_wheel))
    assert int(num_notebooks) == 16 and int(num_asked) > 40
