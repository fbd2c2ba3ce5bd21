"""Notebooks of an assignment: read with care, with names for their cells, and what went wrong."""

import warnings
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from fednb.errors import CourseError

LARGEST = 20 << 20  # bytes of a notebook
STUB = "# YOUR CODE HERE\nraise NotImplementedError()"  # where the hand-out asks for code
ANSWER = "*Your answer here.*"  # where it asks for words
TEMPLATES = Path(__file__).parent / "templates"


def read_notebook(path: Path) -> NotebookNode:
    """A notebook file, whoever wrote it; a `CourseError` says why it cannot be read."""
    if path.stat().st_size > LARGEST:
        raise CourseError(f"{path.name} is larger than {LARGEST >> 20} MB")
    try:
        with warnings.catch_warnings(action="ignore"):  # of ids that are there twice
            nb = nbformat.read(path, as_version=4)
        _require_types(nb)
    except Exception as error:  # nbformat lets many kinds through
        reason = str(error).partition("\n")[0][:120]
        raise CourseError(
            f"{path.name} cannot be read as a notebook ({type(error).__name__}: {reason})."
        ) from error
    return nb


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


def errors_by_cell(nb: NotebookNode) -> dict[str, str]:
    """What went wrong in an executed notebook, such as ``NameError: ...``, by grade id of a cell.

    A solution that fails, or is not begun, gives its checks their error.
    """
    errors = {}
    cause = ""  # why the checks of the present exercise cannot pass
    for cell in nb.cells:
        name = grade_id(cell)
        if not name:
            continue
        marks = cell.metadata["nbgrader"]
        error = _last_error(cell)
        if marks["solution"]:
            cause = "not done yet" if STUB.splitlines()[-1] in cell.source else error
        elif error:
            errors[name] = cause or error
        if marks["grade"]:
            cause = ""
    return errors


def _last_error(cell: NotebookNode) -> str:
    """The first line of the last error among a cell's outputs, or ""."""
    error = ""
    for output in cell.get("outputs", []):
        if output.output_type == "error":
            error = f"{output.ename}: {output.evalue}".partition("\n")[0][:200]
    return error
