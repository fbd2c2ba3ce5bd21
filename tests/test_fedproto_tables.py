"""FedProto's tables and figures as sweeps: the paper's rows and columns, each cell with the paper's settings."""

import json

import numpy as np
import pandas as pd
import pytest

from fednb import ROOT, models
from fednb.experiments import build, runner, settings, sweep
from fednb.experiments import ledger as records
from fednb.reporting import compare, figures, report
from fednb.reporting.measures import MEASURES

NOTHING = pd.DataFrame()  # a ledger without records
BASELINES = ("Local", "FeSEM", "FedProx", "FedPer", "FedAvg", "FedRep")
METHODS = (*BASELINES, "FedProto", "FedProto-mh")
# "Training Setups" and "Experimental Details" of the paper
USUAL = {"partition": "n-way-k-shot", "num_clients": 20, "participation": 1.0, "local_epochs": 1, "batch_size": 8}
USUAL |= {"lr": 0.01, "momentum": 0.5, "shots": 100}
ROUNDS = {  # tables 2 to 4; Local, printed with 0, trains as long as FedProto
    "MNIST": dict(zip(METHODS, (100, 150, 110, 100, 150, 100, 100, 100), strict=True)),
    "FEMNIST": dict(zip(METHODS, (120, 200, 300, 250, 300, 200, 120, 120), strict=True)),
    "CIFAR10": dict(zip(METHODS, (110, 120, 150, 130, 150, 110, 110, 110), strict=True)),
}
LAM = {"MNIST": 1.0, "FEMNIST": 1.0, "CIFAR10": 0.1}
SETS = {"MNIST": "mnist", "FEMNIST": "femnist", "CIFAR10": "cifar10"}
STDEVS = {"MNIST": (2, 3), "FEMNIST": (1, 2), "CIFAR10": (1, 2)}
NUMBER = {"MNIST": "Table 2", "FEMNIST": "Table 3", "CIFAR10": "Table 4"}
TABLES = {"MNIST": "fedproto-2", "FEMNIST": "fedproto-3", "CIFAR10": "fedproto-4"}
COLUMNS = {"n=3": 3, "n=4": 4, "n=5": 5}


@pytest.fixture(scope="module")
def tables():
    return sweep.read(ROOT / "notebooks" / "sweeps" / "04_fedproto.yaml")


@pytest.fixture(scope="module")
def reported():
    return json.loads((ROOT / "data" / "reported.json").read_text(encoding="utf-8"))["papers"]["FedProto"]["tables"]


def paper(data, method, stdev, ways):
    """What the paper says of a cell."""
    own = {"dataset": SETS[data], "method": method.removesuffix("-mh"), "stdev": stdev, "ways": ways}
    own |= {"num_rounds": ROUNDS[data][method], "heterogeneous": True if method == "FedProto-mh" else None}
    own |= {"pretrained": True if data == "CIFAR10" else None}
    return USUAL | own | ({"lam": LAM[data]} if "FedProto" in method else {})


def one(found, expected):
    """The only settings of a place, as far as ``expected`` names them."""
    (own,) = found
    return {name: own.get(name) for name in expected}


def expected_places(tables, name):
    if name == "fedproto-1":
        rows = {f"{data}, {m}": (data, m, min(STDEVS[data])) for data in SETS for m in METHODS}
    else:
        (data,) = (d for d, table in TABLES.items() if name.startswith(table))
        rows = {f"{m}, stdev {s}": (data, m, s) for m in METHODS for s in STDEVS[data]}
    return {(row, column): paper(*place, ways) for row, place in rows.items() for column, ways in COLUMNS.items()}


PLACED = ["fedproto-1", *TABLES.values(), "fedproto-2-std", "fedproto-2-local", "fedproto-2-numbers"]


@pytest.mark.parametrize("name", PLACED)
def test_each_place_has_the_papers_settings(tables, places, name):
    found, expected = places(tables[name]), expected_places(tables, name)
    assert found.keys() == expected.keys()
    for place, own in expected.items():
        assert one(found[place], own) == own, place
    assert {1234} <= {job.settings.seed for job in tables[name].jobs} <= {1234, 0, 1}
    assert all(cell.departures == [] for cell in report.cells(tables[name], NOTHING))


@pytest.mark.parametrize("name", PLACED)
def test_beside_each_place_stands_its_own_printed_number(tables, reported, name):
    """Found in the transcription by data set, method, stdev and column, not by the row's name."""
    number = "Table 1" if name == "fedproto-1" else next(n for d, n in NUMBER.items() if name.startswith(TABLES[d]))
    by_fields = {(r["dataset"], r["method"], r["stdev"]): r for r in reported[number]["rows"]}
    cells = report.cells(tables[name], NOTHING)
    assert len(cells) == len(by_fields) * 3
    for cell in cells:
        own = cell.job.settings.flat()
        data = next(d for d, key in SETS.items() if key == own["dataset"])
        row = by_fields[data, own["method"] + ("-mh" if own["heterogeneous"] else ""), own["stdev"]]
        printed = {"accuracy_std": row["cells"][cell.column]["std"], "up_numbers": row["comm_params_thousands"]}
        assert cell.printed == printed.get(cell.measure, row["cells"][cell.column]["value"]), (cell.row, cell.column)
        plain = cell.measure in printed
        assert cell.printed_std == (None if plain else row["cells"][cell.column]["std"])


def test_tables_1_and_2_disagree_in_one_cell(tables):
    both = {}
    for name in ("fedproto-1", "fedproto-2"):
        for cell in report.cells(tables[name], NOTHING):
            own = cell.job.settings.flat()
            if own["dataset"] == "mnist" and own["stdev"] == 2:
                both.setdefault((own["method"], own["heterogeneous"], cell.column), []).append(cell.printed)
    assert len(both) == 24
    assert {place: pair for place, pair in both.items() if pair[0] != pair[1]} == {("FedAvg", None, "n=3"): [95.04, 91.4]}


def test_printed_rows_are_named_and_their_rounds_are_our_settings(reported):
    for number, table in reported.items():
        for row in table["rows"]:
            data, method = row["dataset"], row["method"]
            assert row["label"] == (f"{data}, {method}" if number == "Table 1" else f"{method}, stdev {row['stdev']}")
            rounds = ROUNDS[data][method]
            assert row["comm_rounds"] == (0 if method == "Local" else rounds), number
            usual = settings.defaults(method.removesuffix("-mh"), SETS[data], "n-way-k-shot")
            assert usual["num_rounds"] == rounds


def test_nearest_prototypes_are_read_of_fedproto_alone(tables, places):
    rows = {f"FedProto{x}, stdev {s}" for x in ("", "-mh") for s in (2, 3)}
    assert {row for row, _ in places(tables["fedproto-2-prototype"])} == rows
    assert all(cell.departures == [] for cell in report.cells(tables["fedproto-2-prototype"], NOTHING))


def test_figures(tables, places):
    figure_3 = places(tables["fedproto-figure-3"])
    assert {place: own[0]["num_rounds"] for place, own in figure_3.items()} == {
        (m, f"k={k}"): rounds for m, rounds in (("FedAvg", 150), ("FedProto", 100)) for k in (10, 25, 50, 100)
    }
    figure_4 = places(tables["fedproto-figure-4"])
    for data, column in (("MNIST", "MNIST as stand-in"), ("FEMNIST", "FEMNIST")):
        base = paper(data, "FedProto", min(STDEVS[data]), 3)
        for row, lam in {"λ=0.5": 0.5, "λ=1": 1.0, "λ=2": 2.0, "λ=4": 4.0}.items():
            assert one(figure_4[row, column], base | {"lam": lam}) == base | {"lam": lam}
        assert figure_4["λ=0 (Local)", column][0]["method"] == "Local"
    assert len(figure_4) == 10
    tuning = tables["fedproto-lam"]
    assert {job.settings.validation for job in tuning.jobs} == {0.1}
    assert [job.settings.flat()["lam"] for job in tuning.jobs] == [0.1, 0.5, 1.0, 2.0, 4.0]
    assert report.tuned(tuning, NOTHING).empty


def test_runs_of_one_table_are_those_of_another(tables):
    def made(name, **given):
        jobs = [job.settings for job in tables[name].jobs]
        return {str(s) for s in jobs if all(s.flat().get(k) == v for k, v in given.items())}

    for name in ("fedproto-2-std", "fedproto-2-local"):
        assert made(name) == made("fedproto-2")
    assert made("fedproto-2-numbers") == made("fedproto-2", seed=1234)
    assert made("fedproto-2-prototype") == made("fedproto-2", method="FedProto")
    assert made("fedproto-1", dataset="mnist") == made("fedproto-2", stdev=2)
    assert made("fedproto-figure-3", shots=100) < made("fedproto-2", seed=1234, ways=3, stdev=2)
    mnist = {"dataset": "mnist", "lam": 1.0}
    assert made("fedproto-figure-4", **mnist) == made("fedproto-2", seed=1234, ways=3, stdev=2, lam=1.0, heterogeneous=None)
    for name in ("digits-fedproto-std", "digits-fedproto-local"):
        assert made(name) == made("digits-fedproto")


def test_short_and_digits_tables_are_for_a_cpu(tables):
    short = tables["fedproto-4-short"]
    assert all(cell.departures[0].startswith("num_rounds 10 instead of") for cell in report.cells(short, NOTHING))
    assert all(cell.departures[1] == "pretrained False instead of True" for cell in report.cells(short, NOTHING))
    letters = tables["fedproto-3-emnist-short"]
    assert letters.printed is None  # other data: nothing printed stands beside it
    assert {job.settings.dataset for job in letters.jobs} == {"emnist_letters"}
    for name in ("fedproto-4-short", "fedproto-3-emnist-short", "fedproto-2", "fedproto-figure-3", "fedproto-lam"):
        assert tables[name].tiers == ["minutes-cpu"]
    digits = [table for name, table in tables.items() if name.startswith("digits")]
    assert len(digits) == 12
    for table in digits:
        assert {(job.settings.dataset, job.tier) for job in table.jobs} == {("digits", "minutes-cpu")}
        assert {job.settings.seed for job in table.jobs} == {1234, 0, 1}
    assert len({str(job.settings) for table in digits for job in table.jobs}) <= 72


# --- measures ---------------------------------------------------------------------------------------------------------


def test_numbers_sent_are_those_counted_by_hand(tmp_path, monkeypatch):
    """A run as it is recorded, by the measure, against the sizes of what the paper says is sent."""
    monkeypatch.setenv("FEDNB_RUNS", str(tmp_path))
    from fednb.papers.fedproto import METHODS as known

    small = {"dataset": "digits", "partition": "n-way-k-shot", "num_rounds": 2, "seed": 1234}
    network = models.build("digits-cnn", 10, channels=1, side=8, projection_head=False, seed=0)
    width, everything = network.classifier.in_features, models.num_parameters(network)
    body = sum(p.numel() for name, p in network.named_parameters() if name.startswith("encoder") and "fc" not in name)
    read = {}
    for method in ("FedProto", "FedAvg", "FedPer", "Local"):
        record = runner.run(settings.resolve(known, method=method, **small), known, workers=1)
        read[method] = 1000 * MEASURES["up_numbers"].read({"record": record}, {}).value
        parts = build.divide(settings.resolve(known, method=method, **small), build.load_dataset("digits"))[0]
    labels = build.load_dataset("digits").labels.numpy()
    holders = sum(len(np.unique(labels[part])) for part in parts)
    clients = len(parts)
    assert read["FedProto"] == pytest.approx(holders * (width + 1))  # a class mean and its label
    assert read["FedAvg"] == pytest.approx(clients * (everything + 1))  # and how many images it has
    assert read["FedPer"] == pytest.approx(clients * (body + 1))
    assert read["Local"] == pytest.approx(clients)


def test_read_outs_and_spread_have_curves_of_their_own(tmp_path, tables):
    """Each from its own entry of a record."""
    name = "fedproto-2-prototype"
    final = {"accuracy": 1.0, "accuracy/prototype": 2.0, "accuracy/local classes": 3.0, "accuracy_std": 4.0}
    for measure, value in {"accuracy/prototype": 2.0, "accuracy/local classes": 3.0, "accuracy_std": 4.0}.items():
        assert MEASURES[measure].read({"record": {"final": final}}, {}).value == value
    assert MEASURES["accuracy/prototype"].read({"record": {"final": {"accuracy": 1.0}}}, {}) is None
    job = next(job for job in tables[name].jobs)
    content = {"key": "k", "results_version": 1, "status": "finished", "settings": job.settings.flat(), "departures": []}
    content |= {"dataset": {"note": ""}, "final": final | {"clients": [1.0]}, "partition": {"hash": "p"}}
    content |= {"metrics": {"round": [1, 2], "accuracy": [9.0, 1.0], "accuracy/prototype": [8.0, 2.0], "up_numbers": [0, 5]}}
    (tmp_path / "a.json").write_text(json.dumps(content))
    points = figures._points([tables[name]], records.load(tmp_path))
    assert points["accuracy"].tolist() == [8.0, 2.0]
    assert figures.svg(tables["fedproto-2-std"], records.load(tmp_path)) is None
    assert figures.svg(tables["fedproto-2-numbers"], records.load(tmp_path)) is None
    assert figures.svg(tables[name], records.load(tmp_path)) is not None


def test_of_a_spread_the_narrower_is_ahead(tables, tmp_path):
    """Three seeds of two methods, spreads 1 and 3."""
    table, jobs = tables["digits-fedproto-std"], {}
    for job in table.jobs:
        jobs.setdefault(job.settings.method, []).append(job)
    for method, spread in (("FedProto", 1.0), ("FedAvg", 3.0)):
        for i, job in enumerate(jobs[method]):
            content = {"key": "k", "results_version": 1, "status": "finished", "settings": job.settings.flat()}
            content |= {"departures": [], "dataset": {"note": ""}, "metrics": {"round": [1], "accuracy": [90.0]}}
            content |= {"final": {"accuracy_std": spread + 0.1 * i * (method == "FedAvg")}, "partition": {"hash": str(i)}}
            (tmp_path / f"{method}{i}.json").write_text(json.dumps(content))
    ledger = records.load(tmp_path)
    assert report.lead(table, "FedProto", "FedAvg", ledger=ledger) == "-2.1 ± 0.2 points over 3 seeds: ahead"
    assert report.lead(table, "FedAvg", "FedProto", ledger=ledger) == "+2.1 ± 0.2 points over 3 seeds: behind"
    assert set(compare._not_stated("FedProto Table 2")) <= sweep.defaults("04_fedproto").keys()
