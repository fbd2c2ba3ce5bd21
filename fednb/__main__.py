"""The command line: ``python -m fednb sweep | run | list | status | report | data | course``."""

from __future__ import annotations

import argparse
import ast
import sys
import time
from pathlib import Path
from typing import Any

from fednb.experiments import durations

# what needs torch is imported by the commands: help and usage errors come at once


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _duration(text: str) -> float:
    try:
        return durations.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    words = {"true": True, "false": False, "null": None, "none": None}
    if value.lower() in words:
        return name, words[value.lower()]
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fednb", description=__doc__.partition(":")[0] + " of FedNB.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    sweep = commands.add_parser("sweep", help="make the runs of a paper's tables that are not recorded yet")
    sweep.add_argument("path", type=Path, metavar="FILE_OR_FOLDER", help="a sweep file, or a folder of them")
    sweep.add_argument("--table", action="append", metavar="NAME", help="only this table; may be given again")
    sweep.add_argument("--tier", action="append", metavar="TIER", help="only runs of this tier; may be given again")
    sweep.add_argument(
        "--only",
        action="append",
        type=_assignment,
        metavar="name=value",
        help="only runs with this setting, for instance dataset=cifar10; may be given again",
    )
    place = sweep.add_mutually_exclusive_group()
    place.add_argument("--jobs", type=_count, default=1, metavar="N", help="runs at once (default: 1)")
    place.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="make the runs on the dask cluster whose scheduler is there, tcp://HOST:PORT, one per worker thread",
    )
    sweep.add_argument(
        "--budget",
        type=_duration,
        metavar="TIME",
        help="make what can be made in this time, 9m or 1h30m, say: only runs whose data are here and that are expected to "
        "end within what is left of it",
    )
    sweep.add_argument("--dry-run", action="store_true", help="say what would be run")
    sweep.set_defaults(command=_sweep)

    run = commands.add_parser("run", help="make one run of a notebook")
    run.add_argument("notebook", metavar="NOTEBOOK", help="for instance 00_foundations or foundations")
    run.add_argument("parameters", nargs="*", type=_assignment, metavar="name=value")
    run.set_defaults(command=_run)

    listing = commands.add_parser("list", help="notebooks, tables, and how much of each table is recorded")
    listing.set_defaults(command=_list)

    status = commands.add_parser("status", help="how far all runs are, each counted once, and how long the rest takes here")
    status.add_argument(
        "path", type=Path, nargs="?", metavar="FILE_OR_FOLDER", help="a sweep file, or a folder of them (default: all)"
    )
    status.add_argument("--tier", action="append", metavar="TIER", help="only runs of this tier; may be given again")
    status.set_defaults(command=_status)

    report = commands.add_parser("report", help="write the reproduction report, the papers' tables, and figures")
    report.add_argument("--runs", type=Path, metavar="FOLDER", help="where the records are (default: results/runs)")
    report.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (default: beside the records)")
    report.set_defaults(command=_report)

    data = commands.add_parser("data", help="list the data sets, or download one")
    data.add_argument("name", nargs="?", metavar="NAME", help="for instance cifar10; without it, all are listed")
    data.set_defaults(command=_data)

    course = commands.add_parser("course", help="hand out the notebooks without solutions, check and grade what comes back")
    steps = course.add_subparsers(required=True, metavar="STEP")
    release = steps.add_parser("release", help="write the students' version of a notebook")
    release.add_argument("notebook", metavar="NOTEBOOK", help="for instance 01_moon")
    release.add_argument("--kind", choices=("exercises", "implementation"), default="exercises", help="default: exercises")
    release.set_defaults(command=_course_release)
    check = steps.add_parser("check", help="for students: run the visible checks of a notebook")
    check.add_argument("path", type=Path, metavar="FILE", help="the notebook that was handed out")
    check.add_argument("--timeout", type=_count, default=60, metavar="S", help="seconds for a cell (default: 60)")
    check.set_defaults(command=_course_check)
    grade = steps.add_parser("grade", help="grade a folder of submissions: scores as CSV, and feedback pages")
    grade.add_argument("path", type=Path, metavar="FOLDER", help="NAME.ipynb, or a folder for each NAME, as nbgrader has it")
    grade.add_argument("--assignment", metavar="NAME", help="for instance 01_moon-exercises (default: what the files say)")
    grade.add_argument("--seed", default="fednb", metavar="TEXT", help="decides the hidden inputs, with the student's name")
    grade.add_argument("--timeout", type=_count, default=60, metavar="S", help="seconds for a cell (default: 60)")
    grade.add_argument("--limit", type=_count, default=900, metavar="S", help="seconds for a submission (default: 900)")
    grade.add_argument("--again", action="store_true", help="also grade what is graded and has not changed")
    grade.set_defaults(command=_course_grade)
    for step in (release, grade):
        step.add_argument("--course", type=Path, metavar="FOLDER", help="nbgrader's course folder (default: course)")
    return parser


def _sweep(args: argparse.Namespace) -> int:
    begin = time.monotonic()  # reading the sweeps is part of a budget

    from fednb.experiments import ledger, settings, sweep

    if args.budget and args.scheduler:
        raise sweep.SweepError(sweep.NO_BUDGET)
    tables = sweep.read(args.path)
    for name in args.table or ():
        if name not in tables:
            raise sweep.SweepError(f"There is no table {name!r} in {args.path}: {settings.known(name, tables)}")
    chosen = [table for table in tables.values() if not args.table or table.name in args.table]
    chosen = sweep.choose(chosen, args.tier or (), args.only or ())
    recorded, todo = sweep.plan(chosen)
    print(f"{len(recorded) + len(todo)} runs: {len(recorded)} recorded, {len(todo)} to do.", flush=True)
    if args.dry_run:
        forecast = durations.Forecast(args.jobs) if args.budget else None
        for job in todo:
            parameters = " ".join(f"{name}={value}" for name, value in job.parameters.items())
            expected = ""
            if forecast:
                about = "no data" if sweep.lacks_data(job) else f"about {durations.words(forecast(job).seconds)}"
                expected = f"  ({about})"
            print(f"{job.table}: {job.notebook} {parameters}{expected}")
        return 0
    budget = args.budget and args.budget - (time.monotonic() - begin)
    summary = sweep.run(chosen, jobs=args.jobs, scheduler=args.scheduler, budget=budget)
    for job in summary.diverged:
        print(f"diverged: {job.path.stem}")
    for job, error in summary.failed:
        print(f"failed: {job.path.stem}: {error}\n        log: {sweep.log_path(job)}")
    if todo:
        made = f"{len(summary.done)} runs made, {len(summary.failed)} failed"
        if args.budget:
            made += f", {len(summary.stopped)} stopped at the end of the budget, {len(summary.unfit)} did not fit"
            if summary.unfit:
                made += f" (the shortest takes about {durations.words(min(seconds for _, seconds in summary.unfit))})"
            if summary.without_data:
                made += f", {len(summary.without_data)} lack data"
        print(f"{made}; records are in {ledger.runs_folder()}.")
    return 1 if summary.failed else 0


def _run(args: argparse.Namespace) -> int:
    from fednb.experiments import ledger, sweep

    job = sweep.job(args.notebook, dict(args.parameters))
    print(job.settings, flush=True)
    if job.recorded:
        print("This run is recorded already.")
    else:
        sweep.prepare([job])
        error = sweep.execute(job, sweep.logs_folder(), sweep.environment(), echo=_show_round)
        if error is not None:
            print(f"fednb: the run failed: {error}\n       log: {sweep.log_path(job)}", file=sys.stderr)
            return 1
    record = ledger.read(job.path)
    accuracy = record.get("final", {}).get("accuracy")
    print("no accuracy" if accuracy is None else f"accuracy {accuracy:.2f} %", f"({record['status']})")
    print(f"record: {job.path}")
    return 0


def _show_round(line: str) -> None:
    if line.startswith("round "):
        print(line, flush=True)


def _list(args: argparse.Namespace) -> int:
    from fednb import papers
    from fednb.experiments import sweep

    for notebook in papers.notebooks():
        print(notebook.stem)
    sweeps = papers.folder() / "sweeps"
    for table in sweep.read(sweeps).values() if any(sweeps.glob("*.yaml")) else ():
        recorded, todo = sweep.plan([table])
        count = f"{len(recorded)}/{len(recorded) + len(todo)}"
        tiers = ", ".join(table.tiers)
        print(f"{table.file.name}  {table.name:<28} {count:>7} recorded  {tiers:<22}  {table.title}")
    return 0


def _status(args: argparse.Namespace) -> int:
    from fednb import papers
    from fednb.experiments import status, sweep

    tables = sweep.read(args.path or papers.folder() / "sweeps")
    print(status.text(sweep.choose(tables.values(), args.tier or ())))
    return 0


def _report(args: argparse.Namespace) -> int:
    from fednb import papers, reporting
    from fednb.experiments import ledger

    folder = (args.runs or ledger.runs_folder()).absolute()
    if not folder.is_dir():
        raise ledger.RunError(f"There is no folder of run records at {folder}.")
    results, out = reporting.read(papers.folder() / "sweeps", folder), (args.out or folder.parent).absolute()
    for name, table in results.tables.items():
        print(reporting.text(table, results.found[name]), end="\n\n")
    written = reporting.write_all(results, out)
    print(f"{len(written)} files written; the tables are listed in {out / 'tables' / 'README.md'}")
    print(f"What holds up, and what does not, is in {out / 'REPORT.md'}")
    return 0


def _data(args: argparse.Namespace) -> int:
    from fednb import data

    if args.name:
        data.download(args.name)
        return 0
    for name in data.NAMES:
        print(f"{name:<16} {data.where(name)}")
    return 0


def _course_release(args: argparse.Namespace) -> int:
    from fednb import course

    path = course.release(args.notebook, args.kind, args.course or course.FOLDER)
    print(f"Hand out what is in {path.parent}")
    if shown := course.gives_away(args.notebook, args.kind):
        print(f"It shows the methods of {', '.join(shown)} in full: collect implementations of these before.")
    return 0


def _course_check(args: argparse.Namespace) -> int:
    from fednb import course

    rows = course.check(args.path, args.timeout)
    for name, wrong in rows:
        right = "answered; a person grades it" if name.endswith("answer") else "passed"
        print(f"{name}: {wrong or right}")
    return int(any(wrong for _, wrong in rows))


def _course_grade(args: argparse.Namespace) -> int:
    from fednb.course import grading

    given = {"seed": args.seed, "timeout": args.timeout, "limit": args.limit, "again": args.again}
    path = grading.grade(args.path, args.assignment, args.course or grading.FOLDER, **given)
    rows = list(grading.scores(path))
    by_hand = sum(float(row["to_grade_by_hand"]) > 0 for row in rows)
    mean = sum(float(row["score"]) for row in rows) / len(rows)
    print(f"{len(rows)} submissions, {mean:.1f} of {rows[0]['max_score']} points on average")
    print(f"{by_hand} of them with answers to grade by hand")
    print(f"scores: {path}\nfeedback: {path.parent / 'feedback'}")
    return 0


def _errors() -> tuple[type[Exception], ...]:
    """The errors whose message is all that a person needs."""
    from fednb.course import CourseError
    from fednb.data import DataError
    from fednb.experiments.ledger import RunError
    from fednb.experiments.settings import SettingsError
    from fednb.experiments.sweep import SweepError
    from fednb.papers import NotebookError
    from fednb.partition import PartitionError
    from fednb.reporting.tables import ReportError

    return CourseError, DataError, NotebookError, PartitionError, ReportError, RunError, SettingsError, SweepError


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit status: 0, 1 if a run failed, 2 for a wrong request, 130 after Ctrl-C."""
    args = _parser().parse_args(arguments)
    try:
        return args.command(args)
    except KeyboardInterrupt:
        print("\nfednb: stopped; the same command goes on where this one ended.", file=sys.stderr)
        return 130
    except _errors() as error:
        print(f"fednb: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
