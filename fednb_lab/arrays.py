"""Arrays that somebody hands over are made a data set, or refused with the reason; and a set its file.

`register` makes a set of one's own arrays, which has its name in this process; `from_splits` is for
what reads files.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from fednb import data
from fednb.data import Augmentation, Dataset, DatasetInfo
from fednb.errors import DataError, check, shorten
from fednb_lab.images import about, reason

CHANNELS = (1, 3)  # grey, or red, green and blue
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
    augmentation: Augmentation = Augmentation(),  # noqa: B008 (it is frozen)
) -> Dataset:
    """Make arrays or tensors a data set, known by its name in this process.

    Images are square, uint8 [N, H, W], [N, H, W, C] or [N, C, H, W] with 1 or 3 channels; labels
    are integers from 0, [N]. A `DataError` says what does not fit, and what to do about it.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[\w.+-]{1,80}", name) or name in data.NAMES:
        raise DataError(
            f"{shorten(name)} cannot be the name: take letters, digits, dots and dashes, "
            "and no published set's name."
        )
    with about(name):
        train = _split("", images, labels)
        test = _split("test_", test_images, test_labels)
        shape = train.images.shape[1:]
        check(
            shape == test.images.shape[1:],
            f"images are {list(shape)} and test_images {list(test.images.shape[1:])} (channels, "
            "height, width); they must be alike.",
        )
        names = _class_names(train.labels, test.labels, classes)
        spec = DatasetInfo(
            name,
            title=name,
            shape=tuple(shape),
            sizes=(len(train.labels), len(test.labels)),
            classes=names,
            num_classes=len(names),
            augmentation=augmentation,
        )
        found = from_splits(
            spec, train, test, names, "registered", remarks=remarks_on(train, test, names)
        )
        known = data.REGISTERED.get(name, found)
        check(
            known.fingerprint == found.fingerprint,
            "it was registered with other images already: take another name.",
        )
    data.DATASETS[name] = spec
    data.REGISTERED[name] = found
    return found


def from_splits(
    spec: DatasetInfo,
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
    return data.of_fields(spec, dict(zip(data.FIELDS, values, strict=True)))


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


def write(path: Path, dataset: Dataset, compressed: bool = False) -> None:
    """Write a set as a file; nobody sees half of it, and an `OSError` leaves none."""
    values = vars(dataset) | {"notes": [dataset.note], "remarks": [dataset.remark]}
    if dataset.train_groups is None:
        values["train_groups"] = np.zeros_like(dataset.labels)
        values["test_groups"] = np.zeros_like(dataset.test_labels)
    arrays = {name: np.asarray(values[name]) for name in data.FIELDS}
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        half = Path(folder) / path.name
        save: Any = np.savez_compressed if compressed else np.savez
        save(half, **arrays)
        os.replace(half, path)


# --- what they may be


def _split(prefix: str, images: Any, labels: Any) -> Split:
    x = images_of(f"{prefix}images", images)
    y = labels_of(f"{prefix}labels", labels, len(x))
    return Split(x, y, np.zeros_like(y))


def _as_array(what: str, value: Any) -> np.ndarray:
    """An array or tensor, on whatever device, as an array."""
    check(not np.ma.is_masked(value), f"{what} are masked: leave out what is.")
    try:
        return np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    except Exception as error:  # such as lists of different lengths
        raise DataError(f"{what} cannot be read as an array ({reason(error)}).") from error


def images_of(what: str, value: Any) -> np.ndarray:
    """Return images, uint8 [N, 1 or 3, H, W]; else a `DataError` that begins with ``what``."""
    given = _as_array(what, value)
    if given.dtype != np.uint8:
        raise DataError(
            f"{what} are {given.dtype}: give bytes from 0 to 255; of values from 0 to M they are "
            "(255 / M * images).round().astype('uint8')."
        )
    images = given[:, None] if given.ndim == 3 else given
    if given.ndim == 4 and given.shape[-1] in CHANNELS:
        images = given.transpose(0, 3, 1, 2)
    _, channels, height, width = images.shape if images.ndim == 4 else (0, 0, 0, 0)
    check(
        images.size and channels in CHANNELS and height == width,
        f"{what} have shape {list(given.shape)}: give at least one, square, as [N, H, W], "
        "[N, H, W, C] or [N, C, H, W], where C is 1 (grey) or 3 (RGB).",
    )
    return np.array(images, order="C")


def labels_of(what: str, value: Any, number: int) -> np.ndarray:
    """Return labels, int64 [N], one per image; else a `DataError` that begins with ``what``."""
    labels = _as_array(what, value)
    check(
        labels.shape == (number,) and labels.dtype.kind in "iu",
        f"{what} are {labels.dtype} of shape {list(labels.shape)}: give one whole number for each of "
        f"the {number:,} images, [{number}]; of one-hot ones argmax(1), of a column [:, 0], of names "
        "what numpy.unique(names, return_inverse=True) numbers.",
    )
    return labels.astype(np.int64)


def _class_names(
    labels: np.ndarray, test_labels: np.ndarray, classes: Sequence[str]
) -> tuple[str, ...]:
    """The names of the classes, by default "0", "1", ...; a `DataError` if labels do not fit."""
    is_list = isinstance(classes, list | tuple | np.ndarray)
    check(
        is_list and len(set(map(str, classes))) == len(classes),
        f"classes must be a list of names, all different, not {shorten(classes)}.",
    )
    present = np.unique(labels).tolist()
    unknown = sorted(set(test_labels.tolist()) - set(present))
    check(
        not unknown,
        f"class {listed(unknown)} is tested and never trained: give images of it to train on, or take "
        "it out of the test images; test_labels must be numbered as labels are.",
    )
    check(len(present) > 1, "there must be images of two classes or more to train on.")
    names = tuple(map(str, classes)) or tuple(map(str, range(len(present))))
    is_numbered = present[0] >= 0 and present[-1] < len(names)
    check(
        is_numbered,
        f"labels are {listed(present)}, but there are {len(names)} classes, which are numbered from 0 "
        f"to {len(names) - 1}: number them with names, labels = numpy.unique(labels, "
        "return_inverse=True), or name all classes with classes=...",
    )
    return names


# --- what has to be known about them


def remarks_on(
    train: Split, test: Split, classes: Sequence[str], domains: Sequence[str] = ()
) -> list[str]:
    """List what has to be known about images of one's own, and of the classes."""
    remarks = duplicates(train.images, test.images)
    brightest = int(train.images.max())
    if brightest < _DARK:
        remarks.append(f"nearly black: the brightest pixel is {brightest} of 255")
    untested = np.setdiff1d(np.arange(len(classes)), test.labels)
    if untested.size:
        remarks.append(f"never tested: {listed([classes[label] for label in untested])}")
    for number, domain in enumerate(domains):
        own = train.labels[train.groups == number]
        missing = np.setdiff1d(np.arange(len(classes)), own)
        if missing.size:
            remarks.append(f"not in {domain}: {listed([classes[label] for label in missing])}")
    return remarks


def duplicates(images: np.ndarray, test_images: np.ndarray) -> list[str]:
    """Remark on test images that are training images as well, if there are any."""
    seen = {image.tobytes() for image in images}
    shared = sum(image.tobytes() in seen for image in test_images)
    return [f"{shared:,} test images are training images as well"] if shared else []


def listed(names: Sequence[Any], most: int = 5) -> str:
    """Join names with commas, and say how many more there are."""
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return ", ".join([*map(str, names[:most]), *more])
