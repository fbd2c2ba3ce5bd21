"""What was read of a set beside what is published about it, and the `Dataset` that says so."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fednb.data.dataset import Dataset, RawDataset
from fednb.data.spec import DatasetSpec
from fednb.errors import DataError


class SplitSize(NamedTuple):
    """How many images of a split of a domain were found, and how many are published."""

    domain: str  # "" where there are none
    split: str  # "training" or "test"
    found: int
    published: int


def split_sizes(spec: DatasetSpec, raw: RawDataset) -> list[SplitSize]:
    """Of each domain both splits, where sizes are published; a `DataError` if more was found."""
    if spec.is_own:
        return []
    sizes = []
    for group, (domain, published) in enumerate((spec.domains or {"": spec.sizes}).items()):
        if published is not None:
            train = int((raw.train_groups == group).sum())
            test = int((raw.test_groups == group).sum())
            sizes.append(SplitSize(domain, "training", train, published[0]))
            sizes.append(SplitSize(domain, "test", test, published[1]))
    for size in sizes:
        if size.found > size.published:
            images = f"{size.split} images in {size.domain}".removesuffix(" in ")
            raise DataError(
                f"{spec.title} has {size.published:,} {images}, but {size.found:,} were found; "
                "remove the others."
            )
    return sizes


def is_complete(spec: DatasetSpec, raw: RawDataset) -> bool:
    """Whether all published images and classes were found, as far as their numbers are known."""
    missing = [size for size in split_sizes(spec, raw) if size.found < size.published]
    return spec.at_most or not (missing or len(raw.classes) != spec.num_classes)


def notes_on(spec: DatasetSpec, raw: RawDataset) -> list[str]:
    """What is not as published, in words."""
    missing = _missing_in_words(spec, split_sizes(spec, raw))
    subset = [] if spec.at_most else list(missing)
    if len(raw.classes) != spec.num_classes:
        subset.append(f"{len(raw.classes)} of {spec.num_classes} classes")
    notes = list(raw.notes)
    if subset:
        notes.insert(0, f"subset: {', '.join(subset)}")
    elif not notes and spec.fingerprint not in ("", raw.fingerprint):
        notes.append("images or labels differ from the published ones")
    if spec.at_most and missing:
        notes.append(", ".join(missing))
    return notes


def _missing_in_words(spec: DatasetSpec, sizes: Sequence[SplitSize]) -> list[str]:
    """Such as "20 of 50,000 training images"; of a domain that lacks some both splits."""
    bound = "at most " if spec.at_most else ""
    words = []
    for train, test in zip(sizes[::2], sizes[1::2], strict=True):
        missing = [size for size in (train, test) if size.found < size.published]
        if not train.domain:
            words += [f"{s.found:,} of {bound}{s.published:,} {s.split} images" for s in missing]
        elif missing:
            both = [f"{s.found:,} of {s.published:,} {s.split}" for s in (train, test)]
            words.append(f"{train.domain} {' and '.join(both)} images")
    return words


def as_dataset(spec: DatasetSpec, raw: RawDataset, layout: str) -> Dataset:
    """The set as tensors, with what is to be said of it; a `DataError` if images are too many."""
    import torch  # slow, and not every command needs it

    has_domains = bool(spec.domains)
    images = torch.from_numpy(raw.images)
    mean, std = spec.mean, spec.std
    if spec.is_own:
        counts = [channel.flatten().bincount(minlength=256).numpy() for channel in images.unbind(1)]
        mean, std = zip(*map(_mean_and_std, counts), strict=True)
    notes = [*notes_on(spec, raw), spec.stand_in]
    remarks = [spec.remark, *raw.remarks]
    return Dataset(
        spec.name,
        images=images,
        labels=torch.from_numpy(raw.labels),
        test_images=torch.from_numpy(raw.test_images),
        test_labels=torch.from_numpy(raw.test_labels),
        classes=tuple(raw.classes),
        mean=mean,
        std=std,
        augmentation=spec.augmentation,
        fingerprint=raw.fingerprint,
        source=layout,
        note="; ".join(note for note in notes if note),
        remark="; ".join(remark for remark in remarks if remark),
        train_groups=torch.from_numpy(raw.train_groups) if has_domains else None,
        test_groups=torch.from_numpy(raw.test_groups) if has_domains else None,
        group_names=tuple(spec.domains),
    )


def _mean_and_std(counts: np.ndarray) -> tuple[float, float]:
    """Of bytes scaled to [0, 1], by how often each occurs; the latter not 0, since it divides."""
    shades = np.arange(256) / 255
    mean = float(np.average(shades, weights=counts))
    variance = float(np.average((shades - mean) ** 2, weights=counts))
    return round(mean, 4), max(round(variance**0.5, 4), 1e-3)
