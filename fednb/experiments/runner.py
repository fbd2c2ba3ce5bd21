"""One run: made once, recorded by renaming a finished file, resumed from its last checkpoint if it was killed."""

import dataclasses
import hashlib
import io
import math
import os
import platform
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib import metadata  # torchvision itself is slow to import
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch.utils._pytree import tree_map_only
from tqdm import tqdm

from fednb import partition
from fednb.data import Dataset
from fednb.errors import RunError, SettingsError
from fednb.experiments import build, ledger
from fednb.experiments.build import Methods
from fednb.experiments.settings import Settings, deviations
from fednb.federation import Federation, Trainer, flat
from fednb.hyperparameters import one_of, rule_of
from fednb.training.stacked import SeedsTogether

CHECKPOINT_SECONDS = 20.0  # from one to the next


def run(
    settings: Settings,
    methods: Methods,
    *,
    workers: int | None = None,
    again: bool = False,
    train: Trainer | None = None,
) -> dict[str, Any]:
    """Make a run and record it, or return its record if there is one that counts.

    A run is known by its settings, not by the method's code: after changing a method, run it with ``again=True``.
    A run that was killed goes on from its last checkpoint, and ends as if it had not been killed: bit by bit on a CPU.
    Of two processes that ask for the same run, the second waits for the first. In the record ``status`` is ``finished``, or
    ``diverged`` if a loss or weight became NaN or Inf. A `RunError` tells of results that cannot be written.
    """
    beside = [
        int(seed) for seed in os.environ.get("FEDNB_SEEDS", "").split(",") if seed
    ]  # a sweep makes them together
    if train is None and settings.seed in beside:
        return run_seeds(settings, methods, beside, workers=workers, again=again)[
            beside.index(settings.seed)
        ]
    ledger.commit()  # now: the code on disk may change while the run goes on
    dataset, path = build.load_dataset(settings.dataset), ledger.path(settings)
    checkpoint = path.parent.parent / "checkpoints" / f"{path.stem}.pt"
    ledger.make_folders()  # now, and not after the training
    with FileLock(
        checkpoint.with_suffix(".lock")
    ):  # it goes away with the process, however that ends
        if not again and (record := ledger.recorded(path)):
            if record["dataset"].get("fingerprint") != dataset.fingerprint:
                way_out = "set FEDNB_RUNS to another folder to keep both, or run with again=True to replace it"
                raise RunError(f"{path.name} is recorded on other data than are here: {way_out}.")
            return record
        for part in checkpoint.parent.glob(
            f".{checkpoint.name}.*"
        ):  # of what a killed process was writing
            part.unlink()
        if again:
            checkpoint.unlink(missing_ok=True)  # it is of the code as it was
        try:
            fed = build.federation(settings, methods, workers=workers)
            fed.train = train or fed.train
            record = _head(settings, dataset) | _results(fed, _train(fed, settings, checkpoint))
        except (SettingsError, RunError):
            raise
        except Exception as error:  # recorded, so that a sweep can say what happened; made again at the next request
            failed = {
                "status": "failed",
                "metrics": {},
                "error": f"{type(error).__name__}: {error}",
            }
            ledger.write(path, _head(settings, dataset) | failed)
            raise
        with ledger.writing_to(path.parent):
            ledger.write(path, record)
        checkpoint.unlink(missing_ok=True)
    return record


def run_seeds(
    settings: Settings, methods: Methods, seeds: Sequence[int], **options: Any
) -> list[dict[str, Any]]:
    """`run` with several seeds, which train as one; the records are those of the runs alone, up to rounding."""
    meeting = SeedsTogether(len(seeds))

    def one(seed: int) -> dict[str, Any]:
        try:
            return run(dataclasses.replace(settings, seed=seed), methods, train=meeting, **options)
        finally:
            meeting.leave()

    with ThreadPoolExecutor(len(seeds)) as pool:
        return list(pool.map(one, seeds))


def _train(fed: Federation, settings: Settings, checkpoint: Path) -> str:
    """Run the rounds that are left; the status in which the run ends."""
    shown_as = rule_of(one_of(("bar", "log", "off")))  # of rounds a bar, a line each, nothing
    progress = shown_as.fit("FEDNB_PROGRESS", os.environ.get("FEDNB_PROGRESS") or "bar")
    _restore(fed, checkpoint)
    if fed.device != "cpu":
        torch.cuda.reset_peak_memory_stats(fed.device)
    number, saved = settings.num_rounds, time.monotonic()
    shown = {"desc": f"{settings.method} on {settings.dataset}", "unit": "round", "leave": False}
    with tqdm(initial=fed.rounds_done, total=number, disable=progress != "bar", **shown) as bar:
        while fed.rounds_done < number:
            entry = fed.run_round()
            text = "not evaluated" if entry["finite"] else "diverged"
            text = f"{entry['accuracy']:.2f} %" if "accuracy" in entry else text
            bar.set_postfix_str(text)
            bar.update()
            if progress == "log":
                seconds = entry["seconds"] + entry["evaluation_seconds"]
                left = (number - fed.rounds_done) * seconds / 60
                told = f"round {fed.rounds_done}/{number}  {text}  {seconds:.1f} s, about {left:.1f} min left\n"
                print(
                    told, end="", flush=True
                )  # in one piece: seeds that train together write here at once
            if not entry["finite"]:
                return "diverged"
            if time.monotonic() - saved >= CHECKPOINT_SECONDS and fed.rounds_done < number:
                with ledger.writing_to(checkpoint.parent):
                    _save(fed.checkpoint(), checkpoint)
                saved = time.monotonic()
    return "finished"


def _save(checkpoint: dict[str, Any], path: Path) -> None:
    """A digest of what follows, and what `torch.save` makes of it: torch itself would not see a byte that has changed."""
    buffer = io.BytesIO()
    torch.save(checkpoint, buffer)
    ledger.write_atomically(path, hashlib.sha256(buffer.getbuffer()).digest(), buffer.getbuffer())


def _restore(federation: Federation, path: Path) -> None:
    """Go back to a checkpoint; one that is damaged, or of something else, is told and ignored."""
    if not path.exists():
        return
    content = path.read_bytes()
    try:
        if hashlib.sha256(content[32:]).digest() != content[:32]:
            raise ValueError("it is damaged")
        federation.restore(
            torch.load(io.BytesIO(content[32:]), map_location=federation.device, weights_only=True)
        )
    except Exception as error:
        print(f"fednb: {path.name} cannot be used ({error}); the run starts anew.", file=sys.stderr)


def _head(settings: Settings, dataset: Dataset) -> dict[str, Any]:
    """What a record tells of the run, see ``record.schema.yaml``."""
    versions = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
    }
    told = {
        name: getattr(dataset, name) for name in ("name", "fingerprint", "source", "note", "remark")
    }
    return {
        "key": ledger.key(settings.flat()),
        "results_version": ledger.RESULTS_VERSION,
        "method": settings.method,
        "settings": settings.flat(),
        "deviations": deviations(settings),
        "dataset": told
        | {"training_images": len(dataset.labels), "test_images": len(dataset.test_labels)},
        "versions": versions | {"torchvision": metadata.version("torchvision")},
        "commit": ledger.commit(),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _results(fed: Federation, status: str) -> dict[str, Any]:
    final: dict[str, Any] = {}
    if status == "finished":
        accuracies = [entry["accuracy"] for entry in fed.history if "accuracy" in entry]
        wanted = ("accuracy", "clients", "groups", "validation")
        final = _plain(
            {name: value for name, value in fed.history[-1].items() if name.startswith(wanted)}
        )
        final |= {"best": max(accuracies), "mean_of_last_5": float(np.mean(accuracies[-5:]))}
    split: dict[str, Any] = {
        "hash": partition.digest(fed.parts),
        "sizes": [len(part) for part in fed.parts],
    }
    if fed.test_index is not None:
        split["test_images"] = len(fed.test_index)
    if fed.test_parts is not None:
        split["test_sizes"] = [len(part) for part in fed.test_parts]
    sizes = [len(flat(fed.build_model(name))) for name in fed.architectures or ()]
    seconds = [entry["seconds"] for entry in fed.history]
    result = {
        "status": status,
        "final": final,
        "partition": split,
        "model_parameters": sizes
        or len(flat(fed.build_model())),  # of each client's, where they differ
        "messages_per_round": {
            d: {n: list(s) for n, s in names.items()} for d, names in fed.traffic.items()
        },
        "seconds_per_round": round(sum(seconds) / len(seconds), 3),
        "wall_seconds": round(
            sum(seconds) + sum(entry["evaluation_seconds"] for entry in fed.history), 1
        ),
        "device": build.device_name(fed.device),
        "threads_per_client": 1 if fed.device == "cpu" else None,
        "workers": fed.workers,
    }
    if (
        fed.device != "cpu"
    ):  # everything that was there at once: images, networks, all clients' memories
        result["gpu_peak_bytes"] = torch.cuda.max_memory_allocated(fed.device)
    names = dict.fromkeys(name for entry in fed.history for name in entry if name != "finite")
    return result | {
        "metrics": {name: [_plain(entry.get(name)) for entry in fed.history] for name in names}
    }


def _plain(value: Any) -> Any:
    """Numbers as JSON knows them: rounded where more digits say nothing, None for NaN and Inf."""
    return tree_map_only(
        float, lambda number: float(f"{number:.7g}") if math.isfinite(number) else None, value
    )
