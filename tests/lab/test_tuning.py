"""Tuning by trials: what held-out images choose, and what that gains."""

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
    assert found.chosen.value == 0.02
    assert [trial.value for trial in found.finished] == [0.01, 0.02, 0.03]


def test_the_gain_of_a_coefficient_is_over_zero_which_is_fedavg():
    of_fedavg = {("FedAvg", 0.01): (60.0,) * 3, ("FedAvg", 0.02): (70.0,) * 3}
    of_fedprox = {("FedProx", 0.1): (72.0,) * 3, ("FedProx", 1.0): (50.0,) * 3}
    found = tunings(trials_of(of_fedavg | of_fedprox))
    assert found["FedProx"].gain == pytest.approx(2.0)
    assert found["FedAvg"].gain is None
