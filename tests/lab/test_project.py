"""What a newcomer would trip over: dependency lists, notebooks, files that should not be committed."""

import io
import re
import subprocess
import tomllib

import nbformat
import pandas as pd
import pytest
import yaml
from made_up import recorded_project
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fednb import ROOT, data, papers, settings
from fednb_lab import figures, pages, words
from fednb_lab.course import solutions
from fednb_lab.jobs import Notebook

NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_conda_and_pip_users_get_the_same_dependencies():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    from_pip = next(d["pip"] for d in conda if isinstance(d, dict))
    assert sorted(from_pip) == sorted([*PROJECT["dependencies"], "-e ."])
    assert f"python{PROJECT['requires-python']}" in conda


def test_the_versions_that_were_tried_are_versions_that_are_allowed():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    tried = {canonicalize_name(name): version for name, version in pairs}
    of_extras = PROJECT["optional-dependencies"]
    for text in [*PROJECT["dependencies"], *of_extras["docs"], *of_extras["dev"]]:
        asked = Requirement(text)
        if asked.name != "fednb":
            assert tried[canonicalize_name(asked.name)] in asked.specifier, text


def test_versions_agree():
    import fednb

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert fednb.__version__ == PROJECT["version"] == citation["version"]
    assert len(citation["references"]) == 5


def test_every_data_set_has_settings():
    assert {name for known in settings.SPLITS.values() for name in known} == set(data.NAMES)


def test_committed_files_hold_no_machine_path():
    files = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split()
    assert len(files) > 20
    path = re.compile(r"(?<![\w.:/])/(home|root|work|tmp|Users|content)/[\w.]")
    kinds = {".py", ".md", ".ipynb", ".json", ".yaml", ".yml", ".toml", ".csv", ".svg"}
    for name in files:
        if (ROOT / name).suffix in kinds:
            found = path.search((ROOT / name).read_text(encoding="utf-8"))
            assert not found, f"{name}: {found[0]}"


@pytest.fixture
def cells(path):
    return nbformat.read(path, 4).cells


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
class TestNotebook:
    def test_is_executed_without_errors_and_warnings_and_what_records_render_is_compared(
        self, cells
    ):
        to_fill_in = set(solutions.TO_FILL_IN)  # stubs of exercises and their checks
        for cell in (cell for cell in cells if cell.cell_type == "code"):
            if to_fill_in <= set(cell.metadata.get("tags", [])):
                assert not cell.outputs and cell.execution_count is None, cell.source[:60]
                continue
            assert cell.execution_count is not None, f"not executed: {cell.source[:60]}"
            assert cell.source.count("\n") <= 45, f"too long: {cell.source[:60]}"
            kinds = [(o.output_type, o.get("name")) for o in cell.outputs]
            assert not {("error", None), ("stream", "stderr")} & set(kinds), cell.outputs
            if re.search(r"results\.(finding|forest)\(", cell.source):
                assert "nbval-check-output" in cell.metadata.get("tags", []), cell.source[:60]

    def test_is_read_in_a_sitting(self, path, cells):
        """At most 45 cells, 3,200 words, and 350 lines of code before the exercises; the first equation within ten cells."""
        exercises = next(i for i, cell in enumerate(cells) if "**Exercise 1**" in cell.source)
        texts = [cell for cell in cells if cell.cell_type == "markdown"]
        words = sum(len(cell.source.split()) for cell in texts)
        code = [cell.source for cell in cells[:exercises] if cell.cell_type == "code"]
        lines = "\n".join(code).splitlines()
        assert len(cells) <= 45 and words <= 3200 and sum(map(bool, map(str.strip, lines))) <= 350
        assert any("$$" in cell.source for cell in cells[:10])
        title, *first = cells[:5]  # the first screen: the claim and the picture
        outputs = [o for cell in first if cell.cell_type == "code" for o in cell.outputs]
        pictures = [output for output in outputs if "image/png" in output.get("data", {})]
        claim = title.source.partition("**Claim.** ")[2].partition("\n\n")[0]
        assert claim and "](" not in claim and pictures  # the start page says it, in another folder
        assert len({cell.id for cell in cells}) == len(cells) and path.stat().st_size < 1_000_000

    def test_its_parameters_have_comments_and_reach_the_settings_of_a_run_on_embedded_data(
        self, path
    ):
        """Set-up is one line, which reads all of them; any other setting goes into ``more``."""
        (told,), setup, run = (
            papers.cells(path, "code", tag) for tag in ("parameters", "setup", "run")
        )
        assert all(re.fullmatch(r"\w+ = .+  # .+", line) for line in told.splitlines()), told
        assert f'settings = papers.settings("{path.stem}", globals())' in "\n".join(setup) and run
        assert list(papers.parameters(path.stem))[:3] == ["method", "dataset", "seed"]
        assert papers.parameters(path.stem)["more"] == {}
        resolved = Notebook(path.stem).job({}).settings
        assert data.load(resolved.dataset).source == "embedded"
        assert set(papers.load(path.stem).METHODS) >= {resolved.method}


def test_committed_pages_are_those_that_the_records_make(monkeypatch):
    results = ROOT / "results"
    monkeypatch.setattr(
        figures,
        "claim_figures",
        lambda claims: dict.fromkeys([*map(str.lower, claims), "glance"], ""),
    )
    made = pages.make_pages(recorded_project(), results)
    for path, text in made.items():
        stale = f"{path.name} is stale: run `fednb report`"
        if path.suffix == ".csv":  # the last digits depend on the version of SciPy
            pd.testing.assert_frame_equal(
                pd.read_csv(path), pd.read_csv(io.StringIO(text)), rtol=1e-9, obj=stale
            )
        elif path.suffix == ".md":  # a figure's bytes depend on matplotlib's version
            assert path.read_text() == text, stale
    kept = {path for folder in ("tables", "figures") for path in (results / folder).iterdir()}
    assert kept == {path for path in made if path.parent != results and path.parent != ROOT}, (
        "delete what nothing makes"
    )


def test_no_row_or_deviation_is_told_in_the_words_of_code():
    told = set()
    for cells in recorded_project().cells.values():
        told |= {cell.row for cell in cells}
        told |= {words.deviation(one) for cell in cells for one in cell.deviations}
    assert len(told) > 300
    assert not [text for text in told if re.search(r"\b(True|False|None|lam1?|mu glob)\b", text)]
