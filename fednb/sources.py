"""A method is known by its source: a digest that changes with what it does, and with nothing else.

It is made of the method's class and of all that its functions use, wherever that stands: in a
notebook's kernel, in a module made of a notebook, or in a file of one's own. Comments, docstrings
and layout do not count, nor do defaults of hyperparameters, which a record has among its settings.
What comes from `fednb` or from a library is left to the record's commit and versions.
"""

import ast
import dataclasses
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from types import CodeType, FunctionType
from typing import Any

OURS = "fednb.papers."  # modules of the package that are notebooks
PACKAGES = ("fednb", "fednb_lab", "numpy", "torch", "torchvision")


def digest(method: type) -> str | None:
    """Twelve hex digits of a method's source; None where it cannot be read, as behind a prompt."""
    found: dict[str, str] = {}
    try:
        _add_class(method, found)
    except (OSError, TypeError, SyntaxError):
        return None
    text = "\n".join(f"{name}: {source}" for name, source in sorted(found.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _is_read(module: str | None) -> bool:
    """Whether code of a module is a method's own: neither the package's nor a library's."""
    name = module or ""
    if name.startswith(OURS) or name == "__main__":  # a kernel's
        return True
    return name.partition(".")[0] not in (*PACKAGES, *sys.stdlib_module_names)


def _add_class(cls: type, found: dict[str, str]) -> None:
    """Add the functions of a class and its bases, and the values that stand in it."""
    for base in cls.__mro__:
        name = base.__qualname__
        if not _is_read(base.__module__) or name in found:
            continue
        fields = [one.name for one in dataclasses.fields(base)] if is_dataclass(base) else []
        found[name] = ", ".join(parent.__qualname__ for parent in base.__bases__)
        for attribute, value in vars(base).items():
            function = getattr(value, "__func__", getattr(value, "fget", value))
            if isinstance(function, FunctionType):
                function = inspect.unwrap(function)
                if not _is_made(function) and _is_read(function.__module__):
                    _add_function(function, f"{name}.{attribute}", found)
            elif not attribute.startswith("__") and attribute not in fields:
                found[f"{name}.{attribute}"] = repr(value)


def _is_made(function: FunctionType) -> bool:
    """Whether the standard library has written it, for a dataclass or a named tuple."""
    return function.__code__.co_filename == "<string>" and function.__name__.startswith("__")


def _add_function(function: FunctionType, name: str, found: dict[str, str]) -> None:
    """Add a function, and what it reads of its module."""
    if name in found:
        return
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    found[name] = ast.unparse(_without_docstrings(tree))
    for used in _names(function.__code__):
        value = function.__globals__.get(used)
        if isinstance(value, type):
            if _is_read(value.__module__):
                _add_class(value, found)
        elif isinstance(value, FunctionType):
            if _is_read(value.__module__):
                _add_function(value, value.__qualname__, found)
        elif isinstance(value, bool | int | float | str | tuple):
            found[used] = repr(value)


def _names(code: CodeType) -> Iterator[str]:
    """The names that a function and those inside it use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body: Any = getattr(node, "body", None)
        has_body = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if has_body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body[:] = body[1:] or [ast.Pass()]
    return tree
