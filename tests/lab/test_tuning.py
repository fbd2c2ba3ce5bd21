"""Tuning by trials: what held-out images choose, and whether it lies at an edge of what was tried."""

import pytest
from made_up import job, record, table

from fednb_lab.cells import cells_of
from fednb_lab.tuning import tunings


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
