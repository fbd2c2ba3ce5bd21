"""From files to arrays: image files, idx files, what torchvision reads, and files of arrays."""

import io
import math
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
from PIL import Image
from tqdm import tqdm

from fednb.data.dataset import LabelledImages, RawDataset, raw_dataset
from fednb.data.files import LIMIT, Broken, File, ImageFile, Member, reading, unpacked
from fednb.data.seen import as_seen
from fednb.data.spec import DatasetSpec
from fednb.errors import DataError

_DARK = 64  # what is nowhere brighter holds, say, twelve bits in the scale of sixteen
_COPIES = 3  # of all images that are in memory at once: decoded, divided, and written to the cache


def read_images(
    spec: DatasetSpec, images: Sequence[ImageFile], lists: Sequence[Path] = ()
) -> RawDataset:
    """Decode image files, in the order given; one's own become grey if all of them are.

    ``lists`` are those by which the images were divided, if there are any. A `DataError` tells of a
    split without images, of an unknown class, and of a class that only one split has.
    """
    splits = {image.split for image in images}
    candidates = (spec.test_split, "test", "val")  # a tree may have two of them
    test_split = next((split for split in candidates if split in splits), "test")
    train = [image for image in images if image.split == "train"]
    test = [image for image in images if image.split == test_split]
    if not train:
        raise DataError(f"{spec.title} has no training images; see data/README.md for the layout.")
    if not test:
        raise DataError(f"{spec.title} has no test images; see data/README.md for the layout.")
    classes = _classes_of(spec, train, test)

    chosen = train + test
    n = len(train)
    pixels, sizes = _decoded(spec, chosen)
    notes = _notes(spec, chosen, sizes, bool(lists))
    remarks = _remarks(spec, pixels[:n], pixels[n:])
    if spec.is_own and (pixels == pixels[:, :1]).all():
        pixels = pixels[:, :1].copy()
    labels = np.array([classes.index(image.label) for image in chosen], np.int64)
    domains = np.array([image.domain for image in chosen], np.int64)
    return raw_dataset(
        LabelledImages(pixels[:n], labels[:n], domains[:n]),
        LabelledImages(pixels[n:], labels[n:], domains[n:]),
        classes,
        notes,
        remarks,
    )


def _all_classes_expected(spec: DatasetSpec) -> bool:
    """Whether a class may be in one split only; of other sets both splits hold the same classes."""
    return bool(spec.domains) or spec.is_own


def _classes_of(
    spec: DatasetSpec, train: Sequence[ImageFile], test: Sequence[ImageFile]
) -> Sequence[str]:
    """The names of the classes, in the order of their labels."""
    train_labels = {image.label for image in train}
    test_labels = {image.label for image in test}
    only_in_one_split = sorted(train_labels ^ test_labels)
    if only_in_one_split and not _all_classes_expected(spec):
        raise DataError(
            f"{spec.title}: class {only_in_one_split[0]} is only in one split; "
            "it must be in both or in none."
        )
    unknown = sorted((train_labels | test_labels) - set(spec.classes))
    if unknown and spec.classes:
        raise DataError(
            f"{spec.title} has no class {unknown[0]}; its classes are {', '.join(spec.classes)}."
        )
    return spec.classes if _all_classes_expected(spec) else sorted(train_labels)


def _decoded(
    spec: DatasetSpec, images: Sequence[ImageFile]
) -> tuple[np.ndarray, set[tuple[int, int]]]:
    """All images, uint8 [N, C, H, W], and the widths and heights that their files have."""
    _require_memory(spec, len(images))
    pixels = np.empty((len(images), *spec.shape), np.uint8)
    sizes = set()
    progress = tqdm(
        images, f"decoding {spec.title}", unit=" images", delay=1, leave=False, disable=None
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Pillow has to say of a file, we say in a sentence
        for i, image in enumerate(progress):
            with reading(image.file):
                pixels[i], size = _pixels(spec, image.file)
            sizes.add(size)
    return pixels, sizes


def _require_memory(spec: DatasetSpec, number: int) -> None:
    """Raise a `DataError` before images are decoded that cannot all be held."""
    _, height, width = spec.shape
    needed = _COPIES * number * math.prod(spec.shape)
    free = psutil.virtual_memory().available
    if needed > free:
        name = spec.name.partition("@")[0]
        smaller = f" ask for smaller ones, such as {name}@64." if spec.is_own else ""
        raise DataError(
            f"{spec.title}: {number:,} images of {height}x{width} pixels take "
            f"{needed / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB of memory are free;"
            f"{smaller or ' free some, or take a machine with more.'}"
        )


def _pixels(spec: DatasetSpec, file: File) -> tuple[np.ndarray, tuple[int, int]]:
    """Decode one image to uint8 [C, H, W], and tell its own width and height."""
    channels, height, width = spec.shape
    with Image.open(io.BytesIO(unpacked(file)), formats=("PNG", "JPEG", "WEBP")) as image:
        size = f"{image.width}x{image.height} pixels"
        if image.size != (width, height) and not spec.resized:
            raise Broken(f"{file} is {size} instead of {width}x{height}")
        if math.prod(image.size) > LIMIT:
            raise ValueError(f"{size} are too many")
        # published sets are read as the papers' code reads them
        seen = as_seen(image) if spec.is_own else image
        pixels = seen.convert("RGB" if channels == 3 else "L")
        if seen.size != (width, height):  # as torchvision's Resize
            pixels = pixels.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(pixels).reshape(height, width, channels).transpose(2, 0, 1), seen.size


def _notes(
    spec: DatasetSpec, images: Sequence[ImageFile], sizes: set[tuple[int, int]], has_lists: bool
) -> list[str]:
    """What of the files is not as published."""
    notes = []
    if spec.unlisted and not has_lists:
        notes.append(spec.unlisted)
    _, height, width = spec.shape
    shorter_sides = {min(size) for size in sizes}
    if spec.is_own:
        if len(sizes) > 1:
            notes.append(f"images of several sizes, all resized to {height}x{width}")
    elif spec.domains and len(shorter_sides) == 1:
        (side,) = shorter_sides
        if side not in (spec.shorter_side, height):
            notes.append(f"images reduced to {side} pixels on the shorter side")
    suffixes = {image.file.suffix.lower() for image in images}
    if not spec.jpeg and suffixes & {".jpg", ".jpeg"}:
        notes.append("re-encoded as JPEG")
    return notes


def _remarks(spec: DatasetSpec, train: np.ndarray, test: np.ndarray) -> list[str]:
    """What has to be known of sets that were not divided, or not prepared, with care."""
    if not _all_classes_expected(spec) and spec.reader != "nist":
        return []
    remarks = []
    seen = {image.tobytes() for image in train}
    shared = sum(image.tobytes() in seen for image in test)
    if shared:
        remarks.append(f"{shared:,} test images are training images as well")
    brightest = int(train.max())
    if spec.is_own and brightest < _DARK:
        remarks.append(f"nearly black: the brightest pixel is {brightest} of 255")
    return remarks


def labelled_images(
    spec: DatasetSpec,
    file: Path | str,
    images: np.ndarray,
    labels: np.ndarray,
    groups: np.ndarray | None = None,
) -> LabelledImages:
    """Bring the arrays of one split to the set's shape, and labels to 0, 1, ...

    Images are uint8 [N, C, H, W] or [N, H, W, C], grey ones also [N, H, W]; labels are integers [N]
    that count from the set's first label. What is wrong with them is a `Broken` about ``file``.
    """
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
    last_label = spec.first_label + spec.num_classes - 1
    if not np.isin(labels, np.arange(spec.first_label, last_label + 1)).all():
        raise Broken(f"{file} has labels outside of {spec.first_label}..{last_label}")
    positions = labels.astype(np.int64) - spec.first_label
    if groups is None:
        groups = np.zeros_like(positions)
    return LabelledImages(np.array(images, order="C"), positions, groups)


def class_names(spec: DatasetSpec) -> Sequence[str]:
    """The names of the classes where files have numbers only."""
    return spec.classes or [str(label) for label in range(spec.num_classes)]


def read_idx(spec: DatasetSpec, files: Sequence[Path]) -> RawDataset:
    """Four files in MNIST's format: images and labels for training, images and labels for test."""
    limit = max(spec.sizes) * math.prod(spec.shape) + 4096
    splits = []
    for image_file, label_file in (files[:2], files[2:]):
        images = _read_idx_file(image_file, limit)
        if spec.sideways:
            images = images.swapaxes(1, -1)
        labels = _read_idx_file(label_file, limit)
        splits.append(labelled_images(spec, image_file, images, labels))
    return raw_dataset(splits[0], splits[1], class_names(spec))


def _read_idx_file(file: Path, limit: int) -> np.ndarray:
    """0, 0, 8 (for uint8), number of axes, their lengths (big-endian), values; plain or as .gz."""
    with reading(file):
        content = unpacked(file, limit)
        if content[:3] != b"\0\0\x08":
            raise ValueError("not an idx file")
        shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def read_with_torchvision(spec: DatasetSpec, folder: Path, files: Sequence[Path]) -> RawDataset:
    """CIFAR, SVHN and USPS, if the files are the published ones: a pickle can run any code."""
    from torchvision import datasets  # slow to import

    for file, md5 in zip(files, spec.files.values(), strict=True):
        if not datasets.utils.check_integrity(file, md5):
            raise Broken(f"{file} is not the published file (its MD5 is another)")
    reader = getattr(datasets, spec.name.upper())
    opened = [reader(folder, **options) for options in spec.torchvision]
    splits = []
    for split in opened:
        labels = split.labels if hasattr(split, "labels") else split.targets  # SVHN, the others
        splits.append(labelled_images(spec, files[0], np.array(split.data), np.array(labels)))
    return raw_dataset(splits[0], splits[1], getattr(opened[0], "classes", class_names(spec)))


def read_npz(spec: DatasetSpec, file: Path) -> RawDataset:
    """A .npz file: x_train and x_test, uint8 [N, H, W] or [N, H, W, C]; y_train and y_test, [N]."""
    limit = max(spec.sizes) * max(math.prod(spec.shape), 8) + 4096
    splits = []
    notes = []
    with reading(file), zipfile.ZipFile(file) as archive:
        for split in ("train", "test"):
            images = _read_array(archive, f"x_{split}", limit)
            labels = _read_array(archive, f"y_{split}", limit)
            splits.append(labelled_images(spec, file, images, labels))
        if "src_train.npy" in archive.namelist():
            cut_out = "digits cut out of photographs of the full-number set"
            notes.append(f"{cut_out}, not the official crops")
    return raw_dataset(splits[0], splits[1], class_names(spec), notes)


def _read_array(archive: zipfile.ZipFile, name: str, limit: int) -> np.ndarray:
    member = io.BytesIO(unpacked(Member(archive, f"{name}.npy"), limit))
    return np.lib.format.read_array(member, allow_pickle=False)
