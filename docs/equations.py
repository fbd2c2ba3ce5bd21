"""The equations of a method's notebook, for the page of its code, whose comments name their numbers."""

import os
import re
from pathlib import Path

import nbformat

_EQUATION = re.compile(r"\$\$(?:(?!\$\$).)*?\\tag\{(?:(?!\$\$).)*?\$\$", re.DOTALL)
# to a file, whose path begins at the notebook
_LINK = re.compile(r"\]\((?=[^)\s:]+\.(?:ipynb|md|py|yaml|csv)\b)")
_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z*$])")
HEADING = "## Equations\n\nWith their numbers in the notebook, where they are derived.\n"


def section(notebook: Path) -> str:
    """All numbered equations up to the last code that is exported, each with the words before it."""
    cells = nbformat.read(notebook, as_version=4).cells
    exported = [i for i, cell in enumerate(cells) if "export" in cell.metadata.get("tags", ())]
    texts = [cell.source for cell in cells[: exported[-1]] if cell.cell_type == "markdown"]
    folder = Path(os.path.relpath(notebook.parent, Path(__file__).parent / "api")).as_posix()
    found = [equation for text in texts for equation in _with_words(text, folder)]
    return "\n".join([HEADING, *found]) if found else ""


def _with_words(text: str, folder: str) -> list[str]:
    """Each equation of a cell of a notebook in a folder, below the two sentences that lead to it."""
    found, end = [], 0
    for equation in _EQUATION.finditer(text):
        paragraph = text[end : equation.start()].rstrip().rpartition("\n")[2]
        words = " ".join(_SENTENCE.split(paragraph)[-2:])
        if words.count("**") % 2:
            words = words.replace("**", "")
        words = _LINK.sub(f"]({folder}/", words)
        found.append(f"{words}\n\n{equation[0]}\n")
        end = equation.end()
    return found
