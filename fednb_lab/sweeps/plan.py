"""Which runs are asked for, which of them are recorded, and how long such a run took."""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from tqdm import tqdm

from fednb import data
from fednb import records as ledger
from fednb.errors import require_known
from fednb_lab.sweeps.table import Job


def select(jobs: Iterable[Job], only: Iterable[tuple[str, Any]]) -> list[Job]:
    """The runs with these settings, table and tier; of several values for a name any will do.

    A `SettingsError` tells of a name or value that no run has.
    """
    described = []
    for job in jobs:
        described.append((job, job.settings.flat() | {"table": job.table, "tier": job.tier}))
    parameters = dict.fromkeys(itertools.chain.from_iterable(values for _, values in described))
    wanted: dict[str, list[Any]] = defaultdict(list)
    for name, asked in only:
        value = data.recorded_name(asked) if name == "dataset" else asked
        require_known("the runs have no parameter", name, parameters)
        known = dict.fromkeys(values[name] for _, values in described if name in values)
        require_known(f"No run has {name}", value, known)
        wanted[name].append(value)

    def is_wanted(values: dict[str, Any]) -> bool:
        return all(name in values and values[name] in any_of for name, any_of in wanted.items())

    return [job for job, values in described if is_wanted(values)]


def recorded_and_missing(jobs: Iterable[Job]) -> tuple[list[Job], list[Job]]:
    """The runs that need not be made again, diverged ones included, and those that are to be made.

    Each run is there once, though several tables may have it; by its best priority, then as in the
    files.
    """
    unique: dict[Path, Job] = {}
    for job in sorted(jobs, key=lambda job: job.priority):
        unique.setdefault(job.path, job)
    recorded = [job for job in unique.values() if job.recorded.status in ledger.RESULTS]
    missing = [job for job in unique.values() if job.recorded.status not in ledger.RESULTS]
    return recorded, missing


def median_duration(jobs: Iterable[Job]) -> str:
    """How long a run took by the records: the median for each device; "" if none is finished."""
    seconds_on: dict[str, list[float]] = defaultdict(list)
    for job in jobs:
        if job.recorded.status == "finished":
            seconds_on[job.recorded.device].append(job.recorded.seconds)
    parts = []
    for device, seconds in seconds_on.items():
        parts.append(f"{tqdm.format_interval(int(median(seconds)))} on {device}")
    return ", ".join(parts)
