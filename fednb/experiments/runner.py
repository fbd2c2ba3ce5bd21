"""One run: made once, recorded at its end, resumed from its last checkpoint if it was killed."""

import dataclasses
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from tqdm import tqdm

from fednb.data import Dataset
from fednb.errors import RunError, SettingsError
from fednb.experiments import build, checkpoints, environment, final_model, ledger, recording
from fednb.experiments.build import Methods
from fednb.experiments.record import Record
from fednb.experiments.settings import Settings
from fednb.federation import Federation, Trainer
from fednb.places import Places
from fednb.training.stacked import SeedsTogether

CHECKPOINT_SECONDS = 20.0  # from one to the next


def run(
    settings: Settings,
    methods: Methods,
    *,
    workers: int | None = None,
    again: bool = False,
    places: Places | None = None,
    save_model: bool | None = None,
) -> Record:
    """Make a run and record it, or return its record if there is one that counts.

    A run is known by its settings, not by the method's code: after changing a method, run it with
    ``again=True``. A run that was killed goes on from its last checkpoint, and ends as if it had
    not been killed: bit by bit on a CPU. Of two processes that ask for the same run, the second
    waits for the first. In the record ``status`` is ``finished``, or ``diverged`` if a loss or
    weight became NaN or Inf. A `RunError` tells of results that cannot be written.

    With ``save_model`` (None: as ``FEDNB_SAVE_MODEL`` says) the final model lies beside the record,
    for `final_model.load`. A run that was recorded without its model is trained again for it; its
    record stays as it is.

    This is what notebooks call. Where a sweep's process makes several seeds, it makes all when the
    first is asked for.
    """
    options = _Options(
        places=places or Places.from_environment(),
        progress=environment.progress(),
        workers=workers,
        again=again or environment.again(),
        save_model=environment.save_model() if save_model is None else save_model,
    )
    seeds = environment.seeds()
    if settings.seed in seeds:
        return _run_seeds(settings, methods, seeds, options)[seeds.index(settings.seed)]
    return _run(settings, methods, options)


@dataclass(frozen=True)
class _Options:
    """What a run is told besides its settings."""

    places: Places
    progress: str  # as `environment.progress`
    workers: int | None  # clients side by side
    again: bool  # whether or not there is a record
    save_model: bool  # beside the record
    train: Trainer | None = None  # in place of the federation's own


def _run_seeds(
    settings: Settings, methods: Methods, seeds: Sequence[int], options: _Options
) -> list[Record]:
    """`run` with several seeds, which train as one: up to rounding, the records of each alone."""
    together = SeedsTogether(len(seeds))
    options = dataclasses.replace(options, train=together)

    def run_seed(seed: int) -> Record:
        try:
            return _run(dataclasses.replace(settings, seed=seed), methods, options)
        finally:
            together.leave()

    with ThreadPoolExecutor(len(seeds)) as pool:
        return list(pool.map(run_seed, seeds))


def _run(settings: Settings, methods: Methods, options: _Options) -> Record:
    """`run`, for one seed."""
    runs = options.places.runs
    recording.commit()  # now: the code on disk may change while the run goes on
    dataset = build.load_dataset(settings.dataset, options.places)
    path = ledger.path(settings, runs)
    checkpoint = checkpoints.path_of(path)
    ledger.make_folders(runs)  # now, and not after the training
    lock = FileLock(checkpoint.with_suffix(".lock"))  # goes with the process, however that ends
    with lock:
        recorded = None if options.again else ledger.recorded(path)
        if recorded is not None:
            _require_same_data(recorded, dataset, path)
            if not _lacks_model(recorded, path, options):
                return recorded
        checkpoints.remove_parts(checkpoint)
        if options.again:  # both are of the code as it was
            checkpoint.unlink(missing_ok=True)
            final_model.path_of(path).unlink(missing_ok=True)
        try:
            fed, status = _trained(settings, methods, checkpoint, options)
            record = recorded or recording.of_run(settings, fed, status)
        except (SettingsError, RunError):
            raise
        except Exception as error:  # recorded, so that a sweep can say what happened
            if recorded is not None:
                raise
            ledger.write(path, recording.of_failure(settings, dataset, error))
            raise
        if recorded is None:
            with ledger.writing_to(path.parent):
                ledger.write(path, record)
        if options.save_model and status == "finished":
            final_model.save(fed, settings, path)
        checkpoint.unlink(missing_ok=True)
    return record


def _lacks_model(record: Record, path: Path, options: _Options) -> bool:
    wanted = options.save_model and record["status"] == "finished"
    return wanted and not final_model.path_of(path).exists()


def _require_same_data(record: Record, dataset: Dataset, path: Path) -> None:
    if record["dataset"].get("fingerprint") != dataset.fingerprint:
        raise RunError(
            f"{path.name} is recorded on other data than are here: set FEDNB_RUNS to another "
            "folder to keep both, or run with again=True to replace it."
        )


def _trained(
    settings: Settings, methods: Methods, checkpoint: Path, options: _Options
) -> tuple[Federation, str]:
    """A federation after its last round, and the status in which the run ends."""
    while True:  # a second time where the checkpoint cannot be used, and is put aside
        fed = build.federation(settings, methods, workers=options.workers, places=options.places)
        fed.train = options.train or fed.train
        try:
            return fed, _train(fed, settings, checkpoint, options.progress)
        except checkpoints.UnusableError as error:
            checkpoints.put_aside(checkpoint, error)


def _train(fed: Federation, settings: Settings, checkpoint: Path, progress: str) -> str:
    """Run the rounds that are left after a checkpoint; the status in which the run ends."""
    checkpoints.restore(fed, checkpoint)
    restored_at = fed.rounds_done
    if fed.device != "cpu":
        torch.cuda.reset_peak_memory_stats(fed.device)
    saved = time.monotonic()
    with tqdm(
        initial=restored_at,
        total=settings.num_rounds,
        desc=f"{settings.method} on {settings.dataset}",
        unit="round",
        leave=False,
        disable=progress != "bar",
    ) as bar:
        while fed.rounds_done < settings.num_rounds:
            try:
                entry = fed.run_round()
            except Exception as error:
                is_of_machine = isinstance(error, OSError) or checkpoints.is_shortage(error)
                if 0 < restored_at == fed.rounds_done and not is_of_machine:
                    raise checkpoints.UnusableError(f"the next round fails: {error}") from error
                raise
            outcome = _outcome(entry)
            bar.set_postfix_str(outcome)
            bar.update()
            if progress == "log":
                _log_round(entry, outcome, fed.rounds_done, settings.num_rounds)
            if not entry["finite"]:
                return "diverged"
            is_due = time.monotonic() - saved >= CHECKPOINT_SECONDS
            if is_due and fed.rounds_done < settings.num_rounds:
                checkpoints.save(fed.checkpoint(), checkpoint)
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
    line = (
        f"round {rounds_done}/{num_rounds}  {outcome}  "
        f"{seconds:.1f} s, about {minutes_left:.1f} min left\n"
    )
    print(line, end="", flush=True)  # in one piece: seeds that train together write at once
