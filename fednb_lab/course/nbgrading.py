"""nbgrader at work: its steps in the course folder, its gradebook, and what is made of that.

Those are tables of all who were graded in a course folder, and their pages.
"""

import html
import os
import re
import shutil
import sys
import warnings
import zipfile
from operator import attrgetter
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
from nbformat import NotebookNode
from traitlets.config import Config, PyFileConfigLoader

from fednb.errors import CourseError
from fednb.records import write_atomically
from fednb_lab.course.notebooks import (
    EXERCISE,
    NO_ANSWER,
    NOT_DONE,
    TEMPLATES,
    grade_id,
    is_check,
    marks_of,
    tags_of,
    title_of,
)
from fednb_lab.course.solutions import without_solution
from fednb_lab.words import in_csv

try:
    from nbgrader.apps.api import NbGraderAPI
    from nbgrader.preprocessors import NbGraderPreprocessor
except ModuleNotFoundError as missing:
    raise CourseError(
        'The course commands need nbgrader: python -m pip install "fednb[course]"'
    ) from missing

FOLDER = Path("course")  # source, release, submitted, autograded, feedback, gradebook.db
STUDENTS = FOLDER / "students"  # what they install
CONFIG = TEMPLATES / "nbgrader_config.py"
ERROR_LINE = re.compile(r"(?m)^\s*(?:\w+\.)*(\w*(?:Error|Exception)\b.*)")  # in nbgrader's log
# What nbgrader's page calls a "Test cell" or a "Written response" in its list of links.
LINK = re.compile(r'(<a href="#(?:comment-)?([\w-]+)">)(?:Test cell|Written response)')


def notebook_path(step: str, assignment: str, student: str = "") -> Path:
    """Return where a step such as "release" or "autograded" leaves its notebook."""
    return FOLDER.absolute() / step / student / assignment / f"{assignment}.ipynb"


def page_path(assignment: str, student: str) -> Path:
    """Return where a student's page of feedback is."""
    return notebook_path("feedback", assignment, student).with_suffix(".html")


def api() -> NbGraderAPI:
    """Return nbgrader in the course folder, as the ``nbgrader_config.py`` there says."""
    folder = FOLDER.absolute()
    if not (folder / CONFIG.name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(CONFIG, folder)
    try:
        config = PyFileConfigLoader(CONFIG.name, str(folder)).load_config()
    except Exception as error:  # of an earlier version, or a teacher's slip
        way_out = "mend it, or delete it to get the one of this version"
        raise CourseError(f"{folder / CONFIG.name} fails ({error}): {way_out}.") from error
    config.CourseDirectory.root = str(folder)
    return NbGraderAPI(config=config)


def settings() -> Config:
    """Return what is configured for `grade` itself."""
    return api().config.FedNB


def nbgrader_step(step: str, *arguments: str) -> None:
    """Have nbgrader take a step; a `CourseError` has the last error of its log if it fails.

    ``step`` is a method of its API, such as "autograde", and ``arguments`` are what that takes: an
    assignment and perhaps a student.
    """
    # nbgrader calls alembic, which lies beside this Python
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with warnings.catch_warnings(action="ignore"), mock.patch.dict(os.environ, PATH=path):
        nbgrader = api()
        result = getattr(nbgrader, step)(*arguments)
    if "KeyboardInterrupt" in result.get("error", ""):
        raise KeyboardInterrupt
    if not result["success"]:
        text = result.get("log", result["error"])
        log = FOLDER / "nbgrader.log"
        log.write_text(text, encoding="utf-8", errors="replace")
        errors = ERROR_LINE.findall(text) or [f"nbgrader failed: see {log}"]
        raise CourseError(errors[-1][:200].removeprefix("RuntimeError: "))


def grades(assignment: str) -> pd.DataFrame:
    """Return what the gradebook has: a row for each student and check or answer.

    Its columns are ``student``, ``name`` (a grade id), ``points`` (a person's count before the
    machine's; None if there are neither), ``most``, and ``waits``, whether a person has to look at
    it, perhaps once more.
    """
    rows = []
    with api().gradebook as gradebook:
        for submission in gradebook.assignment_submissions(assignment):
            for one in sorted(submission.notebooks[0].grades, key=attrgetter("name")):
                has_none = one.auto_score is None and one.manual_score is None
                points = None if has_none else one.score
                values = one.name, points, one.max_score, one.needs_manual_grade
                rows.append((submission.student_id, *values))
    return pd.DataFrame(rows, columns=["student", "name", "points", "most", "waits"])


def write_tables(assignment: str, released: NotebookNode, notes: dict[str, Any]) -> Path:
    """Write all tables, and the pages that are missing, and return the path of the scores.

    The tables are ``ASSIGNMENT.csv``; ``ASSIGNMENT-points.csv`` for a learning-management system;
    ``ASSIGNMENT-exercises.csv``, how the class did in each exercise; and
    ``ASSIGNMENT-feedback.zip``, whose folders have the names of what came in. ``notes`` has the
    names, remarks and errors by student.
    """
    graded = grades(assignment)
    graded = graded[graded["student"].isin(notes)]
    by_student = graded.groupby("student")
    table = by_student[["points", "most"]].sum().set_axis(["score", "max_score"], axis=1)
    table["to_grade_by_hand"] = by_student["waits"].any()
    table = table.join(graded.pivot(index="student", columns="name", values="points"))
    table["remarks"] = [_remark(notes[str(student)]) for student in table.index]
    path = FOLDER.absolute() / f"{assignment}.csv"
    _write(table.reset_index(), path)
    for_system = pd.DataFrame([notes[str(student)] for student in table.index])[["name", "id"]]
    for_system["points"] = table["score"].to_list()
    for_system["remark"] = [
        _remark(notes[str(student)], waits) for student, waits in table["to_grade_by_hand"].items()
    ]
    _write(for_system, FOLDER / f"{assignment}-points.csv")
    exercises = by_exercise(released, graded, notes)
    _write(exercises, FOLDER / f"{assignment}-exercises.csv")
    _write_pages(assignment, table["to_grade_by_hand"], notes)
    mean = f"{exercises['mean'].sum():.1f} of {exercises['points'].sum():g} points"
    print(f"On average {mean}, without answers that wait for a person: {path.stem}-exercises.csv")
    return path


def all_remarks(note: dict[str, Any], waits: bool = False) -> list[str]:
    """Return what there is to say of a student's exercises, and of the work as a whole."""
    said = [f"{title_of(name)}: {error}" for name, error in note["errors"].items()]
    said += note["remarks"]  # what has cost points comes first
    return [*said, "answers are still to be graded by hand"] if waits else said


def _remark(note: dict[str, Any], waits: bool = False) -> str:
    return "; ".join(all_remarks(note, waits))


def by_exercise(
    released: NotebookNode, graded: pd.DataFrame, notes: dict[str, Any]
) -> pd.DataFrame:
    """Tell of each check and answer how the class did: points, and what went wrong most often.

    Who handed in no notebook is left out. While somebody's waits for a person there is no mean, as
    those who gave no answer have points already, namely none.
    """
    executed = graded[[notes[student]["executed"] for student in graded["student"]]]
    lines = []
    for cell in released.cells:
        name = grade_id(cell)
        most = marks_of(cell).get("points")
        if most is None:
            continue
        of_all = executed[executed["name"] == name]
        points = of_all["points"][~of_all["waits"]]
        errors = pd.Series([notes[one]["errors"].get(name) for one in of_all["student"]], dtype=str)
        lines.append(
            {
                "exercise": title_of(name),
                "points": most,
                "mean": None if of_all["waits"].any() else round(points.mean(), 2),
                "tried": int((~errors.isin([NOT_DONE, NO_ANSWER])).sum()),
                "graded": len(points),
                "waiting": int(of_all["waits"].sum()),
                "in full": int((points == most).sum()),
                "without points": int((points == 0).sum()),
                "most often": errors.mode().get(0, ""),
            }
        )
    return pd.DataFrame(lines)


def _write(table: pd.DataFrame, path: Path) -> None:
    """Write a table that Excel opens with its umlauts, and in which it finds no formula."""
    safe = table.map(lambda value: in_csv(value) if isinstance(value, str) else value)
    write_atomically(path, safe.to_csv(index=False).encode("utf-8-sig"))


def _write_pages(assignment: str, waits: pd.Series, notes: dict[str, Any]) -> None:
    """Write the pages that are missing, and zip all in folders as Moodle takes them back."""
    path = FOLDER / f"{assignment}-feedback.zip"
    unfinished = path.with_suffix(".part")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
        for student, has_to_wait in waits.items():
            page = page_path(assignment, str(student))
            note = notes[str(student)]
            try:
                if not page.exists():
                    nbgrader_step("generate_feedback", assignment, str(student))
                    _put_on_top(page, note["name"], all_remarks(note, has_to_wait))
                archive.write(page, f"{note['given']}/{page.name}")
            except CourseError as error:
                print(f"{student}: the page cannot be made ({error})", flush=True)
    unfinished.replace(path)


def _put_on_top(path: Path, name: str, remarks: list[str]) -> None:
    """Give nbgrader's page the student's name and all remarks, and exercises their names."""
    page = LINK.sub(lambda link: link[1] + title_of(link[2]), path.read_text(encoding="utf-8"))
    said = "".join(f"<p>{html.escape(told)}.</p>" for told in remarks)
    page = page.replace("<h4>", f"<h4>{html.escape(name)}: ", 1)
    write_atomically(path, page.replace('<div id="toc">', f'<div id="toc">{said}', 1))


class Excerpt(NbGraderPreprocessor):
    """What nbgrader makes a page of: the exercises, without their hidden tests.

    Of what a check has put out only what the error says is left, as tracebacks show lines of code.
    """

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """Leave out of a graded notebook, in place, what a page does not show."""
        is_heading = [bool(EXERCISE.match(cell.source)) for cell in nb.cells]
        exercises = nb.cells[is_heading.index(True) :]
        nb.cells = [cell for cell in exercises if "skip-execution" not in tags_of(cell)]
        for cell in filter(is_check, nb.cells):
            cell.source = without_solution(cell)
            cell.outputs = [one for one in cell.outputs if one.output_type == "error"]
            for error in cell.outputs:
                error.traceback = [f"{error.ename}: {error.evalue}"]
        return nb, resources
