"""The commands of ``fednb``: each is a function, and its docstring is its help.

What it needs it imports when it is called, so that help and most errors come at once. The commands
of courses are in `fednb_lab.course.commands`.
"""

import os
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fednb.errors import FednbError, SweepError, check
from fednb_lab.arguments import (
    AGAIN,
    COUNT,
    JOBS,
    NOTEBOOK,
    SWEEP_FILES,
    assignment,
    check_sweep_file,
    each_given_once,
    fednb,
    for_methods,
    write,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    from fednb_lab.sweeps import Table

_SHOWN_AT_ONCE = 3  # tables that are printed after a sweep; of more the pages are named
_SETTINGS = "its settings, which notebooks/SETTINGS.md explains"


# ---- notebooks


@fednb.command()
@click.option("--out", type=Path, default="build/run", metavar="FOLDER", help="default: build/run")
@click.option("--seed", type=int, metavar="N", help="instead of the notebooks' own")
def notebooks(out: Path, seed: int | None) -> int:
    """Execute every notebook from top to bottom at its defaults.

    fednb notebooks
    fednb notebooks --seed 3 --out build/seed3
    """
    from fednb import papers
    from fednb_lab import engine, pool, processes

    out = out.absolute()
    files = papers.notebooks(extras=True)
    parameters = {} if seed is None else {"seed": seed}
    own = {"FEDNB_RUNS": str(out / "runs"), "FEDNB_PROGRESS": "off", "OMP_NUM_THREADS": "1"}
    (out / "logs").mkdir(parents=True, exist_ok=True)
    failed = []
    places = min(len(files), os.cpu_count() or 1)  # a notebook for each core, on one thread
    longest_first = sorted(files, key=lambda file: file.stat().st_size, reverse=True)
    print(f"Executing {len(files)} notebooks, {places} at once", flush=True)
    with processes.own_processes() as call:

        def start(file: Path, place: int) -> "Future[str]":
            environment = os.environ | pool.share(places, place) | own
            log = out / "logs" / f"{file.stem}.log"
            log.write_bytes(b"")
            task = (engine.execute_whole, file, out / "notebooks" / file.name, parameters)
            return call(*task, environment=environment, log=log)

        ended = pool.side_by_side(deque(longest_first), start, places)
        for number, (file, error) in enumerate(ended, start=1):
            if error:
                failed.append(file.stem)
            told = f"FAILED in {error}" if error else "done"
            print(f"[{number}/{len(files)}] {file.stem:<18} {told}", flush=True)
    print(f"The executed notebooks are in {out / 'notebooks'}")
    if failed:
        print(f"fednb: {', '.join(failed)} failed; the copies show where.", file=sys.stderr)
    return int(bool(failed))


@fednb.command()
@NOTEBOOK
@click.argument("path", type=Path, required=False, help="default: here")
def copy(notebook: str, path: Path | None) -> None:
    """Copy a notebook to where you are, to read it and change it; students get a `course release`.

    fednb copy 01_moon
    fednb copy 01_moon mine.ipynb
    """
    from fednb_lab.new import copy_notebook

    copied = copy_notebook(notebook, path)
    print(f"{copied}: open it with jupyter lab {copied}, or run it with fednb run {copied}")


@fednb.command()
@click.argument("name", help="for instance FedDyn or my_method")
def new(name: str) -> None:
    """Write a notebook and a sweep file to begin a method with.

    fednb new FedDyn
    fednb new my_method
    """
    from fednb_lab.new import new_method

    notebook, sweep_file = new_method(name, Path.cwd())
    print(f"{notebook.name}, {sweep_file.name}: change the method, then")
    print(f"fednb compare FedAvg {notebook.name}")


# ---- runs


@fednb.command()
@NOTEBOOK
@click.argument("parameters", nargs=-1, metavar="[name=value]...", help=_SETTINGS)
@AGAIN
def run(notebook: str, parameters: Sequence[str], again: bool) -> int:
    """Make one run of a notebook.

    fednb run 01_moon method=MOON mu=5 num_rounds=20
    fednb run my_method.ipynb dataset=folder:photos num_rounds=50
    """
    from fednb import notebooks as files

    given = each_given_once([assignment(word) for word in parameters])
    files.path(notebook)  # first, as what comes next is slow to import
    from fednb import records as ledger
    from fednb_lab import pool
    from fednb_lab.chance import learned_nothing
    from fednb_lab.jobs import Notebook, tell_other_code

    job = Notebook(notebook).job(given)
    print(job.settings, flush=True)
    if job.status in ledger.RESULTS and not again:
        print("This run is recorded already.")
        tell_other_code([job])
    else:
        pool.check_prerequisites([job])
        error = pool.run_in_this_process(job, again=again)
        if error:
            print(f"fednb: the run failed: {error}", file=sys.stderr)
            return 1
    record = ledger.read(job.path)
    accuracy = record.get("final", {}).get("accuracy")
    text = "no accuracy" if accuracy is None else f"accuracy {accuracy:.2f} %"
    print(f"{text} ({record['status']})")
    warning = learned_nothing([(job.settings.method, accuracy, job.settings.dataset)])
    if warning:
        print(warning)
    print(f"record: {job.path}")
    return 0


@fednb.command()
@click.argument(
    "path", type=Path, metavar="FILE_OR_FOLDER", help="a sweep file, or a folder of them"
)
@click.option(
    "--table", "names", multiple=True, metavar="NAME", help="only this one; may be given again"
)
@click.option(
    "--tier", "tiers", multiple=True, metavar="TIER", help="only runs of this tier; likewise"
)
@click.option("--only", multiple=True, metavar="name=value", help="likewise")
@JOBS
@click.option(
    "--scheduler", metavar="tcp://HOST:PORT", help="of a dask cluster: one run per thread"
)
@click.option(
    "--notebooks", "kept", type=Path, metavar="FOLDER", help="keep the whole executed notebooks"
)
@click.option("--dry-run", is_flag=True, help="say what would be run")
@AGAIN
def sweep(
    path: Path,
    *,
    names: Sequence[str],
    tiers: Sequence[str],
    only: Sequence[str],
    jobs: int | None,
    scheduler: str | None,
    kept: Path | None,
    dry_run: bool,
    again: bool,
) -> int:
    """Make the runs of a paper's tables that are not recorded yet.

    fednb sweep my_method.yaml --jobs 2
    fednb sweep notebooks/sweeps/01_moon.yaml --table digits-moon --only seed=0 --dry-run
    fednb sweep notebooks/sweeps --tier minutes-gpu --only dataset=cifar10
    fednb sweep my_method.yaml --notebooks build/executed
    """
    if scheduler is not None and (jobs or kept):
        raise SweepError(
            "A cluster's workers say how many runs are made at once, and keep no notebooks: leave "
            "out --jobs and --notebooks, or --scheduler."
        )
    print(f"Reading {path}", flush=True)
    check_sweep_file(path)
    from fednb_lab import cells, cluster
    from fednb_lab.jobs import each_once, folders_of, missing, select, tell_other_code
    from fednb_lab.sweeps import read_tables

    tables = read_tables(path)
    asked: list[tuple[str, Any]] = [("table", name) for name in names]
    asked += [("tier", name) for name in tiers]
    asked += [assignment(word) for word in only]
    selected = select([job for table in tables.values() for job in table.jobs], asked)
    unique = each_once(selected)
    todo = unique if again else missing(unique)
    if not again:
        tell_other_code(unique)
    kept = kept and kept.absolute()
    if kept and not again:
        lacking = [job for job in unique if not (kept / f"{job.path.stem}.ipynb").exists()]
        todo = each_once([*todo, *lacking])
    print(f"{len(unique)} runs: {len(unique) - len(todo)} recorded, {len(todo)} to do.", flush=True)
    named = [tables[name] for name in dict.fromkeys(job.table for job in selected)]
    for table in named:
        cells.cells_of(table, {})  # of no records: a measure that nobody knows is told now
    if dry_run:
        _list_tables(named)
        for job in todo:
            parameters = [f"{name}={value}" for name, value in job.parameters.items()]
            print(f"{job.table}: {' '.join([job.notebook, *parameters])}")
        return 0
    outcomes = []
    if todo:
        outcomes = cluster.run(
            todo, jobs=jobs or 1, scheduler=scheduler, again=again, notebooks=kept
        )
    _show_tables(list(tables.values()), named if len(named) <= _SHOWN_AT_ONCE else [])
    failed = [outcome for outcome in outcomes if outcome.error]
    for job, error in failed:
        print(f"failed: {job.path.stem}: {error}\n        log: {job.log}")
    if todo:
        made = len(todo) - len(failed)
        print(f"{made} runs made, {len(failed)} failed; records are in {folders_of(todo)}.")
    return int(bool(failed))


def _show_tables(
    tables: "Sequence[Table]", shown: "Sequence[Table]", out: Path | None = None
) -> None:
    """Print tables that have records, and write pages of those of one's own files."""
    from fednb_lab import pages
    from fednb_lab.cells import cells_of
    from fednb_lab.tables import is_own, table_in_full

    own = [table for table in tables if is_own(table)]
    cells = {table.name: cells_of(table) for table in [*own, *shown]}
    for table in shown:
        if any(cell.runs for cell in cells[table.name]):
            print(f"{table_in_full(table, cells[table.name])}\n")
    for file in dict.fromkeys(table.file for table in own):
        of_file = [table for table in own if table.file == file]
        write(pages.own_pages(of_file, cells, out))


@fednb.command("list")
@click.argument("notebook", required=False, help="or a sweep file: list its tables")
def list_tables(notebook: str | None) -> None:
    """List notebooks, or the tables of one: how much is recorded, and how long a run took.

    fednb list
    fednb list 01_moon
    fednb list my_method.yaml
    """
    from fednb import ROOT
    from fednb import notebooks as files

    sweeps = ROOT / "notebooks" / "sweeps"
    if notebook is None:
        _list_notebooks(sweeps)
        return
    file = Path(notebook)
    if file.suffix in SWEEP_FILES:
        check_sweep_file(file)
    else:
        name = files.name(notebook)  # the path of one's own
        file = sweeps / f"{name}.yaml"
        way_out = "`fednb list` shows which have some, `fednb list FILE.yaml` tables of your own"
        check(file.exists(), f"{notebook} has no tables: {way_out}.", SweepError)
    from fednb_lab.sweeps import read_tables

    _list_tables(read_tables(file).values())
    print(f"\nRuns of a table:     fednb sweep {file} --table NAME")
    of_file = "" if file.parent == sweeps else f"{file}:"
    print(f"One cell once more:  fednb check {of_file}NAME")


def _list_tables(tables: "Iterable[Table]") -> None:
    from fednb_lab.jobs import TIERS, each_once, median_duration, missing

    print(f"{'table':<28} recorded  tier         title (time of a run)", flush=True)
    for table in sorted(tables, key=lambda table: TIERS.index(table.tiers[0])):
        number = len(each_once(table.jobs))
        share = f"{number - len(missing(table.jobs))}/{number}"
        took = median_duration(table.jobs)
        title = f"{table.title} ({took})" if took else table.title
        print(f"{table.name:<28} {share:>8}  {table.tiers[0]:<11}  {title}")


def _list_notebooks(sweeps: Path) -> None:
    import yaml

    from fednb import notebooks as files

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    print(f"{'notebook':<28} tables  title", flush=True)
    for notebook in files.notebooks(extras=True):
        file = sweeps / f"{notebook.stem}.yaml"
        tables = yaml.load(file.read_bytes(), loader)["tables"] if file.exists() else {}
        title = files.cells(notebook, "markdown")[0].partition("\n")[0].strip("# ")
        print(f"{notebook.stem:<28} {len(tables):>6}  {title}", flush=True)
    print("\nIts tables, and what is recorded of them: fednb list 01_moon")
    print("To read, run and change it:              fednb copy 01_moon")


# ---- results


@fednb.command()
@click.argument(
    "methods",
    nargs=-1,
    required=True,
    metavar="METHOD...",
    help="or a notebook; then [METHOD.]name=value",
)
@click.option("--seeds", type=COUNT, default=3, metavar="N", help="default: 3")
@JOBS
@AGAIN
def compare(methods: Sequence[str], seeds: int, jobs: int | None, again: bool) -> None:
    """Compare methods with the first one in one setting: the missing runs, a table, a figure.

    fednb compare FedAvg MOON
    fednb compare FedAvg my_method.ipynb --seeds 5 --jobs 2 beta=0.1 num_rounds=30
    fednb compare FedAvg FedProx MOON FedProx.mu=0.01 MOON.mu=5
    """
    names = [word for word in methods if "=" not in word or word.endswith(".ipynb")]
    overrides = each_given_once([for_methods(word) for word in methods if word not in names])
    message = "seed=... is one run: say --seeds N, which are counted from 0."
    check("seed" not in overrides, message, SweepError)
    from fednb_lab.jobs import find_methods

    compared = find_methods(names)
    message = "One method is compared with others: name two, for instance FedAvg MOON."
    check(len(compared) > 1, message, SweepError)
    print(f"Comparing {', '.join(compared)}", file=sys.stderr)
    from fednb_lab import compare as comparing

    made = comparing.compare(compared, overrides, seeds=seeds, jobs=jobs or 1, again=again)
    print(made.text)
    print(*made.paths, f"records are in {made.runs}", sep="\n")


@fednb.command("check")
@click.argument("table", help="as `fednb list 01_moon` has it, or FILE.yaml[:TABLE]")
@click.argument("row", required=False, help="default: the one that takes least time")
@click.option("--column", metavar="NAME", help="where a row has several (default: likewise)")
@click.option("--seeds", type=COUNT, metavar="N", help="only so many of its runs")
@JOBS
@click.option("--dry-run", is_flag=True, help="say how long it takes")
def check_cell(
    table: str,
    row: str | None,
    *,
    column: str | None,
    seeds: int | None,
    jobs: int | None,
    dry_run: bool,
) -> int:
    """Make a cell of a table again, and say how closely it agrees with its records.

    fednb check digits --dry-run
    fednb check digits FedAvg --seeds 1
    fednb check my_method.yaml MyMethod --column 0.5
    """
    file = Path(table.partition(":")[0])
    if file.suffix in (*SWEEP_FILES, ".ipynb"):
        check_sweep_file(file)
    from fednb_lab import check as checking
    from fednb_lab import words
    from fednb_lab.jobs import duration

    cell = checking.cell_to_check(table, row, column)
    runs = cell.runs[:seeds]
    took = duration(checking.seconds(runs))
    devices = ", ".join(dict.fromkeys(run.record.get("device", "unknown") for run in runs))
    print(f"{cell.table}: {cell.row}, {cell.column}: {words.measured(cell)}")
    print(f"{words.seeds(len(runs))} to make again; when recorded they took {took} on {devices}.")
    if dry_run:
        return 0
    sys.stdout.flush()
    print("Making them; a line tells when one has ended", file=sys.stderr, flush=True)
    verdict = checking.make_again(cell, runs, jobs=jobs or 1)
    print(verdict.text)
    return int(not verdict.agrees)


@fednb.command()
@click.argument(
    "path", type=Path, required=False, metavar="[FILE.yaml]", help="default: the project's"
)
@click.option("--runs", type=Path, metavar="FOLDER", help="of records (default: results/runs)")
@click.option("--out", type=Path, metavar="FOLDER", help="default: beside the records")
def report(path: Path | None, runs: Path | None, out: Path | None) -> int:
    """Write the project's report, or the tables of a sweep file of your own.

    fednb report
    fednb report my_method.yaml
    fednb report --runs results/runs --out build/report
    """
    if path is not None:
        message = "A sweep file knows where its records are: leave out --runs, or set FEDNB_RUNS."
        check(runs is None, message, SweepError)
        return _report_own(path, out)
    from fednb import ROOT
    from fednb import records as ledger

    folder = (runs or ledger.runs_folder(ROOT)).absolute()
    print(f"Reading the records in {folder}", flush=True)
    if not any(folder.glob("*.json")):
        return _nothing_recorded(str(folder), "`fednb sweep` makes runs")
    from fednb_lab import for_readers, pages, words

    out = (out or folder.parent).absolute()
    results = pages.read_results(ROOT / "notebooks" / "sweeps", folder)
    files: dict[Path, str] = pages.make_pages(results, out)
    if out == ROOT / "results":  # what notebooks show
        files |= {out / name: text for name, text in for_readers.files(results).items()}
    for file, content in files.items():
        ledger.write_atomically(file, content)
    print(f"{len(results.every_claim)} claims: {words.counted(results.every_claim)}")
    print(f"{len(files)} files written; all that was found is in {out / 'REPORT.md'}")
    return 0


def _report_own(path: Path, out: Path | None) -> int:
    """The tables of one sweep file, printed and, if it is one's own, written."""
    check_sweep_file(path)
    from fednb_lab import jobs
    from fednb_lab.sweeps import read_tables

    tables = list(read_tables(path).values())
    every_job = [job for table in tables for job in table.jobs]
    if all(job.status in (None, "stale") for job in every_job):
        way_out = f"`fednb sweep {path}` makes runs"
        return _nothing_recorded(jobs.folders_of(every_job), way_out)
    jobs.tell_other_code(every_job)
    _show_tables(tables, tables, out)
    return 0


def _nothing_recorded(where: str, way_out: str) -> int:
    told = f"No run is recorded in {where}, so nothing is written"
    print(f"fednb: {told}: {way_out}.", file=sys.stderr)
    return 1


# ---- data


@fednb.command()
@click.argument("name", required=False, help="such as cifar10; without it, all are listed")
@click.option("--from", "given", type=Path, metavar="PATH", help="a folder or file with it")
def data(name: str | None, given: Path | None) -> None:
    """List the data sets, or fetch and convert one.

    fednb data
    fednb data cifar10
    fednb data domainnet --from downloads
    """
    from fednb import data
    from fednb_lab import datasets

    if name is not None:
        datasets.get(name, given)
    elif given is not None:
        raise FednbError("Say which data set is in that folder: fednb data NAME --from PATH.")
    else:
        print("data set         what is here of it", flush=True)
        for known in data.NAMES:
            print(f"{known:<16} {datasets.state(known)}", flush=True)
