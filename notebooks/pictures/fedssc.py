"""Pictures of notebook 03: what drawn clients share of a class, and what a client wants to know."""

from collections.abc import Callable, Mapping
from itertools import combinations, pairwise
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from fednb.papers.pictures.fedproc import CONTROL
from fednb.papers.pictures.foundations import history
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Wedge

from fednb import partition, plots, results
from fednb.federation import Federation
from fednb.leads import interval

_CLASSES = ("#440154", "#21918c", "#c25e00")  # a colour for each of three classes
_SECTOR = 30  # degrees to both sides of a class's arrow, in which its images lie
_CLIENTS = 10  # of the sketch
_TURNED = np.array([-20, -2, 16, 33, 47, 59, 71, 85, 103, 132])  # where each of them sees one class, in degrees
_MEANS = np.stack([np.cos(np.radians(_TURNED)), np.sin(np.radians(_TURNED))], 1)
_CENTRE = _MEANS.mean(0)
_WANTED = 45  # degrees from the direction of the mean to the star


@plots.described(
    "Accuracy over the rounds at two rates, and rounds saved to 80 %: at the smaller rate shared means save a round or less,"
    " with five times the weight about two, and own means none; at the larger rate nobody saves a round, and five times the"
    " weight costs some; unit norm saves two, and nearly one"
)
def over_rounds() -> Figure:
    """Accuracy over the rounds at two rates, means of ten seeds: class means of one kind or none, or unit norm.

    Below, how many rounds each saves to 80 % over FedAvg, in pairs, with the 95 % interval.
    """
    of_rates = {"0.01": "digits-fedssc-own", "0.03": "digits-fedssc-rate"}
    everybody = {"0.01": "all devices", "0.03": "without l_moon, k=10"}
    green = plots.colour("FedSSC")
    rows = {  # by row of the table: name, colour and dashes
        "FedAvg": ("no means (FedAvg)", plots.colour("FedAvg"), "-"),
        "its own means": ("a client's own", green, ":"),
        "one drawn device": ("one drawn client's", green, "-"),
        "": ("those of all", green, "--"),
        "its own means, mu_glob=5": ("a client's own, weight 5", "black", ":"),
        "one drawn device, mu_glob=5": ("one drawn client's, weight 5", "black", "-"),
        "FedAvg, z of length 1": ("no means, unit norm", CONTROL, "-"),
    }
    sizes: dict[str, Any] = {"figsize": (10, 7), "height_ratios": (1.25, 1)}
    figure, axes = plt.subplots(2, 2, sharey="row", layout="constrained", **sizes)
    of_weights = results.accuracies("digits-fedssc-own-weight")
    for (above, below), (rate, table) in zip(axes.T, of_rates.items(), strict=True):
        fedavg = _round_at(80, of_weights[f"FedAvg, lr={rate}"])
        above.axhline(80, color="0.85", lw=1)
        below.axvline(0, color=plots.colour("FedAvg"), lw=1.5, zorder=0)
        for y, (row, (_, colour, dashes)) in enumerate(rows.items()):
            of_seeds = of_weights[f"{row}, lr={rate}"] if row else results.accuracies(table)[everybody[rate]]
            above.plot(of_seeds.mean(), dashes, color=colour, lw=2)
            if row == "FedAvg":
                continue
            mean, half = interval((fedavg - _round_at(80, of_seeds)).tolist())
            face = colour if abs(mean) > half else "white"
            below.errorbar(mean, y, xerr=half, fmt="o", color=colour, mfc=face, ms=6, capsize=3)
            number = f"{mean:+.1f} ± {half:.1f}".replace("-", "−")
            right: dict[str, Any] = {"ha": "right", "va": "center", "transform": below.get_yaxis_transform()}
            below.text(1, y, number, color=colour, **right)
        above.set(title=f"η = {rate}", xlabel="round", xticks=range(1, 11))
        below.set(xlabel="rounds saved to 80 %, over FedAvg", xlim=(-5.6, 6.2), xticks=(-4, -2, 0, 2), ylim=(6.6, -0.6))
        below.tick_params(axis="y", length=0)
        below.spines["left"].set_visible(False)
    axes[0, 0].set_ylabel("accuracy (%)")
    last = axes[1, 0]
    last.set_yticks(range(len(rows)), [name for name, *_ in rows.values()])
    last.tick_params(axis="y", pad=38)  # left of it a sample of each line
    for y, (tick, (_, colour, dashes)) in enumerate(zip(last.get_yticklabels(), rows.values(), strict=True)):
        tick.set_color(colour)
        sample: dict[str, Any] = {"transform": last.get_yaxis_transform(), "clip_on": False}
        last.plot([-0.09, -0.01], [y, y], dashes, color=colour, lw=2, **sample)
    return figure


def _round_at(accuracy: float, of_seeds: pd.DataFrame) -> pd.Series:
    """The round in which each seed first has an accuracy, between two rounds on a line; never counts as the last."""
    reached = {}
    for seed, curve in of_seeds.iterrows():
        places = np.flatnonzero(curve >= accuracy)
        reached[seed] = float(curve.index[-1])
        if len(places) and places[0] > 0:
            first = places[0]
            before, after = curve.iloc[first - 1], curve.iloc[first]
            reached[seed] = curve.index[first] - (after - accuracy) / (after - before)
    return pd.Series(reached)


@plots.described(
    "Ten arrows scattered on a circle, a star beside them; their mean is shorter, and points beside the star, too"
)
def draws() -> Figure:
    """A sketch with made-up directions: more clients remove the scatter of a draw, not its bias."""
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), width_ratios=(1, 1, 1.2))
    _arrows(axes[0], 1)
    axes[0].set_title("each arrow: one possible draw")
    _arrows(axes[1], _CLIENTS)
    axes[1].set_title("the mean of all ten")
    _error(axes[2])
    return figure


def draw(number: int = 3) -> None:
    """Show the sketch for one number of drawn clients: what a slider calls."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2))
    _arrows(left, number)
    left.set_title(f"the mean of {number} of ten" if number > 1 else "each arrow: one possible draw")
    _error(right)
    right.axvline(number, color="black", ls=":")
    plots.show(figure, f"The mean of {number} of ten clients, and the error of such a mean")


def _means_of(number: int) -> np.ndarray:
    """The mean of each possible draw of so many clients."""
    return np.stack([_MEANS[list(drawn)].mean(0) for drawn in combinations(range(_CLIENTS), number)])


def _star() -> np.ndarray:
    """Where the class lies in the averaged network, on the circle."""
    return _on_circle(np.degrees(np.arctan2(_CENTRE[1], _CENTRE[0])) + _WANTED)


def _arrows(ax: Axes, number: int) -> None:
    """Draw the mean of each possible draw of so many clients in the circle, and the star that is wanted."""
    means, colour = _means_of(number), plots.colour("FedSSC")
    ax.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.8"))
    for tip in means if len(means) <= _CLIENTS else []:
        ax.plot(*np.transpose([(0, 0), tip]), color=colour, lw=4 if len(means) == 1 else 1.6)
    ax.scatter(*means.T, s=40 if len(means) <= _CLIENTS else 10, color=colour, lw=0, zorder=3)
    if len(means) == 1:  # its direction, which is all that the loss sees
        end = _CENTRE / np.linalg.norm(_CENTRE)
        ax.plot(*np.transpose([_CENTRE, end]), color=colour, lw=1.2, ls=":")
    ax.plot(*np.transpose([(0, 0), _star()]), color="black", lw=1, ls=(0, (4, 3)))
    ax.plot(*_star(), "k*", ms=14, zorder=4)
    ax.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
    ax.axis("off")


def _error(ax: Axes) -> None:
    """Draw the two parts of the sketch's error over the number of clients."""
    numbers = np.arange(1, _CLIENTS + 1)
    errors = []
    for number in numbers:
        means = _means_of(number)
        errors.append(1 - (means @ _star() / np.linalg.norm(means, axis=1)).mean())
    bias = errors[-1]
    colours = ["0.3", plots.colour("FedSSC")]
    ax.stackplot(numbers, np.full(_CLIENTS, bias), np.array(errors) - bias, colors=colours)
    ax.text(5, bias / 2, "bias", color="white", ha="center", va="center")
    ax.text(2.6, bias + 0.4 * (errors[0] - bias), "scatter", color=plots.colour("FedSSC"))
    ax.set(xlabel="clients drawn, n", ylabel="error, 1 \u2212 cosine")
    ax.set(xticks=(1, 3, 5, 10), xlim=(1, _CLIENTS))


@plots.described("Ten clients and ten classes: who has images, who sends a mean, and who is drawn")
def one_round(federation: Federation) -> Figure:
    """Who has images of which class, who sends its mean, and whose mean all clients get."""
    labels = federation.images.labels.numpy()
    counts = partition.class_counts(federation.parts, labels, len(federation.dataset.classes))
    shared = np.zeros_like(counts, dtype=bool)
    drawn: dict[int, int] = {}  # class: client
    pool = federation.server["prototypes"]
    for k, client in zip(pool["labels"].tolist(), pool["owners"].tolist(), strict=True):
        shared[client, k] = True
        drawn.setdefault(k, client)  # the first of the shuffled means of a class
    figure, ax = plt.subplots(figsize=(6.4, 4.2))
    for is_sent, colour, label in (
        (False, "0.8", "too few images: nothing is sent"),
        (True, plots.colour("FedSSC"), "its mean is sent to the server"),
    ):
        client, of_class = np.nonzero((shared == is_sent) & (counts > 0))
        sizes = 220 * counts[client, of_class] / counts.max() + 6
        ax.scatter(of_class, client, s=sizes, color=colour, lw=0)
        ax.scatter([], [], s=80, color=colour, lw=0, label=label)
    ring: dict[str, Any] = {"s": 330, "fc": "none", "ec": "black", "lw": 1.8}
    ax.scatter(list(drawn), list(drawn.values()), **ring)
    ax.scatter([], [], s=150, fc="none", ec="black", lw=1.8, label="drawn: this mean goes to all")
    ax.set(xlabel="class", ylabel="client", ylim=(len(counts) - 0.4, -0.6))
    if counts.shape[1] <= 10:
        ax.set_xticks(range(counts.shape[1]))
    ax.set_yticks(range(len(counts)))
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 1}
    ax.legend(frameon=False, fontsize="small", **place)
    return figure


def where_classes_go(way: str, num_rounds: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Angles (degrees) of three classes before the first round and after each, and the model's accuracy (%).

    Two clients have two of the classes each, and all train the cross-entropy of an output layer.
    ``way`` is "FedAvg", for no more than that, "own" with the contrast with a client's own means, "shared"
    with vectors of all three classes, or "fixed" with three directions that nobody sends.
    """
    fixed = np.radians([0.0, 120.0, 240.0])
    average, rows = np.radians([92.0, 80.0, 100.0]), np.zeros((3, 2))  # of the network and its output layer
    path, accuracies = [average], [_toy_accuracy(average, rows)]
    ends = [average, average]  # of client A and of client B, after their training
    for t in range(num_rounds):
        before, ends, layers = ends, [], []
        drawn = np.array([before[0][0], before[t % 2][1], before[1][2]])  # for class 1 A and B in turn
        for client, own in enumerate(([0, 1], [1, 2])):  # the classes of client A, and of client B
            known, vectors = own, before[client]
            if way in ("shared", "fixed"):
                known, vectors = [0, 1, 2], drawn if way == "shared" else fixed
            local, layer = average.copy(), rows.copy()
            for _ in range(20):  # down the gradient of the loss, in the angles and in the rows
                z = np.stack([np.cos(local[own]), np.sin(local[own])], 1)
                wrong = _softmax(z @ layer.T) - np.eye(3)[own]
                gradient = (wrong @ layer * z[:, ::-1] * [-1, 1]).sum(1)
                if way != "FedAvg":
                    turned = local[own, None] - vectors[known]
                    wrong_too = _softmax(np.cos(turned) / 0.5) - np.eye(3)[own][:, known]
                    gradient -= (wrong_too * np.sin(turned)).sum(1) / 0.5
                local[own] -= 0.05 * gradient
                layer -= 0.05 * wrong.T @ z
            ends.append(local)
            layers.append(layer)
        average, rows = np.mean(ends, 0), np.mean(layers, 0)
        path.append(average)
        accuracies.append(_toy_accuracy(average, rows))
    return np.degrees(path), np.array(accuracies)


def _toy_accuracy(angles: np.ndarray, rows: np.ndarray) -> float:
    """How many images (%) the output layer gets right, which fill a sector around each class's arrow."""
    places = angles[:, None] + np.radians(np.linspace(-_SECTOR, _SECTOR, 61))
    logits = np.stack([np.cos(places), np.sin(places)], 2) @ rows.T
    return float(100 * (logits.argmax(2) == np.arange(3)[:, None]).mean())


def _softmax(logits: np.ndarray) -> np.ndarray:
    """The softmax of each row."""
    powers = np.exp(logits)
    return powers / powers.sum(1, keepdims=True)


@plots.described(
    "Three classes start in overlapping sectors, and no client holds both 0 and 2; after five rounds shared vectors have"
    " parted all three, while FedAvg and own means still mix 0 and 2, and take about twice as long; fixed directions, which"
    " nobody sends, part them sooner still"
)
def two_clients(after: int = 5) -> Figure:
    """How three classes part that two clients have two by two: sectors of a circle, and accuracy over the rounds."""
    figure = plt.figure(figsize=(10, 6.6), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(1, 1.15))
    circles = above.subplots(1, 5)
    start, (first, *_) = where_classes_go("FedAvg", 0)
    _three_classes(circles[0], start[0])
    circles[0].set_title("start")
    circles[0].text(0, -1.25, f"A has 0 and 1,\nB has 1 and 2:\n{first:.0f} % right", ha="center", va="top")
    ax = below.subplots()
    ways = {  # name, colour, dashes, and where the name stands at its line
        "FedAvg": ("FedAvg", plots.colour("FedAvg"), "-", (6.3, 70)),
        "own": ("own means", "0.55", "--", (5.2, 82)),
        "shared": ("shared vectors", plots.colour("FedSSC"), "-", (5.2, 91)),
        "fixed": ("fixed directions (nothing is sent)", "black", ":", (0.2, 108)),
    }
    for circle, (way, (name, colour, dashes, place)) in zip(circles[1:], ways.items(), strict=True):
        path, accuracy = where_classes_go(way)
        dark = colour if way != "own" else "0.4"
        _three_classes(circle, path[after])
        circle.set_title(name.partition(" (")[0], color=dark)
        circle.text(0, -1.25, f"after {after} rounds:\n{accuracy[after]:.0f} % right", ha="center", va="top")
        ax.plot(accuracy[:16], dashes, color=colour, lw=2.5)
        ax.text(*place, name, color=dark, va="center")
    ax.axvline(after, color="0.8", lw=1, zorder=0)
    ax.set(xlabel="communication round", ylabel="accuracy (%)", ylim=(25, 113), xlim=(0, 15))
    ax.set(xticks=(0, 5, 10, 15), yticks=(33, 67, 100))
    return figure


def _three_classes(ax: Axes, angles: np.ndarray) -> None:
    """Draw the three classes as arrows on the circle, each in the sector of its images, with their names."""
    ax.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.8"))
    for k, place in enumerate(_spread(angles)):
        edges = (angles[k] - _SECTOR, angles[k] + _SECTOR)
        ax.add_patch(Wedge((0, 0), 1, *edges, color=_CLASSES[k], alpha=0.25, lw=0))
        ax.plot(*np.transpose([(0, 0), _on_circle(angles[k])]), color=_CLASSES[k], lw=2.5)
        text: dict[str, Any] = {"ha": "center", "va": "center", "weight": "bold"}
        ax.text(*(1.2 * _on_circle(place)), str(k), color=_CLASSES[k], **text)
    ax.set(xlim=(-1.3, 1.3), ylim=(-2.2, 1.35), aspect="equal")
    ax.axis("off")


def _on_circle(degrees: float) -> np.ndarray:
    """The point of the unit circle at an angle."""
    return np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])


def _spread(angles: np.ndarray, least: float = 14.0) -> np.ndarray:
    """Places of the classes' names (degrees): where the arrows point, but so far apart that all can be read."""
    places = angles.copy()
    for _ in range(50):
        order = np.argsort(places)
        for first, second in pairwise(order):
            missing = least - (places[second] - places[first])
            if missing > 0:
                places[first] -= missing / 2
                places[second] += missing / 2
    return places


@plots.described(
    "From own to shared means the mean angle falls where one client holds both classes, and grows where none does, on nearly"
    " every seed; FedAvg's angles are smaller"
)
def angles_between() -> Figure:
    """Mean angles between two classes of the averaged network: an arrow from own to shared means for each seed."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
    columns = {"one client holds both": "0.45", "no client holds both": plots.colour("FedSSC")}
    rows = {"FedAvg": "FedAvg", "its own means": "own means", "one drawn device": "shared vectors"}
    for ax, (column, colour) in zip(axes, columns.items(), strict=True):
        angles = [results.cell("digits-fedssc-angles", row, column).values for row in rows]
        for x, values in enumerate(angles):
            look = {"fc": "none" if x < 2 else colour, "ec": colour, "s": 26, "zorder": 3}
            ax.scatter([x] * len(values), values, **look)
            ax.plot([x - 0.22, x - 0.1], [np.mean(values)] * 2, color=colour, lw=3)
        for x, step in enumerate(pairwise(angles)):
            for start, end in zip(*step, strict=True):
                arrow: dict[str, Any] = {
                    "arrowstyle": "-|>",
                    "color": colour,
                    "alpha": 0.4 + 0.4 * x,
                    "shrinkA": 4,
                    "shrinkB": 4,
                }
                ax.annotate("", (x + 1, end), (x, start), arrowprops=arrow)
        ax.set_xticks(range(3), list(rows.values()))
        ax.set(title=column, xlim=(-0.4, 2.4))
    axes[0].set_ylabel("mean angle of two classes (degrees)")
    return figure


@plots.described(
    "Bias and scatter fall over the rounds, sooner at the larger rate, and so does the lead of all clients' means over one"
    " client's"
)
def scatter_and_lead() -> Figure:
    """Both parts of the error of one drawn client's means over the rounds, and how far the means of all are ahead.

    In columns two learning rates; above five recorded seeds, below the ten of section 4, in pairs.
    """
    figure, axes = plt.subplots(2, 2, figsize=(9.5, 5.4), sharex=True, sharey="row", layout="constrained")
    bias, scatter = (results.accuracies(f"digits-fedssc-{part}") for part in ("bias", "scatter"))
    columns = {
        "0.01": ("", "digits-fedssc-own", "one drawn device", "all devices"),
        "0.03": ("lr=0.03, ", "digits-fedssc-rate", "without l_moon", "without l_moon, k=10"),
    }
    green = plots.colour("FedSSC")
    for (above, below), (rate, (prefix, table, one, everybody)) in zip(axes.T, columns.items(), strict=True):
        of_bias = bias[f"{prefix}one drawn device"].mean()
        error = of_bias + scatter[f"{prefix}one drawn device"].mean()
        of_fedavg = bias[f"{prefix}FedAvg"].mean() + scatter[f"{prefix}FedAvg"].mean()
        above.fill_between(of_bias.index, of_bias, error, color=green, lw=0, label="scatter")
        above.fill_between(of_bias.index, 0, of_bias, color="0.8", lw=0, label="bias")
        above.plot(of_fedavg, ":", color=plots.colour("FedAvg"), lw=2, label="FedAvg's error, both parts")
        above.set(title=f"η = {rate}", ylim=(0, None))
        accuracies = results.accuracies(table)
        leads = accuracies[everybody] - accuracies[one]
        below.axhline(0, color="0.6", lw=1, zorder=0)
        for t in leads.columns[1:]:  # in the first round nothing has been received
            mean, half = interval(leads[t].tolist())
            face = green if abs(mean) > half else "white"
            below.errorbar(t, mean, half, fmt="o", color=green, mfc=face, capsize=3)
        below.set(xlabel="round", xticks=leads.columns)
    axes[0, 0].set_ylabel("error of one client's means\n(1 − cosine)")
    axes[1, 0].set_ylabel("means of all ahead of\none client's (points)")
    axes[0, 1].legend(frameon=False, fontsize="small")
    return figure


@plots.described("Accuracy rises as FedAvg's; the class contrast falls until about round eight, and then rises a little")
def the_run(record: Mapping[str, Any], name: str, weight: Callable[..., float]) -> Figure:
    """A run's accuracy and the terms of its loss, beside the recorded run of FedAvg with seed 0.

    The class contrast is drawn without its weight, which falls from the dotted line on. ``weight`` gives
    it by the round, the number of rounds, where it begins and ends, and the rounds of the warm-up.
    """
    figure = history(record, name)
    left, right = figure.axes
    of_fedavg = results.accuracies("digits-fedssc")["FedAvg"].loc[0]
    left.plot(of_fedavg, color="0.6", zorder=0, label="FedAvg, seed 0")
    left.legend(fontsize="small", frameon=False)
    for line in list(right.lines):
        terms = np.array(line.get_ydata(), dtype=float)
        terms[terms == 0] = np.nan  # a contrast without vectors is none
        if line.get_label() == "class-contrast" and record["settings"]["mu_glob_schedule"] == "hold":
            terms /= _weights_of(record["settings"], weight)
            label = "from here on its weight falls"
            right.axvline(record["settings"]["warmup"] + 1, color="0.6", ls=":", zorder=0, label=label)
        line.set_ydata(terms)
    right.relim()
    right.set(ylabel="mean training loss", ylim=(0, None))
    above: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 2}
    right.legend(fontsize="small", frameon=False, **above)
    return figure


def _weights_of(given: Mapping[str, Any], weight: Callable[..., float]) -> np.ndarray:
    """The weight of the class contrast in each round of a run with these settings."""
    rounds = given["num_rounds"]
    ends = (given["mu_glob"], given["mu_glob_end"], given["warmup"])
    return np.array([weight(t, rounds, *ends) for t in range(rounds)])
