"""Data sets: all layouts agree, what is hostile or damaged is refused, the cache is renewed."""

import bz2
import gzip
import hashlib
import io
import os
import pickle
import re
import shutil
import struct
import tracemalloc
import zipfile
import zlib
from dataclasses import replace
from functools import partial
from pathlib import Path

import made_up_sets as sets
import numpy as np
import pytest
import torch
import torchvision
from conftest import random_states
from fednb.papers.foundations import METHODS
from made_up_sets import SMALL, encode, error, fake, write_images, write_npz, write_tree, write_zip
from PIL import Image

from fednb import build, data, settings
from fednb import records as ledger
from fednb import run as runner
from fednb.data import decode, own_folder, registered
from fednb.data.spec import SPECS
from fednb.places import Places

root, change = sets.root, sets.change


def cache_files() -> list[Path]:
    return sorted(Path(os.environ["FEDNB_CACHE"]).glob("*"))


@pytest.fixture
def publish(monkeypatch, change):
    """Let the files of a set in a folder be the published ones, for torchvision too."""

    def publish(name, folder):
        sums = {
            file: hashlib.md5((folder / file).read_bytes()).hexdigest()
            for file in SPECS[name].files
        }
        change(name, files=sums)
        for module in ("cifar", "svhn"):
            monkeypatch.setattr(f"torchvision.datasets.{module}.check_integrity", lambda *_: True)

    return publish


def cheap_error(name):
    """The sentence of a refusal that needs little memory."""
    tracemalloc.start()
    message = error(name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3e8, message
    return message


# --- layouts


def test_digits():
    before = random_states()
    found = data.load("digits", "/nowhere")
    assert cache_files() == [] and random_states() == before
    assert found.images.dtype == torch.uint8
    assert found.labels.dtype == torch.int64
    assert len(found.images) == 1438
    assert found.num_classes == 10
    assert found.source == "embedded"
    assert found.note == ""
    assert found.augmentation == data.Augmentation()
    assert found.fingerprint == "3a5f0f9fcc82e188"  # the split must never change
    pixels = found.images.double() / 255
    assert found.mean == (round(pixels.mean().item(), 4),)
    assert found.std == (round(pixels.std(correction=0).item(), 4),)


OFFICIAL, TREE, ZIPS, FILE = "official files", "image tree", "zip files", "file of arrays"
write_packed = partial(write_images, method=zipfile.ZIP_DEFLATED, prefix="some-folder/")
LAYOUTS = [
    ("cifar10", OFFICIAL, ".", sets.write_cifar10),
    ("cifar10", OFFICIAL, "cifar10", sets.write_cifar10),
    ("cifar10", TREE, "CIFAR10", write_images),
    ("cifar10", TREE, "cifar10", partial(write_images, suffix="webp", test="val")),
    ("cifar10", ZIPS, "cifar10.zip", write_packed),
    ("cifar10", ZIPS, ".", sets.write_zips),
    ("cifar10", FILE, "cifar10.npz", write_npz),
    ("mnist", OFFICIAL, "MNIST/raw", sets.write_idx),
    ("mnist", OFFICIAL, "mnist", partial(sets.write_idx, pack=True)),
    ("emnist_letters", OFFICIAL, "EMNIST/raw", partial(sets.write_emnist, pack=False)),
    ("emnist_letters", OFFICIAL, "emnist/gzip", sets.write_emnist),
    ("emnist_letters", OFFICIAL, "emnist_letters", sets.write_emnist),
    ("emnist_letters", TREE, "emnist_letters", partial(write_images, classes=sets.LETTERS)),
    ("emnist_letters", FILE, "emnist_letters/emnist_letters.npz", partial(write_npz, first=1)),
    ("tiny_imagenet", OFFICIAL, "tiny-imagenet-200", sets.write_tiny),
    ("tiny_imagenet", TREE, "tiny_imagenet", sets.write_tiny_tree),
    ("usps", OFFICIAL, "usps", sets.write_usps),
    ("usps", OFFICIAL, ".", sets.write_usps),
    ("svhn", OFFICIAL, "SVHN", sets.write_svhn),
    ("svhn", OFFICIAL, ".", sets.write_svhn),
    ("mnistm", OFFICIAL, "mnist_m", sets.write_mnistm),
]


@pytest.mark.parametrize(("name", "kind", "place", "write"), LAYOUTS)
@pytest.mark.filterwarnings("error")  # torch warns of arrays that cannot be written to
def test_all_layouts_agree(root, publish, name, kind, place, write):
    arrays = SMALL[name]
    write(root / place, arrays)
    if write in (sets.write_cifar10, sets.write_usps, sets.write_svhn):
        assert "is not the published file (its MD5 is another)" in error(name)
        publish(name, root / place)
    if kind == OFFICIAL:  # which come first
        write_npz(root / f"{name}.npz", fake(10, 10, arrays[0].shape[1:], 10, seed=9))
    found = data.load(name)
    assert found.source == data.where(name) == kind
    assert found.fingerprint == data.fingerprint(*arrays)
    assert found.classes == tuple(SPECS[name].classes or sets.SYNSETS)
    for i, fields in enumerate((("images", "labels"), ("test_images", "test_labels"))):
        by_class = kind in (TREE, ZIPS) or (name == "tiny_imagenet" and i == 0)
        order = np.argsort(arrays[2 * i + 1], kind="stable") if by_class else slice(None)
        for field, values in zip(fields, arrays[2 * i :], strict=False):
            assert np.array_equal(getattr(found, field), values[order])


def test_femnist_reads_the_first_of_nists_training_folders_and_tests_on_hsf_0(root, change):
    assert SPECS["femnist"].num_classes == 62
    assert SPECS["femnist"].sizes == (62 * 20 * 110, 62 * 20 * 15)
    change("femnist", sizes=[62 * 4, 62 * 2])
    images = sets.write_nist(folder := root / "femnist" / "by_class")
    shutil.copy(folder / "41/train_41/train_41_00000.png", folder / "41/hsf_0/hsf_0_00000.png")
    images["A", "hsf_0"][0] = images["A", "train"][0]
    found = data.load("femnist")
    assert found.classes == ("0", "A", "a") and found.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert np.array_equal(found.images, np.concatenate([images[c, "train"][:4] for c in "0Aa"]))
    tests = np.concatenate([images[c, "hsf_0"][:2] for c in "0Aa"])
    assert np.array_equal(found.test_images, tests)
    missing = "12 of at most 248 training images, 6 of at most 124 test images"
    assert found.note == f"subset: 3 of 62 classes; {missing}"
    assert found.remark == "1 test images are training images as well" and found.source == OFFICIAL
    # from the cache
    assert found.train_groups is None and repr(data.load("femnist")) == repr(found)


def test_fingerprint_sees_pixels_labels_splits_and_shape_but_not_order():
    x, y, x_test, y_test = SMALL["cifar10"]
    first = data.fingerprint(x, y, x_test, y_test)
    order = np.random.default_rng(1).permutation(len(x))
    assert re.fullmatch("[0-9a-f]{16}", first)
    assert data.fingerprint(x[order], y[order], x_test, y_test) == first
    tall = (-1, 1, 96, 32)
    others = [
        (x ^ (x == x.max()), y, x_test, y_test),
        (x, (y + 1) % 10, x_test, y_test),
        (x_test, y_test, x, y),
        (np.concatenate([x, x[:1]]), np.append(y, y[0]), x_test, y_test),
        (x.reshape(tall), y, x_test.reshape(tall), y_test),
    ]
    assert len({first, *(data.fingerprint(*arrays) for arrays in others)}) == 6


def test_a_set_is_described_in_one_line_without_a_path(root):
    write_images(root / "cifar10", SMALL["cifar10"])
    text = repr(data.load("cifar10"))
    assert "20 training and 10 test images, 3x32x32" in text
    assert "\n" not in text and str(root) not in text


COMPLETE = {"sizes": (20, 10), "fingerprint": data.fingerprint(*SMALL["cifar10"])}


@pytest.mark.parametrize(
    ("published", "flipped", "suffix", "note"),
    [
        ({}, 0, "png", "subset: 20 of 50,000 training images, 10 of 10,000 test images"),
        (COMPLETE, 0, "png", ""),
        (COMPLETE, 1, "png", "images or labels differ from the published ones"),
        ({"sizes": (21, 10)}, 0, "jpg", "subset: 20 of 21 training images; re-encoded as JPEG"),
    ],
)
def test_what_is_not_as_published_is_noted(root, change, published, flipped, suffix, note):
    x, *others = SMALL["cifar10"]
    change("cifar10", **published)
    write_images(root / "cifar10", (x ^ flipped, *others), suffix=suffix)
    assert data.load("cifar10").note == note


def test_more_images_than_published_are_refused(root, change):
    change("cifar10", sizes=(19, 10))
    write_images(root / "cifar10", SMALL["cifar10"])
    assert "has 19 training images, but 20 were found" in error()


def test_a_stand_in_says_what_it_stands_for(root):
    write_npz(root / "emnist_letters.npz", SMALL["emnist_letters"], first=1)
    missing = "52 of 124,800 training images, 26 of 20,800 test images"
    stand_in = "a stand-in for FEMNIST: 26 merged letters of 28x28 pixels, without writers"
    assert data.load("emnist_letters").note == f"subset: {missing}; {stand_in}"


# --- what can be wrong


def test_unknown_and_missing_sets(root):
    assert all(name in error("cifar-10") for name in (*data.NAMES, "did you mean 'cifar10'?"))
    assert "did you mean" not in error("qqqq") and "''" in error("") and error("x" * 3000)
    for name in set(data.NAMES) - {*data.EMBEDDED, "synthdigits", "digits5"}:
        message = error(name)
        assert f"was not found in {root}" in message
        assert "FEDNB_DATA" in message
        assert data.where(name) == "-"
        assert (SPECS[name].by_hand or f"`python -m fednb data {name}`") in message
    assert "nobody-has-this-name/data" in error("cifar10", "~nobody-has-this-name/data")


def written(content):
    return lambda path: path.write_bytes(content)


def replaced(make):
    return lambda path: (path.unlink(), make(path))


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def damaged(path):
    path.write_bytes(path.read_bytes().replace(b"IDAT", b"idat", 1))


def tiger(*splits):
    return lambda path: [(path / split / "cat").rename(path / split / "tiger") for split in splits]


def packed(files):
    return lambda path: write_zip(path, files)


def arrays_with(**arrays):
    return lambda path: write_npz(path, SMALL["cifar10"], **arrays)


def idx(number, side):
    return lambda path: sets.write_idx(path, fake(number, 10, (1, side, side), 10))


class Evil:
    def __reduce__(self):
        return os.mkdir, (os.environ["FEDNB_CACHE"],)


CAT = f"train/cat/{SMALL['cifar10'][1].tolist().index(3):04}.png"
ODD = encode(np.zeros((3, 32, 31), np.uint8))
ONLY_TRAIN = [file for file in sets.members(SMALL["cifar10"]) if file[0].startswith("train")]
NO_IMAGES = {"x_train": np.zeros((0, 32, 32, 3), np.uint8), "y_train": np.arange(0)}
TRAIN, TEST = "train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
NOTES, NO_LINE = "val/val_annotations.txt", "has a line that is not a file name and a class"
LIST, TO_DO = "mnist_m_test_labels.txt", "put a good copy in its place"
# data set, where and how it is written: what becomes of which file, the error
WRONG = {
    ("cifar10", "cifar10", write_images): [
        (CAT, written(b""), f"CIFAR-10: cifar10/{CAT} cannot be read (not an image); {TO_DO}, or"),
        (CAT, written(ODD), f"{CAT} is 31x32 pixels instead of 32x32"),
        (CAT, replaced(lambda path: path.symlink_to("/nowhere.png")), "be read (No such file"),
        (CAT, replaced(os.mkfifo), f"{CAT} cannot be read (not a file)"),
        ("", tiger("test"), "class cat is only in one split"),
        ("", tiger("test", "train"), "CIFAR-10 has no class tiger; its classes are airplane, auto"),
    ],
    ("cifar10", "cifar10.zip", write_images): [
        ("", damaged, "cifar10.zip/train/"),
        ("", cut, "CIFAR-10: cifar10.zip cannot be read (File is not a zip file)"),
        ("", packed(ONLY_TRAIN), "CIFAR-10 has no test images"),
        ("", packed([("airplane/0.png", b"no split")]), "CIFAR-10 has no training images"),
        ("", lambda path: shutil.copy(path, path.with_stem("cifar10-b")), "was already seen in"),
    ],
    ("cifar10", "cifar10.npz", write_npz): [
        ("", written(b"nothing"), "cifar10.npz cannot be read (File is not a zip file)"),
        ("", arrays_with(y_train=np.arange(20) % 11), f"npz has labels outside of 0..9; {TO_DO}"),
        ("", arrays_with(y_train=np.arange(19) % 10), "does not hold one image of 32x32 pixels"),
        ("", arrays_with(x_test=np.zeros((10, 32, 32, 3))), "does not hold images with labels"),
        ("", arrays_with(**NO_IMAGES), "holds no images"),
        ("", arrays_with(x_test=np.array([Evil()], object)), "be read (Object arrays cannot be"),
    ],
    ("mnist", "mnist", sets.write_idx): [
        (TRAIN, written(pickle.dumps(Evil)), f"mnist/{TRAIN} cannot be read (not an idx file)"),
        (TRAIN, cut, f"{TRAIN} cannot be read"),
        (TEST, Path.unlink, f"{TEST} cannot be read (No such file"),
        ("", idx(20, 16), "one image of 28x28 pixels per label"),
        ("", idx(0, 28), f"{TRAIN} holds no images"),
    ],
    ("mnist", "mnist", partial(sets.write_idx, pack=True)): [
        (f"{TRAIN}.gz", cut, "ubyte.gz cannot be read")
    ],
    ("emnist_letters", "emnist_letters.npz", write_npz): [
        ("", lambda path: None, "has labels outside of 1..26")
    ],
    ("mnistm", "mnist_m", sets.write_mnistm): [
        ("mnist_m_train/00000007.png", written(ODD), f"31x32 pixels instead of 32x32; {TO_DO}."),
        (LIST, written(b"00000000.png\n"), f"{LIST} {NO_LINE}"),
        (LIST, Path.unlink, f"{LIST} cannot be read (No such file"),
    ],
    ("tiny_imagenet", "tiny-imagenet-200", sets.write_tiny): [
        (NOTES, written(b"../../../secret.png\tn01\n"), f"{NOTES} {NO_LINE}"),
        (NOTES, written(b"/etc/secret.png\tn01\n"), f"{NOTES} {NO_LINE}"),
        ("val/images/val_1.JPEG", Path.unlink, "val/images/val_1.JPEG cannot be read (No such fi"),
        (NOTES, Path.unlink, "Tiny-ImageNet was not found"),
    ],
    ("usps", "usps", sets.write_usps): [
        ("usps.t.bz2", Path.unlink, "usps.t.bz2 cannot be read (No such file")
    ],
}


@pytest.mark.parametrize(
    ("case", "path", "how", "sentence"), [(case, *wrong) for case in WRONG for wrong in WRONG[case]]
)
def test_what_is_wrong_with_a_file_is_one_sentence(root, case, path, how, sentence):
    name, place, write = case
    write(root / place, SMALL[name])
    how(root / place / path)
    message = error(name)
    assert sentence in message and (str(root) in message) == ("not found" in message)
    assert cache_files() == []  # what failed is not kept, and what is evil not run
    assert data.where(name) == "-" or how != Path.unlink


def test_nothing_is_unpickled_but_the_published_batches(root, publish):
    sets.write_cifar10(root, SMALL["cifar10"])
    publish("cifar10", root)
    for file in SPECS["cifar10"].files:
        good = (root / file).read_bytes()
        (root / file).write_bytes(pickle.dumps(Evil()))
        assert f"{file} is not the published file" in error() and cache_files() == []
        (root / file).write_bytes(good)
    assert data.load("cifar10").source == OFFICIAL


def understate(path, size):
    """Let all members of a zip file declare that they are so large."""
    content = bytearray(path.read_bytes())
    for mark, place in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        for at in re.finditer(re.escape(mark), bytes(content)):
            struct.pack_into("<I", content, at.start() + place, size)
    path.write_bytes(content)


def test_packed_bombs_are_refused_before_they_are_unpacked(root):
    sets.write_idx(root / "mnist", SMALL["mnist"], pack=True)
    (root / "mnist" / f"{TRAIN}.gz").write_bytes(gzip.compress(bytes(2**26)) * 48)  # 3 GB
    too_many = f"{TRAIN}.gz cannot be read (more than 47,044,096 bytes are too many)"
    assert too_many in cheap_error("mnist")
    usps, svhn = ("usps.bz2", "usps.t.bz2"), ("train_32x32.mat", "test_32x32.mat")
    for name, files in {"usps": usps, "svhn": svhn}.items():
        write_tree(root, [(file, bz2.compress(bytes(2**26)) * 48) for file in files])
        assert f"{files[0]} is not the published file (its MD5 is another)" in cheap_error(name)


@pytest.mark.parametrize(
    ("method", "size", "declared", "reason"),
    [
        (zipfile.ZIP_DEFLATED, 2**26 + 1, None, "bytes are too many"),
        (zipfile.ZIP_DEFLATED, 2**28, 1000, "CRC"),
        (zipfile.ZIP_BZIP2, 2**28, 1000, "neither stored nor deflated"),
    ],
)
def test_zip_bombs_are_refused_before_they_are_unpacked(root, method, size, declared, reason):
    images, arrays = root / "cifar10.zip", root / "mnist.npz"
    for path, name in ((images, "train/cat/a.png"), (arrays, "x_train.npy")):
        write_zip(path, [(name, bytes(size))], method)
        if declared:
            understate(path, declared)
    with zipfile.ZipFile(images, "a") as archive:
        archive.writestr("test/cat/a.png", ODD)
    cannot = f"cannot be read .*{reason}"
    assert re.search(f"cifar10.zip/train/cat/a.png {cannot}", cheap_error("cifar10"))
    assert re.search(f"mnist.npz {cannot}", cheap_error("mnist"))


def test_what_declares_to_be_huge_is_refused(root):
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4s", 13, b"IHDR")
    body = struct.pack(">IIBBBBB", 9000, 9000, 8, 2, 0, 0, 0)
    bomb = header + body + struct.pack(">I", zlib.crc32(b"IHDR" + body)) + ODD[33:]
    for split in ("train", "val"):
        write_tree(root / "syn" / split, [(f"{label}/a.png", bomb) for label in range(10)])
    too_many = "syn/train/0/a.png cannot be read (9000x9000 pixels are too many)"
    assert too_many in cheap_error("synthdigits")
    declared = {"descr": "|u1", "fortran_order": False, "shape": (2**50, 28, 28)}
    np.lib.format.write_array_header_1_0(arrays := io.BytesIO(), declared)
    write_zip(root / "mnist.npz", [("x_train.npy", arrays.getvalue())])
    assert "mnist.npz cannot be read" in error("mnist")


def test_a_run_keeps_decoded_images_where_its_places_say(root, tmp_path):
    write_npz(root / "mnist.npz", SMALL["mnist"])
    places = replace(Places.from_environment(), cache=tmp_path / "elsewhere")
    build.load_dataset("mnist", places)
    assert cache_files() == [] and list((tmp_path / "elsewhere").glob("mnist-*.npz"))


@pytest.mark.parametrize("place", ["cifar10", "cifar10.zip"])
def test_cache_is_renewed_when_a_source_changes(root, place):
    x, *others = SMALL["cifar10"]
    for number, arrays in enumerate([(x, *others), (x ^ 1, *others)], 1):
        write_images(root / place, arrays)
        assert data.load("cifar10").fingerprint == data.fingerprint(*arrays)
        assert len(cache_files()) == number
    os.utime(max(file for file in root.rglob("*") if file.is_file()), (1, 1))
    assert data.load("cifar10").fingerprint == data.fingerprint(*arrays) and len(cache_files()) == 3


@pytest.mark.parametrize("damage", ["none", "garbage", "cut", "flip", "folder"])
def test_cache_gives_the_same_and_is_rebuilt_if_it_is_corrupt(root, capsys, monkeypatch, damage):
    write_images(root / "cifar10", SMALL["cifar10"])
    first = data.load("cifar10")
    (path,) = cache_files()
    good = path.read_bytes()
    middle = len(good) // 2
    flipped = good[:middle] + bytes([good[middle] ^ 255]) + good[middle + 1 :]
    path.write_bytes({"garbage": b"", "cut": good[:middle], "flip": flipped}.get(damage, good))
    if damage == "none":
        monkeypatch.setattr(decode, "Image", None)  # nothing is decoded
    if damage == "folder":  # in which nothing can be written
        monkeypatch.setenv("FEDNB_CACHE", str(path))
    second = data.load("cifar10")
    for field, value in vars(first).items():
        assert np.array_equal(value, getattr(second, field)), field
    second.images[0] = 0  # the arrays can be written to
    told = capsys.readouterr()  # and there is no progress bar without a terminal
    assert path.read_bytes() == good
    assert told.out == ""
    assert ("no cache written in" in told.err) == (damage == "folder")


# --- download (without a network)


def test_download_fetches_what_is_missing_and_says_what_it_found(root, capsys, monkeypatch, change):
    calls, datasets, folder = [], torchvision.datasets, root / "new"

    def archive(url, folder, md5, remove_finished):
        calls.append((url, md5))
        characters = SPECS["femnist"].classes
        sets.write_nist(Path(folder) / "by_class", classes=characters, train=1, tests=1)

    def fetch(place, write, name):
        def fetched(folder, **options):
            calls.append((folder, options))
            write(Path(folder) / place, SMALL[name])

        return fetched

    letters = fetch("EMNIST/raw", sets.write_emnist, "emnist_letters")
    monkeypatch.setattr(datasets, "EMNIST", letters)
    monkeypatch.setattr(datasets, "MNIST", fetch("MNIST/raw", sets.write_idx, "mnist"))
    monkeypatch.setattr(datasets.utils, "download_and_extract_archive", archive)
    change("mnist", sizes=[20, 10], fingerprint="")
    change("emnist_letters", sizes=[52, 26])
    for _ in range(2):  # complete after the first time, in spite of the notes
        for name in ("mnist", "emnist_letters", "femnist"):
            data.download(name, folder)
    assert calls == [
        (str(folder), {"download": True}),
        (str(folder), {"download": True, "split": "letters"}),
        (SPECS["femnist"].page, None),
    ]
    out = capsys.readouterr().out
    assert data.fingerprint(*SMALL["mnist"]) in out
    assert "62 training and 62 test images, 1x128x128, 62 classes" in out


def test_failed_download(root, monkeypatch):
    def fail(*args, **options):
        raise OSError("<urlopen error no route>")

    for place in ("CIFAR100", "SVHN", "USPS", "utils.download_and_extract_archive"):
        monkeypatch.setattr(f"torchvision.datasets.{place}", fail)
    for name in ("cifar100", "tiny_imagenet", "svhn", "usps"):
        told = rf"could not be downloaded \(<urlopen error no route>\).*{SPECS[name].page}.*{root}"
        with pytest.raises(data.DataError, match=told):
            data.download(name)


# --- one's own


def pets(*tops, number=5, grey=False, side=40, seed=0):
    """Pairs (TOP/CLASS/FILE, bytes) of made-up images, of several sizes if there is no seed."""
    rng = np.random.default_rng(seed)
    for top in tops:
        for label in ("cat", "dog"):
            for i in range(number):
                channels = 1 if grey or i else 3
                width = side if seed else side + i
                image = rng.integers(0, 256, (channels, side, width), np.uint8)
                yield f"{top}/{label}/{i}.png".lstrip("/"), encode(image)


@pytest.mark.parametrize("name", ["folder:pets", "folder:pets.zip"])
@pytest.mark.parametrize(
    ("tops", "sizes", "domains"),
    [
        (("",), (8, 2), ()),
        (("train", "val"), (10, 10), ()),
        (("lab", "home"), (16, 4), ("home", "lab")),
    ],
)
def test_a_folder_of_images_is_a_data_set(root, tops, sizes, domains, name):
    write_zip(root / "pets.zip", pets(*tops), prefix="in/a/")
    write_tree(root / "pets", pets(*tops))
    found = data.load(name)
    pixels = found.images.double() / 255
    assert found.name == name
    assert found.classes == ("cat", "dog")
    assert found.images.shape[1:] == (3, 32, 32)
    assert (len(found.labels), len(found.test_labels)) == sizes
    assert data.spec_of(name).sizes[0] == sizes[0]
    assert found.group_names == tuple(data.spec_of(name).domains) == domains
    divided = "" if "train" in tops else "; every fifth image of a class (by name) is a test image"
    assert found.note == f"images of several sizes, all resized to 32x32{divided}"
    assert found.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), abs=1e-4)
    assert found.std == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist(), abs=1e-4)
    assert data.load(f"{name}@16").images.shape[1:] == (3, 16, 16)
    if domains:
        assert (2 * found.test_groups + found.test_labels).tolist() == [0, 1, 2, 3]


def test_own_images_are_grey_if_all_are_and_renewed_when_they_change(root):
    write_tree(root / "pets", pets("", grey=True, side=28))
    first = data.load("folder:pets@28")
    assert np.array_equal(first.images[0, 0], np.asarray(Image.open(root / "pets/cat/0.png")))
    write_tree(root / "pets", [("cat/6.png", ODD)])
    assert data.load("folder:pets@28").fingerprint != first.fingerprint


FIVE_OF_TWO = [f"x/{label}/{i}.png" for label in "ab" for i in range(5)]


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ([], "there is no pets where you are, nor in .*; give its whole path"),
        (["notes.txt"], "holds no images"),
        (["cat/0.png", "0.png"], "holds images at several depths"),
        (["cat/0.png", "cat/1.png"], "holds images of one class only, cat"),
        (["cat/0.png", "dog/1.png"], "has no test images"),
        ([*FIVE_OF_TWO, "y/a/0.png"], "has no test images in y"),
        (FIVE_OF_TWO, r"pets/x/a/0.png cannot be read \(not an image\)"),
    ],
)
def test_what_is_wrong_with_a_folder_is_one_sentence(root, files, sentence):
    write_tree(root / "pets", [(name, b"nothing") for name in files])
    assert re.search(sentence, error("folder:pets"))


@pytest.mark.parametrize(
    ("name", "sentence"), [("pets", "neither a folder nor a zip file"), ("pets@0", "the side")]
)
def test_what_is_no_folder_is_refused(root, name, sentence):
    (root / "pets").write_bytes(b"nothing")
    assert sentence in error(f"folder:{name}")


def run(dataset, **given):
    asked = settings.resolve(
        METHODS, method="FedAvg", dataset=dataset, num_rounds=1, local_epochs=1, **given
    )
    return runner.run(asked, METHODS, workers=1), ledger.path(asked, ledger.runs_folder())


def test_records_know_a_folder_by_its_images_and_not_by_its_path(root, tmp_path):
    places = [root / "pets", tmp_path / "a" / "pets", tmp_path / "b" / "pets"]
    for place, seed in zip(places, (1, 1, 2), strict=True):
        write_tree(place, pets("lab", "home", number=10, seed=seed))
    here, path = run("folder:pets")
    there, same = run(f"folder:{places[1]}")
    others, another = run(f"folder:{places[2]}")
    assert path == same != another and here == there and "folder-pets-" in path.name
    for record in (here, others):
        name = f"folder:pets#{record['dataset']['fingerprint'][:8]}"
        assert record["settings"]["dataset"] == name
        assert record["settings"]["partition"] == "domain"
        assert record["partition"]["sizes"] == [16, 16]
        assert list(record["final"]["groups"]) == ["home", "lab"]
        assert str(tmp_path) not in f"{record}"
    assert data.load(here["settings"]["dataset"]).fingerprint == here["dataset"]["fingerprint"]


def test_a_folder_is_listed_once_for_its_settings_and_once_when_it_is_loaded(root, monkeypatch):
    listings = []
    images_below = own_folder.images_below

    def listed(path, **options):
        listings.append(path)
        return images_below(path, **options)

    monkeypatch.setattr(own_folder, "images_below", listed)
    write_tree(root / "pets", pets("", number=10))
    given = {"method": "FedAvg", "dataset": "folder:pets", "partition": "iid"}
    for seed in (1, 2):
        settings.resolve(METHODS, seed=seed, **given).flat()
    assert listings == [root / "pets"]
    data.load("folder:pets")
    assert listings == 2 * [root / "pets"]


def test_an_image_that_is_in_a_zip_twice_is_one_sentence(root):
    files = list(pets(""))
    with pytest.warns(UserWarning, match="Duplicate name"):
        write_zip(root / "pets.zip", [*files, files[0]])
    assert error("folder:pets.zip").endswith("cat/0.png was already seen in another place.")


@pytest.mark.parametrize("ask", [data.load, data.recorded_name], ids=lambda ask: ask.__name__)
def test_a_fingerprint_that_is_asked_for_is_that_of_the_images(root, ask):
    write_tree(root / "pets", pets(""))
    name = data.recorded_name("folder:pets")
    assert ask(name)
    digits = name.rpartition("#")[2]
    with pytest.raises(data.DataError, match=f"have the fingerprint {digits}: .*#12345678"):
        ask("folder:pets#12345678")


def test_sets_are_looked_for_in_the_places_that_are_given(root, tmp_path):
    places = replace(Places.from_environment(), data=tmp_path / "other", cache=tmp_path / "kept")
    write_tree(places.data / "pets", pets(""))
    assert data.load("folder:pets", places).name == "folder:pets"
    assert data.where("folder:pets", places) == "own images" and data.where("folder:pets") == "-"
    assert data.whole_name("folder:pets", places) == f"folder:{places.data / 'pets'}"
    assert len(list(places.cache.iterdir())) == 1 and cache_files() == []


def test_a_folder_is_looked_for_where_one_is_now(root, tmp_path, monkeypatch):
    for folder, seed in (("a", 1), ("b", 2)):
        write_tree(tmp_path / folder / "cats", pets("", number=10, seed=seed))
    names = []
    for folder in ("a", "b", "a"):
        monkeypatch.chdir(tmp_path / folder)
        names.append(data.recorded_name("folder:cats"))
    assert names[0] == names[2] != names[1]


@pytest.fixture
def arrays(monkeypatch):
    """What `register` takes: three classes in two domains."""
    monkeypatch.setitem(registered.REGISTERED, "mine", None)  # forgotten afterwards
    names = ("images", "labels", "test_images", "test_labels")
    split = dict(zip(names, fake(90, 90, (3, 16, 16), 3), strict=True))
    groups = np.arange(90) % 2
    return split | {"train_groups": groups, "test_groups": groups, "group_names": ("lab", "home")}


def test_registered_arrays_are_a_data_set(arrays):
    images = torch.from_numpy(arrays["images"])
    arrays["images"] = arrays["images"].transpose(0, 2, 3, 1)
    arrays["labels"] = torch.from_numpy(arrays["labels"])
    dataset = data.register("mine", **arrays)
    assert data.where("mine") == "registered"
    assert torch.equal(dataset.images, images)
    assert repr(data.load("mine")) == repr(dataset)
    assert data.spec_of("mine").sizes == (90, 90)


@pytest.mark.parametrize("split", settings.SPLITS)
def test_every_split_takes_registered_arrays(arrays, split):
    dataset = data.register("mine", **arrays)
    given = {} if split == "domain" else {"num_clients": 3}
    if "shot" in split:
        given["shots"] = 5
    record, _ = run("mine", partition=split, **given)
    assert record["status"] == "finished"
    assert record["dataset"]["fingerprint"] == dataset.fingerprint


@pytest.mark.parametrize(
    ("sentence", "spoil"),
    [
        ("labels outside of 0..2", lambda a: {"test_labels": a["test_labels"] + 1}),
        ("does not hold images with labels", lambda a: {"images": a["images"] / 255}),
        ("does not hold one image", lambda a: {"images": a["images"][:, :, :9]}),
        ("two classes or more", lambda a: {"labels": 0 * a["labels"]}),
        ("was registered with other images already", lambda a: {"images": a["test_images"]}),
        ("a position in group_names", lambda a: {"test_groups": a["test_groups"] - 1}),
        ("of each group in both splits", lambda a: {"test_groups": 0 * a["test_groups"]}),
        ("a group for each image", lambda a: {"test_groups": a["test_groups"][:-1]}),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arrays, sentence, spoil):
    data.register("mine", **arrays)
    with pytest.raises(data.DataError, match=sentence):
        data.register("mine", **(arrays | spoil(arrays)))


def test_a_published_sets_name_cannot_be_registered(arrays):
    with pytest.raises(data.DataError, match="no published set's name"):
        data.register("mnist", **arrays)
