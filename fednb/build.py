"""From settings to a federation that is ready for its first round."""

import dataclasses
import functools
import importlib
import os
import platform
import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from fednb import data, models, partition, seeds
from fednb.batches import images_of_epoch
from fednb.data import Dataset
from fednb.errors import SettingsError
from fednb.federation import FedAvg, Federation, Training
from fednb.partition import Parts
from fednb.settings import Settings, resolve

Methods = Mapping[str, type[FedAvg]]  # by name
_TRAINING = [field.name for field in dataclasses.fields(Training)]  # settings of the same names


def load_dataset(name: str) -> Dataset:
    """Load a data set by `fednb.data.load`; the last two are kept in memory."""
    return _load(data.resolve_name(name), data.places()[0])


@functools.lru_cache(maxsize=2)
def _load(name: str, folder: Path) -> Dataset:
    """The set, as long as the folder of the data sets is this one."""
    return data.load(name)


class Split(NamedTuple):
    """Who gets which image: int64 indices into the training images, or into the test images."""

    train: Parts  # of each client
    test: Parts | None  # of each client; None: all share the test set
    # training images that are kept back, so that hyperparameters can be chosen on them: one array
    # for all clients together; of clients with test images or a domain of their own one for each;
    # none without ``validation``
    held_out: Parts


def divide(settings: Settings, dataset: Dataset) -> Split:
    """Divide the images among the clients, drawn with the run's seed as the papers' code does.

    A `SettingsError` if that cannot be done, such as with more clients than images.
    """
    try:
        return _DIVISIONS[settings.partition](settings, dataset)
    except ValueError as error:
        raise SettingsError(str(error)) from error


def _iid(settings: Settings, dataset: Dataset) -> Split:
    """Parts that differ by one image at most."""
    return _of_common_images(settings, dataset, partition.iid)


def _dirichlet(settings: Settings, dataset: Dataset) -> Split:
    """Label shift: a client has more of some classes."""
    draw = partial(
        partition.dirichlet,
        beta=settings.beta,
        min_size=settings.effective("min_size"),
        balance=settings.effective("balance"),
    )
    return _of_common_images(settings, dataset, draw)


def _quantity(settings: Settings, dataset: Dataset) -> Split:
    """Quantity shift: a client has more images."""
    least = settings.effective("min_size")
    draw = partial(partition.quantity, beta=settings.beta, min_size=least)
    return _of_common_images(settings, dataset, draw)


def _of_common_images(settings: Settings, dataset: Dataset, draw: Callable[..., Parts]) -> Split:
    """Parts of one set of images with common test images; what is held out is held out before."""
    labels = dataset.labels.numpy()
    rng = np.random.RandomState(settings.seed)
    everything = np.arange(len(labels))
    held_out = []
    if settings.validation:
        held_out = [_held_out(settings.validation, settings.seed, everything)]
    kept = np.setdiff1d(everything, held_out)  # in the data set's order
    num_clients = settings.num_clients
    if len(kept) < num_clients:
        raise SettingsError(
            f"{num_clients} clients share {len(kept)} images to train on: take fewer clients"
            f"{', or hold out less for validation' if settings.validation else ''}."
        )
    parts = draw(labels[kept], num_clients, rng=rng)
    return Split([kept[part] for part in parts], None, held_out)


def _few_classes(settings: Settings, dataset: Dataset) -> Split:
    """A few classes for each client, with test images of the same."""
    s = settings
    parts, test_parts = partition.n_way_k_shot(
        dataset.labels.numpy(),
        dataset.test_labels.numpy(),
        s.num_clients,
        s.ways,
        s.stdev,
        np.random.RandomState(s.seed),
        random.Random(s.seed),
        k=s.shots,
        mnist=s.dataset == "mnist",
        draw=s.draw,
        train_shots_max=max(s.shots + s.shots // 10, s.shots + s.stdev),  # 110 for 100
        test_shots=s.test_shots,
    )
    return _with_own_held_out(s, parts, test_parts)


def _domains(settings: Settings, dataset: Dataset) -> Split:
    """A client for each domain; a model is judged in all of them."""
    assert dataset.train_groups is not None  # as it has domains
    parts = partition.by_domain(
        dataset.labels.numpy(),
        dataset.train_groups.numpy(),
        settings.per_domain,
        seeds.generator(settings.seed, "domains"),
        balanced=settings.balanced_draw,
    )
    return _with_own_held_out(settings, parts, None)


_DIVISIONS = {  # by the setting `partition`
    "dirichlet": _dirichlet,
    "iid": _iid,
    "quantity": _quantity,
    "n-way-k-shot": _few_classes,
    "domain": _domains,
}


def _with_own_held_out(settings: Settings, parts: Parts, test_parts: Parts | None) -> Split:
    """Let each client hold out images of its own."""
    if not settings.validation:
        return Split(parts, test_parts, [])
    train: Parts = []
    held_out: Parts = []
    for client, part in enumerate(parts):
        own = _held_out(settings.validation, settings.seed, part, client)
        if len(own) == len(part):
            raise SettingsError(
                f"validation is {settings.validation}, which holds out all images of client "
                f"{client} ({len(part)}): take a smaller one, or give the clients more images.",
            )
        train.append(np.setdiff1d(part, own))
        held_out.append(own)
    return Split(train, test_parts, held_out)


def _held_out(fraction: float, seed: int, images: np.ndarray, client: int = 0) -> np.ndarray:
    """The images that are kept back, in their order; int64 [n]."""
    order = seeds.generator(seed, "validation", 0, client).permutation(len(images))
    number = max(1, round(fraction * len(images)))
    return images[np.sort(order[:number])]


def test_index(settings: Settings, dataset: Dataset) -> np.ndarray | None:
    """Return which test images are evaluated, int64 [n]; None means all.

    They are the same for any seed, and a larger number only adds some.
    """
    if settings.test_per_domain is None:
        return None
    assert dataset.test_groups is not None  # as it has domains
    domains = dataset.test_groups.numpy()
    evaluated = []
    for domain in range(len(dataset.group_names)):
        images = np.flatnonzero(domains == domain)
        order = seeds.generator(0, "test images", 0, domain).permutation(images)
        evaluated.append(order[: settings.test_per_domain])
    return np.sort(np.concatenate(evaluated))


def federation(
    method: Settings | str | type[FedAvg],
    methods: Methods | None = None,
    *,
    device: str | None = None,
    workers: int | None = None,
    **overrides: Any,
) -> Federation:
    """Build a federation that is ready for its first round.

    What it is to be can be said in full or in short::

        build.federation(settings, METHODS)                          # by `fednb.settings.resolve`
        build.federation("MOON", METHODS, dataset="digits", mu=5.0)  # a method by its name
        build.federation(MOON, dataset="digits", mu=5.0)             # or as a class
        build.federation("FedAvg", dataset="digits", seed=1)         # FedAvg needs no METHODS

    ``device`` and ``workers`` are those of `find_device` and `num_workers` if they are not given. A
    `SettingsError` tells of what only the data can show: a partition that cannot be drawn, a client
    without images, or a network that does not fit them.
    """
    if isinstance(method, type):
        methods = {method.__name__: method}
        method = method.__name__
    methods = methods or {"FedAvg": FedAvg}
    if isinstance(method, Settings):
        settings = method
        if overrides:
            name = next(iter(overrides))
            raise SettingsError(f"The settings say {name} already: give it to resolve.")
    else:
        settings = resolve(methods, method=method, **overrides)
    return _federation(settings, methods[settings.method], find_device(device), workers)


def _federation(
    settings: Settings, method: type[FedAvg], device: str, workers: int | None
) -> Federation:
    s = settings
    dataset = load_dataset(s.dataset)
    _, channels, side, _ = dataset.images.shape
    train = None
    if device != "cpu":  # by replays of a recorded step of all clients
        train = trainers_of_gpus().StackedTrainer()

    def build_model(name: str = s.model) -> models.Net:
        return models.build(
            name,
            dataset.num_classes,
            channels=channels,
            side=side,
            projection_head=s.projection_head,
            projection_dim=s.projection_dim,
            pretrained=s.effective("pretrained"),
            seed=s.seed,
        )

    split = divide(s, dataset)
    try:
        architectures = models.heterogeneous(s.model, s.num_clients) if s.heterogeneous else None
        _check_clients(s, split, dataset, build_model, architectures)
        return Federation(
            method=method(**s.hyperparameters),
            dataset=dataset,
            parts=split.train,
            build_model=build_model,
            training=Training(**{name: getattr(s, name) for name in _TRAINING}),
            seed=s.seed,
            participation=s.participation,
            test_parts=split.test,
            test_index=test_index(s, dataset),
            held_out=split.held_out,
            architectures=architectures,
            evaluate_every=s.effective("evaluate_every"),
            device=device,
            workers=workers or num_workers(device),
            train=train,
        )
    except ValueError as error:
        raise SettingsError(str(error)) from error


def _check_clients(
    settings: Settings,
    split: Split,
    dataset: Dataset,
    build_model: Callable[..., models.Net],
    architectures: Sequence[str] | None,
) -> None:
    """Refuse a network that cannot be trained on the smallest batch of a client."""
    size, keep_last = settings.batch_size, settings.effective("keep_last")
    kept = [images_of_epoch(len(part), size, keep_last) for part in split.train]
    batch = min(2, *(number % size or size for number in kept))  # BatchNorm may refuse one image
    for name in dict.fromkeys(architectures or [settings.model]):
        network = build_model(name).train()
        models.seed_dropout(network, torch.ones)
        try:
            with torch.no_grad():
                network(torch.zeros(batch, *dataset.images.shape[1:]))
        except (RuntimeError, ValueError, TypeError) as error:
            shape = "x".join(map(str, dataset.images.shape[1:]))
            raise SettingsError(
                f"Model {name!r} does not take images of {dataset.name} [{shape}] in a batch of "
                f"{batch} ({error}): take another model, another batch_size, or keep_last=False.",
            ) from error


def find_device(asked: str | None = None) -> str:
    """Return ``asked``, ``$FEDNB_DEVICE``, or the GPU if there is one: "cpu", "cuda" or "cuda:1".

    A device that is not here is a `SettingsError`.
    """
    num_gpus = torch.cuda.device_count()
    gpus = ["cuda", *(f"cuda:{number}" for number in range(num_gpus))] if num_gpus else []
    known = ["cpu", *gpus]
    name = "device" if asked else "FEDNB_DEVICE"
    device = asked or os.environ.get("FEDNB_DEVICE") or known[min(1, num_gpus)]
    if device not in known:
        raise SettingsError(f"{name} is {device!r}; it must be one of {', '.join(known)}.")
    return device


def trainers_of_gpus() -> ModuleType:
    """Import and return `fednb.gpu.stacked`, for which nobody asks without a GPU."""
    return importlib.import_module("fednb.gpu.stacked")


def num_workers(device: str) -> int:
    """Return how many clients train at once: ``$FEDNB_WORKERS``, or one per core; on a GPU one.

    A `SettingsError` if the variable is not a whole number from 1.
    """
    text = os.environ.get("FEDNB_WORKERS")
    if not text:
        return (os.cpu_count() or 1) if device == "cpu" else 1
    if not text.isdecimal() or not 1 <= int(text) < 2**31:
        message = f"FEDNB_WORKERS is {text!r}; it must be a whole number from 1."
        raise SettingsError(message)
    return int(text)


def device_name(device: str) -> str:
    """Return the name of the processor or GPU, as records have it."""
    if device != "cpu":
        return torch.cuda.get_device_name(device)
    processors = Path("/proc/cpuinfo")
    if processors.exists():
        named = re.search(r"^model name\s*:(.*)", processors.read_text(), re.MULTILINE)
        if named:
            return named[1].strip()
    return platform.processor() or platform.machine()
