"""What a table may measure: read off a run's record, for some beside that of the baseline's run."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import yaml

from fednb.errors import ReportError, require_known
from fednb.records import Record

# takes a record and what the measure needs: the baseline's record, or the target in percent
Reader = Callable[[Record, Any], float | None]

ACCURACY_IN = "accuracy in "  # the name of a measure for each domain begins with that
NEAREST = "nearest: "  # and that of one for each two sets of prototypes, "nearest: A over B"


@dataclass(frozen=True)
class Measure:
    """What the cells of a table hold, as ``measures.yaml`` describes it."""

    name: str
    read: Reader  # None: the record lacks it, as one of another kind of split, or an older one
    description: str = ""  # a sentence for the reader of a table
    remark: str = ""  # what a reader of measured values should know besides
    curve: str = "accuracy"  # the record's metric whose curves go with it; empty: none
    judged: bool = False  # whether it is judged against the paper: only accuracies are
    # the record of the baseline's run with the same column and seed, or the table's target
    needs: Literal["", "baseline", "target"] = ""
    sign: int = 1  # of a lead; -1: the smaller of two values is the better one
    # whether rows are compared: in accuracies, not in what is a difference or a cost itself
    compared: bool = True
    # the median over seeds counts: a run that never gets there is infinitely bad (0: a speedup)
    median: bool = False
    decimals: int = 1  # of a value, and of a difference, in a table
    unit: str = "points"  # of a lead, such as "rounds fewer"; above 0 the first-named is ahead
    signed: bool = False  # shown with its sign
    relative: bool = False  # printed values are divided by the baseline's printed value first
    # what stands beside it: "std" of the printed cell, or another column; empty: the cell
    printed: str = ""

    def summary(self, values: Sequence[float]) -> float:
        """Return the mean over seeds; or the median, of two in the middle the worse one."""
        if self.median:
            from_the_best = sorted(values, reverse=self.sign > 0)
            return from_the_best[len(values) // 2]
        return float(np.mean(values))


@functools.cache
def descriptions() -> dict[str, dict[str, Any]]:
    """Read the fields of each measure from ``measures.yaml``, by the measure's name."""
    text = Path(__file__).with_name("measures.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


@functools.cache
def measure(name: str) -> Measure:
    """Return a measure by its name, such as ``accuracy in DOMAIN``; else a `ReportError`."""
    if name.startswith(ACCURACY_IN):
        domain = name.removeprefix(ACCURACY_IN)
        fields = descriptions()[f"{ACCURACY_IN}DOMAIN"]
        return Measure(name, lambda record, _: _domains(record).get(domain), **fields)
    if name.startswith(NEAREST):
        ahead, _, behind = name.removeprefix(NEAREST).partition(" over ")
        fields = descriptions()[f"{NEAREST}A over B"]
        return Measure(name, lambda record, _: _nearest_over(record, ahead, behind), **fields)
    require_known("unknown measure", name, descriptions(), ReportError)
    # of others there is what is recorded under their names after the last round
    read = _READERS.get(name, lambda record, _: record["final"].get(name))
    return Measure(name, read, **descriptions()[name])


def _part_way(record: Record, parts: int) -> float | None:
    """The accuracy after the first of so many equal parts of the run's rounds."""
    curve = record["metrics"]["accuracy"]
    return curve[max(len(curve) // parts, 1) - 1]


def _domains(record: Record) -> dict[str, float]:
    """Accuracies in percent by domain."""
    return record["final"].get("groups", {})


def _of_clients(record: Record) -> list[float]:
    """The clients' accuracies on images like their own, in percent; of some there may be none.

    They are expected from a client's mix of classes, or measured on test images of its own.
    """
    final = record["final"]
    accuracies = final.get("clients/own mix")
    if accuracies is None and "test_sizes" in record.get("partition", {}):
        accuracies = final.get("clients")
    return [accuracy for accuracy in accuracies or () if accuracy is not None]


def _client_mean(record: Record, _: None) -> float | None:
    accuracies = _of_clients(record)
    return float(np.mean(accuracies)) if accuracies else None


def _counted_on(record: Record, summary: Callable[[np.ndarray], np.floating]) -> float | None:
    """A summary of what FedProto's published evaluation takes for the clients' accuracies.

    Its counters of hits and images go on from client to client, and pass each client's images
    twice.
    """
    final = record["final"]
    num_images = record.get("partition", {}).get("test_sizes")
    if num_images is None or "clients/prototype" not in final:
        return None
    hits = np.cumsum(np.add(final["clients"], final["clients/prototype"]) * num_images)
    return float(summary(hits / (2 * np.cumsum(num_images))))


def _rounds_to(record: Record, target: float) -> float:
    """The first round, from 1, in which the accuracy reaches so many percent; or infinite."""
    accuracies = np.asarray(record["metrics"]["accuracy"], float)  # not evaluated: NaN
    reached = np.flatnonzero(accuracies >= target)
    return int(reached[0]) + 1 if len(reached) else math.inf


def _rounds_to_baseline(record: Record, baseline: Record) -> float:
    return _rounds_to(record, baseline["metrics"]["accuracy"][-1])


def _speedup(record: Record, baseline: Record) -> float:
    return len(baseline["metrics"]["accuracy"]) / _rounds_to_baseline(record, baseline)


def _bytes_to_target(record: Record, target: float) -> float:
    """Megabytes that are sent until then, both ways, over all clients."""
    rounds = _rounds_to(record, target)
    if rounds == math.inf:
        return math.inf
    metrics = record["metrics"]
    sent = np.cumsum(np.add(metrics["down_bytes"], metrics["up_bytes"])) / 1e6
    return float(sent[int(rounds) - 1])


def _client_memory(record: Record, _: None) -> float | None:
    held_bytes = record["metrics"].get("held_bytes")
    return held_bytes[-1] / 1e3 if held_bytes else None


def _logged(record: Record, name: str, place: int) -> float | None:
    """What a term of the loss was in a round, by its place in the list of rounds."""
    curve = record["metrics"].get(f"loss/{name}")
    return curve[place] if curve else None


def _nearest_over(record: Record, ahead: str, behind: str) -> float | None:
    """How much more accurate one set of prototypes is than another, in the last round."""
    first, second = _by_nearest(record, ahead), _by_nearest(record, behind)
    return None if first is None or second is None else first - second


def _by_nearest(record: Record, name: str) -> float | None:
    if name == "output layer":
        return record["final"]["accuracy"]
    return _logged(record, f"nearest/{name}", -1)


def _gradient_ratio(record: Record, place: int) -> float | None:
    contrast = _logged(record, "contrast_gradient", place)
    entropy = _logged(record, "cross_entropy_gradient", place)
    return contrast / entropy if contrast and entropy else None


def _median_seconds(record: Record, _: None = None) -> float:
    # the median: a round in which the machine did something else counts no more than another, nor
    # does MOON's first
    return median(record["metrics"]["seconds"])


def _seconds_ratio(record: Record, baseline: Record) -> float | None:
    """None where the two runs were made on machines of different kinds."""
    for name in ("device", "workers"):
        if record.get(name) != baseline.get(name):
            return None
    return _median_seconds(record) / _median_seconds(baseline)


def _last_logged(name: str) -> Reader:
    """Read a term of the loss, by its name, in the last round."""
    return lambda record, _: _logged(record, name, -1)


_LAST_LOGGED = (
    "z_norm",
    "degrees/held together",
    "degrees/held apart",
    "agreement",
    "nearest",
    "length of a row",
    "error/bias",
    "error/scatter",
)
_READERS: dict[str, Reader] = {
    **{name: _last_logged(name) for name in _LAST_LOGGED},
    "halfway": lambda record, _: _part_way(record, 2),
    "tenth": lambda record, _: _part_way(record, 10),
    "accuracy/counted on": lambda record, _: _counted_on(record, np.mean),
    "accuracy_std/counted on": lambda record, _: _counted_on(record, np.std),
    "lead": lambda record, baseline: record["final"]["accuracy"] - baseline["final"]["accuracy"],
    "client mean": _client_mean,
    "worst client": lambda record, _: min(_of_clients(record), default=None),
    "worst domain": lambda record, _: min(_domains(record).values(), default=None),
    "rounds_to_target": _rounds_to,
    "rounds_to_baseline": _rounds_to_baseline,
    "bytes_to_target": _bytes_to_target,
    "speedup": _speedup,
    "up_numbers": lambda record, _: record["metrics"]["up_numbers"][-1] / 1e3,
    "client_memory": _client_memory,
    "z_norm/second round": lambda record, _: _logged(record, "z_norm", 1),
    "gradient_ratio/second round": lambda record, _: _gradient_ratio(record, 1),
    "gradient_ratio": lambda record, _: _gradient_ratio(record, -1),
    "median_seconds": _median_seconds,
    "seconds_ratio": _seconds_ratio,
}
