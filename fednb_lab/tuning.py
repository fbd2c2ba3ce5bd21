"""Tuning by trials: the one number that is tuned for a method, what was tried, what was chosen."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fednb_lab.cells import Cell

_BASELINE = "FedAvg"
# What is tuned where it is not the learning rate; a second weight that goes with it is left out.
_COEFFICIENTS = {
    "FedProx": "mu",
    "MOON": "mu",
    "FedProc": "alpha",
    "FedSSC": "mu_glob",
    "FedProto": "lam",
    "FedProto+FedAvg": "lam",
    "FedPLCC": "lam1",
    "FedPrior": "strength",
}
# Those that are FedAvg with a coefficient of 0; FedProto is training alone then.
_FROM_BASELINE = _COEFFICIENTS.keys() - {"FedProto"}


class Trial(NamedTuple):
    """A value that was tried."""

    value: float
    accuracy: float  # on held-out images, the mean over seeds; NaN if a run diverged


@dataclass(frozen=True)
class Tuning:
    """The trials of a method on a split."""

    method: str
    tuned: str  # a setting or hyperparameter
    trials: tuple[Trial, ...]  # in the order of their values
    without: float | None = None  # held-out accuracy with a coefficient of 0, which is FedAvg's

    @property
    def finished(self) -> list[Trial]:
        """Those without a diverged run."""
        return [trial for trial in self.trials if not math.isnan(trial.accuracy)]

    @property
    def chosen(self) -> Trial | None:
        """The best one, of equally good ones the smallest; None if all diverged."""
        return max(self.finished, key=lambda trial: trial.accuracy, default=None)

    @property
    def gain(self) -> float | None:
        """How far the chosen trial is above a coefficient of 0; None if there is no such."""
        if self.without is None or self.chosen is None:
            return None
        return self.chosen.accuracy - self.without

    @property
    def spread(self) -> float:
        """How far the best and the worst trial are apart, of those without a diverged run."""
        accuracies = [trial.accuracy for trial in self.finished]
        return max(accuracies) - min(accuracies) if accuracies else math.nan


def tunings(cells: Sequence[Cell]) -> dict[str, Tuning]:
    """Return what a table of trials says, by method; a trial that lacks a seed does not count."""
    trials: dict[str, list[Trial]] = {}
    for cell in cells:
        if len(cell.runs) < cell.expected:
            continue
        value = cell.job.settings.flat()[tuned(cell.label)]
        accuracy = math.nan if cell.diverged or cell.mean is None else cell.mean
        trials.setdefault(cell.label, []).append(Trial(value, accuracy))
    found = {}
    for method, of_method in trials.items():
        by_value = sorted(of_method, key=lambda trial: trial.value)
        found[method] = Tuning(method, tuned(method), tuple(by_value))
    without = found[_BASELINE].chosen if _BASELINE in found else None
    if without is not None:
        for method in found.keys() & _FROM_BASELINE:
            found[method] = replace(found[method], without=without.accuracy)
    return found


def tuned(method: str) -> str:
    """Return the name of what is tuned for a method: its coefficient, else the learning rate."""
    return _COEFFICIENTS.get(method, "lr")
