"""What of the queue for a GPU fits into a lease, by what was measured: prints a table and the commands, and runs nothing.

    python tests/gpu_queue.py --budget 600

The queue and the measurements are in ``gpu_queue.yaml``. Steps are counted in the splits of the real data, which need not be
here. What is recorded already is left out. Seeds of one setting train together, as in a sweep on a GPU.
"""

import argparse
import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import yaml

from fednb import build, data
from fednb.batches import images_of_epoch
from fednb.errors import FednbError, check
from fednb.settings import Settings
from fednb_lab import jobs, sweeps

ROOT = Path(__file__).resolve().parents[1]
BALANCED = ("cifar10", "cifar100", "tiny_imagenet")  # sets with equally many images of each class
Group = list[jobs.Job]  # runs that differ in nothing but the seed


class Plan(NamedTuple):
    """The queue as it is in the file, and what things cost."""

    queue: list[dict[str, Any]]
    start: float
    networks: dict[str, dict[str, Any]]
    seconds: list[dict[str, Any]]


def read_plan() -> Plan:
    """Read ``gpu_queue.yaml``."""
    return Plan(**yaml.safe_load((ROOT / "tests" / "gpu_queue.yaml").read_text(encoding="utf-8")))


def missing_groups(entry: dict[str, Any]) -> list[Group]:
    """The runs of an entry that are not recorded, those that train together in one list."""
    tables = sweeps.read_tables(ROOT / "notebooks" / "sweeps" / f"{entry['sweep']}.yaml")
    only = [(name, value) for name, values in entry["only"].items() for value in values]
    _, missing = jobs.recorded_and_missing(jobs.select(tables[entry["table"]].jobs, only))
    groups: dict[str, Group] = {}
    for job in missing:
        recipe = dataclasses.replace(job.settings, seed=0)
        groups.setdefault(repr(recipe), []).append(job)
    return list(groups.values())


def sizes_of(settings: Settings) -> list[int]:
    """How many images each client has: as in the real split, which hangs on the numbers alone."""
    spec = data.spec_of(settings.dataset)
    if settings.partition == "domain":
        return [min(settings.per_domain, sizes[0]) for sizes in spec.domains.values()]
    check(settings.dataset in BALANCED, f"{settings.dataset} has not equally many of each class.")
    labels = torch.arange(spec.sizes[0]) % len(spec.classes)
    split = build.divide(settings, SimpleNamespace(labels=labels))
    return [len(part) for part in split.train]


def steps_of(settings: Settings) -> list[int]:
    """How many SGD steps each client takes in a round."""
    found = []
    for size in sizes_of(settings):
        kept = images_of_epoch(size, settings.batch_size, settings.effective("keep_last"))
        steps = settings.local_epochs * math.ceil(kept / settings.batch_size)
        if settings.local_steps is not None:
            steps = min(steps, settings.local_steps)
        found.append(steps)
    return found


def seconds_of(group: Sequence[Settings], plan: Plan) -> float:
    """What the process of a group is expected to take."""
    first = group[0]
    network = plan.networks[first.model]
    launches = network["launches"][first.method]
    fixed = 1e-3 * launches * network["launch_ms"]
    each = 1e-3 * network["client_ms"]
    steps = [number for settings in group for number in steps_of(settings)]
    recorded = max(steps) if network["together"] else sum(steps)
    of_round = fixed * recorded + each * sum(steps) + network["round_s"] * len(group)
    return plan.start + first.num_rounds * of_round


def described(group: Group) -> str:
    """A group in a line: table, settings that differ from the notebook's own, seeds."""
    parameters = dict(group[0].parameters)
    parameters.pop("seed", None)
    parts = [f"{name}={value}" for name, value in parameters.items()]
    seeds = ",".join(str(job.settings.seed) for job in group)
    return f"{group[0].table}: {' '.join(parts)} seeds {seeds}"


def command(entry: dict[str, Any], group: Group) -> str:
    """What makes the runs of a group, and no others of its entry."""
    words = [f"fednb sweep notebooks/sweeps/{entry['sweep']}.yaml --table {entry['table']}"]
    words += [
        f"--only {name}={value}" for name, value in group[0].parameters.items() if name != "seed"
    ]
    words += [f"--only seed={job.settings.seed}" for job in group]
    return " ".join(words)


def estimates(plan: Plan) -> Iterator[tuple[dict[str, Any], Group, float]]:
    """Yield each group of the queue once, in order, with its entry and its expected seconds."""
    seen: set[Path] = set()
    for entry in plan.queue:
        for group in missing_groups(entry):
            new = [job for job in group if job.path not in seen]
            seen.update(job.path for job in new)
            if new:
                yield entry, new, seconds_of([job.settings for job in new], plan)


def print_queue(budget: float) -> None:
    """Print the queue, what of it fits into so many seconds, and the commands that make it."""
    plan = read_plan()
    used = 0.0
    total = 0.0
    commands: dict[str, None] = {}
    print(f"{'seconds':>8}  {'':6}run")
    for entry, group, seconds in estimates(plan):
        total += seconds
        fits = used + seconds <= budget
        if fits:
            used += seconds
            commands[command(entry, group)] = None
        guess = "" if plan.networks[group[0].settings.model]["measured"] else " (guessed)"
        print(f"{seconds:8.0f}  {'fits' if fits else '':6}{described(group)}{guess}", flush=True)
    print(f"\n{used:.0f} of {budget:.0f} s used; the whole queue takes {total:.0f} s. Commands:")
    for text in commands:
        print(f"  {text}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--budget", type=float, default=600, metavar="SECONDS")
    try:
        print_queue(parser.parse_args().budget)
    except FednbError as error:
        raise SystemExit(f"gpu_queue: {error}") from error
