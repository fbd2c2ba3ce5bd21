"""Pictures of the extra on tuning: the best of several candidates, and two ways to choose it."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots, results

_TRUE = 0.7  # the share of all images on which every candidate is right
_MOST = 16  # candidates
_RED = "#b3402e"
_SHADES = ("0.92", "0.8")  # of the wide band and of the narrow one
_HOPELESS = 80  # percent; a lower mean is an arrow at the edge


@plots.described("Ten seeds of FedAvg, each a value of a hyperparameter: the best lies above their mean")
def nothing() -> Axes:
    """A method that does nothing, tuned: a value picks FedAvg's seed, in recorded runs."""
    _, ax = plt.subplots(figsize=(8, 3.8))
    accuracies = np.array(results.cell("digits-moon", "FedAvg").values)
    best, mean = int(accuracies.argmax()), accuracies.mean()
    end = len(accuracies) + 1.3
    ax.plot(accuracies, "o", color=plots.colour("FedAvg"))
    ax.plot(best, accuracies[best], "o", ms=15, mfc="none", color=_RED, mew=2)
    ax.axhline(mean, color="0.4", ls="--")
    ax.annotate("mean", (end, mean - 0.1), color="0.4", va="top", ha="right")
    ax.plot([best, end], [accuracies[best]] * 2, color=_RED, lw=1, ls=":")
    ax.annotate("", (end, accuracies[best]), (end, mean), arrowprops={"arrowstyle": "->", "color": _RED})
    words = f"“gain” {accuracies[best] - mean:.1f} "
    ax.annotate(words, (end, (accuracies[best] + mean) / 2), color=_RED, ha="right", va="center")
    ax.set(title="a method that does nothing", xlabel="value of its hyperparameter", ylabel="test accuracy (%)")
    ax.set(xticks=range(len(accuracies)), xlim=(-0.7, end + 0.3))
    return ax


@plots.described("The best of k equals looks the better the larger k is, and far more so on few test images than on many")
def best_of_k() -> Axes:
    """The accuracy that is reported for the best of k equals, whose mistakes are independent, on two test sets."""
    _, ax = plt.subplots(figsize=(8, 3.8))
    draws = np.random.default_rng(0)
    candidates = np.arange(1, _MOST + 1)
    for name, images, colour in (("digits", 359, "#2a9d8f"), ("CIFAR-10", 10_000, "#8c6bb1")):
        scores = 100 * draws.binomial(images, _TRUE, (20_000, _MOST)) / images
        best = np.maximum.accumulate(scores, axis=1)
        low, high = np.quantile(best, (0.1, 0.9), axis=0)
        ax.fill_between(candidates, low, high, color=colour, alpha=0.2, lw=0)
        ax.plot(candidates, best.mean(0), "o-", color=colour)
        words = f"{images:,} test images\n({name})"
        ax.annotate(words, (_MOST + 0.4, best[:, -1].mean()), color=colour, va="center")
    ax.axhline(100 * _TRUE, color="0.4", ls="--")
    below = (_MOST, 100 * _TRUE - 0.15)
    ax.annotate("the true accuracy of each", below, color="0.4", va="top", ha="right")
    ax.set(title="the luck of test images", xlabel="k, candidates", ylabel="accuracy that is reported (%)")
    ax.set(xlim=(0.5, _MOST + 4.5), xticks=[1, 2, 4, 8, _MOST])
    return ax


@plots.described(
    "Left: in the paper FedProx leads FedAvg by what luck gives the best of four equals, MOON by more on all three data "
    "sets. Right: in our three long runs both lead on every seed; in six shorter ones MOON leads, and FedProx does not"
)
def leads(
    reported: pd.DataFrame,
    luck: Mapping[str, Mapping[str, np.ndarray]],
    ours: Mapping[str, Mapping[str, Sequence[float]]],
) -> Figure:
    """Leads over FedAvg beside those of papers about nothing, and our own leads.

    ``reported``: the leads of a paper's Table 1 (points), by method and data set. ``luck``: by what is luck,
    the wider first, and by data set, the leads of many drawn papers. ``ours``: by what runs they are and by
    method, our own leads on the first data set, seed by seed.
    """
    figure, (ax, own) = plt.subplots(1, 2, figsize=(11.5, 4.4), sharey=True, width_ratios=(1.35, 1))
    for (name, of_data), shade in zip(luck.items(), _SHADES, strict=True):
        for place, data in enumerate(reported):
            low, high = np.quantile(of_data[data], (0.05, 0.95))
            ax.bar(place, high - low, 0.8, low, color=shade, lw=0, label=name if place == 0 else None)
    middles = [of_data[data].mean() for data in reported]
    ax.hlines(middles, np.arange(len(middles)) - 0.4, np.arange(len(middles)) + 0.4, color="white", lw=2)
    for method, shift in zip(reported.index, (-0.2, 0.2), strict=True):
        look = {"color": plots.colour(method), "ls": "none", "marker": "o"}
        ax.plot(np.arange(len(reported.columns)) + shift, reported.loc[method], ms=11, label=method, **look)
        for place, of_method in enumerate(ours.values()):
            points = np.asarray(of_method[method])
            own.plot(place + shift + np.linspace(-0.08, 0.08, len(points)), points, ms=6, alpha=0.5, **look)
            own.hlines(points.mean(), place + shift - 0.16, place + shift + 0.16, color=plots.colour(method), lw=3)
    numbers = [f"{name}\n({len(of[reported.index[0]])} seeds)" for name, of in ours.items()]
    for axis, names in ((ax, reported.columns), (own, numbers)):
        axis.axhline(0, color="0.4", lw=1)
        axis.set_xticks(range(len(names)), names)
        axis.set(xlim=(-0.55, len(names) - 0.45))
    ax.set(ylabel="lead over FedAvg (points)", title="the paper, and luck")
    own.set(title=f"our runs on {reported.columns[0]}: each seed, and the mean")
    figure.legend(frameon=False, loc="outside lower center", ncols=4)
    return figure


@plots.described(
    "Four values of μ for MOON and for FedProx on the digits: some are hopeless, and test and held-out images choose "
    "among the others, for MOON differently"
)
def two_choices(tables: Mapping[str, str]) -> Figure:
    """Test and held-out accuracy of every value of μ, seed by seed; lines are means, and the chosen ones are thick.

    ``tables``: by method the table of its runs.
    """
    figure, axes = plt.subplots(1, len(tables), figsize=(11, 4), sharey=True, squeeze=False)
    for ax, (method, table) in zip(axes[0], tables.items(), strict=True):
        means, runs = accuracies(table), results.load("tuning")[table]
        for name, record, colour, shift in (
            ("test", "accuracy", plots.colour(method), -0.2),
            ("held-out", "validation", "0.35", 0.2),
        ):
            best = means[name].idxmax()
            for place, (value, mean) in enumerate(means[name].items()):
                at = place + shift
                if mean < _HOPELESS:
                    arrow = {"arrowstyle": "->", "color": colour}
                    ax.annotate("", (at, _HOPELESS), (at, _HOPELESS + 1.2), arrowprops=arrow)
                    plots.label(ax, (at, _HOPELESS + 1.2), f"{mean:.1f}", (0, 2), color=colour, ha="center")
                    continue
                of_seeds = runs[str(value)][record]
                ax.plot(at + np.linspace(-0.1, 0.1, len(of_seeds)), of_seeds, "o", ms=6, color=colour, alpha=0.45)
                ax.plot([at - 0.17, at + 0.17], [mean, mean], color=colour, lw=5 if value == best else 1.5)
                if value == best:
                    words = f"chosen by\n{name} images" if ax is axes[0, 0] else name
                    side = "center" if ax is axes[0, 0] else "right" if shift < 0 else "left"
                    plots.label(ax, (at, 91.2), words, (0, 0), color=colour, ha=side, weight="bold", fontsize="small")
        ax.set_xticks(range(len(means)), [f"{value:g}" for value in means.index])
        ax.set(title=f"{method} on the digits", xlabel="μ", ylim=(_HOPELESS, 93), xlim=(-0.8, len(means) - 0.45))
    axes[0, 0].set_ylabel("accuracy (%)")
    return figure


def accuracies(table: str) -> pd.DataFrame:
    """Test and held-out accuracy of each value of μ, means over the seeds, from runs that recorded both."""
    means = {
        float(value): {"test": np.mean(runs["accuracy"]), "held-out": np.mean(runs["validation"])}
        for value, runs in results.load("tuning")[table].items()
    }
    return pd.DataFrame(means).T.sort_index()
