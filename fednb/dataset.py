"""What a data set is: images and labels in memory, what is said of them, and the file that holds them."""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Augmentation:
    """Random changes to training images; the default changes nothing."""

    pad: int = 0  # pixels added on each side before a random crop to the original size
    pad_mode: Literal["constant", "reflect"] = "constant"  # "constant" adds zeros
    flip: bool = False  # mirror left to right with probability 1/2
    rotation: float = 0.0  # the angle is drawn uniformly from [-rotation, rotation], in degrees


@dataclass(frozen=True)
class DatasetSpec:
    """What is known of a data set without its images; of one's own, what was found out about it."""

    name: str
    title: str = ""  # for people
    shape: tuple[int, int, int] = (0, 0, 0)  # channels, height, width
    sizes: tuple[int, int] = (0, 0)  # training and test images; of domains their sums
    classes: tuple[str, ...] = ()  # none where files name them
    num_classes: int = 0
    domains: dict[str, tuple[int, int] | None] = field(default_factory=dict)  # None: unknown sizes
    mean: tuple[float, ...] = ()  # per channel, of values scaled to [0, 1]; none: to be measured
    std: tuple[float, ...] = ()
    augmentation: Augmentation = field(default_factory=Augmentation)


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


class Split(NamedTuple):
    """A split of a data set as arrays."""

    images: np.ndarray  # uint8 [N, C, H, W]
    labels: np.ndarray  # int64 [N], positions in the list of classes
    groups: np.ndarray  # int64 [N], domains; zeros where there are none


@dataclass(frozen=True)
class Stored:
    """A data set as its file ``NAME.npz`` holds it; each field is an array there."""

    images: np.ndarray  # of each split what `Split` holds, in its order
    labels: np.ndarray
    train_groups: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    test_groups: np.ndarray
    classes: Sequence[str]
    notes: Sequence[str]  # what is not as published
    remarks: Sequence[str]  # what has to be known about the images
    source: str
    fingerprint: str


def stored(
    train: Split,
    test: Split,
    classes: Sequence[str],
    source: str,
    notes: Sequence[str] = (),
    remarks: Sequence[str] = (),
) -> Stored:
    """Join both splits; the fingerprint is another one when an image is in another domain."""
    labels = train.labels + len(classes) * train.groups
    test_labels = test.labels + len(classes) * test.groups
    digits = fingerprint(train.images, labels, test.images, test_labels)
    return Stored(*train, *test, classes, notes, remarks, source, digits)


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


# --- the file that holds it


def read(path: Path, names: Iterable[str]) -> dict[str, Any] | None:
    """Fields of a `Stored` by name; None if one is missing or damaged (zipfile checks the sums)."""
    values: dict[str, Any] = {}
    try:
        with np.load(path, allow_pickle=False) as file:
            for name in names:
                value = file[name]  # what are no numbers are words
                values[name] = value if value.dtype.kind in "iu" else value.tolist()
    except Exception:
        return None
    return values


def write(path: Path, found: Stored, compressed: bool = False) -> None:
    """Write a set as a file; nobody sees half of it, and an `OSError` leaves none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        half = Path(folder) / path.name
        values: dict[str, Any] = {name: _as_saved(value) for name, value in vars(found).items()}
        save: Any = np.savez_compressed if compressed else np.savez
        save(half, **values)
        os.replace(half, path)


def _as_saved(value: Any) -> np.ndarray:
    """An array as it is; words as an array of them, even if there are none."""
    return value if isinstance(value, np.ndarray) else np.asarray(value, dtype=np.str_)


# --- as tensors


def as_dataset(spec: DatasetSpec, found: Stored) -> Dataset:
    """The set as tensors."""
    images = torch.from_numpy(found.images)
    mean = spec.mean
    std = spec.std
    if not mean:
        counts = [channel.flatten().bincount(minlength=256).numpy() for channel in images.unbind(1)]
        mean, std = zip(*map(_mean_and_std, counts), strict=True)
    has_domains = bool(spec.domains)
    return Dataset(
        spec.name,
        images=images,
        labels=torch.from_numpy(found.labels),
        test_images=torch.from_numpy(found.test_images),
        test_labels=torch.from_numpy(found.test_labels),
        classes=tuple(found.classes),
        mean=mean,
        std=std,
        augmentation=spec.augmentation,
        fingerprint=found.fingerprint,
        source=found.source,
        note="; ".join(found.notes),
        remark="; ".join(found.remarks),
        train_groups=torch.from_numpy(found.train_groups) if has_domains else None,
        test_groups=torch.from_numpy(found.test_groups) if has_domains else None,
        group_names=tuple(spec.domains),
    )


def _mean_and_std(counts: np.ndarray) -> tuple[float, float]:
    """Of bytes scaled to [0, 1], by how often each occurs; the latter not 0, since it divides."""
    shades = np.arange(256) / 255
    mean = float(np.average(shades, weights=counts))
    variance = float(np.average((shades - mean) ** 2, weights=counts))
    return round(mean, 4), max(round(variance**0.5, 4), 1e-3)
