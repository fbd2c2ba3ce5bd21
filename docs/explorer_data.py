"""What the results explorer shows, as scripts: a page that is opened from a file cannot fetch data.

``cells.js`` has all cells of all tables. ``curves/NOTEBOOK.js`` has the curves of a notebook's runs,
and is loaded when one of its cells is opened.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from fednb import ROOT, data
from fednb import records as ledger
from fednb.leads import quantile
from fednb.records import Record
from fednb_lab import words
from fednb_lab.cells import Cell, Run
from fednb_lab.claims import Claim, claims_file
from fednb_lab.leads import Comparison, Word, leads_over_baseline
from fednb_lab.pages import Results, place_of
from fednb_lab.printed import reported_table
from fednb_lab.sweeps import Table
from fednb_lab.tables import check_command, command, sweep_command

MOST_RUNS = 200  # of a cell: so many quantiles of Student's t are written
ACCURACY = "accuracy"  # the curve of what has none of its own
DIGITS = 3  # of values and curves, in percent

PACKAGES = ROOT / "docs" / "explorer" / "node_modules"  # `make site` puts them there
# what the page is drawn with
LIBRARIES = [
    PACKAGES / "d3/dist/d3.min.js",
    PACKAGES / "@observablehq/plot/dist/plot.umd.min.js",
    PACKAGES / "tabulator-tables/dist/js/tabulator.min.js",
    PACKAGES / "tabulator-tables/dist/css/tabulator_simple.min.css",
]

Entry = dict[str, Any]  # what becomes a JSON object


@dataclass
class Explorer:
    """Tables, cells and curves, as the page reads them."""

    tables: dict[str, Entry] = field(default_factory=dict)
    cells: list[Entry] = field(default_factory=list)
    settings: list[Entry] = field(default_factory=list)  # cells name theirs by place
    measures: dict[str, str] = field(default_factory=dict)  # what each is, in a sentence
    # by notebook, file of the record, and metric
    curves: dict[str, dict[str, dict[str, list[float | None]]]] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)  # in `settings`, by their JSON

    def place_of_settings(self, flat: Mapping[str, Any]) -> int:
        """Where these settings stand, which many cells share; what is None is left out."""
        given = {name: value for name, value in flat.items() if value is not None}
        given.pop("seed")
        place = self._places.setdefault(json.dumps(given), len(self.settings))
        if place == len(self.settings):
            self.settings.append(given)
        return place

    def add_curve(self, notebook: str, path: Path, record: Record, metric: str) -> None:
        """Keep the curve of a run, if its record has it."""
        curve = record["metrics"].get(metric)
        if curve:
            of_run = self.curves.setdefault(notebook, {}).setdefault(path.name, {})
            of_run[metric] = [_rounded(value) for value in curve]

    def add_cell(self, entry: Entry) -> None:
        """Keep a cell, without the fields in which nothing stands."""
        self.cells.append({name: one for name, one in entry.items() if one not in (None, "", [])})

    def scripts(self) -> dict[str, str]:
        """The text of each script, by its path."""
        content = {
            "quantiles": quantiles(),
            "tables": self.tables,
            "settings": self.settings,
            "cells": self.cells,
            "measures": self.measures,
            "verdicts": [str(word) for word in Word],
        }
        scripts = {"cells.js": f"EXPLORER.cells({in_script(content)});\n"}
        for notebook, curves in self.curves.items():
            arguments = f"{in_script(notebook)}, {in_script(curves)}"
            script = f"EXPLORER.curves({arguments});\n"
            scripts[f"curves/{notebook}.js"] = script
        return scripts


def write(out: Path, results: Results) -> None:
    """Write the scripts for all tables of some results."""
    for name, script in gather(results).scripts().items():
        ledger.write_atomically(out / name, script)


def gather(results: Results) -> Explorer:
    """All that the page shows of these results; a claim stands with the cell said to be ahead."""
    judged: dict[tuple[str, str, str], list[Claim]] = {}
    for claim in chain.from_iterable(results.claims.values()):
        judged.setdefault(_name(claim.first.ahead), []).append(claim)
    explorer = Explorer()
    for name, table in results.tables.items():
        cells = results.cells[name]
        baseline, leads = leads_over_baseline(table, cells)
        explorer.tables[name] = _table(table, baseline)
        for cell in cells:
            lead = leads.get((cell.row, cell.column))
            _add_cell(explorer, table, cell, lead, judged.get(_name(cell), []))
    return explorer


def quantiles() -> list[float | None]:
    """Of Student's t, for the interval of a mean over 0, 1, 2, … runs; None where there is none."""
    return [None, None, *(round(quantile(n), 5) for n in range(2, MOST_RUNS + 1))]


def _table(table: Table, baseline: str) -> Entry:
    """What holds for all cells of a table."""
    return {
        "title": table.title,
        "paper": _paper(table),
        "where": words.printed_where(table.printed),
        "notebook": table.notebook,
        "page": place_of(table.notebook),
        "baseline": baseline,
        "sweep": sweep_command(table),
    }


def _paper(table: Table) -> str:
    """Whose numbers are printed there, or else whose notebook it is in."""
    if table.printed is not None:
        return reported_table(table.printed).about.paper
    for paper, about in claims_file().papers.items():
        if about.notebook == table.notebook:
            return paper
    return table.notebook


def _name(cell: Cell) -> tuple[str, str, str]:
    return cell.table, cell.row, cell.column


def _add_cell(
    explorer: Explorer, table: Table, cell: Cell, lead: Comparison | None, claims: Sequence[Claim]
) -> None:
    own = cell.job.settings
    metric = cell.measure.curve or ACCURACY
    measure = cell.measure.name.replace("_", " ")
    explorer.measures[measure] = cell.measure.description
    for run in cell.runs:
        explorer.add_curve(table.notebook, run.path, run.record, metric)
    entry = {
        "table": cell.table,
        "row": cell.row,
        "column": cell.column,
        "method": own.method,
        "dataset": data.info_of(own.dataset).title,
        "measure": measure,
        "setting": setting_of(table, cell),
        "printed": _rounded(cell.printed),
        "printedText": words.printed_with_std(cell),
        "ours": _rounded(cell.mean),
        "oursText": words.measured(cell),
        "half": _rounded(cell.half_width),
        "expected": cell.expected,
        "runs": [_run(run) for run in cell.runs],
        "claims": [_claim(claim) for claim in claims],
        "deviations": [words.deviation(one) for one in cell.deviations],
        "notes": [note.replace("_", " ") for note in (*cell.notes, *cell.remarks)],
        "choice": words.choice(cell).replace("_", " "),
        "settings": explorer.place_of_settings(own.flat()),
        "again": command(cell),
        "check": check_command(table, cell),
        "metric": metric,
        # a printed number is a line among the curves if it is on their scale and at their length
        "line": cell.printed if cell.measure.judged and not cell.deviations else None,
    }
    if lead is not None and not lead.lead.diverged:
        entry["lead"] = _rounded(lead.lead.mean)
        entry["leadText"] = words.lead(lead)
    explorer.add_cell(entry)


def setting_of(table: Table, cell: Cell) -> str:
    """How the runs of a cell stand to the paper's setting, in a few words."""
    if table.printed is None:
        return "our own setting"
    if cell.notes:
        return "other images"
    names = {one.name for one in cell.deviations}
    if names & {"num_rounds", "local_epochs"}:
        return "short runs"
    return "another setting" if names else "the paper's setting"


def _run(run: Run) -> Entry:
    seed = run.job.settings.seed
    value = _rounded(run.value)
    return {"file": run.path.name, "seed": seed, "state": run.state, "value": value}


def _claim(claim: Claim) -> Entry:
    return {
        "says": claim.entry.claim,
        "where": claim.entry.where,
        "kind": str(claim.word),
        "why": words.why(claim),
        "printed": words.printed_leads(claim),
        "ours": words.ours(claim),
        "behind": list(_name(claim.first.behind)),
    }


def _rounded(value: Any) -> float | None:
    """To the digits that are shown; None for what is no number."""
    if isinstance(value, int | float) and math.isfinite(value):
        return round(value, DIGITS)
    return None


def in_script(value: Any) -> str:
    """A value as JSON in one line that a script can hold, whatever its texts say.

    What is no number becomes null, since JSON has neither NaN nor infinity.
    """
    # which Python writes and reads all the same
    plain = json.loads(json.dumps(value), parse_constant=lambda constant: None)
    text = json.dumps(plain, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":  # "</script>", "<!--", and what ends a line in a script
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
