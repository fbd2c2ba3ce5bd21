"""What students run: the checks of a hand-out, the cells on which its exercises build, and the draws of hidden tests."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import numpy as np
from nbformat import NotebookNode

from fednb.course.handout import CourseError, grade_id, read

SEED = "FEDNB_STUDENT_SEED"
SETTINGS = {"FEDNB_PROGRESS": "off", "FEDNB_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "agg"}
STUB = "# YOUR CODE HERE\nraise NotImplementedError()"
ANSWER = "*Your answer here.*"


def draws(purpose: str) -> np.random.Generator:
    """The generator of hidden inputs: other draws for each student, the same ones whenever a student is graded."""
    return np.random.default_rng([int(os.environ.get(SEED, 0)), zlib.crc32(purpose.encode())])


def prepare(path: str | Path) -> None:
    """Execute what the exercises of a hand-out build on, in the kernel that calls it."""
    from IPython import get_ipython
    from IPython.utils.capture import capture_output

    shell, number = get_ipython(), 0
    for cell in read(Path(path)).cells:
        marks = cell.metadata.get("nbgrader", {})
        if cell.cell_type == "code" and marks and not marks["solution"] and not marks["grade"]:
            number += 1
            with capture_output():
                result = shell.run_cell(cell.source)
            result.raise_error()
    print(f"{number} cells executed: the exercises can begin.")


def check(path: Path) -> dict[str, str]:
    """Run the visible checks of a student's notebook: what is wrong, or nothing, by check and by cell that was changed."""
    from fednb.course import steps

    nb = read(path)
    if "assignment" not in nb.metadata.get("fednb", {}):
        raise CourseError(f"{path.name} is not a hand-out: its metadata names no assignment. Start from the file that you got.")
    os.environ |= SETTINGS
    steps.execute(nb, str(path.absolute().parent), steps.configure(steps.Config()))
    wrong, cells = errors(nb), {grade_id(cell): cell for cell in nb.cells}
    told = {}
    for name in nb.metadata["fednb"]["cells"]:
        marks = cells[name].metadata["nbgrader"] if name in cells else {}
        if not marks:
            told[name] = "the cell is missing: put it back"
        elif marks["locked"] and steps.compute_checksum(cells[name]) != marks["checksum"]:
            told[name] = "the cell was changed, and will be put back for grading: put it back yourself first"
        elif marks["grade"]:
            told[name] = "no answer yet" if cells[name].source.strip() == ANSWER else wrong.get(name, "")
    return told


def errors(nb: NotebookNode) -> dict[str, str]:
    """What went wrong in an executed notebook, by name of a cell; at a check, its solution's own error comes first."""
    found, cause = {}, ""
    for cell in filter(grade_id, nb.cells):
        marks = cell.metadata["nbgrader"]
        said = [f"{o.ename}: {o.evalue}" for o in cell.get("outputs", []) if o.output_type == "error"]
        error = said[-1].partition("\n")[0][:200] if said else ""
        if marks["grade"]:
            error, cause = error and (cause or error), ""
        elif marks["solution"]:
            cause = "not done yet" if STUB.splitlines()[-1] in cell.source else error
        if error:
            found[grade_id(cell)] = error
    return found
