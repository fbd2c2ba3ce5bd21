"""What a data set is: images and labels in memory, how they are prepared, what is said of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor  # slow to import, and not every command needs it


@dataclass(frozen=True)
class Augmentation:
    """Random changes to training images; the default changes nothing."""

    pad: int = 0  # pixels added on each side before a random crop to the original size
    pad_mode: Literal["constant", "reflect"] = "constant"  # "constant" adds zeros
    flip: bool = False  # mirror left to right with probability 1/2
    rotation: float = 0.0  # the angle is drawn uniformly from [-rotation, rotation], in degrees


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A data set with its test split.

    Where it has a note, results carry it and are not judged against the paper's.
    """

    name: str
    images: Tensor  # uint8 [N, C, H, W]
    labels: Tensor  # int64 [N], positions in `classes`
    test_images: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    # per channel, of values in [0, 1]; of published sets as in the papers' code
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: Augmentation
    fingerprint: str
    source: str  # the layout in which it was found, such as "official files"; never a path
    note: str = ""  # what is not the published set, e.g. "subset: 4,000 of 100,000 training images"
    remark: str = ""  # what has to be known about the published set itself
    # int64 [N], each image's domain, a position in `group_names`
    train_groups: Tensor | None = None
    test_groups: Tensor | None = None
    group_names: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def __repr__(self) -> str:
        parts = [
            f"{len(self.images):,} training and {len(self.test_images):,} test images",
            "x".join(str(length) for length in self.images.shape[1:]),
            f"{self.num_classes} classes",
            f"fingerprint {self.fingerprint}",
            f"source: {self.source}",
        ]
        comments = "; ".join(text for text in (self.note, self.remark) if text)
        return f"{self.name}: {', '.join(parts)}" + (f" ({comments})" if comments else "")


class LabelledImages(NamedTuple):
    """A split of a data set as arrays."""

    images: np.ndarray  # uint8 [N, C, H, W]
    labels: np.ndarray  # int64 [N], positions in the list of classes
    groups: np.ndarray  # int64 [N], domains; zeros where there are none


@dataclass(frozen=True)
class RawDataset:
    """What was read of a set, not yet compared with what is published; the cache keeps it."""

    images: np.ndarray  # of each split what `LabelledImages` holds, in its order
    labels: np.ndarray
    train_groups: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    test_groups: np.ndarray
    classes: Sequence[str]
    notes: Sequence[str]  # what the files tell that is not as published
    remarks: Sequence[str]  # what has to be known about the images
    fingerprint: str


def raw_dataset(
    train: LabelledImages,
    test: LabelledImages,
    classes: Sequence[str],
    notes: Sequence[str] = (),
    remarks: Sequence[str] = (),
) -> RawDataset:
    """Join both splits; the fingerprint is another one when an image is in another domain."""
    n = len(classes)
    labels = train.labels + n * train.groups
    test_labels = test.labels + n * test.groups
    digits = fingerprint(train.images, labels, test.images, test_labels)
    return RawDataset(*train, *test, classes, notes, remarks, digits)


def fingerprint(
    images: np.ndarray, labels: np.ndarray, test_images: np.ndarray, test_labels: np.ndarray
) -> str:
    """Hash uint8 images [N, C, H, W] with split and label, in whatever order, to 16 hex digits."""
    digests = []
    for split, x, y in ((b"train", images, labels), (b"test", test_images, test_labels)):
        for image, label in zip(np.ascontiguousarray(x), y.tolist(), strict=True):
            content = b"%s %d " % (split, label) + image.tobytes()
            digests.append(hashlib.blake2b(content, digest_size=16).digest())
    total = hashlib.blake2b(str(images.shape[1:]).encode(), digest_size=8)
    total.update(b"".join(sorted(digests)))
    return total.hexdigest()
