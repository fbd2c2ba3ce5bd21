"""Sweep files: the tables of a paper as grids of parameters, in YAML."""

import dataclasses
import difflib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from annotated_types import Ge, Gt, Le, MinLen
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from fednb import data
from fednb.errors import NotebookError, SweepError, check, require_known, shorten
from fednb_lab.jobs import DEFAULT_PRIORITY, MAX_RUNS, TIERS, Job, Notebook

Grid = Mapping[Any, Sequence[Any]]  # by parameter the values that it takes


@dataclass(frozen=True)
class Axis:
    """The setting whose values make the rows or columns of a table, and what a value is called
    there.

    Columns may have measures of their own instead of a parameter: then every run is in all of them.
    """

    parameter: str = ""  # "" where columns have measures
    labels: dict[Any, str] = field(default_factory=dict)  # by the parameter's value
    # names of runs that several settings tell apart, with these settings by flat names
    named: dict[str, dict[str, Any]] = field(default_factory=dict)
    measures: dict[str, str] = field(default_factory=dict)  # by the column's name

    def name(self, job: Job) -> str:
        """The name of a run's row or column: the first fitting one in `named`, a label, or the
        value.
        """
        values = job.settings.flat() | {"notebook": job.notebook}
        for name, settings in self.named.items():
            if settings.items() <= values.items():
                return name
        value = values.get(self.parameter)
        return self.labels.get(value, str(value))


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
    best_of: str | None = None  # in each cell the best value of this parameter counts
    target: float | None = None  # the accuracy in percent that the measure asks for

    def measure_of(self, column: str) -> str:
        """What the cells of a column hold."""
        return self.columns.measures.get(column, self.measure)

    @property
    def tiers(self) -> list[str]:
        """The tiers of its runs, the quickest first."""
        return sorted({job.tier for job in self.jobs}, key=TIERS.index)


# ---- what a sweep file may hold

ALL = ""  # stands for all data sets, where each may have a value of its own


class _Mapping(BaseModel):
    """A mapping with these keys and no others, of values of just these types."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, content: Any) -> Any:
        """Name what is unknown, with the likeliest guess, or what is missing."""
        if not isinstance(content, dict):
            raise ValueError("must be a mapping")
        known = list(cls.model_fields)
        for key in content:
            if key not in known:
                guesses = difflib.get_close_matches(str(key)[:80], known, 1)
                guess = f"; did you mean {guesses[0]!r}?" if guesses else ""
                raise ValueError(f"has no {shorten(key)}; known are {', '.join(known)}{guess}")
        required = [key for key in known if cls.model_fields[key].is_required()]
        missing = [key for key in required if key not in content]
        if missing:
            raise ValueError(f"lacks {', '.join(missing)}")
        return content


def _is_single(value: Any) -> Any:
    if value is not None and not isinstance(value, str | int | float):
        raise ValueError("must be a text or a number, true, false or null")
    return value


def _as_parameter(value: Any) -> Any:
    return {"parameter": value} if isinstance(value, str) else value


def _for_all(value: Any) -> Any:
    return value if isinstance(value, dict) else {ALL: value}


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


Value = Annotated[Any, AfterValidator(_is_single)]  # of a parameter
Values = Annotated[list[Value], MinLen(1)]
Parameters = dict[Any, Value]
Tier = Literal["minutes-cpu", "minutes-gpu", "hours-gpu"]


class _Rows(_Mapping):
    """A parameter, whose values make the rows, and what they are called."""

    parameter: str
    labels: dict[Any, str] = {}
    # for runs that several settings tell apart, "MOON (mu=1)" for method MOON with mu 1, say
    named: dict[Any, Parameters] = {}


class _Columns(_Rows):
    """A parameter, too; or measures by the names of the columns."""

    parameter: str = ""
    measures: dict[Any, str] = {}

    @model_validator(mode="after")
    def _check_either(self) -> "_Columns":
        if not self.measures and not self.parameter:
            raise ValueError("lacks parameter")
        if self.measures and self.model_fields_set != {"measures"}:
            raise ValueError("must have either a parameter or measures")
        return self


class _Table(_Mapping):
    """A table; in ``columns`` "domains" is short for those of its data set, their mean, the lead."""

    title: str
    rows: Annotated[_Rows, BeforeValidator(_as_parameter)]
    columns: Annotated[_Columns, BeforeValidator(_as_parameter)]
    tier: Annotated[dict[Any, Tier], BeforeValidator(_for_all)]  # may be told for each data set
    # 1 is made first
    priority: Annotated[dict[Any, Annotated[int, Ge(1)]], BeforeValidator(_for_all)] = {}
    printed: str | None = None  # its original, as data/reported.csv names it
    measure: str = "accuracy"
    baseline: str | None = None
    best_of: str | None = None
    target: Annotated[float, Gt(0), Le(100)] | None = None
    parameters: Parameters = {}  # of all runs
    grid: dict[Any, Values] = {}  # every combination is a run
    # single ones; a list makes several
    runs: list[dict[Any, Annotated[Values, BeforeValidator(_as_list)]]] = []


class _File(_Mapping):
    """The name of a notebook, or its path beside the file, and tables by their names."""

    notebook: str
    tables: Annotated[dict[Any, _Table], MinLen(1)]


def _sentence(error: ErrorDetails) -> str:
    """What is wrong with a sweep file, after the name of what it is about."""
    parts = [str(part) for part in error["loc"] if part != ALL]
    where = ".".join(parts)[:200] or "what it holds"
    if error["type"] == "value_error":
        text = str(error["ctx"]["error"])
    else:
        text = re.sub(r"^\w+ should", "must", error["msg"])
    value = error["input"]
    # of a list or mapping a file can make more than can be shown
    if isinstance(value, list | dict) or not text.startswith("must"):
        return f"{where} {text}"
    return f"{where} is {shorten(value)}; it {text}"


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML in which 1e-05 is a number, and a key that is given twice an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError(f"{key!r} is given twice{node.start_mark}")
        return super().construct_mapping(node, deep)


_NUMBER = re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
Loader.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789"))


# ---- from a file to tables


def read_tables(path: Path | str) -> dict[str, Table]:
    """The tables of a sweep file, or of all in a folder, by name.

    A `SweepError` names the file and the table that is wrong; an ``OSError`` tells of a file that
    cannot be read.
    """
    path = Path(path)
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    check(files, f"There is no sweep file (*.yaml) in {path}.", SweepError)
    tables: dict[str, Table] = {}
    for file in files:
        _add_tables(file, tables)
    return tables


def _add_tables(file: Path, tables: dict[str, Table]) -> None:
    """Add the tables of a file to those that were read before it."""
    where = file.name
    try:
        form = _File.model_validate(yaml.load(file.read_text(encoding="utf-8"), Loader))
        notebook = _notebook_of(file, form.notebook)
        for key, entry in form.tables.items():
            where = f"{file.name}, table {shorten(key)}"
            name = str(key)
            check(name not in tables, "there is a table of that name already.")
            tables[name] = _table(file, name, notebook, entry)
    except ValidationError as error:
        raise SweepError(_one_line(where, _sentence(error.errors()[0]))) from error
    except (SweepError, NotebookError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise SweepError(_one_line(where, str(error))) from error


def _one_line(where: str, text: str) -> str:
    line = " ".join(text.split())
    end = "" if line.endswith((".", "?")) else "."
    return f"{where}: {line}{end}"


def _notebook_of(file: Path, name: str) -> Notebook:
    """The notebook that a sweep file names; one of one's own may lie next to the file."""
    beside = file.parent / name
    return Notebook(str(beside) if beside.is_file() else name)


def _table(file: Path, name: str, notebook: Notebook, entry: _Table) -> Table:
    jobs = _jobs(name, notebook, entry)
    table = Table(
        name=name,
        notebook=notebook.name,
        title=entry.title,
        printed=entry.printed,
        rows=_axis(entry.rows),
        columns=_columns(entry, jobs),
        measure=entry.measure,
        jobs=jobs,
        file=file,
        baseline=entry.baseline,
        best_of=entry.best_of,
        target=entry.target,
    )
    _check_names(table)
    return table


def _axis(entry: _Rows) -> Axis:
    axis = Axis(**entry.model_dump())
    if axis.parameter != "dataset":
        return axis
    labels = {data.recorded_name(name): label for name, label in axis.labels.items()}
    return dataclasses.replace(axis, labels=labels)


def _columns(entry: _Table, jobs: Sequence[Job]) -> Axis:
    if entry.columns.parameter != "domains":
        return _axis(entry.columns)
    dataset = jobs[0].settings.dataset
    domains = data.spec_of(dataset).domains
    check(domains, f"columns cannot be domains: {dataset} has none.", SweepError)
    measures = {domain: f"accuracy in {domain}" for domain in domains}
    measures["Avg."] = "accuracy"
    if entry.baseline is not None:
        measures["Delta"] = "lead"
    return Axis(measures=measures)


def _jobs(name: str, notebook: Notebook, entry: _Table) -> tuple[Job, ...]:
    """The runs of a table: every combination of its grid, then the single ones."""
    grids: list[Grid] = list(entry.runs)
    if entry.grid:
        grids.insert(0, entry.grid)
    number = sum(math.prod(map(len, grid.values())) for grid in grids)
    message = f"it has {number:,} runs, in grid and runs together; it must have 1 to {MAX_RUNS:,}."
    check(1 <= number <= MAX_RUNS, message)
    jobs = []
    for values in itertools.chain.from_iterable(map(_combinations, grids)):
        job = notebook.job(entry.parameters | values, name)
        dataset = job.settings.dataset
        tier = entry.tier.get(dataset) or entry.tier.get(ALL)
        if tier is None:
            raise SweepError(
                f"tier says nothing about the data set {dataset!r}, which a run of the table has."
            )
        usual = entry.priority.get(ALL, DEFAULT_PRIORITY)
        priority = entry.priority.get(dataset, usual)
        jobs.append(dataclasses.replace(job, tier=tier, priority=priority))
    datasets = dict.fromkeys(job.settings.dataset for job in jobs)
    for dataset in entry.priority.keys() - {ALL}:
        require_known("priority: its runs have no data set", dataset, datasets, SweepError)
    return tuple(jobs)


def _combinations(grid: Grid) -> Iterator[dict[Any, Any]]:
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _check_names(table: Table) -> None:
    """A `SettingsError` for a parameter that no run has, or a row or column that no run makes."""
    settings = [job.settings.flat() for job in table.jobs]
    parameters = dict.fromkeys(itertools.chain.from_iterable(settings))
    if table.best_of is not None:
        require_known("its runs have no parameter", table.best_of, parameters)
    rows = _check_axis(table.rows, table.jobs, parameters)
    if not table.columns.measures:
        _check_axis(table.columns, table.jobs, parameters)
    if table.baseline is not None:
        require_known("its runs make no row", table.baseline, rows)


def _check_axis(axis: Axis, jobs: Sequence[Job], parameters: Mapping[str, None]) -> dict[str, None]:
    """The names of the rows or columns, in their order, if the axis names nothing else."""
    names = dict.fromkeys(axis.name(job) for job in jobs)
    for parameter in (axis.parameter, *itertools.chain.from_iterable(axis.named.values())):
        require_known("its runs have no parameter", parameter, parameters)
    for label in (*axis.labels.values(), *axis.named):
        require_known("its runs make no row or column", label, names)
    return names
