"""Notebook 06: a method of thirty lines joins everything, and what the comparison stands on."""

import inspect
import re
import shutil
import sys
from collections import Counter

import nbformat
import numpy as np
import pytest
import torch
import yaml
from fednb.papers.side_by_side import METHODS, FedPrior

from fednb import ROOT, papers
from fednb import reporting as report
from fednb.experiments import execute, ledger, runner, settings, sweep
from fednb.federation import FedAvg

SWEEP = ROOT / "notebooks" / "sweeps" / "06_side_by_side.yaml"
COMPARED = {"FedAvg", "FedProx", "SCAFFOLD", "MOON", "FedProc", "FedSSC", "FedProto", "FedProto+FedAvg", "FedPLCC"}
COMPARED |= {"FedPrior", "Local"}
TINY = {"num_rounds": 1, "local_epochs": 1, "num_clients": 4}


@pytest.fixture(scope="module")
def tables():
    with pytest.MonkeyPatch.context() as patch:  # the records of who has no data: it may be another one where this runs
        patch.setenv("FEDNB_RUNS", str(ROOT / "results" / "runs"))
        return sweep.read(SWEEP)


def resolve(**given):
    return settings.resolve(METHODS, **{"dataset": "digits"} | given)


# --- the method


def test_the_method_has_at_most_thirty_lines():
    lines = [line for line in inspect.getsource(FedPrior).splitlines() if line.strip()]
    assert 5 < len(lines) <= 30


def test_the_shift_is_the_logarithm_of_the_clients_class_frequencies(ragged):
    """Against a loop over images, with a class that the client does not have."""
    fed = ragged(FedPrior(strength=2.0), ([0, 1, 1], [2, 0], [1, 2], [0, 1, 2]))
    client = fed.clients[0]  # 7 images of class 0, 13 of class 1, none of class 2
    with fed.lend_model(client):
        client.load({"model": fed.server["model"]})
        given = fed.method.prepare(client, {}, 0)
        x, y = next(fed.batches(client.indices, np.random.default_rng(0)))
        loss = fed.method.loss(client.model, x, y, given)["cross_entropy"]
        logits = client.model(x).logits.double()
    frequencies = [8 / 23, 14 / 23, 1 / 23]
    expected = []
    for row, label in zip(logits.tolist(), y.tolist(), strict=True):
        weights = [np.exp(value) * frequency**2 for value, frequency in zip(row, frequencies, strict=True)]
        expected.append(-np.log(weights[label] / sum(weights)))
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-5)


def test_with_strength_0_it_is_fedavg_bit_for_bit(ragged, identical, rounds):
    classes_of = ([0, 1, 1], [2, 0], [1, 2], [0, 1, 2])
    expected = rounds(ragged(FedAvg(), classes_of), 2)
    assert identical(rounds(ragged(FedPrior(strength=0.0), classes_of), 2), expected)
    assert not identical(rounds(ragged(FedPrior(), classes_of), 2), expected)


def test_a_class_that_the_client_does_not_have_is_pushed_down_less(ragged):
    gradients = []
    for strength in (0.0, 1.0):
        fed = ragged(FedPrior(strength=strength), ([0, 1], [2, 0], [1, 2], [0, 1, 2]))
        client = fed.clients[0]
        with fed.lend_model(client):
            client.load({"model": fed.server["model"]})
            given = fed.method.prepare(client, {}, 0)
            x, y = next(fed.batches(client.indices, np.random.default_rng(0)))
            fed.method.loss(client.model, x, y, given)["cross_entropy"].backward()
            gradients.append(client.model.classifier.bias.grad[2].item())
            client.model.zero_grad()
    assert 0 < gradients[1] < gradients[0] / 3


def test_where_all_classes_are_alike_it_is_fedavg_up_to_rounding(ragged, rounds):
    classes_of = ([0, 1, 2],) * 4
    expected, model = (rounds(ragged(m, classes_of, sizes=(12, 9, 15, 12)), 2) for m in (FedAvg(), FedPrior()))
    for name in expected:
        torch.testing.assert_close(model[name], expected[name], rtol=1e-3, atol=1e-4)


# --- it joins the comparison, the sweep and the report unchanged


def test_all_methods_of_all_notebooks_are_there():
    for path in sorted((ROOT / "notebooks").glob("0[0-5]*.ipynb")):
        assert papers.load(path.stem).METHODS.items() <= METHODS.items()
    assert METHODS["FedPrior"] is FedPrior


def test_every_table_compares_all_methods(tables):
    for table in tables.values():
        methods = {job.settings.method for job in table.jobs}
        if table.name == "side-cifar10-rounds-short":  # the papers' rounds take long on a CPU
            assert methods == {"FedAvg", "FedProx", "SCAFFOLD", "MOON", "FedProc", "FedSSC"}
        elif table.name != "side-domains-head":  # an attempt that was not gone on with
            assert methods >= COMPARED, table.name


@pytest.fixture
def notebooks(tmp_path, monkeypatch):
    """The project's notebooks in a folder of the test's own; modules made of them are forgotten afterwards."""
    folder = tmp_path / "notebooks"
    shutil.copytree(ROOT / "notebooks", folder, ignore=shutil.ignore_patterns("sweeps", ".*"))
    (folder / "sweeps").mkdir()
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(folder))
    before = {name: module for name, module in sys.modules.items() if name.startswith("fednb.papers.")}
    for name in before:
        del sys.modules[name]
    yield folder
    for name in [name for name in sys.modules if name.startswith("fednb.papers.")]:
        del sys.modules[name]
    sys.modules.update(before)


def write(folder, notebook, methods):
    """A sweep file with one table of these methods."""
    table = {"title": "Mine", "rows": "method", "tier": "minutes-cpu", "baseline": "FedAvg", "target": 5, "parameters": TINY}
    measures = ("accuracy", "lead", "client mean", "worst client", "bytes_to_target", "client_memory")
    table |= {"columns": {"measures": {name: name for name in measures}}, "grid": {"method": methods, "seed": [0, 1]}}
    file = folder / "sweeps" / "mine.yaml"
    file.write_text(yaml.safe_dump({"notebook": notebook, "tables": {"mine": table}}))
    return file


def test_a_method_of_a_copy_under_another_name_joins_sweep_and_report(notebooks, tmp_path):
    """As a reader would: copy the notebook, write a class into its section, run a table of it."""
    nb = nbformat.read(notebooks / "06_side_by_side.ipynb", 4)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.source = cell.source.replace("FedPrior", "FedMine").replace("06_side_by_side", "07_mine")
    nbformat.write(nb, notebooks / "07_mine.ipynb")
    file = write(notebooks, "07_mine", ["FedAvg", "FedMine"])
    (table,) = sweep.read(file).values()
    assert "FedMine" in papers.load("07_mine").METHODS
    assert {job.status for job in table.jobs} == {None}
    made = execute.make([table.jobs[2]])  # as a sweep does
    assert made.records[0], made.error
    for job in table.jobs:
        runner.run(job.settings, papers.load("07_mine").METHODS)
    report.write_all(notebooks / "sweeps", ledger.runs_folder(), tmp_path)
    text = (tmp_path / "tables" / "07_mine.md").read_text()
    (line,) = re.findall(r"^\| FedMine \|(.*)\|$", text, re.M)
    *numbers, verdict, runs = [value.strip() for value in line.split("|")]
    assert all(re.match(r"[+-]?\d", value) for value in numbers) and verdict.startswith("indicative: ")
    assert "FedMine-digits-seed0-" in runs and "FedMine-digits-seed1-" in runs


# --- tuning and the final tables


def finals(tables):
    """Each final table on embedded data, with the table that tunes its runs."""
    for name, table in tables.items():
        if name.startswith(("side-digits-", "side-domains")) and not name.endswith(("tuning", "head")):
            yield tables["side-digits-tuning" if "digits" in name else "side-domains-tuning"], table


def test_every_method_has_six_trials_with_the_same_rule_and_budget(tables):
    found = [table for name, table in tables.items() if name.endswith("tuning")]
    assert len(found) == 6
    for table in found:
        assert {job.settings.seed for job in table.jobs} == {100}
        assert {job.settings.validation for job in table.jobs} == {0.1}
        assert len({(j.settings.num_rounds, j.settings.local_epochs, j.settings.batch_size) for j in table.jobs}) == 1
        trials = Counter(cell.label for cell in report.cells_of(table, report.committed()))
        assert set(trials.values()) == {6} and set(trials) >= COMPARED, table.name


def test_the_final_tables_have_the_values_that_held_out_images_choose(tables):
    """Written into the sweep file by hand, so compared with what the records say; not run before these are there."""
    assert len(list(finals(tables))) == 11
    for tuning, table in finals(tables):
        best = {}
        for cell in sorted(report.cells_of(tuning, report.committed()), key=lambda cell: -(cell.mean or 0)):
            best.setdefault(cell.label, cell)  # of equally good ones the first
            assert len(cell.paths) == cell.expected, f"{tuning.name} is not complete."
        for job in table.jobs:
            chosen = dict(best[job.settings.method].told)
            assert chosen.items() <= job.settings.flat().items(), (table.name, job.settings.method)
            assert job.settings.seed != 100 and job.settings.validation is None


def test_within_a_table_everything_but_the_tuned_values_is_the_same(tables):
    tuned = {"method", "seed", "lr", "hyperparameters"}
    for name, table in tables.items():
        assert len({str({n: v for n, v in vars(j.settings).items() if n not in tuned}) for j in table.jobs}) == 1, name


def test_every_method_of_a_table_has_the_same_seeds(tables):
    for table in tables.values():
        seeds = {}
        for job in table.jobs:
            seeds.setdefault(job.settings.method, set()).add(job.settings.seed)
        assert len({frozenset(s) for s in seeds.values()}) == 1, table.name
