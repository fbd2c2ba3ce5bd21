"""What was handed in: found in a folder, and merged into the hand-out without what could harm."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from fednb.errors import CourseError
from fednb_lab.course.assignment import grade_id, plain, read_notebook

# What systems and editors leave in folders, and nobody hands in.
LITTER = {".DS_Store", "Thumbs.db", "desktop.ini", "__MACOSX", ".ipynb_checkpoints"}
LITTER |= {".git", ".gitignore", ".gitkeep"}
ATTACHMENT = re.compile(r"attachment:([^)\s\"'>]+)")
# How learning-management systems name what they collect: Moodle's folders, Canvas' files.
MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_\w+")
CANVAS = re.compile(r"(?P<name>[^_]+)_(?:LATE_)?(?P<id>\d+)_\d+_.+")


class Submission(NamedTuple):
    """What a student has handed in."""

    file: Path | None  # None if there is none
    remarks: list[str]  # what is wrong with it
    name: str = ""  # the student's, as the file or folder has it
    id: str = ""  # by which a learning-management system knows the student


def submissions(folder: Path, notebook: str) -> dict[str, Submission]:
    """What lies in a folder, by student, as ``student.ipynb`` or as ``student/.../notebook``.

    A `CourseError` if two would be the same student's, since then nobody knows which to grade.
    """
    if not folder.is_dir():
        raise CourseError(f"There is no folder {folder}.")
    entries = [entry for entry in sorted(folder.iterdir()) if not _is_litter(entry)]
    by_student: dict[str, Submission] = {}
    claims: dict[str, list[str]] = defaultdict(list)  # entries by what one student has of them
    for entry in entries:
        is_folder = entry.is_dir() and not entry.is_symlink()
        paths = sorted(entry.rglob("*")) if is_folder else [entry]
        given = entry.name if is_folder else entry.stem
        student = _student(given)
        name, identity = _name_and_id(given, student)
        by_student[student] = _submission(paths, notebook)._replace(name=name, id=identity)
        # capitals do not count in the file systems of some machines
        for claim in {student.casefold(), identity.casefold()}:
            claims[claim].append(plain(entry.name))
    if not by_student:
        raise CourseError(f"There is no submission in {folder}.")
    _require_one_each(claims)
    return by_student


def _require_one_each(claims: Mapping[str, list[str]]) -> None:
    """Raise a `CourseError` if two entries are one student's."""
    collisions = []
    for claim, names in claims.items():
        if len(names) > 1:
            collisions.append(f"{' and '.join(names)} would all be {claim}'s")
    if collisions:
        raise CourseError(f"{'; '.join(collisions)}: rename or remove all but one, and call again.")


def litter(folder: Path) -> list[str]:
    """Names in a folder of submissions that are nobody's."""
    return [plain(entry.name) for entry in sorted(folder.iterdir()) if _is_litter(entry)]


def _is_litter(entry: Path) -> bool:
    name = entry.name
    # a Mac writes ._anna.ipynb beside anna.ipynb
    is_double = name.startswith("._") and entry.with_name(name[2:]).exists()
    return name in LITTER or is_double


def _student(given: str) -> str:
    """A name that is no option of a command, and no formula of a spreadsheet."""
    return re.sub(r"[^\w.@-]+|^\W+", "_", unicodedata.normalize("NFC", given))


def _name_and_id(given: str, student: str) -> tuple[str, str]:
    """The student's name and number in a learning-management system, or what we have instead."""
    match = MOODLE.fullmatch(given) or CANVAS.fullmatch(given)
    if match:
        return plain(match["name"]), match["id"]
    return plain(given), student


def _submission(paths: list[Path], notebook: str) -> Submission:
    """The file to grade: one of the notebook's name, else a notebook, else any."""
    is_link = any(path.is_symlink() for path in paths)
    remarks = ["a link is not followed"] if is_link else []
    files = [path for path in paths if path.is_file() and not path.is_symlink()]
    files = [file for file in files if ".ipynb_checkpoints" not in file.parts]
    named = [file for file in files if file.name == notebook]
    notebooks = [file for file in files if file.suffix == ".ipynb"]
    candidates = named or notebooks or files
    if not candidates:
        return Submission(None, [*remarks, "nothing was handed in"])
    file = candidates[0]
    if len(candidates) > 1:
        remarks.append(f"{len(candidates)} files were handed in; graded is {plain(file.name)}")
    return Submission(file, remarks)


def merged_into_handout(file: Path, released: NotebookNode) -> NotebookNode:
    """The hand-out ``released``, which is changed, with a submission's answers and own cells in it.

    Nothing else is taken over: tags and metadata can disarm a check. A `CourseError` says why the
    file cannot be graded.
    """
    nb = read_notebook(file)
    _require_assignment(file, nb, released.metadata["fednb"]["assignment"])
    student_cells = _student_cells(nb, released)
    cells = []
    for cell in released.cells:
        name = grade_id(cell)
        if cell.metadata.get("nbgrader", {}).get("solution"):
            _take_over(student_cells.answers.get(name), cell)
        cells += [*student_cells.before[name], cell]
    return NotebookNode({**released, "cells": cells + student_cells.last})


def _require_assignment(file: Path, nb: NotebookNode, assignment: str) -> None:
    """Raise a `CourseError` if the file says that it is the hand-out of another assignment."""
    origin = nb.metadata.get("fednb")
    if isinstance(origin, dict) and origin.get("assignment", assignment) != assignment:
        other = str(origin["assignment"])[:100]
        raise CourseError(f"{file.name} is the hand-out of {other}, not of {assignment}.")


class StudentCells(NamedTuple):
    """What a submission adds to the hand-out."""

    answers: dict[str, NotebookNode]  # by grade id
    before: dict[str, list[NotebookNode]]  # own cells, by the grade id of the cell that follows
    last: list[NotebookNode]  # own cells at the end


def _student_cells(nb: NotebookNode, released: NotebookNode) -> StudentCells:
    """Cells are known by their grade id, or by their id if the metadata got lost."""
    id_to_name = {cell.id: grade_id(cell) for cell in released.cells}
    names = set(id_to_name.values()) - {""}
    released_sources = {cell.source for cell in released.cells}
    answers: dict[str, NotebookNode] = {}
    before: dict[str, list[NotebookNode]] = defaultdict(list)
    waiting: list[NotebookNode] = []
    for cell in nb.cells:
        name: str | None = grade_id(cell)
        if name not in names:
            name = id_to_name.get(str(cell.get("id")))
        if name:
            answers[name] = cell
            before[name] += waiting
            waiting = []
        elif name is None and cell.source not in released_sources:
            own = new_code_cell() if cell.cell_type == "code" else new_markdown_cell()
            _take_over(cell, own)
            waiting.append(own)
    return StudentCells(answers, before, waiting)


def _take_over(student_cell: NotebookNode | None, cell: NotebookNode) -> None:
    """Give ``cell`` the student's source, and pictures if it is a text."""
    if student_cell is None:
        return
    cell.source = student_cell.source
    if cell.cell_type != "markdown":
        return
    pictures = dict(student_cell.get("attachments", {}))
    for name in set(ATTACHMENT.findall(cell.source)) - set(pictures):
        if unquote(name) in pictures:
            pictures[name] = pictures[unquote(name)]
        else:  # a page with a picture that is not there cannot be made
            cell.source = cell.source.replace(f"attachment:{name}", f"missing-{name}")
    if pictures:
        cell.attachments = pictures
