"""The methods, imported from the notebooks that derive them, and the parameters of notebooks.

``from fednb.papers.foundations import FedProx`` executes the cells of
``notebooks/00_foundations.ipynb`` that are tagged ``export``, and only those, as a module:
tracebacks and ``inspect.getsource`` show the notebook's own lines. Elsewhere a notebook is named by
its path, and its module has a name of its own.
"""

import ast
import importlib
import importlib.abc
import importlib.util
import linecache
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from fednb import ROOT, models
from fednb.errors import NotebookError, SettingsError
from fednb.notebooks import (
    NUMBER,
    by_module,
    cells,
    executed,
    exported,
    folder,
    name,
    notebooks,
    path,
)
from fednb.settings import Settings, resolve

__all__ = ["cells", "exported", "folder", "load", "methods", "name", "notebooks", "parameters"]
__all__ += ["importing_from", "networks", "path", "settings"]

# This module is a package, too: of the modules that notebooks are, and of `pictures`, the code that
# draws for them and lies beside them.
__path__ = [str(ROOT / "notebooks")]
_elsewhere: dict[str, Path] = {}  # by module: notebooks that are none of the project's
# by file, and by name: what its import has added
_networks: dict[str, dict[str, models.Model]] = {}


# ---- methods, from a notebook as a module


def load(notebook: str) -> ModuleType:
    """Import the ``export`` cells of a notebook as a module."""
    called = name(notebook)
    module = NUMBER.sub("", called)
    if called.endswith(".ipynb"):  # it must not be taken for its namesake among the project's
        module = re.sub(r"\W", "_", f"at{called}")
        _elsewhere[module] = Path(called)
    return importlib.import_module(f"{__name__}.{module}")


def methods(notebook: str | None = None) -> dict[str, type]:
    """Return ``METHODS`` of a notebook, or of all numbered ones; else a `NotebookError`."""
    if notebook is None:
        all_methods: dict[str, type] = {}
        for file in notebooks():
            all_methods |= methods(file.stem)
        return all_methods
    file = path(notebook)
    try:
        classes: Any = getattr(load(notebook), "METHODS", None)
    except NotebookError:
        raise
    except (Exception, SystemExit) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise NotebookError(
            f"The export cells of {file.name} fail ({reason}): mend them first."
        ) from error
    found = classes.values() if isinstance(classes, dict) else [None]
    if not all(isinstance(one, type) and is_dataclass(one) for one in found):
        raise NotebookError(
            f"{file.name} must export METHODS, a dict of methods by name: "
            'METHODS = {"Mine": Mine}.'
        )
    return classes


def networks(notebook: str) -> dict[str, models.Model]:
    """Return the networks that a notebook adds to `fednb.models.MODELS`, by name."""
    return _networks[str(load(notebook).__file__)]


# ---- the import of a notebook as a module


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes modules of notebooks, whose lines tracebacks and ``inspect`` then show."""

    def find_spec(
        self, fullname: str, path_: object, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, module = fullname.rpartition(".")
        if package != __name__ or module.startswith("_") or module in _TAKEN:
            return None
        file = _elsewhere.get(module) or by_module().get(module)
        if file is None:
            return None
        return importlib.util.spec_from_file_location(fullname, file, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        file = str(module.__file__)
        source = exported(Path(file))
        # without a time, linecache keeps these lines instead of reading the notebook's JSON as if
        # it were Python
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        before = dict(models.MODELS)
        with importing_from(Path(file).parent):
            exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
        added = {
            name: model for name, model in models.MODELS.items() if before.get(name) is not model
        }
        _networks[file] = added


@contextmanager
def importing_from(folder: Path) -> Iterator[None]:
    """Let modules beside a notebook be imported, as in JupyterLab.

    They are forgotten afterwards: another notebook may have a namesake beside it.
    """
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).parent == folder and not name.startswith(f"{__name__}."):
                del sys.modules[name]


# ---- parameters


def parameters(notebook: str) -> dict[str, Any]:
    """Read names and values from the cell tagged ``parameters``, which is not executed.

    A `NotebookError` unless there is one such cell, of lines ``name = value``.
    """
    values = {}
    try:
        (source,) = cells(path(notebook), "code", "parameters")
        statements: list[Any] = ast.parse(source).body  # others than assignments fail below
        for statement in statements:
            is_annotated = isinstance(statement, ast.AnnAssign)
            target = statement.target if is_annotated else statement.targets[0]
            values[target.id] = ast.literal_eval(statement.value)
        if not isinstance(values.get("more", {}), dict):
            raise TypeError("more must be a dict")
    except (SyntaxError, TypeError, ValueError, AttributeError) as error:
        raise NotebookError(
            f"The parameters of {path(notebook).stem} cannot be read: one of its cells must be "
            f"tagged parameters, and have lines of the form name = value ({error})."
        ) from error
    return values


def settings(notebook: str, namespace: Mapping[str, Any]) -> Settings:
    """Return the settings of a run of a notebook: ``papers.settings("01_moon", globals())``.

    Whatever the name says, they are those of the notebook that is being executed, where Jupyter or
    ``fednb run`` tells which that is: a copy keeps its parameters under any name. All that are not
    its own are in its dict ``more``. Its ``METHODS`` are those of the namespace, as a reader may
    have changed one. A `SettingsError` tells of a bad value, or a name that nobody reads.
    """
    notebook = executed(namespace) or notebook
    known = namespace.get("METHODS") or methods(notebook)
    return resolve(known, **_parameters_in(notebook, namespace))


def _parameters_in(notebook: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a notebook as they are now in its namespace, with ``more`` in one level."""
    named = parameters(notebook)
    stem = path(notebook).stem
    for one in _injected(namespace):
        if one not in named:
            message = f"{stem} has no parameter {one!r}: put it into more, or use fednb run."
            raise SettingsError(message)
    for one in named:
        if one not in namespace:
            raise NotebookError(
                f"{stem} has a parameter {one!r}, which is not set here: execute the cell of the "
                "parameters, or, in a copy of that notebook, give papers.settings the copy's path.",
            )
    values = {name: namespace[name] for name in named}
    more = values.pop("more", {})
    if not isinstance(more, dict) or any(values.get(name) is not None for name in more):
        raise SettingsError(
            f"more is {more!r}; it must be a dict of settings, "
            "but of none that is a parameter by itself.",
        )
    return values | more


def _injected(namespace: Mapping[str, Any]) -> list[str]:
    """The names that papermill has set in a cell of its own, by IPython's list of cells."""
    names = []
    for source in namespace.get("In", ()):
        if source.startswith("# Parameters\n"):  # papermill warns of unknown ones, and goes on
            names += re.findall(r"^(\w+) = ", source, re.MULTILINE)
    return names


_TAKEN = frozenset(globals())  # names that a notebook's module would take the place of
sys.meta_path.insert(0, _Finder())  # before whatever else is called so beside the notebooks
