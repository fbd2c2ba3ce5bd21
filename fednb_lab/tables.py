"""Tables in Markdown: cells, claims, and the lines to type that make them."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from fednb import papers
from fednb.leads import LEVEL, MIN_SEEDS
from fednb_lab import chance, words
from fednb_lab.cells import Cell
from fednb_lab.claims import Claim
from fednb_lab.leads import Comparison, leads_over_baseline
from fednb_lab.measures import measure
from fednb_lab.printed import reported_table
from fednb_lab.sweeps import Table

_NUMERIC = re.compile(r"([-+]?\d.*|\([-+]?\d.*|diverged)?")

Page = Callable[[str], str]  # where the page of a table is, by the table's name


# ---- tables in Markdown


def to_markdown(lines: Sequence[Mapping[str, str]]) -> str:
    """Write a table in Markdown, without empty columns; numbers are to the right."""
    names = dict.fromkeys(name for line in lines for name in line)
    columns = [name for name in names if any(line.get(name) for line in lines)]
    rules = []
    for name in columns:
        numeric = all(_NUMERIC.fullmatch(line.get(name, "")) for line in lines)
        rules.append("--:" if numeric else ":--")
    texts = [[line.get(name, "") for name in columns] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in [columns, rules, *texts])


def by_rows(cells: Sequence[Cell], texts_of: Callable[[Cell], Iterable[str]]) -> str:
    """Say what holds for the cells of a table, each text once, and of which rows unless of all."""
    holds_for: dict[str, list[Cell]] = {}
    for cell in cells:
        for text in texts_of(cell):
            holds_for.setdefault(text, []).append(cell)
    size = Counter(cell.row for cell in cells)
    texts_there: dict[str, list[str]] = {}  # by the rows where they hold
    for text, of_text in holds_for.items():
        count = Counter(cell.row for cell in of_text)
        names = []
        for cell in of_text:
            whole_row = count[cell.row] == size[cell.row]
            names.append(cell.row if whole_row else f"{cell.row} | {cell.column}")
        rows = "; ".join(dict.fromkeys(names))
        texts_there.setdefault(rows, []).append(text)
    parts = []
    for rows, texts in texts_there.items():
        where = "" if rows == "; ".join(size) else f" ({rows})"
        parts.append(", ".join(texts) + where)
    return words.in_markdown("; ".join(parts))


def remarks(table: Table, cells: Sequence[Cell]) -> dict[str, str]:
    """Tell what else has to be known of runs in a table, by what it is about; empty if nothing."""
    # older records have remarks among their notes
    known = {text for cell in cells for text in cell.remarks}

    def joined(texts: Iterable[str]) -> list[str]:
        told = "; ".join(dict.fromkeys(texts)).replace("_", " ")
        return [told] if told else []

    def deviations(cell: Cell) -> list[str]:
        return [words.deviation(one) for one in cell.deviations]

    def notes(cell: Cell) -> list[str]:
        return joined(text for text in cell.notes if text not in known)

    def of_the_data(cell: Cell) -> list[str]:
        return joined(text for text in (*cell.notes, *cell.remarks) if text in known)

    own_images = all(":" in cell.job.settings.dataset for cell in cells)  # such as folder:PATH
    return {
        "Printed in": words.printed_where(table.printed),
        "Reduced" if table.printed else "Other settings than usual": by_rows(cells, deviations),
        "The images" if own_images else "Not the published data": by_rows(cells, notes),
        "Of the data": by_rows(cells, of_the_data),
        "Tuned on the test set": by_rows(cells, lambda cell: joined([words.choice(cell)])),
    }


def table_rows(table: Table, cells: Sequence[Cell], link: str = "") -> list[dict[str, str]]:
    """Make a line for each cell; for each row, of its accuracy, if runs are read in several ways.

    Seeds lead to records that are at ``link``. The first entry, named as what rows vary, is the
    name of the row.
    """
    cells = one_column(table, cells)
    baseline, leads = leads_over_baseline(table, cells)
    several_columns = len({table.columns.name(job) for job in table.jobs}) > 1
    lines = []
    for cell in cells:
        line = {row_title(table): words.in_markdown(cell.row)}
        if several_columns and not table.columns.measures:
            column_title = table.columns.parameter.replace("_", " ")
            line[column_title] = words.in_markdown(cell.column)
        lead = leads.get((cell.row, cell.column))
        lines.append(line | _line(cell, lead, baseline, link))
    return lines


def one_column(table: Table, cells: Sequence[Cell]) -> list[Cell]:
    """Take of runs that are read in several ways the cells with the accuracy; else all cells."""
    if not table.columns.measures:
        return list(cells)
    read_as_accuracy = [cell for cell in cells if cell.measure.name == "accuracy"]
    column = (read_as_accuracy or cells)[0].column
    return [cell for cell in cells if cell.column == column]


def row_title(table: Table) -> str:
    """Name what the rows of a table vary."""
    return table.rows.parameter.replace("_", " ")


def _line(cell: Cell, lead: Comparison | None, baseline: str, link: str) -> dict[str, str]:
    spread = ""
    if cell.measure.judged and cell.spread is not None:
        spread = f"{cell.spread:.1f}"
    printed_lead = measured_lead = ""
    if lead and lead.printed is not None:
        printed_lead = f"{lead.printed:+z.1f}"
    if lead and not lead.lead.diverged:
        measured_lead = words.lead(lead)
    title = f"lead over {words.in_markdown(baseline)}"
    return {
        "printed": words.printed(cell),
        "paper's ±": words.printed_std(cell),
        "measured": words.measured(cell),
        "over clients": spread,
        "seeds": _seeds(cell, link),
        f"{title}, printed": printed_lead,
        f"{title}, measured": measured_lead,
    }


def _seeds(cell: Cell, link: str) -> str:
    """The seeds of a cell's runs, each with a link to its record if a page has it."""
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
    """Write a table with records at ``link``; on a ``page`` with heading and commands to run it."""
    shown = [cell for cell in cells if cell.runs] or list(cells)
    lines = table_rows(table, shown, link)
    if table.columns.measures:
        lines = _one_line_a_row(table, shown, lines)
    # for who has just made runs, not for who reads the project's pages
    warning = "" if page and not is_own(table) else words.in_markdown(learned_nothing(shown))
    return fill(
        "table",
        table=table,
        page=page,
        legend=is_own(table) and not page,
        missing=sum(cell.expected - len(cell.runs) for cell in shown) if is_own(table) else 0,
        grid=to_markdown(lines),
        cells=cells,
        shown=shown,
        remarks=remarks(table, shown),
        warning=warning,
    )


def learned_nothing(cells: Sequence[Cell]) -> str:
    """Warn of rows that end where guessing does; empty if there are none."""
    several = len({cell.column for cell in cells}) > 1
    ended = []
    for cell in cells:
        if cell.measure.name == "accuracy":
            name = f"{cell.row}, {cell.column}" if several else cell.row
            ended.append((name, cell.mean, cell.job.settings.dataset))
    return chance.learned_nothing(ended)


def _one_line_a_row(
    table: Table, cells: Sequence[Cell], lines: Sequence[Mapping[str, str]]
) -> list[dict[str, str]]:
    """A line with all measured values of a row, below what is printed there."""
    title = row_title(table)
    wide = []
    for line in lines:
        of_row = [cell for cell in cells if words.in_markdown(cell.row) == line[title]]
        printed = {cell.column: words.printed_with_std(cell) for cell in of_row}
        if any(printed.values()):
            wide.append({title: line[title], "": "printed"} | printed)
        measured = {cell.column: words.measured(cell) for cell in of_row}
        kind = "measured" if table.printed else ""
        others = {name: line[name] for name in ("over clients", "seeds")}
        wide.append({title: line[title], "": kind} | measured | others)
    return wide


# ---- lines to type


def check_command(table: Table, cell: Cell) -> str:
    """Write the line that makes the runs of a cell again and compares; empty without a record."""
    if not cell.runs:
        return ""
    name = f"{table.file.name}:{table.name}" if is_own(table) else table.name
    return f"fednb check {shlex.join([name, cell.row])} --column {shlex.quote(cell.column)}"


def command(cell: Cell) -> str:
    """Write the line that makes the first run of a cell again, as the sweep has it.

    It names no folder of this machine: it is typed where a notebook and images of one's own lie.
    """
    own = cell.job.settings
    parameters = dict(cell.parameters)
    parameters["dataset"] = own.flat()["dataset"]
    parameters.pop("seed", None)  # it comes last
    given = [f"{name}={value}" for name, value in parameters.items() if value is not None]
    seed = cell.seeds[0] if cell.seeds else own.seed
    return f"fednb run {shlex.join([Path(cell.job.notebook).name, *given])} seed={seed}"


def sweep_command(table: Table) -> str:
    """Write the line that makes the runs of a table."""
    file = table.file.name if is_own(table) else f"notebooks/sweeps/{table.file.name}"
    return f"fednb sweep {shlex.join([file, '--table', table.name])}"


def is_own(table: Table) -> bool:
    """Tell a table of one's own from the project's, or of notebooks that stand for these."""
    return table.file.absolute().parent != papers.folder().absolute() / "sweeps"


# ---- claims


def judged_table(claims: Mapping[str, Sequence[Claim]], page: Page) -> str:
    """List the claims that have a word, of all papers: printed, ours, the word, why."""
    lines = []
    for paper, of_paper in claims.items():
        for claim in of_paper:
            if claim.decisive is not None:
                lines.append({"paper": paper} | _claim_line(claim, page))
    for line in lines:
        line.pop("other runs")
    return to_markdown(lines)


def untested_table(claims: Sequence[Claim], page: Page) -> str:
    """List the claims that lack seeds in their own setting, with what was run; empty if none."""
    untested = [claim for claim in claims if claim.decisive is None]
    lines = [_claim_line(claim, page) for claim in untested]
    for line in lines:
        line.pop("word")
    return to_markdown(lines) if lines else ""


def _claim_line(claim: Claim, page: Page) -> dict[str, str]:
    own = claim.in_its_setting
    others = [f"{_runs(claim, one, page)}: {words.lead(one)}" for one in claim.beside]
    measured = ""
    if own is not None:
        measured = f"[{words.lead(own)}]({page(own.ahead.table)}), {words.seeds(own.lead.seeds)}"
    return {
        "the paper says": f"{claim.entry.claim} (*{claim.entry.where}*)",
        "printed": words.printed_leads(claim),
        "ours": measured,
        "word": f"**{claim.word}**",
        "why": words.why(claim),
        "other runs": "<br>".join(others),
    }


def _runs(claim: Claim, comparison: Comparison, page: Page) -> str:
    """On what runs a comparison rests, with a link to their table."""
    setting = words.setting(claim.not_the_papers(comparison))
    seeds = words.seeds(comparison.lead.seeds)
    return f"[{setting}]({page(comparison.ahead.table)}), {seeds}"


# ---- templates


_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.globals |= {
    "LEVEL": LEVEL,
    "MIN_SEEDS": MIN_SEEDS,
    "command": command,
    "judged_table": judged_table,
    "untested_table": untested_table,
    "measure": measure,
    "reported_table": reported_table,
    "sweep_command": sweep_command,
}
_TEMPLATES.filters |= {"code": words.in_code, "markdown": words.in_markdown}


def fill(template: str, **values: Any) -> str:
    """Fill ``templates/TEMPLATE.md.j2`` with these values."""
    return _TEMPLATES.get_template(f"{template}.md.j2").render(values)
