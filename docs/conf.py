"""The site: `make site` builds it from the repository's root, with outputs as they are committed."""

import hashlib
import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import claims  # noqa: E402
import explorer_data  # noqa: E402
import patch_sources  # noqa: E402
import start  # noqa: E402

from fednb import __version__  # noqa: E402

project = "FedNB"
author = "FedNB contributors"
copyright = "FedNB contributors, Apache-2.0"
release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_design",
]
root_doc = "docs/contents"
include_patterns = [
    "docs/**.md",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "data/README.md",
    "notebooks/*.md",
    "notebooks/*.ipynb",
    "notebooks/extras/*.ipynb",
    "notebooks/solutions/*.ipynb",
    "results/REPORT.md",
    "results/tables/*.md",
]
# none of these has a page, and to walk through them takes time
exclude_patterns = [
    ".venv",
    ".git",
    "build",
    "course",
    "docs/explorer",
    "results/runs",
    "**/.ipynb_checkpoints",
]

nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"  # so that links in outputs lead to pages, too
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath", "html_image"]
myst_heading_anchors = 4
myst_heading_slug_func = "patch_sources.slug"

viewcode_follow_imported_members = False
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_default_options = {"members": True, "show-inheritance": True}
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

DATA = ROOT / "build" / "site-data"  # what the explorer shows, written before each build
html_static_path = [
    "static",
    "site.png",
    str(DATA),
    str(explorer_data.PACKAGES / "mathjax" / "es5" / "tex-svg-full.js"),
    *map(str, explorer_data.LIBRARIES),
]
html_css_files = ["site.css", "verdict.css"]
mathjax_path = "tex-svg-full.js"
mathjax3_config = {"svg": {"fontCache": "local"}, "options": {"enableMenu": False}}

html_theme = "sphinx_book_theme"
html_title = "FedNB"
templates_path = ["templates"]
html_additional_pages = {"index": "start.html", "explorer": "explorer.html"}
html_sidebars = {
    "**": ["sbt-sidebar-nav.html"],
    "explorer": [],
    "index": [],
}
html_copy_source = False
html_show_search_summary = False  # it is fetched, which a page that is opened from a file cannot do
html_theme_options = {
    "navbar_start": ["site-links.html"],
    "navbar_align": "left",
    "navbar_persistent": ["search-button.html", "theme-switcher.html"],
    "article_header_start": [],
    "article_header_end": [],
    "footer_content_items": ["copyright.html"],
    "show_navbar_depth": 1,
    "max_navbar_depth": 2,
    "use_download_button": False,
    "use_fullscreen_button": False,
}

# A fork's own address, as GitHub Actions has it; without one no button leads there.
REPOSITORY = os.environ.get("GITHUB_REPOSITORY", "")
BRANCH = os.environ.get("GITHUB_REF_NAME", "main")
html_context = {"default_mode": "auto", "repository": REPOSITORY, "branch": BRANCH}
html_favicon = "static/icon.svg"
html_theme_options["article_header_start"] = ["colab.html"]
if REPOSITORY:  # a preview card needs an address, which GitHub Pages makes of these
    owner, _, repository = REPOSITORY.partition("/")
    html_context["site_address"] = f"https://{owner.lower()}.github.io/{repository}"


def _records_address() -> str:
    """Where records lie, as seen from the start page: beside the site's folder, or in the fork."""
    if REPOSITORY:
        return f"https://github.com/{REPOSITORY}/blob/{BRANCH}/results/runs/"
    return "../../results/runs/"


def _copy_notebooks(app, error: Exception | None) -> None:
    """Put each notebook beside its page, which has a link to it."""
    for page in sorted(app.env.found_docs):
        notebook = ROOT / f"{page}.ipynb"
        if error is None and notebook.exists():
            shutil.copy(notebook, Path(app.outdir) / f"{page}.ipynb")


def _our_code() -> str:
    """What our modules say: pages are made anew when it changes."""
    sources = [path.read_bytes() for path in sorted((ROOT / "docs").glob("*.py"))]
    return hashlib.sha256(b"".join(sources)).hexdigest()


def setup(app):
    """Connect what is ours."""
    app.add_config_value("our_code", _our_code(), "env", [str])
    app.connect("config-inited", lambda *_: start.write_data(DATA), priority=100)
    app.connect("config-inited", patch_sources.show_sources)
    app.connect("source-read", patch_sources.patch_source)
    app.connect("viewcode-find-source", patch_sources.find_source)
    app.connect("doctree-read", patch_sources.describe_pictures)
    app.connect("doctree-read", claims.fold_claims)
    app.connect("autodoc-process-bases", patch_sources.leave_out_object)
    app.connect("build-finished", _copy_notebooks)
    app.connect("html-page-context", start.add_values(_records_address(), REPOSITORY))
