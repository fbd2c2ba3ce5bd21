"""The queue for a GPU: what is in it can be found in the tables, and is estimated as it was measured."""

import gpu_queue
import pytest

from fednb import build, papers, settings

PLAN = gpu_queue.read_plan()


def of_seeds(method, seeds, dataset="cifar10"):
    """Settings of a run for each seed, at the paper's length."""
    methods = papers.methods()
    return [settings.resolve(methods, method=method, dataset=dataset, seed=seed) for seed in seeds]


@pytest.mark.parametrize("run", PLAN.seconds, ids=lambda run: run["method"])
def test_estimates_are_near_what_was_measured(run):
    estimated = gpu_queue.seconds_of(of_seeds(run["method"], run["seeds"]), PLAN)
    # an estimate may be too long, by what a process needs to start
    assert 0.9 * run["seconds"] <= estimated <= 1.3 * run["seconds"] + PLAN.start


def test_steps_are_those_of_a_real_split():
    (digits,) = of_seeds("FedAvg", [0], "digits5_mini")
    assert gpu_queue.sizes_of(digits) == [
        len(part) for part in build.divide(digits, build.load_dataset("digits5_mini")).train
    ]
    # 300 images in batches of 32, the last of which is kept, and five epochs
    assert gpu_queue.steps_of(digits) == [50] * 5


@pytest.mark.parametrize("entry", PLAN.queue, ids=lambda entry: entry["table"])
def test_every_run_of_the_queue_has_a_price_and_a_table(entry, monkeypatch):
    # as if nothing were recorded
    monkeypatch.setattr(gpu_queue.jobs, "recorded_and_missing", lambda jobs: ([], jobs))
    groups = gpu_queue.missing_groups(entry)
    assert groups
    for group in groups:
        assert len({job.settings.seed for job in group}) == len(group)
        chosen = group[0].settings
        assert chosen.method in PLAN.networks[chosen.model]["launches"]
