"""Pages from records: the tables of each notebook, all cells as one file, the reproduction report, what notebooks show.

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
import yaml

from fednb import ROOT, papers
from fednb.experiments import ledger, sweep
from fednb.reporting import comparisons, statistics
from fednb.reporting.metrics import ReportError
from fednb.reporting.reported import original
from fednb.reporting.statistics import LEVEL, MIN_SEEDS
from fednb.reporting.tables import (
    WITHIN_POINTS,
    Cell,
    cells_of,
    cells_of_tables,
    committed,
    in_words,
    recorded,
    table_of,
)

if TYPE_CHECKING:
    from IPython.display import Markdown

SIDE = comparisons.SIDE
TEMPLATES = Path(__file__).parent / "templates"

# --- words ------------------------------------------------------------------------------------------------------------


def signed(value: float) -> str:
    """With one decimal, and without a minus before 0.0."""
    return f"{round(value, 1) + 0:+.1f}"


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


def by_rows(found: Sequence[Cell], texts: Callable[[Cell], Iterable[str]]) -> str:
    """What holds for the rows of a table, each thing said once, and of which rows unless it is all."""
    rows, who = list(dict.fromkeys(cell.row for cell in found)), {}
    for cell in found:
        for text in texts(cell):
            who.setdefault(text, {})[cell.row] = None
    alike: dict[tuple[str, ...], list[str]] = {}
    for text, of in who.items():
        alike.setdefault(tuple(of), []).append(text)
    told = []
    for of, some in alike.items():
        rest = [row for row in rows if row not in of]
        which = f" ({'; '.join(of)})" if len(of) <= len(rest) else f" (all but {'; '.join(rest)})"
        told.append(", ".join(some) + which * bool(rest))
    return "; ".join(told)


def words_of(measure: str) -> str:
    """What a measure is, in words."""
    return _measures()["words"]["accuracy in DOMAIN" if measure.startswith("accuracy in ") else measure]


@functools.cache
def _measures() -> dict[str, Any]:
    return yaml.safe_load((TEMPLATES / "measures.yaml").read_text(encoding="utf-8"))


def verdicts(told: Iterable[comparisons.Claim]) -> str:
    """How often there is which verdict."""
    return tally(re.sub(r" \(±.*", "", claim.verdict()) for claim in told)


def sides(results: Results) -> str:
    """How many methods are ahead of the baseline side by side, and behind."""
    every = [one for of in comparisons.side_by_side(results.found).values() for one in of.values()]
    words = ("diverged" if one.diverged else statistics.verdict(one.lead) for one in every)
    return tally(re.sub(r"( \(±|; not).*", "", word) for word in words)


@functools.cache
def _templates() -> jinja2.Environment:
    loader, blocks = jinja2.FileSystemLoader(TEMPLATES), {"trim_blocks": True, "lstrip_blocks": True}
    made = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, keep_trailing_newline=True, **blocks)
    told = (in_words, verdicts, sides, signed, tally, here, seeds, command, by_cell, words_of, recorded, original)
    made.globals |= {one.__name__: one for one in told} | {
        "comparisons": comparisons,
        "statistics": statistics,
        "claims_table": claims_table,
        "rules": _measures()["rules"],
    }
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


def grid(frame: pd.DataFrame, right: Sequence[str] = ()) -> str:
    """A table in Markdown, without columns in which nothing stands; those named in ``right`` are aligned so."""
    shown = frame[[name for name in frame if frame[name].astype(bool).any()]]
    rule = ["--:" if name in right else ":--" for name in shown]
    return "\n".join(f"| {' | '.join(line)} |" for line in (shown.columns, rule, *shown.to_numpy().tolist()))


def _results() -> str:
    """The results, as seen from the notebook that is running."""
    here = Path.cwd()
    inside = here.is_relative_to(ROOT / "notebooks")
    return os.path.relpath(ROOT / "results", here if inside else ROOT / "notebooks").replace(os.sep, "/")


def _page(table: sweep.Table) -> str:
    return f"{_results()}/tables/{table.notebook}.md#{table.name}"


def seeds_of(cell: Cell) -> str:
    """The seeds of its finished runs, and what became of the others."""
    good = sorted(seed for seed, _ in cell.by_pair)
    ends = (good[0], good[-1]) if good else ()
    told = (
        [f"{ends[0]} to {ends[1]}"] if len(good) > 3 and ends[1] - ends[0] == len(good) - 1 else [", ".join(map(str, good))]
    )
    return "; ".join(told * bool(good) + [f"{n} {kind}" for kind, n in Counter(cell.statuses).items() if kind != "finished"])


def measured(cell: Cell) -> str:
    """Mean with its ±; or median and range, where some runs may never get there."""
    text = cell.of.text(cell.mean, cell.bounds)
    if cell.of.bound and len(set(cell.values)) > 1:
        text += " ({} to {})".format(*(cell.of.text(end(cell.values), cell.bounds) for end in (min, max)))
    return text + (f" ± {cell.half:.{cell.of.decimals}f}" if cell.half is not None and len(cell.values) > 1 else "")


def compact(name: str, rows: Sequence[str] | None = None) -> Markdown:
    """The heart of table ``name`` for a notebook, from the committed records: printed, measured, gap, verdict.

    ``rows`` chooses some by their names. The gap is to FedAvg, or to what the table compares with, in pairs of runs.
    """
    from IPython.display import Markdown

    table, found = table_of(name), cells_of(name)
    if unknown := [row for row in rows or () if row not in {cell.row for cell in found}]:
        raise ReportError(f"{name} has no row {unknown[0]!r}; there are {', '.join(dict.fromkeys(c.row for c in found))}.")
    link = f"[all of it]({_page(table)})"
    some = [cell for cell in found if cell.statuses]
    if table.columns.measures:  # of a run read in several ways the accuracy
        column = next((c.column for c in some if c.measure == "accuracy"), some[0].column if some else "")
        some = [cell for cell in some if cell.column == column]
    if not some:
        return Markdown(f"**{table.title}**: not run yet ({link}).")
    base, beside = comparisons.gaps(table, some)
    lines, shown = [], [cell for cell in some if rows is None or cell.row in rows]
    for cell in shown:
        other, lead = beside.get((cell.row, cell.column), (None, None))
        gap = None if other is None or None in (cell.printed, other.printed) else cell.printed - other.printed
        lines.append(
            {
                table.rows.parameter.replace("_", " "): cell.row,
                table.columns.parameter.replace("_", " ") or " ": cell.column if len({c.column for c in shown}) > 1 else "",
                "printed": cell.printed_text.partition(" ± ")[0],
                "measured": measured(cell),
                "seeds": seeds_of(cell),
                f"gap to {base}, printed": "" if gap is None else f"{round(gap, 1) + 0:+.1f}",
                f"gap to {base}, measured": statistics.told(lead) if lead else "",
                "verdict": statistics.verdict(lead, gap) if lead else "",
            }
        )
    frame, reduced = pd.DataFrame(lines), by_rows(shown, lambda cell: map(in_words, cell.deviations))
    told = frame["seeds"].unique()
    if len(told) == 1:
        frame = frame.drop(columns="seeds")
    right = ("printed", "measured", f"gap to {base}, printed", f"gap to {base}, measured")
    notes = [f"Reduced: {reduced}."] if table.printed and reduced else []
    notes += (
        [f"Seeds: {told[0]}."] if len(told) == 1 else ["Rows differ in their seeds; gaps are over those that both have."]
    )
    return Markdown(
        f"**{table.title}**\n\n{grid(frame, right)}\n\n{' '.join(notes)} {link[0].upper()}{link[1].upper()}{link[2:]}."
    )


def claims(paper: str) -> Markdown:
    """The claims of a paper for a notebook, from the committed records: printed, measured, on which runs, verdict."""
    from IPython.display import Markdown

    told = comparisons.claims_of(paper)
    return Markdown(claims_table(told, lambda name: f"{_results()}/tables/{table_of(name).notebook}.md#{name}"))


def claims_table(told: Sequence[comparisons.Claim], page: Callable[[str], str]) -> str:
    """Claims as a table: what counts, and behind it, briefly, what other runs say."""
    lines = []
    for claim in told:
        best = claim.told[0]
        runs = [f"[{claim.setting(one, brief=one is not best)}]({page(one.ahead.table)})" for one in claim.told]
        leads = [statistics.told(one.lead, "" if one is best else one.ahead.of.unit) for one in claim.told]
        seeds = [f"{one.lead.seeds} seed{'s' * (one.lead.seeds != 1)}" for one in claim.told]
        lines.append(
            {
                "the paper says": f"{claim.text} (*{claim.where}*)",
                "printed": "" if claim.printed is None else f"{round(claim.printed, 1) + 0:+.1f}",
                "measured": leads[0] + f" {best.ahead.of.unit}" * (best.ahead.of.unit != "points" and best.lead.seeds > 0),
                "on": f"{runs[0]}, {seeds[0]}" if best.lead.seeds else "",
                "verdict": f"**{claim.verdict()}**",
                "behind it": "; ".join(
                    f"{lead} ({run}, {n})" for lead, run, n in zip(leads[1:], runs[1:], seeds[1:], strict=True)
                ),
            }
        )
    return grid(pd.DataFrame(lines), ("printed", "measured"))


# --- all of it --------------------------------------------------------------------------------------------------------


class Results(NamedTuple):
    """Tables, their cells, the claims of the papers whose notebooks they are of, and the records, with their folder."""

    tables: Mapping[str, sweep.Table]
    found: comparisons.Found
    claims: Mapping[str, Sequence[comparisons.Claim]]
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
    about = [paper for paper, told in comparisons.described().items() if paper != SIDE and told["notebook"] in notebooks]
    return Results(tables, found, {paper: comparisons.claims_of(paper, found) for paper in about}, records, folder)


def write_all(results: Results, out: Path) -> list[Path]:
    """Write ``tables/NOTEBOOK.md``, ``figures/TABLE.svg``, ``cells.csv`` and ``REPORT.md``; returns what was written.

    Among the project's own results also the list of notebooks in its README.
    """
    tables, found, files = results.tables, results.found, {}
    figures, link = (), os.path.relpath(results.folder, out / "tables").replace(os.sep, "/")
    for notebook in dict.fromkeys(table.notebook for table in tables.values()):
        told = [markdown(table, found[table.name], link=link, page=True) for table in results.of(notebook)]
        files[out / "tables" / f"{notebook}.md"] = _fill("page.md.j2", notebook=notebook, told=told)
    files[out / "cells.csv"] = frame(results.cells(tables.values())).to_csv(index=False, lineterminator="\n")
    side = comparisons.described()[SIDE]
    compared = comparisons.side_by_side(found) if results.of(side["notebook"]) else {}
    files[out / "REPORT.md"] = _fill(
        "REPORT.md.j2",
        results=results,
        figures=figures,
        side=side,
        compared=compared,
        page=lambda name: f"tables/{tables[name].notebook}.md#{name}",
    )
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
    table = _fill("readme.md.j2", lines=lines, results=results, side=comparisons.described()[SIDE])
    return f"{before}{begin}\n{table}\n{end}{rest.split(end, 1)[1]}"
