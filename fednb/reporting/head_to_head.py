"""Methods against one another in one setting: missing runs are made, all are tabled and drawn."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from fednb import plots
from fednb.analysis.cells import cells_of
from fednb.analysis.comparisons import LeadsOverBaseline, leads_over_baseline
from fednb.errors import SweepError, require_known
from fednb.experiments import ledger, settings
from fednb.reporting.markdown import table_in_full
from fednb.sweeps import execution
from fednb.sweeps.jobs import Notebook
from fednb.sweeps.plan import recorded_and_missing
from fednb.sweeps.processes import log_of
from fednb.sweeps.table import Axis, Job, Table


def table_of(methods: Mapping[str, str], given: Mapping[str, Any], seeds: int) -> Table:
    """A row per method, in the setting of the first one, but for what is given.

    ``methods`` are the notebooks of methods, ``given`` settings and hyperparameters: each method
    gets what it has. A `SweepError` if none has it.
    """
    notebooks = {method: Notebook(name) for method, name in methods.items()}
    hyperparameters = {
        method: {field.name for field in dataclasses.fields(notebook.methods[method])}
        for method, notebook in notebooks.items()
    }
    of_all = {*settings.FIELDS, "dataset", "sampled"}
    known = sorted(of_all.union(*hyperparameters.values()))
    for name in given:
        require_known("No method has a parameter", name, known, SweepError)
    given = {"dataset": "digits"} | dict(given)
    jobs: list[Job] = []
    for method, notebook in notebooks.items():
        has = of_all | hyperparameters[method]
        parameters = {name: value for name, value in given.items() if name in has}
        if jobs:
            parameters |= _setting_of(jobs[0], given)
        for seed in range(seeds):
            jobs.append(notebook.job(parameters | {"method": method, "seed": seed}))
    shown = given | {"dataset": jobs[0].settings.flat()["dataset"]}
    return Table(
        name="compare",
        notebook=jobs[0].notebook,
        title=" ".join(f"{name}={value}" for name, value in shown.items()),
        printed=None,
        rows=Axis("method"),
        columns=Axis("dataset"),
        measure="accuracy",
        jobs=tuple(jobs),
        file=Path("compare"),
        baseline=next(iter(methods)),
    )


def _setting_of(job: Job, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run that others have to share, but for those given."""
    left_out = {"seed", *given}
    if "sampled" in given:  # another name for it
        left_out.add("participation")
    names = [name for name in settings.FIELDS if name not in left_out]
    return {name: getattr(job.settings, name) for name in names}


def compare(
    methods: Mapping[str, str], given: Mapping[str, Any], *, seeds: int, jobs: int
) -> tuple[str, list[Path]]:
    """Make what is not recorded; a table in Markdown, and where it and its figure lie."""
    table = table_of(methods, given, seeds)
    _, todo = recorded_and_missing(table.jobs)
    for job, error in execution.run(todo, jobs=jobs) if todo else ():
        if error:
            raise SweepError(f"{job.path.stem} failed: {error} (log: {log_of(job.path)})")
    # each method's records lie beside its notebook, if that is elsewhere
    records = {job.path: ledger.read(job.path) for job in table.jobs}
    cells = cells_of(table, records)
    text = table_in_full(table, cells)
    key = ledger.key({"paths": [job.path.name for job in table.jobs]})
    name = f"{'-'.join(cell.row for cell in cells)[:80]}-{key}"
    own = [job for job in table.jobs if job.notebook.endswith(".ipynb")]
    results = (own or table.jobs)[-1].path.parent.parent
    folder = results / "compare"
    page = folder / f"{name}.md"
    figure = folder / f"{name}.svg"
    ledger.write_atomically(page, text)  # which makes the folder
    _draw(leads_over_baseline(table, cells), figure)
    return text, [page, figure]


def _draw(leads: LeadsOverBaseline, path: Path) -> None:
    """Write a figure of leads, a line for each method."""
    rows = [row for row, _ in leads.comparisons]
    figure = plt.figure(figsize=(6.4, 1.2 + 0.4 * len(rows)), layout="constrained")
    ax = figure.subplots()
    ax.axvline(0, color=plots.colour(leads.baseline))
    for y, comparison in enumerate(leads.comparisons.values()):
        lead = comparison.lead
        if lead.mean is not None:
            colour = plots.colour(comparison.ahead.row)
            ax.errorbar(lead.mean, y, xerr=lead.half_width, fmt="o", color=colour, capsize=3)
    ax.set_yticks(range(len(rows)), rows)
    xlabel = f"lead over {leads.baseline} (points of accuracy)"
    ax.set(xlabel=xlabel, ylim=(len(rows) - 0.5, -0.5))
    figure.savefig(path)
    plt.close(figure)
