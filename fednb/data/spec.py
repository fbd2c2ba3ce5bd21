"""What is published about each data set: ``spec.yaml``, as values."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fednb.data.dataset import Augmentation


@dataclass(frozen=True)
class DatasetSpec:
    """What is published about a data set, how the papers' code prepares it, and where it may lie.

    Of somebody's own images, what was found out about them stands here in the same form.
    """

    name: str
    title: str = ""  # for people
    shape: tuple[int, int, int] = (0, 0, 0)  # channels, height, width
    sizes: tuple[int, int] = (0, 0)  # training and test images; of domains their sums
    at_most: bool = False  # these are bounds; the true sizes are unknown
    classes: tuple[str, ...] = ()  # where a tree must use the official names
    num_classes: int = 0
    more_classes: bool = False  # a tree may have others, which are left out
    domains: dict[str, tuple[int, int] | None] = field(default_factory=dict)  # None: unknown sizes
    parts: tuple[str, ...] = ()  # the sets that make these domains, in their order

    # how it is prepared
    mean: tuple[float, ...] = ()  # per channel, of values scaled to [0, 1]; empty: to be measured
    std: tuple[float, ...] = ()
    augmentation: Augmentation = field(default_factory=Augmentation)
    resized: bool = False  # images of any size are accepted, and brought to `shape`

    # where it is
    folders: tuple[str, ...] = ()  # one of which holds the official files
    files: dict[str, str | None] = field(default_factory=dict)  # with the MD5 that each must have
    reader: str = ""  # of these files: idx, torchvision, listed or nist
    listed: tuple[str, ...] = ()  # the folder of the images of which each of these files is a list
    sideways: bool = False  # so the official images lie
    first_label: int = 0  # from which the official labels count
    test_split: str = "test"  # taken where a tree has both `test` and `val`
    also: tuple[str, ...] = ()  # other names of its folder, zip files and file of arrays

    # how one gets it
    torchvision: tuple[dict[str, Any], ...] = ()  # options with which torchvision reads its parts
    page: str = ""  # the archive, or the page for people who download by hand
    md5: str | None = None  # of the archive
    by_hand: str = ""  # what to get and where to put it, where no command can fetch it

    # what is said of it
    fingerprint: str = ""  # of the complete set, where known
    jpeg: bool = False  # so the images are published
    shorter_side: int | None = None  # of all published images, in pixels; None: it varies
    unlisted: str = ""  # the note without the official lists
    stand_in: str = ""  # for what; goes into the note of the data set
    remark: str = ""  # what has to be known of the complete set
    is_own: bool = False  # somebody's own, of which nothing is published

    @property
    def names(self) -> tuple[str, ...]:
        """What its folder, zip files and file of arrays may be called."""
        return (self.name, *self.also)


def _from_yaml(name: str, entry: dict[str, Any]) -> DatasetSpec:
    values: dict[str, Any] = {}
    for key, value in entry.items():
        values[key] = tuple(value) if isinstance(value, list) else value
    values["augmentation"] = Augmentation(**entry.get("augmentation", {}))
    if isinstance(entry.get("files"), list):
        values["files"] = dict.fromkeys(entry["files"])
    domains = entry.get("domains", {})
    known = {domain: tuple(sizes) for domain, sizes in domains.items() if sizes}
    values["domains"] = {domain: known.get(domain) for domain in domains}
    if known:
        values["sizes"] = tuple(sum(split) for split in zip(*known.values(), strict=True))
    values.setdefault("num_classes", len(entry.get("classes", ())))
    return DatasetSpec(name, **values)


_ENTRIES = yaml.safe_load(Path(__file__).with_name("spec.yaml").read_text(encoding="utf-8"))
SPECS = {name: _from_yaml(name, entry) for name, entry in _ENTRIES.items()}
NAMES = tuple(SPECS)
EMBEDDED = ("digits", "digits5_mini")  # made of what is installed
