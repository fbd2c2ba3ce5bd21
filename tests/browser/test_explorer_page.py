"""The results explorer as people use it: filter, sort, open, compare, send the address to somebody."""

import csv
import json
import os
import re
from urllib.parse import quote

import pytest

from fednb import ROOT

REPOSITORY = os.environ.get("GITHUB_REPOSITORY", "")  # the site of a fork leads to its files
MOON, FEDAVG = "moon-1-short|MOON|CIFAR-10", "moon-1-short|FedAvg|CIFAR-10"


@pytest.fixture(scope="module")
def content():
    """What the explorer's script hands over."""
    path = ROOT / "build" / "site" / "_static" / "explorer" / "cells.js"
    text = path.read_text(encoding="utf-8").strip()
    return json.loads(text.removeprefix("EXPLORER.cells(").removesuffix(");"))


def settled(page):
    """The page once it shows what its address says: it follows a change of it a moment later."""
    page.wait_for_function("document.body.dataset.shown === location.hash")
    return page


def shown(page, field):
    """The values of a column in the rows that fit, in their order."""
    return settled(page).evaluate(
        "field => EXPLORER.grid.getData('active').map(cell => cell[field] ?? null)", field
    )


def number_of_cells(page):
    return int(settled(page).inner_text("#count").split()[0].replace(",", ""))


def address(*cells, **filters):
    parts = [f"{name}={quote(value)}" for name, value in filters.items()]
    if cells:
        parts.append(f"cell={quote('~'.join(cells))}")
    return "#" + "&".join(parts)


def test_all_cells_are_there(explore, content):
    page = explore()
    assert number_of_cells(page) == len(content["cells"]) > 3000
    assert set(shown(page, "table")) == set(content["tables"])


def test_filters_leave_what_fits_and_say_what_is_left(explore, content):
    page = explore()
    page.select_option("#filter-paper", "FedProto")
    page.select_option("#filter-dataset", "MNIST")
    papers = {name for name, table in content["tables"].items() if table["paper"] == "FedProto"}
    fitting = [
        cell for cell in content["cells"] if cell["table"] in papers and cell["dataset"] == "MNIST"
    ]
    assert number_of_cells(page) == len(shown(page, "id")) == len(fitting) > 10
    methods = settled(page).evaluate(
        "[...document.querySelectorAll('#filter-method option')].map(o => o.value)"
    )
    assert set(methods) == {"", *(cell["method"] for cell in fitting)}
    page.click("#filter-reset")
    assert number_of_cells(page) == len(content["cells"])


def test_words_verdicts_and_states_filter_too(explore, content):
    page = explore()
    page.fill("#filter-search", "side cifar10")
    found = shown(page, "table")
    assert found and all("side-cifar10" in table for table in found)
    claims = (claim for cell in content["cells"] for claim in cell.get("claims", ()))
    word = next(claim["kind"] for claim in claims)
    page = explore(address(verdict=word))
    found = shown(page, "verdict")
    assert found and all(word in verdict for verdict in found)
    page = explore(address(runs="diverged"))
    assert number_of_cells(page) > 0


def test_a_click_opens_a_cell(explore, content):
    page = explore(address(table="moon-1-short"))
    page.locator(".tabulator-row a", has_text=re.compile("^MOON$")).first.click()
    section = page.locator("section.cell")
    section.wait_for()
    (cell,) = [c for c in content["cells"] if f"{c['table']}|{c['row']}|{c['column']}" == MOON]
    text = section.inner_text()
    for fact in (cell["printedText"], cell["oursText"], cell["again"], cell["check"]):
        assert fact in text
    assert all(deviation in text for deviation in cell["deviations"])
    assert section.locator(".records a").count() == len(cell["runs"])
    assert "num_rounds" in section.locator("details").text_content()
    assert page.locator("#opened svg .mean path, #opened svg g[class*=mean] path").count() == 1
    assert page.locator("#opened svg g[class*=band] path").count() == 1
    # a printed number is a line among the curves in the paper's own setting only
    drawn = page.locator("#opened svg").first.text_content()
    assert (f"printed {cell['printedText']}" in drawn) == (cell.get("line") is not None)


def test_a_click_leads_to_the_curves(explore):
    page = explore(address(runs="diverged"))
    page.locator(".tabulator-row").nth(2).click()
    page.locator("section.cell").wait_for()
    page.wait_for_function("document.querySelector('#opened').getBoundingClientRect().top < 200")


def test_the_band_is_the_interval_over_seeds(explore, content):
    page = explore(address(MOON))
    (cell,) = [c for c in content["cells"] if f"{c['table']}|{c['row']}|{c['column']}" == MOON]
    last = page.evaluate("id => bandOf(curvesOfCell(EXPLORER.cellsById.get(id))).at(-1)", MOON)
    assert last["round"] == content["settings"][cell["settings"]]["num_rounds"]
    assert last["mean"] == pytest.approx(cell["ours"], abs=0.01)
    assert last["high"] - last["mean"] == pytest.approx(cell["half"], abs=0.01)
    assert last["mean"] - last["low"] == pytest.approx(cell["half"], abs=0.01)
    top = "name => document.querySelector(`#opened svg g[class*=${name}] path`).getBBox().y"
    assert page.evaluate(top, "band") < page.evaluate(top, "mean") - 1


def test_links_to_records_lead_to_files(explore):
    page = explore(address(MOON))
    links = page.locator("section.cell .records a").evaluate_all("all => all.map(one => one.href)")
    folder = (ROOT / "results" / "runs").as_uri()
    if REPOSITORY:
        folder = f"https://github.com/{REPOSITORY}/blob/"
    assert links
    for link in links:
        assert (ROOT / "results" / "runs" / link.rpartition("/")[2]).exists()
        assert link.startswith(folder)


def test_a_row_is_opened_by_the_keyboard(explore):
    page = explore(address(table="moon-1-short"))
    page.locator(".tabulator-row a", has_text="FedProx").focus()
    page.keyboard.press("Enter")
    page.locator("section.cell[data-cell='moon-1-short|FedProx|CIFAR-10']").wait_for()
    assert page.input_value("#filter-table") == "moon-1-short"


def test_what_the_filters_leave_can_be_taken_along(explore, tmp_path):
    page = explore(address(table="moon-1-short"))
    with page.expect_download() as download:
        page.click("#download")
    download.value.save_as(tmp_path / "cells.csv")
    with (tmp_path / "cells.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == number_of_cells(page)
    (moon,) = [row for row in rows if row["row"] == "MOON"]
    assert (moon["table"], moon["data set"], moon["runs"]) == ("moon-1-short", "CIFAR-10", "6")
    assert float(moon["ours"]) > 10 and float(moon["interval"]) > 0


def test_cells_stand_side_by_side(explore):
    page = explore(address(table="moon-1-short"))
    for row in ("MOON", "FedAvg"):
        page.locator(f"input[aria-label='side by side: moon-1-short|{row}|CIFAR-10']").click()
        page.locator(f"section.cell[data-cell='moon-1-short|{row}|CIFAR-10']").wait_for()
    assert page.locator("section.cell").count() == 2
    assert page.locator("#opened svg g[class*=mean] path").count() == 2
    page.locator("section.cell .close").first.click()
    assert settled(page).locator("section.cell").get_attribute("data-cell") == FEDAVG


def test_the_address_is_the_state(explore):
    first = explore()
    first.select_option("#filter-paper", "MOON")
    first.select_option("#filter-table", "moon-1-short")
    settled(first).locator(".tabulator-row", has_text="FedAvg").first.click()
    first.locator("section.cell").wait_for()
    second = explore(first.evaluate("location.hash"))
    assert second.input_value("#filter-paper") == "MOON"
    assert shown(second, "id") == shown(first, "id")
    assert second.locator("section.cell").get_attribute("data-cell") == FEDAVG
    first.go_back()
    first.wait_for_function("document.querySelectorAll('section.cell').length === 0")


def test_every_record_of_a_table_has_a_place(explore, content):
    files = {run["file"] for cell in content["cells"] for run in cell.get("runs", ())}
    cells = (ROOT / "results" / "cells.csv").read_text(encoding="utf-8")
    assert files == set(re.findall(r"[^;,\s\"]+\.json", cells))
    states = {run["file"]: run["state"] for c in content["cells"] for run in c.get("runs", ())}
    diverged = next(name for name, state in states.items() if state == "diverged")
    page = explore(f"#record={quote(diverged)}")
    page.locator("section.cell .records .asked").wait_for()
    assert "diverged" in page.inner_text("section.cell .records .asked")
    assert "runs that diverged" in page.inner_text("#opened figcaption")


def test_what_is_not_there_is_said(explore):
    page = explore(address("no|such|cell"))
    assert "There is no no|such|cell" in page.inner_text("#opened")
    page = explore("#record=none.json")
    assert "There is no none.json" in page.inner_text("#opened")
