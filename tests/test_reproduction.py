"""The reproduction report: each verdict by hand, claims in pairs, ladders one setting at a time, no typed number."""

import ast
import functools
import itertools
import math
import re
import shlex
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats
from test_report import folder, job, record, table  # noqa: F401 (a fixture that every test here uses)

from fednb import ROOT
from fednb.__main__ import _assignment
from fednb.experiments import ledger as records
from fednb.experiments import sweep
from fednb.reporting import report, reproduction, statistics
from fednb.reporting.compare import ReportError
from fednb.reporting.measures import MEASURES


@functools.cache
def project():
    """The tables of the project's sweep files."""
    return sweep.read(ROOT / "notebooks" / "sweeps")


@functools.cache
def described():
    return yaml.safe_load(reproduction.CLAIMS.read_text(encoding="utf-8"))


# --- the rule ---------------------------------------------------------------------------------------------------------


# t(0.975, 2 degrees of freedom) = 4.3027; leads m − d, m, m + d have the half width 2.4841 d at 95 %, 1.6859 d at 90 %
@pytest.mark.parametrize(
    ("leads", "verdict"),
    [
        ((), "not run"),
        ((5.0,), "indicative"),
        ((5.0, 5.1), "indicative"),
        ((1.6, 2.6, 3.6), "holds"),
        ((1.4, 2.4, 3.4), "open"),  # it would hold at 90 %
        ((-1.4, -2.4, -3.4), "open"),
        ((-1.6, -2.6, -3.6), "does not hold"),
        ((0.0, 0.0, 0.0), "open"),
        ((0.5, 0.5, 0.5), "holds"),
        ((math.inf, 1.0, 1.0), "open"),
        ((math.inf,), "indicative"),
        ((-5.0,), "indicative (against)"),
        ((1.0, -1.1), "indicative (against)"),
        ((-0.04,), "indicative"),
    ],
)
def test_each_verdict(leads, verdict):
    judged = reproduction.judge(leads)
    assert (judged.verdict, judged.seeds) == (verdict, len(leads))
    assert verdict in reproduction.VERDICTS
    if len(leads) >= 3 and math.isfinite(sum(leads)):
        assert (judged.level > 0.95) == (verdict in ("holds", "does not hold"))


def test_the_printed_lead_is_inside_or_not():
    judged = reproduction.judge((1.0, 2.0, 3.0))
    assert judged.half == pytest.approx(2.4841, abs=1e-4)
    assert [judged.inside(value) for value in (-0.48, -0.49, 4.48, 4.49, None)] == [True, False, True, False, None]
    assert reproduction.judge((1.0,)).inside(1.0) is None


def test_confidence_is_one_minus_the_p_value():
    values = [0.3, 1.1, -0.2, 0.9]
    assert statistics.confidence(values) == pytest.approx(1 - stats.ttest_1samp(values, 0).pvalue)
    mean, half = statistics.interval(values, statistics.confidence(values))
    assert abs(mean) == pytest.approx(half)
    assert (statistics.confidence([2.0, 2.0]), statistics.confidence([0.0, 0.0])) == (1, 0)
    assert math.isnan(statistics.confidence([1.0]))
    told = [reproduction._level(level) for level in (0.9499999, 0.95, 0.9996, 1.0, 0.0, math.nan, None)]
    assert told == ["94.9%", "95.0%", "> 99.9%", "> 99.9%", "0.0%", "", ""]


def test_interval_of_a_difference_without_pairs():
    a, b = [1.0, 2.0, 4.0], [0.0, 0.5]
    mean, half = statistics.interval_of_difference(a, b)
    low, high = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert (mean - half, mean + half) == pytest.approx((low, high))
    assert statistics.interval_of_difference([2.0, 2.0], [1.0, 1.0]) == (1.0, 0.0)
    assert math.isnan(statistics.interval_of_difference([2.0], [1.0, 1.0])[1])


# --- claims -----------------------------------------------------------------------------------------------------------


CLAIM = {"claim": "FedProx is ahead", "where": "Table 1", "ahead": "FedProx", "behind": "FedAvg", "column": "CIFAR-10"}


def two_rows(fedprox, fedavg, *, split="p", **more):
    """A table of two rows with a run per accuracy."""
    jobs = []
    for method, values in (("FedProx", fedprox), ("FedAvg", fedavg)):
        for seed, accuracy in enumerate(values):
            jobs.append(job(method, seed, num_rounds=4))
            record(jobs[-1], accuracy, curve=[0.0, 0.0, 0.0, accuracy], split=split if method == "FedProx" else "p")
    return table(*jobs, name="t", **more)


def judged(monkeypatch, tables, **more):
    entry = CLAIM | {"runs": ["t"]} | more
    monkeypatch.setattr(reproduction, "_described", lambda: {"P": {"notebook": "00_foundations", "claims": [entry]}})
    (claim,) = reproduction.claims("P", tables, records.load())
    return claim


def test_a_claim_is_judged_in_pairs(monkeypatch):
    claim = judged(monkeypatch, {"t": two_rows((11.0, 51.1, 90.9), (10.0, 50.0, 90.0))})
    assert claim.verdict == "holds"  # seeds scatter forty times as much as they differ
    assert claim.best.judged.lead == pytest.approx(1.0)
    assert claim.printed == pytest.approx(66.9 - 66.3)
    turned = judged(monkeypatch, {"t": claim.best.table}, ahead="FedAvg", behind="FedProx")
    assert (turned.verdict, turned.printed) == ("does not hold", pytest.approx(66.3 - 66.9))


def test_rows_on_different_splits_are_no_pairs(monkeypatch):
    t = two_rows((11.0, 51.0, 91.0), (10.0, 50.0, 90.0), split="other")
    with pytest.raises(ReportError, match=r"'FedProx is ahead': t: FedProx and FedAvg cannot be paired: seed 0 splits"):
        judged(monkeypatch, {"t": t})


def test_fewer_rounds_and_a_smaller_spread_are_ahead(monkeypatch):
    t = two_rows((10.0, 10.0, 10.0), (30.0, 30.1, 29.9), printed=None, measure="rounds_to_target", target=5)
    claim = judged(monkeypatch, {"t": t})
    assert (claim.verdict, claim.best.judged.lead) == ("open", 0)  # both get there in the last round
    t = two_rows((10.0, 10.0, 10.0), (30.0, 30.1, 29.9), printed=None, measure="rounds_to_target", target=20)
    claim = judged(monkeypatch, {"t": t})
    assert (claim.verdict, claim.best.judged.lead) == ("open", None)
    assert "not reached by every run (3 seeds)" in reproduction._table_of_claims([claim])
    for i, one in enumerate(t.jobs):
        record(one, 50.0, std=(1.0 if one.settings.method == "FedProx" else 2.0) + i / 100)
    claim = judged(monkeypatch, {"t": replace(t, measure="accuracy_std", target=None)})
    assert (claim.verdict, claim.best.judged.lead) == ("holds", pytest.approx(1.03))


def test_what_is_nearest_to_the_paper_counts(monkeypatch):
    def digits(*leads):
        jobs = [job(method, seed, dataset="digits") for method in ("FedProx", "FedAvg") for seed in range(len(leads))]
        for one in jobs:
            record(one, 50.0 + (one.settings.method == "FedProx") * leads[one.settings.seed])
        return table(*jobs, name="digits", labels={"digits": "CIFAR-10"}, printed=None)

    tables = {"t": two_rows((51.0,), (50.0,)), "digits": digits(-1, -1, -1)}
    tables["full"] = table(job("FedProx", 5), job("FedAvg", 5), name="full")
    claim = judged(monkeypatch, tables, runs=["full", "t", "digits"])
    assert (claim.verdict, claim.best.table.name) == ("indicative", "t")
    assert [finding.judged.verdict for finding in claim.findings] == ["not run", "indicative", "does not hold"]
    lines = reproduction._table_of_claims([claim]).splitlines()[2:]
    assert ["[t](tables/t.md)" in lines[0], "[digits](tables/digits.md): digits" in lines[1], len(lines)] == [True, True, 2]
    assert "cifar10, 4 rounds instead of 100" in lines[0]
    assert reproduction._told([claim]) == "1 indicative"
    claim = judged(monkeypatch, tables, runs=["full", "digits"])
    assert reproduction._told([claim]) == "on embedded data alone 1 does not hold"
    tables["more"] = replace(two_rows((51.0, 51.1, 51.2), (50.0, 50.0, 50.0)), name="more")
    assert judged(monkeypatch, tables, runs=["t", "more", "digits"]).verdict == "holds"
    assert judged(monkeypatch, tables, runs=["full"]).verdict == "not run"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ahead": "MOON"}, r"t has no row 'MOON' with column 'CIFAR-10'"),
        ({"column": "CIFAR-100"}, r"t has no row 'FedProx' with column 'CIFAR-100'"),
        ({"runs": ["u"]}, r"there is no 'u'"),
    ],
)
def test_a_claim_about_what_there_is_not(monkeypatch, wrong, message):
    with pytest.raises(ReportError, match=rf"data/claims.yaml, P, 'FedProx is ahead': {message}"):
        judged(monkeypatch, {"t": two_rows((51.0,), (50.0,))}, **wrong)


# --- side by side -----------------------------------------------------------------------------------------------------


def test_a_method_with_a_diverged_run_gets_no_verdict_side_by_side(monkeypatch):
    """The differences that are left would be those of its lucky seeds."""
    leads = {
        "FedProx": (3.0, 4.0, 5.0),
        "SCAFFOLD": (-3.0, -4.0, -5.0),
        "FedAvgM": (9.0, 9.1, 9.2),
        "SOLO": (1.0, -1.0, 0.5),
    }
    jobs = [job(method, seed) for method, of in leads.items() for seed in range(len(of))]
    baseline = [job("FedAvg", seed) for seed in range(3)]
    for one in (*jobs, *baseline):
        record(one, 50.0 + leads.get(one.settings.method, (0, 0, 0))[one.settings.seed])
    lost, few = job("FedAvgM", 3), job("FedProx", 0, mu=0.5)
    record(lost, status="diverged")
    record(few, 48.0)
    tables = {"t": table(*jobs, *baseline, lost, name="t", printed=None)}
    tables["u"] = table(few, job("SOLO", 7), *baseline, name="u", printed=None)
    told = {"notebook": "00_foundations", "note": "Alike.", "baseline": "FedAvg", "column": "CIFAR-10"}
    told["tables"] = {"t": "small", "u": "large"}
    monkeypatch.setattr(reproduction, "_side_by_side", lambda: told)
    monkeypatch.setattr(reproduction, "_described", lambda: {})
    found = reproduction.compared(tables, records.load())
    assert {name: one.verdict for name, one in found["small"].items()} == {
        "FedProx": "ahead",
        "SCAFFOLD": "behind",
        "FedAvgM": "diverged",
        "SOLO": "open",
    }
    assert {name: one.verdict for name, one in found["large"].items()} == {"FedProx": "indicative", "SOLO": "not run"}
    text = reproduction.markdown(tables, records.load())
    assert "| against FedAvg | [small](tables/t.md) | [large](tables/u.md) |" in text
    for line in (
        "FedProx | +4.0 ± 2.5 ▲ | -2.0",
        "SCAFFOLD | -4.0 ± 2.5 ▼ | ",
        "FedAvgM | +9.1 ± 0.2 † | ",
        "SOLO | +0.2 ± 2.6 | not run",
    ):
        assert f"| {line} |" in text, text
    counted = "6 comparisons with FedAvg: 1 ahead, 1 behind, 1 open, 1 indicative, 1 diverged, 1 not run"
    assert counted in text
    assert reproduction.summary("00_foundations", tables, records.load())[-1].endswith(f": {counted}")
    told["tables"] = {"v": "other"}
    with pytest.raises(ReportError, match="side by side: there is no table 'v'"):
        reproduction.compared(tables, records.load())


def test_the_projects_comparison_has_every_method_on_every_split():
    found = reproduction.compared(project(), records.load())
    assert len(found) == 5
    assert {len(of) for of in found.values()} == {10}


# --- ladders ----------------------------------------------------------------------------------------------------------


def steps(monkeypatch, *changes, third=None, values=((50.0, 60.0, 70.0), (51.0, 61.1, 70.9), (40.0, 41.0, 42.0))):
    """A ladder over the learning rate and then the momentum, as `changes` name them."""
    settings = [{"lr": 0.01}, {"lr": 0.02}, third or {"lr": 0.02, "momentum": 0.5}]
    jobs = [[job(seed=seed, **given) for seed in range(len(of))] for given, of in zip(settings, values, strict=True)]
    for of_step, accuracies, split in zip(jobs, values, "ppq", strict=True):
        for one, accuracy in zip(of_step, accuracies, strict=True):
            record(one, accuracy, split=split)
    names = {name: given for name, given in zip("cba", settings[::-1], strict=True)}
    t = table(*itertools.chain(*jobs), name="t", printed=None, rows=sweep.Axis("method", {}, names))
    rows = [{"row": "a"}, *({"row": row, "changes": change} for row, change in zip("bc", changes, strict=False))]
    told = {"notebook": "00_foundations", "ladder": {"table": "t", "column": "CIFAR-10", "steps": rows}}
    monkeypatch.setattr(reproduction, "_described", lambda: {"P": told})
    return reproduction.ladder("P", {"t": t}, records.load())


def test_a_ladder_tells_each_steps_difference(monkeypatch):
    first, second, third, whole = steps(monkeypatch, "lr", "momentum")
    assert (first.cell.mean, first.difference) == (60.0, None)
    assert (second.difference, second.paired) == (pytest.approx(1.0), True)
    assert second.half == pytest.approx(0.2484, abs=1e-3)
    assert (third.difference, third.paired) == (pytest.approx(41 - 61), False)  # another split: not in pairs
    assert third.half == pytest.approx(statistics.interval_of_difference((40, 41, 42), (51.0, 61.1, 70.9))[1])
    assert (whole.difference, whole.paired) == (pytest.approx(41 - 60), False)
    text = reproduction._table_of_rungs([first, second, third, whole], {})
    assert "| b | 61.0 ± 24.7 | 3 | +1.0 ± 0.2 |" in text
    assert re.search(r"\| c \| 41.0 ± 2.5 \| 3 \| -20.0 ± [\d.]+ \(another split, so not in pairs\) \|", text)
    assert "| *all steps together* |  |  | -19.0 ± " in text


def test_a_step_that_is_not_run_is_told(monkeypatch):
    rungs = steps(monkeypatch, "lr", "momentum", values=((50.0,), (51.0,), (40.0,)))
    assert math.isnan(rungs[1].half)
    runs_folder = records.runs_folder()
    for path in runs_folder.glob("*.json"):
        if records.read(path)["settings"]["momentum"] == 0.5:
            path.unlink()
    t = table(*[rung.cell.job for rung in rungs[:3]], name="t", printed=None)
    rungs = reproduction.ladder("P", {"t": replace(t, rows=sweep.Axis("method", {}, names_of(rungs)))}, records.load())
    assert reproduction._table_of_rungs(rungs, {}).splitlines()[-2:] == [
        "| c | not run |  |  |",
        "| *all steps together* |  |  |  |",
    ]


def names_of(rungs):
    flat = [rung.cell.job.settings.flat() for rung in rungs[:3]]
    return {name: {"lr": s["lr"], "momentum": s["momentum"]} for name, s in zip("cba", flat[::-1], strict=True)}


@pytest.mark.parametrize(
    ("changes", "third", "message"),
    [
        (("lr", "lr"), None, "step 'c' should change lr alone, and changes momentum"),
        (("momentum", "momentum"), None, "step 'b' should change momentum alone, and changes lr"),
        (
            ("lr", "momentum"),
            {"lr": 0.03, "momentum": 0.5},
            "step 'c' should change momentum alone, and changes lr, momentum",
        ),
        (("lr", "measure"), None, "step 'c' should change measure alone, and changes momentum"),
    ],
)
def test_a_step_changes_one_setting_alone(monkeypatch, changes, third, message):
    with pytest.raises(ReportError, match=message):
        steps(monkeypatch, *changes, third=third)


def test_counters_that_go_on_from_client_to_client():
    final = {"clients": [50.0, 0.0], "clients/prototype": [100.0, 100.0]}
    run = {"record": {"final": final, "partition": {"test_sizes": [2, 1]}}}
    read = MEASURES["accuracy/counted on"].read
    # hits and images: 1 of 2, 3 of 4; then 3 of 5, 4 of 6
    assert read(run, {}).value == pytest.approx(np.mean([75, 100 * 4 / 6]))
    assert read({"record": {"final": {"clients": [50.0]}}}, {}) is None


# --- the project's own ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("paper", ["MOON", "FedProc", "FedSSC", "FedProto", "FedPLCC"])
def test_claims_and_ladders_name_what_there_is(paper):
    found = reproduction.claims(paper, project(), records.load())
    assert len(found) >= 4
    assert {claim.verdict for claim in found} == {"not run"}
    assert len(reproduction.ladder(paper, project(), records.load())) >= 4
    notebook = described()[paper]["notebook"]
    assert any(claim.printed is not None for claim in found)
    assert {project()[f.table.name].notebook for claim in found for f in claim.findings} <= {notebook, "06_side_by_side"}
    assert all(not claim.findings[0].embedded for claim in found)  # the paper's own setting is the first


# what a text may have digits in: numbers of tables and the like, names, and settings
NAMES = re.compile(
    r"(Tables?|Figures?|sections?|appendix|notebook) ([IVX]+(-[A-Z])?|[A-Z]\.\d|\d+(\.\d)?)( and \d)?|"
    r"CIFAR-100?|Digit-5|Office-10|(β|λ|μ|n) = [\d.]+"
)


def texts(value):
    if isinstance(value, dict):
        for name, one in value.items():
            if name in ("claim", "where", "reason", "note", "title"):
                yield one
            yield from texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)


def test_no_number_in_the_claims_is_typed():
    every = list(texts(described()))
    assert len(every) > 60
    for text in every:
        rest = NAMES.sub("", re.sub(r"\[[\w-]+\]\(tables/[\w-]+\.md\)", "", text))
        assert not re.search(r"\d|(one|two|three|each|every) seeds?|points", rest), text


def test_no_number_in_the_sentences_of_the_report_is_typed():
    tree = ast.parse((ROOT / "fednb" / "reproduction.py").read_text(encoding="utf-8"))
    documented = (ast.Module, ast.FunctionDef, ast.ClassDef)
    docs = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, documented) and ast.get_docstring(node)}
    formats = {id(one) for node in ast.walk(tree) if isinstance(node, ast.FormattedValue) for one in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs | formats:
            assert not re.search(r"\d", node.value.replace("> 99.9%", "").replace("utf-8", "")), node.value


def test_the_line_that_makes_a_run_again_has_its_settings():
    ledger, seen = records.load(ROOT / "results" / "runs"), set()
    wanted = {
        path: records.recipe(record["settings"]) for path, record in zip(ledger["path"], ledger["record"], strict=True)
    }
    for t in project().values():
        for cell in report.cells(t, ledger):
            for seed, path in zip(cell.seeds, cell.paths, strict=True):
                command = report._command(t, cell, seed)
                if command not in seen:
                    seen.add(command)
                    assert command.startswith("python -m fednb run ")
                    notebook, *words = shlex.split(command.removeprefix("python -m fednb run "))
                    again = sweep.job(notebook, dict(map(_assignment, words))).settings
                    assert records.recipe(again.flat()) == wanted[path], command
    assert len(seen) > 100


def test_every_cell_of_a_page_leads_to_its_records_and_to_the_line_that_makes_them_again():
    t = two_rows((51.0, 52.0), (50.0,))
    page = report.markdown(t, again=True)
    lines = page.splitlines()
    row = next(line for line in lines if line.startswith("| FedProx"))
    assert re.search(r"\| \[0\]\(\.\./runs/\S+\) \[1\]\(\.\./runs/\S+\) \[again\]\(#again-0\) \|$", row)
    assert lines[-2:] == [
        '- <a id="again-0"></a>FedProx: `python -m fednb run 00_foundations method=FedProx dataset=cifar10 '
        "num_rounds=4 seed=0`, and with `seed=1`",
        '- <a id="again-1"></a>FedAvg: `python -m fednb run 00_foundations method=FedAvg dataset=cifar10 '
        "num_rounds=4 seed=0`",
    ]
    plain = report.markdown(t)
    assert "#again" not in plain
    assert page.startswith(plain.replace(".json) |", ".json) [again](#again-0) |", 1).split("FedAvg")[0])
    assert "#again" not in report.markdown(table(job("SOLO")), again=True)  # nothing to make again


def test_the_report_of_other_sweeps_leaves_the_papers_out():
    t = two_rows((51.0,), (50.0,))
    text = reproduction.markdown({"t": t}, records.load())
    assert text.startswith("# Reproduction report\n")
    assert "MOON" not in text
    assert "2 in all" in text
    assert reproduction.markdown({}, pd.DataFrame()).startswith("# Reproduction report\n")
