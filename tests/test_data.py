"""Data sets: all layouts agree, every kind of damage is reported, the cache is used and renewed."""

import dataclasses
import gzip
import io
import os
import pickle
import random
import re
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fednb import data

CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck".split()


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """Give each test its own data and cache folders."""
    monkeypatch.setenv("FEDNB_DATA", str(tmp_path / "sets"))
    monkeypatch.setenv("FEDNB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "sets").mkdir()
    return tmp_path / "sets"


def cache_files() -> list[Path]:
    return sorted(Path(os.environ["FEDNB_CACHE"]).glob("*"))


def fake(num_train, num_test, shape, num_classes, seed=0):
    """Random images, labels in a mixed order, every class in both splits."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (num_train + num_test, *shape), np.uint8)
    labels = np.concatenate([rng.permutation(np.arange(n) % num_classes) for n in (num_train, num_test)])
    return images[:num_train], labels[:num_train], images[num_train:], labels[num_train:]


def encode(image, suffix="png", **options):
    """One uint8 [C, H, W] image as the bytes of a file."""
    pixels = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
    if suffix == "webp":
        options = {"lossless": True, "exact": True}
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, {"jpg": "jpeg"}.get(suffix, suffix), **options)
    return file.getvalue()


def members(arrays, classes, suffix="png", test="test"):
    """Pairs (SPLIT/CLASS/FILE, bytes) of an image tree."""
    x, y, x_test, y_test = arrays
    for split, images, labels in (("train", x, y), (test, x_test, y_test)):
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            yield f"{split}/{classes[label]}/{i:04}.{suffix}", encode(image, suffix)


def write_tree(folder, *args, **options):
    for name, content in members(*args, **options):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def write_zip(path, files, method=zipfile.ZIP_STORED, prefix=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in files:
            archive.writestr(prefix + name, content)


def write_cifar10(folder, arrays):
    x, y, x_test, y_test = arrays
    folder.mkdir(parents=True, exist_ok=True)
    parts = [(f"data_batch_{i + 1}", x[i::5], y[i::5]) for i in range(5)] + [("test_batch", x_test, y_test)]
    for name, images, labels in parts:
        batch = {"data": images.reshape(len(images), -1), "labels": labels.tolist()}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))


def write_cifar100(folder, arrays, names):
    x, y, x_test, y_test = arrays
    folder.mkdir(parents=True, exist_ok=True)
    for name, images, labels in (("train", x, y), ("test", x_test, y_test)):
        batch = {"data": images.reshape(len(images), -1), "fine_labels": labels.tolist()}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": names}, protocol=2))


def write_mnist(folder, arrays, pack=False):
    folder.mkdir(parents=True, exist_ok=True)
    x, y, x_test, y_test = arrays
    for split, images, labels in (("train", x, y), ("t10k", x_test, y_test)):
        for kind, values in (("images-idx3", images[:, 0]), ("labels-idx1", labels.astype(np.uint8))):
            content = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
            content += values.tobytes()
            path = folder / f"{split}-{kind}-ubyte{'.gz' if pack else ''}"
            path.write_bytes(gzip.compress(content) if pack else content)


def write_tiny(folder, arrays, classes):
    x, y, x_test, y_test = arrays
    for i, (image, label) in enumerate(zip(x, y, strict=True)):
        path = folder / "train" / classes[label] / "images" / f"{classes[label]}_{i}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(image))  # a PNG inside, so that nothing is lost
        (path.parents[1] / f"{classes[label]}_boxes.txt").write_text("not an image")
    (folder / "val" / "images").mkdir(parents=True)
    (folder / "test" / "images").mkdir(parents=True)
    (folder / "test" / "images" / "test_0.JPEG").write_bytes(encode(x[0]))
    lines = []
    for i, (image, label) in enumerate(zip(x_test, y_test, strict=True)):
        (folder / "val" / "images" / f"val_{i}.JPEG").write_bytes(encode(image))
        lines.append(f"val_{i}.JPEG\t{classes[label]}\t0\t0\t1\t1\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))


@pytest.fixture
def cifar():
    return fake(20, 10, (3, 32, 32), 10)


def error(name="cifar10", root=None):
    with pytest.raises(data.DataError) as caught:
        data.load(name, root)
    message = str(caught.value)
    assert "\n" not in message
    return message


# digits


def test_digits():
    first, second = data.load("digits"), data.load("digits")
    assert torch.equal(first.images, second.images) and torch.equal(first.test_labels, second.test_labels)
    assert first.images.dtype == torch.uint8 and first.labels.dtype == torch.int64
    assert first.images.shape == (1438, 1, 8, 8) and first.test_images.shape == (359, 1, 8, 8)
    assert first.images.max() == 255 and first.images.min() == 0
    assert first.labels.bincount().min() > 130 and first.test_labels.bincount().min() > 30
    assert first.num_classes == len(first.labels.unique()) == len(first.test_labels.unique()) == 10
    assert (first.source, first.note, first.augmentation) == ("embedded", "", data.Augmentation())
    assert first.fingerprint == "3a5f0f9fcc82e188"  # the split must never change
    pixels = first.images.double() / 255
    assert first.mean == (round(pixels.mean().item(), 4),)
    assert first.std == (round(pixels.std(correction=0).item(), 4),)


def test_digits_split_covers_each_image_once():
    from sklearn.datasets import load_digits

    train, test = data._digits_split(load_digits().target)
    assert not set(train) & set(test)
    assert sorted([*train, *test]) == list(range(1797))


def test_digits_need_no_folders(monkeypatch, tmp_path):
    data.load("digits", tmp_path / "nowhere")
    assert cache_files() == []


def test_random_state_is_left_alone(root, cifar):
    write_tree(root / "cifar10", cifar, CIFAR10)

    def states():
        return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()

    before = states()
    data.load("digits")
    data.load("cifar10")
    assert states() == before


# Layouts


def test_preparation_constants():
    facts = data._FACTS
    assert facts["mnist"].mean == (0.1307,) and facts["mnist"].std == (0.3081,)
    assert np.allclose(np.multiply(facts["cifar10"].mean, 255), (125.3, 123.0, 113.9))
    assert np.allclose(np.multiply(facts["cifar10"].std, 255), (63.0, 62.1, 66.7))
    assert facts["cifar10"].augmentation == data.Augmentation(4, "reflect", True, 0.0)
    assert facts["cifar100"].augmentation == data.Augmentation(4, "constant", True, 15.0)
    assert facts["tiny_imagenet"].augmentation == facts["mnist"].augmentation == data.Augmentation()
    assert facts["tiny_imagenet"].mean == facts["tiny_imagenet"].std == (0.5, 0.5, 0.5)


def test_official_cifar10_keeps_images_and_order(root, cifar):
    write_cifar10(root / "cifar-10-batches-py", cifar)
    found = data.load("cifar10")
    order = np.concatenate([np.arange(20)[i::5] for i in range(5)])
    assert np.array_equal(found.images, cifar[0][order]) and np.array_equal(found.labels, cifar[1][order])
    assert np.array_equal(found.test_images, cifar[2]) and np.array_equal(found.test_labels, cifar[3])
    assert found.images.dtype == torch.uint8 and found.labels.dtype == torch.int64
    assert found.source == "official files" and list(found.classes) == CIFAR10
    assert found.note == "subset: 20 of 50,000 training images, 10 of 10,000 test images"


@pytest.mark.parametrize("layout", ["named folder", "png", "webp", "zip", "zips", "named zips"])
def test_cifar10_layouts_agree(root, cifar, layout):
    write_cifar10(root / "official" / "cifar-10-batches-py", cifar)
    official = data.load("cifar10", root / "official")
    files = list(members(cifar, CIFAR10, "webp"))
    if layout == "named folder":
        write_cifar10(root / "cifar10" / "cifar-10-batches-py", cifar)
    elif layout in ("png", "webp"):
        write_tree(root / "cifar10", cifar, CIFAR10, suffix=layout)
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
    assert found.fingerprint == official.fingerprint
    assert found.classes == official.classes and found.note == official.note
    kinds = {"named folder": "official files", "png": "image tree", "webp": "image tree"}
    assert found.source == kinds.get(layout, "zip files")


def test_tree_is_sorted_by_class_and_file_name(root, cifar):
    write_tree(root / "cifar10", cifar, CIFAR10)
    found = data.load("cifar10")
    order = np.lexsort((np.arange(20), cifar[1]))
    assert np.array_equal(found.images, cifar[0][order]) and np.array_equal(found.labels, cifar[1][order])


def test_official_files_come_first(root, cifar):
    write_tree(root / "cifar10", fake(10, 10, (3, 32, 32), 10, seed=1), CIFAR10)
    write_cifar10(root / "cifar-10-batches-py", cifar)
    assert data.load("cifar10").source == "official files"


@pytest.mark.parametrize("place", ["MNIST/raw", "mnist/MNIST/raw", "mnist"])
@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.filterwarnings("error")  # torch warns of arrays that cannot be written to
def test_mnist_layouts_agree(root, place, pack):
    arrays = fake(20, 10, (1, 28, 28), 10)
    write_mnist(root / place, arrays, pack)
    found = data.load("mnist")
    assert np.array_equal(found.images, arrays[0]) and np.array_equal(found.test_labels, arrays[3])
    write_tree(root / "tree" / "mnist", arrays, "0123456789")
    tree = data.load("mnist", root / "tree")
    assert (found.source, tree.source) == ("official files", "image tree")
    assert tree.fingerprint == found.fingerprint and tree.images.shape == (20, 1, 28, 28)


def test_cifar100_layouts_agree(root):
    names = [f"class{i:02}" for i in range(99)] + ["train"]  # CIFAR-100 has a class of this name
    arrays = fake(100, 100, (3, 32, 32), 100)
    write_cifar100(root / "cifar-100-python", arrays, names)
    found = data.load("cifar100")
    assert np.array_equal(found.images, arrays[0]) and np.array_equal(found.labels, arrays[1])
    write_zip(root / "zips" / "cifar100.zip", members(arrays, names), prefix="cifar100/")
    zipped = data.load("cifar100", root / "zips")
    assert zipped.fingerprint == found.fingerprint and zipped.classes == found.classes == tuple(names)


def test_tiny_imagenet_layouts_agree(root):
    arrays, names = fake(8, 4, (3, 64, 64), 4), ["n01", "n02", "n03", "n04"]
    write_tiny(root / "tiny-imagenet-200", arrays, names)
    found = data.load("tiny_imagenet")
    assert np.array_equal(found.test_images, arrays[2]) and np.array_equal(found.test_labels, arrays[3])
    # A tree may hold the unlabelled test split as well; the validation images are the test set.
    write_tree(root / "tree" / "tiny_imagenet", arrays, names, test="val")
    (root / "tree/tiny_imagenet/test/images").mkdir(parents=True)
    (root / "tree/tiny_imagenet/test/images/test_0.png").write_bytes(encode(arrays[0][0]))
    tree = data.load("tiny_imagenet", root / "tree")
    assert tree.fingerprint == found.fingerprint and tree.classes == found.classes == tuple(names)
    assert found.note == ("subset: 8 of 100,000 training images, 4 of 10,000 test images, 4 of 200 classes")


def test_grey_images_become_rgb(root):
    arrays = fake(2, 2, (1, 64, 64), 2)
    write_tree(root / "tiny_imagenet", arrays, ["n01", "n02"], test="val")
    found = data.load("tiny_imagenet")
    assert found.images.shape == (2, 3, 64, 64)
    assert torch.equal(found.images[:, 0], found.images[:, 2])
    assert sorted(found.images[:, 0].sum((1, 2)).tolist()) == sorted(arrays[0].sum((1, 2, 3)).tolist())


# Fingerprint and note


def test_fingerprint_sees_pixels_labels_splits_and_shape_but_not_order(cifar):
    first = data.fingerprint(*cifar)
    assert re.fullmatch("[0-9a-f]{16}", first)
    x, y, x_test, y_test = cifar
    order = np.random.default_rng(1).permutation(len(x))
    assert data.fingerprint(x[order], y[order], x_test, y_test) == first
    pixel, label = x.copy(), y.copy()
    pixel[3, 1, 2, 2] ^= 1
    label[3] = (label[3] + 1) % 10
    others = [
        data.fingerprint(pixel, y, x_test, y_test),
        data.fingerprint(x, label, x_test, y_test),
        data.fingerprint(x_test, y_test, x, y),
        data.fingerprint(np.concatenate([x, x[:1]]), np.append(y, y[0]), x_test, y_test),
        data.fingerprint(x.reshape(-1, 1, 96, 32), y, x_test.reshape(-1, 1, 96, 32), y_test),
    ]
    assert len({first, *others}) == 6


def test_repr_is_one_line_without_paths(root, cifar):
    write_tree(root / "cifar10", cifar, CIFAR10)
    text = repr(data.load("cifar10"))
    assert "20 training and 10 test images, 3x32x32" in text and "subset: 20 of 50,000" in text
    assert "\n" not in text and str(root) not in text


def test_complete_set_has_no_note_and_altered_pixels_have_one(root, cifar, monkeypatch):
    write_cifar10(root / "cifar-10-batches-py", cifar)
    facts = dataclasses.replace(data._FACTS["cifar10"], sizes=(20, 10), fingerprint=data.fingerprint(*cifar))
    monkeypatch.setitem(data._FACTS, "cifar10", facts)
    assert data.load("cifar10").note == ""
    cifar[0][0, 0, 0, 0] ^= 1
    write_cifar10(root / "cifar-10-batches-py", cifar)
    assert "differ from the published" in data.load("cifar10").note


def test_jpeg_is_noted(root, cifar):
    write_tree(root / "cifar10", cifar, CIFAR10, suffix="jpg")
    assert data.load("cifar10").note.endswith("; re-encoded as JPEG")


# What can be wrong


def test_unknown_name():
    message = error("cifar-10")
    assert all(name in message for name in data.NAMES) and "Did you mean cifar10?" in message
    assert "Did you mean" not in error("qqqq")


@pytest.mark.parametrize("name", [n for n in data.NAMES if n not in (*data._EMBEDDED, "synthdigits", "digits5")])
def test_missing(root, name):
    message, facts = error(name), data._FACTS[name]
    assert "was not found" in message and str(root) in message and "FEDNB_DATA" in message
    assert (facts.by_hand or f"`python -m fednb data {name}`") in message
    assert (facts.folders[0] if facts.folders else f"{name}/DOMAIN/CLASS/*.jpg") in message


def test_missing_folder(root):
    assert str(root / "nowhere") in error("cifar10", root / "nowhere")


def test_missing_official_file(root, cifar):
    write_cifar10(root / "cifar-10-batches-py", cifar)
    for name in ("data_batch_3", "data_batch_1"):
        (root / "cifar-10-batches-py" / name).unlink()
        assert f"cifar-10-batches-py/{name} is missing" in error()


def test_truncated_cifar_batch(root, cifar):
    write_cifar10(root / "cifar-10-batches-py", cifar)
    path = root / "cifar-10-batches-py" / "data_batch_2"
    path.write_bytes(path.read_bytes()[:-500])
    message = error()
    assert "cifar-10-batches-py/data_batch_2 cannot be read" in message and "python -m fednb data" in message
    assert str(root) not in message
    path.write_bytes(pickle.dumps({"data": [1]}))
    assert "data_batch_2" in error()


def test_cifar_batch_with_wrong_content(root, cifar):
    folder = root / "cifar-10-batches-py"
    write_cifar10(folder, cifar)
    labels = list(range(4))
    for batch, reason in (
        ({"data": np.zeros((4, 3 * 28 * 28), np.uint8), "labels": labels}, "one image of 32x32 pixels"),
        ({"data": np.zeros((3, 3072), np.uint8), "labels": labels}, "one image of 32x32 pixels"),
        ({"data": np.zeros((4, 3072)), "labels": labels}, "does not hold images"),
        ({"data": np.zeros((4, 3072), np.uint8), "labels": [0, 1, 2, 10]}, "labels outside of 0..9"),
    ):
        (folder / "data_batch_4").write_bytes(pickle.dumps(batch, protocol=2))
        message = error()
        assert "data_batch_4" in message and reason in message


def test_pickle_cannot_run_code(root, cifar, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "evil"),)

    write_cifar10(root / "cifar-10-batches-py", cifar)
    (root / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(Evil()))
    assert "test_batch cannot be read" in error()
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("pack", [False, True])
def test_truncated_idx(root, pack):
    write_mnist(root / "mnist", fake(20, 10, (1, 28, 28), 10), pack)
    path = next((root / "mnist").glob("train-images*"))
    path.write_bytes(path.read_bytes()[:-100])
    assert f"mnist/{path.name} cannot be read" in error("mnist")


def test_idx_of_wrong_size(root):
    write_mnist(root / "mnist", fake(20, 10, (1, 16, 16), 10))
    message = error("mnist")
    assert "train-images-idx3-ubyte" in message and "28x28" in message


def test_truncated_zip(root, cifar):
    path = root / "cifar10.zip"
    write_zip(path, members(cifar, CIFAR10))
    path.write_bytes(path.read_bytes()[:-200])
    assert "CIFAR-10: cifar10.zip cannot be read" in error()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_damaged_zip_member(root, cifar, method):
    path = root / "cifar10.zip"
    write_zip(path, members(cifar, CIFAR10), method)
    content = bytearray(path.read_bytes())
    content[2000] ^= 255
    path.write_bytes(content)
    assert re.search(r"cifar10\.zip \(train/\w+/\d+\.png\) cannot be read", error())


def test_zip_without_images_in_the_layout(root):
    write_zip(root / "cifar10.zip", [("readme.txt", b"hello"), ("airplane/0.png", b"no split")])
    assert "cifar10.zip holds no images" in error()


def test_same_image_in_two_zips(root, cifar):
    write_zip(root / "cifar10" / "a.zip", members(cifar, CIFAR10))
    write_zip(root / "cifar10" / "b.zip", list(members(cifar, CIFAR10))[:1])
    assert "cifar10/b.zip holds train/" in error()


@pytest.mark.parametrize("content", [b"", b"no image at all", None])
def test_corrupt_image(root, cifar, content):
    write_tree(root / "cifar10", cifar, CIFAR10)
    path = sorted((root / "cifar10" / "train" / "cat").iterdir())[0]
    path.write_bytes(path.read_bytes()[:-1000] if content is None else content)
    message = error()
    assert f"cifar10/train/cat/{path.name} cannot be read" in message and "good copy" in message
    assert cache_files() == []  # what failed is not kept


def test_image_of_wrong_size(root, cifar):
    write_tree(root / "cifar10", cifar, CIFAR10)
    (root / "cifar10/test/dog/x.png").write_bytes(encode(np.zeros((3, 32, 31), np.uint8)))
    assert "cifar10/test/dog/x.png is 31x32 pixels instead of 32x32" in error()


def test_dangling_link(root, cifar):
    write_tree(root / "cifar10", cifar, CIFAR10)
    (root / "cifar10/test/dog/x.png").symlink_to(root / "nowhere.png")
    message = error()
    assert "cifar10/test/dog/x.png cannot be read" in message and str(root) not in message


def test_missing_validation_image(root):
    write_tiny(root / "tiny-imagenet-200", fake(4, 4, (3, 64, 64), 2), ["n01", "n02"])
    (root / "tiny-imagenet-200/val/images/val_1.JPEG").unlink()
    assert "tiny-imagenet-200/val/images/val_1.JPEG cannot be read" in error("tiny_imagenet")


def test_classes_must_be_known_and_in_both_splits(root, cifar):
    write_tree(root / "cifar10", cifar, CIFAR10)
    cats = root / "cifar10" / "test" / "cat"
    cats.rename(cats.with_name("tiger"))
    assert "class cat is only in one split" in error()
    train = root / "cifar10" / "train" / "cat"
    train.rename(train.with_name("tiger"))
    assert "has no class tiger" in error()


@pytest.mark.parametrize(("split", "text"), [("train", "training"), ("test", "test")])
def test_a_split_is_missing(root, cifar, split, text):
    write_zip(root / "cifar10.zip", [file for file in members(cifar, CIFAR10) if not file[0].startswith(split)])
    assert f"has no {text} images" in error()


def test_more_images_than_published(root, cifar, monkeypatch):
    monkeypatch.setitem(data._FACTS, "cifar10", dataclasses.replace(data._FACTS["cifar10"], sizes=(19, 10)))
    write_tree(root / "cifar10", cifar, CIFAR10)
    assert "has 19 training images, but 20 were found" in error()


# Cache


def test_cache_is_used_and_gives_the_same(root, cifar, monkeypatch):
    write_tree(root / "cifar10", cifar, CIFAR10)
    first = data.load("cifar10")
    assert len(cache_files()) == 1 and cache_files()[0].suffix == ".npz"
    monkeypatch.setattr(data, "_read", None)
    monkeypatch.setattr(data, "fingerprint", None)
    second = data.load("cifar10")
    for field in dataclasses.fields(first):
        a, b = getattr(first, field.name), getattr(second, field.name)
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
    second.images[0] = 0  # the arrays can be written to


@pytest.mark.parametrize("layout", ["tree", "zip", "official"])
def test_cache_is_renewed_when_a_source_changes(root, cifar, layout):
    def write():
        if layout == "tree":
            write_tree(root / "cifar10", cifar, CIFAR10)
        elif layout == "zip":
            write_zip(root / "cifar10.zip", members(cifar, CIFAR10))
        else:
            write_cifar10(root / "cifar-10-batches-py", cifar)

    write()
    first = data.load("cifar10").fingerprint
    cifar[0][0, 0, 0, 0] ^= 1
    write()
    assert data.load("cifar10").fingerprint == data.fingerprint(*cifar) != first


@pytest.mark.parametrize("image", ["val/images/val_0.JPEG", "train/n01/images/new.JPEG"])
def test_cache_is_renewed_when_an_official_image_changes(root, image):
    arrays = fake(4, 4, (3, 64, 64), 2)
    write_tiny(root / "tiny-imagenet-200", arrays, ["n01", "n02"])
    first = data.load("tiny_imagenet")
    (root / "tiny-imagenet-200" / image).write_bytes(encode(255 - arrays[0][0]))
    assert data.load("tiny_imagenet").fingerprint != first.fingerprint


def test_cache_is_renewed_when_only_the_time_changes(root, cifar):
    write_cifar10(root / "cifar-10-batches-py", cifar)
    data.load("cifar10")
    os.utime(root / "cifar-10-batches-py" / "data_batch_1", (1, 1))
    data.load("cifar10")
    assert len(cache_files()) == 2


@pytest.mark.parametrize("damage", ["empty", "garbage", "cut", "flip"])
def test_corrupt_cache_is_rebuilt(root, cifar, capfd, damage):
    write_tree(root / "cifar10", cifar, CIFAR10)
    first = data.load("cifar10")
    (path,) = cache_files()
    good = path.read_bytes()
    middle = len(good) // 2
    bad = {
        "empty": b"",
        "garbage": b"garbage",
        "cut": good[:middle],
        "flip": good[:middle] + bytes([good[middle] ^ 255]) + good[middle + 1 :],
    }
    path.write_bytes(bad[damage])
    second = data.load("cifar10")
    assert torch.equal(first.images, second.images) and first.fingerprint == second.fingerprint
    assert path.read_bytes() == good and capfd.readouterr().err == ""


def test_unwritable_cache(root, cifar, capfd, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("a folder cannot be made under a file")
    monkeypatch.setenv("FEDNB_CACHE", str(tmp_path / "file" / "cache"))
    write_tree(root / "cifar10", cifar, CIFAR10)
    assert len(data.load("cifar10").images) == 20
    assert re.fullmatch(r"fednb: no cache written in .*\n", capfd.readouterr().err)


def test_failed_cache_write_leaves_nothing(root, cifar, capfd, monkeypatch):
    def full(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    write_tree(root / "cifar10", cifar, CIFAR10)
    data.load("cifar10")
    assert cache_files() == [] and "No space left" in capfd.readouterr().err


def test_no_progress_bar_without_a_terminal(root, cifar, capfd):
    write_tree(root / "cifar10", cifar, CIFAR10)
    data.load("cifar10")
    assert capfd.readouterr() == ("", "")


# Download (without a network)


def test_download_of_digits(capsys):
    data.download("digits")
    assert "scikit-learn" in capsys.readouterr().out


def test_download_fetches_what_is_missing_and_says_what_it_found(root, cifar, capsys, monkeypatch):
    import torchvision

    calls = []

    def fetch(folder, download):
        calls.append(folder)
        write_cifar10(Path(folder) / "cifar-10-batches-py", cifar)

    monkeypatch.setattr(torchvision.datasets, "CIFAR10", fetch)
    monkeypatch.setitem(
        data._FACTS,
        "cifar10",
        dataclasses.replace(data._FACTS["cifar10"], sizes=(20, 10), fingerprint=data.fingerprint(*cifar)),
    )
    data.download("cifar10", root / "new")
    assert calls == [str(root / "new")] and data.fingerprint(*cifar) in capsys.readouterr().out
    data.download("cifar10", root / "new")  # now it is there
    assert len(calls) == 1


def test_failed_download(root, monkeypatch):
    import torchvision

    def fail(*args, **options):
        raise OSError("<urlopen error no route>")

    monkeypatch.setattr(torchvision.datasets, "CIFAR100", fail)
    monkeypatch.setattr(torchvision.datasets.utils, "download_and_extract_archive", fail)
    for name in ("cifar100", "tiny_imagenet"):
        with pytest.raises(data.DataError, match=r"could not be downloaded \(<urlopen error no route>\)") as caught:
            data.download(name)
        assert data._FACTS[name].page in str(caught.value) and str(root) in str(caught.value)


def test_torchvision_is_only_needed_for_downloads():
    import subprocess

    code = "import sys, fednb.data; sys.exit('torchvision' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=data.ROOT).returncode == 0


# EMNIST letters


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def write_npz(path, arrays, first=1):
    x, y, x_test, y_test = arrays
    path.parent.mkdir(parents=True, exist_ok=True)
    labels = {"y_train": (y + first).astype(np.uint8), "y_test": (y_test + first).astype(np.uint8)}
    np.savez_compressed(path, x_train=x.squeeze(1), x_test=x_test.squeeze(1), **labels)


def write_emnist(folder, arrays, pack=True):
    """Labels count from 1 and images lie on their side, as in the published files."""
    x, y, x_test, y_test = arrays
    write_mnist(folder, (x.swapaxes(2, 3), y + 1, x_test.swapaxes(2, 3), y_test + 1), pack)
    for file in list(folder.iterdir()):
        file.rename(folder / f"emnist-letters-{file.name.replace('t10k', 'test')}")


@pytest.fixture
def letters():
    return fake(52, 26, (1, 28, 28), 26)


@pytest.mark.parametrize("layout", ["EMNIST/raw", "emnist/gzip", "emnist_letters", "plain", "npz", "npz in folder", "tree"])
@pytest.mark.filterwarnings("error")
def test_emnist_layouts_agree(root, letters, layout):
    if layout == "npz":
        write_npz(root / "emnist_letters.npz", letters)
    elif layout == "npz in folder":
        write_npz(root / "emnist_letters" / "emnist_letters.npz", letters)
    elif layout == "tree":
        write_tree(root / "emnist_letters", letters, LETTERS)
    else:
        write_emnist(root / layout.replace("plain", "EMNIST/raw"), letters, pack=layout != "plain")
    for _ in range(2):  # decoded, then from the cache
        found = data.load("emnist_letters")
        assert found.fingerprint == data.fingerprint(*letters)  # upright, labels 0 to 25
        assert found.images.shape == (52, 1, 28, 28) and "".join(found.classes) == LETTERS
        assert (found.labels.min(), found.labels.max()) == (0, 25)
    if layout != "tree":
        assert np.array_equal(found.images, letters[0]) and np.array_equal(found.test_labels, letters[3])
    kinds = {"npz": "file of arrays", "npz in folder": "file of arrays", "tree": "image tree"}
    assert found.source == kinds.get(layout, "official files")
    assert len(cache_files()) == 1


def test_emnist_says_that_it_is_a_stand_in_even_when_it_is_complete(root, letters, monkeypatch):
    write_npz(root / "emnist_letters.npz", letters)
    remark = "a stand-in for FEMNIST: 26 merged letters of 28x28 pixels, without writers"
    assert data.load("emnist_letters").note == f"subset: 52 of 124,800 training images, 26 of 20,800 test images; {remark}"
    facts = dataclasses.replace(data._FACTS["emnist_letters"], sizes=(52, 26))
    monkeypatch.setitem(data._FACTS, "emnist_letters", facts)
    assert data.load("emnist_letters").note == remark
    assert data.load("emnist_letters").train_groups is None


def test_a_file_of_arrays_can_hold_any_set(root, cifar):
    x, y, x_test, y_test = cifar
    arrays = {"x_train": x.transpose(0, 2, 3, 1), "y_train": y, "x_test": x_test.transpose(0, 2, 3, 1), "y_test": y_test}
    np.savez(root / "cifar10.npz", **arrays)
    found = data.load("cifar10")
    assert np.array_equal(found.images, x) and np.array_equal(found.labels, y) and list(found.classes) == CIFAR10
    for change, reason in (
        ({"y_train": y + 1}, "has labels outside of 0..9"),
        ({"y_train": y[1:]}, "one image of 32x32 pixels per label"),
        ({"x_test": x_test.astype(float).transpose(0, 2, 3, 1)}, "does not hold images with labels"),
        ({"x_test": x_test}, "does not hold images of 32x32 pixels"),
        ({"x_test": np.array([{}])}, "cifar10.npz cannot be read"),
    ):
        np.savez(root / "cifar10.npz", **arrays | change)
        message = error()
        assert reason in message and "cifar10.npz" in message and "`python -m fednb data cifar10`" in message


def test_damaged_emnist(root, letters):
    write_emnist(root / "emnist" / "gzip", letters)
    path = root / "emnist/gzip/emnist-letters-train-labels-idx1-ubyte.gz"
    good = path.read_bytes()
    path.write_bytes(gzip.compress(gzip.decompress(good)[:-52] + bytes(52)))
    assert "has labels outside of 1..26" in error("emnist_letters")
    path.unlink()
    assert "emnist/gzip/emnist-letters-train-labels-idx1-ubyte is missing" in error("emnist_letters")
    (root / "emnist").rename(root / "other")
    (root / "emnist_letters.npz").write_bytes(b"nothing")
    assert "emnist_letters.npz cannot be read" in error("emnist_letters")


# FEMNIST


def write_nist(folder, classes="0Aa", train=5, tests=3, writers=True, seed=0):
    """The tree of NIST's special database 19 by class; return the images by (class, folder)."""
    rng, images = np.random.default_rng(seed), {}
    for character in classes:
        code = f"{ord(character):02x}"
        for inner, number in ((f"train_{code}", train), ("hsf_0", tests), ("hsf_4", 2)):
            place = folder / code / inner
            place.mkdir(parents=True)
            images[character, inner[:5]] = pixels = rng.integers(0, 256, (number, 1, 128, 128), np.uint8)
            for i, image in enumerate(pixels):
                (place / f"{inner}_{i:05}.png").write_bytes(encode(image))
            if writers:
                lines = [str(number), *(f"f{i % 2:04}_{i + 10:02}" for i in range(number))]
                place.with_name(f"{inner}.mit").write_text("\n".join(lines) + "\n")
    return images


@pytest.mark.parametrize("place", ["by_class", "femnist/by_class"])
def test_femnist_reads_nists_training_folders_and_tests_on_hsf_0(root, place):
    images = write_nist(root / place)
    for _ in range(2):  # decoded, then from the cache
        found = data.load("femnist")
        assert found.classes == ("0", "A", "a") and found.labels.tolist() == [0] * 5 + [1] * 5 + [2] * 5
        assert np.array_equal(found.images, np.concatenate([images[c, "train"] for c in "0Aa"]))
        assert np.array_equal(found.test_images, np.concatenate([images[c, "hsf_0"] for c in "0Aa"]))
        assert found.test_images.shape == (9, 1, 128, 128) and found.test_labels.tolist() == [0] * 3 + [1] * 3 + [2] * 3
        assert found.group_names == ("0000", "0001")
        assert found.train_groups.tolist() == [0, 1, 0, 1, 0] * 3 and found.test_groups.tolist() == [0, 1, 0] * 3
        assert found.train_groups.dtype == torch.int64
    assert found.source == "official files" and (found.mean, found.std) == ((0.1307,), (0.3081,))
    assert found.note == "subset: 3 of 62 classes; 15 of at most 136,400 training images, 9 of at most 18,600 test images"


def test_femnist_reads_as_many_files_as_fedprotos_code(root, monkeypatch):
    assert (data._NIST_TRAIN, data._NIST_TEST) == (2200, 300)
    monkeypatch.setattr(data, "_NIST_TRAIN", 4)
    monkeypatch.setattr(data, "_NIST_TEST", 2)
    images = write_nist(root / "by_class")
    found = data.load("femnist")
    assert np.array_equal(found.images, np.concatenate([images[c, "train"][:4] for c in "0Aa"]))
    assert len(found.test_images) == 6 and found.train_groups.tolist() == [0, 1, 0, 1] * 3


def test_femnist_without_writers_or_with_some_has_no_groups(root):
    write_nist(root / "by_class", writers=False)
    found = data.load("femnist")
    assert found.train_groups is None and found.test_groups is None and found.group_names == ()
    write_nist(root / "other" / "by_class")
    (root / "other/by_class/41/hsf_0.mit").write_text("3\nf0000_14\n")  # fewer lines than images
    assert data.load("femnist", root / "other").train_groups is None


def test_femnist_counts_test_images_that_are_training_images(root):
    write_nist(root / "by_class")
    for i in range(2):
        copy = (root / f"by_class/41/train_41/train_41_0000{i}.png").read_bytes()
        (root / f"by_class/41/hsf_0/hsf_0_0000{i}.png").write_bytes(copy)
    for _ in range(2):  # decoded, then from the cache
        assert data.load("femnist").remark == "2 test images are training images as well"


def test_damaged_femnist(root):
    write_nist(root / "by_class")
    path = root / "by_class/61/train_61/train_61_00002.png"
    path.write_bytes(encode(np.zeros((1, 28, 28), np.uint8)))
    assert "by_class/61/train_61/train_61_00002.png is 28x28 pixels instead of 128x128" in error("femnist")
    path.write_bytes(b"")
    assert "train_61_00002.png cannot be read" in error("femnist")
    write_nist(root / "other" / "by_class", classes="01")
    for file in (root / "other/by_class/31/hsf_0").iterdir():
        file.unlink()
    assert "class 1 is only in one split" in error("femnist", root / "other")


def test_femnist_and_emnist_are_fetched_from_where_they_are_published(root, letters, monkeypatch, capsys):
    import torchvision

    calls = []

    def archive(url, folder, md5, remove_finished):
        calls.append((url, md5))
        write_nist(Path(folder) / "by_class", classes=data._FACTS["femnist"].classes, train=1, tests=1)

    def emnist(folder, split, download):
        calls.append(split)
        write_emnist(Path(folder) / "EMNIST" / "raw", letters, pack=False)

    monkeypatch.setattr(torchvision.datasets.utils, "download_and_extract_archive", archive)
    monkeypatch.setattr(torchvision.datasets, "EMNIST", emnist)
    facts = dataclasses.replace(data._FACTS["emnist_letters"], sizes=(52, 26))
    monkeypatch.setitem(data._FACTS, "emnist_letters", facts)
    for _ in range(2):  # complete after the first time, in spite of the note
        data.download("femnist")
        data.download("emnist_letters")
    assert calls == [(data._FACTS["femnist"].page, None), "letters"]
    assert "62 training and 62 test images, 1x128x128, 62 classes" in capsys.readouterr().out
