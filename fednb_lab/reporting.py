"""Records in, pages out. What notebooks use is here: ``from fednb_lab import reporting as report``."""

import lazy_loader

# What is asked for is imported then: figures and pages take seconds, and a dry run needs neither.
_FUNCTIONS = {
    "notebook": [
        "ReportError",
        "cells_of",
        "claims",
        "committed",
        "compact",
        "finding",
        "lead",
        "printed",
        "shared_numbers",
        "statistics",
        "curves",
        "glance",
        "lead_curves",
        "leads",
        "trend",
    ],
    "pages": ["make_pages", "read_results"],
    "words": ["main_claims"],
}
__getattr__, __dir__, __all__ = lazy_loader.attach("fednb_lab", submod_attrs=_FUNCTIONS)
