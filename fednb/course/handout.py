"""Assignments from the notebooks' own cells, by what they say (TEACHING.md, Write an exercise): nbgrader's sources.

In an assignment of exercises the cells marked as solutions are the student's, and the asserts below them the checks. In an
implementation the functions of the ``export`` cells lose their bodies instead, each for a point, which the next cell that
asserts something grades. A cell also tagged ``given`` keeps its bodies.
"""

from __future__ import annotations

import ast
import copy
import re
import shutil
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from jinja2 import Template
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from fednb import papers
from fednb.course.tools import FOLDER, CourseError, course_folder, nbgrader

KINDS = ("exercises", "implementation")
BUILT_ON = {"setup", "parameters", "export", "course"}  # tags of cells that are executed when a notebook is graded
ASSERT = re.compile(r"(?m)^\s*assert ")
SKIP = "skip-execution"  # the tag by which nbclient leaves a cell out
SOLVED = "Solutions stand between the markers; in the course version of this notebook they are taken out. "
EXERCISE = re.compile(r"(?m)^\*\*Exercise (\d+)\*\* \((\w+), (?:(\d+) minutes|[\w ]+), ([\d +]+) points?[^)]*\)\.")


@dataclass
class Exercise:
    """What an exercise's heading says, and its cells."""

    number: int
    level: str
    minutes: int | None  # None if its time is given in words
    points: list[int]
    heading: NotebookNode
    cells: list[NotebookNode] = field(default_factory=list)

    def parts(self) -> list[tuple[str, NotebookNode]]:
        """The cells that matter, as pairs of what they are (solution, check, answer) and the cell."""
        found: list[tuple[str, NotebookNode]] = []
        for cell in self.cells:
            if "BEGIN SOLUTION" in cell.source:
                found.append(("solution" if cell.cell_type == "code" else "answer", cell))
            elif cell.cell_type == "code" and ASSERT.search(cell.source) and any(kind == "solution" for kind, _ in found):
                found.append(("check", cell))
        return found


def apart(nb: NotebookNode) -> None:
    """Give each heading, check and answer a cell of its own."""
    cells: list[NotebookNode] = []
    for cell in nb.cells:
        pieces = [cell.source]
        if "END SOLUTION" in cell.source or EXERCISE.search(cell.source):
            parts = r"# Check\." if cell.cell_type == "code" else r"\*\*Exercise \d+\*\* \(|<!-- BEGIN SOLUTION -->|## "
            pieces = [piece.strip() for piece in re.split(rf"(?m)^(?={parts})", cell.source) if piece.strip()]
        for number, piece in enumerate(pieces):
            name = cell.id if number == 0 else f"{cell.id}-{number}"
            cells.append(NotebookNode({**copy.deepcopy(cell), "id": name, "source": piece}))
    nb.cells = cells


def exercises(nb: NotebookNode) -> list[Exercise]:
    """The exercises of a solved notebook, in order; each begins a cell."""
    found: list[Exercise] = []
    inside = False
    for cell in nb.cells:
        heading = EXERCISE.match(cell.source) if cell.cell_type == "markdown" else None
        if heading:
            number, level, minutes, points = heading.groups()
            found.append(Exercise(int(number), level, minutes and int(minutes), [int(p) for p in points.split("+")], cell))
            inside = True
        elif cell.cell_type == "markdown" and cell.source.startswith("## "):
            inside = False
        elif inside:
            found[-1].cells.append(cell)
        elif "BEGIN SOLUTION" in cell.source:
            raise CourseError(f"A solution stands outside of every exercise: {cell.source[:60]!r}.")
    for one in found:
        graded = [kind for kind, _ in one.parts() if kind != "solution"]
        if len(graded) != len(one.points):
            raise CourseError(
                f"Exercise {one.number} has {len(graded)} checks and answers, and {len(one.points)} numbers of points: "
                f"write one number for each, as in (easy, 10 minutes, 1 + 2 points)."
            )
    return found


def _mark(cell: NotebookNode, name: str, *, grade: bool = False, solution: bool = False, points: int = 0) -> None:
    """Give a cell nbgrader's metadata; one that is neither graded nor the student's is put back when it was changed."""
    cell.metadata["nbgrader"] = {
        "schema_version": 3,
        "grade_id": name,
        "grade": grade,
        "solution": solution,
        "locked": not solution,
        "task": False,
        "cell_type": cell.cell_type,
    } | ({"points": points} if grade else {})
    if (grade or solution) and cell.cell_type == "code":
        cell.outputs, cell.execution_count = [], None


def blank(source: str) -> tuple[str, int]:
    """Put nbgrader's markers around the bodies of all functions but ``__these__``; and how many there are."""
    lines, bodies = source.splitlines(), []

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.FunctionDef):
                visit(child)
            elif not re.fullmatch(r"__\w+__", child.name):
                bodies.append(child.body[1:] if ast.get_docstring(child) else child.body)

    visit(ast.parse(source))
    bodies = [body for body in bodies if body and body[0].lineno > 1]
    for body in reversed(bodies):
        first, last = body[0].lineno - 1, body[-1].end_lineno
        indent = " " * body[0].col_offset
        while lines[first - 1].strip().startswith("#"):
            first -= 1
        lines[first:last] = [f"{indent}### BEGIN SOLUTION", *lines[first:last], f"{indent}### END SOLUTION"]
    return "\n".join(lines), len(bodies)


def solution_lines(source: str) -> set[str]:
    """The lines of a cell that stand between the markers."""
    found, inside = set(), False
    for line in source.splitlines():
        if "BEGIN SOLUTION" in line or "END SOLUTION" in line:
            inside = "BEGIN" in line
        elif inside and re.search(r"\w", line):
            found.add(line.strip())
    return found


def _text(of: str, **values: object) -> str:
    return Template((Path(__file__).parent / "templates" / of).read_text(encoding="utf-8")).render(**values)


def _exercises_kind(nb: NotebookNode, file: str) -> tuple[int, str]:
    """Mark the exercises, and put a cell before them that gets ready; the points, and a line on what there is to do."""
    found = exercises(nb)
    if not found:
        raise CourseError('There is no exercise: a text cell with a line "**Exercise 1** (easy, 10 minutes, 2 points). …"')
    for one in found:
        numbers, points = Counter(), iter(one.points)
        for kind, cell in one.parts():
            numbers[kind] += 1
            name = f"exercise-{one.number}" + ("" if kind == "solution" else f"-{kind}")
            name += f"-{numbers[kind]}" if numbers[kind] > 1 else ""
            graded = kind != "solution"
            _mark(cell, name, grade=graded, solution=kind != "check", points=next(points) if graded else 0)
    minutes = sum(one.minutes or 0 for one in found)
    longer = [str(one.number) for one in found if one.minutes is None]
    time = f"about {minutes} minutes" + (f", and longer for exercise {' and '.join(longer)}" if longer else "")
    first = next(i for i, cell in enumerate(nb.cells) if cell is found[0].heading)
    section = next((i for i in range(first, 0, -1) if re.match(r"## [^\n]*Exercises", nb.cells[i].source)), first)
    nb.cells.insert(section + 1, new_code_cell(_text("ready.j2", file=file), id="course-ready"))
    return sum(sum(one.points) for one in found), f"{len(found)} exercises at the end, {time}"


def _implementation_kind(nb: NotebookNode, file: str) -> tuple[int, str]:
    """Mark the functions of the export cells and their checks; leave out the exercises."""
    done = {id(cell) for one in exercises(nb) for cell in (one.heading, *one.cells)}
    nb.cells = [c for c in nb.cells if id(c) not in done]
    for cell in nb.cells:  # the text refers to them
        if heading := re.match(r"## [^\n]*Exercises", cell.source):
            cell.source = f"{heading[0]}\n\nThe exercises are a hand-out of their own."
    waiting, total, parts, last = 0, 0, 0, None
    for cell in [c for c in nb.cells if c.cell_type == "code"]:
        tags = cell.metadata.get("tags", [])
        if "export" in tags:
            if "given" not in tags:
                cell.source, number = blank(cell.source)
                if number:
                    parts += 1
                    waiting, last = waiting + number, cell
                    _mark(cell, f"part-{parts}", solution=True)
            elif waiting or re.search(r"(?m)^METHODS\b", cell.source):
                last = cell
        elif waiting and ASSERT.search(cell.source):
            _mark(cell, f"part-{parts}-check", grade=True, points=waiting)
            total, waiting, last = total + waiting, 0, cell
    if last is None:
        raise CourseError("No cell is tagged export, so there is nothing to implement.")
    total += waiting  # of functions that only the whole checks
    whole = new_code_cell(_text("whole_check.j2", name=file.removesuffix(".ipynb")), id="whole-check")
    _mark(whole, "whole-check", grade=True, points=total)
    nb.cells.insert(nb.cells.index(last) + 1, whole)
    secret = set().union(*(solution_lines(c.source) for c in nb.cells))
    for cell in nb.cells:  # a variant that repeats what is asked for would give it away
        shown = {line.strip() for line in cell.source.splitlines()}
        if cell.cell_type == "code" and "nbgrader" not in cell.metadata and any(len(s) > 30 for s in shown & secret):
            cell.source, cell.outputs, cell.execution_count = "# This cell repeats parts of the solution.", [], None
    cells = "1 cell" if parts == 1 else f"{parts} cells"
    return 2 * total - waiting, f"{cells} to implement: the bodies of {total} functions are yours"


def source(name: str, kind: str = "exercises") -> NotebookNode:
    """nbgrader's source of an assignment: the solved notebook with nbgrader's metadata, and a note at the top."""
    if kind not in KINDS:
        raise CourseError(f"There is no kind of assignment {kind!r}; there are: {', '.join(KINDS)}.")
    path = papers.path(name)
    nb = read(path)
    stem = path.stem
    try:
        apart(nb)
        points, what = (_exercises_kind if kind == "exercises" else _implementation_kind)(nb, path.name)
    except CourseError as error:
        raise CourseError(f"{path.name}: {error}") from error
    for cell in nb.cells:
        tags = cell.metadata.get("tags", [])
        cell.source = cell.source.replace(SOLVED, "")
        if cell.cell_type != "code" or "nbgrader" in cell.metadata:
            continue
        if BUILT_ON & set(tags):
            _mark(cell, cell.id)
        else:
            cell.metadata["tags"] = [*tags, SKIP]
    nb.metadata["fednb"] = {"assignment": f"{stem}-{kind}", "cells": ids(nb)}
    note = _text("note.md.j2", assignment=f"{stem}-{kind}", file=path.name, what=what, points=points, kind=kind)
    nb.cells.insert(0, new_markdown_cell(note, id="course-note"))
    return nb


def ids(nb: NotebookNode) -> list[str]:
    return [cell.metadata["nbgrader"]["grade_id"] for cell in nb.cells if cell.metadata.get("nbgrader", {}).get("grade_id")]


def read(path: Path) -> NotebookNode:
    try:
        with warnings.catch_warnings(action="ignore"):  # of ids that are there twice
            nb = nbformat.read(path, as_version=4)
        assert isinstance(nb.cells, list) and all(isinstance(cell.source, str) for cell in nb.cells)
        return nb
    except Exception as error:  # nbformat lets many kinds through
        said = str(error).partition("\n")[0][:120]
        raise CourseError(f"{path.name} cannot be read as a notebook ({type(error).__name__}: {said}).") from error


def parts(assignment: str) -> tuple[str, str]:
    name, _, kind = assignment.rpartition("-")
    if kind not in KINDS:
        raise CourseError(f"An assignment is called NOTEBOOK-KIND, for instance 01_moon-exercises; {assignment!r} is not.")
    return papers.path(name).stem, kind


def release(name: str, kind: str = "exercises", folder: Path = FOLDER) -> Path:
    """Write the students' version of a notebook and return its path; what it imports and its sweep file lie beside it."""
    nb, folder = source(name, kind), course_folder(folder)
    original, assignment = papers.path(name), nb.metadata["fednb"]["assignment"]
    place, released = folder / "source" / assignment, folder / "release" / assignment
    place.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, place / original.name)
    nbgrader(folder, assignment, "GenerateAssignment")
    bare(released, _imported(original.stem))
    sweep = original.parent / "sweeps" / f"{original.stem}.yaml"
    if sweep.exists():  # a model for the students' own
        (released / "sweeps").mkdir(exist_ok=True)
        shutil.copy(sweep, released / "sweeps")
    return released / original.name


def bare(folder: Path, names: Iterable[str]) -> None:
    """Write notebooks with nothing in them but what others import."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        nb = read(papers.path(name))
        nb.cells = [cell for cell in nb.cells if {"export", "parameters"} & set(cell.metadata.get("tags", []))]
        for cell in nb.cells:
            cell.outputs, cell.execution_count = [], None
        nbformat.write(nb, folder / papers.path(name).name)


def gives_away(name: str, kind: str) -> list[str]:
    """The notebooks whose methods a hand-out shows in full: what it imports, and in exercises its own."""
    return sorted({*_imported(name), *([papers.path(name).stem] if kind == "exercises" else [])})


def _imported(name: str) -> set[str]:
    """The notebooks from which a notebook imports, and so on."""
    found: set[str] = set()
    for cell in read(papers.path(name)).cells:
        if BUILT_ON & set(cell.metadata.get("tags", [])):
            for other in re.findall(r"(?m)^from fednb\.papers\.(\w+) import", cell.source):
                found |= {papers.path(other).stem, *_imported(other)}
    return found
