"""The parameters of a notebook: the cell in which they stand, and their values in a kernel."""

import ast
import re
from collections.abc import Mapping
from typing import Any

from fednb.errors import NotebookError, SettingsError
from fednb.papers.importer import cells, path


def parameters(notebook: str) -> dict[str, Any]:
    """The names and values in the notebook's cell tagged ``parameters``, which is not executed."""
    values = {}
    try:
        (source,) = cells(path(notebook), "code", "parameters")
        statements: list[Any] = ast.parse(source).body  # others than assignments fail below
        for statement in statements:
            is_annotated = isinstance(statement, ast.AnnAssign)
            target = statement.target if is_annotated else statement.targets[0]
            values[target.id] = ast.literal_eval(statement.value)
    except (SyntaxError, TypeError, ValueError, AttributeError) as error:
        raise NotebookError(
            f"The parameters of {path(notebook).stem} cannot be read: one of its cells must be "
            f"tagged parameters, and have lines of the form name = value ({error})."
        ) from error
    if not isinstance(values.get("more", {}), dict):
        raise NotebookError(
            f"The parameter more of {path(notebook).stem} must be a dict: more = {{}}."
        )
    return values


def arrange(notebook: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as the notebook has them: what it has no name for goes into its ``more``."""
    named = parameters(notebook)
    arranged = {name: value for name, value in given.items() if name in named}
    others = {name: value for name, value in given.items() if name not in named}
    if not others:
        return arranged
    if "more" not in named:
        unknown = next(iter(others))
        raise NotebookError(
            f"{path(notebook).stem} has no parameter {unknown!r}: known are {', '.join(named)}.",
            setting=unknown,
            value=others[unknown],
            allowed=tuple(named),
        )
    return arranged | {"more": {**named["more"], **arranged.get("more", {}), **others}}


def parameters_in(notebook: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a notebook as they are now in its namespace, with ``more`` in one level.

    A `SettingsError` tells of a name that papermill was given and nobody reads, or of a bad
    ``more``.
    """
    named = parameters(notebook)
    for name in _injected(namespace):
        if name not in named:
            raise SettingsError(
                f"{path(notebook).stem} has no parameter {name!r}: "
                "put it into more, or use fednb run.",
                setting=name,
                allowed=tuple(named),
            )
    values = {name: namespace[name] for name in named}
    more = values.pop("more", {})
    if not isinstance(more, dict) or any(values.get(name) is not None for name in more):
        raise SettingsError(
            f"more is {more!r}; it must be a dict of settings, "
            "but of none that is a parameter by itself.",
            setting="more",
            value=more,
        )
    return values | more


def _injected(namespace: Mapping[str, Any]) -> list[str]:
    """The names that papermill has set in a cell of its own, by IPython's list of cells."""
    names = []
    for source in namespace.get("In", ()):
        if source.startswith("# Parameters\n"):  # papermill warns of unknown ones, and goes on
            names += re.findall(r"^(\w+) = ", source, re.MULTILINE)
    return names
