"""Runs as forks of one process: nothing goes from one to the next, and a process that is killed costs one run at most."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import psutil
import pytest
import torch
from nbformat.v4 import new_code_cell, new_notebook
from tiny import is_alive, wait_for

from fednb_lab.sweeps import processes
from fednb_lab.sweeps.server import CAN_FORK, Server

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="runs are not forks here")

NOTEBOOK = {
    "parameters": "number = 1\nmore = {}",
    "run": "import os, sys, time\n"
    "print('number', number, 'there' if 'leftover' in dir(sys) else 'clean', os.environ.get('FEDNB_X'))\n"
    "sys.leftover = 1\n"
    "if number == 13:\n    raise ValueError('thirteen')\n"
    "if number > 90:\n    print('waits', os.getpid(), flush=True)\n    time.sleep(600)",
}


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> str:
    cells = [new_code_cell(source, metadata={"tags": [tag]}) for tag, source in NOTEBOOK.items()]
    file = tmp_path_factory.mktemp("notebook") / "own.ipynb"
    nbformat.write(new_notebook(cells=cells), file)
    return str(file)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def make(
    server: Server,
    notebook: str,
    log: Path,
    stop: Callable[[], bool] = lambda: False,
    x: str = "none",
    code: str = "",
    **parameters: int,
) -> int:
    environment = os.environ | {"FEDNB_X": x, "MPLBACKEND": "agg"}
    return server.run(environment, notebook, parameters, log, stop, code)


def test_runs_know_nothing_of_one_another(server: Server, notebook: str, tmp_path: Path) -> None:
    logs = [tmp_path / f"{number}.log" for number in range(2)]
    assert make(server, notebook, logs[0], number=5, x="first") == 0
    assert make(server, notebook, logs[1], x="second") == 0
    assert logs[0].read_text() == "number 5 clean first\n"
    assert logs[1].read_text() == "number 1 clean second\n"


def test_an_error_is_the_last_line_and_the_server_goes_on(
    server: Server, notebook: str, log: Path
) -> None:
    assert make(server, notebook, log, number=13) == 1
    assert log.read_text().splitlines()[-1] == "cell [3]: ValueError: thirteen"
    assert "Traceback" in log.read_text()
    assert make(server, notebook, log, number=2) == 0


def waiting(log: Path) -> int | None:
    """The process of a run that waits, as soon as it does."""
    _, waits, number = (log.read_text() if log.exists() else "").partition("waits ")
    return int(number) if waits else None


@pytest.mark.parametrize("victim", ["run", "server"])
def test_what_is_killed_fails_one_run_and_no_other(
    server: Server, notebook: str, log: Path, victim: str
) -> None:
    killed: list[int] = []

    def kill() -> bool:
        pid = waiting(log)
        if pid and not killed:
            killed.append(pid)
            process = psutil.Process(pid)
            (process if victim == "run" else process.parent()).send_signal(signal.SIGKILL)
        return False

    assert make(server, notebook, log, kill, number=99) == -signal.SIGKILL
    wait_for(lambda: not is_alive(killed[0]))
    assert make(server, notebook, log, number=2) == 0


def test_what_is_stopped_ends_soon(server: Server, notebook: str, log: Path) -> None:
    begin = time.monotonic()
    assert make(server, notebook, log, lambda: waiting(log) is not None, number=99) < 0
    process = waiting(log)
    assert process is not None
    wait_for(lambda: not is_alive(process))
    assert time.monotonic() - begin < 500  # the run would take 600


def test_a_server_that_cannot_start_says_why(notebook: str, tmp_path: Path, log: Path) -> None:
    broken = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
    (tmp_path / "fednb").mkdir()
    (tmp_path / "fednb" / "__init__.py").write_text("raise OSError('no disk')")
    assert Server().run(broken, notebook, {}, log, lambda: False) == 1
    assert "no disk" in log.read_text()


def test_other_code_is_imported_and_an_idle_server_ends(notebook: str, log: Path) -> None:
    server = Server(idle_seconds=600)
    numbers = []
    for code in ("a", "a", "b"):
        assert make(server, notebook, log, code=code) == 0
        assert server._process is not None
        numbers.append(server._process.pid)
    assert numbers[0] == numbers[1] != numbers[2]
    server._idle_seconds = 0.5
    assert make(server, notebook, log, code="b") == 0
    wait_for(lambda: not is_alive(numbers[2]))
    assert make(server, notebook, log, code="b") == 0
    server.close()


@pytest.mark.skipif(sys.platform != "linux", reason="counts CPU time by Linux's ways")
def test_a_run_costs_little_beside_its_training(server: Server, notebook: str, log: Path) -> None:
    """The limit is 3 CPU seconds; a process that imports everything takes more than that."""
    make(server, notebook, log)  # which may start the server
    assert server._process is not None
    before = psutil.Process(server._process.pid).cpu_times()
    make(server, notebook, log)
    after = psutil.Process(server._process.pid).cpu_times()
    used = sum(after[:4]) - sum(before[:4])  # its own and that of its children, user and system
    assert used < 1.5


@pytest.mark.parametrize(("gpus", "forks"), [(0, CAN_FORK), (2, False)])
def test_where_a_gpu_is_each_run_is_a_new_process(
    monkeypatch: pytest.MonkeyPatch, gpus: int, forks: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert processes.can_fork() == forks
