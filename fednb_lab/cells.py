"""The cells of a table: what the paper prints, and beside it our runs, from the ledger."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from fednb import ROOT, results
from fednb.errors import ReportError, check, require_known
from fednb.leads import interval
from fednb.records import Record, read, state
from fednb.settings import Deviation
from fednb_lab import sweeps
from fednb_lab.deviations import called_with_value, deviations_of
from fednb_lab.jobs import Job
from fednb_lab.measures import Measure, measure
from fednb_lab.printed import PrintedCell, printed_cell
from fednb_lab.sweeps import Table

# names and values of settings which tell runs apart
Variant = tuple[tuple[str, Any], ...]
_NO_RECORD = cast(Record, {})
_COMMITTED = ROOT / "results" / "runs"  # the records of the repository
_DO_NOT_COUNT = ("missing", "stale")  # states of runs without a record, or with one of other times


class Run(NamedTuple):
    """A run, as the cell reads it that it is in."""

    job: Job
    path: Path  # of its record
    record: Record  # empty if there is none, and then the run is in no cell
    # as recorded, such as "finished"; "without baseline" or "not measured": it has no value
    state: str
    value: float | None = None  # of finished runs


class Choice(NamedTuple):
    """The value of a parameter that was the best of several, on test images."""

    name: str
    value: Any
    tried: int  # so many values have finished runs


@dataclass(frozen=True, eq=False)
class Cell(results.Cell):
    """A cell with its runs, and what else is known of them from their records."""

    label: str  # of its row in the table, without what else tells its runs from others there
    measure: Measure
    job: Job  # one of the runs, for its settings
    runs: tuple[Run, ...]
    expected: int  # so many runs there should be
    stale: int  # so many records are of an older results version, and are not in `runs`
    printed_cell: PrintedCell  # what is printed there
    deviations: tuple[Deviation, ...]  # from the paper's settings
    choice: Choice | None  # where the table asks for the best of several values

    @property
    def paths(self) -> tuple[Path, ...]:
        """One for each of `runs`."""
        return tuple(run.path for run in self.runs)

    def with_runs(self, runs: Sequence[Run]) -> "Cell":
        """Return the same cell with other runs, or with other values in them."""
        return replace(self, **_fields_of(self.measure, runs))

    @property
    def spread(self) -> float | None:
        """Standard deviation over clients, mean over runs; None without personal models."""
        spreads: list[Any] = [
            run.record["final"].get("accuracy_std") for run in measured(self.runs)
        ]
        return interval(spreads)[0] if spreads and None not in spreads else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not the published data in its runs."""
        return _each_once(run.record["dataset"].get("note") for run in self.runs)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What else has to be known of the data of its runs."""
        return _each_once(run.record["dataset"].get("remark") for run in self.runs)


CellsOf = Callable[[str], Sequence[Cell]]  # by the name of a table


def _each_once(texts: Iterable[str | None]) -> tuple[str, ...]:
    """The parts of texts that are lists, as records have them."""
    parts = [part for text in texts if text for part in text.split("; ")]
    return tuple(dict.fromkeys(parts))


def measured(runs: Iterable[Run]) -> list[Run]:
    """Return the finished runs with a value."""
    return [run for run in runs if run.value is not None]


def _values(runs: Iterable[Run]) -> list[float]:
    return [run.value for run in runs if run.value is not None]


def _fields_of(measure: Measure, runs: Sequence[Run]) -> dict[str, Any]:
    """The fields of a cell that its runs make."""
    values = _values(runs)
    partitions = [run.record.get("partition", {}) for run in measured(runs)]
    return {
        "runs": tuple(runs),
        "seeds": tuple(run.job.settings.seed for run in runs),
        "splits": tuple(partition.get("hash", "") for partition in partitions),
        "statuses": tuple(run.state for run in runs),
        "values": tuple(values),
        "mean": measure.summary(values) if values else None,
        "half_width": interval(values)[1] if values and not measure.median else None,
    }


def _check_measures(table: Table) -> None:
    """Check that a table has what its measures need, and a target only if one reads it."""
    names = list(table.columns.measures.values()) or [table.measure]
    for name in names:
        needs = measure(name).needs
        message = f"{table.name}: the measure {name!r} needs a {needs}; name it in the table."
        check(not needs or getattr(table, needs) is not None, message, ReportError)
    is_read = table.target is None or "target" in [measure(name).needs for name in names]
    message = f"{table.name}: the measure {table.measure!r} does not read a target; leave it out."
    check(is_read, message, ReportError)


def cells_of(table: Table, records: Mapping[Path, Record] | None = None) -> list[Cell]:
    """Return the cells of a table, row by row, from these records, or from those of its own runs.

    Runs that share a cell but differ in more than the seed get rows of their own. Where a table
    says ``best_of``, runs that differ in that parameter share a row, and those with the best mean
    make the cell. A `ReportError` if the printed table, row or column does not exist, or a measure
    is unknown or lacks its baseline.
    """
    _check_measures(table)
    by_row = _runs_by_row(table, records_of(table) if records is None else records)
    baselines = _baseline_records(table, by_row)
    # what a table without an original varies is told by its rows and columns
    varied = set() if table.printed else _varied_settings(table.jobs)
    cells = []
    for label, by_column in by_row.items():
        for column, by_name in by_column.items():
            runs = [_read(table, column, run, baselines) for run in by_name.values()]
            for variant, candidates in _variants(runs, table.best_of).items():
                cells.append(_cell(table, label, column, variant, candidates, varied))
    return cells


def _runs_by_row(
    table: Table, records: Mapping[Path, Record]
) -> dict[str, dict[str, dict[str, Run]]]:
    """The runs of a table by row, column and file name, so that none is in a cell twice."""
    by_file_name = {path.name: path for path in records}  # records may have been moved as a whole
    by_row: dict[str, dict[str, dict[str, Run]]] = {}
    for job in table.jobs:
        path = job.path if job.path in records else by_file_name.get(job.path.name)
        run = Run(job, job.path, _NO_RECORD, "missing")
        if path is not None:
            run = Run(job, path, records[path], state(records[path]))
        by_column = by_row.setdefault(table.rows.name(job), {})
        for column in table.columns.measures or [table.columns.name(job)]:
            by_column.setdefault(column, {})[job.path.name] = run
    return by_row


def _baseline_records(
    table: Table, by_row: Mapping[str, Mapping[str, Mapping[str, Run]]]
) -> dict[tuple[str, int], Record]:
    """The records of the baseline's finished runs, by column and seed."""
    records = {}
    for column, by_name in by_row.get(table.baseline or "", {}).items():
        runs = list(by_name.values())
        seeds = {run.job.settings.seed for run in runs}
        message = f"{table.name}: the baseline {table.baseline!r} has several runs with one seed."
        check(len(seeds) == len(runs), message, ReportError)
        for run in runs:
            if run.state == "finished":
                records[column, run.job.settings.seed] = run.record
    return records


def _varied_settings(jobs: Iterable[Job]) -> set[str]:
    """The names of settings that have several values among runs."""
    values: dict[str, set[str]] = {}
    for job in jobs:
        for name, value in job.settings.flat().items():
            values.setdefault(name, set()).add(str(value))
    return {name for name, different in values.items() if len(different) > 1}


def _variants(runs: Sequence[Run], best_of: str | None) -> dict[Variant, list[list[Run]]]:
    """Runs by what tells them apart; for each such group those with each value of ``best_of``."""
    varied = _varied_settings(run.job for run in runs) - {"seed", best_of}
    first = runs[0].job.settings.flat()
    names = [name for name in first if name in varied]
    groups: dict[Variant, dict[str, list[Run]]] = {}
    for run in runs:
        own = run.job.settings.flat()
        candidates = groups.setdefault(_variant(names, own, first), {})
        candidates.setdefault(str(own.get(best_of or "")), []).append(run)
    return {variant: list(candidates.values()) for variant, candidates in groups.items()}


def _variant(names: Sequence[str], own: Mapping[str, Any], first: Mapping[str, Any]) -> Variant:
    """What tells a run apart; a switch only where it is not as in the first run."""
    variant = []
    for name in names:
        value = own.get(name)
        is_switch = value is None or isinstance(value, bool)
        if value != first[name] or not is_switch:
            variant.append((name, value))
    return tuple(variant)


def _read(table: Table, column: str, run: Run, baselines: Mapping[tuple[str, int], Record]) -> Run:
    """A finished run with the value of the column's measure, or with the reason why it has none."""
    if run.state != "finished":
        return run
    of_column = measure(table.measure_of(column))
    baseline = baselines.get((column, run.job.settings.seed))
    needs_baseline = of_column.needs == "baseline"
    value = None
    if baseline is not None or not needs_baseline:
        value = of_column.read(run.record, baseline if needs_baseline else table.target)
    if value is None:
        return run._replace(state="without baseline" if needs_baseline else "not measured")
    return run._replace(value=float(value))


def _cell(
    table: Table,
    label: str,
    column: str,
    variant: Variant,
    candidates: Sequence[Sequence[Run]],
    varied: set[str],
) -> Cell:
    """A cell, of the best of several candidates: groups of runs for values of ``best_of``."""
    of_column = measure(table.measure_of(column))
    finished = [runs for runs in candidates if _values(runs)]
    chosen = _best(of_column, candidates, finished)
    job = chosen[0].job
    runs = [run for run in chosen if run.state not in _DO_NOT_COUNT]
    planned = [chosen] if runs else candidates
    printed = printed_cell(table, label, column, of_column, job.settings.flat())
    deviations = deviations_of(table, job.settings, of_column, printed, len(finished))
    choice = None
    if table.best_of and len(finished) > 1:
        best = job.settings.flat().get(table.best_of)
        choice = Choice(table.best_of, best, len(finished))
    told_apart = [called_with_value(name, value) for name, value in variant]
    method, dataset = job.settings.method, job.settings.dataset
    return Cell(
        table=table.name,
        row=", ".join([label, *told_apart]),
        column=column,
        sign=of_column.sign,
        unit=of_column.unit,
        parameters={"method": method, "dataset": dataset} | job.parameters,
        printed=printed.value,
        label=label,
        measure=of_column,
        job=job,
        expected=sum(map(len, planned)),
        stale=sum(run.state == "stale" for candidate in candidates for run in candidate),
        printed_cell=printed,
        deviations=tuple(deviation for deviation in deviations if deviation.name not in varied),
        choice=choice,
        **_fields_of(of_column, runs),
    )


def _best(
    of_column: Measure, candidates: Sequence[Sequence[Run]], finished: Sequence[Sequence[Run]]
) -> Sequence[Run]:
    """The candidate with the best mean; else the first with runs that count, or just the first."""
    if finished:
        better = min if of_column.sign < 0 else max
        return better(finished, key=lambda runs: of_column.summary(_values(runs)))
    for runs in candidates:
        if any(run.state not in _DO_NOT_COUNT for run in runs):
            return runs
    return candidates[0]


def cells_named(name: str) -> list[Cell]:
    """Return the cells of a project's table, or of ``FILE.yaml:TABLE``, a sweep file of one's own.

    ``FILE.yaml`` is enough where the file has one table. A `ReportError` if there is no such table.
    """
    file, _, table = name.partition(":")
    if file.endswith((".yaml", ".yml")):
        own = sweeps.read_tables(file)
        table = table or (next(iter(own)) if len(own) == 1 else "")
        require_known(f"{file} has several tables, or none called", table, own, ReportError)
        return cells_of(own[table])
    project = sweeps.project_table(name)
    return cells_of(project, records_of(project, _COMMITTED))


def records_of(table: Table, folder: Path | None = None) -> dict[Path, Record]:
    """Read the records of a table's own runs, where these lie, or in a folder: nothing else."""
    paths = [folder / job.path.name if folder else job.path for job in table.jobs]
    return {path: read(path) for path in paths if path.exists()}
