"""A notebook with a method to change, and a sweep file of it: what one begins with."""

import re
from pathlib import Path

from fednb import papers
from fednb.experiments import ledger
from fednb.papers import NotebookError

TEMPLATES = Path(__file__).with_name("templates")


def new(name: str, folder: Path) -> list[Path]:
    """Write ``NAME.ipynb`` and ``NAME.yaml``, which run as they are. A `NotebookError` if the name is none, or taken."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise NotebookError(f"{name[:80]!r} is no name for a method: take small letters, digits and _, such as my_method.")
    made = {folder / f"{name}{template.suffix}": template for template in sorted(TEMPLATES.glob("my_method.*"))}
    taken = [path for path in made if path.exists()] + [path for path in papers.notebooks() if path.stem.endswith(name)]
    if taken:
        raise NotebookError(f"There is a {taken[0].name} already: take another name.")
    title = "".join(part.capitalize() for part in name.split("_"))
    for path, template in made.items():
        text = template.read_text(encoding="utf-8").replace("my_method", name).replace("MyMethod", title)
        ledger.write_atomically(path, text)
    return list(made)
