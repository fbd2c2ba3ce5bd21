"""The papers' settings (``papers.yaml``), and in what a run deviates from them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fednb import data
from fednb.errors import require_known
from fednb.experiments.schema import FIELDS, Settings

_PAPERS = yaml.safe_load(Path(__file__).with_name("papers.yaml").read_text(encoding="utf-8"))
SPLITS: dict[str, dict[str, dict[str, Any]]] = _PAPERS["splits"]  # partition, data set, settings
_METHODS: dict[str, dict[str, dict[str, Any]]] = _PAPERS["methods"]  # method, data set or "any"
_ROUNDS: dict[str, dict[str, int]] = _PAPERS["rounds"]  # data set, method, number of rounds

# With these partitions all methods of a paper train equally long, whatever their own papers say.
_EQUALLY_LONG = ("n-way-k-shot", "domain")


class Deviation(NamedTuple):
    """A setting in which a run is not as the paper's, or not as another run."""

    name: str
    value: Any  # of the run
    paper: Any  # of the paper; where it sets none, what that means ("all", "whole epochs")

    def __str__(self) -> str:
        return f"{self.name} {self.value} instead of {self.paper}"  # as it stands in records


def paper_values(method: str, dataset: str, partition: str) -> dict[str, Any]:
    """The paper's settings and hyperparameters of a method on a data set with a kind of partition.

    What the papers leave open is None, and there is no seed. A `SettingsError` if there are no
    settings for the data set.
    """
    of_dataset = _values_of_dataset(dataset, partition)
    of_method = _METHODS.get(method, {})
    values = dict.fromkeys(FIELDS) | of_dataset
    values |= of_method.get("any", {})
    values |= of_method.get(dataset, {})
    del values["seed"]
    if partition in _EQUALLY_LONG:
        values["num_rounds"] = of_dataset["num_rounds"]
        values["local_epochs"] = of_dataset["local_epochs"]
    if partition == "n-way-k-shot":
        rounds_of_method = _ROUNDS.get(dataset, {})
        values["num_rounds"] = rounds_of_method.get(method, values["num_rounds"])
    return values


def _values_of_dataset(dataset: str, partition: str) -> dict[str, Any]:
    """What all methods have in common on a data set."""
    facts = data.spec_of(dataset)
    is_own = dataset not in data.NAMES
    if is_own and (facts.domains or partition != "domain"):
        side = facts.shape[1]
        network = _PAPERS["own networks"].get(side, "resnet-10")
        values = _PAPERS["own"][partition] | {"model": network}
    else:
        what = f"There are no settings with partition {partition!r} for"
        require_known(what, dataset, SPLITS[partition])
        values = SPLITS[partition][dataset]
    if partition == "domain":
        values = values | {"num_clients": len(facts.domains)}
    return values


def deviations(settings: Settings, given: Mapping[str, Any] | None = None) -> list[Deviation]:
    """In what settings deviate from the paper's, or from those ``given``, in their order.

    Neither the seed nor how often one evaluates is a deviation, and a hyperparameter only where the
    paper has a value.
    """
    stated = _PAPERS["stated"].get(settings.method, ())
    paper = {name: value for name, value in settings.defaults.items() if name in stated}
    paper |= paper_values(settings.method, settings.dataset, settings.partition)
    paper |= given or {}
    for name, info in FIELDS.items():
        if not info.applies_to(settings.partition):
            paper[name] = None
    result = []
    for name, value in settings.flat().items():
        if name == "evaluate_every" or name not in paper or value == paper[name]:
            continue
        expected = paper[name]
        if expected is None and name in FIELDS:
            info = FIELDS[name]
            expected = info.none_means if info.default is None else info.default
        result.append(Deviation(name, value, expected))
    return result
