"""Data sets as uint8 images and int64 labels in memory: `load` reads one, `register` adds one.

A published set is one file ``NAME.npz``, which ``fednb data NAME`` writes. A name such as
``folder:PATH`` is left to the `Reader` that is installed for what stands before the colon.
"""

import functools
import os
import re
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import yaml
from pydantic import TypeAdapter

from fednb import ROOT, arrays, home
from fednb.dataset import Augmentation, Dataset, DatasetSpec, fingerprint, from_splits, read
from fednb.errors import DataError, check, require_known, shorten
from fednb.images import as_rgb, patch, to_bytes

__all__ = ["EMBEDDED", "NAMES", "Augmentation", "DataError", "Dataset", "DatasetSpec", "Reader"]
__all__ += ["as_rgb", "fingerprint", "load", "patch", "recorded_name", "register", "spec_of"]
__all__ += ["to_bytes", "whole_name"]

EMBEDDED = ("digits", "digits5_mini")  # come with what is installed
READERS = "fednb.datasets"  # the group of entry points under which packages name readers
_SHIPPED = ROOT / "data"  # what comes with the project


def _specs() -> dict[str, DatasetSpec]:
    text = Path(__file__).with_name("datasets.yaml").read_text(encoding="utf-8")
    entries = yaml.safe_load(text)
    for name, entry in entries.items():
        entry["name"] = name
        entry.setdefault("num_classes", len(entry.get("classes", ())))
    return TypeAdapter(dict[str, DatasetSpec]).validate_python(entries)


SPECS = _specs()
NAMES = tuple(SPECS)
REGISTERED: dict[str, Dataset] = {}


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


def spec_of(name: str) -> DatasetSpec:
    """What is known about a set; a `DataError` if there is none of this name."""
    reader = _reader_of(name)
    if reader is not None:
        return reader.spec_of(name)
    _check_known(name)
    return _spec_of_registered(REGISTERED[name]) if name in REGISTERED else SPECS[name]


def whole_name(name: str) -> str:
    """A set's name as it is understood in any folder: a PATH in it is absolute."""
    reader = _reader_of(name)
    return name if reader is None else reader.whole_name(name)


def recorded_name(name: str) -> str:
    """How records call a set: with a fingerprint of the images where the name does not say which."""
    reader = _reader_of(name)
    return name if reader is None else reader.recorded_name(name)


class Reader(Protocol):
    """What reads the sets whose names begin with a word and a colon, such as ``folder:PATH``.

    A package names it, a module or an object, as an entry point of the group ``fednb.datasets``,
    by that word. These are the functions above, which say what each is to return.
    """

    def load(self, name: str, /) -> Dataset: ...
    def spec_of(self, name: str, /) -> DatasetSpec: ...
    def whole_name(self, name: str, /) -> str: ...
    def recorded_name(self, name: str, /) -> str: ...


def _reader_of(name: object) -> Reader | None:
    """The reader for a set's name; None if the name has no colon."""
    word, colon, _ = str(name).partition(":")
    if not colon:
        return None
    reader = _installed(word)
    if reader is not None:
        return reader
    known = sorted(f"{found.name}:" for found in entry_points(group=READERS))
    check(
        known, f"{name}: fednb must be installed (`pip install -e .` in its folder, or its wheel)."
    )
    message = f"{name}: nothing that is installed reads sets that begin with"
    require_known(message, f"{word}:", known, DataError)
    return None


@functools.cache  # to look through all that is installed takes as long as to read a small set
def _installed(word: str) -> Reader | None:
    return next((found.load() for found in entry_points(group=READERS, name=word)), None)


def _check_known(name: str) -> None:
    known = [*SPECS, *REGISTERED]
    is_path = name not in known and isinstance(name, str) and os.path.exists(name)
    check(not is_path, f"{name} lies here: if it holds your images, write folder:{name}.")
    require_known("There is no data set", name, [*known, "folder:PATH"], DataError)


# --- files


def places() -> list[Path]:
    """Where ``NAME.npz`` may lie: first the folder of the data sets, last the cache."""
    given = os.environ.get("FEDNB_DATA") or home() / "data"
    cache = os.environ.get("FEDNB_CACHE") or home() / "data" / "cache"
    found = [Path(os.path.abspath(os.path.expanduser(path))) for path in (given, cache)]
    return list(dict.fromkeys([found[0], _SHIPPED, found[1]]))


def file_of(name: str) -> Path | None:
    """The file of a published set; None if it is not there, or holds something else."""
    for folder in places():
        path = folder / f"{name}.npz"
        if path.is_file() and is_converted(path):
            return path
    return None


def is_converted(path: Path) -> bool:
    """Whether a file is none of arrays that somebody has brought, to be converted."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return "x_train" not in file.files
    except Exception:
        return True  # damaged, which is said when it is read


def _read_published(name: str) -> Dataset:
    """What the file of a published set holds; a `DataError` says how to get one."""
    spec = SPECS[name]
    path = file_of(name)
    if path is None:
        raise DataError(
            f"{spec.title} was not found in {places()[0]}: `fednb data {spec.name}` fetches it, "
            "makes it of the files that lie there, or says what to do (FEDNB_DATA names "
            "another folder)."
        )
    found = read(spec, path)
    if found is None or found.images.shape[1:] != spec.shape:
        raise DataError(
            f"{spec.title}: {path} is damaged: delete it and run `fednb data {spec.name}`."
        )
    return found


# --- arrays


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
    if not isinstance(name, str) or not re.fullmatch(r"[\w.+-]{1,80}", name) or name in NAMES:
        raise DataError(
            f"{shorten(name)} cannot be the name: take letters, digits, dots and dashes, "
            "and no published set's name."
        )
    check(isinstance(augmentation, Augmentation), f"{name}: augmentation is no data.Augmentation.")
    given = {"images": images, "labels": labels, "train_groups": train_groups}
    train = arrays.split_of(name, given, group_names)
    given = {"test_images": test_images, "test_labels": test_labels, "test_groups": test_groups}
    test = arrays.split_of(name, given, group_names)
    shapes = [list(split.images.shape[1:]) for split in (train, test)]
    check(
        shapes[0] == shapes[1],
        f"{name}: images are {shapes[0]} and test_images {shapes[1]} (channels, height, width); "
        "they must be alike.",
    )
    names = arrays.classes_of(name, train.labels, test.labels, classes)
    spec = DatasetSpec(name, domains=dict.fromkeys(group_names), augmentation=augmentation)
    remarks = arrays.remarks_on(train, test, names)
    found = from_splits(spec, train, test, names, "registered", remarks=remarks)
    known = REGISTERED.get(name)
    check(
        known is None or known.fingerprint == found.fingerprint,
        f"{name} was registered with other images already: take another name.",
    )
    REGISTERED[name] = found
    return found


def _spec_of_registered(found: Dataset) -> DatasetSpec:
    _, channels, height, width = found.images.shape
    return DatasetSpec(
        found.name,
        title=found.name,
        shape=(channels, height, width),
        sizes=(len(found.labels), len(found.test_labels)),
        classes=found.classes,
        num_classes=found.num_classes,
        domains=dict.fromkeys(found.group_names),
        augmentation=found.augmentation,
    )
