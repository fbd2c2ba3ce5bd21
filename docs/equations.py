"""The equations of a method's notebook, for the page of its code, whose comments name their numbers."""

import re
from pathlib import Path

import nbformat

from fednb_lab.course.solutions import moved

_EQUATION = re.compile(r"\$\$(?:(?!\$\$).)*?\\tag\{(?:(?!\$\$).)*?\$\$", re.DOTALL)
_PAGES = Path(__file__).parent / "api"
_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z*$])")
HEADING = "## Equations\n\nWith their numbers in the notebook, where they are derived.\n"


def section(notebook: Path) -> str:
    """All numbered equations up to the last code that is exported, each with the words before it."""
    cells = nbformat.read(notebook, as_version=4).cells
    exported = [i for i, cell in enumerate(cells) if "export" in cell.metadata.get("tags", ())]
    texts = [cell for cell in cells[: exported[-1]] if cell.cell_type == "markdown"]
    sources = [moved(cell, notebook.parent, _PAGES).source for cell in texts]
    found = [equation for source in sources for equation in _with_words(source)]
    return "\n".join([HEADING, *found]) if found else ""


def _with_words(text: str) -> list[str]:
    """Each equation of a cell below the two sentences that lead to it."""
    found, end = [], 0
    for equation in _EQUATION.finditer(text):
        paragraph = text[end : equation.start()].rstrip().rpartition("\n")[2]
        words = " ".join(_SENTENCE.split(paragraph)[-2:])
        if words.count("**") % 2:
            words = words.replace("**", "")
        found.append(f"{words}\n\n{equation[0]}\n")
        end = equation.end()
    return found
