"""What a comparison, or a table of one's own, says: who is ahead, and what is to be doubted."""

import dataclasses
import itertools
from pathlib import Path

import made_up
import pytest

from fednb import records as ledger
from fednb_lab import compare as head_to_head
from fednb_lab import tables
from fednb_lab.cells import Cell, cells_of
from fednb_lab.leads import as_family, leads_over_baseline
from fednb_lab.sweeps import Table


def table_with(**accuracies: list[float]) -> Table:
    """A row for each method, a run for each accuracy."""
    jobs = [
        made_up.job(method, seed)
        for method in accuracies
        for seed in range(len(accuracies[method]))
    ]
    for job, value in zip(jobs, itertools.chain(*accuracies.values()), strict=True):
        made_up.record(job, value)
    return made_up.table(*jobs, printed=None)


def cells_with(**accuracies: list[float]) -> list[Cell]:
    return cells_of(table_with(**accuracies), ledger.load())


@pytest.fixture
def by_beta() -> Table:
    """Two rows and two columns, of one run each."""
    jobs = [made_up.job(method, beta=beta) for method in ("FedAvg", "FedProx") for beta in (0.1, 5)]
    for job, accuracy in zip(jobs, (10.0, 60.0, 11.0, 61.0), strict=True):
        made_up.record(job, accuracy)
    return made_up.table(*jobs, columns="beta", printed=None, labels={}, file=Path("mine.yaml"))


def test_what_is_no_better_than_guessing_is_named() -> None:
    told = tables.learned_nothing(cells_with(FedAvg=[10.0, 14.0], FedProx=[15.0, 17.0]))
    assert "FedAvg" in told and "FedProx" not in told
    assert tables.learned_nothing(cells_with(FedProx=[15.0, 17.0])) == ""


def test_a_table_of_ones_own_says_what_it_lacks(by_beta: Table) -> None:
    missing = made_up.job(seed=1, beta=0.1)
    table = dataclasses.replace(by_beta, jobs=(*by_beta.jobs, missing))
    text = tables.table_in_full(table, cells_of(table, ledger.load()))
    assert "| FedProx | 0.1 | 11.0 | 0 | +1.0 |" in text and "| FedProx | 5.0 | 61.0 |" in text
    assert "1 of the runs" in text and "Learned nothing: FedAvg, 0.1 (10.0 %" in text


@pytest.mark.parametrize(
    ("accuracies", "side", "reason"),
    [
        ([62.0, 62.1, 61.9], "Ahead of FedAvg", ""),
        ([58.0, 58.1, 57.9], "Behind FedAvg", ""),
        ([62.0, 58.0, 61.0], "Cannot tell from FedAvg", "contains zero"),
        ([62.0, 62.1], "Cannot tell from FedAvg", "3 seeds"),
    ],
)
def test_a_direction_is_told_only_where_the_interval_leaves_out_zero(
    accuracies: list[float], side: str, reason: str
) -> None:
    table = table_with(FedAvg=[60.0, 60.1, 59.9][: len(accuracies)], FedProx=accuracies)
    baseline, comparisons = leads_over_baseline(table, cells_of(table, ledger.load()))
    told = head_to_head.who_is_ahead(baseline, as_family(comparisons))
    assert told.startswith(f"- {side}: FedProx") and reason in told and "((" not in told
