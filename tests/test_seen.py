"""Image files of one's own are read as a person sees them, or refused before memory is full."""

import io
from types import SimpleNamespace

import made_up_sets
import numpy as np
import pytest
from fednb.data.seen import as_seen
from PIL import Image

from fednb import data
from fednb.data import decode
from fednb.errors import DataError

root = made_up_sets.root
RAMP = np.arange(0, 65536, 1024, dtype=np.uint16).reshape(8, 8)  # from black to nearly white


def opened(image, kind="PNG", **options):
    """The image as it comes from a file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return Image.open(io.BytesIO(file.getvalue()))


def test_sixteen_bits_become_eight_by_their_whole_range():
    seen = np.asarray(as_seen(opened(Image.fromarray(RAMP))).convert("L"))
    assert seen.dtype == np.uint8
    assert np.abs(seen - RAMP / 257).max() <= 0.5


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_what_is_transparent_lies_on_white(kind):
    drawing = np.zeros((8, 8, 4), np.uint8)  # black, and nothing of it to be seen
    drawing[2:4, :, 3] = 255
    seen = np.asarray(as_seen(opened(Image.fromarray(drawing), kind, lossless=True)))
    assert (seen[2:4] == 0).all()
    assert (seen[5:] == 255).all()


def test_half_transparent_grey_is_mixed_with_white():
    grey = np.stack([np.zeros((8, 8), np.uint8), np.full((8, 8), 128, np.uint8)], -1)
    seen = np.asarray(as_seen(opened(Image.fromarray(grey, "LA"))).convert("L"))
    assert np.abs(seen.astype(int) - 127).max() <= 1


def test_a_palette_shows_its_colours_and_its_hole():
    picture = Image.new("P", (8, 8), 0)
    picture.putpalette([200, 10, 30, 0, 0, 0])
    picture.paste(1, (0, 0, 8, 2))
    assert as_seen(opened(picture)).getpixel((4, 4)) == (200, 10, 30)
    with_hole = as_seen(opened(picture, transparency=1)).convert("RGB")
    assert with_hole.getpixel((4, 0)) == (255, 255, 255)


def test_the_colours_of_print_become_those_of_a_screen():
    red = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    seen = as_seen(opened(red, "JPEG", quality=95))
    assert seen.mode == "RGB"
    assert seen.getpixel((8, 8))[0] > 240 and max(seen.getpixel((8, 8))[1:]) < 15


def test_a_turned_camera_is_turned_back():
    wide = Image.new("RGB", (16, 8), "white")
    wide.paste((0, 0, 0), (0, 0, 4, 8))  # the left edge is black
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees, clockwise
    seen = as_seen(opened(wide, "JPEG", exif=exif, quality=95))
    assert seen.size == (8, 16)
    grey = np.asarray(seen.convert("L"))
    assert grey[:3].max() < 40 and grey[6:].min() > 200


def write_scans(folder, scan=RAMP):
    for label in "ab":
        (folder / label).mkdir(parents=True, exist_ok=True)
        for i in range(10):
            Image.fromarray(np.roll(scan, i, axis=1)).save(folder / label / f"{i}.png")


@pytest.fixture
def scans(root):
    """A folder of scans of sixteen bits."""
    write_scans(root / "scans")
    return root / "scans"


def test_a_folder_of_sixteen_bit_scans_is_not_white(scans):
    found = data.load("folder:scans")
    assert len(found.images[0]) == 1  # grey
    assert len(found.images.unique()) > 50


def test_images_that_do_not_fit_are_refused_before_they_are_decoded(scans, monkeypatch):
    free = SimpleNamespace(available=10**6)
    monkeypatch.setattr(decode.psutil, "virtual_memory", lambda: free)
    monkeypatch.setattr(decode, "unpacked", None)  # nothing is decoded
    with pytest.raises(DataError, match=r"GB.*folder:scans@64") as refused:
        data.load("folder:scans@1024")
    assert "0.2 GB" in str(refused.value)


def test_a_folder_that_would_be_read_in_part_is_refused(scans):
    Image.fromarray(RAMP.astype(np.float32)).save(scans / "a" / "scan.tif")
    with pytest.raises(DataError, match=r"1 images in formats .* such as a/scan\.tif: make \.png"):
        data.load("folder:scans")


def test_scans_that_are_nearly_black_are_told(scans):
    write_scans(scans, RAMP // 16)  # twelve bits
    assert "the brightest pixel is 16 of 255" in data.load("folder:scans").remark


@pytest.mark.filterwarnings("error")  # Pillow's own words about large images
def test_an_image_of_too_many_pixels_is_one_sentence(scans):
    Image.new("1", (12000, 8000)).save(scans / "a" / "0.png")
    too_many = r"a/0\.png cannot be read \(12000x8000 pixels are too many"
    with pytest.raises(DataError, match=too_many):
        data.load("folder:scans")
