"""Files are not trusted: what is larger than it can be is refused before it is unpacked."""

import gzip
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from PIL import UnidentifiedImageError

from fednb.errors import DataError

LIMIT = 2**26  # bytes of an image or text, and pixels of an image, at most
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")  # of images
_HIDDEN = re.compile(r"\..*|__MACOSX")  # what systems add

File = Path | zipfile.Path


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
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    return lines[0].rstrip(".")[:200] if lines else type(error).__name__


def unpacked(file: File, limit: int = LIMIT) -> bytes:
    """Read a file that may be packed, or in a zip file; at most so many bytes are unpacked."""
    if file.exists() and not file.is_file():
        raise ValueError("not a file")
    if isinstance(file, zipfile.Path):
        method = file.root.getinfo(file.at).compress_type
        if method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError("neither stored nor deflated")  # others are unpacked in one go
    if isinstance(file, Path) and file.suffix == ".gz":
        opened: IO[bytes] | gzip.GzipFile = gzip.open(file)
    else:
        opened = file.open("rb")
    with opened:
        content = opened.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"more than {limit:,} bytes are too many")
    return content


def lines_of(file: File) -> list[str]:
    """The lines of a text file."""
    with reading(file):
        return unpacked(file).decode(errors="replace").splitlines()


def children(folder: Path) -> list[Path]:
    """What a folder holds, without hidden files, sorted by name; nothing if it is no folder."""
    if not folder.is_dir():
        return []
    return [folder / name for name in sorted(os.listdir(folder)) if name[0] != "."]


def images_below(*paths: Path) -> list[ListedFile]:
    """All images in zip files, or in folders up to four levels deep, sorted by path."""
    listed: list[ListedFile] = []
    for path in paths:
        listed += _members(path) if path.is_file() else _files_below(path)
    images = [
        image
        for image in listed
        if image.file.suffix.lower() in SUFFIXES
        and not any(_HIDDEN.fullmatch(part) for part in image.parts)
    ]
    return sorted(images, key=lambda image: image.parts)


def _members(path: Path) -> list[ListedFile]:
    with reading(path):
        archive = zipfile.ZipFile(path)
    return [
        ListedFile(PurePosixPath(name).parts, zipfile.Path(archive, name))
        for name in archive.namelist()
    ]


def _files_below(folder: Path) -> list[ListedFile]:
    listed = []
    for pattern in ("*", "*/*", "*/*/*", "*/*/*/*"):
        listed += [
            ListedFile(file.relative_to(folder).parts, file) for file in folder.glob(pattern)
        ]
    return listed
