"""Findings: sentences of ``data/claims.yaml`` whose numbers come from records.

Between the braces of a sentence, and in its ``holds``, may stand what `Answers` has, such as
``{{ lead("moon-1", "MOON", "FedAvg", "CIFAR-10") }}``.
"""

import functools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import jinja2

from fednb import ROOT
from fednb.errors import ReportError, require_known
from fednb_lab import words
from fednb_lab.across_splits import average_leads
from fednb_lab.cells import Cell, CellsOf
from fednb_lab.claims import Claim, Finding, claims_file, claims_of
from fednb_lab.comparisons import Comparison, cell_at, compare_cells
from fednb_lab.leads import Kind, Lead
from fednb_lab.markdown import link_to
from fednb_lab.tuning import Tuning, tunings


class _NotRun(Exception):
    """A number that a sentence asks for is of runs that are not recorded."""


Claims = Mapping[str, Sequence[Claim]]  # by paper


class Answers:
    """What a sentence may ask of records; what has no underscore can stand between its braces.

    ``row`` is the name of a table, of its row and, where the table has several, of a column;
    ``rows`` has two rows, the one that is ahead first.
    """

    def __init__(self, cells_of: CellsOf, folder: Path, claims: Claims) -> None:
        self._cells_of = functools.cache(cells_of)  # a sentence asks for a table many times
        self._folder = folder
        self._claims = dict(claims)  # as far as they are judged

    def lead(self, *rows: str) -> str:
        """Such as ``+1.0 ± 0.4 points over 3 seeds``."""
        return words.lead_over_seeds(self._compare(*rows))

    def points(self, *rows: str) -> str:
        """The lead without the number of seeds: ``+1.0 ± 0.4 points``."""
        comparison = self._compare(*rows)
        return words.lead(comparison.lead, comparison.ahead.measure.lead_unit)

    def by(self, *rows: str) -> str:
        """The points without their plus, as in *ahead by 1.0 ± 0.4 points*."""
        return self.points(*rows).removeprefix("+")

    def printed_lead(self, *rows: str) -> str:
        """Such as ``2.8``."""
        printed = self._compare(*rows).printed
        return "" if printed is None else f"{printed:z.1f}"

    def apart(self, *rows: str) -> str:
        """How far two rows are apart at most, seed by seed."""
        return f"{max(map(abs, self._compare(*rows).by_seed.values())):.1f}"

    def difference(self, *rows: str) -> float:
        """The lead, to compute with."""
        return _number(self._compare(*rows).lead)

    def sure(self, *rows: str) -> bool:
        """Whether the interval of the lead, over three seeds or more, lies above 0."""
        lead = self._compare(*rows).lead
        return lead.judged and _number(lead) > lead.half_width

    def measured(self, *row: str) -> str:
        """Such as ``72.1 ± 0.4``."""
        return words.measured(self._cell(*row))

    def printed(self, *row: str) -> str:
        """What the paper prints there."""
        return words.printed(self._cell(*row))

    def printed_spread(self, *row: str) -> str:
        """What stands behind its ±."""
        return words.printed_std(self._cell(*row))

    def mean(self, *row: str) -> float:
        """What is measured, to compute with; NaN, which no comparison holds for, if it diverged."""
        mean = self._cell(*row).mean
        return float("nan") if mean is None else mean

    def values(self, *row: str) -> tuple[float, ...]:
        """What is measured with each seed, such as for ``values(...) | min``."""
        return self._cell(*row).values

    def average(self, method: str) -> str:
        """Its mean lead over the five splits of notebook 06, as `points`."""
        return words.lead(self._average_lead(method), "points")

    def mean_lead(self, method: str) -> float:
        """The same, to compute with."""
        return _number(self._average_lead(method))

    def sure_alone_on_average(self, method: str) -> bool:
        """Whether its own interval leaves out 0, whatever the other methods do."""
        lead = self._average_lead(method)
        return lead.judged and not lead.holds_zero

    def diverged(self, table: str, row: str | None = None) -> int:
        """How many runs did; each counts once, however many columns are read from it."""
        runs = set()
        for cell in self._cells_of(table):
            if row in (None, cell.row):
                runs |= {run.path for run in cell.runs if run.state == "diverged"}
        return len(runs)

    def tuning(self, table: str) -> dict[str, Tuning]:
        """By method its trials, such as ``.spread``, to be rounded in the sentence."""
        found = tunings(self._cells_of(table))
        if not found:
            raise _NotRun(table)
        return found

    def verdict(self, claim: str) -> str:
        """Of a claim that figures call so, among those of its paper."""
        papers: dict[str, str] = {}
        for paper, about in claims_file().papers.items():
            papers |= dict.fromkeys([entry.short for entry in about.entries], paper)
        require_known("There is no claim", claim, papers, ReportError)
        paper = papers[claim]
        if paper not in self._claims:
            self._claims[paper] = claims_of(paper, self._cells_of)
        (kind,) = [one.verdict.kind for one in self._claims[paper] if one.entry.short == claim]
        if kind == Kind.NOT_TESTED:
            raise _NotRun(claim)
        return str(kind)

    def link(self, path: str) -> str:
        """A path of the project as seen from where the sentence stands."""
        return link_to(ROOT / path, self._folder)

    def _cell(self, table: str, row: str, column: str | None = None) -> Cell:
        cell = cell_at(self._cells_of(table), row, column)
        if cell.mean is None and not cell.diverged:
            raise _NotRun(f"{table}, {row}")
        return cell

    def _compare(
        self, table: str, ahead: str, behind: str, column: str | None = None
    ) -> Comparison:
        return compare_cells(self._cell(table, ahead, column), self._cell(table, behind, column))

    def _average_lead(self, method: str) -> Lead:
        side = claims_file().side_by_side
        found = average_leads(
            list(side.tables), self._cells_of, baseline=side.baseline, column=side.column
        )
        leads = {one.method: one.lead for one in found}
        require_known("Not in all of the five splits is", method, leads, ReportError)
        if not leads[method].seeds:
            raise _NotRun(f"{method} in the five splits")
        return leads[method]


def _number(lead: Lead) -> float:
    """Its mean; NaN, which no comparison holds for, where there is none."""
    return float("nan") if lead.mean is None else lead.mean


class Filler:
    """Fills numbers into sentences that stand in ``folder``.

    ``cells_of`` gives the cells of a table by its name; ``claims`` are those that are judged.
    """

    def __init__(self, cells_of: CellsOf, folder: Path, claims: Claims | None = None) -> None:
        answers = Answers(cells_of, folder, claims or {})
        self._environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
        for name in vars(Answers):
            if not name.startswith("_"):
                self._environment.globals[name] = getattr(answers, name)

    def sentence(self, finding: Finding) -> str:
        """What was found; or that it is not run, or that records do not bear it out."""
        try:
            told = self._told(finding, finding.says)
        except _NotRun as missing:
            return f"Not run yet: {missing} ({finding.name})."
        return told or f"These records do not bear out what was found before ({finding.name})."

    def fact(self, finding: Finding) -> str:
        """The short sentence; empty if it is not run, or records do not bear it out."""
        with suppress(_NotRun):
            return self._told(finding, finding.fact or finding.says)
        return ""

    def _told(self, finding: Finding, text: str) -> str:
        """A text of a finding with its numbers; empty if records do not bear it out."""
        try:
            if finding.holds and not self._environment.compile_expression(finding.holds)():
                return ""
            filled = self._environment.from_string(text).render()
        except (jinja2.TemplateError, TypeError, KeyError, ReportError) as error:
            raise ReportError(f"data/claims.yaml, finding {finding.name}: {error}") from error
        return " ".join(filled.split())


def headlines(filler: Filler) -> dict[str, str]:
    """The first finding of each notebook as a short sentence; empty if records do not bear it out."""
    facts: dict[str, str] = {}
    for finding in claims_file().findings.values():
        if finding.notebook not in facts:
            facts[finding.notebook] = filler.fact(finding)
    return facts
