"""Hand-outs, checks and grades of one short assignment, and (marked course, minutes) of all."""

import ast
import json
import math
import os
import re
import resource
import socket
import sqlite3
import subprocess
import sys
from types import SimpleNamespace

import nbformat
import pandas as pd
import psutil
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from tiny import is_alive, wait_for

from fednb import ROOT, papers
from fednb_lab import course, engine
from fednb_lab.cli import main
from fednb_lab.course import (
    CourseError,
    assignment,
    grading,
    handout,
    installation,
    kernel,
    limits,
    sandbox,
    solutions,
    submissions,
)

ASSIGNMENTS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
SOLVED = sorted((ROOT / "notebooks" / "solutions").glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", ASSIGNMENTS, ids=lambda path: path.stem)
GIVEN = yaml.safe_load((ROOT / "tests" / "course.yaml").read_text(encoding="utf-8"))
CELLS = {name: cell["source"] for name, cell in GIVEN["notebook"].items()}
NOTEBOOK = '{"nbformat": 4, "nbformat_minor": 5, "metadata": %s, "cells": %s}'
SECRET = ("return 2 * x", "np.average", "prediction = 'b'", "Because of the order", "draws(")


def new_cell(name, source, tag="", output=""):
    """A cell of a notebook, folded away."""
    if tag == "text":
        return new_markdown_cell(source, id=name)
    outputs = [new_output("stream", name="stdout", text=output)] * bool(output)
    metadata = {"tags": [tag] * bool(tag), "jupyter": {"source_hidden": True}}
    return new_code_cell(source, id=name, metadata=metadata, outputs=outputs, execution_count=1)


@pytest.fixture
def short(tmp_path, monkeypatch):
    """The short assignment notebook, in a folder of its own."""
    nb = new_notebook(cells=[new_cell(name, **cell) for name, cell in GIVEN["notebook"].items()])
    about = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nb.metadata["kernelspec"] = about
    folder = tmp_path / "notebooks"
    folder.mkdir()
    nbformat.write(nb, folder / "90_short.ipynb")
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder / "90_short.ipynb"


def read(path):
    return nbformat.read(path, as_version=4)


def change(path, to, **sources):
    """Write a copy of a hand-out in which cells (by grade id, with _ for -) have other sources."""
    nb = read(path)
    by_name = {assignment.grade_id(cell): cell for cell in nb.cells}
    for name, source in sources.items():
        by_name[name.replace("_", "-")].source = source
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(nb))
    return nb


def solved(source):
    """What a student would write who finds the solution."""
    return "\n".join(line for line in source.splitlines() if "SOLUTION" not in line)


RIGHT = {f"exercise_{number}": solved(CELLS[f"e{number}"]) for number in (1, 2, 3)}


# --- what a notebook says about its exercises


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("1 + 4 points", "5 points", "Exercise 3 has 2 checks and answers, but 1 numbers"),
        ("**Exercise", "Exercise", "There is no exercise"),
    ],
)
def test_a_notebook_that_says_it_wrongly_is_an_error_that_says_what_to_write(short, old, new, said):
    nb = read(short)
    for cell in nb.cells:
        cell.source = cell.source.replace(old, new)
    nbformat.write(nb, short)
    with pytest.raises(CourseError, match=re.escape(said)):
        handout.solved_assignment("short")


def test_a_check_may_share_the_cell_of_its_solution_and_an_answer_that_of_the_next_exercise(short):
    nb = read(short)
    by_id = {cell.id: cell for cell in nb.cells}
    by_id["e2"].source += f"\n\n\n# Check. By hand.\n{CELLS['e2c']}"
    by_id["e2"].outputs = by_id.pop("e2c").outputs
    by_id["e3a"].source += "\n\n" + by_id["h4"].source
    nb.cells = [cell for cell in nb.cells if cell.id not in ("e2c", "h4")]
    nbformat.write(nb, short)
    nb = handout.solved_assignment("short")
    by_name = {assignment.grade_id(cell): cell for cell in nb.cells}
    names = [name for name in by_name if name.startswith("exercise-")]
    assert " ".join(names).replace("exercise-", "") == "1 1-check 2 2-check 3 3-check 3-answer"
    check = by_name["exercise-2-check"]
    assert by_name["exercise-2"].source == CELLS["e2"]
    assert check.source == f"# Check. By hand.\n{CELLS['e2c']}" and not check.outputs
    assert by_name["exercise-3-answer"].source == CELLS["e3a"]
    assert nb.cells[-2].source == "## 2 · Summary\n\nDone."


@pytest.fixture
def source(short):
    """The cells of nbgrader's source of the short assignment, by id."""
    return {cell.id: cell for cell in handout.solved_assignment("short").cells}


def test_what_exercises_do_not_build_on_is_not_executed(source):
    tags = {name: cell.metadata.get("tags", []) for name, cell in source.items()}
    skipped = {name for name in tags if "skip-execution" in tags[name]}
    assert skipped == {"seen", "course-ready", "e2s", "last"}


def test_outputs_of_what_is_asked_for_are_cleared_and_it_is_not_folded_away(source):
    assert source["seen"].outputs and source["e2s"].outputs and not source["e2c"].outputs
    assert "jupyter" in source["seen"].metadata and "jupyter" not in source["e1"].metadata


def test_what_is_executed_and_not_the_students_to_write_is_locked(source):
    marks = {name: source[name].metadata["nbgrader"] for name in ("imports", "e1", "e1c")}
    assert [marks[name]["locked"] for name in marks] == [True, False, True]


def test_checks_and_answers_have_the_points_that_the_text_says(source):
    marks = [cell.metadata["nbgrader"] for cell in source.values() if "nbgrader" in cell.metadata]
    points = {"exercise-1-check": 2, "exercise-2-check": 3}
    points |= {"exercise-3-check": 1, "exercise-3-answer": 4}
    assert {mark["grade_id"]: mark["points"] for mark in marks if mark["grade"]} == points
    assert "3 exercises at the end, 10 points" in source["course-note"].source


def test_what_a_notebook_imports_is_found_through_others_and_through_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(tmp_path))
    for name, others in {"90_a": "bca", "91_b": "c", "92_c": "b"}.items():
        lines = "\n".join(f"from fednb.papers.{other} import x" for other in others)
        cells = [new_cell("imports", lines, "export")]
        nbformat.write(new_notebook(cells=cells), tmp_path / f"{name}.ipynb")
    found = handout.imported_notebooks(tmp_path / "90_a.ipynb")
    assert {path.name for path in found} == {"91_b.ipynb", "92_c.ipynb"}


def test_a_sweep_executes_what_the_checks_of_a_hand_out_leave_out(short):
    nbformat.write(handout.solved_assignment("short"), short)
    cells = engine.reduced("90_short").cells
    assert [cell.id for cell in cells] == ["imports", "exported", "seen"]


def test_hidden_inputs_depend_on_the_student_and_on_nothing_else(monkeypatch):
    def numbers(seed, purpose):
        monkeypatch.setenv("FEDNB_STUDENT_SEED", seed)
        return tuple(course.draws(purpose).integers(1000, size=4))

    assert numbers("1", "a") == numbers("1", "a")
    assert len({numbers("1", "a"), numbers("2", "a"), numbers("1", "b")}) == 3


def test_without_nbgrader_solved_notebooks_run_and_other_commands_say_how_to_get_it():
    code = """
import sys
sys.modules["nbgrader"] = None
from fednb_lab import course
course.draws("a")
course.prepare  # imported, and not called: there is no kernel here
try:
    course.release("short")
except course.CourseError as error:
    print(error)
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 'pip install "fednb[course]"' in result.stdout


@every_notebook
def test_every_notebook_is_an_assignment_and_its_exercises_say_what_goes_wrong(path):
    nb = handout.solved_assignment(path.stem)
    names = [name for name in map(assignment.grade_id, nb.cells) if name]
    assert len(set(names)) == len(names)
    exercises = handout.exercises(nb)
    assert [exercise.number for exercise in exercises] == list(range(1, len(exercises) + 1))
    for exercise in exercises:
        text = exercise.heading.source
        (level,) = re.findall(r"\A\*\*Exercise \d+\*\* \((\w+),", text)
        assert level in {"easy", "medium", "predict", "research"}
        assert "*Hint: " in text and "A common mistake is " in text, text
        for check in (part.cell.source for part in exercise.parts if part.kind == "check"):
            names_mistake = re.search(r'(?m)^\s*assert [^\n]*, \(?\s*f?"', check)
            assert names_mistake, check
            assert level == "predict" or "### BEGIN HIDDEN TESTS" in check, text
            last = ast.parse(check).body[-1]  # nbgrader takes the value of a last line for points
            assert not isinstance(last, ast.Expr) or isinstance(last.value, ast.Call), check
        answers = [part.cell for part in exercise.parts if part.kind == "answer"]
        assert all(answer.cell_type == "markdown" for answer in answers)


# --- solutions in a notebook of their own


@pytest.fixture
def parted(short):
    """The short assignment with its solutions in a notebook of their own."""
    assert main(["course", "split", "90"]) == 0
    return short


def sources(nb):
    return {cell.id: cell.source for cell in nb.cells}


def test_a_notebook_without_its_solutions_shows_stubs_and_gives_the_same_assignment(short):
    before = handout.solved_assignment("short")
    place = solutions.split("short")
    assert place == short.parent / "solutions" / short.name
    nb = read(short)
    text = "\n".join(cell.source for cell in nb.cells)
    assert not [secret for secret in SECRET if secret in text] and assignment.ANSWER in text
    cells = {cell.id: cell for cell in nb.cells}
    assert cells["e1"].source.endswith(f"    {assignment.STUB.splitlines()[-1]}")
    assert cells["e3"].source == "prediction = ..."
    assert cells["seen"].outputs and not cells["e2s"].outputs
    waiting = [name for name in cells if set(solutions.TO_FILL_IN) <= tags_of(cells[name])]
    assert waiting == ["e1", "e1c", "e2", "e2c", "e2s", "e3", "e3c"]
    after = handout.solved_assignment("short")
    assert sources(after) == sources(before)
    assert [grade_marks(cell) for cell in after.cells] == [
        grade_marks(cell) for cell in before.cells
    ]


def tags_of(cell):
    return set(cell.metadata.get("tags", []))


def grade_marks(cell):
    return cell.metadata.get("nbgrader"), tags_of(cell)


def test_to_part_a_notebook_again_changes_nothing_but_what_its_solutions_changed(parted):
    place = solutions.where(parted)
    nb = read(place)
    own = new_markdown_cell("Only there.", id="own", metadata={"tags": [solutions.ONLY_HERE]})
    nb.cells.insert(3, own)
    nbformat.write(nb, place)
    before = read(parted), read(place)
    solutions.split("short")
    assert before == (read(parted), read(place))
    change_cell(place, "e1", "Twice x", "Two times x")
    solutions.split("short")
    assert "Two times x" in sources(read(parted))["e1"]


def test_links_lead_to_the_same_files_from_both_notebooks(short):
    nb = read(short)
    by_id = {cell.id: cell for cell in nb.cells}
    links = "[00](00_foundations.ipynb#a), [this](#b), [paper](https://a.example/b.md)"
    by_id["h2"].source += f" See {links}."
    by_id["e3a"].source = by_id["e3a"].source.replace("order.", "[order](../README.md).")
    nbformat.write(nb, short)
    kept = sources(read(solutions.split("short")))
    assert "(../00_foundations.ipynb#a), [this](#b), [paper](https://a.example/b.md)" in kept["h2"]
    assert "[order](../../README.md)" in kept["e3a"]
    assert "[order](../README.md)" in sources(solutions.solved(short))["e3a"]


def change_cell(path, name, old, new):
    nb = read(path)
    (cell,) = (cell for cell in nb.cells if cell.id == name)
    assert old in cell.source
    cell.source = cell.source.replace(old, new)
    nbformat.write(nb, path)


def drop_cell(path, name):
    nb = read(path)
    nb.cells = [cell for cell in nb.cells if cell.id != name]
    nbformat.write(nb, path)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda nb, place: change_cell(nb, "e1", "Twice x", "2 x"), "Cell e1 of 90_short.ipynb is"),
        (lambda nb, place: drop_cell(nb, "e2"), "has a cell e2 that 90_short.ipynb lacks"),
        (lambda nb, place: drop_cell(place, "e2"), "has no solution of cell e2 of 90_short.ipynb"),
        (lambda nb, place: place.unlink(), "There are no solutions of 90_short.ipynb here"),
    ],
    ids=["changed", "no-exercise", "no-solution", "none"],
)
def test_solutions_that_do_not_fit_are_an_error_that_names_the_cell(parted, spoil, said):
    spoil(parted, solutions.where(parted))
    with pytest.raises(CourseError, match=re.escape(said)):
        solutions.solved(parted)


def test_a_copy_of_a_notebook_of_the_project_may_leave_exercises_out_and_solve_others(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(tmp_path))
    nb = read(ROOT / "notebooks" / "01_moon.ipynb")
    drawn = next(cell for cell in nb.cells if "def loss_range(" in cell.source)
    drawn.source = "### BEGIN SOLUTION\nmine = 1\n### END SOLUTION"
    last = next(cell for cell in reversed(nb.cells) if set(solutions.TO_FILL_IN) <= tags_of(cell))
    nb.cells.remove(last)
    nbformat.write(nb, tmp_path / "01_moon.ipynb")
    found = sources(solutions.solved(tmp_path / "01_moon.ipynb"))
    assert found[drawn.id] == drawn.source and last.id not in found
    assert any("### BEGIN HIDDEN TESTS" in source for source in found.values())


@pytest.mark.parametrize("place", SOLVED, ids=lambda place: place.stem)
def test_every_notebook_has_its_solutions_apart_and_both_say_the_same(place):
    path = papers.path(place.stem)
    assert solutions.where(path) == place
    shown, kept = read(path), read(place)
    parts = solutions.in_two(solutions.solved(path), path, place, kept)
    assert [sources(nb) for nb in parts] == [sources(shown), sources(kept)]
    for cell in kept.cells:
        assert cell.cell_type != "code" or cell.execution_count, cell.source
        errors = [output for output in cell.get("outputs", []) if output.output_type == "error"]
        assert not errors, cell.source


def test_no_notebook_shows_a_solution_and_all_numbered_ones_have_some():
    assert {path.name for path in ASSIGNMENTS} <= {path.name for path in SOLVED}
    for path in papers.notebooks(extras=True):
        text = path.read_text(encoding="utf-8")
        assert not re.search("(BEGIN|END) (SOLUTION|HIDDEN)", text), path


@pytest.mark.course
def test_a_notebook_of_solutions_runs_by_itself(parted):
    from nbclient import NotebookClient

    patient = {"startup_timeout": 300, "iopub_timeout": 60}  # on a machine with much else to do
    nb = read(solutions.where(parted))
    NotebookClient(nb, kernel_name="python3", **patient).execute()
    outputs = [output.text for cell in nb.cells for output in cell.get("outputs", [])]
    assert outputs == ["2 cells executed: the exercises can begin.\n", "1.5\n", "it is b\n"]


def test_what_students_install_works_and_holds_no_solution(tmp_path):
    wheel = installation.students_wheel(tmp_path)
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
    subprocess.run([*command, tmp_path / "site", wheel], check=True, capture_output=True)
    notebooks = sorted((tmp_path / "site").rglob("*.ipynb"))
    assert len(notebooks) > len(ASSIGNMENTS)
    assert not [path for path in notebooks if "BEGIN SOLUTION" in path.read_text(encoding="utf-8")]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-m", "fednb_lab", "course", "release", "01"]
    result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 2 and "There are no solutions of 01_moon" in result.stderr


# --- what is handed in


def hand_in_empty(folder, *names):
    """Files without a cell, in a new folder."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    return folder


def test_names_of_files_are_neither_options_nor_formulas_and_links_are_not_followed(tmp_path):
    (tmp_path / "secret").write_text("of the teacher")
    folder = hand_in_empty(tmp_path / "in", "--help.ipynb", "=1+1.ipynb", "anna.ipynb")
    (folder / "folder").mkdir()
    for place in ("link.ipynb", "folder/90_short.ipynb"):
        (folder / place).symlink_to(tmp_path / "secret")
    by_student = submissions.submissions(folder, "90_short.ipynb")
    assert list(by_student) == ["_help", "_1_1", "anna", "folder", "link"]
    for student in ("folder", "link"):
        submission = by_student[student]
        assert submission.file is None
        assert submission.remarks == ["a link is not followed", "nothing was handed in"]


@pytest.mark.parametrize(
    "names",
    [
        ("anna.ipynb", "anna.txt"),
        ("anna.ipynb", "anna/90_short.ipynb"),
        ("ann a.ipynb", "ann+a.ipynb"),
        ("Anna.ipynb", "anna.ipynb"),  # one folder where letters' case does not count
        ("Anna_77_assignsubmission_file/a.ipynb", "Anna B_77_assignsubmission_file/a.ipynb"),
        ("bergben_9_1_a.ipynb", "bergben_9_2_a-1.ipynb"),
    ],
)
def test_names_that_would_be_one_students_are_refused_before_anything_is_graded(names, tmp_path):
    folder = hand_in_empty(tmp_path / "in", "carl.ipynb", *names)
    with pytest.raises(CourseError) as refused:
        submissions.submissions(folder, "90_short.ipynb")
    for name in names:
        assert name.partition("/")[0] in str(refused.value)
    assert "carl" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "name", "number"),
    [
        ("Anna Maria Berg_4711_assignsubmission_file_/a.ipynb", "Anna Maria Berg", "4711"),
        ("Anna_B_4711_assignsubmission_onlinetext/a.ipynb", "Anna_B", "4711"),
        ("berganna_4711_0815_90_short-1.ipynb", "berganna", "4711"),
        ("berganna_LATE_4711_0815_90_short.ipynb", "berganna", "4711"),
        ("anna.ipynb", "anna", "anna"),
        ("s0815@uni.example/90_short.ipynb", "s0815@uni.example", "s0815@uni.example"),
    ],
)
def test_names_and_numbers_of_learning_management_systems_are_found(given, name, number, tmp_path):
    folder = hand_in_empty(tmp_path / "in", given)
    (submission,) = submissions.submissions(folder, "90_short.ipynb").values()
    assert (submission.name, submission.id) == (name, number)


def test_what_systems_leave_in_folders_is_nobodys(tmp_path):
    folder = hand_in_empty(tmp_path / "in", ".DS_Store", "._anna.ipynb", "anna.ipynb", "._b.ipynb")
    assert len(submissions.submissions(folder, "90_short.ipynb")) == 2
    assert submissions.litter(folder) == [".DS_Store", "._anna.ipynb"]


def test_of_several_files_that_with_the_notebooks_name_is_graded_or_else_a_notebook(tmp_path):
    files = ("01.ipynb", "02.ipynb", "90_short.ipynb", "a.txt")
    folder = hand_in_empty(tmp_path / "in" / "anna", *files)
    submission = submissions.submissions(tmp_path / "in", "90_short.ipynb")["anna"]
    assert submission.file == folder / "90_short.ipynb" and not submission.remarks
    submission = submissions.submissions(tmp_path / "in", "91_other.ipynb")["anna"]
    assert submission.file == folder / "01.ipynb"
    assert submission.remarks == ["3 files were handed in; graded is 01.ipynb"]


def test_a_folder_without_submissions_is_an_error(tmp_path):
    with pytest.raises(CourseError, match="There is no submission"):
        submissions.submissions(tmp_path, "90_short.ipynb")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("I could not open the file.", "cannot be read as a notebook"),
        ("[1, 2]", "cannot be read as a notebook"),
        (NOTEBOOK % ("{}", "7"), "cannot be read as a notebook"),
        (NOTEBOOK % ("[]", "[]"), "cannot be read as a notebook"),
        (NOTEBOOK % ("{}", '[{"source": "1"}]'), "cannot be read as a notebook"),
        (NOTEBOOK % ('{"fednb": {"assignment": [1]}}', "[]"), "is the hand-out of [1], not"),
        ("[" * 10**6, "cannot be read as a notebook"),
        (" " * (assignment.LARGEST + 1), "a.ipynb is larger than 100 MB"),
    ],
)
def test_what_cannot_be_graded_says_why(text, said, short, tmp_path):
    (tmp_path / "a.ipynb").write_text(text)
    with pytest.raises(CourseError, match=re.escape(said)):
        submissions.merged_into_handout(tmp_path / "a.ipynb", handout.solved_assignment("short"))


def test_only_answers_and_own_cells_of_a_submission_get_into_the_hand_out(short, tmp_path):
    released = handout.solved_assignment("short")
    nb = new_notebook(cells=[nbformat.from_dict(cell) for cell in released.cells])
    by_name = {assignment.grade_id(cell): cell for cell in nb.cells}
    by_name["exercise-1"].source = "mine = 1"
    by_name["exercise-1"].metadata["tags"] = ["skip-execution"]
    nb.cells.insert(nb.cells.index(by_name["exercise-1-check"]), new_cell("own", "two = 2", "run"))
    by_name["exercise-1-check"].source = "pass"
    nb.cells.append(new_cell("text", "In words.", "text"))
    nbformat.write(nb, tmp_path / "anna.ipynb")
    before = [cell.source for cell in released.cells]
    merged = submissions.merged_into_handout(tmp_path / "anna.ipynb", released)
    first = before.index(CELLS["e1"])
    added = ["mine = 1", "two = 2", *before[first + 1 :], "In words."]
    assert [cell.source for cell in merged.cells] == before[:first] + added
    answer, own = merged.cells[first : first + 2]
    assert not answer.metadata["tags"] and not own.metadata


@pytest.fixture
def merged(short):
    """The hand-out as a course folder without nbgrader's files has it."""
    nb = handout.solved_assignment("short")
    for step in ("source", "release"):
        path = kernel.notebook_path(step, "90_short")
        path.parent.mkdir(parents=True)
        nbformat.write(nb, path)
    return grading.Handout.read("90_short")


LATE = ("CellTimeoutError", "it took too long")


@pytest.mark.parametrize(
    ("results", "patience", "is_final", "remark"),
    [
        ([{}], [1], True, None),
        ([{"exercise-1-check": LATE}], [1], True, "exercise-1-check: CellTimeoutError"),
        ([{"imports": LATE}, {}], [1, 3], True, None),
        ([{"imports": LATE}] * 2, [1, 3], False, "no points yet, as the"),
        (["Dead", {}], [1, 3], True, None),
        (["Dead", "Dead"], [1, 3], True, "executing it failed (Dead), so it scores zero"),
        (["Stopped: late"], [1], True, "executing it failed (Stopped: late), so it scores zero"),
    ],
    ids=["well", "own-slow", "slow", "twice-slow", "failed", "twice-failed", "stopped"],
)
def test_what_fails_by_itself_or_is_slow_is_tried_again(
    merged, short, monkeypatch, results, patience, is_final, remark
):
    waiting = list(results)
    tried = []

    def execute(nb, folder, number, limits):
        tried.append(limits.cell)
        result = waiting.pop(0)
        if isinstance(result, str):
            raise RuntimeError(result)
        outputs = []
        for cell in nb.cells:
            name, text = result.get(assignment.grade_id(cell), ("", ""))
            error = {"output_type": "error", "ename": name, "evalue": text, "traceback": []}
            outputs.append([error] * bool(name))
        return outputs

    monkeypatch.setattr(sandbox, "execute", execute)
    submission = submissions.Submission(short, [])
    executed = grading.execute(submission, merged, 1, grading.Limits(cell=60))
    assert tried == [60 * factor for factor in patience]
    assert executed.is_final == is_final
    assert (executed.nb is None) == bool(remark and "so it scores zero" in remark)
    assert len(executed.remarks) == (remark is not None)
    assert not remark or executed.remarks[0].startswith(remark)


@pytest.fixture
def nbgrader(monkeypatch):
    """Stands for nbgrader, which takes what it is given but for what is refused."""
    nbgrader = SimpleNamespace(refused=[], taken=[])  # refused: for each time, whether it fails

    def step(name, assignment, student, executed=None):
        if name != "autograde":
            return
        if nbgrader.refused and nbgrader.refused.pop(0):
            raise KeyError("in nbgrader")
        nbgrader.taken.append(executed["outputs"])

    monkeypatch.setattr(grading, "nbgrader_step", step)
    return nbgrader


def submitted():
    return read(kernel.notebook_path("submitted", "90_short", "anna"))


def test_what_nbgrader_cannot_take_is_left_out_outputs_first(merged, nbgrader):
    nb = merged.released
    outputs = [new_output("stream", text="much"), new_output("error", ename="A", evalue="b")]
    cell = next(cell for cell in nb.cells if assignment.is_check(cell))
    cell.outputs = outputs
    nbgrader.refused = [True]
    outcome = grading.record("anna", grading.Executed(nb, []), "90_short")
    assert outcome == (True, [])
    (taken,) = nbgrader.taken
    assert taken[nb.cells.index(cell)] == [outputs[1]]
    nbgrader.refused = [True, True]
    outcome = grading.record("anna", grading.Executed(nb, []), "90_short")
    assert outcome.is_graded and "nbgrader cannot take it (KeyError" in outcome.remarks[0]
    assert "Not graded." in submitted().cells[0].source


def test_a_machine_that_can_grade_nothing_costs_no_points(merged, nbgrader):
    nbgrader.refused = [True] * 3
    outcome = grading.record("anna", grading.Executed(merged.released, []), "90_short")
    assert not outcome.is_graded and "no points yet" in outcome.remarks[-1]


def test_a_page_of_feedback_says_why_nothing_was_graded(merged, nbgrader):
    outcome = grading.record("anna", grading.Executed(None, ["a <scan>"]), "90_short")
    assert outcome == (True, ["a <scan>"])
    assert submitted().cells[0].source == "> **Not graded.** a &lt;scan&gt;."


# --- the sandbox


def test_a_process_that_takes_too_long_is_ended_with_its_children():
    code = "import subprocess as s; p = s.Popen(['sleep', '600']); print(p.pid, flush=True)"
    code += "; p.wait()"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    child = psutil.Process(int(process.stdout.readline()))
    with process, pytest.raises(RuntimeError, match="Stopped: not finished after 1 s"):
        sandbox.watch(process, 1)
    assert process.returncode < 0
    wait_for(lambda: not is_alive(child.pid))


def test_a_sandbox_gets_the_students_number_and_none_of_our_variables(monkeypatch):
    monkeypatch.setenv("A_TOKEN", "s3cret")
    environment = sandbox.environment("/room", "/course/release/90_short", 5)
    assert environment["FEDNB_STUDENT_SEED"] == "5"
    assert "A_TOKEN" not in environment and environment["HOME"] == "/room"


def test_a_folder_that_is_no_control_group_limits_nothing_and_is_left_as_it_was(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(limits, "CGROUPS", tmp_path)
    with limits.control_group() as group:
        assert not group.joined and not group.is_out_of_memory()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("killed", [0, 3])
def test_a_control_group_knows_whether_memory_ran_out(tmp_path, killed):
    (tmp_path / "memory.events").write_text(f"low 0\nmax 7\noom {killed}\noom_kill {killed}\n")
    assert limits.ControlGroup(tmp_path).is_out_of_memory() == bool(killed)


# --- with nbgrader: half a minute


@pytest.fixture
def handed_out(short, capsys):
    assert main(["course", "release", "short"]) == 0
    assert "Hand out what is in" in capsys.readouterr().out
    return short.parents[1] / "course" / "release" / "90_short" / "90_short.ipynb"


def test_the_hand_out_holds_no_solution_and_check_says_what_is_wrong(handed_out, tmp_path, capsys):
    text = handed_out.read_text()
    assert not [secret for secret in SECRET if secret in text]
    assert text.count("raise NotImplementedError()") >= 3 and assignment.ANSWER in text
    mine = tmp_path / "mine" / "90_short.ipynb"
    wrong = "def mean(x, weights):\n    return np.mean(x)"
    change(handed_out, mine, exercise_1=RIGHT["exercise_1"], exercise_2=wrong)
    assert main(["course", "check", str(mine)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        *("exercise-1-check: passed", "exercise-2-check: AssertionError: "),
        *("exercise-3-check: not done yet", "exercise-3-answer: no answer yet"),
    ]
    nb = change(mine, mine, exercise_2_check="pass", exercise_3_answer="Because.")
    nb.cells = [cell for cell in nb.cells if assignment.grade_id(cell) != "exercise-1"]
    nbformat.write(nb, mine)
    assert main(["course", "check", str(mine)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "exercise-1: the cell is missing: put it back",
        "exercise-1-check: NameError: name 'double' is not defined",
        "exercise-2-check: the cell was changed, and will be put back for grading: "
        "put it back yourself first",
        *("exercise-3-check: not done yet", "exercise-3-answer: answered; a person grades it"),
    ]


def test_the_cell_above_the_exercises_executes_what_they_build_on(handed_out, monkeypatch, capsys):
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    cells = read(handed_out).cells
    place = next(i for i, cell in enumerate(cells) if cell.source.startswith("## 1 · Exercises"))
    assert 'prepare("90_short.ipynb")' in cells[place + 1].source
    assert "Exercise 1" in cells[place + 2].source
    course.prepare(handed_out)
    assert capsys.readouterr().out == "2 cells executed: the exercises can begin.\n"
    names = set(shell.user_ns)
    assert {"np", "METHODS"} <= names and not {"double", "prediction"} & names


# --- grading: minutes


def duplicate(nb, cells):
    first = nb.cells.index(cells["exercise-1"])
    nb.cells.insert(first, nbformat.from_dict(json.loads(json.dumps(nb.cells[first]))))


def delete(nb, cells):
    deleted = [cells[name] for name in ("exercise-1", "exercise-2-check", "imports")]
    nb.cells = [cell for cell in nb.cells if cell not in deleted]


def skip(nb, cells):
    cells["exercise-1-check"].metadata["tags"] = ["skip-execution"]


def disown(nb, cells):
    cells["exercise-1-check"].metadata["nbgrader"]["grade"] = False
    cells["exercise-2-check"].metadata["nbgrader"]["points"] = 300
    cells["exercise-2"].metadata["nbgrader"] = {"grade_id": "my-own", "solution": True}


def use_old_format(nb, cells):
    nb["nbformat_minor"] = 4
    for cell in nb.cells:
        del cell["id"]


def break_metadata(nb, cells):
    nb.metadata |= {"kernelspec": {"name": "../../none"}, "celltoolbar": 1, "widgets": {"x": 1}}
    for cell in nb.cells:
        marks = {"schema_version": 99, "grade_id": ["list"]}
        cell.metadata = {"nbgrader": marks, "tags": "text"}


def change_ids(nb, cells):
    for number, cell in enumerate(nb.cells):
        cell["id"] = f"mine-{number}"


def move(nb, cells):
    nb.cells.append(nb.cells.pop(nb.cells.index(cells["exercise-1"])))


def change_assignment(nb, cells):
    nb.metadata["fednb"].update(assignment="91_other")


def undo(nb, cells):
    for number in (1, 2, 3):
        cells[f"exercise-{number}"].source = assignment.STUB


def many_cells(nb, cells):
    nb.cells += [new_cell(f"own-{number}", "1") for number in range(3000)]


def many_parts(nb, cells):
    nb.metadata["mine"] = [{}] * 1_000_000


def big_output(nb, cells):
    cells["exercise-1"].outputs = [new_output("stream", text="x" * 50 * 10**6)]


def big_text(nb, cells):
    cells["exercise-3-answer"].source = "word [and] word\n" * (50 * 10**6 // 16)


# All else that course.yaml says of a submission. An edit is one of the functions above.
NO_CELLS = ("edit", "own_cell", "attachments", "late", "score", "remark")
EDITS = {
    edit.__name__: edit
    for edit in (
        *(duplicate, delete, skip, disown, use_old_format, break_metadata, change_ids, move),
        *(change_assignment, undo, many_cells, many_parts, big_output, big_text),
    )
}
# How the bytes of a file are not what one expects.
BYTES = {
    "other-bytes": lambda content: content.replace(b"BYTES", b"\xff\xe9"),
    "utf-16": lambda content: json.dumps(json.loads(content), ensure_ascii=False).encode("utf-16"),
    "with-a-mark": lambda content: b"\xef\xbb\xbf" + content,
}
EXECUTE = grading.execute
LATE_AFTER = 15  # seconds: enough for what is right, on a machine with much else to do
WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
DANGEROUS = ("spy", "upward", "gradebook", "kill", "forks", "children", "threads", "memory", "disk")


def hand_in(folder, handed_out, port):
    """Submissions of every kind; the scores that they must get, and what the remarks must say."""
    expected = {
        "nothing": (0, "nothing was handed in"),
        "link": (0, "a link is not followed; nothing was handed in"),
        "Ann_O_Neil": (6, ""),
        "as-nbgrader": (6, ""),
        "scan": (0, "cannot be read"),
        "bomb": (0, "cannot be read"),
    }
    names = {
        "GRADEBOOK": handed_out.parents[2] / "gradebook.db",
        "HANDED_IN": folder,
        "COURSE": handed_out.parents[2],
    }
    values = {name: repr(str(path)) for name, path in names.items()} | {"PORT": repr(port)}
    for student, given in GIVEN["submissions"].items():
        if student in DANGEROUS and not sandbox.is_available():
            continue  # it would do what it is made for
        sources = {name: given[name] for name in given if name not in NO_CELLS}
        for name, value in values.items():
            sources = {cell: text.replace(name, value) for cell, text in sources.items()}
        file = folder / f"{student}.ipynb"
        nb = change(handed_out, file, **RIGHT | sources)
        cells = {assignment.grade_id(cell): cell for cell in nb.cells}
        if "own_cell" in given:
            place = nb.cells.index(cells["exercise-1-check"])
            nb.cells.insert(place, new_cell("mine", given["own_cell"]))
        if "attachments" in given:
            cells["exercise-3-answer"]["attachments"] = given["attachments"]
        if "edit" in given:
            EDITS[given["edit"]](nb, cells)
        content = json.dumps(nb).encode()
        file.write_bytes(BYTES.get(student, bytes)(content))
        expected[re.sub(r"^\W+", "_", student)] = given["score"], given.get("remark", "")
    (folder / "scan.pdf").write_text("%PDF")
    (folder / "bomb.ipynb").write_text("[" * 10**6)
    (folder / ".DS_Store").write_text("a Mac's")
    (folder / "link.ipynb").symlink_to(names["GRADEBOOK"])
    (folder / "nothing").mkdir()
    change(handed_out, folder / "Ann O'Neil" / "90_short.ipynb", **RIGHT)
    change(handed_out, folder / "as-nbgrader" / "90_short" / "90_short.ipynb", **RIGHT)
    return expected


def set_limits(**seconds):
    """Set limits as a teacher does."""
    config = (assignment.TEMPLATES / "nbgrader_config.py").read_text()
    lines = "".join(f"c.{name.replace('_', '.')} = {value}\n" for name, value in seconds.items())
    kernel.FOLDER.mkdir(exist_ok=True)
    (kernel.FOLDER / "nbgrader_config.py").write_text(config + lines)


def execute_what_is_late(submission, handed_out, number, limits):
    """Execute a submission; if it meets the limit of a cell on purpose, then soon."""
    if GIVEN["submissions"].get(submission.name, {}).get("late"):
        limits = limits._replace(cell=LATE_AFTER)
    return EXECUTE(submission, handed_out, number, limits)


def table():
    read = pd.read_csv("course/90_short.csv", index_col="student")
    return read.fillna({"remarks": ""}).to_dict("index")


def contents(folder):
    """What is in a folder, links unfollowed."""
    return {
        path: path.is_symlink() or path.is_dir() or path.read_bytes() for path in folder.rglob("*")
    }


@pytest.mark.course
def test_hostile_submissions_change_no_other_ones_score_and_all_have_one(
    handed_out, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("A_TOKEN", "s3cret")
    monkeypatch.setattr(grading, "execute", execute_what_is_late)
    monkeypatch.setattr(kernel, "SECONDS", 900)  # for a page of 50 MB on a busy machine
    if sys.platform == "linux":
        assert sandbox.is_available(), "without namespaces the worst submissions are left out"
    assert psutil.virtual_memory().available > 9 * 2**30, "some submissions fill 9 GB of memory"
    folder = tmp_path / "handed in"
    grade = ["course", "grade", "short", str(folder), "--jobs", "2"]
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        expected = hand_in(folder, handed_out, server.getsockname()[1])
        before = contents(folder), contents(handed_out.parent), sorted(os.listdir(tmp_path))
        assert main(grade) == 0
    assert f"{len(expected)} submissions" in capsys.readouterr().out
    rows = table()
    scores = {student: row["score"] for student, row in rows.items()}
    assert scores == {student: score for student, (score, _) in expected.items()}
    feedback = tmp_path / "course" / "feedback"
    for student, (score, remark) in expected.items():
        remarks = rows[student]["remarks"]
        assert remark in remarks and (remark or not remarks), rows[student]
        page = (feedback / student / "90_short" / "90_short.html").read_text()
        assert "Exercise 1" in page and "<script>alert" not in page
        assert score or not remark or "check: " in remark or "Not graded." in page, student
    by_hand = {student for student, row in rows.items() if row["to_grade_by_hand"]}
    words = {name for name, given in GIVEN["submissions"].items() if "exercise_3_answer" in given}
    assert by_hand == words | {"big-text"}
    picture = (feedback / "picture" / "90_short" / "90_short.html").read_text()
    assert GIVEN["submissions"]["picture"]["attachments"]["it.png"]["image/png"] in picture
    assert rows["right"]["max_score"] == 10
    assert before == (contents(folder), contents(handed_out.parent), sorted(os.listdir(tmp_path)))
    graded = []

    def record(student, *_):
        graded.append(student)
        return grading.Outcome(True, [])

    monkeypatch.setattr(grading, "execute", lambda *_: grading.Executed(None, []))
    monkeypatch.setattr(grading, "record", record)
    assert main(grade) == 0 and not graded  # nothing has changed: only the table is written again
    source = tmp_path / "course" / "source" / "90_short" / "90_short.ipynb"
    source.write_text(source.read_text().replace("number = int(", "number = 2 * int("))
    # the hand-out is the same, but what grades it is not
    assert main(grade) == 0 and len(graded) == len(expected)
    with sqlite3.connect("course/gradebook.db") as book:
        book.execute("UPDATE grade SET auto_score = 0")
    assert main(grade) == 2
    assert "The gradebook has other points than were made for " in capsys.readouterr().err


@pytest.mark.course
def test_a_cell_of_the_hand_out_that_takes_too_long_costs_no_points(short, tmp_path):
    nb = read(short)
    late = "import os, time\n\nif 'FEDNB_STUDENT_SEED' in os.environ:\n    time.sleep(60)"
    nb.cells[2].source += f"\n{late}"
    nbformat.write(nb, short)
    change(course.release("short"), tmp_path / "in" / "anna.ipynb", **RIGHT)
    set_limits(Execute_timeout=2)
    grading.grade("short", tmp_path / "in")
    (row,) = table().values()
    assert math.isnan(row["score"])
    assert "no points yet, as the hand-out's own exported took too long" in row["remarks"]
    # the next call tries again
    assert not json.loads((kernel.FOLDER / "90_short.json").read_text())["anna"]["digest"]


@pytest.mark.course
def test_without_namespaces_limits_still_hold_and_it_is_said(
    handed_out, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(sandbox, "NAMESPACES", ["false"])
    monkeypatch.setattr(sandbox, "is_available", sandbox.is_available.__wrapped__)
    change(handed_out, tmp_path / "in" / "right.ipynb", **RIGHT)
    stubborn = RIGHT | {"exercise_1": "sum(range(10**13))"}
    change(handed_out, tmp_path / "in" / "stubborn.ipynb", **stubborn)
    set_limits(Execute_timeout=20, Sandboxed_seconds=600)
    grading.grade("short", tmp_path / "in")
    scores = {student: row["score"] for student, row in table().items()}
    assert scores == {"right": 6, "stubborn": 4}
    assert "There are no namespaces here" in capsys.readouterr().out


# --- every notebook: minutes


def solution_lines(source):
    """The lines of a cell that stand between the markers."""
    regions = re.findall(r"(?s)BEGIN SOLUTION(.*?)\n[^\n]*END SOLUTION", source)
    return {
        line.strip() for region in regions for line in region.splitlines() if re.search(r"\w", line)
    }


def seconds_of_processors():
    """What this process and those that it started have computed: it hangs on no other's work."""
    return sum(sum(resource.getrusage(who)[:2]) for who in WHO)


@pytest.mark.course
@every_notebook
def test_a_solved_submission_has_all_points_and_an_untouched_hand_out_is_checked_soon(
    path, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    set_limits(Execute_timeout=600, Sandboxed_seconds=3600)  # on a machine with much else to do
    source, released = handout.solved_assignment(path.stem), course.release(path.stem)
    handed_out = read(released)
    text = "\n".join(cell.source for cell in handed_out.cells)
    secret = set().union(*(solution_lines(cell.source) for cell in source.cells))
    for cell in source.cells:  # what stands elsewhere in the text is no secret
        secret -= {line.strip() for line in cell.source.splitlines()} - solution_lines(cell.source)
    assert len(secret) >= 3 and not secret & {line.strip() for line in text.splitlines()}
    assert not re.search("(BEGIN|END) (SOLUTION|HIDDEN)", text)
    for before, after in zip(source.cells, handed_out.cells, strict=True):
        if assignment.grade_id(before).startswith("exercise-"):
            assert not after.get("outputs")
        else:
            assert (before.source, before.get("outputs")) == (after.source, after.get("outputs"))
    sweep = f"sweeps/{path.stem}.yaml"
    assert (released.parent / sweep).read_bytes() == (path.parent / sweep).read_bytes()

    graded = {
        assignment.grade_id(cell): cell
        for cell in handed_out.cells
        if cell.metadata.get("nbgrader", {}).get("grade")
    }
    by_hand = {name for name, cell in graded.items() if cell.cell_type == "markdown"}
    begin = seconds_of_processors()
    told = course.check(released)  # as a student would, before anything is done
    assert seconds_of_processors() - begin < 120  # 20 s on an idle machine
    assert told == {name: "no answer yet" if name in by_hand else "not done yet" for name in graded}

    answers = [cell for cell in source.cells if cell.metadata.get("nbgrader", {}).get("solution")]
    mine = {
        assignment.grade_id(cell).replace("-", "_"): solved(cell.source) or "In words."
        for cell in answers
    }
    change(released, tmp_path / "in" / "solved.ipynb", **mine)
    (row,) = pd.read_csv(grading.grade(path.stem, tmp_path / "in")[0]).to_dict("records")
    points = {name: cell.metadata["nbgrader"]["points"] for name, cell in graded.items()}
    assert all(row[name] == points[name] for name in points if name not in by_hand), row
    assert row["to_grade_by_hand"] == bool(by_hand) and row["max_score"] == sum(points.values())
    assert pd.isna(row["remarks"]), "what exercises build on fails"


def test_a_students_notebook_takes_the_place_of_the_released_one(tmp_path):
    """Its export cells are what ``fednb.papers`` imports, in the project's tests, too."""
    nb = read(ROOT / "notebooks" / "01_moon.ipynb")
    mine = "def model_contrastive(*_, **__):\n    raise ValueError('by a student')"
    nb.cells.append(new_cell("mine", mine, "export"))
    nbformat.write(nb, tmp_path / "01_moon.ipynb")
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "tests/test_moon.py"]
    environment = os.environ | {"FEDNB_NOTEBOOKS": str(tmp_path)}
    result = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 1 and "by a student" in result.stdout
