"""Folders and zip files of one's own images as data sets, ``folder:PATH``, read by a plug-in.

It is an entry point of the distribution, in pyproject.toml. ``@64`` after the path asks for images
of 64x64 pixels, ``#1a2b3c4d`` for those with this fingerprint.
"""

import functools
import hashlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fednb.data import Augmentation, Dataset, DatasetSpec, places, read
from fednb.errors import DataError, check, guess_beside
from fednb_lab import arrays, trees
from fednb_lab.arrays import from_splits, measured, write
from fednb_lab.images import Broken, reading, reason
from fednb_lab.trees import Layout

PREFIX = "folder:"  # how the names of these sets begin
_NAME = re.compile(rf"{PREFIX}(.*?)((?:@[0-9]{{1,4}})?)((?:#[0-9a-f]{{8}})?)", re.S)
_CACHE_VERSION = 7  # raised when what a cache holds changes


def load(name: str) -> Dataset:
    """The set; a line tells how the folder was understood."""
    whole = whole_name(name)
    spec, layout, cache = _look_into(whole)
    say(f"{spec.name} ({_parts(whole)[0]}): {layout}")
    cached = read(spec, cache)
    found = measured(cached) if cached else _read_images(spec, layout, cache)
    _check_fingerprint(whole, found.fingerprint)
    return found


def spec_of(name: str) -> DatasetSpec:
    """What is found out by the names of the files."""
    return _seen(whole_name(name))[0]


def whole_name(name: str) -> str:
    """With an absolute path: as seen from where one works, or else from the folder of the sets."""
    given, size, digits = _parts(name)
    path = os.path.expanduser(given)
    here = Path(os.path.abspath(path))
    in_data = places()[0] / path
    chosen = here if here.exists() or not in_data.exists() else in_data
    if not path or not chosen.exists():
        raise DataError(
            f"{name}: there is no {path or 'PATH'} where you are ({Path.cwd()}), nor in "
            f"{places()[0]}{guess_beside(Path(path))}; give its whole path."
        )
    return f"{PREFIX}{chosen}{size}{digits}"


def recorded_name(name: str) -> str:
    """By the end of the path and by the fingerprint, so that a folder may be moved."""
    return _recorded(whole_name(name))


@functools.cache
def say(text: str) -> None:
    """Print a line once in a process."""
    print(f"fednb: {' '.join(text.split())}", file=sys.stderr, flush=True)


def _parts(name: str) -> tuple[str, ...]:
    """The path, the size with its @, and the first digits of the fingerprint with their #."""
    match = _NAME.fullmatch(name)
    assert match is not None, "anything may be a PATH"
    return match.groups()


def _look_into(name: str) -> tuple[DatasetSpec, Layout, Path]:
    """What is found out about a folder by the names of its files, and its cache file."""
    given, size, _ = _parts(name)
    path = Path(given)
    side = int(size[1:] or 32)
    check(
        8 <= side <= 1024,
        f"{name}: what follows the @ must be the side of the images in pixels, from 8 to 1024.",
    )
    with _named(name):
        layout = trees.understand(name, trees.walk(path))
        spec = DatasetSpec(
            f"{PREFIX}{path.name}{size}",
            title=name,
            shape=(3, side, side),
            sizes=(len(layout.train), len(layout.test)),
            classes=layout.classes,
            num_classes=len(layout.classes),
            domains=dict.fromkeys(layout.domains),
            augmentation=Augmentation(pad=side // 8),
        )
        return spec, layout, _cache_file(spec, layout, path)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Say of which set a file is that cannot be read."""
    try:
        yield
    except Broken as error:
        raise DataError(f"{name}: {error}.") from error


def _cache_file(spec: DatasetSpec, layout: Layout, path: Path) -> Path:
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


def _read_images(spec: DatasetSpec, layout: Layout, cache: Path) -> Dataset:
    """Decode the images, which are grey if all of them are, and keep them for the next time."""
    with _named(spec.title):
        (train, test), sizes = trees.as_splits(
            spec.title, layout.train, layout.test, layout.classes, spec.shape
        )
    if all((split.images == split.images[:, :1]).all() for split in (train, test)):
        train, test = (split._replace(images=split.images[:, :1].copy()) for split in (train, test))
    notes = []
    if len(sizes) > 1:
        notes.append(f"images of several sizes, all resized to {spec.shape[1]}x{spec.shape[2]}")
    if layout.divided:
        notes.append("every fifth image of a class (by name) is a test image")
    remarks = arrays.remarks_on(train, test, layout.classes)
    found = from_splits(spec, train, test, layout.classes, "own images", notes, remarks)
    try:
        write(cache, found)
    except OSError as error:  # the next time it takes as long again
        say(f"no cache written in {cache.parent} ({reason(error)})")
    return found


# What a process has found out of folders of one's own, by their whole names: their settings are
# asked for many times, and large ones take long to list.


@functools.lru_cache(maxsize=16)
def _seen(name: str) -> tuple[DatasetSpec, Layout, Path]:
    return _look_into(name)


@functools.cache
def _recorded(name: str) -> str:
    spec, layout, cache = _seen(name)
    try:
        with np.load(cache, allow_pickle=False) as file:  # without the images
            digits = str(file["fingerprint"])
    except Exception:  # there is none, or it is damaged
        digits = _read_images(spec, layout, cache).fingerprint
    _check_fingerprint(name, digits)
    return f"{spec.name}#{digits[:8]}"


def _check_fingerprint(name: str, digits: str) -> None:
    """Refuse other images than those whose fingerprint stands in the name."""
    asked = _parts(name)[2][1:]
    found = digits[: len(asked)]
    check(
        asked == found,
        f"{name}: the images that are there have the fingerprint {found}: put back those that are "
        f"meant, or leave out #{asked}.",
    )
