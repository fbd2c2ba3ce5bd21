"""What runs in the sandbox, as ``python -m fednb_lab.course.inside``: a notebook, cell by cell.

It reads ``{"notebook", "limits", "files", "user"}`` as JSON and writes ``{"outputs": [...]}`` with
a list for each cell, or null, or ``{"error": ...}``. It imports no nbgrader, to start fast.

A check counts if the solution that it judges ran to its end. What went wrong becomes an error among
a cell's outputs, as nbgrader reads them: such a check scores 0.
"""

import base64
import json
import os
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import psutil
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_output

from fednb_lab.course.notebooks import (
    LATE,
    NOT_COUNTED,
    NOT_DONE,
    TOOK_LONGER,
    first_error,
    is_check,
    is_executed,
    marks_of,
)

MEMORY = 4 << 30  # bytes of a process
FILE = 100 << 20  # bytes of a file
PROCESSES = 200  # and threads
OUTPUT = 4 << 20  # characters of a cell's outputs
ANSI = re.compile(r"\x1b\[[\d;]*m")  # colours of a traceback
FRAME = re.compile(r"Cell In\[(\d+)\], line (\d+)")  # in a traceback
LINE_TOLD = re.compile(r"line \d+\)$")  # at the end of a syntax error


class Limits(NamedTuple):
    """Seconds that a cell, and all cells together, may take."""

    cell: float = 60
    total: float = 900


def main() -> None:
    """Execute the notebook that stdin tells of, and write the answer to stdout."""
    request = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace") as answer_file:
        os.dup2(2, 1)  # what is printed is not the answer
        try:
            if sys.platform == "linux":  # students check elsewhere, too
                limit_this_process(request["user"])
            for name, content in request["files"].items():
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                Path(name).write_bytes(base64.b64decode(content))
            nb = nbformat.from_dict(request["notebook"])
            execute(nb, Limits(*request["limits"]))
            answer: dict[str, Any] = {"outputs": [cell.get("outputs") for cell in nb.cells]}
        except Exception as error:  # no kernel can be started, say
            answer = {"error": f"{type(error).__name__}: {error}"}
        json.dump(answer, answer_file, ensure_ascii=False)  # half an emoji is no text


def limit_this_process(user: int | None) -> None:
    """Set limits that what is executed inherits, hide this process from it, become ``user``."""
    import ctypes
    import resource

    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: nobody looks into this process
    running = [process.info for process in psutil.process_iter(["uids", "num_threads"])]
    own = [info for info in running if info["uids"] and info["uids"].real == os.getuid()]
    num_threads = sum(info["num_threads"] or 1 for info in own)  # the limit counts them, too
    for limit, most in (
        (resource.RLIMIT_DATA, MEMORY),
        (resource.RLIMIT_FSIZE, FILE),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, PROCESSES + num_threads),
    ):
        with suppress(ValueError):  # stricter already
            resource.setrlimit(limit, (most, most))


def execute(nb: NotebookNode, limits: Limits) -> None:
    """Execute a notebook in place, in a kernel that works in this folder.

    An error of a cell becomes one of its outputs, and so does that it took too long, printed too
    much, or ended the kernel. What cannot be executed afterwards gets an error, too.
    """
    end = time.monotonic() + limits.total
    over = ""  # why nothing more is executed
    client = _client(nb)
    with client.setup_kernel():
        for place, cell in enumerate(nb.cells):
            if not is_executed(cell):
                continue
            left = end - time.monotonic()
            if left <= 0:
                over = over or "the time for all cells was over"
            if over:
                cell.outputs = [_error("NotExecuted", over)]
                continue
            client.timeout = max(1, round(min(limits.cell, left)))  # 0 would be no limit
            guess = "an endless loop?" if left > limits.cell else "all that was left of the time"
            told = f"{TOOK_LONGER} {client.timeout} s ({guess})"
            client.error_on_timeout = {"ename": LATE, "evalue": told}
            over = _execute_cell(client, cell, place)
    _tell_lines(nb)
    _discount(nb)


def _execute_cell(client: NotebookClient, cell: NotebookNode, place: int) -> str:
    """Execute a cell; why its kernel cannot be used any more, or ""."""
    cell.outputs = []
    try:
        client.execute_cell(cell, place)
    except DeadKernelError:
        cell.outputs.append(_error("DeadKernelError", "it ended the kernel"))
        return "a cell above ended the kernel"
    except Exception as error:  # it cannot be interrupted, say, or its outputs cannot be read
        name = type(error).__name__
        told = client.error_on_timeout["evalue"] if name == LATE else str(error)
        cell.outputs.append(_error(name, told))
        return "a cell above could not be ended"
    if len(str(cell.outputs)) > OUTPUT:
        cell.outputs = [_error("TooMuchOutput", f"more than {OUTPUT >> 20} MB of output")]
    if is_check(cell):  # nbgrader would take a last value for points
        cell.outputs = [one for one in cell.outputs if one.output_type != "execute_result"]
    return ""


def _client(nb: NotebookNode) -> NotebookClient:
    """Return what executes cells one by one, in this folder, and goes on after an error."""
    return NotebookClient(
        nb,
        resources={"metadata": {"path": os.getcwd()}},
        kernel_name="python3",
        allow_errors=True,
        on_cell_executed=_show_error,
        startup_timeout=120,
        iopub_timeout=60,  # nbclient's 4 seconds fail good work on a busy machine
        raise_on_iopub_timeout=True,
        interrupt_on_timeout=True,
        shutdown_kernel="immediate",
        record_timing=False,
        store_widget_state=False,
        extra_arguments=["--Application.log_level=50"],
    )


def _show_error(cell: NotebookNode, execute_reply: dict[str, Any], **_: Any) -> None:
    """See to it that an error that was shown nowhere, as that of `sys.exit`, is seen."""
    reply = execute_reply["content"]
    names = [output.ename for output in cell.outputs if output.output_type == "error"]
    if reply["status"] == "error" and reply["ename"] not in names:
        cell.outputs.insert(0, _error(reply["ename"], reply["evalue"]))


def _error(name: str, value: str) -> NotebookNode:
    return new_output("error", ename=name, evalue=value, traceback=[f"{name}: {value}"])


def _tell_lines(nb: NotebookNode) -> None:
    """Add to each error the line of the solution, in its cell, in which it arose."""
    solutions = [cell for cell in nb.cells if marks_of(cell).get("solution")]
    counts = {str(cell.get("execution_count")) for cell in solutions}
    for cell in nb.cells:
        for output in cell.get("outputs", []):
            if output.output_type != "error" or LINE_TOLD.search(str(output.evalue)):
                continue
            traceback = ANSI.sub("", "\n".join(map(str, output.traceback)))
            lines = [line for count, line in FRAME.findall(traceback) if count in counts]
            if lines:
                first, *rest = str(output.evalue).split("\n")
                first += f" (line {lines[-1]} of the solution)"
                output.evalue = "\n".join([first, *rest])


def _discount(nb: NotebookNode) -> None:
    """Give a check an error if the solution that it judges did not run to its end.

    A check judges the solutions above it, up to those of the check before. If there are none in
    between, as one solution has several checks, it judges the same.
    """
    failure = ""
    was_judged = False  # by a check above
    for cell in nb.cells:
        marks = marks_of(cell)
        if cell.cell_type != "code" or not marks:
            continue
        if marks["solution"]:
            error = first_error(cell)
            failure = error if was_judged else failure or error
            was_judged = False
        elif marks["grade"]:
            was_judged = True
            verb = "" if failure.startswith(TOOK_LONGER) else "ended with "
            reason = failure and f"its solution {verb}{failure}"
            if (failure or first_error(cell)).startswith("NotImplementedError:"):  # of the stub
                reason = NOT_DONE
            if reason:
                cell.outputs.insert(0, _error(NOT_COUNTED, reason))


if __name__ == "__main__":
    main()
