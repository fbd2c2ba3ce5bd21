"""FedSSC's table and figures as sweeps: the paper's rows and columns, each cell with the paper's settings."""

import pandas as pd
import pytest

from fednb import ROOT
from fednb.experiments import sweep
from fednb.reporting import compare, report

NOTHING = pd.DataFrame()  # a ledger without records
# section V of the paper; local epochs, temperature and projection head are MOON's, of which the paper says nothing
USUAL = {"dataset": "cifar10", "model": "simple-cnn", "partition": "dirichlet", "beta": 0.5, "num_clients": 10}
USUAL |= {"participation": 1.0, "num_rounds": 100, "local_epochs": 10, "batch_size": 64, "lr": 0.01, "momentum": 0.9}
USUAL |= {"weight_decay": 1e-5, "projection_head": True}
MOON = {"mu": 5.0, "temperature": 0.5, "negatives": 1, "second_term": "contrastive", "random_start": False}
FEDSSC = {"mu_moon": 5.0, "mu_glob": 1.0, "mu_glob_end": 1e-4, "mu_glob_schedule": "hold", "warmup": 5, "temperature": 0.5}
FEDSSC |= {"num_shared": 1, "min_images": 10, "exclude_own": False, "variant": "default"}


@pytest.fixture(scope="module")
def tables():
    return sweep.read(ROOT / "notebooks" / "sweeps" / "03_fedssc.yaml")


def paper(method, **given):
    """The settings of a cell, from the paper's text."""
    return USUAL | {"method": method} | {"MOON": MOON, "FedSSC": FEDSSC}.get(method, {}) | given


def places(table):
    """Settings per place of the table, without the seed; and the seeds."""
    found, seeds = {}, {}
    for job in table.jobs:
        own = {name: value for name, value in job.settings.flat().items() if value is not None}
        place = table.rows.name(job), table.columns.name(job)
        seeds.setdefault(place, set()).add(own.pop("seed"))
        assert found.setdefault(place, own) == own, place
    return found, seeds


METHODS = ("FedAvg", "MOON", "FedSSC")
WITHOUT = {"without l_moon": paper("FedSSC", mu_moon=0.0), "without l_glob (MOON)": paper("MOON")}
WITHOUT |= {"without l_moon, k=10": paper("FedSSC", mu_moon=0.0, num_shared=10), "without both (FedAvg)": paper("FedAvg")}
EXPECTED = {
    "fedssc-1": {(m, "TOP-1 ACCURACY"): paper(m) for m in METHODS},
    "fedssc-1-rounds": {(m, "NUM OF COMMS (0.68 ACC)"): paper(m) for m in METHODS},
    "fedssc-figure-1": {(m, f"beta={b:g}"): paper(m, beta=b) for m in METHODS for b in (0.2, 0.5, 1.0, 5.0)},
    "fedssc-figure-2-variants": {
        ("FedSSC", "CIFAR-10"): paper("FedSSC"),
        ("two stages", "CIFAR-10"): paper("FedSSC", variant="two-stage", mu_moon=0.0),
        ("local pairs", "CIFAR-10"): paper("FedSSC", variant="local-pairs"),
    },
    "fedssc-figure-2-moon": {(row, "CIFAR-10"): own for row, own in (WITHOUT | {"FedSSC": paper("FedSSC")}).items()},
    "fedssc-figure-2-k": {(f"k={k}", "CIFAR-10"): paper("FedSSC", mu_moon=0.0, num_shared=k) for k in (1, 2, 5, 10)}
    | {("none (FedAvg)", "CIFAR-10"): paper("FedAvg")},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_place_has_the_papers_settings_with_three_seeds(tables, name):
    found, seeds = places(tables[name])
    assert found == EXPECTED[name]
    assert set(map(frozenset, seeds.values())) == {frozenset({0, 1, 2})}
    assert tables[name].tiers == ["minutes-gpu"]
    assert all(cell.departures == [] or tables[name].printed is None for cell in report.cells(tables[name], NOTHING))


def test_printed_values_are_percent_and_rounds(tables):
    def printed(name):
        return {cell.row: cell.printed_text for cell in report.cells(tables[name], NOTHING)}

    assert printed("fedssc-1") == {"FedAvg": "65.8", "MOON": "68.6", "FedSSC": "69.3"}
    assert printed("fedssc-1-rounds") == {"FedAvg": "> 100", "MOON": "61", "FedSSC": "41"}
    assert tables["fedssc-1-rounds"].target == 68
    assert printed("fedssc-1-short") == {"FedAvg": "65.8", "MOON": "68.6", "FedProc": "", "FedSSC": "69.3"}


def test_what_the_paper_does_not_say_is_no_departure(tables, names_of_settings):
    for cell in report.cells(tables["fedssc-1-short"], NOTHING):
        if cell.row != "FedProc":
            assert cell.departures == ["num_rounds 20 instead of 100"]
            assert cell.not_stated == ["local_epochs 5"]
    known = names_of_settings
    assert set(compare._not_stated("FedSSC Table I")) <= known


def test_short_and_digits_tables_are_for_a_cpu(tables):
    for name, table in tables.items():
        if name.endswith("-short"):
            lengths = {(job.settings.num_rounds, job.settings.local_epochs, job.settings.dataset) for job in table.jobs}
            assert lengths == {(20, 5, "cifar10")}
            assert table.tiers == ["minutes-cpu"]
        if name.startswith("digits"):
            assert {(job.settings.dataset, job.tier) for job in table.jobs} == {("digits", "minutes-cpu")}
            assert {frozenset(seeds) for seeds in places(table)[1].values()} == {frozenset({0, 1, 2})}
    found, seeds = places(tables["fedssc-2-short"])
    assert {seed for of_place in seeds.values() for seed in of_place} == {0}
    rows = {row for row, _ in found}
    assert rows == {*WITHOUT, "FedSSC", "k=10", "negative is another image"}


def test_runs_of_moon_and_fedavg_stand_for_fedssc_without(tables):
    """They are the same bit for bit (test_fedssc.py), and are recorded once for all notebooks."""
    others = sweep.read(ROOT / "notebooks" / "sweeps" / "01_moon.yaml")

    def made(tables, name, *methods):  # not by path, which depends on the data that this machine has
        return {str(job.settings) for job in tables[name].jobs if job.settings.method in methods}

    assert made(tables, "fedssc-1", "MOON", "FedAvg") < made(others, "moon-1", "MOON", "FedAvg")  # and other data sets
    assert made(tables, "fedssc-1-short", "MOON", "FedAvg") == made(others, "moon-1-short", "MOON", "FedAvg")
    assert made(tables, "digits-fedssc", "MOON", "FedAvg") == made(others, "digits-moon", "MOON", "FedAvg")
    assert made(tables, "fedssc-1-rounds", *METHODS) == made(tables, "fedssc-1", *METHODS)
    assert len(made(tables, "fedssc-2-short", *METHODS) & made(tables, "fedssc-1-short", *METHODS)) == 3
