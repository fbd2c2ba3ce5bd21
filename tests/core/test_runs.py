"""The ledger: every run is recorded once, and a run that is killed ends as if it had not been."""

import errno
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from fednb.papers.moon import METHODS
from tiny import FORKSERVER

from fednb import ROOT, build, papers, partition, settings
from fednb import records as ledger
from fednb import run as runner
from fednb.errors import RunError
from fednb.federation import FedAvg, Federation

# those of the extras that have records of their own, and of the numbered notebooks, which have the last word
ALL_METHODS = papers.methods("three_more_methods") | papers.methods("feddyn_fednova")
ALL_METHODS |= papers.methods()
FINGERPRINT = "3a5f0f9fcc82e188"  # of digits


def quick(method="SCAFFOLD", **given):
    small = {"num_clients": 4, "num_rounds": 4, "local_epochs": 1, "participation": 0.5, "lr": 0.05}
    small["batch_size"] = 128
    return settings.resolve(METHODS, method=method, dataset="digits", **small | given)


def lasting(record):
    """What of a record depends on the recipe alone."""
    metrics = {n: v for n, v in record["metrics"].items() if "seconds" not in n}
    same = "key status final settings partition model_parameters deviations dataset".split()
    return metrics, {n: record[n] for n in [*same, "messages_per_round"]}


def records():
    return sorted(ledger.runs_folder().glob("*.json"))


def path_of(s):
    return ledger.path(s, ledger.runs_folder())


def checkpoint_of(s):
    return ledger.runs_folder().parent / "checkpoints" / f"{path_of(s).stem}.pt"


@pytest.fixture
def trained(monkeypatch):
    """The rounds that were trained since it was last emptied."""
    rounds, plain = [], Federation.run_round

    def run_round(fed):
        rounds.append(fed.rounds_done + 1)
        return plain(fed)

    monkeypatch.setattr(Federation, "run_round", run_round)
    return rounds


@pytest.fixture
def interrupted(monkeypatch):
    """A run that was stopped in its third round, as by Ctrl-C."""
    s, plain = quick(), Federation.run_round

    def run_round(fed):
        if fed.rounds_done == 2:
            raise KeyboardInterrupt
        return plain(fed)

    with monkeypatch.context() as patch:
        patch.setattr(Federation, "run_round", run_round)
        patch.setattr(runner, "CHECKPOINT_SECONDS", 0)
        with pytest.raises(KeyboardInterrupt):
            runner.run(s, METHODS)
    assert checkpoint_of(s).exists() and not records()
    return s


def child(environment, s, die_in_round, log, barrier):
    """Make a run, and die by SIGKILL in the middle of a round if so wished."""
    os.environ.update(environment)
    torch.set_num_threads(1)
    plain = FedAvg.aggregate

    def aggregate(self, server, uploads, t):
        if die_in_round == t + 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with log.open("a") as file:
            file.write(f"{t + 1}\n")
        return plain(self, server, uploads, t)

    FedAvg.aggregate = aggregate
    if barrier is not None:
        barrier.wait(300)
    runner.CHECKPOINT_SECONDS = 0
    runner.run(s, METHODS, workers=1)


def start(s, log, die_in_round=None, barrier=None):
    """Start a child process that makes a run, forked from a server with the package imported."""
    environment = {n: v for n, v in os.environ.items() if n.startswith("FEDNB_")}
    told = (environment, s, die_in_round, log, barrier)
    process = FORKSERVER.Process(target=child, args=told, daemon=True)
    process.start()
    return process


def test_a_run_killed_in_any_round_ends_as_if_it_had_not_been(trained, monkeypatch, tmp_path):
    """SCAFFOLD's: there is memory on both sides."""
    s, log = quick(num_rounds=4), tmp_path / "log"
    for die_in_round in (1, 3):
        process = start(s, log, die_in_round)
        process.join(300)
        assert process.exitcode == -signal.SIGKILL
        assert not records()
        assert checkpoint_of(s).exists() == (die_in_round > 1)
    assert log.read_text().split() == ["1", "2"]  # each round was trained once
    # killed while it wrote a checkpoint
    checkpoint_of(s).with_name(f".{checkpoint_of(s).name}.123").touch()
    resumed = runner.run(s, METHODS, workers=2)
    assert trained == [3, 4]
    assert len(records()) == 1
    assert [file.suffix for file in checkpoint_of(s).parent.iterdir()] == [".lock"]
    monkeypatch.setenv("FEDNB_RUNS", str(tmp_path / "elsewhere" / "runs"))
    assert lasting(resumed) == lasting(runner.run(s, METHODS))


def test_where_several_seeds_are_asked_for_the_first_makes_all(trained, monkeypatch):
    monkeypatch.setenv("FEDNB_SEEDS", "3,4")
    by_seed = {seed: quick("FedAvg", num_rounds=1, seed=seed) for seed in (3, 4)}
    first = runner.run(by_seed[3], METHODS)
    assert sorted(records()) == sorted(map(path_of, by_seed.values())) and trained == [1, 1]
    second = runner.run(by_seed[4], METHODS)
    assert [first["settings"]["seed"], second["settings"]["seed"]] == [3, 4]
    assert trained == [1, 1]


def test_two_processes_that_ask_for_the_same_run_train_it_once(tmp_path):
    s, log, barrier = quick(num_rounds=6), tmp_path / "log", FORKSERVER.Barrier(2)
    both = [start(s, log, barrier=barrier) for _ in range(2)]
    for process in both:
        process.join(300)
    assert [p.exitcode for p in both] == [0, 0]
    assert log.read_text().split() == list("123456")
    assert len(records()) == 1


def test_a_record_says_what_was_run_and_what_came_out_and_is_not_made_again(trained):
    s = quick(num_rounds=2)
    record, again = (runner.run(s, METHODS, workers=1) for _ in range(2))
    assert trained == [1, 2] and record == again == json.loads(records()[0].read_text())
    assert [path.name for path in records()] == [f"SCAFFOLD-digits-seed0-{record['key']}.json"]
    assert record["status"] == "finished"
    assert record["settings"] == s.flat()
    assert record["model_parameters"] == 22_026
    assert "num_rounds 2 instead of 10" in record["deviations"]
    assert record["dataset"]["fingerprint"] == FINGERPRINT
    assert record["dataset"]["training_images"] == 1438
    assert record["partition"].keys() == {"hash", "sizes"}
    assert sum(record["partition"]["sizes"]) == 1438
    assert record["messages_per_round"]["down"]["control"] == [2 * 22_026, 8 * 22_026]
    accuracy, final = record["metrics"]["accuracy"], record["final"]
    assert record["metrics"]["round"] == [1, 2]
    means = final["best"], final["mean_of_last_5"]
    assert final["accuracy"] == accuracy[-1]
    assert means == pytest.approx((max(accuracy), sum(accuracy) / 2))
    assert record["versions"].keys() == {"torch", "numpy", "python", "torchvision"}
    assert record["device"] and record["workers"] == record["threads_per_client"] == 1


def test_a_diverged_run_says_so_and_is_not_made_again(trained):
    record, again = (runner.run(quick("FedAvg", lr=1e6), METHODS) for _ in range(2))
    assert (record, record["status"], record["final"]) == (again, "diverged", {})
    assert len(trained) == len(record["metrics"]["round"]) < 4
    assert record["metrics"]["loss/cross_entropy"][-1] is None
    assert "NaN" not in records()[0].read_text()


def test_a_failed_run_is_recorded_with_the_reason_and_run_again(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(FedAvg, "aggregate", lambda *_: {}["the cable"])
        with pytest.raises(KeyError, match="the cable"):
            runner.run(quick(), METHODS)
    record = ledger.read(records()[0])
    assert (record["status"], record["error"]) == ("failed", "KeyError: 'the cable'")
    assert runner.run(quick(), METHODS)["status"] == "finished"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metrics": {"accuracy": ["x"]}}, r"metrics.accuracy.0.*number"),
        ({"settings": {"lr": 1.0}}, "its key is not that of its settings"),
        ("{}", "key: Field required"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_no_record_is_an_error_that_names_it(change, said):
    s = quick("FedAvg", num_rounds=1)
    path = path_of(s)
    record = {"key": ledger.key(s.flat()), "settings": s.flat(), "results_version": 1}
    record |= {"deviations": [], "dataset": {}, "status": "diverged", "metrics": {}}
    content = change if isinstance(change, str) else json.dumps(record | change)
    ledger.write_atomically(path, content)
    for action in (lambda: runner.run(s, METHODS), ledger.load):
        with pytest.raises(RunError, match=f"^{path.name} in .*{said}.*(restore|delete)"):
            action()
    assert path.read_text() == content


def test_a_result_that_was_changed_by_hand_is_named():
    s = quick("FedAvg", num_rounds=1)
    record = runner.run(s, METHODS)
    text = path_of(s).read_text()
    for name in ("accuracy", "loss/cross_entropy"):
        value = record["metrics"][name][-1]
        path_of(s).write_text(text.replace(f"{value}", f"{value + 0.001}"))
        with pytest.raises(RunError, match=rf"{path_of(s).name} .*not those that were recorded"):
            ledger.read(path_of(s))
    path_of(s).write_text(text)
    assert ledger.read(path_of(s)) == record


def without(take):
    """A checkpoint of which something is taken away."""

    def damage(path):
        checkpoint = torch.load(path, weights_only=True)
        take(checkpoint)
        torch.save(checkpoint, path)

    return damage


def widen(state):
    """As if a network had changed between two calls."""
    name = next(iter(state))
    state[name] = torch.cat([state[name], state[name]])


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "one bit": flip_a_bit,
    "of another network": without(lambda checkpoint: widen(checkpoint["server"]["model"])),
}


def test_a_disk_that_fails_for_a_moment_leaves_the_checkpoint(interrupted, trained, monkeypatch):
    plain = Path.read_bytes

    def read_bytes(path):
        if path.suffix == ".pt":
            raise OSError(errno.EIO, "Input/output error")
        return plain(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", read_bytes)
        with pytest.raises(RunError, match=r"Input/output.* try again, or delete it"):
            runner.run(interrupted, METHODS)
    assert not records()
    before = len(trained)
    assert runner.run(interrupted, METHODS)["metrics"]["round"] == [1, 2, 3, 4]
    assert 1 not in trained[before:]  # it went on


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_senseless_checkpoint_starts_the_run_anew(interrupted, trained, capsys, damage):
    damage(checkpoint_of(interrupted))
    record = runner.run(interrupted, METHODS)
    assert trained[-4:] == record["metrics"]["round"] == [1, 2, 3, 4]
    said = capsys.readouterr().err
    assert checkpoint_of(interrupted).name in said and "cannot be used" in said
    assert checkpoint_of(interrupted).with_suffix(".unusable").exists()


def test_a_checkpoint_of_other_code_is_not_gone_on_with(interrupted, trained, capsys):
    """A method that was changed in between does not end what another one began."""

    @dataclass
    class SCAFFOLD(METHODS["SCAFFOLD"]):
        def loss(self, model, x, y, context):
            return super().loss(model, x, y, context)

    runner.run(interrupted, METHODS | {"SCAFFOLD": SCAFFOLD})
    assert trained[-4:] == [1, 2, 3, 4]
    assert "the code of the method was another" in capsys.readouterr().err


def as_recorded():
    @dataclass
    class Mine(FedAvg):
        def loss(self, model, x, y, context):
            return super().loss(model, x, y, context)

    return Mine


def as_it_is_now():
    @dataclass
    class Mine(FedAvg):
        def loss(self, model, x, y, context):
            return {name: 2 * value for name, value in super().loss(model, x, y, context).items()}

    return Mine


def test_a_record_of_other_code_is_never_shown_without_a_word(trained, capsys):
    """A record of before there were digests is shown silently: of it nobody knows."""
    plain, Mine = as_recorded(), as_it_is_now()
    small = {"dataset": "digits", "num_rounds": 1, "num_clients": 3}
    s = settings.resolve({"Mine": Mine}, method="Mine", **small)
    first = runner.run(s, {"Mine": plain})
    assert runner.run(s, {"Mine": plain}) == first and not capsys.readouterr().err
    assert runner.run(s, {"Mine": Mine}) == first and trained == [1]
    said = capsys.readouterr().err
    assert first["method"] in said and "other code" in said and "again=True" in said
    changed = runner.run(s, {"Mine": Mine}, again=True)
    assert trained == [1, 1] and changed["source"] != first["source"]
    assert runner.run(s, {"Mine": Mine}) == changed and not capsys.readouterr().err
    old = {name: value for name, value in changed.items() if name != "source"}
    ledger.write(path_of(s), old)
    assert runner.run(s, {"Mine": plain}) == old and not capsys.readouterr().err


@pytest.mark.parametrize(("again", "rounds"), [(False, [3, 4]), (True, [1, 2, 3, 4])])
def test_an_interrupted_run_goes_on_unless_it_shall_be_made_again(
    interrupted, trained, again, rounds
):
    runner.run(interrupted, METHODS, again=again)
    assert trained == rounds


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("FEDNB_RUNS", "file/runs", "cannot be recorded in .* make it writable, or set FEDNB_RUNS"),
        ("FEDNB_PROGRESS", "loud", "FEDNB_PROGRESS is 'loud'; it must be one of bar, log, off"),
    ],
)
def test_what_cannot_be_is_an_error_before_training(
    trained, monkeypatch, tmp_path, name, value, told
):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, value)
    with pytest.raises((RunError, settings.SettingsError), match=told):
        runner.run(quick(), METHODS)
    assert not trained


def test_a_full_disk_is_told_and_the_run_goes_on_where_it_was(trained, monkeypatch):
    monkeypatch.setattr(runner, "CHECKPOINT_SECONDS", 0)
    for module, name in ((os, "fsync"), (ledger, "write")):  # at the first checkpoint; at the end
        with monkeypatch.context() as patch:
            patch.setattr(module, name, no_space)
            with pytest.raises(RunError, match=r"be recorded .*No space left.*: free some space"):
                runner.run(quick(), METHODS)
    runner.run(quick(), METHODS)
    assert trained == [1, 1, 2, 3, 4, 4]


def no_space(*_):
    raise OSError(28, "No space left on device")


def test_writing_replaces_the_whole_file_or_nothing(monkeypatch, tmp_path):
    path = tmp_path / "folder" / "record.json"
    ledger.write_atomically(path, "old")
    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, no_space)
            with pytest.raises(OSError, match="No space"):
                ledger.write_atomically(path, "new and longer")
        assert path.read_text() == "old" and os.listdir(path.parent) == ["record.json"]
    ledger.write_atomically(path, "new")
    assert path.read_text() == "new" and path.stat().st_mode & 0o777 == 0o644


def test_an_older_version_and_other_data_are_a_records_state_and_not_its_name(
    trained, monkeypatch, make_dataset
):
    s = quick("FedAvg", num_rounds=1)
    first = runner.run(s, METHODS)
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "RESULTS_VERSION", first["results_version"] + 1)
        assert list(map(ledger.state, ledger.load().values())) == ["stale"]
        again = runner.run(s, METHODS)
        assert trained == [1, 1]
        assert again["results_version"] == first["results_version"] + 1
        assert len(records()) == 1
    noise = make_dataset(images=400, tests=100, num_classes=10, name="digits")
    monkeypatch.setattr(build, "load_dataset", lambda name, *_: noise)
    with pytest.raises(RunError, match=r"other data than are here: .* or run with again=True"):
        runner.run(s, METHODS)
    assert ledger.read(path_of(s)) == again
    assert runner.run(s, METHODS, again=True)["dataset"]["fingerprint"] == noise.fingerprint


def test_held_out_images_belong_to_no_client_and_the_rest_is_divided_as_ever():
    s = quick(validation=0.25, num_clients=4)
    fed = build.federation(s, METHODS)
    own, (held_out,) = np.sort(np.concatenate(fed.parts)), fed.held_out
    assert len(held_out) == round(0.25 * len(fed.images.labels))
    assert np.array_equal(
        np.sort(np.concatenate([own, held_out])), np.arange(len(fed.images.labels))
    )
    other = build.divide(quick(validation=0.25, seed=1), fed.dataset)
    assert not np.array_equal(held_out, other.held_out[0])
    rng = np.random.RandomState(s.seed)
    expected = partition.dirichlet(fed.images.labels.numpy()[own], 4, s.beta, rng)
    assert all(np.array_equal(own[e], p) for e, p in zip(expected, fed.parts, strict=True))
    assert not len(build.federation(quick(), METHODS).held_out)


def test_clients_with_test_images_of_their_own_hold_out_their_own_training_images():
    fed, plain = (
        build.federation(quick("SOLO", partition="n-way-k-shot", validation=v), METHODS)
        for v in (0.2, None)
    )
    assert [len(part) for part in fed.held_out] == [round(0.2 * len(part)) for part in plain.parts]
    for part, held_out, both in zip(fed.parts, fed.held_out, plain.parts, strict=True):
        assert np.array_equal(np.sort(np.concatenate([part, held_out])), np.sort(both))
    together = np.concatenate([*fed.parts, *fed.held_out])
    assert len(np.unique(together)) == len(together)  # nobody trains on what another one holds out
    assert all(np.array_equal(a, b) for a, b in zip(fed.test_parts, plain.test_parts, strict=True))


@pytest.mark.parametrize(("method", "split"), [("FedAvg", "dirichlet"), ("SOLO", "n-way-k-shot")])
def test_validation_is_the_accuracy_on_held_out_images_without_augmentation(method, split):
    """Of each client's model, its own or the server's; on the common ones, or on each one's own."""
    s = quick(method, partition=split, validation=0.25, num_rounds=2, participation=1.0)
    fed = build.federation(s, METHODS)
    entry = [fed.run_round() for _ in range(2)][-1]

    def accuracy(client, images):
        network = fed.build_model().eval()
        network.load_state_dict(client.memory.get("model", fed.server["model"]))
        mean, std = (torch.tensor(v).view(1, -1, 1, 1) for v in (fed.dataset.mean, fed.dataset.std))
        x = (fed.dataset.images[images].float() / 255 - mean) / std
        return (
            100 * (network(x).logits.argmax(1) == fed.images.labels[images]).double().mean().item()
        )

    held_out = fed.held_out if split == "n-way-k-shot" else [*fed.held_out] * len(fed.clients)
    by_hand = [
        accuracy(client, images) for client, images in zip(fed.clients, held_out, strict=True)
    ]
    assert entry["validation"] == pytest.approx(np.mean(by_hand), abs=0.1)
    assert entry["validation"] != entry["accuracy"]
    if split == "dirichlet":
        assert runner.run(s, METHODS)["final"]["validation"] == pytest.approx(entry["validation"])
        assert "validation" not in build.federation(quick(method), METHODS).run_round()


def test_a_record_tells_the_test_images_of_each_client_and_the_size_of_its_network(
    monkeypatch, make_dataset
):
    noise = make_dataset(images=400, tests=100, shape=(1, 28, 28), num_classes=10)
    monkeypatch.setattr(build, "load_dataset", lambda name, *_: noise)
    few = {"method": "SOLO", "dataset": "mnist", "partition": "n-way-k-shot", "num_clients": 3}
    few |= {"num_rounds": 1, "shots": 10, "test_shots": 2}
    mixed, same = (
        runner.run(settings.resolve(METHODS, heterogeneous=flag, **few), METHODS)
        for flag in (True, None)
    )
    sizes = mixed["partition"]["test_sizes"]
    assert len(sizes) == 3 and all(size in (4, 6, 8, 10) for size in sizes)
    assert same["partition"] == mixed["partition"]
    assert mixed["model_parameters"] == [19_738, 21_840, 23_942]
    assert same["model_parameters"] == 21_840
    assert len(mixed["final"]["clients/local classes"]) == 3
    assert "accuracy_std/local classes" in mixed["final"]
    assert mixed["deviations"][-1] == "heterogeneous True instead of False"


def test_every_committed_record_has_settings_that_are_known_and_clean_code():
    """And the key of these: settings that were added later leave older keys alone."""
    resolved = {}  # by recipe: what differs only in its seed is resolved once
    for path, record in ledger.load(ROOT / "results" / "runs").items():
        assert path.stem.endswith(record["key"])
        assert record["commit"] and not record["commit"].endswith("+changes"), path.name
        given = {name: value for name, value in record["settings"].items() if value is not None}
        seed = given.pop("seed")
        recipe = json.dumps(given, sort_keys=True)
        if recipe not in resolved:
            resolved[recipe] = settings.resolve(ALL_METHODS, **given).flat()
        assert ledger.key(resolved[recipe] | {"seed": seed}) == record["key"]
