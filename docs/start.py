"""What the start page and the explorer are filled with: cards of the papers, the data of all cells."""

from pathlib import Path

from markdown_it import MarkdownIt

from fednb import ROOT
from fednb.reporting import cards, explorer

MARKDOWN = MarkdownIt()
FIGURE = ROOT / "results" / "figures" / "glance.svg"


def write_data(folder: Path) -> None:
    """The explorer's scripts, into a folder that is copied to the site."""
    explorer.write(folder / "explorer")


def add_values(records: str):
    """A listener that gives our two pages what they show; ``records`` is where the records lie."""

    def add(app, pagename, templatename, context, doctree):
        if pagename == "explorer":
            context["records"] = records
        if pagename == "index":
            context["cards"] = cards.cards()
            context["inline"] = MARKDOWN.renderInline
            context["figure"] = FIGURE.read_text(encoding="utf-8").partition("?>")[2]
            context["extras"] = sorted((ROOT / "notebooks" / "extras").glob("*.ipynb"))

    return add
