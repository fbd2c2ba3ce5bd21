"""Image files, in folders and in zip files, as a person sees them."""

import io
import math
import os
import stat
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import psutil
from PIL import Image, ImageOps, UnidentifiedImageError
from tqdm import tqdm

from fednb.errors import DataError

LIMIT = 2**26  # bytes of a file, and pixels of an image, at most
FORMATS = (
    *("PNG", "JPEG", "WEBP", "AVIF", "GIF", "BMP", "DIB", "TIFF", "JPEG2000", "PPM", "TGA", "PCX"),
    *("SGI", "QOI"),
)
_COPIES = 3  # of all images that are in memory at once: decoded, divided, and written to a file
_STEP = 257  # of a 16-bit scale between two values of the 8-bit one: 65535 / 255


class Member(NamedTuple):
    """A file in a zip file."""

    archive: zipfile.ZipFile
    name: str

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    def __str__(self) -> str:
        return f"{self.archive.filename}/{self.name}"


File = Path | Member


class Broken(DataError):
    """A file is not as it should be; the message begins with its path."""


@contextmanager
def reading(path: File) -> Iterator[None]:
    """Raise `Broken` for whatever goes wrong inside: a broken file can raise nearly anything."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise Broken(f"{path} cannot be read ({reason(error)})") from error


def reason(error: Exception) -> str:
    """What an exception says, in one line and without paths."""
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    if isinstance(error, Image.DecompressionBombError):
        return "its pixels are too many"
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    return lines[0].rstrip(".")[:200] if lines else type(error).__name__


def unpacked(file: File, limit: int = LIMIT) -> bytes:
    """Read a file that may be in a zip file; at most so many bytes are unpacked."""
    if isinstance(file, Member):
        info = file.archive.getinfo(file.name)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError("neither stored nor deflated")  # others are unpacked in one go
        with file.archive.open(info) as member:
            content = member.read(limit + 1)
    elif not stat.S_ISREG(os.stat(file).st_mode):
        raise ValueError("not a file")  # to open a pipe would wait for whoever writes into it
    else:
        with file.open("rb") as opened:
            content = opened.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"more than {limit:,} bytes are too many")
    return content


def as_seen(image: Image.Image) -> Image.Image:
    """An RGB image, as programs show it.

    A camera's note on which side is up is heeded. What is transparent lies on white. Sixteen bits
    become eight by their whole range, so that two images of one set stay comparable; Pillow alone
    would cut off all that is above 255. A `ValueError` for what has no such range.
    """
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers, whose range is not known")
    if image.mode.startswith("I"):
        image = _in_eight_bits(image)
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)
    return image.convert("RGB")


def _in_eight_bits(image: Image.Image) -> Image.Image:
    """Grey of sixteen bits as eight, with the one value that may be transparent."""
    values = np.asarray(image).astype(np.int64)
    if values.min() < 0 or values.max() > 65535:
        raise ValueError("its pixels are not from 0 to 65535, and their range is not known")
    grey = np.rint(values / _STEP).astype(np.uint8)
    hole = image.info.get("transparency")
    if hole is None:
        return Image.fromarray(grey)
    alpha = np.where(values == hole, 0, 255).astype(np.uint8)
    return Image.fromarray(np.stack([grey, alpha], -1), "LA")


def decoded(
    title: str,
    files: Sequence[File],
    shape: tuple[int, int, int],
    *,
    own: bool = True,
    resized: bool = True,
) -> tuple[np.ndarray, set[tuple[int, int]]]:
    """All images, uint8 [N, C, H, W], and the widths and heights that their files have.

    ``own`` images are read as a person sees them, published ones as the papers' code reads them. A
    `DataError` comes before images are decoded that cannot all be held.
    """
    needed = _COPIES * len(files) * math.prod(shape)
    free = psutil.virtual_memory().available
    if needed > free:
        smaller = "ask for smaller ones, such as @64" if own else "take a machine with more"
        raise DataError(
            f"{title}: {len(files):,} images of {shape[1]}x{shape[2]} pixels take "
            f"{needed / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB of memory are free; {smaller}."
        )
    pixels = np.empty((len(files), *shape), np.uint8)
    sizes = set()
    progress = tqdm(files, f"decoding {title}", unit=" images", delay=1, leave=False, disable=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Pillow has to say of a file, we say in a sentence
        for i, file in enumerate(progress):
            with reading(file):
                pixels[i], size = _pixels(file, shape, own, resized)
            sizes.add(size)
    return pixels, sizes


def _pixels(
    file: File, shape: tuple[int, int, int], own: bool, resized: bool
) -> tuple[np.ndarray, tuple[int, int]]:
    """Decode one image to uint8 [C, H, W], and tell its own width and height."""
    channels, height, width = shape
    with Image.open(io.BytesIO(unpacked(file)), formats=FORMATS) as image:
        size = f"{image.width}x{image.height} pixels"
        if image.size != (width, height) and not resized:
            raise Broken(f"{file} is {size} instead of {width}x{height}")
        if math.prod(image.size) > LIMIT:
            raise ValueError(f"{size} are too many")
        frames = getattr(image, "n_frames", 1)
        if own and frames > 1 and image.format != "MPO":
            raise ValueError(f"it holds {frames} images, and one is wanted")
        seen = as_seen(image) if own else image
        pixels = seen.convert("RGB" if channels == 3 else "L")
        if seen.size != (width, height):  # as torchvision's Resize
            pixels = pixels.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(pixels).reshape(height, width, channels).transpose(2, 0, 1), seen.size
