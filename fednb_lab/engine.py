"""Notebooks executed by papermill: what a run needs of one in this very process, or all of it.

Papermill injects the parameters. Its usual engine starts a kernel, which costs more CPU time than
many a short run; `CellsEngine`, registered as ``fednb``, executes just the cells that a run needs, and
here.
"""

import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import papermill
from IPython.core.interactiveshell import InteractiveShell
from nbformat import NotebookNode
from papermill.engines import Engine, NotebookExecutionManager, papermill_engines
from traitlets.config import Config

from fednb import papers
from fednb.errors import FednbError
from fednb_lab.jobs import to_notebook_parameters
from fednb_lab.processes import CellError

ENGINE = "fednb"
TAGS = {"setup", "parameters", "export", "run"}  # of the cells that a run needs
_KERNEL = {"kernel_name": "python3", "language": "python"}  # whatever a notebook says


class _Shell(InteractiveShell):
    """IPython without history, colours, and what last lines show to readers."""

    def showtraceback(self, *arguments: Any, **options: Any) -> None:
        """Print where an error comes from; Ctrl-C and our own errors say enough themselves."""
        if not isinstance(sys.exc_info()[1], KeyboardInterrupt | FednbError):
            super().showtraceback(*arguments, **options)


def _new_shell() -> _Shell:
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.ast_node_interactivity = "none"
    _Shell.clear_instance()  # of another run in this process
    return _Shell.instance(config=config)


def _place(shell: _Shell, error: BaseException) -> str:
    """The innermost line of the notebook's cells, or of its modules, that an error went through."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        cell = shell.compile.format_code_name(frame.filename)  # such as ("Cell", "In[3]")
        is_module = frame.filename.endswith(".ipynb")
        if cell or is_module:
            file = Path(frame.filename).name if is_module else f"cell {cell[1].removeprefix('In')}"
            return f"{file}, line {frame.lineno}, `{frame.line}`"
    return ""


class CellsEngine(Engine):  # type: ignore[misc]  # papermill has no types
    """An engine that executes the code cells of a notebook in this process, one after the other.

    What they print is printed. The first that fails ends the run with a `CellError`.
    """

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: NotebookExecutionManager, kernel_name: str, session: str, **_: Any
    ) -> None:
        """Execute the cells; IPython keeps their count."""
        shell = _new_shell()
        shell.user_ns["__session__"] = session  # as Jupyter says which notebook it is
        for cell in nb_man.nb.cells:
            result = shell.run_cell(cell.source, store_history=True)
            error = result.error_before_exec or result.error_in_exec
            if isinstance(error, KeyboardInterrupt):
                raise error
            if error is not None:
                where = _place(shell, error) or f"cell [{result.execution_count}]"
                raise CellError(f"{where}: {type(error).__name__}: {error}") from error


papermill_engines.register(ENGINE, CellsEngine)


def reduced(notebook: str) -> NotebookNode:
    """Read what a run executes: cells tagged setup, parameters, export or run."""
    content = nbformat.read(papers.path(notebook), as_version=4)
    content.cells = [
        cell
        for cell in content.cells
        if cell.cell_type == "code" and TAGS.intersection(cell.metadata.get("tags", []))
    ]
    return content


def execute_run(notebook: str, parameters: Mapping[str, Any]) -> None:
    """Execute what a run needs of a notebook in this process, and print what its cells print.

    The parameters are given by flat names; a `NotebookError` tells of one that the notebook does not
    know. The cells work in the notebook's folder, and import from there, too.
    """
    file = papers.path(notebook).absolute()
    with papers.importing_from(file.parent):
        papermill.execute_notebook(
            reduced(notebook),
            None,
            to_notebook_parameters(notebook, parameters),
            engine_name=ENGINE,
            session=str(file),
            cwd=file.parent,
            progress_bar=False,
            **_KERNEL,
        )


def execute_whole(notebook: Path, copy: Path, parameters: Mapping[str, Any]) -> None:
    """Execute all cells of a notebook, in a kernel, into a copy.

    It is written even if one of them fails, with a `CellError`.
    """
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # this environment's python3, not a user's
    os.environ["JPY_SESSION_NAME"] = str(notebook.absolute())
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        papermill.execute_notebook(
            nbformat.read(notebook, as_version=4),  # a path with {} papermill would fill in
            str(copy).replace("{", "{{").replace("}", "}}"),
            dict(parameters),
            cwd=notebook.absolute().parent,
            progress_bar=False,
            start_timeout=300,  # of the kernel; as long as a busy machine may need
            iopub_timeout=60,  # for what a cell prints, after it has ended
            extra_arguments=["--Application.log_level=50"],  # without the kernel's own remarks
            **_KERNEL,
        )
    except papermill.PapermillExecutionError as error:
        print(error)  # with its traceback
        message = f"cell [{error.exec_count}]: {error.ename}: {error.evalue}"
        raise CellError(message) from error
