"""A notebook and a sweep file to begin a method with."""

import re
from pathlib import Path

from fednb import papers
from fednb.errors import NotebookError
from fednb.experiments import ledger

TEMPLATES = Path(__file__).with_name("templates")


def new_method(name: str, folder: Path) -> list[Path]:
    """Write ``NAME.ipynb`` and ``NAME.yaml``, which run as they are, and return their paths.

    A `NotebookError` if the name is none, or if something is called so already.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise NotebookError(
            f"{name[:80]!r} is no name for a method: take small letters, digits and _, such as my_method."
        )
    files = {}
    for template in sorted(TEMPLATES.glob("my_method.*")):
        files[folder / f"{name}{template.suffix}"] = template.read_text(encoding="utf-8")
    taken = [path for path in files if path.exists()]
    taken += [path for path in papers.notebooks() if path.stem.endswith(name)]
    if taken:
        raise NotebookError(f"There is a {taken[0].name} already: take another name.")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    for path, text in files.items():
        content = text.replace("my_method", name).replace("MyMethod", class_name)
        ledger.write_atomically(path, content)
    return list(files)
