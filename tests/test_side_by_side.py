"""Notebook 06: a method of thirty lines joins everything, and what the comparison stands on."""

import inspect
from collections import Counter

import numpy as np
import pytest
from fednb.papers.side_by_side import METHODS, FedPrior, OwnPrior

from fednb import ROOT, papers
from fednb import reporting as report
from fednb.federation import FedAvg
from fednb.sweeps.files import read_tables

SWEEP = ROOT / "notebooks" / "sweeps" / "06_side_by_side.yaml"
COMPARED = {
    "FedAvg",
    "FedProx",
    "SCAFFOLD",
    "MOON",
    "FedProc",
    "FedSSC",
    "FedProto",
    "FedProto+FedAvg",
    "FedPLCC",
}
COMPARED |= {"FedPrior", "Local"}


@pytest.fixture(scope="module")
def tables():
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # the records of who has no data: it may be another one where this runs
        patch.setenv("FEDNB_RUNS", str(ROOT / "results" / "runs"))
        return read_tables(SWEEP)


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
        weights = [
            np.exp(value) * frequency**2 for value, frequency in zip(row, frequencies, strict=True)
        ]
        expected.append(-np.log(weights[label] / sum(weights)))
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-5)


def test_who_is_told_trains_as_fedavg_and_adds_the_logarithms_when_it_asks(
    ragged, identical, rounds
):
    classes_of = ([0, 1, 1], [2, 0], [1, 2], [0, 1, 2])
    assert identical(
        rounds(ragged(OwnPrior(), classes_of), 2), rounds(ragged(FedAvg(), classes_of), 2)
    )
    fed = ragged(OwnPrior(), classes_of)
    client = fed.clients[0]  # 7 images of class 0, 13 of class 1, none of class 2
    with fed.lend_model(client):
        client.load({"model": fed.server["model"]})
        x, _ = next(fed.batches(client.indices, np.random.default_rng(0)))
        model, method = client.model.eval(), fed.method
        more = (
            method.predict(model, x, method.prepare(client, {}, 0))["classifier"] - model(x).logits
        )
    assert more.tolist() == [pytest.approx(np.log([8 / 23, 14 / 23, 1 / 23]), rel=1e-4)] * len(x)


def test_with_strength_0_it_is_fedavg_bit_for_bit(ragged, identical, rounds):
    classes_of = ([0, 1, 1], [2, 0], [1, 2], [0, 1, 2])
    expected = rounds(ragged(FedAvg(), classes_of), 2)
    assert identical(rounds(ragged(FedPrior(strength=0.0), classes_of), 2), expected)
    assert not identical(rounds(ragged(FedPrior(), classes_of), 2), expected)


# --- it joins the comparison


def test_all_methods_of_all_notebooks_are_there():
    for path in sorted((ROOT / "notebooks").glob("0[0-5]*.ipynb")):
        assert papers.load(path.stem).METHODS.items() <= METHODS.items()
    assert METHODS["FedPrior"] is FedPrior


def test_every_table_compares_all_methods(tables):
    for table in tables.values():
        methods = {job.settings.method for job in table.jobs}
        if table.name == "side-cifar10-rounds-short":  # the papers' rounds take long on a CPU
            assert methods == {"FedAvg", "FedProx", "SCAFFOLD", "MOON", "FedProc", "FedSSC"}
        elif table.name.startswith("side-told"):  # one question only
            assert methods == {"FedAvg", "OwnPrior", "FedProto", "Local"}
        elif table.name != "side-domains-head":  # an attempt that was not gone on with
            assert methods >= COMPARED, table.name


# --- tuning and the final tables


def finals(tables):
    """Each final table on embedded data, with the table that tunes its runs."""
    for name, table in tables.items():
        if name.startswith(("side-digits-", "side-domains")) and not name.endswith(
            ("tuning", "head")
        ):
            yield tables["side-digits-tuning" if "digits" in name else "side-domains-tuning"], table


def test_every_method_has_six_trials_with_the_same_rule_and_budget(tables):
    found = [table for name, table in tables.items() if name.endswith("tuning")]
    assert len(found) == 6
    for table in found:
        assert {job.settings.seed for job in table.jobs} == {100}
        assert {job.settings.validation for job in table.jobs} == {0.1}
        assert (
            len(
                {
                    (j.settings.num_rounds, j.settings.local_epochs, j.settings.batch_size)
                    for j in table.jobs
                }
            )
            == 1
        )
        trials = Counter(cell.label for cell in report.cells_of(table, report.committed()))
        assert set(trials.values()) == {6} and set(trials) >= COMPARED, table.name


def test_the_final_tables_have_the_values_that_held_out_images_choose(tables):
    """Written into the sweep file by hand, so compared with what the records say; not run before these are there."""
    assert len(list(finals(tables))) == 11
    for tuning, table in finals(tables):
        best = {}
        for cell in sorted(
            report.cells_of(tuning, report.committed()), key=lambda cell: -(cell.mean or 0)
        ):
            best.setdefault(cell.label, cell)  # of equally good ones the first
            assert len(cell.paths) == cell.expected, f"{tuning.name} is not complete."
        for job in table.jobs:
            chosen = dict(best[job.settings.method].variant)
            assert chosen.items() <= job.settings.flat().items(), (table.name, job.settings.method)
            assert job.settings.seed != 100 and job.settings.validation is None


def test_within_a_table_everything_but_the_tuned_values_is_the_same(tables):
    tuned = {"method", "seed", "lr", "hyperparameters"}
    for name, table in tables.items():
        assert (
            len(
                {
                    str({n: v for n, v in vars(j.settings).items() if n not in tuned})
                    for j in table.jobs
                }
            )
            == 1
        ), name
        seeds = {}
        for job in table.jobs:
            seeds.setdefault(job.settings.method, set()).add(job.settings.seed)
        assert all(own <= seeds["FedAvg"] for own in seeds.values()), name
        assert len(set(map(frozenset, seeds.values()))) == 1 or name.startswith(
            "side-cifar10-beta-0.5-short"
        ), name
