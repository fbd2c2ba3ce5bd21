"""What hidden tests use, and how nbgrader is called."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fednb import ROOT
from fednb.course import fence

FOLDER = ROOT / "course"  # nbgrader's course directory: source, release, submitted, autograded, feedback, gradebook
SEED = "FEDNB_STUDENT_SEED"
STUB = "# YOUR CODE HERE\nraise NotImplementedError()"
ANSWER = "*Your answer here.*"
KEPT = ("LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "FEDNB_NOTEBOOKS")
CONFIG = """# Written by `python -m fednb course`. nbgrader's own commands work in this folder, too.
from pathlib import Path

from fednb.course.steps import configure

configure(get_config())  # noqa: F821
get_config().CourseDirectory.root = str(Path(__file__).parent)  # noqa: F821
"""


class CourseError(Exception):
    """A request that cannot be met; the message says what is missing."""


def draws(purpose: str) -> np.random.Generator:
    """The generator of hidden inputs: other draws for each student, the same ones whenever a student is graded."""
    return np.random.default_rng([int(os.environ.get(SEED, 0)), zlib.crc32(purpose.encode())])


def same_rounds(
    methods: Mapping[str, Any], released: Mapping[str, Any], names: list[str], dataset: str = "digits", num_rounds: int = 3
) -> None:
    """Assert that short rounds of each method go as the released one's, from what the student's seed draws."""
    from fednb.experiments import build
    from fednb.experiments.settings import resolve

    short = {"dataset": dataset, "num_rounds": num_rounds, "local_epochs": 1}
    short["seed"] = int(draws("whole method").integers(1000))
    for name in names:
        histories = []
        for known in (methods, released):
            federation = build.federation(resolve(known, method=name, **short), known, device="cpu")
            histories.append([federation.run_round() for _ in range(num_rounds)])
        for t, (ours, theirs) in enumerate(zip(*histories, strict=True)):
            terms, asked = ({key for key in entry if key.startswith("loss/")} for entry in (ours, theirs))
            assert terms == asked, f"{name}, round {t}: the loss has the terms {terms}"
            for key in sorted(terms):
                same = np.isclose(ours[key], theirs[key], rtol=0.02, atol=1e-4, equal_nan=True)
                assert same, f"{name}, round {t}: {key} is {ours[key]:.4g}"
            gap = abs(ours["accuracy"] - theirs["accuracy"])
            assert gap < 1, f"{name}, round {t}: the accuracy is {gap:.1f} points from that of the method in the text"


def environment(**more: str) -> dict[str, str]:
    """The environment of nbgrader and of the code that it runs: what is needed, and nothing else of this one's."""
    own = {name: os.environ[name] for name in KEPT if name in os.environ}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # nbgrader calls alembic
    own |= {"PATH": path, "PYTHONPATH": os.pathsep.join([str(ROOT), *fence.PACKAGES]), "PYTHONWARNINGS": "ignore"}
    return own | {"FEDNB_PROGRESS": "off", "FEDNB_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "agg"} | more


def nbgrader(folder: Path, assignment: str, *steps: str, student: str = ".", seconds: float = 600, **given: str) -> None:
    """Have nbgrader take steps in a course folder; CourseError if it fails, fence.Stopped if a limit ends it."""
    command = [sys.executable, "-m", "fednb.course.steps", str(folder), assignment, student, *steps]
    with tempfile.TemporaryDirectory() as home:
        status, text = fence.run(command, environment(**{"HOME": home} | given), seconds)
    if status:
        said = [line.strip() for line in text.splitlines() if re.match(r"\s*[\w.]*(Error|Exception|Interrupt)\b", line)]
        (folder / "nbgrader.log").write_text(text, encoding="utf-8")
        raise CourseError(f"{(said or ['nbgrader failed'])[-1][:200]} (all it said: {folder / 'nbgrader.log'})")


def course_folder(folder: Path) -> Path:
    """Make sure of a course folder, and of nbgrader."""
    if importlib.util.find_spec("nbgrader") is None:
        raise CourseError('The course commands need nbgrader: python -m pip install "fednb[course]"')
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nbgrader_config.py").write_text(CONFIG, encoding="utf-8")
    return folder
