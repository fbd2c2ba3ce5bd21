"""A card for each paper: what it claims, what is left of it, and what was found besides."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fednb import ROOT, papers
from fednb.analysis.cells import cells_of
from fednb.analysis.claims import claims_file, claims_of
from fednb.analysis.reported import reported_table
from fednb.reporting import words
from fednb.reporting.findings import Filler, headlines
from fednb.reporting.front import front


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
    facts = headlines(Filler(cells_of, folder))
    return [_card(paper, about.notebook, facts) for paper, about in described]


def _card(paper: str, notebook: str, facts: Mapping[str, str]) -> Card:
    main = []
    for claim in claims_of(paper):
        if claim.entry.main:
            kind = str(claim.verdict.kind)
            main.append(MainClaim(claim.entry.claim, kind, words.verdict(claim)))
    said = front(papers.path(notebook))
    return Card(
        paper=paper,
        title=reported_table(paper).about.text,
        venue=said.venue,
        notebook=notebook,
        claim=said.claim,
        claims=tuple(main),
        fact=facts.get(notebook, ""),
    )
