"""The question of notebook 06 by hand: a mean lead over splits, seed by seed; and tuning that knows its edges."""

import numpy as np
import pytest
from made_up import job, record, table
from scipy import stats

from fednb import ROOT
from fednb_lab import findings
from fednb_lab.cells import cells_of
from fednb_lab.claims import ClaimsFile, Finding, SideBySide
from fednb_lab.findings import Filler
from fednb_lab.leads import Word, average_leads, word_for
from fednb_lab.tuning import tunings

# leads over FedAvg by table: of seeds 0, 1, ...; None: the run diverged
LEADS = {
    "a": {"FedProx": (3.0, 5.0, 1.0), "SOLO": (-9.0, -9.1, -9.2), "SCAFFOLD": (9.0, 9.0, 9.0, 9.0)},
    "b": {
        "FedProx": (1.0, -1.0, 3.2),
        "SOLO": (-1.0, -1.1, -1.0),
        "SCAFFOLD": (9.0, None, 9.0, 9.0),
    },
}


@pytest.fixture
def splits():
    """Tables on two splits, in which FedAvg has another accuracy with each seed."""
    tables = {}
    for name, beta in (("a", 0.5), ("b", 5.0)):
        jobs = []
        of_methods = {"FedAvg": (0.0,) * 4} | LEADS[name]  # most have one seed less
        for method, leads in of_methods.items():
            for seed, lead in enumerate(leads):
                jobs.append(job(method, seed, beta=beta))
                status = "finished" if lead is not None else "diverged"
                record(jobs[-1], 40.0 + 10 * seed + (lead or 0.0), status=status, split=name)
        tables[name] = table(*jobs, name=name, columns={"accuracy": "accuracy"}, printed=None)
    return tables


def leads_in(tables):
    """The mean leads over these tables, by method."""
    return average_leads(list(tables), lambda name: cells_of(tables[name]))


def test_a_mean_lead_is_of_the_same_seed_in_every_split(splits):
    found = leads_in(splits)
    prox = found["FedProx"]
    assert prox.by_seed == pytest.approx({0: 2.0, 1: 2.0, 2: 2.1})
    assert prox.lead.mean == pytest.approx(np.mean([2.0, 2.0, 2.1]))
    assert word_for(prox.lead) == Word.CONFIRMED  # in neither split alone it would be
    assert word_for(leads_in({"b": splits["b"]})["FedProx"].lead) == Word.OPEN
    assert word_for(found["SOLO"].lead) == Word.REVERSED


def test_the_methods_are_one_family_without_those_that_diverged(splits):
    found = leads_in(splits)
    assert found["SCAFFOLD"].lead.diverged
    assert word_for(found["SCAFFOLD"].lead) == Word.OPEN
    among = {name: one.lead.among for name, one in found.items()}
    assert among == {"FedProx": 2, "SOLO": 2, "SCAFFOLD": 1}
    alone = stats.ttest_1samp([2.0, 2.0, 2.1], 0.0).pvalue
    smallest = stats.ttest_1samp([-5.0, -5.1, -5.1], 0.0).pvalue
    assert found["FedProx"].lead.p == pytest.approx(max(alone, 2 * smallest))


def test_with_a_diverged_run_of_the_baseline_nobody_is_judged(splits):
    record(job("FedAvg", 0, beta=0.5), status="diverged", split="a")
    found = leads_in(splits).values()
    assert found and all(one.lead.diverged for one in found)
    assert {word_for(one.lead) for one in found} <= {Word.OPEN, Word.NOT_TESTED}


@pytest.mark.parametrize(
    ("says", "holds", "sentence"),
    [
        ("{{ average('FedProx') }}", "", "+2.0 ± 0.1 points"),
        ("x", "mean_lead('FedProx') > 1.9 and mean_lead('SOLO') < 0", "x"),
        ("x", "mean_lead('SOLO') > 0", "do not bear out"),
        ("{{ diverged('b') }} {{ diverged('b', 'SCAFFOLD') }} {{ diverged('a') }}", "", "1 1 0"),
        ("{{ apart('b', 'FedProx', 'FedAvg', 'accuracy') }}", "", "3.2"),
    ],
)
def test_findings_can_be_about_the_mean_over_splits(says, holds, sentence, splits, monkeypatch):
    side = SideBySide(
        notebook="x",
        note="",
        baseline="FedAvg",
        column="accuracy",
        tables={"a": "first", "b": "second"},
    )
    monkeypatch.setattr(findings, "claims_file", lambda: ClaimsFile({}, side, {}))
    filler = Filler(lambda name: cells_of(splits[name]), ROOT)
    assert sentence in filler.sentence(
        Finding(name="f", notebook="06_side_by_side", says=says, holds=holds)
    )


def trials_of(accuracies):
    """Cells of trials of three seeds: by method and value the accuracies, None of a run that diverged."""
    jobs = []
    for (method, value), of_seeds in accuracies.items():
        for seed, accuracy in enumerate(of_seeds):
            name = "mu" if method == "FedProx" else "lr"
            jobs.append(job(method, seed, validation=0.1, **{name: value}))
            if accuracy is None:
                record(jobs[-1], status="diverged")
            else:
                record(jobs[-1], 50.0, final={"validation": accuracy})
    columns = {"held-out images": "validation"}
    return cells_of(table(*jobs, name="trials", columns=columns, printed=None))


def test_a_lucky_seed_or_one_that_diverged_chooses_nothing():
    trials = {
        ("FedAvg", 0.01): (60.0, 60.0, 60.0),
        ("FedAvg", 0.02): (70.0, 70.0, 70.0),
        ("FedAvg", 0.03): (95.0, 50.0, 50.0),
        ("FedAvg", 0.04): (99.0, 99.0, None),
    }
    found = tunings(trials_of(trials))["FedAvg"]
    assert found.chosen.value == 0.02 and not found.at_edge
    assert [trial.value for trial in found.finished] == [0.01, 0.02, 0.03]


@pytest.mark.parametrize(
    ("at_0_1", "at_1", "at_edge"), [(72.0, 50.0, False), (69.0, 50.0, True), (72.0, 75.0, True)]
)
def test_a_coefficient_of_zero_is_a_trial_that_fedavg_has_made(at_0_1, at_1, at_edge):
    of_fedavg = {("FedAvg", 0.01): (60.0,) * 3, ("FedAvg", 0.02): (70.0,) * 3}
    of_fedprox = {("FedProx", 0.1): (at_0_1,) * 3, ("FedProx", 1.0): (at_1,) * 3}
    found = tunings(trials_of(of_fedavg | of_fedprox))
    assert found["FedProx"].without == pytest.approx(70.0)
    assert found["FedProx"].at_edge == at_edge
    assert found["FedAvg"].without is None and found["FedAvg"].at_edge
