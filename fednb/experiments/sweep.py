"""Sweeps: a table of a paper as a grid of parameters; what is not recorded yet is run, several runs at once.

What a sweep file holds stands in ``sweep.schema.yaml``. Runs are made by `fednb.experiments.execute`, here or on a cluster.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import fastjsonschema
import yaml
from tqdm import tqdm

from fednb import data, papers
from fednb.experiments import execute, ledger, settings
from fednb.experiments.settings import Settings, SettingsError
from fednb.papers import NotebookError
from fednb.rules import short

TIERS = ("minutes-cpu", "minutes-gpu", "hours-gpu")
DEFAULT_PRIORITY = 100
MOST_RUNS, MOST_VALUES = 10_000, 100_000  # of a table; of a file, with its aliases written out


class SweepError(Exception):
    """A sweep file, notebook, parameter or cluster that cannot be used; the message says which, and why."""


@dataclass(frozen=True)
class Job:
    """One run of a table."""

    notebook: str  # its name without .ipynb; the path of one that is elsewhere
    table: str
    parameters: dict[str, Any]  # what differs from the notebook's own, by flat names
    settings: Settings
    path: Path  # of its record, whether it exists or not
    tier: str = TIERS[0]  # how long it takes, and on what
    priority: int = DEFAULT_PRIORITY  # from 1, which is made first
    seeds: tuple[int, ...] = ()  # with which a GPU makes it side by side, its own among them

    @property
    def told(self) -> tuple[str | None, float, str]:
        """Status (None if there is no record), seconds and device by the record."""
        return _told(self.path, self.path.stat().st_mtime_ns) if self.path.exists() else (None, 0.0, "")

    @property
    def status(self) -> str | None:
        """``finished``, ``diverged``, ``failed``, ``stale``, or None if there is no record."""
        return self.told[0]


@functools.cache
def _told(path: Path, time_ns: int) -> tuple[str, float, str]:
    record = ledger.read(path)
    seconds = record.get("wall_seconds")
    return ledger.state(record), seconds if isinstance(seconds, int | float) else 0.0, str(record.get("device", ""))


@dataclass(frozen=True)
class Axis:
    """The setting whose values make the rows or columns of a table, and what a value is called there."""

    parameter: str
    labels: dict[Any, str]
    named: dict[str, dict[str, Any]] = field(default_factory=dict)  # runs that several settings tell apart
    # columns may have measures of their own, by name, instead of a parameter (then ""): every run is in all of them
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
        fitting = (name for name, given in self.named.items() if all(values.get(k) == v for k, v in given.items()))
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
    printed: str | None  # its original, as the papers' numbers in data/ name it
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
        """How long a recorded run of it took, the median, and on which device; empty if there is none."""
        known: dict[str, list[float]] = {}
        for status, seconds, device in (job.told for job in self.jobs):
            if status == "finished":
                known.setdefault(device, []).append(seconds)
        return ", ".join(f"{tqdm.format_interval(median(times))} on {device}" for device, times in known.items())


# --- sweep files ------------------------------------------------------------------------------------------------------


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """YAML in which 1e-05 is a number, and a key that is given twice an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        if keys and max(keys.values()) > 1:
            raise yaml.YAMLError(f"{keys.most_common(1)[0][0]!r} is given twice{node.start_mark}")
        return super().construct_mapping(node, deep)


_NUMBER = re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789"))


def _size(value: Any, known: dict[int, float]) -> float:
    """The number of values with aliases written out, found without doing so; what contains itself has no end."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if parts and id(value) not in known:
        known[id(value)] = math.inf
        known[id(value)] = 1 + sum(_size(part, known) for part in parts)
    return known.get(id(value), 1)


@functools.cache
def _schema() -> Any:
    return fastjsonschema.compile(yaml.safe_load(Path(__file__).with_name("sweep.schema.yaml").read_text(encoding="utf-8")))


def _check(good: Any, message: str) -> None:
    if not good:
        raise SweepError(message)


def _check_name(name: Any, known: Iterable[str], owner: str, what: str = "parameter") -> None:
    if not isinstance(name, str) or name not in known:
        raise SweepError(f"{owner} has no {what} {short(name)}: {settings.known(short(name).strip(repr('')), known)}")


def read(path: Path | str) -> dict[str, Table]:
    """Read the tables of a sweep file, or of all in a folder, and check every run in them.

    Raises
    ------
    SweepError
        If anything in the files is wrong; the message names the file and the table.
    """
    path, tables = Path(path), {}
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    _check(files, f"There is no sweep file (*.yaml) in {path}.")
    for file in files:
        where = file.name
        try:
            content = yaml.load(file.read_text(encoding="utf-8"), _Loader)
            _check(_size(content, {}) <= MOST_VALUES, f"it has more than {MOST_VALUES:,} values.")
            _schema()(content)
            notebook = _Notebook(content["notebook"])
            for name, entry in zip(map(str, content["tables"]), content["tables"].values(), strict=True):
                where = f"{file.name}, table {name[:80]}"
                _check(name not in tables, "there is a table of that name already.")
                tables[name] = _table(file, name, notebook, entry)
        except fastjsonschema.JsonSchemaValueException as error:
            allowed = error.definition["properties"] if error.rule == "additionalProperties" else ()
            told = error.message[:300].replace("data", "it", 1) + f"; known are {', '.join(allowed)}" * bool(allowed)
            raise SweepError(f"{where}: {told}.") from error
        except (SweepError, SettingsError, NotebookError) as error:
            raise SweepError(f"{where}: {error}") from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise SweepError(f"{file} is not valid YAML: {' '.join(str(error).split())}.") from error
    return tables


def _table(file: Path, name: str, notebook: _Notebook, entry: dict[str, Any]) -> Table:
    jobs = _jobs(name, notebook, entry)
    rows, columns = _axis("rows", entry["rows"], jobs, notebook), _columns(entry, jobs, notebook)
    for key in ("measure", "best_of") if columns.measures else ():
        _check(key not in entry, f"its columns have measures of their own, and a run fills a row of them: leave out {key}.")
    if "best_of" in entry:
        notebook.check(entry["best_of"])
    if "baseline" in entry:
        _check_baseline(entry["baseline"], rows, columns, jobs)
    told = {key: entry.get(key) for key in ("printed", "baseline", "best_of", "target")}
    told |= {"title": entry["title"], "measure": entry.get("measure", "accuracy")}
    return Table(name=name, notebook=notebook.name, rows=rows, columns=columns, jobs=jobs, file=file, **told)


def _jobs(name: str, notebook: _Notebook, entry: dict[str, Any]) -> tuple[Job, ...]:
    grids = [entry["grid"]] if entry.get("grid") else []
    grids += [{k: v if isinstance(v, list) else [v] for k, v in run.items()} for run in entry.get("runs", ())]
    _check(grids, "it has neither a grid nor runs.")
    number = sum(math.prod(map(len, one.values())) for one in grids)
    _check(number <= MOST_RUNS, f"it has more than {MOST_RUNS:,} runs: divide it.")
    given = [dict(zip(one, values, strict=True)) for one in grids for values in itertools.product(*one.values())]
    jobs = [notebook.job(entry.get("parameters", {}) | own, name) for own in given]
    datasets = dict.fromkeys(job.settings.dataset for job in jobs)
    tiers, priorities = (
        value if isinstance(value, dict) else dict.fromkeys(datasets, value)  # the table's, or that of each data set
        for value in (entry["tier"], entry.get("priority", DEFAULT_PRIORITY))
    )
    for tier in tiers.values():
        _check(tier in TIERS, f"tier is {short(tier)}; it must be one of {', '.join(TIERS)}.")
    for dataset in datasets:
        _check(dataset in tiers, f"tier says nothing about the data set {dataset!r}, which a run of the table has.")
    for dataset in priorities:
        _check(dataset in datasets, f"priority names the data set {short(dataset)}, which no run of the table has.")
    found = [(job, tiers[job.settings.dataset], priorities.get(job.settings.dataset, DEFAULT_PRIORITY)) for job in jobs]
    return tuple(dataclasses.replace(job, tier=tier, priority=priority) for job, tier, priority in found)


def _check_baseline(row: str, rows: Axis, columns: Axis, jobs: tuple[Job, ...]) -> None:
    """Every run must have a run of the baseline's row with its column and seed."""
    places = [(rows.name(job), name, job.settings.seed) for job in jobs for name in columns.names(job)]
    _check_name(row, dict.fromkeys(name for name, _, _ in places), "the baseline must be a row, and the table", "row")
    have = {place[1:] for place in places if place[0] == row}
    for _, name, seed in places:
        told = f"the baseline {row!r} has no run in column {name!r} with seed {seed}, as others have."
        _check((name, seed) in have, told)


def _columns(entry: dict[str, Any], jobs: tuple[Job, ...], notebook: _Notebook) -> Axis:
    columns = entry["columns"]
    if columns == "domains":
        names = list(dict.fromkeys(job.settings.dataset for job in jobs))
        domains = data.domain_names(names[0]) if len(names) == 1 else ()
        _check(domains, f"columns: domains are those of one data set that has several; the table has {', '.join(names)}.")
        measures = {domain: f"accuracy in {domain}" for domain in domains} | {"Avg.": "accuracy"}
        columns = {"measures": measures | ({"Delta": "lead"} if "baseline" in entry else {})}
    if "measures" not in columns:
        return _axis("columns", columns, jobs, notebook)
    _check(len(columns) == 1, "columns have either a parameter or measures.")
    return Axis("", {}, measures={str(name): measure for name, measure in columns["measures"].items()})


def _axis(what: str, entry: Any, jobs: tuple[Job, ...], notebook: _Notebook) -> Axis:
    entry = {"parameter": entry} if isinstance(entry, str) else entry
    _check("parameter" in entry, f"{what} lack their parameter.")
    parameter, named = entry["parameter"], {str(name): given for name, given in entry.get("named", {}).items()}
    for name in (parameter, *itertools.chain(*named.values())):
        notebook.check(name)
    values = [job.settings.flat().get(parameter) for job in jobs]
    labels = entry.get("labels", {})
    if parameter == "dataset":
        labels = {data.recorded_name(value): label for value, label in labels.items()}
    for value in labels:
        _check(value in values, f"{what} has a label for {parameter} {short(value)}, which no run of the table has.")
    axis = Axis(parameter, {value: str(label) for value, label in labels.items()}, named)
    for name in named.keys() - {axis.name(job) for job in jobs}:
        raise SweepError(f"{what} names {name!r}, which no run of the table is.")
    return axis


# --- runs -------------------------------------------------------------------------------------------------------------


class _Notebook:
    """What the runs of a notebook have in common, looked up once."""

    def __init__(self, notebook: str) -> None:
        self.own, self.methods = papers.parameters(notebook), papers.outline(notebook)
        self.name, self.folder = papers.name(notebook), ledger.runs_folder()
        told = f"The notebook {self.name} cannot be swept: it must have parameters method and dataset."
        _check({"method", "dataset"} <= self.own.keys(), told)

    def check(self, name: Any) -> None:
        """Raise a `SweepError` unless the notebook, any run, or one of its methods has a parameter of that name."""
        known = dict.fromkeys([*self.own, *settings.FIELDS, "method", "dataset"])
        known |= dict.fromkeys(name for method in self.methods.values() for name in method.__dataclass_fields__)
        _check_name(name, known.keys() - {"more"}, f"the notebook {self.name}")

    def job(self, parameters: dict[str, Any], table: str) -> Job:
        for name, value in parameters.items():
            good = isinstance(name, str) and isinstance(value, str | int | float | None)
            _check(good, f"{name} is {short(value)}; it must be a number, a string, true, false or null.")
        if "more" not in self.own:
            papers.arrange(self.name, parameters)  # names that it does not have are told
        values = self.own | self.own.get("more", {}) | parameters
        values.pop("more", None)
        try:
            chosen = settings.resolve(self.methods, **values)
        except (AttributeError, NameError):  # a method's own checks need more than its outline has
            chosen = settings.resolve(papers.methods(self.name), **values)
        return Job(self.name, table, parameters, chosen, ledger.path(chosen, self.folder))


def job(notebook: str, parameters: Mapping[str, Any], table: str = "") -> Job:
    """A run of a notebook with these parameters, by flat names.

    Raises
    ------
    SweepError, NotebookError, SettingsError
        For a notebook without a method, a name that nobody reads, a value that is refused.
    """
    return _Notebook(notebook).job(dict(parameters), table)


def choose(tables: Iterable[Table], tiers: Iterable[str] = (), only: Iterable[tuple[str, Any]] = ()) -> list[Table]:
    """The tables with only their runs of these tiers, and with these values of settings; without those left empty.

    Of tiers, and of values for one name, any will do; all tiers if none is given. A tier, a name or a value that no run
    has is a `SweepError`.
    """
    tables, tiers, wanted = list(tables), list(tiers), {}
    flat = {id(job): job.settings.flat() for table in tables for job in table.jobs}
    for tier in tiers:
        _check(tier in TIERS, f"There is no tier {tier!r}: {settings.known(tier, TIERS)}")
    for name, value in only:
        value = data.recorded_name(value) if name == "dataset" else value
        _check_name(name, dict.fromkeys(itertools.chain(*flat.values())), "the sweep")
        found = list(dict.fromkeys(own[name] for own in flat.values() if name in own))
        _check(value in found, f"No run has {name} {short(value)}; the runs have {', '.join(map(str, found))}.")
        wanted.setdefault(name, []).append(value)

    def fits(job: Job) -> bool:
        own = flat[id(job)]
        return (not tiers or job.tier in tiers) and all(n in own and own[n] in allowed for n, allowed in wanted.items())

    left = [dataclasses.replace(table, jobs=tuple(filter(fits, table.jobs))) for table in tables]
    return [table for table in left if table.jobs]


def plan(tables: Iterable[Table]) -> tuple[list[Job], list[Job]]:
    """The runs of the tables, each once: those that are recorded, and those to do, in the order in which they are made.

    That is by priority, of which a run in several tables has the best, then as in the files. A run that diverged is
    recorded, one that failed is to do.
    """
    found: dict[Path, Job] = {}
    for one in sorted((job for table in tables for job in table.jobs), key=lambda job: job.priority):
        found.setdefault(one.path, one)
    recorded, todo = [], []
    for one in found.values():
        (recorded if one.status in ledger.RESULTS else todo).append(one)
    return recorded, todo


def prepare(todo: Iterable[Job], *, here: bool = True) -> dict[str, str]:
    """Check what runs need besides good settings, so that none starts in vain; the fingerprint of each data set."""
    for notebook in {job.notebook for job in todo}:
        cells = papers.cells(papers.path(notebook), "code", "run")
        _check(cells, f"The notebook {notebook} has no code cell tagged 'run'.")
    if here:
        from fednb.experiments import build

        build.num_workers(build.find_device())
    return {dataset: data.load(dataset).fingerprint for dataset in {job.settings.dataset for job in todo}}


def run(
    tables: Iterable[Table], *, jobs: int = 1, attempts: int = 2, scheduler: str | None = None
) -> list[tuple[Job, str | None]]:
    """Make the runs that are not recorded, in the order of `plan`, and say what went wrong with each, if anything.

    So many ``jobs`` at once, with several GPUs each on one of them; a run that fails is tried ``attempts`` times, and the
    others go on. With the address of a dask ``scheduler`` its workers make the runs, one per thread.
    """
    if not (todo := plan(tables)[1]):
        return []
    prints, alike = prepare(todo, here=scheduler is None), {}
    cells = [(job.notebook, ledger.key(job.settings.flat() | {"seed": None})) for job in todo]
    for cell, job in zip(cells, todo, strict=True):
        alike.setdefault(cell, []).append(job.settings.seed)
    todo = [dataclasses.replace(job, seeds=tuple(alike[cell])) for cell, job in zip(cells, todo, strict=True)]
    with execute.cluster(scheduler) if scheduler else execute.threads(jobs) as submit:
        return execute.follow({submit(job, attempts, prints[job.settings.dataset]): job for job in todo})
