"""Runs that a sweep or a comparison asks for: their settings, where their records lie, which of them
are recorded, and how long such a run took.
"""

import functools
import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple, get_args

from tqdm import tqdm

from fednb import ROOT, data, papers, settings, sources
from fednb import records as ledger
from fednb.errors import NotebookError, SweepError, check, require_known
from fednb.records import Record
from fednb.settings import Settings

MAX_RUNS = 10_000  # of a table
Tier = Literal["minutes-cpu", "minutes-gpu", "hours-gpu"]
TIERS: tuple[Tier, ...] = get_args(Tier)


@dataclass(frozen=True)
class Job:
    """One run, made or not."""

    notebook: str  # its name without .ipynb; the path of one that is elsewhere
    table: str  # the name of the table; "" for a run that belongs to none
    parameters: dict[str, Any]  # what differs from the notebook's own, by flat names
    settings: Settings
    path: Path  # of its record, whether it exists or not
    tier: Tier = TIERS[0]  # how long it takes, and on what
    network_of: str = ""  # the path of the notebook that adds its network, if one does

    @property
    def log(self) -> Path:
        """What its process prints."""
        return self.path.absolute().parent.parent / "logs" / f"{self.path.stem}.log"

    @functools.cached_property
    def record(self) -> Record | None:
        """What is recorded of it, read when it is first asked for; None if nothing is."""
        return ledger.read(self.path) if self.path.is_file() else None

    @property
    def status(self) -> str | None:
        """Whether it "finished", "diverged", "failed", or is "stale"; None if nothing is recorded."""
        return ledger.state(self.record) if self.record else None


def runs_of(notebook: str, where: Path | None = None) -> Path:
    """Return the folder of a notebook's records: beside one's own, as they are runs of its code.

    Those of the project's lie in a folder ``where``, by default the one in which one works.
    """
    folder = papers.path(notebook).absolute().parent
    is_own = papers.name(notebook).endswith(".ipynb")
    is_the_projects = folder.is_relative_to(ROOT / "notebooks") and not is_own
    return ledger.runs_folder(where) if is_the_projects else ledger.runs_beside(folder)


class Notebook:
    """What the runs of a notebook have in common, looked up once.

    Attributes
    ----------
    name: its name without .ipynb; the path of one that is elsewhere.
    runs: the folder of its records, see `runs_of`.
    defaults: the names and values of its cell that is tagged parameters.
    methods: its methods by name.
    """

    def __init__(self, notebook: str, where: Path | None = None) -> None:
        self.name = papers.name(notebook)
        self.runs = runs_of(self.name, where)
        self.defaults = papers.parameters(notebook)
        self.methods = papers.methods(notebook)
        message = (
            f"The notebook {self.name} cannot be swept: it must have parameters method and dataset."
        )
        check({"method", "dataset"} <= self.defaults.keys(), message, SweepError)

    def job(self, parameters: Mapping[Any, Any], table: str = "") -> Job:
        """Return the run with these parameters, by flat names.

        A `SweepError`, `NotebookError` or `SettingsError` says which name or value is refused, and
        why.
        """
        overrides = {str(name): value for name, value in parameters.items()}
        message = "more is for notebooks: here every setting has its own name."
        check("more" not in overrides, message, SweepError)
        if "dataset" in overrides:  # the run's process works in another folder
            overrides["dataset"] = data.resolve_name(overrides["dataset"])
        if "more" not in self.defaults:  # then it has a name for each setting, or there is an error
            to_notebook_parameters(self.name, overrides)
        values = self.defaults | self.defaults.get("more", {}) | overrides
        values.pop("more", None)
        resolved = settings.resolve(self.methods, **values)
        return Job(self.name, table, overrides, resolved, ledger.path(resolved, self.runs))


def to_notebook_parameters(notebook: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Put what the notebook has no name for into its ``more``; a `NotebookError` without one."""
    named = papers.parameters(notebook)
    arranged = {name: value for name, value in overrides.items() if name in named}
    others = {name: value for name, value in overrides.items() if name not in named}
    if not others:
        return arranged
    if "more" not in named:
        for name in others:
            require_known(
                f"{papers.path(notebook).stem} has no parameter", name, named, NotebookError
            )
    return arranged | {"more": {**named["more"], **arranged.get("more", {}), **others}}


# ---- methods that are compared


class ComparedMethod(NamedTuple):
    """A method of a notebook."""

    method: str
    notebook: str  # its name without .ipynb; the path of one that is elsewhere


def project_methods() -> dict[str, str]:
    """Return the notebook of each method of the numbered notebooks: the first that has it."""
    known = {}
    for path in reversed(papers.notebooks()):
        for method in papers.methods(path.stem):
            known[method] = path.stem
    return known


def find_methods(names: Iterable[str]) -> dict[str, ComparedMethod]:
    """Return what is asked for, each once, by its method.

    A method of the project is that of the first notebook that has it. The path of a notebook stands
    for all its methods that the project does not have. A `SweepError` if two notebooks have one
    of the same name, as their records could not be told apart.
    """
    known = project_methods()
    found: dict[str, ComparedMethod] = {}
    for name in names:
        if name.endswith(".ipynb"):
            notebook = papers.name(name)
            methods = [method for method in papers.methods(name) if method not in known]
            message = (
                f"{name} has no method that the project does not have: give it a name of its own."
            )
            check(methods, message, SweepError)
        else:
            told = "Neither the path of a notebook (mine.ipynb) nor a method of the project is"
            require_known(told, name, known, SweepError)
            notebook, methods = known[name], [name]
        for method in methods:
            first = found.setdefault(method, ComparedMethod(method, notebook)).notebook
            message = f"{first} and {notebook} both have a method {method}: give one another name."
            check(first == notebook, message, SweepError)
    return found


def with_networks(jobs: Sequence[Job]) -> list[Job]:
    """Return runs that know the networks which one's own notebooks among theirs add.

    A `SweepError` if two notebooks add one under the same name, and it is asked for.
    """
    asked = {job.settings.model for job in jobs}
    adding: dict[str, str] = {}
    for notebook in dict.fromkeys(job.notebook for job in jobs):
        for name in asked.intersection(papers.networks(notebook)):
            first = adding.setdefault(name, notebook)
            message = (
                f"{first} and {notebook} both add a network {name}: give one another name, or keep "
                "it in one of them, as all runs of a comparison know it."
            )
            check(first == notebook, message, SweepError)
    return [replace(job, network_of=adding.get(job.settings.model, "")) for job in jobs]


# ---- which runs are made


def select(jobs: Iterable[Job], only: Iterable[tuple[str, Any]]) -> list[Job]:
    """Select the runs with these settings, table and tier; of several values any will do.

    A `SettingsError` tells of a name or value that no run has.
    """
    described = []
    for job in jobs:
        described.append((job, job.settings.flat() | {"table": job.table, "tier": job.tier}))
    parameters = dict.fromkeys(itertools.chain.from_iterable(values for _, values in described))
    wanted: dict[str, list[Any]] = defaultdict(list)
    for name, asked in only:
        value = data.canonical_name(asked) if name == "dataset" else asked
        require_known("the runs have no parameter", name, parameters)
        known = dict.fromkeys(values[name] for _, values in described if name in values)
        require_known(f"No run has {name}", value, known)
        wanted[name].append(value)

    def is_wanted(values: dict[str, Any]) -> bool:
        return all(name in values and values[name] in any_of for name, any_of in wanted.items())

    return [job for job, values in described if is_wanted(values)]


def each_once(jobs: Iterable[Job]) -> list[Job]:
    """Return each run once, though several tables may have it, in their order."""
    unique: dict[Path, Job] = {}
    for job in jobs:
        unique.setdefault(job.path, job)
    return list(unique.values())


def missing(jobs: Iterable[Job]) -> list[Job]:
    """List the runs to be made, each once: without a record, or with one that does not count.

    One that diverged need not be made again.
    """
    return [job for job in each_once(jobs) if job.status not in ledger.RESULTS]


def tell_other_code(jobs: Iterable[Job]) -> str:
    """Print, and return, of which methods runs are recorded with other code than is here now."""
    is_other_code = functools.cache(sources.is_other_code)
    runs: Counter[str] = Counter()
    for job in each_once(jobs):
        if job.record and job.status in ledger.RESULTS:
            method = papers.methods(job.notebook)[job.settings.method]
            runs[job.settings.method] += is_other_code(job.record.get("source"), method)
    named = [f"{method} ({number})" for method, number in runs.items() if number]
    if not named:
        return ""
    what = f"recorded with other code of the method than is here now: {', '.join(named)}"
    print(f"fednb: {what}; --again makes such runs again.", file=sys.stderr)
    return what


def folders_of(jobs: Iterable[Job]) -> str:
    """Name the folders of the records of runs."""
    return ", ".join(dict.fromkeys(str(job.path.parent) for job in jobs))


def median_duration(jobs: Iterable[Job]) -> str:
    """Tell how long a run took by the records: the median for each device; "" if none finished."""
    seconds_on: dict[str, list[float]] = defaultdict(list)
    for job in jobs:
        if job.record and job.status == "finished":
            device = job.record.get("device", "unknown")
            seconds_on[device].append(job.record.get("wall_seconds", 0.0))
    return ", ".join(f"{duration(median(times))} on {on}" for on, times in seconds_on.items())


def duration(seconds: float) -> str:
    """Write a time in seconds as ``01:05``, or with hours as ``2:01:05``."""
    return tqdm.format_interval(int(seconds))
