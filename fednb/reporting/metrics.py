"""What a table may measure: read off one run's record, and, for some, that of the baseline's run beside it."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import yaml

from fednb.errors import ReportError, require_known
from fednb.sweeps.table import Table

Record = Mapping[str, Any]


MEASURES = yaml.safe_load(
    (Path(__file__).parent / "templates" / "measures.yaml").read_text("utf-8")
)
_DEFAULTS = MEASURES.pop("defaults")


class Measure(SimpleNamespace):
    """How a measure is read, and how its values are told: the fields that ``measures.yaml`` begins with, and ``read``."""

    def summary(self, values: Sequence[float]) -> float:
        """The mean over seeds; or the median, of an even number of runs the worse of the two in the middle."""
        return (
            sorted(values, reverse=self.sign > 0)[len(values) // 2]
            if self.median
            else float(np.mean(values))
        )

    def text(self, value: float | None) -> str:
        """A value as it is printed."""
        if value is None:
            return ""
        if self.median and value in (0.0, math.inf):
            return "never"
        return f"{value:{'+' if self.signed else ''}.{self.decimals}f}"


def _of_clients(run: Record, summary: Callable[[Sequence[float]], float]) -> float | None:
    """Of each client on images like its own: expected from its mix of classes, or on test images that are its own."""
    own_images = "test_sizes" in run.get("partition", {})
    accuracies = run["final"].get(
        "clients/own mix", run["final"].get("clients") if own_images else None
    )
    return None if accuracies is None else float(summary(accuracies))


def _counted_on(run: Record, summary: Callable[[Sequence[float]], float]) -> float | None:
    """Of what FedProto's published evaluation takes for accuracies of clients, after two passes over the images of each."""
    final, images = run["final"], run.get("partition", {}).get("test_sizes")
    if images is None or "clients/prototype" not in final:
        return None
    hits = np.cumsum(np.add(final["clients"], final["clients/prototype"]) * images)
    return float(summary(hits / (2 * np.cumsum(images))))


def _rounds(run: Record, target: float | Record) -> float:
    """When the target is reached: so many percent, or what the baseline has after its last round."""
    percent = target["metrics"]["accuracy"][-1] if isinstance(target, Mapping) else target
    reached = np.flatnonzero(
        np.asarray(run["metrics"]["accuracy"], float) >= percent
    )  # a round without evaluation is NaN
    return int(reached[0]) + 1 if len(reached) else math.inf


def _megabytes(run: Record, rounds: float) -> float:
    """What has been sent in so many rounds, both ways, over all clients."""
    sent = np.cumsum(np.add(run["metrics"]["down_bytes"], run["metrics"]["up_bytes"])) / 1e6
    return math.inf if rounds == math.inf else float(sent[int(rounds) - 1])


def _seconds(run: Record, baseline: Record | None = None) -> float | None:
    # the median: a round in which the machine did something else counts no more than another, nor does MOON's first
    alike = baseline is None or all(
        run.get(name) == baseline.get(name) for name in ("device", "workers")
    )
    return (
        median(run["metrics"]["seconds"]) / (_seconds(baseline) if baseline else 1.0)
        if alike
        else None
    )


# Of a record, and of the baseline's record or the table's target if the measure needs it; of other measures there is what is
# recorded under their names after the last round.
_READ: dict[str, Callable[[Record, Any], float | None]] = {
    "halfway": lambda run, _: (curve := run["metrics"]["accuracy"])[max(len(curve) // 2, 1) - 1],
    "accuracy/counted on": lambda run, _: _counted_on(run, np.mean),
    "accuracy_std/counted on": lambda run, _: _counted_on(run, np.std),
    "lead": lambda run, baseline: run["final"]["accuracy"] - baseline["final"]["accuracy"],
    "client mean": lambda run, _: _of_clients(run, np.mean),
    "worst client": lambda run, _: _of_clients(run, min),
    "worst domain": lambda run, _: min(run["final"].get("groups", {}).values(), default=None),
    "rounds_to_target": _rounds,
    "rounds_to_baseline": _rounds,
    "bytes_to_target": lambda run, target: _megabytes(run, _rounds(run, target)),
    "speedup": lambda run, baseline: len(baseline["metrics"]["accuracy"]) / _rounds(run, baseline),
    "up_numbers": lambda run, _: run["metrics"]["up_numbers"][-1] / 1e3,
    "client_memory": lambda run, _: (
        held[-1] / 1e3 if (held := run["metrics"].get("held_bytes")) else None
    ),
    "median_seconds": lambda run, _: _seconds(run),
    "seconds_ratio": _seconds,
}


@functools.cache
def measure(name: str) -> Measure:
    """A measure by its name; ``accuracy in DOMAIN`` is one for any domain. A `ReportError` if there is none."""
    domain = name.removeprefix("accuracy in ") if name.startswith("accuracy in ") else ""
    require_known(
        "unknown measure", known := "accuracy in DOMAIN" if domain else name, MEASURES, ReportError
    )

    def final(run: Record, _: Any) -> float | None:
        return run["final"].get("groups", {}).get(domain) if domain else run["final"].get(name)

    return Measure(**_DEFAULTS | MEASURES[known], read=_READ.get(name, final))


def check(table: Table) -> None:
    """A `ReportError` if a measure of a table is unknown or lacks what it needs, or if none reads the table's target."""
    names = table.columns.measures.values() or [table.measure]
    for name in names:
        if (needs := measure(name).needs) and getattr(table, needs) is None:
            raise ReportError(
                f"{table.name}: the measure {name!r} needs a {needs}; name it in the table."
            )
    if table.target is not None and all(measure(name).needs != "target" for name in names):
        raise ReportError(
            f"{table.name}: the measure {table.measure!r} does not read a target; leave it out."
        )
