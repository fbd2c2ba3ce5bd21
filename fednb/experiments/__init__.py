"""Settings, runs, their records, and sweeps of many runs."""

from importlib import import_module
from typing import Any

_WHERE = {"federation": "build", "load_dataset": "build", "read": "ledger", "run": "runner", "Settings": "settings"}


def __getattr__(name: str) -> Any:
    """Modules, and what notebooks need, imported when asked for: torch takes seconds, and not every command needs it."""
    if name in ("build", "execute", "ledger", "runner", "settings", "sweep"):
        return import_module(f"{__name__}.{name}")
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
