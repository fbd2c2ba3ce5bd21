"""What a command of ``fednb`` is made of: its function, its arguments, and how these are read."""

import argparse
import ast
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fednb.errors import SweepError, check, guess_beside

SWEEP_FILES = (".yaml", ".yml")

Argument = tuple[tuple[str, ...], dict[str, Any]]  # what `ArgumentParser.add_argument` takes


class Command(NamedTuple):
    """A command; its function returns the exit status, None for 0."""

    function: Callable[[argparse.Namespace], int | None]
    arguments: tuple[Argument, ...]


COMMANDS: dict[str, Command] = {}  # by what is typed after ``fednb``


def argument(*names: str, **options: Any) -> Argument:
    """Describe an argument of a command."""
    return names, options


def command(name: str, *arguments: Argument) -> Callable[[Any], Any]:
    """Make a function a command with these arguments.

    Its docstring is a line that says what it does, and below examples that can be typed.
    """

    def register(function: Any) -> Any:
        COMMANDS[name] = Command(function, arguments)
        return function

    return register


def count(text: str) -> int:
    """Read a whole number from 1; anything else is an ``ArgumentTypeError``."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def assignment(text: str) -> tuple[str, Any]:
    """Read name and value of ``name=value``; what is no value of Python's is a text.

    Anything else is an ``ArgumentTypeError``.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        form = "of the form name=value, such as num_rounds=20, without spaces and dashes"
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not {form}")
    is_word = value.lower() in ("true", "false", "none")
    try:
        return name, ast.literal_eval(value.title() if is_word else value[:1000])
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return name, value


def for_methods(text: str) -> tuple[str, Any]:
    """Read ``name=value`` as `assignment`, or ``METHOD.name=value``, which is for one method."""
    method, dot, _ = text.partition("=")[0].rpartition(".")
    name, value = assignment(text.removeprefix(method + dot))
    return f"{method}{dot}{name}", value


def each_given_once(assignments: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the settings by name; a `SweepError` if one is given twice."""
    names = [name for name, _ in assignments]
    for name in names:
        message = f"{name} is given {names.count(name)} times: give it once."
        check(names.count(name) == 1, message, SweepError)
    return dict(assignments)


def write(files: Mapping[Path, str]) -> None:
    """Write files, and say where they are."""
    from fednb import records as ledger

    for path, content in files.items():
        ledger.write_atomically(path, content)
        print(path)


def check_sweep_file(path: Path) -> None:
    """Refuse what is no sweep file, or not there, before anything slow is imported."""
    check(
        path.exists(),
        f"{path}: No such file or directory{guess_beside(path, '*.y*ml')}.",
        SweepError,
    )
    message = (
        f"{path} is no sweep file (*.yaml), which says which runs of a notebook are made: "
        "`fednb run` makes one run of a notebook, `fednb course check` checks a hand-out, and "
        "`fednb new NAME` writes an example of a file."
    )
    check(path.is_dir() or path.suffix in SWEEP_FILES, message, SweepError)


JOBS = argument("--jobs", type=count, metavar="N", help="runs at once (default: 1)")
AGAIN = argument("--again", action="store_true", help="make what is recorded again, and replace it")
NOTEBOOK = argument("notebook", metavar="NOTEBOOK", help="such as 01_moon, 01, or a path")
