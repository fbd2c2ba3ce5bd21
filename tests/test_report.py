"""Tables: every verdict by hand, nothing hidden (departures, diverged, stale), the same bytes from the same records."""

import json
import math
import re
from dataclasses import replace

import matplotlib.pyplot as plt
import pytest
from fednb.papers.foundations import METHODS

from fednb import ROOT, data, papers
from fednb import evaluation as evaluate
from fednb.experiments import ledger as records
from fednb.experiments import settings, sweep
from fednb.reporting import compare, figures, report
from fednb.reporting.measures import MEASURES
from fednb.reporting.words import departure

FULL = {"dataset": "cifar10"}
SHORT = {"dataset": "cifar10", "num_rounds": 20}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A ledger of its own for each test."""
    monkeypatch.setenv("FEDNB_RUNS", str(tmp_path / "runs"))
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def job(method="FedAvg", seed=0, **given):
    given = FULL | given
    resolved = settings.resolve(METHODS, method=method, seed=seed, **given)
    parameters = {"method": method, "seed": seed, **given}
    return sweep.Job("00_foundations", "t", parameters, resolved, records.path(resolved), "hours-gpu")


def record(
    job, accuracy=66.3, *, status="finished", version=records.RESULTS_VERSION, split="p", std=None, curve=None, **told
):
    """Write the record of a job as `runner.run` does, with what is ``told`` of its data; returns its path."""
    rounds = len(curve or []) or job.settings.num_rounds
    final = {"accuracy": accuracy, "best": accuracy + 1, "mean_of_last_5": accuracy - 1}
    final |= {} if std is None else {"accuracy_std": std}
    content = {
        "key": job.path.stem[-12:],
        "results_version": version,
        "status": status,
        "settings": job.settings.flat(),
        "departures": settings.departures(job.settings),
        "dataset": {"name": job.settings.dataset, "note": ""} | told,
        "final": final if status == "finished" else {},
        "seconds_per_round": 12.34,
        "commit": "abc",
        "partition": {"hash": f"{split}{job.settings.seed}"},
        "metrics": {
            "round": list(range(1, rounds + 1)),
            "accuracy": curve or [accuracy] * rounds,
            "seconds": [12.34] * rounds,
        },
    }
    records.write_atomically(job.path, json.dumps(content if status != "failed" else content | {"metrics": {}}))
    return job.path


def table(*jobs, rows="method", columns="dataset", labels=None, printed="MOON Table 1", **more):
    labels = {"cifar10": "CIFAR-10"} if labels is None else labels
    fields = {"name": "moon-1", "notebook": "00_foundations", "title": "MOON, Table 1: CIFAR-10", "printed": printed}
    rows = rows if isinstance(rows, sweep.Axis) else sweep.Axis(rows, {})
    fields |= {"rows": rows, "columns": sweep.Axis(columns, labels), "measure": "accuracy"}
    return sweep.Table(**fields | {"jobs": jobs, "file": "notebooks/sweeps/00_foundations.yaml"} | more)


def recorded(*accuracies, **given):
    """A table of one cell, FedAvg on CIFAR-10 (the paper prints 66.3 ± 0.5), with a run per accuracy."""
    jobs = [job(seed=seed, **given) for seed in range(len(accuracies))]
    for one, accuracy in zip(jobs, accuracies, strict=True):
        record(one, accuracy)
    return table(*jobs)


def only(table):
    (cell,) = report.cells(table)
    return cell


def cell(*values, printed=66.3, **more):
    return report.Cell("FedAvg", "CIFAR-10", printed, values=values, statuses=("finished",) * len(values), **more)


# t(0.975, 2 degrees of freedom) = 4.3027; values m − d, m, m + d have the standard error d / sqrt(3): half width 2.4841 d
@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (cell(67.2, 67.3, 67.4), "reproduced"),  # one point
        (cell(21.6, 21.6, 21.6, printed=20.6), "reproduced"),
        (cell(67.3, 67.4, 67.5), "off by +1.1"),  # half width 0.248
        (cell(64.7, 64.8, 64.9), "off by -1.5"),
        (cell(67.5, 68.5, 69.5), "reproduced"),  # 2.2 away, half width 2.484
        (cell(67.8, 68.8, 69.8), "off by +2.5"),  # 2.5 away
        (cell(67.8, 68.8, 69.8, printed_std=0.1), "reproduced"),  # 2.584 allowed
        (cell(67.8, 68.8, 69.8, printed_std=5.1, personal=True), "off by +2.5"),  # a printed ± over clients is no error bar
        (cell(66.3, 66.3), "indicative"),
        (cell(20.0), "indicative"),
        (cell(66.3, 66.3, 66.3, departures=["num_rounds 20 instead of 100"]), "reduced"),
        (cell(66.3, 66.3, 66.3, note="re-encoded as JPEG"), "reduced"),
        (cell(66.3, 66.3, 66.3, printed=None), ""),
        (cell(330.0, 330.0, 330.0, printed=330, measure="seconds_per_round"), ""),
        (cell(27.0, 27.0, 27.0, printed=27, measure="rounds_to_baseline"), ""),
        (cell(1.0, 1.0, 1.0, printed=1.02, measure="seconds_ratio"), ""),
        (cell(20.0, printed=27, measure="rounds_to_baseline", departures=["num_rounds 20 instead of 100"]), "reduced"),
        (replace(cell(), statuses=("without baseline",)), "without baseline"),
        (cell(54.6, 54.7, 54.8, printed=54.7, measure="halfway"), "reproduced"),
        (cell(), "not run"),
        (replace(cell(), statuses=("diverged", "diverged")), "diverged"),
        (replace(cell(), statuses=("failed",)), "failed"),
        (replace(cell(), statuses=("failed", "diverged")), "diverged"),
    ],
)
def test_verdict(cell, expected):
    assert report.verdict(cell) == cell.verdict == expected


def test_a_cell_holds_printed_and_measured_values():
    c = only(recorded(66.0, 67.0, 68.0))
    assert (c.row, c.column, c.printed, c.printed_std) == ("FedAvg", "CIFAR-10", 66.3, 0.5)
    assert c.mean == 67.0
    assert c.difference == pytest.approx(0.7)
    assert c.std == pytest.approx(math.sqrt(2 / 3))  # ddof 0
    assert (c.std_over, c.expected, c.seeds) == ("seeds", 3, (0, 1, 2))
    assert c.departures == []
    assert c.verdict == "reproduced"


@pytest.mark.parametrize(
    ("measure", "value"), [("best", 51.0), ("mean_of_last_5", 49.0), ("seconds_per_round", 12.34), ("rounds", 100)]
)
def test_measures(measure, value):
    t = replace(recorded(50.0), measure=measure, printed=None)
    assert only(t).mean == value
    assert MEASURES[measure].words in report.markdown(t)


def test_unknown_measure():
    with pytest.raises(report.ReportError, match=r"unknown measure 'loss'; there are accuracy, best"):
        report.cells(table(measure="loss"))


def test_std_over_clients_for_a_single_run_of_personal_models():
    jobs = [job("SOLO", seed) for seed in (0, 1)]
    record(jobs[0], 46.0, std=5.5)
    c = only(table(*jobs))
    assert (c.std, c.std_over, c.expected, c.personal) == (5.5, "clients", 2, True)
    assert "± here is the standard deviation over clients" in report.markdown(table(*jobs))
    record(jobs[1], 48.0, std=6.5)
    c = only(table(*jobs))
    assert (c.std, c.std_over) == (1.0, "seeds")
    assert only(recorded(66.0)).std is None


def test_departures_are_told_and_never_judged():
    t = recorded(66.3, 66.3, 66.3, num_rounds=20, local_epochs=1)
    assert only(t).verdict == "reduced"
    text = report.markdown(t)
    assert "All runs: 20 rounds instead of 100, 1 local epoch instead of 10." in text
    assert "reproduced" not in text.lower()
    solo = job("SOLO", num_rounds=1, local_epochs=100)
    text = report.markdown(table(*t.jobs, solo))
    assert "FedAvg: 20 rounds instead of 100, 1 local epoch instead of 10." in text
    assert "SOLO: 100 local epochs instead of 300." in text


def test_data_that_are_not_the_published_set():
    jobs = [job(seed=seed) for seed in range(3)]
    for one in jobs:
        record(one, 66.3, note="re-encoded as JPEG")
    assert only(table(*jobs)).verdict == "reduced"
    assert "All runs: data are not the published set (re-encoded as JPEG)." in report.markdown(table(*jobs))


def test_a_remark_about_the_published_set_is_told_and_no_departure():
    jobs = [job(seed=seed) for seed in range(3)]
    for one in jobs:
        record(one, 66.3, remark="5 test images are training images as well")
    assert only(table(*jobs)).verdict == "reproduced"
    assert "All runs: 5 test images are training images as well." in report.markdown(table(*jobs))


def test_what_the_paper_varies_in_a_table_is_no_departure():
    labels = {0.1: "beta=0.1", 0.5: "beta=0.5"}
    jobs = [job(beta=beta, dataset="cifar100") for beta in labels]
    t = table(*jobs, columns="beta", labels=labels, printed="MOON Table 4")
    assert [c.departures for c in report.cells(t)] == [[], []]
    assert [c.departures for c in report.cells(replace(t, printed=None))] == [["beta 0.1 instead of 0.5"], []]
    without, with_head = (table(job(projection_head=head), printed="MOON Table 7") for head in (False, True))
    assert (only(without).printed, only(without).departures) == (66.7, [])
    assert only(with_head).printed == 66.3


def test_runs_that_differ_in_more_than_the_seed_are_not_averaged():
    jobs = [job("FedAvgM", seed, server_momentum=m) for m in (0.1, 0.9) for seed in (0, 1)]
    for one, accuracy in zip(jobs, (60.0, 62.0, 70.0, 72.0), strict=True):
        record(one, accuracy)
    found = report.cells(table(*jobs, printed=None))
    assert [(c.row, c.mean) for c in found] == [
        ("FedAvgM, server momentum 0.1", 61.0),
        ("FedAvgM, server momentum 0.9", 71.0),
    ]
    found = report.cells(table(job(), job(lr=0.1)))
    assert [(c.row, c.printed) for c in found] == [("FedAvg, lr 0.01", 66.3), ("FedAvg, lr 0.1", 66.3)]


def test_fractions_become_percent():
    t = table(job(), printed="FedSSC Table I", labels={"cifar10": "TOP-1 ACCURACY"})
    assert only(t).printed == pytest.approx(65.8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"printed": "MOONE Table 1"}, r"no printed numbers of a paper 'MOONE'; there are FedProc, .*MOON"),
        ({"printed": "MOON Table 99"}, r"MOON has no printed 'Table 99'; it has Table 1,"),
        ({"labels": {}}, r"MOON Table 1 has no column 'cifar10'; it has CIFAR-10, CIFAR-100"),
        (
            {"jobs": (job("FedAvgM"),)},
            r"MOON Table 1 has no row 'FedAvgM'; its rows: MOON, FedAvg",
        ),
        ({"printed": "FedProto Table 2", "labels": {"cifar10": "n=3"}}, r"no row 'FedAvg', dataset cifar10"),
    ],
)
def test_descriptions_that_do_not_fit(changes, message):
    labels = changes.pop("labels", None)
    with pytest.raises(report.ReportError, match=message):
        report.cells(replace(table(job(), labels=labels), **changes))


def test_diverged_and_failed_runs_are_shown():
    jobs = [job(seed=seed) for seed in range(5)]
    for one, accuracy in zip(jobs[:3], (66.0, 66.3, 66.6), strict=True):
        record(one, accuracy)
    paths = record(jobs[3], status="diverged", curve=[10.0, None]), record(jobs[4], status="failed")
    c = only(table(*jobs))
    assert c.values == (66.0, 66.3, 66.6)
    assert c.statuses == ("finished",) * 3 + ("diverged", "failed")
    text = report.markdown(table(*jobs))
    assert "5 of 5, 1 diverged, 1 failed" in text
    assert all(path.name in text for path in paths)
    assert "| diverged |" in report.markdown(table(jobs[3]))


def test_stale_records_do_not_count():
    one, old = job(), job(seed=1)
    record(one, 66.3)
    old = replace(old, path=old.path.with_name("FedAvg-cifar10-seed1-000000000000.json"))  # another version has another key
    record(old, 10.0, version=records.RESULTS_VERSION - 1)
    t = table(one, job(seed=1))
    assert (only(t).values, only(t).stale, only(t).expected) == ((66.3,), 1, 2)
    assert "Stale records, of an older results version, which do not count: 1." in report.markdown(t)
    record(one, 66.3, version=records.RESULTS_VERSION - 1)  # even under the file name of today
    assert (only(t).verdict, only(t).stale) == ("not run", 2)


def test_records_are_found_whatever_data_this_machine_has():
    one = job()
    path = record(one, 66.3)
    unknown = replace(one, path=one.path.with_name("FedAvg-cifar10-seed0-000000000000.json"))  # as without the data
    assert only(table(unknown)).paths == (path,)
    record(unknown, 50.0, note="subset")
    assert only(table(unknown)).paths == only(table(one)).paths == (path,)
    path.unlink()
    assert only(table(one)).values == (50.0,)


def test_corrupt_record():
    t = recorded(66.3)
    t.jobs[0].path.write_text("{")
    with pytest.raises(records.RunError, match="not a readable run record"):
        report.markdown(t)


def test_markdown_of_one_column(folder):
    t = recorded(66.0, 66.5, 67.0)
    lines = report.markdown(t).splitlines()
    assert lines[0] == "**MOON, Table 1: CIFAR-10**"
    assert lines[4] == "| method | paper | here | seeds | difference | verdict | records |"  # one column label: left out
    assert lines[6].startswith(
        "| FedAvg | 66.3 ± 0.5 | 66.5 ± 0.4 | 3 of 3 | +0.2 | reproduced | [0](../runs/FedAvg-cifar10-seed0-"
    )
    assert "The paper's ±: over 3 trials; for SOLO over parties." in lines[-3]
    assert lines[-1] == "Made by `python -m fednb sweep notebooks/sweeps/00_foundations.yaml --table moon-1`."
    links = re.findall(r"\[(\d)\]\(([^)]+)\)", lines[6])
    assert [seed for seed, _ in links] == ["0", "1", "2"]
    assert all((folder.parent / "tables" / link).resolve().exists() for _, link in links)


def test_markdown_of_several_columns_without_printed_numbers():
    jobs = [job(dataset=d, method=m) for m in ("FedAvg", "FedProx") for d in ("cifar10", "digits")]
    record(jobs[0], 66.0)
    record(jobs[3], 90.0)
    lines = report.markdown(table(*jobs, printed=None)).splitlines()
    assert lines[4] == "| method | dataset | here | seeds | verdict | records |"
    assert lines[6].startswith("| FedAvg | CIFAR-10 | 66.0 | 1 of 1 |  | [0](")
    assert lines[8] == "| FedProx | CIFAR-10 |  | 0 of 1 | not run |  |"
    assert "- FedAvg (digits), FedProx (CIFAR-10): not run (tier hours-gpu)." in lines


def test_columns_without_a_record_are_one_line():
    jobs = [job(dataset=d, method=m) for m in ("FedAvg", "FedProx") for d in ("cifar10", "cifar100", "tiny_imagenet")]
    record(jobs[0], 66.0)
    labels = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny_imagenet": "Tiny-Imagenet"}
    text = report.markdown(table(*jobs, labels=labels))
    assert "| method | paper | here | seeds | difference | verdict | records |" in text
    assert "| FedProx | 66.9 ± 0.2 |  | 0 of 1 |  | not run |  |" in text  # in a column of which something is recorded
    assert text.count("\n| ") == 4
    assert "- Not run: CIFAR-100, Tiny-Imagenet (4 runs, tier hours-gpu).\n" in text
    record(jobs[1], 60.0)  # several columns left: then rows without a record are one line, too
    text = report.markdown(table(*jobs, labels=labels))
    assert "| method | dataset | paper |" in text
    assert "- Not run: Tiny-Imagenet, FedProx (4 runs, tier hours-gpu).\n" in text


def test_a_table_without_records_is_the_papers_grid():
    jobs = [job(dataset=d, method=m) for m in ("FedAvg", "SOLO") for d in ("cifar10", "cifar100")]
    labels = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
    lines = report.markdown(table(*jobs, job("SOLO", seed=1), labels=labels)).splitlines()
    assert lines[4:] == [
        "| method | paper, CIFAR-10 | paper, CIFAR-100 |",
        "| :-- | --: | --: |",
        "| FedAvg | 66.3 ± 0.5 | 64.5 ± 0.4 |",
        "| SOLO | 46.3 ± 5.1 | 22.3 ± 1.0 |",
        "",
        "- The paper's ±: over 3 trials; for SOLO over parties.",
        "- None of 5 runs recorded (tier hours-gpu).",
        "",
        "Made by `python -m fednb sweep notebooks/sweeps/00_foundations.yaml --table moon-1`.",
    ]
    assert report.text(table(job())) == "MOON, Table 1: CIFAR-10\nnot run (tier hours-gpu)"


def test_frame_is_in_full_precision():
    t = recorded(66.0, 66.5, 67.0)
    (line,) = report.frame(t).to_dict("records")
    assert line["std"] == pytest.approx(math.sqrt(1 / 6), abs=1e-12)
    assert line["half_width"] == pytest.approx(4.30265273 * 0.5 / math.sqrt(3))
    assert (line["table"], line["verdict"], line["seeds"]) == ("moon-1", "reproduced", "0; 1; 2")
    assert line["paths"].split("; ") == [job.path.name for job in t.jobs]
    assert report.csv(t).startswith("table,row,column,printed,")


def test_paired():
    prox, avg = ([job(m, seed) for seed in range(4)] for m in ("FedProx", "FedAvg"))
    for one, a, b in zip(range(3), (67.0, 69.0, 68.0), (66.0, 67.0, 65.0), strict=True):  # differences 1, 2, 3
        record(prox[one], a)
        record(avg[one], b)
    record(prox[3], 99.0)  # has no partner
    record(avg[3], status="diverged")
    t = table(*prox, *avg)
    mean, half, n = report.paired(t, "FedProx", "FedAvg")
    assert (mean, n) == (2.0, 3)
    assert half == pytest.approx(4.30265273 / math.sqrt(3))
    assert report.paired(t, "FedAvg", "FedProx")[0] == -2.0
    record(avg[1], 67.0, split="another ")
    with pytest.raises(report.ReportError, match="cannot be paired: seed 1 splits the data differently"):
        report.paired(t, "FedProx", "FedAvg")
    with pytest.raises(report.ReportError, match=r"no row 'MOON' .*there are FedProx \| CIFAR-10"):
        report.paired(t, "MOON", "FedAvg")
    for one in avg[:3]:
        one.path.unlink()
    with pytest.raises(report.ReportError, match="share no finished seed"):
        report.paired(t, "FedProx", "FedAvg")
    with pytest.raises(report.ReportError, match="several columns; choose one of CIFAR-10, digits"):
        report.paired(table(job(), job(dataset="digits"), printed=None), "FedAvg", "FedAvg")


def test_lead_says_paired_in_words():
    prox, avg = ([job(m, seed) for seed in range(3)] for m in ("FedProx", "FedAvg"))
    t = table(*prox, *avg)
    assert report.lead(t, "FedProx", "FedAvg") == "not run"
    words = ["+1.0 points (one seed: indicative)", "+1.5 points (two seeds: indicative)"]
    words += ["+2.0 ± 2.5 points over 3 seeds: no difference shown"]
    for one, a, b, said in zip(range(3), (67.0, 69.0, 68.0), (66.0, 67.0, 65.0), words, strict=True):
        record(prox[one], a)
        record(avg[one], b)
        assert report.lead(t, "FedProx", "FedAvg") == said
    record(prox[0], 68.0)  # differences 2, 2, 3
    assert report.lead(t, "FedProx", "FedAvg") == "+2.3 ± 1.4 points over 3 seeds: ahead"
    assert report.lead(t, "FedAvg", "FedProx") == "-2.3 ± 1.4 points over 3 seeds: behind"


def test_lead_in_rounds_is_fewer_of_them():
    prox, avg = ([job(m, seed, num_rounds=9) for seed in range(3)] for m in ("FedProx", "FedAvg"))
    t = replace(table(*prox, *avg), printed=None, measure="rounds_to_target", target=60)
    for seed, fewer in enumerate((2, 3, 2)):
        record(prox[seed], curve=[50.0] * (6 - fewer) + [60.0] * (3 + fewer))
        record(avg[seed], curve=[50.0] * 6 + [60.0] * 3)
    assert report.lead(t, "FedProx", "FedAvg") == "-2.3 ± 1.4 rounds over 3 seeds: ahead"
    assert report.lead(t, "FedAvg", "FedProx") == "+2.3 ± 1.4 rounds over 3 seeds: behind"
    record(avg[1], curve=[50.0] * 9)
    assert report.lead(t, "FedProx", "FedAvg") == "not reached by every run of 3 seeds"


def test_show_reads_the_committed_ledger(tmp_path, monkeypatch):
    for root, accuracy in ((tmp_path / "repository" / "results", 66.3), (tmp_path / "elsewhere", 11.1)):
        monkeypatch.setenv("FEDNB_RUNS", str(root / "runs"))
        t = recorded(accuracy)
    asked = []
    monkeypatch.setattr(compare, "ROOT", tmp_path / "repository")
    monkeypatch.setattr(sweep, "read", lambda path: asked.append(path) or {"moon-1": t})
    monkeypatch.setattr(
        compare,
        "_printed_table",
        lambda table: {"rows": [{"method": "FedAvg", "cells": {"CIFAR-10": {"value": 1, "std": None}}}]},
    )
    text = report.show("moon-1").data
    assert asked == [papers.folder() / "sweeps" / "01_moon.yaml"]  # and no other file
    assert "66.3" in text
    assert "11.1" not in text
    assert "](../results/runs/" in text
    assert str(tmp_path) not in text
    assert report.curves("moon-1").lines[0].get_ydata()[-1] == 66.3
    with pytest.raises(report.ReportError, match="no table 'moon-2'; the sweep files have moon-1"):
        report.show("moon-2")


def test_curves():
    jobs = [job(seed=seed, num_rounds=3) for seed in range(2)] + [job("SOLO", num_rounds=1)]
    record(jobs[0], curve=[10.0, 20.0, 30.0])
    record(jobs[1], curve=[20.0, 40.0, None], status="diverged")
    record(jobs[2], curve=[46.0])
    ax = report.curves(table(*jobs), ledger=records.load())
    mean, level = ax.lines[0], next(line for line in ax.lines if line.get_linestyle() == "--")
    assert list(mean.get_xdata()) == [1, 2, 3]
    assert list(mean.get_ydata()) == [15.0, 30.0, 30.0]
    band = ax.collections[0].get_paths()[0].vertices
    assert {tuple(v) for v in band} >= {(1, 10), (1, 20), (2, 20), (2, 40)}
    assert set(level.get_ydata()) == {46.0}
    assert {t.get_text() for t in ax.get_legend().get_texts()} == {"FedAvg", "SOLO (one round)"}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("communication round", "test accuracy (%)")
    record(job("FedProx"), curve=[None], status="diverged")
    for nothing in (job("FedProx", seed=9), job("FedProx")):
        assert report.curves(table(nothing), ledger=records.load()).texts[0].get_text() == "nothing recorded"


def test_rounds_that_were_not_evaluated():
    curve = [None, 20.0, None, 40.0, 30.0]
    one = job(num_rounds=5, evaluate_every=2)
    record(one, 30.0, curve=curve)
    assert (evaluate.best(curve), evaluate.mean_of_last(curve), evaluate.mean_of_last(curve, 2)) == (40.0, 30.0, 35.0)
    assert (evaluate.rounds_to(curve, 20), evaluate.rounds_to(curve, 21), evaluate.rounds_to(curve, 41)) == (2, 4, None)
    t = table(one, printed=None)
    assert list(report.curves(t, ledger=records.load()).lines[0].get_xydata().flat) == [2, 20, 4, 40, 5, 30]
    assert only(t).departures == ["num_rounds 5 instead of 100"]
    assert only(replace(t, measure="halfway")).values == (20.0,)
    assert only(replace(t, measure="rounds_to_target", target=35)).values == (4.0,)
    assert only(replace(t, measure="rounds_to_target", target=50)).bounds == (5.0,)
    assert only(replace(t, measure="speedup", baseline="FedAvg")).values == (1.25,)  # 30 % in round 4 of 5
    odd = job(num_rounds=5, evaluate_every=5)
    record(odd, 30.0, curve=[None] * 4 + [30.0])
    with pytest.raises(report.ReportError, match=r"json has no halfway: it was evaluated after every 5 rounds and the last"):
        report.cells(table(odd, printed=None, measure="halfway"))
    level = report.curves(table(odd, printed=None), ledger=records.load()).lines[0]
    assert (set(level.get_ydata()), level.get_label()) == ({30.0}, "FedAvg (after 5 rounds)")
    assert figures.svg(table(odd, printed=None), records.load()) is not None


def test_departures_in_words():
    t = table(job(num_rounds=1, keep_last=True, local_steps=10))
    record(t.jobs[0])
    assert (
        "- All runs: 1 round instead of 100, the last incomplete batch of an epoch trained on, "
        "10 local steps instead of whole epochs." in report.markdown(t)
    )
    domains = settings.resolve(METHODS, method="FedAvg", dataset="digits5", keep_last=False, test_per_domain=2000)
    assert [departure(text) for text in settings.departures(domains)] == [
        "2000 test images of each domain instead of all",
        "the last incomplete batch of an epoch dropped",
    ]


def test_the_sweep_files_of_the_project_fit_the_printed_tables(tmp_path):
    sweeps = ROOT / "notebooks" / "sweeps"
    written = {path.name for path in report.write_all(sweeps, tmp_path)}
    assert written == {"README.md", "REPORT.md"} | {
        f"{name}.{kind}" for name in sweep.read(sweeps) for kind in ("md", "csv")
    }


def test_write_all_is_the_same_byte_for_byte(tmp_path, monkeypatch):
    t = recorded(66.0, 66.5, 67.0)
    solo, empty = job("SOLO"), job("FedProx", seed=7)
    record(solo, 46.0, std=5.0)
    tables = {"moon-1": replace(t, jobs=(*t.jobs, solo)), "later": table(empty, name="later", title="Later")}
    monkeypatch.setattr(sweep, "read", lambda path: tables)
    written = report.write_all(tmp_path / "sweeps", tmp_path)
    names = [
        "tables/moon-1.md",
        "tables/moon-1.csv",
        "figures/moon-1.svg",
        "tables/later.md",
        "tables/later.csv",
        "tables/README.md",
        "REPORT.md",
    ]
    assert written == [tmp_path / name for name in names]
    before = [path.read_bytes() for path in written]
    assert (tmp_path / "tables" / "moon-1.md").read_text() == report.markdown(tables["moon-1"], again=True)
    for path in written:
        path.unlink()
    with plt.rc_context({"lines.linewidth": 9, "svg.fonttype": "path"}):
        assert report.write_all(tmp_path / "sweeps", tmp_path) == written
    assert [path.read_bytes() for path in written] == before
    assert str(tmp_path).encode() not in b"".join(before)
    index = (tmp_path / "tables" / "README.md").read_text()
    assert "| [moon-1](moon-1.md) | MOON, Table 1: CIFAR-10 | 4 of 4 | 1 reproduced, 1 indicative |" in index
    assert "| [curves](../figures/moon-1.svg) |" in index
    assert "| [later](later.md) | Later | 0 of 1 | not run (tier hours-gpu) |  |" in index

    record(t.jobs[0], 50.0, status="diverged")
    report.write_all(tmp_path / "sweeps", tmp_path)
    changed = [path.name for path, old in zip(written, before, strict=True) if path.read_bytes() != old]
    assert changed == ["moon-1.md", "moon-1.csv", "moon-1.svg", "README.md"]  # the verdict changes, too
    for path in (tmp_path / "runs").glob("*.json"):
        path.unlink()
    assert not any(p.suffix == ".svg" for p in report.write_all(tmp_path / "sweeps", tmp_path))
    assert not (tmp_path / "figures" / "moon-1.svg").exists()


# --- measures relative to a baseline ----------------------------------------------------------------------------------


def against_baseline(measure, curves, printed=None, columns=None):
    """A table of FedAvg (the baseline) and FedProx: per method a curve per seed, or None for a run that is not recorded."""
    jobs = []
    for method, of_seeds in curves.items():
        for seed, curve in enumerate(of_seeds):
            jobs.append(job(method, seed, num_rounds=4))
            if curve:
                record(jobs[-1], curve[-1], curve=curve)
    return table(*jobs, printed=printed, labels=columns, measure=measure, baseline="FedAvg")


AVERAGE = [10.0, 30.0, 20.0, 25.0]  # reaches its final 25 in round 2


def test_rounds_to_baseline_and_speedup():
    curves = {"FedAvg": [AVERAGE], "FedProx": [[10.0, 20.0, 26.0, 20.0]]}
    average, prox = report.cells(against_baseline("rounds_to_baseline", curves))
    assert (average.values, prox.values, prox.bounds) == ((2.0,), (3.0,), ())
    average, prox = report.cells(against_baseline("speedup", curves))
    assert average.values == (2.0,)
    assert prox.values == pytest.approx((4 / 3,))
    text = report.markdown(against_baseline("speedup", curves))
    assert "| FedProx | 1.33 | 1 of 1 |" in text
    assert "- The baseline is FedAvg." in text
    assert "held to the same rule" in text


def test_each_seed_has_the_baseline_of_its_own():
    low, high = [5.0, 5.0, 5.0, 10.0], [5.0, 5.0, 5.0, 40.0]
    same = [5.0, 12.0, 30.0, 41.0]
    _, prox = report.cells(against_baseline("rounds_to_baseline", {"FedAvg": [low, high], "FedProx": [same, same]}))
    assert prox.values == (2.0, 4.0)


def test_what_is_never_reached_is_shown():
    never, slow, fast = [10.0, 10.0, 10.0, 24.9], [1.0, 1.0, 1.0, 25.0], [26.0, 1.0, 1.0, 1.0]

    def prox(measure, *curves):
        t = against_baseline(measure, {"FedAvg": [AVERAGE] * len(curves), "FedProx": list(curves)})
        line = next(line for line in report.markdown(t).splitlines() if line.startswith("| FedProx"))
        return report.cells(t)[1], line.split(" | ")[1], report.markdown(t)

    cell, shown, text = prox("rounds_to_baseline", never)
    assert (cell.mean, cell.bounds, shown) == (math.inf, (4.0,), "> 4")
    assert "- FedProx: 1 of 1 run never got there." in text
    assert prox("rounds_to_baseline", never, slow, fast)[1] == "4 (1 to > 4)"
    assert "- FedProx: 1 of 3 runs never got there." in prox("rounds_to_baseline", never, slow, fast)[2]
    assert prox("rounds_to_baseline", never, never, fast)[1] == "> 4 (1 to > 4)"
    assert prox("rounds_to_baseline", never, fast)[1] == "> 4 (1 to > 4)"  # of two the worse
    assert prox("speedup", never)[1] == "< 1.00"
    assert prox("speedup", never, slow, fast)[1] == "1.00 (< 1.00 to 4.00)"
    assert prox("speedup", slow, fast)[1] == "1.00 (1.00 to 4.00)"  # of two the worse
    t = against_baseline("rounds_to_baseline", {"FedAvg": [AVERAGE], "FedProx": [never]})
    assert report.frame(t)["mean"].tolist() == [2.0, math.inf]
    with pytest.raises(report.ReportError, match="cannot be paired: a run never got there"):
        report.paired(t, "FedProx", "FedAvg")


def test_a_run_without_its_baseline_is_shown_and_not_measured():
    t = against_baseline("speedup", {"FedAvg": [None], "FedProx": [AVERAGE]})
    assert report.cells(t)[1].verdict == "without baseline"
    assert "*Without baseline*" in report.markdown(t)
    t = against_baseline("rounds_to_baseline", {"FedAvg": [AVERAGE, None], "FedProx": [AVERAGE, AVERAGE]})
    prox = report.cells(t)[1]
    assert (prox.values, prox.statuses) == ((2.0,), ("finished", "without baseline"))
    assert "2 of 2, 1 without baseline" in report.markdown(t)
    with pytest.raises(report.ReportError, match="the measure 'rounds_to_baseline' needs a row that is the baseline"):
        report.cells(replace(t, baseline=None))


def test_rounds_to_a_target_that_the_table_names():
    curves = {"FedAvg": [[10.0, 59.9, 60.0, 50.0], [60.5, 1.0, 1.0, 1.0]], "FedProx": [[59.9] * 4]}
    t = replace(against_baseline("rounds_to_target", curves), baseline=None, target=60.0)
    average, prox = report.cells(t)
    assert (average.values, prox.values, prox.bounds) == ((3.0, 1.0), (math.inf,), (4.0,))
    text = report.markdown(t)
    assert "| FedAvg | 3 (1 to 3) | 2 of 2 |" in text  # of two the worse
    assert "| FedProx | > 4 | 1 of 1 |" in text
    assert "- The target is 60 %." in text
    assert report.figures.svg(t, records.load()) is None
    assert report.cells(replace(t, target=50.0))[0].values == (2.0, 1.0)
    with pytest.raises(report.ReportError, match="the measure 'rounds_to_target' needs a target; name it in the table"):
        report.cells(replace(t, target=None))
    with pytest.raises(report.ReportError, match="the measure 'accuracy' does not read a target; leave it out"):
        report.cells(replace(t, measure="accuracy"))


def test_printed_rounds_are_shown_as_printed():
    columns = {"cifar10": "CIFAR-10 #rounds", "cifar100": "CIFAR-100 #rounds"}
    jobs = [job(m, dataset=d) for m in ("FedAvg", "SCAFFOLD") for d in columns]
    options = {"printed": "MOON Table 2", "labels": columns, "baseline": "FedAvg"}
    text = report.markdown(table(*jobs, **options, measure="rounds_to_baseline"))
    assert "| FedAvg | 100 | 100 |" in text
    assert "| SCAFFOLD | 80 | not reached |" in text
    options["labels"] = {"cifar10": "CIFAR-10 speedup", "cifar100": "CIFAR-100 speedup"}
    text = report.markdown(table(*jobs, **options, measure="speedup"))
    assert "| FedAvg | 1 | 1 |" in text
    assert "| SCAFFOLD | 1.3 | < 1 |" in text


def test_seconds_are_relative_on_both_sides(monkeypatch):
    labels = {"cifar10": "CIFAR-10"}
    jobs = [job(m) for m in ("FedAvg", "FedProx")]
    for one, seconds in zip(jobs, ([10.0, 10.0, 99.0], [0.1, 12.5, 12.5]), strict=True):  # medians 10 and 12.5
        path = record(one)
        content = json.loads(path.read_text()) | {"device": "A", "workers": 1}
        content["metrics"]["seconds"] = seconds
        path.write_text(json.dumps(content))
    t = table(*jobs, printed="MOON Table 11", labels=labels, measure="seconds_ratio", baseline="FedAvg")
    average, prox = report.cells(t)
    assert (average.values, prox.values) == ((1.0,), (1.25,))
    assert (average.printed, prox.printed) == (1.0, pytest.approx(340 / 330))
    assert "| FedProx | 1.03 | 1.25 | 1 of 1 | [0]" in report.markdown(t)  # neither difference nor verdict
    for other in ({"device": "B"}, {"workers": 2}):
        path.write_text(json.dumps(content | other))
        assert report.cells(t)[1].statuses == ("without baseline",)


def test_halfway_and_validation():
    one = job(num_rounds=5)
    path = record(one, 50.0, curve=[1.0, 2.0, 3.0, 4.0, 50.0])
    assert only(table(one, printed=None, measure="halfway")).values == (2.0,)
    with pytest.raises(report.ReportError, match="has no validation"):
        report.cells(table(one, printed=None, measure="validation"))
    held = job(validation=0.1)
    path = record(held, 50.0)
    content = json.loads(path.read_text())
    content["final"]["validation"] = 48.0
    path.write_text(json.dumps(content))
    assert only(table(held, printed=None, measure="validation")).values == (48.0,)


def changed(path, **sections):
    """Change a record: what is given of a section is put into it."""
    content = json.loads(path.read_text())
    for section, values in sections.items():
        content[section] = content.get(section, {}) | values
    path.write_text(json.dumps(content))


def measures(*jobs, target=None, **columns):
    return replace(table(*jobs, printed=None, target=target), columns=sweep.Axis("", {}, measures=columns))


def test_the_mean_and_the_worst_client_on_images_like_their_own():
    one = job()
    changed(record(one), final={"clients/own mix": [50.0, 90.0, 70.0], "clients": [1.0], "groups": {"a": 4.0, "b": 3.0}})
    t = measures(one, mean="client mean", worst="worst client", domain="worst domain")
    assert [c.mean for c in report.cells(t)] == [70.0, 50.0, 3.0]
    assert "| FedAvg | 70.0 | 50.0 | 3.0 | 1 of 1 |" in report.markdown(t)


def test_clients_with_test_images_of_their_own_are_judged_on_those():
    one = job(dataset="mnist", partition="n-way-k-shot")
    path = record(one)
    changed(path, final={"clients": [50.0, 90.0]})  # of personal models on everybody's images: not their own
    t = measures(one, mean="client mean", worst="worst client", domain="worst domain")
    assert {c.statuses for c in report.cells(t)} == {("not measured",)}
    changed(path, partition={"test_sizes": [3, 3]})
    assert [c.mean for c in report.cells(t)] == [70.0, 50.0, None]


def test_a_record_without_an_optional_measure_is_shown_as_such():
    old, new = job(), job("FedProx")
    record(old), changed(record(new), final={"clients/own mix": [40.0, 60.0]}, metrics={"held_bytes": [1, 2_500_000]})
    t = measures(old, new, accuracy="accuracy", mean="client mean", held="client_memory")
    assert [(c.mean, c.verdict) for c in report.cells(t)[:3]] == [(66.3, ""), (None, "not measured"), (None, "not measured")]
    assert [c.mean for c in report.cells(t)[3:]] == [66.3, 50.0, 2500.0]
    assert "- *Not measured*:" in report.markdown(t)
    assert "| FedAvg | here | 66.3 |  |  | 1 of 1; 1 of 1, 1 not measured |" in report.markdown(t)


def test_a_slow_round_does_not_move_the_median():
    one = job(num_rounds=3)
    changed(record(one, curve=[10.0, 20.0, 30.0]), metrics={"seconds": [0.2, 9.0, 0.4]})
    (cell,) = report.cells(measures(one, median="median_seconds"))
    assert cell.mean == 0.4 and "| 0.40 |" in report.markdown(measures(one, median="median_seconds"))


def test_bytes_to_a_target_are_those_of_all_rounds_until_it_is_reached():
    sent = {"down_bytes": [1e6, 2e6, 4e6, 8e6], "up_bytes": [5e5, 5e5, 5e5, 5e5]}
    jobs = [job(seed=seed, num_rounds=4) for seed in range(3)]
    for one, curve in zip(jobs, ([10.0, 61.0, 50.0, 70.0], [60.0, 60.0, 60.0, 60.0], [10.0, 59.9, 50.0, 59.0]), strict=True):
        changed(record(one, curve[-1], curve=curve), metrics=sent)
    t = measures(*jobs, target=60.0, MB="bytes_to_target", rounds="rounds_to_target")
    megabytes, rounds = report.cells(t)
    assert (megabytes.values, rounds.values) == ((4.0, 1.5, math.inf), (2, 1, math.inf))
    assert (megabytes.mean, megabytes.bounds) == (4.0, (17.0,))
    assert "4.00 (1.50 to > 17.00)" in report.markdown(t)
    with pytest.raises(report.ReportError, match="needs a target"):
        report.cells(replace(t, target=None))
    assert figures.svg(t, records.load()) is None  # its curves are another table's


def test_eleven_rows_have_curves_that_can_be_told_apart():
    jobs = [job(num_rounds=3, seed=seed) for seed in range(11)]
    for one in jobs:
        record(one, curve=[1.0, 2.0, 3.0])
    ax = report.curves(table(*jobs, rows="seed", printed=None), ledger=records.load())
    lines = {(line.get_color(), line.get_linestyle()) for line in ax.get_lines() if len(line.get_xdata()) == 3}
    assert len(lines) == 11
    plt.close("all")


# --- trials: which of them the held-out images choose -----------------------------------------------------------------


def trials_table(validation, accuracy, seeds=(100,)):
    """FedAvg with two learning rates and FedProx with two coefficients; None: the run diverged."""
    given = [("FedAvg", {"lr": 0.1}), ("FedAvg", {"lr": 0.2}), ("FedProx", {"mu": 0.1}), ("FedProx", {"mu": 1.0})]
    jobs = [job(method, seed, validation=0.1, num_rounds=2, **g) for method, g in given for seed in seeds]
    for i, one in enumerate(jobs):
        if validation[i] is None:
            record(one, status="diverged", curve=[10.0, None])
        else:
            sent = {"down_bytes": [1e6, 2e6], "up_bytes": [3e6, 4e6]}
            changed(record(one, accuracy[i]), final={"validation": validation[i]}, metrics=sent)
    return table(*jobs, printed=None)


def test_held_out_images_choose_a_trial_and_test_images_do_not():
    found = report.trials(trials_table(validation=[50.0, 60.0, 70.0, 40.0], accuracy=[99.0, 1.0, 2.0, 98.0]))
    assert found["row"].tolist() == ["FedAvg", "FedAvg", "FedProx", "FedProx"]
    assert found["settings"].tolist() == [{"lr": 0.1}, {"lr": 0.2}, {"mu": 0.1}, {"mu": 1.0}]
    assert found["chosen"].tolist() == [False, True, True, False]
    assert found["accuracy"].tolist() == [99.0, 1.0, 2.0, 98.0]
    assert found["megabytes"].tolist() == [10.0] * 4


def test_of_equally_good_trials_the_first_is_chosen_and_a_diverged_one_never():
    found = report.trials(trials_table(validation=[60.0, 60.0, None, 10.0], accuracy=[1.0, 99.0, None, 5.0]))
    assert found["chosen"].tolist() == [True, False, False, True]
    assert math.isnan(found["validation"][2])


def test_a_trial_with_several_seeds_counts_with_their_mean_and_only_if_all_are_there():
    values = [50.0, 70.0, 65.0, 52.0, 90.0, None, 40.0, 42.0]
    found = report.trials(trials_table(values, [1.0] * 8, seeds=(100, 101)))
    assert found["validation"].tolist()[:2] == [60.0, 58.5]
    assert found["chosen"].tolist() == [True, False, False, True]


def test_trials_that_hold_out_no_images_are_refused_and_without_records_nothing_is_chosen(folder):
    with pytest.raises(report.ReportError, match="holds out no training images: its runs need the parameter validation"):
        report.trials(table(job(), printed=None))
    t = trials_table([1.0] * 4, [1.0] * 4)
    for path in folder.glob("*.json"):
        path.unlink()
    assert not report.trials(t)["chosen"].any()


# --- a run in several domains -----------------------------------------------------------------------------------------

OFFICE = ("Caltech", "Amazon", "Webcam", "DSLR")
PRINTED = (62.5, 83.16, 72.41, 53.33)  # FedAvg in FedPLCC's table III; the mean is 67.85


def domain_job(method="FedAvg", seed=0, dataset="office10", **given):
    return job(method, seed, dataset=dataset, **given)


def in_domains(job, *accuracies, names=OFFICE, **more):
    """Write the record of a run that ends with these accuracies in the domains."""
    mean = sum(accuracies) / len(accuracies)
    path = record(job, mean, **more)
    content = json.loads(path.read_text())
    if content["final"]:
        content["final"]["groups"] = dict(zip(names, accuracies, strict=True))
    path.write_text(json.dumps(content))
    return path


def domain_table(*jobs, names=OFFICE, printed="FedPLCC Table III", baseline="FedAvg", **more):
    measures = {name: f"accuracy in {name}" for name in names} | {"Avg.": "accuracy"}
    measures |= {"Delta": "lead"} if baseline else {}
    columns = sweep.Axis("", {}, measures=measures)
    return replace(
        table(*jobs, printed=printed, baseline=baseline, name="office", title="Office-10"), columns=columns, **more
    )


def two_methods(ahead=2.0):
    """FedAvg as printed with three seeds; FedProx so many points higher in each domain."""
    jobs = [domain_job(method, seed) for method in ("FedAvg", "FedProx") for seed in range(3)]
    for one in jobs:
        shift = 0.1 * (one.settings.seed - 1) + (ahead if one.settings.method == "FedProx" else 0)
        in_domains(one, *(accuracy + shift for accuracy in PRINTED))
    return domain_table(*jobs)


def test_a_run_fills_a_row_of_domains():
    found = report.cells(two_methods())
    assert [(c.row, c.column) for c in found] == [(m, c) for m in ("FedAvg", "FedProx") for c in (*OFFICE, "Avg.", "Delta")]
    average, prox = found[:6], found[6:]
    assert [c.mean for c in average] == pytest.approx([*PRINTED, 67.85, 0])
    assert [c.printed for c in average] == [*PRINTED, 67.85, None]
    assert [c.mean - a.mean for c, a in zip(prox, average, strict=True)] == pytest.approx([2.0] * 6)
    assert [c.printed for c in prox] == [54.46, 75.79, 86.21, 56.67, 68.282, 0.432]
    assert [c.verdict for c in average] == ["reproduced"] * 5 + [""]
    # half width 2.484 times 0.1: one point is the rule
    assert [c.verdict for c in prox] == ["off by +10.0", "off by +9.4", "off by -11.8", "off by -1.3", "off by +1.6", ""]
    assert all(len(c.paths) == c.expected == 3 and c.departures == [] for c in found)
    assert {c.measure for c in average} == {*(f"accuracy in {name}" for name in OFFICE), "accuracy", "lead"}
    assert prox[5].std == pytest.approx(0)  # of differences between equal seeds


def test_markdown_of_domains_is_the_papers_table():
    lines = report.markdown(two_methods()).splitlines()
    assert lines[2] == (
        "Caltech, Amazon, Webcam, DSLR: test accuracy in that domain after the last round, in percent; a run's accuracy is "
        "the mean over its domains. Avg.: test accuracy after the last round, in percent. Delta: test accuracy after the "
        "last round minus the baseline's with the same seed, in percentage points."
    )
    assert lines[4:6] == [
        "| method |  | Caltech | Amazon | Webcam | DSLR | Avg. | Delta | seeds | records |",
        "| :-- | :-- | --: | --: | --: | --: | --: | --: | :-- | :-- |",
    ]
    assert lines[6] == "| FedAvg | paper | 62.5 | 83.2 | 72.4 | 53.3 | 67.8 | - |  |  |"
    assert lines[7].startswith(
        "|  | here | 62.5 ± 0.1 | 83.2 ± 0.1 | 72.4 ± 0.1 | 53.3 ± 0.1 | 67.8 ± 0.1 | +0.0 ± 0.0 | 3 of 3 | [0](../runs/"
    )
    assert lines[7].count("](") == 3
    verdicts = " | ".join(["reproduced"] * 5)
    assert lines[8] == f"|  | verdict | {verdicts} |  |  |  |"
    assert lines[9] == "| FedProx | paper | 54.5 | 75.8 | 86.2 | 56.7 | 68.3 | +0.4 |  |  |"
    assert "- The baseline is FedAvg." in lines


def test_domains_without_printed_numbers_are_a_line_per_row():
    names = ("Photo", "Art painting", "Cartoon", "Sketch")
    jobs = [domain_job(method, dataset="pacs", num_rounds=2) for method in ("FedAvg", "FedProx")]
    for one, accuracy in zip(jobs, (50.0, 60.0), strict=True):
        in_domains(one, *(accuracy + i for i in range(4)), names=names, note="a stand-in for DomainNet")
    text = report.markdown(domain_table(*jobs, names=names, printed=None))
    assert "| method | Photo | Art painting | Cartoon | Sketch | Avg. | Delta | seeds | records |" in text
    assert "| FedProx | 60.0 | 61.0 | 62.0 | 63.0 | 61.5 | +10.0 | 1 of 1 | [0](" in text
    assert "- All runs: data are not the published set (a stand-in for DomainNet)." in text
    assert "- All runs: 2 rounds instead of 50." in text
    assert "paper" not in text


def test_domains_of_reduced_runs_are_not_judged():
    one = domain_job(num_rounds=5)
    in_domains(one, *PRINTED)
    assert [c.verdict for c in report.cells(domain_table(one))] == ["reduced"] * 5 + [""]


def test_rows_of_domains_that_were_not_run_count_each_run_once():
    jobs = [domain_job(method, seed) for method in ("FedAvg", "FedProx") for seed in range(2)]
    text = report.markdown(domain_table(*jobs))
    assert "| method | paper, Caltech | paper, Amazon | paper, Webcam | paper, DSLR | paper, Avg. | paper, Delta |" in text
    assert "| FedAvg | 62.5 | 83.2 | 72.4 | 53.3 | 67.8 | - |" in text
    assert "- None of 4 runs recorded (tier hours-gpu)." in text
    for one in jobs[:2]:
        in_domains(one, *PRINTED)
    in_domains(replace(jobs[2], path=jobs[2].path.with_name("old.json")), *PRINTED, version=records.RESULTS_VERSION - 1)
    text = report.markdown(domain_table(*jobs))
    assert "- Not run: FedProx (2 runs, tier hours-gpu)." in text
    assert "which do not count: 1." in text
    assert "| FedProx |" not in text


def test_a_domain_row_that_diverged_or_lacks_its_baseline():
    jobs = [domain_job("FedAvg"), domain_job("FedProx")]
    record(jobs[0], status="diverged", curve=[10.0, None])
    in_domains(jobs[1], *PRINTED)
    average, prox = (report.cells(domain_table(*jobs))[i : i + 6] for i in (0, 6))
    assert [c.verdict for c in average] == ["diverged"] * 6
    assert [c.verdict for c in prox] == ["indicative"] * 5 + ["without baseline"]
    text = report.markdown(domain_table(*jobs))
    assert "|  | here |  |  |  |  |  |  | 1 of 1, 1 diverged | [0](" in text
    assert "| 1 of 1; 1 of 1, 1 without baseline | [0](" in text


def test_printed_rows_of_fedplcc_are_found_by_method_and_label():
    one = domain_job()
    plcc = replace(one, settings=replace(one.settings, method="FedPLCC"))
    delta = [c for c in report.cells(domain_table(one, plcc)) if c.row == "FedPLCC"]
    assert [c.printed for c in delta] == [72.77, 84.74, 75.86, 80.0, 78.342, 10.492]
    named = {"L_contra w/o, L_corr w/o": {"method": "FedAvg"}, "L_contra w/, L_corr phi=1": {"method": "FedProx"}}
    jobs = [domain_job(method, dataset="digits5") for method in ("FedAvg", "FedProx")]
    t = domain_table(*jobs, names=(), printed="FedPLCC Table V", baseline="L_contra w/o, L_corr w/o")
    t = replace(t, rows=sweep.Axis("method", {}, named))
    assert [(c.row, c.column, c.printed) for c in report.cells(t)] == [
        ("L_contra w/o, L_corr w/o", "Avg.", 60.394),
        ("L_contra w/o, L_corr w/o", "Delta", None),
        ("L_contra w/, L_corr phi=1", "Avg.", 78.304),
        ("L_contra w/, L_corr phi=1", "Delta", 17.91),
    ]


@pytest.mark.parametrize("dataset", ["digits5", "office10", "domainnet"])
def test_the_domains_are_called_as_the_paper_calls_them(dataset):
    number = {"digits5": "II", "office10": "III", "domainnet": "IV"}[dataset]
    assert list(report.printed(f"FedPLCC Table {number}")["FedAvg"]) == [*data.domain_names(dataset), "Avg.", "Delta"]


def test_leads_in_a_domain():
    t = two_methods()
    assert report.paired(t, "FedProx", "FedAvg", "Webcam") == (pytest.approx(2.0), pytest.approx(0, abs=1e-9), 3)
    assert report.lead(t, "FedProx", "FedAvg", "Avg.") == "+2.0 ± 0.0 points over 3 seeds: ahead"
    with pytest.raises(
        report.ReportError, match=r"several columns; choose one of Caltech, Amazon, Webcam, DSLR, Avg\., Delta"
    ):
        report.lead(t, "FedProx", "FedAvg")
    in_domains(t.jobs[3], 90.0, 83.16, 72.41, 53.33)
    assert report.lead(t, "FedProx", "FedAvg", "Caltech").startswith("+10.5 ± ")
    assert report.lead(t, "FedProx", "FedAvg", "DSLR").startswith("+1.4 ± ")


def test_domains_in_frame_summary_and_terminal(tmp_path, monkeypatch):
    t = two_methods()
    lines = report.frame(t)
    assert len(lines) == 12
    amazon = lines[(lines["row"] == "FedProx") & (lines["column"] == "Amazon")].iloc[0]
    assert (amazon["measure"], amazon["printed"], amazon["mean"]) == ("accuracy in Amazon", 75.79, pytest.approx(85.16))
    assert report.csv(t).count("\n") == 13
    assert report._summary(t, report.cells(t)) == "5 reproduced, 5 off"
    assert re.search(r"FedProx +Delta +0\.4 +2\.0 +0\.0 +3", report.text(t))
    assert report.recorded(t) == (6, 6)
    monkeypatch.setattr(sweep, "read", lambda path: {"office": t})
    report.write_all(tmp_path / "sweeps", tmp_path)
    index = (tmp_path / "tables" / "README.md").read_text()
    assert "| [office](office.md) | Office-10 | 6 of 6 | 5 reproduced, 5 off | [curves](../figures/office.svg) |" in index
    lines = report.readme((ROOT / "README.md").read_text(), tmp_path, records.load()).splitlines()
    (line,) = [x for x in lines if x.startswith(f"| [{t.notebook}]")]
    assert "cells with a printed number: 5 reproduced, 5 off" in line


def test_a_run_in_several_domains_has_one_curve():
    t = two_methods()
    ax = report.curves(t, ledger=records.load())
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["FedAvg", "FedProx"]
    assert list(ax.lines[0].get_ydata()) == pytest.approx([67.85] * 100)
    assert figures.svg(t, records.load()).decode().count("communication round") == 1
    assert report.curves(t, column="Avg.", ledger=records.load()).lines
    with pytest.raises(report.ReportError, match=r"no column 'Caltech'; there are Avg\.\."):
        report.curves(t, column="Caltech", ledger=records.load())


def test_a_domain_against_a_parameter():
    jobs = [domain_job("FedProx", mu=mu) for mu in (0.1, 1.0)]
    for one, accuracy in zip(jobs, (10.0, 20.0), strict=True):
        in_domains(one, accuracy, 30.0, 30.0, 30.0)
    t = domain_table(*jobs, printed=None, baseline=None)
    ax = report.against(t, "mu", column="Caltech", ledger=records.load())
    assert list(ax.lines[0].get_xydata().flat) == [0, 10, 1, 20]
    assert ax.get_ylabel() == "accuracy in Caltech"
    with pytest.raises(report.ReportError, match="measures of their own; choose one of Caltech, Amazon, Webcam, DSLR, Avg"):
        report.against(t, "mu", ledger=records.load())


def test_columns_whose_measure_does_not_fit():
    one = domain_job()
    in_domains(one, *PRINTED)

    def measured(**measures):
        return replace(domain_table(one, printed=None, baseline=None), columns=sweep.Axis("", {}, measures=measures))

    with pytest.raises(
        report.ReportError, match=r"unknown measure 'accuracy in Paris'; there are accuracy, .*, accuracy in DOMAIN"
    ):
        report.cells(measured(a="accuracy in Paris"))
    with pytest.raises(report.ReportError, match="json has no accuracy in MNIST"):
        report.cells(measured(a="accuracy in MNIST"))
    with pytest.raises(
        report.ReportError, match="the measure 'lead' needs a row that is the baseline; name it in the table"
    ):
        report.cells(measured(a="accuracy", b="lead"))
    with pytest.raises(report.ReportError, match="'rounds_to_target' needs a target"):
        report.cells(measured(a="accuracy", b="rounds_to_target"))
    a, b = report.cells(replace(measured(a="accuracy", b="rounds_to_target"), target=60.0))
    assert (a.mean, b.mean) == (pytest.approx(67.85), 1)
    short = domain_job(num_rounds=50)
    halves = replace(measured(a="accuracy", b="halfway"), jobs=(short,))
    assert [c.departures for c in report.cells(halves)] == [
        ["num_rounds 50 instead of 100"],
        ["num_rounds 25 instead of 100"],
    ]


# --- what is the paper's, and what is not -----------------------------------------------------------------------------


def test_settings_of_the_printed_table_are_no_departures():
    labels = {50: "parties=50,rounds=200", 100: "parties=100,rounds=500"}

    def departs(half=False, **given):
        one = job(dataset="cifar100", **given)
        named = {n: label.replace("200", "100").replace("500", "250") for n, label in labels.items()} if half else labels
        options = {"columns": "num_clients", "printed": "MOON Table 3", "measure": "halfway" if half else "accuracy"}
        return only(table(one, labels=named, **options)).departures

    assert departs(num_clients=50, num_rounds=200) == []
    assert departs(num_clients=100, num_rounds=500, participation=0.2) == []
    assert departs(num_clients=100, num_rounds=500) == ["participation 1.0 instead of 0.2"]
    assert departs(num_clients=50) == ["num_rounds 100 instead of 200"]
    assert departs(half=True, num_clients=50, num_rounds=200) == []
    assert departs(half=True, num_clients=50, num_rounds=100) == ["num_rounds 50 instead of 100"]


def test_a_short_run_with_identical_clients_departs_in_its_length_alone():
    options = {"rows": sweep.Axis("mu", {None: "FedAvg (mu=0)"}), "columns": "partition", "printed": "MOON Table 8"}
    options["labels"] = {"iid": "Top-1 accuracy", "dirichlet": "Top-1 accuracy"}

    def departs(**given):
        return only(table(job(**given), **options)).departures

    assert departs(partition="iid") == []
    assert departs(partition="iid", num_rounds=20) == ["num_rounds 20 instead of 100"]
    assert departs() == ["partition dirichlet instead of iid"]


def test_what_the_paper_does_not_state_is_told_and_no_departure():
    jobs = [job("SCAFFOLD", niid_bench=True, seed=seed) for seed in range(3)]
    for one in jobs:
        record(one, 66.6)
    cell = only(table(*jobs))
    assert (cell.departures, cell.not_stated, cell.verdict) == ([], ["niid_bench True"], "reproduced")
    assert "- All runs: niid bench True, of which the paper says nothing." in report.markdown(table(*jobs))
    assert only(table(*jobs, printed=None)).departures == ["niid_bench True instead of False"]


def tuned_table(accuracies, grid=(0.1, 0.7, 0.9), **more):
    """FedAvgM with a server momentum each, as in MOON's table 10: accuracies of seeds by momentum."""
    jobs = [job("FedAvgM", seed, server_momentum=b) for b in grid for seed in range(3)]
    for b, values in accuracies.items():
        for seed, accuracy in enumerate(values):
            one = job("FedAvgM", seed, server_momentum=b)
            if accuracy is None:
                record(one, status="diverged", curve=[10.0, None])
            else:
                record(one, accuracy)
    options = {"rows": sweep.Axis("dataset", {"cifar10": "CIFAR-10"}), "columns": sweep.Axis("method", {})}
    return replace(table(*jobs, printed="MOON Table 10", **more), best_of="server_momentum", **options)


def test_the_best_of_a_tuned_parameter_makes_the_cell():
    t = tuned_table({0.1: (60.0, 60.0, 60.0), 0.7: (67.0, 67.5, 68.0), 0.9: (68.4, 10.0, 60.0)})
    cell = only(t)
    assert (cell.row, cell.mean, cell.expected, cell.printed) == ("CIFAR-10", 67.5, 3, 67.1)
    assert cell.choice == ("server_momentum", 0.7, 3, 3)
    assert (cell.verdict, len(cell.paths)) == ("reproduced", 3)
    note = "- All runs: server momentum 0.7 is shown, the best of 3 values, chosen on the test set, as in the paper."
    assert note in report.markdown(t)
    assert report.frame(t)["choice"].tolist() == ["server_momentum 0.7"]
    assert report.recorded(t) == (9, 9)


def test_a_choice_among_fewer_values_is_reduced_and_says_so():
    t = tuned_table({0.1: (60.0, 60.0, 60.0), 0.7: (67.0, 67.5, 68.0), 0.9: (None, None, None)})
    cell = only(t)
    assert (cell.choice, cell.verdict) == (("server_momentum", 0.7, 2, 3), "reduced")
    assert "server momentum chosen from 2 instead of 3 values." in report.markdown(t)
    assert "the best of 2 values (of 3; the others are not there)" in report.markdown(t)
    for path in cell.paths:
        path.unlink()
    assert only(replace(t, jobs=t.jobs[3:])).verdict == "diverged"
    assert only(tuned_table({}, grid=(0.2, 0.8))).departures == ["server_momentum 0.2 instead of one of 0.1, 0.7, 0.9"]
    empty = only(tuned_table({}, grid=(0.7, 0.8)))
    assert (empty.departures, empty.expected) == ([], 6)


def test_the_best_number_of_rounds_is_the_lowest():
    curves = {0.1: [1.0, 1.0, 1.0, 26.0], 0.9: [1.0, 26.0, 1.0, 1.0]}
    jobs = [job(num_rounds=4)] + [job("FedAvgM", server_momentum=b, num_rounds=4) for b in curves]
    for one, curve in zip(jobs, [AVERAGE, *curves.values()], strict=True):
        record(one, curve[-1], curve=curve)
    options = {"printed": None, "baseline": "FedAvg", "best_of": "server_momentum"}
    assert report.cells(table(*jobs, **options, measure="rounds_to_baseline"))[1].choice.value == 0.9
    assert report.cells(table(*jobs, **options, measure="speedup"))[1].choice.value == 0.9
    assert report.cells(table(*jobs, **options))[1].choice.value == 0.1


# --- figures, overview, tuning ----------------------------------------------------------------------------------------


def test_curves_of_one_column_keep_their_colours():
    jobs = [job(m, dataset=d, num_rounds=2) for m in ("FedAvg", "FedProx") for d in ("cifar10", "digits")]
    for one in jobs[1:]:
        record(one, curve=[10.0, 20.0])
    t = table(*jobs, printed=None)
    ax = report.curves(t, column="CIFAR-10", ledger=records.load())
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["FedProx"]
    both = report.curves(t, column="digits", ledger=records.load())
    assert ax.lines[0].get_color() == both.lines[1].get_color()
    with pytest.raises(report.ReportError, match=r"no column 'mnist'; there are CIFAR-10, digits"):
        report.curves(t, column="mnist", ledger=records.load())


def test_against_a_column_parameter():
    jobs = [job(m, seed, local_epochs=e) for m in ("FedAvg", "FedProx") for e in (10, 5, 20) for seed in (0, 1)]
    for one in jobs:
        own = one.settings
        if own.method == "FedAvg" or own.local_epochs == 10:
            record(one, own.local_epochs + 4.0 * own.seed)
    t = table(*jobs, columns="local_epochs", labels={5: "E=5"}, printed=None)
    ax = report.against(t, "local_epochs", ledger=records.load())
    assert [text.get_text() for text in ax.get_xticklabels()] == ["E=5", "10", "20"]
    assert [list(line.get_xydata().flat) for line in ax.lines[:2]] == [[0, 7, 1, 12, 2, 22], [1, 12]]
    band = {tuple(v) for v in ax.collections[0].get_paths()[0].vertices}
    assert band >= {(0, 5), (0, 9), (2, 20), (2, 24)}
    assert ax.lines[0].get_marker() != ax.lines[1].get_marker()
    with pytest.raises(report.ReportError, match="do not differ in beta"):
        report.against(t, "beta", ledger=records.load())


def test_against_a_row_parameter_and_printed_values():
    jobs = [job(), *(job("FedProx", mu=mu) for mu in (5, 0.1))]
    record(jobs[1], 60.0)
    rows = sweep.Axis("mu", {None: "mu=0 (FedAvg)", 0.1: "mu=0.1", 5.0: "mu=5"})
    t = table(*jobs, rows=rows, printed="MOON Table 9")
    ax = report.against(t, "mu", ledger=records.load())
    assert [text.get_text() for text in ax.get_xticklabels()] == ["mu=0 (FedAvg)", "mu=0.1", "mu=5"]
    measured, printed = ax.lines[0], ax.lines[1]
    assert list(measured.get_xydata().flat) == [2, 60.0]
    assert sorted(map(tuple, printed.get_xydata())) == [(0, 66.3), (1, 66.5), (2, 69.1)]
    assert (printed.get_fillstyle(), printed.get_linestyle()) == ("none", "None")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["CIFAR-10", "printed in the paper"]
    empty = report.against(replace(t, printed=None, jobs=(jobs[0], jobs[2])), "mu", ledger=records.load())
    assert empty.texts[0].get_text() == "nothing recorded"


def test_against_a_parameter_that_tells_runs_of_a_row_apart():
    jobs = [job(), *(job("FedAvgM", server_momentum=b) for b in (0.1, 0.9))]
    for one, accuracy in zip(jobs, (50.0, 60.0, 70.0), strict=True):
        record(one, accuracy)
    ax = report.against(table(*jobs, printed=None), "server_momentum", ledger=records.load())
    level = next(line for line in ax.lines if line.get_linestyle() == "--")
    assert (set(level.get_ydata()), level.get_label()) == ({50.0}, "FedAvg")
    assert [list(line.get_xydata().flat) for line in ax.lines if line.get_label() == "FedAvgM"] == [[0, 60, 1, 70]]


def test_figures_of_tables():
    jobs = [job(dataset=d, num_rounds=2) for d in ("cifar10", "digits")]
    for one in jobs:
        record(one, curve=[10.0, 20.0])
    t = table(*jobs, printed=None)
    drawn = figures.svg(t, records.load()).decode()
    assert drawn.count("communication round") == 2  # a panel per column
    assert figures.svg(replace(t, measure="seconds_ratio", baseline="FedAvg"), records.load()) is None
    many = [job("FedProx", mu=mu, num_rounds=2) for mu in range(1, 22)]
    for one in many:
        record(one, curve=[10.0, 20.0])
    assert figures.svg(table(*many[1:], rows="mu", printed=None), records.load()) is not None
    assert figures.svg(table(*many, rows="mu", printed=None), records.load()) is None  # of 21 curves nobody finds one


def test_overview(tmp_path, monkeypatch):
    t = recorded(66.0)
    two = table(*t.jobs, job("FedProx"), name="two", title="Two")
    monkeypatch.setattr(sweep, "read", lambda path: {"moon-1": t, "two": two})
    monkeypatch.setattr(report, "committed", records.load)
    assert report.overview(["two"]).data.splitlines() == [
        "| table | what | runs recorded | tier |",
        "| :-- | :-- | :-- | :-- |",
        "| [two](../results/tables/two.md) | Two | 1 of 2 | hours-gpu |",
    ]
    with pytest.raises(report.ReportError, match="no table 'three'"):
        report.overview(["three"])


def test_tuned():
    accuracy = {0: (50.0, 60.0, 55.0), 1: (50.0, 57.0, 62.0)}
    held_out = {0: (50.0, 51.0, 55.0), 1: (40.0, 41.0, 42.0)}
    jobs = [job("FedProx", seed, mu=mu, validation=0.1) for seed in (0, 1) for mu in (0.01, 0.1, 1.0)]
    t = table(*jobs, rows="mu", printed=None)
    assert report.tuned(t).empty
    for i, one in enumerate(jobs):
        path = record(one, accuracy[i // 3][i % 3])
        content = json.loads(path.read_text())
        content["final"]["validation"] = held_out[i // 3][i % 3]
        path.write_text(json.dumps(content))
    found = report.tuned(t)
    assert found.index.tolist() == [0, 1, "all"]
    assert found["compared"].tolist() == ["3 of 3"] * 3
    assert found["by_test"].tolist() == [0.1, 1.0, 0.1]  # the means are 50, 58.5, 58.5: of equally good ones the first
    assert found["by_validation"].tolist() == [1.0, 1.0, 1.0]
    assert found["accuracy_by_test"].tolist() == [60.0, 62.0, 58.5]
    assert found["accuracy_by_validation"].tolist() == [55.0, 62.0, 58.5]
    assert found["gain"].tolist() == [5.0, 0.0, 0.0]
    path.unlink()
    found = report.tuned(t)
    assert found["compared"].tolist() == ["3 of 3", "2 of 3", "2 of 3"]
    assert found.loc["all", "by_validation"] == 0.1
    with pytest.raises(report.ReportError, match="holds out no training images"):
        report.tuned(table(job(), rows="mu", printed=None))
    with pytest.raises(report.ReportError, match="several runs have seed 0 and mu"):
        report.tuned(table(*jobs, *jobs, rows="mu", printed=None))


def test_the_readme_tells_verdicts_and_where_they_come_from(tmp_path, monkeypatch):
    t = recorded(66.0)
    many = {"t": t, "own": replace(t, name="own", printed=None), "none": table(job("FedProx"), name="none")}
    monkeypatch.setattr(sweep, "read", lambda path: many)
    text = report.readme((ROOT / "README.md").read_text(), tmp_path, records.load())
    (line,) = [x for x in text.splitlines() if x.startswith("| [00_foundations]")]
    assert line.endswith(
        "| [3 tables](results/tables/README.md#00_foundations), 2 with runs"
        "<br>cells with a printed number: 1 indicative, 1 not run |"
    )
    claim = line.split(" | ")[1]
    assert claim.startswith("A federated method is a short difference from FedAvg. On CIFAR-10") and claim.count(". ") == 1
    assert report.readme(text, tmp_path, records.load()) == text
    with pytest.raises(report.ReportError, match="lacks the marks"):
        report.readme("# FedNB", tmp_path, records.load())
