"""Submissions of every kind to notebook 01, for the tests of grading."""

import json
import os
import re
import shutil
import zipfile
from pathlib import Path

import nbformat
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell
from short import solved

from fednb_lab.course.notebooks import STUB, grade_id, read_notebook

GIVEN = yaml.safe_load((Path(__file__).parent / "submissions.yaml").read_text(encoding="utf-8"))
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WORDS = "It is (b), as the softmax is saturated."


def solutions(course):
    """The right code by grade id, and words for answers."""
    nb = read_notebook(course / "source" / "01_moon" / "01_moon.ipynb")
    found = {}
    for cell in nb.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            found[grade_id(cell)] = solved(cell.source) if cell.cell_type == "code" else WORDS
    return found


def hand_out(course):
    return read_notebook(course / "release" / "01_moon" / "01_moon.ipynb")


def filled(course, **sources):
    """A right hand-out in which cells (by grade id, with _ for -) have other sources."""
    nb = hand_out(course)
    wanted = solutions(course) | {name.replace("_", "-"): text for name, text in sources.items()}
    for cell in nb.cells:
        cell.source = wanted.get(grade_id(cell), cell.source)
    return nb


def place_of(nb, name):
    (place,) = (i for i, cell in enumerate(nb.cells) if grade_id(cell) == name)
    return place


def split_cell(nb, name, *lines):
    """Split a cell before these lines, as JupyterLab does: all parts have its metadata."""
    place = place_of(nb, name)
    whole = nb.cells[place]
    text = whole.source.split("\n")
    parts = []
    for begin, end in zip((0, *lines), (*lines, len(text)), strict=True):
        part = nbformat.from_dict(json.loads(json.dumps(whole)))
        part.source = "\n".join(text[begin:end])
        part.id = f"{whole.id}-{begin}" if begin else whole.id
        parts.append(part)
    nb.cells[place : place + 1] = parts


def split(nb):
    nb.cells[place_of(nb, "exercise-1")].source = (
        "low = -2\nhigh = 2\n" + nb.cells[place_of(nb, "exercise-1")].source
    )
    split_cell(nb, "exercise-1", 2)
    nb.cells[place_of(nb, "exercise-2-answer")].source = "It is (b).\nAs I said."
    split_cell(nb, "exercise-2-answer", 1)


def split_by_a_cell(nb):
    place = place_of(nb, "exercise-1")
    nb.cells[place].source = "import math\n" + nb.cells[place].source
    split_cell(nb, "exercise-1", 1)
    nb.cells.insert(place + 1, new_code_cell("print(math.pi)"))


def split_in_a_function(nb):
    split_cell(nb, "exercise-3", 2, 5)


def copy(nb):
    place = place_of(nb, "exercise-1")
    other = nbformat.from_dict(json.loads(json.dumps(nb.cells[place])))
    other.source = STUB
    nb.cells.insert(place_of(nb, "exercise-2"), other)


def move_to_own(nb):
    place = place_of(nb, "exercise-1")
    nb.cells[place] = new_code_cell(nb.cells[place].source)


def paste(nb):
    cells = []
    for cell in nb.cells:
        new = new_code_cell if cell.cell_type == "code" else new_markdown_cell
        cells.append(new(cell.source))
    nb.cells = cells
    nb.metadata = {}


def delete(nb):
    names = ("exercise-1", "exercise-2-check", "c02-f94fd1")
    nb.cells = [cell for cell in nb.cells if grade_id(cell) not in names]


def skip(nb):
    nb.cells[place_of(nb, "exercise-1-check")].metadata["tags"] = ["skip-execution"]


def disown(nb):
    nb.cells[place_of(nb, "exercise-1-check")].metadata["nbgrader"]["grade"] = False
    nb.cells[place_of(nb, "exercise-2-check")].metadata["nbgrader"]["points"] = 300
    marks = {"grade_id": "my-own", "solution": True}
    nb.cells[place_of(nb, "exercise-3")].metadata["nbgrader"] = marks


def use_old_format(nb):
    nb["nbformat_minor"] = 4
    for cell in nb.cells:
        del cell["id"]


def break_metadata(nb):
    nb.metadata |= {"kernelspec": {"name": "../../none"}, "celltoolbar": 1, "widgets": {"x": 1}}
    nb.metadata["fednb"] = None
    for cell in nb.cells:
        cell.metadata = {"nbgrader": {"schema_version": 99, "grade_id": ["list"]}, "tags": [1, 2]}


def change_ids(nb):
    for number, cell in enumerate(nb.cells):
        cell["id"] = f"mine-{number}"


def move(nb):
    nb.cells.append(nb.cells.pop(place_of(nb, "exercise-1")))


def change_assignment(nb):
    nb.metadata["fednb"].update(assignment="91_other")


def undo(nb):
    nb.cells[place_of(nb, "exercise-1")].source = STUB
    nb.cells[place_of(nb, "exercise-2")].source = "prediction = ..."
    nb.cells[place_of(nb, "exercise-3")].source = STUB


def many_cells(nb):
    nb.cells += [new_code_cell("1") for _ in range(3000)]


def crlf(nb):
    for cell in nb.cells:
        cell.source = cell.source.replace("\n", "\r\n")


def attach(nb):
    answer = nb.cells[place_of(nb, "exercise-2-answer")]
    answer["attachments"] = {"it.png": {"image/png": PIXEL}}


EDITS = {edit.__name__: edit for edit in list(globals().values()) if callable(edit)}
NO_CELLS = ("edit", "own_cell", "late", "score", "remark")
BYTES = {
    "utf-16": lambda content: json.dumps(json.loads(content), ensure_ascii=False).encode("utf-16"),
    "with-a-mark": lambda content: b"\xef\xbb\xbf" + content,
}


def submission(course, student, **values):
    """The bytes of what a student of submissions.yaml hands in."""
    given = GIVEN[student]
    sources = {name: given[name] for name in given if name not in NO_CELLS}
    nb = filled(course, **sources)
    if "own_cell" in given:
        source = given["own_cell"]
        for name, value in values.items():
            source = source.replace(name, repr(value))
        nb.cells.insert(place_of(nb, "exercise-1"), new_code_cell(source))
    if "edit" in given:
        EDITS[given["edit"]](nb)
    return BYTES.get(student, bytes)(json.dumps(nb).encode())


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def hand_in_files(course, folder):
    """What is odd about files, not about cells; by student the score and what the remark says."""
    right = filled(course)
    stub = hand_out(course)
    helped = filled(course, exercise_1="from helper import loss_range")
    helper = b"import math\ndef loss_range(k, t):\n    return [math.log(1 + k * math.exp(s / t)) for s in (-2, 2)]"
    write(folder / "scan" / "scan.pdf", b"%PDF")
    (folder / "nothing").mkdir()
    write(folder / "bomb.ipynb", b"[" * 10**6)
    (folder / "link.ipynb").symlink_to(course / "gradebook.db")
    write(folder / "readme.txt", b"for the teacher")
    write(folder / ".DS_Store", b"a Mac's")
    write(folder / "as-nbgrader" / "01_moon" / "01_moon.ipynb", right)
    write(folder / "helper" / "01_moon.ipynb", helped)
    write(folder / "helper" / "helper.py", helper)
    write(folder / "copy1" / "01_moon.ipynb", stub)
    write(folder / "copy1" / "01_moon-Copy1.ipynb", right)
    moodle = "Anna Berg_4711_assignsubmission"
    write(folder / f"{moodle}_file" / "my work.ipynb", right)
    write(folder / f"{moodle}_file" / "report.pdf", b"%PDF")
    write(folder / f"{moodle}_onlinetext" / "onlinetext.html", b"<p>see file</p>")
    write(folder / "bergben_4712_0815_01_moon.ipynb", stub)
    write(folder / "bergben_LATE_4712_0816_01_moon-1.ipynb", right)
    os.utime(folder / "bergben_LATE_4712_0816_01_moon-1.ipynb", (1, 1))
    with zipfile.ZipFile(folder / "zipped.zip", "w") as archive:
        archive.writestr("../../work/01_moon.ipynb", json.dumps(right))
        archive.writestr("__MACOSX/work/._01_moon.ipynb", "x")
    shutil.copy(
        write(folder / "renamed" / "01_moon.ipynb.txt", right), folder / "renamed" / "a.txt"
    )
    return {
        "scan": (0, "no notebook was handed in, but scan.pdf"),
        "nothing": (0, "nothing was handed in"),
        "bomb": (0, "bomb.ipynb is no notebook"),
        "link": (0, "a link is not followed"),
        "as-nbgrader": (6, ""),
        "helper": (6, "taken along: helper.py"),
        "copy1": (6, "2 notebooks: graded is 01_moon-Copy1.ipynb, and not 01_moon.ipynb"),
        "Anna_Berg_4711": (6, "left out: report.pdf, onlinetext.html"),
        "bergben_4712": (
            6,
            "2 attempts: graded is bergben_LATE_4712_0816_01_moon-1.ipynb, the newest",
        ),
        "zipped": (6, ""),
        "renamed": (6, "2 notebooks"),
    }


def short_moon(folder):
    """Notebook 01 without its exercises 3 and 5, and its solutions, in a folder of one's own.

    Its exercise 4, which takes no time, is the third one there.
    """
    from fednb import ROOT

    nb = read_notebook(ROOT / "notebooks" / "01_moon.ipynb")
    begin = {}
    for place, cell in enumerate(nb.cells):
        for number in re.findall(r"\*\*Exercise (\d)\*\*", cell.source):
            begin[int(number)] = place
    fourth = nb.cells[begin[4]]
    fourth.source = fourth.source.replace("**Exercise 4**", "**Exercise 3**")
    nb.cells = nb.cells[: begin[3]] + nb.cells[begin[4] : begin[5]]
    write(folder / "01_moon.ipynb", nb)
