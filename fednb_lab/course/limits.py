"""Bounds of what a process and all that it starts may use, as far as the system has them."""

import ctypes
import os
import platform
import re
import struct
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

MEMORY = 4 << 30  # bytes of a process
ALL_MEMORY = 6 << 30  # bytes of all processes of a submission
ADDRESSES = 16 << 30  # bytes that a process may map, libraries and what it shares included
FILE = 100 << 20  # bytes of a file
FILES = 256  # that a process may have open
PROCESSES = 200  # and threads

CGROUPS = Path("/sys/fs/cgroup")
JOIN = 'echo $$ > "$0/cgroup.procs" && exec "$@"'

# Calls whose memory belongs to no process and to no file system: numbers of the architecture, and
# of memfd_create, memfd_secret, shmget, msgget, mq_open, io_uring_setup. linux/audit.h, unistd.h
REFUSED_CALLS = {
    "x86_64": (0xC000003E, (319, 447, 29, 68, 240, 425)),
    "aarch64": (0xC00000B7, (279, 447, 194, 186, 180, 425)),
}


def limit_this_process() -> None:
    """Set the limits that what is executed inherits, and hide this process from it."""
    import resource  # not under Windows, where students check

    if sys.platform == "linux":
        _prctl(4, 0)  # PR_SET_DUMPABLE: what is executed cannot look into this process
        refuse_unaccounted_memory()
    num_threads = 0  # that this user has already: the limit counts them, too
    for process in psutil.process_iter(["uids", "num_threads"]):
        uids = process.info["uids"]  # None of a process that has ended just now
        if uids and uids.real == os.getuid():
            num_threads += process.info["num_threads"] or 1
    for limit, most in (
        (resource.RLIMIT_DATA, MEMORY),
        (resource.RLIMIT_AS, ADDRESSES),
        (resource.RLIMIT_NOFILE, FILES),
        (resource.RLIMIT_FSIZE, FILE),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, PROCESSES + num_threads),
    ):
        resource.setrlimit(limit, (most, most))
    os.nice(5)


def refuse_unaccounted_memory() -> None:
    """Have the kernel refuse memory that no limit of a process and no size of a folder counts.

    Files in memory (memfd), System V's shared memory and queues of messages: with them a submission
    could fill the machine. They fail with EPERM, here and in all that this process starts; where
    the processor is none of `REFUSED_CALLS`, or the system has no filters, nothing changes.
    """
    if platform.machine() not in REFUSED_CALLS:
        return
    architecture, calls = REFUSED_CALLS[platform.machine()]
    num_calls = len(calls)
    load, equal, at_least, result = 0x20, 0x15, 0x35, 0x06  # of a word, jumps, the end
    refused = 0x00050000 | 1  # SECCOMP_RET_ERRNO, EPERM
    allowed = 0x7FFF0000
    # A jump skips so many lines if it holds, and so many if not.
    program = [
        (load, 0, 0, 4),  # the architecture: another one has other numbers
        (equal, 0, num_calls + 3, architecture),
        (load, 0, 0, 0),  # the call
        (at_least, num_calls + 1, 0, 0x40000000),  # the same calls by other numbers
    ]
    for place, call in enumerate(calls):
        program.append((equal, num_calls - place, 0, call))
    program += [(result, 0, 0, allowed), (result, 0, 0, refused)]
    lines = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(lines, len(lines))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    program_header = ctypes.create_string_buffer(header, len(header))
    _prctl(38, 1)  # PR_SET_NO_NEW_PRIVS, without which there are no filters
    _prctl(22, 2, ctypes.addressof(program_header))  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


def _prctl(*arguments: int) -> None:
    """Linux' call of that name; what it cannot do it leaves as it was."""
    values = [*arguments, 0, 0, 0, 0][:5]
    ctypes.CDLL(None).prctl(*(ctypes.c_ulong(value) for value in values))


class ControlGroup:
    """Processes that share `ALL_MEMORY`, as far as this system can hold them to it."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder  # None if there are no groups here
        # what has to stand before a command so that it and all that it starts are in the group
        self.joined = ["sh", "-c", JOIN, str(folder)] if folder else []

    def is_out_of_memory(self) -> bool:
        """Whether the system has ended processes of the group, as they took too much memory."""
        if self._folder is not None:
            with suppress(OSError):
                events = (self._folder / "memory.events").read_text().split()
                return int(events[events.index("oom_kill") + 1]) > 0
        return False


@contextmanager
def control_group() -> Iterator[ControlGroup]:
    """A control group of its own (version 2), with limits.

    For that, the group of this process, or the one around that, has to be ours; else nothing is
    limited.
    """
    folder = _new_control_group()
    try:
        yield ControlGroup(folder)
    finally:
        if folder is not None:
            with suppress(OSError):
                (folder / "cgroup.kill").write_text("1")
            _remove(folder)


def _new_control_group() -> Path | None:
    """A new group in which a process can be put, or None."""
    try:
        text = Path("/proc/self/cgroup").read_text()
    except OSError:  # another system
        return None
    for name in re.findall(r"(?m)^0::/(.*)$", text):
        own = CGROUPS / name
        for parent in (own, own.parent):
            group = parent / f"fednb-{uuid.uuid4().hex[:12]}"
            if group.is_relative_to(CGROUPS) and _is_limited(group):
                return group
    return None


def _is_limited(group: Path) -> bool:
    """Make a group with its limits; False if that cannot be."""
    limits = {"memory.max": ALL_MEMORY, "memory.swap.max": 0, "pids.max": PROCESSES}
    # one without the others would be a submission of which nobody knows what was executed
    limits["memory.oom.group"] = 1
    try:
        group.mkdir()
    except OSError:
        return False
    try:
        for name, most in limits.items():
            # "r+": where there are no groups of version 2, the folder is one like any other
            with (group / name).open("r+") as file:
                file.write(str(most))
        subprocess.run([*ControlGroup(group).joined, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        _remove(group)
        return False
    return True


def _remove(group: Path) -> None:
    with suppress(OSError):
        group.rmdir()
