"""Records that are read when they are asked for."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from fednb.records import Record, read


class LazyLedger(Mapping[Path, Record]):
    """The records of a folder, each read when it is first asked for: a notebook asks for few."""

    def __init__(self, folder: Path) -> None:
        self._paths = dict.fromkeys(sorted(folder.glob("*.json")))
        self._records: dict[Path, Record] = {}

    def __getitem__(self, path: Path) -> Record:
        if path not in self._paths:
            raise KeyError(path)
        if path not in self._records:
            self._records[path] = read(path)
        return self._records[path]

    def __contains__(self, path: object) -> bool:
        return path in self._paths  # without reading it

    def __iter__(self) -> Iterator[Path]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)
