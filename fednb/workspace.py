"""The machine that a simulation runs on: images on a device, networks to lend, batches, threads.

Nothing here knows of methods, messages or rounds.
"""

import itertools
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from numpy.random import Generator
from torch import Tensor

from fednb import augment
from fednb.data import Dataset
from fednb.messages import State
from fednb.models import Net

# indices of images, int64 [B], and the draws for their augmentation, [B, 4]
Batch = tuple[Tensor, Tensor]
# where images are only looked at, so that memory does not grow with their number
IMAGES_AT_ONCE = 500


@dataclass(frozen=True)
class Training:
    """How clients train; the same for every method."""

    num_rounds: int
    local_epochs: int
    batch_size: int
    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    keep_last: bool | None = None  # train on the last, incomplete batch of an epoch too
    local_steps: int | None = None  # at most so many SGD steps in a phase; None: whole epochs
    lr_decay: float | None = None  # the factor of lr from one round to the next; None: 1

    def in_round(self, t: int) -> "Training":
        """The same with the learning rate of round ``t`` (from 0), lr · lr_decay^t."""
        if self.lr_decay is None:
            return self
        return replace(self, lr=self.lr * self.lr_decay**t)


class Borrower(Protocol):
    """Who can be lent a network: a client."""

    architecture: Hashable
    borrowed: Net | None


class Workspace:
    """Images on a device, and networks that clients borrow while they work."""

    dataset: Dataset
    build_model: Callable[..., Net]
    training: Training
    architectures: Sequence[Hashable] | None
    seed: int
    device: str
    workers: int | None

    def set_up(self) -> None:
        """Move the data to the device and build one network of each architecture."""
        dataset, device = self.dataset, self.device
        self.images = augment.store(dataset.images, dataset.augmentation).to(device)
        self.test_images = dataset.test_images.permute(0, 2, 3, 1).contiguous().to(device)
        self.labels = dataset.labels.to(device)
        self.test_labels = dataset.test_labels.to(device)
        self.constants = augment.constants(dataset.mean, dataset.std, device)
        self.workers = self.workers or os.cpu_count() or 1
        networks = {key: self.network(key) for key in dict.fromkeys(self.architectures or [None])}
        self._free = {key: [net] for key, net in networks.items()}  # that nobody has borrowed
        # the weights that clients of an architecture have in common before the first round
        self.initial: dict[Hashable, State] = {key: net.state() for key, net in networks.items()}

    def network(self, architecture: Hashable = None) -> Net:
        """A new network of an architecture, on the device."""
        model = self.build_model() if architecture is None else self.build_model(architecture)
        return model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    @contextmanager
    def lend_model(self, client: Borrower) -> Iterator[None]:
        """Lend a network to a client for a block; there are as many as were ever in use at once."""
        free = self._free[client.architecture]
        try:
            client.borrowed = free.pop()
        except IndexError:
            client.borrowed = self.network(client.architecture)
        try:
            yield
        finally:
            free.append(client.borrowed)
            client.borrowed = None

    def map(self, function: Callable, *items: Sequence) -> list:
        """As Python's ``map``; on a CPU ``workers`` calls at once, on one intra-op thread each."""
        threads = torch.get_num_threads()
        if self.device == "cpu":
            torch.set_num_threads(1)
        try:
            if self.workers == 1 or len(items[0]) == 1 or self.device != "cpu":
                return list(map(function, *items))
            with ThreadPoolExecutor(self.workers) as pool:
                return list(pool.map(function, *items))
        finally:
            torch.set_num_threads(threads)

    def inputs(self, index: Tensor, draws: Tensor | None = None) -> Tensor:
        """Training images ``index`` [B], augmented and normalised: float32 [B, C, H, W]."""
        images = augment.gather(self.images, index, draws, self.dataset.augmentation)
        return augment.normalise(images, *self.constants)

    def test_inputs(self, index: Tensor) -> Tensor:
        """Test images ``index`` [B], normalised: float32 [B, C, H, W]."""
        return augment.normalise(self.test_images[index], *self.constants)

    def plain_batches(self, indices: Tensor) -> Iterator[Tensor]:
        """Training images as they are, normalised, in order."""
        return map(self.inputs, indices.split(IMAGES_AT_ONCE))

    def batches(self, indices: Tensor, rng: Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch of a client's images, x [B, C, H, W], y [B]: shuffled, augmented, normalised."""
        for index, draws in self.epoch(indices, rng):
            yield self.inputs(index, draws), self.labels[index]

    def epoch(self, indices: Tensor, rng: Generator) -> Iterator[Batch]:
        """The batches of an epoch: the images of each, and the draws for their augmentation.

        Without the training's ``keep_last`` the last incomplete batch is dropped, unless it is the
        client's only one.
        """
        n = len(indices)
        size = self.training.batch_size
        kept = n if self.training.keep_last else max(n - n % size, min(n, size))
        order = torch.from_numpy(rng.permutation(n)[:kept])
        draws = augment.draw(kept, self.dataset.augmentation, rng)
        shuffled = indices[order.to(self.device)]
        return zip(shuffled.split(size), draws.to(self.device).split(size), strict=True)

    def steps(self, indices: Tensor, epochs: int, rng: Generator) -> Iterator[Batch]:
        """The batches of so many epochs, one for each SGD step; at most ``local_steps``."""
        batches = itertools.chain.from_iterable(self.epoch(indices, rng) for _ in range(epochs))
        return itertools.islice(batches, self.training.local_steps)
