"""FedDyn and FedNova against loops in NumPy, and what their derivations promise."""

import dataclasses

import numpy as np
import pytest
import torch
from fednb.papers.feddyn_fednova import (
    FedDyn,
    FedNova,
)
from small import Point, Quadratic

from fednb.federation import FedAvg

ALPHA = 2.0
SIZES = (1, 2, 4, 9)


@pytest.fixture
def unequal(federate, make_dataset):
    """Quadratics of clients with 1, 2, 4 and 9 images, and as many steps an epoch; with a, b and p."""

    def make(method, sizes=SIZES, **given):
        plain = make_dataset(images=sum(sizes), shape=(4, 1, 1), num_classes=2, mean=0.0, std=0.25)
        owners = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        dataset = dataclasses.replace(plain, images=plain.images[owners])
        bases = (Quadratic,) if type(method) is FedAvg else (type(method), Quadratic)
        options = {"weight_decay": 0.0, "batch_size": 1, "local_epochs": 3, "lr": 0.02} | given
        fed = federate(
            type("OnQuadratics", bases, {})(**vars(method)),
            dataset=dataset,
            sizes=sizes,
            build_model=Point,
            **options,
        )
        values = plain.images[: len(sizes)].flatten(1).double().numpy() / 255 * 4
        return fed, values[:, :2], values[:, 2:], np.array(sizes) / sum(sizes)

    return make


def way_of_client(w, a, b, steps, s, pull):
    """Where a client ends that takes so many steps of SGD with momentum from w."""
    v, velocity = w.copy(), np.zeros(2)
    for _ in range(steps):
        velocity = s.momentum * velocity + a * (v - b) + pull(v)
        v = v - s.lr * velocity
    return v


def feddyn_as_printed(fed, a, b, num_rounds):
    """Algorithm 1 of the paper, in its own quantities: the server's w, and every client's gradient g_i."""
    w, g, h, n = np.array([1.0, -1.0]), np.zeros((len(a), 2)), np.zeros(2), len(a)
    for t in range(num_rounds):
        chosen = [client.id for client in fed.sample(t)]
        ends = []
        for i in chosen:
            end = way_of_client(
                w,
                a[i],
                b[i],
                fed.training.local_epochs,
                fed.training,
                lambda v, i=i, w=w: ALPHA * (v - w) - g[i],
            )
            ends.append(end)
        for i, end in zip(chosen, ends, strict=True):
            g[i] = g[i] - ALPHA * (end - w)
        h = h - ALPHA * sum(end - w for end in ends) / n
        w = np.mean(ends, 0) - h / ALPHA
    return w, g


@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_feddyn_is_the_printed_algorithm_where_clients_are_equally_large(
    quadratics, rounds, momentum, participation
):
    fed, a, b = quadratics(
        FedDyn(alpha=ALPHA), num_clients=4, steps=5, momentum=momentum, participation=participation
    )
    rounds(fed, 4)
    w, g = feddyn_as_printed(fed, a, b, 4)
    zeros = torch.zeros(2)
    stretch = torch.stack([client.memory.get("stretch", zeros) for client in fed.clients])
    np.testing.assert_allclose(fed.server["model"]["w"], w, rtol=2e-4, atol=1e-4)
    np.testing.assert_allclose(-ALPHA * stretch, g, rtol=2e-4, atol=1e-4)


def test_feddyn_rests_at_the_minimum_of_the_weighted_sum(unequal, rounds):
    """Whatever steps the clients take, with momentum, and whoever takes part."""
    distances = []
    for method, number in ((FedDyn(alpha=ALPHA), 100), (FedAvg(), 20)):  # FedAvg rests soon
        given = {"momentum": 0.9, "participation": 0.5, "sizes": (1, 2, 5)}
        fed, a, b, p = unequal(method, evaluate_every=1000, **given)
        minimum = (p @ (a * b)) / (p @ a)
        end = rounds(fed, number)["w"].numpy()
        distances.append(np.abs(end - minimum).max())
    of_feddyn, of_fedavg = distances
    assert of_feddyn < 1e-3
    assert of_fedavg > 0.02


def test_a_client_that_was_never_heard_counts_as_the_mean_of_the_others():
    """Two clients of three, with 1 and 3 images, move by 1: two thirds of all images, so the server adds 2/3."""
    method = FedDyn()
    server = {
        "model": {"w": torch.tensor([10.0])},
        "stretch": {"w": torch.tensor([0.0])},
        "images": torch.zeros(3),
    }
    uploads = []
    for client, images in ((0, 1), (2, 3)):
        count = torch.tensor(images)
        uploads.append(
            {"model": {"w": torch.tensor([11.0])}, "num_samples": count, "client": client}
        )
    server = method.aggregate(server, uploads, 0)
    assert server["model"]["w"].item() == pytest.approx(11 + 2 / 3)
    assert server["images"].tolist() == [1, 0, 3]


@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("count_momentum", [True, False])
def test_fednova_by_hand(unequal, rounds, count_momentum, participation):
    method = FedNova(count_momentum=count_momentum)
    fed, a, b, _ = unequal(method, momentum=0.9, participation=participation)
    rounds(fed, 3)
    w = np.array([1.0, -1.0])
    for t in range(3):
        chosen = [client.id for client in fed.sample(t)]
        p = np.array([SIZES[i] for i in chosen]) / sum(SIZES[i] for i in chosen)
        moves, counts = [], []
        for i in chosen:
            steps = 3 * SIZES[i]
            end = way_of_client(w, a[i], b[i], steps, fed.training, lambda v: 0.0)
            moves.append(end - w)
            lengths = (1 - 0.9 ** np.arange(1, steps + 1)) / 0.1  # of a constant gradient's steps
            counts.append(lengths.sum() if count_momentum else steps)
        counts = np.array(counts)
        w = w + (p @ counts) * (p / counts) @ np.array(moves)
    np.testing.assert_allclose(fed.server["model"]["w"], w, rtol=2e-4, atol=1e-4)


def test_fednova_is_fedavg_where_all_take_as_many_steps(federate, rounds):
    feds = federate(FedAvg(), local_steps=3), federate(FedNova(), local_steps=3)
    plain, normalised = (rounds(fed, 2) for fed in feds)
    for name, value in plain.items():
        torch.testing.assert_close(value, normalised[name])


def test_fednova_leaves_batch_norms_statistics_to_the_mean(federate):
    """Its pulls sum to more than 1 here: a running variance moved by them could become negative."""
    feds = federate(FedAvg(), sizes=(40, 4, 4)), federate(FedNova(), sizes=(40, 4, 4))
    for fed in feds:
        fed.run_round()
    plain, normalised = (fed.server["model"] for fed in feds)
    for name in (
        "encoder.1.running_mean",
        "encoder.1.running_var",
        "encoder.1.num_batches_tracked",
    ):
        assert torch.equal(plain[name], normalised[name])
    assert not torch.allclose(plain["encoder.0.weight"], normalised["encoder.0.weight"])
