"""The command line: ``fednb COMMAND``; without one, all are named."""

import argparse
import inspect
import io
import os
import signal
import sys
from typing import Any, NoReturn

import fednb_lab.commands  # each adds to COMMANDS
import fednb_lab.course.commands  # noqa: F401
from fednb import __version__
from fednb.errors import FednbError, require_known
from fednb_lab.arguments import COMMANDS, Command, assignment

_VARIABLES = """\
variables of the environment:
  FEDNB_RUNS      folder of run records (default: results/runs, here or beside one's own notebook)
  FEDNB_DATA      folder of data sets (default: data)
  FEDNB_CACHE     folder of decoded data sets (default: data/cache)
  FEDNB_DEVICE    cpu, cuda or cuda:N (default: a GPU if there is one)
  FEDNB_WORKERS   clients that train side by side on a CPU (default: one per core)
  FEDNB_PROGRESS  bar, log or off: how rounds are shown"""


class _Parser(argparse.ArgumentParser):
    """A parser that says what a misspelt command may have been meant to be."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            require_known("there is no", value, list(action.choices or [value]))
        except FednbError as error:
            raise argparse.ArgumentError(action, str(error)) from None


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fednb",
        description="FedNB: five federated-learning papers, and methods of your own, run and compared.",
        epilog=_VARIABLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fednb {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    groups = {"": commands}
    for name, command in COMMANDS.items():
        group, _, step = name.rpartition(" ")
        if group not in groups:
            below = commands.add_parser(
                group, help="hand out notebooks without solutions, and grade"
            )
            groups[group] = below.add_subparsers(required=True, metavar="STEP")
        _add_command(groups[group], step, command)
    return parser


def _add_command(commands: Any, name: str, command: Command) -> None:
    """Add the parser of a command, whose help and examples are those of its docstring."""
    summary, _, examples = inspect.cleandoc(command.function.__doc__ or "").partition("\n\n")
    parser = commands.add_parser(
        name,
        allow_abbrev=False,  # --seed would be --seeds
        help=summary[0].lower() + summary[1:].removesuffix("."),
        description=summary,
        epilog="examples:\n" + "\n".join(f"  {line}" for line in examples.splitlines()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for names, options in command.arguments:
        parser.add_argument(*names, **options)
    flags = [flag for flag in parser._option_string_actions if flag not in ("-h", "--help")]
    parser.set_defaults(function=command.function, options=flags, parser=parser)


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit status.

    0: all is well. 1: a run of a sweep failed, or a check found something wrong. 2: it cannot be
    done, or a run that it needs failed. 130: after Ctrl-C, or a polite kill.

    Without arguments those of the program are taken, and the process is the command's own.
    """
    if arguments is None:
        arguments = sys.argv[1:]
        _own_the_process()
    args = _parsed(arguments or ["--help"])
    try:
        status = args.function(args) or 0
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
    args, rest = _parser().parse_known_args(arguments)
    # argparse takes no positional words after an option
    takes_settings = "methods" in args or "parameters" in args
    for word in rest:
        if not takes_settings or "=" not in word or word.startswith("-"):
            told = "unrecognized argument"
            if takes_settings:
                told = "a setting is name=value, without dashes; unrecognized argument"
            try:
                require_known(told, word, args.options)
            except FednbError as error:
                args.parser.error(str(error))
    if "methods" in args:
        args.methods += rest
    elif "parameters" in args:
        args.parameters += map(assignment, rest)
    return args


def _own_the_process() -> None:
    """Print names of folders that are no text escaped, and end what has begun after Ctrl-C or `kill`.

    Only the first counts, as `timeout` sends two: what ends a sweep must not be interrupted.
    """

    def interrupt(*_: Any) -> NoReturn:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a script's job ignores it
        signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
