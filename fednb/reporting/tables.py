"""The cells of a table: what the paper prints, from ``data/reported.csv``, and beside it our runs, from the ledger."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pandas as pd
import yaml

from fednb import ROOT, papers
from fednb.errors import ReportError, require_known
from fednb.experiments import settings
from fednb.experiments.ledger import load, runs_folder, state
from fednb.reporting import statistics
from fednb.reporting.metrics import Measure, Record, check, measure
from fednb.sweeps import files
from fednb.sweeps.table import Job, Table

Ledger = (
    Mapping[Path, Record] | None
)  # None: what is recorded in `runs_folder`, or, of a table's name, what is committed
Named = str | Table  # a table, or its name in the sweep files
_DO_NOT_COUNT = (None, "stale")  # states of runs without a record, or with one of other times


@functools.cache
def _reported() -> dict[str, dict[tuple[str, str], dict[str, Any]]]:
    found: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
    lines = pd.read_csv(ROOT / "data" / "reported.csv", dtype=str, keep_default_na=False)
    for line in lines.to_dict("records"):
        line |= {name: float(line[name]) if line[name] else None for name in ("value", "std")}
        line["settings"] = yaml.safe_load(line["settings"]) or {}
        found.setdefault(f"{line['paper']} {line['table']}".strip(), {})[
            line["row"], line["column"]
        ] = line
    return found


def original(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The lines about a paper (``"MOON"``) or its table (``"MOON Table 1"``), by row and column; ``("", "")``: about all."""
    require_known("There is no printed table", name, known := _reported(), ReportError)
    return known[name]


def printed(name: str) -> dict[str, dict[str, float | None]]:
    """The printed numbers of ``"MOON Table 6"``, say: row, column, value."""
    found: dict[str, dict[str, float | None]] = {}
    for (row, column), line in original(name).items():
        if row:
            found.setdefault(row, {})[column] = line["value"]
    return found


class Run(NamedTuple):
    """A run in a cell that it is in; path, record and state are None if it is not recorded."""

    job: Job
    path: Path | None = None
    record: Record | None = None
    state: str | None = (
        None  # ``finished`` and the like; ``without baseline`` or ``not measured`` if the value is missing
    )
    value: float | None = None  # of finished runs


Cell = SimpleNamespace  # one of a table: the printed value and our runs; `_cell` says what it holds


def cells_of(table: Named, ledger: Ledger = None) -> list[Cell]:
    """The cells of a table, row by row. Runs that share a cell but differ in more than the seed get rows of their own.

    Where a table says ``best_of``, runs that differ in that parameter share a row, and those with the best mean make the
    cell. A `ReportError` if the printed table, row or column does not exist, or a measure is unknown or lacks its baseline.
    """
    if isinstance(table, str):
        table, ledger = table_of(table), committed() if ledger is None else ledger
    ledger = load() if ledger is None else ledger
    found = {path.name: (path, record, state(record)) for path, record in ledger.items()}
    check(table)
    places: dict[str, dict[str, dict[str, Run]]] = {}  # by row and column
    for job in table.jobs:
        for column in table.columns.measures or (table.columns.name(job),):
            run = Run(job, *found.get(job.path.name, ()))
            places.setdefault(table.rows.name(job), {}).setdefault(column, {})[job.path.name] = run
    baselines: dict[tuple[str, int], Record | None] = {}
    for column, runs in places.get(table.baseline, {}).items():
        for run in runs.values():
            if (place := (column, run.job.settings.seed)) in baselines:
                raise ReportError(
                    f"{table.name}: the baseline {table.baseline!r} has several runs with seed {place[1]}."
                )
            baselines[place] = run.record if run.state == "finished" else None
    flat = [] if table.printed else [job.settings.flat() for job in table.jobs]
    # what a table without an original varies is told by its rows and columns
    seen, made = (
        {n for own in flat for n in own if len({str(o[n]) for o in flat if n in o}) > 1},
        [],
    )
    for label, column, runs in (
        (label, *of) for label, columns in places.items() for of in columns.items()
    ):
        flat = [run.job.settings.flat() for run in runs.values()]
        same = {"seed", table.best_of} | {
            n for n in flat[0] if len({str(own.get(n)) for own in flat}) == 1
        }
        alike: dict[
            Any, dict[Any, list[Run]]
        ] = {}  # by the settings that tell runs apart, and by the value of ``best_of``
        for run, own in zip(runs.values(), flat, strict=True):
            # a switch is told where it differs from the first run's, which then needs no other name than the row's
            others = [(n, own.get(n)) for n in flat[0] if n not in same]
            told = tuple(
                (n, value)
                for n, value in others
                if value != flat[0][n] or not isinstance(value, bool | None)
            )
            read = _read(table, column, run, baselines.get((column, run.job.settings.seed)))
            alike.setdefault(told, {}).setdefault(str(own.get(table.best_of)), []).append(read)
        made += [
            _cell(table, label, column, told, list(of.values()), seen) for told, of in alike.items()
        ]
    return made


def _read(table: Table, column: str, run: Run, baseline: Record | None) -> Run:
    if run.state != "finished":
        return run
    how = measure(name := table.measure_of(column))
    beside = {"target": table.target, "baseline": baseline}.get(how.needs)
    value = how.read(run.record, beside) if beside is not None or not how.needs else None
    if value is not None:
        return run._replace(value=float(value))
    if how.needs != "baseline" and not how.optional:
        raise ReportError(
            f"{run.path.name} has no {name.replace('_', ' ')}: it was not evaluated then."
        )
    return run._replace(state="without baseline" if how.needs == "baseline" else "not measured")


def _cell(
    table: Table,
    label: str,
    column: str,
    told: tuple,
    candidates: Sequence[Sequence[Run]],
    seen: set[str],
) -> Cell:
    """The cell of a place; of several candidates, for values of ``best_of``, the one with the best mean."""
    how = measure(name := table.measure_of(column))
    finished = [runs for runs in candidates if _values(runs)]
    some = (
        finished
        or [runs for runs in candidates if any(run.state not in _DO_NOT_COUNT for run in runs)]
        or candidates
    )
    chosen = (
        (min if how.sign < 0 else max)(some, key=lambda runs: how.summary(_values(runs)))
        if finished
        else some[0]
    )
    job, runs = chosen[0].job, [run for run in chosen if run.state not in _DO_NOT_COUNT]
    place, deviations, choice = _beside(table, label, column, job, len(finished), len(candidates))
    deviations = tuple(text for text in deviations if text.split(" ")[0] not in seen)
    good, values = [run for run in runs if run.value is not None], _values(runs)
    spreads = [run.record["final"].get("accuracy_std") for run in good]
    splits = [run.record.get("partition", {}).get("hash", "") for run in good]
    of_data = {
        key: dict.fromkeys(run.record["dataset"].get(key) for run in runs)
        for key in ("note", "remark")
    }
    of_data = {key: "; ".join(filter(None, texts)) for key, texts in of_data.items()}
    judged = (
        values and how.judged and place.value is not None and not deviations and not of_data["note"]
    )
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
        by_pair={
            (run.job.settings.seed, split): run.value
            for run, split in zip(good, splits, strict=True)
        },
        mean=how.summary(values) if values else None,  # for some measures the median
        half=statistics.interval(values)[1]
        if values and not how.median
        else None,  # of the interval; NaN for one run
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


class Place(NamedTuple):
    """What is printed beside a cell, in its measure's units, and the settings there: lists if tuned, ``any`` if not told."""

    value: float | None = None
    std: float | None = None
    text: str = ""
    stated: Mapping[str, Any] = {}


def _beside(
    table: Table, label: str, column: str, job: Job, finished: int, candidates: int
) -> tuple[Place, list[str], str]:
    """What is printed beside a run, in what it deviates from that, and how it was chosen if it is the best of several."""
    asked, name = job.settings, table.measure_of(column)
    place = _place(table, label, column, measure(name), asked.flat())
    if name == "halfway" and "num_rounds" in place.stated:  # which is half of the run's length
        asked = replace(asked, num_rounds=max(asked.num_rounds // 2, 1))
    own = asked.flat()
    # neither what the paper varies in the table nor what it tuned is a deviation
    given = {
        axis.parameter: own.get(axis.parameter)
        for axis in (table.rows, table.columns)
        if table.printed
    } | place.stated
    tuned = {name: grid for name, grid in given.items() if isinstance(grid, list) and name in own}
    alike = {name for name, said in given.items() if said == "any" or _same(said, own.get(name))}
    given_too = {name: own[name] for name in (alike | tuned.keys()) & own.keys()}
    told = list(map(str, settings.deviations(asked, given | given_too)))
    for name, values in tuned.items():
        if own[name] not in values:
            told.append(f"{name} {own[name]} instead of one of {', '.join(map(str, values))}")
        elif 0 < finished < len(values):
            some = f"{own[name]} alone" if finished == 1 else f"chosen from {finished}"
            told.append(f"{name} {some} instead of {len(values)} values")
    count = len(tuned[table.best_of]) if table.best_of in tuned else candidates
    rest = f" (of {count})" if count > finished else ""
    chosen = (
        table.best_of in own and count > 1 and finished > (table.best_of in tuned)
    )  # a deviation tells of one alone
    return (
        place,
        told,
        f"{table.best_of} {own[table.best_of]}, the best of {finished} values{rest}"
        if chosen
        else "",
    )


def _place(table: Table, label: str, column: str, how: Measure, own: Mapping[str, Any]) -> Place:
    """What stands beside runs, in the row of their name or of their method and settings; a `ReportError` if none does."""
    if table.printed is None:
        return Place()
    lines = original(table.printed)
    about, of_column = lines["", ""], lines.get(("", column), {})
    rows = {row: line for (row, _), line in lines.items() if row}
    plain = {
        row: {n: v for n, v in line["settings"].items() if n in own} for row, line in rows.items()
    }
    fit = [
        row
        for row in rows
        if all(isinstance(v, list) or _same(v, own[n]) for n, v in plain[row].items())
    ]
    found = [row for row in (fit if about["partial"] else rows) if row == label]
    found = found or [row for row in fit if rows[row]["method"] == label]
    stated = (
        original(about["paper"])["", ""]["settings"]
        | about["settings"]
        | of_column.get("settings", {})
    )
    stated |= plain[found[0]] if found else {}
    line = lines.get((found[0], column)) if len(found) == 1 else None
    if line is None:
        if about["partial"]:
            return Place(stated=stated)
        what = f"row {label!r} with its settings; its rows: {', '.join(rows)}"
        if found:
            what = (
                f"column {column!r}; it has {', '.join(c for row, c in lines if row == found[0])}"
            )
        raise ReportError(f"{table.name}: {table.printed} has no {what}.")
    value, std = line["value"], line["std"]
    if how.printed:
        value, std = (
            (std if how.printed == "std" else lines[line["row"], how.printed]["value"]),
            None,
        )
    if "fraction" in (about["unit"], of_column.get("unit")):
        value, std = (None if x is None else 100 * x for x in (value, std))
    if how.relative and value is not None:
        value, std = value / lines[table.baseline, column]["value"], None
    own_digits = value is not None and not (how.judged or how.relative or how.signed)
    text = (f"{value:g}" if own_digits else how.text(value)) + (
        "" if std is None else f" ± {std:.{how.decimals}f}"
    )
    return Place(value, std, text or line["text"], stated)


def _same(printed: Any, ours: Any) -> bool:
    """Whether a printed name means our value: ``Tiny-Imagenet`` is ``tiny_imagenet``, ``with`` is True."""
    if isinstance(ours, bool):
        return printed is ours or printed == ("with" if ours else "without")
    plain = ["".join(c for c in str(x).lower() if c.isalnum()) for x in (printed, ours)]
    return (ours is not None and printed == ours) or (
        isinstance(ours, str) and plain[0] == plain[1]
    )


_tables = functools.cache(
    lambda folder, runs: files.read_tables(folder)
)  # to read the files means to check each run in them


def table_of(name: str) -> Table:
    """Table ``name`` of the sweep files."""
    tables = _tables(papers.folder() / "sweeps", runs_folder())
    require_known("There is no table", name, tables, ReportError)
    return tables[name]


@functools.cache  # a notebook asks for each number
def committed() -> Mapping[Path, Record]:
    """The records of the repository, whatever ``$FEDNB_RUNS`` says."""
    return load(ROOT / "results" / "runs")
