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
    FedRep,
    FeSEM,
    Local,
    nearest_prototype,
    prototype_distance,
)

from fednb import models, reporting
from fednb.evaluation import evaluate
from fednb.experiments import settings
from fednb.federation import FedAvg
from fednb.prototypes import padded

DISTANCES = get_args(Distance)
CLASSES_OF = ([0, 1], [1, 2], [0, 1, 2], [2])


def made_up(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def prototypes_of(labels, capacity=None, dim=6, seed=1):
    """Random prototypes of these classes, padded as a training step sees them."""
    made = {"vectors": made_up(len(labels), dim, seed=seed), "labels": torch.tensor(labels, dtype=torch.long)}
    return padded(made, capacity or len(labels))


def known(prototypes):
    """The vector of each class as a list; padding is none."""
    pairs = zip(prototypes["labels"].tolist(), prototypes["vectors"].tolist(), strict=True)
    return {label: vector for label, vector in pairs if label >= 0}


@pytest.fixture
def mixed(federate, make_dataset):
    """Make a federation of six small clients with FedProto's three MNIST networks, dropout included."""

    def make(method, model="mnist-cnn", heterogeneous=True, **given):
        build = partial(models.build, num_classes=10, channels=1, side=28, projection_head=False)
        options = {"build_model": build, "architectures": models.heterogeneous(model, 6)}
        if not heterogeneous:
            options = {"build_model": partial(build, model)}
        data = make_dataset(images=96, shape=(1, 28, 28), num_classes=10)
        options |= {"sizes": (16,) * 6, "dataset": data, "batch_size": 8, "local_epochs": 1, "lr": 0.01}
        return federate(method, **options | given)

    return make


# --- the server's mean

HELD = ({0: 5, 1: 3}, {1: 8, 4: 2}, {0: 1, 1: 1}, {})  # images per class of four clients


def uploads_of(held, counts, seed=0):
    """What clients with these numbers of images per class send."""
    sent = [prototypes_of(list(own), dim=3, seed=seed + i) for i, own in enumerate(held)]
    if counts:
        sent = [
            s | {"counts": torch.tensor(list(own.values()), dtype=torch.long)} for s, own in zip(sent, held, strict=True)
        ]
    return [{"prototypes": s, "client": i} for i, s in enumerate(sent)]


@pytest.mark.parametrize("weighted", [False, True])
def test_aggregation_is_that_of_literal_loops(weighted):
    uploads, server = uploads_of(HELD, weighted), {"prototypes": prototypes_of([], dim=3)}
    merged = FedProto(weighted_prototypes=weighted).aggregate(server, uploads, 0)["prototypes"]
    assert merged.keys() == {"vectors", "labels"}
    found = known(merged)
    assert found.keys() == {0, 1, 4}
    for label, vector in found.items():
        sums, total = [0.0] * 3, 0
        for own, upload in zip(HELD, uploads, strict=True):
            if label in own:
                weight = own[label] if weighted else 1
                sums = [s + weight * v for s, v in zip(sums, known(upload["prototypes"])[label], strict=True)]
                total += weight
        np.testing.assert_allclose(vector, [s / total for s in sums], rtol=1e-12)
    assert found[4] == known(uploads[1]["prototypes"])[4]  # one client alone has class 4


def test_a_class_whose_only_holder_is_not_sampled_keeps_its_prototype():
    method, server = FedProto(), {"prototypes": prototypes_of([], dim=3)}
    server = method.aggregate(server, uploads_of(HELD, False), 0)
    later = method.aggregate(server, uploads_of((HELD[0], HELD[2]), False, seed=9), 1)
    old, new = known(server["prototypes"]), known(later["prototypes"])
    assert new.keys() == {0, 1, 4}
    assert [old[label] == new[label] for label in (0, 1, 4)] == [False, False, True]


# --- the distance


def literal_distance(z, y, prototypes, distance):
    """The terms of L_R, number by number, in float64."""
    of_class = known(prototypes)
    images = [(label, row) for label, row in zip(y.tolist(), z.tolist(), strict=True) if label in of_class]
    if distance in ("mse", "squared"):
        per = len(z) * (z.shape[1] if distance == "mse" else 1)
        return [sum((a - b) ** 2 for a, b in zip(row, of_class[label], strict=True)) / per for label, row in images]
    terms = []
    for label in {label for label, _ in images}:
        rows = [row for other, row in images if other == label]
        means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
        difference = [a - b for a, b in zip(means, of_class[label], strict=True)]
        terms.append(math.hypot(*difference) if distance == "l2" else sum(map(abs, difference)))
    return terms


@pytest.mark.parametrize("labels", [(), (2,), (0, 1, 3), (3, 0, 2, 1)])
@pytest.mark.parametrize("capacity", [4, 7])
@pytest.mark.parametrize("distance", DISTANCES)
def test_value_and_gradient_of_each_distance_are_those_of_literal_loops(numeric_gradient, distance, capacity, labels):
    z, y = made_up(5, 6).requires_grad_(), torch.tensor([0, 3, 2, 1, 0])
    prototypes = prototypes_of(labels, capacity)
    loss = prototype_distance(z, y, prototypes, distance)
    assert loss.item() == pytest.approx(sum(literal_distance(z.detach(), y, prototypes, distance)), rel=1e-10, abs=1e-15)
    (gradient,) = torch.autograd.grad(loss, z)
    numeric = numeric_gradient(lambda moved: literal_distance(moved, y, prototypes, distance), z)
    np.testing.assert_allclose(gradient, numeric, atol=1e-7)
    assert (gradient != 0).any(1).tolist() == [label in labels for label in y.tolist()]


@pytest.mark.parametrize("distance", DISTANCES)
def test_at_distance_0_the_loss_is_0_and_so_is_its_gradient(distance):
    y, prototypes = torch.tensor([2, 0, 0]), prototypes_of([0, 2, 1], 5)
    z = torch.tensor([known(prototypes)[label] for label in y.tolist()], dtype=torch.float64).requires_grad_()
    loss = prototype_distance(z, y, prototypes, distance)
    assert loss.item() == pytest.approx(0, abs=1e-5)
    (gradient,) = torch.autograd.grad(loss, z)
    assert (gradient.abs() < 1e-9).all()


def test_mse_is_squared_divided_by_the_number_of_features():
    z, y, prototypes = made_up(7, 6), torch.tensor([0, 1, 2, 3, 0, 0, 1]), prototypes_of([3, 0, 1])
    mse, squared = (prototype_distance(z, y, prototypes, distance) for distance in ("mse", "squared"))
    torch.testing.assert_close(mse, squared / 6)


@pytest.mark.parametrize("distance", DISTANCES)
def test_every_distance_compiles_in_one_piece_and_can_be_batched_over_clients(distance):
    loss = partial(prototype_distance, distance=distance)
    z, y = made_up(3, 5, 6), torch.tensor([[0, 3, 2, 1, 0], [1, 1, 1, 2, 2], [3, 3, 3, 3, 0]])
    sets = [prototypes_of(labels, 4, seed=i) for i, labels in enumerate(([], [1, 0], [3, 2, 1, 0]))]
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    one_by_one = torch.stack([loss(*each) for each in zip(z, y, sets, strict=True)])
    torch.testing.assert_close(torch.stack([compiled(*each) for each in zip(z, y, sets, strict=True)]), one_by_one)
    stacked = {name: torch.stack([one[name] for one in sets]) for name in sets[0]}
    torch.testing.assert_close(torch.func.vmap(loss)(z, y, stacked), one_by_one)


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_loss_on_a_batch_is_cross_entropy_and_lam_times_the_distance(batch_norm_net, distance):
    net, x, y = batch_norm_net().eval(), torch.rand(6, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    prototypes = prototypes_of([2, 0], 3, dim=4)
    given = {"prototypes": prototypes | {"vectors": prototypes["vectors"].float()}}
    terms = FedProto(lam=0.3, distance=distance).loss(net, x, y, given)
    assert list(terms) == ["cross_entropy", "prototypes"]
    z, logits = net(x)
    assert terms["cross_entropy"].item() == pytest.approx(F.cross_entropy(logits, y).item())
    expected = 0.3 * sum(literal_distance(z.detach().double(), y, prototypes, distance))
    assert terms["prototypes"].item() == pytest.approx(expected, rel=1e-5)


# --- against clients that train alone


@pytest.mark.parametrize("given", [{}, {"distance": "l2"}, {"weighted_prototypes": True}])
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_with_lam_0_it_is_local_bit_for_bit(ragged, identical, given, participation):
    def weights(method):
        fed = ragged(method, CLASSES_OF, participation=participation)
        after = []
        for _ in range(2):
            fed.run_round()
            after.append([client.memory.get("model") for client in fed.clients])
        return after

    alone = weights(Local())
    assert identical(weights(FedProto(lam=0.0, **given)), alone)
    together = weights(FedProto(lam=0.1, **given))
    assert identical(together[0], alone[0])  # there is no prototype yet
    changed = [not identical(a, b) for a, b in zip(together[1], alone[1], strict=True)]
    assert all(changed) if participation == 1 else any(changed)


def test_with_dropout_too_lam_0_is_local_bit_for_bit(mixed, identical):
    feds = [mixed(method) for method in (FedProto(lam=0.0), Local(), FedProto())]
    for fed in feds * 2:
        fed.run_round()
    alike, alone, other = ([client.memory for client in fed.clients] for fed in feds)
    assert identical(alike, alone)
    assert not any(identical(a, b) for a, b in zip(other, alone, strict=True))


# --- what crosses


@pytest.mark.parametrize("weighted", [False, True])
def test_prototypes_are_all_that_crosses(ragged, weighted):
    fed = ragged(FedProto(weighted_prototypes=weighted), CLASSES_OF)
    held, row, row_bytes = sum(map(len, CLASSES_OF)), 4 + 1, 4 * 4 + 8  # four numbers and a label
    up = (held * (row + weighted), held * (row_bytes + 8 * weighted))  # and how many images it stands for
    fed.run_round()
    assert fed.traffic == {"down": {"prototypes": (0, 0)}, "up": {"prototypes": up}}
    entry = fed.run_round()
    assert fed.traffic == {"down": {"prototypes": (4 * 3 * row, 4 * 3 * row_bytes)}, "up": {"prototypes": up}}
    assert (entry["down_numbers"], entry["up_numbers"]) == (60, up[0])
    uploads = fed.exchange(fed.server, fed.clients, 2)
    names = {"vectors", "labels"} | ({"counts"} if weighted else set())
    for upload, classes in zip(uploads, CLASSES_OF, strict=True):
        assert upload.keys() == {"prototypes", "client"}
        assert upload["prototypes"].keys() == names
        assert upload["prototypes"]["labels"].tolist() == classes
    assert all(client.memory.keys() == {"model"} for client in fed.clients)
    assert fed.server["model"] == {}


# --- nearest prototype


@pytest.mark.parametrize("labels", [(), (2,), (4, 0, 1), (3, 0, 4, 2, 1)])
@pytest.mark.parametrize("classes", [[0, 1, 2, 3, 4], [1, 4], [2, 3]])
def test_the_nearest_prototype_is_that_of_brute_force(labels, classes):
    z, prototypes = made_up(40, 3), prototypes_of(labels, 5, dim=3)
    own = torch.tensor([k in classes for k in range(5)])
    scores = nearest_prototype(z, prototypes, own)
    assert scores.shape == (40, 5)
    allowed = {k: vector for k, vector in known(prototypes).items() if k in classes}
    chosen = set()
    for row, found in zip(z.tolist(), scores, strict=True):
        expected = {k: -(math.dist(row, vector) ** 2) for k, vector in allowed.items()}
        for k, score in enumerate(found.tolist()):
            assert score == pytest.approx(expected.get(k, -math.inf))
        if expected:
            chosen.add(int(found.argmax()))
            assert int(found.argmax()) == max(expected, key=expected.get)
    assert chosen == set(allowed)  # each is nearest to some z


def test_nearest_prototypes_compile_and_can_be_batched_over_clients():
    z, sets = made_up(2, 8, 3), [prototypes_of(labels, 5, dim=3) for labels in ([4, 0, 1], [])]
    classes = torch.tensor([[True] * 5, [False, True] * 2 + [True]])
    one_by_one = [nearest_prototype(*each) for each in zip(z, sets, classes, strict=True)]
    torch._dynamo.reset()
    assert torch.equal(
        torch.compile(nearest_prototype, fullgraph=True, backend="eager")(z[0], sets[0], classes[0]), one_by_one[0]
    )
    stacked = {name: torch.stack([one[name] for one in sets]) for name in sets[0]}
    torch.testing.assert_close(torch.func.vmap(nearest_prototype)(z, stacked, classes), torch.stack(one_by_one))


def test_each_client_predicts_by_the_servers_prototypes_of_its_own_classes(ragged):
    fed = ragged(FedProto(), CLASSES_OF)
    entry = [fed.run_round() for _ in range(2)][-1]
    x = (fed.dataset.test_images.float() / 255 - 0.5) / 0.25
    by_hand = []
    for client, classes in zip(fed.clients, CLASSES_OF, strict=True):
        net = fed.build_model().eval()
        net.load_state_dict(client.memory["model"])
        of_class = known(fed.server["prototypes"])
        chosen = [min(classes, key=lambda k: math.dist(z, of_class[k])) for z in net(x).representation.tolist()]
        by_hand.append(100 * np.mean(np.array(chosen) == fed.dataset.test_labels.numpy()))
    assert entry["clients/prototype"] == pytest.approx(by_hand)
    assert entry["accuracy/prototype"] == pytest.approx(np.mean(by_hand))
    assert entry["accuracy_std/prototype"] == pytest.approx(np.std(by_hand))
    assert entry["accuracy"] != entry["accuracy/prototype"]


def test_before_there_is_a_prototype_everything_can_be_evaluated(ragged):
    fed = ragged(FedProto(), CLASSES_OF, test_parts=[np.arange(10 * i, 10 * i + 10) for i in range(4)])
    found = evaluate(fed)
    assert {"accuracy", "accuracy/prototype", "accuracy/local classes"} <= found.keys()
    assert all(math.isfinite(found[name]) for name in found if name.startswith("accuracy"))


# --- networks of the clients' own


def test_clients_with_different_networks_share_prototypes(mixed):
    fed = mixed(FedProto())
    entries = [fed.run_round() for _ in range(2)]
    widths = [client.memory["model"]["encoder.3.weight"].shape[0] for client in fed.clients]
    assert widths == [18, 18, 20, 20, 22, 22]
    assert fed.server["prototypes"]["vectors"].shape == (10, 50)
    assert entries[0]["loss/prototypes"] == 0 < entries[1]["loss/prototypes"]
    assert len(entries[1]["clients/prototype"]) == 6
    assert entries[1]["down_numbers"] == 6 * 10 * (50 + 1)


@pytest.mark.parametrize("method", [FedAvg(), FeSEM(), FedPer(), FedPer(private="classifier"), FedRep()])
def test_a_method_that_averages_weights_refuses_different_networks(mixed, method):
    reason = (
        rf"^{type(method).__name__} averages encoder\.\w+\.\w+, which has not the same shape in all .* shares no weights"
    )
    with pytest.raises(ValueError, match=reason):
        mixed(method)
    mixed(method, heterogeneous=False)


def test_networks_that_differ_in_their_strides_can_be_averaged():
    shapes = [
        {n: v.shape for n, v in models.build(name, 10, projection_head=False).state_dict().items()}
        for name in sorted(set(models.heterogeneous("resnet-18-7x7", 2)))
    ]
    assert len(shapes) == 2
    assert shapes[0] == shapes[1]


# --- FedPer and FedRep

OUTPUT = 50 * 10 + 10  # of the MNIST network


@pytest.mark.parametrize("method", [FedPer, FedRep])
@pytest.mark.parametrize(("private", "numbers"), [("linear", 10 * 25 + 10 + 20 * 250 + 20), ("classifier", 21_840 - OUTPUT)])
def test_of_the_mnist_network_the_convolutions_travel_or_all_but_the_output_layer(mixed, method, private, numbers):
    fed = mixed(method(private=private), heterogeneous=False)
    fed.run_round()
    assert fed.traffic["down"] == {"model": (6 * numbers, 6 * 4 * numbers)}
    assert fed.traffic["up"]["model"] == fed.traffic["down"]["model"]
    names = set(fed.build_model().state_dict())
    own = {n for n in names if n.startswith("classifier") or ("fc1" in n and private == "linear")}
    assert len(own) == (4 if private == "linear" else 2)
    for client in fed.clients:
        assert client.memory["model"].keys() == own
    assert fed.server["model"].keys() == names - own


@pytest.mark.parametrize("private", ["linear", "classifier"])
def test_of_the_resnet_all_but_the_output_layer_travels(private):
    net = models.build("resnet-18-7x7", 10, projection_head=False)
    shared = FedPer(private=private).start(net, 20)["model"]
    assert net.state_dict().keys() - shared.keys() == {"classifier.weight", "classifier.bias"}
    assert sum(p.numel() for n, p in net.named_parameters() if n in shared) == 11_181_642 - 5_130


def test_of_a_network_with_projection_head_the_head_is_private_too():
    names = models.build("simple-cnn", 10).state_dict()
    private = {
        kind: {n.rpartition(".")[0] for n in names if not FedPer(private=kind).shared(n)}
        for kind in ("linear", "classifier")
    }
    assert private == {
        "linear": {"encoder.fc1", "encoder.fc2", "head.0", "head.2", "classifier"},
        "classifier": {"classifier"},
    }


def test_fedper_averages_the_body_and_every_client_goes_on_with_its_own_head(ragged, identical):
    fed, plain = (ragged(method, CLASSES_OF) for method in (FedPer(), FedAvg()))
    fed.run_round(), plain.run_round()
    body = {n: v for n, v in plain.server["model"].items() if not n.startswith("classifier")}
    assert identical(fed.server["model"], body)  # in the first round all heads are still the same
    heads = [client.memory["model"] for client in fed.clients]
    assert not any(identical(a, b) for a, b in itertools.combinations(heads, 2))
    begun = []
    fed.exchange(
        fed.server, fed.clients, 1, lambda c, received, t: (c.load(received), begun.append((c.id, c.state())))[0] or {}
    )
    assert len(begun) == 4
    assert all(identical(state, body | heads[i]) for i, state in begun)


def test_fedrep_trains_all_of_the_network_first_the_head_then_the_body(mixed):
    fed = mixed(FedRep(head_epochs=3), heterogeneous=False, local_epochs=2)
    head, body = fed.method.plan(fed.clients[0], 0)
    assert (head.epochs, body.epochs) == (3, 2)
    names = [name for name, _ in fed.build_model().named_parameters()]
    assert [n for n in names if head.trains(n)] == [n for n in names if "fc1" in n or n.startswith("classifier")]
    assert [n for n in names if body.trains(n)] == [n for n in names if not head.trains(n)]
    fed.run_round()
    assert [client.steps for client in fed.clients] == [(3 + 2) * 2] * 6


# --- FeSEM


def assignment(points, k):
    """Which points belong together in the best k-means solution, by trying all."""

    def cost(labels):
        clusters = [points[labels == c] for c in set(labels)]
        return sum(((cluster - cluster.mean(0)) ** 2).sum() for cluster in clusters)

    return groups(min(map(np.array, itertools.product(range(k), repeat=len(points))), key=cost))


def groups(labels):
    return {frozenset(np.flatnonzero(np.asarray(labels) == c)) for c in set(np.asarray(labels).tolist())}


def states_of(points):
    """Models whose weights are these numbers, with a counter that is none."""
    rows = torch.tensor(points).float()
    return [{"a": row[:1], "b": row[1:].view(1, -1), "counter": torch.tensor(1000 * i)} for i, row in enumerate(rows)]


@pytest.mark.parametrize("t", [0, 3])
@pytest.mark.parametrize("k", [2, 3])
def test_clusters_of_well_separated_clients_are_those_of_brute_force(k, t):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        belongs = rng.permutation([0, 1, 2, 0, 1, 2] if k == 3 else [0, 0, 1, 0, 1, 0])
        points = 10 * np.eye(3)[belongs] + rng.normal(size=(6, 3))
        centres = states_of(10 * rng.permutation(np.eye(3)[:k]))  # of the round before; in round 0 of no meaning
        server = {"models": dict(zip("012", centres, strict=False)), "cluster": torch.zeros(6).long(), "seed": seed}
        uploads = [{"model": s, "num_samples": torch.tensor(9**i), "client": i} for i, s in enumerate(states_of(points))]
        after = FeSEM(num_clusters=k).aggregate(server, uploads, t)
        cluster = after["cluster"].numpy()
        assert groups(cluster) == groups(belongs) == assignment(points, k)
        for c in range(k):  # one client, one vote
            mean = after["models"][str(c)]
            np.testing.assert_allclose(
                torch.cat([mean["a"], mean["b"].flatten()]), points[cluster == c].mean(0), rtol=1e-5, atol=1e-6
            )
            assert mean["counter"] == round(1000 * np.flatnonzero(cluster == c).mean())


def test_every_client_starts_the_next_round_from_the_mean_of_its_cluster(ragged):
    fed = ragged(FeSEM(num_clusters=2), CLASSES_OF)
    for t in range(2):
        uploads = fed.exchange(fed.server, fed.clients, t)
        fed.server = fed.method.aggregate(fed.server, uploads, t)
        cluster = fed.server["cluster"].tolist()
        assert set(cluster) == {0, 1}
        for client in fed.clients:
            received = fed.method.broadcast(fed.server, client.id)
            assert received.keys() == {"model"}
            of_cluster = [u["model"] for u, c in zip(uploads, cluster, strict=True) if c == cluster[client.id]]
            for name, value in received["model"].items():
                mean = sum(state[name].double() for state in of_cluster) / len(of_cluster)
                torch.testing.assert_close(value.double(), mean.round() if "tracked" in name else mean, rtol=1e-5, atol=1e-6)


def test_clusters_go_on_from_the_last_rounds():
    """Both clusters keep their numbers, whichever client comes first."""
    points = np.array([[0.0, 0, 0], [0.2, 0, 0], [9, 9, 9], [9.2, 9, 9]])
    for order in ([0, 1], [1, 0]):
        centres = states_of(points[[0, 2]][order] + 1)
        server = {"models": dict(zip("01", centres, strict=True)), "cluster": torch.zeros(4).long(), "seed": 0}
        uploads = [{"model": state, "client": i} for i, state in enumerate(states_of(points))]
        after = FeSEM().aggregate(server, uploads, 1)
        assert after["cluster"].tolist() == [order.index(c) for c in (0, 0, 1, 1)]


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


def test_with_a_cluster_for_each_fesem_is_local_and_with_one_for_all_it_is_fedavg(ragged, identical):
    many, alone, one, plain = (
        ragged(method, CLASSES_OF, sizes=(8,) * 4)
        for method in (FeSEM(num_clusters=9), Local(), FeSEM(num_clusters=1), FedAvg())
    )
    for fed in (many, alone, one, plain) * 2:
        fed.run_round()
    assert sorted(many.server["cluster"].tolist()) == [0, 1, 2, 3]  # more clusters than uploads
    received = [many.method.broadcast(many.server, i)["model"] for i in range(4)]
    assert identical(received, [client.memory["model"] for client in alone.clients])
    assert identical(many.server["models"]["8"], many.initial())  # nobody was ever in it
    assert identical(one.server["models"]["0"], plain.server["model"])


# --- results depend on the settings alone


@pytest.mark.parametrize("method", [FedProto(), FedPer(), FedRep(), FeSEM()])
def test_workers_do_not_change_a_result(mixed, identical, method):
    ends = []
    for workers in (1, 3):
        fed = mixed(method, heterogeneous=isinstance(method, FedProto), workers=workers)
        accuracies = [fed.run_round()["accuracy"] for _ in range(2)]
        ends.append([fed.server, [client.memory for client in fed.clients], accuracies])
    assert identical(*ends)


@pytest.mark.parametrize("method", [FedProto(distance="l2", weighted_prototypes=True), FeSEM(), FedRep()])
def test_a_restored_federation_goes_on_as_if_nothing_had_happened(mixed, identical, with_and_without_a_break, method):
    make = partial(mixed, method, heterogeneous=isinstance(method, FedProto), participation=0.5)
    assert identical(*with_and_without_a_break(make, 4, 2))


# --- lemma 2


def rise(z, y, before, after, lam):
    """By how much λ L_R of the appendix grows when the server replaces the prototypes."""
    old, new = (lam * prototype_distance(z, y, prototypes, "squared").item() for prototypes in (before, after))
    return new - old


def one_class(*vector):
    return {"vectors": torch.tensor([vector], dtype=torch.float64), "labels": torch.tensor([0])}


def test_the_printed_bound_of_lemma_2_fails_where_the_distance_is_squared():
    lam, lipschitz, eta, epochs, gradient = 1.0, 1.0, 0.01, 1, 1.0
    z, y = torch.zeros(1, 1, dtype=torch.float64), torch.tensor([0])  # f(φ) = φ of client 1, which stands still
    other = 20.0
    moved = other + eta * gradient
    before, after = one_class(other / 2), one_class(moved / 2)
    allowed = lam * lipschitz * eta * epochs * gradient
    found = rise(z, y, before, after, lam)
    assert (round(found, 3), round(allowed, 3)) == (0.1, 0.01)
    unsquared = [math.sqrt(prototype_distance(z, y, p, "squared").item()) for p in (before, after)]
    assert lam * (unsquared[1] - unsquared[0]) < allowed  # what step (a) bounds instead
    radius = moved / 2
    assert found <= 2 * radius * lam * (moved - other) / 2 < 1.001 * found  # repaired, and hardly larger


def test_the_repaired_bound_of_lemma_2_holds_on_random_draws():
    shares = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        images, dim, lam = rng.integers(1, 6), rng.integers(2, 5), rng.exponential()
        z, y = made_up(images, dim, seed=seed) * rng.exponential(), torch.zeros(images, dtype=torch.long)
        old, new = rng.normal(size=dim), rng.normal(size=dim) * rng.exponential()
        before, after = one_class(*old), one_class(*new)
        radius = max(np.linalg.norm(z.numpy() - c, axis=1).max() for c in (old, new))
        allowed = 2 * radius * lam * np.linalg.norm(new - old)
        shares.append(rise(z, y, before, after, lam) / allowed)
    assert max(shares) <= 1
    assert max(shares) > 0.8  # the bound is not far from what happens
    assert min(shares) < 0


# --- settings


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ("mnist", {"model": "mnist-cnn", "stdev": 2, "num_rounds": 100, "test_shots": 40}),
        ("femnist", {"model": "femnist-cnn", "stdev": 1, "num_rounds": 120}),
        ("cifar10", {"model": "resnet-18-7x7", "stdev": 1, "num_rounds": 110, "lam": 0.1, "pretrained": True}),
        ("emnist_letters", {"model": "mnist-cnn", "stdev": 1, "num_rounds": 120, "shots": 90}),
    ],
)
def test_the_papers_settings_of_its_split(dataset, expected):
    own = settings.resolve(METHODS, method="FedProto", dataset=dataset, partition="n-way-k-shot")
    usual = {"ways": 3, "shots": 100, "test_shots": 15, "draw": "uniform", "num_clients": 20, "participation": 1.0}
    usual |= {"local_epochs": 1, "batch_size": 8, "lr": 0.01, "momentum": 0.5, "weight_decay": 0.0, "lam": 1.0}
    usual |= {"projection_head": False, "heterogeneous": None, "pretrained": None, "beta": None}
    assert own.flat().items() >= (usual | expected).items()
    assert settings.departures(own) == []


def test_under_label_shift_it_has_the_other_papers_settings():
    own, usual = (settings.resolve(METHODS, method=m, dataset="cifar10") for m in ("FedProto", "FedAvg"))
    assert own.hyperparameters["lam"] == 0.1
    assert {n: v for n, v in vars(own).items() if n not in ("method", "hyperparameters")} == {
        n: v for n, v in vars(usual).items() if n not in ("method", "hyperparameters")
    }


def test_every_method_has_the_number_of_rounds_that_it_is_said_to_need():
    rows = {tuple(row.split(", ")): cells["rounds"] for row, cells in reporting.printed("FedProto Table 1").items()}
    printed = {(dataset.lower(), method): rounds for (dataset, method), rounds in rows.items()}
    assert len(printed) == 3 * 8
    for (dataset, method), rounds in printed.items():
        options = {"method": method.removesuffix("-mh"), "dataset": dataset, "partition": "n-way-k-shot"}
        options["heterogeneous"] = True if method.endswith("-mh") else None
        own = settings.resolve(METHODS, **options)
        assert own.num_rounds == rounds or (method, rounds) == ("Local", 0)
        assert own.local_epochs == 1
        if method == "Local":  # which is said to need none: it has as many epochs as FedProto
            assert own.num_rounds == printed[dataset, "FedProto"]
    alone = settings.resolve(METHODS, method="SOLO", dataset="digits", partition="n-way-k-shot")
    assert (alone.num_rounds, alone.local_epochs) == (40, 1)  # not SOLO's of MOON


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("FedProto", {"lam": -1}, "lam is -1.0; it must be a number from 0"),
        ("FedProto", {"distance": "L2"}, "distance is 'L2'; it must be one of 'mse', 'squared', 'l2', 'l1'"),
        ("FedProto", {"weighted_prototypes": 1}, "weighted_prototypes is 1; it must be True or False"),
        ("FeSEM", {"num_clusters": 0}, "num_clusters is 0; it must be a whole number from 1"),
        ("FedPer", {"private": "head"}, "private is 'head'; it must be one of 'linear', 'classifier'"),
        ("FedRep", {"head_epochs": 0}, "head_epochs is 0; it must be a whole number from 1"),
        ("FedRep", {"lam": 1.0}, "FedRep has no parameter 'lam', which belongs to FedProto"),
    ],
)
def test_bad_hyperparameters_are_refused_in_a_sentence(method, given, message):
    with pytest.raises(settings.SettingsError, match=message):
        settings.resolve(METHODS, method=method, dataset="digits", **given)
