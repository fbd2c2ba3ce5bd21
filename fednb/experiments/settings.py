"""The settings of a run: each declared once, filled with the papers' values, and checked when it is given."""

# ruff: noqa: RUF009 (`_says` makes fields)

from __future__ import annotations

import dataclasses
import difflib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import yaml

from fednb import data, rules
from fednb.data import catalog
from fednb.rules import BelowOne, Count, NonNegative, NonNegativeInt, Positive, short

if TYPE_CHECKING:
    from fednb.federation import FedAvg, Training


class SettingsError(ValueError):
    """A parameter with an unknown name or a bad value; the message says what is allowed."""


_PAPERS = yaml.safe_load(Path(__file__).with_name("papers.yaml").read_text(encoding="utf-8"))
SPLITS: dict[str, dict[str, dict[str, Any]]] = _PAPERS["splits"]  # kind of split, data set, settings
METHODS: dict[str, dict[str, dict[str, Any]]] = _PAPERS["methods"]  # method, data set or "usual", hyperparameters


def splits_of(dataset: str) -> dict[str, dict[str, Any]]:
    """The usual settings of a data set per kind of split; of one's own images these need its size and domains."""
    if dataset in data.NAMES:
        return {split: known[dataset] for split, known in SPLITS.items() if dataset in known}
    facts = data.facts_of(dataset)
    side, domains = facts.shape[1], len(facts.domains)
    small = "digits-cnn" if side in (8, 16) else "simple-cnn" if side in (28, 32) else "resnet-10"
    own = {split: values | {"model": small} for split, values in _PAPERS["own"].items() if split != "domain" or domains}
    return {split: values | ({"num_clients": domains} if split == "domain" else {}) for split, values in own.items()}


# What `fednb.models` has, known here without PyTorch, whose import takes seconds: networks, and whether they have a
# projection head; numbers in which layers compute.
MODELS = dict.fromkeys(("digits-cnn", "simple-cnn", "resnet-10", "resnet-10-16", "resnet-18", "resnet-50"), True)
MODELS |= dict.fromkeys((f"{kind}-cnn{width}" for kind in ("mnist", "femnist") for width in ("", "-18", "-22")), False)
MODELS |= dict.fromkeys(("resnet-18-7x7", "resnet-18-7x7-stride-1-4"), False)
PRECISIONS = ("float32", "bf16")


class _Networks:
    """The names of networks: those above, and what somebody has added to ``fednb.models.MODELS``."""

    def __iter__(self) -> Any:
        return iter(MODELS | getattr(sys.modules.get("fednb.models"), "MODELS", {}))


Seed = Annotated[int, lambda v: 0 <= v < 2**32, "a whole number from 0 to 4294967295"]
Share = Annotated[float, lambda v: 0 < v <= 1, "a fraction in (0, 1]"]
Inside = Annotated[float, lambda v: 0 < v < 1, "a fraction between 0 and 1"]
Concentration = Annotated[float, lambda v: 1e-3 <= v <= 1e6, "a number from 0.001 to 1000000"]
Split, Network, Precision = map(rules.one_of, (SPLITS, _Networks(), PRECISIONS))
Draw = rules.one_of(("uniform", "normal"))


def _says(words: str, *, of: tuple[str, ...] = (), none: str = "", same: Any = None) -> Any:
    """What a setting is, and where it applies; its type is its rule.

    ``of`` are the kinds of split that it belongs to, if not to all. ``none`` is what None means; empty: it may not be None
    where it applies. ``same`` says the same as None, so that a run has one key; where the paper has another value, it stays.
    """
    return field(metadata={"says": words, "of": of, "none": none, "same": same})


_LABELS, _SHOTS, _DOMAINS = ("dirichlet", "quantity"), ("n-way-k-shot",), ("domain",)


@dataclass(frozen=True, repr=False)
class Settings:
    """A run in full: nothing is left open, and nothing that does not matter is in it."""

    method: str
    hyperparameters: dict[str, Any]
    dataset: str
    partition: Split = _says("how the images are divided among the clients")
    beta: Concentration | None = _says("Dirichlet concentration: small means uneven", of=_LABELS)
    balance: bool | None = _says("no more images for full clients", of=("dirichlet",), none="as MOON's code")
    min_size: Count | None = _says("images that a client has at least", of=_LABELS, none="10, as MOON's code")
    num_clients: Count = _says("clients")
    participation: Share = _says("fraction of the clients that is sampled in each round")
    num_rounds: Count = _says("communication rounds")
    local_epochs: Count = _says("epochs of a client in each round")
    batch_size: Count = _says("images in a batch")
    lr: Positive = _says("learning rate of the clients' SGD")
    momentum: BelowOne = _says("momentum of the clients' SGD")
    weight_decay: NonNegative = _says("weight decay of the clients' SGD")
    model: Network = _says("network")
    projection_head: bool = _says("two more layers before the output layer")
    projection_dim: Count | None = _says("width of the projection head's output", none="the network's own")
    validation: Inside | None = _says("fraction of the training images that is held out", none="none")
    ways: Count | None = _says("n, classes of a client, on average", of=_SHOTS)
    stdev: NonNegativeInt | None = _says("spread of n, and of k", of=_SHOTS)
    shots: Count | None = _says("k, training images of a client per class", of=_SHOTS)
    test_shots: Count | None = _says("test images of a client per class", of=_SHOTS)
    draw: Draw | None = _says("how n and k are drawn", of=_SHOTS)
    heterogeneous: bool | None = _says("networks that differ between clients", none="equal ones", same=False)
    pretrained: bool | None = _says("start from ImageNet weights", none="from random ones", same=False)
    precision: Precision | None = _says("in which layers compute", none="float32", same="float32")
    per_domain: Count | None = _says("training images of a client, at most", of=_DOMAINS)
    balanced_draw: bool | None = _says("of each class as many, as far as there are", of=_DOMAINS)
    test_per_domain: Count | None = _says("test images of a domain, at most", of=_DOMAINS, none="all")
    keep_last: bool | None = _says("train on the last, incomplete batch too", none="it is dropped", same=False)
    local_steps: Count | None = _says("SGD steps of a client in a phase, at most", none="whole epochs")
    evaluate_every: Count | None = _says("rounds from one evaluation to the next", none="1", same=1)
    seed: Seed = _says("partition, initial weights, batches and augmentation follow from it")

    @property
    def training(self) -> Training:
        """What every client is told."""
        from fednb.federation import Training

        return Training(**{f.name: getattr(self, f.name) for f in dataclasses.fields(Training)})

    def flat(self) -> dict[str, Any]:
        """All settings in one level, as records have them: hyperparameters by their own names, a folder not by its path."""
        values = vars(self) | {"dataset": data.recorded_name(self.dataset)}
        return values | values.pop("hyperparameters")

    def __repr__(self) -> str:
        """A line per setting: name, value, and what it is."""
        said = {name: told["says"] for name, told in FIELDS.items()}
        lines = [(n, str(v), said.get(n, "")) for n, v in self.flat().items() if v is not None]
        return "\n".join(f"{name:>16}  {value:<14}  {says}".rstrip() for name, value, says in lines)


FIELDS = {f.name: f.metadata for f in dataclasses.fields(Settings) if f.metadata}


def table() -> str:
    """All settings as a table in Markdown."""
    lines = ["| setting | what it is | values | without it | of partition |", "| :-- | :-- | :-- | :-- | :-- |"]
    for name, told in FIELDS.items():
        words = rules.of(Settings)[name].words
        lines.append(f"| `{name}` | {told['says']} | {words} | {told['none']} | {', '.join(told['of'])} |")
    return "\n".join(lines) + "\n"


def usual_split(dataset: str) -> str:
    """Label shift, or between domains where a data set has several."""
    return "domain" if data.domain_names(dataset) else "dirichlet"


def defaults(method: str, dataset: str, partition: str | None = None) -> dict[str, Any]:
    """The paper's settings of a method on a data set, under a kind of split; None is the usual one.

    Raises
    ------
    SettingsError
        If no paper has such a split of that data set.
    """
    split, known = partition or usual_split(dataset), splits_of(dataset)
    if split not in known:
        raise SettingsError(
            f"There are no settings for {dataset} with partition {partition!r}; there are for {', '.join(SPLITS[split])}."
        )
    own = METHODS.get(method, {})
    values = dict.fromkeys(FIELDS) | known[split] | own.get("usual", {}) | own.get(dataset, {})
    del values["seed"]
    if split in ("n-way-k-shot", "domain"):  # there a method is as long as the others
        values |= {name: known[split][name] for name in ("num_rounds", "local_epochs")}
    if split == "n-way-k-shot":
        values["num_rounds"] = _PAPERS["rounds"].get(dataset, {}).get(method, values["num_rounds"])
    return values


def resolve(
    methods: Mapping[str, type[FedAvg]],
    *,
    method: str,
    dataset: str,
    seed: int = 0,
    sampled: int | None = None,
    **given: Any,
) -> Settings:
    """Fill what is None with the paper's setting for the data set, and check every value.

    Parameters
    ----------
    methods
        Known methods by name.
    sampled
        ``participation`` as a number of clients.
    given
        Settings, and hyperparameters of any of the methods. One that the chosen method does not have must be
        None: a parameter that would not be read is an error.

    Raises
    ------
    SettingsError
        For an unknown name, a bad value, or a parameter that this run would not read.
    """
    _known("method", method, methods)
    if not str(dataset).startswith(catalog.OWN_FOLDER):
        _known("dataset", dataset, catalog.FACTS)
    given = {name: value for name, value in given.items() if value is not None}
    own = _hyperparameters(methods[method])
    for name in (name for name in given if name not in FIELDS and name not in own):
        if owners := [other for other, cls in methods.items() if name in _hyperparameters(cls)]:
            told = f"{method} has no parameter {name!r}, which belongs to {', '.join(owners)}; leave it at None."
            raise SettingsError(told)
        _known("parameter", name, [*FIELDS, "method", "dataset", "sampled", *own])
    split = given.get("partition", usual_split(dataset))
    try:
        rules.of(Settings)["partition"].fit("partition", split)
        usual = defaults(method, dataset, split)
        values = usual | given | {"seed": seed}
        if sampled is not None:
            if "participation" in given:
                raise SettingsError("sampled says participation as a number of clients: give one of the two.")
            if type(sampled) is not int or not 1 <= sampled <= values["num_clients"]:
                raise SettingsError(f"sampled is {short(sampled)}; it must be a whole number from 1 to num_clients.")
            values["participation"] = sampled / values["num_clients"]
        values |= {name: _settle(name, values[name], split, name in given, usual.get(name)) for name in FIELDS}
    except ValueError as error:
        raise SettingsError(str(error)) from error
    _check_together(dataset, values, given)
    hyperparameters = {name: values.get(name, default) for name, default in own.items()}
    try:
        fitting = rules.of(methods[method])
        hyperparameters |= {name: fitting[name].fit(name, hyperparameters[name]) for name in own if name in fitting}
        methods[method](**hyperparameters)  # a method checks its own
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{method}: {error}") from error
    settings = {name: values[name] for name in FIELDS}
    return Settings(method=method, hyperparameters=hyperparameters, dataset=dataset, **settings)


def _hyperparameters(method: type[FedAvg]) -> dict[str, Any]:
    return {f.name: f.default for f in dataclasses.fields(method)}


def _applies(name: str, split: str) -> bool:
    return not FIELDS[name]["of"] or split in FIELDS[name]["of"]


def _settle(name: str, value: Any, split: str, given: bool, usual: Any) -> Any:
    """The value as a run has it: None where the setting does not apply, or where it says the same as None."""
    told = FIELDS[name]
    if not _applies(name, split):
        if given:
            owners = " or ".join(map(repr, told["of"]))
            raise SettingsError(f"{name} belongs to partition {owners}; with {split!r} leave it at None.")
        return None
    if value is None and told["none"]:
        return None
    value = rules.of(Settings)[name].fit(name, value)
    return None if told["same"] is not None and value == told["same"] and usual is None else value


def _check_together(dataset: str, values: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """What a value of its own does not tell."""
    clients, split, model = values["num_clients"], values["partition"], values["model"]
    if split == "domain" and clients != (domains := len(data.domain_names(dataset))):
        told = f"{dataset} has {domains} domains with one client each; leave it at None."
        raise SettingsError(f"num_clients is {clients}, but {told}")
    if not values["projection_head"] and "projection_dim" in given:
        raise SettingsError("projection_dim belongs to a projection head; with projection_head False leave it at None.")
    if values["projection_head"] and not MODELS.get(model, True):
        raise SettingsError(f"Model {model!r} has no projection head; set projection_head to False.")
    if split not in ("n-way-k-shot", "domain"):
        images = data.num_images(dataset)
        left = images - (max(1, round(images * values["validation"])) if values["validation"] else 0)
        least = (values["min_size"] or 10) if split != "iid" else 1
        if clients * least > left:
            raise SettingsError(
                f"{clients} clients with at least {least} images each need {clients * least:,}, and {dataset} has {left:,} "
                "to train on: take fewer clients, a smaller min_size, or hold out less for validation."
            )


def deviations(settings: Settings, given: Mapping[str, Any] | None = None) -> list[str]:
    """In which settings a run deviates from the paper's: ``["num_rounds 20 instead of 100", ...]``.

    Neither the seed counts nor how often accuracy is looked at: a run ends as the paper's. ``given`` is what the paper has
    in a certain table, where that is not its usual setting.
    """
    paper = defaults(settings.method, settings.dataset, settings.partition) | dict(given or {})
    paper.pop("evaluate_every")
    no_limit = {"test_per_domain": "all", "local_steps": "whole epochs", "precision": "float32"}
    return [
        f"{name} {value} instead of {no_limit.get(name) if paper[name] is None else paper[name]}"
        for name, value in settings.flat().items()
        if name in paper and value != paper[name] and (name not in FIELDS or _applies(name, settings.partition))
    ]


def known(name: Any, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: the known ones, and the closest if one is close."""
    names = list(names)
    close = difflib.get_close_matches(str(name), names, 1)
    return f"known are {', '.join(names)}" + (f"; did you mean {close[0]!r}?" if close else ".")


def _known(what: str, name: Any, names: Iterable[str]) -> None:
    if name not in names:
        raise SettingsError(f"Unknown {what} {short(name)}: {known(name, names)}")
