"""A submission merged into the hand-out: a student's answers and own cells, and nothing else of it."""

import re
from collections import defaultdict
from copy import deepcopy
from urllib.parse import unquote

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from fednb_lab.course.notebooks import grade_id, is_unanswered, marks_of

LONGEST = 100_000  # characters of an answer
ATTACHMENT = re.compile(r"attachment:([^)\s\"'>]+)")


def names_of(nb: NotebookNode, released: NotebookNode) -> list[str]:
    """Return for each cell the grade id of the hand-out's cell that it is, or "".

    Cells are known by their grade id, or by their id if the metadata got lost.
    """
    kinds = {grade_id(cell): cell.cell_type for cell in released.cells if grade_id(cell)}
    id_to_name = {cell.id: grade_id(cell) for cell in released.cells if grade_id(cell)}
    names = []
    for cell in nb.cells:
        name = grade_id(cell)
        if name not in kinds:
            name = id_to_name.get(cell.get("id", ""), "")
        names.append(name if kinds.get(name) == cell.cell_type else "")
    return names


def merged(nb: NotebookNode, released: NotebookNode) -> tuple[NotebookNode, list[str]]:
    """Return the hand-out with a submission's answers and own cells in it, and remarks.

    Nothing else is taken over: tags and metadata can disarm a check. The pieces of a cell that was
    split, and its copies, count as one. It is this notebook that is executed.
    """
    remarks: list[str] = []
    names = names_of(nb, released)
    asked = [grade_id(cell) for cell in released.cells if marks_of(cell).get("solution")]
    answers: dict[str, NotebookNode] = {}
    own: set[int] = set()  # places of cells of a name that are not the answer
    for name in asked:
        if name in names:
            answers[name] = _answer(nb, name, names, own, remarks)
    unnamed = {cell.source for cell in released.cells if not grade_id(cell)}
    before: dict[str, list[NotebookNode]] = defaultdict(list)  # own cells, by what follows
    waiting: list[NotebookNode] = []
    for place, (name, cell) in enumerate(zip(names, nb.cells, strict=True)):
        if name and place not in own:
            before[name] += waiting
            waiting = []
        elif name or cell.source not in unnamed:
            new = new_code_cell() if cell.cell_type == "code" else new_markdown_cell()
            _take_over(cell, new, remarks)
            waiting.append(new)
    if asked and not answers:
        remarks.append(
            "none of its cells is the hand-out's: was the work pasted into a new notebook? Its "
            "cells are executed before the first check"
        )
        before[asked[0]] += waiting
        waiting = []
    cells = []
    for cell in deepcopy(released.cells):
        name = grade_id(cell)
        if name in answers:
            _take_over(answers[name], cell, remarks)
        elif name in asked and cell.cell_type == "code":
            cell.source = ""  # the student's own cells may have what it asks for
        cells += [*before.pop(name, []), cell]
    return NotebookNode({**deepcopy(released), "cells": cells + waiting}), remarks


def _answer(
    nb: NotebookNode,
    name: str,
    names: list[str],
    own: set[int],
    remarks: list[str],
) -> NotebookNode:
    """Return the one cell that a student's cells of a name make; some may become ``own``."""
    places = [place for place, other in enumerate(names) if other == name]
    answered = [place for place in places if not is_unanswered(nb.cells[place])] or places[-1:]
    pieces = [nb.cells[place] for place in answered]
    if len(answered) > 1:
        remarks.append(f"{name} was split: its {len(answered)} cells count as one")
    elif len(places) > 1:
        remarks.append(f"{name} is there {len(places)} times: the one with an answer counts")
    is_code = pieces[0].cell_type == "code"
    are_neighbours = answered[-1] - answered[0] == len(answered) - 1
    has_magic = any(piece.source.lstrip().startswith("%%") for piece in pieces[1:])
    if is_code and (has_magic or not are_neighbours):
        # as they cannot be one cell, the last one is graded after the others
        own.update(answered[:-1])
        return pieces[-1]
    whole = NotebookNode(pieces[0])
    whole.source = ("\n" if is_code else "\n\n").join(piece.source for piece in pieces)
    for piece in pieces[1:]:
        if "attachments" in piece:
            whole.attachments = {**whole.get("attachments", {}), **piece.attachments}
    return whole


def _take_over(student_cell: NotebookNode, cell: NotebookNode, remarks: list[str]) -> None:
    """Give ``cell`` the student's source, and pictures if it is a text."""
    cell.source = student_cell.source
    if len(cell.source) > LONGEST:
        remarks.append(f"{grade_id(cell) or 'a cell'} was cut after {LONGEST} characters")
        cell.source = cell.source[:LONGEST]
    if cell.cell_type != "markdown":
        return
    pictures = dict(student_cell.get("attachments", {}))
    for name in set(ATTACHMENT.findall(cell.source)) - set(pictures):
        if unquote(name) in pictures:
            pictures[name] = pictures[unquote(name)]
        else:  # a page with a picture that is not there cannot be made
            cell.source = cell.source.replace(f"attachment:{name}", f"missing-{name}")
    if pictures:
        cell.attachments = pictures


def changed(nb: NotebookNode, handout: NotebookNode) -> dict[str, str]:
    """Return what is missing or was changed, by grade id."""
    there = names_of(nb, handout)
    problems = {}
    for cell in handout.cells:
        name = grade_id(cell)
        given = [one.source for one, own in zip(nb.cells, there, strict=True) if own == name]
        if name and not given:
            problems[name] = "the cell is missing: put it back"
        elif marks_of(cell).get("locked") and any(source != cell.source for source in given):
            problems[name] = (
                "the cell was changed, and will be put back for grading: put it back yourself first"
            )
    return problems
