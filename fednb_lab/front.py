"""What notebooks say of themselves on their first lines, and a card for each paper."""

import re
from pathlib import Path
from typing import NamedTuple

from fednb import ROOT, papers
from fednb_lab.cells import cells_of
from fednb_lab.claims import Claim, claims_file, claims_of
from fednb_lab.findings import Filler, headlines
from fednb_lab.printed import reported_table


class Front(NamedTuple):
    """The first lines of a notebook; a text that it does not have is empty."""

    number: str  # such as 01; extras have none
    title: str  # the words before the colon, such as MOON
    venue: str  # and year, such as CVPR 2021
    link: str  # to the paper
    claim: str  # in Markdown, at most two sentences
    reading: str  # such as 30 min


def front(notebook: Path) -> Front:
    """Read from its Markdown cells, without executing it."""
    texts = papers.cells(notebook, "markdown")
    heading, *rest = [line for line in texts[0].splitlines() if line.strip()]
    citation = rest[0] if rest else ""  # the line below the title
    number, _, title = heading.removeprefix("# ").rpartition(" · ")
    claim = _found(r"\*\*Claim[^*]*\*\* (.+)", "\n".join(texts))
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z])", claim)
    return Front(
        number=number,
        title=title.partition(":")[0],
        venue=_venue(citation),
        link=_found(r"\]\((https?://[^)]+)\)", citation),
        claim=" ".join(sentences[:2]),
        reading=_found(r"[Rr]ead: (\d+ min)ute", texts[0]),
    )


def _found(pattern: str, text: str) -> str:
    """What the pattern's group holds; empty where it is not found."""
    match = re.search(pattern, text)
    return match[1] if match else ""


def _venue(citation: str) -> str:
    """Such as ``CVPR 2021``; a paper that names none is on arXiv."""
    year = _found(r"\b(20\d\d)\b", citation)
    on_arxiv = f"arXiv {year}" if year else ""
    return _found(r"\b([A-Z]{3,8} 20\d\d)\b", citation) or on_arxiv


class Card(NamedTuple):
    """What the start page has of a paper."""

    paper: str
    title: str
    notebook: str
    front: Front  # of the notebook
    claims: list[Claim]  # the main ones
    fact: str  # in Markdown; empty if records do not bear it out


def cards() -> list[Card]:
    """The papers in the order of their notebooks."""
    facts = headlines(Filler(cells_of, ROOT))
    found = []
    by_notebook = sorted(claims_file().papers.items(), key=lambda item: item[1].notebook)
    for paper, about in by_notebook:
        title = reported_table(paper).about.text
        said = front(papers.path(about.notebook))
        main = [claim for claim in claims_of(paper) if claim.entry.main]
        fact = facts.get(about.notebook, "")
        found.append(Card(paper, title, about.notebook, said, main, fact))
    return found
