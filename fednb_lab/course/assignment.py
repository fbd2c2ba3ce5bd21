"""Notebooks of an assignment: read with care, with names for their cells, and what went wrong."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from fednb.errors import CourseError

LARGEST = 100 << 20  # bytes of a notebook
MOST_PARTS = 1_000_000  # lists and objects in it: each takes memory, however short it is written
MOST_CELLS = 2000
STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)  # of JSON
STUB = "# YOUR CODE HERE\nraise NotImplementedError()"  # where the hand-out asks for code
ANSWER = "*Your answer here.*"  # where it asks for words
TEMPLATES = Path(__file__).parent / "templates"
BUILT_ON = {"setup", "parameters", "export", "course"}  # tags of cells that grading executes
MARKS = ("grade", "solution", "locked")  # that nbgrader gives each cell it knows
NOT_COUNTED = "NotCounted"  # the name of the error of a check that may have passed


def read_notebook(path: Path) -> NotebookNode:
    """A notebook file, whoever wrote it, without outputs of a wrong form and with plain text only.

    A `CourseError` says why it cannot be read.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise CourseError(f"{path.name} cannot be opened ({error.strerror}).") from error
    if len(content) > LARGEST:
        raise CourseError(f"{path.name} is larger than {LARGEST >> 20} MB.")
    try:
        nb = _notebook(content)
    except CourseError as error:
        raise CourseError(f"{path.name} {error}") from error
    except Exception as error:  # nbformat lets many kinds through
        reason = str(error).partition("\n")[0][:120]
        raise CourseError(
            f"{path.name} cannot be read as a notebook ({type(error).__name__}: {reason})."
        ) from error
    return nb


def _notebook(content: bytes) -> NotebookNode:
    # an editor may have saved UTF-16, or another encoding's letters; half an emoji is no text
    text = content.decode(json.detect_encoding(content), errors="replace")
    if _num_brackets(text) > MOST_PARTS and _num_brackets(STRING.sub("", text)) > MOST_PARTS:
        raise CourseError("has too many parts to be read.")
    document = json.loads(text)
    if not isinstance(document, dict):
        raise TypeError("it is not an object")
    num_cells = len(document.get("cells", []))
    if num_cells > MOST_CELLS:
        raise CourseError(f"has {num_cells} cells, and more than {MOST_CELLS} are not read.")
    for cell in document.get("cells", []):
        if "attachments" in cell:
            cell["attachments"] = _pictures(cell["attachments"])
    with warnings.catch_warnings(action="ignore"):  # of ids that are there twice
        nb = nbformat.reads(json.dumps(document), as_version=4)
    _require_types(nb)
    for cell in nb.cells:
        cell.source = plain(cell.source)
    return nb


def _num_brackets(text: str) -> int:
    return text.count("{") + text.count("[")


def _pictures(attachments: Any) -> dict[str, dict[str, str]]:
    """What was pasted into a text, as far as it has the right form: base64 by name and type."""
    if not isinstance(attachments, dict):
        return {}
    pictures = {}
    for name, versions in attachments.items():
        if not isinstance(versions, dict):
            continue
        kept = {}
        for kind, content in versions.items():
            if kind.startswith("image/") and isinstance(content, str):
                kept[plain(kind)] = plain(content)
        if kept:
            pictures[plain(name)] = kept
    return pictures


def plain(text: str) -> str:
    """A text in which all can be written to a file: half characters are replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _require_types(nb: NotebookNode) -> None:
    """Raise an error unless the parts that we look into have their types: nbformat only warns."""
    if not isinstance(nb.metadata, dict):
        raise TypeError("the metadata is not an object")
    for cell in nb.cells:
        if not isinstance(cell.get("metadata", {}), dict):
            raise TypeError("the metadata of a cell is not an object")
        if not isinstance(cell.source, str) or not isinstance(cell.cell_type, str):
            raise TypeError("a cell is not text")


def grade_id(cell: NotebookNode) -> str:
    """The name by which nbgrader knows a cell, or "", whatever a student's file holds there."""
    marks = cell.get("metadata", {}).get("nbgrader")
    return str(marks.get("grade_id", "")) if isinstance(marks, dict) else ""


def marks_of(cell: NotebookNode) -> dict[str, Any]:
    """nbgrader's marks of a cell; none if it has no name, or lacks some of them."""
    if not grade_id(cell):
        return {}
    marks = cell.metadata["nbgrader"]
    return marks if all(name in marks for name in MARKS) else {}


def is_built_on(cell: NotebookNode) -> bool:
    """Whether a cell has a tag that makes grading execute it."""
    return bool(BUILT_ON & set(cell.metadata.get("tags", [])))


def is_check(cell: NotebookNode) -> bool:
    """Whether a cell is code that gets points."""
    return cell.cell_type == "code" and bool(marks_of(cell).get("grade"))


def is_of_handout(cell: NotebookNode) -> bool:
    """Whether a marked cell is the hand-out's own: nothing to write, and without points."""
    marks = marks_of(cell)
    return bool(marks) and not marks["grade"] and not marks["solution"]


def errors_by_cell(nb: NotebookNode) -> dict[str, str]:
    """What went wrong in an executed notebook, such as ``NameError: ...``, by grade id of a cell.

    Of solutions nothing is told: their checks have the error.
    """
    errors = {}
    for cell in nb.cells:
        marks = marks_of(cell)
        error = first_error(cell)
        if marks and error and not marks["solution"]:
            errors[grade_id(cell)] = error
    return errors


def first_error(cell: NotebookNode) -> str:
    """The first line of the first error among a cell's outputs, or ""."""
    for output in cell.get("outputs", []):
        if output.output_type == "error":
            text = str(output.evalue)
            if output.ename != NOT_COUNTED:
                text = f"{output.ename}: {text}"
            return plain(re.split(r"[\r\n]", text)[0][:200])
    return ""
