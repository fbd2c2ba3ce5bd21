"""Which notebooks there are, and how their cells tagged ``export`` become modules.

Notebooks of the folder that ``FEDNB_NOTEBOOKS`` names take the place of the project's of the same
name. An ``import`` cannot be told a folder, so that this one is asked of the environment whenever a
notebook is looked for.
"""

import importlib
import importlib.abc
import importlib.util
import json
import linecache
import re
import sys
from contextlib import suppress
from dataclasses import is_dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

from fednb import ROOT
from fednb.errors import NotebookError
from fednb.places import Places

PACKAGE = "fednb.papers"  # in which notebooks are modules
PICTURES = f"{PACKAGE}.pictures"  # the code that draws for them, which lies beside them
_NUMBER = re.compile(r"^\d+_")  # with which the names of notebooks begin, but not those of modules
_elsewhere: dict[str, Path] = {}  # by module: notebooks that lie outside the two folders


def folder() -> Path:
    """Where the notebooks are; a `NotebookError` if there is no such folder."""
    notebooks = Places.from_environment().notebooks
    if not notebooks.is_dir():
        raise NotebookError(
            f"FEDNB_NOTEBOOKS names {notebooks}, where no folder is: make it, or unset the variable."
        )
    return notebooks


def notebooks(extras: bool = False) -> list[Path]:
    """The numbered notebooks, in the order of their numbers; on request those of ``extras`` too.

    They are those of `folder`, and the project's that have no namesake there.
    """
    return [
        file
        for file in _by_module().values()
        if file.stem[0].isdigit() or (extras and file.parent.name == "extras")
    ]


def _by_module() -> dict[str, Path]:
    """All notebooks of the two folders by the names of their modules, in their own order."""
    project = ROOT / "notebooks"
    files = [
        *project.glob("extras/*.ipynb"),
        *project.glob("*.ipynb"),
        *sorted(folder().glob("*.ipynb"), reverse=True),
    ]
    modules = {_NUMBER.sub("", file.stem): file for file in files}  # the last of a name stays
    return dict(sorted(modules.items(), key=lambda item: item[1].stem))


def path(name: str) -> Path:
    """The notebook called ``01_moon``, ``moon`` or ``01``, or at a path; else a `NotebookError`."""
    if name.endswith(".ipynb") and Path(name).is_file():
        return Path(name)
    stem = name.removesuffix(".ipynb")
    matching = [
        file
        for module, file in _by_module().items()
        if stem in (file.stem, module, file.stem.partition("_")[0])
    ]
    if len(matching) != 1:
        known = [file.stem for file in notebooks()]
        raise NotebookError(
            f"There is no notebook {name[:80]!r} in {folder()}; "
            f"there are: {', '.join(known) or 'none'}.",
            value=name,
            allowed=known,
        )
    return matching[0]


def name(notebook: str) -> str:
    """A notebook's name without ``.ipynb``, or the path of one that lies elsewhere."""
    file = path(notebook).resolve()
    known = [other.resolve() for other in _by_module().values()]
    return file.stem if file in known else str(file)


def cells(notebook: Path, kind: str, tag: str | None = None) -> list[str]:
    """The sources of a notebook's cells of a kind, ``code`` or ``markdown``, that have the tag.

    Without a tag they are all of that kind. A `NotebookError` if the file cannot be read.
    """
    try:
        content = json.loads(notebook.read_text(encoding="utf-8"))  # nbformat is slow to import
        of_kind = [cell for cell in content["cells"] if cell["cell_type"] == kind]
        return [
            "".join(cell["source"])
            for cell in of_kind
            if tag is None or tag in cell["metadata"].get("tags", [])
        ]
    except OSError as error:
        raise NotebookError(f"{notebook} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotebookError(
            f"{notebook} cannot be read as a notebook: restore it, or save it again in Jupyter."
        ) from error


def exported(notebook: Path) -> str:
    """The source of a notebook's module: its code cells tagged ``export``."""
    return "\n\n".join(cells(notebook, "code", "export"))


def load(notebook: str) -> ModuleType:
    """The module made of a notebook's ``export`` cells."""
    called = name(notebook)
    module = _NUMBER.sub("", called)
    if called.endswith(".ipynb"):  # it must not be taken for its namesake in the folder
        module = re.sub(r"\W", "_", f"at{called}")
        _elsewhere[module] = Path(called)
    return importlib.import_module(f"{PACKAGE}.{module}")


def methods(name: str | None = None) -> dict[str, type]:
    """``METHODS`` of a notebook, or of all numbered ones; a `NotebookError` if there are none."""
    if name is None:
        all_methods: dict[str, type] = {}
        for notebook in notebooks():
            all_methods |= methods(notebook.stem)
        return all_methods
    file = path(name)
    try:
        classes = getattr(load(name), "METHODS", None)
    except NotebookError:
        raise
    except (Exception, SystemExit) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise NotebookError(
            f"The export cells of {file.name} fail ({reason}): mend them first."
        ) from error
    if not are_methods(classes):
        raise NotebookError(
            f"{file.name} must export METHODS, a dict of methods by name: "
            'METHODS = {"Mine": Mine}.'
        )
    return classes


def are_methods(classes: object) -> TypeGuard[dict[str, type]]:
    """Whether this can be the ``METHODS`` of a notebook: dataclasses by their names."""
    if not isinstance(classes, dict):
        return False
    named = all(isinstance(name, str) for name in classes)
    return named and all(isinstance(cls, type) and is_dataclass(cls) for cls in classes.values())


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes modules of notebooks, whose lines tracebacks and ``inspect`` then show."""

    def find_spec(
        self, fullname: str, path_: object, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == PICTURES:
            drawing = ROOT / "notebooks" / "pictures"
            return importlib.util.spec_from_file_location(
                fullname,
                drawing / "__init__.py",
                submodule_search_locations=[str(drawing)],
            )
        package, _, module = fullname.rpartition(".")
        if package != PACKAGE or module.startswith("_"):
            return None
        with suppress(NotebookError):
            file = _elsewhere.get(module) or path(module)
            return importlib.util.spec_from_file_location(fullname, file, loader=self)
        return None

    def exec_module(self, module: ModuleType) -> None:
        file = str(module.__file__)
        source = exported(Path(file))
        # without a time, linecache keeps these lines instead of reading the notebook's JSON as if
        # it were Python
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)


sys.meta_path.append(_Finder())
