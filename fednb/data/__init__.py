"""Data sets as tensors in memory.

`load` gives any known set as uint8 images and int64 labels, with the mean, standard deviation and
augmentation that the papers' code uses. `digits` comes with scikit-learn. The others are read from their
official files, from a tree of images, from zip files of such a tree or from one file of arrays, checked against the
published sizes, and kept decoded in a cache. `data/README.md` describes the layouts. What is special about sets of
several domains is in `fednb.domains`.
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import io
import json
import os
import pickle
import re
import string
import sys
import uuid
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from fednb import ROOT

_SPLITS = ("train", "test", "val")
_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
_NIST_TRAIN, _NIST_TEST = 20 * 110, 20 * 15  # files per class


class DataError(Exception):
    """What is wrong with the data and what to do about it, in one sentence for people."""


@dataclass(frozen=True)
class Augmentation:
    """Random changes to training images; the default changes nothing.

    Attributes
    ----------
    pad : int
        Pixels added on each side before a random crop to the original size.
    pad_mode : str
        "constant" (zeros) or "reflect".
    flip : bool
        Mirror left to right with probability 1/2.
    rotation : float
        Rotate by an angle drawn uniformly from [-rotation, rotation], in degrees.
    """

    pad: int = 0
    pad_mode: str = "constant"
    flip: bool = False
    rotation: float = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A data set with its test split.

    Attributes
    ----------
    name : str
        One of `NAMES`.
    images, test_images : Tensor, uint8 [N, C, H, W]
        Pixel values 0..255.
    labels, test_labels : Tensor, int64 [N]
        Class numbers, positions in `classes`.
    classes : tuple of str
        Class names.
    mean, std : tuple of float, length C
        Per channel, of pixel values scaled to [0, 1]; the constants of the papers' code.
    augmentation : Augmentation
        What the papers' code does to training images.
    fingerprint : str
        16 hex digits, see `fingerprint`.
    source : str
        "embedded", "official files", "image tree", "zip files", "file of arrays", "rendered" or, of domains that were
        found in several of these ways, "several"; never a path.
    note : str
        What is not the published set, e.g. "subset: 4,000 of 100,000 training images"; empty if nothing.
        Records and tables that use the data show it, and their numbers are not judged against the paper's.
    remark : str
        What has to be known about the published set itself; empty if nothing. Records and tables show it too.
    train_groups, test_groups : Tensor, int64 [N], optional
        Domain or writer of each image, a position in `group_names`.
    """

    name: str
    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: Augmentation
    fingerprint: str
    source: str
    note: str = ""
    remark: str = ""
    train_groups: Tensor | None = None
    test_groups: Tensor | None = None
    group_names: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    def __repr__(self) -> str:
        """Say in one line what it holds."""
        size = "x".join(str(n) for n in self.images.shape[1:])
        text = (
            f"{self.name}: {len(self.images):,} training and {len(self.test_images):,} test images, {size}, "
            f"{self.num_classes} classes, fingerprint {self.fingerprint}, source: {self.source}"
        )
        told = "; ".join(part for part in (self.note, self.remark) if part)
        return f"{text} ({told})" if told else text


@dataclass(frozen=True)
class _Facts:
    """What is published about a set. `files` are the official ones, inside one of `folders`.

    The official labels count from `first_label`. Where `at_most`, `sizes` are bounds and the true sizes are unknown.
    Of a set of several domains, `domains` holds the sizes of each; None: they are unknown.
    """

    title: str
    shape: tuple[int, int, int]  # C, H, W
    sizes: tuple[int, int]  # training and test images
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: Augmentation = Augmentation()
    folders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()  # where a tree must use the official names
    test_split: str = "test"  # taken where a tree has both `test` and `val`
    fingerprint: str = ""  # of the complete set, where known
    page: str = ""  # for people who download by hand
    first_label: int = 0
    transposed: bool = False  # the official files hold each image with rows and columns exchanged
    at_most: bool = False
    stand_in: str = ""  # for what; goes into the note of the data set
    remark: str = ""  # what has to be known of the complete set
    also: tuple[str, ...] = ()  # other names that its folder, zip files and file of arrays may have
    by_hand: str = ""  # what to get and where to put it, where no command can fetch it
    domains: Mapping[str, tuple[int, int] | None] = field(default_factory=dict)
    resized: bool = False  # images of any size are accepted, and brought to `shape`
    shorter_side: int | None = None  # of all published images, in pixels; None: it varies


# RethinkFL's code, on which the results of FPL and FedPLCC rest: every image as 32x32 RGB, ImageNet's constants, random
# crops and flips, on digits too.
_RETHINK: dict[str, Any] = {
    "shape": (3, 32, 32),
    "sizes": (0, 0),  # see domains
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "augmentation": Augmentation(pad=4, flip=True),
    "resized": True,
}
_DIGITS = tuple("0123456789")
_HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}


_FACTS = {
    "digits": _Facts("digits", (1, 8, 8), (1438, 359), 10, (0.3058,), (0.3764,)),
    "mnist": _Facts(
        "MNIST",
        (1, 28, 28),
        (60_000, 10_000),
        10,
        mean=(0.1307,),
        std=(0.3081,),
        folders=("MNIST/raw", "mnist/MNIST/raw", "mnist"),
        files=(
            "train-images-idx3-ubyte",
            "train-labels-idx1-ubyte",
            "t10k-images-idx3-ubyte",
            "t10k-labels-idx1-ubyte",
        ),
        classes=_DIGITS,
        fingerprint="7d3a935cd638b597",
        page="https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
    "cifar10": _Facts(
        "CIFAR-10",
        (3, 32, 32),
        (50_000, 10_000),
        10,
        mean=(125.3 / 255, 123.0 / 255, 113.9 / 255),
        std=(63.0 / 255, 62.1 / 255, 66.7 / 255),
        augmentation=Augmentation(pad=4, pad_mode="reflect", flip=True),
        folders=("cifar-10-batches-py", "cifar10/cifar-10-batches-py"),
        files=(*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"),
        classes=tuple("airplane automobile bird cat deer dog frog horse ship truck".split()),
        fingerprint="1a328eb2a9b73749",
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
    ),
    "cifar100": _Facts(
        "CIFAR-100",
        (3, 32, 32),
        (50_000, 10_000),
        100,
        mean=(0.50708, 0.48655, 0.44092),
        std=(0.26733, 0.25644, 0.27615),
        augmentation=Augmentation(pad=4, flip=True, rotation=15.0),
        folders=("cifar-100-python", "cifar100/cifar-100-python"),
        files=("train", "test", "meta"),
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
    ),
    "tiny_imagenet": _Facts(
        "Tiny-ImageNet",
        (3, 64, 64),
        (100_000, 10_000),
        200,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        folders=("tiny-imagenet-200", "tiny_imagenet/tiny-imagenet-200"),
        files=("val/val_annotations.txt",),  # and all images, see _find
        test_split="val",  # the published test split has no labels
        page="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    ),
    "emnist_letters": _Facts(
        "EMNIST letters",
        (1, 28, 28),
        (124_800, 20_800),
        26,
        mean=(0.1307,),  # FedProto's for its handwriting
        std=(0.3081,),
        folders=("EMNIST/raw", "emnist/gzip", "emnist_letters"),
        files=tuple(f"emnist-letters-{s}-{k}-ubyte" for s in ("train", "test") for k in ("images-idx3", "labels-idx1")),
        classes=tuple(string.ascii_uppercase),  # upper and lower case are merged
        page="https://www.nist.gov/itl/products-and-services/emnist-dataset",
        first_label=1,
        transposed=True,
        stand_in="a stand-in for FEMNIST: 26 merged letters of 28x28 pixels, without writers",
    ),
    # What FedProto calls FEMNIST: the first images of each class of NIST's special database 19 at their full size.
    # Its code reads 20 clients x 110 files of train_XX for training and 20 x 15 of hsf_0 for testing.
    "femnist": _Facts(
        "FEMNIST",
        (1, 128, 128),
        (62 * _NIST_TRAIN, 62 * _NIST_TEST),
        62,
        mean=(0.1307,),
        std=(0.3081,),
        folders=("by_class", "femnist/by_class"),
        classes=tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase),
        page="https://s3.amazonaws.com/nist-srd/SD19/by_class.zip",
        at_most=True,
    ),
    # The other digits of Digit-5, each a set of its own.
    "usps": _Facts(
        "USPS",
        (1, 16, 16),
        (7_291, 2_007),
        10,
        mean=(0.5,),
        std=(0.5,),
        folders=("usps", "USPS", "."),
        files=("usps.bz2", "usps.t.bz2"),
        classes=_DIGITS,
        page="https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/",
    ),
    "svhn": _Facts(
        "SVHN",
        (3, 32, 32),
        (73_257, 26_032),
        10,
        **_HALF,
        folders=("svhn", "SVHN", "."),
        files=("train_32x32.mat", "test_32x32.mat"),
        classes=_DIGITS,
        page="http://ufldl.stanford.edu/housenumbers/",
        also=("svhn_small",),
    ),
    "synthdigits": _Facts(
        "SynthDigits",
        (3, 32, 32),
        (10_000, 2_000),  # the set that FPL and FedPLCC use; its test set is that small
        10,
        **_HALF,
        folders=("synthdigits", "SynthDigits", "."),
        files=("synth_train_32x32.mat", "synth_test_32x32.mat"),
        classes=_DIGITS,
        also=("syn",),
        by_hand="put it there as syn/train/CLASS/*.png and syn/val/CLASS/*.png, as RethinkFL reads it",
        resized=True,
    ),
    "mnistm": _Facts(
        "MNIST-M",
        (3, 32, 32),
        (59_001, 9_001),
        10,
        **_HALF,
        folders=("mnist_m", "mnistm"),
        files=("mnist_m_train_labels.txt", "mnist_m_test_labels.txt"),  # and all images, see _find
        classes=_DIGITS,
        also=("mnist_m",),
        by_hand="put the release of its authors (Y. Ganin and V. Lempitsky) there: the folders mnist_m_train and "
        "mnist_m_test and the lists mnist_m_train_labels.txt and mnist_m_test_labels.txt, in mnist_m/",
    ),
    # Sets of several domains, for FedPLCC; the domains are in the order of its tables.
    "digits5_mini": _Facts(
        "Digit-5 in small",
        **_RETHINK | {"shape": (3, 16, 16), "augmentation": Augmentation(pad=2), "resized": False},
        num_classes=10,
        classes=_DIGITS,
        stand_in="a stand-in for Digit-5, made of scikit-learn's digits and photographs and matplotlib's fonts",
        domains=dict.fromkeys(("Digits", "Slanted", "Blended", "Fonts", "Scenes"), (400, 150)),
    ),
    "digits5": _Facts(
        "Digit-5",
        **_RETHINK,
        num_classes=10,
        classes=_DIGITS,
        remark="the digits of MNIST-M are those of MNIST, training images from training images and test from test",
        domains={
            "MNIST": (60_000, 10_000),
            "USPS": (7_291, 2_007),
            "SVHN": (73_257, 26_032),
            "Synth": (10_000, 2_000),
            "MNIST-M": (59_001, 9_001),
        },
    ),
    "office10": _Facts(
        "Office-10",
        **_RETHINK,
        num_classes=10,
        classes=tuple("back_pack bike calculator headphones keyboard laptop_computer monitor mouse mug projector".split()),
        also=("office_caltech_10",),
        remark="Webcam and DSLR show the same objects, several times each",
        by_hand="get the images of Office-Caltech-10 (B. Gong et al., CVPR 2012) and put them there as "
        "office10/DOMAIN/CLASS/*.jpg, or as such a tree in office10.zip; DOMAIN is caltech, amazon, webcam or dslr",
        domains={"Caltech": (899, 224), "Amazon": (768, 190), "Webcam": (237, 58), "DSLR": (127, 30)},
    ),
    "pacs": _Facts(
        "PACS",
        **_RETHINK,
        num_classes=7,
        classes=tuple("dog elephant giraffe guitar horse house person".split()),
        stand_in="a stand-in for DomainNet",
        by_hand="get the images of PACS (D. Li et al., ICCV 2017) and put them there as pacs/DOMAIN/CLASS/*.jpg, or as such "
        "a tree in pacs.zip; DOMAIN is photo, art_painting, cartoon or sketch",
        domains={"Photo": (1336, 334), "Art painting": (1640, 408), "Cartoon": (1876, 468), "Sketch": (3144, 785)},
        shorter_side=227,
    ),
    # The ten classes of FedBN and FedPCL; FedPLCC does not name its own.
    "domainnet": _Facts(
        "DomainNet",
        **_RETHINK,
        num_classes=10,
        classes=tuple("bird feather headphones ice_cream teapot tiger whale windmill wine_glass zebra".split()),
        remark="ten classes, those of FedBN and FedPCL; FedPLCC does not name its own",
        page="http://ai.bu.edu/M3SDA/",
        by_hand="get the six zip files and the lists DOMAIN_train.txt and DOMAIN_test.txt from http://ai.bu.edu/M3SDA/ and "
        "put them into domainnet/, packed or unpacked; DOMAIN is clipart, infograph, painting, quickdraw, real or sketch",
        domains=dict.fromkeys(("Clipart", "Infograph", "Painting", "Quickdraw", "Real", "Sketch")),
    ),
}

NAMES = tuple(_FACTS)


def domain_names(name: str) -> tuple[str, ...]:
    """The domains of a data set in the order of its groups, without loading it; empty if it has none."""
    return tuple(_FACTS[name].domains)


def num_images(name: str) -> int:
    """Training images of the published set, without loading it."""
    facts = _FACTS[name]
    return sum(sizes[0] for sizes in facts.domains.values() if sizes) or facts.sizes[0]


_EMBEDDED = ("digits", "digits5_mini")


class _Source(NamedTuple):
    """Where a set was found: its kind, its own folder, and all files that count."""

    kind: str
    folder: Path
    files: list[Path]


class _Entry(NamedTuple):
    """One image file: `place` is its path, or its name in the zip file `archive`."""

    split: str
    label: str
    file: str
    place: str
    archive: Path | None = None


class _Content(NamedTuple):
    """What the cache keeps. Images are uint8 [N, C, H, W], labels int64 [N]."""

    images: np.ndarray
    labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    classes: tuple[str, ...]
    jpeg: bool = False  # some images were JPEG files
    fingerprint: str = ""
    train_groups: np.ndarray | None = None  # int64 [N], positions in group_names
    test_groups: np.ndarray | None = None
    group_names: tuple[str, ...] = ()
    shared: int = 0  # test images that equal a training image, where that was counted
    remarks: tuple[str, ...] = ()  # further parts of the note, which the files tell


def load(name: str, root: Path | str | None = None) -> Dataset:
    """Load a data set.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    root : path, optional
        Folder that holds the sets; $FEDNB_DATA if not given, or else `data/` of the repository.

    Raises
    ------
    DataError
        If the set is unknown, missing, damaged, or not of the published size.
    """
    facts = _facts(name)
    content, kind = _load(name, root)
    groups = {"train_groups": content.train_groups, "test_groups": content.test_groups}
    return Dataset(
        name,
        *(torch.from_numpy(array) for array in content[:4]),
        classes=content.classes,
        mean=facts.mean,
        std=facts.std,
        augmentation=facts.augmentation,
        fingerprint=content.fingerprint,
        source=kind,
        note="; ".join([*_departures(content, facts), *_replaced(content, facts)]),
        remark="; ".join(_remarks(content, facts)),
        group_names=content.group_names,
        **{key: None if array is None else torch.from_numpy(array) for key, array in groups.items()},
    )


def _load(name: str, root: Path | str | None) -> tuple[_Content, str]:
    """Return the content of a set and the kind of its source."""
    if name == "digits":
        return _digits(), "embedded"
    if name == "digits5_mini":
        from fednb.data import domains  # which builds on this module

        return _check(domains.embedded(), _FACTS[name]), "embedded"
    folder = _root(root)
    try:
        source = _find(name, folder)
        cache = _cache_file(name, source, folder)
    except OSError as error:  # no permission, or a link that leads nowhere
        raise _broken(name, error.filename, folder, f"cannot be read ({_reason(error)})") from error
    content = _read_cache(cache)
    if content is None:
        content = _check(_read(name, source, folder), _FACTS[name])
        _write_cache(cache, content)
    return content, source.kind


def where(name: str, root: Path | str | None = None) -> str:
    """What kind of source a set has in `root` (see `load`), without reading it; "-" where it is missing or incomplete."""
    if _facts(name) and name in _EMBEDDED:
        return "embedded"
    try:
        return _find(name, _root(root)).kind
    except (DataError, OSError):
        return "-"


def download(name: str, root: Path | str | None = None) -> None:
    """Fetch the official files of a set into `root` (see `load`), unless the complete set is already there.

    Raises
    ------
    DataError
        If the download fails; the message says how to do it by hand.
    """
    facts = _facts(name)
    if name in _EMBEDDED:
        print(f"{name} comes with scikit-learn and matplotlib; nothing to download.")
        return
    folder = _root(root)
    if facts.by_hand or name == "digits5":
        for part in ("mnist", "usps", "svhn") if name == "digits5" else ():
            download(part, folder)
        print(load(name, folder))  # or what to do by hand
        return
    try:
        complete = not _departures(_load(name, folder)[0], facts)
    except DataError:  # missing or damaged: fetch it
        complete = False
    if not complete:
        # torchvision takes long to import and nothing else here needs it.
        from torchvision import datasets
        from torchvision.datasets.utils import download_and_extract_archive

        try:
            folder.mkdir(parents=True, exist_ok=True)
            if name in ("tiny_imagenet", "femnist"):
                md5 = {"tiny_imagenet": "90528d7ca1a48142e341f4ef8d21d0de"}.get(name)
                download_and_extract_archive(facts.page, str(folder), md5=md5, remove_finished=True)
            elif name == "emnist_letters":
                datasets.EMNIST(str(folder), split="letters", download=True)
            elif name == "usps":
                for train in (True, False):
                    datasets.USPS(str(folder / name), train=train, download=True)
            elif name == "svhn":
                for split in ("train", "test"):
                    datasets.SVHN(str(folder / name), split=split, download=True)
            else:
                {"mnist": datasets.MNIST, "cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name](
                    str(folder), download=True
                )
        except Exception as error:  # network, disk, archive: torchvision lets many kinds through
            raise DataError(
                f"{facts.title} could not be downloaded ({_reason(error)}): try again later, or fetch it by "
                f"hand from {facts.page} and unpack it so that {folder / facts.folders[0]} exists."
            ) from error
    print(load(name, folder))


def fingerprint(images: np.ndarray, labels: np.ndarray, test_images: np.ndarray, test_labels: np.ndarray) -> str:
    """Hash of the images with their split and label, 16 hex digits.

    It does not depend on the order of the images, so official files and a lossless tree of them agree.

    Parameters
    ----------
    images, test_images : uint8 [N, C, H, W]
    labels, test_labels : int64 [N]
    """
    digests = []
    for split, x, y in ((b"train", images, labels), (b"test", test_images, test_labels)):
        for image, label in zip(np.ascontiguousarray(x), y.tolist(), strict=True):
            digest = hashlib.blake2b(b"%s %d " % (split, label), digest_size=16)
            digest.update(image)
            digests.append(digest.digest())
    total = hashlib.blake2b(str(images.shape[1:]).encode(), digest_size=8)
    total.update(b"".join(sorted(digests)))
    return total.hexdigest()


# Names, folders, messages


def _facts(name: str) -> _Facts:
    if name not in _FACTS:
        close = difflib.get_close_matches(str(name).lower(), NAMES, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise DataError(f"{name!r} is not a known data set; known are {', '.join(NAMES)}.{hint}")
    return _FACTS[name]


def _root(root: Path | str | None) -> Path:
    return Path(root or os.environ.get("FEDNB_DATA") or ROOT / "data").expanduser().absolute()


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror  # without the path
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _broken(name: str, path: Path | str, root: Path, reason: str, fix: str = "") -> DataError:
    """Name the file, what is wrong with it, and the way out.

    The command helps for every layout: it fetches the official files, and these come first in the search.
    """
    shown = str(path).removeprefix(f"{root}{os.sep}")
    if _FACTS[name].by_hand:
        fix = "put a good copy in its place."
    else:
        fix = f"{fix or 'put a good copy in its place, or delete it and run'} `python -m fednb data {name}`."
    return DataError(f"{_FACTS[name].title}: {shown} {reason}; {fix}")


# Finding


def _find(name: str, root: Path) -> _Source:
    """Search the layouts in order: official files, image tree, zip files, file of arrays."""
    facts, names = _FACTS[name], (name, *_FACTS[name].also)
    if facts.domains:
        from fednb.data import domains  # which builds on this module

        return domains.find(name, root)
    if name == "femnist":
        for folder in (root / place for place in facts.folders):
            if files := _nist_files(folder):
                return _Source("official files", folder, files)
    for folder in (root / place for place in facts.folders if facts.files):
        # idx files may lie in mnist/ itself, which may as well be the folder of a tree or of zip files.
        shared = folder in (root, *(root / n for n in names))
        if folder.is_dir() and (not shared or _official_file(folder, facts.files[0])):
            files = [_official_file(folder, file) for file in facts.files]
            if None in files:
                lost = folder / facts.files[files.index(None)]
                raise _broken(name, lost, root, "is missing", "copy it there, or run")
            if name == "tiny_imagenet":
                inner = [folder / "val" / "images", *(f / "images" for f in _children(folder / "train"))]
                files += [file for f in inner for file in _children(f)]
            if name == "mnistm":
                files += [file for part in ("train", "test") for file in _children(folder / f"mnist_m_{part}")]
            return _Source("official files", folder, files)

    for folder in (root / n for n in names):
        labels = [label for split in _SPLITS for label in _children(folder / split)]
        files = [file for label in labels for file in _children(label) if file.suffix.lower() in _SUFFIXES]
        if files:
            return _Source("image tree", folder, files)

    # A letter or digit after the name makes another set: cifar100.zip is not cifar10.
    mine = re.compile(rf"({'|'.join(names)})([^a-z0-9].*)?\.zip", re.IGNORECASE)
    files = [file for file in _children(root) if mine.fullmatch(file.name)]
    files += [file for n in names for file in _children(root / n) if file.suffix.lower() == ".zip"]
    if files:
        return _Source("zip files", root, files)
    for n in names:
        for file in (root / f"{n}.npz", root / n / f"{n}.npz"):
            if file.is_file():
                return _Source("file of arrays", root, [file])
    if name == "synthdigits":
        return _Source("rendered", root, [ROOT / "fednb" / "render.py"])  # drawn anew when that changes
    raise _missing(name, root, f"{facts.folders[0]}/, {name}/train/CLASS/*.png, {name}/*.zip, {name}*.zip and {name}.npz")


def _missing(name: str, root: Path, places: str) -> DataError:
    """Say where a set was looked for, and how to get it."""
    facts = _FACTS[name]
    fix = facts.by_hand or f"get it with `python -m fednb data {name}`"
    return DataError(
        f"{facts.title} was not found: looked for {places} in {root}; {fix}, or set FEDNB_DATA to the folder that holds it."
    )


def _children(folder: Path) -> list[Path]:
    """List what a folder holds, without hidden files, sorted by name; nothing if it is no folder."""
    if not folder.is_dir():
        return []
    return [folder / name for name in sorted(os.listdir(folder)) if not name.startswith(".")]


def _official_file(folder: Path, name: str) -> Path | None:
    return next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)


# Reading


def _read(name: str, source: _Source, root: Path) -> _Content:
    special = name in ("usps", "svhn", "synthdigits", "mnistm") and source.kind in ("official files", "rendered")
    if _FACTS[name].domains or special:
        from fednb.data import domains  # which builds on this module

        return domains.read(name, source, root)
    if source.kind == "image tree":
        return _decode(name, sorted(_Entry(*p.parts[-3:], str(p)) for p in source.files), root)
    if source.kind == "zip files":
        return _decode(name, sorted(_zip_entries(name, source.files, root)), root)
    if name == "tiny_imagenet":
        return _decode(name, _tiny_entries(source, root), root)
    if name == "femnist":
        return _nist(source, root)
    facts = _FACTS[name]
    idx = facts.files[0].endswith("ubyte")
    if source.kind == "file of arrays":
        return _arrays(name, source.files[0], root)
    key = "fine_labels" if name == "cifar100" else "labels"
    classes, parts = facts.classes, []  # images, labels, images, labels, ...
    for file in source.files:
        # A broken file can raise nearly anything, and all of it means the same.
        try:
            data = file.read_bytes()
            data = gzip.decompress(data) if file.suffix == ".gz" else data
            if idx:
                parts.append(_idx(data))
                continue
            batch = _Batch(io.BytesIO(data), encoding="latin1").load()
            if file.name == "meta":
                classes = tuple(batch["fine_label_names"])
            else:
                parts += [np.asarray(batch["data"]), np.asarray(batch[key])]
        except Exception as error:
            raise _broken(name, file, root, f"cannot be read ({_reason(error)})") from error

    images, labels = parts[::2], parts[1::2]
    for i, file in enumerate(source.files[::2] if idx else source.files[: len(images)]):
        images[i], labels[i] = _checked(name, file, root, images[i], labels[i], classes)
        if facts.transposed:
            images[i] = np.ascontiguousarray(images[i].swapaxes(2, 3))
    test = np.array(images[-1])  # a copy: arrays out of frombuffer cannot be written to
    return _Content(np.concatenate(images[:-1]), np.concatenate(labels[:-1]), test, labels[-1], classes)


def _checked(
    name: str, file: Path, root: Path, images: np.ndarray, labels: np.ndarray, classes: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Bring images to [N, C, H, W] and labels to 0, 1, ..., or say what is wrong with them."""
    facts, first = _FACTS[name], _FACTS[name].first_label
    if labels.ndim != 1 or images.dtype != np.uint8:
        raise _broken(name, file, root, "does not hold images with labels")
    if images.size != len(labels) * np.prod(facts.shape):
        size = f"{facts.shape[1]}x{facts.shape[2]}"
        raise _broken(name, file, root, f"does not hold one image of {size} pixels per label")
    if not np.isin(labels, np.arange(first, first + len(classes))).all():
        raise _broken(name, file, root, f"has labels outside of {first}..{first + len(classes) - 1}")
    return images.reshape(-1, *facts.shape), labels.astype(np.int64) - first


def _arrays(name: str, file: Path, root: Path) -> _Content:
    """Read one .npz file: x_train and x_test, uint8 [N, H, W] or [N, H, W, C]; y_train and y_test, [N]; upright images."""
    facts, parts = _FACTS[name], []
    try:
        with np.load(file, allow_pickle=False) as opened:
            arrays = [opened[key] for key in ("x_train", "y_train", "x_test", "y_test")]
            cut_out = "src_train" in opened
    except Exception as error:  # as above
        raise _broken(name, file, root, f"cannot be read ({_reason(error)})") from error
    classes = facts.classes or tuple(map(str, range(facts.num_classes)))
    for images, labels in (arrays[:2], arrays[2:]):
        if images.ndim == 4:
            images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
        if images.shape[-2:] != facts.shape[-2:]:
            raise _broken(name, file, root, f"does not hold images of {facts.shape[1]}x{facts.shape[2]} pixels")
        parts += _checked(name, file, root, images, labels, classes)
    remarks = ("digits cut out of photographs of the full-number set, not the official crops",) if cut_out else ()
    return _Content(*parts, classes, remarks=remarks)


def _nist_files(folder: Path) -> list[Path]:
    """List XX/train_XX/*.png and XX/hsf_0/*.png, XX the code of a character; the first of each by name, as many as are read.

    The files that name the writers come last, if there are any.
    """
    images, writers = [], []
    for character in _FACTS["femnist"].classes:
        code = f"{ord(character):02x}"
        for inner, number in ((f"train_{code}", _NIST_TRAIN), ("hsf_0", _NIST_TEST)):
            found = [file for file in _children(folder / code / inner) if file.suffix.lower() in _SUFFIXES]
            images += found[:number]
            key = folder / code / f"{inner}.mit"
            if found and key.is_file():
                writers.append(key)
    return images and images + writers


def _nist(source: _Source, root: Path) -> _Content:
    """Decode NIST's images by class, and find their writers where the tree says who they are."""
    files = [file for file in source.files if file.suffix != ".mit"]
    entries = []
    for file in files:
        split = "train" if file.parent.name.startswith("train") else "test"
        entries.append(_Entry(split, chr(int(file.parts[-3], 16)), file.name, str(file)))
    content = _decode("femnist", sorted(entries), root)
    training = {image.tobytes() for image in content.images}
    content = content._replace(shared=sum(image.tobytes() in training for image in content.test_images))
    writers = _nist_writers(source)
    named = [writers.get(entry.place) for entry in sorted(entries)]
    if None in named:  # no writers, or not of all images
        return content
    names = tuple(sorted(set(named)))
    number = {name: i for i, name in enumerate(names)}
    split = {
        s: np.array([number[w] for w, e in zip(named, sorted(entries), strict=True) if e.split == s], np.int64)
        for s in _SPLITS
    }
    return content._replace(train_groups=split["train"], test_groups=split["test"], group_names=names)


def _nist_writers(source: _Source) -> dict[str, str]:
    """Writer of each image, by its path: XX/FOLDER.mit holds a count, then one line per file of FOLDER, such as f0023_63.

    The number after the f is the writer's, the other that of the form that was filled out.
    """
    writers = {}
    for file in source.files:
        if file.suffix == ".mit":
            lines = re.findall(r"\bf(\d{4})_\d{2}\b", file.read_text(errors="replace"))
            images = [image for image in _children(file.with_suffix("")) if image.suffix.lower() in _SUFFIXES]
            if len(lines) == len(images):
                writers |= {str(image): writer for image, writer in zip(images, lines, strict=True)}
    return writers


def _idx(data: bytes) -> np.ndarray:
    """Read MNIST's format: 0, 0, 8 (for uint8), number of axes, axis lengths (big-endian), values."""
    if data[:3] != b"\0\0\x08":
        raise ValueError("not an idx file")
    shape = np.frombuffer(data, ">u4", count=data[3], offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


class _Batch(pickle.Unpickler):
    """Reads CIFAR's pickles. A pickle can run any code, so only what an array needs is let through."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.empty(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} has no place in this file")


def _tiny_entries(source: _Source, root: Path) -> list[_Entry]:
    """List train/CLASS/images/FILE, and val/images/FILE with the class that the annotations give."""
    train = [_Entry("train", p.parts[-3], p.name, str(p)) for p in source.files[1:] if p.parts[-4] == "train"]
    test = []
    for line in source.files[0].read_text(errors="replace").splitlines():
        fields = line.split("\t")
        if len(fields) < 2:
            raise _broken("tiny_imagenet", source.files[0], root, "has a line without file name and class")
        test.append(_Entry("val", fields[1], fields[0], str(source.folder / "val" / "images" / fields[0])))
    return train + test


def _zip_entries(name: str, archives: list[Path], root: Path) -> list[_Entry]:
    """Images in all zip files: SPLIT/CLASS/FILE, with at most one folder before SPLIT."""
    entries: dict[tuple[str, ...], _Entry] = {}
    for archive in archives:
        before = len(entries)
        try:
            with zipfile.ZipFile(archive) as opened:
                members = opened.namelist()
        except (OSError, zipfile.BadZipFile) as error:
            raise _broken(name, archive, root, f"cannot be read ({_reason(error)})") from error
        for member in members:
            path = PurePosixPath(member)
            key = path.parts[-3:]
            fits = len(path.parts) in (3, 4) and path.suffix.lower() in _SUFFIXES and key[0] in _SPLITS
            if not fits or path.parts[0] == "__MACOSX" or path.name.startswith("."):
                continue
            if key in entries:
                raise _broken(name, archive, root, f"holds {member}, which was already seen in a zip file")
            entries[key] = _Entry(*key, member, archive)
        if len(entries) == before:
            raise _broken(name, archive, root, "holds no images as train/CLASS/FILE or test/CLASS/FILE")
    return list(entries.values())


def _decode(name: str, entries: list[_Entry], root: Path) -> _Content:
    """Decode image files, in the order given, into arrays of the set's published shape."""
    facts = _FACTS[name]
    splits = {entry.split for entry in entries}
    test_split = facts.test_split if {"test", "val"} <= splits else next(iter(splits - {"train"}), "")
    train = [entry for entry in entries if entry.split == "train"]
    test = [entry for entry in entries if entry.split == test_split]
    classes = facts.classes if facts.domains else tuple(sorted({entry.label for entry in train}))
    for split, part in (("training", train), ("test", test)):
        if not part:
            raise DataError(f"{facts.title} has no {split} images; see data/README.md for the layout.")
    for label in () if facts.domains else sorted(set(classes) ^ {entry.label for entry in test}):
        raise DataError(f"{facts.title}: class {label} is only in one split; it must be in both or in none.")
    for label in sorted(set(classes) - set(facts.classes or classes)):
        raise DataError(f"{facts.title} has no class {label}; its classes are {', '.join(facts.classes)}.")

    channels, height, width = facts.shape
    chosen = train + test
    images, short = np.empty((len(chosen), *facts.shape), np.uint8), set()
    with ExitStack() as stack:
        zips = {a: stack.enter_context(zipfile.ZipFile(a)) for a in {e.archive for e in chosen} - {None}}
        bar = tqdm(chosen, desc=f"decoding {facts.title}", unit=" images", leave=False, disable=None)
        for i, entry in enumerate(bar):
            # A broken image can raise OSError, SyntaxError, zlib.error, BadZipFile (wrong CRC) and more.
            try:
                read = zips[entry.archive].read if entry.archive else lambda place: Path(place).read_bytes()
                with Image.open(io.BytesIO(read(entry.place)), formats=("PNG", "JPEG", "WEBP")) as image:
                    size = image.size
                    short.add(min(size))
                    if size == (width, height) or facts.resized:
                        image = image.convert("RGB" if channels == 3 else "L")
                        if size != (width, height):  # as torchvision's Resize
                            image, size = image.resize((width, height), Image.Resampling.BILINEAR), (width, height)
                        pixels = np.asarray(image)
                        images[i] = pixels.reshape(height, width, channels).transpose(2, 0, 1)
            except Exception as error:
                reason = "not an image" if isinstance(error, Image.UnidentifiedImageError) else _reason(error)
                raise _broken(name, _where(entry), root, f"cannot be read ({reason})") from error
            if size != (width, height):
                reason = f"is {size[0]}x{size[1]} pixels instead of {width}x{height}"
                raise _broken(name, _where(entry), root, reason)
    number = {label: i for i, label in enumerate(classes)}
    labels = np.array([number[entry.label] for entry in chosen], np.int64)
    n = len(train)
    jpeg = any(entry.file.lower().endswith((".jpg", ".jpeg")) for entry in chosen)
    content = _Content(images[:n], labels[:n], images[n:], labels[n:], classes, jpeg)
    if facts.domains and short not in ({facts.shorter_side}, {width}) and len(short) == 1:
        content = content._replace(remarks=(f"images reduced to {short.pop()} pixels on the shorter side",))
    return content


def _where(entry: _Entry) -> str:
    return f"{entry.archive} ({entry.place})" if entry.archive else entry.place


def _digits() -> _Content:
    """scikit-learn's 8x8 digits (values 0..16, here 0..255), four fifths of each class for training."""
    from sklearn.datasets import load_digits  # slow to import, and only needed here

    bunch = load_digits()
    images = np.rint(bunch.images * 255 / 16).astype(np.uint8)[:, None]
    labels = bunch.target.astype(np.int64)
    train, test = _digits_split(labels)
    content = _Content(images[train], labels[train], images[test], labels[test], tuple("0123456789"))
    return content._replace(fingerprint=fingerprint(*content[:4]))


def _digits_split(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the training and of the test images, both int64 and increasing."""
    rng = np.random.RandomState(0)  # its stream never changes, that of default_rng may
    test = np.zeros(len(labels), bool)
    for k in range(10):
        members = rng.permutation(np.flatnonzero(labels == k))
        test[members[: round(len(members) / 5)]] = True
    return np.flatnonzero(~test), np.flatnonzero(test)


# Checking


def _counts(content: _Content, facts: _Facts) -> list[tuple[int, int, str]]:
    """List what was found, what was published, and of what."""
    if facts.domains:
        named = [(g, domain, sizes) for g, (domain, sizes) in enumerate(facts.domains.items()) if sizes]
        return [
            (int((groups == g).sum()), published, f"{what} images in {domain}")
            for g, domain, sizes in named
            for groups, published, what in zip(
                (content.train_groups, content.test_groups), sizes, ("training", "test"), strict=True
            )
        ]
    found = (len(content.labels), len(content.test_labels), len(content.classes))
    names = ("training images", "test images", "classes")
    return list(zip(found, (*facts.sizes, facts.num_classes), names, strict=True))


def _check(content: _Content, facts: _Facts) -> _Content:
    """Refuse more than was published; add the fingerprint."""
    x, y, x_test, y_test = content[:4]
    if facts.domains:  # with an image in another domain it is another set
        y, y_test = y + facts.num_classes * content.train_groups, y_test + facts.num_classes * content.test_groups
    for found, published, what in _counts(content, facts):
        if found > published:
            raise DataError(f"{facts.title} has {published:,} {what}, but {found:,} were found; remove the others.")
    return content._replace(fingerprint=fingerprint(x, y, x_test, y_test))


def _departures(content: _Content, facts: _Facts) -> list[str]:
    """Say what is not as published."""
    counts = [(n, m, what) for n, m, what in _counts(content, facts) if not facts.at_most or what == "classes"]
    parts = [f"{n:,} of {m:,} {what}" for n, m, what in counts if n < m]
    if facts.domains:  # in pairs of training and test images
        pairs = zip(counts[::2], counts[1::2], strict=True)
        parts = [
            f"{what.rpartition(' in ')[2]} {n:,} of {m:,} training and {n_test:,} of {m_test:,} test images"
            for (n, m, what), (n_test, m_test, _) in pairs
            if n < m or n_test < m_test
        ]
    notes = [f"subset: {', '.join(parts)}"] if parts else []
    if content.jpeg and facts.title != "Tiny-ImageNet" and not facts.domains:  # these were published as JPEG
        notes.append("re-encoded as JPEG")
    elif not parts and facts.fingerprint not in ("", content.fingerprint):
        notes.append("images or labels differ from the published ones")
    return notes


def _replaced(content: _Content, facts: _Facts) -> list[str]:
    """Say what a complete set has in place of the published images."""
    notes = [*content.remarks, facts.stand_in] if facts.stand_in else list(content.remarks)
    fewer = [f"{n:,} of at most {m:,} {what}" for n, m, what in _counts(content, facts) if n < m and what != "classes"]
    return [*notes, ", ".join(fewer)] if facts.at_most and fewer else notes


def _remarks(content: _Content, facts: _Facts) -> list[str]:
    """Say what has to be known about the published set."""
    notes = [facts.remark] if facts.remark else []
    if content.shared:
        notes.append(f"{content.shared:,} test images are training images as well")
    return notes


# Cache


def _cache_file(name: str, source: _Source, root: Path) -> Path:
    """Name it so that it changes with the name, size or time of any source file."""
    key = hashlib.blake2b(f"1 {source.kind}".encode(), digest_size=8)  # raise the 1 when the content changes
    for file in source.files:
        stat = file.stat()
        key.update(f"{str(file).removeprefix(str(root))} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    folder = Path(os.environ.get("FEDNB_CACHE") or ROOT / "data" / "cache").expanduser()
    return folder / f"{name}-{key.hexdigest()}.npz"


def _read_cache(path: Path) -> _Content | None:
    """None if there is no cache or it is damaged in whatever way (zipfile checks the sums)."""
    try:
        with np.load(path, allow_pickle=False) as file:
            meta = json.loads(str(file["meta"]))
            arrays = [file[key] for key in _Content._fields[:4]]
            groups = [file[key] if key in file else None for key in ("train_groups", "test_groups")]
        more = *groups, tuple(meta.get("group_names", ())), meta.get("shared", 0), tuple(meta.get("remarks", ()))
        return _Content(*arrays, tuple(meta["classes"]), meta["jpeg"], meta["fingerprint"], *more)
    except Exception:
        return None


def _write_cache(path: Path, content: _Content) -> None:
    """Write under another name, then rename, so that nobody reads half a file. Failing is no error."""
    arrays = dict(zip(_Content._fields[:4], content[:4], strict=True))
    if content.train_groups is not None and content.test_groups is not None:
        arrays |= {"train_groups": content.train_groups, "test_groups": content.test_groups}
    kept = ("classes", "jpeg", "fingerprint", "group_names", "shared", "remarks")
    meta = json.dumps({key: getattr(content, key) for key in kept})
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(part, "wb") as file:
                np.savez(file, **arrays, meta=np.array(meta))
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        print(f"fednb: no cache written in {path.parent} ({_reason(error)})", file=sys.stderr)
