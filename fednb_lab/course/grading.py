"""Grading what was handed in: merged into the hand-out, executed in the sandbox, by nbgrader."""

import hashlib
import html
import json
import re
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor, as_completed
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pandas as pd
from nbformat import NotebookNode
from nbformat.v4 import new_output

from fednb import papers
from fednb.errors import CourseError
from fednb.records import write_atomically
from fednb_lab.arrays import listed
from fednb_lab.course import nbgrading, sandbox
from fednb_lab.course.collect import Submission, collect, read_submission
from fednb_lab.course.handout import release
from fednb_lab.course.inside import Limits
from fednb_lab.course.merging import merged
from fednb_lab.course.nbgrading import FOLDER, nbgrader_step, notebook_path
from fednb_lab.course.notebooks import (
    NOT_COUNTED,
    errors_by_cell,
    files_of,
    first_error,
    grade_id,
    is_check,
    marks_of,
    read_notebook,
    remark,
)
from fednb_lab.words import in_csv

# A link on top of a feedback page, to a graded cell or to a person's comment on it.
LINK = re.compile(
    r'(?P<begin><a href="#(?P<comment>comment-)?exercise-(?P<exercise>\d+)'
    r'(?:-(?P<kind>check|answer))?(?P<number>-\d+)?">)[A-Z][a-z -]+</a>'
)
# What ends a student's own cell for good: any other error there costs nothing.
ENDED = ("CellTimeoutError", "DeadKernelError", "NotExecuted")


class Handout(NamedTuple):
    """What all submissions are merged into, and what else decides about their points."""

    assignment: str
    released: NotebookNode  # with the hidden tests, and without solutions
    files: dict[str, Path]  # that lie beside it, by name
    limits: Limits
    seed: str

    @classmethod
    def read(cls, assignment: str) -> "Handout":
        """Read the hand-out in the course folder; a `CourseError` if it cannot be used."""
        source = read_notebook(notebook_path("source", assignment))
        sources = {grade_id(cell): cell.source for cell in source.cells}
        path = notebook_path("release", assignment)
        released = read_notebook(path)
        for cell in released.cells:
            if marks_of(cell).get("locked"):
                cell.source = sources[grade_id(cell)]
        files = {name: path.parent / name for name in files_of(released)}
        return cls(assignment, released, files, *nbgrading.execution_limits())


class Prepared(NamedTuple):
    """A submission in the hand-out."""

    nb: NotebookNode | None  # None if it cannot be graded
    files: dict[str, Path]  # that lie beside it
    remarks: list[str]
    digest: str  # of all that decides about the points


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
    if not handed_in.is_dir() and not zipfile.is_zipfile(handed_in):
        raise CourseError(f"{handed_in} is neither a folder nor a zip of submissions.")
    if not notebook_path("release", assignment).exists() or not (FOLDER / "gradebook.db").exists():
        release(assignment)
    handout = Handout.read(assignment)
    room = FOLDER.absolute() / "unpacked" / assignment
    by_student = collect(handed_in.absolute(), handout.released, room)
    notes_file = FOLDER / f"{assignment}.json"
    notes = json.loads(notes_file.read_text(encoding="utf-8")) if notes_file.exists() else {}
    told = "those that are new are executed, which takes as long as their cells"
    print(f"{len(by_student)} submissions; {told}", flush=True)
    pool = ThreadPoolExecutor(jobs)
    try:
        new = {}
        for student, submission in by_student.items():
            prepared = prepare(submission, handout)
            if notes.get(student, {}).get("digest") != prepared.digest:
                seed = zlib.crc32(f"{handout.seed} {student}".encode())
                future = pool.submit(_execute, prepared, handout.limits, seed, is_sandboxed)
                new[future] = student, prepared.digest
        for number, future in enumerate(as_completed(new), start=1):
            student, digest = new[future]
            nb, remarks = future.result()
            remarks = _recorded(student, nb, remarks, handout)
            notes[student] = {"digest": digest, "remarks": "; ".join(remarks)}
            write_atomically(notes_file, json.dumps(notes))
            print(f"{number}/{len(new)} {student}", *remarks, sep="; ", flush=True)
    finally:  # Ctrl-C included
        pool.shutdown(cancel_futures=True)
    return _write_tables(handout, by_student, notes)


def prepare(submission: Submission, handout: Handout) -> Prepared:
    """Merge a submission into the hand-out, whatever it holds."""
    remarks = list(submission.remarks)
    nb = None
    if submission.notebook is not None:
        try:
            given = read_submission(submission.notebook, handout.released)
            nb, said = merged(given, handout.released)
            remarks += said
        except CourseError as error:
            remarks.append(str(error))
        except Exception as error:  # a file of a form that nobody has thought of
            remarks.append(f"it cannot be graded ({type(error).__name__}: {error})")
    remarks = [remark(text) for text in dict.fromkeys(remarks)]
    files = submission.helpers | handout.files
    whole = nb or handout.released
    decides = [handout.limits, handout.seed, remarks, [cell.source for cell in whole.cells]]
    decides += [
        [name, hashlib.sha256(file.read_bytes()).hexdigest()] for name, file in files.items()
    ]
    digest = hashlib.sha256(json.dumps(decides).encode()).hexdigest()
    return Prepared(nb, files, remarks, digest)


def _execute(
    prepared: Prepared, limits: Limits, seed: int, is_sandboxed: bool
) -> tuple[NotebookNode | None, list[str]]:
    """Execute a submission; with outputs, or None if it cannot be graded, and remarks."""
    nb, files, remarks, _ = prepared
    if nb is None:
        return None, remarks
    try:
        sandbox.execute(nb, files, limits, student_seed=seed, is_sandboxed=is_sandboxed)
    except Exception as error:
        return None, [*remarks, remark(f"executing it failed ({error}), so it scores zero")]
    said = [f"{name}: {error}" for name, error in errors_by_cell(nb).items()]
    for cell in nb.cells:
        ended = first_error(cell)
        if not grade_id(cell) and ended.startswith(ENDED):
            said.append(f"a cell of the student's own: {ended}")
    return nb, [*remarks, *map(remark, said)]


def _recorded(
    student: str, nb: NotebookNode | None, remarks: list[str], handout: Handout
) -> list[str]:
    """Have nbgrader take what was executed, and make its page; the remarks."""
    if nb is not None:
        try:
            _take(student, nb, handout.assignment)
            return remarks
        except Exception as error:
            reason = f"nbgrader cannot take it ({type(error).__name__}: {error})"
            remarks = [*remarks, remark(reason)]
    _take(student, _not_graded(handout, remarks), handout.assignment)
    return remarks


def _take(student: str, nb: NotebookNode, assignment: str) -> None:
    path = notebook_path("submitted", assignment, student)
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, path)
    nbgrader_step("autograde", assignment, student)
    nbgrader_step("generate_feedback", assignment, student)


def _not_graded(handout: Handout, remarks: list[str]) -> NotebookNode:
    """Return the untouched hand-out, as if executed, whose page says why nothing was graded."""
    nb = deepcopy(handout.released)
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
        row["remarks"] = notes[student]["remarks"]
        rows.append({"student": student, **row})
        of_system = {"name": submission.name, "id": submission.id}
        remarks = [row["remarks"]] if row["remarks"] else []
        if row.get("to_grade_by_hand"):
            remarks.append("answers are still to be graded by hand")
        points.append({**of_system, "points": row.get("score"), "remark": "; ".join(remarks)})
    table = pd.DataFrame(rows)
    path = FOLDER.absolute() / f"{assignment}.csv"
    _write(table, path)
    _write(pd.DataFrame(points), FOLDER / f"{assignment}-points.csv")
    elsewhere = sorted(set(notes) - set(by_student))
    if elsewhere:
        told = f"{len(elsewhere)} graded before are not among these submissions"
        print(f"{told}, so not in the tables: {listed(elsewhere)}", flush=True)
    exercises = by_exercise(handout.released, table)
    _write(exercises, FOLDER / f"{assignment}-exercises.csv")
    _zip_feedback(assignment, by_student)
    print(f"{len(table)} submissions, {average(table, exercises)}", flush=True)
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


def average(table: pd.DataFrame, exercises: pd.DataFrame) -> str:
    """Tell the points on average, of exercises in which nobody's answer waits for a person."""
    points = {line["exercise"]: line["points"] for line in exercises.to_dict("records")}
    done = [name for name in points if table[name].notna().all()]
    if not done:
        return "none has points yet"
    mean = table[done].astype(float).mean().sum()
    told = f"{mean:.1f} of {sum(points[name] for name in done):g} points on average"
    waiting = len(points) - len(done)
    return f"{told}, without {waiting} exercises that a person has to grade" if waiting else told


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
            if page.exists():
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
