"""Image files: the one walk over folders and zip files of them, and their pixels."""

import math
import os
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
from PIL import Image, ImageOps, UnidentifiedImageError
from tqdm import tqdm

from fednb.errors import DataError, check

FORMATS = (
    *("PNG", "JPEG", "WEBP", "AVIF", "GIF", "BMP", "DIB", "TIFF", "JPEG2000", "PPM", "TGA", "PCX"),
    *("SGI", "QOI"),
)
_KINDS = Image.registered_extensions()
ENDINGS = tuple(ending for ending, kind in _KINDS.items() if kind in (*FORMATS, "MPO"))
# how the names of what systems add begin, in lower case
_HIDDEN = (".", "__macosx", "@eadir", "$recycle", "thumbs.db", "desktop.ini")
_LEVELS = 6  # of folders
_COPIES = 3  # of all images that are in memory at once: decoded, divided, and written to a file
_STEP = 257  # of a 16-bit scale between two values of the 8-bit one: 65535 / 255

File = Path | zipfile.Path


@contextmanager
def about(name: str) -> Iterator[None]:
    """Let what is refused inside begin with the name of the set."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


@contextmanager
def reading(path: File) -> Iterator[None]:
    """Refuse a file for whatever goes wrong inside: a broken one can raise nearly anything."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        fix = "put a good copy in its place, or take it out."
        raise DataError(f"{path} cannot be read ({reason(error)}): {fix}") from error


def reason(error: Exception) -> str:
    """Return what an exception says, in one line and without paths."""
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    return lines[0].rstrip(".")[:200] if lines else type(error).__name__


# --- which files there are


class FoundFile(NamedTuple):
    """A file, and where it lies in the folder or zip file that was walked."""

    parts: tuple[str, ...]  # the folders on the way to it and its own name
    file: File

    @property
    def place(self) -> str:
        return "/".join(self.parts)

    @property
    def is_image(self) -> bool:
        """Whether its name says that it is an image."""
        return self.parts[-1].lower().endswith(ENDINGS)


def walk(*paths: Path) -> list[FoundFile]:
    """List what lies in folders and zip files, sorted by path, without what is hidden."""
    files: dict[tuple[str, ...], File] = {}
    for path in paths:
        with reading(path):
            for parts, file in _members(path) if path.is_file() else _below(path):
                if not any(part.lower().startswith(_HIDDEN) for part in parts):
                    check(parts not in files, f"{file} is there twice: take one out.")
                    files[parts] = file
    return [FoundFile(parts, files[parts]) for parts in sorted(files)]


def _members(path: Path) -> Iterator[tuple[tuple[str, ...], File]]:
    """The files in a zip file, by their parts."""
    archive = zipfile.ZipFile(path)
    for name in archive.namelist():
        if not name.endswith("/"):
            yield tuple(filter(None, name.split("/"))), zipfile.Path(archive, name)


def _below(top: Path) -> Iterator[tuple[tuple[str, ...], File]]:
    """The files below a folder, by their parts."""

    def fail(error: OSError) -> None:
        raise error

    for path, folders, files in os.walk(top, onerror=fail, followlinks=True):
        parts = Path(path).relative_to(top).parts
        check(len(parts) < _LEVELS, f"{path} lies too deep to be read.")
        folders[:] = [name for name in folders if not name.lower().startswith(_HIDDEN)]
        yield from (((*parts, name), Path(path, name)) for name in files)


# --- their pixels


def to_rgb8(image: Image.Image) -> Image.Image:
    """Return an image in RGB, as programs show it.

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
    title: str, files: Sequence[File], shape: tuple[int, int, int], own: bool = True
) -> tuple[np.ndarray, dict[tuple[int, int], File]]:
    """Decode all images, uint8 [N, C, H, W]; return also their sizes, each with a file that has it.

    ``own`` images are read as a person sees them, published ones as the papers' code reads them. A
    `DataError` comes before images are decoded that cannot all be held.
    """
    needed = _COPIES * len(files) * math.prod(shape)
    free = psutil.virtual_memory().available
    check(
        needed <= free,
        f"{len(files):,} images of {shape[1]}x{shape[2]} pixels take {needed / 1e9:,.1f} GB, and "
        f"{free / 1e9:,.1f} GB of memory are free: take smaller ones (@64 after one's own folder).",
    )
    pixels = np.empty((len(files), *shape), np.uint8)
    sizes: dict[tuple[int, int], File] = {}
    progress = tqdm(files, f"decoding {title}", unit=" images", delay=1, leave=False, disable=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Pillow has to say of a file, we say in a sentence
        for i, file in enumerate(progress):
            with reading(file):
                pixels[i], size = _pixels(file, shape, own)
            sizes.setdefault(size, file)
    return pixels, sizes


def _pixels(
    file: File, shape: tuple[int, int, int], own: bool
) -> tuple[np.ndarray, tuple[int, int]]:
    """Decode one image to uint8 [C, H, W], and tell its own width and height."""
    channels, height, width = shape
    if not file.is_file():
        raise ValueError("not a file")  # to open a pipe would wait for whoever writes into it
    with file.open("rb") as opened, Image.open(opened, formats=FORMATS) as image:
        frames = getattr(image, "n_frames", 1)
        if own and frames > 1 and image.format != "MPO":
            raise ValueError(f"it holds {frames} images, and one is wanted")
        seen = to_rgb8(image) if own else image
        pixels = seen.convert("RGB" if channels == 3 else "L")
        if seen.size != (width, height):  # as torchvision's Resize
            pixels = pixels.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(pixels).reshape(height, width, channels).transpose(2, 0, 1), seen.size
