"""The package has rooms, and imports between them go one way."""

import ast

from fednb import ROOT

# What a room may import besides itself; a module of the core may also be imported by its own name.
ALLOWED = {
    "data": {"errors", "seeds"},
    "core": {"data"},
    "papers": {"core"},
    "experiments": {"core", "data", "papers"},
    "analysis": {"core", "data", "papers", "experiments"},
    "reporting": {"core", "data", "papers", "experiments", "analysis"},
    "course": {"core", "papers", "experiments"},
}
# `papers.settings` is what notebooks call; it passes on to where settings are declared, when it is called.
EXCEPTIONS = {("papers/__init__.py", "experiments")}
PLACES = {"PACKAGE", "CHECKOUT", "ROOT", "home"}  # which the package itself tells
TOOLS = {"__main__.py"}  # on top of everything


def imports(path):
    """The names below the package that a file imports, wherever in it: ``data.readers``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "fednb":
            yield from (alias.name for alias in node.names if alias.name not in PLACES)
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(
                f"{path.name} has a relative import, which this test does not follow"
            )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fednb."):
            yield node.module.removeprefix("fednb.")
        elif isinstance(node, ast.Import):
            yield from (
                alias.name.removeprefix("fednb.")
                for alias in node.names
                if alias.name.startswith("fednb")
            )


def test_imports_between_rooms_go_one_way_and_no_module_is_a_corridor():
    folder, wrong, arrows = ROOT / "fednb", [], 0
    for path in folder.rglob("*.py"):
        name = path.relative_to(folder).as_posix()
        room = name.split("/")[0] if "/" in name else "core"
        for module in () if name in TOOLS else imports(path):
            arrows += 1
            first = module.split(".")[0]
            targets = {first} if first in ALLOWED else {first, "core"}
            if not targets & (ALLOWED[room] | {room}) and (name, first) not in EXCEPTIONS:
                wrong.append(f"{name} imports {module}")
        if len(path.read_text(encoding="utf-8").splitlines()) > 500:
            wrong.append(f"{name} is too long")
    assert not wrong and arrows > 50
