"""All that records make: the report, pages of tables, figures, ``cells.csv``, the README.

A sweep of one's own makes a page and a CSV file beside its records.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fednb import ROOT, papers
from fednb.errors import ReportError, check
from fednb.experiments import ledger
from fednb.experiments.record import Record
from fednb_lab.analysis.cells import Cell, cells_of, records_of
from fednb_lab.analysis.claims import Claim, Finding, cells_among, claims_file, claims_of
from fednb_lab.reporting import figures, words
from fednb_lab.reporting.findings import Filler, headlines
from fednb_lab.reporting.front import front
from fednb_lab.reporting.markdown import (
    command,
    fill,
    is_own,
    link_to,
    question_lines,
    table_in_full,
)
from fednb_lab.sweeps.files import read_tables
from fednb_lab.sweeps.table import Table


class Results(NamedTuple):
    """What sweep files ask and records answer."""

    runs: Path  # the folder of the records
    tables: dict[str, Table]
    records: Mapping[Path, Record]
    cells: dict[str, list[Cell]]  # of each table
    claims: dict[str, list[Claim]]  # of each paper whose notebook has tables

    @property
    def notebooks(self) -> list[str]:
        """Those that have tables, in their order."""
        return list(dict.fromkeys(table.notebook for table in self.tables.values()))


def read_results(sweeps: Path, runs: Path) -> Results:
    """Read a folder of sweep files and one of records, and judge what the papers claim."""
    tables = read_tables(sweeps)
    records = ledger.load(runs)
    cells = {name: cells_of(table, records) for name, table in tables.items()}
    notebooks = {table.notebook for table in tables.values()}
    claims = {}
    for paper, about in claims_file().papers.items():
        if about.notebook in notebooks:
            claims[paper] = claims_of(paper, cells_among(cells))
    return Results(runs, tables, records, cells, claims)


def make_pages(results: Results, out: Path) -> dict[Path, str]:
    """The text of each file that results make; of the project's own also the README."""
    files = {}
    for name, figure in figures.claim_figures(results.claims).items():
        files[out / "figures" / f"{name}.svg"] = figure
    link = link_to(results.runs, out / "tables")
    for notebook in results.notebooks:
        tables = [table for table in results.tables.values() if table.notebook == notebook]
        files[out / "tables" / f"{notebook}.md"] = _tables("page", tables, results.cells, link)
    files[out / "cells.csv"] = _cells_csv(results.cells)
    files[out / "REPORT.md"] = _report(results, out)
    if out == ROOT / "results":
        readme = ROOT / "README.md"
        facts = headlines(Filler(cells_among(results.cells), ROOT, results.claims))
        files[readme] = _readme(readme.read_text(encoding="utf-8"), facts)
    return files


def _report(results: Results, out: Path) -> str:
    """The report, as it stands in a folder."""
    tables = results.tables
    named = {job.path.name for table in tables.values() for job in table.jobs}
    side = claims_file().side_by_side
    filler = Filler(cells_among(results.cells), out, results.claims)

    def page(name: str) -> str:
        return f"tables/{tables[name].notebook}.md#{name}"

    def linked(name: str, title: str) -> str:
        return f"[{title}]({page(name)})"

    side_table = ""
    if side.notebook in results.notebooks:
        side_table = question_lines(cells_among(results.cells), linked)
    return fill(
        "REPORT",
        tables=tables,
        # runs of one's own, in the same folder, are not the project's
        records=[one for path, one in results.records.items() if path.name in named],
        claims_of=results.claims,
        described=claims_file().papers,
        side=side,
        side_table=side_table,
        place_of=place_of,
        page=page,
        findings=_findings(results.notebooks),
        sentence=filler.sentence,
    )


def place_of(notebook: str) -> str:
    """Where a notebook lies in the project, such as ``notebooks/extras/tuning.ipynb``."""
    return link_to(papers.path(notebook), ROOT)


def _findings(notebooks: Sequence[str]) -> list[Finding]:
    return [one for one in claims_file().findings.values() if one.notebook in notebooks]


def _tables(
    template: str, tables: Sequence[Table], cells: Mapping[str, Sequence[Cell]], link: str
) -> str:
    """A page of tables: those with runs in full, with records at ``link``, the others by name."""
    parts = {}
    for table in tables:
        if any(cell.runs for cell in cells[table.name]):
            parts[table.name] = table_in_full(table, cells[table.name], link, page=True)
    return fill(template, tables=tables, parts=parts)


def _cells_csv(cells: Mapping[str, Sequence[Cell]]) -> str:
    """All cells in full precision; several values in a field are parted by semicolons."""
    every_cell = chain.from_iterable(cells.values())
    frame = pd.DataFrame([_csv_line(cell) for cell in every_cell])
    return frame.to_csv(index=False, lineterminator="\n")


def _csv_line(cell: Cell) -> dict[str, Any]:
    def joined(values: Sequence[Any]) -> str:
        return "; ".join(map(str, values))

    return {
        "table": cell.table,
        "row": cell.row,
        "column": cell.column,
        "measure": cell.measure.name,
        "seeds": joined(cell.seeds),
        "statuses": joined(cell.statuses),
        "paths": joined([run.job.path.name for run in cell.runs]),
        "note": joined(cell.notes),
        "remark": joined(cell.remarks),
        "expected": cell.expected,
        "stale": cell.stale,
        "values": joined(cell.values),
        "mean": cell.mean,
        "half": cell.half_width,
        "spread": cell.spread,
        "printed": cell.printed,
        "deviations": joined([words.recorded_deviation(one) for one in cell.deviations]),
        "choice": words.choice(cell),
        "repeat": command(cell),
    }


def _readme(text: str, facts: Mapping[str, str]) -> str:
    """The README with its list of notebooks made anew between the two marks."""
    fronts = {path.stem: front(path) for path in papers.notebooks()}
    marks = re.compile(
        r"(<!-- notebooks: written by `python -m fednb report` -->\n).*(<!-- end -->)", re.DOTALL
    )
    notebooks = fill("readme", fronts=fronts, facts=facts)
    written, number = marks.subn(lambda match: f"{match[1]}\n{notebooks}\n{match[2]}", text)
    message = "README.md lacks the marks <!-- notebooks: ... --> and <!-- end --> around the list."
    check(number, message, ReportError)
    return written


def page_of(table: Table) -> Path:
    """Where the page of the sweep of one's own that a table is in lies: beside its records."""
    folder = table.jobs[0].path.parent.parent / "tables"
    name = table.file.stem if is_own(table) else table.notebook
    return folder / f"{name}.md"


def recorded_cells(tables: Iterable[Table]) -> dict[str, list[Cell]]:
    """The cells of tables, by name, from their own records, which lie where each says."""
    return {table.name: cells_of(table, records_of(table)) for table in tables}


def own_pages(
    tables: Sequence[Table], cells: Mapping[str, Sequence[Cell]], out: Path | None = None
) -> dict[Path, str]:
    """The text of each file that one's own sweep makes: a page of its tables, its cells as CSV."""
    page = page_of(tables[0])
    if out is not None:
        page = out / page.name
    link = link_to(tables[0].jobs[0].path.parent, page.parent)
    text = _tables("own_page", tables, cells, link)
    of_tables = {table.name: cells[table.name] for table in tables}
    return {page: text, page.with_suffix(".csv"): _cells_csv(of_tables)}


def tables_with_runs(tables: Sequence[Table], cells: Mapping[str, Sequence[Cell]]) -> list[str]:
    """Each table that has records as Markdown."""
    found = []
    for table in tables:
        if any(cell.runs for cell in cells[table.name]):
            found.append(table_in_full(table, cells[table.name]))
    return found
