"""The cells of a table: what the paper prints, from ``data/reported.csv``, and beside it our runs, from the ledger."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml

from fednb import ROOT, papers
from fednb.experiments import ledger, settings, sweep
from fednb.reporting.metrics import MEASURES, Measure
from fednb.reporting.statistics import MIN_SEEDS, interval

Records = (
    pd.DataFrame | None
)  # from `ledger.load`; None: those of `ledger.runs_folder`, of a table's name the committed ones
REPORTED = ROOT / "data" / "reported.csv"
WITHIN_POINTS = 1.0  # so far from the printed value is near enough


class ReportError(ValueError):
    """A table that cannot be made as it is described; the message says what is missing and what there is."""


class Choice(NamedTuple):
    """A parameter of which the best value was chosen: of ``compared`` values, where the paper has ``of``."""

    name: str
    value: Any
    compared: int
    of: int


@dataclass(frozen=True)
class Cell:
    """One cell of a table: the printed value and our runs.

    ``values`` are of the finished runs; one that never got there is infinitely bad, and ``bounds`` tells how far it went.
    ``seeds``, ``statuses``, ``partitions`` and ``paths`` are of all recorded runs. A finished run whose measure lacks its
    baseline has the status ``without baseline``, one whose record does not have the measure ``not measured``.
    """

    row: str  # its label in the table, and what else tells its runs apart from others in that place
    column: str
    printed: float | None = None
    printed_std: float | None = None
    printed_text: str = ""
    values: tuple[float, ...] = ()
    bounds: tuple[float, ...] = ()
    seeds: tuple[int, ...] = ()
    statuses: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()
    expected: int = 0  # runs, recorded or not
    stale: int = 0
    spread: tuple[float, ...] = ()  # over clients, of each finished run of personal models
    deviations: tuple[str, ...] = ()  # from the paper's setting
    not_stated: tuple[str, ...] = ()  # our choices where the paper does not say what it did
    choice: Choice | None = None
    note: str = ""  # what is not the published data
    remark: str = ""
    measure: str = "accuracy"
    table: str = ""
    label: str = ""
    told: tuple[tuple[str, Any], ...] = ()
    job: sweep.Job | None = None  # one of the runs, for its settings

    @property
    def of(self) -> Measure:
        """What it measures."""
        return MEASURES[self.measure]

    @property
    def mean(self) -> float | None:
        """Mean over the finished runs (for some measures the median), or None."""
        return self.of.summary(self.values) if self.values else None

    @property
    def half(self) -> float | None:
        """Half width of the interval of the mean, NaN for one run; None without a value, or for a median."""
        return interval(self.values)[1] if self.values and not self.of.bound else None

    @property
    def std_over(self) -> str:
        """What `std` is over: ``seeds``, or ``clients`` for a single run of personal models."""
        if len(self.values) > 1:
            return "" if self.of.bound else "seeds"
        return "clients" if self.values and self.spread and self.measure == "accuracy" else ""

    @property
    def std(self) -> float | None:
        """With ddof 0, as the papers' code."""
        return float(np.std(self.values)) if self.std_over == "seeds" else self.spread[0] if self.std_over else None

    @property
    def difference(self) -> float | None:
        """Our mean minus the printed value, or None."""
        unknown = self.mean is None or self.printed is None or not self.of.reached(self.mean)
        return None if unknown else self.mean - self.printed

    @property
    def verdict(self) -> str:
        """See `verdict`."""
        return verdict(self)


def verdict(cell: Cell) -> str:
    """What a cell says about the printed value, empty if there is nothing to judge: nothing printed, or no accuracy."""
    if not cell.statuses:
        return "not run"
    if not cell.values:
        return next((kind for kind in ("diverged", "failed") if kind in cell.statuses), cell.statuses[0])
    if cell.printed is None:
        return ""
    if cell.deviations or cell.note:
        return "reduced"
    if cell.difference is None or not cell.of.judged:
        return ""
    if len(cell.values) < MIN_SEEDS:
        return "indicative"
    # with personal models the printed ± is over clients, and says nothing about the mean
    allowed = interval(cell.values)[1] + (0.0 if cell.spread else cell.printed_std or 0.0)
    close = abs(cell.difference) <= max(allowed, WITHIN_POINTS) + 1e-9  # 67.3 - 66.3 is a little more than 1
    return "reproduced" if close else f"off by {cell.difference:+.1f}"


# --- our runs ---------------------------------------------------------------------------------------------------------


def tidy(tables: Iterable[sweep.Table], records: Records = None) -> pd.DataFrame:
    """Each run in each cell that it is in, row by row.

    Returns
    -------
    pandas.DataFrame
        ``table``, ``label`` and ``column`` say where; ``told`` what tells the run apart from others in that place but the
        seed and ``best_of``, whose value is ``choice``, and ``row`` is label and that; ``job``, ``name`` (of its file) and,
        None without a record, ``path``, ``record`` and ``state``.
    """
    records, lines = ledger.load() if records is None else records, []
    found = zip(records.get("path", ()), records.get("record", ()), strict=True)  # of an empty ledger there are no columns
    known = {path.name: {"path": path, "record": record, "state": ledger.state(record)} for path, record in found}
    for table in tables:
        places: dict[tuple[str, str], dict[str, sweep.Job]] = {}
        for job in table.jobs:
            for column in table.columns.names(job):
                places.setdefault((table.rows.name(job), column), {})[job.path.name] = job
        labels = list(dict.fromkeys(label for label, _ in places))
        for label, column in sorted(places, key=lambda place: labels.index(place[0])):
            for name, told in _told(jobs := places[label, column], table.best_of).items():
                line = dict.fromkeys(("path", "record", "state")) | known.get(name, {})
                line |= {
                    "table": table.name,
                    "label": label,
                    "column": column,
                    "told": told,
                    "name": name,
                    "job": jobs[name],
                }
                line["row"] = ", ".join([label, *(f"{n.replace('_', ' ')} {value}" for n, value in told)])
                lines.append(line | {"choice": str(jobs[name].settings.flat().get(table.best_of))})
    return pd.DataFrame(lines, dtype=object)


def _told(jobs: Mapping[str, sweep.Job], best_of: str | None) -> dict[str, tuple[tuple[str, Any], ...]]:
    flat = {run: job.settings.flat() for run, job in jobs.items()}
    first, found = next(iter(flat.values())), {}
    differ = [name for name in first if len({str(own.get(name)) for own in flat.values()}) > 1]
    for run, own in flat.items():
        # a switch is told where it differs from the first run's, which then needs no other name than the row's
        plain = {name for name in differ if isinstance(own.get(name), bool | None) and own.get(name) == first.get(name)}
        found[run] = tuple((name, own.get(name)) for name in differ if name not in plain | {"seed", best_of})
    return found


def recorded(table: sweep.Table, records: pd.DataFrame) -> tuple[int, int]:
    """How many of a table's runs are recorded, and how many there are."""
    found = zip(records.get("path", ()), records.get("record", ()), strict=True)
    done = {path.name for path, record in found if ledger.state(record) in ("finished", "diverged")}
    names = {job.path.name for job in table.jobs}
    return len(names & done), len(names)


def cells(table: sweep.Table, records: Records = None) -> list[Cell]:
    """The cells of a table, as `cells_of_tables` makes them."""
    return cells_of_tables([table], records)[table.name]


_OF_RUNS = ("values", "bounds", "statuses", "paths", "seeds", "partitions", "spread", "note", "remark")


def cells_of_tables(tables: Iterable[sweep.Table], records: Records = None) -> dict[str, list[Cell]]:
    """The cells of tables, row by row. Runs that share a cell but differ in more than the seed get rows of their own.

    Where a table says ``best_of``, runs that differ in that parameter share a row, and those with the best mean make the
    cell. A `ReportError` if the printed table, row or column does not exist, or a measure is unknown or lacks its baseline.
    """
    if not (known := {table.name: table for table in tables}):
        return {}
    runs = tidy(known.values(), records)
    baselines = {name: _baselines(known[name], own) for name, own in runs.groupby("table")}
    read = pd.DataFrame([_read(known[run.table], run, baselines[run.table]) for run in runs.itertuples()], dtype=object)
    groups = runs.join(read).groupby(["table", "label", "row", "column", "choice"], sort=False)
    collected = {name: (name, lambda values: tuple(v for v in values if v is not None)) for name in _OF_RUNS}
    counts = {"told": ("told", "first"), "job": ("job", "first"), "expected": ("job", "size"), "stale": ("stale", "sum")}
    places: dict[tuple[str, ...], list[Cell]] = {}
    for group in groups.agg(**counts, **collected).reset_index().drop(columns="choice").to_dict("records"):
        texts = {name: "; ".join(dict.fromkeys(filter(None, group[name]))) for name in ("note", "remark")}
        cell = Cell(**group | texts, measure=known[group["table"]].measure_of(group["column"]))
        places.setdefault((cell.table, cell.label, cell.row, cell.column), []).append(cell)
    found: dict[str, list[Cell]] = {name: [] for name in known}
    for (name, *_), candidates in places.items():
        found[name].append(_beside_printed(known[name], candidates))
    return found


def _baselines(table: sweep.Table, runs: pd.DataFrame) -> dict[tuple[str, int], Mapping[str, Any]]:
    """The baseline's finished records by column and seed; that the measures fit the table is checked before."""
    for name in table.measures:
        if name not in MEASURES:
            plain = (known for known in MEASURES if not known.startswith("accuracy in "))
            raise ReportError(f"{table.name}: unknown measure {name!r}; there are {', '.join(plain)}, accuracy in DOMAIN.")
        if (needs := MEASURES[name].needs) and getattr(table, needs) is None:
            raise ReportError(f"{table.name}: the measure {name!r} needs a {needs}; name it in the table.")
    if table.target is not None and all(MEASURES[name].needs != "target" for name in table.measures):
        raise ReportError(f"{table.name}: the measure {table.measure!r} does not read a target; leave it out.")
    own = runs[runs["label"] == table.baseline]
    places = [(run.column, run.job.settings.seed) for run in own.itertuples()]
    if twice := [seed for column, seed in places if places.count((column, seed)) > 1]:
        raise ReportError(f"{table.name}: the baseline {table.baseline!r} has several runs with seed {twice[0]}.")
    found = zip(places, own["record"], own["state"], strict=True)
    return {place: record for place, record, state in found if state == "finished"}


def _read(table: sweep.Table, run: Any, baselines: Mapping[tuple[str, int], Mapping[str, Any]]) -> dict[str, Any]:
    """What a cell takes from a run: nothing if it is not recorded, a status without a value if it has none."""
    line: dict[str, Any] = dict.fromkeys(_OF_RUNS) | {"stale": run.state == "stale"}
    if run.state in (None, "stale"):
        return line
    record, name, seed = run.record, table.measure_of(run.column), run.job.settings.seed
    line |= {"paths": run.path, "statuses": run.state, "seeds": seed}
    line |= {key: record["dataset"].get(key) for key in ("note", "remark")}
    line["partitions"] = record.get("partition", {}).get("hash") or ""
    if run.state != "finished":
        return line
    measure, line["spread"] = MEASURES[name], record["final"].get("accuracy_std")
    beside = {"target": table.target, "baseline": baselines.get((run.column, seed))}.get(measure.needs)
    value = measure.read(record, beside) if beside is not None or not measure.needs else None
    if value is not None:
        bound = None if measure.reached(value) else float(measure.bound(record, beside))
        return line | {"values": float(value), "bounds": bound}
    if measure.needs != "baseline" and not measure.optional:
        every = record["settings"].get("evaluate_every")
        why = f": it was evaluated after every {every} rounds and the last" if every else ""
        raise ReportError(f"{run.name} has no {name.replace('_', ' ')}{why}.")
    return line | {"statuses": "without baseline" if measure.needs == "baseline" else "not measured"}


# --- beside printed numbers -------------------------------------------------------------------------------------------


@functools.cache
def original(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The lines of ``data/reported.csv`` about a paper (``"MOON"``) or of its table (``"MOON Table 1"``), by row and column.

    ``("", "")`` is about all of it, ``("", column)`` about a column.
    """
    lines = _reported()
    if name not in (names := dict.fromkeys(lines["name"])):
        raise ReportError(f"There is no printed table {name!r}: {settings.known(name, names)}")
    return {(line["row"], line["column"]): line for line in lines[lines["name"] == name].to_dict("records")}


@functools.cache
def _reported() -> pd.DataFrame:
    lines = pd.read_csv(REPORTED, dtype=str, keep_default_na=False)
    read = {text: yaml.safe_load(text) for text in {*lines["value"], *lines["std"], *lines["settings"]}}
    numbers = {name: pd.Series([read[text] for text in lines[name]], dtype=object) for name in ("value", "std")}
    settings_ = [read[text] or {} for text in lines["settings"]]
    return lines.assign(name=(lines["paper"] + " " + lines["table"]).str.strip(), settings=settings_, **numbers)


def printed(name: str) -> dict[str, dict[str, float | None]]:
    """The printed numbers of ``"MOON Table 6"``, say: row, column, value."""
    found: dict[str, dict[str, float | None]] = {}
    for (row, column), line in original(name).items():
        if row:
            found.setdefault(row, {})[column] = line["value"]
    return found


def anchor(source: str, method: str, round: int) -> float:
    """Test accuracy in percent that a public re-run logged after a round."""
    return printed(f"{source} log")[method][f"round {round}"]


def _beside_printed(table: sweep.Table, candidates: Sequence[Cell]) -> Cell:
    """The cell of a place with what is printed there; of several for values of ``best_of`` the best."""
    finished = [cell for cell in candidates if cell.values]
    best = (min if candidates[0].of.lower else max)(finished, key=lambda cell: cell.mean, default=None)
    shown = best or next((cell for cell in candidates if cell.statuses), candidates[0])
    asked = shown.job.settings
    if shown.measure == "halfway":  # the run is read as one of half its length
        asked = replace(asked, num_rounds=max(asked.num_rounds // 2, 1))
    own, lines = asked.flat(), original(table.printed) if table.printed else {}
    line, stated = _printed_line(table, shown, lines, own) if lines else (None, {})
    value, std, text = _in_units(table, shown, lines, line) if line else (None, None, "")
    tuned = {name: grid for name, grid in stated.items() if isinstance(grid, list)}
    # neither what the paper varies in the table nor what it tuned is a deviation
    same = {axis.parameter for axis in (table.rows, table.columns) if lines and axis.parameter not in stated} | tuned.keys()
    same |= {name for name, said in stated.items() if name in own and (said == "any" or _same(said, own[name]))}
    given = stated | {name: value for name, value in own.items() if name in same}
    not_stated = original(lines["", ""]["paper"])["", ""]["settings"] if lines else {}
    deviations = [text for text in settings.deviations(asked, given) if text.split(" ")[0] not in not_stated]
    for name, grid in tuned.items():
        if name in own and own[name] not in grid:
            deviations.append(f"{name} {own[name]} instead of one of {', '.join(map(str, grid))}")
        elif name in own and finished and len(finished) < len(grid):
            deviations.append(f"{name} chosen from {len(finished)} instead of {len(grid)} values")
    count = len(tuned.get(table.best_of, candidates))
    chosen = table.best_of in own and count > 1 and finished
    usual = settings.defaults(asked.method, asked.dataset, asked.partition)
    return replace(
        shown,
        expected=shown.expected if shown.statuses else sum(cell.expected for cell in candidates),
        stale=sum(cell.stale for cell in candidates),
        printed=value,
        printed_std=std,
        printed_text=text,
        deviations=tuple(deviations),
        not_stated=tuple(f"{n} {own[n]}" for n in not_stated if n in own and n in usual and own[n] != usual[n]),
        choice=Choice(table.best_of, own[table.best_of], len(finished), count) if chosen else None,
    )


def _printed_line(
    table: sweep.Table, cell: Cell, lines: Mapping[Any, Any], own: Mapping[str, Any]
) -> tuple[Mapping[str, Any] | None, dict[str, Any]]:
    """The printed cell, in the row that is called as ours or has its method and settings; and the paper's settings there."""
    about, column = lines["", ""], lines.get(("", cell.column), {"settings": {}})
    rows = {row: line for (row, _), line in lines.items() if row}
    plain = {row: {n: v for n, v in rows[row]["settings"].items() if n in own} for row in rows}
    fit = [row for row in rows if all(isinstance(v, list) or _same(v, own[n]) for n, v in plain[row].items())]
    found = [row for row in (fit if about["partial"] else rows) if row == cell.label]
    found = found or [row for row in fit if rows[row]["method"] == cell.label]
    stated = about["settings"] | column["settings"] | (plain[found[0]] if found else {})
    line = lines.get((found[0], cell.column)) if len(found) == 1 else None
    if line or about["partial"]:
        return line, stated
    what, known = f"row {cell.label!r} with its settings", f"its rows: {', '.join(rows)}"
    if found:
        what, known = f"column {cell.column!r}", f"it has {', '.join(c for row, c in lines if row == found[0])}"
    raise ReportError(f"{table.name}: {table.printed} has no {what}; {known}.")


def _in_units(table: sweep.Table, cell: Cell, lines: Any, line: Any) -> tuple[float | None, float | None, str]:
    """A printed cell's value and std in the measure's units, and as a text."""
    measure, value, std = cell.of, line["value"], line["std"]
    if measure.printed:
        value, std = (std if measure.printed == "std" else lines[line["row"], measure.printed]["value"]), None
    if "fraction" in (lines["", ""]["unit"], lines.get(("", cell.column), {}).get("unit")):
        value, std = (None if x is None else 100 * x for x in (value, std))
    if measure.relative and value is not None:
        value, std = value / lines[table.baseline, cell.column]["value"], None
    own_digits = value is not None and not (measure.judged or measure.relative or measure.signed)
    text = (f"{value:g}" if own_digits else measure.text(value)) + ("" if std is None else f" ± {std:.{measure.decimals}f}")
    return value, std, text or line["text"]


def _same(printed: Any, ours: Any) -> bool:
    """Whether a printed name means our value: ``Tiny-Imagenet`` is ``tiny_imagenet``, ``with`` is True."""
    if isinstance(ours, bool):
        return printed is ours or printed == ("with" if ours else "without")
    plain = ["".join(c for c in str(x).lower() if c.isalnum()) for x in (printed, ours)]
    return (ours is not None and printed == ours) or (isinstance(ours, str) and plain[0] == plain[1])


# --- by name, for notebooks -------------------------------------------------------------------------------------------


def table_of(name: str) -> sweep.Table:
    """Table ``name`` of the sweep files, of which those in which the name occurs are read first."""
    folder, tables = papers.folder() / "sweeps", {}
    for file in sorted(folder.glob("*.yaml"), key=lambda file: f" {name}:" not in file.read_text("utf-8")):
        tables |= _tables(file, tuple(path.stat().st_mtime_ns for path in (file, *papers.notebooks())), ledger.runs_folder())
        if name in tables:
            return tables[name]
    raise ReportError(f"There is no table {name!r}; the sweep files have {', '.join(tables) or 'none'}.")


@functools.lru_cache(maxsize=8)  # a notebook shows many tables, and to read a file means to check each of its runs
def _tables(file: Path, times_ns: tuple[int, ...], runs: Path) -> dict[str, sweep.Table]:
    return sweep.read(file)


def committed() -> pd.DataFrame:
    """The records of the repository, whatever ``$FEDNB_RUNS`` says."""
    folder = ROOT / "results" / "runs"
    return _committed(folder, tuple(sorted((file.name, file.stat().st_mtime_ns) for file in folder.glob("*.json"))))


@functools.lru_cache(maxsize=1)  # a notebook asks for each number
def _committed(folder: Path, state: Any) -> pd.DataFrame:
    return ledger.load(folder)


def cells_of(name: str) -> list[Cell]:
    """The cells of table ``name`` of the sweep files, from the committed records."""
    return cells(table_of(name), committed())
