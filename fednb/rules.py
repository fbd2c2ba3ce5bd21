"""Types of hyperparameters and settings: what is allowed, as a test and in words. PyTorch, slow to import, is not needed."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

NonNegative = Annotated[float, lambda v: 0 <= v < math.inf, "a number from 0"]
Positive = Annotated[float, lambda v: 0 < v < math.inf, "a positive number"]
BelowOne = Annotated[float, lambda v: 0 <= v < 1, "a number in [0, 1)"]
Fraction = Annotated[float, lambda v: 0 <= v <= 1, "a number from 0 to 1"]
NonNegativeInt = Annotated[int, lambda v: v >= 0, "a whole number from 0"]
Count = Annotated[int, lambda v: v >= 1, "a whole number from 1"]


def check(self: Any) -> None:
    """Check the fields of a dataclass by their types: such as are above, and ``Literal``.

    Raises
    ------
    ValueError
        If a value is not allowed; the message says what is.
    """
    for name, test, words in _rules(type(self)):
        if not test(getattr(self, name)):
            raise ValueError(f"{name} is {getattr(self, name)!r}; it must be {words}.")


@functools.lru_cache
def _rules(cls: type) -> list[tuple[str, Callable[[Any], bool], str]]:
    found = []
    for name, hint in get_type_hints(cls, include_extras=True).items():
        if get_origin(hint) is Annotated:
            found.append((name, *get_args(hint)[1:]))
        elif get_origin(hint) is Literal:
            allowed = get_args(hint)
            found.append((name, allowed.__contains__, f"one of {', '.join(map(repr, allowed))}"))
    return found
