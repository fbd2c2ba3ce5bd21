"""Pages as the site needs them, while the files stay as code hosts show them best.

Links to records lead to the explorer instead of copying thousands of files. Pictures get
the alternative texts that stand in their outputs. Anchors are made as links in notebooks write them.
"""

import ast
import binascii
import hashlib
import json
import re
from functools import cache
from pathlib import Path, PurePosixPath

from docutils import nodes
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.osutil import relative_uri

from fednb import papers

ROOT = Path(__file__).resolve().parent.parent
ALTERNATIVES: dict[str, str] = {}  # by the names that the pictures get
SOLUTION = "### BEGIN SOLUTION"
LONGEST_TEXT = 250  # of an alternative text that is a caption

_RECORD = re.compile(r"\[([^\]]*)\]\((?:\.\./)+(?:results/)?runs/([^)/]+\.json)\)")
_BADGE = re.compile(
    r'<a href="(?:\.\./)+(?:tree|actions)/[^"]*"><img [^>]*></a>\n'
)  # of a code host
_ANCHORED_HEADING = re.compile(r'^(#+) <a id="[^"]*"></a>', re.MULTILINE)
_ANCHOR = re.compile(r'<a id="([^"]*)"></a>')
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#:]*)(#[^)\s]*)?\)")


def slug(title: str) -> str:
    """The anchor of a heading; of an anchor that Jupyter made, the same."""
    kept = re.sub(r"[^\w\-. ]", "", title.lower().strip())
    return kept.replace(" ", "-")


def patch_source(app, docname: str, source: list[str]) -> None:
    """A page's source as it is read: Markdown, or a notebook's JSON."""
    if Path(app.env.doc2path(docname)).suffix != ".ipynb":
        source[0] = _markdown(source[0], docname)
        return
    notebook = json.loads(source[0])
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        hidden = cell["metadata"].get("jupyter", {}).get("source_hidden", False)
        if cell["cell_type"] == "markdown":
            cell["source"] = _markdown(text, docname)
        elif hidden or _is_drawing_or_setup(cell, text):
            cell["metadata"].setdefault("tags", []).append("hide-input")
            if SOLUTION in text:
                cell["metadata"]["mystnb"] = {"code_prompt_show": "Show a solution"}
        for output in cell.get("outputs", ()):
            _mend_output(output, docname)
    _note_alternatives(notebook["cells"])
    source[0] = json.dumps(notebook)


def describe_pictures(app, doctree: nodes.document) -> None:
    """Give the pictures of a notebook's outputs their alternative texts."""
    for image in doctree.findall(nodes.image):
        alternative = ALTERNATIVES.get(PurePosixPath(image["uri"]).name)
        if alternative:
            image["alt"] = alternative


def show_sources(app, config) -> None:
    """Tell Sphinx the code of the methods' modules, which stands in notebooks; of others it finds it."""
    for name, notebook in _methods_notebooks().items():
        module = f"fednb.papers.{name}"
        analyzer = ModuleAnalyzer.for_string(papers.exported(notebook), module)
        ModuleAnalyzer.cache["module", module] = analyzer


def find_source(app, module: str) -> tuple[str, dict] | None:
    """The source of a method's module for the pages of sources."""
    analyzer = ModuleAnalyzer.cache.get(("module", module))
    if module.startswith("fednb.papers.") and isinstance(analyzer, ModuleAnalyzer):
        return analyzer.code, analyzer.find_tags()
    return None


def leave_out_object(app, name: str, documented: type, options, bases: list) -> None:
    """What everything is built on says nothing."""
    bases[:] = [base for base in bases if base is not object]


def _methods_notebooks() -> dict[str, Path]:
    """By the name of the module that `fednb.papers` makes of each."""
    return {path.stem.lstrip("0123456789_"): path for path in papers.notebooks(extras=True)}


def _markdown(text: str, docname: str) -> str:
    text = _BADGE.sub("", text)
    explorer = relative_uri(docname, "explorer.html")
    # raw HTML: a link would have to lead to a page or a file, which is then copied
    text = _RECORD.sub(rf'<a href="{explorer}#record=\2">\1</a>', text)
    text = _ANCHORED_HEADING.sub(r"\1 ", text)
    text = _ANCHOR.sub(r'<span id="\1"></span>', text)
    return _LINK.sub(lambda found: _link(found, docname), text)


def _link(found: re.Match[str], docname: str) -> str:
    """A link of the project as the site has it: anchors by `slug`, no folders, no file that is not a page."""
    text, target, anchor = found[1], found[2], found[3] or ""
    if anchor:
        anchor = f"#{slug(anchor[1:])}"
    path = (ROOT / docname).parent / target
    if target and path.is_dir():
        readme = path / "README.md"
        return f"[{text}]({target.rstrip('/')}/README.md)" if readme.exists() else text
    if anchor[1:] in _anchors_in_text(path):
        page = path.resolve().relative_to(ROOT).with_suffix("").as_posix()
        return f'<a href="{relative_uri(docname, page)}.html{anchor}">{text}</a>'
    return f"[{text}]({target}{anchor})"


@cache
def _anchors_in_text(page: Path) -> frozenset[str]:
    """The anchors of a page of Markdown that are no heading's: Sphinx resolves no links to these."""
    if page.suffix != ".md" or not page.is_file():
        return frozenset()
    text = _ANCHORED_HEADING.sub("", page.read_text(encoding="utf-8"))
    return frozenset(map(slug, _ANCHOR.findall(text)))


def _is_drawing_or_setup(cell: dict, code: str) -> bool:
    """Whether a reader may skip it: set-up, drawing in the package, or nothing but imports."""
    tags = cell["metadata"].get("tags", [])
    if "setup" in tags:
        return True
    try:
        statements = ast.parse(code).body
    except SyntaxError:  # a magic of IPython
        return False
    return bool(statements) and all(map(_shows_or_imports, statements))


def _shows_or_imports(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return True
    called = getattr(getattr(statement, "value", None), "func", None)
    return called is not None and ast.unparse(called).startswith("plots.")


def _mend_output(output: dict, docname: str) -> None:
    data = output.get("data", {})
    if "text/markdown" in data:
        data["text/markdown"] = _markdown("".join(data["text/markdown"]), docname)


def _note_alternatives(cells: list[dict]) -> None:
    """The alternative text of each picture, or else the caption above it, or its section."""
    section = caption = ""
    for cell in cells:
        if cell["cell_type"] == "markdown":
            text = "".join(cell["source"])
            headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            captions = re.findall(r"^\*([^*\n].*)\*$", text, re.MULTILINE)
            section = headings[-1] if headings else section
            caption = captions[-1] if captions else ""
        for output in cell.get("outputs", ()):
            picture = output.get("data", {}).get("image/png")
            if picture is not None:
                given = output.get("metadata", {}).get("image/png", {}).get("alt", "")
                usual = caption[:LONGEST_TEXT] or f"A figure of the section “{section}”"
                ALTERNATIVES[_name_of("".join(picture))] = given or usual


def _name_of(picture: str) -> str:
    """The name that myst-nb gives a picture: the hash of its content."""
    return f"{hashlib.sha256(binascii.a2b_base64(picture)).hexdigest()}.png"
