"""Of the extra on variants of MOON and FedProc: pictures, and numbers that two papers share."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fednb import partition, plots, results


@plots.described("Images per client and class: with the rule of the code the clients' sizes are more even")
def with_and_without_the_rule() -> Figure:
    """CIFAR-10's class counts divided among ten clients at β = 0.5, by MOON's paper and its code."""
    labels = np.repeat(np.arange(10), 5000)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    titles = {False: "by the paper's formula", True: "by its code"}
    for ax, (balance, title) in zip(axes, titles.items(), strict=True):
        parts = partition.dirichlet(labels, 10, 0.5, np.random.RandomState(0), balance=balance)
        spread = np.std([len(part) for part in parts])
        title = f"{title}: sizes scatter by {spread:,.0f} images"
        plots.split(parts, labels, 10, ax, title, largest=4000)
    return figure


@plots.described("Ratios of gradients: with mu = 10 the contrast fades on CIFAR-10, and on the digits it stays")
def forces() -> Axes:
    """How strong 10 times the contrast is beside the cross-entropy, as gradients at z: each seed.

    Records have the contrast's gradient at μ = 1, so it is multiplied by the μ that they trained by.
    """
    tables = {"digits": "digits-moon-lengths", "CIFAR-10": "moon-lengths-short"}
    _, ax = plt.subplots(figsize=(8.5, 2.3))
    for y, table in enumerate(tables.values()):
        for when, fill in (("round 2", "white"), ("last round", plots.colour("MOON"))):
            cell = results.cell(table, "mu=10", f"contrast over cross-entropy, {when}")
            ratios = 10 * np.array(cell.values)
            look = {"color": plots.colour("MOON"), "mfc": fill, "ms": 9, "mew": 1.5}
            ax.plot(ratios, [y] * len(ratios), "o", label=when if y else None, **look)
    ax.set_yticks(range(len(tables)), list(tables))
    ax.set(xlabel="gradient of 10 · contrast over gradient of the cross-entropy", xlim=(0, 1.3))
    ax.set_ylim(len(tables) - 0.5, -0.5)
    ax.axvline(1, color="0.5", lw=1)
    ax.text(1.02, 1.4, "equally strong", color="0.4", size="small")
    ax.legend(frameon=False, fontsize="small", loc="upper right")
    ax.grid(axis="x", alpha=0.3)
    return ax


@plots.described("Unit norm gains, alpha over 100 rounds loses most of the accuracy, and together they lose less")
def code_changes() -> Axes:
    """What each change of FedProc's published code is worth on the digits, over the paper's text."""
    table = "digits-fedproc-code"
    rows = {
        "1  norm of z is 1": "z of length 1",
        "2  cross-entropy alone in round 0": "cross entropy alone in round 0",
        "3  prototypes weighted by images": "prototypes weighted with images",
        "4  α falls over 100 rounds, not 10": "alpha falls over 100 rounds",
        "1 and 4": "z of length 1, alpha falls over 100 rounds",
        "1, 2 and 3": "all but T",
        "all four": "all four",
    }
    lines = []
    for label, row in rows.items():
        lead = results.compare(results.cell(table, row), results.cell(table, "as printed"))
        colour = plots.colour("FedProc")
        lines.append(results.ForestRow(label, lead, colour, results.numbers(lead)))
    return results.draw_forest(lines, sides=("the code", "the paper"))


def shared_with_moon() -> list[tuple[str, int, int]]:
    """Of FedProc's tables: a name, how many numbers are MOON's, and of how many that both have."""
    same = {name: name for name in ("CIFAR-10", "CIFAR-100", "beta=5", "beta=0.5", "beta=0.1")}
    other = {"Tiny-ImageNet": "Tiny-Imagenet"}
    clients = {
        "m=50,T=100": "parties=50,rounds=100",
        "m=50,T=200": "parties=50,rounds=200",
        "m=100,T=250": "parties=100,rounds=250",
        "m=100,T=500": "parties=100,rounds=500",
    }
    with_mu = {"MOON": "MOON (mu=10)"}
    return [
        ("CIFAR-10 and 100", *_shared_numbers("FedProc Table 2", "MOON Table 1", same)),
        ("Tiny-ImageNet", *_shared_numbers("FedProc Table 2", "MOON Table 1", other)),
        ("label shift", *_shared_numbers("FedProc Table 3", "MOON Table 4", same)),
        ("more clients", *_shared_numbers("FedProc Table 6", "MOON Table 3", clients, with_mu)),
    ]


def _shared_numbers(
    here: str, there: str, columns: Mapping[str, str], rows: Mapping[str, str] | None = None
) -> tuple[int, int]:
    """How many printed numbers two tables share, and of how many that both have.

    ``columns``: names of columns in ``there`` by those in ``here``; ``rows``: likewise, where a row
    is not called the same.
    """
    theirs = results.printed(there)
    pairs = []
    for row, numbers in results.printed(here).items():
        counterpart = theirs.get((rows or {}).get(row, row), {})
        pairs += [(numbers.get(ours), counterpart.get(its)) for ours, its in columns.items()]
    both = [pair for pair in pairs if None not in pair]
    return sum(number == its_number for number, its_number in both), len(both)
