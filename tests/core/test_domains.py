"""Sets of several domains: embedded, drawn, and read from made-up files as they are published."""

import importlib
import io
import re
import sys
import zlib
from itertools import chain

import made_up_sets
import numpy as np
import pytest
import torch
from fednb.papers.foundations import METHODS
from made_up_sets import encode, error, load, write_npz, write_tree, write_zip
from PIL import Image
from sklearn.datasets import load_digits

from fednb import ROOT, build, data, partition, settings
from fednb.data import DATASETS
from fednb_lab import datasets

SHAPES = {"MNIST": (1, 28, 28), "USPS": (1, 16, 16), "SVHN": (3, 32, 32), "MNIST-M": (3, 32, 32)}
# checksums of the two photographs, decoded, and of the fonts' outlines
INGREDIENTS = [2377051267, 2867565543, 3467488234]


sys.path.append(str(ROOT / "data"))  # where the recipes of drawn sets lie
recipe = importlib.import_module("digits5_mini")
synthetic = importlib.import_module("synthdigits")

root, change = made_up_sets.root, made_up_sets.change


@pytest.fixture(autouse=True)
def drawn_in_small(change):
    change("synthdigits", sizes=[30, 20])
    change("digits5", domains=DATASETS["digits5"].domains | {"Synth": [30, 20]})


@pytest.fixture(scope="module")
def mini():
    return data.load("digits5_mini")


def pixels(seed, number, *shape):
    return np.random.default_rng(seed).integers(0, 256, (number, *shape), np.uint8)


def resized(image, side=32):
    """Channels last, as PIL has it."""
    return np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BILINEAR))


def test_the_embedded_domains_come_as_a_file(mini):
    assert mini.fingerprint == "9e14cc65c806ff01"
    assert mini.images.shape == (2000, 3, 16, 16) and mini.images.dtype == torch.uint8
    assert mini.source == "embedded"
    assert mini.group_names == ("Digits", "Slanted", "Blended", "Fonts", "Scenes")
    made_of = "scikit-learn's digits and photographs and matplotlib's fonts"
    assert mini.note == f"a stand-in for Digit-5, made of {made_of}"
    train, test = (mini.labels, mini.train_groups, 40), (mini.test_labels, mini.test_groups, 15)
    for labels, groups, number in (train, test):
        assert groups.dtype == torch.int64
        assert (groups * 10 + labels).bincount().tolist() == [number] * 50


def test_the_embedded_domains_are_drawn_as_recorded_with_no_digit_in_two_images(mini, monkeypatch):
    """To the last pixel where photographs and fonts are read as they were; else nearly."""
    grey, *sources = recipe.sources()
    for source, labels in zip(sources, (mini.labels, mini.test_labels), strict=True):
        for numbers in source:
            assert load_digits().target[numbers].tolist() == labels[: len(numbers)].tolist()
    plain = np.rint(255 * recipe.enlarged(grey[sources[1][0][7]], 16)).astype(np.uint8)
    assert (mini.test_images[7].numpy() == plain).all()
    used, enlarged = [], recipe.enlarged

    def counted(digit, *more):
        used.append(digit.tobytes())
        return enlarged(digit, *more)

    monkeypatch.setattr(recipe, "enlarged", counted)
    drawn = recipe.digits5_mini()
    assert len(used) == len(set(used)) == 3 * (400 + 150)
    assert drawn.note == mini.note
    means = [drawn.images[drawn.train_groups == d].double().mean().item() for d in range(5)]
    # of other seeds up to 3 apart
    assert means == pytest.approx([67.927, 96.149, 95.089, 127.001, 109.367], abs=0.05)
    digits = chain.from_iterable(synthetic.outlines())
    fonts = np.concatenate([np.round(polygon, 6) for polygon in chain.from_iterable(digits)])
    if [zlib.crc32(part.tobytes()) for part in (*data.photographs(), fonts)] == INGREDIENTS:
        assert drawn.fingerprint == "9e14cc65c806ff01"


def test_synthdigits_are_drawn_once_or_read_as_rethinkfl_does(root, monkeypatch):
    first = load("synthdigits")
    assert first.labels.bincount().tolist() == [3] * 10
    assert first.test_labels.bincount().tolist() == [2] * 10
    assert first.source == "rendered"
    assert first.note == "drawn in matplotlib's fonts, a stand-in for SynthDigits"
    monkeypatch.setattr(datasets, "runpy", None)
    datasets.get("synthdigits")
    drawn = {label: pixels(int(label), 1, 3, 48, 64)[0] for label in "0123456789"}
    for split in ("train", "val"):
        files = [(f"{label}/a.png", encode(image)) for label, image in drawn.items()]
        write_tree(root / "synthdigits" / split, files)
    found = load("synthdigits")
    assert found.images.shape == (10, 3, 32, 32) and found.source == "image tree"
    assert np.array_equal(found.images[7].permute(1, 2, 0), resized(drawn["7"].transpose(1, 2, 0)))


# --- Digit-5


def test_digits5_is_made_of_its_five_sets(root):
    arrays = {
        domain: (pixels(seed, 30, *shape), np.arange(30) % 10)
        for seed, (domain, shape) in enumerate(SHAPES.items())
    }
    names = ("mnist", "usps", "svhn", "mnistm")
    for name, (x, y) in zip(names, arrays.values(), strict=True):
        more = {"src_train": y} if name == "svhn" else {}
        write_npz(root / "given.npz", (x[:20], y[:20], x[20:], y[20:]), **more)
        datasets.get(name, root / "given.npz")
    found = load("digits5")
    assert repr(data.load("digits5")) == repr(found)
    assert found.group_names == ("MNIST", "USPS", "SVHN", "Synth", "MNIST-M")
    assert found.train_groups.bincount().tolist() == [20, 20, 20, 30, 20]
    assert found.test_groups.bincount().tolist() == [10, 10, 10, 20, 10]
    for domain, (x, y) in arrays.items():
        own = found.train_groups == found.group_names.index(domain)
        images = found.images[own].numpy()
        assert np.array_equal(found.labels[own], y[:20])
        if x.shape[1] == 3:
            assert np.array_equal(images, x[:20])
        else:  # enlarged, and grey repeated
            assert (images == images[:, :1]).all()
            assert np.array_equal(images[3, 0], resized(x[3, 0]))
    assert (found.mean, found.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert "SVHN: subset: 20 of 73,257 training images, 10 of 26,032 test images" in found.note
    assert "digits cut out of photographs of the full-number set, not the offic" in found.note
    assert "Synth: drawn in matplotlib's fonts, a stand-in for SynthDigits" in found.note
    assert "the digits of MNIST-M are those of MNIST" in found.remark
    (root / "mnistm.npz").unlink()
    assert error("digits5").startswith(f"Digit-5: MNIST-M: it is not in {root}/mnistm: get the rel")
    assert "convert mnist, usps, svhn, synthdigits, mnistm from there" in error("digits5", root)


# --- trees DOMAIN/CLASS/FILE


def tree(name, per_class, side=32, more=(), spelled=str):
    """Pairs (DOMAIN/CLASS/FILE, bytes) of a made-up tree."""
    rng = np.random.default_rng(0)
    for domain in DATASETS[name].domains:
        for label in (*DATASETS[name].classes, *more):
            for i in range(per_class):
                image = rng.integers(0, 256, (3, side, side + 8), np.uint8)
                yield f"{spelled(domain)}/{spelled(label)}/{i:03}.png", encode(image)


def test_office10_has_the_published_sizes():
    """Those that follow from FedPLCC's rounding, and as many training images as there can be."""
    for domain, number in {"Caltech": 1123, "Amazon": 958, "Webcam": 295, "DSLR": 157}.items():
        tested = sum(i % 10 in (8, 9) for i in range(number))
        assert DATASETS["office10"].domains[domain] == (number - tested, tested)


def test_every_ninth_and_tenth_image_of_a_domain_is_a_test_image_however_it_is_spelled(root):
    hidden = [(name, b"nothing") for name in ("Webcam/mug/._0.png", "__MACOSX/mug/0.png")]
    write_tree(root / "office10", [*tree("office10", 3), *hidden])
    found = load("office10")
    files = [file for name, file in tree("office10", 3) if name.startswith("Webcam")]
    images = [np.asarray(Image.open(io.BytesIO(file))) for file in files]
    own = [resized(image).transpose(2, 0, 1) for image in images]
    test = [8, 9, 18, 19, 28, 29]
    assert np.array_equal(found.test_images[found.test_groups == 2], [own[i] for i in test])
    train = [x for i, x in enumerate(own) if i not in test]
    assert np.array_equal(found.images[found.train_groups == 2], train)
    assert found.test_labels[found.test_groups == 2].tolist() == [i // 3 for i in test]
    plain = tree("office10", 3, spelled=lambda name: name.lower().replace("_", ""))
    write_zip(root / "b" / "office_caltech10.zip", plain, prefix="in/")
    upper = tree("office10", 3, spelled=str.upper)
    write_zip(root / "c" / "office10" / "all.zip", [*upper, *hidden])
    others = [load("office10", root / place) for place in ("b/office_caltech10.zip", "c/office10")]
    assert {found.source, *(o.source for o in others)} == {"image tree"}
    assert {o.fingerprint for o in others} == {found.fingerprint}


def pacs(root, files):
    write_zip(root / "pacs.zip", files.items())
    return load("pacs", root / "pacs.zip")


def test_images_in_other_domains_are_another_set_and_their_size_is_noted(root):
    files = dict(tree("pacs", 3, side=96))
    found = pacs(root, files)
    assert "; images reduced to 96 pixels on the shorter side; a stand-in for Dom" in found.note
    other = {"Photo": "Sketch", "Sketch": "Photo"}
    parts = {name: name.partition("/") for name in files}
    swapped = {f"{other.get(d, d)}/{rest}": files[name] for name, (d, _, rest) in parts.items()}
    assert pacs(root, swapped).fingerprint != found.fingerprint
    assert "reduced" not in pacs(root, dict(tree("pacs", 3, side=227))).note


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("Photo/cat/1.png", "it has no class cat; its classes are dog, elephant"),
        ("Photo/dog/x.gif", "pacs.zip/Photo/dog/x.gif cannot be read (not an image"),
        ("Photo/more/dog/0.png", "Photo/more/dog/0.png lies in none of the folders Photo, Art"),
        ("Toy/dog/0.png", "Toy/dog/0.png lies in none of the folders Photo, Art painting"),
    ],
)
def test_what_is_wrong_with_a_tree_of_domains_is_one_sentence(root, more, sentence):
    files = dict(tree("pacs", 3))
    image = b"" if more.endswith("gif") else files["Photo/dog/000.png"]
    with pytest.raises(data.DataError, match=re.escape(sentence)):
        pacs(root, files | {more: image})
    with pytest.raises(data.DataError, match="it lacks the domain Sketch: get the images of"):
        pacs(root, {name: files[name] for name in files if "Sketch" not in name})


def test_domainnet_is_read_packed_and_of_ten_classes(root):
    files = list(tree("domainnet", 4, spelled=str.lower, more=("axe",)))
    for domain in map(str.lower, DATASETS["domainnet"].domains):
        of_domain = [file for file in files if file[0].startswith(domain)]
        write_zip(root / "domainnet" / f"{domain}.zip", of_domain)
    found = load("domainnet")
    assert found.train_groups.bincount().tolist() == [32] * 6 and found.num_classes == 10
    assert found.note.startswith("without the official lists: every ninth and tenth image")
    assert found.remark == "ten classes, those of FedBN and FedPCL; FedPLCC does not name its own"


# --- runs on them


def resolve(method="FedAvg", dataset="digits5_mini", **given):
    return settings.resolve(METHODS, method=method, dataset=dataset, **given)


def test_divide_by_domain(mini):
    parts, *others = build.divide(resolve(per_domain=100), mini)
    assert others == [None, []]
    assert [set(mini.train_groups[part].tolist()) for part in parts] == [{d} for d in range(5)]
    assert (partition.class_counts(parts, mini.labels.numpy(), 10) == 10).all()
    kept, _, held_out = build.divide(resolve(per_domain=100, validation=0.2), mini)
    for whole, part, held in zip(parts, kept, held_out, strict=True):
        assert np.array_equal(np.union1d(part, held), whole) and (len(part), len(held)) == (80, 20)
    plain = build.divide(resolve(per_domain=100, balanced_draw=False), mini)[0]
    assert len(np.unique(partition.class_counts(plain, mini.labels.numpy(), 10))) > 1
    other = build.divide(resolve(per_domain=100, seed=1), mini)[0]
    assert partition.digest(parts) != partition.digest(other)


def test_as_many_test_images_of_each_domain_as_asked_for(mini):
    index = build.test_index(resolve(test_per_domain=40), mini)
    assert index.dtype == np.int64 and (np.diff(index) > 0).all()
    assert np.bincount(mini.test_groups[index]).tolist() == [40] * 5
    own = (mini.test_groups == 3).nonzero().flatten().numpy()
    assert not np.array_equal(index[mini.test_groups[index] == 3], own[:40])  # drawn, not the first
    of_solo = build.test_index(resolve("SOLO", test_per_domain=40, seed=7, num_rounds=1), mini)
    assert np.array_equal(index, of_solo)
    assert set(index) < set(build.test_index(resolve(test_per_domain=41), mini))
    assert build.test_index(resolve(test_per_domain=1000), mini).tolist() == list(range(750))
    assert build.test_index(resolve(), mini) is None
