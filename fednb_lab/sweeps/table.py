"""What a sweep file says, as values: a table, its rows and columns, and the runs that fill it."""

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fednb import records as ledger
from fednb.places import Places
from fednb.settings import Settings

TIERS = ("minutes-cpu", "minutes-gpu", "hours-gpu")
DEFAULT_PRIORITY = 100


class Recorded(NamedTuple):
    """What the record of a run says about how it went."""

    status: str | None = None  # "finished", "diverged", "failed", "stale"; None: there is no record
    seconds: float = 0.0  # of its rounds, evaluation included
    device: str = ""  # the name of its processor or GPU


@dataclass(frozen=True)
class Job:
    """One run of a table, made or not."""

    notebook: str  # its name without .ipynb; the path of one that is elsewhere
    table: str  # the name of the table; "" for a run that belongs to none
    parameters: dict[str, Any]  # what differs from the notebook's own, by flat names
    settings: Settings
    path: Path  # of its record, whether it exists or not
    tier: str = TIERS[0]  # how long it takes, and on what
    priority: int = DEFAULT_PRIORITY  # from 1, which is made first
    places: Places = field(default_factory=Places.from_environment)  # its process works with these

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
    return Recorded(ledger.state(record), seconds, record.get("device", ""))


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
