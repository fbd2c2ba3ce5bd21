"""A run in this very process: the cells of its notebook that it needs, in an IPython shell.

A kernel would do the same, but starting one costs more CPU time than many a short run.
"""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fednb import papers

if TYPE_CHECKING:
    from nbformat import NotebookNode

TAGS = {"setup", "parameters", "export", "run"}  # of the cells that a run needs


class CellError(Exception):
    """An error in a cell, in one line; the shell has printed its traceback."""


def reduced(notebook: str) -> "NotebookNode":
    """What a run executes: cells tagged setup, parameters, export or run, without outputs."""
    import nbformat  # slow to import

    content = nbformat.read(papers.path(notebook), as_version=4)
    cells = []
    for cell in content.cells:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type != "code" or not TAGS & set(tags):
            continue
        cell.outputs = []
        cell.execution_count = None
        # In a course's hand-out this tag leaves out what its checks do not need, and the run is
        # among it.
        cell.metadata["tags"] = [tag for tag in tags if tag != "skip-execution"]
        cells.append(cell)
    content.cells = cells
    return content


def execute_run(notebook: str, parameters: Mapping[str, Any]) -> None:
    """Execute what a run needs of a notebook, and print what its cells print.

    The parameters are given by flat names. They are set in a cell behind the notebook's own, as
    papermill does it. The first cell with an error ends the run with a `CellError`. This process
    becomes the notebook's: it works in its folder, and imports from there, too.
    """
    file = papers.path(notebook)
    sources = _sources(notebook, papers.arrange(notebook, parameters))
    sys.path.insert(0, str(file.parent.absolute()))
    os.chdir(file.parent)
    shell = _new_shell()
    shell.ast_node_interactivity = (
        "none"  # the values of last lines are for readers of the notebook
    )
    for source in sources:
        result = shell.run_cell(source, store_history=True)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            where = f"cell [{result.execution_count}]"
            raise CellError(f"{where}: {type(error).__name__}: {error}") from error


def _sources(notebook: str, parameters: Mapping[str, Any]) -> list[str]:
    """The cells that a run needs; behind that of the parameters one that sets these."""
    sources = []
    for cell in reduced(notebook).cells:
        sources.append(cell.source)
        if "parameters" in cell.metadata["tags"]:
            assignments = [f"{name} = {value!r}" for name, value in parameters.items()]
            sources.append("\n".join(["# Parameters", *assignments]))
    return sources


def _new_shell() -> Any:
    """A shell of IPython's that writes no history and no colours."""
    from IPython.core.interactiveshell import InteractiveShell  # slow to import
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    return InteractiveShell.instance(config=config)


def in_one_line(error: BaseException) -> str:
    """An error in one line; that of the cell, if it is one's."""
    text = str(error) if isinstance(error, CellError) else f"{type(error).__name__}: {error}"
    if hasattr(error, "ename"):  # papermill's, of a whole notebook
        text = f"cell [{error.exec_count}]: {error.ename}: {error.evalue}"  # type: ignore[attr-defined]
    return " ".join(text.split())


def end_with(descriptor: int) -> None:
    """End this process when the other end of a pipe is closed: nobody waits for it any more."""
    os.read(descriptor, 1)
    os._exit(1)
