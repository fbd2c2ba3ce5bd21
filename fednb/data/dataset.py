"""What a data set is: images and labels in memory, how they are prepared, and what has to be said about them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


class DataError(Exception):
    """What is wrong with the data and what to do about it, in one sentence for people."""


@dataclass(frozen=True)
class Augmentation:
    """Random changes to training images; the default changes nothing."""

    pad: int = 0  # pixels added on each side before a random crop to the original size
    pad_mode: str = "constant"  # zeros; or "reflect"
    flip: bool = False  # mirror left to right with probability 1/2
    rotation: float = 0.0  # rotate by an angle drawn uniformly from [-rotation, rotation], in degrees


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A data set with its test split.

    Attributes
    ----------
    images, test_images : Tensor, uint8 [N, C, H, W]
    labels, test_labels : Tensor, int64 [N]
        Positions in `classes`.
    mean, std : tuple of float, length C
        Of pixel values scaled to [0, 1]; the constants of the papers' code, like `augmentation`.
    fingerprint : str
        16 hex digits, see `fingerprint`.
    source : str
        "embedded", "official files", "image tree", "zip files", "file of arrays", "rendered" or, of domains that were
        found in several of these ways, "several"; never a path.
    note : str
        What is not the published set, e.g. "subset: 4,000 of 100,000 training images"; empty if nothing.
        Records and tables that use the data show it, and their numbers are not judged against the paper's.
    remark : str
        What has to be known about the published set itself; empty if nothing. Records and tables show it too.
    train_groups, test_groups : Tensor, int64 [N], optional
        Domain of each image, a position in `group_names`.
    """

    name: str
    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: Augmentation
    fingerprint: str
    source: str
    note: str = ""
    remark: str = ""
    train_groups: Tensor | None = None
    test_groups: Tensor | None = None
    group_names: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def __repr__(self) -> str:
        """Say in one line what it holds."""
        size = "x".join(str(n) for n in self.images.shape[1:])
        told = "; ".join(part for part in (self.note, self.remark) if part)
        return (
            f"{self.name}: {len(self.images):,} training and {len(self.test_images):,} test images, {size}, "
            f"{self.num_classes} classes, fingerprint {self.fingerprint}, source: {self.source}"
        ) + (f" ({told})" if told else "")


class Content(NamedTuple):
    """What readers return and the cache keeps: arrays as in `Dataset`, and what the files tell for its note and remark."""

    images: np.ndarray
    labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    classes: tuple[str, ...]
    train_groups: np.ndarray | None = None
    test_groups: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    fingerprint: str = ""


def fingerprint(images: np.ndarray, labels: np.ndarray, test_images: np.ndarray, test_labels: np.ndarray) -> str:
    """Hash uint8 images [N, C, H, W] with their split and int64 label [N] to 16 hex digits.

    It does not depend on the order of the images, so official files and a lossless tree of them agree.
    """
    digests = []
    for split, x, y in ((b"train", images, labels), (b"test", test_images, test_labels)):
        for image, label in zip(np.ascontiguousarray(x), y.tolist(), strict=True):
            digest = hashlib.blake2b(b"%s %d " % (split, label), digest_size=16)
            digest.update(image)
            digests.append(digest.digest())
    total = hashlib.blake2b(str(images.shape[1:]).encode(), digest_size=8)
    total.update(b"".join(sorted(digests)))
    return total.hexdigest()
