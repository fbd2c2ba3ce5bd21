"""The notebooks as files: which there are, and what stands in their cells."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fednb import ROOT
from fednb.errors import NotebookError, check, guess_beside, require_known

_NAME = re.compile(r"\d+_\w+")  # others beside them, such as 01_moon-Copy1, are somebody's own
NUMBER = re.compile(r"^\d+_")  # with which the names of notebooks begin, but not those of modules


# ---- which notebooks there are


def folder() -> Path:
    """Return where the notebooks are; a `NotebookError` if there is no such folder."""
    notebooks = Path(os.environ.get("FEDNB_NOTEBOOKS") or ROOT / "notebooks").absolute()
    if not notebooks.is_dir():
        raise NotebookError(
            f"FEDNB_NOTEBOOKS names {notebooks}, where no folder is: make it, or unset the variable."
        )
    return notebooks


def notebooks(extras: bool = False) -> list[Path]:
    """List the numbered notebooks, in the order of their numbers; with ``extras`` those, too."""
    return [
        file
        for file in by_module().values()
        if file.stem[0].isdigit() or (extras and file.parent.name == "extras")
    ]


def by_module() -> dict[str, Path]:
    """Return the project's notebooks by the names of their modules, in their own order."""
    project = ROOT / "notebooks"
    numbered = [file for file in project.glob("*.ipynb") if _NAME.fullmatch(file.stem)]
    files = [*project.glob("extras/*.ipynb"), *numbered]
    if folder() != project:
        files += sorted(folder().glob("*.ipynb"), reverse=True)
    modules = {NUMBER.sub("", file.stem): file for file in files}
    return dict(sorted(modules.items(), key=lambda item: item[1].stem))


def path(name: str) -> Path:
    """Find the notebook ``01_moon``, ``moon`` or ``01``, or at a path; else a `NotebookError`."""
    if Path(name).suffix or Path(name).name != name:
        return _at(Path(name))
    matching = [
        file
        for module, file in by_module().items()
        if name in (file.stem, module) or (name.isdigit() and file.stem.startswith(f"{name}_"))
    ]
    if len(matching) != 1:
        here = Path(f"{name}.ipynb")
        message = f"{name} is no notebook of the project: did you mean {here}, which lies here?"
        check(not here.is_file(), message, NotebookError)
        known = [file.stem for file in notebooks()]
        require_known(f"In {folder()} is no notebook", name, known, NotebookError)
    return matching[0]


def _at(file: Path) -> Path:
    """The file, if there is one; else a `NotebookError` that says how to come by it."""
    message = f"{file} is no notebook: the name of one ends in .ipynb."
    check(file.suffix == ".ipynb", message, NotebookError)
    if file.is_file():
        return file
    way_out = "`fednb list` names the project's notebooks"
    if file.stem in [other.stem for other in by_module().values()]:
        way_out = (
            f"the project's is called {file.stem}, without .ipynb, and `fednb copy {file.stem}` "
            "puts a copy of it where you are"
        )
    raise NotebookError(f"There is no file {file}{guess_beside(file, '*.ipynb')}: {way_out}.")


def name(notebook: str) -> str:
    """Return a notebook's name without ``.ipynb``; the path of one that is not the project's."""
    file = path(notebook).resolve()
    known = [other.resolve() for other in by_module().values()]
    return file.stem if file in known else str(file)


def executed(namespace: Mapping[str, Any]) -> str | None:
    """Return the path of the notebook whose namespace this is; None where nobody says it."""
    for variable in ("__session__", "__vsc_ipynb_file__"):  # of Jupyter and `fednb run`; of VS Code
        named = str(namespace.get(variable, ""))
        if named.endswith(".ipynb") and Path(named).is_file():
            return named
    return None


# ---- what is in them


def cells(notebook: Path, kind: str, tag: str | None = None) -> list[str]:
    """Return the sources of a notebook's cells of a kind, ``code`` or ``markdown``, with the tag.

    Without a tag they are all of that kind. A `NotebookError` if the file cannot be read.
    """
    try:
        content = json.loads(notebook.read_text(encoding="utf-8"))  # nbformat is slow to import
        return [
            "".join(cell["source"])
            for cell in content["cells"]
            if cell["cell_type"] == kind
            and (tag is None or tag in cell["metadata"].get("tags", []))
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        is_form = isinstance(error, LookupError | TypeError | AttributeError)
        reason = "it has no cells of the form of a notebook's" if is_form else error
        raise NotebookError(
            f"{notebook} cannot be read as a notebook ({reason}): restore it, or save it again in "
            "Jupyter."
        ) from error


def exported(notebook: Path) -> str:
    """Return the source of a notebook's module: its code cells tagged ``export``."""
    return "\n\n".join(cells(notebook, "code", "export"))
