"""The command line: ``fednb COMMAND``; without one, all are named."""

import argparse
import inspect
import io
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from fednb import __version__
from fednb.errors import FednbError
from fednb_lab import PACKAGE
from fednb_lab.commands import COMMANDS, Command

_VARIABLES = {
    "FEDNB_RUNS": "folder of run records (default: results/runs, here or beside one's own notebook)",
    "FEDNB_DATA": "folder of data sets (default: data)",
    "FEDNB_CACHE": "folder of decoded data sets (default: data/cache)",
    "FEDNB_NOTEBOOKS": "folder of notebooks that take the place of the project's of the same name",
    "FEDNB_DEVICE": "cpu, cuda or cuda:N (default: a GPU if there is one)",
    "FEDNB_WORKERS": "clients that train side by side on a CPU (default: one per core)",
    "FEDNB_PROGRESS": "bar, log or off: how rounds are shown",
}
_GROUPS = {"course": "hand out the notebooks without solutions, check and grade what comes back"}


def _parser(prog: str = "fednb") -> argparse.ArgumentParser:
    variables = [f"  {name:<17} {meaning}" for name, meaning in _VARIABLES.items()]
    parser = argparse.ArgumentParser(
        prog=prog,
        description="FedNB: five federated-learning papers, and methods of your own, run and compared.",
        epilog="\n".join(["variables of the environment:", *variables]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fednb {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    groups: dict[str, Any] = {}
    for command in COMMANDS.values():
        group, _, name = command.name.rpartition(" ")
        if group and group not in groups:
            below = commands.add_parser(group, help=_GROUPS[group])
            groups[group] = below.add_subparsers(required=True, metavar="STEP")
        _add_command(groups.get(group, commands), name, command)
    return parser


def _add_command(commands: Any, name: str, command: Command) -> None:
    """Add the parser of a command, whose help and examples are those of its docstring."""
    summary, _, examples = inspect.cleandoc(command.function.__doc__ or "").partition("\n\n")
    lines = [f"  {line}" for line in examples.splitlines()]
    parser = commands.add_parser(
        name,
        help=summary[0].lower() + summary[1:].removesuffix("."),
        description=summary,
        epilog="\n".join(["examples:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for argument in command.arguments:
        parser.add_argument(*argument.names, **argument.options)
    parser.set_defaults(command=command)


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit status.

    0: all is well. 1: a run of a sweep failed, or a check found something wrong. 2: it cannot be
    done, or a run that it needs failed. 130: after Ctrl-C.

    Without arguments those of the program are taken, and the process is the command's own.
    """
    if arguments is None:
        arguments = sys.argv[1:]
        _stop_at_the_first_interrupt()
        _print_any_name()
    args = _parsed(arguments or ["--help"])
    try:
        status = args.command.function(args) or 0
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("\nfednb: stopped; the same command goes on where this one ended.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `... | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (FednbError, OSError, argparse.ArgumentTypeError) as error:
        # their messages say all that a person needs
        message = str(error) or type(error).__name__
        if isinstance(error, OSError) and error.filename:
            message = f"{error.filename}: {error.strerror}."
        print(f"fednb: {message}", file=sys.stderr)
        return 2


def _parsed(arguments: list[str]) -> argparse.Namespace:
    is_module = Path(sys.argv[0]).absolute() == PACKAGE / "__main__.py"
    parser = _parser("python -m fednb_lab" if is_module else "fednb")
    args, rest = parser.parse_known_args(arguments)
    if rest and not (args.command.name == "compare" and all("=" in word for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:  # argparse takes no positional words after an option
        args.methods += rest
    return args


def _print_any_name() -> None:
    """A folder's name may hold bytes that are no text: these are printed escaped."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _stop_at_the_first_interrupt() -> None:
    """Ctrl-C, which `timeout -s INT` sends twice: what ends a sweep must not be interrupted."""

    def interrupt(*_: Any) -> NoReturn:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a script's job ignores it
        signal.signal(signal.SIGINT, interrupt)
