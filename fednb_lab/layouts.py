"""Where the files of published data sets lie, one function for each layout of data/README.md, and how they are read."""

import io
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from fednb import data
from fednb.data import DatasetSpec
from fednb.dataset import Split
from fednb.errors import DataError
from fednb.folders import ListedFile, walk
from fednb.images import Broken, File, ImageFile, Member, decoded, duplicates, reading, unpacked

_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")  # of the images of published sets
_SPLITS = ("train", "test", "val")


@dataclass(frozen=True)
class Origin:
    """Where a published set may lie, how one gets it, and what is said of it."""

    folders: tuple[str, ...] = ()  # one of which holds the official files
    files: dict[str, str | None] = field(default_factory=dict)  # with the MD5 that each must have
    reader: str = ""  # of these files: a class of torchvision's, listed or nist
    listed: tuple[str, ...] = ()  # the folder of the images of which each of these files is a list
    sideways: bool = False  # so the official images lie
    first_label: int = 0  # from which the official labels count
    test_split: str = "test"  # taken where a tree has both `test` and `val`
    also: tuple[str, ...] = ()  # other names of its folder, zip files and file of arrays
    parts: tuple[str, ...] = ()  # the sets that make its domains, in their order
    resized: bool = False  # images of any size are accepted, and brought to the set's shape
    more_classes: bool = False  # a tree may have others, which are left out
    at_most: bool = False  # the published sizes are bounds; the true ones are unknown

    # how one gets it
    torchvision: tuple[dict[str, Any], ...] = ()  # options with which torchvision reads its parts
    page: str = ""  # the archive, or the page for people who download by hand
    md5: str | None = None  # of the archive
    by_hand: str = ""  # what to get and where to put it, where no command can fetch it

    # what is said of it
    fingerprint: str = ""  # of the complete set, where known
    jpeg: bool = False  # so the images are published
    shorter_side: int | None = None  # of all published images, in pixels; None: it varies
    unlisted: str = ""  # the note without the official lists
    stand_in: str = ""  # for what; goes into the note of the data set
    remark: str = ""  # what has to be known of the complete set


def _origins() -> dict[str, Origin]:
    entries = yaml.safe_load(Path(__file__).with_name("datasets.yaml").read_text(encoding="utf-8"))
    origins = {}
    for name, entry in entries.items():
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
        }
        if isinstance(entry.get("files"), list):
            values["files"] = dict.fromkeys(entry["files"])
        origins[name] = Origin(**values)
    return origins


ORIGINS = _origins()


class Contents(NamedTuple):
    """What the files of a set hold, not yet compared with what is published."""

    train: Split
    test: Split
    classes: Sequence[str]
    notes: Sequence[str] = ()  # what the files tell that is not as published
    remarks: Sequence[str] = ()  # what has to be known about the images


class Source(NamedTuple):
    """A data set as it was found."""

    layout: str  # such as "official files"
    read: Callable[[], Contents]


def find(name: str, root: Path, inside: bool = False) -> Source | None:
    """The first layout of files that is there; None if there is none.

    ``inside``: the root is a folder or file of this very set. A `DataError` names a broken file.
    """
    place = Place(name, data.SPECS[name], ORIGINS[name], root, inside)
    with broken_files_named(name):
        for layout in (_official_files, _image_tree, _zip_files, _array_file):
            source = layout(place)
            if source is not None:
                return source
    return None


@contextmanager
def broken_files_named(name: str) -> Iterator[None]:
    """Tell of a bad file in a sentence that says whose it is and what to do."""
    try:
        yield
    except Broken as error:
        fix = "" if ORIGINS[name].by_hand else f", or delete it and run `fednb data {name}`"
        message = str(error).removeprefix(f"{data.places()[0]}{os.sep}")
        title = data.SPECS[name].title
        raise DataError(f"{title}: {message}; put a good copy in its place{fix}.") from error


class Place(NamedTuple):
    """A set that is looked for, and where."""

    name: str
    spec: DatasetSpec
    origin: Origin
    root: Path
    inside: bool

    def folders(self) -> list[Path]:
        """Those that are named after the set."""
        names = (self.name, *self.origin.also)
        own = [self.root] if self.inside and self.root.is_dir() else []
        return own + [
            path for path in _children(self.root) if path.is_dir() and path.name.lower() in names
        ]

    def files(self) -> list[Path]:
        """What is named after the set, and what lies in a folder named after it."""
        if self.inside and self.root.is_file():
            return [self.root]
        # a letter or digit after the name makes another set: cifar100.zip is not cifar10
        names = "|".join((self.name, *self.origin.also))
        named = re.compile(rf"({names})([^a-z0-9].*)?", re.IGNORECASE)
        files = [file for file in _children(self.root) if named.fullmatch(file.stem)]
        for folder in self.folders():
            files += [file for file in _children(folder) if file not in files]
        return files

    def lists(self) -> list[Path]:
        """The lists that divide a set of several domains: all of them, where any is there."""
        if not self.spec.domains:
            return []
        lists = [folder / name for folder in self.folders() for name in self.origin.files]
        return lists if any(file.is_file() for file in lists) else []


def _children(folder: Path) -> list[Path]:
    """What a folder holds, without hidden files, sorted by name; nothing if it is no folder."""
    if not folder.is_dir():
        return []
    return [folder / name for name in sorted(os.listdir(folder)) if name[0] != "."]


def _official_files(place: Place) -> Source | None:
    """The files as they are published, unpacked, in one of the set's usual folders."""
    for folder in [place.root] * place.inside + [
        place.root / name for name in place.origin.folders
    ]:
        read = _reader(place, folder)
        if read is not None:
            return Source("official files", read)
    return None


def _reader(place: Place, folder: Path) -> Callable[[], Contents] | None:
    origin = place.origin
    files = [folder / name for name in origin.files]
    if origin.reader == "nist":
        images = _nist_images(place.spec, folder)
        return partial(_read_images, place, images) if images else None
    if not origin.reader or not any(file.exists() for file in files):
        return None
    if origin.reader == "listed":
        return lambda: _read_images(place, _listed_images(place, folder, files))
    return partial(_read_with_torchvision, place, folder, files)


def _image_tree(place: Place) -> Source | None:
    """A folder named after the set that holds SPLIT/CLASS/FILE or DOMAIN/CLASS/FILE."""
    for folder in place.folders():
        images = _images_of(place, _images_below(folder))
        if images:
            return Source("image tree", partial(_read_images, place, images))
    return None


def _zip_files(place: Place) -> Source | None:
    """Zip files that hold such a tree together, named after the set or in its folder."""
    zips = [file for file in place.files() if file.suffix.lower() == ".zip"]
    if not zips:
        return None
    return Source("zip files", lambda: _read_images(place, _images_of(place, _images_below(*zips))))


def _array_file(place: Place) -> Source | None:
    """One .npz file of x_train, y_train, x_test and y_test; sets of several domains have none."""
    names = (place.name, *place.origin.also)
    for file in place.files():
        is_named = file.stem.lower() in names or file == place.root
        if not place.spec.domains and file.suffix == ".npz" and is_named:
            if not data.is_stored(file):
                return Source("file of arrays", partial(_read_npz, place, file))
    return None


# --- image files


def _images_below(*paths: Path) -> list[ListedFile]:
    files = walk(*paths).files
    return [file for file in files if file.parts[-1].lower().endswith(_SUFFIXES)]


def _nist_images(spec: DatasetSpec, folder: Path) -> list[ImageFile]:
    """The first by name of XX/train_XX/*.png and of XX/hsf_0/*.png; XX is a character's code."""
    images = []
    for label in spec.classes:
        code = f"{ord(label):02x}"
        for split, subfolder, size in zip(
            ("train", "test"), (f"train_{code}", "hsf_0"), spec.sizes, strict=True
        ):
            files = [file for file in _children(folder / code / subfolder) if file.suffix == ".png"]
            chosen = files[: size // spec.num_classes]
            images += [ImageFile(0, label, file, split) for file in chosen]
    return images


def _listed_images(place: Place, folder: Path, lists: Sequence[Path]) -> list[ImageFile]:
    """Images whose class stands in a list of lines FILE CLASS: MNIST-M, Tiny-ImageNet's validation.

    Tiny-ImageNet's training images lie in train/CLASS/images/. A list names no files elsewhere.
    """
    images = []
    for parts, file in _images_below(folder):
        if len(parts) == 4 and parts[0] == "train" and parts[2] == "images":
            images.append(ImageFile(0, parts[1], file, "train"))
    for list_file, subfolder in zip(lists, place.origin.listed, strict=True):
        split = "train" if "train" in list_file.name else "test"
        for line in _lines_of(list_file):
            name, label = (*line.split(), "", "")[:2]
            if not label or Path(name).name != name:
                raise Broken(f"{list_file} has a line that is not a file name and a class")
            images.append(ImageFile(0, label, folder / subfolder / name, split))
    return images


def _lines_of(file: Path) -> list[str]:
    with reading(file):
        return unpacked(file).decode(errors="replace").splitlines()


def _images_of(place: Place, listed: Sequence[ListedFile]) -> list[ImageFile]:
    """The images of a set among those listed, by domain, class and name, and divided into splits.

    They lie in SPLIT/CLASS/FILE or DOMAIN/CLASS/FILE, below at most one folder. What has no SPLIT
    is divided by the official lists, or by the numbers of the images. A `DataError` tells of an
    image that is there twice, and of a domain without images.
    """
    spec = place.spec
    images = _divided(_undivided(place, listed), place.lists())
    seen = {image.domain for image in images}
    for domain, name in enumerate(spec.domains):
        if images and domain not in seen:
            raise DataError(f"{spec.title} lacks the domain {name}: {place.origin.by_hand}.")
    return images


def _undivided(place: Place, listed: Sequence[ListedFile]) -> list[ImageFile]:
    """The images that belong to the set, sorted; in a tree of domains they have no split yet."""
    spec = place.spec

    def plain(name: str) -> str:
        """The name without what spellings of the official names of domains differ in."""
        return re.sub(r"[^a-z0-9]", "", name.lower()) if spec.domains else name

    if spec.domains:
        tops = {plain(name): (domain, "") for domain, name in enumerate(spec.domains)}
    else:
        tops = {split: (0, split) for split in _SPLITS}
    classes = {plain(name): name for name in spec.classes}
    images: dict[tuple, ImageFile] = {}
    for parts, file in listed:
        if not 3 <= len(parts) <= 4 or plain(parts[-3]) not in tops:
            continue
        label = classes.get(plain(parts[-2]), parts[-2])
        if place.origin.more_classes and label not in spec.classes:
            continue
        domain, split = tops[plain(parts[-3])]
        key = (domain, label, parts[-1], split)
        if key in images:
            raise Broken(f"{file} was already seen in another place")
        images[key] = ImageFile(domain, label, file, split)
    return [images[key] for key in sorted(images)]


def _divided(images: Sequence[ImageFile], lists: Sequence[Path]) -> list[ImageFile]:
    """Give each image its split; what is not in the official lists is left out."""
    split_of: dict[str, str] = {}
    for file in lists:
        split = file.stem.rpartition("_")[2]
        split_of |= {line.split()[0]: split for line in _lines_of(file) if line.strip()}
    divided = []
    for _, group in groupby(images, lambda image: image.domain):
        for number, image in enumerate(group):
            split = image.split or ("test" if number % 10 in (8, 9) else "train")
            if lists:
                split = split_of.get("/".join(Path(str(image.file)).parts[-3:]), "")
            if split:
                divided.append(image._replace(split=split))
    return divided


def _read_images(place: Place, images: Sequence[ImageFile]) -> Contents:
    """Decode image files, in the order given.

    A `DataError` tells of a split without images, of an unknown class, and of a class that only one
    split has.
    """
    spec = place.spec
    splits = {image.split for image in images}
    candidates = (place.origin.test_split, "test", "val")  # a tree may have two of them
    test_split = next((split for split in candidates if split in splits), "test")
    train = [image for image in images if image.split == "train"]
    test = [image for image in images if image.split == test_split]
    for split, kind in ((train, "training"), (test, "test")):
        if not split:
            raise DataError(
                f"{spec.title} has no {kind} images; see data/README.md for the layout."
            )
    classes = _classes_of(spec, train, test)

    chosen = train + test
    n = len(train)
    files = [image.file for image in chosen]
    resized = place.origin.resized
    pixels, sizes = decoded(spec.title, files, spec.shape, own=False, resized=resized)
    labels = np.array([classes.index(image.label) for image in chosen], np.int64)
    domains = np.array([image.domain for image in chosen], np.int64)
    is_undivided = bool(spec.domains) or place.origin.reader == "nist"
    return Contents(
        Split(pixels[:n], labels[:n], domains[:n]),
        Split(pixels[n:], labels[n:], domains[n:]),
        classes,
        _notes_on_images(place, files, sizes),
        duplicates(pixels[:n], pixels[n:]) if is_undivided else [],
    )


def _classes_of(
    spec: DatasetSpec, train: Sequence[ImageFile], test: Sequence[ImageFile]
) -> Sequence[str]:
    """The names of the classes, in the order of their labels."""
    train_labels = {image.label for image in train}
    test_labels = {image.label for image in test}
    only_in_one_split = sorted(train_labels ^ test_labels)
    if only_in_one_split and not spec.domains:
        raise DataError(
            f"{spec.title}: class {only_in_one_split[0]} is only in one split; "
            "it must be in both or in none."
        )
    unknown = sorted((train_labels | test_labels) - set(spec.classes))
    if unknown and spec.classes:
        raise DataError(
            f"{spec.title} has no class {unknown[0]}; its classes are {', '.join(spec.classes)}."
        )
    return spec.classes if spec.domains else sorted(train_labels)


def _notes_on_images(place: Place, files: Sequence[File], sizes: set[tuple[int, int]]) -> list[str]:
    """What of the files is not as published."""
    spec = place.spec
    origin = place.origin
    notes = []
    if origin.unlisted and not place.lists():
        notes.append(origin.unlisted)
    shorter_sides = {min(size) for size in sizes}
    if spec.domains and len(shorter_sides) == 1:
        (side,) = shorter_sides
        if side not in (origin.shorter_side, spec.shape[1]):
            notes.append(f"images reduced to {side} pixels on the shorter side")
    if not origin.jpeg and {file.suffix.lower() for file in files} & {".jpg", ".jpeg"}:
        notes.append("re-encoded as JPEG")
    return notes


# --- files of arrays


def _split_of_arrays(place: Place, file: Path, images: np.ndarray, labels: np.ndarray) -> Split:
    """Bring the arrays of one split to the set's shape, and labels to 0, 1, ...

    Images are uint8 [N, C, H, W] or [N, H, W, C], grey ones also [N, H, W]; labels are integers [N]
    that count from the set's first label. What is wrong with them is a `Broken` about ``file``.
    """
    spec = place.spec
    first = place.origin.first_label
    channels, height, width = spec.shape
    if labels.ndim != 1 or images.dtype != np.uint8:
        raise Broken(f"{file} does not hold images with labels")
    if len(labels) == 0:
        raise Broken(f"{file} holds no images")
    if images.shape[1:] == (height, width, channels):
        images = images.transpose(0, 3, 1, 2)
    elif images.ndim == 3:
        images = images[:, None]
    if images.shape != (len(labels), channels, height, width):
        raise Broken(f"{file} does not hold one image of {height}x{width} pixels per label")
    last = first + spec.num_classes - 1
    if not np.isin(labels, np.arange(first, last + 1)).all():
        raise Broken(f"{file} has labels outside of {first}..{last}")
    positions = labels.astype(np.int64) - first
    return Split(np.array(images, order="C"), positions, np.zeros_like(positions))


def _read_with_torchvision(place: Place, folder: Path, files: Sequence[Path]) -> Contents:
    """Files that torchvision reads, if they are the published ones: a pickle can run any code."""
    from torchvision import datasets  # slow to import

    for file in files:
        with reading(file):
            file.stat()
    for file, md5 in zip(files, place.origin.files.values(), strict=True):
        if not datasets.utils.check_integrity(file, md5):
            raise Broken(f"{file} is not the published file (its MD5 is another)")
    reader = getattr(datasets, place.origin.reader)
    splits = []
    with reading(files[0]):
        opened = [reader(folder, **options) for options in place.origin.torchvision]
    for split in opened:
        images = np.asarray(split.data)
        if place.origin.sideways:
            images = images.swapaxes(1, -1)
        labels = split.labels if hasattr(split, "labels") else split.targets  # SVHN, the others
        splits.append(_split_of_arrays(place, files[0], images, np.asarray(labels)))
    classes = place.spec.classes or opened[0].classes
    return Contents(splits[0], splits[1], classes)


def _read_npz(place: Place, file: Path) -> Contents:
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
    return Contents(splits[0], splits[1], classes, notes)
