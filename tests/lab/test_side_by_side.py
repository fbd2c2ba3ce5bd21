"""Notebook 06: a method of thirty lines joins everything, and what the comparison stands on."""

import json
from contextlib import contextmanager
from operator import itemgetter

import numpy as np
import pandas as pd
import pytest
from fednb.papers.pictures import side_by_side_tables as side_by_side
from fednb.papers.side_by_side import METHODS, FedPrior, OwnPrior

from fednb import ROOT, papers
from fednb.federation import FedAvg
from fednb.leads import Lead
from fednb_lab.cells import cells_of
from fednb_lab.leads import holm
from fednb_lab.sweeps import read_tables
from fednb_lab.tuning import tuned, tunings

SWEEP = ROOT / "notebooks" / "sweeps" / "06_side_by_side.yaml"
COMPARED = {"FedAvg", "FedProx", "SCAFFOLD", "MOON", "FedProc", "FedSSC", "FedProto"}
COMPARED |= {"FedProto+FedAvg", "FedPLCC", "FedPrior", "Local"}
CLASSES = ([0, 1, 1], [2, 0], [1, 2], [0, 1, 2])  # of four clients
FREQUENCIES = np.array([8, 14, 1]) / 23  # of the first: 7, 13 and 0 images, and one more of each


@pytest.fixture(scope="module")
def tables():
    # the records of who has no data: it may be another one where this runs
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_RUNS", str(ROOT / "results" / "runs"))
        return read_tables(SWEEP)


# --- the method


@contextmanager
def first_client(fed):
    """The server's model with the first client, a batch of it, and what the method prepares."""
    client = fed.clients[0]
    with fed.at_work(client):
        client.load({"model": fed.server["model"]})
        x, y = next(client.batches(np.random.default_rng(0)))
        yield client.model.eval(), x, y, fed.method.prepare(client, {}, 0)


def test_the_shift_is_the_logarithm_of_the_clients_class_frequencies(ragged):
    """Against a loop over images, with a class that the client does not have."""
    fed = ragged(FedPrior(strength=2.0), CLASSES)
    with first_client(fed) as (model, x, y, given):
        loss = fed.method.loss(model, x, y, given)["cross_entropy"]
        logits = model(x).logits.double()
    expected = []
    for row, label in zip(logits.tolist(), y.tolist(), strict=True):
        weights = np.exp(row) * FREQUENCIES**2
        expected.append(-np.log(weights[label] / weights.sum()))
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-5)


def test_who_is_told_trains_as_fedavg_and_adds_the_logarithms_when_it_asks(
    ragged, identical, rounds
):
    plain = rounds(ragged(FedAvg(), CLASSES), 2)
    assert identical(rounds(ragged(OwnPrior(), CLASSES), 2), plain)
    fed = ragged(OwnPrior(), CLASSES)
    with first_client(fed) as (model, x, _, given):
        more = fed.method.predict(model, x, given)["classifier"] - model(x).logits
    assert more.tolist() == [pytest.approx(np.log(FREQUENCIES), rel=1e-4)] * len(x)


def test_with_strength_0_it_is_fedavg_bit_for_bit(ragged, identical, rounds):
    plain = rounds(ragged(FedAvg(), CLASSES), 2)
    assert identical(rounds(ragged(FedPrior(strength=0.0), CLASSES), 2), plain)
    assert not identical(rounds(ragged(FedPrior(), CLASSES), 2), plain)


# --- it joins the comparison


def test_all_methods_of_all_notebooks_are_there():
    for path in sorted((ROOT / "notebooks").glob("0[0-5]*.ipynb")):
        assert papers.load(path.stem).METHODS.items() <= METHODS.items()
    assert METHODS["FedPrior"] is FedPrior


def test_within_a_table_everything_but_the_tuned_values_is_the_same(tables):
    own = {"method", "seed", "lr", "hyperparameters", "defaults", "comments"}
    for name, table in tables.items():
        shared = set()
        seeds = {}
        for job in table.jobs:
            values = vars(job.settings).items()
            shared.add(str({setting: value for setting, value in values if setting not in own}))
            seeds.setdefault(job.settings.method, set()).add(job.settings.seed)
        assert len(shared) == 1, name
        if name.startswith("side-cifar10-beta-0.5-short"):
            assert all(of_method <= seeds["FedAvg"] for of_method in seeds.values())
        else:
            assert all(of_method == seeds["FedAvg"] for of_method in seeds.values()), name


# --- tuning and the final tables


def finals(tables):
    """Each table of the two questions, with the table whose trials choose its values."""
    for name, table in tables.items():
        if name.startswith(("side-digits-beta", "side-digits-quantity", "side-told")):
            yield tables["side-digits-trials"], table
        elif name in ("side-domains", "side-domains-cost"):
            yield tables["side-domains-trials"], table


@pytest.mark.parametrize("name", ["side-digits-trials", "side-domains-trials"])
def test_every_trial_has_the_same_three_seeds_and_length_and_the_best_is_inside(tables, name):
    """A lower edge is natural: towards 0 a method turns into FedAvg, or into training alone."""
    asked = [job.settings for job in tables[name].jobs]
    assert {one.validation for one in asked} == {0.1}
    assert len({(one.num_rounds, one.local_epochs) for one in asked}) == 1
    cells = cells_of(tables[name])
    assert all(cell.seeds == (0, 1, 2) for cell in cells)
    found = tunings(cells)
    assert set(found) == COMPARED
    rates = {cell.job.settings.lr for cell in cells if tuned(cell.label) != "lr"}
    assert rates == {found["FedAvg"].chosen.value}, "coefficients are tuned at FedAvg's rate"
    for tuning in found.values():
        assert 3 <= len(tuning.trials) <= 6
        assert tuning.chosen != tuning.trials[-1] or tuning.method == "FedProc", tuning


def test_the_final_tables_have_the_values_that_held_out_images_choose(tables):
    """They are written into the sweep file by hand, so they are compared with what the records say."""
    assert len(list(finals(tables))) == 14
    for trials, table in finals(tables):
        cells = cells_of(trials)
        found = tunings(cells)
        for job in table.jobs:
            method = {"OwnPrior": "FedAvg"}.get(job.settings.method, job.settings.method)
            of_trials = [cell.job.settings for cell in cells if cell.label == method]
            chosen = found[method].chosen.value
            trial = next(one for one in of_trials if one.flat()[tuned(method)] == chosen)
            assert job.settings.lr == trial.lr, (table.name, method)
            if job.settings.method == method:
                assert job.settings.hyperparameters == trial.hyperparameters
            assert job.settings.seed in range(10, 20) and job.settings.validation is None


# --- what is told of it


def by_seed(table, method, read):
    """A number of each of a method's finished runs, from the records themselves."""
    values = {}
    for job in table.jobs:
        if job.settings.method == method:
            content = json.loads(job.path.read_text(encoding="utf-8"))
            if content["status"] == "finished":
                values[job.settings.seed] = read(content["final"])
    return pd.Series(values)


def test_the_question_is_answered_as_by_hand(tables):
    names = list(side_by_side.splits().values())
    assert len(names) == 5
    found = side_by_side.question()
    assert set(found) == COMPARED - {"FedAvg"}

    def accuracies(method):
        read = {name: by_seed(tables[name], method, itemgetter("accuracy")) for name in names}
        return pd.DataFrame(read)  # [seeds, splits]

    for method in ("FedPLCC", "Local"):
        leads = (accuracies(method) - accuracies("FedAvg")).dropna()  # of seeds that all have
        assert found[method].mean == pytest.approx(leads.mean(axis=None))
        assert found[method].seeds == len(leads)


def test_a_told_model_is_compared_on_images_like_the_clients_own(tables):
    def right(method):
        table = tables["side-told-beta-0.1"]
        return by_seed(table, method, lambda final: np.mean(final["clients/own mix"]))

    difference = (right("FedProto") - right("OwnPrior")).mean()
    lead = side_by_side.lead_in(
        "side-told-beta-0.1", "FedProto", side_by_side.ADJUSTED, "client mean"
    )
    assert lead.mean == pytest.approx(difference)


def test_of_the_table_the_notebook_says_what_its_records_say():
    """No average over five splits, half of the colours by luck, and one method that is ahead twice."""
    assert all(lead.diverged for lead in side_by_side.question().values())
    cells = side_by_side.p_values()
    leads = [Lead(10, one.points, p=one.p) for one in cells.itertuples()]
    coloured = [lead for lead in leads if lead.p <= 0.05]
    survive = [lead for lead in holm(leads) if lead.p <= 0.05]
    assert len(survive) == pytest.approx(len(coloured) / 2, rel=0.1)
    assert sum(lead.mean > 0 for lead in survive) == 1
    blue = cells[(cells["p"] <= 0.05) & (cells["points"] > 0)]
    is_asked_twice = blue["where"].str.contains("1st|2nd")
    splits = blue["where"].str.replace(", 1st|, 2nd|1st|2nd", "", regex=True)
    twice = blue[is_asked_twice].groupby([blue["method"], splits]).size().eq(2)
    assert set(twice[twice].index.get_level_values(0)) == {"FedProto+FedAvg"} and twice.sum() == 2
