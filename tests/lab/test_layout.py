"""The package is a list of files from the ground up: each imports only what stands above it in the list."""

import ast
import re

from fednb import ROOT

# One room a line, from the ground up. Imports inside functions and for types count like all others.
ORDER = """
    errors seeds messages notebooks models partition
    data augment
    plots
    batches client method evaluation federation prototypes finch
    gpu gpu.layers gpu.kernels gpu.convolution gpu.dense gpu.fused gpu.stack gpu.stacked
    sources settings build records run papers
    leads results exercises
""".split()
FILES = {
    path.relative_to(ROOT / "fednb").with_suffix("").as_posix().replace("/", "."): path
    for path in (ROOT / "fednb").rglob("*.py")
}
FILES = {name.removesuffix(".__init__"): path for name, path in FILES.items() if name != "__init__"}
MAX_LINES = 500
# What a method and its evaluation are given is named for readers and type checkers, and not imported.
FOR_TYPES_ALONE = {"method": "federation", "evaluation": "federation"}


def imports(path):
    """The files of the package that a file imports, wherever in it, or names as a text."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, (
                f"{path.name} has a relative import, which this test does not follow"
            )
            if (node.module or "").split(".")[0] != "fednb":
                continue
            module = (node.module or "").removeprefix("fednb").removeprefix(".")
            for alias in node.names:
                full = f"{module}.{alias.name}".removeprefix(".")
                yield full if full in FILES else module
        elif isinstance(node, ast.Import):
            yield from (
                a.name.removeprefix("fednb.") for a in node.names if a.name.startswith("fednb.")
            )
        elif isinstance(node, ast.Constant) and str(node.value).startswith("fednb."):
            named = str(node.value).removeprefix("fednb.")
            yield from [named] * (named in FILES)


def test_the_list_is_complete():
    assert sorted(ORDER) == sorted(FILES)


def test_a_file_imports_only_what_stands_above_it():
    above = {""}
    for name in ORDER:
        below = set(imports(FILES[name])) - above - {name, FOR_TYPES_ALONE.get(name)}
        assert not below, f"{name} imports {', '.join(sorted(below))}"
        above.add(name)


def test_a_single_file_names_the_gpu():
    outside = [name for name in ORDER if not name.startswith("gpu")]
    known = [name for name in outside if any("gpu" in one for one in imports(FILES[name]))]
    assert known == ["build"]


def test_a_file_can_be_read_at_once_and_does_not_know_the_lab():
    for name, path in FILES.items():
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= MAX_LINES, name
        assert "fednb_lab" not in text.replace('"fednb_lab"', ""), name


def test_what_to_change_where_names_what_there_is():
    rows = re.findall(
        r"^\| .+ \| (.*`.*) \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE
    )
    assert len(rows) > 10
    for row in rows:
        file = ""
        for word in re.findall(r"`([^`]+)`", row):
            if "/" in word:
                file = (ROOT / word).read_text(encoding="utf-8")
            else:
                assert re.search(rf"(class|def) {word}\b|^{word} ?[:=]", file, re.MULTILINE), word
