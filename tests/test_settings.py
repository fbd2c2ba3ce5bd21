"""Settings: the papers' values, and an error that says what is allowed for everything else."""

import dataclasses
import re
from functools import partial

import pytest
from fednb.papers.foundations import METHODS

from fednb.experiments import build, ledger, settings
from fednb.experiments.settings import SettingsError, deviations


def resolve(method="FedAvg", dataset="digits", **given):
    return settings.resolve(METHODS, method=method, dataset=dataset, **given)


def refused(message, **given):
    with pytest.raises(SettingsError, match=message):
        resolve(**given)


def test_cifar10_has_the_papers_values():
    assert resolve(dataset="cifar10").flat() == {
        "method": "FedAvg",
        "dataset": "cifar10",
        "partition": "dirichlet",
        "beta": 0.5,
        "balance": None,
        "min_size": None,
        "num_clients": 10,
        "participation": 1.0,
        "num_rounds": 100,
        "local_epochs": 10,
        "batch_size": 64,
        "lr": 0.01,
        "momentum": 0.9,
        "weight_decay": 1e-5,
        "model": "simple-cnn",
        "projection_head": True,
        "projection_dim": None,
        "validation": None,
        "ways": None,
        "stdev": None,
        "shots": None,
        "test_shots": None,
        "draw": None,
        "heterogeneous": None,
        "pretrained": None,
        "precision": None,
        "per_domain": None,
        "balanced_draw": None,
        "test_per_domain": None,
        "keep_last": None,
        "local_steps": None,
        "evaluate_every": None,
        "seed": 0,
    }


@pytest.mark.parametrize(
    ("method", "dataset", "name", "value"),
    [
        ("FedAvg", "cifar100", "model", "resnet-50"),
        ("FedAvg", "cifar100", "num_rounds", 100),
        ("FedAvg", "tiny_imagenet", "num_rounds", 20),
        ("FedAvg", "tiny_imagenet", "model", "resnet-50"),
        ("FedProx", "cifar10", "mu", 0.01),
        ("FedProx", "cifar100", "mu", 0.001),
        ("FedProx", "tiny_imagenet", "mu", 0.001),
        ("SOLO", "cifar10", "num_rounds", 1),
        ("SOLO", "cifar100", "local_epochs", 300),
    ],
)
def test_the_papers_values_per_method_and_data_set(method, dataset, name, value):
    assert resolve(method, dataset).flat()[name] == value


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
    "partition": ["by luck", 1, True],
    "beta": [0, -1.0, "0.5", True, float("nan")],
    "balance": [0, 1, "True"],
    "min_size": [0, -1, 2.0, True],
    "num_clients": [0, -1, 2.0, "10", True],
    "participation": [0, 1.01, "1", True, float("nan")],
    "num_rounds": [0, 1.5, True],
    "local_epochs": [0, 2.0, "5", True],
    "batch_size": [0, 0.5, True],
    "lr": [0, -0.1, "0.1", True, float("nan")],
    "momentum": [-0.1, 1, 1.5, "0.9", False, float("nan")],
    "weight_decay": [-1e-5, "0", False, float("nan")],
    "model": ["resnet-51", 18],
    "projection_head": [0, 1, "True", 1.0],
    "projection_dim": [0, -1, 64.0, True],
    "validation": [0.0, 1.0, 1, -0.1, "0.1", True, float("nan")],
    "ways": [0, 3.0, "3", True],
    "stdev": [-1, 2.0, True],
    "shots": [0, 100.0, True],
    "test_shots": [0, 15.0, True],
    "draw": ["Uniform", "gauss", 1],
    "heterogeneous": [0, "True"],
    "pretrained": [1, "False"],
    "precision": ["bfloat16", 16, True],
    "per_domain": [0, 300.0, "300", True],
    "balanced_draw": [0, 1, "True"],
    "test_per_domain": [0, 2000.0, "all", True],
    "keep_last": [0, 1, "False"],
    "local_steps": [0, 10.0, "10", True],
    "evaluate_every": [0, 5.0, "5", True],
    "seed": [-1, 0.0, "0", True],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in BAD.items() for v in values])
def test_a_bad_value_is_refused_with_what_is_allowed(name, value):
    splits = {"n-way-k-shot": {"partition": "n-way-k-shot"}, "domain": {"dataset": "digits5_mini"}}
    split = next((given for owner, given in splits.items() if owner in settings.FIELDS[name].metadata["of"]), {})
    refused(f"^{name} is {re.escape(repr(value))}; it must be (a|one of|True|'uniform')", **split | {name: value})


@pytest.mark.parametrize("name", ["beta", "lr", "weight_decay"])
def test_infinity_is_not_a_number_to_train_with(name):
    refused(f"{name} is inf", **{name: float("inf")})


def test_every_setting_has_a_rule_that_is_tested():
    names = {f.name for f in dataclasses.fields(settings.Settings)} - {"method", "dataset", "hyperparameters"}
    assert set(BAD) == set(settings.FIELDS) == names


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("FedProx", {"mu": -1}),
        ("FedProx", {"mu": "1"}),
        ("FedProx", {"mu": float("nan")}),
        ("FedAvgM", {"server_momentum": 1}),
        ("FedAvgM", {"server_momentum": -0.1}),
    ],
)
def test_a_bad_hyperparameter_is_refused_by_its_method(method, given):
    refused(f"^{method}: ", method=method, **given)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("SCAFFOLD", {"niid_bench": "False"}),
        ("SCAFFOLD", {"momentum_factor": 0}),
        ("FedAvgM", {"classical": "no"}),
        ("FedProx", {"mu": True}),
    ],
)
def test_a_switch_takes_only_true_and_false_and_a_number_neither(method, given):
    refused(next(iter(given)), method=method, **given)


@pytest.mark.parametrize(("method", "name", "owner"), [("FedAvg", "mu", "FedProx"), ("FedProx", "niid_bench", "SCAFFOLD")])
def test_a_hyperparameter_that_the_method_does_not_have_is_refused(method, name, owner):
    refused(rf"{method} has no parameter '{name}', which belongs to {owner}; leave it at None", method=method, **{name: 1})
    assert name not in resolve(method, **{name: None}).flat()


def test_beta_with_an_iid_partition_is_refused():
    for given in ({"beta": 0.5}, {"balance": False}, {"min_size": 5}):
        refused("with 'iid' leave it at None", partition="iid", **given)
    assert resolve(partition="iid").beta is None


@pytest.mark.parametrize(
    ("split", "name", "owner"),
    [
        *[("n-way-k-shot", name, "dirichlet' or 'quantity") for name in ("beta", "min_size")],
        ("iid", "beta", "dirichlet' or 'quantity"),
        *[(split, "balance", "dirichlet") for split in ("n-way-k-shot", "quantity")],
        *[
            (split, name, "n-way-k-shot")
            for split in ("dirichlet", "iid", "quantity")
            for name in ("ways", "stdev", "shots", "test_shots")
        ],
        ("dirichlet", "draw", "n-way-k-shot"),
    ],
)
def test_a_setting_of_another_split_is_refused(split, name, owner):
    value = {"beta": 0.5, "balance": True, "draw": "normal"}.get(name, 2)
    refused(rf"^{name} belongs to partition '{owner}'; with '{split}' leave it at None\.$", partition=split, **{name: value})
    assert resolve(partition=split, **{name: None}).flat()[name] is None
    for one in owner.split("' or '"):
        assert resolve(partition=one, **{name: value}).flat()[name] == value


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


def test_the_width_of_a_projection_head_that_is_not_there_is_refused():
    refused("with projection_head False leave it at None", projection_head=False, projection_dim=32)
    assert resolve(projection_head=False).projection_dim is None


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
    assert deviations(domains(keep_last=False)) == ["keep_last False instead of True"]
    assert deviations(resolve(dataset="cifar10", keep_last=True)) == ["keep_last True instead of None"]


def test_how_often_a_run_is_evaluated_is_no_departure():
    assert deviations(resolve(dataset="cifar10", evaluate_every=5)) == []
    assert resolve(evaluate_every=5).evaluate_every == 5


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
    assert any(
        line.split()[0] == "num_rounds" and line.endswith(settings.FIELDS["num_rounds"].metadata["says"]) for line in lines
    )
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


def test_the_table_has_every_setting():
    lines = settings.table().splitlines()
    assert len(lines) == len(settings.FIELDS) + 2
    assert all(sum(f"`{name}`" in line for line in lines) == 1 for name in settings.FIELDS)


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


def test_a_network_without_projection_head_is_refused_with_one():
    with pytest.raises(SettingsError, match="'mnist-cnn' has no projection head; set projection_head to False"):
        settings.resolve(METHODS, method="FedAvg", dataset="mnist", model="mnist-cnn")
    resolved = settings.resolve(METHODS, method="FedAvg", dataset="mnist", model="mnist-cnn", projection_head=False)
    assert resolved.model == "mnist-cnn"
    assert not settings.resolve(METHODS, method="FedAvg", dataset="femnist").projection_head
