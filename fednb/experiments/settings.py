"""The papers' settings per data set, and the check of what a reader, a sweep or a command line asks for."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, get_args

from fednb import data
from fednb.rules import BelowOne, Count, NonNegative, NonNegativeInt, Positive

if TYPE_CHECKING:
    from fednb.federation import FedAvg, Training


class SettingsError(ValueError):
    """A parameter with an unknown name or a bad value; the message says what is allowed."""


# --- the papers' settings ---------------------------------------------------------------------------------------------

# MOON, section 4.1; FedProc and FedSSC follow it. What is not in the paper is in its code.
_MOON: dict[str, Any] = {
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

# What `fednb.models` has, known here without PyTorch, whose import takes seconds: networks, and whether they have a
# projection head; numbers in which layers compute.
MODELS = dict.fromkeys(("digits-cnn", "simple-cnn", "resnet-10", "resnet-10-16", "resnet-18", "resnet-50"), True)
MODELS |= dict.fromkeys((f"{kind}-cnn{width}" for kind in ("mnist", "femnist") for width in ("", "-18", "-22")), False)
MODELS |= dict.fromkeys(("resnet-18-7x7", "resnet-18-7x7-stride-1-4"), False)
PRECISIONS = ("float32", "bf16")


# --- a run's settings -------------------------------------------------------------------------------------------------

_Seed = Annotated[int, lambda v: 0 <= v < 2**32, "a whole number from 0 to 4294967295"]
_Share = Annotated[float, lambda v: 0 < v <= 1, "a fraction in (0, 1]"]
_Inside = Annotated[float, lambda v: 0 < v < 1, "a fraction between 0 and 1"]
_Concentration = Annotated[float, lambda v: 1e-3 <= v <= 1e6, "a number from 0.001 to 1000000"]
_Switch = Annotated[bool, lambda v: True, "True or False"]


def _one_of(names: Iterable[str]) -> Any:
    names = tuple(names)
    return Annotated[str, names.__contains__, f"one of {', '.join(names)}"]


def _setting(rule: Any, says: str, *, of: tuple[str, ...] = (), none: str = "", same: Any = None) -> Any:
    """A setting, declared once.

    Parameters
    ----------
    rule
        What is allowed: an ``Annotated`` type with a test and its words.
    says
        What it is, for people.
    of
        The kinds of split that it belongs to; empty: to all.
    none
        What None means; empty: it may not be None where it applies.
    same
        A value that says the same as None, so that a run has one key; where the paper has another value, it stays.
    """
    return field(metadata={"rule": rule, "says": says, "of": of, "none": none, "same": same})


_LABELS, _SHOTS, _DOMAINS = ("dirichlet", "quantity"), ("n-way-k-shot",), ("domain",)


@dataclass(frozen=True, repr=False)
class Settings:
    """A run in full: nothing is left open, and nothing that does not matter is in it."""

    method: str
    hyperparameters: dict[str, Any]
    dataset: str
    partition: str = _setting(_one_of(SPLITS), "how the images are divided among the clients")
    beta: float | None = _setting(_Concentration, "Dirichlet concentration: small means uneven", of=_LABELS)
    balance: bool | None = _setting(_Switch, "no more images for full clients", of=("dirichlet",), none="as MOON's code")
    min_size: int | None = _setting(Count, "images that a client has at least", of=_LABELS, none="10, as MOON's code")
    num_clients: int = _setting(Count, "clients")
    participation: float = _setting(_Share, "fraction of the clients that is sampled in each round")
    num_rounds: int = _setting(Count, "communication rounds")
    local_epochs: int = _setting(Count, "epochs of a client in each round")
    batch_size: int = _setting(Count, "images in a batch")
    lr: float = _setting(Positive, "learning rate of the clients' SGD")
    momentum: float = _setting(BelowOne, "momentum of the clients' SGD")
    weight_decay: float = _setting(NonNegative, "weight decay of the clients' SGD")
    model: str = _setting(_one_of(MODELS), "network")
    projection_head: bool = _setting(_Switch, "two more layers before the output layer")
    projection_dim: int | None = _setting(Count, "width of the projection head's output", none="the network's own")
    validation: float | None = _setting(_Inside, "fraction of the training images that is held out", none="none")
    ways: int | None = _setting(Count, "n, classes of a client, on average", of=_SHOTS)
    stdev: int | None = _setting(NonNegativeInt, "spread of n, and of k", of=_SHOTS)
    shots: int | None = _setting(Count, "k, training images of a client per class", of=_SHOTS)
    test_shots: int | None = _setting(Count, "test images of a client per class", of=_SHOTS)
    draw: str | None = _setting(_one_of(("uniform", "normal")), "how n and k are drawn", of=_SHOTS)
    heterogeneous: bool | None = _setting(_Switch, "networks that differ between clients", none="equal ones", same=False)
    pretrained: bool | None = _setting(_Switch, "start from ImageNet weights", none="from random ones", same=False)
    precision: str | None = _setting(_one_of(PRECISIONS), "in which layers compute", none="float32", same="float32")
    per_domain: int | None = _setting(Count, "training images of a client, at most", of=_DOMAINS)
    balanced_draw: bool | None = _setting(_Switch, "of each class as many, as far as there are", of=_DOMAINS)
    test_per_domain: int | None = _setting(Count, "test images of a domain, at most", of=_DOMAINS, none="all")
    keep_last: bool | None = _setting(_Switch, "train on the last, incomplete batch too", none="it is dropped", same=False)
    local_steps: int | None = _setting(Count, "SGD steps of a client in a phase, at most", none="whole epochs")
    evaluate_every: int | None = _setting(Count, "rounds from one evaluation to the next", none="1", same=1)
    seed: int = _setting(_Seed, "partition, initial weights, batches and augmentation follow from it")

    @property
    def training(self) -> Training:
        """What every client is told."""
        from fednb.federation import Training

        return Training(**{f.name: getattr(self, f.name) for f in dataclasses.fields(Training)})

    def flat(self) -> dict[str, Any]:
        """All settings in one level; a hyperparameter is called by its own name."""
        values = dict(vars(self))
        return values | values.pop("hyperparameters")

    def __repr__(self) -> str:
        """A line per setting: name, value, and what it is."""
        said = {name: f.metadata["says"] for name, f in FIELDS.items()}
        lines = [(n, str(v), said.get(n, "")) for n, v in self.flat().items() if v is not None]
        return "\n".join(f"{name:>16}  {value:<14}  {says}".rstrip() for name, value, says in lines)


FIELDS = {f.name: f for f in dataclasses.fields(Settings) if f.metadata}
# A run may look at its accuracy as often as it likes: it ends as the paper's
NO_DEVIATION = ("evaluate_every",)


def table() -> str:
    """All settings as a table in Markdown."""
    lines = ["| setting | what it is | values | without it | of partition |", "| :-- | :-- | :-- | :-- | :-- |"]
    for name, f in FIELDS.items():
        told = f.metadata
        lines.append(f"| `{name}` | {told['says']} | {_words(told['rule'])[2]} | {told['none']} | {', '.join(told['of'])} |")
    return "\n".join(lines) + "\n"


def _words(rule: Any) -> tuple[type, Callable[[Any], bool], str]:
    """Type, test, and what is allowed."""
    kind, test, words = get_args(rule)
    return kind, test, words


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
    values = dict.fromkeys(FIELDS) | known[dataset] | own.get("", {}) | own.get(dataset, {})
    del values["seed"]
    if known is not DATASETS:
        values |= {name: known[dataset][name] for name in ("num_rounds", "local_epochs")}
    if known is N_WAY:
        values["num_rounds"] = _ROUNDS.get(dataset, {}).get(method, values["num_rounds"])
    return values


def usual_split(dataset: str) -> str:
    """Label shift, or between domains where a data set has several."""
    return "domain" if dataset in DOMAINS else "dirichlet"


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
    _known("dataset", dataset, {name: None for known in SPLITS.values() for name in known})
    given = {name: value for name, value in given.items() if value is not None}
    own = {f.name: f for f in dataclasses.fields(methods[method])}
    for name in given:
        if name not in FIELDS and name not in own:
            owners = [other for other, cls in methods.items() if name in {f.name for f in dataclasses.fields(cls)}]
            if owners:
                raise SettingsError(
                    f"{method} has no parameter {name!r}, which belongs to {', '.join(owners)}; leave it at None."
                )
            _known("parameter", name, [*FIELDS, "sampled", *own])
    split = given.get("partition", usual_split(dataset))
    _check("partition", split)
    usual = defaults(method, dataset, split)
    values = usual | given | {"seed": seed}
    if sampled is not None:
        if "participation" in given:
            raise SettingsError("sampled says participation as a number of clients: give one of the two.")
        if type(sampled) is not int or not 1 <= sampled <= values["num_clients"]:
            raise SettingsError(f"sampled is {short(sampled)}; it must be a whole number from 1 to num_clients.")
        values["participation"] = sampled / values["num_clients"]
    for name, f in FIELDS.items():
        of, same = f.metadata["of"], f.metadata["same"]
        if of and split not in of:
            if name in given:
                words = " or ".join(map(repr, of))
                raise SettingsError(f"{name} belongs to partition {words}; with {split!r} leave it at None.")
            values[name] = None
        elif values[name] is not None or not f.metadata["none"]:
            values[name] = _check(name, values[name])
            if same is not None and values[name] == same and usual.get(name) is None:
                values[name] = None
    _check_together(dataset, split, values, given)
    hyper = {}
    for name, f in own.items():
        hyper[name] = _like(f.default, values.get(name, f.default), f"{method}: {name}")
    try:
        methods[method](**hyper)  # a method checks its own hyperparameters
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{method}: {error}") from error
    return Settings(method=method, hyperparameters=hyper, dataset=dataset, **{name: values[name] for name in FIELDS})


def _check(name: str, value: Any) -> Any:
    """A value of a setting by its rule; a whole number will do for a float."""
    kind, test, words = _words(FIELDS[name].metadata["rule"])
    kinds = (int, float) if kind is float else (kind,)
    try:
        good = isinstance(value, kinds) and isinstance(value, bool) == (kind is bool) and test(value)
        return kind(value) if good else _refuse(name, value, words)
    except OverflowError:  # a whole number that is too large for a float
        return _refuse(name, value, words)


def _refuse(name: str, value: Any, words: str) -> Any:
    raise SettingsError(f"{name} is {short(value)}; it must be {words}.")


def short(value: Any) -> str:
    """A value as it is told in a message: not at any length."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        return "a number with very many digits"
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def _check_together(dataset: str, split: str, values: dict[str, Any], given: Mapping[str, Any]) -> None:
    """What a value of its own does not tell."""
    clients = values["num_clients"]
    if split == "domain" and clients != DOMAINS[dataset]["num_clients"]:
        raise SettingsError(
            f"num_clients is {clients}, but {dataset} has {DOMAINS[dataset]['num_clients']} domains with one "
            "client each; leave it at None."
        )
    if not values["projection_head"] and "projection_dim" in given:
        raise SettingsError("projection_dim belongs to a projection head; with projection_head False leave it at None.")
    if values["projection_head"] and not MODELS[values["model"]]:
        raise SettingsError(f"Model {values['model']!r} has no projection head; set projection_head to False.")
    if split in ("dirichlet", "quantity", "iid"):
        images = data.num_images(dataset)
        left = images - (max(1, round(images * values["validation"])) if values["validation"] else 0)
        least = (values["min_size"] or 10) if split != "iid" else 1
        if clients * least > left:
            raise SettingsError(
                f"{clients} clients with at least {least} images each need {clients * least:,}, and {dataset} has {left:,} "
                "to train on: take fewer clients, a smaller min_size, or hold out less for validation."
            )


def _like(default: Any, value: Any, name: str) -> Any:
    """A hyperparameter, checked against the type of its default; a whole number will do for a float."""
    words = {bool: "True or False", int: "a whole number", float: "a finite number", str: "a text"}
    kind = type(default)
    if kind is float and type(value) is int:
        value = float(value)
    if kind in words and (type(value) is not kind or (kind is float and not math.isfinite(value))):
        raise SettingsError(f"{name} is {value!r}; it must be {words[kind]}.")
    return value


_NO_LIMIT = {"test_per_domain": "all", "local_steps": "whole epochs", "precision": "float32"}  # what None means there


def deviations(settings: Settings, given: Mapping[str, Any] | None = None) -> list[str]:
    """In which settings a run deviates from the paper's: ``["num_rounds 20 instead of 100", ...]``.

    Neither seeds nor `NO_DEVIATION` count.

    Parameters
    ----------
    given
        What the paper has in a certain table, where that is not its usual setting.
    """
    paper = defaults(settings.method, settings.dataset, settings.partition) | dict(given or {})
    unread = [name for name, f in FIELDS.items() if f.metadata["of"] and settings.partition not in f.metadata["of"]]
    return [  # the partition itself is told
        f"{name} {value} instead of {_NO_LIMIT.get(name) if paper[name] is None else paper[name]}"
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
        raise SettingsError(f"Unknown {what} {short(name)}: {known(name, names)}")
