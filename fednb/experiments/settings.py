"""The settings of a run: each declared once, filled with the papers' values, and checked when it is given."""

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import yaml

from fednb import data
from fednb.errors import SettingsError, require_known
from fednb.hyperparameters import (
    BelowOne,
    Count,
    NonNegative,
    NonNegativeInt,
    Positive,
    Rule,
    field_rules,
    one_of,
)

_PAPERS = yaml.safe_load(Path(__file__).with_name("papers.yaml").read_text(encoding="utf-8"))
SPLITS: dict[str, dict[str, dict[str, Any]]] = _PAPERS[
    "splits"
]  # kind of split, data set, settings
METHODS: dict[str, dict[str, dict[str, Any]]] = _PAPERS[
    "methods"
]  # method, data set or "usual", hyperparameters
MODELS: dict[str, bool] = _PAPERS["networks"]  # and whether they have a projection head

Seed = Annotated[int, lambda v: 0 <= v < 2**32, "a whole number from 0 to 4294967295"]
Share = Annotated[float, lambda v: 0 < v <= 1, "a fraction in (0, 1]"]
Inside = Annotated[float, lambda v: 0 < v < 1, "a fraction between 0 and 1"]
Concentration = Annotated[float, lambda v: 1e-3 <= v <= 1e6, "a number from 0.001 to 1000000"]
Split, Precision, Draw = one_of(SPLITS), one_of(("float32", "bf16")), one_of(("uniform", "normal"))
Network = Annotated[  # somebody may have added one
    str,
    lambda v: v in MODELS or v in getattr(sys.modules.get("fednb.models"), "MODELS", ()),
    f"one of {', '.join(MODELS)}",
]


def _says(words: str, *, of: tuple[str, ...] = (), none: str = "", same: Any = None) -> Any:
    """What a setting is, and of which kinds of split, if not of all; its type is its rule.

    ``none`` is what None means; empty: it may not be None where it applies. ``same`` says the same as None, so that a run
    has one key; where the paper has another value, it stays.
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
    balance: bool | None = _says(
        "no more images for full clients", of=("dirichlet",), none="as MOON's code", same=True
    )
    min_size: Count | None = _says(
        "images that a client has at least", of=_LABELS, none="10, as MOON's code", same=10
    )
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
    projection_dim: Count | None = _says(
        "width of the projection head's output", none="the network's own"
    )
    validation: Inside | None = _says(
        "fraction of the training images that is held out", none="none"
    )
    ways: Count | None = _says("n, classes of a client, on average", of=_SHOTS)
    stdev: NonNegativeInt | None = _says("spread of n, and of k", of=_SHOTS)
    shots: Count | None = _says("k, training images of a client per class", of=_SHOTS)
    test_shots: Count | None = _says("test images of a client per class", of=_SHOTS)
    draw: Draw | None = _says("how n and k are drawn", of=_SHOTS)
    heterogeneous: bool | None = _says(
        "networks that differ between clients", none="equal ones", same=False
    )
    pretrained: bool | None = _says(
        "start from ImageNet weights", none="from random ones", same=False
    )
    precision: Precision | None = _says("in which layers compute", none="float32", same="float32")
    per_domain: Count | None = _says("training images of a client, at most", of=_DOMAINS)
    balanced_draw: bool | None = _says("of each class as many, as far as there are", of=_DOMAINS)
    test_per_domain: Count | None = _says(
        "test images of a domain, at most", of=_DOMAINS, none="all"
    )
    keep_last: bool | None = _says(
        "train on the last, incomplete batch too", none="it is dropped", same=False
    )
    local_steps: Count | None = _says(
        "SGD steps of a client in a phase, at most", none="whole epochs"
    )
    evaluate_every: Count | None = _says("rounds from one evaluation to the next", none="1", same=1)
    seed: Seed = _says("partition, initial weights, batches and augmentation follow from it")

    def flat(self) -> dict[str, Any]:
        """All settings in one level, as records have them: hyperparameters by their own names, a folder not by its path."""
        values = vars(self) | {"dataset": data.recorded_name(self.dataset)}
        return values | values.pop("hyperparameters")

    def __repr__(self) -> str:
        said = {name: told["says"] for name, told in FIELDS.items()}
        lines = [(n, str(v), said.get(n, "")) for n, v in self.flat().items() if v is not None]
        return "\n".join(f"{name:>16}  {value:<14}  {says}".rstrip() for name, value, says in lines)


FIELDS = {f.name: f.metadata for f in dataclasses.fields(Settings) if f.metadata}
_RULES = field_rules(Settings)


def table() -> str:
    """All settings as a table in Markdown."""
    head = "| setting | what it is | values | without it | only with partition |\n| :-- | :-- | :-- | :-- | :-- |\n"
    lines = [
        (name, told["says"], _RULES[name].words, told["none"], ", ".join(told["of"]))
        for name, told in FIELDS.items()
    ]
    return head + "".join(f"| `{name}` | {' | '.join(rest)} |\n" for name, *rest in lines)


def defaults(method: str, dataset: str, split: str) -> dict[str, Any]:
    """The paper's settings of a method on a data set under a kind of split; a `SettingsError` if it has none."""
    domains, known = data.spec_of(dataset).domains, SPLITS[split].get(dataset)
    if dataset not in data.NAMES and (domains or split != "domain"):  # one's own images
        side = data.spec_of(dataset).shape[1]
        known = _PAPERS["own"][split] | {"model": _PAPERS["own networks"].get(side, "resnet-10")}
    if known is None:
        require_known(f"There are no settings with partition {split!r} for", dataset, SPLITS[split])
    if split == "domain":
        known = known | {"num_clients": len(domains)}
    own = METHODS.get(method, {})
    values = dict.fromkeys(FIELDS) | known | own.get("usual", {}) | own.get(dataset, {})
    del values["seed"]
    if split in ("n-way-k-shot", "domain"):  # there a method is as long as the others
        values |= {name: known[name] for name in ("num_rounds", "local_epochs")}
    if split == "n-way-k-shot":
        values["num_rounds"] = _PAPERS["rounds"].get(dataset, {}).get(method, values["num_rounds"])
    return values


def resolve(
    methods: Mapping[str, type],
    *,
    method: str,
    dataset: str,
    sampled: int | None = None,
    **given: Any,
) -> Settings:
    """Fill what is None with the paper's setting for the data set, and check every value.

    ``methods`` are the known ones by name, ``sampled`` is ``participation`` as a number of clients, and ``given`` are
    settings, and hyperparameters of any of the methods. One that this run would not read must be None: else it is a
    `SettingsError`, as are an unknown name and a bad value.
    """
    require_known("Unknown method", method, methods)
    usual_split = "domain" if data.spec_of(dataset).domains else "dirichlet"
    given = {name: value for name, value in given.items() if value is not None}
    hyperparameters = {
        name: [field.name for field in dataclasses.fields(cls)] for name, cls in methods.items()
    }
    own = hyperparameters[method]
    for name in (name for name in given if name not in FIELDS and name not in own):
        if owners := [other for other, names in hyperparameters.items() if name in names]:
            told = f"{method} has no parameter {name!r}, which belongs to {', '.join(owners)}; leave it at None."
            raise SettingsError(told)
        require_known("Unknown parameter", name, [*FIELDS, "method", "dataset", "sampled", *own])
    split = _RULES["partition"].fit("partition", given.get("partition", usual_split))
    usual = defaults(method, dataset, split)
    values = {"seed": 0} | usual | given
    if sampled is not None:
        if "participation" in given:
            raise SettingsError(
                "sampled says participation as a number of clients: give one of the two."
            )
        most = values["num_clients"]
        allowed = Rule(
            int, lambda v: 1 <= v <= most, f"a whole number from 1 to num_clients, {most}"
        )
        values["participation"] = allowed.fit("sampled", sampled) / most
    for name, told in FIELDS.items():
        if told["of"] and split not in told["of"]:
            if name in given:
                owners = " or ".join(map(repr, told["of"]))
                raise SettingsError(
                    f"{name} belongs to partition {owners}; with {split!r} leave it at None."
                )
            values[name] = None
        elif values[name] is not None or not told["none"]:
            values[name] = _RULES[name].fit(name, values[name])
            if (
                told["same"] is not None
                and values[name] == told["same"]
                and usual.get(name) is None
            ):
                values[name] = None
    _check_together(dataset, values, given)
    try:
        made = methods[method](
            **{name: values[name] for name in own if name in values}
        )  # it checks and fits its own
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{method}: {error}") from error
    return Settings(
        method,
        {name: getattr(made, name) for name in own},
        dataset,
        **{name: values[name] for name in FIELDS},
    )


def _check_together(dataset: str, values: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    clients, split, model = values["num_clients"], values["partition"], values["model"]
    if split == "domain" and clients != (domains := len(data.spec_of(dataset).domains)):
        told = f"{dataset} has {domains} domains with one client each; leave it at None, or set partition to 'dirichlet'."
        raise SettingsError(f"num_clients is {clients}, but {told}")
    if not values["projection_head"] and "projection_dim" in given:
        raise SettingsError(
            "projection_dim belongs to a projection head; with projection_head False leave it at None."
        )
    if values["projection_head"] and not MODELS.get(model, True):
        raise SettingsError(
            f"Model {model!r} has no projection head; set projection_head to False."
        )
    if split in ("dirichlet", "iid", "quantity"):
        images, held_out = data.spec_of(dataset).sizes[0], values["validation"]
        left = images - (max(1, round(images * held_out)) if held_out else 0)
        least = 1 if split == "iid" else values["min_size"] or 10
        if clients * least > left:
            told = f"{clients} clients with at least {least} images need {clients * least:,}, and {dataset} has {left:,}"
            way_out = "take fewer clients, a smaller min_size, or hold out less for validation"
            raise SettingsError(f"{told} to train on: {way_out}.")


def deviations(settings: Settings, given: Mapping[str, Any] | None = None) -> list[str]:
    """Deviations from the paper's settings, or from those ``given``; neither seed nor evaluation counts."""
    paper = defaults(settings.method, settings.dataset, settings.partition) | dict(given or {})
    paper |= {
        name: None
        for name, told in FIELDS.items()
        if told["of"] and settings.partition not in told["of"]
    }
    usual = {
        name: told["none"] if told["same"] is None else told["same"]
        for name, told in FIELDS.items()
    }
    return [
        f"{name} {value} instead of {usual.get(name) if paper[name] is None else paper[name]}"
        for name, value in settings.flat().items()
        if name != "evaluate_every" and name in paper and value != paper[name]
    ]
