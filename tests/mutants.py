"""``make mutants``: one fault at a time is put into a copy of the code, and the tests that it names must turn red.

    python tests/mutants.py [NAME ...] [--jobs N]

The faults are in ``mutants.yaml``: a file (of a notebook the cells that are tagged ``export``), a text that occurs in it
exactly once, what stands in its place, and the tests that must see it. First these tests must pass without a fault. A fault
counts as caught if a test fails; a test that cannot be collected, or an error outside of a test, does not count.

What takes long to import is imported once; every fault has a fork of this process, in which the copy is imported.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
COPIED = ("fednb", "notebooks", "tests", "data/reported.csv", "pyproject.toml")
# For the tests of one fault: one that makes them loop or hang must end. The machine may be busy, so the first counts.
CPU_SECONDS, SECONDS = 120, 1800


class MutantError(ValueError):
    """A fault that cannot be put in; the message names it and says why."""


class Mutant(NamedTuple):
    """A fault: where it is, what it replaces, and which tests, files or node ids below ``tests``, must see it."""

    name: str
    file: str
    find: str
    replace: str
    tests: list[str]

    def parts(self, root: Path) -> list[str]:
        """The code without the fault: the file, or the export cells of the notebook."""
        text = (root / self.file).read_text(encoding="utf-8")
        return _exported(json.loads(text)) if self.file.endswith(".ipynb") else [text]

    def check(self, root: Path) -> None:
        """Raise a `MutantError` unless the text to be replaced occurs once, and the result compiles and is another."""
        parts = self.parts(root)
        if (times := sum(part.count(self.find) for part in parts)) != 1:
            raise MutantError(f"{self.name}: the text to be replaced occurs {times} times in {self.file}: {self.find!r}")
        if self.find == self.replace:
            raise MutantError(f"{self.name}: the replacement is what it replaces.")
        changed = "\n\n".join(part.replace(self.find, self.replace) for part in parts)
        try:
            compile(changed, self.file, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise MutantError(f"{self.name}: {self.file} does not compile with it: {error}") from error

    def apply(self, root: Path) -> None:
        """Put the fault into the copy at ``root``."""
        self.check(root)
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".ipynb":
            path.write_text(text.replace(self.find, self.replace), encoding="utf-8")
            return
        notebook = json.loads(text)
        for cell in notebook["cells"]:
            if _is_exported(cell):
                cell["source"] = "".join(cell["source"]).replace(self.find, self.replace)
        path.write_text(json.dumps(notebook), encoding="utf-8")


def _is_exported(cell: dict) -> bool:
    return cell["cell_type"] == "code" and "export" in cell["metadata"].get("tags", [])


def _exported(notebook: dict) -> list[str]:
    return ["".join(cell["source"]) for cell in notebook["cells"] if _is_exported(cell)]


def read() -> list[Mutant]:
    """The faults of ``mutants.yaml``."""
    entries = yaml.safe_load((HERE / "mutants.yaml").read_text(encoding="utf-8"))
    return [Mutant(name, **entry) for name, entry in entries.items()]


def copy(folder: Path) -> Path:
    """Copy what the tests need."""
    for name in COPIED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def preload() -> None:
    """Import what takes long and is not ours."""
    for name in (
        "matplotlib.pyplot",
        "nbformat",
        "pandas",
        "pytest",
        "scipy.stats",
        "sklearn.cluster",
        "torchvision.models",
    ):
        importlib.import_module(name)
    assert "fednb" not in sys.modules


class Running(NamedTuple):
    """Tests of a copy that go on in a fork."""

    mutant: Mutant | None
    root: Path
    process: multiprocessing.Process
    log: Path
    end: float

    def result(self) -> tuple[int, str]:
        """pytest's exit status, and what it printed."""
        if self.process.is_alive():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join()
        return self.process.exitcode, self.log.read_text()


def start(mutant: Mutant | None, tests: Sequence[str], root: Path) -> Running:
    """Put the fault into a copy and begin its tests."""
    if mutant:
        mutant.apply(root)
    log = root.with_suffix(".log")
    process = multiprocessing.get_context("fork").Process(target=_run, args=(root, tests, log))
    process.start()
    return Running(mutant, root, process, log, time.monotonic() + SECONDS)


def _run(root: Path, tests: Sequence[str], log: Path) -> None:
    import pytest

    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1), os.dup2(output, 2)
    os.chdir(root)
    # nothing of this project but the copy, and no code that was compiled a moment ago
    os.environ["PYTHONPATH"] = str(root)
    sys.path[:] = [str(root), *(p for p in sys.path if Path(p or ".").resolve() not in (ROOT, HERE))]
    sys.dont_write_bytecode = True
    options = ["-x", "-p", "no:cacheprovider", "--tb=short", f"--rootdir={root}"]
    status = pytest.main([*options, *(f"tests/{one}" for one in tests)])
    fednb = sys.modules.get("fednb")
    if fednb and root not in Path(fednb.__file__).parents:
        print("These were not the tests of the copy.")
        status = 99
    sys.stdout.flush()
    os._exit(int(status))


def several(
    todo: Iterable[tuple[Mutant | None, Sequence[str]]], copies: Sequence[Path]
) -> Iterator[tuple[Mutant | None, int, str]]:
    """Run the tests of each fault, as many at once as there are copies; the results come as they end."""
    free, running, left = list(copies), [], iter(todo)
    while True:
        while free and (following := next(left, None)):
            running.append(start(*following, free.pop()))
        if not running:
            return
        nearest = min(one.end for one in running) - time.monotonic()
        wait([one.process.sentinel for one in running], max(nearest, 0))
        for one in [r for r in running if not r.process.is_alive() or r.end <= time.monotonic()]:
            status, output = one.result()
            if one.mutant:
                shutil.copy(ROOT / one.mutant.file, one.root / one.mutant.file)
            running.remove(one)
            free.append(one.root)
            yield one.mutant, status, output


def verdict(status: int, output: str) -> str:
    """``caught``, or what else became of a fault."""
    last = output.strip().rpartition("\n")[2]
    if status == 0:
        return "SURVIVED"
    if status == 1 and " failed" in last:
        return "caught"
    return "took too long" if status in (-signal.SIGKILL, -signal.SIGXCPU) else f"NOT TESTED (status {status}): {last}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these faults")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="faults at once (default: 2)")
    given = parser.parse_args(arguments)
    known = {mutant.name: mutant for mutant in read()}
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"there is no fault {unknown[0]!r} in mutants.yaml")
    chosen = [known[name] for name in given.names or known]
    try:
        for mutant in chosen:
            mutant.check(ROOT)
    except MutantError as error:
        print(error)
        return 1
    preload()
    with tempfile.TemporaryDirectory(prefix="fednb-mutants-") as folder:
        copies = [copy(Path(folder) / str(i)) for i in range(given.jobs)]
        every = sorted({test for mutant in chosen for test in mutant.tests})
        for _, status, output in several(
            [(None, every[i :: given.jobs]) for i in range(min(given.jobs, len(every)))], copies
        ):
            if status:
                print(f"Without any fault the tests are not green (status {status}):\n{output}")
                return 1
        begin, survivors = time.monotonic(), []
        for mutant, status, output in several([(mutant, mutant.tests) for mutant in chosen], copies):
            found = verdict(status, output)
            print(f"{mutant.name:<44}{mutant.file:<32}{found}", flush=True)
            if found != "caught":
                survivors.append(mutant.name)
        print(f"{len(chosen) - len(survivors)} of {len(chosen)} caught in {time.monotonic() - begin:.0f} s")
        if survivors:
            print(f"not caught: {', '.join(survivors)}")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
