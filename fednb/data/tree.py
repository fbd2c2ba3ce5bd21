"""Trees SPLIT/CLASS/FILE or DOMAIN/CLASS/FILE: the class, domain and split of each image."""

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from fednb.data.files import Broken, ImageFile, ListedFile, lines_of
from fednb.data.spec import DatasetSpec
from fednb.errors import DataError

SPLITS = ("train", "test", "val")


def images_of(
    spec: DatasetSpec, listed: Sequence[ListedFile], lists: Sequence[Path] = ()
) -> list[ImageFile]:
    """The images of a set among those listed, by domain, class and name, and divided into splits.

    They lie in SPLIT/CLASS/FILE or DOMAIN/CLASS/FILE, below at most one folder; one's own also in
    CLASS/FILE. What has no SPLIT is divided by the official ``lists``, or by the numbers of the
    images. A `DataError` tells of an image that is there twice, and of a domain without images.
    """
    images = _divided(spec, _undivided(spec, listed), lists)
    seen = {image.domain for image in images}
    for domain, name in enumerate(spec.domains):
        if images and domain not in seen:
            raise DataError(f"{spec.title} lacks the domain {name}: {spec.by_hand}.")
    return images


def _undivided(spec: DatasetSpec, listed: Sequence[ListedFile]) -> list[ImageFile]:
    """The images that belong to the set, sorted; in a tree of domains they have no split yet."""
    tops = _top_folders(spec)
    classes = {_plain(spec, name): name for name in spec.classes}
    images: dict[tuple, ImageFile] = {}
    for parts, file in listed:
        top, label, name = ("", "", *parts)[-3:]  # CLASS/FILE has no top folder
        label = classes.get(_plain(spec, label), label)
        too_deep = len(parts) > 4
        left_out = spec.more_classes and label not in spec.classes
        if too_deep or left_out or _plain(spec, top) not in tops:
            continue
        domain, split = tops[_plain(spec, top)]
        key = (domain, label, name, split)
        if key in images:
            raise Broken(f"{file} was already seen in another place")
        images[key] = ImageFile(domain, label, file, split)
    return [images[key] for key in sorted(images)]


def _top_folders(spec: DatasetSpec) -> dict[str, tuple[int, str]]:
    """Domain and split of what lies in a top folder, by the folder's plain name."""
    if spec.domains:
        tops = {_plain(spec, name): (domain, "") for domain, name in enumerate(spec.domains)}
    else:
        tops = {split: (0, split) for split in SPLITS}
    if spec.is_own:
        tops[""] = (0, "")
    return tops


def _plain(spec: DatasetSpec, name: str) -> str:
    """A name without what spellings of the official names of domains and classes differ in."""
    if spec.domains and not spec.is_own:
        return re.sub(r"[^a-z0-9]", "", name.lower())
    return name


def _divided(
    spec: DatasetSpec, images: Sequence[ImageFile], lists: Sequence[Path]
) -> list[ImageFile]:
    """Give each image its split; what is not in the official lists is left out."""
    split_of = _read_lists(lists)
    divided = []
    for _, group in groupby(images, lambda image: (image.domain, spec.is_own and image.label)):
        for number, image in enumerate(group):
            if lists:
                split = split_of.get("/".join(Path(str(image.file)).parts[-3:]), "")
            elif image.split:
                split = image.split
            else:
                split = "test" if _held_for_test(number, spec.is_own) else "train"
            if split:
                divided.append(image._replace(split=split))
    return divided


def _read_lists(lists: Sequence[Path]) -> dict[str, str]:
    """The split of each DOMAIN/CLASS/FILE in the lists DOMAIN_train.txt and DOMAIN_test.txt."""
    split_of: dict[str, str] = {}
    for file in lists:
        split = file.stem.rpartition("_")[2]
        split_of |= {line.split()[0]: split for line in lines_of(file) if line.strip()}
    return split_of


def _held_for_test(number: int, is_own: bool) -> bool:
    """Of one's own images every fifth of a class; of a published domain two in ten."""
    return number % 5 == 4 if is_own else number % 10 in (8, 9)
