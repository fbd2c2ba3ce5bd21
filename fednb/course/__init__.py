"""A course with these notebooks: hand-outs without solutions, and the checks that students run. nbgrader does the work.

What an assignment is made of says `fednb.assignments`; what becomes of what is handed in, `fednb.grading`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import numpy as np

from fednb import ROOT, papers
from fednb.course.assignments import BUILT_ON, KINDS, CourseError, ids, read, source

FOLDER = ROOT / "course"  # nbgrader's course directory: source, release, submitted, autograded, feedback, gradebook
SEED = "FEDNB_STUDENT_SEED"
STUB = "# YOUR CODE HERE\nraise NotImplementedError()"
ANSWER = "*Your answer here.*"


# --- what hidden tests use --------------------------------------------------------------------------------------------


def draws(purpose: str) -> np.random.Generator:
    """The generator of hidden inputs: other draws for each student, the same ones whenever a student is graded."""
    return np.random.default_rng([int(os.environ.get(SEED, 0)), zlib.crc32(purpose.encode())])


def same_rounds(
    methods: Mapping[str, Any],
    released: Mapping[str, Any],
    names: list[str],
    dataset: str = "digits",
    num_rounds: int = 3,
) -> None:
    """Assert that three short rounds of each method go as the released implementation's do.

    Partition, initial weights and batches are drawn from the student's seed.
    """
    from fednb.experiments import build
    from fednb.experiments.settings import resolve

    seed = int(draws("whole method").integers(1000))
    short = {"dataset": dataset, "seed": seed, "num_rounds": num_rounds, "local_epochs": 1}
    for name in names:
        histories = []
        for known in (methods, released):
            federation = build.federation(resolve(known, method=name, **short), known, device="cpu")
            for _ in range(num_rounds):
                federation.run_round()
            histories.append(federation.history)
        for t, (ours, theirs) in enumerate(zip(*histories, strict=True)):
            terms = {key for key in (*ours, *theirs) if key.startswith("loss/")}
            assert terms == {key for key in theirs if key in terms}, f"{name}, round {t}: the loss has the terms {terms}"
            for key in sorted(terms):
                assert np.isclose(ours[key], theirs[key], rtol=0.02, atol=1e-4, equal_nan=True), (
                    f"{name}, round {t}: {key} is {ours[key]:.4g}"
                )
            gap = abs(ours["accuracy"] - theirs["accuracy"])
            assert gap < 1, f"{name}, round {t}: the accuracy is {gap:.1f} points from that of the method in the text"


# --- nbgrader ---------------------------------------------------------------------------------------------------------


def configure(config: Any) -> None:
    """What nbgrader is told, by the ``nbgrader_config.py`` of a course folder and by ``check``."""
    from nbgrader.converters import GenerateAssignment
    from nbgrader.preprocessors import ClearOutput, InstantiateTests

    config.CourseDirectory.course_id = "fednb"
    config.ClearSolutions.code_stub = {"python": STUB}
    config.ClearSolutions.text_stub = ANSWER
    steps = [step for step in GenerateAssignment().preprocessors if step not in (ClearOutput, InstantiateTests)]
    config.GenerateAssignment.preprocessors = steps  # the outputs of what is not asked for stay readable
    config.LockCells.lock_readonly_cells = False  # a student may play with them; they are put back for grading
    config.IgnorePattern.enabled = True
    config.IgnorePattern.pattern = "(?s).*"  # a warning on stderr would cost all points of a check
    config.Execute.timeout = int(os.environ.get("FEDNB_CELL_TIMEOUT", 60))  # seconds for a cell
    config.Execute.iopub_timeout = 60  # nbclient's 4 seconds for the output to arrive fail good work on a busy machine


CONFIG = """# Written by `python -m fednb course`. nbgrader's own commands work in this folder, too.
from pathlib import Path

from fednb.course import configure

configure(get_config())  # noqa: F821
get_config().CourseDirectory.root = str(Path(__file__).parent)  # noqa: F821
"""


def _environment(**more: str) -> dict[str, str]:
    """The environment of nbgrader and of the code that it runs: the released notebooks, this package, no ledger."""
    env = {name: value for name, value in os.environ.items() if name not in ("FEDNB_NOTEBOOKS", SEED)}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])  # nbgrader calls alembic
    return env | {"FEDNB_PROGRESS": "off", "PYTHONWARNINGS": "ignore", "MPLBACKEND": "agg"} | more


def call(folder: Path, *arguments: str, limit: float | None = None, **environment: str) -> str:
    """Call nbgrader in a course folder and return its log; CourseError if it fails or takes longer than the limit."""
    import psutil  # comes with ipykernel

    command = [sys.executable, "-m", "nbgrader", *arguments]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, cwd=folder, env=_environment(**environment), stdout=log, stderr=log)
        try:
            status = process.wait(limit)
        except BaseException as error:  # Ctrl-C included; a kernel outlives nbgrader if it is in a loop of compiled code
            for child in [*psutil.Process(process.pid).children(recursive=True), process]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise CourseError(f"not finished after {limit:.0f} s") from None
            raise
        log.seek(0)
        text = log.read()
    if status:
        said = [line for line in text.splitlines() if re.match(r"\s*[\w.]*(Error|Exception)\b", line)]
        (folder / "nbgrader.log").write_text(text, encoding="utf-8")
        raise CourseError(f"{(said or ['nbgrader failed'])[-1].strip()[:200]} (all it said: {folder / 'nbgrader.log'})")
    return text


def course_folder(folder: Path) -> Path:
    """Make sure of a course folder, and of nbgrader."""
    if importlib.util.find_spec("nbgrader") is None:
        raise CourseError('The course commands need nbgrader: python -m pip install -e ".[course]"')
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nbgrader_config.py").write_text(CONFIG, encoding="utf-8")
    return folder


def parts(assignment: str) -> tuple[str, str]:
    name, _, kind = assignment.rpartition("-")
    if kind not in KINDS:
        raise CourseError(f"An assignment is called NOTEBOOK-KIND, for instance 01_moon-exercises; {assignment!r} is not.")
    return papers.path(name).stem, kind


def release(name: str, kind: str = "exercises", folder: Path = FOLDER) -> Path:
    """Write the students' version of a notebook and return its path; what it imports and its sweep file lie beside it."""
    nb, folder = source(name, kind), course_folder(folder)
    stem = papers.path(name).stem
    assignment = nb.metadata["fednb"]["assignment"]
    place = folder / "source" / assignment
    place.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, place / f"{stem}.ipynb")
    call(folder, "generate_assignment", assignment, "--force")
    released = folder / "release" / assignment
    for other in _imported(stem):
        needed = read(papers.path(other))
        needed.cells = [cell for cell in needed.cells if "export" in cell.metadata.get("tags", [])]
        for cell in needed.cells:
            cell.outputs, cell.execution_count = [], None
        nbformat.write(needed, released / papers.path(other).name)
    sweep = papers.path(name).parent / "sweeps" / f"{stem}.yaml"
    if sweep.exists():  # a model for the students' own
        (released / "sweeps").mkdir(exist_ok=True)
        shutil.copy(sweep, released / "sweeps")
    return released / f"{stem}.ipynb"


def gives_away(name: str, kind: str) -> list[str]:
    """The notebooks whose methods a hand-out shows in full: what it imports, and in exercises its own."""
    stem = papers.path(name).stem
    found = {papers.path(other).stem for other in _imported(stem)}
    return sorted(found | ({stem} if kind == "exercises" else set()))


def _imported(name: str) -> list[str]:
    """The notebooks from which a notebook imports, and so on."""
    found: list[str] = []
    for cell in read(papers.path(name)).cells:
        if BUILT_ON & set(cell.metadata.get("tags", [])):
            for other in re.findall(r"(?m)^from fednb\.papers\.(\w+) import", cell.source):
                found += [other, *_imported(other)]
    return sorted(set(found))


# --- for students -----------------------------------------------------------------------------------------------------


def prepare(path: str | Path) -> None:
    """Execute what the exercises of a hand-out build on, in the kernel that calls it."""
    from IPython import get_ipython
    from IPython.utils.capture import capture_output

    shell, number = get_ipython(), 0
    for cell in read(Path(path)).cells:
        marks = cell.metadata.get("nbgrader", {})
        if cell.cell_type == "code" and marks and not marks["solution"] and not marks["grade"]:
            number += 1
            with capture_output():
                result = shell.run_cell(cell.source)
            result.raise_error()
    print(f"{number} cells executed: the exercises can begin.")


def check(path: Path, timeout: int = 60) -> list[tuple[str, str]]:
    """Run the visible checks of a student's notebook; pairs of a check and what is wrong, which is empty if it passes."""
    if importlib.util.find_spec("nbgrader") is None:
        raise CourseError('The course commands need nbgrader: python -m pip install "fednb[course]"')
    from nbgrader.validator import Validator
    from traitlets.config import Config

    nb = read(path)
    if "fednb" not in nb.metadata or "assignment" not in nb.metadata["fednb"]:
        raise CourseError(
            f"{path.name} is not a hand-out: its metadata names no assignment. Start from the file that you got."
        )
    count = Counter(ids(nb))
    if wrong := [name for name in nb.metadata["fednb"]["cells"] if count[name] != 1]:
        told = ", ".join(f"{name} is {'missing' if not count[name] else 'there twice'}" for name in wrong)
        raise CourseError(f"{path.name}: {told}. Such a cell counts as not done: put back the cells of the hand-out first.")
    config = Config()
    configure(config)
    config.Execute.timeout = timeout
    before = dict(os.environ)
    os.environ |= _environment() | ({"FEDNB_NOTEBOOKS": before["FEDNB_NOTEBOOKS"]} if "FEDNB_NOTEBOOKS" in before else {})
    try:
        result = Validator(config=config).validate(str(path.absolute()))
    finally:
        os.environ.clear()
        os.environ.update(before)
    changed = {entry["source"] for key in ("changed", "type_changed") for entry in result.get(key, [])}
    failed = {entry["source"]: entry["raw_error"] for entry in result.get("failed", [])}
    rows, untouched = [], False
    for cell in nb.cells:
        marks = cell.metadata.get("nbgrader", {})
        text = cell.source.strip()
        untouched = untouched or (bool(marks.get("solution")) and STUB.splitlines()[-1] in text)
        if text in changed:
            rows.append(
                (marks["grade_id"], "the cell was changed, and will be put back for grading: put it back yourself first")
            )
        elif not marks.get("grade") or changed:
            continue
        elif marks["solution"]:
            rows.append((marks["grade_id"], "no answer yet" if text == ANSWER else ""))
        else:
            said = "not done yet" if untouched else last_line(failed.get(text, "-"))
            rows.append((marks["grade_id"], said if text in failed else ""))
            untouched = False
    return rows


def last_line(error: str) -> str:
    """The end of a traceback, in words."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[\d;]*m", "", error).splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if re.match(r"\w*(Error|Exception|Interrupt|Exit)\b", line)), lines[-1])
    return {"NotImplementedError:": "not done yet", "NotImplementedError": "not done yet"}.get(said, said)[:200]
