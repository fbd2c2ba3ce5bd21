"""What students run: the checks of a hand-out, and the cells on which its exercises build."""

from __future__ import annotations

import importlib.util
import os
import re
from collections import Counter
from pathlib import Path
from unittest import mock

from fednb.course.handout import ids, read
from fednb.course.tools import ANSWER, STUB, CourseError, environment


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

    from fednb.course.steps import configure

    nb = read(path)
    if "assignment" not in nb.metadata.get("fednb", {}):
        raise CourseError(
            f"{path.name} is not a hand-out: its metadata names no assignment. Start from the file that you got."
        )
    count = Counter(ids(nb))
    if wrong := [name for name in nb.metadata["fednb"]["cells"] if count[name] != 1]:
        told = ", ".join(f"{name} is {'missing' if not count[name] else 'there twice'}" for name in wrong)
        raise CourseError(f"{path.name}: {told}. Put back the cells of the hand-out first.")
    config = Config()
    configure(config)
    config.Execute.timeout = timeout
    with mock.patch.dict(os.environ, environment()):
        result = Validator(config=config).validate(str(path.absolute()))
    changed = {entry["source"] for key in ("changed", "type_changed") for entry in result.get(key, [])}
    failed = {entry["source"]: entry["raw_error"] for entry in result.get("failed", [])}
    rows, untouched = [], False
    for cell in nb.cells:
        marks, text = cell.metadata.get("nbgrader", {}), cell.source.strip()
        untouched = untouched or (bool(marks.get("solution")) and STUB.splitlines()[-1] in text)
        if text in changed:
            said = "the cell was changed, and will be put back for grading: put it back yourself first"
        elif not marks.get("grade") or changed:
            continue
        elif marks["solution"]:
            said = "no answer yet" if text == ANSWER else ""
        else:
            said = "" if text not in failed else "not done yet" if untouched else last_line(failed[text])
            untouched = False
        rows.append((marks["grade_id"], said))
    return rows


def last_line(error: str) -> str:
    """The end of a traceback, in words."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[\d;]*m", "", error).splitlines() if line.strip()] or ["an error"]
    said = next((line for line in reversed(lines) if re.match(r"\w*(Error|Exception|Interrupt|Exit)\b", line)), lines[-1])
    return "not done yet" if said.rstrip(":") == "NotImplementedError" else said[:200]
