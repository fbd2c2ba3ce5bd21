"""Tables: every verdict by hand, nothing hidden (deviations, diverged, stale), the same bytes from the same records."""

import math
import re
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from fednb.papers.foundations import METHODS
from made_up import job, record, recorded, table

from fednb import ROOT, evaluation, papers
from fednb import reporting as report
from fednb.__main__ import main
from fednb.experiments import ledger, settings, sweep
from fednb.reporting import plots, render, tables
from fednb.reporting.metrics import MEASURES

OFFICE = ("Caltech", "Amazon", "Webcam", "DSLR")
NOWHERE = Path("nowhere")
PRINTED = (62.5, 83.16, 72.41, 53.33)  # FedAvg in FedPLCC's table III; the mean is 67.85
AVERAGE = [10.0, 30.0, 20.0, 25.0]  # reaches its final 25 in round 2


@pytest.fixture(autouse=True)
def folder():
    """A ledger of its own for each test."""
    ledger.runs_folder().mkdir(parents=True)
    yield ledger.runs_folder()
    plt.close("all")


def only(table):
    (cell,) = report.cells_of(table)
    return cell


def page(table):
    return render.markdown(table, report.cells_of(table))


def cell(*values, printed=66.3, note="", spread=None, **more):
    runs = ({"dataset": {"note": note}, "final": {"accuracy_std": spread}},) * len(values)
    statuses = ("finished",) * len(values)
    return report.Cell("FedAvg", "CIFAR-10", printed, values=values, records=runs, statuses=statuses, **more)


# --- cells and verdicts -----------------------------------------------------------------------------------------------


# t(0.975, 2 degrees of freedom) = 4.3027; values m − d, m, m + d have the standard error d / sqrt(3): half width 2.4841 d
@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (cell(67.2, 67.3, 67.4), "reproduced"),  # one point
        (cell(67.3, 67.4, 67.5), "off by +1.1"),  # half width 0.248
        (cell(64.7, 64.8, 64.9), "off by -1.5"),
        (cell(67.5, 68.5, 69.5), "reproduced"),  # 2.2 away, half width 2.484
        (cell(67.8, 68.8, 69.8), "off by +2.5"),  # 2.5 away
        (cell(67.8, 68.8, 69.8, printed_std=0.1), "reproduced"),  # 2.584 allowed
        (cell(67.8, 68.8, 69.8, printed_std=5.1, spread=1.0), "off by +2.5"),  # a printed ± over clients is no error bar
        (cell(66.3, 66.3), "indicative"),
        (cell(66.3, 66.3, 66.3, deviations=("num_rounds 20 instead of 100",)), "reduced"),
        (cell(66.3, 66.3, 66.3, note="re-encoded as JPEG"), "reduced"),
        (cell(66.3, 66.3, 66.3, printed=None), ""),
        (cell(27.0, 27.0, 27.0, printed=27, measure="rounds_to_baseline"), ""),
        (cell(1.0, 1.0, 1.0, printed=1.02, measure="seconds_ratio"), ""),
        (cell(), "not run"),
        (replace(cell(), statuses=("failed", "diverged"), records=({"dataset": {}},) * 2), "diverged"),
    ],
)
def test_verdict(cell, expected):
    assert cell.verdict == expected


def test_a_cell_holds_printed_and_measured_values():
    c = only(recorded(66.0, 67.0, 68.0))
    assert (c.row, c.column, c.printed, c.printed_std) == ("FedAvg", "CIFAR-10", 66.3, 0.5)
    assert (c.mean, c.difference, c.std) == (67.0, pytest.approx(0.7), pytest.approx(math.sqrt(2 / 3)))  # ddof 0
    assert c.half == pytest.approx(4.30265273 / math.sqrt(3))
    assert (c.std_over, c.expected, c.seeds, c.deviations, c.verdict) == ("seeds", 3, (0, 1, 2), (), "reproduced")
    solo = job("SOLO")
    record(solo, 46.0, final={"accuracy_std": 5.5})
    assert (only(table(solo)).std, only(table(solo)).std_over) == (5.5, "clients")


def test_departures_are_told_and_never_judged():
    t = recorded(66.3, 66.3, 66.3, num_rounds=20, local_epochs=1)
    assert only(t).verdict == "reduced"
    assert "All runs: 20 rounds instead of 100, 1 local epoch instead of 10." in page(t)
    solo = recorded(46.0, method="SOLO", num_rounds=1, local_epochs=100).jobs[0]
    assert "FedAvg: 20 rounds instead of 100, 1 local epoch instead of 10." in page(table(*t.jobs, solo))
    assert "SOLO: 100 local epochs instead of 300." in page(table(*t.jobs, solo))
    domains = settings.resolve(METHODS, method="FedAvg", dataset="digits5", keep_last=False, test_per_domain=2000)
    told = ["2000 test images of each domain instead of all", "the last incomplete batch of an epoch dropped"]
    assert [render.in_words(text) for text in settings.deviations(domains)] == told
    for one in (full := recorded(66.3, 66.3, 66.3)).jobs:
        record(one, dataset={"note": "re-encoded as JPEG", "remark": "5 images twice"})
    assert only(full).verdict == "reduced" and "- All runs: 5 images twice." in page(full)
    assert "- All runs: data are not the published set (re-encoded as JPEG)." in page(full)


def test_what_does_not_count_is_shown():
    t = recorded(66.0, 66.3, 66.6, None, 50.0)
    path = record(t.jobs[4], status="failed")
    assert (only(t).values, only(t).statuses) == ((66.0, 66.3, 66.6), ("finished",) * 3 + ("diverged", "failed"))
    assert "5 of 5, 1 diverged, 1 failed" in page(t) and path.name in page(t)
    record(t.jobs[0], 10.0, version=ledger.RESULTS_VERSION - 1)
    assert (only(t).values, only(t).stale, only(t).expected) == ((66.3, 66.6), 1, 5)
    assert "Stale records, of an older results version, which do not count: 1." in page(t)
    assert tables.recorded(t, ledger.load()) == (3, 5)
    path.write_text("{")
    with pytest.raises(ledger.RunError, match="is no run record"):
        report.cells_of(t)


def test_runs_that_differ_in_more_than_the_seed_are_not_averaged():
    jobs = [one for m in (0.1, 0.9) for one in recorded(60.0 + m, 62.0 + m, method="FedAvgM", server_momentum=m).jobs]
    found = [(c.row, c.mean) for c in report.cells_of(table(*jobs, printed=None))]
    assert found == [("FedAvgM, server momentum 0.1", 61.1), ("FedAvgM, server momentum 0.9", 61.9)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"printed": "MOONE Table 1"}, r"no printed table 'MOONE Table 1': .* did you mean 'MOON Table 1'"),
        ({"columns": sweep.Axis("dataset", {})}, r"MOON Table 1 has no column 'cifar10'; it has CIFAR-10, CIFAR-100"),
        ({"jobs": (job("FedAvgM"),)}, r"MOON Table 1 has no row 'FedAvgM' with its settings; its rows: MOON, FedAvg"),
        ({"printed": "FedProto Table 2"}, r"no row 'FedAvg' with its settings"),
        ({"measure": "loss"}, r"unknown measure 'loss'; there are accuracy, .*, accuracy in DOMAIN"),
        ({"measure": "lead"}, "the measure 'lead' needs a baseline; name it in the table"),
        ({"target": 50.0}, "the measure 'accuracy' does not read a target; leave it out"),
        ({"baseline": "FedAvg", "jobs": (job(), job(lr=0.5))}, "the baseline 'FedAvg' has several runs with seed 0"),
    ],
)
def test_descriptions_that_do_not_fit(changes, message):
    with pytest.raises(report.ReportError, match=message):
        report.cells_of(replace(table(job()), **changes))


def test_settings_of_the_printed_table_are_no_deviations():
    labels = {50: "parties=50,rounds=200", 100: "parties=100,rounds=500"}
    half = {n: label.replace("200", "100").replace("500", "250") for n, label in labels.items()}

    def deviates(measure="accuracy", **given):
        options = {"columns": "num_clients", "printed": "MOON Table 3", "labels": labels if measure == "accuracy" else half}
        return only(table(job(dataset="cifar100", **given), measure=measure, **options)).deviations

    assert deviates(num_clients=100, num_rounds=500, participation=0.2) == ()
    assert deviates(num_clients=100, num_rounds=500) == ("participation 1.0 instead of 0.2",)
    assert deviates(num_clients=50) == ("num_rounds 100 instead of 200",)
    assert deviates("halfway", num_clients=50, num_rounds=200) == ()
    assert deviates("halfway", num_clients=50, num_rounds=100) == ("num_rounds 50 instead of 100",)
    labels = {0.1: "beta=0.1", 0.5: "beta=0.5"}  # what the paper varies is none
    t = table(*(job(beta=b, dataset="cifar100") for b in labels), columns="beta", labels=labels, printed="MOON Table 4")
    assert [c.deviations for c in report.cells_of(t)] == [(), ()]
    assert [c.deviations for c in report.cells_of(replace(t, printed=None))] == [("beta 0.1 instead of 0.5",), ()]
    t = table(*recorded(66.6, method="SCAFFOLD", niid_bench=True).jobs)  # of which the paper says nothing
    assert (only(t).deviations, only(t).not_stated) == ((), ("niid_bench True",))
    assert "- All runs: niid bench True, of which the paper says nothing." in page(t)
    assert only(replace(t, printed=None)).deviations == ("niid_bench True instead of False",)


def test_the_best_of_a_tuned_parameter_makes_the_cell():
    def tuned(accuracies):  # as in MOON's table 10
        jobs = [
            one for b, values in accuracies.items() for one in recorded(*values, method="FedAvgM", server_momentum=b).jobs
        ]
        rows = sweep.Axis("dataset", {"cifar10": "CIFAR-10"})
        return table(*jobs, rows=rows, columns="method", printed="MOON Table 10", best_of="server_momentum")

    t = tuned({0.1: (60.0, 60.0, 60.0), 0.7: (67.0, 67.5, 68.0), 0.9: (68.4, 10.0, 60.0)})
    assert (only(t).row, only(t).mean, only(t).expected, only(t).printed) == ("CIFAR-10", 67.5, 3, 67.1)
    assert (only(t).choice, only(t).verdict, len(only(t).paths)) == (("server_momentum", 0.7, 3, 3), "reproduced", 3)
    assert "server momentum 0.7 is shown, the best of 3 values, chosen on the test set, as in the paper." in page(t)
    t = tuned({0.1: (60.0, 60.0, 60.0), 0.7: (67.0, 67.5, 68.0), 0.9: (None, None, None)})
    assert (only(t).choice, only(t).verdict) == (("server_momentum", 0.7, 2, 3), "reduced")
    assert only(t).deviations == ("server_momentum chosen from 2 instead of 3 values",)
    assert "the best of 2 values (of 3; the others are not there)" in page(t)
    assert only(tuned({0.2: (None,)})).deviations == ("server_momentum 0.2 instead of one of 0.1, 0.7, 0.9",)


# --- measures ---------------------------------------------------------------------------------------------------------


def against_baseline(measure, curves):
    """A table of FedAvg (the baseline) and FedProx: per method a curve per seed, or None for a run that is not recorded."""
    jobs = [(job(method, i, num_rounds=4), curve) for method, of in curves.items() for i, curve in enumerate(of)]
    for one, curve in jobs:
        if curve:
            record(one, curve[-1], curve=curve)
    return table(*(one for one, _ in jobs), printed=None, measure=measure, baseline="FedAvg")


def test_rounds_to_the_baselines_accuracy_and_speedup():
    curves = {"FedAvg": [AVERAGE], "FedProx": [[10.0, 20.0, 26.0, 20.0]]}
    assert [c.values for c in report.cells_of(against_baseline("rounds_to_baseline", curves))] == [(2.0,), (3.0,)]
    assert [c.mean for c in report.cells_of(against_baseline("speedup", curves))] == [2.0, pytest.approx(4 / 3)]
    text = page(against_baseline("speedup", curves))
    assert "| FedProx | 1.33 | 1 of 1 |" in text and "- The baseline is FedAvg." in text and "held to the same rule" in text
    low, high, same = [5.0, 5.0, 5.0, 10.0], [5.0, 5.0, 5.0, 40.0], [5.0, 12.0, 30.0, 41.0]
    t = against_baseline("rounds_to_baseline", {"FedAvg": [low, high, None], "FedProx": [same, same, same]})
    assert report.cells_of(t)[1].values == (2.0, 4.0)  # each seed has the baseline of its own, and without one no value
    assert report.cells_of(t)[1].statuses == ("finished", "finished", "without baseline")
    assert "3 of 3, 1 without baseline" in page(t)


def test_what_is_never_reached_is_shown():
    never, slow, fast = [10.0, 10.0, 10.0, 24.9], [1.0, 1.0, 1.0, 25.0], [26.0, 1.0, 1.0, 1.0]

    def shown(measure, *curves):
        t = against_baseline(measure, {"FedAvg": [AVERAGE] * len(curves), "FedProx": list(curves)})
        return next(line for line in page(t).splitlines() if line.startswith("| FedProx")).split(" | ")[1]

    assert shown("rounds_to_baseline", never, slow, fast) == "4 (1 to > 4)"
    assert shown("rounds_to_baseline", never, fast) == "> 4 (1 to > 4)"  # of two the worse
    assert shown("speedup", never) == "< 1.00"
    assert shown("speedup", never, slow, fast) == "1.00 (< 1.00 to 4.00)"
    t = against_baseline("rounds_to_baseline", {"FedAvg": [AVERAGE], "FedProx": [never]})
    assert [c.mean for c in report.cells_of(t)] == [2.0, math.inf] and "- FedProx: 1 of 1 run never got there." in page(t)
    with pytest.raises(report.ReportError, match="cannot be paired: a run never got there"):
        report.paired(t, "FedProx", "FedAvg")


def test_rounds_and_bytes_to_a_target():
    jobs = [job(seed=seed, num_rounds=4) for seed in range(3)]
    for one, curve in zip(jobs, ([10.0, 61.0, 50.0, 70.0], [60.0] * 4, [10.0, 59.9, 50.0, 59.0]), strict=True):
        sent = {"down_bytes": [1e6, 2e6, 4e6, 8e6], "up_bytes": [5e5, 5e5, 5e5, 5e5]}
        record(one, curve[-1], metrics=sent | {"accuracy": curve})
    t = table(*jobs, printed=None, target=60.0, columns={"MB": "bytes_to_target", "rounds": "rounds_to_target"})
    megabytes, rounds = report.cells_of(t)
    assert (megabytes.values, rounds.values) == ((4.0, 1.5, math.inf), (2, 1, math.inf))
    assert (megabytes.mean, megabytes.bounds, rounds.bounds) == (4.0, (17.0,), (4.0,))
    assert "4.00 (1.50 to > 17.00)" in page(t) and "- The target is 60 %." in page(t)
    assert plots.svg(t, report.cells_of(t), NOWHERE) is None  # its curves are another table's


def test_rounds_that_were_not_evaluated():
    curve = [None, 20.0, None, 40.0, 30.0]
    record(one := job(num_rounds=5, evaluate_every=2), 30.0, curve=curve)
    assert (evaluation.best(curve), evaluation.mean_of_last(curve), evaluation.mean_of_last(curve, 2)) == (40.0, 30.0, 35.0)
    assert [evaluation.rounds_to(curve, target) for target in (20, 21, 41)] == [2, 4, None]
    t = table(one, printed=None)
    assert list(report.curves(t, ledger=ledger.load()).lines[0].get_xydata().flat) == [2, 20, 4, 40, 5, 30]
    assert only(t).deviations == ("num_rounds 5 instead of 100",)
    assert only(replace(t, measure="halfway")).values == (20.0,)
    assert only(replace(t, measure="rounds_to_target", target=35)).values == (4.0,)
    record(odd := job(num_rounds=5, evaluate_every=5), 30.0, curve=[None] * 4 + [30.0])
    with pytest.raises(report.ReportError, match=r"json has no halfway: it was evaluated after every 5 rounds and the last"):
        report.cells_of(table(odd, printed=None, measure="halfway"))
    level = report.curves(table(odd, printed=None), ledger=ledger.load()).lines[0]
    assert (set(level.get_ydata()), level.get_label()) == ({30.0}, "FedAvg (after 5 rounds)")


def test_seconds_are_medians_and_relative_on_both_sides():
    jobs = [job(m, num_rounds=3) for m in ("FedAvg", "FedProx")]
    for one, seconds in zip(jobs, ([10.0, 10.0, 99.0], [0.1, 12.5, 12.5]), strict=True):  # medians 10 and 12.5
        record(one, metrics={"seconds": seconds}, device="A", workers=1)
    t = table(*jobs, printed="MOON Table 11", measure="seconds_ratio", baseline="FedAvg")
    assert [(c.mean, c.printed) for c in report.cells_of(t)] == [(1.0, 1.0), (1.25, pytest.approx(340 / 330))]
    assert "| FedProx | 1.03 | 1.25 | 1 of 1 | reduced |" in page(t)
    for other in ({"device": "B"}, {"device": "A", "workers": 2}):
        record(jobs[1], **other)
        assert report.cells_of(t)[1].statuses == ("without baseline",)


def test_what_a_record_may_lack_is_told():
    final = {"clients/own mix": [50.0, 90.0, 70.0], "clients": [1.0], "groups": {"a": 4.0, "b": 3.0}, "validation": 48.0}
    record(own := job(), final=final)
    columns = {"mean": "client mean", "worst": "worst client", "domain": "worst domain", "held": "client_memory"}
    t = table(own, printed=None, columns=columns | {"validation": "validation"})
    assert [c.mean for c in report.cells_of(t)] == [70.0, 50.0, 3.0, None, 48.0]
    assert "| FedAvg | here | 70.0 | 50.0 | 3.0 |  | 48.0 | 1 of 1; 1 of 1, 1 not measured |" in page(t)
    record(shared := job(dataset="mnist", partition="n-way-k-shot"), final={"clients": [50.0, 90.0]})
    t = table(shared, printed=None, columns={"mean": "client mean"})
    assert only(t).verdict == "not measured"  # of personal models on everybody's images: not their own
    record(shared, final={"clients": [50.0, 90.0]}, partition={"test_sizes": [3, 3]})
    assert only(t).mean == 70.0
    with pytest.raises(report.ReportError, match="has no validation"):
        report.cells_of(table(shared, printed=None, measure="validation"))
    final = {"clients": [50.0, 0.0], "clients/prototype": [100.0, 100.0]}
    counted = MEASURES["accuracy/counted on"].read({"final": final, "partition": {"test_sizes": [2, 1]}}, None)
    assert counted == pytest.approx((75 + 100 * 4 / 6) / 2)  # hits and images: 1 of 2, 3 of 4; then 3 of 5, 4 of 6


def in_domains(*jobs, ahead=2.0):
    """A table of runs in Office-10's domains: FedAvg as printed, other methods so many points higher in each domain."""
    for one in jobs:
        shift = 0.1 * (one.settings.seed - 1) + (ahead if one.settings.method != "FedAvg" else 0)
        groups = {name: accuracy + shift for name, accuracy in zip(OFFICE, PRINTED, strict=True)}
        record(one, sum(groups.values()) / 4, final={"groups": groups})
    measures = {name: f"accuracy in {name}" for name in OFFICE} | {"Avg.": "accuracy", "Delta": "lead"}
    return table(*jobs, columns=measures, printed="FedPLCC Table III", baseline="FedAvg")


def test_a_run_fills_a_row_of_domains():
    t = in_domains(*(job(method, seed, dataset="office10") for method in ("FedAvg", "FedProx") for seed in range(3)))
    found = report.cells_of(t)
    assert [(c.row, c.column) for c in found] == [(m, c) for m in ("FedAvg", "FedProx") for c in (*OFFICE, "Avg.", "Delta")]
    average, prox = found[:6], found[6:]
    assert [c.mean for c in average] == pytest.approx([*PRINTED, 67.85, 0])
    assert [c.printed for c in prox] == [54.46, 75.79, 86.21, 56.67, 68.282, 0.432]
    assert [c.verdict for c in average] == ["reproduced"] * 5 + [""]
    # half width 2.484 times 0.1: one point is the rule
    assert [c.verdict for c in prox] == ["off by +10.0", "off by +9.4", "off by -11.8", "off by -1.3", "off by +1.6", ""]
    lines = page(t).splitlines()
    assert lines[2].startswith(
        "Caltech, Amazon, Webcam, DSLR: test accuracy in that domain after the last round, in percent;"
    )
    assert "| method |  | Caltech | Amazon | Webcam | DSLR | Avg. | Delta | seeds | records |" in lines
    assert "| FedProx | paper | 54.5 | 75.8 | 86.2 | 56.7 | 68.3 | +0.4 |  |  |" in lines
    here = next(line for line in lines if line.startswith("| FedAvg | here | 62.5 ± 0.1 | 83.2 ± 0.1 |"))
    assert "| 67.8 ± 0.1 | +0.0 ± 0.0 | 3 of 3 | [0](../runs/" in here and here.count("](") == 3
    assert report.paired(t, "FedProx", "FedAvg", "Webcam") == (pytest.approx(2.0), pytest.approx(0, abs=1e-9), 3)
    with pytest.raises(
        report.ReportError, match=r"several columns; choose one of Caltech, Amazon, Webcam, DSLR, Avg\., Delta"
    ):
        report.lead(t, "FedProx", "FedAvg")
    ax = report.curves(t, ledger=ledger.load())  # a run has one curve, by its mean
    assert list(ax.lines[0].get_ydata()) == pytest.approx([67.85] * 100)
    with pytest.raises(report.ReportError, match="measures of their own"):
        report.against(t, "mu", ledger=ledger.load())


def test_a_domain_row_that_diverged_or_lacks_its_baseline_counts_each_run_once(folder):
    t = in_domains(*(job(method, dataset="office10") for method in ("FedAvg", "FedProx")))
    record(t.jobs[0], status="diverged", curve=[10.0, None])
    average, prox = (report.cells_of(t)[i : i + 6] for i in (0, 6))
    assert [c.verdict for c in average] == ["diverged"] * 6
    assert [c.verdict for c in prox] == ["indicative"] * 5 + ["without baseline"]
    assert "| FedAvg | here |  |  |  |  |  |  | 1 of 1, 1 diverged | [0](" in page(t)
    for path in folder.glob("*.json"):
        path.unlink()
    assert "- Not run: 2 of 2 rows (2 runs, tier hours-gpu)." in page(t)


# --- pages ------------------------------------------------------------------------------------------------------------


def test_a_table_for_readers_leads_to_its_records_and_to_the_lines_that_make_them_again(folder):
    t = recorded(66.0, 66.5, 67.0)
    lines = page(t).splitlines()
    assert lines[0] == "**MOON, Table 1: CIFAR-10**"
    assert lines[4] == "| method | paper | here | seeds | difference | verdict | records |"  # one column label: left out
    assert lines[6].startswith(
        "| FedAvg | 66.3 ± 0.5 | 66.5 ± 0.4 | 3 of 3 | +0.2 | reproduced | [0](../runs/FedAvg-cifar10-"
    )
    assert "- The paper's ±: over 3 trials; for SOLO over parties." in lines
    assert lines[-1] == "Made by `python -m fednb sweep notebooks/sweeps/00_foundations.yaml --table moon-1`."
    links = re.findall(r"\[(\d)\]\(([^)]+)\)", lines[6])
    assert [seed for seed, _ in links] == ["0", "1", "2"]
    assert all((folder.parent / "tables" / link).resolve().exists() for _, link in links)
    text = render.markdown(t, report.cells_of(t), page=True)
    assert '## <a id="moon-1"></a>moon-1\n' in text and " [again](#moon-1-again-0) |\n" in text
    again = '- <a id="moon-1-again-0"></a>FedAvg: `python -m fednb run 00_foundations method=FedAvg dataset=cifar10 seed=0`'
    assert text.endswith(f"{again}, and with `seed=1`, `seed=2`\n")
    text = page(table(t.jobs[0], job("FedProx", dataset="digits"), printed=None, labels={}))
    assert "- Not run: 1 of 2 cells (1 runs, tier hours-gpu)." in text


def test_all_that_is_written_is_the_same_byte_for_byte(tmp_path, monkeypatch, capsys, folder):
    many = {"moon-1": recorded(66.0, 66.5, 67.0), "later": table(job("FedProx", 7), name="later", title="Later")}
    monkeypatch.setattr(sweep, "read", lambda path: many)
    out = folder.parent
    names = ["figures/moon-1.svg", "tables/00_foundations.md", "cells.csv", "REPORT.md"]
    written = report.write_all(report.read(tmp_path), out)
    assert written == [out / name for name in names]
    before = [path.read_bytes() for path in written]
    assert str(tmp_path).encode() not in b"".join(before)
    index = (out / "REPORT.md").read_text()
    assert (
        "| [moon-1](tables/00_foundations.md#moon-1) | MOON, Table 1: CIFAR-10 | 3 of 3 | 1 reproduced | [curves]" in index
    )
    assert "| [later](tables/00_foundations.md#later) | Later | 0 of 1 | not run (tier hours-gpu) |  |" in index
    (first, later) = pd.read_csv(out / "cells.csv").to_dict("records")
    assert (first["mean"], first["half"], first["verdict"]) == (66.5, pytest.approx(1.2420688), "reproduced")
    assert (first["values"], later["verdict"]) == ("66.0; 66.5; 67.0", "not run")
    written[0].unlink()
    with plt.rc_context({"lines.linewidth": 9, "svg.fonttype": "path"}):
        assert main(["report"]) == 0
    assert re.search(r"FedAvg +CIFAR-10 +66\.3 +66\.5 +0\.4 +reproduced +3", capsys.readouterr().out)
    assert [path.read_bytes() for path in written] == before
    (tmp_path / "file").write_text("")
    assert main(["report", "--out", str(tmp_path / "file")]) == 2 and f"{tmp_path / 'file'}" in capsys.readouterr().err
    for path in folder.glob("*.json"):
        path.unlink()
    report.write_all(report.read(tmp_path), out)
    assert not written[0].exists()


def test_show_and_overview_read_the_committed_ledger(tmp_path, monkeypatch):
    for root, accuracy in ((tmp_path / "repository" / "results", 66.3), (tmp_path / "elsewhere", 11.1)):
        monkeypatch.setenv("FEDNB_RUNS", str(root / "runs"))
        t = recorded(accuracy)
    asked = []
    monkeypatch.setattr(tables, "ROOT", tmp_path / "repository")
    monkeypatch.setattr(sweep, "read", lambda path: asked.append(path) or {"moon-1": t})
    text = report.show("moon-1").data
    assert asked == [papers.folder() / "sweeps" / "01_moon.yaml"]  # and no other file
    assert "66.3 | 1 of 1" in text and "11.1" not in text and "](../results/runs/" in text and str(tmp_path) not in text
    line = "| [moon-1](../results/tables/00_foundations.md#moon-1) | MOON, Table 1: CIFAR-10 | 1 of 1 | hours-gpu |"
    assert line in report.overview(["moon-1"]).data
    with pytest.raises(report.ReportError, match="no table 'moon-2'; the sweep files have moon-1"):
        report.show("moon-2")


def test_the_readme_tells_verdicts_and_where_they_come_from(tmp_path, monkeypatch):
    many = {"moon-1": recorded(66.0), "none": table(job("FedProx"), name="none")}
    monkeypatch.setattr(sweep, "read", lambda path: many)
    text = render.readme((ROOT / "README.md").read_text(), report.read(tmp_path))
    (line,) = [x for x in text.splitlines() if x.startswith("| [00_foundations]")]
    told = "[2 tables](results/tables/00_foundations.md)<br>cells with a printed number: 1 indicative, 1 not run |"
    assert line.endswith(f"| {told}")
    assert render.readme(text, report.read(tmp_path)) == text
    with pytest.raises(report.ReportError, match="lacks the marks"):
        render.readme("# FedNB", report.read(tmp_path))


# --- figures, and what tuning chose -----------------------------------------------------------------------------------


def test_curves():
    jobs = [job(seed=seed, num_rounds=3) for seed in range(2)] + [job("SOLO", num_rounds=1)]
    for one, curve in zip(jobs, ([10.0, 20.0, 30.0], [20.0, 40.0, None], [46.0]), strict=True):
        record(one, curve=curve, status="finished" if None not in curve else "diverged")
    ax = report.curves(table(*jobs), ledger=ledger.load())
    mean, level = ax.lines[0], next(line for line in ax.lines if line.get_linestyle() == "--")
    assert (list(mean.get_xydata().flat), set(level.get_ydata())) == ([1, 15, 2, 30, 3, 30], {46.0})
    assert {tuple(v) for v in ax.collections[0].get_paths()[0].vertices} >= {(1, 10), (1, 20), (2, 20), (2, 40)}
    assert {t.get_text() for t in ax.get_legend().get_texts()} == {"FedAvg", "SOLO (one round)"}
    assert report.curves(table(job("FedProx", 9)), ledger=ledger.load()).texts[0].get_text() == "nothing recorded"


def test_curves_of_one_column_keep_their_colours_and_many_can_be_told_apart():
    jobs = [job(m, dataset=d, num_rounds=2) for m in ("FedAvg", "FedProx") for d in ("cifar10", "digits")]
    many = [job("FedProx", mu=mu, num_rounds=3) for mu in range(1, 22)]
    for one in jobs[1:] + many:
        record(one, curve=[10.0, 20.0, 30.0][: one.settings.num_rounds])
    t = table(*jobs, printed=None)
    drawn = plots.points(report.cells_of(t))
    ax, both = (plots.draw(drawn, plt.figure().subplots(), column) for column in ("CIFAR-10", "digits"))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["FedProx"]
    assert ax.lines[0].get_color() == both.lines[1].get_color()
    assert len(report.curves(t, ledger=ledger.load()).lines) == 3
    assert plots.svg(t, report.cells_of(t), NOWHERE).count("communication round") == 2  # a panel per column
    ax = report.curves(table(*many[:11], rows="mu", printed=None), ledger=ledger.load())
    assert len({(line.get_color(), line.get_linestyle()) for line in ax.get_lines() if len(line.get_xdata()) == 3}) == 11
    t = table(*many, rows="mu", printed=None)
    assert plots.svg(t, report.cells_of(t), NOWHERE) is None  # of 21 curves nobody finds one


def test_against_a_parameter():
    jobs = [job(m, seed, local_epochs=e) for m in ("FedAvg", "FedProx") for e in (10, 5, 20) for seed in (0, 1)]
    for one in jobs:
        if one.settings.method == "FedAvg" or one.settings.local_epochs == 10:
            record(one, one.settings.local_epochs + 4.0 * one.settings.seed)
    t = table(*jobs, columns="local_epochs", labels={5: "E=5"}, printed=None)
    ax = report.against(t, "local_epochs", ledger=ledger.load())
    assert [text.get_text() for text in ax.get_xticklabels()] == ["E=5", "10", "20"]
    assert [list(line.get_xydata().flat) for line in ax.lines[:2]] == [[0, 7, 1, 12, 2, 22], [1, 12]]
    assert {tuple(v) for v in ax.collections[0].get_paths()[0].vertices} >= {(0, 5), (0, 9), (2, 20), (2, 24)}
    with pytest.raises(report.ReportError, match="do not differ in beta"):
        report.against(t, "beta", ledger=ledger.load())
    jobs = [job(seed=7), *(job("FedProx", seed=7, mu=mu) for mu in (5, 0.1))]  # along the rows, with printed values
    record(jobs[1], 60.0)
    rows = sweep.Axis("mu", {None: "mu=0 (FedAvg)", 0.1: "mu=0.1", 5.0: "mu=5"})
    ax = report.against(table(*jobs, rows=rows, printed="MOON Table 9"), "mu", ledger=ledger.load())
    assert [text.get_text() for text in ax.get_xticklabels()] == ["mu=0 (FedAvg)", "mu=0.1", "mu=5"]
    assert list(ax.lines[0].get_xydata().flat) == [2, 60.0] and ax.lines[1].get_fillstyle() == "none"
    assert sorted(map(tuple, ax.lines[1].get_xydata())) == [(0, 66.3), (1, 66.5), (2, 69.1)]
    jobs = [job(), *(job("FedAvgM", server_momentum=b) for b in (0.1, 0.9))]  # which tells runs of a row apart
    for one, accuracy in zip(jobs, (50.0, 60.0, 70.0), strict=True):
        record(one, accuracy)
    ax = report.against(table(*jobs, printed=None), "server_momentum", ledger=ledger.load())
    level = next(line for line in ax.lines if line.get_linestyle() == "--")
    assert (set(level.get_ydata()), level.get_label()) == ({50.0}, "FedAvg")
    assert [list(line.get_xydata().flat) for line in ax.lines if line.get_label() == "FedAvgM"] == [[0, 60, 1, 70]]


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
