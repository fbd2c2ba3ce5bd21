"""``make bench``: a line for every method."""

import pytest

from fednb import bench, papers
from fednb.federation import FedAvg, Training


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {case: (*given[:3], 120, *given[4:]) for case, given in bench.CASES.items()}
    monkeypatch.setattr(bench, "CASES", small)
    monkeypatch.setattr(bench, "CLIENTS", 2)
    monkeypatch.setattr(bench, "TEST_IMAGES", 20)


def test_the_table_has_a_line_for_every_method(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    make_small(monkeypatch)
    bench.main(["--alternations", "1", "--workers", "2"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(tuple(papers.methods()))]
    assert [line.split()[0] for line in lines if "small net" not in line] == list(papers.methods())
    for line in lines:
        numbers = line[40:].split("  above")[0].replace(",", "").split()
        assert len(numbers) == (5 if line.startswith(("FedAvg ", "MOON ", "FedProto ")) else 3)
        assert all(float(number) > 0 for number in numbers)


def test_an_unknown_method_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        bench.main(["--method", "FedAgv"])
    assert "there is no method 'FedAgv'; there are FedAvg, SOLO" in capsys.readouterr().err


def test_steps_on_nan_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    monkeypatch.setattr(bench, "Training", lambda *given: Training(*given[:3], 1e20, *given[4:]))
    with pytest.raises(RuntimeError, match="FedAvg diverged on random images"):
        bench.measure("FedAvg", "small net, batch 8", FedAvg)
