"""Made-up data sets, in all the layouts of data/README.md."""

import dataclasses
import io
import pickle
import struct
import zipfile

import numpy as np
import pytest
from fednb.papers.foundations import METHODS
from PIL import Image
from scipy.io import savemat

from fednb import ROOT, data, settings
from fednb import records as ledger
from fednb import run as runner
from fednb.data import DATASETS
from fednb_lab.datasets import ORIGINS, get


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """Give each test its own data and cache folders."""
    monkeypatch.setenv("FEDNB_DATA", str(tmp_path / "sets"))
    monkeypatch.setenv("FEDNB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "shipped").mkdir()  # and not what somebody has converted
    for name in data.EMBEDDED:
        (tmp_path / "shipped" / f"{name}.npz").symlink_to(ROOT / "data" / f"{name}.npz")
    monkeypatch.setattr(data, "_SHIPPED", tmp_path / "shipped")
    (tmp_path / "sets").mkdir()
    return tmp_path / "sets"


@pytest.fixture
def change(monkeypatch):
    """Change what is published about a set."""

    def change(name, **given):
        for known in (DATASETS, ORIGINS):
            names = {field.name for field in dataclasses.fields(known[name])}
            own = {key: value for key, value in given.items() if key in names}
            monkeypatch.setitem(known, name, dataclasses.replace(known[name], **own))

    return change


def load(name, given=None):
    """As ``fednb data`` does, from the files as they are now."""
    if name in ORIGINS:
        (data.places()[0] / f"{name}.npz").unlink(missing_ok=True)
    get(name, given)
    return data.load(name)


def error(name="cifar10", given=None):
    with pytest.raises(data.DataError) as caught:
        load(name, given)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 600
    return message


def run(dataset, **given):
    """One round on a data set: the record, and where it lies."""
    asked = settings.resolve(
        METHODS, method="FedAvg", dataset=dataset, num_rounds=1, local_epochs=1, **given
    )
    return runner.run(asked, METHODS, workers=1), ledger.path(asked, ledger.runs_folder())


def fake(num_train, num_test, shape, num_classes, seed=0):
    """Random images, labels in a mixed order, every class in both splits."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (num_train + num_test, *shape), np.uint8)
    mixed = [rng.permutation(np.arange(n) % num_classes) for n in (num_train, num_test)]
    labels = np.concatenate(mixed)
    return images[:num_train], labels[:num_train], images[num_train:], labels[num_train:]


SMALL = {
    "cifar10": fake(20, 10, (3, 32, 32), 10),
    "mnist": fake(20, 10, (1, 28, 28), 10),
    "emnist_letters": fake(52, 26, (1, 28, 28), 26),
    "svhn": fake(20, 10, (3, 32, 32), 10, seed=1),
}
CIFAR10, LETTERS = DATASETS["cifar10"].classes, DATASETS["emnist_letters"].classes


FORMATS = {"jpg": "jpeg", "jfif": "jpeg", "pgm": "ppm", "tif": "tiff", "jp2": "jpeg2000"}


def encode(image, suffix="png"):
    """One uint8 [C, H, W] image as the bytes of a file."""
    pixels = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
    options = {"lossless": True, "exact": True} if suffix == "webp" else {}
    file = io.BytesIO()
    kind = FORMATS.get(suffix.lower(), suffix)
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def members(arrays, classes=CIFAR10, suffix="png", test="test"):
    """Pairs (SPLIT/CLASS/FILE, bytes) of an image tree."""
    for split, images, labels in (("train", *arrays[:2]), (test, *arrays[2:])):
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


def write_images(path, arrays, method=zipfile.ZIP_STORED, prefix="", **named):
    files = members(arrays, **named)
    write_zip(path, files, method, prefix) if path.suffix == ".zip" else write_tree(path, files)


def write_npz(path, arrays, first=0, **more):
    x, y, x_test, y_test = (a.squeeze(1) if a.ndim == 4 and a.shape[1] == 1 else a for a in arrays)
    x, x_test = (a.transpose(0, 2, 3, 1) if a.ndim == 4 else a for a in (x, x_test))
    path.parent.mkdir(parents=True, exist_ok=True)
    named = {"x_train": x, "y_train": y + first, "x_test": x_test, "y_test": y_test + first}
    np.savez_compressed(path, **(named | more))


def write_cifar10(folder, arrays):
    x, y, x_test, y_test = arrays
    batches = {f"data_batch_{i + 1}": (x[4 * i :][:4], y[4 * i :][:4]) for i in range(5)}
    folder = folder / "cifar-10-batches-py"
    for name, (images, labels) in {**batches, "test_batch": (x_test, y_test)}.items():
        batch = {"data": images.reshape(len(images), -1), "labels": labels.tolist()}
        write_tree(folder, [(name, pickle.dumps(batch, protocol=2))])
    write_tree(folder, [("batches.meta", pickle.dumps({"label_names": list(CIFAR10)}, protocol=2))])


def write_idx(folder, arrays, names=("train", "t10k")):
    for split, images, labels in zip(names, arrays[::2], arrays[1::2], strict=True):
        kinds = {"images-idx3": images[:, 0], "labels-idx1": labels.astype(np.uint8)}
        for kind, values in kinds.items():
            name, shape = f"{split}-{kind}-ubyte", struct.pack(f">{values.ndim}I", *values.shape)
            content = bytes([0, 0, 8, values.ndim]) + shape + values.tobytes()
            write_tree(folder, [(name, content)])


def write_emnist(folder, arrays):
    """Labels count from 1 and images lie on their side, as in the published files."""
    x, y, x_test, y_test = arrays
    names = ("emnist-letters-train", "emnist-letters-test")
    write_idx(folder, (x.swapaxes(2, 3), y + 1, x_test.swapaxes(2, 3), y_test + 1), names)


def write_svhn(folder, arrays):
    folder.mkdir(parents=True, exist_ok=True)
    for split, images, labels in (("train", *arrays[:2]), ("test", *arrays[2:])):
        y = np.where(labels == 0, 10, labels)[:, None].astype(np.uint8)
        savemat(folder / f"{split}_32x32.mat", {"X": images.transpose(2, 3, 1, 0), "y": y})
