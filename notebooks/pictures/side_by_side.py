"""Pictures of notebook 06, of recorded runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from fednb.papers.pictures import side_by_side_tables as tables
from fednb.papers.pictures.side_by_side_tables import ADJUSTED, BASELINE, OWN
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from fednb import plots, results
from fednb.leads import Lead

_DEEPEST = 16.0  # points below a method's best trial that are drawn
_HIGHEST = 7.0  # points above it that are drawn: single seeds get there
_BESIDE = 1.05  # seeds of a trial are drawn this factor left or right of its mean
_TRIED = (BASELINE, "FedProto+FedAvg", "FedPrior")
_COPIES = ("FedPrior", BASELINE)  # one method where all clients have all classes equally often
_AHEAD, _BEHIND, _UNCLEAR = "#8ecae6", "#f6bd60", "0.93"  # of FedAvg, and neither
_DIVERGED = {"x": "a run of it diverged", "o": "only a run of FedAvg diverged"}
_SHORT = 15  # rounds, after which the other comparisons end
_SENT = "side-digits-beta-0.1"  # whose messages the picture of bytes counts
_OWN_IMAGES = "side-long-beta-0.1"  # accuracy on images like a client's own, over 60 rounds
_OWN_ROWS = {  # its rows that are drawn, and whose messages they send
    "Local": "Local",
    "FedProto, λ = 0.1": "FedProto",
    ADJUSTED: BASELINE,
    BASELINE: BASELINE,
}
_NAMES_BY_BYTES = {  # where their names stand over megabytes
    "Local": (6e-5, 60),
    "FedProto, λ = 0.1": (9e-3, 60),
    ADJUSTED: (0.25, 1.4),
    BASELINE: (12, 62),
}


@plots.described(
    "Points ahead of FedAvg on the digits, asked twice: who is ahead at β = 0.1 in the first comparison is not in the second"
)
def asked_twice() -> Figure:
    """Who is ahead of FedAvg on the digits, by β, in the first comparison and in the second."""
    figure, ax = plt.subplots(figsize=(9, 4.6))
    settings = [setting._replace(title=setting.title.split("\n")[1]) for setting in tables.SETTINGS[:6]]
    groups = [("β = 0.1", 0, 1), ("β = 0.5", 2, 3), ("β = 5", 4, 5)]
    _board(ax, tables.methods()[1:], settings, groups)
    return figure


@plots.described("Points ahead of FedAvg by method and setting: most cells are grey, and no method is ahead in all of them")
def scoreboard() -> Figure:
    """Who is ahead of FedAvg in which setting: a row for each method, a column for each setting."""
    figure, ax = plt.subplots(figsize=(12.5, 5.3))
    _board(ax, [*tables.methods()[1:], ADJUSTED], tables.SETTINGS, tables.GROUPS, lines=2)
    return figure


def _board(
    ax: Axes,
    names: Sequence[str],
    settings: Sequence[tables.Setting],
    groups: Sequence[tuple[str, int, int]],
    lines: int = 1,
) -> None:
    """Draw a row for each method and a column for each setting, whose titles have so many lines.

    Groups are named above: each has a title, and the numbers of its first and its last column. A
    cell has the mean difference in points, and a colour where its 95 % interval leaves out 0. It has
    a cross if a run of its method diverged, a circle if only one of FedAvg did, and is empty if there
    are fewer than three seeds.
    """
    x = 0.0
    places = []
    used = []  # the marks of cells
    for setting in settings:
        x += setting.gap
        for y, name in enumerate(names):
            mark = "x" if tables.diverged(setting, name) else "o"
            used.append(_cell(ax, x, y, tables.lead_if_run(setting, name), mark))
        ax.text(x, -0.65, setting.title, ha="center", va="bottom", size="small")
        places.append(x)
        x += 1
    above = -0.7 - 0.45 * lines
    for title, first, last in groups:
        ax.text((places[first] + places[last]) / 2, above - 0.15, title, ha="center", size="medium", weight="bold")
        ax.plot([places[first] - 0.45, places[last] + 0.45], [above, above], color="0.4", lw=1)
    ax.set_yticks(range(len(names)), names, size="large")
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.set(xlim=(-0.6, x - 0.4), ylim=(len(names) - 0.4, above - 0.6))
    ax.spines[:].set_visible(False)
    kinds = {"ahead of FedAvg": _AHEAD, "behind": _BEHIND, "cannot be told apart": _UNCLEAR}
    marks = [Rectangle((0, 0), 1, 1, color=colour, label=name) for name, colour in kinds.items()]
    for mark, name in _DIVERGED.items():
        if mark in used:
            marks.append(Line2D([], [], ls="", marker=mark, mfc="none", color="0.5", label=name))
    ax.figure.legend(handles=marks, frameon=False, loc="outside lower center", ncols=len(marks))


def _cell(ax: Axes, x: float, y: float, of: Lead | None, mark: str) -> str | None:
    """Draw a cell of `_board`; return its mark, if a run diverged."""
    if of is None or not of.judged:
        return None
    look: dict[str, Any] = {"ha": "center", "va": "center"}
    if of.diverged or of.mean is None:
        ax.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=_UNCLEAR, lw=0))
        ax.plot(x, y, mark, color="0.5", mfc="none", ms=5)
        return mark
    colour = _AHEAD if of.mean > 0 else _BEHIND
    if of.holds_zero:
        colour = _UNCLEAR
    ax.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=colour, lw=0))
    digits = 0 if abs(of.mean) >= 1 else 1
    text = f"{of.mean:+z.{digits}f}".replace("-", "−")
    ax.text(x, y, text, size="small", color="0.55" if of.holds_zero else "black", **look)
    return None


@plots.described(
    "Accuracy by round of a run: clients on images like their own lie apart, and their mean near all test images"
)
def by_client(metrics: Mapping[str, Any]) -> Figure:
    """Accuracy after each round of a run: of each client on images like its own, their mean, and all test images.

    Where clients are tested on styles of images, there are no images like a client's own.
    """
    figure, ax = plt.subplots(figsize=(8.5, 3.6))
    rounds = metrics["round"]
    if "clients/own mix" in metrics:
        of_clients = np.array(metrics["clients/own mix"], dtype=float)
        ax.plot(rounds, of_clients, color="0.75", lw=1)
        for name, client in (("best", of_clients[-1].argmax()), ("worst", of_clients[-1].argmin())):
            last = of_clients[-1, client]
            plots.label(ax, (rounds[-1], last), f"{name}: client {client}, {last:.0f} %", color="0.5", va="center")
        ax.plot([], [], color="0.75", lw=1, label="a client, on images like its own")
        mean = metrics["accuracy/own mix"]
        ax.plot(rounds, mean, color=plots.colour("FedPrior"), lw=2.5, label="mean of the clients")
    ax.plot(rounds, metrics["accuracy"], ":", color=plots.colour("MOON"), lw=2.5, label="all test images")
    ax.set(xlabel="communication round", ylabel="right (%)", ylim=(0, 101))
    ax.legend(frameon=False, loc="lower right")
    ax.grid(alpha=0.3)
    return figure


@plots.described(
    "Mistakes over 60 rounds, and over megabytes: FedProto and Local make fewest at first, FedAvg (adjusted) at the end"
)
def gap() -> Figure:
    """Mistakes on images like a client's own at β = 0.1: over 60 rounds, and over megabytes sent.

    Each method has the rate that counts (tables ``side-long-...``). Messages were counted in 15
    rounds; each later round is taken to send as much as the last of them.
    """
    by_row = results.accuracies(_OWN_IMAGES)
    sent = results.load("side_by_side")["sent"][_SENT]
    figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4), sharey=True)
    for row, method in _OWN_ROWS.items():
        wrong = 100 - by_row[row].mean()
        megabytes = _go_on(sent[method]["megabytes"], len(wrong))
        look: dict[str, Any] = {
            "color": plots.colour(row),
            "ls": "--" if row == ADJUSTED else "-",
            "lw": 4 if row == "Local" else 2,  # FedProto lies on it at first, and both are to be seen
        }
        left.plot(wrong.index, wrong, **look)
        right.plot(megabytes, wrong, **look)
        name = row.removesuffix(", λ = 0.1")
        plots.label(left, (wrong.index[-1], wrong.iloc[-1]), name, color=look["color"], va="center")
        right.text(*_NAMES_BY_BYTES[row], name, color=look["color"])
    ticks = (1, 2, 5, 10, 20, 50, 100)
    left.set(xlabel="communication round", ylabel="wrong on images like its own (%)", yscale="log", xlim=(0.5, 60.5))
    left.set_yticks(ticks, [f"{tick}" for tick in ticks])
    left.axvline(_SHORT, color="0.4", lw=1, ls=":")
    right.set(xlabel="megabytes sent so far, both ways", xscale="log", xlim=(5e-5, 300))
    for ax in (left, right):
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    return figure


def _go_on(megabytes: Sequence[float], rounds: int) -> np.ndarray:
    """What is sent in more rounds, each of which sends as much as the last one of those given."""
    more = np.arange(1, rounds - len(megabytes) + 1)
    return np.concatenate([megabytes, megabytes[-1] + more * (megabytes[-1] - megabytes[-2])])


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


@plots.described(
    "Held-out accuracy over the tuned number, below the best trial, of three methods on two splits, with each seed"
)
def trials() -> Figure:
    """The trials of three methods on held-out images: what the right value gains, and a wrong one costs.

    A line goes through means; the seeds of a trial are faint dots, of the first split left of the
    mean, of the second right of it.
    """
    of_splits = tables.trials()
    figure, axes = plt.subplots(1, len(_TRIED), figsize=(12.5, 3.4), sharey=True)
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
