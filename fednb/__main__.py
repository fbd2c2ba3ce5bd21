"""The command line: ``python -m fednb notebooks | sweep | run | settings | list | report | data | course``."""

from __future__ import annotations

import argparse
import ast
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

# what takes long to import is imported by the commands that need it: help and wrong usage are told at once


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not of the form name=value")
    words = {"true": True, "false": False, "null": None, "none": None}
    if value.lower() in words:
        return name, words[value.lower()]
    try:
        return name, ast.literal_eval(value[:1000])  # nobody's number is longer
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fednb", description=__doc__.partition(":")[0] + " of FedNB.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Callable[..., int], says: str) -> Callable[..., argparse.Action]:
        found = commands.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}.")
        found.set_defaults(command=function)
        return found.add_argument

    add = command("notebooks", _notebooks, "execute every notebook from top to bottom at its defaults")
    add("--out", type=Path, default=Path("build/run"), metavar="FOLDER", help="default: build/run")
    add("--seed", type=int, metavar="N", help="instead of the notebooks' own")
    add = command("sweep", _sweep, "make the runs of a paper's tables that are not recorded yet")
    add("path", type=Path, metavar="FILE_OR_FOLDER", help="a sweep file, or a folder of them")
    add("--table", action="append", metavar="NAME", help="only this table; may be given again")
    add("--tier", action="append", metavar="TIER", help="only runs of this tier; may be given again")
    only = "only runs with this setting, for instance dataset=cifar10; may be given again"
    add("--only", action="append", type=_assignment, metavar="name=value", help=only)
    add("--jobs", type=_count, metavar="N", help="runs at once (default: 1)")
    there = "make the runs on the dask cluster whose scheduler is there, tcp://HOST:PORT, one per worker thread"
    add("--scheduler", metavar="ADDRESS", help=there)
    add("--dry-run", action="store_true", help="say what would be run")
    add = command("run", _run, "make one run of a notebook")
    add("notebook", metavar="NOTEBOOK", help="for instance 00_foundations, foundations or 00; or a path")
    add("parameters", nargs="*", type=_assignment, metavar="name=value")
    command("settings", _settings, "write all settings as a table in Markdown")
    command("list", _list, "notebooks, and of each table how much is recorded, and how long a run took")
    add = command("report", _report, "write the reproduction report, the papers' tables, and figures")
    add("--runs", type=Path, metavar="FOLDER", help="where the records are (default: results/runs)")
    add("--out", type=Path, metavar="FOLDER", help="where to write (default: beside the records)")
    add = command("data", _data, "list the data sets, or download one")
    add("name", nargs="?", metavar="NAME", help="for instance cifar10; without it, all are listed")

    course = commands.add_parser("course", help="hand out the notebooks without solutions, check and grade what comes back")
    course.set_defaults(command=_course)
    steps = course.add_subparsers(required=True, metavar="STEP", dest="step")
    add = steps.add_parser("release", help="write the students' version of a notebook into course/release").add_argument
    add("notebook", metavar="NOTEBOOK", help="for instance 01_moon")
    add = steps.add_parser("check", help="for students: run the visible checks of a notebook").add_argument
    add("path", type=Path, metavar="FILE", help="the notebook that was handed out")
    add = steps.add_parser("grade", help="grade a folder of submissions: scores as CSV, and feedback pages").add_argument
    add("notebook", metavar="NOTEBOOK", help="for instance 01_moon")
    add("path", type=Path, metavar="FOLDER", help="NAME.ipynb, or a folder for each NAME, as nbgrader has it")
    return parser


def _notebooks(args: argparse.Namespace) -> int:
    from fednb import papers
    from fednb.experiments import execute

    failed = execute.execute_all(papers.notebooks(), args.out, {} if args.seed is None else {"seed": args.seed})
    if failed:
        print(f"fednb: {', '.join(failed)} failed; the copies show where.", file=sys.stderr)
    return int(bool(failed))


def _sweep(args: argparse.Namespace) -> int:
    from fednb.experiments import execute, ledger, settings, sweep

    if args.jobs and args.scheduler:
        raise sweep.SweepError("A cluster's workers decide how many runs are made at once: leave out --jobs or --scheduler.")
    print(f"Reading {args.path}", flush=True)
    tables = sweep.read(args.path)
    for name in args.table or ():
        if name not in tables:
            raise sweep.SweepError(f"There is no table {name!r} in {args.path}: {settings.known(name, tables)}")
    chosen = [table for table in tables.values() if not args.table or table.name in args.table]
    chosen = sweep.choose(chosen, args.tier or (), args.only or ())
    recorded, todo = sweep.plan(chosen)
    print(f"{len(recorded) + len(todo)} runs: {len(recorded)} recorded, {len(todo)} to do.", flush=True)
    if any(table.measures != ["accuracy"] for table in chosen):
        from fednb.reporting import metrics

        for table in chosen:
            metrics.check(table)
    if args.dry_run:
        for table in (table for table in chosen if table.took):
            print(f"{table.name}: a run took {table.took}")
        for job in todo:
            print(f"{job.table}: {job.notebook}", *(f"{name}={value}" for name, value in job.parameters.items()))
        return 0
    made = sweep.run(chosen, jobs=args.jobs or 1, scheduler=args.scheduler)
    failed = [(job, error) for job, error in made if error]
    for job in {job.path: job for table in chosen for job in table.jobs if job.status == "diverged"}.values():
        print(f"diverged: {job.path.stem}")
    for job, error in failed:
        print(f"failed: {job.path.stem}: {error}\n        log: {execute.log_of(job.path)}")
    if todo:
        print(f"{len(made) - len(failed)} runs made, {len(failed)} failed; records are in {ledger.runs_folder()}.")
    return int(bool(failed))


def _run(args: argparse.Namespace) -> int:
    from fednb import ROOT, papers
    from fednb.experiments import execute, ledger, sweep

    if (file := Path(papers.name(args.notebook))).suffix:  # elsewhere: a record does not say whose code made it
        os.environ["FEDNB_NOTEBOOKS"] = str(file.parent)
        if file.is_relative_to(ROOT):
            os.environ.setdefault("FEDNB_RUNS", str(ROOT / "results" / "runs"))
    job = sweep.job(args.notebook, dict(args.parameters))
    print(job.settings, flush=True)
    if job.status in ledger.RESULTS:
        print("This run is recorded already.")
    else:
        print(f"log: {execute.log_of(job.path)}", flush=True)
        sweep.prepare([job])
        outcome = execute.make(job.notebook, job.parameters, job.path.name, 1, echo=_show_round)
        if outcome.error:
            print(f"fednb: the run failed: {outcome.error}", file=sys.stderr)
            return 1
    record = ledger.read(job.path)
    accuracy = record.get("final", {}).get("accuracy")
    print("no accuracy" if accuracy is None else f"accuracy {accuracy:.2f} %", f"({record['status']})")
    print(f"record: {job.path}")
    return 0


def _show_round(line: str) -> None:
    if line.startswith("round "):
        print(line, flush=True)


def _settings(args: argparse.Namespace) -> int:
    from fednb.experiments import settings

    print(settings.table(), end="")
    return 0


def _list(args: argparse.Namespace) -> int:
    from fednb import papers
    from fednb.experiments import sweep

    for notebook in papers.notebooks():
        print(notebook.stem, flush=True)
    sweeps = papers.folder() / "sweeps"
    for table in sweep.read(sweeps).values() if any(sweeps.glob("*.yaml")) else ():
        recorded, todo = sweep.plan([table])
        count, took = f"{len(recorded)}/{len(recorded) + len(todo)}", f" ({table.took} a run)" if table.took else ""
        print(f"{table.file.name}  {table.name:<28} {count:>7} recorded  {', '.join(table.tiers):<22}  {table.title}{took}")
    return 0


def _report(args: argparse.Namespace) -> int:
    from fednb import papers, reporting
    from fednb.experiments import ledger

    folder = (args.runs or ledger.runs_folder()).absolute()
    if not folder.is_dir():
        raise ledger.RunError(f"There is no folder of run records at {folder}.")
    print(f"Reading the records in {folder}", flush=True)
    results, out = reporting.read(papers.folder() / "sweeps", folder), (args.out or folder.parent).absolute()
    for name, table in results.tables.items():
        print(reporting.text(table, results.found[name]), end="\n\n")
    written = reporting.write_all(results, out)
    print(f"{len(written)} files written; what holds up, and what does not, is in {out / 'REPORT.md'}")
    return 0


def _data(args: argparse.Namespace) -> int:
    from fednb import data
    from fednb.data import catalog

    if args.name is not None:
        catalog.facts_of(args.name)  # a name that nobody knows is told at once
        data.download(args.name)
        return 0
    print("data set         what is here of it", flush=True)
    for name in data.NAMES:
        print(f"{name:<16} {data.where(name)}", flush=True)
    return 0


def _course(args: argparse.Namespace) -> int:
    from fednb import course

    if args.step == "release":
        print(f"Hand out what is in {course.release(args.notebook).parent}")
        return 0
    if args.step == "check":
        told = course.check(args.path)
        for name, wrong in told.items():
            print(f"{name}: {wrong or ('answered; a person grades it' if 'answer' in name else 'passed')}")
        return int(any(told.values()))
    import pandas as pd

    from fednb.course import grading

    path = grading.grade(args.notebook, args.path)
    rows = pd.read_csv(path)
    print(f"{len(rows)} submissions, {rows['score'].mean():.1f} of {rows['max_score'][0]:g} points on average")
    print(f"{rows['to_grade_by_hand'].eq(True).sum()} of them with answers to grade by hand")
    print(f"scores: {path}\nfeedback: {path.parent / 'feedback'}")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit status: 0, 1 if a run failed, 2 for a wrong request, 130 after Ctrl-C."""
    args = _parser().parse_args(arguments)
    try:
        status = args.command(args)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("\nfednb: stopped; the same command goes on where this one ended.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `... | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception as error:
        own = type(error).__module__.startswith("fednb.")  # the package's own errors say all that a person needs
        if not own and not isinstance(error, OSError):
            raise
        of_file = f"{error.filename}: {error.strerror}." if getattr(error, "filename", None) else ""
        print(f"fednb: {of_file or error or type(error).__name__}", file=sys.stderr)
        return 2


def _interrupt(*_: Any) -> NoReturn:
    """Ctrl-C, and `timeout -s INT`, which sends it twice: what ends a sweep must not be interrupted itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a background job of a script ignores it
        signal.signal(signal.SIGINT, _interrupt)
    sys.exit(main())
