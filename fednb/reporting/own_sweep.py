"""The page of one's own sweep: its tables in full, beside its records."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fednb import papers
from fednb.analysis.cells import Cell, cells_of, records_of
from fednb.reporting.markdown import fill, table_in_full
from fednb.reporting.pages import cells_csv
from fednb.sweeps.table import Table

SHOWN_AT_ONCE = 3  # tables that are printed after a sweep; of more the pages are named


def is_own(table: Table) -> bool:
    """Whether a table is none of the project's, or of the notebooks that stand for these."""
    return table.file.absolute().parent != papers.folder().absolute() / "sweeps"


def page_of(table: Table) -> Path:
    """Where the page of its sweep file is: beside the records."""
    folder = table.jobs[0].path.parent.parent / "tables"
    name = table.file.stem if is_own(table) else table.notebook
    return folder / f"{name}.md"


def pages_of(tables: Sequence[Table], out: Path | None = None) -> dict[Path, str]:
    """The text of each file that one's own sweep makes: a page of its tables, its cells as CSV."""
    page = page_of(tables[0])
    if out is not None:
        page = out / page.name
    link = os.path.relpath(tables[0].jobs[0].path.parent, page.parent).replace(os.sep, "/")
    cells = {table.name: cells_of(table, records_of(table)) for table in tables}
    parts = [
        table_in_full(table, cells[table.name], link, page=True)
        for table in tables
        if _has_runs(cells[table.name])
    ]
    without_runs = [table for table in tables if not _has_runs(cells[table.name])]
    text = fill("own_page", file=tables[0].file.name, parts=parts, without_runs=without_runs)
    every_cell = [cell for of_table in cells.values() for cell in of_table]
    return {page: text, page.with_suffix(".csv"): cells_csv(every_cell)}


def _has_runs(cells: Sequence[Cell]) -> bool:
    return any(cell.runs for cell in cells)


def texts(tables: Sequence[Table]) -> Mapping[str, str]:
    """Each table as Markdown by its name, of its own records; of those that have any."""
    found = {}
    for table in tables:
        cells = cells_of(table, records_of(table))
        if _has_runs(cells):
            found[table.name] = table_in_full(table, cells)
    return found
