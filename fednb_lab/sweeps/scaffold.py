"""A notebook and a sweep file to begin a method with."""

import ast
import re
from pathlib import Path

from fednb import papers
from fednb import records as ledger
from fednb import settings as method_names
from fednb.errors import NotebookError, SettingsError, check
from fednb_lab.sweeps.jobs import project_methods

TEMPLATES = Path(__file__).with_name("templates")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
_WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def new_method(name: str, folder: Path) -> list[Path]:
    """Write a notebook and a sweep file, which run as they are, and return their paths.

    ``FedDyn`` and ``fed_dyn`` both make ``fed_dyn.ipynb`` with a class ``FedDyn``. A
    `NotebookError` if the name is none, or if something is called so already.
    """
    message = (
        f"{name[:80]!r} is no name for a method: take at most 40 letters, digits and _, "
        "such as FedDyn or my_method."
    )
    check(_NAME.fullmatch(name), message, NotebookError)
    file_name, class_name = _names(name)
    _check_free(file_name, class_name)
    files = {}
    for template in sorted(TEMPLATES.glob("my_method.*")):
        path = folder / f"{file_name}{template.suffix}"
        message = f"There is a {path.name} already: take another name."
        check(not path.exists(), message, NotebookError)
        files[path] = template.read_text(encoding="utf-8")
    for path, text in files.items():
        content = text.replace("my_method", file_name).replace("MyMethod", class_name)
        ledger.write_atomically(path, content)
    return list(files)


def _names(name: str) -> tuple[str, str]:
    """Of the files, in small letters, and of the class, whose words begin with large ones."""
    if name == name.lower():
        return name, "".join(part.capitalize() for part in name.split("_"))
    return _WORD_BEGINS.sub("_", name).lower(), name[0].upper() + name[1:].replace("_", "")


def _check_free(file_name: str, class_name: str) -> None:
    """Refuse names that mean something else already: to Python, to the template, in the project."""
    try:
        method_names.check_name(class_name)
    except SettingsError as error:
        raise NotebookError(str(error)) from error
    names = [*project_methods(), *_names_in_template()]
    known = {_alike(name): name for name in names}
    for path in papers.notebooks(extras=True):
        module = re.sub(r"^\d+_", "", path.stem)
        known.setdefault(_alike(module), path.name)
    taken = known.get(_alike(class_name))
    message = f"There is a {taken} already: take another name."
    check(taken is None, message, NotebookError)
    message = f"A method cannot be called {file_name!r}: Python knows that word; take another."
    check(not method_names.is_reserved(file_name), message, NotebookError)


def _alike(name: str) -> str:
    """What is equal for two names that a reader would take for one: ``fed_avg`` and ``FedAvg``."""
    return re.sub(r"[\W_]", "", name).lower()


def _names_in_template() -> set[str]:
    """What the template's own cells import, which a class of that name would hide."""
    names = {"METHODS"}
    for source in papers.cells(TEMPLATES / "my_method.ipynb", "code"):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names |= {alias.asname or alias.name for alias in node.names}
    return names
