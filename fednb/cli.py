"""The command line: ``python -m fednb COMMAND``; without one, all are named."""

import argparse
import ast
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from fednb import data, papers, reporting  # these import what takes long when a command needs it
from fednb.errors import FednbError, RunError, SweepError
from fednb.experiments import ledger, settings
from fednb.sweeps import execution, scaffold, whole
from fednb.sweeps.files import read_tables
from fednb.sweeps.jobs import Notebook, notebooks_of_methods
from fednb.sweeps.plan import median_duration, recorded_and_missing, select
from fednb.sweeps.processes import log_of, run_in_the_foreground
from fednb.sweeps.table import Job, Table

Command = Callable[[argparse.Namespace], int | None]  # the exit status, None for 0
Add = Callable[..., Any]  # an argument to a command: what `ArgumentParser.add_argument` takes


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def assignment(text: str) -> tuple[str, Any]:
    """Name and value of ``name=value``; what is no value of Python's is a text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not of the form name=value")
    is_word = value.lower() in ("true", "false", "none")
    try:
        return name, ast.literal_eval(value.title() if is_word else value[:1000])
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fednb", description="The command line of FedNB."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_notebooks(commands)
    _add_sweep(commands)
    _add_run_list_report_new(commands)
    _add_compare(commands)
    _add_settings_and_data(commands)
    _add_course(commands)
    return parser


def _add_command(commands: Any, name: str, command: Command, summary: str) -> Add:
    """A command with its help; returns what adds arguments to it."""
    description = f"{summary[0].upper()}{summary[1:]}."
    parser = commands.add_parser(name, help=summary, description=description)
    parser.set_defaults(command=command)
    return parser.add_argument


def _add_notebooks(commands: Any) -> None:
    summary = "execute every notebook from top to bottom at its defaults"
    add = _add_command(commands, "notebooks", _notebooks, summary)
    add("--out", type=Path, default=Path("build/run"), metavar="FOLDER", help="default: build/run")
    add("--seed", type=int, metavar="N", help="instead of the notebooks' own")


def _add_sweep(commands: Any) -> None:
    summary = "make the runs of a paper's tables that are not recorded yet"
    add = _add_command(commands, "sweep", _sweep, summary)
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
    add = _add_command(commands, "run", _run, "make one run of a notebook")
    notebook_help = "for instance 00_foundations, foundations or 00; or a path"
    add("notebook", metavar="NOTEBOOK", help=notebook_help)
    add("parameters", nargs="*", type=assignment, metavar="name=value")

    summary = "notebooks, and of each table how much is recorded, and how long a run took"
    _add_command(commands, "list", _list, summary)

    summary = "write the reproduction report, the papers' tables, and figures"
    add = _add_command(commands, "report", _report, summary)
    add("--runs", type=Path, metavar="FOLDER", help="where the records are (default: results/runs)")
    add("--out", type=Path, metavar="FOLDER", help="where to write (default: beside the records)")

    summary = "write a notebook and a sweep file to begin a method with"
    add = _add_command(commands, "new", _new, summary)
    add("name", metavar="NAME", help="for instance my_method")


def _add_compare(commands: Any) -> None:
    summary = "methods against the first one in one setting: the missing runs, a table, a figure"
    add = _add_command(commands, "compare", _compare, summary)
    methods_help = "for instance MOON, or the path of a notebook; then name=value"
    add("methods", nargs="+", metavar="METHOD", help=methods_help)
    add("--seeds", type=_count, default=3, metavar="N", help="default: 3")
    add("--jobs", type=_count, default=1, metavar="N", help="runs at once (default: 1)")
    add("--dataset", default="digits", metavar="NAME", help="default: digits")


def _add_settings_and_data(commands: Any) -> None:
    _add_command(commands, "settings", _settings, "write all settings as a table in Markdown")
    add = _add_command(commands, "data", _data, "list the data sets, or download one")
    name_help = "for instance cifar10; without it, all are listed"
    add("name", nargs="?", metavar="NAME", help=name_help)


def _add_course(commands: Any) -> None:
    summary = "hand out the notebooks without solutions, check and grade what comes back"
    course = commands.add_parser("course", help=summary)
    steps = course.add_subparsers(required=True, metavar="STEP", dest="step")

    summary = "write the students' version of a notebook into course/release"
    add = _add_command(steps, "release", _course, summary)
    add("notebook", metavar="NOTEBOOK", help="for instance 01_moon")

    summary = "for students: run the visible checks of a notebook"
    add = _add_command(steps, "check", _course, summary)
    add("path", type=Path, metavar="FILE", help="the notebook that was handed out")

    summary = "grade a folder of submissions: scores as CSV, and feedback pages"
    add = _add_command(steps, "grade", _course, summary)
    add("notebook", metavar="NOTEBOOK", help="for instance 01_moon")
    path_help = "NAME.ipynb, or a folder for each NAME, as nbgrader has it"
    add("path", type=Path, metavar="FOLDER", help=path_help)
    add("--jobs", type=_count, default=1, metavar="N", help="submissions at once (default: 1)")


def _notebooks(args: argparse.Namespace) -> int:
    notebooks = papers.notebooks(extras=True)
    parameters = {} if args.seed is None else {"seed": args.seed}
    number = 0

    def show(executed: whole.Executed) -> None:
        nonlocal number
        number += 1
        result = f"FAILED in {executed.error}" if executed.error else "done"
        line = f"[{number}/{len(notebooks)}] {executed.notebook.stem:<18}"
        print(f"{line} {executed.seconds:4.0f} s  {result}", flush=True)

    print(f"Executing {len(notebooks)} notebooks", flush=True)
    ended = whole.execute_notebooks(notebooks, args.out, parameters, show)
    print(f"The executed notebooks are in {args.out.absolute() / 'notebooks'}")
    failed = [executed.notebook.stem for executed in ended if executed.error]
    if failed:
        print(f"fednb: {', '.join(failed)} failed; the copies show where.", file=sys.stderr)
    return int(bool(failed))


def _sweep(args: argparse.Namespace) -> int:
    if args.jobs and args.scheduler:
        raise SweepError(
            "A cluster's workers decide how many runs are made at once: leave out --jobs or --scheduler."
        )
    print(f"Reading {args.path}", flush=True)
    tables = read_tables(args.path)
    only = [("table", name) for name in args.table]
    only += [("tier", name) for name in args.tier]
    only += args.only
    selected = select([job for table in tables.values() for job in table.jobs], only)
    recorded, missing = recorded_and_missing(selected)
    number = len(recorded) + len(missing)
    print(f"{number} runs: {len(recorded)} recorded, {len(missing)} to do.", flush=True)
    names = dict.fromkeys(job.table for job in selected)
    _check_measures(tables[name] for name in names)
    if args.dry_run:
        _print_plan([tables[name] for name in names], missing)
        return 0
    if not missing:
        return 0
    outcomes = execution.run(missing, jobs=args.jobs or 1, scheduler=args.scheduler)
    failed = [outcome for outcome in outcomes if outcome.error]
    for job, error in failed:
        print(f"failed: {job.path.stem}: {error}\n        log: {log_of(job.path)}")
    folders = ", ".join(dict.fromkeys(str(job.path.parent) for job in missing))
    succeeded = len(outcomes) - len(failed)
    print(f"{succeeded} runs made, {len(failed)} failed; records are in {folders}.")
    return int(bool(failed))


def _check_measures(tables: Iterable[Table]) -> None:
    """Refuse a table with a measure that nobody knows."""
    from fednb.analysis import cells  # slow to import, and only now surely needed

    for table in tables:
        cells.check_measures(table)


def _print_plan(tables: Sequence[Table], missing: Sequence[Job]) -> None:
    """Print how long the tables' runs took, and which would be made."""
    for table in tables:
        duration = median_duration(table.jobs)
        if duration:
            print(f"{table.name}: a run took {duration}")
    for job in missing:
        parameters = " ".join(f"{name}={value}" for name, value in job.parameters.items())
        print(f"{job.table}: {job.notebook} {parameters}".rstrip())


def _run(args: argparse.Namespace) -> int:
    job = Notebook(args.notebook).job(dict(args.parameters))
    print(job.settings, flush=True)
    if job.status in ledger.RESULTS:
        print("This run is recorded already.")
    else:
        execution.check_prerequisites([job])
        error = run_in_the_foreground(job)
        if error:
            print(f"fednb: the run failed: {error}", file=sys.stderr)
            return 1
    record = ledger.read(job.path)
    accuracy = record.get("final", {}).get("accuracy")
    text = "no accuracy" if accuracy is None else f"accuracy {accuracy:.2f} %"
    print(f"{text} ({record['status']})")
    print(f"record: {job.path}")
    return 0


def _list(args: argparse.Namespace) -> None:
    print(*(notebook.stem for notebook in papers.notebooks()), sep="\n", flush=True)
    sweeps = papers.folder() / "sweeps"
    if not any(sweeps.glob("*.yaml")):
        return
    for table in read_tables(sweeps).values():
        recorded, missing = recorded_and_missing(table.jobs)
        count = f"{len(recorded)}/{len(recorded) + len(missing)}"
        duration = median_duration(table.jobs)
        title = f"{table.title} ({duration} a run)" if duration else table.title
        tiers = ", ".join(table.tiers)
        print(f"{table.file.name}  {table.name:<28} {count:>7} recorded  {tiers:<22}  {title}")


def _report(args: argparse.Namespace) -> None:
    folder = (args.runs or ledger.runs_folder()).absolute()
    if not folder.is_dir():
        raise RunError(f"There is no folder of run records at {folder}.")
    print(f"Reading the records in {folder}", flush=True)
    out = (args.out or folder.parent).absolute()
    pages: Mapping[Path, str] = reporting.make_pages(papers.folder() / "sweeps", folder, out)
    for path, content in pages.items():
        ledger.write_atomically(path, content)
    report = out / "REPORT.md"
    print(_findings(pages[report]) if args.out else pages[report])
    print(f"{len(pages)} files written; what holds up, and what does not, is in {report}")


def _findings(report: str) -> str:
    """What was found on the main claims, from the first section of the report: a line each, below their papers."""
    section = report.partition("\n## ")[0]
    lines = []
    for line in section.splitlines():
        is_claim = line.startswith("- ") and not line.startswith("- **")
        is_heading = line.startswith("**")
        if is_claim or is_heading:
            lines.append(f"\n{line}" if is_heading else line)
    text = re.sub(r" \[[^\]]*\]\(#[^)]*\)\.?", "", "\n".join(lines))  # a link to another section
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return text.replace("*", "") + "\n"


def _new(args: argparse.Namespace) -> None:
    notebook, sweep_file = scaffold.new_method(args.name, Path.cwd())
    next_step = f"change the method, then python -m fednb compare FedAvg {notebook.name}"
    print(f"{notebook.name}, {sweep_file.name}: {next_step}")


def _compare(args: argparse.Namespace) -> None:
    overrides = dict(assignment(word) for word in args.methods if "=" in word)
    names = [word for word in args.methods if "=" not in word]
    notebooks = notebooks_of_methods(names)  # first, as what comes next is slow to import
    print(f"Comparing {', '.join(notebooks)}", file=sys.stderr)
    from fednb.reporting.head_to_head import compare

    setting = {"dataset": args.dataset} | overrides
    text, paths = compare(notebooks, setting, seeds=args.seeds, jobs=args.jobs)
    print(text, *paths, sep="\n")


def _settings(args: argparse.Namespace) -> None:
    print(settings.table(), end="")


def _data(args: argparse.Namespace) -> None:
    if args.name is None:
        print("data set         what is here of it", flush=True)
        for name in data.NAMES:
            print(f"{name:<16} {data.where(name)}", flush=True)
    else:
        data.download(args.name)


def _course(args: argparse.Namespace) -> int:
    if "notebook" in args:
        papers.path(args.notebook)  # a name that nobody knows is told at once
    print("Starting nbgrader", file=sys.stderr)
    from fednb import course  # slow to import, and nbgrader may be missing

    if args.step == "release":
        print(f"Hand out what is in {course.release(args.notebook).parent}")
        return 0
    if args.step == "check":
        return _print_checks(course.check(args.path))
    from fednb.course import grading

    path, rows = grading.grade(args.notebook, args.path, jobs=args.jobs)
    scores = rows["score"].astype(float)
    points = f"{scores.mean():.1f} of {rows['max_score'].max():g} points on average"
    print(f"{len(rows)} submissions, {points if scores.notna().any() else 'none has points yet'}")
    print(f"{rows['to_grade_by_hand'].eq(True).sum()} of them with answers to grade by hand")
    print(f"scores: {path}\nfor a learning-management system: {path.stem}-points.csv beside it")
    print(f"feedback: {path.parent / 'feedback'}")
    return 0


def _print_checks(errors: Mapping[str, str | None]) -> int:
    """Print what is wrong with each exercise, if anything; the exit status."""
    for name, error in errors.items():
        good = "answered; a person grades it" if "answer" in name else "passed"
        print(f"{name}: {error or good}")
    return int(any(errors.values()))


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit status: 0, 1 if a run failed, 2 for what cannot be done, 130 after Ctrl-C.

    Without arguments those of the program are taken, and the process is the command's own.
    """
    if arguments is None:
        arguments = sys.argv[1:]
        _stop_at_the_first_interrupt()
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
    except (FednbError, OSError) as error:  # their messages say all that a person needs
        message = str(error) or type(error).__name__
        if isinstance(error, OSError) and error.filename:
            message = f"{error.filename}: {error.strerror}."
        print(f"fednb: {message}", file=sys.stderr)
        return 2


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = _parser()
    args, rest = parser.parse_known_args(arguments)
    if rest and not (args.command is _compare and all("=" in word for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:  # argparse takes no positional words after an option
        args.methods += rest
    return args


def _stop_at_the_first_interrupt() -> None:
    """Ctrl-C, and `timeout -s INT`, which sends it twice: what ends a sweep must not be interrupted itself."""

    def interrupt(*_: Any) -> NoReturn:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a script's job ignores it
        signal.signal(signal.SIGINT, interrupt)
