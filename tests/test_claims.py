"""Claims: each verdict by hand, in pairs; ladders one setting at a time; the file of claims; no typed number."""

import itertools
import math
import re
import shlex

import numpy as np
import pytest
import yaml
from made_up import job, project, record, table
from scipy import stats

from fednb import ROOT, reporting
from fednb.__main__ import _assignment
from fednb.experiments import ledger, sweep
from fednb.reporting import claims, render
from fednb.reporting.metrics import ReportError
from fednb.reporting.statistics import confidence, interval, interval_of_difference
from fednb.reporting.tables import cells_of, cells_of_tables


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
    mean, error = np.mean(values), np.std(values, ddof=1) / 2
    assert abs(mean) == pytest.approx(stats.t.ppf((1 + confidence(values)) / 2, 3) * error)
    assert interval(values) == pytest.approx((mean, stats.t.ppf(0.975, 3) * error))
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
    with pytest.raises(ReportError, match="claim 1: t: FedProx and FedAvg cannot be paired: seed 0 splits"):
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
    assert render.tally(c.counted for c in (claim, claim)) == "2 indicative"
    assert judged(monkeypatch, full, digits).counted == "does not hold (embedded data)"
    more = two_rows((51.0, 51.1, 51.2), (50.0, 50.0, 50.0), name="more")
    assert judged(monkeypatch, short, more, digits).verdict == "holds"
    assert judged(monkeypatch, full).verdict == "not run"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ahead": "MOON"}, r"t has no row 'MOON' with column 'CIFAR-10'"),
        ({"column": "CIFAR-100"}, r"t has no row 'FedProx' with column 'CIFAR-100'"),
        ({"runs": ["u"]}, r"there is no 'u'"),
        ({"runs": [["t"]]}, "unsupported operand"),
    ],
)
def test_a_claim_about_what_there_is_not(monkeypatch, wrong, message):
    with pytest.raises(ReportError, match=rf"data/claims.yaml, P, claim 1: .*{message}"):
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
    monkeypatch.setattr(claims, "described", lambda: {"side by side": told})
    found = claims.side_by_side({"t": cells_of(table(*jobs, *baseline, lost, name="t", printed=None))})
    verdicts = {"FedProx": "ahead", "SCAFFOLD": "behind", "FedAvgM": "diverged", "SOLO": "open"}
    assert {name: one.side for name, one in found["small"].items()} == verdicts
    with pytest.raises(ReportError, match="side by side: there is no 't'"):
        claims.side_by_side({})


# --- ladders ----------------------------------------------------------------------------------------------------------


def test_a_ladder_tells_each_steps_difference(monkeypatch):
    """A ladder over the learning rate and then the momentum, the last on another split."""
    given, values = [{"lr": 0.01}, {"lr": 0.02}, {"lr": 0.02, "momentum": 0.5}], []
    for one, split, accuracies in zip(given, "ppq", ((50, 60, 70), (51.0, 61.1, 70.9), (40, 41, 42)), strict=True):
        jobs = [job(seed=seed, **one) for seed in range(3)]
        values += [record(of, accuracy, split=split) and of for of, accuracy in zip(jobs, accuracies, strict=True)]
    names = {name: one for name, one in zip("cba", given[::-1], strict=True)}
    t = table(*values, name="t", printed=None, rows=sweep.Axis("method", {}, names))
    told = {"table": "t", "column": "CIFAR-10", "steps": [{"row": row} for row in "abc"]}
    monkeypatch.setattr(claims, "described", lambda: {"P": {"ladder": told}})
    first, second, third, whole = claims.ladder("P", {"t": cells_of(t)})
    assert (first.ahead.mean, first.judged.lead) == (60.0, 0.0)
    assert second.judged[1:4] == (3, pytest.approx(1.0), pytest.approx(0.2484, abs=1e-3))
    welch = interval_of_difference((40, 41, 42), (51.0, 61.1, 70.9))
    assert third.judged[1:4] == (0, pytest.approx(41 - 61), pytest.approx(welch[1]))  # another split: not in pairs
    assert (whole.judged.seeds, whole.judged.lead) == (0, pytest.approx(41 - 60))


# --- the project's own ------------------------------------------------------------------------------------------------


def test_claims_and_ladders_name_what_there_is():
    tables, found = project()
    for paper in [name for name in claims.described() if name != claims.SIDE]:
        own, told = claims.claims(paper, found), claims.described()[paper]
        assert len(own) >= 4 and {claim.verdict for claim in own} == {"not run"}
        assert any(claim.printed is not None for claim in own)
        assert {tables[f.ahead.table].notebook for c in own for f in c.findings} <= {told["notebook"], "06_side_by_side"}
        assert all(not claim.findings[0].embedded for claim in own)  # the paper's own setting is the first
    assert [len(of) for of in claims.side_by_side(found).values()] == [10] * 5


def test_each_step_of_a_ladder_changes_what_it_names_alone():
    for paper in [name for name in claims.described() if name != claims.SIDE]:
        steps, told = claims.ladder(paper, project()[1]), claims.described()[paper]["ladder"]["steps"]
        assert len(told) >= 3
        for step, entry in zip(steps, told, strict=False):
            a, b = ({"measure": cell.measure} | cell.job.settings.flat() for cell in (step.behind, step.ahead))
            differ = sorted(name for name in (a | b).keys() - {"seed"} if a.get(name) != b.get(name))
            assert ", ".join(differ) == entry.get("changes", ""), entry["row"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file: 'NoneType' object is not iterable"),
        ("a: [", "the file: while parsing"),
        ("MOON: 3", "MOON: 'int' object is not subscriptable"),
        ("MOON: {notebook: x}", "MOON: there is no 'claims'"),
    ],
)
def test_a_wrong_file_of_claims_is_one_sentence(tmp_path, monkeypatch, text, message):
    (tmp_path / "claims.yaml").write_text(text)
    monkeypatch.setattr(claims, "CLAIMS", tmp_path / "claims.yaml")
    with pytest.raises(ReportError, match=f"data/claims.yaml, {message}"):
        claims.described()


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
