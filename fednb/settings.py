"""The settings of a run: from what is asked for, filled with the papers' values, and checked.

Each is declared once, in `Settings`, with what it means and which values it may have. What a paper
sets for a data set stands in ``papers.yaml``; a method's own hyperparameters have the defaults of
its class.
"""

import dataclasses
import functools
import keyword
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import AfterValidator, Field

from fednb import data, models
from fednb.errors import SettingsError, check, field_types, fit, require_known, shorten

LABEL_SHIFT = ("dirichlet", "quantity")
FEW_CLASSES = ("n-way-k-shot",)
DOMAIN_SHIFT = ("domain",)

_PAPERS = yaml.safe_load(Path(__file__).with_name("papers.yaml").read_text(encoding="utf-8"))
SPLITS: dict[str, dict[str, dict[str, Any]]] = _PAPERS["splits"]  # partition, data set, settings
# With these partitions all methods of a paper train equally long, whatever their own papers say.
_EQUALLY_LONG = ("n-way-k-shot", "domain")


# ---- types: the description says in words what is allowed


def _known_network(name: str) -> str:
    assert name in models.MODELS
    return name


Positive = Annotated[float, Field(gt=0, description="a positive number")]
NonNegative = Annotated[float, Field(ge=0, description="a number from 0")]
BelowOne = Annotated[float, Field(ge=0, lt=1, description="a number in [0, 1)")]
Share = Annotated[float, Field(gt=0, le=1, description="a fraction in (0, 1]")]
Inside = Annotated[float, Field(gt=0, lt=1, description="a fraction between 0 and 1")]
Concentration = Annotated[
    float, Field(ge=1e-3, le=1e6, description="a number from 0.001 to 1000000")
]
Count = Annotated[int, Field(ge=1, lt=2**31, description="a whole number from 1")]
NonNegativeInt = Annotated[int, Field(ge=0, description="a whole number from 0")]
Seed = Annotated[int, Field(ge=0, lt=2**32, description="a whole number from 0 to 4294967295")]
Switch = Annotated[bool, Field(description="True or False")]
Network = Annotated[str, AfterValidator(_known_network)]


# ---- what a run has


@dataclass(frozen=True)
class SettingInfo:
    """What a reader of a setting must know besides its values, which its type says."""

    description: str
    partitions: tuple[str, ...] = ()  # the only ones to which it applies; empty: all
    none_means: str = ""  # in words; empty: it must have a value where it applies
    default: Any = None  # says the same as None and becomes None, so that a run has one key

    def applies_to(self, partition: str) -> bool:
        """Does a run with this kind of partition read the setting?"""
        return not self.partitions or partition in self.partitions


def _setting(
    description: str, partitions: tuple[str, ...] = (), none_means: str = "", default: Any = None
) -> Any:
    """A field with its `SettingInfo`."""
    return field(metadata={"info": SettingInfo(description, partitions, none_means, default)})


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
    balance: Switch | None = _setting(
        "no more images for full clients", ("dirichlet",), none_means="as MOON's code", default=True
    )
    min_size: Count | None = _setting(
        "images that a client has at least",
        LABEL_SHIFT,
        none_means="10, as MOON's code",
        default=10,
    )
    num_clients: Count = _setting("clients")
    participation: Share = _setting("fraction of the clients that is sampled in each round")
    num_rounds: Count = _setting("communication rounds")
    local_epochs: Count = _setting("epochs of a client in each round")
    batch_size: Count = _setting("images in a batch")
    lr: Positive = _setting("learning rate of the clients' SGD")
    lr_decay: Share | None = _setting(
        "factor of the learning rate from one round to the next", none_means="1", default=1.0
    )
    momentum: BelowOne = _setting("momentum of the clients' SGD")
    weight_decay: NonNegative = _setting("weight decay of the clients' SGD")
    model: Network = _setting("network")
    projection_head: Switch = _setting("two more layers before the output layer")
    projection_dim: Count | None = _setting(
        "width of the projection head's output", none_means="the network's own"
    )
    validation: Inside | None = _setting(
        "fraction of the training images that is held out", none_means="none"
    )
    ways: Count = _setting("n, classes of a client, on average", FEW_CLASSES)
    stdev: NonNegativeInt = _setting("spread of n, and of k", FEW_CLASSES)
    shots: Count = _setting("k, training images of a client per class", FEW_CLASSES)
    test_shots: Count = _setting("test images of a client per class", FEW_CLASSES)
    draw: Literal["uniform", "normal"] = _setting("how n and k are drawn", FEW_CLASSES)
    heterogeneous: Switch | None = _setting(
        "networks that differ between clients", none_means="equal ones", default=False
    )
    pretrained: Switch | None = _setting(
        "start from ImageNet weights", none_means="from random ones", default=False
    )
    precision: Literal["float32", "bf16"] | None = _setting(
        "in which layers compute", none_means="float32", default="float32"
    )
    per_domain: Count = _setting("training images of a client, at most", DOMAIN_SHIFT)
    balanced_draw: Switch = _setting("of each class as many, as far as there are", DOMAIN_SHIFT)
    test_per_domain: Count | None = _setting(
        "test images of a domain, at most", DOMAIN_SHIFT, none_means="all"
    )
    keep_last: Switch | None = _setting(
        "train on the last, incomplete batch too", none_means="it is dropped", default=False
    )
    local_steps: Count | None = _setting(
        "SGD steps of a client in a phase, at most", none_means="whole epochs"
    )
    evaluate_every: Count | None = _setting(
        "rounds from one evaluation to the next", none_means="1", default=1
    )
    seed: Seed = _setting("partition, initial weights, batches and augmentation follow from it")
    # the hyperparameters that the method's class has by itself, for `deviations`: no recipe
    defaults: dict[str, Any] = field(default_factory=dict, compare=False)

    def flat(self) -> dict[str, Any]:
        """All settings in one level, as records have them.

        Hyperparameters have their own names; a folder of one's own images is named by what is in
        it, not by its path.
        """
        values = dict(vars(self))
        del values["defaults"]
        hyperparameters = values.pop("hyperparameters")
        values["dataset"] = data.recorded_name(self.dataset)
        return values | hyperparameters

    def effective(self, name: str) -> Any:
        """The value of a setting, or its default where it is None."""
        value = getattr(self, name)
        return FIELDS[name].default if value is None else value

    def __repr__(self) -> str:
        lines = []
        for name, value in self.flat().items():
            if value is not None:
                description = FIELDS[name].description if name in FIELDS else ""
                lines.append(f"{name:>16}  {value!s:<14}  {description}".rstrip())
        return "\n".join(lines)


FIELDS: dict[str, SettingInfo] = {
    setting.name: setting.metadata["info"]
    for setting in dataclasses.fields(Settings)
    if setting.metadata
}
_TYPES = field_types(Settings)


def allowed(name: str) -> str:
    """The values that a setting may have, in words: "a whole number from 1"."""
    if name == "model":
        return f"one of {', '.join(models.MODELS)}"
    return _allowed_by_type(name)


@functools.cache  # a schema takes a millisecond, and a sweep asks for thousands of settings
def _allowed_by_type(name: str) -> str:
    """The values that the type of a setting allows, in words."""
    schema = _TYPES[name].json_schema()
    schema = schema.get("anyOf", [schema])[0]  # of `X | None` that of X
    return schema.get("description") or f"one of {', '.join(schema['enum'])}"


def table() -> str:
    """All settings as a table in Markdown."""
    lines = [
        "| setting | what it is | values | without it | only with partition |",
        "| :-- | :-- | :-- | :-- | :-- |",
    ]
    for name, info in FIELDS.items():
        cells = (info.description, allowed(name), info.none_means, ", ".join(info.partitions))
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


# ---- what a method may be called: its name is in file names, commands, tables and Python

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._+-]{0,59}")


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a method, such as ``none``, with a `SettingsError`."""
    refusal = f"A method cannot be called {name[:80]!r}"
    good = "a letter, then letters, digits and . _ + -, at most 60 characters"
    check(_NAME.fullmatch(name), f"{refusal}: it must be {good}.", SettingsError)
    is_taken = keyword.iskeyword(name.lower()) or keyword.iskeyword(name.capitalize())
    check(not is_taken, f"{refusal}: that word is taken: choose another.", SettingsError)


# ---- from what is asked for to the settings of a run


def resolve(
    methods: Mapping[str, type],
    *,
    method: str,
    dataset: str,
    sampled: int | None = None,
    **overrides: Any,
) -> Settings:
    """Fill what is None with the paper's setting for the data set, and check every value.

    ``methods`` are the known ones by name, ``sampled`` is ``participation`` as a number of clients,
    and ``overrides`` are settings, and hyperparameters of any of the methods. One that this run
    would not read must be None: else it is a `SettingsError`, as are an unknown name and a bad
    value.
    """
    require_known("Unknown method", method, methods)
    check_name(method)
    overrides = {name: value for name, value in overrides.items() if value is not None}
    _reject_unknown(overrides, method, methods)
    usual_partition = "domain" if data.spec_of(dataset).domains else "dirichlet"
    partition = overrides.get("partition", usual_partition)
    partition = fit("partition", partition, _TYPES["partition"], allowed("partition"))
    paper = paper_values(method, dataset, partition)
    values = {"seed": 0} | paper | overrides
    checked = {}
    for name in FIELDS:
        if name in overrides:
            _require_applicable(name, values[name], partition)
        checked[name] = _checked(name, values[name], partition, paper.get(name))
    if sampled is not None:
        if "participation" in overrides:
            message = "sampled says participation as a number of clients: give one of the two."
            raise SettingsError(message)
        checked["participation"] = _participation_of(sampled, checked["num_clients"])
    _check_together(dataset, checked, overrides)
    return Settings(
        method=method,
        hyperparameters=_hyperparameters(method, methods[method], values),
        dataset=dataset,
        **checked,
        defaults=_defaults(methods[method]),
    )


def _field_names(method: type) -> list[str]:
    return [hyperparameter.name for hyperparameter in dataclasses.fields(method)]


def _defaults(method: type) -> dict[str, Any]:
    """The hyperparameters of a class as they stand in it."""
    hyperparameters = dataclasses.fields(method)
    return {one.name: one.default for one in hyperparameters if one.default is not MISSING}


def _reject_unknown(overrides: Mapping[str, Any], method: str, methods: Mapping[str, type]) -> None:
    hyperparameters = _field_names(methods[method])
    for name in overrides:
        if name in FIELDS or name in hyperparameters:
            continue
        owners = [other for other, cls in methods.items() if name in _field_names(cls)]
        if owners:
            raise SettingsError(
                f"{method} has no parameter {name!r}, which belongs to {', '.join(owners)}; "
                "leave it at None.",
            )
        known = ["method", "dataset", *FIELDS, "sampled", *hyperparameters]
        require_known("Unknown parameter", name, known)


def _require_applicable(name: str, value: Any, partition: str) -> None:
    info = FIELDS[name]
    if not info.applies_to(partition):
        owners = " or ".join(map(repr, info.partitions))
        message = f"{name} belongs to partition {owners}; with {partition!r} leave it at None."
        raise SettingsError(message)


def _checked(name: str, value: Any, partition: str, paper_value: Any) -> Any:
    """The value of a setting by its type; None where it does not apply, or says the same as None.

    The latter stays where the paper has a value: there None would mean that one.
    """
    info = FIELDS[name]
    if not info.applies_to(partition):
        return None
    if value is None and info.none_means:
        return None
    fitted = fit(name, value, _TYPES[name], allowed(name))
    is_default = info.default is not None and fitted == info.default
    return None if is_default and paper_value is None else fitted


def _participation_of(sampled: int, num_clients: int) -> float:
    """The fraction of the clients that ``sampled`` of them are."""
    is_whole = isinstance(sampled, int) and not isinstance(sampled, bool)
    if not is_whole or not 1 <= sampled <= num_clients:
        good = f"a whole number from 1 to num_clients, {num_clients}"
        message = f"sampled is {shorten(sampled)}; it must be {good}."
        raise SettingsError(message)
    return sampled / num_clients


def _check_together(dataset: str, values: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
    if values["partition"] == "domain":
        _check_one_client_per_domain(dataset, values["num_clients"])
    _check_sides(dataset, values["model"])
    _check_projection_head(values, overrides)


def _check_sides(dataset: str, model: str) -> None:
    """Refuse a network for images of another size, and name those that fit."""
    side = data.spec_of(dataset).shape[1]
    fitting = [name for name, one in models.MODELS.items() if side in one.sides]
    if model not in fitting:
        raise SettingsError(
            f"Model {model!r} does not take images of {side}x{side} pixels, as {dataset} has; take "
            f"{' or '.join(fitting)}."
        )


def _check_projection_head(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
    model = values["model"]
    if not values["projection_head"] and "projection_dim" in overrides:
        raise SettingsError(
            "projection_dim belongs to a projection head; "
            "with projection_head False leave it at None.",
        )
    if values["projection_head"] and models.MODELS[model].head is None:
        message = f"Model {model!r} has no projection head; set projection_head to False."
        raise SettingsError(message)


def _check_one_client_per_domain(dataset: str, num_clients: int) -> None:
    num_domains = len(data.spec_of(dataset).domains)
    if num_clients != num_domains:
        mixes_domains = dataset not in data.NAMES or dataset in SPLITS["dirichlet"]
        other_way = ", or set partition to 'dirichlet'" if mixes_domains else ""
        raise SettingsError(
            f"num_clients is {num_clients}, but {dataset} has {num_domains} domains with one "
            f"client each; leave it at None{other_way}.",
        )


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
    """The paper's settings of a method on a data set with a kind of partition.

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
    facts = data.spec_of(dataset)
    if partition == "domain" and not facts.domains:
        raise SettingsError(
            f"{dataset} has no domains: take another partition, one of {', '.join(SPLITS['domain'])}, "
            "or a folder of your own with DOMAIN/CLASS/FILE."
        )
    if dataset not in data.NAMES:
        side = facts.shape[1]
        network = _PAPERS["own networks"].get(side, "resnet-10")
        values = _PAPERS["own"][partition] | {"model": network}
    elif facts.domains and dataset not in SPLITS[partition]:
        raise SettingsError(
            f"{dataset} has one client for each of its domains; leave partition at None."
        )
    else:
        what = f"There are no settings with partition {partition!r} for"
        require_known(what, dataset, SPLITS[partition])
        values = SPLITS[partition][dataset]
    if partition == "domain":
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
