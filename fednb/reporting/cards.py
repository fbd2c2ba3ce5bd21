"""A card for each paper: what it claims, what is left of it, and what was found besides."""

import re
from pathlib import Path
from typing import NamedTuple

from fednb import ROOT, papers
from fednb.analysis.cells import cells_of
from fednb.analysis.claims import claims_file, claims_of
from fednb.analysis.reported import reported_table
from fednb.reporting import words
from fednb.reporting.findings import Filler
from fednb.reporting.pages import first_claim


class MainClaim(NamedTuple):
    """A main claim of a paper, and its verdict."""

    says: str
    kind: str  # one of the six words
    verdict: str  # the word, and on what runs it rests


class Card(NamedTuple):
    """What the start page has of a paper."""

    paper: str
    title: str
    venue: str  # and year
    notebook: str
    claim: str  # in Markdown
    claims: tuple[MainClaim, ...]
    fact: str  # in Markdown; empty if records do not bear it out


def cards(folder: Path = ROOT) -> list[Card]:
    """The papers in the order of their notebooks; links as seen from ``folder``."""
    described = sorted(claims_file().papers.items(), key=lambda item: item[1].notebook)
    filler = Filler(cells_of, folder)
    return [_card(paper, about.notebook, filler) for paper, about in described]


def _card(paper: str, notebook: str, filler: Filler) -> Card:
    main = []
    for claim in claims_of(paper):
        if claim.entry.main:
            kind = str(claim.verdict.kind)
            main.append(MainClaim(claim.entry.claim, kind, words.verdict(claim)))
    path = papers.path(notebook)
    return Card(
        paper=paper,
        title=reported_table(paper).about.text,
        venue=venue(papers.cells(path, "markdown")[0]),
        notebook=notebook,
        claim=first_claim(path),
        claims=tuple(main),
        fact=headline(notebook, filler),
    )


def headline(notebook: str, filler: Filler) -> str:
    """The first finding of a notebook; empty if it has none, or records do not bear it out."""
    for finding in claims_file().findings.values():
        if finding.notebook == notebook:
            return filler.fact(finding) or ""
    return ""


def venue(first_cell: str) -> str:
    """Such as ``CVPR 2021``, from the citation below the title; a paper that names none is on arXiv."""
    lines = [line for line in first_cell.splitlines() if line.strip()]
    citation = lines[1]
    conference = re.search(r"\b[A-Z]{3,8} 20\d\d\b", citation)
    if conference:
        return conference[0]
    year = re.search(r"\b20\d\d\b", citation)
    return f"arXiv {year[0]}" if year else ""
