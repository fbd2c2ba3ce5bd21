"""Pictures of notebook 06, of recorded runs."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from fednb.papers.pictures import side_by_side_tables as tables
from fednb.papers.pictures.side_by_side_tables import BASELINE, GUESS, OWN, TOLD
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots
from fednb_lab import intervals as statistics
from fednb_lab.cells import Cell, cells_of
from fednb_lab.leads import Lead, compare_at
from fednb_lab.tuning import Tuning, tunings

_TICKS = (-30, 0, 10)  # of leads; beyond ten points the axis is logarithmic
_DEEPEST = 12.0  # points below a method's best trial that are drawn
_COPIES = ("FedPrior", BASELINE)  # one method where all clients have all classes equally often
_SENT = ("digits, β = 0.1", "five domains")
_ALONE = {  # whose bytes are not those of a network each way, and where their names stand
    "Local": (0, 8),
    "FedProto": (0, 8),
    "SCAFFOLD": (82, -4),
}


def told() -> Figure:
    """How right a client is on images like its own, asking whom: a panel for each split."""
    of_splits = tables.for_itself()
    figure, axes = plt.subplots(1, len(of_splits), figsize=(13, 3.1), sharex=True, sharey=True)
    for ax, (title, by_row) in zip(axes, of_splits.items(), strict=True):
        means: dict[str, float] = {}
        for y, (row, values) in enumerate(by_row.items()):
            if values:
                means[row], half_width = statistics.interval(values)
                mark, colour = ("D", "0.75") if row == GUESS else ("o", plots.colour(row))
                ax.errorbar(means[row], y, xerr=half_width, fmt=mark, color=colour, capsize=3)
        if BASELINE in means and TOLD in means:
            ends = {"xy": (means[TOLD], 1.85), "xytext": (means[BASELINE], 1.15)}
            ax.annotate("", **ends, arrowprops={"arrowstyle": "->", "color": "0.35"})
        ax.set_title(title)
        ax.set_yticks(range(len(by_row)), list(by_row))
        ax.grid(axis="x", alpha=0.3)
    figure.supxlabel("right on images like its own (%)", size="medium")
    axes[0].invert_yaxis()
    return figure


def question() -> Figure:
    """Mean leads over FedAvg, then the leads in each split; none is judged here."""
    found = tables.question()
    panels = {"mean of the five splits": [one.lead for one in found]}
    for title, table in tables.splits().items():
        cells = cells_of(table)
        pairs = [compare_at(cells, one.method, BASELINE, "accuracy") for one in found]
        panels[title] = [pair.lead for pair in pairs]
    ratios = [1.7, 1, 1, 1, 1, 1]
    figure, axes = plt.subplots(1, 6, figsize=(15, 4.4), sharey=True, width_ratios=ratios)
    for ax, (title, leads) in zip(axes, panels.items(), strict=True):
        for y, lead in enumerate(leads):
            _dot(ax, y, plots.colour(found[y].method), lead)
        ax.set_title(title)
        ax.axvline(0, color=plots.colour(BASELINE), lw=1, zorder=0)
        ax.set_xscale("symlog", linthresh=10)
        ax.set_xticks(_TICKS, [f"{tick:+d}" if tick else "0" for tick in _TICKS])
        ax.tick_params(axis="x", labelsize="small")
        ax.set_xlim(-70, 30)
        ax.grid(axis="x", alpha=0.3)
    figure.supxlabel("lead over FedAvg (points)", size="medium")
    axes[0].set_title("mean of the five splits", weight="bold")
    axes[0].set_yticks(range(len(found)), [one.method for one in found], size="large")
    axes[0].invert_yaxis()
    return figure


def _dot(ax: Axes, y: float, colour: str, lead: Lead) -> None:
    """A lead with its interval, if there are runs; hollow where one diverged."""
    if lead.mean is not None:
        fill = "none" if lead.diverged else colour
        look: dict[str, Any] = {"fmt": "o", "mfc": fill, "color": colour, "capsize": 3}
        ax.errorbar(lead.mean, y, xerr=lead.half_width, **look)


def trials() -> Figure:
    """The trials of each method: is the best value inside of what was tried?"""
    of_splits = {title: tunings(cells_of(table)) for title, table in tables.TRIALS.items()}
    names = tables.methods()
    figure, axes = plt.subplots(2, 6, figsize=(14, 5), sharey=True)
    for ax, name in zip(axes.flat, names, strict=False):
        for (title, found), style in zip(of_splits.items(), ("-", ":"), strict=True):
            if name in found:
                _trials_of(ax, found[name], style, title)
        _value_ticks(ax, [found[name] for found in of_splits.values() if name in found])
        ax.set_title(name)
        ax.grid(alpha=0.3)
    for ax in axes[:, 0]:
        ax.set_ylabel("points below\nits best trial")
    axes[0, 0].set_ylim(-_DEEPEST, 1)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    axes[-1, -1].axis("off")
    axes[-1, -1].legend(handles, labels, loc="center", frameon=False)
    return figure


def _trials_of(ax: Axes, tuning: Tuning, style: str, title: str) -> None:
    """Accuracies on held-out images, over what is tuned; the chosen one is filled.

    A grey line is where the coefficient is 0, which is FedAvg.
    """
    chosen = tuning.chosen
    if chosen is None:
        return
    below = {trial.value: trial.accuracy - chosen.accuracy for trial in tuning.finished}
    look: dict[str, Any] = {"mfc": "white", "color": plots.colour(tuning.method), "label": title}
    ax.semilogx(list(below), list(below.values()), f"o{style}", **look)
    mark = "s" if tuning.at_edge else "o"
    ax.semilogx(chosen.value, 0, mark, ms=9, color=plots.colour(tuning.method))
    if tuning.gain is not None:
        ax.axhline(-tuning.gain, ls=style, lw=1, color=plots.colour(BASELINE), zorder=0)


def _value_ticks(ax: Axes, of_method: Sequence[Tuning]) -> None:
    """A tick for each value that was tried."""
    values: set[float] = set()
    for tuning in of_method:
        ax.set_xlabel(tables.name_of_tuned(tuning.tuned))
        values.update(trial.value for trial in tuning.trials)
    ticks = sorted(values)
    ax.set_xticks(ticks, [f"{value:g}" for value in ticks], size="small")
    ax.minorticks_off()


def twins() -> Axes:
    """Leads over FedAvg on the domains, seed by seed: first that of a copy of FedAvg."""
    cells = cells_of("side-domains")
    copy = list(compare_at(cells, *_COPIES, "accuracy").by_seed.values())
    left_out = {BASELINE, _COPIES[0], *OWN}
    others = [name for name in tables.methods() if name not in left_out]
    rows = {"FedPrior, a copy of FedAvg": copy}
    for name in others:
        rows[name] = list(compare_at(cells, name, BASELINE, "accuracy").by_seed.values())
    _, ax = plt.subplots(figsize=(9, 3.6))
    if copy:
        ax.axvspan(min(copy), max(copy), color="0.92", zorder=0)
    ax.axvline(0, color=plots.colour(BASELINE), lw=1)
    for y, (name, values) in enumerate(rows.items()):
        ax.plot(values, [y] * len(values), "o", color=plots.colour(name), alpha=0.6)
        if values:
            ax.plot(np.mean(values), y, "|", color="black", ms=22, mew=2)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_xlabel("lead over FedAvg with the same seed (points); the bar is the mean")
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(axis="x", alpha=0.3)
    return ax


def bytes_sent() -> Figure:
    """Accuracy over megabytes sent, mean over seeds; who diverged has no curve."""
    splits = tables.splits()
    figure, axes = plt.subplots(1, len(_SENT), figsize=(12.5, 4), sharey=True)
    for ax, title in zip(axes, _SENT, strict=True):
        for cell in cells_of(splits[title]):
            if cell.column == "accuracy" and cell.runs and not cell.diverged:
                _sent(ax, cell)
        ax.set(title=title, xlabel="megabytes sent so far, both ways")
        ax.set(xscale="log", xlim=(None, 1000))
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy (%)")
    axes[0].annotate("all others:\na network each way", (5, 52), color="0.35", ha="right")
    return figure


def _sent(ax: Axes, cell: Cell) -> None:
    """A curve in the method's colour, named at its end; grey for those that send a network each way."""
    sent, accuracy = _mean_curve(cell)
    if cell.row not in _ALONE:
        ax.plot(sent, accuracy, color="0.6", lw=1)
        return
    colour = plots.colour(cell.row)
    ax.plot(sent, accuracy, color=colour, lw=2.5, zorder=3)
    end = (sent[-1], accuracy[-1])
    plots.label(ax, end, cell.row, _ALONE[cell.row], color=colour, ha="right")


def _mean_curve(cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    """Megabytes sent until each round, and the accuracy after it, means over runs."""
    sent = []
    accuracies = []
    for run in cell.measured_runs:
        metrics = run.record["metrics"]
        sent.append(np.cumsum(np.add(metrics["down_bytes"], metrics["up_bytes"])) / 1e6)
        accuracies.append(metrics["accuracy"])
    return np.mean(sent, 0), np.mean(accuracies, 0)
