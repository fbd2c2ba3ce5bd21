"""What students call: the visible checks, run as grading runs them."""

import itertools
import shutil
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory

from nbformat import NotebookNode

from fednb.errors import CourseError
from fednb_lab.course import sandbox
from fednb_lab.course.collect import is_litter, take_along
from fednb_lab.course.inside import Limits
from fednb_lab.course.merging import merged, names_of
from fednb_lab.course.notebooks import (
    errors_by_cell,
    files_of,
    grade_id,
    is_unanswered,
    marks_of,
    read_notebook,
    unpack_cells,
)

MOST_FILES = 500  # in the folder of a hand-out


def check(path: Path) -> tuple[dict[str, str], list[str]]:
    """Run the visible checks of a student's notebook as grading would, in the sandbox if it can be.

    Returns what is wrong, by grade id: "" for a check that passed or an answer that was given; and
    remarks. Cells that are not graded are among the first if they are missing or were changed.
    """
    nb = read_notebook(path)
    about = nb.metadata.get("fednb", {})
    names = about.get("cells")
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    handout = handout_of(nb)
    if not isinstance(about.get("assignment"), str) or not is_list or not handout.cells:
        raise CourseError(
            f"{path.name} is no hand-out: its metadata does not say of what. Start from the file "
            f"you got, or make one: `fednb course release {path.stem.partition('-')[0]}` writes "
            "course/release."
        )
    whole, remarks = merged(nb, deepcopy(handout))
    problems = _changed(nb, handout, names)
    folder = path.absolute().parent
    of_handout = {folder / name for name in files_of(about)}
    beside = [file for file in _files_in(folder) if file.is_file() and not is_litter(file)]
    beside = [
        file for file in beside if file not in of_handout and file.suffix not in (".whl", ".ipynb")
    ]
    along = take_along(path.absolute(), beside, {}, remarks)
    along |= {file.relative_to(folder).as_posix(): file for file in of_handout if file.is_file()}
    with TemporaryDirectory() as room:
        for name, file in along.items():
            target = Path(room) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
        is_sandboxed = not sandbox.missing()
        if not is_sandboxed:
            remarks.append(
                "this machine has no bubblewrap, so the checks can read your files and reach the "
                "network, which grading will not let them"
            )
        outputs = sandbox.execute(whole, [Path(room)], 0, Limits(), is_sandboxed=is_sandboxed)
    for cell, new in zip(whole.cells, outputs, strict=True):
        if cell.cell_type == "code":
            cell.outputs = [NotebookNode(output) for output in new or []]
    errors = errors_by_cell(whole)
    for cell in whole.cells:
        name = grade_id(cell)
        if marks_of(cell).get("grade") and not problems.get(name):
            is_missing = cell.cell_type == "markdown" and is_unanswered(cell)
            problems[name] = "no answer yet" if is_missing else errors.get(name, "")
    order = [name for name in names if name in problems]
    return {name: problems[name] for name in order}, remarks


def _files_in(folder: Path) -> list[Path]:
    """Return the files beside a notebook; those in folders, too, unless these are many."""
    within = list(itertools.islice(folder.rglob("*"), MOST_FILES + 1))
    return sorted(within if len(within) <= MOST_FILES else folder.iterdir())


def handout_of(nb: NotebookNode) -> NotebookNode:
    """Return the hand-out that a student's notebook began as, which it has packed in its metadata.

    It has no cells if it was not handed out, or if the metadata was changed.
    """
    cells = unpack_cells(nb.metadata.get("fednb", {}).get("handout"))
    return NotebookNode({**nb, "cells": cells})


def _changed(nb: NotebookNode, handout: NotebookNode, names: list[str]) -> dict[str, str]:
    """Return what is missing or was changed, by grade id."""
    from fednb_lab.course.nbgrading import compute_checksum  # with nbgrader, slow to import

    there = names_of(nb, handout)
    problems = {}
    for name in names:
        if name not in there:
            problems[name] = "the cell is missing: put it back"
    for cell in handout.cells:
        name = grade_id(cell)
        marks = marks_of(cell)
        if not marks.get("locked") or name in problems:
            continue
        given = [one.source for one, own in zip(nb.cells, there, strict=True) if own == name]
        is_original = compute_checksum(cell) == marks.get("checksum")
        if not is_original or not all(_alike(source, cell.source) for source in given):
            problems[name] = (
                "the cell was changed, and will be put back for grading: put it back yourself first"
            )
    return problems


def _alike(source: str, other: str) -> bool:
    """Tell whether two sources are one, but for blanks at ends of lines and of the whole."""
    lines = [[line.rstrip() for line in text.rstrip().splitlines()] for text in (source, other)]
    return lines[0] == lines[1]
