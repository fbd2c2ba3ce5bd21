"""What ``fednb report`` writes for notebooks beside ``cells.csv``: see `fednb.results`, which reads it.

Links in it lead from the top of the project.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from fednb import ROOT, plots
from fednb.errors import ReportError, check
from fednb_lab.cells import Cell
from fednb_lab.claims import Finding, cells_among, claims_file
from fednb_lab.figures import curves_of
from fednb_lab.findings import FindingRenderer
from fednb_lab.leads import Comparison
from fednb_lab.pages import Results

# Curves are large, so only those are written that a notebook draws.
CURVES = [
    "digits-fedavg-epochs",
    "digits-fedavg-beta",
    "moon-1-short",
    "digits-moon",
    "digits-moon-iid",
    "digits-fedproc-rounds",
    "fedproc-2",
    "fedproc-control",
    "digits-fedproc-agreement",
    "digits-fedssc",
    "digits-fedssc-own",
    "digits-fedssc-rate",
    "digits-fedssc-own-weight",
    "digits-fedssc-bias",
    "digits-fedssc-scatter",
    "digits-fedproto-targets",
    "digits-fedproto-travels",
    "digits-fedproto-travels-local",
    "mini-fedplcc-iterations",
    "digits-feddyn-fednova",
    "digits-feddyn-halves-long",
    "side-long-beta-0.1",
]
# What notebook 06 shows of tables besides their cells; and the five splits over which it asks its question.
SPLITS = {
    "digits, β = 0.1": "side-digits-beta-0.1",
    "digits, β = 0.5": "side-digits-beta-0.5",
    "digits, β = 5": "side-digits-beta-5",
    "digits, quantity shift": "side-digits-quantity",
    "five domains": "side-domains",
}
# Tables of the notebook on tuning: accuracies of each run on test and on held-out images.
HELD_OUT = [
    "digits-moon-tuning",
    "digits-fedprox-tuning",
    "cifar10-moon-tuning",
    "cifar10-fedprox-tuning",
]


def files(found: Results) -> dict[str, str]:
    """Write the text of each file by its name, such as ``findings.json``."""
    of = cells_among(found.cells)
    content = {
        "findings": _findings(FindingRenderer(of, ROOT)),
        "measures": _measures(found),
        "splits": _splits(found),
        "curves": {name: curves_of(of(name)) for name in CURVES},
        "tuning": {name: _held_out(of(name)) for name in HELD_OUT},
        "side_by_side": {"splits": SPLITS},
    }
    return {f"{name}.json": _text(entries) for name, entries in content.items()}


def _text(entries: Mapping[str, Any]) -> str:
    """JSON with a line for each entry, so that differences between versions can be read."""
    lines = []
    for name, entry in entries.items():
        value = json.dumps(entry, ensure_ascii=False, allow_nan=False)
        lines.append(f"{json.dumps(name, ensure_ascii=False)}: {value}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _findings(filler: FindingRenderer) -> dict[str, Any]:
    """Each finding as a sentence, with its other numbers and its picture."""
    findings: dict[str, dict[str, Any]] = {}
    for name, one in claims_file().findings.items():
        findings[name] = {"sentence": filler.sentence(one)}
        if one.more:
            findings[name]["more"] = filler.more(one)
        comparisons = filler.forest(one)
        if comparisons:
            findings[name]["forest"] = _forest(one, comparisons)
    return findings


def _forest(finding: Finding, comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """The picture of a finding in numbers."""
    units = {one.ahead.unit for one in comparisons}
    named = {(line.ahead, line.behind) for line in finding.forest}
    message = (
        f"data/claims.yaml, finding {finding.name}: its lines must have one unit, here "
        f"{', '.join(units)}, and name the same two rows, unless 'sides' says who is ahead."
    )
    check(len(units) == 1 and (finding.sides or len(named) == 1), message, ReportError)
    lines = []
    for line, found in zip(finding.forest, comparisons, strict=True):
        lead = found.lead
        lines.append(
            {
                "label": line.label,
                "methods": [_drawn_as(one) for one in (found.ahead, found.behind)],
                "seeds": lead.seeds,
                "mean": lead.mean,
                "half": lead.half_width if lead.judged else None,
                "values": [] if lead.judged else lead.values,
                "printed": found.printed,
                "diverged": lead.diverged,
            }
        )
    return {"unit": units.pop(), "sides": finding.sides or named.pop(), "lines": lines}


def _drawn_as(cell: Cell) -> str:
    """The method whose colour a row has: ``FedAvg, z of length 1`` is FedAvg's, whatever runs it."""
    named = cell.row.partition(",")[0]
    return named if named in plots.COLOURS else cell.job.settings.method


def _measures(found: Results) -> dict[str, Any]:
    """How numbers of each measure are compared."""
    measures = {}
    for cell in chain.from_iterable(found.cells.values()):
        measure = cell.measure
        measures[measure.name] = {"sign": measure.sign, "unit": measure.unit}
    return dict(sorted(measures.items()))


def _splits(found: Results) -> dict[str, Any]:
    """How the data of each value were divided, in tables where that is not told by column and seed.

    Such runs are in no pair.
    """
    tables = {}
    for name, cells in found.cells.items():
        divisions: dict[tuple[str, int], set[str]] = {}
        for cell in cells:
            for seed, division in cell.by_pair:
                divisions.setdefault((cell.column, seed), set()).add(division)
        if any(len(different) > 1 for different in divisions.values()):
            of_cells = {}
            for cell in cells:
                of_cells[f"{cell.row} | {cell.column}"] = [split[:6] for _, split in cell.by_pair]
            tables[name] = of_cells
    return tables


def _held_out(cells: Sequence[Cell]) -> dict[str, Any]:
    """By row the accuracies of each run after its last round, on test and on held-out images."""
    rows = {}
    for cell in cells:
        finals = [run.record["final"] for run in cell.runs]
        rows[cell.label] = {
            "seed": list(cell.seeds),
            "accuracy": [final["accuracy"] for final in finals],
            "validation": [final["validation"] for final in finals],
        }
    return rows
