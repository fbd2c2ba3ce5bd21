"""Hand-outs from the notebooks' own cells, by what they say (TEACHING.md, Write an exercise), and what students call."""

import copy
import os
import re
import shutil
import warnings
import zlib
from collections import Counter
from pathlib import Path

import nbformat
import numpy as np
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from fednb import papers
from fednb.errors import CourseError

FOLDER = Path(
    "course"
)  # nbgrader's course folder: source, release, submitted, autograded, feedback, gradebook
LARGEST = 20 << 20  # bytes of a notebook
BUILT_ON = {
    "setup",
    "parameters",
    "export",
    "course",
}  # tags of cells that are executed when a notebook is graded
EXERCISE = re.compile(r"(?m)^\*\*Exercise (\d+)\*\* \((\w+), [\w ]+, ([\d +]+) points?[^)]*\)\.")
STUB = "# YOUR CODE HERE\nraise NotImplementedError()"
ANSWER = "*Your answer here.*"
READY = "# Run this cell first: it executes the cells above on which the exercises build.\n"
READY += 'from fednb.course import prepare\n\nprepare("{}")'
TEMPLATES = Path(__file__).parent / "templates"


def read(path: Path) -> NotebookNode:
    if path.stat().st_size > LARGEST:
        raise CourseError(f"{path.name} is larger than {LARGEST >> 20} MB")
    try:
        with warnings.catch_warnings(action="ignore"):  # of ids that are there twice
            nb = nbformat.read(path, as_version=4)
        assert isinstance(nb.metadata, dict) and all(
            isinstance(cell.get("metadata", {}), dict) for cell in nb.cells
        )
        assert all(isinstance(cell.source + cell.cell_type, str) for cell in nb.cells)
        return nb
    except Exception as error:  # nbformat lets many kinds through
        said = str(error).partition("\n")[0][:120]
        raise CourseError(
            f"{path.name} cannot be read as a notebook ({type(error).__name__}: {said})."
        ) from error


def grade_id(cell: NotebookNode) -> str:
    """The name by which nbgrader knows a cell, or nothing; whatever a student's file may hold there."""
    marks = cell.get("metadata", {}).get("nbgrader")
    return str(marks.get("grade_id", "")) if isinstance(marks, dict) else ""


def apart(nb: NotebookNode) -> None:
    """Give each heading, check and answer a cell of its own."""
    cells: list[NotebookNode] = []
    for cell in nb.cells:
        pieces = [cell.source]
        if "END SOLUTION" in cell.source or EXERCISE.search(cell.source):
            parts = (
                r"# Check\."
                if cell.cell_type == "code"
                else r"\*\*Exercise \d+\*\* \(|<!-- BEGIN SOLUTION -->|## "
            )
            pieces = [
                piece.strip()
                for piece in re.split(rf"(?m)^(?={parts})", cell.source)
                if piece.strip()
            ]
        for number, piece in enumerate(pieces):
            name = cell.id if number == 0 else f"{cell.id}-{number}"
            cells.append(NotebookNode({**copy.deepcopy(cell), "id": name, "source": piece}))
    nb.cells = cells


def exercises(nb: NotebookNode) -> list[tuple[re.Match, list[tuple[str, NotebookNode]]]]:
    """What headings of exercises say (number, level, points), and what their cells are (solution, check, answer)."""
    found, inside = [], False
    for cell in nb.cells:
        text = cell.cell_type == "markdown"
        if text and (heading := EXERCISE.match(cell.source)):
            found.append((heading, []))
            inside = True
        elif text and cell.source.startswith("## "):
            inside = False
        elif inside and "BEGIN SOLUTION" in cell.source:  # nbgrader complains of others
            found[-1][1].append(("answer" if text else "solution", cell))
        elif (
            inside
            and not text
            and re.search(r"(?m)^\s*assert ", cell.source)
            and "solution" in dict(found[-1][1])
        ):
            found[-1][1].append(("check", cell))
    for heading, parts in found:
        graded, points = sum(kind != "solution" for kind, _ in parts), len(heading[3].split("+"))
        if graded != points:
            raise CourseError(
                f"Exercise {heading[1]} has {graded} checks and answers, but {points} numbers of points."
            )
    if not found:
        raise CourseError(
            'There is no exercise: a text cell with a line "**Exercise 1** (easy, 10 minutes, 2 points). …"'
        )
    return found


def mark(
    cell: NotebookNode, name: str, *, points: int | None = None, solution: bool = False
) -> None:
    """Give a cell nbgrader's metadata; one that is neither graded nor the student's is put back when it was changed."""
    marks = {
        "grade": points is not None,
        "solution": solution,
        "locked": not solution,
        "task": False,
    }
    marks |= {} if points is None else {"points": points}
    cell.metadata["nbgrader"] = {
        "schema_version": 3,
        "grade_id": name,
        "cell_type": cell.cell_type,
        **marks,
    }


def source(name: str) -> NotebookNode:
    """nbgrader's source of an assignment: the solved notebook with nbgrader's metadata, and a note at the top."""
    path = papers.path(name)
    nb = read(path)
    apart(nb)
    found = exercises(nb)
    for heading, parts in found:
        count, points = Counter(), map(int, heading[3].split("+"))
        for kind, cell in parts:
            count[kind] += 1
            called = f"exercise-{heading[1]}" + ("" if kind == "solution" else f"-{kind}")
            called += f"-{count[kind]}" if count[kind] > 1 else ""
            mark(
                cell,
                called,
                points=None if kind == "solution" else next(points),
                solution=kind != "check",
            )
            cell.metadata.pop("jupyter", None)  # what the solved notebook folds away
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
    first = next(
        i
        for i, cell in enumerate(nb.cells)
        if cell.cell_type == "markdown" and EXERCISE.match(cell.source)
    )
    nb.cells.insert(first, new_code_cell(READY.format(path.name), id="course-ready"))
    for cell in nb.cells:
        if cell.cell_type == "code" and "nbgrader" not in cell.metadata:
            tags = cell.metadata.get("tags", [])
            if BUILT_ON & set(tags):
                mark(cell, cell.id)
            else:
                cell.metadata["tags"] = [*tags, "skip-execution"]  # nbclient leaves it out
    nb.metadata["fednb"] = {
        "assignment": path.stem,
        "cells": list(filter(None, map(grade_id, nb.cells))),
    }
    points = sum(int(number) for heading, _ in found for number in heading[3].split("+"))
    note = (TEMPLATES / "note.md").read_text(encoding="utf-8")
    note = note.format(assignment=path.stem, file=path.name, number=len(found), points=points)
    nb.cells.insert(0, new_markdown_cell(note, id="course-note"))
    return nb


def release(name: str) -> Path:
    """Write the students' version of a notebook and return its path; what it imports and its sweep file lie beside it."""
    from fednb.course import grading
    from fednb.sweeps import papermill

    nb, original = source(name), papers.path(name)
    place, released = (FOLDER.absolute() / step / original.stem for step in ("source", "release"))
    place.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, place / original.name)
    grading.take("generate_assignment", original.stem)
    for other in imported(original):
        nbformat.write(papermill.reduced(other.stem), released / other.name)
    sweep = original.parent / "sweeps" / f"{original.stem}.yaml"
    if sweep.exists():  # a model for the students' own
        (released / "sweeps").mkdir(exist_ok=True)
        shutil.copy(sweep, released / "sweeps")
    return released / original.name


def imported(notebook: Path) -> set[Path]:
    """The notebooks from which the cells that are executed import, and so on."""
    cells = (
        cell.source
        for cell in read(notebook).cells
        if BUILT_ON & set(cell.metadata.get("tags", []))
    )
    names = re.findall(r"(?m)^from fednb\.papers\.(\w+) import", "\n".join(cells))
    return set().union(*({papers.path(name), *imported(papers.path(name))} for name in names))


def draws(purpose: str) -> np.random.Generator:
    """The generator of hidden inputs: other draws for each student, the same ones whenever a student is graded."""
    return np.random.default_rng(
        [int(os.environ.get("FEDNB_STUDENT_SEED", 0)), zlib.crc32(purpose.encode())]
    )


def prepare(path: str | Path) -> None:
    """Execute what the exercises of a hand-out build on, in the kernel that calls it."""
    from IPython import get_ipython
    from IPython.utils.capture import capture_output

    cells = [cell for cell in read(Path(path)).cells if cell.cell_type == "code" and grade_id(cell)]
    sources = [
        cell.source
        for cell in cells
        if not (cell.metadata.nbgrader["solution"] or cell.metadata.nbgrader["grade"])
    ]
    for source in sources:
        with capture_output():
            get_ipython().run_cell(source).raise_error()
    print(f"{len(sources)} cells executed: the exercises can begin.")


def check(path: Path) -> dict[str, str]:
    """Run the visible checks of a student's notebook: what is wrong, or nothing, by check and by cell that was changed."""
    from fednb.course import grading

    nb, told = read(path), {}
    if "assignment" not in nb.metadata.get("fednb", {}):
        raise CourseError(
            f"{path.name} is not a hand-out: its metadata names no assignment. Start from the file you got."
        )
    grading.run(nb, str(path.absolute().parent))
    wrong, cells = errors(nb), {grade_id(cell): cell for cell in nb.cells}
    for name in nb.metadata["fednb"]["cells"]:
        marks = cells[name].metadata["nbgrader"] if name in cells else {}
        if not marks:
            told[name] = "the cell is missing: put it back"
        elif marks["locked"] and grading.compute_checksum(cells[name]) != marks["checksum"]:
            told[name] = (
                "the cell was changed, and will be put back for grading: put it back yourself first"
            )
        elif marks["grade"]:
            told[name] = (
                "no answer yet" if cells[name].source.strip() == ANSWER else wrong.get(name, "")
            )
    return told


def errors(nb: NotebookNode) -> dict[str, str]:
    """What went wrong in an executed notebook, by name of a cell; its solution's own error stands for that of a check."""
    found, cause = {}, ""
    for cell in filter(grade_id, nb.cells):
        said = [
            f"{o.ename}: {o.evalue}".partition("\n")[0]
            for o in cell.get("outputs", [])
            if o.output_type == "error"
        ]
        error = said[-1][:200] if said else ""
        if cell.metadata["nbgrader"]["solution"]:
            cause = "not done yet" if STUB.splitlines()[-1] in cell.source else error
        elif error:
            found[grade_id(cell)] = cause or error
        if cell.metadata["nbgrader"]["grade"]:
            cause = ""
    return found
