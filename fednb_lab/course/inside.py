"""What runs in the sandbox, as ``python -m fednb_lab.course.inside``: a notebook, cell by cell.

It reads ``{"notebook", "limits", "files", "user"}`` as JSON and writes ``{"outputs": [...]}`` with
a list for each cell, or null, or ``{"error": ...}``. It imports no nbgrader, to start fast.

A check counts if the solution that it judges ran to its end, and the check itself did, too. What
went wrong becomes an error among a cell's outputs, as nbgrader reads them: such a check scores 0.
"""

import ast
import builtins
import ctypes
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any, NamedTuple

import nbformat
import psutil
from jupyter_core.utils import run_sync
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_output

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
OUTPUT = 4 << 20  # characters of all outputs
NEW_KERNELS = 5  # that an execution may use up by ending its kernel
# As often a cell's limit is that of the hand-out's own cells. Late on a busy machine, they would
# cost all points.
PATIENCE = 5
START = 120  # seconds for a kernel
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
    much, or ended its kernel. After the last, all others are executed again in a new kernel. What
    there is no time for gets an error, too.
    """
    end = time.monotonic() + limits.total
    left_out: dict[int, list[NotebookNode]] = {}  # outputs of cells that are not tried again
    hidden = hidden_builtins(cell.source for cell in nb.cells if _is_students(cell))
    for _ in range(NEW_KERNELS):
        executor = Executor(nb, limits.cell, end, left_out, hidden)
        if run_sync(executor.execute_until_it_ends)():
            break
    else:
        for cell in nb.cells[max(left_out) + 1 :]:
            if _is_executed(cell):
                cell.outputs = [_error("NotExecuted", "the notebook ended its kernel too often")]
    _discount(nb)


class Executor(NotebookClient):
    """Executes what is not ``left_out`` in one kernel, and adds there what shall not run again."""

    def __init__(
        self,
        nb: NotebookNode,
        cell_seconds: float,
        end: float,
        left_out: dict[int, list[NotebookNode]],
        hidden: set[str],
    ) -> None:
        super().__init__(
            nb,
            resources={"metadata": {"path": os.getcwd()}},
            kernel_name="python3",
            allow_errors=True,
            startup_timeout=START,
            iopub_timeout=60,  # nbclient's 4 seconds fail good work on a busy machine
            raise_on_iopub_timeout=True,
            interrupt_on_timeout=True,
            shutdown_kernel="immediate",
            record_timing=False,
            store_widget_state=False,
            extra_arguments=["--Application.log_level=50"],
            error_on_timeout={"ename": "CellTimeoutError", "evalue": "it took too long"},
        )
        self.end = end
        self.cell_seconds = cell_seconds
        self.left_out = left_out
        self.hidden = hidden
        self.reply: Mapping[str, Any] = {}  # the kernel's, to the last cell
        self.num_characters = 0

    async def execute_until_it_ends(self) -> bool:
        """Execute the cells; False if one ended the kernel, or if it no longer answers."""
        async with self.async_setup_kernel():
            self.timeout = START
            await self._run(FIRST)
            for index, cell in enumerate(self.nb.cells):
                if not await self._execute(cell, index):
                    return False
        return True

    async def _run(self, source: str) -> None:
        """Execute what is no cell; what it prints or raises is nobody's business."""
        last = self.nb.cells[-1]
        try:
            await self.async_execute_cell(nbformat.v4.new_code_cell(source), -1)
        finally:
            self.nb.cells[-1] = last  # where nbclient has put what it executed

    async def _execute(self, cell: NotebookNode, index: int) -> bool:
        """Execute a cell; False if the kernel is lost."""
        if cell.cell_type == "code" and "skip-execution" in tags_of(cell):
            self.timeout = START
            for statement in imports_in(cell.source):  # a solution may use what it imports
                with suppress(DeadKernelError):
                    await self._run(statement)
        if not _is_executed(cell):
            return True
        if index in self.left_out:
            cell.outputs = deepcopy(self.left_out[index])
            return True
        if time.monotonic() > self.end:
            cell.outputs = [_error("NotExecuted", "the time for all cells was over")]
            return True
        cell.outputs = []
        error = await self._error_after(cell, index)
        if error is not None:
            cell.outputs.append(error)
        is_late = first_error(cell).startswith("CellTimeoutError")
        if error is None and not is_late:
            return True
        self.left_out[index] = deepcopy(cell.outputs)
        return error is None and await self._answers()

    async def _error_after(self, cell: NotebookNode, index: int) -> NotebookNode | None:
        """Execute a cell; the error that tells how it ended its kernel, or None."""
        allowed = self.cell_seconds * (PATIENCE if is_of_handout(cell) else 1)
        # whole seconds, and 0 would be no limit
        self.timeout = max(1, round(min(allowed, self.end - time.monotonic())))
        before = self.num_characters
        source = cell.source
        if marks_of(cell).get("locked"):
            cell.source = with_builtins(source, self.hidden)
        try:
            if is_check(cell):
                await self._execute_check(cell, index)
            else:
                await self.async_execute_cell(cell, index)
        except DeadKernelError:
            return _error("DeadKernelError", "it ended the kernel")
        except Exception as error:  # its outputs cannot be read, say
            return _error(type(error).__name__, str(error))
        finally:
            cell.source = source
        if self.num_characters > OUTPUT:
            self.num_characters = before
            cell.outputs = [_error("TooMuchOutput", f"more than {OUTPUT >> 20} MB of output")]
        return None

    async def _execute_check(self, cell: NotebookNode, index: int) -> None:
        """Execute a check with an assert after its last line that has to fail.

        Otherwise the check was not executed to its end, or asserts are not heeded.
        """
        token = secrets.token_hex(16)
        cell.source += f'\n\nassert False, "{token}"'
        await self.async_execute_cell(cell, index)
        cell.outputs = [output for output in cell.outputs if output.get("evalue") != token]
        for output in cell.outputs:
            if output.output_type == "execute_result":  # which nbgrader would take for points
                output.output_type = "display_data"
                del output["execution_count"]
        if self.reply.get("evalue") != token and not first_error(cell):
            cell.outputs.append(
                _error("CheckNotExecuted", "something kept it from running to its end")
            )

    def on_cell_executed(self, **event: Any) -> None:
        """See to it that an error that was shown nowhere, or with another name, is seen."""
        self.reply = event["execute_reply"]["content"]
        outputs = event["cell"].outputs
        names = [output.ename for output in outputs if output.output_type == "error"]
        if self.reply["status"] == "error" and self.reply["ename"] not in names:
            outputs.insert(0, _error(self.reply["ename"], self.reply["evalue"]))

    def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> Any:
        """Take an output of the kernel over, unless there is too much of all."""
        if msg["msg_type"] != "status":
            self.num_characters += len(str(msg["content"]))
            if self.num_characters > OUTPUT:
                cell.outputs = []
                return None
        try:
            return super().process_message(msg, cell, cell_index)
        except CellControlSignal:
            raise
        except Exception:  # a message that no kernel sends by itself
            return None

    async def _answers(self) -> bool:
        """Tell whether the kernel is still there after a cell was interrupted."""
        self.timeout = 10
        before = self.reply
        with suppress(DeadKernelError):
            await self._run("pass")
            return self.reply is not before and self.reply["status"] == "ok"
        return False


def statements(source: str) -> list[ast.stmt]:
    """Return the statements of a cell, magics and ``!ls`` included; none if it cannot be read."""
    try:
        return ast.parse(source).body
    except SyntaxError:
        pass
    from IPython.core.inputtransformer2 import TransformerManager  # slow to import

    try:
        return ast.parse(TransformerManager().transform_cell(source)).body
    except SyntaxError:
        return []


def imports_in(source: str) -> list[str]:
    """Return the import statements of a cell, those within blocks excepted."""
    imports = (ast.Import, ast.ImportFrom)
    return [ast.unparse(node) for node in statements(source) if isinstance(node, imports)]


def hidden_builtins(sources: Iterable[str]) -> set[str]:
    """Return the builtins that ``from numpy import *`` in a student's code hides: any."""
    for source in sources:
        for node in statements(source):
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                names = {name for name in dir(builtins) if not name.startswith("_")}
                return names - {"super"}  # which means what stands around it
    return set()


def with_builtins(source: str, hidden: set[str]) -> str:
    """Return a cell that reads the ``hidden`` builtins from their module.

    Names that it binds itself stay as they are.
    """
    if not hidden:
        return source
    tree = ast.parse(source)
    own = set()
    inside_text = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):  # its parts have no places of their own
            inside_text |= set(ast.walk(node))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.arg):
            own.add(node.arg if isinstance(node, ast.arg) else node.name)
    read = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node not in inside_text and node.id in hidden - own:
            read.append(node)
    lines = [line.encode() for line in source.split("\n")]  # places are counted in bytes
    for node in sorted(read, key=lambda node: -node.col_offset):
        line = lines[node.lineno - 1]
        begin = line[: node.col_offset]
        lines[node.lineno - 1] = begin + b'__import__("builtins").' + line[node.col_offset :]
    return b"\n".join(lines).decode()


def _is_students(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and not marks_of(cell).get("locked")


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
