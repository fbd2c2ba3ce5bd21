"""Checkpoints, from which a run that was killed goes on."""

import io
import os
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import torch

from fednb.errors import RunError
from fednb.experiments import ledger
from fednb.federation import Federation

# PyTorch has a type of error for it on a GPU alone: on a CPU, and in CUDA's libraries, it is a plain one.
_SHORT = re.compile("DefaultCPUAllocator|out of memory|ALLOC_FAILED|can't start new thread")


def path_of(record: Path) -> Path:
    """The checkpoint of the run with this record."""
    return record.parent.parent / "checkpoints" / f"{record.stem}.pt"


def save(content: dict[str, Any], path: Path) -> None:
    """Write what `torch.save` can, in one piece; a `RunError` if that cannot be."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    with ledger.writing_to(path.parent):
        ledger.write_atomically(path, buffer.getbuffer())


def restore(federation: Federation, path: Path) -> None:
    """Go back to a checkpoint, if there is one; one that cannot be used is put aside, and that is told.

    A `RunError` if it cannot be read: a disk that fails for a moment makes no checkpoint unusable,
    nor does a full memory.
    """
    if not path.exists():
        return
    try:
        content = io.BytesIO(path.read_bytes())
    except OSError as error:
        raise RunError(
            f"The checkpoint {path} cannot be read ({error.strerror or error}): try again, or "
            "delete it, and the run starts anew."
        ) from error
    try:
        with zipfile.ZipFile(content) as parts:
            damaged = parts.testzip()  # torch reads them without looking at their sums
        if damaged:
            raise ValueError(f"{damaged} is damaged")
        content.seek(0)
        checkpoint = torch.load(content, map_location=federation.device, weights_only=True)
        federation.restore(checkpoint)
    except Exception as error:
        if is_shortage(error):
            raise
        put_aside(path, error)


def is_shortage(error: Exception) -> bool:
    """Whether a machine lacked memory or threads for a moment, which says nothing about a checkpoint."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(_SHORT.search(str(error)))


class UnusableError(Exception):
    """The first round after a checkpoint fails, which may be of a network as it was before."""


def put_aside(path: Path, error: Exception) -> None:
    """Keep a checkpoint that cannot be used under another name, and say so."""
    aside = path.with_suffix(".unusable")
    os.replace(path, aside)
    text = f"The checkpoint {path.name} cannot be used ({error}): the run starts anew"
    print(f"fednb: {text}, and it is kept as {aside}.", file=sys.stderr)


def remove_parts(path: Path) -> None:
    """Remove what a process that was killed had begun to write."""
    for part in path.parent.glob(f".{path.name}.*"):
        part.unlink()
