"""FedProto and what it is compared with: against literal loops, each other, and numbers counted by hand."""

import itertools
import math
from functools import partial
from typing import get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fednb.papers.fedproto import (
    METHODS,
    Distance,
    FedPer,
    FedProto,
    FedProtoTargets,
    FedRep,
    FeSEM,
    PulledToZero,
    nearest_prototype,
    prototype_distance,
)
from literal import agree, in_floats, known, prototypes_of, vectors

from fednb import models, results, settings
from fednb.evaluation import evaluate
from fednb.federation import FedAvg

DISTANCES = get_args(Distance)
CLASSES_OF = ([0, 1], [1, 2], [0, 1, 2], [2])


@pytest.fixture
def mixed(federate, make_dataset):
    """Make a federation of six small clients with FedProto's three MNIST networks, dropout included."""

    def make(method, heterogeneous=True, **given):
        build = partial(models.build, num_classes=10, channels=1, side=28, projection_head=False)
        options = {"build_model": build, "architectures": models.heterogeneous("mnist-cnn", 6)}
        if not heterogeneous:
            options = {"build_model": partial(build, "mnist-cnn")}
        data = make_dataset(images=96, shape=(1, 28, 28), num_classes=10)
        options |= {
            "sizes": (16,) * 6,
            "dataset": data,
            "batch_size": 8,
            "local_epochs": 1,
            "lr": 0.01,
        }
        return federate(method, **options | given)

    return make


# --- the distance


def literal_distance(z, y, prototypes, distance):
    """The terms of L_R, number by number, in float64."""
    of_class = known(prototypes)
    images = [
        (label, row) for label, row in zip(y.tolist(), z.tolist(), strict=True) if label in of_class
    ]
    if distance in ("mse", "squared"):
        per = len(z) * (z.shape[1] if distance == "mse" else 1)
        return [
            sum((a - b) ** 2 for a, b in zip(row, of_class[label], strict=True)) / per
            for label, row in images
        ]
    terms = []
    for label in {label for label, _ in images}:
        rows = [row for other, row in images if other == label]
        means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
        difference = [a - b for a, b in zip(means, of_class[label], strict=True)]
        terms.append(math.hypot(*difference) if distance == "l2" else sum(map(abs, difference)))
    return terms


@pytest.mark.parametrize("labels", [[], [2], [0, 1, 3], [3, 0, 2, 1]])
@pytest.mark.parametrize("distance", DISTANCES)
def test_each_distance_and_its_gradient_are_those_of_literal_loops(distance, labels):
    y, prototypes = torch.tensor([0, 3, 2, 1, 0]), prototypes_of(labels, 7)
    _, gradient = agree(
        lambda z: prototype_distance(z, y, prototypes, distance),
        lambda z: literal_distance(z, y, prototypes, distance),
        vectors(5, 6),
    )
    assert (gradient != 0).any(1).tolist() == [label in labels for label in y.tolist()]


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_loss_on_a_batch_is_cross_entropy_and_lam_times_the_distance(batch_norm_net, distance):
    net, x, y = batch_norm_net().eval(), torch.rand(6, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    prototypes = prototypes_of([2, 0], 3, dim=4)
    terms = FedProto(lam=0.3, distance=distance).loss(
        net, x, y, {"prototypes": in_floats(prototypes)}
    )
    assert list(terms) == ["cross_entropy", "prototypes"]
    z, logits = net(x)
    assert terms["cross_entropy"].item() == pytest.approx(F.cross_entropy(logits, y).item())
    expected = 0.3 * sum(literal_distance(z.detach().double(), y, prototypes, distance))
    assert terms["prototypes"].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_prototypes_are_all_that_crosses(ragged, weighted):
    fed = ragged(FedProtoTargets(weighted_prototypes=weighted), CLASSES_OF)
    held, row, row_bytes = sum(map(len, CLASSES_OF)), 4 + 1, 4 * 4 + 8  # four numbers and a label
    # and how many images it stands for
    up = (held * (row + weighted), held * (row_bytes + 8 * weighted))
    fed.run_round()
    assert fed.traffic == {"down": {"prototypes": (0, 0)}, "up": {"prototypes": up}}
    entry = fed.run_round()
    assert fed.traffic == {
        "down": {"prototypes": (4 * 3 * row, 4 * 3 * row_bytes)},
        "up": {"prototypes": up},
    }
    assert (entry["down_numbers"], entry["up_numbers"]) == (60, up[0])
    uploads = fed.exchange(fed.server, fed.clients, 2)
    assert all(upload.keys() == {"prototypes", "client"} for upload in uploads)
    assert fed.method.aggregate(fed.server, uploads, 2)["prototypes"].keys() == {
        "vectors",
        "labels",
    }
    assert all(client.memory.keys() == {"model"} for client in fed.clients)
    assert fed.server["model"] == {}


def test_with_targets_of_its_own_a_client_gets_back_what_it_sent(ragged, identical):
    fed = ragged(FedProtoTargets(targets="own"), CLASSES_OF)
    for _ in range(2):
        before = fed.exchange(fed.server, fed.clients, fed.rounds_done)
        fed.server = fed.method.aggregate(fed.server, before, fed.rounds_done)
        fed.rounds_done += 1
    for client, upload in zip(fed.clients, before, strict=True):
        received = fed.method.broadcast(fed.server, client.id)
        with fed.at_work(client):
            context = fed.method.prepare(client, received, 2)["prototypes"]
        there = context["labels"] >= 0
        mine = {"vectors": context["vectors"][there], "labels": context["labels"][there]}
        assert identical(mine, upload["prototypes"])
        assert not identical(mine, received["prototypes"])


@pytest.mark.parametrize("targets", ["blocks", "long blocks"])
def test_blocks_are_orthogonal_the_same_for_all_and_as_long_as_they_are_said_to_be(ragged, targets):
    fed = ragged(FedProtoTargets(targets=targets), CLASSES_OF)
    uploads = fed.exchange(fed.server, fed.clients, 0)
    learnt = FedProto().aggregate_prototypes(fed.server, uploads, 0)["vectors"]
    vectors = fed.method.aggregate(fed.server, uploads, 0)["prototypes"]["vectors"]
    products = vectors @ vectors.T
    assert torch.equal(products, products.diag().diag())
    if targets == "blocks":
        assert set(vectors.flatten().tolist()) == {0.0, 1.0}
    else:
        assert torch.allclose(vectors.norm(dim=1), learnt.norm(dim=1))
    assert (vectors.norm(dim=1) > 0).all()


def test_pulled_to_zero_all_global_prototypes_are_zero(ragged):
    fed = ragged(PulledToZero(), CLASSES_OF)
    uploads = fed.exchange(fed.server, fed.clients, 0)
    prototypes = fed.method.aggregate(fed.server, uploads, 0)["prototypes"]
    assert sorted(prototypes["labels"].tolist()) == [0, 1, 2]
    assert not prototypes["vectors"].any()


@pytest.mark.parametrize("labels", [[], [2], [4, 0, 1], [3, 0, 4, 2, 1]])
@pytest.mark.parametrize("classes", [[0, 1, 2, 3, 4], [1, 4], [2, 3]])
def test_the_nearest_prototype_is_that_of_brute_force(labels, classes):
    z, prototypes = vectors(40, 3), prototypes_of(labels, 5, dim=3)
    scores = nearest_prototype(z, prototypes, torch.tensor([k in classes for k in range(5)]))
    allowed = {k: vector for k, vector in known(prototypes).items() if k in classes}
    for row, found in zip(z.tolist(), scores.tolist(), strict=True):
        expected = {k: -(math.dist(row, vector) ** 2) for k, vector in allowed.items()}
        assert found == pytest.approx([expected.get(k, -math.inf) for k in range(5)])
    if allowed:
        assert set(scores.argmax(1).tolist()) == set(allowed)  # each is nearest to some z


def test_each_client_predicts_by_the_servers_prototypes_of_its_own_classes(ragged):
    fed = ragged(FedProto(), CLASSES_OF)
    assert math.isfinite(evaluate(fed)["accuracy/prototype"])  # there is none yet
    entry = [fed.run_round() for _ in range(2)][-1]
    x = (fed.dataset.test_images.float() / 255 - 0.5) / 0.25
    by_hand = []
    for client, classes in zip(fed.clients, CLASSES_OF, strict=True):
        net = fed.build_model().eval()
        net.load_state_dict(client.memory["model"])
        of_class = known(fed.server["prototypes"])
        chosen = [
            min(classes, key=lambda k: math.dist(z, of_class[k]))
            for z in net(x).representation.tolist()
        ]
        by_hand.append(100 * np.mean(np.array(chosen) == fed.dataset.test_labels.numpy()))
    assert entry["clients/prototype"] == pytest.approx(by_hand)
    assert entry["accuracy/prototype"] == pytest.approx(np.mean(by_hand)) != entry["accuracy"]


@pytest.mark.parametrize("method", [FedAvg(), FeSEM(), FedPer()])
def test_a_method_that_averages_weights_refuses_different_networks(mixed, method):
    with pytest.raises(
        ValueError, match=rf"^{type(method).__name__} averages encoder.* has not the same shape"
    ):
        mixed(method)
    mixed(method, heterogeneous=False)


# --- FedPer and FedRep


@pytest.mark.parametrize("method", [FedPer, FedRep])
@pytest.mark.parametrize(
    ("private", "numbers"), [("linear", 10 * 25 + 10 + 20 * 250 + 20), ("classifier", 21_840 - 510)]
)
def test_of_the_mnist_network_the_convolutions_travel_or_all_but_the_output_layer(
    mixed, method, private, numbers
):
    fed = mixed(method(private=private), heterogeneous=False)
    fed.run_round()
    assert fed.traffic["down"] == {"model": (6 * numbers, 6 * 4 * numbers)}
    assert fed.traffic["up"]["model"] == fed.traffic["down"]["model"]
    names = set(fed.build_model().state_dict())
    own = {n for n in names if n.startswith("classifier") or ("fc1" in n and private == "linear")}
    assert len(own) == (4 if private == "linear" else 2)
    assert all(client.memory["model"].keys() == own for client in fed.clients)
    assert fed.server["model"].keys() == names - own


def test_fedrep_trains_all_of_the_network_first_the_head_then_the_body(mixed):
    fed = mixed(FedRep(head_epochs=3), heterogeneous=False, local_epochs=2)
    head, body = fed.method.plan(fed.clients[0], 0)
    assert (head.epochs, body.epochs) == (3, 2)
    names = [name for name, _ in fed.build_model().named_parameters()]
    for name in names:
        assert (
            head.trains(name)
            == (not body.trains(name))
            == ("fc1" in name or name.startswith("classifier"))
        )
    fed.run_round()
    assert {client.steps for client in fed.clients} == {(3 + 2) * 2}


# --- FeSEM


def assignment(points, k):
    """Which points belong together in the best k-means solution, by trying all."""

    def cost(labels):
        return sum(points[labels == c].var(0).sum() * (labels == c).sum() for c in set(labels))

    return groups(min(map(np.array, itertools.product(range(k), repeat=len(points))), key=cost))


def groups(labels):
    return {
        frozenset(np.flatnonzero(np.asarray(labels) == c)) for c in set(np.asarray(labels).tolist())
    }


def states_of(points):
    """Models whose weights are these numbers, with a counter that is none."""
    rows = torch.tensor(points).float()
    return [
        {"a": row[:1], "b": row[1:].view(1, -1), "counter": torch.tensor(1000 * i)}
        for i, row in enumerate(rows)
    ]


@pytest.mark.parametrize("t", [0, 3])
@pytest.mark.parametrize("k", [2, 3])
def test_clusters_of_well_separated_clients_are_those_of_brute_force(k, t):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        belongs = rng.permutation([0, 1, 2, 0, 1, 2] if k == 3 else [0, 0, 1, 0, 1, 0])
        points = 10 * np.eye(3)[belongs] + rng.normal(size=(6, 3))
        # of the round before; in round 0 of no meaning
        centres = states_of(10 * rng.permutation(np.eye(3)[:k]))
        server = {
            "models": dict(zip("012", centres, strict=False)),
            "cluster": torch.zeros(6).long(),
            "seed": seed,
        }
        uploads = [
            {"model": s, "num_samples": torch.tensor(9**i), "client": i}
            for i, s in enumerate(states_of(points))
        ]
        after = FeSEM(num_clusters=k).aggregate(server, uploads, t)
        cluster = after["cluster"].numpy()
        assert groups(cluster) == groups(belongs) == assignment(points, k)
        for c in range(k):  # one client, one vote
            mean, expected = after["models"][str(c)], points[cluster == c].mean(0)
            np.testing.assert_allclose(
                torch.cat([mean["a"], mean["b"].flatten()]), expected, rtol=1e-5, atol=1e-6
            )
            assert mean["counter"] == round(1000 * np.flatnonzero(cluster == c).mean())


def test_clients_that_are_not_sampled_keep_their_cluster(ragged, identical):
    fed = ragged(FeSEM(), [[0], [1], [0], [1], [2], [2]], sizes=(8,) * 6, participation=0.5)
    before, seen = fed.server, set()
    for t in range(5):
        sampled = {client.id for client in fed.sample(t)}
        fed.run_round()
        after = fed.server["cluster"]
        assert all(after[i] == before["cluster"][i] for i in set(range(6)) - sampled)
        assert {int(after[i]) for i in sampled} == {0, 1}
        seen |= {i for i in range(6) if after[i]}
        before = fed.server
    assert len(seen) > 1


def test_every_method_has_the_number_of_rounds_that_it_is_said_to_need():
    rows = {
        tuple(row.split(", ")): cells["rounds"]
        for row, cells in results.printed("FedProto Table 1").items()
    }
    assert len(rows) == 3 * 8
    for (dataset, method), rounds in rows.items():
        given = {"heterogeneous": True} if method.endswith("-mh") else {}
        given |= {
            "method": method.removesuffix("-mh"),
            "dataset": dataset.lower(),
            "partition": "n-way-k-shot",
        }
        own = settings.resolve(METHODS, **given)
        # Local, which is said to need none, has as many epochs as FedProto
        assert (own.num_rounds, own.local_epochs) == (rounds or rows[dataset, "FedProto"], 1)
    alone = settings.resolve(METHODS, method="SOLO", dataset="digits", partition="n-way-k-shot")
    assert (alone.num_rounds, alone.local_epochs) == (40, 1)  # not SOLO's of MOON
