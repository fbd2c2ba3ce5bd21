"""The reproduction report: per paper how its cells compare, which claims hold, and the way to its code.

What the papers claim, and the steps from a printed setting to published code, stand in ``data/claims.yaml``. All numbers
come from the ledger and ``data/reported.json``.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from fednb import ROOT, data
from fednb.experiments import sweep
from fednb.experiments.settings import Settings
from fednb.reporting import statistics
from fednb.reporting.compare import (
    LEVEL,
    MIN_SEEDS,
    WITHIN_POINTS,
    Cell,
    ReportError,
    by_seed,
    cell_at,
    cells,
    pairs_between,
    pairs_of,
    paper_title,
    recorded,
)
from fednb.reporting.measures import MEASURES
from fednb.reporting.words import counts, departure, grid, verdicts

CLAIMS = ROOT / "data" / "claims.yaml"
VERDICTS = ("holds", "does not hold", "open", "indicative", "indicative (against)", "not run")
_DOUBTFUL = ("does not hold", "open", "indicative (against)")  # the report then tells the likely reason
Tables = Mapping[str, sweep.Table]


# --- claims -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judgement:
    """What the records say about a claim that one row of a table is ahead of another.

    Attributes
    ----------
    verdict
        One of `VERDICTS`.
    seeds
        Over how many pairs of runs.
    lead, half
        Mean difference in the direction of the claim and half width of its 95 % interval, in the measure's unit; None if
        there is no pair, or if a run never reached what it should; the half width of one pair is NaN.
    level
        The largest level at which the interval leaves out 0; None or NaN likewise.
    """

    verdict: str
    seeds: int = 0
    lead: float | None = None
    half: float | None = None
    level: float | None = None

    def inside(self, value: float | None) -> bool | None:
        """Whether a printed lead lies within the interval; None if one of them is missing."""
        if value is None or self.half is None or math.isnan(self.half):
            return None
        return abs(value - self.lead) <= self.half + 1e-9


def judge(leads: Sequence[float]) -> Judgement:
    """The rule: a claim holds if the 95 % interval of its mean lead over at least three seeds lies above 0.

    Parameters
    ----------
    leads
        Of each pair of runs with the same seed on the same split, by how much the claimed side is ahead. A lead that is not
        finite is that of a pair in which a run never reached what it should.
    """
    n = len(leads)
    if not n:
        return Judgement("not run")
    if not np.isfinite(leads).all():
        return Judgement("open" if n >= MIN_SEEDS else "indicative", n)
    mean, half = statistics.interval(leads, LEVEL)
    if n < MIN_SEEDS:  # a lead that is told as 0.0 speaks for nobody
        told = "indicative (against)" if round(mean, 1) < 0 else "indicative"
    else:
        told = "holds" if mean > half else "does not hold" if mean < -half else "open"
    return Judgement(told, n, mean, half, statistics.confidence(leads))


@dataclass(frozen=True)
class Finding:
    """A claim in one sweep table: the two cells, and what their runs say."""

    table: sweep.Table
    ahead: Cell
    behind: Cell
    judged: Judgement

    @property
    def dataset(self) -> str:
        return self.ahead.job.settings.dataset

    @property
    def embedded(self) -> bool:
        """Whether it is on data that come with the package, which no paper has."""
        return data.where(self.dataset) == "embedded"

    @property
    def setting(self) -> str:
        """On which data, and what is not the paper's setting. What only one of the methods has is the claim itself."""
        both = self.ahead.departures, self.behind.departures
        names = [{text.split(" ")[0] for text in departs} for departs in both]
        common = {field.name for field in dataclasses.fields(Settings)} | (names[0] & names[1])
        told = dict.fromkeys(departure(text) for text in itertools.chain(*both) if text.split(" ")[0] in common)
        return ", ".join([self.dataset, *told])


@dataclass(frozen=True)
class Claim:
    """What a paper says, in its words or by the order of its table, and what is found, the paper's own setting first.

    ``printed`` is the lead in the paper's table, in the claim's direction, or None.
    """

    text: str
    where: str
    reason: str
    printed: float | None
    findings: tuple[Finding, ...]

    @property
    def best(self) -> Finding:
        """The finding that counts: the first with enough seeds, else with any; embedded data only if there is no other."""
        some = [finding for finding in self.findings if finding.judged.seeds]
        own = [finding for finding in some if not finding.embedded]
        enough = [finding for finding in own or some if finding.judged.seeds >= MIN_SEEDS]
        return (enough or own or some or list(self.findings))[0]

    @property
    def verdict(self) -> str:
        return self.best.judged.verdict


def claims(paper: str, tables: Tables, ledger: pd.DataFrame) -> list[Claim]:
    """The claims of a paper, judged.

    Raises
    ------
    ReportError
        If ``data/claims.yaml`` names a table, row or column that there is not, or rows that cannot be paired.
    """
    found = []
    for entry in _described()[paper]["claims"]:
        where = f"data/claims.yaml, {paper}, {entry['claim']!r}"
        usual = {name: entry[name] for name in ("ahead", "behind", "column") if name in entry}
        places = [usual | ({"table": place} if isinstance(place, str) else place) for place in entry["runs"]]
        findings = tuple(_finding(where, place, tables, ledger) for place in places)
        printed = [lead for finding in findings if (lead := _printed_lead(finding)) is not None]
        found.append(
            Claim(entry["claim"], entry["where"], entry.get("reason", ""), printed[0] if printed else None, findings)
        )
    return found


def _finding(where: str, place: Mapping[str, str], tables: Tables, ledger: pd.DataFrame) -> Finding:
    try:
        table = tables[place["table"]]
        pairs, measure = pairs_of(table, place["ahead"], place["behind"], place["column"], ledger)
        ahead, behind = (cell_at(table, cells(table, ledger), place[side], place["column"]) for side in ("ahead", "behind"))
    except KeyError as error:
        raise ReportError(f"{where}: there is no {error.args[0]!r}.") from error
    except ReportError as error:
        raise ReportError(f"{where}: {error}") from error
    sign = -1 if measure.lower_is_better else 1
    reached = all(measure.reached(value) for pair in pairs for value in pair)
    leads = [sign * (a - b) if reached else math.inf for a, b in pairs]
    return Finding(table, ahead, behind, judge(leads))


def _printed_lead(finding: Finding) -> float | None:
    if finding.ahead.printed is None or finding.behind.printed is None:
        return None
    lead = finding.ahead.printed - finding.behind.printed
    return -lead if MEASURES[finding.ahead.measure].lower_is_better else lead


# --- ladders ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rung:
    """A step of a ladder: a row of a table, and by how much it differs from the step before (of the first: None).

    ``paired`` says whether the difference is over pairs of runs with the same seed on the same split.
    """

    cell: Cell
    difference: float | None = None
    half: float | None = None
    paired: bool = True


def ladder(paper: str, tables: Tables, ledger: pd.DataFrame) -> list[Rung]:
    """The steps from the paper's printed setting to its code, and at the end the difference that they all make.

    Raises
    ------
    ReportError
        If a step changes anything but what it names.
    """
    told = _described()[paper]["ladder"]
    found: list[tuple[Cell, sweep.Table]] = []
    for step in told["steps"]:
        where = f"data/claims.yaml, {paper}, step {step['row']!r}"
        name = step.get("table", told["table"])
        if name not in tables:
            raise ReportError(f"{where}: there is no table {name!r}.")
        table = tables[name]
        cell = cell_at(table, cells(table, ledger), step["row"], told["column"])
        if found:
            _check_step(where, found[-1][0], cell, step["changes"])
        found.append((cell, table))
    rungs = [cell for cell, _ in found]
    return [Rung(rungs[0]), *(_rung(a, b) for a, b in itertools.pairwise(rungs)), _rung(rungs[0], rungs[-1])]


def _check_step(where: str, before: Cell, after: Cell, changes: str) -> None:
    a, b = ({"measure": cell.measure} | cell.job.settings.flat() for cell in (before, after))
    differ = sorted(name for name in (a | b).keys() - {"seed"} if a.get(name) != b.get(name))
    if differ != [changes]:
        raise ReportError(f"{where} should change {changes} alone, and changes {', '.join(differ) or 'nothing'}.")


def _rung(before: Cell, after: Cell) -> Rung:
    a, b = by_seed(before), by_seed(after)
    shared = [seed for seed in b if seed in a]
    if shared and all(a[seed][1] == b[seed][1] for seed in shared):
        return Rung(after, *statistics.interval([b[seed][0] - a[seed][0] for seed in shared], LEVEL))
    if not before.values or not after.values:
        return Rung(after)
    return Rung(after, *statistics.interval_of_difference(after.values, before.values, LEVEL), paired=False)


# --- side by side -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """A method against the baseline in one table; ``diverged`` counts the runs of either that did."""

    judged: Judgement
    diverged: int

    @property
    def verdict(self) -> str:
        """Of a method whose runs diverged there is none: the differences that are left are those of its lucky seeds."""
        if self.diverged:
            return "diverged"
        told = {"holds": "ahead", "does not hold": "behind"}
        return told.get(self.judged.verdict, self.judged.verdict.removesuffix(" (against)"))


def compared(tables: Tables, ledger: pd.DataFrame) -> dict[str, dict[str, Comparison]]:
    """Each method against the baseline, by table and method, in the tables of ``side by side`` in ``data/claims.yaml``.

    Raises
    ------
    ReportError
        If one of them is not there.
    """
    told = _side_by_side()
    found: dict[str, dict[str, Comparison]] = {}
    for name, title in told["tables"].items():
        if name not in tables:
            raise ReportError(f"data/claims.yaml, side by side: there is no table {name!r}.")
        table = tables[name]
        columns = {cell.row: cell for cell in cells(table, ledger) if cell.column == told["column"]}
        baseline = columns[told["baseline"]]
        found[title] = {}
        for row in columns:
            if row != told["baseline"]:
                pairs = pairs_between(table, columns[row], baseline)
                diverged = sum(status == "diverged" for cell in (columns[row], baseline) for status in cell.statuses)
                found[title][row] = Comparison(judge([a - b for a, b in pairs]), diverged)
    return found


# --- in words ---------------------------------------------------------------------------------------------------------


def summary(notebook: str, tables: Tables, ledger: pd.DataFrame) -> list[str]:
    """What the README says of a notebook, in short lines."""
    own = [table for table in tables.values() if table.notebook == notebook]
    some = sum(recorded(table, ledger)[0] > 0 for table in own)
    judged = [cell for table in own if table.printed for cell in cells(table, ledger)]
    lines = [f"[{len(own)} tables](results/tables/README.md#{notebook}), {some} with runs"]
    if judged:
        lines.append(f"cells with a printed number: {counts(verdicts(judged))}")
    for paper in _papers(tables):
        if _described()[paper]["notebook"] == notebook:
            told = _told(claims(paper, tables, ledger))
            lines.append(f"[claims](results/REPORT.md#{paper.lower()}): {told}")
    if own and notebook == _side_by_side()["notebook"]:
        lines.append(f"[side by side](results/REPORT.md#side-by-side): {_counted(compared(tables, ledger))}")
    return lines


def markdown(tables: Tables, ledger: pd.DataFrame) -> str:
    """``results/REPORT.md``."""
    found = {paper: claims(paper, tables, ledger) for paper in _papers(tables)}
    text = ["# Reproduction report", "Generated from the run records by `python -m fednb report`; do not edit."]
    if found:
        text.append(_overview(found, tables, ledger))
    text += ["## How to read it", _meanings(ledger)]
    for paper, own in found.items():
        text += _section(paper, own, tables, ledger)
    if _side_by_side()["notebook"] in {table.notebook for table in tables.values()}:
        text += _comparisons(tables, ledger)
    return "\n\n".join(text) + "\n"


_MARKS = {"ahead": " ▲", "behind": " ▼", "diverged": " †"}


def _comparisons(tables: Tables, ledger: pd.DataFrame) -> list[str]:
    told, found = _side_by_side(), compared(tables, ledger)
    heads = [f"[{title}](tables/{name}.md)" for name, title in told["tables"].items()]
    rows = dict.fromkeys(row for of in found.values() for row in of)
    lines = [[row, *(_compared(of[row]) if row in of else "" for of in found.values())] for row in rows]
    notebook, baseline = told["notebook"], told["baseline"]
    return [
        "## Side by side",
        f"{told['note']} In notebook [{notebook}](../notebooks/{notebook}.ipynb). Shown is the lead over {baseline} in "
        f"points, paired by seed, with its {LEVEL:.0%} interval.",
        grid([f"against {baseline}", *heads], lines, right=heads),
        f"▲ ahead, ▼ behind, no mark: the interval contains zero. † a run diverged, so that there is no verdict; the number "
        f"is of the seeds that are left. {_counted(found)}. If no method differed from {baseline}, {1 - LEVEL:.0%} of the "
        "intervals would miss zero all the same.",
    ]


def _compared(one: Comparison) -> str:
    judged = one.judged
    if not judged.seeds:
        return "not run"
    half = "" if judged.seeds < MIN_SEEDS else f" ± {judged.half:.1f}"
    return f"{_signed(judged.lead)}{half}{_MARKS.get(one.verdict, '')}"


def _counted(found: Mapping[str, Mapping[str, Comparison]]) -> str:
    """Such as ``50 comparisons: 3 ahead, 12 behind, 35 open``."""
    every = [one.verdict for of in found.values() for one in of.values()]
    kinds = ("ahead", "behind", "open", "indicative", "diverged", "not run")
    told = [f"{every.count(kind)} {kind}" for kind in kinds if kind in every]
    return f"{len(every)} comparisons with {_side_by_side()['baseline']}: {', '.join(told)}"


def _overview(found: Mapping[str, list[Claim]], tables: Tables, ledger: pd.DataFrame) -> str:
    lines = []
    for paper, own in found.items():
        of_paper = [cell for table in _printed_tables(paper, tables) for cell in cells(table, ledger)]
        run = sum(bool(cell.statuses) for cell in of_paper)
        told = verdicts(of_paper)
        told.pop("not run", None)
        lines.append([f"[{paper}](#{paper.lower()})", f"{run} of {len(of_paper)}", counts(told), _told(own)])
    return grid(["paper", "cells run", "of these", "claims"], lines)


def _meanings(ledger: pd.DataFrame) -> str:
    devices = sorted({record.get("device", "unknown") for record in ledger["record"]}) if len(ledger) else []
    stale = int(ledger["stale"].sum()) if len(ledger) else 0
    made = f", made on {', '.join(devices)}" if devices else ""
    old = f"; {stale} of an older results version do not count" if stale else ""
    level = f"{LEVEL:.0%}"
    notes = [
        f"Behind every number are records, one file per run: {len(ledger)} in all{made}{old}. A table's page leads "
        "from each cell to its records, and to the line that makes them again.",
        "*Cells* are those of the paper's tables; reduced versions of a table count as well. *Reproduced*: the "
        f"printed value is within {WITHIN_POINTS:g} point of our mean, or within our {level} interval over at least "
        f"{MIN_SEEDS} seeds, widened by the paper's ± over trials; *off*: further away; *indicative*: fewer seeds; "
        "*reduced*: not the paper's setting or data, so not judged ([all words](tables/README.md)).",
        "*Mean absolute difference*: between our mean and the printed value, over the cells in the paper's setting; "
        "if there are none, over the reduced ones, and then it says so.",
        "A *claim* is that one row of a table is ahead of another. It is judged by the differences between runs with "
        f"the same seed on the same split. It *holds* if the {level} interval of their mean, over at least {MIN_SEEDS} "
        "seeds, lies above zero; it *does not hold* if that lies below; it is *open* if that contains zero. With "
        "fewer seeds the difference is *indicative*, for the claim or against it. A lead has the sign of the claim: it is "
        "positive if things are as the paper says, of rounds or a spread as well.",
        f"*Confidence* is the largest level at which the interval (Student's t) leaves out zero. From {level} on there "
        "is a verdict. *Printed lead inside* says whether the paper's lead is within our interval.",
        "Each claim is looked for in the paper's own setting first, then in reduced ones, then on the data that come "
        f"with the package. What counts is the first finding with {MIN_SEEDS} seeds, else the first; small embedded "
        "data count only if there is nothing else. What the other findings say stands below.",
        "A *ladder* goes from the printed setting to the published code and changes one setting at a time. ± is the "
        f"half width of the {level} interval over seeds.",
    ]
    return "\n".join(f"- {note}" for note in notes)


def _section(paper: str, own: list[Claim], tables: Tables, ledger: pd.DataFrame) -> list[str]:
    notebook = _described()[paper]["notebook"]
    whole = [table for table in tables.values() if table.notebook == notebook]
    rest = sum(not table.printed for table in whole)
    text = [
        f"## {paper}",
        f"*{paper_title(paper)}*, in notebook [{notebook}](../notebooks/{notebook}.ipynb).",
        "### Tables",
        _table_of_tables(paper, tables, ledger),
        f"{rest} more tables have no printed numbers beside them ([all](tables/README.md#{notebook})).",
        "### Claims",
        _table_of_claims(own),
    ]
    if reasons := _reasons(own):
        text += ["### Likely reasons", reasons]
    told = _described()[paper]["ladder"]
    text += [f"### {told['title']}", told["note"], _table_of_rungs(ladder(paper, tables, ledger), told)]
    return text


def _table_of_tables(paper: str, tables: Tables, ledger: pd.DataFrame) -> str:
    lines, empty = [], []
    for table in _printed_tables(paper, tables):
        found = cells(table, ledger)
        told = verdicts(found)
        told.pop("not run", None)
        run = sum(bool(cell.statuses) for cell in found)
        name = f"[{table.name}](tables/{table.name}.md)"
        if run:
            lines.append([name, table.title, f"{run} of {len(found)}", _mean_difference(found), counts(told)])
        else:
            empty.append(f"{name} ({len(found)})")
    heads = ["table", "what", "cells run", "mean absolute difference", "verdicts"]
    text = [grid(heads, lines, right=("cells run", "mean absolute difference"))] if lines else []
    if empty:
        text.append(f"No cell run yet, of so many: {', '.join(empty)}.")
    return "\n\n".join(text)


def _mean_difference(found: Iterable[Cell]) -> str:
    """Of the cells in the paper's setting; of reduced ones only if there are no others."""
    known = [cell for cell in found if cell.difference is not None and MEASURES[cell.measure].judged]
    full = [cell for cell in known if cell.verdict != "reduced"]
    if not known:
        return ""
    mean = np.mean([abs(cell.difference) for cell in full or known])
    return f"{mean:.1f}" if full else f"{mean:.1f} (reduced)"


def _table_of_claims(own: Iterable[Claim]) -> str:
    lines = []
    for claim in own:
        best = claim.best
        others = [finding for finding in claim.findings if finding is not best and finding.judged.seeds]
        for finding in [best, *others]:
            mine, judged = finding is best, finding.judged
            unit = MEASURES[finding.ahead.measure].unit
            inside = judged.inside(claim.printed)
            lines.append(
                [
                    f"{claim.text}<br>*{claim.where}*" if mine else "",
                    "" if claim.printed is None or not mine else _signed(claim.printed),
                    f"[{finding.table.name}](tables/{finding.table.name}.md): {finding.setting}" if judged.seeds else "",
                    _lead(judged, unit),
                    "" if inside is None else "yes" if inside else "no",
                    _level(judged.level),
                    f"**{judged.verdict}**" if mine else judged.verdict,
                ]
            )
    heads = ["claim", "printed lead", "runs", "lead here", "printed lead inside", "confidence", "verdict"]
    return grid(heads, lines, right=("printed lead", "lead here", "confidence"))


def _lead(judged: Judgement, unit: str) -> str:
    seeds = f"{judged.seeds} {'seed' if judged.seeds == 1 else 'seeds'}"
    if not judged.seeds:
        return ""
    if judged.lead is None:
        return f"not reached by every run ({seeds})"
    half = "" if judged.seeds < MIN_SEEDS else f" ± {judged.half:.1f}"
    return f"{_signed(judged.lead)}{half} {unit} ({seeds})"


def _signed(value: float) -> str:
    return f"{round(value, 1) + 0:+.1f}"  # without a minus before 0.0


def _level(level: float | None) -> str:
    """Rounded down, so that no level reads as one that it does not reach."""
    if level is None or math.isnan(level):
        return ""
    return "> 99.9%" if level > 0.999 else f"{math.floor(1000 * level + 1e-9) / 1000:.1%}"


def _reasons(own: Iterable[Claim]) -> str:
    """Why claims may not hold that do not, or are not shown to; a reason that several share is told once."""
    told: dict[str, list[str]] = {}
    for claim in own:
        if claim.reason and claim.verdict in _DOUBTFUL:
            told.setdefault(claim.reason, []).append(f"{claim.text} ({claim.verdict})")
    return "\n".join(f"- *{'; '.join(names)}.* {reason}" for reason, names in told.items())


def _table_of_rungs(rungs: Sequence[Rung], told: Mapping[str, Any]) -> str:
    lines = []
    for i, rung in enumerate(rungs):
        total = i == len(rungs) - 1
        here = "not run" if not rung.cell.values else f"{rung.cell.mean:.1f}"
        if len(rung.cell.values) > 1:
            here += f" ± {statistics.interval(rung.cell.values, LEVEL)[1]:.1f}"
        change = "" if rung.difference is None else _signed(rung.difference)
        if rung.half is not None and not math.isnan(rung.half):
            change += f" ± {rung.half:.1f}"
        if not rung.paired:
            change += " (another split, so not in pairs)"
        seeds = str(len(rung.cell.values)) if rung.cell.values else ""
        lines.append(["*all steps together*", "", "", change] if total else [rung.cell.row, here, seeds, change])
    return grid(["step", "here", "seeds", "change"], lines, right=("here", "seeds", "change"))


def _told(own: Iterable[Claim]) -> str:
    """How many claims have which verdict."""
    own = list(own)
    sides = [Counter(claim.verdict for claim in own if claim.best.embedded == embedded) for embedded in (False, True)]
    here, small = (
        ", ".join(f"{n[kind]} {_PLURAL.get(kind, kind) if n[kind] > 1 else kind}" for kind in VERDICTS if n[kind])
        for n in sides
    )
    return "; ".join([here] * bool(here) + [f"on embedded data alone {small}"] * bool(small))


_PLURAL = {"holds": "hold", "does not hold": "do not hold"}


def _papers(tables: Tables) -> list[str]:
    """The papers whose notebooks' tables are given."""
    notebooks = {table.notebook for table in tables.values()}
    return [paper for paper, told in _described().items() if told["notebook"] in notebooks]


def _printed_tables(paper: str, tables: Tables) -> list[sweep.Table]:
    return [table for table in tables.values() if table.printed and table.printed.partition(" ")[0] == paper]


def _described() -> dict[str, dict[str, Any]]:
    """Of each paper its claims and ladder."""
    return {paper: told for paper, told in _claims_file().items() if paper != "side by side"}


def _side_by_side() -> dict[str, Any]:
    return _claims_file()["side by side"]


def _claims_file() -> dict[str, dict[str, Any]]:
    return _read(CLAIMS, CLAIMS.stat().st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _read(path: Path, time_ns: int) -> dict[str, dict[str, Any]]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))
