"""Grading by nbgrader: whatever is handed in is executed in the fence, gets points and a reason, and changes no other's."""

import hashlib
import html
import json
import os
import re
import shutil
import signal
import sys
import warnings
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest import mock

import nbformat
import pandas as pd
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from fednb import papers
from fednb.course import fence
from fednb.course.handout import (
    FOLDER,
    LARGEST,
    TEMPLATES,
    CourseError,
    errors,
    grade_id,
    read,
    release,
)
from fednb.experiments.ledger import write_atomically

try:
    from nbgrader.apps.api import NbGraderAPI
    from nbgrader.preprocessors import Execute
    from nbgrader.utils import compute_checksum  # noqa: F401
    from traitlets import Integer, Unicode
    from traitlets.config import Config, PyFileConfigLoader
except ModuleNotFoundError as error:
    raise CourseError(
        'The course commands need nbgrader: python -m pip install "fednb[course]"'
    ) from error

CONFIG = TEMPLATES / "nbgrader_config.py"
SETTINGS = {
    "FEDNB_PROGRESS": "off",
    "FEDNB_DEVICE": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "MPLBACKEND": "agg",
}


class Fenced(Execute):
    """nbgrader's step that executes a submission."""

    seconds = Integer(900).tag(config=True)
    seed = Unicode("fednb").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        course, _, student, assignment = resources["metadata"]["path"].rsplit("/", 3)
        seed = zlib.crc32(f"{self.seed} {student}".encode())
        fence.execute(nb, f"{course}/release/{assignment}", seed, self.timeout, self.seconds)
        return nb, resources


def run(nb: NotebookNode, folder: str, **more: dict[str, Any]) -> None:
    """Execute a notebook in place, in a folder, as nbgrader does: errors are outputs, and taking too long is one."""
    config = PyFileConfigLoader(CONFIG.name, str(CONFIG.parent)).load_config()
    config.merge(Config(more))
    with mock.patch.dict(os.environ, SETTINGS):
        Execute(config=config).preprocess(nb, {"metadata": {"path": folder}})


def api(patience: int = 1) -> NbGraderAPI:
    """nbgrader in the course folder, as the nbgrader_config.py there says, with so many times the time for a cell."""
    folder = FOLDER.absolute()
    if not (folder / CONFIG.name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(CONFIG, folder)
    config = PyFileConfigLoader(CONFIG.name, str(folder)).load_config()
    config.CourseDirectory.root = str(folder)
    config.Execute.timeout *= patience
    return NbGraderAPI(config=config)


def too_long(*_: object) -> None:
    raise RuntimeError("Stopped: nbgrader takes too long")


def take(step: str, *of: str, patience: int = 1) -> None:
    """Have nbgrader take a step (a method of its API) of an assignment, and a student; a CourseError says why it failed."""
    path = (
        f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # nbgrader calls alembic
    )
    with warnings.catch_warnings(action="ignore"), mock.patch.dict(os.environ, PATH=path):
        course = api(patience)
        signal.signal(signal.SIGALRM, too_long)
        signal.alarm(
            course.config.Fenced.seconds + 60
        )  # a page of feedback can be made to take for ever
        done = getattr(course, step)(*of)
        signal.alarm(0)
    if "KeyboardInterrupt" in done.get("error", ""):
        raise KeyboardInterrupt
    if not done["success"]:
        text, log = done.get("log", done["error"]), FOLDER / "nbgrader.log"
        log.write_text(text, encoding="utf-8")
        said = re.findall(r"(?m)^\s*(?:\w+\.)*(\w*(?:Error|Exception)\b.*)", text) or [
            f"nbgrader failed: see {log}"
        ]
        raise CourseError(said[-1][:200].removeprefix("RuntimeError: "))


def submissions(folder: Path, notebook: str) -> dict[str, tuple[Path | None, list[str]]]:
    """What lies in a folder, as ``student.ipynb`` or ``student/…/notebook``: by student a file, if any, and remarks."""
    found = {}
    for entry in sorted(folder.glob("[!._]*")):
        alone = entry.is_symlink() or not entry.is_dir()
        paths = [entry] if alone else sorted(entry.rglob("*"))
        files = [
            p
            for p in paths
            if p.is_file() and not p.is_symlink() and ".ipynb_checkpoints" not in p.parts
        ]
        files = (
            [f for f in files if f.name == notebook]
            or [f for f in files if f.suffix == ".ipynb"]
            or files
        )
        student = re.sub(
            r"[^\w.@-]+|^\W+", "_", entry.stem if alone else entry.name
        )  # no option, and no formula
        remarks = ["a link is not followed"] * any(path.is_symlink() for path in paths)
        if len(files) != 1:
            some = (
                f"{len(files)} files were handed in; graded is {files[0].name}"
                if files
                else "nothing was handed in"
            )
            remarks.append(some)
        if student in found:
            remarks.append(f"another file is {student}'s too")
            student += f"_{len(found)}"
        found[student] = files[0] if files else None, remarks
    if not found:
        raise CourseError(f"There is no submission in {folder}.")
    return found


def mended(file: Path, released: NotebookNode) -> NotebookNode:
    """The hand-out with a submission's answers and own cells, and nothing else: tags and metadata can disarm a check."""
    nb, assignment = read(file), released.metadata["fednb"]["assignment"]
    said = nb.metadata.get("fednb")
    if isinstance(said, dict) and said.get("assignment", assignment) != assignment:
        raise CourseError(
            f"{file.name} is the hand-out of {str(said['assignment'])[:100]}, not of {assignment}"
        )
    names = {cell.id: grade_id(cell) for cell in released.cells}
    marked, sources = set(names.values()) - {""}, {cell.source for cell in released.cells}
    answers, before, waiting = {}, defaultdict(list), []
    for cell in nb.cells:
        name = grade_id(cell) if grade_id(cell) in marked else names.get(str(cell.get("id")))
        if name:
            answers[name] = cell.source
            before[name] += waiting
            waiting = []
        elif name is None and cell.source not in sources:  # the student's own
            waiting.append(
                (new_code_cell if cell.cell_type == "code" else new_markdown_cell)(cell.source)
            )
    cells = []
    for cell in released.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = answers.get(grade_id(cell), cell.source)
        cells += [*before[grade_id(cell)], cell]
    return NotebookNode({**released, "cells": cells + waiting})


def place(step: str, assignment: str, student: str = "") -> Path:
    return FOLDER.absolute() / step / student / assignment / f"{assignment}.ipynb"


def grade_one(student: str, file: Path | None, remarks: list[str], assignment: str) -> bool:
    """Have nbgrader grade a submission, or the untouched hand-out if there is none, and remark on it; whether it did."""
    submitted, nb = place("submitted", assignment, student), read(place("release", assignment))
    try:
        nb = mended(file, nb) if file else nb
    except CourseError as error:
        remarks.append(str(error).rstrip("."))
        file = None
    if not file:
        nb.cells[0].source = f"> **Not graded.** {html.escape('; '.join(remarks))}."
    submitted.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, submitted)
    for patience in (
        1,
        3,
    ):  # what fails by itself, or because the machine is slow, gets a second try and more time
        try:
            take("autograde", assignment, student, patience=patience)
            take("generate_feedback", assignment, student)
        except CourseError as error:
            if not file:
                raise CourseError(
                    f"Not even the untouched hand-out can be graded: {error}"
                ) from error
            if patience == 3 or "Stopped" in str(error):
                remarks.append(f"executing it failed ({error}), so it scores zero")
                return grade_one(student, None, remarks, assignment)
            continue
        wrong = errors(read(place("autograded", assignment, student)))
        late = next(
            (name for name, said in wrong.items() if said.startswith("CellTimeoutError")),
            "exercise",
        )
        if late.startswith("exercise"):
            remarks += [f"{name}: {said}" for name, said in wrong.items() if file]
            return True
    remarks.append(
        f"no points yet, as the hand-out's own {late} took too long: call the same command again"
    )
    return False


def in_gradebook(assignment: str, student: str) -> tuple[dict[str, Any], dict[str, float | None]]:
    """The score of a submission, with what a person has given, and the machine's points by check."""
    with api().gradebook as book:
        found = book.find_submission(assignment, student)
        points = {
            grade.name: grade.auto_score
            for grade in sorted(found.notebooks[0].grades, key=lambda grade: grade.name)
        }
        return {
            "score": found.score,
            "max_score": found.max_score,
            "to_grade_by_hand": found.needs_manual_grade,
        }, points


def grade(name: str, handed_in: Path) -> tuple[Path, pd.DataFrame]:
    """Grade what is new in a folder of submissions: feedback pages, and a table of all, and where it lies."""
    assignment, folder = papers.path(name).stem, FOLDER.absolute()
    found = submissions(handed_in, f"{assignment}.ipynb")
    if not (folder / "gradebook.db").exists() or not place("release", assignment).exists():
        release(assignment)
    if not fence.closed():
        print(
            "There are no namespaces here: what is executed can read and write all that you can.",
            flush=True,
        )
    notes = folder / f"{assignment}.json"
    noted = json.loads(notes.read_text(encoding="utf-8")) if notes.exists() else {}
    graded_by = (folder / "nbgrader_config.py").read_bytes() + place(
        "source", assignment
    ).read_bytes()
    for number, (student, (file, remarks)) in enumerate(found.items(), 1):
        digest = hashlib.sha256(
            graded_by + (file.open("rb").read(LARGEST) if file else b"")
        ).hexdigest()
        if noted.get(student, {}).get("digest") != digest:
            done = grade_one(student, file, remarks, assignment)
            points = in_gradebook(assignment, student)[1] if done else None
            noted[student] = {
                "digest": done and digest,
                "points": points,
                "remarks": "; ".join(remarks),
            }
            write_atomically(notes, json.dumps(noted))
            print(f"{number}/{len(found)} {student}", *remarks, sep="; ", flush=True)
    rows, changed = [], []
    for student in found:
        (scores, points), note = in_gradebook(assignment, student), noted[student]
        row = scores | points if note["points"] else dict.fromkeys(scores | points)
        rows.append({"student": student, **row, "remarks": note["remarks"]})
        changed += [student] * (note["points"] not in (None, points))
    if changed:
        way = f"put back your copy of it, or delete {notes}, and all are graded anew"
        raise CourseError(
            f"The gradebook has other points than were made for {', '.join(changed)}: {way}."
        )
    path, table = folder / f"{assignment}.csv", pd.DataFrame(rows)
    table.to_csv(path, index=False)
    return path, table
