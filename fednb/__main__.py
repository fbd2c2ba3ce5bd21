"""The command line: ``python -m fednb COMMAND``; without one, all are named."""

import argparse
import ast
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from fednb import data, papers, reporting  # these import what takes long when a command needs it
from fednb.errors import FednbError
from fednb.experiments import execute, ledger, settings, sweep


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not of the form name=value")
    try:
        return name, ast.literal_eval(
            value.title() if value.lower() in ("true", "false", "none") else value[:1000]
        )
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fednb", description="The command line of FedNB."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str, function: Callable[..., int | None], says: str, of: Any = commands
    ) -> Callable[..., Any]:
        found = of.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}.")
        found.set_defaults(command=function)
        return found.add_argument

    add = command(
        "notebooks", _notebooks, "execute every notebook from top to bottom at its defaults"
    )
    add("--out", type=Path, default=Path("build/run"), metavar="FOLDER", help="default: build/run")
    add("--seed", type=int, metavar="N", help="instead of the notebooks' own")
    add = command("sweep", _sweep, "make the runs of a paper's tables that are not recorded yet")
    add("path", type=Path, metavar="FILE_OR_FOLDER", help="a sweep file, or a folder of them")
    add(
        "--table",
        action="append",
        default=[],
        metavar="NAME",
        help="only this table; may be given again",
    )
    add(
        "--tier",
        action="append",
        default=[],
        metavar="TIER",
        help="only runs of this tier; may be given again",
    )
    add(
        "--only",
        action="append",
        default=[],
        type=_assignment,
        metavar="name=value",
        help="only runs with this setting",
    )
    add("--jobs", type=_count, metavar="N", help="runs at once (default: 1)")
    add(
        "--scheduler",
        metavar="tcp://HOST:PORT",
        help="of a dask cluster that makes the runs, one per worker thread",
    )
    add("--dry-run", action="store_true", help="say what would be run")
    add = command("run", _run, "make one run of a notebook")
    add(
        "notebook",
        metavar="NOTEBOOK",
        help="for instance 00_foundations, foundations or 00; or a path",
    )
    add("parameters", nargs="*", type=_assignment, metavar="name=value")
    command(
        "list", _list, "notebooks, and of each table how much is recorded, and how long a run took"
    )
    add = command(
        "report", _report, "write the reproduction report, the papers' tables, and figures"
    )
    add("--runs", type=Path, metavar="FOLDER", help="where the records are (default: results/runs)")
    add("--out", type=Path, metavar="FOLDER", help="where to write (default: beside the records)")
    add = command("new", _new, "write a notebook and a sweep file to begin a method with")
    add("name", metavar="NAME", help="for instance my_method")
    add = command(
        "compare",
        _compare,
        "methods against the first one in one setting: the missing runs, a table, a figure",
    )
    add(
        "methods",
        nargs="+",
        metavar="METHOD",
        help="for instance MOON, or the path of a notebook; then name=value",
    )
    add("--seeds", type=_count, default=3, metavar="N", help="default: 3")
    add("--jobs", type=_count, default=1, metavar="N", help="runs at once (default: 1)")
    add("--dataset", default="digits", metavar="NAME", help="default: digits")
    command(
        "settings",
        lambda _: print(settings.table(), end=""),
        "write all settings as a table in Markdown",
    )
    add = command("data", _data, "list the data sets, or download one")
    add("name", nargs="?", metavar="NAME", help="for instance cifar10; without it, all are listed")

    says = "hand out the notebooks without solutions, check and grade what comes back"
    steps = commands.add_parser("course", help=says).add_subparsers(
        required=True, metavar="STEP", dest="step"
    )
    add = command(
        "release", _course, "write the students' version of a notebook into course/release", steps
    )
    add("notebook", metavar="NOTEBOOK", help="for instance 01_moon")
    add = command("check", _course, "for students: run the visible checks of a notebook", steps)
    add("path", type=Path, metavar="FILE", help="the notebook that was handed out")
    add = command(
        "grade", _course, "grade a folder of submissions: scores as CSV, and feedback pages", steps
    )
    add("notebook", metavar="NOTEBOOK", help="for instance 01_moon")
    add(
        "path",
        type=Path,
        metavar="FOLDER",
        help="NAME.ipynb, or a folder for each NAME, as nbgrader has it",
    )
    return parser


def _notebooks(args: argparse.Namespace) -> int:
    notebooks, given = (
        papers.notebooks(extras=True),
        {} if args.seed is None else {"seed": args.seed},
    )
    if failed := execute.execute_all(notebooks, args.out, given):
        print(f"fednb: {', '.join(failed)} failed; the copies show where.", file=sys.stderr)
    return int(bool(failed))


def _sweep(args: argparse.Namespace) -> int:
    if args.jobs and args.scheduler:
        raise sweep.SweepError(
            "A cluster's workers decide how many runs are made at once: leave out --jobs or --scheduler."
        )
    print(f"Reading {args.path}", flush=True)
    tables = sweep.read(args.path)
    only = (
        [("table", name) for name in args.table]
        + [("tier", name) for name in args.tier]
        + args.only
    )
    chosen = sweep.choose([job for table in tables.values() for job in table.jobs], only)
    recorded, todo = sweep.plan(chosen)
    print(
        f"{len(recorded) + len(todo)} runs: {len(recorded)} recorded, {len(todo)} to do.",
        flush=True,
    )
    from fednb.analysis import cells  # slow to import, and only now surely needed

    for name in dict.fromkeys(job.table for job in chosen):
        cells.check_measures(tables[name])
        if args.dry_run and (took := sweep.took(tables[name].jobs)):
            print(f"{name}: a run took {took}")
    if args.dry_run:
        for job in todo:
            print(
                f"{job.table}: {job.notebook}",
                *(f"{name}={value}" for name, value in job.parameters.items()),
            )
    if args.dry_run or not todo:
        return 0
    made = sweep.run(todo, jobs=args.jobs or 1, scheduler=args.scheduler)
    failed = [(job, error) for job, error in made if error]
    for job, error in failed:
        print(f"failed: {job.path.stem}: {error}\n        log: {execute.log_of(job.path)}")
    print(
        f"{len(made) - len(failed)} runs made, {len(failed)} failed; records are in {ledger.runs_folder()}."
    )
    return int(bool(failed))


def _run(args: argparse.Namespace) -> int | None:
    job = sweep.Notebook(args.notebook).job(dict(args.parameters))
    print(job.settings, flush=True)
    if job.status in ledger.RESULTS:
        print("This run is recorded already.")
    else:
        sweep.prepare([job])
        os.environ.update(execute.environment())
        if error := execute.run(job.notebook, job.parameters):
            print(f"fednb: the run failed: {error}", file=sys.stderr)
            return 1
    record = ledger.read(job.path)
    accuracy = record.get("final", {}).get("accuracy")
    print(
        "no accuracy" if accuracy is None else f"accuracy {accuracy:.2f} %", f"({record['status']})"
    )
    print(f"record: {job.path}")


def _list(args: argparse.Namespace) -> None:
    print(*(notebook.stem for notebook in papers.notebooks()), sep="\n", flush=True)
    sweeps = papers.folder() / "sweeps"
    for table in sweep.read(sweeps).values() if any(sweeps.glob("*.yaml")) else ():
        (recorded, todo), took = sweep.plan(table.jobs), sweep.took(table.jobs)
        count, took = (
            f"{len(recorded)}/{len(recorded) + len(todo)}",
            f" ({took} a run)" if took else "",
        )
        print(
            f"{table.file.name}  {table.name:<28} {count:>7} recorded  {', '.join(table.tiers):<22}  {table.title}{took}"
        )


def _report(args: argparse.Namespace) -> None:
    folder = (args.runs or ledger.runs_folder()).absolute()
    if not folder.is_dir():
        raise ledger.RunError(f"There is no folder of run records at {folder}.")
    print(f"Reading the records in {folder}", flush=True)
    out = (args.out or folder.parent).absolute()
    written = reporting.make_pages(papers.folder() / "sweeps", folder, out)
    for path, content in written.items():
        ledger.write_atomically(path, content)
    print(written[out / "REPORT.md"])
    print(
        f"{len(written)} files written; what holds up, and what does not, is in {out / 'REPORT.md'}"
    )


def _new(args: argparse.Namespace) -> None:
    notebook, sweeps = sweep.new(args.name, Path.cwd())
    print(
        f"{notebook.name}, {sweeps.name}: change the method, then python -m fednb compare FedAvg {notebook.name}"
    )


def _compare(args: argparse.Namespace) -> None:
    given = dict(_assignment(word) for word in args.methods if "=" in word)
    methods = sweep.methods_of(
        word for word in args.methods if "=" not in word
    )  # before what is slow to import
    print(f"Comparing {', '.join(methods)}", file=sys.stderr)
    from fednb.reporting.head_to_head import compare

    text, paths = compare(
        methods, {"dataset": args.dataset} | given, seeds=args.seeds, jobs=args.jobs
    )
    print(text, *paths, sep="\n")


def _data(args: argparse.Namespace) -> None:
    if args.name is None:
        print("data set         what is here of it", flush=True)
        for name in data.NAMES:
            print(f"{name:<16} {data.where(name)}", flush=True)
    else:
        data.download(args.name)


def _course(args: argparse.Namespace) -> int | None:
    if "notebook" in args:
        papers.path(args.notebook)  # a name that nobody knows is told at once
    print("Starting nbgrader", file=sys.stderr)
    from fednb import course

    if args.step == "release":
        print(f"Hand out what is in {course.release(args.notebook).parent}")
    elif args.step == "check":
        told = course.check(args.path)
        for name, wrong in told.items():
            print(
                f"{name}: {wrong or ('answered; a person grades it' if 'answer' in name else 'passed')}"
            )
        return int(any(told.values()))
    else:
        from fednb.course import grading

        path, rows = grading.grade(args.notebook, args.path)
        print(
            f"{len(rows)} submissions, {rows['score'].mean():.1f} of {rows['max_score'][0]:g} points on average"
        )
        print(f"{rows['to_grade_by_hand'].eq(True).sum()} of them with answers to grade by hand")
        print(f"scores: {path}\nfeedback: {path.parent / 'feedback'}")


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit status: 0, 1 if a run failed, 2 for what cannot be done, 130 after Ctrl-C."""
    parser = _parser()
    args, more = parser.parse_known_args(
        (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    )
    if more and not (args.command is _compare and all("=" in word for word in more)):
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    if more:  # argparse takes no positional words after an option
        args.methods += more
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
    except Exception as error:
        if not isinstance(
            error, FednbError | OSError
        ):  # their messages say all that a person needs
            raise
        of_file = f"{error.filename}: {error.strerror}." if getattr(error, "filename", None) else ""
        print(f"fednb: {of_file or error or type(error).__name__}", file=sys.stderr)
        return 2


def _interrupt(*_: Any) -> NoReturn:
    """Ctrl-C, and `timeout -s INT`, which sends it twice: what ends a sweep must not be interrupted itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    if (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):  # a background job of a script ignores it
        signal.signal(signal.SIGINT, _interrupt)
    sys.exit(main())
