"""Claims: each verdict by hand, in pairs; ladders one setting at a time; the file of claims; no typed number."""

import functools
import itertools
import math
import re
import shlex

import pytest
import yaml
from made_up import job, record, table
from scipy import stats

from fednb import ROOT, reporting
from fednb.__main__ import _assignment
from fednb.experiments import ledger, sweep
from fednb.reporting import claims, render
from fednb.reporting.statistics import confidence, interval, interval_of_difference
from fednb.reporting.tables import ReportError, cells, cells_of_tables


@functools.cache
def project():
    """The tables of the project's sweep files, and their cells without any record."""
    tables = sweep.read(ROOT / "notebooks" / "sweeps")
    return tables, cells_of_tables(tables.values(), ledger.load(ROOT / "nowhere"))


# t(0.975, 2 degrees of freedom) = 4.3027; leads m − d, m, m + d have the half width 2.4841 d at 95 %, 1.6859 d at 90 %
@pytest.mark.parametrize(
    ("leads", "verdict"),
    [
        ((), "not run"),
        ((5.0, 5.1), "indicative"),
        ((1.6, 2.6, 3.6), "holds"),
        ((1.4, 2.4, 3.4), "open"),  # it would hold at 90 %
        ((-1.6, -2.6, -3.6), "does not hold"),
        ((0.0, 0.0, 0.0), "open"),
        ((0.5, 0.5, 0.5), "holds"),
        ((math.inf, 1.0, 1.0), "open"),
        ((math.inf,), "indicative"),
        ((1.0, -1.1), "indicative (against)"),
        ((-0.04,), "indicative"),
    ],
)
def test_each_verdict(leads, verdict):
    judged = claims.judge(leads)
    assert (judged.verdict, judged.seeds) == (verdict, len(leads))
    if len(leads) >= 3 and math.isfinite(sum(leads)):
        assert (judged.level > 0.95) == (verdict in ("holds", "does not hold"))


def test_the_printed_lead_is_inside_or_not():
    judged = claims.judge((1.0, 2.0, 3.0))
    assert judged.half == pytest.approx(2.4841, abs=1e-4)
    assert [judged.inside(value) for value in (-0.48, -0.49, 4.48, 4.49, None)] == [True, False, True, False, None]
    assert claims.judge((1.0,)).inside(1.0) is None


def test_confidence_is_one_minus_the_p_value_and_welchs_interval_is_scipys():
    values = [0.3, 1.1, -0.2, 0.9]
    assert confidence(values) == pytest.approx(1 - stats.ttest_1samp(values, 0).pvalue)
    mean, half = interval(values, confidence(values))
    assert abs(mean) == pytest.approx(half)
    assert (confidence([2.0, 2.0]), confidence([0.0, 0.0])) == (1, 0) and math.isnan(confidence([1.0]))
    told = [render.level(level) for level in (0.9499999, 0.95, 0.9996, 0.0, math.nan, None)]
    assert told == ["94.9%", "95.0%", "> 99.9%", "0.0%", "", ""]
    a, b = [1.0, 2.0, 4.0], [0.0, 0.5]
    mean, half = interval_of_difference(a, b)
    assert (mean - half, mean + half) == pytest.approx(tuple(stats.ttest_ind(a, b, equal_var=False).confidence_interval()))
    assert interval_of_difference([2.0, 2.0], [1.0, 1.0]) == (1.0, 0.0)
    assert math.isnan(interval_of_difference([2.0], [1.0, 1.0])[1])


# --- leads and claims -------------------------------------------------------------------------------------------------


def two_rows(fedprox, fedavg, *, split="p", **more):
    """A table of two rows with a run per accuracy."""
    jobs = []
    for method, values in (("FedProx", fedprox), ("FedAvg", fedavg)):
        for seed, accuracy in enumerate(values):
            jobs.append(job(method, seed, num_rounds=4))
            curve = [0.0, 0.0, 0.0, accuracy]
            record(jobs[-1], accuracy, curve=curve, split=split if method == "FedProx" else "p")
    return table(*jobs, **{"name": "t"} | more)


def test_paired_and_lead_in_words():
    t = two_rows((67.0, 69.0, 68.0, 99.0), (66.0, 67.0, 65.0))  # differences 1, 2, 3; the fourth has no partner
    assert reporting.paired(t, "FedProx", "FedAvg") == (2.0, pytest.approx(4.30265273 / math.sqrt(3)), 3)
    assert reporting.paired(t, "FedAvg", "FedProx")[0] == -2.0
    assert reporting.lead(t, "FedProx", "FedAvg") == "+2.0 ± 2.5 points over 3 seeds: no difference shown"
    assert reporting.lead(two_rows((67.0,), (66.0,)), "FedProx", "FedAvg") == "+1.0 points (one seed: indicative)"
    t = two_rows((68.0, 69.0, 68.0), (66.0, 67.0, 65.0))
    assert reporting.lead(t, "FedAvg", "FedProx") == "-2.3 ± 1.4 points over 3 seeds: behind"
    with pytest.raises(ReportError, match=r"no row 'MOON' .*there are FedProx \| CIFAR-10"):
        reporting.paired(t, "MOON", "FedAvg")
    record(t.jobs[1], 69.0, split="another ")
    with pytest.raises(ReportError, match="cannot be paired: seed 1 splits the data differently"):
        reporting.paired(t, "FedProx", "FedAvg")
    for one in t.jobs[:3]:
        one.path.unlink()
    assert reporting.lead(t, "FedProx", "FedAvg") == "not run"
    with pytest.raises(ReportError, match="share no finished seed"):
        reporting.paired(t, "FedProx", "FedAvg")


def test_fewer_rounds_are_ahead():
    prox, avg = ([job(m, seed, num_rounds=9) for seed in range(3)] for m in ("FedProx", "FedAvg"))
    t = table(*prox, *avg, printed=None, measure="rounds_to_target", target=60)
    for seed, fewer in enumerate((2, 3, 2)):
        record(prox[seed], curve=[50.0] * (6 - fewer) + [60.0] * (3 + fewer))
        record(avg[seed], curve=[50.0] * 6 + [60.0] * 3)
    assert reporting.lead(t, "FedProx", "FedAvg") == "-2.3 ± 1.4 rounds over 3 seeds: ahead"
    assert reporting.lead(t, "FedAvg", "FedProx") == "+2.3 ± 1.4 rounds over 3 seeds: behind"
    record(avg[1], curve=[50.0] * 9)
    assert reporting.lead(t, "FedProx", "FedAvg") == "not reached by every run of 3 seeds"


def judged(monkeypatch, *tables, **more):
    entry = {"claim": "FedProx is ahead", "where": "Table 1", "ahead": "FedProx", "behind": "FedAvg", "column": "CIFAR-10"}
    entry |= {"runs": [table.name for table in tables]} | more
    monkeypatch.setattr(claims, "described", lambda: {"P": {"notebook": "00_foundations", "claims": [entry]}})
    (claim,) = claims.claims("P", cells_of_tables(tables))
    return claim


def test_a_claim_is_judged_in_pairs(monkeypatch):
    t = two_rows((11.0, 51.1, 90.9), (10.0, 50.0, 90.0))
    claim = judged(monkeypatch, t)
    assert claim.verdict == "holds"  # seeds scatter forty times as much as they differ
    assert (claim.told[0].judged.lead, claim.printed) == (pytest.approx(1.0), pytest.approx(66.9 - 66.3))
    turned = judged(monkeypatch, t, ahead="FedAvg", behind="FedProx")
    assert (turned.verdict, turned.printed) == ("does not hold", pytest.approx(66.3 - 66.9))
    with pytest.raises(ReportError, match=r"'FedProx is ahead': t: FedProx and FedAvg cannot be paired: seed 0 splits"):
        judged(monkeypatch, two_rows((11.0,), (10.0,), split="other"))


def test_what_is_nearest_to_the_paper_counts(monkeypatch):
    jobs = [job(method, seed, dataset="digits") for method in ("FedProx", "FedAvg") for seed in range(3)]
    for one in jobs:
        record(one, 50.0 - (one.settings.method == "FedProx"))
    digits = table(*jobs, name="digits", labels={"digits": "CIFAR-10"}, printed=None)
    short, full = two_rows((51.0,), (50.0,)), table(job("FedProx", 5), job("FedAvg", 5), name="full")
    claim = judged(monkeypatch, full, short, digits)
    assert (claim.verdict, claim.told[0].ahead.table) == ("indicative", "t")
    assert [finding.judged.verdict for finding in claim.findings] == ["not run", "indicative", "does not hold"]
    assert claim.told[0].deviations == ["num_rounds 4 instead of 100"]
    assert claims.tally([claim, claim]) == "2 indicative"
    assert claims.tally([judged(monkeypatch, full, digits)]) == "on embedded data alone 1 does not hold"
    more = two_rows((51.0, 51.1, 51.2), (50.0, 50.0, 50.0), name="more")
    assert judged(monkeypatch, short, more, digits).verdict == "holds"
    assert judged(monkeypatch, full).verdict == "not run"


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
        judged(monkeypatch, two_rows((51.0,), (50.0,)), **wrong)


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
    lost = job("FedAvgM", 3)
    record(lost, status="diverged")
    told = {"baseline": "FedAvg", "column": "CIFAR-10", "tables": {"t": "small"}, "notebook": "x", "note": ""}
    monkeypatch.setattr(claims, "read", lambda: {"side by side": told})
    found = claims.compared({"t": table(*jobs, *baseline, lost, name="t", printed=None)})
    verdicts = {"FedProx": "ahead", "SCAFFOLD": "behind", "FedAvgM": "diverged", "SOLO": "open"}
    assert {name: one.verdict for name, one in found["small"].items()} == verdicts
    assert claims.tally_of_pairs(found) == "4 comparisons with FedAvg: 1 ahead, 1 behind, 1 open, 1 diverged"
    with pytest.raises(ReportError, match="side by side: there is no table 't'"):
        claims.compared({})


# --- ladders ----------------------------------------------------------------------------------------------------------


def steps(monkeypatch, *changes, third=None):
    """A ladder over the learning rate and then the momentum, as ``changes`` name them; the last on another split."""
    given, values = [{"lr": 0.01}, {"lr": 0.02}, third or {"lr": 0.02, "momentum": 0.5}], []
    for one, split, accuracies in zip(given, "ppq", ((50, 60, 70), (51.0, 61.1, 70.9), (40, 41, 42)), strict=True):
        jobs = [job(seed=seed, **one) for seed in range(3)]
        values += [record(of, accuracy, split=split) and of for of, accuracy in zip(jobs, accuracies, strict=True)]
    names = {name: one for name, one in zip("cba", given[::-1], strict=True)}
    t = table(*values, name="t", printed=None, rows=sweep.Axis("method", {}, names))
    rows = [{"row": "a"}, *({"row": row, "changes": change} for row, change in zip("bc", changes, strict=True))]
    told = {"P": {"notebook": "00_foundations", "ladder": {"table": "t", "column": "CIFAR-10", "steps": rows}}}
    monkeypatch.setattr(claims, "described", lambda: told)
    return claims.ladder("P", {"t": cells(t)})


def test_a_ladder_tells_each_steps_difference(monkeypatch):
    first, second, third, whole = steps(monkeypatch, "lr", "momentum")
    assert (first.cell.mean, first.difference) == (60.0, None)
    assert (second.difference, second.half, second.paired) == (pytest.approx(1.0), pytest.approx(0.2484, abs=1e-3), True)
    assert (third.difference, third.paired) == (pytest.approx(41 - 61), False)  # another split: not in pairs
    assert third.half == pytest.approx(interval_of_difference((40, 41, 42), (51.0, 61.1, 70.9))[1])
    assert (whole.difference, whole.paired) == (pytest.approx(41 - 60), False)


@pytest.mark.parametrize(
    ("changes", "third", "message"),
    [
        (("lr", "lr"), None, "step 'c' should change lr alone, and changes momentum"),
        (("momentum", "momentum"), None, "step 'b' should change momentum alone, and changes lr"),
        (("lr", "momentum"), {"lr": 0.03, "momentum": 0.5}, "'c' should change momentum alone, and changes lr, momentum"),
    ],
)
def test_a_step_changes_one_setting_alone(monkeypatch, changes, third, message):
    with pytest.raises(ReportError, match=message):
        steps(monkeypatch, *changes, third=third)


# --- the project's own ------------------------------------------------------------------------------------------------


def test_claims_and_ladders_name_what_there_is():
    tables, found = project()
    for paper, told in claims.described().items():
        own = claims.claims(paper, found)
        assert len(own) >= 4 and {claim.verdict for claim in own} == {"not run"}
        assert any(claim.printed is not None for claim in own) and len(claims.ladder(paper, found)) >= 4
        assert {tables[f.ahead.table].notebook for c in own for f in c.findings} <= {told["notebook"], "06_side_by_side"}
        assert all(not claim.findings[0].embedded for claim in own)  # the paper's own setting is the first
    assert [len(of) for of in claims.side_by_side(found).values()] == [10] * 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there must be a mapping that is not empty"),
        ("[1, 2]", "there must be a mapping"),
        ("a: [", "cannot be read: while parsing"),
        ("MOON: {notebook: 3}", "side by side: there must be a mapping"),
        ("SIDE\nMOON: {notebook: x}", "MOON, claims: there must be a list"),
        (
            "SIDE\nMOON: {notebook: x, claims: [{claim: a, where: b, runs: [3]}]}",
            "number 1, runs, number 1: there must be a text",
        ),
    ],
)
def test_a_wrong_file_of_claims_is_one_sentence(tmp_path, monkeypatch, text, message):
    side = "side by side: {notebook: x, note: y, baseline: z, column: c, tables: {t: u}}"
    (tmp_path / "claims.yaml").write_text(text.replace("SIDE", side))
    monkeypatch.setattr(claims, "CLAIMS", tmp_path / "claims.yaml")
    with pytest.raises(ReportError, match=f"data/claims.yaml.*{message}"):
        claims.read.__wrapped__()


# what a text may have digits in: numbers of tables and the like, names, and settings
NAMES = re.compile(
    r"(Tables?|Figures?|sections?|appendix|notebook) ([IVX]+(-[A-Z])?|[A-Z]\.\d|\d+(\.\d)?)( and \d)?|"
    r"CIFAR-100?|Digit-5|Office-10|(β|λ|μ|n) = [\d.]+"
)


def test_no_number_in_the_claims_is_typed():
    def texts(value):
        for name, one in value.items() if isinstance(value, dict) else ():
            yield from [one] if name in ("claim", "where", "reason", "note", "title") else texts(one)
        for one in value if isinstance(value, list) else ():
            yield from texts(one)

    every = list(texts(yaml.safe_load(claims.CLAIMS.read_text(encoding="utf-8"))))
    assert len(every) > 60
    for text in every:
        rest = NAMES.sub("", re.sub(r"\[[\w-]+\]\(tables/[\w-]+\.md#[\w-]+\)", "", text))
        assert not re.search(r"\d|(one|two|three|each|every) seeds?|points", rest), text


def test_the_line_that_makes_a_run_again_has_its_settings():
    records, seen = ledger.load(ROOT / "results" / "runs"), set()
    found = cells_of_tables(project()[0].values(), records)
    for cell in itertools.chain(*found.values()):
        if cell.seeds and (command := render.command(cell)) not in seen:
            seen.add(command)
            notebook, *words = shlex.split(command.removeprefix("python -m fednb run "))
            again = sweep.job(notebook, dict(map(_assignment, words)))
            assert again.path.name == cell.paths[0].name, command
    assert len(seen) > 100
