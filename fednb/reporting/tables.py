"""The cells of a table: what the paper prints, and beside it our runs, from the ledger."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pandas as pd

from fednb import ROOT, papers
from fednb.experiments import settings, sweep
from fednb.experiments.ledger import load, runs_folder, state
from fednb.reporting import reported, statistics
from fednb.reporting.metrics import Record, ReportError, check, measure

Ledger = pd.DataFrame | None  # None: what is recorded in `runs_folder`, or, of a table's name, what is committed
Named = str | sweep.Table  # a table, or its name in the sweep files


class Run(NamedTuple):
    """A run in a cell that it is in; path, record and state are None if it is not recorded."""

    label: str  # of its row
    column: str
    told: tuple[tuple[str, Any], ...]  # the settings that tell it apart from others there, but the seed and `best_of`
    choice: str  # the value of `best_of`
    job: sweep.Job
    path: Path | None = None
    record: Record | None = None
    state: str | None = None  # ``finished`` and the like; ``without baseline`` or ``not measured`` if the value is missing
    value: float | None = None  # of finished runs

    @property
    def counts(self) -> bool:
        """Whether it is recorded, and the record of these times."""
        return self.state not in (None, "stale")


class Cell(SimpleNamespace):
    """One cell of a table: the printed value and our runs; `_cell` says what it holds."""


def runs_of(table: sweep.Table, found: Mapping[str, tuple[Path, Record, str]]) -> list[Run]:
    """Each run of a table in each cell that it is in, row by row; what is recorded is found by the name of its file."""
    places: dict[tuple[str, str], dict[str, sweep.Job]] = {}
    for job in table.jobs:
        for column in table.columns.names(job):
            places.setdefault((table.rows.name(job), column), {})[job.path.name] = job
    rows, made = list(dict.fromkeys(row for row, _ in places)), []
    for (label, column), jobs in sorted(places.items(), key=lambda place: rows.index(place[0][0])):
        flat = {name: job.settings.flat() for name, job in jobs.items()}
        first = next(iter(flat.values()))
        same = {"seed", table.best_of} | {n for n in first if len({str(own.get(n)) for own in flat.values()}) == 1}
        for name, own in flat.items():
            # a switch is told where it differs from the first run's, which then needs no other name than the row's
            others = [n for n in first if n not in same]
            told = [n for n in others if own.get(n) != first[n] or not isinstance(own.get(n), bool | None)]
            place = label, column, tuple((n, own.get(n)) for n in told), str(own.get(table.best_of))
            made.append(Run(*place, jobs[name], *found.get(name, ())))
    return made


def cells_of_tables(tables: Iterable[sweep.Table], ledger: Ledger = None) -> dict[str, list[Cell]]:
    """The cells of tables, row by row. Runs that share a cell but differ in more than the seed get rows of their own.

    Where a table says ``best_of``, runs that differ in that parameter share a row, and those with the best mean make the
    cell. A `ReportError` if the printed table, row or column does not exist, or a measure is unknown or lacks its baseline.
    """
    ledger = load() if ledger is None else ledger
    pairs = zip(ledger.get("path", ()), ledger.get("record", ()), strict=True)  # an empty ledger has no columns
    found = {path.name: (path, record, state(record)) for path, record in pairs}
    return {table.name: _cells(table, runs_of(table, found)) for table in tables}


def _cells(table: sweep.Table, runs: Sequence[Run]) -> list[Cell]:
    check(table)
    baselines: dict[tuple[str, int], Record | None] = {}
    for run in (run for run in runs if run.label == table.baseline):
        if (place := (run.column, run.job.settings.seed)) in baselines:
            raise ReportError(f"{table.name}: the baseline {run.label!r} has several runs with seed {place[1]}.")
        baselines[place] = run.record if run.state == "finished" else None
    places: dict[Any, dict[str, list[Run]]] = {}
    for run in runs:
        read = _read(table, run, baselines.get((run.column, run.job.settings.seed)))
        places.setdefault((run.label, run.told, run.column), {}).setdefault(run.choice, []).append(read)
    flat = [job.settings.flat() for job in table.jobs]
    # what a table without an original varies is told by its rows and columns
    seen = set() if table.printed else {n for own in flat for n in own if len({str(o[n]) for o in flat if n in o}) > 1}
    return [_cell(table, list(of.values()), seen) for of in places.values()]


def _read(table: sweep.Table, run: Run, baseline: Record | None) -> Run:
    """The run with its value, if it has finished and has one."""
    if run.state != "finished":
        return run
    how = measure(name := table.measure_of(run.column))
    beside = {"target": table.target, "baseline": baseline}.get(how.needs)
    value = how.read(run.record, beside) if beside is not None or not how.needs else None
    if value is not None:
        return run._replace(value=float(value))
    if how.needs != "baseline" and not how.optional:
        raise ReportError(f"{run.path.name} has no {name.replace('_', ' ')}: it was not evaluated then.")
    return run._replace(state="without baseline" if how.needs == "baseline" else "not measured")


def _cell(table: sweep.Table, candidates: Sequence[Sequence[Run]], seen: set[str]) -> Cell:
    """The cell of a place; of several candidates, for values of ``best_of``, the one with the best mean."""
    how = measure(name := table.measure_of(candidates[0][0].column))
    finished = [runs for runs in candidates if _values(runs)]
    some = finished or [runs for runs in candidates if any(run.counts for run in runs)] or candidates
    chosen = (min if how.lower else max)(some, key=lambda runs: how.summary(_values(runs))) if finished else some[0]
    (label, column, told, _, job, *_), runs = chosen[0], [run for run in chosen if run.counts]
    place, deviations, choice = _beside(table, chosen[0], len(finished), len(candidates))
    deviations = tuple(text for text in deviations if text.split(" ")[0] not in seen)
    good, values = [run for run in runs if run.value is not None], _values(runs)
    spreads = [run.record["final"].get("accuracy_std") for run in good]
    splits = [run.record.get("partition", {}).get("hash", "") for run in good]
    of_data = {key: dict.fromkeys(run.record["dataset"].get(key) for run in runs) for key in ("note", "remark")}
    of_data = {key: "; ".join(filter(None, texts)) for key, texts in of_data.items()}
    judged = values and how.judged and place.value is not None and not deviations and not of_data["note"]
    return Cell(
        table=table.name,
        label=label,  # of its row
        # the label, and what else tells its runs apart from others in that place
        row=", ".join([label, *(f"{name.replace('_', ' ')} {value}" for name, value in told)]),
        column=column,
        measure=name,
        of=how,
        told=told,
        job=job,  # one of the runs, for its settings
        runs=tuple(runs),  # that are recorded; of these, in their order:
        seeds=tuple(run.job.settings.seed for run in runs),
        statuses=tuple(run.state for run in runs),
        paths=tuple(run.path for run in runs),
        **of_data,  # note: what is not the published data; remark: what else has to be known of them
        expected=len(chosen) if runs else sum(map(len, candidates)),  # runs, recorded or not
        stale=sum(run.state == "stale" for runs in candidates for run in runs),
        values=tuple(values),  # of the finished runs
        by_pair={(run.job.settings.seed, split): run.value for run, split in zip(good, splits, strict=True)},
        mean=how.summary(values) if values else None,  # for some measures the median
        half=statistics.interval(values)[1] if values and not how.median else None,  # of the interval; NaN for one run
        # standard deviation over clients, mean over the finished runs; of personal models only
        spread=statistics.interval(spreads)[0] if spreads and None not in spreads else None,
        place=place,  # what is printed there
        printed=place.value,
        deviations=deviations,  # from the paper's setting
        choice=choice,  # of ``best_of``
        # on the printed value; empty if there is none, or the runs are others
        verdict=statistics.beside(values, place.value) if judged else "",
    )


def _values(runs: Sequence[Run]) -> list[float]:
    return [run.value for run in runs if run.value is not None]


def _beside(table: sweep.Table, run: Run, finished: int, candidates: int) -> tuple[reported.Place, list[str], str]:
    """What is printed beside a run, in what it deviates from that, and how it was chosen if it is the best of several."""
    asked, how = run.job.settings, measure(table.measure_of(run.column))
    if table.measure_of(run.column) == "halfway":  # the run is read as one of half its length
        asked = replace(asked, num_rounds=max(asked.num_rounds // 2, 1))
    own = asked.flat()
    place = reported.place(table, run.label, run.column, how, own)
    # neither what the paper varies in the table nor what it tuned is a deviation
    given = {axis.parameter: own.get(axis.parameter) for axis in (table.rows, table.columns) if table.printed} | place.stated
    tuned = {name: grid for name, grid in given.items() if isinstance(grid, list) and name in own}
    alike = {name for name, said in given.items() if said == "any" or reported.same(said, own.get(name))}
    told = settings.deviations(asked, given | {name: own[name] for name in (alike | tuned.keys()) & own.keys()})
    for name, values in tuned.items():
        if own[name] not in values:
            told.append(f"{name} {own[name]} instead of one of {', '.join(map(str, values))}")
        elif 0 < finished < len(values):
            told.append(f"{name} chosen from {finished} instead of {len(values)} values")
    count = len(tuned[table.best_of]) if table.best_of in tuned else candidates
    rest = f" (of {count})" if count > finished else ""
    chosen = table.best_of in own and count > 1 and finished
    return place, told, f"{table.best_of} {own[table.best_of]}, the best of {finished} values{rest}" if chosen else ""


@functools.cache  # to read the files means to check each run in them
def _tables(folder: Path, runs: Path) -> dict[str, sweep.Table]:
    return sweep.read(folder)


def table_of(name: str) -> sweep.Table:
    """Table ``name`` of the sweep files."""
    tables = _tables(papers.folder() / "sweeps", runs_folder())
    if name not in tables:
        raise ReportError(f"There is no table {name!r}: {settings.known(name, tables)}")
    return tables[name]


@functools.cache  # a notebook asks for each number
def committed() -> pd.DataFrame:
    """The records of the repository, whatever ``$FEDNB_RUNS`` says."""
    return load(ROOT / "results" / "runs")


def cells_of(table: Named, ledger: Ledger = None) -> list[Cell]:
    """The cells of a table, as `cells_of_tables` makes them; of a table's name from the committed records."""
    if isinstance(table, str):
        table, ledger = table_of(table), committed() if ledger is None else ledger
    return cells_of_tables([table], ledger)[table.name]
