"""What `pip install` gives: a wheel with everything in it that its commands need, which works from any folder."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from fednb import ROOT


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
    for name in ("reported.csv", "claims.yaml"):  # and no images, which users put there
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


@pytest.fixture
def run(wheel, tmp_path):
    """Runs Python in an empty folder, where the wheel is all that there is of the project."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FEDNB_")}
    env = kept | {"PYTHONPATH": str(wheel), "FEDNB_PROGRESS": "off"}

    def run(*arguments, status=0):
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
