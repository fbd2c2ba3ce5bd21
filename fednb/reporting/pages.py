"""All that records make: the report, pages of tables, figures, ``cells.csv``, the README."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fednb import ROOT, papers
from fednb.analysis.cells import Cell, cells_of
from fednb.analysis.claims import Finding, claims_file, claims_of, leads_side_by_side
from fednb.errors import ReportError
from fednb.experiments import ledger
from fednb.reporting import figures, words
from fednb.reporting.findings import Filler
from fednb.reporting.markdown import claims_table, command, fill, table_in_full
from fednb.sweeps.files import read_tables
from fednb.sweeps.table import Table


def make_pages(sweeps: Path, runs: Path, out: Path) -> dict[Path, str]:
    """The text of each file that sweeps and records make; of the project's own also the README."""
    tables = read_tables(sweeps)
    records = ledger.load(runs)
    cells = {name: cells_of(table, records) for name, table in tables.items()}
    notebooks = list(dict.fromkeys(table.notebook for table in tables.values()))
    named = {job.path.name for table in tables.values() for job in table.jobs}
    described = claims_file().papers
    claims = {
        paper: claims_of(paper, cells)
        for paper, about in described.items()
        if about.notebook in notebooks
    }
    side = claims_file().side_by_side
    link = os.path.relpath(runs, out / "tables").replace(os.sep, "/")
    files = {}
    for name, figure in figures.claim_figures(claims).items():
        files[out / "figures" / f"{name}.svg"] = figure
    for notebook in notebooks:
        of_notebook = [table for table in tables.values() if table.notebook == notebook]
        files[out / "tables" / f"{notebook}.md"] = _tables_page(of_notebook, cells, link)
    files[out / "cells.csv"] = cells_csv([cell for of_table in cells.values() for cell in of_table])
    findings = _findings(notebooks)
    filler = Filler(cells.__getitem__, out)
    values = {
        "tables": tables,
        # runs of one's own, in the same folder, are not the project's
        "records": {path: record for path, record in records.items() if path.name in named},
        "claims_of": claims,
        "described": described,
        "side": side,
        "compared": leads_side_by_side(cells) if side.notebook in notebooks else {},
        "place_of": place_of,
        "page": lambda name: f"tables/{tables[name].notebook}.md#{name}",
        "claims_table": claims_table,
        "findings": findings,
        "sentence": filler.sentence,
    }
    files[out / "REPORT.md"] = fill("REPORT", **values)
    if out == ROOT / "results":
        readme = ROOT / "README.md"
        facts = _facts(findings, Filler(cells.__getitem__, ROOT))
        files[readme] = _readme(readme.read_text(encoding="utf-8"), facts)
    return files


def place_of(notebook: str) -> str:
    """Where a notebook lies in the project, such as ``notebooks/extras/tuning.ipynb``."""
    return os.path.relpath(papers.path(notebook), ROOT).replace(os.sep, "/")


def _findings(notebooks: Sequence[str]) -> dict[str, list[Finding]]:
    """Findings by notebook, of these notebooks."""
    by_notebook: dict[str, list[Finding]] = {}
    for finding in claims_file().findings.values():
        if finding.notebook in notebooks:
            by_notebook.setdefault(finding.notebook, []).append(finding)
    return by_notebook


def _facts(findings: Mapping[str, Sequence[Finding]], filler: Filler) -> dict[str, str]:
    """The headline of each notebook, where records bear it out."""
    facts = {}
    for notebook, (headline, *_) in findings.items():
        fact = filler.fact(headline)
        if fact is not None:
            facts[notebook] = fact
    return facts


def _tables_page(tables: Sequence[Table], cells: Mapping[str, Sequence[Cell]], link: str) -> str:
    """A notebook's tables: those with runs in full, the others by name."""
    parts = {}
    for table in tables:
        if any(cell.runs for cell in cells[table.name]):
            parts[table.name] = table_in_full(table, cells[table.name], link, page=True)
    return fill("page", notebook=tables[0].notebook, tables=tables, parts=parts)


def cells_csv(cells: Sequence[Cell]) -> str:
    """All cells in full precision; several values in a field are parted by semicolons."""
    frame = pd.DataFrame([_csv_line(cell) for cell in cells])
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
        "half": cell.half,
        "spread": cell.spread,
        "printed": cell.printed,
        "deviations": joined([words.recorded_deviation(one) for one in cell.deviations]),
        "choice": words.choice(cell),
        "repeat": command(cell),
    }


def _readme(text: str, facts: Mapping[str, str]) -> str:
    """The README with its list of notebooks made anew between the two marks."""
    first_claims = {path.stem: first_claim(path) for path in papers.notebooks()}
    marks = re.compile(
        r"(<!-- notebooks: written by `python -m fednb report` -->\n).*(<!-- end -->)", re.DOTALL
    )
    if not marks.search(text):
        raise ReportError(
            "README.md lacks the marks <!-- notebooks: ... --> and <!-- end --> around the list."
        )
    notebooks = fill("readme", first_claims=first_claims, facts=facts)
    return marks.sub(lambda match: f"{match[1]}\n{notebooks}\n{match[2]}", text)


def first_claim(notebook: Path) -> str:
    """The first two sentences behind the word *Claim* in a notebook's text."""
    text = "\n".join(papers.cells(notebook, "markdown"))
    claim = re.search(r"\*\*Claim[^*]*\*\* (.+)", text)
    if claim is None:
        return ""
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z])", claim[1])
    return " ".join(sentences[:2])
