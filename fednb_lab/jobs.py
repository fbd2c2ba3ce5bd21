"""Runs that a sweep or a comparison asks for: their settings, where their records lie, which of them
are recorded, and how long such a run took.
"""

import functools
import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple, get_args

from tqdm import tqdm

from fednb import ROOT, data, models, papers, settings, sources
from fednb import records as ledger
from fednb.errors import NotebookError, SweepError, check, require_known
from fednb.settings import Settings

MAX_RUNS = 10_000  # of a table
Tier = Literal["minutes-cpu", "minutes-gpu", "hours-gpu"]
TIERS: tuple[Tier, ...] = get_args(Tier)
_NETWORKS = frozenset(models.MODELS)  # which each process knows; one's own notebook may add some


class Recorded(NamedTuple):
    """What the record of a run says about how it went."""

    status: str | None = None  # "finished", "diverged", "failed", "stale"; None: there is no record
    seconds: float = 0.0  # of its rounds, evaluation included
    device: str = ""  # the name of its processor or GPU
    source: str | None = None  # a digest of its method's source


@dataclass(frozen=True)
class Job:
    """One run, made or not."""

    notebook: str  # its name without .ipynb; the path of one that is elsewhere
    table: str  # the name of the table; "" for a run that belongs to none
    parameters: dict[str, Any]  # what differs from the notebook's own, by flat names
    settings: Settings
    path: Path  # of its record, whether it exists or not
    tier: Tier = TIERS[0]  # how long it takes, and on what

    @property
    def log(self) -> Path:
        """What its process prints."""
        return self.path.absolute().parent.parent / "logs" / f"{self.path.stem}.log"

    @functools.cached_property
    def recorded(self) -> Recorded:
        """What its record says, which is read when it is first asked for."""
        try:
            file = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return Recorded()
        return _recorded(self.path, file.st_mtime_ns, file.st_ino)


@functools.cache
def _recorded(path: Path, changed: int, number: int) -> Recorded:
    """What a record says, read once for all tables: as long as its file has this time and number."""
    record = ledger.read(path)
    seconds = record.get("wall_seconds", 0.0)
    device = record.get("device", "")
    return Recorded(ledger.state(record), seconds, device, record.get("source"))


def runs_of(notebook: str, where: Path | None = None) -> Path:
    """The folder of a notebook's records: beside one's own notebook, as they are runs of its code.

    Those of the project's lie in a folder ``where``, by default the one in which one works.
    """
    folder = papers.path(notebook).absolute().parent
    return ledger.runs_folder(where if folder.is_relative_to(ROOT / "notebooks") else folder)


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
        """The run with these parameters, by flat names.

        A `SweepError`, `NotebookError` or `SettingsError` says which name or value is refused, and
        why.
        """
        overrides = {str(name): value for name, value in parameters.items()}
        message = "more is for notebooks: here every setting has its own name."
        check("more" not in overrides, message, SweepError)
        if "dataset" in overrides:  # the run's process works in another folder
            overrides["dataset"] = data.whole_name(overrides["dataset"])
        if "more" not in self.defaults:  # then it has a name for each setting, or there is an error
            arrange(self.name, overrides)
        values = self.defaults | self.defaults.get("more", {}) | overrides
        values.pop("more", None)
        method = values.get("method")
        if isinstance(method, str) and method not in self.methods:
            elsewhere = project_methods().get(method)
            message = f"{method} is no method of {self.name} but of {elsewhere}: run that notebook."
            check(elsewhere is None, message, SweepError)
        resolved = settings.resolve(self.methods, **values)
        return Job(self.name, table, overrides, resolved, ledger.path(resolved, self.runs))


def arrange(notebook: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as the notebook has them: what it has no name for goes into its ``more``."""
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


class Contestant(NamedTuple):
    """A method of a notebook."""

    method: str
    notebook: str  # its name without .ipynb; the path of one that is elsewhere


def project_methods() -> dict[str, str]:
    """The notebook of each method of the numbered notebooks: the first that has it."""
    known = {}
    for path in reversed(papers.notebooks()):
        for method in papers.methods(path.stem):
            known[method] = path.stem
    return known


def contestants_of(names: Iterable[str]) -> dict[str, Contestant]:
    """What is asked for, each once, by its method.

    A method of the project is that of the first notebook that has it. The path of a notebook stands
    for all its methods that the project does not have. A `SweepError` if two notebooks have one
    of the same name, as their records could not be told apart.
    """
    known = project_methods()
    found: dict[str, Contestant] = {}
    for name in names:
        if name.endswith(".ipynb"):
            notebook = papers.name(name)
            methods = [method for method in papers.methods(name) if method not in known]
            message = (
                f"{name} has no method that the project does not have: give it a name of its own."
            )
            check(methods, message, SweepError)
        else:
            own = "" if name in known else _own_notebook_with(name)
            check(not own, f"{name} is in your own notebook: name that, {own}.", SweepError)
            require_known("Neither a method nor the path of a notebook is", name, known, SweepError)
            notebook, methods = known[name], [name]
        for method in methods:
            first = found.setdefault(method, Contestant(method, notebook)).notebook
            message = f"{first} and {notebook} both have a method {method}: give one another name."
            check(first == notebook, message, SweepError)
    return found


def _own_notebook_with(name: str) -> str:
    """The notebook where one works that is called so, or has a class of this name; "" if none."""
    for file in sorted(Path().glob("*.ipynb")):
        with suppress(NotebookError):
            if file.stem == name or f"class {name}(" in papers.exported(file):
                return str(file)
    return ""


def check_networks(jobs: Iterable[Job]) -> None:
    """Refuse runs of the project's notebooks with a network that another notebook adds.

    Their processes import their own notebook alone, in which the network has no name.
    """
    of_project = project_methods()
    for job in jobs:
        name, method = job.settings.model, job.settings.method
        if name not in _NETWORKS and job.notebook in of_project.values():
            raise SweepError(
                f"{name} is a network of your own notebook, which a run of {method} from "
                f"{job.notebook} does not know: put {method} into METHODS of your notebook, and "
                f"sweep that with grid: {{method: [{method}, ...]}} (`fednb new` writes a sweep "
                "file)."
            )


# ---- which runs are made


def select(jobs: Iterable[Job], only: Iterable[tuple[str, Any]]) -> list[Job]:
    """The runs with these settings, table and tier; of several values for a name any will do.

    A `SettingsError` tells of a name or value that no run has.
    """
    described = []
    for job in jobs:
        described.append((job, job.settings.flat() | {"table": job.table, "tier": job.tier}))
    parameters = dict.fromkeys(itertools.chain.from_iterable(values for _, values in described))
    wanted: dict[str, list[Any]] = defaultdict(list)
    for name, asked in only:
        value = data.recorded_name(asked) if name == "dataset" else asked
        require_known("the runs have no parameter", name, parameters)
        known = dict.fromkeys(values[name] for _, values in described if name in values)
        require_known(f"No run has {name}", value, known)
        wanted[name].append(value)

    def is_wanted(values: dict[str, Any]) -> bool:
        return all(name in values and values[name] in any_of for name, any_of in wanted.items())

    return [job for job, values in described if is_wanted(values)]


def each_once(jobs: Iterable[Job]) -> list[Job]:
    """Each run once, though several tables may have it, in their order."""
    unique: dict[Path, Job] = {}
    for job in jobs:
        unique.setdefault(job.path, job)
    return list(unique.values())


def recorded_and_missing(jobs: Iterable[Job]) -> tuple[list[Job], list[Job]]:
    """The runs that need not be made again, diverged ones included, and those that are to be made;
    each once.
    """
    unique = each_once(jobs)
    recorded = [job for job in unique if job.recorded.status in ledger.RESULTS]
    missing = [job for job in unique if job.recorded.status not in ledger.RESULTS]
    return recorded, missing


def other_code(recorded: Iterable[tuple[Job, str | None]]) -> str:
    """Say of which methods runs are recorded with other code than is here now; "" if of none.

    Of each run the digest of its method's source that its record holds.
    """
    methods = functools.cache(papers.methods)
    is_other_code = functools.cache(sources.is_other_code)
    runs: Counter[str] = Counter()
    for job, source in recorded:
        name = job.settings.method
        if is_other_code(source, methods(job.notebook)[name]):
            runs[name] += 1
    if not runs:
        return ""
    told = ", ".join(f"{method} ({number})" for method, number in runs.items())
    what = "recorded with other code of the method than is here now"
    return f"{what}: {told}; --again makes such runs again."


def tell_other_code(recorded: Iterable[Job]) -> None:
    """Print `other_code`."""
    told = other_code((job, job.recorded.source) for job in recorded)
    if told:
        print(f"fednb: {told}", file=sys.stderr)


def tell_if_among_the_projects(jobs: Iterable[Job]) -> None:
    """Say of runs of one's own notebooks that their records lie among the project's."""
    for job in jobs:
        if job.notebook.endswith(".ipynb") and job.path.parent == ROOT / "results" / "runs":
            told = "its records lie among the project's, in results/runs of this clone"
            advice = "FEDNB_RUNS=mine/runs, or the notebook in another folder, keeps them apart"
            print(f"fednb: {Path(job.notebook).name}: {told}; {advice}.", file=sys.stderr)
            return


def folders_of(jobs: Iterable[Job]) -> str:
    """Name the folders of the records of runs."""
    return ", ".join(dict.fromkeys(str(job.path.parent) for job in jobs))


def median_duration(jobs: Iterable[Job]) -> str:
    """How long a run took by the records: the median for each device; "" if none is finished."""
    seconds_on: dict[str, list[float]] = defaultdict(list)
    for job in jobs:
        if job.recorded.status == "finished":
            seconds_on[job.recorded.device].append(job.recorded.seconds)
    parts = []
    for device, seconds in seconds_on.items():
        parts.append(f"{tqdm.format_interval(int(median(seconds)))} on {device}")
    return ", ".join(parts)
