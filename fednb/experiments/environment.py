"""How runs are to be made: the variables ``FEDNB_*`` that name no place (see `fednb.places`)."""

import os
from collections.abc import Mapping
from typing import get_args

from fednb.hyperparameters import Count, Rule

PROGRESS = ("bar", "log", "off")  # of rounds a bar, a line each, nothing


def device(environment: Mapping[str, str] = os.environ) -> str | None:
    """``FEDNB_DEVICE``, not checked: which there are, PyTorch tells. None: whatever there is."""
    return environment.get("FEDNB_DEVICE") or None


def workers(environment: Mapping[str, str] = os.environ) -> int | None:
    """``FEDNB_WORKERS``, how many clients train side by side; None: one per core."""
    text = environment.get("FEDNB_WORKERS")
    if not text:
        return None
    return Rule(*get_args(Count)).fit("FEDNB_WORKERS", int(text) if text.isdecimal() else text)


def progress(environment: Mapping[str, str] = os.environ) -> str:
    """``FEDNB_PROGRESS``: one of `PROGRESS`."""
    rule = Rule(str, PROGRESS.__contains__, f"one of {', '.join(PROGRESS)}")
    return rule.fit("FEDNB_PROGRESS", environment.get("FEDNB_PROGRESS") or "bar")


def save_model(environment: Mapping[str, str] = os.environ) -> bool:
    """``FEDNB_SAVE_MODEL``: whether runs leave their final models beside their records."""
    text = environment.get("FEDNB_SAVE_MODEL") or "0"
    rule = Rule(str, ("0", "1").__contains__, "0 or 1")
    return rule.fit("FEDNB_SAVE_MODEL", text) == "1"


def seeds(environment: Mapping[str, str] = os.environ) -> tuple[int, ...]:
    """``FEDNB_SEEDS``, which a sweep sets: the seeds whose runs this process makes together."""
    texts = environment.get("FEDNB_SEEDS", "").split(",")
    return tuple(int(text) for text in texts if text)
