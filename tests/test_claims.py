"""Claims: each verdict by hand, in pairs, corrected for their number; the file of claims; no typed number."""

import dataclasses
import itertools
import math
import re
import shlex

import matplotlib.pyplot as plt
import numpy as np
import pytest
from made_up import job, project, record, table
from scipy import stats

from fednb import ROOT, data, reporting
from fednb.analysis import claims, statistics
from fednb.analysis.cells import cells_of
from fednb.analysis.claims import ClaimEntry, ClaimsFile, PaperClaims, Place, SideBySide
from fednb.analysis.statistics import Kind, corrected, interval, judge, lead
from fednb.cli import assignment
from fednb.errors import ReportError
from fednb.experiments import ledger
from fednb.reporting import figures, markdown, pages, words
from fednb.sweeps.jobs import Notebook

NO = "no difference shown"


# t(0.975, 2 degrees of freedom) = 4.3027; leads m − d, m, m + d have the half width 2.4841 d at 95 %, 1.6859 d at 90 %
@pytest.mark.parametrize(
    ("leads", "printed", "said", "short"),
    [
        ((), 2.0, "not run", "not run"),
        ((math.inf, 1.0, 1.0), 2.0, "not reached by every run", "not reached by every run"),
        ((1.6, 2.6, 3.6), None, "ahead", "ahead"),
        ((1.4, 2.4, 3.4), None, f"{NO} (± 2.5)", "not shown"),  # it would be ahead at 90 %
        ((-1.6, -2.6, -3.6), None, "behind", "behind"),
        ((1.6, 2.6, 3.6), 5.0, "as printed", "as printed"),  # 2.48 away
        ((1.6, 2.6, 3.6), 5.2, "right sign, half of the printed lead", "smaller"),
        ((1.6, 2.6, 3.6), 8.0, "right sign, a third of the printed lead", "smaller"),
        ((2.5, 2.6, 2.7), 2.9, "right sign, about the printed lead", "about as printed"),
        ((2.5, 2.6, 2.7), 2.0, "right sign, 1.3 times the printed lead", "larger"),
        ((2.5, 2.6, 2.7), 0.5, "right sign, far beyond the printed lead", "larger"),
        ((-2.5, -2.6, -2.7), -5.0, "right sign, half of the printed gap", "smaller"),
        ((-1.6, -2.6, -3.6), 2.0, "the other way round", "reversed"),
        ((0.0, 0.0, 0.0), None, f"{NO} (± 0.0)", "not shown"),
        ((0.5, 0.5, 0.5), None, "ahead", "ahead"),
        ((1.3,), 2.8, "indicative: right sign, half of the printed lead", "smaller"),
        ((1.0, -1.4), None, "indicative: behind", "behind"),
        ((-0.04,), 2.0, "indicative: right sign, hardly any of the printed lead", "smaller"),
        ((-3.6,), 2.5, "indicative: the other way round", "reversed"),
    ],
)
def test_a_verdict_says_size_and_certainty(leads, printed, said, short):
    verdict = judge(lead(leads), printed)
    assert (words.verdict(verdict), words.short_verdict(verdict)) == (said, short)
    if len(leads) >= 3 and math.isfinite(sum(leads)):
        assert lead(leads).shown == (not said.startswith(NO))


def test_intervals_and_p_values_are_scipys():
    values = [0.3, 1.1, -0.2, 0.9]
    one, error = lead(values), np.std(values, ddof=1) / 2
    assert one.p == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    assert (
        interval(values)
        == pytest.approx((np.mean(values), stats.t.ppf(0.975, 3) * error))
        == (one.mean, one.half_width)
    )
    assert (lead([2.0, 2.0]).p, lead([0.0, 0.0]).p) == (0, 1) and math.isnan(lead([1.0]).p)


def test_a_lead_in_words_has_its_interval_if_there_is_one():
    assert words.lead(lead([-0.04])) == "+0.0"
    assert words.lead(lead([1.0, 2.0, 3.0]), "points") == "+2.0 ± 2.5 points"


def test_many_comparisons_are_corrected_in_both_directions():
    """Holm, step by step: 0.01, 0.02, 0.03 and 0.5 become 0.04, 0.06, 0.06 and 0.5; what is not judged does not count."""
    seeds = [
        statistics.Lead(3, mean, 0.5, p)
        for mean, p in ((-1.0, 0.02), (1.0, 0.01), (0.1, 0.5), (2.0, 0.03))
    ]
    family = corrected([*seeds, lead([5.0]), lead([])])
    assert [one.p for one in family[:4]] == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert [one.shown for one in family] == [False, True, False, False, False, False]
    verdicts = [judge(family[0]), judge(family[1]), judge(family[3], 4.0)]
    assert [verdict.kind for verdict in verdicts] == [Kind.BEHIND, Kind.AHEAD, Kind.SMALLER]
    assert [verdict.uncertain for verdict in verdicts] == [True, False, True]
    assert words.verdict(verdicts[0]) == "behind; not certain among 4 comparisons"
    assert (
        words.verdict(verdicts[2])
        == "right sign, half of the printed lead; not certain among 4 comparisons"
    )
    assert family[4][:2] == (1, 5.0)


def two_rows(fedprox, fedavg, *, split="p", **more):
    """A table of two rows with a run per accuracy."""
    jobs = []
    for method, values in (("FedProx", fedprox), ("FedAvg", fedavg)):
        for seed, accuracy in enumerate(values):
            jobs.append(job(method, seed, num_rounds=4))
            curve = [0.0, 0.0, 0.0, accuracy]
            record(jobs[-1], accuracy, curve=curve, split=split if method == "FedProx" else "p")
    return table(*jobs, **{"name": "t"} | more)


def test_a_pair_of_runs_counts_once_and_a_deviation_is_of_its_row(monkeypatch):
    t = two_rows((67.0, 69.0, 68.0), (66.0, 67.0, 65.0))
    claim = judged(monkeypatch, t, dataclasses.replace(t, name="the same runs again"))
    assert [one.lead.among for one in claim.comparisons] == [1, 1]
    t = table(
        job("FedProx", num_rounds=4, local_epochs=5), job("FedAvg", num_rounds=6, local_epochs=5)
    )
    deviations = claims.compare_cells(*cells_of(t)).deviations
    assert [(one.name, row) for one, row in deviations] == [
        ("local_epochs", ""),
        ("num_rounds", "FedProx"),
        ("num_rounds", "FedAvg"),
    ]
    assert [words.deviation(*one) for one in deviations] == [
        "5 local epochs instead of 10",
        "4 rounds instead of 100 (FedProx)",
        "6 rounds instead of 100 (FedAvg)",
    ]


def test_a_lead_in_words_is_of_runs_with_the_same_seed_on_the_same_split():
    t = two_rows(
        (67.0, 69.0, 68.0, 99.0), (66.0, 67.0, 65.0)
    )  # differences 1, 2, 3; the fourth has no partner
    assert (
        reporting.lead(t, "FedProx", "FedAvg")
        == "+2.0 ± 2.5 points over 3 seeds: no difference shown"
    )
    assert (
        reporting.lead(two_rows((67.0,), (66.0,)), "FedProx", "FedAvg")
        == "+1.0 points over one seed, indicative: ahead"
    )
    t = two_rows((68.0, 69.0, 68.0), (66.0, 67.0, 65.0))
    assert reporting.lead(t, "FedAvg", "FedProx") == "-2.3 ± 1.4 points over 3 seeds: behind"
    with pytest.raises(
        ReportError, match=r"no single cell MOON \| any column; there are FedProx \| CIFAR-10"
    ):
        reporting.lead(t, "MOON", "FedAvg")
    record(t.jobs[1], 69.0, split="another ")
    assert "over two seeds" in reporting.lead(t, "FedProx", "FedAvg")
    for one in t.jobs[:3]:
        one.path.unlink()
    assert reporting.lead(t, "FedProx", "FedAvg") == "not run"


def test_fewer_rounds_are_ahead():
    jobs = [
        job(method, seed, num_rounds=9) for method in ("FedProx", "FedAvg") for seed in range(3)
    ]
    for one, first in zip(jobs, (5, 4, 5, 7, 7, 7), strict=True):  # the first round that gets there
        record(one, curve=[50.0] * (first - 1) + [60.0] * (10 - first))
    t = table(*jobs, printed=None, measure="rounds_to_target", target=60)
    assert reporting.lead(t, "FedProx", "FedAvg") == "-2.3 ± 1.4 rounds over 3 seeds: ahead"
    assert reporting.lead(t, "FedAvg", "FedProx") == "+2.3 ± 1.4 rounds over 3 seeds: behind"


def claimed(monkeypatch, *entries):
    """Let these claims be all of a paper P."""
    papers = {"P": PaperClaims("00_foundations", (), entries)}
    monkeypatch.setattr(claims, "claims_file", lambda: ClaimsFile(papers, None))


def judged(monkeypatch, *tables, ahead="FedProx", behind="FedAvg", column="CIFAR-10", names=None):
    """The claim that a row is ahead, which these tables (or those with the ``names``) are about."""
    names = names or [table.name for table in tables]
    places = tuple(Place(name, ahead, behind, column) for name in names)
    claimed(
        monkeypatch, ClaimEntry("FedProx is ahead", "Table 1", places, short="FedProx − FedAvg")
    )
    (claim,) = claims.claims_of("P", {table.name: cells_of(table) for table in tables})
    return claim


def test_a_claim_is_judged_in_pairs_and_follows_the_records(monkeypatch):
    t = two_rows(
        (11.0, 51.1, 90.9), (10.0, 50.0, 90.0)
    )  # seeds scatter forty times as much as they differ
    claim = judged(monkeypatch, t)
    assert claim.best.lead.mean == pytest.approx(1.0)
    assert claim.printed == pytest.approx(66.9 - 66.3)
    assert claim.verdict.kind == Kind.LARGER
    assert words.verdict(claim.verdict) == "right sign, 1.7 times the printed lead"
    turned = judged(monkeypatch, t, ahead="FedAvg", behind="FedProx")
    assert words.verdict(turned.verdict).startswith("right sign, 1.7 times the printed gap")
    assert turned.printed == pytest.approx(-0.6)
    for one, accuracy in zip(t.jobs[:3], (9.0, 48.9, 89.1), strict=True):
        record(one, accuracy)
    assert judged(monkeypatch, t).verdict.kind == Kind.REVERSED


@pytest.mark.parametrize(
    ("leads", "kind"),
    [((2.0,), Kind.RIGHT_SIGN), ((-2.0,), Kind.REVERSED), ((0.0,), Kind.NO_DIFFERENCE)],
)
def test_where_no_lead_is_printed_a_claim_is_about_the_sign(leads, kind):
    assert judge(lead(leads), claimed=True).kind == kind


def test_what_is_nearest_to_the_paper_counts(monkeypatch):
    """Be it one run; behind it stand short runs, and data of another kind, which are not measured by the printed lead."""
    jobs = [
        job(method, seed, dataset="digits") for method in ("FedProx", "FedAvg") for seed in range(3)
    ]
    for one in jobs:
        record(one, 50.0 - (one.settings.method == "FedProx"))
    digits = table(*jobs, name="digits", labels={"digits": "CIFAR-10"}, printed=None)
    short, full = (
        two_rows((51.0,), (50.0,)),
        table(job("FedProx", 5), job("FedAvg", 5), name="full"),
    )
    claim = judged(monkeypatch, full, short, digits)
    assert [one.ahead.table for one in claim.with_runs] == ["t", "digits"]
    assert words.verdict(claim.verdict) == "indicative: right sign, 1.7 times the printed lead"
    settings = [claim.setting(one) for one in claim.with_runs]
    assert [setting.dataset for setting in settings] == ["", "digits"]
    assert words.setting(settings[0]) == "4 rounds instead of 100"
    assert [words.setting(one, brief=True) for one in settings] == ["4 rounds", "digits"]
    assert judged(monkeypatch, full, digits).verdict.kind == Kind.REVERSED
    for one, accuracy in zip(full.jobs, (60.0, 59.9), strict=True):
        record(one, accuracy)
    claim = judged(monkeypatch, full, short, digits)
    assert claim.setting(claim.best).is_the_papers
    assert words.verdict(claim.verdict) == "indicative: right sign, a fifth of the printed lead"
    text = markdown.fill("claims", claims=[claim], page=lambda name: f"tables/x.md#{name}")
    assert (
        "| +0.6 | +0.1 | [the paper's setting](tables/x.md#full), 1 seed | **indicative: right sign"
        in text
    )
    assert (
        "+1.0 ([4 rounds](tables/x.md#t), 1 seed); -1.0 ± 0.0 ([digits](tables/x.md#digits), 3 seeds) |"
        in text
    )
    none = table(job("FedProx", 6), job("FedAvg", 6), name="none")
    assert judged(monkeypatch, none).verdict.kind == Kind.NOT_RUN


def test_a_glance_shows_what_is_printed_and_what_is_measured(monkeypatch):
    claim = judged(monkeypatch, two_rows((51.0, 52.0, 53.0), (50.0, 50.0, 50.0)))
    ax = figures.draw_claims([("MOON", claim)])
    (filled,) = (line for line in ax.lines if list(line.get_xdata()) == [pytest.approx(2.0)])
    (hollow,) = (line for line in ax.lines if list(line.get_xdata()) == [pytest.approx(0.6)])
    assert (
        filled.get_color() == figures.plots.colour("MOON")
        and hollow.get_markerfacecolor() == "none"
    )
    low, high = ax.collections[0].get_segments()[0][:, 0]
    assert (low, high) == (pytest.approx(2 - 2.4841, abs=1e-3), pytest.approx(2 + 2.4841, abs=1e-3))
    assert [text.get_text() for text in ax.texts] == ["not shown", "4 rounds, 3 seeds"]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["FedProx − FedAvg"]
    legend = [
        text.get_text() for text in ax.get_legend().get_texts()
    ]  # of short runs it says nothing: there is none
    assert legend == ["printed", "measured, 95 % interval over seeds"]
    plt.close("all")
    main = dataclasses.replace(claim, entry=claim.entry._replace(main=True))
    drawn = figures.claim_figures({"MOON": [main], "FedProc": []})
    assert set(drawn) == {"moon", "glance"} and drawn["moon"].count("<svg") == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ahead": "MOON"}, r"t has no single cell MOON \| CIFAR-10"),
        ({"column": "CIFAR-100"}, r"t has no single cell FedProx \| CIFAR-100"),
        ({"names": ["u"]}, r"there is no table 'u': known are t"),
    ],
)
def test_a_claim_about_what_there_is_not(monkeypatch, wrong, message):
    with pytest.raises(ReportError, match=rf"data/claims.yaml, P, claim 1: .*{message}"):
        judged(monkeypatch, two_rows((51.0,), (50.0,)), **wrong)
    with pytest.raises(ReportError, match="no claims of 'Q': known are P"):
        claims.claims_of("Q")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be object"),
        ("P: {notebok: x}", "notebok|side by side"),
        ("P: [", "expected"),
        ("P: {notebook: x, claims: [{runs: [[t]]}]}", "claims|side by side"),
    ],
)
def test_a_file_of_claims_that_makes_no_sense_is_one_sentence(monkeypatch, tmp_path, text, said):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "claims.yaml").write_text(
        "side by side: 5\n" * (text == "P: {notebok: x}") + text
    )
    monkeypatch.setattr(claims, "ROOT", tmp_path)
    with pytest.raises(ReportError, match=rf"data/claims.yaml cannot be read: (?s:.*){said}"):
        claims.claims_file.__wrapped__()  # not from its cache


def test_the_report_of_an_empty_ledger_says_what_is_printed(tmp_path):
    made = pages.make_pages(ROOT / "notebooks" / "sweeps", tmp_path / "runs", tmp_path / "out")
    text = made[tmp_path / "out" / "REPORT.md"]
    assert "not run" in text and "Over our clients it is (not yet run) points" in text


def test_a_method_with_a_diverged_run_gets_no_verdict_side_by_side(monkeypatch):
    """The differences that are left would be those of its lucky seeds; the others are corrected as one family."""
    leads = {
        "FedProx": (3.0, 3.01, 3.02),
        "SCAFFOLD": (-3.0, -3.01, -3.02),
        "SOLO": (1.0, -1.0, 0.5),
    }
    leads["FedAvgM"] = (9.0, 9.1, 9.2)
    jobs = [job(method, seed) for method, of in leads.items() for seed in range(len(of))]
    baseline = [job("FedAvg", seed) for seed in range(3)]
    for one in (*jobs, *baseline):
        record(one, 50.0 + leads.get(one.settings.method, (0, 0, 0))[one.settings.seed])
    lost = job("FedAvgM", 3)
    record(lost, status="diverged")
    side = SideBySide("x", "", baseline="FedAvg", column="CIFAR-10", tables={"t": "small"})
    monkeypatch.setattr(claims, "claims_file", lambda: ClaimsFile({}, side))
    cells = cells_of(table(*jobs, *baseline, lost, name="t", printed=None))
    found = claims.leads_side_by_side({"t": cells})
    assert {row: one.verdict().kind for (_, row), one in found.items()} == {
        "FedProx": Kind.AHEAD,
        "SCAFFOLD": Kind.BEHIND,
        "SOLO": Kind.NOT_SHOWN,
        "FedAvgM": Kind.DIVERGED,
    }
    among = {row: one.lead.among for (_, row), one in found.items()}
    assert among == {"FedProx": 3, "SCAFFOLD": 3, "SOLO": 3, "FedAvgM": 1}
    text = markdown.templates().get_template("sides.j2").render(compared=found, side=side)
    assert (
        "ahead: FedProx (1 of 1 splits). Shown to be behind: SCAFFOLD (1 of 1 splits). In 1 more a run"
        in text
    )


def test_claims_name_what_there_is():
    """Each is looked for in the paper's own setting first, and its rows are on the same splits."""
    tables, found = project()
    records = ledger.load(ROOT / "results" / "runs")
    recorded = {name: cells_of(table, records) for name, table in tables.items()}
    for paper, of_paper in claims.claims_file().papers.items():
        own = claims.claims_of(paper, found)
        assert len(own) >= 4 and {claim.verdict.kind for claim in own} == {Kind.NOT_RUN}
        assert any(claim.printed is not None for claim in own)
        notebooks = {tables[one.ahead.table].notebook for c in own for one in c.comparisons}
        assert notebooks <= {of_paper.notebook, "06_side_by_side"}
        datasets = {claim.comparisons[0].ahead.job.settings.dataset for claim in own}
        assert not datasets & set(data.EMBEDDED)
        assert sum(claim.entry.main for claim in own) == 2 and of_paper.found
        for claim in claims.claims_of(paper, recorded):
            for one in claim.comparisons:
                both = set(one.ahead.seeds) & set(one.behind.seeds)
                assert one.diverged or one.lead.seeds == len(both), one.ahead.table
    assert len(claims.leads_side_by_side(found)) == 50


# what a text may have digits in: numbers of tables and the like, names, and settings
NAMES = re.compile(
    r"(Tables?|Figures?|sections?|appendix|notebook) ([IVX]+(-[A-Z])?|[A-Z]\.\d|\d+(\.\d)?)( and \d)?|"
    r"CIFAR-100?|Digit-5|Office-10|(β|λ|μ|n) = [\d.]+|\[\d\d\]\(\S+\)|1 / \(1 − m\)|\{\{.*?\}\}"
)


def test_no_number_in_the_claims_is_typed():
    every = [claims.claims_file().side_by_side.note]
    for paper in claims.claims_file().papers.values():
        every += paper.found
        for entry in paper.entries:
            every += [entry.claim, entry.where, entry.reason]
    for text in every:
        rest = NAMES.sub("", " ".join(text.split()))
        assert not re.search(r"\d|(one|two|three|each|every) seeds?", rest), rest


def test_the_line_that_makes_a_run_again_has_its_settings():
    records, seen = ledger.load(ROOT / "results" / "runs"), set()
    found = {name: cells_of(table, records) for name, table in project()[0].items()}
    for cell in itertools.chain(*found.values()):
        if cell.seeds and (command := markdown.command(cell)) not in seen:
            seen.add(command)
            notebook, *words = shlex.split(command.removeprefix("python -m fednb run "))
            again = Notebook(notebook).job(dict(map(assignment, words)))
            assert again.path.name == cell.paths[0].name, command
    assert len(seen) > 100
