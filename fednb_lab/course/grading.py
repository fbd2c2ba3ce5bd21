"""Grading what was handed in: merged into the hand-out, executed in the sandbox, by nbgrader."""

import hashlib
import html
import json
import re
import time
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
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
from fednb_lab.course import nbgrading, sandbox
from fednb_lab.course.collect import Submission, collect, require_assignment
from fednb_lab.course.handout import release
from fednb_lab.course.inside import Limits
from fednb_lab.course.merging import merged
from fednb_lab.course.nbgrading import FOLDER, nbgrader_step, notebook_path
from fednb_lab.course.notebooks import (
    NOT_COUNTED,
    errors_by_cell,
    first_error,
    grade_id,
    is_check,
    is_of_handout,
    marks_of,
    plain,
    read_notebook,
    remark,
)
from fednb_lab.words import in_csv

# A link on top of a feedback page, to a graded cell or to a person's comment on it.
LINK = re.compile(
    r'(?P<begin><a href="#(?P<comment>comment-)?exercise-(?P<exercise>\d+)'
    r'(?:-(?P<kind>check|answer))?(?P<number>-\d+)?">)[A-Z][a-z -]+</a>'
)
LOST = ("CellTimeoutError", "DeadKernelError", "NotExecuted")


class Handout(NamedTuple):
    """What all submissions are merged into, and what decides about their points.

    The folder has a full path: nbgrader goes from folder to folder while other threads work.
    """

    folder: Path  # of the course
    assignment: str
    released: NotebookNode
    sources: dict[str, str]  # by grade id, of what is locked, hidden tests included
    limits: Limits
    seed: str

    @classmethod
    def read(cls, assignment: str) -> "Handout":
        """Read the hand-out in the course folder; a `CourseError` if it cannot be used."""
        source = read_notebook(notebook_path("source", assignment))
        locked = [cell for cell in source.cells if marks_of(cell).get("locked")]
        sources = {grade_id(cell): cell.source for cell in locked}
        limits, seed = nbgrading.execution_limits()
        released = read_notebook(notebook_path("release", assignment))
        return cls(FOLDER.absolute(), assignment, released, sources, limits, seed)

    def with_checks(self, nb: NotebookNode) -> NotebookNode:
        """Return a merged submission in which what students do not write is as in the source."""
        for cell in nb.cells:
            if marks_of(cell).get("locked"):
                cell.source = self.sources[grade_id(cell)]
        return nb


class Prepared(NamedTuple):
    """A submission in the hand-out."""

    nb: NotebookNode | None  # None if it cannot be graded
    submission: Submission
    remarks: list[str]
    digest: str  # of all that decides about the points


def number_of(student: str, seed: str) -> int:
    """Return the student's number for `fednb.exercises.draws`."""
    return zlib.crc32(f"{seed} {student}".encode())


def _surroundings(folder: Path, assignment: str, student: str) -> list[Path]:
    """Return the folders whose files lie beside a notebook that is executed."""
    return [folder / "submitted" / student / assignment, folder / "release" / assignment]


def _put_outputs(nb: NotebookNode, outputs: list[Any]) -> None:
    """Put outputs, which come from the sandbox and may have any form, into a notebook."""
    text = plain(json.dumps(outputs, ensure_ascii=False))
    for cell, new in zip(nb.cells, json.loads(text), strict=True):
        if cell.cell_type == "code":
            cell.outputs = [_checked(output) for output in new or []]


def _checked(output: dict[str, Any]) -> NotebookNode:
    try:
        return new_output(**output)
    except Exception:
        return new_output("error", ename="OutputError", evalue="an output has a wrong form")


def grade(
    name: str, handed_in: Path, *, jobs: int = 1, is_sandboxed: bool = True
) -> tuple[Path, pd.DataFrame]:
    """Grade what is new in a folder or zip of submissions; the file of the table of all, and it.

    So many ``jobs`` are executed at once. Beside the table lie one for a learning-management
    system, ``ASSIGNMENT-points.csv``, how the class did in each exercise,
    ``ASSIGNMENT-exercises.csv``, and ``ASSIGNMENT-feedback.zip``, whose folders have the names of
    what came in.
    """
    assignment = papers.path(name).stem
    if is_sandboxed and sandbox.missing():
        raise CourseError(sandbox.missing())
    if not notebook_path("release", assignment).exists() or not (FOLDER / "gradebook.db").exists():
        release(assignment)
    handout = Handout.read(assignment)
    room = FOLDER.absolute() / "unpacked" / assignment
    by_student = collect(handed_in.absolute(), handout.released, room)
    notes_file = FOLDER / f"{assignment}.json"
    notes = json.loads(notes_file.read_text(encoding="utf-8")) if notes_file.exists() else {}
    new = {}
    for student, submission in by_student.items():
        prepared = prepare(submission, handout)
        if notes.get(student, {}).get("digest") != prepared.digest:
            new[student] = prepared
    begin = time.monotonic()
    for number, (student, remarks, is_final) in enumerate(
        _graded(new, handout, jobs, is_sandboxed), start=1
    ):
        digest = new[student].digest if is_final else None
        notes[student] = {"digest": digest, "remarks": "; ".join(remarks)}
        write_atomically(notes_file, json.dumps(notes))
        left = (time.monotonic() - begin) / number * (len(new) - number)
        count = f"{number}/{len(new)} ({tqdm.format_interval(int(left))} left) {student}"
        print(count, *remarks, sep="; ", flush=True)
    return _write_tables(handout, by_student, notes)


def prepare(submission: Submission, handout: Handout) -> Prepared:
    """Merge a submission into the hand-out, whatever it holds."""
    remarks = list(submission.remarks)
    nb = None
    if submission.notebook is not None:
        try:
            given = read_notebook(submission.notebook)
            require_assignment(submission.notebook, given, handout.assignment)
            nb, said = merged(given, deepcopy(handout.released))
            nb = handout.with_checks(nb)
            remarks += said
        except CourseError as error:
            remarks.append(str(error))
        except Exception as error:  # a file of a form that nobody has thought of
            remarks.append(f"it cannot be graded ({type(error).__name__}: {error})")
    remarks = [remark(text) for text in dict.fromkeys(remarks)]
    decides: list[Any] = [handout.sources, handout.limits, handout.seed, remarks]
    decides.append([cell.source for cell in nb.cells] if nb else [])
    for name, path in submission.helpers.items():
        decides.append([name, hashlib.sha256(path.read_bytes()).hexdigest()])
    digest = hashlib.sha256(json.dumps(decides).encode()).hexdigest()
    return Prepared(nb, submission, remarks, digest)


def _graded(
    new: dict[str, Prepared], handout: Handout, jobs: int, is_sandboxed: bool
) -> Iterator[tuple[str, list[str], bool]]:
    """Yield students, remarks and whether these are final, as submissions get ready."""
    pool = ThreadPoolExecutor(jobs)
    sandbox.ALL_ENDED.clear()
    try:
        student_of = {}
        for student, prepared in new.items():
            _submit(student, prepared, handout)
            future = pool.submit(_execute, student, prepared, handout, is_sandboxed)
            student_of[future] = student
        for future in as_completed(student_of):
            student = student_of[future]
            nb, remarks = future.result()
            yield student, *_recorded(student, nb, remarks, handout)
    finally:  # Ctrl-C included
        sandbox.ALL_ENDED.set()
        pool.shutdown(cancel_futures=True)


def _submit(student: str, prepared: Prepared, handout: Handout) -> None:
    """Put what is graded where nbgrader collects it."""
    path = notebook_path("submitted", handout.assignment, student)
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in path.parent.rglob("*"):
        if old.is_file():
            old.unlink()
    for name, helper in prepared.submission.helpers.items():
        target = path.parent / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(helper.read_bytes())


def _execute(
    student: str, prepared: Prepared, handout: Handout, is_sandboxed: bool
) -> tuple[NotebookNode | None, list[str]]:
    """Execute a submission; with outputs, or None if it cannot be graded, and remarks."""
    if prepared.nb is None:
        return None, prepared.remarks
    nb = deepcopy(prepared.nb)
    folders = _surroundings(handout.folder, handout.assignment, student)
    number = number_of(student, handout.seed)
    try:
        outputs = sandbox.execute(nb, folders, number, handout.limits, is_sandboxed=is_sandboxed)
        _put_outputs(nb, outputs)
    except Exception as error:
        reason = remark(f"executing it failed ({error}), so it scores zero")
        return None, [*prepared.remarks, reason]
    return nb, [*prepared.remarks, *_what_went_wrong(nb)]


def _what_went_wrong(nb: NotebookNode) -> list[str]:
    """Return a remark for each check that failed, and for own cells that were ended."""
    remarks = [f"{name}: {error}" for name, error in errors_by_cell(nb).items()]
    for cell in nb.cells:
        error = first_error(cell)
        if not grade_id(cell) and error.startswith((*LOST, "SystemExit")):
            remarks.append(f"a cell of the student's own: {error}")
    return [remark(text) for text in remarks]


def _failure_of_handout(nb: NotebookNode) -> str:
    """Return why there are no points if a cell of the hand-out was not executed, and else ""."""
    for cell in nb.cells:
        if is_of_handout(cell) and first_error(cell).startswith(LOST):
            return f"the hand-out's own {grade_id(cell)} took too long or ended the kernel"
    return ""


# --- recording


def _recorded(
    student: str, nb: NotebookNode | None, remarks: list[str], handout: Handout
) -> tuple[list[str], bool]:
    """Have nbgrader take what was executed; the remarks, and whether it is final."""
    failure = ""
    if nb is not None:
        failure = _failure_of_handout(nb) or _taken(student, nb, handout.assignment)
        if not failure:
            return remarks, True
        remarks = [*remarks, f"no points yet, as {failure}: call the same command again"]
    elsewhere = _taken(student, _not_graded(handout, remarks), handout.assignment)
    if elsewhere:
        remarks = [*remarks, f"no points yet, as {elsewhere}: call the same command again"]
    return remarks, not failure and not elsewhere


def _taken(student: str, nb: NotebookNode, assignment: str) -> str:
    """Have nbgrader grade an executed notebook, and make its page; why it cannot, or ""."""
    try:
        nbformat.write(nb, notebook_path("submitted", assignment, student))
        nbgrader_step("autograde", assignment, student)
        nbgrader_step("generate_feedback", assignment, student)
    except Exception as error:
        return remark(f"nbgrader cannot take it ({type(error).__name__}: {error})")
    return ""


def _not_graded(handout: Handout, remarks: list[str]) -> NotebookNode:
    """Return the untouched hand-out, as if executed, whose page says why nothing was graded."""
    nb = handout.with_checks(deepcopy(handout.released))
    nb.cells[0].source = f"> **Not graded.** {html.escape('; '.join(remarks))}."
    for cell in nb.cells:
        if is_check(cell):
            cell.outputs = [new_output("error", ename=NOT_COUNTED, evalue="not graded")]
    return nb


# --- tables


def _write_tables(
    handout: Handout, by_student: dict[str, Submission], notes: dict[str, Any]
) -> tuple[Path, pd.DataFrame]:
    assignment = handout.assignment
    book = nbgrading.gradebook_rows(assignment)
    rows = []
    points = []
    for student, submission in by_student.items():
        row = dict(book.get(student, {}))
        if notes[student]["digest"] is None:  # no points yet
            row = dict.fromkeys(row)
        row["remarks"] = notes[student]["remarks"]
        rows.append({"student": student, **row})
        of_system = {"name": submission.name, "id": submission.id}
        points.append({**of_system, "points": row.get("score"), "remark": row["remarks"]})
    table = pd.DataFrame(rows)
    path = FOLDER.absolute() / f"{assignment}.csv"
    _write(table, path)
    _write(pd.DataFrame(points), FOLDER / f"{assignment}-points.csv")
    _write(by_exercise(handout.released, table), FOLDER / f"{assignment}-exercises.csv")
    _zip_feedback(assignment, by_student)
    return path, table


def by_exercise(released: NotebookNode, table: pd.DataFrame) -> pd.DataFrame:
    """Tell of each check and answer how the class did: points, and what went wrong most often."""
    lines = []
    for cell in released.cells:
        marks = marks_of(cell)
        name = grade_id(cell)
        if not marks.get("grade") or name not in table:
            continue
        points = table[name].dropna().astype(float)
        said = table["remarks"].str.extract(rf"(?:^|; ){re.escape(name)}: ([^;]+)")[0]
        lines.append(
            {
                "exercise": name,
                "points": marks["points"],
                "mean": round(points.mean(), 2),
                "graded": len(points),
                "in full": int((points == marks["points"]).sum()),
                "without points": int((points == 0).sum()),
                "most often": said.value_counts().index[0] if said.notna().any() else "",
            }
        )
    return pd.DataFrame(lines)


def _write(table: pd.DataFrame, path: Path) -> None:
    """Write a table in which a spreadsheet finds no formula."""
    safe = table.map(lambda value: in_csv(value) if isinstance(value, str) else value)
    write_atomically(path, safe.to_csv(index=False))


def _zip_feedback(assignment: str, by_student: dict[str, Submission]) -> None:
    """Zip the pages of feedback in folders of the names that came in, as Moodle takes them back."""
    path = FOLDER / f"{assignment}-feedback.zip"
    unfinished = path.with_suffix(".part")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
        for student, submission in by_student.items():
            page = notebook_path("feedback", assignment, student).with_suffix(".html")
            with suppress(OSError):  # none could be made
                _name_links(page)
                archive.write(page, f"{submission.given}/{page.name}")
    unfinished.replace(path)


def _name_links(page: Path) -> None:
    """Call the links on top of a page by their exercises: to nbgrader each is a "Test cell"."""
    text = page.read_text(encoding="utf-8")
    named = LINK.sub(_called, text)
    if named != text:
        write_atomically(page, named)


def _called(link: re.Match[str]) -> str:
    what = "comment" if link["comment"] else link["kind"] or "code"
    number = (link["number"] or "").replace("-", " ")
    return f"{link['begin']}Exercise {link['exercise']}, {what}{number}</a>"
