"""What is published about each data set (``catalog.yaml``), and where sets are looked for."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fednb import ROOT
from fednb.data.dataset import Augmentation, DataError

OWN_FOLDER = "folder:"  # how the name of a set begins that is somebody's own images


@dataclass(frozen=True)
class Facts:
    """What is published about a set, or was found out about one's own."""

    name: str
    title: str
    shape: tuple[int, int, int]  # C, H, W
    sizes: tuple[int, int] = (0, 0)  # training and test images
    at_most: bool = False  # these are bounds; the true sizes are unknown
    domains: Mapping[str, tuple[int, int] | None] = field(default_factory=dict)  # sizes of each; None: unknown
    num_classes: int = 0
    classes: tuple[str, ...] = ()  # where a tree must use the official names
    mean: tuple[float, ...] = ()  # empty: to be measured
    std: tuple[float, ...] = ()
    augmentation: Augmentation = field(default_factory=Augmentation)
    folders: tuple[str, ...] = ()  # one of which holds the official files
    files: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # other names that its folder, zip files and file of arrays may have
    page: str = ""  # for people who download by hand
    by_hand: str = ""  # what to get and where to put it, where no command can fetch it
    torchvision: tuple[Mapping[str, Any], ...] = ()  # options with which torchvision fetches and reads it, in its parts
    md5: str = ""  # of the archive that `page` is, where known
    fingerprint: str = ""  # of the complete set, where known
    test_split: str = "test"  # taken where a tree has both `test` and `val`
    first_label: int = 0  # from which the official labels count
    jpeg: bool = False  # so the images are published
    resized: bool = False  # images of any size are accepted, and brought to `shape`
    shorter_side: int | None = None  # of all published images, in pixels; None: it varies
    stand_in: str = ""  # for what; goes into the note of the data set
    remark: str = ""  # what has to be known of the complete set
    own: bool = False  # somebody's own, of which nothing is published


def _facts(name: str, told: dict[str, Any]) -> Facts:
    classes = tuple(told.get("classes", "").split())
    values = {"num_classes": len(classes)} | told | {"classes": classes}
    values["augmentation"] = Augmentation(**told.get("augmentation", {}))
    values["domains"] = {domain: sizes and tuple(sizes) for domain, sizes in told.get("domains", {}).items()}
    return Facts(name, **{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


_TOLD = yaml.safe_load(Path(__file__).with_name("catalog.yaml").read_text(encoding="utf-8"))
FACTS = {name: _facts(name, told) for name, told in _TOLD.items()}  # `register` adds to them
NAMES = tuple(FACTS)
EMBEDDED = ("digits", "digits5_mini")  # made of what is installed
DIGITS5 = ("mnist", "usps", "svhn", "synthdigits", "mnistm")  # the sets that make the domains of Digit-5, in their order


def data_folder(root: Path | str | None = None) -> Path:
    """Where sets are looked for: ``root``, $FEDNB_DATA, or `data/` of the repository."""
    return Path(os.path.abspath(os.path.expanduser(root or os.environ.get("FEDNB_DATA") or ROOT / "data")))


def facts_of(name: str, root: Path | str | None = None) -> Facts:
    """Look a set up by its name, or look into a folder of one's own; a `DataError` if there is none."""
    if str(name).startswith(OWN_FOLDER):
        from fednb.data.readers import own_folder  # which needs the facts

        return own_folder(name, data_folder(root))[0]
    if name not in FACTS:
        close = difflib.get_close_matches(str(name)[:40].lower(), FACTS, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise DataError(f"{str(name)[:40]!r} is not a known data set; known are {', '.join(FACTS)} and folder:PATH.{hint}")
    return FACTS[name]


def domain_names(name: str) -> tuple[str, ...]:
    """The domains of a data set in the order of its groups, without loading it; empty if it has none."""
    return tuple(facts_of(name).domains)


def num_images(name: str) -> int:
    """Training images of a set, as published or of one's own, without loading it."""
    facts = facts_of(name)
    return sum(sizes[0] for sizes in facts.domains.values() if sizes) or facts.sizes[0]
