"""Which row is ahead of which: leads in pairs, the papers' claims in ``data/claims.yaml``, methods side by side."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fednb import ROOT
from fednb.data import catalog
from fednb.experiments import sweep
from fednb.reporting import statistics
from fednb.reporting.metrics import ReportError
from fednb.reporting.statistics import Lead
from fednb.reporting.tables import Cell, Ledger, Named, cells_of, in_words

Found = Mapping[str, Sequence[Cell]]  # the cells of each table
CLAIMS = ROOT / "data" / "claims.yaml"
SIDE = "side by side"

# --- in pairs ---------------------------------------------------------------------------------------------------------


def difference(a: Cell, b: Cell) -> Lead:
    """a − b, over the seeds that both have on the same split."""
    one, other = a.by_pair, b.by_pair
    return statistics.lead([one[pair] - other[pair] for pair in one if pair in other])


def lead_of(ahead: Cell, behind: Cell) -> Lead:
    """By how much ``ahead`` is better: more points, fewer rounds, a narrower spread."""
    return difference(*((behind, ahead) if ahead.of.lower else (ahead, behind)))


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


def lead(table: Named, a: str, b: str, column: str | None = None, *, ledger: Ledger = None) -> str:
    """By how much row ``a`` is above row ``b``, in words such as ``"+1.0 ± 0.4 points over 3 seeds: ahead"``.

    The difference is of runs in pairs, with the same seed on the same split; "not run" if there are none.
    """
    found = cells_of(table, ledger)
    one, other = (cell_at(found, row, column) for row in (a, b))
    up = difference(one, other)
    seeds = {1: "one seed", 2: "two seeds"}.get(up.seeds, f"{up.seeds} seeds")
    if up.mean is None:
        return f"not reached by every run of {seeds}" if up.seeds else "not run"
    if not up.judged:
        return f"{statistics.told(up, one.of.unit)} ({seeds}: indicative)"
    word = statistics.verdict(lead_of(one, other)).partition(" (")[0]
    return f"{statistics.told(up, one.of.unit)} over {seeds}: {word}"


def gaps(table: sweep.Table, found: Sequence[Cell]) -> tuple[str, dict[tuple[str, str], tuple[Cell, Lead]]]:
    """What the rows of a table are compared with, and of each other cell its partner and the difference: one family.

    That is the table's baseline, else FedAvg, else the first row; of several rows of FedAvg the first on the same splits.
    """
    tests = (lambda c: c.label == (table.baseline or "FedAvg"), lambda c: c.job.settings.method == "FedAvg")
    chosen = next((some for test in tests if (some := [c for c in found if test(c)])), found)
    chosen = (
        chosen if len({c.row for c in chosen}) < len({c.row for c in found}) else [c for c in found if c.row == found[0].row]
    )
    name = chosen[0].label if len({c.row for c in chosen}) == 1 else chosen[0].job.settings.method
    made = {}
    for cell in (cell for cell in found if cell not in chosen and cell.of.compared):
        pairs = ((other, difference(cell, other)) for other in chosen if other.column == cell.column)
        if partner := next((pair for pair in pairs if pair[1].mean is not None), None):
            made[cell.row, cell.column] = partner
    leads = statistics.corrected([lead for _, lead in made.values()])
    return name, {place: (made[place][0], lead) for place, lead in zip(made, leads, strict=True)}


# --- claims -----------------------------------------------------------------------------------------------------------


class Finding(NamedTuple):
    """One cell against another, and what their runs say."""

    ahead: Cell
    behind: Cell
    lead: Lead

    @property
    def diverged(self) -> bool:
        """Whether a run of them did."""
        return "diverged" in self.ahead.statuses + self.behind.statuses

    @property
    def dataset(self) -> str:
        """Its data set."""
        return self.ahead.job.settings.dataset

    @property
    def embedded(self) -> bool:
        """Whether it is on data that come with the package, which no paper has."""
        return self.dataset in catalog.EMBEDDED

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
    short: str  # in a figure; empty: in none
    reason: str
    printed: float | None
    findings: list[Finding]

    @property
    def told(self) -> list[Finding]:
        """Those with runs, the paper's own setting first: that counts, short runs and small data stand behind it."""
        return [finding for finding in self.findings if finding.lead.seeds] or self.findings[:1]

    def beside(self, finding: Finding) -> float | None:
        """The printed lead, if the finding is on the same data: on others its size is none to compare with."""
        return self.printed if finding.dataset == self.findings[0].dataset else None

    def verdict(self, finding: Finding | None = None) -> str:
        """Of the finding that counts, or of another."""
        finding = finding or self.told[0]
        said = statistics.verdict(finding.lead, self.beside(finding))
        return said.replace("ahead", "right sign").replace("behind", "the other way round")

    def setting(self, finding: Finding, *, brief: bool = False) -> str:
        """On what a finding rests: what is not the paper's, and how many seeds."""
        other = [] if finding.dataset == self.findings[0].dataset else [catalog.facts_of(finding.dataset).title]
        told = (
            [] if finding.embedded else [in_words(text, brief=brief) for text in finding.deviations[: 2 if brief else None]]
        )
        return ", ".join(other + told) or "the paper's setting"


def described() -> dict[str, dict[str, Any]]:
    """``data/claims.yaml``: of each paper its claims, and the tables of ``side by side``."""
    return _described(CLAIMS)


@functools.cache
def _described(file: Path) -> dict[str, dict[str, Any]]:
    with _told("the file"):
        content = dict(yaml.safe_load(file.read_text(encoding="utf-8")))
    for name, told in content.items():
        with _told(name):
            itemgetter("notebook", *(("baseline", "column", "tables", "note") if name == SIDE else ("claims",)))(told)
    return content


@contextlib.contextmanager
def _told(where: str) -> Iterator[None]:
    """What is wrong in the file, and what it names that is not there, as a `ReportError`."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, yaml.YAMLError) as error:
        what = f"there is no {error}." if isinstance(error, KeyError) else " ".join(str(error).split())
        raise ReportError(f"data/claims.yaml, {where}: {what}") from error


def claims_of(paper: str, found: Found | None = None) -> list[Claim]:
    """The claims of a paper, judged as one family; without cells those of the committed records.

    A `ReportError` for a paper or a row that there is not.
    """
    if paper not in described() or paper == SIDE:
        raise ReportError(f"There are no claims of {paper!r}; there are those of {', '.join(described().keys() - {SIDE})}.")
    made = []
    for i, entry in enumerate(described()[paper]["claims"], 1):
        with _told(f"{paper}, claim {i}"):
            places = [entry | ({"table": one} if isinstance(one, str) else one) for one in entry["runs"]]
            tables = [cells_of(place["table"]) if found is None else found[place["table"]] for place in places]
            sides = [
                [cell_at(of, p[side], p["column"]) for side in ("ahead", "behind")]
                for of, p in zip(tables, places, strict=True)
            ]
            findings = [Finding(a, b, lead_of(a, b)) for a, b in sides]
            printed = next(((a.printed - b.printed) * a.sign for a, b in sides if None not in (a.printed, b.printed)), None)
            made.append(
                Claim(entry["claim"], entry["where"], entry.get("short", ""), entry.get("reason", ""), printed, findings)
            )
    every = iter(statistics.corrected([finding.lead for claim in made for finding in claim.findings]))
    return [claim._replace(findings=[one._replace(lead=next(every)) for one in claim.findings]) for claim in made]


def side_by_side(found: Found) -> dict[str, dict[str, Finding]]:
    """Each method against the baseline, by table and method, in tables in which all have one protocol: one family."""
    with _told(SIDE):
        told, made = described()[SIDE], {}
        for name, title in told["tables"].items():
            baseline = cell_at(found[name], told["baseline"], told["column"])
            others = [cell for cell in found[name] if cell.column == told["column"] and cell.row != told["baseline"]]
            made[title] = {cell.row: Finding(cell, baseline, lead_of(cell, baseline)) for cell in others}
    every = [one for of in made.values() for one in of.values()]
    # what is left of runs that diverged are the differences of lucky seeds: they get no verdict
    leads = iter(statistics.corrected([Lead() if one.diverged else one.lead for one in every]))
    return {title: {row: one._replace(lead=next(leads)) for row, one in of.items()} for title, of in made.items()}
