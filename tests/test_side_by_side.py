"""Notebook 06: a method of thirty lines joins everything, and what the comparison stands on."""

import inspect
import json
from collections import Counter

import matplotlib.pyplot as plt
import numpy as np
import pytest
from fednb.papers.side_by_side import METHODS, FedPrior, OwnPrior

from fednb import ROOT, papers
from fednb import reporting as report
from fednb.analysis.statistics import Kind
from fednb.analysis.trials import tuned, tunings
from fednb.federation import FedAvg
from fednb.reporting import side_by_side, side_pictures
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
    # the records of who has no data: it may be another one where this runs
    with pytest.MonkeyPatch.context() as patch:
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
        elif "told" in table.name:  # one question only
            assert methods == {"FedAvg", "OwnPrior", "FedProto", "Local"}
        elif table.name != "side-domains-head":  # an attempt that was not gone on with
            assert methods >= COMPARED, table.name


# --- tuning and the final tables


def finals(tables):
    """Each table of the two questions, with the table whose trials choose its values."""
    for name, table in tables.items():
        if name.startswith(("side-digits-beta", "side-digits-quantity", "side-told")):
            yield tables["side-digits-trials"], table
        elif name in ("side-domains", "side-domains-cost"):
            yield tables["side-domains-trials"], table


def test_before_every_method_had_six_trials_on_one_seed(tables):
    found = [table for name, table in tables.items() if name.endswith("tuning")]
    assert len(found) == 6
    for table in found:
        assert {job.settings.seed for job in table.jobs} == {100}
        assert {job.settings.validation for job in table.jobs} == {0.1}
        trials = Counter(cell.label for cell in report.cells_of(table, report.committed()))
        assert set(trials.values()) == {6} and set(trials) >= COMPARED, table.name


def test_every_trial_has_the_same_three_seeds_and_length(tables):
    for name in ("side-digits-trials", "side-domains-trials"):
        length = set()
        for job in tables[name].jobs:
            assert job.settings.validation == 0.1
            length.add((job.settings.num_rounds, job.settings.local_epochs))
        assert len(length) == 1
        cells = report.cells_of(tables[name], report.committed())
        assert all(cell.seeds == (0, 1, 2) for cell in cells)
        found = tunings(cells)
        assert set(found) == COMPARED
        assert all(3 <= len(tuning.trials) <= 6 for tuning in found.values())
        rates = {cell.job.settings.lr for cell in cells if tuned(cell.label) != "lr"}
        assert rates == {found["FedAvg"].chosen.value}, "coefficients are tuned at FedAvg's rate"


def test_the_trials_go_on_until_the_best_is_inside(tables):
    """A lower edge is natural: towards 0 a method turns into FedAvg, or into training alone."""
    for name in ("side-digits-trials", "side-domains-trials"):
        found = tunings(report.cells_of(tables[name], report.committed()))
        for tuning in found.values():
            largest = tuning.trials[-1]
            assert tuning.chosen != largest or tuning.method == "FedProc", (name, tuning)


def test_the_final_tables_have_the_values_that_held_out_images_choose(tables):
    """They are written into the sweep file by hand, so they are compared with what the records say."""
    assert len(list(finals(tables))) == 14
    for trials, table in finals(tables):
        cells = report.cells_of(trials, report.committed())
        found = tunings(cells)
        for job in table.jobs:
            method = {"OwnPrior": "FedAvg"}.get(job.settings.method, job.settings.method)
            chosen = found[method].chosen.value
            of_trial = [
                cell.job.settings
                for cell in cells
                if cell.label == method and cell.job.settings.flat()[tuned(method)] == chosen
            ]
            assert job.settings.lr == of_trial[0].lr, (table.name, method)
            if job.settings.method == method:
                assert job.settings.hyperparameters == of_trial[0].hyperparameters
            assert job.settings.seed in range(10, 20) and job.settings.validation is None


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


# --- what is told of it


def accuracy_by_seed(table, method, read):
    """From the records themselves."""
    values = {}
    for job in table.jobs:
        if job.settings.method == method:
            content = json.loads(job.path.read_text(encoding="utf-8"))
            if content["status"] == "finished":
                values[job.settings.seed] = read(content)
    return values


def test_the_question_is_answered_as_by_hand(tables):
    names = list(side_by_side.splits().values())
    assert len(names) == 5
    found = {one.method: one for one in side_by_side.question()}
    assert set(found) == COMPARED - {"FedAvg"}

    def final(content):
        return content["final"]["accuracy"]

    for method in ("FedPLCC", "Local"):
        means = []
        for seed in range(10, 20):
            leads = []
            for name in names:
                ours = accuracy_by_seed(tables[name], method, final)
                fedavgs = accuracy_by_seed(tables[name], "FedAvg", final)
                if seed in ours and seed in fedavgs:
                    leads.append(ours[seed] - fedavgs[seed])
            if len(leads) == len(names):
                means.append(np.mean(leads))
        assert found[method].lead.mean == pytest.approx(np.mean(means))
        assert found[method].lead.seeds == len(means)


def test_a_told_model_is_compared_on_images_like_the_clients_own(tables):
    def client_mean(content):
        return np.mean(content["final"]["clients/own mix"])

    table = tables["side-told-beta-0.1"]
    told = accuracy_by_seed(table, "OwnPrior", client_mean)
    proto = accuracy_by_seed(table, "FedProto", client_mean)
    differences = [proto[seed] - told[seed] for seed in proto if seed in told]
    text = side_by_side.told_table().data
    assert f"| **FedProto − FedAvg (told)** | **{np.mean(differences):+.1f} ±" in text
    assert not [kind for kind in Kind if kind in text]  # what no paper claims is not judged
    of_first = next(iter(side_by_side.for_itself().values()))
    assert set(of_first) == {side_by_side.GUESS, "FedAvg", "FedAvg (told)", "FedProto", "Local"}
    shares = list(of_first[side_by_side.GUESS].values())
    assert all(10 < share < 100 for share in shares)


def test_tables_and_pictures_are_of_all_methods():
    assert set(side_by_side.methods()) == COMPARED
    for made in (side_by_side.question_table, side_by_side.tuning_table):
        text = made().data
        assert all(f"| {method} |" in text for method in COMPARED - {"FedAvg"})
    figure = side_pictures.question()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert {label.split(": ")[0] for label in labels} == COMPARED - {"FedAvg"}
    plt.close(figure)
