"""The run record, its key, and the ledger: one small JSON file per run.

A run is known by its recipe (method, settings, seed, data), not by the notebook that asked for it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata  # torchvision itself is slow to import
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from fednb import ROOT, data, models, partition, seeds
from fednb import evaluation as evaluate
from fednb.data import Dataset
from fednb.experiments import cuda_graphs
from fednb.experiments.settings import Settings, SettingsError, departures
from fednb.federation import FedAvg, Federation, train_eagerly

# Raise when numerics change on purpose: records of an older version are then stale, and are run again.
RESULTS_VERSION = 1


class RunError(RuntimeError):
    """A results folder or record that cannot be used; the message says which, why, and what to do."""


def runs_folder() -> Path:
    """Where runs are recorded: ``$FEDNB_RUNS``, or ``results/runs``.

    A record does not say whose code made it. So with ``$FEDNB_NOTEBOOKS`` it is that folder's own ``results/runs``, and
    that of the folder where one works if the package is installed without its notebooks.
    """
    own = os.environ.get("FEDNB_NOTEBOOKS") or (ROOT if (ROOT / "notebooks").exists() else Path.cwd())
    return Path(os.environ.get("FEDNB_RUNS", Path(own) / "results" / "runs"))


def recipe(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What of the settings, all in one level, makes a run; without what is None and does not apply."""
    # so that a setting added later leaves the keys of older runs as they are
    return {name: value for name, value in settings.items() if value is not None}


def key(settings: Settings, fingerprint: str, version: int = RESULTS_VERSION) -> str:
    """Twelve hex digits that name a recipe."""
    named = recipe(settings.flat()) | {"version": version, "data": fingerprint}
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:12]


def record_path(settings: Settings, fingerprint: str, folder: Path | None = None) -> Path:
    """The file of a run: readable in a listing, unique by its key."""
    name = f"{settings.method}-{settings.dataset}-seed{settings.seed}-{key(settings, fingerprint)}.json"
    return (folder or runs_folder()) / name


def read(path: Path) -> dict[str, Any]:
    """Read a record."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        missing = {"key", "status", "results_version", "settings", "dataset", "departures", "metrics"} - record.keys()
    except (OSError, ValueError, AttributeError) as error:
        raise RunError(
            f"{path.name} in {path.parent} is not a readable run record ({error}): "
            "restore it (for instance with `git checkout`) or delete it, and the run is made again."
        ) from error
    if missing:
        raise RunError(f"{path.name} in {path.parent} lacks {', '.join(sorted(missing))}: restore or delete it.")
    return record


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write by renaming a finished temporary file, so that nobody ever sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(part, 0o644)
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def load(folder: Path | None = None) -> pd.DataFrame:
    """The ledger: one row per record.

    Columns are the settings, ``accuracy`` (last round), ``best``, ``mean_of_last_5``, ``rounds``, ``status``, ``stale``
    (made by an older results version), ``note`` (what is not the published data), ``remark`` (what has to be known of them),
    ``departures``, ``seconds_per_round``, ``path``, and ``record``, the whole.
    """
    rows = []
    for path in sorted((folder or runs_folder()).glob("*.json")):
        record = read(path)
        rows.append(
            record["settings"]
            | record.get("final", {})
            | {name: record.get(name) for name in ("key", "status", "departures", "seconds_per_round", "commit")}
            | {
                "rounds": len(record["metrics"].get("round", [])),
                "note": record["dataset"]["note"],
                "remark": record["dataset"].get("remark", ""),
                "stale": record["results_version"] < RESULTS_VERSION,
                "path": path,
                "record": record,
            }
        )
    return pd.DataFrame(rows)


@functools.lru_cache(maxsize=2)
def _dataset(name: str, root: str | None) -> Dataset:
    return data.load(name)


def load_dataset(name: str) -> Dataset:
    """`fednb.data.load`, kept in memory."""
    return _dataset(name, os.environ.get("FEDNB_DATA"))


def divide(settings: Settings, dataset: Dataset) -> tuple[partition.Parts, partition.Parts | None, partition.Parts]:
    """Who gets which image, drawn with the run's seed as the papers' code does; int64 indices.

    Returns
    -------
    parts, test_parts
        Training and test images of each client; None: all clients share the test set.
    held_out
        Training images that are kept back, so that hyperparameters can be chosen on them: one array for all clients
        together; of clients with test images or a domain of their own, one array for each. Empty without ``validation``.
    """
    labels, test_labels = dataset.labels.numpy(), dataset.test_labels.numpy()
    rng = np.random.RandomState(settings.seed)
    if settings.partition == "n-way-k-shot":
        parts, test_parts = partition.n_way_k_shot(
            labels,
            test_labels,
            settings.num_clients,
            settings.ways,
            settings.stdev,
            rng,
            random.Random(settings.seed),
            k=settings.shots,
            mnist=settings.dataset == "mnist",
            draw=settings.draw,
            train_shots_max=max(settings.shots + settings.shots // 10, settings.shots + settings.stdev),  # 110 for 100
            test_shots=settings.test_shots,
        )
    elif settings.partition == "domain":
        domain_rng = seeds.generator(settings.seed, "domains")
        domains = dataset.train_groups.numpy()
        parts = partition.by_domain(labels, domains, settings.per_domain, domain_rng, balanced=settings.balanced_draw)
        test_parts = None  # one model for all domains is judged in each of them
    if settings.partition in ("n-way-k-shot", "domain"):
        if settings.validation is None:
            return parts, test_parts, []
        held_out = [part[_held_out(settings, len(part), i)] for i, part in enumerate(parts)]
        return [np.setdiff1d(*pair) for pair in zip(parts, held_out, strict=True)], test_parts, held_out
    held = _held_out(settings, len(labels)) if settings.validation else np.empty(0, np.int64)
    kept = np.setdiff1d(np.arange(len(labels)), held)  # in the data set's order
    if settings.partition == "iid":
        parts = partition.iid(labels[kept], settings.num_clients, rng)
    else:
        options = {"balance": settings.balance, "min_size": settings.min_size}
        options = {name: value for name, value in options.items() if value is not None}
        draw = partition.quantity if settings.partition == "quantity" else partition.dirichlet
        parts = draw(labels[kept], settings.num_clients, settings.beta, rng, **options)
    return [kept[part] for part in parts], None, [held] if len(held) else []


def _held_out(settings: Settings, num_images: int, client: int = 0) -> np.ndarray:
    """Places of the images that are kept back, sorted; int64 [n]."""
    order = seeds.generator(settings.seed, "validation", 0, client).permutation(num_images)
    return np.sort(order[: max(1, round(settings.validation * num_images))])


def test_index(settings: Settings, dataset: Dataset) -> np.ndarray | None:
    """The test images that are evaluated, sorted, int64 [n]; None: all of them.

    Whatever the seed they are the same, so that runs stay comparable; with a larger ``test_per_domain`` come others on top.
    """
    if settings.test_per_domain is None:
        return None
    groups = dataset.test_groups.numpy()
    orders = [
        seeds.generator(0, "test images", 0, domain).permutation(np.flatnonzero(groups == domain))
        for domain in range(len(dataset.group_names))
    ]
    return np.sort(np.concatenate([order[: settings.test_per_domain] for order in orders]))


def federation(
    settings: Settings, methods: Mapping[str, type[FedAvg]], *, device: str | None = None, workers: int | None = None
) -> Federation:
    """Build the federation that the settings describe, ready for its first round."""
    chosen, dataset = _device(device), load_dataset(settings.dataset)
    _, channels, side, _ = dataset.images.shape

    def build_model(name: str = settings.model) -> models.Net:
        return models.build(
            name,
            dataset.num_classes,
            channels=channels,
            side=side,
            projection_head=settings.projection_head,
            projection_dim=settings.projection_dim,
            pretrained=bool(settings.pretrained),
            precision=settings.precision or "float32",
            seed=settings.seed,
        )

    try:
        parts, test_parts, held_out = divide(settings, dataset)
        return Federation(
            method=methods[settings.method](**settings.hyperparameters),
            dataset=dataset,
            parts=parts,
            test_parts=test_parts,
            test_index=test_index(settings, dataset),
            held_out=held_out,
            architectures=models.heterogeneous(settings.model, settings.num_clients) if settings.heterogeneous else None,
            build_model=build_model,
            training=settings.training,
            seed=settings.seed,
            participation=settings.participation,
            evaluate_every=settings.evaluate_every or 1,
            device=chosen,
            workers=workers or _workers(chosen),
            train=train_eagerly if chosen == "cpu" else cuda_graphs.Recorder(),
        )
    except ValueError as error:  # an impossible partition, a network that does not fit the images
        raise SettingsError(str(error)) from error


def device_name(chosen: str | None = None) -> tuple[str, bool]:
    """The name of the device on which runs are made here, as records have it, and whether it is a GPU."""
    device = _device(chosen)
    return (_cpu_name(), False) if device == "cpu" else (torch.cuda.get_device_name(device), True)


def _workers(device: str) -> int:
    """``$FEDNB_WORKERS``, or one per core; on a GPU one."""
    text = os.environ.get("FEDNB_WORKERS") or str((os.cpu_count() or 1) if device == "cpu" else 1)
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"FEDNB_WORKERS is {text!r}; it must be a whole number from 1.")
    return int(text)


def _device(chosen: str | None) -> str:
    name = chosen or os.environ.get("FEDNB_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
    kind = name.partition(":")[0]
    if kind == "cpu" or (kind == "cuda" and torch.cuda.is_available()):
        return name
    raise SettingsError(f"There is no device {name!r} here; it must be cpu{' or cuda' * torch.cuda.is_available()}.")


def run(
    settings: Settings,
    methods: Mapping[str, type[FedAvg]],
    *,
    device: str | None = None,
    workers: int | None = None,
    again: bool = False,
    checkpoint_seconds: float = 20.0,
) -> dict[str, Any]:
    """Make a run and record it, or return its record if there is one.

    A run is known by its settings, not by the method's code: after changing a method, run it with ``again=True``.
    A run that was killed goes on from its last checkpoint, and ends as if it had not been killed: bit by bit on a CPU.
    Of two processes that ask for the same run, the second waits for the first.

    Returns
    -------
    dict
        The record. ``status`` is ``finished``, or ``diverged`` if a loss or weight became NaN or Inf.
    """
    commit()  # now: the code on disk may change while the run goes on
    fingerprint = load_dataset(settings.dataset).fingerprint
    path = record_path(settings, fingerprint)
    lock, checkpoint = (_beside(path, suffix) for suffix in (".lock", ".pt"))
    checkpoints = checkpoint.parent
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        checkpoints.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise RunError(
            f"Runs cannot be recorded in {path.parent} ({error.strerror}): "
            "make it writable, or set FEDNB_RUNS to another folder."
        ) from error
    with _locked(lock):
        if path.exists():
            record = read(path)
            if record["status"] != "failed" and not again:
                return record
        try:
            record = _run(settings, methods, device, workers, checkpoint, checkpoint_seconds)
        except SettingsError:
            raise
        except Exception as error:  # recorded, so that a sweep can say what happened; made again at the next request
            failed = _head(settings, load_dataset(settings.dataset)) | {"status": "failed", "metrics": {}}
            _write(path, failed | {"error": f"{type(error).__name__}: {error}"})
            raise
        _write(path, record)
        checkpoint.unlink(missing_ok=True)
    return record


def _beside(path: Path, suffix: str) -> Path:
    """The lock or the checkpoint of the run with this record."""
    return path.parent.parent / "checkpoints" / f"{path.stem}{suffix}"


def has_checkpoint(path: Path) -> bool:
    """Whether the run with this record can go on from a checkpoint."""
    return _beside(path, ".pt").exists()


def history(path: Path) -> list[dict[str, Any]]:
    """The rounds up to the checkpoint of the run with this record; empty without one, or if it cannot be read."""
    checkpoint = _beside(path, ".pt")
    try:  # mapped: of gigabytes of networks nothing is read
        return torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)["history"]
    except Exception:  # a run with a broken checkpoint starts anew
        return []


def in_progress(path: Path) -> bool:
    """Whether a living process is making the run with this record (always False where there are no such locks)."""
    try:
        import fcntl

        with _beside(path, ".lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        pass
    return False


def _run(
    settings: Settings,
    methods: Mapping[str, type[FedAvg]],
    device: str | None,
    workers: int | None,
    checkpoint: Path,
    checkpoint_seconds: float,
) -> dict[str, Any]:
    fed = federation(settings, methods, device=device, workers=workers)
    if checkpoint.exists():
        try:
            fed.restore(torch.load(checkpoint, map_location=fed.device, weights_only=True))
        except Exception as error:
            print(f"fednb: {checkpoint.name} cannot be read ({error}); the run starts anew.", file=sys.stderr)
    if fed.device != "cpu":
        torch.cuda.reset_peak_memory_stats(fed.device)
    status, unsaved = "finished", 0.0
    for entry in _progress(fed, settings):
        if not entry["finite"]:
            status = "diverged"
            break
        unsaved += entry["seconds"] + entry["evaluation_seconds"]
        if unsaved >= checkpoint_seconds and fed.rounds_done < settings.num_rounds:
            _save(fed.checkpoint(), checkpoint)
            unsaved = 0.0
    history = pd.DataFrame(fed.history).drop(columns="finite")
    accuracies = [entry["accuracy"] for entry in fed.history if "accuracy" in entry]
    final: dict[str, Any] = {}
    if accuracies and status == "finished":
        wanted = ("accuracy", "clients", "groups", "validation")
        final = {name: _plain(value) for name, value in fed.history[-1].items() if name.startswith(wanted)}
        final |= {"best": evaluate.best(accuracies), "mean_of_last_5": evaluate.mean_of_last(accuracies)}
    seconds = history["seconds"]
    return _head(settings, fed.dataset) | {
        "status": status,
        "final": final,
        "partition": _partition(fed),
        "model_parameters": _model_parameters(fed),
        "messages_per_round": {d: {n: list(s) for n, s in names.items()} for d, names in fed.traffic.items()},
        "seconds_per_round": round(float(seconds.mean()), 3),
        "wall_seconds": round(float((seconds + history["evaluation_seconds"]).sum()), 1),
        "device": device_name(fed.device)[0],
        "threads_per_client": 1 if fed.device == "cpu" else None,
        "workers": fed.workers,
        # everything that was on the GPU at once: images, networks, all clients' memories
        **({} if fed.device == "cpu" else {"gpu_peak_bytes": torch.cuda.max_memory_allocated(fed.device)}),
        "metrics": {name: [_plain(v) for v in history[name]] for name in history},
    }


def _partition(fed: Federation) -> dict[str, Any]:
    told = {"hash": partition.digest(fed.parts), "sizes": [len(part) for part in fed.parts]}
    if fed.test_index is not None:
        told["test_images"] = len(fed.test_index)
    return told if fed.test_parts is None else told | {"test_sizes": [len(part) for part in fed.test_parts]}


def _model_parameters(fed: Federation) -> int | list[int]:
    """Trainable values of the network; of each client's, where they differ."""
    if fed.architectures is None:
        return models.num_parameters(fed.build_model())
    numbers = {key: models.num_parameters(fed.build_model(key)) for key in set(fed.architectures)}
    return [numbers[key] for key in fed.architectures]


def _head(settings: Settings, dataset: Dataset) -> dict[str, Any]:
    packages = {"python": platform.python_version(), "numpy": np.__version__}
    return {
        "key": key(settings, dataset.fingerprint),
        "results_version": RESULTS_VERSION,
        "method": settings.method,
        "settings": settings.flat(),
        "departures": departures(settings),
        "dataset": {
            **{name: getattr(dataset, name) for name in ("name", "fingerprint", "source", "note", "remark")},
            "training_images": len(dataset.labels),
            "test_images": len(dataset.test_labels),
        },
        "versions": packages | {"torch": torch.__version__, "torchvision": metadata.version("torchvision")},
        "commit": commit(),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _write(path: Path, record: dict[str, Any]) -> None:
    # one line per metric: small, and a difference between two records can be read
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in record.items() if name != "metrics"]
    metrics = [f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in record["metrics"].items()]
    lines.append('  "metrics": {\n' + ",\n".join(metrics) + "\n  }")
    write_atomically(path, "{\n" + ",\n".join(lines) + "\n}\n")


def _save(checkpoint: dict[str, Any], path: Path) -> None:
    part = path.with_suffix(".part")
    torch.save(checkpoint, part)
    os.replace(part, path)


def _plain(value: Any) -> Any:
    """Numbers as JSON knows them: rounded where more digits say nothing, None for NaN and Inf."""
    if isinstance(value, float | np.floating):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


def _progress(fed: Federation, settings: Settings) -> Iterator[dict[str, Any]]:
    """Run the rounds that are left, with a bar (``FEDNB_PROGRESS=bar``, the default), a line each (``log``) or ``off``."""
    kind = os.environ.get("FEDNB_PROGRESS", "bar")
    todo = range(fed.rounds_done, settings.num_rounds)
    bar = tqdm(
        todo,
        initial=fed.rounds_done,
        total=settings.num_rounds,
        desc=f"{settings.method} on {settings.dataset}",
        unit="round",
        leave=False,
        disable=kind != "bar",
    )
    for t in bar:
        entry = fed.run_round()
        text = f"{entry['accuracy']:.2f} %" if "accuracy" in entry else "not evaluated" if entry["finite"] else "diverged"
        bar.set_postfix_str(text)
        if kind == "log":
            left = (settings.num_rounds - t - 1) * (entry["seconds"] + entry["evaluation_seconds"]) / 60
            done = f"round {t + 1}/{settings.num_rounds}"
            print(f"{done}  {text}  {entry['seconds']:.1f} s, about {left:.1f} min left", flush=True)
        yield entry


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that goes away with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system: two equal runs then both train, and record the same
        yield
        return
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
