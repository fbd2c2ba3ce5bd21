"""Rules of hyperparameters and settings, declared by types: a test, and its words. Known without PyTorch, slow to import."""

import difflib
import functools
import math
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

NonNegative = Annotated[float, lambda v: v >= 0, "a number from 0"]
Positive = Annotated[float, lambda v: v > 0, "a positive number"]
BelowOne = Annotated[float, lambda v: 0 <= v < 1, "a number in [0, 1)"]
Fraction = Annotated[float, lambda v: 0 <= v <= 1, "a number from 0 to 1"]
NonNegativeInt = Annotated[int, lambda v: v >= 0, "a whole number from 0"]
Count = Annotated[int, lambda v: 1 <= v < 2**31, "a whole number from 1"]

_PLAIN = {bool: "True or False", int: "a whole number", float: "a finite number", str: "a text"}


class SettingsError(ValueError):
    """A parameter with an unknown name or a bad value; the message says what is allowed."""


def one_of(names: Iterable[str]) -> Any:
    """The type of a text that is one of these."""
    return Annotated[str, tuple(names).__contains__, f"one of {', '.join(names)}"]


class Rule(NamedTuple):
    """What is allowed."""

    kind: type
    test: Callable[[Any], bool]
    words: str

    def fit(self, name: str, value: Any) -> Any:
        """The value, a whole number as a float where one is meant; a `SettingsError` that says what is allowed."""
        kinds = (int, float) if self.kind is float else self.kind
        if isinstance(value, kinds) and (
            self.kind is object or isinstance(value, bool) == (self.kind is bool)
        ):
            with suppress(OverflowError):  # a whole number that is too large for a float
                fitted = float(value) if self.kind is float else value
                if (self.kind is not float or math.isfinite(fitted)) and self.test(fitted):
                    return fitted
        raise SettingsError(f"{name} is {short(value)}; it must be {self.words}.")


def rule(hint: Any) -> Rule | None:
    """The rule of a type such as are above, a ``Literal``, or plain bool, int, float or str; of ``X | None`` that of X."""
    if type(None) in get_args(hint) and get_origin(hint) is not Literal:
        hint = get_args(hint)[0]
    if get_origin(hint) is Annotated:
        return Rule(*get_args(hint))
    if get_origin(hint) is Literal:
        return Rule(
            object, get_args(hint).__contains__, f"one of {', '.join(map(repr, get_args(hint)))}"
        )
    return Rule(hint, lambda _: True, _PLAIN[hint]) if hint in _PLAIN else None


@functools.lru_cache
def of(cls: type) -> dict[str, Rule]:
    """The rules of a dataclass's fields."""
    found = {name: rule(hint) for name, hint in get_type_hints(cls, include_extras=True).items()}
    return {name: own for name, own in found.items() if own}


def check(self: Any) -> None:
    """Check and fit the fields of a dataclass by their types; a `SettingsError` says what is allowed."""
    for name, own in of(type(self)).items():
        setattr(self, name, own.fit(name, getattr(self, name)))


def short(value: Any) -> str:
    """A value as it is told in a message: not at any length."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def look_up(
    told: str, name: Any, names: Collection[Any], error: type[Exception] = SettingsError
) -> None:
    """An error that begins with ``told``, and ends with the known names and the closest, unless the name is one of them."""
    if name not in list(names):  # which may be a list itself, and in no dict
        known = {str(one).lower(): str(one) for one in names}
        close = difflib.get_close_matches(str(name).lower(), known, 1)
        hint = f"; did you mean {known[close[0]]!r}?" if close else "."
        raise error(f"{told} {short(name)}: known are {', '.join(known.values())}{hint}")
