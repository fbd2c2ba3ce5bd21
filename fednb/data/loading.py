"""Loading: find a set, read it once, keep it decoded in a cache, and say what is not as published; downloads."""

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

_TORCHVISION = {  # its class, and the options of each call
    "mnist": ("MNIST", {}),
    "cifar10": ("CIFAR10", {}),
    "cifar100": ("CIFAR100", {}),
    "emnist_letters": ("EMNIST", {"split": "letters"}),
    "usps": ("USPS", {"train": True}, {"train": False}),
    "svhn": ("SVHN", {"split": "train"}, {"split": "test"}),
}


def load(name: str, root: Path | str | None = None) -> Dataset:
    """Load a data set.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    root : path, optional
        Folder that holds the sets; $FEDNB_DATA if not given, or else `data/` of the repository.

    Raises
    ------
    DataError
        If the set is unknown, missing, damaged, or not of the published size.
    """
    facts = facts_of(name)
    content, kind = _load(facts, _root(root))
    arrays = {key: torch.from_numpy(value) for key, value in content._asdict().items() if isinstance(value, np.ndarray)}
    stand_ins = [facts.stand_in] if facts.stand_in else []
    if facts.at_most:
        fewer = [f"{n:,} of at most {m:,} {what}" for n, m, what in _counts(facts, content)[:2] if n < m]
        stand_ins += [", ".join(fewer)] if fewer else []
    return Dataset(
        name,
        **arrays,
        classes=content.classes,
        mean=facts.mean,
        std=facts.std,
        augmentation=facts.augmentation,
        fingerprint=content.fingerprint,
        source=kind,
        note="; ".join([*_departures(facts, content), *stand_ins]),
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
    """Fetch the official files of a set into `root` (see `load`), unless the complete set is already there.

    Raises
    ------
    DataError
        If the download fails; the message says how to do it by hand.
    """
    facts, folder = facts_of(name), _root(root)
    if name in EMBEDDED:
        print(f"{name} comes with scikit-learn and matplotlib; nothing to download.")
        return
    for part in ("mnist", "usps", "svhn") if name == "digits5" else ():
        download(part, folder)
    try:
        complete = bool(facts.domains or facts.by_hand) or not _departures(facts, _load(facts, folder)[0])
    except DataError:  # missing or damaged: fetch it
        complete = False
    if not complete:
        from torchvision import datasets  # slow to import

        try:
            folder.mkdir(parents=True, exist_ok=True)
            if facts.page.endswith(".zip"):
                archive = {"md5": facts.md5 or None, "remove_finished": True}
                datasets.utils.download_and_extract_archive(facts.page, str(folder), **archive)
            else:
                kind, *calls = _TORCHVISION[name]
                place = folder / name if name in ("usps", "svhn") else folder
                for options in calls:
                    getattr(datasets, kind)(str(place), download=True, **options)
        except Exception as error:  # network, disk, archive: torchvision lets many kinds through
            raise DataError(
                f"{facts.title} could not be downloaded ({reason(error)}): try again later, or fetch it by "
                f"hand from {facts.page} and unpack it so that {folder / facts.folders[0]} exists."
            ) from error
    print(load(name, folder))  # or what to do by hand


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


# From the files or from the cache


def _root(root: Path | str | None) -> Path:
    given = Path(root or os.environ.get("FEDNB_DATA") or ROOT / "data")
    try:
        return given.expanduser().absolute()
    except RuntimeError as error:  # ~ of nobody
        raise DataError(
            f"{given} is no folder ({reason(error)}); set FEDNB_DATA to the folder that holds the data sets."
        ) from error


def _load(facts: Facts, root: Path) -> tuple[Content, str]:
    """The content of a set and the kind of its source."""
    if facts.name in EMBEDDED:
        return _checked(facts, synthetic.digits() if facts.name == "digits" else synthetic.embedded()), "embedded"
    source, cache = _find(facts, root)
    content = _read_cache(cache)
    if content is None:
        with _explained(facts, root):
            content = _checked(facts, source.read())
        _write_cache(cache, content)
    return content, source.kind


def _find(facts: Facts, root: Path) -> tuple[Source, Path]:
    """Where a set is, and its file in the cache, whose name changes with the name, size or time of any source file."""
    with _explained(facts, root):
        if facts.name == "digits5":
            parts = [_find(FACTS[part], root)[0] for part in DIGITS5]
            kind = parts[0].kind if len({part.kind for part in parts}) == 1 else "several"
            source = Source(kind, [file for part in parts for file in part.files], lambda: _digits5(root))
        elif not (source := find(facts, root)):
            if facts.name != "synthdigits":
                raise _missing(facts, root)
            source = Source("rendered", [Path(synthetic.__file__)], synthetic.synthdigits)  # anew when that changes
        key = hashlib.blake2b(f"2 {source.kind}".encode(), digest_size=8)  # raise the 2 when the content changes
        for file in source.files:
            stat = file.stat()
            key.update(f"{str(file).removeprefix(str(root))} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    folder = Path(os.environ.get("FEDNB_CACHE") or ROOT / "data" / "cache").expanduser()
    return source, folder / f"{facts.name}-{key.hexdigest()}.npz"


def _missing(facts: Facts, root: Path) -> DataError:
    """Say where a set was looked for, and how to get it."""
    name, fix = facts.name, facts.by_hand or f"get it with `python -m fednb data {facts.name}`"
    tree, official, arrays = ("DOMAIN", "", "") if facts.domains else ("train", f"{facts.folders[0]}/, ", f", {name}.npz")
    return DataError(
        f"{facts.title} was not found: looked for {official}{name}/{tree}/CLASS/*.jpg, {name}/*.zip, {name}*.zip{arrays} in "
        f"{root}; {fix}, or set FEDNB_DATA to the folder that holds it."
    )


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
            meta = json.loads(str(file["meta"]))
            told = {key: tuple(value) if isinstance(value, list) else value for key, value in meta.items()}
            return Content(**{key: file[key] for key in file.files if key != "meta"}, **told)
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
                np.savez(file, **arrays, meta=np.array(json.dumps(told)))
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        print(f"fednb: no cache written in {path.parent} ({reason(error)})", file=sys.stderr)


# Digit-5


def _digits5(root: Path) -> Content:
    """Five sets of digits, each image resized to 32x32 and grey repeated to three channels, as in RethinkFL."""
    facts = FACTS["digits5"]
    parts = [_load(FACTS[part], root)[0] for part in DIGITS5]
    sizes = [[len(part.labels) for part in parts], [len(part.test_labels) for part in parts]]
    return Content(
        np.concatenate([_as_rgb(part.images, facts.shape[1]) for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([_as_rgb(part.test_images, facts.shape[1]) for part in parts]),
        np.concatenate([part.test_labels for part in parts]),
        facts.classes,
        *(np.repeat(np.arange(len(parts)), size) for size in sizes),
        notes=tuple(f"{domain}: {note}" for domain, part in zip(facts.domains, parts, strict=True) for note in part.notes),
    )


def _as_rgb(images: np.ndarray, side: int) -> np.ndarray:
    """Bring uint8 [N, C, H, W] to [N, 3, side, side], bilinearly as torchvision's Resize does."""
    if images.shape[-2:] != (side, side):
        resized = np.empty((*images.shape[:2], side, side), np.uint8)
        for i, channel in np.ndindex(*images.shape[:2]):
            resized[i, channel] = Image.fromarray(images[i, channel]).resize((side, side), Image.Resampling.BILINEAR)
        images = resized
    return np.broadcast_to(images, (len(images), 3, side, side))


# Against what was published


def _counts(facts: Facts, content: Content) -> list[tuple[int, int, str]]:
    """What was found, what was published, and of what."""
    if not facts.domains:
        found = (len(content.labels), len(content.test_labels), len(content.classes))
        return list(
            zip(found, (*facts.sizes, facts.num_classes), ("training images", "test images", "classes"), strict=True)
        )
    return [
        (int((groups == g).sum()), published, f"{split} images in {domain}")
        for g, (domain, sizes) in enumerate(facts.domains.items())
        if sizes
        for groups, published, split in zip(content[5:7], sizes, ("training", "test"), strict=True)
    ]


def _checked(facts: Facts, content: Content) -> Content:
    """Refuse more than was published; add the fingerprint."""
    for found, published, what in _counts(facts, content):
        if found > published:
            raise DataError(f"{facts.title} has {published:,} {what}, but {found:,} were found; remove the others.")
    x, y, x_test, y_test = content[:4]
    if facts.domains:  # with an image in another domain it is another set
        y, y_test = y + facts.num_classes * content.train_groups, y_test + facts.num_classes * content.test_groups
    return content._replace(fingerprint=fingerprint(x, y, x_test, y_test))


def _departures(facts: Facts, content: Content) -> list[str]:
    """Say what is not as published: fewer images or classes, other images, and what the files tell."""
    counts = _counts(facts, content)
    fewer = [f"{n:,} of {m:,} {what}" for n, m, what in counts if n < m and (not facts.at_most or what == "classes")]
    if facts.domains:  # in pairs of training and test images
        fewer = [
            f"{what.partition(' in ')[2]} {n:,} of {m:,} training and {n_test:,} of {m_test:,} test images"
            for (n, m, what), (n_test, m_test, _) in zip(counts[::2], counts[1::2], strict=True)
            if n < m or n_test < m_test
        ]
    notes = [f"subset: {', '.join(fewer)}"] if fewer else []
    if not fewer and not content.notes and facts.fingerprint not in ("", content.fingerprint):
        notes.append("images or labels differ from the published ones")
    return [*notes, *content.notes]
