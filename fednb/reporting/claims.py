"""Which row is ahead of which: leads by seed, the papers' claims in ``data/claims.yaml``, ladders, methods side by side."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from fednb import ROOT
from fednb.data import catalog
from fednb.reporting.metrics import ReportError
from fednb.reporting.statistics import MIN_SEEDS, confidence, interval, interval_of_difference
from fednb.reporting.tables import Cell, Ledger, Named, cells_of

Found = Mapping[str, Sequence[Cell]]  # the cells of each table
CLAIMS = ROOT / "data" / "claims.yaml"
SIDE = "side by side"

# --- leads by seed ----------------------------------------------------------------------------------------------------


def leads(a: Cell, b: Cell) -> list[float]:
    """By how much ``a`` is better than ``b``, for each seed that both have; infinite if a run of them never got there.

    Better are more points, fewer rounds, a narrower spread. A `ReportError` if a seed splits the data differently.
    """
    pairs = [(seed, *a.by_seed[seed], *b.by_seed[seed]) for seed in sorted(a.by_seed.keys() & b.by_seed.keys())]
    for seed, _, split, _, other in pairs:
        if split != other:
            raise ReportError(f"{a.table}: {a.row} and {b.row} cannot be paired: seed {seed} splits the data differently.")
    if not all(a.of.reached(x) and a.of.reached(y) for _, x, _, y, _ in pairs):
        return [math.inf] * len(pairs)
    return [(x - y) * a.sign for _, x, _, y, _ in pairs]


class Judgement(NamedTuple):
    """A verdict, the number of pairs, their mean lead, its interval's half width, and the level at which it holds.

    The last three are None if there is no pair or if a run never got there; the last two of one pair are NaN.
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
    """The rule: a claim holds if the 95 % interval of its mean lead over at least three seeds lies above 0."""
    n = len(leads)
    if not n:
        return Judgement("not run")
    if not np.isfinite(leads).all():
        return Judgement("open" if n >= MIN_SEEDS else "indicative", n)
    mean, half = interval(leads)
    if n < MIN_SEEDS:  # a lead that is told as 0.0 speaks for nobody
        told = "indicative (against)" if round(mean, 1) < 0 else "indicative"
    else:
        told = "holds" if mean > half else "does not hold" if mean < -half else "open"
    return Judgement(told, n, mean, half, confidence(leads))


def cell_at(found: Sequence[Cell], row: str, column: str | None = None) -> Cell:
    """One of a table's cells, by the names of its row and column; of a single column without that."""
    columns = list(dict.fromkeys(cell.column for cell in found))
    if column is None and len(columns) > 1:
        raise ReportError(f"{found[0].table} has several columns; choose one of {', '.join(columns)}.")
    for cell in found:
        if (cell.row, cell.column) == (row, column or columns[0]):
            return cell
    known = ", ".join(f"{cell.row} | {cell.column}" for cell in found)
    raise ReportError(f"{found[0].table} has no row {row!r} with column {column or columns[0]!r}; there are {known}.")


def _judged(table: Named, a: str, b: str, column: str | None, ledger: Ledger) -> tuple[Judgement, float, Cell]:
    """The judgement that ``a`` is ahead, its lead in a − b, and the cell of ``a``."""
    found = cells_of(table, ledger)
    one, other = (cell_at(found, row, column) for row in (a, b))
    judged = judge(leads(one, other))
    return judged, math.nan if judged.lead is None else one.sign * judged.lead + 0.0, one


def paired(table: Named, a: str, b: str, column: str | None = None, *, ledger: Ledger = None) -> tuple[float, float, int]:
    """By how much row ``a`` beats row ``b``: mean difference a − b over the seeds that both have, the half width of its
    95 % interval (NaN for one pair), and the number of pairs.

    A `ReportError` for an unknown row or column, without a shared seed, or if a seed splits the data differently.
    """
    judged, difference, cell = _judged(table, a, b, column, ledger)
    if judged.lead is None:
        why = "cannot be paired: a run never got there." if judged.seeds else "share no finished seed."
        raise ReportError(f"{cell.table}: {a} and {b} {why}")
    return difference, judged.half, judged.seeds


def lead(table: Named, a: str, b: str, column: str | None = None, *, ledger: Ledger = None) -> str:
    """What `paired` says in words, such as ``"+1.0 ± 0.4 points over 3 seeds: ahead"``; "not run" without a shared seed."""
    judged, difference, cell = _judged(table, a, b, column, ledger)
    seeds = {1: "one seed", 2: "two seeds"}.get(judged.seeds, f"{judged.seeds} seeds")
    if judged.lead is None:
        return f"not reached by every run of {seeds}" if judged.seeds else "not run"
    if judged.seeds < MIN_SEEDS:
        return f"{difference:+.1f} {cell.of.unit} ({seeds}: indicative)"
    told = {"holds": "ahead", "does not hold": "behind", "open": "no difference shown"}[judged.verdict]
    return f"{difference:+.1f} ± {judged.half:.1f} {cell.of.unit} over {seeds}: {told}"


# --- claims, ladders, methods side by side ----------------------------------------------------------------------------


class Finding(NamedTuple):
    """One cell against another, and what their runs say."""

    ahead: Cell
    behind: Cell
    judged: Judgement

    @property
    def embedded(self) -> bool:
        """Whether it is on data that come with the package, which no paper has."""
        return self.ahead.job.settings.dataset in catalog.EMBEDDED

    @property
    def deviations(self) -> list[str]:
        """What is not the paper's setting; what only one of the methods has is the claim itself."""
        names = [{text.split(" ")[0] for text in cell.deviations} for cell in (self.ahead, self.behind)]
        common = vars(self.ahead.job.settings).keys() | (names[0] & names[1])
        both = dict.fromkeys(self.ahead.deviations + self.behind.deviations)
        return [text for text in both if text.split(" ")[0] in common]

    @property
    def side(self) -> str:
        """``ahead``, ``behind``, ``open``; of runs that diverged none: what is left are the differences of lucky seeds."""
        words = {"holds": "ahead", "does not hold": "behind", "indicative (against)": "indicative"}
        diverged = "diverged" in self.ahead.statuses + self.behind.statuses
        return "diverged" if diverged else words.get(self.judged.verdict, self.judged.verdict)


class Claim(NamedTuple):
    """What a paper says, with the printed lead in its direction, and what is found, the paper's own setting first."""

    text: str
    where: str
    reason: str
    printed: float | None
    findings: list[Finding]

    @property
    def told(self) -> list[Finding]:
        """The finding that counts, the first with enough seeds, else with any, embedded data last; then others with runs."""
        some = [finding for finding in self.findings if finding.judged.seeds]
        own = [finding for finding in some if not finding.embedded] or some
        enough = [finding for finding in own if finding.judged.seeds >= MIN_SEEDS]
        best = (enough or own or self.findings)[0]
        return [best, *(finding for finding in some if finding is not best)]

    @property
    def verdict(self) -> str:
        """Of the finding that counts."""
        return self.told[0].judged.verdict

    @property
    def counted(self) -> str:
        """The verdict, where many are counted: apart if it is on embedded data alone."""
        return self.verdict + " (embedded data)" * self.told[0].embedded


def described() -> dict[str, dict[str, Any]]:
    """``data/claims.yaml``: of each paper its claims and ladder, and the tables of ``side by side``."""
    return _described(CLAIMS)


@functools.cache
def _described(file: Path) -> dict[str, dict[str, Any]]:
    with _told("the file"):
        content = dict(yaml.safe_load(file.read_text(encoding="utf-8")))
    for name, told in content.items():
        with _told(name):
            needed = ("baseline", "column", "tables", "note") if name == SIDE else ("claims", "ladder")
            itemgetter("notebook", *needed)(told)
    return content


@contextlib.contextmanager
def _told(where: str) -> Iterator[None]:
    """What is wrong in the file, and what it names that is not there, as a `ReportError`."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, yaml.YAMLError) as error:
        what = f"there is no {error}." if isinstance(error, KeyError) else " ".join(str(error).split())
        raise ReportError(f"data/claims.yaml, {where}: {what}") from error


def claims(paper: str, found: Found) -> list[Claim]:
    """The claims of a paper, judged; a `ReportError` for one about what there is not, or about rows that are no pairs."""
    made = []
    for i, entry in enumerate(described()[paper]["claims"], 1):
        with _told(f"{paper}, claim {i}"):
            places = [entry | ({"table": one} if isinstance(one, str) else one) for one in entry["runs"]]
            cells = [[cell_at(found[p["table"]], p[side], p["column"]) for side in ("ahead", "behind")] for p in places]
            findings = [Finding(a, b, judge(leads(a, b))) for a, b in cells]
            printed = [(a.printed - b.printed) * a.sign for a, b in cells if None not in (a.printed, b.printed)]
            reason = entry.get("reason", "")
            made.append(Claim(entry["claim"], entry["where"], reason, printed[0] if printed else None, findings))
    return made


def ladder(paper: str, found: Found) -> list[Finding]:
    """The steps from the paper's printed setting to its code, each against the one before (the first against itself), and at
    the end all of them together; without pairs of seeds (`Judgement.seeds` 0) as independent samples."""
    with _told(f"{paper}, ladder"):
        told = described()[paper]["ladder"]
        rows = [cell_at(found[one.get("table", told["table"])], one["row"], told["column"]) for one in told["steps"]]
    return [_step(before, after) for before, after in zip([rows[0], *rows[:-1], rows[0]], [*rows, rows[-1]], strict=True)]


def _step(before: Cell, after: Cell) -> Finding:
    try:
        judged = judge(leads(after, before))
    except ReportError:  # on other splits
        judged = judge(())
    if not judged.seeds and before.values and after.values:
        judged = Judgement("open", 0, *interval_of_difference(after.values, before.values))
    return Finding(after, before, judged)


def side_by_side(found: Found) -> dict[str, dict[str, Finding]]:
    """Each method against the baseline, by table and method, in tables in which all have one protocol."""
    with _told(SIDE):
        told, made = described()[SIDE], {}
        for name, title in told["tables"].items():
            baseline = cell_at(found[name], told["baseline"], told["column"])
            others = [cell for cell in found[name] if cell.column == told["column"] and cell.row != told["baseline"]]
            made[title] = {cell.row: Finding(cell, baseline, judge(leads(cell, baseline))) for cell in others}
    return made
