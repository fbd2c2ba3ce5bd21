"""Partitions: MOON's published rule to the digit, and the promises of every partition."""

import numpy as np
import pytest

from fednb import partition
from fednb.partition import PartitionError

CIFAR10_SIZES = [5307, 3688, 4435, 5047, 5189, 3803, 5202, 4325, 8078, 4926]


def labels_of(num_classes, per_class):
    return np.repeat(np.arange(num_classes), per_class)


def dirichlet(labels, num_clients=10, beta=0.5, seed=0, **options):
    return partition.dirichlet(labels, num_clients, beta, np.random.RandomState(seed), **options)


def is_complete(parts, num_samples):
    return np.array_equal(np.sort(np.concatenate(parts)), np.arange(num_samples))


@pytest.mark.parametrize(("num_classes", "per_class", "std"), [(10, 5000, 1165.40), (100, 500, 181.45), (200, 500, 98.85)])
def test_party_sizes_have_the_std_of_moon_table_6(num_classes, per_class, std):
    parts = dirichlet(labels_of(num_classes, per_class))
    assert np.std([len(p) for p in parts], ddof=0) == pytest.approx(std, abs=0.005)


def test_cifar10_party_sizes_are_moons():
    assert [len(p) for p in dirichlet(labels_of(10, 5000))] == CIFAR10_SIZES


@pytest.mark.parametrize(("beta", "empty"), [(0.5, 10), (0.1, 42)])
def test_cifar10_has_as_many_empty_cells_as_with_moons_code(beta, empty):
    labels = labels_of(10, 5000)
    assert (partition.class_counts(dirichlet(labels, beta=beta), labels, 10) == 0).sum() == empty


@pytest.mark.parametrize("balance", [True, False])
def test_dirichlet_gives_every_image_to_exactly_one_client(balance):
    labels = np.random.RandomState(1).randint(0, 7, 3000)
    parts = dirichlet(labels, balance=balance)
    assert len(parts) == 10
    assert is_complete(parts, 3000)


def test_dirichlet_shuffles_the_classes_of_a_client():
    labels = labels_of(10, 100)
    assert not any(np.array_equal(labels[p], np.sort(labels[p])) for p in dirichlet(labels))


def test_a_small_beta_leaves_few_classes_per_client_and_a_large_one_is_nearly_iid():
    labels = labels_of(10, 1000)
    small, large = (partition.class_counts(dirichlet(labels, beta=b), labels, 10) for b in (0.05, 1000))
    assert (small >= 20).sum(1).mean() < 4
    assert abs(large - 100).max() < 30


def test_without_balance_full_clients_go_on_receiving():
    labels = labels_of(10, 1000)
    balanced, plain = dirichlet(labels), dirichlet(labels, balance=False)
    assert [len(p) for p in balanced] != [len(p) for p in plain]
    assert max(map(len, plain)) > max(map(len, balanced))


def test_draws_are_repeated_until_every_client_has_min_size():
    labels = labels_of(10, 200)
    assert min(map(len, dirichlet(labels, beta=0.3, min_size=1))) < 120
    parts = dirichlet(labels, beta=0.3, min_size=120)
    assert min(map(len, parts)) >= 120
    assert is_complete(parts, 2000)


def test_draws_are_bounded():
    class Counting(np.random.RandomState):
        draws = 0

        def dirichlet(self, *args):
            self.draws += 1
            return super().dirichlet(*args)

    rng = Counting(0)
    with pytest.raises(PartitionError, match=r"None of 7 Dirichlet draws with beta 0.1 .* at least 100 images"):
        partition.dirichlet(labels_of(2, 500), 10, 0.1, rng, min_size=100, max_draws=7)
    assert rng.draws == 7 * 2


def test_a_beta_so_small_that_all_shares_underflow_is_an_error_not_a_wrong_partition():
    with pytest.raises(PartitionError, match="larger beta"):
        dirichlet(labels_of(10, 100), beta=1e-300, max_draws=5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num_clients": 0}, "at least one client"),
        ({"num_clients": 101}, "101 clients with at least 10 images each need 1,010 images, but there are only 1,000"),
        ({"min_size": 101}, "need 1,010 images"),
        ({"beta": 0.0}, "must be positive"),
        ({"beta": -1.0}, "must be positive"),
        ({"beta": float("nan")}, "must be positive"),
    ],
)
def test_an_impossible_request_says_why(change, reason):
    with pytest.raises(PartitionError, match=reason):
        dirichlet(labels_of(10, 100), **change)


def test_iid_parts_are_random_complete_and_of_equal_size():
    parts = partition.iid(labels_of(10, 10), 7, np.random.RandomState(0))
    assert sorted({len(p) for p in parts}) == [14, 15]
    assert is_complete(parts, 100)
    assert not np.array_equal(np.concatenate(parts), np.arange(100))
    with pytest.raises(PartitionError, match="only 3"):
        partition.iid(np.zeros(3, int), 4, np.random.RandomState(0))


def test_partitions_leave_the_global_generator_alone():
    np.random.seed(5)
    expected = np.random.RandomState(5).rand(3)
    dirichlet(labels_of(10, 100))
    partition.iid(labels_of(10, 100), 10, np.random.RandomState(0))
    assert np.array_equal(np.random.rand(3), expected)


def test_the_seed_decides_the_partition():
    labels = labels_of(10, 100)
    first, again, other = (partition.digest(dirichlet(labels, seed=s)) for s in (0, 0, 1))
    assert first == again != other


def test_class_counts_and_digest_by_hand():
    labels = np.array([0, 1, 1, 2])
    parts = [np.array([0, 1]), np.array([2, 3])]
    assert partition.class_counts(parts, labels, 4).tolist() == [[1, 1, 0, 0], [0, 1, 1, 0]]
    digests = {
        partition.digest(p) for p in (parts, parts[::-1], [np.array([1, 0]), parts[1]], [np.array([0, 1, 2]), parts[1][1:]])
    }
    assert len(digests) == 4
    assert all(len(d) == 16 for d in digests)
