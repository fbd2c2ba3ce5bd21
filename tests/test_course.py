"""Hand-outs, checks and grades: with one short assignment notebook, and (marked course, minutes) with every notebook."""

import ast
import json
import os
import re
import subprocess
import sys
import time

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from fednb import ROOT, course, papers
from fednb.__main__ import main
from fednb.course import CourseError, grading, handout, tools
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


def test_an_exercise_is_read_from_its_heading_and_cells(short):
    one, two, three = handout.exercises(handout.source("short"))
    assert (one.number, one.level, one.minutes, one.points) == (1, "easy", 5, [2])
    assert [kind for kind, _ in one.parts()] == [kind for kind, _ in two.parts()] == ["solution", "check"]
    assert [kind for kind, _ in three.parts()] == ["solution", "check", "answer"]
    assert three.points == [1, 4]


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


def test_exercises_and_sections_may_share_a_cell_and_a_written_one_gets_a_place_for_the_answer(short):
    nb = read(short)
    nb.cells = nb.cells[:-2]
    nb.cells.append(
        new_markdown_cell("**Exercise 4** (research, an evening, 10 points, written). Why?\n\n## 2 · Summary\n\nDone.")
    )
    nbformat.write(nb, short)
    nb = handout.source("short")
    assert handout.exercises(nb)[-1].minutes is None
    *_, heading, answer, summary = nb.cells
    assert heading.source.endswith("Why?") and summary.source == "## 2 · Summary\n\nDone."
    assert answer.metadata["nbgrader"]["points"] == 10 and answer.metadata["nbgrader"]["solution"]


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


def test_a_cell_that_asserts_nothing_shows_what_the_solution_is_good_for(short):
    nb = read(short)
    place = next(i for i, cell in enumerate(nb.cells) if cell.id == "e2c")
    nb.cells.insert(place + 1, code("e2s", "print(mean([1, 2], [1, 1]))", output="1.5"))
    nbformat.write(nb, short)
    nb = handout.source("short")
    assert [one.points for one in handout.exercises(nb)] == [[2], [3], [1, 4]]
    (shown,) = (cell for cell in nb.cells if cell.id == "e2s")
    assert shown.outputs and "nbgrader" not in shown.metadata and handout.SKIP in shown.metadata["tags"]


def test_only_what_exercises_build_on_is_executed_and_only_what_is_asked_for_is_cleared(short):
    nb = handout.source("short")
    by_id = {cell.id: cell for cell in nb.cells}
    skipped = {name for name, cell in by_id.items() if handout.SKIP in cell.metadata.get("tags", [])}
    assert skipped == {"part-check", "seen", "course-ready", "last"}
    assert by_id["seen"].outputs and not by_id["e2c"].outputs
    assert by_id["imports"].metadata["nbgrader"]["locked"] and not by_id["e1"].metadata["nbgrader"]["locked"]
    points = {
        c.metadata["nbgrader"]["grade_id"]: c.metadata["nbgrader"].get("points")
        for c in nb.cells
        if "nbgrader" in c.metadata
    }
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
    hidden = handout.WHOLE.replace("{name}", "00_foundations").partition("### BEGIN HIDDEN TESTS\n")[2]
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
        nb = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"fednb": said}, "cells": []}
        (tmp_path / f"student-{number}.ipynb").write_text(json.dumps(nb))
    (tmp_path / "bare.ipynb").write_text('{"nbformat": 4, "nbformat_minor": 5, "cells": []}')
    assert grading._assignment_of(tmp_path) == "01_moon-exercises"


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


def test_a_changed_hidden_test_is_graded_again(handed_out, tmp_path, monkeypatch):
    graded = []
    monkeypatch.setattr(grading, "_autograde", lambda *given: graded.append(given[2]))
    monkeypatch.setattr(grading, "call", lambda *given: "")
    monkeypatch.setattr(grading, "_write_scores", lambda *given: None)
    change(handed_out, tmp_path / "in" / "anna.ipynb", **RIGHT)
    for _ in range(2):
        grading.grade(tmp_path / "in", folder=tmp_path / "course")
    assert graded == ["anna"]
    source = tmp_path / "course" / "source" / "90_short-exercises" / "90_short.ipynb"
    source.write_text(source.read_text().replace("number = int(", "number = 2 * int("))
    grading.grade(tmp_path / "in", folder=tmp_path / "course")
    assert graded == ["anna", "anna"], "the hand-out is the same, but what grades it is not"


# --- grading: minutes -------------------------------------------------------------------------------------------------


def cell_of(nb, name):
    return next(c for c in nb.cells if c.metadata.get("nbgrader", {}).get("grade_id") == name)


def hand_in(folder, handed_out):
    """Thirty submissions; the scores that they must get (exercise 1: 2, exercise 2: 3, exercise 3: 1 and 4 by hand)."""
    expected = {}

    def submit(student, score, *, edit=None, text=None, **sources):
        path = folder / f"{student}.ipynb"
        if text is None:
            nb = change(handed_out, path, **sources)
            if edit:
                edit(nb)
                path.write_text(json.dumps(nb))
        else:
            path.write_text(text)
        expected[student] = score

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

    def helped(nb):
        nb.cells.insert(nb.cells.index(cell_of(nb, "exercise-1")), code("mine", "two = 2"))

    def moved(nb):
        nb.cells.append(nb.cells.pop(nb.cells.index(cell_of(nb, "exercise-1"))))

    submit("untouched", 0)
    submit("half", 2, exercise_1=solved(DOUBLE))
    submit("constant", 0, exercise_1="def double(x):\n    return 4")
    submit("answered", 6, **RIGHT, exercise_3_answer="Because I say so.")
    submit("edited-tests", 0, exercise_1_check="pass", exercise_2_check="pass", exported="print('other')")
    submit("skipped-tests", 0, edit=skip)
    submit("disowned-tests", 3, edit=disown, exercise_2=solved(MEAN))
    submit("duplicate", 4, edit=duplicate, **RIGHT)
    submit("deleted", 4, edit=delete, **RIGHT)
    submit("moved", 4, edit=moved, **RIGHT)
    submit("syntax", 4, **RIGHT | {"exercise_1": "def double(x:\n    return 2 * x"})
    submit("endless", 4, **RIGHT | {"exercise_1": "while True:\n    pass"})
    submit(
        "warns",
        6,
        **RIGHT | {"exercise_1": "import sys\n\ndef double(x):\n    print('!', file=sys.stderr)\n    return x + x"},
    )
    submit("helped", 6, edit=helped, **RIGHT | {"exercise_1": "def double(x):\n    return two * x"})
    submit("old-format", 6, edit=old_format, **RIGHT)
    submit("died", 0, **RIGHT | {"exercise_2": "import os\n\nos._exit(0)"})
    submit("not-a-notebook", 0, text="I could not open the file.")
    submit("cut-off", 0, text=handed_out.read_text()[:2000])
    submit("list", 0, text="[1, 2]")
    submit("other", 0, edit=lambda nb: nb.metadata["fednb"].update(assignment="91_other-exercises"), **RIGHT)
    (folder / "scan.pdf").write_bytes(b"%PDF\xff\x00")
    (folder / "nothing").mkdir()
    change(handed_out, folder / "Ann O'Neil" / "90_short.ipynb", **RIGHT)
    change(handed_out, folder / "as-nbgrader" / "90_short-exercises" / "90_short.ipynb", **RIGHT)
    expected |= {"scan": 0, "nothing": 0, "Ann_O_Neil": 6, "as-nbgrader": 6}
    for number in range(30 - len(expected)):
        submit(f"right-{number}", 6, **RIGHT)
    return expected


REMARKS = {
    "constant": "exercise-1-check: AssertionError: double(",
    "duplicate": "exercise-1 is there twice: it counts as not done",
    "deleted": "imports is missing; exercise-1 is missing; exercise-2-check is missing; exercise-1-check: not done yet",
    "syntax": "exercise-1-check: SyntaxError: ",
    "endless": "exercise-1-check: stopped, as it took too long",
    "died": "executing it failed, so it scores zero: ",
    "not-a-notebook": "not-a-notebook.ipynb cannot be read as a notebook",
    "cut-off": "cut-off.ipynb cannot be read as a notebook",
    "list": "list.ipynb cannot be read as a notebook",
    "scan": "scan.pdf cannot be read as a notebook",
    "other": "other.ipynb is the hand-out of 91_other-exercises, not of 90_short-exercises",
    "nothing": "nothing was handed in",
    "untouched": "exercise-1-check: not done yet; exercise-2-check: not done yet; exercise-3-check: not done yet",
}


@pytest.mark.course
def test_thirty_submissions_are_graded_in_one_go(handed_out, tmp_path, capsys):
    folder = tmp_path / "handed in"
    folder.mkdir()
    expected = hand_in(folder, handed_out)
    assert len(expected) == 30
    begin = time.monotonic()
    command = ["course", "grade", str(folder), "--course", str(tmp_path / "course")]
    assert main(command) == 0
    assert "30 submissions" in capsys.readouterr().out
    took = time.monotonic() - begin
    table = tmp_path / "course" / "90_short-exercises.csv"
    rows = {row["student"]: row for row in grading.scores(table)}
    assert {student: float(row["score"]) for student, row in rows.items()} == expected
    assert {row["max_score"] for row in rows.values()} == {"10.0"}
    for student, row in rows.items():
        cells = [row[f"exercise-{name}"] for name in ("1-check", "2-check", "3-check", "3-answer")]
        assert sum(float(points) for points in cells) == expected[student]
        assert float(row["to_grade_by_hand"]) == (4 if student == "answered" else 0)
    assert len({row["seed"] for row in rows.values()}) == 30
    for student, remark in REMARKS.items():
        assert remark in rows[student]["remarks"], (student, rows[student]["remarks"])
    for student in rows:
        page = (tmp_path / "course" / "feedback" / student / "90_short-exercises" / "90_short.html").read_text()
        assert "Exercise 1" in page
        if student in ("not-a-notebook", "died", "other"):
            assert "Not graded." in page
    before, begin = table.read_bytes(), time.monotonic()
    assert main(command) == 0  # nothing has changed: only the tables are written again
    assert table.read_bytes() == before
    assert time.monotonic() - begin < took / 2


@pytest.mark.course
def test_a_loop_that_cannot_be_interrupted_ends_at_the_limit(handed_out, tmp_path):
    change(handed_out, tmp_path / "in" / "stubborn.ipynb", **RIGHT | {"exercise_1": "sum(range(10**13))"})
    change(handed_out, tmp_path / "in" / "right.ipynb", **RIGHT)
    path = grading.grade(tmp_path / "in", folder=tmp_path / "course", timeout=20, limit=45)
    right, stubborn = grading.scores(path)
    assert (float(right["score"]), float(stubborn["score"])) == (6, 0)
    assert "not finished after 45 s" in stubborn["remarks"]


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
def test_solved_half_solved_and_untouched_submissions(path, kind, tmp_path):
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

    mine = solutions(path.stem, kind)
    half = list(mine)[: (len(mine) + 1) // 2]
    released = folder / "release" / f"{path.stem}-{kind}" / path.name
    sweep = f"sweeps/{path.stem}.yaml"
    assert (released.parent / sweep).read_bytes() == (path.parent / sweep).read_bytes()
    names = {name: name.replace("-", "_") for name in mine}
    change(released, tmp_path / "in" / "solved.ipynb", **{names[n]: mine[n] for n in mine})
    change(released, tmp_path / "in" / "half.ipynb", **{names[n]: mine[n] for n in half})
    change(released, tmp_path / "in" / "untouched.ipynb")
    rows = {row["student"]: row for row in grading.scores(grading.grade(tmp_path / "in", folder=folder, timeout=200))}
    graded = {c.metadata["nbgrader"]["grade_id"]: c for c in handed_out.cells if c.metadata.get("nbgrader", {}).get("grade")}
    by_hand = {name for name, cell in graded.items() if cell.cell_type == "markdown"}
    points = {name: cell.metadata["nbgrader"]["points"] for name, cell in graded.items()}
    assert {n: float(rows["solved"][n]) for n in graded} == {n: 0 if n in by_hand else p for n, p in points.items()}, rows[
        "solved"
    ]
    assert float(rows["solved"]["to_grade_by_hand"]) == sum(points[n] for n in by_hand)
    assert float(rows["solved"]["max_score"]) == sum(points.values())
    assert float(rows["untouched"]["score"]) == float(rows["untouched"]["to_grade_by_hand"]) == 0
    if kind == "exercises":
        expected = {n: p if n.removesuffix("-check") in half and n not in by_hand else 0 for n, p in points.items()}
        assert {n: float(rows["half"][n]) for n in graded} == expected, rows["half"]
    for cell in read(folder / "autograded" / "untouched" / f"{path.stem}-{kind}" / path.name).cells:
        failed = any(output.output_type == "error" for output in cell.get("outputs", []))
        marks = cell.metadata.get("nbgrader", {})
        assert not failed or marks.get("solution") or marks.get("grade"), cell.source


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
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-p",
        "no:cacheprovider",
        "-k",
        "literal_loops",
        ROOT / "tests" / "test_moon.py",
    ]
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
