"""Data sets: all layouts become one file, what is hostile or damaged is refused, arrays are what they seem."""

import os
import pickle
import re
import runpy
import zipfile
from functools import partial
from pathlib import Path

import made_up_sets as sets
import numpy as np
import pytest
import torch
import torchvision
from made_up_sets import SMALL, encode, error, fake, load, write_images, write_npz, write_zip
from small import random_states

from fednb import ROOT, data, records, settings
from fednb.data import DATASETS
from fednb.method import FedAvg
from fednb_lab import cli, datasets
from fednb_lab.arrays import fingerprint, register
from fednb_lab.datasets import ORIGINS

root, change = sets.root, sets.change


# --- layouts


def test_digits_come_as_a_file_and_are_scikit_learns():
    before = random_states()
    found = data.load("digits")
    assert random_states() == before
    assert found.images.dtype == torch.uint8 and found.labels.dtype == torch.int64
    assert (len(found.images), found.num_classes, found.source) == (1438, 10, "embedded")
    assert found.note == "" and found.augmentation == data.Augmentation()
    assert found.fingerprint == "3a5f0f9fcc82e188"  # the split must never change
    pixels = found.images.double() / 255
    assert found.mean == (round(pixels.mean().item(), 4),)
    assert found.std == (round(pixels.std(correction=0).item(), 4),)
    made = runpy.run_path(str(ROOT / "data" / "digits.py"))["digits"]()
    assert torch.equal(made.images, found.images) and torch.equal(made.labels, found.labels)
    assert made.fingerprint == found.fingerprint


OFFICIAL, TREE, FILE = "official files", "image tree", "file of arrays"
write_packed = partial(write_images, method=zipfile.ZIP_DEFLATED, prefix="some-folder/")
# what lies elsewhere than in the folder of the set's name is given
LAYOUTS = [
    ("cifar10", OFFICIAL, "batches", sets.write_cifar10),
    ("cifar10", TREE, "cifar10", partial(write_images, suffix="webp", test="val")),
    ("cifar10", TREE, "packed.zip", write_packed),
    ("cifar10", FILE, "arrays.npz", write_npz),
    ("mnist", OFFICIAL, "mnist/MNIST/raw", sets.write_idx),
    ("emnist_letters", OFFICIAL, "emnist_letters/EMNIST/raw", sets.write_emnist),
    ("emnist_letters", FILE, "arrays.npz", partial(write_npz, first=1)),
    ("svhn", OFFICIAL, "SVHN", sets.write_svhn),
]


@pytest.mark.parametrize(("name", "kind", "place", "write"), LAYOUTS)
@pytest.mark.filterwarnings("error")  # torch warns of arrays that cannot be written to
def test_all_layouts_agree(root, monkeypatch, name, kind, place, write):
    arrays = SMALL[name]
    write(root / place, arrays)
    given = None if place.startswith(name) else root / place
    if write in (sets.write_cifar10, sets.write_svhn):
        assert "Dataset not found or corrupted" in error(name, given)
        for module in ("cifar", "svhn"):
            monkeypatch.setattr(f"torchvision.datasets.{module}.check_integrity", lambda *_: True)
    assert datasets.state(name) == "-"
    found = load(name, given)
    assert found.source == kind
    assert datasets.state(name) == str(root / f"{name}.npz")
    assert found.fingerprint == fingerprint(*arrays)
    assert found.classes == DATASETS[name].classes
    for i, fields in enumerate((("images", "labels"), ("test_images", "test_labels"))):
        order = np.argsort(arrays[2 * i + 1], kind="stable") if kind == TREE else slice(None)
        for field, values in zip(fields, arrays[2 * i :], strict=False):
            assert np.array_equal(getattr(found, field), values[order])


def test_a_set_whose_sizes_nobody_has_published_says_at_most_and_what_is_tested_twice(root):
    arrays = fake(6, 3, (1, 128, 128), 3)
    arrays[2][0] = arrays[0][0]
    write_images(root / "femnist", arrays, classes="0Aa")
    found = load("femnist")
    assert found.classes == ("0", "A", "a") and found.train_groups is None
    missing = "6 of at most 136,400 training images, 3 of at most 18,600 test images"
    assert found.note == f"subset: {missing}, 3 of 62 classes"
    assert found.remark == "1 test images are training images as well"


def test_fingerprint_sees_pixels_labels_splits_and_shape_but_not_order():
    x, y, x_test, y_test = SMALL["cifar10"]
    first = fingerprint(x, y, x_test, y_test)
    order = np.random.default_rng(1).permutation(len(x))
    assert re.fullmatch("[0-9a-f]{16}", first)
    assert fingerprint(x[order], y[order], x_test, y_test) == first
    tall = (-1, 1, 96, 32)
    others = [
        (x ^ (x == x.max()), y, x_test, y_test),
        (x, (y + 1) % 10, x_test, y_test),
        (x_test, y_test, x, y),
        (np.concatenate([x, x[:1]]), np.append(y, y[0]), x_test, y_test),
        (x.reshape(tall), y, x_test.reshape(tall), y_test),
    ]
    assert len({first, *(fingerprint(*arrays) for arrays in others)}) == 6


COMPLETE = {"sizes": (20, 10), "fingerprint": fingerprint(*SMALL["cifar10"])}


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
    assert load("cifar10").note == note


def test_more_images_than_published_are_refused(root, change):
    change("cifar10", sizes=(19, 10))
    write_images(root / "cifar10", SMALL["cifar10"])
    assert "there are 19 training images, but 20 were found" in error()


# --- what can be wrong


def test_unknown_and_missing_sets(root):
    assert all(name in error("cifar-10") for name in (*data.NAMES, "did you mean 'cifar10'?"))
    assert "did you mean" not in error("qqqq") and "''" in error("") and error("x" * 3000)
    for name in set(data.NAMES) - {*data.EMBEDDED, "synthdigits", "digits5"}:
        told = rf"was not found in {root}: `fednb data {name}` .*FEDNB_DATA"
        with pytest.raises(data.DataError, match=told):
            data.load(name)
        if ORIGINS[name].by_hand:
            told = f"it is not in {root / name}: {ORIGINS[name].by_hand}, and write `fednb data"
            assert told in error(name) and datasets.state(name) == "-"


def written(content):
    return lambda path: path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def tiger(*splits):
    return lambda path: [(path / split / "cat").rename(path / split / "tiger") for split in splits]


def arrays_with(**arrays):
    return lambda path: write_npz(path, SMALL["cifar10"], **arrays)


class Evil:
    def __reduce__(self):
        return os.mkdir, (os.environ["FEDNB_CACHE"],)


CAT = f"train/cat/{SMALL['cifar10'][1].tolist().index(3):04}.png"
ODD = encode(np.zeros((3, 32, 31), np.uint8))
ONLY_TRAIN = [file for file in sets.members(SMALL["cifar10"]) if file[0].startswith("train")]
TRAIN, UNREAD = "train-images-idx3-ubyte", "has no official files that torchvision can read"
# data set, where and how it is written: what becomes of which file, the error
WRONG = {
    ("cifar10", "cifar10", write_images): [
        (CAT, written(b""), f"cifar10/{CAT} cannot be read (not an image): put a good copy"),
        (CAT, written(ODD), f"{CAT} is 31x32 pixels instead of 32x32"),
        ("", tiger("test"), "class tiger is tested and never trained"),
        ("", tiger("test", "train"), "it has no class tiger; its classes are airplane, auto"),
        ("train", lambda path: path.rename(path.with_name("more")), "in none of the folders train"),
    ],
    ("cifar10", "cifar10.zip", write_images): [
        ("", cut, "cifar10.zip cannot be read"),
        ("", lambda path: write_zip(path, ONLY_TRAIN), "there are no test images"),
        ("", lambda path: write_zip(path, ONLY_TRAIN * 2), "is there twice: take one out"),
    ],
    ("cifar10", "arrays.npz", write_npz): [
        ("", Path.unlink, "arrays.npz cannot be read (No such file"),
        ("", written(b"nothing"), "arrays.npz cannot be read"),
        ("", arrays_with(y_train=np.arange(20) % 11), "with labels from 0 to 9"),
        ("", arrays_with(x_test=np.array([Evil()], object)), "be read (Object arrays cannot be"),
    ],
    ("mnist", "mnist/MNIST/raw", sets.write_idx): [
        (TRAIN, written(pickle.dumps(Evil)), UNREAD),
        (TRAIN, cut, UNREAD),
    ],
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("case", "path", "how", "sentence"), [(case, *wrong) for case in WRONG for wrong in WRONG[case]]
)
def test_what_is_wrong_with_a_file_is_one_sentence(root, case, path, how, sentence):
    name, place, write = case
    write(root / place, SMALL[name])
    how(root / place / path)
    assert sentence in error(name, None if place.startswith(f"{name}/") else root / place)
    # what failed is not kept, and what is evil not run
    assert datasets.state(name) == "-" and not Path(os.environ["FEDNB_CACHE"]).exists()


def test_nothing_is_unpickled_but_the_published_batches(root):
    sets.write_cifar10(root, SMALL["cifar10"])
    for file in (root / "cifar-10-batches-py").iterdir():
        file.write_bytes(pickle.dumps(Evil()))
    assert "Dataset not found or corrupted" in error(given=root)
    assert not Path(os.environ["FEDNB_CACHE"]).exists()


# --- the one file of a set


def test_a_set_is_converted_once_and_its_file_is_replaced_when_asked(root, monkeypatch):
    x, *others = SMALL["cifar10"]
    write_images(root / "cifar10" / "some.zip", (x, *others))
    first = load("cifar10")
    write_images(root / "cifar10" / "some.zip", (x ^ 1, *others))
    datasets.get("cifar10")
    assert data.load("cifar10").fingerprint == first.fingerprint
    datasets.get("cifar10", root / "cifar10")
    assert data.load("cifar10").fingerprint != first.fingerprint
    monkeypatch.setenv("FEDNB_DATA", str(root / "cifar10.npz"))  # in which nothing can be written
    with pytest.raises(data.DataError, match="set FEDNB_DATA to a folder of your own"):
        datasets.get("cifar10", root / "cifar10")


def test_arrays_that_somebody_has_brought_are_not_replaced(root):
    write_npz(root / "cifar10.npz", SMALL["cifar10"])
    with pytest.raises(data.DataError, match="or not written by `fednb data`: move it away"):
        datasets.get("cifar10")
    with pytest.raises(data.DataError, match="would be replaced"):
        datasets.get("cifar10", root / "cifar10.npz")


def test_a_set_of_another_folder_is_converted_when_asked(root, tmp_path, capsys):
    x, *others = SMALL["cifar10"]
    write_images(tmp_path / "own" / "more.zip", (x, *others))
    write_images(tmp_path / "mine", (x ^ 1, *others))
    write_npz(tmp_path / "arrays.npz", (x ^ 2, *others))
    for place, flipped in (("own", 0), ("own/more.zip", 0), ("mine", 1), ("arrays.npz", 2)):
        assert cli.main(["data", "cifar10", "--from", str(tmp_path / place)]) == 0
        assert data.load("cifar10").fingerprint == fingerprint(x ^ flipped, *others)
        assert "subset: 20 of 50,000 training images" in capsys.readouterr().out
    for name, place in (("cifar10", "nowhere"), ("mnist", "mine"), ("digits", "mine")):
        assert cli.main(["data", name, "--from", str(tmp_path / place)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


# --- download (without a network)


def test_download_fetches_what_is_missing_once_and_says_what_it_found(root, capsys, monkeypatch):
    calls, read = [], torchvision.datasets.MNIST

    def fetch_and_read(folder, **options):
        calls.append(options)
        sets.write_idx(folder / "MNIST" / "raw", SMALL["mnist"])
        return read(folder, train=options["train"])

    monkeypatch.setattr(torchvision.datasets, "MNIST", fetch_and_read)
    for _ in range(2):  # the second time it is there
        datasets.get("mnist")
    assert calls == [{"download": True, "train": train} for train in (True, False)]
    assert fingerprint(*SMALL["mnist"]) in capsys.readouterr().out


def test_failed_download(root, monkeypatch):
    def fail(*args, **options):
        raise OSError("<urlopen error no route>")

    monkeypatch.setattr("torchvision.datasets.CIFAR100", fail)
    told = error("cifar100")
    assert f"{root}/cifar100 has no official files that torchvision can read (<urlopen" in told
    assert "try again later" in told


# --- arrays


@pytest.fixture
def arrays(monkeypatch):
    """What `register` takes: three classes."""
    for name in ("DATASETS", "REGISTERED"):  # what is registered is forgotten afterwards
        monkeypatch.setattr(data, name, dict(getattr(data, name)))
    names = ("images", "labels", "test_images", "test_labels")
    return dict(zip(names, fake(90, 90, (3, 16, 16), 3), strict=True))


def test_registered_arrays_are_a_data_set(arrays):
    images = torch.from_numpy(arrays["images"])
    arrays["images"] = arrays["images"].transpose(0, 2, 3, 1)
    arrays["labels"] = torch.from_numpy(arrays["labels"])
    dataset = register("mine", **arrays)
    assert dataset.source == "registered"
    assert torch.equal(dataset.images, images)
    assert repr(data.load("mine")) == repr(dataset)
    assert data.info_of("mine").sizes == (90, 90)


def test_runs_on_other_arrays_of_one_name_are_other_runs(arrays):
    paths = []
    for images in (arrays["images"], 255 - arrays["images"]):
        dataset = register("mine", **arrays | {"images": images})
        resolved = settings.resolve({"FedAvg": FedAvg}, method="FedAvg", dataset="mine")
        assert resolved.flat()["dataset"] == f"mine#{dataset.fingerprint[:8]}"
        paths.append(records.path(resolved))
        data.REGISTERED.clear()  # as in another process
    assert paths[0] != paths[1]


def relabelled(change):
    return lambda a: {"labels": change(a["labels"]), "test_labels": change(a["test_labels"])}


def each(change):
    return lambda a: {"images": change(a["images"]), "test_images": change(a["test_images"])}


WRONG_ARRAYS = [
    ("class 3 is tested and never trained", lambda a: {"test_labels": a["test_labels"] + 1}),
    (r"shape .90, 1.: give .* a column \[:, 0\]", relabelled(lambda y: y[:, None])),
    (r"one-hot ones argmax\(1\)", relabelled(lambda y: torch.eye(3)[y])),
    ("cannot be read as an array", relabelled(lambda y: torch.eye(3)[y].bfloat16())),
    ("are <U3 of shape .90.: give one", relabelled(lambda y: np.array(["cat", "dog", "cow"])[y])),
    ("are float64 of shape .90.: give one whole number", relabelled(lambda y: y * 1.0)),
    ("are masked", lambda a: {"test_labels": np.ma.masked_less(a["labels"], 1)}),
    ("labels are 10, 20, 30, but there are 3 classes", relabelled(lambda y: 10 * y + 10)),
    ("labels are 0, 1, 2, but there are 2 classes", lambda a: {"classes": ["cat", "dog"]}),
    (r"shape .89.: .* the 90 images", lambda a: {"labels": a["labels"][:-1]}),
    (r"are float64: give bytes .*\(255 / M \* images\)", each(lambda x: x / 255)),
    ("are int64: give bytes", each(lambda x: x.astype(int) * 1000)),
    ("have shape .90, 768.: give", each(lambda x: x.reshape(len(x), -1))),
    ("shape .90, 3, 9, 16.: give .* square", each(lambda x: x[:, :, :9])),
    ("where C is 1", each(lambda x: np.concatenate([x, x[:, :1]], 1).transpose(0, 2, 3, 1))),
    ("give at least one", lambda a: {"test_images": a["images"][:0]}),
    ("was registered with other images already", lambda a: {"images": a["test_images"]}),
    ("must be a list of names, .* not .'", lambda a: {"classes": {"cat", "cow", "dog"}}),
    ("all different", lambda a: {"classes": ["cat", "cat", "dog"]}),
]


@pytest.mark.parametrize(("sentence", "spoil"), WRONG_ARRAYS)
def test_arrays_that_do_not_fit_are_refused_each_with_its_reason(arrays, sentence, spoil):
    register("mine", **arrays)
    with pytest.raises(data.DataError, match=sentence) as refused:
        register("mine", **(arrays | spoil(arrays)))
    assert str(refused.value).startswith("mine: ") and "\n" not in str(refused.value)


def test_what_is_odd_in_arrays_is_told(arrays):
    """Tested images that are trained on, and values of 0 to 1 as bytes."""
    dark = arrays["images"] // 255
    given = {"images": dark, "test_images": dark[:2], "test_labels": arrays["labels"][:2]}
    remark = register("mine", **arrays | given).remark
    assert "2 test images are training images as well" in remark
    assert "nearly black" in remark
    assert "never tested: " in remark


def test_a_published_sets_name_cannot_be_registered(arrays):
    with pytest.raises(data.DataError, match="no published set's name"):
        register("mnist", **arrays)
