"""The model that a run leaves, and a learning rate that falls from round to round."""

import dataclasses
from pathlib import Path

import pytest
import torch

from fednb import papers
from fednb.errors import RunError
from fednb.experiments import build, final_model, ledger, runner, settings
from fednb.experiments.settings import Settings
from fednb.federation import FedAvg


@pytest.fixture(scope="module")
def methods() -> dict[str, type]:
    return papers.methods("foundations")


def short(methods: dict[str, type], method: str = "FedAvg", **given: object) -> Settings:
    given = {"num_rounds": 2, "local_epochs": 1, "num_clients": 3} | given
    return settings.resolve(methods, method=method, dataset="digits", **given)


def accuracy(model: torch.nn.Module) -> float:
    """In percent, on the test images of the digits."""
    dataset = build.load_dataset("digits")
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (dataset.mean, dataset.std))
    with torch.no_grad():
        logits = model((dataset.test_images / 255 - mean) / std).logits
    return 100 * float((logits.argmax(1) == dataset.test_labels).float().mean())


@pytest.mark.parametrize("method", ["FedAvg", "SOLO"])
def test_the_kept_model_is_the_one_that_the_record_judges(
    methods: dict[str, type], method: str
) -> None:
    asked = short(methods, method, local_epochs=2, lr=0.05)  # each round gains ten points
    record = runner.run(asked, methods, save_model=True)
    path = ledger.path(asked, ledger.runs_folder())
    clients = record["final"].get("clients", [None])
    accuracies = [accuracy(final_model.load(path, client)) for client in range(len(clients))]
    assert sum(accuracies) / len(accuracies) == pytest.approx(
        record["final"]["accuracy"],
        abs=0.3,  # an image whose two best logits differ by rounding
    )


def test_a_model_that_is_missing_is_made_without_touching_the_record(
    methods: dict[str, type],
) -> None:
    asked = short(methods)
    runner.run(asked, methods)
    path = ledger.path(asked, ledger.runs_folder())
    before = path.read_bytes()
    with pytest.raises(RunError, match="--save-model"):
        final_model.load(path)
    runner.run(asked, methods, save_model=True)
    first = final_model.path_of(path).stat().st_mtime_ns
    runner.run(asked, methods, save_model=True)  # which is there already
    assert final_model.path_of(path).stat().st_mtime_ns == first
    assert path.read_bytes() == before
    runner.run(asked, methods, again=True)  # a model of the code as it was is worse than none
    assert not final_model.path_of(path).exists()


def test_a_model_that_cannot_be_made_leaves_the_record(
    methods: dict[str, type], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = short(methods)
    runner.run(asked, methods)
    path = ledger.path(asked, ledger.runs_folder())
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(FedAvg, "round", fail)
    with pytest.raises(ZeroDivisionError):
        runner.run(asked, methods, save_model=True)
    assert path.read_bytes() == before


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    path.write_bytes(b"nonsense")
    with pytest.raises(RunError, match=r"run\.pt has no such model"):
        final_model.load(path)


def test_the_learning_rate_falls_by_its_factor(methods: dict[str, type]) -> None:
    """A client that sees one gradient moves by lr x decay^t x gradient."""
    rates = []

    @dataclasses.dataclass
    class Watched(FedAvg):
        def optimizer(self, client, parameters, context):
            made = super().optimizer(client, parameters, context)
            rates.append(made.param_groups[0]["lr"])
            return made

    asked = short({"Watched": Watched}, "Watched", num_rounds=3, lr=0.1, lr_decay=0.5)
    fed = build.federation(asked, {"Watched": Watched}, workers=1)
    for _ in range(3):
        fed.run_round()
    assert rates == [0.1] * 3 + [0.05] * 3 + [0.025] * 3


@pytest.mark.parametrize("name", ["a/b", "", "NUL", "com1", "None", "x" * 61, "my method", "1st"])
def test_a_methods_name_is_a_name(name: str) -> None:
    with pytest.raises(settings.SettingsError, match="A method cannot be called"):
        settings.resolve({name: FedAvg}, method=name, dataset="digits")
