"""Sweep files: the tables of a paper as grids of parameters, in YAML."""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from annotated_types import Gt, Le, MinLen
from pydantic import BeforeValidator, ConfigDict, InstanceOf, ValidationError
from pydantic.dataclasses import dataclass

from fednb import data, papers
from fednb.errors import FednbError, ReportError, SweepError, check, require_known, shorten
from fednb_lab.jobs import MAX_RUNS, TIERS, Job, Notebook, Tier

ALL = ""  # stands for all data sets, where each may have a value of its own


def _as_axis(value: Any) -> Any:
    if isinstance(value, str):
        return {"parameter": value}
    return _require_keys_of(Axis, value) if isinstance(value, dict) else value


def _for_all(value: Any) -> Any:
    return value if isinstance(value, dict) else {ALL: value}


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


Parameters = dict[Any, Any]
# by parameter the values that it takes; every combination is a run
Grid = dict[Any, Annotated[list[Any], BeforeValidator(_as_list), MinLen(1)]]
_CONFIG = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_CONFIG)
class Axis:
    """The setting whose values make the rows or columns of a table, and what a value is called
    there.

    Columns may have measures of their own instead of a parameter: then every run is in all of them.
    """

    parameter: str = ""  # "" where columns have measures
    labels: dict[Any, str] = dataclasses.field(default_factory=dict)  # by the parameter's value
    # names of runs that several settings tell apart, "MOON (mu=1)" for method MOON with mu 1, say
    named: dict[str, Parameters] = dataclasses.field(default_factory=dict)
    measures: dict[Any, str] = dataclasses.field(default_factory=dict)  # by the column's name

    def name(self, job: Job) -> str:
        """Name a run's row or column: the first fitting one in `named`, a label, or the value."""
        values = job.settings.flat() | {"notebook": job.notebook}
        for name, settings in self.named.items():
            if settings.items() <= values.items():
                return name
        value = values.get(self.parameter)
        return self.labels.get(value, str(value))


@dataclass(frozen=True, config=_CONFIG)
class Table:
    """A table: what a sweep file says of it, and its runs.

    Columns "domains" are short for those of its data set, their mean, and the lead.
    """

    title: str
    rows: Annotated[Axis, BeforeValidator(_as_axis)]
    columns: Annotated[Axis, BeforeValidator(_as_axis)]
    # how long a run takes, and on what; may be told for each data set
    tier: Annotated[dict[Any, Tier], BeforeValidator(_for_all)] = dataclasses.field(
        default_factory=dict
    )
    printed: str | None = None  # its original, as the papers' numbers in data/ name it
    measure: str = "accuracy"  # of its cells, but for columns that have measures of their own
    baseline: str | None = None  # the row that the measure compares the others with
    best_of: str | None = None  # in each cell the best value of this parameter counts
    # the accuracy in percent that the measure asks for
    target: Annotated[float, Gt(0), Le(100)] | None = None
    parameters: Parameters = dataclasses.field(default_factory=dict)  # of all runs
    grid: Grid = dataclasses.field(default_factory=dict)
    runs: list[Grid] = dataclasses.field(default_factory=list)  # single ones
    # what the file does not say of it
    name: str = ""
    notebook: str = ""
    file: Path = Path()
    jobs: tuple[InstanceOf[Job], ...] = ()

    def measure_of(self, column: str) -> str:
        """Return the name of what the cells of a column hold."""
        return self.columns.measures.get(column, self.measure)

    @property
    def tiers(self) -> list[str]:
        """The tiers of its runs, the quickest first."""
        return sorted({job.tier for job in self.jobs}, key=TIERS.index)


@dataclass(frozen=True, config=_CONFIG)
class _File:
    """The name of a notebook, or its path beside the file, and tables by their names."""

    notebook: str
    tables: Annotated[dict[Any, dict[str, Any]], MinLen(1)]


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML in which 1e-05 is a number, and a key that is given twice an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that is given twice, by a ``yaml.YAMLError``."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError(f"{key!r} is given twice{node.start_mark}")
        return super().construct_mapping(node, deep)


_NUMBER = re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
Loader.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789"))


def read_tables(path: Path | str) -> dict[str, Table]:
    """Read the tables of a sweep file, or of all in a folder, by name.

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


def project_table(name: str) -> Table:
    """Read the table of a paper; of the sweep files only its own is read as a whole.

    A `ReportError` if the project has no such table.
    """
    files: dict[str, Path] = {}
    for file in sorted((papers.folder() / "sweeps").glob("*.yaml")):
        try:
            files |= dict.fromkeys(yaml.load(file.read_bytes(), Loader)["tables"], file)
        except (yaml.YAMLError, TypeError, LookupError) as error:
            raise SweepError(_one_line(file.name, str(error))) from error
    told = "FILE.yaml:TABLE is a table of your own, and the project has no table"
    require_known(told, name, files, ReportError)
    return read_tables(files[name])[name]


def _add_tables(file: Path, tables: dict[str, Table]) -> None:
    """Add the tables of a file to those that were read before it."""
    where = file.name
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), Loader)
        message = "it must name a notebook and have tables: `fednb new NAME` writes an example."
        check(isinstance(content, dict), message, SweepError)
        form = _File(**_require_keys_of(_File, content))
        beside = file.parent / form.notebook  # one of one's own
        is_path = form.notebook.endswith(".ipynb")
        notebook = Notebook(str(beside) if is_path else form.notebook, file.parent)
        for key, entry in form.tables.items():
            where = f"{file.name}, table {shorten(key)}"
            name = str(key)
            check(name not in tables, "there is a table of that name already.", SweepError)
            _require_keys_of(Table, entry)
            table = Table(**entry, name=name, notebook=notebook.name, file=file)
            tables[name] = _with_jobs(table, notebook)
    except ValidationError as error:
        raise SweepError(_one_line(where, _sentence(error))) from error
    except (FednbError, yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        raise SweepError(_one_line(where, str(error))) from error


def _require_keys_of(form: Any, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return values by keys that a form has; a `SweepError` guesses what another may mean."""
    known = [one.name for one in dataclasses.fields(form)]
    for key in values:
        require_known("there is no key", key, known, SweepError)
    return values


def _sentence(error: ValidationError) -> str:
    """What is wrong in a sweep file: of pydantic's errors the first."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"] if part != ALL)[:200]
    if first["type"].startswith("missing"):
        return f"{where} is missing"
    reason = re.sub(r"^.*? should", "it must", first["msg"])
    return f"{where} is {shorten(first['input'])}; {reason}"


def _one_line(where: str, text: str) -> str:
    line = " ".join(text.split())
    end = "" if line.endswith((".", "?")) else "."
    return f"{where}: {line}{end}"


def _with_jobs(table: Table, notebook: Notebook) -> Table:
    """The table with its runs: every combination of its grid, then the single ones."""
    grids = [*([table.grid] if table.grid else []), *table.runs]
    number = sum(math.prod(map(len, grid.values())) for grid in grids)
    message = f"it has {number:,} runs, in grid and runs together; it must have 1 to {MAX_RUNS:,}."
    check(1 <= number <= MAX_RUNS, message, SweepError)
    jobs = []
    for values in itertools.chain.from_iterable(map(_combinations, grids)):
        job = notebook.job(table.parameters | values, table.name)
        dataset = job.settings.dataset
        tier = table.tier.get(dataset) or table.tier.get(ALL)
        if tier is None:
            raise SweepError(
                f"tier says nothing about the data set {dataset!r}, which a run of the table has."
            )
        jobs.append(dataclasses.replace(job, tier=tier))
    rows, columns = _recorded_names(table.rows), _columns(table, jobs)
    table = dataclasses.replace(table, jobs=tuple(jobs), rows=rows, columns=columns)
    _check_names(table)
    return table


def _combinations(grid: Mapping[Any, Sequence[Any]]) -> Iterator[dict[Any, Any]]:
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _recorded_names(axis: Axis) -> Axis:
    """The axis with data sets as records name them: a folder by what is in it."""
    if axis.parameter != "dataset":
        return axis
    labels = {data.canonical_name(name): label for name, label in axis.labels.items()}
    return dataclasses.replace(axis, labels=labels)


def _columns(table: Table, jobs: Sequence[Job]) -> Axis:
    if table.columns.parameter != "domains":
        return _recorded_names(table.columns)
    dataset = jobs[0].settings.dataset
    domains = data.info_of(dataset).domains
    check(domains, f"columns cannot be domains: {dataset} has none.", SweepError)
    measures = {domain: f"accuracy in {domain}" for domain in domains}
    measures["Avg."] = "accuracy"
    if table.baseline is not None:
        measures["Delta"] = "lead"
    return Axis(measures=measures)


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
