"""From settings to a federation that is ready for its first round: data, split, networks, device, trainer."""

import functools
import os
import platform
import random
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from fednb import data, models, partition, seeds
from fednb.data import Dataset
from fednb.errors import SettingsError
from fednb.experiments.settings import Settings
from fednb.federation import FedAvg, Federation, Training
from fednb.hyperparameters import Count, one_of, rule_of
from fednb.training.stacked import StackedTrainer

Methods = Mapping[str, type[FedAvg]]  # by name
_load = functools.lru_cache(maxsize=2)(data.load)


def load_dataset(name: str) -> Dataset:
    """`fednb.data.load`, kept in memory."""
    return _load(data.whole_name(name), os.environ.get("FEDNB_DATA"))


def divide(
    settings: Settings, dataset: Dataset
) -> tuple[partition.Parts, partition.Parts | None, partition.Parts]:
    """Who gets which image, drawn with the run's seed as the papers' code does; int64 indices.

    Returns the training images of each client; its test images, or None if all share the test set; and training images that
    are kept back, so that hyperparameters can be chosen on them: one array for all clients together, of clients with test
    images or a domain of their own one array for each, none without ``validation``.
    """
    s, labels, rng = settings, dataset.labels.numpy(), np.random.RandomState(settings.seed)
    if s.partition in ("dirichlet", "quantity", "iid"):
        everything = np.arange(len(labels))
        held_out = [_held_out(s, everything)] if s.validation else []
        kept = np.setdiff1d(everything, held_out)  # in the data set's order
        options = {
            name: getattr(s, name)
            for name in ("beta", "balance", "min_size")
            if getattr(s, name) is not None
        }
        parts = getattr(partition, s.partition)(labels[kept], s.num_clients, rng=rng, **options)
        return [kept[part] for part in parts], None, held_out
    if s.partition == "n-way-k-shot":
        shots = {
            "k": s.shots,
            "test_shots": s.test_shots,
            "draw": s.draw,
            "mnist": s.dataset == "mnist",
        }
        shots["train_shots_max"] = max(s.shots + s.shots // 10, s.shots + s.stdev)  # 110 for 100
        given = (
            dataset.test_labels.numpy(),
            s.num_clients,
            s.ways,
            s.stdev,
            rng,
            random.Random(s.seed),
        )
        parts, test_parts = partition.n_way_k_shot(labels, *given, **shots)
    else:  # one model for all domains is judged in each of them
        domains, rng, test_parts = (
            dataset.train_groups.numpy(),
            seeds.generator(s.seed, "domains"),
            None,
        )
        parts = partition.by_domain(labels, domains, s.per_domain, rng, balanced=s.balanced_draw)
    if not s.validation:
        return parts, test_parts, []
    held_out = [_held_out(s, part, i) for i, part in enumerate(parts)]
    return [np.setdiff1d(*pair) for pair in zip(parts, held_out, strict=True)], test_parts, held_out


def _held_out(settings: Settings, images: np.ndarray, client: int = 0) -> np.ndarray:
    """The images that are kept back, in their order; int64 [n]."""
    order = seeds.generator(settings.seed, "validation", 0, client).permutation(len(images))
    return images[np.sort(order[: max(1, round(settings.validation * len(images)))])]


def test_index(settings: Settings, dataset: Dataset) -> np.ndarray | None:
    """Which test images are evaluated, int64 [n], None for all: the same for any seed; a larger number only adds some."""
    if settings.test_per_domain is None:
        return None
    of_domain = [
        np.flatnonzero(dataset.test_groups.numpy() == domain)
        for domain in range(len(dataset.group_names))
    ]
    orders = [
        seeds.generator(0, "test images", 0, domain).permutation(own)
        for domain, own in enumerate(of_domain)
    ]
    return np.sort(np.concatenate([order[: settings.test_per_domain] for order in orders]))


def federation(
    settings: Settings, methods: Methods, *, device: str | None = None, workers: int | None = None
) -> Federation:
    """Build the federation that the settings describe, ready for its first round."""
    s, device = settings, find_device(device)
    there = {"device": device, "workers": workers or num_workers(device)}
    there["train"] = (
        None if device == "cpu" else StackedTrainer()
    )  # on a GPU by replays of a recorded step
    dataset = load_dataset(s.dataset)
    _, channels, side, _ = dataset.images.shape
    network = {
        "channels": channels,
        "side": side,
        "precision": s.precision or "float32",
        "pretrained": bool(s.pretrained),
    }
    network |= {
        "projection_head": s.projection_head,
        "projection_dim": s.projection_dim,
        "seed": s.seed,
    }

    def build_model(name: str = s.model) -> models.Net:
        return models.build(name, dataset.num_classes, **network)

    try:
        parts, test_parts, held_out = divide(s, dataset)
        images = {
            "parts": parts,
            "test_parts": test_parts,
            "test_index": test_index(s, dataset),
            "held_out": held_out,
        }
        rounds = {
            "participation": s.participation,
            "evaluate_every": s.evaluate_every or 1,
            "seed": s.seed,
        }
        if s.heterogeneous:
            rounds["architectures"] = models.heterogeneous(s.model, s.num_clients)
        training = Training(**{name: getattr(s, name) for name in Training.__dataclass_fields__})
        method = methods[s.method](**s.hyperparameters)
        return Federation(
            method, dataset, build_model=build_model, training=training, **images, **rounds, **there
        )
    except ValueError as error:  # an impossible partition, a network that does not fit the images
        raise SettingsError(str(error)) from error


def find_device(asked: str | None = None) -> str:
    """``asked``, ``$FEDNB_DEVICE``, or the GPU if there is one; "cpu", "cuda" or "cuda:1"."""
    count = torch.cuda.device_count()
    there = ["cpu", *["cuda"] * bool(count), *(f"cuda:{i}" for i in range(count))]
    name = asked or os.environ.get("FEDNB_DEVICE") or ("cuda" if count else "cpu")
    return rule_of(one_of(there)).fit("device" if asked else "FEDNB_DEVICE", name)


def num_workers(device: str = "cpu") -> int:
    """How many clients train side by side: ``$FEDNB_WORKERS``, or one per core; on a GPU one."""
    text = os.environ.get("FEDNB_WORKERS") or str((os.cpu_count() or 1) if device == "cpu" else 1)
    return rule_of(Count).fit("FEDNB_WORKERS", int(text) if text.isdecimal() else text)


def device_name(device: str) -> str:
    """The name of the processor or GPU, as records have it."""
    if device != "cpu":
        return torch.cuda.get_device_name(device)
    told = Path("/proc/cpuinfo")
    named = re.search(
        r"^model name\s*:(.*)", told.read_text() if told.exists() else "", re.MULTILINE
    )
    return named[1].strip() if named else platform.processor() or platform.machine()
