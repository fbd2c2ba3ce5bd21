"""Fixtures that several test files share: an isolated ledger, tiny data sets, tiny networks, federations made of them."""

import dataclasses
import importlib.util
import itertools

import numpy as np
import pytest
import torch
from small import BatchNormNet, Point, Quadratic, noise

import fednb_lab  # noqa: F401  # before nbformat, whose import it makes cheap
from fednb import papers, settings
from fednb.data import Augmentation
from fednb.federation import FedAvg, Federation, Training

# whose tests start kernels, commands, or processes that are killed, or go through all methods with all options
SLOW = {
    "test_kernels",
    "test_cluster",
    "test_command_line",
    "test_docs",
    "test_every_method",
    "test_memory",
    "test_methods",
    "test_notebooks",
    "test_own_work",
    "test_pool",
    "test_runs",
    "test_stacked",
    "test_sweep",
    "test_wheel",
}


# where there is no Triton (it is made for Linux), there are no kernels to test
collect_ignore = [] if importlib.util.find_spec("triton") else ["test_kernels.py"]


def pytest_collection_modifyitems(items):
    """Mark the tests that ``make quick`` leaves out; they come first, so that no worker ends with a long file."""
    for item in items:
        if item.path.stem in SLOW:
            item.add_marker(pytest.mark.slow)
    # the file that waits longest begins
    items.sort(key=lambda item: (item.path.stem not in SLOW, item.path.stem != "test_pool"))


@pytest.fixture(autouse=True)
def isolated(tmp_path, tmp_path_factory, monkeypatch):
    """Keep tests away from the committed ledger, from the user's decoded images, from a GPU, from what the user has set but
    a folder of notebooks, and from what other tests have drawn."""
    torch.manual_seed(0)
    monkeypatch.setenv("FEDNB_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("FEDNB_RUNS", str(tmp_path / "results" / "runs"))
    monkeypatch.setenv("FEDNB_PROGRESS", "off")
    monkeypatch.setenv("FEDNB_DEVICE", "cpu")
    monkeypatch.delenv("FEDNB_WORKERS", raising=False)


@pytest.fixture
def double():
    """Let tensors and networks be float64: what is left of the order of sums is then far below what a mistake makes."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def make_dataset():
    """Make a small data set of random pixels."""
    return noise


@pytest.fixture(scope="session")
def names_of_settings():
    """Everything that a run of a notebook may be told by name."""
    fields = {f.name for cls in papers.methods().values() for f in dataclasses.fields(cls)}
    return {"method", "dataset", *settings.FIELDS, *fields}


@pytest.fixture
def batch_norm_net():
    return BatchNormNet


@pytest.fixture
def federate(make_dataset):
    """Make a federation; by default of four unequal clients and a network with BatchNorm."""

    def make(
        method=None, *, sizes=(20, 9, 17, 14), build_model=BatchNormNet, dataset=None, **given
    ):
        training = {"num_rounds": 2, "local_epochs": 2, "batch_size": 4, "lr": 0.05}
        training |= {"momentum": 0.9, "weight_decay": 1e-3}
        names = given.keys() & Training.__dataclass_fields__.keys()
        training |= {name: given.pop(name) for name in names}
        ends = list(itertools.accumulate(sizes))
        parts = [np.arange(end - size, end) for size, end in zip(sizes, ends, strict=True)]
        dataset = dataset or make_dataset(images=sum(sizes))
        options = {"workers": 1} | given
        return Federation(
            method or FedAvg(), dataset, parts, build_model, Training(**training), **options
        )

    return make


@pytest.fixture
def ragged(federate, make_dataset):
    """Make a federation whose clients hold these classes and no others, on augmented images."""

    def make(method, classes_of, sizes=(20, 9, 17, 14), **given):
        pairs = zip(classes_of, sizes, strict=True)
        labels = np.concatenate([np.resize(classes, size) for classes, size in pairs])
        augmented = {"labels": torch.from_numpy(labels), "augmentation": Augmentation(1, flip=True)}
        data = make_dataset(images=sum(sizes), **augmented)
        return federate(method, sizes=sizes, dataset=data, **given)

    return make


@pytest.fixture
def rounds():
    """Run rounds and return the server's model."""

    def run(federation, number=1):
        for _ in range(number):
            federation.run_round()
        return federation.server["model"]

    return run


@pytest.fixture
def identical():
    """Are two nested structures of tensors and numbers equal bit for bit?"""

    def compare(a, b):
        if isinstance(a, torch.Tensor):
            return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(compare(a[k], b[k]) for k in a)
        if isinstance(a, list | tuple):
            return len(a) == len(b) and all(map(compare, a, b))
        return a == b

    return compare


@pytest.fixture
def quadratics(federate, make_dataset):
    """Make a federation of heterogeneous quadratics, one image per client, and return it with a and b, [clients, 2] each."""

    def make(method, num_clients=10, steps=20, **given):
        dataset = make_dataset(num_clients, shape=(4, 1, 1), num_classes=2, mean=0.0)
        bases = (Quadratic,) if type(method) is FedAvg else (type(method), Quadratic)
        fed = federate(
            type("OnQuadratics", bases, {})(**vars(method)),
            dataset=dataset,
            sizes=[1] * num_clients,
            build_model=Point,
            local_epochs=steps,
            **{"weight_decay": 0.0} | given,
        )
        values = dataset.images.flatten(1).double().numpy() / 255 * 4
        return fed, values[:, :2], values[:, 2:]

    return make
