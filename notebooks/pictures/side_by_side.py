"""Pictures of notebook 06, of recorded runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from fednb.papers.pictures import side_by_side_tables as tables
from fednb.papers.pictures.side_by_side_tables import BASELINE, GUESS, OWN, TOLD
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots, results
from fednb.leads import interval

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
                means[row], half_width = interval(values)
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
    mean_leads = tables.question()
    names = list(mean_leads)
    panels = {"mean of the five splits": list(mean_leads.values())}
    for title, table in tables.splits().items():
        panels[title] = [tables.lead_in(table, name) for name in names]
    ratios = [1.7, 1, 1, 1, 1, 1]
    figure, axes = plt.subplots(1, 6, figsize=(15, 4.4), sharey=True, width_ratios=ratios)
    for ax, (title, leads) in zip(axes, panels.items(), strict=True):
        for y, lead in enumerate(leads):
            results.draw_lead(ax, y, lead, plots.colour(names[y]), across=True)
        ax.set_title(title)
        ax.axvline(0, color=plots.colour(BASELINE), lw=1, zorder=0)
        ax.set_xscale("symlog", linthresh=10)
        ax.set_xticks(_TICKS, [f"{tick:+d}" if tick else "0" for tick in _TICKS])
        ax.tick_params(axis="x", labelsize="small")
        ax.set_xlim(-70, 30)
        ax.grid(axis="x", alpha=0.3)
    figure.supxlabel("lead over FedAvg (points)", size="medium")
    axes[0].set_title("mean of the five splits", weight="bold")
    axes[0].set_yticks(range(len(names)), names, size="large")
    axes[0].invert_yaxis()
    return figure


def trials() -> Figure:
    """The trials of each method: is the best value inside of what was tried?"""
    of_splits = tables.trials()
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


def _trials_of(ax: Axes, tuning: Mapping[str, Any], style: str, title: str) -> None:
    """Accuracies on held-out images, over what is tuned; the chosen one is filled.

    A grey line is where the coefficient is 0, which is FedAvg.
    """
    if tuning["chosen"] is None:
        return
    accuracies = dict(zip(tuning["values"], tuning["accuracies"], strict=True))
    below = {}
    for value, accuracy in accuracies.items():
        if accuracy is not None:  # no run diverged
            below[value] = accuracy - tuning["accuracy"]
    colour = plots.colour(tuning["method"])
    look: dict[str, Any] = {"mfc": "white", "color": colour, "label": title}
    ax.semilogx(list(below), list(below.values()), f"o{style}", **look)
    ax.semilogx(tuning["chosen"], 0, "s" if tuning["at_edge"] else "o", ms=9, color=colour)
    if tuning["gain"] is not None:
        ax.axhline(-tuning["gain"], ls=style, lw=1, color=plots.colour(BASELINE), zorder=0)


def _value_ticks(ax: Axes, of_method: Sequence[Mapping[str, Any]]) -> None:
    """A tick for each value that was tried."""
    values: set[float] = set()
    for tuning in of_method:
        ax.set_xlabel(tables.name_of_tuned(tuning))
        values.update(tuning["values"])
    ticks = sorted(values)
    ax.set_xticks(ticks, [f"{value:g}" for value in ticks], size="small")
    ax.minorticks_off()


def twins() -> Axes:
    """Leads over FedAvg on the domains, seed by seed: first that of a copy of FedAvg."""
    left_out = {BASELINE, _COPIES[0], *OWN}
    others = [name for name in tables.methods() if name not in left_out]
    copy = tables.lead_in("side-domains", *_COPIES).values
    rows = {"FedPrior, a copy of FedAvg": copy}
    for name in others:
        rows[name] = tables.lead_in("side-domains", name).values
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
    sent = results.load("side_by_side")["sent"]
    figure, axes = plt.subplots(1, len(_SENT), figsize=(12.5, 4), sharey=True)
    for ax, title in zip(axes, _SENT, strict=True):
        for row, curve in sent[tables.splits()[title]].items():
            _sent(ax, row, curve["megabytes"], curve["accuracy"])
        ax.set(title=title, xlabel="megabytes sent so far, both ways")
        ax.set(xscale="log", xlim=(None, 1000))
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy (%)")
    axes[0].annotate("all others:\na network each way", (5, 52), color="0.35", ha="right")
    return figure


def _sent(ax: Axes, row: str, sent: Sequence[float], accuracy: Sequence[float]) -> None:
    """A curve in the method's colour, named at its end; grey for those that send a network each way."""
    if row not in _ALONE:
        ax.plot(sent, accuracy, color="0.6", lw=1)
        return
    colour = plots.colour(row)
    ax.plot(sent, accuracy, color=colour, lw=2.5, zorder=3)
    end = (sent[-1], accuracy[-1])
    plots.label(ax, end, row, _ALONE[row], color=colour, ha="right")
