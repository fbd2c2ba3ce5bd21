"""Settings: the papers' values, and an error that says what is allowed for everything else."""

import re
from functools import partial

import pytest
from fednb.papers.foundations import METHODS

from fednb import ROOT, models, rules
from fednb.experiments import build, ledger, settings
from fednb.experiments.settings import SettingsError, deviations


def resolve(method="FedAvg", dataset="digits", **given):
    return settings.resolve(METHODS, method=method, dataset=dataset, **given)


def refused(message, **given):
    with pytest.raises(SettingsError, match=message):
        resolve(**given)


def test_cifar10_has_the_papers_values():
    expected = {"method": "FedAvg", "dataset": "cifar10", "partition": "dirichlet", "beta": 0.5, "num_clients": 10}
    expected |= {"participation": 1.0, "num_rounds": 100, "local_epochs": 10, "batch_size": 64, "lr": 0.01, "momentum": 0.9}
    expected |= {"weight_decay": 1e-5, "model": "simple-cnn", "projection_head": True, "seed": 0}
    assert {name: value for name, value in resolve(dataset="cifar10").flat().items() if value is not None} == expected


def test_what_is_given_wins_and_none_means_the_papers_value():
    s = resolve(dataset="cifar10", num_rounds=3, lr=None, mu=None)
    assert (s.num_rounds, s.lr) == (3, 0.01)
    assert s.training.num_rounds == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_round": 3}, "Unknown parameter 'num_round': .*did you mean 'num_rounds'"),
        ({"method": "FedAgv"}, "Unknown method 'FedAgv': known are FedAvg, SOLO.*did you mean 'FedAvg'"),
        ({"dataset": "cifar"}, "Unknown dataset 'cifar': .*did you mean 'cifar10'"),
        ({"xyzzy": 3}, r"Unknown parameter 'xyzzy': known are partition, .*\.$"),
        ({"method": "SCAFFOLD", "niidbench": True}, "did you mean 'niid_bench'"),
        ({"hyperparameters": {}}, "Unknown parameter 'hyperparameters'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_closest_one(given, message):
    refused(message, **given)


BAD = {
    bool: [0, 1, "True", 1.0],
    int: [-1, 2.0, "3", True],
    float: [-1.0, "0.5", True, float("nan"), float("inf")],
    str: ["by luck", 1, True],
}
ENDS = {
    "seed": [2**32],
    "momentum": [1, 1.5],
    "participation": [0, 1.01],
    "validation": [0.0, 1],
    "beta": [0, 1e-300],
    "lr": [0],
}
ENDS |= {
    name: [0] for name in ("num_clients", "num_rounds", "batch_size", "min_size", "ways", "evaluate_every", "local_steps")
}


@pytest.mark.parametrize("name", settings.FIELDS)
def test_a_bad_value_is_refused_with_what_is_allowed(name):
    splits = {"n-way-k-shot": {"partition": "n-way-k-shot"}, "domain": {"dataset": "digits5_mini"}}
    split = next((given for owner, given in splits.items() if owner in settings.FIELDS[name]["of"]), {})
    for value in [*BAD[rules.of(settings.Settings)[name].kind], *ENDS.get(name, [])]:
        told = re.escape(repr(value))
        refused(rf"^{name} is {told}(\.0)?; it must be (a|one of|True)", **split | {name: value})


@pytest.mark.parametrize(
    ("method", "name", "values"),
    [
        ("FedProx", "mu", [-1, "1", float("nan"), True]),
        ("FedAvgM", "server_momentum", [1, -0.1]),
        ("FedAvgM", "classical", ["no"]),
        ("SCAFFOLD", "niid_bench", ["False", 0]),
    ],
)
def test_a_bad_hyperparameter_is_refused_with_its_method(method, name, values):
    for value in values:
        refused(f"^{method}: {name} is .*; it must be", method=method, **{name: value})


@pytest.mark.parametrize(("method", "name", "owner"), [("FedAvg", "mu", "FedProx"), ("FedProx", "niid_bench", "SCAFFOLD")])
def test_a_hyperparameter_that_the_method_does_not_have_is_refused(method, name, owner):
    refused(rf"{method} has no parameter '{name}', which belongs to {owner}; leave it at None", method=method, **{name: 1})
    assert name not in resolve(method, **{name: None}).flat()


@pytest.mark.parametrize("name", [name for name, told in settings.FIELDS.items() if told["of"]])
def test_a_setting_of_another_split_is_refused(name):
    value = {"beta": 0.5, "balance": True, "balanced_draw": True, "draw": "normal"}.get(name, 2)
    owners = settings.FIELDS[name]["of"]
    for split in ("dirichlet", "iid", "quantity", "n-way-k-shot", "domain"):
        given = {"partition": split, "dataset": "digits5_mini" if split == "domain" else "digits"}
        if split in owners:
            assert resolve(**given, **{name: value}).flat()[name] == value
        else:
            refused(f"^{name} belongs to partition '.*; with '{split}' leave it at None", **given, **{name: value})
            assert resolve(**given, **{name: None}).flat()[name] is None


def test_a_data_set_that_no_paper_has_with_that_split_is_refused():
    with pytest.raises(
        SettingsError,
        match=r"^There are no settings for cifar100 with partition 'n-way-k-shot'; there are for digits, mnist, .*\.$",
    ):
        resolve(dataset="cifar100", partition="n-way-k-shot")
    assert resolve(dataset="cifar100", partition="iid").model == "resnet-50"


def test_of_another_split_a_method_keeps_its_hyperparameters_but_not_its_length():
    """SOLO is as long as the others there, and has not MOON's 300 epochs in one round."""
    values = resolve("SOLO", "mnist", partition="n-way-k-shot")
    assert (values.num_rounds, values.local_epochs, values.lr, values.momentum) == (100, 1, 0.01, 0.5)
    assert resolve("FedProx", "cifar10", partition="n-way-k-shot").hyperparameters["mu"] == 0.01


def test_whole_numbers_become_floats_where_a_float_is_meant():
    given = {"beta": 1, "participation": 1, "lr": 1, "momentum": 0, "weight_decay": 0, "mu": 1}
    values = resolve("FedProx", **given).flat()
    assert all(type(values[name]) is float for name in given)
    assert resolve("FedProx", **{n: float(v) for n, v in given.items()}) == resolve("FedProx", **given)
    assert type(values["num_clients"]) is int


def test_departures_are_the_settings_that_are_not_the_papers():
    assert deviations(resolve(dataset="cifar10", num_rounds=20, seed=3)) == ["num_rounds 20 instead of 100"]
    assert deviations(resolve(dataset="cifar10", num_rounds=100)) == []
    assert deviations(resolve("FedProx", "cifar10", mu=1)) == ["mu 1.0 instead of 0.01"]
    assert deviations(resolve(partition="iid")) == ["partition iid instead of dirichlet"]
    few = partial(resolve, dataset="cifar10", partition="n-way-k-shot")
    assert deviations(few(ways=5, seed=1234)) == ["ways 5 instead of 3"]
    assert deviations(few(pretrained=False, heterogeneous=True)) == [
        "heterogeneous True instead of None",
        "pretrained False instead of True",
    ]


def test_departures_say_in_words_what_has_no_limit():
    domains = partial(resolve, dataset="digits5")
    assert deviations(domains(test_per_domain=2000)) == ["test_per_domain 2000 instead of all"]
    assert deviations(domains(local_steps=10)) == ["local_steps 10 instead of whole epochs"]
    assert deviations(domains(precision="bf16")) == ["precision bf16 instead of float32"]
    assert deviations(resolve(dataset="cifar10", evaluate_every=5)) == []  # how often one looks changes nothing


@pytest.mark.parametrize(
    "off",
    [{"keep_last": False}, {"evaluate_every": 1}, {"heterogeneous": False}, {"pretrained": False}, {"precision": "float32"}],
)
def test_what_says_the_same_as_none_makes_the_same_recipe(off):
    assert resolve(dataset="mnist", **off) == resolve(dataset="mnist")
    assert ledger.key(resolve(dataset="mnist", **off).flat()) == ledger.key(resolve(dataset="mnist").flat())


def test_what_the_paper_has_is_switched_off_by_false():
    kept, dropped = (resolve(dataset="digits5", keep_last=value) for value in (None, False))
    assert (kept.keep_last, dropped.keep_last) == (True, False)
    assert (kept.training.keep_last, dropped.training.keep_last) == (True, False)
    assert resolve(dataset="cifar10", partition="n-way-k-shot", pretrained=False).pretrained is False


def test_settings_print_one_line_each():
    lines = str(resolve("FedProx")).splitlines()
    assert [line.split() for line in lines if line.split()[0] == "mu"] == [["mu", "0.01"]]
    assert any(line.split()[0] == "num_rounds" and line.endswith(settings.FIELDS["num_rounds"]["says"]) for line in lines)
    assert len(lines) == 16


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seed": 2**32}, "seed is 4294967296; it must be a whole number from 0 to 4294967295"),
        ({"num_clients": 150}, "150 clients with at least 10 images each need 1,500, and digits has 1,438 to train on"),
        ({"validation": 0.99999}, "hold out less for validation"),
        ({"min_size": 100_000}, "10 clients with at least 100000 images each need 1,000,000"),
        ({"beta": 1e-300}, "beta is 1e-300; it must be a number from 0.001"),
        ({"lr": 10**400}, r"lr is 1000.*\(401 characters\); it must be"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_given(given, message):
    refused(message, **given)


def test_participation_may_be_said_as_a_number_of_clients():
    assert resolve(num_clients=20, sampled=5) == resolve(num_clients=20, participation=0.25)
    refused("sampled is 11; it must be a whole number from 1 to num_clients", sampled=11)
    refused("give one of the two", sampled=5, participation=0.5)


def test_the_page_of_settings_has_the_table_of_the_code():
    table = settings.table()
    assert all(f"| `{name}` |" in table for name in settings.FIELDS)
    assert table in (ROOT / "notebooks" / "SETTINGS.md").read_text(encoding="utf-8")  # `python -m fednb settings` writes it


def test_a_network_of_ones_own_is_known(monkeypatch):
    refused("model is 'linear'; it must be one of digits-cnn", model="linear")
    monkeypatch.setitem(models.MODELS, "linear", models.MODELS["digits-cnn"])
    assert resolve(model="linear").model == "linear"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"beta": 0.001, "num_clients": 100}, "larger beta"),
        ({"model": "simple-cnn"}, "does not take images of 8x8"),
    ],
)
def test_what_only_the_data_can_tell_is_a_settings_error_too(given, message):
    with pytest.raises(SettingsError, match=message):
        build.federation(resolve(**given), METHODS)


def test_a_projection_head_that_is_not_there_has_no_settings():
    refused("with projection_head False leave it at None", projection_head=False, projection_dim=32)
    refused("'mnist-cnn' has no projection head; set projection_head to False", dataset="mnist", model="mnist-cnn")
    assert resolve(dataset="mnist", model="mnist-cnn", projection_head=False).projection_dim is None
    assert not resolve(dataset="femnist").projection_head
