"""A course with these notebooks: hand-outs without solutions, checks for students, grades. All of it rests on nbgrader.

The solved notebooks are the only source, and what they say is what counts. An exercise begins with a line such as

    **Exercise 2** (easy, 10 minutes, 2 points). ...

and goes on to the next exercise or section. Its code cell with ``### BEGIN SOLUTION`` / ``### END SOLUTION`` is the
student's. A code cell after that is a check, worth the points, and may hold tests between ``### BEGIN HIDDEN TESTS`` /
``### END HIDDEN TESTS``. A text cell with ``<!-- BEGIN SOLUTION -->`` / ``<!-- END SOLUTION -->`` is an answer that a person
grades; an exercise of "10 points, written" that has none gets an empty one. With several checks and answers the points are
a sum, one term for each: "1 + 2 points". Cells tagged ``setup``, ``parameters``, ``export`` or ``course`` are what exercises
may build on; all others are left out when a notebook is graded.

In an implementation assignment the functions of the ``export`` cells lose their bodies instead, each for a point, which
the next cell that asserts something grades. A cell also tagged ``given`` keeps its bodies.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import hashlib
import html
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from fednb import papers
from fednb.papers import ROOT

FOLDER = ROOT / "course"  # nbgrader's course directory: source, release, submitted, autograded, feedback, gradebook
KINDS = ("exercises", "implementation")
BUILT_ON = {"setup", "parameters", "export", "course"}  # tags of cells that are executed when a notebook is graded
SKIP = "skip-execution"  # the tag by which nbclient leaves a cell out
SEED = "FEDNB_STUDENT_SEED"
STUB = "# YOUR CODE HERE\nraise NotImplementedError()"
ANSWER = "*Your answer here.*"
SOLVED = "Solutions stand between the markers; in the course version of this notebook they are taken out. "
EXCUSE = "> **Not graded.**"
EXERCISE = re.compile(r"(?m)^\*\*Exercise (\d+)\*\* \((\w+), ([\w ]+), ([\d +]+) points?([^)]*)\)\.")


class CourseError(Exception):
    """A request that cannot be met; the message says what is missing."""


# --- what hidden tests and notebooks use ------------------------------------------------------------------------------


def draws(purpose: str) -> np.random.Generator:
    """The generator of hidden inputs: other draws for each student, the same ones whenever a student is graded."""
    return np.random.default_rng([int(os.environ.get(SEED, 0)), zlib.crc32(purpose.encode())])


def same_rounds(methods: Mapping[str, Any], released: Mapping[str, Any], names: list[str], num_rounds: int = 3) -> None:
    """Assert that three short rounds of each method go as the released implementation's do.

    Partition, initial weights and batches are drawn from the student's seed.
    """
    from fednb import runs
    from fednb.settings import resolve

    seed = int(draws("whole method").integers(1000))
    short = {"dataset": "digits", "seed": seed, "num_clients": 4, "num_rounds": num_rounds, "local_epochs": 1}
    for name in names:
        histories = []
        for known in (methods, released):
            federation = runs.federation(resolve(known, method=name, **short), known, device="cpu")
            for _ in range(num_rounds):
                federation.run_round()
            histories.append(federation.history)
        for t, (ours, theirs) in enumerate(zip(*histories, strict=True)):
            terms = {key for key in (*ours, *theirs) if key.startswith("loss/")}
            assert terms == {key for key in theirs if key in terms}, f"{name}, round {t}: the loss has the terms {terms}"
            for key in sorted(terms):
                assert np.isclose(ours[key], theirs[key], rtol=0.02, atol=1e-4), (
                    f"{name}, round {t}: {key} is {ours[key]:.4g}"
                )
            gap = abs(ours["accuracy"] - theirs["accuracy"])
            assert gap < 1, f"{name}, round {t}: the accuracy is {gap:.1f} points from that of the method in the text"


# --- from a solved notebook to nbgrader's source ----------------------------------------------------------------------


@dataclass
class Exercise:
    """What an exercise's heading says, and its cells."""

    number: int
    level: str
    time: str
    points: list[int]
    written: bool
    heading: NotebookNode
    cells: list[NotebookNode] = field(default_factory=list)

    @property
    def minutes(self) -> int | None:
        """The time in minutes; None if it is given in words."""
        found = re.fullmatch(r"(\d+) minutes", self.time)
        return int(found[1]) if found else None

    def parts(self) -> list[tuple[str, NotebookNode]]:
        """The cells that matter, as pairs of what they are (solution, check, answer) and the cell."""
        found: list[tuple[str, NotebookNode]] = []
        for cell in self.cells:
            if "BEGIN SOLUTION" in cell.source:
                found.append(("solution" if cell.cell_type == "code" else "answer", cell))
            elif cell.cell_type == "code" and any(kind == "solution" for kind, _ in found):
                found.append(("check", cell))
        return found


def _apart(nb: NotebookNode) -> None:
    """Give each exercise a cell of its own, and a written one without an answer a cell for it."""
    cells: list[NotebookNode] = []
    for cell in nb.cells:
        heading = EXERCISE.search(cell.source) if cell.cell_type == "markdown" else None
        pieces = re.split(r"(?m)^(?=\*\*Exercise \d+\*\* \()|(?<!\A)^(?=## )", cell.source) if heading else [cell.source]
        pieces = [piece.strip() for piece in pieces if piece.strip()] if heading else pieces
        for number, piece in enumerate(pieces):
            name = cell.id if number == 0 else f"{cell.id}-{number}"
            cells.append(NotebookNode({**cell, "id": name, "source": piece}))
    nb.cells = cells
    for one in exercises(nb, complete=False):
        if one.written and not any(kind == "answer" for kind, _ in one.parts()):
            last = next(i for i, cell in enumerate(nb.cells) if cell is (one.cells or [one.heading])[-1])
            answer = new_markdown_cell("BEGIN SOLUTION\nEND SOLUTION", id=f"exercise-{one.number}-answer")
            nb.cells.insert(last + 1, answer)


def exercises(nb: NotebookNode, complete: bool = True) -> list[Exercise]:
    """The exercises of a solved notebook, in order; each begins a cell."""
    found: list[Exercise] = []
    inside = False
    for cell in nb.cells:
        heading = EXERCISE.match(cell.source) if cell.cell_type == "markdown" else None
        if heading:
            number, level, time, points, more = heading.groups()
            found.append(Exercise(int(number), level, time, [int(p) for p in points.split("+")], "written" in more, cell))
            inside = True
        elif cell.cell_type == "markdown" and cell.source.startswith("## "):
            inside = False
        elif inside:
            found[-1].cells.append(cell)
        elif "BEGIN SOLUTION" in cell.source:
            raise CourseError(f"A solution stands outside of every exercise: {cell.source[:60]!r}.")
    for one in found if complete else ():
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


WHOLE = """# Check of the whole: three rounds with four clients, for each method of this notebook.
from fednb import runs
from fednb.settings import resolve

of_this_notebook = [name for name, method in METHODS.items() if method.__module__ == "__main__"]
assert of_this_notebook, "the last exported cell defines METHODS"
for name in of_this_notebook:
    short = dict(dataset="digits", num_clients=4, num_rounds=3, local_epochs=1)
    federation = runs.federation(resolve(METHODS, method=name, **short), METHODS, device="cpu")
    for _ in range(3):
        federation.run_round()
### BEGIN HIDDEN TESTS
from fednb import course

course.same_rounds(METHODS, papers.load("{name}").METHODS, of_this_notebook)
### END HIDDEN TESTS"""


def _exercises_kind(nb: NotebookNode) -> tuple[int, str]:
    """Mark the exercises; return the points and a line that says what there is to do."""
    found = exercises(nb)
    if not found:
        raise CourseError(
            'The notebook has no exercise: a text cell with a line "**Exercise 1** (easy, 10 minutes, 2 points). …"'
        )
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
    return sum(sum(one.points) for one in found), f"{len(found)} exercises at the end, {time}"


def _implementation_kind(nb: NotebookNode, name: str) -> tuple[int, str]:
    """Mark the functions of the export cells and their checks; leave the exercises out."""
    done = {id(cell) for one in exercises(nb) for cell in (one.heading, *one.cells)}
    nb.cells = [c for c in nb.cells if id(c) not in done and not re.match(r"## [^\n]*Exercises", c.source)]
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
            elif waiting:
                last = cell
        elif waiting and re.search(r"(?m)^\s*assert ", cell.source):
            _mark(cell, f"part-{parts}-check", grade=True, points=waiting)
            total, waiting, last = total + waiting, 0, cell
    if last is None:
        raise CourseError("No cell is tagged export, so there is nothing to implement.")
    total += waiting  # of functions that only the whole checks
    whole = new_code_cell(WHOLE.replace("{name}", name), id="whole-check")
    _mark(whole, "whole-check", grade=True, points=total)
    nb.cells.insert(nb.cells.index(last) + 1, whole)
    secret = set().union(*(solution_lines(c.source) for c in nb.cells))
    for cell in nb.cells:  # a variant that repeats what is asked for would give it away
        shown = {line.strip() for line in cell.source.splitlines()}
        if cell.cell_type == "code" and "nbgrader" not in cell.metadata and any(len(s) > 30 for s in shown & secret):
            cell.source, cell.outputs, cell.execution_count = "# This cell repeats parts of the solution.", [], None
    return 2 * total - waiting, f"{parts} cells to implement: the bodies of {total} functions are yours"


NOTE = """> **Hand-out of `{assignment}`**: {what}, {points} points.
>
> **Work.** Keep this hand-out in a folder of its own. {how}
> Put your code in place of `raise NotImplementedError()`, and run the check below it: an assert that fails says what is
> wrong. Answers in words replace *Your answer here*. Cells of your own are welcome.
>
> **Check** everything in one go: `python -m fednb course check {file}`. It takes a fresh start, so it finds what works only
> because of the order in which you ran cells.
>
> **Hand in** this file under its name. Do not delete or copy exercise and check cells: an exercise that is missing or there
> twice counts as not done. Checks are put back as they were, and others that you do not see are added."""
HOW = {
    "exercises": "The exercises are at the end. In JupyterLab, choose *Run All Above Selected Cell* at the\n"
    "> first of them: about a minute. The outputs before them are those of the solved notebook.",
    "implementation": "Go from the top to the bottom and run each cell as you come to it. The outputs further\n"
    "> down are those of the solved notebook: what your implementation has to give.",
}


def source(name: str, kind: str = "exercises") -> NotebookNode:
    """nbgrader's source of an assignment: the solved notebook with nbgrader's metadata, and a note at the top."""
    if kind not in KINDS:
        raise CourseError(f"There is no kind of assignment {kind!r}; there are: {', '.join(KINDS)}.")
    path = papers.path(name)
    nb = _read(path)
    stem = path.stem
    try:
        _apart(nb)
        points, what = _exercises_kind(nb) if kind == "exercises" else _implementation_kind(nb, stem)
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
    nb.metadata["fednb"] = {"assignment": f"{stem}-{kind}", "cells": _ids(nb)}
    note = NOTE.format(assignment=f"{stem}-{kind}", file=path.name, what=what, points=points, how=HOW[kind])
    nb.cells.insert(0, new_markdown_cell(note, id="course-note"))
    return nb


def _ids(nb: NotebookNode) -> list[str]:
    return [cell.metadata["nbgrader"]["grade_id"] for cell in nb.cells if cell.metadata.get("nbgrader", {}).get("grade_id")]


def _read(path: Path) -> NotebookNode:
    try:
        with warnings.catch_warnings(action="ignore"):  # of ids that are there twice
            nb = nbformat.read(path, as_version=4)
        assert isinstance(nb.cells, list) and all(isinstance(cell.source, str) for cell in nb.cells)
        return nb
    except Exception as error:  # nbformat lets many kinds through
        said = str(error).partition("\n")[0][:120]
        raise CourseError(f"{path.name} cannot be read as a notebook ({type(error).__name__}: {said}).") from error


# --- nbgrader ---------------------------------------------------------------------------------------------------------


def configure(config: Any) -> None:
    """What nbgrader is told, by the ``nbgrader_config.py`` of a course folder and by ``check``."""
    from nbgrader.converters import GenerateAssignment
    from nbgrader.preprocessors import ClearOutput, InstantiateTests

    config.CourseDirectory.course_id = "fednb"
    config.ClearSolutions.code_stub = {"python": STUB}
    config.ClearSolutions.text_stub = ANSWER
    steps = [step for step in GenerateAssignment().preprocessors if step not in (ClearOutput, InstantiateTests)]
    config.GenerateAssignment.preprocessors = steps  # the outputs of what is not asked for stay readable
    config.LockCells.lock_readonly_cells = False  # a student may play with them; they are put back for grading
    config.IgnorePattern.enabled = True
    config.IgnorePattern.pattern = "(?s).*"  # a warning on stderr would cost all points of a check
    config.Execute.timeout = int(os.environ.get("FEDNB_CELL_TIMEOUT", 60))  # seconds for a cell
    config.Execute.iopub_timeout = 60  # nbclient's 4 seconds for the output to arrive fail good work on a busy machine


CONFIG = """# Written by `python -m fednb course`. nbgrader's own commands work in this folder, too.
from pathlib import Path

from fednb.course import configure

configure(get_config())  # noqa: F821
get_config().CourseDirectory.root = str(Path(__file__).parent)  # noqa: F821
"""


def _environment(**more: str) -> dict[str, str]:
    """The environment of nbgrader and of the code that it runs: the released notebooks, this package, no ledger."""
    env = {name: value for name, value in os.environ.items() if name not in ("FEDNB_NOTEBOOKS", SEED)}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])  # nbgrader calls alembic
    return env | {"FEDNB_PROGRESS": "off", "PYTHONWARNINGS": "ignore", "MPLBACKEND": "agg"} | more


def _nbgrader(folder: Path, *arguments: str, limit: float | None = None, **environment: str) -> str:
    """Call nbgrader in a course folder and return its log; CourseError if it fails or takes longer than the limit."""
    import psutil  # comes with ipykernel

    command = [sys.executable, "-m", "nbgrader", *arguments]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, cwd=folder, env=_environment(**environment), stdout=log, stderr=log)
        try:
            status = process.wait(limit)
        except BaseException as error:  # Ctrl-C included; a kernel outlives nbgrader if it is in a loop of compiled code
            for child in [*psutil.Process(process.pid).children(recursive=True), process]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise CourseError(f"not finished after {limit:.0f} s") from None
            raise
        log.seek(0)
        text = log.read()
    if status:
        said = [line for line in text.splitlines() if re.match(r"\s*[\w.]*(Error|Exception)\b", line)]
        (folder / "nbgrader.log").write_text(text, encoding="utf-8")
        raise CourseError(f"{(said or ['nbgrader failed'])[-1].strip()[:200]} (all it said: {folder / 'nbgrader.log'})")
    return text


def _course(folder: Path) -> Path:
    """Make sure of a course folder, and of nbgrader."""
    if importlib.util.find_spec("nbgrader") is None:
        raise CourseError('The course commands need nbgrader: python -m pip install -e ".[course]"')
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nbgrader_config.py").write_text(CONFIG, encoding="utf-8")
    return folder


def _parts(assignment: str) -> tuple[str, str]:
    name, _, kind = assignment.rpartition("-")
    if kind not in KINDS:
        raise CourseError(f"An assignment is called NOTEBOOK-KIND, for instance 01_moon-exercises; {assignment!r} is not.")
    return papers.path(name).stem, kind


def release(name: str, kind: str = "exercises", folder: Path = FOLDER) -> Path:
    """Write the students' version of a notebook and return its path; the notebooks that it imports from lie beside it."""
    nb, folder = source(name, kind), _course(folder)
    stem = papers.path(name).stem
    assignment = nb.metadata["fednb"]["assignment"]
    place = folder / "source" / assignment
    place.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, place / f"{stem}.ipynb")
    _nbgrader(folder, "generate_assignment", assignment, "--force")
    released = folder / "release" / assignment
    for other in _imported(stem):
        needed = _read(papers.path(other))
        needed.cells = [cell for cell in needed.cells if "export" in cell.metadata.get("tags", [])]
        for cell in needed.cells:
            cell.outputs, cell.execution_count = [], None
        nbformat.write(needed, released / papers.path(other).name)
    return released / f"{stem}.ipynb"


def _imported(name: str) -> list[str]:
    """The notebooks from which a notebook's export cells import, and so on."""
    found: list[str] = []
    for cell in _read(papers.path(name)).cells:
        if "export" in cell.metadata.get("tags", []):
            for other in re.findall(r"(?m)^from fednb\.papers\.(\w+) import", cell.source):
                found += [other, *_imported(other)]
    return sorted(set(found))


# --- for students -----------------------------------------------------------------------------------------------------


def check(path: Path, timeout: int = 60) -> list[tuple[str, str]]:
    """Run the visible checks of a student's notebook; pairs of a check and what is wrong, which is empty if it passes."""
    if importlib.util.find_spec("nbgrader") is None:
        raise CourseError('The course commands need nbgrader: python -m pip install "fednb[course]"')
    from nbgrader.validator import Validator
    from traitlets.config import Config

    nb = _read(path)
    if "fednb" not in nb.metadata or "assignment" not in nb.metadata["fednb"]:
        raise CourseError(
            f"{path.name} is not a hand-out: its metadata names no assignment. Start from the file that you got."
        )
    count = Counter(_ids(nb))
    if wrong := [name for name in nb.metadata["fednb"]["cells"] if count[name] != 1]:
        told = ", ".join(f"{name} is {'missing' if not count[name] else 'there twice'}" for name in wrong)
        raise CourseError(f"{path.name}: {told}. Such a cell counts as not done: put back the cells of the hand-out first.")
    config = Config()
    configure(config)
    config.Execute.timeout = timeout
    before = dict(os.environ)
    os.environ |= _environment() | ({"FEDNB_NOTEBOOKS": before["FEDNB_NOTEBOOKS"]} if "FEDNB_NOTEBOOKS" in before else {})
    try:
        result = Validator(config=config).validate(str(path.absolute()))
    finally:
        os.environ.clear()
        os.environ.update(before)
    changed = {entry["source"] for key in ("changed", "type_changed") for entry in result.get(key, [])}
    failed = {entry["source"]: entry["raw_error"] for entry in result.get("failed", [])}
    rows, untouched = [], False
    for cell in nb.cells:
        marks = cell.metadata.get("nbgrader", {})
        text = cell.source.strip()
        untouched = untouched or (bool(marks.get("solution")) and STUB.splitlines()[-1] in text)
        if text in changed:
            rows.append(
                (marks["grade_id"], "the cell was changed, and will be put back for grading: put it back yourself first")
            )
        elif not marks.get("grade") or changed:
            continue
        elif marks["solution"]:
            rows.append((marks["grade_id"], "no answer yet" if text == ANSWER else ""))
        else:
            said = "not done yet" if untouched else _last_line(failed.get(text, "-"))
            rows.append((marks["grade_id"], said if text in failed else ""))
            untouched = False
    return rows


def _last_line(error: str) -> str:
    """The end of a traceback, in words."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[\d;]*m", "", error).splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if re.match(r"\w*(Error|Exception|Interrupt|Exit)\b", line)), lines[-1])
    return {"NotImplementedError:": "not done yet", "NotImplementedError": "not done yet"}.get(said, said)[:200]


# --- grading ----------------------------------------------------------------------------------------------------------


@dataclass
class Submission:
    """What a student handed in: a file or, if there is none that can be graded, the reason."""

    student: str
    path: Path | None
    remarks: list[str] = field(default_factory=list)


def submissions(folder: Path, notebook: str) -> list[Submission]:
    """What lies in a folder: ``student.ipynb``, or ``student/…/notebook.ipynb`` as nbgrader and most platforms have it."""
    found: list[Submission] = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "_")):
            continue
        student = re.sub(r"[^\w.@-]+", "_", entry.name if entry.is_dir() else entry.stem)
        inside = [p for p in sorted(entry.rglob("*")) if p.is_file() and ".ipynb_checkpoints" not in p.parts]
        named = [p for p in inside if p.name == f"{notebook}.ipynb"] or [p for p in inside if p.suffix == ".ipynb"]
        files = [entry] if entry.is_file() else named or inside
        one = Submission(student, files[0] if files else None)
        if any(other.student == student for other in found):
            one.student += f"_{len(found)}"
            one.remarks.append(f"another file is {student}'s too")
        if not files:
            one.remarks.append("nothing was handed in")
        elif len(files) > 1 and entry.is_dir() and len(named) != 1:
            one.remarks.append(f"{len(files)} files were handed in; graded is {files[0].name}")
        found.append(one)
    if not found:
        raise CourseError(f"There is no submission in {folder}.")
    return found


def _repaired(nb: NotebookNode, released: NotebookNode) -> tuple[NotebookNode, list[str]]:
    """A submission with each cell of nbgrader's there once, with the tags and metadata that it was handed out with.

    nbgrader itself puts back the text of locked cells. But a tag can keep a check from being executed, which nbgrader counts
    as passed; metadata can take the check out of the grading; and cells that are missing, there twice, or not the hand-out's
    can end the grading of the whole notebook.
    """
    nb, remarks = NotebookNode(nb), []
    handed_out = {cell.metadata["nbgrader"]["grade_id"]: cell for cell in released.cells if "nbgrader" in cell.metadata}
    by_cell_id = {cell.id: cell for cell in released.cells}
    cells: list[NotebookNode] = []
    places: dict[str, list[int]] = {}
    for cell in nb.cells:
        twin = by_cell_id.get(cell.get("id", ""))
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        if name not in handed_out:
            name = twin.metadata.get("nbgrader", {}).get("grade_id") if twin else None
        tags = [tag for tag in cell.metadata.get("tags", []) if tag != SKIP]
        if twin is None and SKIP in cell.metadata.get("tags", []) and "id" not in cell:
            tags = [*tags, SKIP]  # saved in an old format, without ids
        cell.metadata = NotebookNode({"tags": tags})
        if name is not None:
            places.setdefault(name, []).append(len(cells))
            cell.metadata = NotebookNode(json.loads(json.dumps(handed_out[name].metadata)))
        elif twin is not None:
            cell.metadata = NotebookNode(json.loads(json.dumps(twin.metadata)))
        cells.append(cell)
    twice = {name for name, where in places.items() if len(where) > 1}
    drop = {place for name in twice for place in places[name]}
    own = [name for name, cell in handed_out.items() if cell.metadata["nbgrader"]["solution"]]
    remarks += [f"{name} is there twice: it counts as not done" for name in own if name in twice]
    remarks += [f"{name} is missing" for name in handed_out if name not in places]
    kept = [cell for place, cell in enumerate(cells) if place not in drop]
    last = -1
    for name, cell in handed_out.items():
        if name in places and name not in twice:
            last = max(last, next(i for i, c in enumerate(kept) if c.metadata.get("nbgrader", {}).get("grade_id") == name))
        else:
            last += 1
            kept.insert(last, NotebookNode(json.loads(json.dumps(cell))))
    for number, cell in enumerate(kept):
        cell["id"] = f"cell-{number}"
    nb.cells, nb.nbformat, nb.nbformat_minor = kept, 4, 5
    return nb, remarks


def grade(
    handed_in: Path,
    assignment: str | None = None,
    folder: Path = FOLDER,
    *,
    seed: str = "fednb",
    timeout: int = 60,
    limit: int = 900,
    again: bool = False,
) -> Path:
    """Grade a folder of submissions; write a CSV of the scores and a feedback page for each, and return the CSV's path.

    Parameters
    ----------
    assignment
        ``01_moon-exercises``, for instance; by default what most of the submissions say.
    seed
        With the student's name it decides the hidden inputs.
    timeout, limit
        Seconds for a cell, and for a submission.
    again
        Also grade submissions that are graded already and have not changed.
    """
    if not handed_in.is_dir():
        raise CourseError(f"There is no folder {handed_in}.")
    folder = _course(folder)
    assignment = assignment or _assignment_of(handed_in)
    name, kind = _parts(assignment)
    released = folder / "release" / assignment / f"{name}.ipynb"
    if not released.exists() or not (folder / "gradebook.db").exists():
        release(name, kind, folder)
    original = _read(released)
    found = submissions(handed_in, name)
    for number, one in enumerate(found, 1):
        place = folder / "submitted" / one.student / assignment
        given = one.path.read_bytes() if one.path else b""
        digest = hashlib.sha256(given + seed.encode() + released.read_bytes()).hexdigest()
        state = place / "state.json"
        old = json.loads(state.read_text()) if state.exists() else {}
        if not again and old.get("digest") == digest:
            one.remarks = old["remarks"]
            continue
        nb, remarks = _submitted(one, original, assignment)
        one.remarks += remarks
        place.mkdir(parents=True, exist_ok=True)
        student_seed = zlib.crc32(f"{seed} {one.student}".encode())
        environment = {SEED: str(student_seed), "FEDNB_CELL_TIMEOUT": str(timeout)}
        with tempfile.TemporaryDirectory() as runs:
            environment |= {"FEDNB_RUNS": runs}
            nbformat.write(nb, place / f"{name}.ipynb")
            if error := _autograde(folder, assignment, one.student, limit, environment):
                one.remarks.append(f"executing it failed, so it scores zero: {error}")
                nbformat.write(_excuse(original, one.remarks), place / f"{name}.ipynb")
                if error := _autograde(folder, assignment, one.student, limit, environment):
                    raise CourseError(f"Not even the untouched hand-out can be graded: {error}.")
        state.write_text(json.dumps({"digest": digest, "remarks": one.remarks, "seed": student_seed}))
        print(f"{number}/{len(found)} {one.student}", *one.remarks, sep="; ", flush=True)
    _nbgrader(folder, "generate_feedback", assignment, "--force")
    return _write_scores(folder, assignment, name, found)


def _autograde(folder: Path, assignment: str, student: str, limit: int, environment: Mapping[str, str]) -> str:
    """Have nbgrader grade a submission; what failed, if it failed twice or took too long."""
    error = ""
    for _ in range(2):
        try:
            _nbgrader(folder, "autograde", assignment, "--student", student, "--force", limit=limit, **environment)
            return ""
        except CourseError as caught:
            error = str(caught).partition(" (all it said")[0]
            if error.startswith("not finished"):
                break
    return error


def _assignment_of(handed_in: Path) -> str:
    named: Counter[str] = Counter()
    for path in handed_in.rglob("*.ipynb"):
        with contextlib.suppress(CourseError):
            named[_read(path).metadata.get("fednb", {}).get("assignment", "")] += 1
    del named[""]
    if not named:
        raise CourseError(f"No file in {handed_in} says what assignment it is: name it, --assignment 01_moon-exercises.")
    return named.most_common(1)[0][0]


def _excuse(original: NotebookNode, remarks: list[str]) -> NotebookNode:
    """The untouched hand-out, with the reason why it stands for the submission."""
    nb = nbformat.from_dict(json.loads(json.dumps(original)))
    nb.cells[0] = new_markdown_cell(EXCUSE + " " + html.escape("; ".join(remarks)) + ".", id="course-note")
    return nb


def _submitted(one: Submission, original: NotebookNode, assignment: str) -> tuple[NotebookNode, list[str]]:
    """The notebook to grade for a submission, and remarks; the untouched hand-out if it cannot be graded."""
    if one.path is None:
        return _excuse(original, one.remarks), []
    try:
        nb = _read(one.path)
        other = nb.metadata.get("fednb", {}).get("assignment", assignment)
        if other != assignment:
            raise CourseError(f"{one.path.name} is the hand-out of {other}, not of {assignment}.")
        return _repaired(nb, original)
    except CourseError as error:
        return _excuse(original, [str(error).rstrip(".")]), [str(error).rstrip(".")]
    except Exception as error:  # whatever a stranger's file may hold
        said = f"{one.path.name} cannot be read as a notebook ({type(error).__name__})"
        return _excuse(original, [said]), [said]


def _write_scores(folder: Path, assignment: str, name: str, found: list[Submission]) -> Path:
    """A row for each submission: the score, what a person has still to grade, each check, and remarks."""
    from nbgrader.api import Gradebook

    path, rows = folder / f"{assignment}.csv", []
    with Gradebook(f"sqlite:///{folder / 'gradebook.db'}", "fednb") as gradebook:
        for one in found:
            notebook = gradebook.find_submission_notebook(name, assignment, one.student)
            graded = {grade.name: grade for grade in notebook.grades}
            errors = _errors(folder / "autograded" / one.student / assignment / f"{name}.ipynb")
            row = {"student": one.student, "score": notebook.score, "max_score": notebook.max_score}
            row["to_grade_by_hand"] = sum(grade.max_score for grade in graded.values() if grade.needs_manual_grade)
            order = [cell.name for cell in gradebook.find_notebook(name, assignment).source_cells if cell.name in graded]
            row |= {name: graded[name].score for name in sorted(order, key=_natural)}
            state = folder / "submitted" / one.student / assignment / "state.json"
            row["seed"] = json.loads(state.read_text())["seed"]
            row["remarks"] = "; ".join([*one.remarks, *(f"{name}: {said}" for name, said in errors.items())])
            rows.append(row)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def _natural(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _errors(path: Path) -> dict[str, str]:
    """What went wrong in an autograded notebook, check by check; a solution cell's own error before that of its check."""
    found: dict[str, str] = {}
    cause = ""
    cells = _read(path).cells if path.exists() else []
    if any(cell.source.startswith(EXCUSE) for cell in cells):
        return {}
    for cell in cells:
        marks = cell.metadata.get("nbgrader", {})
        said = [o for o in cell.get("outputs", []) if o.output_type == "error"]
        if any(o.ename in ("CellTimeoutError", "KeyboardInterrupt") for o in said):
            error, said = "stopped, as it took too long", []
        else:
            error = ""
        if said:
            error = _last_line("\n".join(said[0].traceback) or f"{said[0].ename}: {said[0].evalue}")
        if marks.get("solution"):
            cause = error
        elif marks.get("grade") and error:
            found[marks["grade_id"]] = cause or error
            cause = ""
    return found


def scores(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a CSV of scores."""
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)
