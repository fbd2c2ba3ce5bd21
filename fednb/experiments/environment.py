"""How runs are to be made: the variables ``FEDNB_*`` that name no place (see `fednb.places`)."""

import os
from typing import get_args

from fednb.hyperparameters import Count, Rule


def device() -> str | None:
    """``FEDNB_DEVICE``, not checked: which there are, PyTorch tells. None: whatever there is."""
    return os.environ.get("FEDNB_DEVICE") or None


def workers() -> int | None:
    """``FEDNB_WORKERS``, how many clients train side by side; None: one per core."""
    text = os.environ.get("FEDNB_WORKERS")
    if not text:
        return None
    return Rule(*get_args(Count)).fit("FEDNB_WORKERS", int(text) if text.isdecimal() else text)


def progress() -> str:
    """``FEDNB_PROGRESS``: of rounds a bar, a line each ("log"), or nothing ("off")."""
    return _one_of("FEDNB_PROGRESS", "bar", "log", "off")


def save_model() -> bool:
    """``FEDNB_SAVE_MODEL``: whether runs leave their final models beside their records."""
    return _one_of("FEDNB_SAVE_MODEL", "0", "1") == "1"


def again() -> bool:
    """``FEDNB_AGAIN``, which a sweep sets: whether runs are made although they are recorded."""
    return _one_of("FEDNB_AGAIN", "0", "1") == "1"


def seeds() -> tuple[int, ...]:
    """``FEDNB_SEEDS``, which a sweep sets: the seeds whose runs this process makes together."""
    texts = os.environ.get("FEDNB_SEEDS", "").split(",")
    return tuple(int(text) for text in texts if text)


def _one_of(variable: str, *allowed: str) -> str:
    """The value of a variable, the first of those allowed if it is not set."""
    rule = Rule(str, allowed.__contains__, f"one of {', '.join(allowed)}")
    return rule.fit(variable, os.environ.get(variable) or allowed[0])
