"""What lies in a folder of submissions, by student."""

import json
import os
import zipfile

import nbformat
import pytest
from nbformat.v4 import new_code_cell

from fednb.errors import CourseError
from fednb_lab.course import collect, handout, merging
from fednb_lab.course.notebooks import ANSWER


@pytest.fixture
def released(short):
    return handout.solved_assignment("short")


def put(folder, *names, content="{}"):
    """Files in a new folder."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def found(folder, released, known=()):
    return collect.collect(folder, released, folder.parent / "room", dict(known), {})


@pytest.mark.parametrize(
    ("given", "student", "name", "number"),
    [
        ("Anna Berg_4711_assignsubmission_file_/a.ipynb", "Anna_Berg_4711", "Anna Berg", "4711"),
        ("berganna_LATE_4711_0815_90_short.ipynb", "berganna_4711", "berganna", "4711"),
        ("Björn Å.ipynb", "Björn_Å", "Björn Å", "Björn Å"),
        ("--help.ipynb", "_help", "--help", "--help"),
        ("=1+1.ipynb", "_1_1", "=1+1", "=1+1"),
    ],
)
def test_students_are_named_as_systems_name_them(given, student, name, number, tmp_path, released):
    folder = put(tmp_path / "in", given)
    ((found_student, submission),) = found(folder, released).items()
    assert (found_student, submission.entry.name, submission.entry.id) == (student, name, number)


def test_names_that_become_one_stay_two(tmp_path, released):
    by_student = found(put(tmp_path / "in", "ann a.ipynb", "ann+a.ipynb", "Ann_A.ipynb"), released)
    assert len(by_student) == 3
    changed = [student for student in by_student if "has become" in by_student[student].remarks[-1]]
    assert sorted(changed) == sorted(set(by_student) - {"Ann_A"})[-2:]


@pytest.mark.parametrize(
    "older_first",
    [
        ("Anna_77_assignsubmission_file/a.ipynb", "Anna B_77_assignsubmission_file/a.ipynb"),
        ("bergben_9_1_a.ipynb", "bergben_9_2_a-1.ipynb"),
        ("anna/90_short.ipynb", "anna.ipynb"),
    ],
)
def test_of_several_attempts_the_newest_counts(older_first, tmp_path, released, short):
    folder = tmp_path / "in"
    for when, name in enumerate(older_first):
        nb = change_released(released, folder / name)
        assert nb
        os.utime(folder / name, (when, when))
    ((student, submission),) = found(folder, released).items()
    assert submission.entry.path == folder / older_first[1].split("/")[0], student
    assert "2 attempts" in submission.remarks[0] and "the newest" in submission.remarks[0]


def change_released(released, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    nb = json.loads(json.dumps(released))
    for cell in nb["cells"]:
        if "BEGIN SOLUTION" in cell["source"]:
            cell["source"] = "mine = 1"
    path.write_text(json.dumps(nb))
    return nb


def test_a_zip_of_all_or_of_one_is_unpacked_and_leaves_its_folder_nowhere(tmp_path, released):
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as one:
        one.writestr("../../../evil.ipynb", "{}")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("submissions/Anna_1_assignsubmission_file/90_short.ipynb", "{}")
        archive.writestr("submissions/Ben_2_assignsubmission_file/report.pdf", "x")
        archive.write(tmp_path / "one.zip", "submissions/Eva_3_assignsubmission_file/work.zip")
    before = set(tmp_path.parent.glob("*"))
    by_student = found(tmp_path / "all.zip", released)
    assert set(by_student) == {"Anna_1", "Ben_2", "Eva_3"}
    assert by_student["Ben_2"].remarks == ["no notebook was handed in, but report.pdf"]
    assert by_student["Eva_3"].remarks[0].startswith("evil.ipynb ")
    assert before == set(tmp_path.parent.glob("*"))


def test_a_zip_that_is_too_large_is_a_sentence(tmp_path, monkeypatch, released):
    monkeypatch.setattr(collect, "UNPACKED", 100)
    with zipfile.ZipFile(tmp_path / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("anna.ipynb", "0" * 10**6)
    with pytest.raises(CourseError, match=r"all\.zip holds 1 files"):
        found(tmp_path / "all.zip", released)


def test_a_folder_without_submissions_is_an_error(tmp_path, released):
    with pytest.raises(CourseError, match="There is no submission"):
        found(put(tmp_path / "in", "readme.txt", ".DS_Store"), released)
    with pytest.raises(CourseError, match="not there"):
        found(tmp_path / "nowhere", released)


def test_what_is_nobodys_is_no_student_and_is_named(tmp_path, released, capsys):
    folder = put(tmp_path / "in", "readme.txt", "anna.ipynb", "anna.csv", "._anna.ipynb", "a.pdf")
    by_student = found(folder, released)
    assert set(by_student) == {"anna"} and set(by_student["anna"].helpers) == {"anna.csv"}
    said = capsys.readouterr().out
    assert "left out: a.pdf" in said and "left out: readme.txt" in said


def test_of_an_untouched_hand_out_and_work_in_ones_own_notebook_the_work_counts(tmp_path, released):
    folder = put(tmp_path / "in" / "anna", "report.pdf", content="x" * 6_000_000)
    (folder / "90_short.ipynb").write_text(json.dumps(stubs(released)))
    own = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}
    own["cells"].append({"cell_type": "code", "source": "x = 1", "metadata": {}, "outputs": []})
    (folder / "mine.ipynb").write_text(json.dumps(own))
    put(folder, "src/helper.py")
    submission = found(tmp_path / "in", released)["anna"]
    assert "src/helper.py" in submission.helpers
    assert "2 notebooks: graded is mine.ipynb, and not 90_short.ipynb" in submission.remarks


def test_notebooks_of_one_name_are_told_apart_by_their_folders(tmp_path, released):
    folder = put(tmp_path / "in", "anna/readme.txt")
    change_released(released, folder / "anna" / "new" / "90_short.ipynb")
    (folder / "anna" / "90_short.ipynb").write_text(json.dumps(stubs(released)))
    with zipfile.ZipFile(folder / "anna" / "old.zip", "w") as archive:
        archive.writestr("work/90_short.ipynb", json.dumps(stubs(released)))
    (said, *_) = found(folder, released)["anna"].remarks
    assert said.startswith("3 notebooks: graded is new/90_short.ipynb, and not ")
    left = said.partition("and not ")[2].split(", ")
    assert sorted(left) == ["90_short.ipynb", "old.zip/work/90_short.ipynb"]


def stubs(released):
    nb = json.loads(json.dumps(released))
    for cell in nb["cells"]:
        if "BEGIN SOLUTION" in cell["source"]:
            is_code = cell["cell_type"] == "code"
            cell["source"] = "raise NotImplementedError()" if is_code else ANSWER
    return nb


def pieces_of(released, *sources, between=()):
    """The cell of exercise 1 as JupyterLab splits it, perhaps with own cells between."""
    nb = nbformat.from_dict(json.loads(json.dumps(released)))
    place = next(i for i, cell in enumerate(nb.cells) if cell.id == "e1")
    pieces = []
    for number, source in enumerate(sources):
        piece = nbformat.from_dict(json.loads(json.dumps(nb.cells[place])))
        piece.source = source
        piece.id = f"e1-{number}"
        pieces.append(piece)
        if number < len(sources) - 1:
            pieces += [new_code_cell(text) for text in between]
    nb.cells[place : place + 1] = pieces
    return nb


@pytest.mark.parametrize(
    ("sources", "between", "whole", "before"),
    [
        (["a = 1", "b = 2"], [], "a = 1\nb = 2", []),
        (["def f():", "    return 1"], [], "def f():\n    return 1", []),
        (["a = 1", "%%time\nb = 2"], [], "%%time\nb = 2", ["a = 1"]),
        (["a = 1", "b = 2"], ["own = 3"], "b = 2", ["a = 1", "own = 3"]),
    ],
)
def test_a_cell_that_was_split_is_one_and_a_remark_names_it(
    sources, between, whole, before, released
):
    nb = pieces_of(released, *sources, between=between)
    merged, remarks = merging.merged(nb, released)
    place = next(i for i, cell in enumerate(merged.cells) if cell.id == "e1")
    assert merged.cells[place].source == whole
    own = merged.cells[place - len(before) : place]
    assert [cell.source for cell in own] == before
    assert remarks == [f"exercise-1 was split: its {len(sources)} cells count as one"]


@pytest.mark.parametrize("stray", ["readme.txt", "submission_metadata.yml"])
def test_a_folder_around_all_is_no_student_even_with_a_stray_file_in_it(stray, tmp_path, released):
    folder = put(tmp_path / "in", f"all/{stray}", "all/ben/report.pdf")
    for student in ("anna", "eva"):
        change_released(released, folder / "all" / student / "90_short.ipynb")
    assert set(found(folder, released)) == {"anna", "ben", "eva"}
    folder = put(tmp_path / "one", "anna/src/helper.py", "anna/data/cities.csv")
    change_released(released, folder / "anna" / "hw" / "90_short.ipynb")
    assert set(found(folder, released)) == {"anna"}
