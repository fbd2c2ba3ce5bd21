"""Pictures of the extra on tuning: the best of several candidates, and two ways to choose it."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots, results

_TRUE = 0.7  # the share of all images on which every candidate is right
_MOST = 16  # candidates
_RED = "#b3402e"


@plots.described(
    "Left, ten seeds of FedAvg: the best lies above their mean; right, the best of k looks the better the larger k is"
)
def best_of_k() -> Figure:
    """Left: a method that does nothing, tuned. Right: the accuracy that is reported for the best of k equals.

    On the left a value picks FedAvg's seed, in recorded runs. On the right candidates err independently of one another, on
    the test images of two data sets.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4), width_ratios=(1, 1.5))
    _nothing(left)
    draws = np.random.default_rng(0)
    candidates = np.arange(1, _MOST + 1)
    for name, images, colour in (("digits", 359, "#2a9d8f"), ("CIFAR-10", 10_000, "#8c6bb1")):
        scores = 100 * draws.binomial(images, _TRUE, (20_000, _MOST)) / images
        best = np.maximum.accumulate(scores, axis=1)
        low, high = np.quantile(best, (0.1, 0.9), axis=0)
        right.fill_between(candidates, low, high, color=colour, alpha=0.2, lw=0)
        right.plot(candidates, best.mean(0), "o-", color=colour)
        words = f"{images:,} test images\n({name})"
        right.annotate(words, (_MOST + 0.4, best[:, -1].mean()), color=colour, va="center")
    right.axhline(100 * _TRUE, color="0.4", ls="--")
    below = (_MOST, 100 * _TRUE - 0.15)
    right.annotate("the true accuracy of each", below, color="0.4", va="top", ha="right")
    right.set(title="the best of k equals", xlabel="k, candidates", ylabel="accuracy that is reported (%)")
    right.set(xlim=(0.5, _MOST + 5.5), xticks=[1, 2, 4, 8, _MOST])
    return figure


def _nothing(ax: Axes) -> None:
    accuracies = np.array(results.cell("digits-moon", "FedAvg").values)
    best, mean = int(accuracies.argmax()), accuracies.mean()
    end = len(accuracies) + 2.3
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


@plots.described("How often luck alone makes a lead of so many points: MOON's is rare, but not for single runs that scatter")
def could_be_luck(leads: Mapping[str, Mapping[str, np.ndarray]], reported: float) -> Figure:
    """The share of papers whose best candidate leads by so many points at least, though all are equal.

    ``leads``: by the title of its panel and by what is luck, the leads of many drawn papers (points).
    """
    figure, axes = plt.subplots(1, len(leads), figsize=(11, 3.8), sharey=True, squeeze=False)
    points = np.linspace(0, 5, 101)
    for ax, (title, of_panel) in zip(axes[0], leads.items(), strict=True):
        for (name, drawn), colour in zip(of_panel.items(), ("#8c6bb1", "#2a9d8f", _RED), strict=True):
            ax.plot(points, [100 * (drawn >= point).mean() for point in points], color=colour, label=name)
            found = 100 * (drawn >= reported).mean()
            ax.plot(reported, found, "o", color=colour)
            if found >= 0.5:
                place = (reported + 0.1, found + 1) if found > 4 else (reported, -2)
                ax.annotate(f"{found:.0f} of 100", place, color=colour, va="bottom" if found > 4 else "top")
        ax.axvline(reported, color="0.4", ls="--")
        ax.annotate(" MOON, as reported", (reported, 72), color="0.4", va="center")
        ax.set(title=title, xlim=(0, 5), ylim=(-9, 84))
        ax.set_xlabel("lead of the best of four over FedAvg (points)")
    axes[0, 0].set_ylabel("of 100 papers about nothing,\nso many report such a lead")
    axes[0, -1].legend(title="luck of", frameon=False, loc="center right", bbox_to_anchor=(1.04, 0.55))
    return figure


@plots.described("Gains by choosing on test images: three test images at most on the digits, and none on CIFAR-10")
def gains(found: pd.DataFrame) -> Axes:
    """What choosing μ on the test images gained, run by run, beside what it would for equals.

    ``found``: as from `chosen_twice`, and a column "of equals", the gain (points) if all values were equally good.
    """
    _, ax = plt.subplots(figsize=(8.5, 4.6))
    place, places, names = 0.0, [], []
    for title, lines in found.groupby(level=0, sort=False):
        first = place
        for (_, which), line in lines.iterrows():
            mean = which == "mean of all"
            ax.plot([0, line["gain"]], [place] * 2, color=plots.colour(title), lw=2)
            ax.plot(line["gain"], place, "D" if mean else "o", color=plots.colour(title), ms=8)
            for of_choice, right in (("by test", 2.2), ("by held-out", 2.7)):
                plots.label(ax, (right, place), line[of_choice], (0, 0), va="center", ha="center")
            places.append(place)
            names.append(f"{title}: {which}" if place == first else which)
            place += 1
        limit = lines["of equals"].iloc[-1]
        ax.plot([limit] * 2, [first - 0.4, place - 0.6], color="0.4", ls="--")
        place += 0.5
    for words, right in (("μ by\ntest images", 2.2), ("μ by\nheld-out", 2.7)):
        plots.label(ax, (right, -0.7), words, (0, 0), va="bottom", ha="center")
    plots.label(ax, (limit, place - 1.1), "by (2), if all four were equal", (6, 0), color="0.4", va="center")
    ax.axvline(0, color="0.6", lw=1)
    ax.set_yticks(places, names)
    ax.set(ylim=(place - 0.4, -0.8), xlim=(-0.03, 2), xlabel="gain by choosing on the test images (points)")
    return ax


def chosen_twice(tables: Mapping[str, str]) -> pd.DataFrame:
    """The value of μ that test and held-out images choose, gain and test accuracy of the first, seed by seed.

    ``tables``: by title, the table of the runs in which both accuracies were recorded. With more than
    one seed a last line has the choice by the mean over seeds, as a paper makes it.
    """
    lines = []
    for title, name in tables.items():
        of_values = results.load("tuning")[name].items()
        runs = pd.concat([pd.DataFrame(of_value).assign(μ=float(value)) for value, of_value in of_values])
        by_seed = runs.pivot(index="μ", columns="seed")
        choices = {f"seed {seed}": by_seed.xs(seed, axis=1, level="seed") for seed in by_seed["accuracy"]}
        if len(choices) > 1:
            choices["mean of all"] = by_seed.T.groupby(level=0).mean().T
        for which, accuracies in choices.items():
            by_test, held_out = accuracies["accuracy"].idxmax(), accuracies["validation"].idxmax()
            gain = accuracies["accuracy"][by_test] - accuracies["accuracy"][held_out]
            best = accuracies["accuracy"][by_test]
            lines.append([title, which, f"{by_test:g}", f"{held_out:g}", round(gain, 2), best])
    columns = ["runs", "choice by", "by test", "by held-out", "gain", "accuracy"]
    return pd.DataFrame(lines, columns=columns).set_index(columns[:2])
