"""nbgrader at work: its steps in the course folder, and its gradebook."""

import os
import re
import shutil
import signal
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from traitlets.config import PyFileConfigLoader

from fednb.errors import CourseError
from fednb_lab.course.assignment import TEMPLATES
from fednb_lab.course.executor import Limits

try:
    from nbgrader.apps.api import NbGraderAPI
    from nbgrader.preprocessors import Execute as Execute
    from nbgrader.utils import compute_checksum as compute_checksum
except ModuleNotFoundError as missing:
    raise CourseError(
        'The course commands need nbgrader: python -m pip install "fednb[course]"'
    ) from missing

FOLDER = Path("course")  # source, release, submitted, autograded, feedback, gradebook.db
STUDENTS = FOLDER / "students"  # what they install
CONFIG = TEMPLATES / "nbgrader_config.py"
STOPPED = "Stopped"  # how an error begins if a limit ended the execution
SECONDS = 120  # for a step: a page of feedback can be made to take for ever
ERROR_LINE = re.compile(r"(?m)^\s*(?:\w+\.)*(\w*(?:Error|Exception)\b.*)")  # in nbgrader's log


def notebook_path(step: str, assignment: str, student: str = "") -> Path:
    """Where a step such as "release" or, with a student, "autograded" leaves its notebook."""
    return FOLDER.absolute() / step / student / assignment / f"{assignment}.ipynb"


def api(executed: Mapping[str, Any] | None = None) -> NbGraderAPI:
    """nbgrader in the course folder, as the ``nbgrader_config.py`` there says.

    ``executed`` are sources and outputs that it need not make (`sandbox.Sandboxed`).
    """
    folder = FOLDER.absolute()
    if not (folder / CONFIG.name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(CONFIG, folder)
    config = PyFileConfigLoader(CONFIG.name, str(folder)).load_config()
    config.CourseDirectory.root = str(folder)
    config.Sandboxed.executed = dict(executed or {})
    return NbGraderAPI(config=config)


def execution_limits() -> tuple[Limits, str]:
    """Seconds for a submission, and the seed of hidden inputs, as the configuration says."""
    config = api().config
    return Limits(config.Execute.timeout, config.Sandboxed.seconds), config.Sandboxed.seed


def on_alarm(*_: object) -> None:
    """End a step of nbgrader that takes too long."""
    raise RuntimeError(f"{STOPPED}: nbgrader takes too long")


def nbgrader_step(step: str, *arguments: str, executed: Mapping[str, Any] | None = None) -> None:
    """Have nbgrader take a step; a `CourseError` has the last error of its log if it fails.

    ``step`` is a method of its API, such as "autograde", and ``arguments`` are what that takes: an
    assignment and perhaps a student. For ``executed`` see `api`.
    """
    # nbgrader calls alembic, which lies beside this Python
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with warnings.catch_warnings(action="ignore"), mock.patch.dict(os.environ, PATH=path):
        nbgrader = api(executed)
        previous = signal.signal(signal.SIGALRM, on_alarm)
        signal.alarm(SECONDS)
        try:
            result = getattr(nbgrader, step)(*arguments)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, previous)
    if "KeyboardInterrupt" in result.get("error", ""):
        raise KeyboardInterrupt
    if not result["success"]:
        text = result.get("log", result["error"])
        log = FOLDER / "nbgrader.log"
        log.write_text(text, encoding="utf-8", errors="replace")
        errors = ERROR_LINE.findall(text) or [f"nbgrader failed: see {log}"]
        raise CourseError(errors[-1][:200].removeprefix("RuntimeError: "))


def gradebook_entry(assignment: str, student: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the gradebook has of a submission that was graded.

    First its scores, with what a person has given, and whether one has to; then the points that
    the machine has given, by grade id of a check.
    """
    with api().gradebook as gradebook:
        submission = gradebook.find_submission(assignment, student)
        grades = sorted(submission.notebooks[0].grades, key=lambda grade: grade.name)
        scores = {
            "score": submission.score,
            "max_score": submission.max_score,
            "to_grade_by_hand": submission.needs_manual_grade,
        }
        return scores, {grade.name: grade.auto_score for grade in grades}
