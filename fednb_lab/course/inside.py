"""What runs in the sandbox: ``python -m fednb_lab.course.inside`` executes a notebook within limits.

It reads ``{"notebook": ..., "limits": [...]}`` as JSON and writes ``{"outputs": [...]}``, with a
list for each cell, or null, or ``{"error": ...}``. It imports no nbgrader, to start fast.
"""

import json
import os
import sys

import nbformat
from nbformat import NotebookNode
from traitlets.config import Config

from fednb_lab.course.executor import Limits, execute
from fednb_lab.course.limits import limit_this_process


def main() -> None:
    """Execute the notebook that stdin tells of, and write the answer to stdout."""
    request = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w") as answer_file:
        os.dup2(2, 1)  # what is printed is not the answer
        limit_this_process()
        nb = nbformat.from_dict(request["notebook"])
        answer_file.write(_answer(nb, Limits(*request["limits"])))


def _answer(nb: NotebookNode, limits: Limits) -> str:
    config = Config()
    config.KernelManager.transport = "ipc"  # files as sockets: inside there is no network
    try:
        execute(nb, os.getcwd(), limits, config)
        return json.dumps({"outputs": [cell.get("outputs") for cell in nb.cells]})
    except Exception as error:  # no kernel can be started, say
        return json.dumps({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
