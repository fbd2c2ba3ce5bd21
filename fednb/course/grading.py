"""Grading by nbgrader: whatever is handed in is executed in the sandbox, and gets points."""

import hashlib
import html
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pandas as pd
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from fednb import papers
from fednb.course import kernel, sandbox
from fednb.course.assignment import LARGEST, errors_by_cell, grade_id, read_notebook
from fednb.course.handout import release
from fednb.course.kernel import FOLDER, gradebook_entry, nbgrader_step, notebook_path
from fednb.errors import CourseError
from fednb.experiments.ledger import write_atomically

# Times the time for a cell. What fails by itself, or as the machine is slow, gets a second try.
PATIENCE = (1, 3)


class Submission(NamedTuple):
    """What a student has handed in."""

    file: Path | None  # None if there is none
    remarks: list[str]  # what is wrong with it


def submissions(folder: Path, notebook: str) -> dict[str, Submission]:
    """What lies in a folder, by student, as ``student.ipynb`` or as ``student/.../notebook``."""
    by_student: dict[str, Submission] = {}
    for entry in sorted(folder.glob("[!._]*")):
        is_folder = entry.is_dir() and not entry.is_symlink()
        paths = sorted(entry.rglob("*")) if is_folder else [entry]
        submission = _submission(paths, notebook)
        # no option of a command, and no formula of a spreadsheet
        student = re.sub(r"[^\w.@-]+|^\W+", "_", entry.name if is_folder else entry.stem)
        if student in by_student:
            submission.remarks.append(f"another file is {student}'s too")
            student += f"_{len(by_student)}"
        by_student[student] = submission
    if not by_student:
        raise CourseError(f"There is no submission in {folder}.")
    return by_student


def _submission(paths: list[Path], notebook: str) -> Submission:
    """The file to grade: one of the notebook's name, else a notebook, else any."""
    is_link = any(path.is_symlink() for path in paths)
    remarks = ["a link is not followed"] if is_link else []
    files = [path for path in paths if path.is_file() and not path.is_symlink()]
    files = [file for file in files if ".ipynb_checkpoints" not in file.parts]
    named = [file for file in files if file.name == notebook]
    notebooks = [file for file in files if file.suffix == ".ipynb"]
    candidates = named or notebooks or files
    if not candidates:
        return Submission(None, [*remarks, "nothing was handed in"])
    file = candidates[0]
    if len(candidates) > 1:
        remarks.append(f"{len(candidates)} files were handed in; graded is {file.name}")
    return Submission(file, remarks)


def merged_into_handout(file: Path, released: NotebookNode) -> NotebookNode:
    """The hand-out ``released``, which is changed, with a submission's answers and own cells in it.

    Nothing else is taken over: tags and metadata can disarm a check. A `CourseError` says why the
    file cannot be graded.
    """
    nb = read_notebook(file)
    _require_assignment(file, nb, released.metadata["fednb"]["assignment"])
    student_cells = _student_cells(nb, released)
    cells = []
    for cell in released.cells:
        name = grade_id(cell)
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = student_cells.answers.get(name, cell.source)
        cells += [*student_cells.before[name], cell]
    return NotebookNode({**released, "cells": cells + student_cells.last})


def _require_assignment(file: Path, nb: NotebookNode, assignment: str) -> None:
    """Raise a `CourseError` if the file says that it is the hand-out of another assignment."""
    origin = nb.metadata.get("fednb")
    if isinstance(origin, dict) and origin.get("assignment", assignment) != assignment:
        other = str(origin["assignment"])[:100]
        raise CourseError(f"{file.name} is the hand-out of {other}, not of {assignment}")


class StudentCells(NamedTuple):
    """What a submission adds to the hand-out."""

    answers: dict[str, str]  # sources, by grade id
    before: dict[str, list[NotebookNode]]  # own cells, by the grade id of the cell that follows
    last: list[NotebookNode]  # own cells at the end


def _student_cells(nb: NotebookNode, released: NotebookNode) -> StudentCells:
    """Cells are known by their grade id, or by their id if the metadata got lost."""
    id_to_name = {cell.id: grade_id(cell) for cell in released.cells}
    names = set(id_to_name.values()) - {""}
    released_sources = {cell.source for cell in released.cells}
    answers: dict[str, str] = {}
    before: dict[str, list[NotebookNode]] = defaultdict(list)
    waiting: list[NotebookNode] = []
    for cell in nb.cells:
        name: str | None = grade_id(cell)
        if name not in names:
            name = id_to_name.get(str(cell.get("id")))
        if name:
            answers[name] = cell.source
            before[name] += waiting
            waiting = []
        elif name is None and cell.source not in released_sources:
            new_cell = new_code_cell if cell.cell_type == "code" else new_markdown_cell
            waiting.append(new_cell(cell.source))
    return StudentCells(answers, before, waiting)


class Outcome(NamedTuple):
    """What became of a submission."""

    is_graded: bool
    remarks: list[str]


def grade_submission(student: str, submission: Submission, assignment: str) -> Outcome:
    """Have nbgrader grade a submission, or the untouched hand-out if it cannot be graded."""
    handout_path = notebook_path("release", assignment)
    remarks = list(submission.remarks)
    errors = None
    if submission.file is not None:
        try:
            nb = merged_into_handout(submission.file, read_notebook(handout_path))
            errors = _autograde(student, nb, assignment)
        except CourseError as error:
            remarks.append(str(error).rstrip("."))
    was_executed = errors is not None
    if errors is None:
        untouched = read_notebook(handout_path)
        untouched.cells[0].source = f"> **Not graded.** {html.escape('; '.join(remarks))}."
        errors = _autograde(student, untouched, assignment, is_untouched=True)
    slow_cell = _slow_handout_cell(errors)
    if slow_cell:
        remarks.append(
            f"no points yet, as the hand-out's own {slow_cell} took too long: "
            "call the same command again"
        )
    elif was_executed:
        remarks += [f"{name}: {error}" for name, error in errors.items()]
    return Outcome(not slow_cell, remarks)


def _autograde(
    student: str, nb: NotebookNode, assignment: str, *, is_untouched: bool = False
) -> dict[str, str]:
    """Execute and grade a notebook and make its page of feedback; what went wrong, by cell.

    It is tried again with more time if nbgrader fails or a cell of the hand-out itself takes too
    long. A `CourseError` says why it fails for good: at once if a limit of the sandbox ended it, or
    if the hand-out is untouched, which must not fail.
    """
    submitted = notebook_path("submitted", assignment, student)
    submitted.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, submitted)
    errors: dict[str, str] = {}
    for patience in PATIENCE:
        try:
            nbgrader_step("autograde", assignment, student, patience=patience)
            nbgrader_step("generate_feedback", assignment, student)
        except CourseError as error:
            if is_untouched:
                raise CourseError(
                    f"Not even the untouched hand-out can be graded: {error}"
                ) from error
            if patience == PATIENCE[-1] or kernel.STOPPED in str(error):
                raise CourseError(f"executing it failed ({error}), so it scores zero") from error
            continue
        errors = errors_by_cell(read_notebook(notebook_path("autograded", assignment, student)))
        if not _slow_handout_cell(errors):
            break
    return errors


def _slow_handout_cell(errors: Mapping[str, str]) -> str:
    """The first cell that took too long, if it is the hand-out's own, and else ""."""
    slow = [name for name, error in errors.items() if error.startswith("CellTimeoutError")]
    return slow[0] if slow and not slow[0].startswith("exercise") else ""


def grade(name: str, handed_in: Path) -> tuple[Path, pd.DataFrame]:
    """Grade what is new in a folder of submissions; the file of the table of all, and the table."""
    assignment = papers.path(name).stem
    folder = FOLDER.absolute()
    by_student = submissions(handed_in, f"{assignment}.ipynb")
    is_released = notebook_path("release", assignment).exists()
    if not is_released or not (folder / "gradebook.db").exists():
        release(assignment)
    if not sandbox.is_available():
        print(
            "There are no namespaces here: what is executed can read and write all that you can.",
            flush=True,
        )
    notes_file = folder / f"{assignment}.json"
    notes = _grade_new(assignment, by_student, notes_file)
    rows = []
    changed = []
    for student in by_student:
        entry = gradebook_entry(assignment, student)
        note = notes[student]
        scores = entry.scores | entry.points
        if not note["points"]:
            scores = dict.fromkeys(scores)
        elif note["points"] != entry.points:
            changed.append(student)
        rows.append({"student": student, **scores, "remarks": note["remarks"]})
    if changed:
        raise CourseError(
            f"The gradebook has other points than were made for {', '.join(changed)}: put back "
            f"your copy of it, or delete {notes_file}, and all are graded anew."
        )
    path = folder / f"{assignment}.csv"
    table = pd.DataFrame(rows)
    table.to_csv(path, index=False)
    return path, table


def _grade_new(
    assignment: str, by_student: Mapping[str, Submission], notes_file: Path
) -> dict[str, Any]:
    """Grade each submission that is not graded, or was by other rules.

    Returns, and keeps in a file, by student what was graded (``digest``, null if it has to be
    graded again), the ``points`` that it got by check, and ``remarks``.
    """
    notes = json.loads(notes_file.read_text(encoding="utf-8")) if notes_file.exists() else {}
    rules = (FOLDER / "nbgrader_config.py").read_bytes()
    rules += notebook_path("source", assignment).read_bytes()
    for number, (student, submission) in enumerate(by_student.items(), 1):
        digest = hashlib.sha256(rules + _content(submission.file)).hexdigest()
        if notes.get(student, {}).get("digest") == digest:
            continue
        outcome = grade_submission(student, submission, assignment)
        note: dict[str, Any] = {
            "digest": None,
            "points": None,
            "remarks": "; ".join(outcome.remarks),
        }
        if outcome.is_graded:
            points = gradebook_entry(assignment, student).points
            note |= {"digest": digest, "points": points}
        notes[student] = note
        write_atomically(notes_file, json.dumps(notes))
        print(f"{number}/{len(by_student)} {student}", *outcome.remarks, sep="; ", flush=True)
    return notes


def _content(file: Path | None) -> bytes:
    if file is None:
        return b""
    with file.open("rb") as opened:
        return opened.read(LARGEST)
