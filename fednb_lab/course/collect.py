"""What was handed in: found in a folder or zip, by student, and of each the notebook to grade."""

import os
import re
import shutil
import stat
import time
import unicodedata
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from nbformat import NotebookNode

from fednb.errors import CourseError
from fednb_lab.course.merging import names_of
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
LITTER |= {".github", ".idea", ".vscode", ".venv", "venv", "node_modules"}
# What is taken along beside a notebook, as its cells may read it.
HELPERS = {".py", ".csv", ".json", ".yaml", ".yml", ".txt", ".npy", ".npz", ".png", ".jpg"}
HELPER_SIZE = 5 << 20  # bytes of all of them
UNPACKED = 2 << 30  # bytes of all that a zip holds
MOST_FILES = 20_000
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
        named = [path for path in inside if entry_of(path).is_named]
        people = [path for path in inside if _holds_work(path)]
        has_own = any(path.is_file() and path.suffix.lower() == ".ipynb" for path in inside)
        if named or (len(people) > 1 and not has_own):
            return sorted(inside)
    return paths


def _holds_work(path: Path) -> bool:
    """Tell whether a folder has a notebook or a zip in it, or is a zip."""
    inside = path.rglob("*") if path.is_dir() else [path]
    wanted = (".zip", ".ipynb") if path.is_dir() else (".zip",)
    return any(file.suffix.lower() in wanted for file in inside)


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

    has_answers: bool
    attempt: tuple[int, float]  # its number, and when it was last changed
    num_answers: int
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
    of_handout = set(released.metadata["fednb"].get("files", []))
    files = [(entry, path) for entry, path in files if not _ends_as(path, of_handout)]
    candidates = []
    for entry, path in files:
        if path.suffix.lower() == ".ipynb" or _looks_like_a_notebook(path):
            candidates.append(_candidate(entry, path, released))
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
    if len(attempts) > 1:
        is_newest = all(best.attempt >= rival.attempt for rival in rivals)
        how = "the newest" if is_newest else "the newest one with answers"
        remarks.append(remark(f"{len(attempts)} attempts: graded is {best.path.name}, {how}"))
    else:
        names = ", ".join(dict.fromkeys(other.path.name for other in rivals))
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


def _candidate(entry: Entry, path: Path, released: NotebookNode) -> Candidate:
    assignment = released.metadata["fednb"]["assignment"]
    num_answers = 0
    with suppress(CourseError):
        nb = read_notebook(path)
        require_assignment(path, nb, assignment)
        num_answers = _num_answers(nb, released)
    attempt = (entry.attempt, _changed(entry.path))
    return Candidate(bool(num_answers), attempt, num_answers, path.stem == assignment, path, entry)


def _changed(path: Path) -> float:
    """Return when a file, or the newest one in a folder, was last changed."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return max(file.stat().st_mtime for file in files)


def _num_answers(nb: NotebookNode, released: NotebookNode) -> int:
    """Count the answered cells of a notebook; work in a notebook of one's own counts as one."""
    asked = {grade_id(cell): cell for cell in released.cells if marks_of(cell).get("solution")}
    names = names_of(nb, released)
    if not set(names) & set(asked):
        return int(any(cell.cell_type == "code" for cell in nb.cells))
    answered = set()
    for name, cell in zip(names, nb.cells, strict=True):
        if name in asked and not is_unanswered(cell) and cell.source != asked[name].source:
            answered.add(name)
    return len(answered)


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
        else:
            size += bytes_of_file
            along[name] = path
    if along:
        remarks.append(remark(f"taken along: {', '.join(along)}"))
    if left:
        remarks.append(remark(f"left out: {', '.join(left)}"))
    return along


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
