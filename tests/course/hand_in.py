"""Submissions of every kind to any assignment, made from its hand-out and its solutions.

Right, partly right, oddly put, damaged, endless, hostile: each with its points and a part of its
remark.
"""

import ast
import io
import json
import os
import random
import re
import shutil
import tempfile
import zipfile
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from nbformat.v4 import new_code_cell, new_markdown_cell
from short import solved

from fednb import ROOT
from fednb.errors import CourseError
from fednb_lab.course.check import check
from fednb_lab.course.notebooks import STUB, grade_id, marks_of, read_notebook, title_of

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
# Code behind a right solution of the first exercise, which then counts 0, and the error's name.
ENDS_BADLY = {
    "syntax": ("def f(:", "SyntaxError"),
    "fails": ("1 / 0", "ZeroDivisionError"),
    "no-module": ("import no_such_module", "ModuleNotFoundError"),
    "sys-exit": ("import sys\nsys.exit(0)", "SystemExit"),
    "prints": ("print('x' * 5 * 10**7)", "TooMuchOutput"),
    "endless": ("while True:\n    pass", "CellTimeoutError: took longer than"),
    "disk": ("open('big', 'wb').write(bytes(2 * 10**8))", "OSError"),
    "memory": ("held = bytearray(10**10)", "MemoryError"),
    "threads": (
        "import threading, time\nfor _ in range(10**4):\n"
        "    threading.Thread(target=time.sleep, args=[600], daemon=True).start()",
        "RuntimeError",
    ),
    "forks": (
        "import os, time\nfor _ in range(10**4):\n    if not os.fork():\n"
        "        time.sleep(600)\n        os._exit(0)",
        "BlockingIOError",
    ),
}
# What ends all: nothing that follows is executed.
ENDS_ALL = {
    "os-exit": ("import os\nos._exit(0)", "DeadKernelError: Kernel died"),
    "stubborn": ("sum(range(10**13))", "CellTimeoutError: took longer than"),
}
# A student's own cell on top, which takes no points and no file away.
OWN_CELL = {
    "own-fails": "1 / 0",
    "warns": "import sys\nprint('!', file=sys.stderr)",
    "pages": "from IPython.display import HTML, display\ndisplay(HTML('<script>alert(1)</script>'))",
    "spy": """
import glob, os, socket
from pathlib import Path

def text(path):
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""

found = ["environment"] * any("s3cret" in text(path) for path in glob.glob("/proc/[0-9]*/environ"))
for place in glob.glob("/proc/1/fd/*") + ["/proc/1/mem", f"/proc/{os.getppid()}/mem"]:
    found += [place] * os.access(place, os.R_OK)
for start in ("/tmp", "/work", "/home", "/root", "/var", "/mnt", COURSE, SOLUTIONS):
    for place, folders, names in os.walk(start):
        folders[:] = set(folders) - {"site-packages"}
        for path in (Path(place, name) for name in names if name.endswith((".db", ".ipynb"))):
            if path.name == "gradebook.db" or "BEGIN HIDDEN" in text(path):
                found.append(str(path))
try:
    socket.create_connection(("127.0.0.1", PORT), 2)
    found.append("network")
except OSError:
    pass
if found:
    os._exit(1)""",
    "upward": """
import os, shutil
from pathlib import Path

for place in (HANDED_IN, COURSE, SOLUTIONS, "/usr/bin", "/home", os.environ["HOME"]):
    shutil.rmtree(place, ignore_errors=True)
    try:
        Path(place).write_text("gone")
    except OSError:
        pass""",
}
KILL = """
import os, signal, psutil
for pid in [os.getppid(), *psutil.pids()]:
    if pid not in (0, os.getpid()):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass"""


class Expected(NamedTuple):
    """What a submission has to get."""

    score: float
    remark: str  # a part of it; nothing is to be remarked if it is empty


class Course:
    """An assignment's hand-out, what solves it, and where it lies."""

    def __init__(self, folder, assignment):
        self.folder = folder
        self.assignment = assignment
        self.released = read_notebook(folder / "release" / assignment / f"{assignment}.ipynb")
        source = read_notebook(folder / "source" / assignment / f"{assignment}.ipynb")
        self.right = {}
        self.checks = {}  # of each solution that is code: the points of its checks, by name
        for cell in source.cells:
            marks = marks_of(cell)
            if marks.get("solution"):
                is_code = cell.cell_type == "code"
                self.right[grade_id(cell)] = solved(cell.source) if is_code else "In words."
                if is_code:
                    last = self.checks.setdefault(grade_id(cell), {})
            elif marks.get("grade"):
                last[grade_id(cell)] = marks["points"]
        self.first = next(iter(self.checks))

    def points(self, *names):
        """The points of solutions."""
        return sum(sum(self.checks[name].values()) for name in names)

    def filled(self, **sources):
        """A right hand-out in which cells (by grade id, with _ for -) have other sources."""
        nb = deepcopy(self.released)
        wanted = self.right | {name.replace("_", "-"): text for name, text in sources.items()}
        for cell in nb.cells:
            cell.source = wanted.get(grade_id(cell), cell.source)
        return nb

    def with_first(self, source):
        return self.filled(**{self.first.replace("-", "_"): source})


def nothing(source):
    """A solution whose every name is None."""
    tree = ast.parse(source)
    names = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    names += [node.targets[0].id for node in tree.body if isinstance(node, ast.Assign)]
    return source + "".join(f"\n{name} = None" for name in names)


def variants(course, number_of_them):
    """Right and partly right submissions, each with its points."""
    draw = random.Random(0)
    states = {
        "right": lambda name: course.right[name],
        "stub": lambda name: course.released.cells[place_of(course.released, name)].source,
        "none": lambda name: nothing(course.right[name]),
        "fails": lambda name: course.right[name] + "\nraise ValueError('mine')",
    }
    for number in range(number_of_them):
        chosen = {name: draw.choice(["right", *states]) for name in course.checks}
        sources = {name.replace("-", "_"): states[how](name) for name, how in chosen.items()}
        good = [name for name, how in chosen.items() if how == "right"]
        wrong = next((name for name in chosen if name not in good), None)
        remark = title_of(next(iter(course.checks[wrong]))) if wrong else ""
        yield f"variant-{number}", course.filled(**sources), Expected(course.points(*good), remark)


# --- edits of a right notebook: each takes it, and the name of the first solution or check


def place_of(nb, name):
    return next(i for i, cell in enumerate(nb.cells) if grade_id(cell) == name)


def cell_of(nb, name):
    return nb.cells[place_of(nb, name)]


def split(nb, name, line=1):
    """Split a cell before a line, as JupyterLab does: both parts have its metadata."""
    place = place_of(nb, name)
    text = nb.cells[place].source.split("\n")
    second = deepcopy(nb.cells[place])
    nb.cells[place].source = "\n".join(text[:line])
    second.source = "\n".join(text[line:])
    second.id += "-2"
    nb.cells.insert(place + 1, second)


def split_apart(nb, name):
    split(nb, name)
    nb.cells.insert(place_of(nb, name) + 1, new_code_cell("math.pi"))


def copy(nb, name):
    stub = deepcopy(cell_of(nb, name))
    stub.source = STUB
    nb.cells.append(stub)


def paste(nb, name):
    """Make all cells new ones, as in a notebook of one's own."""
    cells = []
    for cell in nb.cells:
        new = new_code_cell if cell.cell_type == "code" else new_markdown_cell
        cells.append(new(cell.source))
    nb.cells = cells
    nb.metadata = {}


def spoil_metadata(nb, name):
    nb.metadata |= {"kernelspec": {"name": "../../none"}, "celltoolbar": 1, "widgets": {"x": 1}}
    nb.metadata["fednb"] = None
    for cell in nb.cells:
        cell.metadata = {"nbgrader": {"schema_version": 99, "grade_id": ["list"]}, "tags": [1, 2]}


def use_format_4_4(nb, name):
    nb["nbformat_minor"] = 4
    for cell in nb.cells:
        del cell["id"]


def change_ids(nb, name):
    for number, cell in enumerate(nb.cells):
        cell["id"] = f"mine-{number % 7}"  # some of them twice


def use_windows_lines(nb, name):
    for cell in nb.cells:
        cell.source = cell.source.replace("\n", "\r\n")


def pickle_outputs(nb, name):
    for cell in nb.cells:
        if cell.cell_type == "code":
            data = {"application/octet-stream": "gASVCwAAAAAAAACMB2V2aWxlZJQu"}
            cell.outputs = [{"output_type": "display_data", "data": data, "metadata": {}}]


def paste_picture(nb, name):
    answer = next(one for one in nb.cells if one.source == "In words.")
    answer.source = "![it](attachment:it.png) and ![no](attachment:no.png)"
    answer["attachments"] = {"it.png": {"image/png": PIXEL}}


SKIP = {"tags": ["skip-execution"]}
# By name an edit, and what is remarked: all have all points, as nobody is to blame ...
ODDLY_PUT = {
    "split": (split, "was split or copied: its 2 cells count as one"),
    "split-apart": (split_apart, "was split"),
    "copied": (copy, "or copied: its 2 cells"),
    "pasted": (paste, "none of its cells is the hand-out's"),
    "moved": (lambda nb, name: nb.cells.append(nb.cells.pop(place_of(nb, name))), ""),
    "own-cell-has-it": (lambda nb, name: cell_of(nb, name).update(metadata={}, id="mine"), ""),
    "format-4-4": (use_format_4_4, ""),
    "metadata": (spoil_metadata, ""),
    "ids": (change_ids, ""),
    "windows-lines": (use_windows_lines, ""),
    "pickled": (pickle_outputs, ""),
    "picture": (paste_picture, ""),
    "magics": (lambda nb, name: prepend(nb, name, "!ls\n%time 1\n"), ""),
    "times": (lambda nb, name: prepend(nb, name, "%%time\n"), ""),
}
# ... and edits of a check whose solution is missing, which earn nothing.
TAMPERED = {
    "check-changed": lambda nb, name: cell_of(nb, name).update(source="pass"),
    "check-skipped": lambda nb, name: cell_of(nb, name).metadata.update(SKIP),
    "check-disowned": lambda nb, name: cell_of(nb, name).metadata.nbgrader.update(grade=False),
    "check-deleted": lambda nb, name: nb.cells.remove(cell_of(nb, name)),
}
REFUSED = {
    "other": (lambda nb, name: nb.metadata["fednb"].update(assignment="91"), "hand-out of 91"),
}


def prepend(nb, name, text):
    cell_of(nb, name).source = text + cell_of(nb, name).source


def edited(course):
    """Right work, oddly put or damaged; checks that are tampered with; what is refused."""
    full = course.points(*course.checks)
    first = course.first
    check = next(iter(course.checks[first]))
    for name, (edit, remark) in (ODDLY_PUT | REFUSED).items():
        nb = course.with_first("import math\n" * name.startswith("split") + course.right[first])
        edit(nb, first)
        yield name, nb, Expected(0 if name in REFUSED else full, remark)
    for name, edit in TAMPERED.items():
        nb = course.with_first("x = 1")
        edit(nb, check)
        yield name, nb, Expected(full - course.points(first), title_of(check))


def ending(course, **values):
    """Solutions that end badly, and hostile cells of one's own."""
    full = course.points(*course.checks)
    check = next(iter(course.checks[course.first]))
    for name, (source, error) in ENDS_BADLY.items():
        nb = course.with_first(f"{course.right[course.first]}\n{source}")
        remark = f"{title_of(check)}: its solution ended with {error}"
        yield name, nb, Expected(full - course.points(course.first), remark)
    for name, (source, error) in ENDS_ALL.items():
        nb = course.with_first(f"{course.right[course.first]}\n{source}")
        yield name, nb, Expected(0, f"{title_of(check)}: its solution ended with {error}")
    for name, source in (OWN_CELL | {"kill": KILL}).items():
        for word, value in values.items():
            source = re.sub(rf"\b{word}\b", repr(value), source)
        nb = course.filled()
        nb.cells.insert(place_of(nb, course.first), new_code_cell(source))
        remark = "executing it failed" if name == "kill" else ""
        yield name, nb, Expected(0 if remark else full, remark)


# --- files


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def zipped(*files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files:
            archive.writestr(name, text)
    return content.getvalue()


def hand_in_files(course, folder):
    """What is odd about files, not about cells; by student what it has to get."""
    full = course.points(*course.checks)
    file = f"{course.assignment}.ipynb"
    right = json.dumps(course.filled()).encode()
    stub = course.released
    write(folder / "mark.ipynb", b"\xef\xbb\xbf" + right)
    write(folder / "utf-16.ipynb", right.decode().encode("utf-16"))
    write(folder / "version-3.ipynb", version_3(course.filled()))
    for name in ("--help", "=1+1", "Björn Ångström"):
        write(folder / f"{name}.ipynb", right)
    write(folder / "empty.ipynb", b"")
    write(folder / "broken.ipynb", right[: len(right) // 2])
    write(folder / "scan" / "scan.pdf", b"%PDF")
    (folder / "nothing").mkdir()
    (folder / "link.ipynb").symlink_to(course.folder / "gradebook.db")
    write(folder / "readme.txt", b"for the teacher")
    write(folder / ".DS_Store", b"a Mac's")
    write(folder / "as-nbgrader" / course.assignment / file, right)
    helped = course.with_first("from helper import *")
    source = "import numpy as np\n" + course.right[course.first]
    write(folder / "helper" / file, helped)
    write(folder / "helper" / "helper.py", source.encode())
    write(folder / "copy1" / file, stub)
    write(folder / "copy1" / f"{course.assignment}-Copy1.ipynb", right)
    moodle = "Anna Berg_4711_assignsubmission"
    write(folder / f"{moodle}_file" / "my work.ipynb", right)
    write(folder / f"{moodle}_file" / "report.pdf", b"%PDF")
    write(folder / f"{moodle}_onlinetext" / "onlinetext.html", b"<p>see file</p>")
    write(folder / f"bergben_4712_0815_{file}", stub)
    newest = f"bergben_LATE_4712_0816_{course.assignment}-1.ipynb"
    os.utime(write(folder / newest, right), (1, 1))
    mac = (f"../../work/{file}", right), (f"__MACOSX/work/._{file}", "x")
    write(folder / "mac.zip", zipped(*mac))
    write(folder / "windows.zip", zipped((f"Abgabe\\Übung 1\\{file}", right)))
    write(folder / "text" / f"{file}.txt", right)
    return {
        **dict.fromkeys(("mark", "utf-16", "version-3"), Expected(full, "")),
        "_help": Expected(full, "the name --help has become _help"),
        "_1_1": Expected(full, "the name =1+1 has become _1_1"),
        "Björn_Ångström": Expected(full, ""),
        **dict.fromkeys(("as-nbgrader", "mac", "windows", "text"), Expected(full, "")),
        "empty": Expected(0, "empty.ipynb cannot be read as a notebook"),
        "broken": Expected(0, "broken.ipynb cannot be read as a notebook"),
        "scan": Expected(0, "no notebook was handed in, but scan.pdf"),
        "nothing": Expected(0, "nothing was handed in"),
        "link": Expected(0, "a link is not followed"),
        "helper": Expected(full, "taken along: helper.py"),
        "copy1": Expected(full, f"-Copy1.ipynb, and not {file}"),
        "Anna_Berg_4711": Expected(full, "report.pdf, onlinetext.html"),
        "bergben_4712": Expected(full, f"graded is {newest}, and not"),
    }


def version_3(nb):
    """The notebook as IPython wrote it ten years ago; names of cells are kept in its metadata."""
    cells = []
    for cell in nb.cells:
        source = {"input": cell.source} if cell.cell_type == "code" else {"source": cell.source}
        more = {"language": "python", "outputs": []} if cell.cell_type == "code" else {}
        cells.append({"cell_type": cell.cell_type, "metadata": cell.metadata} | source | more)
    worksheets = [{"cells": cells, "metadata": {}}]
    return {"nbformat": 3, "nbformat_minor": 0, "metadata": nb.metadata, "worksheets": worksheets}


def hand_in(course, folder, port, num_variants):
    """Write all submissions into a new folder; what each has to get, by student."""
    folder.mkdir()
    expected = hand_in_files(course, folder)
    values = {"COURSE": str(course.folder), "HANDED_IN": str(folder), "PORT": port}
    values["SOLUTIONS"] = str(ROOT / "notebooks" / "solutions")
    made = [*variants(course, num_variants), *edited(course), *ending(course, **values)]
    for student, nb, wanted in made:
        write(folder / f"{student}.ipynb", nb)
        expected[student] = wanted
    return expected


def faults(rows, expected):
    """What was graded otherwise than it had to be, by student."""
    found = {}
    for student, (score, remark) in expected.items():
        row = rows.get(student, {"score": None, "remarks": None})
        said = row["remarks"] or ""
        if row["score"] != score or remark not in said or (said and not remark):
            found[student] = (row["score"], said, score, remark)
    return found


def table(assignment):
    """The table of scores in this folder's course, by student."""
    rows = pd.read_csv(f"course/{assignment}.csv", index_col="student").astype(object)
    return rows.where(rows.notna(), None).to_dict("index")


def differences(course, folder, rows, students, limits):
    """Checks that passed without points, or failed with points and without a word of a change."""
    found = {}
    for student in students:
        with tempfile.TemporaryDirectory() as own:
            path = Path(own) / f"{course.assignment}.ipynb"
            shutil.copy(folder / f"{student}.ipynb", path)
            try:
                told, _ = check(path, limits)
            except CourseError as error:
                told = {name: str(error) for points in course.checks.values() for name in points}
        for points in course.checks.values():
            for name, most in points.items():
                has_passed = not told[name]
                is_told = re.search("put it back|is no hand-out", told[name])
                if has_passed != (rows[student][name] == most) and not is_told:
                    found[student] = name, told[name], rows[student][name]
    return found
