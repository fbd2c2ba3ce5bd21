"""What one begins with: a copy of a notebook, or a template of a method under another name."""

import re
from pathlib import Path

from fednb.errors import NotebookError, check, is_word_of_python
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
    is_word = is_word_of_python(class_name) or is_word_of_python(file_name)
    paths = []
    for template in sorted(TEMPLATES.glob("my_method.*")):
        path = folder / f"{file_name}{template.suffix}"
        text = template.read_text(encoding="utf-8")
        is_used = class_name != "MyMethod" and re.search(rf"\b{class_name}\b", text)
        message = f"There is a {path.name} or a {class_name} already: take another name."
        check(not (is_word or path.exists() or is_used), message, NotebookError)
        content = text.replace("my_method", file_name).replace("MyMethod", class_name)
        paths.append((path, content))
    for path, content in paths:
        path.write_text(content, encoding="utf-8")
    return [path for path, _ in paths]


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
