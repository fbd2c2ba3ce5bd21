"""One's own methods and sweeps: their names, tables and pages, what compare says, and a cell that is made again."""

import io
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import click
import made_up
import pytest
from tiny import TABLE, write, write_notebook

from fednb import PACKAGE, ROOT, build, models, papers, settings
from fednb import records as ledger
from fednb.errors import NotebookError, SweepError
from fednb_lab import arguments, cli, new, pool
from fednb_lab import check as again
from fednb_lab import compare as head_to_head
from fednb_lab.jobs import Job, find_methods

# ---- names


@pytest.mark.parametrize(
    "name",
    ["class", "a/b", "", "x" * 41, "FedAvg", "tensor"],
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
    own: int = 1


METHODS = {{"FedAvg": FedAvg, "{name}": {name}}}
"""


def own_notebook(file: Path, name: str = "Mine", network: str = "") -> str:
    return str(write_notebook(file, methods=network + OWN.format(name=name)))


def test_two_methods_of_one_name_are_refused(tmp_path: Path) -> None:
    first = own_notebook(tmp_path / "a" / "one.ipynb")
    second = own_notebook(tmp_path / "b" / "two.ipynb")
    assert list(find_methods(["FedAvg", first, first])) == ["FedAvg", "Mine"]
    with pytest.raises(SweepError, match=r"one\.ipynb and .*two\.ipynb both have a method Mine"):
        find_methods([first, second])


def test_a_copy_under_another_name_has_parameters_of_its_own(tmp_path: Path) -> None:
    """Though its cell still names the notebook that it was copied from."""
    copied = new.copy_notebook("01_moon", tmp_path / "copied.ipynb")
    text = copied.read_text(encoding="utf-8")
    copied.write_text(text.replace('"mu = None', '"batch_size = None\\n", "mu = None'))
    short = ["num_rounds=1", "local_epochs=1", "num_clients=3", "batch_size=128"]
    assert cli.main(["run", str(copied), *short]) == 0
    (path,) = ledger.runs_folder().glob("*.json")
    assert ledger.read(path)["settings"]["batch_size"] == 128


def test_a_number_of_seeds_that_nobody_means_is_refused() -> None:
    with pytest.raises(SweepError, match="2,000,000,000 runs"):
        head_to_head.table_of(find_methods(["FedAvg", "MOON"]), {}, seeds=10**9)


NETWORK = """
from torch import nn
from fednb import models

models.MODELS["tiny"] = models.Model(
    lambda channels, side: (nn.Flatten(), channels * side * side), None, range(8, 65)
)
"""
WITH_NETWORK = ["--seeds", "1", "model=tiny", "projection_head=False", "num_rounds=1"]


def test_a_network_of_ones_own_is_known_to_all_runs_of_a_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To those of the project's methods, and of another notebook, whose processes import neither."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models, "MODELS", dict(models.MODELS))
    first = own_notebook(tmp_path / "a.ipynb", "A", NETWORK)
    own_notebook(tmp_path / "b.ipynb", "B")
    assert cli.main(["compare", "FedAvg", first, "b.ipynb", *WITH_NETWORK]) == 0
    records = [ledger.read(path) for path in ledger.runs_folder().glob("*.json")]
    assert {record["method"] for record in records} == {"FedAvg", "A", "B"}
    assert len({record["model_parameters"] for record in records}) == 1
    (path,) = ledger.runs_folder().glob("A-*.json")
    (page,) = tmp_path.glob("results/compare/*.md")
    assert (
        len(page.with_suffix(".csv").read_text().splitlines()) == 4
    )  # titles, and a line a method
    assert "other code" not in page.read_text()
    ledger.write(path, ledger.read(path) | {"source": "0" * 12})
    assert cli.main(["compare", "FedAvg", first, "b.ipynb", *WITH_NETWORK]) == 0
    assert "other code of the method than is here now: A (1)" in page.read_text()


def test_two_networks_of_one_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(pool, "run_needed", lambda *_, **options: pytest.fail("a run was started"))
    monkeypatch.setattr(models, "MODELS", dict(models.MODELS))
    for name in "AB":
        own_notebook(tmp_path / f"{name}.ipynb", name, NETWORK)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["compare", "A.ipynb", "B.ipynb", *WITH_NETWORK]) == 2
    assert "both add a network tiny" in capsys.readouterr().err


def test_a_hyperparameter_of_one_method_is_not_given_to_its_namesakes(
    capsys: pytest.CaptureFixture,
) -> None:
    compared = find_methods(["FedAvg", "FedProx", "MOON"])

    def values(**given: float) -> dict[str, float]:
        dotted = {name.replace("_of_", "."): value for name, value in given.items()}
        jobs = head_to_head.table_of(compared, dotted, seeds=1).jobs
        return {job.settings.method: job.settings.hyperparameters.get("mu") for job in jobs}

    defaults = values()
    assert values(MOON_of_mu=7) == defaults | {"MOON": 7} and not capsys.readouterr().err
    assert values(mu=3, MOON_of_mu=7) == {"FedAvg": None, "FedProx": 3, "MOON": 7}
    assert not capsys.readouterr().err
    assert values(mu=3) == {"FedAvg": None, "FedProx": 3, "MOON": 3}
    assert "FedProx and MOON" in capsys.readouterr().err
    assert arguments.for_methods("FedProto+FedAvg.mu=0.5") == ("FedProto+FedAvg.mu", 0.5)
    assert arguments.for_methods("lr=0.5") == ("lr", 0.5)
    with pytest.raises(SweepError, match=r"did you mean 'MOON\.mu'"):
        head_to_head.table_of(compared, {"MON.mu": 1}, seeds=1)


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
    typed = ["report", str(swept.file), "--out", str(tmp_path)]
    assert cli.main(typed) == 0
    assert "| Mine |" in capsys.readouterr().out
    assert (tmp_path / "mine.md").exists() and (tmp_path / "mine.csv").exists()
    assert cli.main([*typed, "--runs", "x"]) == 2


def test_report_leaves_the_page_of_a_table_of_the_project_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("FEDNB_RUNS", str(ROOT / "results" / "runs"))
    monkeypatch.setattr(ledger, "write_atomically", lambda path, _: pytest.fail(f"{path} written"))
    assert cli.main(["report", str(ROOT / "notebooks" / "sweeps" / "feddyn_fednova.yaml")]) == 0


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
    assert "Agrees: the same in every round" in capsys.readouterr().out
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
    return again.MadeAgain(recorded, ledger.read(job.path))


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
    verdict = again.judge([made_again(now, losses=losses)], scatter)
    assert said in verdict.text and verdict.agrees == agrees


def test_other_images_and_another_end_are_told() -> None:
    made = made_again(66.3)
    other = made._replace(made=made.recorded | {"dataset": {"fingerprint": "other"}})
    assert "not the images" in again.judge([other], 1.0).text
    diverged = made._replace(made=made.recorded | {"status": "diverged"})
    assert not again.judge([diverged], None).agrees


# ---- help


def commands(group: click.Group, typed: str) -> Iterator[tuple[str, click.Command]]:
    """Every command, by what is typed."""
    for word, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{typed} {word}")
        else:
            yield f"{typed} {word}", command


FOUND = dict(commands(arguments.fednb, "fednb"))


@pytest.mark.parametrize("typed", FOUND)
def test_every_command_has_examples_that_can_be_typed(
    typed: str, capsys: pytest.CaptureFixture
) -> None:
    assert cli.main([*typed.split()[1:], "--help"]) == 0
    _, _, examples = capsys.readouterr().out.partition("examples:\n")
    lines = [line.strip() for line in examples.splitlines()]
    assert lines
    for line in lines:
        assert line.startswith(typed)
        FOUND[typed].make_context(typed, shlex.split(line.removeprefix(typed)))


def test_every_variable_that_is_read_is_in_the_help() -> None:
    read = set()
    for path in PACKAGE.rglob("*.py"):
        read |= set(re.findall(r"FEDNB_[A-Z_]+[A-Z]", path.read_text(encoding="utf-8")))
    # which commands set for their own processes
    read -= {"FEDNB_SEEDS", "FEDNB_AGAIN", "FEDNB_STUDENT_SEED", "FEDNB_NOTEBOOKS"}
    assert set(re.findall(r"FEDNB_[A-Z_]+", str(arguments.fednb.epilog))) == read
