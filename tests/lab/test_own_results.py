"""The explorer of a sweep of one's own: one file of HTML, which needs nothing beside it."""

import json
import re

import pytest
from made_up import job, record

from fednb import records as ledger
from fednb_lab import explorer
from fednb_lab.__main__ import main

SWEEP = """
notebook: 00_foundations
tables:
  mine:
    title: "</script><b>mine</b>"
    rows: method
    columns: beta
    tier: minutes-cpu
    parameters: {dataset: cifar10, num_rounds: 20}
    grid: {method: [FedAvg, FedProx], beta: [0.5], seed: [0, 1]}
"""


def cells_of(page):
    (text,) = re.findall(r"EXPLORER\.cells\((.*)\);", page)
    return json.loads(text)


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """A sweep file with two cells, of which one is recorded."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my sweep.yaml"
    path.write_text(SWEEP)
    ledger.runs_folder().mkdir(parents=True)
    for seed, accuracy in enumerate((50.0, 52.0)):
        record(job("FedAvg", seed, beta=0.5, num_rounds=20), accuracy)
    return path


def test_its_page_has_cells_curves_and_records(sweep, tmp_path, monkeypatch):
    for is_installed in (False, True):
        packages = tmp_path / "packages"
        if is_installed:
            for package, _, file in explorer.LIBRARIES:
                (packages / package / file).parent.mkdir(parents=True, exist_ok=True)
                (packages / package / file).write_text("/* drawn with this */")
        monkeypatch.setattr(explorer, "PACKAGES", packages)
        assert main(["report", str(sweep), "--explorer", "pages/mine.html"]) == 0
        page = (tmp_path / "pages" / "mine.html").read_text(encoding="utf-8")
        assert ("drawn with this" in page, explorer.ADDRESS in page) == (
            is_installed,
            not is_installed,
        )
        assert "<b>mine" not in page
        fed_avg, fed_prox = cells_of(page)["cells"]
        assert (fed_avg["ours"], fed_prox.get("ours")) == (51.0, None)
        assert fed_avg["check"].startswith("fednb check '")  # the path has a blank
        (curves,) = re.findall(r"EXPLORER\.curves\(.*, (\{.*\})\);", page)
        (folder,) = re.findall(r'data-records="([^"]*)"', page)
        for file in json.loads(curves):
            assert (tmp_path / "pages" / folder / file).is_file()
        assert len(json.loads(curves)) == 2


def test_a_page_has_the_ending_of_one(sweep, capsys):
    assert main(["report", str(sweep), "--explorer", "mine.htm"]) == 2
    assert ".html" in capsys.readouterr().err
