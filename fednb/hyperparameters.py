"""Types of settings, which say what values are allowed. (Of hyperparameters: `fednb.errors.check_fields`.)"""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from fednb.errors import SettingsError, shorten

NonNegative = Annotated[float, lambda v: v >= 0, "a number from 0"]
Positive = Annotated[float, lambda v: v > 0, "a positive number"]
BelowOne = Annotated[float, lambda v: 0 <= v < 1, "a number in [0, 1)"]
Fraction = Annotated[float, lambda v: 0 <= v <= 1, "a number from 0 to 1"]
NonNegativeInt = Annotated[int, lambda v: v >= 0, "a whole number from 0"]
Count = Annotated[int, lambda v: 1 <= v < 2**31, "a whole number from 1"]

_PLAIN = {bool: "True or False", int: "a whole number", float: "a finite number", str: "a text"}


class Rule(NamedTuple):
    """The values that a hyperparameter may have: those of a kind that pass a test."""

    kind: type  # bool, int, float or str; object: any
    test: Callable[[Any], bool]
    allowed: str  # the same in words, for a message: "a number from 0"

    def fit(self, name: str, value: Any) -> Any:
        """The value of ``name``, as a float where one is meant; else a `SettingsError`."""
        if self._is_of_kind(value):
            with suppress(OverflowError):  # a whole number that is too large for a float
                fitted = float(value) if self.kind is float else value
                is_finite = self.kind is not float or math.isfinite(fitted)
                if is_finite and self.test(fitted):
                    return fitted
        message = f"{name} is {shorten(value)}; it must be {self.allowed}."
        raise SettingsError(message, setting=name, value=value, allowed=self.allowed)

    def _is_of_kind(self, value: Any) -> bool:
        if self.kind is object:
            return True
        # True is an int in Python, but no number here
        if isinstance(value, bool) != (self.kind is bool):
            return False
        return isinstance(value, (int, float) if self.kind is float else self.kind)


def rule_of(hint: Any) -> Rule | None:
    """The rule of a type as above, a ``Literal``, or a plain type; of ``X | None`` that of X."""
    if type(None) in get_args(hint) and get_origin(hint) is not Literal:
        hint = get_args(hint)[0]
    if get_origin(hint) is Annotated:
        return Rule(*get_args(hint))
    if get_origin(hint) is Literal:
        values = get_args(hint)
        return Rule(object, values.__contains__, f"one of {', '.join(map(repr, values))}")
    if hint in _PLAIN:
        return Rule(hint, lambda _: True, _PLAIN[hint])
    return None


_RULES: dict[type, dict[str, Rule]] = {}  # by class, as type hints are slow to resolve


def field_rules(cls: type) -> dict[str, Rule]:
    """The rules of a dataclass's fields, by name; fields of other types have none."""
    if cls not in _RULES:
        hints = get_type_hints(cls, include_extras=True)
        rules = {name: rule_of(hint) for name, hint in hints.items()}
        _RULES[cls] = {name: rule for name, rule in rules.items() if rule is not None}
    return _RULES[cls]
