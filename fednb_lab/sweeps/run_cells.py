"""The cells of a notebook, executed: those that a run needs in this very process, or all.

A kernel would make a run just as well, but starting one costs more CPU time than many a short run.

As a program (`fednb_lab.sweeps.processes` starts it, and writes its environment): ``python -m
fednb_lab.sweeps.run_cells NOTEBOOK PARAMETERS [COPY]``, with the parameters as JSON. With the path of a
COPY papermill executes all cells, and writes the executed notebook there. Standard input is open as
long as somebody waits for the result. The exit status is 1 after an error, which is then the last
line of standard error.
"""

import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednb import papers

if TYPE_CHECKING:
    from nbformat import NotebookNode

TAGS = {"setup", "parameters", "export", "run"}  # of the cells that a run needs


class CellError(Exception):
    """An error in a cell, in one line; its traceback has been printed."""


def reduced(notebook: str) -> "NotebookNode":
    """What a run executes: cells tagged setup, parameters, export or run, without outputs."""
    import nbformat  # slow to import

    content = nbformat.read(papers.path(notebook), as_version=4)
    content.cells = [
        cell
        for cell in content.cells
        if cell.cell_type == "code" and TAGS.intersection(cell.metadata.get("tags", []))
    ]
    for cell in content.cells:
        cell.outputs = []
        cell.execution_count = None
    return content


def execute_run(notebook: str, parameters: Mapping[str, Any]) -> None:
    """Execute what a run needs of a notebook, and print what its cells print.

    The parameters are given by flat names. They are set in a cell behind the notebook's own, as
    papermill does it. The first cell with an error ends the run with a `CellError`. This process
    becomes the notebook's: it works in its folder, and imports from there, too.
    """
    file = papers.path(notebook).absolute()
    sources = _sources(notebook, papers.arrange(notebook, parameters))
    sys.path.insert(0, str(file.parent))
    os.chdir(file.parent)
    shell = _new_shell()
    shell.user_ns["__session__"] = str(file)  # as Jupyter has it: see `papers.settings`
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
    """A shell of IPython's without history, colours, and what last lines show to readers."""
    from IPython.core.interactiveshell import InteractiveShell  # slow to import
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.ast_node_interactivity = "none"
    return InteractiveShell.instance(config=config)


def execute_whole(notebook: Path, parameters: Mapping[str, Any], copy: Path) -> None:
    """Execute all cells of a notebook into a copy, which is written even if one of them fails."""
    import papermill  # slow to import

    try:
        papermill.execute_notebook(
            str(notebook),
            str(copy),
            dict(parameters),
            kernel_name="python3",
            language="python",
            cwd=str(notebook.parent),
            progress_bar=False,
            start_timeout=300,  # of the kernel; as long as a busy machine may need
            iopub_timeout=60,  # for what a cell prints, after it has ended
            extra_arguments=["--Application.log_level=50"],  # without the kernel's own remarks
        )
    except papermill.PapermillExecutionError as error:
        print(error)  # with its traceback
        message = f"cell [{error.exec_count}]: {error.ename}: {error.evalue}"
        raise CellError(message) from error


def in_one_line(error: BaseException) -> str:
    """An error in one line; that of the cell, if it is one's."""
    text = str(error) if isinstance(error, CellError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def end_with(descriptor: int) -> None:
    """End this process when the other end of a pipe is closed: nobody waits for it any more."""
    os.read(descriptor, 1)
    os._exit(1)


def main(notebook: str, parameters: str, copy: str = "") -> None:
    """The program, see above."""
    threading.Thread(target=end_with, args=(0,), daemon=True).start()
    try:
        if copy:
            execute_whole(Path(notebook), json.loads(parameters), Path(copy))
        else:
            execute_run(notebook, json.loads(parameters))
    except Exception as error:
        sys.stdout.flush()  # the traceback, before the last line
        sys.exit(in_one_line(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
