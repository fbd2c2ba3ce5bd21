"""Class prototypes: their arithmetic against literal loops, and what becomes of them on the way across."""

from functools import partial

import numpy as np
import pytest
import torch
from fednb.papers.fedproc import FedProc, FedProcVariants
from fednb.papers.fedproto import FedProto

from fednb import papers
from fednb.prototypes import (
    class_means,
    join,
    mean_by_class,
    pad_to,
    select,
    updated,
)

METHODS = papers.methods()
CLASSES_OF = ([0, 1, 2], [0, 1], [2], [0, 2])  # what the four clients of `ragged` hold


def made_up(labels, counts=None, dimension=3, seed=0, dtype=torch.float64):
    """A set of prototypes with random vectors."""
    vectors = torch.from_numpy(np.random.default_rng(seed).normal(size=(len(labels), dimension)))
    made = {"vectors": vectors.to(dtype), "labels": torch.tensor(labels, dtype=torch.long)}
    return made if counts is None else made | {"counts": torch.tensor(counts)}


def by_class(prototypes):
    """The vector of each class; a class that is there twice is an error."""
    labels = prototypes["labels"].tolist()
    assert len(set(labels)) == len(labels) == len(prototypes["vectors"])
    return dict(zip(labels, prototypes["vectors"].double().numpy(), strict=True))


def literal_means(z, y):
    """The mean vector of each class."""
    members = {}
    for vector, label in zip(z.tolist(), y.tolist(), strict=True):
        members.setdefault(label, []).append(vector)
    return {label: np.mean(vectors, 0) for label, vectors in members.items()}


def assert_same(found, expected, **tolerance):
    found, expected = (by_class(one) if "labels" in one else one for one in (found, expected))
    assert found.keys() == expected.keys()
    for label, vector in expected.items():
        np.testing.assert_allclose(found[label], vector, **{"rtol": 1e-12} | tolerance)


# --- arithmetic


def test_class_means_are_those_of_literal_loops_in_any_order():
    # classes 1, 3 and 4 are missing, class 2 has a single image
    y = torch.tensor([5, 0, 2, 0, 5, 0, 5, 0, 0, 5, 0])
    z = made_up(y.tolist(), dimension=4)["vectors"]
    for means in (class_means(z, y), class_means(z.flip(0), y.flip(0))):
        assert means["labels"].tolist() == [0, 2, 5]
        assert means["counts"].tolist() == [6, 1, 4]
        assert_same(means, literal_means(z, y))
        assert torch.equal(means["vectors"][1], z[2])
    none = class_means(z[:0], y[:0])
    assert none.keys() == means.keys() and not any(map(len, none.values()))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_mean_over_clients_is_that_of_literal_loops(weighted):
    """Weighted with their counts, class means of clients give the mean over all images."""
    parts = [torch.tensor(y) for y in ([0, 0, 0, 1, 4], [1, 1, 0], [4, 4, 1], [])]
    z = [made_up(y.tolist(), seed=i)["vectors"] for i, y in enumerate(parts)]
    everything = join([class_means(*pair) for pair in zip(z, parts, strict=True)])
    means = mean_by_class(everything, weighted)
    assert means["counts"].tolist() == [4, 4, 3]
    pooled = literal_means(torch.cat(z), torch.cat(parts))
    of_means = literal_means(everything["vectors"], everything["labels"])
    assert_same(means, pooled if weighted else of_means)
    assert np.allclose(means["vectors"][0], pooled[0]) == weighted


def test_a_class_without_a_new_prototype_keeps_the_one_it_has(identical):
    old, new = made_up([0, 1, 3]), made_up([4, 1], seed=1)
    before = [{n: v.clone() for n, v in one.items()} for one in (old, new)]
    assert_same(updated(old, new), by_class(old) | by_class(new), rtol=0)
    assert identical([old, new], before)
    assert identical(updated(made_up([]), new), new)
    assert identical(updated(old, made_up([])), old)


def test_padding_fills_up_with_rows_that_are_no_prototypes(identical):
    prototypes = made_up([4, 0], [7, 8], dtype=torch.float32)
    full = pad_to(prototypes, 5)
    assert set(full) == {"vectors", "labels", "counts"}
    assert full["labels"].tolist() == [4, 0, -1, -1, -1]
    assert full["counts"].tolist() == [7, 8, 0, 0, 0]
    assert full["vectors"].dtype == torch.float32
    assert torch.equal(full["vectors"], torch.cat([prototypes["vectors"], torch.zeros(3, 3)]))
    assert identical(pad_to(full, 5), full)
    assert pad_to(made_up([]), 2)["labels"].tolist() == [-1, -1]
    with pytest.raises(ValueError, match="There are 2 prototypes"):
        pad_to(prototypes, 1)


# --- in a federation


@pytest.fixture
def ragged(ragged):
    """Make a federation of four clients that hold different classes."""
    return partial(ragged, classes_of=CLASSES_OF)


def by_hand(fed, state, client, unit=False, training=False):
    """The prototypes of a client with these weights, on its images as they are."""
    net = fed.build_model()
    net.load_state_dict(state)
    x = (fed.dataset.images[client.indices].float() / 255 - 0.5) / 0.25
    z = net.train(training)(x).representation.detach().double()
    return class_means(z / z.norm(dim=1, keepdim=True) if unit else z, client.labels)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_first_prototypes_are_those_of_the_initial_model(ragged, monkeypatch, weighted):
    received, prepare = {}, FedProc.prepare

    def look(self, client, message, t):
        received.setdefault(t, {})[client.id] = message["prototypes"]
        return prepare(self, client, message, t)

    monkeypatch.setattr(FedProc, "prepare", look)
    fed = ragged(FedProcVariants(weighted_prototypes=weighted))
    assert len(fed.server["prototypes"]["labels"]) == 0
    fed.run_round()
    sets = [by_hand(fed, fed.initial[None], client) for client in fed.clients]
    expected = mean_by_class(join(sets), weighted)
    assert received[0].keys() == {0, 1, 2, 3}
    for message in received[0].values():
        assert_same(message, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", [FedProc(), FedProcVariants(normalise_z=True), FedProto()])
def test_what_is_sent_is_the_mean_per_class_of_the_final_weights_in_eval_mode_without_augmentation(
    ragged, method
):
    fed, unit = ragged(method), getattr(method, "normalise_z", False)
    fed.run_round()
    begun = [fed.server["model"] | client.memory.get("model", {}) for client in fed.clients]
    uploads = fed.exchange(fed.server, fed.clients, 1)
    for client, upload, begin in zip(fed.clients, uploads, begun, strict=True):
        end = client.memory.get("model", {}) | upload.get("model", {})  # kept or sent
        assert upload["prototypes"]["labels"].tolist() == CLASSES_OF[client.id]
        assert_same(upload["prototypes"], by_hand(fed, end, client, unit), rtol=1e-4, atol=1e-6)
        in_training = by_hand(fed, end, client, unit, training=True)
        for other in (in_training, by_hand(fed, begin, client, unit)):
            assert not np.allclose(upload["prototypes"]["vectors"][0], other["vectors"][0])


@pytest.mark.parametrize("name", ["FedProc", "FedSSC", "FedProto", "FedPLCC"])
def test_under_sampling_a_class_that_nobody_of_the_round_holds_keeps_its_prototypes(
    ragged, identical, name
):
    method = METHODS[name](**{"min_images": 1} if name == "FedSSC" else {})
    fed = ragged(method, classes_of=([0, 2], [0], [1], [1]), participation=0.5, lr=0.005)
    kept = changed = unknown = 0
    before, known = fed.server["prototypes"], set()
    for t in range(10):
        held = {label for client in fed.sample(t) for label in client.labels.tolist()}
        fed.run_round()
        after = fed.server["prototypes"]
        for label in known:
            of_label = [select(one, one["labels"] == label) for one in (before, after)]
            same = identical(*of_label)
            assert same == (label not in held)
            kept, changed = kept + same, changed + (not same)
        before, known = after, known | held
        # nothing is made up for a class that nobody has held yet
        assert set(after["labels"].tolist()) == known
        assert after["vectors"].isfinite().all()
        unknown += len(known) < 3
    assert kept and changed and unknown
