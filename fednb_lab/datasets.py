"""Published data sets, converted once from the files in which they come to ``NAME.npz``.

``fednb data NAME`` calls `get`. In which files a set may come: data/README.md.
"""

import re
import runpy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import TypeAdapter
from torch import Tensor

from fednb import ROOT, data
from fednb.data import Dataset, DatasetInfo, as_rgb
from fednb.errors import DataError, check
from fednb_lab.arrays import Split, duplicates, from_splits, images_of, labels_of, listed, write
from fednb_lab.folders import PREFIX, ImageFile, as_splits, say
from fednb_lab.images import FoundFile, about, reading, reason, walk


@dataclass(frozen=True)
class Origin:
    """In which files a published set comes, how one gets them, and what is said of it."""

    # how it is read
    reader: str = ""  # of its official files: a class of torchvision's
    options: tuple[dict[str, Any], ...] = ()  # with which that reads training and test images
    sideways: bool = False  # so the official images lie
    first_label: int = 0  # from which the official labels count
    parts: tuple[str, ...] = ()  # the sets that make its domains, in their order
    resized: bool = False  # images of any size are accepted, and brought to the set's shape
    more_classes: bool = False  # a tree may have others, which are left out
    by_hand: str = ""  # what to get and how it must lie, where no command can fetch it

    # what is said of it
    at_most: bool = False  # the published sizes are bounds; the true ones are unknown
    fingerprint: str = ""  # of the complete set, where known
    jpeg: bool = False  # so the images are published
    shorter_side: int | None = None  # of all published images, in pixels; None: it varies
    note: str = ""  # what is not the published set, even if it is complete
    remark: str = ""  # what has to be known of the complete set


_FILE = Path(__file__).with_name("datasets.yaml")
ORIGINS = TypeAdapter(dict[str, Origin]).validate_python(yaml.safe_load(_FILE.read_text("utf-8")))


def get(name: str, given: Path | None = None) -> None:
    """Convert a set, unless that is done, and print what is there.

    ``given`` is a file of arrays, a folder or zip file of images, or a folder with its official
    files. Without it, the folder of the set's name is read, into which official files are fetched.
    A `DataError` says what to do by hand.
    """
    data.info_of(name)
    if given is not None or (name in ORIGINS and data.file_of(name) is None):
        _convert(name, given)
    print(data.load(name))


def state(name: str) -> str:
    """Tell what is here of a set: its file, or "-"."""
    if name in data.EMBEDDED:
        return "embedded"
    return str(data.file_of(name) or "-")


def _convert(name: str, given: Path | None) -> None:
    check(name in ORIGINS, f"{name} is not converted: write dataset={PREFIX}{given}.")
    title = data.DATASETS[name].title
    path = data.places()[0] / f"{name}.npz"
    check(
        given is None or given.absolute() != path, f"{given} would be replaced: move it away first."
    )
    with about(title):
        found = _compared(name, _read(name, given))
    try:
        write(path, found)
    except OSError as error:
        raise DataError(
            f"{path} cannot be written ({reason(error)}): set FEDNB_DATA to a folder of your own, and "
            "give --from the files that are to be read."
        ) from error
    say(f"{title} was converted to {path}")


def _read(name: str, given: Path | None) -> Dataset:
    """The set as it lies in ``given`` or in the folder of its name, or drawn, or fetched."""
    origin = ORIGINS[name]
    if origin.parts:
        check(not given, f"it is made of others: convert {', '.join(origin.parts)} from there.")
        return _read_parts(name)
    place = given or data.places()[0] / name
    if place.suffix == ".npz":
        return _read_arrays(name, place)
    zips = sorted(place.glob("[!.]*.zip"))
    found = walk(*(zips or [place])) if place.exists() else []
    if any(file.is_image for file in found):
        return _read_tree(name, found)
    if name == "synthdigits" and given is None:
        return runpy.run_path(str(ROOT / "data" / "synthdigits.py"))["synthdigits"]()
    way_out = origin.by_hand or "get its official files"
    check(
        origin.reader and (place.is_dir() or not given),
        f"it is not in {place}: {way_out}, and write `fednb data {name} --from PATH`.",
    )
    return _read_torchvision(name, place, download=given is None)


# --- official files


def _read_torchvision(name: str, folder: Path, download: bool) -> Dataset:
    """Files that torchvision reads; of pickles it does so only if they are the published ones."""
    from torchvision import datasets  # slow to import

    spec = data.DATASETS[name]
    origin = ORIGINS[name]
    reader = getattr(datasets, origin.reader)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        opened = [reader(folder, download=download, **options) for options in origin.options]
    except Exception as error:  # network, disk, archive: torchvision lets many kinds through
        raise DataError(
            f"{folder} has no official files that torchvision can read ({reason(error)}): try again "
            f"later, or get them by hand as torchvision.datasets.{origin.reader} describes them."
        ) from error
    splits = []
    for split in opened:
        images = np.asarray(split.data)
        if origin.sideways:
            images = images.swapaxes(1, -1)
        labels = split.labels if hasattr(split, "labels") else split.targets  # SVHN, the others
        splits.append(_split_of_arrays(name, images, np.asarray(labels)))
    classes = spec.classes or opened[0].classes
    return from_splits(spec, splits[0], splits[1], classes, "official files")


# --- trees SPLIT/CLASS/FILE or DOMAIN/CLASS/FILE


def _read_tree(name: str, found: Sequence[FoundFile]) -> Dataset:
    """Images of a tree in folders or zip files, by the published names of domains and classes."""
    spec = data.DATASETS[name]
    origin = ORIGINS[name]
    tops = tuple(spec.domains) or ("train", "test", "val")
    # domains and their classes may be spelled otherwise
    published = {_letters(one): one for one in (*tops, *spec.classes)} if spec.domains else {}
    images = []
    for file in found:
        if not file.is_image:
            continue
        top, label, _ = ("", "", *file.parts)[-3:]
        top, label = (published.get(_letters(one), one) for one in (top, label))
        check(
            top in tops,
            f"{file.place} lies in none of the folders {', '.join(tops)}: images must lie in "
            f"{'DOMAIN' if spec.domains else 'SPLIT'}/CLASS/FILE (see data/README.md).",
        )
        if not origin.more_classes or label in spec.classes:
            domain = tops.index(top) if spec.domains else 0
            images.append(ImageFile(domain, label, file.file, "" if spec.domains else top))
    images.sort(key=lambda image: (image.domain, image.label, image.file.name))
    if spec.domains:
        images = _every_ninth_and_tenth(images)
        lacking = [top for i, top in enumerate(tops) if i not in {one.domain for one in images}]
        check(not lacking, f"it lacks the domain {listed(lacking)}: {origin.by_hand}.")
    return _read_images(name, images)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _every_ninth_and_tenth(images: Sequence[ImageFile]) -> list[ImageFile]:
    """Make these of each domain test images."""
    divided = []
    for _, group in groupby(images, lambda image: image.domain):
        for number, image in enumerate(group):
            divided.append(image._replace(split="test" if number % 10 in (8, 9) else "train"))
    return divided


def _read_images(name: str, images: Sequence[ImageFile]) -> Dataset:
    """Decode image files, in the order given; "val" is tested on where there is no "test"."""
    spec = data.DATASETS[name]
    origin = ORIGINS[name]
    train = [image for image in images if image.split == "train"]
    test = [image for image in images if image.split == "test"]
    test = test or [image for image in images if image.split == "val"]
    for split, what in ((train, "training"), (test, "test")):
        check(split, f"there are no {what} images; see data/README.md for the layout.")
    classes = list(spec.classes) if spec.domains else sorted({image.label for image in train})
    untrained = {image.label for image in test} - set(classes)
    check(not untrained, f"class {listed(sorted(untrained))} is tested and never trained.")
    unknown = {image.label for image in train} - set(spec.classes or classes)
    names = ", ".join(spec.classes)
    check(not unknown, f"it has no class {listed(sorted(unknown))}; its classes are {names}.")
    first, second, sizes = as_splits(spec.title, train, test, classes, spec.shape, own=False)
    for (width, height), file in sizes.items():
        fits = origin.resized or (height, width) == spec.shape[1:]
        check(
            fits, f"{file} is {width}x{height} pixels instead of {spec.shape[2]}x{spec.shape[1]}."
        )
    notes = []
    shorter_sides = {min(size) for size in sizes}
    if spec.domains and len(shorter_sides) == 1:
        (side,) = shorter_sides
        if side not in (origin.shorter_side, spec.shape[1]):
            notes.append(f"images reduced to {side} pixels on the shorter side")
    endings = {image.file.suffix.lower() for image in images}
    if not origin.jpeg and endings & {".jpg", ".jpeg"}:
        notes.append("re-encoded as JPEG")
    overlaps = bool(spec.domains) or origin.at_most  # nobody has set test images apart
    remarks = duplicates(first.images, second.images) if overlaps else []
    return from_splits(spec, first, second, classes, "image tree", notes, remarks)


# --- files of arrays


def _read_arrays(name: str, file: Path) -> Dataset:
    """A .npz file: x_train and x_test, uint8 [N, H, W] or [N, H, W, C]; y_train and y_test, [N]."""
    spec = data.DATASETS[name]
    notes = []
    with reading(file), np.load(file, allow_pickle=False) as arrays:
        train = _split_of_arrays(name, arrays["x_train"], arrays["y_train"])
        test = _split_of_arrays(name, arrays["x_test"], arrays["y_test"])
        if "src_train" in arrays:
            cut_out = "digits cut out of photographs of the full-number set"
            notes.append(f"{cut_out}, not the official crops")
    classes = spec.classes or [str(label) for label in range(spec.num_classes)]
    return from_splits(spec, train, test, classes, "file of arrays", notes)


def _split_of_arrays(name: str, images: np.ndarray, labels: np.ndarray) -> Split:
    """The arrays of one split, with labels from 0; they count from the set's first label."""
    spec = data.DATASETS[name]
    first = ORIGINS[name].first_label
    last = first + spec.num_classes - 1
    x = images_of("images", images)
    y = labels_of("labels", labels, len(x))
    check(
        x.shape[1:] == spec.shape and np.isin(y, np.arange(first, last + 1)).all(),
        f"images are {list(x.shape[1:])} with labels from {y.min()} to {y.max()}, and must be "
        f"{list(spec.shape)} with labels from {first} to {last}.",
    )
    return Split(x, y - first, np.zeros_like(y))


# --- sets of digits as the domains of another


def _read_parts(name: str) -> Dataset:
    """All images 32x32 and RGB, as in RethinkFL."""
    spec = data.DATASETS[name]
    parts = []
    for part in ORIGINS[name].parts:
        if data.file_of(part) is None:
            _convert(part, None)
        parts.append(data.load(part))
    side = spec.shape[1]
    sources = {part.source for part in parts}
    return from_splits(
        spec,
        _joined([part.images for part in parts], [part.labels for part in parts], side),
        _joined([part.test_images for part in parts], [part.test_labels for part in parts], side),
        spec.classes,
        sources.pop() if len(sources) == 1 else "several",
        [
            f"{domain}: {part.note}"
            for domain, part in zip(spec.domains, parts, strict=True)
            if part.note
        ],
    )


def _joined(images: Sequence[Tensor], labels: Sequence[Tensor], side: int) -> Split:
    return Split(
        np.concatenate([as_rgb(one.numpy(), side) for one in images]),
        np.concatenate([one.numpy() for one in labels]),
        np.repeat(np.arange(len(labels)), [len(one) for one in labels]),
    )


# --- what is said of it


def _compared(name: str, found: Dataset) -> Dataset:
    """The set with what is not as published in its note."""
    origin = ORIGINS[name]
    spec = data.DATASETS[name]
    lacking = _lacking_images(spec, found, "at most " if origin.at_most else "")
    if found.num_classes != spec.num_classes:
        lacking.append(f"{found.num_classes} of {spec.num_classes} classes")
    notes = [found.note, origin.note]
    if lacking:
        notes.insert(0, f"subset: {', '.join(lacking)}")
    elif not found.note and origin.fingerprint not in ("", found.fingerprint):
        notes.append("images or labels differ from the published ones")
    remarks = [origin.remark, found.remark]
    return replace(
        found, note="; ".join(filter(None, notes)), remark="; ".join(filter(None, remarks))
    )


def _lacking_images(spec: DatasetInfo, found: Dataset, bound: str) -> list[str]:
    """Such as "20 of 50,000 training images"; of domains together, and none if no size is known."""
    published = list(spec.domains.values()) or [spec.sizes]
    sizes = np.sum([size for size in published if size is not None] or [spec.sizes], axis=0)
    words = []
    counts = (len(found.labels), len(found.test_labels))
    for split, count, most in zip(("training", "test"), counts, sizes.tolist(), strict=True):
        check(
            count <= most or not most,
            f"there are {most:,} {split} images, but {count:,} were found; remove the others.",
        )
        if count < most:
            words.append(f"{count:,} of {bound}{most:,} {split} images")
    return words
