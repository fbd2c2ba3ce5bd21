"""What every method keeps to: its results depend on its settings alone, and these are its paper's."""

import dataclasses

import pytest

from fednb import models, papers
from fednb.experiments import settings

METHODS = papers.methods()
SMALL = {"min_images": 1, "public_size": 12, "public_batch": 5}  # where a method has these


@pytest.mark.parametrize("name", METHODS)
def test_neither_workers_nor_a_break_change_a_result(ragged, batch_norm_net, identical, with_and_without_a_break, name):
    """Of a network with BatchNorm and dropout, on augmented images, with sampled clients that lack classes."""
    fields = {field.name for field in dataclasses.fields(METHODS[name])}
    method = METHODS[name](**{n: v for n, v in SMALL.items() if n in fields})
    workers = iter((1, 3, 3))  # the whole run has one

    def net():
        made = batch_norm_net()
        made.encoder.append(models.Dropout(0.3))
        return made

    def make():
        options = {"build_model": net, "participation": 0.5, "workers": next(workers)}
        return ragged(method, ([0, 1], [1, 2], [0, 1, 2], [2]), **options)

    whole, broken = with_and_without_a_break(make, 4, 2)
    assert identical(whole, broken)


@pytest.mark.parametrize(
    ("method", "dataset", "expected"),
    [
        ("MOON", "cifar10", {"mu": 5.0, "temperature": 0.5}),
        ("MOON+FedAvgM", "tiny_imagenet", {"mu": 1.0}),
        ("FedProc", "cifar100", {"lr": 0.1, "num_rounds": 100, "alpha": 1.0, "alpha_schedule": "linear"}),
        ("FedSSC", "cifar10", {"mu_moon": 5.0, "mu_glob": 1.0, "mu_glob_end": 1e-4, "warmup": 5, "min_images": 10}),
        ("FedProto", "mnist", {"lam": 1.0, "stdev": 2, "lr": 0.01, "batch_size": 8, "momentum": 0.5, "test_shots": 40}),
        ("FedProto", "cifar10", {"lam": 0.1, "num_rounds": 110, "model": "resnet-18-7x7", "pretrained": True}),
        ("FedPLCC", "digits5", {"lam1": 100.0, "lam2": 1000.0, "phi": 0.5, "alpha": 0.5, "num_rounds": 50}),
        ("FedPLCC", "office10", {"lam1": 20.0, "lam2": 200.0, "num_rounds": 100, "model": "resnet-10"}),
        ("FedPLVM", "digits5", {"lam": 100.0, "alpha": 0.25, "temperature": 0.07}),
        ("FCCL+", "office10", {"public_lr": 0.001, "similarity_weight": 3.0, "similarity_temperature": 0.02}),
    ],
)
def test_defaults_are_the_papers(method, dataset, expected):
    split = {"partition": "n-way-k-shot"} if method == "FedProto" else {}
    own = settings.resolve(METHODS, method=method, dataset=dataset, **split)
    assert own.flat().items() >= expected.items()
    assert settings.deviations(own) == []
