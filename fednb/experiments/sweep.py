"""Sweeps: a table of a paper as a grid of parameters; what is not recorded yet is run, several runs at once.

A sweep file names a notebook and its tables. Runs are made by `fednb.experiments.execute`, here or on a dask cluster.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import json
import logging
import math
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from tqdm import tqdm

from fednb import ROOT, data, papers
from fednb.experiments import execute, ledger, settings
from fednb.experiments.execute import Outcome
from fednb.experiments.settings import Settings, SettingsError
from fednb.papers import _outline

TIERS = ("minutes-cpu", "minutes-gpu", "hours-gpu")
DEFAULT_PRIORITY = 100
MOST_RUNS, MOST_VALUES = 10_000, 100_000  # of a table; of a file, with its aliases written out
CONNECT_SECONDS = 10
_REQUIRED = ("title", "rows", "columns", "tier")
_OPTIONAL = ("printed", "measure", "baseline", "target", "best_of", "parameters", "grid", "runs", "priority")

defaults = papers.parameters


class SweepError(Exception):
    """A sweep file, notebook, parameter or cluster that cannot be used; the message says which, and why."""


@dataclass(frozen=True)
class Job:
    """One run of a table."""

    notebook: str  # its name without .ipynb; its path, if it is elsewhere
    table: str
    parameters: dict[str, Any]  # what differs from the notebook's own, by flat names
    settings: Settings
    path: Path  # of its record, whether it exists or not
    tier: str = TIERS[0]  # how long it takes, and on what
    priority: int = DEFAULT_PRIORITY  # from 1, which is made first

    @property
    def status(self) -> str | None:
        """``finished``, ``diverged``, ``failed``, ``stale``, or None if there is no record."""
        return self.told[0]

    @property
    def recorded(self) -> bool:
        """Whether the run need not be made; one that diverged is a result, one that failed is not."""
        return self.status in execute.RESULTS

    @property
    def told(self) -> tuple[str | None, float, str]:
        """Status, seconds and device by the record."""
        return _told(self.path, self.path.stat().st_mtime_ns) if self.path.exists() else (None, 0.0, "")


@functools.cache
def _told(path: Path, time_ns: int) -> tuple[str, float, str]:
    record = ledger.read(path)
    return ledger.state(record), record.get("wall_seconds", 0.0), record.get("device", "")


@dataclass(frozen=True)
class Axis:
    """The setting whose values make the rows or columns of a table, and what a value is called there."""

    parameter: str
    labels: dict[Any, str]
    # Names for runs that several settings tell apart, ``"MOON (mu=1)"`` for method MOON with mu 1, say: the first that fits.
    named: dict[str, dict[str, Any]] = field(default_factory=dict)
    # Columns may have measures of their own, by name, instead of a parameter (then ""): every run is in all of them.
    measures: dict[str, str] = field(default_factory=dict)

    def value(self, job: Job) -> Any:
        """A run's value of the parameter; None if its method does not have it."""
        return job.settings.flat().get(self.parameter, job.parameters.get(self.parameter))

    def label(self, value: Any) -> str:
        """The name of a value in the table."""
        return self.labels.get(value, str(value))

    def name(self, job: Job) -> str:
        """The name of a run's row or column."""
        values = job.settings.flat()
        fitting = (n for n, given in self.named.items() if all(values.get(k) == v for k, v in given.items()))
        return next(fitting, None) or self.label(self.value(job))

    def names(self, job: Job) -> list[str]:
        """The rows or columns that a run is in: all of those with a measure, else one."""
        return list(self.measures) or [self.name(job)]


@dataclass(frozen=True)
class Table:
    """A table of a sweep file."""

    name: str
    notebook: str
    title: str
    printed: str | None  # its original, as the reported numbers name it
    rows: Axis
    columns: Axis
    measure: str  # what its cells hold, but for columns that have measures of their own
    jobs: tuple[Job, ...]
    file: Path
    baseline: str | None = None  # the row that the measure compares the others with
    best_of: str | None = None  # the parameter of which the best value is chosen in each cell, as the paper does
    target: float | None = None  # the accuracy in percent that the measure asks for

    def measure_of(self, column: str | None) -> str:
        """What the cells of a column hold."""
        return self.columns.measures.get(column, self.measure)

    @property
    def measures(self) -> list[str]:
        """What its cells hold, each once."""
        return list(dict.fromkeys(self.columns.measures.values())) or [self.measure]

    @property
    def tiers(self) -> list[str]:
        """The tiers of its runs, the quickest first."""
        return sorted({job.tier for job in self.jobs}, key=TIERS.index)

    @property
    def took(self) -> str:
        """How long its recorded runs took on which device: the median; empty if there are none."""
        known = sorted(
            (device, seconds) for status, seconds, device in (job.told for job in self.jobs) if status == "finished"
        )
        groups = itertools.groupby(known, key=lambda pair: pair[0])
        return ", ".join(f"{_words(median(s for _, s in group))} on {device}" for device, group in groups)


def _words(seconds: float) -> str:
    large, unit = (seconds, "s") if seconds < 100 else (seconds / 60, "min") if seconds < 6000 else (seconds / 3600, "h")
    return f"{large:.0f} {unit}" if large >= 10 else f"{large:.1f} {unit}"


# --- sweep files ------------------------------------------------------------------------------------------------------


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """YAML in which 1e-05 is a number, and an error a key that is given twice, or more values than anybody writes."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        if keys and max(keys.values()) > 1:
            raise yaml.YAMLError(f"{keys.most_common(1)[0][0]!r} is given twice{node.start_mark}")
        return super().construct_mapping(node, deep)

    def get_single_node(self) -> Any:
        node = super().get_single_node()
        if node is not None and _size(node, {}) > MOST_VALUES:
            raise yaml.YAMLError(f"it has more than {MOST_VALUES:,} values")
        return node


def _size(node: yaml.Node, known: dict[int, float]) -> float:
    """The number of values with aliases written out, without writing them out; what contains itself has no end."""
    if id(node) not in known:
        known[id(node)] = math.inf
        inner = [] if isinstance(node, yaml.ScalarNode) else node.value
        parts = itertools.chain(*inner) if isinstance(node, yaml.MappingNode) else inner
        known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(node)]


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read(path: Path | str) -> dict[str, Table]:
    """Read the tables of a sweep file, or of all in a folder, and check every run in them.

    Raises
    ------
    SweepError
        If anything in the files is wrong; the message names the file and the table.
    """
    path = Path(path)
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    if not files:
        raise SweepError(f"There is no sweep file (*.yaml) in {path}.")
    tables: dict[str, Table] = {}
    for file in files:
        try:
            content = yaml.load(file.read_text(encoding="utf-8"), _Loader)
        except OSError as error:
            raise SweepError(f"{file} cannot be read ({error.strerror}).") from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise SweepError(f"{file} is not valid YAML: {' '.join(str(error).split())}.") from error
        where = file.name
        try:
            _check_keys(content, ("notebook", "tables"))
            _check(isinstance(content["notebook"], str), "notebook must be the name of one.")
            _check(content["tables"] and isinstance(content["tables"], dict), "tables must map names to tables.")
            for name, entry in content["tables"].items():
                where = f"{file.name}, table {name}"
                if name in tables:
                    raise SweepError(f"there is a table of that name in {tables[name].file.name} already.")
                tables[str(name)] = _table(file, str(name), content["notebook"], entry)
        except (SweepError, SettingsError, papers.NotebookError) as error:
            raise SweepError(f"{where}: {error}") from error
    return tables


def _check(good: Any, message: str) -> None:
    if not good:
        raise SweepError(message)


def _check_name(name: Any, known: Iterable[str], owner: str, what: str = "parameter") -> None:
    if not isinstance(name, str) or name not in known:
        raise SweepError(f"{owner} has no {what} {settings.short(name)}: {settings.known(settings.short(name), known)}")


def _check_keys(entry: Any, required: tuple[str, ...], optional: tuple[str, ...] = (), owner: str = "it") -> None:
    _check(isinstance(entry, dict), f"{owner} must be a mapping with {', '.join(required)}.")
    for key in required:
        _check(entry.get(key) is not None, f"{owner} lacks {key}.")
    for key in entry:
        _check_name(key, required + optional, owner, "key")


def _table(file: Path, name: str, notebook: str, entry: Any) -> Table:
    _check_keys(entry, _REQUIRED, _OPTIONAL)
    entry = {key: value for key, value in entry.items() if value is not None}
    jobs = _jobs(name, notebook, entry)
    known = {*Settings.__dataclass_fields__, *papers.parameters(notebook)} - {"hyperparameters", "more"}
    known |= {name for method in _outline.methods(notebook).values() for name in method.__dataclass_fields__}
    rows, columns = _axis("rows", entry["rows"], jobs, known), _columns(entry, jobs, known)
    measure, target, best_of, printed = (entry.get(key) for key in ("measure", "target", "best_of", "printed"))
    for key in ("measure", "best_of") if columns.measures else ():
        _check(key not in entry, f"its columns have measures of their own, and a run fills a row of them: leave out {key}.")
    _check(isinstance(measure, str | None), f"measure is {settings.short(measure)}; it must be the name of one.")
    number = not isinstance(target, bool) and isinstance(target, int | float)
    _check(
        target is None or (number and 0 < target <= 100),
        f"target is {settings.short(target)}; it must be an accuracy in percent, above 0 and at most 100.",
    )
    if best_of is not None:
        _check_name(best_of, known, f"the notebook {notebook}")
    _check(
        printed is None or printed in _printed_tables(),
        f"the papers' numbers in data/ have no table {settings.short(printed)}.",
    )
    return Table(
        name=name,
        notebook=jobs[0].notebook,
        title=str(entry["title"]),
        printed=printed,
        rows=rows,
        columns=columns,
        measure=measure or "accuracy",
        jobs=jobs,
        file=file,
        baseline=_baseline(entry.get("baseline"), rows, columns, jobs),
        best_of=best_of,
        target=None if target is None else float(target),
    )


@functools.cache
def _printed_tables() -> list[str]:
    reported = json.loads((ROOT / "data" / "reported.json").read_text(encoding="utf-8"))
    return [f"{paper} {table}" for paper, content in reported["papers"].items() for table in content["tables"]]


def _jobs(name: str, notebook: str, entry: dict[str, Any]) -> tuple[Job, ...]:
    fixed, grid, single = entry.get("parameters", {}), entry.get("grid", {}), entry.get("runs", [])
    _check(isinstance(fixed, dict), "parameters must map names to values.")
    several = isinstance(grid, dict) and all(isinstance(values, list) and values for values in grid.values())
    _check(several, "grid must map names to lists of values.")
    _check(isinstance(single, list) and all(isinstance(r, dict) for r in single), "runs must be a list of mappings.")
    grids = [grid] * bool(grid) + [{k: v if isinstance(v, list) else [v] for k, v in run.items()} for run in single]
    _check(grids, "it has neither a grid nor runs.")
    _check(all(values for g in grids for values in g.values()), "a list of values in runs is empty.")
    number = sum(math.prod(map(len, g.values())) for g in grids)
    _check(number <= MOST_RUNS, f"it has more than {MOST_RUNS:,} runs: divide it.")
    product = [fixed | dict(zip(g, values, strict=True)) for g in grids for values in itertools.product(*g.values())]
    jobs = [job(notebook, parameters, name) for parameters in product]
    datasets = dict.fromkeys(job.settings.dataset for job in jobs)
    tiers, priorities = (
        entry[key] if isinstance(entry.get(key), dict) else dict.fromkeys(datasets, entry.get(key, DEFAULT_PRIORITY))
        for key in ("tier", "priority")
    )
    for tier in tiers.values():
        _check(tier in TIERS, f"tier is {settings.short(tier)}; it must be one of {', '.join(TIERS)}.")
    for dataset in datasets:
        _check(dataset in tiers, f"tier says nothing about the data set {dataset!r}, which a run of the table has.")
    for dataset, priority in priorities.items():
        good = type(priority) is int and priority >= 1
        _check(good, f"priority is {settings.short(priority)}; it must be a whole number from 1, which is made first.")
        _check(dataset in datasets, f"priority names the data set {settings.short(dataset)}, which no run of the table has.")
    return tuple(
        dataclasses.replace(
            job, tier=tiers[job.settings.dataset], priority=priorities.get(job.settings.dataset, DEFAULT_PRIORITY)
        )
        for job in jobs
    )


def _baseline(row: Any, rows: Axis, columns: Axis, jobs: tuple[Job, ...]) -> str | None:
    """Check that every run has a run of the baseline's row with its column and seed."""
    if row is None:
        return None
    names = dict.fromkeys(rows.name(job) for job in jobs)
    _check_name(row, names, "its baseline must be a row; it", "row")
    places = {(name, job.settings.seed): None for job in jobs for name in columns.names(job)}
    have = {(name, job.settings.seed) for job in jobs if rows.name(job) == row for name in columns.names(job)}
    for name, seed in places:
        good = (name, seed) in have
        _check(good, f"the baseline {row!r} has no run in column {name!r} with seed {seed}, as others have.")
    return row


def _columns(entry: dict[str, Any], jobs: tuple[Job, ...], known: Iterable[str]) -> Axis:
    """Columns by a parameter or, given as ``{measures: {NAME: MEASURE}}``, by measures.

    ``domains`` is short for the domains of the runs' data set, their mean, and by how much that leads the baseline's.
    """
    columns = entry["columns"]
    if columns == "domains":
        names = list(dict.fromkeys(job.settings.dataset for job in jobs))
        told = f"columns: domains are those of one data set, but its runs have {', '.join(names)}: divide the table."
        _check(len(names) == 1, told)
        domains = data.domain_names(names[0])
        _check(domains, f"columns: domains needs a data set of several domains, and {names[0]} is none.")
        measures = {domain: f"accuracy in {domain}" for domain in domains} | {"Avg.": "accuracy"}
        columns = {"measures": measures | ({"Delta": "lead"} if "baseline" in entry else {})}
    if not isinstance(columns, dict) or "measures" not in columns:
        return _axis("columns", columns, jobs, known)
    _check_keys(columns, ("measures",), owner="columns")
    measures = columns["measures"]
    good = measures and isinstance(measures, dict) and all(isinstance(m, str) for m in measures.values())
    _check(good, "measures in columns must map names of columns to measures.")
    return Axis("", {}, measures={str(name): measure for name, measure in measures.items()})


def _axis(what: str, entry: Any, jobs: tuple[Job, ...], known: Iterable[str]) -> Axis:
    entry = {"parameter": entry} if isinstance(entry, str) else entry
    _check_keys(entry, ("parameter",), ("labels", "named"), owner=what)
    parameter, labels, named = entry["parameter"], entry.get("labels") or {}, entry.get("named") or {}
    _check(isinstance(labels, dict), f"the labels of {what} must map values to names.")
    good = isinstance(named, dict) and all(isinstance(given, dict) and given for given in named.values())
    _check(good, f"named in {what} must map names to parameters and their values.")
    for name in (parameter, *(name for given in named.values() for name in given)):
        _check_name(name, known, f"the notebook {jobs[0].notebook}")
    values = [job.settings.flat().get(parameter) for job in jobs]
    for value in labels:
        told = f"{what} has a label for {parameter} {settings.short(value)}, which no run of the table has."
        _check(value in values, told)
    axis = Axis(parameter, {value: str(label) for value, label in labels.items()}, {str(n): g for n, g in named.items()})
    for name in axis.named.keys() - {axis.name(job) for job in jobs}:
        raise SweepError(f"{what} names {name!r}, which no run of the table is.")
    return axis


# --- runs -------------------------------------------------------------------------------------------------------------


def resolve(notebook: str, parameters: Mapping[str, Any]) -> Settings:
    """The settings of a run of a notebook with these parameters, by flat names.

    Raises
    ------
    SweepError, NotebookError, SettingsError
        For a notebook without a method, a name that nobody reads, a value that is refused.
    """
    own = papers.parameters(notebook)
    good = {"method", "dataset"} <= own.keys()
    _check(good, f"The notebook {notebook} cannot be swept: it must have parameters method and dataset.")
    for name, value in parameters.items():
        _check(isinstance(name, str), f"{settings.short(name)} is no name of a parameter.")
        good = isinstance(value, str | int | float | None)
        _check(good, f"{name} is {settings.short(value)}; it must be a number, a string, true, false or null.")
    values = own | papers.arrange(notebook, parameters)
    try:
        return papers.settings(notebook, values | {"METHODS": _outline.methods(notebook)})
    except (AttributeError, NameError):  # a method whose own checks need more than its outline has
        return papers.settings(notebook, values | {"METHODS": papers.methods(notebook)})


def job(notebook: str, parameters: Mapping[str, Any], table: str = "") -> Job:
    """A run of a notebook, checked."""
    chosen = resolve(notebook, parameters)
    return Job(papers.name(notebook), table, dict(parameters), chosen, ledger.path(chosen))


def choose(tables: Iterable[Table], tiers: Iterable[str] = (), only: Iterable[tuple[str, Any]] = ()) -> list[Table]:
    """The tables with only some of their runs, without those of which nothing is left.

    Parameters
    ----------
    tiers
        Runs of these tiers; all if there are none.
    only
        Runs whose settings have these values, as pairs of name and value. Of values for one name, any will do.

    Raises
    ------
    SweepError
        For a tier, a name or a value that no run has.
    """
    tables, tiers = list(tables), list(tiers)
    flat = {id(job): job.settings.flat() for table in tables for job in table.jobs}
    for tier in tiers:
        _check(tier in TIERS, f"There is no tier {tier!r}: {settings.known(tier, TIERS)}")
    values: dict[str, list[Any]] = {}
    for name, value in only:
        _check_name(name, dict.fromkeys(name for own in flat.values() for name in own), "No run of these")
        found = dict.fromkeys(own[name] for own in flat.values() if name in own)
        told = f"No run has {name} {settings.short(value)}; the runs have {', '.join(map(str, found))}."
        _check(any(value == known for known in found), told)
        values.setdefault(name, []).append(value)

    def fits(job: Job) -> bool:
        own = flat[id(job)]
        return (not tiers or job.tier in tiers) and all(n in own and own[n] in allowed for n, allowed in values.items())

    left = [dataclasses.replace(table, jobs=tuple(filter(fits, table.jobs))) for table in tables]
    return [table for table in left if table.jobs]


def unique(tables: Iterable[Table]) -> list[Job]:
    """The runs of the tables, each once, by priority, of which one in several tables has the best, then as in the files."""
    found: dict[Path, Job] = {}
    for one in sorted((job for table in tables for job in table.jobs), key=lambda job: job.priority):
        found.setdefault(one.path, one)
    return list(found.values())


def plan(tables: Iterable[Table]) -> tuple[list[Job], list[Job]]:
    """The runs of the tables, each once: those that are recorded, and those to do, in the order in which they are made."""
    recorded, todo = [], []
    for one in unique(tables):
        (recorded if one.recorded else todo).append(one)
    return recorded, todo


def prepare(todo: Iterable[Job], *, here: bool = True) -> dict[str, str]:
    """Check what runs need besides good settings, so that none starts in vain; the fingerprint of each data set."""
    for notebook in {job.notebook for job in todo}:
        cells = papers.cells(papers.path(notebook), "code", "run")
        _check(cells, f"The notebook {notebook} has no code cell tagged 'run'.")
    if here:
        from fednb.experiments import build

        build.num_workers(build.find_device())
    execute.logs_folder().mkdir(parents=True, exist_ok=True)
    return {dataset: data.load(dataset).fingerprint for dataset in {job.settings.dataset for job in todo}}


Made = list[tuple[Job, str | None]]


def run(tables: Iterable[Table], *, jobs: int = 1, attempts: int = 2, scheduler: str | None = None) -> Made:
    """Make the runs that are not recorded, in the order of `plan`, and say what went wrong with each, if anything.

    Parameters
    ----------
    jobs
        How many at once. With GPUs, each takes its turn.
    attempts
        How often a run that fails is tried. The other runs go on in any case.
    scheduler
        Address of a dask scheduler, whose workers make the runs, one per thread; ``jobs`` is then of no account.
    """
    todo = plan(tables)[1]
    prints = prepare(todo, here=scheduler is None) if todo else {}
    orders = [((job.notebook, job.parameters, job.path.name), job) for job in todo]
    if scheduler is not None and todo:
        return _on_cluster(orders, prints, scheduler, attempts)
    pool, ended = ThreadPoolExecutor(jobs), threading.Event()
    options = {"jobs": jobs, "attempts": attempts, "stop": ended.is_set}
    try:
        return _follow({pool.submit(execute.make, *order, **options): job for order, job in orders}, Future.result)
    finally:
        ended.set()  # after Ctrl-C above all
        pool.shutdown(cancel_futures=True)


def _follow(
    pending: dict[Future[Outcome], Job], result: Callable[[Future[Outcome]], Outcome], watch: Callable[[], Any] = int
) -> Made:
    """Collect runs as they end: a live line in a terminal, else a line per run. ``watch`` is called every second."""
    made, begin, live = [], time.monotonic(), sys.stderr.isatty()
    # smoothing 0: the time left from all finished runs, as short and long ones alternate
    with tqdm(total=len(pending), unit="run", smoothing=0, disable=not live, dynamic_ncols=True) as bar:
        while pending:
            done = wait(list(pending), timeout=1, return_when=FIRST_COMPLETED).done
            while done:
                future = done.pop()
                job, outcome = pending.pop(future), result(future)
                del future  # whoever still holds a dask future wants its run made again if that worker dies
                if outcome.record and not job.recorded:  # it comes from elsewhere
                    ledger.write(job.path, outcome.record)
                made.append((job, outcome.error))
                bar.update()
                if not live:
                    left = tqdm.format_interval((time.monotonic() - begin) / len(made) * len(pending))
                    told = f"failed: {outcome.error}" if outcome.error else job.status
                    rest = f"; about {left} left" if pending else ""
                    print(f"{len(made)}/{bar.total}  {job.path.stem}  {told}{rest}", file=sys.stderr, flush=True)
            bar.refresh()
            watch()
    return made


def _on_cluster(orders: list[tuple[tuple[Any, ...], Job]], prints: dict[str, str], address: str, attempts: int) -> Made:
    try:
        import dask
        from distributed import Client, KilledWorker
        from distributed.core import rpc
    except ImportError as error:
        raise SweepError('A sweep on a cluster needs dask: pip install -e ".[cluster]".') from error
    for name in ("distributed", "asyncio", "tornado"):  # a lost connection is told below, in a sentence
        logging.getLogger(name).setLevel(logging.CRITICAL)
    resources, waiting = {}, False

    async def ask() -> None:
        async with rpc(address, timeout=CONNECT_SECONDS) as scheduler:
            await scheduler.identity()

    def lost(error: BaseException) -> SweepError:
        way_out = "see that it runs; the same command then goes on where this one ended."
        return SweepError(f"The connection to the scheduler at {address} was lost ({_line(error)}): {way_out}")

    def workers() -> list[dict[str, float]]:
        """What each worker that could take a run offers; if there is none, it is said once."""
        nonlocal waiting
        if client.status != "running":
            return []
        known = [worker["resources"] for worker in client.sync(client.scheduler.identity)["workers"].values()]
        found = [offer for offer in known if offer.keys() >= resources.keys()]
        if not found and not waiting:
            kind = " with a GPU" if resources else ""
            text = f"No worker{kind} is connected to {address}; waiting for one (start it with `dask worker {address}`)."
            tqdm.write(text, file=sys.stderr)
        waiting = not found
        return found

    def result(future: Future[Outcome]) -> Outcome:
        try:
            return future.result()
        except CancelledError as error:
            raise lost(error) from error
        except KilledWorker as error:
            told = f"{error.allowed_failures + 1} workers died with this run, the last at {error.last_worker.address}"
            return Outcome(
                None, f"{told}: the same command tries again, from its checkpoint if the folder of results is shared."
            )
        except Exception as error:
            return Outcome(None, _line(error))

    with dask.config.set({"distributed.comm.timeouts.connect": CONNECT_SECONDS}):
        try:  # first by hand: dask waits without end for a server that accepts and then says nothing
            asyncio.run(asyncio.wait_for(ask(), CONNECT_SECONDS + 2))
            client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except Exception as error:  # of many kinds: an address that makes no sense, a server that is not dask
            way_out = "start one with `dask scheduler`, which prints its address, or see whether a firewall is in the way."
            raise SweepError(f"No dask scheduler answers at {address} ({_line(error)}): {way_out}") from error
        with client:  # leaving, by Ctrl-C too, cancels what is queued; a run that is not wanted any more ends itself
            try:
                while not (found := workers()):
                    time.sleep(0.5)
                resources |= {"GPU": 1} if any(offer.get("GPU") for offer in found) else {}
                pool = client.get_executor(pure=False, resources=resources or None)
                code, options = execute.code(), {"attempts": attempts}
                pending = {
                    pool.submit(
                        execute.make_there, code, j.settings.dataset, prints[j.settings.dataset], *order, **options
                    ): j
                    for order, j in orders
                }
                return _follow(pending, result, workers)
            except OSError as error:
                raise lost(error) from error


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
