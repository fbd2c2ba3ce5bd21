"""A process that has imported what runs need, and forks for each: a run then costs its training and
little more.

As a program (`Server` starts it): ``python -m fednb_lab.sweeps.server``. Each line of standard input is
a run, as JSON: its environment, notebook, parameters, and the log that its output is appended to.
Each line of standard output is the exit status of one. When standard input is closed, the server
ends, and what it has forked ends with it.
"""

import importlib
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from fednb_lab.sweeps.run_cells import end_with, execute_run, in_one_line

# Linux: where a fork of what has not used its libraries yet is safe.
CAN_FORK = sys.platform.startswith("linux")
POLL_SECONDS = 0.2  # how often is asked whether a process has ended, or shall end

# What the cells of runs import, slowly. None of it starts a thread or touches a GPU.
_PRELOADED = (
    "IPython.core.interactiveshell",
    "nbformat",
    "matplotlib.pyplot",
    "sklearn.datasets",
    "torch._dynamo",  # the first step of an optimizer imports it
    "fednb.run",
    "fednb.gpu.stacked",
    "fednb.plots",
    "fednb.prototypes",
)

Stop = Callable[[], bool]  # whether a process shall end, as nobody waits for it any more


def start(
    env: Mapping[str, str], program: str, *arguments: str, **streams: Any
) -> subprocess.Popen[str]:
    """A process of one of this room's programs, which ends when its standard input is closed."""
    # -P: not the package of the folder where one works.
    command = [sys.executable, "-P", "-m", f"fednb_lab.sweeps.{program}", *arguments]
    return subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in a terminal is for us
        text=True,
        **streams,
    )


class Server:
    """The server of one slot, started when it is first needed; a run at a time.

    Its process ends when it is closed, with our own, and where ``idle_seconds`` are given after so
    long without a run.
    """

    def __init__(self, idle_seconds: float | None = None) -> None:
        self._idle_seconds = idle_seconds
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()  # held by a run, and by what ends the process
        self._code = ""  # that the process has imported
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile()  # what it prints itself: only when it fails

    def run(
        self,
        env: Mapping[str, str],
        notebook: str,
        parameters: Mapping[str, Any],
        log: Path,
        stop: Stop,
        code: str = "",
    ) -> int:
        """The exit status of a run, negative after a signal; ``stop`` ends run and server.

        With another ``code`` (a digest) than for the last run everything is imported anew.
        """
        request = {
            "environment": dict(env),
            "notebook": notebook,
            "parameters": parameters,
            "log": str(log),
        }
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if code != self._code:
                self._end()
                self._code = code
            if self._process is None:
                self._process = start(env, "server", stdout=subprocess.PIPE, stderr=self._errors)
            try:
                return self._ask(self._process, json.dumps(request), log, stop)
            finally:
                if self._idle_seconds is not None:
                    self._timer = threading.Timer(self._idle_seconds, self.close)
                    self._timer.daemon = True
                    self._timer.start()

    def _ask(self, process: subprocess.Popen[str], request: str, log: Path, stop: Stop) -> int:
        assert process.stdin is not None and process.stdout is not None
        try:
            print(request, file=process.stdin, flush=True)
        except BrokenPipeError:  # it has just died
            return self._died(process, log)
        while not select.select([process.stdout], [], [], POLL_SECONDS)[0]:
            if stop():
                self._end()
                return process.returncode
        answer = process.stdout.readline()
        return int(answer) if answer else self._died(process, log)

    def _died(self, process: subprocess.Popen[str], log: Path) -> int:
        """Its exit status, when it should have answered; what it said goes into the log."""
        status = process.wait()
        self._errors.seek(0)
        with log.open("ab") as file:
            file.write(self._errors.read())
        self._errors.seek(0)
        self._errors.truncate()
        self._end()
        return status or 1

    def close(self) -> None:
        """End the process, after the run that it makes."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.communicate()


def main() -> None:
    """The program, see above."""
    for module in _PRELOADED:
        importlib.import_module(module)
    assert threading.active_count() == 1, "a process with threads must not fork"
    answers = os.dup(1)
    os.dup2(2, 1)  # so that nothing else is taken for an answer
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.close(answers)
            _run_in_fork(json.loads(line))
        _, status = os.waitpid(pid, 0)
        os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _run_in_fork(request: Mapping[str, Any]) -> NoReturn:
    """Make a run, and end; before that if the server's standard input is closed."""
    threading.Thread(target=end_with, args=(os.dup(0),), daemon=True).start()
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(request["environment"])
    status = 0
    try:
        execute_run(request["notebook"], request["parameters"])
    except BaseException as error:
        status = 1
        sys.stdout.flush()
        print(in_one_line(error), file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # what the server wants done at its end is not the fork's


if __name__ == "__main__":
    main()
