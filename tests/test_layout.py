"""The package has rooms, and imports between them go one way."""

import ast

from fednb import ROOT

# What a room may import; a module of the core may also be imported by its own name.
ALLOWED = {
    "data": {"data", "core"},
    "core": {"core", "data"},
    "papers": {"core", "papers"},
    "experiments": {"core", "data", "papers", "experiments"},
    "reporting": {"core", "data", "papers", "experiments", "reporting"},
    "course": {"core", "papers", "experiments", "course"},
}
ROOMS = set(ALLOWED) - {"core"}
# `papers.settings` is what notebooks call; it passes on to where settings are declared, when it is called.
EXCEPTIONS = {("papers/__init__.py", "experiments")}
OF_DATA = {"seeds"}  # of the core, all that data sets may need
TOOLS = {"__main__.py", "bench.py"}  # on top of everything


def room_of(module):
    name = module.split(".")[1] if "." in module else "core"
    return name if name in ROOMS else "core"


def imports(path):
    """The modules of the package that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "fednb":
            yield from (f"fednb.{alias.name}" for alias in node.names if alias.name != "ROOT")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fednb."):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("fednb"))


def test_imports_between_rooms_go_one_way():
    folder, wrong, arrows = ROOT / "fednb", [], 0
    for path in folder.rglob("*.py"):
        name = path.relative_to(folder).as_posix()
        if name in TOOLS:
            continue
        room = name.split("/")[0] if "/" in name else "core"
        for module in imports(path):
            arrows += 1
            target = room_of(module)
            fine = target in ALLOWED[room] and (room != "data" or target == "data" or module.split(".")[1] in OF_DATA)
            if not fine and (name, target) not in EXCEPTIONS:
                wrong.append(f"{name} imports {module}")
    assert not wrong and arrows > 50


def test_no_module_is_a_corridor():
    lines = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / "fednb").rglob("*.py")}
    assert not {name: number for name, number in lines.items() if number > 500}
