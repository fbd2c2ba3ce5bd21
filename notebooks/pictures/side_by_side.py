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
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from fednb import plots, results
from fednb.data import Dataset
from fednb.leads import Lead, interval
from fednb.partition import Parts

_REPEATED = {  # tables of the second comparison that are drawn beside those of the first
    "clients resemble each other (β = 5)": "side-digits-beta-5",
    "clients differ most (β = 0.1)": "side-digits-beta-0.1",
}
_BESIDE_ANOTHER = 0.012  # one method's interval is drawn so much beside another's
_DEEPEST = 16.0  # points below a method's best trial that are drawn
_HIGHEST = 7.0  # points above it that are drawn: single seeds get there
_BESIDE = 1.05  # seeds of a trial are drawn this factor left or right of its mean
_TRIED = (BASELINE, "FedProx", "FedProto+FedAvg", "FedPrior")
_COPIES = ("FedPrior", BASELINE)  # one method where all clients have all classes equally often
_AHEAD, _BEHIND, _UNCLEAR = "#8ecae6", "#f6bd60", "0.93"  # of FedAvg, and neither
_SHORT = 15  # rounds, after which the other comparisons end
_SENT = "side-digits-beta-0.1"  # whose messages the picture of bytes counts
_OWN_IMAGES = "side-long-beta-0.1"  # accuracy on images like a client's own, over 60 rounds
_ALONE = {  # whose bytes are not those of a network each way, and where their names stand
    "Local": (0, 8),
    "FedProto": (0, 8),
    "SCAFFOLD": (50, 8),
}


@plots.described("Points ahead of FedAvg by method and setting: most cells are grey, and no method is ahead in all of them")
def scoreboard() -> Figure:
    """Who is ahead of FedAvg in which setting: a row for each method, a column for each setting.

    A cell has the mean difference in points, and a colour where its 95 % interval leaves out 0. It
    has a cross if a run diverged, and is empty if there are fewer than three seeds.
    """
    names = [*tables.methods()[1:], ADJUSTED]
    settings = tables.SETTINGS
    figure, ax = plt.subplots(figsize=(12.5, 5.3))
    x = 0.0
    places = []
    for setting in settings:
        x += setting.gap
        for y, name in enumerate(names):
            _cell(ax, x, y, tables.lead_if_run(setting, name))
        places.append(x)
        x += 1
    for title, first, last in tables.GROUPS:
        ax.text((places[first] + places[last]) / 2, -1.75, title, ha="center", size="medium", weight="bold")
        ax.plot([places[first] - 0.45, places[last] + 0.45], [-1.6, -1.6], color="0.4", lw=1)
    for place, setting in zip(places, settings, strict=True):
        ax.text(place, -0.65, setting.title, ha="center", va="bottom", size="small")
    ax.set_yticks(range(len(names)), names, size="large")
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.set(xlim=(-0.6, x - 0.4), ylim=(len(names) - 0.4, -2.2))
    ax.spines[:].set_visible(False)
    kinds = {"ahead of FedAvg": _AHEAD, "behind": _BEHIND, "cannot be told apart": _UNCLEAR}
    marks = [Rectangle((0, 0), 1, 1, color=colour, label=name) for name, colour in kinds.items()]
    marks.append(Line2D([], [], ls="", marker="x", color="0.5", label="a run diverged"))
    figure.legend(handles=marks, frameon=False, loc="outside lower center", ncols=4)
    return figure


def _cell(ax: Axes, x: float, y: float, of: Lead | None) -> None:
    """A cell of `scoreboard`."""
    if of is None or not of.judged:
        return
    look: dict[str, Any] = {"ha": "center", "va": "center"}
    if of.diverged or of.mean is None:
        ax.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=_UNCLEAR, lw=0))
        ax.plot(x, y, "x", color="0.5", ms=5)
        return
    colour = _AHEAD if of.mean > 0 else _BEHIND
    if of.holds_zero:
        colour = _UNCLEAR
    ax.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=colour, lw=0))
    digits = 0 if abs(of.mean) >= 1 else 1
    text = f"{of.mean:+z.{digits}f}".replace("-", "−")
    ax.text(x, y, text, size="small", color="0.55" if of.holds_zero else "black", **look)


@plots.described(
    "A line for each method between two comparisons: flat and near 0 at β = 5, crossing and with long intervals at β = 0.1"
)
def repeated() -> Figure:
    """Points ahead of FedAvg in the first comparison and in the second, joined by a line for each method.

    Thin bars are 95 % intervals. Methods whose clients keep networks of their own are left out: they
    are far below.
    """
    names = [name for name in tables.methods()[1:] if name not in OWN]
    figure, axes = plt.subplots(1, 2, figsize=(12.5, 4.2), sharey=True)
    for ax, (title, table) in zip(axes, _REPEATED.items(), strict=True):
        for place, name in enumerate(names):
            of_both = [tables.lead_in(of, name) for of in (tables.first(table), table)]
            at = np.array([0, 1]) + _BESIDE_ANOTHER * (place - len(names) / 2)
            means = [of.mean for of in of_both]
            half_widths = [of.half_width for of in of_both]
            look: dict[str, Any] = {"color": plots.colour(name), "marker": "o"}
            ax.plot(at, means, lw=2.5, label=name, **look)
            ax.errorbar(at, means, half_widths, ls="", lw=1, alpha=0.45, color=look["color"])
        ax.axhline(0, color="0.4", lw=1, zorder=0)
        rates = [tables.rate(of) for of in (tables.first(table), table)]
        names_of_both = [f"first comparison\n(rate {rates[0]})", f"second comparison\n(rate {rates[1]})"]
        ax.set_xticks([0, 1], names_of_both)
        ax.set(title=title, xlim=(-0.2, 1.2))
        ax.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel("points ahead of FedAvg, 15 rounds")
    plots.label_ends(axes[1])
    return figure


@plots.described(
    "Mistakes over 60 rounds: FedProto and Local make fewest at first, FedAvg (adjusted) at the end; the lead falls below 0"
)
def gap() -> Figure:
    """Mistakes on images like a client's own over 60 rounds, and by how much FedProto is ahead.

    At β = 0.1, each method at the rate that counts (tables ``side-long-...``).
    """
    by_row = results.accuracies(_OWN_IMAGES)
    by_row["FedProto"] = by_row["FedProto, λ = 0.1"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4))
    for row, style in (("Local", "-"), (ADJUSTED, "--"), ("FedProto", "-"), (BASELINE, "-")):
        wrong = 100 - by_row[row].mean()
        colour = plots.colour(row)
        width = 4 if row == "Local" else 2  # FedProto lies on it at first, and both are to be seen
        left.semilogy(wrong.index, wrong, style, color=colour, lw=width)
        plots.label(left, (wrong.index[-1], wrong.iloc[-1]), row, color=colour, va="center")
    left.set(xlabel="communication round", ylabel="wrong on images like its own (%)")
    ticks = (1, 2, 5, 10, 20, 50, 100)
    left.set_yticks(ticks, [f"{tick}" for tick in ticks])
    left.minorticks_off()

    for row, style, place in ((BASELINE, "-", (21, 17)), (ADJUSTED, "--", (24, -8.5))):
        apart = (by_row["FedProto"] - by_row[row]).dropna()
        half_widths = [interval(apart[t].tolist())[1] for t in apart]
        mean = apart.mean()
        colour = plots.colour(row)
        right.plot(mean.index, mean, style, color=colour, lw=2)
        right.fill_between(mean.index, mean - half_widths, mean + half_widths, color=colour, alpha=0.15)
        right.text(*place, f"ahead of {row}", color=colour)
    right.axhline(0, color="0.4", lw=1)
    right.set(xlabel="communication round", ylabel="FedProto is ahead by (points)", ylim=(-10, 30))
    for ax in (left, right):
        ax.axvline(_SHORT, color="0.4", lw=1, ls=":")
        ax.set_xlim(0.5, 60.5)
        ax.grid(alpha=0.3)
    return figure


def ten_shares(
    logits: Sequence[float],
    log_frequencies: Sequence[float],
    truth: int,
    s: float = 1.0,
    ax: Axes | None = None,
) -> Axes:
    """The probabilities of the logits [K] of one image plus ``s`` times a client's log frequencies [K].

    The true class is named; the largest bar, which is the answer, is filled.
    """
    ax = ax or plt.figure(figsize=(6, 3.2), layout="constrained").subplots()
    shifted = np.asarray(logits) + s * np.asarray(log_frequencies)
    weights = np.exp(shifted - shifted.max())
    probabilities = weights / weights.sum()
    answer = int(probabilities.argmax())
    colours = ["0.8"] * len(shifted)
    colours[answer] = plots.colour("FedPrior")
    ax.bar(range(len(shifted)), probabilities, color=colours)
    ax.text(truth, probabilities[truth] + 0.03, "true", ha="center", size="small")
    ax.set_xticks(range(len(shifted)))
    ax.set_ylim(0, 1)
    verdict = "right" if answer == truth else "wrong"
    ax.set_title(f"s = {s:g}: it says {answer}, {verdict}", size="medium")
    return ax


@plots.described(
    "An image, the client's classes, and the ten probabilities with s = 0, 1 and 4: with 1 the true class is first"
)
def telling(image: np.ndarray, counts: Sequence[int], logits: Sequence[float], truth: int) -> Figure:
    """An image, the classes of the client that asks, and frames of `ten_shares` from s = 0 on.

    ``image`` [H, W]; ``counts`` [K], images of each class that the client has; ``logits`` [K].
    """
    log_frequencies = log_shares(counts)
    figure, axes = plt.subplots(1, 5, figsize=(13, 2.9), width_ratios=(0.7, 1, 1.1, 1.1, 1.1))
    axes[0].imshow(image, cmap="gray_r")
    axes[0].set_title(f"a {truth}", size="medium")
    axes[0].axis("off")
    axes[1].bar(range(len(counts)), np.divide(counts, np.sum(counts)), color="0.6")
    axes[1].set_title("the client's own images", size="medium")
    axes[1].set_xticks(range(len(counts)))
    axes[1].set(ylim=(0, 1), ylabel="share of the class")
    for ax, s in zip(axes[2:], (0, 1, 4), strict=True):
        ten_shares(logits, log_frequencies, truth, s, ax)
    axes[2].set_ylabel("the answer's probability")
    figure.supxlabel("class", size="medium")
    return figure


def log_shares(counts: Sequence[int]) -> np.ndarray:
    """The logarithms [K] of a client's class frequencies, with one image added to each class."""
    more = np.asarray(counts) + 1
    return np.log(more / more.sum())


def shares_to_move(logits: Sequence[float], counts: Sequence[int], truth: int) -> Callable[[float], None]:
    """A function that shows the answer to one image for a strength s: what a slider calls."""

    def draw(s: float = 1.0) -> None:
        ax = ten_shares(logits, log_shares(counts), truth, s)
        plots.show(ax, f"Ten probabilities of one image with s = {s:g}")

    return draw


@plots.described("Four splits as circles: few large ones at β = 0.1, rows of one size under quantity shift; styles")
def splits(parts: Mapping[str, Parts], labels: np.ndarray, domains: Dataset) -> Figure:
    """Images per client and class of four splits, as areas, and an image of each in the domains."""
    figure, axes = plt.subplots(1, 5, figsize=(17, 3.4), width_ratios=(1, 1, 1, 1, 1.5))
    for ax, (title, of_split) in zip(axes, parts.items(), strict=False):
        plots.split(of_split, labels, 10, ax, title, largest=150)
    fedplcc.domains(domains, ax=axes[4], title="domain shift: a client per row")
    return figure


@plots.described(
    "Held-out accuracy over the tuned number, below the best trial, of four methods on two splits, with each seed"
)
def trials() -> Figure:
    """The trials of four methods on held-out images: what the right value gains, and a wrong one costs.

    A line goes through means; the seeds of a trial are faint dots, of the first split left of the
    mean, of the second right of it.
    """
    of_splits = tables.trials()
    figure, axes = plt.subplots(1, len(_TRIED), figsize=(14, 3.4), sharey=True)
    for ax, name in zip(axes, _TRIED, strict=True):
        for (title, found), style in zip(of_splits.items(), ("-", ":"), strict=True):
            if name in found:
                beside = 1 / _BESIDE if style == "-" else _BESIDE
                _seeds_of(ax, found[name], tables.held_out(title, name), beside)
                _trials_of(ax, found[name], style, title)
        _value_ticks(ax, [found[name] for found in of_splits.values() if name in found])
        ax.set_title(name)
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("points relative to\nits best trial")
    axes[0].set_ylim(-_DEEPEST, _HIGHEST)
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


def _seeds_of(ax: Axes, tuning: Mapping[str, Any], of_seeds: Mapping[float, Sequence[float]], beside: float) -> None:
    """A faint dot for each seed of each trial, this factor beside the tuned value."""
    if tuning["chosen"] is None:
        return
    for value, accuracies in of_seeds.items():
        below = [accuracy - tuning["accuracy"] for accuracy in accuracies]
        places = [value * beside] * len(below)
        ax.plot(places, below, "o", ms=4, mew=0, color=plots.colour(tuning["method"]), alpha=0.5)


def _value_ticks(ax: Axes, of_method: Sequence[Mapping[str, Any]]) -> None:
    """A tick for each value that was tried."""
    values: set[float] = set()
    for tuning in of_method:
        ax.set_xlabel(tables.name_of_tuned(tuning))
        values.update(tuning["values"])
    ticks = sorted(values)
    ax.set_xticks(ticks, [f"{value:g}" for value in ticks], size="small")
    ax.minorticks_off()


@plots.described("Ten dots per method at two rates: FedAvg's copy scatters over a point or two at 0.04, over many at 0.06")
def twins() -> Figure:
    """Points ahead of FedAvg on the domains, seed by seed, at two rates: first those of a copy.

    Shown are the methods that have FedAvg's rate in both comparisons.
    """
    of_tables = (tables.first("side-domains"), "side-domains")
    copy, *_ = _COPIES
    left_out = {BASELINE, copy, *OWN}
    others = []
    for name in tables.methods():
        at_its_rate = all(tables.rate(table, name) == tables.rate(table) for table in of_tables)
        if at_its_rate and name not in left_out:
            others.append(name)
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.2), sharex=True, sharey=True)
    for ax, table in zip(axes, of_tables, strict=True):
        of_copy = tables.lead_in(table, *_COPIES).values
        if of_copy:
            ax.axvspan(min(of_copy), max(of_copy), color="0.92", zorder=0)
        ax.axvline(0, color=plots.colour(BASELINE), lw=1)
        for y, name in enumerate([copy, *others]):
            values = tables.lead_in(table, name).values
            ax.plot(values, [y] * len(values), "o", color=plots.colour(name), alpha=0.6)
            if values:
                ax.plot(np.mean(values), y, "|", color="black", ms=20, mew=2)
        ax.set_title(f"learning rate {tables.rate(table)}", size="medium")
        ax.grid(axis="x", alpha=0.3)
    names = [f"{copy}, a copy of FedAvg", *others]
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    figure.supxlabel("points ahead of FedAvg with the same seed; the bar is the mean of ten", size="medium")
    return figure


@plots.described(
    "Accuracy over megabytes sent: Local and FedProto far left, low on all images and high on their own; FedAvg far right"
)
def bytes_sent() -> Figure:
    """Accuracy over megabytes sent, mean over seeds: on all test images, and on a client's own.

    On the right 60 rounds are drawn, each of which sends as much as the last of the 15 on the left.
    """
    sent = results.load("side_by_side")["sent"][_SENT]
    figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4), sharey=True)
    for row, curve in sent.items():
        _sent(left, row, curve["megabytes"], curve["accuracy"])
    left.annotate("all others:\na network each way", (6, 64), color="0.35", ha="right")
    left.set(title="all test images, 15 rounds", ylabel="right (%)")

    of_row = {ADJUSTED: BASELINE, "Local": "Local", "FedProto, λ = 0.1": "FedProto", BASELINE: BASELINE}
    own = results.accuracies(_OWN_IMAGES)
    for row, method in of_row.items():
        mean = own[row].mean()
        megabytes = _go_on(sent[method]["megabytes"], len(mean))
        colour = plots.colour(row)
        right.plot(megabytes, mean, "--" if row == ADJUSTED else "-", color=colour, lw=2.5)
    for text, place in {"Local": (2e-3, 86), "FedProto": (0.2, 81), ADJUSTED: (1.3, 60), BASELINE: (9, 22)}.items():
        side = "right" if text == ADJUSTED else "left"
        right.text(*place, text, color=plots.colour(text), ha=side)
    right.set(title="images like a client's own, 60 rounds")
    for ax in (left, right):
        ax.set(xlabel="megabytes sent so far, both ways", xscale="log", xlim=(5e-5, 300), ylim=(0, 101))
        ax.grid(alpha=0.3)
        ax.minorticks_off()
    return figure


def _go_on(megabytes: Sequence[float], rounds: int) -> np.ndarray:
    """What is sent in more rounds, each of which sends as much as the last one of those given."""
    more = np.arange(1, rounds - len(megabytes) + 1)
    return np.concatenate([megabytes, megabytes[-1] + more * (megabytes[-1] - megabytes[-2])])


def _sent(ax: Axes, row: str, sent: Sequence[float], accuracy: Sequence[float]) -> None:
    """A curve in the method's colour, named at its end; grey for those that send a network each way."""
    if row not in _ALONE:
        ax.plot(sent, accuracy, color="0.6", lw=1)
        return
    colour = plots.colour(row)
    ax.plot(sent, accuracy, color=colour, lw=2.5, zorder=3)
    end = (sent[-1], accuracy[-1])
    plots.label(ax, end, row, _ALONE[row], color=colour, ha="right")
