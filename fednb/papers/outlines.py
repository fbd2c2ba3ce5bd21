"""The methods of a notebook without PyTorch, whose import takes longer than ``fednb list`` does.

What a method is called, which hyperparameters it has and which values these may have stands in the
class statements of the export cells. Here they are executed without the functions, and without what
is imported for these.
"""

import ast
import functools
import importlib
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import pydantic
from annotated_types import Ge, Le, Lt

from fednb.errors import check_fields
from fednb.papers.importer import PACKAGE, are_methods, exported, methods, path

# Types of hyperparameters, as `fednb.federation` has them.
_TYPES: dict[str, Any] = {
    "NonNegativeFloat": pydantic.NonNegativeFloat,
    "PositiveFloat": pydantic.PositiveFloat,
    "NonNegativeInt": pydantic.NonNegativeInt,
    "PositiveInt": pydantic.PositiveInt,
    "Fraction": Annotated[float, Ge(0), Le(1)],
    "BelowOne": Annotated[float, Ge(0), Lt(1)],
}


def outline(notebook: str) -> dict[str, type]:
    """`methods`, as classes of hyperparameters alone; the methods where these cannot be read."""
    with suppress(Exception, SystemExit):
        classes = _namespace(exported(path(notebook)))["METHODS"]
        if are_methods(classes):
            return classes
    return methods(notebook)


@functools.lru_cache
def _namespace(source: str) -> dict[str, Any]:
    """What export cells define besides functions; a ``ValueError`` where that cannot be read."""
    namespace: dict[str, Any] = {"__name__": PACKAGE}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.ImportFrom):
            namespace |= _imported(statement)
        elif isinstance(statement, ast.ClassDef):
            _execute(_without_methods(statement), namespace)
        elif isinstance(statement, ast.Assign | ast.AugAssign):
            _execute(statement, namespace)
        elif not isinstance(statement, ast.Import | ast.FunctionDef | ast.AnnAssign | ast.Expr):
            raise ValueError("loops and branches can only be executed")
    return namespace


def _imported(statement: ast.ImportFrom) -> dict[str, Any]:
    """What an import binds; for a class that is not known here, one without hyperparameters."""
    module = str(statement.module)
    package, _, notebook = module.rpartition(".")
    known: Mapping[str, Any] = _TYPES
    if package == PACKAGE:
        known = _namespace(exported(path(notebook)))
    elif module.partition(".")[0] in sys.stdlib_module_names:
        known = vars(importlib.import_module(module))
    bound = {}
    for alias in statement.names:
        stand_in: type = dataclass(type(alias.name, (), {"__post_init__": check_fields}))
        bound[alias.asname or alias.name] = known.get(alias.name, stand_in)
    return bound


def _without_methods(statement: ast.ClassDef) -> ast.ClassDef:
    """A class with its hyperparameters and the check of these alone."""
    kept = [
        part
        for part in statement.body
        if isinstance(part, ast.AnnAssign) or getattr(part, "name", "") == "__post_init__"
    ]
    statement.body = kept or [ast.Pass(lineno=statement.lineno, col_offset=0)]
    return statement


def _execute(statement: ast.stmt, namespace: dict[str, Any]) -> None:
    code = compile(ast.Module([statement], []), "<outline>", "exec", dont_inherit=True)
    exec(code, namespace)
