"""In which files published data sets come, one function for each layout of data/README.md, and how they are read."""

import io
import math
import os
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from pydantic import TypeAdapter

from fednb import data
from fednb.data import Dataset, DatasetSpec
from fednb.errors import DataError, check
from fednb_lab import arrays, trees
from fednb_lab.arrays import Split, from_splits
from fednb_lab.folders import say
from fednb_lab.images import Broken, Member, reading, unpacked
from fednb_lab.trees import ImageFile, Walk


@dataclass(frozen=True)
class Origin:
    """In which files a published set comes, how one gets them, and what is said of it."""

    also: tuple[str, ...] = ()  # other names of its folder, zip files and file of arrays
    files: dict[str, str | None] = field(default_factory=dict)  # with the MD5 that each must have
    reader: str = ""  # of these files: a class of torchvision's, listed or nist
    listed: tuple[str, ...] = ()  # the folder of the images of which each of these files is a list
    sideways: bool = False  # so the official images lie
    first_label: int = 0  # from which the official labels count
    parts: tuple[str, ...] = ()  # the sets that make its domains, in their order
    resized: bool = False  # images of any size are accepted, and brought to the set's shape
    more_classes: bool = False  # a tree may have others, which are left out

    # how one gets it
    torchvision: tuple[dict[str, Any], ...] = ()  # options with which torchvision reads its splits
    page: str = ""  # the archive, or the page for people who download by hand
    md5: str | None = None  # of the archive
    by_hand: str = ""  # what to get and where to put it, where no command can fetch it

    # what is said of it
    at_most: bool = False  # the published sizes are bounds; the true ones are unknown
    fingerprint: str = ""  # of the complete set, where known
    jpeg: bool = False  # so the images are published
    shorter_side: int | None = None  # of all published images, in pixels; None: it varies
    unlisted: str = ""  # the note without the official lists
    stand_in: str = ""  # for what; goes into the note of the data set
    remark: str = ""  # what has to be known of the complete set


_FILE = Path(__file__).with_name("datasets.yaml")
ORIGINS = TypeAdapter(dict[str, Origin]).validate_python(yaml.safe_load(_FILE.read_text("utf-8")))


OFFICIAL = "official files"


class Source(NamedTuple):
    """A data set as it was found."""

    layout: str  # such as "official files"
    read: Callable[[], Dataset]  # may raise `Broken`


def find(name: str, root: Path, inside: bool = False) -> Source | None:
    """The first layout of files that is there; None if there is none, a `Broken` for a bad file.

    ``inside``: the root is a folder or file of this very set.
    """
    own = [path for path in _children(root) if _is_named(path, name)] + [root] * inside
    below = [path for folder in own for path in _children(folder) if path not in own]
    for layout in (_official_files, _image_tree, _zip_files, _array_file):
        source = layout(name, [root, *own, *below] if layout is _official_files else [*own, *below])
        if source is not None:
            return source
    return None


def _children(folder: Path) -> list[Path]:
    """What a folder holds, without hidden files, sorted by name; nothing if it is no folder."""
    if not folder.is_dir():
        return []
    return [folder / name for name in sorted(os.listdir(folder)) if name[0] != "."]


def _is_named(path: Path, name: str) -> bool:
    """Whether a folder or file is named after this set; what follows the name of a zip file is free.

    A letter or digit after the name makes another set: cifar100.zip is not cifar10.
    """
    stem = path.name.lower() if path.is_dir() else path.stem.lower()
    known = {one: this for this in ORIGINS for one in (this, *ORIGINS[this].also)}
    fitting = [one for one in known if re.fullmatch(rf"{one}([^a-z0-9].*)?", stem)]
    longest = max(fitting, key=len, default="")
    return known.get(longest) == name and (stem == longest or path.suffix.lower() == ".zip")


# --- official files


def _official_files(name: str, paths: Sequence[Path]) -> Source | None:
    """The files as they are published, unpacked, in one of the folders."""
    origin = ORIGINS[name]
    for folder in paths:
        files = [folder / file for file in origin.files]
        images = _nist_images(data.SPECS[name], folder) if origin.reader == "nist" else []
        if images:
            return Source(OFFICIAL, partial(_read_images, name, images, OFFICIAL))
        if origin.reader and any(file.exists() for file in files):
            read = _read_listed if origin.reader == "listed" else _read_with_torchvision
            return Source(OFFICIAL, partial(read, name, folder, files))
    return None


def _read_with_torchvision(name: str, folder: Path, files: Sequence[Path]) -> Dataset:
    """Files that torchvision reads, if they are the published ones: a pickle can run any code."""
    from torchvision import datasets  # slow to import

    spec = data.SPECS[name]
    origin = ORIGINS[name]
    for file in files:
        with reading(file):
            file.stat()
    for file, md5 in zip(files, origin.files.values(), strict=True):
        if not datasets.utils.check_integrity(file, md5):
            raise Broken(f"{file} is not the published file (its MD5 is another)")
    reader = getattr(datasets, origin.reader)
    with reading(files[0]):
        opened = [reader(folder, **options) for options in origin.torchvision]
    splits = []
    for split in opened:
        images = np.asarray(split.data)
        if origin.sideways:
            images = images.swapaxes(1, -1)
        labels = split.labels if hasattr(split, "labels") else split.targets  # SVHN, the others
        splits.append(_split_of_arrays(name, files[0], images, np.asarray(labels)))
    classes = spec.classes or opened[0].classes
    return from_splits(spec, splits[0], splits[1], classes, OFFICIAL)


def _nist_images(spec: DatasetSpec, folder: Path) -> list[ImageFile]:
    """The first by name of XX/train_XX/*.png and of XX/hsf_0/*.png; XX is a character's code."""
    images = []
    for label in spec.classes:
        code = f"{ord(label):02x}"
        folders = {"train": f"train_{code}", "test": "hsf_0"}
        for (split, subfolder), size in zip(folders.items(), spec.sizes, strict=True):
            files = [file for file in _children(folder / code / subfolder) if file.suffix == ".png"]
            chosen = files[: size // spec.num_classes]
            images += [ImageFile(0, label, file, split) for file in chosen]
    return images


def _read_listed(name: str, folder: Path, lists: Sequence[Path]) -> Dataset:
    """Images whose class stands in a list of lines FILE CLASS: MNIST-M, Tiny-ImageNet's validation.

    Tiny-ImageNet's training images lie in train/CLASS/images/. A list names no files elsewhere.
    """
    images = []
    for parts, file in trees.walk(folder).files:
        if len(parts) == 4 and parts[0] == "train" and parts[2] == "images":
            images.append(ImageFile(0, parts[1], file, "train"))
    for list_file, subfolder in zip(lists, ORIGINS[name].listed, strict=True):
        split = "train" if "train" in list_file.name else "test"
        for line in _lines_of(list_file):
            image, label = (*line.split(), "", "")[:2]
            if not label or Path(image).name != image:
                raise Broken(f"{list_file} has a line that is not a file name and a class")
            images.append(ImageFile(0, label, folder / subfolder / image, split))
    return _read_images(name, images, OFFICIAL)


def _lines_of(file: Path) -> list[str]:
    with reading(file):
        return unpacked(file).decode(errors="replace").splitlines()


# --- trees SPLIT/CLASS/FILE or DOMAIN/CLASS/FILE


def _image_tree(name: str, paths: Sequence[Path]) -> Source | None:
    """The first of the folders that holds images."""
    for folder in filter(Path.is_dir, paths):
        found = trees.walk(folder)
        if found.has_images:
            return Source("image tree", partial(_read_tree, name, [folder], "image tree"))
    return None


def _zip_files(name: str, paths: Sequence[Path]) -> Source | None:
    """The zip files, which hold such a tree together."""
    archive = Path(ORIGINS[name].page).name  # which is read when it is unpacked
    zips = [path for path in paths if path.suffix.lower() == ".zip" and path.name != archive]
    return Source("zip files", partial(_read_tree, name, zips, "zip files")) if zips else None


def _read_tree(name: str, paths: Sequence[Path], kind: str) -> Dataset:
    """Images of a tree, understood as one's own are, but by the published names and divisions."""
    spec = data.SPECS[name]
    folders = {path if path.is_dir() else path.parent for path in paths}
    lists = [folder / file for folder in folders for file in ORIGINS[name].files if spec.domains]
    if not any(file.is_file() for file in lists):
        lists = []
    found = _with_published_names(name, trees.walk(*paths))
    layout = trees.understand(spec.title, found, partial(_divided, name, lists))
    images = [*layout.train, *layout.test]
    if spec.domains:
        check(layout.domains, f"{spec.title} has folders {', '.join(spec.domains)}, and no splits.")
        order = [list(spec.domains).index(domain) for domain in layout.domains]
        images = [image._replace(domain=order[image.domain]) for image in images]
        images.sort(key=lambda image: image.domain)
    unlisted = [ORIGINS[name].unlisted] if ORIGINS[name].unlisted and not lists else []
    dataset = _read_images(name, images, kind, unlisted)
    say(f"{spec.title}: {layout}")
    return dataset


def _with_published_names(name: str, found: Walk) -> Walk:
    """The walk in which domains and classes are called as they are published, however spelled."""
    spec = data.SPECS[name]
    published = {_letters(one): one for one in (*spec.domains, *spec.classes)}
    files = []
    for file in found.files:
        if spec.domains and len(file.parts) > 2 and file.is_image:
            *around, domain, label, image = file.parts
            domain, label = (published.get(_letters(one), one) for one in (domain, label))
            if ORIGINS[name].more_classes and label not in spec.classes:
                continue
            file = file._replace(parts=(*around, domain, label, image))
        files.append(file)
    return found._replace(files=files)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _divided(
    name: str, lists: Sequence[Path], images: Sequence[ImageFile], domains: Sequence[str]
) -> list[ImageFile]:
    """Divide each domain by the official lists, in which all images are that count, or by numbers."""
    spec = data.SPECS[name]
    check(spec.domains, "there are no folders train and test (see data/README.md).")
    lacking = [domain for domain in spec.domains if domain not in domains]
    check(not lacking, f"it lacks the domain {arrays.listed(lacking)}: {ORIGINS[name].by_hand}.")
    unknown = [domain for domain in domains if domain not in spec.domains]
    check(not unknown, f"it has no domain {arrays.listed(unknown)}: take that out.")
    split_of: dict[str, str] = {}
    for file in lists:
        split = file.stem.rpartition("_")[2]
        split_of |= {line.split()[0]: split for line in _lines_of(file) if line.strip()}
    divided = []
    for _, group in groupby(images, lambda image: image.domain):
        for number, image in enumerate(group):
            split = "test" if number % 10 in (8, 9) else "train"
            if lists:
                split = split_of.get("/".join(Path(str(image.file)).parts[-3:]), "")
            divided.append(image._replace(split=split))
    return divided


# --- image files, from whichever layout


def _read_images(
    name: str, images: Sequence[ImageFile], kind: str, notes: Sequence[str] = ()
) -> Dataset:
    """Decode image files, in the order given; a `DataError` tells of a class that is unknown."""
    spec = data.SPECS[name]
    origin = ORIGINS[name]
    train = [image for image in images if image.split == "train"]
    test = [image for image in images if image.split in ("test", "val")]
    for split, what in ((train, "training"), (test, "test")):
        check(split, f"{spec.title} has no {what} images; see data/README.md for the layout.")
    labels = sorted({image.label for image in images})
    unknown = sorted(set(labels) - set(spec.classes))
    if unknown and spec.classes:
        raise DataError(
            f"{spec.title} has no class {unknown[0]}; its classes are {', '.join(spec.classes)}."
        )
    classes = spec.classes if spec.domains else labels
    how = {"own": False, "resized": origin.resized}
    splits, sizes = trees.as_splits(spec.title, train, test, classes, spec.shape, **how)
    notes = list(notes)
    shorter_sides = {min(size) for size in sizes}
    if spec.domains and len(shorter_sides) == 1:
        (side,) = shorter_sides
        if side not in (origin.shorter_side, spec.shape[1]):
            notes.append(f"images reduced to {side} pixels on the shorter side")
    endings = {image.file.suffix.lower() for image in images}
    if not origin.jpeg and endings & {".jpg", ".jpeg"}:
        notes.append("re-encoded as JPEG")
    is_undivided = bool(spec.domains) or origin.reader == "nist"
    shared = arrays.duplicates(splits[0].images, splits[1].images) if is_undivided else []
    return from_splits(spec, *splits, classes, kind, notes, shared)


# --- files of arrays


def _array_file(name: str, paths: Sequence[Path]) -> Source | None:
    """One .npz file of x_train, y_train, x_test and y_test, named after the set or given by its path."""
    if data.SPECS[name].domains:
        return None
    for file in paths:
        is_given = _is_named(file, name) or paths == [file]
        if file.suffix == ".npz" and is_given and not data.is_converted(file):
            return Source("file of arrays", partial(_read_npz, name, file))
    return None


def _read_npz(name: str, file: Path) -> Dataset:
    """A .npz file: x_train and x_test, uint8 [N, H, W] or [N, H, W, C]; y_train and y_test, [N]."""
    spec = data.SPECS[name]
    limit = max(spec.sizes) * max(math.prod(spec.shape), 8) + 4096
    splits = []
    notes = []
    with reading(file), zipfile.ZipFile(file) as archive:
        for split in ("train", "test"):
            images, labels = (
                np.lib.format.read_array(
                    io.BytesIO(unpacked(Member(archive, f"{kind}_{split}.npy"), limit)),
                    allow_pickle=False,
                )
                for kind in ("x", "y")
            )
            splits.append(_split_of_arrays(name, file, images, labels))
        if "src_train.npy" in archive.namelist():
            cut_out = "digits cut out of photographs of the full-number set"
            notes.append(f"{cut_out}, not the official crops")
    classes = spec.classes or [str(label) for label in range(spec.num_classes)]
    return from_splits(spec, splits[0], splits[1], classes, "file of arrays", notes)


def _split_of_arrays(name: str, file: Path, images: np.ndarray, labels: np.ndarray) -> Split:
    """Bring the arrays of one split to the set's shape, and labels to 0, 1, ...

    Images are uint8 [N, C, H, W] or [N, H, W, C], grey ones also [N, H, W]; labels are integers [N]
    that count from the set's first label. What is wrong with them is a `Broken` about ``file``.
    """
    spec = data.SPECS[name]
    first = ORIGINS[name].first_label
    last = first + spec.num_classes - 1
    try:
        x = arrays.images_of("images", images)
        y = arrays.labels_of("labels", labels, len(x))
    except DataError as error:
        raise Broken(f"{file}: {str(error).rstrip('.')}") from error
    if x.shape[1:] != spec.shape:
        raise Broken(f"{file} holds images of shape {list(x.shape[1:])}, not {list(spec.shape)}")
    if not np.isin(y, np.arange(first, last + 1)).all():
        raise Broken(f"{file} has labels outside of {first}..{last}")
    return Split(x, y - first, np.zeros_like(y))
