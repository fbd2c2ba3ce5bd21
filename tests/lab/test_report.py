"""Tables: every measure by hand, nothing hidden (deviations, diverged, stale), pages, curves."""

import math
from dataclasses import replace

import pytest
from made_up import job, lead, record, recorded, table

from fednb import records as ledger
from fednb.errors import ReportError
from fednb_lab import figures, tables, words
from fednb_lab.cells import Choice, cells_of
from fednb_lab.measures import measure
from fednb_lab.sweeps import Axis

OFFICE = ("Caltech", "Amazon", "Webcam", "DSLR")
PRINTED = (62.5, 83.16, 72.41, 53.33)  # FedAvg in FedPLCC's table III; the mean is 67.85
AVERAGE = [10.0, 30.0, 20.0, 25.0]  # reaches its final 25 in round 2


@pytest.fixture(autouse=True)
def folder():
    """A ledger of its own for each test."""
    ledger.runs_folder().mkdir(parents=True)


def only(table):
    (cell,) = cells_of(table)
    return cell


def page(table, **more):
    return tables.table_in_full(table, cells_of(table), "../runs", **more)


def deviations(cell):
    """As records have them: there values are texts."""
    return list(map(str, cell.deviations))


def line(text, row):
    """The cells of a row in a table in Markdown, by their columns."""
    lines = [[part.strip() for part in x.strip("|").split("|")] for x in text.splitlines()]
    head, found = (next(x for x in lines if x[0] == start) for start in ("method", row))
    return dict(zip(head, found, strict=True))


def values(table):
    return [cell.values for cell in cells_of(table)]


def test_a_cell_holds_printed_and_measured_values():
    c = only(recorded(66.0, 67.0, 68.0))
    assert (c.row, c.column, c.expected, c.deviations) == ("FedAvg", "CIFAR-10", 3, ())
    assert (c.printed, c.printed_cell.std) == (66.3, 0.5)
    assert (c.mean, c.values, c.seeds) == (67.0, (66.0, 67.0, 68.0), (0, 1, 2))
    assert c.half_width == pytest.approx(4.30265273 / math.sqrt(3)) and c.spread is None  # ddof 1
    # clients have a spread of their own, in a column of its own
    for seed, accuracy in enumerate((46.0, 48.0)):
        record(job("SOLO", seed), accuracy, final={"accuracy_std": 5.0 + seed})
    told = line(page(table(job("SOLO"), job("SOLO", 1))), "SOLO")
    assert told["measured"] == "(46.0, 48.0)"
    assert (told["over clients"], told["paper's ±"]) == ("5.5", "5.1")


def test_other_settings_and_data_are_told_once():
    t = recorded(66.3, 66.3, 66.3, num_rounds=20, local_epochs=1)
    assert "- Reduced: 20 rounds instead of 100, 1 local epoch instead of 10.\n" in page(t)
    solo = recorded(46.0, method="SOLO", num_rounds=1, local_epochs=100).jobs[0]
    told = "20 rounds instead of 100, 1 local epoch instead of 10 (FedAvg); 100 local epochs instead of 300 (SOLO)"
    assert f"- Reduced: {told}.\n" in page(table(*t.jobs, solo))
    for one in (full := recorded(66.3, 66.3, 66.3)).jobs:
        record(one, dataset={"note": "re-encoded as JPEG", "remark": "5 images twice"})
    assert "- Of the data: 5 images twice.\n" in page(full)
    assert "- Not the published data: re-encoded as JPEG.\n" in page(full)


def test_what_does_not_count_is_shown():
    t = recorded(66.0, 66.3, 66.6, None, 50.0)
    path = record(t.jobs[4], status="failed")
    assert only(t).values == (66.0, 66.3, 66.6)
    assert only(t).statuses == ("finished",) * 3 + ("diverged", "failed")
    assert "[3 (diverged)](" in page(t) and f"[4 (failed)](../runs/{path.name})" in page(t)
    record(t.jobs[0], 10.0, version=ledger.RESULTS_VERSION - 1)
    assert (only(t).values, only(t).stale, only(t).expected) == ((66.3, 66.6), 1, 5)
    assert "Stale records, of an older results version, which do not count: 1." in page(t)
    path.write_text("{")
    with pytest.raises(ledger.RunError, match="is no run record"):
        cells_of(t)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"printed": "MOONE Table 1"}, r"no printed table 'MOONE Table 1': did you mean"),
        ({"jobs": (job("FedAvgM"),)}, r"MOON Table 1 has no cell FedAvgM \| CIFAR-10 .* MOON \| "),
        ({"measure": "loss"}, r"unknown measure 'loss': known are accuracy, .*, accuracy in DOM"),
        ({"measure": "lead"}, "the measure 'lead' needs a baseline; name it in the table"),
        ({"target": 60.0}, "the measure 'accuracy' does not read a target; leave it out"),
        ({"baseline": "FedAvg", "jobs": (job(), job(lr=0.5))}, "has several runs with one seed"),
    ],
)
def test_descriptions_that_do_not_fit(changes, message):
    with pytest.raises(ReportError, match=message):
        cells_of(replace(table(job()), **changes))


def test_settings_of_the_printed_table_are_no_deviations():
    labels = {50: "parties=50,rounds=200", 100: "parties=100,rounds=500"}
    half = {n: label.replace("200", "100").replace("500", "250") for n, label in labels.items()}

    def deviates(measure="accuracy", **given):
        columns = {"columns": "num_clients", "labels": labels if measure == "accuracy" else half}
        one = job(dataset="cifar100", **given)
        return deviations(only(table(one, measure=measure, printed="MOON Table 3", **columns)))

    assert deviates(num_clients=100, num_rounds=500, participation=0.2) == []
    assert deviates(num_clients=100, num_rounds=500) == ["participation 1.0 instead of 0.2"]
    assert deviates(num_clients=50) == ["num_rounds 100 instead of 200"]
    assert deviates("halfway", num_clients=50, num_rounds=200) == []
    assert deviates("halfway", num_clients=50, num_rounds=100) == ["num_rounds 50 instead of 100"]
    # where no half is printed, the run's own length counts
    t = table(job(num_rounds=20), measure="halfway")
    assert deviations(only(t)) == ["num_rounds 20 instead of 100"]
    # what the paper varies is none, nor what a table of ours does
    labels = {0.1: "beta=0.1", 0.5: "beta=0.5"}
    jobs = [job(beta=b, dataset="cifar100") for b in labels]
    t = table(*jobs, columns="beta", labels=labels, printed="MOON Table 4")
    cells = [*cells_of(t), *cells_of(replace(t, printed=None))]
    assert [cell.deviations for cell in cells] == [()] * 4
    # nor that of which the paper says nothing
    t = table(*recorded(66.6, method="SCAFFOLD", niid_bench=True).jobs)
    assert only(t).deviations == ()
    assert deviations(only(replace(t, printed=None))) == ["niid_bench True instead of False"]


def tuned(accuracies):
    """As in MOON's table 10, which tries 0.1, 0.7 and 0.9."""
    jobs = []
    for momentum, of_seeds in accuracies.items():
        jobs += recorded(*of_seeds, method="FedAvgM", server_momentum=momentum).jobs
    axes = {"rows": Axis("dataset", {"cifar10": "CIFAR-10"}), "columns": "method"}
    return table(*jobs, **axes, printed="MOON Table 10", best_of="server_momentum")


def test_the_best_of_a_tuned_parameter_makes_the_cell():
    tried = {0.1: (60.0, 60.0, 60.0), 0.7: (67.0, 67.5, 68.0), 0.9: (68.4, 10.0, 60.0)}
    best = only(t := tuned(tried))
    assert (best.row, best.mean, best.printed) == ("CIFAR-10", 67.5, 67.1)
    assert best.expected == len(best.paths) == 3
    assert best.choice == Choice("server_momentum", 0.7, tried=3) and best.deviations == ()
    assert "- Tuned on the test set: server momentum 0.7, the best of 3 values.\n" in page(t)
    # else they are not averaged
    first, second, _ = cells_of(replace(t, best_of=None, printed=None))
    assert (first.row, first.mean) == ("CIFAR-10, server momentum 0.1", 60.0)
    assert (second.row, second.mean) == ("CIFAR-10, server momentum 0.7", 67.5)


@pytest.mark.parametrize(
    ("accuracies", "deviation"),
    [
        ({0.1: (60.0,), 0.7: (67.0,), 0.9: (None,)}, "the best of 2 instead of 3 values"),
        ({0.1: (60.0,)}, "0.1 alone instead of 3 values"),
        ({0.2: (None,)}, "0.2 instead of one of 0.1, 0.7, 0.9"),
    ],
)
def test_less_tuning_than_the_papers_is_a_deviation(accuracies, deviation):
    t = tuned(accuracies)
    assert deviations(only(t)) == [f"server_momentum {deviation}"]
    assert f"server momentum {deviation}" in page(t)
    assert ("Tuned on the test set" in page(t)) == (len(accuracies) > 1)


def against_baseline(measure, curves):
    """A table of FedAvg (the baseline) and FedProx: per method a curve per seed, or None for a run that is not recorded."""
    jobs = []
    for method, of_seeds in curves.items():
        for seed, curve in enumerate(of_seeds):
            jobs.append(job(method, seed, num_rounds=4))
            if curve:
                record(jobs[-1], curve=curve)
    return table(*jobs, printed=None, measure=measure, baseline="FedAvg")


def test_rounds_to_the_baselines_accuracy_and_speedup():
    curves = {"FedAvg": [AVERAGE], "FedProx": [[10.0, 20.0, 26.0, 20.0]]}
    assert values(against_baseline("rounds_to_baseline", curves)) == [(2.0,), (3.0,)]
    speedup = against_baseline("speedup", curves)
    assert values(speedup) == [(2.0,), (pytest.approx(4 / 3),)]
    text = page(speedup)
    assert line(text, "FedProx")["measured"] == "1.33"
    assert "- The baseline is FedAvg." in text and "same rule" in text
    low, high, same = [5.0, 5.0, 5.0, 10.0], [5.0, 5.0, 5.0, 40.0], [5.0, 12.0, 30.0, 41.0]
    curves = {"FedAvg": [low, high, None], "FedProx": [same, same, same]}
    t = against_baseline("rounds_to_baseline", curves)
    # each seed has the baseline of its own, and without one no value
    assert values(t)[1] == (2.0, 4.0)
    assert "[2 (without baseline)](" in line(page(t), "FedProx")["seeds"]


def test_what_is_never_reached_is_shown():
    never, slow, fast = [10.0, 10.0, 10.0, 24.9], [1.0, 1.0, 1.0, 25.0], [26.0, 1.0, 1.0, 1.0]

    def shown(measure, *curves):
        t = against_baseline(measure, {"FedAvg": [AVERAGE] * len(curves), "FedProx": list(curves)})
        return line(page(t), "FedProx")["measured"]

    assert shown("rounds_to_baseline", never, slow, fast) == "4 (1 to never)"
    assert shown("rounds_to_baseline", never, fast) == "(never, 1)"
    assert shown("speedup", never) == "never"
    assert shown("speedup", never, slow, fast) == "1.00 (never to 4.00)"
    t = against_baseline("rounds_to_baseline", {"FedAvg": [AVERAGE], "FedProx": [never]})
    assert lead(t, "FedProx", "FedAvg") == "not reached by every run"


def test_rounds_and_bytes_to_a_target():
    jobs = [job(seed=seed, num_rounds=4) for seed in range(3)]
    sent = {"down_bytes": [1e6, 2e6, 4e6, 8e6], "up_bytes": [5e5] * 4, "up_numbers": [4, 4, 5000]}
    curves = ([10.0, 61.0, 50.0, 70.0], [60.0] * 4, [10.0, 59.9, 50.0, 59.0])
    for one, curve in zip(jobs, curves, strict=True):
        record(one, curve=curve, metrics=sent)
    columns = {"MB": "bytes_to_target", "rounds": "rounds_to_target", "numbers": "up_numbers"}
    t = table(*jobs, printed=None, target=60.0, columns=columns)
    assert values(t) == [(4.0, 1.5, math.inf), (2, 1, math.inf), (5.0, 5.0, 5.0)]
    assert line(page(t), "FedAvg")["MB"] == "4.00 (1.50 to never)"
    assert "- The target is 60 %." in page(t)


LOGGED = {"z_norm": [9, 8, 7], "contrast_gradient": [0, 1, 6], "cross_entropy_gradient": [5, 4, 3]}
LOGGED = {"metrics": {f"loss/{name}": curve for name, curve in LOGGED.items()}}
OWN = {"clients/own mix": [50, None, 90], "clients": [1], "groups": {"a": 4, "b": 3}}
# of personal models on everybody's images there are none on their own
EVERYBODYS = {"final": {"clients": [50, 90]}}
COUNTED = {"final": {"clients": [50, 0], "clients/prototype": [100, 100]}}


# a record without an entry has no such number
@pytest.mark.parametrize(
    ("content", "name", "expected"),
    [
        (LOGGED, "z_norm", 7),
        (LOGGED, "z_norm/second round", 8),
        (LOGGED, "gradient_ratio", 2),
        (LOGGED, "gradient_ratio/second round", 0.25),
        ({"metrics": {}}, "gradient_ratio", None),
        ({"metrics": {"held_bytes": [1, 2500]}}, "client_memory", 2.5),
        ({"metrics": {}}, "client_memory", None),
        ({"final": OWN}, "client mean", 70),
        ({"final": OWN}, "worst client", 50),
        ({"final": OWN}, "worst domain", 3),
        ({"final": OWN}, "accuracy in a", 4),
        ({"final": OWN}, "validation", None),
        (EVERYBODYS, "client mean", None),
        (EVERYBODYS | {"partition": {"test_sizes": [3, 3]}}, "client mean", 70),
        # FedProto's code counts hits and images on: 1 of 2, 3 of 4; then 3 of 5, 4 of 6
        (COUNTED | {"partition": {"test_sizes": [2, 1]}}, "accuracy/counted on", 425 / 6),
        (COUNTED | {"partition": {"test_sizes": [2, 1]}}, "accuracy_std/counted on", 25 / 6),
        (COUNTED, "accuracy/counted on", None),
    ],
)
def test_what_measures_read(content, name, expected):
    value = measure(name).read(content, None)
    assert value == (None if expected is None else pytest.approx(expected))


def test_rounds_that_were_not_evaluated():
    curve = [None, 20.0, None, 40.0, 30.0]
    record(one := job(num_rounds=5, evaluate_every=2), 30.0, curve=curve)
    t = table(one, printed=None)
    (drawn,) = figures.curves_of(cells_of(t))
    assert (drawn["rounds"], drawn["values"]) == ([1, 2, 3, 4, 5], [curve])
    assert deviations(only(t)) == ["num_rounds 5 instead of 100"]
    assert only(replace(t, measure="halfway")).values == (20.0,)
    assert only(replace(t, measure="rounds_to_target", target=35)).values == (4.0,)
    record(odd := job(num_rounds=5, evaluate_every=5), 30.0, curve=[None] * 4 + [30.0])
    lacks = table(odd, printed=None, measure="halfway")
    assert only(lacks).statuses == ("not measured",)
    assert "0 (not measured)" in line(page(lacks), "FedAvg")["seeds"]


def test_seconds_are_medians_and_relative_on_both_sides():
    jobs = [job(m, num_rounds=3) for m in ("FedAvg", "FedProx")]
    # medians 10 and 12.5
    for one, seconds in zip(jobs, ([10.0, 10.0, 99.0], [0.1, 12.5, 12.5]), strict=True):
        record(one, metrics={"seconds": seconds}, device="A", workers=1)
    t = table(*jobs, printed="MOON Table 11", measure="seconds_ratio", baseline="FedAvg")
    average, prox = cells_of(t)
    assert (average.mean, average.printed) == (1.0, 1.0)
    assert (prox.mean, prox.printed) == (1.25, pytest.approx(340 / 330))
    assert words.printed(prox) == "1.03"
    for other in ({"device": "B"}, {"device": "A", "workers": 2}):
        record(jobs[1], **other)
        assert cells_of(t)[1].statuses == ("without baseline",)


def test_a_run_fills_a_row_of_domains():
    methods = ("FedAvg", "FedProx")
    jobs = [job(method, seed, dataset="office10") for method in methods for seed in range(3)]
    for one in jobs:  # FedAvg as printed, FedProx two points higher in each domain
        shift = 0.1 * (one.settings.seed - 1) + 2.0 * (one.settings.method != "FedAvg")
        groups = {name: accuracy + shift for name, accuracy in zip(OFFICE, PRINTED, strict=True)}
        record(one, sum(groups.values()) / 4, final={"groups": groups})
    columns = {name: f"accuracy in {name}" for name in OFFICE}
    columns |= {"Avg.": "accuracy", "Delta": "lead"}
    t = table(*jobs, columns=columns, printed="FedPLCC Table III", baseline="FedAvg")
    found = cells_of(t)
    assert [(c.row, c.column) for c in found] == [(m, c) for m in methods for c in columns]
    assert [c.mean for c in found[:6]] == pytest.approx([*PRINTED, 67.85, 0])
    assert [c.printed for c in found[6:]] == [54.46, 75.79, 86.21, 56.67, 68.282, 0.432]
    text = page(t)
    assert "\n| FedProx | printed | 54.5 | 75.8 | 86.2 | 56.7 | 68.3 | +0.4 |" in text
    here = next(x for x in text.splitlines() if x.startswith("| FedProx | measured |"))
    assert "| 64.5 ± 0.2 | 85.2 ± 0.2 |" in here and "| 69.8 ± 0.2 | +2.0 ± 0.0 |" in here
    assert here.count("](") == 3
    drawn = figures.curves_of(cells_of(t))[0]  # a run has one curve: the mean over its domains
    assert drawn["values"][1] == pytest.approx([67.85] * 100)
