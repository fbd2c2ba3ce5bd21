"""The methods of a notebook as far as settings need them, read without importing PyTorch, which takes seconds."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fednb import papers, rules


def methods(notebook: str) -> dict[str, type]:
    """`papers.methods` with classes that have hyperparameters, their defaults and checks, and nothing else.

    Where the export cells make ``METHODS`` in a way that cannot be read so, they are executed.
    """
    file = papers.path(notebook)
    with suppress(Exception):
        found = _outline(file, file.stat().st_mtime_ns)["METHODS"]
        if all(isinstance(cls, type) for cls in found.values()):
            return found
    return papers.methods(notebook)


@functools.lru_cache
def _outline(file: Path, time_ns: int) -> dict[str, Any]:
    """The names that the export cells define, without functions and without what other libraries are needed for."""
    space: dict[str, Any] = {"__name__": f"{__name__} of {file.stem}"}
    for node in ast.parse("\n\n".join(papers.cells(file, "code", "export"))).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            space.update(_imported(node))
        elif isinstance(node, ast.ClassDef):
            node.body = [n for n in node.body if isinstance(n, ast.AnnAssign) or getattr(n, "name", "") == "__post_init__"]
            node.body = node.body or [ast.Pass(lineno=node.lineno, col_offset=0)]
            with suppress(Exception):  # a network, say: whoever needs it is not found, and METHODS neither
                _execute(node, space)
        elif any(isinstance(n, ast.Name) and n.id == "METHODS" for n in ast.walk(node)):
            _execute(node, space)
        elif isinstance(node, ast.Assign):
            with suppress(Exception):
                _execute(node, space)
    return space


def _execute(node: ast.stmt, space: dict[str, Any]) -> None:
    exec(compile(ast.Module([node], []), "<outline>", "exec", dont_inherit=True), space)


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Any]]:
    """What an import brings: from the standard library itself, from notebooks their outlines, from fednb stand-ins."""
    module = getattr(node, "module", None) or node.names[0].name
    if module.partition(".")[0] in sys.stdlib_module_names:
        space: dict[str, Any] = {}
        _execute(node, space)
        yield from ((name, value) for name, value in space.items() if name != "__builtins__")
    elif isinstance(node, ast.ImportFrom) and module.startswith("fednb."):
        known = vars(rules)
        if of_a_notebook := module.startswith("fednb.papers."):
            file = papers.path(module.rpartition(".")[2])
            known = _outline(file, file.stat().st_mtime_ns)
        for alias in node.names:
            if alias.name in known or not of_a_notebook:
                yield alias.asname or alias.name, known.get(alias.name) or _stand_in(alias.name)


@functools.cache
def _stand_in(name: str) -> type:
    """A class of the package: a method without hyperparameters, if it is one."""
    return dataclass(type(name, (), {"__post_init__": rules.check}))
