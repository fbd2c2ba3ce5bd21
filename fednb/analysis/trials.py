"""Tuning by trials: the one number that is tuned for a method, what was tried, what was chosen."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fednb.analysis.cells import Cell

_BASELINE = "FedAvg"
_NOT_FROM_BASELINE = ("FedProto",)  # with a coefficient of 0 it is training alone
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


class Trial(NamedTuple):
    """A value that was tried."""

    value: float
    accuracy: float | None  # on held-out images, the mean over seeds; None if a run diverged


@dataclass(frozen=True)
class Tuning:
    """The trials of a method on a split."""

    method: str
    tuned: str  # a setting or hyperparameter
    trials: tuple[Trial, ...]  # in the order of their values
    without: float | None = None  # held-out accuracy with a coefficient of 0, which is FedAvg's

    @property
    def chosen(self) -> Trial | None:
        """The best one, of equally good ones the smallest; None if all diverged."""
        best: Trial | None = None
        for trial in self.trials:
            if trial.accuracy is None:
                continue
            if best is None or best.accuracy is None or trial.accuracy > best.accuracy:
                best = trial
        return best

    @property
    def gain(self) -> float | None:
        """How far the chosen trial is above a coefficient of 0; None if there is no such."""
        chosen = self.chosen
        if self.without is None or chosen is None or chosen.accuracy is None:
            return None
        return chosen.accuracy - self.without

    @property
    def spread(self) -> float:
        """How far the best and the worst trial are apart, of those without a diverged run."""
        accuracies = [trial.accuracy for trial in self.trials if trial.accuracy is not None]
        return max(accuracies) - min(accuracies) if accuracies else float("nan")

    @property
    def at_edge(self) -> bool:
        """Whether nothing was tried beyond the chosen value; a coefficient of 0 is, by FedAvg."""
        chosen = self.chosen
        if chosen is None or chosen.accuracy is None:
            return False
        if chosen == self.trials[0] and self.without is not None:
            return self.without >= chosen.accuracy
        return chosen in (self.trials[0], self.trials[-1])


def tunings(cells: Sequence[Cell]) -> dict[str, Tuning]:
    """What a table of trials says, by method; a trial that lacks a seed does not count yet."""
    trials: dict[str, list[Trial]] = {}
    for cell in cells:
        if len(cell.runs) < cell.expected:
            continue
        value = cell.job.settings.flat()[tuned(cell.label)]
        accuracy = None if cell.diverged else cell.mean
        trials.setdefault(cell.label, []).append(Trial(value, accuracy))
    found: dict[str, Tuning] = {}
    for method, of_method in trials.items():
        found[method] = Tuning(
            method, tuned(method), tuple(sorted(of_method, key=lambda trial: trial.value))
        )
    without = found[_BASELINE].chosen if _BASELINE in found else None
    if without is None:
        return found
    return {method: _beside(tuning, without) for method, tuning in found.items()}


def _beside(tuning: Tuning, without: Trial) -> Tuning:
    """The same with what a coefficient of 0 comes to, if it has one and that is FedAvg."""
    if tuning.method in _COEFFICIENTS and tuning.method not in _NOT_FROM_BASELINE:
        return replace(tuning, without=without.accuracy)
    return tuning


def tuned(method: str) -> str:
    """The name of what is tuned for a method: its coefficient, else the learning rate."""
    return _COEFFICIENTS.get(method, "lr")
