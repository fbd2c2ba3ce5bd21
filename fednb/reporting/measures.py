"""What a table may measure: read off one run's record, and, for some measures, that of the baseline's run beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fednb import data
from fednb import evaluation as evaluate


class Value(NamedTuple):
    """A run's value. One that was never reached is infinitely bad; ``bound`` is then as far as the run can tell."""

    value: float
    bound: float | None = None


@dataclass(frozen=True)
class Measure:
    """How a measure is read, and how its values are told.

    Attributes
    ----------
    words
        What it is, for readers of a table.
    read
        From an entry of the ledger and the baseline's entry: a `Value`, or None if the two cannot be compared.
    rule
        What else a reader of measured values should know.
    decimals
        How it is printed.
    judged
        Whether `verdict` applies: only to accuracies.
    baseline
        Whether it needs the baseline's run with the same column and seed.
    target
        Whether it needs the table's target, which `read` gets in place of the baseline's entry.
    optional
        Whether a record may lack it: one of another kind of split, or an older one.
    median
        Over seeds the median instead of the mean, since some runs may never reach it.
    worst
        What stands for a value that was never reached.
    relative
        Whether printed values are divided by the baseline's printed value first.
    signed
        Whether a value is told with its sign: a difference.
    lower
        Whether the smaller of two values is the better one, where that does not follow from ``median``.
    unit
        What a difference is counted in.
    printed
        What of a printed cell stands beside it, ``value`` or ``std``; or a field of the printed row, for all its columns.
    curve
        The record's metric whose curves go with it; empty: none.
    """

    words: str
    read: Callable[[dict[str, Any], dict[str, Any]], Value | None]
    rule: str = ""
    decimals: int = 1
    judged: bool = False
    baseline: bool = False
    target: bool = False
    optional: bool = False
    median: bool = False
    worst: float = math.inf
    relative: bool = False
    signed: bool = False
    lower: bool = False
    unit: str = "points"
    printed: str = "value"
    curve: str = "accuracy"

    @property
    def lower_is_better(self) -> bool:
        """Whether the smaller of two values is the better one: then what was never reached is infinitely large."""
        return self.lower or (self.median and self.worst == math.inf)

    def reached(self, value: float) -> bool:
        """Whether a value was reached at all."""
        return not self.median or value != self.worst

    def summary(self, values: Sequence[float]) -> float:
        """The mean over seeds; or the median, of an even number of runs the worse of the two in the middle."""
        if not self.median:
            return float(np.mean(values))
        return sorted(values, reverse=not self.lower_is_better)[len(values) // 2]

    def text(self, value: float | None, bounds: Sequence[float] = ()) -> str:
        """A value as it is printed; one that was never reached as ``> 100``."""
        if value is None:
            return ""
        if not self.reached(value):
            return f"> {min(bounds):.{self.decimals}f}" if self.lower_is_better else f"< {max(bounds):.{self.decimals}f}"
        return f"{value:{'+' if self.signed else ''}.{self.decimals}f}"


def _final(name: str) -> Callable[[dict[str, Any], dict[str, Any]], Value | None]:
    """After the last round. Not of the ledger's columns, where a setting may have the same name."""

    def read(run: dict[str, Any], baseline: dict[str, Any]) -> Value | None:
        value = run["record"]["final"].get(name)
        return None if value is None else Value(float(value))

    return read


def _entry(name: str) -> Callable[[dict[str, Any], dict[str, Any]], Value]:
    return lambda run, baseline: Value(float(run[name]))


def _in_domain(name: str) -> Callable[[dict[str, Any], dict[str, Any]], Value | None]:
    def read(run: dict[str, Any], baseline: dict[str, Any]) -> Value | None:
        value = run["record"]["final"].get("groups", {}).get(name)
        return None if value is None else Value(float(value))

    return read


def _client_accuracies(run: dict[str, Any]) -> list[float] | None:
    """Of each client on images like its own: expected from its mix of classes, or on test images that are its own."""
    final = run["record"]["final"]
    own_images = "test_sizes" in run["record"].get("partition", {})
    return final.get("clients/own mix", final.get("clients") if own_images else None)


def _client_mean(run: dict[str, Any], baseline: dict[str, Any]) -> Value | None:
    accuracies = _client_accuracies(run)
    return None if accuracies is None else Value(float(np.mean(accuracies)))


def _worst_client(run: dict[str, Any], baseline: dict[str, Any]) -> Value | None:
    accuracies = _client_accuracies(run)
    return None if accuracies is None else Value(min(accuracies))


def _worst_domain(run: dict[str, Any], baseline: dict[str, Any]) -> Value | None:
    groups = run["record"]["final"].get("groups")
    return None if groups is None else Value(min(groups.values()))


def _lead(run: dict[str, Any], baseline: dict[str, Any]) -> Value:
    return Value(run["record"]["final"]["accuracy"] - baseline["record"]["final"]["accuracy"])


def _up_numbers(run: dict[str, Any], baseline: dict[str, Any]) -> Value:
    """In thousands, from the messages of the last round."""
    return Value(run["record"]["metrics"]["up_numbers"][-1] / 1000)


def _counted_on(run: dict[str, Any], baseline: dict[str, Any]) -> Value | None:
    """What FedProto's published evaluation takes for the mean over clients."""
    final, images = run["record"]["final"], run["record"].get("partition", {}).get("test_sizes")
    if images is None or "clients/prototype" not in final:
        return None
    each = np.stack([final["clients"], final["clients/prototype"]], 1)  # [clients, 2]: the code makes two passes
    seen = np.cumsum(np.repeat(images, 2)).reshape(each.shape)
    running = np.cumsum(each * np.asarray(images)[:, None]).reshape(each.shape) / seen
    return Value(float(running[:, 1].mean()))


def _halfway(run: dict[str, Any], baseline: dict[str, Any]) -> Value | None:
    accuracies = run["record"]["metrics"]["accuracy"]
    value = accuracies[max(len(accuracies) // 2, 1) - 1]
    return None if value is None else Value(float(value))


def _rounds_to_target(run: dict[str, Any], table: dict[str, Any]) -> Value:
    accuracies = run["record"]["metrics"]["accuracy"]
    rounds = evaluate.rounds_to(accuracies, table["target"])
    return Value(math.inf, len(accuracies)) if rounds is None else Value(rounds)


def _bytes_to_target(run: dict[str, Any], table: dict[str, Any]) -> Value:
    """In megabytes, both ways, over all clients."""
    metrics = run["record"]["metrics"]
    sent = np.cumsum(np.add(metrics["down_bytes"], metrics["up_bytes"])) / 1e6
    rounds = evaluate.rounds_to(metrics["accuracy"], table["target"])
    return Value(math.inf, float(sent[-1])) if rounds is None else Value(float(sent[rounds - 1]))


def _held(run: dict[str, Any], baseline: dict[str, Any]) -> Value | None:
    """In kilobytes, of the client that held most in the last round."""
    held = run["record"]["metrics"].get("held_bytes")
    return None if held is None else Value(held[-1] / 1e3)


def _rounds_to_baseline(run: dict[str, Any], baseline: dict[str, Any]) -> Value:
    return _rounds_to_target(run, {"target": baseline["record"]["metrics"]["accuracy"][-1]})


def _speedup(run: dict[str, Any], baseline: dict[str, Any]) -> Value:
    rounds, bound = _rounds_to_baseline(run, baseline)
    length = len(baseline["record"]["metrics"]["accuracy"])
    return Value(length / rounds) if bound is None else Value(0.0, length / bound)


def _median_seconds(run: dict[str, Any], baseline: dict[str, Any]) -> Value:
    return Value(float(np.median(run["record"]["metrics"]["seconds"])))


def _seconds_ratio(run: dict[str, Any], baseline: dict[str, Any]) -> Value | None:
    mine, other = run["record"], baseline["record"]
    if any(mine.get(name) != other.get(name) for name in ("device", "workers")):
        return None
    # medians: a round in which the machine did something else counts no more than another, nor does MOON's first
    return Value(float(np.median(mine["metrics"]["seconds"]) / np.median(other["metrics"]["seconds"])))


_MEDIAN = (
    "Shown is the median over seeds (of an even number the worse of the two in the middle) with the range; a run that never "
    "got there counts as the worst."
)
_ROUNDS = (
    f"{_MEDIAN} The baseline is held to the same rule, so its row shows what luck in a single round is "
    "worth. For that reason it is not judged against the paper."
)
_OWN = (
    "On images like its own: the accuracy on the test images of each class, weighted with the class's share of the client's "
    "training images; of clients with test images of their own, the accuracy on those."
)
MEASURES = {
    "accuracy": Measure("Test accuracy after the last round, in percent.", _final("accuracy"), judged=True),
    "best": Measure(
        "Best test accuracy of any round, in percent (chosen on the test set: an upper bound).", _final("best"), judged=True
    ),
    "mean_of_last_5": Measure(
        "Test accuracy, mean of the last five rounds, in percent.", _final("mean_of_last_5"), judged=True
    ),
    "halfway": Measure("Test accuracy after half of the run's rounds, in percent.", _halfway, judged=True),
    "validation": Measure("Accuracy on held-out training images after the last round, in percent.", _final("validation")),
    "accuracy/prototype": Measure(
        "Test accuracy after the last round, in percent, if each image gets the class of the nearest global prototype "
        "among the classes that its client has.",
        _final("accuracy/prototype"),
        judged=True,
        curve="accuracy/prototype",
    ),
    "accuracy/counted on": Measure(
        "The same as FedProto's published code counts it, in percent: its counters of images and hits go on from client to "
        "client, and from the classifier to the nearest prototype.",
        _counted_on,
        curve="",
    ),
    "accuracy/local classes": Measure(
        "Test accuracy after the last round, in percent, if each client chooses among its own classes and no others.",
        _final("accuracy/local classes"),
        judged=True,
        curve="accuracy/local classes",
    ),
    "lead": Measure(
        "Test accuracy after the last round minus the baseline's with the same seed, in percentage points.",
        _lead,
        baseline=True,
        signed=True,
        curve="",
    ),
    "client mean": Measure(
        "Accuracy that a client can expect on images like its own, after the last round, mean over clients, in percent.",
        _client_mean,
        rule=_OWN,
        optional=True,
        curve="accuracy/own mix",
    ),
    "worst client": Measure(
        "Accuracy that the worst off client can expect on images like its own, after the last round, in percent.",
        _worst_client,
        rule=_OWN,
        optional=True,
        curve="",
    ),
    "worst domain": Measure(
        "Test accuracy in the domain where it is lowest, after the last round, in percent.",
        _worst_domain,
        optional=True,
        curve="",
    ),
    "accuracy_std": Measure(
        "Standard deviation of the test accuracy over clients, in percentage points.",
        _final("accuracy_std"),
        decimals=2,
        judged=True,
        lower=True,
        printed="std",
        curve="",
    ),
    "up_numbers": Measure(
        "Numbers that all clients together send to the server in a round, in thousands.",
        _up_numbers,
        rule="Counted in the messages of the last round, with labels and numbers of images.",
        lower=True,
        unit="thousand",
        printed="comm_params_thousands",
        curve="",
    ),
    "seconds_per_round": Measure(
        "Training time per round, in seconds (of our machine: not judged against the paper's).", _entry("seconds_per_round")
    ),
    "median_seconds": Measure(
        "Training time of a round, median over rounds, in seconds (of our machine).",
        _median_seconds,
        decimals=2,
        lower=True,
        unit="seconds",
        curve="",
    ),
    "seconds_ratio": Measure(
        "Training time per round (median over rounds), divided by the baseline's with the same seed on the same kind of "
        "machine; the paper's seconds likewise.",
        _seconds_ratio,
        rule="It depends on the machine and on what else that did meanwhile, and is not judged against the paper.",
        decimals=2,
        baseline=True,
        relative=True,
    ),
    "rounds": Measure("Number of rounds.", _entry("rounds"), decimals=0),
    "rounds_to_target": Measure(
        "First round whose test accuracy reaches the target.",
        _rounds_to_target,
        rule=f"{_MEDIAN} It hangs on single rounds, and is not judged against the paper.",
        decimals=0,
        target=True,
        median=True,
        unit="rounds",
    ),
    "bytes_to_target": Measure(
        "Megabytes that server and clients together have sent when the test accuracy first reaches the target.",
        _bytes_to_target,
        rule=f"{_MEDIAN} It hangs on single rounds, and is not judged against the paper.",
        decimals=2,
        target=True,
        median=True,
        unit="MB",
    ),
    "client_memory": Measure(
        "Kilobytes (of 1,000) that a client must hold beside its images and the network that it trains: what it keeps "
        "between rounds, and what its loss reads (other networks, prototypes).",
        _held,
        rule="Counted in the tensors of the last round, of the client that holds most.",
        decimals=1,
        optional=True,
        lower=True,
        unit="kB",
        curve="",
    ),
    "rounds_to_baseline": Measure(
        "First round whose test accuracy reaches what the baseline has after its last round, with the same seed.",
        _rounds_to_baseline,
        rule=_ROUNDS,
        decimals=0,
        baseline=True,
        median=True,
        unit="rounds",
    ),
    "speedup": Measure(
        "The number of rounds of the baseline, divided by the first round whose test accuracy reaches what that has after "
        "its last, with the same seed.",
        _speedup,
        rule=_ROUNDS,
        decimals=2,
        baseline=True,
        median=True,
        worst=0.0,
    ),
}
# They have no curves: a run in several domains is drawn as one, by its mean
MEASURES |= {
    f"accuracy in {domain}": Measure(
        "Test accuracy in that domain after the last round, in percent; a run's accuracy is the mean over its domains.",
        _in_domain(domain),
        judged=True,
        curve="",
    )
    for name in data.NAMES
    for domain in data.domain_names(name)
}
