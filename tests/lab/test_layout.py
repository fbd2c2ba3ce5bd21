"""The packages are lists of files from the ground up: each imports only what stands before it in CONTRIBUTING.md."""

import re

import shape

from fednb import ROOT

FILES = shape.files()
ROOMS = shape.rooms()
MAX_LINES = 500
# What a method and its evaluation are given is named for readers and type checkers, and not imported.
FOR_TYPES_ALONE = {"fednb.method": "fednb.federation", "fednb.evaluation": "fednb.federation"}
# These and the lab no notebook reaches.
UNREACHED = {"fednb GPU", "fednb exercises"}


def test_each_file_stands_in_the_list_and_imports_only_what_stands_before_it() -> None:
    above: list[str] = []
    for module in [module for room in ROOMS.values() for module in room]:
        known = {module, FOR_TYPES_ALONE.get(module), *above}
        names = set(shape.imported(FILES[module].read_text(encoding="utf-8")))
        below = names.intersection(FILES) - known
        assert not below, f"{module} imports {', '.join(sorted(below))}"
        above.append(module)
    assert sorted(above) == sorted(FILES)


def test_a_file_can_be_read_at_once_and_does_not_know_the_lab() -> None:
    for module, path in FILES.items():
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= MAX_LINES, module
        if not module.startswith("fednb_lab"):
            assert "fednb_lab" not in text.replace('"fednb_lab"', ""), module


def test_no_notebook_and_no_picture_reaches_the_lab_or_the_gpus_code() -> None:
    """Cells of exercises apart, which import what solved ones need."""
    notebooks = [
        path for path in shape.NOTEBOOKS.rglob("*.ipynb") if "checkpoints" not in str(path)
    ]
    pictures = list((shape.NOTEBOOKS / "pictures").glob("*.py"))
    assert len(notebooks) > 12 and len(pictures) > 10
    sources = [shape.code_of(path) for path in notebooks]
    sources += [path.read_text(encoding="utf-8") for path in pictures]
    for path, source in zip([*notebooks, *pictures], sources, strict=True):
        names = list(shape.imported(source))
        assert not [name for name in names if name.startswith("fednb_lab")], path.name
        known = [name for name in shape.reached(names) if name.startswith("fednb.gpu")]
        assert not known, path.name


def test_01_reaches_all_rooms_but_those_that_are_named() -> None:
    """So a new file has to be put into a room, and the page says what that is for."""
    reached = shape.reached(shape.imported(shape.code_of(shape.NOTEBOOKS / "01_moon.ipynb")))
    expected = {
        module
        for room, modules in ROOMS.items()
        if room.startswith("fednb ") and room not in {*UNREACHED, "fednb shared"}
        for module in modules
    }
    assert reached.intersection(FILES) == expected


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
