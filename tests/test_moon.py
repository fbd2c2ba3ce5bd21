"""MOON: its loss against literal loops, its memory, and what its frozen networks must not touch."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from fednb.papers.foundations import FedAvgM
from fednb.papers.moon import EPS, METHODS, MOON, MOONFedAvgM, cosine, model_contrastive

from fednb import models
from fednb.experiments import build, settings
from fednb.federation import FedAvg


def vectors(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def literal_contrast(z, z_glob, z_prev, temperature):
    """Equation 7, number by number."""

    def similarity(a, b):
        dot = sum(p * q for p, q in zip(a, b, strict=True))
        return dot / math.sqrt(sum(p * p for p in a)) / math.sqrt(sum(q * q for q in b))

    losses = []
    for b in range(len(z)):
        own = z[b].tolist()
        positive = math.exp(similarity(own, z_glob[b].tolist()) / temperature)
        negative = sum(math.exp(similarity(own, one[b].tolist()) / temperature) for one in z_prev)
        losses.append(-math.log(positive / (positive + negative)))
    return losses


# --- the loss


@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize("temperature", [0.1, 0.5, 1.0])
def test_loss_and_gradient_are_those_of_literal_loops(numeric_gradient, k, temperature):
    z, z_glob, z_prev = vectors(4, 6).requires_grad_(), vectors(4, 6, seed=1), vectors(k, 4, 6, seed=2)
    loss = model_contrastive(z, z_glob, z_prev, temperature)
    np.testing.assert_allclose(
        loss.detach(), literal_contrast(z.detach(), z_glob, z_prev, temperature), rtol=1e-10, atol=1e-12
    )
    (gradient,) = torch.autograd.grad(loss.sum(), z)
    numeric = numeric_gradient(lambda moved: literal_contrast(moved, z_glob, z_prev, temperature), z)
    np.testing.assert_allclose(gradient, numeric, atol=1e-7)
    assert (gradient.abs().sum(1) > 1e-4).all() if k else (gradient == 0).all()


def test_frozen_networks_that_agree_cost_log_two_and_pull_nowhere():
    z, z_glob = vectors(5, 7).requires_grad_(), vectors(5, 7, seed=1)
    loss = model_contrastive(z, z_glob, z_glob[None], 0.5)
    np.testing.assert_allclose(loss.detach(), math.log(2), rtol=1e-12)
    (gradient,) = torch.autograd.grad(loss.sum(), z)
    assert gradient.abs().max() < 1e-15


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-8])
def test_a_dead_representation_has_a_bounded_gradient(scale):
    z = (scale * vectors(3, 8).float()).requires_grad_()
    model_contrastive(z, vectors(3, 8, seed=1).float(), vectors(1, 3, 8, seed=2).float(), 0.5).sum().backward()
    assert z.grad.isfinite().all()
    assert z.grad.abs().max() <= 2 / EPS


def test_cosine_is_cosine():
    z, others = vectors(5, 7), vectors(3, 5, 7, seed=1)
    expected = torch.stack([torch.nn.functional.cosine_similarity(z, one) for one in others])
    torch.testing.assert_close(cosine(z, others), expected)


def test_the_l2_variant_is_the_mean_distance_and_has_a_gradient_at_distance_zero(federate, batch_norm_net):
    net, frozen = batch_norm_net(seed=0).eval(), batch_norm_net(seed=1).eval()
    x, y = torch.rand(6, 1, 8, 8), torch.zeros(6, dtype=torch.long)
    method = MOON(mu=0.3, second_term="l2")
    terms = method.loss(net, x, y, {"frozen": [frozen.state_dict()]})
    rows = (net(x).representation - frozen(x).representation).detach().double()
    assert terms["l2"].item() == pytest.approx(0.3 * np.mean([math.sqrt((row**2).sum()) for row in rows.numpy()]), rel=1e-5)
    assert list(terms) == ["cross_entropy", "l2"]
    same = method.loss(net, x, y, {"frozen": [net.state_dict()]})["l2"]
    same.backward()
    assert same.item() == 0
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())


def test_the_loss_on_a_batch_is_made_of_the_three_networks(batch_norm_net):
    net, *others = (batch_norm_net(seed=s).eval() for s in range(4))
    x, y = torch.rand(5, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1])
    method = MOON(mu=2.0, temperature=0.7, negatives=2)
    terms = method.loss(net, x, y, {"frozen": [other.state_dict() for other in others]})
    z, z_glob, *z_prev = ([row.tolist() for row in n(x).representation.detach().double()] for n in (net, *others))
    expected = literal_contrast(*map(torch.tensor, (z, z_glob, z_prev)), 0.7)
    assert terms["contrastive"].item() == pytest.approx(2.0 * np.mean(expected), rel=1e-5)
    assert terms["cross_entropy"].item() == FedAvg().loss(net, x, y, {})["cross_entropy"].item()
    swapped = method.loss(net, x, y, {"frozen": [others[1].state_dict(), others[0].state_dict(), others[2].state_dict()]})
    assert swapped["contrastive"].item() != pytest.approx(terms["contrastive"].item(), rel=1e-3)


# --- frozen networks


def test_frozen_networks_work_in_eval_mode_get_no_gradient_and_touch_nothing(batch_norm_net, identical):
    net, other = batch_norm_net(seed=0), batch_norm_net(seed=1)
    net.train()
    before = {n: v.clone() for n, v in net.state_dict().items()}
    state = {n: v.clone() for n, v in other.state_dict().items()}
    x = torch.rand(6, 1, 8, 8)
    frozen = net.frozen([state, before], x)
    assert not frozen.requires_grad
    assert net.training
    assert torch.equal(frozen[0], other.eval()(x).representation)
    assert torch.equal(frozen[1], net.eval()(x).representation)
    assert not torch.equal(frozen[0], other.train()(x).representation)
    assert identical(net.state_dict(), before)


def test_batch_norm_buffers_of_frozen_networks_do_not_move(federate, identical):
    fed = federate(MOON(mu=1.0))
    fed.run_round()
    fed.run_round()
    kept = [{n: v.clone() for n, v in c.memory["previous"][0].items()} for c in fed.clients]
    received = {n: v.clone() for n, v in fed.server["model"].items()}
    server = fed.server
    client = fed.clients[0]
    with fed.lend_model(client):
        client.load(fed.method.broadcast(server, 0))
        given = fed.method.prepare(client, fed.method.broadcast(server, 0), 2)
        client.model.train()
        for _ in range(3):
            fed.method.loss(client.model, torch.rand(4, 1, 8, 8), torch.zeros(4, dtype=torch.long), given)
        assert client.model.state_dict()["encoder.1.num_batches_tracked"] == received["encoder.1.num_batches_tracked"] + 3
    assert identical(received, server["model"])
    assert identical(kept, [c.memory["previous"][0] for c in fed.clients])


def test_a_trained_model_moves_its_own_buffers_once_per_step(federate):
    fed = federate(MOON(mu=1.0), sizes=(8, 8))
    for t in range(3):
        fed.run_round()
        assert fed.clients[0].memory["previous"][0]["encoder.1.num_batches_tracked"] == 4 * (t + 1)  # 2 epochs of 2


# --- against FedAvg


@pytest.mark.parametrize("method", [MOON(mu=0.0), MOON(mu=0.0, negatives=3), MOON(mu=0.0, second_term="l2")])
def test_with_mu_0_moon_is_fedavg_bit_for_bit(federate, identical, rounds, method):
    expected = rounds(federate(FedAvg()), 3)
    fed = federate(method)
    assert identical(rounds(fed, 3), expected)
    assert any(name in fed.history[-1] for name in ("loss/contrastive", "loss/l2"))  # computed, and without effect
    assert not identical(rounds(federate(MOON(mu=1.0, second_term=method.second_term)), 3), expected)


def test_the_first_round_is_fedavgs(federate, identical, rounds):
    fed = federate(MOON(mu=10.0))
    assert identical(rounds(fed), rounds(federate(FedAvg())))
    assert "loss/contrastive" not in fed.history[0]
    fed.run_round()
    assert fed.history[1]["loss/contrastive"] > 0


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_moon_with_server_momentum_is_both(federate, identical, rounds, momentum):
    both = MOONFedAvgM(mu=1.0, server_momentum=momentum)
    fed = federate(both)
    rounds(fed, 3)
    assert fed.history[-1]["loss/contrastive"] > 0
    assert fed.server.keys() == {"model", "velocity", "seed"}
    assert not identical(fed.server["model"], rounds(federate(FedAvgM(server_momentum=momentum)), 3))
    alone = rounds(federate(MOON(mu=1.0)), 3)
    close = all(torch.allclose(fed.server["model"][n].double(), alone[n].double(), atol=1e-4) for n in alone)
    assert close == (momentum == 0.0)


# --- memory


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_memory_is_a_queue_of_the_last_k_models_over_12_rounds(federate, identical, monkeypatch, k):
    fed = federate(MOON(mu=0.1, negatives=k), sizes=(8, 8), local_epochs=1)
    trained, seen = [], []
    upload, prepare = MOON.upload, MOON.prepare

    def record(self, client, given):
        if client.id == 0:
            trained.insert(0, client.state())
        return upload(self, client, given)

    def look(self, client, received, t):
        given = prepare(self, client, received, t)
        if client.id == 0 and t == fed.rounds_done and client.steps == 0:
            seen.append((received["model"], given["frozen"]))
        return given

    monkeypatch.setattr(MOON, "upload", record)
    monkeypatch.setattr(MOON, "prepare", look)
    for t in range(12):
        for client in fed.clients:
            client.steps = 0
        expected, seen[:] = trained[:k], []
        fed.run_round()
        received, frozen = seen[0]
        assert len(expected) == min(k, t)
        assert identical(list(frozen), [received, *expected] if t else [])
    assert identical(fed.clients[0].memory["previous"], trained[:k])


def test_sampled_clients_keep_stale_models_and_new_ones_have_no_contrast(federate, identical):
    fed = federate(MOON(mu=1.0), sizes=(8,) * 6, participation=0.34)
    last = {}
    stale = fresh = 0
    for t in range(8):
        sampled = [client.id for client in fed.sample(t)]
        for client in fed.clients:
            received = fed.method.broadcast(fed.server, client.id)
            with fed.lend_model(client):
                frozen = fed.method.prepare(client, received, t)["frozen"]
            if client.id in last:
                assert identical(frozen[1:], [last[client.id][1]])
                stale += client.id in sampled and last[client.id][0] < t - 1
            else:
                assert frozen == []
                fresh += client.id in sampled and t > 0
        fed.run_round()
        for i in sampled:
            last[i] = t, {n: v.clone() for n, v in fed.clients[i].memory["previous"][0].items()}
    assert stale
    assert fresh


def test_a_client_selected_for_the_first_time_late_trains_as_in_fedavg(federate, identical):
    """Without a previous model the gradient of the contrast is zero."""
    updates = []
    for method in (MOON(mu=10.0), FedAvg()):
        fed = federate(method, sizes=(12,) * 3)
        updates.append(fed.exchange(fed.server, fed.clients[:1], 5)[0]["model"])
    assert identical(*updates)


def test_random_start_contrasts_new_clients_with_a_random_network_of_their_own(federate, identical):
    fed = federate(MOON(mu=1.0, random_start=True), sizes=(12,) * 4, participation=0.5)
    fed.run_round()
    new = [client for client in fed.clients if not client.memory]
    assert len(new) == 2
    states = []
    for client in new:
        for _ in range(2):  # the same whenever it is asked for
            with fed.lend_model(client):
                received = fed.method.broadcast(fed.server, client.id)
                frozen = fed.method.prepare(client, received, 1)["frozen"]
                assert identical(frozen[0], received["model"])
                states.append(frozen[1])
                assert fed.method.prepare(client, received, 0)["frozen"] == []
    assert identical(states[0], states[1])
    assert not identical(states[0], states[2])
    for name, value in fed.initial().items():
        torch.testing.assert_close(states[0][name].flatten().sort()[0], value.flatten().sort()[0])
        assert value.numel() < 5 or value.unique().numel() == 1 or not torch.equal(states[0][name], value)


def test_the_variants_of_the_start_differ_under_sampling_alone(federate, identical, rounds):
    for participation, equal in ((1.0, True), (0.5, False)):
        ends = [rounds(federate(MOON(mu=1.0, random_start=flag), participation=participation), 4) for flag in (False, True)]
        assert identical(*ends) == equal


def test_a_previous_model_is_not_sent_and_not_shared(federate):
    fed, plain = federate(MOON(mu=1.0, negatives=3)), federate(FedAvg())
    for _ in range(3):
        fed.run_round(), plain.run_round()
    assert fed.traffic == plain.traffic
    assert len(fed.clients[0].memory["previous"]) == 3
    assert fed.server.keys() == {"model", "seed"}


def test_a_restored_federation_keeps_its_previous_models(federate, identical, with_and_without_a_break):
    method = MOON(mu=1.0, negatives=2)
    assert identical(*with_and_without_a_break(partial(federate, method, participation=0.5), 5, 3))


# --- settings


def test_mu_is_the_papers_per_data_set():
    best = {"cifar10": 5.0, "cifar100": 1.0, "tiny_imagenet": 1.0}
    for method in ("MOON", "MOON+FedAvgM"):
        assert {d: settings.resolve(METHODS, method=method, dataset=d).hyperparameters["mu"] for d in best} == best
    s = settings.resolve(METHODS, method="MOON", dataset="cifar10", temperature=0.1, negatives=2)
    assert settings.deviations(s) == ["temperature 0.1 instead of 0.5", "negatives 2 instead of 1"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mu": -1}, "mu is -1.0; it must be a number from 0"),
        ({"temperature": 0}, "temperature is 0.0; it must be a positive number"),
        ({"negatives": 0}, "negatives is 0; it must be a whole number from 1"),
        ({"negatives": 1.5}, "negatives is 1.5; it must be a whole number"),
        ({"second_term": "L2"}, "second_term is 'L2'; it must be one of 'contrastive', 'l2'"),
        ({"second_term": "l2", "temperature": 0.1}, "not read with second_term 'l2'"),
        ({"second_term": "l2", "negatives": 2}, "not read with second_term 'l2'"),
        ({"second_term": "l2", "random_start": True}, "not read with second_term 'l2'"),
    ],
)
@pytest.mark.parametrize("method", ["MOON", "MOON+FedAvgM"])
def test_bad_hyperparameters_are_refused_in_a_sentence(method, given, message):
    with pytest.raises(settings.SettingsError, match=message):
        settings.resolve(METHODS, method=method, dataset="digits", **given)


def test_server_momentum_is_checked_in_the_combination_too():
    with pytest.raises(settings.SettingsError, match=r"server_momentum is 1\.0"):
        settings.resolve(METHODS, method="MOON+FedAvgM", dataset="digits", server_momentum=1.0)


@pytest.mark.parametrize("method", ["SCAFFOLD", "MOON"])
def test_two_steps_of_resnet_50_run(make_dataset, monkeypatch, method):
    """The path of the CIFAR-100 and Tiny-ImageNet tables: the paper's network, on noise of a quarter of its side."""
    noise = make_dataset(images=4, tests=2, shape=(3, 8, 8), num_classes=3)
    monkeypatch.setattr(build, "load_dataset", lambda name: noise)
    small = {"num_clients": 1, "num_rounds": 2, "local_epochs": 1, "batch_size": 4, "partition": "iid"}
    fed = build.federation(settings.resolve(METHODS, method=method, dataset="cifar100", **small), METHODS, workers=1)
    assert models.num_parameters(fed.build_model()) > 27_000_000
    entries = [fed.run_round() for _ in range(2)]
    assert fed.clients[0].steps == 1
    assert all(entry["finite"] for entry in entries)
    assert method != "MOON" or entries[1]["loss/contrastive"] > 0
