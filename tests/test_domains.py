"""Sets of several domains: embedded, drawn, and read from made-up small files in the published formats."""

import bz2
import dataclasses
import io
import itertools
import zipfile
import zlib

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from fednb.papers.foundations import METHODS
from PIL import Image
from scipy.io import savemat

from fednb import __main__, data, domains, evaluate, models, partition, pictures, render, runs, settings
from fednb.settings import SettingsError

OFFICE = {  # images per domain and class, in the order of the classes
    "amazon": (92, 82, 94, 99, 100, 100, 99, 100, 94, 98),
    "caltech": (151, 110, 100, 138, 85, 128, 133, 94, 87, 97),
    "dslr": (12, 21, 12, 13, 10, 24, 22, 12, 8, 23),
    "webcam": (29, 21, 31, 27, 27, 30, 43, 30, 27, 30),
}

INGREDIENTS = [2377051267, 2867565543, 3467488234]  # checksums of the two photographs, decoded, and of the fonts' outlines


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """Give each test its own data and cache folders; what is drawn is drawn in small."""
    monkeypatch.setenv("FEDNB_DATA", str(tmp_path / "sets"))
    monkeypatch.setenv("FEDNB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "sets").mkdir()
    monkeypatch.setitem(data._FACTS, "synthdigits", dataclasses.replace(data._FACTS["synthdigits"], sizes=(30, 20)))
    published = data._FACTS["digits5"].domains | {"Synth": (30, 20)}
    monkeypatch.setitem(data._FACTS, "digits5", dataclasses.replace(data._FACTS["digits5"], domains=published))
    return tmp_path / "sets"


@pytest.fixture(scope="module")
def mini():
    return data.load("digits5_mini")


def error(name, root=None):
    with pytest.raises(data.DataError) as caught:
        data.load(name, root)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def pixels(seed, number, *shape):
    return np.random.default_rng(seed).integers(0, 256, (number, *shape), np.uint8)


def png(image):
    file = io.BytesIO()
    Image.fromarray(image).save(file, "png")
    return file.getvalue()


# --- embedded


def test_the_embedded_domains_are_the_same_each_time(mini):
    again = data.load("digits5_mini")
    assert torch.equal(mini.images, again.images) and torch.equal(mini.test_images, again.test_images)
    assert mini.fingerprint == again.fingerprint
    other = domains.embedded(seed=1)
    for d in range(5):
        assert not np.array_equal(other.images[other.train_groups == d], mini.images[mini.train_groups == d])


def test_the_embedded_domains_are_those_that_runs_are_recorded_under(mini):
    """To the last pixel where photographs are decoded and fonts are read as they were; else nearly."""
    x = mini.images.double()
    means = [x[mini.train_groups == d].mean().item() for d in range(5)]
    assert means == pytest.approx([67.927, 96.149, 95.089, 127.001, 109.367], abs=0.05)  # of other seeds up to 3 apart
    ingredients = np.concatenate([np.round(polygon, 6) for font in render.outlines() for digit in font for polygon in digit])
    if [zlib.crc32(part.tobytes()) for part in (*render.photographs(), ingredients)] == INGREDIENTS:
        assert mini.fingerprint == "9e14cc65c806ff01"


def test_the_embedded_domains_have_all_classes_alike(mini):
    assert mini.images.shape == (2000, 3, 16, 16) and mini.images.dtype == torch.uint8
    assert (mini.source, mini.group_names) == ("embedded", ("Digits", "Slanted", "Blended", "Fonts", "Scenes"))
    assert mini.note == "a stand-in for Digit-5, made of scikit-learn's digits and photographs and matplotlib's fonts"
    for labels, groups, number in ((mini.labels, mini.train_groups, 40), (mini.test_labels, mini.test_groups, 15)):
        assert groups.dtype == torch.int64
        assert (groups * 10 + labels).bincount().tolist() == [number] * 50


def test_the_embedded_domains_differ(mini):
    """Grey or coloured, dark or bright, smooth or not: every two domains differ in some mean by a good deal."""
    x = mini.images.double() / 255
    colour = (x.amax(1) - x.amin(1)).mean((1, 2))
    marks = torch.stack([x.mean((1, 2, 3)), x.std((2, 3)).mean(1), colour, (x[:, :, 0].mean((1, 2)))], 1)
    means = torch.stack([marks[mini.train_groups == d].mean(0) for d in range(5)])
    for i, j in itertools.combinations(range(5), 2):
        assert (means[i] - means[j]).abs().max() > 0.05, (i, j)
    assert (colour[mini.train_groups < 2] == 0).all() and colour[mini.train_groups == 3].mean() > 0.2


def test_no_digit_is_in_two_embedded_images(monkeypatch):
    used, enlarged = [], domains._enlarged

    def record(digit, *arguments):
        used.append(digit.tobytes())
        return enlarged(digit, *arguments)

    monkeypatch.setattr(domains, "_enlarged", record)
    domains.embedded()
    assert len(used) == 3 * (400 + 150)
    assert len(set(used)) == len(used)


def test_embedded_digits_have_their_own_labels(mini):
    from sklearn.datasets import load_digits

    grey, sources = domains._sources(0)
    for split, labels in enumerate((mini.labels, mini.test_labels)):
        for d in range(3):
            assert load_digits().target[sources[split][d]].tolist() == labels[: len(sources[split][d])].tolist()
    plain = np.rint(255 * domains._enlarged(grey[sources[1][0][7]], 16)).astype(np.uint8)
    assert (mini.test_images[7].numpy() == plain).all()


def test_training_and_test_patches_are_of_different_parts_of_the_photographs(monkeypatch):
    halves = np.zeros((427, 640, 3), np.uint8)
    halves[:, 426:] = 255
    monkeypatch.setattr(render, "photographs", lambda: (halves, halves))
    rng = np.random.default_rng(0)
    assert all((render.patch(rng, 32, True) == 0).all() and (render.patch(rng, 32, False) == 1).all() for _ in range(50))


# --- drawn


def test_cover_is_the_area_inside():
    square = np.array([[1.0, 1], [3, 1], [3, 3], [1, 3]])
    expected = np.zeros((4, 4))
    expected[1:3, 1:3] = 1
    assert np.array_equal(render.cover([square], 4), expected)
    assert np.array_equal(render.cover([square[::-1]], 4), expected)  # whichever way round
    half = render.cover([square + np.array([0.5, 0])], 4)
    assert half[1].tolist() == [0, 0.5, 1, 0.5]
    hole = render.cover([8 * square, 8 * square / 2 + 8], 32)
    assert hole.sum() == 16 * 16 - 8 * 8 and hole[16, 16] == 0
    assert render.cover([square + 10], 4).sum() == render.cover([square - 10], 4).sum() == 0
    angles = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    circle = 16 + 10 * np.stack([np.cos(angles), np.sin(angles)], 1)
    assert render.cover([circle], 32).sum() == pytest.approx(100 * np.pi, rel=0.01)
    assert render.cover([circle + np.array([16, 0])], 32).sum() == pytest.approx(
        50 * np.pi, rel=0.01
    )  # cut off at the border


def test_every_font_has_ten_digits_of_full_height_with_their_holes():
    found = render.outlines()
    assert len(found) == len(render.FONTS) == len(set(render.FONTS)) == 21
    for name, digits in zip(render.FONTS, found, strict=True):
        heights = [np.ptp(np.concatenate(digit)[:, 1]) for digit in digits]
        assert min(heights) > 0.9 and max(heights) < 1.3, name  # the 4 of cmti10 hangs down
        holes = [len(digit) - 1 for digit in digits]
        assert holes[8] == 2 and holes[6] == holes[9] == 1 and holes[0] >= 1, name
        assert [holes[d] for d in (1, 2, 3, 5, 7)] == [0] * 5, name
    upright = render.cover([polygon * 24 + 16 for polygon in found[0][7]], 32)
    assert upright[:10].sum() > 2 * upright[22:].sum()  # the bar of the 7 is above


@pytest.mark.parametrize("draw", [render.colours, render.scenes])
def test_a_drawn_image_depends_on_its_own_number_alone(draw):
    labels = np.arange(6)
    images = draw(labels, 32, 0, True)
    assert images.shape == (6, 3, 32, 32) and images.dtype == np.uint8
    assert np.array_equal(images[:3], draw(labels[:3], 32, 0, True))
    assert np.array_equal(images[:3], draw(np.array([0, 1, 2, 9]), 32, 0, True)[:3])
    assert len({image.tobytes() for image in draw(np.zeros(6, int), 32, 0, True)}) == 6
    for other in (draw(labels, 32, 1, True), draw(labels, 32, 0, False), draw(labels[::-1], 32, 0, True)):
        assert all(not np.array_equal(a, b) for a, b in zip(images, other, strict=True))


def test_drawn_digits_stand_out_from_the_ground():
    rng, far = np.random.default_rng(0), 0
    for _ in range(50):
        ground = np.broadcast_to(rng.random(3), (16, 16, 3))
        mask = render.cover([np.array([[4.0, 4], [12, 4], [12, 12], [4, 12]])], 16)
        image = render._paint(rng, ground, [mask])
        far += abs((image[8, 8] - image[0, 0]) @ render._GREY) > 0.25
        assert np.array_equal(image[0, 0], ground[0, 0])
    assert far >= 48


def test_synthdigits_are_drawn_where_the_published_ones_are_missing(root, monkeypatch):
    first = data.load("synthdigits")
    assert (len(first.labels), len(first.test_labels), first.source) == (30, 20, "rendered")
    assert first.note == "drawn in matplotlib's fonts, a stand-in for SynthDigits"
    assert first.labels.bincount().tolist() == [3] * 10
    monkeypatch.setattr(render, "colours", None)  # the second time it comes from the cache
    assert data.load("synthdigits").fingerprint == first.fingerprint


# --- the digit sets in their published formats


def write_usps(folder):
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = pixels(1, 30, 16, 16), np.arange(30) % 10
    for file, part in (("usps.bz2", slice(0, 20)), ("usps.t.bz2", slice(20, 30))):
        lines = []
        for image, label in zip(images[part], labels[part], strict=True):
            # a little above, since torchvision cuts to whole numbers
            values = " ".join(f"{i + 1}:{v:.6f}" for i, v in enumerate((image.ravel() + 0.01) / 255 * 2 - 1))
            lines.append(f"{label + 1} {values}\n")
        (folder / file).write_bytes(bz2.compress("".join(lines).encode()))
    return images, labels


def write_mat(folder, names, zero=10):
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = pixels(2, 70, 3, 32, 32), np.arange(70) % 10
    for file, part in zip(names, (slice(0, 40), slice(40, 70)), strict=True):
        y = np.where(labels[part] == 0, zero, labels[part])[:, None].astype(np.uint8)
        savemat(folder / file, {"X": images[part].transpose(2, 3, 1, 0), "y": y})
    return images, labels


def write_mnistm(folder):
    images, labels = pixels(3, 30, 32, 32, 3), np.arange(30) % 10
    for split, numbers in (("train", range(20)), ("test", range(20, 30))):
        (folder / f"mnist_m_{split}").mkdir(parents=True)
        for i in numbers:
            (folder / f"mnist_m_{split}" / f"{i:08}.png").write_bytes(png(images[i]))
        lines = [f"{i:08}.png {labels[i]}\n" for i in numbers]
        (folder / f"mnist_m_{split}_labels.txt").write_text("".join(lines))
    return images.transpose(0, 3, 1, 2), labels


def write_npz(path, side, colours=(), seed=4, **more):
    x, y = pixels(seed, 30, side, side, *colours), np.arange(30) % 10
    np.savez(path, x_train=x[:20], y_train=y[:20], x_test=x[20:], y_test=y[20:], **more)
    return x, y


def same(found, images, labels, number):
    assert np.array_equal(found.images, images[:number]) and np.array_equal(found.test_images, images[number:])
    assert np.array_equal(found.labels, labels[:number]) and np.array_equal(found.test_labels, labels[number:])
    assert found.source == "official files"


@pytest.mark.parametrize("place", ["usps", "."])
def test_usps_as_torchvision_has_it(root, place):
    images, labels = write_usps(root / place)
    same(data.load("usps"), images[:, None], labels, 20)
    assert data.load("usps").note == "subset: 20 of 7,291 training images, 10 of 2,007 test images"
    (root / place / "usps.t.bz2").write_bytes(b"nothing")
    message = error("usps")
    assert "usps.t.bz2 cannot be read" in message and "`python -m fednb data usps`" in message
    (root / place / "usps.t.bz2").unlink()
    assert "usps.t.bz2 is missing" in error("usps")


@pytest.mark.parametrize("place", ["svhn", "SVHN", "."])
def test_svhn_as_published(root, place):
    arrays = write_svhn(root / place)
    same(data.load("svhn"), *arrays, 40)
    savemat(root / place / "test_32x32.mat", {"X": np.zeros((28, 28, 3, 2), np.uint8), "y": np.ones((2, 1))})
    assert "test_32x32.mat does not hold one image of 32x32 pixels per label" in error("svhn")
    (root / place / "train_32x32.mat").write_bytes(b"nothing")
    assert "train_32x32.mat cannot be read" in error("svhn")


def write_svhn(folder):
    return write_mat(folder, ("train_32x32.mat", "test_32x32.mat"))


def test_of_syn_numbers_as_many_are_taken_as_the_published_set_has(root):
    images, labels = write_mat(root, ("synth_train_32x32.mat", "synth_test_32x32.mat"), zero=0)
    found = data.load("synthdigits")
    assert np.array_equal(found.images, images[:30]) and np.array_equal(found.test_images, images[40:60])
    assert np.array_equal(found.test_labels, labels[40:60]) and found.source == "official files"
    assert "the first 30 of 40 training images of" in found.note and "the first 20 of 30 test images of" in found.note


def test_synthdigits_as_rethinkfl_reads_them(root):
    for split in ("train", "val"):
        for label in "0123456789":
            (root / "syn" / split / label).mkdir(parents=True)
            (root / "syn" / split / label / "a.png").write_bytes(png(pixels(int(label), 1, 48, 64, 3)[0]))
    found = data.load("synthdigits")
    assert found.images.shape == (10, 3, 32, 32) and found.source == "image tree"
    expected = Image.fromarray(pixels(7, 1, 48, 64, 3)[0]).resize((32, 32), Image.Resampling.BILINEAR)
    assert np.array_equal(found.images[7].permute(1, 2, 0), np.asarray(expected))


def test_mnistm_as_published(root):
    arrays = write_mnistm(root / "mnist_m")
    same(data.load("mnistm"), *arrays, 20)
    path = root / "mnist_m" / "mnist_m_train" / "00000007.png"
    path.write_bytes(png(np.zeros((28, 28, 3), np.uint8)))
    assert "mnist_m_train/00000007.png is 28x28 pixels instead of 32x32; put a good copy in its place" in error("mnistm")
    (root / "mnist_m" / "mnist_m_test_labels.txt").write_text("00000020.png\n")
    assert "mnist_m_test_labels.txt has a line that is not a file name and a class" in error("mnistm")
    (root / "mnist_m" / "mnist_m_test_labels.txt").unlink()
    message = error("mnistm")
    assert "mnist_m_test_labels.txt is missing" in message and "python -m fednb" not in message


# --- Digit-5


@pytest.fixture
def digits5(root):
    """Made-up files of all parts; return their images and labels by domain."""
    arrays = {"MNIST": write_npz(root / "mnist.npz", 28, seed=5), "USPS": write_npz(root / "usps.npz", 16, seed=6)}
    arrays["SVHN"] = write_npz(root / "svhn_small.npz", 32, (3,), seed=7, src_train=np.arange(20))
    arrays["MNIST-M"] = write_npz(root / "mnistm.npz", 32, (3,), seed=8)
    return arrays


def test_digits5_is_made_of_its_five_sets(digits5):
    for _ in range(2):  # decoded, then from the cache
        found = data.load("digits5")
        assert found.group_names == ("MNIST", "USPS", "SVHN", "Synth", "MNIST-M") and found.source == "several"
        assert found.train_groups.bincount().tolist() == [20, 20, 20, 30, 20]
        assert found.test_groups.bincount().tolist() == [10, 10, 10, 20, 10]
        assert found.images.shape == (110, 3, 32, 32)
        for domain, (x, y) in digits5.items():
            g = found.group_names.index(domain)
            images, labels = found.images[found.train_groups == g].numpy(), found.labels[found.train_groups == g]
            assert np.array_equal(labels, y[:20])
            if x.ndim == 4:
                assert np.array_equal(images, x[:20].transpose(0, 3, 1, 2))
            else:  # enlarged, and grey repeated
                assert (images == images[:, :1]).all()
                enlarged = Image.fromarray(x[3]).resize((32, 32), Image.Resampling.BILINEAR)
                assert np.array_equal(images[3, 0], np.asarray(enlarged))
    assert (found.mean, found.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert found.augmentation == data.Augmentation(pad=4, flip=True)
    assert "SVHN 20 of 73,257 training and 10 of 26,032 test images" in found.note and "Synth 30" not in found.note
    assert "SVHN: digits cut out of photographs of the full-number set, not the official crops" in found.note
    assert "Synth: drawn in matplotlib's fonts, a stand-in for SynthDigits" in found.note
    assert "the digits of MNIST-M are those of MNIST" in found.remark and "MNIST-M" not in found.note.partition(";")[2]


def test_a_missing_part_of_digits5_is_named(root, digits5):
    (root / "mnistm.npz").unlink()
    message = error("digits5")
    assert message.startswith("MNIST-M was not found") and "mnist_m_train_labels.txt" in message
    (root / "usps.npz").unlink()
    assert "USPS was not found" in error("digits5") and "`python -m fednb data usps`" in error("digits5")


def test_a_domain_of_the_wrong_shape_is_refused(root, digits5):
    write_npz(root / "svhn_small.npz", 28, (3,))
    assert "SVHN: svhn_small.npz does not hold images of 32x32 pixels" in error("digits5")
    write_npz(root / "svhn_small.npz", 32)
    assert "SVHN: svhn_small.npz does not hold one image of 32x32 pixels per label" in error("digits5")


def test_more_images_than_were_published_are_refused(digits5, monkeypatch):
    facts = data._FACTS["usps"]
    monkeypatch.setitem(data._FACTS, "usps", dataclasses.replace(facts, sizes=(19, 10)))
    assert "USPS has 19 training images, but 20 were found" in error("digits5")


def test_what_can_be_fetched_of_digits5_is_fetched(root, monkeypatch, capsys):
    from torchvision import datasets

    calls = []

    def fetch(name, write):
        def make(folder, *, download, **options):
            assert download
            calls.append((name, *options.values()))
            write(root / folder)

        monkeypatch.setattr(datasets, name, make)

    fetch("USPS", write_usps)
    fetch("SVHN", write_svhn)
    fetch("MNIST", lambda folder: write_npz(folder / "mnist.npz", 28))
    monkeypatch.setattr(domains, "_usps", lambda *_: domains.data._arrays("usps", root / "other.npz", root))
    write_npz(root / "other.npz", 16)
    with pytest.raises(data.DataError, match=r"MNIST-M was not found: .* put the release of its authors"):
        data.download("digits5")
    assert calls == [("MNIST",), ("USPS", True), ("USPS", False), ("SVHN", "train"), ("SVHN", "test")]
    with pytest.raises(data.DataError, match=r"Office-10 was not found: .* get the images of Office-Caltech-10"):
        data.download("office10")
    data.download("digits5_mini")
    data.download("synthdigits")
    assert "nothing to download" in capsys.readouterr().out


# --- trees DOMAIN/CLASS/FILE


def tree(name, per_class, side=32, classes=None, spelled=str, seed=0):
    """Pairs (DOMAIN/CLASS/FILE, bytes) of a made-up tree."""
    rng = np.random.default_rng(seed)
    for domain in data._FACTS[name].domains:
        for label in classes or data._FACTS[name].classes:
            for i in range(per_class):
                image = rng.integers(0, 256, (side, side + 8, 3), np.uint8)
                yield f"{spelled(domain)}/{spelled(label)}/{i:03}.png", png(image)


def write_tree(folder, files):
    for name, content in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def write_zip(path, files, prefix=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files:
            archive.writestr(prefix + name, content)


def test_office10_has_the_published_sizes(root):
    """Those that follow from FedPLCC's rounding, and as many training images as there can be."""
    blank = png(np.zeros((4, 5, 3), np.uint8))
    with zipfile.ZipFile(root / "office_caltech10.zip", "w") as archive:
        for domain, counts in OFFICE.items():
            for label, count in zip(data._FACTS["office10"].classes, counts, strict=True):
                for i in range(count):
                    archive.writestr(f"{domain}/{label}/{i:04}.png", blank)
    found = data.load("office10")
    sizes = dict(zip(found.group_names, found.test_groups.bincount().tolist(), strict=True))
    assert sizes == {"Caltech": 224, "Amazon": 190, "Webcam": 58, "DSLR": 30}
    assert found.train_groups.bincount().tolist() == [899, 768, 237, 127]
    assert found.note == "images reduced to 4 pixels on the shorter side"
    assert found.remark.endswith("; 502 test images are training images as well")  # all are blank
    rng = np.random.default_rng(0)
    parts = partition.by_domain(found.labels.numpy(), found.train_groups.numpy(), 300, rng)
    assert [len(part) for part in parts] == [300, 300, 237, 127]


def test_every_ninth_and_tenth_image_of_a_domain_is_a_test_image(root):
    files = list(tree("office10", 3))
    write_tree(root / "office10", files)
    found = data.load("office10")
    own = [Image.open(io.BytesIO(content)) for name, content in files if name.startswith("Webcam")]
    own = [np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR)).transpose(2, 0, 1) for image in own]
    test = [8, 9, 18, 19, 28, 29]
    assert np.array_equal(found.test_images[found.test_groups == 2], [own[i] for i in test])
    assert np.array_equal(found.images[found.train_groups == 2], [x for i, x in enumerate(own) if i not in test])
    assert found.test_labels[found.test_groups == 2].tolist() == [i // 3 for i in test]


def test_a_tree_and_its_zip_files_agree_however_they_are_spelled(root, tmp_path):
    write_tree(root / "Office_Caltech_10", tree("office10", 2))
    write_zip(root / "b" / "office_caltech10.zip", tree("office10", 2, spelled=lambda n: n.lower().replace("_", "")), "in/")
    write_zip(root / "c" / "office10" / "all.zip", tree("office10", 2, spelled=lambda n: {"Caltech": "caltech10"}.get(n, n)))
    first, *others = [data.load("office10", root / folder) for folder in (".", "b", "c")]
    assert [first.source, *(o.source for o in others)] == ["image tree", "zip files", "zip files"]
    assert {o.fingerprint for o in others} == {first.fingerprint}


def test_what_a_mac_or_another_spelling_adds_does_not_matter(root):
    """Copies of attributes are no images, and Office-10's class is also called laptop."""
    files = list(tree("office10", 2))
    write_zip(root / "a" / "office10.zip", files)
    named = [(name.replace("laptop_computer", "laptop"), content) for name, content in files]
    assert named != files
    extra = [("Webcam/mug/._000.png", b"attributes"), ("Webcam/mug/Thumbs.db", b"thumbs")]
    write_zip(root / "b" / "office10.zip", [*named, *extra, ("__MACOSX/Webcam/mug/000.png", b"attributes")], "")
    write_tree(root / "c" / "office10", [*named, *extra])
    first, *others = [data.load("office10", root / folder) for folder in "abc"]
    assert {o.fingerprint for o in others} == {first.fingerprint}


def test_the_same_images_in_other_domains_are_another_set(root):
    files = list(tree("pacs", 2))
    swap = {"Photo": "Sketch", "Sketch": "Photo"}
    swapped = [("/".join([swap.get((p := n.split("/"))[0], p[0]), *p[1:]]), content) for n, content in files]
    for place, content in (("a", files), ("b", swapped)):
        write_zip(root / place / "pacs.zip", content)
    assert data.load("pacs", root / "a").fingerprint != data.load("pacs", root / "b").fingerprint


def test_reduced_images_are_noted(root):
    write_zip(root / "pacs.zip", tree("pacs", 2, side=96))
    assert "; images reduced to 96 pixels on the shorter side; a stand-in for DomainNet" in data.load("pacs").note
    write_zip(root / "pacs.zip", tree("pacs", 2, side=227))
    assert "reduced" not in data.load("pacs").note


def test_a_tree_that_lacks_something_is_refused(root):
    files = list(tree("pacs", 2))
    write_zip(root / "pacs.zip", [pair for pair in files if not pair[0].startswith("Sketch")])
    message = error("pacs")
    assert "PACS lacks the domain Sketch" in message and "pacs/DOMAIN/CLASS/*.jpg" in message
    write_zip(root / "pacs.zip", [*files, ("Photo/cat/1.png", files[0][1])])
    assert "PACS has no class cat; its classes are dog, elephant" in error("pacs")
    write_zip(root / "pacs.zip", [*files, ("Photo/dog/no.png", b"nothing")])
    message = error("pacs")
    assert "pacs.zip (Photo/dog/no.png) cannot be read (not an image)" in message and "good copy" in message
    (root / "pacs.zip").write_bytes(b"nothing")
    assert "pacs.zip cannot be read" in error("pacs")


@pytest.mark.parametrize("packed", [False, True])
def test_domainnet_is_divided_by_its_lists_and_has_ten_classes(root, packed):
    files = list(tree("domainnet", 4, spelled=str.lower, classes=(*data._FACTS["domainnet"].classes, "axe")))
    if packed:
        for domain in {name.split("/")[0] for name, _ in files}:
            own = [pair for pair in files if pair[0].startswith(domain)]
            write_zip(root / "domainnet" / f"{domain}.zip", own)
    else:
        write_tree(root / "domainnet", files)
    plain = data.load("domainnet")
    assert plain.train_groups.bincount().tolist() == [32] * 6 and plain.num_classes == 10
    assert plain.note.startswith("without the official lists: every ninth and tenth image")
    for split, wanted in (("train", "0123"), ("test", "3")):
        for domain in data._FACTS["domainnet"].domains:
            own = [
                n
                for n, _ in files
                if n.startswith(domain.lower()) and (n[-5] in wanted) == (split == "test" or n[-5] != "3")
            ]
            (root / "domainnet" / f"{domain.lower()}_{split}.txt").write_text("".join(f"{n} 7\n" for n in own))
    found = data.load("domainnet")
    assert found.train_groups.bincount().tolist() == [30] * 6 and found.test_groups.bincount().tolist() == [10] * 6
    assert found.note == "" and found.remark == "ten classes, those of FedBN and FedPCL; FedPLCC does not name its own"
    last = next(content for name, content in files if name == "real/zebra/003.png")
    expected = Image.open(io.BytesIO(last)).resize((32, 32), Image.Resampling.BILINEAR)
    chosen = found.test_images[(found.test_groups == 4) & (found.test_labels == 9)]
    assert np.array_equal(chosen[0].permute(1, 2, 0), np.asarray(expected))
    (root / "domainnet" / "real_train.txt").write_text("real/zebra/000.png 9\n")
    assert data.load("domainnet").train_groups.bincount().tolist() == [30, 30, 30, 30, 1, 30]  # in no list, in no split
    (root / "domainnet" / "quickdraw_test.txt").unlink()
    assert "domainnet/quickdraw_test.txt is missing" in error("domainnet")


# --- partition and settings


def test_a_client_has_one_domain_and_equal_classes():
    rng = np.random.default_rng(0)
    labels, groups = rng.integers(0, 10, 5000), rng.integers(0, 3, 5000)
    parts = partition.by_domain(labels, groups, 304, np.random.default_rng(1))
    for d, part in enumerate(parts):
        assert part.dtype == np.int64 and len(part) == 304 and (np.diff(part) > 0).all()
        assert (groups[part] == d).all()
        counts = np.bincount(labels[part], minlength=10)
        assert set(counts) == {30, 31}
    again = partition.by_domain(labels, groups, 304, np.random.default_rng(1))
    other = partition.by_domain(labels, groups, 304, np.random.default_rng(2))
    assert partition.digest(parts) == partition.digest(again) != partition.digest(other)
    with_one_more = [np.bincount(labels[p], minlength=10).argsort()[-4:].tolist() for p in (*parts, *other)]
    assert len({tuple(sorted(classes)) for classes in with_one_more}) > 1  # not always the first classes


def test_a_small_class_gives_all_it_has():
    labels = np.repeat([0, 1, 2], [100, 5, 100])
    (part,) = partition.by_domain(labels, np.zeros(205, int), 60, np.random.default_rng(0))
    counts = np.bincount(labels[part])
    assert counts[1] == 5 and sorted(counts[[0, 2]]) == [27, 28]
    (part,) = partition.by_domain(labels, np.zeros(205, int), 999, np.random.default_rng(0))
    assert part.tolist() == list(range(205))


def test_a_plain_draw_does_not_look_at_classes():
    labels = np.repeat([0, 1], [900, 100])
    rngs = [np.random.default_rng(seed) for seed in range(40)]
    counts = [np.bincount(labels[partition.by_domain(labels, 0 * labels, 100, r, balanced=False)[0]])[1] for r in rngs]
    assert np.mean(counts) == pytest.approx(10, abs=2) and len(set(counts)) > 3


@pytest.mark.parametrize(
    ("groups", "per_domain", "message"),
    [([0, 0], 0, "per_domain is 0; it must be at least 1"), ([0, 2], 1, "Domain 1 has no training images")],
)
def test_what_cannot_be_divided_by_domain_is_refused(groups, per_domain, message):
    with pytest.raises(partition.PartitionError, match=message):
        partition.by_domain(np.array([0, 0]), np.array(groups), per_domain, np.random.default_rng(0))


def resolve(method="FedAvg", dataset="digits5_mini", **given):
    return settings.resolve(METHODS, method=method, dataset=dataset, **given)


@pytest.mark.parametrize(
    ("dataset", "clients", "rounds", "per_domain"),
    [("digits5", 5, 50, 300), ("office10", 4, 100, 300), ("domainnet", 6, 50, 400), ("pacs", 4, 50, 400)],
)
def test_fedplccs_settings(dataset, clients, rounds, per_domain):
    s = resolve(dataset=dataset)
    assert (s.partition, s.num_clients, s.num_rounds, s.per_domain) == ("domain", clients, rounds, per_domain)
    assert (s.model, s.projection_head, s.local_epochs, s.batch_size) == ("resnet-10", False, 10, 64)
    assert (s.lr, s.momentum, s.weight_decay, s.balanced_draw, s.beta) == (0.01, 0.9, 1e-5, True, None)
    assert (s.keep_last, s.local_steps, s.evaluate_every, s.test_per_domain) == (True, None, None, None)
    assert len(data._FACTS[dataset].domains) == clients
    assert settings.departures(s) == []
    for method in METHODS:
        assert settings.resolve(METHODS, method=method, dataset=dataset).num_rounds == rounds


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_clients": 3}, "num_clients is 3, but digits5_mini has 5 domains with one client each; leave it at None"),
        ({"partition": "dirichlet"}, "no settings for digits5_mini with partition 'dirichlet'; there are for digits,"),
        ({"beta": 0.5}, "beta belongs to partition 'dirichlet' or 'quantity'; with 'domain' leave it at None"),
        ({"dataset": "digits", "partition": "domain"}, "no settings for digits with partition 'domain'; .* digits5_mini"),
        ({"dataset": "digits", "per_domain": 10}, "per_domain belongs to partition 'domain'"),
        ({"dataset": "digits", "test_per_domain": 10}, "test_per_domain belongs to partition 'domain'"),
        ({"dataset": "digits5mini"}, "Unknown dataset 'digits5mini': .*did you mean 'digits5_mini'"),
    ],
)
def test_what_does_not_fit_a_split_by_domain_is_refused(given, message):
    with pytest.raises(SettingsError, match=message):
        resolve(**given)


def test_divide_by_domain(mini):
    parts, test_parts, held_out = runs.divide(resolve(per_domain=100), mini)
    assert test_parts is None and held_out == []
    assert [set(mini.train_groups[part].tolist()) for part in parts] == [{d} for d in range(5)]
    assert (partition.class_counts(parts, mini.labels.numpy(), 10) == 10).all()
    kept, _, held_out = runs.divide(resolve(per_domain=100, validation=0.2), mini)
    assert [len(part) for part in held_out] == [20] * 5
    for whole, part, held in zip(parts, kept, held_out, strict=True):
        assert np.array_equal(np.union1d(part, held), whole) and len(part) == 80
    plain = runs.divide(resolve(per_domain=100, balanced_draw=False), mini)[0]
    assert len(np.unique(partition.class_counts(plain, mini.labels.numpy(), 10))) > 1
    assert partition.digest(parts) != partition.digest(runs.divide(resolve(per_domain=100, seed=1), mini)[0])


def test_a_run_is_judged_in_each_domain():
    record = runs.run(resolve(num_rounds=2, local_epochs=1), METHODS, workers=1)
    groups = record["metrics"]["groups"]
    assert [list(entry) for entry in groups] == [["Digits", "Slanted", "Blended", "Fonts", "Scenes"]] * 2
    for accuracy, entry in zip(record["metrics"]["accuracy"], groups, strict=True):
        assert accuracy == pytest.approx(np.mean(list(entry.values())), rel=1e-6)
    assert record["final"]["groups"] == groups[-1]
    assert record["partition"]["sizes"] == [300] * 5
    assert record["model_parameters"] == models.num_parameters(
        models.build("digits-cnn", 10, side=16, projection_head=False)
    )


def test_as_many_test_images_of_each_domain_as_asked_for(mini):
    index = runs.test_index(resolve(test_per_domain=40), mini)
    assert index.dtype == np.int64 and (np.diff(index) > 0).all()
    assert np.bincount(mini.test_groups[index]).tolist() == [40] * 5
    own = (mini.test_groups == 3).nonzero().flatten().numpy()
    assert not np.array_equal(index[mini.test_groups[index] == 3], own[:40])  # drawn, not the first
    assert np.array_equal(index, runs.test_index(resolve("SOLO", test_per_domain=40, seed=7, num_rounds=1), mini))
    assert set(index) < set(runs.test_index(resolve(test_per_domain=41), mini))
    assert runs.test_index(resolve(test_per_domain=1000), mini).tolist() == list(range(750))
    assert runs.test_index(resolve(), mini) is None


@pytest.mark.parametrize("method", ["FedAvg", "SOLO"])
def test_these_test_images_are_evaluated_and_no_others(mini, monkeypatch, method):
    s = resolve(method, test_per_domain=40, num_rounds=1, local_epochs=1)
    index = runs.test_index(s, mini)
    other = torch.ones(750, dtype=torch.bool)
    other[index] = False
    noise = torch.where(other.view(-1, 1, 1, 1), 255 - mini.test_images, mini.test_images)
    record = runs.run(s, METHODS, workers=1)
    assert record["partition"]["test_images"] == 200
    assert "test_per_domain 40 instead of all" in record["departures"]
    monkeypatch.setattr(runs, "load_dataset", lambda name: dataclasses.replace(mini, test_images=noise))
    assert runs.run(s, METHODS, workers=2, again=True)["metrics"]["groups"] == record["metrics"]["groups"]
    fed = runs.federation(s, METHODS, workers=1)
    fed.run_round()
    hits = [evaluate.correct(fed, c, torch.arange(750))["classifier"] for c in fed.clients[: 5 if method == "SOLO" else 1]]
    chosen = [index[mini.test_groups[index] == d] for d in range(5)]
    by_hand = [100 * np.mean([h[own].float().mean().item() for h in hits]) for own in chosen]
    assert list(record["final"]["groups"].values()) == pytest.approx(by_hand, rel=1e-6)


# --- what people see


def test_picture_of_all_domains(mini):
    figure, ax = plt.subplots()
    pictures.domains(mini, per_class=2, ax=ax)
    sheet = ax.images[0].get_array()
    assert sheet.shape == (5 * 17 - 1, 20 * 17 - 1, 3)
    chosen = ((mini.train_groups == 3) & (mini.labels == 7)).nonzero().flatten()[1]
    place = sheet[3 * 17 : 3 * 17 + 16, 15 * 17 : 15 * 17 + 16]
    assert np.array_equal(place, mini.images[chosen].permute(1, 2, 0))
    assert [text.get_text() for text in ax.get_yticklabels()] == list(mini.group_names)
    plt.close(figure)
    with pytest.raises(ValueError, match="digits has no domains to show"):
        pictures.domains(data.load("digits"))


def test_the_command_line_lists_all_sets(root, capsys):
    write_npz(root / "svhn.npz", 32, (3,))
    assert __main__.main(["data"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert list(lines) == list(data.NAMES)
    assert (lines["digits5_mini"], lines["svhn"], lines["office10"]) == ("embedded", "file of arrays", "-")
