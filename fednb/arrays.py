"""Arrays that somebody hands over as images, labels and domains: brought into one form, or refused with the reason."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fednb.dataset import Split
from fednb.errors import DataError, check, shorten

CHANNELS = (1, 3)  # grey, or red, green and blue
_SHAPES = "[N, H, W], [N, H, W, C] or [N, C, H, W]"
_DARK = 64  # what is nowhere brighter holds, say, twelve bits in the scale of sixteen
_NO_BYTES = {  # by the kind of the numbers
    "b": "are true and false: give 255 * images.astype('uint8').",
    "f": "are floating-point numbers: give bytes, for values of 0 to 1 "
    "(255 * images).round().astype('uint8').",
}


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
    kind = given.dtype.kind
    shape = f"shape {list(given.shape)}"
    check(
        kind in "biuf", f"{what} are no array of numbers: they must all be of one size, as uint8."
    )
    is_finite = kind != "f" or np.isfinite(given).all()
    check(is_finite, f"{what} hold NaN or infinity: give bytes from 0 to 255 (uint8).")
    check(kind not in _NO_BYTES, f"{what} {_NO_BYTES.get(kind)}")
    check(
        given.ndim != 2,
        f"{what} are rows of {given.shape[-1] if given.ndim else 0} numbers: reshape them to {_SHAPES}.",
    )
    check(given.ndim in (3, 4), f"{what} have {given.ndim} axes, {shape}: give {_SHAPES}.")
    check(given.size, f"{what} are none: there must be at least one.")
    if given.dtype != np.uint8:
        low, high = given.min(), given.max()
        fix = "make bytes of them with .astype('uint8')"
        if low < 0 or high > 255:
            fix = "bring them to bytes, 0 to 255"
        raise DataError(f"{what} are {given.dtype} from {low} to {high}: {fix}.")
    images = given[:, None] if given.ndim == 3 else given
    if given.ndim == 4 and given.shape[-1] in CHANNELS:
        images = given.transpose(0, 3, 1, 2)
    _, channels, height, width = images.shape
    if channels not in CHANNELS:
        found = min(given.shape[1], given.shape[-1])
        raise DataError(f"{what} have {found} channels, {shape}: keep 1 (grey) or 3 (RGB).")
    check(
        height == width,
        f"{what} are {height} pixels high and {width} wide: make them square (cut or pad them).",
    )
    return np.array(images, order="C")


def labels_of(what: str, value: Any, number: int) -> np.ndarray:
    """Labels, int64 [N], one for each of so many images; a `DataError` that begins with ``what``."""
    labels = as_array(value)
    kind = labels.dtype.kind
    shape = f"shape {list(labels.shape)}"
    if kind not in "biuf":
        raise DataError(
            f"{what} are words or mixed values: give whole numbers and the names as classes=..., "
            "as names, labels = numpy.unique(words, return_inverse=True) makes them."
        )
    if kind == "f" and not np.isfinite(labels).all():
        raise DataError(f"{what} hold NaN or infinity: every image needs a whole number from 0.")
    is_table = labels.ndim == 2 and labels.shape[1] > 1
    if is_table and labels.size and labels.min() >= 0 and np.allclose(labels.sum(1), 1):
        raise DataError(f"{what} are one-hot or probabilities, {shape}: give labels.argmax(1).")
    check(kind in "iu", f"{what} are {labels.dtype}: make whole numbers with .astype('int64').")
    is_column = labels.ndim == 2 and not is_table
    fix = "[N], that is labels[:, 0]" if is_column else "one whole number for each image, [N]"
    check(labels.ndim == 1, f"{what} have {shape}: give {fix}.")
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
    if not names and present != list(range(len(present))):
        examples = ", ".join(map(str, present[:3]))
        raise DataError(
            f"{name}: labels are {examples}{', ...' * (len(present) > 3)} and not 0, 1, 2, ...: "
            "number them with names, labels = numpy.unique(labels, return_inverse=True), or name all "
            "classes with classes=..."
        )
    check(len(present) > 1, f"{name} must hold images of two classes or more to train on.")
    unknown = sorted(set(np.unique(test_labels).tolist()) - set(present))
    if unknown:
        raise DataError(
            f"{name}: class {unknown[0]} is tested and never trained: test_labels must be numbered "
            "as labels are."
        )
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
    tested = set(test.labels.tolist())
    never = [one for label, one in enumerate(classes) if label not in tested]
    if never:
        remarks.append(f"never tested: {listed(never)}")
    return remarks


def duplicates(images: np.ndarray, test_images: np.ndarray) -> list[str]:
    """A remark on test images that are training images as well, if there are any."""
    seen = {image.tobytes() for image in images}
    shared = sum(image.tobytes() in seen for image in test_images)
    return [f"{shared:,} test images are training images as well"] if shared else []


def listed(names: Sequence[str], most: int = 5) -> str:
    """The names with commas, and how many more there are."""
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more])
