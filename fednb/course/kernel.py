"""nbgrader at work: a notebook in a kernel, the steps in the course folder, and its gradebook."""

import os
import re
import shutil
import signal
import sys
import warnings
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from nbformat import NotebookNode
from traitlets.config import Config, PyFileConfigLoader

from fednb.course.assignment import TEMPLATES
from fednb.errors import CourseError

try:
    from nbgrader.apps.api import NbGraderAPI
    from nbgrader.preprocessors import Execute
    from nbgrader.utils import compute_checksum as compute_checksum
except ModuleNotFoundError as missing:
    raise CourseError(
        'The course commands need nbgrader: python -m pip install "fednb[course]"'
    ) from missing

FOLDER = Path("course")  # source, release, submitted, autograded, feedback, gradebook.db
CONFIG = TEMPLATES / "nbgrader_config.py"
ENVIRONMENT = {
    "FEDNB_PROGRESS": "off",
    "FEDNB_DEVICE": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "MPLBACKEND": "agg",
}
STOPPED = "Stopped"  # how an error begins if a limit ended the execution
ERROR_LINE = re.compile(r"(?m)^\s*(?:\w+\.)*(\w*(?:Error|Exception)\b.*)")  # in nbgrader's log


def execute(nb: NotebookNode, folder: str, config: Config | None = None) -> None:
    """Execute a notebook in place, in a kernel that works in ``folder``.

    Its limits stand in `CONFIG`; ``config`` may change them. An error of a cell, and that it took
    too long, becomes one of its outputs.
    """
    merged = PyFileConfigLoader(CONFIG.name, str(CONFIG.parent)).load_config()
    merged.merge(config or Config())
    with mock.patch.dict(os.environ, ENVIRONMENT):  # which the kernel inherits
        Execute(config=merged).preprocess(nb, {"metadata": {"path": folder}})


def notebook_path(step: str, assignment: str, student: str = "") -> Path:
    """Where a step such as "release" or, with a student, "autograded" leaves its notebook."""
    return FOLDER.absolute() / step / student / assignment / f"{assignment}.ipynb"


def api(patience: int = 1) -> NbGraderAPI:
    """nbgrader in the course folder, as the ``nbgrader_config.py`` there says.

    A cell may take ``patience`` times as long as it says.
    """
    folder = FOLDER.absolute()
    if not (folder / CONFIG.name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(CONFIG, folder)
    config = PyFileConfigLoader(CONFIG.name, str(folder)).load_config()
    config.CourseDirectory.root = str(folder)
    config.Execute.timeout *= patience
    return NbGraderAPI(config=config)


def on_alarm(*_: object) -> None:
    """End a step of nbgrader that takes too long."""
    raise RuntimeError(f"{STOPPED}: nbgrader takes too long")


def nbgrader_step(step: str, *arguments: str, patience: int = 1) -> None:
    """Have nbgrader take a step; a `CourseError` has the last error of its log if it fails.

    ``step`` is a method of its API, such as "autograde", and ``arguments`` are what that takes: an
    assignment and perhaps a student.
    """
    # nbgrader calls alembic, which lies beside this Python
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with warnings.catch_warnings(action="ignore"), mock.patch.dict(os.environ, PATH=path):
        nbgrader = api(patience)
        signal.signal(signal.SIGALRM, on_alarm)
        # a page of feedback can be made to take for ever
        signal.alarm(nbgrader.config.Sandboxed.seconds + 60)
        result = getattr(nbgrader, step)(*arguments)
        signal.alarm(0)
    if "KeyboardInterrupt" in result.get("error", ""):
        raise KeyboardInterrupt
    if not result["success"]:
        text = result.get("log", result["error"])
        log = FOLDER / "nbgrader.log"
        log.write_text(text, encoding="utf-8")
        errors = ERROR_LINE.findall(text) or [f"nbgrader failed: see {log}"]
        raise CourseError(errors[-1][:200].removeprefix("RuntimeError: "))


class GradebookEntry(NamedTuple):
    """What the gradebook has of a submission."""

    scores: dict[str, float | bool]  # with what a person has given, and whether one has to
    points: dict[str, float | None]  # the machine's, by grade id of a check


def gradebook_entry(assignment: str, student: str) -> GradebookEntry:
    """What the gradebook has of a submission that was graded."""
    with api().gradebook as gradebook:
        submission = gradebook.find_submission(assignment, student)
        grades = sorted(submission.notebooks[0].grades, key=lambda grade: grade.name)
        scores = {
            "score": submission.score,
            "max_score": submission.max_score,
            "to_grade_by_hand": submission.needs_manual_grade,
        }
        return GradebookEntry(scores, {grade.name: grade.auto_score for grade in grades})
