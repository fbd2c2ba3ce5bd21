"""FedBN, Ditto and FedDisco against loops that are written out."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fednb import build, models, papers, seeds
from fednb.federation import average

METHODS = papers.methods("three_more_methods")


@pytest.mark.parametrize("model", ["norm-cnn", "resnet-10-16"])
def test_fedbn_keeps_exactly_what_belongs_to_a_batchnorm(model):
    network = models.build(model, 10, projection_head=False)
    of_norms = {
        f"{path}.{entry}"
        for path, module in network.named_modules()
        if isinstance(module, nn.BatchNorm2d)
        for entry in module.state_dict()
    }
    assert (
        of_norms
        == {entry for entry in network.state() if not METHODS["FedBN"]().shared(entry)}
        != set()
    )


def steps(fed, client, start, rng, lam, w):
    """A client's model after a round from `start`, on a spring to w, with SGD written out."""
    model = fed.build_model().train()
    model.load_state_dict(start)
    anchors = [w[name] for name, _ in model.named_parameters()]
    buffers = [torch.zeros_like(anchor) for anchor in anchors]
    s = client.training
    for _ in range(s.local_epochs):
        for x, y in client.batches(rng):
            loss = F.cross_entropy(model(x).logits, y)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for p, g, anchor, buffer in zip(
                    model.parameters(), gradients, anchors, buffers, strict=True
                ):
                    buffer.mul_(s.momentum).add_(g + s.weight_decay * p + lam * (p - anchor))
                    p -= s.lr * buffer
    return model.state()


def test_both_models_of_ditto_are_those_of_loops():
    fed = build.federation(
        METHODS["Ditto"],
        device="cpu",
        dataset="digits",
        num_clients=3,
        local_epochs=1,
        batch_size=32,
        lam=0.5,
    )
    w = fed.server["model"]
    own = [w for _ in fed.clients]
    for t in range(2):
        ends = []
        for i, client in enumerate(fed.clients):
            ends.append(steps(fed, client, w, fed.batch_generator(client, t), 0.0, w))
            own[i] = steps(
                fed, client, own[i], seeds.generator(client.seed, "own batches", t, i), 0.5, w
            )
        w = average(ends, [client.num_samples for client in fed.clients])
        fed.run_round()
    for name, value in fed.server["model"].items():
        torch.testing.assert_close(w[name], value, atol=1e-4, rtol=0)
    for i, client in enumerate(fed.clients):
        for name, value in client.memory["own"].items():
            torch.testing.assert_close(own[i][name], value, atol=1e-4, rtol=0)


def test_feddisco_counts_as_loops_over_images_do():
    fed = build.federation(
        METHODS["FedDisco"], device="cpu", dataset="digits", num_clients=5, local_epochs=1, beta=0.3
    )
    uploads = fed.exchange(fed.server, fed.clients, 0)
    total = sum(client.num_samples for client in fed.clients)
    weights = []
    for client in fed.clients:
        counts = [0] * 10
        for label in client.labels.tolist():
            counts[label] += 1
        d = sum((count / client.num_samples - 0.1) ** 2 for count in counts) ** 0.5
        weights.append(max(0.0, client.num_samples / total - 0.5 * d + 0.1))
    for name, value in fed.method.aggregate(fed.server, uploads, 0)["model"].items():
        mean = sum(
            weight * upload["model"][name] for weight, upload in zip(weights, uploads, strict=True)
        ) / sum(weights)
        torch.testing.assert_close(value, mean, atol=1e-6, rtol=0)
