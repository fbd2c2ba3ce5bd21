"""Execution of an assignment cell by cell, and which of its checks count.

A check counts if the solution that it judges ran to its end, and the check itself did, too. What
went wrong becomes an error among a cell's outputs, as nbgrader reads them: such a check scores 0.
Runs in the sandbox, and without nbgrader, which takes seconds to import.
"""

import asyncio
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any, NamedTuple
from unittest import mock

from jupyter_core.utils import run_sync
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_output
from traitlets.config import Config

from fednb_lab.course.assignment import (
    NOT_COUNTED,
    STUB,
    first_error,
    is_check,
    is_of_handout,
    marks_of,
)

ENVIRONMENT = {
    "FEDNB_PROGRESS": "off",
    "FEDNB_DEVICE": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "MPLBACKEND": "agg",
}
OUTPUT = 20 << 20  # characters of all outputs
NEW_KERNELS = 5  # that an execution may use up by ending its kernel
# As often a cell's limit is that of the hand-out's own cells. Late on a busy machine, they would
# cost all points.
PATIENCE = 5
ANSWERS_WITHIN = 10  # seconds, of a kernel that was interrupted
START = 120  # seconds for a kernel


class Limits(NamedTuple):
    """Seconds that a cell, and all cells together, may take."""

    cell: float = 60
    total: float = 900


def execute(
    nb: NotebookNode, folder: str, limits: Limits | None = None, config: Config | None = None
) -> None:
    """Execute a notebook in place, in kernels that work in ``folder``.

    An error of a cell becomes one of its outputs, and so does that it took too long, printed too
    much, or ended its kernel. After the last, all others are executed again in a new kernel. What
    there is no time for gets an error, too. ``config`` is that of the kernel.
    """
    limits = limits or Limits()
    end = time.monotonic() + limits.total
    left_out: dict[int, list[NotebookNode]] = {}  # outputs of cells that are not tried again
    with mock.patch.dict(os.environ, ENVIRONMENT):  # which the kernel inherits
        for _ in range(NEW_KERNELS):
            executor = _Executor(nb, folder, limits.cell, end, left_out, config)
            if run_sync(executor.execute_until_it_ends)():
                break
        else:
            error = _error("NotExecuted", "the notebook ended its kernel too often")
            for cell in nb.cells[max(left_out) + 1 :]:
                if _is_executed(cell):
                    cell.outputs = [error]
    _discount(nb)


class _Executor(NotebookClient):
    """Executes what is not ``left_out`` in one kernel, and adds there what shall not run again."""

    def __init__(
        self,
        nb: NotebookNode,
        folder: str,
        cell_seconds: float,
        end: float,
        left_out: dict[int, list[NotebookNode]],
        config: Config | None,
    ) -> None:
        super().__init__(
            nb,
            config=config,
            resources={"metadata": {"path": folder}},
            kernel_name="python3",
            allow_errors=True,
            startup_timeout=START,
            iopub_timeout=60,  # nbclient's 4 seconds fail good work on a busy machine
            raise_on_iopub_timeout=True,
            interrupt_on_timeout=True,
            shutdown_kernel="immediate",
            record_timing=False,
            store_widget_state=False,
            # how the kernel is connected is nobody's business
            extra_arguments=["--Application.log_level=50"],
            error_on_timeout={"ename": "CellTimeoutError", "evalue": "it took too long"},
        )
        self.end = end
        self.cell_seconds = cell_seconds
        self.left_out = left_out
        self.reply: Mapping[str, Any] = {}  # the kernel's, to the last cell
        self.num_characters = 0

    async def execute_until_it_ends(self) -> bool:
        """Execute the cells; False if one ended the kernel, or if it no longer answers."""
        async with self.async_setup_kernel():
            for index, cell in enumerate(self.nb.cells):
                if not await self._execute(cell, index):
                    return False
        return True

    async def _execute(self, cell: NotebookNode, index: int) -> bool:
        """Execute a cell; False if the kernel is lost."""
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
        try:
            if is_check(cell):
                await self._execute_check(cell, index)
            else:
                await self.async_execute_cell(cell, index)
        except DeadKernelError:
            return _error("DeadKernelError", "it ended the kernel")
        except Exception as error:  # its outputs cannot be read, say
            return _error(type(error).__name__, str(error))
        if self.num_characters > OUTPUT:
            self.num_characters = before
            cell.outputs = [_error("TooMuchOutput", f"more than {OUTPUT >> 20} MB of output")]
        return None

    async def _execute_check(self, cell: NotebookNode, index: int) -> None:
        """Execute a check with an assert after its last line that has to fail.

        Otherwise the check was not executed to its end, or asserts are not heeded.
        """
        token = secrets.token_hex(16)
        source = cell.source
        cell.source = f'{source}\n\nassert False, "{token}"'
        try:
            await self.async_execute_cell(cell, index)
        finally:
            cell.source = source
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
        """Whether the kernel is still there after a cell took too long and was interrupted."""
        assert self.kc is not None
        self.timeout = None  # nbclient would count from the last message, whosever it is
        reply = self.async_wait_for_reply(self.kc.execute("", silent=True))
        with suppress(TimeoutError, DeadKernelError):
            return await asyncio.wait_for(reply, ANSWERS_WITHIN) is not None
        return False


def _is_executed(cell: NotebookNode) -> bool:
    """Whether a cell has code that is to be executed."""
    if cell.cell_type != "code" or not cell.source.strip():
        return False
    return "skip-execution" not in cell.metadata.get("tags", [])


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
