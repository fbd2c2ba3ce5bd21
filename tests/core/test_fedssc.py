"""FedSSC: its losses against literal loops, its schedule, and the draw of whose representations are shared."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from fednb.papers.fedssc import FedSSCVariants as FedSSC
from fednb.papers.fedssc import MeasuredFedSSC, class_weight, parts_of_error
from fednb.papers.readings import local_and_shared_contrastive
from literal import (
    agree,
    between_classes,
    between_models,
    cosine,
    in_floats,
    known,
    prototypes_of,
    vectors,
)

from fednb.federation import FedAvg
from fednb.prototypes import class_means


def among_all(z, y, shared, temperature):
    """The mean, over its positives, of -log softmax over the representations and the other images of the batch."""
    losses, images = [], list(zip(y.tolist(), z.tolist(), strict=True))
    for place, (label, own) in enumerate(images):
        candidates = [*known(shared).items(), *images[:place], *images[place + 1 :]]
        terms = [(k, math.exp(cosine(own, other) / temperature)) for k, other in candidates]
        total = sum(term for _, term in terms)
        own_class = [-math.log(term / total) for k, term in terms if k == label]
        losses.append(sum(own_class) / len(own_class) if own_class else 0.0)
    return losses


@pytest.mark.parametrize("temperature", [0.1, 0.5])
@pytest.mark.parametrize("labels", [[], [0, 1, 3], [3, 0, 2, 1]])
def test_pairs_from_the_batch_are_those_of_literal_loops(labels, temperature):
    # 1, 2 and 3 are alone in the batch
    y, shared = (torch.tensor([0, 3, 2, 1, 0, 0]), prototypes_of(labels, 4))
    loss, _ = agree(  # the gradient goes through both images of a pair
        lambda z: local_and_shared_contrastive(z, y, shared, temperature),
        lambda z: among_all(z, y, shared, temperature),
        vectors(6, 6),
    )
    assert [value == 0 for value in loss.tolist()] == [
        k in (1, 2, 3) and k not in labels for k in y.tolist()
    ]


def test_the_loss_on_a_batch_is_made_of_its_parts(batch_norm_net):
    net, glob, prev = (batch_norm_net(seed=s).eval() for s in range(3))
    x, y, shared = (
        torch.rand(5, 1, 8, 8),
        torch.tensor([0, 1, 2, 0, 1]),
        prototypes_of([0, 2], 3, dim=4),
    )
    given = {
        "prototypes": in_floats(shared),
        "classifies": torch.tensor(1.0),
        "mu_glob": torch.tensor(0.25),
        "frozen": [glob.state_dict(), prev.state_dict()],
    }
    z, z_glob, z_prev = (n(x).representation.detach().double() for n in (net, glob, prev))

    def terms(**more):
        return FedSSC(mu_moon=2.0, temperature=0.7, **more).loss(net, x, y, given)

    assert list(terms()) == ["cross_entropy", "model_contrast", "class_contrast"]
    assert terms()["cross_entropy"].item() == FedAvg().loss(net, x, y, {})["cross_entropy"].item()
    for variant, name, expected in (
        ("default", "class_contrast", 0.25 * np.mean(between_classes(z, y, shared, 0.7))),
        ("default", "model_contrast", 2 * np.mean(between_models(z, z_glob, [z_prev], 0.7))),
        (
            "other-image",
            "model_contrast",
            2 * np.mean(between_models(z, z_glob, [z_glob[[4, 0, 1, 2, 3]]], 0.7)),
        ),
        ("local-pairs", "class_contrast", 0.25 * np.mean(among_all(z, y, shared, 0.7))),
    ):
        assert terms(variant=variant)[name].item() == pytest.approx(expected, rel=1e-4)
    assert "model_contrast" not in FedSSC(mu_moon=2.0).loss(net, x, y, given | {"frozen": []})


def test_mu_glob_is_held_during_warm_up_and_then_falls_in_equal_steps():
    weights = [class_weight(t, 100, 1.0, 1e-4, 5) for t in range(101)]
    assert weights[:6] == [1.0] * 6
    np.testing.assert_allclose(np.diff(weights[5:]), -(1 - 1e-4) / 95)
    assert [class_weight(t, 4, 2.0, 1.0, 0) for t in range(5)] == [2.0, 1.75, 1.5, 1.25, 1.0]
    assert class_weight(2, 3, 0.0, 1e-4, 0) == pytest.approx(2e-4 / 3)  # from 0 it rises to its end
    for warmup in (0, 3, 8):  # a run as short as its warm-up is no division by zero
        assert class_weight(2, 3, 1.0, 0.0, warmup) == (
            1.0 if warmup >= 2 else pytest.approx(1 / 3)
        )


# --- the draw


def upload(client, *labels):
    """What a client sends: vectors that tell whose they are, (client, class)."""
    rows = torch.tensor([[client, k] for k in labels]).float().view(-1, 2)
    return {
        "prototypes": {"vectors": rows, "labels": torch.tensor(labels, dtype=torch.long)},
        "client": client,
    }


def served(method, uploads, t=0, seed=0):
    """What the server then has, and sends to client 0: class to vector."""
    nothing = {"vectors": torch.zeros(0, 2), "labels": torch.zeros(0, dtype=torch.long)}
    server = {
        "seed": seed,
        "prototypes": method.aggregate_prototypes(
            {"seed": seed, "prototypes": nothing}, uploads, t
        ),
    }
    sent = method.broadcast_prototypes(server, 0)
    assert sent.keys() == {"vectors", "labels"}
    return server, known(sent)


ALL = [upload(i, 0, 1, 2) for i in range(6)]


def test_with_k_1_each_class_is_one_devices_drawn_anew_each_round_and_for_each_seed():
    method, owners = FedSSC(), []
    for seed, t in ((0, 0), (0, 1), (1, 0), (1, 1)):
        server, sent = served(method, ALL, t, seed)
        assert [vector[1] for vector in sent.values()] == list(sent) == [0, 1, 2]
        owners.append(tuple(vector[0] for vector in sent.values()))
        assert served(method, ALL, t, seed)[1] == sent  # the same whenever it is asked for
        # and for everybody
        assert all(
            known(method.broadcast_prototypes(server, receiver)) == sent for receiver in range(6)
        )
    assert len(set(owners)) == 4
    assert any(len(set(three)) > 1 for three in owners)  # a draw for each class


def test_k_are_averaged_and_k_at_least_the_holders_is_the_mean_of_all():
    uploads = [upload(0, 0, 1), upload(1, 0), upload(2, 0, 2), upload(3, 0)]
    for k, possible in ((2, {0.5, 1.0, 1.5, 2.0, 2.5}), (3, {1.0, 4 / 3, 5 / 3, 2.0})):
        owners = [served(FedSSC(num_shared=k), uploads, t)[1] for t in range(30)]
        assert {round(sent[0][0], 4) for sent in owners} == {round(x, 4) for x in possible}
        assert all(sent[1] == [0.0, 1.0] and sent[2] == [2.0, 2.0] for sent in owners)
    for k in (4, 10):
        assert served(FedSSC(num_shared=k), uploads)[1] == {0: [1.5, 0], 1: [0, 1], 2: [2, 2]}


def test_exclude_own_never_sends_a_receiver_its_own():
    for t in range(40):
        server, _ = served(FedSSC(), ALL, t)
        for receiver in range(6):
            sent = FedSSC(exclude_own=True).broadcast_prototypes(server, receiver)
            assert receiver not in sent["vectors"][:, 0].tolist()
            assert len(sent["labels"]) == 3
    _, sent = served(FedSSC(num_shared=9, exclude_own=True), [upload(0, 0, 1), upload(1, 0)])
    assert sent == {0: [1.0, 0.0]}  # of class 1 there is only its own


def test_a_device_shares_the_means_of_classes_with_at_least_so_many_images(federate):
    fed = federate(FedSSC())
    client = fed.clients[0]
    counts = torch.bincount(fed.images.labels[client.indices], minlength=3)
    with fed.at_work(client):
        client.load({"model": fed.server["model"]})
        means = class_means(*client.representations())
        for least in (1, *counts.tolist(), int(counts.max()) + 1):
            shared = FedSSC(min_images=least).local_prototypes(client)
            assert shared.keys() == {"vectors", "labels"}  # how many images there are is not told
            assert shared["labels"].tolist() == (counts >= least).nonzero().flatten().tolist()
            torch.testing.assert_close(shared["vectors"], means["vectors"][counts >= least])


def test_two_stages_train_the_encoder_and_then_the_classifier(federate):
    fed = federate(
        FedSSC(variant="two-stage", min_images=1), num_rounds=10, local_epochs=1, weight_decay=0.0
    )
    parameters = [name for name, _ in fed.build_model().named_parameters()]
    output = {name for name in parameters if name.startswith("classifier")}
    for t in range(10):
        before, entry = fed.server["model"], fed.run_round()
        after = fed.server["model"]
        moved = {
            name
            for name in parameters
            if not torch.allclose(before[name], after[name], rtol=0, atol=1e-6)
        }
        # round 0 has no representation to contrast with
        assert moved == (output if t == 9 else set() if t == 0 else set(parameters) - output), t
        assert (entry["loss/cross_entropy"] == 0) == (t < 9)
        assert (entry["loss/class_contrast"] == 0) == (t in (0, 9))
        assert ("loss/model_contrast" in entry) == (0 < t < 9)


def test_the_logged_angles_are_those_of_class_means_over_all_images(federate):
    """In the averaged network; held together: a client has images enough of both classes."""
    least = 12
    fed = federate(MeasuredFedSSC(min_images=least), num_rounds=1, local_epochs=1)
    plain = federate(FedSSC(min_images=least), num_rounds=1, local_epochs=1)
    entry, without = fed.run_round(), plain.run_round()
    for name, value in without.items():  # it trains as FedSSC does
        assert "seconds" in name or entry[name] == value
    labels = torch.cat([client.labels for client in fed.clients])
    with fed.at_work(fed.clients[0]) as client:
        client.load({"model": fed.server["model"]})
        images = [fed.images.inputs(client.indices) for client in fed.clients]
        z = torch.cat([client.model(x).representation for x in images])
    means = {k: z[labels == k].mean(0).tolist() for k in labels.unique().tolist()}
    degrees = {"held together": [], "held apart": []}
    for first, second in combinations(means, 2):
        counts = [client.labels.bincount(minlength=1 + max(means)) for client in fed.clients]
        meet = any(count[first] >= least and count[second] >= least for count in counts)
        angle = math.degrees(math.acos(cosine(means[first], means[second])))
        degrees["held together" if meet else "held apart"].append(angle)
    for name, angles in degrees.items():
        logged = entry.get(f"loss/degrees/{name}")
        assert logged == (pytest.approx(np.mean(angles), abs=0.02) if angles else None)


def test_the_error_of_what_is_sent_is_bias_and_scatter():
    """Equation 6: their sum is the clients' mean error; a shared error is bias, one of each client's own is scatter."""
    half = 0.5**0.5
    wanted = {"vectors": torch.tensor([[0.0, 3], [2, 0]]), "labels": torch.tensor([0, 1])}
    apart = {"vectors": torch.tensor([[half, half], [-half, half]]), "labels": torch.tensor([0, 0])}
    assert parts_of_error(apart, wanted).tolist() == pytest.approx([0, 1 - half], abs=1e-6)
    alike = {"vectors": torch.tensor([[5.0, 5], [1, 1]]), "labels": torch.tensor([0, 0])}
    assert parts_of_error(alike, wanted).tolist() == pytest.approx([1 - half, 0], abs=1e-6)
    exact = {
        "vectors": torch.tensor([[1.0, 0], [half, half], [-half, half]]),
        "labels": torch.tensor([1, 0, 0]),
    }
    assert parts_of_error(exact, wanted).tolist() == pytest.approx([0, (1 - half) / 2], abs=1e-6)
