"""A method is known by its source: a digest that changes with what it does, and with nothing else.

It is made of the method's class and of all that its functions use, wherever that stands: in a
notebook's kernel, in a module made of a notebook, or in a file of one's own. Comments, docstrings
and layout do not count, nor do defaults of hyperparameters, which a record has among its settings.
What comes from `fednb` or from a library is left to the record's commit and versions.
"""

import ast
import contextlib
import dataclasses
import enum
import functools
import hashlib
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from types import CodeType, EllipsisType, FunctionType, ModuleType, NoneType
from typing import Any

import numpy as np
import torch

OURS = "fednb.papers."  # modules of the package that are notebooks
SIMPLE = (bool, int, float, complex, str, bytes, range, slice, NoneType, EllipsisType)
ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # in a ``repr``: another one in each process
DEEPEST = 5  # of containers in containers
MOST_ITEMS = 1000  # of one that are looked at
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
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    if "site-packages" in file or "dist-packages" in file:  # a library that somebody has installed
        return False
    return name.partition(".")[0] not in (*PACKAGES, *sys.stdlib_module_names)


def _add_class(cls: type, found: dict[str, str]) -> None:
    """Add the functions of a class and its bases, and the values that stand in it."""
    for base in cls.__mro__:
        name = base.__qualname__
        if not _is_read(base.__module__) or name in found:
            continue
        found[name] = ", ".join(parent.__qualname__ for parent in base.__bases__)
        if issubclass(base, enum.Enum):
            members = {member.name: member.value for member in base}
            found[f"{name}.members"] = _text(members, found)
        fields = _factories(base, name, found)
        for attribute, value in vars(base).items():
            functions = _functions_of(value)
            for role, function in functions.items():
                if not _is_made(function) and _is_read(function.__module__):
                    _add_function(function, f"{name}.{attribute}{role}", found)
            is_private = attribute.startswith("_") and issubclass(base, enum.Enum)
            if not functions and not attribute.startswith("__") and not is_private:
                if attribute not in fields:
                    found[f"{name}.{attribute}"] = _text(value, found)


def _factories(cls: type, name: str, found: dict[str, str]) -> list[str]:
    """Add what makes the defaults of a dataclass's fields; the names of the fields."""
    if not is_dataclass(cls):
        return []
    fields = dataclasses.fields(cls)
    for one in fields:
        if isinstance(one.default_factory, FunctionType):
            _add_function(one.default_factory, f"{name}.{one.name}.default", found)
    return [one.name for one in fields]


def _functions_of(value: Any) -> dict[str, FunctionType]:
    """The functions that an attribute of a class stands for, by what each is for."""
    parts = {"": getattr(value, "__func__", value)}
    if isinstance(value, property):
        parts = {"": value.fget, ".setter": value.fset, ".deleter": value.fdel}
    if isinstance(value, functools.cached_property):
        parts = {"": value.func}
    functions = {}
    for role, part in parts.items():
        function = inspect.unwrap(part) if callable(part) else part
        if isinstance(function, FunctionType):
            functions[role] = function
    return functions


def _is_made(function: FunctionType) -> bool:
    """Whether the standard library has written it, for a dataclass or a named tuple."""
    return function.__code__.co_filename == "<string>" and function.__name__.startswith("__")


def _add_function(function: FunctionType, name: str, found: dict[str, str]) -> None:
    """Add a function, and what it reads of its module and of the function that has made it."""
    if name in found:
        return
    function = inspect.unwrap(function)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    found[name] = ast.unparse(_without_docstrings(tree))
    names = [*_names(function.__code__), *_names_around(tree)]
    for used in dict.fromkeys(names):
        if used in function.__globals__:
            _add_used(used, function.__globals__[used], names, found)
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    if _are_computed(tree):
        found[f"{name}.defaults"] = _text(defaults, found)
    for variable, cell in zip(
        function.__code__.co_freevars, function.__closure__ or (), strict=True
    ):
        if variable != "__class__":  # which `super` reads
            with contextlib.suppress(ValueError):  # nothing is in it yet
                found[f"{name}.{variable}"] = _text(cell.cell_contents, found)


def _add_used(used: str, value: Any, names: list[str], found: dict[str, str]) -> None:
    """Add what a function reads under a name of its module."""
    if isinstance(value, ModuleType):
        read = vars(value).keys() & names if _is_read(value.__name__) else ()
        for attribute in sorted(read):
            _add_used(f"{used}.{attribute}", vars(value)[attribute], names, found)
        return
    if isinstance(value, type | FunctionType) or hasattr(value, "__wrapped__"):
        text = _text(value, found)
        if used.rpartition(".")[2] != value.__name__:  # it has another name here
            found[used] = text
        return
    if isinstance(value, list | dict | set) and not value:
        return  # which may be filled while runs go on
    found[used] = _text(value, found)


def _text(value: Any, found: dict[str, str], depth: int = 0) -> str:
    """A value in words that are the same in each process; the code behind it is added."""
    if isinstance(value, FunctionType):
        if _is_read(value.__module__):
            _add_function(value, value.__qualname__, found)
            return value.__qualname__
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, type):
        if _is_read(value.__module__):
            _add_class(value, found)
            return value.__qualname__
        return repr(value)
    if isinstance(value, functools.partial):
        parts = (value.func, value.args, value.keywords)
        return f"partial{_text(parts, found, depth + 1)}"
    if hasattr(value, "__wrapped__") and callable(value):  # by functools.cache, say
        return _text(inspect.unwrap(value), found, depth)
    if isinstance(value, np.ndarray | torch.Tensor):
        return _text_of_array(value)
    if isinstance(value, tuple | list | set | frozenset | dict) and depth < DEEPEST:
        return _text_of_many(value, found, depth)
    return _text_of_one(value, found, depth)


def _text_of_many(value: Any, found: dict[str, str], depth: int) -> str:
    items = value.items() if isinstance(value, dict) else value
    has_order = not isinstance(value, set | frozenset)
    if has_order and all(isinstance(item, SIMPLE) for item in items):
        return repr(value)
    texts = [_text(item, found, depth + 1) for item in itertools.islice(items, MOST_ITEMS)]
    if not has_order:
        texts.sort()
    return f"{type(value).__name__}({', '.join(texts)})"


def _text_of_array(value: np.ndarray | torch.Tensor) -> str:
    if isinstance(value, torch.Tensor):
        if value.requires_grad:  # it is trained
            return f"tensor {tuple(value.shape)}"
        value = value.cpu().numpy()
    content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    return f"{value.dtype} {value.shape} {content}"


def _text_of_one(value: Any, found: dict[str, str], depth: int) -> str:
    """A value that is no container; of an object its class, and the constants that it holds."""
    if isinstance(value, SIMPLE):
        return repr(value)
    cls = type(value)
    own = _is_read(cls.__module__)
    if own:
        _add_class(cls, found)
    text = cls.__qualname__ if own else ADDRESS.sub("", repr(value))
    held = {}
    for name, one in getattr(value, "__dict__", {}).items():
        if isinstance(one, SIMPLE) and not name.startswith("_") and name != "training":
            held[name] = one
    return f"{text} {held}" if held and not isinstance(value, enum.Enum) else text


def _are_computed(tree: ast.Module) -> bool:
    """Whether a function's defaults are read under names, whose values its text does not tell."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
            return any(isinstance(one, ast.Name) for each in given for one in ast.walk(each))
    return False


def _names_around(tree: ast.Module) -> Iterator[str]:
    """The names that a function's decorators use."""
    for node in tree.body:
        for decorator in getattr(node, "decorator_list", []):
            for one in ast.walk(decorator):
                if isinstance(one, ast.Name):
                    yield one.id


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
