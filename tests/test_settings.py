"""Settings: the papers' values, and an error that says what is allowed for everything else."""

import re
from functools import partial

import pytest
from fednb.papers.foundations import METHODS

from fednb import ROOT, hyperparameters, models
from fednb.errors import SettingsError
from fednb.experiments import build, settings
from fednb.experiments.settings import deviations


def resolve(method="FedAvg", dataset="digits", **given):
    return settings.resolve(METHODS, method=method, dataset=dataset, **given)


def refused(message, **given):
    with pytest.raises(SettingsError, match=message):
        resolve(**given)


def test_what_is_given_wins_and_none_means_the_papers_value():
    expected = {
        "method": "FedAvg",
        "dataset": "cifar10",
        "partition": "dirichlet",
        "beta": 0.5,
        "num_clients": 10,
    }
    expected |= {
        "participation": 1.0,
        "num_rounds": 3,
        "local_epochs": 10,
        "batch_size": 64,
        "lr": 0.01,
        "momentum": 0.9,
    }
    expected |= {"weight_decay": 1e-5, "model": "simple-cnn", "projection_head": True, "seed": 0}
    own = resolve(dataset="cifar10", num_rounds=3, lr=None, mu=None).flat()
    assert {name: value for name, value in own.items() if value is not None} == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        # an unknown name, with the closest one
        ({"num_round": 3}, "Unknown parameter 'num_round': .*did you mean 'num_rounds'"),
        ({"method": "FedAgv"}, "Unknown method 'FedAgv': known are FedAvg, SOLO.*did you mean 'FedAvg'"),
        ({"xyzzy": 3}, r"Unknown parameter 'xyzzy': known are partition, .*\.$"),
        ({"method": "SCAFFOLD", "niidbench": True}, "did you mean 'niid_bench'"),
        ({"hyperparameters": {}}, "Unknown parameter 'hyperparameters'"),
        # a hyperparameter that the method does not have, or a bad one
        ({"mu": 1}, "FedAvg has no parameter 'mu', which belongs to FedProx; leave it at None"),
        ({"method": "FedProx", "niid_bench": True}, "FedProx has no parameter 'niid_bench', which belongs to SCAFFOLD"),
        ({"method": "FedProx", "mu": -1}, "^FedProx: mu is -1; it must be"),
        ({"method": "FedProx", "mu": float("nan")}, "^FedProx: mu is nan; it must be"),
        ({"method": "FedProx", "mu": True}, "^FedProx: mu is True; it must be"),
        ({"method": "FedAvgM", "server_momentum": 1}, "^FedAvgM: server_momentum is 1; it must be"),
        ({"method": "SCAFFOLD", "niid_bench": 0}, "^SCAFFOLD: niid_bench is 0; it must be"),
        # what cannot work together
        ({"dataset": "cifar100", "partition": "n-way-k-shot"}, "no settings with partition .* for .cifar100.: known are"),
        ({"num_clients": 150}, "150 clients with at least 10 images need 1,500, and digits has 1,438 to train on"),
        ({"validation": 0.99999}, "hold out less for validation"),
        ({"min_size": 100_000}, "10 clients with at least 100000 images need 1,000,000"),
        ({"lr": 10**400}, r"lr is 1000.*\(401 characters\); it must be"),
        ({"num_clients": 10, "sampled": 11}, "sampled is 11; it must be a whole number from 1 to num_clients, 10"),
        ({"sampled": 5, "participation": 0.5}, "give one of the two"),
        ({"projection_head": False, "projection_dim": 32}, "with projection_head False leave it at None"),
        ({"dataset": "mnist", "model": "mnist-cnn"}, "'mnist-cnn' has no projection head; set projection_head to False"),
        ({"dataset": "digits5_mini", "num_clients": 4}, "num_clients is 4, but digits5_mini has 5 domains"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_when_it_is_given(given, message):
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
}
ZERO = "lr num_clients num_rounds batch_size min_size ways evaluate_every local_steps"
ENDS |= {name: [0] for name in ZERO.split()}


@pytest.mark.parametrize("name", settings.FIELDS)
def test_a_bad_value_is_refused_with_what_is_allowed(name):
    splits = {"n-way-k-shot": {"partition": "n-way-k-shot"}, "domain": {"dataset": "digits5_mini"}}
    split = next(
        (given for owner, given in splits.items() if owner in settings.FIELDS[name]["of"]), {}
    )
    for value in [
        *BAD[hyperparameters.field_rules(settings.Settings)[name].kind],
        *ENDS.get(name, []),
    ]:
        told = re.escape(repr(value))
        refused(rf"^{name} is {told}(\.0)?; it must be (a|one of|True)", **split | {name: value})


@pytest.mark.parametrize("name", [name for name, told in settings.FIELDS.items() if told["of"]])
def test_a_setting_of_another_split_is_refused(name):
    value = {"beta": 0.5, "balance": False, "balanced_draw": True, "draw": "normal"}.get(name, 2)
    owners = settings.FIELDS[name]["of"]
    for split in ("dirichlet", "iid", "quantity", "n-way-k-shot", "domain"):
        given = {"partition": split, "dataset": "digits5_mini" if split == "domain" else "digits"}
        if split in owners:
            assert resolve(**given, **{name: value}).flat()[name] == value
        else:
            refused(
                f"^{name} belongs to partition '.*; with '{split}' leave it at None",
                **given,
                **{name: value},
            )
            assert resolve(**given, **{name: None}).flat()[name] is None


def test_of_another_split_a_method_keeps_its_hyperparameters_but_not_its_length():
    """SOLO is as long as the others there, and has not MOON's 300 epochs in one round."""
    values = resolve("SOLO", "mnist", partition="n-way-k-shot")
    assert (values.num_rounds, values.local_epochs, values.lr, values.momentum) == (
        100,
        1,
        0.01,
        0.5,
    )
    assert resolve("FedProx", "cifar10", partition="n-way-k-shot").hyperparameters["mu"] == 0.01
    assert resolve(dataset="cifar100", partition="iid").model == "resnet-50"


def test_whole_numbers_become_floats_where_a_float_is_meant():
    given = {"beta": 1, "participation": 1, "lr": 1, "momentum": 0, "weight_decay": 0, "mu": 1}
    values = resolve("FedProx", **given).flat()
    assert [type(values[name]) for name in [*given, "num_clients"]] == [float] * 6 + [int]
    assert resolve(num_clients=20, sampled=5) == resolve(num_clients=20, participation=0.25)


def test_departures_are_the_settings_that_are_not_the_papers():
    few, domains = (
        partial(resolve, dataset="cifar10", partition="n-way-k-shot"),
        partial(resolve, dataset="digits5"),
    )
    for own, expected in [
        (resolve(dataset="cifar10", num_rounds=20, seed=3), ["num_rounds 20 instead of 100"]),
        (resolve(dataset="cifar10", num_rounds=100), []),
        (resolve("FedProx", "cifar10", mu=1), ["mu 1.0 instead of 0.01"]),
        (resolve(partition="iid"), ["partition iid instead of dirichlet"]),
        (few(ways=5, seed=1234), ["ways 5 instead of 3"]),
        (few(pretrained=False), ["pretrained False instead of True"]),
        (few(heterogeneous=True), ["heterogeneous True instead of False"]),
        (domains(test_per_domain=2000), ["test_per_domain 2000 instead of all"]),  # what has no limit, in words
        (domains(local_steps=10), ["local_steps 10 instead of whole epochs"]),
        (domains(precision="bf16"), ["precision bf16 instead of float32"]),
        (resolve(dataset="cifar10", evaluate_every=5), []),  # how often one looks changes nothing
    ]:  # fmt: skip
        assert deviations(own) == expected


def test_what_says_the_same_as_none_makes_the_same_recipe():
    plain = resolve(dataset="mnist")
    off = {
        "keep_last": False,
        "evaluate_every": 1,
        "heterogeneous": False,
        "pretrained": False,
        "precision": "float32",
    }
    for name, value in off.items():
        assert resolve(dataset="mnist", **{name: value}) == plain
    kept, dropped = (
        resolve(dataset="digits5", keep_last=value) for value in (None, False)
    )  # where the paper has it
    assert (kept.keep_last, dropped.keep_last) == (True, False)
    assert (
        resolve(dataset="cifar10", partition="n-way-k-shot", pretrained=False).pretrained is False
    )


def test_settings_are_printed_one_in_a_line_and_their_page_is_up_to_date():
    lines = str(resolve("FedProx")).splitlines()
    assert len(lines) == 16 and ["mu", "0.01"] in [line.split() for line in lines]
    assert any(
        line.split()[0] == "num_rounds" and line.endswith(settings.FIELDS["num_rounds"]["says"])
        for line in lines
    )
    table = settings.table()
    assert all(f"| `{name}` |" in table for name in settings.FIELDS)
    assert table in (ROOT / "notebooks" / "SETTINGS.md").read_text(
        encoding="utf-8"
    )  # `python -m fednb settings` writes it


def test_a_network_of_ones_own_is_known(monkeypatch):
    refused("model is 'linear'; it must be one of digits-cnn", model="linear")
    monkeypatch.setitem(models.MODELS, "linear", models.MODELS["digits-cnn"])
    assert resolve(model="linear").model == "linear"
    assert resolve(dataset="mnist", model="mnist-cnn", projection_head=False).projection_dim is None


def test_what_only_the_data_can_tell_is_a_settings_error_too():
    for given, message in [
        ({"beta": 0.001, "num_clients": 100}, "larger beta"),
        ({"model": "simple-cnn"}, "does not take images of 8x8"),
    ]:
        with pytest.raises(SettingsError, match=message):
            build.federation(resolve(**given), METHODS)
