"""Hand-outs, checks and grades: with one short assignment notebook, and (marked course, minutes) with every notebook."""

import ast
import json
import math
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time

import nbformat
import pandas as pd
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from fednb import ROOT, course, papers
from fednb.__main__ import main
from fednb.course import CourseError, fence, grading, handout, tools
from fednb.experiments import execute

ASSIGNMENTS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
DOUBLE = '''def double(x):
    """Twice x."""
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION'''
DOUBLE_CHECK = """assert double(2) == 4
assert double(5) != 25, "this is the square"
### BEGIN HIDDEN TESTS
from fednb.course import draws

number = int(draws("exercise 1").integers(10, 99))
assert double(number) == 2 * number, f"double({number})"
### END HIDDEN TESTS"""
MEAN = '''def mean(x, weights):
    """The weighted mean."""
    ### BEGIN SOLUTION
    return np.average(x, weights=weights)
    ### END SOLUTION'''
MEAN_CHECK = "assert mean([0, 4], [3, 1]) == 1"
PREDICT = """### BEGIN SOLUTION
prediction = "b"
### END SOLUTION"""
PREDICT_CHECK = 'assert prediction in ("a", "b"), "choose one"\nprint("it is b")'
ANSWER = "<!-- BEGIN SOLUTION -->\nBecause of the order.\n<!-- END SOLUTION -->"
EXPORT = '''def half(x):
    """Half of x."""
    # by two
    return x / 2


class Pair:
    """Two numbers."""

    size: int = 2

    def __init__(self, a, b):
        self.a, self.b = a, b

    def total(self):
        both = self.a + self.b + 0 * self.size
        return both


METHODS = {}'''
SECRET = ("return 2 * x", "np.average", 'prediction = "b"', "Because of the order", "draws(")


def code(cell_id, source, *tags, output=None):
    outputs = [new_output("stream", name="stdout", text=output)] if output else []
    return new_code_cell(
        source, id=cell_id, metadata={"tags": list(tags)} if tags else {}, outputs=outputs, execution_count=1
    )


@pytest.fixture
def short(tmp_path, monkeypatch):
    """The short assignment notebook, in a folder of its own."""
    cells = [
        new_markdown_cell("# 90 · Short"),
        code("imports", "import numpy as np", "setup"),
        code("exported", EXPORT, "export"),
        code("part-check", "assert half(4) == 2 and Pair(1, 2).total() == 3", output="fine"),
        code("seen", 'print("seen")\nraise RuntimeError("not needed for grading")', output="seen"),
        new_markdown_cell("## 1 · Exercises\n\n**Exercise 1** (easy, 5 minutes, 2 points). Double."),
        code("e1", DOUBLE),
        code("e1c", DOUBLE_CHECK),
        new_markdown_cell("**Exercise 2** (medium, 10 minutes, 3 points). Mean. *Hint: divide.*"),
        code("e2", MEAN),
        code("e2c", MEAN_CHECK, output="old"),
        code("e2s", "print(mean([1, 2], [1, 1]))", output="1.5"),  # shows what the solution is good for
        new_markdown_cell("**Exercise 3** (predict, 5 minutes, 1 + 4 points). Which?"),
        code("e3", PREDICT),
        code("e3c", PREDICT_CHECK),
        new_markdown_cell(ANSWER, id="e3a"),
        new_markdown_cell("## 2 · Summary\n\nDone."),
        code("last", "print(double)"),
    ]
    nb = new_notebook(cells=cells)
    nb.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    folder = tmp_path / "notebooks"
    folder.mkdir()
    nbformat.write(nb, folder / "90_short.ipynb")
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(folder))
    return folder / "90_short.ipynb"


def read(path):
    return nbformat.read(path, as_version=4)


def change(path, to, **sources):
    """Write a copy of a hand-out in which cells (by grade id, with _ for -) have other sources."""
    nb = read(path)
    by_name = {c.metadata.get("nbgrader", {}).get("grade_id"): c for c in nb.cells}
    for name, source in sources.items():
        by_name[name.replace("_", "-")].source = source
    to.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, to)
    return nb


def solved(source):
    """What a student would write who finds the solution."""
    return "\n".join(line for line in source.splitlines() if "SOLUTION" not in line)


RIGHT = {"exercise_1": solved(DOUBLE), "exercise_2": solved(MEAN), "exercise_3": solved(PREDICT)}


# --- what a notebook says about its exercises -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("1 + 4 points", "5 points", "Exercise 3 has 2 checks and answers, and 1 numbers of points"),
        ("**Exercise 1**", "Exercise 1", "A solution stands outside of every exercise"),
    ],
)
def test_a_notebook_that_says_it_wrongly_is_an_error_that_says_what_to_write(short, old, new, said):
    nb = read(short)
    for cell in nb.cells:
        cell.source = cell.source.replace(old, new)
    nbformat.write(nb, short)
    with pytest.raises(CourseError, match=re.escape(said)):
        handout.source("short")


def test_a_check_may_share_the_cell_of_its_solution_and_an_answer_that_of_the_next_exercise(short):
    nb = read(short)
    by_id = {cell.id: cell for cell in nb.cells}
    by_id["e2"].source += f"\n\n\n# Check. By hand.\n{MEAN_CHECK}"
    by_id["e2"].outputs = by_id.pop("e2c").outputs
    by_id["e3a"].source = by_id["e3a"].source + "\n\n" + nb.cells[-2].source
    nb.cells = [cell for cell in nb.cells if cell.id != "e2c" and cell is not nb.cells[-2]]
    nbformat.write(nb, short)
    nb = handout.source("short")
    graded = [c for c in nb.cells if c.metadata.get("nbgrader", {}).get("grade_id", "").startswith("exercise-")]
    assert [c.metadata["nbgrader"]["grade_id"] for c in graded] == [
        *("exercise-1", "exercise-1-check", "exercise-2", "exercise-2-check"),
        *("exercise-3", "exercise-3-check", "exercise-3-answer"),
    ]
    assert graded[2].source == MEAN and graded[3].source == f"# Check. By hand.\n{MEAN_CHECK}" and not graded[3].outputs
    assert graded[6].source == ANSWER and nb.cells[-2].source == "## 2 · Summary\n\nDone."


def test_only_what_exercises_build_on_is_executed_and_only_what_is_asked_for_is_cleared(short):
    nb = handout.source("short")
    by_id = {cell.id: cell for cell in nb.cells}
    skipped = {name for name, cell in by_id.items() if handout.SKIP in cell.metadata.get("tags", [])}
    assert skipped == {"part-check", "seen", "course-ready", "e2s", "last"}
    assert by_id["seen"].outputs and by_id["e2s"].outputs and not by_id["e2c"].outputs
    assert by_id["imports"].metadata["nbgrader"]["locked"] and not by_id["e1"].metadata["nbgrader"]["locked"]
    marks = [cell.metadata["nbgrader"] for cell in nb.cells if "nbgrader" in cell.metadata]
    points = {mark["grade_id"]: mark.get("points") for mark in marks}
    assert points == {"imports": None, "exported": None, "exercise-1": None, "exercise-1-check": 2, "exercise-2": None} | {
        "exercise-2-check": 3,
        "exercise-3": None,
        "exercise-3-check": 1,
        "exercise-3-answer": 4,
    }
    assert "3 exercises at the end, about 20 minutes, 10 points" in nb.cells[0].source


def test_bodies_of_functions_are_marked_and_nothing_else():
    source, number = handout.blank(EXPORT)
    assert number == 2
    ast.parse(source)
    assert handout.solution_lines(source) == {
        "# by two",
        "return x / 2",
        "both = self.a + self.b + 0 * self.size",
        "return both",
    }
    assert solved(source) == EXPORT


def test_an_implementation_leaves_out_exercises_and_what_repeats_the_solution(short):
    nb = read(short)
    nb.cells.insert(4, code("variant", "both = self.a + self.b + 0 * self.size", output="3"))
    nbformat.write(nb, short)
    nb = handout.source("short", "implementation")
    names = {c.metadata["nbgrader"]["grade_id"]: c for c in nb.cells if "nbgrader" in c.metadata}
    assert list(names) == ["imports", "part-1", "part-1-check", "whole-check"]
    assert names["part-1-check"].metadata["nbgrader"]["points"] == 2 == names["whole-check"].metadata["nbgrader"]["points"]
    assert "Exercise 1" not in "".join(c.source for c in nb.cells[1:])
    assert [c.source for c in nb.cells if c.source.startswith("## 1")] == [
        "## 1 · Exercises\n\nThe exercises are a hand-out of their own."
    ]
    assert "4 points" in nb.cells[0].source


def test_a_sweep_executes_what_the_checks_of_a_hand_out_leave_out(tmp_path, monkeypatch):
    nb = handout.source("01_moon")
    (run,) = (cell for cell in nb.cells if "run" in cell.metadata.get("tags", []))
    assert handout.SKIP in run.metadata["tags"]
    nbformat.write(nb, tmp_path / "01_moon.ipynb")
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(tmp_path))
    cells = execute.reduced("01_moon").cells
    assert [cell.source for cell in cells if "run" in cell.metadata["tags"]] == [run.source]
    assert not any(handout.SKIP in cell.metadata["tags"] for cell in cells)


def test_hidden_inputs_depend_on_the_student_and_on_nothing_else(monkeypatch):
    def numbers(seed, purpose):
        monkeypatch.setenv(tools.SEED, seed)
        return tuple(course.draws(purpose).integers(1000, size=4))

    assert numbers("1", "a") == numbers("1", "a")
    assert len({numbers("1", "a"), numbers("2", "a"), numbers("1", "b")}) == 3


@pytest.mark.parametrize("path", ASSIGNMENTS, ids=lambda p: p.stem)
@pytest.mark.parametrize("kind", handout.KINDS)
def test_every_notebook_is_an_assignment_of_both_kinds(path, kind):
    nb = handout.source(path.stem, kind)
    assert len(set(handout.ids(nb))) == len(handout.ids(nb))
    for cell in nb.cells:
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("grade"):
            last = ast.parse(cell.source).body[-1]  # nbgrader takes the value of a last line for points
            assert not isinstance(last, ast.Expr) or isinstance(last.value, ast.Call), cell.source


def test_the_whole_asks_for_every_method_of_the_notebook_whatever_a_student_puts_into_METHODS():
    hidden = handout._text("whole_check.j2", name="00_foundations").partition("### BEGIN HIDDEN TESTS\n")[2]
    only_easy = {"papers": papers, "METHODS": {"SOLO": None}, "of_this_notebook": ["SOLO"], "dataset": "digits"}
    with pytest.raises(AssertionError, match=r"asked for are .*SCAFFOLD"):
        exec(hidden, only_easy)


def test_a_hand_out_tells_which_implementations_it_would_give_away():
    assert course.gives_away("02_fedproc", "implementation") == ["00_foundations", "01_moon"]
    assert course.gives_away("moon", "exercises") == ["00_foundations", "01_moon"]
    assert course.gives_away("00_foundations", "implementation") == []


def test_a_file_with_odd_metadata_has_no_vote_on_what_is_graded(tmp_path):
    odd = ["text", {"assignment": ["list"]}, {"assignment": 7}, {}, None, {"assignment": "01_moon-exercises"}]
    for number, said in enumerate(odd):
        (tmp_path / f"student-{number}.ipynb").write_text(json.dumps({"metadata": {"fednb": said}, "cells": []}))
    (tmp_path / "bare.ipynb").write_text('{"nbformat": 4, "nbformat_minor": 5, "cells": []}')
    assert grading.assignment_of(grading.submissions(tmp_path, "01_moon")) == "01_moon-exercises"


def test_names_of_files_are_neither_options_nor_formulas_and_links_are_not_followed(tmp_path):
    (tmp_path / "secret").write_text("of the teacher")
    (tmp_path / "in" / "folder").mkdir(parents=True)
    for name in ("--help.ipynb", "=1+1.ipynb", "anna.ipynb", "anna.txt"):
        (tmp_path / "in" / name).write_text("{}")
    for place in ("link.ipynb", "folder/90_short.ipynb"):
        (tmp_path / "in" / place).symlink_to(tmp_path / "secret")
    found = {one.student: one for one in grading.submissions(tmp_path / "in", "90_short")}
    assert list(found) == ["_help", "_1_1", "anna", "anna_3", "folder", "link"]
    assert found["anna_3"].remarks == ["another file is anna's too"]
    for name in ("folder", "link"):
        assert found[name].path is None and not found[name].content()
        assert found[name].remarks == ["a link is not followed", "nothing was handed in"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("I could not open the file.", "a.ipynb cannot be read as a notebook"),
        ("[1, 2]", "a.ipynb cannot be read as a notebook"),
        ('{"nbformat": 4, "nbformat_minor": 5, "metadata": [], "cells": 7}', "a.ipynb cannot be read as a notebook"),
        ("[" * 10**6, "a.ipynb cannot be read as a notebook"),
        (" " * (grading.LARGEST + 1), "a.ipynb is larger than 20 MB"),
    ],
)
def test_what_cannot_be_read_is_excused_by_the_untouched_hand_out(text, said, short, tmp_path):
    (tmp_path / "a.ipynb").write_text(text)
    grader, one = object.__new__(grading.Grader), grading.Submission("a", tmp_path / "a.ipynb")
    grader.assignment, grader.released = "90_short-exercises", handout.source("short")
    nb = grader.submitted(one)
    assert said in one.remarks[0] and said in nb.cells[0].source and nb.cells[1:] == grader.released.cells[1:]


def test_rounds_tell_a_wrong_implementation_from_the_released_one():
    methods = papers.load("00_foundations").METHODS

    class TooStiff(methods["FedProx"]):
        def prepare(self, client, received, t):
            given = super().prepare(client, received, t)
            return given | {"w_global": 0.9 * given["w_global"]}

    course.same_rounds(methods, methods, ["FedProx"], num_rounds=1)
    with pytest.raises(AssertionError, match="FedProx, round 0: loss/proximal is"):
        course.same_rounds(methods | {"FedProx": TooStiff}, methods, ["FedProx"], num_rounds=1)


# --- with nbgrader: a minute ------------------------------------------------------------------------------------------


@pytest.fixture
def handed_out(short, tmp_path, capsys):
    pytest.importorskip("nbgrader")
    assert main(["course", "release", "short", "--course", str(tmp_path / "course")]) == 0
    assert "Hand out what is in" in capsys.readouterr().out
    return tmp_path / "course" / "release" / "90_short-exercises" / "90_short.ipynb"


def test_the_hand_out_holds_no_solution_and_check_says_what_is_wrong(handed_out, tmp_path, capsys):
    text = handed_out.read_text()
    assert not [secret for secret in SECRET if secret in text]
    assert text.count("raise NotImplementedError()") >= 3 and tools.ANSWER in text
    mine = tmp_path / "mine" / "90_short.ipynb"
    change(handed_out, mine, exercise_1=solved(DOUBLE), exercise_2="def mean(x, weights):\n    return np.mean(x)")
    assert main(["course", "check", str(mine)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "exercise-1-check: passed"
    assert lines[1] == "exercise-2-check: AssertionError:"
    assert lines[2] == "exercise-3-check: not done yet"
    assert lines[3] == "exercise-3-answer: no answer yet"


def test_the_cell_above_the_exercises_executes_what_they_build_on(handed_out, monkeypatch, capsys):
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    cells = read(handed_out).cells
    place = next(i for i, cell in enumerate(cells) if cell.source.startswith("## 1 · Exercises"))
    assert 'prepare("90_short.ipynb")' in cells[place + 1].source and "Exercise 1" in cells[place + 2].source
    course.prepare(handed_out)
    assert capsys.readouterr().out == "2 cells executed: the exercises can begin.\n"
    assert {"np", "half", "METHODS"} <= set(shell.user_ns) and not {"double", "prediction"} & set(shell.user_ns)


# --- grading: minutes -------------------------------------------------------------------------------------------------


def cell_of(nb, name):
    return next(c for c in nb.cells if c.metadata.get("nbgrader", {}).get("grade_id") == name)


def duplicate(nb):
    place = nb.cells.index(cell_of(nb, "exercise-1"))
    nb.cells.insert(place, nbformat.from_dict(json.loads(json.dumps(nb.cells[place]))))


def delete(nb):
    for name in ("exercise-1", "exercise-2-check", "imports"):
        nb.cells.remove(cell_of(nb, name))


def skip(nb):
    for name in ("exercise-1-check", "exercise-2-check"):
        cell_of(nb, name).metadata["tags"] = ["skip-execution"]


def disown(nb):
    cell_of(nb, "exercise-1-check").metadata["nbgrader"]["grade"] = False
    cell_of(nb, "exercise-2-check").metadata["nbgrader"]["points"] = 300
    cell_of(nb, "exercise-2").metadata["nbgrader"] = {"grade_id": "my-own", "solution": True}


def old_format(nb):
    nb["nbformat_minor"] = 4
    for cell in nb.cells:
        del cell["id"]


def break_metadata(nb):
    nb.metadata |= {"kernelspec": {"name": "../../none"}, "celltoolbar": 1, "widgets": {"x": 1}}
    for cell in nb.cells:
        cell.metadata = {"nbgrader": {"schema_version": 99, "grade_id": ["list"]}, "tags": "text"}


def other_ids(nb):
    for number, cell in enumerate(nb.cells):
        cell["id"] = f"mine-{number}"


def helped(nb):
    nb.cells.insert(nb.cells.index(cell_of(nb, "exercise-1")), code("mine", "two = 2"))


def moved(nb):
    nb.cells.append(nb.cells.pop(nb.cells.index(cell_of(nb, "exercise-1"))))


def other_assignment(nb):
    nb.metadata["fednb"].update(assignment="91_other-exercises")


def undone(nb):
    for number in (1, 2, 3):
        cell_of(nb, f"exercise-{number}").source = tools.STUB


DANGEROUS = ("spy", "upward", "kill", "forks", "children", "threads", "memory", "disk")


def hand_in(folder, handed_out, port):
    """Thirty-seven submissions; the scores that they must get, and what the remarks must say."""
    expected = {"nothing": (0, "nothing was handed in"), "link": (0, "a link is not followed; nothing was handed in")}
    expected |= {"Ann_O_Neil": (6, ""), "as-nbgrader": (6, ""), "scan": (0, "scan.pdf cannot be read as a notebook")}
    names = {"GRADEBOOK": handed_out.parents[2] / "gradebook.db", "HANDED_IN": folder, "COURSE": handed_out.parents[2]}
    for student, given in yaml.safe_load((ROOT / "tests" / "submissions.yaml").read_text()).items():
        if student in DANGEROUS and not fence.closed():  # they would do what they are made for
            continue
        edit, score, remark = given.pop("edit", None), given.pop("score"), given.pop("remark", "")
        for name, value in {**names, "PORT": port}.items():
            given = {cell: text.replace(name, repr(value if name == "PORT" else str(value))) for cell, text in given.items()}
        nb = change(handed_out, folder / f"{student}.ipynb", **RIGHT | given)
        if edit:
            globals()[edit](nb)
            (folder / f"{student}.ipynb").write_text(json.dumps(nb))
        expected[student.replace("--", "_")] = score, remark
    (folder / "scan.pdf").write_text("%PDF")
    (folder / "right.txt").write_text("again")
    (folder / "link.ipynb").symlink_to(names["GRADEBOOK"])
    (folder / "nothing").mkdir()
    change(handed_out, folder / "Ann O'Neil" / "90_short.ipynb", **RIGHT)
    change(handed_out, folder / "as-nbgrader" / "90_short-exercises" / "90_short.ipynb", **RIGHT)
    second = sorted(path.name for path in folder.iterdir()).index("right.txt")
    return expected | {f"right_{second}": (0, "another file is right's too")}


def table(path):
    rows = pd.read_csv(path, dtype={"student": str}, keep_default_na=False, na_values={"score": [""]})
    return rows.set_index("student").to_dict("index")


@pytest.mark.course
def test_hostile_submissions_change_no_other_ones_score_and_all_have_one(handed_out, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("A_TOKEN", "s3cret")
    folder, course_folder = tmp_path / "handed in", tmp_path / "course"
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        expected = hand_in(folder, handed_out, server.getsockname()[1])
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}
        command = ["course", "grade", str(folder), "--course", str(course_folder), "--timeout", "12", "--limit", "60"]
        assert main(command) == 0
    assert f"{len(expected)} submissions" in capsys.readouterr().out
    rows = table(course_folder / "90_short-exercises.csv")
    assert {student: row["score"] for student, row in rows.items()} == {name: score for name, (score, _) in expected.items()}
    for student, (score, remark) in expected.items():
        assert remark in rows[student]["remarks"] and (remark or not rows[student]["remarks"]), rows[student]
        page = (course_folder / "feedback" / student / "90_short-exercises" / "90_short.html").read_text()
        assert "Exercise 1" in page and (score or not remark or "check: " in remark or "Not graded." in page), student
    assert {row["to_grade_by_hand"] for name, row in rows.items() if name != "answered"} == {0}
    assert rows["answered"]["to_grade_by_hand"] == 4 and rows["right"]["max_score"] == 10
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}
    graded = []
    monkeypatch.setattr(grading.Grader, "execute", lambda self, one, *_: graded.append(one.student) or ("", []))
    assert main(command) == 0 and not graded  # nothing has changed: only the table is written again
    solved = course_folder / "source" / "90_short-exercises" / "90_short.ipynb"
    solved.write_text(solved.read_text().replace("number = int(", "number = 2 * int("))
    assert main(command) == 0 and len(graded) == len(expected), "the hand-out is the same, but what grades it is not"
    with sqlite3.connect(course_folder / "gradebook.db") as book:
        book.execute("UPDATE grade SET auto_score = 0")
    assert main(command) == 2
    assert "The gradebook has other points than were made for " in capsys.readouterr().err


@pytest.mark.course
def test_a_cell_of_the_hand_out_that_takes_too_long_costs_no_points(short, tmp_path, monkeypatch):
    nb = read(short)
    nb.cells[2].source += "\nimport os, time\n\nif 'FEDNB_CELL_TIMEOUT' in os.environ:\n    time.sleep(60)"
    nbformat.write(nb, short)
    handed_out = course.release("short", folder=tmp_path / "course")
    change(handed_out, tmp_path / "in" / "anna.ipynb", **RIGHT)
    (row,) = table(grading.grade(tmp_path / "in", folder=tmp_path / "course", timeout=2)).values()
    assert math.isnan(row["score"]) and "no points yet, as the hand-out's own exported took too long" in row["remarks"]
    assert not (tmp_path / "course" / "submitted" / "anna" / "90_short-exercises" / "state.json").exists()


@pytest.mark.course
def test_without_namespaces_limits_still_hold_and_it_is_said(handed_out, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fence, "closed", lambda: False)
    change(handed_out, tmp_path / "in" / "right.ipynb", **RIGHT)
    change(handed_out, tmp_path / "in" / "stubborn.ipynb", **RIGHT | {"exercise_1": "sum(range(10**13))"})
    rows = table(grading.grade(tmp_path / "in", folder=tmp_path / "course", timeout=10, limit=25))
    assert rows["right"]["score"] == 6 and rows["stubborn"]["score"] == 0
    assert "There are no namespaces here" in capsys.readouterr().out


# --- every notebook: minutes ------------------------------------------------------------------------------------------


def solutions(name, kind):
    """The solved cells of an assignment, by grade id, without the markers."""
    cells = [c for c in handout.source(name, kind).cells if c.metadata.get("nbgrader", {}).get("solution")]
    return {c.metadata["nbgrader"]["grade_id"]: solved(c.source) or "In words." for c in cells}


def lines_of(cells):
    return {line.strip() for cell in cells for line in cell.source.splitlines()}


@pytest.mark.course
@pytest.mark.parametrize("kind", handout.KINDS)
@pytest.mark.parametrize("path", ASSIGNMENTS, ids=lambda p: p.stem)
def test_a_solved_submission_has_all_points_and_an_untouched_hand_out_is_checked_soon(path, kind, tmp_path):
    pytest.importorskip("nbgrader")
    source, folder = handout.source(path.stem, kind), tmp_path / "course"
    handed_out = read(course.release(path.stem, kind, folder))
    secret = set().union(*(handout.solution_lines(cell.source) for cell in source.cells))
    for cell in source.cells:  # what stands elsewhere in the text is no secret
        own = handout.solution_lines(cell.source)
        secret -= {line.strip() for line in cell.source.splitlines()} - own
    assert len(secret) >= 3  # 06's method is two functions of three lines
    assert not secret & lines_of(handed_out.cells)
    assert not re.search("(BEGIN|END) (SOLUTION|HIDDEN)", "".join(lines_of(handed_out.cells)))
    for before, after in zip(source.cells, handed_out.cells, strict=True):
        marks = before.metadata.get("nbgrader", {})
        if not marks.get("solution") and not marks.get("grade"):
            assert (before.source, before.get("outputs")) == (after.source, after.get("outputs"))
        elif before.cell_type == "code":
            assert not after.outputs

    released = folder / "release" / f"{path.stem}-{kind}" / path.name
    sweep = f"sweeps/{path.stem}.yaml"
    assert (released.parent / sweep).read_bytes() == (path.parent / sweep).read_bytes()
    graded = {c.metadata["nbgrader"]["grade_id"]: c for c in handed_out.cells if c.metadata.get("nbgrader", {}).get("grade")}
    by_hand = {name for name, cell in graded.items() if cell.cell_type == "markdown"}
    if kind == "exercises" or path.stem == "01_moon":
        begin = time.monotonic()
        told = dict(course.check(released))  # as a student would, before anything is done
        assert time.monotonic() - begin < 60  # 20 s on an idle machine
        assert told == {name: "no answer yet" if name in by_hand else "not done yet" for name in graded}

    mine = solutions(path.stem, kind)
    change(released, tmp_path / "in" / "solved.ipynb", **{name.replace("-", "_"): mine[name] for name in mine})
    row = table(grading.grade(tmp_path / "in", folder=folder, timeout=200))["solved"]
    points = {name: cell.metadata["nbgrader"]["points"] for name, cell in graded.items()}
    assert {name: row[name] for name in graded} == {name: 0 if name in by_hand else p for name, p in points.items()}, row
    assert row["to_grade_by_hand"] == sum(points[name] for name in by_hand) and row["max_score"] == sum(points.values())


@pytest.mark.parametrize("path", ASSIGNMENTS, ids=lambda p: p.stem)
def test_every_exercise_says_what_it_takes_and_what_goes_wrong(path):
    nb = read(path)
    handout.apart(nb)
    found = handout.exercises(nb)
    assert 5 <= len(found) <= 7
    assert [one.number for one in found] == list(range(1, len(found) + 1))
    assert {"easy", "medium", "predict", "research"} == {one.level for one in found}
    for one in found:
        assert "*Hint: " in one.heading.source and "A common mistake is " in one.heading.source, one.number
        checks = [cell for kind, cell in one.parts() if kind == "check"]
        assert all(re.search(r'(?m)^\s*assert [^\n]*, \(?\s*f?"', cell.source) for cell in checks), (
            f"exercise {one.number} names no mistake"
        )
        assert one.level == "predict" or all("### BEGIN HIDDEN TESTS" in cell.source for cell in checks), one.number
        assert all(cell.cell_type == "markdown" for kind, cell in one.parts() if kind == "answer")


def test_a_students_notebook_takes_the_place_of_the_released_one(tmp_path):
    """Its export cells are what ``fednb.papers`` imports, in the tests and in a sweep's runs."""
    nb = read(ROOT / "notebooks" / "01_moon.ipynb")
    for cell in nb.cells:
        cell.source = cell.source.replace("return -similarities.log_softmax(0)[0]", "return similarities.log_softmax(0)[0]")
    nbformat.write(nb, tmp_path / "01_moon.ipynb")
    environment = os.environ | {"FEDNB_NOTEBOOKS": str(tmp_path)}
    command = [sys.executable, *"-m pytest -x -p no:cacheprovider -k literal_loops tests/test_moon.py".split()]
    result = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 1
    assert "model_contrastive" in result.stdout and "1 failed" in result.stdout
    assert subprocess.run(command, cwd=ROOT, env=os.environ | {"FEDNB_NOTEBOOKS": ""}, capture_output=True).returncode == 0


@pytest.mark.course
def test_a_sweep_runs_on_a_students_code_and_records_it_beside_it(tmp_path):
    nb = handout.source("01_moon")  # a hand-out, whose tags leave the run out when it is checked
    for cell in nb.cells:
        cell.source = cell.source.replace('terms["contrastive"] = self.mu *', 'terms["contrastive"] = 0 *')
    nbformat.write(nb, tmp_path / "01_moon.ipynb")
    environment = os.environ | {"FEDNB_NOTEBOOKS": str(tmp_path)}
    environment.pop("FEDNB_RUNS", None)
    command = [sys.executable, "-m", "fednb", "run", "01_moon", "num_clients=3", "num_rounds=2", "local_epochs=1"]
    result = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    (record,) = (tmp_path / "results" / "runs").glob("*.json")
    assert json.loads(record.read_text())["metrics"]["loss/contrastive"][-1] == 0
