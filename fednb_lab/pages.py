"""All that records make: the report, pages of tables, figures, ``cells.csv``, the README's list.

A sweep of one's own makes a page and a CSV file beside its records.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fednb import ROOT, papers
from fednb import records as ledger
from fednb.errors import ReportError, check
from fednb.leads import MIN_SEEDS
from fednb.records import Record
from fednb_lab import figures, words
from fednb_lab.cells import Cell, cells_of
from fednb_lab.claims import (
    Claim,
    cells_among,
    claims_file,
    claims_of,
    count_words,
)
from fednb_lab.findings import FindingRenderer, headlines, link_to
from fednb_lab.printed import reported_tables
from fednb_lab.sweeps import Table, read_tables
from fednb_lab.tables import command, fill, table_in_full, to_markdown


class Results(NamedTuple):
    """What sweep files ask and records answer."""

    runs: Path  # the folder of the records
    tables: dict[str, Table]
    records: Mapping[Path, Record]
    cells: dict[str, list[Cell]]  # of each table
    claims: dict[str, list[Claim]]  # of each paper whose notebook has tables

    @property
    def every_claim(self) -> list[Claim]:
        """Those of all papers."""
        return list(chain.from_iterable(self.claims.values()))

    @property
    def notebooks(self) -> list[str]:
        """Those that have tables, in their order."""
        return list(dict.fromkeys(table.notebook for table in self.tables.values()))


def read_results(sweeps: Path, runs: Path, records: Mapping[Path, Record] | None = None) -> Results:
    """Read a folder of sweep files and one of records, and judge what the papers claim.

    ``records`` are those of the folder, if they have been read already.
    """
    if records is None:
        records = ledger.load(runs)
    tables = read_tables(sweeps)
    cells = {name: cells_of(table, records) for name, table in tables.items()}
    notebooks = {table.notebook for table in tables.values()}
    claims = {}
    for paper, about in claims_file().papers.items():
        if about.notebook in notebooks:
            claims[paper] = claims_of(paper, cells_among(cells))
    return Results(runs, tables, records, cells, claims)


class Coverage(NamedTuple):
    """Of how many numbers that a paper prints there are runs of ours."""

    printed: int
    measured: int  # by any runs on the same data set, short ones, too
    in_setting: int  # in the paper's own setting
    with_seeds: int  # of these with as many seeds as a word takes


def coverage(
    paper: str, tables: Mapping[str, Table], cells: Mapping[str, Sequence[Cell]]
) -> Coverage:
    """Count the printed numbers of a paper, and those that stand beside measured ones."""
    printed = set()
    for name, reported in reported_tables().items():
        if name.startswith(f"{paper} "):
            lines = reported.cells.items()
            printed |= {(name, *place) for place, line in lines if line.value is not None}
    most_seeds: dict[tuple[str, str, str], int] = {}  # in the paper's setting
    for name, table in tables.items():
        for cell in cells[name]:
            is_itself = not cell.measure.printed and not cell.measure.relative
            place = (table.printed or "", cell.printed_cell.row, cell.column)
            if not cell.values or not is_itself or place not in printed:
                continue
            is_in_setting = not cell.deviations and not cell.notes
            seeds = len(cell.values) if is_in_setting else 0
            most_seeds[place] = max(seeds, most_seeds.get(place, 0))
    in_setting = [seeds for seeds in most_seeds.values() if seeds]
    with_seeds = [seeds for seeds in in_setting if seeds >= MIN_SEEDS]
    return Coverage(len(printed), len(most_seeds), len(in_setting), len(with_seeds))


def coverage_table(results: Results) -> str:
    """Count, for each paper, the words of its claims and what was run of its printed numbers."""
    lines = []
    for paper, claims in results.claims.items():
        counts = {str(word): str(number) for word, number in count_words(claims).items()}
        found = coverage(paper, results.tables, results.cells)
        notebook = claims_file().papers[paper].notebook
        of_paper = {"paper": f"[{paper}](../{place_of(notebook)})", "claims": str(len(claims))}
        of_numbers = {
            "printed numbers": str(found.printed),
            "measured": str(found.measured),
            "in its setting": str(found.in_setting),
            "with three seeds": str(found.with_seeds),
        }
        lines.append(of_paper | counts | of_numbers)
    return to_markdown(lines)


def make_pages(results: Results, out: Path) -> dict[Path, str]:
    """Write the text of each file that results make; of the project's own also the README."""
    files = {}
    for name, figure in figures.claim_figures(results.claims).items():
        files[out / "figures" / f"{name}.svg"] = figure
    link = link_to(results.runs, out / "tables")
    for notebook in results.notebooks:
        tables = [table for table in results.tables.values() if table.notebook == notebook]
        files[out / "tables" / f"{notebook}.md"] = _tables(tables, results.cells, link)
    files[out / "cells.csv"] = cells_csv(results.cells)
    files[out / "REPORT.md"] = _report(results, out)
    if out == ROOT / "results":
        readme = ROOT / "README.md"
        facts = headlines(FindingRenderer(cells_among(results.cells), ROOT))
        files[readme] = _readme(readme.read_text(encoding="utf-8"), facts, results)
    return files


def _report(results: Results, out: Path) -> str:
    """The report, as it stands in a folder."""
    tables = results.tables
    named = {job.path.name for table in tables.values() for job in table.jobs}
    filler = FindingRenderer(cells_among(results.cells), out)

    def page(name: str) -> str:
        return f"tables/{tables[name].notebook}.md#{name}"

    # runs of one's own, in the same folder, are not the project's
    records = [one for path, one in results.records.items() if path.name in named]
    devices = sorted({record.get("device", "unknown") for record in records})
    every_claim = results.every_claim
    # words that would be kinder to the paper if both answers were corrected alike
    changed = [one for one in every_claim if one.word != one.word_if_both_corrected]
    kinder = Counter(str(one.word) for one in changed)
    return fill(
        "REPORT",
        tables=tables,
        num_records=len(records),
        devices=words.in_markdown(", ".join(devices)),
        claims_of=results.claims,
        every_claim=every_claim,
        counts=count_words(every_claim),
        ahead_alone=sum(claim.is_ahead_alone for claim in every_claim),
        kinder=kinder,
        coverage=coverage_table(results),
        described=claims_file().papers,
        place_of=place_of,
        page=page,
        findings=claims_file().findings.values(),
        sentence=filler.sentence,
        fact=filler.fact,
        headline=filler.headline,
    )


def place_of(notebook: str) -> str:
    """Tell where a notebook lies in the project: ``notebooks/extras/tuning.ipynb``."""
    return link_to(papers.path(notebook), ROOT)


def _tables(
    tables: Sequence[Table], cells: Mapping[str, Sequence[Cell]], link: str, *, own: bool = False
) -> str:
    """A page of tables: those with runs in full, with records at ``link``, the others by name."""
    parts = {}
    for table in tables:
        if any(cell.runs for cell in cells[table.name]):
            parts[table.name] = table_in_full(table, cells[table.name], link, page=True)
    return fill("page", tables=tables, parts=parts, own=own)


def cells_csv(cells: Mapping[str, Sequence[Cell]]) -> str:
    """All cells in full precision; several values in a field are parted by semicolons."""
    every_cell = chain.from_iterable(cells.values())
    frame = pd.DataFrame([_csv_line(cell) for cell in every_cell])
    return frame.to_csv(index=False, lineterminator="\n")


def _csv_line(cell: Cell) -> dict[str, Any]:
    def joined(values: Iterable[Any]) -> str:
        return "; ".join(map(str, values))

    line = {
        "table": cell.table,
        "row": cell.row,
        "column": cell.column,
        "measure": cell.measure.name,
        "seeds": joined(cell.seeds),
        "statuses": joined(cell.statuses),
        "paths": joined(run.job.path.name for run in cell.runs),
        "note": joined(cell.notes),
        "remark": joined(cell.remarks),
        "expected": cell.expected,
        "stale": cell.stale,
        "values": joined(cell.values),
        "mean": cell.mean,
        "half": cell.half_width,
        "spread": cell.spread,
        "printed": cell.printed,
        "deviations": joined(cell.deviations),
        "choice": words.choice(cell),
        "repeat": command(cell),
    }
    numbers = ("values",)  # which may begin with a minus
    return {
        name: words.in_csv(one) if isinstance(one, str) and name not in numbers else one
        for name, one in line.items()
    }


def _readme(text: str, facts: Mapping[str, str], results: Results) -> str:
    """The README with its list of notebooks made anew between the two marks."""
    fronts = {path.stem: front(path) for path in papers.notebooks()}
    marks = re.compile(
        r"(<!-- notebooks: written by `fednb report` -->\n).*(<!-- end -->)", re.DOTALL
    )
    notebooks = fill(
        "readme",
        fronts=fronts,
        minutes={path.stem: minutes_to_read(path) for path in papers.notebooks()},
        facts=facts,
        number=len(results.every_claim),
        counted=words.counted(results.every_claim),
        covered={
            claims_file().papers[paper].notebook: coverage(paper, results.tables, results.cells)
            for paper in results.claims
        },
    )
    written, number = marks.subn(lambda match: f"{match[1]}\n{notebooks}\n{match[2]}", text)
    message = "README.md lacks the marks <!-- notebooks: ... --> and <!-- end --> around the list."
    check(number, message, ReportError)
    return written


# ---- pages of one's own sweeps


def own_pages(
    tables: Sequence[Table], cells: Mapping[str, Sequence[Cell]], out: Path | None = None
) -> dict[Path, str]:
    """Write the text of each file that one's own sweep makes: its tables, its cells as CSV."""
    runs = tables[0].jobs[0].path.parent
    folder = out or runs.parent / "tables"
    page = folder / f"{tables[0].file.stem}.md"
    link = link_to(runs, folder)
    text = _tables(tables, cells, link, own=True)
    of_tables = {table.name: cells[table.name] for table in tables}
    return {page: text, page.with_suffix(".csv"): cells_csv(of_tables)}


# ---- what notebooks say of themselves


class Front(NamedTuple):
    """The first lines of a notebook; a text that it does not have is empty."""

    number: str  # such as 01; extras have none
    title: str  # the words before the colon, such as MOON
    venue: str  # and year, such as CVPR 2021
    link: str  # to the paper
    claim: str  # in Markdown, at most two sentences


def front(notebook: Path) -> Front:
    """Read the first lines of a notebook, without executing it."""
    texts = papers.cells(notebook, "markdown")
    heading, *rest = [line for line in texts[0].splitlines() if line.strip()]
    citation = rest[0] if rest else ""  # the line below the title
    number, _, title = heading.removeprefix("# ").rpartition(" · ")
    claim = _found(r"\*\*Claim[^*]*\*\* (.+)", "\n".join(texts))
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z])", claim)
    year = _found(r"\b(20\d\d)\b", citation)
    on_arxiv = f"arXiv {year}" if year else ""
    return Front(
        number=number,
        title=title.partition(":")[0],
        venue=_found(r"\b([A-Z]{3,8} 20\d\d)\b", citation) or on_arxiv,
        link=_found(r"\]\((https?://[^)]+)\)", citation),
        claim=" ".join(sentences[:2]),
    )


def minutes_to_read(notebook: Path) -> int:
    """Estimate it as far as the exercises: a minute for 100 words, or for 2 pictures."""
    minutes = 0.0
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        texts = ["".join(cell["source"])] if cell["cell_type"] == "markdown" else []
        if texts and "**Exercise 1**" in texts[0]:
            break
        for output in cell.get("outputs", []):
            shown = output.get("data", {})
            texts.append("".join(shown.get("text/markdown", "")))
            minutes += ("image/png" in shown) / 2
        minutes += len(" ".join(texts).split()) / 100
    return round(minutes)


def _found(pattern: str, text: str) -> str:
    """What the pattern's group holds; empty where it is not found."""
    match = re.search(pattern, text)
    return match[1] if match else ""
