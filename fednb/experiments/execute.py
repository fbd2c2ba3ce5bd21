"""``python -m fednb notebooks``: every notebook executed from top to bottom at its defaults, the executed copies kept."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import papermill

# The kernel's own remarks (on how it is connected, say) are none of the reader's business.
_QUIET = ["--Application.log_level=40"]


def execute_all(notebooks: Sequence[Path], out: Path, parameters: Mapping[str, Any] | None = None) -> list[str]:
    """Execute notebooks one after the other, say how each ended, and go on after one that fails.

    Parameters
    ----------
    out
        Folder for the executed copies, in ``notebooks``, and the records of their runs, in ``runs``.
    parameters
        What differs from the notebooks' defaults.

    Returns
    -------
    list of str
        The names of those that failed.
    """
    copies, failed = out.absolute() / "notebooks", []
    copies.mkdir(parents=True, exist_ok=True)
    with patch.dict(os.environ, {"FEDNB_RUNS": str(out.absolute() / "runs"), "FEDNB_PROGRESS": "off"}):
        for number, notebook in enumerate(notebooks, 1):
            begin, copy = time.monotonic(), copies / notebook.name
            print(f"[{number}/{len(notebooks)}] {notebook.stem:<18}", end=" ", flush=True)
            try:
                papermill.execute_notebook(
                    notebook,
                    copy,
                    dict(parameters or {}),
                    cwd=notebook.parent,
                    kernel_name="python3",
                    language="python",
                    progress_bar={"leave": False} if sys.stderr.isatty() else False,
                    extra_arguments=_QUIET,
                )
                error = ""
            except papermill.PapermillExecutionError as e:
                error = " ".join(f"FAILED in cell [{e.exec_count}]: {e.ename}: {e.evalue}".split())
            except Exception as e:  # a kernel that died, a full disk: the next notebook may fare better
                error = " ".join(f"FAILED: {type(e).__name__}: {e}".split())
            failed += [notebook.stem] if error else []
            print(f"{time.monotonic() - begin:4.0f} s  {error or 'done'}", flush=True)
    print(f"The executed notebooks are in {copies}")
    return failed
