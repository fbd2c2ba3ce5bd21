"""The commands ``fednb course ...``, of the same form as those of `fednb_lab.commands`."""

import sys
from pathlib import Path

import click

from fednb.errors import CourseError, NotebookError, check
from fednb_lab.arguments import COUNT, NOTEBOOK, course

_NBGRADER = "Starting nbgrader, which takes some seconds"


@course.command("release")
@NOTEBOOK
def course_release(notebook: str) -> None:
    """Write a notebook's hand-out for students into course/release; to read one yourself, `copy` it.

    fednb course release 01_moon
    """
    from fednb import papers

    papers.path(notebook)
    is_new = not Path("course").exists()
    print(_NBGRADER, file=sys.stderr, flush=True)
    from fednb_lab.course import handout

    print(f"Hand out what is in {handout.release(notebook).parent}")
    for told in handout.missing_tags(notebook):
        print(f"warning: {told}")
    print("Students install the wheel in course/students: it holds no solutions")
    if is_new:
        print(f"The course folder is new: call `fednb course grade` here, too, in {Path.cwd()}")


@course.command("split")
@NOTEBOOK
def course_split(notebook: str) -> None:
    """Move a notebook's solutions into solutions/NOTEBOOK.ipynb, and leave empty stubs.

    fednb course split 01_moon
    """
    from fednb_lab.course import solutions

    print(f"Solutions are in {solutions.split(notebook)}")


@course.command("check")
@click.argument("path", type=Path, metavar="FILE", help="that was handed out")
def course_check(path: Path) -> int:
    """For students: run the visible checks of a hand-out.

    fednb course check 01_moon.ipynb
    """
    from fednb_lab.course.check import check, told

    problems, remarks = check(path)
    print(*told(problems), *(f"note: {remark}" for remark in remarks), sep="\n")
    is_wrong = any(problems.values())
    if not is_wrong:
        print(f"Hand in {path}.")
    return int(is_wrong)


@course.command("grade")
@NOTEBOOK
@click.argument(
    "path",
    type=Path,
    required=False,
    metavar="[FOLDER]",
    help="or zip, with NAME.ipynb or NAME/...; without it, only tables and pages are made anew",
)
@click.option("--jobs", type=COUNT, default=1, metavar="N", help="submissions at once (default: 1)")
@click.option("--no-sandbox", is_flag=True, help="submissions can do all that you can")
def course_grade(notebook: str, path: Path | None, jobs: int, no_sandbox: bool) -> None:
    """Grade a folder of submissions: scores as CSV, and feedback pages.

    fednb course grade 01_moon submitted
    fednb course grade 01_moon
    """
    from fednb import papers

    try:
        papers.path(notebook)
    except NotebookError as error:
        is_here = Path("course", "source", notebook).exists()
        way_out = f"{notebook} was released here: set FEDNB_NOTEBOOKS to the folder it lies in."
        check(not is_here, way_out, CourseError)
        raise error
    message = f"{path} is not there: name a folder or a zip of submissions."
    check(path is None or path.exists(), message, CourseError)
    print(_NBGRADER, file=sys.stderr, flush=True)
    from fednb_lab.course import grading

    if path is None:
        scores = grading.refresh(notebook)
    else:
        is_sandboxed = not no_sandbox
        scores = grading.grade(notebook, path, jobs=jobs, is_sandboxed=is_sandboxed)
    name = scores.with_suffix("")
    print(f"scores: {scores}\nby exercise: {name}-exercises.csv")
    print(f"for a learning-management system: {name}-points.csv")
    print(f"feedback: {scores.parent / 'feedback'}, to upload: {name}-feedback.zip")
    print(f"gradebook: {scores.with_name('gradebook.db')}")
