"""What was handed in: found in a folder or zip, by student, and of each the notebook to grade."""

import os
import re
import shutil
import time
import unicodedata
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from nbformat import NotebookNode

from fednb.errors import CourseError
from fednb_lab.course.notebooks import (
    files_of,
    grade_id,
    is_unanswered,
    marks_of,
    names_of,
    read_notebook,
    sanitise,
)

# What systems and editors leave in folders, and nobody hands in.
IGNORED = {".DS_Store", "Thumbs.db", "desktop.ini", "__MACOSX", ".ipynb_checkpoints"}
IGNORED |= {".git", ".gitignore", ".gitkeep", "__pycache__"}
IGNORED |= {".github", ".idea", ".vscode", ".venv", "venv", "node_modules"}
HELPER_SIZE = 5 << 20  # bytes of all that is taken along beside a notebook
UNPACKED = 2 << 30  # bytes of all that a zip holds
MOST_FILES = 20_000
# How learning-management systems name what they collect: Moodle's folders, Canvas' files.
MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_[a-z]+_?(?P<file>.*)")
CANVAS = re.compile(r"(?P<name>[^_]+)_(LATE_)?(?P<id>\d+)_(?P<attempt>\d+)_(?P<file>.+)")


class Entry(NamedTuple):
    """A file or folder in what was handed in, read by its name."""

    path: Path
    given: str
    name: str
    id: str
    attempt: int  # 0 if the name does not say
    file: str  # the student's own name of the file
    is_named: bool  # by a learning-management system


@dataclass
class Submission:
    """What a student has handed in, and what became of it."""

    entry: Entry  # in which its notebook is
    when: tuple[int, float] = (0, 0)  # the number of the attempt, and when it was last changed
    nb: NotebookNode | None = None  # None if there is none that can be graded
    origin: str = ""  # the assignment that the notebook says it was handed out for
    files: dict[str, Path] = field(default_factory=dict)  # beside it, by their names
    remarks: list[str] = field(default_factory=list)
    digest: str = ""  # of all that decides about its points
    errors: dict[str, str] = field(default_factory=dict)  # of its cells, by grade id
    is_late: bool = False  # a cell was ended as it took too long


def entry_of(path: Path) -> Entry:
    """Read the name of a file or folder."""
    given = unicodedata.normalize("NFC", path.name if _is_folder(path) else path.stem)
    given = given.removesuffix(".ipynb")  # a browser saves anna.ipynb.txt
    match = MOODLE.fullmatch(given) or CANVAS.fullmatch(given)
    if not match:
        return Entry(path, given, sanitise(given), given, 0, path.name, False)
    parts = match.groupdict()
    file = re.sub(r"-\d+$", "", parts["file"]) + path.suffix  # Canvas numbers what comes again
    attempt = int(parts.get("attempt", 0))
    return Entry(path, given, sanitise(parts["name"]), parts["id"], attempt, file, True)


def collect(
    handed_in: Path, released: NotebookNode, room: Path, known: dict[str, str]
) -> dict[str, Submission]:
    """Find what is handed in, by student: a folder, a zip, or one student's notebook.

    Zips are unpacked into the folder ``room``. Who was graded before is ``known``: the student of
    each id. A `CourseError` says that there is nothing, or that a name does not say whose work it
    is. What is nobody's is printed.
    """
    if room.exists():
        shutil.rmtree(room)
    assignment = released.metadata["fednb"]["assignment"]
    by_owner: dict[str, list[Entry]] = defaultdict(list)
    for path in _given(handed_in, room, assignment):
        entry = entry_of(path)
        by_owner[entry.id].append(entry)
        if entry.given.startswith(assignment):
            raise CourseError(
                f"{path} does not say whose it is: rename it, for example to anna.ipynb, or put it "
                "into a folder of the student's name."
            )
    by_student = {}
    taken = {student.casefold() for student in known.values()}
    for number, (owner, own) in enumerate(by_owner.items()):
        if not any(one.is_named or _is_folder(one.path) or _holds_work(one.path) for one in own):
            print("Nobody's, and left out:", *(sanitise(one.path.name) for one in own), flush=True)
            continue
        wanted = f"{own[0].name}_{owner}" if own[0].is_named else own[0].given
        student = known.get(owner) or _student(wanted, taken)
        by_student[student] = _submission(own, released, room / str(number))
        if not own[0].is_named and student != re.sub(r"\s", "_", wanted):
            by_student[student].remarks.append(f"the name {own[0].name} has become {student}")
    if not by_student:
        raise CourseError(f"There is no submission in {handed_in}.")
    return by_student


def _given(handed_in: Path, room: Path, assignment: str) -> list[Path]:
    """Return the files and folders that were handed in, in the one folder around them, if any."""
    folder = handed_in
    if handed_in.suffix.lower() == ".zip" and handed_in.is_file():
        folder = room / "all"
        unpack(handed_in, folder)
    elif not handed_in.is_dir():
        if is_notebook(handed_in) and handed_in.is_file():
            return [handed_in]
        raise CourseError(f"{handed_in} is no folder, zip or notebook: name one of submissions.")
    paths = _listed(folder)
    if len(paths) == 1 and paths[0].is_dir() and not entry_of(paths[0]).is_named:
        inside = _listed(paths[0])
        is_of_one = any(path.name.startswith(assignment) for path in inside)
        are_named = any(entry_of(path).is_named for path in inside)
        if are_named or (sum(map(_holds_work, inside)) > 1 and not is_of_one):
            return inside
    return paths


def _listed(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not is_ignored(path.name))


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _holds_work(path: Path) -> bool:
    """Tell whether a file or folder is a notebook or a zip, or has one in it."""
    files = [path, *path.rglob("*")] if _is_folder(path) else [path]
    return any(file.suffix.lower() == ".zip" or is_notebook(file) for file in files)


def is_ignored(*names: str) -> bool:
    """Tell whether nobody hands in what has such a name, or lies in a folder of such a name."""
    return any(name in IGNORED or name.startswith("._") for name in names)  # a Mac writes ._a.ipynb


def is_notebook(path: Path) -> bool:
    """Tell whether a file is called a notebook, also as a browser saves it: anna.ipynb.txt."""
    return ".ipynb" in (suffix.lower() for suffix in path.suffixes)


def _student(given: str, taken: set[str]) -> str:
    """Return a name that is no option of a command, no formula of a spreadsheet, and not taken.

    It differs from others by more than capitals, as in the file systems of some machines.
    """
    name = safe = re.sub(r"[^\w.@-]+|^\W+", "_", given)[:100] or "_"
    number = 2
    while name.casefold() in taken:
        name = f"{safe}-{number}"
        number += 1
    taken.add(name.casefold())
    return name


def _submission(own: list[Entry], released: NotebookNode, room: Path) -> Submission:
    """Choose what to grade of a student's entries, and say in the remarks what was left out.

    It is the newest notebook with answers; of those in one entry the one with most answers.
    """
    remarks: list[str] = []
    notebooks = []
    beside = {}
    for number, entry in enumerate(own):
        for root, path in _files(entry, room / str(number), remarks):
            if is_notebook(path):
                num_answers, read = _read(entry, path, released)
                order = num_answers > 0, read.when, num_answers, path
                notebooks.append((order, path.relative_to(root).as_posix(), read))
            else:
                beside[path] = entry.file if entry.path == path else ""
    if not notebooks:
        names = ", ".join(sorted({path.name for path in beside}))
        said = f"no notebook was handed in, but {names}" if names else "nothing was handed in"
        return Submission(own[0], remarks=[*remarks, said])
    *rivals, ((*_, path), file, best) = sorted(notebooks, key=lambda notebook: notebook[0])
    best.remarks = remarks + best.remarks
    if rivals:
        names = ", ".join(name for _, name, _ in rivals)
        best.remarks.append(f"{len(notebooks)} notebooks: graded is {file}, and not {names}")
    of_handout = (".whl", *(f"/{name}" for name in files_of(released)))
    along = {}
    for other, name in beside.items():
        if not other.as_posix().endswith(of_handout):
            is_below = other.is_relative_to(path.parent)
            place = other.relative_to(path.parent).as_posix() if is_below else other.name
            along[name or place] = other
    best.files = take_along(along, best.remarks)
    return best


def _files(entry: Entry, room: Path, remarks: list[str]) -> Iterator[tuple[Path, Path]]:
    """Yield the files of an entry, those in zips, too, but no links, and the folder around all."""
    root = entry.path if _is_folder(entry.path) else entry.path.parent
    found = [(root, path) for path in (root.rglob("*") if root == entry.path else [entry.path])]
    for number, (_, path) in enumerate(list(found)):
        if path.suffix.lower() == ".zip" and path.is_file() and not path.is_symlink():
            try:
                unpack(path, room / str(number))
            except CourseError as error:
                remarks.append(str(error))
            found.remove((root, path))
            found += [(room / str(number), file) for file in (room / str(number)).rglob("*")]
    for root, path in sorted(found):
        if is_ignored(*path.relative_to(root).parts):
            continue
        if path.is_symlink():
            remarks.append("a link is not followed")
        elif path.is_file():
            yield root, path


def _read(entry: Entry, path: Path, released: NotebookNode) -> tuple[int, Submission]:
    """Return a notebook as if it were all that was handed in, and how many cells it answers."""
    files = [file for file in entry.path.rglob("*") if file.is_file()] or [entry.path]
    when = entry.attempt, max(file.stat().st_mtime for file in files)
    found = Submission(entry, when)
    try:
        nb = read_notebook(path)
        found.origin = str(nb.metadata.get("fednb", {}).get("assignment", ""))
        assignment = released.metadata["fednb"]["assignment"]
        if found.origin not in ("", assignment):
            raise CourseError(f"{path.name} is the hand-out of {found.origin}, not {assignment}'s")
        found.nb = nb
    except CourseError as error:
        found.remarks.append(str(error))
        return 0, found
    return _num_answers(nb, released), found


def _num_answers(nb: NotebookNode, released: NotebookNode) -> int:
    """Count the cells that are a student's own, or asked for, and not as they were handed out."""
    given = {cell.source for cell in released.cells}
    locked = {grade_id(cell) for cell in released.cells if marks_of(cell).get("locked")}
    return sum(
        name not in locked and cell.source not in given and not is_unanswered(cell)
        for name, cell in zip(names_of(nb, released), nb.cells, strict=True)
    )


def take_along(beside: dict[str, Path], remarks: list[str]) -> dict[str, Path]:
    """Return the files that go along with a notebook, the smallest first, and tell of all."""
    along = {}
    left = []
    size = 0
    for name, path in sorted(beside.items(), key=lambda one: one[1].stat().st_size):
        size += path.stat().st_size
        if size <= HELPER_SIZE:
            along[name] = path
        else:
            left.append(name)
    if along:
        remarks.append(f"taken along: {', '.join(along)}")
    if left:
        remarks.append(f"left out, as more than {HELPER_SIZE >> 20} MB in all: {', '.join(left)}")
    return along


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a zip into a folder that nothing in it leaves; links in it become files of text.

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
                member.filename = member.filename.replace("\\", "/")  # as some Windows zips have it
                target = opened.extract(member, folder)
                with suppress(OverflowError, ValueError):  # a date that there is not
                    when = time.mktime((*member.date_time, 0, 0, -1))
                    os.utime(target, (when, when))
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, OSError, EOFError) as error:
        raise CourseError(f"{archive.name} cannot be unpacked ({error}).") from error
