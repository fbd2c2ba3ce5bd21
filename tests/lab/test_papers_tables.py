"""The papers' tables as sweeps: every printed cell has a run in the paper's settings, or a reason why it has none."""

from dataclasses import replace

from made_up import project, record

from fednb import records as ledger
from fednb import results
from fednb_lab import figures, words
from fednb_lab.cells import cells_of
from fednb_lab.measures import measure
from fednb_lab.printed import reported_table

SETS = ("CIFAR-10", "CIFAR-100", "Tiny-Imagenet")


def test_every_printed_result_stands_beside_a_run_in_the_papers_settings():
    tables, found = project()
    beside = {}
    for name, table in tables.items():
        for cell in found[name] if table.printed else ():
            if not cell.deviations:
                beside.setdefault(table.printed, set()).add((cell.label, cell.column))
    for number in {table.printed for table in tables.values() if table.printed}:
        others = ("rounds", "numbers sent, thousands")
        printed = {place for place in reported_table(number).cells if place[1] not in others}
        if number == "FedPLCC Table V":  # parts of the method: its rows say which lambda is 0
            parts = ("L_contra w/o, L_corr w/o", "L_contra w/, L_corr w/")
            printed = {(row, column) for row, column in printed if row in parts}
        assert printed <= beside[number], number
    for name, table in tables.items():
        if table.printed and name.endswith("-short"):  # and says so
            assert all(cell.deviations for cell in found[name]), name
            partial = reported_table(table.printed).about.partial
            assert partial or all(words.printed(cell) for cell in found[name]), name


def test_what_stands_beside_is_the_printed_number_in_the_measures_units():
    _, found = project()

    def texts(name):
        return {(cell.row, cell.column): words.printed(cell) for cell in found[name]}

    assert [text for (_, column), text in texts("fedssc-1").items()] == ["65.8", "68.6", "69.3"]
    assert list(texts("fedssc-1-rounds").values()) == ["> 100", "61", "41"]
    assert [texts("fedproc-5")["FedProc", column] for column in SETS[:2]] == ["1.39", "1.13"]
    rounds = texts("moon-2")
    assert [rounds["SCAFFOLD", f"{name} #rounds"] for name in SETS] == ["80", *["not reached"] * 2]
    speedup = texts("moon-2-speedup")
    assert [speedup[m, "CIFAR-100 speedup"] for m in ("FedAvg", "SCAFFOLD")] == ["1", "< 1"]
    by_place = {(cell.row, cell.column): cell for cell in found["fedproto-2-std"]}
    of_paper = reported_table("FedProto Table 2").cells["FedAvg, stdev 2", "n=3"]
    assert by_place["FedAvg, stdev 2", "n=3"].printed == of_paper.std
    numbers = {cell.row: cell.printed for cell in found["fedproto-2-numbers"]}
    of_paper = results.printed("FedProto Table 2")["FedAvg, stdev 2"]
    assert numbers["FedAvg, stdev 2"] == of_paper["numbers sent, thousands"]
    assert results.printed("flower-moon log")["MOON"]["round 5"] == 48.9  # a public re-run


def test_names_in_the_printed_tables_are_settings(names_of_settings):
    for number in {table.printed for table in project()[0].values() if table.printed}:
        reported = reported_table(number)
        of_paper = reported_table(reported.about.paper).about
        lines = [of_paper, reported.about, *reported.columns.values(), *reported.cells.values()]
        assert {name for line in lines for name in line.settings} <= names_of_settings, number
        assert reported.columns.keys() <= {column for _, column in reported.cells}


def test_read_outs_and_spread_have_curves_of_their_own():
    """Each from its own entry of a record."""
    names = ("accuracy", "accuracy/prototype", "accuracy/local classes", "accuracy_std")
    final = dict(zip(names, (1.0, 2.0, 3.0, 4.0), strict=True))
    assert [measure(name).read({"final": final}, None) for name in names] == list(final.values())
    table = project()[0]["fedproto-2-prototype"]
    one = replace(table.jobs[0], path=ledger.path(table.jobs[0].settings, ledger.runs_folder()))
    record(one, final=final, curve=[9.0, 1.0], metrics={"accuracy/prototype": [8.0, 2.0]})
    (curve, *_) = figures.curves_of(cells_of(table, ledger.load()))
    assert curve["values"] == [[8.0, 2.0]]
