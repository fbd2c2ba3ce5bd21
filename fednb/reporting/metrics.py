"""What a table may measure: read off one run's record, and, for some, that of the baseline's run beside it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from fednb.experiments.sweep import Table

Record = Mapping[str, Any]
# Of a record, and of what the measure needs beside it: the baseline's record or the table's target
Read = Callable[[Record, Any], float | None]


class ReportError(ValueError):
    """A table that cannot be made as it is described; the message says what is missing and what there is."""


@dataclass(frozen=True)
class Measure:
    """How a measure is read, and how its values are told; what it is in words stands in ``templates/measures.yaml``."""

    read: Read  # the value; None if the record does not have it, or if the two records cannot be compared
    curve: str = "accuracy"  # the record's metric whose curves go with it; empty: none
    judged: bool = False  # against the paper: only accuracies are
    needs: str = ""  # "baseline": the baseline's record with the same column and seed; "target": the table's target
    optional: bool = False  # a record may lack it: one of another kind of split, or an older one
    bound: Read | None = None  # how far a run got that never got there; over seeds the median counts then
    worst: float = math.inf  # the value of a run that never got there
    lower: bool = False  # the smaller of two values is the better one
    decimals: int = 1
    unit: str = "points"  # what a difference is counted in
    signed: bool = False
    relative: bool = False  # printed values are divided by the baseline's printed value first
    printed: str = ""  # what stands beside it: "std" of the printed cell, or another column; empty: the cell

    @property
    def compared(self) -> bool:
        """Whether differences of two rows are worth telling: of accuracies, not of what is a difference or a cost itself."""
        return self.unit == "points" and not (self.signed or self.relative or self.bound)

    def reached(self, value: float) -> bool:
        """Whether a value was reached at all."""
        return not self.bound or value != self.worst

    def summary(self, values: Sequence[float]) -> float:
        """The mean over seeds; or the median, of an even number of runs the worse of the two in the middle."""
        return sorted(values, reverse=not self.lower)[len(values) // 2] if self.bound else float(np.mean(values))

    def text(self, value: float | None, bounds: Sequence[float] = ()) -> str:
        """A value as it is printed; one that was never reached as ``> 100``."""
        if value is None:
            return ""
        if not self.reached(value):
            return f"> {min(bounds):.{self.decimals}f}" if self.lower else f"< {max(bounds):.{self.decimals}f}"
        return f"{value:{'+' if self.signed else ''}.{self.decimals}f}"


def _final(name: str) -> Read:
    """After the last round."""
    return lambda run, _: run["final"].get(name)


def _of_clients(summary: Callable[[Sequence[float]], float]) -> Read:
    """Of each client on images like its own: expected from its mix of classes, or on test images that are its own."""

    def read(run: Record, _: Any) -> float | None:
        own_images = "test_sizes" in run.get("partition", {})
        accuracies = run["final"].get("clients/own mix", run["final"].get("clients") if own_images else None)
        return None if accuracies is None else float(summary(accuracies))

    return read


def _counted_on(run: Record, _: Any) -> float | None:
    """What FedProto's published evaluation takes for the mean over clients."""
    final, images = run["final"], run.get("partition", {}).get("test_sizes")
    if images is None or "clients/prototype" not in final:
        return None
    each = np.stack([final["clients"], final["clients/prototype"]], 1)  # [clients, 2]: the code makes two passes
    seen = np.cumsum(np.repeat(images, 2)).reshape(each.shape)
    running = np.cumsum(each * np.asarray(images)[:, None]).reshape(each.shape) / seen
    return float(running[:, 1].mean())


def _length(run: Record, _: Any = None) -> int:
    return len(run["metrics"]["accuracy"])


def _rounds(run: Record, target: float) -> float:
    evaluated = ((t, accuracy) for t, accuracy in enumerate(run["metrics"]["accuracy"], 1) if accuracy is not None)
    return next((t for t, accuracy in evaluated if accuracy >= target), math.inf)


def _rounds_to_baseline(run: Record, baseline: Record) -> float:
    return _rounds(run, baseline["metrics"]["accuracy"][-1])


def _megabytes(run: Record, rounds: float) -> float:
    """What has been sent in so many rounds, both ways, over all clients."""
    sent = np.cumsum(np.add(run["metrics"]["down_bytes"], run["metrics"]["up_bytes"])) / 1e6
    return math.inf if rounds == math.inf else float(sent[int(rounds) - 1])


def _memory(run: Record, _: Any) -> float | None:
    return run["metrics"]["held_bytes"][-1] / 1e3 if "held_bytes" in run["metrics"] else None


def _seconds(run: Record, _: Any = None) -> float:
    # the median: a round in which the machine did something else counts no more than another, nor does MOON's first
    return median(run["metrics"]["seconds"])


def _seconds_ratio(run: Record, baseline: Record) -> float | None:
    alike = all(run.get(name) == baseline.get(name) for name in ("device", "workers"))
    return _seconds(run) / _seconds(baseline) if alike else None


_LOCAL, _SENT = "accuracy/local classes", "numbers sent, thousands"
_COST: dict[str, Any] = {"curve": "", "lower": True}
_ROUNDS: dict[str, Any] = {"bound": _length, "lower": True, "decimals": 0, "unit": "rounds"}
_BYTES: dict[str, Any] = {"bound": lambda run, _: _megabytes(run, _length(run)), "lower": True, "decimals": 2, "unit": "MB"}
_TIMES: dict[str, Any] = {"bound": lambda run, base: _length(base) / _length(run), "worst": 0.0, "decimals": 2}
MEASURES = {
    "accuracy": Measure(_final("accuracy"), judged=True),
    "best": Measure(_final("best"), judged=True),
    "mean_of_last_5": Measure(_final("mean_of_last_5"), judged=True),
    "halfway": Measure(lambda run, _: run["metrics"]["accuracy"][max(_length(run) // 2, 1) - 1], judged=True),
    "validation": Measure(_final("validation")),
    "accuracy/prototype": Measure(_final("accuracy/prototype"), "accuracy/prototype", judged=True),
    "accuracy/local classes": Measure(_final(_LOCAL), _LOCAL, judged=True),
    "accuracy/counted on": Measure(_counted_on, ""),
    "accuracy_std": Measure(_final("accuracy_std"), judged=True, decimals=2, printed="std", **_COST),
    "lead": Measure(lambda a, b: a["final"]["accuracy"] - b["final"]["accuracy"], "", needs="baseline", signed=True),
    "client mean": Measure(_of_clients(np.mean), "accuracy/own mix", optional=True),
    "worst client": Measure(_of_clients(min), "", optional=True),
    "worst domain": Measure(lambda run, _: min(run["final"].get("groups", {}).values(), default=None), "", optional=True),
    "rounds_to_target": Measure(_rounds, needs="target", **_ROUNDS),
    "rounds_to_baseline": Measure(_rounds_to_baseline, needs="baseline", **_ROUNDS),
    "bytes_to_target": Measure(lambda run, goal: _megabytes(run, _rounds(run, goal)), needs="target", **_BYTES),
    "speedup": Measure(lambda run, base: _length(base) / _rounds_to_baseline(run, base), needs="baseline", **_TIMES),
    "up_numbers": Measure(lambda run, _: run["metrics"]["up_numbers"][-1] / 1e3, unit="thousand", printed=_SENT, **_COST),
    "client_memory": Measure(_memory, optional=True, unit="kB", **_COST),
    "median_seconds": Measure(_seconds, decimals=2, unit="seconds", **_COST),
    "seconds_ratio": Measure(_seconds_ratio, needs="baseline", decimals=2, relative=True),
}


@functools.cache
def measure(name: str) -> Measure:
    """A measure by its name; ``accuracy in DOMAIN`` is one for any domain. A `ReportError` if there is none."""
    if name in MEASURES:
        return MEASURES[name]
    if not name.startswith("accuracy in "):
        raise ReportError(f"unknown measure {name!r}; there are {', '.join(MEASURES)}, accuracy in DOMAIN.")
    domain = name.removeprefix("accuracy in ")  # a run in several domains is drawn as one curve, by its mean
    return Measure(lambda run, _: run["final"].get("groups", {}).get(domain), "", judged=True)


def check(table: Table) -> None:
    """A `ReportError` if a measure of a table is unknown or lacks what it needs, or if none reads the table's target."""
    for name in table.measures:
        if (needs := measure(name).needs) and getattr(table, needs) is None:
            raise ReportError(f"{table.name}: the measure {name!r} needs a {needs}; name it in the table.")
    if table.target is not None and all(measure(name).needs != "target" for name in table.measures):
        raise ReportError(f"{table.name}: the measure {table.measure!r} does not read a target; leave it out.")
