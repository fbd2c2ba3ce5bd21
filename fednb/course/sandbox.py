"""The sandbox for submissions: limits, and under Linux a file system and a network of their own.

`execute` starts this module as a program: in the sandbox, `main` executes the notebook.
"""

import ctypes
import functools
import json
import os
import subprocess
import sys
import time
import zlib
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import nbformat
import psutil
from nbformat import NotebookNode
from traitlets import Integer, Unicode
from traitlets.config import Config

from fednb import PACKAGE, ROOT
from fednb.course import kernel
from fednb.course.kernel import STOPPED

MEMORY = 4 << 30  # bytes of a process; all that a submission starts may have half as much again
PROCESSES = 200  # and threads
FILE = 100 << 20  # bytes
OUTPUT = 20 << 20  # bytes of all outputs

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
UID = 61184 + os.getpid() % 4336
NOBODY = [f"--reuid={UID}", "--regid=65534", "--clear-groups"] if SUPERUSER else []


class Sandboxed(kernel.Execute):
    """nbgrader's step that executes a submission, in the sandbox."""

    seconds = Integer(900).tag(config=True)
    seed = Unicode("fednb").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """Put the outputs into the notebook; ``resources`` tells in which folder it lies."""
        course, _, student, assignment = resources["metadata"]["path"].rsplit("/", 3)
        student_seed = zlib.crc32(f"{self.seed} {student}".encode())
        handed_out = f"{course}/release/{assignment}"
        execute(nb, handed_out, student_seed, self.timeout, self.seconds)
        return nb, resources


def isolated_python(root: str, *visible: str) -> list[str]:
    """The command that starts this Python in namespaces of its own.

    The empty folder ``root`` becomes its file system, with Python, its packages and the ``visible``
    paths in it, read only. A path after a ``!`` is emptied.
    """
    enter = ["sh", f"{PACKAGE}/course/templates/enter.sh", root]
    paths = [*PYTHON, *PACKAGES, str(PACKAGE), *visible]
    return [*NAMESPACES, *enter, *paths, "--", *NOBODY, sys.executable]


@functools.cache
def is_available() -> bool:
    """Whether this machine has the namespaces that the sandbox is made of."""
    with TemporaryDirectory() as root, suppress(OSError):
        command = [*isolated_python(root), "-c", ""]
        return subprocess.run(command, capture_output=True).returncode == 0
    return False


def execute(nb: NotebookNode, handed_out: str, seed: int, timeout: int, seconds: int) -> None:
    """Execute a notebook, and put the outputs into it; a ``RuntimeError`` says why there are none.

    ``handed_out`` is the folder of the hand-out, ``seed`` the student's number for `course.draws`;
    a cell may take ``timeout`` seconds, and all cells ``seconds``.
    """
    request = json.dumps({"notebook": nb, "timeout": timeout})
    with (
        # a short path, as that of a socket has to be
        TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as room,
        TemporaryFile() as request_file,
        TemporaryFile() as answer_file,
    ):
        request_file.write(request.encode())
        request_file.seek(0)
        python = [sys.executable]
        if is_available():
            # the solved notebooks and the course folder, also where they are among the packages
            hidden = [f"!{ROOT}/notebooks", f"!{Path(handed_out).parents[1]}"]
            python = isolated_python(room, *hidden, handed_out)
        process = subprocess.Popen(
            [*python, "-m", "fednb.course.sandbox"],
            stdin=request_file,
            stdout=answer_file,
            stderr=subprocess.DEVNULL,
            cwd=room,
            env=environment(room, handed_out, seed),
            start_new_session=True,
        )
        watch(process, seconds)
        answer_file.seek(0)
        answer = json.loads(answer_file.read() or '{"error": "it ended before its time"}')
    if "error" in answer:
        raise RuntimeError(answer["error"])
    for cell, outputs in zip(nb.cells, answer["outputs"], strict=True):
        if cell.cell_type == "code":
            cell.outputs = nbformat.from_dict(outputs)


def environment(room: str, handed_out: str, seed: int) -> dict[str, str]:
    """All that the process in the sandbox has of an environment."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return kept | {
        "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), *PACKAGES]),
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "2",
        "HOME": room,
        "JUPYTER_RUNTIME_DIR": room,
        "FEDNB_NOTEBOOKS": handed_out,
        "FEDNB_RUNS": f"{room}/runs",
        "FEDNB_STUDENT_SEED": str(seed),
    }


def watch(process: subprocess.Popen, seconds: int) -> None:
    """Wait for a process; end it, and all that it has started, if that goes beyond a limit."""
    root = psutil.Process(process.pid)
    end = time.monotonic() + seconds
    children: list[psutil.Process] = []
    try:
        while process.poll() is None:
            children = root.children(recursive=True)
            if time.monotonic() > end:
                raise RuntimeError(f"{STOPPED}: not finished after {seconds} s")
            if len(children) > PROCESSES // 2:
                raise RuntimeError(f"{STOPPED}: too many processes")
            with suppress(psutil.Error):  # one has ended just now
                if sum(child.memory_info().rss for child in children) > 1.5 * MEMORY:
                    raise RuntimeError(f"{STOPPED}: too much memory")
            time.sleep(0.1)
    finally:  # Ctrl-C included
        for member in (*children, process):  # in namespaces the first takes all others along
            with suppress(psutil.Error):
                member.kill()
        process.wait()


def main() -> None:
    """Execute the notebook that stdin tells of, within limits, and write the answer to stdout.

    The answer is JSON: ``{"outputs": [...]}``, a list or null for each cell, or ``{"error": ...}``.
    """
    request = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w") as answer_file:
        os.dup2(2, 1)  # what is printed is not the answer
        limit_this_process()
        answer_file.write(_answer(nbformat.from_dict(request["notebook"]), request["timeout"]))


def limit_this_process() -> None:
    """Set the limits that what is executed inherits, and hide this process from it."""
    import resource  # not under Windows, where students check

    if sys.platform == "linux":
        # PR_SET_DUMPABLE 0: what is executed cannot look into this process
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    num_threads = 0  # that this user has already: the limit counts them, too
    for process in psutil.process_iter(["uids", "num_threads"]):
        if process.info["uids"].real == os.getuid():
            num_threads += process.info["num_threads"] or 1
    for limit, most in (
        (resource.RLIMIT_DATA, MEMORY),
        (resource.RLIMIT_FSIZE, FILE),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, PROCESSES + num_threads),
    ):
        resource.setrlimit(limit, (most, most))
    os.nice(5)


def _answer(nb: NotebookNode, timeout: int) -> str:
    """The answer of `main`, for a notebook whose cells may take ``timeout`` seconds."""
    config = Config()
    config.Execute.timeout = timeout
    config.KernelManager.transport = "ipc"  # files as sockets: inside there is no network
    try:
        kernel.execute(nb, os.getcwd(), config)
        answer = json.dumps({"outputs": [cell.get("outputs") for cell in nb.cells]})
    except Exception as error:  # its kernel has died, say
        answer = json.dumps({"error": f"{type(error).__name__}: {error}"})
    if len(answer) < OUTPUT:
        return answer
    return json.dumps({"error": f"{STOPPED}: more than {OUTPUT >> 20} MB of output"})


if __name__ == "__main__":
    main()
