"""Findings: a sentence vanishes when the records say otherwise, and knows what could speak against it."""

import ast
import functools
import itertools
import operator
import re

import numpy as np
import pytest
from contrary import contrary
from made_up import recorded_project
from scipy import stats

from fednb import ROOT
from fednb.errors import ReportError
from fednb.leads import lead_of
from fednb_lab.claims import Finding, claims_file
from fednb_lab.findings import FindingRenderer
from fednb_lab.leads import Word, compare_at
from fednb_lab.printed import reported_tables

# findings that say that there is no difference, or give a number without a direction
WITHOUT_DIRECTION = {
    "moon-start",
    "side-twins",
    "fednova-on-digits",
    "fednova-momentum",
    "fedbn-statistics",
    "feddisco-classes",
    "fedproto-turns",
}
FINDINGS = claims_file().findings


def recorded(table):
    """The cells of a table, from the committed records."""
    return recorded_project().cells[table]


@functools.cache
def of_records():
    """What fills numbers of the committed records into sentences."""
    return FindingRenderer(recorded, ROOT)


def changed(cell, change):
    """The same cell with other values in its runs."""
    runs = []
    for run in cell.runs:
        if run.value is not None:
            metrics = dict(run.record["metrics"])
            for curve in {"accuracy", cell.measure.curve} & metrics.keys():
                metrics[curve] = [None if one is None else change(one) for one in metrics[curve]]
            record = run.record | {"metrics": metrics}
            run = run._replace(value=change(run.value), record=record)
        runs.append(run)
    return cell.with_runs(runs)


@functools.cache
def turned_cells(table):
    """The cells of a table with all numbers turned round."""
    return [changed(cell, lambda value: 100 - value) for cell in recorded(table)]


@functools.cache
def stirred_cells(table):
    """The cells of a table of which the first runs diverged, and each row ends elsewhere."""
    found = []
    for place, cell in enumerate(recorded(table)):
        moved = changed(cell, functools.partial(operator.add, 3.0 * place))
        if len(moved.runs) > 1:
            diverged = moved.runs[0]._replace(state="diverged", value=None)
            moved = moved.with_runs([diverged, *moved.runs[1:]])
        found.append(moved)
    return found


def without_runs(table):
    """The cells of a table before anything was run."""
    return [cell.with_runs(()) for cell in recorded(table)]


def filler_with(table, cells):
    """What fills numbers of the committed records into sentences, with other cells for one table."""
    return FindingRenderer(lambda of: cells(of) if of == table else recorded(of), ROOT)


def test_findings_hold_for_the_committed_records():
    """What is told as a result is one; their tables and rows exist."""
    filler = of_records()
    assert not [name for name, finding in FINDINGS.items() if not filler.fact(finding)]
    assert not [one for one in FINDINGS.values() if "Not run yet" in filler.sentence(one)]


def test_who_was_ahead_and_is_behind_now_is_not_told_to_be_ahead():
    """With all numbers turned round each finding with a direction falls."""
    filler = FindingRenderer(turned_cells, ROOT)
    borne_out = {one.name for one in FINDINGS.values() if one.holds and filler.fact(one)}
    assert borne_out == WITHOUT_DIRECTION
    fallen = next(one for one in FINDINGS.values() if one.surprise and one.holds)
    assert "do not bear out" in filler.sentence(fallen)


# who says this of a difference says which of the two is better
DIRECTION = re.compile(
    r"\b(ahead|behind|beats?|loses?|wins?|gains?|costs?|improves?|helps?|worth|above|below|better|worse)\b"
)
SIGNED = re.compile(r"\{\{ *(?:lead|points)\((.*?)\) *\}\}")


def test_no_finding_names_a_direction_whose_interval_holds_zero():
    """*Ahead by* is for `by`, which refuses such intervals; before a signed number stands no word for better or worse."""
    texts = itertools.chain(*((one.says, one.fact) for one in FINDINGS.values()))
    for text in texts:
        one_line = " ".join(text.split())
        for number in SIGNED.finditer(one_line):
            before = re.split(r"[.;:][*)]* |\}\}", one_line[: number.start()])[-1]
            if DIRECTION.search(before):
                rows = ast.literal_eval(f"({number[1]},)")
                lead = of_records()._answers._compare(*rows).lead
                assert not (lead.judged and lead.holds_zero), f"{before} {number[0]}"


NUMBER = re.compile(r"(?<![\w.])[+-]?\d[\d.,]*(?: ± [\d.]+)?")


def is_read_at_once(sentence):
    """Whether one can take in an answer: at most 60 words and six numbers (3.0 ± 1.3 is one)."""
    return len(sentence.split()) <= 60 and len(NUMBER.findall(sentence)) <= 6


def test_an_answer_can_be_read_at_once():
    """Other numbers stand in `more`, which a notebook folds; a box in a notebook is no answer."""
    answers = {name: of_records().sentence(one) for name, one in FINDINGS.items()}
    long = [name for name, said in answers.items() if not is_read_at_once(said.lstrip("> "))]
    assert [name for name in long if not answers[name].startswith(">")] == []


@pytest.mark.parametrize("sentence", ["word " * 61, "+1.0 ± 2.0, 2, 3, 4, 5, 6 and 7.5 %"])
def test_a_paragraph_of_words_or_of_numbers_is_no_answer(sentence):
    assert not is_read_at_once(sentence)


def test_what_records_decide_names_what_could_speak_against_it():
    for name, finding in FINDINGS.items():
        assert bool(finding.evidence) == bool(finding.holds) or finding.evidence, name
        for table in finding.evidence:
            assert table in reported_tables() or recorded(table), name
        for table in finding.against:
            assert table.removeprefix("MOON ") in finding.text, (name, table)


@pytest.mark.parametrize("name", [one.name for one in FINDINGS.values() if one.evidence])
def test_a_sentence_follows_each_table_that_could_speak_against_it(name):
    """Without its records it is not told; with others it falls, or its numbers are others."""
    finding = FINDINGS[name]
    before = told(of_records(), finding)
    for table in finding.evidence:
        if table not in reported_tables():
            assert not filler_with(table, without_runs).fact(finding), table
            stirred = told(filler_with(table, stirred_cells), finding)
            turned = told(filler_with(table, turned_cells), finding)
            assert [stirred, turned] != [before, before], table


def told(filler, finding):
    """A finding's sentence, its other numbers, and the leads of its forest."""
    leads = [comparison.lead for comparison in filler.forest(finding)]
    return filler.sentence(finding), filler.more(finding), leads


def test_a_finding_names_the_tables_that_contradict_it():
    """On its own data, whatever the rate, the split or the length: who is behind there is not ahead in silence."""
    cells = recorded_project().cells
    for name, finding in FINDINGS.items():
        found = {one.ahead.table for one in contrary(finding, cells)}
        assert not found, (name, found)


def test_a_table_that_contradicts_is_found_until_it_is_named():
    holds = 'sure("digits-fedproc", "MOON", "FedProc", "Digits")'
    about = {"name": "f", "notebook": "02_fedproc", "says": "", "holds": holds}
    cells = recorded_project().cells
    tables = {one.ahead.table for one in contrary(Finding(**about), cells)}
    assert "digits-fedproc-clients" in tables  # where 8 of 40 clients are drawn
    assert not contrary(Finding(**about, against=tuple(tables)), cells)


def test_a_rank_correlation_is_of_differences_by_seed():
    """Rows with other seeds than FedAvg's are compared with its runs with theirs."""
    answers = of_records()._answers
    found = answers.rank_correlation("fedplcc-2-short", "FedPLCC Table II")
    cells = {(one.row, one.column): one for one in answers._cells_of("fedplcc-2-short")}
    rows = [row for row, column in cells if column == "Avg."]
    fedavg = cells["FedAvg", "Avg."].by_seed
    ours = []
    for row in rows:
        by_seed = cells[row, "Avg."].by_seed
        ours.append(np.mean([value - fedavg[seed] for seed, value in by_seed.items()]))
    printed = [cells[row, "Avg."].printed for row in rows]
    assert found == pytest.approx(stats.spearmanr(printed, ours).statistic)
    assert answers.rank_correlation("fedplcc-4-pacs-short", "FedPLCC Table IV") < found


def test_the_sign_of_a_difference_is_that_of_its_whole_interval():
    answers = of_records()._answers
    nearest = ("mini-fedplcc-nearest", "FedAvg")
    assert answers.sign(*nearest, "clients' means over one mean") == 1
    assert answers.sign(*nearest, "server's clusters over clients' clusters") == -1
    assert answers.sign("fedplcc-2-short", "FedPLCC (Ours)", "Delta") == 0


def test_a_sentence_asks_for_the_word_of_a_claim_by_its_name_in_figures():
    about = {"name": "f", "notebook": "01_moon"}
    says = Finding(**about, says="{{ word('MOON − SCAFFOLD') }}")
    assert of_records().sentence(says) in set(Word)
    nobody = Finding(**about, says="{{ word('MOON − Nobody') }}")
    with pytest.raises(ReportError, match="There is no claim 'MOON − Nobody'"):
        of_records().sentence(nobody)


def test_counted_as_in_the_paper_moons_rounds_fit_the_printed_lead_and_favour_a_copy_of_fedavg():
    """What the reason of that claim says: FedAvg gets to where it ends in its last round, says the paper."""
    (entry,) = [one for one in claims_file().papers["MOON"].claims if one.where == "Table 2"]
    assert "Counted as in the paper" in entry.reason
    place = entry.runs[0]
    comparison = compare_at(recorded(place.table), place.ahead, place.behind, place.column)
    last = comparison.ahead.job.settings.num_rounds
    lead = lead_of([last - first for first in comparison.ahead.values])
    assert lead.judged and lead.mean > lead.half_width
    assert abs(lead.mean - comparison.printed) < lead.half_width
    assert all(first < last for first in comparison.behind.values)


def test_comparisons_that_were_written_down_together_are_corrected_together_run_or_not():
    """A difference that is sure alone is not sure as one of many; those not run count, too."""
    answers = of_records()._answers
    row = ["digits-moon", "FedAvg", "MOON", "Digits"]
    p = answers._compare(*row).lead.p
    among = int(0.05 / p)  # as many as it is still sure among
    assert answers.ahead_among(1, ["digits-fedproc", "FedAvg", "FedProc", "Digits"]) == [1]
    assert answers.ahead_among(1, ["digits-fedproc", "FedProc", "FedAvg", "Digits"]) == [-1]
    assert answers.ahead_among(max(among, 1), row) == [int(among > 0)]
    assert answers.ahead_among(among + 1, row) == [0]
