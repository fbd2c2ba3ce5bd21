"""Data sets as uint8 images and int64 labels in memory: `load` reads one, `register` adds one.

A published set is one file ``NAME.npz``, which ``fednb data NAME`` writes. A folder or zip file of
images is a set as it lies there, ``folder:PATH``.
"""

import functools
import hashlib
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fednb import ROOT, arrays, folders, home
from fednb.dataset import (
    Augmentation,
    Dataset,
    DatasetSpec,
    Split,
    Stored,
    as_dataset,
    fingerprint,
    read,
    stored,
    write,
)
from fednb.errors import DataError, require_known
from fednb.images import (
    as_rgb,
    contradictions,
    decoded,
    duplicates,
    patch,
    reading,
    reason,
    to_bytes,
)

__all__ = ["EMBEDDED", "NAMES", "Augmentation", "DataError", "Dataset", "DatasetSpec", "as_rgb"]
__all__ += ["fingerprint", "load", "patch", "recorded_name", "register", "spec_of", "to_bytes"]
__all__ += ["whole_name"]

EMBEDDED = ("digits", "digits5_mini")  # come with what is installed
OWN_FOLDER = "folder:"  # how the name of a folder's set begins
_ADDRESS = re.compile(
    r"folder:(?P<path>.*?)(?P<size>(?:@[0-9]{1,4})?)(?P<hash>(?:#[0-9a-f]{8})?)", re.S
)
_SHIPPED = ROOT / "data"  # what comes with the project
_CACHE_VERSION = 6  # raised when what a cache holds changes
_DARK = 64  # what is nowhere brighter holds, say, twelve bits in the scale of sixteen


# --- the sets by their names


def _spec_from_yaml(name: str, entry: dict[str, Any]) -> DatasetSpec:
    values: dict[str, Any] = {}
    for key, value in entry.items():
        values[key] = tuple(value) if isinstance(value, list) else value
    values["augmentation"] = Augmentation(**entry.get("augmentation", {}))
    domains = entry.get("domains", {})
    values["domains"] = {one: tuple(sizes) if sizes else None for one, sizes in domains.items()}
    known = [sizes for sizes in domains.values() if sizes]
    if known:
        values["sizes"] = tuple(sum(split) for split in zip(*known, strict=True))
    values.setdefault("num_classes", len(entry.get("classes", ())))
    return DatasetSpec(name, **values)


_ENTRIES = yaml.safe_load(Path(__file__).with_name("datasets.yaml").read_text(encoding="utf-8"))
SPECS = {name: _spec_from_yaml(name, entry) for name, entry in _ENTRIES.items()}
NAMES = tuple(SPECS)
REGISTERED: dict[str, tuple[DatasetSpec, Stored]] = {}


def load(name: str) -> Dataset:
    """Load one of `NAMES`, a registered set or ``folder:PATH``.

    A `DataError` says how to get what is not there, or what is wrong with a file.
    """
    if is_own_folder(name):
        spec, found = _load_folder(name)
    elif name in REGISTERED:
        spec, found = REGISTERED[name]
    else:
        spec = spec_of(name)
        found = _digits() if name == "digits" else read_published(name)
    return as_dataset(spec, found)


def spec_of(name: str) -> DatasetSpec:
    """What is known about a set, or was found in one's own folder; a `DataError` if unknown."""
    if is_own_folder(name):
        return _seen_folder(whole_name(name))[0]
    known = [*SPECS, *REGISTERED, f"{OWN_FOLDER}PATH"]
    require_known("There is no data set", name, known, DataError)
    return REGISTERED[name][0] if name in REGISTERED else SPECS[name]


def whole_name(name: str) -> str:
    """A set's name as any folder understands it: the PATH of one's own images is absolute."""
    if not is_own_folder(name):
        return name
    match = _address(name)
    path = os.path.expanduser(match["path"])
    here = Path(os.path.abspath(path))
    in_data = places()[0] / path
    chosen = here if here.exists() or not in_data.exists() else in_data
    if not path or not chosen.exists():
        raise DataError(
            f"{name}: there is no {path or 'PATH'} where you are ({Path.cwd()}), nor in "
            f"{places()[0]}; give its whole path."
        )
    return f"{OWN_FOLDER}{chosen}{match['size']}{match['hash']}"


def recorded_name(name: str) -> str:
    """How records call a set; one's own folder by the end of its path and by its fingerprint."""
    return _recorded_folder(whole_name(name)) if is_own_folder(name) else name


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
        if path.is_file() and is_stored(path):
            return path
    return None


def is_stored(path: Path) -> bool:
    """Whether a file is one that `write` has written, by the names of its arrays."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return "x_train" not in file.files
    except Exception:
        return True  # damaged, which is said when it is read


def read_published(name: str) -> Stored:
    """What the file of a published set holds; a `DataError` says how to get one."""
    spec = SPECS[name]
    path = file_of(name)
    if path is None:
        raise DataError(
            f"{spec.title} was not found in {places()[0]}: `fednb data {spec.name}` fetches it, "
            "makes it of the files that lie there, or says what to do (FEDNB_DATA names "
            "another folder)."
        )
    values = read(path, [one.name for one in fields(Stored)])
    if values is None or values["images"].shape[1:] != spec.shape:
        raise DataError(
            f"{spec.title}: {path} is damaged: delete it and run `fednb data {spec.name}`."
        )
    return Stored(**values)


# --- one's own folder


def is_own_folder(name: object) -> bool:
    """Whether a data set's name is that of a folder."""
    return str(name).startswith(OWN_FOLDER)


def _address(name: str) -> re.Match[str]:
    match = _ADDRESS.fullmatch(name)
    assert match is not None, "anything may be a PATH"
    return match


def _look_into(name: str) -> tuple[DatasetSpec, folders.Layout, Path]:
    """What is found out about a folder by the names of its files, and its cache file."""
    match = _address(name)
    path = Path(match["path"])
    side = int(match["size"][1:] or 32)
    if not 8 <= side <= 1024:
        raise DataError(
            f"{name}: what follows the @ must be the side of the images in pixels, from 8 to 1024."
        )
    short = f"{OWN_FOLDER}{path.name}{match['size']}"
    layout = folders.understand(name, path)
    spec = DatasetSpec(
        short,
        title=name,
        shape=(3, side, side),
        sizes=(len(layout.train), len(layout.test)),
        classes=layout.classes,
        num_classes=len(layout.classes),
        domains=dict.fromkeys(layout.domains),
        augmentation=Augmentation(pad=side // 8),
    )
    return spec, layout, _cache_file(spec, layout, path)


def _cache_file(spec: DatasetSpec, layout: folders.Layout, path: Path) -> Path:
    """Its name changes with the path, size or time of any file."""
    images = [*layout.train, *layout.test]
    files = [path] if path.is_file() else [Path(str(image.file)) for image in images]
    state = f"{_CACHE_VERSION} {list(spec.shape)}"
    for file in files:
        with reading(file):
            stat = file.stat()
        state += f" {file} {stat.st_size} {stat.st_mtime_ns}"
    key = hashlib.blake2b(state.encode(errors="surrogateescape"), digest_size=8).hexdigest()
    title = re.sub(r"[^a-z0-9]+", "_", spec.name.lower())[-40:]
    return places()[-1] / f"{title}-{key}.npz"


def _load_folder(name: str) -> tuple[DatasetSpec, Stored]:
    whole = whole_name(name)
    spec, layout, cache = _look_into(whole)
    _say(f"{spec.name} ({_address(whole)['path']}): {layout}")
    values = read(cache, [one.name for one in fields(Stored)])
    found = Stored(**values) if values else _read_folder(spec, layout, cache)
    _check_fingerprint(whole, found.fingerprint)
    return spec, found


@functools.cache
def _say(text: str) -> None:
    """Print a line once in a process."""
    print(f"fednb: {text}", file=sys.stderr, flush=True)


def _read_folder(spec: DatasetSpec, layout: folders.Layout, cache: Path) -> Stored:
    """Decode the images, which are grey if all of them are, and keep them for the next time."""
    images = [*layout.train, *layout.test]
    n = len(layout.train)
    pixels, sizes = decoded(spec.title, [image.file for image in images], spec.shape)
    if (pixels == pixels[:, :1]).all():
        pixels = pixels[:, :1].copy()
    labels = np.array([layout.classes.index(image.label) for image in images], np.int64)
    domains = np.array([image.domain for image in images], np.int64)
    notes = []
    if len(sizes) > 1:
        notes.append(f"images of several sizes, all resized to {spec.shape[1]}x{spec.shape[2]}")
    if layout.divided:
        notes.append("every fifth image of a class (by name) is a test image")
    remarks = _remarks(pixels[:n], pixels[n:], labels)
    if layout.never_tested:
        remarks.append(f"trained on and never tested: {folders.listed(layout.never_tested)}")
    found = stored(
        Split(pixels[:n], labels[:n], domains[:n]),
        Split(pixels[n:], labels[n:], domains[n:]),
        layout.classes,
        "own images",
        notes,
        remarks,
    )
    try:
        write(cache, found)
    except OSError as error:  # the next time it takes as long again
        _say(f"no cache written in {cache.parent} ({reason(error)})")
    return found


# What a process has found out of folders of one's own, by their whole names: their settings are
# asked for many times, and large ones take long to list.


@functools.lru_cache(maxsize=16)
def _seen_folder(name: str) -> tuple[DatasetSpec, folders.Layout, Path]:
    return _look_into(name)


@functools.cache
def _recorded_folder(name: str) -> str:
    spec, layout, cache = _seen_folder(name)
    known = read(cache, ["fingerprint"])
    digits = known["fingerprint"] if known else _read_folder(spec, layout, cache).fingerprint
    _check_fingerprint(name, digits)
    return f"{spec.name}#{digits[:8]}"


def _check_fingerprint(name: str, digits: str) -> None:
    """Refuse other images than those whose fingerprint stands in the name."""
    asked = _address(name)["hash"][1:]
    found = digits[: len(asked)]
    if asked != found:
        raise DataError(
            f"{name}: the images that are there have the fingerprint {found}: put back those that "
            f"are meant, or leave out #{asked}."
        )


def _remarks(images: np.ndarray, test_images: np.ndarray, labels: np.ndarray) -> list[str]:
    """What has to be known about images of one's own; the labels are of both, in this order."""
    remarks = duplicates(images, test_images)
    remarks += contradictions(np.concatenate([images, test_images]), labels)
    brightest = int(images.max())
    if brightest < _DARK:
        remarks.append(f"nearly black: the brightest pixel is {brightest} of 255")
    return remarks


# --- arrays, and what is made of them


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
    if not re.fullmatch(r"[\w.+-]+", name) or name in NAMES:
        raise DataError(
            f"{name!r} cannot be the name: take letters, digits, dots and dashes, "
            "and no published set's name."
        )
    x = arrays.images_of(f"{name}: images", images)
    x_test = arrays.images_of(f"{name}: test_images", test_images)
    if x.shape[1:] != x_test.shape[1:]:
        shapes = [list(one.shape[1:]) for one in (x, x_test)]
        raise DataError(
            f"{name}: images are {shapes[0]} and test_images {shapes[1]} (channels, height, width); "
            "they must be alike."
        )
    y = arrays.labels_of(f"{name}: labels", labels, len(x))
    y_test = arrays.labels_of(f"{name}: test_labels", test_labels, len(x_test))
    names = arrays.classes_of(name, y, y_test, classes)
    group_of = [
        arrays.groups_of(f"{name}: {what}", groups, number, group_names)
        for what, groups, number in (
            ("train_groups", train_groups, len(y)),
            ("test_groups", test_groups, len(y_test)),
        )
    ]
    remarks = _remarks(x, x_test, np.concatenate([y, y_test]))
    absent = [one for label, one in enumerate(names) if label not in set(y_test.tolist())]
    if absent:
        remarks.append(f"never tested: {folders.listed(absent)}")
    found = stored(
        Split(x, y, group_of[0]),
        Split(x_test, y_test, group_of[1]),
        names,
        "registered",
        remarks=remarks,
    )
    known = REGISTERED.get(name)
    if known is not None and known[1].fingerprint != found.fingerprint:
        raise DataError(f"{name} was registered with other images already: take another name.")
    spec = DatasetSpec(
        name,
        title=name,
        shape=x.shape[1:],
        sizes=(len(y), len(y_test)),
        classes=names,
        num_classes=len(names),
        domains=dict.fromkeys(group_names),
        augmentation=augmentation,
    )
    REGISTERED[name] = (spec, found)
    return as_dataset(spec, found)


def _digits() -> Stored:
    """scikit-learn's 8x8 digits (0..16, here 0..255), four fifths of each class for training."""
    from sklearn.datasets import load_digits  # slow to import

    bunch = load_digits()
    images = np.rint(bunch.images * 255 / 16).astype(np.uint8)[:, None]
    labels = bunch.target.astype(np.int64)
    rng = np.random.RandomState(0)  # its stream never changes, that of default_rng may
    is_test = np.zeros(len(labels), bool)
    for k in range(10):
        members = rng.permutation(np.flatnonzero(labels == k))
        is_test[members[: round(len(members) / 5)]] = True
    none = np.zeros_like(labels)
    train = Split(images[~is_test], labels[~is_test], none[~is_test])
    test = Split(images[is_test], labels[is_test], none[is_test])
    return stored(train, test, SPECS["digits"].classes, "embedded")
