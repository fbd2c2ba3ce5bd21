"""Data sets: all layouts agree, nothing hostile gets through, every kind of damage is one sentence, the cache is renewed."""

import bz2
import dataclasses
import gzip
import hashlib
import io
import os
import pickle
import random
import re
import struct
import subprocess
import sys
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from fednb.papers.foundations import METHODS
from PIL import Image

from fednb import ROOT, data
from fednb.data import catalog, loading, readers
from fednb.experiments import runner, settings

CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck".split()
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """Give each test its own data and cache folders."""
    monkeypatch.setenv("FEDNB_DATA", str(tmp_path / "sets"))
    monkeypatch.setenv("FEDNB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "sets").mkdir()
    return tmp_path / "sets"


def cache_files() -> list[Path]:
    return sorted(Path(os.environ["FEDNB_CACHE"]).glob("*"))


@pytest.fixture
def facts(monkeypatch):
    """Change what is published about a set."""

    def change(name, **given):
        monkeypatch.setitem(catalog.FACTS, name, dataclasses.replace(catalog.FACTS[name], **given))

    return change


def fake(num_train, num_test, shape, num_classes, seed=0):
    """Random images, labels in a mixed order, every class in both splits."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (num_train + num_test, *shape), np.uint8)
    labels = np.concatenate([rng.permutation(np.arange(n) % num_classes) for n in (num_train, num_test)])
    return images[:num_train], labels[:num_train], images[num_train:], labels[num_train:]


@pytest.fixture
def cifar():
    return fake(20, 10, (3, 32, 32), 10)


@pytest.fixture
def letters():
    return fake(52, 26, (1, 28, 28), 26)


def encode(image, suffix="png"):
    """One uint8 [C, H, W] image as the bytes of a file."""
    pixels = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
    options = {"lossless": True, "exact": True} if suffix == "webp" else {}
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, {"jpg": "jpeg"}.get(suffix, suffix), **options)
    return file.getvalue()


def members(arrays, classes, suffix="png", test="test"):
    """Pairs (SPLIT/CLASS/FILE, bytes) of an image tree."""
    x, y, x_test, y_test = arrays
    for split, images, labels in (("train", x, y), (test, x_test, y_test)):
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            yield f"{split}/{classes[label]}/{i:04}.{suffix}", encode(image, suffix)


def write_tree(folder, files):
    for name, content in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def write_zip(path, files, method=zipfile.ZIP_STORED, prefix=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in files:
            archive.writestr(prefix + name, content)


def write_npz(path, arrays, first=0, **more):
    x, y, x_test, y_test = (a.squeeze(1) if a.ndim == 4 and a.shape[1] == 1 else a for a in arrays)
    x, x_test = (a.transpose(0, 2, 3, 1) if a.ndim == 4 else a for a in (x, x_test))
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **{"x_train": x, "y_train": y + first, "x_test": x_test, "y_test": y_test + first} | more)


@pytest.fixture
def write_cifar10(monkeypatch):
    """Write CIFAR-10's batches, and let torchvision take them for the published ones."""

    def write(folder, arrays):
        x, y, x_test, y_test = arrays
        parts = {f"data_batch_{i + 1}": (x[i::5], y[i::5]) for i in range(5)} | {"test_batch": (x_test, y_test)}
        batches = {n: {"data": x.reshape(len(x), -1), "labels": y.tolist()} for n, (x, y) in parts.items()}
        batches = {n: pickle.dumps(b, protocol=2) for n, b in (batches | {"batches.meta": {"label_names": CIFAR10}}).items()}
        write_tree(folder, batches.items())
        *train, test, meta = ([name, hashlib.md5(content).hexdigest()] for name, content in batches.items())
        for key, value in (("train_list", train), ("test_list", [test])):
            monkeypatch.setattr(torchvision.datasets.CIFAR10, key, value)
        monkeypatch.setitem(torchvision.datasets.CIFAR10.meta, "md5", meta[1])

    return write


def write_idx(folder, arrays, pack=False, names=("train", "t10k")):
    folder.mkdir(parents=True, exist_ok=True)
    for split, images, labels in zip(names, arrays[::2], arrays[1::2], strict=True):
        for kind, values in (("images-idx3", images[:, 0]), ("labels-idx1", labels.astype(np.uint8))):
            content = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()
            path = folder / f"{split}-{kind}-ubyte{'.gz' if pack else ''}"
            path.write_bytes(gzip.compress(content) if pack else content)


def write_emnist(folder, arrays, pack=True):
    """Labels count from 1 and images lie on their side, as in the published files."""
    x, y, x_test, y_test = arrays
    names = ("emnist-letters-train", "emnist-letters-test")
    write_idx(folder, (x.swapaxes(2, 3), y + 1, x_test.swapaxes(2, 3), y_test + 1), pack, names)


def write_tiny(folder, arrays, classes):
    x, y, x_test, y_test = arrays
    for i, (image, label) in enumerate(zip(x, y, strict=True)):
        path = folder / "train" / classes[label] / "images" / f"{classes[label]}_{i}.JPEG"
        write_tree(path.parent, [(path.name, encode(image))])  # a PNG inside, so that nothing is lost
        (path.parents[1] / f"{classes[label]}_boxes.txt").write_text("not an image")
    write_tree(folder / "test" / "images", [("test_0.JPEG", encode(x[0]))])
    write_tree(folder / "val" / "images", [(f"val_{i}.JPEG", encode(image)) for i, image in enumerate(x_test)])
    lines = [f"val_{i}.JPEG\t{classes[label]}\t0\t0\t1\t1\n" for i, label in enumerate(y_test)]
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))


def error(name="cifar10", root=None):
    with pytest.raises(data.DataError) as caught:
        data.load(name, root)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 600
    return message


def cheap_error(name):
    """The sentence of a refusal that needs little memory."""
    tracemalloc.start()
    message = error(name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3e8, message
    return message


# --- digits


def test_digits():
    from sklearn.datasets import load_digits

    state = random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()
    first, second = data.load("digits"), data.load("digits", "/nowhere")
    assert cache_files() == [] and state == (random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist())
    assert torch.equal(first.images, second.images) and torch.equal(first.test_labels, second.test_labels)
    assert first.images.dtype == torch.uint8 and first.labels.dtype == torch.int64
    assert first.images.shape == (1438, 1, 8, 8) and first.test_images.shape == (359, 1, 8, 8)
    assert first.labels.bincount().min() > 130 and first.test_labels.bincount().min() > 30
    assert (first.num_classes, first.source, first.note, first.augmentation) == (10, "embedded", "", data.Augmentation())
    assert first.fingerprint == "3a5f0f9fcc82e188"  # the split must never change
    pixels = first.images.double() / 255
    assert first.mean == (round(pixels.mean().item(), 4),)
    assert first.std == (round(pixels.std(correction=0).item(), 4),)
    both = [x.tobytes() for x in torch.cat([first.images, first.test_images]).numpy()]
    assert sorted(both) == sorted(np.rint(x * 255 / 16).astype(np.uint8).tobytes() for x in load_digits().images)


# --- layouts


def test_official_cifar10_keeps_images_and_order(root, cifar, write_cifar10):
    write_cifar10(root / "cifar-10-batches-py", cifar)
    write_tree(root / "cifar10", members(fake(10, 10, (3, 32, 32), 10, seed=1), CIFAR10))  # official files come first
    found = data.load("cifar10")
    order = np.concatenate([np.arange(20)[i::5] for i in range(5)])
    assert np.array_equal(found.images, cifar[0][order]) and np.array_equal(found.labels, cifar[1][order])
    assert np.array_equal(found.test_images, cifar[2]) and np.array_equal(found.test_labels, cifar[3])
    assert found.source == "official files" and list(found.classes) == CIFAR10
    assert found.note == "subset: 20 of 50,000 training images, 10 of 10,000 test images"


@pytest.mark.parametrize("layout", ["png", "webp", "zip", "zips", "named zips"])
def test_trees_and_zip_files_agree(root, cifar, layout):
    files = list(members(cifar, CIFAR10, "webp"))
    if layout in ("png", "webp"):
        write_tree(root / "cifar10", members(cifar, CIFAR10, layout))
    elif layout == "zip":
        write_zip(root / "cifar10.zip", files, zipfile.ZIP_DEFLATED, prefix="some-folder/")
        # Neither another set nor what macOS adds may be taken for CIFAR-10.
        write_zip(root / "cifar100.zip", [("train/apple/0.png", b"nothing")])
        with zipfile.ZipFile(root / "cifar10.zip", "a") as archive:
            archive.writestr("__MACOSX/train/cat/0.png", b"nothing")
            archive.writestr("some-folder/train/cat/._0.png", b"nothing")
    elif layout == "zips":
        write_zip(root / "cifar10" / "a.zip", files[::2])
        write_zip(root / "cifar10" / "b.zip", files[1::2], zipfile.ZIP_DEFLATED)
    else:
        write_zip(root / "cifar10_train.zip", [file for file in files if file[0].startswith("train")])
        write_zip(root / "cifar10-test.zip", [file for file in files if file[0].startswith("test")])
    found = data.load("cifar10")
    assert found.fingerprint == data.fingerprint(*cifar) and list(found.classes) == CIFAR10
    assert found.source == data.where("cifar10") == ("zip files" if "zip" in layout else "image tree")
    order = np.lexsort((np.arange(20), cifar[1]))  # by class and file name
    assert np.array_equal(found.images, cifar[0][order]) and np.array_equal(found.labels, cifar[1][order])


def test_tiny_imagenet_layouts_agree(root):
    arrays, names = fake(8, 4, (3, 64, 64), 4), ["n01", "n02", "n03", "n04"]
    write_tiny(root / "tiny-imagenet-200", arrays, names)
    found = data.load("tiny_imagenet")
    assert np.array_equal(found.test_images, arrays[2]) and np.array_equal(found.test_labels, arrays[3])
    # A tree may hold the unlabelled test split as well; the validation images are the test set.
    write_tree(root / "tree/tiny_imagenet", members(arrays, names, test="val"))
    write_tree(root / "tree/tiny_imagenet/test/images", [("test_0.png", encode(arrays[0][0]))])
    tree = data.load("tiny_imagenet", root / "tree")
    assert tree.fingerprint == found.fingerprint and tree.classes == found.classes == tuple(names)
    assert found.note == ("subset: 8 of 100,000 training images, 4 of 10,000 test images, 4 of 200 classes")
    (root / "secret.png").write_bytes(encode(arrays[0][0]))
    notes = root / "tiny-imagenet-200/val/val_annotations.txt"
    good = notes.read_text()
    for place in ("../../../secret.png", str(root / "secret.png")):  # no list leads out of its folder
        notes.write_text(f"{place}\tn01\n")
        assert "val_annotations.txt has a line that is not a file name and a class" in error("tiny_imagenet")
    notes.write_text(good)
    (root / "tiny-imagenet-200/val/images/val_1.JPEG").unlink()
    assert "tiny-imagenet-200/val/images/val_1.JPEG cannot be read" in error("tiny_imagenet")
    notes.unlink()
    assert "Tiny-ImageNet was not found" in error("tiny_imagenet") and data.where("tiny_imagenet") == "-"


@pytest.mark.parametrize("layout", ["EMNIST/raw", "emnist/gzip", "emnist_letters", "npz", "npz in folder", "tree"])
@pytest.mark.filterwarnings("error")  # torch warns of arrays that cannot be written to
def test_emnist_layouts_agree(root, letters, layout):
    if "npz" in layout:
        write_npz(root / ("emnist_letters" if "folder" in layout else ".") / "emnist_letters.npz", letters, first=1)
    elif layout == "tree":
        write_tree(root / "emnist_letters", members(letters, LETTERS))
    else:
        write_emnist(root / layout, letters, pack=layout != "EMNIST/raw")
    found = data.load("emnist_letters")
    assert found.fingerprint == data.fingerprint(*letters)  # upright, labels 0 to 25
    assert found.images.shape == (52, 1, 28, 28) and "".join(found.classes) == LETTERS
    if layout != "tree":
        assert np.array_equal(found.images, letters[0]) and np.array_equal(found.test_labels, letters[3])
    kinds = {"npz": "file of arrays", "npz in folder": "file of arrays", "tree": "image tree"}
    assert found.source == kinds.get(layout, "official files")


def write_nist(folder, classes="0Aa", train=5, tests=3):
    """The tree of NIST's special database 19 by class; return the images by (class, folder)."""
    rng, images = np.random.default_rng(0), {}
    for character in classes:
        code = f"{ord(character):02x}"
        for inner, number in ((f"train_{code}", train), ("hsf_0", tests), ("hsf_4", 2)):
            images[character, inner[:5]] = pixels = rng.integers(0, 256, (number, 1, 128, 128), np.uint8)
            write_tree(folder / code / inner, [(f"{inner}_{i:05}.png", encode(image)) for i, image in enumerate(pixels)])
    return images


def test_femnist_reads_the_first_of_nists_training_folders_and_tests_on_hsf_0(root, monkeypatch):
    assert (readers.NIST_TRAIN, readers.NIST_TEST) == (2200, 300)
    monkeypatch.setattr(readers, "NIST_TRAIN", 4)
    monkeypatch.setattr(readers, "NIST_TEST", 2)
    images = write_nist(root / "femnist" / "by_class")
    copy = (root / "femnist/by_class/41/train_41/train_41_00000.png").read_bytes()
    (root / "femnist/by_class/41/hsf_0/hsf_0_00000.png").write_bytes(copy)
    images["A", "hsf_0"][0] = images["A", "train"][0]
    for _ in range(2):  # decoded, then from the cache
        found = data.load("femnist")
        assert found.classes == ("0", "A", "a") and found.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
        assert np.array_equal(found.images, np.concatenate([images[c, "train"][:4] for c in "0Aa"]))
        assert np.array_equal(found.test_images, np.concatenate([images[c, "hsf_0"][:2] for c in "0Aa"]))
        assert found.source == "official files" and found.train_groups is None
        assert (
            found.note == "subset: 3 of 62 classes; 12 of at most 136,400 training images, 6 of at most 18,600 test images"
        )
        assert found.remark == "1 test images are training images as well"
    path = root / "femnist/by_class/61/train_61/train_61_00002.png"
    path.write_bytes(encode(np.zeros((1, 28, 28), np.uint8)))
    assert "by_class/61/train_61/train_61_00002.png is 28x28 pixels instead of 128x128" in error("femnist")


# --- fingerprint and note


def test_fingerprint_sees_pixels_labels_splits_and_shape_but_not_order(cifar):
    x, y, x_test, y_test = cifar
    first, order = data.fingerprint(*cifar), np.random.default_rng(1).permutation(len(x))
    assert re.fullmatch("[0-9a-f]{16}", first) and data.fingerprint(x[order], y[order], x_test, y_test) == first
    tall, twice = (-1, 1, 96, 32), (np.concatenate([x, x[:1]]), np.append(y, y[0]))
    others = [(x ^ (x == x.max()), y, x_test, y_test), (x, (y + 1) % 10, x_test, y_test), (x_test, y_test, x, y)]
    others += [(*twice, x_test, y_test), (x.reshape(tall), y, x_test.reshape(tall), y_test)]
    assert len({first, *(data.fingerprint(*arrays) for arrays in others)}) == 6


def test_what_is_said_of_a_set(root, cifar, letters, facts):
    write_tree(root / "cifar10", members(cifar, CIFAR10))
    text = repr(data.load("cifar10"))
    assert "20 training and 10 test images, 3x32x32" in text and "subset: 20 of 50,000" in text
    assert "\n" not in text and str(root) not in text
    facts("cifar10", sizes=(20, 10), fingerprint=data.fingerprint(*cifar))
    assert data.load("cifar10").note == ""
    cifar[0][0, 0, 0, 0] ^= 1
    write_tree(root / "cifar10", members(cifar, CIFAR10))
    assert data.load("cifar10").note == "images or labels differ from the published ones"
    facts("cifar10", sizes=(21, 10))
    write_tree(root / "jpeg" / "cifar10", members(cifar, CIFAR10, suffix="jpg"))
    assert data.load("cifar10", root / "jpeg").note == "subset: 20 of 21 training images; re-encoded as JPEG"
    facts("cifar10", sizes=(19, 10))
    assert "has 19 training images, but 20 were found" in error()
    write_npz(root / "emnist_letters.npz", letters, first=1)
    remark = "a stand-in for FEMNIST: 26 merged letters of 28x28 pixels, without writers"
    assert data.load("emnist_letters").note == f"subset: 52 of 124,800 training images, 26 of 20,800 test images; {remark}"


# --- what can be wrong


def test_unknown_and_missing_sets(root, monkeypatch):
    message = error("cifar-10")
    assert all(name in message for name in data.NAMES) and "Did you mean cifar10?" in message
    assert "Did you mean" not in error("qqqq") and "''" in error("")
    error("x" * 3000)
    for name in set(data.NAMES) - {*catalog.EMBEDDED, "synthdigits", "digits5"}:
        message = error(name)
        assert f"was not found in {root}" in message and "FEDNB_DATA" in message and data.where(name) == "-"
        assert (catalog.FACTS[name].by_hand or f"`python -m fednb data {name}`") in message
    assert str(root / "nowhere") in error("cifar10", root / "nowhere")
    assert "not found in" in error("cifar10", "~nobody-has-this-name/data")


def test_nothing_is_unpickled_but_the_published_batches(root, cifar, write_cifar10, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "evil"),)

    folder = root / "cifar-10-batches-py"
    for name in ("test_batch", "data_batch_3", "batches.meta"):
        write_cifar10(folder, cifar)
        (folder / name).write_bytes(pickle.dumps(Evil()))
        message = error()
        assert f"cifar-10-batches-py/{name} is not the published file" in message and "python -m fednb data" in message
        (folder / name).unlink()
        assert f"cifar-10-batches-py/{name} cannot be read (No such file" in error() and data.where("cifar10") == "-"
    write_npz(root / "mnist.npz", fake(2, 2, (1, 28, 28), 2), x_test=np.array([Evil()], object))
    assert "mnist.npz cannot be read" in error("mnist")
    write_idx(root / "mnist", fake(2, 2, (1, 28, 28), 2))
    (root / "mnist/train-images-idx3-ubyte").write_bytes(pickle.dumps(Evil()))
    assert "cannot be read (not an idx file)" in error("mnist")
    assert not (tmp_path / "evil").exists() and cache_files() == []


@pytest.mark.parametrize("pack", [False, True])
def test_damaged_idx(root, letters, pack):
    write_idx(root / "mnist", fake(20, 10, (1, 28, 28), 10), pack)
    path = next((root / "mnist").glob("train-images*"))
    path.write_bytes(path.read_bytes()[:-100])
    assert f"mnist/{path.name} cannot be read" in error("mnist")
    for arrays, reason in ((fake(20, 10, (1, 16, 16), 10), "28x28"), (fake(0, 10, (1, 28, 28), 10), "holds no images")):
        write_idx(root / "mnist", arrays, pack)
        assert path.name in error("mnist") and reason in error("mnist")
    write_emnist(root / "emnist/gzip", (letters[0], letters[1] - 1, *letters[2:]))
    assert "has labels outside of 1..26" in error("emnist_letters")
    (root / "emnist/gzip/emnist-letters-train-labels-idx1-ubyte.gz").unlink()
    assert "emnist-letters-train-labels-idx1-ubyte cannot be read (No such file" in error("emnist_letters")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_damaged_zip(root, cifar, method):
    path = root / "cifar10.zip"
    write_zip(path, members(cifar, CIFAR10), method)
    good = path.read_bytes()
    path.write_bytes(good[:2000] + bytes([good[2000] ^ 255]) + good[2001:])
    assert re.search(r"cifar10\.zip \(train/\w+/\d+\.png\) cannot be read", error())
    path.write_bytes(good[:-200])
    assert "CIFAR-10: cifar10.zip cannot be read" in error()
    write_zip(path, [("readme.txt", b"hello"), ("airplane/0.png", b"no split")])
    assert "has no training images" in error()
    for split, text in (("train", "training"), ("test", "test")):
        write_zip(path, [file for file in members(cifar, CIFAR10) if not file[0].startswith(split)])
        assert f"has no {text} images" in error()
    write_zip(path, members(cifar, CIFAR10))
    write_zip(root / "cifar10" / "b.zip", list(members(cifar, CIFAR10))[:1])
    assert re.search(r"holds train/\w+/0000.png, which was already seen", error())


def test_damaged_tree(root, cifar):
    write_tree(root / "cifar10", members(cifar, CIFAR10))
    path = sorted((root / "cifar10" / "train" / "cat").iterdir())[0]
    good = path.read_bytes()
    for content in (b"", b"no image at all", good[:-1000]):
        path.write_bytes(content)
        message = error()
        assert f"cifar10/train/cat/{path.name} cannot be read" in message and "good copy" in message
        assert str(root) not in message and cache_files() == []  # what failed is not kept
    path.write_bytes(encode(np.zeros((3, 32, 31), np.uint8)))
    assert f"cifar10/train/cat/{path.name} is 31x32 pixels instead of 32x32" in error()
    path.unlink()
    for make in (lambda: path.symlink_to(root / "nowhere.png"), lambda: os.mkfifo(path), path.mkdir):
        make()
        message = error()
        assert f"cifar10/train/cat/{path.name} cannot be read" in message and str(root) not in message
        path.rmdir() if path.is_dir() else path.unlink()
    path.write_bytes(good)
    cats = root / "cifar10" / "test" / "cat"
    cats.rename(cats.with_name("tiger"))
    assert "class cat is only in one split" in error()
    (root / "cifar10/train/cat").rename(root / "cifar10/train/tiger")
    assert "has no class tiger" in error()


def test_a_file_of_arrays_can_hold_any_set(root, cifar):
    x, y, x_test, _ = cifar
    path = root / "cifar10.npz"
    write_npz(path, cifar)
    found = data.load("cifar10")
    assert np.array_equal(found.images, x) and np.array_equal(found.labels, y) and list(found.classes) == CIFAR10
    for change, reason in (
        ({"y_train": y + 1}, "has labels outside of 0..9"),
        ({"y_train": y[1:]}, "one image of 32x32 pixels per label"),
        ({"x_test": x_test.astype(float).transpose(0, 2, 3, 1)}, "does not hold images with labels"),
        ({"x_train": np.zeros((0, 32, 32, 3), np.uint8), "y_train": y[:0]}, "holds no images"),
    ):
        write_npz(path, cifar, **change)
        message = error()
        assert reason in message and "cifar10.npz" in message and "`python -m fednb data cifar10`" in message
    path.write_bytes(b"nothing")
    assert "cifar10.npz cannot be read" in error()


# --- bombs, and paths that lead elsewhere


def understate(path, size):
    """Let all members of a zip file declare that they are so large."""
    content = bytearray(path.read_bytes())
    for mark, place in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        for at in re.finditer(re.escape(mark), bytes(content)):
            struct.pack_into("<I", content, at.start() + place, size)
    path.write_bytes(content)


def test_packed_bombs_are_refused_before_they_are_unpacked(root):
    write_idx(root / "mnist", fake(20, 10, (1, 28, 28), 10), pack=True)
    block = gzip.compress(bytes(2**26))
    (root / "mnist/train-images-idx3-ubyte.gz").write_bytes(block * 48)  # 3 GB
    assert "train-images-idx3-ubyte.gz cannot be read (more than 47,044,096 bytes are too many)" in cheap_error("mnist")
    for name, files in (("usps", ("usps.bz2", "usps.t.bz2")), ("svhn", ("train_32x32.mat", "test_32x32.mat"))):
        for file in files:
            (root / file).write_bytes(bz2.compress(bytes(2**26)) * 48)
        assert f"{files[0]} is not the published file (its MD5 is another)" in cheap_error(name)


@pytest.mark.parametrize(
    ("method", "size", "declared", "reason"),
    [
        (zipfile.ZIP_DEFLATED, 2**26 + 1, None, "67,108,865 bytes are too many"),
        (zipfile.ZIP_DEFLATED, 2**28, 1000, "CRC"),
        (zipfile.ZIP_BZIP2, 2**28, 1000, "neither stored nor deflated"),
        (zipfile.ZIP_LZMA, 10, None, "neither stored nor deflated"),
    ],
)
def test_zip_bombs_are_refused_before_they_are_unpacked(root, cifar, method, size, declared, reason):
    for path, name in ((root / "cifar10.zip", "train/cat/a.png"), (root / "mnist.npz", "x_train.npy")):
        write_zip(path, [(name, bytes(size))], method)
        if declared:
            understate(path, declared)
    with zipfile.ZipFile(root / "cifar10.zip", "a") as archive:
        archive.writestr("test/cat/a.png", encode(cifar[0][0]))
    assert "cifar10.zip (train/cat/a.png) cannot be read" in (message := cheap_error("cifar10")) and reason in message
    assert "mnist.npz cannot be read" in (message := cheap_error("mnist")) and reason in message


def test_what_declares_to_be_huge_is_refused(root):
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4s", 13, b"IHDR")
    body = struct.pack(">IIBBBBB", 9000, 9000, 8, 2, 0, 0, 0)
    crc = struct.pack(">I", zlib.crc32(b"IHDR" + body))
    bomb = header + body + crc + encode(np.zeros((3, 9, 9), np.uint8))[33:]
    for split in ("train", "val"):
        write_tree(root / "syn", [(f"{split}/{label}/a.png", bomb) for label in range(10)])
    assert "syn/train/0/a.png cannot be read (9000x9000 pixels are too many)" in cheap_error("synthdigits")
    arrays = io.BytesIO()
    np.lib.format.write_array_header_1_0(arrays, {"descr": "|u1", "fortran_order": False, "shape": (2**50, 28, 28)})
    write_zip(root / "mnist.npz", [("x_train.npy", arrays.getvalue())])
    assert "mnist.npz cannot be read" in error("mnist")


# --- cache


@pytest.mark.parametrize("layout", ["tree", "zip", "official"])
def test_cache_is_renewed_when_a_source_changes(root, layout):
    def write(arrays):
        if layout == "official":
            write_tiny(root / "tiny-imagenet-200", arrays, names)
        elif layout == "tree":
            write_tree(root / "tiny_imagenet", members(arrays, names))
        else:
            write_zip(root / "tiny_imagenet.zip", members(arrays, names))

    arrays, names = fake(4, 4, (3, 64, 64), 2), ["n01", "n02"]
    write(arrays)
    assert data.load("tiny_imagenet").fingerprint == data.fingerprint(*arrays)
    arrays[2][0] ^= 1
    write(arrays)
    assert data.load("tiny_imagenet").fingerprint == data.fingerprint(*arrays)
    os.utime(max(file for file in root.rglob("*.*") if file.suffix in (".zip", ".png", ".JPEG")), (1, 1))
    assert data.load("tiny_imagenet").fingerprint == data.fingerprint(*arrays) and len(cache_files()) == 3


@pytest.mark.parametrize("damage", ["none", "garbage", "cut", "flip"])
def test_cache_gives_the_same_and_is_rebuilt_if_it_is_corrupt(root, cifar, capfd, monkeypatch, damage):
    write_tree(root / "cifar10", members(cifar, CIFAR10))
    first = data.load("cifar10")
    (path,) = cache_files()
    good = path.read_bytes()
    middle = len(good) // 2
    flipped = good[:middle] + bytes([good[middle] ^ 255]) + good[middle + 1 :]
    path.write_bytes({"none": good, "garbage": b"garbage", "cut": good[:middle], "flip": flipped}[damage])
    if damage == "none":
        monkeypatch.setattr(readers, "Image", None)  # nothing is decoded
    second = data.load("cifar10")
    for field in dataclasses.fields(first):
        a, b = getattr(first, field.name), getattr(second, field.name)
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
    second.images[0] = 0  # the arrays can be written to
    assert path.read_bytes() == good and capfd.readouterr() == ("", "")  # and no progress bar without a terminal


# --- download (without a network)


def test_download_fetches_what_is_missing_and_says_what_it_found(root, letters, capsys, monkeypatch, facts):
    calls = []

    def mnist(folder, download):
        calls.append(folder)
        write_idx(Path(folder) / "MNIST/raw", fake(20, 10, (1, 28, 28), 10))

    def emnist(folder, split, download):
        calls.append(split)
        write_emnist(Path(folder) / "EMNIST" / "raw", letters, pack=False)

    def archive(url, folder, md5, remove_finished):
        calls.append((url, md5))
        write_nist(Path(folder) / "by_class", classes=catalog.FACTS["femnist"].classes, train=1, tests=1)

    monkeypatch.setattr(torchvision.datasets, "MNIST", mnist)
    monkeypatch.setattr(torchvision.datasets, "EMNIST", emnist)
    monkeypatch.setattr(torchvision.datasets.utils, "download_and_extract_archive", archive)
    facts("mnist", sizes=(20, 10), fingerprint="")
    facts("emnist_letters", sizes=(52, 26))
    for _ in range(2):  # complete after the first time, in spite of the notes
        for name in ("mnist", "emnist_letters", "femnist"):
            data.download(name, root / "new")
    assert calls == [str(root / "new"), "letters", (catalog.FACTS["femnist"].page, None)]
    out = capsys.readouterr().out
    assert data.fingerprint(*letters) in out and "62 training and 62 test images, 1x128x128, 62 classes" in out


def test_failed_download(root, monkeypatch):
    calls = []

    def fail(*args, **options):
        calls.append(str(args[-1]))
        raise OSError("<urlopen error no route>")

    for name in ("CIFAR100", "SVHN", "USPS"):
        monkeypatch.setattr(torchvision.datasets, name, fail)
    monkeypatch.setattr(torchvision.datasets.utils, "download_and_extract_archive", fail)
    for name in ("cifar100", "tiny_imagenet", "svhn", "usps"):
        with pytest.raises(data.DataError, match=r"could not be downloaded \(<urlopen error no route>\)") as caught:
            data.download(name)
        assert catalog.FACTS[name].page in str(caught.value) and str(root) in str(caught.value)
    assert calls == [str(root), str(root), str(root / "svhn"), str(root / "usps")]


def test_torchvision_is_only_imported_where_it_is_needed():
    code = "import sys, fednb.data; sys.exit(any(m in sys.modules for m in ('torchvision', 'sklearn', 'matplotlib')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


# --- one's own


def pets(*tops, number=5, grey=False, side=40):
    """Pairs (TOP/CLASS/FILE, bytes) of made-up images of several sizes."""
    rng = np.random.default_rng(0)
    for top in tops:
        for label in ("cat", "dog"):
            for i in range(number):
                image = rng.integers(0, 256, (1 if grey or i else 3, side, side + i), np.uint8)
                yield f"{top}/{label}/{i}.png".lstrip("/"), encode(image)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("tops", "sizes"), [(("",), (8, 2)), (("train", "val"), (10, 10)), (("lab", "home"), (16, 4))])
def test_a_folder_of_images_is_a_data_set(root, tops, sizes, packed):
    if packed:
        write_zip(root / "pets.zip", pets(*tops), prefix="in/a/")
    else:
        write_tree(root / "pets", pets(*tops))
    name = "folder:pets.zip" if packed else "folder:pets"
    found, again = data.load(name), data.load(name)
    assert (found.name, found.classes, found.images.shape[1:]) == (name, ("cat", "dog"), (3, 32, 32))
    assert (len(found.labels), len(found.test_labels)) == sizes and data.num_images(name) == sizes[0]
    assert found.group_names == data.domain_names(name) == (("home", "lab") if "lab" in tops else ())
    assert found.fingerprint == again.fingerprint and torch.equal(found.images, again.images)
    assert found.note == ("" if "train" in tops else "every fifth image of a class (by name) is a test image")
    pixels = found.images.double() / 255
    assert found.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), abs=1e-4)
    assert found.std == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist(), abs=1e-4)
    assert data.load(f"{name}@16").images.shape[1:] == (3, 16, 16)
    if "lab" in tops:
        assert (2 * found.test_groups + found.test_labels).tolist() == [0, 1, 2, 3]


def test_own_images_are_grey_if_all_are_and_renewed_when_they_change(root):
    write_tree(root / "pets", pets("", grey=True, side=28))
    first = data.load("folder:pets@28")
    assert first.images.shape[1] == 1
    image = np.asarray(Image.open(root / "pets/cat/0.png"))
    assert np.array_equal(first.images[0, 0], image)
    write_tree(root / "pets", [("cat/6.png", encode(np.zeros((3, 9, 9), np.uint8)))])
    assert data.load("folder:pets@28").fingerprint != first.fingerprint


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([], "there is no .*pets; a PATH that is not absolute begins in"),
        ([("notes.txt", b"nothing")], "holds no images"),
        ([("cat/0.png", b""), ("0.png", b"")], "holds images at several depths"),
        ([("cat/0.png", b""), ("cat/1.png", b"")], "holds images of one class only, cat"),
        ([("cat/0.png", b""), ("dog/1.png", b"")], "has no test images"),
        ([(f"{c}/{i}.png", b"nothing") for c in "ab" for i in range(5)], r"pets/a/0.png cannot be read \(not an image\)"),
    ],
)
def test_what_is_wrong_with_a_folder_is_one_sentence(root, files, reason):
    write_tree(root / "pets", files)
    assert re.search(reason, error("folder:pets"))
    (root / "pets.zip").write_bytes(b"nothing")
    assert "neither a folder nor a zip file" in error("folder:pets.zip") and "the side" in error("folder:pets.zip@0")


def test_arrays_are_registered_in_three_lines_and_every_split_takes_them(monkeypatch):
    for place in (catalog.FACTS, loading._registered):
        monkeypatch.setitem(place, "mine", None)  # forgotten afterwards
        del place["mine"]
    x, y, x_test, y_test = fake(90, 90, (3, 16, 16), 3)
    groups = np.arange(90) % 2
    own = {"train_groups": groups, "test_groups": groups, "group_names": ("lab", "home")}
    found = data.register("mine", x.transpose(0, 2, 3, 1), torch.from_numpy(y), x_test, y_test, **own)
    assert data.load("mine") is found and torch.equal(found.images, torch.from_numpy(x)) and data.num_images("mine") == 90
    for split in settings.SPLITS:
        given = {} if split == "domain" else {"num_clients": 3} | ({"shots": 5} if "shot" in split else {})
        asked = settings.resolve(METHODS, method="FedAvg", dataset="mine", partition=split, num_rounds=1, **given)
        record = runner.run(asked, METHODS, workers=1)
        assert record["status"] == "finished" and record["dataset"]["fingerprint"] == found.fingerprint
    for arrays, reason in (
        ((x, y, x_test, y_test + 1), "labels outside of 0..2"),
        ((x / 255, y, x_test, y_test), "does not hold images with labels"),
        ((x[:, :, :9], y, x_test, y_test), "does not hold one image"),
        ((x, 0 * y, x_test, 0 * y_test), "two classes or more"),
        ((x_test, y_test, x, y), "was registered with other images already"),
    ):
        with pytest.raises(data.DataError, match=reason):
            data.register("mine", *arrays)
    with pytest.raises(data.DataError, match="no published set's name"):
        data.register("mnist", x, y, x_test, y_test)
