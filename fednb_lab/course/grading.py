"""Grading what was handed in: merged into the hand-out, executed in the sandbox, by nbgrader.

`Handout` and `grade` are the way through; tables and pages are written by `nbgrading`.
"""

import hashlib
import json
import zlib
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
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
from fednb_lab.course.nbgrading import (
    FOLDER,
    all_remarks,
    nbgrader_step,
    notebook_path,
    page_path,
    write_tables,
)
from fednb_lab.course.notebooks import (
    LATE,
    NOT_COUNTED,
    changed,
    errors_by_cell,
    files_of,
    first_error,
    grade_id,
    handout_of,
    is_check,
    marks_of,
    merged,
    read_notebook,
    remark,
    title_of,
)


class Handout(NamedTuple):
    """What all submissions are merged into, and what else decides about their points."""

    assignment: str
    released: NotebookNode  # with the hidden tests, and without solutions
    files: dict[str, Path]  # that lie beside it, by name
    limits: sandbox.Limits
    seed: str
    digest: str  # of all of it
    notes_file: Path  # of what is known of each submission

    @classmethod
    def read(cls, name: str) -> "Handout":
        """Read a notebook's hand-out in the course folder; a `CourseError` if there is none."""
        assignment = papers.path(name).stem
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
        own = nbgrading.settings()
        limits = sandbox.Limits(own.cell_seconds, own.seconds)
        decides = [limits, own.seed, [cell.source for cell in released.cells]]
        digest = _digest(decides, files)
        notes_file = FOLDER / f"{assignment}.json"
        return cls(assignment, released, files, limits, own.seed, digest, notes_file)


def grade(name: str, handed_in: Path, *, jobs: int = 1, is_sandboxed: bool = True) -> Path:
    """Grade what is new in a folder or zip of submissions, and return the path of the scores.

    So many ``jobs`` are executed at once. The tables have everybody who was ever graded in this
    course folder, with the newest attempt.
    """
    if is_sandboxed and sandbox.missing():
        raise CourseError(sandbox.missing())
    handout = Handout.read(name)
    notes = _read_notes(handout)
    room = FOLDER.absolute() / "unpacked" / handout.assignment
    known = {note["id"]: student for student, note in notes.items()}
    by_student = collect(handed_in.absolute(), handout.released, room, known)
    _require_origin(by_student, handout.assignment)
    new = {
        student: submission
        for student, submission in by_student.items()
        if _is_new(student, submission, handout, notes)
    }
    print(
        f"Submissions: {len(by_student)}, executed are those that are new: {len(new)}", flush=True
    )
    with closing(_executed(new, handout, jobs, is_sandboxed)) as executed:
        for number, student in enumerate(executed, start=1):
            notes[student] = _recorded(student, new[student], handout)
            write_atomically(handout.notes_file, json.dumps(notes))
            told = all_remarks(notes[student])
            print(f"{number}/{len(new)} {student}", *told, sep="; ", flush=True)
    print(f"{len(new)} graded now, {len(notes) - len(new)} before; the tables have all", flush=True)
    path = _write_all(handout, notes)
    late = [student for student, submission in new.items() if submission.is_late]
    if late:
        way_out = f"raise cell_seconds in {FOLDER}/nbgrader_config.py, and grade again"
        print(f"Out of time: {', '.join(late)}. Was this machine busy? Then {way_out}", flush=True)
    return path


def refresh(name: str) -> Path:
    """Make tables and pages anew, with what a person has graded, and return the path of the scores."""
    handout = Handout.read(name)
    notes = _read_notes(handout)
    if not notes:
        raise CourseError(
            f"No submission of {handout.assignment} has been graded yet: name a folder or a zip of "
            f"them, `fednb course grade {handout.assignment} FOLDER`."
        )
    for student in notes:
        page_path(handout.assignment, student).unlink(missing_ok=True)
    return _write_all(handout, notes)


def _write_all(handout: Handout, notes: dict[str, Any]) -> Path:
    """Write tables and pages that are missing, and name those who were graded with another hand-out."""
    others = [student for student, note in notes.items() if note["handout"] != handout.digest]
    if others:
        changed = f"Graded with another hand-out, seed or time limit: {', '.join(others)}."
        print(f"{changed} Grade their files again, too", flush=True)
    return write_tables(handout.assignment, handout.released, notes)


def _read_notes(handout: Handout) -> dict[str, Any]:
    """Return what is known of those who were graded, and are in the gradebook still."""
    if not handout.notes_file.exists():
        return {}
    graded = set(nbgrading.grades(handout.assignment)["student"])
    notes = json.loads(handout.notes_file.read_text(encoding="utf-8"))
    return {one: note for one, note in notes.items() if one in graded}


def _require_origin(by_student: dict[str, Submission], assignment: str) -> None:
    """Raise a `CourseError` if most submissions are another assignment's."""
    others = [one.origin for one in by_student.values() if one.origin not in ("", assignment)]
    if 2 * len(others) > len(by_student):
        raise CourseError(
            f"{len(others)} of {len(by_student)} submissions are no hand-outs of {assignment}: "
            f"were they of {others[0]}? Nothing was graded."
        )


def _is_new(student: str, submission: Submission, handout: Handout, notes: dict[str, Any]) -> bool:
    """Merge a submission into the hand-out, whatever it holds, if it is no older than what was graded.

    Tell whether it is another than that.
    """
    before = notes.get(student, {"when": (0, 0), "digest": ""})
    if submission.when < tuple(before["when"]):
        print(f"{student}: graded before is a newer attempt, which counts", flush=True)
        return False
    if submission.nb is not None:
        own = submission.nb
        try:
            submission.nb, said = merged(own, handout.released)
            submission.remarks += said + _put_back(own)
        except Exception as error:  # a file of a form that nobody has thought of
            _refuse(submission, f"it cannot be graded ({type(error).__name__}: {error})")
    submission.remarks = [remark(text) for text in dict.fromkeys(submission.remarks)]
    sources = [cell.source for cell in (submission.nb or handout.released).cells]
    decides = [handout.digest, submission.remarks, sources]
    submission.digest = _digest(decides, submission.files)
    return submission.digest != before["digest"]


def _refuse(submission: Submission, reason: str) -> None:
    """Take a submission's notebook away, so that it scores zero, and say why."""
    submission.nb = None
    submission.errors = {}
    submission.remarks.append(remark(reason))


def _put_back(nb: NotebookNode) -> list[str]:
    """Return a remark on checks that are not as this student got them."""
    handout = handout_of(nb)
    problems = changed(nb, handout)
    checks = [grade_id(cell) for cell in handout.cells if is_check(cell)]
    names = [title_of(name) for name in checks if name in problems]
    return [f"missing or changed, and put back: {', '.join(names)}"] if names else []


def _digest(values: list[Any], files: dict[str, Path]) -> str:
    digests = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()}
    return hashlib.sha256(json.dumps([values, digests]).encode()).hexdigest()


def _executed(
    new: dict[str, Submission], handout: Handout, jobs: int, is_sandboxed: bool
) -> Generator[str, None, None]:
    """Yield students as theirs is executed; what ran out of time beside others is again, alone."""
    late = []
    pool = ThreadPoolExecutor(jobs)
    try:
        running = {
            pool.submit(_execute, student, submission, handout, is_sandboxed): student
            for student, submission in new.items()
        }
        for future in as_completed(running):
            future.result()
            student = running[future]
            if new[student].is_late and jobs > 1:
                late.append(student)
            else:
                yield student
    finally:  # Ctrl-C included
        pool.shutdown(cancel_futures=True)
    for student in late:
        _execute(student, new[student], handout, is_sandboxed)
        yield student


def _execute(student: str, submission: Submission, handout: Handout, is_sandboxed: bool) -> None:
    """Execute a submission, whatever happens, and note what went wrong in it."""
    nb = submission.nb
    if nb is None:
        return
    files = submission.files | handout.files
    seed = zlib.crc32(f"{handout.seed} {student}".encode())
    try:
        sandbox.execute(nb, files, handout.limits, student_seed=seed, is_sandboxed=is_sandboxed)
    except Exception as error:
        _refuse(submission, f"executing it failed ({error}), so it scores zero")
        return
    submission.errors = {name: remark(error) for name, error in errors_by_cell(nb).items()}
    submission.is_late = any(first_error(cell).startswith(LATE) for cell in nb.cells)


def _recorded(student: str, submission: Submission, handout: Handout) -> dict[str, Any]:
    """Have nbgrader take what was executed, or else the untouched hand-out with no points.

    Returns what is to be known of it.
    """
    if submission.nb is not None:
        try:
            _take(student, submission.nb, handout.assignment)
        except Exception as error:
            _refuse(submission, f"nbgrader cannot take it ({type(error).__name__}: {error})")
    if submission.nb is None:
        nb = deepcopy(handout.released)
        for cell in filter(is_check, nb.cells):
            cell.outputs = [new_output("error", ename=NOT_COUNTED, evalue="not graded")]
        _take(student, nb, handout.assignment)
    return {
        "name": submission.entry.name,
        "id": submission.entry.id,
        "given": submission.entry.given,
        "when": submission.when,
        "digest": submission.digest,
        "handout": handout.digest,
        "remarks": submission.remarks,
        "errors": submission.errors,
        "executed": submission.nb is not None,
    }


def _take(student: str, nb: NotebookNode, assignment: str) -> None:
    path = notebook_path("submitted", assignment, student)
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, path)
    page_path(assignment, student).unlink(missing_ok=True)
    nbgrader_step("autograde", assignment, student)
