"""Pages from records: tables, claims, the report, the list in the README, and what notebooks show of them.

What is told is gathered here; how it is worded and laid out stands in ``templates/``.
"""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jinja2
import pandas as pd

from fednb import ROOT, papers
from fednb.experiments import ledger, sweep
from fednb.reporting import comparisons, statistics
from fednb.reporting.comparisons import SIDE, Claim, in_words
from fednb.reporting.metrics import ReportError, measure
from fednb.reporting.reported import original
from fednb.reporting.tables import Cell, cells_of, cells_of_tables, committed, recorded, table_of

if TYPE_CHECKING:
    from IPython.display import Markdown

Line = dict[str, str]  # of a table: what stands in its columns


@functools.cache
def _templates() -> jinja2.Environment:
    loader, blocks = jinja2.PackageLoader("fednb.reporting"), {"trim_blocks": True, "lstrip_blocks": True}
    made = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, keep_trailing_newline=True, **blocks)
    told = (command, measure, measured, original, recorded, runs_of, tally)
    made.globals |= {one.__name__: one for one in told} | {"statistics": statistics}
    return made


def _fill(template: str, **values: Any) -> str:
    return _templates().get_template(template).render(values)


# --- words ------------------------------------------------------------------------------------------------------------


def tally(words: Iterable[str]) -> str:
    """How often there is which word, such as ``3 smaller, 1 reversed``."""
    return ", ".join(f"{n} {word}" for word, n in Counter(words).most_common())


def measured(cell: Cell) -> str:
    """Mean with its ±; or median and range, where some runs may never get there."""
    text, several = cell.of.text(cell.mean, cell.bounds), len(cell.values) > 1
    if cell.of.bound and len(set(cell.values)) > 1:
        return f"{text} ({' to '.join(cell.of.text(end(cell.values), cell.bounds) for end in (min, max))})"
    return text + (f" ± {cell.half:.{cell.of.decimals}f}" if several and not cell.of.bound else "")


def command(cell: Cell) -> str:
    """The one line that makes the first run of a cell again: with the sweep's parameters, all of which the notebook has."""
    given = {"method": cell.job.settings.method, "dataset": cell.job.settings.dataset} | cell.job.parameters
    words = [f"{name}={value}" for name, value in given.items() if value is not None and name != "seed"]
    return f"python -m fednb run {cell.job.notebook} {' '.join(words)} seed={cell.seeds[0]}"


def by_rows(found: Sequence[Cell], texts: Callable[[Cell], Iterable[str]]) -> str:
    """What holds for the cells of a table, each thing said once, and of which rows unless it is all."""
    size, who = Counter(cell.row for cell in found), {}
    for cell in found:
        for text in filter(None, texts(cell)):
            who.setdefault(text, []).append(cell)
    alike: dict[tuple[str, ...], list[str]] = {}
    for text, cells in who.items():
        of = Counter(cell.row for cell in cells)
        names = (cell.row if of[cell.row] == size[cell.row] else f"{cell.row} | {cell.column}" for cell in cells)
        alike.setdefault(tuple(dict.fromkeys(names)), []).append(text)
    told = []
    for names, some in alike.items():
        rest = [row for row in size if row not in names]
        which = f" ({'; '.join(names)})" if len(names) <= len(rest) else f" (all but {'; '.join(rest)})"
        told.append(", ".join(some) + which * bool(rest))
    return "; ".join(told)


def grid(lines: Sequence[Line]) -> str:
    """A table in Markdown, without columns in which nothing stands; numbers are to the right."""
    frame = pd.DataFrame(lines).fillna("")
    frame = frame.loc[:, frame.astype(bool).any()]
    number = re.compile(r"[-+<>]? ?\d[\d.]*( ±.*| \(.*)?|")
    rule = ["--:" if all(map(number.fullmatch, frame[name])) else ":--" for name in frame]
    return "\n".join(f"| {' | '.join(line)} |" for line in (frame.columns, rule, *frame.to_numpy().tolist()))


# --- tables -----------------------------------------------------------------------------------------------------------


def lines(table: sweep.Table, found: Sequence[Cell], link: str = "") -> list[Line]:
    """A line for each cell: printed, measured, the gap to what the table compares with, and the verdict.

    Seeds lead to the records if these are at ``link``.
    """
    base, compared = comparisons.gaps(table, found)
    several, made = len({cell.column for cell in found}) > 1, []
    for cell in found:
        printed, _, std = cell.place.text.partition(" ± ")
        finding, gap = compared.get((cell.row, cell.column)), None
        if finding and None not in (cell.printed, finding.behind.printed):
            gap = cell.printed - finding.behind.printed
        on_value, on_gap = cell.verdict if cell.values else "", finding.verdict(gap) if finding else ""
        both = on_value and on_gap and not on_value.startswith("indicative")
        made.append(
            {
                table.rows.parameter.replace("_", " "): cell.row,
                table.columns.parameter.replace("_", " "): cell.column if several else "",
                "printed": printed,
                "paper's ±": std,
                "measured": measured(cell),
                "over clients": f"{cell.spread:.1f}" if cell.of.judged and cell.spread is not None else "",
                "seeds": _seeds(cell, link),
                f"gap to {base}, printed": "" if gap is None else f"{gap:+z.1f}",
                f"gap to {base}, measured": statistics.told(finding.lead) if finding else "",
                "verdict": f"{on_value}; gap: {on_gap}" if both else on_gap or on_value,
            }
        )
    return made


def _seeds(cell: Cell, link: str) -> str:
    told = []
    for run in sorted(cell.runs, key=lambda run: run.job.settings.seed):
        text = f"{run.job.settings.seed}{'' if run.state == 'finished' else f' ({run.state})'}"
        told.append(f"[{text}]({link}/{run.path.name})" if link else text)
    return (" " if link else ", ").join(told)


def heart(table: sweep.Table, found: Sequence[Cell]) -> list[Cell]:
    """The cells of a table; of runs that are read in several ways those of the accuracy."""
    columns = list(dict.fromkeys(cell.column for cell in found)) if table.columns.measures else []
    chosen = [column for column in columns if table.measure_of(column) == "accuracy"] or columns
    return [cell for cell in found if not chosen or cell.column == chosen[0]]


def wide(table: sweep.Table, found: Sequence[Cell], link: str) -> list[Line]:
    """The lines of a table whose columns have measures of their own: a row in each, below what is printed there."""
    name, several, made = table.rows.parameter, any(cell.place.text for cell in found), []
    for line in lines(table, heart(table, found), link):
        cells = [cell for cell in found if cell.row == line[name]]
        if any(cell.place.text for cell in cells):
            made.append({name: line[name], "": "printed"} | {cell.column: cell.place.text for cell in cells})
        own = {"": "measured" * several} | {cell.column: measured(cell) for cell in cells}
        made.append({name: line[name]} | own | {key: line[key] for key in ("over clients", "verdict", "seeds")})
    return made


def notes(table: sweep.Table, found: Sequence[Cell]) -> list[str]:
    """What has to be known of a table's cells, each thing said once."""
    flat = [job.settings.flat() for job in table.jobs]
    # what a table without an original varies is told by its rows and columns
    seen = set() if table.printed else {n for own in flat for n in own if len({str(o[n]) for o in flat if n in o}) > 1}

    def chosen(cell: Cell) -> Iterable[str]:
        if cell.choice:
            name, value, compared, of = cell.choice
            rest = "" if compared == of else f" (of {of}; the others are not there)"
            yield f"{name.replace('_', ' ')} {value} is shown, the best of {compared} values{rest}, chosen on the test set"

    kinds: dict[str, Callable[[Cell], Iterable[str]]] = {
        "Reduced": lambda cell: (in_words(text) for text in cell.deviations if text.split(" ")[0] not in seen),
        "Of this the paper says nothing": lambda cell: (text.replace("_", " ") for text in cell.not_stated),
        "Not the published data": lambda cell: [cell.data("note")],
        "Of the data": lambda cell: [cell.data("remark")],
        "Tuned": chosen,
        "Never got there": lambda cell: [f"{len(cell.bounds)} of {len(cell.values)} runs"] * bool(cell.bounds),
    }
    told = {kind: by_rows(found, texts) for kind, texts in kinds.items()}
    if any(cell.place.std is not None for cell in found):
        told["The paper's ±"] = original(table.printed)["", ""]["std_is"].rstrip(".")
    rules = dict.fromkeys(cell.of.rule for cell in found if cell.of.rule)
    return [f"{kind}: {text}." for kind, text in told.items() if text] + list(rules)


def markdown(table: sweep.Table, found: Sequence[Cell], link: str, *, page: bool = False) -> str:
    """The table for readers: printed and measured values side by side, and in words what they mean.

    The records are at ``link``, seen from where the text will stand. On a ``page`` it has a heading, and the commands that
    make its runs again.
    """
    some = [cell for cell in found if cell.runs] or list(found)
    made = grid((wide if table.columns.measures else lines)(table, some, link))
    return _fill("table.md.j2", table=table, found=found, some=some, page=page, grid=made, notes=notes(table, some))


def frame(found: Iterable[Cell]) -> pd.DataFrame:
    """Cells as data in full precision: what stands in ``results/cells.csv``."""
    names = (
        "table row column measure printed mean half spread verdict values seeds statuses expected stale deviations choice"
    )
    told = []
    for cell in found:
        line = {name: getattr(cell, name) for name in names.split()} | {"paths": [path.name for path in cell.paths]}
        line |= {"note": cell.data("note"), "tier": cell.job.tier, "repeat": command(cell) if cell.runs else ""}
        told.append({name: "; ".join(map(str, v)) if isinstance(v, tuple | list) else v for name, v in line.items()})
    return pd.DataFrame(told)


# --- in notebooks, from the committed records, so that a test run prints the same --------------------------------------


def _shown(text: str) -> Markdown:
    from IPython.display import Markdown  # a report needs none

    return Markdown(text)


def _results() -> str:
    """The results, as seen from the notebook that is running."""
    here = Path.cwd() if Path.cwd().is_relative_to(ROOT / "notebooks") else ROOT / "notebooks"
    return os.path.relpath(ROOT / "results", here).replace(os.sep, "/")


def _page(name: str) -> str:
    return f"{_results()}/tables/{table_of(name).notebook}.md#{name}"


def show(name: str) -> Markdown:
    """Table ``name`` of the sweep files in full."""
    return _shown(markdown(table_of(name), cells_of(name), f"{_results()}/runs"))


def compact(name: str, rows: Sequence[str] | None = None) -> Markdown:
    """The heart of table ``name``: printed, measured, the gap to FedAvg or what it compares with, and the verdict.

    ``rows`` chooses some by their names.
    """
    table, found = table_of(name), cells_of(name)
    for row in rows or ():
        comparisons.cell_at(found, row, found[0].column)  # which says what there is
    every = heart(table, [cell for cell in found if cell.runs])
    some = [cell for cell in every if rows is None or cell.row in rows]
    told = [line for line, cell in zip(lines(table, every) if every else (), every, strict=True) if cell in some]
    alike = len({line["seeds"] for line in told}) == 1
    shown = [{key: line[key] for key in line if key != "paper's ±" and not (alike and key == "seeds")} for line in told]
    reduced = [note for note in notes(table, some) if note.startswith("Reduced")]
    values = {"seeds": told[0]["seeds"] if alike else "", "notes": reduced, "page": _page(name)}
    return _shown(_fill("compact.md.j2", table=table, grid=grid(shown) if shown else "", **values))


def claims(paper: str) -> Markdown:
    """The claims of a paper: printed, measured, on which runs, verdict."""
    return _shown(_fill("claims.md.j2", claims=comparisons.claims_of(paper), page=_page))


def overview(names: Iterable[str]) -> Markdown:
    """What is recorded of some tables, a line each."""
    tables = {f"[{name}]({_page(name)})": table_of(name) for name in names}
    told = ((link, table.title, "{} of {}".format(*recorded(table, committed()))) for link, table in tables.items())
    return _shown(grid([dict(zip(("table", "what", "runs recorded"), line, strict=True)) for line in told]))


# --- all of it --------------------------------------------------------------------------------------------------------


class Results(NamedTuple):
    """Tables, their cells, the claims of the papers whose notebooks they are of, and the records, with their folder."""

    tables: Mapping[str, sweep.Table]
    found: Mapping[str, Sequence[Cell]]
    claims: Mapping[str, Sequence[Claim]]
    ledger: pd.DataFrame
    folder: Path

    def of(self, notebook: str) -> list[sweep.Table]:
        """The tables of a notebook."""
        return [table for table in self.tables.values() if table.notebook == notebook]

    def page(self, name: str) -> str:
        """Where a table stands, seen from the report."""
        return f"tables/{self.tables[name].notebook}.md#{name}"


def runs_of(results: Results, notebook: str) -> str:
    """How many of a notebook's runs are recorded, each counted once however many tables read it."""
    tables = results.of(notebook)
    done = {path.name for table in tables for cell in results.found[table.name] for path in cell.paths}
    return f"{len(done)} of {len({job.path.name for table in tables for job in table.jobs})}"


def read(sweeps: Path, folder: Path | None = None) -> Results:
    """The tables of the sweep files with their cells, each made once; by default from `ledger.runs_folder`."""
    folder = folder or ledger.runs_folder()
    tables, records = sweep.read(sweeps), ledger.load(folder)
    found, notebooks = cells_of_tables(tables.values(), records), {table.notebook for table in tables.values()}
    about = [paper for paper, told in comparisons.described().items() if paper != SIDE and told["notebook"] in notebooks]
    return Results(tables, found, {paper: comparisons.claims_of(paper, found) for paper in about}, records, folder)


def write_all(results: Results, out: Path) -> list[Path]:
    """Write ``tables/NOTEBOOK.md``, ``figures/``, ``cells.csv`` and ``REPORT.md``; returns what was written.

    Among the project's own results also the list of notebooks in its README.
    """
    from fednb.reporting import plots  # whose import takes a second

    found, files = (
        results.found,
        {out / "figures" / f"{name}.svg": text for name, text in plots.figures(results.claims).items()},
    )
    link = os.path.relpath(results.folder, out / "tables").replace(os.sep, "/")
    for notebook in dict.fromkeys(table.notebook for table in results.tables.values()):
        own = results.of(notebook)
        some = [table for table in own if any(cell.runs for cell in found[table.name])]
        parts = {table.name: markdown(table, found[table.name], link, page=True) for table in some}
        files[out / "tables" / f"{notebook}.md"] = _fill("page.md.j2", notebook=notebook, tables=own, parts=parts)
    files[out / "cells.csv"] = frame(cell for cells in found.values() for cell in cells).to_csv(
        index=False, lineterminator="\n"
    )
    files[out / "REPORT.md"] = report(results)
    if out == ROOT / "results":
        files[ROOT / "README.md"] = readme((ROOT / "README.md").read_text(encoding="utf-8"), results)
    for path, content in files.items():
        ledger.write_atomically(path, content)
    return list(files)


def _about(results: Results) -> dict[str, Any]:
    side = comparisons.described()[SIDE]
    compared = comparisons.side_by_side(results.found) if results.of(side["notebook"]) else {}
    return {"results": results, "described": comparisons.described(), "side": side, "compared": compared}


def report(results: Results) -> str:
    """``REPORT.md``: what was found, in sentences; every claim; all methods side by side; how to read it."""

    def cell(table: str, row: str, column: str | None = None) -> Cell:
        return comparisons.cell_at(results.found[table], row, column)

    def lead(table: str, *rows: str) -> str:
        return comparisons.lead(results.tables[table], *rows, ledger=results.ledger)

    def insights(paper: str) -> list[str]:  # the sentences of `claims.yaml`, filled in from the records
        texts = map(_templates().from_string, comparisons.described()[paper].get("found", ()))
        return [text.render(cell=cell, lead=lead) for text in texts]

    return _fill("REPORT.md.j2", insights=insights, **_about(results))


def readme(text: str, results: Results) -> str:
    """The project's README with its list of notebooks and what was found written anew between the two marks.

    A notebook's claim stands there with its first two sentences.
    """
    told = {}
    for path in papers.notebooks():
        claim = re.search(r"\*\*Claim[^*]*\*\* (.+)", "\n".join(papers.cells(path, "markdown")))
        told[path.stem] = " ".join(re.split(r"(?<=[.!?])\s+(?=[A-Z])", claim[1])[:2]) if claim else ""
    begin, end = "<!-- notebooks: written by `python -m fednb report` -->\n", "<!-- end -->"
    if begin not in text or end not in text:
        raise ReportError(f"README.md lacks the marks {begin.strip()} and {end}, between which the notebooks are listed.")
    before, rest = text.split(begin, 1)
    return f"{before}{begin}\n{_fill('readme.md.j2', told=told, **_about(results))}\n{end}{rest.split(end, 1)[1]}"
