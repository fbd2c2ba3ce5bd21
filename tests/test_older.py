"""What tuning chose, by held-out and by test images."""

import pytest
from made_up import job, record, table

from fednb import reporting as report
from fednb.experiments import ledger


@pytest.fixture(autouse=True)
def folder():
    """A ledger of its own for each test."""
    ledger.runs_folder().mkdir(parents=True)


def test_tuned():
    accuracy, held_out = (50.0, 60.0, 55.0, 50.0, 57.0, 62.0), (50.0, 51.0, 55.0, 40.0, 41.0, 42.0)
    jobs = [job("FedProx", seed, mu=mu, validation=0.1) for seed in (0, 1) for mu in (0.01, 0.1, 1.0)]
    t = table(*jobs, rows="mu", printed=None)
    assert report.tuned(t).empty
    for one, test, held in zip(jobs, accuracy, held_out, strict=True):
        path = record(one, test, final={"validation": held})
    found = report.tuned(t)
    assert found.index.tolist() == [0, 1, "all"] and found["compared"].tolist() == ["3 of 3"] * 3
    assert found["by_test"].tolist() == [0.1, 1.0, 0.1]  # the means are 50, 58.5, 58.5: of equally good ones the first
    assert found["by_validation"].tolist() == [1.0, 1.0, 1.0] and found["gain"].tolist() == [5.0, 0.0, 0.0]
    path.unlink()
    found = report.tuned(t)
    assert found["compared"].tolist() == ["3 of 3", "2 of 3", "2 of 3"] and found.loc["all", "by_validation"] == 0.1
    with pytest.raises(report.ReportError, match="holds out no training images"):
        report.tuned(table(job(), rows="mu", printed=None))


@pytest.mark.parametrize(
    ("validation", "chosen"),
    [
        ([50.0, 60.0, 70.0, 40.0], [False, True, True, False]),  # by held-out images, whatever the test images say
        ([60.0, 60.0, None, 10.0], [True, False, False, True]),  # of equally good ones the first, a diverged one never
    ],
)
def test_held_out_images_choose_a_trial_and_test_images_do_not(validation, chosen):
    given = [("FedAvg", {"lr": 0.1}), ("FedAvg", {"lr": 0.2}), ("FedProx", {"mu": 0.1}), ("FedProx", {"mu": 1.0})]
    jobs = [job(method, validation=0.1, num_rounds=2, **g) for method, g in given]
    for one, held, accuracy in zip(jobs, validation, (99.0, 1.0, 2.0, 98.0), strict=True):
        status = "diverged" if held is None else "finished"
        sent = {"down_bytes": [1e6, 2e6], "up_bytes": [3e6, 4e6]}
        record(one, accuracy, status=status, final={"validation": held}, metrics=sent)
    found = report.trials(table(*jobs, printed=None))
    assert found["row"].tolist() == ["FedAvg", "FedAvg", "FedProx", "FedProx"]
    assert found["settings"].tolist() == [{"lr": 0.1}, {"lr": 0.2}, {"mu": 0.1}, {"mu": 1.0}]
    assert found["chosen"].tolist() == chosen and found["megabytes"].tolist() == [10.0] * 4
