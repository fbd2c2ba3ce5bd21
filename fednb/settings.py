"""The settings of a run: from what is asked for, filled with the papers' values, and checked.

Each is declared once, in `Settings`, with what it means and which values it may have. What a paper
sets for a data set stands in ``papers.yaml``; a method's own hyperparameters have the defaults of
its class.
"""

import dataclasses
import functools
import inspect
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

import yaml
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from fednb import data, models
from fednb.errors import (
    SettingsError,
    check,
    field_types,
    fit,
    is_word_of_python,
    require_known,
)
from fednb.method import BelowOne

LABEL_SHIFT = ("dirichlet", "quantity")
FEW_CLASSES = ("n-way-k-shot",)
DOMAIN_SHIFT = ("domain",)

_PAPERS = yaml.safe_load(Path(__file__).with_name("papers.yaml").read_text(encoding="utf-8"))
SPLITS: dict[str, dict[str, dict[str, Any]]] = _PAPERS["splits"]  # partition, data set, settings
# With these partitions all methods of a paper train equally long, whatever their own papers say.
_EQUALLY_LONG = ("n-way-k-shot", "domain")

Concentration = Annotated[float, Field(ge=1e-3, le=1e6)]
Share = Annotated[float, Field(gt=0, le=1)]
Inside = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


# ---- what a run has


@dataclass(frozen=True)
class SettingInfo:
    """What a reader of a setting must know besides its values, which its type says."""

    description: str
    partitions: tuple[str, ...] = ()  # the only ones to which it applies; empty: all
    # What None means, in words or as a value, which becomes None so that a run has one key; without
    # it the setting must have a value where it applies.
    default: Any = None

    def applies_to(self, partition: str) -> bool:
        """Tell whether a run with this kind of partition reads the setting."""
        return not self.partitions or partition in self.partitions


def _setting(description: str, partitions: tuple[str, ...] = (), default: Any = None) -> Any:
    """A field with its `SettingInfo`."""
    return field(metadata={"info": SettingInfo(description, partitions, default)})


@dataclass(frozen=True, repr=False)
class Settings:
    """A run in full: nothing is left open, and nothing that does not matter is in it.

    The order of the fields is that of records and of the page of settings. One that belongs to some
    kinds of partition is None in runs with another; its type is that in runs that read it.
    """

    method: str
    hyperparameters: dict[str, Any]
    dataset: str
    partition: Literal["dirichlet", "iid", "quantity", "n-way-k-shot", "domain"] = _setting(
        "how the images are divided among the clients"
    )
    beta: Concentration = _setting("Dirichlet concentration: small means uneven", LABEL_SHIFT)
    balance: bool | None = _setting(
        "no more images for full clients, as MOON's code", ("dirichlet",), default=True
    )
    min_size: Count | None = _setting(
        "images that a client has at least, as MOON's code", LABEL_SHIFT, default=10
    )
    num_clients: Count = _setting("clients")
    participation: Share = _setting("fraction of the clients that is sampled in each round")
    num_rounds: Count = _setting("communication rounds")
    local_epochs: Count = _setting("epochs of a client in each round")
    batch_size: Count = _setting("images in a batch")
    lr: PositiveFloat = _setting("learning rate of the clients' SGD")
    momentum: BelowOne = _setting("momentum of the clients' SGD")
    weight_decay: NonNegativeFloat = _setting("weight decay of the clients' SGD")
    model: str = _setting("network")
    projection_head: bool = _setting("two more layers before the output layer")
    projection_dim: Count | None = _setting(
        "width of the projection head's output", default="the network's own"
    )
    validation: Inside | None = _setting(
        "fraction of the training images that is held out", default="none"
    )
    ways: Count = _setting("n, classes of a client, on average", FEW_CLASSES)
    stdev: NonNegativeInt = _setting("spread of n, and of k", FEW_CLASSES)
    shots: Count = _setting("k, training images of a client per class", FEW_CLASSES)
    test_shots: Count = _setting("test images of a client per class", FEW_CLASSES)
    draw: Literal["uniform", "normal"] = _setting("how n and k are drawn", FEW_CLASSES)
    heterogeneous: bool | None = _setting("networks that differ between clients", default=False)
    pretrained: bool | None = _setting("start from ImageNet weights", default=False)
    per_domain: Count = _setting("training images of a client, at most", DOMAIN_SHIFT)
    balanced_draw: bool = _setting("of each class as many, as far as there are", DOMAIN_SHIFT)
    test_per_domain: Count | None = _setting(
        "test images of a domain, at most", DOMAIN_SHIFT, default="all"
    )
    keep_last: bool | None = _setting("train on the last, incomplete batch too", default=False)
    local_steps: Count | None = _setting(
        "SGD steps of a client in a phase, at most", default="whole epochs"
    )
    evaluate_every: Count | None = _setting("rounds from one evaluation to the next", default=1)
    seed: Seed = _setting("partition, initial weights, batches and augmentation follow from it")
    # the hyperparameters that the method's class has by itself, for `deviations`, and what the
    # comments beside them say, for people: no recipe
    defaults: dict[str, Any] = field(default_factory=dict, compare=False)
    comments: dict[str, str] = field(default_factory=dict, compare=False)

    def flat(self) -> dict[str, Any]:
        """Return all settings in one level, as records have them.

        Hyperparameters have their own names; a folder of one's own images is named by what is in
        it, not by its path.
        """
        values = dict(vars(self))
        del values["defaults"], values["comments"]
        hyperparameters = values.pop("hyperparameters")
        values["dataset"] = data.canonical_name(self.dataset)
        return values | hyperparameters

    def effective(self, name: str) -> Any:
        """Return the value of a setting, or its default where it is None."""
        value = getattr(self, name)
        return FIELDS[name].default if value is None else value

    def __repr__(self) -> str:
        lines = []
        for name, value in self.flat().items():
            if value is not None:
                info = FIELDS.get(name)
                description = info.description if info else self.comments.get(name, "")
                lines.append(f"{name:>16}  {value!s:<14}  {description}".rstrip())
        return "\n".join(lines)


FIELDS: dict[str, SettingInfo] = {
    setting.name: setting.metadata["info"]
    for setting in dataclasses.fields(Settings)
    if setting.metadata
}
_TYPES = field_types(Settings)


# ---- from what is asked for to the settings of a run


def resolve(
    methods: Mapping[str, type], *, method: str, dataset: str, **overrides: Any
) -> Settings:
    """Fill what is None with the paper's setting for the data set, and check every value.

    ``methods`` are the known ones by name, and ``overrides`` are settings, and hyperparameters of
    any of the methods. One that this run would not read must be None: else it is a `SettingsError`,
    as are an unknown name and a bad value.
    """
    require_known("Unknown method", method, methods)
    check_name(method)
    overrides = {name: value for name, value in overrides.items() if value is not None}
    _reject_unknown(overrides, method, methods)
    usual_partition = "domain" if data.info_of(dataset).domains else "dirichlet"
    partition = overrides.get("partition", usual_partition)
    partition = fit("partition", partition, _TYPES["partition"])
    paper = paper_values(method, dataset, partition)
    values = {"seed": 0} | paper | overrides
    checked = {}
    for name, info in FIELDS.items():
        if name in overrides and not info.applies_to(partition):
            owners = " or ".join(map(repr, info.partitions))
            _leave_out(f"{name} belongs to partition {owners}; with {partition!r}")
        checked[name] = _checked(name, values[name], partition, paper.get(name))
    _check_together(dataset, checked)
    return Settings(
        method=method,
        hyperparameters=_hyperparameters(method, methods[method], values),
        dataset=dataset,
        **checked,
        defaults={
            one.name: one.default
            for one in dataclasses.fields(methods[method])
            if one.default is not MISSING
        },
        comments=_comments(methods[method]),
    )


def _leave_out(reason: str) -> NoReturn:
    raise SettingsError(f"{reason} leave it out (at None).")


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a method: it is in file names, commands, tables and Python."""
    check(
        re.fullmatch(r"[A-Za-z][A-Za-z0-9._+-]{0,59}", name) and not is_word_of_python(name),
        f"A method cannot be called {name[:80]!r}: it must be a letter, then letters, digits and "
        ". _ + -, at most 60 characters, and no word of Python such as class or none.",
        SettingsError,
    )


def _field_names(method: type) -> list[str]:
    return [hyperparameter.name for hyperparameter in dataclasses.fields(method)]


# a line of a class, with a comment above it and one behind it
_FIELD = re.compile(r"^(?:    # (.+)\n)?    (\w+): [^#\n]*(?:# (.+))?$", re.MULTILINE)


@functools.cache  # to find a class in its source is slow, and a sweep has thousands of runs
def _comments(method: type) -> dict[str, str]:
    """What stands behind or above the hyperparameters of a method, in its class and those above it."""
    comments: dict[str, str] = {}
    for cls in reversed(method.__mro__):
        with suppress(OSError, TypeError):  # it has no source, as behind a prompt
            source = inspect.getsource(cls)
            for above, name, behind in _FIELD.findall(source):
                comments[name] = behind or above or comments.get(name, "")
    return {name: comments[name] for name in _field_names(method) if name in comments}


def _reject_unknown(overrides: Mapping[str, Any], method: str, methods: Mapping[str, type]) -> None:
    known = ["method", "dataset", *FIELDS, *_field_names(methods[method])]
    for name in overrides:
        if name in known:
            continue
        owners = [other for other, cls in methods.items() if name in _field_names(cls)]
        if owners:
            _leave_out(f"{method} has no parameter {name!r}, which belongs to {', '.join(owners)};")
        require_known("Unknown parameter", name, known)


def _checked(name: str, value: Any, partition: str, paper_value: Any) -> Any:
    """The value of a setting by its type; None where it does not apply, or says the same as None.

    The latter stays where the paper has a value: there None would mean that one.
    """
    info = FIELDS[name]
    if not info.applies_to(partition) or (value is None and info.default is not None):
        return None
    fitted = fit(name, value, _TYPES[name])
    return None if fitted == info.default and paper_value is None else fitted


def _check_together(dataset: str, values: Mapping[str, Any]) -> None:
    """Refuse what each by itself is well: clients, network and projection head."""
    facts = data.info_of(dataset)
    if values["partition"] == "domain" and values["num_clients"] != len(facts.domains):
        there = f"{dataset} has {len(facts.domains)} domains with one client each"
        _leave_out(f"num_clients is {values['num_clients']}, but {there};")
    model, side = values["model"], facts.shape[1]
    require_known("Unknown model", model, models.MODELS)
    if side not in models.MODELS[model].sides:
        fitting = [name for name, one in models.MODELS.items() if side in one.sides]
        way_out = " or ".join(fitting) or "images of another size, such as 32x32"
        raise SettingsError(
            f"Model {model!r} does not take images of {side}x{side} pixels, as {dataset} has; take "
            f"{way_out}."
        )
    if values["projection_head"] and models.MODELS[model].head is None:
        message = f"Model {model!r} has no projection head; set projection_head to False."
        raise SettingsError(message)
    if not values["projection_head"] and values["projection_dim"]:
        _leave_out("projection_dim belongs to a projection head; with projection_head False")


def _hyperparameters(name: str, method: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters of a method, as it checks and fits them; its defaults for the rest."""
    names = _field_names(method)
    try:
        instance = method(**{one: values[one] for one in names if one in values})
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{name}: {error}") from error
    return {one: getattr(instance, one) for one in names}


# ---- the papers' settings, and in what a run deviates from them


def paper_values(method: str, dataset: str, partition: str) -> dict[str, Any]:
    """Return the paper's settings of a method on a data set with a kind of partition.

    Of the hyperparameters only those are there that the paper chose for the data set. What the
    papers leave open is None, and there is no seed. A `SettingsError` if there are no settings for
    the data set.
    """
    of_dataset = _values_of_dataset(dataset, partition)
    of_method = _PAPERS["methods"].get(method, {})
    values = dict.fromkeys(FIELDS) | of_dataset
    values |= of_method.get("any", {})
    values |= of_method.get(dataset, {})
    del values["seed"]
    if partition in _EQUALLY_LONG:
        values["num_rounds"] = of_dataset["num_rounds"]
        values["local_epochs"] = of_dataset["local_epochs"]
    if partition == "n-way-k-shot":
        rounds_of_method = _PAPERS["rounds"].get(dataset, {})
        values["num_rounds"] = rounds_of_method.get(method, values["num_rounds"])
    return values


def _values_of_dataset(dataset: str, partition: str) -> dict[str, Any]:
    """What all methods have in common on a data set."""
    facts = data.info_of(dataset)
    if dataset in data.NAMES:
        what = f"There are no settings with partition {partition!r} for"
        require_known(what, dataset, SPLITS[partition])
        values = SPLITS[partition][dataset]
    else:
        network = _PAPERS["own networks"].get(facts.shape[1], "resnet-10")
        values = _PAPERS["own"][partition] | {"model": network}
    if partition == "domain":
        message = f"{dataset} has no domains: take another partition, or folders DOMAIN/CLASS."
        check(facts.domains, message, SettingsError)
        values = values | {"num_clients": len(facts.domains)}
    return values


class Deviation(NamedTuple):
    """A setting in which a run is not as the paper's, or not as another run."""

    name: str
    value: Any  # of the run
    paper: Any  # of the paper; where it sets none, what that means ("all", "whole epochs")

    def __str__(self) -> str:
        return f"{self.name} {self.value} instead of {self.paper}"  # as it stands in records


def deviations(settings: Settings, given: Mapping[str, Any] | None = None) -> list[Deviation]:
    """List in what settings deviate from the paper's, or from those ``given``, in their order.

    Neither the seed nor how often one evaluates is a deviation, and a hyperparameter only where the
    paper has a value.
    """
    stated = _PAPERS["stated"].get(settings.method, ())
    paper = {name: value for name, value in settings.defaults.items() if name in stated}
    paper |= paper_values(settings.method, settings.dataset, settings.partition)
    paper |= given or {}
    result = []
    for name, value in settings.flat().items():
        info = FIELDS.get(name)
        is_read = info is None or info.applies_to(settings.partition)
        if name == "evaluate_every" or name not in paper or not is_read or value == paper[name]:
            continue
        expected = paper[name]
        if expected is None and info is not None:
            expected = info.default
        result.append(Deviation(name, value, expected))
    return result
