"""Where things lie: notebooks, run records, data sets, their cache.

The functions that need a place take a `Places`; a command, or a call from a notebook, makes one
from the environment as it begins. What a child process is to use is written into its environment by
`Places.environment`, never into our own.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fednb import ROOT, home


@dataclass(frozen=True)
class Places:
    """Absolute folders, whether they exist or not."""

    notebooks: Path  # one's own notebooks, which take the place of the project's of the same name
    runs: Path  # run records
    data: Path  # data sets
    cache: Path  # decoded data sets

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Places":
        """The folders of ``FEDNB_NOTEBOOKS``, ``FEDNB_RUNS``, ``FEDNB_DATA`` and ``FEDNB_CACHE``.

        Records of one's own notebooks lie beside these, unless ``FEDNB_RUNS`` is set: a record does
        not say whose code made it.
        """

        def named(variable: str, default: Path) -> Path:
            return absolute(environment.get(variable) or default)

        own = environment.get("FEDNB_NOTEBOOKS")
        results = (Path(own) if own else home()) / "results"
        return cls(
            notebooks=named("FEDNB_NOTEBOOKS", ROOT / "notebooks"),
            runs=named("FEDNB_RUNS", results / "runs"),
            data=named("FEDNB_DATA", home() / "data"),
            cache=named("FEDNB_CACHE", home() / "data" / "cache"),
        )

    def environment(self) -> dict[str, str]:
        """The variables that let a child process find the same places."""
        return {f"FEDNB_{name.upper()}": str(folder) for name, folder in vars(self).items()}


def absolute(path: Path | str) -> Path:
    """The path as any folder sees it; the ``~`` of somebody who has no home stays as it is."""
    return Path(os.path.abspath(os.path.expanduser(path)))
