"""Figures of tables: accuracy per round, a measure against a parameter, a paper's claims at a glance."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from fednb import plots
from fednb.experiments.sweep import Table
from fednb.reporting import comparisons, statistics
from fednb.reporting.comparisons import Claim
from fednb.reporting.metrics import ReportError
from fednb.reporting.tables import Cell, Ledger, Named, cells_of, table_of

_STYLES = ("-", (0, (4, 2)), ":", "-.")


def looks(found: Mapping[str, Cell]) -> dict[str, dict[str, Any]]:
    """A line has the colour of its runs' method; several of one method have shades of it."""
    methods, made = {name: cell.job.settings.method for name, cell in found.items()}, {}
    for method in dict.fromkeys(methods.values()):
        names = sorted((name for name in methods if methods[name] == method), key=lambda name: name != method)
        shades = sns.light_palette(plots.colour(method), len(names) + 2, reverse=True)
        for i, name in enumerate(names):
            made[name] = {"color": shades[i], "linestyle": _STYLES[i % len(_STYLES)], "label": name}
    return made


def _finished(ax: Axes) -> Axes:
    if ax.lines:
        ax.grid(alpha=0.3)
        ax.legend(frameon=False)
    else:
        ax.text(0.5, 0.5, "nothing recorded", ha="center", va="center", transform=ax.transAxes)
    return ax


def curves(table: Named, ax: Axes | None = None, *, ledger: Ledger = None) -> Axes:
    """Accuracy per communication round: a line for the mean over seeds, a band from the lowest to the highest.

    Runs of a single round (SOLO) are a dashed level, as in the papers' figures. Rounds that were not evaluated are passed
    over.
    """
    ax = ax or plt.figure(layout="constrained").subplots()
    ax.set(xlabel="communication round", ylabel="test accuracy (%)")
    found = [cell for cell in cells_of(table, ledger) if cell.of.curve]
    found = [cell for cell in found if cell.measure == "accuracy"] or found  # of runs that are read in several ways
    several, most = len({cell.column for cell in found}) > 1, max((cell.seeds for cell in found), key=len, default=())
    names = {f"{cell.row}, {cell.column}" if several else cell.row: cell for cell in found}
    for name, look in looks(names).items():
        runs = [
            pd.Series(m.get(names[name].of.curve, []), m.get("round", []), float)
            for m in (run.record["metrics"] for run in names[name].runs)
        ]
        line = pd.concat(runs, axis=1).dropna(how="all") if runs else pd.DataFrame()  # a row per round, a column per run
        if names[name].seeds != most:
            look["label"] += f" (seed {', '.join(map(str, names[name].seeds))})"
        if len(line) == 1:
            look["label"] += " (one round)" if line.index[0] == 1 else f" (after {line.index[0]} rounds)"
            ax.axhline(line.stack().mean(), **look | {"linestyle": "--"})
        elif len(line):
            ax.plot(line.mean(axis=1), **look)
            ax.fill_between(line.index, line.min(axis=1), line.max(axis=1), color=look["color"], alpha=0.2, linewidth=0)
    ax.xaxis.get_major_locator().set_params(integer=True)
    return _finished(ax)


def against(table: Named, parameter: str, ax: Axes | None = None, *, ledger: Ledger = None) -> Axes:
    """The table's measure against a parameter: a line per row, over the seeds that all its points have, and a band from the
    lowest to the highest.

    Along the parameter that makes the table's rows there is a line per column instead. Values of the parameter stand in the
    table's order at equal distances. Printed values are hollow; a row without the parameter (FedAvg has no μ) is a dashed
    level. A `ReportError` if the runs do not differ in the parameter.
    """
    found = cells_of(table, ledger)  # of a table's name from the committed records
    table = table if isinstance(table, Table) else table_of(table)
    several = parameter == table.rows.parameter or len({cell.column for cell in found}) > 1
    lines: dict[str, dict[str, Cell]] = {}
    for cell in found:
        names = {table.rows.parameter: cell.label} | ({table.columns.parameter: cell.column} if several else {})
        x = names.pop(parameter, cell.job.settings.flat().get(parameter))
        told = [f"{name.replace('_', ' ')} {value}" for name, value in cell.told if name != parameter]
        lines.setdefault(", ".join([*names.values(), *told]), {})["" if x is None else str(x)] = cell
    places = list(dict.fromkeys(x for line in lines.values() for x in line if x))
    places = sorted(places, key=float) if all(re.fullmatch(r"[\d.e-]+", x) for x in places) else places
    if len(places) < 2 or table.columns.measures:
        raise ReportError(f"{table.name}: its runs do not differ in {parameter}, so there is nothing to draw.")
    ax = ax or plt.figure(layout="constrained").subplots()
    ax.set(xlabel=parameter.replace("_", " "), ylabel=found[0].of.axis, xlim=(-0.3, len(places) - 0.7))
    ax.set_xticks(range(len(places)), places)
    for i, (name, look) in enumerate(looks({name: [*line.values()][-1] for name, line in lines.items()}).items()):
        line, look = lines[name], {"color": look["color"], "label": name}
        if (level := line.pop("", None)) and level.values:
            ax.axhline(level.mean, linestyle="--", **look)
        values = {places.index(x): {seed: value for (seed, _), value in cell.by_pair.items()} for x, cell in line.items()}
        drawn = pd.DataFrame(values).replace(np.inf, np.nan).sort_index(axis=1).dropna(axis=1, how="all")
        drawn = drawn.dropna() if len(drawn.dropna()) else drawn  # else a peak may be nothing but another seed's luck
        known = {places.index(x): cell.printed for x, cell in line.items() if cell.printed is not None}
        if drawn.size:
            ax.plot(drawn.agg(lambda seeds: found[0].of.summary([*seeds.dropna()])), marker="osD^v"[i % 5], **look)
            ax.fill_between(drawn.columns, drawn.min(), drawn.max(), alpha=0.2, linewidth=0, color=look["color"])
        if known:
            ax.plot(known.keys(), known.values(), "osD^v"[i % 5], mfc="none", ms=9, color=look["color"])
    if any(cell.printed is not None for cell in found):
        ax.plot([], [], "o", color="0.4", mfc="none", ms=9, label="printed in the paper")
    return _finished(ax)


def glance(paper: str, ax: Axes | None = None) -> Axes:
    """A paper's claims at a glance, from the committed records: leads as printed (hollow) and as measured (filled).

    What counts has the 95 % interval over seeds and a word at the right; short runs stand below it, paler.
    """
    return draw([(paper, claim) for claim in comparisons.claims_of(paper) if "short" in claim.entry], ax)


def draw(claims: Sequence[tuple[str, Claim]], ax: Axes | None = None) -> Axes:
    """Draw the leads of claims in points, a line for each, in the colour of its paper."""
    ax = ax or plt.figure(figsize=(8.2, 1.1 + 0.52 * len(claims)), layout="constrained").subplots()
    ax.axvline(0, color="0.6", lw=1, zorder=0)
    hollow, pale = {"mfc": "none", "mec": "0.25", "mew": 1.5, "ms": 11}, {"ms": 4, "alpha": 0.45}
    ends = [0.0]
    for y, (paper, claim) in enumerate(claims):
        best, *others = claim.told
        shown = [best, *(one for one in others if claim.on_its_data(one))]
        for i, lead in enumerate(one.lead for one in shown if one.lead.mean is not None):
            width, look = [[lead.half]] * 2 if lead.seeds > 1 else None, pale if i else {"ms": 8}
            ax.errorbar(lead.mean, y + 0.22 * i, xerr=width, fmt="o", color=plots.colour(paper), capsize=3, **look)
            ends += [lead.mean] if i or not width else [lead.mean - lead.half, lead.mean + lead.half]
        if claim.printed is not None:
            ax.plot(claim.printed, y, "o", zorder=3, **hollow)
            ends.append(claim.printed)
        runs = f"{claim.setting(best, brief=True)}, {best.lead.seeds} seed{'s' * (best.lead.seeds > 1)}"
        at, weight = {"x": 1.02, "transform": ax.get_yaxis_transform()}, "bold" if best.lead.judged else "normal"
        ax.text(y=y, s=statistics.word(claim.verdict), va="bottom", size="small", weight=weight, **at)
        ax.text(y=y + 0.06, s=runs * bool(best.lead.seeds), va="top", size="x-small", color="0.4", **at)
    pad = 0.12 * (max(ends) - min(ends)) or 1.0
    ax.set(xlim=(min(ends) - pad, max(ends) + pad), ylim=(len(claims) - 0.4, -0.6), xlabel="lead in points of accuracy")
    ax.set_yticks(range(len(claims)), [claim.entry["short"] for _, claim in claims])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", alpha=0.3)
    ax.plot([], [], "o", label="printed", **hollow)
    ax.errorbar([], [], xerr=[], fmt="o", color="0.4", ms=8, capsize=3, label="measured, 95 % interval over seeds")
    ax.plot([], [], "o", color="0.4", label="shorter runs", **pale)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False, fontsize="small", handletextpad=0.4)
    return ax


def figures(claims: Mapping[str, Sequence[Claim]]) -> dict[str, str]:
    """The report's figures as SVG by name: each paper's claims at a glance, and the main ones of all papers."""
    shown = {paper: [(paper, claim) for claim in own if "short" in claim.entry] for paper, own in claims.items()}
    shown["glance"] = [pair for own in shown.values() for pair in own if "main" in pair[1].entry]
    made = {}
    with plt.rc_context():
        plots.style()
        plt.rcParams["svg.fonttype"] = "none"
        for name in filter(shown.get, shown):
            file, ax = StringIO(), draw(shown[name])
            ax.figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
            plt.close(ax.figure)
            made[name.lower()] = file.getvalue()
    return made
