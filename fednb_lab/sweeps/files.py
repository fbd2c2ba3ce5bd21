"""Sweep files: tables of a paper in YAML; ``sweep.schema.yaml`` says what one may hold."""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fednb import data
from fednb.errors import NotebookError, SweepError, check, require_known, shorten
from fednb_lab.forms import check_form
from fednb_lab.sweeps.jobs import Notebook, jobs_of_table
from fednb_lab.sweeps.table import Axis, Job, Table

SCHEMA = Path(__file__).with_name("sweep.schema.yaml")


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
        content = yaml.load(file.read_text(encoding="utf-8"), Loader)
        check_form(content, SCHEMA)
        notebook = _notebook_of(file, content["notebook"])
        for key, entry in content["tables"].items():
            where = f"{file.name}, table {shorten(key)}"
            name = str(key)
            check(name not in tables, "there is a table of that name already.")
            tables[name] = _table(file, name, notebook, entry)
    except (SweepError, NotebookError, yaml.YAMLError, ValueError, RecursionError) as error:
        text = " ".join(str(error).split())
        end = "" if text.endswith((".", "?")) else "."
        raise SweepError(f"{where}: {text}{end}") from error


def _notebook_of(file: Path, name: str) -> Notebook:
    """The notebook that a sweep file names; one of one's own may lie next to the file."""
    beside = file.parent / name
    return Notebook(str(beside) if beside.is_file() else name)


def _table(file: Path, name: str, notebook: Notebook, entry: Mapping[str, Any]) -> Table:
    jobs = jobs_of_table(name, notebook, entry)
    table = Table(
        name=name,
        notebook=notebook.name,
        title=entry["title"],
        printed=entry.get("printed"),
        rows=_axis(entry["rows"]),
        columns=_columns(entry, jobs),
        measure=entry.get("measure", "accuracy"),
        jobs=jobs,
        file=file,
        baseline=entry.get("baseline"),
        best_of=entry.get("best_of"),
        target=entry.get("target"),
    )
    _check_names(table)
    return table


def _columns(entry: Mapping[str, Any], jobs: Sequence[Job]) -> Axis:
    """The columns of a table; "domains" is short for its data set's, their mean, the lead."""
    if entry["columns"] != "domains":
        return _axis(entry["columns"])
    dataset = jobs[0].settings.dataset
    domains = data.spec_of(dataset).domains
    check(domains, f"columns cannot be domains: {dataset} has none.", SweepError)
    measures = {domain: f"accuracy in {domain}" for domain in domains}
    measures["Avg."] = "accuracy"
    if "baseline" in entry:
        measures["Delta"] = "lead"
    return Axis(measures=measures)


def _axis(entry: str | Mapping[str, Any]) -> Axis:
    """Rows or columns: the name of a parameter, or the fields of an `Axis`."""
    if isinstance(entry, str):
        return Axis(entry)
    axis = Axis(**entry)
    if axis.parameter != "dataset":
        return axis
    labels = {data.recorded_name(name): label for name, label in axis.labels.items()}
    return Axis(axis.parameter, labels, axis.named)


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
