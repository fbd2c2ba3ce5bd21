"""MOON's tables as sweeps: the paper's rows and columns exactly, each cell with the paper's settings."""

import json

import pandas as pd
import pytest

from fednb import ROOT
from fednb.experiments import settings, sweep
from fednb.federation import FedAvg
from fednb.reporting import compare, report

ALL = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "Tiny-Imagenet": "tiny_imagenet"}
NOTHING = pd.DataFrame()  # a ledger without records
METHODS = ("MOON", "FedAvg", "FedProx", "SCAFFOLD", "SOLO")
MU = {"CIFAR-10": 5.0, "CIFAR-100": 1.0, "Tiny-Imagenet": 1.0}
PROX = {"CIFAR-10": 0.01, "CIFAR-100": 0.001, "Tiny-Imagenet": 0.001}
# section 4.1 of the paper
USUAL = {
    "partition": "dirichlet",
    "beta": 0.5,
    "num_clients": 10,
    "participation": 1.0,
    "local_epochs": 10,
    "batch_size": 64,
}
USUAL |= {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5, "projection_head": True}
CONTRAST = {"temperature": 0.5, "negatives": 1, "second_term": "contrastive", "random_start": False}


@pytest.fixture(scope="module")
def tables():
    return sweep.read(ROOT / "notebooks" / "sweeps" / "01_moon.yaml")


def paper(method, dataset, **given):
    """The settings of a cell, from the paper's text."""
    usual = USUAL | {"method": method, "dataset": ALL[dataset], "num_rounds": 20 if dataset == "Tiny-Imagenet" else 100}
    usual |= {"model": "simple-cnn" if dataset == "CIFAR-10" else "resnet-50"}
    if "MOON" in method:
        usual |= CONTRAST | {"mu": MU[dataset]}
    if "FedAvgM" in method:
        usual |= {"classical": False}
    if method == "FedProx":
        usual |= {"mu": PROX[dataset]}
    if method == "SCAFFOLD":
        usual |= {"momentum_factor": True, "niid_bench": True}
    if method == "SOLO":
        usual |= {"local_epochs": 300, "num_rounds": 1}
    return {name: value for name, value in (usual | given).items() if value is not None}


def printed_places(number):
    rows = json.loads((ROOT / "data" / "reported.json").read_text())["papers"]["MOON"]["tables"][number]["rows"]
    return {(r.get("label", r["method"]), column) for r in rows for column in r["cells"]}


def by_method(methods=METHODS, columns=tuple(ALL), suffix="", both=False):
    cells = {(m, c + suffix): [paper(m, c)] for m in methods for c in columns}
    for (m, _), found in cells.items():
        if m == "SCAFFOLD" and both:
            found.insert(0, found[0] | {"niid_bench": False})
    return cells


def table_3(half):
    cells = {}
    for parties, share, rounds in ((50, 1.0, 200), (100, 0.2, 500)):
        size = {"num_clients": parties, "participation": share, "num_rounds": rounds}
        column = f"parties={parties},rounds={rounds // 2 if half else rounds}"
        cells |= {(f"MOON (mu={mu})", column): [paper("MOON", "CIFAR-100", mu=float(mu), **size)] for mu in (1, 10)}
        cells |= {(m, column): [paper(m, "CIFAR-100", **size)] for m in ("FedAvg", "FedProx", "SCAFFOLD")}
        if not half:
            cells["SOLO", f"parties={parties}"] = [paper("SOLO", "CIFAR-100", num_clients=parties)]
    return cells


TUNED = [0.1, 1.0, 5.0, 10.0]
L2 = [0.001, 0.01, *TUNED[:1], *TUNED[1:]]
IID = {"partition": "iid", "beta": None}
EXPECTED = {
    "moon-1": by_method(both=True),
    "moon-2": by_method(METHODS[:4], suffix=" #rounds", both=True),
    "moon-2-speedup": by_method(METHODS[:4], suffix=" speedup", both=True),
    "moon-3": table_3(half=False),
    "moon-3-half": table_3(half=True),
    "moon-4": {(m, f"beta={b}"): [paper(m, "CIFAR-100", beta=float(b))] for m in METHODS for b in ("0.1", "0.5", "5")},
    "moon-5": {("none (FedAvg)", c): [paper("FedAvg", c)] for c in ALL}
    | {("MOON", c): [paper("MOON", c)] for c in ALL}
    | {("l2 norm", c): [paper("MOON", c, second_term="l2", mu=mu) for mu in L2] for c in ALL},
    "moon-7": {
        (f"{m}, {word} head", c): [paper(m, c, projection_head=head)]
        for m in METHODS
        for word, head in (("without", False), ("with", True))
        for c in ("CIFAR-10", "CIFAR-100")
    },
    "moon-8": {(f"MOON mu={mu:g}", "Top-1 accuracy"): [paper("MOON", "CIFAR-10", mu=mu, **IID)] for mu in TUNED}
    | {("FedAvg (mu=0)", "Top-1 accuracy"): [paper("FedAvg", "CIFAR-10", **IID)]},
    "moon-9": {(f"mu={mu:g}", c): [paper("MOON", c, mu=mu)] for mu in TUNED for c in ALL}
    | {("mu=0 (FedAvg)", c): [paper("FedAvg", c)] for c in ALL},
    "moon-10": {(c, m): [paper(m, c)] for m in ("FedAvg", "MOON") for c in ALL}
    | {(c, m): [paper(m, c, server_momentum=b) for b in (0.1, 0.7, 0.9)] for m in ("FedAvgM", "MOON+FedAvgM") for c in ALL},
    "moon-11": by_method(METHODS[:4], both=True),
    "moon-12": {
        (f"k={k}", "top-1 accuracy"): [paper("MOON", "CIFAR-10", negatives=k, mu=mu) for mu in TUNED] for k in (1, 2, 5, 100)
    },
    "moon-figure-6": by_method(METHODS[:4]) | {("FedProx (mu=1)", c): [paper("FedProx", c, mu=1.0)] for c in ALL},
    "moon-figure-7": {
        (m, c): [paper(m, c, local_epochs=epochs) for epochs in (1, 5, 10, 20, 40)] for m in METHODS[:4] for c in ALL
    },
    "moon-figure-11-temperature": {(str(t), c): [paper("MOON", c, temperature=t)] for t in (0.1, 0.5, 1.0) for c in ALL},
    "moon-figure-11-dimension": {
        (str(d or 256), c): [paper("MOON", c, projection_dim=d)] for d in (64, 128, None) for c in ALL
    },
}
PRINTED = {
    "Table 1": ["moon-1"],
    "Table 2": ["moon-2", "moon-2-speedup"],
    "Table 3": ["moon-3", "moon-3-half"],
    **{f"Table {n}": [f"moon-{n}"] for n in (4, 5, 7, 8, 9, 10, 11, 12)},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_place_has_the_papers_settings(tables, name, places):
    found = places(tables[name])
    assert found.keys() == EXPECTED[name].keys()
    for place, expected in EXPECTED[name].items():
        key = lambda own: str(sorted(own.items(), key=str))  # noqa: E731
        assert sorted(found[place], key=key) == sorted(expected, key=key), place


@pytest.mark.parametrize("number", PRINTED)
def test_the_tables_cells_are_the_printed_ones(tables, number, places):
    expanded = {place for name in PRINTED[number] for place in places(tables[name])}
    assert expanded == printed_places(number)
    for name in PRINTED[number]:
        for cell in report.cells(tables[name], NOTHING):
            assert cell.printed_text or name in ("moon-7",), cell  # table 7 has a blank
            assert cell.departures == [], cell


def test_short_tables_are_reduced_and_say_why(tables):
    for name, table in tables.items():
        if name.endswith("-short"):
            found = report.cells(table, NOTHING)
            assert {c.job.settings.dataset for c in found} == {"cifar10"}
            assert all(c.departures for c in found), name
            assert all(c.printed is not None for c in found), name
    assert report.cells(tables["moon-8-short"], NOTHING)[0].departures == [
        "num_rounds 20 instead of 100",
        "local_epochs 5 instead of 10",
    ]


def test_seeds_and_tiers(tables):
    for name in EXPECTED:
        seeds = {}
        for job in tables[name].jobs:
            assert job.tier == ("minutes-gpu" if job.settings.dataset == "cifar10" else "hours-gpu")
            seeds.setdefault((job.settings.dataset, job.settings.method == "SOLO"), set()).add(job.settings.seed)
        three = name in ("moon-1", "moon-2", "moon-2-speedup", "moon-11")
        for (dataset, solo), found in seeds.items():
            assert found == ({0} if solo or not (three or dataset == "cifar10") else {0, 1, 2}), (name, dataset)
    for name, table in tables.items():
        if name.startswith("digits"):
            lengths = {20, 40} if name == "digits-moon-clients" else {10, 1}  # 1: SOLO
            assert {job.settings.num_rounds for job in table.jobs} <= lengths
            assert {(job.settings.dataset, job.tier) for job in table.jobs} == {("digits", "minutes-cpu")}
            assert {job.settings.seed for job in table.jobs} == {0, 1, 2}


def test_runs_are_shared(tables):
    def paths(name):
        return {job.path for job in tables[name].jobs}

    assert paths("moon-2") == paths("moon-2-speedup") == paths("moon-11") < paths("moon-1")
    assert paths("moon-3-half") < paths("moon-3")
    assert len(paths("moon-9") & paths("moon-1")) == 3 * 2 + 2 * 2  # mu 0 and the best mu
    assert paths("moon-2-short") < paths("moon-1-short")
    assert len(paths("moon-figure-11-dimension") & paths("moon-1")) == 5


def test_names_in_the_printed_tables_are_settings(names_of_settings):
    known = names_of_settings
    for number, table in compare._reported()["papers"]["MOON"]["tables"].items():
        names = {*table.get("parameters", {}), *table.get("tuned", {}), *table.get("varied", [])}
        names |= {name for given in table.get("columns_are", {}).values() for name in given}
        names |= {name for row in table["rows"] for name in row.get("tuned", {})}
        names |= {name for row in table["rows"] for name in row.keys() - {"method", "cells", "label", "tuned"}}
        assert names <= known, number
        assert set(table.get("columns_are", {})) <= {c for row in table["rows"] for c in row["cells"]}
    assert set(compare._not_stated("MOON Table 1")) <= known


def test_departures_of_iid_parties():
    methods = {"FedAvg": FedAvg}
    own = settings.resolve(methods, method="FedAvg", dataset="cifar10", partition="iid")
    assert settings.deviations(own) == ["partition iid instead of dirichlet"]
    assert settings.deviations(own, {"partition": "iid"}) == []
    shifted = settings.resolve(methods, method="FedAvg", dataset="cifar10", num_rounds=20)
    assert settings.deviations(shifted, {"partition": "iid", "num_rounds": 20}) == ["partition dirichlet instead of iid"]
