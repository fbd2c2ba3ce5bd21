"""Rules of hyperparameters and settings, declared by types: a test, and its words. Known without PyTorch, slow to import."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

NonNegative = Annotated[float, lambda v: v >= 0, "a number from 0"]
Positive = Annotated[float, lambda v: v > 0, "a positive number"]
BelowOne = Annotated[float, lambda v: 0 <= v < 1, "a number in [0, 1)"]
Fraction = Annotated[float, lambda v: 0 <= v <= 1, "a number from 0 to 1"]
NonNegativeInt = Annotated[int, lambda v: v >= 0, "a whole number from 0"]
Count = Annotated[int, lambda v: v >= 1, "a whole number from 1"]

_PLAIN = {bool: "True or False", int: "a whole number", float: "a finite number", str: "a text"}


def one_of(names: Iterable[str]) -> Any:
    """The type of a text that is one of these, as they are when it is asked."""
    return Annotated[str, lambda v: v in names, names]


class Rule(NamedTuple):
    """What is allowed."""

    kind: type
    test: Callable[[Any], bool]
    told: str | Iterable[str]  # in words, or as names

    @property
    def words(self) -> str:
        """What is allowed, for people."""
        return self.told if isinstance(self.told, str) else f"one of {', '.join(map(str, self.told))}"

    def fit(self, name: str, value: Any) -> Any:
        """The value, a whole number as a float where one is meant; a ``ValueError`` that says what is allowed."""
        kinds = (int, float) if self.kind is float else self.kind
        if isinstance(value, kinds) and (isinstance(value, bool) == (self.kind is bool) or self.kind is object):
            with suppress(OverflowError):  # a whole number that is too large for a float
                value = float(value) if self.kind is float else value
                if (self.kind is not float or math.isfinite(value)) and self.test(value):
                    return value
        raise ValueError(f"{name} is {short(value)}; it must be {self.words}.")


@functools.lru_cache
def of(cls: type) -> dict[str, Rule]:
    """The rules of a dataclass's fields: types such as are above, ``Literal``, and plain bool, int, float and str."""
    found = {}
    for name, hint in get_type_hints(cls, include_extras=True).items():
        if type(None) in get_args(hint):  # X | None
            hint = get_args(hint)[0]
        if get_origin(hint) is Annotated:
            found[name] = Rule(*get_args(hint))
        elif get_origin(hint) is Literal:
            found[name] = Rule(object, get_args(hint).__contains__, f"one of {', '.join(map(repr, get_args(hint)))}")
        elif hint in _PLAIN:
            found[name] = Rule(hint, lambda _: True, _PLAIN[hint])
    return found


def check(self: Any) -> None:
    """Check the fields of a dataclass by their types; a ``ValueError`` says what is allowed."""
    for name, rule in of(type(self)).items():
        rule.fit(name, getattr(self, name))


def short(value: Any) -> str:
    """A value as it is told in a message: not at any length."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        return "a number with very many digits"
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"
