"""Published data sets, converted once from the files in which they come to ``NAME.npz``.

`ensure` is what commands call before runs; ``fednb data NAME`` calls `get`. How files may lie:
data/README.md.
"""

import os
import runpy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from fednb import ROOT, data, home
from fednb.data import Dataset, DatasetSpec, as_rgb
from fednb.errors import DataError, check
from fednb_lab import layouts
from fednb_lab.arrays import Split, from_splits, write
from fednb_lab.folders import PREFIX, say
from fednb_lab.images import Broken, reason
from fednb_lab.layouts import ORIGINS, Origin, Source

_OWN_FOLDERS = ("usps", "svhn")  # torchvision puts the files of these into the folder itself
_SUBSET = "subset: "  # how a note on missing images begins


# --- what commands call


def ensure(name: str) -> None:
    """Convert a published set whose files lie in the folder of the data sets, unless it is done.

    Whatever else the name may be is left to `fednb.data.load`.
    """
    if name in ORIGINS and data.file_of(name) is None:
        source = _find(name, data.places()[0])
        if source is not None:
            _convert(name, source)


def get(name: str, given: Path | None = None) -> None:
    """Convert a set from ``given``, a folder or file, or else from the folder of the data sets.

    Where nothing of it lies there, it is fetched if that can be done. Prints what is there then. A
    `DataError` says what to do by hand.
    """
    data.spec_of(name)
    if given is not None:
        _get_from(name, Path(os.path.abspath(given.expanduser())))
    elif name in ORIGINS:
        _get_here(name)
    print(data.load(name))


def state(name: str) -> str:
    """What is here of a set: its file, the layout that `ensure` would convert, or "-"."""
    path = data.file_of(name)
    if name in data.EMBEDDED:
        return "embedded"
    if path is not None:
        return str(path)
    try:
        source = _find(name, data.places()[0])
    except DataError as error:
        return str(error)
    return "-" if source is None else f"{source.layout}, not converted yet"


def _get_from(name: str, given: Path) -> None:
    check(name in ORIGINS, f"{name} is not converted: write dataset={PREFIX}{given}.")
    check(given.exists(), f"There is no {given}.")
    for part in [*ORIGINS[name].parts, name]:
        source = _find(part, given, inside=True)
        if part == name or (source is not None and source.layout != "rendered"):
            _convert(part, source, given)


def _get_here(name: str) -> None:
    """Convert what lies in the folder of the data sets, or what is fetched if nothing does."""
    origin = ORIGINS[name]
    folder = data.places()[0]
    for part in origin.parts:
        if not ORIGINS[part].by_hand:
            _get_here(part)
    if data.file_of(name) is not None:
        return
    source = _find(name, folder)
    if source is None and not (origin.parts or origin.by_hand):
        _fetch(name, folder)
        source = _find(name, folder)
    _convert(name, source)


def _fetch(name: str, folder: Path) -> None:
    """Download the official files of a set to where `_find` looks for them."""
    from torchvision import datasets  # slow to import

    origin = ORIGINS[name]
    target = folder / name if name in _OWN_FOLDERS else folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if origin.page.endswith(".zip"):
            datasets.utils.download_and_extract_archive(
                origin.page, str(folder), md5=origin.md5, remove_finished=True
            )
        for options in origin.torchvision:
            getattr(datasets, origin.reader)(str(target), download=True, **options)
    except Exception as error:  # network, disk, archive: torchvision lets many kinds through
        raise DataError(
            f"{data.SPECS[name].title} could not be downloaded ({reason(error)}): try again later, "
            f"or fetch it by hand from {origin.page} and unpack it in {target}."
        ) from error


def _convert(name: str, source: Source | None, folder: Path | None = None) -> None:
    """Write a set as one file, into the project's folder of data, or else into the cache.

    A folder that ``FEDNB_DATA`` names is only read, and a file that holds something else stays.
    """
    if source is None:
        raise DataError(_missing(name, folder or data.places()[0]))
    with _broken_files_named(name):
        found = _compared(name, source.read())
    path = data.file_of(name)
    own = home() / "data" / f"{name}.npz"
    cached = data.places()[-1] / own.name
    if path not in (own, cached):
        is_own = data.places()[0] == own.parent
        path = own if is_own and not own.exists() else cached
    try:
        write(path, found)
    except OSError as error:
        raise DataError(f"{path} cannot be written ({reason(error)}).") from error
    say(f"{data.SPECS[name].title} was converted to {path}")


def _missing(name: str, folder: Path) -> str:
    """The sentence on a set that is not there, or on the first of its parts that is not."""
    for part in ORIGINS[name].parts:
        if _find(part, folder) is None and data.file_of(part) is None:
            return _missing(part, folder)
    fix = ORIGINS[name].by_hand or f"get it with `fednb data {name}`"
    return (
        f"{data.SPECS[name].title} was not found in {folder} (data/README.md says how it may lie "
        f"there); {fix}, or set FEDNB_DATA to the folder that holds it."
    )


@contextmanager
def _broken_files_named(name: str) -> Iterator[None]:
    """Tell of a bad file in a sentence that says whose it is and what to do."""
    try:
        yield
    except Broken as error:
        fix = "" if ORIGINS[name].by_hand else f", or delete it and run `fednb data {name}`"
        message = str(error).removeprefix(f"{data.places()[0]}{os.sep}")
        title = data.SPECS[name].title
        raise DataError(f"{title}: {message}; put a good copy in its place{fix}.") from error


# --- what is said of it


def _compared(name: str, found: Dataset) -> Dataset:
    """The set with what is not as published in its note."""
    origin = ORIGINS[name]
    missing = _missing_images(data.SPECS[name], origin, found)
    subset = [] if origin.at_most else list(missing)
    num_classes = data.SPECS[name].num_classes
    if found.num_classes != num_classes:
        subset.append(f"{found.num_classes} of {num_classes} classes")
    notes = [found.note]
    if subset:
        notes.insert(0, f"{_SUBSET}{', '.join(subset)}")
    elif not found.note and origin.fingerprint not in ("", found.fingerprint):
        notes.append("images or labels differ from the published ones")
    if origin.at_most:
        notes.append(", ".join(missing))
    remarks = [origin.remark, found.remark]
    return replace(
        found,
        note="; ".join(filter(None, [*notes, origin.stand_in])),
        remark="; ".join(filter(None, remarks)),
    )


def _missing_images(spec: DatasetSpec, origin: Origin, found: Dataset) -> list[str]:
    """Such as "20 of 50,000 training images"; of a domain that lacks some both splits."""
    bound = "at most " if origin.at_most else ""
    words = []
    for group, (domain, published) in enumerate((spec.domains or {"": spec.sizes}).items()):
        if published is None:
            continue
        counts = [len(found.labels), len(found.test_labels)]
        if found.train_groups is not None and found.test_groups is not None:
            both_groups = (found.train_groups, found.test_groups)
            counts = [int((groups == group).sum()) for groups in both_groups]
        splits = list(zip(("training", "test"), counts, published, strict=True))
        for split, count, most in splits:
            images = f"{split} images in {domain}".removesuffix(" in ")
            check(
                count <= most,
                f"{spec.title} has {most:,} {images}, but {count:,} were found; remove the others.",
            )
        lacking = [one for one in splits if one[1] < one[2]]
        if domain and lacking:
            both = [f"{count:,} of {most:,} {split}" for split, count, most in splits]
            words.append(f"{domain} {' and '.join(both)} images")
        else:
            words += [f"{n:,} of {bound}{most:,} {split} images" for split, n, most in lacking]
    return words


# --- where a set comes from


def _find(name: str, root: Path, inside: bool = False) -> Source | None:
    """Its files in a folder, its parts, or a drawing; None where nothing of it is there.

    ``inside``: the root is a folder or file of this very set.
    """
    if ORIGINS[name].parts:
        return _combined(name, root)
    with _broken_files_named(name):
        source = layouts.find(name, root, inside)
    if source is None and name == "synthdigits":
        return Source("rendered", _draw_synthdigits)
    return source


def _draw_synthdigits() -> Dataset:
    return runpy.run_path(str(ROOT / "data" / "synthdigits.py"))["synthdigits"]()


def _combined(name: str, root: Path) -> Source | None:
    """Sets of digits as the domains of another, all images 32x32 and RGB, as in RethinkFL."""
    for part in ORIGINS[name].parts:
        if data.file_of(part) is None and _find(part, root) is None:
            return None
    return Source("its parts", partial(_read_parts, name))


def _read_parts(name: str) -> Dataset:
    spec = data.SPECS[name]
    parts = []
    notes = []
    for part, domain in zip(ORIGINS[name].parts, spec.domains, strict=True):
        ensure(part)
        one = data.load(part)
        parts.append(one)
        known = ("", ORIGINS[part].stand_in)
        own = [note for note in one.note.split("; ") if note not in known]
        notes += [f"{domain}: {note}" for note in own if not note.startswith(_SUBSET)]
    sources = {one.source for one in parts}
    return from_splits(
        spec,
        _joined([(one.images.numpy(), one.labels.numpy()) for one in parts], spec.shape[1]),
        _joined(
            [(one.test_images.numpy(), one.test_labels.numpy()) for one in parts], spec.shape[1]
        ),
        spec.classes,
        sources.pop() if len(sources) == 1 else "several",
        notes,
    )


def _joined(parts: Sequence[tuple[np.ndarray, np.ndarray]], side: int) -> Split:
    return Split(
        images=np.concatenate([as_rgb(images, side) for images, _ in parts]),
        labels=np.concatenate([labels for _, labels in parts]),
        groups=np.repeat(np.arange(len(parts)), [len(labels) for _, labels in parts]),
    )
