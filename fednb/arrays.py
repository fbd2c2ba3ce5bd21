"""Arrays that somebody hands over as images, labels and domains: brought into one form, or refused with the reason."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fednb.errors import DataError

CHANNELS = (1, 3)  # grey, or red, green and blue
_SHAPES = "[N, H, W], [N, H, W, C] or [N, C, H, W]"


def as_array(value: Any) -> np.ndarray:
    """An array or tensor, on whatever device, as an array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    try:
        return np.asarray(value)
    except ValueError:  # lists of different lengths
        return np.empty(len(value), dtype=object)


def images_of(what: str, value: Any) -> np.ndarray:
    """Images as uint8 [N, C, H, W], C 1 or 3; a `DataError` that begins with ``what``."""
    images = as_array(value)
    _check_bytes(what, images)
    if images.ndim == 2:
        raise DataError(f"{what} are rows of {images.shape[1]} numbers: reshape them to {_SHAPES}.")
    if images.ndim not in (3, 4):
        raise DataError(f"{what} have {images.ndim} axes, {_shape(images)}: give {_SHAPES}.")
    if len(images) == 0:
        raise DataError(f"{what} are none: there must be at least one.")
    if images.ndim == 3:
        images = images[:, None]
    elif images.shape[-1] in CHANNELS:
        images = images.transpose(0, 3, 1, 2)
    _, channels, height, width = images.shape
    if channels not in CHANNELS:
        found = min(as_array(value).shape[1], as_array(value).shape[-1])
        raise DataError(
            f"{what} have {found} channels, {_shape(as_array(value))}: keep 1 (grey) or 3 (RGB)."
        )
    if height != width:
        raise DataError(
            f"{what} are {height} pixels high and {width} wide: make them square (cut or pad them)."
        )
    return np.array(images, order="C")


def _shape(array: np.ndarray) -> str:
    return f"shape {list(array.shape)}"


def _check_bytes(what: str, images: np.ndarray) -> None:
    """Refuse what are no bytes, by what it is."""
    kind = images.dtype.kind
    if images.dtype == np.uint8:
        return
    if kind in "OUS":
        raise DataError(f"{what} are no array of numbers: they must all be of one size, as uint8.")
    if kind == "f" and images.size and not np.isfinite(images).all():
        raise DataError(f"{what} hold NaN or infinity: give bytes from 0 to 255 (uint8).")
    if kind == "f":
        raise DataError(
            f"{what} are floating-point numbers: give bytes, for values of 0 to 1 "
            "(255 * images).round().astype('uint8')."
        )
    if kind in "iu" and images.size and (images.min() < 0 or images.max() > 255):
        raise DataError(
            f"{what} go from {images.min()} to {images.max()}: bring them to bytes, 0 to 255."
        )
    raise DataError(f"{what} are {images.dtype}: make bytes of them with .astype('uint8').")


def labels_of(what: str, value: Any, number: int) -> np.ndarray:
    """Labels, int64 [N], one for each of so many images; a `DataError` that begins with ``what``."""
    labels = as_array(value)
    _check_integers(what, labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        raise DataError(f"{what} have {_shape(labels)}: give [N], that is labels[:, 0].")
    is_table = labels.ndim == 2 and labels.size > 0 and labels.min() >= 0
    if is_table and (labels.sum(1) == 1).all():
        raise DataError(f"{what} are one-hot, {_shape(labels)}: give labels.argmax(1).")
    if labels.ndim != 1:
        raise DataError(f"{what} have {_shape(labels)}: give one whole number for each image, [N].")
    if len(labels) != number:
        raise DataError(f"{what} are {len(labels):,}, but there are {number:,} images.")
    if labels.min(initial=0) < 0:
        raise DataError(f"{what} hold {labels.min()}: classes are numbered from 0.")
    return labels.astype(np.int64)


def _check_integers(what: str, values: np.ndarray) -> None:
    """Refuse what are no whole numbers, by what it is."""
    kind = values.dtype.kind
    if kind in "OUS":
        raise DataError(
            f"{what} are words or mixed values: give whole numbers and the names as classes=..., "
            "as names, labels = numpy.unique(words, return_inverse=True) makes them."
        )
    if kind == "f" and values.size and not np.isfinite(values).all():
        raise DataError(f"{what} hold NaN or infinity: every image needs a whole number from 0.")
    is_table = values.ndim == 2 and values.shape[1] > 1
    if kind == "f" and is_table and np.isclose(values.sum(1), 1).all():
        raise DataError(f"{what} are one-hot or probabilities: give labels.argmax(1).")
    if kind not in "iu":
        raise DataError(f"{what} are {values.dtype}: make whole numbers with .astype('int64').")


def classes_of(
    name: str, labels: np.ndarray, test_labels: np.ndarray, classes: Sequence[str]
) -> tuple[str, ...]:
    """The names of the classes, by default "0", "1", ...; a `DataError` if labels do not fit."""
    if isinstance(classes, str):
        raise DataError(f"{name}: classes must be a list of names, not the one text {classes!r}.")
    names = tuple(str(one) for one in classes)
    present = np.unique(labels).tolist()
    if len(set(names)) < len(names):
        raise DataError(f"{name}: two of the classes have one name.")
    if names and present[-1] >= len(names):
        raise DataError(
            f"{name}: labels reach {present[-1]}, but {len(names)} classes are named, 0 to "
            f"{len(names) - 1}."
        )
    if not names and present != list(range(len(present))):
        examples = ", ".join(map(str, present[:3]))
        raise DataError(
            f"{name}: labels are {examples}{', ...' * (len(present) > 3)} and not 0, 1, 2, ...: "
            "number them with names, labels = numpy.unique(labels, return_inverse=True), or name all "
            "classes with classes=..."
        )
    if len(names or present) < 2 or len(present) < 2:
        raise DataError(f"{name} must hold images of two classes or more to train on.")
    unknown = sorted(set(np.unique(test_labels).tolist()) - set(present))
    if unknown:
        raise DataError(
            f"{name}: class {unknown[0]} is tested and never trained: test_labels must be numbered "
            "as labels are."
        )
    return names or tuple(str(label) for label in present)


def groups_of(what: str, value: Any, number: int, names: Sequence[str]) -> np.ndarray:
    """The domain of each image, int64 [N]; zeros for a set without domains."""
    groups = as_array(value)
    if isinstance(names, str):
        raise DataError(f"{what}: group_names must be a list of names, not the one text {names!r}.")
    if not len(names):
        if groups.size:
            raise DataError(f"{what} need group_names, which name them.")
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
