"""The sandbox for submissions: bubblewrap around `fednb_lab.course.inside`, and what it may use.

Inside there are this Python, its packages and the files that are handed out, to be read, and an
empty folder in memory. The gradebook, other submissions, solutions, the home folder, the
environment and the network are not there.
"""

import functools
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import psutil
from nbformat import NotebookNode

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
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "SYSTEMROOT")
ROOM = "/submission"  # the folder in memory
ROOM_SIZE = 1 << 30
ALL_MEMORY = 6 << 30  # bytes of all processes of a submission
GRACE = 60  # seconds to start, and to end what does not answer
STOPPED = "Stopped"  # how an error begins if a limit ended the execution
SUPERUSER = hasattr(os, "geteuid") and os.geteuid() == 0
# Who grades as root, whose own processes know no limit, becomes nobody, and another one each time.
UIDS = itertools.count(101 * os.getpid())
ALL_ENDED = threading.Event()  # set when whoever grades wants to end: nothing is waited for
MISSING = (
    "bubblewrap, which keeps submissions from your files, {reason}. Install it (apt-get install "
    "bubblewrap), or grade with --no-sandbox in a container that holds nothing else and has no "
    "network: docker run --network none."
)


def bubblewrap(*, visible: Sequence[Path] = (), hidden: Sequence[Path] = ()) -> list[str]:
    """Return the beginning of a command that is executed in a sandbox.

    ``visible`` paths can be read there, beside Python and its packages; ``hidden`` ones are empty.
    """
    command = ["bwrap", "--die-with-parent", "--new-session", "--unshare-net", "--unshare-pid"]
    command += ["--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if SUPERUSER:  # `inside` gives these up
        command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        command += ["--cap-add", "CAP_CHOWN"]
    else:
        command += ["--unshare-user"]
    command += ["--proc", "/proc", "--dev", "/dev"]
    for place in ("/dev/shm", "/tmp", ROOM):
        command += ["--perms", "1777", "--size", str(ROOM_SIZE), "--tmpfs", place]
    paths: list[str | Path] = [
        *SYSTEM.split(),
        *PYTHON,
        *PACKAGES,
        PACKAGE,
        fednb_lab.PACKAGE,
        *visible,
    ]
    for path in paths:
        for parent in reversed(Path(path).parents[:-1]):  # which others than root may pass, too
            command += ["--perms", "755", "--dir", str(parent)]
        command += ["--ro-bind-try", str(path), str(path)]
    for path in hidden:
        if path.is_dir() and any(path.is_relative_to(shown) for shown in paths):
            command += ["--size", str(1 << 20), "--tmpfs", str(path), "--remount-ro", str(path)]
    return [*command, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", ROOM, "--"]


@functools.cache
def missing() -> str:
    """Return the sentence that says why there is no sandbox on this machine, or ""."""
    try:
        tried = subprocess.run([*bubblewrap(), "true"], capture_output=True, text=True)
    except OSError:
        return MISSING.format(reason="is not installed")
    if tried.returncode:
        return MISSING.format(reason=f"does not work here ({tried.stderr.strip()[:120]})")
    return ""


def execute(
    nb: NotebookNode,
    folders: Sequence[Path],
    student_seed: int,
    limits: Limits,
    *,
    is_sandboxed: bool,
) -> list[list[Any] | None]:
    """Execute a notebook; the outputs of each cell, None for a text.

    The contents of the ``folders`` lie where it works. ``student_seed`` is the student's number for
    `fednb.exercises.draws`. A `CourseError` says why there are no outputs.
    """
    user = 61184 + next(UIDS) % 4336 if SUPERUSER and is_sandboxed else None
    request = {
        "notebook": nb,
        "limits": limits,
        "files": [str(folder.absolute()) for folder in folders],
        "user": user,
    }
    with (
        TemporaryDirectory(ignore_cleanup_errors=True) as room,
        TemporaryFile("w+", encoding="utf-8") as request_file,
        TemporaryFile("w+", encoding="utf-8", errors="replace") as answer_file,
    ):
        json.dump(request, request_file)
        request_file.seek(0)
        command = [sys.executable, "-m", "fednb_lab.course.inside"]
        if is_sandboxed:
            visible = [*(folder.absolute() for folder in folders), ROOT / "data"]
            visible += [ROOT / "results" / "cells.csv", ROOT / "notebooks"]
            visible += sorted(ROOT.glob("results/*.json"))  # what notebooks show of recorded runs
            hidden = [ROOT / "notebooks" / "solutions", ROOT / "results" / "runs"]
            command = [*bubblewrap(visible=visible, hidden=hidden), *command]
        process = subprocess.Popen(
            command,
            stdin=request_file,
            stdout=answer_file,
            stderr=subprocess.DEVNULL,
            cwd=room,
            env=environment(ROOM if is_sandboxed else room, student_seed),
            start_new_session=True,
        )
        # it keeps to the limits by itself: this is for what cannot be interrupted
        watch(process, limits.total + GRACE)
        answer_file.seek(0)
        answer = json.loads(answer_file.read() or '{"error": "it ended before its time"}')
    if "error" in answer:
        raise CourseError(answer["error"])
    return answer["outputs"]


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


def watch(process: subprocess.Popen, seconds: float) -> None:
    """Wait for a process; end it, and all that it has started, if that goes beyond a limit."""
    root = psutil.Process(process.pid)
    end = time.monotonic() + seconds
    children: list[psutil.Process] = []
    try:
        while process.poll() is None:
            children = root.children(recursive=True)
            if ALL_ENDED.is_set():
                raise CourseError(f"{STOPPED}: nobody waits for it")
            if time.monotonic() > end:
                raise CourseError(f"{STOPPED}: not finished after {seconds:g} s")
            if _memory_of(children) > ALL_MEMORY:
                raise CourseError(f"{STOPPED}: too much memory")
            time.sleep(0.5)
    finally:  # Ctrl-C included
        for member in (*children, process):  # in a sandbox the first takes all others along
            with suppress(psutil.Error):
                member.kill()
        process.wait()


def _memory_of(processes: list[psutil.Process]) -> int:
    total = 0
    for process in processes:
        with suppress(psutil.Error):  # one has ended just now
            total += process.memory_info().rss
    return total
