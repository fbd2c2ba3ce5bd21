"""What the papers claim, judged by runs on each claim's own data set: `judge` has the words."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fednb import ROOT, data
from fednb.errors import ReportError, require_known
from fednb.experiments.record import check_form
from fednb_lab import leads as statistics
from fednb_lab.cells import Cell, CellsOf, cells_of
from fednb_lab.comparisons import Comparison, RowDeviation, compare_at, corrected_family
from fednb_lab.leads import MIN_SEEDS, Judged, Lead

SCHEMA = Path(__file__).with_name("claims.schema.yaml")


class Place(NamedTuple):
    """Where runs for a claim are looked for, or a printed lead: two rows of a table."""

    table: str
    ahead: str
    behind: str
    column: str
    no_evidence: str = ""  # why the runs there say nothing about the claim; empty: they do


class ClaimEntry(NamedTuple):
    """A claim as ``data/claims.yaml`` has it."""

    claim: str  # a sentence
    where: str  # in the paper
    places: tuple[Place, ...]  # the paper's own setting first
    short: str = ""  # its name in figures; without one it is in none
    main: bool = False  # whether it stands on the report's first page
    reason: str = ""  # what to keep in mind
    printed_too: tuple[Place, ...] = ()  # where the paper prints another number for the same


class PaperClaims(NamedTuple):
    """What ``data/claims.yaml`` has of a paper."""

    notebook: str
    entries: tuple[ClaimEntry, ...]


class SideBySide(NamedTuple):
    """The tables in which all methods have one protocol."""

    notebook: str
    note: str
    baseline: str  # a row
    column: str
    tables: dict[str, str]  # their titles by their names


class Finding(NamedTuple):
    """A result in words, whose numbers records fill in: see `fednb_lab.findings`."""

    name: str
    notebook: str
    says: str  # a template, as are the next two
    fact: str = ""  # the same in one short sentence, for lists
    holds: str = ""  # an expression over records that is true as long as the sentence is
    surprise: bool = False  # whether the report opens with it


class ClaimsFile(NamedTuple):
    """``data/claims.yaml``."""

    papers: dict[str, PaperClaims]
    side_by_side: SideBySide
    findings: dict[str, Finding]  # by name; the first one of a notebook is its headline


@functools.cache
def claims_file() -> ClaimsFile:
    """What the papers claim and what was found; a `ReportError` if the file cannot be read."""
    try:
        content = yaml.safe_load((ROOT / "data" / "claims.yaml").read_text(encoding="utf-8"))
        check_form(content, SCHEMA)
    except (ValueError, yaml.YAMLError) as error:
        raise ReportError(f"data/claims.yaml cannot be read: {error}") from error
    side_by_side = SideBySide(**content.pop("side by side"))
    findings = _findings(content.pop("findings"))
    papers = {}
    for paper, described in content.items():
        entries = tuple(_entry(entry) for entry in described["claims"])
        papers[paper] = PaperClaims(described["notebook"], entries)
    return ClaimsFile(papers, side_by_side, findings)


def _findings(content: Mapping[str, Mapping[str, Any]]) -> dict[str, Finding]:
    findings: dict[str, Finding] = {}
    for notebook, of_notebook in content.items():
        for name, described in of_notebook.items():
            if name in findings:
                raise ReportError(f"data/claims.yaml has two findings {name}; rename one.")
            findings[name] = Finding(name, notebook, **described)
    return findings


def _entry(entry: Mapping[str, Any]) -> ClaimEntry:
    rest = dict(entry)
    usual = {name: rest.pop(name) for name in ("ahead", "behind", "column")}
    places = tuple(_place(of_table, usual) for of_table in rest.pop("runs"))
    others = tuple(_place(of_table, usual) for of_table in rest.pop("printed too", ()))
    return ClaimEntry(places=places, printed_too=others, **rest)


def _place(of_table: str | Mapping[str, str], usual: Mapping[str, str]) -> Place:
    own = {"table": of_table} if isinstance(of_table, str) else dict(of_table)
    no_evidence = own.pop("no evidence", "")
    return Place(**{**usual, **own}, no_evidence=no_evidence)


class ClaimSetting(NamedTuple):
    """What is not the paper's about the data and settings that a comparison rests on."""

    dataset: str = ""  # the title of another data set
    other_images: bool = False  # it is the same data set with other images
    deviations: tuple[RowDeviation, ...] = ()

    @property
    def is_the_papers(self) -> bool:
        """Whether nothing is."""
        return self == ClaimSetting()

    @property
    def shorter(self) -> bool:
        """Whether its runs have other numbers of rounds or of local epochs."""
        names = {row.deviation.name for row in self.deviations}
        return bool(names & {"num_rounds", "local_epochs"})


class Borrowed(NamedTuple):
    """An interval for fewer than `MIN_SEEDS` runs, from runs of the same rows elsewhere."""

    half_width: float
    source: Comparison


@dataclass(frozen=True)
class Claim:
    """What a paper says, and what is found, the paper's own setting first."""

    entry: ClaimEntry
    comparisons: list[Comparison]  # one for each of its places
    printed: tuple[float, ...] = ()  # the printed leads, in the direction of the claim
    # that of `best`, with a p that is corrected for the paper's claims; without evidence no lead
    lead: Lead = field(default_factory=Lead)

    @property
    def with_runs(self) -> list[Comparison]:
        """Those with runs, nearest to the paper first; without any just the first."""
        with_runs = [comparison for comparison in self.comparisons if comparison.lead.seeds]
        return with_runs or self.comparisons[:1]

    @property
    def evidence(self) -> list[Comparison]:
        """Those with runs on the claim's own data set that say something about it."""
        evidence = []
        for place, comparison in zip(self.entry.places, self.comparisons, strict=True):
            counts = comparison.lead.seeds and not place.no_evidence
            if counts and self.on_its_data(comparison):
                evidence.append(comparison)
        return evidence

    @property
    def best(self) -> Comparison:
        """The comparison that decides; else what is nearest to the paper and decides nothing.

        Of the evidence it is the first with `MIN_SEEDS` seeds, even of shorter runs, else the
        first.
        """
        evidence = self.evidence
        for comparison in evidence:
            if comparison.lead.seeds >= MIN_SEEDS:
                return comparison
        return evidence[0] if evidence else self.with_runs[0]

    @property
    def beside(self) -> list[Comparison]:
        """Other comparisons with runs, which decide nothing."""
        return [comparison for comparison in self.with_runs if comparison is not self.best]

    @property
    def verdict(self) -> Judged:
        """Of the comparison that decides, among those of the paper's other claims."""
        return statistics.judge(self.lead, self.printed)

    def borrowed(self, comparison: Comparison) -> Borrowed | None:
        """An interval for a comparison with few seeds, if its runs scatter as those of another do.

        None if it has enough, or none has.
        """
        lead = comparison.lead
        if lead.mean is None or lead.seeds >= MIN_SEEDS:
            return None
        for source in self.with_runs:
            if source.lead.judged and not source.lead.diverged:
                factor = math.sqrt(source.lead.seeds / lead.seeds)
                return Borrowed(source.lead.half_width * factor, source)
        return None

    def no_evidence(self, comparison: Comparison) -> str:
        """Why a comparison says nothing about the claim; empty if it does."""
        return self.entry.places[self.comparisons.index(comparison)].no_evidence

    def on_its_data(self, comparison: Comparison) -> bool:
        """Whether a comparison is on the same data set as the paper's own."""
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


def claims_of(paper: str, of: CellsOf = cells_of) -> list[Claim]:
    """The claims of a paper, judged as one family: what decides one of them is in it.

    Unless told otherwise, the committed records decide.
    """
    papers = claims_file().papers
    require_known("There are no claims of", paper, papers, ReportError)
    claims = []
    for i, entry in enumerate(papers[paper].entries):
        try:
            comparisons = [_compare_at(place, of) for place in entry.places]
            others = [_compare_at(place, of) for place in entry.printed_too]
        except ReportError as error:
            where = f"data/claims.yaml, {paper}, claim {i + 1}"
            raise ReportError(f"{where}: {error}") from error
        claims.append(Claim(entry, comparisons, _printed_leads(comparisons, others)))
    decisive = {i: claim.best for i, claim in enumerate(claims) if claim.evidence}
    for i, comparison in corrected_family(decisive).items():
        claims[i] = replace(claims[i], lead=comparison.lead)
    return claims


def cells_among(tables: Mapping[str, list[Cell]]) -> CellsOf:
    """What gives the cells of one of these tables; a `ReportError` for any other."""

    def of(name: str) -> list[Cell]:
        require_known("there is no table", name, tables, ReportError)
        return tables[name]

    return of


def _compare_at(place: Place, of: CellsOf) -> Comparison:
    return compare_at(of(place.table), place.ahead, place.behind, place.column)


def _printed_leads(own: Sequence[Comparison], others: Sequence[Comparison]) -> tuple[float, ...]:
    """The first one that is printed for the claim, and those printed elsewhere in the paper."""
    printed = [comparison.printed for comparison in own if comparison.printed is not None][:1]
    printed += [comparison.printed for comparison in others if comparison.printed is not None]
    return tuple(dict.fromkeys(round(lead, 6) for lead in printed))
