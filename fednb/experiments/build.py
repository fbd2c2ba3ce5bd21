"""From settings to a federation that is ready for its first round."""

import dataclasses
import functools
import os
import platform
import random
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from fednb import data, models, partition, seeds
from fednb.data import Dataset
from fednb.errors import SettingsError
from fednb.experiments import environment
from fednb.experiments.settings import Settings
from fednb.federation import FedAvg, Federation, Training
from fednb.hyperparameters import Rule
from fednb.partition import Parts
from fednb.places import Places
from fednb.training.stacked import StackedTrainer

Methods = Mapping[str, type[FedAvg]]  # by name
_TRAINING = [field.name for field in dataclasses.fields(Training)]  # settings of the same names
_load = functools.lru_cache(maxsize=2)(data.load)


def load_dataset(name: str, places: Places | None = None) -> Dataset:
    """`fednb.data.load`, kept in memory."""
    places = places or Places.from_environment()
    return _load(data.whole_name(name, places.data), places.data)


class Split(NamedTuple):
    """Who gets which image: int64 indices into the training images, or into the test images."""

    train: Parts  # of each client
    test: Parts | None  # of each client; None: all share the test set
    # training images that are kept back, so that hyperparameters can be chosen on them: one array
    # for all clients together; of clients with test images or a domain of their own one for each;
    # none without ``validation``
    held_out: Parts


def divide(settings: Settings, dataset: Dataset) -> Split:
    """Divide the images among the clients, drawn with the run's seed as the papers' code does."""
    if settings.partition == "n-way-k-shot":
        return _few_classes(settings, dataset)
    if settings.partition == "domain":
        return _domains(settings, dataset)
    return _shift_of_labels_or_quantity(settings, dataset)


def _shift_of_labels_or_quantity(settings: Settings, dataset: Dataset) -> Split:
    """Parts of one set of images with common test images; what is held out is held out before."""
    labels = dataset.labels.numpy()
    rng = np.random.RandomState(settings.seed)
    everything = np.arange(len(labels))
    held_out = []
    if settings.validation:
        held_out = [_held_out(settings.validation, settings.seed, everything)]
    kept = np.setdiff1d(everything, held_out)  # in the data set's order
    num_clients = settings.num_clients
    if settings.partition == "iid":
        parts = partition.iid(labels[kept], num_clients, rng)
    else:
        draw = partition.quantity
        if settings.partition == "dirichlet":
            draw = partial(partition.dirichlet, balance=settings.effective("balance"))
        least = settings.effective("min_size")
        parts = draw(labels[kept], num_clients, settings.beta, rng, min_size=least)
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


def _with_own_held_out(settings: Settings, parts: Parts, test_parts: Parts | None) -> Split:
    """Let each client hold out images of its own."""
    if not settings.validation:
        return Split(parts, test_parts, [])
    held_out = [
        _held_out(settings.validation, settings.seed, part, client)
        for client, part in enumerate(parts)
    ]
    train = [np.setdiff1d(part, own) for part, own in zip(parts, held_out, strict=True)]
    return Split(train, test_parts, held_out)


def _held_out(fraction: float, seed: int, images: np.ndarray, client: int = 0) -> np.ndarray:
    """The images that are kept back, in their order; int64 [n]."""
    order = seeds.generator(seed, "validation", 0, client).permutation(len(images))
    number = max(1, round(fraction * len(images)))
    return images[np.sort(order[:number])]


def test_index(settings: Settings, dataset: Dataset) -> np.ndarray | None:
    """Which test images are evaluated, int64 [n]; None: all.

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
    settings: Settings,
    methods: Methods,
    *,
    device: str | None = None,
    workers: int | None = None,
    places: Places | None = None,
) -> Federation:
    """Build the federation that the settings describe, ready for its first round.

    ``device`` and ``workers`` are those of `find_device` and `num_workers` if they are not given. A
    `SettingsError` tells of what only the data can show: a partition that cannot be drawn, or a
    network that does not fit the images.
    """
    s = settings
    device = find_device(device)
    dataset = load_dataset(s.dataset, places)
    train = None if device == "cpu" else StackedTrainer()  # on a GPU by replays of a recorded step
    try:
        split = divide(s, dataset)
        architectures = models.heterogeneous(s.model, s.num_clients) if s.heterogeneous else None
        return Federation(
            method=methods[s.method](**s.hyperparameters),
            dataset=dataset,
            parts=split.train,
            build_model=_model_builder(s, dataset),
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


def _model_builder(settings: Settings, dataset: Dataset) -> Callable[..., models.Net]:
    """What builds the network of the settings, or another by its name, always with one seed."""
    _, channels, side, _ = dataset.images.shape

    def build_model(name: str = settings.model) -> models.Net:
        return models.build(
            name,
            dataset.num_classes,
            channels=channels,
            side=side,
            projection_head=settings.projection_head,
            projection_dim=settings.projection_dim,
            pretrained=settings.effective("pretrained"),
            precision=settings.effective("precision"),
            seed=settings.seed,
        )

    return build_model


def find_device(asked: str | None = None) -> str:
    """``asked``, ``$FEDNB_DEVICE``, or the GPU if there is one; "cpu", "cuda" or "cuda:1"."""
    num_gpus = torch.cuda.device_count()
    gpus = ["cuda", *(f"cuda:{number}" for number in range(num_gpus))] if num_gpus else []
    known = ["cpu", *gpus]
    rule = Rule(str, known.__contains__, f"one of {', '.join(known)}")
    if asked:
        return rule.fit("device", asked)
    return rule.fit("FEDNB_DEVICE", environment.device() or ("cuda" if gpus else "cpu"))


def num_workers(device: str) -> int:
    """How many clients train side by side: ``$FEDNB_WORKERS``, or one per core; on a GPU one."""
    per_device = (os.cpu_count() or 1) if device == "cpu" else 1
    return environment.workers() or per_device


def device_name(device: str) -> str:
    """The name of the processor or GPU, as records have it."""
    if device != "cpu":
        return torch.cuda.get_device_name(device)
    processors = Path("/proc/cpuinfo")
    if processors.exists():
        named = re.search(r"^model name\s*:(.*)", processors.read_text(), re.MULTILINE)
        if named:
            return named[1].strip()
    return platform.processor() or platform.machine()
