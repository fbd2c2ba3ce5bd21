"""Cells executed as in the sandbox, without it: which checks count, and what is no fault."""

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from fednb_lab.course import sandbox
from fednb_lab.course.notebooks import NOT_DONE, first_error

pytestmark = pytest.mark.slow


def cell(name, source, kind):
    """A code cell of the hand-out, a solution or a check."""
    marks = {"grade": kind == "check", "solution": kind == "solution", "grade_id": name}
    return new_code_cell(source, metadata={"nbgrader": marks | {"locked": kind != "solution"}})


def errors(*cells, seconds=60):
    """Execute cells; the errors, or else kinds of outputs, of the checks among them."""
    nb = new_notebook(cells=list(cells))
    sandbox.execute_here(nb, sandbox.Limits(seconds, 300))
    checks = [one for one in nb.cells if one.metadata["nbgrader"]["grade"]]
    return [
        first_error(one) or "".join(output.output_type for output in one.outputs) for one in checks
    ]


def test_checks_count_whose_solutions_and_own_lines_ran_to_their_end():
    assert errors(
        cell("s", "def f():\n    return 1", "solution"),
        cell("c", 'assert f() == 1, "one"\nf() / 4', "check"),  # a last value is no points
        cell("c2", 'assert f() != 1, "not one"', "check"),
        cell("s2", "x = 1\n1 / 0", "solution"),
        cell("c3", "assert x == 1", "check"),
        cell("s3", "raise NotImplementedError()", "solution"),
        cell("c4", "assert y", "check"),
        cell("s4", "z = 1", "solution"),
        cell("c5", "import os\nos._exit(0)", "check"),
        cell("c6", "assert f() == 1", "check"),
    ) == [
        "",
        "AssertionError: not one",
        "its solution ended with ZeroDivisionError: division by zero",
        NOT_DONE,
        "DeadKernelError: Kernel died",
        "NotExecuted: the kernel was lost in a cell above",
    ]


def test_what_takes_too_long_is_a_sentence_of_seconds():
    endless = "while True:\n    pass"
    assert errors(
        cell("s", endless, "solution"),
        cell("c", "assert True", "check"),
        cell("s2", "x = 1", "solution"),
        cell("c2", endless, "check"),
        seconds=2,
    ) == [
        "its solution ended with CellTimeoutError: took longer than 2 s",
        "CellTimeoutError: took longer than 2 s",
    ]
