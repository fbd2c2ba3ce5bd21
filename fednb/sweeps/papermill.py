"""What a process of a run executes: the cells of a notebook that the run needs, by papermill.

As a program it is the process itself (`fednb.sweeps.processes` starts it, and writes its environment):
``python -m fednb.sweeps.papermill NOTEBOOK PARAMETERS [COPY]``, with the parameters as JSON. With the path of a COPY all
cells are executed, and the executed notebook is written there. Standard input is open as long as somebody waits for
the result. The exit status is 1 after an error, which is then the last line of standard error.
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


def reduced(notebook: str) -> "NotebookNode":
    """What a run executes of a notebook: its code cells tagged setup, parameters, export or run, without outputs."""
    import nbformat  # slow to import

    content = nbformat.read(papers.path(notebook), as_version=4)
    cells = []
    for cell in content.cells:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type != "code" or not TAGS & set(tags):
            continue
        cell.outputs = []
        cell.execution_count = None
        # In a course's hand-out this tag leaves out what its checks do not need, and the run is among it.
        cell.metadata["tags"] = [tag for tag in tags if tag != "skip-execution"]
        cells.append(cell)
    content.cells = cells
    return content


def execute_run(notebook: str, parameters: Mapping[str, Any]) -> None:
    """Execute what a run needs of a notebook, and print what its cells print.

    The parameters are given by flat names. A cell's error is a ``papermill.PapermillExecutionError``.
    """
    _execute(
        reduced(notebook),
        None,
        papers.arrange(notebook, parameters),
        papers.path(notebook).parent,
        stdout_file=sys.stdout,
        stderr_file=sys.stdout,
        shutdown_kernel="immediate",
    )


def execute_whole(notebook: Path, parameters: Mapping[str, Any], copy: Path) -> None:
    """Execute all cells of a notebook into a copy, which is written even if one of them fails."""
    _execute(str(notebook), str(copy), parameters, notebook.parent)


def _execute(
    notebook: Any, copy: str | None, parameters: Mapping[str, Any], folder: Path, **options: Any
) -> None:
    import papermill  # slow to import

    papermill.execute_notebook(
        notebook,
        copy,
        dict(parameters),
        kernel_name="python3",
        language="python",
        cwd=str(folder),
        progress_bar=False,
        extra_arguments=["--Application.log_level=50"],  # without the kernel's own remarks
        **options,
    )


def in_one_line(error: BaseException) -> str:
    """An error in one line; that of the cell, if it is papermill's."""
    text = f"{type(error).__name__}: {error}"
    if hasattr(error, "ename"):
        text = f"cell [{error.exec_count}]: {error.ename}: {error.evalue}"  # type: ignore[attr-defined]
    return " ".join(text.split())


def _end_with_standard_input() -> None:
    """End this process when nobody waits for it any more; its kernel sees that and ends, too."""
    os.read(0, 1)
    os._exit(1)


def main(notebook: str, parameters: str, copy: str = "") -> None:
    """The program, see above."""
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    try:
        if copy:
            execute_whole(Path(notebook), json.loads(parameters), Path(copy))
        else:
            execute_run(notebook, json.loads(parameters))
    except Exception as error:
        print(error, flush=True)  # with its traceback, if it is a cell's
        sys.exit(in_one_line(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
