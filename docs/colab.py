"""Copies of the notebooks for Google Colab: ``python docs/colab.py OWNER/REPO FOLDER``.

Colab opens a notebook without the repository that it belongs to. So the first cell of a copy gets
that repository, records included, and installs it where it is missing; elsewhere it does nothing.
The committed notebooks stay as they are, because a fork's address is known only when it is built.
"""

import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent

FIRST_CELL = """\
# On Colab: gets this project and installs it, once, some minutes. Elsewhere this does nothing.
import importlib.util
import sys

if importlib.util.find_spec("fednb") is None:
    !git clone --quiet --depth 1 https://github.com/{repository} {folder}
    %pip install --quiet -e ./{folder}
    sys.path.insert(0, "{folder}")
"""


def copies(repository: str, folder: Path) -> list[Path]:
    """All notebooks with a cell on top that gets ``repository``, such as ``OWNER/REPO``."""
    if len(repository.split("/")) != 2:
        raise SystemExit(f"{repository} is no OWNER/REPO: give the repository as GitHub names it.")
    source = FIRST_CELL.format(repository=repository, folder=repository.split("/")[1])
    written = []
    for path in sorted((ROOT / "notebooks").rglob("[!.]*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        first = nbformat.v4.new_code_cell(source, id="get-the-project")
        first.metadata["tags"] = ["setup"]
        notebook.cells.insert(0, first)
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, copy)
        written.append(copy)
    _write_list(repository, folder, written)
    return written


def _write_list(repository: str, folder: Path, written: list[Path]) -> None:
    """A README for the branch on which the copies lie, with a badge for each."""
    badge = "https://colab.research.google.com/assets/colab-badge.svg"
    lines = [f"# Notebooks of [{repository}](https://github.com/{repository}) for Colab", ""]
    for path in written:
        place = path.relative_to(folder).as_posix()
        name = place.removeprefix("notebooks/").removesuffix(".ipynb")
        address = f"https://colab.research.google.com/github/{repository}/blob/colab/{place}"
        lines.append(f"- [![Open in Colab]({badge})]({address}) {name}")
    (folder / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__.splitlines()[0])
    made = copies(sys.argv[1], Path(sys.argv[2]))
    print(f"{len(made)} notebooks in {sys.argv[2]}")
