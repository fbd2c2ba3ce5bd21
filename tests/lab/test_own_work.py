"""One's own methods and sweeps: their names, tables and pages, what compare says, and a cell that is made again."""

import csv
import io
import re
import shlex
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import made_up
import pytest
from tiny import TABLE, write, write_notebook

from fednb import PACKAGE, build, models, papers, settings
from fednb import records as ledger
from fednb.errors import NotebookError, SweepError
from fednb_lab import check as again
from fednb_lab import cli, commands, new, pool, tables
from fednb_lab import compare as head_to_head
from fednb_lab.cells import Cell, cells_of
from fednb_lab.jobs import Job, contestants_of
from fednb_lab.leads import as_family, leads_over_baseline
from fednb_lab.sweeps import Table

# ---- names


@pytest.mark.parametrize(
    "name",
    ["class", "a/b", "", "x" * 41, "FedAvg", "moon", "fed_pl_cc", "tensor"],
)
def test_a_name_that_is_taken_or_none_is_refused_and_nothing_is_written(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(NotebookError, match=r"name|called"):
        new.new_method(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_template_shows_what_a_client_and_the_server_remember(tmp_path: Path) -> None:
    notebook, _ = new.new_method("FedDyn", tmp_path)
    methods = papers.methods(str(notebook))
    short = {"num_rounds": 3, "local_epochs": 1, "num_clients": 3, "batch_size": 64}
    asked = settings.resolve(methods, method="FedDyn", dataset="digits", **short)
    fed = build.federation(asked, methods, workers=1)
    moves = []
    for _ in range(3):
        before = fed.server["model"]
        fed.run_round()
        moves.append({name: fed.server["model"][name] - before[name] for name in before})
    assert all(client.memory for client in fed.clients)
    for name, value in fed.server["move"].items():  # what it remembers is how it has moved
        if value.is_floating_point():
            assert value.allclose(moves[-1][name], atol=1e-5), name


OWN = """
from dataclasses import dataclass

from fednb.federation import FedAvg


@dataclass
class {name}(FedAvg):
    own: {type} = 1


METHODS = {{"FedAvg": FedAvg, "{name}": {name}}}
"""


def own_notebook(file: Path, name: str = "Mine", kind: str = "int") -> str:
    return str(write_notebook(file, methods=OWN.format(name=name, type=kind)))


def test_two_methods_of_one_name_are_refused(tmp_path: Path) -> None:
    first = own_notebook(tmp_path / "a" / "one.ipynb")
    second = own_notebook(tmp_path / "b" / "two.ipynb")
    assert list(contestants_of(["FedAvg", first, first])) == ["FedAvg", "Mine"]
    with pytest.raises(SweepError, match=r"one\.ipynb and .*two\.ipynb both have a method Mine"):
        contestants_of([first, second])


def test_a_copy_under_another_name_has_parameters_of_its_own(tmp_path: Path) -> None:
    """Though its cell still names the notebook that it was copied from."""
    copied = new.copy_notebook("01_moon", tmp_path / "copied.ipynb")
    text = copied.read_text(encoding="utf-8")
    assert text.count('"mu = None') == 1
    copied.write_text(text.replace('"mu = None', '"batch_size = None\\n", "mu = None'))
    short = ["num_rounds=1", "local_epochs=1", "num_clients=3", "batch_size=128"]
    assert cli.main(["run", str(copied), *short]) == 0
    (path,) = ledger.runs_folder().glob("*.json")
    assert ledger.read(path)["settings"]["batch_size"] == 128


def test_a_number_of_seeds_that_nobody_means_is_refused() -> None:
    with pytest.raises(SweepError, match="2,000,000,000 runs"):
        head_to_head.table_of(contestants_of(["FedAvg", "MOON"]), {}, seeds=10**9)


NETWORK = """
from torch import nn
from fednb import models

models.MODELS["tiny"] = models.Model(lambda channels, side: (nn.Flatten(), 64), None, range(8, 65))
"""


def test_a_network_of_ones_own_is_refused_for_the_projects_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Before the first run, and its own notebook may sweep it."""
    monkeypatch.setattr(pool, "run_needed", lambda *_, **options: pytest.fail("a run was started"))
    monkeypatch.setattr(models, "MODELS", dict(models.MODELS))
    methods = NETWORK + OWN.format(name="Mine", type="int")
    mine = write_notebook(tmp_path / "mine.ipynb", methods=methods)
    words_ = ["compare", str(mine), "FedAvg", "model=tiny", "projection_head=False"]
    assert cli.main(words_) == 2
    assert "put FedAvg into METHODS" in capsys.readouterr().err
    fixed = {"model": "tiny", "projection_head": False}
    table = TABLE | {"grid": {"method": ["FedAvg", "Mine"]}, "parameters": fixed}
    file = write(tmp_path, {"mine": table}, "mine.ipynb", "mine.yaml")
    assert cli.main(["sweep", str(file), "--dry-run"]) == 0


def test_a_hyperparameter_of_one_method_is_not_given_to_its_namesakes(
    capsys: pytest.CaptureFixture,
) -> None:
    contestants = contestants_of(["FedAvg", "FedProx", "MOON"])

    def values(**given: float) -> dict[str, float]:
        dotted = {name.replace("_of_", "."): value for name, value in given.items()}
        jobs = head_to_head.table_of(contestants, dotted, seeds=1).jobs
        return {job.settings.method: job.settings.hyperparameters.get("mu") for job in jobs}

    defaults = values()
    assert values(MOON_of_mu=7) == defaults | {"MOON": 7} and not capsys.readouterr().err
    assert values(mu=3, MOON_of_mu=7) == {"FedAvg": None, "FedProx": 3, "MOON": 7}
    assert not capsys.readouterr().err
    assert values(mu=3) == {"FedAvg": None, "FedProx": 3, "MOON": 3}
    assert "FedProx and MOON" in capsys.readouterr().err
    assert commands.for_methods("FedProto+FedAvg.mu=0.5") == ("FedProto+FedAvg.mu", 0.5)
    assert commands.for_methods("lr=0.5") == ("lr", 0.5)
    with pytest.raises(SweepError, match=r"did you mean 'MOON\.mu'"):
        head_to_head.table_of(contestants, {"MON.mu": 1}, seeds=1)


# ---- what is said


def table_with(**accuracies: list[float]) -> Table:
    """A row for each method, a run for each accuracy, on 400 test images."""
    jobs = []
    for method, values in accuracies.items():
        for seed, value in enumerate(values):
            job = made_up.job(method, seed)
            partition = {"hash": f"p{seed}", "sizes": [640, 100]}
            about = {"name": "cifar10", "test_images": 400}
            made_up.record(job, value, partition=partition, dataset=about)
            jobs.append(job)
    return made_up.table(*jobs, printed=None)


def cells_with(**accuracies: list[float]) -> list[Cell]:
    return cells_of(table_with(**accuracies), ledger.load())


def test_what_is_no_better_than_guessing_is_named() -> None:
    told = tables.learned_nothing(cells_with(FedAvg=[10.0, 14.0], FedProx=[15.0, 17.0]))
    assert "FedAvg" in told and "FedProx" not in told
    assert tables.learned_nothing(cells_with(FedProx=[15.0, 17.0])) == ""


def compared(**accuracies: list[float]) -> head_to_head.Outcome:
    """A comparison of rows that are recorded."""
    table = table_with(**accuracies)
    cells = cells_of(table, ledger.load())
    baseline, comparisons = leads_over_baseline(table, cells)
    return head_to_head.Outcome("", [], "", table, cells, baseline, as_family(comparisons))


def test_a_comparison_is_a_table_for_latex_and_curves_as_csv() -> None:
    outcome = compared(FedAvg=[60.0, 60.1, 59.9], FedProx=[62.0, 62.1, 61.9])
    lines = head_to_head.latex(outcome).splitlines()
    assert lines[0].startswith(r"\begin{tabular}") and lines[7] == r"\end{tabular}"
    assert lines[8].startswith("% cifar10, 100 rounds, 10 clients, 3 seeds") and "±" in lines[9]
    (prox,) = [line for line in lines if line.startswith("FedProx")]
    assert prox.split(" & ")[2].startswith(r"+2.0 $\pm$") and prox.endswith(r"\\")
    guessing = compared(FedAvg=[10.0, 14.0], FedProx=[15.0, 17.0])
    assert head_to_head.latex(guessing).splitlines()[-1].startswith("% Learned nothing: FedAvg")
    curves = head_to_head.curves_csv(outcome)
    assert "other code" not in curves + lines[-1]
    rows = list(csv.DictReader(io.StringIO(curves)))
    assert len(rows) == 6 * 100 and rows[-1]["method"] == "FedProx"
    assert {row["seed"] for row in rows} == {"0", "1", "2"} and rows[0]["round"] == "1"


def test_latex_and_curves_say_that_a_record_is_of_other_code() -> None:
    table = table_with(FedAvg=[60.0], FedProx=[62.0])
    job = table.jobs[1]
    ledger.write(job.path, {**ledger.read(job.path), "source": "0" * 12})
    cells = cells_of(table, ledger.load())
    outcome = head_to_head.Outcome("", [], "", table, cells, "FedAvg", {})
    for told in (
        head_to_head.latex(outcome).splitlines()[-1],
        head_to_head.curves_csv(outcome).splitlines()[0],
    ):
        assert told[0] in "%#" and "other code" in told and "FedProx (1); --again" in told


@pytest.mark.parametrize(
    ("accuracies", "side", "reason"),
    [
        ([62.0, 62.1, 61.9], "Ahead of FedAvg", ""),
        ([58.0, 58.1, 57.9], "Behind FedAvg", ""),
        ([62.0, 58.0, 61.0], "Cannot tell from FedAvg", "holds zero"),
        ([62.0, 62.1], "Cannot tell from FedAvg", "3 seeds"),
    ],
)
def test_a_direction_is_told_only_where_the_interval_leaves_out_zero(
    accuracies: list[float], side: str, reason: str
) -> None:
    table = table_with(FedAvg=[60.0, 60.1, 59.9][: len(accuracies)], FedProx=accuracies)
    baseline, comparisons = leads_over_baseline(table, cells_of(table, ledger.load()))
    told = head_to_head.who_is_ahead(baseline, as_family(comparisons))
    assert told.startswith(f"- {side}: FedProx") and reason in told and "((" not in told


# ---- a sweep of one's own


class Swept(NamedTuple):
    """What a sweep of one's own leaves behind."""

    file: Path
    out: str


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    folder = tmp_path_factory.mktemp("own")
    own_notebook(folder / "mine.ipynb")
    grid = {"method": ["FedAvg", "Mine"], "seed": [0, 1]}
    table = TABLE | {"grid": grid, "columns": "dataset", "parameters": {"num_clients": 2}}
    file = write(folder, {"mine": table}, "mine.ipynb", "mine.yaml")
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(out):
        patch.delenv("FEDNB_RUNS", raising=False)
        patch.setenv("FEDNB_DEVICE", "cpu")
        assert cli.main(["sweep", str(file)]) == 0
    return Swept(file, out.getvalue())


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records lie beside the notebook."""
    monkeypatch.delenv("FEDNB_RUNS")


def test_a_sweep_ends_with_its_table_and_its_page(
    swept: Swept, beside: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines that make runs again name no folder of the machine, and are typed beside the file."""
    monkeypatch.chdir(swept.file.parent)
    page = swept.file.parent / "results" / "tables" / "mine.md"
    assert re.search(r"\| \**Mine\**[^|]*\|[^\n]*[\d.]+", swept.out) and str(page) in swept.out
    text = page.read_text()
    links = re.findall(r"\]\((\.\./runs/[^)]+)\)", text)
    assert len(links) == 4
    assert all((page.parent / link).resolve().exists() for link in links)
    command = re.search(r"<code>fednb (sweep .*?)</code>", text)
    assert command and cli.main([*shlex.split(command[1]), "--dry-run"]) == 0
    made = page.with_suffix(".csv").read_text()
    assert "fednb run mine.ipynb" in made and str(page.parents[2]) not in text + made
    rows = page.with_suffix(".csv").read_text().splitlines()
    assert len(rows) == 3 and rows[2].startswith("mine,Mine,")


def test_report_takes_ones_own_sweep(
    swept: Swept, beside: None, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert cli.main(["report", str(swept.file), "--out", str(tmp_path)]) == 0
    assert "| Mine |" in capsys.readouterr().out
    assert (tmp_path / "mine.md").exists() and (tmp_path / "mine.csv").exists()
    assert cli.main(["report", str(swept.file), "--runs", "x"]) == 2


def test_a_cell_is_made_again_without_touching_its_records(
    swept: Swept, beside: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """What was made before an interruption is not made once more; in the end nothing is left."""
    results = swept.file.parent / "results"
    before = {path: path.read_bytes() for path in results.glob("runs/*")}
    words_ = ["check", str(swept.file), "Mine"]
    assert cli.main([*words_, "--seeds", "1", "--dry-run"]) == 0
    assert "1 seed" in capsys.readouterr().out
    asked: list[int] = []
    make = pool.run_needed

    def interrupted(todo: Sequence[Job], **options: int) -> None:
        asked.append(len(todo))
        make(todo[:1], **options)
        if len(todo) > 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(pool, "run_needed", interrupted)
    assert cli.main(words_) == 130
    assert len(list(results.glob("check/*/runs/*.json"))) == 1
    assert cli.main(words_) == 0 and asked == [2, 1]
    out, err = capsys.readouterr()
    assert "Agrees: the same in every round" in out and "1 of 2 were made before" in err
    assert {path: path.read_bytes() for path in results.glob("runs/*")} == before
    assert not list(results.glob("check/*"))
    assert cli.main(["check", str(swept.file), "Theirs"]) == 2
    assert "known are FedAvg, Mine" in capsys.readouterr().err


def made_again(now: float, *, losses: tuple[float, float] = (2.0, 1.0)) -> again.MadeAgain:
    """A run that is recorded with 66.3 % and losses 2 and 1, and how it was made again."""
    job = made_up.job(num_rounds=2)
    made_up.record(job, 66.3, metrics={"loss/cross_entropy": [2.0, 1.0]})
    recorded = ledger.read(job.path)
    made_up.record(job, now, metrics={"loss/cross_entropy": list(losses)})
    return again.MadeAgain(job, recorded, ledger.read(job.path))


@pytest.mark.parametrize(
    ("now", "losses", "scatter", "said", "agrees"),
    [
        (66.3, (2.0, 1.0), 0.2, "last digit", True),
        (66.8, (2.001, 1.002), 0.2, "0.50 points", True),  # never too much
        (68.8, (2.001, 1.002), 1.0, "2.50 points apart, within the 3.00", True),  # another torch
        (70.3, (2.001, 1.002), 1.0, "4.00 points apart, more than the 3.00", False),
        (66.4, (2.01, 1.0), 1.0, "other code or other data", False),  # ends alike, begins otherwise
        (66.4, (2.0, 1.02), 1.0, "other code or other data", False),
        (70.3, (2.001, 1.002), None, "not judged", True),
    ],
)
def test_first_rounds_are_compared_strictly_and_ends_by_what_seeds_scatter(
    now: float, losses: tuple[float, float], scatter: float | None, said: str, agrees: bool
) -> None:
    checked = again.Check([made_again(now, losses=losses)], scatter)
    assert said in again.outcome(checked) and checked.agrees == agrees


def test_other_images_and_another_end_are_told() -> None:
    made = made_again(66.3)
    other = made._replace(made=made.recorded | {"dataset": {"fingerprint": "other"}})
    assert "not the images" in again.outcome(again.Check([other], 1.0))
    diverged = made._replace(made=made.recorded | {"status": "diverged"})
    assert not again.Check([diverged], None).agrees


# ---- help


def parsers(parser=None, name=""):
    """Every command's parser, by what is typed."""
    parser = parser or cli._parser()
    for action in parser._actions:
        choices = action.choices if isinstance(action.choices, dict) else {}
        for word, below in choices.items():
            if hasattr(below, "format_help"):
                yield f"{name} {word}".strip(), below
                yield from parsers(below, f"{name} {word}".strip())


def test_every_command_has_examples_that_can_be_typed() -> None:
    found = {name: parser for name, parser in parsers() if name != "course"}
    assert found.keys() == commands.COMMANDS.keys()
    for name, parser in found.items():
        _, _, examples = parser.format_help().partition("examples:")
        lines = [shlex.split(line) for line in examples.splitlines() if line.strip()]
        assert lines
        for program, *typed in lines:
            assert program == "fednb"
            assert cli._parsed(typed).function is commands.COMMANDS[name].function


def test_every_variable_that_is_read_is_in_the_help() -> None:
    read = set()
    for path in PACKAGE.rglob("*.py"):
        read |= set(re.findall(r"FEDNB_[A-Z_]+[A-Z]", path.read_text(encoding="utf-8")))
    # which commands set for their own processes
    read -= {"FEDNB_SEEDS", "FEDNB_AGAIN", "FEDNB_STUDENT_SEED", "FEDNB_NOTEBOOKS"}
    assert set(re.findall(r"FEDNB_[A-Z_]+", cli._parser().format_help())) == read
