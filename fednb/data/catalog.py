"""What is published about each data set, how the papers' code prepares it, and where its files are looked for."""

from __future__ import annotations

import difflib
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fednb.data.dataset import Augmentation, DataError

NIST_TRAIN, NIST_TEST = 20 * 110, 20 * 15  # files per class that FedProto's code reads
EMBEDDED = ("digits", "digits5_mini")  # made of what is installed
DIGITS5 = ("mnist", "usps", "svhn", "synthdigits", "mnistm")  # the sets that make the domains of Digit-5, in their order


@dataclass(frozen=True)
class Facts:
    """What is published about a set.

    Where `at_most`, `sizes` are bounds and the true sizes are unknown. Of a set of several domains, `domains` holds the
    sizes of each; None: they are unknown.
    """

    name: str
    title: str
    shape: tuple[int, int, int]  # C, H, W
    sizes: tuple[int, int]  # training and test images
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: Augmentation = field(default_factory=Augmentation)
    classes: tuple[str, ...] = ()  # where a tree must use the official names
    folders: tuple[str, ...] = ()  # one of which holds the official files
    files: tuple[str, ...] = ()
    pictures: tuple[str, ...] = ()  # folders of images that belong to the official files
    also: tuple[str, ...] = ()  # other names that its folder, zip files and file of arrays may have
    page: str = ""  # for people who download by hand
    by_hand: str = ""  # what to get and where to put it, where no command can fetch it
    fingerprint: str = ""  # of the complete set, where known
    test_split: str = "test"  # taken where a tree has both `test` and `val`
    first_label: int = 0  # from which the official labels count
    transposed: bool = False  # the official files hold each image with rows and columns exchanged
    at_most: bool = False
    resized: bool = False  # images of any size are accepted, and brought to `shape`
    domains: Mapping[str, tuple[int, int] | None] = field(default_factory=dict)
    shorter_side: int | None = None  # of all published images, in pixels; None: it varies
    stand_in: str = ""  # for what; goes into the note of the data set
    remark: str = ""  # what has to be known of the complete set


def _idx(*splits: str) -> tuple[str, ...]:
    return tuple(f"{split}-{kind}-ubyte" for split in splits for kind in ("images-idx3", "labels-idx1"))


_DIGITS = tuple(string.digits)
_GREY, _HALF = ((0.1307,), (0.3081,)), ((0.5,) * 3, (0.5,) * 3)  # mean and std
# RethinkFL's code, on which the results of FPL and FedPLCC rest: every image as 32x32 RGB, ImageNet's constants, random
# crops and flips, on digits too. The sizes are those of the domains.
_RETHINK: dict[str, Any] = {
    "shape": (3, 32, 32),
    "sizes": (0, 0),
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
}
_RETHINK |= {"augmentation": Augmentation(pad=4, flip=True), "resized": True}

# fmt: off
_ALL = (
    Facts("digits", "digits", (1, 8, 8), (1438, 359), 10, (0.3058,), (0.3764,), classes=_DIGITS),
    Facts("mnist", "MNIST", (1, 28, 28), (60_000, 10_000), 10, *_GREY, classes=_DIGITS, files=_idx("train", "t10k"),
          folders=("MNIST/raw", "mnist/MNIST/raw", "mnist"), fingerprint="7d3a935cd638b597",
          page="https://ossci-datasets.s3.amazonaws.com/mnist/"),
    Facts("cifar10", "CIFAR-10", (3, 32, 32), (50_000, 10_000), 10,
          mean=(125.3 / 255, 123.0 / 255, 113.9 / 255), std=(63.0 / 255, 62.1 / 255, 66.7 / 255),
          augmentation=Augmentation(pad=4, pad_mode="reflect", flip=True),
          classes=tuple("airplane automobile bird cat deer dog frog horse ship truck".split()),
          folders=("cifar-10-batches-py", "cifar10/cifar-10-batches-py"), fingerprint="1a328eb2a9b73749",
          files=(*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"),
          page="https://www.cs.toronto.edu/~kriz/cifar.html"),
    Facts("cifar100", "CIFAR-100", (3, 32, 32), (50_000, 10_000), 100,
          mean=(0.50708, 0.48655, 0.44092), std=(0.26733, 0.25644, 0.27615),
          augmentation=Augmentation(pad=4, flip=True, rotation=15.0),
          folders=("cifar-100-python", "cifar100/cifar-100-python"), files=("train", "test", "meta"),
          page="https://www.cs.toronto.edu/~kriz/cifar.html"),
    Facts("tiny_imagenet", "Tiny-ImageNet", (3, 64, 64), (100_000, 10_000), 200, *_HALF,
          folders=("tiny-imagenet-200", "tiny_imagenet/tiny-imagenet-200"), files=("val/val_annotations.txt",),
          pictures=("train", "val/images"), test_split="val",  # the published test split has no labels
          page="http://cs231n.stanford.edu/tiny-imagenet-200.zip"),
    Facts("emnist_letters", "EMNIST letters", (1, 28, 28), (124_800, 20_800), 26, *_GREY,  # FedProto's for its handwriting
          classes=tuple(string.ascii_uppercase),  # upper and lower case are merged
          folders=("EMNIST/raw", "emnist/gzip", "emnist_letters"), files=_idx("emnist-letters-train", "emnist-letters-test"),
          first_label=1, transposed=True, page="https://www.nist.gov/itl/products-and-services/emnist-dataset",
          stand_in="a stand-in for FEMNIST: 26 merged letters of 28x28 pixels, without writers"),
    # What FedProto calls FEMNIST: the first images of each class of NIST's special database 19 at their full size.
    # Its code reads 20 clients x 110 files of train_XX for training and 20 x 15 of hsf_0 for testing.
    Facts("femnist", "FEMNIST", (1, 128, 128), (62 * NIST_TRAIN, 62 * NIST_TEST), 62, *_GREY, at_most=True,
          classes=tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase),
          folders=("by_class", "femnist/by_class"), page="https://s3.amazonaws.com/nist-srd/SD19/by_class.zip"),
    # The other digits of Digit-5, each a set of its own.
    Facts("usps", "USPS", (1, 16, 16), (7_291, 2_007), 10, (0.5,), (0.5,), classes=_DIGITS,
          folders=("usps", "USPS", "."), files=("usps.bz2", "usps.t.bz2"),
          page="https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/"),
    Facts("svhn", "SVHN", (3, 32, 32), (73_257, 26_032), 10, *_HALF, classes=_DIGITS, also=("svhn_small",),
          folders=("svhn", "SVHN", "."), files=("train_32x32.mat", "test_32x32.mat"),
          page="http://ufldl.stanford.edu/housenumbers/"),
    # The set that FPL and FedPLCC use; its test set is that small.
    Facts("synthdigits", "SynthDigits", (3, 32, 32), (10_000, 2_000), 10, *_HALF, classes=_DIGITS, also=("syn",),
          resized=True, folders=("synthdigits", "SynthDigits", "."), files=("synth_train_32x32.mat", "synth_test_32x32.mat"),
          by_hand="put it there as syn/train/CLASS/*.png and syn/val/CLASS/*.png, as RethinkFL reads it"),
    Facts("mnistm", "MNIST-M", (3, 32, 32), (59_001, 9_001), 10, *_HALF, classes=_DIGITS, also=("mnist_m",),
          folders=("mnist_m", "mnistm"), files=("mnist_m_train_labels.txt", "mnist_m_test_labels.txt"),
          pictures=("mnist_m_train", "mnist_m_test"),
          by_hand="put the release of its authors (Y. Ganin and V. Lempitsky) there: the folders mnist_m_train and "
          "mnist_m_test and the lists mnist_m_train_labels.txt and mnist_m_test_labels.txt, in mnist_m/"),
    # Sets of several domains, for FedPLCC; the domains are in the order of its tables.
    Facts("digits5_mini", "Digit-5 in small", num_classes=10, classes=_DIGITS,
          **_RETHINK | {"shape": (3, 16, 16), "augmentation": Augmentation(pad=2), "resized": False},
          domains=dict.fromkeys(("Digits", "Slanted", "Blended", "Fonts", "Scenes"), (400, 150)),
          stand_in="a stand-in for Digit-5, made of scikit-learn's digits and photographs and matplotlib's fonts"),
    Facts("digits5", "Digit-5", **_RETHINK, num_classes=10, classes=_DIGITS,
          domains={"MNIST": (60_000, 10_000), "USPS": (7_291, 2_007), "SVHN": (73_257, 26_032), "Synth": (10_000, 2_000),
                   "MNIST-M": (59_001, 9_001)},
          remark="the digits of MNIST-M are those of MNIST, training images from training images and test from test"),
    Facts("office10", "Office-10", **_RETHINK, num_classes=10, also=("office_caltech_10",),
          classes=tuple("back_pack bike calculator headphones keyboard laptop_computer monitor mouse mug projector".split()),
          domains={"Caltech": (899, 224), "Amazon": (768, 190), "Webcam": (237, 58), "DSLR": (127, 30)},
          remark="Webcam and DSLR show the same objects, several times each",
          by_hand="get the images of Office-Caltech-10 (B. Gong et al., CVPR 2012) and put them there as "
          "office10/DOMAIN/CLASS/*.jpg, or as such a tree in office10.zip; DOMAIN is caltech, amazon, webcam or dslr"),
    Facts("pacs", "PACS", **_RETHINK, num_classes=7, classes=tuple("dog elephant giraffe guitar horse house person".split()),
          domains={"Photo": (1336, 334), "Art painting": (1640, 408), "Cartoon": (1876, 468), "Sketch": (3144, 785)},
          shorter_side=227, stand_in="a stand-in for DomainNet",
          by_hand="get the images of PACS (D. Li et al., ICCV 2017) and put them there as pacs/DOMAIN/CLASS/*.jpg, or as "
          "such a tree in pacs.zip; DOMAIN is photo, art_painting, cartoon or sketch"),
    Facts("domainnet", "DomainNet", **_RETHINK, num_classes=10,
          classes=tuple("bird feather headphones ice_cream teapot tiger whale windmill wine_glass zebra".split()),
          domains=dict.fromkeys(("Clipart", "Infograph", "Painting", "Quickdraw", "Real", "Sketch")),
          remark="ten classes, those of FedBN and FedPCL; FedPLCC does not name its own",
          by_hand="get the six zip files and the lists DOMAIN_train.txt and DOMAIN_test.txt from http://ai.bu.edu/M3SDA/ "
          "and put them into domainnet/, packed or unpacked; "
          "DOMAIN is clipart, infograph, painting, quickdraw, real or sketch"),
)
# fmt: on

FACTS = {facts.name: facts for facts in _ALL}
NAMES = tuple(FACTS)


def facts_of(name: str) -> Facts:
    """Look a set up by its name; a `DataError` names all sets if there is none."""
    if name not in FACTS:
        close = difflib.get_close_matches(str(name)[:40].lower(), NAMES, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise DataError(f"{str(name)[:40]!r} is not a known data set; known are {', '.join(NAMES)}.{hint}")
    return FACTS[name]


def domain_names(name: str) -> tuple[str, ...]:
    """The domains of a data set in the order of its groups, without loading it; empty if it has none."""
    return tuple(FACTS[name].domains)


def num_images(name: str) -> int:
    """Training images of the published set, without loading it."""
    return sum(sizes[0] for sizes in FACTS[name].domains.values() if sizes) or FACTS[name].sizes[0]
