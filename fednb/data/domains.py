"""Sets of several domains: the same classes, seen in different ways.

They serve FedPLCC, where every client has a domain of its own. `digits5` is put together from five sets of digits,
whose official formats are read here too; `office10`, `pacs` and `domainnet` are trees DOMAIN/CLASS/FILE, which are
divided into training and test images as RethinkFL does; `digits5_mini` is made from what is installed.
"""

from __future__ import annotations

import functools
import os
import re
import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from scipy import ndimage

from fednb import data, seeds
from fednb.data import DataError, render

# The sets that make the domains of Digit-5, in the order of its domains
PARTS = ("mnist", "usps", "svhn", "synthdigits", "mnistm")

_PER_CLASS = (40, 15)  # training and test images of each embedded domain


class _Image(NamedTuple):
    """One file of a tree DOMAIN/CLASS/FILE. `domain` and `label` count in the order of the facts."""

    domain: int
    label: int
    file: str
    place: str  # its path, or its name in the zip file `archive`
    archive: Path | None


def find(name: str, root: Path) -> data._Source:
    """Search the parts of Digit-5, or a tree DOMAIN/CLASS/FILE as files or in zip files."""
    if name == "digits5":
        sources = [data._find(part, root) for part in PARTS]
        kinds = {source.kind for source in sources}
        return data._Source(kinds.pop() if len(kinds) == 1 else "several", root, [f for s in sources for f in s.files])
    facts = data._FACTS[name]
    names = {_plain(n) for n in (name, *facts.also)}
    folders = [child for child in data._children(root) if child.is_dir() and _plain(child.name) in names]
    for folder in folders:
        lists = _lists(name, folder)
        if images := [Path(image.place) for image in _tree(name, folder)]:
            return data._Source("image tree", folder, images + lists)
        if archives := [file for file in data._children(folder) if file.suffix.lower() == ".zip"]:
            return data._Source("zip files", folder, archives + lists)
    archives = [file for file in data._children(root) if file.suffix.lower() == ".zip" and _plain(file.stem) in names]
    if archives:
        return data._Source("zip files", root, archives)
    raise data._missing(name, root, f"{name}/DOMAIN/CLASS/*.jpg, {name}/*.zip and {name}.zip")


def read(name: str, source: data._Source, root: Path) -> data._Content:
    """Read a set of several domains, or the official files of one of the digit sets."""
    if name == "digits5":
        return _digits5(root)
    if source.kind == "rendered":
        return _rendered()
    if name == "usps":
        return _usps(source.folder, root)
    if name == "mnistm":
        return _mnistm(source, root)
    if name in ("svhn", "synthdigits"):
        return _mat(name, source, root)
    return _domain_tree(name, source, root)


# Digit-5


def _digits5(root: Path) -> data._Content:
    """Five sets of digits, each image resized to 32x32 and grey repeated to three channels, as in RethinkFL."""
    facts, contents, remarks = data._FACTS["digits5"], [], []
    for domain, part in zip(facts.domains, PARTS, strict=True):
        source = data._find(part, root)
        content = data._check(data._read(part, source, root), data._FACTS[part])
        remarks += [f"{domain}: {remark}" for remark in content.remarks]
        if content.jpeg:
            remarks.append(f"{domain}: re-encoded as JPEG")
        contents.append(content)
    arrays = []
    for images, labels in (("images", "labels"), ("test_images", "test_labels")):
        arrays.append(np.concatenate([_as_rgb(getattr(content, images), facts.shape[1]) for content in contents]))
        arrays.append(np.concatenate([getattr(content, labels) for content in contents]))
    groups = [
        np.repeat(np.arange(len(PARTS)), [len(getattr(content, labels)) for content in contents])
        for labels in ("labels", "test_labels")
    ]
    return data._Content(
        *arrays,
        facts.classes,
        train_groups=groups[0],
        test_groups=groups[1],
        group_names=tuple(facts.domains),
        remarks=tuple(remarks),
    )


def _as_rgb(images: np.ndarray, side: int) -> np.ndarray:
    """Bring uint8 [N, C, H, W] to [N, 3, side, side], bilinearly as torchvision's Resize does."""
    if images.shape[-2:] != (side, side):
        resized = np.empty((*images.shape[:2], side, side), np.uint8)
        for i, channel in np.ndindex(*images.shape[:2]):
            resized[i, channel] = Image.fromarray(images[i, channel]).resize((side, side), Image.Resampling.BILINEAR)
        images = resized
    return np.broadcast_to(images, (len(images), 3, side, side))


def _rendered() -> data._Content:
    """SynthDigits in its published size, drawn here."""
    arrays = []
    for train, number in zip((True, False), data._FACTS["synthdigits"].sizes, strict=True):
        labels = np.arange(number) % 10
        arrays += [render.colours(labels, 32, 0, train), labels]
    return data._Content(*arrays, data._DIGITS, remarks=("drawn in matplotlib's fonts, a stand-in for SynthDigits",))


def _usps(folder: Path, root: Path) -> data._Content:
    """Read usps.bz2 and usps.t.bz2 as torchvision does: text, values of -1 to 1 as 0 to 255."""
    from torchvision.datasets import USPS  # slow to import

    parts = []
    for train, file in zip((True, False), data._FACTS["usps"].files, strict=True):
        try:
            opened = USPS(str(folder), train=train)
        except Exception as error:  # a broken file can raise nearly anything
            raise data._broken("usps", folder / file, root, f"cannot be read ({data._reason(error)})") from error
        labels = np.asarray(opened.targets)
        parts += data._checked("usps", folder / file, root, np.asarray(opened.data), labels, data._DIGITS)
    return data._Content(*parts, data._DIGITS)


def _mat(name: str, source: data._Source, root: Path) -> data._Content:
    """Read train and test .mat files: X uint8 [32, 32, 3, N], y [N, 1]; SVHN's digit 0 has label 10."""
    from scipy.io import loadmat  # slow to import

    parts, sizes, remarks = [], data._FACTS[name].sizes, []
    for file, size, what in zip(source.files, sizes, ("training", "test"), strict=True):
        try:
            opened = loadmat(file)
            images, labels = np.asarray(opened["X"]), np.asarray(opened["y"]).reshape(-1).astype(np.int64) % 10
            images = np.ascontiguousarray(images.transpose(3, 2, 0, 1))
        except Exception as error:  # as above
            raise data._broken(name, file, root, f"cannot be read ({data._reason(error)})") from error
        if name == "synthdigits" and len(labels) > size:  # of which FPL's set is no part, but of that size
            remarks.append(f"the first {size:,} of {len(labels):,} {what} images of Ganin and Lempitsky's SYN NUMBERS")
            images, labels = images[:size], labels[:size]
        parts += data._checked(name, file, root, images, labels, data._DIGITS)
    return data._Content(*parts, data._DIGITS, remarks=tuple(remarks))


def _mnistm(source: data._Source, root: Path) -> data._Content:
    """Decode mnist_m_train/FILE and mnist_m_test/FILE; the lists have a line "FILE LABEL" for each."""
    entries = []
    for file, split in zip(source.files, ("train", "test"), strict=False):
        for line in file.read_text(errors="replace").splitlines():
            fields = line.split()
            if len(fields) != 2 or not fields[1].isdecimal():
                raise data._broken("mnistm", file, root, "has a line that is not a file name and a class")
            place = source.folder / f"mnist_m_{split}" / fields[0]
            entries.append(data._Entry(split, fields[1], fields[0], str(place)))
    return data._decode("mnistm", entries, root)


# Trees DOMAIN/CLASS/FILE


def _plain(name: str) -> str:
    """A name without what its spellings differ in."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _tree(name: str, folder: Path) -> Iterator[_Image]:
    """Images in DOMAIN/CLASS/FILE, with at most one folder before DOMAIN."""
    for place, folders, files in os.walk(folder, followlinks=True):
        parts = Path(place).relative_to(folder).parts
        if len(parts) >= 3:
            folders.clear()
        if len(parts) >= 2:
            for file in files:
                if image := _image(name, (*parts[-2:], file), os.path.join(place, file)):
                    yield image


def _image(name: str, parts: tuple[str, ...], place: str, archive: Path | None = None) -> _Image | None:
    """The image DOMAIN/CLASS/FILE; None if it is none, of another domain, or of a class that the set leaves out."""
    facts = data._FACTS[name]
    domain, label, file = parts
    if PurePosixPath(file).suffix.lower() not in data._SUFFIXES or file.startswith("."):
        return None
    domains = [_plain(d) for d in facts.domains]
    found = [i for i, d in enumerate(domains) if _plain(domain) in (d, f"{d}10")]  # caltech10
    if not found:
        return None
    classes = {_plain(c): i for i, c in enumerate(facts.classes)}
    number = classes.get({"laptop": "laptopcomputer"}.get(_plain(label), _plain(label)))
    if number is None:
        if name == "domainnet":  # ten of its 345 classes
            return None
        raise DataError(f"{facts.title} has no class {label}; its classes are {', '.join(facts.classes)}.")
    return _Image(found[0], number, file, place, archive)


def _zipped(name: str, archives: list[Path], root: Path) -> Iterator[_Image]:
    """Images in all zip files, as in `_tree`."""
    for archive in archives:
        try:
            with zipfile.ZipFile(archive) as opened:
                members = opened.namelist()
        except (OSError, zipfile.BadZipFile) as error:
            raise data._broken(name, archive, root, f"cannot be read ({data._reason(error)})") from error
        for member in members:
            parts = PurePosixPath(member).parts
            if len(parts) in (3, 4) and parts[0] != "__MACOSX" and (image := _image(name, parts[-3:], member, archive)):
                yield image


def _lists(name: str, folder: Path) -> list[Path]:
    """DomainNet's DOMAIN_train.txt and DOMAIN_test.txt for all domains, or none of them."""
    if name != "domainnet":
        return []
    files = [folder / f"{domain.lower()}_{split}.txt" for domain in data._FACTS[name].domains for split in ("train", "test")]
    there = [file for file in files if file.is_file()]
    if there and len(there) < len(files):
        missing = next(file for file in files if file not in there)
        raise data._broken(name, missing, folder.parent, "is missing")
    return there


def _domain_tree(name: str, source: data._Source, root: Path) -> data._Content:
    """Decode a tree, divided by the official lists or as RethinkFL divides Office-10.

    RethinkFL numbers the images of a domain by class and file name, and tests on those whose number ends in 8 or 9.
    """
    facts = data._FACTS[name]
    zips = [file for file in source.files if file.suffix.lower() == ".zip"]
    images = sorted(_zipped(name, zips, root) if zips else _tree(name, source.folder))
    lists = [file for file in source.files if file.suffix.lower() == ".txt"]
    listed = {}
    for file in lists:
        split = file.stem.rpartition("_")[2]
        listed |= {line.split()[0]: split for line in file.read_text(errors="replace").splitlines() if line.strip()}
    chosen: dict[str, list[tuple[int, data._Entry]]] = {"train": [], "test": []}
    for domain, title in enumerate(facts.domains):
        own = [image for image in images if image.domain == domain]
        if not own:
            raise DataError(f"{facts.title} lacks the domain {title}: {facts.by_hand}.")
        for i, image in enumerate(own):
            split = "test" if i % 10 in (8, 9) else "train"
            if lists:
                split = listed.get("/".join(PurePosixPath(Path(image.place).as_posix()).parts[-3:]), "")
            if split:
                entry = data._Entry(split, facts.classes[image.label], image.file, image.place, image.archive)
                chosen[split].append((domain, entry))
    content = data._decode(name, [entry for part in chosen.values() for _, entry in part], root)
    train, test = (np.array([domain for domain, _ in part], np.int64) for part in chosen.values())
    seen = {image.tobytes() for image in content.images}
    content = content._replace(
        train_groups=train,
        test_groups=test,
        group_names=tuple(facts.domains),
        shared=sum(image.tobytes() in seen for image in content.test_images),
    )
    if name == "domainnet" and not lists:
        own = "without the official lists: every ninth and tenth image of a domain is a test image"
        content = content._replace(remarks=(own, *content.remarks))
    return content


# Embedded


def embedded(seed: int = 0) -> data._Content:
    """Five domains of digits, 16x16 RGB, from what is installed: a domain shift without any download.

    - Digits: scikit-learn's digits as they are
    - Slanted: thick and slanted
    - Blended: the absolute difference of digit and a patch of a photograph, as MNIST-M was made
    - Fonts: matplotlib's fonts in colours, in place of SynthDigits
    - Scenes: the same on patches of photographs, with neighbours, in place of SVHN

    No handwritten digit is in two images of the set: the digits are divided among training and test images of all
    domains first. Training and test images do not share a patch of a photograph.
    """
    facts = data._FACTS["digits5_mini"]
    side, arrays, groups = facts.shape[1], [], []
    grey, sources = _sources(seed)
    for split, per_class in enumerate(_PER_CLASS):
        train = split == 0
        drawn = np.repeat(np.arange(10), per_class)
        written = [grey[source] for source in sources[split]]
        rngs = [seeds.generator(seed, f"embedded {'train' if train else 'test'}", client=d) for d in range(3)]
        plain = np.stack([_enlarged(digit, side) for digit in written[0]])
        slanted = np.stack([_slanted(digit, side, rngs[1]) for digit in written[1]])
        blended = [_blended(digit, side, rngs[2], train) for digit in written[2]]
        parts = [
            *(np.broadcast_to(_bytes(x)[:, None], (len(x), 3, side, side)) for x in (plain, slanted)),
            _bytes(np.stack(blended)).transpose(0, 3, 1, 2),
            render.colours(drawn, side, seed, train),
            render.scenes(drawn, side, seed, train),
        ]
        arrays += [np.concatenate(parts), np.tile(drawn, len(parts))]
        groups.append(np.repeat(np.arange(len(parts)), len(drawn)))
    return data._Content(
        *arrays, facts.classes, train_groups=groups[0], test_groups=groups[1], group_names=tuple(facts.domains)
    )


def _sources(seed: int) -> tuple[np.ndarray, list[list[np.ndarray]]]:
    """scikit-learn's digits, float64 [1797, 8, 8] of 0 to 1, and their numbers per split and domain, ordered by class."""
    from sklearn.datasets import load_digits  # slow to import

    bunch = load_digits()
    rng = seeds.generator(seed, "embedded digits")
    orders = [rng.permutation(np.flatnonzero(bunch.target == k)) for k in range(10)]
    sources, begin = [], 0
    for per_class in _PER_CLASS:
        ends = [begin + d * per_class for d in range(4)]
        sources.append([np.concatenate([order[a:b] for order in orders]) for a, b in pairwise(ends)])
        begin = ends[-1]
    return bunch.images / 16, sources


def _bytes(x: np.ndarray) -> np.ndarray:
    """Values of 0 to 1 as bytes."""
    return np.rint(255 * x.clip(0, 1)).astype(np.uint8)


def _enlarged(digit: np.ndarray, side: int, slant: float = 0.0) -> np.ndarray:
    """Enlarge a digit [8, 8] to [side, side], and slant it by so many columns per row."""
    scale = len(digit) / side
    centre, middle = (len(digit) - 1) / 2, (side - 1) / 2
    matrix = np.array([[scale, 0], [slant * scale, scale]])
    return ndimage.affine_transform(digit, matrix, centre - matrix @ (middle, middle), (side, side), order=1)


def _slanted(digit: np.ndarray, side: int, rng: np.random.Generator) -> np.ndarray:
    slant = rng.choice([-1, 1]) * rng.uniform(0.3, 0.5)
    return ndimage.grey_dilation(_enlarged(digit, side, slant), footprint=np.ones((2, 2)))


def _blended(digit: np.ndarray, side: int, rng: np.random.Generator, train: bool) -> np.ndarray:
    return np.abs(render.patch(rng, side, train) - _enlarged(digit, side)[..., None])


# Public images


@functools.lru_cache(maxsize=2)
def public_images(name: str, number: int, channels: int, side: int) -> torch.Tensor:
    """Images without labels that everybody has, for methods that compare clients on them (FCCL+).

    Parameters
    ----------
    name
        ``"photographs"``: pieces of scikit-learn's two sample photographs, which need no download. Else a data set, whose
        training images are taken: the first ones of a fixed permutation.
    number, channels, side
        How many, and their shape. Other shapes are resized, and grey is repeated or colour averaged.

    Returns
    -------
    Tensor
        uint8 [number, channels, side, side]; fewer where the data set has fewer.

    Raises
    ------
    DataError
        As `fednb.data.load`.
    """
    rng = seeds.generator(0, "public images")
    if name == "photographs":
        images = np.stack([_bytes(render.patch(rng, side, train=True)) for _ in range(number)]).transpose(0, 3, 1, 2)
    else:
        known = data.load(name).images.numpy()
        images = _as_rgb(known[rng.permutation(len(known))[:number]], side)
    images = images if channels == 3 else np.rint(images.mean(1, keepdims=True)).astype(np.uint8)
    return torch.from_numpy(images.copy())
