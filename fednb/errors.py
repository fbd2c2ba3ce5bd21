"""What a person can mend: every message is a sentence, what is wrong and what to do about it."""

import dataclasses
import difflib
import functools
import keyword
from collections.abc import Collection
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

MAX_LISTED = 80  # known names in a message; of more the nearest are named


class FednbError(Exception):
    """An error in what a person has asked for, not in the package; it is shown without a traceback."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback, in whose lines a reader can mend nothing."""
        return [f"{type(self).__name__}: {self}"]


class SettingsError(FednbError, ValueError):
    """A parameter with an unknown name or a bad value."""


class DataError(FednbError, ValueError):
    """A data set that cannot be found, read or split as asked."""


class NotebookError(FednbError, ImportError):
    """A notebook that cannot be found, read or executed."""


class RunError(FednbError, RuntimeError):
    """A results folder or record that cannot be used."""


class SweepError(FednbError):
    """A sweep file or cluster that cannot be used; a run that is needed and failed."""


class ReportError(FednbError, ValueError):
    """A table or claim that cannot be made as it is described."""


class CourseError(FednbError):
    """A hand-out or a batch of submissions that cannot be made or graded."""


def check(good: Any, message: str, error: type[FednbError] = DataError) -> None:
    """Raise ``error(message)``, unless ``good``."""
    if not good:
        raise error(message)


def fit(name: str, value: Any, adapter: TypeAdapter) -> Any:
    """Return the value of a setting as its type has it; one that it cannot have is a `SettingsError`."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"]
        # of a type's own validator pydantic says what that raised
        reason = reason.removeprefix("Value error, ").removeprefix("Input should be ")
        message = f"{name} is {shorten(value)}; it must be {reason}."
        raise SettingsError(message) from None


# A whole number fits where a float is meant, and becomes one; True, "1" and NaN are no numbers.
STRICT = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)


@functools.cache
def field_types(cls: type) -> dict[str, TypeAdapter]:
    """Return what checks each field of a dataclass, by its name: its annotated type, as pydantic reads it."""
    hints = get_type_hints(cls, include_extras=True)
    names = [field.name for field in dataclasses.fields(cls)]
    return {name: TypeAdapter(hints[name], config=STRICT) for name in names}


def check_fields(instance: Any) -> None:
    """Check a dataclass's fields by their types, and set them as fitted; else a `SettingsError`."""
    for name, adapter in field_types(type(instance)).items():  # type: ignore[arg-type]
        setattr(instance, name, fit(name, getattr(instance, name), adapter))


def shorten(value: Any) -> str:
    """Return the ``repr`` of a value as it stands in a message: at most some 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def is_word_of_python(name: str) -> bool:
    """Tell whether a name, in small letters or capitalised, is a keyword of Python."""
    return keyword.iskeyword(name.lower()) or keyword.iskeyword(name.capitalize())


def guess_beside(path: Path, pattern: str = "*") -> str:
    """Suggest a file beside a path, `` (did you mean decay.ipynb?)``; empty if no name is near."""
    names = {one.stem: one.name for one in path.parent.glob(pattern)}
    closest = difflib.get_close_matches(path.stem, names, 1)
    return f" (did you mean {path.with_name(names[closest[0]])}?)" if closest else ""


def require_known(
    what: str, name: Any, known: Collection[Any], error: type[FednbError] = SettingsError
) -> None:
    """Raise ``error`` unless ``name`` is one of the ``known`` names.

    The message begins with ``what``, such as "Unknown method"; then comes the closest of the known
    names, if one is close, and then all of them.
    """
    if name in list(known):  # a list: a name that was read from a file may be of an unhashable type
        return
    texts = {str(one).lower(): str(one) for one in known}
    closest = difflib.get_close_matches(str(name).lower(), texts, 1)
    guess = f"did you mean {texts[closest[0]]!r}? Known" if closest else "known"
    listed = list(texts.values())
    if len(listed) > MAX_LISTED:
        near = difflib.get_close_matches(str(name).lower(), texts, 5, 0.0)
        listed = [*(texts[one] for one in near), f"and {len(listed) - len(near)} more"]
    raise error(f"{what} {shorten(name)}: {guess} are {', '.join(listed)}.")
