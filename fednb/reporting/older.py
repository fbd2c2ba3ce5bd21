"""What older notebooks call; to be deleted with them: tuning, leads as numbers, public re-runs, a list of tables."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from IPython.display import Markdown

from fednb.experiments import sweep
from fednb.reporting.comparisons import cell_at, compare
from fednb.reporting.metrics import ReportError
from fednb.reporting.render import _fill, _page
from fednb.reporting.reported import printed
from fednb.reporting.tables import Ledger, Named, cells_of, committed, found_in, runs_of, table_of


def overview(names: Iterable[str]) -> Markdown:
    """What is recorded of some tables, a line each."""
    return Markdown(_fill("overview", told=[(table_of(name), cells_of(name)) for name in names], page=_page))


def anchor(source: str, method: str, round: int) -> float:
    """Test accuracy in percent that a public re-run logged after a round."""
    return printed(f"{source} log")[method][f"round {round}"]


def paired(table: Named, a: str, b: str, column: str | None = None, *, ledger: Ledger = None) -> tuple[float, float, int]:
    """Mean difference a − b over the seeds that both have, the half width of its interval, and the number of pairs."""
    found = cells_of(table, ledger)
    up = compare(cell_at(found, a, column), cell_at(found, b, column)).lead
    if up.mean is None:
        raise ReportError(f"{a} and {b} share no finished seed, or a run never got there.")
    return up.mean, up.half, up.seeds


def trials(table: Named, ledger: Ledger = None) -> pd.DataFrame:
    """The trials of a table that tunes its rows, and in each row the one that held-out training images choose.

    A line per trial: ``row``; ``settings``, what tells the trials of a row apart; ``validation`` and ``accuracy`` in
    percent, means over seeds (NaN if a run is missing or diverged); ``seconds`` and ``megabytes`` of its recorded runs;
    and ``chosen``, the best ``validation`` of a row, of equally good ones the first.
    """
    groups = _runs(table, ledger)[1].groupby(["row", "settings"], sort=False)
    means = groups[["validation", "accuracy"]].agg(lambda values: np.mean(values.to_numpy()))  # with NaN: NaN
    lines = means.join(groups[["seconds", "megabytes"]].sum()).reset_index()
    best = lines["validation"] == lines.groupby("row")["validation"].transform("max")
    return lines.assign(settings=lines["settings"].map(dict), chosen=best & ~lines.duplicated(["row", "validation"]))


def tuned(table: Named, ledger: Ledger = None) -> pd.DataFrame:
    """What it is worth to choose a parameter (that of the rows, or ``best_of``) on the test set.

    A line per seed, and one, ``all``, for the value that is best on average: the values chosen (of equally good ones the
    first in the table), their test accuracies, and ``gain``, by how many points the choice ``by_test`` is higher.
    ``compared`` says how many values could be compared: those with a finished run, for ``all`` of every seed.
    """
    table, runs = _runs(table, ledger)
    name = table.best_of or table.rows.parameter
    runs["value"] = [job.settings.flat().get(name) for job in runs["job"]]
    if runs.duplicated(["seed", "value"]).any():
        raise ReportError(f"{table.name}: several runs have the same seed and {name}, so nothing is tuned.")
    values = list(dict.fromkeys(runs["value"]))
    test, held = (runs.pivot(index="seed", columns="value", values=of)[values] for of in ("accuracy", "validation"))
    test = test.dropna(how="all")
    lines = [(seed, test.loc[seed].dropna(), held.loc[seed].dropna()) for seed in test.index]
    complete = test.dropna(axis=1)
    if len(lines) > 1 and len(complete.columns):
        lines.append(("all", complete.mean(), held.loc[complete.index, complete.columns].mean()))
    rows = []
    for seed, accuracy, validation in lines:
        best, chosen = accuracy.idxmax(), validation.idxmax()
        rows.append((seed, f"{len(accuracy)} of {len(values)}", best, chosen, accuracy[best], accuracy[chosen]))
    columns = ["seed", "compared", "by_test", "by_validation", "accuracy_by_test", "accuracy_by_validation"]
    found = pd.DataFrame(rows, columns=columns).set_index("seed")
    return found.assign(gain=found["accuracy_by_test"] - found["accuracy_by_validation"])


def _runs(table: Named, ledger: Ledger) -> tuple[sweep.Table, pd.DataFrame]:
    """Each run of a table once, with its accuracies and costs; a `ReportError` if one holds out no images."""
    if isinstance(table, str):
        table, ledger = table_of(table), committed() if ledger is None else ledger
    if any(job.settings.validation is None for job in table.jobs):
        raise ReportError(f"{table.name} holds out no training images: its runs need the parameter validation.")
    lines = []
    for run in {run.job.path: run for run in runs_of(table, found_in(ledger))}.values():
        record, line = (
            run.record if run.counts else {},
            {"row": run.label, "settings": run.told, "job": run.job},
        )
        final = record.get("final", {}) if run.state == "finished" else {}
        line |= {"seed": run.job.settings.seed, "seconds": record.get("wall_seconds", 0.0)}
        line |= {name: final.get(name, np.nan) for name in ("validation", "accuracy")}
        line["megabytes"] = sum(sum(record.get("metrics", {}).get(way, ())) for way in ("down_bytes", "up_bytes")) / 1e6
        lines.append(line)
    return table, pd.DataFrame(lines)
