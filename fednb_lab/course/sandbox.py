"""The sandbox for submissions: what bubblewrap lets them see, and how their cells are executed.

Inside there are this Python, its packages and the files that are handed out, to be read, and an
empty folder in memory. The gradebook, other submissions, solutions, the home folder, the
environment and the network are not there. There this file is executed as a program: it reads
``{"notebook", "limits", "files", "user"}`` as JSON and writes ``{"outputs": [...]}`` with a list
for each cell, or null, or ``{"error": ...}``.

A check counts if the solution that it judges ran to its end. What went wrong becomes an error among
a cell's outputs, as nbgrader reads them: such a check scores 0.
"""

import base64
import functools
import itertools
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import nbformat
import psutil
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_output

import fednb_lab
from fednb import PACKAGE, ROOT
from fednb.errors import CourseError
from fednb_lab.course.notebooks import (
    LATE,
    NOT_COUNTED,
    NOT_DONE,
    first_error,
    is_check,
    is_executed,
    marks_of,
)

SYSTEM = "/usr /bin /lib /lib32 /lib64 /nix/store /etc/alternatives /etc/fonts /etc/ld.so.cache"
SYSTEM += " /etc/localtime /sys/devices/system/cpu"
PACKAGES = [path for path in sys.path if path.endswith("-packages")]
PYTHON = [
    f"{prefix}/{part}"
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix))
    for part in ("bin", "lib", "share", "etc", "pyvenv.cfg")
]
# What notebooks read of the project: of recorded runs what they show, and no solutions.
PROJECT = "data notebooks/*.ipynb notebooks/extras notebooks/pictures notebooks/sweeps"
PROJECT += " results/*.csv results/*.json"
SOLUTIONS = ROOT / "notebooks" / "solutions"  # in a package that was installed
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "SYSTEMROOT")
ROOM = "/submission"  # the folder in memory
ROOM_SIZE = 1 << 30
GRACE = 60  # seconds to start, and to end what does not answer
MEMORY = 4 << 30  # bytes of a process
FILE = 100 << 20  # bytes of a file
PROCESSES = 200  # and threads
OUTPUT = 4 << 20  # characters of a cell's outputs
# Who grades as root, whose processes know no limit, becomes somebody else inside, each time another.
USERS = itertools.count(61184 + os.getpid() % 1000)
MISSING = (
    "bubblewrap, which keeps submissions from your files, {reason}. Install it (apt-get install "
    "bubblewrap), or grade with --no-sandbox in a container that holds nothing else and has no "
    "network: docker run --network none."
)


class Limits(NamedTuple):
    """Seconds that a cell, and all cells together, may take."""

    cell: float = 60
    total: float = 900


def bubblewrap() -> list[str]:
    """Return the beginning of a command that is executed in a sandbox."""
    command = ["bwrap", "--die-with-parent", "--new-session", "--unshare-net", "--unshare-pid"]
    command += ["--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if os.geteuid() == 0:  # `limit_this_process` gives these up
        command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user"]
    command += ["--proc", "/proc", "--dev", "/dev"]
    for place in ("/dev/shm", "/tmp", ROOM):
        command += ["--perms", "1777", "--size", str(ROOM_SIZE), "--tmpfs", place]
    visible = [Path(place) for place in (*SYSTEM.split(), *PYTHON, *PACKAGES)]
    visible += [PACKAGE, fednb_lab.PACKAGE]
    for pattern in PROJECT.split():
        visible += sorted(ROOT.glob(pattern))
    for path in visible:
        for parent in reversed(path.parents[:-1]):  # which others than root may pass, too
            command += ["--perms", "755", "--dir", str(parent)]
        command += ["--ro-bind-try", str(path), str(path)]
    if SOLUTIONS.exists():
        command += ["--tmpfs", str(SOLUTIONS), "--remount-ro", str(SOLUTIONS)]
    return [*command, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", ROOM, "--"]


@functools.cache
def missing() -> str:
    """Return the sentence that says why there is no sandbox on this machine, or ""."""
    try:
        tried = subprocess.run([*bubblewrap(), "true"], capture_output=True, text=True)
    except (OSError, AttributeError):  # no such program; no such system
        return MISSING.format(reason="is not installed")
    if tried.returncode:
        return MISSING.format(reason=f"does not work here ({tried.stderr.strip()[:120]})")
    return ""


def execute(
    nb: NotebookNode,
    files: dict[str, Path],
    limits: Limits,
    *,
    student_seed: int,
    is_sandboxed: bool,
) -> None:
    """Execute a notebook in place, with copies of ``files`` by these names beside it.

    ``student_seed`` is the student's number for `fednb.exercises.draws`. A `CourseError` says why
    it could not be executed.
    """
    user = next(USERS) if is_sandboxed and os.geteuid() == 0 else None
    content = {name: base64.b64encode(file.read_bytes()).decode() for name, file in files.items()}
    request = {"notebook": nb, "limits": limits, "files": content, "user": user}
    command = [sys.executable, "-m", "fednb_lab.course.sandbox"]
    if is_sandboxed:
        command = [*bubblewrap(), *command]
    with TemporaryDirectory(ignore_cleanup_errors=True) as room:
        try:
            # it keeps to the limits by itself: this is for what cannot be interrupted
            process = subprocess.run(
                command,
                input=json.dumps(request).encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=room,
                env=environment(ROOM if is_sandboxed else room, student_seed),
                timeout=limits.total + GRACE,
            )
        except subprocess.TimeoutExpired:
            raise CourseError(f"it was stopped after {limits.total + GRACE:g} s") from None
    try:
        answer = json.loads(process.stdout)
    except ValueError:
        answer = {"error": "it ended before its time"}
    if "error" in answer:
        raise CourseError(answer["error"])
    for cell, outputs in zip(nb.cells, answer["outputs"], strict=True):
        if cell.cell_type == "code":
            cell.outputs = [new_output(**output) for output in outputs or []]


def environment(room: str, seed: int) -> dict[str, str]:
    """Return all that the process in the sandbox has of an environment."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return kept | {
        "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), *PACKAGES]),
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "2",
        "MALLOC_ARENA_MAX": "4",
        "HOME": room,
        "JUPYTER_RUNTIME_DIR": f"{room}/.jupyter",
        "FEDNB_NOTEBOOKS": room,
        "FEDNB_RUNS": f"{room}/runs",
        "FEDNB_CACHE": f"{room}/.cache",
        "FEDNB_DATA": os.environ.get("FEDNB_DATA") or str(ROOT / "data"),
        "FEDNB_STUDENT_SEED": str(seed),
        "FEDNB_PROGRESS": "off",
        "FEDNB_DEVICE": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "MPLBACKEND": "agg",
    }


def main() -> None:
    """Execute the notebook that stdin tells of, and write the answer to stdout."""
    request = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace") as answer_file:
        os.dup2(2, 1)  # what is printed is not the answer
        try:
            if sys.platform == "linux":  # students check elsewhere, too
                limit_this_process(request["user"])
            for name, content in request["files"].items():
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                Path(name).write_bytes(base64.b64decode(content))
            nb = nbformat.from_dict(request["notebook"])
            execute_here(nb, Limits(*request["limits"]))
            answer: dict[str, Any] = {"outputs": [cell.get("outputs") for cell in nb.cells]}
        except Exception as error:  # no kernel can be started, say
            answer = {"error": f"{type(error).__name__}: {error}"}
        json.dump(answer, answer_file, ensure_ascii=False)  # half an emoji is no text


def limit_this_process(user: int | None) -> None:
    """Set limits that what is executed inherits, hide this process from it, become ``user``."""
    import ctypes
    import resource

    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: nobody looks into this process
    running = [process.info for process in psutil.process_iter(["uids", "num_threads"])]
    own = [info for info in running if info["uids"] and info["uids"].real == os.getuid()]
    num_threads = sum(info["num_threads"] or 1 for info in own)  # the limit counts them, too
    for limit, most in (
        (resource.RLIMIT_DATA, MEMORY),
        (resource.RLIMIT_FSIZE, FILE),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, PROCESSES + num_threads),
    ):
        with suppress(ValueError):  # stricter already
            resource.setrlimit(limit, (most, most))


def execute_here(nb: NotebookNode, limits: Limits) -> None:
    """Execute a notebook in place, in a kernel that works in this folder.

    An error of a cell becomes one of its outputs, and so does that it took too long, printed too
    much, or ended the kernel. What cannot be executed afterwards gets an error, too.
    """
    end = time.monotonic() + limits.total
    over = ""  # why nothing more is executed
    client = _client(nb)
    with client.setup_kernel():
        for place, cell in enumerate(nb.cells):
            if not is_executed(cell):
                continue
            left = end - time.monotonic()
            if left <= 0:
                over = over or "the time for all cells was over"
            if over:
                cell.outputs = [_error("NotExecuted", over)]
                continue
            client.timeout = max(1, round(min(limits.cell, left)))  # 0 would be no limit
            told = f"took longer than {client.timeout} s"
            client.error_on_timeout = {"ename": LATE, "evalue": told}
            cell.outputs = []
            try:
                client.execute_cell(cell, place)
            except Exception as error:  # it ended the kernel, or cannot be interrupted
                name = type(error).__name__
                cell.outputs.append(_error(name, told if name == LATE else str(error)))
                over = "the kernel was lost in a cell above"
            _keep_little(cell)
    _void(nb)


def _keep_little(cell: NotebookNode) -> None:
    """Leave out of a cell's outputs what is too long, or what nbgrader would take for points."""
    if len(str(cell.outputs)) > OUTPUT:
        cell.outputs = [_error("TooMuchOutput", f"more than {OUTPUT >> 20} MB of output")]
    if is_check(cell):
        cell.outputs = [one for one in cell.outputs if one.output_type != "execute_result"]


def _client(nb: NotebookNode) -> NotebookClient:
    """Return what executes cells one by one, in this folder, and goes on after an error."""
    return NotebookClient(
        nb,
        resources={"metadata": {"path": os.getcwd()}},
        kernel_name="python3",
        allow_errors=True,
        on_cell_executed=_show_error,
        startup_timeout=120,
        iopub_timeout=60,  # nbclient's 4 seconds fail good work on a busy machine
        raise_on_iopub_timeout=True,
        interrupt_on_timeout=True,
        shutdown_kernel="immediate",
    )


def _show_error(cell: NotebookNode, execute_reply: dict[str, Any], **_: Any) -> None:
    """See to it that an error that was shown nowhere, as that of `sys.exit`, is seen."""
    reply = execute_reply["content"]
    names = [output.ename for output in cell.outputs if output.output_type == "error"]
    if reply["status"] == "error" and reply["ename"] not in names:
        cell.outputs.insert(0, _error(reply["ename"], reply["evalue"]))


def _error(name: str, value: str) -> NotebookNode:
    return new_output("error", ename=name, evalue=value, traceback=[f"{name}: {value}"])


def _void(nb: NotebookNode) -> None:
    """Give a check an error if the solution that it judges did not run to its end.

    A check judges the solutions above it, up to those of the check before. If there are none in
    between, as one solution has several checks, it judges the same.
    """
    failure = ""
    was_judged = False  # by a check above
    for cell in nb.cells:
        marks = marks_of(cell)
        if cell.cell_type != "code" or not marks:
            continue
        if marks["solution"]:
            error = first_error(cell)
            failure = error if was_judged else failure or error
            was_judged = False
        elif marks["grade"]:
            was_judged = True
            reason = failure and f"its solution ended with {failure}"
            if (failure or first_error(cell)).startswith("NotImplementedError:"):  # of the stub
                reason = NOT_DONE
            if reason:
                cell.outputs.insert(0, _error(NOT_COUNTED, reason))


if __name__ == "__main__":
    main()
