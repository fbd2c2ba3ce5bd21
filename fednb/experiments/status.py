"""How far the runs of sweep files are, and how long the rest will take here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from fednb.experiments import durations, ledger, runner, sweep
from fednb.experiments.sweep import Job, Table

# Each run is in one of them. To be made are all but the first two, if their data are here.
STATES = {
    "recorded": "finished",
    "diverged": "recorded, too",
    "running": "a living process is making it",
    "failed": "is tried again",
    "stopped": "has a checkpoint, from which it goes on",
    "no data": "cannot be made here",
    "stale": "recorded with an older results version",
    "missing": "not begun",
}


class States:
    """The state of runs, by what is on disk now."""

    def __init__(self, ledger: pd.DataFrame) -> None:
        entries = ledger.to_dict("records")
        self._recorded = {entry["path"]: entry["status"] for entry in entries if not entry["stale"]}
        self._stale = {_recipe(entry["record"]["settings"]) for entry in entries if entry["stale"]}

    def __call__(self, job: Job) -> str:
        """One of `STATES`; of several that fit, the first."""
        status = self._recorded.get(job.path)
        if status in ("finished", "diverged"):
            return "recorded" if status == "finished" else status
        if runner.in_progress(job.path):
            return "running"
        if status == "failed":
            return "failed"
        if runner.has_checkpoint(job.path):
            return "stopped"
        if sweep.lacks_data(job):
            return "no data"
        return "stale" if _recipe(job.settings.flat()) in self._stale else "missing"


def _recipe(settings: dict[str, object]) -> frozenset[tuple[str, object]]:
    return frozenset(ledger.recipe(settings).items())


def text(tables: Iterable[Table]) -> str:
    """The number of runs in each state, sweep file by sweep file, and the time left, tier by tier; each run once."""
    state_of, forecast = States(ledger.load()), durations.Forecast()
    counts: dict[str, Counter[str]] = {}
    left: dict[str, list[durations.Estimate]] = {}
    for file, job in _unique(tables):
        state = state_of(job)
        counts.setdefault(file, Counter())[state] += 1
        if state not in ("recorded", "diverged") and not sweep.lacks_data(job):
            left.setdefault(job.tier, []).append(forecast(job))
    if not counts:
        return "No run is chosen."
    width = max(len(file) for file in [*counts, "together"])
    lines = [" ".join([" " * width, "  runs", *(f"{state:>{_wide(state)}}" for state in STATES)])]
    for file, count in [*counts.items(), ("together", sum(counts.values(), Counter()))]:
        numbers = " ".join(f"{count[state] or '-':>{_wide(state)}}" for state in STATES)
        lines.append(f"{file:<{width}} {count.total():>6} {numbers}")
    lines += ["", "A run of several tables or files is counted in the first.", ""]
    lines += [_time(tier, left[tier]) for tier in sweep.TIERS if tier in left] or ["Nothing is left to be made here."]
    return "\n".join(lines)


def _wide(state: str) -> int:
    return max(len(state), 7)


def _unique(tables: Iterable[Table]) -> list[tuple[str, Job]]:
    """Each run once, with the first file that it is in."""
    tables = list(tables)
    files: dict[Path, str] = {}
    for table in tables:
        for job in table.jobs:
            files.setdefault(job.path, table.file.stem)
    return sorted(((files[job.path], job) for job in sweep.unique(tables)), key=lambda pair: pair[0])


def _time(tier: str, left: list[durations.Estimate]) -> str:
    """The seconds that records of this sort of device show, and those guessed from the tier: not one sum of two devices."""
    shown, guessed = ([e.seconds for e in left if (e.basis == "tier") == guess] for guess in (False, True))
    told = [f"about {durations.words(sum(shown))} here, one at a time"] if shown else []
    if guessed:
        where = " on a GPU" if tier.endswith("gpu") else ""
        told.append(f"{len(guessed)} without a record like them, by the tier about {durations.words(sum(guessed))}{where}")
    return f"{tier:<11} {len(left):>5} to be made: {'; '.join(told)}"
