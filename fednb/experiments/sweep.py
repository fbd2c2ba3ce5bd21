"""Sweeps: a table of a paper as a grid of notebook parameters; what is not recorded yet is run, several runs at once.

A sweep file names a notebook and its tables. A run is one papermill execution of the notebook's cells that are tagged
``setup``, ``parameters``, ``export`` or ``run``, in a process of its own; its result is the record that the run cell writes.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import dataclasses
import functools
import itertools
import json
import math
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml
from tqdm import tqdm

from fednb import ROOT, data, papers
from fednb.data import DataError
from fednb.experiments import ledger, settings
from fednb.experiments.durations import Forecast
from fednb.experiments.settings import Settings, SettingsError

if TYPE_CHECKING:
    from nbformat import NotebookNode

TAGS = ("setup", "parameters", "export", "run")
TIERS = ("minutes-cpu", "minutes-gpu", "hours-gpu")
DEFAULT_PRIORITY = 100
STOPPED = "it was ended before it was done."  # what `execute` says of a run that it has ended itself
NO_BUDGET = "A budget is for runs on this machine, not on a cluster: leave out the budget or the scheduler."
_REQUIRED = ("title", "rows", "columns", "tier")
_OPTIONAL = ("printed", "measure", "baseline", "target", "best_of", "parameters", "grid", "runs", "priority")


class SweepError(Exception):
    """A sweep file, notebook or parameter that cannot be used; the message says which, and why."""


@dataclass(frozen=True)
class Job:
    """One run of a table.

    Attributes
    ----------
    notebook
        The notebook's name without ``.ipynb``.
    parameters
        What differs from the notebook's own parameters.
    path
        Of the run's record, whether it exists or not.
    tier
        One of `TIERS`: how long it takes, and on what.
    priority
        From 1, which is made first.
    """

    notebook: str
    table: str
    parameters: dict[str, Any]
    settings: Settings
    path: Path
    tier: str = TIERS[0]
    priority: int = DEFAULT_PRIORITY

    @property
    def status(self) -> str | None:
        """``finished``, ``diverged``, ``failed``, or None if there is no record."""
        return ledger.read(self.path)["status"] if self.path.exists() else None

    @property
    def recorded(self) -> bool:
        """Whether the run need not be made; one that diverged is a result, one that failed is not."""
        return self.status in ("finished", "diverged")


@dataclass(frozen=True)
class Axis:
    """The parameter whose values make the rows or columns of a table, and what a value is called there.

    ``named`` are names for runs that several settings tell apart: ``"MOON (mu=1)"`` for method MOON with mu 1, say. The
    first that fits a run goes before its value's label.

    Columns may have ``measures`` of their own, by name, instead of a parameter (which is then empty): every run is in all
    of them.
    """

    parameter: str
    labels: dict[Any, str]
    named: dict[str, dict[str, Any]] = field(default_factory=dict)
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
        for name, given in self.named.items():
            if all(values.get(key) == value for key, value in given.items()):
                return name
        return self.label(self.value(job))

    def names(self, job: Job) -> list[str]:
        """The rows or columns that a run is in: all of those with a measure, else one."""
        return list(self.measures) or [self.name(job)]


@dataclass(frozen=True)
class Table:
    """A table of a sweep file.

    Attributes
    ----------
    printed
        Its original, as named in ``data/reported.csv``.
    measure
        What its cells hold, but for columns that have measures of their own.
    baseline
        The row that the measure compares the others with.
    target
        The accuracy in percent that the measure asks for.
    best_of
        The parameter of which the best value is chosen in each cell, as the paper does.
    """

    name: str
    notebook: str
    title: str
    printed: str | None
    rows: Axis
    columns: Axis
    measure: str
    jobs: tuple[Job, ...]
    file: Path
    baseline: str | None = None
    best_of: str | None = None
    target: float | None = None

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
        return sorted({job.tier for job in self.jobs}, key=lambda tier: (*TIERS, tier).index(tier))


@dataclass
class Summary:
    """What a sweep did: runs that were recorded before, runs that ended, and with the reason those that did not.

    With a budget there are also runs that were stopped at its end, runs that were not expected to end within it, with the
    seconds that they need, and runs without data.
    """

    recorded: list[Job] = field(default_factory=list)
    done: list[Job] = field(default_factory=list)
    failed: list[tuple[Job, str]] = field(default_factory=list)
    stopped: list[Job] = field(default_factory=list)
    unfit: list[tuple[Job, float]] = field(default_factory=list)
    without_data: list[Job] = field(default_factory=list)

    def add(self, job: Job, error: str | None) -> None:
        """Note a run that has ended, as `execute` says how."""
        if error is None:
            self.done.append(job)
        elif error == STOPPED:
            self.stopped.append(job)
        else:
            self.failed.append((job, error))

    @property
    def diverged(self) -> list[Job]:
        return [job for job in self.recorded + self.done if job.status == "diverged"]


# --- sweep files ------------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """YAML in which 1e-05 is a number and a key that is given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


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
        for table in _read_file(file):
            if table.name in tables:
                raise SweepError(f"{file.name}: there is a table {table.name!r} in {tables[table.name].file.name} already.")
            tables[table.name] = table
    return tables


def _read_file(file: Path) -> list[Table]:
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise SweepError(f"{file} cannot be read ({error.strerror}).") from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise SweepError(f"{file} is not valid YAML: {' '.join(str(error).split())}.") from error
    where = file.name
    _check_keys(where, content, ("notebook", "tables"))
    if not isinstance(content["tables"], dict) or not content["tables"]:
        raise SweepError(f"{where}: tables must map names to tables.")
    tables = []
    for name, entry in content["tables"].items():
        where = f"{file.name}, table {name}"
        try:
            tables.append(_read_table(file, where, str(name), str(content["notebook"]), entry))
        except SweepError as error:
            raise error if str(error).startswith(where) else SweepError(f"{where}: {error}") from error
        except (SettingsError, papers.NotebookError) as error:
            raise SweepError(f"{where}: {error}") from error
    return tables


def _read_table(file: Path, where: str, name: str, notebook: str, entry: Any) -> Table:
    _check_keys(where, entry, _REQUIRED, _OPTIONAL)
    entry = {key: value for key, value in entry.items() if value is not None}
    fixed, grid, single = entry.get("parameters", {}), entry.get("grid", {}), entry.get("runs", [])
    if not isinstance(fixed, dict):
        raise SweepError("parameters must map names to values.")
    if not isinstance(grid, dict) or not all(isinstance(values, list) and values for values in grid.values()):
        raise SweepError("grid must map names to lists of values.")
    if not isinstance(single, list) or not all(isinstance(run, dict) for run in single):
        raise SweepError("runs must be a list of parameter mappings.")
    if any(value == [] for run in single for value in run.values()):
        raise SweepError("a list of values in runs is empty.")
    if not grid and not single:
        raise SweepError("it has neither a grid nor runs.")
    grids = [grid] if grid else []
    grids += [{key: value if isinstance(value, list) else [value] for key, value in run.items()} for run in single]
    product = [dict(zip(g, values, strict=True)) for g in grids for values in itertools.product(*g.values())]
    jobs = _with_tiers(entry["tier"], [job(notebook, fixed | chosen, name) for chosen in product])
    jobs = _with_priorities(entry.get("priority", DEFAULT_PRIORITY), jobs)
    printed = entry.get("printed")
    if printed is not None and printed not in _printed_tables():
        raise SweepError(f"data/reported.csv has no table {printed!r}.")
    rows = _axis("rows", entry["rows"], jobs)
    columns = _columns(entry["columns"], jobs, with_baseline="baseline" in entry)
    for key in ("measure", "best_of") if columns.measures else ():
        if key in entry:
            raise SweepError(f"its columns have measures of their own, and a run fills a row of them: leave out {key}.")
    if (best_of := entry.get("best_of")) is not None:
        _check_name(best_of, defaults(jobs[0].notebook), f"the notebook {jobs[0].notebook}")
    return Table(
        name=name,
        notebook=jobs[0].notebook,
        title=str(entry["title"]),
        printed=printed,
        rows=rows,
        columns=columns,
        measure=str(entry.get("measure", "accuracy")),
        jobs=jobs,
        file=file,
        baseline=_baseline(entry.get("baseline"), rows, columns, jobs),
        best_of=best_of,
        target=_target(entry.get("target")),
    )


def _target(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 100:
        raise SweepError(f"target is {value!r}; it must be an accuracy in percent, above 0 and at most 100.")
    return float(value)


def _with_tiers(entry: Any, jobs: list[Job]) -> tuple[Job, ...]:
    """Give each run its tier: the table's, or that of its data set."""
    tiers = entry if isinstance(entry, dict) else dict.fromkeys((job.settings.dataset for job in jobs), entry)
    for tier in tiers.values():
        if tier not in TIERS:
            raise SweepError(f"tier is {tier!r}; it must be one of {', '.join(TIERS)}.")
    for job in jobs:
        if job.settings.dataset not in tiers:
            raise SweepError(f"tier says nothing about the data set {job.settings.dataset!r}, which a run of the table has.")
    return tuple(dataclasses.replace(job, tier=tiers[job.settings.dataset]) for job in jobs)


def _with_priorities(entry: Any, jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """Give each run its priority: the table's, or that of its data set; of those not named, the usual one."""
    datasets = list(dict.fromkeys(job.settings.dataset for job in jobs))
    priorities = entry if isinstance(entry, dict) else dict.fromkeys(datasets, entry)
    for dataset, priority in priorities.items():
        if isinstance(priority, bool) or not isinstance(priority, int) or priority < 1:
            raise SweepError(f"priority is {priority!r}; it must be a whole number from 1, which is made first.")
        if dataset not in datasets:
            raise SweepError(f"priority names the data set {dataset!r}, which no run of the table has.")
    return tuple(dataclasses.replace(job, priority=priorities.get(job.settings.dataset, DEFAULT_PRIORITY)) for job in jobs)


def _baseline(row: Any, rows: Axis, columns: Axis, jobs: tuple[Job, ...]) -> str | None:
    """Check that every run has a run of the baseline's row with its column and seed."""
    if row is None:
        return None
    names = dict.fromkeys(rows.name(job) for job in jobs)
    if row not in names:
        raise SweepError(f"the baseline must be a row; there is no row {row!r}: {settings.known(row, names)}")
    have = {(name, job.settings.seed) for job in jobs if rows.name(job) == row for name in columns.names(job)}
    for name, seed in ((name, job.settings.seed) for job in jobs for name in columns.names(job)):
        if (name, seed) not in have:
            raise SweepError(f"the baseline {row!r} has no run in column {name!r} with seed {seed}, as others have.")
    return row


def _columns(entry: Any, jobs: tuple[Job, ...], with_baseline: bool) -> Axis:
    """Columns by a parameter or, given as ``{measures: {NAME: MEASURE}}``, by measures.

    ``domains`` is short for the domains of the runs' data set, their mean, and by how much that leads the baseline's.
    """
    if entry == "domains":
        measures = {domain: f"accuracy in {domain}" for domain in _domains(jobs)} | {"Avg.": "accuracy"}
        entry = {"measures": measures | ({"Delta": "lead"} if with_baseline else {})}
    if not isinstance(entry, dict) or "measures" not in entry:
        return _axis("columns", entry, jobs)
    _check_keys("columns", entry, ("measures",))
    measures = entry["measures"]
    if not isinstance(measures, dict) or not measures or not all(isinstance(m, str) for m in measures.values()):
        raise SweepError("measures in columns must map names of columns to measures.")
    return Axis("", {}, measures={str(name): measure for name, measure in measures.items()})


def _domains(jobs: tuple[Job, ...]) -> tuple[str, ...]:
    """The domains that all runs have."""
    names = list(dict.fromkeys(job.settings.dataset for job in jobs))
    if len(names) > 1:
        raise SweepError(
            f"columns: domains are those of one data set, but its runs have {', '.join(names)}: divide the table."
        )
    if not (domains := data.domain_names(names[0])):
        raise SweepError(f"columns: domains needs a data set of several domains, and {names[0]} is none.")
    return domains


def _axis(what: str, entry: Any, jobs: tuple[Job, ...]) -> Axis:
    if isinstance(entry, str):
        entry = {"parameter": entry}
    _check_keys(what, entry, ("parameter",), ("labels", "named"))
    parameter, labels, named = entry["parameter"], entry.get("labels") or {}, entry.get("named") or {}
    known = defaults(jobs[0].notebook)
    _check_name(parameter, known, f"the notebook {jobs[0].notebook}")
    if not isinstance(labels, dict):
        raise SweepError(f"the labels of {what} must map values to names.")
    if not isinstance(named, dict) or not all(isinstance(given, dict) and given for given in named.values()):
        raise SweepError(f"named in {what} must map names to parameters and their values.")
    values = [job.settings.flat().get(parameter) for job in jobs]
    if unused := [value for value in labels if value not in values]:
        raise SweepError(f"{what} has a label for {parameter} {unused[0]!r}, which no run of the table has.")
    for parameter_of_named in {name: None for given in named.values() for name in given}:
        _check_name(parameter_of_named, known, f"the notebook {jobs[0].notebook}")
    axis = Axis(parameter, {value: str(label) for value, label in labels.items()}, {str(n): g for n, g in named.items()})
    for name in axis.named:
        if name not in {axis.name(job) for job in jobs}:
            raise SweepError(f"{what} names {name!r}, which no run of the table is.")
    return axis


def _check_keys(where: str, entry: Any, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
    if not isinstance(entry, dict):
        raise SweepError(f"{where}: there must be a mapping with {', '.join(required)}.")
    for key in required:
        if entry.get(key) is None:
            raise SweepError(f"{where}: {key} is missing.")
    for key in entry:
        _check_name(key, required + optional, where, "key")


def _check_name(name: Any, known: Iterable[str], owner: str, what: str = "parameter") -> None:
    if name not in known:
        raise SweepError(f"{owner} has no {what} {name!r}: {settings.known(name, known)}")


@functools.cache
def _printed_tables() -> frozenset[str]:
    with (ROOT / "data" / "reported.csv").open(encoding="utf-8", newline="") as file:
        return frozenset(f"{line['paper']} {line['table']}" for line in csv.DictReader(file) if line["table"])


# --- notebooks --------------------------------------------------------------------------------------------------------


def defaults(notebook: str) -> dict[str, Any]:
    """The names and values in the notebook's cell that is tagged ``parameters``, read without executing it."""
    path = papers.path(notebook)
    return dict(_defaults(notebook, str(path), path.stat().st_mtime_ns))


@functools.lru_cache  # a table asks once per run
def _defaults(notebook: str, path: str, time_ns: int) -> dict[str, Any]:
    cells = papers.cells(Path(path), "code", "parameters")
    if len(cells) != 1:
        raise SweepError(f"The notebook {notebook} has {len(cells)} code cells tagged 'parameters'; it must have one.")
    values = {}
    try:
        for node in ast.parse(cells[0]).body:
            targets = (
                node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
            )
            if len(targets) != 1 or not isinstance(targets[0], ast.Name):
                raise ValueError(f"line {node.lineno} is not of the form name = value")
            values[targets[0].id] = ast.literal_eval(node.value)
    except (SyntaxError, TypeError, ValueError) as error:
        raise SweepError(f"The parameters cell of the notebook {notebook} cannot be read: {error}.") from error
    return values


def resolve(notebook: str, parameters: Mapping[str, Any]) -> Settings:
    """The settings of a run of a notebook with these parameters.

    Raises
    ------
    SweepError
        For a name that the notebook's parameters cell does not have, or a value that is not a scalar.
    SettingsError
        For a value that the settings refuse.
    """
    values, where = defaults(notebook), f"the notebook {papers.path(notebook).stem}"
    for name, value in parameters.items():
        _check_name(name, values, where)
        if not isinstance(value, str | int | float | None):
            raise SweepError(f"{name} is {value!r}; it must be a number, a string, true, false or null.")
    methods = getattr(papers.load(notebook), "METHODS", None)
    if methods is None or not {"method", "dataset"} <= values.keys():
        raise SweepError(
            f"The notebook {notebook} cannot be swept: it must export METHODS and have parameters method and dataset."
        )
    return settings.resolve(methods, **values | dict(parameters))


def reduced(notebook: str, parameters: Mapping[str, Any] | None = None) -> NotebookNode:
    """What a sweep executes of a notebook: its code cells tagged setup, parameters, export or run, without outputs.

    With ``parameters``, their values are put in as papermill does.
    """
    import nbformat  # slow to import

    path = papers.path(notebook)
    try:
        nb = nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat lets many kinds through
        raise SweepError(f"{path} cannot be read as a notebook: {error}") from error
    nb.cells = [cell for cell in nb.cells if cell.cell_type == "code" and set(TAGS) & set(cell.metadata.get("tags", []))]
    if not any("run" in cell.metadata["tags"] for cell in nb.cells):
        raise SweepError(f"The notebook {notebook} has no code cell tagged 'run'.")
    for cell in nb.cells:
        cell.outputs, cell.execution_count = [], None
        # of a course's hand-out too: there a tag leaves out what its checks do not need, the run among it
        cell.metadata["tags"] = [tag for tag in cell.metadata["tags"] if tag != "skip-execution"]
    if parameters:
        import papermill  # slow to import

        nb = papermill.execute_notebook(
            nb, None, dict(parameters), kernel_name="python3", language="python", prepare_only=True
        )
    return nb


def job(notebook: str, parameters: Mapping[str, Any], table: str = "") -> Job:
    """A run of a notebook, checked."""
    chosen = resolve(notebook, parameters)
    return Job(papers.path(notebook).stem, table, dict(parameters), chosen, _record_path(chosen))


@functools.cache
def _fingerprint(dataset: str, root: str | None) -> str | DataError:
    try:
        return data.load(dataset).fingerprint  # the images are not kept
    except DataError as error:
        return error


def forget_data() -> None:
    """Look at the data anew; a data set that was missing may have been put there."""
    _fingerprint.cache_clear()


def _find_data(dataset: str) -> str | DataError:
    return _fingerprint(dataset, os.environ.get("FEDNB_DATA"))


def lacks_data(job: Job) -> bool:
    """Whether a run's data set is not here."""
    return isinstance(_find_data(job.settings.dataset), DataError)


def _record_path(chosen: Settings) -> Path:
    return ledger.path(chosen)


# --- running ----------------------------------------------------------------------------------------------------------

# The process of a run. It needs nothing of this package, so that torch is imported once, in the kernel. Its standard input
# stays open as long as the sweep lives: however the sweep ends, the run and its kernel end too.
_CHILD = """
import json, os, sys, threading, traceback
sys.modules["rfc3987_syntax"] = None  # jsonschema's check of IRIs: notebooks have none, and its import takes a second
import nbformat, papermill, psutil
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from traitlets import default

class Kernel(AsyncKernelManager):
    @default("kernel_spec_manager")
    def _native(self):
        return KernelSpecManager(kernel_dirs=[])  # this interpreter, whatever kernel the user has called python3

def end_with_the_sweep():
    os.read(0, 1)  # not sys.stdin.read(), whose lock would be in the way at exit
    for process in psutil.Process().children(recursive=True):
        process.kill()
    os._exit(1)

job = json.loads(sys.stdin.readline())
threading.Thread(target=end_with_the_sweep, daemon=True).start()
try:
    papermill.execute_notebook(
        nbformat.from_dict(job["notebook"]), job["output"], job["parameters"], kernel_name="python3", language="python",
        cwd=job["folder"], progress_bar=False, stdout_file=sys.stdout, stderr_file=sys.stdout, kernel_manager_class=Kernel,
        shutdown_kernel="immediate",
    )
except papermill.PapermillExecutionError as error:
    print(error)
    sys.exit(" ".join(f"{error.ename}: {error.evalue}".split()))
except Exception as error:
    traceback.print_exc()
    sys.exit(" ".join(f"{type(error).__name__}: {error}".split()))
"""


def logs_folder() -> Path:
    """Where the output notebook and the log of each run go."""
    return ledger.runs_folder().absolute().parent / "logs"


def log_path(job: Job) -> Path:
    """The log of a run."""
    return logs_folder() / f"{job.path.stem}.log"


def environment(slot: int = 0, jobs: int = 1, cores: int | None = None) -> dict[str, str]:
    """The environment of a run in one of ``jobs`` slots: its share of the cores, its GPU, and this very package."""
    env = dict(os.environ)
    for name in ("FEDNB_DATA", "FEDNB_CACHE", "FEDNB_NOTEBOOKS"):  # a notebook is run in its own folder
        if env.get(name):
            env[name] = str(Path(env[name]).expanduser().absolute())
    env["FEDNB_RUNS"] = str(ledger.runs_folder().expanduser().absolute())
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
    env["FEDNB_PROGRESS"] = "log"
    count = torch.cuda.device_count()
    if not count:  # a GPU's streams are another matter than cores
        env.setdefault("FEDNB_WORKERS", str(max(1, (cores or os.cpu_count() or 1) // jobs)))
    else:
        listed = [name.strip() for name in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
        devices = listed[:count] or [str(i) for i in range(count)]
        env["CUDA_VISIBLE_DEVICES"] = devices[slot % len(devices)]
    return env


def execute(
    job: Job,
    logs: Path,
    env: Mapping[str, str],
    *,
    stop: Callable[[], bool] | None = None,
    echo: Callable[[str], None] | None = None,
    append: bool = False,
) -> str | None:
    """Make one run in a process of its own.

    Parameters
    ----------
    logs
        Folder for the executed notebook and the log.
    env
        The process's environment.
    stop
        Asked five times a second; the run is ended when it says yes.
    echo
        Called with each line of the log as it is written.
    append
        Keep what an earlier try has logged.

    Returns
    -------
    str or None
        None if the run is recorded; `STOPPED` if it was ended because ``stop`` said so; else what went wrong, in one line.
    """
    log = logs / f"{job.path.stem}.log"
    order = {
        "notebook": reduced(job.notebook),
        "parameters": job.parameters,
        "output": str(log.with_suffix(".ipynb").absolute()),
        "folder": str(papers.path(job.notebook).absolute().parent),
    }
    with log.open("ab" if append else "wb") as out, log.open(encoding="utf-8", errors="replace") as lines:
        lines.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,  # Ctrl-C in a terminal is for the sweep, which ends its runs itself
        )
        try:
            with contextlib.suppress(BrokenPipeError):  # it ended at once: the log says why
                process.stdin.write(f"{json.dumps(order)}\n".encode())
                process.stdin.flush()
            running = True
            while running and not (stop and stop()):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=0.2)
                    running = False
                for line in lines if echo else ():
                    echo(line.rstrip("\n"))
        finally:
            _end(process)
    if running:
        return None if job.recorded else STOPPED
    if process.returncode == 0:
        return None if job.recorded else f"the notebook {job.notebook} ended without the record {job.path.name}."
    last = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return last[-1].strip() if last else f"its process ended with status {process.returncode}."


def execute_again(job: Job, env: Mapping[str, str], *, attempts: int, stop: Callable[[], bool]) -> str | None:
    """Try a run until it is recorded, ``attempts`` times at most; returns the last error, as `execute` does."""
    error = None
    for attempt in range(attempts):
        error = execute(job, logs_folder(), env, stop=stop, append=attempt > 0)
        if error is None or stop():
            break
    return error


def _end(process: subprocess.Popen) -> None:
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


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
    tables, wanted = list(tables), list(tiers)
    jobs = [job for table in tables for job in table.jobs]
    for tier in wanted:
        if tier not in TIERS:
            raise SweepError(f"There is no tier {tier!r}: {settings.known(tier, TIERS)}")
    values: dict[str, list[Any]] = {}
    for name, value in only:
        found = list(dict.fromkeys(job.settings.flat()[name] for job in jobs if name in job.settings.flat()))
        if not found:
            names = dict.fromkeys(name for job in jobs for name in job.settings.flat())
            raise SweepError(f"No run has a parameter {name!r}: {settings.known(name, names)}")
        if value not in found:
            raise SweepError(f"No run has {name} {value!r}; the runs have {', '.join(map(str, found))}.")
        values.setdefault(name, []).append(value)

    def fits(job: Job) -> bool:
        own = job.settings.flat()
        return (not wanted or job.tier in wanted) and all(n in own and own[n] in allowed for n, allowed in values.items())

    left = [dataclasses.replace(table, jobs=tuple(filter(fits, table.jobs))) for table in tables]
    return [table for table in left if table.jobs]


def plan(tables: Iterable[Table]) -> tuple[list[Job], list[Job]]:
    """The runs of the tables, each once: those that are recorded, and those to do, in the order in which they are made.

    That is by priority, of which a run in several tables has the best, then as in the files.
    """
    recorded, todo = [], []
    for one in unique(tables):
        (recorded if one.recorded else todo).append(one)
    return recorded, todo


def unique(tables: Iterable[Table]) -> list[Job]:
    """The runs of the tables, each once, by priority and then as in the files."""
    found: dict[Path, Job] = {}
    for one in sorted((job for table in tables for job in table.jobs), key=lambda job: job.priority):
        found.setdefault(one.path, one)
    return list(found.values())


def prepare(todo: Iterable[Job]) -> None:
    """Check what runs need besides good settings, so that nothing starts in vain: data, notebooks, a place for the logs."""
    for chosen in {job.settings.dataset: job.settings for job in todo}.values():
        if isinstance(found := _find_data(chosen.dataset), DataError):
            raise found
    for notebook in {job.notebook for job in todo}:
        reduced(notebook)
    try:
        logs_folder().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SweepError(f"Logs cannot be written in {logs_folder()} ({error.strerror}).") from error


def run(
    tables: Iterable[Table],
    *,
    jobs: int = 1,
    attempts: int = 2,
    scheduler: str | None = None,
    budget: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Summary:
    """Make the runs that are not recorded, in the order of `plan`.

    Parameters
    ----------
    jobs
        How many at once. With GPUs, each takes its turn.
    attempts
        How often a run that fails is tried. The other runs go on in any case.
    scheduler
        Address of a dask scheduler, whose workers make the runs, one per thread; ``jobs`` is then of no account.
    budget
        Seconds after which nothing is made any more; not with a scheduler. A run is started only if it is expected to end
        within what is left of them (`fednb.durations`); where one is not, later ones that are go first. What still runs at
        the end is stopped, and goes on from its checkpoint at the next call. Runs without data are left out.
    clock
        Seconds since whenever.

    Returns
    -------
    Summary
        Runs that failed are in it with the reason; they are not raised.
    """
    if budget is not None and scheduler is not None:
        raise SweepError(NO_BUDGET)
    end = math.inf if budget is None else clock() + budget
    recorded, todo = plan(tables)
    summary = Summary(recorded)
    if budget is not None:
        summary.without_data = [job for job in todo if lacks_data(job)]
        todo = [job for job in todo if not lacks_data(job)]
    prepare(todo or summary.without_data)
    if scheduler is not None:
        if todo:
            from fednb.experiments import cluster

            cluster.run(todo, summary, scheduler, attempts=attempts)
        return summary
    forecast = Forecast(jobs) if budget is not None and todo else None
    ended, slots, running, waiting = threading.Event(), queue.SimpleQueue(), {}, list(todo)
    for slot in range(jobs):
        slots.put(slot)

    def stop() -> bool:
        return ended.is_set() or clock() >= end

    def one(job: Job) -> str | None:
        slot = slots.get()
        try:
            return execute_again(job, environment(slot, jobs), attempts=attempts, stop=stop)
        finally:
            slots.put(slot)

    def start() -> None:
        while len(running) < jobs and (job := next(filter(fits, waiting), None)) is not None:
            waiting.remove(job)
            running[pool.submit(one, job)] = job

    def fits(job: Job) -> bool:
        return forecast is None or forecast(job).seconds <= end - clock()

    def collect(job: Job, future: Future[str | None]) -> str | None:
        error = future.result()
        if error is None and forecast is not None:
            forecast.learn(job)
        return error

    pool = ThreadPoolExecutor(jobs)
    try:
        start()
        follow(running, summary, collect, start, total=len(todo), seconds=end - clock())
    except BaseException:  # Ctrl-C above all
        ended.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    summary.unfit = [(job, forecast(job).seconds) for job in waiting]
    return summary


def follow(
    futures: dict[Future[Any], Job],
    summary: Summary,
    collect: Callable[[Job, Future[Any]], str | None] = lambda job, future: future.result(),
    watch: Callable[[], None] = lambda: None,
    *,
    total: int | None = None,
    seconds: float = math.inf,
) -> None:
    """Fill the summary as runs end: a live line in a terminal, else a line per run.

    Parameters
    ----------
    futures
        Emptied as they end.
    collect
        Says of a future that has ended what went wrong, or None if the run is recorded.
    watch
        Called every second, and after a run has ended; may add futures.
    total
        How many there will be, if more than there are.
    seconds
        After which all will have ended.
    """
    begin, live, total, count = time.monotonic(), sys.stderr.isatty(), total or len(futures), 0
    # smoothing 0: the time left from all finished runs, as short and long ones alternate
    with tqdm(total=total, unit="run", smoothing=0, disable=not live, dynamic_ncols=True) as bar:
        while futures:
            ended = wait(list(futures), timeout=1, return_when=FIRST_COMPLETED).done
            while ended:
                future = ended.pop()
                job = futures.pop(future)
                error = collect(job, future)
                del future  # whoever still holds a dask future wants its run made again if that worker dies
                summary.add(job, error)
                count += 1
                bar.update()
                bar.set_postfix(failed=len(summary.failed), refresh=False)
                if not live:
                    spent = time.monotonic() - begin
                    left = min(spent / count * (total - count), seconds - spent)
                    text = job.status if error is None else "stopped" if error == STOPPED else f"failed: {error}"
                    rest = f"; about {tqdm.format_interval(left)} left" if left > 0 else ""
                    print(f"{count}/{total}  {job.path.stem}  {text}{rest}", file=sys.stderr, flush=True)
            bar.refresh()
            watch()
