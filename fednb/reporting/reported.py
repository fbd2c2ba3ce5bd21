"""What the papers print, ``data/reported.csv``, and what of it stands in the place of a cell."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd
import yaml

from fednb import ROOT
from fednb.experiments import settings
from fednb.experiments.sweep import Table
from fednb.reporting.metrics import Measure, ReportError


@functools.cache
def _reported() -> dict[str, dict[tuple[str, str], dict[str, Any]]]:
    found: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
    lines = pd.read_csv(ROOT / "data" / "reported.csv", dtype=str, keep_default_na=False)
    for line in lines.to_dict("records"):
        line |= {name: float(line[name]) if line[name] else None for name in ("value", "std")}
        line["settings"] = yaml.safe_load(line["settings"]) or {}
        found.setdefault(f"{line['paper']} {line['table']}".strip(), {})[line["row"], line["column"]] = line
    return found


def original(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The lines about a paper (``"MOON"``) or its table (``"MOON Table 1"``), by row and column; ``("", "")``: about all."""
    if name not in (known := _reported()):
        raise ReportError(f"There is no printed table {name!r}: {settings.known(name, known)}")
    return known[name]


def printed(name: str) -> dict[str, dict[str, float | None]]:
    """The printed numbers of ``"MOON Table 6"``, say: row, column, value."""
    found: dict[str, dict[str, float | None]] = {}
    for (row, column), line in original(name).items():
        if row:
            found.setdefault(row, {})[column] = line["value"]
    return found


class Place(NamedTuple):
    """What is printed in the place of a cell, in its measure's units, and what the paper says of the settings there; of one
    that it tuned a list, ``any`` of one of which it says nothing."""

    value: float | None = None
    std: float | None = None
    text: str = ""
    stated: Mapping[str, Any] = {}


def place(table: Table, label: str, column: str, measure: Measure, own: Mapping[str, Any]) -> Place:
    """What stands beside runs with these settings: in the row that is called as theirs, or has their method and settings.

    A `ReportError` if there is no such row or column, unless only a part of the original is printed.
    """
    if table.printed is None:
        return Place()
    lines = original(table.printed)
    about, of_column = lines["", ""], lines.get(("", column), {})
    rows = {row: line for (row, _), line in lines.items() if row}
    plain = {row: {n: v for n, v in line["settings"].items() if n in own} for row, line in rows.items()}
    fit = [row for row in rows if all(isinstance(v, list) or same(v, own[n]) for n, v in plain[row].items())]
    found = [row for row in (fit if about["partial"] else rows) if row == label]
    found = found or [row for row in fit if rows[row]["method"] == label]
    stated = original(about["paper"])["", ""]["settings"] | about["settings"] | of_column.get("settings", {})
    stated |= plain[found[0]] if found else {}
    line = lines.get((found[0], column)) if len(found) == 1 else None
    if line is None:
        if about["partial"]:
            return Place(stated=stated)
        what = f"row {label!r} with its settings; its rows: {', '.join(rows)}"
        if found:
            what = f"column {column!r}; it has {', '.join(c for row, c in lines if row == found[0])}"
        raise ReportError(f"{table.name}: {table.printed} has no {what}.")
    value, std = line["value"], line["std"]
    if measure.printed:
        value, std = (std if measure.printed == "std" else lines[line["row"], measure.printed]["value"]), None
    if "fraction" in (about["unit"], of_column.get("unit")):
        value, std = (None if x is None else 100 * x for x in (value, std))
    if measure.relative and value is not None:
        value, std = value / lines[table.baseline, column]["value"], None
    own_digits = value is not None and not (measure.judged or measure.relative or measure.signed)
    text = (f"{value:g}" if own_digits else measure.text(value)) + ("" if std is None else f" ± {std:.{measure.decimals}f}")
    return Place(value, std, text or line["text"], stated)


def same(printed: Any, ours: Any) -> bool:
    """Whether a printed name means our value: ``Tiny-Imagenet`` is ``tiny_imagenet``, ``with`` is True."""
    if isinstance(ours, bool):
        return printed is ours or printed == ("with" if ours else "without")
    plain = ["".join(c for c in str(x).lower() if c.isalnum()) for x in (printed, ours)]
    return (ours is not None and printed == ours) or (isinstance(ours, str) and plain[0] == plain[1])
