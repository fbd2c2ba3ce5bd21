"""Methods against one another in one setting: the runs that are missing are made, then tabled in pairs and drawn."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from fednb import plots
from fednb.errors import SweepError, require_known
from fednb.experiments import ledger, settings
from fednb.reporting.comparisons import gaps
from fednb.reporting.render import markdown
from fednb.reporting.tables import cells_of
from fednb.sweeps import execution
from fednb.sweeps.jobs import Notebook
from fednb.sweeps.plan import recorded_and_missing
from fednb.sweeps.processes import log_of
from fednb.sweeps.table import Axis, Job, Table


def table_of(methods: Mapping[str, str], given: Mapping[str, Any], seeds: int) -> Table:
    """A row per method, with the first one's settings but for what is given; an unknown name is a `SweepError`."""
    of = {method: Notebook(notebook) for method, notebook in methods.items()}
    fields = {method: own.methods[method].__dataclass_fields__ for method, own in of.items()}
    common = {*settings.FIELDS, "dataset", "sampled"}
    for name in given:
        require_known(
            "No method has a parameter", name, sorted(common.union(*fields.values())), SweepError
        )
    jobs: list[Job] = []
    asked = {"dataset": "digits"} | dict(given)
    said = {"seed", *given} | ({"participation"} if "sampled" in given else set())
    for method in methods:
        own = {
            name: value for name, value in asked.items() if name in common or name in fields[method]
        }
        own |= (
            {name: getattr(jobs[0].settings, name) for name in settings.FIELDS if name not in said}
            if jobs
            else {}
        )
        jobs += [of[method].job(own | {"method": method, "seed": seed}) for seed in range(seeds)]
    asked["dataset"] = jobs[0].settings.flat()["dataset"]
    title = " ".join(f"{name}={value}" for name, value in asked.items())
    axes, baseline = (Axis("method"), Axis("dataset")), next(iter(methods))
    return Table(
        "compare",
        jobs[0].notebook,
        title,
        None,
        *axes,
        "accuracy",
        tuple(jobs),
        Path("compare"),
        baseline,
    )


def compare(
    methods: Mapping[str, str], given: Mapping[str, Any], *, seeds: int, jobs: int
) -> tuple[str, list[Path]]:
    """Make what is not recorded; a table in Markdown of pairs with the first method, and where it and its figure lie."""
    table = table_of(methods, given, seeds)
    todo = recorded_and_missing(table.jobs)[1]
    for job, error in execution.run(todo, jobs=jobs) if todo else ():
        if error:
            raise SweepError(f"{job.path.stem} failed: {error} (log: {log_of(job.path)})")
    # each method's records lie beside its notebook, if that is elsewhere
    records = {job.path: ledger.read(job.path) for job in table.jobs}
    text = markdown(table, found := cells_of(table, records))
    baseline, leads = gaps(table, found)
    ax = plt.figure(figsize=(6.4, 1.2 + 0.4 * len(leads)), layout="constrained").subplots()
    ax.axvline(0, color=plots.colour(baseline))
    for place, ((row, _), pair) in enumerate(leads.items()):
        ax.errorbar(
            pair.lead.mean, place, xerr=pair.lead.half, fmt="o", color=plots.colour(row), capsize=3
        )
    ax.set_yticks(range(len(leads)), [row for row, _ in leads])
    ax.set(xlabel=f"lead over {baseline} (points of accuracy)", ylim=(len(leads) - 0.5, -0.5))
    name = f"{'-'.join(cell.row for cell in found)[:80]}-{ledger.key({'paths': [job.path.name for job in table.jobs]})}"
    own = [job for job in table.jobs if job.notebook.endswith(".ipynb")]
    results = (own or table.jobs)[-1].path.parent.parent
    paths = [results / "compare" / f"{name}{suffix}" for suffix in (".md", ".svg")]
    ledger.write_atomically(paths[0], text)  # which makes the folder
    ax.figure.savefig(paths[1])
    plt.close(ax.figure)
    return text, paths
