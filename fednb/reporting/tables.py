"""The cells of a table: what the paper prints, and beside it our runs, from the ledger."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fednb import ROOT, papers
from fednb.experiments import settings, sweep
from fednb.experiments.ledger import load, runs_folder, state
from fednb.reporting import reported
from fednb.reporting.metrics import Measure, Record, ReportError, check, measure
from fednb.reporting.statistics import MIN_SEEDS, interval

Ledger = pd.DataFrame | None  # None: what is recorded in `runs_folder`, or, of a table's name, what is committed
Named = str | sweep.Table  # a table, or its name in the sweep files
WITHIN_POINTS = 1.0  # so far from the printed value is near enough
# what counts something reads better as "20 rounds" than as "num_rounds 20"
_COUNTED = {"num_rounds": "rounds", "local_epochs": "local epochs", "num_clients": "clients", "batch_size": "images a batch"}
_COUNTED |= {"local_steps": "local steps", "test_per_domain": "test images of each domain"}


def in_words(deviation: str, *, brief: bool = False) -> str:
    """One of `settings.deviations` for readers; in ``brief`` without what the paper has."""
    name, value, rest = deviation.split(" ", 2)
    rest = "" if brief else f" {rest}"
    if brief and name == "model":
        return value
    if name == "validation":
        return f"{float(value):.0%} of the training images held out"
    if name == "keep_last":
        return f"the last incomplete batch of an epoch {'trained on' if value == 'True' else 'dropped'}"
    if name in _COUNTED:
        return f"{value} {_COUNTED[name].removesuffix('s') if value == '1' else _COUNTED[name]}{rest}"
    return f"{name.replace('_', ' ')} {value}{rest}"


class Choice(NamedTuple):
    """A parameter of which the best value was chosen: of ``compared`` values, where the paper has ``of``."""

    name: str
    value: Any
    compared: int
    of: int


@dataclass(frozen=True)
class Cell:
    """One cell of a table: the printed value and our runs.

    ``values`` are of the finished runs; one that never got there is infinitely bad, and ``bounds`` tells how far it went.
    ``statuses``, ``paths`` and ``records`` are of all recorded runs. A finished run whose measure lacks its baseline has the
    status ``without baseline``, one whose record does not have the measure ``not measured``.
    """

    row: str  # its label in the table, and what else tells its runs apart from others in that place
    column: str
    printed: float | None = None
    printed_std: float | None = None
    printed_text: str = ""
    values: tuple[float, ...] = ()
    bounds: tuple[float, ...] = ()
    statuses: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()
    records: tuple[Record, ...] = ()
    expected: int = 0  # runs, recorded or not
    stale: int = 0
    deviations: tuple[str, ...] = ()  # from the paper's setting
    not_stated: tuple[str, ...] = ()  # our choices where the paper does not say what it did
    choice: Choice | None = None
    measure: str = "accuracy"
    table: str = ""
    label: str = ""
    told: tuple[tuple[str, Any], ...] = ()
    job: sweep.Job | None = None  # one of the runs, for its settings

    @property
    def of(self) -> Measure:
        """What it measures."""
        return measure(self.measure)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of all recorded runs."""
        return tuple(record["settings"]["seed"] for record in self.records)

    @property
    def partitions(self) -> tuple[str, ...]:
        """Of all recorded runs, the hash of how the images were divided."""
        return tuple(record.get("partition", {}).get("hash") or "" for record in self.records)

    @property
    def by_pair(self) -> dict[tuple[int, str], float]:
        """The values of the finished runs by seed and split."""
        runs = zip(self.seeds, self.partitions, self.statuses, strict=True)
        good = [(seed, split) for seed, split, status in runs if status == "finished"]
        return dict(zip(good, self.values, strict=True))

    @property
    def note(self) -> str:
        """What is not the published data."""
        return self._of_data("note")

    @property
    def remark(self) -> str:
        """What else has to be known of the data."""
        return self._of_data("remark")

    def _of_data(self, name: str) -> str:
        return "; ".join(dict.fromkeys(filter(None, (record["dataset"].get(name) for record in self.records))))

    @property
    def spread(self) -> list[float]:
        """Over clients, of each finished run of personal models."""
        finals = [r["final"] for r, status in zip(self.records, self.statuses, strict=True) if status == "finished"]
        return [final["accuracy_std"] for final in finals if final.get("accuracy_std") is not None]

    @property
    def mean(self) -> float | None:
        """Mean over the finished runs (for some measures the median), or None."""
        return self.of.summary(self.values) if self.values else None

    @property
    def half(self) -> float | None:
        """Half width of the interval of the mean, NaN for one run; None without a value, or for a median."""
        return interval(self.values)[1] if self.values and not self.of.bound else None

    @property
    def sign(self) -> int:
        """What makes a difference of values a lead: of rounds or a spread the smaller is the better."""
        return -1 if self.of.lower else 1

    @property
    def std_over(self) -> str:
        """What `std` is over: ``seeds``, or ``clients`` for a single run of personal models."""
        if len(self.values) > 1:
            return "" if self.of.bound else "seeds"
        return "clients" if self.values and self.spread and self.measure == "accuracy" else ""

    @property
    def std(self) -> float | None:
        """With ddof 0, as the papers' code."""
        return float(np.std(self.values)) if self.std_over == "seeds" else self.spread[0] if self.std_over else None

    @property
    def difference(self) -> float | None:
        """Our mean minus the printed value, or None."""
        unknown = self.mean is None or self.printed is None or not self.of.reached(self.mean)
        return None if unknown else self.mean - self.printed

    @property
    def verdict(self) -> str:
        """What it says about the printed value, empty if there is nothing to judge: nothing printed, or no accuracy."""
        if not self.values:
            return next((kind for kind in ("diverged", "failed", *self.statuses) if kind in self.statuses), "not run")
        if self.printed is None:
            return ""
        if self.deviations or self.note:
            return "reduced"
        if self.difference is None or not self.of.judged:
            return ""
        if len(self.values) < MIN_SEEDS:
            return "indicative"
        # with personal models the printed ± is over clients, and says nothing about the mean
        allowed = self.half + (0.0 if self.spread else self.printed_std or 0.0)
        close = abs(self.difference) <= max(allowed, WITHIN_POINTS) + 1e-9  # 67.3 - 66.3 is a little more than 1
        return "reproduced" if close else f"off by {self.difference:+.1f}"


# --- our runs ---------------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """A run in a cell that it is in; the last three are None if it is not recorded."""

    table: str
    label: str  # of its row
    column: str
    told: tuple[tuple[str, Any], ...]  # the settings that tell it apart from others there, but the seed and `best_of`
    choice: str  # the value of `best_of`
    job: sweep.Job
    path: Path | None
    record: Record | None
    state: str | None

    @property
    def counts(self) -> bool:
        """Whether it is recorded, and the record of these times."""
        return self.state not in (None, "stale")


def _found(ledger: Ledger) -> dict[str, tuple[Path, Record, str]]:
    """Path, record and state of each run by the name of its file; an empty ledger has no columns."""
    ledger = load() if ledger is None else ledger
    pairs = zip(ledger.get("path", ()), ledger.get("record", ()), strict=True)
    return {path.name: (path, record, state(record)) for path, record in pairs}


def tidy(tables: Iterable[sweep.Table], ledger: Ledger = None) -> list[Run]:
    """Each run in each cell that it is in, row by row."""
    found, lines = _found(ledger), []
    for table in tables:
        places: dict[str, dict[str, dict[str, sweep.Job]]] = {}
        for job in table.jobs:
            for column in table.columns.names(job):
                places.setdefault(table.rows.name(job), {}).setdefault(column, {})[job.path.name] = job
        for label, column, jobs in ((row, column, jobs) for row, of in places.items() for column, jobs in of.items()):
            flat = {name: job.settings.flat() for name, job in jobs.items()}
            first = next(iter(flat.values()))
            differ = [
                n for n in first if n not in ("seed", table.best_of) and len({str(o.get(n)) for o in flat.values()}) > 1
            ]
            for name, own in flat.items():
                # a switch is told where it differs from the first run's, which then needs no other name than the row's
                told = [n for n in differ if own.get(n) != first.get(n) or not isinstance(own.get(n), bool | None)]
                place = table.name, label, column, tuple((n, own.get(n)) for n in told), str(own.get(table.best_of))
                lines.append(Run(*place, jobs[name], *found.get(name, (None, None, None))))
    return lines


def recorded(table: sweep.Table, ledger: Ledger) -> tuple[int, int]:
    """How many of a table's runs are recorded, and how many there are."""
    done = {name for name, (_, _, state) in _found(ledger).items() if state in ("finished", "diverged")}
    names = {job.path.name for job in table.jobs}
    return len(names & done), len(names)


def cells_of_tables(tables: Iterable[sweep.Table], ledger: Ledger = None) -> dict[str, list[Cell]]:
    """The cells of tables, row by row. Runs that share a cell but differ in more than the seed get rows of their own.

    Where a table says ``best_of``, runs that differ in that parameter share a row, and those with the best mean make the
    cell. A `ReportError` if the printed table, row or column does not exist, or a measure is unknown or lacks its baseline.
    """
    known = {table.name: table for table in tables}
    for table in known.values():
        check(table)
    places: dict[Any, dict[str, list[Run]]] = {}
    baselines: dict[tuple[str, str, int], Record | None] = {}
    for run in tidy(known.values(), ledger):
        places.setdefault((run.table, run.label, run.told, run.column), {}).setdefault(run.choice, []).append(run)
        if run.label == known[run.table].baseline:
            if (place := (run.table, run.column, run.job.settings.seed)) in baselines:
                raise ReportError(f"{run.table}: the baseline {run.label!r} has several runs with seed {place[-1]}.")
            baselines[place] = run.record if run.state == "finished" else None
    found: dict[str, list[Cell]] = {name: [] for name in known}
    for (name, *_), choices in places.items():
        candidates = [_cell(known[name], runs, baselines) for runs in choices.values()]
        found[name].append(_beside_printed(known[name], candidates))
    return found


def _cell(table: sweep.Table, runs: Sequence[Run], baselines: Mapping[Any, Record | None]) -> Cell:
    """A cell with nothing printed beside it."""
    first, some = runs[0], [run for run in runs if run.counts]
    name = table.measure_of(first.column)
    read = [_read(table, name, run, baselines.get((run.table, run.column, run.job.settings.seed))) for run in some]
    return Cell(
        row=", ".join([first.label, *(f"{name.replace('_', ' ')} {value}" for name, value in first.told)]),
        column=first.column,
        values=tuple(value for _, value, _ in read if value is not None),
        bounds=tuple(bound for _, _, bound in read if bound is not None),
        statuses=tuple(status for status, _, _ in read),
        paths=tuple(run.path for run in some),
        records=tuple(run.record for run in some),
        expected=len(runs),
        stale=sum(run.state == "stale" for run in runs),
        measure=name,
        table=table.name,
        label=first.label,
        told=first.told,
        job=first.job,
    )


def _read(table: sweep.Table, name: str, run: Run, baseline: Record | None) -> tuple[str, float | None, float | None]:
    """A run's status in a cell, its value, and how far it went if it never got there."""
    if run.state != "finished":
        return run.state, None, None
    how = measure(name)
    beside = {"target": table.target, "baseline": baseline}.get(how.needs)
    value = how.read(run.record, beside) if beside is not None or not how.needs else None
    if value is not None:
        return run.state, float(value), None if how.reached(value) else float(how.bound(run.record, beside))
    if how.needs != "baseline" and not how.optional:
        every = run.record["settings"].get("evaluate_every")
        why = f": it was evaluated after every {every} rounds and the last" if every else ""
        raise ReportError(f"{run.path.name} has no {name.replace('_', ' ')}{why}.")
    return "without baseline" if how.needs == "baseline" else "not measured", None, None


def _beside_printed(table: sweep.Table, candidates: Sequence[Cell]) -> Cell:
    """The cell of a place with what is printed there; of several for values of ``best_of`` the best."""
    finished = [cell for cell in candidates if cell.values]
    best = (min if candidates[0].of.lower else max)(finished, key=lambda cell: cell.mean, default=None)
    shown = best or next((cell for cell in candidates if cell.statuses), candidates[0])
    asked = shown.job.settings
    if shown.measure == "halfway":  # the run is read as one of half its length
        asked = replace(asked, num_rounds=max(asked.num_rounds // 2, 1))
    own = asked.flat()
    place = reported.place(table, shown.label, shown.column, shown.of, own)
    # neither what the paper varies in the table nor what it tuned is a deviation
    given = {axis.parameter: own.get(axis.parameter) for axis in (table.rows, table.columns) if table.printed} | place.stated
    tuned = {name: grid for name, grid in given.items() if isinstance(grid, list) and name in own}
    alike = {name for name, said in given.items() if said == "any" or reported.same(said, own.get(name))}
    told = settings.deviations(asked, given | {name: own[name] for name in (alike | tuned.keys()) & own.keys()})
    for name, grid in tuned.items():
        if own[name] not in grid:
            told.append(f"{name} {own[name]} instead of one of {', '.join(map(str, grid))}")
        elif finished and len(finished) < len(grid):
            told.append(f"{name} chosen from {len(finished)} instead of {len(grid)} values")
    count = len(tuned.get(table.best_of, candidates))
    chosen = table.best_of in own and count > 1 and finished
    return replace(
        shown,
        expected=shown.expected if shown.statuses else sum(cell.expected for cell in candidates),
        stale=sum(cell.stale for cell in candidates),
        printed=place.value,
        printed_std=place.std,
        printed_text=place.text,
        deviations=tuple(text for text in told if text.split(" ")[0] not in place.open),
        not_stated=tuple(text.partition(" instead")[0] for text in told if text.split(" ")[0] in place.open),
        choice=Choice(table.best_of, own[table.best_of], len(finished), count) if chosen else None,
    )


# --- by name, for notebooks -------------------------------------------------------------------------------------------


def table_of(name: str) -> sweep.Table:
    """Table ``name`` of the sweep files, of which those in which the name occurs are read first."""
    tables: dict[str, sweep.Table] = {}
    for file in sorted(
        (papers.folder() / "sweeps").glob("*.yaml"), key=lambda file: f" {name}:" not in file.read_text("utf-8")
    ):
        tables |= _tables(file, file.stat().st_mtime_ns, runs_folder())
        if name in tables:
            return tables[name]
    raise ReportError(f"There is no table {name!r}; the sweep files have {', '.join(tables) or 'none'}.")


@functools.lru_cache(maxsize=8)  # a notebook shows many tables, and to read a file means to check each of its runs
def _tables(file: Path, time_ns: int, runs: Path) -> dict[str, sweep.Table]:
    return sweep.read(file)


def committed() -> pd.DataFrame:
    """The records of the repository, whatever ``$FEDNB_RUNS`` says."""
    folder = ROOT / "results" / "runs"
    return _committed(folder, folder.stat().st_mtime_ns if folder.exists() else 0)


@functools.lru_cache(maxsize=1)  # a notebook asks for each number
def _committed(folder: Path, time_ns: int) -> pd.DataFrame:
    return load(folder)


def cells_of(table: Named, ledger: Ledger = None) -> list[Cell]:
    """The cells of a table, as `cells_of_tables` makes them; of a table's name from the committed records."""
    if isinstance(table, str):
        table, ledger = table_of(table), committed() if ledger is None else ledger
    return cells_of_tables([table], ledger)[table.name]
