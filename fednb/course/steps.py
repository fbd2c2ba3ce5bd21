"""nbgrader's own steps in a process of their own: ``python -m fednb.course.steps FOLDER ASSIGNMENT STUDENT STEP ...``."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from fednb.course.tools import ANSWER, STUB


def configure(config: Any) -> None:
    """What nbgrader is told here, by ``check``, and by the ``nbgrader_config.py`` of a course folder."""
    from nbgrader.converters import GenerateAssignment
    from nbgrader.preprocessors import ClearOutput, InstantiateTests

    config.CourseDirectory.course_id = "fednb"
    config.ClearSolutions.code_stub = {"python": STUB}
    config.ClearSolutions.text_stub = ANSWER
    steps = [step for step in GenerateAssignment().preprocessors if step not in (ClearOutput, InstantiateTests)]
    config.GenerateAssignment.preprocessors = steps  # the outputs of what is not asked for stay readable
    config.LockCells.lock_readonly_cells = False  # a student may play with them; they are put back for grading
    config.IgnorePattern.enabled = True
    config.IgnorePattern.pattern = "(?s).*"  # a warning on stderr would cost all points of a check
    config.Execute.timeout = int(os.environ.get("FEDNB_CELL_TIMEOUT", 60))  # seconds for a cell
    config.Execute.iopub_timeout = 60  # nbclient's 4 seconds for the output to arrive fail good work on a busy machine
    config.HTMLExporter.sanitize_html = True  # a feedback page is opened by others than who wrote its outputs


def main(folder: str, assignment: str, student: str, *names: str) -> int:
    from nbgrader import converters
    from nbgrader.converters.base import NbGraderException
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config import Config

    logging.basicConfig(format="%(message)s")  # without it nbgrader keeps what goes wrong to itself
    config = Config()
    configure(config)
    config.CourseDirectory.root = folder
    config.CourseDirectory.assignment_id = assignment
    config.CourseDirectory.student_id = student
    course = CourseDirectory(config=config)
    try:
        for name in names:
            getattr(converters, name)(coursedir=course, config=config, force=True).start()
    except NbGraderException:  # its log has said why
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
