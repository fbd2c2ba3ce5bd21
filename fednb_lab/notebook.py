"""What notebooks ask for: cells, printed numbers, tables and claims as Markdown, leads in words."""

from collections.abc import Sequence
from pathlib import Path

from IPython.display import Markdown

from fednb import ROOT
from fednb.errors import ReportError, require_known
from fednb_lab import leads as statistics  # notebooks ask here
from fednb_lab import words
from fednb_lab.cells import (
    Ledger,
    TableOrName,
    cells_of,
    committed,
    is_own_file,
    table_of,
)
from fednb_lab.claims import claims_file, claims_of
from fednb_lab.comparisons import compare_at
from fednb_lab.findings import Filler
from fednb_lab.markdown import (
    claims_table,
    deviations,
    fill,
    link_to,
    row_title,
    table_rows,
    to_markdown,
)
from fednb_lab.pages import page_of
from fednb_lab.printed import printed, shared_numbers


def lead(
    table: TableOrName, a: str, b: str, column: str | None = None, *, ledger: Ledger = None
) -> str:
    """How far row ``a`` is ahead of row ``b``, as in ``+1.0 ± 0.4 points over 3 seeds``."""
    return words.lead_over_seeds(compare_at(cells_of(table, ledger), a, b, column))


def finding(*names: str) -> Markdown:
    """Findings of ``data/claims.yaml``, with the numbers of the committed records."""
    findings = claims_file().findings
    filler = Filler(cells_of, _folder())
    sentences = []
    for name in names:
        require_known("There is no finding", name, findings, ReportError)
        sentences.append(filler.sentence(findings[name]))
    return Markdown("\n\n".join(sentences))


def compact(name: str, rows: Sequence[str] | None = None) -> Markdown:
    """The heart of a table, or of some ``rows``: printed, measured, leads.

    ``name`` may be a sweep file of one's own, ``my.yaml`` or ``my.yaml:TABLE``.
    """
    table = table_of(name)
    cells = cells_of(name)
    known = dict.fromkeys(cell.row for cell in cells)
    for row in rows or ():
        require_known(f"{name} has no row", row, known, ReportError)
    shown = [cell for cell in cells if cell.runs]
    lines = table_rows(table, shown) if shown else []
    if rows is not None:
        lines = [line for line in lines if line[row_title(table)] in rows]
        shown = [cell for cell in shown if cell.row in rows]
    seeds = {line["seeds"] for line in lines}
    seeds_of_all = seeds.pop() if len(seeds) == 1 else ""
    for line in lines:
        del line["paper's ±"]
        if seeds_of_all:  # they stand below the table
            del line["seeds"]
    values = {
        "grid": to_markdown(lines) if shown else "",
        "reduced": deviations(shown) if table.printed else "",
        "seeds": seeds_of_all,
        "seeds_differ": len({cell.seeds for cell in shown}) > 1,
    }
    return Markdown(fill("compact", table=table, page=_page(name), **values))


def claims(paper: str, *, main: bool = False) -> Markdown:
    """The claims of a paper, or its main ones: printed, measured, on which runs, and a verdict."""
    found = [claim for claim in claims_of(paper) if claim.entry.main or not main]
    return Markdown(claims_table(found, _page))


def _page(name: str) -> str:
    """Where the page of a table is, as seen from the notebook that is running."""
    table = table_of(name)
    if is_own_file(name):
        page, folder = page_of(table), Path.cwd()
    else:
        page, folder = ROOT / "results" / "tables" / f"{table.notebook}.md", _folder()
    return f"{link_to(page, folder)}#{table.name}"


def _folder() -> Path:
    """Of the notebook that is running."""
    here = Path.cwd()
    return here if here.is_relative_to(ROOT / "notebooks") else ROOT / "notebooks"
