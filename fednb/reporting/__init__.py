"""Records in, pages out: tables, claims, figures. For notebooks all is here: ``from fednb import reporting as report``."""

import lazy_loader

# What is asked for is imported then: figures and pages take seconds, and a dry run needs neither.
_WHERE = {
    "metrics": ["ReportError"],
    "comparisons": ["lead"],
    "render": ["claims", "compact", "measured", "pages"],
}
_WHERE |= {
    "plots": ["curves", "glance"],
    "tables": ["Cell", "cells_of", "committed", "printed", "table_of"],
}
__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs=_WHERE)
