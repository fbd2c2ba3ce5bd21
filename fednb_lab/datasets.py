"""Published data sets, converted once from the files in which they come to ``NAME.npz``.

`ensure` is what commands call before runs; ``fednb data NAME`` calls `get`. How files may lie:
data/README.md.
"""

import os
import runpy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from fednb import ROOT, data, home
from fednb.data import Dataset, DatasetInfo, as_rgb
from fednb.errors import DataError, check
from fednb_lab import layouts
from fednb_lab.arrays import Split, from_splits, write
from fednb_lab.folders import PREFIX, say
from fednb_lab.images import about, reason
from fednb_lab.layouts import ORIGINS, Origin, Source

# --- what commands call


def ensure(name: str) -> None:
    """Convert a published set whose files lie in the folder of the data sets, unless it is done.

    Whatever else the name may be is left to `fednb.data.load`.
    """
    if name in ORIGINS and data.file_of(name) is None:
        folder = data.places()[0]
        source = _find(name, folder)
        if source is not None:
            _convert(name, source, folder)


def get(name: str, given: Path | None = None) -> None:
    """Convert a set from ``given``, a folder or file, or else from the folder of the data sets.

    Where nothing of it lies there, it is fetched if that can be done. Prints what is there then. A
    `DataError` says what to do by hand.
    """
    data.info_of(name)
    if given is not None:
        _get_from(name, Path(os.path.abspath(given.expanduser())))
    elif name in ORIGINS:
        _get_here(name)
    print(data.load(name))


def state(name: str) -> str:
    """Tell what is here of a set: its file, the layout that `ensure` would convert, or "-"."""
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
    origin = ORIGINS.get(name, Origin())
    check(name in ORIGINS, f"{name} is not converted: write dataset={PREFIX}{given}.")
    check(
        not origin.parts, f"{name} is made of others: convert {', '.join(origin.parts)} from there."
    )
    check(given.exists(), f"There is no {given}.")
    _convert(name, _find(name, given, inside=True), given)


def _get_here(name: str) -> None:
    """Convert what lies in the folder of the data sets, or what is fetched if nothing does."""
    origin = ORIGINS[name]
    folder = data.places()[0]
    for part in origin.parts:
        _get_here(part)
    if data.file_of(name) is not None:
        return
    source = _find(name, folder)
    if source is None and not origin.by_hand:
        _fetch(name, folder)
        source = _find(name, folder)
    _convert(name, source, folder)


def _fetch(name: str, folder: Path) -> None:
    """Download the official files of a set to where `_find` looks for them."""
    from torchvision import datasets  # slow to import

    origin = ORIGINS[name]
    target = folder / name if origin.torchvision else folder
    try:
        target.mkdir(parents=True, exist_ok=True)
        if origin.page.endswith(".zip"):
            datasets.utils.download_and_extract_archive(
                origin.page, str(target), remove_finished=True
            )
        for options in origin.torchvision:
            getattr(datasets, origin.reader)(str(target), download=True, **options)
    except Exception as error:  # network, disk, archive: torchvision lets many kinds through
        raise DataError(
            f"{data.DATASETS[name].title} could not be downloaded ({reason(error)}): try again later, "
            f"or fetch it by hand from {origin.page} and unpack it in {target}."
        ) from error


def _convert(name: str, source: Source | None, folder: Path) -> None:
    """Write a set as one file, into the project's folder of data, or else into the cache.

    A folder that ``FEDNB_DATA`` names is only read, and a file that holds something else stays.
    """
    title = data.DATASETS[name].title
    if source is None:
        fix = ORIGINS[name].by_hand or f"get it with `fednb data {name}`"
        raise DataError(
            f"{title} was not found in {folder} (data/README.md says how it may lie there); {fix}, "
            "or set FEDNB_DATA to the folder that holds it."
        )
    with about(title):
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
    say(f"{title} was converted to {path}")


# --- what is said of it


def _compared(name: str, found: Dataset) -> Dataset:
    """The set with what is not as published in its note."""
    origin = ORIGINS[name]
    spec = data.DATASETS[name]
    lacking = _lacking_images(spec, found, "at most " if origin.at_most else "")
    if found.num_classes != spec.num_classes:
        lacking.append(f"{found.num_classes} of {spec.num_classes} classes")
    notes = [found.note, origin.note]
    if lacking:
        notes.insert(0, f"subset: {', '.join(lacking)}")
    elif not found.note and origin.fingerprint not in ("", found.fingerprint):
        notes.append("images or labels differ from the published ones")
    remarks = [origin.remark, found.remark]
    return replace(
        found, note="; ".join(filter(None, notes)), remark="; ".join(filter(None, remarks))
    )


def _lacking_images(spec: DatasetInfo, found: Dataset, bound: str) -> list[str]:
    """Such as "20 of 50,000 training images"; of domains together, and none if no size is known."""
    published = list(spec.domains.values()) or [spec.sizes]
    sizes = np.sum([size for size in published if size is not None] or [spec.sizes], axis=0)
    words = []
    counts = (len(found.labels), len(found.test_labels))
    for split, count, most in zip(("training", "test"), counts, sizes.tolist(), strict=True):
        check(
            count <= most or not most,
            f"there are {most:,} {split} images, but {count:,} were found; remove the others.",
        )
        if count < most:
            words.append(f"{count:,} of {bound}{most:,} {split} images")
    return words


# --- where a set comes from


def _find(name: str, root: Path, inside: bool = False) -> Source | None:
    """Its files in a folder, its parts, or a drawing; None where nothing of it is there.

    ``inside``: the root is a folder or file of this very set.
    """
    if ORIGINS[name].parts:
        return _combined(name, root)
    with about(data.DATASETS[name].title):
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
    spec = data.DATASETS[name]
    parts = []
    for part in ORIGINS[name].parts:
        ensure(part)
        parts.append(data.load(part))
    side = spec.shape[1]
    sources = {part.source for part in parts}
    return from_splits(
        spec,
        _joined([part.images for part in parts], [part.labels for part in parts], side),
        _joined([part.test_images for part in parts], [part.test_labels for part in parts], side),
        spec.classes,
        sources.pop() if len(sources) == 1 else "several",
        [
            f"{domain}: {part.note}"
            for domain, part in zip(spec.domains, parts, strict=True)
            if part.note
        ],
    )


def _joined(images: Sequence[Tensor], labels: Sequence[Tensor], side: int) -> Split:
    return Split(
        np.concatenate([as_rgb(one.numpy(), side) for one in images]),
        np.concatenate([one.numpy() for one in labels]),
        np.repeat(np.arange(len(labels)), [len(one) for one in labels]),
    )
