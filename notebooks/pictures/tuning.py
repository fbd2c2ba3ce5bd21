"""Pictures of the extra on tuning: the best of several candidates, and what MOON's paper prints beside luck."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots, results

_TRUE = 0.7  # the share of all images on which every candidate is right
_MOST = 16  # candidates
_RED = "#b3402e"
_BAND = (0.05, 0.95)  # the quantiles between which nine in ten lie
_RUNS = {"as long as the paper's": "moon-1", "shorter": "moon-1-short"}  # our own on CIFAR-10, by their tables


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
        low, high = np.quantile(best, _BAND, axis=0)
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
    "Left: in the paper FedProx leads FedAvg by what luck gives the best of four equals, MOON by more for most values of μ. "
    "Right: in our three long runs both lead on every seed; in six shorter ones MOON leads, and FedProx does not"
)
def leads(luck: Mapping[str, np.ndarray]) -> Figure:
    """Leads over FedAvg in MOON's Tables 1 and 9 beside those of papers about nothing, and our own leads.

    ``luck``: by data set the leads of many drawn papers, in points.
    """
    figure, (ax, own) = plt.subplots(1, 2, figsize=(11.5, 4.4), sharey=True, width_ratios=(1.5, 1))
    main, of_moon = results.printed("MOON Table 1"), _printed_leads()
    for place, (data, drawn) in enumerate(luck.items()):
        low, high = np.quantile(drawn, _BAND)
        words = "luck of the best of four; its mean"
        ax.bar(place, high - low, 0.9, low, color="0.88", lw=0, label=None if place else words)
        ax.plot([place - 0.45, place + 0.45], [drawn.mean()] * 2, color="0.5", lw=1)
        points = np.array([*of_moon[data].values()])
        places = place + np.linspace(-0.16, 0.34, len(points))
        look = {"color": plots.colour("MOON"), "marker": "o", "ms": 9}
        ax.plot(places, points, lw=1, mfc="white", **look, label=None if place else "MOON, four μ; filled: in Table 1")
        ax.plot(places[points.argmax()], points.max(), **look)
        for k, (at, value, point) in enumerate(zip(places, of_moon[data], points, strict=True)):
            below = point < np.delete(points, k)[max(k - 1, 0) : k + 1].min()  # than what is left and right of it
            shift, side = (-8, "top") if below else (8, "bottom")
            written = {"color": plots.colour("MOON"), "ha": "center", "va": side, "size": "small"}
            plots.label(ax, (at, point), f"{value:g}", (0, shift), **written)
        of_fedprox = main["FedProx"][data] - main["FedAvg"][data]
        look = {"color": plots.colour("FedProx"), "ms": 9, "ls": "none"}
        ax.plot(place - 0.33, of_fedprox, "o", **look, label=None if place else "FedProx, the best of four μ")
    for place, table in enumerate(_RUNS.values()):
        for method, shift in (("FedProx", -0.2), ("MOON", 0.2)):
            points, look = our_leads(table, method), {"color": plots.colour(method)}
            own.plot(place + shift + np.linspace(-0.08, 0.08, len(points)), points, "o", ms=6, alpha=0.5, **look)
            own.hlines(points.mean(), place + shift - 0.16, place + shift + 0.16, lw=3, **look)
    numbers = [f"{name}\n({len(our_leads(table, 'MOON'))} seeds)" for name, table in _RUNS.items()]
    for axis, names in ((ax, map(_spelt, luck)), (own, numbers)):
        names = list(names)
        axis.axhline(0, color="0.4", lw=1)
        axis.set_xticks(range(len(names)), names)
        axis.set(xlim=(-0.55, len(names) - 0.45))
    ax.set(ylabel="lead over FedAvg (points)", title="the paper, and luck", ylim=(-1.25, 3.4))
    own.set(title="our runs on CIFAR-10: each seed, and the mean")
    figure.legend(frameon=False, loc="outside lower center", ncols=3)
    return figure


def in_numbers(
    luck: Mapping[str, np.ndarray], without_choice: Mapping[str, np.ndarray], on_other_splits: Mapping[str, np.ndarray]
) -> Markdown:
    """How often the best of four equals leads as far as MOON's best μ, and by how much μ = 1 does, beside one of two equals.

    ``on_other_splits``: as ``luck``, but FedAvg and the four were run on splits of their own.
    """
    of_moon = _printed_leads()
    best = {data: max(points.values()) for data, points in of_moon.items()}
    often, on_others = ([np.mean(of[data] >= best[data]) for data in best] for of in (luck, on_other_splits))
    fixed = [points[1.0] for points in of_moon.values()]
    by_luck = max(np.quantile(drawn, _BAND[1]) for drawn in without_choice.values())
    chosen = [best[data] - points[1.0] for data, points in of_moon.items()]
    lines = (
        f"One after the other: {', '.join(map(_spelt, best))}.",
        f"Luck leads as far as the best μ in {_listed([_percent(chance) for chance in often])} of the papers; if each score "
        f"had splits of its own, in {_listed([_percent(chance) for chance in on_others])}.",
        f"With μ = 1 MOON leads by {_listed([f'{lead:.1f}' for lead in fixed])} points. "
        f"Without a choice luck leads by more than {by_luck:.1f} in one paper of twenty at most.",
        f"Choosing μ added {_listed([f'{lead:.1f}' for lead in chosen])} points.",
    )
    folded = "\n".join(f"- {line}" for line in lines)
    return Markdown(
        f"**Luck leads as far as MOON's best μ in at most {_percent(max(often))} of the papers about nothing.** "
        f"With μ = 1 throughout MOON still leads by {min(fixed):.1f} points or more. "
        f"If each score had splits of its own, luck would lead as far in up to {_percent(max(on_others))}, "
        f"on all three data sets, taken as independent, in {_percent(np.prod(on_others))}.\n\n"
        f"<details><summary>More numbers</summary>\n\n{folded}\n\n</details>"
    )


def scatter() -> float:
    """How far a single run scatters, in points: our leads do so over seeds by √2 times as much, as two runs are in each."""
    squares, free = 0.0, 0
    for table in _RUNS.values():
        for method in ("FedProx", "MOON"):
            points = our_leads(table, method)
            squares += ((points - points.mean()) ** 2).sum()
            free += len(points) - 1
    return float(np.sqrt(squares / free / 2))


def scatter_on_other_splits() -> float:
    """The standard deviation of MOON's accuracy over our long runs, each with a split of its own, in points."""
    return float(np.std(results.cell(_RUNS["as long as the paper's"], "MOON", "CIFAR-10").values, ddof=1))


def our_leads(table: str, method: str) -> np.ndarray:
    """Our own leads over FedAvg on CIFAR-10, seed by seed."""
    of_method, of_fedavg = (results.cell(table, name, "CIFAR-10").by_seed for name in (method, "FedAvg"))
    return np.array([*results.differences(of_method, of_fedavg).values()])


def gain(table: str) -> float:
    """What choosing on the test images, and not on held-out ones, gained in test accuracy; means over the seeds."""
    runs = results.load("tuning")[table].values()
    test = np.array([np.mean(of_value["accuracy"]) for of_value in runs])
    held_out = np.array([np.mean(of_value["validation"]) for of_value in runs])
    return float(test.max() - test[held_out.argmax()])


def _printed_leads() -> dict[str, dict[float, float]]:
    """MOON's leads over FedAvg in its Table 9: by data set and μ."""
    of_fedavg, *others = results.printed("MOON Table 9").items()
    leads: dict[str, dict[float, float]] = {data: {} for data in of_fedavg[1]}
    for row, values in others:
        for data, value in values.items():
            leads[data][float(row.removeprefix("mu="))] = value - of_fedavg[1][data]
    return leads


@plots.described("Accuracy by μ: test and held-out images choose two values for MOON, and the same one for FedProx")
def choices() -> Figure:
    """Test and held-out accuracy by μ in the digits' tuning runs, means over seeds; both choices are circled."""
    figure, panels = plt.subplots(1, 2, figsize=(9.5, 3.2), sharey=True)
    looks = {"accuracy": ("test images", "o-", "black"), "validation": ("held-out images", "s--", "#2a9d8f")}
    for ax, method in zip(panels, ("MOON", "FedProx"), strict=True):
        runs = results.load("tuning")[f"digits-{method.lower()}-tuning"]
        for measure, (name, line, colour) in looks.items():
            means = [np.mean(of_value[measure]) for of_value in runs.values()]
            ax.plot(means, line, color=colour, label=name)
            ax.plot(np.argmax(means), max(means), "o", ms=16, mfc="none", mec=colour, mew=2)
        ax.set_xticks(range(len(runs)), [f"{float(value):g}" for value in runs])
        ax.annotate("far below ↓", (len(runs) - 1, 84.2), color="0.4", ha="right")
        ax.set(title=method, xlabel="μ")
    panels[0].set(ylim=(84, 89.5), ylabel="accuracy (%), mean of three seeds")
    panels[1].legend(frameon=False, loc="lower left", title="circled: the choice by")
    return figure


def _spelt(data: str) -> str:
    """A data set's name as texts spell it."""
    return data.replace("Imagenet", "ImageNet")


def _percent(chance: float) -> str:
    if chance < 1e-4:
        return "less than 0.01 %"
    return f"{100 * chance:.{0 if chance >= 0.01 else 2}f} %"


def _listed(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"
