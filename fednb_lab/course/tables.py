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
from fednb_lab.course.nbgrading import FOLDER, Grades, nbgrader_step, page_path
from fednb_lab.course.notebooks import (
    NO_ANSWER,
    NOT_DONE,
    counted,
    grade_id,
    is_check,
    marks_of,
    tags_of,
    title_of,
)
from fednb_lab.course.solutions import without_solution
from fednb_lab.words import in_csv

# What nbgrader's page calls a "Test cell" or a "Written response" in its list of links.
LINK = re.compile(r'(<a href="#(?:comment-)?([\w-]+)">)(?:Test cell|Written response)')


def write_tables(assignment: str, released: NotebookNode, notes: dict[str, Any]) -> Path:
    """Write all tables, and the pages that are missing, and return the path of the scores.

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
        said = "; ".join(all_remarks(note))
        of_student = {"student": student, "score": own.score, "max_score": own.max_score}
        by_hand = {"to_grade_by_hand": bool(own.waiting)}
        rows.append(of_student | by_hand | own.points | {"remarks": said})
        said = "; ".join(all_remarks(note, own))
        of_system = {"name": note["name"], "id": note["id"], "points": own.score}
        points.append(of_system | {"remark": said})
    path = FOLDER.absolute() / f"{assignment}.csv"
    _write(pd.DataFrame(rows), path)
    _write(pd.DataFrame(points), FOLDER / f"{assignment}-points.csv")
    exercises = by_exercise(released, graded, notes)
    _write(exercises, FOLDER / f"{assignment}-exercises.csv")
    _write_pages(assignment, graded, notes)
    num_notebooks = counted(int((exercises["graded"] + exercises["waiting"]).max()), "notebook")
    mean = f"{exercises['mean'].sum():.1f} of {exercises['points'].sum():g} points"
    print(f"Over {num_notebooks} on average {mean}, without answers that wait for a person")
    return path


def all_remarks(note: dict[str, Any], own: Grades | None = None) -> list[str]:
    """Return what there is to say of a student's exercises, and of the work as a whole.

    Also what waits for a person, if the gradebook's of this student are given.
    """
    said = [f"{title_of(name)}: {error}" for name, error in note["errors"].items()]
    said += note["remarks"]  # what has cost points comes first
    return [*said, "answers are still to be graded by hand"] if own and own.waiting else said


def by_exercise(
    released: NotebookNode, graded: dict[str, Grades], notes: dict[str, Any]
) -> pd.DataFrame:
    """Tell of each check and answer how the class did: points, and what went wrong most often.

    Who handed in no notebook is left out. While somebody's waits for a person there is no mean, as
    those who gave no answer have points already, namely none.
    """
    executed = [student for student in graded if notes[student]["executed"]]
    lines = []
    for cell in released.cells:
        name = grade_id(cell)
        most = marks_of(cell).get("points")
        if most is None:
            continue
        having = [graded[student] for student in executed if name in graded[student].points]
        done = [own.points[name] for own in having if name not in own.waiting]
        points = pd.Series(done, dtype=float)
        errors = [notes[student]["errors"].get(name) for student in executed]
        told = pd.Series(errors, dtype=str).dropna()
        lines.append(
            {
                "exercise": title_of(name),
                "points": most,
                "mean": round(points.mean(), 2) if len(done) == len(having) else None,
                "tried": len(having) - int(told.isin([NOT_DONE, NO_ANSWER]).sum()),
                "graded": len(done),
                "waiting": len(having) - len(done),
                "in full": int((points == most).sum()),
                "without points": int((points == 0).sum()),
                "most often": told.mode().get(0, ""),
            }
        )
    return pd.DataFrame(lines)


def _write(table: pd.DataFrame, path: Path) -> None:
    """Write a table that Excel opens with its umlauts, and in which it finds no formula."""
    safe = table.map(lambda value: in_csv(value) if isinstance(value, str) else value)
    write_atomically(path, safe.to_csv(index=False).encode("utf-8-sig"))


def _write_pages(assignment: str, graded: dict[str, Grades], notes: dict[str, Any]) -> None:
    """Write the pages that are missing, and zip all in folders as Moodle takes them back."""
    path = FOLDER / f"{assignment}-feedback.zip"
    unfinished = path.with_suffix(".part")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
        for student, own in graded.items():
            page = page_path(assignment, student)
            try:
                if not page.exists():
                    nbgrader_step("generate_feedback", assignment, student)
                    _put_on_top(page, notes[student], own)
                archive.write(page, f"{notes[student]['given']}/{page.name}")
            except CourseError as error:
                print(f"{student}: the page cannot be made ({error})", flush=True)
    unfinished.replace(path)


def _put_on_top(path: Path, note: dict[str, Any], own: Grades) -> None:
    """Give nbgrader's page the student's name and all remarks, and exercises their names."""
    page = LINK.sub(lambda link: link[1] + title_of(link[2]), path.read_text(encoding="utf-8"))
    said = "".join(f"<p>{html.escape(told)}.</p>" for told in all_remarks(note, own))
    page = page.replace("<h4>", f"<h4>{html.escape(note['name'])}: ", 1)
    write_atomically(path, page.replace('<div id="toc">', f'<div id="toc">{said}', 1))


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
