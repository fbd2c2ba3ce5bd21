"""What the start page and the explorer are filled with: cards of the papers, the data of all cells."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import explorer_data as explorer
import matplotlib.pyplot as plt
from markdown_it import MarkdownIt

from fednb import ROOT, papers, plots
from fednb_lab import figures, words
from fednb_lab.claims import Claim, cells_among, claims_file
from fednb_lab.findings import Filler, headlines
from fednb_lab.pages import Coverage, Front, Results, coverage, front
from fednb_lab.printed import reported_table

MARKDOWN = MarkdownIt("commonmark", {"html": False})  # texts of records are in it
FIGURE = ROOT / "results" / "figures" / "glance.svg"


class Extra(NamedTuple):
    """A notebook that goes beyond a paper."""

    page: str
    title: str


@cache  # the records are read once
def results() -> Results:
    """The project's tables and records."""
    return explorer.project_results()


class Card(NamedTuple):
    """What the start page has of a paper."""

    paper: str
    title: str
    notebook: str
    front: Front  # of the notebook
    claims: list[Claim]  # the main ones
    num_claims: int  # of all
    counted: str  # the words of all its claims
    coverage: Coverage
    fact: str  # in Markdown; empty if records do not bear it out


def cards(of: Results) -> list[Card]:
    """Make a card for each paper, in the order of their notebooks."""
    facts = headlines(Filler(cells_among(of.cells), ROOT, of.claims))
    found = []
    by_notebook = sorted(claims_file().papers.items(), key=lambda item: item[1].notebook)
    for paper, about in by_notebook:
        claims = of.claims[paper]
        card = Card(
            paper=paper,
            title=reported_table(paper).about.text,
            notebook=about.notebook,
            front=front(papers.path(about.notebook)),
            claims=[claim for claim in claims if claim.entry.main],
            num_claims=len(claims),
            counted=words.counted(claims),
            coverage=coverage(paper, of.tables, of.cells),
            fact=facts.get(about.notebook, ""),
        )
        found.append(card)
    return found


def write_data(folder: Path) -> None:
    """The explorer's scripts and the start page's figure, into a folder that is copied to the site."""
    explorer.write(folder / "explorer", results())
    (folder / FIGURE.name).write_bytes(FIGURE.read_bytes())
    _draw_narrow(results(), folder / "glance-narrow.svg")


def add_values(records: str, repository: str):
    """A listener that gives our two pages what they show.

    ``records`` is where the records lie, ``repository`` the OWNER/REPO of a fork, or empty.
    """

    def add(app, pagename, templatename, context, doctree):
        if pagename == "explorer":
            context["records"] = records
        if pagename == "index":
            context["cards"] = cards(results())
            context["inline"] = MARKDOWN.renderInline
            context["extras"] = [
                Extra(f"notebooks/extras/{path.stem}", front(path).title)
                for path in papers.notebooks(extras=True)
                if path.parent.name == "extras"
            ]
            context["begin"] = _line_to_begin_with(repository)

    return add


def _line_to_begin_with(repository: str) -> str:
    if not repository:
        return "make run"
    folder = repository.partition("/")[2]
    return f"git clone https://github.com/{repository} && cd {folder} && make run"


def _draw_narrow(found: Results, path: Path) -> None:
    """The figure for a phone: what stands beside a claim's line stands above it."""
    main = [
        (paper, claim)
        for paper, claims in found.claims.items()
        for claim in claims
        if claim.entry.main and claim.entry.short
    ]
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "narrow"}):
        plots.style()
        ax = figures.draw_claims(main)
        for text in list(ax.texts):
            text.remove()
        ax.set_yticks([])
        for y, (_, claim) in enumerate(main):
            _write_above(ax, y, claim)
        ax.set_ylim(len(main) - 0.6, -0.7)
        legend = ax.get_legend()
        ax.legend(
            legend.legend_handles,
            [text.get_text() for text in legend.get_texts()],
            loc="lower left",
            bbox_to_anchor=(0, 1),
            frameon=False,
        )
        figure = ax.get_figure()
        figure.set_size_inches(4.4, 1.6 + 0.62 * len(main))
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        plt.close(figure)


def _write_above(ax: plt.Axes, y: float, claim: Claim) -> None:
    place = {"y": y - 0.18, "va": "bottom", "transform": ax.get_yaxis_transform()}
    ax.text(x=0.02, s=claim.entry.short, **place)
    ax.text(x=0.98, s=str(claim.word), ha="right", weight="bold", **place)
