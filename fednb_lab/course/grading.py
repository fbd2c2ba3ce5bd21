"""Grading what was handed in: merged into the hand-out, executed in the sandbox, by nbgrader.

`Handout` and `grade` are the way through; tables and pages are written by `tables`.
"""

import hashlib
import json
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_output

from fednb import papers
from fednb.errors import CourseError
from fednb.records import write_atomically
from fednb_lab.course import nbgrading, sandbox
from fednb_lab.course.collect import Submission, collect
from fednb_lab.course.inside import Limits
from fednb_lab.course.merging import merged
from fednb_lab.course.nbgrading import FOLDER, nbgrader_step, notebook_path
from fednb_lab.course.notebooks import (
    NO_ANSWER,
    NOT_COUNTED,
    NOT_DONE,
    NOTHING,
    errors_by_cell,
    files_of,
    first_error,
    grade_id,
    is_check,
    marks_of,
    read_notebook,
    remark,
)
from fednb_lab.course.tables import all_remarks, write_tables

# What ends a student's own cell for good: any other error there costs nothing.
ENDED = ("CellTimeoutError", "DeadKernelError", "NotExecuted")


class Handout(NamedTuple):
    """What all submissions are merged into, and what else decides about their points."""

    assignment: str
    released: NotebookNode  # with the hidden tests, and without solutions
    files: dict[str, Path]  # that lie beside it, by name
    limits: Limits
    seed: str
    digest: str  # of all of it

    @classmethod
    def read(cls, assignment: str) -> "Handout":
        """Read the hand-out in the course folder; a `CourseError` if there is none."""
        path = notebook_path("release", assignment)
        if not path.exists() or not (FOLDER / "gradebook.db").exists():
            raise CourseError(
                f"No hand-out of {assignment} is in {FOLDER.absolute()}: go to the folder in which "
                f"you called `fednb course release {assignment}`, or call it here, which begins a "
                "gradebook."
            )
        source = read_notebook(notebook_path("source", assignment))
        sources = {grade_id(cell): cell.source for cell in source.cells}
        released = read_notebook(path)
        for cell in released.cells:
            if marks_of(cell).get("locked"):
                cell.source = sources[grade_id(cell)]
        files = {name: path.parent / name for name in files_of(released)}
        limits, seed = nbgrading.execution_limits()
        digest = _digest([limits, seed, _sources(released)], files)
        return cls(assignment, released, files, limits, seed, digest)


class Prepared(NamedTuple):
    """A submission in the hand-out."""

    nb: NotebookNode | None  # None if it cannot be graded
    files: dict[str, Path]  # that lie beside it
    remarks: list[str]
    digest: str  # of all that decides about the points


class Executed(NamedTuple):
    """A submission with its outputs."""

    nb: NotebookNode | None  # None if it cannot be graded
    remarks: list[str]
    errors: dict[str, str]  # by grade id


def grade(name: str, handed_in: Path, *, jobs: int = 1, is_sandboxed: bool = True) -> Path:
    """Grade what is new in a folder or zip of submissions, and return the path of the scores.

    So many ``jobs`` are executed at once. The tables have everybody who was ever graded in this
    course folder, with the newest attempt.
    """
    assignment = papers.path(name).stem
    if is_sandboxed and sandbox.missing():
        raise CourseError(sandbox.missing())
    handout = Handout.read(assignment)
    notes_file = FOLDER / f"{assignment}.json"
    notes = _read_notes(notes_file, assignment)
    room = FOLDER.absolute() / "unpacked" / assignment
    known = {note["id"]: student for student, note in notes.items()}
    listed = nbgrading.listed_students()
    by_student = collect(handed_in.absolute(), handout.released, room, known, listed)
    _require_origin(by_student, assignment, handed_in)
    new = _new(by_student, handout, notes)
    told_new = f"Submissions: {len(by_student)}, new: {len(new)}"
    if new:
        told_new += ". What is new is executed, which takes as long as its cells"
    print(told_new, flush=True)
    pool = ThreadPoolExecutor(jobs)
    try:
        running = {
            pool.submit(_execute, student, prepared, handout, is_sandboxed): student
            for student, prepared in new.items()
        }
        for number, future in enumerate(as_completed(running), start=1):
            student = running[future]
            executed = _recorded(student, future.result(), handout)
            submission = by_student[student]
            num_attempts = _num_attempts(submission, notes.get(student))
            said = [f"the newest of {num_attempts} attempts"] if num_attempts > 1 else []
            notes[student] = {
                "name": submission.entry.name,
                "id": submission.entry.id,
                "given": submission.entry.given,
                "when": submission.when,
                "attempts": num_attempts,
                "digest": new[student].digest,
                "handout": handout.digest,
                "remarks": [*executed.remarks, *said],
                "errors": executed.errors,
                "executed": executed.nb is not None,
            }
            write_atomically(notes_file, json.dumps(notes))
            told = all_remarks(notes[student])
            print(f"{number}/{len(new)} {student}", *told, sep="; ", flush=True)
    finally:  # Ctrl-C included
        pool.shutdown(cancel_futures=True)
    print(f"{len(new)} graded now, {len(notes) - len(new)} before; the tables have all", flush=True)
    return _write_all(handout, notes, notes_file)


def refresh(name: str) -> Path:
    """Make tables and pages anew, with what a person has graded, and return the path of the scores."""
    assignment = papers.path(name).stem
    handout = Handout.read(assignment)
    notes_file = FOLDER / f"{assignment}.json"
    notes = _read_notes(notes_file, assignment)
    if not notes:
        raise CourseError(
            f"No submission of {assignment} has been graded yet: name a folder or a zip of them, "
            f"`fednb course grade {assignment} FOLDER`."
        )
    return _write_all(handout, notes, notes_file)


def _num_attempts(submission: Submission, before: dict[str, Any] | None) -> int:
    """Return how many attempts of a student were graded, with this one."""
    if before is None:
        return 1
    is_newer = submission.when > tuple(before["when"])
    return int(before.get("attempts", 1)) + is_newer


def _write_all(handout: Handout, notes: dict[str, Any], notes_file: Path) -> Path:
    """Write tables and pages, and name those who were graded with another hand-out."""
    others = [student for student, note in notes.items() if note["handout"] != handout.digest]
    if others:
        changed = f"Graded with another hand-out, seed or time limit: {', '.join(others)}."
        print(f"{changed} Grade their files again, too", flush=True)
    path = write_tables(handout.assignment, handout.released, notes)
    write_atomically(notes_file, json.dumps(notes))
    return path


def _new(
    by_student: dict[str, Submission], handout: Handout, notes: dict[str, Any]
) -> dict[str, Prepared]:
    """Return what was not graded yet, and is no older than what was."""
    new = {}
    for student, submission in by_student.items():
        before = notes.get(student, {"when": (0, 0), "digest": ""})
        if submission.when < tuple(before["when"]):
            print(f"{student}: graded before is a newer attempt, which counts", flush=True)
            continue
        prepared = prepare(submission, handout)
        if prepared.digest != before["digest"]:
            new[student] = prepared
    return new


def _read_notes(file: Path, assignment: str) -> dict[str, Any]:
    """Return what is known of those who were graded, and are in the gradebook still."""
    if not file.exists():
        return {}
    notes = json.loads(file.read_text(encoding="utf-8"))
    graded = nbgrading.grades(assignment)
    return {
        student: note for student, note in notes.items() if student in graded and "errors" in note
    }


def _require_origin(by_student: dict[str, Submission], assignment: str, handed_in: Path) -> None:
    """Raise a `CourseError` if most submissions are another assignment's."""
    origins = Counter(submission.origin for submission in by_student.values())
    likely, number = origins.most_common(1)[0]
    if likely not in ("", assignment) and 2 * number > len(by_student):
        raise CourseError(
            f"{number} of {len(by_student)} submissions are the hand-out of {likely}, not of "
            f"{assignment}: did you mean `fednb course grade {likely} {handed_in}`?"
        )


def prepare(submission: Submission, handout: Handout) -> Prepared:
    """Merge a submission into the hand-out, whatever it holds."""
    remarks = list(submission.remarks)
    nb = None
    if submission.nb is not None:
        try:
            nb, said = merged(submission.nb, handout.released)
            remarks += said
        except Exception as error:  # a file of a form that nobody has thought of
            remarks.append(f"it cannot be graded ({type(error).__name__}: {error})")
    remarks = [remark(text) for text in dict.fromkeys(remarks)]
    files = submission.helpers | handout.files
    decides = [handout.digest, remarks, _sources(nb or handout.released)]
    return Prepared(nb, files, remarks, _digest(decides, submission.helpers))


def _sources(nb: NotebookNode) -> list[str]:
    return [cell.source for cell in nb.cells]


def _digest(values: list[Any], files: dict[str, Path]) -> str:
    digests = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()}
    return hashlib.sha256(json.dumps([values, digests]).encode()).hexdigest()


def _execute(student: str, prepared: Prepared, handout: Handout, is_sandboxed: bool) -> Executed:
    """Execute a submission, whatever happens."""
    nb, files, remarks, _ = prepared
    if nb is None:
        return Executed(None, remarks, {})
    seed = zlib.crc32(f"{handout.seed} {student}".encode())
    try:
        sandbox.execute(nb, files, handout.limits, student_seed=seed, is_sandboxed=is_sandboxed)
    except Exception as error:
        said = remark(f"executing it failed ({error}), so it scores zero")
        return Executed(None, [*remarks, said], {})
    errors = {name: remark(error) for name, error in errors_by_cell(nb).items()}
    graded = [grade_id(cell) for cell in nb.cells if marks_of(cell).get("grade")]
    if all(errors.get(name) in (NOT_DONE, NO_ANSWER) for name in graded):
        remarks = [*remarks, NOTHING]
    for cell in nb.cells:
        ended = first_error(cell)
        if not grade_id(cell) and ended.startswith(ENDED):
            remarks = [*remarks, remark(f"a cell of the student's own: {ended}")]
    return Executed(nb, remarks, errors)


def _recorded(student: str, executed: Executed, handout: Handout) -> Executed:
    """Have nbgrader take what was executed, or else the untouched hand-out with no points."""
    if executed.nb is not None:
        try:
            _take(student, executed.nb, handout.assignment)
            return executed
        except Exception as error:
            said = remark(f"nbgrader cannot take it ({type(error).__name__}: {error})")
            executed = Executed(None, [*executed.remarks, said], {})
    nb = deepcopy(handout.released)
    for cell in nb.cells:
        if is_check(cell):
            cell.outputs = [new_output("error", ename=NOT_COUNTED, evalue="not graded")]
    _take(student, nb, handout.assignment)
    return executed


def _take(student: str, nb: NotebookNode, assignment: str) -> None:
    path = notebook_path("submitted", assignment, student)
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, path)
    nbgrader_step("autograde", assignment, student)
