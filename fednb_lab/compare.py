"""Methods against one another in one setting: missing runs are made, all are tabled and drawn."""

import dataclasses
import itertools
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from fednb import plots, settings
from fednb import records as ledger
from fednb.errors import SweepError, check, require_known
from fednb.leads import MIN_SEEDS
from fednb.results import ForestRow, draw_forest, numbers
from fednb_lab import pool, words
from fednb_lab.cells import cells_of, records_of
from fednb_lab.jobs import (
    MAX_RUNS,
    ComparedMethod,
    Job,
    Notebook,
    each_once,
    folders_of,
    missing,
    tell_other_code,
    with_networks,
)
from fednb_lab.leads import Comparison, as_family, leads_over_baseline
from fednb_lab.pages import cells_csv
from fednb_lab.sweeps import Axis, Table
from fednb_lab.tables import table_in_full

Family = Mapping[tuple[str, str], Comparison]  # by row and column


def table_of(compared: Mapping[str, ComparedMethod], given: Mapping[str, Any], seeds: int) -> Table:
    """Make a row per method, in the setting of the first one, but for what is given.

    ``compared`` are methods by what they are called, ``given`` settings and hyperparameters:
    each method gets what it has, ``MOON.mu`` is MOON's alone. A `SweepError` if none has it.
    """
    number = len(compared) * seeds
    message = f"{number:,} runs are asked for; at most {MAX_RUNS:,} are made: take fewer seeds."
    check(number <= MAX_RUNS, message, SweepError)
    given = {"dataset": "digits"} | dict(given)
    notebooks = {name: Notebook(name) for _, name in compared.values()}
    of_all = {*settings.FIELDS, "dataset"} - {"seed"}  # which are counted from 0
    of_one = {}
    for called, one in compared.items():
        fields = dataclasses.fields(notebooks[one.notebook].methods[one.method])
        of_one[called] = [field.name for field in fields]
    _check_given(given, of_all, of_one)
    jobs: list[Job] = []
    for called, one in compared.items():
        has = of_all.union(of_one[called])
        parameters = _setting_of(jobs[0]) if jobs else {}
        parameters |= {name: value for name, value in given.items() if name in has}
        for name in of_one[called]:
            if f"{called}.{name}" in given:
                parameters[name] = given[f"{called}.{name}"]
        for seed in range(seeds):
            own = parameters | {"method": one.method, "seed": seed}
            jobs.append(notebooks[one.notebook].job(own))
    shown = given | {"dataset": jobs[0].settings.flat()["dataset"]}
    return Table(
        name="compare",
        notebook=jobs[0].notebook,
        title=" ".join(f"{name}={value}" for name, value in shown.items()),
        rows=Axis("method", named={name: one._asdict() for name, one in compared.items()}),
        columns=Axis("dataset"),
        jobs=tuple(with_networks(jobs)),
        file=Path("compare"),
        baseline=next(iter(compared)),
    )


def _check_given(
    given: Mapping[str, Any], of_all: Collection[str], of_one: Mapping[str, Sequence[str]]
) -> None:
    """Refuse what no method has, and say what several have as a hyperparameter of their own."""
    dotted = [f"{called}.{name}" for called, names in of_one.items() for name in names]
    plain = sorted({*of_all, *itertools.chain.from_iterable(of_one.values())})
    for name, value in given.items():
        known = dotted if "." in name else plain
        require_known("No method has a parameter", name, known, SweepError)
        having = [called for called, names in of_one.items() if name in names]
        having = [called for called in having if f"{called}.{name}" not in given]
        if len(having) > 1:
            told = f"{name}={value} is given to {' and '.join(having)}"
            print(f"{told}; {having[-1]}.{name}={value} is {having[-1]}'s alone", file=sys.stderr)


def _setting_of(job: Job) -> dict[str, Any]:
    """The settings of a run that others have to share."""
    return {name: getattr(job.settings, name) for name in settings.FIELDS if name != "seed"}


class Outcome(NamedTuple):
    """What a comparison has made."""

    text: str  # its table in Markdown, and who is ahead
    paths: list[Path]  # of what was written
    runs: str  # the folders of the records


def compare(
    compared: Mapping[str, ComparedMethod],
    given: Mapping[str, Any],
    *,
    seeds: int,
    jobs: int,
    again: bool = False,
) -> Outcome:
    """Make what is not recorded, or all ``again``; write table, cells as CSV, and a figure of leads."""
    table = table_of(compared, given, seeds)
    unique = each_once(table.jobs)
    todo = unique if again else missing(unique)
    other_code = "" if again else tell_other_code(unique)
    if todo:
        told = f"{len(todo)} of {len(unique)} runs are to be made; a line tells when one has ended"
        print(told, file=sys.stderr, flush=True)
        pool.run_needed(todo, jobs=jobs, again=again)
    # each method's records lie beside its notebook, if that is elsewhere
    cells = cells_of(table, records_of(table))
    baseline, comparisons = leads_over_baseline(table, cells)
    family = as_family(comparisons)
    text = f"{table_in_full(table, cells)}\n{who_is_ahead(baseline, family)}\n"
    if other_code:
        text += f"\nSome runs are {other_code}.\n"
    key = ledger.key({"paths": [job.path.name for job in table.jobs]})
    rows = re.sub(r"[^\w.+-]+", "-", "-".join(cell.row for cell in cells))
    own = [job for job in table.jobs if job.notebook.endswith(".ipynb")]
    folder = (own or table.jobs)[-1].path.parent.parent / "compare"
    page = folder / f"{rows[:80]}-{key}.md"
    values = folder / f"{rows[:80]}-{key}.csv"
    figure = folder / f"{rows[:80]}-{key}.svg"
    ledger.write_atomically(page, text)  # which makes the folder
    ledger.write_atomically(values, cells_csv({table.name: cells}))
    _draw(baseline, family, figure)
    return Outcome(text, [page, values, figure], folders_of(table.jobs))


def who_is_ahead(baseline: str, family: Family) -> str:
    """Say which methods are ahead of the baseline, which behind, and which cannot be told from it."""
    sides: dict[str, list[str]] = {}
    for (row, _), comparison in family.items():
        lead = comparison.lead
        told = f"{row}, {words.lead_over_seeds(comparison)}"
        reason = _why_open(comparison, len(family))
        if reason:
            side = f"Cannot tell from {baseline}"
            told += f": {reason}"
        else:
            is_ahead = lead.mean is not None and lead.mean > 0
            side = f"{'Ahead of' if is_ahead else 'Behind'} {baseline}"
        sides.setdefault(side, []).append(told)
    lines = [f"- {side}: {'; '.join(rows)}." for side, rows in sides.items()]
    return words.in_markdown_lines(lines)


def _why_open(comparison: Comparison, number: int) -> str:
    """Why the runs do not tell which of two is ahead; empty if they do."""
    lead = comparison.lead
    if lead.diverged or lead.mean is None:
        return "a run diverged"
    if lead.seeds < MIN_SEEDS:
        return f"it takes {MIN_SEEDS} seeds to tell"
    if lead.holds_zero:
        return "the interval contains zero"
    return "" if lead.shown else f"one of {number} comparisons may look so by luck"


def _draw(baseline: str, family: Family, path: Path) -> None:
    """Write a figure of leads, a line a method."""
    rows = []
    for (row, _), comparison in family.items():
        colour = plots.colour(comparison.ahead.row)
        rows.append(ForestRow(row, comparison.lead, colour, numbers(comparison.lead)))
    ax = draw_forest(rows, sides=("the method", baseline))
    figure = cast(Figure, ax.figure)
    figure.savefig(path)
    plt.close(figure)
