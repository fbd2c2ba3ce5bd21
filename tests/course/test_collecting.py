"""What lies in a folder of submissions, by student."""

import json
import os
import zipfile
from copy import deepcopy

import pytest
from nbformat.v4 import new_code_cell

from fednb.errors import CourseError
from fednb_lab.course import collect, handout, notebooks


@pytest.fixture
def released(short):
    return handout.solved_assignment("short")


def put(folder, *names, content="{}"):
    """Files in a new folder."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def filled(released, source):
    """The text of a hand-out in which what is asked for is such a source."""
    nb = json.loads(json.dumps(released))
    for cell in nb["cells"]:
        if "BEGIN SOLUTION" in cell["source"]:
            cell["source"] = source if cell["cell_type"] == "code" else notebooks.PLACEHOLDER
    return json.dumps(nb)


def found(folder, released):
    return collect.collect(folder, released, folder.parent / "room", {})


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
def test_of_several_attempts_the_newest_counts(older_first, tmp_path, released):
    folder = put(tmp_path / "in", *older_first, content=filled(released, "mine = 1"))
    for when, name in enumerate(older_first):
        os.utime(folder / name, (when, when))
    (submission,) = found(folder, released).values()
    assert submission.entry.path == folder / older_first[1].split("/")[0]
    assert submission.remarks[0].startswith("2 notebooks: graded is ")


def test_an_untouched_hand_out_is_no_newer_attempt(tmp_path, released):
    folder = put(tmp_path / "in", "berg_9_1_a.ipynb", content=filled(released, "mine = 1"))
    put(folder, "berg_9_2_a.ipynb", content=filled(released, "raise NotImplementedError()"))
    (submission,) = found(folder, released).values()
    assert submission.entry.attempt == 1


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


def test_what_cannot_be_taken_for_submissions_is_a_sentence(tmp_path, monkeypatch, released):
    monkeypatch.setattr(collect, "UNPACKED", 100)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("anna.ipynb", "0" * 10**6)
    put(tmp_path, "damaged.zip", "file.txt", "in/readme.txt", "in/.DS_Store", "one/90_short.ipynb")
    for place, said in {
        "bomb.zip": r"bomb\.zip holds 1 files",
        "damaged.zip": "cannot be unpacked",
        "file.txt": "no folder, zip or notebook",
        "in": "There is no submission",
        "nowhere": "no folder",
        "one": "does not say whose it is: rename it",
    }.items():
        with pytest.raises(CourseError, match=said):
            found(tmp_path / place, released)


def test_what_is_nobodys_is_no_student_and_is_named(tmp_path, released, capsys):
    folder = put(tmp_path / "in", "readme.txt", "anna.ipynb", "anna.csv", "._anna.ipynb", "a.pdf")
    by_student = found(folder, released)
    assert set(by_student) == {"anna"} and set(by_student["anna"].files) == {"anna.csv"}
    said = capsys.readouterr().out
    assert "left out: a.pdf" in said and "left out: readme.txt" in said


def test_work_counts_before_an_untouched_hand_out_and_files_beside_it_go_along(tmp_path, released):
    folder = put(tmp_path / "in" / "anna", "report.pdf", content="x" * 6_000_000)
    stub = filled(released, "raise NotImplementedError()")
    put(folder, "90_short.ipynb", content=stub)
    own = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [new_code_cell("x = 1")]}
    put(folder, "new/mine.ipynb", content=json.dumps(own))
    put(folder, "new/src/helper.py")
    with zipfile.ZipFile(folder / "old.zip", "w") as archive:
        archive.writestr("work/90_short.ipynb", stub)
    submission = found(tmp_path / "in", released)["anna"]
    assert set(submission.files) == {"src/helper.py"}
    said, along, left = submission.remarks
    assert said.startswith("3 notebooks: graded is new/mine.ipynb, and not ")
    rest = said.partition("and not ")[2].split(", ")
    assert sorted(rest) == ["90_short.ipynb", "work/90_short.ipynb"]
    assert "helper.py" in along and "report.pdf" in left


@pytest.mark.parametrize(
    ("sources", "between", "whole"),
    [
        (["a = 1", "b = 2"], [], "a = 1\nb = 2"),
        (["def f():", "    return 1"], [], "def f():\n    return 1"),
        (["a = 1", "b = 2"], ["own = 3"], "a = 1\nb = 2"),
    ],
)
def test_a_cell_that_was_split_is_one_and_a_remark_names_it(sources, between, whole, released):
    nb = deepcopy(released)
    place = next(i for i, cell in enumerate(nb.cells) if cell.id == "e1")
    metadata = nb.cells[place].metadata
    pieces = [new_code_cell(source, metadata=metadata) for source in sources]
    nb.cells[place : place + 1] = [pieces[0], *map(new_code_cell, between), *pieces[1:]]
    merged, remarks = notebooks.merged(nb, released)
    place = next(i for i, cell in enumerate(merged.cells) if cell.id == "e1")
    assert merged.cells[place].source == whole
    own = merged.cells[place - len(between) : place]
    assert [cell.source for cell in own] == between
    assert remarks == [f"exercise-1 was split or copied: its {len(sources)} cells count as one"]


@pytest.mark.parametrize("stray", ["readme.txt", "submission_metadata.yml"])
def test_a_folder_around_all_is_no_student_even_with_a_stray_file_in_it(stray, tmp_path, released):
    names = ["anna/hw.ipynb", "ben/report.pdf", "eva.ipynb", stray]
    folder = put(tmp_path / "in", *(f"all/{name}" for name in names))
    assert set(found(folder, released)) == {"anna", "ben", "eva"}
    for names in (["hw/90_short.ipynb", "src/a.py"], ["90_short.ipynb", "90_short-Copy1.ipynb"]):
        folder = put(tmp_path / names[0], *(f"anna/{name}" for name in names))
        assert set(found(folder, released)) == {"anna"}
