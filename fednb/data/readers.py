"""Readers of the layouts of data/README.md: official files, trees and zip files of images, files of arrays.

Files are not trusted: nothing in them is executed, none may name a file elsewhere, and what is larger than the set can be is
refused before it is unpacked. torchvision reads CIFAR, SVHN and USPS; of MNIST and EMNIST it knows no .gz.
"""

import gzip
import io
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from tqdm import tqdm

from fednb.data.catalog import OWN_FOLDER, Facts, own_place
from fednb.data.dataset import Content, content
from fednb.errors import DataError, check

_SPLITS = ("train", "test", "val")
_LIMIT = 2**26  # bytes of an image or text, and pixels of an image, at most
File = Path | zipfile.Path
Source = tuple[
    str, list[Path], Callable[[], Content]
]  # the layout, all files that count, and how to read them


class Broken(DataError):
    """A file is not as it should be; the message begins with its path."""


class Entry(NamedTuple):
    """An image of a set."""

    domain: int  # 0 where there are none
    label: str
    file: File
    split: str


@contextmanager
def reading(path: File) -> Iterator[None]:
    """A broken file can raise nearly anything, and all of it means the same."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise Broken(f"{path} cannot be read ({reason(error)})") from error


def reason(error: Exception) -> str:
    """What an exception says, in one line and without paths."""
    if isinstance(error, Image.UnidentifiedImageError):
        return "not an image"
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    return lines[0].rstrip(".")[:200] if lines else type(error).__name__


def unpacked(file: File, limit: int = _LIMIT) -> bytes:
    """Read a file that may be packed, or in a zip file: at most so many bytes, and no more are unpacked."""
    check(file.is_file() or not file.exists(), "not a file", ValueError)
    if isinstance(file, zipfile.Path):  # which unpacks in one go what is packed otherwise
        known = file.root.getinfo(file.at).compress_type in (
            zipfile.ZIP_STORED,
            zipfile.ZIP_DEFLATED,
        )
        check(known, "neither stored nor deflated", ValueError)
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
        found = opened.read(limit + 1)
    check(len(found) <= limit, f"more than {limit:,} bytes are too many", ValueError)
    return found


def find(facts: Facts, root: Path) -> Source | None:
    """Search the layouts in order: official files, a tree of images, zip files of it, a file of arrays."""
    if facts.own:
        return own_folder(facts.title, root)[1]
    for folder in (root / place for place in facts.folders):
        files = [
            next((f for f in (folder / n, folder / f"{n}.gz") if f.is_file()), folder / n)
            for n in facts.files
        ]
        there = any(file.exists() for file in files)
        if there and facts.reader in ("idx", "torchvision"):
            return (
                "official files",
                files,
                partial(_idx if facts.reader == "idx" else _torchvision, facts, folder, files),
            )
        if entries := _listed(facts, folder, files) if there else _nist(facts, folder):
            return (
                "official files",
                [*(entry.file for entry in entries), *files],
                partial(decode, facts, entries),
            )
    names = (facts.name, *facts.also)
    folders = [child for child in _children(root) if child.is_dir() and child.name.lower() in names]
    lists = [folder / file for folder in folders for file in facts.files if facts.domains]
    lists = lists if any(file.is_file() for file in lists) else []
    for folder in folders:
        if entries := _entries(facts, _listing(folder), lists):
            return (
                "image tree",
                [*(entry.file for entry in entries), *lists],
                partial(decode, facts, entries, lists),
            )
    # a letter or digit after the name makes another set: cifar100.zip is not cifar10
    mine = re.compile(rf"({'|'.join(names)})([^a-z0-9].*)?", re.IGNORECASE)
    files = [file for file in _children(root) if mine.fullmatch(file.stem)]
    files += [file for folder in folders for file in _children(folder)]
    if zips := [file for file in files if file.suffix.lower() == ".zip"]:
        return (
            "zip files",
            zips + lists,
            lambda: decode(facts, _entries(facts, _listing(*zips), lists), lists),
        )
    arrays = [
        file
        for file in files
        if file.suffix == ".npz" and file.stem.lower() in names and not facts.domains
    ]
    return ("file of arrays", arrays[:1], partial(_npz, facts, arrays[0])) if arrays else None


def _children(folder: Path) -> list[Path]:
    """What a folder holds, without hidden files, sorted by name; nothing if it is no folder."""
    return (
        [folder / name for name in sorted(os.listdir(folder)) if name[0] != "."]
        if folder.is_dir()
        else []
    )


def _listing(*places: Path) -> list[tuple[tuple[str, ...], File]]:
    """All images in zip files, or in folders up to four levels deep, with the parts of their path there, sorted."""
    found: list[tuple[tuple[str, ...], File]] = []
    for place in places:
        if place.is_file():
            with reading(place):
                archive = zipfile.ZipFile(place)
            found += [
                (PurePosixPath(name).parts, zipfile.Path(archive, name))
                for name in archive.namelist()
            ]
        else:
            files = [file for depth in range(1, 5) for file in place.glob("/".join("*" * depth))]
            found += [(file.relative_to(place).parts, file) for file in files]
    found = [
        (parts, file)
        for parts, file in found
        if file.suffix.lower() in (".png", ".jpg", ".jpeg", ".webp")
    ]
    hidden = re.compile(r"\..*|__MACOSX")  # by what systems add
    found = [(parts, file) for parts, file in found if not any(map(hidden.fullmatch, parts))]
    return sorted(found, key=lambda image: image[0])


def _entries(
    facts: Facts, found: list[tuple[tuple[str, ...], File]], lists: Sequence[Path] = ()
) -> list[Entry]:
    """The images of a set among those found, sorted by domain, class and name, and divided where they are not.

    They lie in SPLIT/CLASS/FILE or DOMAIN/CLASS/FILE, below at most one folder; one's own also in CLASS/FILE. Domains are
    divided by the official lists, or by the numbers of their images; of one's own, every fifth of a class is tested on.
    """

    def plain(name: str) -> str:  # without what spellings of the official names differ in
        return re.sub(r"[^a-z0-9]", "", name.lower()) if facts.domains and not facts.own else name

    tops = {plain(name): (i, "") for i, name in enumerate(facts.domains)} or {
        split: (0, split) for split in _SPLITS
    }
    tops |= {"": (0, "")} if facts.own else {}
    classes = {plain(name): name for name in facts.classes}
    entries: dict[tuple, Entry] = {}
    for parts, file in found:
        first, label, name = ("", "", *parts)[-3:]
        label = classes.get(plain(label), label)
        if (
            plain(first) not in tops
            or len(parts) > 4
            or (facts.more_classes and label not in facts.classes)
        ):
            continue
        domain, split = tops[plain(first)]
        check(
            (domain, label, name, split) not in entries,
            f"{file} was already seen in another place",
            Broken,
        )
        entries[domain, label, name, split] = Entry(domain, label, file, split)
    listed = {
        line.split()[0]: file.stem.rpartition("_")[2]
        for file in lists
        for line in _lines(file)
        if line.strip()
    }
    divided = []
    ordered = [entries[key] for key in sorted(entries)]
    for _, group in groupby(ordered, lambda entry: (entry.domain, facts.own and entry.label)):
        for number, entry in enumerate(group):
            tested = number % 5 == 4 if facts.own else number % 10 in (8, 9)
            split = (
                listed.get("/".join(Path(str(entry.file)).parts[-3:]))
                if lists
                else entry.split or _SPLITS[tested]
            )
            divided += [entry._replace(split=split)] if split else []
    for i, name in enumerate(facts.domains if divided else ()):
        check(
            any(entry.domain == i for entry in divided),
            f"{facts.title} lacks the domain {name}: {facts.by_hand}.",
        )
    return divided


def own_folder(name: str, root: Path) -> tuple[Facts, Source]:
    """Look into somebody's own images, ``folder:PATH`` or, of another size than 32x32, ``folder:PATH@64``.

    PATH, see `own_place`, is a folder or zip file of CLASS/FILE, SPLIT/CLASS/FILE or DOMAIN/CLASS/FILE. The fingerprint
    that records add (`recorded_name`) is not looked at.
    """
    place, rest = own_place(name, root)
    size = rest.partition("#")[0]
    side = int(size[1:] or 32)
    missing = f"{name}: there is no {place.name} where you are, nor in {place.parent}; give its whole path."
    check(place.exists() and place != root, missing)
    check(
        8 <= side <= 1024,
        f"{name}: what follows the @ must be the side of the images in pixels, from 8 to 1024.",
    )
    good = place.is_dir() or (place.is_file() and zipfile.is_zipfile(place))
    check(good, f"{name}: {place} is neither a folder nor a zip file that can be read.")
    found = _listing(place)
    while (
        found
        and min(len(parts) for parts, _ in found) > 2
        and len({parts[0] for parts, _ in found}) == 1
    ):
        found = [(parts[1:], file) for parts, file in found]  # one folder around everything
    depths, tops = {len(parts) for parts, _ in found}, sorted({parts[0] for parts, _ in found})
    what = "images at several depths" if found else "no images (.png, .jpg, .jpeg or .webp)"
    layouts = "CLASS/FILE, SPLIT/CLASS/FILE (with train, and test or val) or DOMAIN/CLASS/FILE"
    check(depths in ({2}, {3}), f"{name} holds {what}; they must all lie in {layouts}.")
    classes = sorted({parts[-2] for parts, _ in found})
    check(
        len(classes) > 1,
        f"{name} holds images of one class only, {classes[0]}; there must be at least two.",
    )
    is_split = depths == {3} and "train" in tops
    domains = tops if depths == {3} and not is_split else []
    told = {
        "title": name,
        "shape": [3, side, side],
        "classes": classes,
        "domains": dict.fromkeys(domains),
        "own": True,
    }
    told |= {
        "augmentation": {"pad": side // 8},
        "resized": True,
        "jpeg": True,
        "by_hand": "put images there",
    }
    told |= {
        "stand_in": "" if is_split else "every fifth image of a class (by name) is a test image"
    }
    facts = Facts(OWN_FOLDER + place.name + size, **told)
    entries = _entries(facts, found)
    for i, domain in enumerate(domains):
        tested = any(entry.domain == i and entry.split == "test" for entry in entries)
        check(
            tested,
            f"{name} has no test images in {domain}: every domain needs a class of five images or more.",
        )
    facts.sizes = [sum(entry.split == "train" for entry in entries), 0]
    files = [place] if place.is_file() else [entry.file for entry in entries]
    return facts, ("own images", files, partial(decode, facts, entries))


def _nist(facts: Facts, folder: Path) -> list[Entry]:
    """XX/train_XX/*.png and XX/hsf_0/*.png, XX the code of a character; the first of each by name, as many as are read."""
    entries = []
    for label in facts.classes if facts.reader == "nist" else ():
        code = f"{ord(label):02x}"
        for split, inner, size in (
            ("train", f"train_{code}", facts.sizes[0]),
            ("test", "hsf_0", facts.sizes[1]),
        ):
            files = [file for file in _children(folder / code / inner) if file.suffix == ".png"]
            entries += [Entry(0, label, file, split) for file in files[: size // facts.num_classes]]
    return entries


def _listed(facts: Facts, folder: Path, lists: list[Path]) -> list[Entry]:
    """Images whose class stands in a list of lines FILE CLASS: MNIST-M, and the validation images of Tiny-ImageNet."""
    trees = [
        (parts, file)
        for parts, file in _listing(folder)
        if (parts[0], *parts[2:-1]) == ("train", "images")
    ]
    entries = [Entry(0, parts[1], file, "train") for parts, file in trees]
    for file, images in zip(lists, facts.listed, strict=True):
        split = "train" if "train" in file.name else "test"
        for line in _lines(file):
            name, label = [*line.split(), "", ""][:2]
            check(
                label and Path(name).name == name,
                f"{file} has a line that is not a file name and a class",
                Broken,
            )
            entries.append(Entry(0, label, folder / images / name, split))
    return entries


def _lines(file: Path) -> list[str]:
    with reading(file):
        return unpacked(file).decode(errors="replace").splitlines()


def decode(facts: Facts, entries: list[Entry], lists: Sequence[Path] = ()) -> Content:
    """Decode image files, in the order given, into arrays of the set's shape; of one's own set grey if all images are."""
    splits = {entry.split for entry in entries}
    test_split = next(
        (split for split in (facts.test_split, "test", "val") if split in splits), "test"
    )
    train, test = (
        [entry for entry in entries if entry.split == split] for split in ("train", test_split)
    )
    check(train, f"{facts.title} has no training images; see data/README.md for the layout.")
    check(test, f"{facts.title} has no test images; see data/README.md for the layout.")
    found, found_test = ({entry.label for entry in part} for part in (train, test))
    whole = facts.domains or facts.own  # else it may be a part of the classes
    for label in () if whole else sorted(found ^ found_test):
        raise DataError(
            f"{facts.title}: class {label} is only in one split; it must be in both or in none."
        )
    for label in sorted((found | found_test) - set(facts.classes or found)):
        raise DataError(
            f"{facts.title} has no class {label}; its classes are {', '.join(facts.classes)}."
        )
    classes = facts.classes if whole else sorted(found)

    chosen, n, sizes, notes, remarks = train + test, len(train), set(), [], []
    images = np.empty((len(chosen), *facts.shape), np.uint8)
    for i, entry in enumerate(
        tqdm(chosen, f"decoding {facts.title}", unit=" images", delay=1, leave=False, disable=None)
    ):
        with reading(entry.file):
            images[i], size = _pixels(facts, entry.file)
        sizes.add(size)
    if facts.unlisted and not lists:
        notes.append(facts.unlisted)
    shorter = {min(size) for size in sizes}
    if facts.own and len(sizes) > 1:
        notes.append(f"images of several sizes, all resized to {facts.shape[1]}x{facts.shape[2]}")
    elif (
        facts.domains
        and not facts.own
        and len(shorter) == 1
        and not shorter & {facts.shorter_side, facts.shape[1]}
    ):
        notes.append(f"images reduced to {shorter.pop()} pixels on the shorter side")
    if not facts.jpeg and any(entry.file.suffix.lower() in (".jpg", ".jpeg") for entry in chosen):
        notes.append("re-encoded as JPEG")
    if whole or facts.reader == "nist":  # these were not divided with care
        seen = {image.tobytes() for image in images[:n]}
        if shared := sum(image.tobytes() in seen for image in images[n:]):
            remarks.append(f"{shared:,} test images are training images as well")
    if facts.own and (images == images[:, :1]).all():
        images = images[:, :1].copy()
    labels, groups = np.array(
        [(classes.index(entry.label), entry.domain) for entry in chosen]
    ).T.copy()
    return content(
        (images[:n], labels[:n], groups[:n]),
        (images[n:], labels[n:], groups[n:]),
        classes,
        notes,
        remarks,
    )


def _pixels(facts: Facts, file: File) -> tuple[np.ndarray, tuple[int, int]]:
    """Decode one image to uint8 [C, H, W], and tell its own width and height."""
    channels, height, width = facts.shape
    with Image.open(io.BytesIO(unpacked(file)), formats=("PNG", "JPEG", "WEBP")) as image:
        size, fits = f"{image.width}x{image.height} pixels", image.size == (width, height)
        check(fits or facts.resized, f"{file} is {size} instead of {width}x{height}", Broken)
        check(math.prod(image.size) <= _LIMIT, f"{size} are too many", ValueError)
        pixels = image.convert("RGB" if channels == 3 else "L")
        if not fits:  # as torchvision's Resize
            pixels = pixels.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(pixels).reshape(height, width, channels).transpose(2, 0, 1), image.size


def from_arrays(
    facts: Facts, files: Sequence, arrays: Sequence[np.ndarray], groups: Any = (), **told: Any
) -> Content:
    """Bring images and labels of both splits to [N, C, H, W] and 0, 1, ..., or say what is wrong with them."""
    (channels, *size), parts = facts.shape, []
    known = np.arange(facts.num_classes) + facts.first_label
    for file, images, labels in zip(files, arrays[::2], arrays[1::2], strict=True):
        check(
            labels.ndim == 1 and images.dtype == np.uint8,
            f"{file} does not hold images with labels",
            Broken,
        )
        check(len(labels), f"{file} holds no images", Broken)
        if images.shape[1:] == (*size, channels):
            images = images.transpose(0, 3, 1, 2)
        fits = images.shape in (
            (len(labels), channels, *size),
            (len(labels) * (channels == 1), *size),
        )
        check(
            fits, f"{file} does not hold one image of {size[0]}x{size[1]} pixels per label", Broken
        )
        check(
            np.isin(labels, known).all(),
            f"{file} has labels outside of {known[0]}..{known[-1]}",
            Broken,
        )
        parts += [
            np.array(images.reshape(-1, *facts.shape), order="C"),
            labels.astype(np.int64) - facts.first_label,
        ]
    classes = facts.classes or [str(k) for k in range(facts.num_classes)]
    return content(
        [*parts[:2], *groups[:1]], [*parts[2:], *groups[1:]], **{"classes": classes} | told
    )


def _idx(facts: Facts, folder: Path, files: list[Path]) -> Content:
    """MNIST's format: 0, 0, 8 (for uint8), number of axes, axis lengths (big-endian), values."""
    arrays = []
    for file in files:
        with reading(file):
            data = unpacked(file, max(facts.sizes) * math.prod(facts.shape) + 4096)
            check(data[:3] == b"\0\0\x08", "not an idx file", ValueError)
            shape = np.frombuffer(data, ">u4", count=data[3], offset=4)
            arrays.append(np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape))
    if facts.sideways:
        arrays[::2] = [images.swapaxes(1, -1) for images in arrays[::2]]
    return from_arrays(facts, files[::2], arrays)


def _torchvision(facts: Facts, folder: Path, files: list[Path]) -> Content:
    """What torchvision reads, if it is as published: CIFAR's batches are pickles, which can run any code."""
    from torchvision import datasets  # slow to import

    for file, md5 in zip(files, facts.files.values(), strict=True):
        check(
            datasets.utils.check_integrity(file, md5),
            f"{file} is not the published file (its MD5 is another)",
            Broken,
        )
    opened = [
        getattr(datasets, facts.name.upper())(folder, **options) for options in facts.torchvision
    ]
    arrays = [
        np.array(values)
        for o in opened
        for values in (o.data, o.labels if hasattr(o, "labels") else o.targets)
    ]
    return from_arrays(
        facts, files[:1] * 2, arrays, classes=getattr(opened[0], "classes", facts.classes)
    )


def _npz(facts: Facts, file: Path) -> Content:
    """One .npz file: x_train and x_test, uint8 [N, H, W] or [N, H, W, C]; y_train and y_test, [N]; upright images."""
    arrays, limit = [], max(facts.sizes) * max(math.prod(facts.shape), 8) + 4096
    with reading(file), zipfile.ZipFile(file) as opened:
        for name in ("x_train", "y_train", "x_test", "y_test"):
            member = io.BytesIO(unpacked(zipfile.Path(opened, f"{name}.npy"), limit))
            arrays.append(np.lib.format.read_array(member, allow_pickle=False))
        cut_out = "src_train.npy" in opened.namelist()
    notes = (
        ["digits cut out of photographs of the full-number set, not the official crops"]
        if cut_out
        else []
    )
    return from_arrays(facts, [file, file], arrays, notes=notes)
