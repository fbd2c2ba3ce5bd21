"""Settings: the papers' values, and an error that says what is allowed for everything else."""

import dataclasses
import re
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from fednb.papers.foundations import METHODS

from fednb import ROOT, build, data, models, papers, settings
from fednb import records as ledger
from fednb.errors import SettingsError
from fednb.federation import FedAvg
from fednb.settings import deviations


def resolve(method="FedAvg", dataset="digits", **given):
    return settings.resolve(METHODS, method=method, dataset=dataset, **given)


def refused(message, **given):
    """The error with which settings are refused."""
    with pytest.raises(SettingsError, match=message) as caught:
        resolve(**given)
    return caught.value


def test_what_is_given_wins_and_none_means_the_papers_value():
    expected = {"method": "FedAvg", "dataset": "cifar10", "partition": "dirichlet", "beta": 0.5}
    expected |= {"num_clients": 10, "participation": 1.0, "num_rounds": 3, "local_epochs": 10}
    expected |= {"batch_size": 64, "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-5, "seed": 0}
    expected |= {"model": "simple-cnn", "projection_head": True}
    values = resolve(dataset="cifar10", num_rounds=3, lr=None, mu=None).flat()
    assert {name: value for name, value in values.items() if value is not None} == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        # an unknown name, with the closest one
        ({"num_round": 3}, "Unknown parameter .*did you mean 'num_rounds'"),
        ({"method": "FedAgv"}, "did you mean 'FedAvg'. .*FedAvg, SOLO"),
        # a hyperparameter that the method does not have, or a bad one
        ({"mu": 1}, "FedAvg has no parameter 'mu', .* belongs to FedProx; leave"),
        ({"method": "FedProx", "mu": -1}, "^FedProx: mu is -1; it must be"),
        ({"method": "FedAvgM", "server_momentum": 1}, "^FedAvgM: .* is 1; it must"),
        # what cannot work together
        ({"dataset": "cifar100", "partition": "n-way-k-shot"}, "no settings .*cifar10"),
        ({"lr": 10**400}, r"lr is 1000.*\(401 characters\); it must be"),
        ({"dataset": "digits5", "partition": "iid"}, "no settings with partition 'iid'"),
        ({"partition": "domain"}, "no settings with partition 'domain' .*digits5_mini"),
        ({"model": "mnist-cnn"}, "not take images of 8x8 pixels, .*take digits-cnn or resnet-10"),
        ({"projection_head": False, "projection_dim": 32}, "False leave it out"),
        ({"dataset": "mnist", "model": "mnist-cnn"}, "'mnist-cnn' has no proj"),
        ({"dataset": "digits5_mini", "num_clients": 4}, "4, but .* has 5 domains"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_when_it_is_given(given, message):
    refused(message, **given)


BAD = {bool: [0, "True"], int: [2.0, "3", True], float: ["0.5", True, float("nan")], str: [1]}
ENDS = {"seed": [2**32], "momentum": [1, 1.5], "beta": [0, 1e-300], "stdev": [-1]}
ENDS |= {"participation": [0, 1.01], "validation": [0.0, 1], "weight_decay": [-0.1]}
ZERO = "lr num_clients num_rounds batch_size min_size ways evaluate_every local_steps"
ENDS |= {name: [0] for name in ZERO.split()}
HINTS = get_type_hints(settings.Settings)


@pytest.mark.parametrize("name", settings.FIELDS)
def test_a_bad_value_is_refused(name):
    partitions = settings.FIELDS[name].partitions
    given = {}
    if "n-way-k-shot" in partitions:
        given = {"partition": "n-way-k-shot"}
    if "domain" in partitions:
        given = {"dataset": "digits5_mini"}
    kind = next((kind for kind in (bool, float, int) if kind in one_of(HINTS[name])), str)
    for value in [*BAD[kind], *ENDS.get(name, [])]:
        message = f"(^{name} is|Unknown model) {re.escape(repr(value))}"
        refused(message, **given, **{name: value})


def one_of(hint):
    """The types that a value may have."""
    return get_args(hint) or (hint,)


OF_A_PARTITION = [name for name, info in settings.FIELDS.items() if info.partitions]


@pytest.mark.parametrize("name", OF_A_PARTITION)
def test_a_setting_of_another_split_is_refused(name):
    value = {"beta": 0.5, "balance": False, "balanced_draw": True, "draw": "normal"}.get(name, 2)
    owners = settings.FIELDS[name].partitions
    for partition in {"iid", "n-way-k-shot"}.difference(owners):
        message = f"^{name} belongs to partition '.*; with '{partition}' leave it out"
        refused(message, partition=partition, **{name: value})
    if "n-way-k-shot" in owners:
        assert resolve(partition="n-way-k-shot", **{name: value}).flat()[name] == value


def test_of_another_split_a_method_keeps_its_hyperparameters_but_not_its_length():
    """SOLO is as long as the others there, and has not MOON's 300 epochs in one round."""
    values = resolve("SOLO", "mnist", partition="n-way-k-shot")
    assert values.num_rounds == 100
    assert values.local_epochs == 1
    assert values.lr == 0.01
    assert values.momentum == 0.5
    assert resolve("FedProx", "cifar10", partition="n-way-k-shot").hyperparameters["mu"] == 0.01
    assert resolve(dataset="cifar100", partition="iid").model == "resnet-50"


def test_whole_numbers_become_floats_where_a_float_is_meant():
    given = {"beta": 1, "participation": 1, "lr": 1, "momentum": 0, "weight_decay": 0, "mu": 1}
    values = resolve("FedProx", **given).flat()
    assert [type(values[name]) for name in [*given, "num_clients"]] == [float] * 6 + [int]


FEW = {"dataset": "cifar10", "partition": "n-way-k-shot"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"dataset": "cifar10", "num_rounds": 20, "seed": 3}, [("num_rounds", 20, 100)]),
        ({"dataset": "cifar10", "num_rounds": 100}, []),
        ({"method": "FedProx", "dataset": "cifar10", "mu": 1}, [("mu", 1.0, 0.01)]),
        ({"partition": "iid"}, [("partition", "iid", "dirichlet")]),
        (FEW | {"ways": 5, "seed": 1234}, [("ways", 5, 3)]),
        (FEW | {"pretrained": False}, [("pretrained", False, True)]),
        # what has no limit, in words
        ({"dataset": "digits5", "local_steps": 10}, [("local_steps", 10, "whole epochs")]),
        ({"dataset": "cifar10", "evaluate_every": 5}, []),  # how often one looks changes nothing
    ],
    ids=str,
)
def test_departures_are_the_settings_that_are_not_the_papers(given, expected):
    assert deviations(resolve(**given)) == expected


def test_a_departure_from_what_is_given_counts_in_place_of_one_from_the_paper():
    chosen = resolve(dataset="cifar10", num_rounds=20)
    assert deviations(chosen, {"num_rounds": 20, "lr": 0.1}) == [("lr", 0.01, 0.1)]


def test_what_says_the_same_as_none_makes_the_same_recipe():
    plain = resolve(dataset="mnist")
    off = {"keep_last": False, "heterogeneous": False, "pretrained": False, "evaluate_every": 1}
    for name, value in off.items():
        assert resolve(dataset="mnist", **{name: value}) == plain


def test_the_printed_settings_say_what_each_is():
    """Of hyperparameters the words are the comments in the class, above the line or behind it."""
    for method in ("MOON", "SCAFFOLD", "FedProx"):
        known = papers.methods("01")
        lines = str(settings.resolve(known, method=method, dataset="digits")).splitlines()
        # what is None does not count, and is not printed
        fields = [one.name for one in dataclasses.fields(known[method]) if one.default is not None]
        told = {line.split()[0]: line.split()[2:] for line in lines}
        assert fields and all(told[name] for name in fields), lines
    assert "comments" not in settings.resolve(known, method=method, dataset="digits").flat()


def test_the_page_of_settings_has_them_all():
    page = (ROOT / "notebooks" / "SETTINGS.md").read_text(encoding="utf-8")
    page, _, own = page.partition("## Hyperparameters")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    assert [row[:2] for row in rows] == [
        [f"`{name}`", info.description] for name, info in settings.FIELDS.items()
    ]
    told = set()
    for line in own.splitlines():
        if "| `" in line:
            _, name, _, default = line.strip("| ").split(" | ")
            told.add((name.strip("`"), default))
    fields = [field for method in papers.methods().values() for field in dataclasses.fields(method)]
    assert {(field.name, str(field.default)) for field in fields} == told


def test_a_network_of_ones_own_is_known(monkeypatch):
    refused("Unknown model 'linear': known are digits-cnn", model="linear")
    monkeypatch.setitem(models.MODELS, "linear", models.MODELS["digits-cnn"])
    assert resolve(model="linear").model == "linear"
    assert resolve(dataset="mnist", model="mnist-cnn", projection_head=False).projection_dim is None


def test_a_default_that_a_student_changes_in_the_class_reaches_the_run() -> None:
    """The entry of METHODS is an heir of the class in which the line stands."""
    method, dataset = "MOON+FedAvgM", "digits"
    line, instead = "mu: NonNegativeFloat = 1.0", "mu: NonNegativeFloat = 0.7"
    source = papers.exported(papers.path("01"))
    assert line in source
    methods = []
    for text in (source, source.replace(line, instead)):
        namespace: dict[str, Any] = {
            "__name__": "fednb.papers.moon"
        }  # which the decorator looks up
        exec(compile(text, "a student's", "exec"), namespace)
        methods.append(namespace["METHODS"])
    before, after = (
        settings.resolve(known, method=method, dataset=dataset).flat() for known in methods
    )
    name = line.partition(":")[0]
    assert str(before[name]) != str(after[name]) == str(float(instead.rpartition(" ")[2]))
    assert ledger.key(before) != ledger.key(after)


@pytest.mark.parametrize("dataset", [*data.EMBEDDED, "any"])
def test_no_default_of_a_class_is_overruled_on_data_that_come_with_the_notebooks(
    dataset: str,
) -> None:
    """Where a student changes a default, the notebook's own run must have it."""
    for method, values in settings._PAPERS["methods"].items():
        assert values.get(dataset, {}).keys() <= settings.FIELDS.keys(), method


@pytest.mark.parametrize("name", ["a/b", "", "None", "class", "x" * 61])
def test_a_methods_name_is_a_name(name: str) -> None:
    with pytest.raises(SettingsError, match="A method cannot be called"):
        settings.resolve({name: FedAvg}, method=name, dataset="digits")


# ---- a federation in short, and what is refused before its first round


def test_a_federation_can_be_said_in_short() -> None:
    given = {"dataset": "digits", "num_rounds": 3, "seed": 2}
    full = build.federation(resolve("FedProx", **given, mu=0.5), METHODS, device="cpu")
    for short in (("FedProx", METHODS), (METHODS["FedProx"],)):
        fed = build.federation(*short, **given, mu=0.5, device="cpu")
        assert (fed.method, fed.training, fed.seed) == (full.method, full.training, full.seed)
        assert all(map(np.array_equal, fed.parts, full.parts))
    assert type(build.federation("FedAvg", dataset="digits").method) is FedAvg
    with pytest.raises(SettingsError, match="Unknown method 'MOON'"):
        build.federation("MOON", dataset="digits")
    with pytest.raises(SettingsError, match="num_rounds already"):
        build.federation(resolve(), METHODS, num_rounds=3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"partition": "n-way-k-shot", "shots": 2, "validation": 0.9}, "validation is 0.9"),
        ({"dataset": "digits5_mini", "per_domain": 1, "validation": 0.1}, "validation is 0.1"),
        ({"partition": "n-way-k-shot", "ways": 11}, "ways is 11.* 10 classes"),
        ({"validation": 0.99999}, "10 clients share 0 images .* hold out less for validation"),
        ({"model": "resnet-10-16", "batch_size": 1}, "in a batch of 1"),
        ({"heterogeneous": True}, "heterogeneous"),
    ],
)
def test_what_would_end_in_the_first_round_is_refused_before_it(
    given: dict[str, Any], said: str
) -> None:
    asked = resolve(**given)
    with pytest.raises(SettingsError, match=said) as caught:
        build.federation(asked, METHODS)
    assert not re.search(r"\b(n|k) (is|of|with)\b", str(caught.value))  # the papers' symbols


def test_ipython_shows_the_sentence_alone() -> None:
    error = refused("lr", lr=-1)
    assert error._render_traceback_() == [f"SettingsError: {error}"]
