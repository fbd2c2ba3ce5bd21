"""Checks and grades: of one short assignment, of seventy submissions to it, of every notebook."""

import codecs
import os
import re
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import hand_in
import nbformat
import pandas as pd
import pytest
from nbformat.v4 import new_output
from short import RIGHT, SECRET, change, read, solved

from fednb import ROOT
from fednb_lab.cli import main
from fednb_lab.course import (
    check,
    grading,
    handout,
    nbgrading,
    notebooks,
    sandbox,
)

ASSIGNMENTS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
LATE_AFTER = 20  # seconds, for what never ends
pytestmark = pytest.mark.course


def set_limits(**seconds):
    """Set limits as a teacher does."""
    config = nbgrading.CONFIG.read_text()
    lines = "".join(f"c.{name.replace('_', '.', 1)} = {value}\n" for name, value in seconds.items())
    nbgrading.FOLDER.mkdir(exist_ok=True)
    (nbgrading.FOLDER / "nbgrader_config.py").write_text(config + lines)


def test_the_hand_out_holds_no_solution_and_check_says_what_is_wrong(handed_out, tmp_path, capsys):
    text = handed_out.read_text()
    assert not [secret for secret in SECRET if secret in text]
    mine = tmp_path / "mine" / "90_short.ipynb"
    wrong = "def mean(x, weights):\n    return np.mean(x)"
    right = "from helper import double"
    nb = change(handed_out, mine, exercise_1=right, exercise_2=wrong, exercise_3_answer="So.")
    (mine.parent / "helper.py").write_text("def double(x):\n    return 2 * x")
    hand_in.split(nb, "exercise-2")
    nbformat.write(nb, mine)
    assert main(["course", "check", str(mine)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "Exercise 1, check: passed",
        "Exercise 2, check: weights count",
        f"Exercise 3, check: {notebooks.NOT_DONE}",
        "Exercise 3, answer: given; a person grades it",
        "2 of 4 pass. Grading adds checks that you do not see.",
        "note: exercise-2 was split or copied: its 2 cells count as one",
        "note: taken along: helper.py",
    ]
    nb = change(mine, mine, exercise_2_check="pass")
    nb.cells = [cell for cell in nb.cells if notebooks.grade_id(cell) != "exercise-1"]
    nbformat.write(nb, mine)
    assert main(["course", "check", str(mine)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "Exercise 1, code: the cell is missing: put it back",
        "Exercise 1, check: NameError: name 'double' is not defined",
    ]
    assert lines[2].startswith("Exercise 2, check: the cell was changed")


def test_without_bubblewrap_grading_says_what_is_missing_and_how_to_go_on(
    handed_out, tmp_path, monkeypatch, capsys
):
    change(handed_out, tmp_path / "in" / "right.ipynb", **RIGHT)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sandbox, "missing", sandbox.missing.__wrapped__)
    assert main(["course", "grade", "short", "in"]) == 2
    said = capsys.readouterr().err
    assert "bubblewrap" in said and "container" in said and "--no-sandbox" in said
    assert main(["course", "grade", "short", "in", "--no-sandbox"]) == 0
    assert hand_in.table("90_short")["right"]["score"] == 6
    page = Path("course/feedback/right/90_short/90_short.html").read_text()
    assert re.findall(r'#exercise-[\w-]+">([^<]+)</a>', page) == [
        *("Exercise 1, check", "Exercise 2, check", "Exercise 3, check", "Exercise 3, answer")
    ]


def test_the_sandbox_shows_what_executes_a_notebook_and_hides_solutions_of_a_package(monkeypatch):
    course = Path(sandbox.__file__).parent

    def listed(folder):
        command = [*sandbox.bubblewrap(), "ls", str(folder)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    assert "sandbox.py" in listed(course)
    assert listed(course / "templates")
    monkeypatch.setattr(sandbox, "SOLUTIONS", course / "templates")  # a folder that is seen
    assert "sandbox.py" in listed(course) and not listed(course / "templates")


def contents(folder):
    """What is in a folder, links unfollowed."""
    return {
        path: path.is_symlink() or path.is_dir() or path.read_bytes() for path in folder.rglob("*")
    }


def test_every_submission_has_its_points_and_remark_and_check_says_the_same(
    handed_out, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("A_TOKEN", "s3cret")
    assert not sandbox.missing()
    set_limits(FedNB_cell_seconds=LATE_AFTER)
    course = hand_in.Course(tmp_path / "course", "90_short")
    folder = tmp_path / "in"
    with socket.create_server(("127.0.0.1", 0)) as server:
        expected = hand_in.hand_in(course, folder, server.getsockname()[1], 12)
        seen_only = course.with_first("def double(x):\n    return {2: 4}.get(x)")
        hand_in.write(folder / "seen-only.ipynb", seen_only)  # right for what students see
        expected["seen-only"] = hand_in.Expected(4, "Exercise 1, check: double(")
        before = contents(folder)
        assert main(["course", "grade", "short", str(folder), "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    assert "Nobody's, and left out: readme.txt" in said
    rows = hand_in.table("90_short")
    assert len(rows) >= 60
    assert not hand_in.faults(rows, expected) and set(rows) == set(expected)
    assert before == contents(folder)
    points = pd.read_csv("course/90_short-points.csv", index_col="id")
    assert points.loc["4711", "name"] == "Anna Berg" and points.loc["'=1+1", "points"] == 6
    with zipfile.ZipFile("course/90_short-feedback.zip") as archive:
        names = archive.namelist()
    assert "Anna Berg_4711_assignsubmission_file/90_short.html" in names and len(names) == len(rows)
    pages = Path("course/feedback")
    page = (pages / "pages" / "90_short" / "90_short.html").read_text()
    assert "<script>alert(1)" not in page
    assert hand_in.PIXEL in (pages / "picture" / "90_short" / "90_short.html").read_text()

    monkeypatch.setattr(grading, "_execute", None)  # nothing has changed: nothing is executed
    assert main(["course", "grade", "short", str(folder)]) == 0
    assert hand_in.table("90_short") == rows

    checked = [f"variant-{number}" for number in range(6)]
    checked += ["split", "magics", "check-skipped", "pickled", "syntax", "os-exit"]
    limits = grading.Handout.read("90_short").limits
    assert not hand_in.differences(course, folder, rows, checked, limits)
    hidden = hand_in.differences(course, folder, rows, ["seen-only"], limits)
    assert hidden == {"seen-only": ("exercise-1-check", "", 0)}


# --- every notebook: minutes


def solution_lines(source):
    """The lines of a cell that stand between the markers."""
    regions = re.findall(r"(?s)BEGIN SOLUTION(.*?)\n[^\n]*END SOLUTION", source)
    return {
        line.strip() for region in regions for line in region.splitlines() if re.search(r"\w", line)
    }


@pytest.mark.parametrize("path", ASSIGNMENTS, ids=lambda path: path.stem)
def test_a_solved_submission_has_all_points_and_the_hand_out_shows_no_solution(
    path, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    set_limits(FedNB_cell_seconds=600, FedNB_seconds=3600)  # on a machine with much else to do
    source = handout.solved_assignment(path.stem)
    released = handout.release(path.stem)
    text = released.read_text(encoding="utf-8")
    handed_out = read(released)
    lines = {line.strip() for cell in handed_out.cells for line in cell.source.splitlines()}
    secret = set().union(*(solution_lines(cell.source) for cell in source.cells))
    for cell in source.cells:  # what stands elsewhere in the text is no secret
        secret -= {line.strip() for line in cell.source.splitlines()} - solution_lines(cell.source)
    assert len(secret) >= 3 and not secret & lines
    assert not re.search("(BEGIN|END) (SOLUTION|HIDDEN)", text)
    graded = {
        notebooks.grade_id(cell): cell
        for cell in handed_out.cells
        if cell.metadata.get("nbgrader", {}).get("grade")
    }
    by_hand = {name for name, cell in graded.items() if cell.cell_type == "markdown"}
    answers = [cell for cell in source.cells if cell.metadata.get("nbgrader", {}).get("solution")]
    mine = {
        notebooks.grade_id(cell).replace("-", "_"): solved(cell.source) or "In words."
        for cell in answers
    }
    change(released, tmp_path / "in" / "solved.ipynb", **mine)
    (row,) = pd.read_csv(grading.grade(path.stem, tmp_path / "in")).to_dict("records")
    points = {name: cell.metadata["nbgrader"]["points"] for name, cell in graded.items()}
    assert all(row[name] == points[name] for name in points if name not in by_hand), row
    assert row["to_grade_by_hand"] == bool(by_hand) and row["max_score"] == sum(points.values())
    assert pd.isna(row["remarks"]), "what exercises build on fails"


def test_what_check_executes_is_what_grading_executes(handed_out, tmp_path):
    course = hand_in.Course(handed_out.parents[2], "90_short")
    released = notebooks.read_notebook(handed_out)  # without hidden tests
    for name, nb, _ in [*hand_in.variants(course, 3), *hand_in.edited(course)]:
        nb = notebooks.read_notebook(hand_in.write(tmp_path / "mine.ipynb", nb))
        known = notebooks.handout_of(nb)
        if not known.cells:
            assert name in ("metadata", "pasted")
            continue
        both = [notebooks.merged(nb, handout)[0] for handout in (known, released)]
        executed = [list(filter(notebooks.is_executed, whole.cells)) for whole in both]
        assert sources(executed[0]) == sources(executed[1]), name
        told = " ".join(notebooks.changed(nb, known).values())
        is_changed = name in ("check-changed", "check-deleted", "own-cell-has-it")
        assert ("put it back" in told) == is_changed, name


def sources(cells):
    return [cell.source for cell in cells]


def test_check_needs_no_nbgrader():
    code = "import sys, fednb_lab.course.check; sys.exit('nbgrader' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


LOST = '{"nbformat": 4, "nbformat_minor": 5, "metadata": {"fednb": {"handout": [1]}}, "cells": []}'


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *(
            (f"course check {kind}.ipynb", f"{kind}.ipynb cannot be read")
            for kind in ("empty", "broken", "version-3", "list")
        ),
        ("course check lost.ipynb", "is no hand-out"),
        ("course check empty", "did you mean empty.ipynb?"),
        ("check hand-out.ipynb", "`fednb course check` checks a hand-out"),
        ("course grade short nowhere", "nowhere is not there"),
        ("course grade nothing .", "is no notebook 'nothing'"),
        ("course grade short .", "fednb course release 90_short"),
        ("course release nothing", "is no notebook 'nothing'"),
    ],
)
def test_what_cannot_be_checked_or_graded_is_one_sentence(words, said, short, tmp_path, capsys):
    texts = {"empty": "", "broken": "{ broken", "version-3": '{"nbformat": 3, "worksheets": 1}'}
    texts |= {"list": "[]", "lost": LOST, "hand-out": LOST}
    for name, text in texts.items():
        (tmp_path / f"{name}.ipynb").write_text(text)
    assert main(words.split()) == 2
    told = capsys.readouterr().err
    assert (
        said in told
        and told.removeprefix("Starting nbgrader, which takes some seconds\n").count("\n") == 1
    )
    assert not Path("course").exists()


def test_check_tells_of_a_cell_of_the_hand_out_that_fails(handed_out, executed_by):
    def execute(nb, *_, **options):
        (cell,) = (cell for cell in nb.cells if notebooks.grade_id(cell) == "imports")
        cell.outputs = [new_output("error", ename=notebooks.LATE, evalue="took longer than 60 s")]

    executed_by(execute)
    _, remarks = check.check(handed_out)
    assert any("the hand-out's: CellTimeoutError: took longer" in remark for remark in remarks)


def test_the_class_by_exercise_counts_who_handed_in_and_no_answer_that_waits_as_zero(short):
    check, answer = "exercise-1-check", "exercise-3-answer"
    square = {check: "this is the square"}
    errors = {"a": {}, "b": square, "c": square, "none": {}, "stub": {check: notebooks.NOT_DONE}}
    notes = {name: {"errors": errors[name], "executed": name != "none"} for name in errors}
    points = {"a": (2, None), "b": (0, 4), "c": (0, 0), "stub": (0, 0), "none": (0, 0)}
    rows = [(name, check, float(of_check), 2, False) for name, (of_check, _) in points.items()]
    rows += [(name, answer, one or 0.0, 4, one is None) for name, (_, one) in points.items()]
    graded = pd.DataFrame(rows, columns=["student", "name", "points", "most", "waits"])
    found = nbgrading.by_exercise(handout.solved_assignment("short"), graded, notes)
    lines = found.set_index("exercise").to_dict("index")
    line = lines["Exercise 1, check"]
    assert (line["mean"], line["graded"], line["waiting"], line["tried"]) == (0.5, 4, 0, 3)
    assert (line["in full"], line["without points"]) == (1, 3)
    assert line["most often"] == "this is the square"
    line = lines["Exercise 3, answer"]
    assert (line["graded"], line["waiting"], line["in full"]) == (3, 1, 1)
    assert pd.isna(line["mean"])


@pytest.fixture
def executed_by(monkeypatch):
    """Has a function take the place of the sandbox."""
    monkeypatch.setattr(sandbox, "missing", lambda: "")
    return lambda execute: monkeypatch.setattr(sandbox, "execute", execute)


@pytest.fixture
def unexecuted(executed_by):
    """Submissions are graded without being executed: what can be read has all points."""
    executed_by(lambda *_, **__: None)


def test_tables_have_all_who_were_graded_with_the_newest_attempt(
    handed_out, tmp_path, unexecuted, capsys
):
    right = RIGHT | {"exercise_3_answer": "Because."}
    change(handed_out, tmp_path / "one" / "ann a.ipynb", **right)
    hand_in.write(tmp_path / "one" / "ben.ipynb", b"{ broken")
    os.utime(tmp_path / "one" / "ben.ipynb", (1, 1))
    change(handed_out, tmp_path / "two" / "ben.ipynb", **right)
    change(handed_out, tmp_path / "two" / "ann+a.ipynb", **right)  # another student
    assert main(["course", "grade", "short", "one"]) == 0
    assert {student: row["score"] for student, row in hand_in.table("90_short").items()} == {
        "ann_a": 6,
        "ben": 0,
    }
    capsys.readouterr()
    assert main(["course", "grade", "short", "two"]) == 0
    assert "2 graded now, 1 before" in capsys.readouterr().out
    full = {"ann_a": 6, "ann_a-2": 6, "ben": 6}
    for _ in range(2):  # the older attempt changes nothing
        rows = hand_in.table("90_short")
        assert {student: row["score"] for student, row in rows.items()} == full
        assert main(["course", "grade", "short", "one"]) == 0
    points = Path("course/90_short-points.csv").read_bytes()
    assert points.startswith(codecs.BOM_UTF8) and points.count(b"\n") == 4
    with zipfile.ZipFile("course/90_short-feedback.zip") as archive:
        assert len(archive.namelist()) == 3


def page_of(student):
    return Path(f"course/feedback/{student}/90_short/90_short.html").read_text(encoding="utf-8")


def test_a_page_begins_with_name_and_points_and_says_what_waits_for_a_person(
    handed_out, tmp_path, unexecuted
):
    change(handed_out, tmp_path / "in" / "Ann B.ipynb", exercise_3_answer="Because.")
    assert main(["course", "grade", "short", "in"]) == 0
    page = page_of("Ann_B")
    assert "Ann B: 90_short (Score: 6.0 / 10.0)" in page
    assert "answers are still to be graded by hand" in page
    with nbgrading.api().gradebook as gradebook:
        where = "exercise-3-answer", "90_short", "90_short", "Ann_B"
        gradebook.find_grade(*where).manual_score = 3
        gradebook.find_grade(*where).needs_manual_grade = False
        gradebook.find_comment(*where).manual_comment = "Nearly <b>"
        gradebook.db.commit()
    assert main(["course", "grade", "short"]) == 0
    assert hand_in.table("90_short")["Ann_B"]["score"] == 9
    page = page_of("Ann_B")
    assert "Ann B: 90_short (Score: 9.0 / 10.0)" in page and "Nearly" in page
    assert ">Exercise 3, answer</a> (Score: 3.0 / 4.0)" in page
    assert "still to be graded" not in page


def test_a_page_shows_the_exercises_and_no_hidden_test_not_even_in_an_error(
    handed_out, tmp_path, executed_by
):
    def execute(nb, *_, **__):
        (check,) = (one for one in nb.cells if notebooks.grade_id(one) == "exercise-1-check")
        assert "draws(" in check.source
        shown = ["----> 3 double(draws(", "AssertionError: twice"]
        error = {"ename": "AssertionError", "evalue": "twice", "traceback": shown}
        told = new_output("stream", text="draws( was called")
        check.outputs = [told, new_output("error", **error)]

    executed_by(execute)
    nb = change(handed_out, tmp_path / "in" / "ann.ipynb", exercise_1="mine = 1")
    assert "not needed for grading" in str(nb.cells)
    assert main(["course", "grade", "short", "in"]) == 0
    page = page_of("ann")
    text = re.sub("<[^>]*>", "", page)
    assert "draws(" not in text and "HIDDEN" not in text
    assert "AssertionError: twice" in text and "mine = 1" in text and "Exercise 2" in text
    assert "not needed for grading" not in text


def test_checks_that_were_changed_or_deleted_are_put_back_and_named(
    handed_out, tmp_path, unexecuted
):
    nb = change(handed_out, tmp_path / "in" / "ann.ipynb", **RIGHT, exercise_1_check="pass")
    nb.cells = [cell for cell in nb.cells if notebooks.grade_id(cell) != "exercise-3-check"]
    hand_in.write(tmp_path / "in" / "ann.ipynb", nb)
    nb = change(handed_out, tmp_path / "in" / "ben.ipynb", **RIGHT, exercise_1_check="of old")
    for cell in nb.metadata["fednb"]["handout"]:
        if notebooks.grade_id(cell) == "exercise-1-check":
            cell["source"] = "of old"  # as the hand-out was when Ben got it
    hand_in.write(tmp_path / "in" / "ben.ipynb", nb)
    assert main(["course", "grade", "short", "in"]) == 0
    rows = hand_in.table("90_short")
    assert "put back: Exercise 1, check, Exercise 3, check" in rows["ann"]["remarks"]
    assert "put back" not in rows["ben"]["remarks"]


def test_what_ran_out_of_time_is_named_and_executed_again_with_other_limits(
    handed_out, tmp_path, executed_by, capsys
):
    def execute(nb, _, limits, **__):
        (cell,) = (one for one in nb.cells if notebooks.grade_id(one) == "exercise-1-check")
        error = new_output("error", ename=notebooks.LATE, evalue="took longer than 60 s")
        cell.outputs = [error] if limits.cell < 100 and "slow" in str(nb.cells) else []

    executed_by(execute)
    change(handed_out, tmp_path / "in" / "ann.ipynb", **RIGHT)
    slow = RIGHT | {"exercise_1": f"{RIGHT['exercise_1']}  # slow"}
    change(handed_out, tmp_path / "in" / "ben.ipynb", **slow)
    assert main(["course", "grade", "short", "in"]) == 0
    rows = hand_in.table("90_short")
    assert (rows["ann"]["score"], rows["ben"]["score"]) == (6, 4)
    said = capsys.readouterr().out
    assert "Out of time: ben." in said and "another hand-out" not in said
    set_limits(FedNB_cell_seconds=100)
    assert main(["course", "grade", "short", "in/ann.ipynb"]) == 0  # one student's file
    assert "Graded with another hand-out, seed or time limit: ben." in capsys.readouterr().out
    assert main(["course", "grade", "short", "in"]) == 0
    assert hand_in.table("90_short")["ben"]["score"] == 6


def test_what_ran_out_of_time_beside_others_is_executed_again_alone(
    handed_out, tmp_path, executed_by, capsys
):
    executed = []

    def execute(nb, *_, student_seed, **__):
        executed.append(student_seed)
        (cell,) = (one for one in nb.cells if notebooks.grade_id(one) == "exercise-1-check")
        error = new_output("error", ename=notebooks.LATE, evalue="took longer than 60 s")
        cell.outputs = [error] if executed.count(student_seed) == 1 else []

    executed_by(execute)
    for student in ("ann", "ben"):
        change(handed_out, tmp_path / "in" / f"{student}.ipynb", **RIGHT)
    assert main(["course", "grade", "short", "in", "--jobs", "2"]) == 0
    assert [row["score"] for row in hand_in.table("90_short").values()] == [6, 6]
    assert len(executed) == 4 and "Out of time" not in capsys.readouterr().out


def test_who_was_taken_out_of_the_gradebook_is_in_no_table_and_can_be_graded_again(
    handed_out, tmp_path, unexecuted
):
    for student in ("ann", "ben"):
        change(handed_out, tmp_path / student / f"{student}.ipynb", **RIGHT)
    assert main(["course", "grade", "short", "ann"]) == 0
    with nbgrading.api().gradebook as gradebook:
        gradebook.remove_student("ann")
    assert main(["course", "grade", "short", "ben"]) == 0
    assert set(hand_in.table("90_short")) == {"ben"}
    assert main(["course", "grade", "short", "ann"]) == 0
    assert set(hand_in.table("90_short")) == {"ann", "ben"}


def test_a_hand_out_that_was_graded_keeps_its_exercises(
    handed_out, short, tmp_path, unexecuted, capsys
):
    change(handed_out, tmp_path / "in" / "ann.ipynb", **RIGHT)
    assert main(["course", "grade", "short", "in"]) == 0
    nb = read(short)
    nb.cells = [cell for cell in nb.cells if not cell.id.startswith(("e2", "h2"))]
    nbformat.write(nb, short)
    before = handed_out.read_bytes()
    assert main(["course", "release", "short"]) == 2
    assert "Exercise 2, check" in capsys.readouterr().err
    assert handed_out.read_bytes() == before
    assert main(["course", "grade", "short", "in"]) == 0


def test_another_assignments_hand_outs_are_refused_and_a_single_one_is_remarked(
    handed_out, tmp_path, unexecuted, capsys
):
    nb = read(handed_out)
    nb.metadata["fednb"]["assignment"] = "00_foundations"
    for student in ("ann", "ben"):
        hand_in.write(tmp_path / "in" / f"{student}.ipynb", nb)
    change(handed_out, tmp_path / "in" / "eva.ipynb", **RIGHT)
    assert main(["course", "grade", "short", "in"]) == 2
    said = capsys.readouterr().err
    assert "2 of 3" in said and "00_foundations" in said
    assert not Path("course/90_short.csv").exists()
    for student in ("fritz", "gina"):
        change(handed_out, tmp_path / "in" / f"{student}.ipynb", **RIGHT)
    (tmp_path / "in" / "ben.ipynb").unlink()
    assert main(["course", "grade", "short", "in"]) == 0
    row = hand_in.table("90_short")["ann"]
    assert row["score"] == 0 and "hand-out of 00_foundations" in row["remarks"]


def test_check_of_work_in_which_nothing_is_wrong_says_what_is_left_to_do(
    handed_out, unexecuted, capsys
):
    change(handed_out, handed_out, **RIGHT, exercise_3_answer="Because.")
    assert main(["course", "check", str(handed_out)]) == 0
    assert f"Hand in {handed_out}." in capsys.readouterr().out
    change(handed_out, handed_out, exercise_3_answer=notebooks.PLACEHOLDER)
    assert main(["course", "check", str(handed_out)]) == 1
    assert "Hand in" not in capsys.readouterr().out


def test_to_stop_a_check_promises_no_checkpoint(handed_out, executed_by, capsys):
    def stop(*_, **__):
        raise KeyboardInterrupt

    executed_by(stop)
    assert main(["course", "check", str(handed_out)]) == 130
    assert "checkpoint" not in capsys.readouterr().err
