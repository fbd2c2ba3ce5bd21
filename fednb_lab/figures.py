"""Figures of claims, and the curves of tables as values, which notebooks draw."""

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any, cast

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots
from fednb.leads import Lead
from fednb.results import ForestRow, draw_forest
from fednb_lab.cells import Cell
from fednb_lab.claims import Claim


def curves_of(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return the curves of cells, for `fednb.results.accuracies`; of several the accuracy's."""
    drawn = [cell for cell in cells if cell.measure.curve and cell.runs]
    drawn = [cell for cell in drawn if cell.measure.name == "accuracy"] or drawn
    several = len({cell.column for cell in drawn}) > 1
    described = []
    for cell in drawn:
        metrics = [run.record["metrics"] for run in cell.runs]
        curves = [one.get(cell.measure.curve, []) for one in metrics]
        rounds = max((one.get("round", []) for one in metrics), key=len)
        padded = [[*curve, *[None] * (len(rounds) - len(curve))] for curve in curves]  # diverged
        described.append(
            {
                "name": f"{cell.row}, {cell.column}" if several else cell.row,
                "method": cell.job.settings.method,
                "seeds": list(cell.seeds),
                "rounds": rounds,
                "values": [[_rounded(value) for value in curve] for curve in padded],
            }
        )
    return described


def _rounded(value: float | None) -> float | None:
    """To what a figure can show."""
    return None if value is None else round(value, 4)


def draw_claims(claims: Sequence[tuple[str, Claim]]) -> Axes:
    """Draw the leads of claims in points, a line for each, in the colour of its paper.

    Beside the printed leads stands what our runs in the claim's own setting show.
    """
    rows = []
    for paper, claim in claims:
        found = claim.in_its_setting
        lead = Lead() if found is None else found.lead
        colour = plots.colour(paper)
        rows.append(ForestRow(claim.entry.short, lead, colour, str(claim.word), claim.printed))
    return draw_forest(rows)


def claim_figures(claims: Mapping[str, Sequence[Claim]]) -> dict[str, str]:
    """Draw the report's figures as SVG, by name: each paper's claims, and the main ones of all."""
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
