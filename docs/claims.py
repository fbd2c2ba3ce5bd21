"""Tables of claims as the site has them: the numbers in a row, and below them why.

On code hosts such a table has nine columns. Here what is long stands in a line of its own below the
claim, over the whole width, so that nothing has to be scrolled sideways, on a phone either.
"""

from docutils import nodes

FIRST = "the paper says"  # a column that only tables of claims have
IN_THE_ROW = (FIRST, "printed", "ours", "word")
WITHOUT_NAME = "why"  # the column whose text says by itself what it is


def fold_claims(app, doctree: nodes.document) -> None:
    """Give the tables of claims in a page their second lines."""
    for table in list(doctree.findall(nodes.table)):
        group = table.next_node(nodes.tgroup)
        head, body = group.next_node(nodes.thead), group.next_node(nodes.tbody)
        names = [entry.astext() for entry in head[0]]
        if FIRST in names:
            table["classes"].append("claims")
            _fold(group, head, body, names)


def _fold(group: nodes.tgroup, head: nodes.thead, body: nodes.tbody, names: list[str]) -> None:
    kept = [place for place, name in enumerate(names) if name in IN_THE_ROW]
    for specification in [one for one in group if isinstance(one, nodes.colspec)][len(kept) :]:
        group.remove(specification)
    group["cols"] = len(kept)
    notes = [_notes(row, names, len(kept)) for row in body]
    for row in [head[0], *body]:
        row[:] = [row[place] for place in kept]
    for row, note in zip(list(body), notes, strict=True):
        _mark_verdict(row[-1])
        body.insert(body.index(row) + 1, note)


def _notes(row: nodes.row, names: list[str], width: int) -> nodes.row:
    """What stands in the other columns of a row, one after the other."""
    paragraph = nodes.paragraph()
    for name, entry in zip(names, row, strict=True):
        if name in IN_THE_ROW or not entry.astext():
            continue
        if name != WITHOUT_NAME:
            paragraph += nodes.inline("", f"{name[0].upper()}{name[1:]}: ", classes=["what"])
        for line_break in list(entry.findall(nodes.raw)):
            line_break.replace_self(nodes.Text("; "))
        for child in entry:
            paragraph += child.children if isinstance(child, nodes.paragraph) else child
        paragraph += nodes.Text(". " if name != WITHOUT_NAME else " ")
    return nodes.row("", nodes.entry("", paragraph, morecols=width - 1), classes=["note"])


def _mark_verdict(entry: nodes.entry) -> None:
    """The colour of its word."""
    for strong in list(entry.findall(nodes.strong)):
        kind = strong.astext().replace(" ", "-")
        mark = nodes.inline("", strong.astext(), classes=["verdict", f"kind-{kind}"])
        strong.replace_self(mark)
