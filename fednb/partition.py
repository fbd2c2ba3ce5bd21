"""Who owns which training image: labels and a generator in, one index array per client out."""

import hashlib
import random
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from numpy.random import Generator, RandomState

from fednb.errors import check

Parts = list[np.ndarray]
MAX_DRAWS = 1000  # of Dirichlet shares, until each client has enough images


def iid(labels: np.ndarray, num_clients: int, rng: RandomState) -> Parts:
    """Cut one random permutation into ``num_clients`` parts whose sizes differ by at most one."""
    return np.array_split(rng.permutation(len(labels)), num_clients)


def dirichlet(
    labels: np.ndarray,
    num_clients: int,
    beta: float,
    rng: RandomState,
    *,
    min_size: int = 10,
    balance: bool = True,
) -> Parts:
    """Draw a label shift by Dirichlet shares, with the published rule of MOON's code.

    For each class k of the integer ``labels`` [N], shares p_k ~ Dir(beta, ..., beta) are drawn, and
    client j receives the fraction p_kj of the class (MOON, section 4.1): a small beta leaves each
    client few classes, a large one is nearly IID. The code does two things that the paper does not
    mention: a client that holds its equal share of all images gets nothing of later classes
    (``balance`` False is the textbook rule), and the draw is repeated until every client has
    ``min_size`` images; a `ValueError` if that needs more images than there are, or fails 1,000
    times. ``RandomState(0)`` gives the parties in MOON's Table 6.
    """
    equal_share = len(labels) / num_clients

    def draw() -> Parts:
        parts = [np.empty(0, int)] * num_clients
        for k in range(int(labels.max()) + 1):
            of_class = np.flatnonzero(labels == k)
            rng.shuffle(of_class)
            shares = rng.dirichlet(np.repeat(beta, num_clients))
            if balance:
                shares = shares * [len(part) < equal_share for part in parts]
            if not shares.sum() > 0:  # tiny beta: every share of the clients with room underflowed
                return []
            pieces = _cut(of_class, shares / shares.sum())
            parts = [np.append(*pair) for pair in zip(parts, pieces, strict=True)]
        return parts

    parts = _repeat(draw, len(labels), num_clients, beta, min_size)
    for part in parts:
        rng.shuffle(part)
    return parts


def quantity(
    labels: np.ndarray, num_clients: int, beta: float, rng: RandomState, *, min_size: int = 10
) -> Parts:
    """Draw a quantity shift: clients differ in how many images, not in which (Li et al. 2022).

    Shares of all images q ~ Dir(beta, ..., beta) are drawn until each is worth ``min_size`` images;
    one random permutation is cut into parts of these sizes, so the classes of each part are drawn
    alike. Of ``labels`` only the number is read. It raises the `ValueError` of `dirichlet`.
    """
    order = rng.permutation(len(labels))

    def draw() -> Parts:
        shares = rng.dirichlet(np.repeat(beta, num_clients))
        return _cut(order, shares) if shares.sum() > 0 else []  # tiny beta: every share underflowed

    return _repeat(draw, len(labels), num_clients, beta, min_size)


def _cut(images: np.ndarray, shares: np.ndarray) -> Parts:
    return np.split(images, (np.cumsum(shares) * len(images)).astype(int)[:-1])


def _repeat(
    draw: Callable[[], Parts], num_images: int, num_clients: int, beta: float, min_size: int
) -> Parts:
    """Draw until each client has ``min_size`` images; a draw that is empty has failed."""
    if num_images < num_clients * min_size:
        raise ValueError(
            f"{num_clients} clients with at least {min_size} images each need "
            f"{num_clients * min_size:,} images, and there are {num_images:,}: take fewer clients, "
            f"or a min_size well below {num_images / num_clients:.1f}, their mean."
        )
    for _ in range(MAX_DRAWS):
        parts = draw()
        if parts and min(len(part) for part in parts) >= min_size:
            return parts
    raise ValueError(
        f"None of {MAX_DRAWS} Dirichlet draws with beta {beta} gave {num_clients} clients at least "
        f"{min_size} images each: take a larger beta, fewer clients, or a smaller min_size."
    )


def n_way_k_shot(
    labels: np.ndarray,
    test_labels: np.ndarray,
    num_clients: int,
    n: int,
    stdev: int,
    rng: RandomState,
    class_rng: random.Random,
    *,
    k: int = 100,
    mnist: bool = False,
    draw: str = "uniform",
    train_shots_max: int = 110,
    test_shots: int = 15,
) -> tuple[Parts, Parts]:
    """Draw a few classes per client, about k images of each: the sampler of FedProto's code.

    The paper speaks of the standard deviation of n and k (FedProto, section "Local tasks"); its code draws uniformly::

        n_i  in  max(2, n - stdev) .. min(K, n + stdev + 1) - 1
        k_i  in  k - stdev + 1 .. k + stdev          (with ``mnist`` .. k + stdev - 2, empty for stdev 1)

    ``draw`` "normal" reads the paper literally: rounded normal draws, clipped to 2 .. K and 1 ..
    train_shots_max.

    The images of a class, in the data set's order, form blocks of ``train_shots_max``; client i
    receives the first k_i of block i in each of its classes, and all of block i, of ``test_shots``
    images, in the test set: clients are disjoint. Where a class ends before block i, and the code
    reads on in the next class, its blocks are counted among its holders.

    ``np.random.RandomState(1234)`` and ``random.Random(1234)`` give the clients of the published
    code. Returns int64 indices into training and test images (labels [N] and [N'], from 0), one
    array per client, sorted by class. A `ValueError` says that n exceeds K, a range is empty, or a
    class has too few images.
    """
    num_classes = int(max(labels.max(), test_labels.max())) + 1
    message = (
        f"ways is {n}; the data set has {num_classes} classes: take ways of at most {num_classes}."
    )
    check(n <= num_classes, message)
    if draw == "uniform":
        most_ways = min(num_classes, n + stdev + 1) - 1
        num_ways = _uniform(rng, "ways", max(2, n - stdev), most_ways, num_clients)
        most_shots = k + stdev - 2 if mnist else k + stdev
        shots = _uniform(rng, "shots", k - stdev + 1, most_shots, num_clients)
    else:
        ways_drawn = np.rint(rng.normal(n, stdev, num_clients)).astype(int)
        num_ways = ways_drawn.clip(min(2, num_classes), num_classes)
        shots = np.rint(rng.normal(k, stdev, num_clients)).astype(int).clip(1, train_shots_max)
    least = min(k, shots.min())
    most = max(k, shots.max())
    message = (
        f"shots {k} with stdev {stdev} asks for {least} to {most} images per class, but for "
        f"disjoint clients it must be 1 to {train_shots_max}: change shots or stdev."
    )
    check(1 <= least and most <= train_shots_max, message)
    ways = [sorted(class_rng.sample(range(num_classes), int(m))) for m in num_ways]
    parts = _blocks(labels, ways, shots, train_shots_max, "training")
    return parts, _blocks(test_labels, ways, np.full(num_clients, test_shots), test_shots, "test")


def _uniform(rng: RandomState, name: str, low: int, high: int, size: int) -> np.ndarray:
    message = (
        f"The published code draws {name} from {low} to {high}, which is empty: take another stdev "
        "(MNIST: at least 2), other ways, or draw='normal'."
    )
    check(low <= high, message)
    return rng.randint(low, high + 1, size)


def _blocks(
    labels: np.ndarray, ways: list[list[int]], shots: np.ndarray, size: int, what: str
) -> Parts:
    """The first ``shots[i]`` images of client i's block in each of its classes ``ways[i]``."""
    chosen: list[list[np.ndarray]] = [[] for _ in ways]
    for c in sorted({c for way in ways for c in way}):
        of_class = np.flatnonzero(labels == c)
        holders = [i for i, way in enumerate(ways) if c in way]
        # the code counts blocks among all clients; where they are too few, among the holders
        numbers = holders
        if numbers[-1] * size + shots[holders[-1]] > len(of_class):
            numbers = list(range(len(holders)))
        needed = numbers[-1] * size + shots[holders[-1]]
        fix = "shots" if what == "training" else "test_shots"
        message = (
            f"Class {c} has {len(of_class):,} {what} images, but the {len(holders)} clients that "
            f"have it need {needed:,} in blocks of {size}: take smaller {fix}, fewer clients, "
            "or smaller ways."
        )
        check(needed <= len(of_class), message)
        for i, number in zip(holders, numbers, strict=True):
            chosen[i].append(of_class[number * size : number * size + shots[i]])
    return [np.concatenate(arrays).astype(np.int64) for arrays in chosen]


def by_domain(
    labels: np.ndarray,
    domains: np.ndarray,
    per_domain: int,
    rng: Generator,
    *,
    balanced: bool = True,
) -> Parts:
    """Draw one client per domain, at most ``per_domain`` of its images; increasing int64 indices.

    FedPLCC (section "Experiments") speaks of about 300 images per client, 400 on DomainNet, and
    does not say how they are chosen. RethinkFL, which it seems to be built on, draws from all
    images of a domain alike (``balanced`` False). Balanced, one image of each class is drawn in
    turn, so that their numbers differ by at most one unless a class has too few. A `DataError`
    tells of a domain without images.
    """
    parts = []
    for domain in range(int(domains.max()) + 1):
        images = rng.permutation(np.flatnonzero(domains == domain))
        check(len(images), f"Domain {domain} has no training images: its client would have none.")
        if balanced:
            # how many of its class come before an image
            turn = pd.Series(images).groupby(labels[images]).cumcount()
            images = images[np.argsort(turn, kind="stable")]
        parts.append(np.sort(images[:per_domain]).astype(np.int64))
    return parts


def class_counts(parts: Sequence[np.ndarray], labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Count images per client and class, [clients, classes]."""
    return np.stack([np.bincount(labels[part], minlength=num_classes) for part in parts])


def digest(parts: Sequence[np.ndarray]) -> str:
    """Return sixteen hex digits that change when any client's list of images changes."""
    content = b"".join(np.asarray(part, dtype="<i8").tobytes() + b"|" for part in parts)
    return hashlib.sha256(content).hexdigest()[:16]
