"""Which row is ahead of which: in pairs of runs, in a table, in the papers' claims, with all methods side by side."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from fednb import ROOT, data
from fednb.errors import ReportError, require_known
from fednb.experiments.ledger import check_form
from fednb.reporting import statistics
from fednb.reporting.statistics import Lead
from fednb.reporting.tables import Cell, Ledger, Named, cells_of
from fednb.sweeps.table import Table

SIDE = "side by side"
# what counts something reads better as "20 rounds" than as "num_rounds 20"
_WORDS = {
    "num_rounds": "{} rounds",
    "local_epochs": "{} local epochs",
    "num_clients": "{} clients",
    "model": "{}",
}
_WORDS |= {
    "batch_size": "{} images a batch",
    "local_steps": "{} local steps",
    "pretrained": "ImageNet weights {}",
}
_WORDS |= {
    "test_per_domain": "{} test images of each domain",
    "validation": "{} of the training images held out",
}


def in_words(deviation: str) -> str:
    """One of `settings.deviations` for readers."""
    name, value, rest = deviation.split(" ", 2)
    text = _WORDS.get(name, name.replace("_", " ") + " {}").format(value)
    return f"{text.removesuffix('s') if value == '1' else text} {rest}"


class Finding(NamedTuple):
    """One cell against another, and the lead that their runs show."""

    ahead: Cell
    behind: Cell
    lead: Lead

    @property
    def diverged(self) -> bool:
        """Whether a run did: what is left are the differences of lucky seeds."""
        return "diverged" in self.ahead.statuses + self.behind.statuses

    @property
    def deviations(self) -> list[str]:
        """What is not the paper's setting, of one row or both; a coefficient that only one has is the claim itself."""
        of = [{text.split(" ")[0]: text for text in cell.deviations} for cell in self[:2]]
        common = vars(self.ahead.job.settings).keys() | (of[0].keys() & of[1].keys())
        told = [text for text in of[0].values() if text in of[1].values()]
        for cell, own in zip(
            self[:2], of, strict=True
        ):  # then what holds for one alone, its tuning as well
            rest = [
                text
                for name, text in own.items()
                if name in common or text.endswith(" values") or " one of " in text
            ]
            told += [f"{text} ({cell.row})" for text in rest if text not in told]
        return told

    @property
    def printed(self) -> float | None:
        """The lead that is printed, if both are."""
        both = self.ahead.printed, self.behind.printed
        return None if None in both else self.ahead.of.sign * (both[0] - both[1])

    def verdict(self, printed: float | None = None) -> str:
        """Size and certainty, beside a printed lead if there is one."""
        return "a run diverged" if self.diverged else statistics.verdict(self.lead, printed)


def compare(a: Cell, b: Cell, sign: int = 1) -> Finding:
    """a − b in pairs of runs, with the same seed on the same split; with ``sign`` -1 less is ahead."""
    return Finding(
        a,
        b,
        statistics.lead(
            [sign * (a.by_pair[of] - b.by_pair[of]) for of in a.by_pair if of in b.by_pair]
        ),
    )


def family(findings: Mapping[Any, Finding]) -> dict[Any, Finding]:
    """Findings that stand together, corrected for their number: a pair of runs counts once, and lucky seeds never."""
    once = {key: (one.ahead.paths, one.behind.paths, one.lead) for key, one in findings.items()}
    leads = {once[key]: Lead() if one.diverged else one.lead for key, one in findings.items()}
    new = dict(zip(leads, statistics.corrected([*leads.values()]), strict=True))
    pairs = [(key, one, new[once[key]]) for key, one in findings.items()]
    return {
        key: one._replace(lead=one.lead._replace(p=of.p, among=of.among)) for key, one, of in pairs
    }


def cell_at(found: Sequence[Cell], row: str, column: str | None = None) -> Cell:
    """One of a table's cells, by the names of its row and column; of a single column without that."""
    at = [cell for cell in found if cell.row == row and column in (None, cell.column)]
    if len(at) == 1:
        return at[0]
    known = ", ".join(f"{cell.row} | {cell.column}" for cell in at or found)
    raise ReportError(
        f"{found[0].table} has no single cell {row} | {column or 'any column'}; there are {known}."
    )


def lead(table: Named, a: str, b: str, column: str | None = None, *, ledger: Ledger = None) -> str:
    """By how much row ``a`` is above row ``b``, in words such as ``"+1.0 ± 0.4 points over 3 seeds: ahead"``."""
    found = cells_of(table, ledger)
    one, other = (cell_at(found, row, column) for row in (a, b))
    up, said = compare(one, other).lead, compare(one, other, one.of.sign).verdict()
    if up.mean is None:
        return said
    seeds = {1: "one seed, ", 2: "two seeds, "}.get(up.seeds, f"{up.seeds} seeds: ")
    return f"{statistics.told(up, one.of.unit)} over {seeds}{said.partition(' (')[0]}"


def gaps(table: Table, found: Sequence[Cell]) -> tuple[str, dict[tuple[str, str], Finding]]:
    """What rows are compared with (the baseline, FedAvg on the same splits, or the first row), and how each cell does."""
    named = [cell for cell in found if cell.label == (table.baseline or "FedAvg")]
    averages = [cell for cell in found if cell.job.settings.method == "FedAvg"]
    first = [cell for cell in found if cell.row == found[0].row]
    others = next((some for some in (named, averages) if 0 < len(some) < len(found)), first)
    made: dict[tuple[str, str], Finding] = {}
    for cell in (cell for cell in found if cell not in others and cell.of.compared):
        pairs = [compare(cell, other) for other in others if other.column == cell.column]
        if with_runs := [pair for pair in pairs if pair.lead.seeds]:
            made[cell.row, cell.column] = with_runs[0]
    name = (
        others[0].label
        if len({cell.row for cell in others}) == 1
        else others[0].job.settings.method
    )
    return name, family(made)


class Claim(NamedTuple):
    """What a paper says, and what is found, the paper's own setting first."""

    entry: Mapping[
        str, Any
    ]  # of the file: ``claim`` and ``where``; ``short``, ``main`` and ``reason`` if there are
    findings: list[Finding]

    @property
    def printed(self) -> float | None:
        """The printed lead, in the direction of the claim."""
        return next(
            (finding.printed for finding in self.findings if finding.printed is not None), None
        )

    @property
    def told(self) -> list[Finding]:
        """Those with runs. The first, nearest to the paper, counts; short runs and small data stand behind it."""
        return [finding for finding in self.findings if finding.lead.seeds] or self.findings[:1]

    def on_its_data(self, finding: Finding) -> bool:
        """Whether a finding is on the same data as the paper's own: on others the printed size is none to compare with."""
        return finding.ahead.job.settings.dataset == self.findings[0].ahead.job.settings.dataset

    @property
    def verdict(self) -> str:
        """Of the finding that counts."""
        said = self.told[0].verdict(self.printed if self.on_its_data(self.told[0]) else None)
        return said.replace("ahead", "right sign").replace("behind", "the other way round")

    def setting(self, finding: Finding, *, brief: bool = False) -> str:
        """On which data and settings a finding rests, where these are not the paper's; in ``brief`` the main ones."""
        dataset = finding.ahead.job.settings.dataset
        images = ["other images"] * bool(finding.ahead.note)
        other = images if self.on_its_data(finding) else [data.spec_of(dataset).title]
        told = other + [
            in_words(text) for text in finding.deviations if dataset not in data.EMBEDDED
        ]
        told = [text.partition(" instead")[0] for text in told[:2]] if brief else told
        return ", ".join(told) or "the paper's setting"


@functools.cache
def described() -> dict[str, dict[str, Any]]:
    """``data/claims.yaml``: of each paper its claims, and the tables of ``side by side``."""
    try:
        found = yaml.safe_load((ROOT / "data" / "claims.yaml").read_text(encoding="utf-8"))
        check_form(found, "claims")
    except (ValueError, yaml.YAMLError) as error:
        raise ReportError(f"data/claims.yaml cannot be read: {error}") from error
    return found


def claims_of(paper: str, found: Mapping[str, Sequence[Cell]] | None = None) -> list[Claim]:
    """The claims of a paper, judged as one family; without the cells of tables by the committed records."""
    require_known(
        "There are no claims of", paper, [name for name in described() if name != SIDE], ReportError
    )
    made: dict[tuple[int, int], Finding] = {}
    entries = described()[paper]["claims"]
    for i, entry in enumerate(entries):
        try:
            for j, one in enumerate(entry["runs"]):
                place = entry | ({"table": one} if isinstance(one, str) else one)
                cells = found[place["table"]] if found is not None else cells_of(place["table"])
                a, b = (
                    cell_at(cells, place[side], place["column"]) for side in ("ahead", "behind")
                )
                made[i, j] = compare(a, b, a.of.sign)
        except (KeyError, TypeError, ReportError) as error:
            what = f"there is no {error}." if isinstance(error, KeyError) else error
            raise ReportError(f"data/claims.yaml, {paper}, claim {i + 1}: {what}") from error
    judged = family(made)
    return [
        Claim(entry, [judged[key] for key in judged if key[0] == i])
        for i, entry in enumerate(entries)
    ]


def side_by_side(found: Mapping[str, Sequence[Cell]]) -> dict[tuple[str, str], Finding]:
    """Each method against the baseline, by table and method, in tables in which all have one protocol: one family."""
    told, made = described()[SIDE], {}
    for name in told["tables"]:
        baseline = cell_at(found[name], told["baseline"], told["column"])
        others = [
            cell
            for cell in found[name]
            if cell.column == told["column"] and cell.row != told["baseline"]
        ]
        made |= {(name, cell.row): compare(cell, baseline) for cell in others}
    return family(made)
