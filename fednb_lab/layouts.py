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

from fednb import arrays, data
from fednb.data import Dataset, DatasetSpec
from fednb.dataset import Split, from_splits
from fednb.errors import DataError, check
from fednb_lab import trees
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


class Source(NamedTuple):
    """A data set as it was found."""

    layout: str  # such as "official files"
    read: Callable[[], Dataset]  # may raise `Broken`


class Place(NamedTuple):
    """A set that is looked for, and where."""

    name: str
    root: Path
    inside: bool  # the root is a folder or file of this very set

    @property
    def spec(self) -> DatasetSpec:
        return data.SPECS[self.name]

    @property
    def origin(self) -> Origin:
        return ORIGINS[self.name]

    def named(self) -> list[Path]:
        """What is named after the set in the folder, and what lies in a folder named after it."""
        found = [self.root] if self.inside else []
        # a letter or digit after the name makes another set: cifar100.zip is not cifar10
        names = "|".join((self.name, *self.origin.also))
        pattern = re.compile(rf"({names})([^a-z0-9].*)?", re.IGNORECASE)
        found += [path for path in _children(self.root) if pattern.fullmatch(path.stem)]
        for folder in [path for path in found if self._is_own(path)]:
            found += [path for path in _children(folder) if path not in found]
        return found

    def folders(self) -> list[Path]:
        """The folders that are named after the set."""
        return [path for path in self.named() if self._is_own(path)]

    def _is_own(self, path: Path) -> bool:
        names = (self.name, *self.origin.also)
        is_root = self.inside and path == self.root
        return path.is_dir() and (is_root or path.name.lower() in names)


def _children(folder: Path) -> list[Path]:
    """What a folder holds, without hidden files, sorted by name; nothing if it is no folder."""
    if not folder.is_dir():
        return []
    return [folder / name for name in sorted(os.listdir(folder)) if name[0] != "."]


def find(name: str, root: Path, inside: bool = False) -> Source | None:
    """The first layout of files that is there; None if there is none, a `Broken` for a bad file."""
    place = Place(name, root, inside)
    for layout in (_official_files, _tree, _array_file):
        source = layout(place)
        if source is not None:
            return source
    return None


# --- official files


def _official_files(place: Place) -> Source | None:
    """The files as they are published, unpacked, in the folder or in one named after the set."""
    for folder in [place.root, *place.folders()]:
        read = _reader(place, folder)
        if read is not None:
            return Source("official files", read)
    return None


def _reader(place: Place, folder: Path) -> Callable[[], Dataset] | None:
    origin = place.origin
    files = [folder / name for name in origin.files]
    if origin.reader == "nist":
        images = _nist_images(place.spec, folder)
        return partial(_read_images, place, images, "official files") if images else None
    if not origin.reader or not any(file.exists() for file in files):
        return None
    if origin.reader == "listed":
        return partial(_read_listed, place, folder, files)
    return partial(_read_with_torchvision, place, folder, files)


def _read_with_torchvision(place: Place, folder: Path, files: Sequence[Path]) -> Dataset:
    """Files that torchvision reads, if they are the published ones: a pickle can run any code."""
    from torchvision import datasets  # slow to import

    for file in files:
        with reading(file):
            file.stat()
    for file, md5 in zip(files, place.origin.files.values(), strict=True):
        if not datasets.utils.check_integrity(file, md5):
            raise Broken(f"{file} is not the published file (its MD5 is another)")
    reader = getattr(datasets, place.origin.reader)
    with reading(files[0]):
        opened = [reader(folder, **options) for options in place.origin.torchvision]
    splits = []
    for split in opened:
        images = np.asarray(split.data)
        if place.origin.sideways:
            images = images.swapaxes(1, -1)
        labels = split.labels if hasattr(split, "labels") else split.targets  # SVHN, the others
        splits.append(_split_of_arrays(place, files[0], images, np.asarray(labels)))
    classes = place.spec.classes or opened[0].classes
    return from_splits(place.spec, splits[0], splits[1], classes, "official files")


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


def _read_listed(place: Place, folder: Path, lists: Sequence[Path]) -> Dataset:
    """Images whose class stands in a list of lines FILE CLASS: MNIST-M, Tiny-ImageNet's validation.

    Tiny-ImageNet's training images lie in train/CLASS/images/. A list names no files elsewhere.
    """
    images = []
    for parts, file in trees.walk(folder).files:
        if len(parts) == 4 and parts[0] == "train" and parts[2] == "images":
            images.append(ImageFile(0, parts[1], file, "train"))
    for list_file, subfolder in zip(lists, place.origin.listed, strict=True):
        split = "train" if "train" in list_file.name else "test"
        for line in _lines_of(list_file):
            name, label = (*line.split(), "", "")[:2]
            if not label or Path(name).name != name:
                raise Broken(f"{list_file} has a line that is not a file name and a class")
            images.append(ImageFile(0, label, folder / subfolder / name, split))
    return _read_images(place, images, "official files")


def _lines_of(file: Path) -> list[str]:
    with reading(file):
        return unpacked(file).decode(errors="replace").splitlines()


# --- trees SPLIT/CLASS/FILE or DOMAIN/CLASS/FILE


def _tree(place: Place) -> Source | None:
    """A folder named after the set that holds such a tree, or zip files that hold it together."""
    for folder in place.folders():
        found = trees.walk(folder)
        if found.has_images:
            return Source("image tree", partial(_read_tree, place, found, "image tree"))
    zips = [path for path in place.named() if path.suffix.lower() == ".zip" and path.is_file()]
    if not zips:
        return None
    return Source("zip files", lambda: _read_tree(place, trees.walk(*zips), "zip files"))


def _read_tree(place: Place, found: Walk, kind: str) -> Dataset:
    """Images of a tree, understood as one's own are, but by the published names and divisions."""
    spec = place.spec
    lists = _lists(place)
    layout = trees.understand(
        spec.title, _with_published_names(place, found), partial(_divided, place, lists)
    )
    images = [*layout.train, *layout.test]
    if spec.domains:
        positions = {name: position for position, name in enumerate(spec.domains)}
        order = [positions[name] for name in layout.domains]
        images = [image._replace(domain=order[image.domain]) for image in images]
        images.sort(key=lambda image: image.domain)
    unlisted = place.origin.unlisted if not lists else ""
    dataset = _read_images(place, images, kind, [unlisted] * bool(unlisted))
    say(f"{spec.title}: {layout}")
    return dataset


def _with_published_names(place: Place, found: Walk) -> Walk:
    """The walk in which domains and classes are called as they are published, however spelled."""
    spec = place.spec
    if not spec.domains:
        return found
    domains = {_letters(name): name for name in spec.domains}
    classes = {_letters(name): name for name in spec.classes}
    files = []
    for file in found.files:
        if len(file.parts) > 2 and file.is_image:
            *around, domain, label, name = file.parts
            domain = domains.get(_letters(domain), domain)
            label = classes.get(_letters(label), label)
            if place.origin.more_classes and label not in spec.classes:
                continue
            file = file._replace(parts=(*around, domain, label, name))
        files.append(file)
    return found._replace(files=files)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _lists(place: Place) -> list[Path]:
    """The lists that divide a set of several domains: all of them, where any is there."""
    if not place.spec.domains:
        return []
    lists = [folder / name for folder in place.folders() for name in place.origin.files]
    return lists if any(file.is_file() for file in lists) else []


def _divided(
    place: Place, lists: Sequence[Path], images: Sequence[ImageFile], domains: Sequence[str]
) -> list[ImageFile]:
    """Divide each domain by the official lists, in which all images are that count, or by numbers."""
    spec = place.spec
    check(spec.domains, "there are no folders train and test (see data/README.md).")
    for name in spec.domains:
        check(name in domains, f"it lacks the domain {name}: {place.origin.by_hand}.")
    unknown = [name for name in domains if name not in spec.domains]
    check(not unknown, f"it has no domain {arrays.listed(unknown)}; take that out.")
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
    place: Place, images: Sequence[ImageFile], kind: str, notes: Sequence[str] = ()
) -> Dataset:
    """Decode image files, in the order given; a `DataError` tells of a class that is unknown."""
    spec = place.spec
    origin = place.origin
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
    train_split, test_split, sizes = trees.as_splits(
        spec.title, train, test, classes, spec.shape, **how
    )
    is_undivided = bool(spec.domains) or origin.reader == "nist"
    shared = arrays.duplicates(train_split.images, test_split.images) if is_undivided else []
    notes = [*notes, *_notes_on_images(place, images, sizes)]
    return from_splits(spec, train_split, test_split, classes, kind, notes, shared)


def _notes_on_images(
    place: Place, images: Sequence[ImageFile], sizes: set[tuple[int, int]]
) -> list[str]:
    """What of the files is not as published."""
    notes = []
    shorter_sides = {min(size) for size in sizes}
    if place.spec.domains and len(shorter_sides) == 1:
        (side,) = shorter_sides
        if side not in (place.origin.shorter_side, place.spec.shape[1]):
            notes.append(f"images reduced to {side} pixels on the shorter side")
    endings = {image.file.suffix.lower() for image in images}
    if not place.origin.jpeg and endings & {".jpg", ".jpeg"}:
        notes.append("re-encoded as JPEG")
    return notes


# --- files of arrays


def _array_file(place: Place) -> Source | None:
    """One .npz file of x_train, y_train, x_test and y_test; sets of several domains have none."""
    names = (place.name, *place.origin.also)
    for file in place.named():
        is_named = file.stem.lower() in names or file == place.root
        if not place.spec.domains and file.suffix == ".npz" and is_named:
            if not data.is_converted(file):
                return Source("file of arrays", partial(_read_npz, place, file))
    return None


def _read_npz(place: Place, file: Path) -> Dataset:
    """A .npz file: x_train and x_test, uint8 [N, H, W] or [N, H, W, C]; y_train and y_test, [N]."""
    spec = place.spec
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
            splits.append(_split_of_arrays(place, file, images, labels))
        if "src_train.npy" in archive.namelist():
            cut_out = "digits cut out of photographs of the full-number set"
            notes.append(f"{cut_out}, not the official crops")
    classes = spec.classes or [str(label) for label in range(spec.num_classes)]
    return from_splits(spec, splits[0], splits[1], classes, "file of arrays", notes)


def _split_of_arrays(place: Place, file: Path, images: np.ndarray, labels: np.ndarray) -> Split:
    """Bring the arrays of one split to the set's shape, and labels to 0, 1, ...

    Images are uint8 [N, C, H, W] or [N, H, W, C], grey ones also [N, H, W]; labels are integers [N]
    that count from the set's first label. What is wrong with them is a `Broken` about ``file``.
    """
    first = place.origin.first_label
    last = first + place.spec.num_classes - 1
    try:
        x = arrays.images_of("images", images)
        y = arrays.labels_of("labels", labels, len(x))
    except DataError as error:
        raise Broken(f"{file}: {str(error).rstrip('.')}") from error
    if x.shape[1:] != place.spec.shape:
        raise Broken(
            f"{file} holds images of shape {list(x.shape[1:])}, not {list(place.spec.shape)}"
        )
    if not np.isin(y, np.arange(first, last + 1)).all():
        raise Broken(f"{file} has labels outside of {first}..{last}")
    return Split(x, y - first, np.zeros_like(y))
