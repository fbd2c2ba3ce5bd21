"""The papers' tables with our runs beside them, and figures: made from the ledger and `data/reported.json`, never typed."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import evaluate, papers, runs, sweep
from fednb.data import ROOT
from fednb.settings import departures

if TYPE_CHECKING:
    from IPython.display import Markdown

REPORTED = ROOT / "data" / "reported.json"

# The rule of `verdict`, in percentage points where it is about accuracy.
MIN_SEEDS = 3
WITHIN_POINTS = 1.0
LEVEL = 0.95

# What a table may measure (columns of `runs.load`), in words.
MEASURES = {
    "accuracy": "Test accuracy after the last round, in percent.",
    "best": "Best test accuracy of any round, in percent (chosen on the test set: an upper bound).",
    "mean_of_last_5": "Test accuracy, mean of the last five rounds, in percent.",
    "accuracy_std": "Standard deviation of the test accuracy over clients, in percentage points.",
    "seconds_per_round": "Training time per round, in seconds (of our machine: not judged against the paper's).",
    "rounds": "Number of rounds.",
}
_POINTS = ("accuracy", "best", "mean_of_last_5", "accuracy_std")

_MEANING = {
    "reproduced": f"*Reproduced*: the printed value is within {WITHIN_POINTS:g} point of our mean, or within our "
    f"{LEVEL:.0%} interval over at least {MIN_SEEDS} seeds, widened by the paper's ± over trials.",
    "off": f"*Off by*: further away than one point and than our {LEVEL:.0%} interval.",
    "indicative": f"*Indicative*: fewer than {MIN_SEEDS} seeds, too few for a verdict.",
    "reduced": "*Reduced*: not the paper's setting or data, so not judged against the paper.",
    "diverged": "*Diverged*: a loss or weight became NaN or infinite.",
    "failed": "*Failed*: the run ended in an error, which its record tells.",
}
# what counts something reads better as "20 rounds" than as "num_rounds 20"
_COUNTED = {"num_rounds": "rounds", "local_epochs": "local epochs", "num_clients": "clients", "batch_size": "images a batch"}


class ReportError(ValueError):
    """A table that cannot be made as it is described; the message says what is missing and what there is."""


@dataclass(frozen=True)
class Cell:
    """One cell of a table: the printed value and our runs.

    ``values`` are those of the finished runs; ``seeds``, ``statuses``, ``partitions`` and ``paths`` cover all recorded
    runs, diverged and failed ones included. ``std`` has ddof 0, as the papers' code; ``std_over`` says whether it is
    over ``seeds``, or, for a single run of personal models, over ``clients``.
    """

    row: str
    column: str
    printed: float | None = None
    printed_std: float | None = None
    values: tuple[float, ...] = ()
    expected: int = 0
    std: float | None = None
    std_over: str = ""
    departures: list[str] = field(default_factory=list)
    note: str = ""
    statuses: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()
    seeds: tuple[int, ...] = ()
    partitions: tuple[str | None, ...] = ()
    personal: bool = False
    stale: int = 0
    measure: str = "accuracy"

    @property
    def mean(self) -> float | None:
        """Mean over the finished runs, or None."""
        return float(np.mean(self.values)) if self.values else None

    @property
    def difference(self) -> float | None:
        """Our mean minus the printed value, or None."""
        return None if self.mean is None or self.printed is None else self.mean - self.printed

    @property
    def verdict(self) -> str:
        """See `verdict`."""
        return verdict(self)


def verdict(cell: Cell) -> str:
    """What a cell says about the printed value.

    Returns
    -------
    str
        ``not run``, ``diverged`` or ``failed`` without a finished run; ``reduced`` if setting or data are not the
        paper's; ``indicative`` below `MIN_SEEDS` seeds; else ``reproduced`` or ``off by +x.x``. Empty if there is
        nothing to judge: no printed value, or seconds, which depend on the machine.
    """
    if not cell.statuses:
        return "not run"
    if not cell.values:
        return "diverged" if "diverged" in cell.statuses else "failed"
    if cell.printed is None or cell.difference is None or cell.measure not in _POINTS:
        return ""
    if cell.departures or cell.note:
        return "reduced"
    if len(cell.values) < MIN_SEEDS:
        return "indicative"
    allowed = evaluate.interval(cell.values, LEVEL)[1]
    if not cell.personal:  # with personal models the printed ± is over clients, and says nothing about the mean
        allowed += cell.printed_std or 0.0
    close = abs(cell.difference) <= max(allowed, WITHIN_POINTS) + 1e-9  # 67.3 - 66.3 is a little more than 1
    return "reproduced" if close else f"off by {cell.difference:+.1f}"


def committed() -> pd.DataFrame:
    """The ledger of the repository, whatever ``$FEDNB_RUNS`` says."""
    return runs.load(ROOT / "results" / "runs")


def cells(table: sweep.Table, ledger: pd.DataFrame | None = None) -> list[Cell]:
    """The cells of a table, row by row. Runs that share a cell but differ in more than the seed get rows of their own.

    Parameters
    ----------
    ledger
        From `runs.load`; by default of `runs.runs_folder`. A job's record is found in it by its settings, so that a
        table does not depend on which data this machine has: of records on other data, one on the published set counts.

    Raises
    ------
    ReportError
        If the printed table, row or column does not exist, or the measure is unknown.
    """
    if table.measure not in MEASURES:
        raise ReportError(f"{table.name}: unknown measure {table.measure!r}; there are {', '.join(MEASURES)}.")
    ledger = runs.load() if ledger is None else ledger
    records: dict[str, dict[str, Any]] = {}
    stale: Counter[str] = Counter()
    for entry in sorted(ledger.to_dict("records"), key=lambda e: (bool(e["note"]), e["path"].name)):
        if entry["stale"]:
            stale[_recipe(entry["record"]["settings"])] += 1
        else:
            records.setdefault(_recipe(entry["record"]["settings"]), entry)
    places: dict[tuple[str, str], list[sweep.Job]] = {}
    for job in table.jobs:
        place = table.rows.label(_value(job, table.rows)), table.columns.label(_value(job, table.columns))
        places.setdefault(place, []).append(job)
    rows = dict.fromkeys(row for row, _ in places)
    ordered = [(place, jobs) for row in rows for place, jobs in places.items() if place[0] == row]
    return [
        _cell(table, place, name, variant, records, stale)
        for place, jobs in ordered
        for name, variant in _variants(place[0], jobs).items()
    ]


def _variants(row: str, jobs: list[sweep.Job]) -> dict[str, dict[str, sweep.Job]]:
    """Split the runs of a cell into runs that differ in the seed alone: recipe to job, by the name of the row."""
    settings = [job.settings.flat() for job in jobs]
    differ = [name for name in settings[0] if name != "seed" and len({str(s.get(name)) for s in settings}) > 1]
    variants: dict[str, dict[str, sweep.Job]] = {}
    for job, s in zip(jobs, settings, strict=True):
        # a switch is told where it differs from the first run's, which then needs no other name than the row's
        told = [n for n in differ if not (isinstance(s.get(n), bool | None) and s.get(n) == settings[0].get(n))]
        name = ", ".join([row, *(f"{name.replace('_', ' ')} {s.get(name)}" for name in told)])
        variants.setdefault(name, {})[_recipe(s)] = job
    return variants


def _cell(
    table: sweep.Table,
    place: tuple[str, str],
    name: str,
    jobs: dict[str, sweep.Job],
    records: dict[str, dict[str, Any]],
    stale: Counter[str],
) -> Cell:
    first = next(iter(jobs.values()))
    printed, printed_std, given = _printed(table, place, first)
    found = [records[recipe] for recipe in jobs if recipe in records]
    finished = [entry for entry in found if entry["status"] == "finished"]
    values = tuple(float(entry[table.measure]) for entry in finished)
    over_clients = [float(entry["accuracy_std"]) for entry in finished if pd.notna(entry.get("accuracy_std"))]
    std, std_over = (float(np.std(values)), "seeds") if len(values) > 1 else (None, "")
    if len(values) == 1 and over_clients and table.measure == "accuracy":
        std, std_over = over_clients[0], "clients"
    return Cell(
        row=name,
        column=place[1],
        printed=printed,
        printed_std=printed_std,
        values=values,
        expected=len(jobs),
        std=std,
        std_over=std_over,
        departures=[text for text in departures(first.settings) if text.split(" ")[0] not in given],
        note="; ".join(dict.fromkeys(entry["note"] for entry in found if entry["note"])),
        statuses=tuple(entry["status"] for entry in found),
        paths=tuple(entry["path"] for entry in found),
        seeds=tuple(int(entry["seed"]) for entry in found),
        partitions=tuple(entry["record"].get("partition", {}).get("hash") for entry in found),
        personal=bool(over_clients),
        stale=sum(stale[recipe] for recipe in jobs),
        measure=table.measure,
    )


def _value(job: sweep.Job, axis: sweep.Axis) -> Any:
    return job.settings.flat().get(axis.parameter, job.parameters.get(axis.parameter))


def _recipe(settings: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in settings.items() if value is not None}, sort_keys=True)


def _printed(table: sweep.Table, place: tuple[str, str], job: sweep.Job) -> tuple[float | None, float | None, set[str]]:
    """The printed value, its std, and the settings that the paper varies in this table, which are then no departures."""
    if table.printed is None:
        return None, None, set()
    printed, settings, value = _printed_table(table), job.settings.flat(), _value(job, table.rows)
    by_label = [r for r in printed["rows"] if r["method"] == place[0]]
    by_label = by_label or [r for r in printed["rows"] if _same(r.get(table.rows.parameter), value)]
    known = ", ".join(dict.fromkeys(r["method"] for r in printed["rows"]))
    fields = {name for r in by_label for name in r.keys() & settings.keys() if name != "method"}
    rows = [r for r in by_label if all(_same(r[name], settings[name]) for name in fields & r.keys())]
    if len(rows) != 1:
        asked = "".join(f", {name} {settings[name]}" for name in sorted(fields))
        what = "no row" if not rows else "several rows"
        raise ReportError(f"{table.name}: {table.printed} has {what} {place[0]!r}{asked}; its rows: {known}.")
    if place[1] not in rows[0]["cells"]:
        raise ReportError(f"{table.name}: {table.printed} has no column {place[1]!r}; it has {', '.join(rows[0]['cells'])}.")
    cell, unit = rows[0]["cells"][place[1]], printed.get("unit")
    unit = unit.get(place[1]) if isinstance(unit, dict) else unit
    value, std = (None if x is None else x * (100 if unit == "fraction" else 1) for x in (cell["value"], cell["std"]))
    return value, std, fields | {table.rows.parameter, table.columns.parameter}


def _printed_table(table: sweep.Table) -> dict[str, Any]:
    return _find_printed(str(table.printed), table.name)


def _find_printed(name: str, asked_by: str) -> dict[str, Any]:
    paper, _, number = name.partition(" ")
    known = json.loads(REPORTED.read_text(encoding="utf-8"))["papers"]
    if paper not in known:
        raise ReportError(f"{asked_by}: there are no printed numbers of a paper {paper!r}; there are {', '.join(known)}.")
    if number not in known[paper]["tables"]:
        raise ReportError(f"{asked_by}: {paper} has no printed {number!r}; it has {', '.join(known[paper]['tables'])}.")
    return known[paper]["tables"][number]


def _same(printed: Any, ours: Any) -> bool:
    """Whether a printed name means our value: ``Tiny-Imagenet`` is ``tiny_imagenet``, ``with`` is True."""
    if isinstance(ours, bool):
        return printed == ("with" if ours else "without")
    plain = ["".join(c for c in str(x).lower() if c.isalnum()) for x in (printed, ours)]
    return (ours is not None and printed == ours) or (isinstance(ours, str) and plain[0] == plain[1])


def _records(ledger: pd.DataFrame) -> dict[Path, dict[str, Any]]:
    return dict(zip(ledger["path"], ledger["record"], strict=True)) if len(ledger) else {}


def frame(table: sweep.Table, ledger: pd.DataFrame | None = None) -> pd.DataFrame:
    """The table as data, one row per cell, in full precision."""

    def plain(value: Any) -> Any:
        return "; ".join(getattr(v, "name", str(v)) for v in value) if isinstance(value, list | tuple) else value

    ledger = runs.load() if ledger is None else ledger
    records, lines = _records(ledger), []
    for cell in cells(table, ledger):
        half = evaluate.interval(cell.values, LEVEL)[1] if cell.values else None
        own = {name: plain(value) for name, value in vars(cell).items()}
        derived = {name: getattr(cell, name) for name in ("mean", "difference", "verdict")}
        repeat = [runs.repeat_command(records[path], table.notebook) for path in cell.paths]
        lines.append({"table": table.name} | own | derived | {"half_width": half, "repeat": plain(repeat)})
    return pd.DataFrame(lines)


def csv(table: sweep.Table, ledger: pd.DataFrame | None = None) -> str:
    """`frame` as comma-separated values."""
    return frame(table, ledger).to_csv(index=False, lineterminator="\n")


def markdown(table: sweep.Table, ledger: pd.DataFrame | None = None, *, link: str = "../runs") -> str:
    """The table for readers: printed and measured values side by side, and in words what they mean.

    Parameters
    ----------
    link
        Where the records are, seen from where the text will stand.
    """
    found = cells(table, ledger)
    lines = [
        {
            table.rows.parameter.replace("_", " "): cell.row,
            table.columns.parameter.replace("_", " "): cell.column,
            "paper": _plus_minus(cell.printed, cell.printed_std),
            "here": _plus_minus(cell.mean, cell.std),
            "seeds": _seeds(cell),
            "difference": "" if cell.difference is None else f"{cell.difference:+.1f}",
            "verdict": cell.verdict,
            "records": " ".join(f"[{seed}]({link}/{path.name})" for seed, path in zip(cell.seeds, cell.paths, strict=True)),
        }
        for cell in found
    ]
    shown = [name for name in lines[0] if any(line[name] for line in lines)] if lines else []
    if len({cell.column for cell in found}) == 1:
        shown.remove(table.columns.parameter.replace("_", " "))
    rule = [":--" if name not in ("paper", "here", "difference") else "--:" for name in shown]
    rows = [shown, rule, *([line[name] for name in shown] for line in lines)]
    text = [f"**{table.title}**", MEASURES[table.measure], "\n".join(f"| {' | '.join(row)} |" for row in rows)]
    command = f"python -m fednb sweep notebooks/sweeps/{Path(table.file).name} --table {table.name}"
    return "\n\n".join([*text, "\n".join(f"- {note}" for note in _notes(table, found)), f"Made by `{command}`."]) + "\n"


def _notes(table: sweep.Table, found: list[Cell]) -> list[str]:
    """What a reader must know to read the table, a sentence or two each."""
    kinds = dict.fromkeys(cell.verdict.split(" by ")[0] for cell in found)
    notes = [_MEANING[kind] for kind in kinds if kind in _MEANING]
    notes += _by_cell(found, lambda cell: ", ".join(map(_in_words, cell.departures)))
    notes += _by_cell(found, lambda cell: cell.note and f"data are not the published set ({cell.note})")
    notes += _by_cell(
        [c for c in found if c.std_over], lambda c: f"± here is the standard deviation over {c.std_over} (ddof 0)"
    )
    if any(cell.printed_std is not None for cell in found):
        notes.append(f"The paper's ±: {_printed_table(table).get('std_is', 'not stated')}.")
    missing = _by_cell(found, lambda cell: "" if cell.statuses else f"not run (tier {table.tier})")
    notes += [note.replace("All runs: not", "Not") for note in missing]
    if stale := sum(cell.stale for cell in found):
        notes.append(f"Stale records, of an older results version, which do not count: {stale}.")
    return notes


def _by_cell(found: list[Cell], text: Callable[[Cell], str]) -> list[str]:
    """Say for all runs at once what holds for all of them, else for whole rows, else for single cells."""
    texts = {(cell.row, cell.column): text(cell) for cell in found}
    if len(set(texts.values())) == 1:
        return [f"All runs: {one}." for one in set(texts.values()) if one]
    whole = {row for row, _ in texts if len({t for (r, _), t in texts.items() if r == row}) == 1}
    names: dict[str, dict[str, None]] = {}
    for (row, column), one in texts.items():
        if one:
            names.setdefault(one, {})[row if row in whole else f"{row} ({column})"] = None
    return [f"{', '.join(who)}: {one}." for one, who in names.items()]


def _in_words(departure: str) -> str:
    name, value, rest = departure.split(" ", 2)
    if name in _COUNTED:
        return f"{value} {_COUNTED[name].removesuffix('s') if value == '1' else _COUNTED[name]} {rest}"
    return f"{name.replace('_', ' ')} {value} {rest}"


def _plus_minus(value: float | None, std: float | None) -> str:
    return "" if value is None else f"{value:.1f}" + ("" if std is None else f" ± {std:.1f}")


def _seeds(cell: Cell) -> str:
    bad = [f"{n} {kind}" for kind, n in Counter(cell.statuses).items() if kind != "finished"]
    return ", ".join([f"{len(cell.statuses)} of {cell.expected}", *bad])


def _table(name: str) -> sweep.Table:
    tables = sweep.read(papers.folder() / "sweeps")
    if name not in tables:
        raise ReportError(f"There is no table {name!r}; the sweep files have {', '.join(tables) or 'none'}.")
    return tables[name]


def cells_of(name: str) -> list[Cell]:
    """The cells of table ``name`` of the sweep files, from the committed ledger."""
    return cells(_table(name), committed())


def printed(name: str) -> dict[str, dict[str, float | None]]:
    """The printed numbers of ``"MOON Table 6"``, say: row, column, value."""
    rows = _find_printed(name, name)["rows"]
    return {row["method"]: {column: cell["value"] for column, cell in row["cells"].items()} for row in rows}


def anchor(source: str, method: str, round: int) -> float:
    """Test accuracy in percent that a public re-run logged after a round, from ``data/reported.json``."""
    return json.loads(REPORTED.read_text(encoding="utf-8"))["anchors"][source][method][str(round)]


def show(name: str) -> Markdown:
    """Table ``name`` of the sweep files for a notebook, from the committed ledger, so that a test run prints the same."""
    from IPython.display import Markdown

    return Markdown(markdown(_table(name), committed(), link="../results/runs"))


def curves(
    tables: str | sweep.Table | Sequence[str | sweep.Table], ax: Axes | None = None, *, ledger: pd.DataFrame | None = None
) -> Axes:
    """Accuracy per communication round: a line for the mean over seeds, a band from the lowest to the highest.

    Runs of a single round (SOLO) are a dashed level, as in the papers' figures.

    Parameters
    ----------
    tables
        One or several tables, or their names in the sweep files.
    ledger
        From `runs.load`; by default the committed one.
    """
    given = [tables] if isinstance(tables, str) or not isinstance(tables, Sequence) else tables
    points = _points([_table(t) if isinstance(t, str) else t for t in given], committed() if ledger is None else ledger)
    ax = ax or plt.figure(layout="constrained").subplots()
    ax.set(xlabel="communication round", ylabel="test accuracy (%)")
    if points.empty:
        ax.text(0.5, 0.5, "nothing recorded", ha="center", va="center", transform=ax.transAxes)
        return ax
    length = points.groupby(["row", "line"], sort=False)["round"].transform("max")
    curved, flat = points[length > 1], points[length == 1]
    rows = list(dict.fromkeys(points["row"]))
    colours = dict(zip(rows, sns.color_palette("colorblind", len(rows)), strict=True))
    several = points["line"].nunique() > 1
    if not curved.empty:
        style = {"style": "line"} if several else {}
        sns.lineplot(curved, x="round", y="accuracy", hue="row", palette=colours, errorbar=("pi", 100), ax=ax, **style)
    for (row, line), level in flat.groupby(["row", "line"], sort=False)["accuracy"].mean().items():
        name = f"{row}, {line}" if several else str(row)
        ax.axhline(level, color=colours[row], linestyle="--", label=f"{name} (one round)")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax


def _points(tables: Iterable[sweep.Table], ledger: pd.DataFrame) -> pd.DataFrame:
    """One row per run and round; ``line`` tells apart what shares a row label."""
    records, tables, points = _records(ledger), list(tables), []
    for table in tables:
        for cell in cells(table, ledger):
            line = f"{cell.column} ({table.name})" if len(tables) > 1 else cell.column
            for metrics in (records[path]["metrics"] for path in cell.paths):
                points += [
                    (cell.row, line, *pair)
                    for pair in zip(metrics.get("round", []), metrics.get("accuracy", []), strict=False)
                ]
    # without the rounds in which a run diverged
    return pd.DataFrame(points, columns=["row", "line", "round", "accuracy"]).dropna()


def paired(
    table: str | sweep.Table, a: str, b: str, column: str | None = None, *, ledger: pd.DataFrame | None = None
) -> tuple[float, float, int]:
    """By how much row ``a`` beats row ``b``, judged by differences over the seeds that both have.

    Returns
    -------
    tuple
        Mean difference a − b, half width of its 95 % interval (NaN for one pair), number of pairs. The claim holds
        if the mean exceeds the half width.

    Raises
    ------
    ReportError
        For an unknown row or column, without a shared seed, or if a seed splits the data differently in ``a`` and ``b``.
    """
    if isinstance(table, str):
        table, ledger = _table(table), committed() if ledger is None else ledger
    found = {(cell.row, cell.column): cell for cell in cells(table, ledger)}
    columns = list(dict.fromkeys(c for _, c in found))
    if column is None and len(columns) > 1:
        raise ReportError(f"{table.name} has several columns; choose one of {', '.join(columns)}.")
    sides = []
    for row in (a, b):
        if (cell := found.get((row, column or columns[0]))) is None:
            known = ", ".join(f"{r} | {c}" for r, c in found)
            raise ReportError(f"{table.name} has no row {row!r} with column {column or columns[0]!r}; there are {known}.")
        good = [i for i, status in enumerate(cell.statuses) if status == "finished"]
        sides.append({cell.seeds[i]: (value, cell.partitions[i]) for i, value in zip(good, cell.values, strict=True)})
    shared = sorted(sides[0].keys() & sides[1].keys())
    if not shared:
        raise ReportError(f"{table.name}: {a} and {b} share no finished seed.")
    if other := [seed for seed in shared if sides[0][seed][1] != sides[1][seed][1]]:
        raise ReportError(f"{table.name}: {a} and {b} cannot be paired: seed {other[0]} splits the data differently.")
    mean, half = evaluate.interval([sides[0][seed][0] - sides[1][seed][0] for seed in shared], LEVEL)
    return mean, half, len(shared)


def text(table: sweep.Table, ledger: pd.DataFrame | None = None) -> str:
    """The table for a terminal."""
    shown = frame(table, ledger)[["row", "column", "printed", "mean", "std", "seeds", "verdict"]]
    shown = shown.assign(seeds=[len(str(seeds).split("; ")) if seeds else 0 for seeds in shown["seeds"]])
    shown = shown.rename(columns={"printed": "paper", "mean": "here"}).dropna(axis=1, how="all")
    return f"{table.title}\n" + shown.to_string(index=False, float_format="{:.1f}".format, na_rep="")


def write_all(sweeps: Path, out: Path, folder: Path | None = None) -> list[Path]:
    """Write every table of the sweep files, its figure, and an index.

    Parameters
    ----------
    folder
        Where the records are; by default ``out/runs``.

    Returns
    -------
    list of Path
        Per table ``tables/NAME.md``, ``tables/NAME.csv`` and, where there are curves, ``figures/NAME.svg``; the index
        ``tables/README.md``.
    """
    folder = folder or out / "runs"
    ledger = runs.load(folder)
    link = os.path.relpath(folder, out / "tables").replace(os.sep, "/")
    files: dict[Path, str | bytes] = {}
    index = ["# Tables", "", "Generated from the run records; do not edit.", ""]
    index += ["| table | what | runs | verdicts | figure |", "| :-- | :-- | :-- | :-- | :-- |"]
    for name, table in sweep.read(sweeps).items():
        files[out / "tables" / f"{name}.md"] = markdown(table, ledger, link=link)
        files[out / "tables" / f"{name}.csv"] = csv(table, ledger)
        figure = out / "figures" / f"{name}.svg"
        if _points([table], ledger)["round"].max() > 1:
            files[figure] = _svg(table, ledger)
        else:
            figure.unlink(missing_ok=True)  # of records that are gone
        found = cells(table, ledger)
        recorded = f"{sum(len(cell.paths) for cell in found)} of {sum(cell.expected for cell in found)}"
        picture = f"[curves](../figures/{name}.svg)" if figure in files else ""
        index.append(f"| [{name}]({name}.md) | {table.title} | {recorded} | {_summary(table, found)} | {picture} |")
    index += ["", *(f"- {meaning}" for meaning in _MEANING.values())]
    files[out / "tables" / "README.md"] = "\n".join(index) + "\n"
    for path, content in files.items():
        runs.write_atomically(path, content)
    return list(files)


def _summary(table: sweep.Table, found: list[Cell]) -> str:
    """``3 reproduced, 1 off``; what is recorded if there is nothing to judge."""
    if not any(cell.statuses for cell in found):
        return f"not run (tier {table.tier})"
    verdicts = Counter(cell.verdict.split(" by ")[0] for cell in found if cell.verdict)
    return ", ".join(f"{n} {kind}" for kind, n in verdicts.items()) or "recorded"


def readme(text: str, sweeps: Path, ledger: pd.DataFrame) -> str:
    """The project's README with its list of notebooks, claims and verdicts written anew between the two marks."""
    tables = sweep.read(sweeps).values()
    lines = ["| notebook | claim | tables and verdicts |", "| :-- | :-- | :-- |"]
    for path in sorted(papers.folder().glob("[0-9]*.ipynb")):
        prose = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown")
        claim = re.search(r"\*\*Claim[^*]*\*\* (.+)", prose)
        verdicts = [
            f"[{table.name}](results/tables/{table.name}.md): {_summary(table, cells(table, ledger))}"
            for table in tables
            if table.notebook == path.stem
        ]
        lines.append(f"| [{path.stem}](notebooks/{path.name}) | {claim[1] if claim else ''} | {'<br>'.join(verdicts)} |")
    begin, end = "<!-- notebooks: written by `python -m fednb report` -->\n", "<!-- end -->"
    if begin not in text or end not in text:
        raise ReportError(f"README.md lacks the marks {begin.strip()} and {end}, between which the notebooks are listed.")
    before, rest = text.split(begin, 1)
    return before + begin + "\n" + "\n".join(lines) + "\n\n" + end + rest.split(end, 1)[1]


def _svg(table: sweep.Table, ledger: pd.DataFrame) -> bytes:
    """The table's curves, the same bytes whenever the records are the same, whatever the reader's matplotlib settings."""
    options = {"svg.hashsalt": "fednb", "svg.fonttype": "none"}
    with plt.style.context(["default", options], after_reset=True):
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        curves(table, figure.subplots(), ledger=ledger).set_title(table.title)
        file = BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()
