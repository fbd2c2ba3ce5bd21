"""The ledger: one small JSON file per run, known by its settings; `Record` is what it holds."""

import errno
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fednb.errors import RunError
from fednb.experiments.record import Record, as_record
from fednb.experiments.settings import Settings
from fednb.places import Places

# Raise when numerics change on purpose: records of an older version are then stale and run again.
RESULTS_VERSION = 1
RESULTS = ("finished", "diverged")  # of a run that need not be made again


def runs_folder() -> Path:
    """Where a command or a notebook that is told nothing else finds the records of runs."""
    return Places.from_environment().runs


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Say in a sentence why nothing can be recorded in a folder."""
    try:
        yield
    except OSError as error:
        way_out = "make it writable, or set FEDNB_RUNS to another folder"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            way_out = "free some space, and the run goes on where it was"
        raise RunError(
            f"Runs cannot be recorded in {folder} ({error.strerror or error}): {way_out}."
        ) from error


def make_folders(runs: Path) -> None:
    """Make the folders of records, checkpoints and logs; a `RunError` if that cannot be."""
    for folder in (runs, runs.parent / "checkpoints", runs.parent / "logs"):
        with writing_to(folder):
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()


def key(recipe: Mapping[str, Any]) -> str:
    """Twelve hex digits that name a run, of its settings in one level (`Settings.flat`).

    What is None does not count: a setting that is added later leaves old keys as they are.
    """
    values = {name: value for name, value in recipe.items() if value is not None}
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def path(settings: Settings, runs: Path) -> Path:
    """The file of a run in a folder of records: readable in a listing, unique by its key."""
    recipe = settings.flat()
    dataset = re.sub(r"[^\w.+-]+", "-", recipe["dataset"])  # a folder's name may hold anything
    name = f"{settings.method}-{dataset[-40:]}-seed{settings.seed}-{key(recipe)}.json"
    return runs / name


def state(record: Mapping[str, Any]) -> str:
    """Whether a record counts: its status, or ``stale`` if an older results version made it."""
    return "stale" if record["results_version"] < RESULTS_VERSION else record["status"]


def read(path: Path) -> Record:
    """Read a record; a `RunError` if it has not the form of one, or not the key of its settings."""
    try:
        record = as_record(json.loads(path.read_text(encoding="utf-8")))
        if record["key"] != key(record["settings"]):
            raise ValueError("its key is not that of its settings, which somebody has changed")
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(
            f"{path.name} in {path.parent} is no run record ({error}): restore it (for instance "
            "with `git checkout`) or delete it, and the run is made again."
        ) from error
    return record


def recorded(path: Path) -> Record | None:
    """The record, if there is one that counts."""
    if not path.exists():
        return None
    record = read(path)
    return record if state(record) in RESULTS else None


def write_atomically(path: Path, content: str | bytes | memoryview) -> None:
    """Write by renaming a finished temporary file, so that nobody ever sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        # a folder's name may hold bytes that are no text: these are written escaped
        content = content.encode(errors="backslashreplace")
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        error.filename = str(path)  # which a full disk, or a limit to a file's size, does not name
        raise
    finally:
        part.unlink(missing_ok=True)


def write(path: Path, record: Record) -> None:
    """Write a record, one line per metric: small, and a difference between two can be read."""
    metrics = _lines(record["metrics"], indent=4)
    others = {name: value for name, value in record.items() if name != "metrics"}
    lines = [*_lines(others, indent=2), '  "metrics": {\n' + ",\n".join(metrics) + "\n  }"]
    write_atomically(path, "{\n" + ",\n".join(lines) + "\n}\n")


def _lines(values: Mapping[str, Any], indent: int) -> list[str]:
    start = " " * indent
    return [f"{start}{json.dumps(name)}: {json.dumps(value)}" for name, value in values.items()]


def load(folder: Path | None = None) -> dict[Path, Record]:
    """The ledger: the records of a folder, or of `runs_folder`, by their paths."""
    return {path: read(path) for path in sorted((folder or runs_folder()).glob("*.json"))}


class LazyLedger(Mapping[Path, Record]):
    """The records of a folder, each read when it is first asked for: a notebook asks for few."""

    def __init__(self, folder: Path) -> None:
        self._paths = dict.fromkeys(sorted(folder.glob("*.json")))
        self._records: dict[Path, Record] = {}

    def __getitem__(self, path: Path) -> Record:
        if path not in self._paths:
            raise KeyError(path)
        if path not in self._records:
            self._records[path] = read(path)
        return self._records[path]

    def __contains__(self, path: object) -> bool:
        return path in self._paths  # without reading it

    def __iter__(self) -> Iterator[Path]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)
