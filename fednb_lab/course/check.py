"""What students call: the visible checks, run as grading runs them."""

import itertools
import sys
from pathlib import Path

from fednb.errors import CourseError, guess_beside
from fednb_lab.course import sandbox
from fednb_lab.course.collect import is_ignored, is_notebook, take_along
from fednb_lab.course.notebooks import (
    changed,
    errors_by_cell,
    files_of,
    grade_id,
    handout_of,
    marks_of,
    merged,
    read_notebook,
    title_of,
)

MOST_FILES = 500  # in the folder of a hand-out
LIMITS = sandbox.Limits()


def check(path: Path, limits: sandbox.Limits = LIMITS) -> tuple[dict[str, str], list[str]]:
    """Run the visible checks of a student's notebook as grading would, in the sandbox if it can be.

    Returns what is wrong, by grade id: "" for a check that passed or an answer that was given; and
    remarks. Cells that are not graded are among the first if they are missing or were changed.
    """
    if not path.is_file():
        guess = guess_beside(path, "*.ipynb")
        raise CourseError(f"There is no file {path}{guess}: name what was handed out to you.")
    nb = read_notebook(path)
    handout = handout_of(nb)
    if not handout.cells:
        raise CourseError(
            f"{path.name} is no hand-out: its metadata does not say of what. Start from the file "
            f"that your teacher gave you; a teacher makes one by `fednb course release {path.stem}`. In a "
            "copy that `fednb copy` made run the cells below the exercises."
        )
    put_back = changed(nb, handout)
    whole, remarks = merged(nb, handout)
    folder = path.absolute().parent
    of_handout = {name: folder / name for name in files_of(nb) if (folder / name).is_file()}
    beside = {name: file for name, file in _files_in(folder).items() if name not in of_handout}
    files = take_along(beside, remarks) | of_handout
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
        elif name in errors:  # what the exercises build on
            remarks.append(f"{title_of(name)}, which is the hand-out's: {errors[name]}")
    return problems, remarks


def told(problems: dict[str, str]) -> list[str]:
    """Return what was found as lines, the last of which counts what passed."""
    lines = []
    for name, problem in problems.items():
        good = "given; a person grades it" if "answer" in name else "passed"
        lines.append(f"{title_of(name)}: {problem or good}")
    num_good = list(problems.values()).count("")
    return [*lines, f"{num_good} of {len(problems)} pass. Grading adds checks that you do not see."]


def _files_in(folder: Path) -> dict[str, Path]:
    """Return the files beside a notebook by name; those in folders, too, unless these are many."""
    within = list(itertools.islice(folder.rglob("*"), MOST_FILES + 1))
    files = within if len(within) <= MOST_FILES else folder.iterdir()
    places = {file.relative_to(folder): file for file in files if file.is_file()}
    return {
        place.as_posix(): file
        for place, file in places.items()
        if place.suffix != ".whl" and not is_ignored(*place.parts) and not is_notebook(place)
    }
