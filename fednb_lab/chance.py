"""What guessing would give, and which results are no better: two such methods cannot be compared."""

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from fednb import data
from fednb.errors import FednbError

_LEARNED = 0.05  # of the way from guessing to 100 %: what has come less far has learned nothing


class Ended(NamedTuple):
    """What a method came to on a data set."""

    name: str  # as the sentence calls it
    accuracy: float | None  # in percent; None where it has none
    dataset: str


def learned_nothing(ended: Iterable[Ended]) -> str:
    """Name those that end where guessing does, and say what may help; "" if there are none."""
    named = []
    for one in ended:
        chance = _guessing(one.dataset)
        if chance is None or one.accuracy is None:
            continue
        if one.accuracy < chance + _LEARNED * (100 - chance):
            named.append(f"{one.name} ({one.accuracy:.1f} %, guessing gives {chance:.3g} %)")
    if not named:
        return ""
    advice = "more rounds, more local epochs or another learning rate may help"
    return f"Learned nothing: {'; '.join(named)}; {advice}."


def _guessing(dataset: str) -> float | None:
    """The accuracy (%) of one who guesses among all classes; None if their number is unknown."""
    with suppress(FednbError, OSError):  # somebody's own images may be gone
        num_classes = data.spec_of(dataset).num_classes
        return 100 / num_classes if num_classes else None
    return None
