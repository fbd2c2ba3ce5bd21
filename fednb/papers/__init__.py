"""The methods, imported from the notebooks that derive them.

``from fednb.papers.foundations import FedProx`` executes the cells of ``notebooks/00_foundations.ipynb`` that are tagged
``export``, and only those, as a module: tracebacks and ``inspect.getsource`` show the notebook's own lines. Notebooks of the
folder that the environment variable ``FEDNB_NOTEBOOKS`` names take the place of those of the same name.
"""

import ast
import functools
import importlib.abc
import importlib.util
import json
import linecache
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fednb import ROOT, hyperparameters
from fednb.errors import NotebookError
from fednb.hyperparameters import check_fields

if TYPE_CHECKING:
    from fednb.experiments.settings import Settings

_ELSEWHERE: dict[str, Path] = {}  # modules of notebooks that are not in the folders


def folder() -> Path:
    """Where the notebooks are."""
    return Path(os.environ.get("FEDNB_NOTEBOOKS") or ROOT / "notebooks").expanduser().absolute()


def notebooks(extras: bool = False) -> list[Path]:
    """The numbered notebooks: the folder's, and the project's that have no namesake there; on request the ``extras`` too."""
    return [
        file
        for file in _known().values()
        if file.stem[0].isdigit() or (extras and file.parent.name == "extras")
    ]


def _known() -> dict[str, Path]:
    """All notebooks that have a name here, by the names of their modules."""
    own = ROOT / "notebooks"
    found = [
        *own.glob("extras/*.ipynb"),
        *own.glob("*.ipynb"),
        *sorted(folder().glob("*.ipynb"), reverse=True),
    ]
    modules = {re.sub(r"^\d+_", "", file.stem): file for file in found}
    return dict(sorted(modules.items(), key=lambda known: known[1].stem))


def path(name: str) -> Path:
    """The notebook called ``name``: ``01_moon``, ``moon``, ``01``, or the path of any."""
    if name.endswith(".ipynb") and Path(name).is_file():
        return Path(name)
    stem = name.removesuffix(".ipynb")
    found = [
        file
        for module, file in _known().items()
        if stem in (file.stem, module, file.stem.partition("_")[0])
    ]
    if len(found) != 1:
        known = ", ".join(file.stem for file in notebooks()) or "none"
        raise NotebookError(
            f"There is no notebook {name[:80]!r} in {folder()}; there are: {known}."
        )
    return found[0]


def name(notebook: str) -> str:
    """What a notebook is called here: its name without ``.ipynb``, or the path of one that is elsewhere."""
    file = path(notebook).resolve()
    return file.stem if file in map(Path.resolve, _known().values()) else str(file)


def load(notebook: str) -> ModuleType:
    """The module made of a notebook's ``export`` cells."""
    called = name(notebook)
    module = re.sub(r"^\d+_", "", called)
    if called.endswith(".ipynb"):  # it must not be taken for its namesake in the folder
        module = re.sub(r"\W", "_", f"at{called}")
        _ELSEWHERE[module] = Path(called)
    return importlib.import_module(f"{__name__}.{module}")


def methods(name: str | None = None) -> dict[str, type]:
    """``METHODS``, the methods of a notebook or of all numbered ones; a `NotebookError` if one does not define them."""
    if name is None:
        return {method: cls for file in notebooks() for method, cls in methods(file.stem).items()}
    file = path(name)
    try:
        found = getattr(load(name), "METHODS", None)
    except NotebookError:
        raise
    except (Exception, SystemExit) as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise NotebookError(
            f"The export cells of {file.name} fail ({told}): mend them first."
        ) from error
    if not isinstance(found, dict) or not all(isinstance(cls, type) for cls in found.values()):
        raise NotebookError(
            f'{file.name} must export METHODS, a dict of methods by name: METHODS = {{"Mine": Mine}}.'
        )
    return found


def outline(notebook: str) -> dict[str, type]:
    """`methods` without PyTorch, slow to import: where they can be read, classes of hyperparameters and nothing else."""
    with suppress(Exception, SystemExit):
        found = _outline(_exported(path(notebook)))["METHODS"]
        if all(isinstance(cls, type) for cls in found.values()):
            return found
    return methods(notebook)


@functools.lru_cache
def _outline(source: str) -> dict[str, Any]:
    """What export cells define, without functions and without other libraries."""
    space: dict[str, Any] = {"__name__": __name__}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom):
            package, _, short = str(node.module).rpartition(".")
            known = (
                _outline(_exported(path(short))) if package == __name__ else vars(hyperparameters)
            )
            if str(node.module).partition(".")[0] in sys.stdlib_module_names:
                known = vars(importlib.import_module(str(node.module)))
            for alias in (
                node.names
            ):  # in place of a class that is not known: a method without hyperparameters
                stand_in = dataclass(type(alias.name, (), {"__post_init__": check_fields}))
                space[alias.asname or alias.name] = known.get(alias.name, stand_in)
        elif isinstance(node, ast.ClassDef):
            kept = [
                n
                for n in node.body
                if isinstance(n, ast.AnnAssign) or getattr(n, "name", "") == "__post_init__"
            ]
            node.body = kept or [ast.Pass(lineno=node.lineno, col_offset=0)]
        if isinstance(node, ast.ClassDef | ast.Assign | ast.AugAssign):
            exec(compile(ast.Module([node], []), "<outline>", "exec", dont_inherit=True), space)
        elif not isinstance(
            node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AnnAssign | ast.Expr
        ):
            raise ValueError("loops and branches can only be executed")
    return space


def cells(notebook: Path, kind: str, tag: str | None = None) -> list[str]:
    """The sources of a notebook's cells of a kind (``code`` or ``markdown``), with a tag if one is given."""
    try:
        found = json.loads(notebook.read_text(encoding="utf-8"))[
            "cells"
        ]  # nbformat is slow to import
        told = [
            (cell["cell_type"], cell["metadata"].get("tags", []), "".join(cell["source"]))
            for cell in found
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotebookError(f"{notebook} cannot be read as a notebook: {error}") from error
    return [
        source for of_kind, tags, source in told if of_kind == kind and (tag is None or tag in tags)
    ]


def _exported(notebook: Path) -> str:
    return "\n\n".join(cells(notebook, "code", "export"))


def parameters(notebook: str) -> dict[str, Any]:
    """The names and values in the notebook's cell that is tagged ``parameters``, read without executing it."""
    try:
        (source,) = cells(path(notebook), "code", "parameters")
        nodes: list[Any] = ast.parse(source).body
        return {
            (n.target if isinstance(n, ast.AnnAssign) else n.targets[0]).id: ast.literal_eval(
                n.value
            )
            for n in nodes
        }
    except (SyntaxError, TypeError, ValueError, AttributeError) as error:
        told = "one of its cells must be tagged parameters, and have lines of the form name = value"
        raise NotebookError(
            f"The parameters of {path(notebook).stem} cannot be read: {told} ({error})."
        ) from error


def arrange(notebook: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as the notebook has them: what it has no name for goes into its ``more``, if it has one."""
    own = parameters(notebook)
    mine = {name: value for name, value in given.items() if name in own}
    other = {name: value for name, value in given.items() if name not in own}
    if other and "more" not in own:
        raise NotebookError(
            f"{path(notebook).stem} has no parameter {next(iter(other))!r}: known are {', '.join(own)}."
        )
    return mine | {"more": {**own["more"], **mine.get("more", {}), **other}} if other else mine


def settings(notebook: str, namespace: Mapping[str, Any]) -> "Settings":
    """The settings of a run of a notebook, from its parameters as they are now: ``papers.settings("01_moon", globals())``.

    All that are not its own are in its dict ``more``. A `SettingsError` tells of a bad value, or a name that nobody reads.
    """
    from fednb.experiments.settings import (
        SettingsError,
        resolve,
    )  # what notebooks ask for; nothing else here needs it

    own = parameters(notebook)
    for source in namespace.get(
        "In", ()
    ):  # IPython's list of executed cells; papermill warns, and goes on
        for name in (
            re.findall(r"^(\w+) = ", source, re.MULTILINE)
            if source.startswith("# Parameters\n")
            else ()
        ):
            if name not in own:
                raise SettingsError(
                    f"{path(notebook).stem} has no parameter {name!r}: put it into more, or use fednb run."
                )
    given = {name: namespace[name] for name in own}
    more = given.pop("more", {})
    if not isinstance(more, dict) or any(given.get(name) is not None for name in more):
        raise SettingsError(
            f"more is {more!r}; it must be a dict of settings, but of none that is a parameter by itself."
        )
    return resolve(
        methods(notebook) | namespace.get("METHODS", {}), **given | more
    )  # a reader may have changed one


class _Notebooks(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path_: object, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, short = fullname.rpartition(".")
        with suppress(NotebookError):
            if package == __name__ and not short.startswith("_"):
                return importlib.util.spec_from_file_location(
                    fullname, _ELSEWHERE.get(short) or path(short), loader=self
                )
        return None

    def exec_module(self, module: ModuleType) -> None:
        file = str(module.__file__)
        source = _exported(Path(file))
        # without a time, linecache keeps these lines instead of reading the notebook's JSON as if it were Python
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)


sys.meta_path.append(_Notebooks())
