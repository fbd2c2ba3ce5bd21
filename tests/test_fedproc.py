"""FedProc: its loss against literal loops and worked numbers, its schedules, and what it has in common with FedAvg."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fednb.papers.fedproc import METHODS, FedProc, PrototypeExchange, contrast_weight, prototypical_contrastive, similarities
from fednb.papers.moon import EPS

from fednb.experiments import settings
from fednb.federation import FedAvg
from fednb.prototypes import class_means, join, mean_by_class, padded


def vectors(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def prototypes_of(labels, dimension=6, capacity=None, seed=1):
    """Random prototypes of these classes, padded as a training step sees them."""
    made = {"vectors": vectors(len(labels), dimension, seed=seed), "labels": torch.tensor(labels, dtype=torch.long)}
    return padded(made, len(labels) if capacity is None else capacity)


def literal_loss(z, y, prototypes, temperature=1.0):
    """Equation 4, number by number; an image whose class has no prototype costs nothing."""

    def similarity(a, b):
        dot = sum(p * q for p, q in zip(a, b, strict=True))
        return dot / math.sqrt(sum(p * p for p in a)) / math.sqrt(sum(q * q for q in b))

    pairs = zip(prototypes["labels"].tolist(), prototypes["vectors"].tolist(), strict=True)
    known = {label: vector for label, vector in pairs if label >= 0}
    losses = []
    for own, label in zip(z.tolist(), y.tolist(), strict=True):
        if label not in known:
            losses.append(0.0)
            continue
        terms = {k: math.exp(similarity(own, vector) / temperature) for k, vector in known.items()}
        losses.append(-math.log(terms[label] / (terms[label] + sum(v for k, v in terms.items() if k != label))))
    return losses


# --- the loss


SETS = [[0, 1, 2, 3], [3, 1], [2], []]  # with missing classes, in any order, and with none at all


@pytest.mark.parametrize("labels", SETS)
@pytest.mark.parametrize("capacity", [4, 7])
@pytest.mark.parametrize("temperature", [0.1, 0.5, 1.0, 2.0])
def test_loss_and_gradient_are_those_of_literal_loops(numeric_gradient, labels, capacity, temperature):
    z, y = vectors(5, 6).requires_grad_(), torch.tensor([1, 3, 0, 2, 3])
    prototypes = prototypes_of(labels, capacity=capacity)
    loss = prototypical_contrastive(z, y, prototypes, temperature)
    assert loss.shape == (5,)
    np.testing.assert_allclose(loss.detach(), literal_loss(z.detach(), y, prototypes, temperature), rtol=1e-10, atol=1e-12)
    (gradient,) = torch.autograd.grad(loss.sum(), z)
    numeric = numeric_gradient(lambda moved: literal_loss(moved, y, prototypes, temperature), z)
    np.testing.assert_allclose(gradient, numeric, atol=1e-7)
    felt = torch.tensor([label in labels and len(labels) > 1 for label in y.tolist()])
    assert ((gradient.abs().sum(1) > 1e-4) == felt).all()  # no other prototype, no pull; not known, no loss


def test_the_default_temperature_is_none():
    z, y, prototypes = vectors(4, 6), torch.tensor([0, 1, 2, 2]), prototypes_of([0, 1, 2])
    assert torch.equal(prototypical_contrastive(z, y, prototypes), prototypical_contrastive(z, y, prototypes, 1.0))
    assert FedProc().temperature == 1.0


def test_missing_prototypes_leave_the_denominator():
    z, y = vectors(4, 6), torch.tensor([0, 1, 1, 0])
    two = prototypes_of([0, 1])
    alone, with_room = (prototypical_contrastive(z, y, p) for p in (two, padded(two, 10)))
    torch.testing.assert_close(with_room, alone, rtol=1e-12, atol=0)
    scores = similarities(z, padded(two, 10))
    assert scores.shape == (4, 10)
    assert (scores[:, 2:].exp() == 0).all()


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-8])
def test_a_dead_representation_or_prototype_has_a_bounded_gradient(scale):
    z, y = (scale * vectors(3, 6).float()).requires_grad_(), torch.tensor([0, 1, 2])
    prototypes = prototypes_of([0, 1, 2])
    prototypes["vectors"] = prototypes["vectors"].float()
    for dead in (prototypes, prototypes | {"vectors": scale * prototypes["vectors"]}):
        (gradient,) = torch.autograd.grad(prototypical_contrastive(z, y, dead).sum(), z)
        assert gradient.isfinite().all()
        assert gradient.abs().max() <= 2 / EPS


def test_the_loss_on_a_batch_has_the_methods_temperature_and_weight(batch_norm_net):
    net, x, y = batch_norm_net().eval(), torch.rand(6, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    prototypes = prototypes_of([2, 0], dimension=4, capacity=3)
    given = {"prototypes": prototypes | {"vectors": prototypes["vectors"].float()}, "alpha": torch.tensor(0.25)}
    terms = FedProc(temperature=0.3).loss(net, x, y, given)
    expected = literal_loss(net(x).representation.detach().double(), y, prototypes, 0.3)
    assert list(terms) == ["cross_entropy", "contrastive"]
    assert terms["contrastive"].item() == pytest.approx(0.25 * np.mean(expected), rel=1e-5)  # two images count as zero
    assert terms["cross_entropy"].item() == pytest.approx(0.75 * F.cross_entropy(net(x).logits, y).item(), rel=1e-5)


# --- what its numbers mean, with ten classes


def simplex(classes=10):
    """As many unit vectors, as far from each other as they can be: any two have the cosine -1 / (classes - 1)."""
    centred = torch.eye(classes, dtype=torch.float64) - 1 / classes
    return centred / centred.norm(dim=1, keepdim=True)


def ten(rows):
    return {"vectors": rows, "labels": torch.arange(10)}


def test_at_the_optimum_for_balanced_classes_it_is_still_1_38():
    y = torch.arange(10)
    z = (3 * simplex()).requires_grad_()
    loss = prototypical_contrastive(z, y, ten(simplex())).mean()
    assert loss.item() == pytest.approx(math.log(1 + 9 * math.exp(-10 / 9)), rel=1e-12)
    assert round(loss.item(), 2) == 1.38
    (gradient,) = torch.autograd.grad(loss, z)
    assert gradient.abs().max() < 1e-12  # every z on its prototype: nothing pulls


def test_with_equal_similarities_it_is_2_30():
    rows = vectors(1, 6).expand(10, 6) * torch.arange(1, 11)[:, None]
    loss = prototypical_contrastive(vectors(4, 6, seed=3), torch.tensor([0, 3, 9, 9]), ten(rows))
    np.testing.assert_allclose(loss, math.log(10), rtol=1e-12)
    assert round(math.log(10), 2) == 2.30


def test_one_sample_is_between_0_80_and_4_21():
    u = vectors(1, 6)
    best = torch.cat([u, -u.expand(9, 6)])
    ends = [prototypical_contrastive(sign * u, torch.tensor([0]), ten(best)).item() for sign in (1, -1)]
    assert [round(end, 2) for end in ends] == [0.80, 4.21]
    assert ends == pytest.approx([math.log(1 + 9 * math.exp(-2)), math.log(1 + 9 * math.exp(2))])
    y = torch.from_numpy(np.random.default_rng(0).integers(0, 10, 2000))
    for dimension in (1, 2, 6):  # in few dimensions the ends are near
        z, rows = vectors(2000, dimension), vectors(10, dimension, seed=1)
        loss = prototypical_contrastive(z, y, ten(rows))
        assert (loss >= ends[0] - 1e-12).all()
        assert (loss <= ends[1] + 1e-12).all()


def test_neither_the_length_of_z_nor_that_of_a_prototype_matters():
    z, y, prototypes = vectors(5, 6).requires_grad_(), torch.tensor([0, 1, 2, 3, 0]), prototypes_of([0, 1, 2, 3])
    loss = prototypical_contrastive(z, y, prototypes)
    scales = torch.tensor([0.01, 1.0, 7.0, 300.0])[:, None].double()
    torch.testing.assert_close(
        prototypical_contrastive(z, y, prototypes | {"vectors": prototypes["vectors"] * scales}), loss
    )
    torch.testing.assert_close(prototypical_contrastive(100 * z, y, prototypes), loss)
    (gradient,) = torch.autograd.grad(loss.sum(), z)
    assert (gradient * z).sum(1).abs().max() < 1e-12


def test_a_sum_over_all_clients_will_do_for_the_mean_over_holders_but_not_for_a_weighted_one():
    y_of = [torch.tensor(y) for y in ([0, 0, 0, 0, 1], [1, 1, 2, 2, 2], [2, 0])]
    sets = [class_means(vectors(len(y), 6, seed=i), y) for i, y in enumerate(y_of)]
    everything = join(sets)
    means = mean_by_class(everything)
    sums = torch.zeros(3, 6).double().index_add_(0, everything["labels"], everything["vectors"])
    z, y = vectors(8, 6, seed=9), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    loss = prototypical_contrastive(z, y, means)
    # algorithm 1: 1/m times the sum over all m clients, one that has no image of the class with a zero vector
    torch.testing.assert_close(prototypical_contrastive(z, y, {"vectors": sums / 3, "labels": torch.arange(3)}), loss)
    weighted = prototypical_contrastive(z, y, mean_by_class(everything, weighted=True))
    assert ((weighted - loss).abs() > 1e-3).any()


# --- the schedule


@pytest.mark.parametrize(
    ("schedule", "num_rounds", "expected"),
    [
        ("linear", 4, [1, 0.75, 0.5, 0.25, 0, 0]),
        ("linear", 1, [1, 0]),
        ("constant", 4, [1, 1, 1, 1, 1]),
        ("two-stage", 4, [1, 1, 0, 0, 0]),
        ("two-stage", 5, [1, 1, 1, 0, 0, 0]),
        ("two-stage", 1, [1, 0]),
    ],
)
def test_alpha_by_hand(schedule, num_rounds, expected):
    assert [contrast_weight(t, num_rounds, schedule) for t in range(len(expected))] == pytest.approx(expected, abs=1e-15)


def test_the_last_round_has_a_little_contrast_left():
    assert contrast_weight(99, 100) == pytest.approx(0.01)
    assert contrast_weight(0, 100) == 1.0


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [1, 0.75, 0.5, 0.25]),
        ({"alpha": 0.6}, [0.6, 0.45, 0.3, 0.15]),
        ({"alpha": 0.5, "alpha_schedule": "constant"}, [0.5] * 4),
        ({"alpha": 0.0}, [0] * 4),
        ({"alpha": 0.8, "alpha_schedule": "two-stage"}, [0.8, 0.8, 0, 0]),
        ({"alpha_rounds": 2}, [1, 0.5, 0, 0]),
        ({"alpha_rounds": 100}, [1, 0.99, 0.98, 0.97]),
        ({"alpha_schedule": "two-stage", "alpha_rounds": 2}, [1, 0, 0, 0]),
        ({"alpha_schedule": "two-stage", "alpha_rounds": 8}, [1, 1, 1, 1]),
        ({"first_round_ce": True}, [0, 0.75, 0.5, 0.25]),
        ({"first_round_ce": True, "alpha_schedule": "constant", "alpha": 0.5}, [0, 0.5, 0.5, 0.5]),
    ],
)
def test_each_round_has_the_weights_of_its_schedule(federate, monkeypatch, given, expected):
    terms = []
    loss = FedProc.loss

    def look(self, model, x, y, given):
        z = self.represent(model(x).representation)
        parts = [F.cross_entropy(model.classifier(z), y), prototypical_contrastive(z, y, given["prototypes"]).mean()]
        found = loss(self, model, x, y, given)
        shares = [found[name].item() / part.item() for name, part in zip(found, parts, strict=True)]
        terms.append((fed.rounds_done, dict(zip(found, shares, strict=True))))
        return found

    monkeypatch.setattr(FedProc, "loss", look)
    monkeypatch.setattr("fednb.evaluation.evaluate", lambda fed: {})
    fed = federate(FedProc(**given), sizes=(8, 8), num_rounds=4, local_epochs=1)
    for _ in range(4):
        fed.run_round()
    assert [t for t, _ in terms] == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4  # two clients with two batches
    for t, shares in terms:
        assert list(shares) == ["cross_entropy", "contrastive"]
        assert shares["contrastive"] == pytest.approx(expected[t], rel=1e-4, abs=1e-6)
        assert shares["cross_entropy"] == pytest.approx(1 - expected[t], rel=1e-4, abs=1e-6)


# --- against FedAvg


@pytest.mark.parametrize("given", [{}, {"alpha_schedule": "constant"}, {"weighted_prototypes": True}, {"temperature": 0.1}])
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_with_alpha_0_fedproc_is_fedavg_bit_for_bit(federate, identical, rounds, given, participation):
    expected = rounds(federate(FedAvg(), participation=participation), 3)
    fed = federate(FedProc(alpha=0.0, **given), participation=participation)
    assert identical(rounds(fed, 3), expected)
    assert fed.history[-1]["loss/contrastive"] == 0  # computed, and without effect
    assert len(fed.server["prototypes"]["labels"]) == 3
    assert not identical(rounds(federate(FedProc(**given | {"alpha": 0.1}), participation=participation), 3), expected)


def test_prototypes_that_nothing_uses_change_nothing(federate, identical, rounds):
    assert identical(rounds(federate(PrototypeExchange()), 3), rounds(federate(FedAvg()), 3))


def test_first_round_ce_makes_the_first_round_fedavgs_and_no_other(federate, identical):
    fed, plain = federate(FedProc(first_round_ce=True)), federate(FedAvg())
    fed.run_round(), plain.run_round()
    assert identical(fed.server["model"], plain.server["model"])
    assert fed.history[0]["loss/contrastive"] == 0
    fed.run_round(), plain.run_round()
    assert not identical(fed.server["model"], plain.server["model"])
    assert fed.history[1]["loss/contrastive"] > 0


@pytest.fixture
def sent(monkeypatch):
    """The rounds of FedProc as the server sees them: what it had before, and what came from each client."""
    seen, aggregate = [], FedProc.aggregate

    def look(self, server, uploads, t):
        seen.append((server, uploads))
        return aggregate(self, server, uploads, t)

    monkeypatch.setattr(FedProc, "aggregate", look)
    return seen


def test_in_round_0_the_output_layer_learns_nothing(federate, sent):
    fed = federate(FedProc(), weight_decay=0.0)
    for _ in range(2):
        fed.run_round()
    for t, (server, uploads) in enumerate(sent):
        for upload in uploads:
            for name, value in upload["model"].items():
                assert torch.equal(value, server["model"][name]) == (t == 0 and name.startswith("classifier")), (t, name)


# --- two stages


@pytest.mark.parametrize(("alpha_rounds", "switch"), [(0, 2), (2, 1)])
def test_two_stage_freezes_all_but_the_output_layer_in_the_second_half(federate, sent, alpha_rounds, switch):
    fed = federate(FedProc(alpha_schedule="two-stage", alpha_rounds=alpha_rounds), num_rounds=4)
    for t in range(4):
        fed.run_round()
        server, uploads = sent[t]
        for upload in uploads:
            for name, value in upload["model"].items():  # BatchNorm's buffers too
                frozen = t >= switch and not name.startswith("classifier")
                assert torch.equal(value, server["model"][name]) == frozen, (t, name)
        terms = [fed.history[t][f"loss/{name}"] for name in ("contrastive", "cross_entropy")]
        assert [term > 0 for term in terms] == [t < switch, t >= switch]


# --- representations of length 1


def test_normalised_representations_reach_loss_prototypes_and_prediction(federate, batch_norm_net):
    fed = federate(FedProc(normalise_z=True), sizes=(12, 12))
    net, method = batch_norm_net().eval(), fed.method
    x, y = torch.rand(6, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    given = {"prototypes": prototypes_of([0, 1, 2], 4), "alpha": torch.tensor(0.25)}
    given["prototypes"]["vectors"] = given["prototypes"]["vectors"].float()
    unit = F.normalize(net(x).representation)
    terms, logits = method.loss(net, x, y, given), net.classifier(unit)
    torch.testing.assert_close(terms["cross_entropy"], 0.75 * F.cross_entropy(logits, y))
    torch.testing.assert_close(method.predict(net, x, given)["classifier"], logits)
    assert not torch.allclose(logits, net(x).logits)
    plain = FedProc()
    torch.testing.assert_close(plain.loss(net, x, y, given)["contrastive"], terms["contrastive"])  # it has cosines
    torch.testing.assert_close(plain.loss(net, x, y, given)["cross_entropy"], 0.75 * F.cross_entropy(net(x).logits, y))
    torch.testing.assert_close(plain.predict(net, x, given)["classifier"], net(x).logits)
    client = fed.clients[0]
    with fed.lend_model(client):
        client.load({})
        z, labels = client.representations()
        sent = method.summary(client)
    torch.testing.assert_close(sent["vectors"], class_means(F.normalize(z), labels)["vectors"])
    assert not torch.allclose(sent["vectors"], class_means(z, labels)["vectors"])
    assert (sent["vectors"].norm(dim=1) <= 1 + 1e-6).all()


# --- settings


def test_the_papers_settings():
    rates = {"cifar10": 0.01, "cifar100": 0.1, "tiny_imagenet": 0.1}
    for dataset, lr in rates.items():
        own = settings.resolve(METHODS, method="FedProc", dataset=dataset)
        assert (own.lr, own.num_rounds, own.local_epochs) == (lr, 100, 10)
        assert settings.resolve(METHODS, method="FedAvg", dataset=dataset).lr == 0.01
        assert settings.deviations(own) == []
    own = settings.resolve(METHODS, method="FedProc", dataset="cifar100", lr=0.01, normalise_z=True, alpha=0.5)
    assert settings.deviations(own) == [
        "lr 0.01 instead of 0.1",
        "normalise_z True instead of False",
        "alpha 0.5 instead of 1.0",
    ]


def test_the_printed_method_is_the_default():
    assert settings.METHODS["FedProc"][""] == vars(FedProc())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"alpha": 1.5}, "alpha is 1.5; it must be a number from 0 to 1"),
        ({"alpha": -0.1}, "alpha is -0.1; it must be a number from 0 to 1"),
        ({"alpha_schedule": "cosine"}, "alpha_schedule is 'cosine'; it must be one of 'linear', 'constant', 'two-stage'"),
        ({"alpha_rounds": -1}, "alpha_rounds is -1; it must be a whole number from 0"),
        ({"alpha_rounds": 0.5}, "alpha_rounds is 0.5; it must be a whole number"),
        ({"alpha_rounds": 5, "alpha_schedule": "constant"}, "alpha_rounds is not read with alpha_schedule 'constant'"),
        ({"temperature": 0}, r"temperature is 0\.0; it must be a positive number"),
        ({"first_round_ce": 1}, "first_round_ce is 1; it must be True or False"),
        ({"normalise_z": "yes"}, "normalise_z is 'yes'; it must be True or False"),
        ({"mu": 1.0}, "FedProc has no parameter 'mu'"),
    ],
)
def test_bad_hyperparameters_are_refused_in_a_sentence(given, message):
    with pytest.raises(settings.SettingsError, match=message):
        settings.resolve(METHODS, method="FedProc", dataset="digits", **given)
