"""Grading by nbgrader: whatever is handed in is executed in the sandbox, and gets points.

A submission can spoil its own row of the table and no other: whatever goes wrong with it ends in
its remarks.
"""

import hashlib
import html
import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pandas as pd
from nbformat import NotebookNode
from nbformat.v4 import new_output
from tqdm import tqdm

from fednb import papers
from fednb.errors import CourseError
from fednb.records import write_atomically
from fednb_lab.course import kernel, sandbox
from fednb_lab.course.assignment import (
    LARGEST,
    NOT_COUNTED,
    errors_by_cell,
    first_error,
    grade_id,
    is_check,
    is_of_handout,
    marks_of,
    plain,
    read_notebook,
)
from fednb_lab.course.executor import Limits
from fednb_lab.course.handout import release
from fednb_lab.course.kernel import FOLDER, gradebook_entry, nbgrader_step, notebook_path
from fednb_lab.course.submissions import Submission, litter, merged_into_handout, submissions

# Times the time for a cell. What fails by itself, or as the machine is slow, gets a second try.
PATIENCE = (1, 3)
NO_PAGE = "there is no page of feedback"
LOST = ("CellTimeoutError", "DeadKernelError", "NotExecuted")


class Handout(NamedTuple):
    """What all submissions are merged into.

    It is read once, and its folder has a full path: nbgrader goes from folder to folder while other
    threads work.
    """

    folder: str
    released: NotebookNode
    checks: dict[str, str]  # by grade id, hidden tests included, and all else that is locked

    @classmethod
    def read(cls, assignment: str) -> "Handout":
        """The hand-out in the course folder."""
        path = notebook_path("release", assignment)
        source = read_notebook(notebook_path("source", assignment))
        locked = [cell for cell in source.cells if marks_of(cell).get("locked")]
        checks = {grade_id(cell): cell.source for cell in locked}
        return cls(str(path.parent), read_notebook(path), checks)

    def with_checks(self, merged: NotebookNode) -> NotebookNode:
        """A merged submission in which what students do not write is as nbgrader has it."""
        for cell in merged.cells:
            if marks_of(cell).get("locked"):
                cell.source = self.checks[grade_id(cell)]
        return merged


class Executed(NamedTuple):
    """A submission in the hand-out, after the sandbox."""

    nb: NotebookNode | None  # with outputs; None if nothing could be executed
    remarks: list[str]
    is_final: bool = True  # False if the same may end in another way when it is called again


class Outcome(NamedTuple):
    """What became of a submission."""

    is_graded: bool
    remarks: list[str]


def grade(name: str, handed_in: Path, *, jobs: int = 1) -> tuple[Path, pd.DataFrame]:
    """Grade what is new in a folder of submissions; the file of the table of all, and the table.

    So many ``jobs`` are executed at once. Beside the table lies one for a learning-management
    system, ``ASSIGNMENT-points.csv``.
    """
    assignment = papers.path(name).stem
    folder = FOLDER.absolute()
    by_student = submissions(handed_in.absolute(), f"{assignment}.ipynb")
    left_out = litter(handed_in)
    if left_out:
        print(f"Nobody's, and left out: {', '.join(left_out)}", flush=True)
    is_released = notebook_path("release", assignment).exists()
    if not is_released or not (folder / "gradebook.db").exists():
        release(assignment)
    if not sandbox.is_available():
        print(
            "There are no namespaces here: what is executed can read and write all that you can.",
            flush=True,
        )
    notes_file = folder / f"{assignment}.json"
    notes = _grade_new(assignment, by_student, notes_file, jobs)
    rows = []
    changed = []
    for student, submission in by_student.items():
        row, is_as_noted = _row(assignment, student, notes[student])
        rows.append({"student": student, "name": submission.name, "id": submission.id, **row})
        if not is_as_noted:
            changed.append(student)
    if changed:
        raise CourseError(
            f"The gradebook has other points than were made for {', '.join(changed)}: put back "
            f"your copy of it, or delete {notes_file}, and all are graded anew."
        )
    table = pd.DataFrame(rows)
    path = folder / f"{assignment}.csv"
    _write(table.drop(columns=["name", "id"]), path)
    columns = {"name": "name", "id": "id", "score": "points", "remarks": "remark"}
    points = table[list(columns)].rename(columns=columns)
    _write(points, folder / f"{assignment}-points.csv")
    return path, table


def _row(assignment: str, student: str, note: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Scores, points and remarks of a student; False if the gradebook has other points."""
    scores: dict[str, Any] = {"score": None}
    points: dict[str, Any] = {}
    with suppress(Exception):  # nbgrader has never heard of the student
        scores, points = gradebook_entry(assignment, student)
    row = scores | points
    if not note["points"]:
        row = dict.fromkeys(row)
    is_as_noted = not note["points"] or note["points"] == points
    return row | {"remarks": note["remarks"]}, is_as_noted


def _write(table: pd.DataFrame, path: Path) -> None:
    """Write a table in which a spreadsheet finds no formula."""

    def as_text(value: Any) -> Any:
        is_formula = isinstance(value, str) and value[:1] in tuple("=+-@\t\r")
        return f"'{value}" if is_formula else value

    write_atomically(path, table.map(as_text).to_csv(index=False))


def _grade_new(
    assignment: str, by_student: Mapping[str, Submission], notes_file: Path, jobs: int
) -> dict[str, Any]:
    """Grade each submission that is not graded, or was by other rules.

    Returns, and keeps in a file, by student what was graded (``digest``, null if it has to be
    graded again), the ``points`` that it got by check, and ``remarks``.
    """
    notes = json.loads(notes_file.read_text(encoding="utf-8")) if notes_file.exists() else {}
    rules = (FOLDER / "nbgrader_config.py").read_bytes()
    rules += notebook_path("source", assignment).read_bytes()
    digests = {}
    for student, submission in by_student.items():
        digest = hashlib.sha256(rules + _content(submission)).hexdigest()
        if notes.get(student, {}).get("digest") != digest:
            digests[student] = digest
    new = {student: by_student[student] for student in digests}
    begin = time.monotonic()
    for number, (student, executed) in enumerate(_executed(new, assignment, jobs), 1):
        outcome = record(student, executed, assignment)
        notes[student] = _note(assignment, student, outcome, digests[student])
        write_atomically(notes_file, json.dumps(notes))
        left = (time.monotonic() - begin) / number * (len(new) - number)
        count = f"{number}/{len(new)} ({tqdm.format_interval(int(left))} left) {student}"
        print(count, *outcome.remarks, sep="; ", flush=True)
    return notes


def _note(assignment: str, student: str, outcome: Outcome, digest: str) -> dict[str, Any]:
    remarks = "; ".join(outcome.remarks)
    if not outcome.is_graded:
        return {"digest": None, "points": None, "remarks": remarks}
    _, points = gradebook_entry(assignment, student)
    return {"digest": digest, "points": points, "remarks": remarks}


def _content(submission: Submission) -> bytes:
    """What decides about the points, as far as it can be read."""
    if submission.file is None:
        return repr(submission.remarks).encode()
    try:
        with submission.file.open("rb") as opened:
            return opened.read(LARGEST + 1)
    except OSError as error:
        return repr(error).encode()


# --- executing


def _executed(
    new: Mapping[str, Submission], assignment: str, jobs: int
) -> Iterator[tuple[str, Executed]]:
    """Students and what the sandbox made of their submissions, as it gets ready."""
    handout = Handout.read(assignment)
    limits, seed = kernel.execution_limits()
    pool = ThreadPoolExecutor(jobs)
    sandbox.ALL_ENDED.clear()
    try:
        futures: dict[Future[Executed], str] = {}
        for student, submission in new.items():
            number = sandbox.number_of(student, seed)
            future = pool.submit(execute, submission, handout, number, limits)
            futures[future] = student
        for future in as_completed(list(futures)):
            yield futures.pop(future), future.result()
    finally:  # Ctrl-C included
        sandbox.ALL_ENDED.set()
        pool.shutdown(cancel_futures=True)


def execute(
    submission: Submission, handout: Handout, student_seed: int, limits: Limits
) -> Executed:
    """Execute a submission in the hand-out, whatever it holds.

    It is tried again with more time if the sandbox fails or a cell of the hand-out itself takes too
    long; not if a limit of the sandbox ended it.
    """
    remarks = [remark(text) for text in submission.remarks]
    if submission.file is None:
        return Executed(None, remarks)
    try:
        nb = handout.with_checks(merged_into_handout(submission.file, deepcopy(handout.released)))
    except Exception as error:
        return Executed(None, [*remarks, _reason("it cannot be graded", error)])
    failure = ""
    for patience in PATIENCE:
        longer = limits._replace(cell=limits.cell * patience)
        try:
            outputs = sandbox.execute(nb, handout.folder, student_seed, longer)
            executed = _with_outputs(nb, outputs)
        except Exception as error:
            failure = _reason("executing it failed", error)
            if kernel.STOPPED in str(error):
                break
            continue
        failure = _failure_of_handout(executed)
        if not failure:
            return Executed(executed, [*remarks, *_what_went_wrong(executed)])
    if failure.startswith("no points yet"):
        return Executed(executed, [*remarks, failure], is_final=False)
    return Executed(None, [*remarks, f"{failure}, so it scores zero"])


def _with_outputs(nb: NotebookNode, outputs: list[Any]) -> NotebookNode:
    """A copy with these outputs, which come from the sandbox and are checked for their form."""
    executed = deepcopy(nb)
    text = plain(json.dumps(outputs, ensure_ascii=False))
    for cell, new in zip(executed.cells, json.loads(text), strict=True):
        if cell.cell_type == "code":
            cell.outputs = [_checked(output) for output in new]
    return executed


def _checked(output: dict[str, Any]) -> NotebookNode:
    """An output of the form that it should have, or an error."""
    try:
        return new_output(**output)
    except Exception:
        return new_output("error", ename="OutputError", evalue="an output has a wrong form")


def _failure_of_handout(nb: NotebookNode) -> str:
    """Why there are no points if a cell of the hand-out itself was not executed, and else ""."""
    for cell in nb.cells:
        if is_of_handout(cell) and first_error(cell).startswith(LOST):
            return (
                f"no points yet, as the hand-out's own {grade_id(cell)} took too long or ended the "
                "kernel: call the same command again"
            )
    return ""


def _what_went_wrong(nb: NotebookNode) -> list[str]:
    """A remark for each check that failed, and for own cells that were ended."""
    remarks = [f"{name}: {error}" for name, error in errors_by_cell(nb).items()]
    for cell in nb.cells:
        error = first_error(cell)
        if not grade_id(cell) and error.startswith(LOST):
            remarks.append(f"a cell of the student's own: {error}")
    return [remark(text) for text in remarks]


def remark(text: str) -> str:
    """A remark as it stands in a table: one line of characters that can be printed."""
    printable = [letter if letter.isprintable() else " " for letter in plain(text)]
    return "".join(printable).strip().rstrip(".")[:400]


def _reason(what: str, error: Exception) -> str:
    if isinstance(error, CourseError):
        return remark(str(error))
    text = str(error).partition("\n")[0][:200]
    if not isinstance(error, RuntimeError):
        text = f"{type(error).__name__}: {text}"
    return remark(f"{what} ({text})")


# --- recording


def record(student: str, executed: Executed, assignment: str) -> Outcome:
    """Have nbgrader take the outputs of an execution, and make the page of feedback.

    What nbgrader cannot take is left out: first all outputs but errors, then the submission.
    """
    remarks = list(executed.remarks)
    if executed.nb is not None:
        for nb in (executed.nb, _only_errors(executed.nb)):
            failure = _recorded(student, nb, assignment)
            if not failure:
                return Outcome(executed.is_final, remarks)
        remarks.append(failure)
        if failure.startswith(NO_PAGE):
            return Outcome(executed.is_final, remarks)
    failure = _recorded(student, _not_graded(assignment, remarks), assignment)
    if failure and not failure.startswith(NO_PAGE):
        return Outcome(False, [*remarks, f"no points yet, as {failure}: call the command again"])
    return Outcome(executed.is_final, remarks)


def _recorded(student: str, nb: NotebookNode, assignment: str) -> str:
    """Have nbgrader take a notebook with its outputs; why it cannot, or ""."""
    submitted = notebook_path("submitted", assignment, student)
    executed = {
        "sources": [cell.source for cell in nb.cells],
        "outputs": [cell.get("outputs") for cell in nb.cells],
    }
    failure = "nbgrader cannot take it"
    try:
        submitted.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(nb, submitted)
        nbgrader_step("autograde", assignment, student, executed=executed)
        failure = NO_PAGE
        nbgrader_step("generate_feedback", assignment, student)
    except Exception as error:
        return remark(f"{failure} ({type(error).__name__}: {error})")
    return ""


def _only_errors(nb: NotebookNode) -> NotebookNode:
    """A copy of an executed notebook without what was printed and drawn."""
    bare = deepcopy(nb)
    for cell in bare.cells:
        if cell.cell_type == "code":
            errors = [output for output in cell.outputs if output.output_type == "error"]
            cell.outputs = [new_output("error", ename=e.ename, evalue=e.evalue) for e in errors]
    return bare


def _not_graded(assignment: str, remarks: list[str]) -> NotebookNode:
    """The untouched hand-out, as if executed, whose page says why nothing was graded."""
    handout = Handout.read(assignment)
    nb = handout.with_checks(handout.released)
    nb.cells[0].source = f"> **Not graded.** {html.escape('; '.join(remarks))}."
    for cell in nb.cells:
        if is_check(cell):
            cell.outputs = [new_output("error", ename=NOT_COUNTED, evalue="not graded")]
    return nb
