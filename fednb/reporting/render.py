"""Pages from records, and what notebooks show of them; how it is worded and laid out stands in ``templates/``."""

import functools
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from IPython.display import Markdown

from fednb import ROOT, papers
from fednb.errors import ReportError, require_known
from fednb.experiments import ledger
from fednb.reporting import comparisons, statistics
from fednb.reporting.comparisons import SIDE, Claim, in_words
from fednb.reporting.metrics import measure
from fednb.reporting.tables import Cell, cells_of, original, table_of
from fednb.sweeps import files as sweep_files
from fednb.sweeps.table import Table


def measured(cell: Cell) -> str:
    """Mean with its ±; or median and range, where some runs may never get there; or that the runs diverged."""
    text, several = (
        cell.of.text(cell.mean) or "diverged" * ("diverged" in cell.statuses),
        len(set(cell.values)) > 1,
    )
    if cell.of.median and several:
        return f"{text} ({cell.of.text(min(cell.values))} to {cell.of.text(max(cell.values))})"
    return text + (
        f" ± {cell.half:.{cell.of.decimals}f}"
        if len(cell.values) > 1 and not cell.of.median
        else ""
    )


def command(cell: Cell) -> str:
    """The one line that makes the first run of a cell again: with the sweep's parameters, all of which the notebook has."""
    given = {
        "method": cell.job.settings.method,
        "dataset": cell.job.settings.dataset,
    } | cell.job.parameters
    words = [
        f"{name}={value}" for name, value in given.items() if value is not None and name != "seed"
    ]
    return f"python -m fednb run {cell.job.notebook} {' '.join(words)} seed={(cell.seeds or [cell.job.settings.seed])[0]}"


def by_rows(found: Sequence[Cell], name: str) -> str:
    """What holds for the cells of a table (their ``deviations``, say), each once, and of which rows unless it is all."""
    size, told, alike = Counter(cell.row for cell in found), {}, {}
    for cell in found:
        texts = (
            map(in_words, cell.deviations)
            if name == "deviations"
            else [getattr(cell, name).replace("_", " ")]
        )
        for text in filter(None, texts):
            told.setdefault(text, []).append(cell)
    for text, cells in told.items():
        count = Counter(cell.row for cell in cells)
        names = (
            cell.row if count[cell.row] == size[cell.row] else f"{cell.row} | {cell.column}"
            for cell in cells
        )
        alike.setdefault("; ".join(dict.fromkeys(names)), []).append(text)
    return "; ".join(
        ", ".join(some) + f" ({rows})" * (rows != "; ".join(size)) for rows, some in alike.items()
    )


def tally(claims: Iterable[Claim]) -> str:
    """How often there is which verdict, such as ``3 smaller, 1 reversed``."""
    return ", ".join(
        f"{n} {word}"
        for word, n in Counter(statistics.word(one.verdict) for one in claims).most_common()
    )


def grid(frame: pd.DataFrame) -> str:
    """A table in Markdown, without columns in which nothing stands; numbers are to the right."""
    frame = frame.fillna("").loc[:, lambda frame: frame.astype(bool).any()]
    rule = [
        "--:" if frame[name].str.fullmatch(r"([-+]?\d.*|diverged)?").all() else ":--"
        for name in frame
    ]
    return "\n".join(
        f"| {' | '.join(line)} |" for line in [[*frame], rule, *frame.to_numpy().tolist()]
    )


def lines(table: Table, found: Sequence[Cell], link: str = "") -> pd.DataFrame:
    """A line for each cell, or its accuracy if it is read in several ways; seeds lead to records that are at ``link``."""
    if table.columns.measures:
        chosen = next((cell for cell in found if cell.measure == "accuracy"), found[0]).column
        found = [cell for cell in found if cell.column == chosen]
    (base, compared), made = comparisons.gaps(table, found), []
    for cell in found:
        finding, seeds = compared.get((cell.row, cell.column)), []
        for seed, status, path in zip(cell.seeds, cell.statuses, cell.paths, strict=True):
            text = f"{seed}" if status == "finished" else f"{seed} ({status})"
            seeds.append(f"[{text}]({link}/{path.name})" if link else text)
        gap = finding.printed if finding else None
        on_gap = finding.verdict(gap) if finding else ""
        both = cell.verdict and on_gap and not cell.verdict.startswith("indicative")
        value, _, paper_half = cell.place.text.partition(" ± ")
        line = {"row": cell.row, "column": cell.column, "printed": value, "paper's ±": paper_half}
        line["measured"] = measured(cell)
        line["over clients"] = (
            f"{cell.spread:.1f}" if cell.of.judged and cell.spread is not None else ""
        )
        line["seeds"] = " ".join(seeds)
        line[f"gap to {base}, printed"] = "" if gap is None else f"{gap:+z.1f}"
        line[f"gap to {base}, measured"] = (
            statistics.told(finding.lead) if finding and not finding.diverged else ""
        )
        line["verdict"] = f"{cell.verdict}; gap: {on_gap}" if both else on_gap or cell.verdict
        made.append(line)
    frame = pd.DataFrame(made)
    names = {
        "row": table.rows.parameter.replace("_", " "),
        "column": table.columns.parameter.replace("_", " "),
    }
    several = {table.columns.name(job) for job in table.jobs if not table.columns.measures}
    return (frame if len(several) > 1 else frame.drop(columns="column")).rename(columns=names)


def markdown(table: Table, found: Sequence[Cell], link: str = "", *, page: bool = False) -> str:
    """The table in full, its records at ``link``; on a ``page`` with a heading and the commands that make its runs again."""
    some = [cell for cell in found if cell.runs] or list(found)
    told = lines(table, some, link)
    if table.columns.measures:  # a row in each line, below what is printed there
        row, made = told.columns[0], []
        for name, line in told.set_index(row).iterrows():
            cells = [cell for cell in some if cell.row == name]
            if any(cell.place.text for cell in cells):
                made.append(
                    {row: name, "": "printed"} | {cell.column: cell.place.text for cell in cells}
                )
            own = {row: name, "": "measured" if table.printed else ""} | {
                cell.column: measured(cell) for cell in cells
            }
            made.append(own | line.reindex(["over clients", "verdict", "seeds"]).to_dict())
        told = pd.DataFrame(made)
    return _fill("table", table=table, found=found, some=some, page=page, grid=grid(told))


def _page(name: str) -> str:
    """Where the page of a table is, as seen from the notebook that is running."""
    here = Path.cwd() if Path.cwd().is_relative_to(ROOT / "notebooks") else ROOT / "notebooks"
    page = ROOT / "results" / "tables" / f"{table_of(name).notebook}.md"
    return f"{os.path.relpath(page, here).replace(os.sep, '/')}#{name}"


def compact(name: str, rows: Sequence[str] | None = None) -> Markdown:
    """The heart of table ``name``, or of some ``rows``: printed, measured, the gap and the verdict."""
    table, found = table_of(name), cells_of(name)
    known, some = dict.fromkeys(cell.row for cell in found), [cell for cell in found if cell.runs]
    for row in rows or ():
        require_known(f"{name} has no row", row, known, ReportError)
    told = lines(table, some).drop(columns="paper's ±") if some else pd.DataFrame({"seeds": []})
    if rows is not None:
        told, some = told[told.iloc[:, 0].isin(rows)], [cell for cell in some if cell.row in rows]
    seeds = told["seeds"].iloc[0] if told["seeds"].nunique() == 1 else ""
    shown = grid(told.drop(columns="seeds") if seeds else told) if some else ""
    return Markdown(
        _fill("compact", table=table, some=some, page=_page(name), grid=shown, seeds=seeds)
    )


def claims(paper: str) -> Markdown:
    """The claims of a paper: printed, measured, on which runs, verdict."""
    return Markdown(_fill("claims", claims=comparisons.claims_of(paper), page=_page))


@functools.cache
def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("fednb.reporting"), undefined=jinja2.StrictUndefined
    )
    made.trim_blocks = made.lstrip_blocks = made.keep_trailing_newline = True
    known = (by_rows, command, measure, measured, original, tally)
    made.globals |= {one.__name__: one for one in known} | {"statistics": statistics}
    return made


def _fill(template: str, **values: Any) -> str:
    return _templates().get_template(f"{template}.md.j2").render(values)


def pages(sweeps: Path, folder: Path, out: Path) -> dict[Path, str]:
    """By path what sweep files and records make: pages, figures, ``cells.csv``; of the project's own also the README."""
    from fednb.reporting import plots  # whose import takes a second

    tables, records = sweep_files.read_tables(sweeps), ledger.load(folder)
    found = {name: cells_of(table, records) for name, table in tables.items()}
    notebooks = dict.fromkeys(table.notebook for table in tables.values())
    described = comparisons.described()
    about = [
        paper
        for paper, told in described.items()
        if paper != SIDE and told["notebook"] in notebooks
    ]
    told = {paper: comparisons.claims_of(paper, found) for paper in about}
    files = {out / "figures" / f"{name}.svg": text for name, text in plots.figures(told).items()}
    link = os.path.relpath(folder, out / "tables").replace(os.sep, "/")
    for notebook in notebooks:
        own = [table for table in tables.values() if table.notebook == notebook]
        some = [table for table in own if any(cell.runs for cell in found[table.name])]
        parts = {table.name: markdown(table, found[table.name], link, page=True) for table in some}
        files[out / "tables" / f"{notebook}.md"] = _fill(
            "page", notebook=notebook, tables=own, parts=parts
        )
    every = [vars(cell) | {"repeat": command(cell)} for cells in found.values() for cell in cells]
    frame = pd.DataFrame(every).drop(
        columns=["job", "runs", "told", "label", "place", "of", "by_pair"]
    )
    frame["paths"] = [[path.name for path in paths] for paths in frame["paths"]]
    frame = frame.map(
        lambda value: "; ".join(map(str, value)) if isinstance(value, tuple | list) else value
    )
    files[out / "cells.csv"] = frame.to_csv(index=False, lineterminator="\n")

    def fill(text: str) -> str:  # the sentences of claims.yaml, with what was measured
        known = {"cell": lambda table, *at: comparisons.cell_at(found[table], *at)}
        known["lead"] = lambda name, *at: comparisons.lead(
            tables[name], *at, ledger=records
        ).partition(": ")[0]
        try:
            return _templates().from_string(text).render(known)
        except (jinja2.TemplateError, KeyError) as error:
            raise ReportError(f"data/claims.yaml: there is no {error} for {text[:60]!r}") from error

    side = comparisons.side_by_side(found) if described[SIDE]["notebook"] in notebooks else {}
    about = {
        "tables": tables,
        "records": records,
        "claims_of": told,
        "described": described,
        "side": described[SIDE],
    }
    about |= {
        "compared": side,
        "page": lambda name: f"tables/{tables[name].notebook}.md#{name}",
        "fill": fill,
    }
    files[out / "REPORT.md"] = _fill("REPORT", **about)
    if out == ROOT / "results":
        files[ROOT / "README.md"] = _readme((ROOT / "README.md").read_text(encoding="utf-8"), about)
    return files


def _readme(text: str, about: dict[str, Any]) -> str:
    """The README with its list of notebooks made anew between the two marks: a notebook's claim in two sentences."""
    claims = {}
    for path in papers.notebooks():
        claim = re.search(r"\*\*Claim[^*]*\*\* (.+)", "\n".join(papers.cells(path, "markdown")))
        claims[path.stem] = (
            " ".join(re.split(r"(?<=[.!?])\s+(?=[A-Z])", claim[1])[:2]) if claim else ""
        )
    marks = re.compile(
        r"(<!-- notebooks: written by `python -m fednb report` -->\n).*(<!-- end -->)", re.DOTALL
    )
    if not marks.search(text):
        raise ReportError(
            "README.md lacks the marks <!-- notebooks: ... --> and <!-- end --> around the list of notebooks."
        )
    return marks.sub(
        lambda found: f"{found[1]}\n{_fill('readme', claims=claims, **about)}\n{found[2]}", text
    )
