"""What hand-outs and students call: what exercises build on, and the visible checks."""

from pathlib import Path

import IPython
from IPython.utils.capture import capture_output
from nbformat import NotebookNode

from fednb import papers
from fednb.errors import CourseError
from fednb_lab.course.assignment import (
    ANSWER,
    errors_by_cell,
    grade_id,
    is_built_on,
    marks_of,
    read_notebook,
)


def prepare(name: str | Path) -> None:
    """Execute what the exercises of a hand-out, or a notebook, build on, in the calling kernel."""
    shell = IPython.get_ipython()
    built_on = [cell for cell in read_notebook(papers.path(str(name))).cells if _is_needed(cell)]
    for cell in built_on:
        with capture_output():
            shell.run_cell(cell.source).raise_error()
    print(f"{len(built_on)} cells executed: the exercises can begin.")


def _is_needed(cell: NotebookNode) -> bool:
    """Whether a cell is code that grading executes, but neither asked for nor a check."""
    marks = marks_of(cell)
    is_of_exercise = marks.get("solution") or marks.get("grade")
    return cell.cell_type == "code" and is_built_on(cell) and not is_of_exercise


def check(path: Path) -> dict[str, str]:
    """Run the visible checks of a student's notebook.

    Returns what is wrong, by grade id: "" for a check that passed or an answer that was given.
    Cells that are not graded are in it if they are missing or were changed.
    """
    # with nbgrader, which `prepare` shall not need, and slow to import
    from fednb_lab.course import executor, kernel

    nb = read_notebook(path)
    if "assignment" not in nb.metadata.get("fednb", {}):
        raise CourseError(
            f"{path.name} is not a hand-out: its metadata names no assignment. "
            "Start from the file you got."
        )
    executor.execute(nb, str(path.absolute().parent))
    errors = errors_by_cell(nb)
    cells = {grade_id(cell): cell for cell in nb.cells}
    problems = {}
    for name in nb.metadata["fednb"]["cells"]:
        if name not in cells:
            problems[name] = "the cell is missing: put it back"
            continue
        cell = cells[name]
        marks = cell.metadata["nbgrader"]
        if marks["locked"] and kernel.compute_checksum(cell) != marks["checksum"]:
            problems[name] = (
                "the cell was changed, and will be put back for grading: put it back yourself first"
            )
        elif marks["grade"]:
            is_unanswered = cell.source.strip() == ANSWER
            problems[name] = "no answer yet" if is_unanswered else errors.get(name, "")
    return problems
