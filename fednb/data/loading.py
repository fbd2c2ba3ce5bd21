"""Loading: find a set, decode it once, and say what is not as published; sets of one's own; downloads."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from fednb import ROOT, seeds
from fednb.data import synthetic
from fednb.data.catalog import DIGITS5, EMBEDDED, FACTS, NAMES, Facts, data_folder, facts_of
from fednb.data.dataset import Augmentation, Content, DataError, Dataset, fingerprint
from fednb.data.readers import Broken, Source, checked, find, reason

_registered: dict[str, Dataset] = {}


def load(name: str, root: Path | str | None = None) -> Dataset:
    """Load a data set: one of `NAMES`, a registered one, or images of one's own, ``folder:PATH``.

    They are in the folder ``root``; if not given, $FEDNB_DATA or `data/` of the repository. A `DataError` says that a set is
    unknown, missing, damaged, or larger than published.
    """
    if name in _registered:
        return _registered[name]
    facts = facts_of(name, root)
    return _dataset(facts, *_content(facts, data_folder(root)))


def register(
    name: str,
    images: Any,
    labels: Any,
    test_images: Any,
    test_labels: Any,
    *,
    classes: Sequence[str] = (),
    train_groups: Any = (),
    test_groups: Any = (),
    group_names: Sequence[str] = (),
    augmentation: Augmentation = Augmentation(),  # noqa: B008 (it is frozen)
) -> Dataset:
    """Make arrays or tensors a data set, known by its name in this process.

    Images are square, uint8 [N, H, W], [N, H, W, C] or [N, C, H, W] with 1 or 3 channels; labels are integers from 0,
    [N]. Of several domains, groups are positions in ``group_names``. A `DataError` says what does not fit.
    """
    x, y, x_test, y_test = (np.asarray(values) for values in (images, labels, test_images, test_labels))
    if not re.fullmatch(r"[\w.+-]+", name) or name in NAMES:
        raise DataError(f"{name!r} cannot be the name: take letters, digits, dots and dashes, and no published set's name.")
    classes = tuple(classes) or tuple(str(k) for k in range(1 + int(y.max(initial=0))))
    channels = 1 if x.ndim == 3 else x.shape[-1 if x.shape[-1] in (1, 3) else 1] if x.ndim == 4 else 0
    if channels not in (1, 3) or len(classes) < 2:
        raise DataError(f"{name} must hold images with 1 or 3 channels, of two classes or more.")
    facts = Facts(name, name, (channels, *x.shape[2:3] * 2), (len(y), len(y_test)), num_classes=len(classes), own=True)
    facts = replace(facts, augmentation=augmentation)
    try:
        content = Content(*checked(facts, "images", x, y), *checked(facts, "test_images", x_test, y_test), classes)
    except Broken as error:
        raise DataError(f"{name}: what is given as {error.args[0]} {error.args[1]}.") from error
    if group_names:
        groups = [np.asarray(values, np.int64) for values in (train_groups, test_groups)]
        counts = [np.bincount(values, minlength=len(group_names)).tolist() for values in groups]
        if [len(g) for g in groups] != [len(y), len(y_test)] or any(len(c) > len(group_names) for c in counts):
            raise DataError(f"{name} must have a group for each image, a position in group_names.")
        facts = replace(facts, domains=dict(zip(group_names, zip(*counts, strict=True), strict=True)))
        content = content._replace(train_groups=groups[0], test_groups=groups[1])
    made = _dataset(facts, _marked(facts, content), "registered")
    if name in _registered and _registered[name].fingerprint != made.fingerprint:
        raise DataError(f"{name} was registered with other images already: take another name.")
    FACTS[name], _registered[name] = facts, made
    return made


def _dataset(facts: Facts, content: Content, source: str) -> Dataset:
    arrays = {key: torch.from_numpy(value) for key, value in content._asdict().items() if isinstance(value, np.ndarray)}
    channels = content.images.swapaxes(0, 1)
    return Dataset(
        facts.name,
        **arrays,
        classes=content.classes,
        mean=facts.mean or tuple(round(float(channel.mean()) / 255, 4) for channel in channels),
        std=facts.std or tuple(max(round(float(channel.std()) / 255, 4), 1e-3) for channel in channels),
        augmentation=facts.augmentation,
        fingerprint=content.fingerprint,
        source=source,
        note="; ".join(filter(None, [*_compared(facts, content), facts.stand_in])),
        remark="; ".join(filter(None, [facts.remark, *content.remarks])),
        group_names=tuple(facts.domains),
    )


def where(name: str, root: Path | str | None = None) -> str:
    """What kind of source a set has in `root` (see `load`), without reading it; "-" where it is missing or incomplete."""
    try:
        facts = facts_of(name, root)
        known = "embedded" if name in EMBEDDED else "registered" if name in _registered else ""
        return known or _find(facts, data_folder(root))[0].kind
    except DataError:
        return "-"


def download(name: str, root: Path | str | None = None) -> None:
    """Fetch the official files of a set into `root` (see `load`), unless the complete set is there; a `DataError` if not."""
    facts, folder = facts_of(name, root), data_folder(root)
    for part in DIGITS5 if name == "digits5" else ():
        if not FACTS[part].by_hand:
            download(part, folder)
    try:
        found = load(name, folder)
        complete = facts.at_most or facts.own or "subset: " not in found.note
    except DataError:  # missing or damaged
        complete = False
    if not (complete or facts.domains or facts.by_hand):
        from torchvision import datasets  # slow to import

        try:
            folder.mkdir(parents=True, exist_ok=True)
            if facts.page.endswith(".zip"):
                datasets.utils.download_and_extract_archive(
                    facts.page, str(folder), md5=facts.md5 or None, remove_finished=True
                )
            for options in facts.torchvision:
                place = folder / name if name in ("usps", "svhn") else folder  # of these, the files lie side by side
                getattr(datasets, name.partition("_")[0].upper())(str(place), download=True, **options)
        except Exception as error:  # network, disk, archive: torchvision lets many kinds through
            raise DataError(
                f"{facts.title} could not be downloaded ({reason(error)}): try again later, or fetch it by "
                f"hand from {facts.page} and unpack it so that {folder / facts.folders[0]} exists."
            ) from error
    print(load(name, folder))  # or what to do by hand


@functools.lru_cache(maxsize=2)
def public_images(name: str, number: int, channels: int, side: int) -> torch.Tensor:
    """Images without labels that everybody has, for methods that compare clients on them (FCCL+).

    "photographs" are pieces of scikit-learn's two sample photographs; of a data set, it is the first of its training images
    in a fixed order. Returns uint8 [number, channels, side, side], fewer where the data set has fewer; other shapes are
    resized, and grey is repeated or colour averaged.
    """
    rng = seeds.generator(0, "public images")
    if name == "photographs":
        pieces = np.stack([synthetic.patch(rng, side, train=True) for _ in range(number)])
        images = synthetic.to_bytes(pieces).transpose(0, 3, 1, 2)
    else:
        known = load(name).images.numpy()
        images = _as_rgb(known[rng.permutation(len(known))[:number]], side)
    images = images if channels == 3 else np.rint(images.mean(1, keepdims=True)).astype(np.uint8)
    return torch.from_numpy(images.copy())


def _content(facts: Facts, root: Path) -> tuple[Content, str]:
    """The content of a set and the kind of its source."""
    if facts.name in EMBEDDED:
        return _marked(facts, synthetic.digits() if facts.name == "digits" else synthetic.embedded()), "embedded"
    source, cache = _find(facts, root)
    with _explained(facts, root):
        return _cached(cache, lambda: _marked(facts, source.read())), source.kind


def _marked(facts: Facts, content: Content) -> Content:
    """Add the fingerprint; with an image in another domain it is another set."""
    _compared(facts, content)  # refuses what is no part of the set
    x, y, x_test, y_test, _, groups, test_groups, *_ = content
    if facts.domains:
        y, y_test = y + facts.num_classes * groups, y_test + facts.num_classes * test_groups
    return content._replace(fingerprint=fingerprint(x, y, x_test, y_test))


def _find(facts: Facts, root: Path) -> tuple[Source, Path]:
    """Where a set is, and its file in the cache, whose name changes with the name, size or time of any source file."""
    with _explained(facts, root):
        if facts.name == "digits5":
            parts = [_find(FACTS[part], root)[0] for part in DIGITS5]
            kind = parts[0].kind if len({part.kind for part in parts}) == 1 else "several"
            source = Source(kind, [file for part in parts for file in part.files], lambda: _digits5(root))
        elif not (source := find(facts, root)) and facts.name == "synthdigits":
            source = Source("rendered", [Path(synthetic.__file__)], synthetic.synthdigits)  # drawn anew when that changes
        elif not source:
            fix = facts.by_hand or f"get it with `python -m fednb data {facts.name}`"
            raise DataError(
                f"{facts.title} was not found in {root} (data/README.md says how it may lie there); {fix}, or set "
                "FEDNB_DATA to the folder that holds it."
            )
        key = hashlib.blake2b(f"3 {source.kind} {facts.shape}".encode(), digest_size=8)  # raised when the content changes
        for file in source.files:
            stat = file.stat()
            told = f"{str(file).removeprefix(str(root))} {stat.st_size} {stat.st_mtime_ns}\n"
            key.update(told.encode(errors="surrogateescape"))
    folder = Path(os.path.expanduser(os.environ.get("FEDNB_CACHE") or ROOT / "data" / "cache"))
    return source, folder / f"{re.sub(r'[^a-z0-9]+', '_', facts.name.lower())[-40:]}-{key.hexdigest()}.npz"


@contextmanager
def _explained(facts: Facts, root: Path) -> Iterator[None]:
    """Make a sentence of what is wrong with a file: its name, the reason, and a way out, which helps for every layout."""
    try:
        yield
    except (Broken, OSError) as error:  # of the latter: no permission, or a link that leads nowhere
        path, why = error.args if isinstance(error, Broken) else (error.filename, f"cannot be read ({reason(error)})")
        fix = "" if facts.by_hand else f", or delete it and run `python -m fednb data {facts.name}`"
        shown = str(path).removeprefix(f"{root}{os.sep}")
        raise DataError(f"{facts.title}: {shown} {why}; put a good copy in its place{fix}.") from error


def _cached(path: Path, make: Callable[[], Content]) -> Content:
    """What the cache holds; where there is none, or it is damaged in whatever way (zipfile checks the sums), it is made."""
    words = ("classes", "notes", "remarks")
    try:
        with np.load(path, allow_pickle=False) as file:
            told = {name: tuple(file[name].tolist()) for name in words} | {"fingerprint": str(file["fingerprint"])}
            return Content(**{name: told[name] if name in told else file[name] for name in file.files})
    except Exception:
        content = make()
    values = {name: np.array(value, dtype=str if name in words else None) for name, value in content._asdict().items()}
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")  # so that nobody reads half a file
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(part, "wb") as file:
                np.savez(file, **{name: value for name, value in values.items() if value.dtype != object})
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:  # the next time it takes as long again
        print(f"fednb: no cache written in {path.parent} ({reason(error)})", file=sys.stderr)
    return content


def _digits5(root: Path) -> Content:
    """Five sets of digits, each image resized to 32x32 and grey repeated to three channels, as in RethinkFL."""
    facts, arrays, groups = FACTS["digits5"], [], []
    parts = [_content(FACTS[part], root)[0] for part in DIGITS5]
    for images, labels in (("images", "labels"), ("test_images", "test_labels")):
        arrays.append(np.concatenate([_as_rgb(getattr(part, images), facts.shape[1]) for part in parts]))
        arrays.append(np.concatenate([getattr(part, labels) for part in parts]))
        groups.append(np.repeat(np.arange(len(parts)), [len(getattr(part, labels)) for part in parts]))
    notes = [f"{domain}: {note}" for domain, part in zip(facts.domains, parts, strict=True) for note in part.notes]
    return Content(*arrays, facts.classes, *groups, notes=tuple(notes))


def _as_rgb(images: np.ndarray, side: int) -> np.ndarray:
    """Bring uint8 [N, C, H, W] to [N, 3, side, side], bilinearly as torchvision's Resize does."""
    if images.shape[-2:] != (side, side):
        resized = np.empty((*images.shape[:2], side, side), np.uint8)
        for i, channel in np.ndindex(*images.shape[:2]):
            resized[i, channel] = Image.fromarray(images[i, channel]).resize((side, side), Image.Resampling.BILINEAR)
        images = resized
    return np.broadcast_to(images, (len(images), 3, side, side))


def _compared(facts: Facts, content: Content) -> list[str]:
    """Say what is not as published, and refuse more than that."""
    if facts.own:
        return []
    groups = content.train_groups, content.test_groups
    images, classes, most = [], [], "at most " if facts.at_most else ""
    for g, (domain, sizes) in enumerate((facts.domains or {"": facts.sizes}).items()):
        found = [int((x == g).sum()) for x in groups] if domain else [len(content.labels), len(content.test_labels)]
        rows = list(zip(found, sizes or found, ("training", "test"), strict=True))
        for n, m, split in rows:
            if n > m:
                what = f"{split} images in {domain}" if domain else f"{split} images"
                raise DataError(f"{facts.title} has {m:,} {what}, but {n:,} were found; remove the others.")
        if not domain:
            images += [f"{n:,} of {most}{m:,} {split} images" for n, m, split in rows if n < m]
        elif any(n < m for n, m, _ in rows):
            images.append(f"{domain} {' and '.join(f'{n:,} of {m:,} {split}' for n, m, split in rows)} images")
    if len(content.classes) != facts.num_classes:
        classes.append(f"{len(content.classes)} of {facts.num_classes} classes")
    subset = classes if most else images + classes
    notes = [f"subset: {', '.join(subset)}"] if subset else []
    if not subset and not content.notes and facts.fingerprint not in ("", content.fingerprint):
        notes.append("images or labels differ from the published ones")
    return [*notes, *content.notes, *([", ".join(images)] if most and images else [])]
