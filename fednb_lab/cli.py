"""The command line: ``fednb COMMAND``; without one, all are named."""

import io
import os
import signal
import sys
from typing import Any, NoReturn

import click

import fednb_lab.commands  # each adds to the group
import fednb_lab.course.commands  # noqa: F401
from fednb.errors import FednbError
from fednb_lab.arguments import fednb


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit status.

    0: all is well. 1: a run of a sweep failed, or a check found something wrong. 2: it cannot be
    done, or a run that it needs failed. 130: after Ctrl-C, or a polite kill.

    Without arguments those of the program are taken, and the process is the command's own.
    """
    given = sys.argv[1:] if arguments is None else arguments
    if arguments is None:
        _own_the_process()
    try:
        status = fednb.main(given or ["--help"], prog_name="fednb", standalone_mode=False) or 0
        sys.stdout.flush()
        return status
    except click.Abort:  # which is a KeyboardInterrupt to click, after a line's end
        print("fednb: stopped; the same command goes on where this one ended.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `... | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except click.ClickException as error:
        error.show()
        if isinstance(error, click.NoSuchOption) and "=" in " ".join(given):
            print("A setting is name=value, without dashes.", file=sys.stderr)
        return 2
    except (FednbError, OSError) as error:
        # their messages say all that a person needs
        message = str(error) or type(error).__name__
        if isinstance(error, OSError) and error.filename:
            message = f"{error.filename}: {error.strerror}."
        print(f"fednb: {message}", file=sys.stderr)
        return 2


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
