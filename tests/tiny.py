"""A notebook whose runs take a moment, with methods that wait, fail and diverge: for tests of sweeps."""

import multiprocessing
import re
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import psutil
import yaml
from nbformat.v4 import new_code_cell, new_notebook

# Forks of a process that has imported everything and done nothing. There is one for all tests of a process.
FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(
    [
        "fednb.data",
        "fednb.run",
        "fednb.papers.moon",
        "pytest",
        "torch._dynamo",
    ]
)
# what a command says after Ctrl-C
STOPPED = "\nfednb: stopped; the same command goes on where this one ended.\n"
SETUP = "from fednb import papers"
PARAMETERS = """
method = "FedAvg"
dataset = "digits"  # the data
seed: int = 0
pause = None
more = {"num_rounds": 1, "local_epochs": 1, "num_clients": 2}
"""
METHODS = """
import os
import time
from dataclasses import dataclass
from pathlib import Path

from fednb.federation import FedAvg, NonNegativeFloat


def mark(name):
    folder = Path(os.environ["FEDNB_TEST_MARKS"])
    (folder / f"{name}-{time.time_ns()}").touch()
    return len(list(folder.glob(f"{name}-*")))


@dataclass
class Slow(FedAvg):
    pause: NonNegativeFloat = 0.0

    def round(self, *args):
        mark(f"gpu {os.environ.get('CUDA_VISIBLE_DEVICES')} {os.getpid()}")
        time.sleep(self.pause)
        return super().round(*args)


@dataclass
class Pair(FedAvg):  # ends only if two run at once
    def round(self, *args):
        mark("pair")
        for _ in range(6000):
            if len(list(Path(os.environ["FEDNB_TEST_MARKS"]).glob("pair-*"))) > 1:
                return super().round(*args)
            time.sleep(0.1)
        raise TimeoutError("alone")


@dataclass
class Flaky(FedAvg):
    def round(self, *args):
        if mark("flaky") == 1:
            raise RuntimeError("the first time")
        return super().round(*args)


@dataclass
class Broken(FedAvg):
    def round(self, *args):
        mark("broken")
        raise RuntimeError("broken\\non purpose")


@dataclass
class Diverging(Pair):
    def loss(self, *args):
        return {name: value * float("nan") for name, value in super().loss(*args).items()}


METHODS = {m.__name__: m for m in (FedAvg, Slow, Pair, Flaky, Broken, Diverging)}
"""
RUN = """
from fednb import run as runner

runner.CHECKPOINT_SECONDS = 0
record = runner.run(papers.settings("{name}.ipynb", globals()), METHODS)
"""
TABLE = {"title": "A title", "rows": "method", "columns": "dataset", "tier": "minutes-cpu"}


def write_notebook(
    file: Path, *, parameters: str = PARAMETERS, methods: str = METHODS, run: str = RUN
) -> Path:
    """Write the notebook, between its tagged cells such as a sweep must not execute."""
    tagged = [
        ("setup", SETUP),
        ("parameters", parameters),
        ("export", methods),
        ("run", run.format(name=file.stem)),
    ]
    cells = [
        new_code_cell(source.strip(), metadata={"tags": [tag]}) for tag, source in tagged if source
    ]
    cells.insert(3, new_code_cell("raise RuntimeError('this cell must not run')"))
    cells.append(new_code_cell("mark('after')", metadata={"tags": ["results"]}))
    file.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells), file)
    return file


def write(
    folder: Path, tables: dict[str, object], notebook: str = "", name: str = "sweep.yaml"
) -> Path:
    """Write a sweep file; without a notebook that is told, one lies beside it."""
    file = folder / name
    if not notebook:
        notebook = "90_tiny.ipynb"
        write_notebook(folder / notebook)
    file.write_text(yaml.safe_dump({"notebook": notebook, "tables": tables}), encoding="utf-8")
    return file


def rounds(log: Path) -> list[str]:
    """The rounds that a log tells, such as 2/3."""
    return re.findall(r"^round (\S+)", log.read_text(), re.MULTILINE) if log.exists() else []


def is_alive(number: int) -> bool:
    """Whether there is a process of that number that still does something."""
    try:
        return psutil.Process(number).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(condition: Callable[[], object], seconds: float = 200) -> None:
    """Wait until the condition holds; a test that waits in vain fails."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
