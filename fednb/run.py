"""One run: made once, recorded at its end, resumed from its last checkpoint if it was killed."""

import dataclasses
import io
import os
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from tqdm import tqdm

from fednb import build, records, sources
from fednb.build import Methods
from fednb.data import Dataset
from fednb.errors import RunError, SettingsError
from fednb.federation import Federation, Trainer
from fednb.records import Record
from fednb.settings import Settings

CHECKPOINT_SECONDS = 20.0  # from one to the next


def run(
    settings: Settings, methods: Methods, *, workers: int | None = None, again: bool = False
) -> Record:
    """Make a run and record it, or return its record if there is one that counts.

    A run is known by its settings; that the method's code was another when it was recorded is told
    in a sentence, and ``again=True`` makes it again. A run that was killed goes on from its last
    checkpoint, and ends as if it had not been killed: bit by bit on a CPU. Of two processes that
    ask for the same run, the second waits for the first. In the record ``status`` is ``finished``,
    or ``diverged`` if a loss or weight became NaN or Inf. A `RunError` tells of results that cannot
    be written.

    This is what notebooks call. Where a sweep's process makes several seeds (``FEDNB_SEEDS``), it
    makes all when the first is asked for; ``FEDNB_AGAIN=1`` says ``again=True`` to such a process.
    """
    again = again or os.environ.get("FEDNB_AGAIN") == "1"
    seeds = [int(seed) for seed in os.environ.get("FEDNB_SEEDS", "").split(",") if seed]
    if settings.seed not in seeds:
        return _run_one(settings, methods, workers, again)

    def run_seed(seed: int, together: Trainer) -> Record:
        of_seed = dataclasses.replace(settings, seed=seed)
        return _run_one(of_seed, methods, workers, again, together)

    made = build.trainers_of_gpus().for_all_seeds(run_seed, seeds)
    return made[seeds.index(settings.seed)]


def _run_one(
    settings: Settings,
    methods: Methods,
    workers: int | None,
    again: bool,
    train: Trainer | None = None,
) -> Record:
    """`run`, for one seed; ``train`` takes the place of the federation's own trainer."""
    progress = _progress()
    records.commit()  # now: the code on disk may change while the run goes on
    dataset = build.load_dataset(settings.dataset)
    path = records.path(settings)
    checkpoint = checkpoint_of(path)
    records.make_folders(path.parent)  # now, and not after the training
    with FileLock(checkpoint.with_suffix(".lock")):  # goes with the process, however that ends
        recorded = None if again else records.recorded(path)
        if recorded is not None:
            _require_same_data(recorded, dataset, path)
            if sources.is_other_code(recorded.get("source"), methods[settings.method]):
                told = "recorded with other code of the method than is here now"
                print(f"fednb: {path.name} is {told}; again=True makes it again.", file=sys.stderr)
            return recorded
        for part in checkpoint.parent.glob(f".{checkpoint.name}.*"):
            part.unlink()  # of a process that was killed while it wrote
        if again:  # it is of the code as it was
            checkpoint.unlink(missing_ok=True)
        try:
            fed = build.federation(settings, methods, workers=workers)
            fed.train = train or fed.train
            _restore(fed, checkpoint)
            if progress != "off":
                print(f"The record of this run goes to {path.parent}", flush=True)
            if fed.rounds_done and progress != "off":
                print(f"fednb: this run goes on after round {fed.rounds_done}", file=sys.stderr)
            status = _train(fed, settings, checkpoint, progress)
            record = records.of_run(settings, fed, status)
        except (SettingsError, RunError):
            raise
        except Exception as error:  # recorded, so that a sweep can say what happened
            method = methods[settings.method]
            records.write(path, records.of_failure(settings, dataset, method, error))
            raise
        with records.writing_to(path.parent):
            records.write(path, record)
        checkpoint.unlink(missing_ok=True)
    return record


def _progress() -> str:
    """``FEDNB_PROGRESS``: of rounds a bar, a line each ("log"), or nothing ("off")."""
    progress = os.environ.get("FEDNB_PROGRESS") or "bar"
    if progress not in ("bar", "log", "off"):
        message = f"FEDNB_PROGRESS is {progress!r}; it must be one of bar, log, off."
        raise SettingsError(message)
    return progress


def _require_same_data(record: Record, dataset: Dataset, path: Path) -> None:
    if record["dataset"].get("fingerprint") != dataset.fingerprint:
        raise RunError(
            f"{path.name} is recorded on other data than are here: set FEDNB_RUNS to another "
            "folder to keep both, or run with again=True to replace it."
        )


# ---- the rounds


def _train(fed: Federation, settings: Settings, checkpoint: Path, progress: str) -> str:
    """Run the rounds that are left; the status in which the run ends."""
    if fed.device != "cpu":
        torch.cuda.reset_peak_memory_stats(fed.device)
    saved = time.monotonic()
    with tqdm(
        initial=fed.rounds_done,
        total=settings.num_rounds,
        desc=f"{settings.method} on {settings.dataset}",
        unit="round",
        leave=False,
        disable=progress != "bar",
    ) as bar:
        while fed.rounds_done < settings.num_rounds:
            entry = fed.run_round()
            outcome = _outcome(entry)
            bar.set_postfix_str(outcome)
            bar.update()
            if progress == "log":
                _log_round(entry, outcome, fed.rounds_done, settings.num_rounds)
            if not entry["finite"]:
                return "diverged"
            is_due = time.monotonic() - saved >= CHECKPOINT_SECONDS
            if is_due and fed.rounds_done < settings.num_rounds:
                _save(fed, checkpoint)
                saved = time.monotonic()
    return "finished"


def _outcome(entry: dict[str, Any]) -> str:
    """What a round came to, in words: its accuracy in percent if it was evaluated."""
    if "accuracy" in entry:
        return f"{entry['accuracy']:.2f} %"
    return "not evaluated" if entry["finite"] else "diverged"


def _log_round(entry: dict[str, Any], outcome: str, rounds_done: int, num_rounds: int) -> None:
    seconds = entry["seconds"] + entry["evaluation_seconds"]
    minutes_left = (num_rounds - rounds_done) * seconds / 60
    rest = f", about {minutes_left:.1f} min left" if rounds_done < num_rounds else ""
    line = f"round {rounds_done}/{num_rounds}  {outcome}  {seconds:.1f} s{rest}\n"
    print(line, end="", flush=True)  # in one piece: seeds that train together write at once


# ---- checkpoints


def checkpoint_of(record: Path) -> Path:
    """Return the path of the checkpoint of the run with this record."""
    return record.parent.parent / "checkpoints" / f"{record.stem}.pt"


def _save(federation: Federation, path: Path) -> None:
    """Write a checkpoint in one piece; a `RunError` if that cannot be."""
    content = federation.checkpoint() | {"source": sources.digest(type(federation.method))}
    buffer = io.BytesIO()
    torch.save(content, buffer)
    with records.writing_to(path.parent):
        records.write_atomically(path, buffer.getbuffer())


def _restore(federation: Federation, path: Path) -> None:
    """Go back to a checkpoint, if there is one.

    One that is damaged, or of other code, is put aside, and that is told. A disk that fails for a
    moment, or a full memory, makes no checkpoint unusable: these are errors.
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
        if sources.is_other_code(checkpoint.get("source"), type(federation.method)):
            raise ValueError("the code of the method was another")
        federation.restore(checkpoint)
    except (MemoryError, RuntimeError):  # by the latter PyTorch says that memory is short
        raise
    except Exception as error:
        aside = path.with_suffix(".unusable")
        os.replace(path, aside)
        text = f"The checkpoint {path.name} cannot be used ({error}): the run starts anew"
        print(f"fednb: {text}, and it is kept as {aside}.", file=sys.stderr)
