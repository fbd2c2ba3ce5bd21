"""Folders and zip files of one's own images: nothing gets another meaning in silence, images are as a person sees them."""

import io
import re
from types import SimpleNamespace

import made_up_sets
import numpy as np
import pytest
from made_up_sets import encode, error, run, write_tree, write_zip
from PIL import Image

from fednb import data
from fednb_lab import images
from fednb_lab.images import to_rgb8

root = made_up_sets.root
RAMP = np.arange(0, 65536, 1024, dtype=np.uint16).reshape(8, 8)  # from black to nearly white


def opened(image, kind="PNG", **options):
    """The image as it comes from a file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return Image.open(file)


def test_sixteen_bits_become_eight_by_their_whole_range():
    seen = np.asarray(to_rgb8(opened(Image.fromarray(RAMP))).convert("L"))
    assert seen.dtype == np.uint8
    assert np.abs(seen - RAMP / 257).max() <= 0.5


def test_what_is_transparent_lies_on_white():
    drawing = np.zeros((8, 8, 4), np.uint8)  # black, and nothing of it to be seen
    drawing[2:4, :, 3] = 255
    seen = np.asarray(to_rgb8(opened(Image.fromarray(drawing))))
    assert (seen[2:4] == 0).all()
    assert (seen[5:] == 255).all()


def test_a_turned_camera_is_turned_back():
    wide = Image.new("RGB", (16, 8), "white")
    wide.paste((0, 0, 0), (0, 0, 4, 8))  # the left edge is black
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees, clockwise
    seen = to_rgb8(opened(wide, "JPEG", exif=exif, quality=95))
    assert seen.size == (8, 16)
    grey = np.asarray(seen.convert("L"))
    assert grey[:3].max() < 40 and grey[6:].min() > 200


# --- what a folder means


def pets(*tops, classes=("cat", "dog"), number=5, ending="png", side=40, seed=0, grey=False):
    """Pairs (TOP/CLASS/FILE, bytes) of made-up images, of several sizes if there is no seed."""
    rng = np.random.default_rng(seed)
    for top in tops:
        for label in classes:
            for i in range(number):
                width = side if seed else side + i
                channels = 1 if grey or i else 3
                image = rng.integers(0, 256, (channels, side, width), np.uint8)
                yield f"{top}/{label}/{i}.{ending}".lstrip("/"), encode(image, ending)


def some(*places):
    """Pairs (place, bytes) of images, or of something else if their ending says so."""
    rng = np.random.default_rng(9)
    for place in places:
        image = encode(rng.integers(0, 256, (3, 8, 8), np.uint8))
        yield place, image if place.lower().endswith(".png") else b"something else"


def several(kind):
    """The bytes of a file of two images."""
    file = io.BytesIO()
    red, blue = (Image.new("RGB", (8, 8), colour) for colour in ("red", "blue"))
    red.save(file, kind, save_all=True, append_images=[blue])
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "tops", "sizes", "domains"),
    [
        ("folder:pets", ("",), (8, 2), ()),
        ("folder:pets.zip", ("train", "val"), (10, 10), ()),
        ("folder:pets", ("lab", "home"), (16, 4), ("home", "lab")),
    ],
)
def test_a_folder_of_images_is_a_data_set(root, name, tops, sizes, domains):
    write_zip(root / "pets.zip", [*pets(*tops), *some("README")], prefix="in/a/")
    write_tree(root / "pets", [*pets(*tops), *some("README", "__MACOSX/cat/0.png")])
    found = data.load(name)
    pixels = found.images.double() / 255
    assert found.name == name
    assert found.source == "own images"
    assert found.classes == ("cat", "dog")
    assert found.images.shape[1:] == (3, 32, 32)
    assert (len(found.labels), len(found.test_labels)) == sizes == data.info_of(name).sizes
    assert found.group_names == tuple(data.info_of(name).domains) == domains
    divided = "" if "train" in tops else "; every fifth image of a class (by name) is a test image"
    assert found.note == f"images of several sizes, all resized to 32x32{divided}"
    assert found.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), abs=1e-4)
    assert found.std == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist(), abs=1e-4)
    assert data.load(f"{name}@16").images.shape[1:] == (3, 16, 16)
    if domains:
        assert (2 * found.test_groups + found.test_labels).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("TRAIN", "VAL"),
        ("Training Set", "Validation_Set"),
        ("train2017", "val2017"),
        ("pets_train", "pets-testing-images"),
    ],
)
def test_a_split_is_a_split_however_it_is_spelled(root, train, test):
    write_tree(root / "pets", [*pets(train, seed=1), *pets(test, number=2, seed=2)])
    found = data.load("folder:pets")
    assert (len(found.labels), len(found.test_labels), found.group_names) == (10, 4, ())


@pytest.mark.parametrize("tops", [("contest", "latest"), ("trainset", "tst")])
def test_what_only_sounds_like_a_split_is_a_domain_and_said_to_be(root, capsys, tops):
    write_tree(root / "pets", pets(*tops, seed=1))
    assert data.load("folder:pets").group_names == tops
    assert f"of 2 classes (cat, dog) in 2 domains ({tops[0]}, {tops[1]})" in capsys.readouterr().err


NO_SPLITS = "by their names: images must lie in"
WRONG = [
    ([], "there is no pets where you are .*, nor in .*; give its whole path"),
    ([*pets(""), *some("0.png")], "at several depths, in 0.png and cat/0.png: images must lie in"),
    ([*pets(""), *some("cat/more/0.png")], "in cat/0.png and cat/more/0.png: images must lie in"),
    ([*pets("train"), *some("val/0.png")], "in val/0.png and train/cat/0.png: images must lie in"),
    (pets("home/train", "lab/train"), "images lie in home/train/cat/0.png: images must lie in"),
    (pets("train", "test", "extra"), rf"extra \(no split\), test \(test\), train .*{NO_SPLITS}"),
    (pets("train", "test", "Test"), rf"Test \(test\), test \(test\), train .*{NO_SPLITS}"),
    (pets("trian", "test"), rf"test \(test\), trian \(no split\) {NO_SPLITS}"),
    (pets("trainval", "test"), rf"test \(test\), trainval \(no split\) {NO_SPLITS}"),
    (pets("", classes=("cat", "dog", "test")), rf"cat .*, dog .*, test \(test\) {NO_SPLITS}"),
    (pets("home", classes=("train", "test")), rf"test \(test\), train \(train\) {NO_SPLITS}"),
    (pets("home", "lab", classes=("train", "val")), rf"train .*, val \(val\) {NO_SPLITS}"),
    (pets("", number=1), "there are no test images, .* five images or more"),
    ([*pets("home"), *pets("lab", number=4)], "no test images, or none of a domain"),
    (pets("", classes=["cat"]), "images of one class only, cat"),
    ([*pets("train"), *pets("Test", classes=("cat", "dgo"))], "did you mean dog?"),
    ([*pets("train"), *pets("val", classes=["images"])], "images is tested and never trained"),
    ([*pets(""), ("cat/x.gif", several("GIF"))], r"x.gif .*\(it holds 2 images, and one is wanted"),
    ([*pets(""), ("cat/x.tif", several("TIFF"))], r"x.tif .*\(it holds 2 images, and one is wante"),
    ([*pets(""), ("cat/x.tif", encode(np.zeros((1, 8, 8), np.float32), "tif"))], "is not known"),
    ([*pets(""), ("cat/x.png", b"")], r"pets/cat/x.png cannot be read \(not an image\)"),
]


@pytest.mark.parametrize(("files", "sentence"), WRONG)
def test_what_is_wrong_with_a_folder_is_one_sentence(root, files, sentence):
    write_tree(root / "pets", files)
    assert re.search(sentence, error("folder:pets"))
    assert not list((root.parent / "cache").glob("folder*"))


@pytest.mark.parametrize("ending", "webp tif gif JPG jfif pgm".split())
def test_all_usual_formats_are_read(root, ending):
    write_tree(root / "pets", [*pets("", number=9), *pets("", classes=["cow"], ending=ending)])
    found = data.load("folder:pets")
    assert found.labels.bincount().tolist() == [8, 4, 8]


def test_a_folder_is_described_in_one_line_once(root, capsys):
    extra = some("README", "notes.docx", "train/list.csv", "train/cat/x.heic", "Thumbs.db")
    untested = pets("train", classes=["cow"])
    write_tree(root / "pets", [*pets("train", "test", "val"), *untested, *extra])
    for _ in range(2):
        found = data.load("folder:pets")
    (line,) = capsys.readouterr().err.splitlines()
    assert f"folder:pets ({root}/pets): 25 images of 3 classes (cat, cow, dog)" in line
    assert "15 trained on, 10 tested on (as its folders say)" in line
    assert "left out: val (10 images), 4 other files (README, " in line
    assert "never tested: cow" in found.remark and found.remark in line


def test_a_class_that_a_domain_does_not_have_is_named(root, capsys):
    write_tree(root / "pets", [*pets("art", "photo"), *pets("sketch", classes=["cat", "dgo"])])
    data.load("folder:pets")
    (line,) = capsys.readouterr().err.splitlines()
    assert "not in art: dgo; not in photo: dgo; not in sketch: dog" in line


def test_who_reads_folders_is_known_or_told_how_to_get(monkeypatch):
    assert "did you mean 'folder'? Known are folder" in error("foldr:pets")
    monkeypatch.setattr(data, "_readers", dict)
    assert "`pip install -e .`" in error("folder:pets")


@pytest.mark.parametrize(
    ("name", "sentence"), [("pets", "cannot be read"), ("pets@0", "the side"), ("", "no PATH")]
)
def test_what_is_no_folder_is_refused(root, name, sentence):
    (root / "pets").write_bytes(b"nothing")
    assert sentence in error(f"folder:{name}")


def test_a_path_is_seen_from_where_one_works_first(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tree(root / "pets", pets("", seed=1))
    in_data = data.canonical_name("folder:pets")
    write_tree(tmp_path / "pets", pets("", seed=2))
    here = data.canonical_name("folder:pets")
    assert here != in_data
    monkeypatch.chdir("pets")
    assert data.canonical_name("folder:.") == data.canonical_name("folder:../pets") == here
    assert data.resolve_name("folder:pets") == f"folder:{root}/pets"


# --- its images, in memory and in the cache


def test_own_images_are_grey_if_all_are_and_renewed_when_they_change(root):
    write_tree(root / "pets", pets("", grey=True, side=28))
    first = data.load("folder:pets@28")
    assert np.array_equal(first.images[0, 0], np.asarray(Image.open(root / "pets/cat/0.png")))
    write_tree(root / "pets", [("cat/6.png", encode(np.zeros((3, 32, 31), np.uint8)))])
    assert data.load("folder:pets@28").fingerprint != first.fingerprint


@pytest.mark.parametrize("damage", ["none", "cut", "folder"])
def test_cache_gives_the_same_and_is_rebuilt_if_it_is_corrupt(root, capsys, monkeypatch, damage):
    write_tree(root / "pets", pets("lab", "home"))
    first = data.load("folder:pets")
    (path,) = (root.parent / "cache").glob("folder*.npz")
    good = path.read_bytes()
    if damage == "none":
        monkeypatch.setattr(images, "Image", None)  # nothing is decoded
    if damage == "cut":
        path.write_bytes(good[:-100])
    if damage == "folder":  # in which nothing can be written
        monkeypatch.setenv("FEDNB_CACHE", str(path))
    second = data.load("folder:pets")
    for field, value in vars(first).items():
        assert np.array_equal(value, getattr(second, field)), field
    second.images[0] = 0  # the arrays can be written to
    assert path.read_bytes() == good
    told = capsys.readouterr()  # and there is no progress bar without a terminal
    assert told.out == "" and ("no cache written in" in told.err) == (damage == "folder")


def test_images_that_do_not_fit_are_refused_before_they_are_decoded(root, monkeypatch):
    write_tree(root / "pets", pets("", number=10))
    free = SimpleNamespace(available=10**6)
    monkeypatch.setattr(images.psutil, "virtual_memory", lambda: free)
    monkeypatch.setattr(images, "_pixels", None)  # nothing is decoded
    with pytest.raises(data.DataError, match=r"take 0\.2 GB.*@64"):
        data.load("folder:pets@1024")


def test_an_image_of_far_too_many_pixels_is_refused(root, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)
    write_tree(root / "pets", pets("", side=80))
    assert "cat/0.png cannot be read (Image size (6400 pixels) exceeds" in error("folder:pets")


# --- its name in records


def test_records_know_a_folder_by_its_images_and_not_by_its_path(root, tmp_path):
    places = [root / "pets", tmp_path / "a" / "pets", tmp_path / "b" / "pets"]
    for place, seed in zip(places, (1, 1, 2), strict=True):
        write_tree(place, pets("lab", "home", number=10, seed=seed))
    (here, path), (there, same), (_, another) = [run(f"folder:{place}") for place in places]
    assert path == same != another and here == there and "folder-pets-" in path.name
    name = f"folder:pets#{here['dataset']['fingerprint'][:8]}"
    assert here["settings"]["dataset"] == name
    assert here["settings"]["partition"] == "domain"
    assert here["partition"]["sizes"] == [16, 16]
    assert list(here["final"]["groups"]) == ["home", "lab"]
    assert str(tmp_path) not in f"{here}"
    assert data.load(name).fingerprint == here["dataset"]["fingerprint"]


@pytest.mark.parametrize("ask", [data.load, data.canonical_name], ids=lambda ask: ask.__name__)
def test_a_fingerprint_that_is_asked_for_is_that_of_the_images(root, ask):
    write_tree(root / "pets", pets(""))
    name = data.canonical_name("folder:pets")
    assert ask(name)
    digits = name.rpartition("#")[2]
    with pytest.raises(data.DataError, match=f"have the fingerprint {digits}: .*#12345678"):
        ask("folder:pets#12345678")
