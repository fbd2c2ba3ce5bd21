"""Partitions: MOON's published rule to the digit, and the promises of every partition."""

import dataclasses
import functools
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fednb.papers.foundations import METHODS

from fednb import build, partition, settings


def labels_of(num_classes, per_class):
    return np.repeat(np.arange(num_classes), per_class)


def dirichlet(labels, num_clients=10, beta=0.5, seed=0, **options):
    return partition.dirichlet(labels, num_clients, beta, np.random.RandomState(seed), **options)


def quantity(labels, num_clients=10, beta=0.5, seed=0, **options):
    return partition.quantity(labels, num_clients, beta, np.random.RandomState(seed), **options)


def iid(labels, seed):
    return partition.iid(labels, 10, np.random.RandomState(seed))


@pytest.mark.parametrize(
    ("num_classes", "per_class", "std"),
    [(10, 5000, 1165.40), (100, 500, 181.45), (200, 500, 98.85)],
)
def test_party_sizes_have_the_std_of_moon_table_6(num_classes, per_class, std):
    parts = dirichlet(labels_of(num_classes, per_class))
    assert np.std([len(p) for p in parts], ddof=0) == pytest.approx(std, abs=0.005)


@pytest.mark.parametrize(("beta", "empty"), [(0.5, 10), (0.1, 42)])
def test_cifar10_parties_are_moons(beta, empty):
    labels = labels_of(10, 5000)
    counts = partition.class_counts(dirichlet(labels, beta=beta), labels, 10)
    assert (counts == 0).sum() == empty
    sizes = [5307, 3688, 4435, 5047, 5189, 3803, 5202, 4325, 8078, 4926]
    assert (counts.sum(1).tolist() == sizes) == (beta == 0.5)


@pytest.mark.parametrize(
    "draw", [dirichlet, functools.partial(dirichlet, balance=False), quantity, iid]
)
def test_every_image_has_one_client_by_the_seed_and_by_no_other_generator(draw):
    labels = np.random.RandomState(1).randint(0, 7, 3000)
    np.random.seed(5)
    expected = np.random.RandomState(5).rand(3)
    first, again, other = (draw(labels, seed=seed) for seed in (0, 0, 1))
    assert len(first) == 10 and np.array_equal(np.sort(np.concatenate(first)), np.arange(3000))
    assert min(map(len, first)) >= 10 and not np.array_equal(np.concatenate(first), np.arange(3000))
    assert partition.digest(first) == partition.digest(again) != partition.digest(other)
    assert np.array_equal(np.random.rand(3), expected)


@pytest.mark.parametrize(
    ("draw", "change"), [(dirichlet, {"num_clients": 101}), (quantity, {"beta": 1e-300})]
)
def test_draws_are_bounded_and_an_impossible_request_says_what_to_do(draw, change, monkeypatch):
    monkeypatch.setattr(partition, "MAX_DRAWS", 5)
    words = "of 5 Dirichlet .*: take a larger beta, fewer clients, or a smaller min_size|need 1,010"
    with pytest.raises(ValueError, match=words):
        draw(labels_of(10, 100), **change)


def test_draws_are_repeated_until_every_client_has_min_size():
    labels = labels_of(10, 200)
    assert min(map(len, dirichlet(labels, beta=0.3, min_size=1))) < 120
    parts = dirichlet(labels, beta=0.3, min_size=120)
    assert min(map(len, parts)) >= 120
    assert sorted(np.concatenate(parts)) == list(range(2000))


def test_class_counts_and_digest_by_hand():
    labels = np.array([0, 1, 1, 2])
    parts = [np.array([0, 1]), np.array([2, 3])]
    assert partition.class_counts(parts, labels, 4).tolist() == [[1, 1, 0, 0], [0, 1, 1, 0]]
    others = parts[::-1], [np.array([1, 0]), parts[1]], [np.array([0, 1, 2]), parts[1][1:]]
    digests = {partition.digest(p) for p in (parts, *others)}
    assert [len(digest) for digest in digests] == [16] * 4


# FedProto's sampler

MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
WAYS = [5, 5, 4, 3, 2, 2, 2, 3, 5, 3, 5, 3, 4, 4, 5, 4, 2, 2, 4, 4]


def shuffled(sizes, seed=7):
    return np.random.RandomState(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))


MNIST = shuffled(MNIST_TRAIN), shuffled(MNIST_TEST)
LETTERS = labels_of(26, 1000), labels_of(26, 200)


def n_way(labels=MNIST, n=3, stdev=2, num_clients=20, seed=1234, **options):
    rngs = np.random.RandomState(seed), random.Random(seed)
    return partition.n_way_k_shot(*labels, num_clients, n, stdev, *rngs, **options)


def are_disjoint(parts):
    together = np.concatenate(parts)
    return len(np.unique(together)) == len(together)


def test_seed_1234_draws_the_clients_of_fedprotos_code_also_by_settings_alone():
    parts, test_parts = n_way(mnist=True, test_shots=40)
    classes = [np.unique(MNIST[0][part]).tolist() for part in parts]
    assert [len(c) for c in classes] == WAYS
    first = [[0, 1, 4, 7, 9], [0, 1, 2, 6, 8], [0, 3, 6, 8], [0, 5, 7], [7, 9], [1, 2]]
    assert classes[: len(first)] == first
    assert [np.unique(MNIST[1][part]).tolist() for part in test_parts] == classes
    assert [len(part) for part in test_parts] == [40 * ways for ways in WAYS]
    assert all(part.dtype == np.int64 for part in [*parts, *test_parts])
    given = {"dataset": "mnist", "partition": "n-way-k-shot", "seed": 1234}
    own = settings.resolve(METHODS, method="FedAvg", **given)
    labels, test_labels = map(torch.from_numpy, MNIST)
    dataset = SimpleNamespace(labels=labels, test_labels=test_labels)
    *divided, held_out = build.divide(own, dataset)
    assert held_out == []
    assert list(map(partition.digest, divided)) == list(map(partition.digest, (parts, test_parts)))
    normal, _, _ = build.divide(dataclasses.replace(own, draw="normal"), dataset)
    assert [len(np.unique(MNIST[0][part])) for part in normal] != WAYS


@pytest.mark.parametrize(
    ("n", "images", "mean"), [(3, 7053, 3.55), (4, 7772, 3.90), (5, 9764, 4.90)]
)
def test_on_mnist_fedprotos_clients_have_as_many_images_as_with_its_code(n, images, mean):
    parts, test_parts = n_way(n=n, mnist=True, test_shots=40)
    assert sum(map(len, parts)) == images
    counts = partition.class_counts(parts, MNIST[0], 10)
    assert (counts > 0).sum(1).mean() == pytest.approx(mean)
    assert set(counts[counts > 0]) == {99, 100}  # k - stdev + 1 .. k + stdev - 2
    assert set(partition.class_counts(test_parts, MNIST[1], 10).ravel()) == {0, 40}
    assert are_disjoint(parts)
    assert are_disjoint(test_parts)


def test_client_i_has_block_i_of_its_classes():
    """Against a literal loop over a data set sorted by class, where position and index are the same."""
    labels = labels_of(10, 2500), labels_of(10, 400)
    parts, test_parts = n_way(labels)
    shots = partition.class_counts(parts, labels[0], 10).max(1)
    for i, (part, test_part) in enumerate(zip(parts, test_parts, strict=True)):
        expected, expected_test = [], []
        for c in np.unique(labels[0][part]):
            expected += [2500 * c + 110 * i + j for j in range(shots[i])]
            expected_test += [400 * c + 15 * i + j for j in range(15)]
        assert part.tolist() == expected
        assert test_part.tolist() == expected_test


@pytest.mark.parametrize(
    ("n", "stdev", "options"),
    [
        (3, 1, {}),
        (4, 2, {"k": 90, "train_shots_max": 100}),
        (3, 2, {"mnist": True, "test_shots": 20}),
    ],
)
def test_emnist_letters_suffice_because_blocks_are_counted_among_the_holders(n, stdev, options):
    divided = n_way(LETTERS, n=n, stdev=stdev, **options)
    assert all(map(are_disjoint, divided))
    pairs = zip(divided, LETTERS, strict=True)
    counts, test_counts = (partition.class_counts(*pair, 26) for pair in pairs)
    assert np.array_equal(counts > 0, test_counts == options.get("test_shots", 15))
    assert abs(counts[counts > 0] - options.get("k", 100)).max() <= stdev


def test_only_the_classes_that_are_too_small_are_renumbered():
    tests = labels_of(10, 400)
    labels, large = ((np.repeat(np.arange(10), [2500] * 9 + [n]), tests) for n in (700, 2500))
    small_parts, large_parts = n_way(labels)[0], n_way(large)[0]
    holders = [i for i, part in enumerate(large_parts) if 9 in large[0][part]]
    assert len(holders) > 1 and holders[-1] > 6
    for i, (small, reference) in enumerate(zip(small_parts, large_parts, strict=True)):
        assert small[labels[0][small] < 9].tolist() == reference[large[0][reference] < 9].tolist()
        if i in holders:
            assert small[labels[0][small] == 9][0] == 22_500 + 110 * holders.index(i)


def test_quantity_shift_is_no_label_shift():
    """The shares of the classes of large clients are those of all images, whatever order the labels have."""
    labels = labels_of(10, 1000)
    counts = partition.class_counts(quantity(labels), labels, 10)
    large = counts.sum(1) > 500
    assert 1 < large.sum() < 10
    assert np.abs(counts[large] / counts[large].sum(1, keepdims=True) - 0.1).max() < 0.05


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"n": 11}, "ways is 11; .* 10 classes: take ways of at most 10"),
        ({"mnist": True, "stdev": 1}, "draws shots from 100 to 99, .* empty: take another stdev"),
        ({"k": 120}, "asks for 119 to 12. images .* must be 1 to 110: change shots or stdev"),
        ({"test_shots": 200}, r"Class \d has \d+ test .* clients .* smaller test_shots"),
    ],
)
def test_an_impossible_sampler_says_why_and_what_to_do(change, reason):
    with pytest.raises(ValueError, match=reason):
        n_way(**change)


def test_a_client_has_one_domain_and_equal_classes():
    rng = np.random.default_rng(0)
    labels, groups = rng.integers(0, 10, 5000), rng.integers(0, 3, 5000)

    def draw(seed):
        return partition.by_domain(labels, groups, 304, np.random.default_rng(seed))

    parts, again, other = map(draw, (1, 1, 2))
    for d, part in enumerate(parts):
        assert part.dtype == np.int64 and len(part) == 304 and (np.diff(part) > 0).all()
        assert (groups[part] == d).all()
        assert set(np.bincount(labels[part], minlength=10)) == {30, 31}
    assert partition.digest(parts) == partition.digest(again) != partition.digest(other)
    # which classes have one more: not always the first
    counts = [np.bincount(labels[part], minlength=10) for part in (*parts, *other)]
    assert len({tuple(np.flatnonzero(of_client == 31)) for of_client in counts}) > 1


def test_a_small_class_gives_all_it_has_and_a_plain_draw_does_not_look_at_classes():
    labels = np.repeat([0, 1, 2], [100, 5, 100])

    def counts(number, balanced=True):
        rng = np.random.default_rng(0)
        (part,) = partition.by_domain(labels, 0 * labels, number, rng, balanced=balanced)
        return np.bincount(labels[part])

    assert counts(60)[1] == 5 > counts(60, balanced=False)[1]
    assert counts(300).tolist() == [100, 5, 100]  # there are no more
    with pytest.raises(ValueError, match="Domain 1 has no training images"):
        partition.by_domain(np.array([0, 0]), np.array([0, 2]), 1, np.random.default_rng(0))
