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
    "FedProx leads FedAvg by what luck gives the best of four equals; MOON by more on all three data sets, "
    "and in our own runs by about half as much"
)
def leads(reported: pd.DataFrame, luck: Mapping[str, Mapping[str, np.ndarray]], ours: Mapping[str, Sequence[float]]) -> Axes:
    """Leads over FedAvg beside those of papers about nothing.

    ``reported``: the leads of a paper's Table 1 (points), by method and data set. ``luck``: by what is luck,
    the wider first, and by data set, the leads of many drawn papers. ``ours``: by method, our own leads on
    the first data set, seed by seed.
    """
    _, ax = plt.subplots(figsize=(9.5, 4.6))
    for (name, of_data), shade in zip(luck.items(), _SHADES, strict=True):
        for place, data in enumerate(reported):
            low, high = np.quantile(of_data[data], (0.05, 0.95))
            ax.bar(place, high - low, 0.8, low, color=shade, lw=0, label=name if place == 0 else None)
    middles = [of_data[data].mean() for data in reported]
    ax.hlines(middles, np.arange(len(middles)) - 0.4, np.arange(len(middles)) + 0.4, color="white", lw=2)
    for method, shift in zip(reported.index, (-0.12, 0.12), strict=True):
        look = {"color": plots.colour(method), "ls": "none", "marker": "o"}
        ax.plot(np.arange(len(reported.columns)) + shift, reported.loc[method], ms=11, label=f"{method}, paper", **look)
        own = ours[method]
        ax.plot([2.2 * shift] * len(own), own, ms=3, **look)
        ax.plot(2.2 * shift, np.mean(own), ms=11, mfc="none", mew=2, label=f"{method}, our runs", **look)
    ax.axhline(0, color="0.4", lw=1)
    ax.set_xticks(range(len(reported.columns)), reported.columns)
    bottom = min(np.quantile(drawn, 0.05) for of_data in luck.values() for drawn in of_data.values())
    ax.set(ylabel="lead over FedAvg (points)", xlim=(-0.55, len(reported.columns) - 0.45), ylim=(bottom - 0.1, None))
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


@plots.described(
    "Four values of μ for MOON and for FedProx on the digits: some are hopeless, and test and held-out images choose "
    "among the others, for MOON differently"
)
def two_choices(found: Mapping[str, pd.DataFrame]) -> Figure:
    """Test and held-out accuracy of every value of μ; what each of them chooses is dark.

    ``found``: by method, as from `accuracies`.
    """
    figure, axes = plt.subplots(1, len(found), figsize=(11, 3.8), sharey=True, squeeze=False)
    for ax, (method, of_values) in zip(axes[0], found.items(), strict=True):
        places = np.arange(len(of_values))
        for name, colour, shift in (("test", plots.colour(method), -0.2), ("held-out", "0.35", 0.2)):
            scores = of_values[name].to_numpy()
            for place, score in zip(places, scores, strict=True):
                chosen = score == scores.max()
                ax.bar(place + shift, score, 0.36, color=colour, alpha=1 if chosen else 0.3, lw=0)
                weight = "bold" if chosen else "normal"
                plots.label(ax, (place + shift, score), f"{score:.1f}", (0, 3), color=colour, ha="center", weight=weight)
            best = int(scores.argmax())
            words = f"chosen by\n{name} images" if ax is axes[0, 0] else name
            look = {"color": "white", "ha": "center", "va": "center", "rotation": 90}
            ax.annotate(words, (best + shift, scores[best] / 2), **look)
        ax.set_xticks(places, [f"{value:g}" for value in of_values.index])
        ax.set(title=f"{method} on the digits", xlabel="μ", ylim=(0, 99))
    axes[0, 0].set_ylabel("accuracy (%), mean of the seeds")
    return figure


def accuracies(table: str) -> pd.DataFrame:
    """Test and held-out accuracy of each value of μ, means over the seeds, from runs that recorded both."""
    means = {
        float(value): {"test": np.mean(runs["accuracy"]), "held-out": np.mean(runs["validation"])}
        for value, runs in results.load("tuning")[table].items()
    }
    return pd.DataFrame(means).T.sort_index()
