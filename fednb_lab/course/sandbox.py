"""The sandbox for submissions: bubblewrap around `fednb_lab.course.inside`, and what it may use.

Inside there are this Python, its packages and the files that are handed out, to be read, and an
empty folder in memory. The gradebook, other submissions, solutions, the home folder, the
environment and the network are not there.
"""

import base64
import functools
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_output

import fednb_lab
from fednb import PACKAGE, ROOT
from fednb.errors import CourseError
from fednb_lab.course.inside import Limits

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
# Who grades as root, whose processes know no limit, becomes somebody else inside, each time another.
USERS = itertools.count(61184 + os.getpid() % 1000)
MISSING = (
    "bubblewrap, which keeps submissions from your files, {reason}. Install it (apt-get install "
    "bubblewrap), or grade with --no-sandbox in a container that holds nothing else and has no "
    "network: docker run --network none."
)


def bubblewrap() -> list[str]:
    """Return the beginning of a command that is executed in a sandbox."""
    command = ["bwrap", "--die-with-parent", "--new-session", "--unshare-net", "--unshare-pid"]
    command += ["--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if os.geteuid() == 0:  # `inside` gives these up
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
    command = [sys.executable, "-m", "fednb_lab.course.inside"]
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
            cell.outputs = [_checked(output) for output in outputs or []]


def _checked(output: dict[str, Any]) -> NotebookNode:
    """Return an output, which comes from the sandbox and may have any form."""
    try:
        return new_output(**output)
    except Exception:
        return new_output("error", ename="OutputError", evalue="an output has a wrong form")


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
