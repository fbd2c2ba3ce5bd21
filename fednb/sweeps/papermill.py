"""The process of a run, or of a whole notebook that papermill executes.

As a program (`fednb.sweeps.processes` starts it, and writes its environment): ``python -m
fednb.sweeps.papermill NOTEBOOK PARAMETERS [COPY]``, with the parameters as JSON. With the path of a
COPY all cells are executed, and the executed notebook is written there. Standard input is open as
long as somebody waits for the result. The exit status is 1 after an error, which is then the last
line of standard error.
"""

import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fednb.sweeps.run_cells import CellError, end_with, execute_run, in_one_line


def execute_whole(notebook: Path, parameters: Mapping[str, Any], copy: Path) -> None:
    """Execute all cells of a notebook into a copy, which is written even if one of them fails."""
    import papermill  # slow to import

    papermill.execute_notebook(
        str(notebook),
        str(copy),
        dict(parameters),
        kernel_name="python3",
        language="python",
        cwd=str(notebook.parent),
        progress_bar=False,
        extra_arguments=["--Application.log_level=50"],  # without the kernel's own remarks
    )


def main(notebook: str, parameters: str, copy: str = "") -> None:
    """The program, see above."""
    threading.Thread(target=end_with, args=(0,), daemon=True).start()
    try:
        if copy:
            execute_whole(Path(notebook), json.loads(parameters), Path(copy))
        else:
            execute_run(notebook, json.loads(parameters))
    except CellError as error:
        sys.stdout.flush()  # the traceback, before the last line
        sys.exit(in_one_line(error))
    except Exception as error:
        print(error, flush=True)  # with its traceback, if it is a cell's
        sys.exit(in_one_line(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
