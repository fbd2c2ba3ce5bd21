"""Whole notebooks, executed side by side from top to bottom: what is behind ``make run``."""

import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fednb.places import Places
from fednb_lab.sweeps.processes import Slots, process_environment, reason, run_process


class Executed(NamedTuple):
    """A notebook that was executed, or as much of it as was possible."""

    notebook: Path
    seconds: float
    error: str | None  # what went wrong, in one line


def execute_notebooks(
    notebooks: Sequence[Path], out: Path, parameters: Mapping[str, Any]
) -> Iterator[Executed]:
    """Execute notebooks into ``out/notebooks``, and yield each at its end; records go
    into ``out/runs``.

    One is executed per core, on one thread, and the largest files first, as these take longest. One
    that fails does not keep the others from being executed.
    """
    copies = out.absolute() / "notebooks"
    copies.mkdir(parents=True, exist_ok=True)
    places = replace(Places.from_environment(), runs=out.absolute() / "runs")
    slots = Slots(max(1, min(len(notebooks), os.cpu_count() or 1)))
    stopped = threading.Event()

    def execute(notebook: Path) -> Executed:
        begin = time.monotonic()
        with slots.lend() as slot, tempfile.TemporaryFile() as output:
            env = process_environment(places, slot, slots.count)
            env |= {"FEDNB_PROGRESS": "off", "OMP_NUM_THREADS": "1"}
            arguments = (str(notebook), json.dumps(dict(parameters)), str(copies / notebook.name))
            status = run_process(env, *arguments, output=output, stop=stopped.is_set)
            output.seek(0)
            text = output.read().decode("utf-8", "replace")
        error = None if status == 0 else reason(status, text)
        return Executed(notebook, time.monotonic() - begin, error)

    longest_first = sorted(notebooks, key=lambda notebook: notebook.stat().st_size, reverse=True)
    pool = ThreadPoolExecutor(slots.count)
    try:
        for future in as_completed([pool.submit(execute, each) for each in longest_first]):
            yield future.result()
    finally:  # by Ctrl-C too
        stopped.set()
        pool.shutdown(cancel_futures=True)
