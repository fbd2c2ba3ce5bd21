"""The record of a run: one small JSON file, known by the run's settings; what it holds, and where.

A record is a dict, of the form of `Record`. It is made at the end of a run, written in one piece,
and compared with that form, and with its own digests, whenever it is read.
"""

import errno
import functools
import hashlib
import itertools
import json
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata  # torchvision itself is slow to import
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, cast

import numpy as np
import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from torch.utils._pytree import tree_map_only
from typing_extensions import TypedDict  # as pydantic needs it before Python 3.12

from fednb import CHECKOUT, ROOT, build, home, notebooks, partition, sources
from fednb.data import Dataset
from fednb.errors import RunError
from fednb.federation import Federation, flat
from fednb.settings import Settings, deviations

# Raise when numerics change on purpose: records of an older version are then stale and run again.
RESULTS_VERSION = 1
RESULTS = ("finished", "diverged")  # of a run that need not be made again
# What of the last round's measures is a result; the rest stands in the metrics alone.
_FINAL = ("accuracy", "clients", "groups", "validation")


# ---- what a record holds

_FORM = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")
FromZero = Annotated[float, Field(ge=0)]
# One for a round; where clients or groups have their own, of all of them. Which it is follows from the
# name of the measure, which a type checker does not see.
if TYPE_CHECKING:
    Measured = Any
else:
    Measured = float | None | list[float | None] | dict[str, float | None]


class Record(TypedDict):
    """A run: what was asked for and what came out. What is not required, a failed run may lack."""

    __pydantic_config__ = _FORM  # type: ignore[misc]
    key: str  # of the settings, see `key`
    results_version: int  # of the numerics that made it
    method: NotRequired[str]
    source: NotRequired[str]  # a digest of the method's source, see `fednb.sources`
    settings: dict[str, Any]  # all of them, hyperparameters and seed among them
    deviations: list[str]  # from the paper's settings
    # name, fingerprint, source (of the images), note (in what they are not as published), remark,
    # training_images, test_images
    dataset: dict[str, Any]
    versions: NotRequired[dict[str, str]]  # of Python and libraries
    commit: NotRequired[str | None]  # of the code
    finished_at: NotRequired[str]  # in ISO 8601, UTC
    status: Literal["finished", "diverged", "failed"]
    error: NotRequired[str]  # of a run that failed
    final: NotRequired[dict[str, Measured]]  # after the last round; empty if it diverged
    # who has which images: hash, sizes (training images of each client); test_images that are
    # evaluated, where it is not all, or test_sizes of each client, where each has its own
    partition: NotRequired[dict[str, Any]]
    model_parameters: NotRequired[int | list[int]]  # of each client's network, where they differ
    # by direction ("down", "up") and name: how many numbers and bytes
    messages_per_round: NotRequired[dict[str, dict[str, list[int]]]]
    seconds_per_round: NotRequired[FromZero]
    wall_seconds: NotRequired[FromZero]
    device: NotRequired[str]  # the processor or GPU
    threads_per_client: NotRequired[int | None]
    workers: NotRequired[int]  # clients side by side
    gpu_peak_bytes: NotRequired[int]
    metrics: dict[str, list[Measured]]  # by name: a value for each round
    digest: NotRequired[str]  # of status, final measures and metrics; old records have none


_RECORD = TypeAdapter(Record)


def _told(error: Exception) -> str:
    """What is wrong with the content of a file."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place[:200] or 'it'}: {first['msg']}"


def digest_of(record: Mapping[str, Any]) -> str:
    """Return twelve hex digits that change with the results of a run."""
    results = [record["status"], record.get("final"), record["metrics"]]
    return hashlib.sha256(json.dumps(results).encode()).hexdigest()[:12]


# ---- where records lie, and how they are read and written


def runs_beside(folder: Path) -> Path:
    """Return the folder of records: ``FEDNB_RUNS``, or ``results/runs`` in a folder."""
    named = os.environ.get("FEDNB_RUNS")
    if named:
        return Path(os.path.abspath(os.path.expanduser(named)))
    return folder / "results" / "runs"


def runs_folder(where: Path | None = None) -> Path:
    """Return what is `runs_beside` a folder, by default the one in which one works.

    In the project's own folder and its ``notebooks`` it is the project's, of which a wheel has none.
    A notebook of one's own that is executed there has its records beside it.
    """
    folder = Path.cwd() if where is None else where.absolute()
    real = folder.resolve()
    executed = notebooks.executed(vars(sys.modules["__main__"])) if where is None else None
    is_there = executed is not None and Path(executed).resolve().parent == real
    is_own = is_there and notebooks.name(str(executed)).endswith(".ipynb")
    is_the_projects = real == ROOT or (real.is_relative_to(ROOT / "notebooks") and not is_own)
    return runs_beside(home() if is_the_projects else folder)


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
    """Return twelve hex digits that name a run, of its settings in one level (`Settings.flat`).

    What is None does not count: a setting that is added later leaves old keys as they are.
    """
    values = {name: value for name, value in recipe.items() if value is not None}
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def path(settings: Settings, runs: Path | None = None) -> Path:
    """Return the file of a run in a folder of records: easy to read, and unique by its key."""
    recipe = settings.flat()
    dataset = re.sub(r"[^\w.+-]+", "-", recipe["dataset"])  # a folder's name may hold anything
    name = f"{settings.method}-{dataset[-40:]}-seed{settings.seed}-{key(recipe)}.json"
    return (runs or runs_folder()) / name


def state(record: Mapping[str, Any]) -> str:
    """Return the status of a record, or ``stale`` if an older results version made it."""
    return "stale" if record["results_version"] < RESULTS_VERSION else record["status"]


def read(path: Path) -> Record:
    """Read a record; a `RunError` if it has not the form of one, or not the key of its settings."""
    try:
        record = cast(Record, json.loads(path.read_text(encoding="utf-8")))
        _RECORD.validate_python(record)
        if "digest" in record and record["digest"] != digest_of(record):
            raise ValueError("its results are not those that were recorded")
        if record["key"] != key(record["settings"]):
            raise ValueError("its key is not that of its settings, which somebody has changed")
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(
            f"{path.name} in {path.parent} is no run record ({_told(error)}): restore it (for instance "
            "with `git checkout`) or delete it, and the run is made again."
        ) from error
    return record


def recorded(path: Path) -> Record | None:
    """Read the record, if there is one that counts, else None; a `RunError` as from `read`."""
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
    """Read the records of a folder, or of `runs_folder`, by their paths."""
    return {path: read(path) for path in sorted((folder or runs_folder()).glob("*.json"))}


# ---- making the record of a run


def of_run(settings: Settings, fed: Federation, status: str) -> Record:
    """Return the record of a run that has ended, ``finished`` or ``diverged``."""
    return _record(settings, fed.dataset, type(fed.method), _results(fed, status))


def of_failure(settings: Settings, dataset: Dataset, method: type, error: Exception) -> Record:
    """Return the record of a run that an error has ended."""
    reason = f"{type(error).__name__}: {error}"
    results = {"status": "failed", "metrics": {}, "error": reason}
    return _record(settings, dataset, method, results)


@functools.cache
def commit() -> str | None:
    """Return the code's commit, with ``+changes`` if it differs; None outside a git checkout."""
    if not CHECKOUT:  # it may lie in a checkout of something else
        return None
    try:
        head = _git("rev-parse", "--short=10", "HEAD")
        changes = _git("status", "--porcelain", "--", "fednb", "fednb_lab", "notebooks")
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.strip() + ("+changes" if changes else "")


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.check_output(command, cwd=ROOT, stderr=subprocess.DEVNULL, text=True)


def _record(settings: Settings, dataset: Dataset, method: type, results: dict[str, Any]) -> Record:
    """Results, below what was run: on which data, with which code, and when it ended."""
    recipe = settings.flat()
    source = sources.digest(method)
    heading = {
        "key": key(recipe),
        "results_version": RESULTS_VERSION,
        "method": settings.method,
        **({"source": source} if source else {}),
        "settings": recipe,
        "deviations": [str(deviation) for deviation in deviations(settings)],
        "dataset": {
            "name": dataset.name,
            "fingerprint": dataset.fingerprint,
            "source": dataset.source,
            "note": dataset.note,
            "remark": dataset.remark,
            "training_images": len(dataset.labels),
            "test_images": len(dataset.test_labels),
        },
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "torch": torch.__version__,
            "torchvision": metadata.version("torchvision"),
        },
        "commit": commit(),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    record = heading | results
    return cast(Record, record | {"digest": digest_of(record)})


def _results(fed: Federation, status: str) -> dict[str, Any]:
    """What came out: measures, who had which images, what was sent, how long it took, on what."""
    seconds = [entry["seconds"] for entry in fed.history]
    evaluation_seconds = [entry["evaluation_seconds"] for entry in fed.history]
    results = {
        "status": status,
        "final": _final(fed) if status == "finished" else {},
        "partition": _partition(fed),
        "model_parameters": _model_parameters(fed),
        "messages_per_round": {
            way: {name: list(sizes) for name, sizes in sent.items()}
            for way, sent in fed.traffic.items()
        },
        "seconds_per_round": round(sum(seconds) / len(seconds), 3),
        "wall_seconds": round(sum(seconds) + sum(evaluation_seconds), 1),
        "device": build.device_name(fed.device),
        "threads_per_client": 1 if fed.device == "cpu" else None,
        "workers": fed.workers,
    }
    if fed.device != "cpu":  # everything that was there at once: images, networks, all memories
        results["gpu_peak_bytes"] = torch.cuda.max_memory_allocated(fed.device)
    return results | {"metrics": _metrics(fed)}


def _final(fed: Federation) -> dict[str, Any]:
    """The measures of the last round, the best accuracy, and the mean of the last five of these."""
    accuracies = [entry["accuracy"] for entry in fed.history if "accuracy" in entry]
    last = {name: value for name, value in fed.history[-1].items() if name.startswith(_FINAL)}
    means = {"best": max(accuracies), "mean_of_last_5": float(np.mean(accuracies[-5:]))}
    return _plain(last) | means


def _partition(fed: Federation) -> dict[str, Any]:
    split: dict[str, Any] = {
        "hash": partition.digest(fed.parts),
        "sizes": [len(part) for part in fed.parts],
    }
    if fed.test_index is not None:
        split["test_images"] = len(fed.test_index)
    if fed.test_parts is not None:
        split["test_sizes"] = [len(part) for part in fed.test_parts]
    return split


def _model_parameters(fed: Federation) -> int | list[int]:
    """How many parameters the network has; of each client's, where they differ."""
    if fed.architectures:
        return [len(flat(fed.build_model(name))) for name in fed.architectures]
    return len(flat(fed.build_model()))


def _metrics(fed: Federation) -> dict[str, list[Any]]:
    """What was measured, by name: a value for each round, None where it was not."""
    names = dict.fromkeys(itertools.chain.from_iterable(fed.history))  # as they first occur
    names.pop("finite", None)
    return {name: [_plain(entry.get(name)) for entry in fed.history] for name in names}


def _plain(value: Any) -> Any:
    """Numbers as JSON knows them: rounded where more digits say nothing, None for NaN and Inf."""

    def rounded(number: float) -> float | None:
        return float(f"{number:.7g}") if math.isfinite(number) else None

    return tree_map_only(float, rounded, value)
