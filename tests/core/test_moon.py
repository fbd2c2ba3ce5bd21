"""MOON: its loss against literal loops, its memory, and what its frozen networks must not touch."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fednb.papers.moon import EPS, METHODS, MOONVariants, model_contrastive
from literal import agree, between_models, vectors

from fednb.federation import FedAvg


@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_loss_and_gradient_are_those_of_literal_loops(k, temperature):
    z_glob, z_prev = vectors(4, 6, seed=1), vectors(k, 4, 6, seed=2)
    _, gradient = agree(
        lambda z: model_contrastive(z, z_glob, z_prev, temperature),
        lambda z: between_models(z, z_glob, z_prev, temperature),
        vectors(4, 6),
    )
    assert (gradient.abs().sum(1) > 1e-4).all() if k else (gradient == 0).all()


@pytest.mark.parametrize("scale", [0.0, 1e-8])
def test_a_dead_representation_has_a_bounded_gradient(scale):
    z = (scale * vectors(3, 8).float()).requires_grad_()
    model_contrastive(
        z, vectors(3, 8, seed=1).float(), vectors(1, 3, 8, seed=2).float(), 0.5
    ).sum().backward()
    assert z.grad.isfinite().all()
    assert z.grad.abs().max() <= 2 / EPS


def test_the_loss_on_a_batch_is_made_of_the_three_networks(batch_norm_net):
    net, *others = (batch_norm_net(seed=s).eval() for s in range(4))
    x, y = torch.rand(5, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1])
    context = {"frozen": [other.state_dict() for other in others]}
    terms = MOONVariants(mu=2.0, temperature=0.7, negatives=2).loss(net, x, y, context)
    z, z_glob, *z_prev = (n(x).representation.detach().double() for n in (net, *others))
    assert terms["contrastive"].item() == pytest.approx(
        2.0 * np.mean(between_models(z, z_glob, z_prev, 0.7)), rel=1e-5
    )
    assert terms["cross_entropy"].item() == FedAvg().loss(net, x, y, {})["cross_entropy"].item()
    distance = MOONVariants(mu=0.3, second_term="l2")
    terms = distance.loss(net, x, y, {"frozen": context["frozen"][:1]})
    assert list(terms) == ["cross_entropy", "l2"]
    # the length, but for the hundredth below which it fades to its square
    lengths = [math.hypot(*row, 0.01) - 0.01 for row in (z - z_glob).tolist()]
    expected = 0.3 * np.mean(lengths)
    assert min(lengths) > 0.1
    assert terms["l2"].item() == pytest.approx(expected, rel=1e-5)
    same = distance.loss(net, x, y, {"frozen": [net.state_dict()]})["l2"]
    same.backward()  # at distance zero, too, there is a gradient
    assert same.item() == pytest.approx(0, abs=1e-8)
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())


def test_the_logged_lengths_of_gradients_are_those_of_autograd_at_z(batch_norm_net):
    """Of one image each, their mean; whatever the weight of the contrast."""
    net, *others = (batch_norm_net(seed=s).eval() for s in range(3))
    x, y = torch.rand(5, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1])
    frozen = [other.state_dict() for other in others]
    method = METHODS["MOON-measured"](mu=3.0, temperature=0.7)
    logged = method.loss(net, x, y, {"frozen": frozen})
    z = net(x).representation.detach().requires_grad_()
    z_glob, *z_prev = net.frozen(frozen, x)
    losses = {
        "cross_entropy_gradient": F.cross_entropy(net.classifier(z), y, reduction="sum"),
        "contrast_gradient": model_contrastive(z, z_glob, torch.stack(z_prev), 0.7).sum(),
    }
    for name, loss in losses.items():
        (gradient,) = torch.autograd.grad(loss, z)
        assert logged[name].item() == pytest.approx(gradient.norm(dim=1).mean().item(), rel=1e-4)
    assert logged["z_norm"].item() == pytest.approx(z.norm(dim=1).mean().item())
    assert {name for name, term in logged.items() if term.requires_grad} == {
        "cross_entropy",
        "contrastive",
    }


def test_frozen_networks_work_in_eval_mode_get_no_gradient_and_touch_nothing(
    batch_norm_net, identical
):
    net, other = batch_norm_net(seed=0).train(), batch_norm_net(seed=1)
    before, state = ({n: v.clone() for n, v in one.state_dict().items()} for one in (net, other))
    x = torch.rand(6, 1, 8, 8)
    frozen = net.frozen([state, before], x)
    assert not frozen.requires_grad
    assert net.training
    assert torch.equal(frozen[0], other.eval()(x).representation)
    assert torch.equal(frozen[1], net.eval()(x).representation)
    assert not torch.equal(frozen[0], other.train()(x).representation)
    assert identical(net.state_dict(), before)


@pytest.mark.parametrize(("k", "participation"), [(1, 1.0), (2, 0.5)])
def test_the_memory_is_a_queue_of_a_clients_own_last_k_models(
    federate, identical, k, participation
):
    """A client that is not sampled keeps stale models; one that never was has no contrast."""
    fed = federate(
        MOONVariants(mu=0.1, negatives=k),
        sizes=(8,) * 4,
        local_epochs=1,
        participation=participation,
    )
    trained = [[] for _ in fed.clients]
    for t in range(8):
        for client, own in zip(fed.clients, trained, strict=True):
            received = fed.method.broadcast(fed.server, client.id)
            with fed.at_work(client):
                frozen = fed.method.prepare(client, received, t)["frozen"]
            assert identical(list(frozen), [received["model"], *own[:k]] if own else [])
        uploads = fed.exchange(fed.server, fed.sample(t), t)
        fed.server = fed.method.aggregate(fed.server, uploads, t)
        for upload in uploads:
            trained[upload["client"]].insert(0, upload["model"])
    assert (len(set(map(len, trained))) > 1) == (participation < 1)


def test_random_start_contrasts_new_clients_with_a_random_network_of_their_own(federate, identical):
    fed = federate(MOONVariants(mu=1.0, random_start=True), sizes=(12,) * 4, participation=0.5)
    fed.run_round()
    states = []
    # the same whenever it is asked for
    for client in [client for client in fed.clients if not client.memory] * 2:
        received = fed.method.broadcast(fed.server, client.id)
        with fed.at_work(client):
            received_one, random = fed.method.prepare(client, received, 1)["frozen"]
            assert fed.method.prepare(client, received, 0)["frozen"] == []
        assert identical(received_one, received["model"])
        states.append(random)
    first, second, *again = states
    assert identical([first, second], again) and not identical(first, second)
