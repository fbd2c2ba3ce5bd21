"""How long clients train, what guessing would give, and whether a run got beyond it."""

import math
from collections.abc import Sequence
from contextlib import suppress

from fednb import data
from fednb.errors import FednbError
from fednb.experiments.record import Record
from fednb.experiments.settings import Settings
from fednb_lab.cells import Cell

# What a test accuracy must exceed, to be told from guessing: so much of the way to 100 %, and so
# many standard errors of a guesser on as many test images.
_SHARE_OF_THE_WAY = 0.05
_STANDARD_ERRORS = 2.0

_ACCURACIES = ("accuracy", "best", "mean_of_last_5", "validation", "client mean")  # measures


def steps_per_round(settings: Settings, record: Record) -> list[int]:
    """SGD steps of each client in a round, by its number of images; [] where that is not recorded.

    They are those of one local phase: a method with several, such as FedRep, takes more.
    """
    sizes = record.get("partition", {}).get("sizes", [])
    return [_steps(settings, size) for size in sizes]


def _steps(settings: Settings, num_images: int) -> int:
    whole, rest = divmod(num_images, settings.batch_size)
    partial_batch = rest > 0 and (whole == 0 or bool(settings.keep_last))
    steps = settings.local_epochs * (whole + partial_batch)
    return min(steps, settings.local_steps or steps)


def steps_of(cells: Sequence[Cell]) -> list[int]:
    """SGD steps of a client in a round, for all clients in all runs of some cells."""
    counts = []
    for cell in cells:
        for run in cell.runs:
            counts += steps_per_round(run.job.settings, run.record)
    return counts


def seconds(cell: Cell) -> float:
    """How long the recorded runs of a cell took, one after the other."""
    return sum(run.record.get("wall_seconds", 0.0) for run in cell.runs)


def guessing(settings: Settings) -> float | None:
    """The accuracy (%) of one who guesses among all classes; None if their number is unknown."""
    with suppress(FednbError, OSError):  # somebody's own images may be gone
        num_classes = data.spec_of(settings.dataset).num_classes
        return 100 / num_classes if num_classes else None
    return None


def learned_nothing(cell: Cell) -> bool:
    """Whether the mean accuracy of a cell is what guessing would give, too."""
    chance = guessing(cell.job.settings)
    if chance is None or cell.mean is None or cell.measure.name not in _ACCURACIES:
        return False
    share = chance / 100
    num_images = max(run.record["dataset"].get("test_images", 1) for run in cell.runs)
    error = 100 * math.sqrt(share * (1 - share) / num_images)
    margin = max(_SHARE_OF_THE_WAY * (100 - chance), _STANDARD_ERRORS * error)
    return cell.mean < chance + margin
