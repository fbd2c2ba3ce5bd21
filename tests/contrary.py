"""Tables in which the interval says the opposite of a finding: who is ahead there is behind in it.

``python tests/contrary.py`` lists those that findings do not name.
"""

import re

import jinja2
from jinja2 import nodes

from fednb_lab.claims import claims_file
from fednb_lab.leads import compare_at, compare_cells


def contrary(finding, cells):
    """The comparisons that contradict a finding, and are of none of the tables that it names.

    ``cells`` are those of all tables, by name. Compared are rows of the same names, on the same
    data, in the same measure; the same runs in another table are no other comparison.
    """
    named = {path for table in finding.evidence for path in _paths(cells.get(table, ()))}
    found = {}
    for first, second in _directions(finding, cells):
        for others in cells.values():
            rows = {(*_asked(cell), cell.column): cell for cell in others}
            for (*asked, column), cell in rows.items():
                other = rows.get((*second, column))
                if tuple(asked) != first or other is None:
                    continue
                comparison = compare_cells(cell, other)
                paths = _paths([cell, other])
                lead = comparison.lead
                is_clear = lead.judged and not lead.diverged and not lead.holds_zero
                if is_clear and lead.mean < 0 and not paths <= named:
                    found.setdefault(frozenset(paths), comparison)
    return list(found.values())


def _directions(finding, cells):
    """Of the rows that a finding compares the one that is ahead, and the other one."""
    rows = list(_surely(finding.text))
    rows += [(line.table, line.ahead, line.behind, line.column) for line in finding.forest]
    directions = {}
    for table, *place in rows:
        found = compare_at(cells[table], *place)
        if found.lead.judged and not found.lead.holds_zero:
            pair = (_asked(found.ahead), _asked(found.behind))
            directions[pair if found.lead.mean > 0 else pair[::-1]] = None
    return list(directions)


def _surely(template):
    """The rows of which a template says that the first is ahead."""
    for call in jinja2.Environment().parse(template).find_all(nodes.Call):
        if getattr(call.node, "name", "") in ("by", "sure"):
            yield [argument.as_const() for argument in call.args]


def _asked(cell):
    """What another table may have, too: the row without what tables add to it, measure, data."""
    told = re.fullmatch(r"(?:mu=0|none|no contrast) \((FedAvg)\)|(.*) \(Ours\)", cell.row)
    row = (told[1] or told[2]) if told else cell.row
    return row, cell.measure.name, cell.job.settings.dataset


def _paths(cells):
    return {path.name for cell in cells for path in cell.paths}


if __name__ == "__main__":
    from made_up import recorded_project

    project = recorded_project().cells
    for one in claims_file().findings.values():
        for told in contrary(one, project):
            rows = f"{told.ahead.table}, {told.ahead.column}: {told.ahead.row}, {told.behind.row}"
            print(f"{one.name} | {rows}, {told.lead.mean:+.1f} ± {told.lead.half_width:.1f}")
