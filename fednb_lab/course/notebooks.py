"""Notebooks of an assignment: read with care, what their cells are, and a hand-out with answers.

A submission is merged into the hand-out: of it answers and own cells count, and nothing else.
"""

import json
import re
import warnings
from collections import defaultdict
from copy import deepcopy
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from fednb.errors import CourseError

LARGEST = 30 << 20  # bytes of a notebook
STUB = "# YOUR CODE HERE\nraise NotImplementedError()"  # where the hand-out asks for code
PLACEHOLDER = "*Your answer here.*"  # where it asks for words
TEMPLATES = Path(__file__).parent / "templates"
MARKS = ("grade", "solution", "locked")  # that nbgrader gives each cell it knows
EXERCISE = re.compile(
    r"(?m)^\*\*Exercise (\d+)\*\* \(\w+, [\w ]+, (\d+( \+ \d+)*) points?[^)]*\)\."
)
EXERCISE_ID = re.compile(r"exercise-(\d+)(?:-(check|answer))?(?:-(\d+))?")  # of a cell
ATTACHMENT = re.compile(r"attachment:([^)\s\"'>]+)")  # a picture that was pasted into a text
# of a check whose solution is the stub, or ends in it
NOT_DONE = "not done yet (`raise NotImplementedError()` stands in the cell)"
NO_ANSWER = "no answer"
NOT_COUNTED = "NotCounted"  # the name of the error of a check that may have passed
LATE = "CellTimeoutError"  # that of a cell that was ended


def read_notebook(path: Path) -> NotebookNode:
    """Return a notebook file, whoever wrote it, with text that can be written to a file.

    A `CourseError` says why a file cannot be read.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise ValueError(f"it is larger than {LARGEST >> 20} MB")
        # an editor may have saved UTF-16, or another encoding's letters
        document = json.loads(content.decode(json.detect_encoding(content), errors="replace"))
        with warnings.catch_warnings(action="ignore"):  # of ids that are there twice
            nb = nbformat.reads(sanitise(json.dumps(document, ensure_ascii=False)), as_version=4)
        _require_types(nb.metadata, nb.cells)
    except Exception as error:  # nbformat lets many kinds through
        reason = str(error).partition("\n")[0][:120]
        raise CourseError(
            f"{path.name} cannot be read as a notebook ({type(error).__name__}: {reason}). Save it "
            "once more in JupyterLab, or take the copy in .ipynb_checkpoints beside it."
        ) from error
    if not isinstance(nb.metadata.get("fednb", {}), dict):
        del nb.metadata["fednb"]
    for cell in nb.cells:
        cell.source = cell.source.replace("\r\n", "\n")  # an editor of Windows
    return nb


def _require_types(metadata: Any, cells: list[Any]) -> None:
    """Raise a `TypeError` unless the parts that we look into have their types: nbformat only warns."""
    parts = [metadata, *(cell.get("metadata", {}) for cell in cells)]
    texts = [text for cell in cells for text in (cell["source"], cell["cell_type"])]
    if not all(isinstance(part, dict) for part in parts):
        raise TypeError("metadata that are no object")
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a cell that is no text")


def sanitise(text: str) -> str:
    """Return a text in which all can be written to a file: half characters are replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def remark(text: str) -> str:
    """Return a remark as it stands in a table: one line of characters that can be printed."""
    printable = [letter if letter.isprintable() else " " for letter in sanitise(text)]
    return "".join(printable).strip().rstrip(".")[:400]


def counted(number: int, what: str) -> str:
    """Return a number of things: "1 page", "2 pages"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def tags_of(cell: NotebookNode) -> list[str]:
    """Return the tags of a cell, whatever a student's file holds there."""
    tags = cell.metadata.get("tags", [])
    return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []


def grade_id(cell: NotebookNode) -> str:
    """Return nbgrader's name of a cell, or "", whatever a student's file holds there."""
    marks = cell.get("metadata", {}).get("nbgrader")
    return str(marks.get("grade_id", "")) if isinstance(marks, dict) else ""


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
        _require_types({}, cells)
        for cell in cells:
            if cell.cell_type == "code":
                cell |= {"outputs": [], "execution_count": None}
    except (TypeError, KeyError, AttributeError):
        cells = []
    return NotebookNode({**nb, "cells": cells})


def files_of(handout: NotebookNode) -> list[str]:
    """Return the files that a hand-out says came with it."""
    return [str(name) for name in handout.metadata.get("fednb", {}).get("files", [])]


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
        return not cell.source.replace(PLACEHOLDER, "").strip()
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
            text = f"{output.ename}: {output.evalue}".removeprefix(f"{NOT_COUNTED}: ")
            return sanitise(text.partition("\n")[0][:200])
    return ""


def names_of(nb: NotebookNode, released: NotebookNode) -> list[str]:
    """Return for each cell the grade id of the hand-out's cell that it is, or "".

    Cells are known by their grade id, or by their id if the metadata got lost.
    """
    kinds = {grade_id(cell): cell.cell_type for cell in released.cells if grade_id(cell)}
    id_to_name = {cell.id: grade_id(cell) for cell in released.cells if grade_id(cell)}
    names = []
    for cell in nb.cells:
        name = grade_id(cell)
        if name not in kinds:
            name = id_to_name.get(cell.get("id", ""), "")
        names.append(name if kinds.get(name) == cell.cell_type else "")
    return names


def merged(nb: NotebookNode, released: NotebookNode) -> tuple[NotebookNode, list[str]]:
    """Return the hand-out with a submission's answers and own cells in it, and remarks.

    Nothing else is taken over: tags and metadata can disarm a check. The pieces of a cell that was
    split, wherever they are, count as one. It is this notebook that is executed.
    """
    remarks: list[str] = []
    names = names_of(nb, released)
    asked = [grade_id(cell) for cell in released.cells if marks_of(cell).get("solution")]
    answers = {}
    for name in (one for one in asked if one in names):
        pieces = [cell for cell, other in zip(nb.cells, names, strict=True) if other == name]
        answers[name] = [cell for cell in pieces if not is_unanswered(cell)] or pieces[-1:]
        if len(pieces) > 1:
            remarks.append(f"{name} was split or copied: its {len(pieces)} cells count as one")
    unnamed = {cell.source for cell in released.cells if not grade_id(cell)}
    before: dict[str | None, list[NotebookNode]] = defaultdict(list)  # own cells, by what follows
    follows = None if answers else asked[0]
    for name, cell in reversed(list(zip(names, nb.cells, strict=True))):
        if name:
            follows = name
        elif cell.source not in unnamed:
            new = new_code_cell() if cell.cell_type == "code" else new_markdown_cell()
            _take_over([cell], new)
            before[follows].insert(0, new)
    if not answers:
        remarks.append(
            "none of its cells is the hand-out's: was the work pasted into a new notebook? Its "
            "cells are executed before the first check"
        )
    cells = []
    for cell in deepcopy(released.cells):
        name = grade_id(cell)
        if name in answers:
            _take_over(answers[name], cell)
        elif name in asked and cell.cell_type == "code":
            cell.source = ""  # the student's own cells may have what it asks for
        cells += [*before.pop(name, []), cell]
    return NotebookNode({**deepcopy(released), "cells": cells + before[None]}), remarks


def _take_over(pieces: list[NotebookNode], cell: NotebookNode) -> None:
    """Give ``cell`` what the pieces of a student's cell say, and show."""
    is_code = cell.cell_type == "code"
    cell.source = ("\n" if is_code else "\n\n").join(piece.source for piece in pieces)
    pictures: dict[str, dict[str, str]] = {}
    for piece in pieces:
        pictures.update(piece.get("attachments", {}))
    if pictures:
        cell.attachments = pictures
    if not is_code:  # a page with a picture that is not there cannot be made
        for name in set(ATTACHMENT.findall(cell.source)) - set(pictures):
            cell.source = cell.source.replace(f"attachment:{name}", f"missing-{name}")


def changed(nb: NotebookNode, handout: NotebookNode) -> dict[str, str]:
    """Return what is missing or was changed, by grade id."""
    there = names_of(nb, handout)
    problems = {}
    for cell in handout.cells:
        name = grade_id(cell)
        given = [one.source for one, own in zip(nb.cells, there, strict=True) if own == name]
        if name and not given:
            problems[name] = "the cell is missing: put it back"
        elif marks_of(cell).get("locked") and any(source != cell.source for source in given):
            problems[name] = (
                "the cell was changed, and will be put back for grading: put it back yourself first"
            )
    return problems
