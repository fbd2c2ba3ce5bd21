"""FedPLCC and what it is compared with: against literal loops over ragged lists, each other, and numbers counted by hand."""

import inspect
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
    FedPLCC,
    FedPLCCReadings,
    FedPLVM,
    FedProtoAveraged,
    MeasuredFedAvg,
    contrast,
    correlation,
    similarity,
)
from literal import agree, cosine, prototypes_of, vectors

from fednb import models
from fednb.federation import FedAvg
from fednb.finch import finch_star
from fednb.prototypes import pad_to, select

FCCLPlus = METHODS["FCCL+"]
fccl = inspect.getmodule(FCCLPlus)  # whichever notebook it is from
public_images = fccl.public_images
CLASSES_OF = ([0, 1], [1, 2], [0, 1, 2], [2])
PUBLIC = {"public_size": 12, "public_batch": 5}  # two batches, and two images that are left over
WITH_PROTOTYPES = {
    "FPL": FPL(temperature=0.5),
    "FedPLVM": FedPLVM(lam=0.3),
    "FedPLCC": FedPLCC(lam1=0.3, lam2=3.0),
    "FedPLCC, weighted mean": FedPLCCReadings(lam1=0.3, lam2=3.0, weighted_mean=True),
    "FedPLCC, w=1, weighted mean": FedPLCCReadings(
        lam1=0.3, lam2=0.3, weighted=False, weighted_mean=True
    ),
    "FedProto+FedAvg": FedProtoAveraged(),
}


def weighted_of(labels, capacity=None, even=False, seed=1):
    """Prototypes with shares of their class as weights (or 1), padded as a step sees them."""
    made = prototypes_of(labels, seed=seed)
    weights = np.random.default_rng(seed).integers(1, 9, len(labels)) / 1.0
    for k in set(labels):
        own = np.array(labels) == k
        weights[own] /= weights[own].sum()
    made["weights"] = torch.from_numpy(np.ones(len(labels)) if even else weights)
    return pad_to(made, capacity or len(labels))


def lists(prototypes):
    """The vectors of each class with their weights, as ragged lists; padding is none."""
    weights = prototypes.get("weights", torch.ones(len(prototypes["labels"])))
    found = {}
    for label, *pair in zip(
        prototypes["labels"].tolist(), prototypes["vectors"].tolist(), weights.tolist(), strict=True
    ):
        if label >= 0:
            found.setdefault(label, []).append(pair)
    return found


def literal_s(a, b, alpha):
    """Equation 7; a shorter vector than 1e-4 counts as that long, a smaller cosine than 1e-6 as that large."""
    return cosine(a, b, 1e-4) if alpha == 1 else max(cosine(a, b, 1e-4), 1e-6) ** alpha


def literal_contrast(z, y, prototypes, alpha, temperature):
    """Equation 6, image by image."""
    losses, of_class = [], lists(prototypes)
    for own, label in zip(z.tolist(), y.tolist(), strict=True):
        lumps = {
            k: sum(w * math.exp(literal_s(own, g, alpha) / temperature) for g, w in of)
            for k, of in of_class.items()
        }
        losses.append(-math.log(lumps[label] / sum(lumps.values())) if label in lumps else 0.0)
    return losses


def literal_correlation(z, y, prototypes, alpha, phi):
    """Equation 8, image by image."""
    losses, of_class = [], lists(prototypes)
    for own, label in zip(z.tolist(), y.tolist(), strict=True):
        products = sorted(
            (w * literal_s(own, g, alpha) for g, w in of_class.get(label, [])), reverse=True
        )
        losses.append(-sum(products[: math.ceil(Fraction(str(phi)) * len(products))]))
    return losses


TERMS = [(partial(contrast, temperature=0.07), partial(literal_contrast, temperature=0.07))]
TERMS += [
    (partial(correlation, phi=phi), partial(literal_correlation, phi=phi))
    for phi in (1.0, 0.5, 0.1)
]


@pytest.mark.parametrize("labels", [[], [2], [0, 1, 3], [3, 0, 2, 1, 0, 2, 2]])
@pytest.mark.parametrize(
    ("alpha", "capacity", "even"), [(1.0, None, False), (0.5, 11, False), (0.25, 11, True)]
)
@pytest.mark.parametrize(("ours", "literal"), TERMS)
def test_both_losses_and_their_gradients_are_those_of_literal_loops(
    ours, literal, alpha, labels, capacity, even
):
    y, p = torch.tensor([0, 3, 2, 1, 0]), weighted_of(labels, capacity or max(len(labels), 1), even)
    loss, _ = agree(
        lambda z: ours(similarity(z, p, alpha), y, p),
        lambda z: literal(z, y, p, alpha=alpha),
        vectors(5, 6),
        rtol=1e-9,
    )
    assert (loss[[label not in labels for label in y.tolist()]] == 0).all()


@pytest.mark.parametrize("alpha", [1.0, 0.5, 0.25])
def test_at_cosine_0_and_below_and_for_a_vector_of_zeros_everything_is_finite(alpha):
    rows = torch.tensor(
        [[0.0, 0, 0], [0, 0, 2], [-1, -1, 0], [1, -1, 0], [1, 1e-7, 0], [1, 1e-3, 0]]
    ).double()
    z, y = rows.requires_grad_(), torch.tensor([0, 0, 1, 1, 1, 1])
    made = {
        "vectors": torch.tensor([[3.0, 0, 0], [0, 1, 0], [0, 0.5, 0]]).double(),
        "labels": torch.tensor([0, 1, 1]),
    }
    prototypes = pad_to(made | {"weights": torch.tensor([1.0, 0.75, 0.25]).double()}, 4)
    s = similarity(z, prototypes, alpha)
    losses = contrast(s, y, prototypes, 0.07), correlation(s, y, prototypes, 0.5)
    np.testing.assert_allclose(
        losses[0].detach(), literal_contrast(z.detach(), y, prototypes, alpha, 0.07), rtol=1e-9
    )
    np.testing.assert_allclose(
        losses[1].detach(), literal_correlation(z.detach(), y, prototypes, alpha, 0.5), rtol=1e-9
    )
    for loss, scale in zip(losses, (1 / 0.07, 1), strict=True):
        (gradient,) = torch.autograd.grad(loss.sum(), z, retain_graph=True)
        assert gradient.isfinite().all()
        assert (gradient[1:].norm(dim=1) <= 2 * scale * alpha * 1e-6 ** (alpha - 1)).all()
        # clamped: no direction is better than another
        assert alpha == 1 or (gradient[:3] == 0).all()


@pytest.mark.parametrize("phi", [1e-5, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_as_many_prototypes_count_as_phi_times_their_number_rounded_up(phi, dtype):
    for n in range(1, 61):  # in float32, 0.6 * 25 is more than 15
        labels = torch.tensor([0] * n + [1] * 3 + [-1] * 2)
        prototypes = {"labels": labels, "weights": torch.ones(len(labels), dtype=dtype)}
        counted = -correlation(
            torch.ones(2, len(labels), dtype=dtype), torch.tensor([0, 1]), prototypes, phi
        )
        assert counted.tolist() == [math.ceil(Fraction(str(phi)) * m) for m in (n, 3)], n


def given_of(fed, received, t=1):
    """What the first client's loss may read."""
    client = fed.clients[0]
    with fed.at_work(client):
        client.load(received)
        return fed.method.prepare(client, received, t)


class Identity(torch.nn.Module):
    """A network whose representations are its images; it counts how often it is called."""

    calls = 0

    def forward(self, z):
        self.calls += 1
        return models.Output(z, z[:, :3])


def near_mean(z, y, prototypes, distance):
    """The distance to the plain mean of the prototypes of one's class, a part of the batch's mean for each image."""
    means = {k: np.mean([g for g, _ in of], axis=0).tolist() for k, of in lists(prototypes).items()}
    pairs = zip(z.tolist(), y.tolist(), strict=True)
    return [distance(own, means[k]) / len(y) if k in means else 0.0 for own, k in pairs]


def mse(a, b):
    return np.mean(np.square(np.subtract(a, b)))


def both(z, y, sent, alpha, temperature, distance, factor):
    contrasts = [v / len(y) for v in literal_contrast(z, y, sent, alpha, temperature)]
    return [
        factor * (a + b) for a, b in zip(contrasts, near_mean(z, y, sent, distance), strict=True)
    ]


def fedplcc(z, y, sent, alpha, temperature, phi):
    pairs = (
        literal_contrast(z, y, sent, alpha, temperature),
        literal_correlation(z, y, sent, alpha, phi),
    )
    return [(0.3 * a + 7 * b) / len(y) for a, b in zip(*pairs, strict=True)]


LITERAL = [
    (FPL(temperature=0.2), partial(both, alpha=1, temperature=0.2, distance=mse, factor=1)),
    *(
        (
            FedPLVM(lam=3.0, temperature=0.3, alpha=alpha),
            partial(
                both,
                alpha=alpha,
                temperature=0.3,
                distance=lambda a, b: 2 * (1 - cosine(a, b)) ** 2,
                factor=3,
            ),
        )
        for alpha in (0.25, 1.0)
    ),
    (FedPLCC(lam1=0.3, lam2=7.0, phi=0.5), partial(fedplcc, alpha=0.5, temperature=0.07, phi=0.5)),
    (
        FedPLCC(0.3, 7.0, 1.0, 1.0, temperature=0.3),
        partial(fedplcc, alpha=1, temperature=0.3, phi=1.0),
    ),
    (FedProtoAveraged(lam=0.3), lambda *given: [0.3 * v for v in near_mean(*given, mse)]),
]


# class 1, or all but it, has no prototype
@pytest.mark.parametrize("labels", [[0, 0, 0, 2, 2, 0, 2], [1], []])
@pytest.mark.parametrize(("method", "literal"), LITERAL)
def test_a_loss_and_its_gradient_are_those_of_literal_loops(federate, method, literal, labels):
    fed, net, y = federate(method), Identity(), torch.tensor([0, 1, 2, 0, 1, 1])
    if isinstance(method, FedProtoAveraged):
        labels = sorted(set(labels))
    sent = weighted_of(labels, even=not isinstance(method, FedPLCC))
    if not isinstance(method, FedPLCC):
        del sent["weights"]
    given = given_of(fed, {"model": fed.server["model"], "prototypes": sent})

    def ours(z):
        terms = method.loss(net, z, y, given)
        torch.testing.assert_close(terms.pop("cross_entropy"), F.cross_entropy(z[:, :3], y))
        return sum(terms.values())

    _, gradient = agree(ours, lambda z: literal(z, y, sent), vectors(6, 6, seed=5), rtol=1e-7)
    assert net.calls == 1
    assert (gradient[[k not in labels for k in y.tolist()]] == 0).all()


# --- what crosses, and what the server makes of it


def representations(fed, state, client):
    """Of a client's images as they are, by a network in eval mode; and their labels."""
    net = fed.build_model()
    net.load_state_dict(state)
    images = torch.cat(list(fed.images.plain_batches(client.indices)))
    return net.eval()(images).representation.detach(), fed.images.labels[client.indices]


@pytest.mark.parametrize("name", WITH_PROTOTYPES)
def test_what_is_sent_and_kept_by_hand(ragged, name):
    method = WITH_PROTOTYPES[name]
    fed, plain = ragged(method, CLASSES_OF), ragged(FedAvg(), CLASSES_OF)
    uploads, _ = (one.exchange(one.server, one.clients, 0) for one in (fed, plain))
    clusters, mean = (
        name.startswith(("FedPLCC", "FedPLVM")),
        getattr(method, "weighted_mean", False),
    )
    down = getattr(method, "weighted", isinstance(method, FedPLCC))  # do weights cross?
    up, pool = down or mean, {}
    for client, upload in zip(fed.clients, uploads, strict=True):
        sent, (z, y) = upload["prototypes"], representations(fed, upload["model"], client)
        assert sent.keys() == {"vectors", "labels"} | ({"weights"} if up else set())
        assert sent["labels"].unique().tolist() == CLASSES_OF[client.id]
        for k in CLASSES_OF[client.id]:
            own, rows = select(sent, sent["labels"] == k), z[y == k]
            expected = finch_star(rows)
            torch.testing.assert_close(
                own["vectors"], expected.centres if clusters else rows.mean(0, keepdim=True)
            )
            assert not up or torch.equal(own["weights"], expected.weights)
            pool.setdefault(k, []).append(
                (own["vectors"], expected.weights if clusters else torch.ones(1))
            )
    rows = sum(len(upload["prototypes"]["labels"]) for upload in uploads)
    crossed = {"up": (rows * (4 + 1 + up), rows * (4 * 4 + 8 + 8 * up)), "down": (0, 0)}
    assert fed.traffic == {
        way: plain.traffic[way] | {"prototypes": numbers} for way, numbers in crossed.items()
    }
    server, total = fed.method.aggregate(fed.server, uploads, 0), 0
    kept = server["prototypes"]
    assert kept.keys() == {"vectors", "labels"} | ({"weights"} if down else set())
    for k, parts in pool.items():
        own = select(kept, kept["labels"] == k)
        rows, weights = (torch.cat(values) for values in zip(*parts, strict=True))
        centres, summed = rows.mean(0, keepdim=True), None
        if name != "FedProto+FedAvg":
            centres, summed, _ = finch_star(rows, weights, weighted_mean=mean)
        torch.testing.assert_close(own["vectors"], centres)
        if down:
            torch.testing.assert_close(own["weights"], summed / summed.sum())
        total += len(centres)
    assert len(kept["labels"]) == total
    fed.traffic = {}
    fed.exchange(server, fed.clients, 1)
    assert fed.traffic["down"]["prototypes"] == (
        4 * total * (4 + 1 + down),
        4 * total * (4 * 4 + 8 + 4 * down),
    )
    assert all(client.memory == {} for client in fed.clients)


def test_with_one_mean_a_class_has_the_mean_of_its_clients_means_and_weight_1(ragged):
    fed = ragged(FedPLCCReadings(lam1=0.3, lam2=3.0, one_mean=True), CLASSES_OF)
    fed.run_round()
    uploads = fed.exchange(fed.server, fed.clients, 1)
    for client, upload in zip(fed.clients, uploads, strict=True):
        (z, y), sent = representations(fed, upload["model"], client), upload["prototypes"]
        assert sent["labels"].tolist() == CLASSES_OF[client.id]
        for k, vector in zip(sent["labels"].tolist(), sent["vectors"], strict=True):
            torch.testing.assert_close(vector, z[y == k].mean(0))
    kept = fed.method.aggregate(fed.server, uploads, 1)["prototypes"]
    assert kept["labels"].tolist() == [0, 1, 2] and kept["weights"].tolist() == [1, 1, 1]
    for k, vector in enumerate(kept["vectors"]):
        means = [u["prototypes"]["vectors"][u["prototypes"]["labels"] == k] for u in uploads]
        torch.testing.assert_close(vector, torch.cat(means).mean(0))


# --- FCCL+: what a client learns from public images


def literal_cross_correlation(own, others, off_diagonal=0.0051):
    """Equation 4 of FCCL+ in loops; its terms."""

    def standard(columns):
        found = []
        for column in columns:
            mean = sum(column) / len(column)
            variance = sum((v - mean) ** 2 for v in column) / len(column)
            found.append([(v - mean) / variance**0.5 for v in column])
        return found

    a, b = (standard(list(zip(*v, strict=True))) for v in (own, others))
    terms = []
    for j, first in enumerate(a):
        for k, second in enumerate(b):
            c = sum(p * q for p, q in zip(first, second, strict=True)) / len(first)
            terms.append((c - 1) ** 2 if j == k else off_diagonal * (c + 1) ** 2)
    return terms


def test_cross_correlation_is_that_of_literal_loops():
    others = vectors(7, 4, seed=3)
    agree(
        lambda own: fccl.cross_correlation(own, others),
        lambda own: literal_cross_correlation(own.tolist(), others.tolist()),
        vectors(7, 4),
    )
    constant = fccl.cross_correlation(torch.ones(7, 4), torch.ones(7, 4))
    assert constant.item() == pytest.approx(4 + 12 * 0.0051)


def literal_divergence(logits, teacher, y, temperature):
    """T² Σ p_T log(p_T / p) over the other classes, each image divided by how many there are."""
    found = []
    for own, other, label in zip(logits.tolist(), teacher.tolist(), y.tolist(), strict=True):
        p, q = ([math.exp(v / temperature) for v in row] for row in (own, other))
        p, q = ([v / sum(row) for v in row] for row in (p, q))
        terms = [
            b * math.log(b / a) for k, (a, b) in enumerate(zip(p, q, strict=True)) if k != label
        ]
        found.append(temperature**2 * sum(terms) / len(y))
    return found


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_the_divergence_leaves_the_target_out_and_does_not_renormalise(temperature):
    teacher, y = 2 * vectors(6, 4, seed=2), torch.tensor([0, 1, 2, 3, 0, 1])
    agree(
        lambda logits: fccl.non_target_divergence(logits, teacher, y, temperature),
        lambda logits: literal_divergence(logits, teacher, y, temperature),
        2 * vectors(6, 4),
    )


def test_the_divergence_renormalised_is_that_of_the_other_logits_alone():
    logits, teacher, y = (
        2 * vectors(6, 4),
        2 * vectors(6, 4, seed=2),
        torch.tensor([0, 1, 2, 3, 0, 1]),
    )
    other = torch.arange(4) != y[:, None]
    own, taught = ((v[other].view(6, 3) / 3).log_softmax(1) for v in (logits, teacher))
    expected = 9 * F.kl_div(own, taught, reduction="batchmean", log_target=True)
    found = fccl.non_target_divergence(logits, teacher, y, 3.0, renormalised=True)
    torch.testing.assert_close(found, expected)


def public_loss(net, x, logits, similarities, weight, temperature):
    """What one client minimises on a public batch, by literal loops over float64 scalars."""
    z, own = net(x)
    loss = sum(literal_cross_correlation(list(own.unbind()), logits.tolist()))
    for i in range(len(x)):
        row = [
            F.cosine_similarity(z[i], z[j], dim=0, eps=1e-8) / temperature
            for j in range(len(x))
            if j != i
        ]
        others = [math.exp(s / temperature) for s in similarities[i].tolist()]
        total = sum(torch.exp(s) for s in row)
        for s, q in zip(row, (v / sum(others) for v in others), strict=True):
            loss = loss + weight / len(x) * q * (math.log(q) - torch.log(torch.exp(s) / total))
    return loss


def test_the_public_step_is_one_step_of_adam_on_the_literal_loss(federate):
    method = FCCLPlus(public_lr=0.003, similarity_weight=2.0, similarity_temperature=0.3)
    fed = federate(method)
    x = vectors(6, 1, 8, 8).float()
    received = {
        "logits": vectors(6, 3, seed=8).float(),
        "similarities": vectors(6, 5, seed=9).tanh().float(),
    }
    client, ends = fed.clients[1], []
    for dirt in (0.0, 1e3):  # gradients that another client has left behind
        client.memory["model"] = client.random_weights()
        with fed.at_work(client):
            for parameter in client.model.parameters():
                parameter.grad = torch.full_like(parameter, dirt)
            assert method.agree(client, received, 0, x) == {}
        ends.append(client.memory["model"])
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())
    net = fed.build_model().double().train()
    net.load_state_dict(client.random_weights())
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    public_loss(
        net, x.double(), received["logits"].double(), received["similarities"].double(), 2.0, 0.3
    ).backward()
    compared = 0
    for name, p in net.named_parameters():
        # of the others (biases before a standardisation) only rounding is left
        sure = p.grad.abs() > 1e-4
        step = before[name] - 0.003 * p.grad / (p.grad.abs() + 1e-8)
        torch.testing.assert_close(ends[0][name].double()[sure], step[sure], rtol=0, atol=3e-6)
        assert ((ends[0][name].double() - before[name]).abs() <= 0.00301).all()
        compared += int(sure.sum())
    assert compared > 0.7 * sum(p.numel() for p in net.parameters())
    assert (
        ends[0]["encoder.1.num_batches_tracked"]
        == client.random_weights()["encoder.1.num_batches_tracked"] + 1
    )
    torch.testing.assert_close(
        ends[0]["encoder.1.running_mean"].double(),
        net.encoder[1].running_mean,
        rtol=1e-4,
        atol=1e-6,
    )


# --- FCCL+: rounds


def public_of(federation, t):
    """The public batches of a round."""
    method = federation.method
    return fccl.public_batches(
        federation, method.public, method.public_size, method.public_batch, t
    )


def test_public_batches_are_drawn_anew_in_each_round_and_for_each_seed(federate):
    feds = [federate(FCCLPlus(public_size=16, public_batch=4), seed=seed) for seed in (0, 1)]
    orders = [public_of(feds[seed], t) for seed, t in ((0, 0), (0, 1), (1, 0), (0, 0))]
    pixels = (public_images("photographs", 16, 1, 8).float() / 255 - 0.5) / 0.25
    for batches in orders:
        assert [x.shape for x in batches] == [(4, 1, 8, 8)] * 4
        found, values = (x.flatten(1).sort(0).values for x in (torch.cat(batches), pixels))
        torch.testing.assert_close(found, values, rtol=1e-4, atol=1e-5)
    first, *others = map(torch.cat, orders)
    assert [torch.equal(first, other) for other in others] == [False, False, True]
    small = federate(FCCLPlus(public_size=3, public_batch=4))
    assert [len(x) for x in public_of(small, 0)] == [3]


def test_measured_fedavg_trains_as_fedavg_and_logs_who_is_right_by_the_nearest_mean(ragged):
    """Image by image, in the averaged network; the clusters' sets are those of the functions above."""
    given = {"local_epochs": 1, "participation": 0.5}
    fed, plain = (ragged(one(), CLASSES_OF, **given) for one in (MeasuredFedAvg, FedAvg))
    entry, without = fed.run_round(), plain.run_round()
    for name, value in without.items():
        assert "seconds" in name or entry[name] == value
    with fed.at_work(fed.clients[0]) as client, torch.no_grad():
        client.load({"model": fed.server["model"]})
        model = client.model.eval()
        new = model(fed.images.test_inputs()).representation.tolist()
        sent = []
        for other in fed.clients:
            z = model(fed.images.inputs(other.indices)).representation
            sent += [(k, z[other.labels == k].mean(0)) for k in other.labels.unique().tolist()]
    classes = sorted({k for k, _ in sent})
    one = [(k, torch.stack([m for c, m in sent if c == k]).mean(0)) for k in classes]
    labels = fed.images.test_labels.tolist()
    for name, known in (("one mean", one), ("clients' means", sent)):
        known = [(k, mean.tolist()) for k, mean in known]
        chosen = [max(known, key=lambda pair: cosine(z, pair[1], 1e-12))[0] for z in new]
        right = 100 * np.mean([a == b for a, b in zip(chosen, labels, strict=True)])
        assert entry[f"loss/nearest/{name}"] == pytest.approx(right)
    assert len({n for n in entry if n.startswith("loss/nearest/")}) == 6
