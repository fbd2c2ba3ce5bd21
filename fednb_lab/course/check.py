"""What students call: the visible checks, run as grading runs them."""

import itertools
import sys
from pathlib import Path

from nbformat import NotebookNode

from fednb.errors import CourseError, guess_beside
from fednb_lab.course import sandbox, solutions
from fednb_lab.course.collect import is_litter, is_notebook, take_along
from fednb_lab.course.inside import Limits
from fednb_lab.course.merging import changed, merged
from fednb_lab.course.notebooks import (
    counted,
    errors_by_cell,
    exercise_of,
    files_of,
    grade_id,
    handout_of,
    marks_of,
    read_notebook,
    title_of,
)

MOST_FILES = 500  # in the folder of a hand-out
LIMITS = Limits()


def check(
    path: Path, limits: Limits = LIMITS, exercise: int | None = None
) -> tuple[dict[str, str], list[str]]:
    """Run the visible checks of a student's notebook as grading would, in the sandbox if it can be.

    Returns what is wrong, by grade id: "" for a check that passed or an answer that was given; and
    remarks. Cells that are not graded are among the first if they are missing or were changed. Of
    one ``exercise`` the solutions above it are executed, too, but no other check.
    """
    if path.is_dir():
        example = [f", for example {notebook}" for notebook in sorted(path.glob("*.ipynb"))][:1]
        raise CourseError(f"{path} is a folder: name the notebook in it{''.join(example)}.")
    if not path.is_file():
        guess = guess_beside(path, "*.ipynb")
        raise CourseError(f"There is no file {path}{guess}: name what was handed out to you.")
    nb = read_notebook(path)
    handout = handout_of(nb)
    if not handout.cells:
        name = path.stem.partition("-")[0]
        can_make_one = solutions.where(path).exists()  # they are not in a students' installation
        way_out = f"make one: `fednb course release {name}` writes course/release"
        raise CourseError(
            f"{path.name} is no hand-out: its metadata does not say of what. In a copy that `fednb "
            "copy` made run the cells below the exercises. For a hand-out start from the file you "
            f"got, or {way_out if can_make_one else 'ask your teacher for it'}."
        )
    put_back = changed(nb, handout)
    whole, remarks = merged(nb, handout)
    if exercise:
        whole.cells = _only(exercise, whole.cells)
    folder = path.absolute().parent
    name = f"{nb.metadata['fednb'].get('assignment')}.ipynb"
    if path.name != name and not (folder / name).exists():
        remarks.append(f"call it {name} again, or the cell to run first fails in JupyterLab")
    of_handout = {folder / name for name in files_of(nb)}
    beside = [file for file in _files_in(folder) if file not in of_handout]
    files = take_along(folder, beside, {}, remarks)
    files |= {file.relative_to(folder).as_posix(): file for file in of_handout if file.is_file()}
    print("Executing the notebook, which takes as long as its cells", file=sys.stderr, flush=True)
    is_sandboxed = not sandbox.missing()
    if not is_sandboxed:
        remarks.append(
            "this machine has no bubblewrap, so the checks can read your files and reach the "
            "network, which grading will not let them"
        )
    sandbox.execute(whole, files, limits, student_seed=0, is_sandboxed=is_sandboxed)
    errors = errors_by_cell(whole)
    problems = {}
    for cell in whole.cells:
        name = grade_id(cell)
        is_graded = bool(marks_of(cell).get("grade"))
        if is_graded or name in put_back:
            problems[name] = put_back.get(name) or errors.get(name, "")
        if name in errors and not is_graded:  # what the exercises build on
            remarks.append(f"{title_of(name)}, which is the hand-out's: {errors[name]}")
    return problems, remarks


def _only(exercise: int, cells: list[NotebookNode]) -> list[NotebookNode]:
    """Return the cells up to the end of an exercise, without the checks of others."""
    numbers = [exercise_of(grade_id(cell)) for cell in cells]
    if exercise not in numbers:
        last = max(number or 0 for number in numbers)
        raise CourseError(f"There is no exercise {exercise}: they are 1 to {last}.")
    end = len(numbers) - numbers[::-1].index(exercise)
    return [
        cell
        for cell, number in zip(cells[:end], numbers, strict=False)
        if number == exercise or not marks_of(cell).get("grade")
    ]


def told(problems: dict[str, str]) -> list[str]:
    """Return what was found as lines, the last of which counts the exercises."""
    lines = []
    failed = set()
    numbers = {exercise_of(name) for name in problems} - {None}
    for name, problem in problems.items():
        good = "given; a person grades it" if "answer" in name else "passed"
        lines.append(f"{title_of(name)}: {problem or good}")
        if problem:
            failed.add(exercise_of(name))
    return [*lines, f"{len(numbers - failed)} of {len(numbers)} exercises pass"]


def ready(path: Path, problems: dict[str, str]) -> str:
    """Return what is left to do with a notebook in which nothing is wrong."""
    num_answers = sum("answer" in name for name in problems)
    waiting = f", and a person will grade {counted(num_answers, 'answer')} in words"
    return (
        f"All checks that you see pass{waiting if num_answers else ''}. Grading adds checks that "
        f"you do not see. Hand in {path}."
    )


def _files_in(folder: Path) -> list[Path]:
    """Return the files beside a notebook; those in folders, too, unless these are many."""
    within = list(itertools.islice(folder.rglob("*"), MOST_FILES + 1))
    places = within if len(within) <= MOST_FILES else folder.iterdir()
    return sorted(
        place
        for place in places
        if place.is_file()
        and place.suffix != ".whl"
        and not is_litter(*place.relative_to(folder).parts)
        and not is_notebook(place)
    )
