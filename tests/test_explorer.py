"""The explorer's data: every record has a place, verdicts stand with their cells, and it is JSON."""

import json
import re

import explorer_data as explorer
import numpy as np
import pytest
from made_up import job, record, recorded, table

from fednb import ROOT
from fednb.experiments import ledger
from fednb_lab.analysis import statistics
from fednb_lab.reporting import pages, words
from fednb_lab.reporting.front import cards
from fednb_lab.sweeps import read_tables


@pytest.fixture(autouse=True)
def folder():
    """A ledger of its own for each test."""
    ledger.runs_folder().mkdir(parents=True)
    return ledger.runs_folder()


def gathered(*tables):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "read_tables", lambda _: {one.name: one for one in tables})
        return explorer.gather(pages.read_results(ROOT, ledger.runs_folder()))


def argument(script):
    """What a script hands over: JSON, as strict parsers take it."""
    text = re.fullmatch(r"EXPLORER\.\w+\((?:\"[^\"]*\", )?(.*)\);\n", script, re.DOTALL)[1]
    return json.loads(text, parse_constant=pytest.fail)


def test_a_cell_has_what_its_page_shows():
    found = gathered(recorded(66.0, 67.0, 68.0, num_rounds=20))
    (cell,) = found.cells
    assert (cell["printed"], cell["ours"], cell["line"]) == (66.3, 67.0, 66.3)
    assert cell["setting"] == "short runs"
    assert cell["deviations"] == ["20 rounds instead of 100"]
    assert found.settings[cell["settings"]]["num_rounds"] == 20
    assert [run["seed"] for run in cell["runs"]] == [0, 1, 2]
    for run in cell["runs"]:
        assert (ledger.runs_folder() / run["file"]).exists()
        assert len(found.curves["00_foundations"][run["file"]]["accuracy"]) == 20
    assert cell["again"].endswith("seed=0") and "num_rounds=20" in cell["again"]
    assert cell["check"] == "python -m fednb check moon-1 FedAvg --column CIFAR-10"


def test_a_lead_is_over_the_baseline():
    jobs = [job("FedAvg", seed) for seed in range(3)]
    jobs += [job("FedProx", seed, mu=0.01) for seed in range(3)]
    for one, accuracy in zip(jobs, (60.0, 61.0, 62.0, 61.0, 62.0, 63.0), strict=True):
        record(one, accuracy)
    found = gathered(table(*jobs))
    leads = {cell["row"]: cell.get("lead") for cell in found.cells}
    assert leads == {"FedAvg": None, "FedProx": 1.0}
    assert found.tables["moon-1"]["baseline"] == "FedAvg"


def test_every_record_has_a_place_and_diverged_ones_too():
    own = recorded(66.0, None)
    record(job("FedProx", 7), 50.0)
    record(job("FedProx", 8), status="diverged", curve=[10.0, None])
    scripts = gathered(own).scripts()
    cells = argument(scripts["cells.js"])["cells"]
    states = {run["file"]: run["state"] for cell in cells for run in cell["runs"]}
    assert states.keys() == {path.name for path in ledger.load()}
    assert sorted(states.values()) == ["diverged", "diverged", "finished", "finished"]
    others = [cell for cell in cells if cell["table"] == explorer.IN_NO_TABLE]
    assert [len(cell["runs"]) for cell in others] == [2]  # of one setting, two seeds
    curves = argument(scripts[f"curves/{explorer.OTHERS}.js"])
    assert [10.0, None] in [curve["accuracy"] for curve in curves.values()]


def test_a_failed_run_of_no_table_is_shown_as_failed():
    path = record(job("FedProx", 9), status="failed")
    content = json.loads(path.read_text())
    del content["final"]  # which it never had
    path.write_text(json.dumps(content))
    (cell,) = [cell for cell in gathered().cells if cell["table"] == explorer.IN_NO_TABLE]
    assert (cell.get("ours"), cell["oursText"]) == (None, "failed")


def test_images_that_have_gone_do_not_hide_their_records():
    own = recorded(66.0)
    content = json.loads(own.jobs[0].path.read_text())
    content["settings"]["dataset"] = "folder:gone"
    content["key"] = ledger.key(content["settings"])
    (ledger.runs_folder() / "gone.json").write_text(json.dumps(content))
    assert "folder:gone" in [cell["dataset"] for cell in gathered(own).cells]


def test_a_record_that_is_made_again_is_still_found():
    own = recorded(66.0)
    record(own.jobs[0], version=ledger.RESULTS_VERSION - 1)
    stale = [cell for cell in gathered(own).cells if cell["table"] == explorer.IN_NO_TABLE]
    assert [run["state"] for cell in stale for run in cell["runs"]] == ["stale"]


def test_not_a_number_becomes_null():
    own = recorded(66.0)
    record(own.jobs[0], 66.0, curve=[float("nan"), None, 66.0])
    curves = argument(gathered(own).scripts()["curves/00_foundations.js"])
    assert list(curves.values()) == [{"accuracy": [None, None, 66.0]}]


def test_text_does_not_end_the_script():
    own = recorded(66.0, num_rounds=20)
    record(own.jobs[0], 66.0, dataset={"name": "cifar10", "note": "</script><b>"})
    script = gathered(own).scripts()["cells.js"]
    assert "</script" not in script
    assert argument(script)["cells"][0]["notes"] == ["</script><b>"]


def test_quantiles_make_the_interval_of_the_tables():
    values = [66.0, 67.5, 68.0, 70.0]
    half = explorer.quantiles()[4] * np.std(values, ddof=1) / 2
    assert half == pytest.approx(statistics.interval(values)[1], abs=1e-3)


def test_each_claim_stands_with_the_cell_that_decides_it(tmp_path):
    tables = read_tables(ROOT / "notebooks" / "sweeps")
    explorer.write(tmp_path)
    content = argument((tmp_path / "cells.js").read_text(encoding="utf-8"))
    claims = [claim for cell in content["cells"] for claim in cell.get("claims", ())]
    assert {claim["kind"] for claim in claims} <= set(content["verdicts"])
    for card in cards():
        for main in card.claims:
            verdicts = {claim["verdict"] for claim in claims if claim["says"] == main.entry.claim}
            assert words.verdict(main) in verdicts
    assert {cell["table"] for cell in content["cells"]} >= tables.keys()
    assert {path.parent.name for path in tmp_path.rglob("*.js")} == {tmp_path.name, "curves"}


def test_a_card_names_paper_venue_claim_and_finding():
    found = cards()
    assert [card.notebook for card in found] == sorted(card.notebook for card in found)
    assert len(found) == 5
    for card in found:
        assert card.title and card.front.claim and card.claims
        assert re.fullmatch(r"\S+ 20\d\d", card.front.venue)
