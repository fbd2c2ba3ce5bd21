"""The explorer's data: every record has a place, verdicts stand with their cells, and it is JSON."""

import csv
import html
import io
import json
import re

import explorer_data
import mistune
import numpy as np
import pytest
from made_up import job, record, recorded, recorded_project, table

from fednb import ROOT
from fednb import leads as statistics
from fednb import records as ledger
from fednb_lab import pages, tables
from fednb_lab.cells import cells_of


@pytest.fixture(autouse=True)
def folder():
    """A ledger of its own for each test."""
    ledger.runs_folder().mkdir(parents=True)
    return ledger.runs_folder()


def gathered(*tables):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "read_tables", lambda _: {one.name: one for one in tables})
        return explorer_data.gather(pages.read_results(ROOT, ledger.runs_folder()))


def argument(script):
    """What a script hands over: JSON, as strict parsers take it."""
    text = re.fullmatch(r"EXPLORER\.\w+\((?:\"[^\"]*\", )?(.*)\);\n", script, re.DOTALL)[1]
    return json.loads(text, parse_constant=pytest.fail)


def test_a_cell_has_what_its_page_shows():
    found = gathered(recorded(66.0, 67.0, 68.0, num_rounds=20))
    (cell,) = found.cells
    assert (cell["printed"], cell["ours"]) == (66.3, 67.0)
    assert "line" not in cell  # printed is what a hundred rounds make
    (in_full,) = gathered(recorded(66.0, 67.0, 68.0)).cells[:1]
    assert in_full["line"] == 66.3
    assert cell["setting"] == "short runs"
    assert cell["deviations"] == ["20 rounds instead of 100"]
    assert found.settings[cell["settings"]]["num_rounds"] == 20
    assert [run["seed"] for run in cell["runs"]] == [0, 1, 2]
    for run in cell["runs"]:
        assert (ledger.runs_folder() / run["file"]).exists()
        assert len(found.curves["00_foundations"][run["file"]]["accuracy"]) == 20
    assert cell["again"].endswith("seed=0") and "num_rounds=20" in cell["again"]
    assert cell["check"] == "fednb check moon-1 FedAvg --column CIFAR-10"


def test_a_lead_is_over_the_baseline():
    jobs = [job("FedAvg", seed) for seed in range(3)]
    jobs += [job("FedProx", seed, mu=0.01) for seed in range(3)]
    for one, accuracy in zip(jobs, (60.0, 61.0, 62.0, 61.0, 62.0, 63.0), strict=True):
        record(one, accuracy)
    found = gathered(table(*jobs))
    leads = {cell["row"]: cell.get("lead") for cell in found.cells}
    assert leads == {"FedAvg": None, "FedProx": 1.0}
    assert found.tables["moon-1"]["baseline"] == "FedAvg"


def test_every_record_of_a_table_has_a_place_and_diverged_ones_too():
    own = recorded(66.0, None)
    record(job("FedProx", 7), 50.0)  # in no table
    scripts = gathered(own).scripts()
    cells = argument(scripts["cells.js"])["cells"]
    states = {run["file"]: run["state"] for cell in cells for run in cell["runs"]}
    assert states.keys() == {one.path.name for one in own.jobs}
    assert sorted(states.values()) == ["diverged", "finished"]
    curves = argument(scripts["curves/00_foundations.js"])
    assert curves.keys() == states.keys()


HOSTILE = "</script><img src=x onerror=alert(1)> | `code` [link](javascript:x) =cmd"


def test_text_of_a_record_does_not_end_the_script():
    own = recorded(66.0, num_rounds=20)
    record(own.jobs[0], 66.0, dataset={"name": "cifar10", "note": HOSTILE})
    script = gathered(own).scripts()["cells.js"]
    assert "<" not in script and ">" not in script
    assert argument(script)["cells"][0]["notes"] == [HOSTILE]


def test_text_of_a_record_is_text_on_a_page_of_tables():
    own = recorded(66.0, num_rounds=20)
    record(own.jobs[0], 66.0, dataset={"name": "cifar10", "note": HOSTILE})
    text = tables.table_in_full(own, cells_of(own), "../runs", page=True)
    assert "<img" not in text and "<script" not in text and "</script" not in text
    shown = str(mistune.create_markdown(plugins=["table"])(text))
    assert "<img" not in shown and not re.search(r'href="javascript:', shown)
    assert "onerror=alert(1)" in html.unescape(shown)  # it is still told


def test_no_text_of_a_record_is_a_formula():
    own = recorded(66.0, num_rounds=20)
    for note in ("=cmd|' /C calc'!A0", "+1", "-1", "@x"):
        record(own.jobs[0], 66.0, dataset={"name": "cifar10", "note": note})
        text = pages.cells_csv({own.name: cells_of(own)})
        (line,) = csv.DictReader(io.StringIO(text))
        assert line["note"] == f"'{note}" and float(line["mean"]) == 66.0


def test_quantiles_make_the_interval_of_the_tables():
    values = [66.0, 67.5, 68.0, 70.0]
    half = explorer_data.quantiles()[4] * np.std(values, ddof=1) / 2
    assert half == pytest.approx(statistics.interval(values)[1], abs=1e-3)


def test_each_claim_stands_with_a_cell(tmp_path):
    results = recorded_project()
    explorer_data.write(tmp_path, results)
    content = argument((tmp_path / "cells.js").read_text(encoding="utf-8"))
    claims = [claim for cell in content["cells"] for claim in cell.get("claims", ())]
    assert len(claims) == sum(map(len, results.claims.values()))
    assert {claim["kind"] for claim in claims} <= set(content["verdicts"])
    assert {cell["table"] for cell in content["cells"]} >= results.tables.keys()
    assert {path.parent.name for path in tmp_path.rglob("*.js")} == {tmp_path.name, "curves"}
