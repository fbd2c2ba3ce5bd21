"""Claims: each verdict by hand, in pairs, corrected for their number; the file of claims; no typed number."""

import dataclasses
import functools
import itertools
import math
import re
import shlex

import made_up
import matplotlib.pyplot as plt
import pytest
from made_up import job, project, record, table
from scipy import stats

from fednb import ROOT, data, results
from fednb.errors import ReportError
from fednb_lab.analysis import claims, statistics
from fednb_lab.analysis.cells import cells_of, committed
from fednb_lab.analysis.claims import ClaimEntry, ClaimsFile, Finding, PaperClaims, Place
from fednb_lab.analysis.comparisons import compare_cells
from fednb_lab.analysis.statistics import Kind, Why, corrected, interval, judge, lead
from fednb_lab.cli import assignment
from fednb_lab.reporting import figures, markdown, pages, words
from fednb_lab.reporting.findings import Filler
from fednb_lab.sweeps.jobs import Notebook

METHODS = ("FedProx", "FedAvg")


# t(0.975, 2 degrees of freedom) = 4.3027; leads m − d, m, m + d have the half width 2.4841 d at 95 %, 1.6859 d at 90 %
@pytest.mark.parametrize(
    ("leads", "printed", "kind"),
    [
        ((), (2.0,), Kind.NOT_TESTED),
        ((1.3,), (2.8,), Kind.ONE_RUN),
        ((-3.6, -3.5), (2.5,), Kind.ONE_RUN),
        ((math.inf, 1.0, 1.0), (2.0,), Kind.CANNOT_TELL),
        ((1.4, 2.4, 3.4), (), Kind.CANNOT_TELL),  # it would be ahead at 90 %
        ((1.4, 2.4, 3.4), (2.4,), Kind.CANNOT_TELL),  # a wide interval confirms nothing
        ((0.0, 0.0, 0.0), (), Kind.CANNOT_TELL),
        ((1.6, 2.6, 3.6), (), Kind.CONFIRMED),
        ((1.6, 2.6, 3.6), (5.0,), Kind.CONFIRMED),  # 2.48 away
        ((1.6, 2.6, 3.6), (5.2,), Kind.SMALLER),
        ((2.5, 2.6, 2.7), (2.0,), Kind.LARGER),
        ((2.5, 2.6, 2.7), (9.0, 2.5), Kind.CONFIRMED),  # a paper that prints two numbers
        ((2.5, 2.6, 2.7), (9.0, 5.0), Kind.SMALLER),
        ((-1.6, -2.6, -3.6), (2.0,), Kind.REVERSED),
        ((-1.6, -2.6, -3.6), (), Kind.REVERSED),
    ],
)
def test_a_verdict_is_one_of_six_words(leads, printed, kind):
    assert judge(lead(leads), printed).kind == kind


def test_a_lead_whose_interval_holds_zero_is_no_matter_of_many_claims():
    assert judge(lead([1.4, 2.4, 3.4])) == (Kind.CANNOT_TELL, Why.NUMBERS)


def test_a_lead_with_a_diverged_run_decides_nothing():
    judged = judge(lead([2.5, 2.6, 2.7], diverged=True))
    assert judged == (Kind.CANNOT_TELL, Why.DIVERGED)


def test_intervals_and_p_values_are_scipys():
    values = [0.3, 1.1, -0.2, 0.9]
    one = lead(values)
    test = stats.ttest_1samp(values, 0)
    low, high = test.confidence_interval()
    assert one.p == pytest.approx(test.pvalue)
    assert interval(values) == (one.mean, one.half_width)
    assert (one.mean, one.half_width) == pytest.approx(((low + high) / 2, (high - low) / 2))
    assert (lead([2.0, 2.0]).p, lead([0.0, 0.0]).p) == (0, 1) and math.isnan(lead([1.0]).p)


def test_a_lead_in_words_has_its_interval_if_there_is_one():
    assert words.lead(lead([-0.04])) == "+0.0"
    assert words.lead(lead([1.0, 2.0, 3.0]), "points") == "+2.0 ± 2.5 points"


def test_many_comparisons_are_corrected_in_both_directions():
    """Holm, step by step: 0.01, 0.02, 0.03 and 0.5 become 0.04, 0.06, 0.06 and 0.5; what is not judged does not count."""
    seeds = [
        statistics.Lead(3, -1.0, 0.5, 0.02),
        statistics.Lead(3, 1.0, 0.5, 0.01),
        statistics.Lead(3, 0.1, 0.5, 0.5),
        statistics.Lead(3, 2.0, 0.5, 0.03),
    ]
    family = corrected([*seeds, lead([5.0]), lead([])])
    assert [one.p for one in family[:4]] == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert [one.shown for one in family] == [False, True, False, False, False, False]
    assert judge(family[0]) == (Kind.CANNOT_TELL, Why.AMONG_MANY)
    assert judge(family[1]).kind == Kind.CONFIRMED
    assert family[4][:2] == (1, 5.0)


def two_rows(fedprox, fedavg):
    """A table t of two rows with a run per accuracy."""
    jobs = []
    for method, values in zip(METHODS, (fedprox, fedavg), strict=True):
        for seed, accuracy in enumerate(values):
            jobs.append(job(method, seed, num_rounds=4))
            record(jobs[-1], curve=[0.0, 0.0, 0.0, accuracy])
    return table(*jobs, name="t")


def test_a_pair_of_runs_counts_once_and_a_deviation_is_of_its_row(monkeypatch):
    t = two_rows((67.0, 69.0, 68.0), (66.0, 67.0, 65.0))
    again = dataclasses.replace(t, name="again")
    entries = [
        ClaimEntry(name, "Table 1", (Place(name, "FedProx", "FedAvg", "CIFAR-10"),))
        for name in ("t", "again")
    ]
    claimed(monkeypatch, *entries)
    both = claims.claims_of(
        "P", claims.cells_among({one.name: cells_of(one) for one in (t, again)})
    )
    assert [claim.lead.among for claim in both] == [1, 1]
    lengths = {"FedProx": 4, "FedAvg": 6}
    jobs = [job(name, num_rounds=rounds, local_epochs=5) for name, rounds in lengths.items()]
    deviations = compare_cells(*cells_of(table(*jobs))).deviations
    assert [words.deviation(*one) for one in deviations] == [
        "5 local epochs instead of 10",
        "4 rounds instead of 100 (FedProx)",
        "6 rounds instead of 100 (FedAvg)",
    ]


def test_a_lead_in_words_is_of_runs_with_the_same_seed_on_the_same_split():
    # differences 1, 2, 3; the fourth has no partner
    t = two_rows((67.0, 69.0, 68.0, 99.0), (66.0, 67.0, 65.0))
    assert made_up.lead(t, "FedProx", "FedAvg") == "+2.0 ± 2.5 points over 3 seeds"
    assert made_up.lead(two_rows((67.0,), (66.0,)), "FedProx", "FedAvg") == "+1.0 points (one run)"
    t = two_rows((68.0, 69.0, 68.0), (66.0, 67.0, 65.0))
    assert made_up.lead(t, "FedAvg", "FedProx") == "-2.3 ± 1.4 points over 3 seeds"
    with pytest.raises(
        ReportError, match=r"no single cell MOON \| any column; there are FedProx \| CIFAR-10"
    ):
        made_up.lead(t, "MOON", "FedAvg")
    record(t.jobs[1], 69.0, split="another ")
    assert "two runs" in made_up.lead(t, "FedProx", "FedAvg")
    for one in t.jobs[:3]:
        one.path.unlink()
    assert made_up.lead(t, "FedProx", "FedAvg") == "not run"


def test_fewer_rounds_are_ahead():
    jobs = [job(method, seed, num_rounds=9) for method in METHODS for seed in range(3)]
    for one, first in zip(jobs, (5, 4, 5, 7, 7, 7), strict=True):  # the first round that gets there
        record(one, curve=[50.0] * (first - 1) + [60.0] * (10 - first))
    t = table(*jobs, printed=None, measure="rounds_to_target", target=60)
    assert made_up.lead(t, "FedProx", "FedAvg") == "+2.3 ± 1.4 rounds fewer over 3 seeds"
    assert made_up.lead(t, "FedAvg", "FedProx") == "-2.3 ± 1.4 rounds fewer over 3 seeds"


def claimed(monkeypatch, *entries):
    """Let these claims be all of a paper P."""
    papers = {"P": PaperClaims("00_foundations", entries)}
    monkeypatch.setattr(claims, "claims_file", lambda: ClaimsFile(papers, None, {}))


def judged(monkeypatch, *tables, ahead="FedProx", behind="FedAvg", column="CIFAR-10", names=None):
    """The claim that a row is ahead, which these tables (or those with the ``names``) are about."""
    names = names or [table.name for table in tables]
    places = tuple(Place(name, ahead, behind, column) for name in names)
    entry = ClaimEntry("FedProx is ahead", "Table 1", places, short="FedProx − FedAvg")
    claimed(monkeypatch, entry)
    cells = {table.name: cells_of(table) for table in tables}
    (claim,) = claims.claims_of("P", claims.cells_among(cells))
    return claim


def test_a_claim_is_judged_in_pairs_and_follows_the_records(monkeypatch):
    # seeds scatter forty times as much as they differ
    t = two_rows((11.0, 51.1, 90.9), (10.0, 50.0, 90.0))
    claim = judged(monkeypatch, t)
    assert claim.best.lead.mean == pytest.approx(1.0)
    assert claim.printed == pytest.approx((66.9 - 66.3,))
    assert claim.verdict.kind == Kind.LARGER
    turned = judged(monkeypatch, t, ahead="FedAvg", behind="FedProx")
    assert turned.printed == pytest.approx((-0.6,))
    assert turned.verdict.kind == Kind.REVERSED
    for one, accuracy in zip(t.jobs[:3], (9.0, 48.9, 89.1), strict=True):
        record(one, accuracy)
    assert judged(monkeypatch, t).verdict.kind == Kind.REVERSED


def on_digits(difference):
    """Three seeds of the two rows on another data set."""
    jobs = [job(method, seed, dataset="digits") for method in METHODS for seed in range(3)]
    for one in jobs:
        ahead = difference if one.settings.method == "FedProx" else 0
        record(one, 50.0 + ahead + 0.01 * one.settings.seed * ahead)
    return table(*jobs, name="digits", labels={"digits": "CIFAR-10"}, printed=None)


def at_full_length(*values):
    """A table in the paper's setting, with one run for each of these accuracies."""
    rows = [job("FedProx", 5), job("FedAvg", 5)]
    for one, accuracy in zip(rows, values, strict=False):
        record(one, accuracy)
    return table(*rows, name="full")


def test_other_data_decide_nothing(monkeypatch):
    claim = judged(monkeypatch, at_full_length(), on_digits(-1.0))
    assert claim.verdict.kind == Kind.NOT_TESTED
    assert [one.ahead.table for one in claim.with_runs] == ["digits"]
    none = table(job("FedProx", 6), job("FedAvg", 6), name="none")
    assert judged(monkeypatch, none).verdict.kind == Kind.NOT_TESTED


def test_seeds_of_short_runs_are_not_overruled_by_one_run(monkeypatch):
    full, short = at_full_length(60.0, 59.9), two_rows((53.0, 53.1, 53.2), (50.0, 50.0, 50.0))
    claim = judged(monkeypatch, full, short, on_digits(-1.0))
    assert claim.best.ahead.table == "t" and claim.verdict.kind == Kind.LARGER
    assert claim.setting(claim.best).shorter and not claim.setting(claim.best).is_the_papers
    assert [one.ahead.table for one in claim.beside] == ["full", "digits"]
    text = markdown.claims_table([claim], lambda name: f"tables/x.md#{name}")
    (line,) = [line for line in text.splitlines() if "FedProx is ahead" in line]
    assert "| +0.6 | +3.1 ± 0.2 |" in line and "tables/x.md#digits), 3 seeds" in line


def test_a_single_run_borrows_its_interval_from_the_nearest_runs_with_seeds(monkeypatch):
    full, digits = at_full_length(60.0, 59.9), on_digits(-1.0)
    claim = judged(monkeypatch, full, digits)
    assert claim.verdict.kind == Kind.ONE_RUN
    borrowed = claim.borrowed(claim.best)
    (source,) = claim.beside
    assert borrowed.source is source
    # three runs scatter by their interval; one run by the square root of three times as much
    assert borrowed.half_width == pytest.approx(source.lead.half_width * math.sqrt(3))
    assert claim.borrowed(source) is None
    assert judged(monkeypatch, full).borrowed(claim.best) is None


def test_runs_that_are_no_evidence_decide_nothing(monkeypatch):
    short = two_rows((53.0, 53.1, 53.2), (50.0, 50.0, 50.0))
    places = (Place("t", "FedProx", "FedAvg", "CIFAR-10", no_evidence="other networks"),)
    claimed(monkeypatch, ClaimEntry("FedProx is ahead", "Table 1", places))
    (claim,) = claims.claims_of("P", lambda name: cells_of(short))
    assert claim.verdict.kind == Kind.NOT_TESTED
    assert "ther networks" in words.why(claim)


def test_a_report_ends_with_the_main_claims_alone(monkeypatch):
    claim = judged(monkeypatch, two_rows((51.0, 52.0, 53.0), (50.0, 50.0, 50.0)))
    main = dataclasses.replace(claim, entry=claim.entry._replace(main=True))
    lines = words.main_claims({"P": [claim, main]}).splitlines()
    assert len(lines) == 2 and claim.entry.claim in lines[1] and Kind.CANNOT_TELL in lines[1]


def test_a_glance_shows_what_is_printed_and_what_is_measured(monkeypatch):
    claim = judged(monkeypatch, two_rows((51.0, 52.0, 53.0), (50.0, 50.0, 50.0)))
    ax = figures.draw_claims([("MOON", claim)])
    (filled,) = (line for line in ax.lines if list(line.get_xdata()) == [pytest.approx(2.0)])
    (hollow,) = (line for line in ax.lines if list(line.get_xdata()) == [pytest.approx(0.6)])
    assert filled.get_color() == figures.plots.colour("MOON")
    assert hollow.get_markerfacecolor() == "none"
    low, high = ax.collections[0].get_segments()[0][:, 0]
    assert (low, high) == (pytest.approx(2 - 2.4841, abs=1e-3), pytest.approx(2 + 2.4841, abs=1e-3))
    assert [text.get_text() for text in ax.texts] == [words.verdict(claim), "4 rounds, 3 seeds"]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["FedProx − FedAvg"]
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
        ("", "must be a mapping"),
        ("P: {notebok: x}", "notebok|side by side|findings"),
        ("P: [", "expected"),
        ("P: {notebook: x, claims: [{runs: [[t]]}]}", "claims|side by side|findings"),
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


@functools.cache  # for two tests
def recorded_cells():
    """The cells of all tables of the project, from the committed records."""
    return {name: cells_of(table, committed()) for name, table in project()[0].items()}


def test_the_report_of_an_empty_ledger_says_what_is_printed(tmp_path):
    results = pages.read_results(ROOT / "notebooks" / "sweeps", tmp_path / "runs")
    made = pages.make_pages(results, tmp_path / "out")
    text = made[tmp_path / "out" / "REPORT.md"]
    assert "Not run yet" in text


def test_claims_name_what_there_is():
    """Each is looked for in the paper's own setting first, and its rows are on the same splits."""
    tables, found = project()
    recorded = recorded_cells()
    for paper, of_paper in claims.claims_file().papers.items():
        own = claims.claims_of(paper, claims.cells_among(found))
        assert len(own) >= 4 and {claim.verdict.kind for claim in own} == {Kind.NOT_TESTED}
        assert any(claim.printed for claim in own)
        notebooks = {tables[one.ahead.table].notebook for c in own for one in c.comparisons}
        assert notebooks <= {of_paper.notebook, "06_side_by_side"}
        datasets = {claim.comparisons[0].ahead.job.settings.dataset for claim in own}
        assert not datasets & set(data.EMBEDDED)
        assert sum(claim.entry.main for claim in own) == 2
        for claim in claims.claims_of(paper, claims.cells_among(recorded)):
            for one in claim.comparisons:
                both = set(one.ahead.seeds) & set(one.behind.seeds)
                assert one.lead.diverged or one.lead.seeds == len(both), one.ahead.table


# what a text may have digits in: numbers of tables and the like, names, and settings
NAMES = re.compile(
    r"(Tables?|Figures?|sections?|appendix|notebook) ([IVX]+(-[A-Z])?|[A-Z]\.\d|\d+(\.\d)?)( and \d)?|"
    r"CIFAR-100?|Digit-5|Office-10|(β|λ₁|λ|μ|η|n|W) = [\d.]+(/N)?|\[\d\d\]\(|1 / \(1 − m\)|\(1 − b\)|\{\{.*?\}\}"
)


def test_no_number_in_the_claims_is_typed():
    every = [claims.claims_file().side_by_side.note]
    for finding in claims.claims_file().findings.values():
        every += [finding.says, finding.fact]
    for paper in claims.claims_file().papers.values():
        for entry in paper.entries:
            every += [entry.claim, entry.where, entry.reason]
    for text in every:
        rest = NAMES.sub("", " ".join(text.split()))
        assert not re.search(r"\d|(one|two|three|each|every) seeds?", rest), rest


def test_findings_hold_for_the_committed_records():
    """What is told as a result is one; their tables and rows exist."""
    findings = claims.claims_file().findings
    filler = Filler(cells_of, ROOT)
    untrue = [name for name, finding in findings.items() if not filler.fact(finding)]
    assert not untrue
    assert results.finding(*findings).data.count("\n\n") == len(findings) - 1
    with pytest.raises(ReportError, match="There is no finding 'nothing'"):
        results.finding("nothing")


@pytest.mark.parametrize(
    ("says", "holds", "sentence"),
    [
        ("{{ lead('t', 'FedProx', 'FedAvg') }}", "", "+2.0 ± 2.5 points over 3 seeds"),
        ("{{ by('t', 'FedProx', 'FedAvg') }}", "", "2.0 ± 2.5 points"),
        ("{{ points('t', 'FedProx', 'FedAvg') }}", "", "+2.0 ± 2.5 points"),
        ("{{ measured('t', 'FedProx') }}", "", "68.0 ± 2.5"),
        ("{{ printed('t', 'FedProx') }}", "", "66.9"),
        ("{{ printed_lead('t', 'FedProx', 'FedAvg') }}", "", "0.6"),
        ("{{ link('data/x') }}", "", "../data/x"),
        ("x", "difference('t', 'FedProx', 'FedAvg') > 1.9 and mean('t', 'FedProx') < 69", "x"),
        ("x", "sure('t', 'FedProx', 'FedAvg')", "These records do not bear out"),
        ("{{ measured('t', 'MOON') }}", "", "no single cell MOON"),
        ("{{ measured('t' }}", "", "finding f"),
    ],
)
def test_a_finding_is_filled_from_records_or_says_that_it_is_not_true(says, holds, sentence):
    cells = cells_of(two_rows((67.0, 69.0, 68.0), (66.0, 67.0, 65.0)))
    filler = Filler(lambda name: cells, ROOT / "results")
    finding = Finding("f", "00_foundations", says, holds=holds)
    try:
        said = filler.sentence(finding)
    except ReportError as error:
        said = str(error)
    assert sentence in said


def test_a_finding_without_runs_is_left_out():
    cells = cells_of(table(job("FedProx", 6), job("FedAvg", 6), name="none"))
    filler = Filler(lambda name: cells, ROOT)
    finding = Finding("f", "00_foundations", "{{ measured('none', 'FedProx') }}")
    assert "Not run yet" in filler.sentence(finding) and not filler.fact(finding)


def test_the_line_that_makes_a_run_again_has_its_settings():
    seen = set()
    for cell in itertools.chain(*recorded_cells().values()):
        if cell.seeds and (command := markdown.command(cell)) not in seen:
            seen.add(command)
            notebook, *words = shlex.split(command.removeprefix("python -m fednb run "))
            again = Notebook(notebook).job(dict(map(assignment, words)))
            assert again.path.name == cell.paths[0].name, command
    assert len(seen) > 100
