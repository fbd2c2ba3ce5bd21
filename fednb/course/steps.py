"""nbgrader's own steps, as a course takes them here: what is handed in is executed in the fence."""

from __future__ import annotations

import os
import re
import signal
import sys
import zlib
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from fednb.course import fence
from fednb.course.checking import ANSWER, STUB
from fednb.course.handout import FOLDER, CourseError

try:
    from nbgrader.apps.api import NbGraderAPI
    from nbgrader.converters import Autograde, GenerateAssignment
    from nbgrader.preprocessors import ClearOutput, Execute, InstantiateTests
    from nbgrader.utils import compute_checksum
    from traitlets import Integer, Unicode
    from traitlets.config import Config, PyFileConfigLoader
except ModuleNotFoundError as error:
    raise CourseError('The course commands need nbgrader: python -m pip install "fednb[course]"') from error

CONFIG = """# nbgrader's settings for this course; its own commands and its formgrader work in this folder, too.
from fednb.course.steps import configure

c = configure(get_config())  # noqa: F821
# c.Execute.timeout = 60  # seconds for a cell of a submission
# c.Fenced.seconds = 900  # seconds for a submission
# c.Fenced.seed = "fednb"  # decides the hidden inputs, with the student's name
"""


class Fenced(Execute):
    """nbgrader's step that executes a submission."""

    seconds = Integer(900).tag(config=True)
    seed = Unicode("fednb").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        place = Path(resources["metadata"]["path"])  # course/autograded/STUDENT/ASSIGNMENT
        seed = zlib.crc32(f"{self.seed} {place.parent.name}".encode())
        fence.execute(nb, place.parents[2] / "release" / place.name, seed, self.timeout, self.seconds)
        return nb, resources


def configure(config: Config) -> Config:
    """Tell nbgrader what this course wants of it."""
    config.CourseDirectory.course_id = "fednb"
    config.ClearSolutions.code_stub = {"python": STUB}
    config.ClearSolutions.text_stub = ANSWER
    steps = GenerateAssignment().preprocessors  # the outputs of what is not asked for stay readable
    config.GenerateAssignment.preprocessors = [step for step in steps if step not in (ClearOutput, InstantiateTests)]
    config.LockCells.lock_readonly_cells = False  # a student may play with them; they are put back for grading
    steps = Autograde().autograde_preprocessors
    config.Autograde.autograde_preprocessors = [Fenced if step is Execute else step for step in steps]
    config.IgnorePattern.enabled = True
    config.IgnorePattern.pattern = "(?s).*"  # a warning on stderr would cost all points of a check
    config.Execute.timeout = 60
    config.Execute.iopub_timeout = 60  # nbclient's 4 seconds for the output to arrive fail good work on a busy machine
    config.Execute.error_on_timeout = {"ename": "CellTimeoutError", "evalue": "stopped, as it took too long", "traceback": []}
    config.HTMLExporter.sanitize_html = True  # a feedback page is opened by others than who wrote its outputs
    return config


def settings(patience: int = 1) -> Config:
    """What the course folder's nbgrader_config.py says, with so many times the time."""
    folder = FOLDER.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "nbgrader_config.py").exists():
        (folder / "nbgrader_config.py").write_text(CONFIG, encoding="utf-8")
    config = PyFileConfigLoader("nbgrader_config.py", str(folder)).load_config()
    config.CourseDirectory.root = str(folder)
    config.Execute.timeout *= patience
    config.Fenced.seconds = patience * Fenced(config=config).seconds
    return config


def execute(nb: NotebookNode, folder: str, config: Config) -> None:
    """Execute a notebook in place, in a folder, as nbgrader does: errors are outputs, and taking too long is an error."""
    Execute(config=config).preprocess(nb, {"metadata": {"path": folder}})


def take(step: str, *of: str, patience: int = 1) -> None:
    """Have nbgrader take a step (a method of its API) of an assignment, and a student; a CourseError says why it failed."""
    config = settings(patience)

    def stop(*_: object) -> None:
        raise fence.Stopped("nbgrader takes too long")

    if (programs := str(Path(sys.executable).parent)) not in os.environ["PATH"]:  # nbgrader calls alembic
        os.environ["PATH"] = programs + os.pathsep + os.environ["PATH"]
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(config.Fenced.seconds + 300)  # for feedback on text that is made to take long, say
    try:
        done = getattr(NbGraderAPI(config=config), step)(*of)
    finally:
        signal.alarm(0)
    if not done["success"]:
        text = done.get("log", done["error"])
        (FOLDER / "nbgrader.log").write_text(text, encoding="utf-8")
        said = re.findall(r"(?m)^(?:\w+\.)*(\w*(?:Error|Exception|Stopped)\b.*)", text)
        raise CourseError(said[-1][:200] if said else f"nbgrader failed: {FOLDER / 'nbgrader.log'}")
