"""The faults of ``make mutants``: each can still be put in, and their script tells what becomes of one."""

import ast
import functools

import pytest
from mutants import ROOT, Mutant, read, verdict

MUTANTS = read()


@functools.cache
def functions_of(file: str) -> set[str]:
    """The functions of a test file."""
    nodes = ast.walk(ast.parse((ROOT / "tests" / file).read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_a_fault_can_be_put_in_and_the_tests_that_must_see_it_exist(mutant: Mutant) -> None:
    assert mutant.faulty(ROOT) != (ROOT / mutant.file).read_text()
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert not name or name.partition("[")[0] in functions_of(file), test


def test_there_are_faults_in_every_notebook_and_all_over_the_package() -> None:
    files = {mutant.file for mutant in MUTANTS}
    assert files >= {f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("0*.ipynb")}
    assert len({file for file in files if file.startswith("fednb/")}) >= 10


def test_only_a_test_that_fails_has_caught_a_fault() -> None:
    assert verdict(1, "F\n1 failed in 0.5s\n") == "caught"
    for status, output in (
        (1, "1 error in 0.5s"),
        (2, "1 error during collection"),
        (0, "1 passed"),
        (None, ""),
    ):
        assert verdict(status, output) != "caught"
