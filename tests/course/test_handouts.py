"""Hand-outs of one short assignment, solutions apart from it, and what students install."""

import ast
import json
import re
from dataclasses import dataclass

import nbformat
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from short import CELLS, SECRET, read, tags_of

from fednb import ROOT, build, papers
from fednb.errors import CourseError, NotebookError
from fednb.exercises import draws, prepare
from fednb.papers import fedproc, moon
from fednb_lab import engine
from fednb_lab.cli import main
from fednb_lab.course import handout, notebooks, solutions

ASSIGNMENTS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
SOLVED = sorted((ROOT / "notebooks" / "solutions").glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", ASSIGNMENTS, ids=lambda path: path.stem)


# --- what a notebook says about its exercises


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("1 + 4 points", "5 points", "Exercise 3 has 1 number of points for 2 checks"),
        ("(easy, 5 minutes", "(very-easy, 5 minutes", "Exercise 1 begins with"),
        ("2 points)", "two points)", "Exercise 1 begins with"),
        ("**Exercise 3**", "**Exercise 2**", "There are two cells of Exercise 2"),
        ("assert mean(", "mean(", "with a line `# Check.`"),
        ("x, weights=weights)\n    ### END SOLUTION", "x)", "in cell e2 each BEGIN SOLUTION"),
        ("1 + 4 points", "1 + + 4 points", "Exercise 3 begins with"),
        ("**Exercise", "Exercise", "there is no exercise"),
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
    by_name = {notebooks.grade_id(cell): cell for cell in nb.cells}
    names = [name for name in by_name if name.startswith("exercise-")]
    assert " ".join(names).replace("exercise-", "") == "1 1-check 2 2-check 3 3-check 3-answer"
    check = by_name["exercise-2-check"]
    assert by_name["exercise-2"].source == CELLS["e2"]
    assert check.source == f"# Check. By hand.\n{CELLS['e2c']}" and not check.outputs
    assert by_name["exercise-3-answer"].source == CELLS["e3a"]
    assert nb.cells[-2].source == "## 2 · Summary\n\nDone."


JUMPS = """
harmed = {"goals": [-60, 60], "sure": np.array([0.3, 0.05]), "start": -10}
"""


@pytest.mark.parametrize(
    ("number", "attempt", "said"),
    [
        (4, "harmed = ...", "choose goals"),
        (4, JUMPS, "only in one of the two rounds"),
        (1, "def loss_range(k, temperature):\n    k", "`return` is missing"),
    ],
)
def test_a_check_of_moon_names_the_slip_before_what_follows_from_it(number, attempt, said):
    stub = {1: "def loss_range(", 4: "harmed = ..."}[number]
    (cell,) = (cell for cell in read(ASSIGNMENTS[1]).cells if stub in cell.source)
    checks = cell.source[cell.source.index("# Check.") :]
    (toy,) = (c for c in read(ASSIGNMENTS[1]).cells if "def on_the_circle(" in c.source)
    with pytest.raises(AssertionError, match=re.escape(said)):
        exec(f"{toy.source}\n{attempt}\n{checks}", {"np": np})


@pytest.mark.parametrize(
    ("paper", "begins", "body"),
    [
        (moon, "class WeightedMOON", "def loss(self, *_):\n        pass"),
        (fedproc, "def temperature_for", "pass"),
        (fedproc, "def gradient_by_hand", "pass"),
        (fedproc, "class FixedPrototypes", "pass"),
        (fedproc, "class OnSphere", "pass"),
    ],
)
def test_a_check_says_that_a_return_was_forgotten(paper, begins, body):
    cells = read(papers.path(paper.__name__.rpartition(".")[2])).cells
    place = next(i for i, cell in enumerate(cells) if f"\n{begins}" in f"\n{cell.source}")
    attempt = cells[place].source.replace("raise NotImplementedError()", body)
    if "# Check." not in attempt:
        attempt += f"\n{cells[place + 1].source}"
    names = {**vars(paper), "np": np, "torch": torch, "F": F, "build": build, "METHODS": {}}
    with pytest.raises(AssertionError, match="`return` is missing"):
        exec(attempt, names | {"seed": 0, "dataclass": dataclass, "PositiveFloat": float})


@pytest.fixture
def source(short):
    """The cells of nbgrader's source of the short assignment, by id."""
    return {cell.id: cell for cell in handout.solved_assignment("short").cells}


def test_what_is_executed_and_not_the_students_to_write_is_locked(source):
    skipped = [name for name in source if "skip-execution" in tags_of(source[name])]
    assert skipped == ["seen", "course-ready", "e2s", "last"]
    marks = {name: source[name].metadata["nbgrader"] for name in ("imports", "e1", "e1c")}
    assert [marks[name]["locked"] for name in marks] == [True, False, True]


def test_checks_and_answers_have_the_points_that_the_text_says(source):
    marks = [cell.metadata["nbgrader"] for cell in source.values() if "nbgrader" in cell.metadata]
    points = {"exercise-1-check": 2, "exercise-2-check": 3}
    points |= {"exercise-3-check": 1, "exercise-3-answer": 4}
    assert {mark["grade_id"]: mark["points"] for mark in marks if mark["grade"]} == points
    assert "3 exercises at the end, 10 points" in source["course-note"].source


def test_a_sweep_executes_what_the_checks_of_a_hand_out_leave_out(short):
    nbformat.write(handout.solved_assignment("short"), short)
    cells = engine.reduced("90_short").cells
    assert [cell.id for cell in cells] == ["imports", "exported", "seen"]


def test_hidden_inputs_depend_on_the_student_and_on_nothing_else(monkeypatch):
    def numbers(seed, purpose):
        monkeypatch.setenv("FEDNB_STUDENT_SEED", seed)
        return tuple(draws(purpose).integers(1000, size=4))

    assert numbers("1", "a") == numbers("1", "a")
    assert len({numbers("1", "a"), numbers("2", "a"), numbers("1", "b")}) == 3


def by_hand(*cells, **metadata):
    """The content of a notebook that somebody has typed."""
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": list(cells)}


EXERCISE = new_markdown_cell("**Exercise 1** (easy, 5 minutes, 1 points). X.")
HAND_MADE = {
    "empty": {},
    "no-cells": by_hand(),
    "tags": by_hand(EXERCISE | {"metadata": {"tags": [1]}}),
    "list": by_hand(fednb=[1]),
    "null": by_hand(fednb=None),
    "half": by_hand(fednb={"assignment": "x"}),
    "no-end": by_hand(EXERCISE, new_code_cell("### BEGIN SOLUTION\nx = 1")),
}


@pytest.mark.parametrize(
    ("step", "kind"),
    [("release", kind) for kind in HAND_MADE] + [("split", "no-end"), ("check", "list")],
)
def test_a_notebook_made_by_hand_is_one_sentence_with_its_name(step, kind, short, capsys):
    short.with_name("91_mine.ipynb").write_text(json.dumps(HAND_MADE[kind]))
    name = str(short.with_name("91_mine.ipynb")) if step == "check" else "91_mine"
    assert main(["course", step, name]) == 2
    said = capsys.readouterr().err
    assert "91_mine.ipynb" in said and "Traceback" not in said


def test_to_check_what_is_no_hand_out_says_how_to_get_one(short, capsys):
    assert main(["course", "check", str(ROOT / "notebooks" / "01_moon.ipynb")]) == 2
    assert "fednb course release 01_moon" in capsys.readouterr().err


def test_a_hand_out_that_was_renamed_says_which_name_it_needs(short):
    with pytest.raises(NotebookError, match=r"renamed: name it 01_moon\.ipynb again"):
        prepare("01_moon.ipynb")


def test_every_assert_of_every_exercise_has_words():
    bare = []
    for path in [*ASSIGNMENTS, *SOLVED]:
        for cell in read(path).cells:
            is_of_exercise = path in SOLVED or set(solutions.TO_FILL_IN) <= tags_of(cell)
            if cell.cell_type == "code" and is_of_exercise:
                for node in ast.walk(ast.parse(cell.source)):
                    if isinstance(node, ast.Assert) and node.msg is None:
                        bare.append((path.name, ast.unparse(node)))
    assert not bare


def test_what_cells_name_travels_with_a_hand_out_and_no_link_leads_elsewhere(short):
    nb = read(short)
    by_id = {cell.id: cell for cell in nb.cells}
    by_id["imports"].source += "\nfrom mine import x\nopen('cities.csv')\nopen('images/a.png')"
    links = "[m](mine.py), [00](00_foundations.ipynb#a), [b](#b), [p](https://a.example/p.md)"
    by_id["h2"].source += links
    by_id["seen"].outputs = [new_output("display_data", {"text/markdown": "[r](../R.md)"})]
    nbformat.write(nb, short)
    for name in ("mine.py", "cities.csv", "other.csv", "images/a.png", "solutions/s.csv"):
        (short.parent / name).parent.mkdir(exist_ok=True)
        (short.parent / name).write_text("x = 1")
    nb = handout.solved_assignment("short")
    files = ["cities.csv", "images/a.png", "mine.py", "STUDENTS.md"]
    assert nb.metadata["fednb"]["files"] == files
    cells = {cell.id: cell for cell in nb.cells}
    assert cells["h2"].source.endswith("[m](mine.py), 00, [b](#b), [p](https://a.example/p.md)")
    assert cells["seen"].outputs[0].data["text/markdown"] == "r"


def test_a_hand_out_comes_with_a_page_for_students(handed_out):
    text = (handed_out.parent / "STUDENTS.md").read_text(encoding="utf-8")
    (wheel,) = (handed_out.parents[2] / "students").glob("*.whl")
    assert f"pip install {wheel.name}" in text and "fednb course check 90_short.ipynb" in text


@every_notebook
def test_every_notebook_is_an_assignment_and_its_exercises_say_what_goes_wrong(path):
    nb = handout.solved_assignment(path.stem)
    names = [name for name in map(notebooks.grade_id, nb.cells) if name]
    assert len(set(names)) == len(names)
    files = nb.metadata["fednb"]["files"]
    for cell in nb.cells:
        assert {link[1] for link in solutions.FILE_LINK.findall(cell.source)} <= set(files)
    headings = [cell.source for cell in nb.cells if handout.EXERCISE.match(cell.source)]
    numbers = [int(handout.EXERCISE.match(text)[1]) for text in headings]
    assert numbers == list(range(1, len(numbers) + 1))
    for number, text in zip(numbers, headings, strict=True):
        (level,) = re.findall(r"\A\*\*Exercise \d+\*\* \((\w+),", text)
        assert level in {"easy", "medium", "predict", "research"}
        assert "*Hint: " in text and "A common mistake is " in text, text
        name = f"exercise-{number}-check"
        checks = [cell.source for cell in nb.cells if notebooks.grade_id(cell).startswith(name)]
        for check in checks:
            names_mistake = re.search(r'(?m)^\s*assert [^\n]*, \(?\s*f?"', check)
            assert names_mistake, check
            assert level == "predict" or "### BEGIN HIDDEN TESTS" in check, text
            last = ast.parse(check).body[-1]  # nbgrader takes the value of a last line for points
            assert not isinstance(last, ast.Expr) or isinstance(last.value, ast.Call), check


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
    assert not [secret for secret in SECRET if secret in text] and notebooks.PLACEHOLDER in text
    cells = {cell.id: cell for cell in nb.cells}
    assert cells["e1"].source.endswith(f"    {notebooks.STUB.splitlines()[-1]}")
    assert cells["e3"].source == "prediction = ..."
    assert cells["seen"].outputs and not cells["e2s"].outputs
    waiting = [name for name in cells if set(solutions.TO_FILL_IN) <= tags_of(cells[name])]
    assert waiting == ["e1", "e1c", "e2", "e2c", "e2s", "e3", "e3c"]
    after = handout.solved_assignment("short")
    assert sources(after) == sources(before)
    assert [grade_marks(cell) for cell in after.cells] == [
        grade_marks(cell) for cell in before.cells
    ]


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
        (lambda nb, place: change_cell(nb, "e1", "Twice x", "2 x"), "do not fit in cell e1:"),
        (lambda nb, place: drop_cell(nb, "e2"), "do not fit in cell e2:"),
        (lambda nb, place: drop_cell(place, "e2"), "do not fit in cell e2:"),
        (lambda nb, place: place.unlink(), "which are not here"),
    ],
    ids=["changed", "no-exercise", "no-solution", "none"],
)
def test_solutions_that_do_not_fit_are_an_error_that_names_the_cell(parted, spoil, said):
    spoil(parted, solutions.where(parted))
    with pytest.raises(CourseError, match=said):
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


def test_a_cell_that_exercises_use_and_grading_leaves_out_is_named(short):
    assert not handout.missing_tags("short")
    nb = read(short)
    next(cell for cell in nb.cells if cell.id == "imports").metadata["tags"] = []
    nbformat.write(nb, short)
    (told,) = handout.missing_tags("short")
    assert told.startswith("cell 2 defines np,") and "setup" in told


@every_notebook
def test_exercises_of_every_notebook_use_only_what_grading_executes(path):
    assert not handout.missing_tags(path.stem)
