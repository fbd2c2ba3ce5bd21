"""What is published about each data set (``catalog.yaml``), and where sets are looked for."""

import functools
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from fednb import home
from fednb.errors import DataError, require_known

_TOLD = yaml.safe_load(Path(__file__).with_name("catalog.yaml").read_text(encoding="utf-8"))
_DEFAULTS = _TOLD.pop("defaults")


class Facts(SimpleNamespace):
    """What is published about a set, or was found out about one's own: the fields that ``catalog.yaml`` begins with."""

    def __init__(self, name: str, **told: Any) -> None:
        super().__init__(**{"name": name} | _DEFAULTS | told)
        self.num_classes = self.num_classes or len(self.classes)
        if known := list(filter(None, self.domains.values())):
            self.sizes = [sum(split) for split in zip(*known, strict=True)]


FACTS = {name: Facts(name, **told) for name, told in _TOLD.items()}  # `register` adds to them
NAMES = tuple(FACTS)
EMBEDDED = ("digits", "digits5_mini")  # made of what is installed
OWN_FOLDER = "folder:"  # how the name of a set begins that is somebody's own images


def data_folder(root: Path | str | None = None) -> Path:
    """Where sets are looked for: ``root``, $FEDNB_DATA, or `data/` of the repository or, without one, where one works."""
    return Path(
        os.path.abspath(os.path.expanduser(root or os.environ.get("FEDNB_DATA") or home() / "data"))
    )


def cache_folder() -> Path:
    """Where decoded sets are kept: $FEDNB_CACHE, or `data/cache` of the repository or, without one, where one works."""
    return Path(
        os.path.abspath(
            os.path.expanduser(os.environ.get("FEDNB_CACHE") or home() / "data" / "cache")
        )
    )


def own_place(name: str, root: Path | None = None) -> tuple[Path, str]:
    """Where ``folder:PATH`` lies, seen from the folder of the sets or else from where one works; and what follows PATH."""
    path, rest = re.fullmatch(
        r"folder:(.*?)((?:@[0-9]{1,4})?(?:#[0-9a-f]{8})?)", name, re.DOTALL
    ).groups()
    there, here = (
        folder / os.path.expanduser(path) for folder in (root or data_folder(), Path.cwd())
    )
    return here if here.exists() and not there.exists() else there, rest


def whole_name(name: str) -> str:
    """A set's name as it is understood from any folder: the PATH of one's own images is absolute."""
    if not str(name).startswith(OWN_FOLDER):
        return name
    place, rest = own_place(name)
    return f"{OWN_FOLDER}{place}{rest}"


def facts_of(name: str, root: Path | str | None = None) -> Facts:
    """Look a set up by its name, or look into a folder of one's own; a `DataError` if there is none."""
    if str(name).startswith(OWN_FOLDER):
        from fednb.data.readers import own_folder  # which needs the facts

        return own_folder(name, data_folder(root))[0]
    require_known("There is no data set", name, [*FACTS, "folder:PATH"], DataError)
    return FACTS[name]


def recorded_name(name: str) -> str:
    """How records call a set; one's own folder by the end of its path and by its fingerprint, wherever it lies."""
    return _own_name(whole_name(name)) if str(name).startswith(OWN_FOLDER) else name


@functools.cache
def _own_name(name: str) -> str:  # a whole one: where one works may change
    from fednb.data.loading import load  # slow to import

    found = load(name)
    return f"{found.name}#{found.fingerprint[:8]}"
