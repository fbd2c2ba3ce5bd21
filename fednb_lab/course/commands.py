"""The commands ``fednb course ...``, of the same form as those of `fednb_lab.commands`."""

import argparse
import sys
from pathlib import Path

from fednb.errors import CourseError, NotebookError, check
from fednb_lab.arguments import NOTEBOOK, argument, command, count

_NBGRADER = "Starting nbgrader, which takes some seconds"


@command("course release", NOTEBOOK)
def course_release(args: argparse.Namespace) -> None:
    """Write a notebook's hand-out for students into course/release; to read one yourself, `copy` it.

    fednb course release 01_moon
    """
    from fednb import papers

    papers.path(args.notebook)
    is_new = not Path("course").exists()
    print(_NBGRADER, file=sys.stderr, flush=True)
    from fednb_lab.course import handout

    print(f"Hand out what is in {handout.release(args.notebook).parent}")
    for told in handout.missing_tags(args.notebook):
        print(f"warning: {told}")
    print("Students install the wheel in course/students: it holds no solutions")
    if is_new:
        print(f"The course folder is new: call `fednb course grade` here, too, in {Path.cwd()}")


@command("course split", NOTEBOOK)
def course_split(args: argparse.Namespace) -> None:
    """Move a notebook's solutions into solutions/NOTEBOOK.ipynb, and leave empty stubs.

    fednb course split 01_moon
    """
    from fednb_lab.course import solutions

    print(f"Solutions are in {solutions.split(args.notebook)}")


@command("course check", argument("path", type=Path, metavar="FILE", help="that was handed out"))
def course_check(args: argparse.Namespace) -> int:
    """For students: run the visible checks of a hand-out.

    fednb course check 01_moon.ipynb
    """
    from fednb_lab.course.check import check, told

    problems, remarks = check(args.path)
    print(*told(problems), *(f"note: {remark}" for remark in remarks), sep="\n")
    is_wrong = any(problems.values())
    if not is_wrong:
        print(f"Hand in {args.path}.")
    return int(is_wrong)


@command(
    "course grade",
    NOTEBOOK,
    argument(
        "path",
        type=Path,
        nargs="?",
        metavar="FOLDER",
        help="or zip, with NAME.ipynb or NAME/...; without it, only tables and pages are made anew",
    ),
    argument("--jobs", type=count, default=1, metavar="N", help="submissions at once (default: 1)"),
    argument("--no-sandbox", action="store_true", help="submissions can do all that you can"),
)
def course_grade(args: argparse.Namespace) -> None:
    """Grade a folder of submissions: scores as CSV, and feedback pages.

    fednb course grade 01_moon submitted
    fednb course grade 01_moon
    """
    from fednb import papers

    try:
        papers.path(args.notebook)
    except NotebookError as error:
        is_here = Path("course", "source", args.notebook).exists()
        way_out = (
            f"{args.notebook} was released here: set FEDNB_NOTEBOOKS to the folder it lies in."
        )
        check(not is_here, way_out, CourseError)
        raise error
    message = f"{args.path} is not there: name a folder or a zip of submissions."
    check(args.path is None or args.path.exists(), message, CourseError)
    print(_NBGRADER, file=sys.stderr, flush=True)
    from fednb_lab.course import grading

    if args.path is None:
        path = grading.refresh(args.notebook)
    else:
        is_sandboxed = not args.no_sandbox
        path = grading.grade(args.notebook, args.path, jobs=args.jobs, is_sandboxed=is_sandboxed)
    name = path.with_suffix("")
    print(f"scores: {path}\nby exercise: {name}-exercises.csv")
    print(f"for a learning-management system: {name}-points.csv")
    print(f"feedback: {path.parent / 'feedback'}, to upload: {name}-feedback.zip")
    print(f"gradebook: {path.with_name('gradebook.db')}")
