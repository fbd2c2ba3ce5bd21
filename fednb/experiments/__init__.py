"""Settings, runs, their records, and sweeps of many runs."""

from importlib import import_module
from typing import Any

_WHERE = {"federation": "build", "load_dataset": "build", "read": "ledger", "run": "runner", "Settings": "settings"}


def __getattr__(name: str) -> Any:
    """What notebooks need, imported when it is asked for: PyTorch takes seconds, and not every command needs it."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
