"""What one begins with: a copy of a notebook, or a template of a method under another name."""

import ast
import re
from pathlib import Path

from fednb.errors import NotebookError, check, is_word_of_python
from fednb.notebooks import exported, notebooks
from fednb.notebooks import path as path_of

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
    if name == name.lower():
        file_name = name
        class_name = "".join(part.capitalize() for part in name.split("_"))
    else:
        file_name = _WORD_BEGINS.sub("_", name).lower()
        class_name = name[0].upper() + name[1:].replace("_", "")
    templates = {}
    for template in sorted(TEMPLATES.glob("my_method.*")):
        path = folder / f"{file_name}{template.suffix}"
        templates[path] = template.read_text(encoding="utf-8")
    _check_free(file_name, class_name, templates)
    for path, text in templates.items():
        content = text.replace("my_method", file_name).replace("MyMethod", class_name)
        path.write_text(content, encoding="utf-8")
    return list(templates)


def copy_notebook(name: str, path: Path | None = None) -> Path:
    """Copy a notebook of the project, by default into the current folder, and return the copy's path.
    A `NotebookError` if something lies at the path already, or if it is no path of a notebook.
    """
    notebook = path_of(name)
    path = path or Path()
    if path.is_dir():
        path = path / notebook.name
    message = f"{path} is no name for a notebook: it must end in .ipynb."
    check(path.suffix == ".ipynb", message, NotebookError)
    message = f"There is a {path} already: give the copy another name, or move the file away."
    check(not path.exists(), message, NotebookError)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(notebook.read_text(encoding="utf-8"), encoding="utf-8")
    return path


def _check_free(file_name: str, class_name: str, templates: dict[Path, str]) -> None:
    """Refuse a name that means something else already: to Python, to the template, in the project."""
    for word in (class_name, file_name):
        message = f"A method cannot be called {word}, a word of Python."
        check(not is_word_of_python(word), message, NotebookError)
    taken = {path.name for path in templates if path.exists()}
    known = [re.sub(r"^\d+_", "", notebook.stem) for notebook in notebooks(extras=True)]
    for notebook in notebooks():
        known += _defined(notebook)
    taken.update(one for one in known if _alike(one) == _alike(class_name))
    for text in templates.values():
        if class_name != "MyMethod":
            taken.update(re.findall(rf"\b{class_name}\b", text))
    message = f"There is a {', '.join(sorted(taken))} already: take another name."
    check(not taken, message, NotebookError)


def _defined(notebook: Path) -> list[str]:
    """The classes of a notebook, and the texts of its export cells, names of methods among them."""
    names = []
    for node in ast.walk(ast.parse(exported(notebook))):
        if isinstance(node, ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.append(node.value)
    return names


def _alike(name: str) -> str:
    """Return what is equal for two names that a reader would take for one: ``fed_avg``, ``FedAvg``."""
    return re.sub(r"[\W_]", "", name).lower()
