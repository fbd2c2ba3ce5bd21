"""Files are not trusted: what is larger than it can be is refused before it is unpacked."""

import gzip
import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from PIL import Image, UnidentifiedImageError

from fednb.errors import DataError

LIMIT = 2**26  # bytes of an image or text, and pixels of an image, at most
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")  # of images
NOT_READ = (".tif", ".tiff", ".bmp", ".gif", ".heic", ".avif", ".jp2", ".dcm", ".nii", ".npy")
_HIDDEN = (".", "__MACOSX")  # how the names of what systems add begin
_LEVELS = 4  # of folders in which images are looked for


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


class ListedFile(NamedTuple):
    """A file, and where it lies in the folder or zip file that was listed."""

    parts: tuple[str, ...]  # the folders on the way to it and its own name
    file: File


class ImageFile(NamedTuple):
    """An image of a data set that is not decoded yet."""

    domain: int  # 0 where there are none
    label: str  # the name of its class
    file: File
    split: str  # "train", "test" or "val"; "" before it is divided


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
    """Read a file that may be packed, or in a zip file; at most so many bytes are unpacked."""
    opened: IO[bytes]
    if isinstance(file, Member):
        info = file.archive.getinfo(file.name)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError("neither stored nor deflated")  # others are unpacked in one go
        opened = file.archive.open(info)
    elif not stat.S_ISREG(os.stat(file).st_mode):
        raise ValueError("not a file")  # to open a pipe would wait for whoever writes into it
    elif file.suffix == ".gz":
        opened = cast(IO[bytes], gzip.open(file))
    else:
        opened = file.open("rb")
    with opened:
        content = opened.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"more than {limit:,} bytes are too many")
    return content


def lines_of(file: File) -> list[str]:
    with reading(file):
        return unpacked(file).decode(errors="replace").splitlines()


def children(folder: Path) -> list[Path]:
    """What a folder holds, without hidden files, sorted by name; nothing if it is no folder."""
    if not folder.is_dir():
        return []
    return [folder / name for name in sorted(os.listdir(folder)) if name[0] != "."]


def images_below(*paths: Path, suffixes: tuple[str, ...] = SUFFIXES) -> list[ListedFile]:
    """All images in zip files, or in folders up to four levels deep, sorted by path."""
    images: list[ListedFile] = []
    for path in paths:
        listed = _members(path) if path.is_file() else _files_below(path, (), _LEVELS)
        images += (image for image in listed if image.parts[-1].lower().endswith(suffixes))
    return sorted(images, key=lambda image: image.parts)


def _members(path: Path) -> Iterator[ListedFile]:
    with reading(path):
        archive = zipfile.ZipFile(path)
    for name in archive.namelist():
        parts = tuple(part for part in name.split("/") if part not in ("", "."))
        is_hidden = any(part.startswith(_HIDDEN) for part in parts)
        if parts and not is_hidden and not name.endswith("/"):
            yield ListedFile(parts, Member(archive, name))


def _files_below(folder: Path, parts: tuple[str, ...], levels: int) -> Iterator[ListedFile]:
    """What is no folder, in as many levels of them."""
    with reading(folder), os.scandir(folder) as entries:
        found = [entry for entry in entries if not entry.name.startswith(_HIDDEN)]
    for entry in found:
        path = (*parts, entry.name)
        if not entry.is_dir():
            yield ListedFile(path, folder / entry.name)
        elif levels > 1:
            yield from _files_below(folder / entry.name, path, levels - 1)
