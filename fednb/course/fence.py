"""The fence in which submissions are executed: they see what they need, have limits, and end when they are told to.

Where Linux has namespaces, nbclient and the kernel that it starts have processes, a network and a file system of their own.
That is in memory, and shows the programs and the hand-out, read only, and nothing of the person who grades. Elsewhere only
the limits hold. Out come the cells' outputs.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
import psutil
from nbformat import NotebookNode

from fednb import ROOT
from fednb.course.checking import SEED, SETTINGS

MEMORY = 4 << 30  # bytes of a process; all that a submission starts may have half as much again
PROCESSES = 200  # and threads
FILE = 100 << 20  # bytes of a file
OUTPUT = 20 << 20  # bytes of all outputs
PROGRAMS = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/alternatives", "/etc/fonts", "/etc/ld.so.cache")
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/sys/devices/system/cpu")
PACKAGES = [place for place in sys.path if place.endswith("-packages")]
OWN = (sys.prefix, sys.base_prefix, *PACKAGES, Path(__file__).parents[1])
# In new namespaces: make a file system in memory that shows places, read only, go there without any rights, and begin.
NAMESPACES = ["unshare", "--mount", "--net", "--ipc", "--pid", "--fork", "--kill-child"]
NAMESPACES += ["--user", "--map-root-user"] if os.geteuid() else []
NOBODY = "" if os.geteuid() else "--reuid=65534 --regid=65534 --clear-groups"
ENTER = f"""set -e; room=$1; begin=$2; shift 2
mount -t tmpfs -o size=1g,mode=755 fence "$room"
for place; do
    mkdir -p "$room${{place%/*}}"
    if [ -L "$place" ]; then cp -P "$place" "$room$place"; continue; fi
    if [ -d "$place" ]; then mkdir -p "$room$place"; else touch "$room$place"; fi
    mount --rbind "$place" "$room$place"
    case "$place" in /dev/* | /sys/*) ;; *) mount -o remount,bind,ro,nosuid,nodev "$room$place" ;; esac
done
mkdir -p "$room/proc" "$room/tmp" "$room/dev/shm" "$room$room"
mount -t proc proc "$room/proc"
chmod 777 "$room/tmp" "$room/dev/shm" "$room$room"
exec unshare --root="$room" --wd="$room" setpriv --no-new-privs --bounding-set=-all --inh-caps=-all {NOBODY} $begin"""


class Stopped(Exception):
    """What a limit has ended; the message says which."""


def shows(path: Path) -> bool:
    """Whether a path is among the programs."""
    return any(path.resolve().is_relative_to(Path(place).resolve()) for place in (*PROGRAMS, *OWN))


def inside(room: str, begin: str, *shown: Path) -> list[str]:
    """A command as it is started in namespaces; it ends with who starts it."""
    there = [place for place in map(str, (*PROGRAMS, *DEVICES, *OWN, *shown)) if os.path.exists(place)]
    found = {*map(os.path.abspath, there), *map(os.path.realpath, there)}
    places = sorted(place for place in found if not found.intersection(map(str, Path(place).parents)))
    return ["setpriv", "--pdeathsig", "KILL", *NAMESPACES, "sh", "-c", ENTER, "fence", room, begin, *places]


@functools.cache
def closed() -> bool:
    """Whether this machine has the namespaces that the fence is made of."""
    with tempfile.TemporaryDirectory() as room:
        try:
            return subprocess.run(inside(room, "true"), capture_output=True).returncode == 0
        except OSError:
            return False


def execute(nb: NotebookNode, handed_out: Path, seed: int, timeout: int, seconds: int) -> None:
    """Execute a notebook in the fence, beside what was handed out, and put the outputs into its cells.

    ``timeout`` and ``seconds`` are limits for a cell and for all. `Stopped` is raised if it takes too long, too much
    memory, too many processes, or says too much.
    """
    own = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH") if name in os.environ}
    own |= {"PYTHONPATH": os.pathsep.join([str(ROOT), *PACKAGES]), "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "2"}
    with contextlib.ExitStack() as stack:
        room = stack.enter_context(tempfile.TemporaryDirectory(prefix="course-", ignore_cleanup_errors=True))
        told, said = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        told.write(json.dumps({"notebook": nb, "timeout": timeout, "ipc": closed()}).encode())
        told.seek(0)
        own |= {"HOME": room, "JUPYTER_RUNTIME_DIR": room, "FEDNB_RUNS": f"{room}/runs", "FEDNB_NOTEBOOKS": str(handed_out)}
        command = f"{sys.executable} -m fednb.course.fence"
        command = inside(room, command, handed_out) if closed() else command.split()
        streams = {"stdin": told, "stdout": said, "stderr": subprocess.DEVNULL}
        environment = own | SETTINGS | {SEED: str(seed)}
        watch(subprocess.Popen(command, cwd=room, env=environment, start_new_session=True, **streams), seconds)
        said.seek(0)
        text = said.read(OUTPUT + 1)
    if len(text) > OUTPUT:
        raise Stopped(f"more than {OUTPUT >> 20} MB of output")
    outputs = json.loads(text or '"it ended before its time"')
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
                raise Stopped(f"not finished after {seconds} s")
            if len(family) > PROCESSES:
                raise Stopped("too many processes")
            with contextlib.suppress(psutil.Error):  # one has ended just now
                if sum(one.memory_info().rss for one in family) > 1.5 * MEMORY:
                    raise Stopped("too much memory")
            time.sleep(0.1)
    finally:  # Ctrl-C included
        for one in [*family, process]:  # with namespaces the first process takes all others along
            with contextlib.suppress(psutil.Error):
                one.kill()
        process.wait()


def main() -> None:
    """Execute the notebook that stdin tells of, within limits; the outputs of its cells, or what is wrong, go to stdout."""
    from fednb.course import steps

    given = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w") as result:
        os.dup2(2, 1)  # what is printed is not the result
        if given["ipc"]:
            ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: what is executed cannot look into this process
        mine = [p.info for p in psutil.process_iter(["uids", "num_threads"]) if p.info["uids"].real == os.getuid()]
        threads = PROCESSES + sum(info["num_threads"] or 1 for info in mine)
        for name, most in {"DATA": MEMORY, "FSIZE": FILE, "CORE": 0, "NPROC": threads}.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
        os.nice(5)
        config = steps.configure(steps.Config())
        config.Execute.timeout = given["timeout"]
        config.KernelManager.transport = "ipc" if given["ipc"] else "tcp"
        nb = nbformat.from_dict(given["notebook"])
        try:
            steps.execute(nb, os.getcwd(), config)
            json.dump([cell.get("outputs") for cell in nb.cells], result)
        except Exception as error:  # its kernel has died, say
            json.dump(f"{type(error).__name__}: {error}", result)


if __name__ == "__main__":
    main()
