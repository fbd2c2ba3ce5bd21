"""What README.md, docs/howto and USING.md tell people to type does what they say, word for word."""

import importlib.util
import re
import shlex
import sys
import types
from unittest.mock import MagicMock

import numpy as np
import pytest
from PIL import Image

from fednb import ROOT, data, models, papers, settings
from fednb import records as ledger
from fednb import run as runner
from fednb_lab import compare as head_to_head
from fednb_lab import pool
from fednb_lab.cli import main
from fednb_lab.jobs import find_methods


def blocks(page, kind):
    return re.findall(rf"```{kind}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.fixture
def short(monkeypatch):
    """Runs of two rounds."""
    resolve = settings.resolve
    monkeypatch.setattr(
        settings, "resolve", lambda *a, **k: resolve(*a, **k | {"num_rounds": 2, "local_epochs": 1})
    )
    # what is registered is forgotten afterwards
    for name in ("DATASETS", "REGISTERED"):
        monkeypatch.setattr(data, name, dict(getattr(data, name)))
    monkeypatch.setitem(models.MODELS, "mlp", models.MODELS["digits-cnn"])


PAGES = ["README.md", "docs/howto/method.md", "docs/howto/data.md"]
CODE = dict.fromkeys(code for page in PAGES for code in blocks(page, "python"))  # each once


@pytest.mark.parametrize("code", CODE, ids=range(len(CODE)))
def test_code_on_the_first_pages_runs(code, short, capsys):
    exec(code, {"__name__": "readme"})
    assert 0 <= float(capsys.readouterr().out) <= 100


def test_commands_on_ones_own_method_and_images_run(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    for place in (
        f"photos/{domain}/{label}/{i}.jpg" for domain in "ab" for label in "cde" for i in range(60)
    ):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(tmp_path / place)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDNB_CACHE", str(tmp_path / "cache"))

    def made_here(todo, **_):  # and not in a process for each
        return [
            (job, runner.run(job.settings, papers.methods(job.notebook), workers=1) and None)
            for job in todo
        ]

    monkeypatch.setattr(pool, "run", made_here)
    lines = re.findall(
        "^fednb (.*(?:my_method|photos).*)",
        (ROOT / "README.md").read_text(),
        re.MULTILINE,
    )
    commands = [shlex.split(line, comments=True) for line in lines]
    assert [words[0] for words in commands] == ["new", "compare", "run", "compare"]
    for words in commands:
        short = ["num_rounds=1", "local_epochs=1"] if words[0] != "new" else []
        assert main([*words, *short]) == 0
    shown = capsys.readouterr().out
    assert "MyMethod" in shown and "lead over FedAvg" in shown and "folder:photos#" in shown


def test_the_reader_of_the_page_on_data_reads_a_set(monkeypatch, tmp_path):
    module = types.ModuleType("my_reader")
    (code,) = blocks("data/README.md", "python")
    exec(code, vars(module))
    installed = types.SimpleNamespace(load=lambda: module)
    monkeypatch.setattr(data, "_readers", lambda: {"mine": installed})
    monkeypatch.setenv("FEDNB_RUNS", str(tmp_path / "runs"))
    short = ["num_rounds=1", "local_epochs=1", "num_clients=2"]
    assert main(["run", "00", "dataset=mine:7", *short]) == 0
    (path,) = (tmp_path / "runs").glob("*.json")
    found = ledger.read(path)["dataset"]
    assert (found["name"], found["training_images"], found["test_images"]) == ("mine:7", 400, 100)


@pytest.fixture
def some_records(tmp_path):
    """A tenth of the committed records on digits: to read all of them takes seconds."""
    folder = tmp_path / "some" / "runs"
    folder.mkdir(parents=True)
    for path in sorted((ROOT / "results" / "runs").glob("*-digits-*.json"))[::10]:
        (folder / path.name).symlink_to(path)
    return folder


def test_code_for_other_projects_runs(some_records, tmp_path, monkeypatch, capsys):
    """With stand-ins for TensorBoard and Weights & Biases, which are not installed with the package."""
    tensorboard, wandb = MagicMock(), MagicMock()
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", tensorboard)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.chdir(tmp_path)  # what it writes lies there
    names = {"__name__": "using"}
    for code in blocks("notebooks/USING.md", "python"):
        if "ledger.load()" in code:  # what makes a run has its records elsewhere
            monkeypatch.setenv("FEDNB_RUNS", str(some_records))
        exec(code, names)
    assert names["terms"].keys() == {"cross_entropy", "contrastive"}
    assert "MOON" in capsys.readouterr().out
    writer = tensorboard.SummaryWriter.return_value.__enter__.return_value
    assert writer.add_scalar.called and wandb.init.called
    assert (
        tensorboard.SummaryWriter.call_count < 100
    )  # and not a folder for each of some thousand records


@pytest.mark.parametrize("given", [{}, {"participation": 0.5, "num_clients": 4, "mu": 2.5}])
def test_methods_are_compared_in_the_setting_of_the_first(given):
    """Though FedProto's notebook has another split by itself, and the papers other rounds for some methods."""
    names = ["FedAvg", "FedProto", "FedPLCC", "MOON", "FedProc"]
    table = head_to_head.table_of(find_methods(names), given, 2)
    one = {tuple(getattr(job.settings, name) for name in settings.FIELDS) for job in table.jobs}
    assert len(table.jobs) == 10 and {job.settings.method for job in table.jobs} == set(names)
    assert len(one) == 2  # one for each seed
    assert {job.settings.hyperparameters.get("mu") for job in table.jobs} >= (
        {2.5} if "mu" in given else set()
    )


def test_pages_of_modules_name_modules_that_are_there():
    pages = (ROOT / "docs" / "api").glob("*.md")
    named = re.findall(r"automodule:: (\S+)", "\n".join(page.read_text() for page in pages))
    assert named and [name for name in named if importlib.util.find_spec(name) is None] == []
