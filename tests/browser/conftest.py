"""A headless Chromium without a network, and pages that fail a test when they complain or ask for anything."""

import shutil

import pytest
from playwright.sync_api import sync_playwright

from fednb import ROOT

SITE = ROOT / "build" / "site"
WIDTHS = {"wide": 1280, "phone": 390}
PATIENCE = 120_000  # milliseconds, for a machine that does much else


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium; `make test-site` installs it where it is missing."""
    found = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    program = next(filter(None, found), None)
    assert program, "There is no chromium here: `make test-site` says how to install it."
    assert (SITE / "index.html").exists(), "There is no site in build/site: run `make site`."
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(params=WIDTHS)
def width(request):
    """Of the window, in pixels."""
    return WIDTHS[request.param]


@pytest.fixture
def visit(browser, width):
    """Open a page of the site by its path; at the end of the test nothing may have gone wrong."""
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True)
    context.set_default_timeout(PATIENCE)
    problems = []

    def note_message(message):
        if message.type in ("error", "warning"):
            problems.append(f"console: {message.text}")

    def note_request(request):
        if not request.url.startswith(("file://", "data:", "blob:")):
            problems.append(f"asks for {request.url}")

    def opened(path):
        page = context.new_page()
        page.on("console", note_message)
        page.on("pageerror", lambda error: problems.append(f"page: {error}"))
        page.on("request", note_request)
        page.on("requestfailed", lambda request: problems.append(f"not found: {request.url}"))
        page.goto(f"{SITE.as_uri()}/{path}")
        return page

    yield opened
    context.close()
    assert not problems


@pytest.fixture
def explore(visit):
    """Open the results explorer at an address."""

    def opened(address=""):
        page = visit(f"explorer.html{address}")
        page.wait_for_selector("body[data-explorer=ready]")
        return page

    return opened
