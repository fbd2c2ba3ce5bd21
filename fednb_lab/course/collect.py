"""What was handed in: found in a folder or zip, by student, and of each the notebook to grade."""

import os
import re
import shutil
import time
import unicodedata
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from nbformat import NotebookNode

from fednb.errors import CourseError
from fednb_lab.course.merging import names_of
from fednb_lab.course.notebooks import (
    files_of,
    grade_id,
    is_unanswered,
    marks_of,
    plain,
    read_notebook,
)

# What systems and editors leave in folders, and nobody hands in.
LITTER = {".DS_Store", "Thumbs.db", "desktop.ini", "__MACOSX", ".ipynb_checkpoints"}
LITTER |= {".git", ".gitignore", ".gitkeep", "__pycache__"}
LITTER |= {".github", ".idea", ".vscode", ".venv", "venv", "node_modules"}
# What is taken along beside a notebook, as its cells may read it.
HELPERS = {".py", ".csv", ".json", ".yaml", ".yml", ".txt", ".npy", ".npz", ".png", ".jpg"}
HELPER_SIZE = 5 << 20  # bytes of all of them
UNPACKED = 2 << 30  # bytes of all that a zip holds
MOST_FILES = 20_000
# How learning-management systems name what they collect: Moodle's folders, Canvas' files.
MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_[a-z]+_?(?P<file>.*)")
CANVAS = re.compile(r"(?P<name>[^_]+)_(?P<late>LATE_)?(?P<id>\d+)_(?P<attempt>\d+)_(?P<file>.+)")


class Entry(NamedTuple):
    """A file or folder in what was handed in, read by its name."""

    path: Path
    given: str
    name: str
    id: str
    attempt: int  # 0 if the name does not say
    is_late: bool  # as the system says
    file: str  # the student's own name of the file
    is_named: bool  # by a learning-management system


@dataclass
class Submission:
    """What a student has handed in: a notebook, or none."""

    entry: Entry  # in which it is
    file: str = ""  # where in the entry it lies
    when: tuple[int, float] = (0, 0)  # the number of the attempt, and when it was last changed
    nb: NotebookNode | None = None  # None if there is none that can be graded
    origin: str = ""  # the assignment that the notebook says it was handed out for
    order: tuple[Any, ...] = ()  # the greatest is graded: answers, attempt, name, path
    helpers: dict[str, Path] = field(default_factory=dict)  # files beside it, by their names
    remarks: list[str] = field(default_factory=list)


def entry_of(path: Path) -> Entry:
    """Read the name of a file or folder."""
    is_folder = path.is_dir() and not path.is_symlink()
    given = unicodedata.normalize("NFC", path.name if is_folder else path.stem)
    given = given.removesuffix(".ipynb")  # a browser saves anna.ipynb.txt
    match = MOODLE.fullmatch(given) or CANVAS.fullmatch(given)
    if not match:
        return Entry(path, given, plain(given), given, 0, False, path.name, False)
    parts = match.groupdict()
    file = re.sub(r"-\d+$", "", parts["file"]) + path.suffix  # Canvas numbers what comes again
    attempt = int(parts.get("attempt", 0))
    is_late = bool(parts.get("late"))
    return Entry(path, given, plain(parts["name"]), parts["id"], attempt, is_late, file, True)


def collect(
    handed_in: Path,
    released: NotebookNode,
    room: Path,
    known: dict[str, str],
    listed: dict[str, tuple[str, str]],
) -> dict[str, Submission]:
    """Find what is handed in, by student: a folder, a zip, or one student's notebook.

    Zips are unpacked into the folder ``room``. Who was graded before is ``known``: the student of
    each id; ``listed`` has the names and numbers of those whom the teacher expects, by student. A
    `CourseError` says that there is nothing. What is nobody's is printed.
    """
    if room.exists():
        shutil.rmtree(room)
    entries = [entry_of(path) for path in _given(handed_in, released, room)]
    owners = {entry.id for entry in entries if _begins_a_submission(entry)}
    by_owner: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.id in owners:
            by_owner[entry.id].append(entry)
        else:
            print(f"Nobody's, and left out: {plain(entry.path.name)}", flush=True)
    if not by_owner:
        raise CourseError(f"There is no submission in {handed_in}.")
    by_student: dict[str, Submission] = {}
    taken = {student.casefold() for student in [*known.values(), *listed]}
    expected = _by_any_name(listed)
    for number, (owner, own) in enumerate(by_owner.items()):
        wanted = f"{own[0].name}_{owner}" if own[0].is_named else own[0].given
        student = known.get(owner) or expected.get(owner.casefold())
        student = student or expected.get(own[0].name.casefold())
        if student is None or student in by_student:
            student = _student(wanted, taken)
        by_student[student] = _submission(own, released, room / str(number))
        if not own[0].is_named and student != re.sub(r"\s", "_", wanted):
            by_student[student].remarks.append(f"the name {own[0].name} has become {student}")
    return by_student


def _by_any_name(listed: dict[str, tuple[str, str]]) -> dict[str, str]:
    """Return the student of each name that only one has, whatever its capitals."""
    students = defaultdict(set)
    for student, names in listed.items():
        for name in (student, *names):
            students[name.casefold()].add(student)
    return {name: owners.pop() for name, owners in students.items() if len(owners) == 1}


def _given(handed_in: Path, released: NotebookNode, room: Path) -> list[Path]:
    """Return the files and folders that were handed in."""
    folder = handed_in
    if zipfile.is_zipfile(handed_in):
        folder = room / "all"
        unpack(handed_in, folder)
    elif handed_in.suffix.lower() == ".zip" and handed_in.is_file():
        raise CourseError(f"{handed_in} is a damaged zip: download it once more.")
    assignment = released.metadata["fednb"]["assignment"]
    if folder.is_dir():
        notebooks = [path for path in folder.iterdir() if is_notebook(path)]
        if [path.stem for path in notebooks] != [assignment]:
            return _within(folder)
    elif not (handed_in.is_file() and is_notebook(handed_in)):
        what = "no folder, zip or notebook" if handed_in.exists() else "not there"
        raise CourseError(f"{handed_in} is {what}: name a folder or a zip of submissions.")
    if handed_in.stem.startswith(assignment):
        raise CourseError(
            f"{handed_in} is one submission, and its name does not say whose: rename it, for "
            "example to anna.ipynb."
        )
    return [folder if folder.is_dir() else handed_in]


def _within(folder: Path) -> list[Path]:
    """Return what lies in a folder, or in the one folder that a zip has put around it."""
    paths = sorted(path for path in folder.iterdir() if not is_litter(path.name))
    if len(paths) == 1 and paths[0].is_dir() and not entry_of(paths[0]).is_named:
        inside = sorted(path for path in paths[0].iterdir() if not is_litter(path.name))
        people = [path for path in inside if _holds_work(path)]
        has_own = any(path.is_file() and is_notebook(path) for path in inside)
        if any(entry_of(path).is_named for path in inside) or (len(people) > 1 and not has_own):
            return inside
    return paths


def _holds_work(path: Path) -> bool:
    """Tell whether a folder has a notebook or a zip in it, or is a zip."""
    inside = path.rglob("*") if path.is_dir() else [path]
    return any(file.suffix.lower() == ".zip" or is_notebook(file) for file in inside)


def is_litter(*names: str) -> bool:
    """Tell whether nobody hands in what has such a name, or lies in a folder of such a name."""
    return any(name in LITTER or name.startswith("._") for name in names)  # a Mac writes ._a.ipynb


def is_notebook(path: Path) -> bool:
    """Tell whether a file is called a notebook, or begins as one, as a browser saves it."""
    if path.suffix.lower() in (".json", ".txt", "") and path.is_file():
        with path.open("rb") as file:
            return b'"cells"' in file.read(4000)
    return path.suffix.lower() == ".ipynb"


def _begins_a_submission(entry: Entry) -> bool:
    """Tell whether an entry makes a row: a readme.txt alone is no student."""
    is_folder = entry.path.is_dir() and not entry.path.is_symlink()
    is_zip = entry.path.suffix.lower() == ".zip"
    return is_folder or is_zip or entry.is_named or is_notebook(entry.path)


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
    """Choose what to grade of a student's entries, and say in the remarks what was left out."""
    remarks: list[str] = []
    notebooks = []
    beside = []
    for number, entry in enumerate(own):
        for path, place in _files(entry, room / str(number), remarks):
            if is_notebook(path):
                notebooks.append(_read(entry, path, place, released))
            else:
                beside.append(path)
    of_handout = (".whl", *(f"/{name}" for name in files_of(released)))
    beside = [path for path in beside if not path.as_posix().endswith(of_handout)]
    if not notebooks:
        names = ", ".join(sorted({path.name for path in beside}))
        said = f"no notebook was handed in, but {names}" if names else "nothing was handed in"
        return Submission(own[0], remarks=[*remarks, said])
    *rivals, best = sorted(notebooks, key=attrgetter("order"))
    best.remarks = remarks + best.remarks
    attempts = {notebook.entry.path for notebook in notebooks}
    if len(attempts) > 1:
        is_newest = all(best.when >= rival.when for rival in rivals)
        how = "the newest" if is_newest else "the newest one with answers"
        best.remarks.append(f"{len(attempts)} attempts: graded is {best.file}, {how}")
    elif rivals:
        names = ", ".join(dict.fromkeys(rival.file for rival in rivals))
        best.remarks.append(f"{len(notebooks)} notebooks: graded is {best.file}, and not {names}")
    if best.entry.is_late:
        best.remarks.append("handed in late")
    renamed = {entry.path: entry.file for entry in own if entry.path.is_file()}
    best.helpers = take_along(best.order[-1].parent, beside, renamed, best.remarks)
    return best


def _files(entry: Entry, room: Path, remarks: list[str]) -> Iterator[tuple[Path, str]]:
    """Yield the files of an entry, those in zips, too, but no links, and where in it they lie."""
    is_folder = entry.path.is_dir() and not entry.path.is_symlink()
    paths = sorted(entry.path.rglob("*")) if is_folder else [entry.path]
    for number, path in enumerate(paths):
        place = path.relative_to(entry.path)
        if is_litter(*path.relative_to(entry.path.parent).parts):
            continue
        if path.is_symlink():
            remarks.append("a link is not followed")
        elif path.is_file() and path.suffix.lower() == ".zip":
            target = room / str(number)
            try:
                unpack(path, target)
            except CourseError as error:
                remarks.append(str(error))
            for file in sorted(target.rglob("*")):
                within = file.relative_to(target)
                if file.is_file() and not is_litter(*within.parts):
                    yield file, (place / within).as_posix()
        elif path.is_file():
            yield path, place.as_posix() if is_folder else path.name


def _read(entry: Entry, path: Path, place: str, released: NotebookNode) -> Submission:
    """Return a notebook as if it were all that was handed in."""
    assignment = released.metadata["fednb"]["assignment"]
    files = [file for file in entry.path.rglob("*") if file.is_file()] or [entry.path]
    when = entry.attempt, max(file.stat().st_mtime for file in files)
    found = Submission(entry, file=place, when=when)
    num_answers = 0
    try:
        nb = read_notebook(path)
        found.origin = str(nb.metadata.get("fednb", {}).get("assignment", ""))
        if found.origin not in ("", assignment):
            raise CourseError(f"{path.name} is the hand-out of {found.origin}, not {assignment}'s")
        num_answers = _num_answers(nb, released)
        found.nb = nb
    except CourseError as error:
        found.remarks.append(str(error))
    found.order = num_answers > 0, found.when, num_answers, path.stem == assignment, path
    return found


def _num_answers(nb: NotebookNode, released: NotebookNode) -> int:
    """Count the answered cells of a notebook; work in a notebook of one's own counts as one."""
    asked = {grade_id(cell): cell for cell in released.cells if marks_of(cell).get("solution")}
    names = names_of(nb, released)
    if not set(names) & set(asked):
        return int(any(cell.cell_type == "code" for cell in nb.cells))
    answered = [
        name
        for name, cell in zip(names, nb.cells, strict=True)
        if name in asked and not is_unanswered(cell) and cell.source != asked[name].source
    ]
    return len(set(answered))


def take_along(
    folder: Path, files: Iterable[Path], names: dict[Path, str], remarks: list[str]
) -> dict[str, Path]:
    """Return the files that go along with a notebook in a folder, by name, and tell of all.

    ``names`` has the students' own names of files that a learning-management system has renamed.
    """
    along: dict[str, Path] = {}
    left = []
    size = 0
    for path in files:
        place = path.relative_to(folder) if path.is_relative_to(folder) else Path(path.name)
        name = names.get(path, place.as_posix())
        size_with_it = size + path.stat().st_size
        if path.suffix.lower() in HELPERS and size_with_it <= HELPER_SIZE:
            size = size_with_it
            along[name] = path
        else:
            left.append(name)
    if along:
        remarks.append(f"taken along: {', '.join(along)}")
    if left:
        most = f"code, tables and pictures of {HELPER_SIZE >> 20} MB in all"
        remarks.append(f"left out, as cells read only {most}: {', '.join(left)}")
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
