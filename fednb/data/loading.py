"""Loading: find a set, decode it once, and say what is not as published; downloads."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fednb import ROOT, seeds
from fednb.data import synthetic
from fednb.data.catalog import DIGITS5, EMBEDDED, FACTS, Facts, facts_of
from fednb.data.dataset import Content, DataError, Dataset, fingerprint
from fednb.data.readers import Broken, Source, find, reason


def load(name: str, root: Path | str | None = None) -> Dataset:
    """Load a data set, one of `NAMES`, from the folder ``root``: if not given, $FEDNB_DATA or `data/` of the repository.

    Raises
    ------
    DataError
        If the set is unknown, missing, damaged, or not of the published size.
    """
    facts = facts_of(name)
    content, source = _content(facts, _root(root))
    arrays = {key: torch.from_numpy(value) for key, value in content._asdict().items() if isinstance(value, np.ndarray)}
    return Dataset(
        name,
        **arrays,
        **{key: getattr(facts, key) for key in ("mean", "std", "augmentation")},
        **{"classes": content.classes, "fingerprint": content.fingerprint, "source": source},
        note="; ".join(filter(None, [*_compared(facts, content), facts.stand_in])),
        remark="; ".join(filter(None, [facts.remark, *content.remarks])),
        group_names=tuple(facts.domains),
    )


def where(name: str, root: Path | str | None = None) -> str:
    """What kind of source a set has in `root` (see `load`), without reading it; "-" where it is missing or incomplete."""
    facts = facts_of(name)
    try:
        return "embedded" if name in EMBEDDED else _find(facts, _root(root))[0].kind
    except DataError:
        return "-"


def download(name: str, root: Path | str | None = None) -> None:
    """Fetch the official files of a set into `root` (see `load`), unless the complete set is there; a `DataError` if not."""
    facts, folder = facts_of(name), _root(root)
    if name in EMBEDDED:
        print(f"{name} comes with scikit-learn and matplotlib; nothing to download.")
        return
    for part in ("mnist", "usps", "svhn") if name == "digits5" else ():
        download(part, folder)
    try:
        content, _ = _content(facts, folder)
        complete = facts.at_most or not _compared(facts, content)
    except DataError:  # missing or damaged
        complete = False
    if not (complete or facts.domains or facts.by_hand):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _fetch(facts, folder)
        except Exception as error:  # network, disk, archive: torchvision lets many kinds through
            raise DataError(
                f"{facts.title} could not be downloaded ({reason(error)}): try again later, or fetch it by "
                f"hand from {facts.page} and unpack it so that {folder / facts.folders[0]} exists."
            ) from error
    print(load(name, folder))  # or what to do by hand


def _fetch(facts: Facts, folder: Path) -> None:
    from torchvision import datasets  # slow to import

    if facts.page.endswith(".zip"):
        md5 = {"tiny_imagenet": "90528d7ca1a48142e341f4ef8d21d0de"}.get(facts.name)
        datasets.utils.download_and_extract_archive(facts.page, str(folder), md5=md5, remove_finished=True)
        return
    splits = {"usps": [{"train": True}, {"train": False}], "svhn": [{"split": "train"}, {"split": "test"}]}
    place = folder / facts.name if facts.name in splits else folder  # of these, all files lie side by side
    for options in splits.get(facts.name, [{"split": "letters"} if facts.name == "emnist_letters" else {}]):
        getattr(datasets, facts.name.partition("_")[0].upper())(str(place), download=True, **options)


@functools.lru_cache(maxsize=2)
def public_images(name: str, number: int, channels: int, side: int) -> torch.Tensor:
    """Images without labels that everybody has, for methods that compare clients on them (FCCL+).

    "photographs" are pieces of scikit-learn's two sample photographs; of a data set, it is the first of its training images
    in a fixed order. Other shapes are resized, and grey is repeated or colour averaged.

    Returns
    -------
    Tensor
        uint8 [number, channels, side, side]; fewer where the data set has fewer.
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


def _root(root: Path | str | None) -> Path:
    return Path(os.path.abspath(os.path.expanduser(root or os.environ.get("FEDNB_DATA") or ROOT / "data")))


def _content(facts: Facts, root: Path) -> tuple[Content, str]:
    """The content of a set and the kind of its source."""
    if facts.name in EMBEDDED:
        return _marked(facts, synthetic.digits() if facts.name == "digits" else synthetic.embedded()), "embedded"
    source, cache = _find(facts, root)
    content = _read_cache(cache)
    if content is None:
        with _explained(facts, root):
            content = _marked(facts, source.read())
        _write_cache(cache, content)
    return content, source.kind


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
            places = "data/README.md says how it may lie there"
            raise DataError(
                f"{facts.title} was not found in {root} ({places}); {fix}, or set FEDNB_DATA to the folder that holds it."
            )
        key = hashlib.blake2b(f"2 {source.kind}".encode(), digest_size=8)  # raise the 2 when the content changes
        for file in source.files:
            stat = file.stat()
            key.update(
                f"{str(file).removeprefix(str(root))} {stat.st_size} {stat.st_mtime_ns}\n".encode(errors="surrogateescape")
            )
    folder = os.path.expanduser(os.environ.get("FEDNB_CACHE") or ROOT / "data" / "cache")
    return source, Path(folder) / f"{facts.name}-{key.hexdigest()}.npz"


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


def _read_cache(path: Path) -> Content | None:
    """None if there is no cache or it is damaged in whatever way (zipfile checks the sums)."""
    try:
        with np.load(path, allow_pickle=False) as file:
            told = json.loads(str(file["told"]))
            told = {key: tuple(value) if isinstance(value, list) else value for key, value in told.items()}
            return Content(**{key: file[key] for key in file.files if key != "told"}, **told)
    except Exception:
        return None


def _write_cache(path: Path, content: Content) -> None:
    """Write under another name, then rename, so that nobody reads half a file. Failing is no error."""
    arrays = {key: value for key, value in content._asdict().items() if isinstance(value, np.ndarray)}
    told = {key: value for key, value in content._asdict().items() if isinstance(value, str | tuple)}
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(part, "wb") as file:
                np.savez(file, **arrays, told=np.array(json.dumps(told)))
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        print(f"fednb: no cache written in {path.parent} ({reason(error)})", file=sys.stderr)


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
