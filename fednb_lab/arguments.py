"""What the commands of ``fednb`` share: their group, common arguments, and how these are read."""

import ast
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from fednb import __version__
from fednb.errors import SweepError, check, guess_beside

SWEEP_FILES = (".yaml", ".yml")

# click leaves the lines below a \b as they are
_VARIABLES = """\b
variables of the environment:
  FEDNB_RUNS      folder of run records (default: results/runs, here or beside one's own notebook)
  FEDNB_DATA      folder of data sets (default: data)
  FEDNB_CACHE     folder of decoded data sets (default: data/cache)
  FEDNB_DEVICE    cpu, cuda or cuda:N (default: a GPU if there is one)
  FEDNB_WORKERS   clients that train side by side on a CPU (default: one per core)
  FEDNB_PROGRESS  bar, log or off: how rounds are shown"""


class Command(click.Command):
    """A command; its docstring is a line that says what it does, and examples that can be typed."""

    def __init__(self, name: str, help: str, **options: Any) -> None:
        summary, _, examples = inspect.cleandoc(help).partition("\n\n")
        lines = "".join(f"\n  {line}" for line in examples.splitlines())
        super().__init__(name, help=summary, epilog=f"\b\nexamples:{lines}", **options)


class Group(click.Group):
    """A group of such commands."""

    command_class = Command


@click.group(cls=Group, epilog=_VARIABLES)
@click.version_option(__version__, message="fednb %(version)s")
def fednb() -> None:
    """FedNB: five federated-learning papers, and methods of your own, run and compared."""


@fednb.group(cls=Group)
def course() -> None:
    """Hand out notebooks without solutions, and grade."""


def assignment(text: str) -> tuple[str, Any]:
    """Read name and value of ``name=value``; what is no value of Python's is a text.

    Anything else is a `SweepError`.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        form = "of the form name=value, such as num_rounds=20, without spaces and dashes"
        raise SweepError(f"{text[:80]!r} is not {form}.")
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


COUNT = click.IntRange(min=1)
JOBS = click.option("--jobs", type=COUNT, metavar="N", help="runs at once (default: 1)")
AGAIN = click.option("--again", is_flag=True, help="make what is recorded again, and replace it")
NOTEBOOK = click.argument("notebook", help="such as 01_moon, 01, or a path")
