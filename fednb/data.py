"""Data sets as uint8 images and int64 labels in memory; `load` reads one.

A published set is one file ``NAME.npz``, which ``fednb data NAME`` writes. A name such as
``folder:PATH`` is left to the reader that is installed for what stands before the colon.
"""

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import yaml
from PIL import Image
from pydantic import TypeAdapter
from torch import Tensor

from fednb import ROOT, home
from fednb.errors import DataError, check, require_known

EMBEDDED = ("digits", "digits5_mini")  # come with what is installed
READERS = "fednb.datasets"  # the group of entry points under which packages name readers
_SHIPPED = ROOT / "data"  # what comes with the project


@dataclass(frozen=True)
class Augmentation:
    """Random changes to training images; the default changes nothing."""

    pad: int = 0  # pixels added on each side before a random crop to the original size
    pad_mode: Literal["constant", "reflect"] = "constant"  # "constant" adds zeros
    flip: bool = False  # mirror left to right with probability 1/2
    rotation: float = 0.0  # the angle is drawn uniformly from [-rotation, rotation], in degrees


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a data set without its images; of one's own, what was found out about it."""

    name: str
    title: str = ""  # for people
    shape: tuple[int, int, int] = (0, 0, 0)  # channels, height, width
    sizes: tuple[int, int] = (0, 0)  # training and test images; of domains their sums
    classes: tuple[str, ...] = ()  # none where files name them
    num_classes: int = 0
    domains: dict[str, tuple[int, int] | None] = field(default_factory=dict)  # None: unknown sizes
    mean: tuple[float, ...] = ()  # per channel, of values scaled to [0, 1]; of one's own, measured
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


def _specs() -> dict[str, DatasetInfo]:
    text = Path(__file__).with_name("datasets.yaml").read_text(encoding="utf-8")
    entries = yaml.safe_load(text)
    for name, entry in entries.items():
        entry["name"] = name
        entry.setdefault("num_classes", len(entry.get("classes", ())))
    return TypeAdapter(dict[str, DatasetInfo]).validate_python(entries)


DATASETS = _specs()
NAMES = tuple(DATASETS)
REGISTERED: dict[str, Dataset] = {}  # arrays, by the names that they were given


# --- a set by its name


def load(name: str) -> Dataset:
    """Load one of `NAMES`, a registered set, or what a reader reads.

    A `DataError` says how to get what is not there, or what is wrong with a file.
    """
    reader = _reader_of(name)
    if reader is not None:
        return reader.load(name)
    _check_known(name)
    if name in REGISTERED:
        return REGISTERED[name]
    return _read_published(name)


def info_of(name: str) -> DatasetInfo:
    """Return what is known about a set; a `DataError` if there is none of this name."""
    reader = _reader_of(name)
    if reader is not None:
        return reader.info_of(name)
    _check_known(name)
    return DATASETS[name]


def resolve_name(name: str) -> str:
    """Return a set's name as it is understood in any folder: a PATH in it is absolute."""
    reader = _reader_of(name)
    return name if reader is None else reader.resolve_name(name)


def canonical_name(name: str) -> str:
    """Return a set's name for records: with a fingerprint where it does not say which images."""
    if str(name) in REGISTERED:
        return f"{name}#{REGISTERED[name].fingerprint[:8]}"
    reader = _reader_of(name)
    return name if reader is None else reader.canonical_name(name)


@functools.cache  # to look through all that is installed takes as long as to read a small set
def _readers() -> dict[str, Any]:
    """What reads names such as ``folder:PATH``, by what stands before the colon.

    Each is a module with the four functions above, which a package names as an entry point.
    """
    return {found.name: found for found in entry_points(group=READERS)}


def _reader_of(name: object) -> Any:
    """The reader for a set's name; None if the name has no colon."""
    word, colon, _ = str(name).partition(":")
    if not colon:
        return None
    readers = _readers()
    fix = "fednb must be installed (`pip install -e .` in its folder, or its wheel)."
    check(readers, f"{name}: {fix}")
    what = f"{name}: nothing that is installed reads sets that begin with"
    require_known(what, word, sorted(readers), DataError)
    return readers[word].load()


def _check_known(name: str) -> None:
    is_path = isinstance(name, str) and name not in DATASETS and os.path.exists(name)
    check(not is_path, f"{name} lies here: if it holds your images, write folder:{name}.")
    require_known("There is no data set", name, [*DATASETS, "folder:PATH"], DataError)


# --- files


def places() -> list[Path]:
    """List where ``NAME.npz`` may lie: first the folder of the data sets, last the cache."""
    given = os.environ.get("FEDNB_DATA") or home() / "data"
    cache = os.environ.get("FEDNB_CACHE") or home() / "data" / "cache"
    found = [Path(os.path.abspath(os.path.expanduser(path))) for path in (given, cache)]
    return list(dict.fromkeys([found[0], _SHIPPED, found[1]]))


def file_of(name: str) -> Path | None:
    """Return the file of a published set; None if there is none."""
    paths = [folder / f"{name}.npz" for folder in places()]
    return next((path for path in paths if path.is_file()), None)


def _read_published(name: str) -> Dataset:
    """What the file of a published set holds; a `DataError` says how to get one."""
    spec = DATASETS[name]
    path = file_of(name)
    if path is None:
        raise DataError(
            f"{spec.title} was not found in {places()[0]}: `fednb data {spec.name}` fetches it, or "
            "says what to do (FEDNB_DATA names another folder)."
        )
    found = read(spec, path)
    if found is None or found.images.shape[1:] != spec.shape:
        raise DataError(
            f"{spec.title}: {path} is damaged, or not written by `fednb data`: move it away, and run "
            f"`fednb data {spec.name}`, with --from where it holds arrays of yours."
        )
    return found


# Each is an array in a file; groups are zeros where there are no domains.
FIELDS = (
    *("images", "labels", "train_groups", "test_images", "test_labels", "test_groups"),
    *("classes", "notes", "remarks", "source", "fingerprint"),
)


def read(spec: DatasetInfo, path: Path) -> Dataset | None:
    """Read the set that a file holds; None if there is no such file, or if it is damaged."""
    values: dict[str, Any] = {}
    try:
        with np.load(path, allow_pickle=False) as file:  # zipfile checks the sums
            for name in FIELDS:
                value = file[name]  # what are no numbers are words
                values[name] = value if value.dtype.kind in "iu" else value.tolist()
    except Exception:
        return None
    return of_fields(spec, values)


def of_fields(spec: DatasetInfo, values: Mapping[str, Any]) -> Dataset:
    """Make the set of these `FIELDS`: arrays, and words about them."""
    tensors: dict[str, Any] = {name: torch.from_numpy(values[name]) for name in FIELDS[:6]}
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
    """The mean of each channel, scaled to [0, 1], and its standard deviation, never 0."""
    shades = torch.arange(256, dtype=torch.float64) / 255
    counts = [channel.flatten().bincount(minlength=256) for channel in images.unbind(1)]
    shares = torch.stack(counts).double() / counts[0].sum()
    means = shares @ shades
    stds = (shares * (shades - means[:, None]) ** 2).sum(1).sqrt().clamp(min=1e-3)
    mean, std = (tuple(round(x, 4) for x in values.tolist()) for values in (means, stds))
    return mean, std


# --- arrays of images


def as_rgb(images: np.ndarray, side: int) -> np.ndarray:
    """Bring uint8 [N, C, H, W] to [N, 3, side, side], bilinearly as torchvision's Resize does."""
    if images.shape[-2:] != (side, side):
        channels = images.reshape(-1, *images.shape[-2:])
        resized = [
            np.asarray(Image.fromarray(channel).resize((side, side), Image.Resampling.BILINEAR))
            for channel in channels
        ]
        images = np.stack(resized).reshape(len(images), -1, side, side)
    return np.broadcast_to(images, (len(images), 3, side, side))


def to_bytes(x: np.ndarray | list[np.ndarray]) -> np.ndarray:
    """Return values as uint8: 0 to 1 become 0 to 255, and what is outside is clipped."""
    return np.rint(255 * np.clip(x, 0, 1)).astype(np.uint8)


@functools.cache
def photographs() -> tuple[np.ndarray, ...]:
    """Return scikit-learn's two photographs, uint8 [427, 640, 3] each."""
    from sklearn.datasets import load_sample_images

    return tuple(load_sample_images().images)


def patch(rng: np.random.Generator, size: int, train: bool) -> np.ndarray:
    """Draw a piece of a photograph, reduced by 1, 2 or 3: [size, size, 3], from 0 to 1.

    For training it is of the left two thirds, for testing of what remains.
    """
    photograph = photographs()[rng.integers(2)]
    middle = photograph.shape[1] * 2 // 3
    photograph = photograph[:, :middle] if train else photograph[:, middle:]
    scale = int(rng.choice((1, 2, 3)))
    top, left = (int(rng.integers(side - size * scale + 1)) for side in photograph.shape[:2])
    piece = photograph[top : top + size * scale, left : left + size * scale] / 255
    return piece.reshape(size, scale, size, scale, 3).mean((1, 3))
