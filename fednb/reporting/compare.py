"""The cells of a table: printed values from ``data/reported.json``, and beside them our runs from the ledger."""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fednb import ROOT, papers
from fednb.experiments import ledger as records
from fednb.experiments import settings, sweep
from fednb.reporting import statistics
from fednb.reporting.measures import MEASURES, Measure, Value

REPORTED = ROOT / "data" / "reported.json"

# The rule of `verdict`, in percentage points where it is about accuracy.
MIN_SEEDS = 3
WITHIN_POINTS = 1.0
LEVEL = 0.95


class ReportError(ValueError):
    """A table that cannot be made as it is described; the message says what is missing and what there is."""


class Choice(NamedTuple):
    """A parameter of which the best value was chosen: of ``compared`` values, where the paper has ``of``."""

    name: str
    value: Any
    compared: int
    of: int


@dataclass(frozen=True)
class Cell:
    """One cell of a table: the printed value and our runs.

    Attributes
    ----------
    label, told
        Name of the row in the table, and what else tells the runs apart from others in that place; ``row`` is both.
    values
        Of the runs with the status ``finished``. One that was never reached is infinitely bad; ``bounds`` tells how far
        those runs went.
    seeds, statuses, partitions, paths
        Of all recorded runs, diverged and failed ones included. A finished run whose measure needs a baseline that is
        not there has the status ``without baseline``, one whose record does not have the measure ``not measured``.
    std
        With ddof 0, as the papers' code; ``std_over`` says whether it is over ``seeds``, or, for a single run of personal
        models, over ``clients``.
    not_stated
        Our choices where the paper does not say what it did.
    job
        One of the runs, for its settings.
    """

    row: str
    column: str
    printed: float | None = None
    printed_std: float | None = None
    printed_text: str = ""
    values: tuple[float, ...] = ()
    bounds: tuple[float, ...] = ()
    expected: int = 0
    std: float | None = None
    std_over: str = ""
    departures: list[str] = field(default_factory=list)
    not_stated: list[str] = field(default_factory=list)
    choice: Choice | None = None
    note: str = ""
    remark: str = ""
    statuses: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()
    seeds: tuple[int, ...] = ()
    partitions: tuple[str | None, ...] = ()
    personal: bool = False
    stale: int = 0
    measure: str = "accuracy"
    target: float | None = None
    tier: str = ""
    label: str = ""
    told: tuple[tuple[str, Any], ...] = ()
    job: sweep.Job | None = None

    @property
    def mean(self) -> float | None:
        """Mean over the finished runs (for some measures the median), or None."""
        return MEASURES[self.measure].summary(self.values) if self.values else None

    @property
    def difference(self) -> float | None:
        """Our mean minus the printed value, or None."""
        unknown = self.mean is None or self.printed is None or not MEASURES[self.measure].reached(self.mean)
        return None if unknown else self.mean - self.printed

    @property
    def verdict(self) -> str:
        """See `verdict`."""
        return verdict(self)


def verdict(cell: Cell) -> str:
    """What a cell says about the printed value.

    Returns
    -------
    str
        ``not run``, ``diverged``, ``failed``, ``without baseline`` or ``not measured`` without a value; ``reduced`` if
        setting or data are not the paper's; ``indicative`` below `MIN_SEEDS` seeds; else ``reproduced`` or ``off by +x.x``.
        Empty if there is nothing to judge: no printed value, or no accuracy, but seconds or a number of rounds.
    """
    if not cell.statuses:
        return "not run"
    if not cell.values:
        return next((kind for kind in ("diverged", "failed") if kind in cell.statuses), cell.statuses[0])
    if cell.printed is None:
        return ""
    if cell.departures or cell.note:
        return "reduced"
    if cell.difference is None or not MEASURES[cell.measure].judged:
        return ""
    if len(cell.values) < MIN_SEEDS:
        return "indicative"
    allowed = statistics.interval(cell.values, LEVEL)[1]
    if not cell.personal:  # with personal models the printed ± is over clients, and says nothing about the mean
        allowed += cell.printed_std or 0.0
    close = abs(cell.difference) <= max(allowed, WITHIN_POINTS) + 1e-9  # 67.3 - 66.3 is a little more than 1
    return "reproduced" if close else f"off by {cell.difference:+.1f}"


def committed() -> pd.DataFrame:
    """The ledger of the repository, whatever ``$FEDNB_RUNS`` says."""
    folder = ROOT / "results" / "runs"
    return _committed(folder, tuple(sorted((file.name, file.stat().st_mtime_ns) for file in folder.glob("*.json"))))


@functools.lru_cache(maxsize=1)  # a notebook asks for each number
def _committed(folder: Path, state: Any) -> pd.DataFrame:
    return records.load(folder)


def records_by_path(ledger: pd.DataFrame) -> dict[Path, dict[str, Any]]:
    """The records of a ledger."""
    return dict(zip(ledger["path"], ledger["record"], strict=True)) if len(ledger) else {}


class _Ledger:
    """The records by recipe, so that a table does not depend on which data this machine has."""

    def __init__(self, ledger: pd.DataFrame) -> None:
        self.found: dict[str, dict[str, Any]] = {}
        self.stale: Counter[str] = Counter()
        # of records on other data, one on the published set counts
        for entry in sorted(ledger.to_dict("records"), key=lambda e: (bool(e["note"]), e["path"].name)):
            if entry["stale"]:
                self.stale[_recipe(entry["record"]["settings"])] += 1
            else:
                self.found.setdefault(_recipe(entry["record"]["settings"]), entry)


_KEPT: list[tuple[pd.DataFrame, _Ledger]] = []


def _known(ledger: pd.DataFrame | None) -> _Ledger:
    """The records by recipe; those of the last ledger are kept, since all tables of a report ask for it."""
    ledger = records.load() if ledger is None else ledger
    if not _KEPT or _KEPT[0][0] is not ledger:
        _KEPT[:] = [(ledger, _Ledger(ledger))]
    return _KEPT[0][1]


def _recipe(settings: dict[str, Any]) -> str:
    return records.key(settings)


def recorded(table: sweep.Table, ledger: pd.DataFrame | None = None) -> tuple[int, int]:
    """How many of a table's runs are recorded, and how many there are."""
    found, recipes = _known(ledger).found, {_recipe(job.settings.flat()) for job in table.jobs}
    return sum(found[r]["status"] in ("finished", "diverged") for r in recipes if r in found), len(recipes)


def cells(table: sweep.Table, ledger: pd.DataFrame | None = None) -> list[Cell]:
    """The cells of a table, row by row. Runs that share a cell but differ in more than the seed get rows of their own.

    Where the table says ``best_of``, runs that differ in that parameter share a row, and those with the best mean make
    the cell.

    Parameters
    ----------
    ledger
        From `records.load`; by default of `records.runs_folder`. A job's record is found in it by its settings, so that a
        table does not depend on which data this machine has: of records on other data, one on the published set counts.

    Raises
    ------
    ReportError
        If the printed table, row or column does not exist, the measure is unknown or lacks its baseline.
    """
    _check_measures(table)
    known = _known(ledger)
    places: dict[tuple[str, str], list[sweep.Job]] = {}
    for job in table.jobs:
        for column in table.columns.names(job):
            places.setdefault((table.rows.name(job), column), []).append(job)
    rows = dict.fromkeys(row for row, _ in places)
    ordered = [(place, jobs) for row in rows for place, jobs in places.items() if place[0] == row]
    return [
        _cell(table, place, told, variant, known, _baseline(table, places.get((table.baseline, place[1]), []), known))
        for place, jobs in ordered
        for told, variant in _variants(jobs, table.best_of)
    ]


def _check_measures(table: sweep.Table) -> None:
    for name in table.measures:
        if name not in MEASURES:
            plain = (known for known in MEASURES if not known.startswith("accuracy in "))
            raise ReportError(f"{table.name}: unknown measure {name!r}; there are {', '.join(plain)}, accuracy in DOMAIN.")
        if MEASURES[name].baseline and table.baseline is None:
            raise ReportError(f"{table.name}: the measure {name!r} needs a row that is the baseline; name it in the table.")
        if MEASURES[name].target and table.target is None:
            raise ReportError(f"{table.name}: the measure {name!r} needs a target; name it in the table.")
    if table.target is not None and not any(MEASURES[name].target for name in table.measures):
        raise ReportError(f"{table.name}: the measure {table.measure!r} does not read a target; leave it out.")


def _baseline(table: sweep.Table, jobs: list[sweep.Job], known: _Ledger) -> dict[int, dict[str, Any]]:
    """The baseline's finished run of each seed."""
    found: dict[int, dict[str, Any]] = {}
    for job in {_recipe(job.settings.flat()): job for job in jobs}.values():
        if job.settings.seed in found:
            raise ReportError(
                f"{table.name}: the baseline {table.baseline!r} has several runs with seed {job.settings.seed}."
            )
        entry = known.found.get(_recipe(job.settings.flat()))
        found[job.settings.seed] = entry if entry and entry["status"] == "finished" else {}
    return found


def _variants(jobs: list[sweep.Job], best_of: str | None) -> list[tuple[tuple[tuple[str, Any], ...], list[sweep.Job]]]:
    """Split the runs of a cell into runs that differ in seed (and in ``best_of``) alone, with what tells them apart."""
    flat = [job.settings.flat() for job in jobs]
    differ = [name for name in flat[0] if name not in ("seed", best_of) and len({str(s.get(name)) for s in flat}) > 1]
    variants: dict[str, tuple[tuple[tuple[str, Any], ...], dict[str, sweep.Job]]] = {}
    for job, s in zip(jobs, flat, strict=True):
        # a switch is told where it differs from the first run's, which then needs no other name than the row's
        told = [n for n in differ if not (isinstance(s.get(n), bool | None) and s.get(n) == flat[0].get(n))]
        pairs = tuple((name, s.get(name)) for name in told)
        variants.setdefault(str(pairs), (pairs, {}))[1][_recipe(s)] = job
    return [(told, list(group.values())) for told, group in variants.values()]


def _cell(
    table: sweep.Table,
    place: tuple[str, str],
    told: tuple[tuple[str, Any], ...],
    jobs: list[sweep.Job],
    known: _Ledger,
    baseline: dict[int, dict[str, Any]],
) -> Cell:
    printed = _printed(table, place, jobs[0])
    made = Cell(
        row=", ".join([place[0], *(f"{name.replace('_', ' ')} {value}" for name, value in told)]),
        column=place[1],
        printed=printed.value,
        printed_std=printed.std,
        printed_text=printed.text,
        measure=table.measure_of(place[1]),
        target=table.target,
        label=place[0],
        told=told,
    )
    groups: dict[str, list[sweep.Job]] = {}
    for job in jobs:
        groups.setdefault(str(job.settings.flat().get(table.best_of)) if table.best_of else "", []).append(job)
    candidates = [_filled(made, group, known, baseline) for group in groups.values()]
    finished = [cell for cell in candidates if cell.values]
    shown = (finished or [cell for cell in candidates if cell.statuses] or candidates)[0]
    better = min if MEASURES[made.measure].lower_is_better else max
    if len(finished) > 1:
        shown = better(finished, key=lambda cell: cell.mean)
    if not shown.statuses:
        shown = replace(shown, expected=len(jobs))
    own, departs = shown.job.settings.flat(), []
    for name, grid in printed.tuned.items():
        if name in own and own[name] not in grid:
            departs.append(f"{name} {own[name]} instead of one of {', '.join(map(str, grid))}")
        elif name in own and finished and len(finished) < len(grid):
            departs.append(f"{name} chosen from {len(finished)} instead of {len(grid)} values")
    grid = printed.tuned.get(table.best_of, groups)
    choice = None
    if table.best_of in own and len(grid) > 1 and finished:
        choice = Choice(table.best_of, own[table.best_of], len(finished), len(grid))
    asked = shown.job.settings
    usual = settings.defaults(asked.method, asked.dataset, asked.partition)
    return replace(
        shown,
        departures=[
            *(text for text in _departures(table, shown, printed) if text.split(" ")[0] not in printed.not_stated),
            *departs,
        ],
        not_stated=[f"{n} {own[n]}" for n in printed.not_stated if n in own and n in usual and own[n] != usual[n]],
        choice=choice,
        stale=sum(known.stale[_recipe(job.settings.flat())] for job in jobs),
    )


def _departures(table: sweep.Table, cell: Cell, printed: _Printed) -> list[str]:
    """What is not the paper's setting of this cell. What the paper varies in the table is none."""
    own, given = cell.job.settings, dict(printed.settings)
    if cell.measure == "halfway":  # the run is read as one of half its length
        own = replace(own, num_rounds=max(own.num_rounds // 2, 1))
    for name, value in own.flat().items():
        varied = table.printed is not None and name in (table.rows.parameter, table.columns.parameter)
        if (varied and name not in given) or name in printed.tuned or (name in given and _same(given[name], value)):
            given[name] = value
    return settings.deviations(own, given)


def _filled(cell: Cell, jobs: list[sweep.Job], known: _Ledger, baseline: dict[int, dict[str, Any]]) -> Cell:
    """The cell with the runs that differ in the seed alone."""
    measure = MEASURES[cell.measure]
    found = [known.found[recipe] for job in jobs if (recipe := _recipe(job.settings.flat())) in known.found]
    values, statuses = [], []
    for entry in found:
        value = _measured(measure, cell, entry, baseline) if entry["status"] == "finished" else None
        values += [] if value is None else [value]
        lacking = "without baseline" if measure.baseline else "not measured"
        statuses.append(lacking if value is None and entry["status"] == "finished" else entry["status"])
    finished = [entry for entry in found if entry["status"] == "finished"]
    over_clients = [float(entry["accuracy_std"]) for entry in finished if pd.notna(entry.get("accuracy_std"))]
    std, std_over = None, ""
    if len(values) > 1 and not measure.median:
        std, std_over = float(np.std([v.value for v in values])), "seeds"
    if len(values) == 1 and over_clients and cell.measure == "accuracy":
        std, std_over = over_clients[0], "clients"
    return replace(
        cell,
        values=tuple(v.value for v in values),
        bounds=tuple(v.bound for v in values if v.bound is not None),
        expected=len(jobs),
        std=std,
        std_over=std_over,
        note="; ".join(dict.fromkeys(entry["note"] for entry in found if entry["note"])),
        remark="; ".join(dict.fromkeys(text for entry in found if (text := entry.get("remark")))),
        statuses=tuple(statuses),
        paths=tuple(entry["path"] for entry in found),
        seeds=tuple(int(entry["seed"]) for entry in found),
        partitions=tuple(entry["record"].get("partition", {}).get("hash") for entry in found),
        personal=bool(over_clients),
        tier=jobs[0].tier,
        job=jobs[0],
    )


def _measured(measure: Measure, cell: Cell, entry: dict[str, Any], baseline: dict[int, dict[str, Any]]) -> Value | None:
    """A finished run's value; None if the baseline's run is missing or cannot be compared, or if its record may lack it."""
    other = baseline.get(int(entry["seed"]), {})
    if measure.baseline and not other:
        return None
    value = measure.read(entry, {"target": cell.target} if measure.target else other)
    if value is None and not (measure.baseline or measure.optional):
        every = entry["record"]["settings"].get("evaluate_every")
        why = f": it was evaluated after every {every} rounds and the last" if every else ""
        raise ReportError(f"{entry['path'].name} has no {cell.measure.replace('_', ' ')}{why}.")
    return value


# --- printed numbers --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Printed:
    """A printed cell, and the settings that the paper has there where they are not its usual ones."""

    value: float | None = None
    std: float | None = None
    text: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    tuned: dict[str, list[Any]] = field(default_factory=dict)
    not_stated: Sequence[str] = ()


def _printed(table: sweep.Table, place: tuple[str, str], job: sweep.Job) -> _Printed:
    if table.printed is None:
        return _Printed()
    printed, own, measure = _printed_table(table), job.settings.flat(), MEASURES[table.measure_of(place[1])]
    row = _printed_row(table, printed["rows"], place[0], table.rows.value(job), own)
    given = printed.get("parameters", {}) | printed.get("columns_are", {}).get(place[1], {})
    given |= {name: own[name] for name in printed.get("varied", []) if name in own}
    not_stated = _not_stated(str(table.printed))
    if row is None:
        return _Printed(settings=given, not_stated=not_stated)
    if place[1] not in row["cells"] and not printed.get("partial"):
        raise ReportError(f"{table.name}: {table.printed} has no column {place[1]!r}; it has {', '.join(row['cells'])}.")
    cell, unit = row["cells"].get(place[1], {"value": None, "std": None}), printed.get("unit")
    unit = unit.get(place[1]) if isinstance(unit, dict) else unit
    if measure.printed == "std":
        cell = {"value": cell["std"], "std": None}
    elif measure.printed != "value":
        cell, unit = {"value": row.get(measure.printed), "std": None}, None
    value, std = (None if x is None else x * (100 if unit == "fraction" else 1) for x in (cell["value"], cell["std"]))
    if measure.relative and value is not None:
        (base,) = [r for r in printed["rows"] if _row_name(r) == table.baseline]
        value, std = value / base["cells"][place[1]]["value"], None
    plain = value is None or measure.judged or measure.relative or measure.signed  # else as many digits as the paper prints
    text = (measure.text(value) if plain else f"{value:g}") + ("" if std is None else f" ± {std:.{measure.decimals}f}")
    given |= {name: row[name] for name in row.keys() & own.keys() if name != "method"}
    tuned = printed.get("tuned", {}) | row.get("tuned", {})
    return _Printed(value, std, text or cell.get("shown", ""), given, tuned, not_stated)


def printed_std_is(table: sweep.Table) -> str:
    """What the printed ± is over."""
    return _printed_table(table).get("std_is", "not stated")


def _printed_row(
    table: sweep.Table, printed: list[dict[str, Any]], label: str, value: Any, own: dict[str, Any]
) -> dict[str, Any] | None:
    """The printed row of a run: by its label, else its method, else the row parameter, and of several by their settings."""
    found = [r for r in printed if _row_name(r) == label] or [r for r in printed if r["method"] == label]
    found = found or [r for r in printed if _same(r.get(table.rows.parameter), value)]
    fields = sorted({name for r in found for name in r.keys() & own.keys() if name != "method"})
    partial = _printed_table(table).get("partial", False)
    unique = len(found) == 1 and not partial  # its fields are then compared with the run's settings
    rows = found if unique else [r for r in found if all(_same(r[n], own[n]) for n in fields if n in r)]
    if len(rows) == 1 or (partial and not rows):
        return rows[0] if rows else None
    asked = "".join(f", {name} {own[name]}" for name in fields)
    what, known = "several rows" if rows else "no row", ", ".join(dict.fromkeys(map(_row_name, printed)))
    raise ReportError(f"{table.name}: {table.printed} has {what} {label!r}{asked}; its rows: {known}.")


def _row_name(row: dict[str, Any]) -> str:
    return row.get("label", row["method"])


def _printed_table(table: sweep.Table) -> dict[str, Any]:
    return _find_printed(str(table.printed), table.name)


def _find_printed(name: str, asked_by: str) -> dict[str, Any]:
    paper, _, number = name.partition(" ")
    known = _reported()["papers"]
    if paper not in known:
        raise ReportError(f"{asked_by}: there are no printed numbers of a paper {paper!r}; there are {', '.join(known)}.")
    if number not in known[paper]["tables"]:
        raise ReportError(f"{asked_by}: {paper} has no printed {number!r}; it has {', '.join(known[paper]['tables'])}.")
    return known[paper]["tables"][number]


def _not_stated(name: str) -> Sequence[str]:
    return _reported()["papers"][name.partition(" ")[0]].get("not_stated", ())


def _reported() -> dict[str, Any]:
    return _read_reported(REPORTED, REPORTED.stat().st_mtime_ns)


@functools.lru_cache(maxsize=1)  # a table asks once per cell
def _read_reported(path: Path, time_ns: int) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def _same(printed: Any, ours: Any) -> bool:
    """Whether a printed name means our value: ``Tiny-Imagenet`` is ``tiny_imagenet``, ``with`` is True."""
    if isinstance(ours, bool):
        return printed is ours or printed == ("with" if ours else "without")
    plain = ["".join(c for c in str(x).lower() if c.isalnum()) for x in (printed, ours)]
    return (ours is not None and printed == ours) or (isinstance(ours, str) and plain[0] == plain[1])


def printed(name: str) -> dict[str, dict[str, float | None]]:
    """The printed numbers of ``"MOON Table 6"``, say: row, column, value."""
    rows = _find_printed(name, name)["rows"]
    return {_row_name(row): {column: cell["value"] for column, cell in row["cells"].items()} for row in rows}


def paper_title(paper: str) -> str:
    """The title of a paper, from ``data/reported.json``."""
    return _reported()["papers"][paper]["title"]


def anchor(source: str, method: str, round: int) -> float:
    """Test accuracy in percent that a public re-run logged after a round, from ``data/reported.json``."""
    return _reported()["anchors"][source][method][str(round)]


# --- tables by name ---------------------------------------------------------------------------------------------------


def tables_in(place: Path) -> dict[str, sweep.Table]:
    """The tables of a sweep file, or of all in a folder; read anew when one of them, or a notebook, has changed."""
    files = [*([place] if place.suffix == ".yaml" else place.glob("*.yaml")), *papers.notebooks()]
    places = [os.environ.get(name) for name in ("FEDNB_RUNS", "FEDNB_DATA")]
    return _tables(place, (*((file, file.stat().st_mtime_ns) for file in sorted(files)), *places))


@functools.lru_cache(maxsize=8)  # a notebook shows many tables, and to read a file means to check each of its runs
def _tables(place: Path, state: Any) -> dict[str, sweep.Table]:
    return sweep.read(place)


def table_of(name: str) -> sweep.Table:
    """Table ``name`` of the sweep files, of which those in which the name occurs are read first."""
    folder = papers.folder() / "sweeps"
    for place in (*(file for file in sorted(folder.glob("*.yaml")) if f" {name}:" in file.read_text("utf-8")), folder):
        if name in (tables := tables_in(place)):
            return tables[name]
    raise ReportError(f"There is no table {name!r}; the sweep files have {', '.join(tables) or 'none'}.")


def cells_of(name: str) -> list[Cell]:
    """The cells of table ``name`` of the sweep files, from the committed ledger."""
    return cells(table_of(name), committed())


def paired(
    table: str | sweep.Table, a: str, b: str, column: str | None = None, *, ledger: pd.DataFrame | None = None
) -> tuple[float, float, int]:
    """By how much row ``a`` beats row ``b``, judged by differences over the seeds that both have.

    Returns
    -------
    tuple
        Mean difference a − b, half width of its 95 % interval (NaN for one pair), number of pairs. The claim holds
        if the mean exceeds the half width.

    Raises
    ------
    ReportError
        For an unknown row or column, without a shared seed, or if a seed splits the data differently in ``a`` and ``b``.
    """
    name = table if isinstance(table, str) else table.name
    pairs, measure = pairs_of(table, a, b, column, ledger)
    if not pairs:
        raise ReportError(f"{name}: {a} and {b} share no finished seed.")
    if not all(measure.reached(value) for pair in pairs for value in pair):
        raise ReportError(f"{name}: {a} and {b} cannot be paired: a run never got there.")
    mean, half = statistics.interval([x - y for x, y in pairs], LEVEL)
    return mean, half, len(pairs)


def lead(table: str | sweep.Table, a: str, b: str, column: str | None = None, *, ledger: pd.DataFrame | None = None) -> str:
    """What `paired` says in words, such as ``"+1.0 ± 0.4 points over 3 seeds: ahead"``; "not run" without a shared seed.

    Ahead is the better side: of rounds the fewer, of a spread the narrower. Fewer than three seeds are indicative and
    get no verdict, and neither does a pair of which a run never got there.
    """
    pairs, measure = pairs_of(table, a, b, column, ledger)
    if not pairs:
        return "not run"
    n = len(pairs)
    seeds = {1: "one seed", 2: "two seeds"}.get(n, f"{n} seeds")
    if not all(measure.reached(value) for pair in pairs for value in pair):
        return f"not reached by every run of {seeds}"
    mean, half = statistics.interval([x - y for x, y in pairs], LEVEL)
    if n < MIN_SEEDS:
        return f"{mean:+.1f} {measure.unit} ({seeds}: indicative)"
    better = -mean if measure.lower_is_better else mean
    verdict = "no difference shown" if abs(mean) <= half else "ahead" if better > 0 else "behind"
    return f"{mean:+.1f} ± {half:.1f} {measure.unit} over {seeds}: {verdict}"


def pairs_of(
    table: str | sweep.Table, a: str, b: str, column: str | None, ledger: pd.DataFrame | None = None
) -> tuple[list[tuple[float, float]], Measure]:
    """The values of row ``a`` and row ``b``, for each seed that both have, and what they measure; errors as `paired`."""
    if isinstance(table, str):
        table, ledger = table_of(table), committed() if ledger is None else ledger
    found = cells(table, ledger)
    columns = list(dict.fromkeys(cell.column for cell in found))
    if column is None and len(columns) > 1:
        raise ReportError(f"{table.name} has several columns; choose one of {', '.join(columns)}.")
    measure = MEASURES[table.measure_of(column or columns[0])]
    return pairs_between(table, *(cell_at(table, found, row, column or columns[0]) for row in (a, b))), measure


def pairs_between(table: sweep.Table, a: Cell, b: Cell) -> list[tuple[float, float]]:
    """The values of two cells of a table, for each seed that both have; errors as `paired`."""
    sides = [by_seed(cell) for cell in (a, b)]
    shared = sorted(sides[0].keys() & sides[1].keys())
    if other := [seed for seed in shared if sides[0][seed][1] != sides[1][seed][1]]:
        raise ReportError(
            f"{table.name}: {a.row} and {b.row} cannot be paired: seed {other[0]} splits the data differently."
        )
    return [(sides[0][seed][0], sides[1][seed][0]) for seed in shared]


def cell_at(table: sweep.Table, found: Sequence[Cell], row: str, column: str) -> Cell:
    """One of a table's cells, by the names of its row and column."""
    for cell in found:
        if (cell.row, cell.column) == (row, column):
            return cell
    known = ", ".join(f"{cell.row} | {cell.column}" for cell in found)
    raise ReportError(f"{table.name} has no row {row!r} with column {column!r}; there are {known}.")


def by_seed(cell: Cell) -> dict[int, tuple[float, str | None]]:
    """Of each finished run its value and how it splits the data, by seed."""
    good = [i for i, status in enumerate(cell.statuses) if status == "finished"]
    return {cell.seeds[i]: (value, cell.partitions[i]) for i, value in zip(good, cell.values, strict=True)}


def tuned(table: str | sweep.Table, ledger: pd.DataFrame | None = None) -> pd.DataFrame:
    """What it is worth to choose a parameter on the test set rather than on held-out training images.

    Parameters
    ----------
    table
        Whose runs differ in one parameter (that of the rows, or ``best_of``) and the seed, and hold out training images.

    Returns
    -------
    pandas.DataFrame
        A line per seed, and one, ``all``, for the value that is best on average. ``by_test`` and ``by_validation`` are
        the values chosen (of equally good ones the first in the table), ``accuracy_by_test`` and
        ``accuracy_by_validation`` their test accuracies, and ``gain`` is by how many points the first is higher.
        ``compared`` says how many values could be compared: those with a finished run, for ``all`` of every seed.

    Raises
    ------
    ReportError
        If the runs differ in more than that, or hold out no images.
    """
    if isinstance(table, str):
        table, ledger = table_of(table), committed() if ledger is None else ledger
    known, name, found = _known(ledger), table.best_of or table.rows.parameter, {}
    values = list(dict.fromkeys(job.settings.flat().get(name) for job in table.jobs))
    for job in table.jobs:
        place = job.settings.seed, job.settings.flat().get(name)
        if place in found:
            raise ReportError(f"{table.name}: several runs have seed {place[0]} and {name} {place[1]}, so nothing is tuned.")
        if job.settings.validation is None:
            raise ReportError(f"{table.name} holds out no training images: its runs need the parameter validation.")
        entry = known.found.get(_recipe(job.settings.flat()), {"status": None})
        final = entry["record"]["final"] if entry["status"] == "finished" else {}
        found[place] = final.get("accuracy"), final.get("validation")
    sides = [
        pd.DataFrame({v: {s: pair[i] for (s, w), pair in found.items() if w == v} for v in values}, dtype=float)
        for i in (0, 1)
    ]
    test, held = (side.dropna(how="all") for side in sides)
    complete = test.dropna(axis=1)
    lines = [(seed, test.loc[seed].dropna(), held.loc[seed].dropna()) for seed in test.index]
    if len(lines) > 1 and len(complete.columns):
        lines.append(("all", complete.mean(), held[complete.columns].mean()))
    rows = []
    for seed, accuracy, validation in lines:
        best, chosen = accuracy.idxmax(), validation.idxmax()
        rows.append(
            {"seed": seed, "compared": f"{len(accuracy)} of {len(values)}", "by_test": best, "by_validation": chosen}
            | {"accuracy_by_test": accuracy[best], "accuracy_by_validation": accuracy[chosen]}
            | {"gain": accuracy[best] - accuracy[chosen]}
        )
    columns = ["seed", "compared", "by_test", "by_validation", "accuracy_by_test", "accuracy_by_validation", "gain"]
    return pd.DataFrame(rows, columns=columns).set_index("seed")


def trials(table: str | sweep.Table, ledger: pd.DataFrame | None = None) -> pd.DataFrame:
    """The trials of a table that tunes its rows, and in each row the one that held-out training images choose.

    Returns
    -------
    pandas.DataFrame
        A line per trial, in the order of the table: ``row``; ``settings``, a dict of what tells the trials of a row apart;
        ``validation`` and ``accuracy`` after the last round in percent, means over seeds (NaN if a run is missing or
        diverged); ``seconds`` and ``megabytes``, what its recorded runs took and sent; and ``chosen``, the best
        ``validation`` of a row, of equally good ones the first. Test accuracy has no say in it.

    Raises
    ------
    ReportError
        If a run holds out no images.
    """
    if isinstance(table, str):
        table, ledger = table_of(table), committed() if ledger is None else ledger
    known, rows, lines = _known(ledger), {}, []
    for job in table.jobs:
        if job.settings.validation is None:
            raise ReportError(f"{table.name} holds out no training images: its runs need the parameter validation.")
        rows.setdefault(table.rows.name(job), []).append(job)
    for row, jobs in rows.items():
        own = []
        for told, variant in _variants(jobs, None):
            found = [known.found.get(_recipe(job.settings.flat()), {"status": None, "record": {}}) for job in variant]
            finals = [entry["record"]["final"] if entry["status"] == "finished" else {} for entry in found]
            metrics = [entry["record"].get("metrics", {}) for entry in found]
            bytes_ = sum(sum(m.get("down_bytes", ())) + sum(m.get("up_bytes", ())) for m in metrics)
            own.append(
                {"row": row, "settings": dict(told)}
                | {name: np.mean([final.get(name, np.nan) for final in finals]) for name in ("validation", "accuracy")}
                | {"seconds": sum(entry["record"].get("wall_seconds", 0.0) for entry in found), "megabytes": bytes_ / 1e6}
            )
        best = max((one["validation"] for one in own if np.isfinite(one["validation"])), default=None)
        first = next((one for one in own if one["validation"] == best), None)
        lines += [one | {"chosen": one is first} for one in own]
    return pd.DataFrame(lines)
