"""Tables: every verdict by hand, nothing hidden (departures, diverged, stale), the same bytes from the same records."""

import json
import math
import re
from dataclasses import replace

import matplotlib.pyplot as plt
import pytest
from fednb.papers.foundations import METHODS

from fednb import compare, papers, report, runs, settings, sweep
from fednb.data import ROOT
from fednb.measures import MEASURES

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
    return sweep.Job("00_foundations", "t", parameters, resolved, runs.record_path(resolved, "f" * 12), "hours-gpu")


def record(job, accuracy=66.3, *, status="finished", note="", version=runs.RESULTS_VERSION, split="p", std=None, curve=None):
    """Write the record of a job as `runs.run` does; returns its path."""
    rounds = len(curve or []) or job.settings.num_rounds
    final = {"accuracy": accuracy, "best": accuracy + 1, "mean_of_last_5": accuracy - 1}
    final |= {} if std is None else {"accuracy_std": std}
    content = {
        "key": job.path.stem[-12:],
        "results_version": version,
        "status": status,
        "settings": job.settings.flat(),
        "departures": settings.departures(job.settings),
        "dataset": {"name": job.settings.dataset, "note": note},
        "final": final if status == "finished" else {},
        "seconds_per_round": 12.34,
        "commit": "abc",
        "partition": {"hash": f"{split}{job.settings.seed}"},
        "metrics": {"round": list(range(1, rounds + 1)), "accuracy": curve or [accuracy] * rounds},
    }
    runs.write_atomically(job.path, json.dumps(content if status != "failed" else content | {"metrics": {}}))
    return job.path


def table(*jobs, rows="method", columns="dataset", labels=None, printed="MOON Table 1", **more):
    labels = {"cifar10": "CIFAR-10"} if labels is None else labels
    fields = {"name": "moon-1", "notebook": "00_foundations", "title": "MOON, Table 1: CIFAR-10", "printed": printed}
    fields |= {"rows": sweep.Axis(rows, {}), "columns": sweep.Axis(columns, labels), "measure": "accuracy"}
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
    record(old, 10.0, version=runs.RESULTS_VERSION - 1)
    t = table(one, job(seed=1))
    assert (only(t).values, only(t).stale, only(t).expected) == ((66.3,), 1, 2)
    assert "Stale records, of an older results version, which do not count: 1." in report.markdown(t)
    record(one, 66.3, version=runs.RESULTS_VERSION - 1)  # even under the file name of today
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
    with pytest.raises(runs.RunError, match="not a readable run record"):
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
    assert asked == [papers.folder() / "sweeps"]
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
    ax = report.curves(table(*jobs), ledger=runs.load())
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
        assert report.curves(table(nothing), ledger=runs.load()).texts[0].get_text() == "nothing recorded"


def test_the_sweep_files_of_the_project_fit_the_printed_tables(tmp_path):
    sweeps = ROOT / "notebooks" / "sweeps"
    written = {path.name for path in report.write_all(sweeps, tmp_path)}
    assert written == {"README.md"} | {f"{name}.{kind}" for name in sweep.read(sweeps) for kind in ("md", "csv")}


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
    ]
    assert written == [tmp_path / name for name in names]
    before = [path.read_bytes() for path in written]
    assert (tmp_path / "tables" / "moon-1.md").read_text() == report.markdown(tables["moon-1"])
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
