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
_ELSEWHERE = (-27, 24)  # the same, where the largest intervals are
_DEEPEST = 16.0  # points below a method's best trial that are drawn
_HIGHEST = 7.0  # points above it that are drawn: single seeds get there
_BESIDE = 1.05  # seeds of a trial are drawn this factor left or right of its mean
_TRIED = (BASELINE, "FedProx", "FedProto+FedAvg", "FedPrior")
_COPIES = ("FedPrior", BASELINE)  # one method where all clients have all classes equally often
_NEAR_ZERO = (-9, 9)  # the same, where methods are close together
_SHORT = 15  # rounds, after which the other comparisons end
_SENT = "side-digits-beta-0.1"  # whose messages the picture of bytes counts
_OWN_IMAGES = "side-long-beta-0.1"  # accuracy on images like a client's own, over 60 rounds
_ALONE = {  # whose bytes are not those of a network each way, and where their names stand
    "Local": (0, 8),
    "FedProto": (0, 8),
    "SCAFFOLD": (50, 8),
}


def question() -> Figure:
    """How far each method is ahead of FedAvg where clients are alike, and where they differ most.

    Grey is the first comparison, coloured the second. What lies left of a panel is written at its
    edge.
    """
    names = tables.methods()[1:]
    of_panels = {
        "clients resemble each other (β = 5)": "side-digits-beta-5",
        "clients differ most (β = 0.1)": "side-digits-beta-0.1",
    }
    figure, axes = plt.subplots(1, len(of_panels), figsize=(11, 4.6), sharey=True)
    for ax, (title, table) in zip(axes, of_panels.items(), strict=True):
        for y, name in enumerate(names):
            _difference(ax, y - 0.17, tables.lead_in(tables.first(table), name), "0.6", _SHOWN)
            _difference(ax, y + 0.17, tables.lead_in(table, name), plots.colour(name), _SHOWN)
        ax.set_title(title)
        ax.axvline(0, color=plots.colour(BASELINE), lw=1, zorder=0)
        ax.set_xlim(*_SHOWN)
        ax.grid(axis="x", alpha=0.3)
        ax.set_xlabel("points ahead of FedAvg after 15 rounds")
    axes[0].set_yticks(range(len(names)), names, size="large")
    axes[0].invert_yaxis()
    place: dict[str, Any] = {"transform": axes[0].transAxes, "size": "small", "ha": "left"}
    axes[0].text(0.02, 0.95, f"grey: first, rate {tables.rate(tables.first(table))}", **place)
    axes[0].text(0.02, 0.89, f"coloured: second, rate {tables.rate(table)}", **place)
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


def splits(parts: Mapping[str, Parts], labels: np.ndarray, domains: Dataset) -> Figure:
    """Images per client and class of four splits, as areas, and an image of each in the domains."""
    figure, axes = plt.subplots(1, 5, figsize=(17, 3.4), width_ratios=(1, 1, 1, 1, 1.5))
    for ax, (title, of_split) in zip(axes, parts.items(), strict=False):
        plots.split(of_split, labels, 10, ax, title, largest=150)
    fedplcc.domains(domains, ax=axes[4], title="domain shift: a client per row")
    return figure


def elsewhere() -> Figure:
    """How far methods are ahead of FedAvg on the papers' data, untuned: a panel for each data set.

    Of one or two runs the values, otherwise the mean with its interval.
    """
    names = tables.methods()[1:]
    of_panels = tables.ELSEWHERE
    figure, axes = plt.subplots(1, len(of_panels), figsize=(13, 4.4), sharey=True)
    for ax, (title, of_panel) in zip(axes, of_panels.items(), strict=True):
        shown = _NEAR_ZERO if title.startswith("CIFAR") else _ELSEWHERE
        for y, name in enumerate(names):
            of = tables.lead_if_run(of_panel, name)
            if of is not None:
                _difference(ax, y, of, plots.colour(name), shown)
        ax.set_title(title, size="medium")
        ax.axvline(0, color=plots.colour(BASELINE), lw=1, zorder=0)
        ax.set_xlim(*shown)
        ax.grid(axis="x", alpha=0.3)
    figure.supxlabel("points ahead of FedAvg", size="medium")
    axes[0].set_yticks(range(len(names)), names, size="large")
    axes[0].invert_yaxis()
    return figure


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
    axes[0].set_ylabel("points below\nits best trial")
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
