"""How settings are called where people read them, and how those of runs differ from a paper's."""

from dataclasses import replace
from typing import Any

from fednb.settings import Deviation, Settings, deviations
from fednb_lab.measures import Measure
from fednb_lab.printed import UNSPECIFIED, PrintedCell, same_value
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


class TuningDeviation(Deviation):
    """A parameter that the paper tunes: here it has another value, or fewer were tried."""


def deviations_of(
    table: Table, own: Settings, measure: Measure, printed: PrintedCell, tried: int
) -> list[Deviation]:
    """List how settings of runs in a cell deviate from those of the number that is printed there.

    What the paper varies in the table is no deviation. Nor is what it tunes, unless the value is
    none of its own, or fewer than it has were ``tried``: so many have finished runs.
    """
    if measure.name == "halfway" and "num_rounds" in printed.settings:
        # printed there is the length of half a run
        own = replace(own, num_rounds=max(own.num_rounds // 2, 1))
    flat = own.flat()
    stated: dict[str, Any] = {}
    if table.printed:  # what the paper varies in the table is as our runs have it
        for axis in (table.rows, table.columns):
            stated[axis.parameter] = flat.get(axis.parameter)
    stated |= printed.settings
    tuned = {n: grid for n, grid in stated.items() if isinstance(grid, list) and n in flat}
    found: list[Deviation] = []
    for one in deviations(own, stated):
        as_ours = one.paper == UNSPECIFIED or same_value(one.paper, one.value)
        if not as_ours and one.name not in tuned:
            found.append(one)
    for name, grid in tuned.items():
        if flat[name] not in grid:
            expected = f"one of {', '.join(map(str, grid))}"
            found.append(TuningDeviation(name, flat[name], expected))
        elif 0 < tried < len(grid):
            here = f"{flat[name]} alone" if tried == 1 else f"the best of {tried}"
            found.append(TuningDeviation(name, here, f"{len(grid)} values"))
    return found
