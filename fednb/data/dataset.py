"""What a data set is: images and labels in memory, how they are prepared, and what has to be said about them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Augmentation:
    """Random changes to training images; the default changes nothing."""

    pad: int = 0  # pixels added on each side before a random crop to the original size
    pad_mode: str = "constant"  # zeros; or "reflect"
    flip: bool = False  # mirror left to right with probability 1/2
    rotation: float = (
        0.0  # rotate by an angle drawn uniformly from [-rotation, rotation], in degrees
    )


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A data set with its test split; where there is a note, numbers carry it and are not judged against the paper's."""

    name: str
    images: Tensor  # uint8 [N, C, H, W]
    labels: Tensor  # int64 [N], positions in `classes`
    test_images: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    mean: tuple[
        float, ...
    ]  # per channel, of values scaled to [0, 1]; of published sets the constants of the papers' code
    std: tuple[float, ...]
    augmentation: Augmentation
    fingerprint: str
    source: (
        str  # in which layout it was found, such as "official files" or "zip files"; never a path
    )
    note: str = ""  # what is not the published set, e.g. "subset: 4,000 of 100,000 training images"
    remark: str = ""  # what has to be known about the published set itself
    train_groups: Tensor | None = (
        None  # int64 [N], the domain of each image, a position in `group_names`
    )
    test_groups: Tensor | None = None
    group_names: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def __repr__(self) -> str:
        size = "x".join(map(str, self.images.shape[1:]))
        more = "; ".join(filter(None, (self.note, self.remark)))
        images = f"{len(self.images):,} training and {len(self.test_images):,} test images"
        told = f"{images}, {size}, {self.num_classes} classes, fingerprint {self.fingerprint}, source: {self.source}"
        return f"{self.name}: {told}" + (f" ({more})" if more else "")


Content = dict[str, Any]


def content(
    train: Sequence, test: Sequence, classes: Sequence[str], notes: Any = (), remarks: Any = ()
) -> Content:
    """What readers return and the cache keeps: both splits, groups only where there are domains, and what the files tell."""
    x, y, groups = train if len(train) == 3 else (*train, 0 * train[1])
    x_test, y_test, test_groups = test if len(test) == 3 else (*test, 0 * test[1])
    found = {
        "images": x,
        "labels": y,
        "test_images": x_test,
        "test_labels": y_test,
        "classes": classes,
    }
    found |= {
        "train_groups": groups,
        "test_groups": test_groups,
        "notes": notes,
        "remarks": remarks,
    }
    n = len(classes)  # with an image in another domain it is another set
    return found | {"fingerprint": fingerprint(x, y + n * groups, x_test, y_test + n * test_groups)}


def fingerprint(
    images: np.ndarray, labels: np.ndarray, test_images: np.ndarray, test_labels: np.ndarray
) -> str:
    """Hash uint8 images [N, C, H, W] with split and int64 label [N], whatever their order, to 16 hex digits."""
    digests = []
    for split, x, y in ((b"train", images, labels), (b"test", test_images, test_labels)):
        for image, label in zip(np.ascontiguousarray(x), y.tolist(), strict=True):
            digests.append(
                hashlib.blake2b(
                    b"%s %d " % (split, label) + image.tobytes(), digest_size=16
                ).digest()
            )
    total = hashlib.blake2b(str(images.shape[1:]).encode(), digest_size=8)
    total.update(b"".join(sorted(digests)))
    return total.hexdigest()
