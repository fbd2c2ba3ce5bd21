"""Methods against one another in one setting: missing runs are made, all are tabled and drawn."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from fednb import plots
from fednb.errors import SweepError, check, require_known
from fednb.experiments import ledger, settings
from fednb_lab import pool
from fednb_lab.analysis import statistics
from fednb_lab.analysis.cells import cells_of, records_of
from fednb_lab.analysis.comparisons import Comparison, corrected_family, leads_over_baseline
from fednb_lab.jobs import MAX_RUNS, Contestant, Job, Notebook, in_order, recorded_and_missing
from fednb_lab.reporting import words
from fednb_lab.reporting.markdown import table_in_full
from fednb_lab.sweeps import Axis, Table

Family = Mapping[tuple[str, str], Comparison]  # by row and column


def table_of(contestants: Mapping[str, Contestant], given: Mapping[str, Any], seeds: int) -> Table:
    """A row per method, in the setting of the first one, but for what is given.

    ``contestants`` are methods by what they are called, ``given`` settings and hyperparameters:
    each method gets what it has. A `SweepError` if none has it.
    """
    number = len(contestants) * seeds
    message = f"{number:,} runs are asked for; at most {MAX_RUNS:,} are made: take fewer seeds."
    check(number <= MAX_RUNS, message, SweepError)
    notebooks = {name: Notebook(name) for _, name in contestants.values()}
    hyperparameters = {}
    for one in contestants.values():
        fields = dataclasses.fields(notebooks[one.notebook].methods[one.method])
        hyperparameters[one] = {field.name for field in fields}
    of_all = {*settings.FIELDS, "dataset", "sampled"} - {"seed"}  # which are counted from 0
    known = sorted(of_all.union(*hyperparameters.values()))
    for name in given:
        require_known("No method has a parameter", name, known, SweepError)
    given = {"dataset": "digits"} | dict(given)
    jobs: list[Job] = []
    for one in contestants.values():
        has = of_all | hyperparameters[one]
        parameters = {name: value for name, value in given.items() if name in has}
        if jobs:
            parameters |= _setting_of(jobs[0], given)
        for seed in range(seeds):
            own = parameters | {"method": one.method, "seed": seed}
            jobs.append(notebooks[one.notebook].job(own))
    shown = given | {"dataset": jobs[0].settings.flat()["dataset"]}
    return Table(
        name="compare",
        notebook=jobs[0].notebook,
        title=" ".join(f"{name}={value}" for name, value in shown.items()),
        printed=None,
        rows=Axis("method", named={name: one._asdict() for name, one in contestants.items()}),
        columns=Axis("dataset"),
        measure="accuracy",
        jobs=tuple(jobs),
        file=Path("compare"),
        baseline=next(iter(contestants)),
    )


def _setting_of(job: Job, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run that others have to share, but for those given."""
    left_out = {"seed", *given}
    if "sampled" in given:  # another name for it
        left_out.add("participation")
    names = [name for name in settings.FIELDS if name not in left_out]
    return {name: getattr(job.settings, name) for name in names}


def compare(
    contestants: Mapping[str, Contestant],
    given: Mapping[str, Any],
    *,
    seeds: int,
    jobs: int,
    again: bool = False,
) -> tuple[str, list[Path]]:
    """Make what is not recorded, or all ``again``; a table in Markdown, and where it and its figure
    lie.
    """
    table = table_of(contestants, given, seeds)
    todo = in_order(table.jobs) if again else recorded_and_missing(table.jobs)[1]
    if todo:
        pool.run_needed(todo, jobs=jobs, again=again)
    # each method's records lie beside its notebook, if that is elsewhere
    cells = cells_of(table, records_of(table))
    baseline, comparisons = leads_over_baseline(table, cells)
    family = corrected_family(comparisons)
    text = f"{table_in_full(table, cells)}\n{_who_is_ahead(baseline, family)}\n"
    key = ledger.key({"paths": [job.path.name for job in table.jobs]})
    rows = re.sub(r"[^\w.+-]+", "-", "-".join(cell.row for cell in cells))
    name = f"{rows[:80]}-{key}"
    own = [job for job in table.jobs if job.notebook.endswith(".ipynb")]
    folder = (own or table.jobs)[-1].path.parent.parent / "compare"
    page, figure = folder / f"{name}.md", folder / f"{name}.svg"
    ledger.write_atomically(page, text)  # which makes the folder
    _draw(baseline, family, figure)
    return text, [page, figure]


def _who_is_ahead(baseline: str, family: Family) -> str:
    """Which methods are ahead of the baseline, which behind, and of which the runs do not tell."""
    sides: dict[str, list[str]] = {}
    for (row, _), comparison in family.items():
        lead = comparison.lead
        told = f"{row} ({words.lead_over_seeds(comparison)}"
        reason = _why_open(comparison, len(family))
        if reason:
            side = f"Cannot tell from {baseline}"
            told += f"; {reason}"
        else:
            is_ahead = lead.mean is not None and lead.mean > 0
            side = f"{'Ahead of' if is_ahead else 'Behind'} {baseline}"
        sides.setdefault(side, []).append(f"{told})")
    return "\n".join(f"- {side}: {', '.join(rows)}." for side, rows in sides.items())


def _why_open(comparison: Comparison, number: int) -> str:
    """Why the runs do not tell which of two is ahead; empty if they do."""
    lead = comparison.lead
    if lead.diverged or lead.mean is None:
        return "a run diverged"
    if lead.seeds < statistics.MIN_SEEDS:
        return f"it takes {statistics.MIN_SEEDS} seeds to tell"
    if lead.holds_zero:
        return "the interval holds zero"
    return "" if lead.shown else f"one of {number} comparisons may look so by luck"


def _draw(baseline: str, family: Family, path: Path) -> None:
    """Write a figure of leads, a line a method; hollow where they cannot be told from zero."""
    rows = [row for row, _ in family]
    size = (6.4, 1.2 + 0.4 * len(rows))
    figure, ax = plt.subplots(figsize=size, layout="constrained")
    ax.axvline(0, color=plots.colour(baseline))
    for y, comparison in enumerate(family.values()):
        lead = comparison.lead
        if lead.mean is not None:
            colour = plots.colour(comparison.ahead.row)
            is_absurd = words.is_absurd(lead.half_width, lead.seeds)
            half_width = None if is_absurd else lead.half_width
            face = colour if lead.shown else "white"
            ax.errorbar(lead.mean, y, xerr=half_width, fmt="o", color=colour, mfc=face, capsize=3)
    ax.set_yticks(range(len(rows)), rows)
    xlabel = f"lead over {baseline} (points of accuracy)"
    ax.set(xlabel=xlabel, ylim=(len(rows) - 0.5, -0.5))
    figure.savefig(path)
    plt.close(figure)
