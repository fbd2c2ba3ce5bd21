"""Pictures of notebook 04: clients in the plane, squares that break a lemma, printed numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from scipy.special import softmax

from fednb import data, plots, results
from fednb.leads import lead_of

_CLIENTS = ("#8c6bb1", "#2a9d8f")
_SUM = plots.colour("FedProto")
_NEVER_LEARNT = "#0173b2"
_ZERO = "black"
_OWN = "#cc78bc"
_DIGITS = ("#0173b2", "#de8f05", "#029e73", "#cc78bc")
_MARKERS = ("o", "^", "s", "D")
_ROUNDS = 30  # of the clients in the plane

Metrics = Sequence[Mapping[str, Any]]  # of a run, by round


@plots.described(
    "When the prototype follows client 2 from 0 to −1, client 1's square grows from 100 to 121, and the sum falls by 2"
)
def squares() -> Figure:
    """Squared distances as squares, before and after the server averages, and the rise of one."""
    ratios = (1, 1, 0.8)
    fig, (before, after, plane) = plt.subplots(1, 3, figsize=(12.5, 4), width_ratios=ratios)
    _two_bills(before, -12, 0, "client 2 has moved from −10 to −12")
    _two_bills(after, -12, -1, "the server has averaged")

    step = np.linspace(0, 2, 50)
    plane.fill_between(step, step, color="0.9")
    plane.plot(step, step, "k--", lw=1.5)
    plane.plot(step, (10 + step / 2) ** 2 - 100, color=_CLIENTS[0], lw=3)
    plane.plot(step, -(step**2) / 2, color=_SUM, lw=3)
    plane.annotate("client 1 pays more: 21", (0.02, 16.5), ha="left", color=_CLIENTS[0])
    plane.annotate("lemma 2 allows 2", (1.95, 3.2), ha="right")
    plane.annotate("both together pay less: −2", (1.95, -4.2), ha="right", color=_SUM)
    plane.set(xlabel="length of client 2's step", ylabel="rise when the server averages")
    plane.set(ylim=(-5.5, 22.5))
    return fig


def _two_bills(ax: Axes, second: float, centre: float, title: str) -> None:
    """Draw clients at 10 and ``second``, the prototype between them, and squares on both gaps."""
    for place, colour, name in ((10, _CLIENTS[0], "client 1"), (second, _CLIENTS[1], "client 2")):
        side = abs(place - centre)
        corner = (min(place, centre), 0)
        ax.add_patch(Rectangle(corner, side, side, color=colour, alpha=0.3, lw=0))
        ax.annotate(f"{side**2:g}", ((place + centre) / 2, side / 2), ha="center", fontsize=16)
        ax.plot(place, 0, "o", ms=11, color=colour, clip_on=False)
        ax.annotate(f"{name}\nat {place:g}".replace("-", "−"), (place, -1.2), ha="center", va="top", color=colour)
    ax.plot(centre, 0, "*", ms=18, color="black", clip_on=False)
    ax.annotate(f"prototype\nat {centre:g}".replace("-", "−"), (centre, -1.2), ha="center", va="top")
    total = (10 - centre) ** 2 + (second - centre) ** 2
    ax.annotate(f"{title}:\ntogether {total:g}", (-1, 14), ha="center", va="bottom")
    ax.set(aspect="equal", xlim=(-15, 13), ylim=(-5, 18))
    ax.axis("off")


# --- clients in the plane: the idea of the paper, small enough to be looked at


class Plane:
    """Clients with networks of their own, 64 pixels to two features, that train FedProto.

    Every client has the digits 1 and 2; those with an even number also 0 and a hidden layer of 16
    units, the others 3 and one of 6. ``lam`` is the weight of the squared distance to the global
    prototypes; at 0 everybody trains alone. All of it is written out in NumPy, so that a slider
    need not wait.
    """

    def __init__(self, lam: float, clients: int = 2, per_class: int = 20) -> None:
        digits = data.load("digits")
        draws = np.random.default_rng(1)
        self.lam = lam
        self.weights: list[list[np.ndarray]] = []
        self.images: list[np.ndarray] = []
        self.labels: list[np.ndarray] = []
        for client in range(clients):
            classes = (0, 1, 2) if client % 2 == 0 else (1, 2, 3)
            chosen = []
            for k in classes:
                of_class = np.flatnonzero(digits.labels.numpy() == k)
                chosen.append(of_class[client * per_class : (client + 1) * per_class])
            indices = np.concatenate(chosen)
            pixels = digits.images.numpy()[indices].reshape(len(indices), -1) / 255
            ones = np.ones((len(indices), 1))  # so that the first layer has a bias
            self.images.append(np.hstack([pixels, ones]))
            self.labels.append(digits.labels.numpy()[indices])
            hidden = 16 if client % 2 == 0 else 6
            shapes = ((65, hidden), (hidden, 2), (2, 4))
            self.weights.append([draws.normal(size=s) / s[0] ** 0.5 for s in shapes])
        self.prototypes: dict[int, np.ndarray] = {}

    def represent(self, client: int) -> np.ndarray:
        """The representations [n, 2] of a client's images."""
        first, second, _ = self.weights[client]
        return np.tanh(self.images[client] @ first) @ second

    def _step(self, client: int, lr: float) -> None:
        """One step of gradient descent on all images of a client."""
        first, second, third = self.weights[client]
        x = self.images[client]
        labels = self.labels[client]
        hidden = np.tanh(x @ first)
        z = hidden @ second
        of_logits = softmax(z @ third, axis=1) - np.eye(4)[labels]  # the cross-entropy's gradient
        of_z = of_logits @ third.T
        if self.prototypes:
            stars = np.stack([self.prototypes[k] for k in labels])
            of_z = of_z + 2 * self.lam * (z - stars)
        of_hidden = of_z @ second.T * (1 - hidden**2)
        third -= lr * z.T @ of_logits / len(x)
        second -= lr * hidden.T @ of_z / len(x)
        first -= lr * x.T @ of_hidden / len(x)

    def round(self, steps: int = 20, lr: float = 0.05) -> None:
        """Let every client train by itself, then take the mean of what they send."""
        sent: dict[int, list[np.ndarray]] = {}
        for client, labels in enumerate(self.labels):
            for _ in range(steps):
                self._step(client, lr)
            z = self.represent(client)
            for k in np.unique(labels).tolist():
                sent.setdefault(k, []).append(z[labels == k].mean(0))
        self.prototypes = {k: np.mean(means, axis=0) for k, means in sent.items()}

    def answers(self, client: int, z: np.ndarray) -> np.ndarray:
        """Which digits a client's output layer sees in representations z [n, 2], its own or another's."""
        return (z @ self.weights[client][2]).argmax(1)

    def apart(self) -> float:
        """Mean distance of the clients' own prototypes of 1 and 2 from the global ones."""
        found = []
        for client, labels in enumerate(self.labels):
            z = self.represent(client)
            for k in (1, 2):
                found.append(float(np.linalg.norm(z[labels == k].mean(0) - self.prototypes[k])))
        return sum(found) / len(found)

    def draw(self, ax: Axes, title: str) -> None:
        """Draw images as points, a marker for each client, and prototypes as stars."""
        for client, labels in enumerate(self.labels):
            z = self.represent(client)
            colours = [_DIGITS[k] for k in labels.tolist()]
            look = {"marker": _MARKERS[client % 4], "s": 22, "alpha": 0.55, "linewidths": 0}
            ax.scatter(z[:, 0], z[:, 1], c=colours, **look)
        for k, place in self.prototypes.items():
            ax.plot(*place, "*", ms=24, mfc="white", mec=_DIGITS[k], mew=2)
            ax.annotate(f"{k}", tuple(place), ha="center", va="center", fontsize=9)
        ax.set(title=title, xticks=[], yticks=[])


@plots.described("Alone, one client has its ones where the other has its twos; with FedProto they meet at the stars")
def stars(rounds: Sequence[int] = (1, 10, _ROUNDS)) -> Figure:
    """Two clients over rounds: alone in the upper row, with FedProto in the lower one."""
    fig, axes = plt.subplots(2, len(rounds), figsize=(10.8, 6), sharex="row", sharey="row", gridspec_kw={"hspace": 0.08})
    for row, lam, name in zip(axes, (0.0, 0.1), ("each alone", "FedProto"), strict=True):
        plane = Plane(lam)
        done = 0
        for ax, wanted in zip(row, rounds, strict=True):
            while done < wanted:
                plane.round()
                done += 1
            plane.draw(ax, f"{name}, round {wanted}")
        row[0].margins(0.1, 0.16)
        answers = plane.answers(0, plane.represent(1)[plane.labels[1] == 1])
        k = int(np.bincount(answers).argmax())
        called = ("zero", "one", "two", "three")[k]
        row[-1].set_xlabel(f"A calls {(answers == k).sum()} of B's {len(answers)} ones a {called}")
        if not lam:
            _name_ones_and_twos(row[-1], plane)
    _legend(fig)
    return fig


def _legend(fig: Figure) -> None:
    """Say below what the markers are."""
    look: dict[str, Any] = {"color": "0.3", "ls": "", "ms": 7}
    marks = [
        Line2D([], [], marker=_MARKERS[0], label="client A: digits 0, 1, 2", **look),
        Line2D([], [], marker=_MARKERS[1], label="client B: digits 1, 2, 3", **look),
        Line2D([], [], marker="*", mfc="white", color="0.3", ls="", ms=16, label="the server's mean of a digit"),
    ]
    fig.legend(handles=marks, frameon=False, loc="outside lower center", ncols=3)


def _name_ones_and_twos(ax: Axes, plane: Plane) -> None:
    """Say whose are the ones and twos of two clients that have trained alone."""
    look: dict[str, Any] = {"weight": "bold", "size": 10, "ha": "center"}
    for client, k, name in ((0, 1, "A's ones"), (1, 2, "B's twos")):
        x, y = plane.represent(client)[plane.labels[client] == k].T
        plots.label(ax, (x.mean(), y.min() - 0.3), name, (0, 0), color=_DIGITS[k], va="top", **look)
    x, y = plane.represent(0)[plane.labels[0] == 2].T
    plots.label(ax, (x.mean(), y.max() + 0.3), "A's twos", (0, 0), color=_DIGITS[2], va="bottom", **look)
    ones = plane.represent(1)[plane.labels[1] == 1]
    x, y = ones[ones[:, 0] < np.quantile(ones[:, 0], 0.4)].T  # the left end of their arc
    plots.label(ax, (x.mean(), y.max() + 0.3), "B's ones", (0, 0), color=_DIGITS[1], va="bottom", **look)


@plots.described("Alone, clients lie apart; with a larger λ points come to their stars; at λ = 1 stars 0 and 3 nearly meet")
def weights(lams: Sequence[float] = (0, 0.01, 0.1, 1)) -> Figure:
    """The clients in the plane after their last round, for several λ."""
    fig, axes = plt.subplots(1, len(lams), figsize=(12, 3.8), sharex=True, sharey=True)
    for ax, lam in zip(axes, lams, strict=True):
        plane = _after_all_rounds(ax, lam)
    axes[0].set_title("λ = 0, each alone")
    between = (plane.prototypes[0] + plane.prototypes[3]) / 2  # with the largest λ
    ax.plot(*between, "o", ms=58, mfc="none", mec="black", mew=1.2)
    _legend(fig)
    return fig


def weight_to_move(log10_of_lam: float = -1.0, clients: int = 2) -> None:
    """Show one frame of `weights`, for so many clients: what sliders call."""
    ax = plt.figure(figsize=(5, 4.4)).subplots()
    lam = 10**log10_of_lam
    _after_all_rounds(ax, lam, clients)
    plots.show(ax, f"Images and stars at λ = {lam:.3g} with {clients} clients")


def _after_all_rounds(ax: Axes, lam: float, clients: int = 2) -> Plane:
    plane = Plane(lam, clients)
    for _ in range(_ROUNDS):
        plane.round()
    plane.draw(ax, f"λ = {lam:.3g}")
    ax.set_xlabel(f"from star to a client's mean: {plane.apart():.2f}")
    return plane


def _few(ax: Axes, histories: Mapping[str, Metrics]) -> None:
    """Accuracy among own classes (%) over rounds, of clients that have few images."""
    colours = {"training alone": plots.colour("Local"), "FedProto": _SUM}
    colours |= {"never learnt": _NEVER_LEARNT, "zero": _ZERO}
    for name, metrics in histories.items():
        history = pd.DataFrame(metrics)
        colour = colours[name]
        smooth = history["accuracy/local classes"].rolling(5, center=True, min_periods=1).mean()
        ax.plot(history["round"], smooth, color=colour, label=name, **_style_of(colour))
    ax.set(xlabel="communication round", ylabel="accuracy among own classes (%)")
    ax.set_title("five images of a class, one run (means of five rounds)", size=12)
    ax.legend(frameon=False, loc="lower right")


@plots.described(
    "Pulled to everybody's means, a pattern, or zero, accuracy rises earlier than alone; in the end the gain is 0"
)
def targets(histories: Mapping[str, Metrics]) -> Figure:
    """A run with each pull, and what recorded pulls gain."""
    figure, (run, recorded) = plt.subplots(1, 2, figsize=(12, 4.4))
    _few(run, histories)
    _gains(recorded)
    return figure


@plots.described("Over the learning rate FedProto and the pull to zero lie near each other, and above training alone")
def rates() -> Axes:
    """Accuracy after the last round over the learning rate: alone, with FedProto and pulled to zero."""
    ax = plt.figure(figsize=(7, 3.8)).subplots()
    etas = (0.02, 0.05, 0.1, 0.2, 0.4)
    lines = {
        "nothing": ("training alone", plots.colour("Local")),
        "everybody's means (FedProto)": ("FedProto", _SUM),
        "zero, for every class": ("pulled to zero", _ZERO),
    }
    for shift, (row, (name, colour)) in zip((-1, 0, 1), lines.items(), strict=True):
        cells = [results.cell("digits-fedproto-rates", row, f"η={eta:g}") for eta in etas]
        places = [1.025**shift * eta for eta in etas]
        means = [np.mean(one.values) for one in cells]
        ax.plot(places, means, color=colour, label=name, **_style_of(colour))
        for place, mean, one in zip(places, means, cells, strict=True):
            ax.plot([place] * len(one.values), one.values, "o", ms=3, color=colour, alpha=0.4, mew=0)
            if one.diverged:
                lost = f"mean of {len(one.values)}:\n{one.statuses.count('diverged')} diverged"
                plots.label(ax, (place, mean), lost, (8, 0), va="center", ha="left", size=9, color=colour)
    ax.set_xscale("log")
    ax.set_xticks(etas, [f"{eta:g}" for eta in etas])
    ax.minorticks_off()
    ax.set(xlabel="learning rate η of the clients", ylabel="accuracy among own classes (%)")
    ax.set_title(f"five images of a class, after 20 rounds ({len(cells[0].seeds)} seeds)", size=12)
    ax.legend(frameon=False, loc="upper left")
    return ax


def _style_of(colour: str) -> dict[str, Any]:
    """Dashes for what lies on another line, and a broad one below them."""
    if colour == _NEVER_LEARNT:
        return {"lw": 5, "alpha": 0.6}
    return {"lw": 2.5, "ls": "--" if colour == _ZERO else "-"}


def _gains(ax: Axes) -> None:
    """What pulls gain over none: means over seeds and five rounds, with 95 % intervals at some rounds."""
    recorded = results.accuracies("digits-fedproto-targets")
    nothing = recorded["nothing, 100 rounds"]
    looks = {
        "everybody's means (FedProto)": ("FedProto", _SUM),
        "blocks, never learnt": ("never learnt", _NEVER_LEARNT),
        "zero, for every class": ("zero", _ZERO),
        "only its own means": ("its own means", _OWN),
    }
    for shift, (row, (name, colour)) in zip((-0.9, -0.3, 0.3, 0.9), looks.items(), strict=True):
        gains = recorded[f"{row}, 100 rounds"] - nothing
        smooth = gains.T.rolling(5, center=True, min_periods=1).mean().T
        leads = [lead_of(list(smooth[t])) for t in smooth.columns]
        middle = np.array([lead.mean for lead in leads])
        half = np.array([lead.half_width for lead in leads])
        ax.plot(gains.columns, middle, color=colour, label=name, **_style_of(colour))
        some = [gains.columns.get_loc(t) for t in (10, 20, 30, 40, 60, 80, 98)]
        places = gains.columns.to_numpy()[some] + shift
        ax.errorbar(places, middle[some], yerr=half[some], fmt="none", color=colour, lw=1.2, capsize=2)
    ax.axhline(0, color="0.3", lw=0.8)
    ax.set(xlabel="communication round", ylabel="points more than with no pull")
    ax.set_title(f"what pulls gain: {len(nothing)} seeds, 95 % intervals, means of five rounds", size=12)
    ax.legend(frameon=False, loc="upper right")


# --- recorded runs


@plots.described(
    "Each seed's line is nearly flat from λ = 0 to λ = 4: the pull changes accuracy by less than seeds do; beside them the"
    " end of the run above, for both kinds of answers"
)
def ladder(metrics: Mapping[str, Sequence[float]]) -> Axes:
    """Accuracy (%) on the digits over λ, a line for each seed and their mean, and where the run of ``metrics`` ends."""
    ax = plt.figure(figsize=(7.4, 3.4)).subplots()
    columns = ("λ=0 (Local)", "λ=0.1", "λ=1", "λ=4")
    cells = [results.cell("digits-fedproto-lam", row, "Digits") for row in columns]
    for seed in cells[0].by_seed:
        ax.plot(range(len(cells)), [one.by_seed[seed] for one in cells], "o-", color=_SUM, ms=4, lw=1, alpha=0.4)
    ax.plot(range(len(cells)), [one.mean for one in cells], color="black", lw=3)
    ends = {"by the classifier": "accuracy", "by the nearest star": "accuracy/prototype"}
    found = {words: metrics[name][-1] for words, name in ends.items() if name in metrics}
    close = np.ptp([*found.values()]) < 0.3
    for words, end in found.items():
        star = "star" in words
        look: dict[str, Any] = {"mfc": "white", "ms": 15} if star else {"ms": 8}
        ax.plot(len(cells), end, "*" if star else "o", color=_SUM, **look)
        shift = (11, (6 if star else -6) if close else 0)
        plots.label(ax, (len(cells), end), f"{words}: {end:.1f} %", shift, va="center", size=10)
    ax.set_xticks(range(len(cells) + 1), ["0, each alone", "0.1", "1", "4", "the run above"])
    ax.set(xlabel="weight λ of the pull", ylabel="accuracy (%)", xlim=(-0.3, len(cells) + 1.6))
    ax.set_title(f"digits: {len(cells[0].values)} seeds, and their mean (black)", size=12)
    return ax


@plots.described(
    "Clients' spreads: the paper's small for FedProto and large for the two others; ours lie near one another for all three"
)
def spreads() -> Figure:
    """How much clients' accuracies differ, by method and for n = 3, 4 and 5: reported, and ours."""
    fig, axes = plt.subplots(1, 3, figsize=(12.5, 2.9), sharex=True, sharey=True)
    names = {"FedAvg": "FedAvg", "Local": "training alone", "FedProto": "FedProto"}
    for ax, n in zip(axes, (3, 4, 5), strict=True):
        _beside_print(ax, "fedproto-2-std", names, f"n={n}")
        ax.set(title=f"n = {n} classes a client", xlim=(0, 7), ylim=(-0.5, 2.5))
    axes[1].set_xlabel("standard deviation of the clients' accuracies (points)")
    fig.suptitle("MNIST. Rings: reported in the paper's Table 2. Dots: ours, one for each seed")
    return fig


@plots.described("Counted as the code does, our spreads fall to about the third that is predicted, near the reported ones")
def printed_spreads(share: float) -> Figure:
    """The ± over FedProto's clients, counted for each client by itself, and as the code counts.

    ``share``: what a spread should become if it is counted as the published code does.
    """
    fig, axes = plt.subplots(1, 3, figsize=(12.5, 3.6), sharey=True)
    for ax, n in zip(axes, (3, 4, 5), strict=True):
        by_client = results.cell("fedproto-2-std", "FedProto, stdev 2", f"n={n}")
        as_code = results.cell("fedproto-2-counters", "FedProto, stdev 2", f"n={n}")
        for seed, spread in by_client.by_seed.items():
            ax.plot([0, 1], [spread, as_code.by_seed[seed]], "o-", color=_SUM, alpha=0.6)
        predicted = share * np.mean(by_client.values)
        ax.plot([0.85, 1.15], [predicted, predicted], color="black", lw=2, label="predicted")
        ax.plot(2, as_code.printed, "o", **plots.PRINTED)
        ax.plot([1, 2], [as_code.printed] * 2, color="0.25", lw=1, ls=":")
        ax.set_xticks([0, 1, 2], ["ours, each\nby itself", "ours, as the\ncode counts", "the paper\nreports"])
        ax.set(title=f"n = {n} classes a client", xlim=(-0.4, 2.4), ylim=(0, None))
    axes[0].set_ylabel("± over clients (points)")
    axes[-1].legend(frameon=False, loc="upper right")
    return fig


@plots.described(
    "FedAvg's lines rise from below FedProto's to above them when all choose among own classes; training alone stays flat."
    " The paper's rings for FedAvg and training alone lie below ours"
)
def own_classes() -> Figure:
    """FedAvg, training alone and FedProto: reported, as the paper compares, and among own classes."""
    fig, axes = plt.subplots(1, 3, figsize=(12.5, 4.3), sharex=True, sharey=True)
    looks = {"FedAvg": "o-", "Local": "s:", "FedProto": "o-"}
    for ax, n in zip(axes, (3, 4, 5), strict=True):
        for shift, (name, look) in zip((-0.06, 0, 0.06), looks.items(), strict=True):
            paper, own = (results.cell(table, f"{name}, stdev 2", f"n={n}") for table in ("fedproto-2", "fedproto-2-local"))
            colour = plots.colour(paper.method)
            for seed, accuracy in paper.by_seed.items():
                ends = [accuracy, own.by_seed[seed]]
                ax.plot([1 + shift, 2 + shift], ends, look, color=colour, ms=4, lw=1.2, alpha=0.8)
            ax.plot(shift, paper.printed, "o", ms=10, mfc="white", mec=colour, mew=2)
            label = {"size": 10, "va": "center", "color": "0.45" if name == "Local" else colour}
            words = "training alone" if name == "Local" else name
            if n == 5:  # where the ends lie apart
                plots.label(ax, (2.06, own.mean), words, (6, 0), **label)
            if n == 3:
                ring = "FedAvg, Table 2" if name == "FedAvg" else words
                plots.label(ax, (0.06, paper.printed), ring, (11, 0), **label)
        ax.set_xticks([0, 1, 2], ["the paper\nreports", "ours, as the\npaper compares", "ours, among\nown classes"])
        ax.set(title=f"n = {n} classes a client", xlim=(-0.4, 2.4))
    other = results.cell("fedproto-1", "MNIST, FedAvg", "n=3").printed
    grey = plots.colour("FedAvg")
    axes[0].plot(-0.06, other, "o", ms=10, mfc="white", mec=grey, mew=2)
    plots.label(axes[0], (0.06, other), "FedAvg, Table 1", (11, 0), va="center", size=10, color=grey)
    axes[0].set_ylabel("accuracy on MNIST (%)")
    return fig


def _beside_print(ax: Axes, table: str, names: Mapping[str, str], column: str) -> None:
    """A line for each method: what is reported as a ring, and ours, a dot for each seed."""
    for place, name in enumerate(names):
        cell = results.cell(table, f"{name}, stdev 2", column)
        colour = plots.colour(cell.method)
        if cell.printed is not None and cell.mean is not None:
            ax.plot([cell.printed, cell.mean], [place, place], color=colour, lw=2, alpha=0.5)
            ax.plot(cell.printed, place, "o", **plots.PRINTED)
        ax.plot(cell.values, [place] * len(cell.values), "o", color=colour, ms=6, alpha=0.7)
    ax.set_yticks(range(len(names)), list(names.values()))
