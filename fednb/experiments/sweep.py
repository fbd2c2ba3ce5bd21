"""Sweeps: a table of a paper as a grid of parameters (``sweep.schema.yaml``); what is not recorded yet is run."""

import dataclasses
import functools
import itertools
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from tqdm import tqdm

from fednb import data, papers
from fednb.errors import NotebookError, SweepError, check, require_known, shorten
from fednb.experiments import execute, ledger, settings
from fednb.experiments.settings import Settings

TIERS = ("minutes-cpu", "minutes-gpu", "hours-gpu")
DEFAULT_PRIORITY = 100
MOST_RUNS = 10_000  # of a table


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

    @functools.cached_property
    def recorded(self) -> tuple[str | None, float, str]:
        """Status, seconds and device by the record that there is when it is first asked for; no status if there is none."""
        record = ledger.read(self.path) if self.path.exists() else {}
        return (
            ledger.state(record) if record else None,
            record.get("wall_seconds", 0.0),
            record.get("device", ""),
        )

    @property
    def status(self) -> str | None:
        """``finished``, ``diverged``, ``failed``, ``stale``, or None if there is no record."""
        return self.recorded[0]


@dataclass(frozen=True)
class Axis:
    """The setting whose values make the rows or columns of a table, and what a value is called there."""

    parameter: str = ""
    labels: dict[Any, str] = field(default_factory=dict)
    named: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # runs that several settings tell apart
    # columns may have measures of their own, by name, instead of a parameter (then ""): every run is in all of them
    measures: dict[str, str] = field(default_factory=dict)

    def name(self, job: Job) -> str:
        """The name of a run's row or column."""
        values = job.settings.flat()
        fitting = (name for name, given in self.named.items() if given.items() <= values.items())
        value = values.get(self.parameter)
        return next(fitting, None) or self.labels.get(value, str(value))


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
    best_of: str | None = (
        None  # the parameter of which the best value is chosen in each cell, as the paper does
    )
    target: float | None = None  # the accuracy in percent that the measure asks for

    def measure_of(self, column: str) -> str:
        """What the cells of a column hold."""
        return self.columns.measures.get(column, self.measure)

    @property
    def tiers(self) -> list[str]:
        """The tiers of its runs, the quickest first."""
        return sorted({job.tier for job in self.jobs}, key=TIERS.index)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """YAML in which 1e-05 is a number, and a key that is given twice an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in {key for key in keys if keys.count(key) > 1}:
            raise yaml.YAMLError(f"{key!r} is given twice{node.start_mark}")
        return super().construct_mapping(node, deep)


_NUMBER = re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789"))


class Notebook:
    """What the runs of a notebook have in common, looked up once."""

    def __init__(self, notebook: str) -> None:
        self.name, self.own, self.methods = (
            papers.name(notebook),
            papers.parameters(notebook),
            papers.outline(notebook),
        )
        told = (
            f"The notebook {self.name} cannot be swept: it must have parameters method and dataset."
        )
        check({"method", "dataset"} <= self.own.keys(), told, SweepError)
        if (
            file := Path(self.name)
        ).suffix:  # its runs stay with it: a record does not say whose code made it
            os.environ["FEDNB_NOTEBOOKS"] = str(file.parent)

    def job(self, parameters: Mapping[Any, Any], table: str = "") -> Job:
        """The run with these parameters, by flat names; an error tells of a name or value that is refused."""
        parameters = {str(name): value for name, value in parameters.items()}
        check(
            "more" not in parameters,
            "more is for notebooks: here every setting has its own name.",
            SweepError,
        )
        if "dataset" in parameters:  # the run's process works in another folder
            parameters["dataset"] = data.whole_name(parameters["dataset"])
        if "more" not in self.own:
            papers.arrange(self.name, parameters)  # names that it does not have are told
        values = self.own | self.own.get("more", {}) | parameters
        values.pop("more", None)
        try:
            chosen = settings.resolve(self.methods, **values)
        except (AttributeError, NameError):  # a method's own checks need more than its outline has
            chosen = settings.resolve(papers.methods(self.name), **values)
        return Job(self.name, table, parameters, chosen, ledger.path(chosen, ledger.runs_folder()))


def methods_of(names: Iterable[str]) -> dict[str, str]:
    """The notebook of each method: of a method's name the first that has it; the path of a notebook stands for its own."""
    known = {
        method: path.stem
        for path in papers.notebooks()[::-1]
        for method in papers.outline(path.stem)
    }
    found: dict[str, str] = {}
    for name in names:
        if not name.endswith(".ipynb"):
            require_known("Neither a method nor the path of a notebook is", name, known, SweepError)
            found[name] = known[name]
        elif own := {
            method: papers.name(name) for method in papers.outline(name) if method not in known
        }:
            found |= own
        else:
            raise SweepError(
                f"{name} has no method that the project does not have: give it a name of its own."
            )
    return found


def read(path: Path | str) -> dict[str, Table]:
    """The tables of a sweep file, or of all in a folder; a `SweepError` names the file and the table that is wrong."""
    path, tables = Path(path), {}
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    check(files, f"There is no sweep file (*.yaml) in {path}.", SweepError)
    for file in files:
        where = file.name
        try:
            content = yaml.load(file.read_text(encoding="utf-8"), _Loader)
            ledger.check_form(content, "sweep")
            beside = (
                file.parent / content["notebook"]
            )  # a notebook of one's own, next to its sweep file
            notebook = Notebook(str(beside) if beside.is_file() else content["notebook"])
            for name, entry in content["tables"].items():
                where = f"{file.name}, table {shorten(name)}"
                check(str(name) not in tables, "there is a table of that name already.")
                tables[str(name)] = _table(file, str(name), notebook, entry)
        except (SweepError, NotebookError, yaml.YAMLError, ValueError, RecursionError) as error:
            raise SweepError(f"{where}: {' '.join(str(error).split())}") from error
    return tables


def _table(file: Path, name: str, notebook: Notebook, entry: dict[str, Any]) -> Table:
    jobs = _jobs(name, notebook, entry)
    rows, columns = (_axis(entry[what], jobs, "baseline" in entry) for what in ("rows", "columns"))
    known = dict.fromkeys(itertools.chain(*(job.settings.flat() for job in jobs)))
    if "best_of" in entry:
        require_known("its runs have no parameter", entry["best_of"], known)
    for axis in (rows,) if columns.measures else (rows, columns):
        names = dict.fromkeys(map(axis.name, jobs))
        for parameter in (axis.parameter, *itertools.chain(*axis.named.values())):
            require_known("its runs have no parameter", parameter, known)
        for label in (*axis.labels.values(), *axis.named):
            require_known("its runs make no row or column", label, names)
    if "baseline" in entry:
        require_known(
            "its runs make no row", entry["baseline"], dict.fromkeys(map(rows.name, jobs))
        )
    told = {key: entry.get(key) for key in ("title", "printed", "baseline", "best_of", "target")}
    told |= {"measure": entry.get("measure", "accuracy"), "rows": rows, "columns": columns}
    return Table(name=name, notebook=notebook.name, jobs=jobs, file=file, **told)


def _jobs(table: str, notebook: Notebook, entry: dict[str, Any]) -> tuple[Job, ...]:
    grids = [entry["grid"]] if entry.get("grid") else []
    grids += [
        {k: v if isinstance(v, list) else [v] for k, v in run.items()}
        for run in entry.get("runs", ())
    ]
    number = sum(math.prod(map(len, grid.values())) for grid in grids)
    check(
        1 <= number <= MOST_RUNS,
        f"it has {number:,} runs, in grid and runs together; it must have 1 to {MOST_RUNS:,}.",
    )
    jobs = []
    for own in (
        dict(zip(grid, values, strict=True))
        for grid in grids
        for values in itertools.product(*grid.values())
    ):
        job = notebook.job(entry.get("parameters", {}) | own, table)
        tier, priority = (  # the table's, or that of each data set
            said.get(job.settings.dataset, usual) if isinstance(said, dict) else said
            for said, usual in (
                (entry["tier"], None),
                (entry.get("priority", DEFAULT_PRIORITY), DEFAULT_PRIORITY),
            )
        )
        check(
            tier,
            f"tier says nothing about the data set {job.settings.dataset!r}, which a run of the table has.",
        )
        jobs.append(dataclasses.replace(job, tier=tier, priority=priority))
    return tuple(jobs)


def _axis(entry: Any, jobs: Sequence[Job], baseline: bool) -> Axis:
    if entry == "domains":
        domains = data.spec_of(jobs[0].settings.dataset).domains
        measures = {domain: f"accuracy in {domain}" for domain in domains} | {"Avg.": "accuracy"}
        entry = {"measures": measures | ({"Delta": "lead"} if baseline else {})}
    if isinstance(entry, dict) and entry.get("parameter") == "dataset":
        entry = entry | {
            "labels": {
                data.recorded_name(name): label for name, label in entry.get("labels", {}).items()
            }
        }
    return Axis(entry) if isinstance(entry, str) else Axis(**entry)


def choose(jobs: Iterable[Job], only: Iterable[tuple[str, Any]]) -> list[Job]:
    """The runs with these settings, table and tier (any of several values); a `SettingsError` if no run has one."""
    flat = [(job, job.settings.flat() | {"table": job.table, "tier": job.tier}) for job in jobs]
    wanted: dict[str, list[Any]] = {}
    for name, value in only:
        value = data.recorded_name(value) if name == "dataset" else value
        require_known(
            "the runs have no parameter",
            name,
            dict.fromkeys(itertools.chain(*(own for _, own in flat))),
        )
        require_known(
            f"No run has {name}", value, dict.fromkeys(own[name] for _, own in flat if name in own)
        )
        wanted.setdefault(name, []).append(value)
    return [
        job
        for job, own in flat
        if all(name in own and own[name] in values for name, values in wanted.items())
    ]


def plan(jobs: Iterable[Job]) -> tuple[list[Job], list[Job]]:
    """The runs, each once, by best priority, then as in the files: recorded ones (diverged too), and those to do."""
    found: dict[Path, Job] = {}
    for job in sorted(jobs, key=lambda job: job.priority):
        found.setdefault(job.path, job)
    recorded, todo = [], []
    for job in found.values():
        (recorded if job.status in ledger.RESULTS else todo).append(job)
    return recorded, todo


def took(jobs: Iterable[Job]) -> str:
    """How long a run took by the records, the median, and on which device; empty if there are none."""
    known: dict[str, list[float]] = {}
    for status, seconds, device in (job.recorded for job in jobs):
        if status == "finished":
            known.setdefault(device, []).append(seconds)
    return ", ".join(
        f"{tqdm.format_interval(median(times))} on {device}" for device, times in known.items()
    )


def prepare(todo: Sequence[Job]) -> str:
    """Check what runs need besides good settings, so that none starts in vain; returns the device that there is for them."""
    from fednb.experiments import build  # slow to import: PyTorch

    for notebook in {job.notebook for job in todo}:
        cells = papers.cells(papers.path(notebook), "code", "run")
        check(cells, f"The notebook {notebook} has no code cell tagged 'run'.", SweepError)
        papers.methods(notebook)  # its cells may fail
    device = build.find_device()
    build.num_workers(device)
    for dataset in {job.settings.dataset for job in todo}:
        build.load_dataset(dataset)
    ledger.make_folders(ledger.runs_folder())
    return device


def run(
    todo: Sequence[Job], *, jobs: int = 1, scheduler: str | None = None
) -> list[tuple[Job, str | None]]:
    """Make runs in their order, ``jobs`` at once, each with a GPU, or on a dask cluster; and what went wrong with each."""
    together, groups = prepare(todo) != "cpu" and scheduler is None, {}
    for job in todo:
        alike = ledger.key(job.settings.flat() | {"seed": None}) if together else job.path
        groups.setdefault((job.notebook, alike), []).append(job)
    with execute.cluster(scheduler) if scheduler else execute.threads(jobs) as submit:
        return execute.follow(groups.values(), submit)


def new(name: str, folder: Path) -> list[Path]:
    """Write ``NAME.ipynb`` and ``NAME.yaml``, which run as they are. A `NotebookError` if the name is none, or taken."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise NotebookError(
            f"{name[:80]!r} is no name for a method: take small letters, digits and _, such as my_method."
        )
    templates = Path(__file__).with_name("templates")
    made = {
        folder / f"{name}{template.suffix}": template
        for template in sorted(templates.glob("my_method.*"))
    }
    taken = [path for path in made if path.exists()] + [
        path for path in papers.notebooks() if path.stem.endswith(name)
    ]
    if taken:
        raise NotebookError(f"There is a {taken[0].name} already: take another name.")
    title = "".join(part.capitalize() for part in name.split("_"))
    for path, template in made.items():
        text = (
            template.read_text(encoding="utf-8")
            .replace("my_method", name)
            .replace("MyMethod", title)
        )
        ledger.write_atomically(path, text)
    return list(made)
