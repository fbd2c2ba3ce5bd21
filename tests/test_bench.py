"""``make bench``: a line for every method."""

import pytest

from fednb import bench
from fednb.federation import FedAvg, Training


def test_every_method_has_a_bare_loop() -> None:
    assert {name for name, _, _ in bench.ROWS} == set(bench.methods())


def test_the_table_has_a_line_for_every_method(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    small = {case: (*given[:3], 120, *given[4:]) for case, given in bench.CASES.items()}
    monkeypatch.setattr(bench, "CASES", small)
    monkeypatch.setattr(bench, "CLIENTS", 2)
    monkeypatch.setattr(bench, "TEST_IMAGES", 20)
    made, federation = [], bench.Federation
    monkeypatch.setattr(
        bench, "Federation", lambda *args, **given: made.append(given["workers"]) or federation(*args, **given)
    )
    bench.main(["--alternations", "1", "--workers", "3"])
    assert set(made) == {3}
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(bench.runs.device_name("cpu")[0])
    found = [line for line in lines if line.startswith(tuple(bench.methods()))]
    assert [line.split()[0] for line in found] == [name for name, _, _ in bench.ROWS]
    for line in found:
        numbers = line[40:].split("  above")[0].replace(" to ", " ").replace(",", "").split()
        assert len(numbers) == 8 and all(float(number) > 0 for number in numbers)


def test_an_unknown_method_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        bench.main(["--method", "FedAgv"])
    assert "there is no method 'FedAgv'; there are FedAvg, SOLO" in capsys.readouterr().err


def test_steps_on_nan_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    model, channels, side, _, *rest = bench.CASES["small net, batch 8"]
    monkeypatch.setitem(bench.CASES, "small net, batch 8", (model, channels, side, 120, *rest))
    monkeypatch.setattr(bench, "TEST_IMAGES", 20)
    monkeypatch.setattr(bench, "Training", lambda *given: Training(*given[:3], 1e20, *given[4:]))
    with pytest.raises(RuntimeError, match="FedAvg diverged on random images"):
        bench.measure("FedAvg", "small net, batch 8", bench.Plain(), FedAvg, "cpu", 1)
