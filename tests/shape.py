"""The shape of the packages: which files there are by CONTRIBUTING.md, and what files and notebooks import."""

import ast
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from fednb import ROOT, papers

NOTEBOOKS = ROOT / "notebooks"
LABEL = 17  # columns in which a room of the list is named


def rooms() -> dict[str, list[str]]:
    """Return the list of CONTRIBUTING.md: by package and room the modules, such as ``fednb.errors``, from the ground up."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    package = room = ""
    found: dict[str, list[str]] = {}
    for line in page.split("```")[1].splitlines():
        text = line.partition("#")[0].rstrip()
        if text.endswith("/"):
            package = text.removesuffix("/")
        elif text:
            room = text[:LABEL].strip() or room
            modules = [f"{package}.{name}" for name in text[LABEL:].split()]
            found.setdefault(f"{package} {room}", []).extend(modules)
    return found


def files() -> dict[str, Path]:
    """Return the files of both packages by their modules, but for the packages' own."""
    found = {}
    for package in ("fednb", "fednb_lab"):
        for file in (ROOT / package).rglob("*.py"):
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            if name != package and "templates" not in name:
                found[name] = file
    return found


def code_of(notebook: Path, tag: str | None = None) -> str:
    """Return the code of a notebook's cells, or of those that have a tag, without magics."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    sources = []
    for cell in cells:
        if cell["cell_type"] == "code" and (tag is None or tag in cell["metadata"].get("tags", [])):
            sources += "".join(cell["source"]).splitlines()
    return "\n".join(line for line in sources if not line.lstrip().startswith(("%", "!")))


def imported(source: str) -> Iterator[str]:
    """Yield the modules that a text imports, wherever in it, and names in them, as ``fednb.errors.check``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "this does not follow relative imports"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def reached(names: Iterable[str]) -> set[str]:
    """Return the modules of the project that imports lead to, notebooks and their pictures among them."""
    sources = {name: file.read_text(encoding="utf-8") for name, file in files().items()}
    for picture in (NOTEBOOKS / "pictures").glob("*.py"):
        sources[f"fednb.papers.pictures.{picture.stem}"] = picture.read_text(encoding="utf-8")
    for notebook in papers.notebooks(extras=True):
        module = papers.NUMBER.sub("", notebook.stem)
        sources[f"fednb.papers.{module}"] = code_of(notebook, "export")
    todo = list(names)
    found = set()
    while todo:
        name = todo.pop()
        if name in sources and name not in found:
            found.add(name)
            todo += [*imported(sources[name]), name.rpartition(".")[0]]
    return found
