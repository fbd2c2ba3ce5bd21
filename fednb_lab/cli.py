"""The command line: ``fednb COMMAND``; without one, all are named."""

import argparse
import difflib
import inspect
import io
import os
import signal
import sys
from collections.abc import Collection
from typing import Any, NoReturn

import fednb_lab.commands  # each adds to COMMANDS
import fednb_lab.course.commands  # noqa: F401
from fednb import __version__
from fednb.errors import FednbError
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
        known = list(action.choices or ())
        if known and value not in known:
            guess = _guess(value, known) or "."
            message = f"there is no {value!r}{guess} Known are {', '.join(known)}."
            raise argparse.ArgumentError(action, message)


def _guess(word: str, known: Collection[str]) -> str:
    """Such as ``: did you mean 'sweep'?``; "" if no known word is close."""
    closest = difflib.get_close_matches(word, known, 1)
    return f": did you mean {closest[0]!r}?" if closest else ""


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
    options = parser._option_string_actions
    parser.set_defaults(function=command.function, options=options, parser=parser)


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
        print(f"\nfednb: stopped{_how_to_go_on(args.function.__name__)}.", file=sys.stderr)
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


def _how_to_go_on(function: str) -> str:
    if function == "course_grade":
        return "; the same command grades those who are left"
    if function.startswith("course_"):
        return ""
    return "; the same command goes on, from the last checkpoint of a run that has one"


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = _parser()
    args, rest = parser.parse_known_args(arguments)
    # argparse takes no positional words after an option
    takes_settings = "methods" in args or "parameters" in args
    are_settings = all("=" in word and not word.startswith("-") for word in rest)
    if rest and not (takes_settings and are_settings):
        guess = _guess(rest[0], args.options)
        if takes_settings:
            guess = guess or _without_dashes(rest)
        if args.function is COMMANDS["new"].function:
            guess = guess or f": a name is one word, such as {'_'.join([args.name, *rest])}"
        args.parser.error(f"unrecognized arguments: {' '.join(rest)}{guess}")
    if "methods" in args:
        args.methods += rest
    elif "parameters" in args:
        args.parameters += map(assignment, rest)
    return args


def _without_dashes(words: list[str]) -> str:
    """Such as ``: write lr=0.1``, for ``--lr=0.1`` and ``--lr 0.1``; "" for what is no setting."""
    name, _, value = "=".join(words[:2]).lstrip("-").partition("=")
    return f": write {name}={value}" if value and words[0].startswith("--") else ""


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
