"""Loading: locate a set, decode it once, and compare it with what is published."""

import functools
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fednb.data import own_folder
from fednb.data.compare import as_dataset
from fednb.data.dataset import Dataset, LabelledImages, RawDataset, raw_dataset
from fednb.data.files import Broken, reading, reason
from fednb.data.find import Source, find_source
from fednb.data.registered import REGISTERED
from fednb.data.spec import EMBEDDED, SPECS, DatasetSpec
from fednb.errors import DataError, require_known
from fednb.places import Places, absolute

_CACHE_VERSION = 5  # raised when what a cache holds changes

Where = Places | Path | str | None  # the places, the folder of the data sets, or the environment's


def load(name: str, root: Where = None) -> Dataset:
    """Load one of `NAMES`, a registered set or ``folder:PATH``.

    ``root`` is the folder of the data sets, or all places; without it the environment names them.
    A `DataError` says where a set was looked for, or what is wrong with its files.
    """
    spec, layout, raw = read(name, places_of(root))
    if spec.is_own:
        _check_fingerprint(name, raw.fingerprint)
    return as_dataset(spec, raw, layout)


def spec_of(name: str, root: Where = None) -> DatasetSpec:
    """What is published about a set, or found in one's own folder; a `DataError` if unknown."""
    if own_folder.is_own_folder(name):
        places = places_of(root)
        return _seen_folder(whole_name(name, places), places)[0]
    known = [*SPECS, *REGISTERED, f"{own_folder.OWN_FOLDER}PATH"]
    require_known("There is no data set", name, known, DataError)
    return REGISTERED[name][0] if name in REGISTERED else SPECS[name]


def where(name: str, root: Where = None) -> str:
    """In which layout a set lies in ``root`` (see `load`); "-" where any file is missing."""
    try:
        _, source = _locate(name, places_of(root))
    except DataError:
        return "-"
    return source.layout if all(file.exists() for file in source.files) else "-"


def whole_name(name: str, root: Where = None) -> str:
    """A set's name as any folder understands it: the PATH of one's own images is absolute."""
    if not own_folder.is_own_folder(name):
        return name
    address = own_folder.resolve_folder(name, places_of(root).data)
    return f"{own_folder.OWN_FOLDER}{address.path}{address.size}{address.fingerprint}"


def recorded_name(name: str, root: Where = None) -> str:
    """How records call a set; one's own folder by the end of its path and by its fingerprint."""
    if not own_folder.is_own_folder(name):
        return name
    places = places_of(root)
    return _recorded_folder(whole_name(name, places), places)


# What a process has found out of folders of one's own, by their whole names, as where one works may
# change: their settings are asked for many times, and large ones take long to list.


@functools.lru_cache(maxsize=16)
def _seen_folder(name: str, places: Places) -> tuple[DatasetSpec, Source]:
    return own_folder.look_into(name, places.data)


@functools.cache
def _recorded_folder(name: str, places: Places) -> str:
    spec, source = _seen_folder(name, places)
    with _broken_files_named(spec, places.data):
        known = _read_cache(_cache_file(spec, source, places), ["fingerprint"])
    if known is None:
        known = vars(_decoded(spec, source, places))
    fingerprint = known["fingerprint"]
    _check_fingerprint(name, fingerprint)
    return f"{spec.name}#{fingerprint[:8]}"


def _check_fingerprint(name: str, fingerprint: str) -> None:
    """Refuse other images than those whose fingerprint stands in the name."""
    asked = own_folder.fingerprint_in(name)
    found = fingerprint[: len(asked)]
    if asked != found:
        raise DataError(
            f"{name}: the images that are there have the fingerprint {found}: put back those that "
            f"are meant, or leave out #{asked}."
        )


def places_of(root: Where) -> Places:
    """The places that are meant, with an absolute folder of the data sets."""
    if isinstance(root, Places):
        return root
    places = Places.from_environment()
    return replace(places, data=absolute(root)) if root else places


def read(name: str, places: Places) -> tuple[DatasetSpec, str, RawDataset]:
    """Locate and read a set: what is published about it, its layout here, and what it holds."""
    spec, source = _locate(name, places)
    return spec, source.layout, _decoded(spec, source, places)


def _locate(name: str, places: Places) -> tuple[DatasetSpec, Source]:
    if own_folder.is_own_folder(name):
        return own_folder.look_into(name, places.data)
    if name in REGISTERED:
        spec, raw = REGISTERED[name]
        return spec, Source("registered", [], lambda: raw)
    spec = spec_of(name)
    with _broken_files_named(spec, places.data):
        return spec, _source_of(spec, places)


def _source_of(spec: DatasetSpec, places: Places) -> Source:
    """Where a published set comes from: what is installed, its parts, its files, or a drawing."""
    if spec.name in EMBEDDED:
        from fednb.data import synthetic  # slow to import

        return Source("embedded", [], getattr(synthetic, spec.name))
    if spec.parts:
        return _combined(spec, places)
    source = find_source(spec, places.data)
    if source is not None:
        return source
    if spec.name == "synthdigits":
        from fednb.data import synthetic

        # drawn anew when that file changes
        return Source("rendered", [Path(synthetic.__file__)], synthetic.synthdigits)
    fix = spec.by_hand or f"get it with `python -m fednb data {spec.name}`"
    raise DataError(
        f"{spec.title} was not found in {places.data} (data/README.md says how it may lie there); "
        f"{fix}, or set FEDNB_DATA to the folder that holds it."
    )


def _combined(spec: DatasetSpec, places: Places) -> Source:
    """Sets of digits as the domains of another, all images 32x32 and RGB, as in RethinkFL."""
    parts = [(SPECS[part], _source_of(SPECS[part], places)) for part in spec.parts]
    layouts = {source.layout for _, source in parts}
    files = list(chain.from_iterable(source.files for _, source in parts))

    def read_parts() -> RawDataset:
        side = spec.shape[1]
        raws = [_decoded(part, source, places) for part, source in parts]
        train = _joined([(raw.images, raw.labels) for raw in raws], side)
        test = _joined([(raw.test_images, raw.test_labels) for raw in raws], side)
        notes = []
        for domain, raw in zip(spec.domains, raws, strict=True):
            notes += [f"{domain}: {note}" for note in raw.notes]
        return raw_dataset(train, test, spec.classes, notes)

    return Source(layouts.pop() if len(layouts) == 1 else "several", files, read_parts)


def _joined(parts: Sequence[tuple[np.ndarray, np.ndarray]], side: int) -> LabelledImages:
    return LabelledImages(
        images=np.concatenate([as_rgb(images, side) for images, _ in parts]),
        labels=np.concatenate([labels for _, labels in parts]),
        groups=np.repeat(np.arange(len(parts)), [len(labels) for _, labels in parts]),
    )


def as_rgb(images: np.ndarray, side: int) -> np.ndarray:
    """Bring uint8 [N, C, H, W] to [N, 3, side, side], bilinearly as torchvision's Resize does."""
    if images.shape[-2:] != (side, side):
        channels = images.reshape(-1, *images.shape[-2:])
        resized = [
            np.asarray(Image.fromarray(channel).resize((side, side), Image.Resampling.BILINEAR))
            for channel in channels
        ]
        images = np.stack(resized).reshape(len(images), -1, side, side)
    return np.broadcast_to(images, (len(images), 3, side, side))


@contextmanager
def _broken_files_named(spec: DatasetSpec, root: Path) -> Iterator[None]:
    """Tell of a bad file in a sentence that says whose it is and what to do."""
    try:
        yield
    except Broken as error:
        fix = "" if spec.by_hand else f", or delete it and run `python -m fednb data {spec.name}`"
        message = str(error).removeprefix(f"{root}{os.sep}")
        raise DataError(f"{spec.title}: {message}; put a good copy in its place{fix}.") from error


def _decoded(spec: DatasetSpec, source: Source, places: Places) -> RawDataset:
    """What a set holds, from the cache if it is there."""
    with _broken_files_named(spec, places.data):
        if not source.files:
            return source.read()
        path = _cache_file(spec, source, places)
        cached = _read_cache(path, RawDataset.__dataclass_fields__)
        if cached is not None:
            return RawDataset(**cached)
        raw = source.read()
    _write_cache(path, raw)
    return raw


def _cache_file(spec: DatasetSpec, source: Source, places: Places) -> Path:
    """Its name changes with the path below the folder of the sets, size or time of any file."""
    state = f"{_CACHE_VERSION} {source.layout} {list(spec.shape)}"
    for file in source.files:
        with reading(file):
            stat = file.stat()
        state += f" {str(file).removeprefix(str(places.data))} {stat.st_size} {stat.st_mtime_ns}"
    key = hashlib.blake2b(state.encode(errors="surrogateescape"), digest_size=8).hexdigest()
    title = re.sub(r"[^a-z0-9]+", "_", spec.name.lower())[-40:]
    return places.cache / f"{title}-{key}.npz"


def _read_cache(path: Path, names: Iterable[str]) -> dict[str, Any] | None:
    """Fields of a `RawDataset`; None if one is missing or damaged (zipfile checks the sums)."""
    fields: dict[str, Any] = {}
    try:
        with np.load(path, allow_pickle=False) as file:
            for name in names:
                value = file[name]  # what are no numbers are words
                fields[name] = value if value.dtype.kind in "iu" else value.tolist()
    except Exception:
        return None
    return fields


def _write_cache(path: Path, raw: RawDataset) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # written elsewhere first, so that nobody reads half a file
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            np.savez(f"{folder}/{path.name}", **vars(raw))
            os.replace(f"{folder}/{path.name}", path)
    except OSError as error:  # the next time it takes as long again
        print(f"fednb: no cache written in {path.parent} ({reason(error)})", file=sys.stderr)
