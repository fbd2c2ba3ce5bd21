"""Pictures of notebook 06, of recorded runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from fednb.papers.pictures import fedplcc
from fednb.papers.pictures import side_by_side_tables as tables
from fednb.papers.pictures.side_by_side_tables import ADJUSTED, BASELINE, OWN
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots, results
from fednb.data import Dataset
from fednb.leads import Lead, interval
from fednb.partition import Parts

_SHOWN = (-25, 16)  # points ahead of FedAvg that a panel has
_DEEPEST = 12.0  # points below a method's best trial that are drawn
_TRIED = (BASELINE, "FedProx", "FedProto+FedAvg", "FedPrior")
_COPIES = ("FedPrior", BASELINE)  # one method where all clients have all classes equally often
_NEAR_ZERO = (-9, 9)  # the same, where methods are close together
_SHORT = 15  # rounds, after which the other comparisons end
_SENT = ("digits, β = 0.1", "five domains")
_ALONE = {  # whose bytes are not those of a network each way, and where their names stand
    "Local": (0, 8),
    "FedProto": (0, 8),
    "SCAFFOLD": (82, -4),
}


def question() -> Figure:
    """How far each method is ahead of FedAvg where clients are alike, and where they differ most.

    Grey is the first comparison, coloured the second. What lies left of a panel is written at its
    edge.
    """
    names = tables.methods()[1:]
    of_panels = {"digits, β = 5": "side-digits-beta-5", "digits, β = 0.1": "side-digits-beta-0.1"}
    figure, axes = plt.subplots(1, len(of_panels), figsize=(12, 4.8), sharey=True)
    for ax, (title, table) in zip(axes, of_panels.items(), strict=True):
        for y, name in enumerate(names):
            _difference(ax, y - 0.17, tables.lead_in(tables.first(table), name), "0.55", _SHOWN)
            _difference(ax, y + 0.17, tables.lead_in(table, name), plots.colour(name), _SHOWN)
        ax.set_title(title)
        ax.axvline(0, color=plots.colour(BASELINE), lw=1, zorder=0)
        ax.set_xlim(*_SHOWN)
        ax.grid(axis="x", alpha=0.3)
        ax.set_xlabel("points ahead of FedAvg after 15 rounds")
    axes[0].set_yticks(range(len(names)), names, size="large")
    axes[0].invert_yaxis()
    figure.suptitle("grey: first comparison (rate 0.04); coloured: second (rate 0.06)", size="medium")
    return figure


def _difference(ax: Axes, y: float, of: Lead, colour: str, shown: tuple[int, int]) -> None:
    """A difference with its interval; where it lies left of what is shown, its number."""
    if of.mean is None:
        return
    if of.mean < shown[0]:
        ax.text(shown[0] + 1, y, f"◂ {of.mean:.0f}", color=colour, va="center", size="small")
    else:
        results.draw_lead(ax, y, of, colour, across=True)


def gap() -> Figure:
    """Accuracy on images like a client's own over 60 rounds, and what FedProto is ahead by.

    At β = 0.1, each method at the rate that counts (tables ``side-long-...``).
    """
    by_row = results.accuracies("side-long-beta-0.1")
    by_row["FedProto"] = by_row["FedProto, λ = 0.1"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4))
    for row, style in ((ADJUSTED, "--"), ("FedProto", "-"), (BASELINE, "-")):
        mean = by_row[row].mean()
        left.plot(mean.index, mean, style, color=plots.colour(row), lw=2)
    left.set(xlabel="communication round", ylabel="right on images like its own (%)")
    for row, place in {ADJUSTED: (34, 102), "FedProto": (34, 87), BASELINE: (17, 55)}.items():
        left.text(*place, row, color=plots.colour(row))
    left.set_ylim(0, 109)

    for row, style in ((BASELINE, "-"), (ADJUSTED, "--")):
        apart = (by_row["FedProto"] - by_row[row]).dropna()
        half_widths = [interval(apart[t].tolist())[1] for t in apart]
        mean = apart.mean()
        colour = plots.colour(row)
        right.plot(mean.index, mean, style, color=colour, lw=2, label=f"ahead of {row}")
        right.fill_between(mean.index, mean - half_widths, mean + half_widths, color=colour, alpha=0.15)
    right.axhline(0, color="0.4", lw=1)
    right.set(xlabel="communication round", ylabel="FedProto is ahead by (points)", ylim=(-7, 30))
    right.legend(frameon=False)
    for ax in (left, right):
        ax.axvline(_SHORT, color="0.4", lw=1, ls=":")
        ax.set_xlim(0.5, 60.5)
        ax.grid(alpha=0.3)
    return figure


def ten_logits(
    logits: Sequence[float],
    log_frequencies: Sequence[float],
    truth: int,
    s: float = 1.0,
    ax: Axes | None = None,
) -> Axes:
    """The logits [K] of one image plus ``s`` times a client's log frequencies [K].

    The true class is outlined; the largest bar, which is the answer, is filled.
    """
    ax = ax or plt.figure(figsize=(6, 3.2), layout="constrained").subplots()
    shifted = np.asarray(logits) + s * np.asarray(log_frequencies)
    shifted = shifted - shifted.mean()  # which changes no answer
    answer = int(shifted.argmax())
    colours = ["0.8"] * len(shifted)
    colours[answer] = plots.colour("FedPrior")
    bars = ax.bar(range(len(shifted)), shifted, color=colours)
    bars[truth].set(edgecolor="black", linewidth=2)
    ax.axhline(0, color="0.4", lw=1)
    ax.set_xticks(range(len(shifted)))
    verdict = "right" if answer == truth else "wrong"
    ax.set_title(f"s = {s:g}: it says {answer}, {verdict}", size="medium")
    return ax


def telling(image: np.ndarray, counts: Sequence[int], logits: Sequence[float], truth: int) -> Figure:
    """An image, the classes of the client that asks, and frames of `ten_logits` from s = 0 on.

    ``image`` [H, W]; ``counts`` [K], images of each class that the client has; ``logits`` [K].
    """
    log_frequencies = log_shares(counts)
    figure, axes = plt.subplots(1, 6, figsize=(15, 2.9), width_ratios=(0.8, 1, 1.2, 1.2, 1.2, 1.2))
    axes[0].imshow(image, cmap="gray_r")
    axes[0].set_title(f"a {truth}", size="medium")
    axes[0].axis("off")
    axes[1].bar(range(len(counts)), counts, color="0.6")
    axes[1].set_title("the client's images", size="medium")
    axes[1].set_xticks(range(len(counts)))
    for ax, s in zip(axes[2:], (0, 0.5, 1, 4), strict=True):
        ten_logits(logits, log_frequencies, truth, s, ax)
    axes[2].set_ylabel("logit + s log p")
    figure.supxlabel("class", size="medium")
    return figure


def log_shares(counts: Sequence[int]) -> np.ndarray:
    """The logarithms [K] of a client's class frequencies, with one image added to each class."""
    more = np.asarray(counts) + 1
    return np.log(more / more.sum())


def logits_to_move(logits: Sequence[float], counts: Sequence[int], truth: int) -> Callable[[float], None]:
    """A function that shows the logits of one image for a strength s: what a slider calls."""

    def draw(s: float = 1.0) -> None:
        ax = ten_logits(logits, log_shares(counts), truth, s)
        plots.show(ax, f"Ten logits of one image with s = {s:g}")

    return draw


def splits(parts: Mapping[str, Parts], labels: np.ndarray, domains: Dataset) -> Figure:
    """Images per client and class of four splits, as areas, and an image of each in the domains."""
    figure, axes = plt.subplots(1, 5, figsize=(17, 3.4), width_ratios=(1, 1, 1, 1, 1.5))
    for ax, (title, of_split) in zip(axes, parts.items(), strict=False):
        plots.split(of_split, labels, 10, ax, title, largest=150)
    fedplcc.domains(domains, ax=axes[4], title="domain shift: a client per row")
    return figure


def elsewhere() -> Figure:
    """How far methods are ahead of FedAvg on the papers' data, untuned: a panel for each table.

    Of one or two runs the values, otherwise the mean with its interval.
    """
    names = tables.methods()[1:]
    of_tables = tables.ELSEWHERE
    figure, axes = plt.subplots(1, len(of_tables), figsize=(15, 4.6), sharey=True)
    for ax, (title, table) in zip(axes, of_tables.items(), strict=True):
        shown = _NEAR_ZERO if title.startswith("CIFAR") else _SHOWN
        for y, name in enumerate(names):
            of = tables.lead_if_run(table, name)
            if of is not None:
                _difference(ax, y, of, plots.colour(name), shown)
        ax.set_title(title, size="small")
        ax.axvline(0, color=plots.colour(BASELINE), lw=1, zorder=0)
        ax.set_xlim(*shown)
        ax.grid(axis="x", alpha=0.3)
    figure.supxlabel("points ahead of FedAvg", size="medium")
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    return figure


def trials() -> Figure:
    """The trials of four methods on held-out images: what the right value gains, and a wrong one costs."""
    of_splits = tables.trials()
    figure, axes = plt.subplots(1, len(_TRIED), figsize=(14, 3.4), sharey=True)
    for ax, name in zip(axes, _TRIED, strict=True):
        for (title, found), style in zip(of_splits.items(), ("-", ":"), strict=True):
            if name in found:
                _trials_of(ax, found[name], style, title)
        _value_ticks(ax, [found[name] for found in of_splits.values() if name in found])
        ax.set_title(name)
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("points below\nits best trial")
    axes[0].set_ylim(-_DEEPEST, 1)
    axes[-1].legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
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
    """Points ahead of FedAvg on the domains, seed by seed: first those of a copy of FedAvg."""
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
    ax.set_xlabel("points ahead of FedAvg with the same seed; the bar is the mean of ten")
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
