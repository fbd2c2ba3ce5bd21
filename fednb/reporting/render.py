"""Pages from records: the tables of each notebook, all cells as one file, the reproduction report, what notebooks show.

What is told is gathered here; how it is worded and laid out stands in ``templates/``.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jinja2
import pandas as pd
import yaml

from fednb import ROOT, papers
from fednb.experiments import ledger, sweep
from fednb.reporting import claims, plots
from fednb.reporting.metrics import ReportError
from fednb.reporting.reported import original
from fednb.reporting.statistics import LEVEL, MIN_SEEDS
from fednb.reporting.tables import WITHIN_POINTS, Cell, cells_of, cells_of_tables, committed, recorded, table_of

if TYPE_CHECKING:
    from IPython.display import Markdown

TEMPLATES = Path(__file__).parent / "templates"
# what counts something reads better as "20 rounds" than as "num_rounds 20"
_COUNTED = {"num_rounds": "rounds", "local_epochs": "local epochs", "num_clients": "clients", "batch_size": "images a batch"}
_COUNTED |= {"local_steps": "local steps", "test_per_domain": "test images of each domain"}

# --- words ------------------------------------------------------------------------------------------------------------


def in_words(deviation: str) -> str:
    """One of `settings.deviations` for readers."""
    name, value, rest = deviation.split(" ", 2)
    if name == "validation":
        return f"{float(value):.0%} of the training images held out"
    if name == "keep_last":
        return f"the last incomplete batch of an epoch {'trained on' if value == 'True' else 'dropped'}"
    if name in _COUNTED:
        return f"{value} {_COUNTED[name].removesuffix('s') if value == '1' else _COUNTED[name]} {rest}"
    return f"{name.replace('_', ' ')} {value} {rest}"


def signed(value: float) -> str:
    """With one decimal, and without a minus before 0.0."""
    return f"{round(value, 1) + 0:+.1f}"


def level(value: float | None) -> str:
    """Rounded down, so that no level reads as one that it does not reach."""
    if value is None or math.isnan(value):
        return ""
    return "> 99.9%" if value > 0.999 else f"{math.floor(1000 * value + 1e-9) / 1000:.1%}"


def tally(verdicts: Iterable[str]) -> str:
    """How often there is which verdict, such as ``3 reproduced, 1 off``."""
    kinds = Counter(verdict.split(" by ")[0] for verdict in verdicts if verdict)
    return ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())


def here(cell: Cell) -> str:
    """Mean and standard deviation; or median and range, where some runs may never get there."""
    text = cell.of.text(cell.mean, cell.bounds)
    if cell.of.bound and len(set(cell.values)) > 1:
        text += " ({} to {})".format(*(cell.of.text(end(cell.values), cell.bounds) for end in (min, max)))
    return text + ("" if cell.std is None else f" ± {cell.std:.{cell.of.decimals}f}")


def seeds(cell: Cell) -> str:
    """How many of its runs are recorded, and what became of those that have not finished."""
    bad = [f"{n} {kind}" for kind, n in Counter(cell.statuses).items() if kind != "finished"]
    return ", ".join([f"{len(cell.statuses)} of {cell.expected}", *bad])


def command(cell: Cell) -> str:
    """The one line that makes the first run of a cell again: with the sweep's parameters, all of which the notebook has."""
    given = {"method": cell.job.settings.method, "dataset": cell.job.settings.dataset} | cell.job.parameters
    words = [f"{name}={value}" for name, value in given.items() if value is not None and name != "seed"]
    return f"python -m fednb run {cell.job.notebook} {' '.join(words)} seed={cell.seeds[0]}"


def by_cell(found: Sequence[Cell], text: Callable[[Cell], str]) -> list[str]:
    """What holds for cells, each thing said once: of all runs, of whole rows, or of single cells."""
    texts = {(cell.row, cell.column): text(cell).strip() for cell in found}
    if len(set(texts.values())) == 1:
        return [f"All runs: {one}." for one in set(texts.values()) if one]
    who: dict[str, dict[str, None]] = {}
    for (row, column), one in texts.items():
        alike = len({other for (of, _), other in texts.items() if of == row}) == 1
        who.setdefault(one, {})[row if alike else f"{row} ({column})"] = None
    return [f"{('; ' if any(', ' in n for n in names) else ', ').join(names)}: {one}." for one, names in who.items() if one]


def words_of(measure: str) -> str:
    """What a measure is, in words."""
    return _measures()["words"]["accuracy in DOMAIN" if measure.startswith("accuracy in ") else measure]


@functools.cache
def _measures() -> dict[str, Any]:
    return yaml.safe_load((TEMPLATES / "measures.yaml").read_text(encoding="utf-8"))


@functools.cache
def _templates() -> jinja2.Environment:
    loader, blocks = jinja2.FileSystemLoader(TEMPLATES), {"trim_blocks": True, "lstrip_blocks": True}
    made = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, keep_trailing_newline=True, **blocks)
    told = (in_words, signed, level, tally, here, seeds, command, by_cell, words_of, recorded, original)
    made.globals |= {one.__name__: one for one in told} | {"claims": claims, "rules": _measures()["rules"]}
    made.globals |= {"LEVEL": f"{LEVEL:.0%}", "MISSED": f"{1 - LEVEL:.0%}"}
    made.globals |= {"MIN_SEEDS": MIN_SEEDS, "WITHIN_POINTS": WITHIN_POINTS}
    made.filters |= {one.__name__: one for one in (in_words, seeds, words_of)} | {
        "values": lambda given: list(given.values())
    }
    return made


def _fill(template: str, **values: Any) -> str:
    return _templates().get_template(template).render(values)


# --- tables -----------------------------------------------------------------------------------------------------------


def markdown(table: sweep.Table, found: Sequence[Cell], *, link: str = "../runs", page: bool = False) -> str:
    """The table for readers: printed and measured values side by side, and in words what they mean.

    The records are at ``link``, seen from where the text will stand. On a ``page`` among others cells lead to the lines that
    make their runs again.
    """
    flat = [job.settings.flat() for job in table.jobs]
    # what a table without an original varies is told by its rows and columns
    seen = set() if table.printed else {n for own in flat for n in own if len({str(o[n]) for o in flat if n in o}) > 1}
    some, rows = [cell for cell in found if cell.statuses] or list(found), {}
    for cell in some:
        rows.setdefault(cell.row, []).append(cell)
    return _fill(
        "table.md.j2",
        table=table,
        link=link,
        page=page,
        some=some,
        rows=rows,
        columns=list(dict.fromkeys(cell.column for cell in some)),
        # a run may fill a row
        once=list({(cell.row, "" if table.columns.measures else cell.column): cell for cell in found}.values()),
        again=list({cell.paths: cell for cell in some if cell.paths and page}.values()),
        deviations=lambda cell: ", ".join(in_words(text) for text in cell.deviations if text.split(" ")[0] not in seen),
        std_is=original(table.printed)["", ""]["std_is"] if any(cell.printed_std is not None for cell in found) else "",
    )


def show(name: str) -> Markdown:
    """Table ``name`` of the sweep files for a notebook, from the committed records, so that a test run prints the same."""
    from IPython.display import Markdown

    return Markdown(markdown(table_of(name), cells_of(name), link="../results/runs"))


def overview(names: Iterable[str]) -> Markdown:
    """What is recorded of some tables, a line each, for a notebook; from the committed records."""
    from IPython.display import Markdown

    return Markdown(_fill("overview.md.j2", ledger=committed(), chosen=[table_of(name) for name in names]))


def text(table: sweep.Table, found: Sequence[Cell]) -> str:
    """The table for a terminal."""
    if not any(cell.statuses for cell in found):
        return f"{table.title}\nnot run (tier {', '.join(table.tiers)})"
    lines = [(c.row, c.column, c.printed, c.mean, c.std, c.verdict, len(c.seeds)) for c in found]
    shown = pd.DataFrame(lines, columns=["row", "column", "paper", "here", "std", "verdict", "seeds"])
    digits = f"{{:.{found[0].of.decimals}f}}".format
    return f"{table.title}\n" + shown.dropna(axis=1, how="all").to_string(index=False, float_format=digits, na_rep="")


def frame(found: Iterable[Cell]) -> pd.DataFrame:
    """Cells as data in full precision: what stands in ``results/cells.csv``."""
    names = "table row column measure printed printed_std mean std std_over half difference verdict values bounds seeds "
    names += "statuses expected stale deviations not_stated note remark paths"
    lines = []
    for cell in found:
        line = {name: getattr(cell, name) for name in names.split()} | {"paths": [path.name for path in cell.paths]}
        line = {name: "; ".join(map(str, v)) if isinstance(v, tuple | list) else v for name, v in line.items()}
        line["choice"] = f"{cell.choice.name} {cell.choice.value}" if cell.choice else ""
        lines.append(line | {"tier": cell.job.tier, "repeat": command(cell) if cell.seeds else ""})
    return pd.DataFrame(lines)


# --- all of it --------------------------------------------------------------------------------------------------------


class Results(NamedTuple):
    """Tables, their cells, the claims of the papers whose notebooks they are of, and the records, with their folder."""

    tables: Mapping[str, sweep.Table]
    found: claims.Found
    claims: Mapping[str, Sequence[claims.Claim]]
    ledger: pd.DataFrame
    folder: Path

    def of(self, notebook: str) -> list[sweep.Table]:
        """The tables of a notebook."""
        return [table for table in self.tables.values() if table.notebook == notebook]

    def cells(self, tables: Iterable[sweep.Table]) -> list[Cell]:
        """The cells of some tables."""
        return [cell for table in tables for cell in self.found[table.name]]


def read(sweeps: Path, folder: Path | None = None) -> Results:
    """The tables of the sweep files with their cells, each made once; by default from `ledger.runs_folder`."""
    folder = folder or ledger.runs_folder()
    tables, records = sweep.read(sweeps), ledger.load(folder)
    found, notebooks = cells_of_tables(tables.values(), records), {table.notebook for table in tables.values()}
    about = [paper for paper, told in claims.described().items() if paper != claims.SIDE and told["notebook"] in notebooks]
    return Results(tables, found, {paper: claims.claims(paper, found) for paper in about}, records, folder)


def write_all(results: Results, out: Path) -> list[Path]:
    """Write ``tables/NOTEBOOK.md``, ``figures/TABLE.svg``, ``cells.csv`` and ``REPORT.md``; returns what was written.

    Among the project's own results also the list of notebooks in its README.
    """
    tables, found, files = results.tables, results.found, {}
    for name, table in tables.items():
        path = out / "figures" / f"{name}.svg"
        if drawn := plots.svg(table, found[name], path):
            files[path] = drawn
        else:  # the records that it was drawn from may be gone
            path.unlink(missing_ok=True)
    figures, link = {path.stem for path in files}, os.path.relpath(results.folder, out / "tables").replace(os.sep, "/")
    for notebook in dict.fromkeys(table.notebook for table in tables.values()):
        told = [markdown(table, found[table.name], link=link, page=True) for table in results.of(notebook)]
        files[out / "tables" / f"{notebook}.md"] = _fill("page.md.j2", notebook=notebook, told=told)
    files[out / "cells.csv"] = frame(results.cells(tables.values())).to_csv(index=False, lineterminator="\n")
    side = claims.described()[claims.SIDE]
    compared = claims.side_by_side(found) if results.of(side["notebook"]) else {}
    files[out / "REPORT.md"] = _fill("REPORT.md.j2", results=results, figures=figures, side=side, compared=compared)
    if out == ROOT / "results":
        files[ROOT / "README.md"] = readme((ROOT / "README.md").read_text(encoding="utf-8"), results)
    for path, content in files.items():
        ledger.write_atomically(path, content)
    return list(files)


def readme(text: str, results: Results) -> str:
    """The project's README with its list of notebooks and verdicts written anew between the two marks.

    A notebook's claim stands there with its first two sentences.
    """
    lines = {}
    for path in papers.notebooks():
        claim = re.search(r"\*\*Claim[^*]*\*\* (.+)", "\n".join(papers.cells(path, "markdown")))
        lines[path.stem] = " ".join(re.split(r"(?<=[.!?])\s+(?=[A-Z])", claim[1])[:2]) if claim else ""
    begin, end = "<!-- notebooks: written by `python -m fednb report` -->\n", "<!-- end -->"
    if begin not in text or end not in text:
        raise ReportError(f"README.md lacks the marks {begin.strip()} and {end}, between which the notebooks are listed.")
    before, rest = text.split(begin, 1)
    table = _fill("readme.md.j2", lines=lines, results=results, side=claims.described()[claims.SIDE])
    return f"{before}{begin}\n{table}\n{end}{rest.split(end, 1)[1]}"
