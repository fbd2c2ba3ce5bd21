"""The commands that make runs and tell of them, called by `fednb_lab.cli`."""

import argparse
import ast
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fednb import ROOT, papers
from fednb.errors import RunError, SweepError
from fednb.experiments import ledger
from fednb_lab import reporting  # imports what takes long when a command needs it
from fednb_lab.sweeps import execution, scaffold
from fednb_lab.sweeps.files import read_tables
from fednb_lab.sweeps.jobs import Notebook, contestants_of
from fednb_lab.sweeps.plan import median_duration, recorded_and_missing, select
from fednb_lab.sweeps.processes import log_of, run_in_the_foreground
from fednb_lab.sweeps.table import Job, Table

_SHOWN_AT_ONCE = 3  # tables that are printed after a sweep; of more the pages are named


def sweep(args: argparse.Namespace) -> int:
    """``fednb sweep``: 1 if a run failed."""
    if args.jobs and args.scheduler is not None:
        raise SweepError(
            "A cluster's workers decide how many runs are made at once: leave out --jobs or "
            "--scheduler."
        )
    if args.scheduler == "":
        raise SweepError("--scheduler needs an address, such as tcp://HOST:8786.")
    print(f"Reading {args.path}", flush=True)
    tables = read_tables(args.path)
    only = [("table", name) for name in args.table]
    only += [("tier", name) for name in args.tier]
    only += args.only
    selected = select([job for table in tables.values() for job in table.jobs], only)
    recorded, missing = recorded_and_missing(selected)
    number = len(recorded) + len(missing)
    print(f"{number} runs: {len(recorded)} recorded, {len(missing)} to do.", flush=True)
    named = [tables[name] for name in dict.fromkeys(job.table for job in selected)]
    _check_tables(named)
    if args.dry_run:
        _print_plan(named, missing)
        return 0
    failed = []
    if missing:
        outcomes = execution.run(missing, jobs=args.jobs or 1, scheduler=args.scheduler)
        failed = [outcome for outcome in outcomes if outcome.error]
    _show_tables(list(tables.values()), named)
    for job, error in failed:
        print(f"failed: {job.path.stem}: {error}\n        log: {log_of(job.path)}")
    if missing:
        folders = ", ".join(dict.fromkeys(str(job.path.parent) for job in missing))
        succeeded = len(missing) - len(failed)
        print(f"{succeeded} runs made, {len(failed)} failed; records are in {folders}.")
    return int(bool(failed))


def _show_tables(tables: Sequence[Table], named: Sequence[Table]) -> None:
    """Print the tables of a sweep, if they are few; of a file of one's own write their page."""
    from fednb_lab.reporting import markdown, pages  # slow to import

    shown = named if len(named) <= _SHOWN_AT_ONCE else []
    own = [table for table in tables if markdown.is_own(table)]
    cells = pages.recorded_cells({table.name: table for table in [*own, *shown]}.values())
    for text in pages.tables_with_runs(shown, cells):
        print(f"\n{text}")
    for file in dict.fromkeys(table.file for table in own):
        _write(pages.own_pages([table for table in own if table.file == file], cells))
    if not own and len(named) > _SHOWN_AT_ONCE:
        print("fednb report writes their tables.")


def _write(files: Mapping[Path, str]) -> None:
    """Write files, and say where they are."""
    for path, content in files.items():
        ledger.write_atomically(path, content)
        print(path)


def _check_tables(tables: Iterable[Table]) -> None:
    """Refuse a table with a measure, or an original, that nobody knows."""
    from fednb_lab.analysis import cells  # slow to import, and only now surely needed

    for table in tables:
        cells.cells_of(table, {})  # of no records: what is printed is looked up all the same


def _print_plan(tables: Sequence[Table], missing: Sequence[Job]) -> None:
    """Print how long the tables' runs took, and which would be made."""
    for table in tables:
        duration = median_duration(table.jobs)
        if duration:
            print(f"{table.name}: a run took {duration}")
    for job in missing:
        parameters = " ".join(f"{name}={value}" for name, value in job.parameters.items())
        print(f"{job.table}: {job.notebook} {parameters}".rstrip())


def run(args: argparse.Namespace) -> int:
    """``fednb run``: 1 if it failed."""
    job = Notebook(args.notebook).job(dict(args.parameters))
    print(job.settings, flush=True)
    model = job.path.with_suffix(".pt")
    lacks_model = args.save_model and job.recorded.status == "finished" and not model.exists()
    if job.recorded.status in ledger.RESULTS and not lacks_model:
        print("This run is recorded already.")
    else:
        execution.check_prerequisites([job])
        error = run_in_the_foreground(job, save_model=args.save_model)
        if error:
            print(f"fednb: the run failed: {error}", file=sys.stderr)
            return 1
    record = ledger.read(job.path)
    accuracy = record.get("final", {}).get("accuracy")
    text = "no accuracy" if accuracy is None else f"accuracy {accuracy:.2f} %"
    print(f"{text} ({record['status']})")
    print(f"record: {job.path}")
    if args.save_model and model.exists():
        print(f"model: {model}")
    return 0


def list_tables(args: argparse.Namespace) -> None:
    """``fednb list``."""
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


def report(args: argparse.Namespace) -> None:
    """``fednb report``, of the project or of a sweep file of one's own."""
    if args.path is not None:
        _report_own(args)
        return
    folder = (args.runs or ledger.runs_folder()).absolute()
    if not folder.is_dir():
        raise RunError(f"There is no folder of run records at {folder}.")
    from fednb_lab import for_readers  # slow to import

    print(f"Reading the records in {folder}", flush=True)
    out = (args.out or folder.parent).absolute()
    results = reporting.read_results(papers.folder() / "sweeps", folder)
    pages: dict[Path, str] = reporting.make_pages(results, out)
    if out == ROOT / "results":  # what notebooks show
        pages |= {out / name: text for name, text in for_readers.files(results).items()}
    for path, content in pages.items():
        ledger.write_atomically(path, content)
    print(reporting.main_claims(results.claims))
    print(f"{len(pages)} files written; all that was found is in {out / 'REPORT.md'}")


def _report_own(args: argparse.Namespace) -> None:
    """The tables of one sweep file, printed and written."""
    if args.runs is not None:
        raise SweepError(
            "A sweep file knows where its records are: leave out --runs, or set FEDNB_RUNS."
        )
    tables = list(read_tables(args.path).values())
    _check_tables(tables)
    from fednb_lab.reporting import pages  # slow to import

    cells = pages.recorded_cells(tables)
    for text in pages.tables_with_runs(tables, cells):
        print(f"{text}\n")
    _write(pages.own_pages(tables, cells, args.out))


def new(args: argparse.Namespace) -> None:
    """``fednb new``."""
    notebook, sweep_file = scaffold.new_method(args.name, Path.cwd())
    next_step = f"change the method, then fednb compare FedAvg {notebook.name}"
    print(f"{notebook.name}, {sweep_file.name}: {next_step}")


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


def compare(args: argparse.Namespace) -> None:
    """``fednb compare``, of the methods among the words, in the setting that the others make."""
    overrides = dict(assignment(word) for word in args.methods if "=" in word)
    names = [word for word in args.methods if "=" not in word]
    contestants = contestants_of(names)  # first, as what comes next is slow to import
    print(f"Comparing {', '.join(contestants)}", file=sys.stderr)
    from fednb_lab.reporting import head_to_head

    setting = {"dataset": args.dataset} | overrides
    text, paths = head_to_head.compare(contestants, setting, seeds=args.seeds, jobs=args.jobs)
    print(text, *paths, sep="\n")


def check(args: argparse.Namespace) -> int:
    """``fednb check``: 1 if the cell does not agree with its records."""
    from fednb_lab.reporting import again, words  # slow to import

    cell = again.cell_to_check(args.table, args.row, args.column)
    runs = again.recorded_runs(cell, args.seeds)
    seconds = sum(record.get("wall_seconds", 0.0) for _, record in runs)
    took = tqdm.format_interval(int(seconds))
    devices = ", ".join(dict.fromkeys(record.get("device", "unknown") for _, record in runs))
    print(f"{cell.table}: {cell.row}, {cell.column}: {words.measured(cell)}")
    print(f"{words.seeds(len(runs))} to make again; when recorded they took {took} on {devices}.")
    if args.dry_run:
        return 0
    sys.stdout.flush()
    made = again.make_again(runs, jobs=args.jobs)
    print(again.outcome(made))
    return int(not all(one.agrees for one in made))
