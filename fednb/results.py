"""What notebooks show of recorded runs: numbers, leads, findings and figures.

All of it is read from committed files, which ``fednb report`` writes: ``results/cells.csv`` has the
values of every cell of every table, the JSON files beside it what stands around them. No record of
a run is opened. Everywhere ± is the half width of Student's 95 % interval for a mean over seeds;
of fewer than three seeds the values themselves are shown, as in ``(67.2, 70.4)``.
"""

import csv
import functools
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import Markdown
from matplotlib.axes import Axes

from fednb import ROOT, plots
from fednb.errors import ReportError, check, require_known
from fednb.leads import MIN_SEEDS, Lead, differences, lead_of

Line = dict[str, str]  # of a CSV file, by its columns
AnyCell = TypeVar("AnyCell", bound=Any)  # with a table, row and column
POINTS = "points"  # what most leads are counted in
CELLS = "results/cells.csv"
REPORTED = "data/reported.csv"  # what the papers print

_LINK = re.compile(r"\]\((?![a-z]+:)([^)#]+)")  # but to another site


@functools.cache
def load(name: str) -> Any:
    """Read ``results/NAME.json``, whose content is not to be changed."""
    return json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))


def _known(what: str, name: str, file: str) -> Any:
    """An entry of a file; a `ReportError` that names the known ones, if there is none."""
    entries = load(file)
    require_known(what, name, entries, ReportError)
    return entries[name]


@dataclass(frozen=True, eq=False)  # a cell is equal to itself only
class Cell:
    """A cell of a table: the values of our runs, and what the paper prints there."""

    table: str
    row: str
    column: str
    sign: int  # of a lead; -1: the smaller of two values is the better one
    unit: str  # what a lead is counted in, such as "points"
    parameters: Mapping[str, Any]  # of its notebook, as its sweep sets them; from the file as texts
    seeds: tuple[int, ...]  # one for each run
    splits: tuple[str, ...]  # one for each value: how the data are divided, if not all alike
    statuses: tuple[str, ...]  # one for each run, such as "finished" or "diverged"
    values: tuple[float, ...]  # one for each finished run
    mean: float | None  # of the values; of some measures the median
    half_width: float | None  # of the interval for the mean
    printed: float | None  # in units of the measure

    @property
    def method(self) -> str:
        """The method of its runs, which its row may call otherwise."""
        return self.parameters["method"]

    @property
    def by_seed(self) -> dict[int, float]:
        """Its values by their seeds."""
        pairs = zip(self.seeds, self.statuses, strict=True)
        finished = [seed for seed, status in pairs if status == "finished"]
        return dict(zip(finished, self.values, strict=True))

    @property
    def by_pair(self) -> dict[tuple[int, str], float]:
        """Its values by what runs in a pair share: the seed, and how the data are divided."""
        pairs = zip(self.by_seed, self.splits, strict=True)
        return dict(zip(pairs, self.values, strict=True))

    @property
    def diverged(self) -> bool:
        """Whether one of its runs did."""
        return "diverged" in self.statuses


@functools.cache
def lines(file: str) -> dict[str, list[Line]]:
    """Read the lines of a CSV file of the project by their tables, such as ``"MOON Table 6"``."""
    by_table: dict[str, list[Line]] = {}
    with (ROOT / file).open(encoding="utf-8", newline="") as opened:
        for line in csv.DictReader(opened):
            # the papers' tables are called by their papers, too; some lines are about a paper alone
            name = f"{line.get('paper', '')} {line['table']}".strip()
            by_table.setdefault(name, []).append(line)
    return by_table


@functools.cache
def _cells(table: str) -> tuple[Cell, ...]:
    require_known("There is no table", table, lines(CELLS), ReportError)
    return tuple(_cell(line) for line in lines(CELLS)[table])


def _cell(line: Mapping[str, str]) -> Cell:
    values = tuple(map(float, _split(line["values"])))
    several = load("splits").get(line["table"], {})
    set_here = [word.partition("=") for word in shlex.split(line["repeat"]) if "=" in word]
    return Cell(
        table=line["table"],
        row=line["row"],
        column=line["column"],
        **load("measures")[line["measure"]],
        parameters={name: value for name, _, value in set_here},
        seeds=tuple(map(int, _split(line["seeds"]))),
        splits=tuple(several.get(f"{line['row']} | {line['column']}", [""] * len(values))),
        statuses=tuple(_split(line["statuses"])),
        values=values,
        mean=_number(line["mean"]),
        half_width=_number(line["half"]),
        printed=_number(line["printed"]),
    )


def _split(field: str) -> list[str]:
    return field.split("; ") if field else []


def _number(field: str) -> float | None:
    return float(field) if field else None


def cells(table: str) -> list[Cell]:
    """Return the cells of a table, row by row; a `ReportError` if there is no such table."""
    return list(_cells(table))


def cell(table: str, row: str, column: str | None = None) -> Cell:
    """Return the cell in that row and column, which may be left out if there is only one."""
    return cell_at(_cells(table), row, column)


def cell_at(cells: Sequence[AnyCell], row: str, column: str | None = None) -> AnyCell:
    """Return `cell`, of these cells of one table; a `ReportError` names them if it is not there."""
    there = [one for one in cells if one.row == row and column in (None, one.column)]
    if len(there) == 1:
        return there[0]
    known = ", ".join(f"{one.row} | {one.column}" for one in there or cells)
    place = f"{row} | {column or 'any column'}"
    raise ReportError(f"{cells[0].table} has no single cell {place}; there are {known}.")


def compare(ahead: Cell, behind: Cell) -> Lead:
    """Compute a cell's lead over another, in pairs of runs: same seed, same division of data."""
    by_pair = differences(ahead.by_pair, behind.by_pair, ahead.sign)
    return lead_of(list(by_pair.values()), diverged=ahead.diverged or behind.diverged)


def printed(table: str) -> dict[str, dict[str, float | None]]:
    """Return the numbers of ``"MOON Table 6"``, say: row, column, value (None: no number printed).

    A `ReportError` if there is no such table.
    """
    require_known("There is no printed table", table, lines(REPORTED), ReportError)
    rows: dict[str, dict[str, float | None]] = {}
    for line in lines(REPORTED)[table]:
        if line["row"]:
            rows.setdefault(line["row"], {})[line["column"]] = _number(line["value"])
    return rows


# --- words


def one_by_one(values: Sequence[str]) -> str:
    """Write a value, or several as in ``(67.2, 70.4)``: too few for an interval."""
    return values[0] if len(values) == 1 else f"({', '.join(values)})"


def in_words(of: Lead, unit: str = "") -> str:
    """Write a lead with its ±, such as ``+1.0 ± 0.4 points``; empty without one."""
    if of.mean is None:
        return ""
    text = f"{of.mean:+z.1f} ± {of.half_width:.1f}"
    if of.seeds < MIN_SEEDS:
        text = one_by_one([f"{one:+z.1f}" for one in of.values])
    return f"{text} {unit}".strip()


# --- Markdown


def _from_here(text: str) -> Markdown:
    """Markdown whose links, from the top of the project, lead there from the notebook's folder."""
    here = Path.cwd()
    notebooks = ROOT / "notebooks"
    folder = here if here.is_relative_to(notebooks) else notebooks

    def link(found: re.Match[str]) -> str:
        return "](" + os.path.relpath(ROOT / found[1], folder).replace(os.sep, "/")

    return Markdown(_LINK.sub(link, text))


def finding(*names: str) -> Markdown:
    """Return findings in words, by their names in ``data/claims.yaml``; else a `ReportError`.

    Numbers that the answer does without are folded away below it.
    """
    found = [_known("There is no finding", name, "findings") for name in names]
    return _from_here("\n\n".join(map(_finding, found)))


def _finding(found: Mapping[str, Any]) -> str:
    if not found.get("more"):
        return str(found["sentence"])
    lines = "\n".join(f"- {line}" for line in found["more"])
    return (
        f"{found['sentence']}\n\n<details><summary>More numbers</summary>\n\n{lines}\n\n</details>"
    )


# --- figures


class ForestRow(NamedTuple):
    """A line of `draw_forest`."""

    label: str  # in words, at the left
    lead: Lead
    colour: str
    text: str  # at the right
    printed: Sequence[float] = ()  # the leads that a paper prints


def forest(name: str) -> Axes:
    """Draw the picture of a finding: a line for each difference, with its 95 % interval.

    Who is ahead, and on which side, stands above; a number is at the right of each line, and a
    hollow mark is what the paper reports. Below three seeds each seed has a dot.
    """
    found = _known("There is no finding", name, "findings")
    check("forest" in found, f"The finding {name!r} has no forest, or is not run.", ReportError)
    picture = found["forest"]
    rows = [_forest_row(line) for line in picture["lines"]]
    first, second = picture["sides"]
    ax = draw_forest(rows, unit=picture["unit"], sides=(first, second))
    if len({row.colour for row in rows}) > 1:
        ax.set_xlabel(f"{ax.get_xlabel()}, coloured by the larger mean")
    told = [f"{row.label}: {row.text}" for row in rows]
    ax.set_label(f"How far {first} is ahead of {second}, in {picture['unit']}. {'; '.join(told)}.")
    return ax


def _forest_row(line: Mapping[str, Any]) -> ForestRow:
    half = nan if line["half"] is None else line["half"]
    values = tuple(line["values"])
    lead = Lead(line["seeds"], line["mean"], half, diverged=line["diverged"], values=values)
    ahead, behind = line["methods"]
    colour = plots.colour(behind if lead.mean is not None and lead.mean < 0 else ahead)
    printed = [] if line["printed"] is None else [line["printed"]]
    return ForestRow(line["label"], lead, colour, numbers(lead), printed)


def numbers(of: Lead) -> str:
    """Write a lead as it stands beside a picture of it: ``+1.0 ± 0.4, n = 3``."""
    if of.mean is None:
        if of.diverged:
            return "diverged"
        return "not reached by every run" if of.seeds else "no runs in pairs"
    diverged = ", a run diverged" if of.diverged else ""
    lead = in_words(of).replace("-", "−")
    return f"{lead}, n = {of.seeds}{diverged}"


def draw_forest(
    rows: Sequence[ForestRow], unit: str = POINTS, sides: tuple[str, str] | None = None
) -> Axes:
    """Draw leads, a line for each, with their intervals, or below three seeds a dot for each seed.

    ``sides`` names who is ahead on the right of zero, and who on the left.
    """
    figure = plt.figure(figsize=(8.2, 1.3 + 0.36 * len(rows)), layout="constrained")
    ax = figure.subplots()
    ax.axvline(0, color="0.6", lw=1, zorder=0)
    beside: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "va": "center"}
    for y, row in enumerate(rows):
        draw_lead(ax, y, row.lead, row.colour, across=True)
        for printed in row.printed:
            ax.plot(printed, y, "o", zorder=3, **plots.PRINTED)
        ax.text(1.02, y, row.text, size="small", **beside)
    ax.margins(x=0.12)
    ax.set(ylim=(len(rows) - 0.4, -0.6), xlabel=f"difference in {unit}")
    ax.set_yticks(range(len(rows)), [row.label for row in rows])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x", alpha=0.3)
    if sides:
        above: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "va": "bottom"}
        ax.text(0, 1.01, f"  {sides[0]} ahead →", size="small", ha="left", **above)
        ax.text(0, 1.01, f"← {sides[1]} ahead  ", size="small", ha="right", **above)
    _legend_of_forest(ax, rows)
    return ax


def _legend_of_forest(ax: Axes, rows: Sequence[ForestRow]) -> None:
    """Say below a forest what its marks are, as far as it has them."""
    if any(row.lead.judged for row in rows):
        look: dict[str, Any] = {"fmt": "o", "color": "0.4", "capsize": 3}
        ax.errorbar([], [], xerr=[], label="mean and 95 % interval over seeds", **look)
    if any(row.lead.values and not row.lead.judged for row in rows):
        ax.plot([], [], "o", color="0.4", label="a single seed")
    if any(row.printed for row in rows):
        ax.plot([], [], "o", label="reported in the paper, at its own length", **plots.PRINTED)
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": 3}
    ax.figure.legend(frameon=False, fontsize="small", handletextpad=0.4, **place)


def draw_lead(ax: Axes, place: float, of: Lead, colour: str, *, across: bool = False) -> None:
    """Draw a lead with its interval, below three seeds its values; nothing without runs.

    It stands over ``place`` of the horizontal axis, or ``across``, beside one of the vertical axis.
    It is hollow if a run diverged.
    """
    if of.mean is None:
        return
    look: dict[str, Any] = {"color": colour, "mfc": "none" if of.diverged else colour, "fmt": "o"}
    values: Sequence[float] = of.values
    if of.judged:
        values = [of.mean]
        look |= {"xerr" if across else "yerr": of.half_width, "capsize": 3}
    places = [place] * len(values)
    if across:
        ax.errorbar(values, places, **look)
    else:
        ax.errorbar(places, values, **look)


def accuracies(table: str) -> dict[str, pd.DataFrame]:
    """Return by row the accuracy (%) of each seed after each round, [seeds, rounds]."""
    frames = {}
    for row in _known("No curves are written of", table, "curves"):
        values = pd.DataFrame(row["values"], index=row["seeds"], columns=row["rounds"])
        frames[row["name"]] = values.astype(float)
    return frames
