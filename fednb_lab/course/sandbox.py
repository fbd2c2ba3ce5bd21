"""The sandbox for submissions: limits, and under Linux a file system and a network of their own.

`execute` starts `fednb_lab.course.inside` as a program, which executes the notebook in the sandbox.
"""

import functools
import itertools
import json
import os
import subprocess
import sys
import threading
import time
import zlib
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import nbformat
import psutil
from nbformat import NotebookNode
from traitlets import Dict, Integer, Unicode

import fednb_lab
from fednb import PACKAGE, ROOT
from fednb_lab.course import kernel
from fednb_lab.course.executor import Limits
from fednb_lab.course.kernel import STOPPED
from fednb_lab.course.limits import ALL_MEMORY, PROCESSES, control_group

PACKAGES = [path for path in sys.path if path.endswith("-packages")]
PYTHON = [
    f"{prefix}/{part}"
    for prefix in (sys.prefix, sys.base_prefix)
    for part in ("bin", "lib", "share", "etc", "pyvenv.cfg")
]
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
SUPERUSER = hasattr(os, "geteuid") and os.geteuid() == 0
NAMESPACES = ["setpriv", "--pdeathsig=KILL"]  # it ends with who has started it
NAMESPACES += ["unshare", "--mount", "--net", "--ipc", "--pid", "--fork", "--kill-child"]
if not SUPERUSER:
    NAMESPACES += ["--user", "--map-root-user"]
# Who grades as root, whose own processes know no limit, becomes nobody, and another one each time.
UIDS = itertools.count(101 * os.getpid())  # mostly apart from those of another process that grades
GRACE = 60  # seconds to start, and to end what does not answer
ALL_ENDED = threading.Event()  # set when whoever grades wants to end: nothing is waited for


class Sandboxed(kernel.Execute):
    """nbgrader's step that executes a submission, in the sandbox."""

    seconds = Integer(900).tag(config=True)
    seed = Unicode("fednb").tag(config=True)
    # ``sources`` and ``outputs`` of the cells if these were executed before
    executed = Dict().tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """Put the outputs into the notebook; ``resources`` tells in which folder it lies."""
        course, _, student, assignment = resources["metadata"]["path"].rsplit("/", 3)
        sources = [cell.source for cell in nb.cells]
        if self.executed.get("sources") != sources:
            student_seed = number_of(student, self.seed)
            limits = Limits(self.timeout, self.seconds)
            outputs = execute(nb, f"{course}/release/{assignment}", student_seed, limits)
        else:
            outputs = self.executed["outputs"]
        for cell, new in zip(nb.cells, outputs, strict=True):
            if cell.cell_type == "code":
                cell.outputs = nbformat.from_dict(new)
        return nb, resources


def number_of(student: str, seed: str) -> int:
    """The student's number for `course.draws`."""
    return zlib.crc32(f"{seed} {student}".encode())


def isolated_python(root: str, *visible: str) -> list[str]:
    """The command that starts this Python in namespaces of its own.

    The empty folder ``root`` becomes its file system, with Python, its packages and the ``visible``
    paths in it, read only. A path after a ``!`` is emptied.
    """
    enter = ["sh", f"{fednb_lab.PACKAGE}/course/templates/enter.sh", root]
    paths = [*PYTHON, *PACKAGES, str(PACKAGE), str(fednb_lab.PACKAGE), *visible]
    nobody = []
    if SUPERUSER:
        uid = 61184 + next(UIDS) % 4336
        nobody = [f"--reuid={uid}", "--regid=65534", "--clear-groups"]
    return [*NAMESPACES, *enter, *paths, "--", *nobody, sys.executable]


@functools.cache
def is_available() -> bool:
    """Whether this machine has the namespaces that the sandbox is made of."""
    with TemporaryDirectory() as root, suppress(OSError):
        command = [*isolated_python(root), "-c", ""]
        return subprocess.run(command, capture_output=True).returncode == 0
    return False


def execute(
    nb: NotebookNode, handed_out: str, student_seed: int, limits: Limits
) -> list[list[Any] | None]:
    """Execute a notebook; the outputs of each cell, None for a text.

    ``handed_out`` is the folder of the hand-out, ``student_seed`` the student's number for
    `course.draws`. A ``RuntimeError`` says why there are no outputs.
    """
    request = json.dumps({"notebook": nb, "limits": limits})
    with (
        # a short path, as that of a socket has to be
        TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as room,
        TemporaryFile() as request_file,
        TemporaryFile() as answer_file,
        control_group() as group,
    ):
        request_file.write(request.encode())
        request_file.seek(0)
        python = [sys.executable]
        if is_available():
            # the solved notebooks and the course folder, also where they are among the packages
            hidden = [f"!{ROOT}/notebooks", f"!{Path(handed_out).parents[1]}"]
            python = isolated_python(room, *hidden, handed_out)
        process = subprocess.Popen(
            [*group.joined, *python, "-m", "fednb_lab.course.inside"],
            stdin=request_file,
            stdout=answer_file,
            stderr=subprocess.DEVNULL,
            cwd=room,
            env=environment(room, handed_out, student_seed),
            start_new_session=True,
        )
        # it keeps to the limits by itself: this is for what cannot be interrupted
        watch(process, limits.total + GRACE)
        if group.is_out_of_memory():
            raise RuntimeError(f"{STOPPED}: too much memory")
        answer_file.seek(0)
        answer = json.loads(answer_file.read() or '{"error": "it ended before its time"}')
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["outputs"]


def environment(room: str, handed_out: str, seed: int) -> dict[str, str]:
    """All that the process in the sandbox has of an environment."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return kept | {
        "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), *PACKAGES]),
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "2",
        "MALLOC_ARENA_MAX": "4",  # each takes addresses
        "HOME": room,
        "JUPYTER_RUNTIME_DIR": room,
        "FEDNB_NOTEBOOKS": handed_out,
        "FEDNB_RUNS": f"{room}/runs",
        "FEDNB_STUDENT_SEED": str(seed),
    }


def watch(process: subprocess.Popen, seconds: float) -> None:
    """Wait for a process; end it, and all that it has started, if that goes beyond a limit."""
    root = psutil.Process(process.pid)
    end = time.monotonic() + seconds
    children: list[psutil.Process] = []
    try:
        while process.poll() is None:
            children = root.children(recursive=True)
            if ALL_ENDED.is_set():
                raise RuntimeError(f"{STOPPED}: nobody waits for it")
            if time.monotonic() > end:
                raise RuntimeError(f"{STOPPED}: not finished after {seconds:g} s")
            if len(children) > PROCESSES // 2:
                raise RuntimeError(f"{STOPPED}: too many processes")
            with suppress(psutil.Error):  # one has ended just now
                if sum(child.memory_info().rss for child in children) > ALL_MEMORY:
                    raise RuntimeError(f"{STOPPED}: too much memory")
            time.sleep(0.1)
    finally:  # Ctrl-C included
        for member in (*children, process):  # in namespaces the first takes all others along
            with suppress(psutil.Error):
                member.kill()
        process.wait()
