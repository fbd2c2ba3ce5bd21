"""Published data sets, converted once from the files in which they come to ``NAME.npz``.

`ensure` is what commands call before runs; ``fednb data NAME`` calls `get`. How files may lie:
data/README.md.
"""

import os
import runpy
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from fednb import ROOT, data, home
from fednb.data import DatasetSpec
from fednb.dataset import Split, Stored, stored, write
from fednb.errors import DataError
from fednb.images import as_rgb, reason
from fednb_lab import layouts
from fednb_lab.layouts import ORIGINS, Contents, Origin, Source

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
            _save(name, _contents_of(name, source))


def get(name: str, given: Path | None = None) -> None:
    """Convert a set from ``given``, a folder or file, or else from the folder of the data sets.

    Where nothing of it lies there, it is fetched if that can be done. Prints what is there then. A
    `DataError` says what to do by hand.
    """
    data.spec_of(name)
    if given is not None:
        _get_from(name, Path(os.path.abspath(given.expanduser())))
    elif name in ORIGINS and name not in data.EMBEDDED:  # a folder of one's own stays as it is
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
    if name not in ORIGINS:
        raise DataError(f"{name} is not converted: write dataset={data.OWN_FOLDER}{given}.")
    if not given.exists():
        raise DataError(f"There is no {given}.")
    for part in ORIGINS[name].parts:
        source = _find(part, given, inside=True)
        if source is not None and source.layout != "rendered":
            _save(part, _contents_of(part, source))
    source = _find(name, given, inside=True)
    if source is None:
        raise DataError(_missing(name, given))
    _save(name, _contents_of(name, source))


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
    if source is None:
        raise DataError(_missing(name, folder))
    _save(name, _contents_of(name, source))


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


def _fetch(name: str, folder: Path) -> None:
    """Download the official files of a set to where `_find` looks for them."""
    from torchvision import datasets  # slow to import

    origin = ORIGINS[name]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if origin.page.endswith(".zip"):
            datasets.utils.download_and_extract_archive(
                origin.page, str(folder), md5=origin.md5, remove_finished=True
            )
        for options in origin.torchvision:
            target = folder / name if name in _OWN_FOLDERS else folder
            getattr(datasets, origin.reader)(str(target), download=True, **options)
    except Exception as error:  # network, disk, archive: torchvision lets many kinds through
        first_file = folder.joinpath(origin.folders[0], *list(origin.files)[:1])
        raise DataError(
            f"{data.SPECS[name].title} could not be downloaded ({reason(error)}): try again later, "
            f"or fetch it by hand from {origin.page} and unpack it so that {first_file} exists."
        ) from error


def _save(name: str, found: Stored) -> None:
    """Write a set into the project's folder of data, or else into the cache.

    A folder that ``FEDNB_DATA`` names is only read, and a file that holds something else stays.
    """
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
    print(f"fednb: {data.SPECS[name].title} was converted to {path}", file=sys.stderr)


# --- what is said of it


def _contents_of(name: str, source: Source) -> Stored:
    """Read a set, and compare it with what is published; a `DataError` names a broken file."""
    origin = ORIGINS[name]
    spec = data.SPECS[name]
    with layouts.broken_files_named(name):
        train, test, classes, notes, remarks = source.read()
    found = stored(train, test, classes, source.layout)
    notes = [*_notes_on(spec, origin, found, notes), origin.stand_in]
    return replace(
        found,
        notes=[note for note in notes if note],
        remarks=[remark for remark in (origin.remark, *remarks) if remark],
    )


def _notes_on(spec: DatasetSpec, origin: Origin, found: Stored, given: Sequence[str]) -> list[str]:
    """What is not as published, in words."""
    missing = _missing_images(spec, origin, found)
    subset = [] if origin.at_most else list(missing)
    if len(found.classes) != spec.num_classes:
        subset.append(f"{len(found.classes)} of {spec.num_classes} classes")
    notes = list(given)
    if subset:
        notes.insert(0, f"{_SUBSET}{', '.join(subset)}")
    elif not notes and origin.fingerprint not in ("", found.fingerprint):
        notes.append("images or labels differ from the published ones")
    if origin.at_most and missing:
        notes.append(", ".join(missing))
    return notes


def _missing_images(spec: DatasetSpec, origin: Origin, found: Stored) -> list[str]:
    """Such as "20 of 50,000 training images"; of a domain that lacks some both splits."""
    bound = "at most " if origin.at_most else ""
    words = []
    for group, (domain, published) in enumerate((spec.domains or {"": spec.sizes}).items()):
        if published is None:
            continue
        counts = [
            int((groups == group).sum()) for groups in (found.train_groups, found.test_groups)
        ]
        splits = list(zip(("training", "test"), counts, published, strict=True))
        for split, count, most in splits:
            if count > most:
                images = f"{split} images in {domain}".removesuffix(" in ")
                raise DataError(
                    f"{spec.title} has {most:,} {images}, but {count:,} were found; "
                    "remove the others."
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
    source = layouts.find(name, root, inside)
    if source is None and name == "synthdigits":
        return Source("rendered", _draw_synthdigits)
    return source


def _draw_synthdigits() -> Contents:
    return runpy.run_path(str(ROOT / "data" / "synthdigits.py"))["synthdigits"]()


def _combined(name: str, root: Path) -> Source | None:
    """Sets of digits as the domains of another, all images 32x32 and RGB, as in RethinkFL."""
    kinds = set()
    for part in ORIGINS[name].parts:
        if data.file_of(part) is not None:
            kinds.add(data.read_published(part).source)
            continue
        source = _find(part, root)
        if source is None:
            return None
        kinds.add(source.layout)
    return Source(kinds.pop() if len(kinds) == 1 else "several", partial(_read_parts, name))


def _read_parts(name: str) -> Contents:
    spec = data.SPECS[name]
    side = spec.shape[1]
    found = []
    notes = []
    for part, domain in zip(ORIGINS[name].parts, spec.domains, strict=True):
        ensure(part)
        one = data.read_published(part)
        found.append(one)
        own = [note for note in one.notes if not note.startswith(_SUBSET)]
        notes += [f"{domain}: {note}" for note in own if note != ORIGINS[part].stand_in]
    train = _joined([(one.images, one.labels) for one in found], side)
    test = _joined([(one.test_images, one.test_labels) for one in found], side)
    return Contents(train, test, spec.classes, notes)


def _joined(parts: Sequence[tuple[np.ndarray, np.ndarray]], side: int) -> Split:
    return Split(
        images=np.concatenate([as_rgb(images, side) for images, _ in parts]),
        labels=np.concatenate([labels for _, labels in parts]),
        groups=np.repeat(np.arange(len(parts)), [len(labels) for _, labels in parts]),
    )
