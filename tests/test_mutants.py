"""The faults of ``make mutants``: each can still be put in, and their script tells what becomes of one."""

import ast
from pathlib import Path

import pytest
from mutants import HERE, ROOT, Mutant, MutantError, read, verdict

MUTANTS = read()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_the_text_occurs_once_and_the_result_compiles(mutant: Mutant) -> None:
    mutant.check(ROOT)
    assert mutant.tests


def test_the_tests_that_must_see_a_fault_exist() -> None:
    for mutant in MUTANTS:
        for test in mutant.tests:
            file, _, name = test.partition("::")
            names = {n.name for n in ast.walk(ast.parse((HERE / file).read_text())) if isinstance(n, ast.FunctionDef)}
            assert not name or name.partition("[")[0] in names, f"{mutant.name}: {test}"


def test_there_are_faults_in_every_notebook_and_all_over_the_package() -> None:
    files = [mutant.file for mutant in MUTANTS]
    assert len(files) >= 30
    assert {file for file in files if file.endswith(".ipynb")} >= {
        f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("0[0-5]*.ipynb")
    }
    assert len({file for file in files if file.startswith("fednb/")}) >= 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"find": "nowhere"}, "^one: the text to be replaced occurs 0 times in fednb/seeds.py: 'nowhere'$"),
        ({"find": "seed"}, "^one: the text to be replaced occurs [0-9]+ times"),
        ({"replace": "def generator("}, "^one: the replacement is what it replaces"),
        ({"replace": "def generator"}, "^one: fednb/seeds.py does not compile with it"),
    ],
)
def test_a_fault_that_cannot_be_put_in_is_an_error_that_names_it(changes: dict[str, str], message: str) -> None:
    usual = {"name": "one", "file": "fednb/seeds.py", "find": "def generator(", "replace": "def maker(", "tests": []}
    Mutant(**usual).check(ROOT)
    with pytest.raises(MutantError, match=message):
        Mutant(**usual | changes).check(ROOT)


def test_a_fault_in_a_notebook_is_put_into_its_export_cells(tmp_path: Path) -> None:
    mutant = next(m for m in MUTANTS if m.file.endswith("00_foundations.ipynb"))
    path = tmp_path / mutant.file
    path.parent.mkdir()
    path.write_bytes((ROOT / mutant.file).read_bytes())
    mutant.apply(tmp_path)
    assert mutant.parts(tmp_path) == [part.replace(mutant.find, mutant.replace) for part in mutant.parts(ROOT)]
    assert mutant.parts(tmp_path) != mutant.parts(ROOT)


@pytest.mark.parametrize(
    ("status", "output", "expected"),
    [
        (1, "F\n1 failed in 0.5s\n", "caught"),
        (1, "E\n1 error in 0.5s", "NOT TESTED (status 1): 1 error in 0.5s"),
        (2, "1 error during collection", "NOT TESTED (status 2): 1 error during collection"),
        (0, "1 passed", "SURVIVED"),
        (-9, "", "took too long"),
    ],
)
def test_only_a_test_that_fails_has_caught_a_fault(status: int, output: str, expected: str) -> None:
    assert verdict(status, output) == expected
