"""From parameters to runs: the settings of each run, and where its record lies."""

import dataclasses
import itertools
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fednb import data, papers, settings
from fednb import records as ledger
from fednb.errors import SweepError, check, require_known
from fednb.places import Places
from fednb_lab.sweeps.table import DEFAULT_PRIORITY, Job

MAX_RUNS = 10_000  # of a table

Grid = Mapping[str, list[Any]]  # by parameter the values that it takes


def places_of(notebook: str) -> Places:
    """Where runs of a notebook find and leave their files, by the environment.

    A notebook that is given by its path may import from those beside it. Its records lie beside it,
    too, unless ``FEDNB_RUNS`` is set, because a record does not say whose code made it.
    """
    environment = dict(os.environ)
    if notebook.endswith(".ipynb"):
        environment["FEDNB_NOTEBOOKS"] = str(Path(notebook).parent)
    return Places.from_environment(environment)


class Notebook:
    """What the runs of a notebook have in common, looked up once.

    Attributes
    ----------
    name: its name without .ipynb; the path of one that is elsewhere.
    places: where its runs find and leave their files.
    defaults: the names and values of its cell that is tagged parameters.
    methods: its methods by name.
    """

    def __init__(self, notebook: str) -> None:
        self.name = papers.name(notebook)
        self.places = places_of(self.name)
        self.defaults = papers.parameters(notebook)
        self.methods = papers.methods(notebook)
        message = (
            f"The notebook {self.name} cannot be swept: it must have parameters method and dataset."
        )
        check({"method", "dataset"} <= self.defaults.keys(), message, SweepError)
        if self.name.endswith(".ipynb"):
            _check_own_names(Path(self.name), self.methods)

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
            papers.arrange(self.name, overrides)
        values = self.defaults | self.defaults.get("more", {}) | overrides
        values.pop("more", None)
        try:
            resolved = settings.resolve(self.methods, **values)
        except (AttributeError, NameError):  # a method's own checks need more than its outline has
            resolved = settings.resolve(papers.methods(self.name), **values)
        path = ledger.path(resolved, self.places.runs)
        return Job(self.name, table, overrides, resolved, path, places=self.places)


def _check_own_names(notebook: Path, methods: Mapping[str, type]) -> None:
    """Refuse a class of one's own with the name of a method that the project has.

    A copy of one of the project's notebooks is its namesake, and may change what it likes.
    """
    if notebook.stem in [path.stem for path in papers.notebooks(extras=True)]:
        return
    defined = set(re.findall(r"^class (\w+)", papers.exported(notebook), re.MULTILINE))
    known = project_methods()
    for name, method in methods.items():
        message = (
            f"{notebook.name} has a {name} of its own, which the project has already, so that its "
            "records would be taken for those: give it another name."
        )
        check(name not in known or method.__name__ not in defined, message, SweepError)


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
    """What is asked for, each once, by what it is called: its method, or in brackets the notebook,
    too.

    A method of the project is that of the first notebook that has it. The path of a notebook stands
    for all its methods that the project does not have. A `SweepError` if two would share their
    records, as these do not say whose code made them.
    """
    known = project_methods()
    found: dict[Contestant, None] = {}
    for name in names:
        if not name.endswith(".ipynb"):
            require_known("Neither a method nor the path of a notebook is", name, known, SweepError)
            found[Contestant(name, known[name])] = None
            continue
        new = [method for method in papers.methods(name) if method not in known]
        message = f"{name} has no method that the project does not have: give it a name of its own."
        check(new, message, SweepError)
        for method in new:
            found[Contestant(method, papers.name(name))] = None
    _check_apart(found)
    return {_called(one, found): one for one in found}


def _check_apart(contestants: Iterable[Contestant]) -> None:
    """Refuse two methods of one name whose records would lie in one folder."""
    first: dict[tuple[str, Path], str] = {}
    for method, notebook in contestants:
        runs = places_of(notebook).runs
        other = first.setdefault((method, runs), notebook)
        message = (
            f"{Path(other).name} and {Path(notebook).name} both have a method {method}, and their "
            f"records would be taken for each other in {runs}: give one another name, or put "
            "the notebooks into folders of their own, without FEDNB_RUNS."
        )
        check(other == notebook, message, SweepError)


def _called(one: Contestant, among: Iterable[Contestant]) -> str:
    """The method's name; where others are called so with its notebook, or its folder too."""
    namesakes = [other for other in among if other.method == one.method and other != one]
    if not namesakes:
        return one.method
    others = [Path(other.notebook).with_suffix("").parts for other in namesakes]
    parts = Path(one.notebook).with_suffix("").parts
    length = 1  # of the shortest end of the path that no other has
    while any(other[-length:] == parts[-length:] for other in others):
        length += 1
    return f"{one.method} ({'/'.join(parts[-length:])})"


def jobs_of_table(name: str, notebook: Notebook, entry: Mapping[str, Any]) -> tuple[Job, ...]:
    """The runs of a table from its entry in a sweep file, as ``sweep.schema.yaml`` describes it."""
    grids = _grids(entry)
    number = sum(math.prod(map(len, grid.values())) for grid in grids)
    message = f"it has {number:,} runs, in grid and runs together; it must have 1 to {MAX_RUNS:,}."
    check(1 <= number <= MAX_RUNS, message)
    common = entry.get("parameters", {})
    priorities = entry.get("priority", DEFAULT_PRIORITY)
    jobs = []
    for values in itertools.chain.from_iterable(map(_combinations, grids)):
        job = notebook.job(common | values, name)
        dataset = job.settings.dataset
        tier = _for_dataset(entry["tier"], dataset, None)
        message = f"tier says nothing about the data set {dataset!r}, which a run of the table has."
        check(tier, message)
        priority = _for_dataset(priorities, dataset, DEFAULT_PRIORITY)
        jobs.append(dataclasses.replace(job, tier=tier, priority=priority))
    datasets = dict.fromkeys(job.settings.dataset for job in jobs)
    for dataset in priorities if isinstance(priorities, dict) else ():
        require_known("priority: its runs have no data set", dataset, datasets, SweepError)
    return tuple(jobs)


def _grids(entry: Mapping[str, Any]) -> list[Grid]:
    """The grid of a table, then its single runs: grids of a value or list for each parameter."""
    grids: list[Grid] = [entry["grid"]] if entry.get("grid") else []
    for run in entry.get("runs", ()):
        grids.append(
            {name: value if isinstance(value, list) else [value] for name, value in run.items()}
        )
    return grids


def _combinations(grid: Grid) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _for_dataset(value: Any, dataset: str, default: Any) -> Any:
    """A table's tier or priority: one for all data sets, or one for each."""
    return value.get(dataset, default) if isinstance(value, dict) else value
