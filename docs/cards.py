"""A card for each paper on the start page, and what the site is made of: read once."""

from functools import cache
from typing import NamedTuple

from fednb import ROOT, papers
from fednb_lab import words
from fednb_lab.claims import Claim, cells_among, claims_file
from fednb_lab.findings import FindingRenderer, headlines
from fednb_lab.pages import Coverage, Front, Results, coverage, front, read_results
from fednb_lab.printed import reported_table


@cache  # the records are read once
def results() -> Results:
    """The project's tables and records."""
    return read_results(ROOT / "notebooks" / "sweeps", ROOT / "results" / "runs")


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
    facts = headlines(FindingRenderer(cells_among(of.cells), ROOT))
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
