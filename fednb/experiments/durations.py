"""How long a run will take, estimated from the runs that are recorded, and how durations are written.

The rule, in short: training takes so many seconds per training image seen, evaluation so many per evaluation, both as in
recorded runs of the same network on the same data set. It is an estimate: that a batch size, a number of clients or another
setting makes an image slower is not in it, and records do not tell how many runs shared a GPU. As the latest records count,
a sweep corrects itself by its first runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

# what needs torch is imported by `Forecast`: the command line reads its durations before

if TYPE_CHECKING:
    from fednb.experiments.settings import Settings
    from fednb.experiments.sweep import Job

LATEST = 5  # as many records of a kind count
STARTING_SECONDS = 10.0  # of a run's process, before its first round
# Where nothing similar is recorded. Rather short: a run that is ended early keeps its checkpoint, one that is not started
# teaches nothing about those like it.
TIER_SECONDS = {"minutes-cpu": 300.0, "minutes-gpu": 300.0, "hours-gpu": 7200.0}


class Device(NamedTuple):
    """What runs are made on. With ``workers``, a CPU trains so many clients at once; a GPU's work does not depend on it."""

    name: str
    gpu: bool
    workers: int = 1


class Rate(NamedTuple):
    """What training and evaluation cost.

    Attributes
    ----------
    per_image
        Seconds per training image seen.
    per_evaluation
        Seconds.
    training_images
        Of the data set.
    """

    per_image: float
    per_evaluation: float
    training_images: float


class Kind(NamedTuple):
    """Runs that cost about the same per image."""

    method: str
    dataset: str
    model: str
    precision: str | None = None


@dataclass(frozen=True)
class Rates:
    """What recorded runs cost, by their kind: on this very device, and on all of its sort (CPU or GPU)."""

    here: dict[Kind, Rate] = field(default_factory=dict)
    similar: dict[Kind, Rate] = field(default_factory=dict)


class Estimate(NamedTuple):
    """The seconds that a run will take, and what says so: ``checkpoint``, ``method``, ``other methods`` or ``tier``."""

    seconds: float
    basis: str


def learn(records: Iterable[Mapping[str, Any]], device: Device) -> Rates:
    """What runs cost on a device: the median over the latest `LATEST` records of each kind.

    Runs that diverged count, for the rounds that they made. On a CPU, a run with half as many workers is taken to be half
    as fast.
    """
    here: dict[Kind, list[Rate]] = {}
    similar: dict[Kind, list[Rate]] = {}
    for record in sorted(records, key=lambda r: str(r.get("finished_at")), reverse=True):
        # threads per client are recorded for a CPU alone
        if record.get("device") is None or (record.get("threads_per_client") is None) != device.gpu:
            continue
        if (rate := _rate(record, device)) is None:
            continue
        kind = Kind(*(record["settings"].get(name) for name in Kind._fields))
        for group in [similar, here] if record["device"] == device.name else [similar]:
            group.setdefault(kind, []).append(rate)
    return Rates(*({kind: _median(rates[:LATEST]) for kind, rates in group.items()} for group in (here, similar)))


def _rate(record: Mapping[str, Any], device: Device) -> Rate | None:
    seconds = record["metrics"].get("seconds") or []
    settings, training_images = record["settings"], record["dataset"]["training_images"]
    images = len(seconds) * images_per_round(settings, training_images)
    if not images or sum(seconds) <= 0:
        return None
    share = 1.0 if device.gpu else (record.get("workers") or 1) / device.workers
    evaluation = sum(record["metrics"].get("evaluation_seconds") or []) / evaluations(settings, len(seconds))
    return Rate(share * sum(seconds) / images, share * evaluation, training_images)


def _median(rates: Iterable[Rate]) -> Rate:
    return Rate(*map(median, zip(*rates, strict=True)))


def images_per_round(settings: Mapping[str, Any], training_images: float) -> float:
    """About how many training images the clients see in a round, each time that one is seen counted."""
    clients = settings["num_clients"]
    held = {"n-way-k-shot": ("ways", "shots"), "domain": ("per_domain",)}.get(settings["partition"])
    images = training_images
    if held is not None:
        images = clients
        for name in held:
            images *= settings[name]
    seen = images * (1 - (settings.get("validation") or 0)) * settings["local_epochs"]
    if settings.get("local_steps"):
        seen = min(seen, clients * settings["local_steps"] * settings["batch_size"])
    return settings["participation"] * seen


def evaluations(settings: Mapping[str, Any], rounds: int) -> int:
    """How often a run of so many rounds is evaluated: after every so many, and after the last."""
    return -(-rounds // (settings.get("evaluate_every") or 1))


def estimate(settings: Settings, tier: str, rates: Rates, history: Sequence[Mapping[str, Any]] = ()) -> Estimate:
    """How long a run will take, from the start of its process.

    The first of these that there is says so:

    1. the run's own rounds up to its checkpoint (``history``); it then needs only what is left;
    2. records of the same method, data set and network, on this device, else on one of its sort;
    3. records of other methods there, times the ratio of the methods' costs on other data sets or networks, where records
       show it (else they are taken to cost the same);
    4. `TIER_SECONDS`.

    Time grows in proportion to the rounds, the local epochs, the clients that take part and the images that they hold.
    """
    own, rounds = settings.flat(), settings.num_rounds
    left = rounds - len(history)
    if history:
        per_round = sum(entry["seconds"] + entry["evaluation_seconds"] for entry in history) / len(history)
        return Estimate(STARTING_SECONDS + left * per_round, "checkpoint")
    kind = Kind(settings.method, settings.dataset, settings.model, settings.precision)
    groups = (rates.here, rates.similar)
    found = [(group.get(kind), "method") for group in groups]
    found += [(_from_others(kind, group, rates.similar), "other methods") for group in groups]
    for rate, basis in found:
        if rate is not None:
            training = rate.per_image * images_per_round(own, rate.training_images) * rounds
            return Estimate(STARTING_SECONDS + training + rate.per_evaluation * evaluations(own, rounds), basis)
    return Estimate(TIER_SECONDS[tier], "tier")


def _from_others(kind: Kind, group: Mapping[Kind, Rate], known: Mapping[Kind, Rate]) -> Rate | None:
    """What a method would cost if it relates to others as it does elsewhere."""
    others = {other: rate for other, rate in group.items() if other[1:] == kind[1:]}
    ratios = {other: _ratio(kind.method, other.method, known) for other in others}
    if any(ratios.values()):
        others = {other: rate for other, rate in others.items() if ratios[other]}
    return _median(r._replace(per_image=r.per_image * (ratios[o] or 1)) for o, r in others.items()) if others else None


def _ratio(method: str, other: str, known: Mapping[Kind, Rate]) -> float | None:
    """How much more an image costs with one method than with another, where both are recorded."""
    ratios = [
        known[kind._replace(method=method)].per_image / rate.per_image
        for kind, rate in known.items()
        if kind.method == other and kind._replace(method=method) in known
    ]
    return median(ratios) if ratios else None


_FORM = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)


def parse(text: str) -> float:
    """Read ``90s``, ``9m`` or ``1h30m`` as seconds.

    Raises
    ------
    ValueError
        For anything else, and for no time at all.
    """
    found = _FORM.fullmatch(text)
    seconds = sum(int(n or 0) * unit for n, unit in zip(found.groups(), (3600, 60, 1), strict=True)) if found else 0
    if not seconds:
        raise ValueError(f"{text!r} is not a duration such as 90s, 9m or 1h30m")
    return float(seconds)


def words(seconds: float) -> str:
    """Seconds in the form of `parse`, to two units; from two days on, in days and hours."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    units = (("m", 60), ("s", 1)) if whole < 600 else (("h", 3600), ("m", 60))
    if whole >= 48 * 3600:
        units = (("d", 86400), ("h", 3600))
    (large, size), (small, step) = units
    steps = round(whole / step)
    first, rest = divmod(steps, size // step)
    return "".join(f"{n}{unit}" for n, unit in ((first, large), (rest, small)) if n)


class Forecast:
    """Estimates for the runs of sweeps on this machine, from its records and checkpoints.

    Parameters
    ----------
    jobs
        How many runs share the machine.
    """

    def __init__(self, jobs: int = 1) -> None:
        from fednb.experiments import build, ledger

        name, gpu = build.device_name()
        self._device = Device(name, gpu, max(1, (os.cpu_count() or 1) // jobs))
        ledger = ledger.load()
        self._records = list(ledger["record"]) if len(ledger) else []
        self._rates = learn(self._records, self._device)
        self._history: dict[Path, list[dict[str, Any]]] = {}

    def __call__(self, job: Job) -> Estimate:
        """How long a run will take that nobody is making."""
        from fednb.experiments import runner

        if job.path not in self._history:
            self._history[job.path] = runner.history(job.path)
        return estimate(job.settings, job.tier, self._rates, self._history[job.path])

    def learn(self, job: Job) -> None:
        """Take note of a run's new record."""
        from fednb.experiments import ledger

        self._records.append(ledger.read(job.path))
        self._rates = learn(self._records, self._device)
