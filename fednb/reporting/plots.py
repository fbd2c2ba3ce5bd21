"""Figures of tables: accuracy per round, a paper's claims at a glance."""

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from fednb import plots
from fednb.reporting import comparisons, statistics
from fednb.reporting.comparisons import Claim
from fednb.reporting.tables import Cell, Ledger, Named, cells_of


def _palette(found: Mapping[str, Cell]) -> dict[str, Any]:
    """A line has the colour of its runs' method; several of one method have shades of it."""
    made: dict[str, Any] = {}
    for method in dict.fromkeys(cell.job.settings.method for cell in found.values()):
        names = [name for name, cell in found.items() if cell.job.settings.method == method]
        shades = sns.light_palette(plots.colour(method), len(names) + 2, reverse=True)
        made |= zip(sorted(names, key=lambda name: name != method), shades, strict=False)
    return made


def curves(table: Named, ax: Axes | None = None, *, ledger: Ledger = None) -> Axes:
    """Accuracy per communication round; runs of a single round (SOLO) are a dashed level, as in the papers' figures."""
    found = [cell for cell in cells_of(table, ledger) if cell.of.curve]
    found = [
        cell for cell in found if cell.measure == "accuracy"
    ] or found  # of runs that are read in several ways
    several = len({cell.column for cell in found if cell.runs}) > 1
    most, named, told = max((cell.seeds for cell in found), key=len, default=()), {}, []
    for cell in found:
        name = f"{cell.row}, {cell.column}" if several else cell.row
        name += "" if cell.seeds == most else f" (seed {', '.join(map(str, cell.seeds))})"
        named[name], metrics = cell, [run.record["metrics"] for run in cell.runs]
        told += [
            (name, *pair)
            for m in metrics
            for pair in zip(m.get("round", []), m.get(cell.of.curve, []), strict=False)
        ]
    frame, palette = pd.DataFrame(told, columns=["name", "x", "value"]).dropna(), _palette(named)
    once = frame.groupby("name")["x"].transform("nunique") == 1
    ax = ax or plt.figure(layout="constrained").subplots()
    if frame.empty:
        ax.text(0.5, 0.5, "nothing recorded", ha="center", va="center", transform=ax.transAxes)
    elif not once.all():  # the mean over seeds, and a band from the lowest to the highest
        sns.lineplot(
            frame[~once], x="x", y="value", hue="name", palette=palette, errorbar=("pi", 100), ax=ax
        )
    ax.grid(alpha=0.3)
    for (name, last), level in frame[once].groupby(["name", "x"], sort=False)["value"]:
        told = "one round" if last == 1 else f"after {last} rounds"
        ax.axhline(level.mean(), linestyle="--", color=palette[name], label=f"{name} ({told})")
    ax.set(xlabel="communication round", ylabel="test accuracy (%)")
    ax.xaxis.get_major_locator().set_params(integer=True)
    if ax.lines:
        ax.legend(frameon=False)
    return ax


def glance(paper: str) -> Axes:
    """A paper's claims: leads printed (hollow) and measured (filled, with interval and a word), short runs below, paler."""
    return draw(
        [(paper, claim) for claim in comparisons.claims_of(paper) if "short" in claim.entry]
    )


def draw(claims: Sequence[tuple[str, Claim]]) -> Axes:
    """Draw the leads of claims in points, a line for each, in the colour of its paper."""
    ax = plt.figure(figsize=(8.2, 1.1 + 0.52 * len(claims)), layout="constrained").subplots()
    ax.axvline(0, color="0.6", lw=1, zorder=0)
    hollow, pale = {"mfc": "none", "mec": "0.25", "mew": 1.5, "ms": 11}, {"ms": 4, "alpha": 0.45}
    ends, behind = [0.0], False
    for y, (paper, claim) in enumerate(claims):
        best, *others = claim.told
        shown = [best, *(one for one in others if claim.on_its_data(one))]
        for i, lead in enumerate(one.lead for one in shown if one.lead.mean is not None):
            width, look = [[lead.half]] * 2 if lead.seeds > 1 else None, pale if i else {"ms": 8}
            ax.errorbar(
                lead.mean,
                y + 0.22 * i,
                xerr=width,
                fmt="o",
                color=plots.colour(paper),
                capsize=3,
                **look,
            )
            behind |= i > 0
            ends += (
                [lead.mean] if i or not width else [lead.mean - lead.half, lead.mean + lead.half]
            )
        if claim.printed is not None:
            ax.plot(claim.printed, y, "o", zorder=3, **hollow)
            ends.append(claim.printed)
        runs = f"{claim.setting(best, brief=True)}, {best.lead.seeds} seed{'s' * (best.lead.seeds > 1)}"
        at, weight = (
            {"x": 1.02, "transform": ax.get_yaxis_transform()},
            "bold" if best.lead.judged else "normal",
        )
        ax.text(
            y=y, s=statistics.word(claim.verdict), va="bottom", size="small", weight=weight, **at
        )
        ax.text(
            y=y + 0.06, s=runs * bool(best.lead.seeds), va="top", size="x-small", color="0.4", **at
        )
    pad = 0.12 * (max(ends) - min(ends)) or 1.0
    ax.set(
        xlim=(min(ends) - pad, max(ends) + pad),
        ylim=(len(claims) - 0.4, -0.6),
        xlabel="lead in points of accuracy",
    )
    ax.set_yticks(range(len(claims)), [claim.entry["short"] for _, claim in claims])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", alpha=0.3)
    ax.plot([], [], "o", label="printed", **hollow)
    ax.errorbar(
        [],
        [],
        xerr=[],
        fmt="o",
        color="0.4",
        ms=8,
        capsize=3,
        label="measured, 95 % interval over seeds",
    )
    if behind:
        ax.plot([], [], "o", color="0.4", label="shorter runs", **pale)
    ax.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, 1),
        ncols=3,
        frameon=False,
        fontsize="small",
        handletextpad=0.4,
    )
    return ax


def figures(claims: Mapping[str, Sequence[Claim]]) -> dict[str, str]:
    """The report's figures as SVG by name: each paper's claims at a glance, and the main ones of all papers."""
    shown = {
        paper: [(paper, claim) for claim in own if "short" in claim.entry]
        for paper, own in claims.items()
    }
    shown["glance"] = [pair for own in shown.values() for pair in own if "main" in pair[1].entry]
    made = {}
    with plt.rc_context({"svg.fonttype": "none"}):
        plots.style()
        for name in filter(shown.get, shown):
            file, ax = StringIO(), draw(shown[name])
            ax.figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
            plt.close(ax.figure)
            made[name.lower()] = file.getvalue()
    return made
