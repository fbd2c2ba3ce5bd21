"""Readers of the layouts of data/README.md: official files, trees and zip files of images, files of arrays.

Files are not trusted: nothing in them is executed, none may name a file elsewhere, and what is larger than the set can be is
refused before it is unpacked. torchvision reads CIFAR, SVHN and USPS; of MNIST and EMNIST it knows no .gz.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from PIL import Image
from tqdm import tqdm

from fednb.data.catalog import OWN_FOLDER, Facts
from fednb.data.dataset import Augmentation, Content, DataError

_SPLITS = ("train", "test", "val")
_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
_FILE, _PIXELS = 2**26, 2**26  # at most: bytes of an image or text, pixels of an image
NIST_TRAIN, NIST_TEST = 20 * 110, 20 * 15  # files per class that FedProto's code reads
Found = tuple[tuple[str, ...], str, Path | None]  # parts of a path, the path or its name in a zip file, the zip file


class Broken(Exception):
    """A file is not as it should be: (which, what is wrong with it)."""


class Source(NamedTuple):
    """In which layout a set was found, all files that count, and how to read them."""

    kind: str
    files: list[Path]
    read: Callable[[], Content]


class Entry(NamedTuple):
    """One image of a set; `domain` is 0 where there are none."""

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


# --- where a set is ---------------------------------------------------------------------------------------------------


def find(facts: Facts, root: Path) -> Source | None:
    """Search the layouts in order: official files, a tree of images, zip files of it, a file of arrays."""
    if facts.own:
        return own_folder(facts.name, root)[1]
    for folder in (root / place for place in facts.folders):
        if facts.name == "femnist" and (entries := _nist(facts, folder)):
            return _images("official files", facts, entries)
        files = [next((f for f in (folder / n, folder / f"{n}.gz") if f.is_file()), folder / n) for n in facts.files]
        if any(file.exists() for file in files):
            listed = _OFFICIAL[facts.name] is _listed
            files += [Path(place) for _, place, _ in _listing(folder)] if listed else []
            return Source("official files", files, partial(_OFFICIAL[facts.name], facts, files))
    names = (facts.name, *facts.also)
    folders = [child for child in _children(root) if child.is_dir() and child.name.lower() in names]
    lists = [f"{domain.lower()}_{split}.txt" for domain in facts.domains for split in ("train", "test")]
    lists = [folder / file for folder in folders if any((folder / file).is_file() for file in lists) for file in lists]
    for folder in folders:
        if entries := _entries(facts, _listing(folder), lists):
            return _images("image tree", facts, entries, lists)
    # a letter or digit after the name makes another set: cifar100.zip is not cifar10
    mine = re.compile(rf"({'|'.join(names)})([^a-z0-9].*)?", re.IGNORECASE)
    files = [file for file in _children(root) if mine.fullmatch(file.stem)]
    files += [file for folder in folders for file in _children(folder)]
    if zips := [file for file in files if file.suffix.lower() == ".zip"]:

        def read() -> Content:
            found = [image for file in zips for image in _listing(file)]
            return decode(facts, _entries(facts, found, lists), lists)

        return Source("zip files", zips + lists, read)
    arrays = [file for file in files if file.suffix == ".npz" and file.stem.lower() in names and not facts.domains]
    return Source("file of arrays", arrays[:1], partial(_npz, facts, arrays)) if arrays else None


def _images(kind: str, facts: Facts, entries: list[Entry], lists: Sequence[Path] = ()) -> Source:
    files = dict.fromkeys(entry.archive or Path(entry.place) for entry in entries)
    return Source(kind, [*files, *lists], partial(decode, facts, entries, lists))


def _children(folder: Path) -> list[Path]:
    """What a folder holds, without hidden files, sorted by name; nothing if it is no folder."""
    return [folder / name for name in sorted(os.listdir(folder)) if name[0] != "."] if folder.is_dir() else []


def _listing(place: Path) -> list[Found]:
    """All images in a zip file, or in a folder up to four levels deep, without what systems hide there."""
    found: list[Found]
    if place.is_file():
        with reading(place), zipfile.ZipFile(place) as archive:
            found = [(PurePosixPath(name).parts, name, place) for name in archive.namelist()]
    else:
        files = [file for depth in range(1, 5) for file in place.glob("/".join("*" * depth))]
        found = [(file.relative_to(place).parts, str(file), None) for file in files]
    hidden = re.compile(r"\..*|__MACOSX")
    images = [image for image in found if image[1].lower().endswith(_SUFFIXES)]
    return sorted(image for image in images if not any(hidden.fullmatch(part) for part in image[0]))


def _entries(facts: Facts, found: list[Found], lists: Sequence[Path] = ()) -> list[Entry]:
    """The images of a set among files, sorted by domain, class and name, and divided where they are not.

    They lie in SPLIT/CLASS/FILE or DOMAIN/CLASS/FILE, below at most one folder; one's own also in CLASS/FILE. Domains are
    divided by the official lists or as RethinkFL divides Office-10: it numbers their images, and tests on those whose number
    ends in 8 or 9. Of one's own, every fifth image of a class is tested on.
    """
    plain = str if facts.own else _plain
    domains = {plain(name): i for i, name in enumerate(facts.domains)}
    classes = {plain(name): name for name in facts.classes}
    entries: dict[tuple, Entry] = {}
    for parts, place, archive in found:
        first, label, file = ("", "", *parts)[-3:]
        if facts.domains:
            domain, split, label = domains.get(plain(first), -1), "", classes.get(plain(label), label)
            unused = domain < 0 or (facts.name == "domainnet" and label not in facts.classes)  # ten of its 345 classes
        else:
            domain, split, unused = 0, first, first not in _SPLITS and (not facts.own or bool(first))
        entry = Entry(domain, label, file, place, archive, split)
        if not unused and len(parts) < 5 and entries.setdefault((domain, split, label, file), entry) is not entry:
            raise Broken(archive or place, f"holds {place}, which was already seen")
    listed = {line.split()[0]: file.stem.rpartition("_")[2] for file in lists for line in _lines(file) if line.strip()}
    numbers, divided = Counter[tuple[int, str]](), []
    for entry in sorted(entries.values()):
        group = entry.domain, entry.label if facts.own else ""
        number, numbers[group] = numbers[group], numbers[group] + 1
        tested = number % 5 == 4 if facts.own else number % 10 in (8, 9)
        split = entry.split or ("test" if tested else "train")
        split = listed.get("/".join(Path(entry.place).parts[-3:])) if lists else split
        divided += [entry._replace(split=split)] if split else []
    for i, name in enumerate(facts.domains):
        if divided and all(entry.domain != i for entry in divided):
            raise DataError(f"{facts.title} lacks the domain {name}: {facts.by_hand}.")
    return divided


def _plain(name: str) -> str:
    """A name without what its spellings differ in."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def own_folder(name: str, root: Path) -> tuple[Facts, Source]:
    """Look into somebody's own images, ``folder:PATH`` or, of another size than 32x32, ``folder:PATH@64``.

    PATH, from ``root`` on, is a folder or a zip file of CLASS/FILE, SPLIT/CLASS/FILE or DOMAIN/CLASS/FILE.
    """
    path, size = re.fullmatch(r"(.*?)(?:@([0-9]{1,4}))?", name.removeprefix(OWN_FOLDER), re.DOTALL).groups()
    place, side = root / os.path.expanduser(path), int(size or 32)
    if not path or not place.exists():
        raise DataError(f"{name}: there is no {place}; a PATH that is not absolute begins in the folder of the data sets.")
    if not 8 <= side <= 1024:
        raise DataError(f"{name}: what follows the @ must be the side of the images in pixels, from 8 to 1024.")
    try:
        found = _listing(place)
    except (Broken, OSError) as error:
        raise DataError(f"{name}: {place} is neither a folder nor a zip file that can be read ({error}).") from error
    while found and min(len(parts) for parts, *_ in found) > 2 and len({parts[0] for parts, *_ in found}) == 1:
        found = [(parts[1:], *where) for parts, *where in found]  # one folder around everything
    depths, tops = {len(parts) for parts, *_ in found}, sorted({parts[0] for parts, *_ in found})
    if depths not in ({2}, {3}):
        what = "images at several depths" if found else "no images (.png, .jpg, .jpeg or .webp)"
        layouts = "CLASS/FILE, SPLIT/CLASS/FILE (with train, and test or val) or DOMAIN/CLASS/FILE"
        raise DataError(f"{name} holds {what}; they must all lie in {layouts}.")
    is_split = depths == {3} and "train" in tops
    classes = tuple(sorted({parts[-2] for parts, *_ in found}))
    if len(classes) < 2:
        raise DataError(f"{name} holds images of one class only, {classes[0]}; there must be at least two.")
    facts = Facts(name, name, (3, side, side), num_classes=len(classes), classes=classes, jpeg=True, resized=True, own=True)
    facts = replace(facts, augmentation=Augmentation(pad=side // 8), by_hand="put images there")
    if not is_split:
        facts = replace(facts, stand_in="every fifth image of a class (by name) is a test image")
    if depths == {3} and not is_split:
        facts = replace(facts, domains=dict.fromkeys(tops))
    entries = _entries(facts, found)
    counts = Counter((entry.domain, entry.split == "train") for entry in entries)
    sizes = [(counts[i, True], counts[i, False]) for i in range(max(1, len(facts.domains)))]
    facts = replace(facts, sizes=sizes[0], domains=dict(zip(facts.domains, sizes, strict=False)))
    return facts, _images("own images", facts, entries)


def _nist(facts: Facts, folder: Path) -> list[Entry]:
    """XX/train_XX/*.png and XX/hsf_0/*.png, XX the code of a character; the first of each by name, as many as are read."""
    entries = []
    for label in facts.classes:
        code = f"{ord(label):02x}"
        for split, inner, number in (("train", f"train_{code}", NIST_TRAIN), ("test", "hsf_0", NIST_TEST)):
            files = [file for file in _children(folder / code / inner) if file.suffix == ".png"][:number]
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


# --- images -----------------------------------------------------------------------------------------------------------


def decode(facts: Facts, entries: list[Entry], lists: Sequence[Path] = ()) -> Content:
    """Decode image files, in the order given, into arrays of the set's shape; of one's own set grey if all images are."""
    splits, notes = {entry.split for entry in entries}, []
    test_split = next((split for split in (facts.test_split, "test", "val") if split in splits), "test")
    train, test = ([entry for entry in entries if entry.split == split] for split in ("train", test_split))
    for split, part in (("training", train), ("test", test)):
        if not part:
            raise DataError(f"{facts.title} has no {split} images; see data/README.md for the layout.")
    found, found_test = ({entry.label for entry in part} for part in (train, test))
    whole = facts.domains or facts.own  # else it may be a part of the classes
    for label in () if whole else sorted(found ^ found_test):
        raise DataError(f"{facts.title}: class {label} is only in one split; it must be in both or in none.")
    for label in sorted((found | found_test) - set(facts.classes or found)):
        raise DataError(f"{facts.title} has no class {label}; its classes are {', '.join(facts.classes)}.")
    classes = facts.classes if whole else tuple(sorted(found))

    chosen, n, shorter, remarks = train + test, len(train), set(), []
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
    if facts.name == "domainnet" and not lists:
        notes.append("without the official lists: every ninth and tenth image of a domain is a test image")
    if facts.domains and not facts.own and shorter not in ({facts.shorter_side}, {facts.shape[1]}) and len(shorter) == 1:
        notes.append(f"images reduced to {shorter.pop()} pixels on the shorter side")
    if not facts.jpeg and any(entry.file.lower().endswith((".jpg", ".jpeg")) for entry in chosen):
        notes.append("re-encoded as JPEG")
    if whole or facts.name == "femnist":  # these were not divided with care
        seen = {image.tobytes() for image in images[:n]}
        if shared := sum(image.tobytes() in seen for image in images[n:]):
            remarks.append(f"{shared:,} test images are training images as well")
    if facts.own and (images == images[:, :1]).all():
        images = images[:, :1].copy()
    labels, groups = (np.array(values) for values in zip(*((classes.index(e.label), e.domain) for e in chosen), strict=True))
    content = Content(images[:n], labels[:n], images[n:], labels[n:], classes, notes=tuple(notes), remarks=tuple(remarks))
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
    with (gzip.open if file.suffix == ".gz" else open)(file, "rb") as opened:
        content = opened.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"more than {limit:,} bytes are too many")
    return content


def _lines(file: Path) -> list[str]:
    with reading(file):
        return _unpacked(file).decode(errors="replace").splitlines()


# --- arrays -----------------------------------------------------------------------------------------------------------


def checked(facts: Facts, file: Path | str, images: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    """Bring images to [N, C, H, W] and labels to 0, 1, ..., or say what is wrong with them."""
    channels, *size = facts.shape
    first, last = facts.first_label, facts.first_label + facts.num_classes - 1
    if labels.ndim != 1 or images.dtype != np.uint8:
        raise Broken(file, "does not hold images with labels")
    if not len(labels):
        raise Broken(file, "holds no images")
    if images.shape[1:] == (*size, channels):
        images = images.transpose(0, 3, 1, 2)
    if images.shape not in ((len(labels), channels, *size), (len(labels) * (channels == 1), *size)):
        raise Broken(file, f"does not hold one image of {size[0]}x{size[1]} pixels per label")
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
    if facts.name == "emnist_letters":  # which lie on their side
        arrays[::2] = [images.swapaxes(1, -1) for images in arrays[::2]]
    return Content(*checked(facts, files[0], *arrays[:2]), *checked(facts, files[2], *arrays[2:]), facts.classes)


def _torchvision(facts: Facts, files: list[Path]) -> Content:
    """What torchvision reads, if it is as published: CIFAR's batches are pickles, which can run any code."""
    from torchvision import datasets  # slow to import
    from torchvision.datasets.utils import check_integrity

    kind, folder = getattr(datasets, facts.name.upper()), files[0].parent
    if cifar := hasattr(kind, "meta"):
        folder = folder.parent
        known = [*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])]
    else:
        known = kind.split_list.values()
    published = dict(entry[-2:] for entry in known)
    for file in files:
        if not check_integrity(file, published.get(file.name, "")):
            raise Broken(file, "is not the published file (its MD5 is another)")
    parts = []
    for options in facts.torchvision:
        opened = kind(folder, **options)
        parts += checked(facts, files[0], opened.data, np.array(opened.labels if facts.name == "svhn" else opened.targets))
    return Content(*parts, tuple(opened.classes) if cifar else facts.classes)


def _npz(facts: Facts, files: list[Path]) -> Content:
    """One .npz file: x_train and x_test, uint8 [N, H, W] or [N, H, W, C]; y_train and y_test, [N]; upright images."""
    parts, limit = [], max(facts.sizes) * max(math.prod(facts.shape), 8) + 4096
    with reading(files[0]), zipfile.ZipFile(files[0]) as opened:
        for split in ("train", "test"):
            members = (io.BytesIO(_member(opened, f"{name}_{split}.npy", limit)) for name in "xy")
            parts += checked(facts, files[0], *(np.lib.format.read_array(m, allow_pickle=False) for m in members))
        cut_out = "src_train.npy" in opened.namelist()
    notes = ("digits cut out of photographs of the full-number set, not the official crops",) if cut_out else ()
    return Content(*parts, facts.classes or tuple(map(str, range(facts.num_classes))), notes=notes)


_OFFICIAL = dict.fromkeys(("cifar10", "cifar100", "svhn", "usps"), _torchvision)
_OFFICIAL |= dict.fromkeys(("mnist", "emnist_letters"), _idx) | dict.fromkeys(("tiny_imagenet", "mnistm"), _listed)
