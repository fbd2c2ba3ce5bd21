"""Cells executed as in the sandbox, without it: which checks count, and what is no fault."""

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from fednb_lab.course import inside
from fednb_lab.course.notebooks import first_error

pytestmark = pytest.mark.slow


def cell(name, source, kind=""):
    """A code cell: a student's own without a name, else the hand-out's, a solution or a check."""
    marks = {"grade": kind == "check", "solution": kind == "solution", "grade_id": name}
    marks["locked"] = kind != "solution"
    metadata = {"nbgrader": marks} if name else {}
    if kind == "skipped":
        metadata = {"tags": ["skip-execution"]}
    return new_code_cell(source, metadata=metadata)


def errors(*cells, seconds=60):
    """Execute cells; the errors, or else kinds of outputs, of the checks among them."""
    nb = new_notebook(cells=list(cells))
    inside.execute(nb, inside.Limits(seconds, 300))
    checks = [one for one in nb.cells if one.metadata.get("nbgrader", {}).get("grade")]
    return [
        first_error(one) or "".join(output.output_type for output in one.outputs) for one in checks
    ]


def test_an_error_has_the_line_of_the_solution_and_only_the_stub_is_not_done():
    assert errors(
        cell("s", "def f(x):\n    return x / 0", "solution"),
        cell("c", "f(1)", "check"),
        cell("s2", "y = input()", "solution"),
        cell("c2", "assert y", "check"),
    ) == [
        "ZeroDivisionError: division by zero (line 2 of the solution)",
        "its solution ended with StdinNotImplementedError: raw_input was called, but this frontend "
        "does not support input requests. (line 1 of the solution)",
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
        "its solution ended with ZeroDivisionError: division by zero (line 2 of the solution)",
        "not done yet",
        "DeadKernelError: it ended the kernel",
        "NotExecuted: a cell above ended the kernel",
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
        "its solution took longer than 2 s (an endless loop?)",
        "took longer than 2 s (an endless loop?)",
    ]
