"""Draws docs/site.png, the README's picture of the results explorer, after `make site`: ``python docs/picture.py``."""

import shutil
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
CELLS = "moon-1-short|MOON|CIFAR-10~moon-1-short|SCAFFOLD|CIFAR-10"
ADDRESS = f"#table=moon-1-short&cell={quote(CELLS)}"
SIZE = {"width": 1080, "height": 1090}

if __name__ == "__main__":
    with sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)
        page.goto(f"{(ROOT / 'build' / 'site' / 'explorer.html').as_uri()}{ADDRESS}")
        page.wait_for_selector("body[data-explorer=ready]")
        page.wait_for_selector("section.cell")
        page.evaluate("window.scrollTo({ top: 0, behavior: 'instant' })")
        page.wait_for_timeout(1000)  # what the theme moves has come to rest
        page.screenshot(path=ROOT / "docs" / "site.png")
