"""What a table may measure: read off one run's record, for some beside the record of the baseline's run."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import yaml

from fednb.errors import ReportError, require_known

Record = Mapping[str, Any]  # of a run, as ``record.schema.yaml`` describes it
# takes a record and what the measure needs beside it: the baseline's record, the target in percent, or None
Reader = Callable[[Record, Any], float | None]

ACCURACY_IN = "accuracy in "  # the name of a measure for each domain begins with that


@dataclass(frozen=True)
class Measure:
    """What the cells of a table hold, as ``measures.yaml`` describes it."""

    name: str
    read: Reader = field(repr=False)  # None: the record lacks it
    description: str = ""  # a sentence for the reader of a table
    remark: str = ""  # what a reader of measured values should know besides
    curve: str = "accuracy"  # the record's metric whose curves go with it; empty: none
    judged: bool = False  # whether it is judged against the paper: only accuracies are
    needs: Literal["", "baseline", "target"] = ""  # the baseline's record with the same column
    # and seed, or the table's target
    optional: bool = False  # a record may lack it: one of another kind of split, or an older one
    sign: int = 1  # of a lead; -1: the smaller of two values is the better one
    # whether rows are compared: in accuracies, not in what is a difference or a cost itself
    compared: bool = True
    # a run may never get there, and is then infinitely bad (0: a speedup): the median over seeds counts
    median: bool = False
    decimals: int = 1  # of a value, and of a difference, in a table
    unit: str = "points"
    signed: bool = False  # shown with its sign
    relative: bool = False  # printed values are divided by the baseline's printed value first
    printed: str = (
        ""  # what stands beside it: "std" of the printed cell, or another column; empty: the cell
    )

    def summary(self, values: Sequence[float]) -> float:
        """The mean over seeds; or the median, of an even number of runs the worse of the two in the middle."""
        if self.median:
            from_the_best = sorted(values, reverse=self.sign > 0)
            return from_the_best[len(values) // 2]
        return float(np.mean(values))


@functools.cache
def descriptions() -> dict[str, dict[str, Any]]:
    """The fields of each measure that ``measures.yaml`` gives, by the measure's name."""
    text = Path(__file__).with_name("measures.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


@functools.cache
def measure(name: str) -> Measure:
    """A measure by its name; ``accuracy in DOMAIN`` is one for any domain. A `ReportError` if there is none."""
    if name.startswith(ACCURACY_IN):
        domain = name.removeprefix(ACCURACY_IN)
        fields = descriptions()[f"{ACCURACY_IN}DOMAIN"]
        return Measure(name, functools.partial(_accuracy_in, domain), **fields)
    require_known("unknown measure", name, descriptions(), ReportError)
    read = _READERS.get(name, functools.partial(_final, name))
    return Measure(name, read, **descriptions()[name])


def _final(name: str, record: Record, _: None) -> float | None:
    """What is recorded under that name after the last round."""
    return record["final"].get(name)


def _accuracy_in(domain: str, record: Record, _: None) -> float | None:
    return record["final"].get("groups", {}).get(domain)


def _worst_domain(record: Record, _: None) -> float | None:
    return min(record["final"].get("groups", {}).values(), default=None)


def _halfway(record: Record, _: None) -> float | None:
    curve = record["metrics"]["accuracy"]
    return curve[max(len(curve) // 2, 1) - 1]


def _lead(record: Record, baseline: Record) -> float:
    return record["final"]["accuracy"] - baseline["final"]["accuracy"]


def _on_own_images(record: Record) -> list[float] | None:
    """The accuracy of each client on images like its own, in percent.

    It is expected from the client's mix of classes, or measured on test images that are its own.
    """
    final = record["final"]
    if "clients/own mix" in final:
        return final["clients/own mix"]
    clients_have_test_images = "test_sizes" in record.get("partition", {})
    return final.get("clients") if clients_have_test_images else None


def _client_mean(record: Record, _: None) -> float | None:
    accuracies = _on_own_images(record)
    return None if accuracies is None else float(np.mean(accuracies))


def _worst_client(record: Record, _: None) -> float | None:
    accuracies = _on_own_images(record)
    return None if accuracies is None else float(min(accuracies))


def _counted_on(record: Record) -> np.ndarray | None:
    """What FedProto's published evaluation takes for the accuracies of clients, in percent.

    Its counters of hits and images go on from client to client, and pass twice over the images of each.
    """
    final = record["final"]
    num_images = record.get("partition", {}).get("test_sizes")
    if num_images is None or "clients/prototype" not in final:
        return None
    hits = np.cumsum(np.add(final["clients"], final["clients/prototype"]) * num_images)
    return hits / (2 * np.cumsum(num_images))


def _mean_counted_on(record: Record, _: None) -> float | None:
    accuracies = _counted_on(record)
    return None if accuracies is None else float(np.mean(accuracies))


def _std_counted_on(record: Record, _: None) -> float | None:
    accuracies = _counted_on(record)
    return None if accuracies is None else float(np.std(accuracies))


def _rounds_to_target(record: Record, target: float) -> float:
    """The first round, from 1, whose accuracy reaches so many percent; infinite if there is none."""
    accuracies = np.asarray(record["metrics"]["accuracy"], float)  # not evaluated: NaN
    reached = np.flatnonzero(accuracies >= target)
    if len(reached) == 0:
        return math.inf
    return int(reached[0]) + 1


def _rounds_to_baseline(record: Record, baseline: Record) -> float:
    return _rounds_to_target(record, baseline["metrics"]["accuracy"][-1])


def _speedup(record: Record, baseline: Record) -> float:
    return len(baseline["metrics"]["accuracy"]) / _rounds_to_baseline(record, baseline)


def _bytes_to_target(record: Record, target: float) -> float:
    """Megabytes sent until the target is reached, both ways, over all clients."""
    rounds = _rounds_to_target(record, target)
    if rounds == math.inf:
        return math.inf
    metrics = record["metrics"]
    sent = np.cumsum(np.add(metrics["down_bytes"], metrics["up_bytes"])) / 1e6
    return float(sent[int(rounds) - 1])


def _up_numbers(record: Record, _: None) -> float:
    return record["metrics"]["up_numbers"][-1] / 1e3


def _client_memory(record: Record, _: None) -> float | None:
    held_bytes = record["metrics"].get("held_bytes")
    return held_bytes[-1] / 1e3 if held_bytes else None


def _median_seconds(record: Record, _: None) -> float:
    # the median: a round in which the machine did something else counts no more than another, nor
    # does MOON's first
    return median(record["metrics"]["seconds"])


def _seconds_ratio(record: Record, baseline: Record) -> float | None:
    """None where the two runs were made on machines of different kinds."""
    for name in ("device", "workers"):
        if record.get(name) != baseline.get(name):
            return None
    return _median_seconds(record, None) / _median_seconds(baseline, None)


# of other measures there is what is recorded under their names after the last round
_READERS: dict[str, Reader] = {
    "halfway": _halfway,
    "accuracy/counted on": _mean_counted_on,
    "accuracy_std/counted on": _std_counted_on,
    "lead": _lead,
    "client mean": _client_mean,
    "worst client": _worst_client,
    "worst domain": _worst_domain,
    "rounds_to_target": _rounds_to_target,
    "rounds_to_baseline": _rounds_to_baseline,
    "bytes_to_target": _bytes_to_target,
    "speedup": _speedup,
    "up_numbers": _up_numbers,
    "client_memory": _client_memory,
    "median_seconds": _median_seconds,
    "seconds_ratio": _seconds_ratio,
}
