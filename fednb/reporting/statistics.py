"""For notebooks: intervals, leads, Holm's correction (`analysis.statistics`), a lead in words."""

from fednb.analysis.statistics import MIN_SEEDS, Lead, corrected, interval, lead
from fednb.reporting.words import lead as told

__all__ = ["MIN_SEEDS", "Lead", "corrected", "interval", "lead", "told"]
