"""Somebody's own images, ``folder:PATH`` or, of another size than 32x32, ``folder:PATH@64``."""

import os
import re
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fednb.data import decode, tree
from fednb.data.dataset import Augmentation
from fednb.data.files import NOT_READ, SUFFIXES, Broken, ImageFile, ListedFile, images_below
from fednb.data.find import Source, paths_of
from fednb.data.spec import DatasetSpec
from fednb.errors import DataError

OWN_FOLDER = "folder:"  # how the name of such a set begins
_NAME = re.compile(
    r"folder:(?P<path>.*?)(?P<size>(?:@[0-9]{1,4})?)(?P<hash>(?:#[0-9a-f]{8})?)", re.S
)
_LAYOUTS = "CLASS/FILE, SPLIT/CLASS/FILE (with train, and test or val) or DOMAIN/CLASS/FILE"


class Address(NamedTuple):
    """The parts of a name ``folder:PATH@SIZE#FINGERPRINT``."""

    path: Path  # absolute
    size: str  # such as "@64"; "" for 32x32
    fingerprint: str  # "#" and eight hex digits, which records add; "" where any images will do

    @property
    def side(self) -> int:
        """Height and width of the images in pixels."""
        return int(self.size[1:] or 32)


def is_own_folder(name: object) -> bool:
    """Whether a data set's name is that of a folder."""
    return str(name).startswith(OWN_FOLDER)


def fingerprint_in(name: str) -> str:
    """The eight hex digits of FINGERPRINT; "" where the name has none."""
    match = _NAME.fullmatch(name)
    return match["hash"][1:] if match else ""


def resolve_folder(name: str, data: Path) -> Address:
    """Find PATH, as it is seen from the folder of the data sets or else from where one works."""
    match = _NAME.fullmatch(name)
    assert match is not None, "anything may be a PATH"
    path = os.path.expanduser(match["path"])
    in_data = data / path
    here = Path.cwd() / path
    chosen = here if here.exists() and not in_data.exists() else in_data
    return Address(chosen, match["size"], match["hash"])


def look_into(name: str, data: Path) -> tuple[DatasetSpec, Source]:
    """What was found out about ``folder:PATH``, and how it is read; ``data`` holds the data sets.

    PATH is a folder or zip file of CLASS/FILE, SPLIT/CLASS/FILE or DOMAIN/CLASS/FILE. A `DataError`
    says what is wrong with it.
    """
    address = resolve_folder(name, data)
    _check_address(name, address, data)
    try:
        listed = images_below(address.path, suffixes=SUFFIXES + NOT_READ)
        _check_suffixes(name, listed)
        listed = _without_common_folder(listed)
        _check_layout(name, listed)
        spec = _spec_of(name, address, listed)
        images = tree.images_of(spec, listed)
    except Broken as error:
        raise DataError(f"{name}: {error}.") from error
    _check_test_images(spec, images)
    spec = replace(spec, sizes=(sum(image.split == "train" for image in images), 0))
    files = [address.path] if address.path.is_file() else paths_of(images)
    return spec, Source("own images", files, partial(decode.read_images, spec, images))


def _check_address(name: str, address: Address, data: Path) -> None:
    path = address.path
    if not path.exists() or path == data:
        raise DataError(
            f"{name}: there is no {path.name} where you are, nor in {path.parent}; "
            "give its whole path."
        )
    if not 8 <= address.side <= 1024:
        raise DataError(
            f"{name}: what follows the @ must be the side of the images in pixels, from 8 to 1024."
        )
    if not path.is_dir() and not (path.is_file() and zipfile.is_zipfile(path)):
        raise DataError(f"{name}: {path} is neither a folder nor a zip file that can be read.")


def _without_common_folder(listed: list[ListedFile]) -> list[ListedFile]:
    """Leave out one folder around everything, and one around that, and so on, above CLASS/FILE."""
    while listed and min(len(image.parts) for image in listed) > 2:
        if len({image.parts[0] for image in listed}) > 1:
            break
        listed = [image._replace(parts=image.parts[1:]) for image in listed]
    return listed


def _check_suffixes(name: str, listed: Sequence[ListedFile]) -> None:
    """Refuse a folder of which a part would be left out in silence."""
    others = [image for image in listed if image.parts[-1].lower().endswith(NOT_READ)]
    if others:
        raise DataError(
            f"{name} holds {len(others):,} images in formats that are not read, such as "
            f"{'/'.join(others[0].parts)}: make .png of them, or take them out."
        )


def _check_layout(name: str, listed: Sequence[ListedFile]) -> None:
    if not listed:
        raise DataError(
            f"{name} holds no images (.png, .jpg, .jpeg or .webp); they must all lie in {_LAYOUTS}."
        )
    depths = {len(image.parts) for image in listed}
    if depths not in ({2}, {3}):
        raise DataError(f"{name} holds images at several depths; they must all lie in {_LAYOUTS}.")
    classes = {image.parts[-2] for image in listed}
    if len(classes) == 1:
        raise DataError(
            f"{name} holds images of one class only, {classes.pop()}; there must be at least two."
        )


def _spec_of(name: str, address: Address, listed: Sequence[ListedFile]) -> DatasetSpec:
    """What the folders tell: classes, and domains where the top folders are not splits."""
    classes = sorted({image.parts[-2] for image in listed})
    tops = sorted({image.parts[0] for image in listed if len(image.parts) == 3})
    is_split = "train" in tops
    domains = [] if is_split else tops
    divided = "every fifth image of a class (by name) is a test image"
    return DatasetSpec(
        OWN_FOLDER + address.path.name + address.size,
        title=name,
        shape=(3, address.side, address.side),
        classes=tuple(classes),
        num_classes=len(classes),
        domains=dict.fromkeys(domains),
        augmentation=Augmentation(pad=address.side // 8),
        resized=True,
        jpeg=True,
        by_hand="put images there",
        stand_in="" if is_split else divided,
        is_own=True,
    )


def _check_test_images(spec: DatasetSpec, images: Sequence[ImageFile]) -> None:
    tested = {image.domain for image in images if image.split == "test"}
    for domain, name in enumerate(spec.domains):
        if domain not in tested:
            raise DataError(
                f"{spec.title} has no test images in {name}: "
                "every domain needs a class of five images or more."
            )
