"""Notebooks of an assignment: read with care, with names for their cells, and what went wrong."""

import json
import re
import warnings
from pathlib import Path, PurePosixPath
from typing import Any

import nbformat
from nbformat import NotebookNode

from fednb.errors import CourseError

WAY_OUT = "Save it once more in JupyterLab, or take the copy in .ipynb_checkpoints beside it."
LARGEST = 30 << 20  # bytes of a notebook
MOST_CELLS = 2000
STUB = "# YOUR CODE HERE\nraise NotImplementedError()"  # where the hand-out asks for code
ANSWER = "*Your answer here.*"  # where it asks for words
TEMPLATES = Path(__file__).parent / "templates"
MARKS = ("grade", "solution", "locked")  # that nbgrader gives each cell it knows
EXERCISE_ID = re.compile(r"exercise-(\d+)(?:-(check|answer))?(?:-(\d+))?")  # of a cell
NOT_DONE = "not done yet"  # of a check whose solution is the stub
NO_ANSWER = "no answer"
NOTHING = "nothing was done"  # the remark on a hand-out in which all is so
NOT_COUNTED = "NotCounted"  # the name of the error of a check that may have passed
LATE = "CellTimeoutError"  # that of a cell that was ended, whose sentence says it all
TOOK_LONGER = "took longer than"  # with which that sentence begins


def read_notebook(path: Path) -> NotebookNode:
    """Return a notebook file, whoever wrote it, with plain text only.

    What the cells hold beside their text is left out where it has a wrong form. A `CourseError` says
    why a file cannot be read.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise CourseError(f"{path.name} cannot be opened ({error.strerror}).") from error
    if len(content) > LARGEST:
        raise CourseError(f"{path.name} is larger than {LARGEST >> 20} MB.")
    try:
        return _notebook(content)
    except CourseError as error:
        raise CourseError(f"{path.name} {error}") from error
    except Exception as error:  # nbformat lets many kinds through
        message = f"{path.name} {_why_unreadable(content, error)}. {WAY_OUT}"
        raise CourseError(message) from error


def _why_unreadable(content: bytes, error: Exception) -> str:
    """What is wrong with a file that is no notebook."""
    if not content.strip():
        return "is empty"
    if not content.lstrip(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return "is no notebook"
    if isinstance(error, json.JSONDecodeError):
        return f"is a damaged notebook: it breaks off or is spoilt in line {error.lineno}"
    reason = str(error).partition("\n")[0][:120]
    return f"cannot be read as a notebook ({type(error).__name__}: {reason})"


def _notebook(content: bytes) -> NotebookNode:
    # an editor may have saved UTF-16, or another encoding's letters; half an emoji is no text
    document = json.loads(content.decode(json.detect_encoding(content), errors="replace"))
    if not isinstance(document, dict):
        raise TypeError("it is not an object")
    num_cells = len(document.get("cells", []))
    if num_cells > MOST_CELLS:
        raise CourseError(f"has {num_cells} cells, and more than {MOST_CELLS} are not read.")
    for cell in document.get("cells", []):
        if not _are_pictures(cell.get("attachments", {})):
            del cell["attachments"]
    with warnings.catch_warnings(action="ignore"):  # of ids that are there twice
        nb = nbformat.reads(plain(json.dumps(document, ensure_ascii=False)), as_version=4)
    if not isinstance(nb.metadata, dict):
        raise TypeError("the metadata is not an object")
    if not isinstance(nb.metadata.get("fednb", {}), dict):
        del nb.metadata["fednb"]
    for cell in nb.cells:
        _require_types(cell)
        cell.source = cell.source.replace("\r\n", "\n")  # an editor of Windows
    return nb


def _require_types(cell: NotebookNode) -> None:
    """Raise an error unless the parts that we look into have their types: nbformat only warns."""
    if not isinstance(cell.get("metadata", {}), dict):
        raise TypeError("the metadata of a cell is not an object")
    if not isinstance(cell.source, str) or not isinstance(cell.cell_type, str):
        raise TypeError("a cell is not text")
    tags = cell.metadata.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        del cell.metadata["tags"]


def _are_pictures(attachments: Any) -> bool:
    """Tell whether what was pasted into a text has the right form: content by name and type."""
    versions = attachments.values() if isinstance(attachments, dict) else [None]
    return all(
        isinstance(version, dict) and all(type(text) is str for text in version.values())
        for version in versions
    )


def plain(text: str) -> str:
    """Return a text in which all can be written to a file: half characters are replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def remark(text: str) -> str:
    """Return a remark as it stands in a table: one line of characters that can be printed."""
    printable = [letter if letter.isprintable() else " " for letter in plain(text)]
    return "".join(printable).strip().rstrip(".")[:400]


def counted(number: int, what: str) -> str:
    """Return a number of things: "1 page", "2 pages"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def tags_of(cell: NotebookNode) -> list[str]:
    """Return the tags of a cell."""
    return list(cell.metadata.get("tags", []))


def grade_id(cell: NotebookNode) -> str:
    """Return nbgrader's name of a cell, or "", whatever a student's file holds there."""
    marks = cell.get("metadata", {}).get("nbgrader")
    return str(marks.get("grade_id", "")) if isinstance(marks, dict) else ""


def exercise_of(name: str) -> int | None:
    """Return the number of the exercise to which the cell of a grade id belongs."""
    match = EXERCISE_ID.fullmatch(name)
    return int(match[1]) if match else None


def title_of(name: str) -> str:
    """Return what people call the cell of a grade id, such as ``Exercise 4, check 2``."""
    match = EXERCISE_ID.fullmatch(name)
    if not match:
        return f"Cell {name}"
    number, kind, which = match.groups()
    return f"Exercise {number}, {kind or 'code'}{f' {which}' if which else ''}"


def marks_of(cell: NotebookNode) -> dict[str, Any]:
    """Return nbgrader's marks of a cell; none if it has no name, or lacks some of them."""
    if not grade_id(cell):
        return {}
    marks = cell.metadata["nbgrader"]
    return marks if all(name in marks for name in MARKS) else {}


def pack(released: NotebookNode) -> list[dict[str, Any]]:
    """Return the cells that decide about grading in a hand-out, for its own metadata.

    So a student's notebook knows what it began as, whatever was done to its cells.
    """
    return [
        {"id": cell.id, "cell_type": cell.cell_type, "source": cell.source}
        | {"metadata": {"tags": tags_of(cell), "nbgrader": marks_of(cell)}}
        for cell in released.cells
        if marks_of(cell) or cell.cell_type == "code"
    ]


def handout_of(nb: NotebookNode) -> NotebookNode:
    """Return the hand-out that a student's notebook began as, of the cells that `pack` has kept.

    It has none if it was not handed out, or if somebody has changed their form.
    """
    try:
        cells = nbformat.from_dict(nb.metadata["fednb"]["handout"])
        for cell in cells:
            _require_types(cell)
            if cell.cell_type == "code":
                cell |= {"outputs": [], "execution_count": None}
    except (TypeError, KeyError, AttributeError):
        cells = []
    return NotebookNode({**nb, "cells": cells})


def files_of(handout: NotebookNode) -> list[str]:
    """Return the files that a hand-out says came with it, those that lie below its folder."""
    given = handout.metadata.get("fednb", {}).get("files", [])
    names = [name for name in given if isinstance(name, str)] if isinstance(given, list) else []
    paths = [PurePosixPath(name.replace("\\", "/")) for name in names]
    return [str(path) for path in paths if not path.is_absolute() and ".." not in path.parts]


def is_executed(cell: NotebookNode) -> bool:
    """Tell whether a cell has code that grading executes."""
    is_code = cell.cell_type == "code" and bool(cell.source.strip())
    return is_code and "skip-execution" not in tags_of(cell)


def is_check(cell: NotebookNode) -> bool:
    """Tell whether a cell is code that gets points."""
    return cell.cell_type == "code" and bool(marks_of(cell).get("grade"))


def is_unanswered(cell: NotebookNode) -> bool:
    """Tell whether a cell that asks for code or words still says what the hand-out said."""
    if cell.cell_type == "markdown":
        return not cell.source.replace(ANSWER, "").strip()
    is_stub = "raise NotImplementedError()" in cell.source
    return is_stub or not cell.source.strip() or bool(re.search(r"(?m)= \.\.\.$", cell.source))


def errors_by_cell(nb: NotebookNode) -> dict[str, str]:
    """Return what went wrong in an executed notebook, ``NameError: ...``, by grade id of a cell.

    Of solutions nothing is told, as their checks have the error, but of answers that there is none.
    """
    errors = {}
    for cell in nb.cells:
        marks = marks_of(cell)
        error = first_error(cell)
        if marks.get("grade") and cell.cell_type == "markdown" and is_unanswered(cell):
            errors[grade_id(cell)] = NO_ANSWER
        elif marks and error and not marks["solution"]:  # a check's own sentence says it all
            errors[grade_id(cell)] = error.removeprefix("AssertionError: ") or error
    return errors


def first_error(cell: NotebookNode) -> str:
    """Return the first line of the first error among a cell's outputs, or ""."""
    for output in cell.get("outputs", []):
        if output.output_type == "error":
            text = re.sub(r" \(\d+\.py, line (\d+)\)", r" (line \1)", str(output.evalue))
            if output.ename not in (NOT_COUNTED, LATE):
                text = f"{output.ename}: {text}"
            return plain(re.split(r"[\r\n]", text)[0][:200])
    return ""
