"""Made-up runs, records and tables for the tests of the reporting."""

import functools
import json

import pytest
from fednb.papers.foundations import METHODS

from fednb import ROOT, settings
from fednb import records as ledger
from fednb_lab import pages, words
from fednb_lab.cells import cells_of
from fednb_lab.jobs import Job
from fednb_lab.leads import compare_at
from fednb_lab.sweeps import Axis, Table, read_tables


@functools.cache
def project():
    """The tables of the project's sweep files, and their cells without any record."""
    tables = read_tables(ROOT / "notebooks" / "sweeps")
    return tables, {name: cells_of(table, {}) for name, table in tables.items()}


def results_with(records, runs):
    """What these records make of the project's tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "read_tables", lambda _: project()[0])
        return pages.read_results(ROOT / "notebooks" / "sweeps", runs, records)


@functools.cache
def recorded_project():
    """The same of the committed records: read once for all tests."""
    runs = ROOT / "results" / "runs"
    return results_with(ledger.load(runs), runs)


def lead(table, ahead, behind):
    """The lead of a row of a table over another, in words."""
    return words.lead_over_seeds(compare_at(cells_of(table), ahead, behind))


def job(method="FedAvg", seed=0, **given):
    """A run on CIFAR-10, if nothing else is given."""
    parameters = {"method": method, "seed": seed, "dataset": "cifar10"} | given
    resolved = settings.resolve(METHODS, **parameters)
    path = ledger.path(resolved, ledger.runs_folder())
    return Job("00_foundations", "t", parameters, resolved, path, "hours-gpu")


def record(
    job,
    accuracy=None,
    *,
    status="finished",
    version=ledger.RESULTS_VERSION,
    split="p",
    curve=None,
    **sections,
):
    """Write the record of a run, to which ``sections`` are added; returns its path.

    Without an accuracy it is that of the curve's end, or 66.3.
    """
    if accuracy is None:
        accuracy = curve[-1] if curve else 66.3
    curve = curve or [accuracy] * job.settings.num_rounds
    content = {
        "key": job.path.stem[-12:],
        "results_version": version,
        "status": status,
        "settings": job.settings.flat(),
        "deviations": [],
        "dataset": {"name": job.settings.dataset, "note": ""},
        "final": {},
        "partition": {"hash": f"{split}{job.settings.seed}"},
        "metrics": {},
    }
    if status == "finished":
        others = {"best": accuracy + 1, "mean_of_last_5": accuracy - 1}
        content["final"] = {"accuracy": accuracy} | others
    if status != "failed":
        rounds = list(range(1, len(curve) + 1))
        content["metrics"] = {"round": rounds, "accuracy": curve, "seconds": [1.0] * len(curve)}
    for section, values in sections.items():
        content[section] = content.get(section, {}) | values if isinstance(values, dict) else values
    ledger.write_atomically(job.path, json.dumps(content))
    return job.path


def table(*jobs, rows="method", columns="dataset", labels=None, printed="MOON Table 1", **more):
    """A table of runs; of columns with measures of their own give ``columns`` as a dict."""
    labels = {"cifar10": "CIFAR-10"} if labels is None else labels
    columns = Axis("", {}, measures=columns) if isinstance(columns, dict) else Axis(columns, labels)
    fields = {
        "name": "moon-1",
        "notebook": "00_foundations",
        "title": "MOON, Table 1: CIFAR-10",
        "printed": printed,
        "rows": rows if isinstance(rows, Axis) else Axis(rows, {}),
        "columns": columns,
        "measure": "accuracy",
        "jobs": jobs,
        "file": ROOT / "notebooks" / "sweeps" / "00_foundations.yaml",
    }
    return Table(**fields | more)


def recorded(*accuracies, method="FedAvg", **given):
    """A table of one cell, FedAvg on CIFAR-10 (the paper prints 66.3 ± 0.5), with a run per accuracy; None: it diverged."""
    jobs = [job(method, seed, **given) for seed in range(len(accuracies))]
    for one, accuracy in zip(jobs, accuracies, strict=True):
        if accuracy is None:
            record(one, 0.0, status="diverged", curve=[10.0, None])
        else:
            record(one, accuracy)
    return table(*jobs)
