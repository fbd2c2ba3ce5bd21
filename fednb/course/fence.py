"""The fence for submissions: limits, an end, and under Linux processes, a network and a file system of their own."""

import ctypes
import functools
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import nbformat
import psutil
from nbformat import NotebookNode

from fednb import PACKAGE, ROOT

MEMORY = 4 << 30  # bytes of a process; all that a submission starts may have half as much again
PROCESSES = 200  # and threads
FILE = 100 << 20  # bytes
OUTPUT = 20 << 20  # bytes of all outputs
PACKAGES = [place for place in sys.path if place.endswith("-packages")]
PYTHON = [
    f"{prefix}/{part}"
    for prefix in (sys.prefix, sys.base_prefix)
    for part in "bin lib share etc pyvenv.cfg".split()
]
SUPERUSER = hasattr(os, "geteuid") and os.geteuid() == 0
NAMESPACES = [
    "setpriv",
    "--pdeathsig=KILL",
    "unshare",
    "--mount",
    "--net",
    "--ipc",
    "--pid",
    "--fork",
    "--kill-child",
]
NAMESPACES += [] if SUPERUSER else ["--user", "--map-root-user"]
UID = (
    61184 + os.getpid() % 4336
)  # nobody's, and another one for each who grades as root, whose own processes know no limit
NOBODY = [f"--reuid={UID}", "--regid=65534", "--clear-groups"] if SUPERUSER else []


def inside(room: str, *shown: str) -> list[str]:
    """This Python as it is started in namespaces of its own; it ends with who has started it."""
    enter = [
        "sh",
        f"{PACKAGE}/course/templates/enter.sh",
        room,
        *PYTHON,
        *PACKAGES,
        str(PACKAGE),
        *shown,
    ]
    return [*NAMESPACES, *enter, "--", *NOBODY, sys.executable]


@functools.cache
def closed() -> bool:
    """Whether this machine has the namespaces that the fence is made of."""
    with TemporaryDirectory() as room, suppress(OSError):
        return subprocess.run([*inside(room), "-c", ""], capture_output=True).returncode == 0
    return False


def execute(nb: NotebookNode, handed_out: str, seed: int, timeout: int, seconds: int) -> None:
    """Execute a notebook beside what was handed out, with limits for a cell and for all, and put the outputs into it."""
    own = {
        name: os.environ[name]
        for name in ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
        if name in os.environ
    }
    own |= {
        "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), *PACKAGES]),
        "PYTHONWARNINGS": "ignore",
    }
    own |= {"FEDNB_NOTEBOOKS": handed_out, "FEDNB_STUDENT_SEED": str(seed), "OMP_NUM_THREADS": "2"}
    place = TemporaryDirectory(
        dir="/tmp", ignore_cleanup_errors=True
    )  # a short path, as that of a socket has to be
    with place as room, TemporaryFile() as told, TemporaryFile() as said:
        own |= {"HOME": room, "JUPYTER_RUNTIME_DIR": room, "FEDNB_RUNS": f"{room}/runs"}
        told.write(json.dumps({"notebook": nb, "timeout": timeout}).encode())
        told.seek(0)
        hidden = [
            f"!{ROOT}/notebooks",
            f"!{Path(handed_out).parents[1]}",
        ]  # also where they are among the packages
        command = [
            *(inside(room, *hidden, handed_out) if closed() else [sys.executable]),
            "-m",
            "fednb.course.fence",
        ]
        files = {"stdin": told, "stdout": said, "stderr": subprocess.DEVNULL}
        watch(
            subprocess.Popen(command, cwd=room, env=own, start_new_session=True, **files), seconds
        )
        said.seek(0)
        outputs = json.loads(said.read() or '"it ended before its time"')
    if isinstance(outputs, str):
        raise RuntimeError(outputs)
    for cell, given in zip(nb.cells, outputs, strict=True):
        if cell.cell_type == "code":
            cell.outputs = nbformat.from_dict(given)


def watch(process: subprocess.Popen, seconds: int) -> None:
    """Wait for a process; end it, and all that it has started, if that goes beyond a limit."""
    own, end, family = psutil.Process(process.pid), time.monotonic() + seconds, []
    try:
        while process.poll() is None:
            family = own.children(recursive=True)
            if time.monotonic() > end:
                raise RuntimeError(f"Stopped: not finished after {seconds} s")
            if len(family) > PROCESSES // 2:
                raise RuntimeError("Stopped: too many processes")
            with suppress(psutil.Error):  # one has ended just now
                if sum(one.memory_info().rss for one in family) > 1.5 * MEMORY:
                    raise RuntimeError("Stopped: too much memory")
            time.sleep(0.1)
    finally:  # Ctrl-C included
        for one in [*family, process]:  # with namespaces the first process takes all others along
            with suppress(psutil.Error):
                one.kill()
        process.wait()


def main() -> None:
    """Execute the notebook that stdin tells of, within limits; the outputs of its cells, or what is wrong, go to stdout."""
    import resource

    from fednb.course import grading

    given = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w") as result:
        os.dup2(2, 1)  # what is printed is not the result
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(
                4, 0, 0, 0, 0
            )  # PR_SET_DUMPABLE: what is executed cannot look into this process
        mine = [
            p.info
            for p in psutil.process_iter(["uids", "num_threads"])
            if p.info["uids"].real == os.getuid()
        ]
        threads = PROCESSES + sum(info["num_threads"] or 1 for info in mine)
        for name, most in {"DATA": MEMORY, "FSIZE": FILE, "CORE": 0, "NPROC": threads}.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
        os.nice(5)
        nb = nbformat.from_dict(given["notebook"])
        try:  # inside there is no network: the kernel is reached by sockets that are files
            grading.run(
                nb,
                os.getcwd(),
                Execute={"timeout": given["timeout"]},
                KernelManager={"transport": "ipc"},
            )
            said = json.dumps([cell.get("outputs") for cell in nb.cells])
        except Exception as error:  # its kernel has died, say
            said = json.dumps(f"{type(error).__name__}: {error}")
        result.write(
            said
            if len(said) < OUTPUT
            else json.dumps(f"Stopped: more than {OUTPUT >> 20} MB of output")
        )


if __name__ == "__main__":
    main()
