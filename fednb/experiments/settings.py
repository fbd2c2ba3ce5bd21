"""The papers' settings per data set, and the check of what a reader, a sweep or a command line asks for."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from fednb.federation import BelowOne, Count, FedAvg, NonNegative, NonNegativeInt, Positive, Training
from fednb.models import MODELS, PRECISIONS


class SettingsError(ValueError):
    """A parameter with an unknown name or a bad value; the message says what is allowed."""


# Which settings belong to certain kinds of split alone
_OF_SPLIT = {"balance": ("dirichlet",)} | dict.fromkeys(("beta", "min_size"), ("dirichlet", "quantity"))
_OF_SPLIT |= dict.fromkeys(("ways", "stdev", "shots", "test_shots", "draw"), ("n-way-k-shot",))
_OF_SPLIT |= dict.fromkeys(("per_domain", "balanced_draw", "test_per_domain"), ("domain",))
_OPTIONAL = (*_OF_SPLIT, "projection_dim", "validation", "heterogeneous", "pretrained")
_OPTIONAL += ("keep_last", "local_steps", "evaluate_every", "precision")
# What says the same as None, so that a recipe has one key; where the paper has another value, it stays as it is
_SAME_AS_NONE = {"heterogeneous": False, "pretrained": False, "keep_last": False, "evaluate_every": 1}
_SAME_AS_NONE |= {"precision": "float32"}
# A run may look at its accuracy as often as it likes: it ends as the paper's
NO_DEVIATION = ("evaluate_every",)

# MOON, section 4.1; FedProc and FedSSC follow it. What is not in the paper is in its code.
_MOON = dict.fromkeys(_OPTIONAL) | {
    "partition": "dirichlet",
    "beta": 0.5,
    "num_clients": 10,
    "participation": 1.0,
    "num_rounds": 100,
    "local_epochs": 10,
    "batch_size": 64,
    "lr": 0.01,
    "momentum": 0.9,
    "weight_decay": 1e-5,
    "projection_head": True,
}

# Settings per data set with label shift: the paper's where the paper has them.
# MOON has neither digits nor handwriting: these are our own, small.
DATASETS: dict[str, dict[str, Any]] = {
    "digits": _MOON | {"model": "digits-cnn", "num_rounds": 10, "local_epochs": 5, "batch_size": 16},
    "mnist": _MOON | {"model": "simple-cnn", "num_rounds": 20},
    "cifar10": _MOON | {"model": "simple-cnn"},
    "cifar100": _MOON | {"model": "resnet-50"},
    "tiny_imagenet": _MOON | {"model": "resnet-50", "num_rounds": 20},
    "emnist_letters": _MOON | {"model": "simple-cnn", "num_rounds": 20},
    "femnist": _MOON
    | {"model": "femnist-cnn", "projection_head": False, "num_rounds": 20},  # no other fits its images but a ResNet
    "usps": _MOON | {"model": "digits-cnn", "num_rounds": 20},
    "svhn": _MOON | {"model": "simple-cnn", "num_rounds": 20},
    "synthdigits": _MOON | {"model": "simple-cnn", "num_rounds": 20},
    "mnistm": _MOON | {"model": "simple-cnn", "num_rounds": 20},
}

# FedProto, section "Training setups" and appendix A; the test images per class are in its code alone.
_FEDPROTO = _MOON | {
    "partition": "n-way-k-shot",
    "beta": None,
    "ways": 3,
    "stdev": 2,
    "shots": 100,
    "test_shots": 15,
    "draw": "uniform",
    "num_clients": 20,
    "local_epochs": 1,
    "batch_size": 8,
    "momentum": 0.5,
    "weight_decay": 0.0,
    "projection_head": False,
}
# It has no digits and no EMNIST letters: what these need to differ in is our own. The letters have 1,000 training
# images of a class, too few for 100 of each at n = 4.
N_WAY: dict[str, dict[str, Any]] = {
    "digits": _FEDPROTO
    | {"model": "digits-cnn", "num_clients": 10, "num_rounds": 40, "shots": 15, "stdev": 1, "test_shots": 5, "lr": 0.05},
    "mnist": _FEDPROTO | {"model": "mnist-cnn", "test_shots": 40},
    "femnist": _FEDPROTO | {"model": "femnist-cnn", "stdev": 1, "num_rounds": 120},
    "emnist_letters": _FEDPROTO | {"model": "mnist-cnn", "stdev": 1, "num_rounds": 120, "shots": 90},
    "cifar10": _FEDPROTO | {"model": "resnet-18-7x7", "stdev": 1, "num_rounds": 110, "pretrained": True},
}

# FedPLCC, section "Experiments": one client per domain, with about 300 training images (400 on DomainNet). It gives
# neither the batch size nor what becomes of an incomplete batch, both as in RethinkFL's code, nor how the images are
# drawn: with equal classes, our choice.
_FEDPLCC = _MOON | {
    "partition": "domain",
    "beta": None,
    "per_domain": 300,
    "balanced_draw": True,
    "keep_last": True,
    "num_rounds": 50,
    "model": "resnet-10",
    "projection_head": False,
}
# It has no PACS, which stands in for DomainNet, and no small digits, which are our own.
DOMAINS: dict[str, dict[str, Any]] = {
    "digits5_mini": _FEDPLCC
    | {"model": "digits-cnn", "num_clients": 5, "num_rounds": 10, "local_epochs": 5, "batch_size": 32, "lr": 0.03},
    "digits5": _FEDPLCC | {"num_clients": 5},
    "office10": _FEDPLCC | {"num_clients": 4, "num_rounds": 100},
    "pacs": _FEDPLCC | {"num_clients": 4, "per_domain": 400},
    "domainnet": _FEDPLCC | {"num_clients": 6, "per_domain": 400},
}

# How the images are divided belongs to an experiment as a whole: with the split come the other settings.
SPLITS: dict[str, dict[str, dict[str, Any]]] = {
    "dirichlet": DATASETS,
    "iid": DATASETS,
    "quantity": DATASETS,
    "n-way-k-shot": N_WAY,
    "domain": DOMAINS,
}

# MOON: "mu = 1 is a reasonable good choice" (appendix D.1) where the paper has not tuned it
_CONTRAST = {"mu": 1.0, "temperature": 0.5, "negatives": 1, "second_term": "contrastive", "random_start": False}

# FedProc, equations 2, 4 and 5 and algorithm 1 as they are printed; the paper does not say how its c⁰ comes about
_PROTOTYPES = {"alpha": 1.0, "alpha_schedule": "linear", "alpha_rounds": 0, "temperature": 1.0, "first_round_ce": False}
_PROTOTYPES |= {"normalise_z": False, "weighted_prototypes": False}

# FedProto, tables 2 to 4: every method at the number of rounds that it is said to need; alone as long as FedProto
_ROUNDS = {
    "mnist": {"FedAvg": 150, "FedProx": 110, "FeSEM": 150, "FedPer": 100, "FedRep": 100, "Local": 100},
    "femnist": {"FedAvg": 300, "FedProx": 300, "FeSEM": 200, "FedPer": 250, "FedRep": 200, "Local": 120},
    "cifar10": {"FedAvg": 150, "FedProx": 150, "FeSEM": 120, "FedPer": 130, "FedRep": 110, "Local": 110},
}

# Hyperparameters and lengths that the papers chose per method; "" holds for every data set.
METHODS: dict[str, dict[str, dict[str, Any]]] = {
    "MOON": {"": _CONTRAST, "cifar10": {"mu": 5.0}},
    "MOON+FedAvgM": {"": _CONTRAST | {"classical": False}, "cifar10": {"mu": 5.0}},
    "FedProx": {"": {"mu": 0.01}, "cifar100": {"mu": 0.001}, "tiny_imagenet": {"mu": 0.001}},
    "SCAFFOLD": {"": {"momentum_factor": True, "niid_bench": False}},
    "FedAvgM": {"": {"classical": False}},
    # FedProc, table 1; it runs Tiny-ImageNet as long as the others
    "FedProc": {"": _PROTOTYPES, "cifar100": {"lr": 0.1}, "tiny_imagenet": {"lr": 0.1, "num_rounds": 100}},
    # FedSSC uses CIFAR-10 alone; elsewhere MOON's choice where it was not tuned
    "FedSSC": {"": {"mu_moon": 1.0}, "cifar10": {"mu_moon": 5.0}},
    "SOLO": {"": {"num_rounds": 1, "local_epochs": 300}, "digits": {"num_rounds": 1, "local_epochs": 50}},
    # FedProto, appendix A
    "FedProto": {"": {"lam": 1.0}, "cifar10": {"lam": 0.1}},
    # FedPLCC, section "Experiments": λ1 per data set, λ2 = 10 λ1. Of the methods that it compares with it gives no
    # hyperparameters ("slightly adjusted"): they are their papers' and code's. On the small digits all are our own.
    "FedPLCC": {
        "": {"lam1": 1.0, "lam2": 10.0},
        "digits5_mini": {"lam1": 0.3, "lam2": 3.0},
        "digits5": {"lam1": 100.0, "lam2": 1000.0},
        "office10": {"lam1": 20.0, "lam2": 200.0},
    },
    "FedPLVM": {"": {"lam": 100.0}, "digits5_mini": {"lam": 0.3}},
    "FPL": {"": {"temperature": 0.02}, "digits5_mini": {"temperature": 1.0}},
}
for _name in ("digits5", "office10", "pacs", "domainnet"):  # RethinkFL
    METHODS["MOON"][_name] = {"mu": 5.0}


# name: (types, test, what is allowed in words)
_Rule = tuple[tuple[type, ...], Callable[[Any], bool], str]


def _rule(hint: Any) -> _Rule:
    """A type of hyperparameters as a rule; a whole number will do for a float."""
    kind, test, words = get_args(hint)
    return (int, float) if kind is float else (kind,), test, words


_SWITCH: _Rule = (bool,), lambda v: True, "True or False"
_RULES: dict[str, _Rule] = {
    "partition": ((str,), lambda v: v in SPLITS, f"one of {', '.join(SPLITS)}"),
    "beta": _rule(Positive),
    "balance": _SWITCH,
    "min_size": _rule(Count),
    "ways": _rule(Count),
    "stdev": _rule(NonNegativeInt),
    "shots": _rule(Count),
    "test_shots": _rule(Count),
    "draw": ((str,), lambda v: v in ("uniform", "normal"), "'uniform' or 'normal'"),
    "num_clients": _rule(Count),
    "participation": ((int, float), lambda v: 0 < v <= 1, "a fraction in (0, 1]"),
    "num_rounds": _rule(Count),
    "local_epochs": _rule(Count),
    "batch_size": _rule(Count),
    "lr": _rule(Positive),
    "momentum": _rule(BelowOne),
    "weight_decay": _rule(NonNegative),
    "model": ((str,), lambda v: v in MODELS, f"one of {', '.join(MODELS)}"),
    "projection_head": _SWITCH,
    "projection_dim": _rule(Count),
    "heterogeneous": _SWITCH,
    "pretrained": _SWITCH,
    "precision": ((str,), lambda v: v in PRECISIONS, f"one of {', '.join(PRECISIONS)}"),
    "per_domain": _rule(Count),
    "balanced_draw": _SWITCH,
    "test_per_domain": _rule(Count),
    "keep_last": _SWITCH,
    "local_steps": _rule(Count),
    "evaluate_every": _rule(Count),
    "validation": ((float,), lambda v: 0 < v < 1, "a fraction between 0 and 1"),
    "seed": _rule(NonNegativeInt),
}


@dataclass(frozen=True)
class Settings:
    """A run in full: nothing is left open, and nothing that does not matter is in it."""

    method: str
    hyperparameters: dict[str, Any]
    dataset: str
    partition: str
    beta: float | None
    balance: bool | None  # None: as MOON's code does
    min_size: int | None
    num_clients: int
    participation: float
    num_rounds: int
    local_epochs: int
    batch_size: int
    lr: float
    momentum: float
    weight_decay: float
    model: str
    projection_head: bool
    projection_dim: int | None  # None: the model's own
    validation: float | None  # fraction of the training images that is held out to choose hyperparameters
    ways: int | None  # n, classes of a client, on average
    stdev: int | None  # spread of n, and of k
    shots: int | None  # k, training images of a client per class
    test_shots: int | None  # test images of a client per class
    draw: str | None  # how n and k are drawn
    heterogeneous: bool | None  # networks that differ between clients; None: all are alike
    pretrained: bool | None  # start from ImageNet weights; None: from random ones
    precision: str | None  # in which the networks compute; None: float32
    per_domain: int | None  # training images of a client, at most
    balanced_draw: bool | None  # of each class as many, as far as there are
    test_per_domain: int | None  # test images of a domain that are evaluated, at most; None: all
    keep_last: bool | None  # train on the last, incomplete batch of an epoch; None: it is dropped, as in MOON's code
    local_steps: int | None  # SGD steps of a client in a phase of a round, at most; None: whole epochs
    evaluate_every: int | None  # evaluate after every so many rounds, and after the last; None: after each
    seed: int

    @property
    def training(self) -> Training:
        names = [f.name for f in dataclasses.fields(Training)]
        return Training(**{name: getattr(self, name) for name in names})

    def flat(self) -> dict[str, Any]:
        """All settings in one level; a hyperparameter is called by its own name."""
        values = dict(vars(self))
        return values | values.pop("hyperparameters")

    def __str__(self) -> str:
        return "\n".join(f"{name:>16}  {value}" for name, value in self.flat().items() if value is not None)


def defaults(method: str, dataset: str, partition: str | None = None) -> dict[str, Any]:
    """The paper's settings of a method on a data set, under a kind of split; None is the usual one.

    Raises
    ------
    SettingsError
        If no paper has such a split of that data set.
    """
    known = SPLITS[partition or usual_split(dataset)]
    if dataset not in known:
        raise SettingsError(
            f"There are no settings for {dataset} with partition {partition!r}; there are for {', '.join(known)}."
        )
    own = METHODS.get(method, {})
    values = known[dataset] | own.get("", {}) | own.get(dataset, {})
    if known is not DATASETS:
        values |= {name: known[dataset][name] for name in ("num_rounds", "local_epochs")}
    if known is N_WAY:
        values["num_rounds"] = _ROUNDS.get(dataset, {}).get(method, values["num_rounds"])
    return values


def usual_split(dataset: str) -> str:
    """Label shift, or between domains where a data set has several."""
    return "domain" if dataset in DOMAINS else "dirichlet"


def resolve(methods: Mapping[str, type[FedAvg]], *, method: str, dataset: str, seed: int = 0, **given: Any) -> Settings:
    """Fill what is None with the paper's setting for the data set, and check every value.

    Parameters
    ----------
    methods
        Known methods by name.
    given
        Settings, and hyperparameters of any of the methods. One that the chosen method does not have must be
        None: a parameter that would not be read is an error.

    Raises
    ------
    SettingsError
        For an unknown name, a bad value, or a parameter that this run would not read.
    """
    _known("method", method, methods)
    _known("dataset", dataset, {name: None for known in SPLITS.values() for name in known})
    given = {name: value for name, value in given.items() if value is not None}
    fields = {f.name: f for f in dataclasses.fields(methods[method])}
    owners: dict[str, list[str]] = {}
    for other, cls in methods.items():
        for f in dataclasses.fields(cls):
            owners.setdefault(f.name, []).append(other)
    for name in given:
        if name not in _RULES and name not in fields:
            if name in owners:
                raise SettingsError(
                    f"{method} has no parameter {name!r}, which belongs to {', '.join(owners[name])}; leave it at None."
                )
            _known("parameter", name, [*_RULES, *fields])
    split = given.get("partition", usual_split(dataset))
    usual = defaults(method, dataset, split if split in SPLITS else None)
    values = usual | given | {"seed": seed}
    for name, owners_of in _OF_SPLIT.items():
        if split not in owners_of and split in SPLITS:
            if name in given:
                words = " or ".join(map(repr, owners_of))
                raise SettingsError(f"{name} belongs to partition {words}; with {split!r} leave it at None.")
            values[name] = None
    if split == "domain" and values["num_clients"] != DOMAINS[dataset]["num_clients"]:
        raise SettingsError(
            f"num_clients is {values['num_clients']}, but {dataset} has {DOMAINS[dataset]['num_clients']} domains with one "
            "client each; leave it at None."
        )
    if not values["projection_head"] and "projection_dim" in given:
        raise SettingsError("projection_dim belongs to a projection head; with projection_head False leave it at None.")
    for name, (types, test, words) in _RULES.items():
        value = values[name]
        if value is None and name in _OPTIONAL:
            continue
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types) or not test(value):
            raise SettingsError(f"{name} is {value!r}; it must be {words}.")
        if float in types:
            values[name] = float(value)
    values |= {name: None for name, same in _SAME_AS_NONE.items() if values[name] == same and usual[name] is None}
    if values["projection_head"] and MODELS[values["model"]][1] is None:
        raise SettingsError(f"Model {values['model']!r} has no projection head; set projection_head to False.")
    hyper = {}
    for name, f in fields.items():
        hyper[name] = _like(f.default, values.get(name, f.default), f"{method}: {name}")
    try:
        methods[method](**hyper)  # a method checks its own hyperparameters
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{method}: {error}") from error
    own = {f.name: values[f.name] for f in dataclasses.fields(Settings) if f.name in values}
    return Settings(**own | {"method": method, "dataset": dataset, "hyperparameters": hyper})


def _like(default: Any, value: Any, name: str) -> Any:
    """A hyperparameter, checked against the type of its default; a whole number will do for a float."""
    words = {bool: "True or False", int: "a whole number", float: "a finite number", str: "a text"}
    kind = type(default)
    if kind is float and type(value) is int:
        value = float(value)
    if kind in words and (type(value) is not kind or (kind is float and not math.isfinite(value))):
        raise SettingsError(f"{name} is {value!r}; it must be {words[kind]}.")
    return value


def deviations(settings: Settings, given: Mapping[str, Any] | None = None) -> list[str]:
    """In which settings a run deviates from the paper's: ``["num_rounds 20 instead of 100", ...]``.

    Neither seeds nor `NO_DEVIATION` count.

    Parameters
    ----------
    given
        What the paper has in a certain table, where that is not its usual setting.
    """
    paper = defaults(settings.method, settings.dataset, settings.partition) | dict(given or {})
    unread = [name for name, splits in _OF_SPLIT.items() if settings.partition not in splits]  # the partition itself is told
    no_limit = {"test_per_domain": "all", "local_steps": "whole epochs", "precision": "float32"}  # what None means there
    return [
        f"{name} {value} instead of {no_limit.get(name) if paper[name] is None else paper[name]}"
        for name, value in settings.flat().items()
        if name in paper and name not in (*unread, *NO_DEVIATION) and value != paper[name]
    ]


def known(name: Any, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: the known ones, and the closest if one is close."""
    names = list(names)
    close = difflib.get_close_matches(str(name), names, 1)
    return f"known are {', '.join(names)}" + (f"; did you mean {close[0]!r}?" if close else ".")


def _known(what: str, name: Any, names: Iterable[str]) -> None:
    if name not in names:
        raise SettingsError(f"Unknown {what} {name!r}: {known(name, names)}")
