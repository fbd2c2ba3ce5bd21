"""What was handed in: found in a folder or zip, by student, and merged into the hand-out."""

import importlib.util
import os
import re
import shutil
import stat
import time
import unicodedata
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from fednb.errors import CourseError
from fednb_lab.course.notebooks import (
    grade_id,
    is_unanswered,
    marks_of,
    plain,
    read_notebook,
    remark,
)

# What systems and editors leave in folders, and nobody hands in.
LITTER = {".DS_Store", "Thumbs.db", "desktop.ini", "__MACOSX", ".ipynb_checkpoints"}
LITTER |= {".git", ".gitignore", ".gitkeep", "__pycache__"}
# What is taken along beside a notebook, as its cells may read it.
HELPERS = {".py", ".csv", ".json", ".yaml", ".yml", ".txt", ".npy", ".npz", ".png", ".jpg"}
HELPER_SIZE = 5 << 20  # bytes of all of them
UNPACKED = 2 << 30  # bytes of all that a zip holds
MOST_FILES = 20_000
LONGEST = 100_000  # characters of an answer
ATTACHMENT = re.compile(r"attachment:([^)\s\"'>]+)")
# How learning-management systems name what they collect: Moodle's folders, Canvas' files.
MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_[a-z]+_?(?P<file>.*)")
CANVAS = re.compile(r"(?P<name>[^_]+)_(?:LATE_)?(?P<id>\d+)_(?P<attempt>\d+)_(?P<file>.+)")


@dataclass
class Submission:
    """What a student has handed in."""

    name: str  # the student's, as the file or folder has it
    id: str  # by which a learning-management system knows the student
    given: str  # the name of the entry that is graded
    notebook: Path | None = None  # None if there is none
    helpers: dict[str, Path] = field(default_factory=dict)  # files beside it, by their names
    remarks: list[str] = field(default_factory=list)


class Entry(NamedTuple):
    """A file or folder in what was handed in, read by its name."""

    path: Path
    given: str
    name: str
    id: str
    attempt: int  # 0 if the name does not say
    file: str  # the student's own name of the file

    @property
    def is_named(self) -> bool:
        """Whether a learning-management system has made the name."""
        return self.id != self.given


def entry_of(path: Path) -> Entry:
    """Read the name of a file or folder."""
    is_folder = path.is_dir() and not path.is_symlink()
    given = unicodedata.normalize("NFC", path.name if is_folder else path.stem)
    given = given.removesuffix(".ipynb")  # a browser saves anna.ipynb.txt
    match = MOODLE.fullmatch(given) or CANVAS.fullmatch(given)
    if not match:
        return Entry(path, given, plain(given), given, 0, path.name)
    parts = match.groupdict()
    file = re.sub(r"-\d+$", "", parts["file"]) + path.suffix  # Canvas numbers what comes again
    return Entry(path, given, plain(parts["name"]), parts["id"], int(parts.get("attempt", 0)), file)


def collect(handed_in: Path, released: NotebookNode, room: Path) -> dict[str, Submission]:
    """Find what is handed in, by student; zips are unpacked into the folder ``room``.

    A `CourseError` says that there is nothing. What is nobody's is printed.
    """
    if room.exists():
        shutil.rmtree(room)
    folder = handed_in
    if handed_in.is_file() and zipfile.is_zipfile(handed_in):
        folder = room / "all"
        unpack(handed_in, folder)
    if not folder.is_dir():
        what = "neither a folder nor a zip" if handed_in.exists() else "not there"
        raise CourseError(f"{handed_in} is {what}: name a folder or a zip of submissions.")
    entries = [entry_of(path) for path in _within(folder) if not is_litter(path)]
    by_owner, strays = _by_owner(entries)
    if strays:
        print(f"Nobody's, and left out: {', '.join(strays)}", flush=True)
    if not by_owner:
        raise CourseError(f"There is no submission in {handed_in}.")
    by_student: dict[str, Submission] = {}
    taken: set[str] = set()
    for number, own in enumerate(by_owner.values()):
        wanted = f"{own[0].name}_{own[0].id}" if own[0].is_named else own[0].given
        student = _unique(_student(wanted), taken)
        by_student[student] = _submission(own, released, room / str(number))
    return by_student


def _within(folder: Path) -> list[Path]:
    """Return what lies in a folder, or in the one folder that a zip has put around it."""
    paths = sorted(path for path in folder.iterdir() if not is_litter(path))
    if len(paths) == 1 and paths[0].is_dir() and not entry_of(paths[0]).is_named:
        inside = [path for path in paths[0].iterdir() if not is_litter(path)]
        people = [path for path in inside if path.is_dir() or entry_of(path).is_named]
        if len(people) == len(inside) and (
            len(people) > 1 or any(entry_of(p).is_named for p in people)
        ):
            return sorted(inside)
    return paths


def is_litter(path: Path) -> bool:
    """Tell whether nobody hands in what has such a name."""
    # a Mac writes ._anna.ipynb beside anna.ipynb
    is_double = path.name.startswith("._") and path.with_name(path.name[2:]).exists()
    return path.name in LITTER or is_double


def _by_owner(entries: list[Entry]) -> tuple[dict[str, list[Entry]], list[str]]:
    """Group entries by the student; and name those that are nobody's, such as a readme.txt."""
    owners = {entry.id for entry in entries if _begins_a_submission(entry)}
    by_owner: dict[str, list[Entry]] = defaultdict(list)
    strays = []
    for entry in entries:
        if entry.id in owners:
            by_owner[entry.id].append(entry)
        else:
            strays.append(plain(entry.path.name))
    return by_owner, strays


def _begins_a_submission(entry: Entry) -> bool:
    path = entry.path
    if path.is_dir() and not path.is_symlink():
        return True
    is_notebook = path.suffix.lower() == ".ipynb" or (
        path.is_file() and _looks_like_a_notebook(path)
    )
    return entry.is_named or is_notebook or path.suffix.lower() == ".zip"


def _student(given: str) -> str:
    """Return a name that is no option of a command, and no formula of a spreadsheet."""
    return re.sub(r"[^\w.@-]+|^\W+", "_", given)[:100] or "_"


def _unique(student: str, taken: set[str]) -> str:
    """Return a name that no other has, capitals aside, as in the file systems of some machines."""
    name = student
    number = 2
    while name.casefold() in taken:
        name = f"{student}-{number}"
        number += 1
    taken.add(name.casefold())
    return name


class Candidate(NamedTuple):
    """A notebook that may be the one to grade, best last when sorted."""

    is_right: bool  # it can be read, and is of no other assignment
    has_answers: bool
    attempt: tuple[int, float]
    num_answers: int
    is_handout: bool  # not a notebook of one's own
    has_name: bool  # that of the hand-out
    path: Path
    entry: Entry


def _submission(own: list[Entry], released: NotebookNode, room: Path) -> Submission:
    """Choose what to grade of a student's entries, and say in the remarks what was left out."""
    first = own[0]
    found = Submission(first.name, first.id, first.given)
    files: list[tuple[Entry, Path]] = []
    for number, entry in enumerate(own):
        for path in _files(entry, room / str(number), found.remarks):
            files.append((entry, path))
    newest: dict[Path, float] = defaultdict(float)  # when an entry was last changed
    for entry, path in files:
        newest[entry.path] = max(newest[entry.path], path.stat().st_mtime)
    of_handout = set(released.metadata["fednb"].get("files", []))
    files = [(entry, path) for entry, path in files if not _ends_as(path, of_handout)]
    candidates = []
    for entry, path in files:
        if path.suffix.lower() == ".ipynb" or _looks_like_a_notebook(path):
            attempt = (entry.attempt, newest[entry.path])
            candidates.append(_candidate(entry, attempt, path, released))
    if not candidates:
        names = ", ".join(sorted({path.name for _, path in files}))
        said = f"no notebook was handed in, but {names}" if names else "nothing was handed in"
        found.remarks.append(remark(said))
        return found
    candidates.sort()
    best = candidates[-1]
    found.notebook = best.path
    found.given = best.entry.given
    _tell_of_rivals(best, candidates[:-1], found.remarks)
    notebooks = {candidate.path for candidate in candidates}
    beside = [path for _, path in files if path not in notebooks]
    renamed = {entry.path: entry.file for entry in own if entry.path.is_file()}
    found.helpers = take_along(best.path, beside, renamed, found.remarks)
    return found


def _ends_as(path: Path, names: Iterable[str]) -> bool:
    """Tell whether a file is called as one of the hand-out's own, which comes from there."""
    return any(path.as_posix().endswith(f"/{name}") for name in names)


def _tell_of_rivals(best: Candidate, rivals: list[Candidate], remarks: list[str]) -> None:
    if not rivals:
        return
    attempts = {other.entry.path for other in [best, *rivals]}
    names = ", ".join(dict.fromkeys(other.path.name for other in rivals))
    if len(attempts) > 1:
        is_newest = all(best.attempt >= rival.attempt for rival in rivals)
        how = "the newest" if is_newest else "the newest one with answers"
        remarks.append(remark(f"{len(attempts)} attempts: graded is {best.path.name}, {how}"))
    else:
        count = len(rivals) + 1
        remarks.append(remark(f"{count} notebooks: graded is {best.path.name}, and not {names}"))


def _files(entry: Entry, room: Path, remarks: list[str]) -> list[Path]:
    """Return the files of an entry, in zips, too, but links."""
    is_folder = entry.path.is_dir() and not entry.path.is_symlink()
    paths = sorted(entry.path.rglob("*")) if is_folder else [entry.path]
    files: list[Path] = []
    for path in paths:
        if any(is_litter(Path(part)) for part in path.relative_to(entry.path.parent).parts):
            continue
        if path.is_symlink():
            remarks.append("a link is not followed")
        elif path.is_file() and path.suffix.lower() == ".zip" and zipfile.is_zipfile(path):
            target = room / str(len(files))
            try:
                unpack(path, target)
            except CourseError as error:
                remarks.append(remark(str(error)))
                continue
            inside = sorted(target.rglob("*"))
            files += [file for file in inside if file.is_file() and not _is_within_litter(file)]
        elif path.is_file() and not is_litter(path):
            files.append(path)
    return files


def _is_within_litter(path: Path) -> bool:
    return is_litter(path) or bool(LITTER & set(path.parts))


def _looks_like_a_notebook(path: Path) -> bool:
    """Tell whether a file of another name, as a browser saves it, begins as a notebook does."""
    if path.suffix.lower() not in (".json", ".txt", ""):
        return False
    with path.open("rb") as file:
        return b'"cells"' in file.read(4000)


def _candidate(
    entry: Entry, attempt: tuple[int, float], path: Path, released: NotebookNode
) -> Candidate:
    assignment = released.metadata["fednb"]["assignment"]
    has_name = path.stem == assignment
    try:
        nb = read_notebook(path)
        require_assignment(path, nb, assignment)
    except CourseError:
        return Candidate(False, False, attempt, 0, False, has_name, path, entry)
    asked = {grade_id(cell): cell for cell in released.cells if marks_of(cell).get("solution")}
    names = names_of(nb, released)
    answered = set()
    for name, cell in zip(names, nb.cells, strict=True):
        if name in asked and not is_unanswered(cell) and cell.source != asked[name].source:
            answered.add(name)
    is_handout = bool(set(names) & set(asked))
    is_own_work = not is_handout and any(cell.cell_type == "code" for cell in nb.cells)
    has_answers = bool(answered) or is_own_work
    return Candidate(True, has_answers, attempt, len(answered), is_handout, has_name, path, entry)


def require_assignment(file: Path, nb: NotebookNode, assignment: str) -> None:
    """Raise a `CourseError` if the file says that it is the hand-out of another assignment."""
    origin = nb.metadata.get("fednb", {}).get("assignment", assignment)
    if origin != assignment:
        raise CourseError(
            f"{file.name} is the hand-out of {str(origin)[:100]}, not of {assignment}."
        )


def take_along(
    notebook: Path, files: Iterable[Path], names: dict[Path, str], remarks: list[str]
) -> dict[str, Path]:
    """Return the files that go along with a notebook, by their names, and tell of all in remarks.

    ``names`` has the students' own names of files that a learning-management system has renamed.
    """
    along: dict[str, Path] = {}
    left = []
    size = 0
    for path in files:
        name = names.get(path, path.name)
        if path.is_relative_to(notebook.parent) and path not in names:
            name = path.relative_to(notebook.parent).as_posix()
        bytes_of_file = path.stat().st_size
        if path.suffix.lower() not in HELPERS:
            left.append(name)
        elif size + bytes_of_file > HELPER_SIZE:
            left.append(f"{name} (more than {HELPER_SIZE >> 20} MB)")
        elif path.suffix == ".py" and _hides_a_module(path.stem):
            left.append(f"{name} (it would hide the module {path.stem})")
        else:
            size += bytes_of_file
            along[name] = path
    if along:
        remarks.append(remark(f"taken along: {', '.join(along)}"))
    if left:
        remarks.append(remark(f"left out: {', '.join(left)}"))
    return along


def _hides_a_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a zip, links excepted, into a folder that nothing in it leaves.

    A `CourseError` says that it is damaged, locked by a password or too large.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [member for member in opened.infolist() if not member.is_dir()]
            size = sum(member.file_size for member in members)
            if size > UNPACKED or len(members) > MOST_FILES:
                raise CourseError(
                    f"{archive.name} holds {len(members)} files of {size >> 20} MB: at most "
                    f"{MOST_FILES} of {UNPACKED >> 20} MB are unpacked."
                )
            for member in members:
                _unpack_one(opened, member, folder)
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, OSError, EOFError) as error:
        raise CourseError(f"{archive.name} cannot be unpacked ({error}).") from error


def _unpack_one(opened: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path) -> None:
    if stat.S_ISLNK(member.external_attr >> 16):
        return
    parts = PurePosixPath(member.filename.replace("\\", "/")).parts
    parts = tuple(part.replace(":", "_") for part in parts if part not in ("/", "..", "."))
    target = folder.joinpath(*parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    with opened.open(member) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file)
    with_zone = (*member.date_time, 0, 0, -1)
    try:
        when = time.mktime(with_zone)
    except (OverflowError, ValueError):
        return
    os.utime(target, (when, when))


# --- a submission and the hand-out


def names_of(nb: NotebookNode, released: NotebookNode) -> list[str]:
    """Return for each cell the grade id of the hand-out's cell that it is, or "".

    Cells are known by their grade id, or by their id if the metadata got lost.
    """
    kinds = {grade_id(cell): cell.cell_type for cell in released.cells if grade_id(cell)}
    id_to_name = {cell.id: grade_id(cell) for cell in released.cells if grade_id(cell)}
    names = []
    for cell in nb.cells:
        name = grade_id(cell)
        if name not in kinds:
            name = id_to_name.get(cell.get("id", ""), "")
        names.append(name if kinds.get(name) == cell.cell_type else "")
    return names


def merged(nb: NotebookNode, released: NotebookNode) -> tuple[NotebookNode, list[str]]:
    """Return the hand-out with a submission's answers and own cells in it, and remarks.

    Nothing else is taken over: tags and metadata can disarm a check. A cell that was split counts
    as one; of copies the last one with an answer counts.
    """
    remarks: list[str] = []
    names = names_of(nb, released)
    asked = [grade_id(cell) for cell in released.cells if marks_of(cell).get("solution")]
    answers: dict[str, NotebookNode] = {}
    own: dict[int, NotebookNode] = {}  # by place: cells of a name that are not the answer
    for name in asked:
        if name in names:
            answers[name] = _answer(nb, name, names, own, remarks)
    before, last = _own_cells(nb, names, own, released)
    if asked and not answers:
        remarks.append(
            "none of its cells is the hand-out's: was the work pasted into a new notebook? Its "
            "cells are executed before the first check"
        )
        before[asked[0]] += last
        last = []
    cells = []
    for cell in released.cells:
        name = grade_id(cell)
        if name in asked:
            _take_over(answers.get(name), cell, remarks)
        cells += [*before.pop(name, []), cell]
    return NotebookNode({**released, "cells": cells + last}), remarks


def _own_cells(
    nb: NotebookNode, names: list[str], own: dict[int, NotebookNode], released: NotebookNode
) -> tuple[dict[str, list[NotebookNode]], list[NotebookNode]]:
    """Return a student's own cells by the name of the cell that follows, and the last ones."""
    of_handout = {cell.source for cell in released.cells if not grade_id(cell)}
    before: dict[str, list[NotebookNode]] = defaultdict(list)
    waiting: list[NotebookNode] = []
    for place, (name, cell) in enumerate(zip(names, nb.cells, strict=True)):
        if place in own:
            waiting.append(_own_cell(cell))
        elif name:
            before[name] += waiting
            waiting = []
        elif cell.source not in of_handout:
            waiting.append(_own_cell(cell))
    return before, waiting


def _answer(
    nb: NotebookNode,
    name: str,
    names: list[str],
    own: dict[int, NotebookNode],
    remarks: list[str],
) -> NotebookNode:
    """Return the one cell that a student's cells of a name make; the others become ``own``."""
    runs = _runs(names, name)
    answered = [run for run in runs if not all(is_unanswered(nb.cells[place]) for place in run)]
    chosen = (answered or runs)[-1]
    if len(runs) > 1:
        remarks.append(f"{name} is there {len(runs)} times: the last with an answer counts")
    for run in runs:
        if run is not chosen:
            own.update({place: nb.cells[place] for place in run})
    pieces = [nb.cells[place] for place in chosen]
    if len(pieces) == 1:
        return pieces[0]
    remarks.append(f"{name} was split: its {len(pieces)} cells count as one")
    is_code = pieces[0].cell_type == "code"
    if is_code and (chosen[-1] - chosen[0] >= len(chosen) or _has_cell_magic(pieces[1:])):
        # as they cannot be one cell, the last one is graded after the others
        own.update({place: nb.cells[place] for place in chosen[:-1]})
        return pieces[-1]
    whole = NotebookNode(pieces[0])
    whole.source = ("\n" if is_code else "\n\n").join(piece.source for piece in pieces)
    for piece in pieces[1:]:
        if "attachments" in piece:
            whole.attachments = {**whole.get("attachments", {}), **piece.attachments}
    return whole


def _has_cell_magic(cells: list[NotebookNode]) -> bool:
    return any(cell.source.lstrip().startswith("%%") for cell in cells)


def _runs(names: list[str], name: str) -> list[list[int]]:
    """Return the places of a name, those together between which no other name stands."""
    runs: list[list[int]] = []
    last = ""
    for place, other in enumerate(names):
        if other == name and last == name:
            runs[-1].append(place)
        elif other == name:
            runs.append([place])
        last = other or last
    return runs


def _own_cell(cell: NotebookNode) -> NotebookNode:
    new = new_code_cell() if cell.cell_type == "code" else new_markdown_cell()
    _take_over(cell, new, [])
    return new


def _take_over(student_cell: NotebookNode | None, cell: NotebookNode, remarks: list[str]) -> None:
    """Give ``cell`` the student's source, and pictures if it is a text."""
    if student_cell is None:
        if cell.cell_type == "code":
            cell.source = ""  # the student's own cells may have what it asks for
        return
    cell.source = student_cell.source
    if len(cell.source) > LONGEST:
        remarks.append(f"{grade_id(cell)} was cut after {LONGEST} characters")
        cell.source = cell.source[:LONGEST]
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
