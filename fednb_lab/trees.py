"""Folders and zip files of images: the one walk over them, and what they mean.

Nothing is given another meaning in silence: what is no class, domain or split is refused or named.
"""

import difflib
import functools
import os
import re
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from fednb.errors import DataError, check
from fednb_lab.arrays import Split, listed, never_tested
from fednb_lab.images import FORMATS, Broken, File, Member, decoded, reading

_KINDS = Image.registered_extensions()
ENDINGS = tuple(ending for ending, kind in _KINDS.items() if kind in (*FORMATS, "MPO"))
_TEXTS = tuple(
    ".txt .md .rst .csv .tsv .json .jsonl .xml .yaml .yml .toml .ini .cfg .html .log .py .ipynb .sh "
    ".md5 .sha1 .sha256 .bib".split()
)
_HIDDEN = (".", "__MACOSX", "@eaDir", "$RECYCLE")  # how the names of what systems add begin
_SYSTEM = ("thumbs.db", "desktop.ini", "icon\r", "readme", "license", "licence", "copying")
_LEVELS = 6  # of folders

LAYOUTS = "CLASS/FILE, SPLIT/CLASS/FILE (with train, and test or val) or DOMAIN/CLASS/FILE"
_SPLIT_WORDS = {
    "train": "train training trainings trn",
    "test": "test testing tests tst",
    "val": "val valid validation validate dev devel development eval evaluation",
}
_SPLITS = {word: split for split, words in _SPLIT_WORDS.items() for word in words.split()}
# what such a name may have besides
_NOISE = (
    r"sets?|data|datasets?|splits?|images?|imgs?|pictures|pics|photos|samples|files|folder|the|my"
)


class ListedFile(NamedTuple):
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

    @property
    def is_text(self) -> bool:
        """Whether its name says that it is no image but something about them."""
        name = self.parts[-1].lower()
        return name.endswith(_TEXTS) or name in _SYSTEM


class Walk(NamedTuple):
    """All that lies in folders and zip files, without what is hidden, sorted by path."""

    files: list[ListedFile]
    folders: list[tuple[str, ...]]  # the empty ones

    @property
    def has_images(self) -> bool:
        return any(file.is_image for file in self.files)


class ImageFile(NamedTuple):
    """An image that is not decoded yet."""

    domain: int  # 0 where there are none
    label: str  # the name of its class
    file: File
    split: str  # "train", "test" or "val"; "" before it is divided


Divide = Callable[[list[ImageFile], Sequence[str]], list[ImageFile]]


@dataclass(frozen=True)
class Layout:
    """What a tree of images means."""

    classes: tuple[str, ...]
    domains: tuple[str, ...]  # none where there are splits or classes only
    train: list[ImageFile]
    test: list[ImageFile]
    divided: bool  # by us, as there are no splits
    left_out: tuple[str, ...]  # in words
    lacking: tuple[str, ...]  # in words: where classes have no images

    def __str__(self) -> str:
        total = len(self.train) + len(self.test)
        how = "every fifth of a class" if self.divided else "as its folders say"
        domains = f" in {len(self.domains)} domains ({listed(self.domains)})" * bool(self.domains)
        return (
            f"{total:,} images of {len(self.classes)} classes ({listed(self.classes)}){domains}: "
            f"{len(self.train):,} trained on, {len(self.test):,} tested on ({how}); "
            f"left out: {', '.join(self.left_out) or 'nothing'}"
            f"{''.join(f'; {what}' for what in self.lacking)}"
        )


# --- the walk


def walk(*paths: Path) -> Walk:
    """List what lies in folders and zip files; a `Broken` for what lies too deep."""
    files: list[ListedFile] = []
    folders: list[tuple[str, ...]] = []
    for path in paths:
        with reading(path):
            found = _members(path) if path.is_file() else _below(path, ())
            for parts, file in found:
                if file is None:
                    folders.append(parts)
                else:
                    files.append(ListedFile(parts, file))
    return Walk(sorted(files, key=lambda file: file.parts), sorted(folders))


def _is_hidden(name: str) -> bool:
    return name.startswith(_HIDDEN) or name.lower() in _SYSTEM[:3]


def _members(path: Path) -> Iterator[tuple[tuple[str, ...], File | None]]:
    archive = zipfile.ZipFile(path)
    folders = set()
    filled = set()
    for name in archive.namelist():
        # old programs for Windows write backslashes
        parts = tuple(part for part in re.split(r"[/\\]", name) if part not in ("", "."))
        check(".." not in parts, f"{path.name} holds {name}, which lies outside of it.")
        if not parts or any(map(_is_hidden, parts)):
            continue
        if name.endswith(("/", "\\")):
            folders.add(parts)
            continue
        filled |= {parts[:depth] for depth in range(1, len(parts))}
        yield parts, Member(archive, name)
    yield from ((parts, None) for parts in folders - filled)


def _below(folder: Path, parts: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], File | None]]:
    with reading(folder), os.scandir(folder) as entries:
        found = [entry for entry in entries if not _is_hidden(entry.name)]
    if not found and parts:
        yield parts, None
    for entry in found:
        path = (*parts, entry.name)
        if not entry.is_dir():
            yield path, folder / entry.name
        elif len(path) < _LEVELS:
            yield from _below(folder / entry.name, path)
        else:
            raise Broken(f"{folder / entry.name} lies too deep to be read")


# --- names of folders


def splits_of(tops: Iterable[str]) -> dict[str, str]:
    """The splits among top folders, however they are spelled; those that mean none are left out.

    A part of a name decides only where all of them have one, such as "pets-train" and "pets-test". A
    name that means two, such as "trainval", is "train and val".
    """
    whole = {top: _split_of(top) for top in sorted(tops)}
    in_part = {top: split or _split_in(top) for top, split in whole.items()}
    chosen = in_part if all(in_part.values()) else whole
    return {top: split for top, split in chosen.items() if split}


def _split_in(name: str) -> str:
    """The split that the first or last word of a name means, "" if none of them means one."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return max(map(_split_of, [*words[:1], *words[-1:]]), default="")


@functools.cache
def _split_of(name: str) -> str:
    """The split that a whole name means, "" if it means none."""
    letters = "".join(char for char in plain(name) if char.isalpha())
    stripped = ""
    while stripped != letters:
        stripped = letters
        letters = re.sub(rf"^(?:{_NOISE})|(?:{_NOISE})$", "", stripped)
    if letters in _SPLITS:
        return _SPLITS[letters]
    word = "|".join(_SPLITS)
    both = re.fullmatch(rf"({word})(?:and)?({word})", letters)
    return f"{_SPLITS[both[1]]} and {_SPLITS[both[2]]}" if both else ""


def plain(name: str) -> str:
    """A name without what two spellings of it differ in: case, blanks, dashes, kind of accents."""
    return re.sub(r"[\s_-]", "", unicodedata.normalize("NFKC", name).casefold())


# --- what a tree means


def every_fifth(images: list[ImageFile], domains: Sequence[str]) -> list[ImageFile]:
    """Make every fifth image of a class of a domain a test image."""
    divided = []
    for _, group in groupby(images, lambda image: (image.domain, image.label)):
        for number, image in enumerate(group):
            divided.append(image._replace(split="test" if number % 5 == 4 else "train"))
    tested = {image.domain for image in divided if image.split == "test"}
    for number, domain in enumerate(domains or [""]):
        check(
            number in tested,
            f"there are no test images{f' in {domain}' * bool(domain)}: every fifth image of a class "
            f"is one, so {'every domain' if domain else 'it'} needs a class of five images or more.",
        )
    return divided


def understand(name: str, found: Walk, divide: Divide = every_fifth) -> Layout:
    """What the images in a walk mean, by the folders in which they lie.

    Those that lie in no splits are divided by ``divide``. A `DataError` that begins with ``name``
    says what is wrong.
    """
    try:
        check(
            found.has_images,
            f"there are no images: images (.png, .jpg, .webp, .tif and others) must lie in {LAYOUTS}.",
        )
        depth = _common_depth(found.files)
        # what lies around everything, such as a README, keeps its own name
        files = [file._replace(parts=file.parts[depth:] or file.parts[-1:]) for file in found.files]
        images, others = _images_and_others(files)
        _check_depths(images)
        folders = [folder[depth:] for folder in found.folders if len(folder) > depth]
        return _layout(images, _left_out(others, images, folders), divide)
    except Broken:
        raise
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def _common_depth(files: Sequence[ListedFile]) -> int:
    """How many folders lie around everything, above CLASS/FILE or SPLIT/CLASS/FILE."""
    paths = [file.parts for file in files if file.is_image]
    depth = 0
    while min(map(len, paths)) > depth + 2 and len({path[depth] for path in paths}) == 1:
        below = {path[depth + 1] for path in paths}
        if _split_of(paths[0][depth]) and not splits_of(below):
            break  # a split without another is none of the folders around
        depth += 1
    return depth


def _images_and_others(
    files: Sequence[ListedFile],
) -> tuple[list[ListedFile], list[ListedFile]]:
    """The images, and what may be left out; what lies in a class and is neither is refused."""
    others = [file for file in files if file.is_text or (len(file.parts) < 2 and not file.is_image)]
    kept = set(others)
    images = [file for file in files if file not in kept]
    unread = [file.place for file in images if not file.is_image]
    check(
        not unread,
        f"{_counted(len(unread), 'file')} in formats that are not read, such as {''.join(unread[:1])}: "
        "make .png of them, or take them out.",
    )
    return images, others


def _check_depths(images: Sequence[ListedFile]) -> None:
    """Refuse images that lie in no class, or below one."""
    loose = [image.place for image in images if len(image.parts) == 1]
    check(
        not loose,
        f"{_counted(len(loose), 'image')} outside of any class, such as {''.join(loose[:1])}: they must "
        f"lie in {LAYOUTS}.",
    )
    splits = splits_of(image.parts[0] for image in images)
    for image in images:
        top = image.parts[0]
        check(
            len(image.parts) > 2 or top not in splits,
            f"{image.place} lies in no class, if {top} is a split; its images must lie in "
            f"{top}/CLASS/FILE (a class needs another name).",
        )
    depths = {len(image.parts): image.place for image in reversed(images)}
    check(
        set(depths) in ({2}, {3}),
        "images lie at several depths, or too deep, such as "
        f"{' and '.join(depths[depth] for depth in sorted(depths)[:2])}; they must all lie in {LAYOUTS}.",
    )


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _left_out(
    others: Sequence[ListedFile],
    images: Sequence[ListedFile],
    empty: Sequence[tuple[str, ...]],
) -> list[str]:
    """In words: files that are no images, and folders without any."""
    words = []
    if others:
        names = listed([file.place for file in others], 3)
        words.append(f"{_counted(len(others), 'other file')} ({names})")
    filled = {image.parts[:depth] for image in images for depth in (1, 2)}
    folders = {file.parts[:-1] for file in others if len(file.parts) > 1} | set(empty)
    without = sorted("/".join(folder) for folder in folders if folder[:2] not in filled)
    if without:
        words.append(f"{_counted(len(without), 'folder')} without images ({listed(without, 3)})")
    return words


def _layout(images: Sequence[ListedFile], left_out: list[str], divide: Divide) -> Layout:
    tops = sorted({image.parts[0] for image in images if len(image.parts) == 3})
    _check_spelling([(top, "") for top in tops])
    splits = splits_of(tops)
    domains = [] if splits else tops
    if splits:
        used = _splits_to_use(tops, splits)
        numbers = Counter(image.parts[0] for image in images)
        dropped = [f"{top} ({_counted(numbers[top], 'image')})" for top in tops if top not in used]
        left_out = dropped + left_out
        images = [image for image in images if image.parts[0] in used]
    for image in images:
        check(
            splits or len(image.parts) == 2 or not _split_of(image.parts[-2]),
            f"{image.place} lies in a split within {image.parts[0]}; the split comes first, as in "
            f"{image.parts[-2]}/{image.parts[0]}/{image.parts[-1]}.",
        )
    classes = sorted({image.parts[-2] for image in images})
    check(
        len(classes) > 1,
        f"there are images of one class only, {classes[0]}; there must be at least two.",
    )
    _check_spelling([(image.parts[-2], image.parts[0] * bool(tops)) for image in images])
    found = _sorted(images, domains, splits)
    if not splits:
        found = divide(found, domains)
    train = [image for image in found if image.split == "train"]
    test = [image for image in found if image.split in ("test", "val")]
    undivided = len(found) - len(train) - len(test)
    if undivided:
        left_out.append(f"{_counted(undivided, 'image')} in no list")
    _check_tested({image.label for image in train}, {image.label for image in test})
    lacking = tuple(_lacking(classes, domains, train, test))
    return Layout(tuple(classes), tuple(domains), train, test, not splits, tuple(left_out), lacking)


def _check_spelling(found: Iterable[tuple[str, str]]) -> None:
    """Refuse two spellings of one folder: pairs of its name and of the folder around it.

    Letters are classes of handwriting, if both cases are wherever one is.
    """
    around: dict[str, set[str]] = {}
    for folder, top in dict.fromkeys(found):
        around.setdefault(folder, set()).add(top)
    spellings: dict[str, str] = {}
    for folder, tops in sorted(around.items()):
        other = spellings.setdefault(plain(folder), folder)
        is_letter = len(folder) == 1 and around[other] == tops
        check(
            other == folder or is_letter,
            f"{other} and {folder} seem to be one: did you mean {other} both times?",
        )


def _splits_to_use(tops: Sequence[str], splits: dict[str, str]) -> set[str]:
    """The two folders that are used, of which "test" comes before "val".

    A `DataError` if splits cannot be told from each other, or from other folders.
    """
    for top, split in splits.items():
        check(" and " not in split, f"{top} may be {split}: rename it to one of them.")
    others = [top for top in tops if top not in splits]
    if others:
        near = difflib.get_close_matches(plain(others[0]), list(_SPLITS), 1, 0.7)
        fix = "take it out, or rename it to train, test or val."
        if near:
            fix = f"did you mean {near[0]}?"
        raise DataError(
            f"{listed(others)} lies beside {listed(list(splits))} and is no split: {fix}"
        )
    folder_of: dict[str, str] = {}
    for top, split in splits.items():
        other = folder_of.setdefault(split, top)
        check(other == top, f"{other} and {top} are both {split}: keep one, or join them.")
    tested = folder_of.get("test", folder_of.get("val", ""))
    if "train" not in folder_of or not tested:
        raise DataError(
            f"there is {listed(list(splits))} and no folder "
            f"{'test or val' if 'train' in folder_of else 'train'}: add it, or give the path of "
            f"{tops[0]} itself, of whose images every fifth is tested then."
        )
    return {folder_of["train"], tested}


def _sorted(
    images: Sequence[ListedFile], domains: Sequence[str], splits: dict[str, str]
) -> list[ImageFile]:
    """The images by domain, class and name; a `Broken` for one that is there twice."""
    found: dict[tuple[int, str, str, str], ImageFile] = {}
    for image in images:
        top, label, file = ("", *image.parts)[-3:]
        domain = domains.index(top) if domains else 0
        key = (domain, label, file, splits.get(top, ""))
        if key in found:
            raise Broken(f"{image.file} was already seen in another place")
        found[key] = ImageFile(domain, label, image.file, splits.get(top, ""))
    return [found[key] for key in sorted(found)]


def _check_tested(trained: set[str], tested: set[str]) -> None:
    unknown = sorted(tested - trained)
    if not unknown:
        return
    near = difflib.get_close_matches(unknown[0], sorted(trained), 1)
    fix = f"did you mean {near[0]}?" if near else "add training images of it, or take them out."
    if re.fullmatch(_NOISE, plain(unknown[0])):
        fix = "test images must lie in SPLIT/CLASS/FILE, too."
    raise DataError(f"class {listed(unknown)} is tested and never trained: {fix}")


def _lacking(
    classes: Sequence[str],
    domains: Sequence[str],
    train: Sequence[ImageFile],
    test: Sequence[ImageFile],
) -> Iterator[str]:
    """In words: the classes without test images, and those that a domain does not have."""
    yield from never_tested(classes, {image.label for image in test})
    for number, domain in enumerate(domains):
        there = {image.label for image in (*train, *test) if image.domain == number}
        missing = [name for name in classes if name not in there]
        if missing:
            yield f"not in {domain}: {listed(missing)}"


# --- its images in memory


def as_splits(
    title: str,
    train: Sequence[ImageFile],
    test: Sequence[ImageFile],
    classes: Sequence[str],
    shape: tuple[int, int, int],
    **how: bool,
) -> tuple[tuple[Split, Split], set[tuple[int, int]]]:
    """Decode both splits as `decoded` does; and the widths and heights that their files have."""
    images = [*train, *test]
    pixels, sizes = decoded(title, [image.file for image in images], shape, **how)
    labels = np.array([classes.index(image.label) for image in images], np.int64)
    domains = np.array([image.domain for image in images], np.int64)
    n = len(train)
    first = Split(pixels[:n], labels[:n], domains[:n])
    return (first, Split(pixels[n:], labels[n:], domains[n:])), sizes
