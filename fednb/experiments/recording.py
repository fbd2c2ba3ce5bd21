"""Making the record of a run: its settings, data and code, and what the federation came to."""

import functools
import itertools
import math
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata  # torchvision itself is slow to import
from typing import Any, cast

import numpy as np
import torch
from torch.utils._pytree import tree_map_only

from fednb import CHECKOUT, ROOT, partition
from fednb.data import Dataset
from fednb.experiments import build, ledger
from fednb.experiments.record import DataRecord, PartitionRecord, Record, digest_of
from fednb.experiments.settings import Settings, deviations
from fednb.federation import Federation, flat

# What of the last round's measures is a result; the rest stands in the metrics alone.
_FINAL = ("accuracy", "clients", "groups", "validation")


def of_run(settings: Settings, fed: Federation, status: str) -> Record:
    """The record of a run that has ended, ``finished`` or ``diverged``."""
    return _sealed(_heading(settings, fed.dataset) | _results(fed, status))


def of_failure(settings: Settings, dataset: Dataset, error: Exception) -> Record:
    """The record of a run that an error has ended."""
    reason = f"{type(error).__name__}: {error}"
    results = {"status": "failed", "metrics": {}, "error": reason}
    return _sealed(_heading(settings, dataset) | results)


def _sealed(record: dict[str, Any]) -> Record:
    return cast(Record, record | {"digest": digest_of(record)})


@functools.cache
def commit() -> str | None:
    """The commit of the code, with ``+changes`` if it differs; None outside a git checkout."""
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


def _heading(settings: Settings, dataset: Dataset) -> dict[str, Any]:
    """What was run: on which data, with which code, and when it ended."""
    recipe = settings.flat()
    return {
        "key": ledger.key(recipe),
        "results_version": ledger.RESULTS_VERSION,
        "method": settings.method,
        "settings": recipe,
        "deviations": [str(deviation) for deviation in deviations(settings)],
        "dataset": DataRecord(
            name=dataset.name,
            fingerprint=dataset.fingerprint,
            source=dataset.source,
            note=dataset.note,
            remark=dataset.remark,
            training_images=len(dataset.labels),
            test_images=len(dataset.test_labels),
        ),
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "torch": torch.__version__,
            "torchvision": metadata.version("torchvision"),
        },
        "commit": commit(),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _results(fed: Federation, status: str) -> dict[str, Any]:
    """What came out: measures, who had which images, what was sent, how long it took, on what."""
    seconds = [entry["seconds"] for entry in fed.history]
    evaluation_seconds = [entry["evaluation_seconds"] for entry in fed.history]
    results = {
        "status": status,
        "final": _final(fed) if status == "finished" else {},
        "partition": _partition(fed),
        "model_parameters": _model_parameters(fed),
        "messages_per_round": _messages(fed),
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


def _partition(fed: Federation) -> PartitionRecord:
    split = PartitionRecord(
        hash=partition.digest(fed.parts), sizes=[len(part) for part in fed.parts]
    )
    if fed.test_index is not None:
        split["test_images"] = len(fed.test_index)
    if fed.test_parts is not None:
        split["test_sizes"] = [len(part) for part in fed.test_parts]
    return split


def _messages(fed: Federation) -> dict[str, dict[str, list[int]]]:
    """By direction and name: how many numbers and bytes crossed in the last round."""
    messages: dict[str, dict[str, list[int]]] = {}
    for direction, entries in fed.traffic.items():
        messages[direction] = {name: list(sizes) for name, sizes in entries.items()}
    return messages


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
