"""What notebooks ask for until they read committed files: cells, tables, sentences, figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from IPython.display import Markdown
from matplotlib.axes import Axes

from fednb import ROOT, plots
from fednb.errors import ReportError, require_known
from fednb_lab import intervals as statistics
from fednb_lab import words
from fednb_lab.cells import Cell, Ledger, TableOrName, cells_of, committed, is_own_file, table_of
from fednb_lab.claims import claims_file, claims_of
from fednb_lab.figures import draw_claims
from fednb_lab.findings import Filler, link_to
from fednb_lab.leads import compare_at
from fednb_lab.pages import page_of
from fednb_lab.printed import printed, shared_numbers
from fednb_lab.tables import (
    claims_table,
    deviations,
    fill,
    row_title,
    table_rows,
    to_markdown,
)

_PRINTED: dict[str, Any] = {"mfc": "none", "mec": "0.25", "mew": 1.5, "ms": 11}


def glance(paper: str) -> Axes:
    """Draw a paper's claims."""
    return draw_claims([(paper, claim) for claim in claims_of(paper) if claim.entry.short])


def curves(table: TableOrName, ax: Axes | None = None, *, ledger: Ledger = None) -> Axes:
    """Accuracy per communication round; a single round (SOLO) is a dashed level, as in papers."""
    cells = _with_curves(cells_of(table, ledger))
    frame = _curve_points(cells)
    palette = _palette(cells)
    once = frame.groupby("name")["x"].transform("nunique") == 1
    ax = ax or plt.figure(layout="constrained").subplots()
    if frame.empty:
        ax.text(0.5, 0.5, "nothing recorded", ha="center", va="center", transform=ax.transAxes)
    elif not once.all():  # the mean over seeds, and a band from the lowest to the highest
        sns.lineplot(
            frame[~once], x="x", y="value", hue="name", palette=palette, errorbar=("pi", 100), ax=ax
        )
    ax.grid(alpha=0.3)
    for name, of_name in frame[once].groupby("name", sort=False):
        last = of_name["x"].iloc[0]
        rounds = "one round" if last == 1 else f"after {last} rounds"
        level = of_name["value"].mean()
        ax.axhline(level, ls="--", color=palette[str(name)], label=f"{name} ({rounds})")
    ax.set(xlabel="communication round", ylabel="test accuracy (%)")
    ax.locator_params(axis="x", integer=True)
    if ax.lines:
        ax.legend(frameon=False)
    return ax


def lead_curves(table: TableOrName, over: str, ax: Axes | None = None) -> Axes:
    """By how much each row is ahead of row ``over``, round by round and seed by seed."""
    cells = _with_curves(cells_of(table))
    points = _curve_points(cells)
    points["seed"] = points.groupby(["name", "x"]).cumcount()
    wide = points.pivot_table(index=["x", "seed"], columns="name", values="value")
    ax = ax or plt.figure(layout="constrained").subplots()
    ax.axhline(0, color=plots.colour(over), lw=1)
    beside: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "va": "center"}
    ax.text(1.01, 0, over, **beside)
    for name, colour in _palette(cells).items():
        if name == over or name not in wide:
            continue
        lead = (wide[name] - wide[over]).groupby("x").mean().rolling(5, min_periods=1).mean()
        ax.plot(lead.index, lead, color=colour)
        ax.text(1.01, lead.iloc[-1], name, color=colour, **beside)
    ax.set(xlabel="communication round", ylabel=f"lead over {over} (points)")
    return ax


def leads(
    table: TableOrName,
    over: str,
    ax: Axes | None = None,
    *,
    column: str | None = None,
    rows: Mapping[str, str] | None = None,
) -> Axes:
    """The lead of each row over row ``over``, in points with 95 % intervals, from left to right.

    ``column``: which one, where the table has several. ``rows``: those that are shown, and what
    they are called; by default all but ``over``, by their own names. A printed lead is hollow.
    """
    cells = cells_of(table)
    if rows is None:
        shown = [cell.row for cell in cells if cell.runs and column in (None, cell.column)]
        rows = {row: row for row in shown if row != over}
    ax = ax or plt.figure(layout="constrained").subplots()
    ax.axhline(0, color=plots.colour("FedAvg"), lw=1)
    for x, row in enumerate(rows):
        comparison = compare_at(cells, row, over, column)
        lead = comparison.lead
        if comparison.printed is not None:
            ax.plot(x - 0.15, comparison.printed, "o", **_PRINTED)
        if lead.mean is not None:
            colour = plots.colour(comparison.ahead.job.settings.method)
            ax.errorbar(x, lead.mean, lead.half_width, fmt="o", capsize=3, color=colour)
    ax.set_xticks(range(len(rows)), list(rows.values()))
    ax.set_ylabel(f"lead over {over} (points)")
    return ax


def trend(table: str, rows: Sequence[str], ax: Axes | None = None) -> Axes:
    """What ``rows`` of a table reach over its columns, a number each, with 95 % intervals.

    A setting at which a run diverged is left out. Rows are told apart by their methods' colours,
    and rows of one method by solid and dashed lines; the axis of the columns is logarithmic.
    """
    cells = cells_of(table)
    parameter = table_of(table).columns.parameter
    numbers = {cell.column: float(cell.job.settings.flat()[parameter]) for cell in cells}
    ax = ax or plt.figure(layout="constrained").subplots()
    known: set[str] = set()
    for place, row in enumerate(rows):
        of_row = [cell for cell in cells if cell.row == row]
        finished = [cell for cell in of_row if set(cell.statuses) == {"finished"}]
        columns = [numbers[cell.column] * 1.02**place for cell in finished]  # beside each other
        means = np.array([cell.mean for cell in finished], float)
        half_widths = np.array([cell.half_width for cell in finished], float)
        colour = plots.colour(row)
        look: dict[str, Any] = {"color": colour, "elinewidth": 1, "capsize": 3, "label": row}
        ax.errorbar(columns, means, half_widths, fmt="s--" if colour in known else "o-", **look)
        known.add(colour)
    shown = sorted(set(numbers.values()))
    ax.set(xscale="log", ylabel="test accuracy (%)")
    ax.set_xticks(shown, [f"{number:g}" for number in shown])
    ax.minorticks_off()
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return ax


def _with_curves(cells: Sequence[Cell]) -> dict[str, Cell]:
    """The cells that are drawn, by what they are called; of several read-outs the accuracy."""
    drawn = [cell for cell in cells if cell.measure.curve]
    drawn = [cell for cell in drawn if cell.measure.name == "accuracy"] or drawn
    columns = {cell.column for cell in drawn if cell.runs}
    usual_seeds = max((cell.seeds for cell in drawn), key=len, default=())
    named = {}
    for cell in drawn:
        name = f"{cell.row}, {cell.column}" if len(columns) > 1 else cell.row
        if cell.seeds != usual_seeds:
            name += f" (seed {', '.join(map(str, cell.seeds))})"
        named[name] = cell
    return named


def _curve_points(cells: Mapping[str, Cell]) -> pd.DataFrame:
    """A line for each evaluated round of each run: name, round, value."""
    points = []
    for name, cell in cells.items():
        for run in cell.runs:
            metrics = run.record["metrics"]
            rounds = metrics.get("round", [])
            values = metrics.get(cell.measure.curve, [])
            points += [(name, *point) for point in zip(rounds, values, strict=False)]
    return pd.DataFrame(points, columns=["name", "x", "value"]).dropna()


def _palette(cells: Mapping[str, Cell]) -> dict[str, Any]:
    """A line has the colour of its runs' method; several of one method have shades of it."""
    names_of: dict[str, list[str]] = {}
    for name, cell in cells.items():
        names_of.setdefault(cell.job.settings.method, []).append(name)
    palette: dict[str, Any] = {}
    for method, names in names_of.items():
        shades = sns.light_palette(plots.colour(method), len(names) + 2, reverse=True)
        # the method's own colour is for the line that is called like it
        ordered = sorted(names, key=lambda name: name != method)
        palette |= zip(ordered, shades, strict=False)
    return palette


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
