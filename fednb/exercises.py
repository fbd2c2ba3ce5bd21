"""What solved exercises and hand-outs import: hidden inputs, and the cells that exercises build on.

It imports next to nothing, as each check has a limit of time.
"""

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np

SETUP_TAGS = {"setup", "parameters", "export", "course"}  # tags of cells that grading executes


def draws(purpose: str) -> np.random.Generator:
    """Return the generator of a check's hidden inputs, such as ``draws("exercise 3")``.

    Students get different inputs, and each gets the same ones again when graded again: grading
    sets the student's number as ``FEDNB_STUDENT_SEED``.
    """
    student = int(os.environ.get("FEDNB_STUDENT_SEED", 0))
    return np.random.default_rng([student, zlib.crc32(purpose.encode())])


def prepare(name: str) -> None:
    """Execute what the exercises of a hand-out, or a notebook, build on, in the calling kernel.

    Those are the cells tagged setup, parameters, export or course. A notebook that lies nowhere,
    such as a hand-out that was renamed, is a `NotebookError`; an error of a cell is raised.
    """
    import IPython
    import nbformat
    from IPython.utils.capture import capture_output

    from fednb import papers
    from fednb.errors import NotebookError, check

    message = (
        f"{name} is not here, so this hand-out has been renamed: name it {name} again, or put its "
        "new name into prepare."
    )
    check(not name.endswith(".ipynb") or Path(name).is_file(), message, NotebookError)
    shell = IPython.get_ipython()
    notebook = nbformat.read(papers.path(name), as_version=4)
    built_on = [cell for cell in notebook.cells if _is_needed(cell)]
    for cell in built_on:
        with capture_output():
            shell.run_cell(cell.source).raise_error()
    print(f"{len(built_on)} cells executed: the exercises can begin.")


def _is_needed(cell: Any) -> bool:
    """Tell whether a cell is code that grading executes, but neither asked for nor a check."""
    marks = cell.metadata.get("nbgrader", {})
    is_of_exercise = marks.get("solution") or marks.get("grade")
    tags = set(cell.metadata.get("tags", []))
    return cell.cell_type == "code" and bool(SETUP_TAGS & tags) and not is_of_exercise
