"""The ledger: one small JSON file per run, known by its settings; what it holds stands in ``record.schema.yaml``."""

import errno
import functools
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fastjsonschema
import yaml

from fednb import CHECKOUT, ROOT, home
from fednb.errors import RunError
from fednb.experiments.settings import Settings

# Raise when numerics change on purpose: records of an older version are then stale, and are run again.
RESULTS_VERSION = 1
RESULTS = ("finished", "diverged")  # of a run that need not be made again


def runs_folder() -> Path:
    """Where runs are recorded: ``$FEDNB_RUNS``, or ``results/runs`` of one's own notebooks or at `home`."""
    own = os.environ.get("FEDNB_NOTEBOOKS") or home()  # a record does not say whose code made it
    return (
        Path(os.environ.get("FEDNB_RUNS") or Path(own) / "results" / "runs").expanduser().absolute()
    )


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


def make_folders(runs: Path | None = None) -> None:
    """Make the folders of records, checkpoints and logs; a `RunError` if nothing can be written there."""
    runs = runs or runs_folder()
    for folder in (runs, runs.parent / "checkpoints", runs.parent / "logs"):
        with writing_to(folder):
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()


def key(recipe: Mapping[str, Any]) -> str:
    """Twelve hex digits that name a run: of its settings in one level, without those that are None and do not apply."""
    known = {
        name: value for name, value in recipe.items() if value is not None
    }  # one added later leaves old keys alone
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:12]


def path(settings: Settings, runs: Path | None = None) -> Path:
    """The file of a run: readable in a listing, unique by its key."""
    recipe = settings.flat()
    dataset = re.sub(r"[^\w.+-]+", "-", recipe["dataset"])[
        -40:
    ]  # a folder's name may hold anything
    folder = runs or runs_folder()
    return folder / f"{settings.method}-{dataset}-seed{settings.seed}-{key(recipe)}.json"


def state(record: Mapping[str, Any]) -> str:
    """Whether a record counts: its status, or ``stale`` if an older results version made it."""
    return "stale" if record["results_version"] < RESULTS_VERSION else record["status"]


def read(path: Path) -> dict[str, Any]:
    """Read a record; a `RunError` if it has not the form of one, or a key that is not that of its settings."""
    try:
        check_form(record := json.loads(path.read_text(encoding="utf-8")), "record")
        if record["key"] != key(record["settings"]):
            raise ValueError("its key is not that of its settings, which somebody has changed")
    except (OSError, ValueError, RecursionError) as error:
        way_out = (
            "restore it (for instance with `git checkout`) or delete it, and the run is made again"
        )
        raise RunError(
            f"{path.name} in {path.parent} is no run record ({error}): {way_out}."
        ) from error
    return record


def recorded(path: Path) -> dict[str, Any] | None:
    """The record, if there is one that counts."""
    record = read(path) if path.exists() else None
    return record if record and state(record) in RESULTS else None


@functools.cache
def _schema(file: Path) -> Callable[[Any], Any]:
    return fastjsonschema.compile(yaml.safe_load(file.read_text("utf-8")))


def check_form(content: Any, schema: str | Path) -> None:
    """Compare with ``SCHEMA.schema.yaml``; a ``ValueError`` says what is wrong."""
    if isinstance(schema, str):
        schema = Path(__file__).with_name(f"{schema}.schema.yaml")
    try:
        _schema(schema)(content)
    except fastjsonschema.JsonSchemaValueException as error:
        allowed = error.definition["properties"] if error.rule == "additionalProperties" else ()
        told = error.message[:300].replace(
            "data", "it", 1
        ) + f"; known are {', '.join(allowed)}" * bool(allowed)
        raise ValueError(told) from error


def write_atomically(path: Path, *content: str | bytes | memoryview) -> None:
    """Write by renaming a finished temporary file, so that nobody ever sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("wb") as file:
            file.writelines(
                piece.encode() if isinstance(piece, str) else piece for piece in content
            )
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record: one line per metric, so that it is small and a difference between two can be read."""
    lines = [
        f"  {json.dumps(name)}: {json.dumps(value)}"
        for name, value in record.items()
        if name != "metrics"
    ]
    metrics = [
        f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in record["metrics"].items()
    ]
    lines.append('  "metrics": {\n' + ",\n".join(metrics) + "\n  }")
    write_atomically(path, "{\n" + ",\n".join(lines) + "\n}\n")


def load(folder: Path | None = None) -> dict[Path, dict[str, Any]]:
    """The ledger: the records of a folder, or of `runs_folder`, by their paths."""
    return {path: read(path) for path in sorted((folder or runs_folder()).glob("*.json"))}


@functools.cache
def commit() -> str | None:
    """The commit of the code, with ``+changes`` if code differs from it; None outside a git checkout."""
    if not CHECKOUT:  # it may lie in a checkout of something else
        return None
    orders = ["git rev-parse --short=10 HEAD", "git status --porcelain -- fednb notebooks"]
    try:
        found, changed = (
            subprocess.check_output(o.split(), cwd=ROOT, stderr=subprocess.DEVNULL, text=True)
            for o in orders
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.strip() + ("+changes" if changed else "")
