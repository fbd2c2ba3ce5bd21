"""FINCH against equation 1 taken at its word, in exact arithmetic; what must not change it; FINCH* and its weights."""

import itertools

import numpy as np
import pytest
import torch

from fednb import finch
from fednb.finch import finch_star, first_neighbours, partitions

METRICS = ("cosine", "euclidean")
SETS = 60  # random sets per metric


def literal_neighbours(sums, sizes, metric):
    """The nearest other mean sums[i] / sizes[i], the first on ties; distances are fractions of whole numbers, so exact."""
    inner = (sums @ sums.T).tolist()
    found = []
    for i, m in enumerate(sizes):
        nearest = None
        for j, n in enumerate(sizes):
            # -cos² with the sign of cos, but for a factor of i; 0 for a vector of zeros
            if metric == "cosine":
                top, bottom = -inner[i][j] * abs(inner[i][j]), inner[j][j] or 1
            else:  # squared
                top = inner[i][i] * n * n + inner[j][j] * m * m - 2 * inner[i][j] * m * n
                bottom = m * m * n * n
            if j != i and (nearest is None or top * nearest[1] < nearest[0] * bottom):
                nearest = top, bottom, j
        found.append(nearest[2])
    return found


def literal_components(neighbour, third=True):
    """Components of the adjacency of equation 1, with or without its third clause, numbered by first occurrence."""

    def adjacent(i, j):
        linked = i == j or neighbour[i] == j or neighbour[j] == i
        return linked or (third and neighbour[i] == neighbour[j])

    places = range(len(neighbour))
    near = [[j for j in places if adjacent(i, j)] for i in places]
    labels, before = list(places), None
    while labels != before:  # the lowest number spreads from neighbour to neighbour
        before, labels = labels, [min(labels[j] for j in near[i]) for i in places]
    return [sorted(set(labels)).index(label) for label in labels]


def literal_partitions(numbers, metric):
    """Every level by the stop rule of the published code, each from the means of the original points."""
    if len(numbers) < 2:
        return [[0] * len(numbers)]
    levels = [literal_components(literal_neighbours(numbers, [1] * len(numbers), metric))]
    while (before := max(levels[-1]) + 1) > 1:
        labels = np.array(levels[-1])
        sums = np.stack([numbers[labels == c].sum(0) for c in range(before)])
        sizes = np.bincount(labels).tolist()
        of_clusters = literal_components(literal_neighbours(sums, sizes, metric))
        after = max(of_clusters) + 1
        if after in (1, before):
            break
        levels.append([of_clusters[c] for c in labels])
        if before - after == 1:
            break
    return levels


def whole_numbers(seed):
    """A random set of whole numbers [n, D]: fine or coarse, signed or as after a ReLU, with copies and zeros among them."""
    rng = np.random.default_rng([seed, 7])
    n, dimension = int(rng.integers(1, 61)), int(2 ** rng.uniform(1, 6.02))  # dimensions 2 to 64
    scale = (500, 500, 1)[seed % 3]  # the last gives many exact ties between different points
    numbers = np.rint(rng.normal(size=(n, dimension)) * scale).astype(np.int64)
    if seed % 2:
        numbers = np.maximum(numbers, 0)
    for _ in range(int(rng.integers(0, n // 3 + 1))):
        i, j = rng.integers(0, n, 2)
        numbers[i] = (0, 1, 1, 3)[rng.integers(4)] * numbers[j]  # zeros, a copy, a multiple
    return numbers


def points_of(numbers, dtype=torch.float32):
    return torch.from_numpy(numbers / 256).to(dtype)


def random_points(seed, dtype=torch.float32):
    """Random points, single or in groups, some of them copies; no ties between different points."""
    rng = np.random.default_rng([seed, 8])
    n, dimension = int(rng.integers(2, 61)), int(2 ** rng.uniform(1, 6.02))
    points = rng.normal(size=(n, dimension))
    if seed % 2:
        points = np.abs(points)
    if seed % 3 == 0:
        points += rng.normal(size=(4, dimension))[rng.integers(0, 4, n)] * 3
    points[rng.integers(0, n, n // 4)] = points[rng.integers(0, n, n // 4)]
    return torch.from_numpy(points).to(dtype)


def as_sets(labels):
    """The partition as a set of sets of places."""
    return {frozenset(torch.nonzero(labels == c).flatten().tolist()) for c in labels.unique()}


def test_the_third_clause_adds_no_connectivity():
    rng = np.random.default_rng(0)
    for _ in range(SETS):  # any map without a fixed point, with cycles of any length
        n = int(rng.integers(2, 61))
        neighbour = (np.arange(n) + rng.integers(1, n, n)) % n
        expected = literal_components(neighbour.tolist())
        assert literal_components(neighbour.tolist(), third=False) == expected
        assert finch._components(torch.from_numpy(neighbour)).tolist() == expected


@pytest.mark.parametrize("metric", METRICS)
def test_first_neighbours_are_exactly_those_of_fractions(metric):
    tied = 0
    for seed in range(SETS):
        numbers = whole_numbers(seed)
        if len(numbers) > 1:
            expected = literal_neighbours(numbers, [1] * len(numbers), metric)
            assert first_neighbours(points_of(numbers), metric).tolist() == expected, seed
            turned = literal_neighbours(numbers[::-1], [1] * len(numbers), metric)
            tied += expected != [len(numbers) - 1 - j for j in turned[::-1]]
    assert tied > SETS / 4  # the sets do have ties, in which the lowest index matters


@pytest.mark.parametrize("metric", METRICS)
def test_every_level_is_that_of_equation_1(metric):
    depths = []
    for seed in range(SETS):
        numbers = whole_numbers(seed)
        found = partitions(points_of(numbers), metric)
        assert found.dtype == torch.int64
        assert found.tolist() == literal_partitions(numbers, metric), seed
        depths.append(len(found))
    assert min(depths) == 1 and max(depths) >= 3 and sum(depth > 1 for depth in depths) > SETS / 8


def test_a_long_chain_and_a_worked_example():
    # gaps that shrink: each point's neighbour is the next one, 300 links to the only mutual pair
    positions = torch.cumsum(torch.linspace(2, 1, 300, dtype=torch.float64), 0)[:, None]
    assert first_neighbours(positions, "euclidean").tolist() == [*range(1, 300), 298]
    assert partitions(positions, "euclidean").tolist() == [[0] * 300]
    # 0, 1 | 10, 12 | 100, 103 | 111, 115: pairs; their means 0.5, 11, 101.5, 113; then two clusters, and there it ends
    line = torch.tensor([100.0, 0, 12, 103, 115, 1, 10, 111])[:, None]
    assert partitions(line, "euclidean").tolist() == [
        [0, 1, 2, 0, 3, 1, 2, 3],
        [0, 1, 1, 0, 0, 1, 1, 0],
    ]


@pytest.mark.parametrize("metric", METRICS)
def test_neither_order_nor_copies_nor_scale_matter(metric):
    for seed in range(SETS // 2):
        points = random_points(seed, (torch.float32, torch.float64)[seed % 5 % 2])
        order = torch.from_numpy(np.random.default_rng(seed).permutation(len(points)))
        levels, turned = partitions(points, metric), partitions(points[order], metric)
        assert len(levels) == len(turned), seed
        for before, after in zip(levels, turned, strict=True):
            assert as_sets(before[order]) == as_sets(after), seed
        for labels in partitions(torch.cat([points, points]), metric):
            assert torch.equal(labels[: len(points)], labels[len(points) :])
        exact = points.double()
        for scale in (1e-250, 1e30, 1e250):  # squares neither overflow nor vanish
            assert torch.equal(partitions(exact * scale, metric), partitions(exact, metric))
        sizes = [torch.bincount(labels) for labels in levels]
        assert all(size.min() >= 2 for size in sizes)
        assert all(2 * len(coarse) <= len(fine) for fine, coarse in itertools.pairwise(sizes))


def test_rounding_does_not_break_ties():
    # the diagonal is as far from one axis as from the other; the lengths make the products round differently
    for length in np.random.default_rng(0).uniform(0.1, 10, 100):
        along = [[length, length, 0], [length / 3] * 3]
        points = torch.tensor([[3.0, 0, 0], [0, 0.7, 0], *along])
        assert first_neighbours(points.double()).tolist() == [2, 2, 3, 2]
        assert first_neighbours(points[:3].double()).tolist() == [2, 2, 0]
    line = torch.tensor([[0.1], [0.2], [0.3]], dtype=torch.float64)  # 0.1 + 0.2 is not 0.3
    for points in (line, line.flip(0)):
        assert first_neighbours(points, "euclidean").tolist() == [1, 0, 1]


@pytest.mark.parametrize("metric", METRICS)
def test_neither_type_nor_blocks_nor_a_far_place_matter(metric, monkeypatch):
    near = torch.tensor([0, 1e-6, 3e-6, 4e-6], dtype=torch.float64)[:, None]
    near = near + torch.tensor([1000.0, -1000.0])
    assert partitions(near, "euclidean").tolist() == [[0, 0, 1, 1]]
    for seed in range(10):
        points = random_points(seed)
        expected = partitions(points, metric)
        assert torch.equal(expected, partitions(points.double(), metric))
        half = points.half()
        assert torch.equal(partitions(half, metric), partitions(half.double(), metric))
        for block in (1, 100, 1000):
            with monkeypatch.context() as patch:
                patch.setattr(finch, "BLOCK", block)
                assert torch.equal(partitions(points, metric), expected)


@pytest.mark.parametrize("metric", METRICS)
def test_few_points_and_equal_points(metric):
    for seed in range(10):
        points = torch.from_numpy(np.random.default_rng(seed).normal(size=(5, 3)))
        for n in (0, 1, 2, 3):
            assert partitions(points[:n], metric).tolist() == [[0] * n]
        for n in (4, 5):
            assert len(partitions(points[:n], metric)) == 1
            assert partitions(points[:n], metric).max() <= 1
    alike = torch.zeros(1, 3), torch.tensor([[0.1, -0.2, 0.7]])
    for point, n in itertools.product(alike, (2, 3, 4, 10, 100)):
        assert partitions(point.expand(n, 3), metric).tolist() == [[0] * n]
        assert first_neighbours(point.expand(n, 3), metric).tolist() == [1] + [0] * (n - 1)


@pytest.mark.parametrize("metric", METRICS)
def test_weights_are_conserved_and_centres_are_plain_means(metric):
    for seed in range(10):
        points, rng = random_points(seed), np.random.default_rng(seed)
        n = len(points)
        labels = partitions(points, metric)[-1]
        members = [labels == c for c in range(labels.max() + 1)]
        means = torch.stack([points[own].double().mean(0) for own in members]).float()
        whole = torch.from_numpy(rng.integers(1, 1000, n))
        real = torch.from_numpy(1 - rng.random(n))
        for weights in (None, whole, whole.int(), real, real.float(), torch.full((n,), 2**53 + 1)):
            found = finch_star(points, weights, metric)
            given = torch.ones(n, dtype=torch.long) if weights is None else weights
            # whole weights are summed exactly
            given = given if given.is_floating_point() else given.long()
            assert torch.equal(found.labels, labels)
            torch.testing.assert_close(found.centres, means)
            sums = torch.stack([given[own].sum() for own in members])
            torch.testing.assert_close(found.weights, sums)
    for weighted_mean in (False, True):
        none = finch_star(torch.zeros(0, 4), None, metric, weighted_mean=weighted_mean)
        assert none.centres.shape == (0, 4) and none.weights.shape == none.labels.shape == (0,)


@pytest.mark.parametrize(
    ("points", "metric", "message"),
    [
        (torch.tensor([[0.0, torch.nan], [1, 1]]), "cosine", r"\[2, 2\]; .*, all finite"),
        (torch.ones(4), "cosine", r"float32 \[4\]; it must be floating point \[n, D\] with D >= 1"),
    ],
)
def test_bad_points_are_refused(points, metric, message):
    for function in (first_neighbours, partitions):
        with pytest.raises(ValueError, match=message):
            function(points, metric)
