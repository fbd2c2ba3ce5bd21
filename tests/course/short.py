"""A short assignment, for tests that need no other."""

import json
from pathlib import Path

import nbformat
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from fednb_lab.course.notebooks import grade_id

GIVEN = yaml.safe_load((Path(__file__).parent / "short.yaml").read_text(encoding="utf-8"))
CELLS = {name: cell["source"] for name, cell in GIVEN["notebook"].items()}
SECRET = ("return 2 * x", "np.average", "prediction = 'b'", "Because of the order", "draws(")


def new_cell(name, source, tag="", output=""):
    """A cell of a notebook, folded away."""
    if tag == "text":
        return new_markdown_cell(source, id=name)
    outputs = [new_output("stream", name="stdout", text=output)] * bool(output)
    metadata = {"tags": [tag] * bool(tag), "jupyter": {"source_hidden": True}}
    return new_code_cell(source, id=name, metadata=metadata, outputs=outputs, execution_count=1)


def write_short(folder):
    """Write the short assignment notebook into a new folder."""
    nb = new_notebook(cells=[new_cell(name, **cell) for name, cell in GIVEN["notebook"].items()])
    about = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nb.metadata["kernelspec"] = about
    folder.mkdir()
    nbformat.write(nb, folder / "90_short.ipynb")
    return folder / "90_short.ipynb"


def read(path):
    return nbformat.read(path, as_version=4)


def change(path, to, **sources):
    """Write a copy of a hand-out in which cells (by grade id, with _ for -) have other sources."""
    nb = read(path)
    by_name = {grade_id(cell): cell for cell in nb.cells}
    for name, source in sources.items():
        by_name[name.replace("_", "-")].source = source
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(nb))
    return nb


def solved(source):
    """What a student would write who finds the solution."""
    return "\n".join(line for line in source.splitlines() if "SOLUTION" not in line)


def tags_of(cell):
    return set(cell.metadata.get("tags", []))


RIGHT = {f"exercise_{number}": solved(CELLS[f"e{number}"]) for number in (1, 2, 3)}
