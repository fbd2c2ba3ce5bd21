"""Arrays that somebody hands over are made a data set, or refused with the reason; and a set its file.

`register` makes a set of one's own arrays, which has its name in this process; `from_splits` is for
what reads files.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fednb import data
from fednb.data import Augmentation, Dataset, DatasetSpec
from fednb.errors import DataError, check, shorten

CHANNELS = (1, 3)  # grey, or red, green and blue
_SHAPES = "[N, H, W], [N, H, W, C] or [N, C, H, W]"
_DARK = 64  # what is nowhere brighter holds, say, twelve bits in the scale of sixteen


class Split(NamedTuple):
    """A split of a data set as arrays."""

    images: np.ndarray  # uint8 [N, C, H, W]
    labels: np.ndarray  # int64 [N], positions in the list of classes
    groups: np.ndarray  # int64 [N], domains; zeros where there are none


def register(
    name: str,
    images: Any,
    labels: Any,
    test_images: Any,
    test_labels: Any,
    *,
    classes: Sequence[str] = (),
    train_groups: Any = (),
    test_groups: Any = (),
    group_names: Sequence[str] = (),
    augmentation: Augmentation = Augmentation(),  # noqa: B008 (it is frozen)
) -> Dataset:
    """Make arrays or tensors a data set, known by its name in this process.

    Images are square, uint8 [N, H, W], [N, H, W, C] or [N, C, H, W] with 1 or 3 channels; labels
    are integers from 0, [N]. Of several domains, groups are positions in ``group_names``, [N]. A
    `DataError` says what does not fit, and what to do about it.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[\w.+-]{1,80}", name) or name in data.NAMES:
        raise DataError(
            f"{shorten(name)} cannot be the name: take letters, digits, dots and dashes, "
            "and no published set's name."
        )
    check(isinstance(augmentation, Augmentation), f"{name}: augmentation is no data.Augmentation.")
    given = {"images": images, "labels": labels, "train_groups": train_groups}
    train = split_of(name, given, group_names)
    given = {"test_images": test_images, "test_labels": test_labels, "test_groups": test_groups}
    test = split_of(name, given, group_names)
    shapes = [split.images.shape[1:] for split in (train, test)]
    message = f"{name}: images are {list(shapes[0])} and test_images {list(shapes[1])} "
    check(shapes[0] == shapes[1], message + "(channels, height, width); they must be alike.")
    names = classes_of(name, train.labels, test.labels, classes)
    spec = DatasetSpec(
        name,
        title=name,
        shape=tuple(shapes[0]),
        sizes=(len(train.labels), len(test.labels)),
        classes=names,
        num_classes=len(names),
        domains=dict.fromkeys(group_names),
        augmentation=augmentation,
    )
    remarks = remarks_on(train, test, names)
    found = from_splits(spec, train, test, names, "registered", remarks=remarks)
    known = data.REGISTERED.get(name)
    check(
        known is None or known.fingerprint == found.fingerprint,
        f"{name} was registered with other images already: take another name.",
    )
    data.SPECS[name] = spec
    data.REGISTERED[name] = found
    return found


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
    values = (*train, *test, classes, notes, remarks, source, digits)
    return measured(data.of_fields(spec, dict(zip(data.FIELDS, values, strict=True))))


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


def measured(found: Dataset) -> Dataset:
    """The set with the mean of each channel, scaled to [0, 1], and its standard deviation, never 0."""
    if found.mean:  # published
        return found
    shades = torch.arange(256, dtype=torch.float64) / 255
    counts = [channel.flatten().bincount(minlength=256) for channel in found.images.unbind(1)]
    shares = torch.stack(counts).double() / counts[0].sum()
    means = shares @ shades
    stds = (shares * (shades - means[:, None]) ** 2).sum(1).sqrt().clamp(min=1e-3)
    mean, std = (tuple(round(x, 4) for x in values.tolist()) for values in (means, stds))
    return replace(found, mean=mean, std=std)


def write(path: Path, dataset: Dataset, compressed: bool = False) -> None:
    """Write a set as a file; nobody sees half of it, and an `OSError` leaves none."""
    values: dict[str, Any] = dict.fromkeys(data.FIELDS)
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


# --- what they may be


def split_of(name: str, given: Mapping[str, Any], group_names: Sequence[str]) -> Split:
    """Images, labels and groups, by the names of the arguments, as a split.

    A `DataError` that begins with ``name`` and the argument says what does not fit.
    """
    (of_images, images), (of_labels, labels), (of_groups, groups) = given.items()
    x = images_of(f"{name}: {of_images}", images)
    y = labels_of(f"{name}: {of_labels}", labels, len(x))
    return Split(x, y, groups_of(f"{name}: {of_groups}", groups, len(x), group_names))


def as_array(value: Any) -> np.ndarray:
    """An array or tensor, on whatever device, as an array; what is none as an array of objects."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if value.is_floating_point() else value  # NumPy has no bfloat16
    try:
        return np.empty(1, dtype=object) if np.ma.is_masked(value) else np.asarray(value)
    except (ValueError, TypeError, RuntimeError):  # such as lists of different lengths
        return np.empty(1, dtype=object)


def images_of(what: str, value: Any) -> np.ndarray:
    """Images as uint8 [N, C, H, W], C 1 or 3; a `DataError` that begins with ``what``."""
    given = as_array(value)
    shape = f"shape {list(given.shape)}"
    message = f"{what} are {given.dtype}: give bytes, and for values of 0 to 1 "
    check(given.dtype.kind in "iu", message + "(255 * images).round().astype('uint8').")
    check(given.ndim in (3, 4), f"{what} have {shape}: give {_SHAPES}.")
    check(given.size, f"{what} are none: there must be at least one.")
    if given.dtype != np.uint8:
        message = f"{what} are {given.dtype} from {given.min()} to {given.max()}: bring them to "
        raise DataError(message + "bytes, 0 to 255, and give images.astype('uint8').")
    images = given[:, None] if given.ndim == 3 else given
    if given.ndim == 4 and given.shape[-1] in CHANNELS:
        images = given.transpose(0, 3, 1, 2)
    _, channels, height, width = images.shape
    message = f"{what} have {shape}, which is neither 1 channel (grey) nor 3 (RGB): give {_SHAPES}."
    check(channels in CHANNELS, message)
    message = (
        f"{what} are {height} pixels high and {width} wide: make them square (cut or pad them)."
    )
    check(height == width, message)
    return np.array(images, order="C")


def labels_of(what: str, value: Any, number: int) -> np.ndarray:
    """Labels, int64 [N], one for each of so many images; a `DataError` that begins with ``what``."""
    labels = as_array(value)
    message = (
        f"{what} have shape {list(labels.shape)}: give one whole number for each image, [N], that "
        "is labels[:, 0] of a column, and labels.argmax(1) of one-hot ones."
    )
    check(labels.ndim == 1, message)
    message = (
        f"{what} are {labels.dtype}: give whole numbers from 0, as "
        "names, labels = numpy.unique(labels, return_inverse=True) makes them, and classes=names."
    )
    check(labels.dtype.kind in "iu", message)
    check(len(labels) == number, f"{what} are {len(labels):,}, but there are {number:,} images.")
    lowest = labels.min(initial=0)
    check(lowest == 0, f"{what} hold {lowest}: classes are numbered from 0.")
    return labels.astype(np.int64)


def classes_of(
    name: str, labels: np.ndarray, test_labels: np.ndarray, classes: Sequence[str]
) -> tuple[str, ...]:
    """The names of the classes, by default "0", "1", ...; a `DataError` if labels do not fit."""
    _check_is_list(name, "classes", classes)
    names = tuple(str(one) for one in classes)
    present = np.unique(labels).tolist()
    last = len(names) - 1
    if names and present[-1] > last:
        raise DataError(
            f"{name}: labels reach {present[-1]}, but {len(names)} classes are named, 0 to {last}."
        )
    unknown = sorted(set(np.unique(test_labels).tolist()) - set(present))
    if unknown:
        raise DataError(
            f"{name}: class {unknown[0]} is tested and never trained: give images of it to train "
            "on, or take it out of the test images; test_labels must be numbered as labels are."
        )
    if not names and present != list(range(len(present))):
        examples = ", ".join(map(str, present[:3]))
        raise DataError(
            f"{name}: labels are {examples}{', ...' * (len(present) > 3)} and not 0, 1, 2, ...: "
            "number them with names, labels = numpy.unique(labels, return_inverse=True), or name all "
            "classes with classes=..."
        )
    check(len(present) > 1, f"{name} must hold images of two classes or more to train on.")
    return names or tuple(str(label) for label in present)


def _check_is_list(what: str, argument: str, names: Any) -> None:
    """Refuse one text for several, what has no order, and one name for two."""
    is_list = isinstance(names, list | tuple | np.ndarray)
    check(is_list, f"{what}: {argument} must be a list of names, not {shorten(names)}.")
    is_unique = len({str(one) for one in names}) == len(names)
    check(is_unique, f"{what}: two of the names in {argument} are the same.")


def groups_of(what: str, value: Any, number: int, names: Sequence[str]) -> np.ndarray:
    """The domain of each image, int64 [N]; zeros for a set without domains."""
    groups = as_array(value)
    _check_is_list(what, "group_names", names)
    if not len(names):
        check(not groups.size, f"{what} need group_names, which name them.")
        return np.zeros(number, np.int64)
    if groups.shape != (number,) or groups.dtype.kind not in "iu":
        raise DataError(
            f"{what} must have a whole number for each image, a position in group_names, [N]."
        )
    if set(groups.tolist()) != set(range(len(names))):
        raise DataError(
            f"{what} must be positions in group_names, from 0 to {len(names) - 1}, and there must be "
            "images of each group in both splits."
        )
    return groups.astype(np.int64)


# --- what has to be known about them


def remarks_on(train: Split, test: Split, classes: Sequence[str]) -> list[str]:
    """What has to be known about images of one's own, and of the classes."""
    remarks = duplicates(train.images, test.images)
    labels_of_image: dict[bytes, set[int]] = {}
    for split in (train, test):
        for image, label in zip(split.images, split.labels.tolist(), strict=True):
            labels_of_image.setdefault(image.tobytes(), set()).add(label)
    several = sum(len(of_one) > 1 for of_one in labels_of_image.values())
    if several:
        remarks.append(f"images in more than one class: {several:,}")
    brightest = int(train.images.max())
    if brightest < _DARK:
        remarks.append(f"nearly black: the brightest pixel is {brightest} of 255")
    tested = {classes[label] for label in test.labels.tolist()}
    return remarks + never_tested(classes, tested)


def never_tested(classes: Sequence[str], tested: Collection[str]) -> list[str]:
    """A remark on classes that have no test images, if there are any."""
    never = [name for name in classes if name not in tested]
    return [f"never tested: {listed(never)}"] if never else []


def duplicates(images: np.ndarray, test_images: np.ndarray) -> list[str]:
    """A remark on test images that are training images as well, if there are any."""
    seen = {image.tobytes() for image in images}
    shared = sum(image.tobytes() in seen for image in test_images)
    return [f"{shared:,} test images are training images as well"] if shared else []


def listed(names: Sequence[str], most: int = 5) -> str:
    """The names with commas, and how many more there are."""
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more])
