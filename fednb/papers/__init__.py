"""The methods, imported from the notebooks that derive them.

``from fednb.papers.foundations import FedProx`` executes the cells of ``notebooks/00_foundations.ipynb`` that
are tagged ``export``, and only those, as an ordinary module: tracebacks and ``inspect.getsource`` show the
notebook's own lines. The environment variable ``FEDNB_NOTEBOOKS`` names a folder of notebooks, a student's for instance,
that take the place of the project's of the same name.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import linecache
import os
import re
import sys
import traceback
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fednb import ROOT

if TYPE_CHECKING:
    from fednb.experiments.settings import Settings


class NotebookError(ImportError):
    """A notebook that cannot be found or read; the message says which and where."""


def folder() -> Path:
    """Where the notebooks are; where one works, if the package is installed without them."""
    project = ROOT / "notebooks"
    return Path(os.environ.get("FEDNB_NOTEBOOKS") or (project if project.exists() else Path.cwd()))


def notebooks() -> list[Path]:
    """The numbered notebooks: those of the folder, and the project's that have no namesake there."""
    return [p for p in _all() if p.stem[0].isdigit()]


def _all() -> list[Path]:
    places = tuple(dict.fromkeys((folder(), ROOT / "notebooks")))
    return list(_found(places, tuple(modified(place) for place in places)).values())


def path(name: str) -> Path:
    """The notebook called ``name``: ``01_moon``, ``moon``, ``01``, or the path of any."""
    given, near = Path(name), _all() if Path(name).name == name else []
    if given.suffix == ".ipynb" and given.is_file():
        return given
    stem = given.name.removesuffix(".ipynb")
    found = [p for p in near if stem in (p.stem, _short(p))]
    found = found or [p for p in near if stem.isdecimal() and p.stem.startswith(stem)]
    if len(found) != 1:
        known = ", ".join(p.stem for p in notebooks()) or "none"
        raise NotebookError(f"There is no notebook {name[:80]!r} in {folder()}; there are: {known}.")
    return found[0]


def name(notebook: str) -> str:
    """What a notebook is called here: its name without ``.ipynb``, or the path of one that is elsewhere."""
    file = path(notebook)
    return file.stem if _resolved(file) in map(_resolved, _all()) else str(_resolved(file))


def _short(notebook: Path) -> str:
    return re.sub(r"^\d+_", "", notebook.stem)


def modified(folder: Path) -> int:
    """When a folder's list of files was last changed, in nanoseconds; 0 if it is not there."""
    return folder.stat().st_mtime_ns if folder.exists() else 0


@functools.lru_cache(maxsize=4)  # a sweep file asks for its notebook several times per run
def _found(folders: tuple[Path, ...], times_ns: tuple[int, ...]) -> dict[str, Path]:
    """The notebooks of the first folder that has one of that name, by their short names and in their order."""
    found = [notebook for place in folders for notebook in sorted(place.glob("*.ipynb"))]
    return dict(sorted({_short(p): p for p in reversed(found)}.items(), key=lambda item: item[1].stem))


@functools.lru_cache(maxsize=64)
def _resolved(notebook: Path) -> Path:
    return notebook.resolve()


def load(name: str) -> ModuleType:
    """The module made of a notebook's ``export`` cells."""
    notebook = path(name)
    module_name = f"{__name__}.{_short(notebook)}"
    if _resolved(notebook) in map(_resolved, _all()):
        return importlib.import_module(module_name)
    # a notebook elsewhere must not be taken for its namesake in the folder
    spec = _spec(f"{module_name}_{zlib.crc32(str(notebook.resolve()).encode()):08x}", notebook)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def methods(name: str | None = None) -> dict[str, type]:
    """``METHODS``, the methods of a notebook by name; or of all numbered notebooks together.

    Raises
    ------
    NotebookError
        If its export cells fail, or do not define them.
    """
    if name is None:
        return {method: cls for path in notebooks() for method, cls in methods(path.stem).items()}
    try:
        found = getattr(load(name), "METHODS", None)
    except NotebookError:
        raise
    except (Exception, SystemExit) as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path(name))]
        where = f" in line {lines[-1]} of them" if lines else ""
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise NotebookError(f"The export cells of {path(name).name} fail{where} ({told[:200]}): mend them first.") from error
    if not isinstance(found, dict) or not all(isinstance(cls, type) for cls in found.values()):
        raise NotebookError(f'{path(name).name} must export METHODS, a dict of methods by name: METHODS = {{"Mine": Mine}}.')
    return found


def cells(notebook: Path, kind: str, tag: str | None = None) -> list[str]:
    """The sources of a notebook's cells of a kind (``code`` or ``markdown``), with a tag if one is given.

    Raises
    ------
    NotebookError
        If the file cannot be read as a notebook.
    """
    try:
        found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]  # nbformat is slow to import
        own = [c for c in found if c["cell_type"] == kind and (tag is None or tag in c["metadata"].get("tags", []))]
        return ["".join(c["source"]) for c in own]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotebookError(f"{notebook} cannot be read as a notebook: {error}") from error


def parameters(notebook: str) -> dict[str, Any]:
    """The names and values in the notebook's cell that is tagged ``parameters``, read without executing it."""
    file = path(notebook)
    return dict(_parameters(file, file.stat().st_mtime_ns))


@functools.lru_cache  # a table asks once per run
def _parameters(notebook: Path, time_ns: int) -> dict[str, Any]:
    found = cells(notebook, "code", "parameters")
    if len(found) != 1:
        raise NotebookError(
            f"The notebook {notebook.stem} has {len(found)} code cells tagged 'parameters'; it must have one."
        )
    try:
        return {target.id: ast.literal_eval(value) for target, value in _assignments(found[0])}
    except (SyntaxError, TypeError, ValueError, AttributeError) as error:
        raise NotebookError(
            f"The parameters cell of the notebook {notebook.stem} cannot be read: {error}. Its lines must be of the form "
            "name = value."
        ) from error


def _assignments(source: str) -> list[tuple[ast.Name, ast.expr]]:
    nodes = ast.parse(source).body
    return [(n.target if isinstance(n, ast.AnnAssign) else n.targets[0], n.value) for n in nodes]  # type: ignore[attr-defined]


def arrange(notebook: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as the notebook has them: what it has no name for goes into its ``more``.

    Raises
    ------
    NotebookError
        For a name that it does not have, if it has no ``more``.
    """
    own = parameters(notebook)
    other = {name: value for name, value in given.items() if name not in own}
    if not other:
        return dict(given)
    if "more" not in own:
        close = difflib.get_close_matches(next(iter(other)), own, 1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise NotebookError(
            f"The notebook {path(notebook).stem} has no parameter {next(iter(other))!r}: known are {', '.join(own)}{hint}"
        )
    mine = {name: value for name, value in given.items() if name in own}
    return mine | {"more": {**own["more"], **mine.get("more", {}), **other}}


def settings(notebook: str, namespace: Mapping[str, Any]) -> Settings:
    """The settings of a run of a notebook, from its parameters as they are now: ``papers.settings("01_moon", globals())``.

    Its own parameters are read by name, all others from the dict ``more``: ``{"num_rounds": 20}``.

    Raises
    ------
    SettingsError
        For a bad value, a name that the run would not read, or a parameter from outside that the notebook does not have.
    """
    from fednb.experiments.settings import SettingsError, resolve  # what notebooks ask for; nothing else here needs it

    own = parameters(notebook)
    for source in namespace.get("In", ()):  # IPython's list of executed cells; papermill warns, and goes on
        for target, value in _assignments(source) if source.startswith("# Parameters\n") else ():
            if target.id not in own:
                raise SettingsError(
                    f"The notebook {path(notebook).stem} has no parameter {target.id!r}: put it into more, as "
                    f"{{{target.id!r}: {ast.unparse(value)}}}, or use `python -m fednb run`, which does."
                )
    given = {name: namespace[name] for name in own}
    more = given.pop("more", {})
    if not isinstance(more, dict):
        raise SettingsError(f"more is {more!r}; it must be a dict of settings by name.")
    for name in more:
        if given.get(name) is not None:
            raise SettingsError(f"{name} is given twice, as a parameter and in more.")
    return resolve(methods(notebook) | namespace.get("METHODS", {}), **given | more)  # a reader may have changed one


class _Loader(importlib.abc.InspectLoader):
    def __init__(self, notebook: Path) -> None:
        self.notebook = notebook

    def get_source(self, fullname: str) -> str:
        return "\n\n".join(cells(self.notebook, "code", "export"))

    def exec_module(self, module: ModuleType) -> None:
        source, file = self.get_source(module.__name__), str(self.notebook)
        # without a time, linecache keeps these lines instead of reading the notebook's JSON as if it were Python
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)

    def is_package(self, fullname: str) -> bool:
        return False


def _spec(fullname: str, notebook: Path) -> importlib.machinery.ModuleSpec:
    spec = importlib.util.spec_from_loader(fullname, _Loader(notebook), origin=str(notebook))
    spec.has_location = True  # sets __file__, by which tracebacks and inspect find the source
    return spec


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path_: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        if package != __name__ or name.startswith("_"):
            return None
        try:
            return _spec(fullname, path(name))
        except NotebookError:
            return None


sys.meta_path.append(_Finder())
