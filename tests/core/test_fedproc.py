"""FedProc: its loss against literal loops and worked numbers, its schedules, and what it has in common with FedAvg."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fednb.papers.fedproc import (
    FedProc,
    FedProcVariants,
    MeasuredFedProc,
    agreement,
    prototypical_contrastive,
)
from fednb.papers.moon import EPS
from literal import agree, between_classes, in_floats, prototypes_of, vectors

from fednb.prototypes import class_means


# with missing classes, in any order, and none at all
@pytest.mark.parametrize("labels", [[0, 1, 2, 3], [3, 1], [2], []])
@pytest.mark.parametrize("capacity", [4, 7])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_loss_and_gradient_are_those_of_literal_loops(labels, capacity, temperature):
    z, y, prototypes = vectors(5, 6), torch.tensor([1, 3, 0, 2, 3]), prototypes_of(labels, capacity)
    _, gradient = agree(
        lambda z: prototypical_contrastive(z, y, prototypes, temperature),
        lambda z: between_classes(z, y, prototypes, temperature),
        z,
    )
    felt = torch.tensor([label in labels and len(labels) > 1 for label in y.tolist()])
    # no other prototype, no pull; not known, no loss
    assert ((gradient.abs().sum(1) > 1e-4) == felt).all()
    assert (gradient * z).sum(1).abs().max() < 1e-9  # the length of z is left alone


@pytest.mark.parametrize("scale", [0.0, 1e-8])
def test_a_dead_representation_or_prototype_has_a_bounded_gradient(scale):
    z, y = (scale * vectors(3, 6).float()).requires_grad_(), torch.tensor([0, 1, 2])
    prototypes = in_floats(prototypes_of([0, 1, 2]))
    for dead in (prototypes, prototypes | {"vectors": scale * prototypes["vectors"]}):
        (gradient,) = torch.autograd.grad(prototypical_contrastive(z, y, dead).sum(), z)
        assert gradient.isfinite().all()
        assert gradient.abs().max() <= 2 / EPS


def test_the_loss_on_a_batch_has_the_methods_temperature_and_weight(batch_norm_net):
    net, x, y = batch_norm_net().eval(), torch.rand(6, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    prototypes = prototypes_of([2, 0], 3, dim=4)
    given = {"prototypes": in_floats(prototypes), "alpha": torch.tensor(0.25)}
    terms = FedProc(temperature=0.3).loss(net, x, y, given)
    expected = between_classes(net(x).representation.detach().double(), y, prototypes, 0.3)
    assert list(terms) == ["cross_entropy", "contrastive"]
    # two images count as zero
    assert terms["contrastive"].item() == pytest.approx(0.25 * np.mean(expected), rel=1e-5)
    assert terms["cross_entropy"].item() == pytest.approx(
        0.75 * F.cross_entropy(net(x).logits, y).item(), rel=1e-5
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [1, 0.75, 0.5, 0.25, 0]),  # round 4 is only asked for by the last evaluation
        ({"alpha": 0.6}, [0.6, 0.45, 0.3, 0.15]),
        ({"alpha": 0.8, "alpha_schedule": "two-stage"}, [0.8, 0.8, 0, 0]),
        ({"alpha_rounds": 2}, [1, 0.5, 0, 0]),
        ({"alpha_rounds": 100}, [1, 0.99, 0.98, 0.97]),
        ({"alpha_schedule": "two-stage", "alpha_rounds": 8}, [1, 1, 1, 1]),
        ({"first_round_ce": True}, [0, 0.75, 0.5, 0.25]),
        ({"first_round_ce": True, "alpha_schedule": "constant", "alpha": 0.5}, [0, 0.5, 0.5, 0.5]),
    ],
)
def test_each_round_has_the_weight_of_its_schedule(federate, given, expected):
    fed = federate(FedProcVariants(**given), num_rounds=4)
    received = fed.method.broadcast(fed.server, 0)
    with fed.at_work(fed.clients[0]):
        alphas = [
            fed.method.prepare(fed.clients[0], received, t)["alpha"].item()
            for t in range(len(expected))
        ]
    assert alphas == pytest.approx(expected)


@pytest.mark.parametrize(
    ("schedule", "alpha_rounds", "switch"),
    [("linear", 0, 4), ("two-stage", 2, 1)],
)
def test_what_each_round_trains(federate, schedule, alpha_rounds, switch):
    """In round 0 the output layer learns nothing; the second of two stages freezes all but the output layer."""
    method = FedProcVariants(alpha_schedule=schedule, alpha_rounds=alpha_rounds)
    fed = federate(method, num_rounds=4, weight_decay=0.0)
    states = [fed.server["model"]]
    for t in range(4):
        entry = fed.run_round()
        states.append(fed.server["model"])
        contrast, entropy = entry["loss/contrastive"] > 0, entry["loss/cross_entropy"] > 0
        assert (contrast, entropy) == (
            (t < switch, t >= switch) if schedule == "two-stage" else (True, t > 0)
        )
        for name, value in states[-1].items():  # BatchNorm's buffers too
            trained = entropy if name.startswith("classifier") else t < switch
            assert (
                torch.allclose(value.double(), states[-2][name].double(), rtol=0, atol=1e-6)
                != trained
            ), (t, name)


def test_normalised_representations_reach_loss_prototypes_and_prediction(federate, batch_norm_net):
    fed = federate(FedProcVariants(normalise_z=True), sizes=(12, 12))
    net, method, plain = batch_norm_net().eval(), fed.method, FedProc()
    x, y = torch.rand(6, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    given = {"prototypes": in_floats(prototypes_of([0, 1, 2], dim=4)), "alpha": torch.tensor(0.25)}
    terms, logits = (
        method.loss(net, x, y, given),
        net.classifier(F.normalize(net(x).representation)),
    )
    torch.testing.assert_close(terms["cross_entropy"], 0.75 * F.cross_entropy(logits, y))
    torch.testing.assert_close(method.predict(net, x, given)["classifier"], logits)
    assert not torch.allclose(logits, net(x).logits)
    # it has cosines
    torch.testing.assert_close(plain.loss(net, x, y, given)["contrastive"], terms["contrastive"])
    torch.testing.assert_close(plain.predict(net, x, given)["classifier"], net(x).logits)
    client = fed.clients[0]
    with fed.at_work(client):
        client.load({})
        z, labels = client.representations()
        sent = method.local_prototypes(client)
    torch.testing.assert_close(sent["vectors"], class_means(F.normalize(z), labels)["vectors"])
    assert not torch.allclose(sent["vectors"], class_means(z, labels)["vectors"])


@pytest.mark.parametrize(
    ("pull", "weights"),
    [("replaces", [0.75, 0.25]), ("joins", [1, 0.25]), ("absent", [0.75, 0])],
)
def test_the_pull_may_join_the_cross_entropy_or_be_left_out(batch_norm_net, pull, weights):
    net, x, y = batch_norm_net().eval(), torch.rand(6, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    given = {"prototypes": in_floats(prototypes_of([0, 1, 2], dim=4))}
    halves = FedProc().loss(net, x, y, given | {"alpha": torch.tensor(0.5)})
    terms = MeasuredFedProc(pull=pull).loss(net, x, y, given | {"alpha": torch.tensor(0.25)})
    assert list(terms) == list(halves)
    shares = [(terms[name] / (2 * halves[name])).item() for name in halves]
    assert shares == pytest.approx(weights)


def test_clients_agree_by_the_angle_between_classes_less_that_within():
    def sent(*degrees):
        angles = torch.tensor(degrees).deg2rad()
        return {
            "vectors": torch.stack([angles.cos(), angles.sin()], 1),
            "labels": torch.arange(2),
        }

    # the same: 10 and 10; different: 100 and 80, of which torch's median is the lower one
    assert agreement([sent(0.0, 90.0), sent(10.0, 100.0)]).item() == pytest.approx(70, abs=1e-3)
    assert agreement([sent(0.0, 0.0), sent(0.0, 0.0)]).item() == pytest.approx(0, abs=0.1)
