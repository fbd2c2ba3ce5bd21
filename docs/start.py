"""What the start page and the explorer are filled with: cards of the papers, the data of all cells."""

from pathlib import Path
from typing import NamedTuple

import explorer_data
import matplotlib.pyplot as plt
from cards import cards, results
from markdown_it import MarkdownIt

from fednb import ROOT, papers, plots
from fednb_lab import figures
from fednb_lab.claims import Claim
from fednb_lab.pages import Results, front

MARKDOWN = MarkdownIt("commonmark", {"html": False})  # texts of records are in it
FIGURE = ROOT / "results" / "figures" / "glance.svg"


class Extra(NamedTuple):
    """A notebook that goes beyond a paper."""

    page: str
    title: str


def write_data(folder: Path) -> None:
    """The explorer's scripts and the start page's figure, into a folder that is copied to the site."""
    explorer_data.write(folder / "explorer", results())
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
        figure = ax.get_figure()
        (legend,) = figure.legends
        legend.remove()
        names = [text.get_text() for text in legend.get_texts()]
        figure.legend(legend.legend_handles, names, loc="outside lower center", frameon=False)
        figure.set_size_inches(4.4, 1.6 + 0.62 * len(main))
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        plt.close(figure)


def _write_above(ax: plt.Axes, y: float, claim: Claim) -> None:
    place = {"y": y - 0.18, "va": "bottom", "transform": ax.get_yaxis_transform()}
    ax.text(x=0.02, s=claim.entry.short, **place)
    ax.text(x=0.98, s=str(claim.word), ha="right", weight="bold", **place)
