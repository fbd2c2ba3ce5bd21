"""The settings of a run: each declared once, with what it means and which values it may have."""

import dataclasses
import sys
from dataclasses import dataclass, field
from typing import Annotated, Any

from fednb import data
from fednb.hyperparameters import (
    BelowOne,
    Count,
    NonNegative,
    NonNegativeInt,
    Positive,
    field_rules,
)

PARTITIONS = ("dirichlet", "iid", "quantity", "n-way-k-shot", "domain")
LABEL_SHIFT = ("dirichlet", "quantity")
FEW_CLASSES = ("n-way-k-shot",)
DOMAIN_SHIFT = ("domain",)

_WITH_HEAD = ("digits-cnn", "simple-cnn", "resnet-10", "resnet-10-16", "resnet-18", "resnet-50")
_WITHOUT_HEAD = (
    *("mnist-cnn", "mnist-cnn-18", "mnist-cnn-22"),
    *("femnist-cnn", "femnist-cnn-18", "femnist-cnn-22"),
    *("resnet-18-7x7", "resnet-18-7x7-stride-1-4"),
)
# The networks of `fednb.models` and whether they have a projection head, known without PyTorch.
MODELS = dict.fromkeys(_WITH_HEAD, True) | dict.fromkeys(_WITHOUT_HEAD, False)


def _is_network(name: str) -> bool:
    """Is it a network of ours, or one that somebody has added to `fednb.models.MODELS`?"""
    added = getattr(sys.modules.get("fednb.models"), "MODELS", ())
    return name in MODELS or name in added


Seed = Annotated[int, lambda v: 0 <= v < 2**32, "a whole number from 0 to 4294967295"]
Share = Annotated[float, lambda v: 0 < v <= 1, "a fraction in (0, 1]"]
Inside = Annotated[float, lambda v: 0 < v < 1, "a fraction between 0 and 1"]
Concentration = Annotated[float, lambda v: 1e-3 <= v <= 1e6, "a number from 0.001 to 1000000"]
Network = Annotated[str, _is_network, f"one of {', '.join(MODELS)}"]
Partition = Annotated[str, PARTITIONS.__contains__, f"one of {', '.join(PARTITIONS)}"]
Precision = Annotated[str, ("float32", "bf16").__contains__, "one of float32, bf16"]
Draw = Annotated[str, ("uniform", "normal").__contains__, "one of uniform, normal"]


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
    partition: Partition = _setting("how the images are divided among the clients")
    beta: Concentration = _setting("Dirichlet concentration: small means uneven", LABEL_SHIFT)
    balance: bool | None = _setting(
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
    projection_head: bool = _setting("two more layers before the output layer")
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
    draw: Draw = _setting("how n and k are drawn", FEW_CLASSES)
    heterogeneous: bool | None = _setting(
        "networks that differ between clients", none_means="equal ones", default=False
    )
    pretrained: bool | None = _setting(
        "start from ImageNet weights", none_means="from random ones", default=False
    )
    precision: Precision | None = _setting(
        "in which layers compute", none_means="float32", default="float32"
    )
    per_domain: Count = _setting("training images of a client, at most", DOMAIN_SHIFT)
    balanced_draw: bool = _setting("of each class as many, as far as there are", DOMAIN_SHIFT)
    test_per_domain: Count | None = _setting(
        "test images of a domain, at most", DOMAIN_SHIFT, none_means="all"
    )
    keep_last: bool | None = _setting(
        "train on the last, incomplete batch too", none_means="it is dropped", default=False
    )
    local_steps: Count | None = _setting(
        "SGD steps of a client in a phase, at most", none_means="whole epochs"
    )
    evaluate_every: Count | None = _setting(
        "rounds from one evaluation to the next", none_means="1", default=1
    )
    seed: Seed = _setting("partition, initial weights, batches and augmentation follow from it")
    # the method's own hyperparameters, for `deviations`: no part of the recipe
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
RULES = field_rules(Settings)


def table() -> str:
    """All settings as a table in Markdown."""
    lines = [
        "| setting | what it is | values | without it | only with partition |",
        "| :-- | :-- | :-- | :-- | :-- |",
    ]
    for name, info in FIELDS.items():
        cells = (info.description, RULES[name].allowed, info.none_means, ", ".join(info.partitions))
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
