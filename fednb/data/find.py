"""Where a published set lies: one function for each layout of data/README.md."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fednb.data import decode, tree
from fednb.data.dataset import RawDataset
from fednb.data.files import Broken, ImageFile, children, images_below, lines_of
from fednb.data.spec import DatasetSpec


class Source(NamedTuple):
    """A data set as it was found."""

    layout: str  # such as "official files"
    files: list[Path]  # all that count: when one changes, the cache is renewed
    read: Callable[[], RawDataset]


def find_source(spec: DatasetSpec, root: Path) -> Source | None:
    """The first layout that is there; None if there is none."""
    for layout in (official_files, image_tree, zip_files, array_file):
        source = layout(spec, root)
        if source is not None:
            return source
    return None


def official_files(spec: DatasetSpec, root: Path) -> Source | None:
    """The files as they are published, plain or as .gz, in one of the set's usual folders."""
    for name in spec.folders:
        source = _official_files_in(spec, root / name)
        if source is not None:
            return source
    return None


def image_tree(spec: DatasetSpec, root: Path) -> Source | None:
    """A folder named after the set that holds SPLIT/CLASS/FILE or DOMAIN/CLASS/FILE."""
    folders = _folders_of(spec, root)
    lists = _official_lists(spec, folders)
    for folder in folders:
        images = tree.images_of(spec, images_below(folder), lists)
        if images:
            read = partial(decode.read_images, spec, images, lists)
            return Source("image tree", paths_of(images) + lists, read)
    return None


def zip_files(spec: DatasetSpec, root: Path) -> Source | None:
    """Zip files that hold such a tree together, named after the set or in its folder."""
    zips = [file for file in _files_of(spec, root) if file.suffix.lower() == ".zip"]
    if not zips:
        return None
    lists = _official_lists(spec, _folders_of(spec, root))

    def read() -> RawDataset:
        images = tree.images_of(spec, images_below(*zips), lists)
        return decode.read_images(spec, images, lists)

    return Source("zip files", zips + lists, read)


def array_file(spec: DatasetSpec, root: Path) -> Source | None:
    """One .npz file named after the set; sets of several domains have none."""
    if spec.domains:
        return None
    for file in _files_of(spec, root):
        if file.suffix == ".npz" and file.stem.lower() in spec.names:
            return Source("file of arrays", [file], partial(decode.read_npz, spec, file))
    return None


def paths_of(images: Sequence[ImageFile]) -> list[Path]:
    """The files of images that lie in folders; those in a zip file change when this does."""
    return [image.file for image in images if isinstance(image.file, Path)]


def _official_files_in(spec: DatasetSpec, folder: Path) -> Source | None:
    files = [_plain_or_gzipped(folder / name) for name in spec.files]
    if spec.reader == "nist":
        images = _nist_images(spec, folder)
    elif not any(file.exists() for file in files):
        return None
    elif spec.reader == "idx":
        return Source("official files", files, partial(decode.read_idx, spec, files))
    elif spec.reader == "torchvision":
        read = partial(decode.read_with_torchvision, spec, folder, files)
        return Source("official files", files, read)
    else:
        images = _listed_images(spec, folder, files)
    if not images:
        return None
    read = partial(decode.read_images, spec, images)
    return Source("official files", paths_of(images) + files, read)


def _plain_or_gzipped(path: Path) -> Path:
    """The file, or its .gz where only that is there."""
    gzipped = path.with_name(f"{path.name}.gz")
    return gzipped if gzipped.is_file() and not path.is_file() else path


def _nist_images(spec: DatasetSpec, folder: Path) -> list[ImageFile]:
    """The first by name of XX/train_XX/*.png and of XX/hsf_0/*.png; XX is a character's code."""
    images = []
    for label in spec.classes:
        code = f"{ord(label):02x}"
        for split, subfolder, size in zip(
            ("train", "test"), (f"train_{code}", "hsf_0"), spec.sizes, strict=True
        ):
            files = [file for file in children(folder / code / subfolder) if file.suffix == ".png"]
            chosen = files[: size // spec.num_classes]
            images += [ImageFile(0, label, file, split) for file in chosen]
    return images


def _listed_images(spec: DatasetSpec, folder: Path, lists: Sequence[Path]) -> list[ImageFile]:
    """Images whose class stands in a list of lines FILE CLASS: MNIST-M, Tiny-ImageNet's validation.

    Tiny-ImageNet's training images lie in train/CLASS/images/. A list names no files elsewhere.
    """
    images = []
    for parts, file in images_below(folder):
        if len(parts) == 4 and parts[0] == "train" and parts[2] == "images":
            images.append(ImageFile(0, parts[1], file, "train"))
    for list_file, subfolder in zip(lists, spec.listed, strict=True):
        split = "train" if "train" in list_file.name else "test"
        for line in lines_of(list_file):
            name, label = (*line.split(), "", "")[:2]
            if not label or Path(name).name != name:
                raise Broken(f"{list_file} has a line that is not a file name and a class")
            images.append(ImageFile(0, label, folder / subfolder / name, split))
    return images


def _folders_of(spec: DatasetSpec, root: Path) -> list[Path]:
    return [path for path in children(root) if path.is_dir() and path.name.lower() in spec.names]


def _files_of(spec: DatasetSpec, root: Path) -> list[Path]:
    """What is named after the set, and what lies in a folder named after it."""
    # a letter or digit after the name makes another set: cifar100.zip is not cifar10
    named = re.compile(rf"({'|'.join(spec.names)})([^a-z0-9].*)?", re.IGNORECASE)
    files = [file for file in children(root) if named.fullmatch(file.stem)]
    for folder in _folders_of(spec, root):
        files += children(folder)
    return files


def _official_lists(spec: DatasetSpec, folders: Sequence[Path]) -> list[Path]:
    """The lists that divide a set of several domains: all of them, where any is there."""
    if not spec.domains:
        return []
    lists = []
    for folder in folders:
        lists += [folder / name for name in spec.files]
    return lists if any(file.is_file() for file in lists) else []
