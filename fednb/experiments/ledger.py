"""The ledger: one small JSON file per run, known by its settings.

The data's fingerprint and the results version are fields of a record: they say whether it still counts (`state`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednb import ROOT
from fednb.experiments.settings import Settings

if TYPE_CHECKING:
    import pandas as pd

# Raise when numerics change on purpose: records of an older version are then stale, and are run again.
RESULTS_VERSION = 1
RESULTS = ("finished", "diverged")  # of a run that need not be made again
_FIELDS = {"key": str, "status": str, "results_version": int, "settings": dict, "dataset": dict, "deviations": list}
_FIELDS |= {"metrics": dict}


class RunError(RuntimeError):
    """A results folder or record that cannot be used; the message says which, why, and what to do."""


def runs_folder() -> Path:
    """Where runs are recorded: ``$FEDNB_RUNS``, or ``results/runs``.

    A record does not say whose code made it. So with ``$FEDNB_NOTEBOOKS`` it is that folder's own ``results/runs``, and
    that of the folder where one works if the package is installed without its notebooks.
    """
    own = os.environ.get("FEDNB_NOTEBOOKS") or (ROOT if (ROOT / "notebooks").exists() else Path.cwd())
    return Path(os.environ.get("FEDNB_RUNS") or Path(own) / "results" / "runs")


def key(recipe: Mapping[str, Any]) -> str:
    """Twelve hex digits that name a run: of its settings in one level, without those that are None and do not apply."""
    known = {name: value for name, value in recipe.items() if value is not None}  # one added later leaves old keys alone
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:12]


def path(settings: Settings, folder: Path | None = None) -> Path:
    """The file of a run: readable in a listing, unique by its key."""
    recipe = settings.flat()
    dataset = re.sub(r"[^\w.+-]+", "-", recipe["dataset"])[-40:]  # a folder's name may hold anything
    name = f"{settings.method}-{dataset}-seed{settings.seed}-{key(recipe)}.json"
    return (folder or runs_folder()) / name


def state(record: Mapping[str, Any], fingerprint: str | None = None) -> str:
    """Whether a record counts: ``finished``, ``diverged`` or ``failed``, its status, if it does.

    ``stale`` if an older results version made it, ``other data`` if the data here are known and not its own.
    """
    if record["results_version"] < RESULTS_VERSION:
        return "stale"
    if fingerprint is not None and record["dataset"].get("fingerprint") != fingerprint:
        return "other data"
    return record["status"]


def read(path: Path) -> dict[str, Any]:
    """Read a record.

    Raises
    ------
    RunError
        If it is no record: unreadable, with a field missing or of another type, or with a key that is not its settings'.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        wrong = _wrong(record)
    except (OSError, ValueError, RecursionError) as error:
        wrong = f"cannot be read ({error})"
    if wrong:
        way_out = "restore it (for instance with `git checkout`) or delete it, and the run is made again."
        raise RunError(f"{path.name} in {path.parent} is no run record, as it {wrong}: {way_out}")
    return record


def _wrong(record: Any) -> str | None:
    if not isinstance(record, dict):
        return "is not a mapping"
    lacks = [name for name, kind in _FIELDS.items() if type(record.get(name)) is not kind]
    if not lacks:
        good = {"status": record["status"] in (*RESULTS, "failed"), "final": isinstance(record.get("final", {}), dict)}
        good["metrics"] = all(isinstance(values, list) for values in record["metrics"].values())
        lacks = [name for name, fine in good.items() if not fine]
    if lacks:
        return f"lacks {', '.join(lacks)}, or has it in another form"
    if record["key"] != key(record["settings"]):
        return "has a key that is not that of its settings, which somebody has changed"
    return None


def write_atomically(path: Path, content: str) -> None:
    """Write by renaming a finished temporary file, so that nobody ever sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(part, 0o644)
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record: one line per metric, so that it is small and a difference between two can be read."""
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in record.items() if name != "metrics"]
    metrics = [f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in record["metrics"].items()]
    lines.append('  "metrics": {\n' + ",\n".join(metrics) + "\n  }")
    write_atomically(path, "{\n" + ",\n".join(lines) + "\n}\n")


def load(folder: Path | None = None) -> pd.DataFrame:
    """The ledger: one row per record.

    Columns are the settings, ``accuracy`` (last round), ``best``, ``mean_of_last_5``, ``rounds``, ``status``, ``stale``
    (made by an older results version), ``note`` (what is not the published data), ``remark`` (what has to be known of them),
    ``deviations``, ``seconds_per_round``, ``path``, and ``record``, the whole.
    """
    import pandas as pd  # only here: its import takes half a second

    rows = []
    for path in sorted((folder or runs_folder()).glob("*.json")):
        record = read(path)
        row = record["settings"] | record.get("final", {})
        row |= {name: record.get(name) for name in ("key", "status", "deviations", "seconds_per_round", "commit")}
        row |= {name: record["dataset"].get(name, "") for name in ("note", "remark")}
        row |= {"rounds": len(record["metrics"].get("round", [])), "stale": record["results_version"] < RESULTS_VERSION}
        rows.append(row | {"path": path, "record": record})
    return pd.DataFrame(rows)


@functools.lru_cache(maxsize=1)
def commit() -> str | None:
    """The commit of the code, with ``+changes`` if code differs from it; None outside a git checkout."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "fednb", "notebooks")
        return git("rev-parse", "--short=10", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None
