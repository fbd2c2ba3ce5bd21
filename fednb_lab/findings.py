"""Findings: sentences of ``data/claims.yaml`` whose numbers come from records.

Between the braces of a sentence, and in its ``holds``, may stand what `FindingContext` has, such as
``{{ lead("moon-1", "MOON", "FedAvg", "CIFAR-10") }}``.
"""

import functools
import math
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from scipy import stats

from fednb import ROOT
from fednb.errors import ReportError, require_known
from fednb.leads import MIN_SEEDS, Lead, lead_of
from fednb.results import cell_at
from fednb_lab import words
from fednb_lab.cells import Cell, CellsOf, measured
from fednb_lab.claims import Finding, claims_file, claims_of
from fednb_lab.leads import Comparison, compare_at, compare_cells, holm
from fednb_lab.printed import reported_table, reported_tables
from fednb_lab.tuning import Tuning, tunings


def link_to(path: Path, folder: Path) -> str:
    """Write a path as seen from a folder."""
    return os.path.relpath(path, folder).replace(os.sep, "/")


class _NotRun(Exception):
    """A number that a sentence asks for is of runs that are not recorded."""


class _NotAhead(Exception):
    """A sentence says who is ahead where the interval holds zero, or single runs disagree."""


class FindingContext:
    """What a sentence may ask of records; what has no underscore can stand between its braces.

    ``row`` is the name of a table, of its row and, where the table has several, of a column;
    ``rows`` has two rows, the one that is ahead first, and a column or a list of columns, over
    which the mean is taken seed by seed.
    """

    def __init__(self, cells_of: CellsOf, folder: Path) -> None:
        self._cells_of = functools.cache(cells_of)  # a sentence asks for a table many times
        self._folder = folder
        self._claims = functools.cache(lambda paper: claims_of(paper, self._cells_of))

    def lead(self, *rows: Any) -> str:
        """Give a lead: ``+1.0 ± 0.4 points over 3 seeds``; below three seeds each one's."""
        return words.lead_over_seeds(self._compare(*rows))

    def points(self, *rows: Any) -> str:
        """Give the lead without the number of seeds: ``+1.0 ± 0.4 points``."""
        comparison = self._compare(*rows)
        return words.lead(comparison, comparison.ahead.unit)

    def by(self, *rows: Any) -> str:
        """Give the points without their plus, as in *ahead by 1.0 ± 0.4 points*.

        Only where this can be said: the interval lies above 0. Below three seeds, where there is
        no interval, each run must be ahead: *ahead by 4.9 and 1.4 points*. Else the whole sentence
        is not told; `points` and `lead` give a difference that may have either sign.
        """
        lead = self._compare(*rows).lead
        is_ahead = self.sure(*rows)
        if lead.mean is not None and lead.seeds < MIN_SEEDS:
            is_ahead = min(lead.values) > 0
        if not is_ahead:
            raise _NotAhead
        points = self.points(*rows).replace("+", "")
        return points.replace("(", "").replace(")", "").replace(", ", " and ")

    def lead_of_last(self, rounds: int, *rows: Any) -> str:
        """Give the lead if the mean over each run's last so many rounds counted, as `points`."""
        return self._lead_in(slice(-rounds, None), *rows)

    def lead_of_first(self, rounds: int, *rows: Any) -> str:
        """Give the lead if the mean over each run's first so many rounds counted, as `points`."""
        return self._lead_in(slice(rounds), *rows)

    def sure_of_first(self, rounds: int, *rows: Any) -> bool:
        """Tell whether the interval of this lead lies above 0, as `sure`."""
        return _is_sure(self._compare_in(slice(rounds), *rows).lead)

    def lead_after(self, round_number: int, *rows: Any) -> str:
        """Give the lead after a round, as `points`."""
        return self._lead_in(slice(round_number - 1, round_number), *rows)

    def sure_after(self, round_number: int, *rows: Any) -> bool:
        """Tell whether the interval of the lead after a round lies above 0, as `sure`."""
        return _is_sure(self._compare_in(slice(round_number - 1, round_number), *rows).lead)

    def difference_after(self, round_number: int, *rows: Any) -> float:
        """Give the lead after a round, to compute with."""
        lead = self._compare_in(slice(round_number - 1, round_number), *rows).lead
        return _number(lead.mean)

    def _lead_in(self, rounds: slice, table: str, ahead: str, behind: str, *column: str) -> str:
        comparison = self._compare_in(rounds, table, ahead, behind, *column)
        if not comparison.lead.judged:
            raise _NotRun(f"{table}, {ahead} and {behind}, with {MIN_SEEDS} seeds")
        return words.lead(comparison, comparison.ahead.unit)

    def _compare_in(
        self, rounds: slice, table: str, ahead: str, behind: str, column: str | None = None
    ) -> Comparison:
        """Compare the means over some rounds of each run's curve."""
        first, second = (self._cell_in(rounds, table, row, column) for row in (ahead, behind))
        return compare_cells(first, second)

    def _cell_in(self, rounds: slice, table: str, row: str, column: str | None = None) -> Cell:
        """The cell whose values are the means over some rounds of each run's curve."""
        cell = self._cell(table, row, column)
        runs = []
        for run in measured(cell.runs):
            curve = run.record["metrics"][cell.measure.curve]
            runs.append(run._replace(value=float(np.mean(curve[rounds]))))
        return cell.with_runs(runs)

    def printed_lead(self, *rows: Any) -> str:
        """Give the printed lead: ``2.8``."""
        printed = self._compare(*rows).printed
        return "" if printed is None else f"{printed:z.1f}"

    def apart(self, *rows: Any) -> str:
        """Give how far two rows are apart at most, seed by seed."""
        return f"{max(map(abs, self._compare(*rows).by_seed.values())):.1f}"

    def difference(self, *rows: Any) -> float:
        """Give the lead, to compute with; NaN, which nothing holds for, where there is none."""
        return _number(self._compare(*rows).lead.mean)

    def sure(self, *rows: Any) -> bool:
        """Tell whether the interval of the lead, over three seeds or more, lies above 0."""
        return _is_sure(self._compare(*rows).lead)

    def each_ahead(self, *rows: Any) -> bool:
        """Tell whether the first row is ahead with each seed that both rows have."""
        return min(self._compare(*rows).by_seed.values(), default=0.0) > 0

    def seeds_ahead(self, *rows: Any) -> int:
        """Count the seeds with which the first row is ahead."""
        return sum(value > 0 for value in self._compare(*rows).by_seed.values())

    def holds_zero(self, table: str, ahead: str, behind: str, *column: Any) -> bool:
        """Tell whether the interval of the lead holds zero, or there is none: neither is ahead."""
        is_ahead = self.sure(table, ahead, behind, *column)
        return not is_ahead and not self.sure(table, behind, ahead, *column)

    def ahead_among(self, total: int, *rows: Sequence[str]) -> list[int]:
        """Tell of comparisons that were written down together who is ahead (Holm): 1, -1 or 0.

        Each is a table, two rows and a column. Those of the ``total`` that are not run count as the
        ones with the largest p values.
        """
        leads = [self._compare(*one).lead for one in rows]
        not_run = [Lead(MIN_SEEDS, 0.0, p=1.0)] * (total - len(leads))
        told = holm([*leads, *not_run])[: len(leads)]
        return [int(np.sign(lead.mean or 0)) if lead.shown else 0 for lead in told]

    def seeds(self, *rows: Any) -> int:
        """Count the seeds that a lead is over."""
        return self._compare(*rows).lead.seeds

    def measured(self, *row: str) -> str:
        """Give what is measured: ``72.1 ± 0.4``; below three seeds ``(67.2, 70.4)``."""
        return words.measured(self._cell(*row))

    def printed(self, *row: str) -> str:
        """Give what the paper prints there."""
        return words.printed(self._cell(*row))

    def mean_over_printed(self, *row: str) -> float:
        """Give how far the measured mean is above the printed number; NaN without one."""
        cell = self._cell(*row)
        return _number(cell.mean) - _number(cell.printed)

    def setting(self, name: str, *row: str) -> str:
        """Give a setting of a cell's runs, such as ``setting("lr", "moon-1", "MOON")``: ``0.01``."""
        settings = cell_at(self._cells_of(row[0]), *row[1:]).job.settings.flat()
        require_known("There is no setting", name, settings, ReportError)
        value = settings[name]
        return f"{value:g}" if isinstance(value, float) else str(value)

    def recorded(self, *row: str) -> bool:
        """Tell whether there are values in a cell."""
        return bool(cell_at(self._cells_of(row[0]), *row[1:]).values)

    def reported(self, table: str, row: str, column: str) -> float:
        """Give the number that a printed table, or another's log, has there."""
        return reported_table(table).number(row, column)

    def mean(self, *row: str) -> float:
        """Give what is measured, to compute with; NaN if it diverged."""
        return _number(self._cell(*row).mean)

    def mean_after(self, round_number: int, *row: str) -> float:
        """Give what was measured after a round, as `mean`."""
        return _number(self._cell_in(slice(round_number - 1, round_number), *row).mean)

    def rounds_to(self, level: float, *row: str) -> int:
        """Count the rounds until the mean over the runs is at least that."""
        cell = self._cell(*row)
        curves = [run.record["metrics"][cell.measure.curve] for run in measured(cell.runs)]
        is_there = np.mean(curves, axis=0) >= level
        if not is_there.any():
            raise _NotRun(f"{', '.join(row)}, at {level}")
        return int(is_there.argmax()) + 1

    def highest(self, seed: int, *row: str) -> float:
        """Give what was measured with that seed in the round in which it was highest."""
        cell = self._cell(*row)
        for run in measured(cell.runs):
            if run.job.settings.seed == seed:
                return float(max(run.record["metrics"][cell.measure.curve]))
        raise _NotRun(f"seed {seed} of {', '.join(row)}")

    def leads(self, *rows: Any) -> list[float]:
        """Give the lead with each seed that both rows have."""
        return list(self._compare(*rows).by_seed.values())

    def median(self, values: Sequence[float]) -> float:
        """Give the median, such as ``median(leads(...) + leads(...))``."""
        return float(np.median(values))

    def values(self, *row: str) -> tuple[float, ...]:
        """Give what is measured with each seed, such as for ``values(...) | min``."""
        return self._cell(*row).values

    def of_seed(self, seed: int, *row: str) -> float:
        """Give what is measured with that seed."""
        cell = self._cell(*row)
        if seed not in cell.by_seed:
            raise _NotRun(f"seed {seed} of {cell.table}, {cell.row}")
        return cell.by_seed[seed]

    def sign(self, *row: str) -> int:
        """Tell where the interval of what is measured, a difference, lies: above 0 (1), below (-1), or around it."""
        lead = lead_of(self._cell(*row).values)
        is_sure = lead.judged and not lead.holds_zero
        return int(np.sign(_number(lead.mean))) if is_sure else 0

    def rank_correlation(self, table: str, printed_in: str) -> float:
        """Compute Spearman's coefficient of a paper's averages and of our differences from a baseline.

        The differences, column ``Delta``, are taken seed by seed: rows may have different seeds.
        """
        cells = [
            cell
            for cell in self._cells_of(table)
            if cell.column == "Delta" and cell.mean is not None
        ]
        if len(cells) < 3:
            raise _NotRun(table)
        printed = [reported_table(printed_in).number(cell.row, "Avg.") for cell in cells]
        return float(stats.spearmanr(printed, [cell.mean for cell in cells]).statistic)

    def diverged(self, table: str, row: str | None = None) -> int:
        """Count the runs that did; each counts once, however many columns are read from it."""
        runs = set()
        for cell in self._cells_of(table):
            if row in (None, cell.row):
                runs |= {run.path for run in cell.runs if run.state == "diverged"}
        return len(runs)

    def tuning(self, table: str) -> dict[str, Tuning]:
        """Give by method its trials, such as ``.spread``, to be rounded in the sentence."""
        found = tunings(self._cells_of(table))
        if all(one.gain is None for one in found.values()):  # nothing to compare with
            raise _NotRun(table)
        return found

    def word(self, claim: str) -> str:
        """Give the word of a claim that figures call so, among those of its paper."""
        papers: dict[str, str] = {}
        for paper, about in claims_file().papers.items():
            papers |= dict.fromkeys([entry.short for entry in about.claims], paper)
        require_known("There is no claim", claim, papers, ReportError)
        (word,) = [one.word for one in self._claims(papers[claim]) if one.entry.short == claim]
        return str(word)

    def link(self, path: str) -> str:
        """Write a path of the project as seen from where the sentence stands."""
        return link_to(ROOT / path, self._folder)

    def _cell(self, table: str, row: str, column: str | None = None) -> Cell:
        cell = cell_at(self._cells_of(table), row, column)
        if cell.mean is None and not cell.diverged:
            raise _NotRun(f"{table}, {row}")
        return cell

    def _compare(
        self, table: str, ahead: str, behind: str, column: str | Sequence[str] | None = None
    ) -> Comparison:
        for one in [column] if column is None or isinstance(column, str) else column:
            self._cell(table, ahead, one)
            self._cell(table, behind, one)
        return compare_at(self._cells_of(table), ahead, behind, column)

    def _check_recorded(self, finding: Finding) -> None:
        """Without a record of a table that could speak against it, a sentence is not told."""
        for table in finding.evidence:
            is_ours = table not in reported_tables()
            if is_ours and not any(cell.runs for cell in self._cells_of(table)):
                raise _NotRun(table)


def _is_sure(lead: Lead) -> bool:
    """Whether the interval of a lead, over three seeds or more, lies above 0."""
    return lead.judged and _number(lead.mean) > lead.half_width


def _number(value: float | None) -> float:
    """To compute with: NaN, which no comparison holds for, where there is none."""
    return math.nan if value is None else value


# what a sentence that asks for something wrong may end in
_WRONG = (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class FindingRenderer:
    """Fills numbers into sentences that stand in ``folder``.

    ``cells_of`` gives the cells of a table by its name.
    """

    def __init__(self, cells_of: CellsOf, folder: Path) -> None:
        self._answers = FindingContext(cells_of, folder)
        self._environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
        for name in vars(FindingContext):
            if not name.startswith("_"):
                self._environment.globals[name] = getattr(self._answers, name)

    def sentence(self, finding: Finding) -> str:
        """Say what was found; or that it is not run, or that records do not bear it out."""
        try:
            told = self._all_told(finding)
        except _NotRun as missing:
            return f"Not run yet: {missing} ({finding.name})."
        if not told:
            return f"These records do not bear out what was found before ({finding.name})."
        return told[0]

    def more(self, finding: Finding) -> list[str]:
        """Say line by line what else was measured; nothing if it is not run, or does not hold."""
        with suppress(_NotRun):
            return self._all_told(finding)[1:]
        return []

    def fact(self, finding: Finding) -> str:
        """Give the short sentence; empty if it is not run, or records do not bear it out."""
        with suppress(_NotRun):
            return "".join(self._told(finding, finding.fact or finding.says))
        return ""

    def headline(self, finding: Finding) -> str:
        """Give the shortest form, as `fact`: that sentence, or the first one's words in bold."""
        told = self.fact(finding)
        bold = re.match(r"\*\*(.+?)\*\*", told)
        return bold[1] if bold else told

    def forest(self, finding: Finding) -> list[Comparison]:
        """Compare the rows of each line of its picture; empty without one, or if one is not run."""
        places = [(one.table, one.ahead, one.behind, one.column) for one in finding.forest]
        try:
            return [self._answers._compare(*place) for place in places]
        except _NotRun:
            return []
        except ReportError as error:
            raise ReportError(f"data/claims.yaml, finding {finding.name}: {error}") from error

    def _all_told(self, finding: Finding) -> list[str]:
        """The sentence and its other numbers; empty as soon as records do not bear one out."""
        return self._told(finding, finding.says, *finding.more)

    def _told(self, finding: Finding, *texts: str) -> list[str]:
        """Texts of a finding with their numbers; empty if records do not bear it, or one of them, out."""
        try:
            self._answers._check_recorded(finding)
            holds = self._environment.compile_expression(
                finding.holds or "true", undefined_to_none=False
            )
            if not holds():
                return []
            filled = [self._environment.from_string(text).render() for text in texts]
        except _NotAhead:
            return []
        except _WRONG as error:
            reason = " ".join(str(error).split())
            raise ReportError(f"data/claims.yaml, finding {finding.name}: {reason}") from error
        told = [" ".join(text.split()) for text in filled]
        return told if all(told) else []


def headlines(filler: FindingRenderer) -> dict[str, str]:
    """Give each notebook's first finding as a short sentence; empty if records do not bear it out."""
    facts: dict[str, str] = {}
    for finding in claims_file().findings.values():
        if finding.notebook not in facts:
            facts[finding.notebook] = filler.fact(finding)
    return facts
