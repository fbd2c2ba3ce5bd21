"""Loading: find a set, decode it once, and say what is not as published; sets of one's own; downloads."""

import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fednb.data.catalog import EMBEDDED, FACTS, NAMES, Facts, cache_folder, data_folder, facts_of
from fednb.data.dataset import Augmentation, Content, Dataset, content
from fednb.data.readers import Broken, Source, find, from_arrays, reading, reason
from fednb.errors import DataError, check

_registered: dict[str, Dataset] = {}


def load(name: str, root: Path | str | None = None) -> Dataset:
    """Load one of `NAMES`, a registered set or ``folder:PATH``, from ``root`` or `data_folder`; a `DataError` if not."""
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
    arrays = x, y, *_, y_test = [
        np.asarray(values) for values in (images, labels, test_images, test_labels)
    ]
    good = re.fullmatch(r"[\w.+-]+", name) and name not in NAMES
    check(
        good,
        f"{name!r} cannot be the name: take letters, digits, dots and dashes, and no published set's name.",
    )
    classes = list(classes) or [str(k) for k in range(1 + int(y.max(initial=0)))]
    channels = (
        1 if x.ndim == 3 else x.shape[-1 if x.shape[-1] in (1, 3) else 1] if x.ndim == 4 else 0
    )
    check(
        channels in (1, 3) and len(classes) > 1,
        f"{name} must hold images with 1 or 3 channels, of two classes or more.",
    )
    told = {
        "title": name,
        "shape": [channels, *x.shape[2:3] * 2],
        "sizes": [len(y), len(y_test)],
        "classes": classes,
    }
    facts = Facts(
        name, **told, augmentation=vars(augmentation), domains=dict.fromkeys(group_names), own=True
    )
    groups = (
        [np.asarray(values, np.int64) for values in (train_groups, test_groups)]
        if group_names
        else []
    )
    for values, number in zip(groups, facts.sizes, strict=False):
        good = len(values) == number and set(values) == set(range(len(group_names)))
        told = "a group for each image, a position in group_names, and images of each group in both splits"
        check(good, f"{name} must have {told}.")
    files = [f"{name}: what is given as {split}" for split in ("images", "test_images")]
    dataset = _dataset(facts, from_arrays(facts, files, arrays, groups), "registered")
    known = _registered.setdefault(name, dataset).fingerprint == dataset.fingerprint
    check(known, f"{name} was registered with other images already: take another name.")
    FACTS[name], _registered[name] = facts, dataset
    return dataset


def _dataset(facts: Facts, found: Content, source: str) -> Dataset:
    import torch  # slow, and not every command needs it

    tensors = {
        name: torch.from_numpy(value)
        for name, value in found.items()
        if isinstance(value, np.ndarray)
    }
    channels = found["images"].swapaxes(0, 1)
    return Dataset(
        facts.name,
        **tensors if facts.domains else tensors | {"train_groups": None, "test_groups": None},
        classes=tuple(found["classes"]),
        mean=tuple(facts.mean or [round(float(channel.mean()) / 255, 4) for channel in channels]),
        std=tuple(
            facts.std or [max(round(float(channel.std()) / 255, 4), 1e-3) for channel in channels]
        ),
        augmentation=Augmentation(**facts.augmentation),
        fingerprint=found["fingerprint"],
        source=source,
        note="; ".join(filter(None, [*_compared(facts, found), facts.stand_in])),
        remark="; ".join(filter(None, [facts.remark, *found["remarks"]])),
        group_names=tuple(facts.domains),
    )


def where(name: str, root: Path | str | None = None) -> str:
    """What kind of source a set has in `root` (see `load`), without reading it; "-" where it is missing or incomplete."""
    if name in _registered:
        return "registered"
    with suppress(DataError):
        kind, files, _ = _source(facts_of(name, root), data_folder(root))
        if all(file.exists() for file in files):
            return kind
    return "-"


def download(name: str, root: Path | str | None = None) -> None:
    """Fetch the official files of a set into `root` (see `load`), unless the complete set is there; a `DataError` if not."""
    facts, folder = facts_of(name, root), data_folder(root)
    for part in facts.parts:
        if not FACTS[part].by_hand:
            download(part, folder)
    complete = False
    with suppress(DataError):  # missing or damaged
        complete = "subset: " not in load(name, folder).note or facts.at_most or facts.own
    if not (complete or facts.domains or facts.by_hand):
        from torchvision import datasets  # slow to import

        folder.mkdir(parents=True, exist_ok=True)
        try:
            if facts.page.endswith(".zip"):
                datasets.utils.download_and_extract_archive(
                    facts.page, str(folder), md5=facts.md5, remove_finished=True
                )
            for options in facts.torchvision:
                place = (
                    folder / name if name in ("usps", "svhn") else folder
                )  # of these, the files lie side by side
                getattr(datasets, name.partition("_")[0].upper())(
                    str(place), download=True, **options
                )
        except Exception as error:  # network, disk, archive: torchvision lets many kinds through
            place = folder.joinpath(facts.folders[0], *list(facts.files)[:1])
            way_out = f"try again later, or fetch it by hand from {facts.page} and unpack it so that {place} exists"
            raise DataError(
                f"{facts.title} could not be downloaded ({reason(error)}): {way_out}."
            ) from error
    print(load(name, folder))  # or what to do by hand


def _source(facts: Facts, root: Path) -> Source:
    from fednb.data import synthetic  # slow to import

    if facts.name in EMBEDDED:
        return "embedded", [], getattr(synthetic, facts.name)
    if facts.parts:
        parts = [_source(FACTS[part], root) for part in facts.parts]
        kind = parts[0][0] if len({kind for kind, *_ in parts}) == 1 else "several"
        return (
            kind,
            [file for _, files, _ in parts for file in files],
            lambda: _digits5(facts, root),
        )
    source = find(facts, root)
    if not source and facts.name == "synthdigits":
        return (
            "rendered",
            [Path(synthetic.__file__)],
            synthetic.synthdigits,
        )  # drawn anew when that file changes
    missing = f"{facts.title} was not found in {root} (data/README.md says how it may lie there)"
    fix = facts.by_hand or f"get it with `python -m fednb data {facts.name}`"
    check(source, f"{missing}; {fix}, or set FEDNB_DATA to the folder that holds it.")
    return source


def _content(facts: Facts, root: Path) -> tuple[Content, str]:
    """What a set holds, from the cache if it is there, and the kind of its source; a bad file is told in a sentence."""
    try:
        kind, files, read = _source(facts, root)
        if not files:
            return read(), kind
        told = f"4 {kind} {facts.shape}"  # the number is raised when the content changes
        for file in files:
            with reading(file):
                told += f" {str(file).removeprefix(str(root))} {file.stat().st_size} {file.stat().st_mtime_ns}"
        key = hashlib.blake2b(told.encode(errors="surrogateescape"), digest_size=8).hexdigest()
        path = cache_folder() / f"{re.sub(r'[^a-z0-9]+', '_', facts.name.lower())[-40:]}-{key}.npz"
        return _cached(path, read), kind
    except Broken as error:
        fix = "" if facts.by_hand else f", or delete it and run `python -m fednb data {facts.name}`"
        shown = str(error).removeprefix(f"{root}{os.sep}")
        raise DataError(f"{facts.title}: {shown}; put a good copy in its place{fix}.") from error


def _cached(path: Path, make: Callable[[], Content]) -> Content:
    """What the cache holds; where there is none, or it is damaged in whatever way (zipfile checks the sums), it is made."""
    try:
        with np.load(
            path, allow_pickle=False
        ) as file:  # images, labels and groups are numbers, all else is words
            return {
                name: value if value.dtype.kind in "iu" else value.tolist()
                for name, value in file.items()
            }
    except Exception:
        made = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=path.parent
        ) as folder:  # so that nobody reads half a file
            np.savez(f"{folder}/{path.name}", **made)
            os.replace(f"{folder}/{path.name}", path)
    except OSError as error:  # the next time it takes as long again
        print(f"fednb: no cache written in {path.parent} ({reason(error)})", file=sys.stderr)
    return made


def _digits5(facts: Facts, root: Path) -> Content:
    """Five sets of digits, each image resized to 32x32 and grey repeated to three channels, as in RethinkFL."""
    parts, splits = [_content(FACTS[part], root)[0] for part in facts.parts], []
    for images, labels in (("images", "labels"), ("test_images", "test_labels")):
        pixels = np.concatenate([as_rgb(part[images], facts.shape[1]) for part in parts])
        groups = np.repeat(np.arange(len(parts)), [len(part[labels]) for part in parts])
        splits.append((pixels, np.concatenate([part[labels] for part in parts]), groups))
    notes = [
        f"{name}: {note}"
        for name, part in zip(facts.domains, parts, strict=True)
        for note in part["notes"]
    ]
    return content(*splits, facts.classes, notes)


def as_rgb(images: np.ndarray, side: int) -> np.ndarray:
    """Bring uint8 [N, C, H, W] to [N, 3, side, side], bilinearly as torchvision's Resize does."""
    if images.shape[-2:] != (side, side):
        channels = [Image.fromarray(channel) for image in images for channel in image]
        resized = [
            np.asarray(channel.resize((side, side), Image.Resampling.BILINEAR))
            for channel in channels
        ]
        images = np.stack(resized).reshape(len(images), -1, side, side)
    return np.broadcast_to(images, (len(images), 3, side, side))


def _compared(facts: Facts, found: Content) -> list[str]:
    """Say what is not as published, and refuse more than that."""
    notes, num_classes, images = list(found["notes"]), len(found["classes"]), []
    most, domains = (
        "at most " if facts.at_most else "",
        {} if facts.own else facts.domains or {"": facts.sizes},
    )
    for g, (domain, sizes) in enumerate(domains.items()):
        here = [int((found[groups] == g).sum()) for groups in ("train_groups", "test_groups")]
        rows = list(zip(here, sizes or here, ("training", "test"), strict=True))
        for n, m, split in rows:
            what = f"{split} images in {domain}" if domain else f"{split} images"
            check(
                n <= m, f"{facts.title} has {m:,} {what}, but {n:,} were found; remove the others."
            )
        if not domain:
            images += [f"{n:,} of {most}{m:,} {split} images" for n, m, split in rows if n < m]
        elif any(n < m for n, m, _ in rows):
            images.append(
                f"{domain} {' and '.join(f'{n:,} of {m:,} {split}' for n, m, split in rows)} images"
            )
    subset = [] if most else images
    subset += (
        [f"{num_classes} of {facts.num_classes} classes"]
        if num_classes != facts.num_classes
        else []
    )
    if not subset and not notes and facts.fingerprint not in ("", found["fingerprint"]):
        notes = ["images or labels differ from the published ones"]
    subset = [f"subset: {', '.join(subset)}"] if subset else []
    return [*subset, *notes, *([", ".join(images)] if most and images else [])]
