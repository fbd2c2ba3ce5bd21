"""Which row is ahead of which: leads by seed, the papers' claims in ``data/claims.yaml``, ladders, methods side by side."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import yaml

from fednb import ROOT, data
from fednb.experiments import sweep
from fednb.reporting.statistics import MIN_SEEDS, confidence, interval, interval_of_difference
from fednb.reporting.tables import Cell, Records, ReportError, cells, cells_of_tables, committed, table_of

CLAIMS = ROOT / "data" / "claims.yaml"
Found = Mapping[str, Sequence[Cell]]  # the cells of each table
Named = str | sweep.Table  # a table, or its name in the sweep files

# --- leads by seed ----------------------------------------------------------------------------------------------------


def leads(a: Cell, b: Cell) -> list[float]:
    """By how much ``a`` is better than ``b``, for each seed that both have; infinite if a run of them never got there.

    Better are more points, fewer rounds, a narrower spread. A `ReportError` if a seed splits the data differently.
    """
    sides = []
    for cell in (a, b):
        runs = zip(cell.seeds, cell.partitions, cell.statuses, strict=True)
        good = [(seed, split) for seed, split, status in runs if status == "finished"]
        sides.append({seed: (value, split) for (seed, split), value in zip(good, cell.values, strict=True)})
    pairs = {seed: (sides[0][seed], sides[1][seed]) for seed in sorted(sides[0].keys() & sides[1].keys())}
    if other := [seed for seed, (one, two) in pairs.items() if one[1] != two[1]]:
        raise ReportError(f"{a.table}: {a.row} and {b.row} cannot be paired: seed {other[0]} splits the data differently.")
    values = [(one[0], two[0]) for one, two in pairs.values()]
    reached = all(map(a.of.reached, itertools.chain(*values)))
    return [((y - x) if a.of.lower else (x - y)) if reached else math.inf for x, y in values]


class Judgement(NamedTuple):
    """A claim's verdict, the number of pairs, their mean lead, its interval's half width, and the level at which it holds.

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
    if one := [cell for cell in found if (cell.row, cell.column) == (row, column or columns[0])]:
        return one[0]
    known = ", ".join(f"{cell.row} | {cell.column}" for cell in found)
    raise ReportError(f"{found[0].table} has no row {row!r} with column {column or columns[0]!r}; there are {known}.")


def _judged(table: Named, a: str, b: str, column: str | None, records: Records) -> tuple[Judgement, int, Cell]:
    """The judgement that ``a`` is ahead, the sign of a lead in a − b, and the cell of ``a``."""
    if isinstance(table, str):
        table, records = table_of(table), committed() if records is None else records
    one, other = (cell_at(cells(table, records), row, column) for row in (a, b))
    return judge(leads(one, other)), -1 if one.of.lower else 1, one


def paired(table: Named, a: str, b: str, column: str | None = None, *, records: Records = None) -> tuple[float, float, int]:
    """By how much row ``a`` beats row ``b``, judged by differences over the seeds that both have.

    Returns
    -------
    tuple
        Mean difference a − b, half width of its 95 % interval (NaN for one pair), number of pairs. A `ReportError` for an
        unknown row or column, without a shared seed, or if a seed splits the data differently in ``a`` and ``b``.
    """
    judged, sign, cell = _judged(table, a, b, column, records)
    if judged.lead is None:
        why = "cannot be paired: a run never got there." if judged.seeds else "share no finished seed."
        raise ReportError(f"{cell.table}: {a} and {b} {why}")
    return sign * judged.lead + 0.0, judged.half, judged.seeds


def lead(table: Named, a: str, b: str, column: str | None = None, *, records: Records = None) -> str:
    """What `paired` says in words, such as ``"+1.0 ± 0.4 points over 3 seeds: ahead"``; "not run" without a shared seed."""
    judged, sign, cell = _judged(table, a, b, column, records)
    seeds = {1: "one seed", 2: "two seeds"}.get(judged.seeds, f"{judged.seeds} seeds")
    if judged.lead is None:
        return f"not reached by every run of {seeds}" if judged.seeds else "not run"
    if judged.seeds < MIN_SEEDS:
        return f"{sign * judged.lead + 0.0:+.1f} {cell.of.unit} ({seeds}: indicative)"
    told = {"holds": "ahead", "does not hold": "behind", "open": "no difference shown"}[judged.verdict]
    return f"{sign * judged.lead + 0.0:+.1f} ± {judged.half:.1f} {cell.of.unit} over {seeds}: {told}"


# --- claims -----------------------------------------------------------------------------------------------------------


class Finding(NamedTuple):
    """A claim in one sweep table: the two cells, and what their runs say."""

    ahead: Cell
    behind: Cell
    judged: Judgement

    @property
    def embedded(self) -> bool:
        """Whether it is on data that come with the package, which no paper has."""
        return data.where(self.ahead.job.settings.dataset) == "embedded"

    @property
    def deviations(self) -> list[str]:
        """What is not the paper's setting; what only one of the methods has is the claim itself."""
        names = [{text.split(" ")[0] for text in cell.deviations} for cell in (self.ahead, self.behind)]
        common = vars(self.ahead.job.settings).keys() | (names[0] & names[1])
        both = dict.fromkeys(self.ahead.deviations + self.behind.deviations)
        return [text for text in both if text.split(" ")[0] in common]


class Claim(NamedTuple):
    """What a paper says, with the printed lead in its direction, and what is found, the paper's own setting first."""

    text: str
    where: str
    reason: str
    printed: float | None
    findings: tuple[Finding, ...]

    @property
    def told(self) -> list[Finding]:
        """The finding that counts, the first with enough seeds, else with any, embedded data last; then others with runs."""
        some = [finding for finding in self.findings if finding.judged.seeds]
        own = [finding for finding in some if not finding.embedded] or some
        enough = [finding for finding in own if finding.judged.seeds >= MIN_SEEDS]
        best = (enough or own or list(self.findings))[0]
        return [best, *(finding for finding in some if finding is not best)]

    @property
    def verdict(self) -> str:
        return self.told[0].judged.verdict

    @property
    def doubtful(self) -> bool:
        """Whether a likely reason should be told."""
        return self.verdict in ("does not hold", "open", "indicative (against)")


def claims(paper: str, found: Found) -> list[Claim]:
    """The claims of a paper, judged; a `ReportError` for one about what there is not, or about rows that are no pairs."""
    made = []
    for entry in described()[paper]["claims"]:
        usual, findings = {name: entry[name] for name in ("ahead", "behind", "column") if name in entry}, []
        for given in entry["runs"]:
            place = usual | ({"table": given} if isinstance(given, str) else given)
            try:
                ahead, behind = (
                    cell_at(found[place["table"]], place[side], place["column"]) for side in ("ahead", "behind")
                )
                findings.append(Finding(ahead, behind, judge(leads(ahead, behind))))
            except (KeyError, ReportError) as error:
                what = f"there is no {error.args[0]!r}." if isinstance(error, KeyError) else error
                raise ReportError(f"data/claims.yaml, {paper}, {entry['claim']!r}: {what}") from error
        both = [(one.ahead, one.behind) for one in findings if None not in (one.ahead.printed, one.behind.printed)]
        printed = [(a.printed - b.printed) * (-1 if a.of.lower else 1) for a, b in both[:1]]
        made.append(Claim(entry["claim"], entry["where"], entry.get("reason", ""), *(printed or [None]), tuple(findings)))
    return made


def tally(own: Iterable[Claim]) -> str:
    """How many claims have which verdict."""
    n = Counter((claim.told[0].embedded, claim.verdict) for claim in own)
    kinds = ("holds", "does not hold", "open", "indicative", "indicative (against)", "not run")
    plural = {"holds": "hold", "does not hold": "do not hold"}
    told = [
        ", ".join(f"{n[of, kind]} {plural.get(kind, kind) if n[of, kind] > 1 else kind}" for kind in kinds if n[of, kind])
        for of in (False, True)
    ]
    return "; ".join(before + text for before, text in zip(("", "on embedded data alone "), told, strict=True) if text)


# --- ladders, and methods side by side --------------------------------------------------------------------------------


class Step(NamedTuple):
    """A row of a ladder, and by how much it differs from the row before (of the first: None), in pairs if there are any."""

    cell: Cell
    difference: float | None = None
    half: float | None = None
    paired: bool = True


def ladder(paper: str, found: Found) -> list[Step]:
    """The steps from the paper's printed setting to its code, and at the end the difference that they all make.

    A `ReportError` if a step changes anything but what it names.
    """
    told, rows = described()[paper]["ladder"], []
    for step in told["steps"]:
        where, name = f"data/claims.yaml, {paper}, step {step['row']!r}", step.get("table", told["table"])
        if name not in found:
            raise ReportError(f"{where}: there is no table {name!r}.")
        rows.append(cell_at(found[name], step["row"], told["column"]))
        a, b = ({"measure": cell.measure} | cell.job.settings.flat() for cell in (rows[-2:][0], rows[-1]))
        differ = ", ".join(sorted(n for n in (a | b).keys() - {"seed"} if a.get(n) != b.get(n)))
        if differ != (asked := step.get("changes", "")):
            raise ReportError(f"{where} should change {asked or 'nothing'} alone, and changes {differ or 'nothing'}.")
    return [Step(rows[0]), *itertools.starmap(_step, itertools.pairwise(rows)), _step(rows[0], rows[-1])]


def _step(before: Cell, after: Cell) -> Step:
    try:
        pairs = leads(after, before)
    except ReportError:  # on other splits
        pairs = []
    if pairs:
        return Step(after, *interval(pairs))
    if not before.values or not after.values:
        return Step(after)
    return Step(after, *interval_of_difference(after.values, before.values), paired=False)


class Comparison(NamedTuple):
    """A method against the baseline in one table; ``diverged`` counts the runs of either that did."""

    judged: Judgement
    diverged: int

    @property
    def verdict(self) -> str:
        """Of a method whose runs diverged there is none: the differences that are left are those of its lucky seeds."""
        told = {"holds": "ahead", "does not hold": "behind", "indicative (against)": "indicative"}
        return "diverged" if self.diverged else told.get(self.judged.verdict, self.judged.verdict)


def compared(tables: Mapping[str, sweep.Table], records: Records = None) -> dict[str, dict[str, Comparison]]:
    """Each method against the baseline, by table and method, in the tables of ``side by side`` in ``data/claims.yaml``."""
    return side_by_side(cells_of_tables(tables.values(), records))


def side_by_side(found: Found) -> dict[str, dict[str, Comparison]]:
    """As `compared`, from the cells of the tables; a `ReportError` if one of them is not there."""
    told, made = read()["side by side"], {}
    for name, title in told["tables"].items():
        if name not in found:
            raise ReportError(f"data/claims.yaml, side by side: there is no table {name!r}.")
        baseline = cell_at(found[name], told["baseline"], told["column"])
        others = [cell for cell in found[name] if cell.column == told["column"] and cell.row != told["baseline"]]
        made[title] = {
            cell.row: Comparison(judge(leads(cell, baseline)), (cell.statuses + baseline.statuses).count("diverged"))
            for cell in others
        }
    return made


def tally_of_pairs(found: Mapping[str, Mapping[str, Comparison]]) -> str:
    """Such as ``50 comparisons with FedAvg: 3 ahead, 12 behind, 35 open``."""
    n = Counter(one.verdict for of in found.values() for one in of.values())
    kinds = ("ahead", "behind", "open", "indicative", "diverged", "not run")
    told = ", ".join(f"{n[kind]} {kind}" for kind in kinds if n[kind])
    return f"{n.total()} comparisons with {read()['side by side']['baseline']}: {told}"


# --- the file ---------------------------------------------------------------------------------------------------------

_SIDE = {"notebook": str, "note": str, "baseline": str, "column": str, "tables": dict}
_CLAIM = {"claim": str, "where": str, "runs": [str | dict]}
_LADDER = {"title": str, "note": str, "table": str, "column": str, "steps": [{"row": str}]}
_PAPER = {"notebook": str, "claims": [_CLAIM], "ladder": _LADDER}


def described() -> dict[str, dict[str, Any]]:
    """Of each paper its claims and ladder."""
    return {paper: told for paper, told in read().items() if paper != "side by side"}


@functools.cache
def read() -> dict[str, dict[str, Any]]:
    """``data/claims.yaml``; a `ReportError` if it cannot be read or lacks something."""
    try:
        content = yaml.safe_load(CLAIMS.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise ReportError(f"data/claims.yaml cannot be read: {' '.join(str(error).split())}") from error
    _check("data/claims.yaml", content, {"side by side": _SIDE})
    for paper, told in content.items():
        _check(f"data/claims.yaml, {paper}", told, _SIDE if paper == "side by side" else _PAPER)
    return content


def _check(where: str, value: Any, shape: Any) -> None:
    """Refuse what has not the shape of a type, of a mapping that has these, or of a list of these."""
    kind = type(shape) if isinstance(shape, dict | list) else shape
    if not isinstance(value, kind) or not value:
        words = {dict: "a mapping", list: "a list", str: "a text"}.get(kind, "a text or a mapping")
        raise ReportError(f"{where}: there must be {words} that is not empty.")
    for name, inner in shape.items() if isinstance(shape, dict) else ():
        _check(f"{where}, {name}", value.get(name), inner)
    for i, one in enumerate(value if isinstance(shape, list) else ()):
        _check(f"{where}, number {i + 1}", one, shape[0])
