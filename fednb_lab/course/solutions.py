"""Solutions in notebooks of their own, as a code host shows all cells of a notebook open.

The exercises of a notebook are empty stubs there. ``solutions/NAME.ipynb`` has the same cells,
known by their ids, with solutions, hidden tests and answers. A notebook may also have its
solutions in place, as one writes them; `split` then moves them.
"""

import copy
import os
import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from fednb import ROOT, papers
from fednb.errors import CourseError
from fednb_lab.course.notebooks import PLACEHOLDER, STUB, read_notebook, tags_of

ONLY_HERE = "solutions-only"  # tag of a cell of the solutions that has no partner
TO_FILL_IN = ["skip-execution", "nbval-skip"]  # tags of stubs and checks: they fail as they are

_EXERCISE = re.compile(r"(?m)^\*\*Exercise \d+\*\* \(")
_SECTION = re.compile(r"(?m)^## ")
_CODE = re.compile(r"(?ms)^([ \t]*)### BEGIN SOLUTION\n(.*?)^[ \t]*### END SOLUTION$")
_TEXT = re.compile(r"(?s)<!-- BEGIN SOLUTION -->.*?<!-- END SOLUTION -->")
_HIDDEN = re.compile(r"(?ms)^[ \t]*### BEGIN HIDDEN TESTS\n.*?^[ \t]*### END HIDDEN TESTS\n?")
# a link to a file of the project: its text, the path, a place in there
FILE_LINK = re.compile(r"\[([^\[\]]*)\]\(([^)\s:#]+\.(?:ipynb|md|yaml|py))(#[^)\s]*)?\)")
_VALUE = re.compile(r"(?:#[^\n]*\n)*(\w+) = [^\n]+\n")  # a solution that is no more than that

NO_EXERCISE = (
    'there is no exercise, which is a text cell with "**Exercise 1** (easy, 10 minutes, 2 points)."'
)
READY = 'from fednb.exercises import prepare\n\nprepare("{}")'


def where(notebook: Path) -> Path:
    """Return the notebook of solutions beside a notebook, or the project's; it may not exist."""
    beside = notebook.parent / "solutions" / notebook.name
    return beside if beside.exists() else ROOT / "notebooks" / "solutions" / notebook.name


def solved(notebook: Path, *, strict: bool = True) -> NotebookNode:
    """Return a notebook with the solutions of its exercises in place.

    If ``strict``, a `CourseError` says which cells of notebook and solutions do not fit. A notebook
    elsewhere may have fewer exercises than the project's of its name.
    """
    nb = read_notebook(notebook)
    _require_ends(nb, notebook.name)
    for cell in nb.cells:
        if _is_solved(cell):  # in place, and perhaps where a stub was
            _clear_tags(cell)
    if not any(map(_is_waiting, nb.cells)):
        return nb
    place = where(notebook)
    partners = _partners(place)
    if strict:
        _require_fit(nb, partners, notebook, place)
    for cell in nb.cells:
        if cell.id in partners and not _is_solved(cell):
            _put_in(moved(partners[cell.id], place.parent, notebook.parent), cell)
    return nb


def _require_ends(nb: NotebookNode, file: str) -> None:
    """Raise a `CourseError` if what begins in a cell does not end there: it would be shown."""
    for cell in nb.cells:
        for what in ("SOLUTION", "HIDDEN TESTS"):
            if cell.source.count(f"BEGIN {what}") != cell.source.count(f"END {what}"):
                raise CourseError(
                    f"{file}: in cell {cell.id} each BEGIN {what} needs an END {what} below it, and "
                    f"it begins with {cell.source[:40]!r}."
                )


def _is_solved(cell: NotebookNode) -> bool:
    return "BEGIN SOLUTION" in cell.source or "BEGIN HIDDEN TESTS" in cell.source


def _clear_tags(cell: NotebookNode) -> None:
    """Take the tags of what is to be filled in off a cell."""
    cell.metadata["tags"] = [tag for tag in tags_of(cell) if tag not in TO_FILL_IN]


def _is_waiting(cell: NotebookNode) -> bool:
    if cell.cell_type == "markdown":
        return PLACEHOLDER in cell.source
    return set(TO_FILL_IN) <= set(tags_of(cell))


def _partners(place: Path) -> dict[str, NotebookNode]:
    """The cells of solutions that take the place of a notebook's, by their common ids."""
    if not place.exists():
        return {}
    cells = read_notebook(place).cells
    return {cell.id: cell for cell in cells if ONLY_HERE not in tags_of(cell)}


def _require_fit(
    nb: NotebookNode, partners: dict[str, NotebookNode], notebook: Path, place: Path
) -> None:
    """Raise a `CourseError` unless each cell is what its solution looks like without the solution.

    And unless all that waits for a solution has one, and those beside the notebook have a place.
    """
    wrong = [
        cell.id
        for cell in nb.cells
        if cell.id in partners and not _is_solved(cell) and not _fits(cell, partners[cell.id])
    ]
    wrong += [cell.id for cell in nb.cells if _is_waiting(cell) and cell.id not in partners]
    if place.parent.parent == notebook.parent:
        wrong += sorted(set(partners) - {cell.id for cell in nb.cells})
    if wrong and not place.exists():
        raise CourseError(
            f"{notebook.name} asks for solutions, which are not here: hand-outs are made where "
            f"{place} is, and the students' installation has none."
        )
    if wrong:
        raise CourseError(
            f"{notebook.name} and its solutions, {place}, do not fit in cell {wrong[0]}: both have "
            "it, and the solution without its lines of code is what the notebook says. Write the "
            f"change into the solutions, and call `fednb course split {notebook.stem}`."
        )


def _fits(cell: NotebookNode, partner: NotebookNode) -> bool:
    if cell.cell_type == "markdown":
        return cell.source.count(PLACEHOLDER) == len(_TEXT.findall(partner.source))
    return cell.source == without_solution(partner)


def moved(cell: NotebookNode, origin: Path, folder: Path) -> NotebookNode:
    """Copy a cell whose links, if it is a text, lead from another folder to the same files."""

    def link(found: re.Match[str]) -> str:
        target = Path(os.path.relpath(origin / found[2], folder)).as_posix()
        return f"[{found[1]}]({target}{found[3] or ''})"

    cell = copy.deepcopy(cell)
    if cell.cell_type == "markdown":
        cell.source = FILE_LINK.sub(link, cell.source)
    return cell


def _put_in(partner: NotebookNode, cell: NotebookNode) -> None:
    """Give a cell the solution and, if it is code, the outputs of its partner."""
    if cell.cell_type == "markdown":
        for answer in _TEXT.findall(partner.source):
            cell.source = cell.source.replace(PLACEHOLDER, answer, 1)
        return
    cell.source = partner.source
    cell.outputs = partner.outputs
    cell.execution_count = partner.execution_count
    cell.metadata = partner.metadata


def without_solution(cell: NotebookNode) -> str:
    """Return what a cell of an exercise says without its solutions and hidden tests."""
    if cell.cell_type == "markdown":
        return _TEXT.sub(PLACEHOLDER, cell.source)
    return _CODE.sub(_stub, _HIDDEN.sub("", cell.source)).strip()


def _stub(found: re.Match[str]) -> str:
    indent, solution = found.groups()
    value = _VALUE.fullmatch(solution)
    if value:
        return f"{indent}{value[1]} = ..."
    return "\n".join(indent + line for line in STUB.splitlines())


def split(name: str) -> Path:
    """Move the solutions of a notebook into one of their own, and return its path.

    Solutions that are there already are kept, and their stubs are made anew.
    """
    notebook = papers.path(name)
    place = where(notebook)
    if ROOT not in notebook.resolve().parents:
        place = notebook.parent / "solutions" / notebook.name
    before = read_notebook(place) if place.exists() else None
    if not any(_EXERCISE.search(cell.source) for cell in read_notebook(notebook).cells):
        raise CourseError(f"{notebook.name}: {NO_EXERCISE}")
    nb, solutions = in_two(solved(notebook, strict=False), notebook, place, before)
    place.parent.mkdir(exist_ok=True)
    nbformat.write(solutions, place)
    nbformat.write(nb, notebook)
    return place


def in_two(
    nb: NotebookNode, notebook: Path, place: Path, before: NotebookNode | None
) -> tuple[NotebookNode, NotebookNode]:
    """Split a solved notebook into one without its solutions, and the notebook of these.

    The cells that only the solutions had ``before`` stay behind those that they stood behind.
    """
    ready = new_code_cell(READY.format(notebook.stem), metadata={"tags": [ONLY_HERE]})
    own = _only_here(before) if before else {"": [ready]}
    cells = own.pop("", [])
    is_inside = False
    for cell in nb.cells:
        piece = cell.source if is_inside else ""
        if cell.cell_type == "markdown":
            piece, is_inside = _of_exercises(cell.source, is_inside)
        if piece:
            partner = NotebookNode({**cell, "source": piece})
            cells.append(moved(partner, notebook.parent, place.parent))
            cells[-1].metadata.pop("jupyter", None)
            cells += own.pop(cell.id, [])
            _empty(cell)
    return nb, new_notebook(cells=cells, metadata={**nb.metadata, "orphan": True})


def _only_here(solutions: NotebookNode) -> dict[str, list[NotebookNode]]:
    """The cells without a partner, by the id of the last one above that has one."""
    above = ""
    cells: dict[str, list[NotebookNode]] = {}
    for cell in solutions.cells:
        if ONLY_HERE in tags_of(cell):
            cells.setdefault(above, []).append(cell)
        else:
            above = cell.id
    return cells


def _of_exercises(text: str, is_inside: bool) -> tuple[str, bool]:
    """The part of a text that is of exercises, and whether the next cell is."""
    if not is_inside:
        begin = _EXERCISE.search(text)
        if not begin:
            return "", False
        text = text[begin.start() :]
    pieces = _SECTION.split(text, maxsplit=1)
    return pieces[0].strip(), len(pieces) == 1


def _empty(cell: NotebookNode) -> None:
    """Make a stub of a cell of an exercise, in place."""
    cell.source = without_solution(cell)
    cell.metadata.pop("jupyter", None)
    if cell.cell_type == "code":
        _clear_tags(cell)
        cell.metadata["tags"] += TO_FILL_IN
        cell.outputs = []
        cell.execution_count = None
