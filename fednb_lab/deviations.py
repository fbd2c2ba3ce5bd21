"""How settings are called where people read them, and how those of runs differ from a paper's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fednb.settings import Deviation, Settings, deviations
from fednb_lab.measures import Measure
from fednb_lab.printed import NOT_TOLD, PrintedCell, same_value
from fednb_lab.sweeps import Table

_NAMES = {
    "lr": "learning rate",
    "lam": "λ",
    "lam1": "λ₁",
    "lam2": "λ₂",
    "mu": "μ",
    "mu_glob": "μ_glob",
    "mu_moon": "μ_moon",
    "alpha": "α",
    "beta": "β",
}
_SWITCHES = {
    ("niid_bench", True): "as in NIID-Bench",
    ("momentum_factor", False): "without the momentum factor",
    ("classical", True): "classical momentum",
    ("balance", False): "without the balance rule",
    ("random_start", True): "with a random start",
    ("pretrained", False): "without ImageNet weights",
    ("projection_head", True): "with a projection head",
    ("projection_head", False): "without a projection head",
}
_KINDS_OF_SPLIT = {
    "dirichlet": "label shift",
    "iid": "IID clients",
    "quantity": "quantity shift",
    "domain": "a domain for each client",
    "n-way-k-shot": "n classes for each client",
}


def called(setting: str) -> str:
    """Name a setting as people read it: ``learning rate``, ``λ₁``."""
    return _NAMES.get(setting, setting.replace("_", " "))


def value_called(setting: str, of: Any) -> str:
    """Put a value in words, without the name of the setting."""
    return _KINDS_OF_SPLIT.get(of, str(of)) if setting == "partition" else str(of)


def called_with_value(setting: str, of: Any) -> str:
    """Name a setting with its value: ``λ₁ = 0.3``, ``learning rate 0.02``, ``without the balance rule``."""
    title = called(setting)
    if isinstance(of, bool):
        usual = title if of else f"without {title}"
        return _SWITCHES.get((setting, of), usual)
    if setting == "partition":
        return value_called(setting, of)
    is_symbol = not title.isascii()
    return f"{title} = {of}" if is_symbol else f"{title} {of}"


class TuningDeviation(NamedTuple):
    """A parameter that the paper tunes: here it has another value, or fewer were tried."""

    name: str
    value: Any  # None where it was chosen among several
    tried: int  # so many of the paper's values have finished runs; 0: the value is none of these
    grid: Sequence[Any]  # the paper's values


AnyDeviation = Deviation | TuningDeviation


class Choice(NamedTuple):
    """The value of a parameter that was the best of several, on test images."""

    name: str
    value: Any
    tried: int  # so many values have finished runs
    planned: int  # so many values the paper tried, or, if it does not say, the table has


@dataclass(frozen=True)
class PaperComparison:
    """Settings of runs beside those of a paper, in which a list stands for tuning."""

    own: Settings
    stated: Mapping[str, Any]

    @property
    def tuned(self) -> dict[str, list[Any]]:
        """The values that the paper tries of each parameter that it tunes and the runs have."""
        own = self.own.flat()
        return {n: grid for n, grid in self.stated.items() if isinstance(grid, list) and n in own}

    def deviations(self, tried: int) -> list[AnyDeviation]:
        """All deviations, if ``tried`` values of a tuned parameter have finished runs.

        What the paper varies in the table is none. Nor is what it tunes, unless the value is none
        of its own, or fewer were tried.
        """
        own = self.own.flat()
        found: list[AnyDeviation] = []
        for one in deviations(self.own, self.stated):
            as_ours = one.paper == NOT_TOLD or same_value(one.paper, one.value)
            if not as_ours and one.name not in self.tuned:
                found.append(one)
        for name, grid in self.tuned.items():
            if own[name] not in grid:
                found.append(TuningDeviation(name, own[name], 0, grid))
            elif 0 < tried < len(grid):
                value = own[name] if tried == 1 else None
                found.append(TuningDeviation(name, value, tried, grid))
        return found

    def choice(self, best_of: str | None, tried: int, num_candidates: int) -> Choice | None:
        """The choice that runs rest on, if the best of several values of ``best_of`` was taken."""
        own = self.own.flat()
        if best_of is None or best_of not in own:
            return None
        grid = self.tuned.get(best_of)
        planned = num_candidates if grid is None else len(grid)
        fewest = 1 if grid is None else 2  # one of the paper's values alone is a deviation
        if planned < 2 or tried < fewest:
            return None
        return Choice(best_of, own[best_of], tried, planned)


def compare_with_paper(
    table: Table, own: Settings, measure: Measure, printed: PrintedCell
) -> PaperComparison:
    """The settings of runs in a cell, beside those of the number that is printed there."""
    if measure.name == "halfway" and "num_rounds" in printed.settings:
        # printed there is the length of half a run
        own = replace(own, num_rounds=max(own.num_rounds // 2, 1))
    flat = own.flat()
    stated: dict[str, Any] = {}
    if table.printed:  # what the paper varies in the table is as our runs have it
        for axis in (table.rows, table.columns):
            stated[axis.parameter] = flat.get(axis.parameter)
    return PaperComparison(own, stated | dict(printed.settings))
