"""Pictures of the extra on readings: what it changes if a paper's sentence is programmed otherwise."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import plots, results
from fednb.leads import lead_of

STEPS = {"ten epochs": 100, "ten steps": 10}  # of a client in a round, by row of the table
_LOOKS = ((plots.colour("FedPLCC"), "-"), ("0.35", "--"))  # of the two programs
_PROGRAMS = (  # what "iterations" may mean
    ("epochs", "for epoch in range(10):\n    for batch in batches:\n        step(batch)"),
    ("steps", "for batch in batches[:10]:\n    step(batch)"),
)
_FEW_SEEDS = 3  # so few say little about a difference that is small
_EDGE = 14.0  # points left and right of zero that are drawn
_CHOICES = {  # findings that have the differences, and of which notebook's method
    "fedssc-readings": "FedSSC (03)",
    "fedproto-readings": "FedProto (04)",
    "fedproto-distances": "FedProto (04)",
    "fedplcc-readings": "FedPLCC (05)",
}
_LEFT_OUT = (  # one seed; not readings
    "the same, MNIST, n = 3",
    "no pull: each client alone",
    "mean squared error, λ = 100 (best held out)",
)
_TRAPS = {"L1 of the batch's means, λ = 0.01": "②", "ten steps, not ten epochs": "①③"}
_INSTEAD = {  # of what each choice takes the place, if its label does not say it
    "all clients are averaged": "not one drawn",
    "prototypes weighted with images": "not all alike",
    "first weights of each client's own": "not common",
    "squared (appendix), λ = 1": "not mse",
    "L2 of the batch's means (paper's equation 8), λ = 0.1": "not mse",
    "L1 of the batch's means, λ = 0.01": "not mse",
    "centres are weighted means": "not plain",
    "incomplete batches are dropped": "not kept",
}
_MARKS = {"squared": "s", "l2": "^", "l1": "D", "mse": "o"}
_SPOTS = {("l1", "0.01"): (-4, 14), ("l2", "0.1"): (0, -15), ("mse", "1"): (0, 14), ("mse", "100"): (-8, -18)}  # of names
_DISTANCES = (  # of FedProto: with λ = 1, and with the λ that was best on held-out images
    ("squared", "squared distance (appendix)", "1", "squared distance (appendix), λ=1"),
    ("l2", "L2 of the batch's means (the paper's equation 8)", "0.1", "L2 of the batch's means (P8), λ=0.1"),
    ("l1", "L1 of the batch's means", "0.01", "L1 of the batch's means, λ=0.01"),
    ("mse", "FedProto", "100", "mean squared error, λ=100"),
)


@plots.described("One sentence leads to two programs; the one that counts epochs ends far above the one that counts steps")
def one_sentence() -> Figure:
    """Two programs of a sentence of FedPLCC's paper, and their recorded accuracies by round."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.4), width_ratios=(1.15, 1))
    left.set(xlim=(0, 1), ylim=(0, 1))
    left.axis("off")
    sentence = "“each local\ntraining epoch\nconsists of\nE = 10 iterations”"
    left.text(0.0, 0.5, sentence, size=12, style="italic", va="center")
    for (unit, code), (colour, _), y in zip(_PROGRAMS, _LOOKS, (0.78, 0.2), strict=True):
        left.annotate("", (0.42, y), (0.34, 0.5), arrowprops={"arrowstyle": "->", "color": colour, "lw": 2})
        box = {"boxstyle": "round,pad=0.5", "fc": "white", "ec": colour, "lw": 1.5}
        left.text(0.45, y, code, family="monospace", size=8.5, va="center", bbox=box)
        left.text(0.44, y + 0.07 + 0.04 * len(code.splitlines()), f"read as {unit}", color=colour, weight="bold")
    recorded = results.accuracies("mini-fedplcc-iterations")
    for row, (unit, _), (colour, look) in zip(STEPS, _PROGRAMS, _LOOKS, strict=True):
        of_seeds = recorded[row]
        right.plot(of_seeds.columns, of_seeds.T, lw=0.6, ls=look, color=colour)
        right.plot(of_seeds.columns, of_seeds.mean(), lw=2.5, ls=look, color=colour)
        right.text(10.2, of_seeds.mean().iloc[-1], unit, color=colour, weight="bold", va="center")
    right.set(xlabel="round", ylabel="accuracy, mean of five domains (%)", ylim=(0, 100), xlim=(0.5, 11.8))
    right.set_xticks(range(2, 11, 2))
    return figure


@plots.described(
    "Thirteen differences in points: most lie at zero; in bold averaging all clients a little above, ten steps far below"
)
def choices() -> Figure:
    """By how many points each choice that a paper leaves open changes a notebook's result; bold if surely."""
    lines = []
    for finding, paper in _CHOICES.items():
        for line in results.load("findings")[finding]["forest"]["lines"]:
            if line["label"] not in _LEFT_OUT:
                lines.append((paper, line))
    figure, ax = plt.subplots(figsize=(10.5, 4.8))
    ax.axvline(0, color="0.6", lw=1, zorder=0)
    y = 0.0
    places = []
    before = lines[0][0]
    for paper, line in lines:
        y += 1.6 if paper != before else 1.0
        before = paper
        places.append(y)
        _draw_choice(ax, y, line, plots.colour(paper))
    for paper in dict.fromkeys(_CHOICES.values()):
        of_paper = [place for place, (name, _) in zip(places, lines, strict=True) if name == paper]
        (seeds, *_) = [line["seeds"] for name, line in lines if name == paper]
        title = f"{paper}\n{seeds} seeds"
        ax.text(_EDGE * 1.03, np.mean(of_paper), title, color=plots.colour(paper), va="center", weight="bold")
    contain_zero = [line for _, line in lines if line["seeds"] > _FEW_SEEDS and abs(line["mean"]) < line["half"]]
    furthest = max(abs(line["mean"]) + line["half"] for line in contain_zero)
    title = f"ten seeds: {len(contain_zero)} intervals contain zero, and none of these reaches beyond {furthest:.1f} points"
    ax.set_title(title, size="medium")
    labels = []
    for _, line in lines:
        trap = _TRAPS.get(line["label"], "")
        instead = _INSTEAD.get(line["label"])
        labels.append(f"{trap} {line['label']}{f', {instead}' if instead else ''}".strip())
    ax.set_yticks(places, labels)
    for name, (_, line) in zip(ax.get_yticklabels(), lines, strict=True):
        name.set_weight("bold" if abs(line["mean"]) > line["half"] else "normal")
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(-_EDGE, _EDGE), ylim=(places[-1] + 0.7, places[0] - 0.7))
    ax.set_xlabel("points that the other choice gains or loses, with its 95 % interval")
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x", alpha=0.3)
    return figure


def _draw_choice(ax: Axes, y: float, line: Mapping[str, Any], colour: str) -> None:
    """Draw a difference with its interval, pale if of few seeds; an arrow, if it lies beyond the edge."""
    mean = line["mean"]
    if mean < -_EDGE:
        ax.annotate(
            f"{mean:.0f} ± {line['half']:.0f}".replace("-", "−"),
            (-_EDGE, y),
            (-_EDGE + 2, y),
            color=colour,
            va="center",
            arrowprops={"arrowstyle": "->", "color": colour, "lw": 2},
        )
        return
    opaque = 1.0 if line["seeds"] > _FEW_SEEDS else 0.35
    ax.errorbar(mean, y, xerr=line["half"], fmt="o", color=colour, capsize=3, alpha=opaque)


@plots.described("Difference to mse with λ = 1 by how hard a loss pulls: gentle pulls lose nothing, the strongest most")
def distances(pulls: Mapping[str, float]) -> Axes:
    """FedProto's four distances, with λ = 1 (filled) and the λ that was best on held-out images (hollow).

    Right, how hard it pulls: ``pulls`` has the length of each distance's gradient for λ = 1.
    """
    _, ax = plt.subplots(figsize=(9.5, 3.9))
    code = results.cell("digits-fedproto-readings", "FedProto")
    colour = plots.colour("FedProto")
    spots = {"squared": (4, 14), "l2": (8, -14), "l1": (-10, 0), "mse": (8, -12)}  # of the names, in points
    for name, with_one, lam, with_own in _DISTANCES:
        both = (("digits-fedproto-readings", with_one, "1"), ("digits-fedproto-distances", with_own, lam))
        for table, row, weight in dict.fromkeys(both):
            pull = float(weight) * pulls[name]
            look = {"fmt": _MARKS[name], "color": colour, "ms": 8, "capsize": 3, "mfc": colour if weight == "1" else "white"}
            own = table == "digits-fedproto-distances"
            if own and weight == "1":
                continue  # the same runs
            if row == code.row:
                mean, half = 0.0, 0.0
            else:
                lead = results.compare(results.cell(table, row), code)
                mean, half = lead.mean, lead.half_width
            ax.errorbar(pull, mean, yerr=half or None, **look)
            spot = _SPOTS.get((name, weight), spots[name])
            side = "right" if spot[0] < 0 else ("center" if spot[0] == 0 else "left")
            plots.label(ax, (pull, mean), f"{name}, λ = {weight}", spot, color="0.2", ha=side, va="center")
    ax.axhline(0, color="0.6", lw=1, zorder=0)
    ax.set(xscale="log", xlim=(1e-3, 10), ylim=(-68, 14))
    ax.set_xlabel("how hard it pulls: λ times the number printed above, on a logarithmic axis")
    ax.set_ylabel("difference to mse\nwith λ = 1 (points)")
    ticks = [0.001, 0.01, 0.1, 1, 10]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.grid(axis="y", alpha=0.3)
    return ax


@plots.described("By rounds, ten steps a round end far below ten epochs; by steps the two lie close together")
def by_steps() -> Figure:
    """Recorded accuracies of FedPLCC's two programs, by rounds and by the steps of a client."""
    recorded = results.accuracies("mini-fedplcc-iterations")
    figure, panels = plt.subplots(1, 2, figsize=(10.5, 3.4), sharey=True, layout="constrained")
    shared = {"rounds": 10, "steps": 100}  # the last that both programs have taken
    for ax, (unit, last) in zip(panels, shared.items(), strict=True):
        at_last = []
        for (row, steps), (reading, _), (colour, look) in zip(STEPS.items(), _PROGRAMS, _LOOKS, strict=True):
            of_seeds = recorded[row]
            places = of_seeds.columns * (steps if unit == "steps" else 1)
            at_last.append(of_seeds.set_axis(places, axis=1)[last])
            ax.plot(places, of_seeds.T, lw=0.6, ls=look, color=colour)
            ax.plot(places, of_seeds.mean(), lw=2.5, ls=look, color=colour, label=reading)
        epochs, steps = at_last
        gap = results.in_words(lead_of(list(steps - epochs)), "points").replace("-", "−")
        ax.axvline(last, color="0.6", lw=1, ls=":", zorder=0)
        ax.set_title(f"steps minus epochs\nafter {last} {unit}: {gap}", size="medium")
    panels[0].set(xlabel="round", ylabel="accuracy, mean of five domains (%)", ylim=(0, 100))
    panels[1].set(xlabel="steps that a client has taken, on a logarithmic axis", xscale="log")
    ticks = [10, 20, 50, 100, 200, 500, 1000]
    panels[1].set_xticks(ticks, ticks, minor=False)
    panels[1].minorticks_off()
    panels[0].legend(frameon=False, fontsize="small", loc="upper left")
    return figure
