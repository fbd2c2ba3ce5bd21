"""Grading what was handed in: merged into the hand-out, executed in the sandbox, by nbgrader.

`Handout` and `grade` are the way through; tables and pages are written by `tables`.
"""

import hashlib
import json
import zlib
from collections import Counter
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
from fednb_lab.course.inside import Limits
from fednb_lab.course.merging import changed, merged
from fednb_lab.course.nbgrading import FOLDER, nbgrader_step, notebook_path
from fednb_lab.course.notebooks import (
    LATE,
    NO_ANSWER,
    NOT_COUNTED,
    NOT_DONE,
    NOTHING,
    errors_by_cell,
    files_of,
    first_error,
    grade_id,
    handout_of,
    is_check,
    marks_of,
    read_notebook,
    remark,
    title_of,
)
from fednb_lab.course.tables import all_remarks, write_tables

# What ends a student's own cell for good: any other error there costs nothing.
ENDED = {LATE, "DeadKernelError", "NotExecuted"}


class Handout(NamedTuple):
    """What all submissions are merged into, and what else decides about their points."""

    assignment: str
    released: NotebookNode  # with the hidden tests, and without solutions
    files: dict[str, Path]  # that lie beside it, by name
    limits: Limits
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
        limits = Limits(own.cell_seconds, own.seconds)
        decides = [limits, own.seed, [cell.source for cell in released.cells]]
        digest = _digest(decides, files)
        notes_file = FOLDER / f"{assignment}.json"
        return cls(assignment, released, files, limits, own.seed, digest, notes_file)


class Work(NamedTuple):
    """A submission in the hand-out, executed or not."""

    nb: NotebookNode | None  # None if it cannot be graded
    files: dict[str, Path]  # that lie beside it
    remarks: list[str]
    digest: str  # of all that decides about the points
    errors: dict[str, str]  # by grade id
    is_late: bool = False  # a cell was ended as it took too long

    def refused(self, reason: str) -> "Work":
        """Return it without its notebook, so that it scores zero, and say why."""
        return self._replace(nb=None, remarks=[*self.remarks, remark(reason)], errors={})


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
    listed = nbgrading.listed_students()
    by_student = collect(handed_in.absolute(), handout.released, room, known, listed)
    _require_origin(by_student, handout.assignment, handed_in)
    new = _new(by_student, handout, notes)
    print(
        f"Submissions: {len(by_student)}, executed are those that are new: {len(new)}", flush=True
    )
    late = []
    with closing(_executed(new, handout, jobs, is_sandboxed)) as results:
        for number, (student, executed) in enumerate(results, start=1):
            late += [student] * executed.is_late
            work = _recorded(student, executed, handout)
            submission = by_student[student]
            before = notes.get(student, {"attempts": 0, "when": (0, 0)})
            num_attempts = before.get("attempts", 1) + (submission.when > tuple(before["when"]))
            said = [f"the newest of {num_attempts} attempts"] if num_attempts > 1 else []
            notes[student] = {
                "name": submission.entry.name,
                "id": submission.entry.id,
                "given": submission.entry.given,
                "when": submission.when,
                "attempts": num_attempts,
                "digest": work.digest,
                "handout": handout.digest,
                "remarks": [*work.remarks, *said],
                "errors": work.errors,
                "executed": work.nb is not None,
            }
            write_atomically(handout.notes_file, json.dumps(notes))
            told = all_remarks(notes[student])
            print(f"{number}/{len(new)} {student}", *told, sep="; ", flush=True)
    print(f"{len(new)} graded now, {len(notes) - len(new)} before; the tables have all", flush=True)
    path = _write_all(handout, notes)
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
    return _write_all(handout, notes)


def _write_all(handout: Handout, notes: dict[str, Any]) -> Path:
    """Write tables and pages, and name those who were graded with another hand-out."""
    others = [student for student, note in notes.items() if note["handout"] != handout.digest]
    if others:
        changed = f"Graded with another hand-out, seed or time limit: {', '.join(others)}."
        print(f"{changed} Grade their files again, too", flush=True)
    return write_tables(handout.assignment, handout.released, notes)


def _new(
    by_student: dict[str, Submission], handout: Handout, notes: dict[str, Any]
) -> dict[str, Work]:
    """Return what was not graded yet, and is no older than what was."""
    new = {}
    for student, submission in by_student.items():
        before = notes.get(student, {"when": (0, 0), "digest": ""})
        if submission.when < tuple(before["when"]):
            print(f"{student}: graded before is a newer attempt, which counts", flush=True)
            continue
        work = prepare(submission, handout)
        if work.digest != before["digest"]:
            new[student] = work
    return new


def _read_notes(handout: Handout) -> dict[str, Any]:
    """Return what is known of those who were graded, and are in the gradebook still."""
    if not handout.notes_file.exists():
        return {}
    graded = nbgrading.grades(handout.assignment)
    notes = json.loads(handout.notes_file.read_text(encoding="utf-8"))
    return {one: note for one, note in notes.items() if one in graded and "errors" in note}


def _require_origin(by_student: dict[str, Submission], assignment: str, handed_in: Path) -> None:
    """Raise a `CourseError` if most submissions are another assignment's."""
    origins = Counter(submission.origin for submission in by_student.values())
    likely, number = origins.most_common(1)[0]
    if likely not in ("", assignment) and 2 * number > len(by_student):
        raise CourseError(
            f"{number} of {len(by_student)} submissions are the hand-out of {likely}, not of "
            f"{assignment}: did you mean `fednb course grade {likely} {handed_in}`?"
        )


def prepare(submission: Submission, handout: Handout) -> Work:
    """Merge a submission into the hand-out, whatever it holds."""
    remarks = list(submission.remarks)
    nb = None
    if submission.nb is not None:
        try:
            nb, said = merged(submission.nb, handout.released)
            remarks += said + _put_back(submission.nb)
        except Exception as error:  # a file of a form that nobody has thought of
            remarks.append(f"it cannot be graded ({type(error).__name__}: {error})")
    remarks = [remark(text) for text in dict.fromkeys(remarks)]
    files = submission.helpers | handout.files
    sources = [cell.source for cell in (nb or handout.released).cells]
    return Work(
        nb, files, remarks, _digest([handout.digest, remarks, sources], submission.helpers), {}
    )


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
    new: dict[str, Work], handout: Handout, jobs: int, is_sandboxed: bool
) -> Generator[tuple[str, Work], None, None]:
    """Yield work as it is executed; what ran out of time beside others is executed again, alone."""
    late = []
    pool = ThreadPoolExecutor(jobs)
    try:
        running = {
            pool.submit(_execute, student, work, handout, is_sandboxed): student
            for student, work in new.items()
        }
        for future in as_completed(running):
            student, work = running[future], future.result()
            if work.is_late and jobs > 1:
                late.append(student)
            else:
                yield student, work
    finally:  # Ctrl-C included
        pool.shutdown(cancel_futures=True)
    for student in late:
        yield student, _execute(student, new[student], handout, is_sandboxed)


def _execute(student: str, work: Work, handout: Handout, is_sandboxed: bool) -> Work:
    """Execute a submission, whatever happens."""
    nb, files, remarks, *_ = work
    if nb is None:
        return work
    seed = zlib.crc32(f"{handout.seed} {student}".encode())
    try:
        sandbox.execute(nb, files, handout.limits, student_seed=seed, is_sandboxed=is_sandboxed)
    except Exception as error:
        return work.refused(f"executing it failed ({error}), so it scores zero")
    errors = {name: remark(error) for name, error in errors_by_cell(nb).items()}
    graded = [grade_id(cell) for cell in nb.cells if marks_of(cell).get("grade")]
    if all(errors.get(name) in (NOT_DONE, NO_ANSWER) for name in graded):
        remarks = [*remarks, NOTHING]
    is_late = False
    for cell in nb.cells:
        names = {output.get("ename") for output in cell.get("outputs", [])}
        is_late |= LATE in names
        if not grade_id(cell) and names & ENDED:
            remarks = [*remarks, remark(f"a cell of the student's own: {first_error(cell)}")]
    return work._replace(remarks=remarks, errors=errors, is_late=is_late)


def _recorded(student: str, work: Work, handout: Handout) -> Work:
    """Have nbgrader take what was executed, or else the untouched hand-out with no points."""
    if work.nb is not None:
        try:
            _take(student, work.nb, handout.assignment)
            return work
        except Exception as error:
            work = work.refused(f"nbgrader cannot take it ({type(error).__name__}: {error})")
    nb = deepcopy(handout.released)
    for cell in nb.cells:
        if is_check(cell):
            cell.outputs = [new_output("error", ename=NOT_COUNTED, evalue="not graded")]
    _take(student, nb, handout.assignment)
    return work


def _take(student: str, nb: NotebookNode, assignment: str) -> None:
    path = notebook_path("submitted", assignment, student)
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, path)
    nbgrader_step("autograde", assignment, student)
