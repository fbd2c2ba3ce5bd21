"""Who is ahead of whom, in pairs of runs: in a table, in the papers' claims, and side by side."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import yaml

from fednb import ROOT, data
from fednb.analysis import statistics
from fednb.analysis.cells import Cell, Ledger, TableOrName, cells_of
from fednb.analysis.deviations import AnyDeviation, TuningDeviation
from fednb.analysis.statistics import Kind, Lead, Verdict
from fednb.errors import ReportError, require_known
from fednb.experiments.ledger import check_form
from fednb.sweeps.table import Table

Key = TypeVar("Key")


class RowDeviation(NamedTuple):
    """How the runs of a comparison deviate from the paper's settings."""

    deviation: AnyDeviation
    row: str = ""  # the only one that does; empty: both do


@dataclass(frozen=True)
class Comparison:
    """One cell against another, and the lead that their runs show."""

    ahead: Cell
    behind: Cell
    lead: Lead  # of ``ahead``

    @property
    def diverged(self) -> bool:
        """Whether a run did: what is left are the differences of lucky seeds."""
        return self.ahead.diverged or self.behind.diverged

    @property
    def printed(self) -> float | None:
        """The lead that is printed, if both values are."""
        if self.ahead.printed is None or self.behind.printed is None:
            return None
        return self.ahead.measure.sign * (self.ahead.printed - self.behind.printed)

    @property
    def deviations(self) -> list[RowDeviation]:
        """What is not the paper's setting: first of both rows, then of one alone.

        A coefficient of one row's method alone is left out: it is the claim itself. Its tuning is
        told.
        """
        names_ahead = {one.name for one in self.ahead.deviations}
        names_behind = {one.name for one in self.behind.deviations}
        # no coefficient of one row's method alone
        shared = vars(self.ahead.job.settings).keys() | (names_ahead & names_behind)
        of_both = [one for one in self.ahead.deviations if one in self.behind.deviations]
        deviations = [RowDeviation(one) for one in of_both]
        for cell in (self.ahead, self.behind):
            for one in cell.deviations:
                counts = one.name in shared or isinstance(one, TuningDeviation)
                if counts and one not in of_both:
                    deviations.append(RowDeviation(one, cell.row))
        return deviations

    def verdict(self, printed: float | None = None, *, claimed: bool = False) -> Verdict:
        """What the lead shows, beside a printed one; ``claimed``: a paper says there is one."""
        if self.diverged:
            return Verdict(Kind.DIVERGED, self.lead)
        return statistics.judge(self.lead, printed, claimed=claimed)


def compare_cells(ahead: Cell, behind: Cell, sign: int = 1) -> Comparison:
    """Compare in pairs of runs, same seed and same split; with ``sign`` -1 less is ahead."""
    differences = [
        sign * (value - behind.by_pair[pair])
        for pair, value in ahead.by_pair.items()
        if pair in behind.by_pair
    ]
    return Comparison(ahead, behind, statistics.lead(differences))


def corrected_family(comparisons: Mapping[Key, Comparison]) -> dict[Key, Comparison]:
    """Comparisons that stand together, with p values that are corrected for their number.

    The same lead of the same runs counts once, however often it is asked for; seen from the other
    side it counts once more, so that the correction is rather too strict. One with a diverged run
    does not count.
    """
    leads = {}
    for one in comparisons.values():
        leads[_runs_and_lead(one)] = Lead() if one.diverged else one.lead
    new_leads = dict(zip(leads, statistics.corrected(list(leads.values())), strict=True))
    family = {}
    for key, one in comparisons.items():
        new = new_leads[_runs_and_lead(one)]
        family[key] = replace(one, lead=one.lead._replace(p=new.p, among=new.among))
    return family


def _runs_and_lead(one: Comparison) -> tuple[Any, ...]:
    return one.ahead.paths, one.behind.paths, one.lead


def cell_at(cells: Sequence[Cell], row: str, column: str | None = None) -> Cell:
    """The cell in that row and column, which may be left out if there is only one."""
    there = [cell for cell in cells if cell.row == row and column in (None, cell.column)]
    if len(there) == 1:
        return there[0]
    known = ", ".join(f"{cell.row} | {cell.column}" for cell in there or cells)
    raise ReportError(
        f"{cells[0].table} has no single cell {row} | {column or 'any column'}; there are {known}."
    )


def compare_rows(
    table: TableOrName, ahead: str, behind: str, column: str | None = None, ledger: Ledger = None
) -> Comparison:
    """Row ``ahead`` of a table against row ``behind``, in a column if it has several."""
    cells = cells_of(table, ledger)
    first = cell_at(cells, ahead, column)
    return compare_cells(first, cell_at(cells, behind, column), first.measure.sign)


class LeadsOverBaseline(NamedTuple):
    """How the cells of a table do against a baseline."""

    baseline: str  # what it is called
    comparisons: dict[tuple[str, str], Comparison]  # by row and column, where there are runs


def leads_over_baseline(table: Table, cells: Sequence[Cell]) -> LeadsOverBaseline:
    """Each cell against the table's baseline, else FedAvg, else the first row: one family."""
    references = _references(table, cells)
    comparisons = {}
    for cell in cells:
        if cell in references or not cell.measure.compared:
            continue
        beside = [reference for reference in references if reference.column == cell.column]
        pairs = [compare_cells(cell, reference) for reference in beside]
        with_runs = [pair for pair in pairs if pair.lead.seeds]
        if with_runs:
            comparisons[cell.row, cell.column] = with_runs[0]
    rows = {cell.row for cell in references}
    name = references[0].label if len(rows) == 1 else references[0].job.settings.method
    return LeadsOverBaseline(name, corrected_family(comparisons))


def _references(table: Table, cells: Sequence[Cell]) -> list[Cell]:
    """The cells that the others are compared with."""
    baseline = [cell for cell in cells if cell.label == (table.baseline or "FedAvg")]
    averages = [cell for cell in cells if cell.job.settings.method == "FedAvg"]
    for references in (baseline, averages):
        if 0 < len(references) < len(cells):
            return references
    return [cell for cell in cells if cell.row == cells[0].row]


class Place(NamedTuple):
    """Where runs for a claim are looked for: two rows of a table."""

    table: str
    ahead: str
    behind: str
    column: str


class ClaimEntry(NamedTuple):
    """A claim as ``data/claims.yaml`` has it."""

    claim: str  # a sentence
    where: str  # in the paper
    places: tuple[Place, ...]  # the paper's own setting first
    short: str = ""  # its name in figures; without one it is in none
    main: bool = False  # whether it stands on the report's first page
    reason: str = ""  # what to keep in mind


class PaperClaims(NamedTuple):
    """What ``data/claims.yaml`` has of a paper."""

    notebook: str
    found: tuple[str, ...]  # other results that matter, as templates
    entries: tuple[ClaimEntry, ...]


class SideBySide(NamedTuple):
    """The tables in which all methods have one protocol."""

    notebook: str
    note: str
    baseline: str  # a row
    column: str
    tables: dict[str, str]  # their titles by their names


class ClaimsFile(NamedTuple):
    """``data/claims.yaml``."""

    papers: dict[str, PaperClaims]
    side_by_side: SideBySide


@functools.cache
def claims_file() -> ClaimsFile:
    """What the papers claim; a `ReportError` if the file cannot be read."""
    try:
        content = yaml.safe_load((ROOT / "data" / "claims.yaml").read_text(encoding="utf-8"))
        check_form(content, "claims")
    except (ValueError, yaml.YAMLError) as error:
        raise ReportError(f"data/claims.yaml cannot be read: {error}") from error
    side_by_side = SideBySide(**content.pop("side by side"))
    papers = {}
    for paper, described in content.items():
        entries = tuple(_entry(entry) for entry in described["claims"])
        found = tuple(described.get("found", ()))
        papers[paper] = PaperClaims(described["notebook"], found, entries)
    return ClaimsFile(papers, side_by_side)


def _entry(entry: Mapping[str, Any]) -> ClaimEntry:
    usual = {name: entry[name] for name in ("ahead", "behind", "column")}
    places = []
    for of_table in entry["runs"]:
        own = {"table": of_table} if isinstance(of_table, str) else of_table
        places.append(Place(**usual | own))
    rest = {name: entry[name] for name in ("short", "main", "reason") if name in entry}
    return ClaimEntry(entry["claim"], entry["where"], tuple(places), **rest)


class ClaimSetting(NamedTuple):
    """What is not the paper's about the data and settings that a comparison rests on."""

    dataset: str = ""  # the title of another data set
    other_images: bool = False  # it is the same data set with other images
    deviations: tuple[RowDeviation, ...] = ()

    @property
    def is_the_papers(self) -> bool:
        """Whether nothing is."""
        return self == ClaimSetting()


@dataclass(frozen=True)
class Claim:
    """What a paper says, and what is found, the paper's own setting first."""

    entry: ClaimEntry
    comparisons: list[Comparison]  # one for each of its places

    @property
    def printed(self) -> float | None:
        """The printed lead, in the direction of the claim."""
        for comparison in self.comparisons:
            if comparison.printed is not None:
                return comparison.printed
        return None

    @property
    def with_runs(self) -> list[Comparison]:
        """Those with runs, nearest to the paper first; without any just the first."""
        with_runs = [comparison for comparison in self.comparisons if comparison.lead.seeds]
        return with_runs or self.comparisons[:1]

    @property
    def best(self) -> Comparison:
        """The comparison that counts; short runs and small data stand behind it."""
        return self.with_runs[0]

    @property
    def verdict(self) -> Verdict:
        """Of the comparison that counts; on other data the printed size is none to compare with."""
        printed = self.printed if self.on_its_data(self.best) else None
        return self.best.verdict(printed, claimed=True)

    def on_its_data(self, comparison: Comparison) -> bool:
        """Whether a comparison is on the same data as the paper's own."""
        own = self.comparisons[0].ahead.job.settings.dataset
        return comparison.ahead.job.settings.dataset == own

    def setting(self, comparison: Comparison) -> ClaimSetting:
        """What is not the paper's about it; on embedded data the settings never are."""
        dataset = comparison.ahead.job.settings.dataset
        deviations = () if dataset in data.EMBEDDED else tuple(comparison.deviations)
        if not self.on_its_data(comparison):
            return ClaimSetting(dataset=data.spec_of(dataset).title, deviations=deviations)
        other_images = bool(comparison.ahead.notes)
        return ClaimSetting(other_images=other_images, deviations=deviations)


def claims_of(paper: str, cells: Mapping[str, Sequence[Cell]] | None = None) -> list[Claim]:
    """The claims of a paper, judged as one family.

    ``cells`` are those of each table, by its name; without them the committed records are read.
    """
    papers = claims_file().papers
    require_known("There are no claims of", paper, papers, ReportError)
    comparisons: dict[tuple[int, int], Comparison] = {}  # by the numbers of claim and place
    for i, entry in enumerate(papers[paper].entries):
        for j, place in enumerate(entry.places):
            try:
                comparisons[i, j] = _compare_at(place, cells)
            except ReportError as error:
                where = f"data/claims.yaml, {paper}, claim {i + 1}"
                raise ReportError(f"{where}: {error}") from error
    family = corrected_family(comparisons)
    claims = []
    for i, entry in enumerate(papers[paper].entries):
        claims.append(Claim(entry, [family[i, j] for j in range(len(entry.places))]))
    return claims


def _compare_at(place: Place, cells: Mapping[str, Sequence[Cell]] | None) -> Comparison:
    if cells is None:
        of_table: Sequence[Cell] = cells_of(place.table)
    else:
        require_known("there is no table", place.table, cells, ReportError)
        of_table = cells[place.table]
    ahead = cell_at(of_table, place.ahead, place.column)
    behind = cell_at(of_table, place.behind, place.column)
    return compare_cells(ahead, behind, ahead.measure.sign)


def leads_side_by_side(
    cells: Mapping[str, Sequence[Cell]],
) -> dict[tuple[str, str], Comparison]:
    """Each method against the baseline, by table and method, as one family."""
    side_by_side = claims_file().side_by_side
    comparisons = {}
    for table in side_by_side.tables:
        baseline = cell_at(cells[table], side_by_side.baseline, side_by_side.column)
        for cell in cells[table]:
            if cell.column == side_by_side.column and cell.row != side_by_side.baseline:
                comparisons[table, cell.row] = compare_cells(cell, baseline)
    return corrected_family(comparisons)
