"""What the papers print (``data/reported.csv``), and the printed cell beside runs of ours."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from fednb.errors import ReportError, check, require_known
from fednb.results import REPORTED, lines
from fednb_lab.measures import Measure
from fednb_lab.sweeps import Table

UNSPECIFIED = "any"  # stands for the value of a setting about which a paper says nothing


@dataclass(frozen=True)
class ReportedLine:
    """A line of the file: a printed cell.

    Without a row it is about a column, without row and column about a table, without a table about
    a paper.
    """

    paper: str
    table: str  # such as "Table 1"
    row: str
    column: str
    method: str  # of the row
    value: float | None  # None where no number is printed
    std: float | None  # what stands behind its ±
    text: str  # of a cell what is printed instead of a number; of a table or paper its title
    where: str  # of a table: the section of the paper that discusses it
    unit: str
    std_is: str  # in words what the table's ± is over
    # a list: the values that the paper tunes among; `UNSPECIFIED`: it says nothing
    settings: dict[str, Any]
    partial: bool  # of a table: runs of ours may have no counterpart there
    note: str


@dataclass(frozen=True)
class ReportedTable:
    """A printed table; of a paper as a whole only `about`."""

    about: ReportedLine
    columns: dict[str, ReportedLine]  # what holds for a column, where something does
    cells: dict[tuple[str, str], ReportedLine]  # by row and column
    rows: dict[str, ReportedLine]  # one line of each: all of a row have its method and settings

    def number(self, row: str | None, column: str) -> float:
        """Return the number that is printed there; a `ReportError` if none is."""
        line = self.cells.get((row or "", column))
        if line is None or line.value is None:
            name = f"{self.about.paper} {self.about.table}"
            raise ReportError(f"{name} has no number in row {row!r}, column {column!r}.")
        return line.value


@functools.cache
def reported_tables() -> dict[str, ReportedTable]:
    """Read all that is reported: of papers (``"MOON"``), and of tables (``"MOON Table 1"``)."""
    tables = {}
    for name, texts in lines(REPORTED).items():
        reported = [_line(one) for one in texts]
        (about,) = [line for line in reported if not line.row and not line.column]
        columns = {line.column: line for line in reported if line.column and not line.row}
        cells = {(line.row, line.column): line for line in reported if line.row}
        rows = {line.row: line for line in cells.values()}
        tables[name] = ReportedTable(about, columns, cells, rows)
    return tables


def _line(texts: Mapping[str, str]) -> ReportedLine:
    values: dict[str, Any] = dict(texts)
    values["value"] = float(texts["value"]) if texts["value"] else None
    values["std"] = float(texts["std"]) if texts["std"] else None
    values["settings"] = yaml.safe_load(texts["settings"]) or {}
    values["partial"] = texts["partial"] == "yes"
    return ReportedLine(**values)


def reported_table(name: str) -> ReportedTable:
    """Return what is reported under a name; a `ReportError` if nothing is."""
    require_known("There is no printed table", name, reported_tables(), ReportError)
    return reported_tables()[name]


class PrintedCell(NamedTuple):
    """What is printed beside a cell of ours."""

    value: float | None = None  # in units of the cell's measure
    std: float | None = None  # what stands behind its ±
    text: str = ""  # what is printed where that is no number
    settings: Mapping[str, Any] = {}  # what the paper says there of settings, as in `ReportedLine`
    row: str = ""  # what the printed row is called


def printed_cell(
    table: Table, label: str, column: str, measure: Measure, settings: Mapping[str, Any]
) -> PrintedCell:
    """Find what is printed beside runs with these flat settings, in the row ``label`` of our table.

    It is in the printed row of that name, or else of the method and settings of the runs. A
    `ReportError` if there is none, unless the printed table is marked as partial.
    """
    if table.printed is None:
        return PrintedCell()
    reported = reported_table(table.printed)
    rows = _matching_rows(reported, label, settings)
    stated = _stated_settings(reported, column, settings, rows[:1])
    line = reported.cells.get((rows[0], column)) if len(rows) == 1 else None
    if line is None:
        known = "; ".join(f"{row} | {name}" for row, name in reported.cells)
        told = f"{table.printed} has no cell {label} | {column} with its settings; it has {known}."
        check(reported.about.partial, f"{table.name}: {told}", ReportError)
        return PrintedCell(settings=stated)
    value, std = _in_units_of(measure, line, reported, table.baseline)
    return PrintedCell(value, std, line.text, stated, line.row)


def _matching_rows(reported: ReportedTable, label: str, settings: Mapping[str, Any]) -> list[str]:
    """The printed row of that name, or those of that method that have no other settings."""
    fitting = [row for row, line in reported.rows.items() if _fits(line.settings, settings)]
    # a partial table may use one name for several things
    if label in (fitting if reported.about.partial else reported.rows):
        return [label]
    return [row for row in fitting if reported.rows[row].method == label]


def _fits(stated: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    for name, value in stated.items():
        tuned_or_unknown = name not in settings or isinstance(value, list)
        if not tuned_or_unknown and not same_value(value, settings[name]):
            return False
    return True


def _stated_settings(
    reported: ReportedTable, column: str, settings: Mapping[str, Any], rows: list[str]
) -> dict[str, Any]:
    """What a paper says of settings: in general, of the table, its column and its row."""
    stated = reported_table(reported.about.paper).about.settings | reported.about.settings
    if column in reported.columns:
        stated |= reported.columns[column].settings
    for row in rows:
        of_row = reported.rows[row].settings
        stated |= {name: value for name, value in of_row.items() if name in settings}
    return stated


def _in_units_of(
    measure: Measure, line: ReportedLine, reported: ReportedTable, baseline: str | None
) -> tuple[float | None, float | None]:
    """The printed value of a measure, and what stands behind its ±."""
    value = line.value
    std = line.std
    if measure.printed == "std":
        value = line.std
    elif measure.printed:  # another column
        value = reported.cells[line.row, measure.printed].value
    if measure.relative and value is not None:
        value = value / reported.number(baseline, line.column)
    if measure.printed or measure.relative:
        std = None
    of_column = reported.columns.get(line.column, reported.about)
    if "fraction" in (reported.about.unit, of_column.unit):
        value = None if value is None else 100 * value
        std = None if std is None else 100 * std
    return value, std


def same_value(printed: Any, ours: Any) -> bool:
    """Tell whether a printed value means ours: "Tiny-Imagenet" is tiny_imagenet, "with" True."""
    if isinstance(ours, bool):
        return printed is ours or printed == ("with" if ours else "without")
    if isinstance(ours, str):
        return _letters_and_digits(printed) == _letters_and_digits(ours)
    return ours is not None and printed == ours


def _letters_and_digits(name: Any) -> str:
    return "".join(letter for letter in str(name).lower() if letter.isalnum())
