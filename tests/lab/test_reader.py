"""A reader's kernel: what notebooks show of recorded runs comes from committed files, and nothing of the lab."""

import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
from made_up import recorded_project
from pydantic import ValidationError

from fednb import ROOT, leads, results
from fednb.errors import ReportError
from fednb_lab import for_readers
from fednb_lab.claims import Finding, cells_among, claims_file
from fednb_lab.findings import FindingRenderer
from fednb_lab.leads import compare_at, leads_over_baseline

NOTEBOOKS = ROOT / "notebooks"


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


# --- the files


def test_what_is_committed_is_what_the_report_writes():
    for name, text in for_readers.files(recorded_project()).items():
        committed = (ROOT / "results" / name).read_text(encoding="utf-8")
        assert committed == text, f"fednb report: {name}"


def test_leads_from_the_file_of_cells_are_those_of_the_records():
    """Of every table's rows over its baseline: same pairs, of the same seed on the same split."""
    compared = 0
    project = recorded_project()
    for name, table in project.tables.items():
        for comparison in leads_over_baseline(table, project.cells[name])[1].values():
            ahead, behind = comparison.ahead, comparison.behind
            found = results.compare(
                results.cell(name, ahead.row, ahead.column),
                results.cell(name, behind.row, behind.column),
            )
            expected = comparison.lead
            assert (found.seeds, found.diverged) == (expected.seeds, expected.diverged), name
            if found.seeds > 1 and found.mean is not None:
                assert found.half_width == pytest.approx(expected.half_width)
                assert found.p == pytest.approx(expected.p, abs=1e-12)
                assert list(found.values) == pytest.approx(list(comparison.by_seed.values()))
                compared += 1
    assert compared > 500


def test_rows_on_other_divisions_of_the_data_are_in_no_pair():
    rows = ("FedAvg, without the balance rule", "SCAFFOLD")
    assert results.compare(*(results.cell("digits-deviations", row) for row in rows)).seeds == 0
    assert compare_at(recorded_project().cells["digits-deviations"], *rows).lead.seeds == 0


# --- what notebooks call


def test_links_lead_from_the_notebook_that_runs(monkeypatch, tmp_path):
    # elsewhere as from notebooks/
    for here, folder in ((tmp_path, NOTEBOOKS), (NOTEBOOKS / "extras", NOTEBOOKS / "extras")):
        monkeypatch.chdir(here)
        (page,) = re.findall(r"\]\(([^)#]+)", results.finding("fedproto-privacy").data)
        assert (folder / page).exists()


def test_numbers_that_an_answer_does_without_are_folded_below_it(monkeypatch):
    found = {
        "one": {"sentence": "An answer.", "more": ["first", "second"]},
        "two": {"sentence": "So."},
    }
    monkeypatch.setattr(results, "load", lambda name: found)
    shown = results.finding("one", "two").data
    answer, folded, other = re.fullmatch(
        r"(.+?)\n\n<details>(.+)</details>\n\n(.+)", shown, re.DOTALL
    ).groups()
    assert (answer, other) == ("An answer.", "So.")
    assert re.findall("^- (.+)$", folded, re.MULTILINE) == ["first", "second"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: results.cells("moon-99"), "There is no table 'moon-99'"),
        (lambda: results.finding("nothing"), "There is no finding 'nothing'"),
        (lambda: results.cell("moon-1", "MONO"), r"moon-1 has no single cell MONO \| any column"),
    ],
)
def test_what_there_is_not_is_told_in_a_sentence(call, message):
    with pytest.raises(ReportError, match=message):
        call()


# --- forests


def test_a_forest_has_a_line_for_each_difference_with_its_number_and_tells_the_same_in_words():
    """What is drawn, what stands beside it and what is told to those who do not see it agree."""
    for name, finding in claims_file().findings.items():
        if not finding.forest:
            continue
        ax = results.forest(name)
        texts = [text.get_text() for text in ax.texts]
        for y, line in enumerate(finding.forest):
            found = compare_at(
                recorded_project().cells[line.table], line.ahead, line.behind, line.column
            )
            drawn = [one for one in ax.lines if list(one.get_ydata())[:1] == [y]]
            places = [place for one in drawn for place in one.get_xdata()]
            assert found.lead.mean in places or set(found.lead.values) <= set(places)
            assert found.printed is None or found.printed in places
            assert texts[y] == results.numbers(found.lead)
            assert f"{line.label}: {texts[y]}" in ax.get_label()
        labels = [one.get_text() for one in ax.get_yticklabels()]
        assert labels == [line.label for line in finding.forest]
        drawn = results.load("findings")[name]["forest"]["lines"]
        colours = {results._forest_row(line).colour for line in drawn}
        assert ("coloured by the larger mean" in ax.get_xlabel()) == (len(colours) > 1), name
        plt.close()


def made_up(**line):
    """A finding with a forest of one line."""
    usual = {"label": "digits", "table": "digits-moon", "ahead": "MOON", "behind": "FedAvg"}
    described = {"name": "made-up", "notebook": "01_moon", "says": "A sentence."}
    return Finding.model_validate(described | {"forest": [usual | line]})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"table": "digits-mono"}, "finding made-up: there is no table 'digits-mono'"),
        ({"ahead": "MONO"}, r"finding made-up: digits-moon has no single cell MONO"),
        ({"colum": "Digits"}, "colum"),
    ],
)
def test_a_line_of_what_there_is_not_names_the_finding(line, message):
    filler = FindingRenderer(cells_among(recorded_project().cells), ROOT)
    assert filler.forest(made_up())[0].lead.judged
    with pytest.raises((ReportError, ValidationError), match=message):
        filler.forest(made_up(**line))


def test_a_row_is_drawn_as_the_method_that_it_is_called_like():
    """FedAvg with unit norm is run as a setting of FedProc, and must not have FedProc's colour."""
    filler = FindingRenderer(cells_among(recorded_project().cells), ROOT)
    control = made_up(
        table="digits-fedproc-control", ahead="FedAvg, z of length 1", column="lr 0.03"
    )
    picture = for_readers._forest(control, filler.forest(control))
    assert picture["lines"][0]["methods"] == ["FedAvg", "FedAvg"]


def test_below_three_seeds_a_forest_has_a_dot_for_each_seed_and_no_interval():
    few = leads.lead_of([2.0, -1.0])
    ax = results.draw_forest([results.ForestRow("two seeds", few, "k", results.numbers(few))])
    assert ax.texts[0].get_text() == "(+2.0, −1.0), n = 2"
    assert {2.0, -1.0} <= {float(x) for line in ax.lines for x in line.get_xdata()}
    assert not [bars for bars in ax.containers if bars.has_xerr]


# --- leads


def test_a_lead_of_equal_values_has_no_width():
    assert leads.lead_of([2.0] * 3)[:4] == (3, 2.0, 0.0, 0.0)
    assert leads.lead_of([0.0] * 3).p == 1.0
    assert leads.lead_of([]).mean is None and leads.lead_of([np.inf, 1.0]).mean is None


def test_pairs_are_of_what_both_have():
    ahead, behind = {0: 5.0, 1: 7.0, 2: 9.0}, {1: 6.0, 2: 10.0, 3: 1.0}
    assert leads.differences(ahead, behind) == {1: 1.0, 2: -1.0}
    assert leads.differences(ahead, behind, sign=-1) == {1: -1.0, 2: 1.0}
