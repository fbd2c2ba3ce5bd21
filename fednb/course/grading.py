"""Grading a folder of submissions by nbgrader: whatever is handed in gets a score and a reason, and changes no other's.

Each is executed on a copy of its own inside a fence. Its points are noted as they are made, and compared at the end.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import html
import json
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import pandas as pd
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from fednb import ROOT, papers
from fednb.course import fence
from fednb.course.checking import last_line
from fednb.course.handout import bare, parts, read, release
from fednb.course.tools import FOLDER, SEED, CourseError, course_folder, nbgrader

EXCUSE = "> **Not graded.**"
LARGEST = 20 << 20  # bytes of a file that is looked at
KERNEL = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]


@dataclass
class Submission:
    """What a student handed in: a file or, if there is none that can be graded, the reason."""

    student: str
    path: Path | None
    remarks: list[str] = field(default_factory=list)
    noted: dict[str, float | None] | None = None  # points by check, as they were made; None if there are none to tell

    def content(self) -> bytes:
        """What is in the file, up to a byte too much."""
        if self.path is None:
            return b""
        with self.path.open("rb") as file:
            return file.read(LARGEST + 1)


def submissions(folder: Path, notebook: str) -> list[Submission]:
    """What lies in a folder: ``student.ipynb``, or ``student/…/notebook.ipynb`` as nbgrader and most platforms have it."""
    found: list[Submission] = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "_")):
            continue
        alone = entry.is_symlink() or not entry.is_dir()
        inside = [entry] if alone else sorted(Path(place, name) for place, _, names in os.walk(entry) for name in names)
        files = [p for p in inside if p.is_file() and not p.is_symlink() and ".ipynb_checkpoints" not in p.parts]
        named = [p for p in files if p.name == f"{notebook}.ipynb"] or [p for p in files if p.suffix == ".ipynb"]
        files = named or files
        student = re.sub(r"[^\w.@-]+|^\W+", "_", entry.stem if alone else entry.name)  # no option, and no formula
        one = Submission(student, files[0] if files else None)
        if any(other.student == student for other in found):
            one.student += f"_{len(found)}"
            one.remarks.append(f"another file is {student}'s too")
        if any(p.is_symlink() for p in inside):
            one.remarks.append("a link is not followed")
        if not files:
            one.remarks.append("nothing was handed in")
        elif len(files) > 1:
            one.remarks.append(f"{len(files)} files were handed in; graded is {files[0].name}")
        found.append(one)
    if not found:
        raise CourseError(f"There is no submission in {folder}.")
    return found


def assignment_of(found: list[Submission]) -> str:
    """What most submissions say that they are."""
    named: Counter[str] = Counter()
    for one in found:
        with contextlib.suppress(Exception):  # whatever a stranger's file may hold: it has no vote, and is told why later
            named[json.loads(one.content())["metadata"]["fednb"]["assignment"].strip()] += 1
    if not named:
        raise CourseError("No file says what assignment it is: name it, --assignment 01_moon-exercises.")
    return named.most_common(1)[0][0]


def _name(cell: NotebookNode) -> str:
    marks = cell.get("metadata", {}).get("nbgrader")
    return str(marks.get("grade_id")) if isinstance(marks, dict) else ""


def repaired(nb: NotebookNode, released: NotebookNode) -> tuple[NotebookNode, list[str]]:
    """The hand-out with the sources and additional cells of a submission, and remarks: nothing else of it can be trusted.

    nbgrader puts back the text of locked cells. But tags can keep a check from being executed, which counts as passed,
    metadata can take it out of the grading, and cells that are missing, or there twice, can end the grading.
    """
    by_name = {_name(cell): cell for cell in released.cells if _name(cell)}
    by_id = {cell.id: cell for cell in released.cells}
    by_source = {cell.source: cell for cell in released.cells}  # for old formats, without ids
    cells = []
    for given in nb.cells:
        twin = by_name.get(_name(given)) or (by_id.get(given.id) if "id" in given else by_source.get(given.source))
        cell = copy.deepcopy(twin) if twin else (new_code_cell if given.cell_type == "code" else new_markdown_cell)()
        cell.source = given.source
        cells.append(cell)
    remarks, last = [], -1
    for name, cell in by_name.items():
        places = [place for place, other in enumerate(cells) if _name(other) == name]
        if len(places) > 1:
            remarks.append(f"{name} is there {len(places)} times: the last counts")
            for place in places[:-1]:
                cells[place].metadata = NotebookNode()
        elif not places:
            remarks.append(f"{name} is missing")
            places = [last + 1]
            cells.insert(last + 1, copy.deepcopy(cell))
        last = max(last, *places)
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    return NotebookNode({**copy.deepcopy(released), "cells": cells}), remarks


def _late(cell: NotebookNode) -> bool:
    return any(output.get("ename") in ("CellTimeoutError", "KeyboardInterrupt") for output in cell.get("outputs", []))


def _errors(nb: NotebookNode) -> dict[str, str]:
    """What went wrong in an autograded notebook, check by check; a solution cell's own error before that of its check."""
    found: dict[str, str] = {}
    cause = ""
    for cell in nb.cells if EXCUSE not in nb.cells[0].source else ():
        marks = cell.metadata.get("nbgrader", {})
        said = [output for output in cell.get("outputs", []) if output.output_type == "error"]
        error = last_line("\n".join(said[0].traceback) or f"{said[0].ename}: {said[0].evalue}") if said else ""
        error = "stopped, as it took too long" if _late(cell) else error
        if marks.get("solution"):
            cause = error
        elif marks.get("grade") and error:
            found[marks["grade_id"]], cause = cause or error, ""
    return found


@dataclass
class Grader:
    """Grades the submissions to an assignment, one after the other."""

    folder: Path
    assignment: str
    handed_in: Path
    notebooks: Path  # what a submission may import
    seed: str
    timeout: int
    limit: int

    def __post_init__(self) -> None:
        self.notebook, kind = parts(self.assignment)
        self.solved, released = (self.place(step, "") for step in ("source", "release"))
        if not (released.exists() and self.solved.exists() and (self.folder / "gradebook.db").exists()):
            release(self.notebook, kind, self.folder)
        self.released = read(released)
        bare(self.notebooks, [path.stem for path in papers.notebooks()])

    def place(self, step: str, student: str) -> Path:
        return self.folder / step / student / self.assignment / f"{self.notebook}.ipynb"

    def seed_of(self, one: Submission) -> int:
        return zlib.crc32(f"{self.seed} {one.student}".encode())

    def grade(self, one: Submission) -> None:
        """Grade a submission; what fails by itself, or because the machine is slow, gets a second try."""
        nb = self.submitted(one)
        error, late = self.execute(one, nb, self.timeout)
        if error.startswith("failed") or late:
            error, late = self.execute(one, nb, 3 * self.timeout)
        if error:
            one.remarks.append(f"executing it {error}, so it scores zero")
        if late:
            one.remarks.append(f"no points yet, as the hand-out's own {late[0]} took too long: call the same command again")
        if error or late:
            error, _ = self.execute(one, self.excuse(one), 3 * self.timeout)
            if error:
                raise CourseError(f"Not even executing the untouched hand-out goes well: it {error}.")
        one.noted = None if late else {name: grade[0] for name, grade in self.grades(one).items()}

    def submitted(self, one: Submission) -> NotebookNode:
        """The notebook to grade for a submission; the untouched hand-out if it cannot be graded."""
        try:
            if one.path is None:
                return self.excuse(one)
            if len(one.content()) > LARGEST:
                raise CourseError(f"{one.path.name} is larger than {LARGEST >> 20} MB")
            nb = read(one.path)
            if (other := nb.metadata.get("fednb", {}).get("assignment", self.assignment)) != self.assignment:
                raise CourseError(f"{one.path.name} is the hand-out of {str(other)[:100]}, not of {self.assignment}")
            nb, remarks = repaired(nb, self.released)
        except CourseError as error:
            one.remarks.append(str(error).rstrip("."))
        except Exception as error:  # whatever a stranger's file may hold
            one.remarks.append(f"{one.path.name} cannot be read as a notebook ({type(error).__name__})")
        else:
            one.remarks += remarks
            return nb
        return self.excuse(one)

    def excuse(self, one: Submission) -> NotebookNode:
        """The untouched hand-out, with the reason why it stands for the submission."""
        nb = copy.deepcopy(self.released)
        nb.cells[0] = new_markdown_cell(f"{EXCUSE} {html.escape('; '.join(one.remarks))}.", id="course-note")
        return nb

    def execute(self, one: Submission, nb: NotebookNode, timeout: int) -> tuple[str, list[str]]:
        """Have nbgrader grade a notebook in a room of its own; what ended it, and cells of the hand-out that were late."""
        place = self.place("submitted", one.student)
        place.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(nb, place)
        with tempfile.TemporaryDirectory(prefix="course-") as name:
            room = Path(name)
            shutil.copytree(self.notebooks, room / "notebooks")
            hidden = [self.folder, self.handed_in, papers.folder(), ROOT / "notebooks"]
            spec = {"argv": fence.inside(room, hidden, KERNEL), "display_name": "fenced", "language": "python"}
            (room / "kernels" / "python3").mkdir(parents=True)
            (room / "kernels" / "python3" / "kernel.json").write_text(json.dumps(spec))
            given = {"HOME": f"{room}/home", "JUPYTER_PATH": name, "FEDNB_NOTEBOOKS": f"{room}/notebooks"}
            given |= {
                "FEDNB_RUNS": str(room / "home" / "runs"),
                "FEDNB_CELL_TIMEOUT": str(timeout),
                SEED: str(self.seed_of(one)),
            }
            try:
                steps = ("Autograde", "GenerateFeedback")
                nbgrader(self.folder, self.assignment, *steps, student=one.student, seconds=self.limit, **given)
            except fence.Stopped as error:
                return f"was stopped ({error})", []
            except CourseError as error:
                return f"failed ({str(error).partition(' (all it said')[0]})", []
        marks = [(cell.metadata.get("nbgrader"), cell) for cell in read(self.place("autograded", one.student)).cells]
        return "", [m["grade_id"] for m, cell in marks if m and not (m["grade"] or m["solution"]) and _late(cell)]

    def grades(self, one: Submission) -> dict[str, tuple[float | None, float, float, bool]]:
        """What nbgrader's gradebook has: points by machine, points, most points, and whether a person has still to grade."""
        from nbgrader.api import Gradebook

        with Gradebook(f"sqlite:///{self.folder / 'gradebook.db'}", "fednb") as book:
            found = book.find_submission_notebook(self.notebook, self.assignment, one.student).grades
            rows = {
                grade.name: (grade.auto_score, grade.score, grade.max_score, grade.needs_manual_grade) for grade in found
            }
        order = [_name(cell) for cell in self.released.cells]
        return dict(sorted(rows.items(), key=lambda item: order.index(item[0])))

    def row(self, one: Submission) -> dict[str, object]:
        """What the table says of a submission."""
        checks, errors = self.grades(one), _errors(read(self.place("autograded", one.student)))
        row = {"student": one.student, "score": sum(points for _, points, _, _ in checks.values())}
        row["max_score"] = sum(most for _, _, most, _ in checks.values())
        row["to_grade_by_hand"] = sum(most for _, _, most, by_hand in checks.values() if by_hand)
        row |= {name: points for name, (_, points, _, _) in checks.items()} | {"seed": self.seed_of(one)}
        if one.noted is None:
            row |= dict.fromkeys(("score", "to_grade_by_hand", *checks))
        return row | {"remarks": "; ".join([*one.remarks, *(f"{name}: {said}" for name, said in errors.items())])}


def grade(
    handed_in: Path,
    assignment: str | None = None,
    folder: Path = FOLDER,
    *,
    seed: str = "fednb",
    timeout: int = 60,
    limit: int = 900,
    again: bool = False,
) -> Path:
    """Grade a folder of submissions; write a CSV of the scores and a feedback page for each, and return the CSV's path.

    ``assignment`` is by default what most of the submissions say: ``01_moon-exercises``. ``seed`` and the student's name
    decide the hidden inputs; ``timeout`` and ``limit`` are seconds for a cell and for a submission. What is graded and has
    not changed is graded only if ``again``.
    """
    if not handed_in.is_dir():
        raise CourseError(f"There is no folder {handed_in}.")
    folder, found = course_folder(folder), submissions(handed_in, (assignment or "").rpartition("-")[0])
    if assignment is None:
        assignment = assignment_of(found)
        found = submissions(handed_in, parts(assignment)[0])
    if not fence.closed():
        print("There are no namespaces here: what is executed can read and write all that you can.", flush=True)
    with tempfile.TemporaryDirectory(prefix="course-") as own:
        grader = Grader(folder, assignment, handed_in, Path(own, "notebooks"), seed, timeout, limit)
        for number, one in enumerate(found, 1):
            graded_by = [seed.encode(), grader.solved.read_bytes()]  # with the hidden tests
            digest = hashlib.sha256(b"".join([one.content(), *graded_by])).hexdigest()
            state = grader.place("submitted", one.student).with_name("state.json")
            old = json.loads(state.read_text()) if state.exists() else {}
            if not again and old.get("digest") == digest:
                one.remarks, one.noted = old["remarks"], old["noted"]
                continue
            state.unlink(missing_ok=True)
            grader.grade(one)
            if one.noted is not None:
                state.write_text(json.dumps({"digest": digest, "remarks": one.remarks, "noted": one.noted}))
            print(f"{number}/{len(found)} {one.student}", *one.remarks, sep="; ", flush=True)
        noted = {one.student: one.noted for one in found if one.noted is not None}
        now = {one.student: {name: grade[0] for name, grade in grader.grades(one).items()} for one in found}
        if changed := [student for student in noted if noted[student] != now[student]]:
            raise CourseError(
                f"The gradebook has other points than were made for {', '.join(changed)}: something else has written there. "
                "Put back your copy of the gradebook, or grade all of them with --again."
            )
        path = folder / f"{assignment}.csv"
        pd.DataFrame([grader.row(one) for one in found]).to_csv(path, index=False)
    return path
