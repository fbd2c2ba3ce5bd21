"""Hand-outs from the notebooks' own cells, by what these say (TEACHING.md, Write an exercise)."""

import copy
import re
import shutil
import symtable
from collections import Counter
from contextlib import suppress
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from fednb import papers, sources
from fednb.errors import CourseError
from fednb.exercises import SETUP_TAGS
from fednb_lab.course import solutions
from fednb_lab.course.nbgrading import STUDENTS, grades, nbgrader_step, notebook_path
from fednb_lab.course.notebooks import (
    EXERCISE,
    EXERCISE_ID,
    TEMPLATES,
    counted,
    grade_id,
    pack,
    read_notebook,
    tags_of,
    title_of,
)
from fednb_lab.course.wheel import students_wheel

SOLUTIONS_APART = re.compile(r" The \[solutions\]\([^)]*\) stand apart\.")  # not for students
BEGUN = re.compile(r"(?m)^\*\*(Exercise \d+)\*\* \([^\n]{0,40}")
CHECK_BEGINS = r"# Check\."
TEXT_BEGINS = r"\*\*Exercise \d+\*\* \(|<!-- BEGIN SOLUTION -->|## "
ASSERT = re.compile(r"(?m)^\s*assert ")
NOT_HANDED_OUT = {"solutions", "sweeps", "extras", "pictures", "course", "results"}
FOR_STUDENTS = "STUDENTS.md"  # beside a hand-out
RUN_FIRST = "# Run this cell first: it executes the cells above on which the exercises build.\n"


def split_cells(nb: NotebookNode) -> None:
    """Give each heading, solution, check and answer of an exercise a cell of its own."""
    cells = []
    for cell in nb.cells:
        is_of_exercise = "END SOLUTION" in cell.source or EXERCISE.search(cell.source)
        begins = CHECK_BEGINS if cell.cell_type == "code" else TEXT_BEGINS
        pieces = re.split(rf"(?m)^(?={begins})", cell.source) if is_of_exercise else [cell.source]
        for number, piece in enumerate(piece.strip() for piece in pieces if piece.strip()):
            name = cell.id if number == 0 else f"{cell.id}-{number}"
            cells.append(NotebookNode({**copy.deepcopy(cell), "id": name, "source": piece}))
    nb.cells = cells


def mark_exercises(nb: NotebookNode) -> dict[int, list[int]]:
    """Mark what is asked for and graded in a solved notebook whose cells are split.

    Such cells are ``exercise-3``, ``exercise-3-check``, a second one ``exercise-3-check-2``.
    Returns the points by exercise. A `CourseError` says what is wrong with one.
    """
    by_number: dict[int, list[int]] = {}
    for number, points, cells in _exercises(nb):
        if number in by_number:
            raise CourseError(f"There are two cells of Exercise {number}: renumber one.")
        by_number[number] = points
        kinds: Counter[str] = Counter()
        for cell in cells:
            kind = _kind(cell, kinds["solution"] > 0)
            if not kind:
                continue
            kinds[kind] += 1
            name = f"exercise-{number}" if kind == "solution" else f"exercise-{number}-{kind}"
            num_graded = kinds["check"] + kinds["answer"]
            mark(
                cell,
                name if kinds[kind] == 1 else f"{name}-{kinds[kind]}",
                points=None if kind == "solution" else points[:num_graded][-1],
                solution=kind != "check",
            )
            cell.metadata.pop("jupyter", None)  # what the solved notebook folds away
            if cell.cell_type == "code":
                cell.outputs = []
                cell.execution_count = None
        num_graded = kinds["check"] + kinds["answer"]
        if not kinds["solution"] + kinds["answer"]:
            raise CourseError(
                f"Exercise {number} has no solution: put a line `### BEGIN SOLUTION` above what "
                "students are to write, and `### END SOLUTION` below it."
            )
        if num_graded != len(points):
            raise CourseError(
                f"Exercise {number} has {counted(len(points), 'number')} of points for {num_graded} "
                "checks and answers: a check is a code cell below the solution with an assert, or "
                "begins in the solution's cell with a line `# Check.`"
            )
    if not by_number:
        raise CourseError(solutions.NO_EXERCISE)
    return by_number


def _exercises(nb: NotebookNode) -> list[tuple[int, list[int], list[NotebookNode]]]:
    """Return number, points and cells of each exercise, which ends where a section begins."""
    found: list[tuple[int, list[int], list[NotebookNode]]] = []
    is_inside = False
    for cell in nb.cells:
        text = cell.source if cell.cell_type == "markdown" else ""
        heading = EXERCISE.match(text)
        begun = BEGUN.search(text)
        if heading:
            found.append((int(heading[1]), [int(word) for word in heading[2].split("+")], []))
            is_inside = True
        elif begun:
            raise CourseError(
                f"{begun[1]} begins with {begun[0]!r}: write a level in one word, a time and numbers "
                f'of points, such as "**{begun[1]}** (easy, 10 minutes, 2 points)." or "1 + 2 points"'
            )
        elif text.startswith("## "):
            is_inside = False
        if is_inside:
            found[-1][2].append(cell)
    return found


def _kind(cell: NotebookNode, follows_solution: bool) -> str:
    """Return what a cell of an exercise is: solution (code), its check, answer (words), or ""."""
    if "BEGIN SOLUTION" in cell.source:  # nbgrader complains of other spellings
        return "answer" if cell.cell_type == "markdown" else "solution"
    is_check = cell.cell_type == "code" and ASSERT.search(cell.source)
    return "check" if follows_solution and is_check else ""


def solved_assignment(name: str) -> NotebookNode:
    """Make nbgrader's source of an assignment: the solved, marked notebook, and a note on top."""
    path = papers.path(name)
    nb = solutions.solved(path)
    split_cells(nb)
    try:
        points = mark_exercises(nb)
    except CourseError as error:
        raise CourseError(f"{path.name}: {error}") from error
    first = next(i for i, cell in enumerate(nb.cells) if EXERCISE.match(cell.source))
    nb.cells.insert(
        first, new_code_cell(RUN_FIRST + solutions.READY.format(path.name), id="course-ready")
    )
    files = [file.relative_to(path.parent).as_posix() for file in data_files(path, nb)]
    if (path.parent / "sweeps" / f"{path.stem}.yaml").exists():
        files.append(f"sweeps/{path.stem}.yaml")
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            cell.source = _unlink(cell.source, files)
        elif "nbgrader" not in cell.metadata:
            _mark_other(cell)
        for output in cell.get("outputs", []):
            text = output.get("data", {}).get("text/markdown")
            if text:
                output.data["text/markdown"] = _unlink("".join(text), files)
    nb.metadata["fednb"] = {"assignment": path.stem, "files": [*files, FOR_STUDENTS]}
    note = (TEMPLATES / "note.md").read_text(encoding="utf-8")
    note = note.format(
        assignment=path.stem,
        file=path.name,
        exercises=counted(len(points), "exercise"),
        points=sum(map(sum, points.values())),
    )
    nb.cells.insert(0, new_markdown_cell(note, id="course-note"))
    return nb


def _unlink(text: str, files: list[str]) -> str:
    """Leave only the text of links to what does not come with the hand-out."""
    text = SOLUTIONS_APART.sub("", text)
    return solutions.FILE_LINK.sub(lambda link: link[0] if link[2] in files else link[1], text)


def _mark_other(cell: NotebookNode) -> None:
    """Lock a code cell that exercises build on; any other is not executed for grading."""
    if SETUP_TAGS & set(tags_of(cell)):
        mark(cell, cell.id)
    else:
        cell.metadata["tags"] = [*tags_of(cell), "skip-execution"]  # nbclient heeds it


def mark(
    cell: NotebookNode, name: str, *, points: int | None = None, solution: bool = False
) -> None:
    """Give a cell nbgrader's marks: ``points`` if it is graded, ``solution`` if students write it.

    Whatever students do not write is locked: it is put back if it was changed.
    """
    marks = {
        "schema_version": 3,
        "grade_id": name,
        "cell_type": cell.cell_type,
        "grade": points is not None,
        "solution": solution,
        "locked": not solution,
        "task": False,
    }
    if points is not None:
        marks["points"] = points
    cell.metadata["nbgrader"] = marks


def release(name: str) -> Path:
    """Write the students' version of a notebook into the course folder, and return its path.

    Files that it names and its sweep file, a model for the students' own, lie beside it. The
    students' installation, which has the notebooks that it imports from, is in ``students``.
    """
    nb = solved_assignment(name)
    original = papers.path(name)
    source = notebook_path("source", original.stem)
    released = notebook_path("release", original.stem)
    if source.exists():
        _require_same_cells(nb, read_notebook(source), original.stem)
    source.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, source)
    try:
        nbgrader_step("generate_assignment", original.stem)
    except CourseError as error:
        raise CourseError(f"{original.name}: {error}") from error
    handed_out = read_notebook(released)
    handed_out.metadata["fednb"]["handout"] = pack(handed_out)
    nbformat.write(handed_out, released)
    wheel = students_wheel(STUDENTS)
    page = (TEMPLATES / "students.md").read_text(encoding="utf-8")
    page = page.format(file=original.name, wheel=wheel.name)
    (released.parent / FOR_STUDENTS).write_text(page, encoding="utf-8")
    *files, _ = nb.metadata["fednb"]["files"]
    for file in files:
        target = released.parent / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(original.parent / file, target)
    return released


def missing_tags(name: str) -> list[str]:
    """Tell of cells that define names which exercises use, and which grading does not execute."""
    nb = solved_assignment(name)
    original = read_notebook(papers.path(name)).cells
    numbers = {cell.id: number for number, cell in enumerate(original, start=1)}
    executed = [cell for cell in nb.cells if "skip-execution" not in tags_of(cell)]
    exercises = [cell for cell in executed if EXERCISE_ID.fullmatch(grade_id(cell))]
    used = set().union(*(_names(cell)[0] for cell in exercises))
    defined = set().union(*(_names(cell)[1] for cell in executed))
    told = []
    for cell in nb.cells:
        lacking = (used - defined) & _names(cell)[1]
        if cell not in executed and lacking:
            told.append(
                f"cell {numbers.get(cell.id, cell.id)} defines {', '.join(sorted(lacking))}, which "
                f"exercises use, but grading does not execute it: tag it {' or '.join(SETUP_TAGS)}"
            )
    return told


def _names(cell: NotebookNode) -> tuple[set[str], set[str]]:
    """Return the global names that a code cell uses, and those that it gives a value to."""
    used: set[str] = set()
    given: set[str] = set()
    if cell.cell_type != "code":
        return used, given
    with suppress(SyntaxError):
        source = re.sub(r"(?m)^\s*[%!].*", "", cell.source)
        table = symtable.symtable(source, "cell", "exec")
        used = set(sources.mentioned(table))
        symbols = table.get_symbols()
        given = {one.get_name() for one in symbols if one.is_assigned() or one.is_imported()}
    return used, given


def _require_same_cells(nb: NotebookNode, before: NotebookNode, assignment: str) -> None:
    """Raise a `CourseError` if exercises come or go after some were graded: nbgrader cannot do that.

    It would notice, but only when the hand-out before is gone.
    """
    changed = {grade_id(cell) for cell in nb.cells} ^ {grade_id(cell) for cell in before.cells}
    if changed and len(grades(assignment)):
        names = ", ".join(sorted(map(title_of, changed)))
        raise CourseError(
            f"Submissions of {assignment} were graded already, so no cell can come or go ({names}): "
            "put that back, give the notebook another name, or release it in another folder."
        )


def data_files(notebook: Path, nb: NotebookNode) -> list[Path]:
    """Return the files beside a notebook that its cells name: data, pictures, modules.

    A folder that is named goes with all that is in it.
    """
    text = "\n".join(cell.source for cell in nb.cells)
    found = []
    for place in sorted(notebook.parent.iterdir()):
        name = re.escape(place.stem)
        is_module = place.suffix == ".py" and re.search(rf"(?m)^\s*(import|from) {name}\b", text)
        is_named = re.search(rf"[\"'(/]{re.escape(place.name)}[\"')/]", text)
        is_apart = place.name in NOT_HANDED_OUT or place.name.startswith(".")
        if is_apart or place.suffix == ".ipynb" or not (is_module or is_named):
            continue
        inside = sorted(place.rglob("*")) if place.is_dir() else [place]
        found += [file for file in inside if file.is_file() and "__pycache__" not in file.parts]
    return found
