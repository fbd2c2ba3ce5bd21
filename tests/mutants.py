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
COPIED = ("fednb", "fednb_lab", "notebooks", "tests", "data", "docs", "results", "pyproject.toml")
LEFT_OUT = ("results/runs/", "docs/explorer/", "docs/static/")  # which no test of a fault reads
SECONDS = 1800  # a fault that makes its tests hang must end; the machine may be busy


class Mutant(NamedTuple):
    """A fault."""

    name: str
    file: str
    find: str
    replace: str
    tests: list[str]

    def faulty(self, root: Path) -> str:
        """The file with the fault; an error unless the text occurs once and the result compiles."""
        text = (root / self.file).read_text(encoding="utf-8")
        notebook = json.loads(text) if self.file.endswith(".ipynb") else None
        cells = [{"source": text}]
        if notebook:
            cells = [
                cell for cell in notebook["cells"] if "export" in cell["metadata"].get("tags", [])
            ]
        times = sum("".join(cell["source"]).count(self.find) for cell in cells)
        assert times == 1, (
            f"{self.name}: the text to be replaced occurs {times} times in {self.file}"
        )
        for cell in cells:
            cell["source"] = "".join(cell["source"]).replace(self.find, self.replace)
        compile("\n\n".join(cell["source"] for cell in cells), self.file, "exec", dont_inherit=True)
        return json.dumps(notebook) if notebook else cells[0]["source"]


def read() -> list[Mutant]:
    """The faults of ``mutants.yaml``."""
    entries = yaml.safe_load((ROOT / "tests" / "mutants.yaml").read_text(encoding="utf-8"))
    return [Mutant(name, **entry) for name, entry in entries.items()]


def copy_to(root: Path) -> None:
    """Copy the files that tests read and git knows, as they are now."""
    listed = subprocess.check_output(
        ["git", "ls-files", "-co", "--exclude-standard", *COPIED], cwd=ROOT, text=True
    )
    for name in listed.splitlines():
        if not name.startswith(LEFT_OUT):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)


def tested(tests: Sequence[str], mutant: Mutant | None) -> tuple[int | None, str]:
    """pytest's exit status, none after too long a time, and what it printed, in a copy with the fault if there is one."""
    options = ["-x", "-n", "0", "-p", "no:cacheprovider", "--tb=short"]
    with tempfile.TemporaryDirectory(prefix="fednb-mutants-") as folder:
        root = Path(folder)
        copy_to(root)
        if mutant:
            (root / mutant.file).write_text(mutant.faulty(root), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", *options, f"--rootdir={root}"]
        environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                command + [f"tests/{test}" for test in tests],
                cwd=root,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
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
    known = {mutant.name: mutant for mutant in read()}
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these faults")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="faults at once")
    given = parser.parse_args()
    chosen = [known[name] for name in given.names or known]
    every = sorted({test for mutant in chosen for test in mutant.tests})
    status, output = tested(every, None)
    if status != 0:
        print(f"Without any fault the tests are not green (status {status}):\n{output}")
        return 1
    survivors = []
    with ThreadPoolExecutor(given.jobs) as pool:
        results = pool.map(lambda mutant: tested(mutant.tests, mutant), chosen)
        for mutant, result in zip(chosen, results, strict=True):
            told = verdict(*result)
            print(f"{mutant.name:<44}{mutant.file:<32}{told}", flush=True)
            if told != "caught":
                survivors.append(mutant.name)
    caught = len(chosen) - len(survivors)
    print(f"{caught} of {len(chosen)} caught", *survivors, sep="\nnot caught: ")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
