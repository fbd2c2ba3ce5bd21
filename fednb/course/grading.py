"""Grading a folder of submissions by nbgrader: whatever is handed in gets a score and a reason, and stops nothing.

What is graded is *executed*. Nothing here isolates it but limits on time; how to do that, notebooks/TEACHING.md says.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import html
import json
import re
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from fednb.course.checking import last_line
from fednb.course.handout import SKIP, parts, read, release
from fednb.course.tools import FOLDER, SEED, CourseError, call, course_folder

EXCUSE = "> **Not graded.**"


@dataclass
class Submission:
    """What a student handed in: a file or, if there is none that can be graded, the reason."""

    student: str
    path: Path | None
    remarks: list[str] = field(default_factory=list)


def submissions(folder: Path, notebook: str) -> list[Submission]:
    """What lies in a folder: ``student.ipynb``, or ``student/…/notebook.ipynb`` as nbgrader and most platforms have it."""
    found: list[Submission] = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "_")):
            continue
        student = re.sub(r"[^\w.@-]+", "_", entry.name if entry.is_dir() else entry.stem)
        inside = [p for p in sorted(entry.rglob("*")) if p.is_file() and ".ipynb_checkpoints" not in p.parts]
        named = [p for p in inside if p.name == f"{notebook}.ipynb"] or [p for p in inside if p.suffix == ".ipynb"]
        files = [entry] if entry.is_file() else named or inside
        one = Submission(student, files[0] if files else None)
        if any(other.student == student for other in found):
            one.student += f"_{len(found)}"
            one.remarks.append(f"another file is {student}'s too")
        if not files:
            one.remarks.append("nothing was handed in")
        elif len(files) > 1 and entry.is_dir() and len(named) != 1:
            one.remarks.append(f"{len(files)} files were handed in; graded is {files[0].name}")
        found.append(one)
    if not found:
        raise CourseError(f"There is no submission in {folder}.")
    return found


def _repaired(nb: NotebookNode, released: NotebookNode) -> tuple[NotebookNode, list[str]]:
    """A submission with each cell of nbgrader's there once, with the tags and metadata that it was handed out with.

    nbgrader itself puts back the text of locked cells. But a tag can keep a check from being executed, which nbgrader counts
    as passed; metadata can take the check out of the grading; and cells that are missing, there twice, or not the hand-out's
    can end the grading of the whole notebook.
    """
    nb, remarks = NotebookNode(nb), []
    handed_out = {cell.metadata["nbgrader"]["grade_id"]: cell for cell in released.cells if "nbgrader" in cell.metadata}
    by_cell_id = {cell.id: cell for cell in released.cells}
    cells: list[NotebookNode] = []
    places: dict[str, list[int]] = {}
    for cell in nb.cells:
        twin = by_cell_id.get(cell.get("id", ""))
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        if name not in handed_out:
            name = twin.metadata.get("nbgrader", {}).get("grade_id") if twin else None
        tags = [tag for tag in cell.metadata.get("tags", []) if tag != SKIP]
        if twin is None and SKIP in cell.metadata.get("tags", []) and "id" not in cell:
            tags = [*tags, SKIP]  # saved in an old format, without ids
        cell.metadata = NotebookNode({"tags": tags})
        if name is not None:
            places.setdefault(name, []).append(len(cells))
            cell.metadata = NotebookNode(json.loads(json.dumps(handed_out[name].metadata)))
        elif twin is not None:
            cell.metadata = NotebookNode(json.loads(json.dumps(twin.metadata)))
        cells.append(cell)
    twice = {name for name, where in places.items() if len(where) > 1}
    drop = {place for name in twice for place in places[name]}
    own = [name for name, cell in handed_out.items() if cell.metadata["nbgrader"]["solution"]]
    remarks += [f"{name} is there twice: it counts as not done" for name in own if name in twice]
    remarks += [f"{name} is missing" for name in handed_out if name not in places]
    kept = [cell for place, cell in enumerate(cells) if place not in drop]
    last = -1
    for name, cell in handed_out.items():
        if name in places and name not in twice:
            last = max(last, next(i for i, c in enumerate(kept) if c.metadata.get("nbgrader", {}).get("grade_id") == name))
        else:
            last += 1
            kept.insert(last, NotebookNode(json.loads(json.dumps(cell))))
    for number, cell in enumerate(kept):
        cell["id"] = f"cell-{number}"
    nb.cells, nb.nbformat, nb.nbformat_minor = kept, 4, 5
    return nb, remarks


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

    Parameters
    ----------
    assignment
        ``01_moon-exercises``, for instance; by default what most of the submissions say.
    seed
        With the student's name it decides the hidden inputs.
    timeout, limit
        Seconds for a cell, and for a submission.
    again
        Also grade submissions that are graded already and have not changed.
    """
    if not handed_in.is_dir():
        raise CourseError(f"There is no folder {handed_in}.")
    folder = course_folder(folder)
    assignment = assignment or _assignment_of(handed_in)
    name, kind = parts(assignment)
    released = folder / "release" / assignment / f"{name}.ipynb"
    if not released.exists() or not (folder / "gradebook.db").exists():
        release(name, kind, folder)
    original = read(released)
    graded_by = b"".join(p.read_bytes() for p in (released, folder / "source" / assignment / released.name) if p.exists())
    found = submissions(handed_in, name)
    for number, one in enumerate(found, 1):
        place = folder / "submitted" / one.student / assignment
        given = one.path.read_bytes() if one.path else b""
        digest = hashlib.sha256(given + seed.encode() + graded_by).hexdigest()  # hidden tests are in the source
        state = place / "state.json"
        old = json.loads(state.read_text()) if state.exists() else {}
        if not again and old.get("digest") == digest:
            one.remarks = old["remarks"]
            continue
        nb, remarks = _submitted(one, original, assignment)
        one.remarks += remarks
        place.mkdir(parents=True, exist_ok=True)
        student_seed = zlib.crc32(f"{seed} {one.student}".encode())
        environment = {SEED: str(student_seed), "FEDNB_CELL_TIMEOUT": str(timeout)}
        with tempfile.TemporaryDirectory() as runs:
            environment |= {"FEDNB_RUNS": runs}
            nbformat.write(nb, place / f"{name}.ipynb")
            if error := _autograde(folder, assignment, one.student, limit, environment):
                one.remarks.append(f"executing it failed, so it scores zero: {error}")
                nbformat.write(_excuse(original, one.remarks), place / f"{name}.ipynb")
                if error := _autograde(folder, assignment, one.student, limit, environment):
                    raise CourseError(f"Not even the untouched hand-out can be graded: {error}.")
        state.write_text(json.dumps({"digest": digest, "remarks": one.remarks, "seed": student_seed}))
        print(f"{number}/{len(found)} {one.student}", *one.remarks, sep="; ", flush=True)
    call(folder, "generate_feedback", assignment, "--force")
    return _write_scores(folder, assignment, name, found)


def _autograde(folder: Path, assignment: str, student: str, limit: int, environment: Mapping[str, str]) -> str:
    """Have nbgrader grade a submission; what failed, if it failed twice or took too long."""
    error = ""
    for _ in range(2):
        try:
            call(folder, "autograde", assignment, "--student", student, "--force", limit=limit, **environment)
            return ""
        except CourseError as caught:
            error = str(caught).partition(" (all it said")[0]
            if error.startswith("not finished"):
                break
    return error


def _assignment_of(handed_in: Path) -> str:
    named: Counter[str] = Counter()
    for path in handed_in.rglob("*.ipynb"):
        with contextlib.suppress(
            Exception
        ):  # whatever a stranger's file may hold: it has no vote, and `_submitted` tells why
            named[read(path).metadata["fednb"]["assignment"].strip()] += 1
    if not named:
        raise CourseError(f"No file in {handed_in} says what assignment it is: name it, --assignment 01_moon-exercises.")
    return named.most_common(1)[0][0]


def _excuse(original: NotebookNode, remarks: list[str]) -> NotebookNode:
    """The untouched hand-out, with the reason why it stands for the submission."""
    nb = nbformat.from_dict(json.loads(json.dumps(original)))
    nb.cells[0] = new_markdown_cell(EXCUSE + " " + html.escape("; ".join(remarks)) + ".", id="course-note")
    return nb


def _submitted(one: Submission, original: NotebookNode, assignment: str) -> tuple[NotebookNode, list[str]]:
    """The notebook to grade for a submission, and remarks; the untouched hand-out if it cannot be graded."""
    if one.path is None:
        return _excuse(original, one.remarks), []
    try:
        nb = read(one.path)
        other = nb.metadata.get("fednb", {}).get("assignment", assignment)
        if other != assignment:
            raise CourseError(f"{one.path.name} is the hand-out of {other}, not of {assignment}.")
        return _repaired(nb, original)
    except CourseError as error:
        return _excuse(original, [str(error).rstrip(".")]), [str(error).rstrip(".")]
    except Exception as error:  # whatever a stranger's file may hold
        said = f"{one.path.name} cannot be read as a notebook ({type(error).__name__})"
        return _excuse(original, [said]), [said]


def _write_scores(folder: Path, assignment: str, name: str, found: list[Submission]) -> Path:
    """A row for each submission: the score, what a person has still to grade, each check, and remarks."""
    from nbgrader.api import Gradebook

    path, rows = folder / f"{assignment}.csv", []
    with Gradebook(f"sqlite:///{folder / 'gradebook.db'}", "fednb") as gradebook:
        for one in found:
            notebook = gradebook.find_submission_notebook(name, assignment, one.student)
            graded = {grade.name: grade for grade in notebook.grades}
            errors = _errors(folder / "autograded" / one.student / assignment / f"{name}.ipynb")
            row = {"student": one.student, "score": notebook.score, "max_score": notebook.max_score}
            row["to_grade_by_hand"] = sum(grade.max_score for grade in graded.values() if grade.needs_manual_grade)
            order = [cell.name for cell in gradebook.find_notebook(name, assignment).source_cells if cell.name in graded]
            row |= {name: graded[name].score for name in sorted(order, key=_natural)}
            state = folder / "submitted" / one.student / assignment / "state.json"
            row["seed"] = json.loads(state.read_text())["seed"]
            row["remarks"] = "; ".join([*one.remarks, *(f"{name}: {said}" for name, said in errors.items())])
            rows.append(row)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def _natural(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _errors(path: Path) -> dict[str, str]:
    """What went wrong in an autograded notebook, check by check; a solution cell's own error before that of its check."""
    found: dict[str, str] = {}
    cause = ""
    cells = read(path).cells if path.exists() else []
    if any(cell.source.startswith(EXCUSE) for cell in cells):
        return {}
    for cell in cells:
        marks = cell.metadata.get("nbgrader", {})
        said = [o for o in cell.get("outputs", []) if o.output_type == "error"]
        if any(o.ename in ("CellTimeoutError", "KeyboardInterrupt") for o in said):
            error, said = "stopped, as it took too long", []
        else:
            error = ""
        if said:
            error = last_line("\n".join(said[0].traceback) or f"{said[0].ename}: {said[0].evalue}")
        if marks.get("solution"):
            cause = error
        elif marks.get("grade") and error:
            found[marks["grade_id"]] = cause or error
            cause = ""
    return found


def scores(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a CSV of scores."""
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)
