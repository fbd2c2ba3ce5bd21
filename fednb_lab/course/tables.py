"""What grading leaves: tables of all who were graded in a course folder, and their pages."""

import html
import re
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor

from fednb.errors import CourseError
from fednb.records import write_atomically
from fednb_lab.course import nbgrading
from fednb_lab.course.handout import EXERCISE
from fednb_lab.course.nbgrading import FOLDER, Grades, nbgrader_step, notebook_path
from fednb_lab.course.notebooks import (
    NO_ANSWER,
    NOT_DONE,
    NOTHING,
    counted,
    grade_id,
    is_check,
    marks_of,
    tags_of,
    title_of,
)
from fednb_lab.course.solutions import without_solution
from fednb_lab.words import in_csv

WAITS = "waits for a person"
TOP = re.compile(r'(?s)<h4>.*?<div id="toc">.*?</div>')  # of nbgrader's page


def write_tables(assignment: str, released: NotebookNode, notes: dict[str, Any]) -> Path:
    """Write all tables and pages, and return the path of the scores.

    The tables are ``ASSIGNMENT.csv``; ``ASSIGNMENT-points.csv`` for a learning-management system;
    ``ASSIGNMENT-exercises.csv``, how the class did in each exercise; and
    ``ASSIGNMENT-feedback.zip``, whose folders have the names of what came in. ``notes`` has the
    names, remarks and errors by student.
    """
    graded = {
        name: all_of for name, all_of in nbgrading.grades(assignment).items() if name in notes
    }
    rows = []
    points = []
    for student, own in graded.items():
        note = notes[student]
        said = all_remarks(note)
        of_student = {"student": student, "score": own.score, "max_score": own.max_score}
        by_hand = {"to_grade_by_hand": bool(own.waiting)}
        rows.append(of_student | by_hand | own.points | {"remarks": "; ".join(said)})
        if own.waiting:
            said.append("answers are still to be graded by hand")
        of_system = {"name": note["name"], "id": note["id"], "points": own.score}
        points.append(of_system | {"remark": "; ".join(said)})
    listed = nbgrading.listed_students()
    missing = sorted(set(listed) - set(graded))
    if missing:
        print(f"Missing: {', '.join(missing)}", flush=True)
    others = sorted(set(graded) - set(listed))
    if listed and others:
        print(f"Not in your list of students: {', '.join(others)}", flush=True)
    for student in missing:
        name, number = listed[student]
        rows.append({"student": student, "remarks": "missing"})
        points.append({"name": name, "id": number, "remark": "missing"})
    path = FOLDER.absolute() / f"{assignment}.csv"
    separator = nbgrading.settings().get("separator", ",")  # a course may have older settings
    _write(pd.DataFrame(rows), path, separator)
    _write(pd.DataFrame(points), FOLDER / f"{assignment}-points.csv")
    exercises = by_exercise(released, graded, notes)
    _write(exercises, FOLDER / f"{assignment}-exercises.csv", separator)
    _write_pages(assignment, released, graded, notes)
    print(average(exercises), flush=True)
    return path


def all_remarks(note: dict[str, Any]) -> list[str]:
    """Return what there is to say of a student's work as a whole, and of its exercises."""
    if NOTHING in note["remarks"]:
        return list(note["remarks"])
    errors = [f"{title_of(name)}: {error}" for name, error in note["errors"].items()]
    return [*errors, *note["remarks"]]  # what has cost points comes first


def by_exercise(
    released: NotebookNode, graded: dict[str, Grades], notes: dict[str, Any]
) -> pd.DataFrame:
    """Tell of each check and answer how the class did: points, and what went wrong most often.

    Who handed in no notebook is left out. While somebody's waits for a person there is no mean, as
    those who gave no answer have points already, namely none.
    """
    executed = [own for one, own in graded.items() if notes[one].get("executed", True)]
    lines = []
    for cell in released.cells:
        marks = marks_of(cell)
        if not marks.get("grade"):
            continue
        name = grade_id(cell)
        having = [own for own in executed if name in own.points]  # a new check is not there
        done = [own.points[name] for own in having if name not in own.waiting]
        waiting = len(having) - len(done)
        points = pd.Series(done, dtype=float)
        errors = [note["errors"][name] for note in notes.values() if name in note["errors"]]
        num_untried = errors.count(NOT_DONE) + errors.count(NO_ANSWER)
        lines.append(
            {
                "exercise": title_of(name),
                "points": marks["points"],
                "mean": None if waiting else round(points.mean(), 2),
                "tried": len(having) - num_untried,
                "graded": len(points),
                "waiting": waiting,
                "in full": int((points == marks["points"]).sum()),
                "without points": int((points == 0).sum()),
                "most often": max(errors, key=errors.count) if errors else "",
            }
        )
    return pd.DataFrame(lines)


def average(exercises: pd.DataFrame) -> str:
    """Tell the points on average, of what nobody waits for, and how many more there are."""
    notebooks = counted((exercises["graded"] + exercises["waiting"]).max(), "notebook")
    is_waiting = exercises["waiting"] > 0
    done = exercises[~is_waiting]
    mean = f"{done['mean'].sum():.1f} of {done['points'].sum():g} points"
    told = f"Over {notebooks} on average {mean}"
    more = exercises["points"][is_waiting].sum()
    return f"{told}; {more:g} more points wait for a person" if more else told


def _write(table: pd.DataFrame, path: Path, separator: str = ",") -> None:
    """Write a table that Excel opens with its umlauts, and in which it finds no formula."""
    safe = table.map(lambda value: in_csv(value) if isinstance(value, str) else value)
    text = safe.to_csv(index=False, sep=separator, decimal="," if separator == ";" else ".")
    write_atomically(path, text.encode("utf-8-sig"))


def _write_pages(
    assignment: str, released: NotebookNode, graded: dict[str, Grades], notes: dict[str, Any]
) -> None:
    """Write pages of feedback, and zip them in folders as Moodle takes them back.

    Only those whose grades or comments have changed are made anew.
    """
    pages = {one: notebook_path("feedback", assignment, one).with_suffix(".html") for one in graded}
    tops = {one: _top(assignment, released, own, notes[one]) for one, own in graded.items()}
    old = {one: page.read_text("utf-8") for one, page in pages.items() if page.exists()}
    changed = [one for one in graded if tops[one] not in old.get(one, "")]
    if changed:
        pages_of = counted(len(changed), "page")
        print(f"Making {pages_of}, which takes a second or two for each", flush=True)
    for student in changed:
        try:
            nbgrader_step("generate_feedback", assignment, student)
            _put_on_top(pages[student], tops[student], graded[student])
        except CourseError as error:
            print(f"{student}: the page cannot be made ({error})", flush=True)
    path = FOLDER / f"{assignment}-feedback.zip"
    unfinished = path.with_suffix(".part")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
        for student, page in pages.items():
            if page.exists():
                archive.write(page, f"{notes[student]['given']}/{page.name}")
    unfinished.replace(path)


class Excerpt(NbGraderPreprocessor):
    """What nbgrader makes a page of: the exercises, without their hidden tests.

    Of what a check has put out only what the error says is left, as tracebacks show lines of code.
    """

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """Leave out of a graded notebook, in place, what a page does not show."""
        is_heading = [bool(EXERCISE.match(cell.source)) for cell in nb.cells]
        exercises = nb.cells[is_heading.index(True) :]
        nb.cells = [cell for cell in exercises if "skip-execution" not in tags_of(cell)]
        for cell in filter(is_check, nb.cells):
            cell.source = without_solution(cell)
            cell.outputs = [one for one in cell.outputs if one.output_type == "error"]
            for error in cell.outputs:
                error.traceback = [f"{error.ename}: {error.evalue}"]
        return nb, resources


def _top(assignment: str, released: NotebookNode, own: Grades, note: dict[str, Any]) -> str:
    """Return what stands on top of a page: name, points, and a line for each exercise."""
    lines = []
    for cell in released.cells:
        name = grade_id(cell)
        comment = " ".join(own.comments.get(name, "").split())
        is_graded = bool(marks_of(cell).get("grade"))
        if not is_graded and not comment:
            continue
        points = own.points.get(name)
        said = [WAITS if name in own.waiting else "", note["errors"].get(name, ""), comment]
        values = [
            "" if points is None else f"{points:g}",
            f"{marks_of(cell)['points']:g}" if is_graded else "",
            html.escape("; ".join(filter(None, said))),
        ]
        place = name if is_graded else f"comment-{name}"
        link = f'<a href="#{place}">{title_of(name)}</a>'
        lines.append("".join(f"<td>{value}</td>" for value in [link, *values]))
    so_far = " so far" if own.waiting else ""
    title = f"{note['name']}: {own.score:g} of {own.max_score:g} points in {assignment}{so_far}"
    head = "".join(f"<th>{word}</th>" for word in ("exercise", "points", "of", "remark"))
    rows = "".join(f"<tr>{line}</tr>" for line in [head, *lines])
    remarks = "".join(f"<p>{html.escape(said)}.</p>" for said in note["remarks"])
    table = f'<table class="table">{rows}</table>'
    return f'<h4>{html.escape(title)}</h4><div id="toc">{remarks}{table}</div>'


def _put_on_top(page: Path, top: str, own: Grades) -> None:
    """Put that in place of nbgrader's list, in which each exercise is a "Test cell"."""
    text = TOP.sub(lambda _: top, page.read_text(encoding="utf-8"), count=1)
    for name in own.waiting:
        panel = rf'(?s)(<a name="{name}"></a>.{{,400}}?)Score: 0\.0 / ([\d.]+)'
        text = re.sub(panel, rf"\1\2 points: {WAITS}", text, count=1)
    write_atomically(page, text)
