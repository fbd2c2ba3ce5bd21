"""FedPLCC and what it is compared with: against literal loops over ragged lists, each other, and numbers counted by hand."""

import copy
import dataclasses
import itertools
import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fednb.papers.fedplcc import (
    FPL,
    METHODS,
    FCCLPlus,
    FedPLCC,
    FedPLVM,
    FedProtoAveraged,
    cluster,
    contrast,
    correlation,
    cross_correlation,
    instance_similarity,
    non_target_divergence,
    public_batches,
    shares,
    similarity,
)

from fednb import models
from fednb.data import DataError, loading, public_images
from fednb.experiments import build, runner, settings
from fednb.federation import FedAvg
from fednb.finch import finch_star
from fednb.prototypes import join, padded, select


def public_of(federation, t):
    """The public batches of a round."""
    method = federation.method
    return public_batches(federation, method.public, method.public_size, method.public_batch, t)


LABELS = [(), (2,), (0, 1, 3), (0, 0, 0, 0, 0, 1, 1, 3), (3, 0, 2, 1, 0, 2, 2)]
CLASSES_OF = ([0, 1], [1, 2], [0, 1, 2], [2])
PUBLIC = {"public_size": 12, "public_batch": 5}  # two batches, and two images that are left over
ALL_METHODS = {
    "FPL": FPL(temperature=0.5),
    "FedPLVM": FedPLVM(lam=0.3),
    "FedPLCC": FedPLCC(lam1=0.3, lam2=3.0),
    "FedPLCC, w=1": FedPLCC(lam1=0.3, lam2=0.3, weighted=False),
    "FedPLCC, weighted mean": FedPLCC(lam1=0.3, lam2=3.0, weighted_mean=True),
    "FedProto+FedAvg": FedProtoAveraged(),
    "FCCL+": FCCLPlus(**PUBLIC),
}
WITH_PROTOTYPES = {name: method for name, method in ALL_METHODS.items() if name != "FCCL+"}


def vectors(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def prototypes_of(labels, capacity=None, dim=6, seed=1, even=False):
    """Random prototypes of these classes, with shares of their class as weights (or 1), padded as a step sees them."""
    made = {"vectors": vectors(len(labels), dim, seed=seed), "labels": torch.tensor(labels, dtype=torch.long)}
    weights = np.random.default_rng(seed).integers(1, 9, len(labels)) / 1.0
    for k in set(labels):
        own = np.array(labels) == k
        weights[own] /= weights[own].sum()
    made["weights"] = torch.from_numpy(np.ones(len(labels)) if even else weights)
    return padded(made, capacity or len(labels))


def lists(prototypes):
    """The vectors of each class with their weights, as ragged lists; padding is none."""
    weights = prototypes.get("weights", torch.ones(len(prototypes["labels"])))
    found = {}
    for label, *pair in zip(prototypes["labels"].tolist(), prototypes["vectors"].tolist(), weights.tolist(), strict=True):
        if label >= 0:
            found.setdefault(label, []).append(pair)
    return found


def literal_s(a, b, alpha):
    """Equation 7; a shorter vector than 1e-4 counts as that long, a smaller cosine than 1e-6 as that large."""
    lengths = [max(math.sqrt(sum(v * v for v in vector)), 1e-4) for vector in (a, b)]
    cosine = sum(p * q for p, q in zip(a, b, strict=True)) / lengths[0] / lengths[1]
    return cosine if alpha == 1 else max(cosine, 1e-6) ** alpha


def literal_contrast(z, y, prototypes, alpha, temperature):
    """Equation 6, image by image."""
    losses, known = [], lists(prototypes)
    for own, label in zip(z.tolist(), y.tolist(), strict=True):
        lumps = {k: sum(w * math.exp(literal_s(own, g, alpha) / temperature) for g, w in of) for k, of in known.items()}
        losses.append(-math.log(lumps[label] / sum(lumps.values())) if label in lumps else 0.0)
    return losses


def literal_correlation(z, y, prototypes, alpha, phi):
    """Equation 8, image by image."""
    losses, known = [], lists(prototypes)
    for own, label in zip(z.tolist(), y.tolist(), strict=True):
        products = sorted((w * literal_s(own, g, alpha) for g, w in known.get(label, [])), reverse=True)
        losses.append(-sum(products[: math.ceil(Fraction(str(phi)) * len(products))]))
    return losses


def cosine(a, b):
    return literal_s(a, b, 1)


# --- the losses of FedPLCC


@pytest.fixture
def agree(numeric_gradient):
    """A loss of each image and its gradient agree with a literal loop; returns the loss."""

    def compare(ours, literal, z):
        loss = ours(z)
        np.testing.assert_allclose(loss.detach(), literal(z.detach()), rtol=1e-9, atol=1e-11)
        (gradient,) = torch.autograd.grad(loss.sum(), z)
        np.testing.assert_allclose(gradient, numeric_gradient(literal, z), rtol=1e-4, atol=1e-6)
        return loss

    return compare


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("alpha", [1.0, 0.5, 0.25])
def test_the_contrast_and_its_gradient_are_those_of_literal_loops(agree, alpha, labels, even):
    z, y = vectors(5, 6).requires_grad_(), torch.tensor([0, 3, 2, 1, 0])
    for capacity in {max(len(labels), 1), 11}:
        p = prototypes_of(labels, capacity, even=even)
        ours = partial(lambda p, z: contrast(similarity(z, p, alpha), y, p, 0.07), p)
        loss = agree(ours, partial(literal_contrast, y=y, prototypes=p, alpha=alpha, temperature=0.07), z)
        assert (loss[[label not in labels for label in y.tolist()]] == 0).all()


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("alpha", [1.0, 0.5, 0.25])
def test_the_correlation_and_its_gradient_are_those_of_literal_loops(agree, alpha, labels, even):
    z, y = vectors(5, 6).requires_grad_(), torch.tensor([0, 3, 2, 1, 0])
    for capacity, phi in itertools.product({max(len(labels), 1), 11}, (1.0, 0.5, 0.1)):
        p = prototypes_of(labels, capacity, even=even)
        ours = partial(lambda p, phi, z: correlation(similarity(z, p, alpha), y, p, phi), p, phi)
        agree(ours, partial(literal_correlation, y=y, prototypes=p, alpha=alpha, phi=phi), z)


@pytest.mark.parametrize("alpha", [1.0, 0.5, 0.25])
def test_at_cosine_0_and_below_and_for_a_vector_of_zeros_everything_is_finite(alpha):
    rows = [[0.0, 0, 0], [0, 0, 2], [-1, -1, 0], [1, -1, 0], [1, 1e-7, 0], [1, 1e-3, 0]]
    z, y = torch.tensor(rows, dtype=torch.float64, requires_grad=True), torch.tensor([0, 0, 1, 1, 1, 1])
    prototypes = {"vectors": torch.tensor([[3.0, 0, 0], [0, 1, 0], [0, 0.5, 0]], dtype=torch.float64)}
    prototypes |= {"labels": torch.tensor([0, 1, 1]), "weights": torch.tensor([1.0, 0.75, 0.25], dtype=torch.float64)}
    prototypes = padded(prototypes, 4)
    s = similarity(z, prototypes, alpha)
    expected = [[literal_s(row, g, alpha) for g in prototypes["vectors"].tolist()] for row in rows]
    np.testing.assert_allclose(s.detach(), expected, rtol=1e-9, atol=1e-12)
    clamped = 1e-6**alpha
    if alpha < 1:
        np.testing.assert_allclose(s[:3, :3].detach(), clamped)
        np.testing.assert_allclose(s[4, 1].item(), clamped)
    losses = contrast(s, y, prototypes, 0.07), correlation(s, y, prototypes, 0.5)
    np.testing.assert_allclose(losses[0].detach(), literal_contrast(z.detach(), y, prototypes, alpha, 0.07), rtol=1e-9)
    np.testing.assert_allclose(losses[1].detach(), literal_correlation(z.detach(), y, prototypes, alpha, 0.5), rtol=1e-9)
    steepest = alpha * 1e-6 ** (alpha - 1)
    for loss, scale in zip(losses, (1 / 0.07, 1), strict=True):
        (gradient,) = torch.autograd.grad(loss.sum(), z, retain_graph=True)
        assert gradient.isfinite().all()
        assert (gradient[1:].norm(dim=1) <= 2 * scale * steepest).all()
        if alpha < 1:
            assert (gradient[:3] == 0).all()  # clamped: no direction is better than another
            assert gradient[5].norm() > 1
        else:
            assert (gradient[:2].norm(dim=1) > 0.1).all()


def test_the_derivative_of_the_power_is_alpha_times_the_power_less_one():
    z = torch.tensor([[math.cos(a), math.sin(a)] for a in (0.2, 0.9, 1.5)], dtype=torch.float64, requires_grad=True)
    g = {"vectors": torch.tensor([[2.0, 0]], dtype=torch.float64)}
    for alpha in (0.5, 0.25):
        (gradient,) = torch.autograd.grad(similarity(z, g, alpha).sum(), z)
        c, s = z.detach().unbind(1)
        np.testing.assert_allclose(gradient.norm(dim=1), alpha * c ** (alpha - 1) * s)


def test_the_best_part_of_a_class_is_ranked_by_similarity_times_weight():
    near, far = [math.cos(0.2), math.sin(0.2)], [math.cos(1.0), math.sin(1.0)]
    prototypes = {"vectors": torch.tensor([near, far, near]).double(), "labels": torch.tensor([1, 1, 0])}
    prototypes |= {"weights": torch.tensor([0.2, 0.8, 1.0]).double()}
    z, y = torch.tensor([[5.0, 0.0]]).double(), torch.tensor([1])
    s = similarity(z, prototypes)
    assert s[0, 0] > s[0, 1]
    assert 0.2 * s[0, 0] < 0.8 * s[0, 1]
    assert correlation(s, y, prototypes, 0.5).item() == pytest.approx(-0.8 * math.cos(1.0))
    even = prototypes | {"weights": torch.ones(3).double()}
    assert correlation(s, y, even, 0.5).item() == pytest.approx(-math.cos(0.2))
    assert correlation(s, y, even, 1.0).item() == pytest.approx(-math.cos(0.2) - math.cos(1.0))


@pytest.mark.parametrize("phi", [0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_as_many_prototypes_count_as_phi_times_their_number_rounded_up(phi, dtype):
    exact = Fraction(str(phi))
    for n in range(1, 61):  # in float32, 0.6 * 25 is more than 15
        labels = torch.tensor([0] * n + [1] * 3 + [-1] * 2)
        prototypes = {"labels": labels, "weights": torch.ones(len(labels), dtype=dtype)}
        s = torch.ones(2, len(labels), dtype=dtype)
        counted = -correlation(s, torch.tensor([0, 1]), prototypes, phi)
        assert counted.tolist() == [math.ceil(exact * n), math.ceil(exact * 3)], n


def test_however_small_phi_is_one_prototype_counts():
    prototypes = {"labels": torch.zeros(3, dtype=torch.long), "weights": torch.ones(3)}
    assert correlation(torch.ones(1, 3), torch.tensor([0]), prototypes, 1e-5).item() == -1


def test_only_the_prototypes_that_count_pull():
    prototypes = {"labels": torch.tensor([0, 0, 0, 0, 1]), "weights": torch.tensor([1.0, 2, 3, 4, 5])}
    s = torch.tensor([[0.9, 0.5, 0.1, 0.2, 1.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(correlation(s, torch.tensor([0]), prototypes, 0.5).sum(), s)
    assert gradient.tolist() == [[-1, -2, 0, 0, 0]]


def test_weights_are_priors_of_their_classes():
    """Twice the weight of a prototype is the same as having it twice; a weight of the other classes costs."""
    z, y = vectors(4, 6), torch.tensor([0, 1, 0, 1])
    once = prototypes_of([0, 0, 1], even=True)
    twice = join([once, select(once, torch.tensor([1]))])
    doubled = once | {"weights": torch.tensor([1.0, 2.0, 1.0]).double()}
    losses = [contrast(similarity(z, p, 0.5), y, p, 0.07) for p in (once, twice, doubled)]
    torch.testing.assert_close(losses[1], losses[2])
    assert (losses[0][y == 1] < losses[1][y == 1]).all()
    assert (losses[0][y == 0] > losses[1][y == 0]).all()


def test_the_losses_compile_in_one_piece_and_can_be_batched_over_clients():
    def losses(z, y, prototypes):
        s = similarity(z, prototypes, 0.5)
        return torch.stack([contrast(s, y, prototypes, 0.07), correlation(s, y, prototypes, 0.3)])

    z, y = vectors(3, 5, 6), torch.tensor([[0, 3, 2, 1, 0], [1, 1, 1, 2, 2], [3, 3, 3, 3, 0]])
    sets = [prototypes_of(labels, 8, seed=i) for i, labels in enumerate(([], [1, 1, 0], [3, 2, 3, 3, 1, 0]))]
    one_by_one = torch.stack([losses(*each) for each in zip(z, y, sets, strict=True)])
    torch._dynamo.reset()
    compiled = torch.compile(losses, fullgraph=True, backend="eager")
    torch.testing.assert_close(torch.stack([compiled(*each) for each in zip(z, y, sets, strict=True)]), one_by_one)
    stacked = {name: torch.stack([one[name] for one in sets]) for name in sets[0]}
    torch.testing.assert_close(torch.func.vmap(losses)(z, y, stacked), one_by_one)


# --- clusters with weights


def images_of(counts, dim=5, seed=0):
    """Representations of so many images of each class, in no order."""
    labels = torch.tensor([k for k, n in counts.items() for _ in range(n)], dtype=torch.long)
    labels = labels[torch.from_numpy(np.random.default_rng(seed).permutation(len(labels)))]
    return {"vectors": vectors(len(labels), dim, seed=seed).abs(), "labels": labels}


@pytest.mark.parametrize("weighted_mean", [False, True])
def test_clusters_keep_to_their_class_and_their_weights_to_the_number_of_images(weighted_mean):
    counts = {0: 30, 2: 1, 3: 17, 7: 2}  # of the other classes there is none
    local = [cluster(images_of(counts, seed=seed)) for seed in range(4)]
    for seed, found in enumerate(local):
        given = images_of(counts, seed=seed)
        assert found["weights"].dtype == torch.long
        assert found["labels"].unique().tolist() == [0, 2, 3, 7]
        for k, n in counts.items():
            own, members = select(found, found["labels"] == k), given["vectors"][given["labels"] == k]
            assert own["weights"].sum() == n
            expected = finch_star(members)
            assert torch.equal(own["vectors"], expected.centres)
            assert torch.equal(own["weights"], expected.labels.bincount())
        alone = select(found, found["labels"] == 2)
        assert torch.equal(alone["vectors"], given["vectors"][given["labels"] == 2])
        assert alone["weights"].tolist() == [1]
    pool = join(local)
    merged = cluster(pool, weighted_mean)
    for k, n in counts.items():
        own, members = select(merged, merged["labels"] == k), select(pool, pool["labels"] == k)
        assert own["weights"].sum() == 4 * n
        cluster_of = finch_star(members["vectors"]).labels
        assert len(own["labels"]) == cluster_of.max() + 1
        for c in range(len(own["labels"])):
            rows, weights = (members[name][cluster_of == c].double() for name in ("vectors", "weights"))
            assert own["weights"][c] == weights.sum()
            mean = (weights @ rows) / weights.sum() if weighted_mean else rows.mean(0)
            torch.testing.assert_close(own["vectors"][c], mean)
    assert len(merged["labels"]) < len(pool["labels"])
    in_class = torch.zeros(8).double().index_add_(0, merged["labels"], shares(merged)["weights"].double())
    torch.testing.assert_close(in_class, torch.tensor([1.0, 0, 1, 1, 0, 0, 0, 1]).double())
    torch.testing.assert_close(
        shares(merged)["weights"] * torch.tensor([120.0, 0, 4, 68, 0, 0, 0, 8])[merged["labels"]].double(),
        merged["weights"].double(),
    )
    assert all(torch.equal(shares(merged)[name], merged[name]) for name in ("vectors", "labels"))


def test_the_weighted_mean_changes_centres_where_weights_differ_and_nothing_else():
    pool = {"vectors": vectors(20, 4).abs(), "labels": torch.arange(20) % 2, "weights": 1 + torch.arange(20)}
    plain, weighted = cluster(pool), cluster(pool, True)
    assert all(torch.equal(plain[name], weighted[name]) for name in ("labels", "weights"))
    assert not torch.isclose(plain["vectors"], weighted["vectors"]).all(1).any()
    even = pool | {"weights": torch.full((20,), 3)}
    torch.testing.assert_close(cluster(even)["vectors"], cluster(even, True)["vectors"])


def test_a_set_without_prototypes_adds_nothing():
    some = images_of({0: 6, 1: 1})
    none = select(some, torch.zeros(7, dtype=torch.bool))
    found, alone = cluster(join([none, some, none])), cluster(some)
    assert all(torch.equal(found[name], alone[name]) for name in alone)


def test_of_nothing_there_is_no_cluster():
    found = cluster(images_of({}))
    assert {name: len(v) for name, v in shares(found).items()} == {"vectors": 0, "labels": 0, "weights": 0}


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_is_not_clustered_and_stays_what_it_is(bad):
    images = images_of({0: 4, 1: 3})
    images["vectors"][2, 1] = bad
    for given in (images, images | {"weights": 2 + torch.arange(7)}):
        found = cluster(given)
        assert all(torch.equal(found[name].nan_to_num(7), given[name].nan_to_num(7)) for name in ("vectors", "labels"))
        assert torch.equal(found["weights"], given.get("weights", torch.ones(7, dtype=torch.long)))
        assert not shares(found)["vectors"].isfinite().all()


@pytest.mark.parametrize("name", ALL_METHODS)
def test_a_run_that_blows_up_ends_as_diverged(name):
    method = ALL_METHODS[name]
    given = {k: v for k, v in vars(method).items() if not k.startswith("public")} | (PUBLIC if name == "FCCL+" else {})
    s = settings.resolve(
        METHODS, method=name.split(",")[0], dataset="digits", num_clients=3, num_rounds=3, lr=1e25, local_epochs=1, **given
    )
    record = runner.run(s, METHODS, workers=1)
    assert record["status"] == "diverged"
    assert record["final"] == {}


# --- what a client receives, and the loss of a batch


def given_of(fed, received, t=1):
    """What the first client's loss may read."""
    client = fed.clients[0]
    with fed.lend_model(client):
        client.load(received)
        return fed.method.prepare(client, received, t)


@pytest.fixture
def batch(batch_norm_net):
    """A network, six images, their labels, and their representations and logits as numbers."""
    net, x, y = batch_norm_net().eval(), torch.rand(6, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1, 1])
    z, logits = net(x)
    return net, x, y, z.detach().double(), F.cross_entropy(logits, y).item()


def in_floats(prototypes):
    return {name: v.float() if v.is_floating_point() else v for name, v in prototypes.items()}


KNOWN = (0, 0, 0, 2, 2, 0, 2)  # class 1 has no prototype


@pytest.mark.parametrize("number", range(10))
def test_a_received_set_is_padded_to_the_next_power_of_two(federate, number):
    fed = federate(FedPLCC())
    sent = in_floats(prototypes_of([i % 3 for i in range(number)], dim=4))
    given = given_of(fed, {"model": fed.server["model"], "prototypes": sent})
    room = {0: 1, 1: 1, 2: 2, 3: 4, 4: 4}.get(number, 8 if number <= 8 else 16)
    assert given["prototypes"]["labels"].tolist() == sent["labels"].tolist() + [-1] * (room - number)
    assert torch.equal(given["prototypes"]["weights"][:number], sent["weights"])
    assert given["means"]["labels"].shape == (3,)
    without = {name: sent[name] for name in ("vectors", "labels")}
    ones = given_of(fed, {"model": fed.server["model"], "prototypes": without})["prototypes"]["weights"]
    assert ones.shape == (room,)
    assert ones.dtype == torch.float32
    assert (ones[:number] == 1).all()


@pytest.mark.parametrize("labels", [KNOWN, (1,), ()])
@pytest.mark.parametrize("given", [{"phi": 0.5, "alpha": 0.5}, {"phi": 1.0, "alpha": 1.0, "temperature": 0.3}])
def test_fedplccs_loss_is_made_of_its_terms(federate, batch, labels, given):
    net, x, y, z, cross_entropy = batch
    method = FedPLCC(lam1=0.3, lam2=7.0, **given)
    fed, sent = federate(method), prototypes_of(labels, dim=4)
    terms = method.loss(net, x, y, given_of(fed, {"model": fed.server["model"], "prototypes": in_floats(sent)}))
    assert list(terms) == ["cross_entropy", "contrastive", "correlation"]
    assert terms["cross_entropy"].item() == cross_entropy
    contrastive = 0.3 * np.mean(literal_contrast(z, y, sent, method.alpha, method.temperature))
    drawn = 7.0 * np.mean(literal_correlation(z, y, sent, method.alpha, method.phi))
    assert terms["contrastive"].item() == pytest.approx(contrastive, rel=1e-4, abs=1e-6)
    assert terms["correlation"].item() == pytest.approx(drawn, rel=1e-4, abs=1e-6)
    for name, off in (("contrastive", FedPLCC(lam1=0.0)), ("correlation", FedPLCC(lam2=0.0))):
        assert name not in off.loss(net, x, y, given_of(fed, {"model": fed.server["model"], "prototypes": in_floats(sent)}))


def class_mean(prototypes, label):
    """The plain mean of the prototypes of a class, or None."""
    rows = [g for g, _ in lists(prototypes).get(label, [])]
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)] if rows else None


@pytest.mark.parametrize("labels", [KNOWN, (1,), ()])
def test_fpls_loss_is_made_of_its_terms(federate, batch, labels):
    net, x, y, z, cross_entropy = batch
    method, sent = FPL(temperature=0.2), prototypes_of(labels, dim=4, even=True)
    sent = {name: sent[name] for name in ("vectors", "labels")}
    fed = federate(method)
    terms = method.loss(net, x, y, given_of(fed, {"model": fed.server["model"], "prototypes": in_floats(sent)}))
    assert list(terms) == ["cross_entropy", "contrastive", "unbiased"]
    assert terms["cross_entropy"].item() == cross_entropy
    contrastive = np.mean(literal_contrast(z, y, sent, 1, 0.2))
    assert terms["contrastive"].item() == pytest.approx(contrastive, rel=1e-4, abs=1e-6)
    pairs = [(own, class_mean(sent, k)) for own, k in zip(z.tolist(), y.tolist(), strict=True)]
    distances = [np.mean(np.square(np.subtract(own, mean))) for own, mean in pairs if mean]
    assert terms["unbiased"].item() == pytest.approx(sum(distances) / len(y), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("labels", [KNOWN, (1,), ()])
@pytest.mark.parametrize("alpha", [0.25, 1.0])
def test_fedplvms_loss_is_made_of_its_terms(federate, batch, labels, alpha):
    net, x, y, z, cross_entropy = batch
    method, sent = FedPLVM(lam=3.0, temperature=0.3, alpha=alpha), prototypes_of(labels, dim=4, even=True)
    sent = {name: sent[name] for name in ("vectors", "labels")}
    fed = federate(method)
    terms = method.loss(net, x, y, given_of(fed, {"model": fed.server["model"], "prototypes": in_floats(sent)}))
    assert list(terms) == ["cross_entropy", "contrastive", "correction"]
    assert terms["cross_entropy"].item() == cross_entropy
    contrastive = 3.0 * np.mean(literal_contrast(z, y, sent, alpha, 0.3))
    assert terms["contrastive"].item() == pytest.approx(contrastive, rel=1e-4, abs=1e-6)
    pairs = [(own, class_mean(sent, k)) for own, k in zip(z.tolist(), y.tolist(), strict=True)]
    away = [2 * (1 - cosine(own, mean)) ** 2 for own, mean in pairs if mean]
    assert terms["correction"].item() == pytest.approx(3.0 * sum(away) / len(y), rel=1e-4, abs=1e-6)


def test_gradients_of_the_losses_of_fpl_and_fedplvm(federate, batch_norm_net, numeric_gradient):
    """By finite differences in z, for a network that is the identity."""

    class Identity(torch.nn.Module):
        def forward(self, z):
            return models.Output(z, torch.zeros(len(z), 3, dtype=z.dtype) + 0 * z.sum())

    sent = {name: v for name, v in prototypes_of(KNOWN, dim=4).items() if name != "weights"}
    y = torch.tensor([0, 1, 2, 0])
    z = vectors(4, 4, seed=5).requires_grad_()

    def distances(moved, of):
        pairs = [(own, class_mean(sent, k)) for own, k in zip(moved.tolist(), y.tolist(), strict=True)]
        return [of(own, mean) / len(y) for own, mean in pairs if mean]

    def fpl(moved):
        mse = distances(moved, lambda own, mean: np.mean(np.square(np.subtract(own, mean))))
        return mse + [v / len(y) for v in literal_contrast(moved, y, sent, 1, 0.2)]

    def fedplvm(moved):
        away = distances(moved, lambda own, mean: 3 * 2 * (1 - cosine(own, mean)) ** 2)
        return away + [3 * v / len(y) for v in literal_contrast(moved, y, sent, 0.25, 0.3)]

    for method, literal in ((FPL(temperature=0.2), fpl), (FedPLVM(lam=3.0, temperature=0.3), fedplvm)):
        fed = federate(method)
        given = given_of(fed, {"model": fed.server["model"], "prototypes": sent})
        terms = method.loss(Identity(), z, y, given)
        (gradient,) = torch.autograd.grad(sum(list(terms.values())[1:]), z)
        np.testing.assert_allclose(gradient, numeric_gradient(literal, z), rtol=1e-4, atol=1e-6)
        assert (gradient[y == 1] == 0).all()


@pytest.mark.parametrize("name", ALL_METHODS)
def test_a_loss_runs_the_network_once(federate, batch, name):
    net, x, y, *_ = batch
    method, calls = ALL_METHODS[name], []
    fed = federate(method)
    received = {"model": fed.server["model"], "prototypes": in_floats(prototypes_of((0, 2), dim=4))}
    given = {"teacher": fed.server["model"]} if name == "FCCL+" else given_of(fed, received)
    net.register_forward_hook(lambda *_: calls.append(1))
    assert torch.is_tensor(sum(method.loss(net, x, y, given).values()))
    assert len(calls) == 1


# --- against FedAvg


@pytest.mark.parametrize("given", [{}, {"weighted": False}, {"weighted_mean": True, "phi": 1.0, "alpha": 1.0}])
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_without_both_terms_fedplcc_is_fedavg_bit_for_bit(ragged, identical, rounds, given, participation):
    make = partial(ragged, classes_of=CLASSES_OF, participation=participation, local_epochs=1)
    expected = rounds(make(FedAvg()), 3)
    assert identical(rounds(make(FedPLCC(lam1=0.0, lam2=0.0, **given)), 3), expected)
    for one in ({"lam1": 0.0}, {"lam2": 0.0}) if participation == 1 else ():
        assert not identical(rounds(make(FedPLCC(**{"lam1": 0.1, "lam2": 0.1} | one | given)), 3), expected)


@pytest.mark.parametrize("name", WITH_PROTOTYPES)
def test_the_first_round_is_fedavgs(ragged, identical, rounds, name):
    fed, plain = (ragged(method, CLASSES_OF) for method in (WITH_PROTOTYPES[name], FedAvg()))
    assert identical(rounds(fed), rounds(plain))
    terms = [n for n in fed.history[0] if n.startswith("loss/") and n != "loss/cross_entropy"]
    assert terms
    assert all(fed.history[0][n] == 0 for n in terms)
    assert not identical(rounds(fed), rounds(plain))
    assert all(fed.history[1][n] != 0 for n in terms)


@pytest.mark.parametrize("name", ALL_METHODS)
def test_no_term_of_a_round_is_silent(ragged, identical, name):
    """Each changes what a second round ends with."""

    def second(silent=None):
        fed = ragged(copy.copy(ALL_METHODS[name]), CLASSES_OF, local_epochs=1)
        fed.run_round()
        loss = fed.method.loss
        fed.method.loss = lambda *given: {n: v for n, v in loss(*given).items() if n != silent}
        return fed.run_round(), fed.server["model"]

    entry, model = second()
    terms = [n.removeprefix("loss/") for n in entry if n.startswith("loss/")]
    assert len(terms) == (2 if name in ("FedProto+FedAvg", "FCCL+") else 3)
    assert not any(identical(second(term)[1], model) for term in terms)


def test_fedproto_with_averaged_weights_is_fedavg_and_the_distance(ragged, batch, identical, rounds):
    expected = rounds(ragged(FedAvg(), CLASSES_OF), 3)
    assert identical(rounds(ragged(FedProtoAveraged(lam=0.0), CLASSES_OF), 3), expected)
    fed = ragged(FedProtoAveraged(), CLASSES_OF)
    assert not identical(rounds(fed, 3), expected)
    assert fed.history[0]["loss/prototypes"] == 0 < fed.history[1]["loss/prototypes"]
    net, x, y, z, cross_entropy = batch
    sent = prototypes_of((0, 2), dim=4)
    sent = {name: sent[name] for name in ("vectors", "labels")}
    given = given_of(fed, {"model": fed.server["model"], "prototypes": in_floats(sent)})
    terms = FedProtoAveraged(lam=0.3).loss(net, x, y, given)
    assert list(terms) == ["cross_entropy", "prototypes"]
    assert terms["cross_entropy"].item() == cross_entropy
    pairs = [(own, class_mean(sent, k)) for own, k in zip(z.tolist(), y.tolist(), strict=True)]
    distances = [np.mean(np.square(np.subtract(own, mean))) for own, mean in pairs if mean]
    assert terms["prototypes"].item() == pytest.approx(0.3 * sum(distances) / len(y), rel=1e-5)


# --- what crosses, and what the server makes of it


def representations(fed, state, client):
    """Of a client's images as they are, by a network in eval mode; and their labels."""
    net = fed.build_model()
    net.load_state_dict(state)
    images = torch.cat(list(fed.plain_batches(client.indices)))
    return net.eval()(images).representation.detach(), fed.labels[client.indices]


@pytest.mark.parametrize("name", WITH_PROTOTYPES)
def test_what_is_sent_and_kept_by_hand(ragged, name):
    fed, plain = ragged(WITH_PROTOTYPES[name], CLASSES_OF), ragged(FedAvg(), CLASSES_OF)
    method, uploads = fed.method, []
    merge = method.merge
    fed.method = method = copy.copy(method)
    method.merge = lambda server, given, t: (uploads.extend(given), merge(server, given, t))[1]
    fed.run_round(), plain.run_round()
    weights_cross = name in ("FedPLCC", "FedPLCC, weighted mean")
    clusters = name.startswith(("FedPLCC", "FedPLVM"))
    up, pool = 0, {}
    for client, upload in zip(fed.clients, uploads, strict=True):
        sent = upload["prototypes"]
        assert sent.keys() == {"vectors", "labels"} | ({"weights"} if weights_cross else set())
        z, y = representations(fed, upload["model"], client)
        assert sent["labels"].unique().tolist() == CLASSES_OF[client.id]
        for k in CLASSES_OF[client.id]:
            own, rows = select(sent, sent["labels"] == k), z[y == k]
            expected = finch_star(rows)
            centres = expected.centres if clusters else rows.mean(0, keepdim=True)
            torch.testing.assert_close(own["vectors"], centres)
            if weights_cross:
                assert own["weights"].tolist() == expected.weights.tolist()
                assert own["weights"].sum() == (y == k).sum()
            pool.setdefault(k, []).append((own["vectors"], expected.weights if clusters else torch.ones(1)))
        up += len(sent["labels"])
    row, row_bytes = 4 + 1 + weights_cross, 4 * 4 + 8 + 8 * weights_cross
    assert fed.traffic["up"]["prototypes"] == (up * row, up * row_bytes)
    assert fed.traffic["down"]["prototypes"] == (0, 0)
    rest = {d: {n: v for n, v in names.items() if n != "prototypes"} for d, names in fed.traffic.items()}
    assert rest == plain.traffic
    kept, total = fed.server["prototypes"], 0
    normalised = name in ("FedPLCC", "FedPLCC, weighted mean")
    assert kept.keys() == {"vectors", "labels"} | ({"weights"} if normalised else set())
    for k, parts in pool.items():
        own = select(kept, kept["labels"] == k)
        rows, weights = (torch.cat(values) for values in zip(*parts, strict=True))
        if name == "FedProto+FedAvg":
            centres = rows.mean(0, keepdim=True)
        else:
            centres, summed, _ = finch_star(rows, weights, weighted_mean=name == "FedPLCC, weighted mean")
            if normalised:
                torch.testing.assert_close(own["weights"], summed / summed.sum())
        torch.testing.assert_close(own["vectors"], centres)
        total += len(centres)
    assert len(kept["labels"]) == total
    fed.run_round()
    row, row_bytes = 4 + 1 + normalised, 4 * 4 + 8 + 4 * normalised
    assert fed.traffic["down"]["prototypes"] == (4 * total * row, 4 * total * row_bytes)
    assert all(client.memory == {} for client in fed.clients)
    if name.startswith("FedPLCC"):
        given = given_of(fed, fed.method.broadcast(fed.server, 0))["prototypes"]
        sums = [given["weights"][given["labels"] == k].sum().item() for k in range(3)]
        numbers = [(given["labels"] == k).sum().item() for k in range(3)]
        assert sums == pytest.approx([1, 1, 1] if normalised else numbers)
        assert max(numbers) > 1 or normalised


def test_weights_cross_where_a_weighted_mean_needs_them_though_the_loss_does_not(ragged):
    fed = ragged(FedPLCC(weighted=False, weighted_mean=True), CLASSES_OF)
    uploads = fed.exchange(fed.server, fed.clients, 0)
    assert all("weights" in upload["prototypes"] for upload in uploads)
    server = fed.method.aggregate(fed.server, uploads, 0)
    assert server["prototypes"].keys() == {"vectors", "labels"}
    expected = cluster(join([u["prototypes"] for u in uploads]), True)
    assert torch.equal(server["prototypes"]["vectors"], expected["vectors"])
    assert not torch.equal(cluster(join([u["prototypes"] for u in uploads]))["vectors"], expected["vectors"])


@pytest.mark.parametrize("name", WITH_PROTOTYPES)
def test_a_class_whose_only_holder_is_not_sampled_keeps_its_prototypes(ragged, name, identical):
    fed = ragged(WITH_PROTOTYPES[name], ([0], [1], [1], [2]), participation=0.5)
    before = fed.server["prototypes"]
    kept = 0
    for t in range(4):
        sampled = {([0], [1], [1], [2])[client.id][0] for client in fed.sample(t)}
        fed.run_round()
        after = fed.server["prototypes"]
        for k in set(before["labels"].tolist()) - sampled:
            assert identical(*(select(p, p["labels"] == k) for p in (before, after)))
            kept += 1
        assert set(after["labels"].tolist()) == set(before["labels"].tolist()) | sampled
        before = after
    assert kept > 0


# --- results depend on the settings alone


@pytest.mark.parametrize("name", ALL_METHODS)
def test_workers_do_not_change_a_result(ragged, identical, name):
    ends = []
    for workers in (1, 3):
        fed = ragged(ALL_METHODS[name], CLASSES_OF, workers=workers)
        accuracies = [fed.run_round()["accuracy"] for _ in range(2)]
        ends.append([fed.server, [client.memory for client in fed.clients], accuracies])
    assert identical(*ends)


@pytest.mark.parametrize("name", ALL_METHODS)
def test_a_restored_federation_goes_on_as_if_nothing_had_happened(ragged, identical, with_and_without_a_break, name):
    make = partial(ragged, ALL_METHODS[name], CLASSES_OF, participation=0.5)
    assert identical(*with_and_without_a_break(make, 4, 2))


CHANGED = {
    "FPL": {"temperature": 0.1},
    "FedPLVM": {"lam": 0.5, "alpha": 0.5, "temperature": 0.2},
    "FedPLCC": {
        **{"lam1": 0.1, "lam2": 1.0, "phi": 1.0, "alpha": 0.25, "temperature": 0.2},
        **{"weighted": False, "weighted_mean": True},
    },
    "FedProto+FedAvg": {"lam": 0.5},
    "FCCL+": {
        **{"public": "digits", "public_size": 10, "public_batch": 4, "public_lr": 0.01},
        **{"similarity_weight": 1.0, "similarity_temperature": 0.1, "temperature": 1.0},
    },
}


@pytest.mark.parametrize(("name", "parameter"), [(n, p) for n, changes in CHANGED.items() for p in changes])
def test_a_changed_hyperparameter_changes_what_comes_out(ragged, identical, rounds, name, parameter):
    method = Strangers(**PUBLIC) if name == "FCCL+" else ALL_METHODS[name]
    changed = type(method)(**vars(method) | {parameter: CHANGED[name][parameter]})
    plain, other = (rounds(ragged(m, CLASSES_OF, local_epochs=1), 2) for m in (method, changed))
    apart = max((plain[n] - other[n]).abs().max().item() for n in plain if plain[n].is_floating_point())
    assert apart > 1e-4  # more than rounding


def test_every_hyperparameter_is_among_the_changed():
    for name, changes in CHANGED.items():
        assert {f.name for f in dataclasses.fields(METHODS[name])} == set(changes)


# --- FCCL+


class Strangers(FCCLPlus):
    """FCCL+ whose clients come with different networks."""

    def broadcast(self, server, client_id):
        message = super().broadcast(server, client_id)
        if "model" not in message:
            return message
        moved = {n: v.numel() for n, v in message["model"].items() if v.is_floating_point() and "running" not in n}
        waves = {n: 0.2 * torch.sin(torch.arange(1.0, number + 1) * (client_id + 1)) for n, number in moved.items()}
        return message | {"model": {n: v + waves[n].view_as(v) if n in waves else v for n, v in message["model"].items()}}


def literal_cross_correlation(own, others, off_diagonal=0.0051):
    """Equation 4 of FCCL+ in loops; its terms."""

    def standard(columns):
        found = []
        for column in columns:
            mean = sum(column) / len(column)
            variance = sum((v - mean) ** 2 for v in column) / len(column)
            found.append([(v - mean) / (variance + 1e-5) ** 0.5 for v in column])
        return found

    a, b = (standard(list(zip(*v, strict=True))) for v in (own, others))
    terms = []
    for j, first in enumerate(a):
        for k, second in enumerate(b):
            c = sum(p * q for p, q in zip(first, second, strict=True)) / len(first)
            terms.append((c - 1) ** 2 if j == k else off_diagonal * (c + 1) ** 2)
    return terms


def test_cross_correlation_is_that_of_literal_loops(numeric_gradient):
    own, others = vectors(7, 4).requires_grad_(), vectors(7, 4, seed=3)
    loss = cross_correlation(own, others)
    assert loss.item() == pytest.approx(sum(literal_cross_correlation(own.tolist(), others.tolist())), rel=1e-10)
    (gradient,) = torch.autograd.grad(loss, own)
    numeric = numeric_gradient(lambda moved: literal_cross_correlation(moved.tolist(), others.tolist()), own)
    np.testing.assert_allclose(gradient, numeric, atol=1e-7)
    same = cross_correlation(others, 5 * others - 2)
    assert same.item() < loss.item()
    without = cross_correlation(others, others, 0.0)
    assert without.item() == pytest.approx(0, abs=1e-5)
    constant = cross_correlation(torch.ones(7, 4), torch.ones(7, 4))
    assert constant.item() == pytest.approx(4 + 12 * 0.0051)


def test_instance_similarity_leaves_out_the_image_itself():
    z = vectors(5, 3)
    z[2] = 0
    found = instance_similarity(z)
    assert found.shape == (5, 4)
    rows = z.tolist()
    for i, own in enumerate(rows):
        np.testing.assert_allclose(found[i], [cosine(own, other) for j, other in enumerate(rows) if j != i], atol=1e-12)


def literal_divergence(logits, teacher, y, temperature):
    """T² Σ p_T log(p_T / p) over the other classes, each image divided by how many there are."""
    found = []
    for own, other, label in zip(logits.tolist(), teacher.tolist(), y.tolist(), strict=True):
        p, q = ([math.exp(v / temperature) for v in row] for row in (own, other))
        p, q = ([v / sum(row) for v in row] for row in (p, q))
        terms = [b * math.log(b / a) for k, (a, b) in enumerate(zip(p, q, strict=True)) if k != label]
        found.append(temperature**2 * sum(terms) / len(y))
    return found


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_the_divergence_leaves_the_target_out_and_does_not_renormalise(numeric_gradient, temperature):
    logits, teacher, y = 2 * vectors(6, 4), 2 * vectors(6, 4, seed=2), torch.tensor([0, 1, 2, 3, 0, 1])
    logits.requires_grad_()
    loss = non_target_divergence(logits, teacher, y, temperature)
    assert loss.item() == pytest.approx(sum(literal_divergence(logits.detach(), teacher, y, temperature)), rel=1e-10)
    (gradient,) = torch.autograd.grad(loss, logits)
    numeric = numeric_gradient(lambda moved: literal_divergence(moved, teacher, y, temperature), logits)
    np.testing.assert_allclose(gradient, numeric, atol=1e-7)
    others = torch.ones(6, 4, dtype=torch.bool).scatter(1, y[:, None], False)
    rows = [v[others].view(6, 3) / temperature for v in (logits.detach(), teacher)]
    renormalised = F.kl_div(rows[0].log_softmax(1), rows[1].log_softmax(1), reduction="batchmean", log_target=True)
    assert loss.item() != pytest.approx(temperature**2 * renormalised.item(), rel=0.01)
    raised = teacher + 3 * F.one_hot(y, 4)  # only how likely the target is changes
    assert non_target_divergence(logits, raised, y, temperature).item() != pytest.approx(loss.item(), rel=0.01)
    assert non_target_divergence(teacher, teacher, y, temperature).item() == 0


def test_the_loss_at_home_keeps_what_the_teacher_knew(batch_norm_net):
    net, x, y = batch_norm_net(), torch.rand(6, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1, 1])
    old = batch_norm_net(seed=4).eval()
    teacher = {name: value.clone() for name, value in old.state_dict().items()}
    terms = FCCLPlus(temperature=2.0).loss(net.train(), x, y, {"teacher": teacher})
    assert list(terms) == ["cross_entropy", "distillation"]
    logits = batch_norm_net().train()(x).logits
    assert terms["cross_entropy"].item() == pytest.approx(F.cross_entropy(logits, y).item())
    expected = sum(literal_divergence(logits.detach().double(), old(x).logits.detach().double(), y, 2.0))
    assert terms["distillation"].item() == pytest.approx(expected, rel=1e-4)
    sum(terms.values()).backward()
    assert all(not value.requires_grad for value in teacher.values())


def public_loss(net, x, logits, similarities, weight, temperature):
    """What one client minimises on a public batch, by literal loops over float64 scalars."""
    z, own = net(x)
    loss = sum(literal_cross_correlation(list(own.unbind()), logits.tolist()))
    for i in range(len(x)):
        row = [F.cosine_similarity(z[i], z[j], dim=0, eps=1e-8) / temperature for j in range(len(x)) if j != i]
        others = [math.exp(s / temperature) for s in similarities[i].tolist()]
        total = sum(torch.exp(s) for s in row)
        for s, q in zip(row, (v / sum(others) for v in others), strict=True):
            loss = loss + weight / len(x) * q * (math.log(q) - torch.log(torch.exp(s) / total))
    return loss


def test_the_public_step_is_one_step_of_adam_on_the_literal_loss(federate):
    method = FCCLPlus(public_lr=0.003, similarity_weight=2.0, similarity_temperature=0.3)
    fed = federate(method)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 1, 8, 8))).float()
    received = {"logits": vectors(6, 3, seed=8).float(), "similarities": vectors(6, 5, seed=9).tanh().float()}
    client, ends = fed.clients[1], []
    for dirt in (0.0, 1e3):  # gradients that another client has left behind
        client.memory["model"] = client.random_weights()
        with fed.lend_model(client):
            for parameter in client.model.parameters():
                parameter.grad = torch.full_like(parameter, dirt)
            assert method.agree(client, received, 0, x) == {}
        ends.append(client.memory["model"])
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())
    net = fed.build_model().double().train()
    net.load_state_dict(client.random_weights())
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    public_loss(net, x.double(), received["logits"].double(), received["similarities"].double(), 2.0, 0.3).backward()
    compared = 0
    for name, p in net.named_parameters():
        sure = p.grad.abs() > 1e-4  # of the others (biases before a standardisation) only rounding is left
        step = before[name] - 0.003 * p.grad / (p.grad.abs() + 1e-8)
        torch.testing.assert_close(ends[0][name].double()[sure], step[sure], rtol=0, atol=3e-6)
        assert ((ends[0][name].double() - before[name]).abs() <= 0.00301).all()
        compared += int(sure.sum())
    assert compared > 0.7 * sum(p.numel() for p in net.parameters())
    assert ends[0]["encoder.1.num_batches_tracked"] == client.random_weights()["encoder.1.num_batches_tracked"] + 1
    torch.testing.assert_close(ends[0]["encoder.1.running_mean"].double(), net.encoder[1].running_mean, rtol=1e-4, atol=1e-6)


def watched(fed, name):
    """What a method of the federation's method is called with, and what it returns, client by client."""
    seen, original = {}, getattr(fed.method, name)

    def call(client, received, t, **given):
        found = original(client, received, t, **given)
        memory = {n: v for n, v in client.memory.items()}
        seen.setdefault(client.id, []).append((received, found, memory))
        return found

    fed.method = copy.copy(fed.method)
    setattr(fed.method, name, call)
    return seen


def test_a_round_of_clients_with_different_networks_by_hand(federate, identical):
    fed = federate(Strangers(**PUBLIC, similarity_temperature=0.3))
    begin = fed.server
    looked, agreed, prepared = (watched(fed, name) for name in ("look", "agree", "prepare"))
    batches = public_of(fed, 0)
    fed.run_round()
    assert [len(x) for x in batches] == [5, 5]
    for i, client in enumerate(fed.clients):
        own = fed.method.broadcast(begin, i)["model"]
        for b, x in enumerate(batches):
            net = fed.build_model().train()
            net.load_state_dict(own if b == 0 else agreed[i][b - 1][2]["model"])
            z, logits = net(x)
            sent = looked[i][b][1]
            assert sent.keys() == {"logits", "similarities"}
            torch.testing.assert_close(sent["logits"], logits.detach())
            torch.testing.assert_close(sent["similarities"], instance_similarity(z).detach())
            mean = agreed[i][b][0]
            assert mean.keys() == {"logits", "similarities"}
            for name in mean:  # of all clients, also of this one
                everybodys = sum(looked[j][b][1][name] for j in range(4)) / 4
                torch.testing.assert_close(mean[name], everybodys)
                assert (everybodys - sent[name]).abs().max() > 1e-3
        given = prepared[i][0][1]
        assert identical(given["teacher"], own)  # as received, before the public images
        state = agreed[i][-1][2]["model"]
        assert not identical(state, own)
        assert state["encoder.1.num_batches_tracked"] == own["encoder.1.num_batches_tracked"] + 2
        assert client.memory == {}


def test_with_averaged_networks_all_clients_are_one_after_the_public_images(federate, identical):
    fed = federate(FCCLPlus(**PUBLIC))
    for t in range(2):
        begin = fed.server["model"]
        agreed, prepared = watched(fed, "agree"), watched(fed, "prepare")
        fed.run_round()
        states = [calls[-1][2]["model"] for calls in agreed.values()]
        assert len(states) == 4
        assert all(identical(state, states[0]) for state in states)
        assert not identical(states[0], begin)
        assert all(identical(calls[0][1]["teacher"], begin) for calls in prepared.values())
        assert all(client.memory == {} for client in fed.clients), t
    checkpoint = fed.checkpoint()
    assert checkpoint["memories"] == [{}] * 4
    assert checkpoint["server"].keys() == {"model", "seed"}


def test_with_dropout_too_all_clients_look_in_the_same_way(federate, make_dataset, identical):
    """Equal networks and equal images, but unequal masks would make unequal logits."""
    build = partial(models.build, "mnist-cnn", 10, channels=1, side=28, projection_head=False)
    data = make_dataset(images=48, shape=(1, 28, 28), num_classes=10)
    options = {"build_model": build, "dataset": data, "sizes": (16,) * 3, "batch_size": 8, "local_epochs": 1, "lr": 0.01}
    fed = federate(FCCLPlus(**PUBLIC), **options)
    looked, agreed = watched(fed, "look"), watched(fed, "agree")
    fed.run_round()
    for calls in (looked, agreed):
        assert sorted(calls) == [0, 1, 2]
    sent, states = ([calls[i][0] for i in range(3)] for calls in (looked, agreed))
    assert all(torch.equal(one[1][name], sent[0][1][name]) for one in sent for name in ("logits", "similarities"))
    assert all(identical(one[2]["model"], states[0][2]["model"]) for one in states)


def test_training_at_home_goes_on_from_the_public_steps(federate, identical):
    """Without epochs at home, what the clients send is what the public images left."""
    fed = federate(Strangers(**PUBLIC), local_epochs=0)
    agreed = watched(fed, "agree")
    uploads = []
    aggregate = fed.method.aggregate
    fed.method.aggregate = lambda server, given, t: (uploads.extend(given), aggregate(server, given, t))[1]
    fed.method.round(fed, fed.server, fed.clients, 0)
    assert all(identical(u["model"], agreed[u["client"]][-1][2]["model"]) for u in uploads)
    assert len(uploads) == 4


def test_what_fccl_sends_by_hand(federate):
    fed, plain = federate(FCCLPlus(**PUBLIC)), federate(FedAvg())
    fed.run_round(), plain.run_round()
    numbers = {"logits": 4 * 2 * 5 * 3, "similarities": 4 * 2 * 5 * 4}  # clients, batches, images, classes or other images
    expected = {name: (number, 4 * number) for name, number in numbers.items()}
    assert fed.traffic["down"] == plain.traffic["down"] | expected
    assert fed.traffic["up"] == plain.traffic["up"] | expected


def test_of_sampled_clients_alone_is_the_mean(federate):
    fed = federate(Strangers(**PUBLIC), participation=0.5)
    agreed, looked = watched(fed, "agree"), watched(fed, "look")
    sampled = [client.id for client in fed.sample(0)]
    entry = fed.run_round()
    assert len(sampled) == 2
    assert sorted(agreed) == sampled
    mean = sum(looked[i][0][1]["logits"] for i in sampled) / 2
    torch.testing.assert_close(agreed[sampled[0]][0][0]["logits"], mean)
    assert entry["finite"]
    assert fed.run_round()["finite"]


@pytest.mark.parametrize("workers", [1, 3])
def test_strangers_do_not_get_each_others_gradients(federate, identical, workers):
    """One network serves all clients of a worker."""
    ends = [federate(Strangers(**PUBLIC), workers=w) for w in (workers, 4)]
    for fed in ends * 2:
        fed.run_round()
    assert identical(ends[0].server, ends[1].server)


@pytest.mark.parametrize("workers", [1, 3])
def test_with_dropout_too_a_restored_federation_goes_on(
    federate, make_dataset, identical, with_and_without_a_break, workers
):
    build = partial(models.build, "mnist-cnn", 10, channels=1, side=28, projection_head=False)
    data = make_dataset(images=48, shape=(1, 28, 28), num_classes=10)
    made = iter((1, workers, workers))  # the whole run has one worker
    options = {"build_model": build, "dataset": data, "sizes": (16,) * 3, "batch_size": 8, "local_epochs": 1, "lr": 0.01}
    ends = with_and_without_a_break(lambda: federate(FCCLPlus(**PUBLIC), workers=next(made), **options), 2, 1)
    assert identical(*ends)


# --- public images


def test_public_images_are_the_same_for_everybody_and_whenever_they_are_asked_for():
    photographs = public_images("photographs", 20, 3, 16)
    public_images.cache_clear()
    assert torch.equal(photographs, public_images("photographs", 20, 3, 16))
    assert torch.equal(photographs[:7], public_images("photographs", 7, 3, 16))


@pytest.mark.parametrize("name", ["photographs", "grey", "coloured"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [8, 12])
def test_public_images_have_the_shape_that_the_network_needs(monkeypatch, make_dataset, name, channels, side):
    sets = {"grey": make_dataset(shape=(1, 8, 8)), "coloured": make_dataset(shape=(3, 8, 8))}
    monkeypatch.setattr(loading, "load", sets.get)
    images = public_images(name, 9, channels, side)
    assert images.shape == (9, channels, side, side)
    assert images.dtype == torch.uint8
    assert (images.flatten(1).float().std(1) > 0).all()
    assert len({image.numpy().tobytes() for image in images}) == 9


def test_grey_public_images_are_the_mean_of_the_coloured_ones():
    grey, coloured = (public_images("photographs", 5, channels, 16) for channels in (1, 3))
    assert ((coloured.float().mean(1) - grey[:, 0]).abs() <= 0.5).all()
    assert (coloured[:, 0] != coloured[:, 1]).any()


def test_public_images_of_a_data_set_are_its_training_images_without_repetition():
    images = public_images("digits", 50, 1, 8)
    known = {image.numpy().tobytes() for image in build.load_dataset("digits").images}
    assert all(image.numpy().tobytes() in known for image in images)
    assert not torch.equal(images, build.load_dataset("digits").images[:50])
    everything = public_images("digits", 10**6, 1, 8)
    assert len(everything) == len(build.load_dataset("digits").images)


def test_public_batches_are_drawn_anew_in_each_round_and_for_each_seed(federate):
    feds = [federate(FCCLPlus(public_size=16, public_batch=4), seed=seed) for seed in (0, 1)]
    orders = [public_of(feds[seed], t) for seed, t in ((0, 0), (0, 1), (1, 0))]
    assert all([x.shape for x in batches] == [(4, 1, 8, 8)] * 4 for batches in orders)
    pixels = (public_images("photographs", 16, 1, 8).float() / 255 - 0.5) / 0.25
    values = pixels.flatten(1).sort(0).values
    for batches in orders:
        torch.testing.assert_close(torch.cat(batches).flatten(1).sort(0).values, values, rtol=1e-4, atol=1e-5)
    assert not torch.equal(torch.cat(orders[0]), torch.cat(orders[1]))
    assert not torch.equal(torch.cat(orders[0]), torch.cat(orders[2]))
    again = public_of(feds[0], 0)
    assert torch.equal(torch.cat(again), torch.cat(orders[0]))
    small = federate(FCCLPlus(public_size=3, public_batch=4))
    assert [len(x) for x in public_of(small, 0)] == [3]


def test_unknown_public_images_are_refused_with_those_that_are_known(federate):
    fed = federate(FCCLPlus(public="photos"))
    with pytest.raises(DataError, match=r"^'photos' is not a known data set; known are digits, mnist, cifar10"):
        fed.run_round()


# --- settings


@pytest.mark.parametrize(
    ("dataset", "method", "expected"),
    [
        ("digits5", "FedPLCC", {"lam1": 100.0, "lam2": 1000.0, "phi": 0.5, "alpha": 0.5, "temperature": 0.07}),
        ("office10", "FedPLCC", {"lam1": 20.0, "lam2": 200.0, "weighted": True, "weighted_mean": False}),
        ("domainnet", "FedPLCC", {"lam1": 1.0, "lam2": 10.0}),
        ("pacs", "FedPLCC", {"lam1": 1.0, "lam2": 10.0}),
        ("digits5", "FPL", {"temperature": 0.02}),
        ("digits5", "FedPLVM", {"lam": 100.0, "alpha": 0.25, "temperature": 0.07}),
        ("office10", "FedProto+FedAvg", {"lam": 1.0}),
        ("office10", "MOON", {"mu": 5.0}),
        (
            *("office10", "FCCL+"),
            {"public": "photographs", "public_lr": 0.001, "similarity_weight": 3.0, "similarity_temperature": 0.02}
            | {"temperature": 3.0, "public_batch": 256},
        ),
    ],
)
def test_hyperparameters_are_the_papers(dataset, method, expected):
    own = settings.resolve(METHODS, method=method, dataset=dataset)
    assert own.hyperparameters.items() >= expected.items()
    assert (own.num_rounds, own.local_epochs, own.batch_size, own.model) == (
        *(100 if dataset == "office10" else 50, 10, 64),
        "resnet-10",
    )
    assert settings.deviations(own) == []


def test_the_methods_of_its_tables_are_all_there():
    assert {"FedAvg", "FedProx", "MOON", "FPL", "FedPLVM", "FedPLCC", "FedProto+FedAvg", "FCCL+"} <= METHODS.keys()
    assert METHODS["FedProto+FedAvg"] is FedProtoAveraged
    assert METHODS["FCCL+"] is FCCLPlus


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("FedPLCC", {"lam1": -1}, "lam1 is -1.0; it must be a number from 0"),
        ("FedPLCC", {"lam2": -0.1}, "lam2 is -0.1; it must be a number from 0"),
        ("FedPLCC", {"phi": 1.5}, "phi is 1.5; it must be a number from 0 to 1"),
        ("FedPLCC", {"alpha": 0}, "alpha is 0.0; it must be a positive number"),
        ("FedPLCC", {"temperature": 0}, "temperature is 0.0; it must be a positive number"),
        ("FedPLCC", {"weighted": 1}, "weighted is 1; it must be True or False"),
        ("FedPLCC", {"weighted_mean": "no"}, "weighted_mean is 'no'; it must be True or False"),
        ("FedPLCC", {"lam": 1.0}, "FedPLCC has no parameter 'lam', which belongs to FedPLVM"),
        ("FPL", {"temperature": -1}, "temperature is -1.0; it must be a positive number"),
        ("FPL", {"phi": 0.5}, "FPL has no parameter 'phi', which belongs to FedPLCC"),
        ("FedPLVM", {"lam": -1}, "lam is -1.0; it must be a number from 0"),
        ("FedPLVM", {"alpha": -0.5}, "alpha is -0.5; it must be a positive number"),
        ("FedProto+FedAvg", {"lam": -1}, "lam is -1.0; it must be a number from 0"),
        ("FCCL+", {"public": 3}, "public is 3; it must be a text"),
        ("FCCL+", {"public_size": 0}, "public_size is 0; it must be a whole number from 1"),
        ("FCCL+", {"public_batch": 1.5}, "public_batch is 1.5; it must be a whole number"),
        ("FCCL+", {"public_lr": 0}, "public_lr is 0.0; it must be a positive number"),
        ("FCCL+", {"similarity_weight": -1}, "similarity_weight is -1.0; it must be a number from 0"),
        ("FCCL+", {"similarity_temperature": 0}, "similarity_temperature is 0.0; it must be a positive number"),
        ("FCCL+", {"temperature": 0}, "temperature is 0.0; it must be a positive number"),
    ],
)
def test_bad_hyperparameters_are_refused_in_a_sentence(method, given, message):
    with pytest.raises(settings.SettingsError, match=message):
        settings.resolve(METHODS, method=method, dataset="digits5_mini", **given)
