"""Claims: each word by hand, in pairs, corrected for their number; the file of claims; no typed number."""

import dataclasses
import itertools
import math
import re
import shlex

import pytest
from made_up import job, project, record, recorded_project, results_with, table
from scipy import stats

from fednb import ROOT, data
from fednb.errors import ReportError
from fednb.leads import Lead, interval
from fednb.leads import lead_of as lead
from fednb.results import REPORTED, lines
from fednb_lab import claims, leads, pages, tables, words
from fednb_lab.arguments import assignment
from fednb_lab.cells import cells_of
from fednb_lab.claims import ClaimEntry, ClaimsFile, Finding, PaperClaims
from fednb_lab.findings import FindingContext, FindingRenderer
from fednb_lab.jobs import Notebook
from fednb_lab.leads import Word, compare_at, holm, word_for

METHODS = ("FedProx", "FedAvg")


# t(0.975, 2 degrees of freedom) = 4.3027; leads m − d, m, m + d have the half width 2.4841 d at 95 %, 1.6859 d at 90 %
@pytest.mark.parametrize(
    ("differences", "printed", "word"),
    [
        ((), (2.0,), Word.NOT_TESTED),
        ((1.3,), (2.8,), Word.NOT_TESTED),
        ((-3.6, -3.5), (2.5,), Word.NOT_TESTED),
        ((math.inf, 1.0, 1.0), (2.0,), Word.OPEN),
        ((1.4, 2.4, 3.4), (), Word.OPEN),  # it would be ahead at 90 %
        ((1.4, 2.4, 3.4), (2.4,), Word.OPEN),  # a wide interval confirms nothing
        ((1.4, 2.4, 3.4), (5.2,), Word.NOT_SEEN),
        ((-0.1, 0.0, 0.1), (3.0,), Word.NOT_SEEN),
        ((0.0, 0.0, 0.0), (), Word.OPEN),
        ((1.6, 2.6, 3.6), (), Word.CONFIRMED),
        ((1.6, 2.6, 3.6), (5.0,), Word.CONFIRMED),  # 2.48 away
        ((1.6, 2.6, 3.6), (5.2,), Word.SMALLER),
        ((2.5, 2.6, 2.7), (2.0,), Word.LARGER),
        ((2.5, 2.6, 2.7), (9.0, 2.5), Word.CONFIRMED),  # a paper that prints two numbers
        ((2.5, 2.6, 2.7), (9.0, 5.0), Word.SMALLER),
        ((-1.6, -2.6, -3.6), (2.0,), Word.REVERSED),
        ((-1.6, -2.6, -3.6), (), Word.REVERSED),
    ],
)
def test_two_answers_make_one_of_seven_words(differences, printed, word):
    assert word_for(lead(differences), printed) == word
    diverged = word_for(lead(differences, diverged=True), printed)  # what is left are lucky seeds
    assert diverged == (Word.OPEN if len(differences) >= 3 else Word.NOT_TESTED)


def test_intervals_and_p_values_are_scipys():
    values = [0.3, 1.1, -0.2, 0.9]
    one = lead(values)
    test = stats.ttest_1samp(values, 0)
    low, high = test.confidence_interval()
    assert one.p == pytest.approx(test.pvalue)
    assert interval(values) == (one.mean, one.half_width)
    assert (one.mean, one.half_width) == pytest.approx(((low + high) / 2, (high - low) / 2))
    assert (lead([2.0, 2.0]).p, lead([0.0, 0.0]).p) == (0, 1) and math.isnan(lead([1.0]).p)


def test_many_comparisons_are_corrected_in_both_directions():
    """Holm, step by step: 0.01, 0.02, 0.03 and 0.5 become 0.04, 0.06, 0.06 and 0.5; what is not judged does not count."""
    seeds = [
        Lead(3, -1.0, 0.5, 0.02),
        Lead(3, 1.0, 0.5, 0.01),
        Lead(3, 0.1, 0.5, 0.5),
        Lead(3, 2.0, 0.5, 0.03),
    ]
    family = holm([*seeds, lead([5.0]), lead([])])
    assert [one.p for one in family[:4]] == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert [one.shown for one in family] == [False, True, False, False, False, False]
    # its own interval lies below 0, but it is one of four: neither behind nor ahead
    assert [word_for(family[0]), word_for(family[0], (2.0,))] == [Word.OPEN, Word.NOT_SEEN]
    assert word_for(family[1]) == Word.CONFIRMED
    assert family[4][:2] == (1, 5.0)


def test_several_readings_of_the_same_runs_are_one_comparison():
    """0.01 and 0.04 of the same runs, 0.03 of others: two comparisons, so twice 0.01 and 0.04, and once 0.03."""
    of = [Lead(3, 1.0, 0.5, 0.01), Lead(3, 1.0, 0.5, 0.03), Lead(3, 1.0, 0.5, 0.04)]
    family = holm(of, ["a", "b", "a"])
    assert [one.p for one in family] == pytest.approx([0.02, 0.03, 0.08])
    assert {one.among for one in family} == {2}


def two_rows(fedprox, fedavg, columns=("CIFAR-10",)):
    """A table t of two rows with a run per accuracy; in further columns FedProx is a point better each time."""
    jobs = []
    sets = {"CIFAR-10": {}, "CIFAR-100": {"dataset": "cifar100"}}
    for place, column in enumerate(columns):
        for method, values in zip(METHODS, (fedprox, fedavg), strict=True):
            for seed, accuracy in enumerate(values):
                jobs.append(job(method, seed, num_rounds=4, **sets[column]))
                better = place * (method == "FedProx")
                record(jobs[-1], curve=[0.0, 0.0, 0.0, accuracy + better])
    labels = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
    return table(*jobs, name="t", labels=labels)


def in_full(fedprox, fedavg, name="t"):
    """The same in the paper's own setting."""
    jobs = []
    for method, values in zip(METHODS, (fedprox, fedavg), strict=True):
        for seed, accuracy in enumerate(values):
            jobs.append(job(method, seed, mu=0.01) if method == "FedProx" else job(method, seed))
            record(jobs[-1], accuracy)
    return table(*jobs, name=name)


def entry(*names, ahead="FedProx", behind="FedAvg", column="CIFAR-10", **more):
    place = {"ahead": ahead, "behind": behind, "column": column}
    told = {"claim": "FedProx is ahead", "where": "Table 1", "short": "FedProx − FedAvg"}
    return ClaimEntry.model_validate(told | place | {"runs": list(names)} | more)


def claimed(monkeypatch, *entries):
    """Let these claims be all of a paper P."""
    papers = {"P": PaperClaims(notebook="00_foundations", claims=entries)}
    monkeypatch.setattr(claims, "claims_file", lambda: ClaimsFile(papers, {}))


def judged(monkeypatch, *of, names=None, **more):
    """The claim that a row is ahead, which these tables (or those with the ``names``) are about."""
    claimed(monkeypatch, entry(*(names or [one.name for one in of]), **more))
    cells = {one.name: cells_of(one) for one in of}
    (claim,) = claims.claims_of("P", claims.cells_among(cells))
    return claim


def test_a_pair_of_runs_counts_once_in_the_family_of_claims(monkeypatch):
    t = in_full((67.0, 69.0, 68.0), (66.0, 67.0, 65.0))
    again = dataclasses.replace(t, name="again")
    claimed(monkeypatch, entry("t"), entry("again"))
    cells = {one.name: cells_of(one) for one in (t, again)}
    both = claims.claims_of("P", claims.cells_among(cells))
    assert [claim.lead.among for claim in both] == [1, 1]


def told(of, ahead, behind):
    return words.lead_over_seeds(compare_at(cells_of(of), ahead, behind))


def test_a_lead_in_words_is_of_runs_with_the_same_seed_on_the_same_split():
    # differences 1, 2, 3; the fourth has no partner
    t = two_rows((67.0, 69.0, 68.0, 99.0), (66.0, 67.0, 65.0))
    assert told(t, "FedProx", "FedAvg") == "+2.0 ± 2.5 points over 3 seeds"
    t = two_rows((68.0, 69.0, 68.0), (66.0, 67.0, 65.0))
    assert told(t, "FedAvg", "FedProx") == "-2.3 ± 1.4 points over 3 seeds"
    record(t.jobs[0], curve=[0.0, 0.0, 0.0, 68.0], split="another")
    assert told(t, "FedProx", "FedAvg") == "(+2.0, +3.0) points (two runs)"
    with pytest.raises(
        ReportError, match=r"no single cell MOON \| any column; there are FedProx \| CIFAR-10"
    ):
        told(t, "MOON", "FedAvg")
    for one in t.jobs[:3]:
        one.path.unlink()
    assert told(t, "FedProx", "FedAvg") == "not run"


def test_below_three_seeds_the_values_stand_there_and_no_interval():
    t = two_rows((67.0, 69.0), (66.0, 67.5))
    assert told(t, "FedProx", "FedAvg") == "(+1.0, +1.5) points (two runs)"
    assert words.measured(cells_of(t)[0]) == "(67.0, 69.0)"


def test_fewer_rounds_are_ahead():
    jobs = [job(method, seed, num_rounds=9) for method in METHODS for seed in range(3)]
    for one, first in zip(jobs, (5, 4, 5, 7, 7, 7), strict=True):  # the first round that gets there
        record(one, curve=[50.0] * (first - 1) + [60.0] * (10 - first))
    t = table(*jobs, printed=None, measure="rounds_to_target", target=60)
    assert told(t, "FedProx", "FedAvg") == "+2.3 ± 1.4 rounds fewer over 3 seeds"
    assert told(t, "FedAvg", "FedProx") == "-2.3 ± 1.4 rounds fewer over 3 seeds"


def test_the_mean_over_columns_is_taken_seed_by_seed():
    t = two_rows((67.0, 69.0, 68.0), (66.0, 67.0, 65.0), columns=("CIFAR-10", "CIFAR-100"))
    both = compare_at(cells_of(t), "FedProx", "FedAvg", ["CIFAR-10", "CIFAR-100"])
    assert both.by_seed == pytest.approx({0: 1.5, 1: 2.5, 2: 3.5})
    of_one = compare_at(cells_of(t), "FedProx", "FedAvg", "CIFAR-10")
    assert both.runs != of_one.runs and len(both.deviations) > len(of_one.deviations)
    printed_leads = [part.printed for part in both.parts]
    assert both.printed == pytest.approx(sum(printed_leads) / 2)


def test_a_claim_is_judged_in_pairs_and_follows_the_records(monkeypatch):
    # seeds scatter forty times as much as they differ
    t = in_full((11.0, 51.1, 90.9), (10.0, 50.0, 90.0))
    claim = judged(monkeypatch, t)
    assert claim.decisive.lead.mean == pytest.approx(1.0)
    assert claim.printed == pytest.approx((66.9 - 66.3,))
    assert claim.word == Word.LARGER
    turned = judged(monkeypatch, t, ahead="FedAvg", behind="FedProx")
    assert turned.printed == pytest.approx((-0.6,))
    assert turned.word == Word.REVERSED
    for one, accuracy in zip(t.jobs[:3], (9.0, 48.9, 89.1), strict=True):
        record(one, accuracy)
    assert judged(monkeypatch, t).word == Word.REVERSED


def on_digits(difference):
    """Three seeds of the two rows on another data set."""
    jobs = [job(method, seed, dataset="digits") for method in METHODS for seed in range(3)]
    for one in jobs:
        ahead = difference if one.settings.method == "FedProx" else 0
        record(one, 50.0 + ahead + 0.01 * one.settings.seed * ahead)
    return table(*jobs, name="digits", labels={"digits": "CIFAR-10"}, printed=None)


@pytest.mark.parametrize("seeds", [0, 1, 2])
def test_too_few_seeds_in_the_papers_setting_test_nothing(monkeypatch, seeds):
    """Whatever shorter runs with seeds, and other data, say."""
    accuracies = (60.0, 60.1)[:seeds], (59.9, 59.9)[:seeds]
    full = (
        in_full(*accuracies, name="full")
        if seeds
        else table(job("FedProx", 9), job("FedAvg", 9), name="full")
    )
    short = two_rows((53.0, 53.1, 53.2), (50.0, 50.0, 50.0))
    claim = judged(monkeypatch, full, short, on_digits(-1.0))
    assert claim.word == Word.NOT_TESTED and claim.decisive is None
    beside = {one.ahead.table for one in claim.beside}
    assert beside == {"t", "digits"}
    line = tables.untested_table([claim], lambda name: f"tables/x.md#{name}").splitlines()[-1]
    assert "tables/x.md#digits), 3 seeds: -1.0" in line and "+3.1 ± 0.2" in line
    assert words.ours(claim) == ("", "+0.1", "(+0.1, +0.2)")[seeds]


def test_seeds_in_the_papers_setting_decide_alone(monkeypatch):
    full = in_full((60.0, 60.1, 60.2), (59.4, 59.5, 59.7), name="full")
    claim = judged(
        monkeypatch, full, two_rows((43.0, 43.1, 43.2), (50.0, 50.0, 50.0)), on_digits(-9.0)
    )
    assert claim.decisive.ahead.table == "full" and claim.word == Word.CONFIRMED
    assert tables.untested_table([claim], str) == ""
    assert "**confirmed**" in tables.judged_table({"P": [claim]}, str)


def test_other_images_of_the_same_data_set_decide_nothing(monkeypatch):
    full = in_full((60.0, 60.1, 60.2), (59.4, 59.5, 59.7))
    for one in full.jobs:
        record(one, 60.0, dataset={"name": "cifar10", "note": "a tenth of the images"})
    claim = judged(monkeypatch, full)
    assert claim.word == Word.NOT_TESTED
    assert "other images" in tables.untested_table([claim], str)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ahead": "MOON"}, r"t has no single cell MOON \| CIFAR-10"),
        ({"names": ["u"]}, r"there is no table 'u': known are t"),
    ],
)
def test_a_claim_about_what_there_is_not(monkeypatch, wrong, message):
    with pytest.raises(ReportError, match=rf"data/claims.yaml, P, claim 1: .*{message}"):
        judged(monkeypatch, two_rows((51.0,), (50.0,)), **wrong)
    with pytest.raises(ReportError, match="no claims of 'Q': known are P"):
        claims.claims_of("Q", list)


def test_the_report_of_an_empty_ledger_says_what_is_printed(tmp_path):
    results = results_with({}, tmp_path / "runs")
    made = pages.make_pages(results, tmp_path / "out")
    text = made[tmp_path / "out" / "REPORT.md"]
    assert "Not run yet" in text
    number = sum(len(of_paper) for of_paper in results.claims.values())
    assert f"**{number} not tested**" in text.split("\n\n")[1]


def test_claims_name_what_there_is():
    """Each is looked for in the paper's own setting first, and its rows are on the same splits."""
    of_project, found = project()
    recorded = recorded_project().cells
    for paper, of_paper in claims.claims_file().papers.items():
        own = claims.claims_of(paper, claims.cells_among(found))
        assert len(own) >= 4 and {claim.word for claim in own} == {Word.NOT_TESTED}
        assert any(claim.printed for claim in own)
        notebooks = {of_project[one.ahead.table].notebook for c in own for one in c.comparisons}
        assert notebooks <= {of_paper.notebook, "06_side_by_side"}
        for claim in own:
            assert not claim.not_the_papers(claim.comparisons[0]), claim.entry.claim
        datasets = {claim.comparisons[0].ahead.job.settings.dataset for claim in own}
        assert not datasets & set(data.EMBEDDED)
        assert sum(claim.entry.main for claim in own) == 2
        names = [claim.entry.short for claim in own if claim.entry.short]
        assert len(set(names)) == len(names)
        for claim in claims.claims_of(paper, claims.cells_among(recorded)):
            for one in claim.comparisons:
                if not one.parts:
                    both = set(one.ahead.seeds) & set(one.behind.seeds)
                    assert one.lead.diverged or one.lead.seeds == len(both), one.ahead.table


def test_coverage_counts_each_printed_number_once():
    results = recorded_project()
    for paper in results.claims:
        found = pages.coverage(paper, results.tables, results.cells)
        assert found.printed >= found.measured >= found.in_setting >= found.with_seeds
        numbers = [one for one in lines(REPORTED).items() if one[0].startswith(f"{paper} ")]
        values = [line["value"] for _, of_table in numbers for line in of_table if line["row"]]
        assert found.printed == sum(map(bool, values)) > 0
    assert pages.coverage("MOON", *project())[1:] == (0, 0, 0)


# what a text may have digits in: numbers of tables and the like, names, and settings
NAMES = re.compile(
    r"(Tables?|Figures?|sections?|appendix|notebook) ([IVX]+(-[A-Z])?|[A-Z]\.\d|\d+(\.\d)?)(, \d)?( and \d)?|"
    r"CIFAR-100?|Digit-5|Office-10|(β|λ₁|λ|μ_glob|μ_moon|μ|η|n|W|τ) = [\d.]+(/N)?(, \d)?( and [\d.]+\b)?|\[\d\d\]\(|"
    r"1 / \(1 − m\)|1 − [bm]\b|100, 20 and 1|seed 0|\{\{.*?\}\}|\{%.*?%\}"
)


COUNTED = "one|two|three|four|five|six|seven|eight|nine|ten|each|every"


def test_no_number_in_the_claims_is_typed():
    every = []
    for finding in claims.claims_file().findings.values():
        every += [finding.says, *finding.more, finding.fact]
    for paper in claims.claims_file().papers.values():
        for one in paper.claims:
            every += [one.claim, one.where, one.reason]
    for text in every:
        rest = NAMES.sub("", " ".join(text.split()))
        assert not re.search(rf"\d|\b({COUNTED})( new| more| of its)? seeds?\b", rest), rest


@pytest.mark.parametrize(
    ("says", "holds", "sentence"),
    [
        ("{{ lead('t', 'FedProx', 'FedAvg') }}", "", "+2.0 ± 2.5 points over 3 seeds"),
        ("{{ by('t', 'FedProx', 'FedAvg') }}", "", "These records do not bear out"),
        ("{{ by('t', 'FedAvg', 'FedProx') }}", "", "These records do not bear out"),
        ("{{ lead_of_last(1, 't', 'FedProx', 'FedAvg') }}", "", "+2.0 ± 2.5 points"),
        ("{{ lead_of_last(2, 't', 'FedProx', 'FedAvg') }}", "", "+1.0 ± 1.2 points"),
        ("{{ lead_of_first(1, 't', 'FedProx', 'FedAvg') }}", "", "+0.0 ± 0.0 points"),
        ("x", "sure_of_first(2, 't', 'FedProx', 'FedAvg')", "These records do not bear out"),
        ("at {{ setting('lr', 't', 'FedProx') }}", "", "at 0.01"),
        ("after {{ rounds_to(60, 't', 'FedProx') }}", "", "after 4"),
        ("after {{ rounds_to(99, 't', 'FedProx') }}", "", "Not run yet"),
        ("{{ setting('rate', 't', 'FedProx') }}", "", "There is no setting 'rate'"),
        ("{{ points('t', 'FedProx', 'FedAvg') }}", "", "+2.0 ± 2.5 points"),
        ("{{ measured('t', 'FedProx') }}", "", "68.0 ± 2.5"),
        ("{{ printed('t', 'FedProx') }}", "", "66.9"),
        ("{{ printed_lead('t', 'FedProx', 'FedAvg') }}", "", "0.6"),
        ("{{ of_seed(1, 't', 'FedProx') }}", "", "69.0"),
        ("{{ '%.1f' % mean_over_printed('t', 'FedProx') }}", "", "1.1"),
        ("{{ recorded('t', 'FedProx') }}", "", "True"),
        ("{{ reported('MOON Figure 7', 'SCAFFOLD', 'CIFAR-10') }}", "", "45.3"),
        ("{{ link('data/x') }}", "", "../data/x"),
        ("x", "difference('t', 'FedProx', 'FedAvg') > 1.9 and mean('t', 'FedProx') < 69", "x"),
        ("x", "sure('t', 'FedProx', 'FedAvg')", "These records do not bear out"),
        ("{{ measured('t', 'MOON') }}", "", "no single cell MOON"),
        ("{{ measured('t' }}", "", "finding f"),
    ],
)
def test_a_finding_is_filled_from_records_or_says_that_it_is_not_true(says, holds, sentence):
    cells = cells_of(two_rows((67.0, 69.0, 68.0), (66.0, 67.0, 65.0)))
    filler = FindingRenderer(lambda name: cells, ROOT / "results")
    finding = Finding(name="f", notebook="00_foundations", says=says, holds=holds)
    try:
        said = filler.sentence(finding)
    except ReportError as error:
        said = str(error)
    assert sentence in said


# ahead with each seed is not enough from three seeds on; of two runs there is no interval, and each must be ahead
@pytest.mark.parametrize(
    ("fedprox", "sentence", "holds_zero"),
    [
        ((71.9, 68.4), "by 4.9 and 1.4 points", True),
        ((71.9, 66.4), "do not bear out", True),
        ((71.0, 71.1, 70.9), "by 4.0 ± 0.2 points", False),
        ((71.0, 75.0, 67.5), "do not bear out", True),
        ((63.0, 63.1, 62.9), "do not bear out", False),
    ],
)
def test_who_is_ahead_is_told_only_where_the_interval_or_each_of_two_runs_says_so(
    fedprox, sentence, holds_zero
):
    cells = cells_of(two_rows(fedprox, (67.0, 67.0, 67.0)[: len(fedprox)]))
    finding = Finding(name="f", notebook="01_moon", says="by {{ by('t', 'FedProx', 'FedAvg') }}")
    assert sentence in FindingRenderer(lambda name: cells, ROOT).sentence(finding)
    answers = FindingContext(lambda name: cells, ROOT)
    for pair in (("FedProx", "FedAvg"), ("FedAvg", "FedProx")):
        assert answers.holds_zero("t", *pair) == holds_zero


def test_a_finding_falls_with_each_of_its_other_numbers():
    cells = cells_of(two_rows((67.0, 69.0, 68.0), (66.0, 67.0, 65.0)))
    filler = FindingRenderer(lambda name: cells, ROOT)
    about = {"name": "f", "notebook": "01_moon", "says": "x"}
    other = "+2.0 ± 2.5 points"
    stands = Finding(**about, more=("{{ points('t', 'FedProx', 'FedAvg') }}",))
    assert (filler.sentence(stands), filler.more(stands)) == ("x", [other])
    falls = Finding(**about, more=("{{ by('t', 'FedProx', 'FedAvg') }}",))
    assert "do not bear out" in filler.sentence(falls) and not filler.more(falls)


def test_a_finding_without_runs_is_left_out():
    cells = cells_of(table(job("FedProx", 6), job("FedAvg", 6), name="none"))
    filler = FindingRenderer(lambda name: cells, ROOT)
    finding = Finding(name="f", notebook="01_moon", says="{{ measured('none', 'FedProx') }}")
    assert "Not run yet" in filler.sentence(finding) and not filler.fact(finding)


def test_the_line_that_makes_a_run_again_has_its_settings():
    """Of every thirtieth cell, of all tables."""
    seen = set()
    every_cell = itertools.chain(*recorded_project().cells.values())
    for cell in itertools.islice(every_cell, 0, None, 30):
        if cell.seeds and (command := tables.command(cell)) not in seen:
            seen.add(command)
            notebook, *words_ = shlex.split(command.removeprefix("fednb run "))
            again = Notebook(notebook).job(dict(map(assignment, words_)))
            assert again.path.name == cell.paths[0].name, command
    assert len(seen) > 30


def test_leads_over_a_baseline_are_of_the_same_column():
    t = two_rows((67.0, 69.0, 68.0), (66.0, 67.0, 65.0), columns=("CIFAR-10", "CIFAR-100"))
    name, found = leads.leads_over_baseline(t, cells_of(t))
    assert name == "FedAvg"
    means = {column: one.lead.mean for (_, column), one in found.items()}
    assert means == pytest.approx({"CIFAR-10": 2.0, "CIFAR-100": 3.0})


@pytest.mark.parametrize(
    ("says", "holds", "told"),
    [
        ("{{ leed('moon-1') }}", "", "'leed' is undefined"),
        ("", "shure", "'shure' is undefined"),
        ("", "1 / 0", "division by zero"),
        ("", "1 +", "unexpected"),
        ("{{ range(3) | ruond }}", "", "ruond"),
    ],
)
def test_a_wrong_word_in_a_finding_is_named(says, holds, told):
    finding = Finding(name="mine", notebook="01_moon", says=says, holds=holds)
    with pytest.raises(ReportError, match=f"finding mine: .*{told}"):
        FindingRenderer(recorded_project().cells.get, ROOT).sentence(finding)
