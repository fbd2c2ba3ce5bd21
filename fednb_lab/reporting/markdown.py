"""Tables in Markdown: printed and measured values, seeds, leads."""

import math
import os
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from fednb import papers, results
from fednb.data import OWN_FOLDER
from fednb.results import to_markdown
from fednb_lab.analysis import effort, statistics
from fednb_lab.analysis.across_splits import average_leads
from fednb_lab.analysis.cells import Cell, CellsOf
from fednb_lab.analysis.claims import Claim, claims_file
from fednb_lab.analysis.comparisons import Comparison, compare_at, leads_over_baseline
from fednb_lab.analysis.measures import measure
from fednb_lab.analysis.reported import reported_table
from fednb_lab.analysis.statistics import Kind
from fednb_lab.reporting import words
from fednb_lab.sweeps.table import Table

QUICK = 120.0  # seconds
_MOST_SEEDS = 20  # that are listed one by one where they are no links


def by_rows(cells: Sequence[Cell], texts_of: Callable[[Cell], Sequence[str]]) -> str:
    """What holds for the cells of a table, each text once, and of which rows unless it is all."""
    holds_for: dict[str, list[Cell]] = {}
    for cell in cells:
        for text in texts_of(cell):
            holds_for.setdefault(text, []).append(cell)
    size = Counter(cell.row for cell in cells)
    where = {text: _rows(of_text, size) for text, of_text in holds_for.items()}
    parts = []
    for rows in dict.fromkeys(where.values()):
        texts = ", ".join(text for text, there in where.items() if there == rows)
        parts.append(texts if rows == "; ".join(size) else f"{texts} ({rows})")
    return "; ".join(parts)


def _rows(cells: Sequence[Cell], size: Counter[str]) -> str:
    """Rows of which all cells are given (``size``: so many), and other cells one by one."""
    count = Counter(cell.row for cell in cells)
    names = []
    for cell in cells:
        whole_row = count[cell.row] == size[cell.row]
        names.append(cell.row if whole_row else f"{cell.row} | {cell.column}")
    return "; ".join(dict.fromkeys(names))


def deviations(cells: Sequence[Cell]) -> str:
    """How the cells of a table deviate from the paper's settings."""
    return by_rows(cells, lambda cell: [words.deviation(one) for one in cell.deviations])


def remarks(table: Table, cells: Sequence[Cell]) -> dict[str, str]:
    """What else has to be known of runs in a table, by what it is about; empty if nothing."""

    def joined(texts: Sequence[str]) -> list[str]:
        return ["; ".join(texts).replace("_", " ")] if any(texts) else []

    own_images = all(cell.job.settings.dataset.startswith(OWN_FOLDER) for cell in cells)
    data_remark = "The images" if own_images else "Not the published data"
    return {
        "Printed in": words.printed_where(table.printed),
        "Reduced" if table.printed else "Other settings than usual": deviations(cells),
        data_remark: by_rows(cells, lambda cell: joined(cell.notes)),
        "Of the data": by_rows(cells, lambda cell: joined(cell.remarks)),
        "Tuned on the test set": by_rows(cells, lambda cell: joined([words.choice(cell)])),
        "Training": words.training(cells),
        "Guessing gives": words.guessing(cells),
        "Learned nothing": words.learned_nothing(cells),
        "Without ±": words.without_half_width(cells),
        "Checked in under two minutes by `fednb check`": by_rows(cells, _if_quick),
    }


def _if_quick(cell: Cell) -> list[str]:
    """What is said of a cell whose runs together took at most `QUICK` seconds."""
    return ["each cell with all of its seeds"] if 0 < effort.seconds(cell) <= QUICK else []


def check_command(cell: Cell) -> str:
    """The line that makes the runs of a cell again and compares; empty if none is recorded."""
    if not cell.runs:
        return ""
    row, column = shlex.quote(cell.row), shlex.quote(cell.column)
    return f"python -m fednb check {cell.table} {row} --column {column}"


def command(cell: Cell) -> str:
    """The line that makes the first run of a cell again, with the parameters of the sweep."""
    own = cell.job.settings
    parameters = {"method": own.method, "dataset": own.dataset} | cell.job.parameters
    parameters.pop("seed", None)  # it comes last
    given = [f"{name}={value}" for name, value in parameters.items() if value is not None]
    seed = cell.seeds[0] if cell.seeds else own.seed
    return f"python -m fednb run {cell.job.notebook} {shlex.join(given)} seed={seed}"


def link_to(path: Path, folder: Path) -> str:
    """A path as seen from a folder."""
    return os.path.relpath(path, folder).replace(os.sep, "/")


def is_own(table: Table) -> bool:
    """Whether a table is none of the project's, or of the notebooks that stand for these."""
    return table.file.absolute().parent != papers.folder().absolute() / "sweeps"


def sweep_command(table: Table) -> str:
    """The line that makes the runs of a table."""
    file = str(table.file) if is_own(table) else f"notebooks/sweeps/{table.file.name}"
    return f"python -m fednb sweep {file} --table {table.name}"


def table_rows(table: Table, cells: Sequence[Cell], link: str = "") -> list[dict[str, str]]:
    """A line for each cell; or for each row, of its accuracy, if runs are read in several ways.

    Seeds lead to records that are at ``link``. The first entry, named as what rows vary, is the
    name of the row.
    """
    cells = one_column(table, cells)
    baseline, leads = leads_over_baseline(table, cells)
    several_columns = len({table.columns.name(job) for job in table.jobs}) > 1
    lines = []
    for cell in cells:
        line = {row_title(table): cell.row}
        if several_columns and not table.columns.measures:
            line[table.columns.parameter.replace("_", " ")] = cell.column
        lead = leads.get((cell.row, cell.column))
        lines.append(line | _line(cell, lead, baseline, link))
    return lines


def one_column(table: Table, cells: Sequence[Cell]) -> list[Cell]:
    """Of runs that are read in several ways the cells with the accuracy; else all cells."""
    if not table.columns.measures:
        return list(cells)
    read_as_accuracy = [cell for cell in cells if cell.measure.name == "accuracy"]
    column = (read_as_accuracy or cells)[0].column
    return [cell for cell in cells if cell.column == column]


def row_title(table: Table) -> str:
    """What the rows of a table vary."""
    return table.rows.parameter.replace("_", " ")


def _line(cell: Cell, lead: Comparison | None, baseline: str, link: str) -> dict[str, str]:
    spread = ""
    if cell.measure.judged and cell.spread is not None:
        spread = f"{cell.spread:.1f}"
    printed_lead = measured_lead = ""
    if lead and lead.printed is not None:
        printed_lead = f"{lead.printed:+z.1f}"
    if lead and not lead.lead.diverged:
        measured_lead = words.lead(lead.lead)
    return {
        "printed": words.printed(cell),
        "paper's ±": words.printed_std(cell),
        "measured": words.measured(cell),
        "over clients": spread,
        "seeds": _seeds(cell, link),
        f"lead over {baseline}, printed": printed_lead,
        f"lead over {baseline}, measured": measured_lead,
    }


def _seeds(cell: Cell, link: str) -> str:
    """The seeds of a cell's runs, each with a link to its record; of many from where to where."""
    finished = set(cell.statuses) <= {"finished"}
    if finished and not link and len(cell.seeds) > _MOST_SEEDS:
        first, last = cell.seeds[0], cell.seeds[-1]
        if cell.seeds == tuple(range(first, last + 1)):
            return f"{first} to {last}"
    seeds = []
    for run in cell.runs:
        text = f"{run.job.settings.seed}"
        if run.state != "finished":
            text += f" ({run.state})"
        seeds.append(f"[{text}]({link}/{run.job.path.name})" if link else text)
    return " ".join(seeds)


def table_in_full(
    table: Table, cells: Sequence[Cell], link: str = "", *, page: bool = False
) -> str:
    """A table with records at ``link``; on a ``page`` with heading and commands for its runs."""
    shown = [cell for cell in cells if cell.runs] or list(cells)
    lines = table_rows(table, shown, link)
    if table.columns.measures:
        lines = _one_line_a_row(table, shown, lines)
    values = {"cells": cells, "shown": shown, "remarks": remarks(table, shown)}
    return fill("table", table=table, page=page, grid=to_markdown(lines), **values)


def _one_line_a_row(
    table: Table, cells: Sequence[Cell], lines: Sequence[Mapping[str, str]]
) -> list[dict[str, str]]:
    """A line with all measured values of a row, below what is printed there."""
    title = row_title(table)
    wide = []
    for line in lines:
        of_row = [cell for cell in cells if cell.row == line[title]]
        printed = {cell.column: words.printed_with_std(cell) for cell in of_row}
        if any(printed.values()):
            wide.append({title: line[title], "": "printed"} | printed)
        measured = {cell.column: words.measured(cell) for cell in of_row}
        kind = "measured" if table.printed else ""
        others = {name: line[name] for name in ("over clients", "seeds")}
        wide.append({title: line[title], "": kind} | measured | others)
    return wide


def claims_table(claims: Sequence[Claim], page: Callable[[str], str]) -> str:
    """The claims of a paper, a line each; ``page`` links to a table's page."""
    return results.claims_table([claim_row(claim, page) for claim in claims])


def claim_row(claim: Claim, page: Callable[[str], str]) -> dict[str, Any]:
    """A claim as a line of a table, and what its lead is counted in."""
    return {"unit": claim.best.ahead.measure.lead_unit, "line": _claim_line(claim, page)}


def _claim_line(claim: Claim, page: Callable[[str], str]) -> dict[str, str]:
    decides = claim.verdict.kind != Kind.NOT_TESTED
    beside = claim.beside if decides else claim.with_runs
    others = [
        f"{_runs(claim, one, page)}: {words.lead(one.lead)}" for one in beside if one.lead.seeds
    ]
    return {
        "the paper says": f"{claim.entry.claim} (*{claim.entry.where}*)",
        "printed": words.printed_leads(claim),
        "ours": words.lead(claim.best.lead) if decides else "",
        "verdict": f"**{words.verdict(claim)}**",
        "on": _runs(claim, claim.best, page) if decides else "",
        "why": words.why(claim),
        "beside it, deciding nothing": "<br>".join(others),
    }


def _runs(claim: Claim, comparison: Comparison, page: Callable[[str], str]) -> str:
    """On what runs a comparison rests, with a link to their table."""
    setting = words.setting(claim.setting(comparison), brief=True)
    seeds = words.seeds(comparison.lead.seeds)
    return f"[{setting}]({page(comparison.ahead.table)}), {seeds}"


def question_lines(cells_of: CellsOf, heading: Callable[[str, str], str]) -> str:
    """Each method's mean lead over the five splits of notebook 06, and its leads in them.

    ``heading`` makes that of a column of a table and its title. A column of verdicts on "it is
    ahead" is there if anybody has another one than "cannot tell".
    """
    side = claims_file().side_by_side
    found = average_leads(list(side.tables), cells_of, baseline=side.baseline, column=side.column)
    found = sorted(found, key=lambda one: math.inf if one.lead.mean is None else -one.lead.mean)
    judged = any(one.verdict.kind != Kind.CANNOT_TELL for one in found)
    lines = []
    for one in found:
        line = {"method": one.method, "mean of the five": f"**{words.lead(one.lead)}**"}
        if judged:
            line["is it ahead?"] = one.verdict.kind
        line["seeds"] = str(one.lead.seeds)
        for table, title in side.tables.items():
            lead = compare_at(cells_of(table), one.method, side.baseline, side.column).lead
            mark = " †" if lead.diverged else ""  # it is of the seeds that are left
            line[heading(table, title)] = words.lead(lead) + mark
        lines.append(line)
    return to_markdown(lines)


# what makes pages of values: `words` makes texts of these
_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.globals |= {
    "statistics": statistics,
    "check_command": check_command,
    "claims_table": claims_table,
    "command": command,
    "sweep_command": sweep_command,
    "measure": measure,
    "reported_table": reported_table,
}


def fill(template: str, **values: Any) -> str:
    """``templates/TEMPLATE.md.j2`` with these values."""
    return _TEMPLATES.get_template(f"{template}.md.j2").render(values)
