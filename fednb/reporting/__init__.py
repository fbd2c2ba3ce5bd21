"""Records in, pages out: tables, claims, figures. For notebooks all is here: ``from fednb import reporting as report``."""

from importlib import import_module
from typing import Any

_WHERE = {"ReportError": "metrics", "lead": "comparisons", "curves": "plots", "glance": "plots"}
_WHERE |= dict.fromkeys(("Cell", "cells_of", "committed", "printed", "table_of"), "tables")
_WHERE |= dict.fromkeys(("claims", "compact", "pages"), "render")


def __getattr__(name: str) -> Any:
    """What is asked for is imported then: figures and pages take seconds, and a dry run needs neither."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
