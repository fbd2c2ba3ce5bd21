"""Arrays that are registered as data sets, known by their name in this process."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from fednb.data.compare import as_dataset
from fednb.data.dataset import Augmentation, Dataset, RawDataset, raw_dataset
from fednb.data.decode import labelled_images
from fednb.data.spec import NAMES, DatasetSpec
from fednb.errors import DataError

REGISTERED: dict[str, tuple[DatasetSpec, RawDataset]] = {}


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
    `DataError` says what does not fit.
    """
    if not re.fullmatch(r"[\w.+-]+", name) or name in NAMES:
        raise DataError(
            f"{name!r} cannot be the name: take letters, digits, dots and dashes, "
            "and no published set's name."
        )
    x, y = np.asarray(images), np.asarray(labels)
    x_test, y_test = np.asarray(test_images), np.asarray(test_labels)
    classes = tuple(classes) or tuple(str(label) for label in range(1 + int(y.max(initial=0))))
    channels = _channels_of(x)
    if channels not in (1, 3) or len(classes) < 2:
        raise DataError(f"{name} must hold images with 1 or 3 channels, of two classes or more.")
    side = x.shape[2]
    spec = DatasetSpec(
        name,
        title=name,
        shape=(channels, side, side),
        sizes=(len(y), len(y_test)),
        classes=classes,
        num_classes=len(classes),
        domains=dict.fromkeys(group_names),
        augmentation=augmentation,
        is_own=True,
    )
    groups = _checked_groups(name, train_groups, len(y), len(group_names))
    groups_of_test = _checked_groups(name, test_groups, len(y_test), len(group_names))
    given_as = f"{name}: what is given as"
    train = labelled_images(spec, f"{given_as} images", x, y, groups)
    test = labelled_images(spec, f"{given_as} test_images", x_test, y_test, groups_of_test)
    raw = raw_dataset(train, test, classes)
    known = REGISTERED.get(name)
    if known is not None and known[1].fingerprint != raw.fingerprint:
        raise DataError(f"{name} was registered with other images already: take another name.")
    REGISTERED[name] = (spec, raw)
    return as_dataset(spec, raw, "registered")


def _channels_of(images: np.ndarray) -> int:
    """1 or 3; another number where images are neither [N, H, W], [N, H, W, C] nor [N, C, H, W]."""
    if images.ndim == 3:
        return 1
    if images.ndim != 4:
        return 0
    return images.shape[-1] if images.shape[-1] in (1, 3) else images.shape[1]


def _checked_groups(name: str, groups: Any, size: int, num_groups: int) -> np.ndarray | None:
    """The domain of each image, int64 [N]; None for a set without domains."""
    if not num_groups:
        return None
    groups = np.asarray(groups, np.int64)
    if len(groups) != size or set(groups.tolist()) != set(range(num_groups)):
        raise DataError(
            f"{name} must have a group for each image, a position in group_names, "
            "and images of each group in both splits."
        )
    return groups
