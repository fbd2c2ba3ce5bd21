"""Readers of the layouts of data/README.md: official files, trees and zip files of images, files of arrays.

Files are not trusted: nothing in them is executed, none may name a file elsewhere, and what is larger than the set can be is
refused before it is unpacked. torchvision reads CIFAR and USPS; it knows no .gz and no SynthDigits, which has SVHN's format.
"""

from __future__ import annotations

import bz2
import gzip
import io
import math
import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from PIL import Image
from tqdm import tqdm

from fednb.data.catalog import NIST_TEST, NIST_TRAIN, Facts
from fednb.data.dataset import Content, DataError

_SPLITS = ("train", "test", "val")
_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
_FILE, _PIXELS, _ARRAY = 2**26, 2**26, 2**31  # at most: bytes of an image or text, pixels of an image, numbers in a .mat


class Broken(Exception):
    """A file is not as it should be: (which, what is wrong with it)."""


class Source(NamedTuple):
    """In which layout a set was found, all files that count, and how to read them."""

    kind: str
    files: list[Path]
    read: Callable[[], Content]


class Entry(NamedTuple):
    """One image file: `place` is its path, or its name in the zip file `archive`; `domain` is 0 where there are none."""

    domain: int
    label: str
    file: str
    place: str
    archive: Path | None
    split: str


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """A broken file can raise nearly anything, and all of it means the same."""
    try:
        yield
    except (Broken, DataError):
        raise
    except Exception as error:
        raise Broken(path, f"cannot be read ({reason(error)})") from error


def reason(error: Exception) -> str:
    """What an exception says, in one line and without paths."""
    if isinstance(error, Image.UnidentifiedImageError):
        return "not an image"
    lines = (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).strip().splitlines()
    return lines[0].rstrip(".")[:200] if lines else type(error).__name__


def find(facts: Facts, root: Path) -> Source | None:
    """Search the layouts in order: official files, a tree of images, zip files of it, a file of arrays."""
    for folder in (root / place for place in facts.folders):
        if facts.name == "femnist" and (entries := _nist(facts, folder)):
            return Source("official files", [Path(entry.place) for entry in entries], partial(decode, facts, entries))
        files = [
            next((f for f in (folder / name, folder / f"{name}.gz") if f.is_file()), folder / name) for name in facts.files
        ]
        if any(place.exists() for place in (*files, *(folder / place for place in facts.pictures))):
            files += [file for place in facts.pictures for file in _pictures(folder / place)]
            return Source("official files", files, partial(_OFFICIAL[facts.name], facts, files))

    names = [_plain(name) for name in (facts.name, *facts.also)]
    folders = [child for child in children(root) if child.is_dir() and _plain(child.name) in names]
    lists = [f"{domain.lower()}_{split}.txt" for domain in facts.domains for split in ("train", "test")]
    lists = [folder / file for folder in folders if any((folder / file).is_file() for file in lists) for file in lists]
    for folder in folders:
        files = list(_pictures(folder))
        if entries := _entries(facts, [(file.parts[len(folder.parts) :], str(file), None) for file in files], lists):
            return Source("image tree", files + lists, partial(decode, facts, entries, lists))
    # a letter or digit after the name makes another set: cifar100.zip is not cifar10
    mine = re.compile(rf"({'|'.join((facts.name, *facts.also))})([^a-z0-9].*)?", re.IGNORECASE)
    files = [file for file in children(root) if mine.fullmatch(file.stem) or _plain(file.stem) in names]
    files += [file for folder in folders for file in children(folder)]
    if zips := [file for file in files if file.suffix.lower() == ".zip"]:
        return Source("zip files", zips + lists, lambda: decode(facts, _entries(facts, _members(zips), lists), lists))
    for file in files:
        if file.suffix == ".npz" and _plain(file.stem) in names and not facts.domains:
            return Source("file of arrays", [file], partial(_npz, facts, file))
    return None


def _plain(name: str) -> str:
    """A name without what its spellings differ in."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def children(folder: Path) -> list[Path]:
    """What a folder holds, without hidden files, sorted by name; nothing if it is no folder."""
    return [folder / name for name in sorted(os.listdir(folder)) if name[0] != "."] if folder.is_dir() else []


def _pictures(folder: Path, depth: int = 3) -> Iterator[Path]:
    """All images in a folder and, so many levels deep, in those below it."""
    for child in children(folder):
        if child.suffix.lower() in _SUFFIXES:
            yield child
        elif depth and child.is_dir():
            yield from _pictures(child, depth - 1)


def _members(archives: list[Path]) -> Iterator[tuple[tuple[str, ...], str, Path]]:
    """The files in zip files, as `_entries` takes them."""
    for archive in archives:
        with reading(archive), zipfile.ZipFile(archive) as opened:
            names = opened.namelist()
        yield from ((PurePosixPath(name).parts, name, archive) for name in names)


def _entries(facts: Facts, found: Iterable[tuple[tuple[str, ...], str, Path | None]], lists: list[Path]) -> list[Entry]:
    """The images of a set among files (parts of the path, place, zip file), sorted by domain, class and name.

    They lie in SPLIT/CLASS/FILE or DOMAIN/CLASS/FILE, below at most one folder. Domains are divided by the official lists or
    as RethinkFL divides Office-10: it numbers the images of a domain, and tests on those whose number ends in 8 or 9.
    """
    # Office-Caltech-10 is also spelled with caltech10, and laptop
    domains = {plain: i for i, name in enumerate(map(_plain, facts.domains)) for plain in (name, f"{name}10")}
    classes = {_plain(name): name for name in facts.classes} | {"laptop": "laptop_computer"}
    entries: dict[tuple, Entry] = {}
    for parts, place, archive in found:
        if len(parts) not in (3, 4) or any(part[0] == "." or part == "__MACOSX" for part in parts):
            continue
        first, label, file = parts[-3:]
        if facts.domains:
            domain, split, label = domains.get(_plain(first), -1), "", classes.get(_plain(label), label)
            unused = domain < 0 or (facts.name == "domainnet" and label not in facts.classes)  # ten of its 345 classes
        else:
            domain, split, unused = 0, first, first not in _SPLITS
        if not unused and file.lower().endswith(_SUFFIXES):
            entry = Entry(domain, label, file, place, archive, split)
            if entries.setdefault((domain, split, label, file), entry) is not entry:
                raise Broken(archive or place, f"holds {place}, which was already seen")
    listed = {line.split()[0]: file.stem.rpartition("_")[2] for file in lists for line in _lines(file) if line.strip()}
    numbers, divided = Counter[int](), []
    for entry in sorted(entries.values()):
        number, numbers[entry.domain] = numbers[entry.domain], numbers[entry.domain] + 1
        split = entry.split or ("test" if number % 10 in (8, 9) else "train")
        split = listed.get("/".join(Path(entry.place).parts[-3:])) if listed else split
        divided += [entry._replace(split=split)] if split else []
    for name in [name for i, name in enumerate(facts.domains) if entries and not numbers[i]]:
        raise DataError(f"{facts.title} lacks the domain {name}: {facts.by_hand}.")
    return divided


def _nist(facts: Facts, folder: Path) -> list[Entry]:
    """XX/train_XX/*.png and XX/hsf_0/*.png, XX the code of a character; the first of each by name, as many as are read."""
    entries = []
    for label in facts.classes:
        code = f"{ord(label):02x}"
        for split, inner, number in (("train", f"train_{code}", NIST_TRAIN), ("test", "hsf_0", NIST_TEST)):
            files = list(_pictures(folder / code / inner, depth=0))[:number]
            entries += [Entry(0, label, file.name, str(file), None, split) for file in files]
    return entries


def _listed(facts: Facts, files: list[Path]) -> Content:
    """Images whose class stands in a list of lines FILE CLASS: MNIST-M, and the validation images of Tiny-ImageNet."""
    entries = [Entry(0, p.parts[-3], p.name, str(p), None, "train") for p in files if p.match("train/*/images/*")]
    folders = {"val_annotations.txt": "images", "mnist_m_train_labels.txt": "mnist_m_train"}
    for file in files[: len(facts.files)]:
        split, folder = "train" if "train" in file.name else facts.test_split, folders.get(file.name, "mnist_m_test")
        for line in _lines(file):
            name, label = [*line.split(), "", ""][:2]
            if not label or Path(name).name != name:
                raise Broken(file, "has a line that is not a file name and a class")
            entries.append(Entry(0, label, name, str(file.with_name(folder) / name), None, split))
    return decode(facts, entries)


def decode(facts: Facts, entries: list[Entry], lists: Sequence[Path] = ()) -> Content:
    """Decode image files, in the order given, into arrays of the set's published shape."""
    splits = {entry.split for entry in entries}
    test_split = facts.test_split if {"test", "val"} <= splits else next(iter(splits - {"train"}), "test")
    train, test = ([entry for entry in entries if entry.split == split] for split in ("train", test_split))
    for split, part in (("training", train), ("test", test)):
        if not part:
            raise DataError(f"{facts.title} has no {split} images; see data/README.md for the layout.")
    found, found_test = ({entry.label for entry in part} for part in (train, test))
    for label in () if facts.domains else sorted(found ^ found_test):
        raise DataError(f"{facts.title}: class {label} is only in one split; it must be in both or in none.")
    for label in sorted((found | found_test) - set(facts.classes or found)):
        raise DataError(f"{facts.title} has no class {label}; its classes are {', '.join(facts.classes)}.")
    classes = facts.classes if facts.domains else tuple(sorted(found))

    chosen, n, shorter = train + test, len(train), set()
    images = np.empty((len(chosen), *facts.shape), np.uint8)
    with ExitStack() as stack:
        zips = {a: stack.enter_context(zipfile.ZipFile(a)) for a in {entry.archive for entry in chosen} if a}
        bar = tqdm(chosen, f"decoding {facts.title}", unit=" images", delay=1, leave=False, disable=None)
        for i, entry in enumerate(bar):
            path = f"{entry.archive} ({entry.place})" if entry.archive else entry.place
            with reading(path):
                content = _member(zips[entry.archive], entry.place) if entry.archive else _unpacked(Path(path))
                images[i], side = _pixels(facts, path, content)
            shorter.add(side)
    notes, remarks = [], []
    if facts.name == "domainnet" and not lists:
        notes.append("without the official lists: every ninth and tenth image of a domain is a test image")
    if facts.domains and shorter not in ({facts.shorter_side}, {facts.shape[1]}) and len(shorter) == 1:
        notes.append(f"images reduced to {shorter.pop()} pixels on the shorter side")
    published = facts.domains or facts.name == "tiny_imagenet"  # as JPEG
    if not published and any(entry.file.lower().endswith((".jpg", ".jpeg")) for entry in chosen):
        notes.append("re-encoded as JPEG")
    if facts.domains or facts.name == "femnist":  # these were not divided with care
        seen = {image.tobytes() for image in images[:n]}
        if shared := sum(image.tobytes() in seen for image in images[n:]):
            remarks.append(f"{shared:,} test images are training images as well")
    labels = np.array([classes.index(entry.label) for entry in chosen])
    content = Content(images[:n], labels[:n], images[n:], labels[n:], classes, notes=tuple(notes), remarks=tuple(remarks))
    groups = np.array([entry.domain for entry in chosen])
    return content._replace(train_groups=groups[:n], test_groups=groups[n:]) if facts.domains else content


def _pixels(facts: Facts, path: str, content: bytes) -> tuple[np.ndarray, int]:
    """Decode one image to uint8 [C, H, W], and tell how long its shorter side was."""
    channels, height, width = facts.shape
    with Image.open(io.BytesIO(content), formats=("PNG", "JPEG", "WEBP")) as image:
        size = image.size
        if size != (width, height) and not facts.resized:
            raise Broken(path, f"is {size[0]}x{size[1]} pixels instead of {width}x{height}")
        if math.prod(size) > _PIXELS:
            raise ValueError(f"{size[0]}x{size[1]} pixels are too many")
        pixels = image.convert("RGB" if channels == 3 else "L")
        if size != (width, height):  # as torchvision's Resize
            pixels = pixels.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(pixels).reshape(height, width, channels).transpose(2, 0, 1), min(size)


def _member(archive: zipfile.ZipFile, name: str, limit: int = _FILE) -> bytes:
    """Read a file in a zip file, of at most so many bytes; no more is unpacked than it declares."""
    info = archive.getinfo(name)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # zipfile unpacks others in one go
        raise ValueError("neither stored nor deflated")
    if info.file_size > limit:
        raise ValueError(f"{info.file_size:,} bytes are too many")
    with archive.open(info) as opened:
        return opened.read(info.file_size)


def _unpacked(file: Path, limit: int = _FILE) -> bytes:
    """Read a file that may be packed, of at most so many bytes; no more than that is unpacked."""
    if file.exists() and not file.is_file():
        raise ValueError("not a file")
    with {".gz": gzip.open, ".bz2": bz2.open}.get(file.suffix, open)(file, "rb") as opened:
        content = opened.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"more than {limit:,} bytes are too many")
    return content


def _lines(file: Path) -> list[str]:
    with reading(file):
        return _unpacked(file).decode(errors="replace").splitlines()


def _checked(facts: Facts, file: Path, images: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    """Bring images to [N, C, H, W] and labels to 0, 1, ..., or say what is wrong with them."""
    first, last = facts.first_label, facts.first_label + facts.num_classes - 1
    if labels.ndim != 1 or images.dtype != np.uint8:
        raise Broken(file, "does not hold images with labels")
    if not len(labels):
        raise Broken(file, "holds no images")
    if images.shape[-2:] != facts.shape[-2:] or images.size != len(labels) * math.prod(facts.shape):
        raise Broken(file, f"does not hold one image of {facts.shape[1]}x{facts.shape[2]} pixels per label")
    if not np.isin(labels, np.arange(first, last + 1)).all():
        raise Broken(file, f"has labels outside of {first}..{last}")
    return [np.array(images.reshape(-1, *facts.shape), order="C"), labels.astype(np.int64) - first]


def _idx(facts: Facts, files: list[Path]) -> Content:
    """MNIST's format: 0, 0, 8 (for uint8), number of axes, axis lengths (big-endian), values."""
    arrays = []
    for file in files:
        with reading(file):
            data = _unpacked(file, max(facts.sizes) * math.prod(facts.shape) + 4096)
            if data[:3] != b"\0\0\x08":
                raise ValueError("not an idx file")
            shape = np.frombuffer(data, ">u4", count=data[3], offset=4)
            arrays.append(np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape))
    if facts.transposed:
        arrays[::2] = [images.swapaxes(1, -1) for images in arrays[::2]]
    return Content(*_checked(facts, files[0], *arrays[:2]), *_checked(facts, files[2], *arrays[2:]), facts.classes)


def _cifar(facts: Facts, files: list[Path]) -> Content:
    """The batches are pickles, which can run any code: torchvision reads them if they are the published ones."""
    from torchvision import datasets  # slow to import
    from torchvision.datasets.utils import check_integrity

    kind = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[facts.name]
    published = dict([*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])])
    for file in files:
        if not check_integrity(file, published.get(file.name, "")):
            raise Broken(file, "is not the published file (its MD5 is another)")
    parts = []
    for train in (True, False):
        opened = kind(files[0].parents[1], train=train)
        parts += _checked(facts, files[0], opened.data.transpose(0, 3, 1, 2), np.array(opened.targets))
    return Content(*parts, tuple(opened.classes))


def _usps(facts: Facts, files: list[Path]) -> Content:
    """Text, values of -1 to 1 as 0 to 255."""
    from torchvision.datasets import USPS  # slow to import

    parts = []
    for file, train in zip(files, (True, False), strict=True):
        with reading(file):
            _unpacked(file)  # torchvision does not look how much it is
            opened = USPS(str(file.parent), train=train)
            parts += _checked(facts, file, opened.data, np.array(opened.targets))
    return Content(*parts, facts.classes)


def _mat(facts: Facts, files: list[Path]) -> Content:
    """Train and test .mat files: X uint8 [32, 32, 3, N], y [N, 1]; SVHN's digit 0 has label 10."""
    from scipy.io import loadmat, whosmat  # slow to import

    parts, notes = [], []
    for file, size, what in zip(files, facts.sizes, ("training", "test"), strict=True):
        with reading(file):
            if max(math.prod(shape) for _, shape, _ in whosmat(file)) > _ARRAY:
                raise ValueError("its arrays are too large")
            opened = loadmat(file, variable_names=("X", "y"))
            images, labels = opened["X"].transpose(3, 2, 0, 1), opened["y"].reshape(-1).astype(np.int64) % 10
            if facts.name == "synthdigits" and len(labels) > size:  # of which FPL's set is no part, but of that size
                notes.append(f"the first {size:,} of {len(labels):,} {what} images of Ganin and Lempitsky's SYN NUMBERS")
                images, labels = images[:size], labels[:size]
            parts += _checked(facts, file, images, labels)
    return Content(*parts, facts.classes, notes=tuple(notes))


def _npz(facts: Facts, file: Path) -> Content:
    """One .npz file: x_train and x_test, uint8 [N, H, W] or [N, H, W, C]; y_train and y_test, [N]; upright images."""
    parts, limit = [], max(facts.sizes) * max(math.prod(facts.shape), 8) + 4096
    with reading(file), zipfile.ZipFile(file) as opened:
        for split in ("train", "test"):
            members = (io.BytesIO(_member(opened, f"{name}_{split}.npy", limit)) for name in "xy")
            images, labels = (np.lib.format.read_array(member, allow_pickle=False) for member in members)
            parts += _checked(facts, file, images.transpose(0, 3, 1, 2) if images.ndim == 4 else images, labels)
        cut_out = "src_train.npy" in opened.namelist()
    notes = ("digits cut out of photographs of the full-number set, not the official crops",) if cut_out else ()
    return Content(*parts, facts.classes or tuple(map(str, range(facts.num_classes))), notes=notes)


_OFFICIAL = {"mnist": _idx, "emnist_letters": _idx, "cifar10": _cifar, "cifar100": _cifar, "tiny_imagenet": _listed}
_OFFICIAL |= {"usps": _usps, "svhn": _mat, "synthdigits": _mat, "mnistm": _listed}
