"""The sliders of the notebooks in JupyterLab, in a browser: each draws anew when it is moved."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Page, TimeoutError

from fednb import ROOT, papers

PATIENCE = 120_000  # milliseconds, for a machine that does much else
STARTED = re.compile(r"\[(?:\*|\d+)\]")  # the prompt of a cell that runs or did
# What a line asks for that its notebook has computed before.
BEFORE = {"06_side_by_side": "i, logits, counts, labels_of_x = 0, [[1.0] * 10], range(10), [3]"}
IMPORTED = re.compile(r"(?m)^from fednb\.papers\.pictures import .*$")
SLIDERS = re.compile(r"(?m)^(?:plots\.sliders\(.*\)|pictures\.bowls_to_move\(\))$")


def cell_with_sliders(notebook: Path) -> str | None:
    """A notebook's line that gives sliders, with the imports that it needs."""
    source = "\n".join(papers.cells(notebook, "code"))
    found = SLIDERS.search(source)
    if found is None:
        return None
    lines = ["from fednb import plots", IMPORTED.search(source)[0]]
    if notebook.stem in BEFORE:
        lines.append(BEFORE[notebook.stem])
    return "\n".join([*lines, found[0]])


NOTEBOOKS = {path.stem: cell_with_sliders(path) for path in sorted(ROOT.glob("notebooks/0*.ipynb"))}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab whose folder has a notebook of sliders for each notebook."""
    folder = tmp_path_factory.mktemp("lab")
    kernel = {"name": "python3", "display_name": "Python 3"}  # else JupyterLab asks for one
    for name, source in NOTEBOOKS.items():
        shown = new_notebook(cells=[new_code_cell(source)], metadata={"kernelspec": kernel})
        nbformat.write(shown, folder / f"{name}.ipynb")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    # no settings of a user, and no question about news, which would ask a network
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "PYTHONPATH": str(ROOT),
        "JUPYTER_PREFER_ENV_PATH": "1",
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += [f"--port={port}", "--IdentityProvider.token=", "--ServerApp.password="]
    command += [f"--ServerApp.root_dir={folder}", "--ServerApp.disable_check_xsrf=True"]
    command += [
        "--LabApp.news_url=",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        _wait_for(f"{address}/api/status", folder / "log")
        yield address
    finally:
        server.terminate()
        server.wait(60)


def _wait_for(address: str, log: Path) -> None:
    for _ in range(120):
        try:
            urllib.request.urlopen(address, timeout=5)
            return
        except OSError:
            time.sleep(1)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


def execute(page: Page) -> None:
    """Run the first cell; keys pressed while JupyterLab restores its layout get lost."""
    # a cell executed before is forgotten
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    was_run = page.locator(".jp-Notebook .jp-Cell .jp-InputPrompt").first.get_by_text(STARTED)
    for _ in range(8):
        page.click(".jp-Notebook .jp-Cell .jp-InputArea-editor")
        page.keyboard.press("Shift+Enter")
        try:
            was_run.wait_for(timeout=PATIENCE / 8)
            return
        except TimeoutError:
            continue
    pytest.fail(f"The cell was not executed:\n{page.inner_text('.jp-Notebook')}")


def test_every_numbered_notebook_has_something_to_move() -> None:
    assert None not in NOTEBOOKS.values(), NOTEBOOKS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_slider_draws_anew(browser, lab: str, name: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 1200})
    page.set_default_timeout(PATIENCE)
    page.goto(f"{lab}/lab/workspaces/{name}/tree/{name}.ipynb?reset")
    execute(page)
    page.wait_for_selector(".widget-slider")
    shown = ".jp-OutputArea .widget-output img"
    page.wait_for_selector(shown)
    before = page.get_attribute(shown, "src")
    handle = page.locator(".widget-slider .noUi-handle").last
    handle.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "([shown, before]) => {"
        " const image = document.querySelector(shown); return image && image.src !== before; }",
        arg=[shown, before],
    )
    assert "Traceback" not in page.inner_text(".jp-Notebook")
    page.close()
