"""The papers' tables as sweeps: every printed cell has a run in the paper's settings, or a reason why it has none."""

from dataclasses import replace

import numpy as np
import pytest
from made_up import project, record

from fednb import models, reporting
from fednb.experiments import build, ledger, runner, settings
from fednb.reporting.metrics import measure
from fednb.reporting.tables import original

SETS = ("CIFAR-10", "CIFAR-100", "Tiny-Imagenet")


def test_every_printed_result_stands_beside_a_run_in_the_papers_settings():
    tables, found = project()
    beside = {}
    for name, table in tables.items():
        for cell in found[name] if table.printed else ():
            if not cell.deviations:
                beside.setdefault(table.printed, set()).add((cell.label, cell.column))
    for number in {table.printed for table in tables.values() if table.printed}:
        printed = {place for place in original(number) if place[0] and place[1] not in ("rounds", "numbers sent, thousands")}
        if number == "FedPLCC Table V":  # parts of the method: its rows say which lambda is 0
            printed = {place for place in printed if place[0] in ("L_contra w/o, L_corr w/o", "L_contra w/, L_corr w/")}
        assert printed <= beside[number], number
    for name, table in tables.items():
        if table.printed and name.endswith("-short"):  # and says so
            assert all(cell.deviations for cell in found[name]), name
            assert all(cell.place.text for cell in found[name]) or original(table.printed)["", ""]["partial"], name


def test_what_stands_beside_is_the_printed_number_in_the_measures_units():
    _, found = project()

    def texts(name):
        return {(cell.row, cell.column): cell.place.text for cell in found[name]}

    assert [text for (_, column), text in texts("fedssc-1").items()] == ["65.8", "68.6", "69.3"]
    assert list(texts("fedssc-1-rounds").values()) == ["> 100", "61", "41"]
    assert [texts("fedproc-5")["FedProc", column] for column in SETS[:2]] == ["1.39", "1.13"]
    assert [texts("moon-2")["SCAFFOLD", f"{column} #rounds"] for column in SETS] == ["80", "not reached", "not reached"]
    assert [texts("moon-2-speedup")[m, "CIFAR-100 speedup"] for m in ("FedAvg", "SCAFFOLD")] == ["1", "< 1"]
    by_place = {(cell.row, cell.column): cell for cell in found["fedproto-2-std"]}
    assert by_place["FedAvg, stdev 2", "n=3"].printed == original("FedProto Table 2")["FedAvg, stdev 2", "n=3"]["std"]
    numbers = {cell.row: cell.printed for cell in found["fedproto-2-numbers"]}
    assert numbers["FedAvg, stdev 2"] == reporting.printed("FedProto Table 2")["FedAvg, stdev 2"]["numbers sent, thousands"]
    assert reporting.printed("flower-moon log")["MOON"]["round 5"] == 48.9  # a public re-run


def test_the_columns_that_fedproc_copied_are_those_of_moons_paper():
    """Table 2 on CIFAR-10 and CIFAR-100, table 3, and table 6 with MOON's mu 10; Tiny-ImageNet was run anew."""
    printed = reporting.printed
    for method, cells in printed("MOON Table 1").items():
        own = printed("FedProc Table 2")[method]
        assert [own[c] == cells[c] for c in ("CIFAR-10", "CIFAR-100")] == [True, True]
        assert own["Tiny-ImageNet"] != cells["Tiny-Imagenet"]
        assert printed("FedProc Table 3")[method] == printed("MOON Table 4")[method]
    for method, cells in printed("MOON Table 3").items():
        if method not in ("MOON (mu=1)", "SOLO"):
            assert list(printed("FedProc Table 6")[method.replace(" (mu=10)", "")].values()) == list(cells.values()), method


def test_names_in_the_printed_tables_are_settings(names_of_settings):
    for number in {table.printed for table in project()[0].values() if table.printed}:
        lines = original(number)
        assert {name for line in lines.values() for name in line["settings"]} <= names_of_settings, number
        assert set(original(lines["", ""]["paper"])["", ""]["settings"]) <= names_of_settings
        assert {column for row, column in lines if not row and column} <= {column for row, column in lines if row}


# --- what FedProto's tables measure -----------------------------------------------------------------------------------


def test_numbers_sent_are_those_counted_by_hand():
    """A run as it is recorded, by the measure, against the sizes of what the paper says is sent."""
    from fednb.papers.fedproto import METHODS as known

    small = {"dataset": "digits", "partition": "n-way-k-shot", "num_rounds": 2, "seed": 1234}
    network = models.build("digits-cnn", 10, channels=1, side=8, projection_head=False, seed=0)
    width, everything = network.classifier.in_features, models.num_parameters(network)
    body = sum(p.numel() for name, p in network.named_parameters() if name.startswith("encoder") and "fc" not in name)
    read = {}
    for method in ("FedProto", "FedAvg", "FedPer", "Local"):
        chosen = settings.resolve(known, method=method, **small)
        read[method] = 1000 * measure("up_numbers").read(runner.run(chosen, known, workers=1), None)
        parts = build.divide(chosen, build.load_dataset("digits"))[0]
    labels = build.load_dataset("digits").labels.numpy()
    assert read["FedProto"] == pytest.approx(
        sum(len(np.unique(labels[part])) for part in parts) * (width + 1)
    )  # and a label
    assert read["FedAvg"] == pytest.approx(len(parts) * (everything + 1))  # and how many images it has
    assert read["FedPer"] == pytest.approx(len(parts) * (body + 1))
    assert read["Local"] == pytest.approx(len(parts))


def test_read_outs_and_spread_have_curves_of_their_own():
    """Each from its own entry of a record."""
    final = {"accuracy": 1.0, "accuracy/prototype": 2.0, "accuracy/local classes": 3.0, "accuracy_std": 4.0}
    for name, value in {"accuracy/prototype": 2.0, "accuracy/local classes": 3.0, "accuracy_std": 4.0}.items():
        assert measure(name).read({"final": final}, None) == value
    assert measure("accuracy/prototype").read({"final": {"accuracy": 1.0}}, None) is None
    table = project()[0]["fedproto-2-prototype"]
    one = replace(table.jobs[0], path=ledger.path(table.jobs[0].settings))
    record(one, final=final, metrics={"round": [1, 2], "accuracy": [9.0, 1.0], "accuracy/prototype": [8.0, 2.0]})
    (line, *_) = reporting.curves(table, ledger=ledger.load()).lines
    assert list(line.get_ydata()) == [8.0, 2.0]
