"""The command line: ``python -m fednb COMMAND``; without one, all are named."""

import argparse
import io
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from fednb import __version__, data, papers  # the slow ones come later
from fednb.errors import FednbError
from fednb.experiments import settings
from fednb_lab import PACKAGE, cli_help
from fednb_lab import commands as run_commands
from fednb_lab.commands import assignment
from fednb_lab.sweeps import whole

Command = Callable[[argparse.Namespace], int | None]  # the exit status, None for 0
Add = Callable[..., Any]  # an argument to a command: what `ArgumentParser.add_argument` takes


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _parser(prog: str = "fednb") -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="FedNB: five federated-learning papers, and methods of your own, run and compared.",
        epilog=cli_help.variables(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fednb {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_notebooks(commands)
    _add_sweep(commands)
    _add_run_list_report_new(commands)
    _add_compare_and_check(commands)
    _add_settings_and_data(commands)
    _add_course(commands)
    _add_completion(commands)
    return parser


def _add_command(commands: Any, name: str, command: Command, summary: str, under: str = "") -> Add:
    """A command with its help; returns what adds arguments to it."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=cli_help.examples(f"{under} {name}".strip()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=command)
    return parser.add_argument


def _add_notebooks(commands: Any) -> None:
    summary = "execute every notebook from top to bottom at its defaults"
    add = _add_command(commands, "notebooks", _notebooks, summary)
    add("--out", type=Path, default=Path("build/run"), metavar="FOLDER", help="default: build/run")
    add("--seed", type=int, metavar="N", help="instead of the notebooks' own")


def _add_sweep(commands: Any) -> None:
    summary = "make the runs of a paper's tables that are not recorded yet"
    add = _add_command(commands, "sweep", run_commands.sweep, summary)
    add("path", type=Path, metavar="FILE_OR_FOLDER", help="a sweep file, or a folder of them")
    some_of = {"action": "append", "default": []}
    add("--table", **some_of, metavar="NAME", help="only this table; may be given again")
    add("--tier", **some_of, metavar="TIER", help="only runs of this tier; may be given again")
    only_help = "only runs with this setting"
    add("--only", **some_of, type=assignment, metavar="name=value", help=only_help)
    add("--jobs", type=_count, metavar="N", help="runs at once (default: 1)")
    scheduler_help = "of a dask cluster that makes the runs, one per worker thread"
    add("--scheduler", metavar="tcp://HOST:PORT", help=scheduler_help)
    add("--dry-run", action="store_true", help="say what would be run")


def _add_run_list_report_new(commands: Any) -> None:
    add = _add_command(commands, "run", run_commands.run, "make one run of a notebook")
    notebook_help = "for instance 00_foundations, foundations or 00; or a path"
    add("notebook", metavar="NOTEBOOK", help=notebook_help)
    parameters_help = "settings and hyperparameters; `fednb settings` lists the former"
    add("parameters", nargs="*", type=assignment, metavar="name=value", help=parameters_help)
    add("--save-model", action="store_true", help="leave the final model beside the record")

    summary = "notebooks, and of each table how much is recorded, and how long a run took"
    _add_command(commands, "list", run_commands.list_tables, summary)

    summary = "write the reproduction report, or the tables of a sweep file of your own"
    add = _add_command(commands, "report", run_commands.report, summary)
    path_help = "a sweep file; without it, the project's"
    add("path", type=Path, nargs="?", metavar="FILE.yaml", help=path_help)
    add("--runs", type=Path, metavar="FOLDER", help="where the records are (default: results/runs)")
    add("--out", type=Path, metavar="FOLDER", help="where to write (default: beside the records)")

    summary = "write a notebook and a sweep file to begin a method with"
    add = _add_command(commands, "new", run_commands.new, summary)
    add("name", metavar="NAME", help="for instance FedDyn or my_method")


def _add_compare_and_check(commands: Any) -> None:
    summary = "methods against the first one in one setting: the missing runs, a table, a figure"
    add = _add_command(commands, "compare", run_commands.compare, summary)
    methods_help = "for instance MOON, or the path of a notebook; then name=value"
    add("methods", nargs="+", metavar="METHOD", help=methods_help)
    add("--seeds", type=_count, default=3, metavar="N", help="default: 3")
    add("--jobs", type=_count, default=1, metavar="N", help="runs at once (default: 1)")
    add("--dataset", default="digits", metavar="NAME", help="default: digits")

    summary = "make a cell of a table again, and say how closely it agrees with its records"
    add = _add_command(commands, "check", run_commands.check, summary)
    add("table", metavar="TABLE", help="as `fednb list` names it, or FILE.yaml[:TABLE]")
    row_help = "the name of a row (default: the one that takes least time)"
    add("row", nargs="?", metavar="ROW", help=row_help)
    add("--column", metavar="NAME", help="where a row has several (default: likewise)")
    add("--seeds", type=_count, metavar="N", help="only so many of its runs")
    add("--jobs", type=_count, default=1, metavar="N", help="runs at once (default: 1)")
    add("--dry-run", action="store_true", help="say how long it takes")


def _add_settings_and_data(commands: Any) -> None:
    _add_command(commands, "settings", _settings, "write all settings as a table in Markdown")
    add = _add_command(commands, "data", _data, "list the data sets, or fetch and convert one")
    name_help = "for instance cifar10; without it, all are listed"
    add("name", nargs="?", metavar="NAME", help=name_help)
    from_help = "the folder or file that holds it (default: the folder of the data sets)"
    add("--from", type=Path, dest="given", metavar="PATH", help=from_help)


def _add_course(commands: Any) -> None:
    summary = "hand out the notebooks without solutions, check and grade what comes back"
    course = commands.add_parser("course", help=summary)
    steps = course.add_subparsers(required=True, metavar="STEP", dest="step")

    summary = "write the students' version of a notebook into course/release"
    add = _add_command(steps, "release", _course, summary, under="course")
    add("notebook", metavar="NOTEBOOK", help="for instance 01_moon")

    summary = "move a notebook's solutions into solutions/NOTEBOOK.ipynb, and leave empty stubs"
    add = _add_command(steps, "split", _split, summary, under="course")
    add("notebook", metavar="NOTEBOOK", help="for instance 01_moon")

    summary = "for students: run the visible checks of a notebook"
    add = _add_command(steps, "check", _course, summary, under="course")
    add("path", type=Path, metavar="FILE", help="the notebook that was handed out")

    summary = "grade a folder of submissions: scores as CSV, and feedback pages"
    add = _add_command(steps, "grade", _course, summary, under="course")
    add("notebook", metavar="NOTEBOOK", help="for instance 01_moon")
    path_help = "a zip or folder with NAME.ipynb, or a folder for each NAME, as nbgrader has it"
    add("path", type=Path, metavar="FOLDER", help=path_help)
    add("--jobs", type=_count, default=1, metavar="N", help="submissions at once (default: 1)")
    unsafe_help = "without bubblewrap: submissions can do all that you can"
    add("--no-sandbox", action="store_true", help=unsafe_help)


def _add_completion(commands: Any) -> None:
    summary = "write what lets a shell complete commands and options"
    add = _add_command(commands, "completion", _completion, summary)
    add("shell", choices=("bash", "zsh", "tcsh"))


def _notebooks(args: argparse.Namespace) -> int:
    notebooks = papers.notebooks(extras=True)
    parameters = {} if args.seed is None else {"seed": args.seed}
    failed = []
    print(f"Executing {len(notebooks)} notebooks", flush=True)
    ended = whole.execute_notebooks(notebooks, args.out, parameters)
    for number, (notebook, seconds, error) in enumerate(ended, start=1):
        result = f"FAILED in {error}" if error else "done"
        line = f"[{number}/{len(notebooks)}] {notebook.stem:<18}"
        print(f"{line} {seconds:4.0f} s  {result}", flush=True)
        if error:
            failed.append(notebook.stem)
    print(f"The executed notebooks are in {args.out.absolute() / 'notebooks'}")
    if failed:
        print(f"fednb: {', '.join(failed)} failed; the copies show where.", file=sys.stderr)
    return int(bool(failed))


def _settings(args: argparse.Namespace) -> None:
    print(settings.table(), end="")


def _data(args: argparse.Namespace) -> None:
    from fednb_lab import datasets

    if args.name is not None:
        datasets.get(args.name, args.given)
    elif args.given is not None:
        raise FednbError("Say which data set is in that folder: fednb data NAME --from PATH.")
    else:
        print("data set         what is here of it", flush=True)
        for name in data.NAMES:
            print(f"{name:<16} {datasets.state(name)}", flush=True)


def _split(args: argparse.Namespace) -> None:
    from fednb_lab.course import solutions  # slow to import

    print(f"Solutions are in {solutions.split(args.notebook)}")


def _completion(args: argparse.Namespace) -> None:
    try:
        import shtab  # an extra: most people need it once, or never
    except ImportError:
        message = "Completion is written by shtab, which is missing: python -m pip install shtab"
        raise FednbError(message) from None
    print(shtab.complete(_parser(), shell=args.shell))


def _course(args: argparse.Namespace) -> int:
    if "notebook" in args:
        papers.path(args.notebook)  # a name that nobody knows is told at once
    print("Starting nbgrader", file=sys.stderr)
    # slow to import, and nbgrader may be missing
    if args.step == "release":
        from fednb_lab.course import handout

        print(f"Hand out what is in {handout.release(args.notebook).parent}")
        print("Students install the wheel in course/students: it holds no solutions")
        return 0
    if args.step == "check":
        from fednb_lab.course.check import check

        return _print_checks(*check(args.path))
    from fednb_lab.course import grading

    is_sandboxed = not args.no_sandbox
    path, rows = grading.grade(args.notebook, args.path, jobs=args.jobs, is_sandboxed=is_sandboxed)
    scores = rows["score"].astype(float)
    points = f"{scores.mean():.1f} of {rows['max_score'].max():g} points on average"
    print(f"{len(rows)} submissions, {points if scores.notna().any() else 'none has points yet'}")
    print(f"{rows['to_grade_by_hand'].eq(True).sum()} of them with answers to grade by hand")
    name = path.with_suffix("")
    print(Path(f"{name}-exercises.csv").read_text(encoding="utf-8"))
    print(f"scores: {path}\nfor a learning-management system: {name}-points.csv")
    print(f"feedback: {path.parent / 'feedback'}, to upload: {name}-feedback.zip")
    return 0


def _print_checks(errors: Mapping[str, str | None], remarks: Iterable[str]) -> int:
    """Print what is wrong with each exercise, if anything, and remarks; the exit status."""
    for name, error in errors.items():
        good = "answered; a person grades it" if "answer" in name else "passed"
        print(f"{name}: {error or good}")
    for remark in remarks:
        print(f"note: {remark}")
    return int(any(errors.values()))


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
        status = args.command(args) or 0
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
    if rest and not (args.command is run_commands.compare and all("=" in word for word in rest)):
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
