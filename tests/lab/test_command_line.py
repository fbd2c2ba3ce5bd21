"""The command line: what commands show, and that a wrong request is one sentence, soon."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from made_up import record
from tiny import TABLE, write, write_notebook

from fednb import ROOT
from fednb import records as ledger
from fednb_lab import pool
from fednb_lab.cli import main
from fednb_lab.jobs import Notebook
from fednb_lab.sweeps import read_tables


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDNB_TEST_MARKS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    write_notebook(tmp_path / "90_tiny.ipynb")


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("run", "run_in_this_process"):
        monkeypatch.setattr(pool, name, lambda *_, **options: pytest.fail("a run was started"))


def test_settings_may_follow_an_option() -> None:
    assert main(["run", "90_tiny.ipynb", "--again", "num_rounds=1"]) == 0
    (path,) = ledger.runs_folder().glob("*.json")
    assert ledger.read(path)["settings"]["num_rounds"] == 1


@pytest.mark.parametrize("progress", ["", "bar"])
def test_run_shows_settings_rounds_and_result(
    progress: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("FEDNB_PROGRESS", progress)
    assert main(["run", "90_tiny.ipynb", "num_rounds=2", "lr=1e-2", "weight_decay=none"]) == 0
    out, err = capfd.readouterr()
    (path,) = ledger.runs_folder().glob("*.json")
    accuracy = f"accuracy {ledger.read(path)['final']['accuracy']:.2f} % (finished)"
    shown = ["num_rounds  2", "lr  0.01", accuracy, f"record: {path}"]
    assert all(text in out for text in shown), out
    assert out.count(f"goes to {path.parent}") == 1
    assert bool(err) == bool(progress) != ("round 1/2" in out and "round 2/2" in out)
    assert not list(path.parent.parent.glob("checkpoints/*.pt"))
    if not progress:
        assert main(["run", "90_tiny.ipynb", "method=Broken"]) == 1
        err = capfd.readouterr().err
        assert err.startswith("fednb: the run failed: cell [4], line ") and err.count("\n") == 1
        assert "raise RuntimeError(" in err and err.endswith("RuntimeError: broken on purpose\n")


def test_run_says_that_a_record_is_of_other_code(capfd: pytest.CaptureFixture) -> None:
    words = ["run", "90_tiny.ipynb", "method=Slow", "num_rounds=1"]
    assert main(words) == 0
    assert "round 1/1" not in capfd.readouterr().out  # as FEDNB_PROGRESS is off
    assert main(words) == 0
    assert not capfd.readouterr().err
    (path,) = ledger.runs_folder().glob("*.json")
    ledger.write(path, {**ledger.read(path), "source": "0" * 12})
    assert main(words) == 0
    err = capfd.readouterr().err
    assert "other code" in err and "Slow (1)" in err and "--again" in err


def test_a_dry_run_says_what_is_missing(
    tmp_path: Path, nothing_starts: None, capsys: pytest.CaptureFixture
) -> None:
    tiers = {"digits": "minutes-cpu", "mnist": "hours-gpu"}
    table = TABLE | {"tier": tiers, "grid": {"dataset": ["mnist", "digits"], "seed": [0, 1]}}
    file = write(tmp_path, {"t": table})
    job = read_tables(file)["t"].jobs[2]
    record(job, wall_seconds=61, device="a CPU")
    options = "--dry-run --tier minutes-cpu --only seed=1 --only seed=0"
    assert main(["sweep", str(file), *options.split()]) == 0
    told = capsys.readouterr().out
    assert "2 runs: 1 recorded, 1 to do." in told and "01:01 on a CPU" in told
    assert "dataset=digits seed=1" in told and "mnist" not in told


WRONG = [
    (["run", "90_tiny.ipynb", "more={}"], "more is for notebooks"),
    (["run", "90_tiny.ipynb", "seed=1", "seed=2"], "seed is given 2 times"),
    (["compare", "FedAvg", "FedAvg"], "name two"),
    (["compare", "lr=0.1"], "name two"),
    (["run", "nothing"], "no notebook 'nothing': known are .*01_moon"),
    (["run", "01_moon.ipynb"], r"no file 01_moon.ipynb: .* called 01_moon.*`fednb copy 01_moon`"),
    (["run", "a=b/yours.ipynb"], "There is no file a=b/yours.ipynb"),
    (["compare", "FedAvg", "x/mine.ipynb"], r"no file x/mine.ipynb"),
    (["run", "BROKEN"], r"broken.ipynb cannot be read as a notebook"),
    (["sweep", "nowhere.yaml"], "nowhere.yaml: No such file or directory"),
    (["sweep", "swep.yml"], "did you mean sweep.yaml?"),
    (["sweep", "90_tiny.ipynb"], "90_tiny.ipynb is no sweep file"),
    (["check", "90_tiny.ipynb"], "90_tiny.ipynb is no sweep file"),
    (["check", "digts"], "no table 'digts': did you mean 'digits'?"),
    (["sweep", "FILE", "--table", "godo"], "No run has table 'godo': .*did you mean 'good'"),
    (["sweep", "FILE", "--only", "datset=digits"], "no parameter 'datset': .* mean 'dataset'"),
    (["sweep", "FILE", "--jobs", "2", "--scheduler", "tcp://x:1"], "leave out --jobs and"),
    (["sweep", "UNKNOWN", "--dry-run"], "unknown measure 'bset'"),
    (["compare", "FedAvg", "--jobs", "2", "my-lr=3"], "'my-lr=3' is not of the form name=value"),
    (["compare", "FedAvg", "MOON", "seed=3"], "--seeds"),
    (["compare", "FedAvg", "90_tiny"], r"path of a notebook \(mine.ipynb\) nor .* '90_tiny'"),
    (["run", "90_tny.ipynb"], r"did you mean 90_tiny.ipynb\?"),
    (["run", "mine"], r"did you mean mine.ipynb"),
    (["run", "90_tiny.ipynb", "dataset=folder:photo"], r"did you mean photos\?"),
    (["list", "90_tiny.ipynb"], "90_tiny.ipynb has no tables"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=lambda value: str(value)[:50])
def test_wrong_requests_get_one_line_and_status_2(
    tmp_path: Path,
    nothing_starts: None,
    capsys: pytest.CaptureFixture,
    arguments: list[str],
    message: str,
) -> None:
    file = write(tmp_path, {name: TABLE | {"runs": [{}]} for name in ("good", "bad")})
    unknown = write(tmp_path, {"t": TABLE | {"measure": "bset", "runs": [{}]}}, name="u.yaml")
    (tmp_path / "broken.ipynb").write_text("[" * 100_000)
    write_notebook(tmp_path / "mine.ipynb")
    (tmp_path / "photos").mkdir()
    paths = {"FILE": file, "UNKNOWN": unknown, "BROKEN": tmp_path / "broken.ipynb"}
    assert main([str(paths.get(argument, argument)) for argument in arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith("fednb: ") and err.count("\n") == 1 and len(err) < 1000
    assert re.search(message, err)
    assert not ledger.runs_folder().exists()


def test_what_the_data_cannot_give_is_told_once_and_before_the_first_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(pool, "make_all", lambda *_: pytest.fail("a run was started"))
    assert main(["compare", "FedAvg", "MOON", "num_clients=5000"]) == 2
    err = capsys.readouterr().err
    assert "5000 clients share 1438 images" in err and err.count("5000") == 1


# Typed in one process: what they need of the library is little, and PyTorch is slow to import.
LIGHT = """
import sys
from fednb_lab.cli import main

for typed in ["list", "new Mine", "copy 01", "run 02_fedproc.ipynb", "run 1_mon", "sweep no.yaml"]:
    main(typed.split())
print("loaded:", {"torch", "matplotlib", "pandas"} & set(sys.modules))
"""


def test_what_needs_no_run_imports_no_pytorch(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("loaded: set()\n")
    made = {path.name for path in tmp_path.iterdir()}
    assert {"mine.ipynb", "mine.yaml", "01_moon.ipynb"} <= made
    assert done.stderr.count("fednb: ") == done.stderr.count("\n") == 3


def test_what_has_learned_nothing_is_told_by_run(capsys: pytest.CaptureFixture) -> None:
    for accuracy, seed in ((12.0, 0), (40.0, 1)):
        record(Notebook("90_tiny.ipynb").job({"seed": seed}), accuracy)
        assert main(["run", "90_tiny.ipynb", f"seed={seed}"]) == 0
        told = "Learned nothing: FedAvg (12.0 %, guessing gives 10 %)" in capsys.readouterr().out
        assert told == (accuracy == 12.0)


def test_a_report_of_nothing_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = write(tmp_path, {"t": TABLE | {"runs": [{}]}})
    before = set(tmp_path.rglob("*"))
    for typed in ([str(file)], ["--runs", str(tmp_path)], ["--runs", "nowhere"]):
        assert main(["report", *typed]) == 1
        assert capsys.readouterr().err.startswith("fednb: No run is recorded in ")
    assert set(tmp_path.rglob("*")) == before


def test_results_that_cannot_be_written_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    job = Notebook("90_tiny.ipynb").job({})
    record(job, 40.0)
    (tmp_path / "file").touch()
    sweep = write(tmp_path, {"t": TABLE | {"runs": [{}]}})
    assert main(["report", str(sweep), "--out", str(tmp_path / "file")]) == 2
    assert f"{tmp_path / 'file'}" in capsys.readouterr().err
    job.path.unlink()
    (ledger.runs_folder().parent / "logs").touch()  # a file at the folder's place
    assert main(["run", "90_tiny.ipynb"]) == 2
    assert re.fullmatch(
        r"fednb: Runs cannot be recorded in .*logs \(File exists\): make it writable.*\n",
        capsys.readouterr().err,
    )


@pytest.mark.parametrize(
    ("typed", "guess"),
    [
        ("sweep x --jobs 0", ""),
        ("run x --lr=0.1", "A setting is name=value"),
        ("fly", ""),
        ("new fedprox decay", ""),
        ("swep x", "Did you mean 'sweep'?"),
        ("course chek x", "Did you mean 'check'?"),
        ("compare FedAvg MOON --sedes 3", "Did you mean '--seeds'?"),
        ("compare FedAvg MOON --seed 3", "Did you mean '--seeds'?"),
    ],
)
def test_wrong_usage_ends_with_status_2_and_a_guess(
    typed: str, guess: str, capsys: pytest.CaptureFixture
) -> None:
    assert main(typed.split()) == 2
    err = capsys.readouterr().err
    command = "" if typed.startswith(("fly", "swep")) else f" {typed.split()[0]}"
    assert f"Usage: fednb{command} " in err
    assert guess in err if guess else "Did you mean" not in err


def test_the_tables_of_ones_own_sweep_file_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    write(tmp_path, {"t": TABLE | {"runs": [{}]}}, name="90_tiny.yaml")
    assert main(["list", "90_tiny.yaml"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"(?m)^t +0/1 .* A title$", told)
    assert re.search(r"fednb check \S*90_tiny.yaml:NAME", told)
    assert main(["check", "t"]) == 2
    assert "FILE.yaml:TABLE" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_ends_the_list_quietly() -> None:
    command = [sys.executable, "-m", "fednb_lab", "list"]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **piped) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
