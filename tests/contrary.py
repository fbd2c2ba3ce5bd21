"""Tables in which the interval says the opposite of a finding: who is ahead there is behind in it.

``python tests/contrary.py`` lists those that findings do not name.
"""

import re
from typing import NamedTuple

import jinja2
from jinja2 import nodes

from fednb.leads import Lead
from fednb_lab.cells import Cell
from fednb_lab.claims import claims_file
from fednb_lab.leads import compare_at, compare_cells


class Contrary(NamedTuple):
    """A comparison in which a finding's direction is turned round."""

    ahead: str  # by the finding
    behind: str
    cell: Cell  # of the first, and where that is behind
    lead: Lead
    same_data: bool  # as where the finding says so


def contrary(finding, cells):
    """The comparisons that contradict a finding, and are of none of the tables that it names.

    ``cells`` are those of all tables, by name. Compared are rows of the same names, in the same
    measure; the same runs in another table are no other comparison.
    """
    named = {path for table in finding.evidence for path in _paths(cells.get(table, ()))}
    found = {}
    for (first, second, measure, dataset), (ahead, behind) in _directions(finding, cells).items():
        for others in cells.values():
            rows = {
                (_name(cell), cell.column): cell for cell in others if cell.measure.name == measure
            }
            for (name, column), cell in rows.items():
                other = rows.get((second, column))
                if name != first or other is None:
                    continue
                paths = _paths([cell, other])
                lead = compare_cells(cell, other).lead
                clear = lead.judged and not lead.diverged and not lead.holds_zero
                if clear and lead.mean < 0 and not paths <= named:
                    same_data = _dataset(cell) == dataset
                    one = Contrary(ahead, behind, cell, lead, same_data)
                    found.setdefault((same_data, frozenset(paths)), one)
    return list(found.values())


def _directions(finding, cells):
    """The rows of which a finding says who is ahead, by what other tables may have of them."""
    rows = list(_surely(f"{finding.says} {finding.fact} {{{{ {finding.holds or 0} }}}}"))
    rows += [(line.table, line.ahead, line.behind, line.column) for line in finding.forest]
    directions = {}
    for table, *place in rows:
        found = compare_at(cells[table], *place)
        if found.lead.judged and not found.lead.holds_zero:
            pair = (found.ahead, found.behind)
            first, second = pair if found.lead.mean > 0 else pair[::-1]
            key = (_name(first), _name(second), first.measure.name, _dataset(first))
            directions[key] = (first.row, second.row)
    return directions


def _surely(template):
    """The rows of which a template says that the first is ahead."""
    for call in jinja2.Environment().parse(template).find_all(nodes.Call):
        if getattr(call.node, "name", "") in ("by", "sure"):
            yield [argument.as_const() for argument in call.args]


def _name(cell):
    """What a row is called, without what tables add to it: a source, or that it is a default."""
    told = re.fullmatch(r"(?:mu=0|none|no contrast) \((FedAvg)\)|(.*) \(Ours\)", cell.row)
    return (told[1] or told[2]) if told else cell.row


def _dataset(cell):
    return cell.job.settings.dataset


def _paths(cells):
    return {path.name for cell in cells for path in cell.paths}


if __name__ == "__main__":
    from made_up import recorded_project

    project = recorded_project().cells
    for one in claims_file().findings.values():
        for told in sorted(contrary(one, project), key=lambda found: not found.same_data):
            data = "same data" if told.same_data else "other data"
            place = f"{told.cell.table}, {told.cell.column}"
            lead = f"{told.lead.mean:+.1f} ± {told.lead.half_width:.1f}, n = {told.lead.seeds}"
            print(f"{one.name}: {told.ahead} ahead of {told.behind} | {data} | {place}: {lead}")
