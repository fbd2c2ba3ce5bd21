"""What runs in the sandbox, as ``python -m fednb_lab.course.inside``: a notebook, cell by cell.

It reads ``{"notebook", "limits", "files", "user"}`` as JSON and writes ``{"outputs": [...]}`` with
a list for each cell, or null, or ``{"error": ...}``. It imports no nbgrader, to start fast.

A check counts if the solution that it judges ran to its end. What went wrong becomes an error among
a cell's outputs, as nbgrader reads them: such a check scores 0.
"""

import ctypes
import json
import os
import shutil
import sys
import time
from contextlib import suppress
from copy import deepcopy
from typing import Any, NamedTuple

import nbformat
import psutil
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output

from fednb_lab.course.notebooks import (
    NOT_COUNTED,
    STUB,
    first_error,
    is_check,
    is_of_handout,
    marks_of,
    tags_of,
)

MEMORY = 4 << 30  # bytes of a process
FILE = 100 << 20  # bytes of a file
FILES = 1024  # that a process may have open
PROCESSES = 200  # and threads
OUTPUT = 4 << 20  # characters of a cell's outputs
NEW_KERNELS = 5  # that an execution may use up by ending its kernel
# As often a cell's limit is that of the hand-out's own cells. Late on a busy machine, they would
# cost all points.
PATIENCE = 5
# `exit()` would end the kernel after its cell, and cost what follows.
FIRST = """
def _no_exit(*_):
    raise SystemExit("exit() ends no notebook: leave it out")
get_ipython().ask_exit = _no_exit
del _no_exit
"""


class Limits(NamedTuple):
    """Seconds that a cell, and all cells together, may take."""

    cell: float = 60
    total: float = 900


def main() -> None:
    """Execute the notebook that stdin tells of, and write the answer to stdout."""
    request = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answer_file:
        os.dup2(2, 1)  # what is printed is not the answer
        try:
            for place in request["files"]:
                shutil.copytree(place, os.getcwd(), dirs_exist_ok=True)
            limit_this_process(request["user"])
            nb = nbformat.from_dict(request["notebook"])
            execute(nb, Limits(*request["limits"]))
            answer: dict[str, Any] = {"outputs": [cell.get("outputs") for cell in nb.cells]}
        except Exception as error:  # no kernel can be started, say
            answer = {"error": f"{type(error).__name__}: {error}"}
        json.dump(answer, answer_file)


def limit_this_process(user: int | None) -> None:
    """Set the limits that what is executed inherits, hide this process from it, become ``user``."""
    if os.name != "posix":
        return  # students check under Windows, too
    import resource

    if user is not None:
        for place, _, files in os.walk(".", topdown=False):
            for name in (*files, "."):
                os.chown(os.path.join(place, name), user, user)
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: nobody looks into this process
    num_threads = 0  # that this user has already: the limit counts them, too
    for process in psutil.process_iter(["uids", "num_threads"]):
        uids = process.info["uids"]  # None of a process that has ended just now
        if uids and uids.real == os.getuid():
            num_threads += process.info["num_threads"] or 1
    for limit, most in (
        ("RLIMIT_DATA", MEMORY),
        ("RLIMIT_NOFILE", FILES),
        ("RLIMIT_FSIZE", FILE),
        ("RLIMIT_CORE", 0),
        ("RLIMIT_NPROC", PROCESSES + num_threads),
    ):
        with suppress(ValueError, OSError):  # stricter already, or unknown to this system
            resource.setrlimit(getattr(resource, limit), (most, most))


def execute(nb: NotebookNode, limits: Limits) -> None:
    """Execute a notebook in place, in kernels that work in this folder.

    An error of a cell becomes one of its outputs, and so does that it took too long, printed too
    much, or ended its kernel. After a cell that was late or ended its kernel, all others are
    executed again in a new one. What there is no time for gets an error, too.
    """
    end = time.monotonic() + limits.total
    lost: dict[int, list[NotebookNode]] = {}  # outputs of cells that are not tried again
    nb.cells.insert(0, new_code_cell(FIRST))
    for _ in range(NEW_KERNELS):
        place = _execute_until_lost(nb, limits.cell, end, lost)
        if place is None:
            break
        lost[place] = nb.cells[place].outputs
    else:
        for cell in nb.cells[max(lost) + 1 :]:
            if _is_executed(cell):
                cell.outputs = [_error("NotExecuted", "the notebook ended its kernel too often")]
    del nb.cells[0]
    _discount(nb)


def _execute_until_lost(
    nb: NotebookNode, cell_seconds: float, end: float, lost: dict[int, list[NotebookNode]]
) -> int | None:
    """Execute all cells but the ``lost`` in one kernel; the place of one that loses it, or None."""
    client = Client(nb)
    with client.setup_kernel():
        for place, cell in enumerate(nb.cells):
            if not _is_executed(cell):
                continue
            if place in lost:
                cell.outputs = deepcopy(lost[place])
                continue
            left = end - time.monotonic()
            if left <= 0:
                cell.outputs = [_error("NotExecuted", "the time for all cells was over")]
                continue
            allowed = cell_seconds * (PATIENCE if is_of_handout(cell) else 1)
            client.timeout = max(1, round(min(allowed, left)))  # 0 would be no limit
            if not _execute_cell(client, cell, place):
                return place
    return None


def _execute_cell(client: "Client", cell: NotebookNode, place: int) -> bool:
    """Execute a cell; False if its kernel cannot be used any more."""
    cell.outputs = []
    try:
        client.execute_cell(cell, place)
    except DeadKernelError:
        cell.outputs.append(_error("DeadKernelError", "it ended the kernel"))
        return False
    except Exception as error:  # its outputs cannot be read, say
        cell.outputs.append(_error(type(error).__name__, str(error)))
        return False
    is_late = first_error(cell).startswith("CellTimeoutError")
    if len(str(cell.outputs)) > OUTPUT:
        cell.outputs = [_error("TooMuchOutput", f"more than {OUTPUT >> 20} MB of output")]
    if is_check(cell):  # nbgrader would take a last value for points
        cell.outputs = [one for one in cell.outputs if one.output_type != "execute_result"]
    return not is_late


class Client(NotebookClient):
    """Executes cells one by one, and goes on after an error."""

    def __init__(self, nb: NotebookNode) -> None:
        super().__init__(
            nb,
            resources={"metadata": {"path": os.getcwd()}},
            kernel_name="python3",
            allow_errors=True,
            startup_timeout=120,
            iopub_timeout=60,  # nbclient's 4 seconds fail good work on a busy machine
            raise_on_iopub_timeout=True,
            interrupt_on_timeout=True,
            shutdown_kernel="immediate",
            record_timing=False,
            store_widget_state=False,
            extra_arguments=["--Application.log_level=50"],
            error_on_timeout={"ename": "CellTimeoutError", "evalue": "it took too long"},
        )

    def on_cell_executed(self, **event: Any) -> None:
        """See to it that an error that was shown nowhere, as that of `exit`, is seen."""
        reply = event["execute_reply"]["content"]
        outputs = event["cell"].outputs
        names = [output.ename for output in outputs if output.output_type == "error"]
        if reply["status"] == "error" and reply["ename"] not in names:
            outputs.insert(0, _error(reply["ename"], reply["evalue"]))


def _is_executed(cell: NotebookNode) -> bool:
    """Tell whether a cell has code that is to be executed."""
    if cell.cell_type != "code" or not cell.source.strip():
        return False
    return "skip-execution" not in tags_of(cell)


def _error(name: str, value: str) -> NotebookNode:
    return new_output("error", ename=name, evalue=value, traceback=[f"{name}: {value}"])


def _discount(nb: NotebookNode) -> None:
    """Give a check an error if the solution that it judges did not run to its end.

    A check judges the solutions above it, up to those of the check before. If there are none in
    between, as one solution has several checks, it judges the same.
    """
    failure = ""
    has_stub = False
    was_judged = False  # by a check above
    for cell in nb.cells:
        marks = marks_of(cell)
        if cell.cell_type != "code" or not marks:
            continue
        if marks["solution"]:
            if was_judged:
                failure = ""
                has_stub = False
                was_judged = False
            has_stub = has_stub or STUB.splitlines()[-1] in cell.source
            error = first_error(cell)
            failure = failure or (error and f"its solution ended with {error}")
        elif marks["grade"]:
            was_judged = True
            reason = failure
            if has_stub and "NotImplementedError" in (failure or first_error(cell)):
                reason = "not done yet"
            if reason:
                cell.outputs.insert(0, _error(NOT_COUNTED, reason))


if __name__ == "__main__":
    main()
