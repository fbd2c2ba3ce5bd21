"""Folders and zip files of one's own images as data sets, ``folder:PATH``, read by a plug-in.

It is an entry point of the distribution, in pyproject.toml. ``@64`` after the path asks for images
of 64x64 pixels, ``#1a2b3c4d`` for those with this fingerprint. Nothing is given another meaning in
silence: what is no class, domain or split is refused, and what is left out is named.
"""

import difflib
import functools
import hashlib
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fednb.data import Augmentation, Dataset, DatasetInfo, places, read
from fednb.errors import DataError, check, guess_beside
from fednb_lab.arrays import Split, from_splits, listed, remarks_on, write
from fednb_lab.images import File, FoundFile, about, decoded, reading, reason, walk

PREFIX = "folder:"  # how the names of these sets begin
LAYOUTS = (
    "images must lie in CLASS/FILE, in DOMAIN/CLASS/FILE (domains have no splits), or in "
    "SPLIT/CLASS/FILE with the splits train, and test or val or both"
)
_NAME = re.compile(rf"{PREFIX}(.*?)((?:@[0-9]{{1,4}})?)((?:#[0-9a-f]{{8}})?)", re.S)
_CACHE_VERSION = 9  # raised when what a cache holds changes
# words of folders' names that mean a split
_SPLIT_WORDS = {
    "train": ("train", "training"),
    "test": ("test", "testing"),
    "val": ("val", "valid", "validation", "dev"),
}
_SPLITS = (["test", "train"], ["train", "val"], ["test", "train", "val"])  # which there may be


class ImageFile(NamedTuple):
    """An image that is not decoded yet."""

    domain: int  # 0 where there are none
    label: str  # the name of its class
    file: File
    split: str  # "train", "test" or "val"; "" before it is divided


@dataclass(frozen=True)
class Layout:
    """What a tree of images means."""

    classes: tuple[str, ...]
    domains: tuple[str, ...]  # none where there are splits or classes only
    train: list[ImageFile]
    test: list[ImageFile]
    divided: bool  # by us, as there are no splits
    left_out: tuple[str, ...]  # in words

    def __str__(self) -> str:
        total = len(self.train) + len(self.test)
        how = "every fifth of a class" if self.divided else "as its folders say"
        domains = f" in {len(self.domains)} domains ({listed(self.domains)})" * bool(self.domains)
        return (
            f"{total:,} images of {len(self.classes)} classes ({listed(self.classes)}){domains}: "
            f"{len(self.train):,} trained on, {len(self.test):,} tested on ({how}); "
            f"left out: {', '.join(self.left_out) or 'nothing'}"
        )


# --- what a reader of data sets answers


def load(name: str) -> Dataset:
    """Load the set, and print in a line how the folder was understood."""
    whole = resolve_name(name)
    _look_into.cache_clear()  # files may have changed since settings were resolved
    spec, layout, _ = _look_into(whole)
    found = _images_of(whole)
    say("; ".join(filter(None, [f"{spec.name} ({_parts(whole)[0]}): {layout}", found.remark])))
    return found


def info_of(name: str) -> DatasetInfo:
    """Return what is found out by the names of the files."""
    return _look_into(resolve_name(name))[0]


def resolve_name(name: str) -> str:
    """Make the path absolute: as seen from where one works, or else from the folder of the sets.

    A `DataError` if it is in neither.
    """
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


def canonical_name(name: str) -> str:
    """Name a set by its path's end and its fingerprint, so that the folder may be moved."""
    return _recorded(resolve_name(name))


@functools.cache
def say(text: str) -> None:
    """Print a line once in a process."""
    print(f"fednb: {' '.join(text.split())}", file=sys.stderr, flush=True)


@functools.cache
def _recorded(whole: str) -> str:
    found = _images_of(whole)
    return f"{found.name}#{found.fingerprint[:8]}"


def _images_of(whole: str) -> Dataset:
    """Its images; others than those whose fingerprint stands in the name are refused."""
    spec, layout, cache = _look_into(whole)
    dataset = read(spec, cache) or _read_images(spec, layout, cache)
    asked = _parts(whole)[2][1:]
    found = dataset.fingerprint[: len(asked)]
    check(
        asked == found,
        f"{whole}: the images that are there have the fingerprint {found}: put back those that are "
        f"meant, or leave out #{asked}.",
    )
    return dataset


def _parts(name: str) -> tuple[str, ...]:
    """The path, the size with its @, and the first digits of the fingerprint with their #."""
    match = _NAME.fullmatch(name)
    assert match is not None, "anything may be a PATH"
    return match.groups()


@functools.lru_cache(maxsize=16)  # settings are asked for many times, and large ones take long
def _look_into(name: str) -> tuple[DatasetInfo, Layout, Path]:
    """What is found out about a folder by the names of its files, and its cache file."""
    given, size, _ = _parts(name)
    path = Path(given)
    side = int(size[1:] or 32)
    with about(name):
        check(8 <= side <= 1024, "what follows the @ must be the side in pixels, from 8 to 1024.")
        layout = understand(walk(path))
        spec = DatasetInfo(
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


def _cache_file(spec: DatasetInfo, layout: Layout, path: Path) -> Path:
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


# --- what a tree means


def understand(found: Sequence[FoundFile]) -> Layout:
    """Tell by their folders what the images in a walk mean; a `DataError` says what is wrong."""
    images = [file for file in found if file.is_image]
    check(images, f"there are no images (.png, .jpg, .webp, .tif and others): {LAYOUTS}.")
    around = _folders_around(images)
    level = _level_of(images)
    check(level - around in (2, 3), f"images lie in {images[0].place}: {LAYOUTS}.")
    others = [file.place for file in found if not file.is_image]
    left_out = []
    if others:
        left_out.append(f"{_counted(len(others), 'other file')} ({listed(others, 3)})")
    tops = sorted({image.parts[around] for image in images})
    labels = sorted({image.parts[-2] for image in images})
    splits = _splits_of(tops, labels)
    domains = [] if splits or level - around == 2 else tops
    listing = []
    for image in images:
        top, label = image.parts[around], image.parts[-2]
        domain = domains.index(top) if domains else 0
        listing.append(ImageFile(domain, label, image.file, splits.get(top, "")))
    if not splits:
        listing = _every_fifth(listing)
    train = [image for image in listing if image.split == "train"]
    test = [image for image in listing if image.split == "test"]
    val = [image for image in listing if image.split == "val"]
    if not test:
        test = val
    elif val:
        left_out.insert(0, f"val ({_counted(len(val), 'image')})")
    classes = sorted({image.label for image in (*train, *test)})
    _check_images(classes, train, test)
    return Layout(tuple(classes), tuple(domains), train, test, not splits, tuple(left_out))


def _folders_around(images: Sequence[FoundFile]) -> int:
    """How many folders lie around everything, above CLASS/FILE or SPLIT/CLASS/FILE."""
    depth = 0
    while len({image.parts[depth] for image in images if len(image.parts) > depth + 2}) == 1:
        depth += 1
    return depth


def _level_of(images: Sequence[FoundFile]) -> int:
    """The number of folders and file names on the way to an image, which is the same for all."""
    examples = {len(image.parts): image.place for image in reversed(images)}
    places = [examples[level] for level in sorted(examples)]
    check(len(places) == 1, f"images lie at several depths, in {' and '.join(places)}: {LAYOUTS}.")
    return len(images[0].parts)


def _splits_of(tops: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
    """The splits that the top folders are; none where no folder is called like one."""
    names = tops if any(map(_split_of, tops)) else labels
    splits = {name: _split_of(name) for name in names}
    if not any(splits.values()):
        return {}
    words = [f"{name} ({split or 'no split'})" for name, split in splits.items()]
    check(
        names != labels and sorted(splits.values()) in _SPLITS,
        f"the folders mean {listed(words)} by their names: {LAYOUTS}. Rename, join or take out what "
        "is too much, or give the path of one of them.",
    )
    return splits


def _split_of(folder: str) -> str:
    """The split that a word of a folder's name means; "" if none does."""
    words = re.findall("[a-z]+", folder.lower())
    return next((name for name, of in _SPLIT_WORDS.items() if set(of).intersection(words)), "")


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _every_fifth(images: Sequence[ImageFile]) -> list[ImageFile]:
    """Make every fifth image of a class of a domain a test image."""
    divided = []
    for _, group in groupby(images, lambda image: (image.domain, image.label)):
        for number, image in enumerate(group):
            divided.append(image._replace(split="test" if number % 5 == 4 else "train"))
    return divided


def _check_images(
    classes: Sequence[str], train: Sequence[ImageFile], test: Sequence[ImageFile]
) -> None:
    """Refuse what cannot be learned, or not be tested."""
    check(len(classes) > 1, f"there are images of one class only, {classes[0]}; there must be two.")
    check(
        {image.domain for image in test} >= {image.domain for image in train},
        "there are no test images, or none of a domain: every fifth image of a class is one, so there "
        "must be a class of five images or more.",
    )
    trained = {image.label for image in train}
    unknown = sorted({image.label for image in test} - trained)
    if unknown:
        near = difflib.get_close_matches(unknown[0], sorted(trained), 1)
        fix = f"did you mean {near[0]}?" if near else "add training images of it, or take them out."
        raise DataError(f"class {listed(unknown)} is tested and never trained: {fix}")


# --- its images in memory


def as_splits(
    title: str,
    train: Sequence[ImageFile],
    test: Sequence[ImageFile],
    classes: Sequence[str],
    shape: tuple[int, int, int],
    own: bool = True,
) -> tuple[Split, Split, dict[tuple[int, int], File]]:
    """Decode both splits; with the sizes that their images had, as `decoded` tells them."""
    images = [*train, *test]
    pixels, sizes = decoded(title, [image.file for image in images], shape, own)
    labels = np.array([classes.index(image.label) for image in images], np.int64)
    domains = np.array([image.domain for image in images], np.int64)
    n = len(train)
    first = Split(pixels[:n], labels[:n], domains[:n])
    return first, Split(pixels[n:], labels[n:], domains[n:]), sizes


def _read_images(spec: DatasetInfo, layout: Layout, cache: Path) -> Dataset:
    """Decode the images, which are grey if all of them are, and keep them for the next time."""
    with about(spec.title):
        train, test, sizes = as_splits(
            spec.title, layout.train, layout.test, layout.classes, spec.shape
        )
    if all((split.images == split.images[:, :1]).all() for split in (train, test)):
        train, test = (split._replace(images=split.images[:, :1].copy()) for split in (train, test))
    notes = []
    if len(sizes) > 1:
        notes.append(f"images of several sizes, all resized to {spec.shape[1]}x{spec.shape[2]}")
    if layout.divided:
        notes.append("every fifth image of a class (by name) is a test image")
    remarks = remarks_on(train, test, layout.classes, layout.domains)
    found = from_splits(spec, train, test, layout.classes, "own images", notes, remarks)
    try:
        write(cache, found)
    except OSError as error:  # the next time it takes as long again
        say(f"no cache written in {cache.parent} ({reason(error)})")
    return found
