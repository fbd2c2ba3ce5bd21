"""What hidden tests use, and nbgrader as this project calls it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fednb import ROOT

FOLDER = ROOT / "course"  # nbgrader's course directory: source, release, submitted, autograded, feedback, gradebook
SEED = "FEDNB_STUDENT_SEED"
STUB = "# YOUR CODE HERE\nraise NotImplementedError()"
ANSWER = "*Your answer here.*"


class CourseError(Exception):
    """A request that cannot be met; the message says what is missing."""


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


def environment(**more: str) -> dict[str, str]:
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
        process = subprocess.Popen(command, cwd=folder, env=environment(**environment), stdout=log, stderr=log)
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
