"""Grading a folder of submissions by nbgrader: whatever is handed in gets a score and a reason, and changes no other's.

Points are noted as they are made, and compared at the end.
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import json
import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import pandas as pd
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from fednb import papers
from fednb.course import fence, steps
from fednb.course.checking import errors
from fednb.course.handout import FOLDER, CourseError, grade_id, read, release

LARGEST = 20 << 20  # bytes of a file that is looked at


class Late(CourseError):
    """The machine is too slow for the hand-out's own cells."""


@dataclass
class Submission:
    """What a student handed in, if there is a file to grade, and remarks on it."""

    student: str
    file: Path | None
    remarks: list[str] = field(default_factory=list)


def submissions(folder: Path, notebook: str) -> list[Submission]:
    """What lies in a folder: ``student.ipynb``, or ``student/…/notebook`` as nbgrader and most platforms have it."""
    found: dict[str, Submission] = {}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "_")):
            continue
        alone = entry.is_symlink() or not entry.is_dir()
        paths = [entry] if alone else sorted(path for path in entry.rglob("*") if ".ipynb_checkpoints" not in path.parts)
        files = [path for path in paths if path.is_file() and not path.is_symlink()]
        files = [f for f in files if f.name == notebook] or [f for f in files if f.suffix == ".ipynb"] or files
        student = re.sub(r"[^\w.@-]+|^\W+", "_", entry.stem if alone else entry.name)  # no option, and no formula
        remarks = ["a link is not followed"] * any(path.is_symlink() for path in paths)
        if len(files) > 1:
            remarks.append(f"{len(files)} files were handed in; graded is {files[0].name}")
        if files and files[0].stat().st_size > LARGEST:
            remarks.append(f"{files[0].name} is larger than {LARGEST >> 20} MB")
            files = []
        if student in found:
            remarks.append(f"another file is {student}'s too")
            student += f"_{len(found)}"
        found[student] = Submission(student, files[0] if files else None, remarks)
    if not found:
        raise CourseError(f"There is no submission in {folder}.")
    return list(found.values())


def mended(file: Path, released: NotebookNode) -> NotebookNode:
    """The hand-out with a submission's answers, and additional cells where they stand: nothing else of it can be trusted.

    nbgrader puts back the text of locked cells. But tags can keep a check from being executed, which counts as passed,
    metadata can take it out of the grading, and cells that are missing, or there twice, can end the grading.
    """
    nb, assignment = read(file), released.metadata["fednb"]["assignment"]
    own = nb.metadata.get("fednb")
    if isinstance(own, dict) and own.get("assignment", assignment) != assignment:
        raise CourseError(f"{file.name} is the hand-out of {str(own['assignment'])[:100]}, not of {assignment}")
    names = {grade_id(cell) for cell in released.cells} - {""}
    others = {text for cell in released.cells for text in (cell.id, cell.source)}
    answers, before, waiting = {}, defaultdict(list), []
    for cell in nb.cells:
        if (name := grade_id(cell)) in names:
            answers[name] = cell.source
            before[name] += waiting
            waiting = []
        elif str(cell.get("id")) not in others and cell.source not in others:
            waiting.append((new_code_cell if cell.cell_type == "code" else new_markdown_cell)(cell.source))
    cells = []
    for cell in released.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = answers.get(grade_id(cell), cell.source)
        cells += [*before[grade_id(cell)], cell]
    return NotebookNode({**released, "cells": cells + waiting})


def place(step: str, assignment: str, student: str = "") -> Path:
    return FOLDER.absolute() / step / student / assignment / f"{assignment}.ipynb"


def grades(assignment: str, student: str) -> dict[str, tuple[float | None, float, float, bool]]:
    """What the gradebook has, by check: points by machine, points, most points, and whether a person has still to give some."""
    with steps.NbGraderAPI(config=steps.settings()).gradebook as book:
        found = book.find_submission_notebook(assignment, assignment, student).grades
        return {g.name: (g.auto_score, g.score, g.max_score, g.needs_manual_grade) for g in sorted(found, key=lambda g: g.name)}


def grade_one(one: Submission, assignment: str) -> dict[str, float | None] | None:
    """The points of a submission, by check; None if the machine was too slow. What there is to say is added to its remarks."""
    released, wrong = read(place("release", assignment)), {}
    try:
        if one.file is None:
            raise CourseError("there is nothing to grade")
        wrong = errors(execute(mended(one.file, released), assignment, one.student))
    except Late as error:
        one.remarks.append(str(error))
        return None
    except CourseError as error:
        one.remarks.append(str(error).rstrip("."))
        released = read(place("release", assignment))
        released.cells[0].source = f"> **Not graded.** {html.escape('; '.join(one.remarks))}."
        with contextlib.suppress(Late):
            execute(released, assignment, one.student)
    points = {name: points for name, (points, *_) in grades(assignment, one.student).items()}
    one.remarks += [f"{name}: {wrong[name]}" for name in points if name in wrong]
    return points


def execute(nb: NotebookNode, assignment: str, student: str) -> NotebookNode:
    """Have nbgrader grade a notebook; what fails by itself, or because the machine is slow, gets a second try with more time."""
    file, wrong = place("submitted", assignment, student), None
    file.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, file)
    for patience in (1, 3):
        try:
            for step in ("autograde", "generate_feedback"):
                steps.take(step, assignment, student, patience=patience)
        except CourseError as error:
            wrong = CourseError(f"executing it failed ({error}), so it scores zero")
            if "Stopped" in str(error):
                break
            continue
        done = read(place("autograded", assignment, student))
        late = [cell for cell in done.cells if "CellTimeoutError" in [o.get("ename") for o in cell.get("outputs", [])]]
        marks = late[0].metadata.get("nbgrader", {}) if late else {}
        if marks.get("grade", True) or marks["solution"]:
            return done
        name = marks["grade_id"]
        wrong = Late(f"no points yet, as the hand-out's own {name} took too long: call the same command again")
    raise wrong


def grade(name: str, handed_in: Path) -> Path:
    """Grade a folder of submissions; write a table of scores and remarks, and feedback pages, and return the table's path.

    What is graded and has not changed is not graded again.
    """
    if not handed_in.is_dir():
        raise CourseError(f"There is no folder {handed_in}.")
    assignment, folder = papers.path(name).stem, FOLDER.absolute()
    if seen := [path for path in (handed_in, folder) if fence.shows(path)]:
        raise CourseError(f"{seen[0]} lies among the programs, which submissions can read: move it elsewhere.")
    found = submissions(handed_in, f"{assignment}.ipynb")
    if not all(path.exists() for path in (place("source", assignment), place("release", assignment), folder / "gradebook.db")):
        release(assignment)
    if not fence.closed():
        print("There are no namespaces here: what is executed can read and write all that you can.", flush=True)
    seed = steps.Fenced(config=steps.settings()).seed.encode()
    notes = folder / f"{assignment}.json"
    noted = json.loads(notes.read_text()) if notes.exists() else {}
    for number, one in enumerate(found, 1):
        texts = [seed, place("source", assignment).read_bytes(), one.file.read_bytes() if one.file else b""]
        digest = hashlib.sha256(b"".join(texts)).hexdigest()
        if noted.get(one.student, {}).get("digest") != digest:
            points = grade_one(one, assignment)
            noted[one.student] = {"digest": digest if points else "", "points": points, "remarks": "; ".join(one.remarks)}
            notes.with_suffix(".new").write_text(json.dumps(noted), encoding="utf-8")
            os.replace(notes.with_suffix(".new"), notes)
            print(f"{number}/{len(found)} {one.student}", *one.remarks, sep="; ", flush=True)
    rows, changed = [], []
    for student in (one.student for one in found):
        now, note = grades(assignment, student), noted[student]
        if note["points"] not in (None, {check: points for check, (points, *_) in now.items()}):
            changed.append(student)
        row = {"score": sum(points for _, points, *_ in now.values())}
        row["to_grade_by_hand"] = sum(most for _, _, most, by_hand in now.values() if by_hand)
        row |= {check: points for check, (_, points, *_) in now.items()}
        row = row if note["points"] else dict.fromkeys(row)
        rows.append({"student": student, **row, "max_score": sum(v[2] for v in now.values()), "remarks": note["remarks"]})
    if changed:
        raise CourseError(
            f"The gradebook has other points than were made for {', '.join(changed)}: something else has written there. "
            f"Put back your copy of the gradebook, or delete {notes.name} there, and all are graded anew."
        )
    table = folder / f"{assignment}.csv"
    pd.DataFrame(rows).to_csv(table, index=False)
    return table
