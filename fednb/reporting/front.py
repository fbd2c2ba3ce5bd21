"""What a notebook says of itself on its first lines: title, paper, claim, how long it takes."""

import re
from pathlib import Path
from typing import NamedTuple

from fednb import papers


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
    number, title = _heading(texts[0])
    return Front(
        number=number,
        title=title,
        venue=venue(texts[0]),
        link=_link(texts[0]),
        claim=_claim("\n".join(texts)),
        reading=_reading(texts[0]),
    )


def venue(first_cell: str) -> str:
    """Such as ``CVPR 2021``, from the line below the title; a paper that names none is on arXiv."""
    citation = _citation(first_cell)
    conference = re.search(r"\b[A-Z]{3,8} 20\d\d\b", citation)
    if conference:
        return conference[0]
    year = re.search(r"\b20\d\d\b", citation)
    return f"arXiv {year[0]}" if year else ""


def _heading(first_cell: str) -> tuple[str, str]:
    heading = first_cell.splitlines()[0].removeprefix("# ")
    number, dot, title = heading.rpartition(" · ")
    return number if dot else "", title.partition(":")[0]


def _citation(first_cell: str) -> str:
    """The line below the title."""
    lines = [line for line in first_cell.splitlines() if line.strip()]
    return lines[1] if len(lines) > 1 else ""


def _link(first_cell: str) -> str:
    link = re.search(r"\]\((https?://[^)]+)\)", _citation(first_cell))
    return link[1] if link else ""


def _claim(text: str) -> str:
    """The first two sentences behind the word *Claim*."""
    claim = re.search(r"\*\*Claim[^*]*\*\* (.+)", text)
    if claim is None:
        return ""
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z])", claim[1])
    return " ".join(sentences[:2])


def _reading(first_cell: str) -> str:
    minutes = re.search(r"[Rr]ead: (\d+) minutes", first_cell)
    return f"{minutes[1]} min" if minutes else ""
