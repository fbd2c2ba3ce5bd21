"""Pages of the site, wide and on a phone: nothing cut off, nothing asked for, pictures described, search."""

import os
import re

import pytest

from fednb import ROOT

SITE = ROOT / "build" / "site"
PAGES = [
    "index.html",
    "explorer.html",
    "README.html",
    "CHANGELOG.html",
    "docs/howto/method.html",
    "docs/api/idea.html",
    "docs/api/moon.html",
    "notebooks/SWEEPS.html",
    "notebooks/extras/tuning.html",
    "results/REPORT.html",
    "results/tables/04_fedproto.html",
]
PAGES += [f"notebooks/{path.stem}.html" for path in sorted((ROOT / "notebooks").glob("0*.ipynb"))]

# Equations whose beginning lies left of what can be scrolled to, or that are cut without a scroll bar.
CLIPPED = """() => [...document.querySelectorAll('mjx-container')].filter(equation => {
  const box = equation.closest('div.math') ?? equation;
  const svg = equation.querySelector('svg');
  if (!svg || !svg.getClientRects().length) return false;
  const starts = svg.getBoundingClientRect().left - box.getBoundingClientRect().left + box.scrollLeft;
  const scrolls = ['auto', 'scroll'].includes(getComputedStyle(box).overflowX);
  const whole = box.scrollWidth <= box.clientWidth + 1 || box.clientWidth === 0;
  return starts < -1 || !(scrolls || whole);
}).map(equation => equation.textContent)"""

# What sticks out of the column of text and cannot be scrolled into view.
STICKING_OUT = """() => [...document.querySelectorAll('article *')].filter(node => {
  const right = node.getBoundingClientRect().right;
  if (right <= window.innerWidth + 1 || !node.getClientRects().length) return false;
  for (let at = node.parentElement; at && at !== document.body; at = at.parentElement) {
    if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(at).overflowX)) return false;
  }
  return getComputedStyle(node).overflowX === 'visible';
}).map(node => node.outerHTML.slice(0, 120)).slice(0, 5)"""


def ready(page):
    """The page with its equations and tables drawn."""
    if "/explorer.html" in page.url:
        page.wait_for_selector("body[data-explorer=ready]")
    page.evaluate("() => window.MathJax?.startup?.promise")
    return page


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_whole(visit, path):
    page = ready(visit(path))
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate(CLIPPED) == []
    assert page.evaluate(STICKING_OUT) == []
    without = (
        "[...document.images].filter(i => !i.alt || /^[0-9a-f]{20,}/.test(i.alt)).map(i => i.src)"
    )
    assert page.evaluate(f"() => {without}") == []
    assert page.locator("h1").count() >= 1


def test_equations_are_drawn(visit):
    page = ready(visit("notebooks/01_moon.html"))
    page.wait_for_selector("div.math mjx-container svg")
    assert page.locator("mjx-container").count() > 20
    assert page.locator("mjx-merror").count() == 0


def test_the_start_page_has_cards_and_doors(visit):
    page = visit("index.html")
    assert page.locator(".card-paper .paper-title").count() == 5
    assert page.locator(".card-paper .verdict").count() >= 5
    page.locator(".card-paper .verdict").first.click()
    page.wait_for_selector("body[data-explorer=ready]")
    assert page.input_value("#filter-paper") == "MOON"
    assert page.input_value("#filter-verdict")


def test_claims_are_read_without_scrolling_sideways(visit):
    page = visit("results/REPORT.html")
    assert page.locator("table.claims").count() >= 5  # one for each paper, and what is beside it
    assert page.locator("table.claims .verdict").count() > 15  # of those that are judged
    too_wide = """() => [...document.querySelectorAll('table.claims')].filter(
      table => table.scrollWidth > table.parentElement.clientWidth + 1).length"""
    assert page.evaluate(too_wide) == 0


def test_the_code_of_a_method_leads_to_the_notebook_with_its_equations(visit):
    page = visit("docs/api/moon.html")
    assert page.locator("main a[href*='notebooks/01_moon']").count() >= 1
    classes = page.locator("dl.py.class > dt").all_inner_texts()
    assert "MOON" in classes[0]  # in the order in which they are written


@pytest.mark.parametrize("path", ["notebooks/01_moon", "notebooks/SWEEPS"])
def test_only_notebooks_of_a_fork_have_a_button_for_colab(visit, path):
    repository = os.environ.get("GITHUB_REPOSITORY", "")
    buttons = visit(f"{path}.html").locator("a.colab")
    found = buttons.evaluate_all("all => all.map(one => one.href)")
    place = f"https://colab.research.google.com/github/{repository}/blob/colab/{path}.ipynb"
    assert found == ([place] if repository and path.endswith("01_moon") else [])


@pytest.mark.parametrize("path", ["notebooks/01_moon", "notebooks/extras/tuning"])
def test_a_notebook_lies_beside_its_page(visit, path):
    link = visit(f"{path}.html").locator("a.notebook-file").get_attribute("href")
    copied = (SITE / path).parent / link
    assert copied.read_bytes() == (ROOT / f"{path}.ipynb").read_bytes()


def test_the_bowls_can_be_moved(visit):
    """With one step a round the server gets close to the minimum of the sum, with sixty it does not."""
    page = visit("index.html")
    distances = []
    for steps in ("60", "1"):
        page.locator("#bowls [name=steps]").fill(steps)
        page.locator("#bowls [name=size]").fill("0.2")
        distances.append(float(re.search(r"\d+\.\d+", page.inner_text("#bowls output"))[0]))
    assert distances[0] > 0.5 > distances[1]


def test_code_does_not_scroll_sideways(visit, width):
    """On a phone it may."""
    scrolls = """() => [...document.querySelectorAll('article div.highlight pre')].filter(
      block => block.scrollWidth > block.clientWidth + 1).length"""
    for path in ("notebooks/01_moon.html", "notebooks/04_fedproto.html"):
        assert width < 1200 or visit(path).evaluate(scrolls) == 0


def test_search_finds_a_page(visit):
    page = visit("search.html?q=SCAFFOLD")
    page.locator("#search-results li", has_text="Foundations").first.wait_for()


def test_links_inside_the_site_lead_somewhere():
    """Every page or file that a page links to is there, and every anchor."""
    pages = {path: path.read_text(encoding="utf-8") for path in SITE.rglob("*.html")}
    anchors = {
        path: set(re.findall(r'\b(?:id|name)="([^"]+)"', text)) for path, text in pages.items()
    }
    broken = []
    assert len(pages) > len(PAGES)
    for path, text in pages.items():
        for target, anchor in re.findall(r'<a [^>]*href="([^":#?]*)(?:#([^"]*))?"', text):
            file = (path.parent / target).resolve() if target else path
            if not file.exists():
                broken.append(f"{path.relative_to(SITE)}: {target}")
            elif anchor and file in anchors and file.name != "explorer.html":
                if anchor not in anchors[file]:
                    broken.append(f"{path.relative_to(SITE)}: {target}#{anchor}")
    assert sorted(set(broken)) == []
