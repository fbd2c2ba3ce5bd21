"""What a data set is: images and labels in memory, what is said of them, and the file that holds them."""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
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


def from_splits(
    spec: DatasetSpec,
    train: Split,
    test: Split,
    classes: Sequence[str],
    source: str,
    notes: Sequence[str] = (),
    remarks: Sequence[str] = (),
) -> Dataset:
    """Join both splits; the fingerprint is another one when an image is in another domain."""
    labels = train.labels + len(classes) * train.groups
    test_labels = test.labels + len(classes) * test.groups
    digits = fingerprint(train.images, labels, test.images, test_labels)
    values = dict(
        zip(_FIELDS, (*train, *test, classes, notes, remarks, source, digits), strict=True)
    )
    return _as_tensors(spec, values)


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


def _as_tensors(spec: DatasetSpec, values: Mapping[str, Any]) -> Dataset:
    """The set whose file holds these values."""
    tensors: dict[str, Any] = {name: torch.from_numpy(values[name]) for name in _FIELDS[:6]}
    mean, std = (spec.mean, spec.std) if spec.mean else _mean_and_std(tensors["images"])
    if not spec.domains:
        tensors |= {"train_groups": None, "test_groups": None}
    return Dataset(
        spec.name,
        **tensors,
        classes=tuple(values["classes"]),
        mean=mean,
        std=std,
        augmentation=spec.augmentation,
        fingerprint=values["fingerprint"],
        source=values["source"],
        note="; ".join(values["notes"]),
        remark="; ".join(values["remarks"]),
        group_names=tuple(spec.domains),
    )


def _mean_and_std(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of each channel, scaled to [0, 1]; the latter is never 0, since it divides."""
    shades = torch.arange(256, dtype=torch.float64) / 255
    counts = [channel.flatten().bincount(minlength=256) for channel in images.unbind(1)]
    shares = torch.stack(counts).double() / counts[0].sum()
    means = shares @ shades
    stds = (shares * (shades - means[:, None]) ** 2).sum(1).sqrt().clamp(min=1e-3)
    return tuple(round(x, 4) for x in means.tolist()), tuple(round(x, 4) for x in stds.tolist())


# --- the file NAME.npz that holds it

# Each is an array there; groups are zeros where there are no domains.
_FIELDS = (
    *("images", "labels", "train_groups", "test_images", "test_labels", "test_groups"),
    *("classes", "notes", "remarks", "source", "fingerprint"),
)


def read(spec: DatasetSpec, path: Path) -> Dataset | None:
    """The set that a file holds; None if there is no such file, or if it is damaged."""
    values = read_fields(path, _FIELDS)
    return None if values is None else _as_tensors(spec, values)


def read_fields(path: Path, names: Iterable[str]) -> dict[str, Any] | None:
    """Some of what a file holds; None if one is missing or damaged (zipfile checks the sums)."""
    values: dict[str, Any] = {}
    try:
        with np.load(path, allow_pickle=False) as file:
            for name in names:
                value = file[name]  # what are no numbers are words
                values[name] = value if value.dtype.kind in "iu" else value.tolist()
    except Exception:
        return None
    return values


def write(path: Path, dataset: Dataset, compressed: bool = False) -> None:
    """Write a set as a file; nobody sees half of it, and an `OSError` leaves none."""
    values: dict[str, Any] = dict.fromkeys(_FIELDS)
    values |= {name: value for name, value in vars(dataset).items() if name in values}
    if dataset.train_groups is None:
        values["train_groups"] = torch.zeros_like(dataset.labels)
        values["test_groups"] = torch.zeros_like(dataset.test_labels)
    values |= {"notes": [dataset.note], "remarks": [dataset.remark]}
    arrays = {
        name: value.numpy() if isinstance(value, Tensor) else np.asarray(value, dtype=np.str_)
        for name, value in values.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        half = Path(folder) / path.name
        save: Any = np.savez_compressed if compressed else np.savez
        save(half, **arrays)
        os.replace(half, path)
