"""FedProc's tables as sweeps: the paper's rows and columns exactly, each cell with the paper's settings."""

import json

import pandas as pd
import pytest

from fednb import ROOT
from fednb.experiments import sweep
from fednb.reporting import compare, report

ALL = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "Tiny-ImageNet": "tiny_imagenet"}
NOTHING = pd.DataFrame()  # a ledger without records
METHODS = ("FedAvg", "SCAFFOLD", "FedProx", "MOON", "FedProc")
# table 1 of the paper, and what its text says of the networks; momentum and weight decay are its code's
USUAL = {
    "partition": "dirichlet",
    "beta": 0.5,
    "num_clients": 10,
    "participation": 1.0,
    "num_rounds": 100,
    "local_epochs": 10,
    "batch_size": 64,
}
USUAL |= {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5, "projection_head": True}
PRINTED_METHOD = {"alpha": 1.0, "alpha_schedule": "linear", "alpha_rounds": 0, "temperature": 1.0}
PRINTED_METHOD |= {"first_round_ce": False, "normalise_z": False, "weighted_prototypes": False}
OWN = {
    "FedAvg": {},
    "SCAFFOLD": {"momentum_factor": True, "niid_bench": True},
    "FedProx": {"mu": 0.001},
    "MOON": {"mu": 1.0, "temperature": 0.5, "negatives": 1, "second_term": "contrastive", "random_start": False},
    "FedProc": PRINTED_METHOD | {"lr": 0.1},
    "SOLO": {"local_epochs": 300, "num_rounds": 1},
}
ON_CIFAR10 = {"FedProx": {"mu": 0.01}, "MOON": {"mu": 5.0}, "FedProc": {"lr": 0.01}}


@pytest.fixture(scope="module")
def tables():
    return sweep.read(ROOT / "notebooks" / "sweeps" / "02_fedproc.yaml")


@pytest.fixture(scope="module")
def moon():
    return sweep.read(ROOT / "notebooks" / "sweeps" / "01_moon.yaml")


def paper(method, dataset, **given):
    """The settings of a cell, from the paper's text; the baselines' learning rate is that of MOON's paper."""
    usual = USUAL | {"method": method, "dataset": ALL[dataset], "model": "resnet-50"} | OWN[method]
    if dataset == "CIFAR-10":
        usual |= {"model": "simple-cnn"} | ON_CIFAR10.get(method, {})
    return usual | given


def printed_places(number):
    rows = json.loads((ROOT / "data" / "reported.json").read_text())["papers"]["FedProc"]["tables"][number]["rows"]
    return {(row["method"], column) for row in rows for column in row["cells"]}


def by_method(methods=METHODS, columns=tuple(ALL), both=False, **given):
    cells = {(m, c): [paper(m, c, **given)] for m in methods for c in columns}
    for (m, _), found in cells.items():
        if m == "SCAFFOLD" and both:
            found.append(found[0] | {"niid_bench": False})
    return cells


def table_6(names):
    sizes = ({"num_clients": 50, "num_rounds": 200}, {"num_clients": 100, "participation": 0.2, "num_rounds": 500})
    cells = {}
    for column, size in zip(names, sizes, strict=True):
        cells |= {(m, column): [paper(m, "CIFAR-100", **size)] for m in METHODS}
        cells["MOON", column][0]["mu"] = 10.0
    return cells


EPOCHS = (1, 5, 10, 20, 40)
LADDER = {
    "as printed": {},
    "z of length 1": {"normalise_z": True},
    "cross entropy alone in round 0": {"first_round_ce": True},
    "prototypes weighted with images": {"weighted_prototypes": True},
    "no contrast, z of length 1": {"alpha": 0.0, "normalise_z": True},
    "all three": {"normalise_z": True, "first_round_ce": True, "weighted_prototypes": True},
}
SHORT_LADDER = LADDER | {"alpha falls over 100 rounds": {"alpha_rounds": 100}}
SHORT_LADDER |= {"all four": SHORT_LADDER.pop("all three") | {"alpha_rounds": 100}}
EXPECTED = {
    "fedproc-2": by_method(both=True) | by_method(["SOLO"]),
    "fedproc-2-fair": {
        (m, f"{c}, lr {lr:g}"): [paper(m, c, lr=lr)] for m in METHODS for c in list(ALL)[1:] for lr in (0.01, 0.1)
    },
    "fedproc-3": {(m, f"beta={b:g}"): [paper(m, "CIFAR-100", beta=b)] for m in (*METHODS, "SOLO") for b in (5.0, 0.5, 0.1)},
    "fedproc-4": {("FedProc", c): [paper("FedProc", c)] for c in ALL}
    | {("FedProc(alpha=0.5)", c): [paper("FedProc", c, alpha=0.5, alpha_schedule="constant")] for c in ALL}
    | {("Two-stage FL", c): [paper("FedProc", c, alpha_schedule="two-stage")] for c in ALL},
    "fedproc-5": by_method(both=True),
    "fedproc-6": table_6(("m=50,T=200", "m=100,T=500")),
    "fedproc-6-half": table_6(("m=50,T=100", "m=100,T=250")),
    "fedproc-6-own": {
        ("FedProc", "m=50,T=100"): [paper("FedProc", "CIFAR-100", num_clients=50, num_rounds=100)],
        ("FedProc", "m=100,T=250"): [
            paper("FedProc", "CIFAR-100", num_clients=100, participation=0.2, num_rounds=250),
        ],
    },
    "fedproc-figure-4": by_method(),
    "fedproc-figure-4-half": by_method(),
    "fedproc-figure-5": {(m, c): [paper(m, c, local_epochs=e) for e in EPOCHS] for m in METHODS for c in ALL},
    "fedproc-code": {(row, "CIFAR-10"): [paper("FedProc", "CIFAR-10", **given)] for row, given in LADDER.items()}
    | {("no contrast (FedAvg)", "CIFAR-10"): [paper("FedAvg", "CIFAR-10")]},
    "fedproc-code-short": {
        (row, "CIFAR-10"): [paper("FedProc", "CIFAR-10", num_rounds=20, local_epochs=5, **given)]
        for row, given in SHORT_LADDER.items()
    }
    | {("no contrast (FedAvg)", "CIFAR-10"): [paper("FedAvg", "CIFAR-10", num_rounds=20, local_epochs=5)]},
}
PRINTED = {
    "Table 2": ["fedproc-2"],
    "Table 3": ["fedproc-3"],
    "Table 4": ["fedproc-4"],
    "Table 5": ["fedproc-5"],
    "Table 6": ["fedproc-6", "fedproc-6-half", "fedproc-6-own"],
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
    assert {place for name in PRINTED[number] for place in places(tables[name])} == printed_places(number)
    for name in PRINTED[number]:
        for cell in report.cells(tables[name], NOTHING):
            assert cell.printed_text, cell
            assert cell.departures == [], cell
            assert cell.not_stated in ([], ["niid_bench True"])


def test_the_copied_columns_are_those_of_moons_paper():
    """Table 2 on CIFAR-10 and CIFAR-100, table 3, and table 6 with MOON's mu 10; Tiny-ImageNet was run anew."""
    own, moon = ({t: compare.printed(f"{p} {t}") for t in ts} for p, ts in (("FedProc", PRINTED), ("MOON", ["Table 1"])))
    for method, cells in moon["Table 1"].items():
        for column in ("CIFAR-10", "CIFAR-100"):
            assert own["Table 2"][method][column] == cells[column]
        assert own["Table 2"][method]["Tiny-ImageNet"] != cells["Tiny-Imagenet"]
    for method, cells in compare.printed("MOON Table 4").items():
        assert own["Table 3"][method] == cells
    for method, cells in compare.printed("MOON Table 3").items():
        if method not in ("MOON (mu=1)", "SOLO"):
            ours = own["Table 6"][method.replace(" (mu=10)", "")]
            assert list(ours.values()) == list(cells.values()), method


def test_seconds_are_printed_as_ratios(tables):
    cells = {(cell.row, cell.column): cell.printed_text for cell in report.cells(tables["fedproc-5"], NOTHING)}
    assert [cells["FedProc", column] for column in ALL] == ["1.39", "1.13", "1.07"]
    assert [cells["MOON", column] for column in ALL] == ["1.06", "1.83", "1.79"]


def test_variants_depart_from_the_printed_method_by_what_their_row_says(tables):
    cells = {cell.row: cell for cell in report.cells(tables["fedproc-code"], NOTHING)}
    assert cells["as printed"].departures == []
    assert cells["z of length 1"].departures == ["normalise_z True instead of False"]
    assert len(cells["all three"].departures) == 3


def test_short_tables_are_reduced_and_say_why(tables):
    short = [name for name in tables if "-short" in name]
    assert len(short) == 5
    for name in short:
        found = report.cells(tables[name], NOTHING)
        assert {c.job.settings.dataset for c in found} == {"cifar10"}
        assert {c.tier for c in found} <= {"minutes-cpu", ""}
        assert all(c.departures for c in found), name
        assert all(c.printed is not None for c in found) == (tables[name].printed is not None), name


def test_seeds_and_tiers(tables):
    for name in EXPECTED:
        seeds = {}
        for job in tables[name].jobs:
            cpu = "minutes-cpu" if name.endswith("-short") else "minutes-gpu"
            assert job.tier == (cpu if job.settings.dataset == "cifar10" else "hours-gpu")
            seeds.setdefault((job.settings.dataset, job.settings.method == "SOLO"), set()).add(job.settings.seed)
        three = name in ("fedproc-2", "fedproc-5", "fedproc-figure-4", "fedproc-figure-4-half")
        for (dataset, solo), found in seeds.items():
            one = solo or not (three or dataset == "cifar10") or name.endswith("-short")
            assert found == ({0} if one else {0, 1, 2}), (name, dataset)
    for name, table in tables.items():
        if name.startswith("digits"):
            assert {(job.settings.dataset, job.tier) for job in table.jobs} == {("digits", "minutes-cpu")}
            assert {job.settings.seed for job in table.jobs} == {0, 1, 2}


def test_runs_are_shared_with_each_other_and_with_moons(tables, moon):
    def paths(name, method=None):
        jobs = (moon if "moon" in name else tables)[name].jobs
        return {job.path for job in jobs if method is None or job.settings.method == method}

    assert paths("fedproc-5") < paths("fedproc-2")
    assert paths("fedproc-figure-4") == paths("fedproc-figure-4-half") < paths("fedproc-2")
    assert paths("fedproc-6-half") == paths("fedproc-6")
    assert not paths("fedproc-6-own") & paths("fedproc-6")
    for mine, theirs in (("fedproc-2-short", "moon-1-short"), ("fedproc-5-short", "moon-11-short")):
        assert paths(mine) - paths(mine, "FedProc") == paths(theirs)
    for method in ("FedAvg", "SCAFFOLD", "FedProx", "MOON"):
        assert len(paths("fedproc-2", method) & paths("moon-1", method)) == len(paths("moon-1", method)) * 2 / 3  # not Tiny
        assert paths("fedproc-3", method) == paths("moon-4", method)
        assert paths("fedproc-6", method) <= paths("moon-3", method)
    for name, rows in (("fedproc-code-short", 8), ("fedproc-4-short", 3)):
        assert len(paths(name)) == rows
        assert len(paths(name) & paths("fedproc-2-short", "FedProc")) == 1
    assert paths("digits-fedproc-half") == paths("digits-fedproc-rounds")


def test_names_in_the_printed_tables_are_settings(names_of_settings):
    known = names_of_settings
    for number, table in compare._reported()["papers"]["FedProc"]["tables"].items():
        names = {name for given in table.get("columns_are", {}).values() for name in given}
        names |= set(table.get("parameters", {})) | {
            name for row in table["rows"] for name in row.keys() - {"method", "cells"}
        }
        assert names <= known, number
        assert set(table.get("columns_are", {})) <= {c for row in table["rows"] for c in row["cells"]}
    assert set(compare._not_stated("FedProc Table 2")) <= known
