"""Checks and grades: of one short assignment, of seventy submissions to it, of every notebook."""

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
from fednb.errors import CourseError
from fednb_lab.cli import main
from fednb_lab.course import (
    check,
    grading,
    handout,
    merging,
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
        "exercise-1-check: passed",
        "exercise-2-check: AssertionError: weights count",
        *("exercise-3-check: not done yet", "exercise-3-answer: answered; a person grades it"),
        "note: exercise-2 was split: its 2 cells count as one",
        "note: taken along: helper.py",
    ]
    nb = change(mine, mine, exercise_2_check="pass")
    nb.cells = [cell for cell in nb.cells if notebooks.grade_id(cell) != "exercise-1"]
    nbformat.write(nb, mine)
    assert main(["course", "check", str(mine)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "exercise-1: the cell is missing: put it back",
        "exercise-1-check: NameError: name 'double' is not defined",
    ]
    assert lines[2].startswith("exercise-2-check: the cell was changed")


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
    of_class = pd.read_csv("course/90_short-exercises.csv", index_col="exercise")
    assert of_class["in full"].to_dict() == {
        "exercise-1-check": 1,
        "exercise-2-check": 1,
        "exercise-3-check": 1,
        "exercise-3-answer": 0,
    }


def test_the_sandbox_shows_what_executes_a_notebook_and_hides_solutions_of_a_package(monkeypatch):
    course = Path(sandbox.__file__).parent

    def listed(folder):
        command = [*sandbox.bubblewrap(), "ls", str(folder)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    assert "inside.py" in listed(course)
    assert listed(course / "templates")
    monkeypatch.setattr(sandbox, "SOLUTIONS", course / "templates")  # a folder that is seen
    assert "inside.py" in listed(course) and not listed(course / "templates")


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
        expected["seen-only"] = hand_in.Expected(4, "exercise-1-check: AssertionError: double(")
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
    limits, _ = nbgrading.execution_limits()
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
    (row,) = pd.read_csv(grading.grade(path.stem, tmp_path / "in")[0]).to_dict("records")
    points = {name: cell.metadata["nbgrader"]["points"] for name, cell in graded.items()}
    assert all(row[name] == points[name] for name in points if name not in by_hand), row
    assert row["to_grade_by_hand"] == bool(by_hand) and row["max_score"] == sum(points.values())
    assert pd.isna(row["remarks"]), "what exercises build on fails"


def test_what_check_executes_is_what_grading_executes(handed_out, tmp_path):
    course = hand_in.Course(handed_out.parents[2], "90_short")
    released = notebooks.read_notebook(handed_out)  # without hidden tests
    for name, nb, _ in [*hand_in.variants(course, 3), *hand_in.edited(course)]:
        if name == "many-cells":
            continue  # which cannot be read
        nb = notebooks.read_notebook(hand_in.write(tmp_path / "mine.ipynb", nb))
        known = check.handout_of(nb)
        if not known.cells:
            assert name in ("metadata", "pasted")
            continue
        both = [merging.merged(nb, handout)[0] for handout in (known, released)]
        executed = [list(filter(notebooks.is_executed, whole.cells)) for whole in both]
        assert sources(executed[0]) == sources(executed[1]), name
        told = " ".join(check._changed(nb, known).values())
        is_changed = name in ("check-changed", "check-deleted", "own-cell-has-it")
        assert ("put it back" in told) == is_changed, name


def sources(cells):
    return [cell.source for cell in cells]


def test_check_needs_no_nbgrader():
    code = "import sys, fednb_lab.course.check; sys.exit('nbgrader' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_check_refuses_what_has_lost_its_origin(handed_out):
    nb = notebooks.read_notebook(handed_out)
    nb.metadata["fednb"]["handout"] = [1]
    nbformat.write(nb, handed_out)
    with pytest.raises(CourseError, match=r"is no hand-out: .* start from the file"):
        check.check(handed_out)


@pytest.mark.parametrize("content", ["", "{ broken", '{"nbformat": 3, "worksheets": 1}', "[]"])
def test_check_says_how_to_get_a_notebook_that_can_be_read(content, tmp_path, capsys):
    (tmp_path / "mine.ipynb").write_text(content)
    assert main(["course", "check", str(tmp_path / "mine.ipynb")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("fednb: mine.ipynb ") and said.count("\n") == 1
    assert "JupyterLab" in said


def test_check_tells_of_a_cell_of_the_hand_out_that_fails(handed_out, monkeypatch):
    def execute(nb, *_, **options):
        (cell,) = (cell for cell in nb.cells if notebooks.grade_id(cell) == "imports")
        cell.outputs = [new_output("error", ename="CellTimeoutError", evalue="it took too long")]

    monkeypatch.setattr(sandbox, "execute", execute)
    _, remarks = check.check(handed_out)
    assert any("imports: CellTimeoutError: it took too long" in remark for remark in remarks)


def test_nothing_is_announced_before_the_input_has_been_looked_at(short, tmp_path, capsys):
    (tmp_path / "file.txt").write_text("x")
    for words in ("release nothing", "grade nothing .", "grade short nowhere", "check none.ipynb"):
        assert main(["course", *words.split()]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert main(["course", "grade", "short", str(tmp_path / "file.txt")]) == 2
    assert "neither a folder nor a zip" in capsys.readouterr().err
    assert not (tmp_path / "course").exists()


def test_an_answer_that_waits_for_a_person_is_no_zero_on_average():
    rows = pd.DataFrame({"check": [1.0, 2.0], "answer": [None, 1.0]})
    exercises = pd.DataFrame({"exercise": ["check", "answer"], "points": [2, 5]})
    assert grading.average(rows, exercises).startswith("1.5 of 2 points on average, without 1 ")


def test_how_the_class_did_in_an_exercise_counts_who_has_points_and_the_commonest_error(short):
    released = handout.solved_assignment("short")
    said = "exercise-1-check: AssertionError: this is the square"
    rows = {
        "exercise-1-check": [2.0, 0.0, 0.0, None],  # the last one has no points yet
        "remarks": ["", f"a note; {said}", said, "exercise-1-check: NameError: x"],
    }
    (line,) = grading.by_exercise(released, pd.DataFrame(rows)).to_dict("records")
    assert (line["mean"], line["graded"]) == (0.67, 3)
    assert (line["in full"], line["without points"]) == (1, 2)
    assert line["most often"] == "AssertionError: this is the square"
