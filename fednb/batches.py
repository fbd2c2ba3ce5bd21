"""Images on a device, how clients train on them, and the batches of one SGD step each."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from numpy.random import Generator
from torch import Tensor

from fednb import augment
from fednb.data import Dataset

# positions of training images, int64 [B], and the draws of their augmentation, float32 [B, 4]
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


def images_of_epoch(n: int, batch_size: int, keep_last: bool | None) -> int:
    """Return how many of n images an epoch trains on.

    Without ``keep_last`` those of the last, incomplete batch are left out, unless it is the only one.
    """
    return n if keep_last else max(n - n % batch_size, min(n, batch_size))


class Images:
    """A data set on a device: bytes, padded once, augmented and normalised batch by batch.

    Attributes
    ----------
    train: padded training images, uint8 [N, H + 2p, W + 2p, C]; ``labels`` [N] are their classes.
    test: test images, uint8 [M, H, W, C]; ``test_labels`` [M] are their classes.
    constants: scale and shift of each channel, that take bytes to normalised numbers.
    num_classes: K, how many classes there are.
    """

    def __init__(self, dataset: Dataset, device: str | torch.device = "cpu") -> None:
        self.augmentation = dataset.augmentation
        self.num_classes = dataset.num_classes
        self.train = augment.store(dataset.images, dataset.augmentation).to(device)
        self.labels = dataset.labels.to(device)
        self.test = dataset.test_images.permute(0, 2, 3, 1).contiguous().to(device)
        self.test_labels = dataset.test_labels.to(device)
        self.constants = augment.constants(dataset.mean, dataset.std, device)

    @property
    def device(self) -> torch.device:
        """The device on which they lie."""
        return self.train.device

    def inputs(self, index: Tensor, draws: Tensor | None = None) -> Tensor:
        """Return training images ``index`` [B], normalised: float32 [B, C, H, W].

        They are augmented by ``draws`` [B, 4] of `augment.draw`; with None they stay as they are.
        """
        images = augment.gather(self.train, index, draws, self.augmentation)
        return augment.normalise(images, *self.constants)

    def test_inputs(self, index: Tensor | None = None) -> Tensor:
        """Return test images ``index`` [B], or all of them, normalised: float32 [B, C, H, W]."""
        images = self.test if index is None else self.test[index]
        return augment.normalise(images, *self.constants)

    def plain_batches(self, indices: Tensor) -> Iterator[Tensor]:
        """Yield training images ``indices`` [n] in order, normalised, without augmentation."""
        return map(self.inputs, indices.split(IMAGES_AT_ONCE))

    def epoch(self, indices: Tensor, training: Training, rng: Generator) -> Iterator[Batch]:
        """Return the batches of one epoch over `images_of_epoch` of images ``indices``, shuffled."""
        n = len(indices)
        size = training.batch_size
        kept = images_of_epoch(n, size, training.keep_last)
        order = torch.from_numpy(rng.permutation(n)[:kept])
        draws = augment.draw(kept, self.augmentation, rng)
        shuffled = indices[order.to(self.device)]
        return zip(shuffled.split(size), draws.to(self.device).split(size), strict=True)

    def steps(
        self, indices: Tensor, training: Training, epochs: int, rng: Generator
    ) -> Iterator[Batch]:
        """Yield the batches of so many epochs, one for each SGD step; at most ``local_steps``."""
        each_epoch = (self.epoch(indices, training, rng) for _ in range(epochs))
        return itertools.islice(itertools.chain.from_iterable(each_epoch), training.local_steps)
