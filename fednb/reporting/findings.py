"""Findings: sentences of ``data/claims.yaml`` whose numbers come from records.

Between the braces of a sentence may stand, with the name of a table, of its rows and, where it
has several, of a column:

- ``lead(table, ahead, behind, column)``: ``+1.0 ± 0.4 points over 3 seeds``
- ``points(table, ahead, behind, column)``: the same without the number of seeds
- ``by(table, ahead, behind, column)``: the same without its plus, as in *ahead by 1.0 ± 0.4 points*
- ``measured(table, row, column)``: ``72.1 ± 0.4``
- ``printed(table, row, column)``: what the paper prints there
- ``printed_spread(table, row, column)``: what stands behind its ±
- ``printed_lead(table, ahead, behind, column)``: ``2.8``
- ``average(method)``: its mean lead over the five splits of notebook 06, as ``points``
- ``diverged(table, row)``: how many runs did; without a row, how many of the table
- ``apart(table, ahead, behind, column)``: how far two rows are apart at most, seed by seed
- ``tuning(table)["METHOD"]``: its trials, such as ``.spread``, to be rounded in the sentence
- ``link(path)``: a path of the project as seen from where the sentence stands

``holds`` has ``sure(table, ahead, behind, column)``, which is true where the interval of the lead,
over three seeds or more, lies above 0, besides numbers: ``difference`` and ``mean`` of rows, the
``lowest`` and ``highest`` value of a row, and ``mean_lead(method)`` over the five splits, of which
``sure_on_average(method)`` says whether its interval leaves out 0. What a sentence says of a
paper's claim must be what its verdict says: ``verdict("MOON − FedAvg")`` is that of the claim with
this name in figures, in one of the six words.
"""

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jinja2

from fednb import ROOT
from fednb.analysis.across_splits import AverageLead, average_leads
from fednb.analysis.cells import Cell
from fednb.analysis.claims import Claim, Finding, claims_file, claims_of
from fednb.analysis.comparisons import Comparison, cell_at, compare_cells
from fednb.analysis.statistics import Kind
from fednb.analysis.trials import Tuning, tunings
from fednb.errors import ReportError, require_known
from fednb.reporting import words


class _NotRun(Exception):
    """A number that a sentence asks for is of runs that are not recorded."""


class Filler:
    """Fills numbers into sentences that stand in ``folder``.

    ``cells_of`` gives the cells of a table by its name.
    """

    def __init__(self, cells_of: Callable[[str], Sequence[Cell]], folder: Path) -> None:
        self._cells_of = functools.cache(cells_of)  # a sentence asks for a table many times
        self._folder = folder
        self._environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
        self._environment.globals |= {
            "lead": self._lead,
            "points": self._points,
            "by": self._by,
            "measured": self._measured,
            "printed": self._printed,
            "printed_spread": self._printed_spread,
            "printed_lead": self._printed_lead,
            "average": self._average,
            "mean_lead": self._mean_lead,
            "diverged": self._diverged,
            "apart": self._apart,
            "tuning": self._tuning,
            "link": self._link,
            "sure": self._sure,
            "difference": self._difference,
            "mean": self._mean,
            "lowest": self._lowest,
            "highest": self._highest,
            "sure_on_average": self._sure_on_average,
            "verdict": self._verdict,
        }
        self._claims: dict[str, Claim] = {}  # by what they are called in figures

    def sentence(self, finding: Finding) -> str:
        """What was found; or that it is not run, or that records do not bear it out."""
        try:
            if not self._holds(finding):
                return f"These records do not bear out what was found before ({finding.name})."
            return self._fill(finding, finding.says)
        except _NotRun as missing:
            return f"Not run yet: {missing} ({finding.name})."

    def fact(self, finding: Finding) -> str | None:
        """The short sentence; None if it is not run, or records do not bear it out."""
        try:
            if not self._holds(finding):
                return None
            return self._fill(finding, finding.fact or finding.says)
        except _NotRun:
            return None

    def _holds(self, finding: Finding) -> bool:
        if not finding.holds:
            return True
        return self._ask(finding, lambda: self._environment.compile_expression(finding.holds)())

    def _fill(self, finding: Finding, text: str) -> str:
        filled = self._ask(finding, lambda: self._environment.from_string(text).render())
        return " ".join(filled.split())

    def _ask(self, finding: Finding, question: Callable[[], Any]) -> Any:
        """The answer; what makes no sense is a `ReportError` that names the finding."""
        try:
            return question()
        except (jinja2.TemplateError, TypeError, KeyError, ReportError) as error:
            raise ReportError(f"data/claims.yaml, finding {finding.name}: {error}") from error

    def _cell(self, table: str, row: str, column: str | None = None) -> Cell:
        cell = cell_at(self._cells_of(table), row, column)
        if cell.mean is None and not cell.diverged:
            raise _NotRun(f"{table}, {row}")
        return cell

    def _compare(
        self, table: str, ahead: str, behind: str, column: str | None = None
    ) -> Comparison:
        first = self._cell(table, ahead, column)
        second = self._cell(table, behind, column)
        return compare_cells(first, second)

    def _lead(self, *rows: str) -> str:
        comparison = self._compare(*rows)
        return words.lead_over_seeds(comparison.lead, comparison.ahead.measure)

    def _points(self, *rows: str) -> str:
        comparison = self._compare(*rows)
        return words.lead(comparison.lead, comparison.ahead.measure.lead_unit)

    def _by(self, *rows: str) -> str:
        return self._points(*rows).removeprefix("+")

    def _printed_lead(self, *rows: str) -> str:
        printed = self._compare(*rows).printed
        return "" if printed is None else f"{printed:z.1f}"

    def _measured(self, *row: str) -> str:
        return words.measured(self._cell(*row))

    def _printed(self, *row: str) -> str:
        return words.printed(self._cell(*row))

    def _printed_spread(self, *row: str) -> str:
        return words.printed_std(self._cell(*row))

    def _sure(self, *rows: str) -> bool:
        lead = self._compare(*rows).lead
        return lead.mean is not None and lead.judged and lead.mean > lead.half_width

    def _difference(self, *rows: str) -> float:
        return _number(self._compare(*rows).lead.mean)

    def _mean(self, *row: str) -> float:
        return _number(self._cell(*row).mean)

    def _lowest(self, *row: str) -> float:
        return min(self._cell(*row).values)

    def _highest(self, *row: str) -> float:
        return max(self._cell(*row).values)

    def _verdict(self, claim: str) -> str:
        """Of a claim that figures call so; its paper's claims are judged once, as one family."""
        if claim not in self._claims:
            for paper, about in claims_file().papers.items():
                if any(entry.short == claim for entry in about.entries):
                    self._claims |= {one.entry.short: one for one in self._judged(paper)}
        require_known("There is no claim", claim, self._claims, ReportError)
        found = self._claims[claim]
        if found.verdict.kind == Kind.NOT_TESTED:
            raise _NotRun(claim)
        return str(found.verdict.kind)

    def _judged(self, paper: str) -> list[Claim]:
        tables = set()
        for entry in claims_file().papers[paper].entries:
            tables |= {place.table for place in (*entry.places, *entry.printed_too)}
        return claims_of(paper, {table: self._cells_of(table) for table in tables})

    def _average_leads(self) -> list[AverageLead]:
        side = claims_file().side_by_side
        return average_leads(
            list(side.tables), self._cells_of, baseline=side.baseline, column=side.column
        )

    def _average_lead(self, method: str) -> AverageLead:
        by_method = {one.method: one for one in self._average_leads()}
        require_known("Not in all of the five splits is", method, by_method, ReportError)
        if not by_method[method].by_seed:
            raise _NotRun(f"{method} in the five splits")
        return by_method[method]

    def _average(self, method: str) -> str:
        return words.lead(self._average_lead(method).lead, "points")

    def _mean_lead(self, method: str) -> float:
        return _number(self._average_lead(method).lead.mean)

    def _sure_on_average(self, method: str) -> bool:
        lead = self._average_lead(method).lead
        return lead.mean is not None and lead.judged and abs(lead.mean) > lead.half_width

    def _diverged(self, table: str, row: str | None = None) -> int:
        """Runs, each counted once however many columns are read from it."""
        runs = set()
        for cell in self._cells_of(table):
            if row in (None, cell.row):
                runs |= {run.path for run in cell.runs if run.state == "diverged"}
        return len(runs)

    def _apart(self, *rows: str) -> str:
        return f"{max(map(abs, self._compare(*rows).by_seed.values())):.1f}"

    def _tuning(self, table: str) -> dict[str, Tuning]:
        found = tunings(self._cells_of(table))
        if not found:
            raise _NotRun(table)
        return found

    def _link(self, path: str) -> str:
        return os.path.relpath(ROOT / path, self._folder).replace(os.sep, "/")


def _number(mean: float | None) -> float:
    """A mean to compute with; NaN, which no comparison holds for, where there is none."""
    return float("nan") if mean is None else mean


def headlines(filler: Filler) -> dict[str, str]:
    """The first finding of each notebook as a short sentence, where records bear it out."""
    first: dict[str, Finding] = {}
    for finding in claims_file().findings.values():
        first.setdefault(finding.notebook, finding)
    facts = {}
    for notebook, finding in first.items():
        fact = filler.fact(finding)
        if fact is not None:
            facts[notebook] = fact
    return facts
