"""Pictures of the extra on tuning: the best of several candidates, and two ways to choose it."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots, results

_WORTH = 0.7  # the share of all images on which every candidate is right
_MOST = 16  # candidates
_SHOWN = 5.0  # points below the best value that are drawn


@plots.described("The best of 16 equal candidates looks four points too good on 359 test images, under one point on 10,000")
def best_of_k() -> Axes:
    """The accuracy that is reported for the best of k equally good candidates, over k.

    Candidates err independently of one another, on the test images of two data sets.
    """
    draws = np.random.default_rng(0)
    candidates = np.arange(1, _MOST + 1)
    _, ax = plt.subplots(figsize=(8.5, 4))
    for name, images, colour in (("digits", 359, "#2a9d8f"), ("CIFAR-10", 10_000, "#8c6bb1")):
        scores = 100 * draws.binomial(images, _WORTH, (20_000, _MOST)) / images
        best = np.maximum.accumulate(scores, axis=1)
        low, high = np.quantile(best, (0.1, 0.9), axis=0)
        ax.fill_between(candidates, low, high, color=colour, alpha=0.2, lw=0)
        ax.plot(candidates, best.mean(0), "o-", color=colour)
        words = f"{images:,} test images\n({name})"
        ax.annotate(words, (_MOST + 0.4, best[:, -1].mean()), color=colour, va="center")
    ax.axhline(100 * _WORTH, color="0.4", ls="--")
    below = (_MOST, 100 * _WORTH - 0.15)
    ax.annotate("what each is worth", below, color="0.4", va="top", ha="right")
    ax.set(xlabel="number k of equally good candidates", ylabel="accuracy that is reported (%)")
    ax.set(xlim=(0.5, _MOST + 4), xticks=[1, 2, 4, 8, _MOST])
    return ax


@plots.described(
    "Points below the best mu, on test and on held-out images: near the top the curves cross or lie close together"
)
def two_choices(found: Mapping[str, pd.DataFrame]) -> Figure:
    """Points below the best value of μ, on test images and on held-out ones, near the top.

    ``found``: by title, a frame with a line for each μ and the columns "test" and "held-out", each
    in percent and a mean over seeds.
    """
    figure, axes = plt.subplots(1, len(found), figsize=(3.3 * len(found), 3.2), sharey=True, squeeze=False)
    for ax, (title, means) in zip(axes[0], found.items(), strict=True):
        places = np.arange(len(means))
        colour = plots.colour(title)
        for column, line in (("test", "o-"), ("held-out", "s--")):
            below = (means[column] - means[column].max()).to_numpy()
            ax.plot(places, below, line, color=colour, label=f"{column} images")
            ax.plot(int(below.argmax()), 0, line[0], ms=15, mfc="none", color=colour)
        ax.set_xticks(places, [f"{mu:g}" for mu in means.index])
        ax.set(title=title, xlabel="μ", ylim=(-_SHOWN, 0.5))
        ax.grid(axis="y", alpha=0.3)
    axes[0, 0].set_ylabel("points below the best μ")
    axes[0, -2].legend(fontsize="small", frameon=False, loc="lower left")
    return figure


def chosen_twice(tables: Mapping[str, str]) -> tuple[dict[str, pd.DataFrame], pd.DataFrame]:
    """What `two_choices` draws, and the gain of choosing μ by test accuracy, seed by seed.

    ``tables``: by title, the table of the runs in which both accuracies were recorded. With more than
    one seed a last line has the choice by the mean over seeds, as a paper makes it.
    """
    found, lines = {}, []
    for title, name in tables.items():
        of_values = results.load("tuning")[name].items()
        runs = pd.concat([pd.DataFrame(of_value).assign(μ=float(value)) for value, of_value in of_values])
        by_seed = runs.pivot(index="μ", columns="seed")
        choices = {f"seed {seed}": by_seed.xs(seed, axis=1, level="seed") for seed in by_seed["accuracy"]}
        mean = by_seed.T.groupby(level=0).mean().T
        found[title] = mean.rename(columns={"accuracy": "test", "validation": "held-out"})
        if len(choices) > 1:
            choices["mean of all"] = mean
        for which, accuracies in choices.items():
            by_test, held_out = accuracies["accuracy"].idxmax(), accuracies["validation"].idxmax()
            gain = accuracies["accuracy"][by_test] - accuracies["accuracy"][held_out]
            lines.append([title, which, f"{by_test:g}", f"{held_out:g}", round(gain, 2)])
    columns = ["runs", "choice by", "μ by test", "μ by held-out", "gain (points)"]
    return found, pd.DataFrame(lines, columns=columns).set_index(columns[:2])
