"""``make mutants``: one fault at a time is put into a copy of the code, and the tests that it names must turn red.

    python tests/mutants.py [NAME ...] [--jobs N]

The faults are in ``mutants.yaml``: a file (of a notebook the cells that are tagged ``export``), a text that occurs in it
exactly once, what stands in its place, and the tests that must see it, files or node ids below ``tests``. First these tests
must pass without a fault. A fault counts as caught if a test fails; one that cannot be collected, or an error outside of a
test, does not count.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("fednb", "notebooks", "tests", "data/reported.csv", "pyproject.toml")
SECONDS = 1800  # a fault that makes its tests hang must end; the machine may be busy


class MutantError(ValueError):
    """A fault that cannot be put in; the message names it and says why."""


class Mutant(NamedTuple):
    """A fault."""

    name: str
    file: str
    find: str
    replace: str
    tests: list[str]

    def faulty(self, root: Path) -> str:
        """The file with the fault; a `MutantError` unless the text occurs once, and the result compiles and is another."""
        text = (root / self.file).read_text(encoding="utf-8")
        notebook = json.loads(text) if self.file.endswith(".ipynb") else None
        cells = [{"source": text}]
        if notebook:
            cells = [cell for cell in notebook["cells"] if "export" in cell["metadata"].get("tags", [])]
        times = sum("".join(cell["source"]).count(self.find) for cell in cells)
        if times != 1 or self.find == self.replace:
            raise MutantError(f"{self.name}: the text to be replaced by another occurs {times} times in {self.file}.")
        for cell in cells:
            cell["source"] = "".join(cell["source"]).replace(self.find, self.replace)
        changed = "\n\n".join(cell["source"] for cell in cells)
        try:
            compile(changed, self.file, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise MutantError(f"{self.name}: {self.file} does not compile with it: {error}") from error
        return json.dumps(notebook) if notebook else changed


def read() -> list[Mutant]:
    """The faults of ``mutants.yaml``."""
    entries = yaml.safe_load((ROOT / "tests" / "mutants.yaml").read_text(encoding="utf-8"))
    return [Mutant(name, **entry) for name, entry in entries.items()]


def tested(tests: Sequence[str], mutant: Mutant | None) -> tuple[int | None, str]:
    """pytest's exit status, none after too long a time, and what it printed, in a copy with the fault if there is one."""
    with tempfile.TemporaryDirectory(prefix="fednb-mutants-") as folder:
        root = Path(folder)
        for name in COPIED:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
            else:
                shutil.copy(ROOT / name, root / name)
        if mutant:
            (root / mutant.file).write_text(mutant.faulty(root), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider", "--tb=short"]
        command += [f"--rootdir={root}", *(f"tests/{test}" for test in tests)]
        environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return None, ""
        return done.returncode, done.stdout + done.stderr


def verdict(status: int | None, output: str) -> str:
    """``caught``, or what else became of a fault."""
    last = output.strip().rpartition("\n")[2]
    if status == 0:
        return "SURVIVED"
    if status == 1 and " failed" in last:
        return "caught"
    return "took too long" if status is None else f"NOT TESTED (status {status}): {last}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these faults")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="faults at once (default: 2)")
    given = parser.parse_args()
    known = {mutant.name: mutant for mutant in read()}
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"there is no fault {unknown[0]!r} in mutants.yaml")
    chosen = [known[name] for name in given.names or known]
    for mutant in chosen:
        mutant.faulty(ROOT)
    every = sorted({test for mutant in chosen for test in mutant.tests})
    survivors = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for status, output in pool.map(lambda i: tested(every[i :: given.jobs], None), range(min(given.jobs, len(every)))):
            if status != 0:
                print(f"Without any fault the tests are not green (status {status}):\n{output}")
                return 1
        results = pool.map(lambda mutant: tested(mutant.tests, mutant), chosen)
        for mutant, (status, output) in zip(chosen, results, strict=True):
            found = verdict(status, output)
            print(f"{mutant.name:<44}{mutant.file:<32}{found}", flush=True)
            if found != "caught":
                survivors.append(mutant.name)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} caught" + "".join(f"\nnot caught: {name}" for name in survivors))
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
