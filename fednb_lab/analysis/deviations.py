"""How the settings of runs differ from those under which a paper's number was made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fednb.experiments.settings import Deviation, Settings, deviations
from fednb_lab.analysis.measures import Measure
from fednb_lab.analysis.reported import NOT_TOLD, PrintedCell, same_value
from fednb_lab.sweeps import Table


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
