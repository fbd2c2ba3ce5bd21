"""What every method keeps to: results that depend on settings alone, what is left without its terms, defaults."""

import dataclasses

import pytest
import torch

from fednb import models, papers, settings

METHODS = papers.methods() | papers.methods("feddyn_fednova")
SMALL = {"min_images": 1, "public_size": 12, "public_batch": 5}  # where a method has these
CLASSES_OF = ([0, 1], [1, 2], [0, 1, 2], [2])


def made(name, **given):
    """A method, with settings that suit small federations."""
    fields = {field.name for field in dataclasses.fields(METHODS[name])}
    return METHODS[name](**{n: v for n, v in SMALL.items() if n in fields} | given)


def models_of(federation):
    return federation.server["model"], [client.memory.get("model") for client in federation.clients]


def terms(federation):
    """The loss terms of the last round that are not 0."""
    return [
        value
        for name, value in federation.history[-1].items()
        if name.startswith("loss/") and value
    ]


@pytest.fixture
def with_dropout(batch_norm_net):
    def make():
        net = batch_norm_net()
        net.encoder.append(models.Dropout(0.3))
        return net

    return make


@pytest.mark.parametrize("name", METHODS)
def test_neither_workers_nor_a_break_change_a_result(
    ragged, with_dropout, identical, tmp_path, name
):
    """Of a network with BatchNorm and dropout, on augmented images, with sampled clients that lack classes."""
    given = {"build_model": with_dropout, "participation": 0.5, "local_epochs": 1}
    whole, first, second = (
        ragged(made(name), CLASSES_OF, **given, workers=workers) for workers in (1, 3, 3)
    )
    for fed in (whole, whole, whole, whole, first, first):
        fed.run_round()
    torch.save(first.checkpoint(), tmp_path / "checkpoint")
    second.restore(torch.load(tmp_path / "checkpoint", weights_only=True))
    second.run_round(), second.run_round()
    ends = [
        fed.checkpoint() | {"history": [entry["accuracy"] for entry in fed.history]}
        for fed in (whole, second)
    ]
    assert identical(*ends)


# A method; what takes its terms away; which method is left, bit for bit; and what brings a term back.
NO_CONTRAST = {"mu_glob": 0.0, "mu_glob_end": 0.0}
NO_TERMS = NO_CONTRAST | {"mu_moon": 0.0}
LIMITS = [
    ("FedProx", {"mu": 0.0}, "FedAvg", {"mu": 0.1}),
    ("MOON", {"mu": 0.0}, "FedAvg", {"mu": 1.0}),
    ("MOON", {"mu": 0.0, "second_term": "l2"}, "FedAvg", {"mu": 1.0}),
    ("FedProc", {"alpha": 0.0}, "FedAvg", {"alpha": 0.1}),
    ("FedSSC", NO_TERMS, "FedAvg", {"mu_glob": 1.0}),
    ("FedSSC", NO_TERMS | {"variant": "local-pairs"}, "FedAvg", {"mu_glob": 1.0}),
    ("FedSSC", NO_CONTRAST | {"mu_moon": 1.0}, "MOON", {"mu_glob": 1.0}),
    ("FedProto", {"lam": 0.0}, "Local", {"lam": 0.1}),
    ("FedPLCC", {"lam1": 0.0, "lam2": 0.0}, "FedAvg", {"lam1": 1.0}),
    ("FedPLCC", {"lam1": 0.0, "lam2": 0.0}, "FedAvg", {"lam2": 1.0}),
    ("FedProto+FedAvg", {"lam": 0.0}, "FedAvg", {"lam": 1.0}),
    ("FCCL+", {"public": "nothing", "teacher": False}, "FedAvg", {"teacher": True}),
]


@pytest.mark.parametrize(("name", "without", "left", "again"), LIMITS)
def test_without_its_terms_a_method_is_another_bit_for_bit(
    ragged, with_dropout, identical, rounds, name, without, left, again
):
    feds = [
        ragged(method, CLASSES_OF, participation=0.5, local_epochs=1, build_model=with_dropout)
        for method in (made(left), made(name, **without), made(name, **without | again))
    ]
    for fed in feds:
        rounds(fed, 3)
    plain, same, other = map(models_of, feds)
    assert identical(same, plain) and not identical(other, plain)
    assert terms(feds[1]) == terms(feds[0])


PAPERS = [
    ("MOON", "cifar10", {"mu": 5.0, "temperature": 0.5}),
    ("FedProc", "cifar100", {"lr": 0.1, "num_rounds": 100, "alpha": 1.0}),
    ("FedSSC", "cifar10", {"mu_moon": 5.0, "mu_glob": 1.0, "warmup": 5, "min_images": 10}),
    ("FedProto", "mnist", {"lam": 1.0, "stdev": 2, "batch_size": 8, "test_shots": 40}),
    ("FedPLCC", "digits5", {"lam1": 100.0, "lam2": 1000.0, "phi": 0.5, "num_rounds": 50}),
    ("FedPLVM", "digits5", {"lam": 100.0, "alpha": 0.25, "temperature": 0.07}),
]


@pytest.mark.parametrize(("method", "dataset", "expected"), PAPERS)
def test_defaults_are_the_papers(method, dataset, expected):
    split = {"partition": "n-way-k-shot"} if method == "FedProto" else {}
    own = settings.resolve(METHODS, method=method, dataset=dataset, **split)
    assert own.flat().items() >= expected.items()
    assert settings.deviations(own) == []
