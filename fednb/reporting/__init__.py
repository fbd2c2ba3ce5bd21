"""Records in, pages out: the papers' tables with our runs beside them, claims, and figures; nothing is typed.

A notebook finds what it needs here: ``from fednb import reporting as report``.
"""

from fednb.reporting.claims import compared, lead, paired
from fednb.reporting.plots import against, curves
from fednb.reporting.render import overview, read, show, text, write_all
from fednb.reporting.tables import Cell, ReportError, anchor, cells, cells_of, committed, printed, table_of, verdict
from fednb.reporting.trials import trials, tuned

__all__ = ["Cell", "ReportError", "anchor", "cells", "cells_of", "committed", "printed", "table_of", "verdict"]
__all__ += ["against", "compared", "curves", "lead", "overview", "paired", "read", "show", "text", "trials", "tuned"]
__all__ += ["write_all"]
