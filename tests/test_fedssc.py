"""FedSSC: its losses against literal loops, its schedule, and the draw of whose representations are shared."""

import math
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fednb.papers.fedproc import prototypical_contrastive
from fednb.papers.fedssc import METHODS, FedSSC, ShareRepresentations, class_weight, local_and_shared_contrastive
from fednb.papers.moon import MOON

from fednb.experiments import settings
from fednb.federation import FedAvg
from fednb.prototypes import class_means, padded

OFF = {"mu_glob": 0.0, "mu_glob_end": 0.0}  # without the contrast between classes


def vectors(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def prototypes(*labels, dim=6, seed=1):
    return {"vectors": vectors(len(labels), dim, seed=seed), "labels": torch.tensor(labels, dtype=torch.long)}


def similarity(a, b):
    dot = sum(p * q for p, q in zip(a, b, strict=True))
    return dot / math.sqrt(sum(p * p for p in a)) / math.sqrt(sum(q * q for q in b))


# --- the losses


def literal_between_classes(z, y, shared, temperature):
    """Equation 3, number by number, over the classes that have a representation."""
    losses = []
    for own, label in zip(z.tolist(), y.tolist(), strict=True):
        terms = {
            k: math.exp(similarity(own, vector) / temperature)
            for k, vector in zip(shared["labels"].tolist(), shared["vectors"].tolist(), strict=True)
            if k >= 0
        }
        losses.append(-math.log(terms[label] / sum(terms.values())) if label in terms else 0.0)
    return losses


@pytest.mark.parametrize("temperature", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("labels", [(), (2,), (0, 1, 3), (3, 0, 2, 1)])
def test_the_contrast_between_classes_is_that_of_literal_loops(numeric_gradient, labels, temperature):
    z, y = vectors(5, 6).requires_grad_(), torch.tensor([0, 3, 2, 1, 0])
    shared = padded(prototypes(*labels), 4)
    loss = prototypical_contrastive(z, y, shared, temperature)
    expected = literal_between_classes(z.detach(), y, shared, temperature)
    np.testing.assert_allclose(loss.detach(), expected, rtol=1e-10, atol=1e-12)
    (gradient,) = torch.autograd.grad(loss.sum(), z)
    numeric = numeric_gradient(lambda moved: literal_between_classes(moved, y, shared, temperature), z.detach())
    np.testing.assert_allclose(gradient, numeric, atol=1e-6)
    silent = torch.tensor([label not in labels or len(labels) == 1 for label in y.tolist()])
    assert (gradient[silent].abs() < 1e-12).all()
    assert (gradient[~silent].abs().sum(1) > 1e-4).all()
    np.testing.assert_allclose((gradient * z.detach()).sum(1), 0, atol=1e-9)  # the length of z is left alone


def literal_local_and_shared(z, y, shared, temperature):
    """The mean, over its positives, of -log softmax over the representations and the other images of the batch."""
    losses, images = [], list(zip(y.tolist(), z.tolist(), strict=True))
    given = [(k, v) for k, v in zip(shared["labels"].tolist(), shared["vectors"].tolist(), strict=True) if k >= 0]
    for place, (label, own) in enumerate(images):
        candidates = given + images[:place] + images[place + 1 :]
        terms = [(k, math.exp(similarity(own, other) / temperature)) for k, other in candidates]
        total = sum(term for _, term in terms)
        own_class = [-math.log(term / total) for k, term in terms if k == label]
        losses.append(sum(own_class) / len(own_class) if own_class else 0.0)
    return losses


@pytest.mark.parametrize("temperature", [0.1, 0.5])
@pytest.mark.parametrize("labels", [(), (0, 1, 3), (3, 0, 2, 1)])
def test_pairs_from_the_batch_are_those_of_literal_loops(numeric_gradient, labels, temperature):
    z, y = vectors(6, 6).requires_grad_(), torch.tensor([0, 3, 2, 1, 0, 0])  # 1, 2 and 3 are alone in the batch
    shared = padded(prototypes(*labels), 4)
    loss = local_and_shared_contrastive(z, y, shared, temperature)
    expected = literal_local_and_shared(z.detach(), y, shared, temperature)
    np.testing.assert_allclose(loss.detach(), expected, rtol=1e-10, atol=1e-12)
    assert [value == 0 for value in loss.tolist()] == [k in (1, 2, 3) and k not in labels for k in y.tolist()]
    (gradient,) = torch.autograd.grad(loss.sum(), z)  # through both images of a pair
    numeric = numeric_gradient(lambda moved: literal_local_and_shared(moved, y, shared, temperature), z.detach())
    np.testing.assert_allclose(gradient, numeric, atol=1e-6)


def test_a_batch_of_one_image_has_no_pair_in_it():
    z, y, shared = vectors(1, 6), torch.tensor([1]), prototypes(0, 1, 2)
    alone = local_and_shared_contrastive(z, y, shared, 0.5)
    torch.testing.assert_close(alone, prototypical_contrastive(z, y, shared, 0.5))
    none = padded(prototypes(), 3)
    assert local_and_shared_contrastive(z, y, none, 0.5).item() == 0


def test_the_loss_on_a_batch_is_made_of_its_parts(batch_norm_net):
    net, glob, prev = (batch_norm_net(seed=s).eval() for s in range(3))
    x, y = torch.rand(5, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1])
    shared = padded({name: v.float() if v.is_floating_point() else v for name, v in prototypes(0, 2, dim=4).items()}, 3)
    given = {
        "prototypes": shared,
        "weights": {"class": torch.tensor(1.0), "glob": torch.tensor(0.25)},
        "frozen": [glob.state_dict(), prev.state_dict()],
    }
    z, z_glob, z_prev = (n(x).representation.detach().double() for n in (net, glob, prev))
    terms = FedSSC(mu_moon=2.0, temperature=0.7).loss(net, x, y, given)
    assert list(terms) == ["cross_entropy", "model_contrast", "class_contrast"]
    assert terms["cross_entropy"].item() == FedAvg().loss(net, x, y, {})["cross_entropy"].item()
    expected = np.mean(literal_between_classes(z, y, shared, 0.7))
    assert terms["class_contrast"].item() == pytest.approx(0.25 * expected, rel=1e-5)

    def between_models(negative):
        u = (F.cosine_similarity(z, negative) - F.cosine_similarity(z, z_glob)) / 0.7
        return 2.0 * F.softplus(u).mean().item()

    assert terms["model_contrast"].item() == pytest.approx(between_models(z_prev), rel=1e-4)
    other = FedSSC(mu_moon=2.0, temperature=0.7, variant="other-image").loss(net, x, y, given)["model_contrast"]
    assert other.item() == pytest.approx(between_models(z_glob[[4, 0, 1, 2, 3]]), rel=1e-4)
    local = FedSSC(mu_moon=2.0, temperature=0.7, variant="local-pairs").loss(net, x, y, given)
    expected = np.mean(literal_local_and_shared(z, y, shared, 0.7))
    assert local["class_contrast"].item() == pytest.approx(0.25 * expected, rel=1e-5)
    assert "model_contrast" not in FedSSC(mu_moon=2.0).loss(net, x, y, given | {"frozen": []})


# --- the schedule


def test_mu_glob_is_held_during_warm_up_and_then_falls_in_equal_steps():
    weights = [class_weight(t, 100, 1.0, 1e-4, 5) for t in range(101)]
    assert weights[:6] == [1.0] * 6
    np.testing.assert_allclose(np.diff(weights[5:]), -(1 - 1e-4) / 95)
    assert weights[100] == pytest.approx(1e-4)
    assert [class_weight(t, 4, 2.0, 1.0, 0) for t in range(5)] == [2.0, 1.75, 1.5, 1.25, 1.0]


def test_mu_glob_can_be_silent_during_warm_up_or_as_printed():
    silent = [class_weight(t, 100, 1.0, 1e-4, 5, "silent") for t in range(100)]
    assert silent[:5] == [0.0] * 5
    assert silent[5:] == [class_weight(t, 100, 1.0, 1e-4, 5) for t in range(5, 100)]
    assert {class_weight(t, 100, 1.0, 1e-4, 5, "printed") for t in range(100)} == {1 - 0.9999 / 95}
    assert round(1 - 0.9999 / 95, 5) == 0.98947


@pytest.mark.parametrize("warmup", [0, 3, 8])
def test_a_run_as_short_as_its_warm_up_is_no_division_by_zero(warmup):
    assert class_weight(2, 3, 1.0, 0.0, warmup) == (1.0 if warmup >= 2 else pytest.approx(1 / 3))


# --- the draw


def upload(client, *labels):
    """What a client sends: vectors that tell whose they are, (client, class)."""
    vectors = torch.tensor([[client, k] for k in labels]).float().view(-1, 2)
    return {"prototypes": {"vectors": vectors, "labels": torch.tensor(labels, dtype=torch.long)}, "client": client}


def served(method, uploads, t=0, seed=0, server=None, receiver=0):
    """What the server then sends: class to vector."""
    server = server or {"prototypes": {"vectors": torch.zeros(0, 2), "labels": torch.zeros(0, dtype=torch.long)}}
    server = server | {"seed": seed}
    server = server | {"prototypes": method.merge(server, uploads, t)}
    sent = method.sent(server, receiver)
    assert sent.keys() == {"vectors", "labels"}
    return server, dict(zip(sent["labels"].tolist(), sent["vectors"].tolist(), strict=True))


ALL = [upload(i, 0, 1, 2) for i in range(6)]


def test_with_k_1_each_class_is_one_devices_drawn_anew_each_round_and_for_each_seed():
    method, owners = ShareRepresentations(), []
    for seed, t in ((0, 0), (0, 1), (1, 0), (1, 1)):
        _, sent = served(method, ALL, t, seed)
        assert sent.keys() == {0, 1, 2}
        assert all(vector[1] == k and vector[0] in range(6) for k, vector in sent.items())
        owners.append(tuple(vector[0] for vector in sent.values()))
        assert served(method, ALL, t, seed)[1] == sent  # the same whenever it is asked for
    assert len(set(owners)) == 4
    assert any(len(set(three)) > 1 for three in owners)  # a draw for each class


def test_all_receivers_get_the_same_draw():
    server, sent = served(ShareRepresentations(num_shared=2), ALL)
    for receiver in range(6):
        other = ShareRepresentations(num_shared=2).sent(server, receiver)
        assert dict(zip(other["labels"].tolist(), other["vectors"].tolist(), strict=True)) == sent


def test_every_device_is_as_likely_as_the_others():
    uploads = [upload(i, 0) for i in range(4)]
    counts = Counter(served(ShareRepresentations(), uploads, t)[1][0][0] for t in range(400))
    assert set(counts) == {0, 1, 2, 3}
    assert all(70 <= n <= 130 for n in counts.values()), counts  # 100 expected; the standard deviation is 8.7


def test_k_are_averaged_and_k_at_least_the_holders_is_the_mean_of_all():
    uploads = [upload(0, 0, 1), upload(1, 0), upload(2, 0, 2), upload(3, 0)]
    for k, possible in ((2, {0.5, 1.0, 1.5, 2.0, 2.5}), (3, {1.0, 4 / 3, 5 / 3, 2.0})):
        owners = [served(ShareRepresentations(num_shared=k), uploads, t)[1] for t in range(30)]
        assert {round(sent[0][0], 4) for sent in owners} == {round(x, 4) for x in possible}
        assert all(sent[1] == [0.0, 1.0] and sent[2] == [2.0, 2.0] for sent in owners)
    for k in (4, 10):
        assert served(ShareRepresentations(num_shared=k), uploads)[1] == {0: [1.5, 0], 1: [0, 1], 2: [2, 2]}


def test_a_larger_k_contains_the_smaller_draw():
    """Runs that differ in k alone share their first device."""
    sent = [served(ShareRepresentations(num_shared=k), ALL, 3)[1] for k in (1, 2)]
    assert all((2 * sent[1][c][0] - sent[0][c][0]) in set(range(6)) - {sent[0][c][0]} for c in range(3))


def test_exclude_own_never_sends_a_receiver_its_own():
    for t in range(40):
        server, _ = served(ShareRepresentations(), ALL, t)
        for receiver in range(6):
            sent = ShareRepresentations(exclude_own=True).sent(server, receiver)
            assert receiver not in sent["vectors"][:, 0].tolist()
            assert len(sent["labels"]) == 3
    server, sent = served(ShareRepresentations(num_shared=9, exclude_own=True), [upload(0, 0, 1), upload(1, 0)])
    assert sent == {0: [1.0, 0.0]}  # of class 1 there is only its own


def test_a_class_that_nobody_shares_keeps_last_rounds():
    method = ShareRepresentations(num_shared=2)
    server, first = served(method, [upload(1, 0, 1), upload(2, 1)], 0)
    server, second = served(method, [upload(3, 0), upload(4, 2)], 1, server=server)
    assert first == {0: [1, 0], 1: [1.5, 1]}
    assert second == {0: [3, 0], 1: [1.5, 1], 2: [4, 2]}
    server, third = served(method, [upload(0)], 2, server=server)  # no class at all
    assert third == second
    assert served(method, [upload(0)])[1] == {}


@pytest.mark.parametrize("min_images", [1, 3, 5])
def test_a_device_with_too_few_images_of_a_class_does_not_share_it(federate, min_images):
    fed = federate(FedSSC(min_images=min_images))
    client = fed.clients[0]
    with fed.lend_model(client):
        client.load({"model": fed.server["model"]})
        shared = fed.method.summary(client)
        means = class_means(*client.representations())
    labels = fed.labels[client.indices].tolist()
    enough = [k for k in range(3) if labels.count(k) >= min_images]
    assert shared["labels"].tolist() == enough
    assert shared.keys() == {"vectors", "labels"}  # how many images there are is not told
    torch.testing.assert_close(shared["vectors"], means["vectors"][torch.isin(means["labels"], shared["labels"])])


def test_the_threshold_is_at_least(federate):
    fed = federate(FedSSC(), sizes=(30,))
    counts = torch.bincount(fed.labels[fed.clients[0].indices]).tolist()
    for least, shared in ((max(counts), 1), (max(counts) + 1, 0)):
        fed.method = FedSSC(min_images=least)
        with fed.lend_model(fed.clients[0]):
            fed.clients[0].load({"model": fed.server["model"]})
            assert len(fed.method.summary(fed.clients[0])["labels"]) == shared


def test_shared_representations_are_class_means_of_the_trained_local_model(federate):
    fed = federate(FedSSC(min_images=1))
    sent = fed.exchange(fed.server, fed.clients, 0)[2]
    net = fed.build_model()
    net.load_state_dict(sent["model"])
    images = torch.cat(list(fed.plain_batches(fed.clients[2].indices)))
    z, labels = net.eval()(images).representation.detach(), fed.labels[fed.clients[2].indices]
    for label, vector in zip(sent["prototypes"]["labels"], sent["prototypes"]["vectors"], strict=True):
        torch.testing.assert_close(vector, z[labels == label].mean(0))


# --- against FedAvg and MOON


@pytest.mark.parametrize("more", [{}, {"num_shared": 9, "min_images": 1}, {"variant": "local-pairs"}])
def test_without_both_terms_it_is_fedavg_bit_for_bit(federate, identical, rounds, more):
    expected = rounds(federate(FedAvg()), 3)
    fed = federate(FedSSC(mu_moon=0.0, **OFF, **more))
    assert identical(rounds(fed, 3), expected)
    assert fed.history[-1]["loss/class_contrast"] == 0
    assert not identical(rounds(federate(FedSSC(mu_moon=0.0, min_images=1)), 3), expected)
    assert identical(rounds(federate(ShareRepresentations()), 3), expected)


@pytest.mark.parametrize("temperature", [0.5, 0.1])
def test_without_the_contrast_between_classes_it_is_moon_bit_for_bit(federate, identical, rounds, temperature):
    expected = rounds(federate(MOON(mu=2.0, temperature=temperature)), 3)
    assert identical(rounds(federate(FedSSC(mu_moon=2.0, temperature=temperature, **OFF)), 3), expected)
    fed = federate(FedSSC(mu_moon=2.0, temperature=temperature, min_images=1))
    assert not identical(rounds(fed, 3), expected)


def test_mu_glob_0_alone_rises_to_its_end(federate, identical, rounds):
    """The end of the schedule has to be 0, too."""
    assert class_weight(2, 3, 0.0, 1e-4, 0) == pytest.approx(2e-4 / 3)
    start = federate(FedSSC(mu_moon=0.0, mu_glob=0.0, warmup=0, min_images=1), num_rounds=3)
    assert not identical(rounds(start, 3), rounds(federate(FedAvg()), 3))


def test_the_first_round_is_fedavgs(federate, identical, rounds):
    fed = federate(FedSSC(min_images=1))
    assert identical(rounds(fed), rounds(federate(FedAvg())))
    assert fed.history[0]["loss/class_contrast"] == 0
    assert "loss/model_contrast" not in fed.history[0]
    fed.run_round()
    assert fed.history[1]["loss/class_contrast"] > 0
    assert fed.history[1]["loss/model_contrast"] > 0


def test_the_schedule_reaches_the_loss(federate):
    fed = federate(FedSSC(mu_glob=1.0, mu_glob_end=0.5, warmup=1), num_rounds=3)
    for t, expected in enumerate((1.0, 1.0, 0.75)):
        with fed.lend_model(fed.clients[0]):
            fed.clients[0].load({"model": fed.server["model"]})
            given = fed.method.prepare(fed.clients[0], fed.method.broadcast(fed.server, 0), t)
        assert given["weights"]["glob"].item() == expected
        assert given["weights"]["class"].item() == 1


def test_without_the_contrast_between_models_no_model_is_kept(federate):
    for mu, kept in ((0.0, {}), (1.0, {"previous"})):
        fed = federate(FedSSC(mu_moon=mu))
        fed.run_round()
        assert all(client.memory.keys() == set(kept) for client in fed.clients)


# --- two stages


def test_two_stages_train_the_encoder_and_then_the_classifier(federate):
    fed = federate(FedSSC(variant="two-stage", min_images=1), num_rounds=10, local_epochs=1, weight_decay=0.0)
    states = [fed.server["model"]]
    for _ in range(10):
        fed.run_round()
        states.append(fed.server["model"])
    parameters = [name for name, _ in fed.build_model().named_parameters()]
    output = [n for n in parameters if n.startswith("classifier")]
    rest = [n for n in parameters if not n.startswith("classifier")]
    assert output
    assert rest

    def moved(t, names):
        return [n for n in names if not torch.allclose(states[t][n], states[t + 1][n], rtol=0, atol=1e-6)]

    for t in range(10):
        assert moved(t, output) == (output if t == 9 else []), t
        assert moved(t, rest) == ([] if t in (0, 9) else rest), t  # round 0 has no representation to contrast with
    for t, entry in enumerate(fed.history):
        assert (entry["loss/cross_entropy"] == 0) == (t < 9)
        assert (entry["loss/class_contrast"] == 0) == (t in (0, 9))
        assert ("loss/model_contrast" in entry) == (0 < t < 9)


# --- what is sent, and what is kept


def test_what_is_sent_is_the_model_and_the_representations(federate):
    fed, plain = federate(FedSSC(min_images=4)), federate(FedAvg())
    for _ in range(2):
        fed.run_round(), plain.run_round()
    labels = [fed.labels[client.indices] for client in fed.clients]
    shared = [{k for k in range(3) if (own == k).sum() >= 4} for own in labels]
    assert 4 < sum(map(len, shared)) < 12  # some classes are not shared by some
    up = sum(map(len, shared))
    down = len(fed.clients) * len(set().union(*shared))
    for direction, count in (("up", up), ("down", down)):
        numbers = count * (4 + 1)  # a vector of 4 and its label
        assert fed.traffic[direction]["prototypes"] == (numbers, count * (4 * 4 + 8))
        assert {n: v for n, v in fed.traffic[direction].items() if n != "prototypes"} == plain.traffic[direction]
    assert fed.history[0]["down_numbers"] == plain.history[0]["down_numbers"]  # nothing to share yet


def test_a_restored_federation_goes_on_as_if_nothing_had_happened(federate, identical, with_and_without_a_break):
    method = FedSSC(mu_moon=1.0, min_images=1, num_shared=2, exclude_own=True)
    assert identical(*with_and_without_a_break(partial(federate, method, participation=0.5), 5, 3))


def test_workers_do_not_change_a_result(federate, identical, rounds):
    ends = [rounds(federate(FedSSC(min_images=1), workers=w), 3) for w in (1, 3)]
    assert identical(*ends)


# --- settings


def test_defaults_are_the_papers():
    own = settings.resolve(METHODS, method="FedSSC", dataset="cifar10")
    paper = {"mu_moon": 5.0, "mu_glob": 1.0, "mu_glob_end": 1e-4, "warmup": 5, "num_shared": 1, "min_images": 10}
    assert own.hyperparameters.items() >= (paper | {"temperature": 0.5, "variant": "default", "exclude_own": False}).items()
    assert (own.num_rounds, own.local_epochs, own.num_clients, own.beta) == (100, 10, 10, 0.5)
    assert settings.resolve(METHODS, method="FedSSC", dataset="digits").hyperparameters["mu_moon"] == 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mu_moon": -1}, "mu_moon is -1.0; it must be a number from 0"),
        ({"mu_glob": -0.1}, "mu_glob is -0.1; it must be a number from 0"),
        ({"mu_glob_end": -1}, "mu_glob_end is -1.0; it must be a number from 0"),
        ({"mu_glob_schedule": "linear"}, "mu_glob_schedule is 'linear'; it must be one of 'hold', 'silent', 'printed'"),
        ({"warmup": -1}, "warmup is -1; it must be a whole number from 0"),
        ({"warmup": 1.5}, "warmup is 1.5; it must be a whole number"),
        ({"temperature": 0}, "temperature is 0.0; it must be a positive number"),
        ({"num_shared": 0}, "num_shared is 0; it must be a whole number from 1"),
        ({"min_images": 0}, "min_images is 0; it must be a whole number from 1"),
        ({"exclude_own": 1}, "exclude_own is 1; it must be True or False"),
        (
            {"variant": "twostage"},
            "variant is 'twostage'; it must be one of 'default', 'two-stage', 'local-pairs', 'other-im",
        ),
        ({"mu": 1.0}, "FedSSC has no parameter 'mu', which belongs to FedProx, MOON"),
    ],
)
def test_bad_hyperparameters_are_refused_in_a_sentence(given, message):
    with pytest.raises(settings.SettingsError, match=message):
        settings.resolve(METHODS, method="FedSSC", dataset="digits", **given)
