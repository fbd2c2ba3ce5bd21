"""Figures of tables and claims: what `fednb.plots` draws, as values."""

import itertools
import math
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any, cast

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots
from fednb_lab.analysis.cells import Cell
from fednb_lab.analysis.claims import Claim
from fednb_lab.analysis.comparisons import Comparison
from fednb_lab.analysis.statistics import Kind, Why
from fednb_lab.reporting import words


def curves_of(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """The curves of a table's cells, for `fednb.plots.curves`."""
    described = []
    for name, cell in _with_curves(cells).items():
        metrics = [run.record["metrics"] for run in cell.runs]
        rounds = max((one.get("round", []) for one in metrics), key=len, default=[])
        values = [one.get(cell.measure.curve, []) for one in metrics]
        described.append(
            {
                "name": name,
                "method": cell.job.settings.method,
                "seeds": list(cell.seeds),
                "rounds": rounds,
                "values": [_rounded(of_run) for of_run in values],
            }
        )
    return described


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    """To what a figure can show."""
    return [None if value is None else round(value, 4) for value in values]


def _with_curves(cells: Sequence[Cell]) -> dict[str, Cell]:
    """The cells that are drawn, by what they are called; of several read-outs the accuracy."""
    drawn = [cell for cell in cells if cell.measure.curve]
    drawn = [cell for cell in drawn if cell.measure.name == "accuracy"] or drawn
    columns = {cell.column for cell in drawn if cell.runs}
    usual_seeds = max((cell.seeds for cell in drawn), key=len, default=())
    named = {}
    for cell in drawn:
        name = f"{cell.row}, {cell.column}" if len(columns) > 1 else cell.row
        if cell.seeds != usual_seeds:
            name += f" (seed {', '.join(map(str, cell.seeds))})"
        named[name] = cell
    return named


def draw_claims(claims: Sequence[tuple[str, Claim]]) -> Axes:
    """Draw the leads of claims, each with its paper."""
    return plots.claims([(paper, drawn_claim(claim)) for paper, claim in claims])


def drawn_claim(claim: Claim) -> dict[str, Any]:
    """A claim, for `fednb.plots.claims`: its verdict, and below it the runs that are drawn."""
    return {
        "name": claim.entry.short,
        "printed": list(claim.printed),
        "leads": [_drawn_lead(claim, comparison) for comparison in _drawn(claim)],
        "verdict": words.verdict(claim),
        "decided": bool(claim.best.lead.judged and claim.evidence),
        "runs": _runs(claim),
    }


def _drawn_lead(claim: Claim, comparison: Comparison) -> dict[str, Any]:
    """A lead with its interval, if it has one; of few runs with one that is borrowed."""
    lead = comparison.lead
    borrowed = claim.borrowed(comparison)
    half_width = borrowed.half_width if borrowed else lead.half_width
    return {
        "mean": lead.mean,
        "half_width": None if math.isnan(half_width) else half_width,
        "decides": bool(lead.judged and claim.evidence),
        "borrowed": borrowed is not None,
    }


def _drawn(claim: Claim) -> list[Comparison]:
    """What decides, then what is nearer to the paper's setting but has too few runs; with a lead."""
    best = claim.best
    nearer = itertools.takewhile(lambda one: one is not best, claim.evidence)
    return [one for one in (best, *nearer) if one.lead.mean is not None]


def _runs(claim: Claim) -> str:
    """The runs that are drawn for a claim, and what its verdict rests on besides their interval."""
    seeds = claim.best.lead.seeds
    if not seeds:
        return "nothing was run"
    runs = f"{words.setting(claim.setting(claim.best), brief=True)}, {words.seeds(seeds)}"
    if not claim.evidence:
        return f"drawn: {runs}"
    if claim.verdict.why == Why.AMONG_MANY:
        return f"{runs}\none of {claim.lead.among} claims: may be luck"
    borrowed = claim.borrowed(claim.best)
    if borrowed is None:
        return f"{runs}\nno ± to borrow" if claim.verdict.kind == Kind.ONE_RUN else runs
    return f"{runs}\n± from {words.setting(claim.setting(borrowed.source), brief=True)}"


def claim_figures(claims: Mapping[str, Sequence[Claim]]) -> dict[str, str]:
    """The report's figures as SVG by name: the claims of each paper, and the main ones of all."""
    drawn: dict[str, list[tuple[str, Claim]]] = {}
    for paper, of_paper in claims.items():
        drawn[paper] = [(paper, claim) for claim in of_paper if claim.entry.short]
    with_names = [pair for pairs in drawn.values() for pair in pairs]
    drawn["glance"] = [(paper, claim) for paper, claim in with_names if claim.entry.main]
    figures = {}
    with plt.rc_context({"svg.fonttype": "none"}):
        plots.style()
        for name, pairs in drawn.items():
            if pairs:
                figures[name.lower()] = _svg(draw_claims(pairs))
    return figures


def _svg(ax: Axes) -> str:
    """A figure as text, without what differs from one day to the next; and close it."""
    file = StringIO()
    figure = cast(Figure, ax.figure)
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    return file.getvalue()
