"""What students call: the visible checks, run as grading runs them."""

import itertools
import sys
from pathlib import Path

from nbformat import NotebookNode

from fednb.errors import CourseError
from fednb_lab.course import sandbox
from fednb_lab.course.collect import is_litter, is_notebook, take_along
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
LIMITS = Limits()


def check(path: Path, limits: Limits = LIMITS) -> tuple[dict[str, str], list[str]]:
    """Run the visible checks of a student's notebook as grading would, in the sandbox if it can be.

    Returns what is wrong, by grade id: "" for a check that passed or an answer that was given; and
    remarks. Cells that are not graded are among the first if they are missing or were changed.
    """
    if not path.is_file():
        raise CourseError(f"There is no file {path}: name the notebook that was handed out to you.")
    nb = read_notebook(path)
    handout = handout_of(nb)
    if not handout.cells:
        raise CourseError(
            f"{path.name} is no hand-out: its metadata does not say of what. In a copy that `fednb "
            "copy` made run the cells below the exercises. For a hand-out start from the file you "
            f"got, or make one: `fednb course release {path.stem.partition('-')[0]}` writes "
            "course/release."
        )
    problems = _changed(nb, handout)
    whole, remarks = merged(nb, handout)
    folder = path.absolute().parent
    of_handout = {folder / name for name in files_of(nb)}
    beside = [file for file in _files_in(folder) if file not in of_handout]
    files = take_along(path.absolute(), beside, {}, remarks)
    files |= {file.relative_to(folder).as_posix(): file for file in of_handout if file.is_file()}
    print("Executing the notebook, which takes as long as its cells", file=sys.stderr, flush=True)
    is_sandboxed = not sandbox.missing()
    if not is_sandboxed:
        remarks.append(
            "this machine has no bubblewrap, so the checks can read your files and reach the "
            "network, which grading will not let them"
        )
    sandbox.execute(whole, files, limits, student_seed=0, is_sandboxed=is_sandboxed)
    errors = errors_by_cell(whole)
    for cell in whole.cells:
        error = errors.get(grade_id(cell), "")
        if error and not marks_of(cell).get("grade"):  # of what the exercises build on
            remarks.append(f"the hand-out's own cell {grade_id(cell)}: {error}")
        elif marks_of(cell).get("grade"):
            is_missing = cell.cell_type == "markdown" and is_unanswered(cell)
            error = "no answer yet" if is_missing else error
            problems[grade_id(cell)] = problems.get(grade_id(cell)) or error
    order = [grade_id(cell) for cell in whole.cells if grade_id(cell) in problems]
    return {name: problems[name] for name in order}, remarks


def _files_in(folder: Path) -> list[Path]:
    """Return the files beside a notebook; those in folders, too, unless these are many."""
    within = list(itertools.islice(folder.rglob("*"), MOST_FILES + 1))
    places = within if len(within) <= MOST_FILES else folder.iterdir()
    return sorted(
        place
        for place in places
        if place.is_file()
        and place.suffix != ".whl"
        and not is_litter(*place.relative_to(folder).parts)
        and not is_notebook(place)
    )


def handout_of(nb: NotebookNode) -> NotebookNode:
    """Return the hand-out that a student's notebook began as, which it has packed in its metadata.

    It has no cells if it was not handed out, or if the metadata was changed.
    """
    cells = unpack_cells(nb.metadata.get("fednb", {}).get("handout"))
    return NotebookNode({**nb, "cells": cells})


def _changed(nb: NotebookNode, handout: NotebookNode) -> dict[str, str]:
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
