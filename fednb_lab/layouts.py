"""In which files published data sets come, one function for each layout of data/README.md, and how they are read."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from pydantic import TypeAdapter

from fednb import data
from fednb.data import Dataset
from fednb.errors import check
from fednb_lab.arrays import Split, duplicates, from_splits, images_of, labels_of, listed
from fednb_lab.folders import ImageFile, as_splits
from fednb_lab.images import Walk, about, reading, walk


@dataclass(frozen=True)
class Origin:
    """In which files a published set comes, how one gets them, and what is said of it."""

    also: tuple[str, ...] = ()  # other names of its folder, zip file and file of arrays
    official: str = ""  # a file or folder by which its official files are known
    reader: str = ""  # of these files: a class of torchvision's, listed or nist
    lists: tuple[str, ...] = ()  # files that say of which class which images are
    listed: tuple[str, ...] = ()  # the folder of the images of which each of these is a list
    sideways: bool = False  # so the official images lie
    first_label: int = 0  # from which the official labels count
    parts: tuple[str, ...] = ()  # the sets that make its domains, in their order
    resized: bool = False  # images of any size are accepted, and brought to the set's shape
    more_classes: bool = False  # a tree may have others, which are left out

    # how one gets it
    torchvision: tuple[dict[str, Any], ...] = ()  # options with which torchvision reads its splits
    page: str = ""  # the archive, or the page for people who download by hand
    by_hand: str = ""  # what to get and where to put it, where no command can fetch it

    # what is said of it
    at_most: bool = False  # the published sizes are bounds; the true ones are unknown
    fingerprint: str = ""  # of the complete set, where known
    jpeg: bool = False  # so the images are published
    shorter_side: int | None = None  # of all published images, in pixels; None: it varies
    note: str = ""  # what is not the published set, even if it is complete
    remark: str = ""  # what has to be known of the complete set


_FILE = Path(__file__).with_name("datasets.yaml")
ORIGINS = TypeAdapter(dict[str, Origin]).validate_python(yaml.safe_load(_FILE.read_text("utf-8")))


OFFICIAL = "official files"


class Source(NamedTuple):
    """A data set as it was found."""

    layout: str  # such as "official files"
    read: Callable[[], Dataset]


def find(name: str, root: Path, inside: bool = False) -> Source | None:
    """Find the first layout of files that is there; None if there is none.

    ``inside``: the root may also be the folder or file of this very set.
    """
    origin = ORIGINS[name]
    known = (name, *origin.also)
    named = [path for path in _children(root) if path.stem.lower() in known]
    own = named or [root] * inside
    for folder in [root, *own]:
        if origin.official and (folder / origin.official).exists():
            return Source(
                OFFICIAL, partial(_READERS.get(origin.reader, _read_torchvision), name, folder)
            )
    files = [*own, *(child for folder in own for child in _children(folder))]
    archive = Path(origin.page).name  # which is read when it is unpacked
    zips = [path for path in files if path.suffix.lower() == ".zip" and path.name != archive]
    folders = [path for path in own if path.is_dir()]
    for layout, paths in (("zip files", zips), ("image tree", folders)):
        found = walk(*paths)
        if any(file.is_image for file in found.files):
            return Source(layout, partial(_read_tree, name, found, layout))
    for file in files:
        is_own = file.stem.lower() in known or file == root
        if is_own and file.suffix == ".npz" and not data.is_converted(file):
            return Source("file of arrays", partial(_read_arrays, name, file))
    return None


def _children(folder: Path) -> list[Path]:
    """What a folder holds, without hidden files, sorted by name; nothing if it is no folder."""
    return sorted(folder.glob("[!.]*")) if folder.is_dir() else []


# --- official files


def _read_torchvision(name: str, folder: Path) -> Dataset:
    """Files that torchvision reads; of pickles it does so only if they are the published ones."""
    from torchvision import datasets  # slow to import

    spec = data.DATASETS[name]
    origin = ORIGINS[name]
    reader = getattr(datasets, origin.reader)
    with reading(folder / origin.official):
        opened = [reader(folder, **options) for options in origin.torchvision]
    splits = []
    for split in opened:
        images = np.asarray(split.data)
        if origin.sideways:
            images = images.swapaxes(1, -1)
        labels = split.labels if hasattr(split, "labels") else split.targets  # SVHN, the others
        splits.append(_split_of_arrays(name, images, np.asarray(labels)))
    classes = spec.classes or opened[0].classes
    return from_splits(spec, splits[0], splits[1], classes, OFFICIAL)


def _read_nist(name: str, folder: Path) -> Dataset:
    """The first by name of XX/train_XX/*.png and of XX/hsf_0/*.png; XX is a character's code."""
    spec = data.DATASETS[name]
    images = []
    for label in spec.classes:
        code = f"{ord(label):02x}"
        folders = {"train": f"train_{code}", "test": "hsf_0"}
        for (split, subfolder), size in zip(folders.items(), spec.sizes, strict=True):
            files = sorted((folder / "by_class" / code / subfolder).glob("[!.]*.png"))
            chosen = files[: size // spec.num_classes]
            images += [ImageFile(0, label, file, split) for file in chosen]
    return _read_images(name, images, OFFICIAL)


def _read_listed(name: str, folder: Path) -> Dataset:
    """Images whose class stands in a list of lines FILE CLASS: MNIST-M, Tiny-ImageNet's validation.

    Tiny-ImageNet's training images lie in train/CLASS/images/. A list names no files elsewhere.
    """
    origin = ORIGINS[name]
    images = []
    for parts, file in walk(folder).files:
        if len(parts) == 4 and parts[0] == "train" and parts[2] == "images":
            images.append(ImageFile(0, parts[1], file, "train"))
    for list_file, subfolder in zip(origin.lists, origin.listed, strict=True):
        split = "train" if "train" in list_file else "test"
        with reading(folder / list_file):
            lines = (folder / list_file).read_text("utf-8").splitlines()
        for line in filter(str.strip, lines):
            image, label = (*line.split(), "", "")[:2]
            check(
                label and Path(image).name == image,
                f"{folder / list_file} has a line that is not a file name and a class.",
            )
            images.append(ImageFile(0, label, folder / subfolder / image, split))
    return _read_images(name, images, OFFICIAL)


_READERS = {"nist": _read_nist, "listed": _read_listed}


# --- trees SPLIT/CLASS/FILE or DOMAIN/CLASS/FILE


def _read_tree(name: str, found: Walk, kind: str) -> Dataset:
    """Images of a tree in folders or zip files, by the published names of domains and classes."""
    spec = data.DATASETS[name]
    origin = ORIGINS[name]
    tops = tuple(spec.domains) or ("train", "test", "val")
    # domains and their classes may be spelled otherwise
    published = {_letters(one): one for one in (*tops, *spec.classes)} if spec.domains else {}
    images = []
    for file in found.files:
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
    if not spec.domains:
        return _read_images(name, images, kind)
    lacking = [domain for i, domain in enumerate(tops) if i not in {one.domain for one in images}]
    check(not lacking, f"it lacks the domain {listed(lacking)}: {origin.by_hand}.")
    divided = []
    for _, group in groupby(images, lambda image: image.domain):
        for number, image in enumerate(group):
            divided.append(image._replace(split="test" if number % 10 in (8, 9) else "train"))
    return _read_images(name, divided, kind)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _read_images(name: str, images: Sequence[ImageFile], kind: str) -> Dataset:
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
    is_undivided = bool(spec.domains) or origin.reader == "nist"
    remarks = duplicates(first.images, second.images) if is_undivided else []
    return from_splits(spec, first, second, classes, kind, notes, remarks)


# --- files of arrays


def _read_arrays(name: str, file: Path) -> Dataset:
    """A .npz file: x_train and x_test, uint8 [N, H, W] or [N, H, W, C]; y_train and y_test, [N]."""
    spec = data.DATASETS[name]
    notes = []
    with about(str(file)), reading(file), np.load(file, allow_pickle=False) as arrays:
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
