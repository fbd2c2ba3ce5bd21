"""The papers' tables with our runs beside them, and figures: made from the ledger and `data/reported.json`, never typed.

`fednb.compare` sets printed and measured values side by side, `fednb.figures` draws them; a notebook finds all of it here.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from fednb import papers
from fednb.experiments import ledger as records
from fednb.experiments import sweep
from fednb.reporting import figures, reproduction, statistics
from fednb.reporting.compare import (
    LEVEL,
    MIN_SEEDS,
    WITHIN_POINTS,
    Cell,
    ReportError,
    anchor,
    cells,
    cells_of,
    committed,
    lead,
    paired,
    printed,
    printed_std_is,
    recorded,
    table_of,
    tables_in,
    trials,
    tuned,
    verdict,
)
from fednb.reporting.figures import against, curves
from fednb.reporting.measures import MEASURES
from fednb.reporting.words import counts, departure, grid, verdicts

if TYPE_CHECKING:
    from IPython.display import Markdown

__all__ = [
    "Cell",
    "ReportError",
    "against",
    "anchor",
    "cells",
    "cells_of",
    "committed",
    "csv",
    "curves",
    "frame",
    "lead",
    "markdown",
    "overview",
    "paired",
    "printed",
    "readme",
    "recorded",
    "show",
    "text",
    "trials",
    "tuned",
    "verdict",
    "write_all",
]

_MEANING = {
    "reproduced": f"*Reproduced*: the printed value is within {WITHIN_POINTS:g} point of our mean, or within our "
    f"{LEVEL:.0%} interval over at least {MIN_SEEDS} seeds, widened by the paper's ± over trials.",
    "off": f"*Off by*: further away than one point and than our {LEVEL:.0%} interval.",
    "indicative": f"*Indicative*: fewer than {MIN_SEEDS} seeds, too few for a verdict.",
    "reduced": "*Reduced*: not the paper's setting or data, so not judged against the paper.",
    "diverged": "*Diverged*: a loss or weight became NaN or infinite.",
    "failed": "*Failed*: the run ended in an error, which its record tells.",
    "not measured": "*Not measured*: the record does not have it, because its split has no such measure, or because it is "
    "older than the measure; without the record the run is made again.",
    "without baseline": "*Without baseline*: the baseline's run with that seed is missing, or was made on another machine.",
}
_AGAIN = (
    "## Run one again\n\n"
    "One line per row or cell, which gives the numbers of its records. What is recorded is not run again: put "
    "`FEDNB_RUNS=$PWD/again` before a line, and the run is made and recorded there."
)


def frame(table: sweep.Table, ledger: pd.DataFrame | None = None) -> pd.DataFrame:
    """The table as data, one row per cell, in full precision."""

    def plain(value: Any) -> Any:
        return "; ".join(getattr(v, "name", str(v)) for v in value) if isinstance(value, list | tuple) else value

    ledger = records.load() if ledger is None else ledger
    lines = []
    for cell in cells(table, ledger):
        half = statistics.interval(cell.values, LEVEL)[1] if cell.values and not MEASURES[cell.measure].median else None
        hidden = ("job", "label", "told", "choice", "printed_text", "target")
        own = {name: plain(value) for name, value in vars(cell).items() if name not in hidden}
        own["choice"] = f"{cell.choice.name} {cell.choice.value}" if cell.choice else ""
        derived = {name: getattr(cell, name) for name in ("mean", "difference", "verdict")}
        repeat = [_command(table, cell, seed) for seed in cell.seeds]
        lines.append({"table": table.name} | own | derived | {"half_width": half, "repeat": plain(repeat)})
    return pd.DataFrame(lines)


def csv(table: sweep.Table, ledger: pd.DataFrame | None = None) -> str:
    """`frame` as comma-separated values."""
    return frame(table, ledger).to_csv(index=False, lineterminator="\n")


def markdown(table: sweep.Table, ledger: pd.DataFrame | None = None, *, link: str = "../runs", again: bool = False) -> str:
    """The table for readers: printed and measured values side by side, and in words what they mean.

    Of columns (or, if there are several columns, rows) without a record there is a single line. A table without any record
    is the paper's grid.

    Parameters
    ----------
    link
        Where the records are, seen from where the text will stand.
    again
        Whether the lines that make the runs again stand below the table, and each cell leads to its own.
    """
    found = cells(table, ledger)
    some, left_out = _some_recorded(found)
    repeat = _repeat(table, some) if again else {}
    text = [f"**{table.title}**", _words(table)]
    if some:
        lines = _lines_of_rows if table.columns.measures else _lines
        text.append(lines(table, some, link, repeat))
    elif any(cell.printed_text for cell in found):
        text.append(_paper_grid(table, found))
    notes = _notes(table, some, left_out, found)
    command = f"python -m fednb sweep notebooks/sweeps/{Path(table.file).name} --table {table.name}"
    text += ["\n".join(f"- {note}" for note in notes), f"Made by `{command}`."]
    return "\n\n".join([*text, *([_AGAIN, "\n".join(repeat.values())] if repeat else [])]) + "\n"


def _words(table: sweep.Table) -> str:
    """What the cells hold."""
    columns: dict[str, list[str]] = {}
    for column, measure in table.columns.measures.items():
        columns.setdefault(MEASURES[measure].words, []).append(column)
    said = [f"{', '.join(names)}: {words[0].lower()}{words[1:]}" for words, names in columns.items()]
    return " ".join(said) or MEASURES[table.measure].words


def _some_recorded(found: list[Cell]) -> tuple[list[Cell], list[str]]:
    """The cells to show, and the names of the columns and rows that are left out because nothing of them is recorded."""
    columns, rows = dict.fromkeys(cell.column for cell in found), dict.fromkeys(cell.row for cell in found)
    with_columns = {cell.column for cell in found if cell.statuses}
    with_rows = {cell.row for cell in found if cell.statuses} if len(with_columns) > 1 else set(rows)
    some = [cell for cell in found if cell.column in with_columns and cell.row in with_rows]
    left_out = [*(c for c in columns if c not in with_columns), *(r for r in rows if r not in with_rows)]
    return some, left_out


def _repeat(table: sweep.Table, found: list[Cell]) -> dict[tuple[Path, ...], str]:
    """For the runs of a cell (or, in columns of measures, of a row) the line that makes them again, to be led to."""
    shown = [cell for cell in _first_of_runs(table, found) if cell.paths]
    columns, lines = len({cell.column for cell in shown}), {}
    for cell in shown:
        seeds = ", ".join(f"`seed={seed}`" for seed in cell.seeds[1:])
        name = f"{cell.row}, {cell.column}" if columns > 1 else cell.row
        command = f"`{_command(table, cell, cell.seeds[0])}`" + (f", and with {seeds}" if seeds else "")
        lines[cell.paths] = f'- <a id="again-{len(lines)}"></a>{name}: {command}'
    return lines


def _command(table: sweep.Table, cell: Cell, seed: int) -> str:
    """The one line that makes a run of a cell again: with the sweep's parameters, all of which the notebook has."""
    asked = cell.job.settings
    given = {"method": asked.method, "dataset": asked.dataset} | cell.job.parameters
    given = {name: value for name, value in given.items() if value is not None and name != "seed"} | {"seed": seed}
    return f"python -m fednb run {table.notebook} " + " ".join(f"{name}={value}" for name, value in given.items())


def _lines(table: sweep.Table, found: list[Cell], link: str, repeat: dict[tuple[Path, ...], str]) -> str:
    """The cells one below the other, printed and measured values side by side."""
    rows, columns = (_heading(axis) for axis in (table.rows, table.columns))
    lines = [
        {
            rows: cell.row,
            columns: cell.column,
            "paper": cell.printed_text,
            "here": _here(cell),
            "seeds": _seeds(cell),
            "difference": _difference(cell),
            "verdict": cell.verdict,
            "records": _records(cell, link, repeat),
        }
        for cell in found
    ]
    shown = [name for name in lines[0] if any(line[name] for line in lines)]
    if len({cell.column for cell in found}) == 1:
        shown.remove(columns)
    return grid(shown, [[line[name] for name in shown] for line in lines], right=("paper", "here", "difference"))


def _lines_of_rows(table: sweep.Table, found: list[Cell], link: str, repeat: dict[tuple[Path, ...], str]) -> str:
    """Columns as the paper has them; of each row a line with its numbers, one with ours, and one with the verdicts."""
    columns = list(dict.fromkeys(cell.column for cell in found))
    rows: dict[str, dict[str, Cell]] = {}
    for cell in found:
        rows.setdefault(cell.row, {})[cell.column] = cell
    lines = []
    for row, of_columns in rows.items():
        own = [of_columns[column] for column in columns]  # a run fills a row
        seeds = "; ".join(dict.fromkeys(map(_seeds, own)))
        kinds = {
            "paper": [*(cell.printed_text for cell in own), "", ""],
            "here": [*map(_here, own), seeds, _records(own[0], link, repeat)],
            "verdict": [*(cell.verdict for cell in own), "", ""],
        }
        shown = {kind: texts for kind, texts in kinds.items() if kind == "here" or any(texts)}
        lines += [["" if i else row, kind, *texts] for i, (kind, texts) in enumerate(shown.items())]
    heads = [_heading(table.rows), "", *columns, "seeds", "records"]
    if all(line[1] == "here" for line in lines):
        heads, lines = [heads[0], *heads[2:]], [[line[0], *line[2:]] for line in lines]
    return grid(heads, lines, right=columns)


def _records(cell: Cell, link: str, repeat: dict[tuple[Path, ...], str]) -> str:
    links = [f"[{seed}]({link}/{path.name})" for seed, path in zip(cell.seeds, cell.paths, strict=True)]
    if cell.paths in repeat:
        links.append(f"[again](#again-{list(repeat).index(cell.paths)})")
    return " ".join(links)


def _paper_grid(table: sweep.Table, found: list[Cell]) -> str:
    """The printed numbers as the paper has them, rows by columns."""
    columns = list(dict.fromkeys(cell.column for cell in found))
    texts: dict[str, dict[str, str]] = {}
    for cell in found:  # two runs of ours may stand beside one printed row
        texts.setdefault(cell.label, {}).setdefault(cell.column, cell.printed_text)
    heads = [_heading(table.rows), *(f"paper, {column}" for column in columns)]
    return grid(heads, [[row, *(line.get(c, "") for c in columns)] for row, line in texts.items()], right=heads[1:])


def _heading(axis: sweep.Axis) -> str:
    return axis.parameter.replace("_", " ")


def _notes(table: sweep.Table, some: list[Cell], left_out: list[str], found: list[Cell]) -> list[str]:
    """What a reader must know to read the table, a sentence or two each."""
    kinds = dict.fromkeys(cell.verdict.split(" by ")[0] for cell in some)
    notes = [_MEANING[kind] for kind in kinds if kind in _MEANING]
    if table.baseline:
        notes.append(f"The baseline is {table.baseline}.")
    if table.target is not None:
        notes.append(f"The target is {table.target:g} %.")
    notes += dict.fromkeys(rule for cell in some if (rule := MEASURES[cell.measure].rule))
    seen = set() if table.printed else _varied(table)  # then rows and columns tell it
    notes += _by_cell(
        some, lambda cell: ", ".join(departure(text) for text in cell.departures if text.split(" ")[0] not in seen)
    )
    notes += _by_cell(some, _not_stated)
    notes += _by_cell(some, lambda cell: _chosen(cell, bool(table.printed)))
    notes += _by_cell(some, _unreached)
    notes += _by_cell(some, lambda cell: cell.note and f"data are not the published set ({cell.note})")
    notes += _by_cell(some, lambda cell: cell.remark)
    notes += _by_cell(
        [c for c in some if c.std_over], lambda c: f"± here is the standard deviation over {c.std_over} (ddof 0)"
    )
    if any(cell.printed_std is not None for cell in some or found):
        notes.append(f"The paper's ±: {printed_std_is(table)}.")
    if some:
        notes += _by_cell(some, lambda cell: "" if cell.statuses else f"not run (tier {cell.tier})")
        if left_out:
            rest = [cell for cell in found if cell not in some]
            tiers = [tier for tier in table.tiers if any(cell.tier == tier for cell in rest)]
            notes.append(f"Not run: {', '.join(left_out)} ({_num_runs(table, rest)} runs, tier {', '.join(tiers)}).")
    else:
        count = _num_runs(table, found)
        notes.append(f"None of {count} {'run' if count == 1 else 'runs'} recorded (tier {', '.join(table.tiers)}).")
    if stale := sum(cell.stale for cell in _first_of_runs(table, found)):
        notes.append(f"Stale records, of an older results version, which do not count: {stale}.")
    return notes


def _first_of_runs(table: sweep.Table, found: list[Cell]) -> list[Cell]:
    """The cells without those of the same runs in further columns."""
    if not table.columns.measures:
        return found
    return list({cell.row: cell for cell in reversed(found)}.values())[::-1]


def _num_runs(table: sweep.Table, found: list[Cell]) -> int:
    return sum(cell.expected for cell in _first_of_runs(table, found))


def _varied(table: sweep.Table) -> set[str]:
    """The settings in which a table's runs differ."""
    values: dict[str, set[str]] = {}
    for job in table.jobs:
        for name, value in job.settings.flat().items():
            values.setdefault(name, set()).add(str(value))
    return {name for name, found in values.items() if len(found) > 1}


def _chosen(cell: Cell, in_paper: bool) -> str:
    if cell.choice is None:
        return ""
    name, value, compared, of = cell.choice
    how = f"the best of {compared} values" + ("" if compared == of else f" (of {of}; the others are not there)")
    like = ", as in the paper" if in_paper else ""
    return f"{name.replace('_', ' ')} {value} is shown, {how}, chosen on the test set{like}"


def _by_cell(found: list[Cell], text: Callable[[Cell], str]) -> list[str]:
    """Say for all runs at once what holds for all of them, else for whole rows, else for single cells.

    Rows that share a name and differ in what is told behind it are one, if the same holds for them.
    """
    texts = {(cell.row, cell.column): text(cell) for cell in found}
    if len(set(texts.values())) == 1:
        return [f"All runs: {one}." for one in set(texts.values()) if one]
    of_rows, of_labels = {}, {}
    for cell in found:
        of_rows.setdefault(cell.row, set()).add(texts[cell.row, cell.column])
        of_labels.setdefault(cell.label, set()).add(texts[cell.row, cell.column])
    names: dict[str, dict[str, None]] = {}
    for cell in found:
        if one := texts[cell.row, cell.column]:
            whole = cell.row if len(of_rows[cell.row]) == 1 else f"{cell.row} ({cell.column})"
            names.setdefault(one, {})[cell.label if len(of_labels[cell.label]) == 1 else whole] = None
    return [f"{('; ' if any(', ' in w for w in who) else ', ').join(who)}: {one}." for one, who in names.items()]


def _unreached(cell: Cell) -> str:
    never, count = len(cell.bounds), len(cell.values)
    return f"{never} of {count} {'run' if count == 1 else 'runs'} never got there" if never else ""


def _not_stated(cell: Cell) -> str:
    names = ", ".join(text.replace("_", " ") for text in cell.not_stated)
    return names and f"{names}, of which the paper says nothing"


def _difference(cell: Cell) -> str:
    """Only of what is judged: how far rounds or seconds are from the paper's says little."""
    measure = MEASURES[cell.measure]
    return f"{cell.difference:+.{measure.decimals}f}" if measure.judged and cell.difference is not None else ""


def _here(cell: Cell) -> str:
    """Mean and standard deviation; or median and range, where some runs may never get there."""
    measure = MEASURES[cell.measure]
    text = measure.text(cell.mean, cell.bounds)
    if measure.median and len(set(cell.values)) > 1:
        low, high = (measure.text(end(cell.values), cell.bounds) for end in (min, max))
        text += f" ({low} to {high})"
    return text + ("" if cell.std is None else f" ± {cell.std:.{measure.decimals}f}")


def _seeds(cell: Cell) -> str:
    bad = [f"{n} {kind}" for kind, n in Counter(cell.statuses).items() if kind != "finished"]
    return ", ".join([f"{len(cell.statuses)} of {cell.expected}", *bad])


def show(name: str) -> Markdown:
    """Table ``name`` of the sweep files for a notebook, from the committed ledger, so that a test run prints the same."""
    from IPython.display import Markdown

    return Markdown(markdown(table_of(name), committed(), link="../results/runs"))


def overview(names: Sequence[str]) -> Markdown:
    """What is recorded of some tables, a line each, for a notebook; from the committed ledger."""
    from IPython.display import Markdown

    ledger, lines = committed(), []
    for table in map(table_of, names):
        done, count = recorded(table, ledger)
        name = f"[{table.name}](../results/tables/{table.name}.md)"
        lines.append([name, table.title, f"{done} of {count}", ", ".join(table.tiers)])
    return Markdown(grid(["table", "what", "runs recorded", "tier"], lines))


def text(table: sweep.Table, ledger: pd.DataFrame | None = None) -> str:
    """The table for a terminal."""
    ledger = records.load() if ledger is None else ledger
    whole = frame(table, ledger)
    if not whole["seeds"].any():
        return f"{table.title}\n{_summary(table, cells(table, ledger))}"
    shown = whole[["row", "column", "printed", "mean", "std", "seeds", "verdict"]]
    shown = shown.assign(seeds=[len(str(seeds).split("; ")) if seeds else 0 for seeds in shown["seeds"]])
    shown = shown.rename(columns={"printed": "paper", "mean": "here"}).dropna(axis=1, how="all")
    digits = f"{{:.{MEASURES[table.measure].decimals}f}}"
    return f"{table.title}\n" + shown.to_string(index=False, float_format=digits.format, na_rep="")


def write_all(sweeps: Path, out: Path, folder: Path | None = None) -> list[Path]:
    """Write every table of the sweep files, its figure, and an index.

    Parameters
    ----------
    folder
        Where the records are; by default ``out/runs``.

    Returns
    -------
    list of Path
        Per table ``tables/NAME.md``, ``tables/NAME.csv`` and, where there are curves, ``figures/NAME.svg``; the index
        ``tables/README.md``; and ``REPORT.md``, from `reproduction`.
    """
    folder = folder or out / "runs"
    ledger, tables = records.load(folder), tables_in(sweeps)
    link = os.path.relpath(folder, out / "tables").replace(os.sep, "/")
    files: dict[Path, str | bytes] = {}
    index, notebook = ["# Tables", "", "Generated from the run records; do not edit."], None
    for name, table in tables.items():
        if table.notebook != notebook:
            notebook = table.notebook
            index += [
                "",
                f"## {notebook}",
                "",
                "| table | what | runs | verdicts | figure |",
                "| :-- | :-- | :-- | :-- | :-- |",
            ]
        files[out / "tables" / f"{name}.md"] = markdown(table, ledger, link=link, again=True)
        files[out / "tables" / f"{name}.csv"] = csv(table, ledger)
        figure = out / "figures" / f"{name}.svg"
        if (drawn := figures.svg(table, ledger)) is not None:
            files[figure] = drawn
        else:
            figure.unlink(missing_ok=True)  # of records that are gone
        done, count = recorded(table, ledger)
        picture = f"[curves](../figures/{name}.svg)" if figure in files else ""
        told = _summary(table, cells(table, ledger))
        index.append(f"| [{name}]({name}.md) | {table.title} | {done} of {count} | {told} | {picture} |")
    index += ["", *(f"- {meaning}" for meaning in _MEANING.values())]
    files[out / "tables" / "README.md"] = "\n".join(index) + "\n"
    files[out / "REPORT.md"] = reproduction.markdown(tables, ledger)
    for path, content in files.items():
        records.write_atomically(path, content)
    return list(files)


def _summary(table: sweep.Table, found: list[Cell]) -> str:
    """``3 reproduced, 1 off``; what is recorded if there is nothing to judge."""
    if not any(cell.statuses for cell in found):
        return f"not run (tier {', '.join(table.tiers)})"
    return counts(verdicts(found)) or "recorded"


def readme(text: str, sweeps: Path, ledger: pd.DataFrame) -> str:
    """The project's README with its list of notebooks and verdicts written anew between the two marks.

    A notebook's claim stands there with its first two sentences.
    """
    tables = tables_in(sweeps)
    lines = []
    for path in papers.notebooks():
        claim = re.search(r"\*\*Claim[^*]*\*\* (.+)", "\n".join(papers.cells(path, "markdown")))
        said = re.split(r"(?<=[.!?])\s+(?=[A-Z])", claim[1])[:2] if claim else []  # the rest is in the notebook
        found = reproduction.summary(path.stem, tables, ledger)
        lines.append([f"[{path.stem}](notebooks/{path.name})", " ".join(said), "<br>".join(found)])
    begin, end = "<!-- notebooks: written by `python -m fednb report` -->\n", "<!-- end -->"
    if begin not in text or end not in text:
        raise ReportError(f"README.md lacks the marks {begin.strip()} and {end}, between which the notebooks are listed.")
    before, rest = text.split(begin, 1)
    table = grid(["notebook", "claim", "tables and verdicts"], lines)
    return f"{before}{begin}\n{table}\n\n{end}{rest.split(end, 1)[1]}"
