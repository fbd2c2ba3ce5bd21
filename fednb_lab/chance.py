"""What guessing would give, and which results are no better: two such methods cannot be compared."""

from collections.abc import Iterable
from contextlib import suppress

from fednb import data
from fednb.errors import FednbError

_LEARNED = 0.05  # of the way from guessing to 100 %: what has come less far has learned nothing


def learned_nothing(ended: Iterable[tuple[str, float | None, str]]) -> str:
    """Name those that end where guessing does, and say what may help; "" if there are none.

    Of each it takes a name, the accuracy in percent, and the data set.
    """
    named = []
    for name, accuracy, dataset in ended:
        chance = None
        with suppress(FednbError, OSError, ZeroDivisionError):  # somebody's own images may be gone
            chance = 100 / data.info_of(dataset).num_classes
        if chance and accuracy is not None and accuracy < chance + _LEARNED * (100 - chance):
            named.append(f"{name} ({accuracy:.1f} %, guessing gives {chance:.3g} %)")
    if not named:
        return ""
    advice = "more rounds, more local epochs or another learning rate may help"
    return f"Learned nothing: {'; '.join(named)}; {advice}."
