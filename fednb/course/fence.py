"""A fence around what students hand in: it ends when it is told to and, where there are namespaces, sees only what it needs.

There are two, one inside the other. In the outer one stands nbgrader, with processes and a network of its own, so that all
it starts ends with it. In the inner one stands the kernel that executes a submission: without rights, in a file system in
memory which shows the programs, read only, and nothing of the person who grades. On its way in, a command passes this file.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MEMORY = 4 << 30  # bytes of a process; all that a submission starts may have half as much again
PROCESSES = 200  # and threads
FILE = 100 << 20  # bytes; an executed notebook with its outputs is a file, too
NOBODY = 65534
PROGRAMS = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/alternatives", "/etc/fonts", "/etc/ld.so.cache")
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/sys/devices/system/cpu")
PACKAGES = [place for place in sys.path if place.endswith("-packages")]
INNER = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
OUTER = ("unshare", "--net", *INNER[2:], *(("--user", "--map-root-user") if os.geteuid() else ()))
PASS = (sys.executable, "-I", __file__)


class Stopped(Exception):
    """What a limit has ended; the message says which."""


@functools.cache
def closed() -> bool:
    """Whether this machine has the namespaces that the fences are made of."""
    with tempfile.TemporaryDirectory() as room:
        inner = inside(Path(room), [], ["/bin/sh", "-c", "exit 0"], namespaces=True)
        try:
            return subprocess.run([*OUTER, *PASS, "outer", *inner], capture_output=True).returncode == 0
        except OSError:
            return False


def inside(room: Path, hidden: list[Path], command: list[str], namespaces: bool | None = None) -> list[str]:
    """A command as it is started in the inner fence, in ``room / "home"``; what is hidden is so even among the programs."""
    own = (sys.prefix, sys.base_prefix, *PACKAGES, str(Path(__file__).parents[1]), str(room / "notebooks"))
    places = [p for p in (*PROGRAMS, *DEVICES, *own) if os.path.exists(p)]
    shown = {os.path.abspath(p) for p in places} | {os.path.realpath(p) for p in places}
    shown = sorted(p for p in shown if not shown.intersection(map(str, Path(p).parents)))
    namespaces = closed() if namespaces is None else namespaces
    plan = {"room": str(room), "shown": shown, "hidden": [str(p.absolute()) for p in hidden], "namespaces": namespaces}
    return [*(INNER if namespaces else ()), *PASS, "inner", json.dumps(plan), *command]


def run(command: list[str], environment: dict[str, str], seconds: float) -> tuple[int, str]:
    """The exit status of a command in the outer fence, and what it said.

    Raises
    ------
    Stopped
        If it takes too long, too much memory, or too many processes.
    """
    import psutil  # comes with ipykernel, and is not needed on the way in

    command = [*OUTER, *PASS, "outer", *command] if closed() else command
    with tempfile.TemporaryFile() as said:
        given = {"env": environment, "stdin": subprocess.DEVNULL, "stdout": said, "stderr": said}
        process = subprocess.Popen(command, **given, start_new_session=True, preexec_fn=_follow)
        own, end = psutil.Process(process.pid), time.monotonic() + seconds
        try:
            while process.poll() is None:
                family = own.children(recursive=True)
                if time.monotonic() > end:
                    raise Stopped(f"not finished after {seconds:.0f} s")
                if len(family) > PROCESSES:
                    raise Stopped("too many processes")
                with contextlib.suppress(psutil.Error):  # one has ended just now
                    if sum(one.memory_info().rss for one in family) > 1.5 * MEMORY:
                        raise Stopped("too much memory")
                time.sleep(0.1)
        finally:  # Ctrl-C included
            family = [] if closed() or process.poll() is not None else own.children(recursive=True)
            for one in [*family, process]:  # with namespaces the first process takes all others along
                one.kill()
            process.wait()
        said.seek(0)
        return process.returncode, said.read(1 << 20).decode(errors="replace")


def _follow() -> None:
    """Have the kernel of Linux end this process with the one that has started it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _checked(status: int, what: str) -> None:
    if status:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)


def _leave(room: str, shown: list[str], hidden: list[str]) -> None:
    """Exchange the file system for one in memory, and all rights for those of anybody."""
    libc, root = ctypes.CDLL(None, use_errno=True), room + "/root"

    def mount(source: str, target: str, kind: str | None = None, flags: int = 0, options: str = "") -> None:
        given = source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags), options.encode()
        _checked(libc.mount(*given), target)

    os.makedirs(root, exist_ok=True)
    mount("fence", root, "tmpfs", 0, "size=1g,mode=755")
    for place in shown:
        there = root + place
        os.makedirs(os.path.dirname(there), exist_ok=True)
        if os.path.islink(place):
            os.symlink(os.readlink(place), there)
            continue
        if os.path.isdir(place):
            os.makedirs(there)
        else:
            Path(there).touch()
        mount(place, there, None, 4096 | 16384)  # MS_BIND | MS_REC
        read_only = struct.pack("QQQQ", 1, 0, 0, 0)
        _checked(libc.syscall(442, -100, there.encode(), 0x8000, read_only, 32), place)  # mount_setattr, recursive
    for place in filter(os.path.isdir, (root + place for place in hidden)):
        mount("fence", place, "tmpfs")
    for place in ("/proc", "/tmp", "/dev/shm", room + "/home"):
        os.makedirs(root + place, exist_ok=True)
        os.chmod(root + place, 0o777)
    mount("proc", root + "/proc", "proc")
    os.chroot(root)
    for capability in range(64):
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
    if OUTER[-1] != "--map-root-user":  # root's own processes know no limit
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def _pass(which: str, *command: str) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
    if which == "outer":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as loopback:  # SIOCSIFFLAGS: up and running
            fcntl.ioctl(loopback, 0x8914, struct.pack("16sH14x", b"lo", 65))
    else:
        plan = json.loads(command[0])
        told = next((given for given in command if given.endswith(".json")), None)  # how to reach a kernel; it may write it
        connection = Path(told).read_bytes() if told else b""
        command = [given.replace(str(told), "connection.json") for given in command[1:]]
        if plan["namespaces"]:
            _leave(plan["room"], plan["shown"], plan["hidden"])
        os.makedirs(plan["room"] + "/home", exist_ok=True)
        os.chdir(plan["room"] + "/home")
        Path("connection.json").write_bytes(connection)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.nice(5)
    os.execvp(command[0], command)


if __name__ == "__main__":
    _pass(*sys.argv[1:])
