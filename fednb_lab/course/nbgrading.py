"""nbgrader at work: its steps in the course folder, and its gradebook."""

import os
import re
import shutil
import sys
import warnings
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from traitlets.config import Config, PyFileConfigLoader

from fednb.errors import CourseError
from fednb_lab.course.notebooks import TEMPLATES

try:
    from nbgrader.apps.api import NbGraderAPI
except ModuleNotFoundError as missing:
    raise CourseError(
        'The course commands need nbgrader: python -m pip install "fednb[course]"'
    ) from missing

FOLDER = Path("course")  # source, release, submitted, autograded, feedback, gradebook.db
STUDENTS = FOLDER / "students"  # what they install
CONFIG = TEMPLATES / "nbgrader_config.py"
ERROR_LINE = re.compile(r"(?m)^\s*(?:\w+\.)*(\w*(?:Error|Exception)\b.*)")  # in nbgrader's log


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
    config = PyFileConfigLoader(CONFIG.name, str(folder)).load_config()
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


class Grades(NamedTuple):
    """What the gradebook has of a student."""

    score: float
    max_score: float
    points: dict[str, float | None]  # by grade id; None has neither a machine's nor a person's
    waiting: list[str]  # grade ids of what a person has to look at, perhaps once more


def grades(assignment: str) -> dict[str, Grades]:
    """Return what the gradebook has, by student; a person's points count before the machine's."""
    by_student = {}
    with api().gradebook as gradebook:
        for submission in gradebook.assignment_submissions(assignment):
            notebook = submission.notebooks[0]
            points = {}
            for grade in sorted(notebook.grades, key=attrgetter("name")):
                has_none = grade.auto_score is None and grade.manual_score is None
                points[grade.name] = None if has_none else grade.score
            waiting = [grade.name for grade in notebook.grades if grade.needs_manual_grade]
            found = Grades(submission.score, submission.max_score, points, waiting)
            by_student[submission.student_id] = found
    return by_student
