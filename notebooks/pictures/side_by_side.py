"""Pictures of notebook 06, of recorded runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from fednb.papers.pictures import side_by_side_tables as tables
from fednb.papers.pictures.side_by_side_tables import ADJUSTED, BASELINE, OWN
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from fednb import plots, results
from fednb.leads import Lead, quantile

_COPIES = ("FedPrior", BASELINE)  # one method where all clients have all classes equally often
_AHEAD, _BEHIND, _UNCLEAR = "#8ecae6", "#f6bd60", "0.93"  # of FedAvg, and neither
_FAR_WIDER = 3  # than its column's typical interval
_NAMING = "#0072b2"  # the most frequent class of a client, always
_EARLY = 5  # a round at which the lead of personal networks is given
_SHORT = 15  # rounds, after which the other comparisons end
_OWN_IMAGES = "side-long-beta-0.1"  # accuracy on images like a client's own, over 60 rounds
_OWN_ROWS = {  # its rows that are drawn, and what they are called in the tables of `_ENDS`
    "Local": "Local",
    "FedProto, λ = 0.1": "FedProto",
    BASELINE: BASELINE,
    ADJUSTED: ADJUSTED,
}
_ENDS = {  # splits whose last round is drawn beside it
    "β = 0.1": _OWN_IMAGES,
    "β = 0.5": "side-end-beta-0.5",
    "β = 5": "side-end-beta-5",
    "quantity\nshift": "side-end-quantity",
}
_RATE = "rate 0.04"  # the one that counts at β = 0.1


@plots.described("Points ahead of FedAvg by method and setting: most cells are grey, and no method is ahead in all of them")
def scoreboard() -> Figure:
    """Who is ahead of FedAvg in which setting: a row for each method, a column for each setting.

    A cell has the mean difference in points, and a colour where its 95 % interval leaves out 0. It
    has a cross if a run diverged or ended at chance, and is empty if there are fewer than three seeds.
    Below are the median half-width of a column's intervals, and its seeds; ≈ marks a grey cell with a far wider one.
    """
    figure, ax = plt.subplots(figsize=(11.5, 6.1))
    names = tables.methods()[1:]
    x = 0.0
    places = []
    for setting in tables.SETTINGS:
        x += setting.gap
        leads = tables.numbers(setting).values()
        typical = np.median([of.half_width for of in leads])
        for y, name in enumerate(names):
            _cell(ax, x, y, tables.lead_if_run(setting, name), typical)
        below = (f"± {typical:.1f}", f"{max(of.seeds for of in leads)}")
        for y, text in enumerate(below, len(names)):
            ax.text(x, y, text, size="small", ha="center", va="center")
        ax.text(x, -0.65, setting.title, ha="center", va="bottom", size="small")
        ax.text(x, len(names) + 1.45, setting.note, ha="center", va="top", size="small", color="0.4")
        places.append(x)
        x += 1
    for title, first, last in tables.GROUPS:
        ax.text((places[first] + places[last]) / 2, -1.75, title, ha="center", size="medium", weight="bold")
        ax.plot([places[first] - 0.45, places[last] + 0.45], [-1.6, -1.6], color="0.4", lw=1)
    ax.axhline(len(names) - 0.5, color="0.4", lw=1)
    rows = [*names, "typical interval", "seeds"]
    ax.set_yticks(range(len(rows)), rows, size="large")
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.set(xlim=(-0.6, x - 0.4), ylim=(len(rows) + 0.4, -2.2))
    ax.spines[:].set_visible(False)
    kinds = {"ahead of FedAvg": _AHEAD, "behind": _BEHIND, "cannot be told apart": _UNCLEAR}
    marks: list[Any] = [Rectangle((0, 0), 1, 1, color=colour, label=name) for name, colour in kinds.items()]
    marks.append(Line2D([], [], ls="", marker="x", color="0.5", label="a run diverged or ended at chance"))
    marks.append(Rectangle((0, 0), 1, 1, fc="white", ec="0.7", label="not run"))
    figure.legend(handles=marks, frameon=False, loc="outside lower center", ncols=len(marks))
    return figure


def _cell(ax: Axes, x: float, y: float, of: Lead | None, typical: float) -> None:
    """Draw a cell of `scoreboard`; ``typical`` is the median half-width of its column's intervals."""
    if of is None or not of.judged:
        return
    diverged = of.diverged or of.mean is None
    clear = not diverged and not of.holds_zero
    colour = _UNCLEAR
    if clear:
        colour = _AHEAD if of.mean > 0 else _BEHIND
    ax.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=colour, lw=0))
    if diverged:
        ax.plot(x, y, "x", color="0.5", ms=5)
        return
    text = f"{of.mean:+z.1f}".replace("-", "−")
    if not clear and of.half_width > _FAR_WIDER * typical:
        text = f"≈ {text}"
    ax.text(x, y, text, size="small", color="black" if clear else "0.3", ha="center", va="center")


@plots.described(
    "Two methods: how many images like its own each client gets right by round, the mean, and the most frequent class alone"
)
def by_client(of_methods: Mapping[str, Mapping[str, Any]], most_frequent: float) -> Figure:
    """How many images like its own each client gets right, round by round: the metrics of a run in each panel.

    ``most_frequent`` is the mean (%) if each client always names its most frequent class.
    """
    figure, axes = plt.subplots(1, len(of_methods), figsize=(11, 3.4), sharey=True)
    for ax, (name, metrics) in zip(axes, of_methods.items(), strict=True):
        rounds = metrics["round"]
        if "clients/own mix" in metrics:  # not where clients are tested on styles of images
            ax.plot(rounds, metrics["clients/own mix"], color="0.75", lw=1)
            ax.plot([], [], color="0.75", lw=1, label="a client, on images like its own")
            ax.plot(rounds, metrics["accuracy/own mix"], color="black", lw=2.5, label="mean of the clients")
            naming = {"color": _NAMING, "ls": ":", "lw": 2, "label": "mean, always naming the most frequent class"}
            ax.axhline(most_frequent, **naming)
        else:
            ax.plot(rounds, metrics["accuracy"], color="black", lw=2.5, label="all test images")
        title = ADJUSTED if name == "OwnPrior" else name  # as text and tables call it
        ax.set(title=title, xlabel="communication round", ylim=(0, 101))
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("right (%)")
    axes[-1].legend(frameon=False, loc="lower right")
    return figure


@plots.described(
    "Ten clients: their own class frequencies lift most above their most frequent class, near fine-tuning; another's do not"
)
def ten_clients(of_answers: Mapping[str, Sequence[float]]) -> Figure:
    """How many images like its own (%) each client gets right, and the mean, by five kinds of answers.

    In this order: plain, the most frequent class, fine-tuned, with its own frequencies, with another's.
    """
    figure, ax = plt.subplots(figsize=(10, 3.8))
    looks = (
        {"marker": "o", "mfc": "white"},
        {"marker": "_", "color": _NAMING, "ms": 20, "mew": 3},
        {"marker": "D", "color": "#009e73", "ms": 6},
        {"marker": "o"},
        {"marker": "x", "color": "#d55e00", "mew": 2},
    )
    plain, _, _, own, _ = of_answers.values()
    ax.vlines(range(len(plain)), plain, own, color="0.8", lw=3, zorder=0)
    for (name, values), look in zip(of_answers.items(), looks, strict=True):
        drawn = {"ls": "", "color": "black", "ms": 8, "label": f"{name}: {np.mean(values):.0f} %"} | look
        places = np.arange(len(values)) + (0.18 if look["marker"] == "D" else 0)  # beside the others
        ax.plot(places, values, **drawn)
    ax.set(xlabel="client", ylabel="right on images\nlike its own (%)", ylim=(-3, 103))
    ax.set_xticks(range(len(plain)))
    ax.grid(axis="y", alpha=0.3)
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), title="each client, and the mean", alignment="left")
    return figure


@plots.described(
    "Mistakes by round, and at the end on four splits: personal networks make fewest at first, FedAvg (adjusted) at the end"
)
def how_long() -> Figure:
    """Mistakes on images like a client's own: at β = 0.1 over 60 rounds, and in the end on four splits.

    Bands and bars are 95 % intervals for the mean over seeds. Each method has the rate that counts
    (tables ``side-long-...`` and ``side-end-...``).
    """
    by_row = results.accuracies(_OWN_IMAGES)
    figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4.2), sharey=True, width_ratios=(1.25, 1))
    for k, (row, method) in enumerate(_OWN_ROWS.items()):
        wrong, half = _mistakes(by_row[row])
        look: dict[str, Any] = {"color": plots.colour(row), "lw": 4 if row == "Local" else 2}  # both are to be seen
        left.plot(wrong.index, wrong, ls="--" if row == ADJUSTED else "-", **look)
        left.fill_between(wrong.index, (wrong - half).clip(lower=0.1), wrong + half, color=look["color"], alpha=0.15, lw=0)
        plots.label(left, (wrong.index[-1], wrong.iloc[-1]), method, color=look["color"], va="center")
        look |= {"fmt": "o", "ms": 9, "lw": 2, "mfc": "white" if row == ADJUSTED else look["color"], "label": method}
        places = np.arange(len(_ENDS)) + 0.17 * (k - 1.5)
        ends = [_end(table, row if table == _OWN_IMAGES else method) for table in _ENDS.values()]
        right.errorbar(places, *np.transpose(ends), **look)
    personal, adjusted = (_mistakes(by_row[row])[0][_EARLY] for row in (_personal_row(), ADJUSTED))
    left.plot([_EARLY, _EARLY], [adjusted, personal], "_-", color="black", lw=1.5, ms=9, mew=1.5, zorder=4)
    words = f"{adjusted - personal:.1f} points\nafter round {_EARLY}"
    thin = {"arrowstyle": "-", "color": "0.3", "lw": 0.8}
    left.annotate(words, (_EARLY, personal), (8, 2), ha="center", va="center", arrowprops=thin)
    ticks = (1, 2, 5, 10, 20, 50, 100)
    left.set(xlabel="communication round", yscale="log", xlim=(0.5, 60.5))
    left.set_ylabel("wrong on images like its own (%),\non a logarithmic axis")
    left.set_yticks(ticks, [f"{tick}" for tick in ticks])
    left.axvline(_SHORT, color="0.4", lw=1, ls=":")
    left.set_title("β = 0.1, round by round", size="medium")
    right.set_title("after 60 rounds", size="medium")
    right.set_xticks(range(len(_ENDS)), _ENDS)
    right.legend(frameon=False, loc="upper left")
    for ax in (left, right):
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    return figure


def _personal_row() -> str:
    """FedProto's row in the table of 60 rounds."""
    return next(row for row, method in _OWN_ROWS.items() if method == "FedProto")


def _mistakes(right: Any) -> tuple[Any, Any]:
    """The mean over seeds (columns, or all) of what is wrong (%), and the half-width of its interval."""
    wrong = 100 - right
    return wrong.mean(), quantile(len(wrong)) * wrong.std() / np.sqrt(len(wrong))


def _end(table: str, row: str) -> tuple[float, float]:
    """The mistakes of a table's row after its last round, as `_mistakes`."""
    cell = results.cell(table, row, _RATE if table == _OWN_IMAGES else "images like its own")
    mean, half = _mistakes(pd.Series(list(cell.by_pair.values())))
    return float(mean), float(half)


def ten_shares(
    logits: Sequence[float],
    log_frequencies: Sequence[float],
    truth: int,
    s: float = 1.0,
    ax: Axes | None = None,
    *,
    outlines: bool = True,
) -> Axes:
    """The probabilities of the logits [K] of one image plus ``s`` times a client's log frequencies [K].

    The true class is named; the largest bar, which is the answer, is filled. ``outlines`` are the frequencies.
    """
    ax = ax or plt.figure(figsize=(6, 3.2), layout="constrained").subplots()
    shifted = np.asarray(logits) + s * np.asarray(log_frequencies)
    weights = np.exp(shifted - shifted.max())
    probabilities = weights / weights.sum()
    answer = int(probabilities.argmax())
    colours = ["0.8"] * len(shifted)
    colours[answer] = plots.colour("FedPrior")
    ax.bar(range(len(shifted)), probabilities, 0.5, color=colours)
    top = probabilities[truth]
    if outlines:
        shares = np.exp(log_frequencies)
        _outline(ax, shares)
        top = max(top, shares[truth])
    ax.text(truth, top + 0.03, "true", ha="center", size="small")
    ax.set_xticks(range(len(shifted)))
    ax.set_ylim(0, 1)
    verdict = "right" if answer == truth else "wrong"
    ax.set_title(f"s = {s:g}: it says {answer}, {verdict}", size="medium")
    return ax


@plots.described(
    "An image, the client's classes, and the ten probabilities with s = 0, 1/2 and 1: the true class comes out on top"
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
    _outline(axes[1], np.exp(log_frequencies))
    axes[1].set_title("the client's own images", size="medium")
    axes[1].set_xticks(range(len(counts)))
    axes[1].set(ylim=(0, 1), ylabel="share of the class, p̂")
    for ax, s in zip(axes[2:], (0, 0.5, 1), strict=True):
        ten_shares(logits, log_frequencies, truth, s, ax, outlines=False)
    axes[2].set_ylabel("the answer's probability")
    figure.supxlabel("class", size="medium")
    return figure


def _outline(ax: Axes, shares: Sequence[float]) -> None:
    """Draw a client's class frequencies [K] as hollow bars, wider than the filled ones."""
    ax.bar(range(len(shares)), shares, 0.9, facecolor="none", edgecolor="0.45", lw=1.2)


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
    names = [f"{BASELINE}'s copy", *others]
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    figure.supxlabel("points ahead of FedAvg with the same seed; the bar is the mean of ten", size="medium")
    return figure


@plots.described("How far a weight of FedAvg and of its copy differ, by round: it grows by powers of ten, sooner at 0.06")
def growth(of_rates: Mapping[float, Sequence[float]]) -> Axes:
    """How far the weights of FedAvg and its copy are apart after each round, at two learning rates."""
    _, ax = plt.subplots(figsize=(7.5, 3.0))
    for (lr, apart), colour, look in zip(of_rates.items(), ("0.5", "black"), ("-", "--"), strict=True):
        rounds = range(1, len(apart) + 1)
        ax.plot(rounds, apart, "o", ls=look, ms=5, color=colour)
        plots.label(ax, (rounds[-1], apart[-1]), f"rate {lr}", (8, 0), color=colour, va="center")
    ax.set(xlabel="communication round", ylabel="largest difference of a weight,\non a logarithmic axis", yscale="log")
    ax.grid(alpha=0.3)
    return ax
